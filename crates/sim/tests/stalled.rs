//! A pool that can write nothing, whose programs go on (`failmode=wait`): they are made to wait before their changes fill the memory.
#![allow(clippy::disallowed_methods)] // real threads and clocks are what is tested

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use engine::tunables::Tunables;
use disk::DiskRef;
use sim::scenario::{Layout, MemoryDisks, SimHost};
use engine::pool::import::discover;
use tarnfs::{Credentials, ImportOptions, Pool, SetAttributes};

const DIRTY_MAX: u64 = 32 << 20;
/// What those may add who were let in before the limit was reached.
const BEYOND: u64 = 4 << 20;
/// So large that nobody waits for room.
const LAYOUT: Layout = Layout { tops: 1, sides: 1, parity: 0, bytes: 32 << 30, ashift: 12 };
const STILL: Duration = Duration::from_secs(3);
const LIMIT: Duration = Duration::from_secs(200);

/// Issue 19: the records of the intent log counted as nothing, and a loop of `chmod` grew by gigabytes.
#[test]
fn changes_of_attributes_wait_for_a_pool_that_cannot_write() {
    let disks = MemoryDisks::create(LAYOUT, &[]);
    let found = discover(vec![disks.sides_of(0)[0].clone() as DiskRef]);
    let tunables = Tunables { dirty_bytes_max: DIRTY_MAX, ..Tunables::default() };
    let options = ImportOptions { force: true, tunables: Some(tunables), ..ImportOptions::default() };
    let (pool, _) = Pool::import_on(found.into_iter().next().unwrap(), options, SimHost::new(2)).unwrap();
    let (fs, user) = (pool.file_system("tank").unwrap(), Credentials::root());
    let file = fs.create(fs.root(), b"f", 0o100_644, 0, &user).unwrap().inode;
    pool.sync().unwrap();
    pool.engine().obey_failmode().unwrap();
    disks.disk(0).faults.break_writes(true);

    let (done, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (counted, ended, changing) = (done.clone(), over.clone(), fs.clone());
    let changes = std::thread::spawn(move || {
        while !ended.load(SeqCst) {
            let mode = 0o600 + (counted.fetch_add(1, SeqCst) % 8) as u32;
            changing.setattr(file, &SetAttributes { mode: Some(mode), ..SetAttributes::default() }, &Credentials::root()).unwrap();
        }
    });
    let begun = Instant::now();
    let dirty = || pool.engine().context.dirty.total();
    loop {
        let before = done.load(SeqCst);
        std::thread::sleep(STILL);
        assert!(dirty() <= DIRTY_MAX + BEYOND, "{} bytes are dirty after {} changes", dirty(), done.load(SeqCst));
        if done.load(SeqCst) == before {
            break;
        }
        assert!(begun.elapsed() < LIMIT, "after {} changes nobody waits; {} bytes are dirty", done.load(SeqCst), dirty());
    }
    assert!(dirty() > DIRTY_MAX / 2, "the changes wait with {} bytes dirty", dirty());
    sim::places::say(&format!("{} changes of a mode before they waited", done.load(SeqCst)));

    disks.disk(0).faults.break_writes(false);
    pool.engine().clear_errors(None);
    let waited = done.load(SeqCst);
    while done.load(SeqCst) < waited + 1000 {
        assert!(begun.elapsed() < LIMIT, "after the errors were cleared nothing goes on");
        std::thread::sleep(Duration::from_millis(20));
    }
    over.store(true, SeqCst);
    changes.join().unwrap();
    fs.forget(file, 1);
    drop(fs);
    pool.export().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let images = disks.to_images(directory.path());
    sim::oracle::zdb_check(&images.iter().map(std::path::PathBuf::as_path).collect::<Vec<_>>()).expect_clean("a pool that could not write for a while");
}
