//! Mounts that are not where, or not whose, one thinks: others lie on ours, ours stand in several places and in other mount namespaces.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};

use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};

use crate::rig::{LIMIT, Rig, has_program, wait_for};

const MIB: u64 = 1 << 20;

/// A pool at `mnt` with a dataset `a`.
fn pool() -> Option<Rig> {
    let rig = Rig::new()?;
    rig.image("a.img", 128 * MIB);
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    rig.ok("zfs create tank/a");
    Some(rig)
}

/// What the kernel says of mounts of a type at a place: their options.
fn options(rig: &Rig, place: &str, kind: &str) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let place = rig.text(place);
    let of = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let dash = words.iter().position(|word| *word == "-")?;
        (words[4] == place && words[dash + 1].replace("fuseblk.", "fuse.") == kind).then(|| words[5].to_owned())
    };
    table.lines().filter_map(of).collect()
}

fn has(options: &str, wanted: &[&str]) -> bool {
    wanted.iter().all(|word| options.split(',').any(|option| option == *word))
}

/// A file system of somebody else on a directory of ours; gone with this.
struct Foreign(std::path::PathBuf);

impl Foreign {
    fn on(rig: &Rig, name: &str) -> Foreign {
        mount("foreign", rig.path(name), "tmpfs", MountFlags::empty(), Some(c"size=1m")).unwrap();
        Foreign(rig.path(name))
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// A process with a mount namespace of its own.
struct Elsewhere(Child);

impl Elsewhere {
    /// It is in a directory there.
    fn begin(rig: &Rig, directory: &str) -> Elsewhere {
        // It lets go of the mounts of tests that run beside this one.
        let script = r#"awk -v ours="$1/" '$3 ~ /^fuse.*tarn$/ && index($2, ours) != 1 { print $2 }' /proc/self/mounts | xargs -r umount -l; cd "$2"; exec sleep 600"#;
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            script,
            "sh",
            rig.text("").trim_end_matches('/'),
            directory,
        ]);
        let child = command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let elsewhere = Elsewhere(child);
        let name = format!("/proc/{}/comm", elsewhere.0.id());
        rig.wait("another mount namespace", || fs::read_to_string(&name).is_ok_and(|name| name.trim() == "sleep"));
        elsewhere
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = wait_for(&mut self.0, LIMIT);
    }
}

/// `zfs set` changed what lay on the mount point: a tmpfs mounted over a dataset became read-only and nosuid, and the dataset did not.
#[test]
fn properties_change_our_mount_and_not_what_lies_on_it() {
    let Some(rig) = pool() else { return };
    let inside = File::open(rig.path("mnt/a")).unwrap();
    let foreign = Foreign::on(&rig, "mnt/a");
    let before = options(&rig, "mnt/a", "tmpfs");
    let all = ["ro", "nosuid", "noexec", "nodev"];
    rig.ok("zfs set readonly=on setuid=off exec=off devices=off tank/a");
    assert_eq!(options(&rig, "mnt/a", "tmpfs"), before);
    assert!(has(&options(&rig, "mnt/a", "fuse.tarn")[0], &all), "{:?}", options(&rig, "mnt/a", "fuse.tarn"));
    // A process inside sees it.
    let made = openat(inside.as_fd(), "file", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR);
    assert_eq!(made.unwrap_err(), rustix::io::Errno::ROFS);
    rig.ok("zfs set readonly=off exec=on tank/a");
    let now = options(&rig, "mnt/a", "fuse.tarn").remove(0);
    assert!(has(&now, &["rw", "nosuid", "nodev"]) && !has(&now, &["noexec"]), "{now}");
    openat(inside.as_fd(), "file", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
    drop(inside);
    // Where nobody is inside, the change is there as soon as somebody can be.
    rig.ok("zfs set exec=off setuid=on readonly=on tank/a");
    assert_eq!(options(&rig, "mnt/a", "tmpfs"), before);
    fs::write(rig.path("mnt/a/theirs"), "theirs").unwrap();
    drop(foreign);
    rig.wait("the change", || {
        let now = options(&rig, "mnt/a", "fuse.tarn").remove(0);
        has(&now, &["ro", "noexec", "nodev"]) && !has(&now, &["nosuid"])
    });
    assert!(fs::write(rig.path("mnt/a/ours"), "ours").is_err());
    rig.ok("zfs set readonly=off tank/a");
    fs::write(rig.path("mnt/a/ours"), "ours").unwrap();
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

/// What lies on a mount of ours is not ours to take away; the words were those of another mount namespace, after ten seconds.
#[test]
fn what_lies_on_a_mount_is_named() {
    let Some(rig) = pool() else { return };
    let foreign = Foreign::on(&rig, "mnt/a");
    rig.refused("zfs unmount tank/a", "something else is mounted over it");
    rig.refused("zpool export tank", "something else is mounted over it");
    assert_eq!((options(&rig, "mnt/a", "tmpfs").len(), options(&rig, "mnt/a", "fuse.tarn").len()), (1, 1));
    drop(foreign);
    fs::write(rig.path("mnt/a/file"), "x").unwrap();
    rig.ok("zpool export tank");
}

/// A process in another mount namespace, as a container's, has copies of what was mounted when it was made. `zfs unmount` took ten seconds, and
/// said "busy" although it had unmounted; so did `zpool export`, and nobody learned of whom.
#[test]
fn who_uses_a_copy_in_another_namespace_is_named() {
    let Some(rig) = pool() else { return };
    if !has_program("unshare") {
        return;
    }
    fs::write(rig.path("mnt/a/file"), "x").unwrap();
    let elsewhere = Elsewhere::begin(&rig, &rig.text("mnt/a"));
    let process = format!("process {} (sleep)", elsewhere.0.id());
    rig.ok("zfs unmount tank/a");
    assert_eq!(rig.get("tank/a", "mounted"), "no");
    assert!(!rig.is_mounted("mnt/a") && rig.is_mounted("mnt"));
    // The namespace with the copy reads on.
    let there = format!("/proc/{}/cwd/file", elsewhere.0.id());
    assert_eq!(fs::read_to_string(&there).unwrap(), "x");
    rig.refused("zfs destroy tank/a", &process);
    rig.ok("zfs mount tank/a");
    assert_eq!(fs::read_to_string(rig.path("mnt/a/file")).unwrap(), "x");
    // It moves, too.
    rig.ok("zfs set mountpoint=@there tank/a");
    assert!(rig.is_mounted("there"));
    rig.refused("zpool export tank", &process);
    rig.refused("zpool destroy tank", &process);
    assert!(rig.is_mounted("there") && rig.is_mounted("mnt"), "what could not be exported stays as it was");
    assert_eq!(fs::read_to_string(rig.path("there/file")).unwrap(), "x");
    assert_eq!(fs::read_to_string(&there).unwrap(), "x");
    drop(elsewhere);
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

/// Copies of which nobody uses anything are in nobody's way.
#[test]
fn copies_in_another_namespace_that_nobody_uses_end() {
    let Some(rig) = pool() else { return };
    if !has_program("unshare") {
        return;
    }
    fs::write(rig.path("mnt/file"), "x").unwrap();
    let _elsewhere = Elsewhere::begin(&rig, "/");
    rig.ok("zfs unmount tank/a");
    rig.ok("zfs destroy tank/a");
    rig.ok("zpool export tank");
    assert_eq!(rig.mounts(), Vec::<std::path::PathBuf>::new());
    rig.zdb(&["a.img"]);
    rig.ok("zpool import -d @ tank");
    assert_eq!(fs::read_to_string(rig.path("mnt/file")).unwrap(), "x");
    rig.ok("zpool export tank");
}

/// By force the pool goes, though another namespace has copies.
#[test]
fn copies_in_another_namespace_end_by_force() {
    let Some(rig) = pool() else { return };
    if !has_program("unshare") {
        return;
    }
    let _elsewhere = Elsewhere::begin(&rig, &rig.text("mnt/a"));
    rig.ok("zfs unmount tank/a");
    rig.ok("zpool export -f tank");
    assert!(!rig.is_mounted("mnt"));
    rig.ok("zpool import -d @ tank");
    rig.ok("zpool export tank");
}

/// OpenZFS mounts a file system a second time where `mount(8)` is told to; we refused. Each place has options of its own, and ends alone; a
/// pool that is exported leaves none, not even where somebody had bound it.
#[test]
fn a_file_system_is_mounted_in_several_places() {
    let Some(rig) = pool() else { return };
    for place in ["second", "bound"] {
        fs::create_dir(rig.path(place)).unwrap();
    }
    fs::write(rig.path("mnt/a/file"), "x").unwrap();
    rig.ok("mount -o zfsutil,ro,noexec tank/a @second");
    assert!(
        has(&options(&rig, "second", "fuse.tarn")[0], &["ro", "noexec"]) && has(&options(&rig, "mnt/a", "fuse.tarn")[0], &["rw"])
    );
    assert_eq!(fs::read_to_string(rig.path("second/file")).unwrap(), "x");
    assert!(fs::write(rig.path("second/file"), "y").is_err());
    fs::write(rig.path("mnt/a/file"), "y").unwrap();
    assert_eq!(fs::read_to_string(rig.path("second/file")).unwrap(), "y");
    rig.refused("mount -o zfsutil tank/a @second", "already mounted");
    rig.refused("zfs mount tank/a", "already mounted");
    let listed = rig.ok("zfs mount");
    assert_eq!(listed.lines().filter(|line| line.starts_with("tank/a ")).count(), 2, "{listed}");
    // A property is one of all places.
    rig.ok("zfs set setuid=off tank/a");
    assert!(["second", "mnt/a"].iter().all(|place| has(&options(&rig, place, "fuse.tarn")[0], &["nosuid"])));
    // It is another name, and another place, for the first alone.
    rig.ok("zfs rename tank/a tank/b");
    assert!(rig.is_mounted("mnt/b") && rig.is_mounted("second") && !rig.is_mounted("mnt/a"));
    assert_eq!(fs::read_to_string(rig.path("mnt/b/file")).unwrap(), "y");
    rig.ok("zfs unmount @second");
    assert!(rig.is_mounted("mnt/b") && !rig.is_mounted("second"));
    rig.ok("mount -o zfsutil tank/b @second");
    rig.ok("zfs unmount tank/b");
    assert!(!rig.is_mounted("mnt/b") && rig.is_mounted("second"));
    mount_bind(rig.path("second"), rig.path("bound")).unwrap();
    rig.ok("zpool export tank");
    assert_eq!(rig.mounts(), Vec::<std::path::PathBuf>::new());
    rig.zdb(&["a.img"]);
}

/// `zfs unmount -f` of what is in use unmounted it, ended the connection under its users, and said that all was well. On Linux OpenZFS refuses.
#[test]
fn what_is_in_use_is_not_unmounted_by_force() {
    let Some(rig) = pool() else { return };
    let mut file = File::create(rig.path("mnt/a/file")).unwrap();
    for words in ["zfs unmount -f tank/a", "zfs unmount tank/a", "zfs unmount -fa"] {
        rig.refused(words, "pool or dataset is busy");
        assert!(rig.is_mounted("mnt/a"));
        file.write_all(b"x").unwrap();
        file.sync_all().unwrap();
    }
    drop(file);
    rig.ok("zfs unmount -f tank/a");
    assert!(!rig.is_mounted("mnt/a"));
    rig.ok("zpool export tank");
}

/// A file system that somebody had unmounted stayed so when it was given a mount point; OpenZFS mounts it, and those that inherit it.
#[test]
fn a_new_mount_point_mounts_what_was_unmounted_by_hand() {
    let Some(rig) = pool() else { return };
    rig.ok("zfs create tank/a/below");
    rig.ok("zfs create -o mountpoint=@own tank/a/own");
    rig.ok("zfs create -o canmount=noauto tank/a/late");
    rig.ok("zfs unmount tank/a/own");
    rig.ok("zfs unmount tank/a");
    rig.ok("zfs set mountpoint=@new tank/a");
    assert!(rig.is_mounted("new") && rig.is_mounted("new/below"));
    assert!(!rig.is_mounted("own") && !rig.is_mounted("new/late"), "these did not move, or wait to be named");
    // To what it has already, too; and back to what is inherited.
    rig.ok("zfs unmount tank/a");
    rig.ok("zfs set mountpoint=@new tank/a");
    assert!(rig.is_mounted("new"));
    rig.ok("zfs unmount tank/a");
    rig.ok("zfs inherit mountpoint tank/a");
    assert!(rig.is_mounted("mnt/a") && rig.is_mounted("mnt/a/below"));
    rig.ok("zfs unmount tank/a");
    rig.ok("zfs set -u mountpoint=@other tank/a");
    assert!(!rig.is_mounted("other"), "-u says so");
    rig.ok("zpool export tank");
}

/// What one file system lies on was unmounted with it, where both are mounted at one place.
#[test]
fn what_a_file_system_lies_on_stays() {
    let Some(rig) = pool() else { return };
    fs::write(rig.path("mnt/a/below"), "x").unwrap();
    rig.ok("zfs create -o mountpoint=none tank/b");
    rig.ok("zfs set mountpoint=@mnt/a tank/b");
    assert!(!rig.path("mnt/a/below").exists());
    fs::write(rig.path("mnt/a/above"), "x").unwrap();
    rig.ok("zfs unmount tank/b");
    assert!(rig.path("mnt/a/below").exists() && !rig.path("mnt/a/above").exists());
    assert_eq!((rig.get("tank/a", "mounted"), rig.get("tank/b", "mounted")), ("yes".to_owned(), "no".to_owned()));
    rig.ok("zfs mount tank/b");
    rig.ok("zpool export tank");
}

/// `mount.zfs` made a directory that was misspelt, and mounted there.
#[test]
fn the_helper_of_mount_makes_no_directory() {
    let Some(rig) = pool() else { return };
    rig.ok("zfs unmount tank/a");
    rig.refused("mount -o zfsutil tank/a @missing", "No such file or directory");
    assert!(!rig.path("missing").exists());
    OpenOptions::new().create_new(true).write(true).open(rig.path("file")).unwrap();
    rig.refused("mount -o zfsutil tank/a @file", "Not a directory");
    assert_eq!(rig.get("tank/a", "mounted"), "no");
    rig.ok("zpool export tank");
}
