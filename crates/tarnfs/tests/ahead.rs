//! What is read ahead: readers that go on find their blocks there, others have nothing read for them.

use std::sync::Arc;
use std::time::Duration;

use disk::{DiskRef, MemDisk};
use engine::arc::CacheStats;
use engine::host::RealHost;
use engine::vdev::{NewLeaf, NewTop};
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tarnfs::{CreateOptions, Credentials, FileSystem, ImportOptions, InodeNumber, Parameter, Pool, Tunables, WriteMode};

const MB: u64 = 1 << 20;
const RECORD: u64 = 128 << 10;
const FILE: u64 = 64 * MB;
/// Bytes that may be in memory.
const CACHE: u64 = 96 * MB;

struct Rig {
    disk: DiskRef,
    pool: Arc<Pool>,
    fs: Arc<FileSystem>,
    file: InodeNumber,
    tunables: Tunables,
}

impl Rig {
    fn new() -> Rig {
        let leaf = |disk: DiskRef| NewLeaf { disk, path: "/ahead".into(), whole_disk: false };
        let disk: DiskRef = Arc::new(MemDisk::new("ahead", 1 << 30));
        let top = NewTop { leaves: vec![leaf(Arc::clone(&disk))], ashift: Some(12), ..NewTop::default() };
        let tunables = Tunables { txg_timeout_ns: u64::MAX / 2, cache_bytes_max: CACHE, ..Tunables::default() };
        let options = CreateOptions { tunables: Some(tunables.clone()), ..CreateOptions::default() };
        let pool = Pool::create_on("ahead", vec![top], options, RealHost::shared()).unwrap();
        let fs = pool.file_system("ahead").unwrap();
        let file = fs.create(fs.root(), b"file", 0o100_644, 0, &Credentials::root()).unwrap().inode;
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let mut data = vec![0; MB as usize];
        for at in 0..FILE / MB {
            random.fill_bytes(&mut data);
            fs.write(file, WriteMode::At(at * MB), &data, &Credentials::root()).unwrap();
        }
        pool.sync().unwrap();
        let rig = Rig { disk, pool, fs, file, tunables };
        rig.forget();
        rig
    }

    fn stats(&self) -> CacheStats {
        self.pool.engine().context.cache.stats()
    }

    /// Nothing is in memory.
    fn forget(&self) {
        self.pool.engine().context.cache.set_limit(MB);
        self.pool.engine().context.cache.set_limit(CACHE);
    }

    /// What was begun ahead is done, as for a reader that takes its time.
    fn settle(&self) {
        while self.stats().ahead.active_bytes > 0 {
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Reads of `length` bytes: how many of their blocks were not there, how many were read ahead, and how many blocks the reads are in.
    fn read(&self, length: u64, starts: impl Iterator<Item = u64>) -> (u64, u64, u64) {
        self.forget();
        let (before, mut buffer, mut blocks) = (self.stats(), vec![0; length as usize], std::collections::HashSet::new());
        for start in starts {
            assert_eq!(self.fs.read_into(self.file, start, &mut buffer).unwrap() as u64, length);
            blocks.extend(start / RECORD..(start + length).div_ceil(RECORD));
            assert!(self.stats().ahead.active_bytes <= CACHE / 8);
            self.settle();
        }
        let after = self.stats();
        (after.misses - before.misses, after.ahead.issued - before.ahead.issued, blocks.len() as u64)
    }
}

#[test]
fn readers_that_go_on_find_their_blocks_there() {
    let rig = Rig::new();
    let cases: [(&str, u64, Vec<u64>); 4] = [
        ("forward", 32 << 10, (0..FILE >> 15).map(|at| at << 15).collect()),
        ("backward", 32 << 10, (0..FILE >> 15).rev().map(|at| at << 15).collect()),
        ("strided", 4096, (0..FILE / (3 * RECORD)).map(|at| at * 3 * RECORD + 8192).collect()),
        ("four streams", 32 << 10, (0..FILE >> 17).flat_map(|at| (0..4).map(move |stream| stream * FILE / 4 + (at << 15))).collect()),
    ];
    for (name, length, starts) in cases {
        let (missed, ahead, blocks) = rig.read(length, starts.into_iter());
        println!("{name}: {blocks} blocks, {missed} not there, {ahead} read ahead");
        assert!(missed * 10 <= blocks, "{name}: {missed} of {blocks} blocks were not there");
        assert!(ahead <= blocks + 64, "{name}: {ahead} were read ahead for {blocks}");
    }
    let ahead = rig.stats().ahead;
    assert!(ahead.used * 10 >= ahead.issued * 9 && ahead.reads.iter().all(|count| *count < u64::MAX), "{ahead:?}");
    assert!(ahead.reads[0] > 1000 && ahead.reads[1] > 1000, "{ahead:?}");
}

#[test]
fn nothing_is_read_for_readers_at_random_and_where_it_is_not_wanted() {
    let rig = Rig::new();
    let mut random = ChaCha8Rng::seed_from_u64(2);
    let (missed, ahead, blocks) = rig.read(4096, (0..400).map(|_| random.random_range(0..FILE / 4096) * 4096));
    assert!(missed * 10 >= blocks * 9 && ahead * 20 <= blocks, "{ahead} blocks read ahead for {blocks}, {missed} not there");
    rig.tunables.parameters.set(Parameter::PrefetchDisable, "1").unwrap();
    let (missed, ahead, blocks) = rig.read(32 << 10, (0..FILE >> 15).map(|at| at << 15));
    assert!(missed * 10 >= blocks * 9 && ahead == 0, "{ahead} blocks read ahead for {blocks}, {missed} not there");
}

/// Nobody used what was read ahead, since others needed the room: then less is.
#[test]
fn less_is_read_ahead_where_it_leaves_before_it_is_used() {
    let rig = Rig::new();
    let window = || rig.pool.engine().context.cache.ahead_window();
    rig.forget();
    let (before, mut buffer) = (window(), vec![0; 32 << 10]);
    // As many streams as a file may have: what they read ahead is twice what it takes until the window is looked at.
    for round in 0..8 {
        for at in 0..10 {
            assert!(rig.fs.read_into(rig.file, (round * 8 * MB) + (at << 15), &mut buffer).is_ok());
        }
        rig.settle();
        rig.forget();
    }
    let stats = rig.stats();
    assert!(stats.ahead.unused > 128 && window() < before, "{} of {before}: {:?}", window(), stats.ahead);
}

/// Each file's object was read when it was asked for.
#[test]
fn what_a_directory_names_is_there_in_its_order() {
    let rig = Rig::new();
    let directory = rig.fs.mkdir(rig.fs.root(), b"d", 0o755, &Credentials::root()).unwrap().inode;
    for at in 0..2000 {
        let made = rig.fs.create(directory, format!("file {at}").as_bytes(), 0o100_644, 0, &Credentials::root()).unwrap();
        rig.fs.forget(made.inode, 1);
    }
    rig.pool.sync().unwrap();
    drop(rig.fs);
    rig.pool.export().unwrap();
    let pool = Pool::import_disks(vec![rig.disk], ImportOptions::default()).unwrap();
    let (fs, cache) = (pool.file_system("ahead").unwrap(), pool.engine().context.cache.clone());
    let directory = fs.lookup(fs.root(), b"d").unwrap().inode;
    let (before, mut count) = (cache.stats(), 0);
    fs.read_directory(directory, 0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            while cache.stats().ahead.active_bytes > 0 {
                std::thread::sleep(Duration::from_micros(50));
            }
            fs.lookup_inode(entry.inode).unwrap();
            count += 1;
        }
        true
    })
    .unwrap();
    let after = cache.stats();
    let (missed, ahead) = (after.misses - before.misses, after.ahead.issued - before.ahead.issued);
    println!("{count} files, {missed} blocks not there, {ahead} read ahead");
    assert!(count == 2000 && missed <= 8 && ahead >= 60, "{count} files, {missed} blocks not there, {ahead} read ahead");
}
