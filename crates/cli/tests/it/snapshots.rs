//! `zfs snapshot` and what follows from it, with the words that scripts read.

use std::fs;

use crate::rig::Rig;

const MIB: u64 = 1 << 20;

/// A pool with two file systems below its root, mounted.
fn pool() -> Option<Rig> {
    let rig = Rig::new()?;
    rig.image("a.img", 256 * MIB);
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    rig.ok("zfs create tank/a");
    rig.ok("zfs create tank/a/b");
    Some(rig)
}

#[test]
fn a_snapshot_has_what_was_written_up_to_it() {
    let Some(rig) = pool() else { return };
    fs::write(rig.path("mnt/a/file"), "one").unwrap();
    rig.ok("zfs snapshot -o test:note=hello tank/a@one");
    fs::write(rig.path("mnt/a/file"), "two").unwrap();
    fs::write(rig.path("mnt/a/b/other"), vec![7; 300_000]).unwrap();
    rig.ok("zfs snap -r tank@two");
    fs::remove_file(rig.path("mnt/a/file")).unwrap();
    fs::remove_file(rig.path("mnt/a/b/other")).unwrap();
    let read = |path: &str| fs::read(rig.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert_eq!(read("mnt/a/.zfs/snapshot/one/file"), b"one");
    assert_eq!(read("mnt/a/.zfs/snapshot/two/file"), b"two");
    assert_eq!(read("mnt/a/b/.zfs/snapshot/two/other"), vec![7; 300_000]);
    assert_eq!(rig.ok("zfs list -H -o name -t snapshot"), "tank@two\ntank/a@one\ntank/a@two\ntank/a/b@two\n");
    assert_eq!(rig.get("tank/a@one", "test:note"), "hello");
    let history = rig.ok("zpool history -i tank");
    assert!(history.contains("zfs snap -r tank@two\n") && history.contains("] snapshot tank/a@one (") && history.contains("] set tank/a@one ("), "{history}");
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
    rig.ok("zpool import -d @ tank");
    assert_eq!(read("mnt/a/.zfs/snapshot/one/file"), b"one");
}

#[test]
fn refusals_have_the_usual_words() {
    let Some(rig) = pool() else { return };
    rig.ok("zfs snapshot tank/a@one");
    let said = |words: &str, expected: &str, code: i32| {
        let said = rig.run(words);
        assert_eq!((said.err.as_str(), said.code), (expected, code), "{words}");
    };
    said("zfs snapshot tank/a@one", "cannot create snapshot 'tank/a@one': dataset already exists\n", 1);
    let several = "cannot create snapshot 'tank/a@one': dataset already exists\nno snapshots were created\n";
    said("zfs snapshot -r tank@one", several, 1);
    assert_eq!(rig.ok("zfs list -H -o name -t snapshot"), "tank/a@one\n");
    said("zfs snapshot tank/a@x tank/a@y", "cannot create snapshots : multiple snapshots of same fs not allowed\nno snapshots were created\n", 1);
    said("zfs snapshot -o compression=lz4 tank/a@x", "cannot create snapshots : this property can not be modified for snapshots\n", 1);
    said("zfs snapshot tank/a@x%y", "cannot create snapshot 'tank/a@x%y': invalid character % in name\n", 1);
    for (words, begin) in [("zfs snapshot", "missing snapshot argument\nusage:\n"), ("zfs snapshot tank/a", "usage:\n"), ("zfs snapshot tank/none@a", "cannot open 'tank/none': dataset does not exist\nusage:\n")] {
        let said = rig.run(words);
        assert!(said.err.starts_with(begin) && said.code == 2, "{words}: {said:?}");
    }
}

#[test]
fn snapshots_are_destroyed_by_ranges() {
    let Some(rig) = pool() else { return };
    for name in ["a", "b", "c", "d", "e"] {
        fs::write(rig.path("mnt/a/file"), vec![name.as_bytes()[0]; 400_000]).unwrap();
        rig.ok(&format!("zfs snapshot -r tank@{name}"));
    }
    fs::remove_file(rig.path("mnt/a/file")).unwrap();
    rig.ok("zpool sync");
    let left = |dataset: &str| rig.ok(&format!("zfs list -H -o name -t snapshot {dataset}"));
    let by_snapshots: u64 = rig.ok("zfs get -Hpo value usedbysnapshots tank/a").trim().parse().unwrap();
    assert_eq!(rig.ok("zfs destroy -nvp tank/a@%"), format!("destroy\ttank/a@a\ndestroy\ttank/a@b\ndestroy\ttank/a@c\ndestroy\ttank/a@d\ndestroy\ttank/a@e\nreclaim\t{by_snapshots}\n"));
    assert_eq!(fs::read(rig.path("mnt/a/.zfs/snapshot/b/file")).unwrap()[0], b'b');
    let said = rig.ok("zfs destroy -v tank/a@a%b,d");
    assert!(said.starts_with("will destroy tank/a@a\nwill destroy tank/a@b\nwill destroy tank/a@d\nwill reclaim "), "{said}");
    assert_eq!(left("tank/a"), "tank/a@c\ntank/a@e\n");
    rig.ok("zfs hold -r keep tank@c");
    assert_eq!(rig.ok("zfs holds -Hr tank@c").lines().count(), 3);
    let said = rig.run("zfs destroy tank/a@c");
    assert_eq!(said.err, "cannot destroy snapshot tank/a@c: it's being held. Run 'zfs holds -r tank/a@c' to see holders.\n");
    assert_eq!(rig.run("zfs hold keep tank/a@c").err, "cannot hold snapshot 'tank/a@c': tag already exists on this dataset\n");
    assert_eq!(rig.run("zfs release other tank/a@c").err, "cannot release hold from snapshot 'tank/a@c': no such tag on this dataset\n");
    rig.ok("zfs destroy -d tank/a@c");
    assert_eq!((rig.get("tank/a@c", "defer_destroy").as_str(), rig.get("tank/a@c", "userrefs").as_str()), ("on", "1"));
    rig.ok("zfs release -r keep tank@c");
    assert_eq!(left("tank/a"), "tank/a@e\n");
    rig.ok("zfs bookmark tank/a@e #mark");
    rig.ok("zfs bookmark tank/a#mark #other");
    assert_eq!(rig.run("zfs bookmark tank/a@e #mark").err, "cannot create bookmark 'tank/a#mark': bookmark exists\n");
    assert_eq!(rig.ok("zfs list -H -o name -t bookmark tank/a"), "tank/a#mark\ntank/a#other\n");
    rig.ok("zfs destroy tank/a#mark");
    assert_eq!(rig.run("zfs destroy tank/a@none").err, "could not find any snapshots to destroy; check snapshot names.\n");
    rig.ok("zfs destroy -r tank@%");
    assert_eq!(left("-r tank"), "");
    rig.ok("zfs destroy -r tank/a");
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

/// A bookmark counts what was freed since, so it says as much as the snapshot that it is of, for that one's file system and what is cloned from later ones.
#[test]
fn what_was_written_since_a_bookmark_is_what_was_written_since_its_snapshot() {
    let Some(rig) = pool() else { return };
    let same = |dataset: &str, when: &str| {
        let [snapshot, bookmark, long] = ["written@one", "written#mark", "written@tank/a#mark"].map(|property| rig.get(dataset, property));
        assert!(snapshot == bookmark && snapshot == long && snapshot != "-", "{when}: {dataset}: {snapshot} {bookmark} {long}");
        snapshot
    };
    fs::write(rig.path("mnt/a/old"), vec![1; 700_000]).unwrap();
    fs::write(rig.path("mnt/a/kept"), vec![2; 300_000]).unwrap();
    rig.ok("zfs snapshot tank/a@one");
    rig.ok("zfs bookmark tank/a@one #mark");
    assert_eq!(same("tank/a", "at first"), "0");
    fs::write(rig.path("mnt/a/new"), vec![3; 500_000]).unwrap();
    fs::remove_file(rig.path("mnt/a/old")).unwrap();
    rig.ok("zpool sync");
    let first = same("tank/a", "changed").parse::<u64>().unwrap();
    assert!(first > 0);
    rig.ok("zfs snapshot tank/a@two");
    fs::write(rig.path("mnt/a/kept"), vec![4; 300_000]).unwrap();
    fs::remove_file(rig.path("mnt/a/new")).unwrap();
    rig.ok("zpool sync");
    same("tank/a", "with another snapshot");
    assert_eq!(same("tank/a@two", "of a snapshot"), first.to_string());
    let long = |dataset: &str| ["written@tank/a@one", "written@tank/a#mark"].map(|property| rig.get(dataset, property));
    rig.ok("zfs clone tank/a@two tank/c");
    fs::write(rig.path("mnt/c/more"), vec![5; 200_000]).unwrap();
    rig.ok("zpool sync");
    let [since_snapshot, since_bookmark] = long("tank/c");
    assert!(since_snapshot == since_bookmark && since_snapshot.parse::<u64>().unwrap() > first, "{since_snapshot} {since_bookmark}");
    assert_eq!(long("tank/a/b"), ["-", "-"], "it does not come from there");
    assert_eq!(rig.get("tank/a@one", "written#mark"), "-", "the snapshot is not after it");
    // Without the snapshot it still counts.
    rig.ok("zfs destroy -R tank/a@two");
    let before = rig.get("tank/a", "written@one");
    rig.ok("zfs destroy tank/a@one");
    assert_eq!(rig.get("tank/a", "written#mark"), before);
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

/// The first snapshot that was held ended it, and all datasets that follow it stayed.
#[test]
fn a_tree_is_destroyed_past_what_is_held() {
    let Some(rig) = pool() else { return };
    rig.ok("zfs create tank/a/c");
    rig.ok("zfs snapshot -r tank/a@s");
    rig.ok("zfs hold keep tank/a/b@s");
    let said = rig.run("zfs destroy -r tank/a");
    assert!(said.code == 1 && said.err.contains("cannot destroy snapshot tank/a/b@s: it's being held"), "{said:?}");
    assert_eq!(rig.ok("zfs list -H -o name -r tank/a"), "tank/a\ntank/a/b\n");
    assert_eq!(rig.ok("zfs list -H -o name -t snapshot -r tank/a/b"), "tank/a/b@s\n");
    rig.finish("tank", &["a.img"]);
}
