//! What is kept in memory of files that a kernel remembers.

use std::sync::atomic::{AtomicBool, Ordering};

use engine::zil::{LogSource, WantedWrite};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::zpl::inodes::inode_table::Found;

/// Each file that the kernel remembered took 3 KB: a kernel that remembered 200,000 took 600 MB, whatever the limit of the cache was.
#[test]
fn of_files_that_only_the_kernel_remembers_a_number_is_kept() {
    let (rig, fs) = new();
    rig.crowd();
    let directory = fs.mkdir(fs.root(), b"d", 0o755, &root()).unwrap().inode;
    let files: Vec<Stat> = (0..500).map(|n| fs.create(directory, format!("{n}").as_bytes(), 0o100_600 | (n % 8), 0, &root()).unwrap()).collect();
    rig.sync(fs.objset());
    let (known, whole) = fs.inodes.table().counts();
    assert_eq!(known, 501, "500 files and their directory");
    assert!(whole < 50, "{whole} whole ones");
    for (n, stat) in files.iter().enumerate() {
        assert_eq!(fs.getattr(stat.inode).unwrap(), Stat { allocated: 512, ..*stat });
        assert_eq!(fs.lookup(directory, format!("{n}").as_bytes()).unwrap().inode, stat.inode);
    }
    // Known twice by now.
    for stat in &files {
        fs.forget(stat.inode, 1);
    }
    assert_eq!(fs.inodes.table().counts().0, 501);
    for stat in &files {
        fs.forget(stat.inode, 1);
    }
    assert_eq!(fs.inodes.table().counts().0, 1);
    rig.check();
}

#[test]
fn removed_files_that_are_open_stay_whole_and_are_freed_at_last() {
    let (rig, fs) = new();
    rig.crowd();
    let objects = |fs: &FileSystem| {
        rig.sync(fs.objset());
        fs.objset().objects_used()
    };
    let before = objects(&fs);
    let files: Vec<InodeNumber> = (0..100).map(|n| file(&fs, &format!("{n}")).inode).collect();
    for (n, inode) in files.iter().enumerate() {
        fs.write(*inode, WriteMode::At(0), &[n as u8; 700], &root()).unwrap();
    }
    (0..100).for_each(|n| fs.unlink(fs.root(), format!("{n}").as_bytes()).unwrap());
    // Others come, and would have them go.
    let others: Vec<InodeNumber> = (0..300).map(|n| file(&fs, &format!("other{n}")).inode).collect();
    rig.sync(fs.objset());
    for (n, inode) in files.iter().enumerate() {
        assert_eq!(fs.getattr(*inode).unwrap().links, 0);
        assert_eq!(fs.read(*inode, 0, 1000).unwrap(), [n as u8; 700]);
    }
    assert_eq!(objects(&fs), before + 400);
    files.iter().for_each(|inode| fs.forget(*inode, 1));
    assert_eq!(objects(&fs), before + 300);
    for inode in &files {
        assert!(matches!(fs.getattr(*inode).unwrap_err().kind(), ErrorKind::NotFound | ErrorKind::Stale));
    }
    others.iter().for_each(|inode| fs.forget(*inode, 1));
    rig.check();
}

/// Found by reading: a commit of the log that looked for a file which was being freed freed it, too; and the second caller freed the next file
/// of that number.
#[test]
fn a_removed_file_is_freed_once() {
    let (rig, fs) = new();
    let stat = file(&fs, "a");
    fs.write(stat.inode, WriteMode::At(0), b"hello", &root()).unwrap();
    rig.sync(fs.objset());
    fs.unlink(fs.root(), b"a").unwrap();
    // The kernel's last reference goes, and the thread that took it is not given the CPU just now.
    let leaving = fs.inodes.table().release(stat.inode, 1).expect("it was the last");
    let mut bytes = Vec::new();
    FileSource::of(&fs).fetch(&WantedWrite { object: stat.inode, generation: stat.generation, offset: 0, length: 5 }, &mut bytes).unwrap();
    assert!(bytes.is_empty());
    assert_eq!(FileSource::of(&fs).block_bytes(stat.inode), None);
    assert_eq!(fs.lookup_inode(stat.inode).unwrap_err().kind(), ErrorKind::Stale);
    rig.sync(fs.objset());
    let others: Vec<InodeNumber> = (0..100).map(|n| file(&fs, &format!("{n}")).inode).collect();
    fs.free_unlinked(&leaving).unwrap();
    fs.inodes.table().left(&leaving);
    drop(leaving);
    rig.sync(fs.objset());
    others.iter().for_each(|inode| assert_eq!(fs.getattr(*inode).unwrap().links, 1));
    assert_eq!(fs.lookup_inode(stat.inode).unwrap_err().kind(), ErrorKind::NotFound);
    rig.check();
    // Its number is used again, and nobody remembers it.
    let later: Vec<InodeNumber> = (0..100).map(|n| file(&fs, &format!("later{n}")).inode).collect();
    assert!(later.contains(&stat.inode));
    assert_eq!(fs.lookup_inode(stat.inode).unwrap().links, 1);
}

/// A listing may find an entry before its maker has put the inode into the table: once the reference that came with it was lost.
#[test]
fn a_file_that_is_found_while_it_is_made_keeps_its_references() {
    let (_rig, fs) = new();
    let found = file(&fs, "a");
    let made = fs.load_inode(found.inode).unwrap();
    drop(fs.insert_inode(made));
    fs.unlink(fs.root(), b"a").unwrap();
    assert_eq!(fs.getattr(found.inode).unwrap().links, 0, "somebody has it open");
}

/// Backups go by the time of the change, and transactions of programs by the count. Where the attribute had a file of its own, neither said that it was gone.
#[test]
fn a_file_whose_attribute_is_removed_was_changed() {
    for xattr_in_attributes in [true, false] {
        let (_rig, fs) = new();
        fs.set_options(MountOptions { xattr_in_attributes, ..fs.options() });
        let inode = file(&fs, "a").inode;
        fs.setxattr(inode, b"user.a", b"value", XattrMode::Any).unwrap();
        let long_ago = Time { seconds: 77, nanoseconds: 0 };
        fs.setattr(inode, &SetAttributes { change_time: Some(long_ago), ..SetAttributes::default() }, &root()).unwrap();
        let changed_at = || fs.inode(inode).unwrap().changed_at.load(Ordering::Acquire);
        let before = changed_at();
        fs.removexattr(inode, b"user.a").unwrap();
        assert_ne!(fs.getattr(inode).unwrap().change_time, long_ago, "{xattr_in_attributes}");
        assert!(changed_at() > before, "{xattr_in_attributes}");
    }
}

/// What is not in the file's object outlives the inode in memory.
#[test]
fn changes_are_known_and_times_owed_although_the_inode_was_given_up() {
    let (rig, fs) = new();
    rig.crowd();
    let inode = file(&fs, "a").inode;
    let changed_at = || fs.inode(inode).unwrap().changed_at.load(Ordering::Acquire);
    let before = changed_at();
    fs.write(inode, WriteMode::Collected(0), b"late", &root()).unwrap();
    fs.setxattr(inode, b"user.a", b"b", XattrMode::Any).unwrap();
    let changed = changed_at();
    assert!(changed >= before + 2, "{changed} after {before}");
    (0..300).for_each(|n| {
        file(&fs, &format!("other{n}"));
    });
    assert!(!fs.inodes.table().is_whole(inode));
    assert_eq!(changed_at(), changed);
    // What tells the times is allowed although the file system became read-only: it is owed.
    fs.set_options(MountOptions { read_only: true, ..fs.options() });
    let time = Time { seconds: 1000, nanoseconds: 1 };
    let told = SetAttributes { modification_time: Some(SetTime::To(time)), change_time: Some(time), ..SetAttributes::default() };
    assert_eq!(fs.setattr(inode, &told, &root()).unwrap().modification_time, time);
}

/// An inode that was made again from what was on disk a moment ago, while another thread made, changed and gave up its own, would lose
/// that one's change.
#[test]
fn no_change_is_lost_when_inodes_come_and_go() {
    const FILES: usize = 40;
    let seed: u64 = std::env::var("TARN_SEED").map_or(7, |seed| seed.parse().unwrap());
    println!("seed {seed} (TARN_SEED)");
    let (rig, fs) = new();
    rig.crowd();
    let files: Vec<InodeNumber> = (0..FILES).map(|n| file(&fs, &format!("{n}")).inode).collect();
    let stop = AtomicBool::new(false);
    let appended: usize = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4u64)
            .map(|number| {
                let (fs, files) = (&fs, &files);
                scope.spawn(move || {
                    let mut random = ChaCha8Rng::seed_from_u64(seed * 100 + number);
                    for _ in 0..1500 {
                        let inode = files[random.random_range(0..FILES)];
                        fs.write(inode, WriteMode::Append, &[1], &root()).unwrap();
                    }
                    1500
                })
            })
            .collect();
        let syncer = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                rig.sync(fs.objset());
            }
        });
        let sum = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
        stop.store(true, Ordering::Relaxed);
        syncer.join().unwrap();
        sum
    });
    let sizes: u64 = files.iter().map(|inode| fs.getattr(*inode).unwrap().size).sum();
    assert_eq!(sizes, appended as u64);
    rig.sync(fs.objset());
    let again = rig.reopen();
    assert_eq!(files.iter().map(|inode| again.getattr(*inode).unwrap().size).sum::<u64>(), sizes);
    rig.check();
}

/// The same, one step at a time.
#[test]
fn what_was_loaded_before_another_inode_left_is_loaded_again() {
    let (rig, fs) = new();
    rig.crowd();
    let inode = file(&fs, "a").inode;
    let give_up = || {
        for n in 0.. {
            if !fs.inodes.table().is_whole(inode) {
                break;
            }
            let name = format!("other{n}");
            fs.forget(file(&fs, &name).inode, 1);
            fs.unlink(fs.root(), name.as_bytes()).unwrap();
            assert!(n < 10_000, "it is never given up");
        }
    };
    give_up();
    let Found::ToLoad { is_known: true, departures } = fs.inodes.table().find(inode) else { panic!("it was given up") };
    let old = fs.load_inode(inode).unwrap();
    fs.write(inode, WriteMode::Append, &[1; 10], &root()).unwrap();
    give_up();
    assert!(fs.inodes.table().insert_loaded(old, departures).is_none());
    assert_eq!(fs.getattr(inode).unwrap().size, 10);
}
