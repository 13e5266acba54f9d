//! Many threads that ask for durability at once, and the power goes under them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use tarnfs::{Credentials, WriteMode};

use crate::directed::make;
use crate::disk::{CutDisk, TURNS_US};
use crate::{DISK_BYTES, Mode, check, create, create_with, file_system, file_system_in, open, replay, top, zdb};

const THREADS: u64 = 12;
const TURNS: u64 = 25;
/// A file's `turn`th number is here: many blocks, so that records are of different sizes.
const APART: u64 = 3000;

fn name(thread: u64) -> String {
    format!("file-{thread}")
}

/// So many commits may be under way; the power goes after so many writes. What `fsync` had acknowledged by then must be there.
pub(crate) fn run(disk: &Arc<CutDisk>, commits: usize, writes: u64, seed: u64) {
    let what = format!("{commits} commits at a time, cut after {writes} writes, seed {seed}");
    let mode = Mode { commits, ..Mode::default() };
    let pool = create_with(vec![top(disk, "/cut", false)], mode);
    let fs = file_system_in(&pool, mode);
    fs.fsync(make(&fs, "first")).unwrap();
    disk.arm(writes, seed);
    disk.slow_us.store(if seed % 8 < 4 { 2000 } else { TURNS_US }, Ordering::Relaxed);
    // The acknowledgements in order; the disk notes how long this was when the power went.
    let told = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (fs, told) = (&fs, &told);
            scope.spawn(move || {
                let inode = make(fs, &name(thread));
                for turn in 0..TURNS {
                    fs.write(inode, WriteMode::At(turn * APART), &(turn + 1).to_le_bytes(), &Credentials::root()).unwrap();
                    fs.fsync(inode).unwrap();
                    let mut told = told.lock();
                    told.push((thread, turn));
                    disk.progress.store(told.len(), Ordering::SeqCst);
                }
            });
        }
    });
    let cut = disk.cut(seed);
    pool.abandon();
    let disk = CutDisk::new(cut.image);
    let pool = open(&disk, false);
    let fs = file_system(&pool);
    fs.drain_delete_queue().unwrap();
    replay(&pool, &fs, &what);
    for (thread, turn) in &told.lock()[..cut.progress] {
        let entry = fs.lookup(fs.root(), name(*thread).as_bytes()).unwrap_or_else(|error| panic!("{what}: the file of thread {thread}: {error}"));
        let number = fs.read(entry.inode, turn * APART, 8).unwrap_or_else(|error| panic!("{what}: thread {thread}, turn {turn}: {error}"));
        assert_eq!(number, (turn + 1).to_le_bytes(), "{what}: thread {thread}, turn {turn}");
    }
    fs.release_all();
    drop(fs);
    pool.sync_all().unwrap();
    check(&pool, &what);
    pool.export().unwrap();
    if seed.is_multiple_of(8) {
        zdb(&disk.cut(0).image, &what);
    }
}

#[test]
fn what_many_threads_were_told_is_there() {
    let first: u64 = rand::random_range(0..1 << 40);
    println!("seeds {first}..");
    for seed in first..first + 8 {
        run(&CutDisk::new(vec![0; DISK_BYTES]), [1, 2, 3, 8][seed as usize % 4], seed % 50 * 2, seed);
    }
}

/// On a disk that turns a block that is full does not wait for others: several are under way, one behind the other. They were one long write of
/// all that waited, and those that came back from it waited for the next turn.
#[test]
fn on_a_disk_that_turns_full_blocks_go_beside_each_other() {
    const MANY: u64 = 48;
    let disk = CutDisk::new(vec![0; DISK_BYTES]);
    let pool = create(&disk);
    let fs = file_system(&pool);
    let files: Vec<_> = (0..MANY).map(|thread| make(&fs, &name(thread))).collect();
    fs.fsync(files[0]).unwrap();
    disk.slow_us.store(TURNS_US, Ordering::Relaxed);
    let write = |times: u64| {
        std::thread::scope(|scope| {
            for file in &files {
                let fs = &fs;
                scope.spawn(move || {
                    for turn in 0..times {
                        fs.write(*file, WriteMode::At(turn * 8192), &[7; 8192], &Credentials::root()).unwrap();
                        fs.fsync(*file).unwrap();
                    }
                });
            }
        });
    };
    // How slow it is has to be seen first.
    write(4);
    disk.largest.store(0, Ordering::Relaxed);
    *disk.under_way.lock() = (0, 0);
    write(20);
    let (most, largest) = (disk.under_way.lock().1, disk.largest.load(Ordering::Relaxed));
    assert!(most >= 3 && largest <= 160 << 10, "{most} at a time, up to {largest} bytes");
    fs.release_all();
    drop(fs);
    pool.sync_all().unwrap();
    check(&pool, "after many commits");
    pool.export().unwrap();
}
