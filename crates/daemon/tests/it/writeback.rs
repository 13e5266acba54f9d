//! Mounts with a write-back cache: nothing may be lost that `write`, `fsync` or `close` did not report.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use daemon::ops::{Ops, OpsOptions};
use fuse::TransportChoice;
use ondisk::znode::{FLAG_APPEND_ONLY, FLAG_IMMUTABLE};
use tarnfs::{Credentials, SetAttributes};

use crate::pattern;
use crate::rig::{Rig, can_mount};

const MIB: u64 = 1 << 20;
const TRANSPORTS: [TransportChoice; 2] = [TransportChoice::Auto, TransportChoice::DevFuse];

/// What the library sees of a file, whatever the kernel has in its cache.
fn stored(ops: &Ops, path: &std::path::Path) -> tarnfs::Stat {
    ops.filesystem().unwrap().getattr(fs::metadata(path).unwrap().ino()).unwrap()
}

fn mark(ops: &Ops, path: &std::path::Path, added: u64, removed: u64) {
    let inode = fs::metadata(path).unwrap().ino();
    let set = SetAttributes { flags: Some((added, removed)), ..SetAttributes::default() };
    ops.filesystem().unwrap().setattr(inode, &set, &Credentials::root()).unwrap();
}

/// The kernel keeps the times; its own must be those that are stored, to the nanosecond, whenever it hands the contents over.
#[test]
fn times_are_those_of_the_write() {
    if !can_mount() {
        return;
    }
    for transport in TRANSPORTS {
        let mut rig = Rig::new(128 * MIB);
        let ops = rig.mount_with_writeback(transport);
        let mut seen = Vec::new();
        for number in 0..20u64 {
            let path = rig.path(&format!("f{number}"));
            let mut file = File::create(&path).unwrap();
            file.write_all(&pattern(10_000 * number as usize + 1, number)).unwrap();
            if number % 3 == 0 {
                std::thread::sleep(Duration::from_millis(15));
                file.sync_all().unwrap();
                // In the same tick of the clock as the next one: no new time, but contents that come later.
                file.write_all(b"one").unwrap();
                file.sync_all().unwrap();
                file.write_all(b"two").unwrap();
            }
            if number % 4 == 1 {
                let past = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 7);
                file.set_times(fs::FileTimes::new().set_accessed(past).set_modified(past)).unwrap();
            }
            std::thread::sleep(Duration::from_millis(15));
            drop(file);
            let there = fs::metadata(&path).unwrap();
            seen.push((path.clone(), there.mtime(), there.mtime_nsec(), there.ctime(), there.ctime_nsec(), there.size()));
            let kept = stored(&ops, &path);
            assert_eq!((kept.size, kept.modification_time.seconds, i64::from(kept.modification_time.nanoseconds)), (there.size(), there.mtime(), there.mtime_nsec()));
        }
        drop(ops);
        rig.reopen();
        rig.mount_with_writeback(transport);
        for one in seen {
            let there = fs::metadata(&one.0).unwrap();
            assert_eq!(one, (one.0.clone(), there.mtime(), there.mtime_nsec(), there.ctime(), there.ctime_nsec(), there.size()), "{transport:?}");
        }
        rig.close();
    }
}

/// Writes until `write` fails. Returns how many bytes it took. `careless`: syncs now and then, and does not look at the result.
fn fill(file: &mut File, limit: u64, careless: bool) -> (u64, io::Error) {
    let piece = pattern(MIB as usize, 3);
    let mut taken = 0;
    loop {
        if careless && taken % (16 * MIB) == 0 {
            let _ = file.sync_data();
        }
        assert!(taken < limit, "{taken} bytes written, and nobody said that they do not fit");
        match file.write(&piece) {
            Ok(count) => taken += count as u64,
            Err(error) => return (taken, error),
        }
    }
}

/// Until what was removed can be used again: the kernel forgets files when it likes, and their blocks rest for two groups.
fn wait_for_room(rig: &Rig, ops: &Ops) {
    for _ in 0..300 {
        rig.pool().sync_all().unwrap();
        if ops.filesystem().unwrap().space().available > 50 * MIB {
            return;
        }
        std::thread::sleep(Duration::from_millis(30));
    }
    panic!("there is no room although all was removed: {:?}", ops.filesystem().unwrap().space());
}

/// A program that ignores `close` must not write for ever onto a full disk; a program that has lost nothing must not
/// get an error.
#[test]
fn a_full_disk_ends_a_writer() {
    if !can_mount() {
        return;
    }
    for transport in TRANSPORTS {
        let mut rig = Rig::new(128 * MIB);
        let ops = rig.mount_with_writeback(transport);
        // So that writes are collected although the disk is small: then they are refused too late.
        ops.set_options(OpsOptions { announce_opens: true, short_of_room: 0, ..OpsOptions::default() });
        fs::write(rig.path("other"), pattern(100_000, 1)).unwrap();
        let mut file = File::create(rig.path("large")).unwrap();
        let (taken, error) = fill(&mut file, 1024 * MIB, true);
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{error}");
        assert!(taken > 32 * MIB, "{taken}");
        // What did not fit was said; nobody else is told of it, and readers are not.
        assert_eq!(fs::read(rig.path("other")).unwrap(), pattern(100_000, 1));
        let mut all = Vec::new();
        File::open(rig.path("large")).unwrap().read_to_end(&mut all).unwrap();
        drop(file);
        ops.set_options(OpsOptions { announce_opens: true, ..OpsOptions::default() });
        fs::remove_file(rig.path("large")).unwrap();
        wait_for_room(&rig, &ops);
        // Now the kernel asks before each write: what is taken and does not fit is a part of one write at the most, and is reported.
        let mut late = File::create(rig.path("late")).unwrap();
        let (taken, error) = fill(&mut late, 256 * MIB, false);
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{error}");
        let synced = late.sync_all();
        let lost = taken - stored(&ops, &rig.path("late")).size;
        assert!(lost == 0 || lost <= MIB && synced.is_err(), "{transport:?}: {lost} bytes lost, {synced:?}");
        let mut all = Vec::new();
        File::open(rig.path("late")).unwrap().read_to_end(&mut all).unwrap();
        drop(late);
        fs::remove_file(rig.path("late")).unwrap();
        wait_for_room(&rig, &ops);
        fs::write(rig.path("after"), pattern(20 << 20, 5)).unwrap();
        assert!(fs::read(rig.path("after")).unwrap() == pattern(20 << 20, 5));
        drop(ops);
        rig.close();
    }
}

/// What was taken while it was allowed is kept, although the file system or the file was sealed before it was handed over; and then no
/// more is taken.
#[test]
fn what_was_taken_is_kept() {
    if !can_mount() {
        return;
    }
    let mut rig = Rig::new(128 * MIB);
    let ops = rig.mount_with_writeback(TransportChoice::Auto);
    let paths = ["frozen", "immutable", "append-only"].map(|name| rig.path(name));
    let mut files = paths.clone().map(|path| File::create(path).unwrap());
    for file in &mut files {
        file.write_all(&pattern(300_000, 2)).unwrap();
    }
    mark(&ops, &paths[1], FLAG_IMMUTABLE, 0);
    mark(&ops, &paths[2], FLAG_APPEND_ONLY, 0);
    let options = ops.filesystem().unwrap().options();
    ops.filesystem().unwrap().set_options(tarnfs::MountOptions { read_only: true, ..options.clone() });
    for file in &files {
        file.sync_all().unwrap();
    }
    ops.filesystem().unwrap().set_options(options);
    drop(files);
    for path in &paths {
        assert_eq!(stored(&ops, path).size, 300_000, "{}", path.display());
        assert_eq!(fs::metadata(path).unwrap().mtime_nsec(), i64::from(stored(&ops, path).modification_time.nanoseconds));
    }
    let refused = |result: io::Result<File>| result.expect_err("a marked file was opened for writing").raw_os_error();
    assert_eq!(refused(OpenOptions::new().append(true).open(&paths[1])), Some(libc::EPERM));
    assert_eq!(refused(OpenOptions::new().write(true).open(&paths[2])), Some(libc::EPERM));
    let mut log = OpenOptions::new().append(true).open(&paths[2]).unwrap();
    log.write_all(b"more").unwrap();
    drop(log);
    assert_eq!(stored(&ops, &paths[2]).size, 300_004);
    for path in &paths[1..] {
        mark(&ops, path, 0, FLAG_IMMUTABLE | FLAG_APPEND_ONLY);
    }
    drop(ops);
    rig.close();
}

/// Where data is the kernel knows better than we do; closed files keep their pages.
#[test]
fn holes_of_what_is_not_handed_over() {
    if !can_mount() {
        return;
    }
    for transport in TRANSPORTS {
        let mut rig = Rig::new(128 * MIB);
        rig.mount_with_writeback(transport);
        let file = File::create(rig.path("sparse")).unwrap();
        file.write_all_at(&[1; 4096], 10 * MIB).unwrap();
        let data = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)).unwrap();
        assert_eq!(data, 10 * MIB, "{transport:?}");
        file.write_all_at(&[1; 4096], 4 * MIB).unwrap();
        assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)).unwrap(), 4 * MIB, "{transport:?}");
        drop(file);
        // More callers than there are threads to serve them: nobody hangs, and nobody takes data for a hole.
        let files: Vec<Arc<File>> = (0..40u64)
            .map(|number| {
                let file = File::create(rig.path(&format!("s{number}"))).unwrap();
                file.write_all_at(&[1; 4096], number * MIB).unwrap();
                Arc::new(file)
            })
            .collect();
        let threads: Vec<_> = files
            .into_iter()
            .enumerate()
            .map(|(number, file)| std::thread::spawn(move || (number, rustix::fs::seek(&*file, rustix::fs::SeekFrom::Data(0)).unwrap())))
            .collect();
        for thread in threads {
            let (number, data) = thread.join().unwrap();
            assert!(data <= number as u64 * MIB, "{transport:?} {number}: {data}");
        }
        rig.close();
    }
}

/// A rollback under a kernel that keeps its own sizes: by its path a file has its new contents; a program that had it
/// open gets an error.
#[test]
fn replaced_contents_are_seen_by_path() {
    if !can_mount() {
        return;
    }
    let mut rig = Rig::new(128 * MIB);
    let ops = rig.mount_with_writeback(TransportChoice::Auto);
    fs::create_dir(rig.path("dir")).unwrap();
    let path = rig.path("dir/changed");
    fs::write(&path, pattern(300_000, 1)).unwrap();
    let open = File::open(&path).unwrap();
    assert!(fs::read(&path).unwrap() == pattern(300_000, 1));
    let inode = fs::metadata(&path).unwrap().ino();
    ops.filesystem().unwrap().truncate(inode, 200_000, &Credentials::root()).unwrap();
    ops.contents_replaced();
    assert_eq!(fs::metadata(&path).unwrap().len(), 200_000);
    assert!(fs::read(&path).unwrap() == pattern(300_000, 1)[..200_000]);
    assert!(open.read_at(&mut [0; 10], 0).is_err(), "an old descriptor shows something of a file that is no more");
    drop((open, ops));
    rig.close();
}
