//! Pools that are full: what is synced again and again must leave room for the groups.

use engine::dsl::{PropertyChange, PropertyValue};
use engine::error::ErrorKind;
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tarnfs::{Credentials, WriteMode};

use crate::directed::make;
use crate::disk::CutDisk;
use crate::{DISK_BYTES, Mode, check, create_with, file_system_in, open, replay, top};

const PIECE: usize = 256 << 10;
/// So often a write is refused that has room once groups are written.
const REFUSALS_MAX: u32 = 100;

/// A file of a full pool is written over and synced, in steps of so many bytes, until twice the size of the pool has gone by. (`throughput`: the blocks
/// themselves, each time to another place.)
fn synced_again_and_again(throughput: bool, bytes: usize) {
    let disk = CutDisk::new(vec![0; DISK_BYTES]);
    let mode = Mode { throughput, ..Mode::default() };
    let pool = create_with(vec![top(&disk, "/cut", false)], mode);
    let fs = file_system_in(&pool, mode);
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let mut piece = vec![0; PIECE];
    let (small, large) = (make(&fs, "small"), make(&fs, "large"));
    fs.write(small, WriteMode::At(0), &vec![7; 4 * PIECE], &Credentials::root()).unwrap();
    fs.fsync(small).unwrap();
    let mut pieces = 0;
    loop {
        random.fill_bytes(&mut piece);
        match fs.write(large, WriteMode::At(pieces * PIECE as u64), &piece, &Credentials::root()) {
            Err(error) if error.kind() == ErrorKind::NoSpace => break,
            other => drop(other.unwrap()),
        }
        pieces += 1;
    }
    pool.sync_all().unwrap();
    fs.truncate(large, (pieces - 4) * PIECE as u64, &Credentials::root()).unwrap();
    pool.sync_all().unwrap();
    let mut piece = vec![0; bytes];
    for number in 0..2 * DISK_BYTES / bytes.max(4096) {
        random.fill_bytes(&mut piece);
        let mut refused = 0;
        while let Err(error) = fs.write(small, WriteMode::At(0), &piece, &Credentials::root()) {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "write {number}: {error}");
            refused += 1;
            assert!(refused < REFUSALS_MAX, "write {number} was refused for ever: {error}");
            pool.sync_all().unwrap();
        }
        fs.fsync(small).unwrap_or_else(|error| panic!("fsync {number}: {error}"));
    }
    let image = disk.cut(0).image;
    pool.sync_all().unwrap();
    fs.unlink(fs.root(), b"large").unwrap();
    fs.release_all();
    drop(fs);
    pool.sync_all().unwrap();
    check(&pool, "a full pool");
    pool.export().unwrap();
    let disk = CutDisk::new(image);
    let pool = open(&disk, false);
    let fs = file_system_in(&pool, mode);
    replay(&pool, &fs, "a full pool");
    let found = fs.lookup(fs.root(), b"small").unwrap();
    assert!(fs.read(found.inode, 0, bytes).unwrap() == piece, "what was acknowledged is gone");
    fs.release_all();
    drop(fs);
    check(&pool, "a full pool after a crash");
    pool.export().unwrap();
}

#[test]
fn the_log_leaves_room_for_the_groups() {
    synced_again_and_again(false, PIECE);
    synced_again_and_again(false, 2000);
}

#[test]
fn blocks_that_are_written_early_leave_room_for_the_groups() {
    synced_again_and_again(true, PIECE);
}

/// Somebody has written much, for which there was room; others synced the same 256 KiB again and again until the log had all that was left: then the group found
/// no place for what had been accepted, and the pool stopped. With the power gone it could not be imported, as the log had all its space.
fn accepted_before_the_log_filled_the_pool(throughput: bool) {
    const DIRTY: usize = 12 << 20;
    let disk = CutDisk::new(vec![0; DISK_BYTES]);
    let mode = Mode { throughput, ..Mode::default() };
    let pool = create_with(vec![top(&disk, "/cut", false)], mode);
    let fs = file_system_in(&pool, mode);
    let (small, large) = (make(&fs, "small"), make(&fs, "large"));
    fs.fsync(small).unwrap();
    let mut bytes = vec![0; DIRTY];
    ChaCha8Rng::seed_from_u64(8).fill_bytes(&mut bytes);
    fs.write(large, WriteMode::At(0), &bytes, &Credentials::root()).unwrap();
    for number in 0..2 * DISK_BYTES / PIECE {
        fs.write(small, WriteMode::At(0), &bytes[number..number + PIECE], &Credentials::root()).unwrap();
        fs.fsync(small).unwrap_or_else(|error| panic!("fsync {number}: {error}"));
    }
    let image = disk.cut(0).image;
    fs.release_all();
    drop(fs);
    pool.sync_all().unwrap();
    check(&pool, "much was accepted, and more synced");
    pool.export().unwrap();
    let pool = open(&CutDisk::new(image), false);
    let fs = file_system_in(&pool, mode);
    replay(&pool, &fs, "a log that had much");
    let found = fs.lookup(fs.root(), b"small").unwrap();
    let last = 2 * DISK_BYTES / PIECE - 1;
    assert!(fs.read(found.inode, 0, PIECE).unwrap() == bytes[last..last + PIECE], "what was acknowledged is gone");
    fs.release_all();
    drop(fs);
    check(&pool, "after a replay of much");
    pool.export().unwrap();
}

#[test]
fn the_log_leaves_room_for_what_was_accepted() {
    accepted_before_the_log_filled_the_pool(false);
}

#[test]
fn early_blocks_leave_room_for_what_was_accepted() {
    accepted_before_the_log_filled_the_pool(true);
}

/// A quota was set, or was nearly reached, when what had been synced was not on disk yet: the replay was refused what had been let in, and lost it and all that
/// came after it.
#[test]
fn what_was_synced_comes_back_beyond_a_quota() {
    const WRITES: usize = 8;
    const BYTES: usize = 128 << 10;
    let disk = CutDisk::new(vec![0; DISK_BYTES]);
    let mode = Mode::default();
    let pool = create_with(vec![top(&disk, "/cut", false)], mode);
    let fs = file_system_in(&pool, mode);
    let first = make(&fs, "first");
    fs.fsync(first).unwrap();
    pool.sync_all().unwrap();
    let mut bytes = vec![0; WRITES * BYTES];
    ChaCha8Rng::seed_from_u64(9).fill_bytes(&mut bytes);
    let large = make(&fs, "large");
    for (number, piece) in bytes.chunks(BYTES).enumerate() {
        fs.write(large, WriteMode::At((number * BYTES) as u64), piece, &Credentials::root()).unwrap();
        fs.fsync(large).unwrap();
    }
    fs.fsync(make(&fs, "last")).unwrap();
    let image = disk.cut(0).image;
    pool.abandon();
    let pool = open(&CutDisk::new(image), false);
    let quota = pool.dsl.root_dir().unwrap().phys().used_bytes.get() + 2 * BYTES as u64;
    pool.dsl.set_properties("tank", vec![("quota".to_owned(), PropertyChange::Set(PropertyValue::Number(quota)))]).unwrap();
    let fs = file_system_in(&pool, mode);
    let replayed = replay(&pool, &fs, "beyond a quota");
    assert_eq!(replayed.lost, None);
    let found = fs.lookup(fs.root(), b"large").unwrap();
    assert!(fs.read(found.inode, 0, bytes.len()).unwrap() == bytes, "what was acknowledged is gone");
    fs.lookup(fs.root(), b"last").unwrap();
    pool.sync_all().unwrap();
    // The quota is there all the same.
    let refused = fs.write(found.inode, WriteMode::At(0), &bytes, &Credentials::root()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Quota, "{refused}");
    fs.release_all();
    drop(fs);
    check(&pool, "beyond a quota, after a crash");
    pool.export().unwrap();
}
