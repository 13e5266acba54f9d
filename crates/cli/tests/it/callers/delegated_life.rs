//! The life of datasets in the hands of a user to whom it is granted: snapshots, clones, streams, and what is in `.zfs/snapshot`.

use std::fs;
use std::time::Duration;

use super::delegates::Shared;
use super::people::{GROUP, OWNER, STRANGER};

/// What a file system is for: everything below needs one of these.
const LIFE: &str = "snapshot,hold,release,bookmark,clone,promote,rollback,rename,destroy,create,mount,send,receive,userprop,diff";

fn shared() -> Option<Shared> {
    let shared = Shared::new()?;
    shared.rig.ok("zfs set mountpoint=@mnt tank/home/a");
    fs::write(shared.rig.path("mnt/file"), vec![7; 100_000]).unwrap();
    Some(shared)
}

/// Refused for the right of it, and nothing else.
#[track_caller]
fn refused(shared: &Shared, user: u32, script: &str) {
    let said = shared.shell(user, script);
    let is_right = said.code != 0 && (said.err.contains("permission denied") || said.err.contains("Operation not permitted"));
    assert!(is_right, "{user}: {script}: {said:?}\n{}", shared.rig.log());
}

#[track_caller]
fn done(shared: &Shared, user: u32, script: &str) -> String {
    let said = shared.shell(user, script);
    assert!(said.code == 0, "{user}: {script}: {said:?}\n{}", shared.rig.log());
    said.out
}

/// Each verb with what is there before it, in an order in which one makes what the next needs.
const VERBS: &[&str] = &[
    "zfs snapshot -o a:b=c tank/home/a@1",
    "zfs hold kept tank/home/a@1",
    "zfs release kept tank/home/a@1",
    "zfs bookmark tank/home/a@1 tank/home/a#1",
    "zfs clone tank/home/a@1 tank/home/c",
    "zfs set a:b=d tank/home/c",
    "zfs promote tank/home/c",
    "zfs promote tank/home/a",
    "zfs rollback tank/home/a@1",
    "zfs send tank/home/a@1 >/dev/null",
    "zfs send -w tank/home/a@1 >/dev/null",
    "zfs diff tank/home/a@1",
    "zfs rename tank/home/a@1 tank/home/a@one",
    "zfs destroy tank/home/a#1",
    "zfs destroy tank/home/c",
    "zfs destroy tank/home/a@one",
];

#[test]
fn each_verb_needs_its_grant() {
    let Some(shared) = shared() else { return };
    shared.rig.ok(&format!("zfs allow -u {OWNER} {LIFE} tank/home"));
    for verb in VERBS {
        refused(&shared, STRANGER, verb);
        done(&shared, OWNER, verb);
    }
    assert_eq!(shared.rig.ok("zfs list -H -t all -r -o name tank/home"), "tank/home\ntank/home/a\n");
    // Without one of the grants, what needs that one is refused, and all else is not: not the next step of a script either.
    shared.rig.ok(&format!("zfs unallow -u {OWNER} send tank/home"));
    done(&shared, OWNER, VERBS[0]);
    refused(&shared, OWNER, "zfs send tank/home/a@1 >/dev/null");
    shared.rig.ok(&format!("zfs allow -u {OWNER} send:raw tank/home"));
    refused(&shared, OWNER, "zfs send tank/home/a@1 >/dev/null");
    done(&shared, OWNER, "zfs send -w tank/home/a@1 >/dev/null");
    shared.rig.ok("zpool export tank");
    shared.rig.zdb(&["a.img"]);
}

/// The grant was asked for by nothing: nobody could send by it.
#[test]
fn one_grant_is_for_encrypted_datasets() {
    let Some(shared) = shared() else { return };
    let directory = tempfile::tempdir().unwrap();
    let Some(streams) = crate::stream::golden(directory.path()) else { return };
    done(&shared, 0, &format!("zfs receive -u tank/home/e <{}/raw.zfs", streams.display()));
    shared.rig.ok("zfs snapshot tank/home/a@a");
    refused(&shared, OWNER, "zfs send -w tank/home/e@a >/dev/null");
    shared.rig.ok(&format!("zfs allow -u {OWNER} send:encrypted tank/home"));
    done(&shared, OWNER, "zfs send -w tank/home/e@a >/dev/null");
    refused(&shared, OWNER, "zfs send -w tank/home/a@a >/dev/null");
    shared.rig.ok("zpool export tank");
    shared.rig.zdb(&["a.img"]);
}

#[test]
fn a_stream_is_received_by_those_who_may_above_it() {
    let Some(shared) = shared() else { return };
    let rig = &shared.rig;
    rig.ok("zfs snapshot tank/home/a@1");
    rig.ok(&format!("zfs allow -u {OWNER} send tank/home/a"));
    let receive = "zfs send tank/home/a@1 | zfs receive tank/home/r";
    refused(&shared, OWNER, receive);
    // What creators will have is not what they need to create.
    shared.may(0, "zfs allow -c receive,create,mount tank/home");
    refused(&shared, OWNER, receive);
    // What is granted below is not granted here.
    rig.ok(&format!("zfs allow -d -u {OWNER} receive,create,mount tank/home"));
    refused(&shared, OWNER, receive);
    for lacking in ["receive,create", "receive,mount", "create,mount"] {
        rig.ok(&format!("zfs allow -l -u {OWNER} {lacking} tank/home"));
        refused(&shared, OWNER, receive);
        rig.ok(&format!("zfs unallow -l -u {OWNER} {lacking} tank/home"));
    }
    assert_eq!(rig.ok("zfs list -H -r -o name tank/home"), "tank/home\ntank/home/a\n", "nothing is left of what was refused");
    rig.ok(&format!("zfs allow -g {GROUP} receive,create,mount tank/home"));
    done(&shared, OWNER, receive);
    assert!(rig.ok("zfs allow tank/home/r").contains("create,mount,receive"));
    // The next one goes into what is there now.
    rig.ok("zfs snapshot tank/home/a@2");
    done(&shared, OWNER, "zfs send -i @1 tank/home/a@2 | zfs receive tank/home/r");
    refused(&shared, STRANGER, "zfs receive -A tank/home/r");
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

/// A stream may say anything of what it is received on top of: that can be read then, by a user that could neither clone it nor look into it.
#[test]
fn a_stream_goes_on_top_of_what_its_receiver_may_clone() {
    let Some(shared) = shared() else { return };
    let rig = &shared.rig;
    rig.ok("zfs create tank/home/b");
    rig.ok("zfs snapshot tank/home/a@1");
    rig.ok("zfs snapshot tank/home/a@2");
    rig.ok(&format!("zfs allow -u {OWNER} send tank/home/a"));
    rig.ok(&format!("zfs allow -u {OWNER} receive,create,mount tank/home/b"));
    let on_top_of = |origin: &str, new: &str| format!("zfs send -i @1 tank/home/a@2 | zfs receive -o origin={origin} {new}");
    refused(&shared, OWNER, &on_top_of("tank/home/a@1", "tank/home/b/theirs"));
    assert_eq!(rig.ok("zfs list -H -r -o name tank/home/b"), "tank/home/b\n", "nothing is left of what was refused");
    // What the user has received needs no more grants.
    done(&shared, OWNER, "zfs send tank/home/a@1 | zfs receive tank/home/b/own");
    done(&shared, OWNER, &on_top_of("tank/home/b/own@1", "tank/home/b/more"));
    rig.ok(&format!("zfs allow -u {OWNER} clone tank/home/a"));
    done(&shared, OWNER, &on_top_of("tank/home/a@1", "tank/home/b/theirs"));
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

/// To receive is not to set: what came with a stream was set, and what had been set was taken away, with no grant for either.
#[test]
fn a_stream_changes_only_properties_that_are_granted() {
    let Some(shared) = shared() else { return };
    let rig = &shared.rig;
    let of = |dataset: &str, properties: &str| rig.ok(&format!("zfs get -H -o value,received,source {properties} {dataset}"));
    rig.ok(&format!("zfs allow -u {OWNER} send tank/home/a"));
    rig.ok(&format!("zfs allow -u {OWNER} receive,create,mount tank/home"));
    rig.ok("zfs snapshot tank/home/a@1");
    // One that has received no properties yet: the first that come would take the place of what was set. And one that has.
    done(&shared, OWNER, "zfs send tank/home/a@1 | zfs receive tank/home/never");
    rig.ok("zfs set checksum=sha256 tank/home/a");
    done(&shared, 0, "zfs send -p tank/home/a@1 | zfs receive -x mountpoint tank/home/before");
    rig.ok("zfs inherit checksum tank/home/a");
    for dataset in ["tank/home/never", "tank/home/before"] {
        rig.ok(&format!("zfs set setuid=off {dataset}"));
        rig.ok(&format!("zfs set quota=10M {dataset}"));
    }
    rig.ok("zfs set setuid=on tank/home/a");
    rig.ok("zfs set compression=gzip-1 tank/home/a");
    rig.ok("zfs set a:b=c tank/home/a");
    rig.ok("zfs snapshot -o d:e=f tank/home/a@2");
    for dataset in ["tank/home/never", "tank/home/before"] {
        let said = shared.shell(OWNER, &format!("zfs send -p -i @1 tank/home/a@2 | zfs receive {dataset}"));
        assert_eq!(said.code, 0, "the contents are received: {said:?}");
        for property in ["setuid", "compression", "a:b", "d:e"] {
            assert!(said.err.contains(&format!("cannot receive {property} property on {dataset}: permission denied")), "{said:?}");
        }
        assert_eq!(of(dataset, "setuid,quota"), "off\t-\tlocal\n10M\t-\tlocal\n", "{dataset}");
        assert_eq!((of(dataset, "compression,a:b"), of(&format!("{dataset}@2"), "d:e")), ("on\t-\tdefault\n-\t-\t-\n".into(), "-\t-\t-\n".into()), "{dataset}");
    }
    assert_eq!(of("tank/home/before", "checksum"), "sha256\tsha256\treceived\n", "it did not come again");
    // Nor is what was received given up by `-x`, or anything set by `-o`.
    rig.ok("zfs snapshot tank/home/a@3");
    let next = "zfs send -i @2 tank/home/a@3 | zfs receive";
    refused(&shared, OWNER, &format!("{next} -o exec=off tank/home/before"));
    let said = shared.shell(OWNER, &format!("{next} -x checksum tank/home/before"));
    assert!(said.code == 0 && said.err.contains("cannot receive checksum property on tank/home/before: permission denied"), "{said:?}");
    assert_eq!(of("tank/home/before", "checksum"), "sha256\tsha256\treceived\n");
    // What is granted is done.
    rig.ok(&format!("zfs allow -u {OWNER} setuid,userprop,checksum tank/home"));
    rig.ok("zfs snapshot -o d:e=f tank/home/a@4");
    done(&shared, OWNER, "zfs send -p -i @3 tank/home/a@4 | zfs receive tank/home/before");
    assert_eq!(of("tank/home/before", "setuid,a:b,checksum"), "off\ton\tlocal\nc\tc\treceived\non\t-\tdefault\n");
    assert_eq!((of("tank/home/before", "compression"), of("tank/home/before@4", "d:e")), ("on\t-\tdefault\n".into(), "f\tf\treceived\n".into()));
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

#[test]
fn a_grant_that_is_revoked_ends_the_stream() {
    let Some(shared) = shared() else { return };
    let rig = &shared.rig;
    fs::write(rig.path("mnt/large"), (0..4u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect::<Vec<u8>>()).unwrap();
    rig.ok("zfs snapshot tank/home/a@1");
    rig.ok(&format!("zfs allow -u {OWNER} send tank/home/a"));
    let said = std::thread::scope(|scope| {
        let sent = scope.spawn(|| shared.shell(OWNER, "{ zfs send tank/home/a@1; echo $? >&2; } | { sleep 8; cat >/dev/null; }"));
        std::thread::sleep(Duration::from_secs(2));
        rig.ok(&format!("zfs unallow -u {OWNER} tank/home/a"));
        sent.join().unwrap()
    });
    assert!(said.err.contains("permission denied") && said.err.ends_with("1\n"), "{said:?}\n{}", rig.log());
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

/// What was mounted below comes back after a rollback, and the path to it is in the new contents. They had a symbolic link there, and root mounted the file system over
/// whatever directory the user liked.
#[test]
fn a_rollback_mounts_nothing_where_its_user_likes() {
    let Some(shared) = shared() else { return };
    let rig = &shared.rig;
    let sub = rig.text("mnt/sub");
    fs::create_dir(rig.path("victim")).unwrap();
    fs::write(rig.path("victim/passwd"), "root's").unwrap();
    std::os::unix::fs::chown(rig.path("mnt"), Some(OWNER), Some(OWNER)).unwrap();
    rig.ok(&format!("zfs allow -u {OWNER} snapshot,rollback tank/home/a"));
    done(&shared, OWNER, &format!("ln -s {} {sub} && zfs snapshot tank/home/a@1 && rm {sub} && mkdir {sub}", rig.text("victim")));
    rig.ok("zfs create -o mountpoint=@mnt/sub tank/home/b");
    assert!(rig.is_mounted("mnt/sub"));
    done(&shared, OWNER, "zfs rollback tank/home/a@1");
    assert_eq!(fs::read_link(rig.path("mnt/sub")).unwrap(), rig.path("victim"));
    assert_eq!(fs::read_to_string(rig.path("victim/passwd")).unwrap(), "root's", "tank/home/b lies over it");
    assert!(!rig.is_mounted("victim"));
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

#[test]
fn snapshots_are_directories_to_those_who_may() {
    let Some(shared) = shared() else { return };
    let rig = &shared.rig;
    let here = rig.text("mnt/.zfs/snapshot");
    let (make, rename, remove) = (format!("mkdir {here}/1"), format!("mv {here}/1 {here}/2"), format!("rmdir {here}/2"));
    for (grants, script) in [("snapshot", &make), ("rename,create,mount", &rename), ("destroy,mount", &remove)] {
        refused(&shared, OWNER, script);
        rig.ok(&format!("zfs allow -u {OWNER} {grants} tank/home/a"));
        refused(&shared, STRANGER, script);
        done(&shared, OWNER, script);
        rig.ok(&format!("zfs unallow -u {OWNER} tank/home/a"));
    }
    // One that may not be destroyed stays with those who are in it.
    rig.ok("zfs snapshot tank/home/a@kept");
    let inside = fs::File::open(rig.path("mnt/.zfs/snapshot/kept/file")).unwrap();
    refused(&shared, OWNER, &format!("rmdir {here}/kept"));
    assert_eq!(inside.metadata().unwrap().len(), 100_000);
    drop(inside);
    // Without the directory nobody is in the way of a file of that name.
    rig.ok("zfs set snapdir=disabled tank/home/a");
    assert!(!rig.path("mnt/.zfs").exists());
    rig.ok("zfs set snapdir=visible tank/home/a");
    assert!(rig.path("mnt/.zfs/snapshot/kept/file").exists());
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}
