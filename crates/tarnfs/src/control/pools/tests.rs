//! The verbs on pools in files, without mounts.
#![allow(clippy::disallowed_methods)] // real files are the devices

use std::path::{Path, PathBuf};

use super::*;
use crate::control::*;

mod damaged;
mod refused;
mod spares;
mod stopped;

struct Rig {
    directory: tempfile::TempDir,
    pools: Pools,
}

impl Rig {
    fn new() -> Rig {
        Rig { directory: tempfile::tempdir().unwrap(), pools: Pools::default() }
    }

    fn image(&self, name: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::File::create_new(&path).unwrap().set_len(128 << 20).unwrap();
        path
    }

    fn create(&mut self, name: &str, images: &[&Path], properties: Vec<Setting>) -> Result<(), Failure> {
        let leaf = |path: &&Path| VdevSpec { kind: VdevKind::File, path: Some(path.to_path_buf()), class: AllocationClass::Normal, children: Vec::new() };
        let mut children: Vec<VdevSpec> = images.iter().map(leaf).collect();
        let vdev = if let [_] = children.as_slice() {
            children.remove(0)
        } else {
            VdevSpec { kind: VdevKind::Mirror, path: None, class: AllocationClass::Normal, children }
        };
        self.pools.pool_create(PoolCreate {
            name: name.into(),
            temporary_name: None,
            vdevs: vec![vdev],
            force: false,
            properties,
            features: FeatureChoice { all_others: true, ..FeatureChoice::default() },
            dataset_properties: vec![Setting::new("mountpoint", "none"), Setting::new("compression", 15)],
            command: CommandLine::default(),
        })
    }

    fn make(&mut self, name: &str, properties: Vec<Setting>) -> Result<(), Failure> {
        self.pools.dataset_create(DatasetCreate { name: name.into(), volume_size: None, properties, parents: false })
    }

    fn list(&mut self, root: Option<&str>, depth: Option<u64>, properties: Wanted) -> Vec<DatasetEntry> {
        let list = DatasetList { root: root.map(str::to_owned), depth, kinds: DatasetKinds::ALL, snapshots_where_listed: false, properties, received: false };
        self.pools.dataset_list(list).unwrap().entries
    }

    fn names(&mut self, root: Option<&str>, depth: Option<u64>) -> Vec<String> {
        self.list(root, depth, Wanted::Only(Vec::new())).into_iter().map(|entry| entry.name).collect()
    }

    fn property(&mut self, dataset: &str, property: &str) -> Option<PropertyValue> {
        let entry = self.list(Some(dataset), Some(0), Wanted::Only(vec![property.into()])).remove(0);
        entry.properties.into_iter().next()
    }

    fn set(&mut self, dataset: &str, setting: Setting) -> Result<(), Failure> {
        self.pools.dataset_set(DatasetSet { name: dataset.into(), settings: vec![setting], no_remount: false, received: false })
    }

    fn pool_property(&mut self, pool: &str, property: &str) -> Option<PropertyValue> {
        let select = PoolSelect { name: Some(pool.into()), properties: Wanted::Only(vec![property.into()]) };
        self.pools.pool_get(select).unwrap().remove(0).properties.into_iter().next()
    }

    fn export(&mut self, pool: &str) {
        self.pools.pool_export(PoolExport { name: pool.into(), force: false, hard_force: false }).unwrap();
    }

    fn found(&mut self) -> Vec<FoundPool> {
        self.pools.pool_scan(PoolScan { paths: vec![self.directory.path().into()], destroyed: false }).unwrap()
    }

    fn import(&mut self, guid: u64, name: &str, temporary: bool, properties: Vec<Setting>) -> Result<(), Failure> {
        let paths = vec![self.directory.path().into()];
        self.import_from(paths, guid, name, temporary, properties)
    }

    fn import_from(&mut self, paths: Vec<PathBuf>, guid: u64, name: &str, temporary: bool, properties: Vec<Setting>) -> Result<(), Failure> {
        self.pools.pool_import(PoolImport { temporary_name: temporary, properties, ..PoolImport::new(guid, name, paths) }).map(drop)
    }
}

fn kind(result: Result<(), Failure>) -> FailureKind {
    result.expect_err("must be refused").kind
}

/// A property of 9,000 bytes was refused by the sync thread, which stopped the pool: everybody who wrote to it got errors until
/// it was imported again, and what was not on disk yet was lost.
#[test]
fn a_property_that_is_too_long_is_refused_before_anything_is_done() {
    let mut rig = Rig::new();
    let image = rig.image("a.img");
    rig.create("tank", &[&image], Vec::new()).unwrap();
    let long = Setting::new("my:own", "x".repeat(9000));
    assert_eq!(rig.set("tank", long.clone()).unwrap_err().message, "property value too long");
    assert_eq!(rig.set("tank", Setting::new(format!("my:{}", "x".repeat(300)), "x")).map_err(|failure| failure.kind), Err(FailureKind::BadProperty));
    assert_eq!(rig.make("tank/a", vec![long.clone()]).map_err(|failure| failure.kind), Err(FailureKind::BadProperty));
    assert!(rig.pools.pool_set(PoolSet { name: "tank".into(), settings: vec![long] }).is_err());
    // The longest that fit, and that they can be taken away again.
    let name = format!("my:{}", "x".repeat(252));
    rig.set("tank", Setting::new(name.clone(), "x".repeat(8191))).unwrap();
    rig.pools.dataset_inherit(DatasetInherit { name: "tank".into(), property: name, received: false }).unwrap();
    rig.make("tank/a", Vec::new()).unwrap();
    rig.export("tank");
}

/// One side of a mirror was named, as `zpool import -d DEVICE` does, and the other was left out although it is where it was: it
/// missed what was written from then on.
#[test]
fn the_other_side_of_a_mirror_is_found_where_it_was() {
    let mut rig = Rig::new();
    let (a, b) = (rig.image("a.img"), rig.image("b.img"));
    rig.create("tank", &[&a, &b], Vec::new()).unwrap();
    rig.export("tank");
    let paths = vec![a];
    let found = rig.pools.pool_scan(PoolScan { paths: paths.clone(), destroyed: false }).unwrap().remove(0);
    assert_eq!(found.status.root.state, VdevState::Healthy);
    rig.import_from(paths.clone(), found.status.guid, "tank", false, Vec::new()).unwrap();
    let select = PoolSelect { name: Some("tank".into()), properties: Wanted::Only(Vec::new()) };
    assert_eq!(rig.pools.pool_status(select).unwrap().remove(0).root.state, VdevState::Healthy);
    rig.export("tank");
    // What is there now is none of its devices.
    std::fs::write(&b, [0; 4096]).unwrap();
    let found = rig.pools.pool_scan(PoolScan { paths, destroyed: false }).unwrap();
    assert_eq!((found.len(), found[0].status.root.state), (1, VdevState::Degraded));
}

#[test]
fn datasets_and_their_properties() {
    let mut rig = Rig::new();
    let image = rig.image("a.img");
    rig.create("tank", &[&image], Vec::new()).unwrap();
    rig.make("tank/a", vec![Setting::new("quota", 10u64 << 20), Setting::new("my:own", "x")]).unwrap();
    rig.pools.dataset_create(DatasetCreate { name: "tank/p/q/r".into(), volume_size: None, properties: Vec::new(), parents: true }).unwrap();
    let volume = DatasetCreate { name: "tank/v".into(), volume_size: Some(1 << 20), properties: vec![Setting::new("volblocksize", 8192), Setting::new("refreservation", u64::MAX)], parents: false };
    assert_eq!(kind(rig.pools.dataset_create(DatasetCreate { volume_size: Some(1 << 40), ..volume.clone() })), FailureKind::NoSpace);
    rig.pools.dataset_create(volume).unwrap();
    assert_eq!(rig.names(None, None), ["tank", "tank/a", "tank/p", "tank/p/q", "tank/p/q/r", "tank/v"]);
    assert_eq!(rig.names(Some("tank"), Some(1)), ["tank", "tank/a", "tank/p", "tank/v"]);

    assert_eq!(rig.property("tank/v", "volsize").unwrap().value, Value::Number(1 << 20));
    assert_eq!(rig.property("tank/v", "volblocksize").unwrap().value, Value::Number(8192));
    let reserved = (1 << 20) + (7 + 1) * 2 * (128 << 10);
    assert_eq!(rig.property("tank/v", "refreservation").unwrap().value, Value::Number(reserved));
    assert_eq!(rig.property("tank/v", "quota"), None);
    assert_eq!(rig.property("tank/a", "compression").unwrap().source, Source::Inherited("tank".into()));
    assert_eq!(rig.property("tank/a", "my:own"), Some(PropertyValue::new("my:own", "x", Source::Local)));
    assert_eq!(rig.property("tank/a", "mountpoint").unwrap().value, "none".into());
    assert_eq!(rig.property("tank/a", "mounted").unwrap().value, Value::Number(0));
    rig.set("tank", Setting::new("mountpoint", "/base")).unwrap();
    assert_eq!(rig.property("tank/p/q", "mountpoint").unwrap().value, "/base/p/q".into());
    rig.pools.dataset_inherit(DatasetInherit { name: "tank/a".into(), property: "my:own".into(), received: false }).unwrap();
    assert_eq!(rig.property("tank/a", "my:own"), None);
    let all = rig.list(Some("tank/a"), Some(0), Wanted::All).remove(0);
    for name in ["type", "used", "available", "creation", "recordsize", "quota", "guid", "version", "sharenfs"] {
        assert!(all.property(name).is_some(), "{name}");
    }

    assert_eq!(kind(rig.make("tank/a", Vec::new())), FailureKind::DatasetExists);
    assert_eq!(kind(rig.make("tank/x/y", Vec::new())), FailureKind::NoSuchDataset);
    assert_eq!(kind(rig.make("tank/a@b", Vec::new())), FailureKind::InvalidName);
    assert_eq!(kind(rig.make("other/a", Vec::new())), FailureKind::NoSuchDataset);
    assert_eq!(kind(rig.set("tank/none", Setting::new("atime", 0))), FailureKind::NoSuchDataset);
    assert_eq!(kind(rig.set("tank/a", Setting::new("quota", 1))), FailureKind::PropertySpace);
    assert_eq!(kind(rig.set("tank/a", Setting::new("reservation", 1u64 << 50))), FailureKind::PropertySpace);
    assert_eq!(kind(rig.set("tank/a", Setting::new("dedup", 1))), FailureKind::Unsupported);

    let destroy = |name: &str| DatasetDestroy { names: vec![name.into()], defer: false, force: false };
    assert_eq!(kind(rig.pools.dataset_destroy(destroy("tank/p"))), FailureKind::DatasetExists);
    for name in ["tank/p/q/r", "tank/p/q", "tank/p", "tank/v"] {
        rig.pools.dataset_destroy(destroy(name)).unwrap();
    }
    assert_eq!(rig.names(None, None), ["tank", "tank/a"]);
    let pool = rig.pools.pool("tank").unwrap().clone();
    pool.sync().unwrap();
    let report = pool.check(true, &|_| ()).unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
}

#[test]
fn pools_and_their_properties() {
    let mut rig = Rig::new();
    let (a, b) = (rig.image("a.img"), rig.image("b.img"));
    rig.create("tank", &[&a, &b], vec![Setting::new("ashift", 12), Setting::new("comment", "first"), Setting::new("altroot", "/nowhere")]).unwrap();
    assert_eq!(kind(rig.create("tank", &[&a], Vec::new())), FailureKind::PoolExists);
    assert_eq!(kind(rig.create("tonk", &[&a], Vec::new())), FailureKind::BadDevice);
    assert_eq!(kind(rig.create("mirror", &[&a], Vec::new())), FailureKind::InvalidName);

    let value = |rig: &mut Rig, property: &str| rig.pool_property("tank", property).map(|value| (value.value, value.source));
    assert_eq!(value(&mut rig, "ashift"), Some((Value::Number(12), Source::Local)));
    assert_eq!(value(&mut rig, "comment"), Some(("first".into(), Source::Local)));
    assert_eq!(value(&mut rig, "altroot"), Some(("/nowhere".into(), Source::Local)));
    assert_eq!(value(&mut rig, "health"), Some(("ONLINE".into(), Source::None)));
    assert_eq!(value(&mut rig, "failmode"), Some((Value::Number(0), Source::Default)));
    assert_eq!(value(&mut rig, "feature@lz4_compress"), Some(("active".into(), Source::Local)));
    assert_eq!(value(&mut rig, "feature@fast_dedup"), Some(("disabled".into(), Source::Local)));
    let set = |rig: &mut Rig, settings: Vec<Setting>| rig.pools.pool_set(PoolSet { name: "tank".into(), settings });
    set(&mut rig, vec![Setting::new("failmode", 1), Setting::new("comment", "second"), Setting::new("a:b", "c"), Setting::new("bootfs", "tank")]).unwrap();
    assert_eq!(kind(set(&mut rig, vec![Setting::new("size", 1)])), FailureKind::ReadOnlyProperty);
    assert_eq!(kind(set(&mut rig, vec![Setting::new("feature@fast_dedup", "enabled")])), FailureKind::Unsupported);
    rig.export("tank");
    assert!(rig.pools.is_empty());

    let found = rig.found().remove(0);
    assert_eq!((found.status.name.as_str(), found.status.state, found.comment.as_deref()), ("tank", PoolState::Exported, Some("second")));
    assert_eq!(found.status.root.children[0].children.len(), 2);
    let guid = found.status.guid;
    rig.import(guid, "temp", true, vec![Setting::new("readonly", 1)]).unwrap();
    assert_eq!(rig.pool_property("temp", "readonly").unwrap().value, Value::Number(1));
    assert_eq!(kind(rig.make("temp/a", Vec::new())), FailureKind::PoolReadOnly);
    rig.export("temp");
    rig.import(guid, "temp", true, Vec::new()).unwrap();
    rig.make("temp/a", Vec::new()).unwrap();
    assert_eq!(rig.names(None, None), ["temp", "temp/a"]);
    rig.export("temp");
    assert_eq!(rig.found()[0].status.name, "tank");
    // One side has gone and moved.
    std::fs::remove_file(&a).unwrap();
    std::fs::rename(&b, b.with_file_name("moved.img")).unwrap();
    rig.import(guid, "lake", false, Vec::new()).unwrap();
    let status = rig.pools.pool_status(PoolSelect { name: None, properties: Wanted::All }).unwrap().remove(0);
    assert_eq!((status.name.as_str(), status.root.state), ("lake", VdevState::Degraded));
    let mirror = &status.root.children[0];
    assert_eq!((mirror.children[0].state, mirror.children[0].aux), (VdevState::CantOpen, VdevAux::OpenFailed));
    assert!(mirror.children[1].path.as_ref().unwrap().ends_with("moved.img"));
    for (property, expected) in [("failmode", Value::Number(1)), ("a:b", "c".into()), ("bootfs", "lake".into()), ("comment", "second".into())] {
        assert_eq!(rig.pool_property("lake", property).unwrap().value, expected, "{property}");
    }
    let destroy = PoolDestroy { name: "lake".into(), force: false };
    rig.pools.pool_destroy(destroy).unwrap();
    assert!(rig.found().is_empty());
}

/// What is set at an import is set; if that cannot be, the pool is not imported.
#[test]
fn an_import_sets_all_or_is_none() {
    let mut rig = Rig::new();
    let image = rig.image("a.img");
    rig.create("tank", &[&image], Vec::new()).unwrap();
    rig.export("tank");
    let guid = rig.found().remove(0).status.guid;
    let too_long = Setting::new("my:own", "x".repeat(9000));
    assert!(rig.import(guid, "tank", false, vec![too_long]).is_err());
    assert!(rig.pools.is_empty());
    assert_eq!(rig.found()[0].status.state, PoolState::Exported);
    rig.import(guid, "tank", false, vec![Setting::new("compatibility", "legacy"), Setting::new("my:own", "x")]).unwrap();
    for (property, value) in [("compatibility", "legacy"), ("my:own", "x")] {
        assert_eq!(rig.pool_property("tank", property).unwrap().value, value.into(), "{property}");
    }
    rig.export("tank");
}

#[test]
fn features_are_enabled_later() {
    let mut rig = Rig::new();
    let image = rig.image("a.img");
    let leaf = VdevSpec { kind: VdevKind::File, path: Some(image), class: AllocationClass::Normal, children: Vec::new() };
    rig.pools
        .pool_create(PoolCreate {
            name: "old".into(),
            temporary_name: None,
            vdevs: vec![leaf],
            force: false,
            properties: Vec::new(),
            features: FeatureChoice::default(),
            dataset_properties: vec![Setting::new("canmount", 0)],
            command: CommandLine::default(),
        })
        .unwrap();
    let state = |rig: &mut Rig| rig.pool_property("old", "feature@zstd_compress").unwrap().value;
    assert_eq!(state(&mut rig), "disabled".into());
    assert_eq!(kind(rig.set("old", Setting::new("compression", 16))), FailureKind::PoolNotSupported);
    rig.pools.pool_set(PoolSet { name: "old".into(), settings: vec![Setting::new("feature@zstd_compress", "enabled")] }).unwrap();
    assert_eq!(state(&mut rig), "enabled".into());
    assert_eq!(rig.pool_property("old", "feature@extensible_dataset").unwrap().value, "enabled".into());
    rig.set("old", Setting::new("compression", 16)).unwrap();
    let pool = rig.pools.pool("old").unwrap().clone();
    pool.sync().unwrap();
    let report = pool.check(true, &|_| ()).unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
    drop(pool);
    // At an import, too.
    assert_eq!(rig.pool_property("old", "feature@bookmark_v2").unwrap().value, "disabled".into());
    rig.export("old");
    let guid = rig.found().remove(0).status.guid;
    rig.import(guid, "old", false, vec![Setting::new("feature@bookmark_v2", "enabled")]).unwrap();
    assert_eq!(rig.pool_property("old", "feature@bookmark_v2").unwrap().value, "enabled".into());
    rig.export("old");
}

#[test]
fn what_is_left_of_a_broken_receive_goes_at_the_import() {
    let mut rig = Rig::new();
    let image = rig.image("a.img");
    rig.create("tank", &[&image], Vec::new()).unwrap();
    rig.make("tank/a", Vec::new()).unwrap();
    let pool = rig.pools.pool("tank").unwrap().clone();
    // As OpenZFS leaves them when a stream ends too early: a new file system, and one beside that which is to change.
    pool.create_file_system("tank/a/%recv", Vec::new()).unwrap();
    assert!(pool.file_system("tank/a").is_ok());
    let flag = move |dsl: &Arc<engine::dsl::Dsl>, tx: &engine::dmu::SyncTx<'_>| {
        const FLAGS: usize = 15 * 8;
        let dataset = dsl.dataset_by_name("tank/a")?;
        let mut record = dsl.meta.mos.bonus(dataset.object)?.to_vec();
        record[FLAGS] |= 1;
        dsl.meta.mos.set_bonus(dataset.object, &record, tx)
    };
    pool.engine().dsl.run_task(1, engine::dsl::SpaceCheck::None, |_| Ok(()), flag).unwrap();
    drop(pool);
    rig.export("tank");
    let guid = rig.found()[0].status.guid;
    rig.import(guid, "tank", false, Vec::new()).unwrap();
    assert_eq!(rig.names(None, None), ["tank"]);
}

#[test]
fn a_rename_changes_what_is_inherited() {
    let mut rig = Rig::new();
    let image = rig.image("a.img");
    rig.create("tank", &[&image], Vec::new()).unwrap();
    rig.make("tank/a", Vec::new()).unwrap();
    rig.make("tank/old", vec![Setting::new("readonly", 1)]).unwrap();
    let fs = rig.pools.pool("tank").unwrap().file_system("tank/a").unwrap();
    assert!(!fs.is_read_only());
    let rename = |from: &str, to: &str| DatasetRename {
        from: from.into(),
        to: to.into(),
        parents: false,
        recursive: false,
        no_remount: true,
        force: false,
    };
    rig.pools.dataset_rename(rename("tank/a", "tank/old/a")).unwrap();
    assert!(fs.is_read_only());
    rig.pools.dataset_rename(rename("tank/old/a", "tank/a")).unwrap();
    assert!(!fs.is_read_only());
}

#[test]
fn what_is_reserved_from_the_start_is_within_the_limits() {
    let mut rig = Rig::new();
    let image = rig.image("a.img");
    rig.create("tank", &[&image], Vec::new()).unwrap();
    let mib = |name: &str, mib: u64| Setting::new(name, mib << 20);
    for (limit, reserved) in [("quota", "reservation"), ("quota", "refreservation"), ("refquota", "refreservation")] {
        assert_eq!(kind(rig.make("tank/a", vec![mib(limit, 10), mib(reserved, 11)])), FailureKind::NoSpace, "{limit}, {reserved}");
        assert_eq!(kind(rig.make("tank/a", vec![mib(reserved, 11), mib(limit, 10)])), FailureKind::NoSpace, "{limit}, {reserved}");
    }
    rig.make("tank/a", vec![mib("refquota", 10), mib("reservation", 11), mib("refreservation", 10)]).unwrap();
}

/// `zfs set quota=8M reservation=4M` was refused where the old quota was smaller than the new reservation, `quota=2M reservation=1M`
/// where the old reservation was larger than the new quota: each was looked at as if it came alone.
#[test]
fn limits_that_are_set_together_are_looked_at_together() {
    let mut rig = Rig::new();
    let image = rig.image("a.img");
    rig.create("tank", &[&image], Vec::new()).unwrap();
    rig.make("tank/a", Vec::new()).unwrap();
    let mib = |name: &str, mib: u64| Setting::new(name, mib << 20);
    let steps = [[("quota", 8), ("reservation", 4)], [("quota", 16), ("reservation", 12)], [("quota", 2), ("reservation", 1)],
        [("refquota", 8), ("refreservation", 1)], [("refquota", 1), ("refreservation", 0)]];
    for turned in [false, true] {
        for step in steps {
            let mut settings: Vec<Setting> = step.iter().map(|(name, size)| mib(name, *size)).collect();
            if turned {
                settings.reverse();
            }
            rig.pools.dataset_set(DatasetSet { name: "tank/a".into(), settings, no_remount: false, received: false }).unwrap_or_else(|failure| panic!("{step:?} {turned}: {failure}"));
        }
        rig.set("tank/a", mib("refquota", 0)).unwrap();
    }
    let both = |settings| DatasetSet { name: "tank/a".into(), settings, no_remount: false, received: false };
    assert_eq!(kind(rig.pools.dataset_set(both(vec![mib("quota", 4), mib("reservation", 5)]))), FailureKind::PropertySpace);
    assert_eq!(kind(rig.pools.dataset_set(both(vec![mib("refreservation", 5), mib("quota", 4), mib("reservation", 0)]))), FailureKind::PropertySpace);
    // More for itself than the old quota let it have.
    rig.pools.dataset_set(both(vec![mib("refreservation", 10), mib("quota", 20)])).unwrap();
    rig.pools.dataset_set(both(vec![mib("quota", 2), mib("refreservation", 0)])).unwrap();
    rig.export("tank");
}

/// `zfs set refreservation=auto` of a volume asked for 16 EiB, and was refused.
#[test]
fn a_volume_can_reserve_all_it_may_take() {
    let mut rig = Rig::new();
    let image = rig.image("a.img");
    rig.create("tank", &[&image], Vec::new()).unwrap();
    let volume = DatasetCreate { name: "tank/v".into(), volume_size: Some(8 << 20), properties: Vec::new(), parents: false };
    rig.pools.dataset_create(volume).unwrap();
    rig.set("tank/v", Setting::new("refreservation", u64::MAX)).unwrap();
    let reserved = rig.property("tank/v", "refreservation").unwrap().value;
    // 512 blocks, one above them, 7 of the metadnode, each twice.
    assert_eq!(reserved, Value::Number((8 << 20) + 8 * 2 * (128 << 10)));
    rig.export("tank");
}

/// What was written while `readonly` was off is accepted from the kernel after it was set; `fsync` said that it was safe then, and
/// did nothing: after a power failure it was gone.
#[test]
fn fsync_keeps_what_was_written_before_readonly_was_set() {
    let mut rig = Rig::new();
    let image = rig.image("a.img");
    rig.create("tank", &[&image], Vec::new()).unwrap();
    rig.make("tank/a", Vec::new()).unwrap();
    let credentials = crate::Credentials::root();
    let files = rig.pools.pool("tank").unwrap().file_system("tank/a").unwrap();
    let inode = files.create(files.root(), b"f", 0o100_644, 0, &credentials).unwrap().inode;
    rig.set("tank/a", Setting::new("readonly", 1)).unwrap();
    assert!(files.is_read_only());
    files.write(inode, crate::WriteMode::Collected(0), b"late", &credentials).unwrap();
    files.fsync(inode).unwrap();
    // The power goes.
    let after = Rig::new();
    std::fs::copy(&image, after.directory.path().join("a.img")).unwrap();
    let mut after = after;
    let guid = after.found()[0].status.guid;
    after.import(guid, "tank", false, Vec::new()).unwrap();
    let again = after.pools.pool("tank").unwrap().file_system("tank/a").unwrap();
    let found = again.lookup(again.root(), b"f").unwrap();
    assert_eq!(again.read(found.inode, 0, 100).unwrap(), b"late");
    drop((files, again));
    after.export("tank");
    rig.export("tank");
}

/// `zpool sync` of a pool on which nothing had changed did nothing: a caller that makes a pool's state known so (a backup of its images, a test of OpenZFS's) found the
/// old uberblock.
#[test]
fn a_sync_writes_a_group_even_if_nothing_has_changed() {
    let mut rig = Rig::new();
    let image = rig.image("a");
    rig.create("tank", &[&image], Vec::new()).unwrap();
    let select = || PoolSelect { name: Some("tank".into()), properties: Wanted::All };
    rig.pools.pool_sync(select()).unwrap()().unwrap();
    let on_disk = |rig: &Rig| rig.pools.find("tank").unwrap().pool.engine().uberblock().txg;
    for _ in 0..3 {
        let before = on_disk(&rig);
        rig.pools.pool_sync(select()).unwrap()().unwrap();
        assert!(on_disk(&rig) > before, "{before} is still the newest");
    }
    rig.export("tank");
}

/// For seconds after `zpool add` nobody could use the new device: how much room there is was only looked at when a group had been written.
#[test]
fn room_that_is_added_is_there_at_once() {
    let mut rig = Rig::new();
    let (one, other) = (rig.image("a"), rig.image("b"));
    rig.create("tank", &[&one], Vec::new()).unwrap();
    let available = |rig: &Rig| rig.pools.find("tank").unwrap().pool.engine().dsl.open_dataset("tank").unwrap().available();
    let before = available(&rig);
    rig.pools.find("tank").unwrap().pool.add_vdevs(&[crate::VdevPaths { paths: vec![other], ..crate::VdevPaths::default() }], None, false).unwrap();
    assert!(available(&rig) > before + (32 << 20), "{} after {before}", available(&rig));
    rig.export("tank");
}

/// An unmount waited for a pool that was suspended, and had the daemon's turn: `zpool export -F`, which is there to end that, waited for its own turn behind it.
#[test]
fn who_waits_for_a_pool_that_is_given_up_waits_no_more() {
    let mut rig = Rig::new();
    let image = rig.image("a");
    rig.create("tank", &[&image], Vec::new()).unwrap();
    let engine = rig.pools.find("tank").unwrap().pool.engine().clone();
    engine.vdevs.gate().set_mode(engine::vdev::FailureMode::Wait);
    let waiting = {
        let engine = engine.clone();
        std::thread::spawn(move || engine.vdevs.gate().wait_after(&engine::error!(Io, "the device is gone")))
    };
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let wait_until = |is_so: &dyn Fn() -> bool| {
        while !is_so() && std::time::Instant::now() < until {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    };
    wait_until(&|| engine.vdevs.gate().failure().is_some());
    // The turn is somebody else's: this is all that can be done without it.
    let export = |hard_force| Request::PoolExport(PoolExport { name: "tank".into(), force: true, hard_force });
    assert!(rig.pools.beside().answer(&export(false), Vec::new).is_none());
    assert!(!waiting.is_finished(), "nobody gave it up");
    assert!(rig.pools.beside().answer(&export(true), Vec::new).is_none());
    wait_until(&|| waiting.is_finished());
    if !waiting.is_finished() {
        engine.vdevs.gate().give_up();
        panic!("it still waits");
    }
    assert!(!waiting.join().unwrap());
    drop(engine);
    rig.pools.pool_export(PoolExport { name: "tank".into(), force: true, hard_force: true }).unwrap();
}

/// The usual file was never written, and shown as the property's value.
#[test]
fn a_pool_that_says_nothing_is_in_the_usual_cache_file() {
    let mut rig = Rig::new();
    let usual = rig.directory.path().join("usual");
    rig.pools = std::mem::take(&mut rig.pools).with_cachefile(usual.to_str());
    let lists = |pool: &str| std::fs::read(&usual).is_ok_and(|bytes| ondisk::nvlist::NvList::decode(&bytes).unwrap().contains(pool));
    let (one, two) = (rig.image("a.img"), rig.image("b.img"));
    rig.create("one", &[&one], Vec::new()).unwrap();
    assert!(lists("one"));
    assert_eq!(rig.pool_property("one", "cachefile"), None, "it is what is usual");
    rig.create("two", &[&two], vec![Setting::new("cachefile", "none")]).unwrap();
    assert!(lists("one") && !lists("two"));
    let set = |rig: &mut Rig, value: &str| rig.pools.pool_set(PoolSet { name: "one".into(), settings: vec![Setting::new("cachefile", value)] }).unwrap();
    set(&mut rig, "none");
    assert!(!usual.exists(), "no pool is in it");
    set(&mut rig, super::MACHINE_CACHEFILE);
    assert!(lists("one"));
    assert_eq!(rig.pool_property("one", "cachefile"), None, "it is what is usual");
    let own = rig.directory.path().join("own");
    set(&mut rig, own.to_str().unwrap());
    assert!(!usual.exists() && own.exists());
    set(&mut rig, "");
    assert!(lists("one") && !own.exists());
    let guid = rig.pools.pool("one").unwrap().engine().guid();
    // The end of a daemon emptied the file, so that nothing was found by it after a restart of the machine.
    rig.pools.export_all().unwrap();
    assert!(lists("one"), "only a user's export takes a pool out");
    rig.import(guid, "one", false, Vec::new()).unwrap();
    rig.export("one");
    assert!(!usual.exists());
}

/// The file was made under a name that was known beforehand: a link that somebody had put there was followed, and what it led to was written over.
#[test]
fn a_cache_file_is_made_under_a_name_of_its_own() {
    let mut rig = Rig::new();
    let [cache, link, other] = ["cache", "cache.tmp", "other"].map(|name| rig.directory.path().join(name));
    std::fs::write(&other, "something else").unwrap();
    std::os::unix::fs::symlink(&other, &link).unwrap();
    let image = rig.image("a.img");
    rig.create("tank", &[&image], vec![Setting::new("cachefile", cache.to_str().unwrap())]).unwrap();
    assert!(std::fs::symlink_metadata(&cache).unwrap().is_file());
    assert_eq!(std::fs::read(&other).unwrap(), b"something else");
    assert!(link.is_symlink());
    rig.export("tank");
    assert!(!cache.exists());
    assert_eq!(std::fs::read_dir(rig.directory.path()).unwrap().count(), 3, "an image, a link and what it leads to");
}
