//! Verbs that look after pools, on real daemons: history, counters, renames, imports of every kind, files without a mount.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use rustix::process::{Signal, kill_process};

use crate::rig::{LIMIT, Rig, Said, run_for};

const MIB: u64 = 1 << 20;

/// Runs `tarn` on another host.
#[track_caller]
fn elsewhere(rig: &Rig, host_id: &str, socket: &str, words: &str) -> Said {
    let mut command = rig.command(words);
    command.env("TARN_HOSTID", host_id).env("TARN_SOCKET", rig.path(socket));
    run_for(&mut command, LIMIT).unwrap_or_else(|| panic!("tarn {words} hangs"))
}

#[test]
fn a_pool_remembers_what_was_done_to_it() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 * MIB);
    rig.ok("zpool create -O mountpoint=@mnt -o comment=first tank @a.img");
    rig.ok("zfs create tank/a");
    rig.ok("zfs set compression=zstd tank/a");
    rig.refused("zfs set quota=1 tank/a", "size is less than current");
    rig.ok("zfs list tank");
    rig.ok("zpool sync tank");
    let history = rig.ok("zpool history tank");
    let commands: Vec<&str> = history.lines().skip(1).filter_map(|line| line.split_once(' ').map(|(_, words)| words)).collect();
    let create = format!("zpool create -O mountpoint={} -o comment=first tank {}", rig.text("mnt"), rig.text("a.img"));
    assert!(history.starts_with("History for 'tank':\n") && history.ends_with("\n\n"), "{history}");
    assert_eq!(commands, [create.as_str(), "zfs create tank/a", "zfs set compression=zstd tank/a"], "{history}");
    let long = rig.ok("zpool history -il tank");
    assert!(long.contains("] create tank/a (") && long.contains("[user 0 (root) on "), "{long}");
    rig.ok("zpool export tank");
    // The export itself is the last line, and the real zdb reads all of it.
    rig.ok("zpool import -d @ -N tank");
    assert!(rig.ok("zpool history").contains(" zpool export tank\n"));
    rig.ok("zpool sync");
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
    // Details were under a name of our own: `zdb -h` and `zpool history -i` of OpenZFS aborted.
    let ours = run_for(rig.command("zdb -e -p @ -h tank").env("TZ", "UTC"), LIMIT).expect("zdb ends").out;
    assert!(ours.contains("zfs create tank/a") && ours.contains("set compression="), "{ours}");
    if let Some(real) = sim::oracle::zdb_text(&rig.path("."), &["-h", "tank"]) {
        assert_eq!(ours, real);
    }
}

#[test]
fn counters_and_events() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 * MIB);
    rig.image("b.img", 128 * MIB);
    rig.ok("zpool create -O mountpoint=@mnt -O compression=off tank mirror @a.img @b.img");
    fs::write(rig.path("mnt/file"), vec![7; 8 << 20]).unwrap();
    rig.ok("zpool sync tank");
    let table = rig.ok("zpool iostat -v tank");
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].contains("capacity     operations     bandwidth"), "{table}");
    assert!(lines[1].starts_with("pool ") && lines[1].ends_with("alloc   free   read  write   read  write"), "{table}");
    let exact = rig.ok("zpool iostat -Hpv tank");
    let rows: Vec<Vec<&str>> = exact.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(rows.iter().map(|row| row[0].rsplit('/').next().unwrap()).collect::<Vec<_>>(), ["tank", "mirror-0", "a.img", "b.img"], "{exact}");
    assert!(rows.iter().all(|row| row.len() == 7), "{exact}");
    let number = |row: usize, column: usize| rows[row][column].parse::<u64>().unwrap();
    assert!(number(1, 1) > 8 << 20, "allocated: {exact}");
    assert!(number(2, 4) > 0 && number(0, 6) >= number(2, 6), "writes: {exact}");
    let twice = rig.ok("zpool iostat -y -H tank 0.2 2");
    assert_eq!(twice.lines().count(), 2, "{twice}");
    assert!(rig.ok("zpool events").contains("sysevent.fs.zfs.pool_create"));
    assert!(rig.ok("zpool events -v tank").contains("        pool = \"tank\"\n"));
    rig.ok("zpool clear tank");
    rig.refused("zpool clear tank nothing", "no such device in pool");
    rig.ok("zpool wait tank");
    rig.ok("zpool events -c");
    assert!(rig.ok("zpool upgrade -v").contains("lz4_compress"));
    assert!(rig.ok("zpool upgrade tank").contains("already has all supported"));
}

#[test]
fn datasets_are_renamed_where_they_are_mounted() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 * MIB);
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    for name in ["a", "a/b", "d"] {
        rig.ok(&format!("zfs create tank/{name}"));
    }
    fs::write(rig.path("mnt/a/b/file"), b"kept").unwrap();
    let open = fs::File::open(rig.path("mnt/a/b/file")).unwrap();
    rig.refused("zfs rename tank/a tank/x", "busy");
    assert!(rig.is_mounted("mnt/a/b"), "what could not be renamed is mounted again");
    drop(open);
    rig.ok("zfs rename tank/a tank/x");
    assert_eq!(fs::read(rig.path("mnt/x/b/file")).unwrap(), b"kept");
    assert!(!rig.path("mnt/a").exists());
    rig.ok("zfs rename -p tank/x/b tank/p/q/r");
    assert_eq!(fs::read(rig.path("mnt/p/q/r/file")).unwrap(), b"kept");
    rig.refused("zfs rename tank/x tank/d", "dataset already exists");
    rig.refused("zfs rename tank/x tank/none/y", "parent does not exist");
    rig.refused("zfs rename tank/p tank/p/z", "cannot be a descendant");
    rig.refused("zfs rename tank/x other/x", "within same pool");
    rig.refused("zfs rename tank tonk/x", "cannot rename");
    assert_eq!(rig.ok("zfs list -H -o name"), "tank\ntank/d\ntank/p\ntank/p/q\ntank/p/q/r\ntank/x\n");
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
    rig.check("tank");
}

/// `-u` was refused for what is mounted, and what `mount` had mounted was unmounted for good.
#[test]
fn datasets_stay_mounted_while_they_are_renamed() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 * MIB);
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    rig.ok("zfs create tank/a");
    rig.ok("zfs create tank/a/b");
    fs::write(rig.path("mnt/a/b/file"), b"kept").unwrap();
    let open = fs::File::options().append(true).open(rig.path("mnt/a/b/file")).unwrap();
    rig.ok("zfs rename -u tank/a tank/x");
    (&open).write_all(b" on").unwrap();
    drop(open);
    assert_eq!(fs::read(rig.path("mnt/a/b/file")).unwrap(), b"kept on");
    assert_eq!((rig.get("tank/x/b", "mounted"), rig.get("tank/x/b", "mountpoint")), ("yes".to_owned(), rig.text("mnt/x/b")));
    assert!(rig.ok("zfs mount").lines().any(|line| line.starts_with("tank/x/b ") && line.ends_with(&rig.text("mnt/a/b"))));
    // It follows its properties under the new name, and the next mount is where it belongs.
    rig.ok("zfs set readonly=on tank/x");
    fs::write(rig.path("mnt/a/new"), b"").unwrap_err();
    rig.ok("zfs inherit readonly tank/x");
    rig.ok("zfs unmount tank/x");
    rig.ok("zfs mount -a");
    assert_eq!(fs::read(rig.path("mnt/x/b/file")).unwrap(), b"kept on");

    rig.ok("zfs create -o mountpoint=legacy tank/old");
    fs::create_dir(rig.path("old")).unwrap();
    rig.ok("mount tank/old @old");
    let open = fs::File::create(rig.path("old/file")).unwrap();
    rig.ok("zfs rename tank/old tank/x/new");
    (&open).write_all(b"legacy").unwrap();
    assert!(rig.is_mounted("old") && rig.get("tank/x/new", "mounted") == "yes");
    drop(open);
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

#[test]
fn space_by_owner() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 * MIB);
    rig.ok("zpool create -O mountpoint=@mnt -O compression=off tank @a.img");
    fs::write(rig.path("mnt/mine"), vec![1; 1 << 20]).unwrap();
    fs::write(rig.path("mnt/theirs"), vec![2; 2 << 20]).unwrap();
    std::os::unix::fs::chown(rig.path("mnt/theirs"), Some(54321), Some(0)).unwrap();
    rig.ok("zpool sync tank");
    let table = rig.ok("zfs userspace -Hp -o name,used,objused tank");
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split('\t').collect()).collect();
    let of = |name: &str| rows.iter().find(|row| row[0] == name).unwrap_or_else(|| panic!("{name}: {table}"));
    assert!(of("54321")[1].parse::<u64>().unwrap() >= 2 << 20 && of("54321")[2] == "1", "{table}");
    assert!(of("root")[1].parse::<u64>().unwrap() >= 1 << 20, "{table}");
    let numbers = rig.ok("zfs userspace -n tank");
    let lines: Vec<&str> = numbers.lines().collect();
    assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), ["TYPE", "NAME", "USED", "QUOTA", "OBJUSED", "OBJQUOTA"]);
    assert!(lines[1].starts_with("POSIX User  0 ") && lines[2].starts_with("POSIX User  54321  "), "{numbers}");
    assert_eq!(lines[0].len(), lines[1].len(), "columns stand under each other: {numbers}");
    assert!(rig.ok("zfs groupspace tank").contains("POSIX Group"));
    assert!(rig.ok("zfs projectspace tank").contains("Project"));
}

/// Nobody was asked whether the ext4 on a device may go.
#[test]
fn a_device_with_a_file_system_is_taken_by_force_only() {
    let Some(rig) = Rig::new() else { return };
    rig.image("disk", 128 * MIB);
    let run = |program: &str, words: &[&str]| Command::new(program).args(words).output().ok().filter(|output| output.status.success());
    if run("blkid", &["-V"]).is_none() || run("mkfs.ext4", &["-q", "-F", &rig.text("disk")]).is_none() {
        return sim::places::skipped("a device with a file system: blkid or mkfs.ext4 is missing");
    }
    let Some(made) = run("losetup", &["--find", "--show", &rig.text("disk")]) else {
        return sim::places::skipped("a device with a file system: no loop device");
    };
    let device = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    rig.refused(&format!("zpool create -m none tank {device}"), &format!("{device} contains a filesystem of type 'ext4'"));
    rig.refused(&format!("zpool create -n -m none tank {device}"), "use '-f' to override");
    assert!(run("e2fsck", &["-fn", &device]).is_some(), "it was touched");
    rig.ok(&format!("zpool create -f -m none tank {device}"));
    rig.ok("zpool destroy tank");
    // The pool is gone, but the beginning of the ext4 is still there. That `blkid` cannot tell which of them is in use counted as an empty device.
    rig.refused(&format!("zpool create -m none again {device}"), &format!("{device} contains several signatures"));
    rig.ok(&format!("zpool create -f -m none again {device}"));
    rig.ok("zpool export again");
    assert!(run("losetup", &["--detach", &device]).is_some());
}

#[test]
fn labels_are_cleared_only_when_nobody_needs_them() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 * MIB);
    rig.ok("zpool create -O mountpoint=none tank @a.img");
    rig.refused("zpool labelclear -f @a.img", "is a member (ACTIVE) of pool \"tank\"");
    rig.ok("zpool export tank");
    rig.refused("zpool labelclear @a.img", "is a member of exported pool \"tank\"");
    rig.ok("zpool labelclear -f @a.img");
    rig.refused("zpool labelclear -f @a.img", "failed to clear label");
    rig.refused("zpool labelclear @none", "failed to open");
    assert!(rig.run("zpool import -d @").err.contains("no pools available to import"));
}

#[test]
fn pools_are_found_by_guid_cache_file_and_after_a_change_of_guid() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 * MIB);
    rig.ok("zpool create -O mountpoint=none -o cachefile=@cache tank @a.img");
    let guid = rig.ok("zpool get -H -o value guid tank").trim().to_owned();
    rig.ok("zpool reguid tank");
    let new = rig.ok("zpool get -H -o value guid tank").trim().to_owned();
    assert_ne!(guid, new);
    rig.refused("zpool reguid -g 0 tank", "cannot reguid 'tank': guid 0 cannot be used");
    // As after a crash: the file still names the pool.
    kill_process(rig.daemon(), Signal::KILL).unwrap();
    rig.wait("the daemon's death", || rig.find_daemon().is_none());
    rig.ok("zpool import -c @cache -o cachefile=@cache -N tank");
    rig.ok("zpool export tank");
    assert!(!rig.path("cache").exists(), "an exported pool leaves the file");
    rig.refused(&format!("zpool import -d @ {guid}"), "no such pool available");
    rig.ok(&format!("zpool import -d @a.img -N {new} lake"));
    assert_eq!(rig.ok("zpool list -H -o name"), "lake\n");
    rig.ok("zpool export lake");
    rig.refused("zpool import -c @a.img lake", "invalid or corrupt cache file");
    rig.zdb(&["a.img"]);
}

#[test]
fn going_back_in_time_is_said_and_done() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 * MIB);
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    fs::write(rig.path("mnt/old"), b"old").unwrap();
    rig.ok("zpool sync tank");
    rig.ok("zpool export tank");
    let txg = |rig: &Rig| {
        let text = rig.ok("zdb -e -p @ -u tank");
        text.lines().find_map(|line| line.trim().strip_prefix("txg = ")).unwrap().parse::<u64>().unwrap()
    };
    let before = txg(&rig);
    rig.ok("zpool import -d @ tank");
    fs::write(rig.path("mnt/new"), b"new").unwrap();
    rig.ok("zpool export tank");
    assert!(rig.ok("zpool import -d @ -F -n tank").contains("nothing would be discarded"));
    assert_eq!(rig.ok("zpool list"), "no pools available\n");
    let said = rig.ok(&format!("zpool import -d @ -o readonly=on -T {before} tank"));
    assert!(said.contains("returned to its state as of"), "{said}");
    assert_eq!((rig.path("mnt/old").exists(), rig.path("mnt/new").exists()), (true, false));
    rig.ok("zpool export tank");
    for look in ["-o readonly=on ", ""] {
        rig.refused(&format!("zpool import -d @ {look}-T 1 tank"), "no state as old as that");
    }
    // Nothing was written: the newest state is still there. Then it is given up for good.
    rig.ok("zpool import -d @ tank");
    assert!(rig.path("mnt/new").exists());
    rig.ok("zpool export tank");
    let latest = txg(&rig);
    // As in OpenZFS, -T means -FX; it was refused without -F.
    let said = rig.ok(&format!("zpool import -d @ -T {} tank", latest - 1));
    assert!(said.contains("returned to its state as of"), "{said}");
    rig.ok("zpool export tank");
    assert!(txg(&rig) > latest, "no number of a group is used twice");
    rig.zdb(&["a.img"]);
    rig.check("tank");
}

/// The side of a mirror that was away is a pool of its own, as old as it is. One that cannot be read was to be destroyed, though the other side was only not there.
#[test]
fn one_side_of_a_mirror_is_imported_as_it_is_or_the_other_is_asked_for() {
    let Some(rig) = Rig::new() else { return };
    for name in ["a.img", "b.img"] {
        rig.image(name, 128 * MIB);
    }
    rig.ok("zpool create -O mountpoint=@mnt tank mirror @a.img @b.img");
    fs::write(rig.path("mnt/old"), b"old").unwrap();
    rig.ok("zpool export tank");
    fs::create_dir(rig.path("apart")).unwrap();
    fs::rename(rig.path("b.img"), rig.path("apart/b.img")).unwrap();
    rig.ok("zpool import -d @ tank");
    (0..4).for_each(|_| drop(rig.ok("zpool sync tank")));
    fs::write(rig.path("mnt/new"), b"new").unwrap();
    rig.ok("zpool export tank");
    fs::rename(rig.path("a.img"), rig.path("apart/a.img")).unwrap();
    fs::rename(rig.path("apart/b.img"), rig.path("b.img")).unwrap();
    // As OpenZFS does.
    rig.ok("zpool import -d @b.img -o readonly=on tank");
    assert!(rig.ok("zpool status tank").contains("DEGRADED"));
    assert_eq!((rig.path("mnt/old").exists(), rig.path("mnt/new").exists()), (true, false));
    rig.ok("zpool export tank");
    fs::OpenOptions::new().write(true).open(rig.path("b.img")).unwrap().write_all_at(&vec![0; 120 << 20], 4 << 20).unwrap();
    let said = rig.run("zpool import -d @b.img tank");
    assert!(said.code != 0 && said.err.contains("bring it back") && said.err.contains(&rig.text("a.img")), "{said:?}");
    assert!(!said.out.contains("Destroy and re-create"), "{said:?}");
    fs::rename(rig.path("apart/a.img"), rig.path("a.img")).unwrap();
    rig.ok("zpool import -d @a.img tank");
    assert!(rig.path("mnt/old").exists() && rig.path("mnt/new").exists());
    rig.ok("zpool export tank");
}

#[test]
fn two_hosts_cannot_have_one_pool() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 * MIB);
    let here = |words: &str| elsewhere(&rig, "aaaa0001", "sock", words);
    let done = |said: Said| assert!(said.code == 0 && said.err.is_empty(), "{said:?}\n{}", rig.log());
    done(here("zpool create -O mountpoint=none tank @a.img"));
    // The same system, another daemon: the devices are locked.
    let said = elsewhere(&rig, "aaaa0001", "sock2", "zpool import -d @ -f tank");
    assert!(said.code != 0 && said.err.contains("in use"), "{said:?}");
    kill_process(rig.daemon(), Signal::KILL).unwrap();
    rig.wait("the daemon's death", || rig.find_daemon().is_none());
    let said = elsewhere(&rig, "bbbb0002", "sock", "zpool import -d @ tank");
    assert!(said.err.contains("pool was previously in use from another system.\nLast accessed by ") && said.err.contains("(hostid=aaaa0001)"), "{said:?}");
    done(elsewhere(&rig, "bbbb0002", "sock", "zpool import -d @ -f tank"));
    done(elsewhere(&rig, "bbbb0002", "sock", "zpool export tank"));
    rig.zdb(&["a.img"]);
    // Without an id nobody could tell the hosts apart.
    let said = elsewhere(&rig, "0", "sock3", "zpool import -d @ -f -N tank");
    assert_eq!(said.code, 0, "{said:?}");
    let said = elsewhere(&rig, "0", "sock3", "zpool set multihost=on tank");
    assert!(said.err.contains("requires a non-zero system hostid"), "{said:?}");
    done(elsewhere(&rig, "0", "sock3", "zpool export tank"));
}

/// Takes half a minute, which is what watching a pool takes.
#[test]
#[ignore = "takes more than 40 s"]
fn multihost_protection_sees_a_heartbeat() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 * MIB);
    let here = |words: &str| elsewhere(&rig, "aaaa0001", "sock", words);
    let done = |said: Said| assert!(said.code == 0 && said.err.is_empty(), "{said:?}\n{}", rig.log());
    done(here("zpool create -O mountpoint=none -o multihost=on tank @a.img"));
    std::thread::sleep(std::time::Duration::from_secs(3));
    let uberblocks = rig.ok("zdb -luuuu @a.img");
    assert!(uberblocks.contains("mmp_write = 1000") && uberblocks.contains("mmp_fail = 10"), "{uberblocks}");
    // A copy of the image is what another host would see; somebody goes on writing there.
    kill_process(rig.daemon(), Signal::STOP).unwrap();
    fs::copy(rig.path("a.img"), rig.path("copy.img")).unwrap();
    kill_process(rig.daemon(), Signal::CONT).unwrap();
    let begin = std::time::Instant::now();
    let said = elsewhere(&rig, "bbbb0002", "sock2", "zpool import -d @copy.img -f tank");
    assert!(said.code == 0, "nobody writes to the copy: {said:?}");
    assert!(begin.elapsed().as_secs() >= 20, "the pool was watched");
    done(elsewhere(&rig, "bbbb0002", "sock2", "zpool export tank"));
    let said = elsewhere(&rig, "0", "sock3", "zpool import -d @copy.img -f tank");
    assert!(said.err.contains("hostid is not set"), "{said:?}");
    done(here("zpool export tank"));
    rig.zdb(&["a.img"]);
    rig.zdb(&["copy.img"]);
}

#[test]
fn files_without_a_mount() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 * MIB);
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    rig.ok("zfs create tank/home");
    let tree = rig.path("tree");
    fs::create_dir_all(tree.join("sub/empty")).unwrap();
    fs::write(tree.join("sub/data"), (0..300_000u32).flat_map(u32::to_le_bytes).collect::<Vec<u8>>()).unwrap();
    fs::write(tree.join("hole"), vec![0; 5 << 20]).unwrap();
    fs::set_permissions(tree.join("hole"), fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("sub/data", tree.join("link")).unwrap();
    // Through the mount of the daemon that has the pool.
    rig.ok("fs cp -a @tree tank/home:/");
    assert_eq!(rig.ok("fs ls tank/home:/"), "tree\n");
    rig.refused("fs ls tank/none:/", "dataset does not exist");
    // And where it is mounted nowhere, as long as that takes.
    rig.ok("zfs create -o mountpoint=none tank/nowhere");
    rig.ok("fs cp -a @tree tank/nowhere:/");
    assert_eq!(rig.ok("fs find tank/nowhere:/tree/sub"), "/tree/sub\n/tree/sub/data\n/tree/sub/empty\n");
    rig.ok("fs cp tank/nowhere:/tree/sub/data tank/home:/data");
    assert_eq!((rig.get("tank/nowhere", "mounted"), rig.mounts().len()), ("no".to_owned(), 2));
    rig.ok("zpool export tank");

    // Without anybody.
    assert_eq!(rig.ok("fs ls -d @ tank/home:/tree"), "hole\nlink\nsub\n");
    let long = rig.ok("fs ls -l -d @ tank/home:/tree");
    assert!(long.contains("-rw-r----- 1 root root 5242880 ") && long.contains(" link -> sub/data\n"), "{long}");
    assert_eq!(rig.ok("fs find -d @ tank/home:/tree/sub"), "/tree/sub\n/tree/sub/data\n/tree/sub/empty\n");
    assert!(rig.ok("fs stat -d @ tank/home:/tree/hole").contains("Size: 5242880 "));
    let same = |a: &Path, b: &Path| assert!(Command::new("diff").arg("-r").arg(a).arg(b).status().unwrap().success());
    rig.ok("fs cp -a -d @ tank/home:/tree @out");
    same(&tree, &rig.path("out"));
    assert_eq!(fs::metadata(rig.path("out/hole")).unwrap().permissions().mode() & 0o777, 0o640);
    rig.ok("fs cp -r -d @ @tree tank:/again");
    rig.ok("fs cp -r -d @ tank:/again/sub @out2");
    same(&tree.join("sub"), &rig.path("out2"));
    assert_eq!(rig.ok("fs cat -d @ tank:/again/sub/../hole").len(), 5 << 20);

    rig.refused("fs ls -d @ tank/none:/", "dataset does not exist");
    rig.refused("fs ls -d @ tank:/none", "No such file or directory");
    rig.refused("fs cp -d @ tank/home:/tree @out3", "-r not specified");
    rig.refused("fs ls -d @ tonk:/", "cannot open pool 'tonk'");
    rig.refused("fs cp @out/hole tank@now:/x", "a snapshot cannot be changed");

    // A file copied onto itself was emptied, and a directory into itself copied until the pool was full.
    rig.refused("fs cp -d @ tank:/again/hole tank:/again/hole", "are the same file");
    rig.refused("fs cp -d @ tank:/again/hole tank:/again", "are the same file");
    rig.refused("fs cp @out/hole @out/sub/../hole", "are the same file");
    assert_eq!((rig.ok("fs cat -d @ tank:/again/hole").len(), fs::metadata(rig.path("out/hole")).unwrap().len()), (5 << 20, 5 << 20));
    rig.refused("fs cp -r -d @ tank:/again tank:/again/sub/within", "cannot copy a directory into itself");
    rig.refused("fs cp -r @tree @tree/within", "cannot copy a directory into itself");
    assert!(!rig.ok("fs find -d @ tank:/again").contains("within/sub/within"));

    // Of a sparse file the holes were read, too: of this one for days.
    let sparse = fs::File::create_new(rig.path("tree/sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"end", 1 << 43).unwrap();
    fs::hard_link(rig.path("tree/sparse"), rig.path("tree/twin")).unwrap();
    rig.ok("fs cp -a -d @ @tree tank:/sparse");
    rig.ok("fs cp -a -d @ tank:/sparse @sparse");
    // What has two names has them in the copy of `-a`, too.
    let copies = ["sparse", "twin"].map(|name| fs::metadata(rig.path("sparse").join(name)).unwrap());
    assert!(copies[0].len() == (1 << 43) + 3 && copies[0].ino() == copies[1].ino(), "{copies:?}");
    rig.ok("fs cp -a -d @ @tree/sparse @tree/twin tank:/sparse");
    assert!(rig.ok("fs stat -d @ tank:/sparse/twin").contains("Links: 2"));
    let mut end = [0; 3];
    std::os::unix::fs::FileExt::read_exact_at(&fs::File::open(rig.path("sparse/twin")).unwrap(), &mut end, 1 << 43).unwrap();
    assert_eq!(&end, b"end");

    // Pipes and devices are copied as what they are.
    rustix::fs::mknodat(rustix::fs::CWD, rig.path("tree/pipe"), rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600), 0).unwrap();
    let null = rustix::fs::makedev(1, 3);
    rustix::fs::mknodat(rustix::fs::CWD, rig.path("tree/null"), rustix::fs::FileType::CharacterDevice, rustix::fs::Mode::from_raw_mode(0o666), null).unwrap();
    rig.refused("fs cp -d @ @tree/pipe tank:/pipe", "is no regular file");
    rig.ok("fs cp -a -d @ @tree/pipe @tree/null tank:/again");
    rig.ok("fs cp -a -d @ tank:/again/pipe tank:/again/null @out");
    let copied = |name: &str| fs::symlink_metadata(rig.path("out").join(name)).unwrap();
    assert!(copied("pipe").file_type().is_fifo() && copied("null").file_type().is_char_device() && copied("null").rdev() == null);
    rig.zdb(&["a.img"]);
    rig.check("tank");
}

/// A file system in memory, of a size that can be changed; gone with this.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn mount(path: &Path, mebibytes: u64) -> SmallDisk {
        let options = std::ffi::CString::new(format!("size={mebibytes}m")).unwrap();
        rustix::mount::mount("tmpfs", path, "tmpfs", rustix::mount::MountFlags::empty(), options.as_c_str()).unwrap();
        SmallDisk(path.to_owned())
    }

    fn grow(&self, mebibytes: u64) {
        let status = Command::new("mount").args(["-o", &format!("remount,size={mebibytes}m")]).arg(&self.0).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn a_pool_that_cannot_be_written_waits_to_be_repaired() {
    for mode in ["wait", "continue"] {
        let Some(rig) = Rig::new() else { return };
        fs::create_dir(rig.path("small")).unwrap();
        let small = SmallDisk::mount(&rig.path("small"), 20);
        fs::File::create_new(rig.path("small/a.img")).unwrap().set_len(256 * MIB).unwrap();
        rig.ok(&format!("zpool create -o failmode={mode} -O mountpoint=@mnt -O compression=off tank @small/a.img"));
        // More than the disk takes, and little enough to be accepted whole before the first transaction group meets its end.
        let data: Vec<u8> = (0..6_000_000u32).flat_map(|word| word.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        let (path, written) = (rig.path("mnt/file"), data.clone());
        let writer = std::thread::spawn(move || {
            use std::io::Write;
            let mut file = fs::File::create(path)?;
            file.write_all(&written)?;
            file.sync_all()
        });
        rig.wait("the pool's suspension", || rig.run("zpool list -H -o health tank").out == "SUSPENDED\n");
        rig.refused("zpool export tank", "suspended");
        rig.refused("zpool destroy tank", "suspended");
        rig.refused("zfs create tank/x", "suspended");
        if mode == "continue" {
            let refused = fs::write(rig.path("mnt/other"), b"new");
            assert!(refused.is_err(), "a new write fails at once");
        }
        // Still no room: it waits again.
        rig.run("zpool clear tank");
        rig.wait("the pool's suspension", || rig.run("zpool list -H -o health tank").out == "SUSPENDED\n");
        assert!(!writer.is_finished(), "what was accepted waits");
        small.grow(200);
        rig.ok("zpool clear tank");
        writer.join().unwrap().unwrap();
        rig.ok("zfs list tank");
        assert_eq!(fs::read(rig.path("mnt/file")).unwrap(), data);
        rig.ok("zpool export tank");
        rig.check_in("small", "tank");
        rig.zdb(&["small/a.img"]);
    }
}

/// `cachefile=/dev/null` made a file of the machine's device, and removed it with the export. A FIFO given as a cache file was waited for,
/// and `/dev/zero` read to its end.
#[test]
fn a_cache_file_is_a_file() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 * MIB);
    let make = |name: &str, kind, device| rustix::fs::mknodat(rustix::fs::CWD, rig.path(name), kind, rustix::fs::Mode::from_raw_mode(0o666), device).unwrap();
    make("null", rustix::fs::FileType::CharacterDevice, rustix::fs::makedev(1, 3));
    make("zero", rustix::fs::FileType::CharacterDevice, rustix::fs::makedev(1, 5));
    make("fifo", rustix::fs::FileType::Fifo, 0);
    rig.ok("zpool create -o cachefile=@null -O mountpoint=none tank @a.img");
    rig.ok("zpool set cachefile=@fifo tank");
    rig.ok("zpool export tank");
    let kind = |name: &str| fs::symlink_metadata(rig.path(name)).unwrap().file_type();
    assert!(kind("null").is_char_device() && kind("fifo").is_fifo());
    for name in ["fifo", "zero", "null"] {
        rig.refused(&format!("zpool import -c @{name} tank"), "invalid or missing cache file");
    }
}
