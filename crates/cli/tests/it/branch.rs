//! Clones, promotions and rollbacks through the commands, and what programs see that have files of a rolled back file system open.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};

use crate::rig::Rig;

/// A file system that is rolled back stays mounted: what is there is the snapshot's, whatever the kernel remembers, and open files of it go on.
#[test]
fn a_rollback_under_a_mount() {
    let Some(rig) = Rig::new() else { return };
    rig.image("img", 1 << 30);
    fs::create_dir(rig.path("m")).unwrap();
    rig.ok("zpool create -m @m tank @img");
    let at = |name: &str| rig.path("m").join(name);
    fs::create_dir(at("inner")).unwrap();
    for name in ["stays", "changed", "inner/deep", "removed"] {
        fs::write(at(name), format!("old {name}").repeat(1000)).unwrap();
    }
    rig.ok("zfs snapshot tank@one");
    let mut changed = File::options().read(true).write(true).open(at("changed")).unwrap();
    changed.write_all(b"NEW CONTENTS").unwrap();
    let mut stays = File::open(at("stays")).unwrap();
    fs::write(at("inner/deep"), "new").unwrap();
    fs::remove_file(at("removed")).unwrap();
    fs::write(at("added"), "new".repeat(5000)).unwrap();
    fs::rename(at("inner"), at("outer")).unwrap();
    let mut added = File::open(at("added")).unwrap();
    let mut text = String::new();
    added.read_to_string(&mut text).unwrap();
    rig.ok("zfs rollback tank@one");
    for name in ["stays", "changed", "inner/deep", "removed"] {
        assert_eq!(fs::read_to_string(at(name)).unwrap_or_else(|error| panic!("{name}: {error}")), format!("old {name}").repeat(1000), "{name}");
    }
    let mut names: Vec<String> = fs::read_dir(rig.path("m")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["changed", "inner", "removed", "stays"]);
    assert!(fs::metadata(at("added")).is_err() && fs::metadata(at("outer")).is_err());
    // A file that was there goes on, one that was not is gone.
    let mut now = String::new();
    stays.read_to_string(&mut now).unwrap();
    assert_eq!(now, "old stays".repeat(1000));
    changed.seek(SeekFrom::Start(0)).unwrap();
    now.clear();
    changed.read_to_string(&mut now).unwrap();
    assert_eq!(now, "old changed".repeat(1000));
    added.seek(SeekFrom::Start(0)).unwrap();
    let gone = added.read_to_string(&mut text).unwrap_err();
    assert!(matches!(gone.raw_os_error(), Some(libc::ESTALE | libc::EIO)), "{gone}");
    changed.seek(SeekFrom::Start(0)).unwrap();
    changed.write_all(b"AFTER").unwrap();
    changed.sync_all().unwrap();
    fs::write(at("again"), "again").unwrap();
    drop((changed, stays, added));
    // The numbers of files that are gone are given again.
    for round in 0..3 {
        for number in 0..20 {
            fs::write(at(&format!("n{number}")), format!("{round} {number}")).unwrap();
        }
        rig.ok("zfs rollback tank@one");
        assert!(fs::metadata(at("n0")).is_err() && fs::metadata(at("again")).is_err());
    }
    rig.ok("zpool export tank");
    rig.zdb(&["img"]);
}

/// The words of OpenZFS.
#[test]
fn what_is_in_the_way_is_listed() {
    let Some(rig) = Rig::new() else { return };
    rig.image("img", 1 << 30);
    fs::create_dir(rig.path("m")).unwrap();
    rig.ok("zpool create -m @m tank @img");
    rig.ok("zfs create tank/a");
    fs::write(rig.path("m").join("a/file"), "first").unwrap();
    for name in ["one", "two", "three"] {
        rig.ok(&format!("zfs snapshot tank/a@{name}"));
    }
    rig.refused("zfs rollback tank/a@one", "cannot rollback to 'tank/a@one': more recent snapshots or bookmarks exist\nuse '-r' to force deletion of the following snapshots and bookmarks:\ntank/a@two\ntank/a@three\n");
    rig.ok("zfs clone tank/a@two tank/c");
    assert_eq!(fs::read_to_string(rig.path("m").join("c/file")).unwrap(), "first");
    assert_eq!(rig.get("tank/c", "origin"), "tank/a@two");
    assert_eq!(rig.get("tank/a@two", "clones"), "tank/c");
    rig.refused("zfs rollback -r tank/a@one", "cannot rollback to 'tank/a@one': clones of previous snapshots exist\nuse '-R' to force deletion of the following clones and dependents:\ntank/c\n");
    rig.refused("zfs promote tank/a", "cannot promote 'tank/a': not a cloned filesystem\n");
    rig.refused("zfs clone tank/a@two tank/c", "cannot create 'tank/c': dataset already exists\n");
    rig.refused("zfs clone tank/a@none tank/d", "cannot open 'tank/a@none': dataset does not exist\n");
    rig.ok("zfs snapshot tank/c@one");
    rig.refused("zfs promote tank/c", "cannot promote 'tank/c': conflicting snapshot 'one' from parent 'tank/a@two'\n");
    rig.ok("zfs rename tank/c@one tank/c@mine");
    rig.ok("zfs promote tank/c");
    assert_eq!(rig.get("tank/a", "origin"), "tank/c@two");
    assert_eq!(rig.get("tank/c", "origin"), "-");
    assert_eq!(fs::read_to_string(rig.path("m").join("c/.zfs/snapshot/one/file")).unwrap(), "first");
    assert!(fs::metadata(rig.path("m").join("a/.zfs/snapshot/one")).is_err());
    rig.ok("zpool export tank");
    rig.zdb(&["img"]);
}

/// The kernel looked all names of the parent up again, and let go of what was mounted at them: the next one who went there found an empty directory.
#[test]
fn what_is_mounted_below_a_file_system_that_is_rolled_back_stays() {
    let Some(rig) = Rig::new() else { return };
    rig.image("img", 1 << 30);
    fs::create_dir(rig.path("m")).unwrap();
    rig.ok("zpool create -m @m tank @img");
    rig.ok("zfs create tank/parent");
    let parent = rig.path("m/parent");
    fs::create_dir_all(parent.join("a/b")).unwrap();
    rig.ok("zfs create tank/parent/near");
    rig.ok("zfs create -o mountpoint=@m/parent/a/b/deep tank/parent/deep");
    // One whose directory is in a large one.
    fs::create_dir(parent.join("many")).unwrap();
    (0..3000).for_each(|number| drop(File::create(parent.join(format!("many/file-{number}"))).unwrap()));
    rig.ok("zfs create -o mountpoint=@m/parent/many/zzz tank/parent/far");
    let places = ["near", "a/b/deep", "many/zzz"].map(|place| parent.join(place));
    for place in &places {
        fs::write(place.join("file"), "contents").unwrap();
    }
    rig.ok("zfs snapshot tank/parent@one");
    let mut open: Vec<File> = places.iter().map(|place| File::options().read(true).write(true).open(place.join("file")).unwrap()).collect();
    for round in 0..3 {
        fs::write(parent.join(format!("new-{round}")), "new").unwrap();
        rig.ok("zfs rollback tank/parent@one");
        assert!(!parent.join(format!("new-{round}")).exists());
        for place in &places {
            assert_eq!(fs::read_to_string(place.join("file")).unwrap_or_else(|error| panic!("round {round}, {}: {error}", place.display())), "contents");
        }
    }
    for file in &mut open {
        file.seek(SeekFrom::Start(0)).unwrap();
        file.write_all(b"CONTENTS").unwrap();
    }
    drop(open);
    for place in &places {
        assert_eq!(fs::read_to_string(place.join("file")).unwrap(), "CONTENTS", "{}", place.display());
    }
    let mounted = rig.ok("zfs mount");
    assert_eq!(mounted.lines().filter(|line| line.contains("tank/parent")).count(), 4, "{mounted}");
    rig.ok("zpool export tank");
    rig.zdb(&["img"]);
}

/// Snapshots that were newer were destroyed first, and then the rollback was refused.
#[test]
fn a_rollback_that_cannot_be_done_destroys_nothing() {
    let Some(rig) = Rig::with_tank("img", 256 << 20, "-m @m -O compression=off") else { return };
    rig.ok("zfs create tank/a");
    let file = rig.path("m/a/file");
    fs::write(&file, vec![1; 20 << 20]).unwrap();
    rig.ok("zfs snapshot tank/a@one");
    fs::remove_file(&file).unwrap();
    rig.ok("zfs wait -t deleteq tank/a");
    rig.ok("zpool sync tank");
    rig.ok("zfs snapshot tank/a@two");
    let snapshots = || rig.ok("zfs list -H -o name -t snapshot tank/a");
    let all = "tank/a@one\ntank/a@two\n";
    // It may not refer to so much any more.
    rig.ok("zfs set refquota=5M tank/a");
    rig.refused("zfs rollback -r tank/a@one", "cannot rollback 'tank/a': out of space");
    assert_eq!(snapshots(), all);
    rig.ok("zfs set refquota=none tank/a");
    // A transaction has what is to go.
    let view = rig.ok(&format!("transaction begin -o {} tank/a", std::process::id())).trim_end().to_owned();
    rig.refused("zfs rollback -r tank/a@one", "a transaction is open at ");
    assert_eq!(snapshots(), all);
    rig.ok(&format!("transaction abort {view}"));
    rig.ok("zfs rollback -r tank/a@one");
    assert_eq!(snapshots(), "tank/a@one\n");
    assert!(fs::read(&file).unwrap() == vec![1; 20 << 20]);
    rig.finish("tank", &["img"]);
}
