//! Going back in time gives up the log with all else that came later: the space maps of that time do not have its blocks.

use std::sync::Arc;

use ::disk::DiskRef;
use engine::pool::Pool;
use engine::pool::import::{discover_before, select};
use tarnfs::zpl::FileSystem;
use tarnfs::{Credentials, WriteMode};

use crate::directed::make;
use crate::disk::CutDisk;
use crate::{DISK_BYTES, check, create, file_system, open, options, replay, zdb};

const BYTES: usize = 70_000;

fn contents(turn: u8) -> Vec<u8> {
    vec![turn; BYTES]
}

/// A file that is synced to the log again and again, with each turn in a group of its own. Returns the groups.
fn work(pool: &Arc<Pool>, fs: &FileSystem, syncs: u8) -> Vec<u64> {
    let file = make(fs, "file");
    fs.fsync(file).unwrap();
    let mut groups = Vec::new();
    for turn in 1..8 {
        for _ in 0..syncs {
            fs.write(file, WriteMode::At(0), &contents(turn), &Credentials::root()).unwrap();
            fs.fsync(file).unwrap();
        }
        pool.sync_all().unwrap();
        groups.push(pool.uberblock().txg);
    }
    fs.write(file, WriteMode::At(0), &contents(99), &Credentials::root()).unwrap();
    fs.fsync(file).unwrap();
    groups
}

fn found(fs: &FileSystem) -> Vec<u8> {
    let file = fs.lookup(fs.root(), b"file").unwrap();
    fs.read(file.inode, 0, BYTES + 1).unwrap()
}

fn go_back(groups: usize, syncs: u8) {
    let what = format!("{groups} groups back, {syncs} syncs in each");
    let disk = CutDisk::new(vec![0; DISK_BYTES]);
    let pool = create(&disk);
    let fs = file_system(&pool);
    let known = work(&pool, &fs, syncs);
    let image = disk.cut(0).image;
    pool.abandon();

    let turn = known.len() - 1 - groups;
    let disk = CutDisk::new(image);
    let candidates = discover_before(vec![disk.clone() as DiskRef], known[turn]);
    let pool = Pool::open(select(&candidates, "tank", false).unwrap(), options(false, 8)).unwrap_or_else(|error| panic!("{what}: {error}"));
    let fs = file_system(&pool);
    fs.drain_delete_queue().unwrap();
    replay(&pool, &fs, &what);
    assert!(found(&fs) == contents(turn as u8 + 1), "{what}: other contents");
    pool.sync_all().unwrap_or_else(|error| panic!("{what}: {error}"));
    check(&pool, &format!("{what}: opened"));
    // It has a log again, which a crash leaves.
    let file = fs.lookup(fs.root(), b"file").unwrap().inode;
    for turn in 100..110 {
        fs.write(file, WriteMode::At(0), &contents(turn), &Credentials::root()).unwrap();
        fs.fsync(file).unwrap();
    }
    let image = disk.cut(0).image;
    pool.abandon();
    let disk = CutDisk::new(image);
    let pool = open(&disk, false);
    let fs = file_system(&pool);
    fs.drain_delete_queue().unwrap();
    replay(&pool, &fs, &what);
    assert!(found(&fs) == contents(109), "{what}: what was written then is not there");
    fs.release_all();
    drop(fs);
    pool.sync_all().unwrap();
    check(&pool, &format!("{what}: written"));
    pool.export().unwrap();
    zdb(&disk.cut(0).image, &what);
}

#[test]
fn a_log_of_later_groups_goes_when_the_pool_goes_back() {
    for groups in 1..=2 {
        for syncs in [1, 3] {
            go_back(groups, syncs);
        }
    }
}
