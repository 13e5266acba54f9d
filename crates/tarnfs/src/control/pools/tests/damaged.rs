//! Pools of which something is damaged are shown, and got rid of, like any other.

use engine::dsl::SpaceCheck;
use engine::dsl::meta::key;

use super::*;

fn status(rig: &mut Rig, name: Option<&str>, properties: Wanted) -> Vec<PoolStatus> {
    rig.pools.pool_status(PoolSelect { name: name.map(str::to_owned), properties }).unwrap()
}

/// One pool whose log of damaged blocks was no object: `zpool status` and `zpool list` showed none of all pools, and `zpool export` of it said that there was no such pool.
#[test]
fn one_damaged_pool_hides_no_other() {
    let mut rig = Rig::new();
    let (a, b) = (rig.image("a.img"), rig.image("b.img"));
    rig.create("bad", &[&a], Vec::new()).unwrap();
    rig.create("good", &[&b], Vec::new()).unwrap();
    let dsl = rig.pools.find("bad").unwrap().pool.engine().dsl.clone();
    dsl.run_task(1, SpaceCheck::None, |_| Ok(()), |dsl, tx| dsl.meta.mos.zap_set_u64(key::DIRECTORY, "errlog_last", 1 << 40, tx)).unwrap();
    let found = status(&mut rig, None, Wanted::Only(Vec::new()));
    let shown: Vec<_> = found.iter().map(|status| (status.name.as_str(), status.error_count)).collect();
    assert_eq!(shown, [("bad", Some(1)), ("good", Some(0))]);
    let all = rig.pools.pool_list(PoolSelect { name: None, properties: Wanted::All }).unwrap();
    assert_eq!(all.iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>(), ["bad", "good"]);
    drop(dsl);
    rig.export("bad");
    rig.export("good");
}

/// After `zpool offline` of its log device a pool was not imported any more without `-m`: a machine came up without it.
#[test]
fn a_pool_whose_log_is_offline_is_imported() {
    let mut rig = Rig::new();
    let (a, log) = (rig.image("a.img"), rig.image("log.img"));
    rig.create("tank", &[&a], Vec::new()).unwrap();
    let vdevs = vec![VdevSpec { kind: VdevKind::File, path: Some(log.clone()), class: AllocationClass::Log, children: Vec::new() }];
    rig.pools.pool_add(PoolAdd { name: "tank".into(), vdevs, force: false, any_ashift: false, ashift: None }).unwrap();
    let verb = DeviceVerb::Offline { device: log.display().to_string(), fault: false, temporary: false };
    rig.pools.pool_device(PoolDevice { name: "tank".into(), verb }).unwrap();
    rig.export("tank");
    let guid = rig.found().remove(0).status.guid;
    rig.import(guid, "tank", false, Vec::new()).unwrap();
    let found = status(&mut rig, Some("tank"), Wanted::Only(Vec::new())).remove(0);
    let logs: Vec<_> = found.root.children.iter().filter(|top| top.class == AllocationClass::Log).map(|top| top.state).collect();
    assert_eq!(logs, [VdevState::Offline]);
    rig.export("tank");
}

/// Of more than a thousand damaged objects the rest was left out, and nothing said so; and each command had them looked for, though it showed no names.
#[test]
fn all_that_is_damaged_is_named_if_that_is_asked_for() {
    let mut rig = Rig::new();
    let image = rig.image("a.img");
    rig.create("tank", &[&image], Vec::new()).unwrap();
    let engine = rig.pools.find("tank").unwrap().pool.engine().clone();
    let lost = (0..1500).map(|object| (engine::zio::Bookmark { objset: 0, object: 1000 + object, level: 0, block: 7 }, 4));
    engine.context.io.lost.put_back(lost.collect(), std::collections::BTreeSet::new());
    engine.sync_all().unwrap();
    let found = status(&mut rig, Some("tank"), Wanted::Only(Vec::new())).remove(0);
    assert_eq!((found.error_count, found.errors.len()), (Some(1500), 0));
    let found = status(&mut rig, Some("tank"), Wanted::Only(vec![DAMAGED_FILES.into()])).remove(0);
    assert_eq!((found.error_count, found.errors.len()), (Some(1500), 1500));
    assert_eq!(found.errors[1499], format!("<metadata>:<{:#x}>", 1000 + 1499));
    drop(engine);
    rig.export("tank");
}

/// Files are found in a directory that is read once for all of them.
#[test]
fn damaged_files_are_called_by_their_paths() {
    let mut rig = Rig::new();
    let image = rig.image("a.img");
    rig.create("tank", &[&image], Vec::new()).unwrap();
    rig.make("tank/a", Vec::new()).unwrap();
    let (credentials, files) = (crate::Credentials::root(), rig.pools.pool("tank").unwrap().file_system("tank/a").unwrap());
    let directory = files.mkdir(files.root(), b"d", 0o755, &credentials).unwrap().inode;
    let make = |place: u64, name: &[u8]| files.create(place, name, 0o100_644, 0, &credentials).unwrap().inode;
    let made = [make(files.root(), b"top"), make(directory, b"one"), make(directory, b"two")];
    let engine = rig.pools.find("tank").unwrap().pool.engine().clone();
    engine.sync_all().unwrap();
    let dataset = engine.dsl.open_dataset("tank/a").unwrap().object;
    // Neither is the birth known, nor is anything asked of the block.
    let lost = made.iter().chain([&directory]).map(|object| (engine::zio::Bookmark { objset: dataset, object: *object, level: 0, block: 0 }, 0));
    engine.context.io.lost.put_back(lost.collect(), std::collections::BTreeSet::new());
    engine.sync_all().unwrap();
    let mut found = status(&mut rig, Some("tank"), Wanted::Only(vec![DAMAGED_FILES.into()])).remove(0).errors;
    found.sort();
    assert_eq!(found, ["tank/a:/d", "tank/a:/d/one", "tank/a:/d/two", "tank/a:/top"]);
    drop((files, engine));
    rig.export("tank");
}

/// Of a pool that was stopped as no heartbeats could be written, `zpool status` said nothing of another host.
#[test]
fn it_is_said_that_another_host_may_have_a_pool() {
    for (message, expected) in [(engine::pool::NO_HEARTBEAT, Suspension::Multihost), ("a bug", Suspension::Ended)] {
        let mut rig = Rig::new();
        let image = rig.image("a.img");
        rig.create("tank", &[&image], Vec::new()).unwrap();
        let engine = rig.pools.find("tank").unwrap().pool.engine().clone();
        engine.context.groups.fail(engine::error!(Suspended, "{message} for 20 s"));
        assert_eq!(status(&mut rig, Some("tank"), Wanted::Only(Vec::new()))[0].suspended, Some(expected));
        drop(engine);
        let _ = rig.pools.pool_export(PoolExport { name: "tank".into(), force: true, hard_force: true });
    }
}

/// `zpool clear tank mirror-0`, and that of a cache device, said that there was no such device.
#[test]
fn errors_of_a_group_and_of_a_cache_are_cleared_by_its_name() {
    let mut rig = Rig::new();
    let [a, b, cache, spare] = ["a.img", "b.img", "cache.img", "spare.img"].map(|name| rig.image(name));
    rig.create("tank", &[&a, &b], Vec::new()).unwrap();
    for (path, class) in [(&cache, AllocationClass::Cache), (&spare, AllocationClass::Spare)] {
        let vdevs = vec![VdevSpec { kind: VdevKind::File, path: Some(path.clone()), class, children: Vec::new() }];
        rig.pools.pool_add(PoolAdd { name: "tank".into(), vdevs, force: false, any_ashift: false, ashift: None }).unwrap();
    }
    let engine = rig.pools.find("tank").unwrap().pool.engine().clone();
    let errors = || engine.vdevs.leaves().iter().map(|leaf| leaf.stats.checksum_errors.load(std::sync::atomic::Ordering::Relaxed)).collect::<Vec<_>>();
    engine.vdevs.leaves().iter().for_each(|leaf| leaf.note_checksum_error());
    let clear = |rig: &mut Rig, device: &str| rig.pools.pool_clear(PoolClear { name: "tank".into(), device: Some(device.into()) });
    clear(&mut rig, "b.img").unwrap();
    assert_eq!(errors(), [1, 0]);
    clear(&mut rig, "mirror-0").unwrap();
    assert_eq!(errors(), [0, 0]);
    clear(&mut rig, "cache.img").unwrap();
    assert_eq!(clear(&mut rig, "spare.img").unwrap_err().message, "device is reserved as a hot spare");
    assert_eq!(clear(&mut rig, "none").unwrap_err().message, "no such device in pool");
    drop(engine);
    rig.export("tank");
}

/// `zpool status -D` printed nothing.
#[test]
fn dedup_tables_are_told_of() {
    let mut rig = Rig::new();
    let image = rig.image("a.img");
    rig.create("tank", &[&image], Vec::new()).unwrap();
    let dedup = |rig: &mut Rig, properties: &[&str]| {
        let wanted = Wanted::Only(properties.iter().map(|name| (*name).to_owned()).collect());
        status(rig, Some("tank"), wanted).remove(0).dedup
    };
    assert_eq!(dedup(&mut rig, &[]), None);
    assert_eq!(dedup(&mut rig, &[DEDUP_TABLES]).map(|dedup| dedup.entries), Some(0));
    rig.export("tank");
}
