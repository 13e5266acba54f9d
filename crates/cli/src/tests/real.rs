//! Commands run on pools that OpenZFS made, without a daemon; what they print is compared with what OpenZFS printed of the same pool.

use std::os::fd::BorrowedFd;

use serde_json::Value as Json;
use sim::golden::Golden as Images;
use tarnfs::control::{Backend, Descriptor, Pools, Reply, Request, StreamProgress, Streamed, execute, execute_stream};

use super::golden::{Golden, golden};
use super::sh;
use crate::session::Control;

struct Real(Pools);

impl Control for Real {
    fn call(&mut self, request: Request) -> Reply {
        execute(&mut self.0, request)
    }

    /// As the daemon does it, without one.
    fn call_with(&mut self, request: Request, descriptor: BorrowedFd<'_>, _: &mut dyn FnMut(StreamProgress)) -> Reply {
        let descriptor = Descriptor::new(descriptor.try_clone_to_owned().unwrap(), request.stream_way().unwrap()).unwrap();
        let ended = execute_stream(&mut self.0, request).and_then(|job| job(descriptor)).and_then(|streamed| match streamed {
            Streamed::Over(reply) => Ok(reply),
            Streamed::There(end) => self.0.stream_end(end),
        });
        ended.unwrap_or_else(Reply::Failed)
    }
}

/// The pool of a recording, imported read-only; `None`: its images are not there.
fn imported(name: &str, recorded: &Golden) -> Option<(Real, Images)> {
    let Some(images) = Images::find(name).expect("golden pool") else {
        sim::places::skipped(&format!("what zpool says of the golden pool {name}: it is not there"));
        return None;
    };
    let mut real = Real(Pools::default());
    let directory = images.directory().display();
    let ran = sh(&mut real, &format!("zpool import -f -N -o readonly=on -o cachefile=none -d {directory} {}", recorded.name));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{name}");
    Some((real, images))
}

/// A read-only import of OpenZFS does not look what is allocated, and says nothing of the last transaction group.
fn without_what_differs(json: &mut Json) {
    if let Json::Object(object) = json {
        for key in ["alloc_space", "txg", "pass_start"] {
            object.remove(key);
        }
        object.values_mut().for_each(without_what_differs);
    }
}

/// Spares, cache devices, checkpoints and removed vdevs were left out.
#[test]
fn the_status_of_a_real_pool_is_what_openzfs_said() {
    for (name, recorded) in [
        ("cache", golden!("cache")),
        ("spare", golden!("spare")),
        ("special", golden!("special")),
        ("checkpoint", golden!("checkpoint")),
        ("remove", golden!("remove")),
    ] {
        let Some((mut real, images)) = imported(name, &recorded) else { continue };
        let ran = sh(&mut real, "zpool status -vj --json-int");
        let out = ran.out.replace(&format!("{}/", images.directory().display()), "/dev/shm/m/");
        let mut ours: Json = serde_json::from_str(&out).expect("JSON");
        let mut theirs = recorded.json["status"].clone();
        without_what_differs(&mut ours);
        without_what_differs(&mut theirs);
        assert_eq!(ours, theirs, "{name}:\n{ours:#}\n{theirs:#}");
    }
}

#[test]
fn spares_caches_checkpoints_and_removals_have_their_lines() {
    let lines = |name: &str, recorded: &Golden, line: &str| {
        let (mut real, images) = imported(name, recorded)?;
        let ran = sh(&mut real, line);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
        Some(ran.out.replace(&format!("{}/", images.directory().display()), "/"))
    };
    for (name, recorded, line, wanted) in [
        ("cache", golden!("cache"), "zpool status", "\tcache\n\t  /d1.img"),
        ("cache", golden!("cache"), "zpool list -v", "\ncache  "),
        ("cache", golden!("cache"), "zpool iostat -v", "\ncache  "),
        ("spare", golden!("spare"), "zpool status", "INUSE     currently in use\n"),
        ("checkpoint", golden!("checkpoint"), "zpool status", "\ncheckpoint: created Fri Nov 20 11:03:25 2026, consumes 884K\n"),
        ("checkpoint", golden!("checkpoint"), "zpool get -Hp -o value checkpoint,size", "905216\n83886080\n"),
        (
            "remove",
            golden!("remove"),
            "zpool status",
            "\nremove: Removal of vdev 1 copied 1.33M in 0h0m, completed on Fri Nov 20 11:07:46 2026\n\t192 memory used for removed device mappings\nconfig:\n",
        ),
    ] {
        let Some(out) = lines(name, &recorded, line) else { continue };
        assert!(out.contains(wanted), "{line}: {out}");
    }
}

/// `written@SNAPSHOT` was always a dash. Since the snapshot before it is what `written` says; OpenZFS's manifest has that.
#[test]
fn what_was_written_since_a_snapshot_is_told() {
    let recorded = Golden { json: Json::Null, name: "g_snap".to_owned() };
    let Some((mut real, _images)) = imported("snap", &recorded) else { return };
    let mut get = |property: &str, dataset: &str| sh(&mut real, &format!("zfs get -Hp -o value,source {property} {dataset}")).out;
    assert_eq!(get("written@three", "g_snap"), "81920\tlocal\n");
    assert_eq!(get("written@one", "g_snap/a@two"), "262144\tlocal\n");
    assert_eq!(get("written@g_snap/promoted@one", "g_snap/a/b@three"), "299008\tlocal\n");
    // Of a clone: what it wrote itself and what its snapshot has of its own.
    assert_eq!(get("written@g_snap/a@two", "g_snap/clone@c1"), "192512\tlocal\n");
    for (property, dataset) in [("written@two", "g_snap/a@one"), ("written@none", "g_snap/a"), ("written@one", "g_snap/a@one"), ("written@three", "g_snap/a#bm1")] {
        assert_eq!(get(property, dataset), "-\t-\n", "{property} {dataset}");
    }
}

/// What OpenZFS had written down of holds and of permissions could not even be looked at, nor the versions of file systems.
#[test]
fn holds_permissions_and_versions_are_shown() {
    let recorded = Golden { json: Json::Null, name: "g_snap".to_owned() };
    let Some((mut real, _images)) = imported("snap", &recorded) else { return };
    let mut run = |line: &str| {
        let ran = sh(&mut real, line);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
        ran.out
    };
    let text = run("zfs holds g_snap/a@one");
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((lines.len(), &lines[0][..], &lines[1][..2]), (2, &["NAME", "TAG", "TIMESTAMP"][..], &["g_snap/a@one", "keep"][..]), "{text}");
    let text = run("zfs holds -rHp g_snap/a@three");
    assert!(text.lines().count() > 1 && text.lines().all(|line| line.split('\t').nth(1) == Some("recursive")), "{text}");
    assert!(text.lines().all(|line| line.split('\t').nth(2).is_some_and(|time| time.parse::<u64>().is_ok_and(|time| time > 1 << 30))), "{text}");
    assert_eq!(run("zfs holds -H g_snap/a@two"), "");
    let user = crate::text::owners::name_of_user(1000).unwrap_or_else(|| "1000".to_owned());
    let group = crate::text::owners::name_of_group(100).unwrap_or_else(|| "100".to_owned());
    let of_a = format!(
        "{:-<70}\nPermission sets:\n\t@set1 create,destroy\nCreate time permissions:\n\tmount\nDescendent permissions:\n\tgroup {group} send\n\
         Local+Descendent permissions:\n\tuser {user} compression,mount,snapshot\n",
        "---- Permissions on g_snap/a "
    );
    assert_eq!(run("zfs allow g_snap/a"), of_a);
    assert_eq!(run("zfs allow g_snap/a/b"), format!("{:-<70}\nLocal+Descendent permissions:\n\teveryone @set1\n{of_a}", "---- Permissions on g_snap/a/b "));
    assert_eq!(run("zfs allow g_snap"), "");
    assert!(run("zfs upgrade").ends_with("All filesystems are formatted with the current version.\n"));
    assert!(run("zfs upgrade -v").contains("\n 5   System attributes\n"));
    for line in ["zfs holds g_snap/a", "zfs holds g_snap/a@nosuch", "zfs allow g_snap/nosuch", "zfs allow -u root mount g_snap"] {
        assert_ne!(sh(&mut real, line).code, 0, "{line}");
    }
}
