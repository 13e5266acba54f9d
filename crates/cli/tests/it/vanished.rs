//! A device that fails under a mounted pool: nothing hangs, what is in memory is read, and what was on disk is there afterwards.

use std::fs::{self, File};
use std::io::Write;
use std::process::Command;
use std::thread::{JoinHandle, spawn};

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};

use crate::durable;
use crate::rig::{LIMIT, Rig, run_for};

const MIB: u64 = 1 << 20;
/// Pieces of a MiB that the program writes.
const COUNT: u64 = 60;

/// Bytes that do not compress.
fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed * 2 + 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(next).take(MIB as usize / 8).flatten().collect()
}

/// The image of `tank`, on a file system that runs full, so that its writes fail; and a program that writes and waits.
struct Full {
    rig: Rig,
    writer: JoinHandle<std::io::Result<()>>,
}

impl Full {
    /// `None`: nothing can be mounted here.
    fn new(failmode: &str) -> Option<Full> {
        let rig = Rig::new()?;
        fs::create_dir(rig.path("small")).unwrap();
        mount("tmpfs", rig.path("small"), "tmpfs", MountFlags::empty(), Some(c"size=40m")).unwrap();
        rig.image("small/a.img", 256 * MIB);
        rig.ok(&format!("zpool create -o failmode={failmode} -O mountpoint=@mnt -O compression=off tank @small/a.img"));
        fs::write(rig.path("mnt/kept"), noise(1)).unwrap();
        rig.ok("zpool sync tank");
        let path = rig.path("mnt/big");
        let write = move || -> std::io::Result<()> {
            let mut file = File::create(path)?;
            (0..COUNT).try_for_each(|seed| file.write_all(&noise(seed)).and_then(|()| file.sync_data()))
        };
        Some(Full { writer: spawn(write), rig })
    }

    fn wait_for_suspension(&self) {
        self.rig.wait("the suspension", || self.rig.run("zpool status tank").out.contains("SUSPENDED"));
        assert_eq!(fs::read(self.rig.path("mnt/kept")).unwrap(), noise(1));
    }

    /// The file system below gets room, and what was on disk is there.
    fn repair(&self) {
        mount_remount(self.rig.path("small"), MountFlags::empty(), c"size=300m").unwrap();
    }

    fn import(&self) {
        self.repair();
        self.rig.ok("zpool import -d @small tank");
        assert_eq!(fs::read(self.rig.path("mnt/kept")).unwrap(), noise(1));
        fs::write(self.rig.path("mnt/new"), "yes").unwrap();
    }

    fn finish(self) {
        self.rig.ok("zpool export tank");
        self.rig.zdb(&["small/a.img"]);
        unmount(self.rig.path("small"), UnmountFlags::empty()).unwrap();
    }
}

/// failmode=wait: everybody waits, the administrator is answered, and when the device is back nothing is lost.
#[test]
fn a_device_that_refuses_writes_is_waited_for() {
    let Some(full) = Full::new("wait") else { return };
    full.wait_for_suspension();
    assert!(!full.writer.is_finished(), "what was accepted waits for the device");
    full.rig.refused("zpool export -f tank", "suspended");
    full.rig.refused("zpool sync tank", "");
    // Nor does `sync` wait, which the kernel has ask all file systems: its caller may have nothing to do with this pool.
    durable::others("sync", &[]);
    if durable::is_durable(&full.rig) {
        let refused = run_for(Command::new("sync").args(["-f", &full.rig.text("mnt")]), LIMIT).expect("sync -f hung");
        assert_ne!(refused.code, 0, "nothing of it is safe");
    }
    // Cleared too early: it is suspended again.
    full.rig.run("zpool clear tank");
    full.wait_for_suspension();
    assert!(!full.writer.is_finished(), "what was accepted waits for the device");
    full.repair();
    full.rig.ok("zpool clear tank");
    full.rig.wait("the writer's end", || full.writer.is_finished());
    let Full { writer, rig } = full;
    writer.join().unwrap().expect("nothing was refused");
    assert!(!rig.ok("zpool status tank").contains("SUSPENDED"));
    let all: Vec<u8> = (0..COUNT).flat_map(noise).collect();
    assert!(fs::read(rig.path("mnt/big")).unwrap() == all, "all that was written is there");
    Full { writer: spawn(|| Ok(())), rig }.finish();
}

/// failmode=continue: new writes fail, and the pool can be given up. (Once the thread that closes transaction groups waited for
/// ever for a place behind the group that could not be written, and an export waited for that thread.)
#[test]
fn a_device_that_refuses_writes_hangs_nobody() {
    let Some(full) = Full::new("continue") else { return };
    full.wait_for_suspension();
    let refused = fs::write(full.rig.path("mnt/new"), "no").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EIO), "{refused}");
    full.rig.ok("zfs unmount -f tank");
    assert!(!full.rig.is_mounted("mnt"));
    full.rig.ok("zpool export -F tank");
    full.rig.wait("the daemon's end", || !full.rig.path("sock").exists());
    full.rig.wait("the writer's end", || full.writer.is_finished());
    full.import();
    let Full { writer, rig } = full;
    // By the next write, where a transaction group met the full device; else by the fsync that waited.
    writer.join().unwrap().expect_err("the writer is told");
    Full { writer: spawn(|| Ok(())), rig }.finish();
}

/// failmode=panic: the program ends, as by a power failure.
#[test]
fn a_device_that_refuses_writes_ends_the_program() {
    let Some(full) = Full::new("panic") else { return };
    full.rig.wait("the writer's end", || full.writer.is_finished());
    // The mount ends a moment before the socket does.
    full.rig.wait("the end of the daemon", || full.rig.find_daemon().is_none());
    full.import();
    full.finish();
}
