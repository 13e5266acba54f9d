//! Mounts whose `sync` and `umount` wait for the server.

use std::fs;
use std::sync::atomic::Ordering;

use rustix::mount::UnmountFlags;

use crate::{Fixture, variants};

/// A mount on a block device. `None`, and a line that says so, where there are none.
fn fixture(options: fuse::SessionOptions) -> Option<Fixture> {
    let fixture = Fixture::mounted(options, true)?;
    if !fixture.session.as_ref()?.is_durable() {
        eprintln!("SKIPPED: sync and umount do not wait here: that takes root, Linux 6.18 and loop devices");
        return None;
    }
    Some(fixture)
}

/// `sync`, `syncfs` and `umount` returned before anything was safe: the kernel told the server nothing of them.
#[test]
fn sync_and_umount_wait() {
    for (name, options) in variants() {
        println!("transport: {name}");
        let Some(mut fixture) = fixture(options) else { return };
        let synced = || fixture.filesystem.synced.load(Ordering::Relaxed);
        fs::write(fixture.path("file"), "text").unwrap();
        let root = fs::File::open(fixture.directory.path()).unwrap();
        let before = synced();
        rustix::fs::syncfs(&root).unwrap();
        assert_eq!(synced(), before + 1, "syncfs returned before the server had done it");
        let before = synced();
        rustix::fs::sync();
        assert!(synced() > before, "sync returned before the server had done it");
        drop(root);
        let before = synced();
        rustix::mount::unmount(fixture.directory.path(), UnmountFlags::empty()).unwrap();
        assert!(synced() > before, "umount returned before the server had done it");
        let session = fixture.session.take().unwrap();
        session.unmount(false).map_err(|(_, error)| error).unwrap();
        assert_eq!(fixture.filesystem.destroyed.load(Ordering::Relaxed), 1);
    }
}

/// The first column of the table of mounts is the dataset, although the kernel wants a block device there.
#[test]
fn the_table_shows_the_dataset() {
    for (_, options) in variants() {
        let Some(fixture) = fixture(options) else { return };
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        let line = table.lines().find(|line| line.contains(fixture.directory.path().to_str().unwrap())).unwrap();
        assert!(line.starts_with("test/data ") && line.contains(" fuseblk.tarn "), "{line}");
        assert!(fuse::mount::is_mounted(fixture.directory.path(), "tarn").unwrap());
        fixture.end();
    }
}

/// Somebody in the mount: it ends by force, and lazily, as others do.
#[test]
fn a_mount_in_use_ends() {
    for (_, options) in variants() {
        for force in [true, false] {
            let Some(mut fixture) = fixture(options.clone()) else { return };
            fs::write(fixture.path("file"), "text").unwrap();
            let _user = fs::File::open(fixture.path("file")).unwrap();
            let session = fixture.session.take().unwrap();
            let ended = if force { session.unmount_forced() } else { session.unmount(true) };
            ended.map_err(|(_, error)| error).unwrap();
            assert!(!fuse::mount::is_mounted(fixture.directory.path(), "tarn").unwrap());
        }
    }
}
