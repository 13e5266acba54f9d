use tarnfs::control::*;

use super::fake::FakeBackend;
use super::golden::{Golden, golden};
use super::{complains, prints, run, sh};

#[test]
fn every_dataset_property_is_what_openzfs_recorded() {
    for golden in [golden!("everything"), golden!("zvol"), golden!("encrypt")] {
        let mut backend = golden.backend();
        for dataset in golden.json["datasets"].as_array().expect("datasets") {
            let name = dataset["name"].as_str().expect("name");
            let ran = sh(&mut backend, &format!("zfs get -Hp -o property,value all {name}"));
            let ours: Vec<(String, String)> =
                ran.out.lines().map(|line| line.split_once('\t').expect("tab")).map(|(name, value)| (name.into(), value.into())).collect();
            assert_eq!(ours, Golden::printed(&dataset["props"]), "{name}");
        }
    }
}

/// `tank` with a child, a volume, snapshots and a clone.
fn tank() -> FakeBackend {
    let mut backend = FakeBackend::default();
    let properties = |used: u64, mountpoint: &str, source: Source| {
        vec![
            PropertyValue::new("used", used, Source::None),
            PropertyValue::new("available", 79_691_776, Source::None),
            PropertyValue::new("referenced", 24576, Source::None),
            PropertyValue::new("mountpoint", mountpoint, source),
            PropertyValue::new("compression", 15, Source::Inherited("tank".into())),
            PropertyValue::new("creation", 1_795_172_265, Source::None),
        ]
    };
    let snapshot = |clones: &str| {
        let mut properties = vec![PropertyValue::new("used", 8192, Source::None), PropertyValue::new("referenced", 24576, Source::None)];
        if !clones.is_empty() {
            properties.push(PropertyValue::new("clones", clones, Source::None));
        }
        properties
    };
    backend.dataset("tank", DatasetKind::Filesystem, 1, properties(6_818_672, "/tank", Source::Default));
    backend.dataset("tank/a", DatasetKind::Filesystem, 10, properties(24576, "/tank/a", Source::Default));
    backend.dataset("tank/a@z", DatasetKind::Snapshot, 20, snapshot(""));
    backend.dataset("tank/a@b", DatasetKind::Snapshot, 30, snapshot("tank/clone"));
    backend.dataset("tank/clone", DatasetKind::Filesystem, 40, properties(8192, "none", Source::Local));
    backend.dataset("tank/a/b", DatasetKind::Filesystem, 50, properties(24576, "/tank/a/b", Source::Default));
    let mut volume = properties(10 << 20, "", Source::None);
    volume.retain(|property| property.name != "mountpoint");
    backend.dataset("tank/v", DatasetKind::Volume, 60, volume);
    backend.dataset("tank/a#mark", DatasetKind::Bookmark, 20, Vec::new());
    backend
}

#[test]
fn list() {
    let mut backend = tank();
    prints(
        &mut backend,
        "zfs list",
        "NAME         USED  AVAIL  REFER  MOUNTPOINT
tank        6.50M  76.0M    24K  /tank
tank/a        24K  76.0M    24K  /tank/a
tank/a/b      24K  76.0M    24K  /tank/a/b
tank/clone     8K  76.0M    24K  none
tank/v        10M  76.0M    24K  -
"
        .replace("76.0M", "76M")
        .replace("  76M", "    76M")
        .as_str(),
    );
    prints(&mut backend, "zfs list -H -o name,used -t snapshot", "tank/a@z\t8K\ntank/a@b\t8K\n");
    prints(&mut backend, "zfs list -t snap -o name -s name tank/a", "NAME\ntank/a@b\ntank/a@z\n");
    prints(&mut backend, "zfs list -Ho name -t bookmark tank/a", "tank/a#mark\n");
    prints(&mut backend, "zfs list -Hrpo name,used -S used tank/a", "tank/a\t24576\ntank/a/b\t24576\n");
    prints(&mut backend, "zfs list -d1 -Ho name tank", "tank\ntank/a\ntank/clone\ntank/v\n");
    prints(&mut backend, "zfs list -Ho name,mountpoint -S used -t vol,fs", "tank/v\t-\ntank\t/tank\ntank/a\t/tank/a\ntank/a/b\t/tank/a/b\ntank/clone\tnone\n");
    complains(&mut FakeBackend::default(), "zfs list", 0, "no datasets available\n");
}

#[test]
fn list_in_json() {
    let mut backend = tank();
    prints(
        &mut backend,
        "zfs list -j -o name,used,compression tank/a tank/a@z",
        concat!(
            r#"{"output_version":{"command":"zfs list","vers_major":0,"vers_minor":1},"datasets":{"#,
            r#""tank/a":{"name":"tank/a","type":"FILESYSTEM","pool":"tank","createtxg":"10","properties":{"#,
            r#""used":{"value":"24K","source":{"type":"NONE","data":"-"}},"compression":{"value":"lz4","source":{"type":"INHERITED","data":"tank"}}}},"#,
            r#""tank/a@z":{"name":"tank/a@z","type":"SNAPSHOT","pool":"tank","createtxg":"20","dataset":"tank/a","snapshot_name":"z","properties":{"#,
            r#""used":{"value":"8K","source":{"type":"NONE","data":"-"}},"compression":{"value":"-","source":{"type":"NONE","data":"-"}}}}}}"#,
            "\n"
        ),
    );
    let ran = sh(&mut backend, "zfs list -j --json-int -o used tank/a");
    assert!(ran.out.contains(r#""createtxg":10,"properties":{"used":{"value":24576,"#), "{}", ran.out);
}

#[test]
fn get() {
    let mut backend = tank();
    prints(
        &mut backend,
        "zfs get used,compression,a:b tank/a",
        "NAME    PROPERTY     VALUE           SOURCE
tank/a  used         24K             -
tank/a  compression  lz4             inherited from tank
tank/a  a:b          -               -
",
    );
    prints(&mut backend, "zfs get -Hp -o value creation tank", "1795172265\n");
    prints(&mut backend, "zfs get -H -o value creation tank", "Fri Nov 20 10:57 2026\n");
    prints(&mut backend, "zfs get -Hrt snapshot used tank", "tank/a@z\tused\t8K\t-\ntank/a@b\tused\t8K\t-\n");
    prints(&mut backend, "zfs get -s inherited -Ho name compression tank/a", "tank/a\n");
    prints(&mut backend, "zfs get -s local -Ho name compression tank/a", "");
    complains(&mut backend, "zfs get used tank/nosuch", 1, "cannot open 'tank/nosuch': dataset does not exist\n");
    complains(&mut backend, "zfs get used nosuch", 1, "cannot open 'nosuch': dataset does not exist\n");
}

#[test]
fn sources_are_those_of_openzfs() {
    let mut backend = golden!("everything").backend();
    prints(
        &mut backend,
        "zfs get -Ho property,source version,utf8only,normalization,casesensitivity,filesystem_count,quota,compression,defaultuserquota g_everything",
        "version\t-
utf8only\t-
normalization\t-
casesensitivity\t-
filesystem_count\tdefault
quota\tdefault
compression\tlocal
defaultuserquota\t-
",
    );
}

#[test]
fn probes_of_tools_get_the_answers_they_look_for() {
    let mut backend = tank();
    let ran = run(&mut backend, &["zfs", "get", "-H", "-t", "snapshot", "", ""]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.starts_with("bad property list: no properties specified\nusage:\n"), "{}", ran.err);
    let ran = run(&mut backend, &["zfs", "get", "-H", "used", ""]);
    assert_eq!((ran.code, ran.err.as_str()), (1, "cannot open '': empty component or misplaced '@' or '#' delimiter in name\n"));
    let ran = sh(&mut backend, "zfs get -H nosuch tank");
    assert!(ran.code == 2 && ran.err.starts_with("bad property list: invalid property 'nosuch'\n"), "{}", ran.err);
    let ran = sh(&mut backend, "zfs get -Ht nosuch used tank");
    assert!(ran.code == 2 && ran.err.starts_with("invalid type 'nosuch'\n"), "{}", ran.err);
    let ran = sh(&mut backend, "zfs destroy");
    assert!(ran.code == 2 && ran.err.contains("<filesystem|volume>@<snap>[%<snap>][,...]"), "{}", ran.err);
    let ran = sh(&mut backend, "zfs nosuch");
    assert!(ran.code == 2 && ran.err.starts_with("unrecognized command 'nosuch'\nusage: zfs command args ...\n"), "{}", ran.err);
    let ran = sh(&mut backend, "zfs --version");
    assert!(ran.code == 0 && ran.out.starts_with("zfs-2.4.") && ran.out.lines().nth(1).is_some_and(|line| line.starts_with("zfs-kmod-2.4.")));
    let ran = sh(&mut backend, "zfs -?");
    assert!(ran.code == 0 && ran.out.contains("\tdestroy <filesystem|volume>#<bookmark>\n"), "{}", ran.out);
    let ran = sh(&mut backend, "zfs help receive");
    assert!(ran.code == 0 && ran.out.contains("\treceive -A <filesystem|volume>\n"), "{}", ran.out);
    let ran = sh(&mut backend, "zfs help program");
    assert!(ran.out.starts_with("zfs program: not yet supported by this version of tarn\n"), "{}", ran.out);
    let ran = sh(&mut backend, "zfs get -x used tank");
    assert!(ran.code == 2 && ran.err.starts_with("invalid option 'x'\nusage:\n\tget [-rHp]"), "{}", ran.err);
}

#[test]
fn destroy_names_what_is_in_the_way() {
    let mut backend = tank();
    complains(
        &mut backend,
        "zfs destroy tank/a",
        1,
        "cannot destroy 'tank/a': filesystem has children
use '-r' to destroy the following datasets:
tank/a/b
tank/a@z
tank/a@b
",
    );
    complains(
        &mut backend,
        "zfs destroy -r tank/a",
        1,
        "cannot destroy 'tank/a': filesystem has dependent clones\nuse '-R' to destroy the following datasets:\ntank/clone\n",
    );
    complains(
        &mut backend,
        "zfs destroy tank/a@b",
        1,
        "cannot destroy 'tank/a@b': snapshot has dependent clones\nuse '-R' to destroy the following datasets:\ntank/clone\n",
    );
    complains(
        &mut backend,
        "zfs destroy tank",
        1,
        "cannot destroy 'tank': operation does not apply to pools
use 'zfs destroy -r tank' to destroy all datasets in the pool
use 'zpool destroy tank' to destroy the pool itself
",
    );
    complains(&mut backend, "zfs destroy tank/a@x", 1, "could not find any snapshots to destroy; check snapshot names.\n");
    complains(&mut backend, "zfs destroy tank/a#x", 1, "bookmark 'tank/a#x' does not exist.\n");
    assert_eq!(backend.changes(), []);
    prints(&mut backend, "zfs destroy -nvR tank/a", "would destroy tank/a/b\nwould destroy tank/a@z\nwould destroy tank/clone\nwould destroy tank/a@b\nwould destroy tank/a\n");
    assert_eq!(backend.changes(), []);
}

#[test]
fn destroy_goes_from_the_bottom_up() {
    let mut backend = tank();
    prints(&mut backend, "zfs destroy -R tank/a", "");
    let names: Vec<Vec<String>> = backend
        .changes()
        .into_iter()
        .map(|request| match request {
            Request::DatasetDestroy(destroy) => destroy.names,
            Request::SnapshotsDestroy(destroy) => destroy.names,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(names, [["tank/a/b"], ["tank/a@z"], ["tank/clone"], ["tank/a@b"], ["tank/a"]]);
    let mut backend = tank();
    prints(&mut backend, "zfs destroy -vp tank/a@%z", "destroy\ttank/a@z\nreclaim\t8192\n");
    assert_eq!(backend.changes().len(), 1);
}

#[test]
fn create() {
    let mut backend = tank();
    prints(&mut backend, "zfs create -o compression=lz4 -o a:b=c tank/new", "");
    let changes = backend.changes();
    let Request::DatasetCreate(create) = &changes[0] else { panic!("{changes:?}") };
    assert_eq!(create.properties, [Setting::new("compression", 15), Setting::new("a:b", "c")]);
    assert!(matches!(&changes[1], Request::DatasetMount(mount) if mount.name == "tank/new"), "{changes:?}");
    for (line, err) in [
        ("zfs create tank/a", "cannot create 'tank/a': dataset already exists\n"),
        ("zfs create tank/x/y", "cannot create 'tank/x/y': parent does not exist\n"),
        ("zfs create nosuch/x", "cannot create 'nosuch/x': no such pool 'nosuch'\n"),
        ("zfs create nosuch", "cannot create 'nosuch': missing dataset name\n"),
        ("zfs create tank/v/x", "cannot create 'tank/v/x': parent is not a filesystem\n"),
        ("zfs create tank/a@b", "cannot create 'tank/a@b': snapshot delimiter '@' is not expected here\n"),
        ("zfs create tank/%a", "cannot create 'tank/%a': invalid character % in name\n"),
        ("zfs create -o quota=0 tank/q", "cannot create 'tank/q': use 'none' to disable quota/refquota\n"),
        ("zfs create -o quota tank/q", "missing '=' for property=value argument\n"),
        ("zfs create -V 0 tank/q", "cannot create 'tank/q': volume size cannot be zero\n"),
        ("zfs create -V x tank/q", "bad volume size 'x': bad numeric value 'x'\n"),
    ] {
        complains(&mut backend, line, 1, err);
    }
    prints(&mut backend, "zfs create -nvo atime=off tank/dry", "would create tank/dry\n\tatime=off\n");
    let nothing = "warning: 'tank/v2' is kept for OpenZFS: this version of tarn makes no block device of a volume\n";
    complains(&mut backend, "zfs create -sV 100k tank/v2", 0, nothing);
    let changes = backend.changes();
    let Some(Request::DatasetCreate(create)) = changes.last() else { panic!("{changes:?}") };
    assert_eq!((create.volume_size, create.properties.len()), (Some(112 << 10), 0));
}

#[test]
fn set_and_inherit() {
    let mut backend = tank();
    prints(&mut backend, "zfs set quota=1G atime=off tank/a", "");
    let changes = backend.changes();
    assert_eq!(
        changes,
        [Request::DatasetSet(DatasetSet {
            name: "tank/a".into(),
            settings: vec![Setting::new("quota", 1 << 30), Setting::new("atime", 0)],
            no_remount: false,
            received: false,
        })]
    );
    complains(&mut backend, "zfs set quota=x tank/a", 255, "cannot set property for 'tank/a': bad numeric value 'x'\n");
    complains(&mut backend, "zfs set used=1 tank/a", 255, "cannot set property for 'tank/a': 'used' is readonly\n");
    complains(&mut backend, "zfs set quota=1G tank/v", 255, "cannot set property for 'tank/v': 'quota' does not apply to datasets of this type\n");
    complains(&mut backend, "zfs set quota=1G tank/nosuch", 1, "cannot open 'tank/nosuch': dataset does not exist\n");
    complains(&mut backend, "zfs inherit used tank/a", 1, "used property is read-only\n");
    complains(
        &mut backend,
        "zfs inherit quota tank/a",
        1,
        "'quota' property cannot be inherited\nuse 'zfs set quota=none' to clear\nuse 'zfs inherit -S quota' to revert to received value\n",
    );
    complains(&mut backend, "zfs inherit atime tank/v", 1, "cannot inherit atime for 'tank/v': property doesn't apply to datasets of this type\n");
    let before = backend.changes().len();
    prints(&mut backend, "zfs inherit -r compress tank/a", "");
    let inherited: Vec<Request> = backend.changes().split_off(before);
    assert!(matches!(&inherited[0], Request::DatasetInherit(inherit) if inherit.property == "compression" && inherit.name == "tank/a"));
    assert_eq!(inherited.len(), 2);
}

#[test]
fn mount_and_unmount() {
    let mut backend = tank();
    complains(&mut backend, "zfs mount tank/clone", 1, "cannot mount 'tank/clone': no mountpoint set\n");
    prints(&mut backend, "zfs mount tank/a", "");
    complains(&mut backend, "zfs mount tank/a", 1, "cannot mount 'tank/a': filesystem already mounted\n");
    complains(&mut backend, "zfs unmount tank/a/b", 1, "cannot unmount 'tank/a/b': not currently mounted\n");
    complains(&mut backend, "zfs mount tank/v", 1, "cannot open 'tank/v': operation not applicable to datasets of this type\n");
    let before = backend.changes().len();
    prints(&mut backend, "zfs mount -a", "");
    let mounted: Vec<String> = backend
        .changes()
        .split_off(before)
        .into_iter()
        .flat_map(|request| match request {
            Request::DatasetsMount(mounts) => mounts.into_iter().map(|mount| mount.name),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(mounted, ["tank", "tank/a/b"]);
    backend.mounts = vec![Mount { dataset: "tank/a".into(), mountpoint: "/tank/a".into() }];
    prints(&mut backend, "zfs mount", "tank/a                          /tank/a\n");
    prints(&mut backend, "zfs umount /tank/a", "");
    backend.broken.insert("tank/a/b".into(), Failure::new(FailureKind::DatasetBusy));
    complains(&mut backend, "zfs list tank/a/b", 1, "cannot open 'tank/a/b': dataset is busy\n");
}

/// A name that is not there hid the holds of the others with `-r`, and was told in words that scripts do not know.
#[test]
fn holds_are_shown_past_what_is_not_there() {
    let mut backend = tank();
    let ran = sh(&mut backend, "zfs holds -Hrp tank/nosuch@z tank/a@z");
    let said = (ran.code, ran.out.as_str(), ran.err.as_str());
    assert_eq!(said, (1, "tank/a@z\tkeep\t5\n", "cannot open 'tank/nosuch': dataset does not exist\n"));
    complains(&mut backend, "zfs holds -H tank/a@nosuch", 1, "cannot open 'tank/a@nosuch': dataset does not exist\nno datasets available\n");
    complains(&mut backend, "zfs holds -Hr tank/a@nosuch", 0, "no datasets available\n");
}

/// Of two file systems in one place the lower one was unmounted, and the upper one with it.
#[test]
fn what_is_seen_in_a_place_is_unmounted() {
    let mut backend = FakeBackend::default();
    for name in ["tank/below", "tank/above"] {
        let properties = vec![PropertyValue::new("mountpoint", "/x", Source::Local), PropertyValue::new("mounted", 1, Source::None)];
        backend.dataset(name, DatasetKind::Filesystem, 1, properties);
        backend.mounts.push(Mount { dataset: name.into(), mountpoint: "/x".into() });
    }
    prints(&mut backend, "zfs unmount /x", "");
    let unmount = DatasetUnmount { name: "tank/above".into(), at: Some("/x".into()), tree: true, force: false, unload_key: false };
    assert_eq!(backend.changes(), [Request::DatasetUnmount(unmount)]);
}

/// A snapshot whose `createtxg` was not in the answer was taken to be older than all others, and these were destroyed.
#[test]
fn a_rollback_destroys_only_what_is_newer() {
    let mut backend = FakeBackend::default();
    backend.dataset("tank/a", DatasetKind::Filesystem, 1, Vec::new());
    let created = |txg: u64| vec![PropertyValue::new("createtxg", txg, Source::None)];
    for (name, txg, properties) in [("tank/a@1", 10, created(10)), ("tank/a@2", 20, Vec::new()), ("tank/a@3", 30, created(30))] {
        backend.dataset(name, DatasetKind::Snapshot, txg, properties);
    }
    let ran = sh(&mut backend, "zfs rollback -r tank/a@2");
    let destroyed = |request: Request| if let Request::SnapshotsDestroy(destroy) = request { destroy.names } else { Vec::new() };
    let destroyed: Vec<String> = backend.changes().into_iter().flat_map(destroyed).collect();
    assert_eq!(destroyed, ["tank/a@3"], "{}", ran.err);
}

/// They were destroyed before anybody asked whether the rollback can be done.
#[test]
fn a_rollback_is_asked_for_before_anything_is_destroyed() {
    let mut backend = FakeBackend::default();
    backend.dataset("tank/a", DatasetKind::Filesystem, 1, Vec::new());
    for (name, txg) in [("tank/a@1", 10), ("tank/a@2", 20)] {
        backend.dataset(name, DatasetKind::Snapshot, txg, Vec::new());
    }
    let rollback = |dry_run| Request::DatasetRollback(DatasetRollback { snapshot: "tank/a@1".into(), dry_run });
    prints(&mut backend, "zfs rollback -r tank/a@1", "");
    let changes = backend.changes();
    assert!(matches!(changes.as_slice(), [asked, Request::SnapshotsDestroy(_), done] if [asked, done] == [&rollback(true), &rollback(false)]), "{changes:?}");
    // Where nothing is newer, one question is enough.
    backend.requests.clear();
    prints(&mut backend, "zfs rollback -r tank/a@1", "");
    assert_eq!(backend.changes(), [rollback(false)]);
}
