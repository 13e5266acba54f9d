//! A device that fails under a mounted pool: nothing hangs, what is in memory is read, and what was on disk is there afterwards.

use std::fs::{self, File};
use std::io::Write;

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};

use crate::rig::Rig;

const MIB: u64 = 1 << 20;

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

/// The image lies on a file system that runs full, so its writes fail. Once the thread that closes transaction groups waited for ever for
/// a place behind the group that could not be written, and an export waited for that thread.
#[test]
fn a_device_that_refuses_writes_hangs_nobody() {
    let Some(rig) = Rig::new() else { return };
    fs::create_dir(rig.path("small")).unwrap();
    mount("tmpfs", rig.path("small"), "tmpfs", MountFlags::empty(), Some(c"size=40m")).unwrap();
    rig.image("small/a.img", 256 * MIB);
    rig.ok("zpool create -o failmode=continue -O mountpoint=@mnt -O compression=off tank @small/a.img");
    fs::write(rig.path("mnt/kept"), noise(1)).unwrap();
    rig.ok("zpool sync tank");
    let mut file = File::create(rig.path("mnt/big")).unwrap();
    let failed = (2..200).find_map(|seed| file.write_all(&noise(seed)).and_then(|()| file.sync_data()).err());
    assert_eq!(failed.and_then(|error| error.raw_os_error()), Some(libc::EIO), "the image's file system has 40 MiB");
    assert_eq!(fs::read(rig.path("mnt/kept")).unwrap(), noise(1));
    assert!(fs::write(rig.path("mnt/new"), "no").is_err());
    assert!(rig.run("zpool status tank").out.contains("SUSPENDED"));
    drop(file);
    rig.ok("zfs unmount -f tank");
    assert!(!rig.is_mounted("mnt"));
    // It cannot be exported in order; it must be let go of.
    rig.run("zpool export -f tank");
    rig.wait("the daemon's end", || !rig.path("sock").exists());

    mount_remount(rig.path("small"), MountFlags::empty(), c"size=300m").unwrap();
    rig.ok("zpool import -d @small tank");
    assert_eq!(fs::read(rig.path("mnt/kept")).unwrap(), noise(1));
    fs::write(rig.path("mnt/new"), "yes").unwrap();
    rig.ok("zpool export tank");
    rig.zdb(&["small/a.img"]);
    unmount(rig.path("small"), UnmountFlags::empty()).unwrap();
}
