//! Pools that are mounted.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;

use rustix::process::{Signal, kill_process};

use crate::rig::{Rig, Said};

const MIB: u64 = 1 << 20;

/// Bytes that do not compress, the same for the same seed.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(&mut next).take(length.div_ceil(8)).flatten().take(length).collect()
}

#[test]
fn a_pool_from_its_making_to_its_end() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 512 * MIB);
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    assert!(rig.is_mounted("mnt"));
    let text = b"a line that compresses\n".repeat(100_000);
    let data = noise(1, 3_000_001);
    fs::write(rig.path("mnt/text"), &text).unwrap();
    rig.ok("zfs set compression=zstd tank");
    rig.ok("zfs create tank/home");
    rig.ok("zfs create -p tank/p/q");
    assert!(["mnt/home", "mnt/p", "mnt/p/q"].iter().all(|place| rig.is_mounted(place)));
    fs::write(rig.path("mnt/home/noise"), &data).unwrap();
    fs::create_dir(rig.path("mnt/p/q/directory")).unwrap();
    std::os::unix::fs::symlink("text", rig.path("mnt/link")).unwrap();
    fs::set_permissions(rig.path("mnt/home/noise"), fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(rig.ok("zfs list -H -o name"), "tank\ntank/home\ntank/p\ntank/p/q\n");
    assert_eq!(rig.get("tank/home", "mountpoint"), rig.text("mnt/home"));
    assert_eq!(rig.get("tank/home", "mounted"), "yes");
    assert_eq!(rig.get("tank/home", "compression"), "zstd");
    rig.ok("zpool sync tank");
    assert!(rig.get("tank/home", "referenced").parse::<u64>().unwrap() > 3_000_000);
    let status = rig.ok("zpool status");
    assert!(status.contains("\tNAME") && status.contains("errors: No known data errors"), "{status}");
    rig.ok("zpool export tank");
    assert!(!rig.is_mounted("mnt"));
    rig.zdb(&["a.img"]);

    assert!(rig.ok("zpool import -d @").contains("pool: tank"));
    rig.ok("zpool import -d @ tank");
    assert_eq!(fs::read(rig.path("mnt/text")).unwrap(), text);
    assert_eq!(fs::read(rig.path("mnt/home/noise")).unwrap(), data);
    assert_eq!(fs::metadata(rig.path("mnt/home/noise")).unwrap().permissions().mode() & 0o7777, 0o640);
    assert_eq!(fs::read_link(rig.path("mnt/link")).unwrap().to_str(), Some("text"));
    rig.refused("zfs destroy tank/p", "filesystem has children");
    rig.ok("zfs destroy -r tank/p");
    assert!(!rig.path("mnt/p").exists());
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
    rig.ok("zpool import -d @ tank");
    rig.ok("zpool destroy tank");
    assert_eq!(rig.ok("zpool list"), "no pools available\n");
    rig.refused("zpool import -d @ tank", "no such pool available");
    rig.wait("the daemon's end", || !rig.path("sock").exists());
}

#[test]
fn a_killed_daemon_loses_nothing_that_was_synced() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 256 * MIB);
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    let data = noise(2, 1_500_000);
    let mut file = File::create(rig.path("mnt/kept")).unwrap();
    file.write_all(&data).unwrap();
    file.sync_all().unwrap();
    fs::write(rig.path("mnt/late"), b"perhaps").unwrap();
    kill_process(rig.daemon(), Signal::KILL).unwrap();
    drop(file);
    rig.ok("zpool import -d @ tank");
    assert_eq!(fs::read(rig.path("mnt/kept")).unwrap(), data);
    if let Ok(late) = fs::read(rig.path("mnt/late")) {
        assert!(late.is_empty() || late == b"perhaps");
    }
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

#[test]
fn a_daemon_that_is_told_to_end_exports() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 256 * MIB);
    rig.ok("zpool create -o cachefile=@cache -O mountpoint=@mnt tank @a.img");
    fs::write(rig.path("mnt/file"), b"content").unwrap();
    kill_process(rig.daemon(), Signal::TERM).unwrap();
    rig.wait("the daemon's end", || !rig.path("sock").exists() && !rig.is_mounted("mnt"));
    rig.wait("the release of the image", || rig.run("zpool import -c @cache tank").code == 0);
    assert_eq!(fs::read(rig.path("mnt/file")).unwrap(), b"content");
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

#[test]
fn what_is_in_use_is_let_go_by_force_only() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 256 * MIB);
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    rig.ok("zfs create tank/a");
    let mut file = File::create(rig.path("mnt/a/open")).unwrap();
    file.write_all(b"before").unwrap();
    rig.refused("zfs unmount tank/a", "pool or dataset is busy");
    rig.refused("zpool export tank", "pool or dataset is busy");
    // It is for pools that cannot go on, and tore everything away from those who used this one.
    rig.refused("zpool export -F tank", "pool or dataset is busy");
    rig.refused("zpool destroy tank", "could not unmount datasets");
    rig.refused("zfs destroy tank/a", "dataset is busy");
    rig.ok("zpool export -f tank");
    assert!(!rig.is_mounted("mnt"));
    assert!(file.write_all(b"after").and_then(|()| file.sync_all()).is_err());
    let mut byte = [0];
    assert!(file.read(&mut byte).is_err());
    rig.zdb(&["a.img"]);
    rig.ok("zpool import -d @ tank");
    assert_eq!(fs::read(rig.path("mnt/a/open")).unwrap(), b"before");
    rig.ok("zpool export tank");
}

/// What is mounted below in the tree goes along, wherever it is mounted, or nothing does.
#[test]
fn a_file_system_is_unmounted_with_those_below() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 256 * MIB);
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    rig.ok("zfs create tank/a");
    rig.ok("zfs create -o mountpoint=@own tank/a/own");
    rig.ok("zfs create tank/a/sub");
    rig.ok("zfs create tank/ab");
    let all = ["mnt", "mnt/a", "own", "mnt/a/sub", "mnt/ab"];
    let mounted = || all.map(|place| rig.is_mounted(place));
    let file = File::create(rig.path("mnt/a/sub/open")).unwrap();
    rig.refused("zfs unmount tank/a", "pool or dataset is busy");
    assert_eq!(mounted(), [true; 5], "nothing is half done");
    drop(file);
    rig.ok("zfs unmount tank/a");
    assert_eq!(mounted(), [true, false, false, false, true]);
    rig.ok("zfs mount -a");
    rig.ok("zfs unmount @mnt");
    assert_eq!(mounted(), [false; 5]);
    rig.ok("zfs mount -a");
    rig.ok("zfs unmount -a");
    assert_eq!(mounted(), [false; 5]);
    rig.ok("zpool export tank");
}

#[test]
fn mountpoints_and_options() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 256 * MIB);
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    rig.ok("zfs create tank/a");
    rig.ok("zfs create -o mountpoint=@own tank/a/own");
    rig.ok("zfs create -o canmount=noauto tank/a/late");
    fs::write(rig.path("mnt/a/file"), b"x").unwrap();
    assert!(rig.is_mounted("own") && !rig.is_mounted("mnt/a/late"));
    // Those that inherit move along.
    rig.ok("zfs mount tank/a/late");
    rig.ok("zpool sync tank");
    rig.ok("zfs snapshot tank/a@before");
    rig.ok("zfs set mountpoint=@moved tank/a");
    // The directory that `late` is mounted on is a part of the other one.
    assert_eq!(rig.ok("zfs diff tank/a@before"), "");
    assert!(rig.is_mounted("moved") && rig.is_mounted("moved/late") && rig.is_mounted("own"));
    assert!(!rig.is_mounted("mnt/a") && !rig.path("mnt/a").exists());
    assert_eq!(fs::read(rig.path("moved/file")).unwrap(), b"x");
    rig.ok("zfs inherit mountpoint tank/a");
    assert!(rig.is_mounted("mnt/a") && rig.is_mounted("mnt/a/late"));
    rig.ok("zfs set mountpoint=none tank/a");
    assert!(!rig.is_mounted("mnt/a") && !rig.is_mounted("mnt/a/late"));
    rig.refused("zfs mount tank/a", "no mountpoint set");
    rig.ok("zfs set mountpoint=legacy tank/a");
    rig.refused("zfs mount tank/a", "legacy mountpoint");
    rig.ok("zfs inherit mountpoint tank/a");
    assert!(rig.is_mounted("mnt/a"));
    rig.ok("zfs set canmount=off tank/a");
    assert!(!rig.is_mounted("mnt/a"));
    rig.refused("zfs mount tank/a", "'canmount' property is set to 'off'");
    rig.ok("zfs set canmount=on tank/a");
    rig.ok("zfs mount tank/a");
    // Properties of a mount follow while it stays.
    rig.ok("zfs set readonly=on tank/a");
    assert!(fs::write(rig.path("mnt/a/new"), b"y").is_err());
    rig.ok("zfs set readonly=off exec=off tank/a");
    fs::write(rig.path("mnt/a/new"), b"y").unwrap();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = mounts.lines().find(|line| line.contains(&format!("{} ", rig.text("mnt/a")))).unwrap();
    assert!(line.starts_with("tank/a ") && line.contains("noexec") && line.contains(" rw,"), "{line}");
    rig.ok("zfs unmount tank/a");
    rig.ok("zfs mount -o ro tank/a");
    assert!(fs::write(rig.path("mnt/a/new"), b"z").is_err());
    rig.ok("zpool export tank");
    rig.ok("zpool import -d @ -R @alt -N tank");
    assert!(rig.ok("zfs mount").is_empty());
    rig.ok("zfs mount tank");
    assert!(rig.is_mounted(&format!("alt{}", rig.text("mnt"))));
    rig.ok("zpool export tank");
    rig.ok("zpool import -d @ -o readonly=on tank");
    assert!(fs::write(rig.path("mnt/a/new"), b"z").is_err());
    rig.refused("zfs create tank/b", "read-only");
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

#[test]
fn quotas_hold() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 256 * MIB);
    rig.ok("zpool create -O mountpoint=@mnt -O compression=off tank @a.img");
    rig.ok("zfs create -o quota=10M tank/small");
    let mut file = File::create(rig.path("mnt/small/file")).unwrap();
    let piece = noise(3, 1 << 20);
    let error = (0..40).find_map(|_| file.write_all(&piece).and_then(|()| file.sync_all()).err()).expect("the quota ends it");
    assert_eq!(error.raw_os_error(), Some(libc::EDQUOT), "{error}");
    drop(file);
    rig.ok("zpool sync");
    let used: u64 = rig.get("tank/small", "used").parse().unwrap();
    // What was promised counts until its group is on disk, and then as used; a write is let in while both together are below the
    // quota and 1/32: after eleven of 1 MiB they are not. Besides them: an empty file system (below 100 KiB with all copies) and two
    // copies of one indirect block with 88 pointers (12 KiB).
    assert!(used <= 11 * MIB + MIB / 8 && used > 5 * MIB, "{used}");
    rig.refused("zfs set quota=1M tank/small", "size is less than current used or reserved space");
    rig.refused("zfs set reservation=1T tank/small", "size is greater than available space");
    rig.ok("zfs set quota=none tank/small");
    fs::write(rig.path("mnt/small/more"), &piece).unwrap();
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

#[test]
fn a_mirror_works_with_one_side() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 256 * MIB);
    rig.image("b.img", 256 * MIB);
    rig.ok("zpool create -m @mnt -o ashift=12 tank mirror @a.img @b.img");
    let data = noise(4, 700_000);
    fs::write(rig.path("mnt/file"), &data).unwrap();
    rig.ok("zpool export tank");
    rig.zdb(&["a.img", "b.img"]);
    fs::rename(rig.path("b.img"), rig.path("b.gone")).unwrap();
    fs::create_dir(rig.path("only")).unwrap();
    fs::rename(rig.path("a.img"), rig.path("only/a.img")).unwrap();
    rig.ok("zpool import -d @only tank");
    let status = rig.ok("zpool status");
    assert!(status.contains("state: DEGRADED") && status.contains("UNAVAIL"), "{status}");
    assert!(status.contains(&rig.text("only/a.img")), "{status}");
    assert_eq!(fs::read(rig.path("mnt/file")).unwrap(), data);
    rig.ok("zpool export tank");
}

#[test]
fn what_does_not_exist_is_named() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 256 * MIB);
    rig.refused("zpool status none", "cannot open 'none': no such pool");
    rig.refused("zfs list none/a", "cannot open 'none/a': dataset does not exist");
    rig.ok("zpool create -m none tank @a.img");
    rig.refused("zfs list tank/a", "cannot open 'tank/a': dataset does not exist");
    rig.refused("zfs create tank/a/b", "parent does not exist");
    rig.refused("zfs create tank", "missing dataset name");
    rig.refused("zpool create other @a.img", "is part of active pool 'tank'");
    rig.refused("zfs set nosuch=1 tank", "invalid property 'nosuch'");
    rig.refused("zfs get all tank@none", "dataset does not exist");
    rig.ok("zpool destroy tank");
}

/// Where a dataset is unmounted for a moment, or for good, what is mounted below it comes along. Once it stayed away.
#[test]
fn what_is_mounted_below_comes_back() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 * MIB);
    rig.image("b.img", 128 * MIB);
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    rig.ok("zfs create tank/a");
    rig.ok("zfs create tank/a/b");
    let below = rig.text("mnt/a/below");
    rig.ok(&format!("zfs create -o mountpoint={below} tank/other"));
    let all_are_mounted = || ["mnt", "mnt/a", "mnt/a/b", "mnt/a/below"].iter().for_each(|place| assert!(rig.is_mounted(place), "{place}"));
    fs::write(rig.path("mnt/a/b/file"), "b").unwrap();
    fs::write(rig.path("mnt/a/below/file"), "below").unwrap();
    // Which access lists the kernel obeys is said at the mount.
    rig.ok("zfs set acltype=posix tank");
    all_are_mounted();
    let open = File::open(rig.path("mnt/a/b/file")).unwrap();
    // It was in the daemon's log only that this one goes on as it was.
    let later = |said: &Said, dataset: &str, why: &str| {
        assert!(said.code == 0 && said.err.contains(&format!("acltype of '{dataset}' takes effect when it is mounted anew: ")), "{said:?}");
        assert!(said.err.starts_with("warning: ") && said.err.contains(why), "{said:?}");
    };
    later(&rig.run("zfs set acltype=off tank"), "tank", "busy");
    all_are_mounted();
    drop(open);
    // Those that move, and those that do not.
    rig.ok("zfs set mountpoint=@there tank/a");
    assert!(rig.is_mounted("there") && rig.is_mounted("there/b") && rig.is_mounted("mnt/a/below"));
    rig.ok("zfs unmount tank/other");
    rig.ok("zfs inherit mountpoint tank/a");
    rig.ok("zfs mount tank/other");
    all_are_mounted();
    assert_eq!(fs::read_to_string(rig.path("mnt/a/b/file")).unwrap(), "b");
    rig.ok("zfs rename tank/a tank/x");
    assert!(rig.is_mounted("mnt/x") && rig.is_mounted("mnt/x/b") && rig.is_mounted("mnt/a/below"));
    rig.ok("zfs unmount tank/other");
    rig.ok("zfs rename tank/x tank/a");
    rig.ok("zfs mount tank/other");
    all_are_mounted();
    rig.ok("zfs destroy -r tank/a");
    assert!(rig.is_mounted("mnt/a/below"));
    assert_eq!(fs::read_to_string(rig.path("mnt/a/below/file")).unwrap(), "below");
    // Of another pool.
    let other = rig.text("mnt/pool");
    rig.ok(&format!("zpool create -O mountpoint={other} tonk @b.img"));
    later(&rig.run("zfs set acltype=posix tank"), "tank", "file systems of another pool are mounted in it");
    // Nothing of that is said where something else is set.
    rig.ok("zfs set atime=off tank");
    assert!(rig.is_mounted("mnt") && rig.is_mounted("mnt/pool"));
    rig.ok("zpool export tonk");
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

/// A dataset whose parent was mounted later, over its mount point, was to be unmounted first, which is not possible: neither could be unmounted, nor
/// the pool exported, not even by force.
#[test]
fn a_mount_below_a_later_one_is_no_obstacle() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 << 20);
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    rig.ok("zfs create tank/above");
    rig.ok("zfs create tank/above/below");
    for last in ["zfs unmount tank/above", "zpool export tank", "zpool export -f tank"] {
        rig.ok("zfs unmount tank/above");
        rig.ok("zfs mount tank/above/below");
        fs::write(rig.path("mnt/above/below/file"), last).unwrap();
        rig.ok("zfs mount tank/above");
        fs::remove_dir(rig.path("mnt/above/below")).unwrap();
        rig.ok(last);
        assert!(!rig.is_mounted("mnt/above/below"));
        if last.starts_with("zpool") {
            rig.ok("zpool import -d @ tank");
        } else {
            rig.ok("zfs mount -a");
        }
        assert_eq!(fs::read_to_string(rig.path("mnt/above/below/file")).unwrap(), last);
    }
    rig.ok("zpool export tank");
}

/// A daemon is started by the first command that needs it, in whatever shell that runs. With 1024 descriptors, as most allow, eighty datasets could
/// be mounted; then the next command waited for ever. A limit on the size of files killed it at the first write behind that.
#[test]
fn limits_of_a_shell_are_not_the_daemons() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 << 20);
    let tarn = env!("CARGO_BIN_EXE_tarn");
    let script = format!("ulimit -S -n 100; ulimit -S -f 2000; exec {tarn} zpool create -O compression=off -m {} tank {}", rig.text("mnt"), rig.text("a.img"));
    let status = std::process::Command::new("sh").args(["-c", &script]).env("TARN_SOCKET", rig.path("sock")).status().unwrap();
    assert!(status.success());
    for number in 0..20 {
        rig.ok(&format!("zfs create tank/{number}"));
    }
    fs::write(rig.path("mnt/19/file"), noise(5, 9 << 20)).unwrap();
    rig.ok("zpool sync tank");
    assert_eq!(rig.mounts().len(), 21);
    rig.ok("zpool export tank");
    rig.check("tank");
}

/// A file system that could not be mounted at its new place was left unmounted without a word, and the command had succeeded.
#[test]
fn what_cannot_be_mounted_at_its_new_place_is_said() {
    let Some(rig) = Rig::with_tank("a.img", 128 * MIB, "-O mountpoint=@mnt") else { return };
    rig.ok("zfs create tank/a");
    rig.ok("zfs create tank/a/b");
    let are_mounted = |places: [&str; 2]| places.iter().all(|place| rig.is_mounted(place));
    fs::write(rig.path("file"), "in the way").unwrap();
    let said = rig.run("zfs set mountpoint=@file tank/a");
    assert!(said.code == 255 && said.err.starts_with("cannot mount 'tank/a': ") && said.err.contains("\ncannot mount 'tank/a/b': "), "{said:?}");
    assert!(said.err.ends_with("\nproperty may be set but unable to remount filesystem 'tank/a'\n"), "{said:?}");
    assert_eq!(said.err.lines().count(), 3, "each once: {said:?}");
    assert_eq!((rig.get("tank/a", "mountpoint"), rig.get("tank/a", "mounted")), (rig.text("file"), "no".to_owned()));
    rig.ok("zfs inherit mountpoint tank/a");
    assert!(are_mounted(["mnt/a", "mnt/a/b"]));

    rig.ok("zfs set mountpoint=@there tank/a");
    fs::write(rig.path("mnt/a"), "in the way").unwrap();
    let said = rig.run("zfs inherit mountpoint tank/a");
    assert!(said.code == 1 && said.err.starts_with("cannot mount 'tank/a': ") && !said.err.contains("cannot inherit"), "{said:?}");
    fs::remove_file(rig.path("mnt/a")).unwrap();
    rig.ok("zfs mount -a");
    assert!(are_mounted(["mnt/a", "mnt/a/b"]));

    fs::write(rig.path("mnt/x"), "in the way").unwrap();
    let said = rig.run("zfs rename tank/a tank/x");
    assert!(said.code == 1 && said.err.starts_with("cannot mount 'tank/x': ") && said.err.contains("\ncannot mount 'tank/x/b': "), "{said:?}");
    assert_eq!(rig.get("tank/x/b", "mounted"), "no");
    fs::remove_file(rig.path("mnt/x")).unwrap();
    rig.ok("zfs mount -a");
    assert!(are_mounted(["mnt/x", "mnt/x/b"]));
    rig.finish("tank", &["a.img"]);
}

/// What lies in a file system that could not be mounted was mounted nevertheless, and hidden when that one was mounted later.
#[test]
fn nothing_is_mounted_in_what_could_not_be() {
    let Some(rig) = Rig::with_tank("a.img", 128 * MIB, "-O mountpoint=@mnt") else { return };
    rig.ok("zfs create -o overlay=off tank/a");
    for name in ["tank/a/b", "tank/a/b/c", "tank/d"] {
        rig.ok(&format!("zfs create {name}"));
    }
    for name in ["tank/a/b/c", "tank/a/b", "tank/a", "tank/d"] {
        rig.ok(&format!("zfs unmount {name}"));
    }
    fs::create_dir_all(rig.path("mnt/a")).unwrap();
    fs::write(rig.path("mnt/a/in-the-way"), "").unwrap();
    let said = rig.run("zfs mount -a");
    let place = rig.text("mnt/a");
    assert!(said.code == 1 && said.err.contains(&format!("cannot mount '{place}': directory is not empty\n")), "{said:?}");
    for name in ["tank/a/b", "tank/a/b/c"] {
        assert!(said.err.contains(&format!("cannot mount '{name}': it lies in {place}, whose own file system could not be mounted\n")), "{said:?}");
        assert_eq!(rig.get(name, "mounted"), "no", "{name}");
    }
    assert!(rig.is_mounted("mnt/d"), "it lies elsewhere");
    fs::remove_file(rig.path("mnt/a/in-the-way")).unwrap();
    rig.ok("zfs mount -a");
    fs::write(rig.path("mnt/a/b/c/file"), "seen").unwrap();
    assert!(["mnt/a", "mnt/a/b", "mnt/a/b/c"].iter().all(|place| rig.is_mounted(place)));
    rig.finish("tank", &["a.img"]);
}

/// With a letter for keys nothing was mounted or unmounted, although nothing was encrypted.
#[test]
fn letters_for_keys_do_not_matter_to_what_has_none() {
    let Some(rig) = Rig::with_tank("a.img", 128 * MIB, "-O mountpoint=@mnt") else { return };
    rig.ok("zfs create tank/a");
    let mounted = || ["mnt", "mnt/a"].map(|place| rig.is_mounted(place));
    rig.ok("zfs unmount -u tank/a");
    assert_eq!(mounted(), [true, false]);
    rig.ok("zfs mount -l tank/a");
    rig.ok("zfs mount -l -o remount tank/a");
    assert_eq!(mounted(), [true, true]);
    rig.ok("zfs unmount -au");
    assert_eq!(mounted(), [false, false]);
    rig.ok("zfs mount -al");
    assert_eq!(mounted(), [true, true]);
    rig.ok("zpool export tank");
    rig.ok("zpool import -l -d @ tank");
    assert_eq!(mounted(), [true, true]);
    rig.finish("tank", &["a.img"]);
}

/// The ancestors that `-p` made were not mounted if what it was for could not be made, nor later.
#[test]
fn ancestors_are_mounted_whatever_becomes_of_what_they_are_for() {
    let Some(rig) = Rig::with_tank("a.img", 64 << 20, "-O mountpoint=@mnt") else { return };
    rig.ok("zfs create tank/a");
    rig.ok("zfs snapshot tank/a@s");
    for (verb, ancestor) in [("create -p -o refreservation=10T", "x"), ("clone -p -o refreservation=10T tank/a@s", "c")] {
        rig.refused(&format!("zfs {verb} tank/{ancestor}/y"), &format!("cannot create 'tank/{ancestor}/y'"));
        assert_eq!(rig.get(&format!("tank/{ancestor}"), "mounted"), "yes");
        assert!(rig.is_mounted(&format!("mnt/{ancestor}")));
    }
    rig.ok("zfs create -p tank/x/y");
    assert!(rig.is_mounted("mnt/x/y"));
    rig.finish("tank", &["a.img"]);
}
