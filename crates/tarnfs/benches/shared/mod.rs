//! Single operations of the library on a pool in memory, and the locks that each may take: what the benchmark `costs` measures and the
//! test `locks` checks.

#![allow(dead_code)] // each of the two uses a part

use std::sync::Arc;

use disk::{DiskRef, MemDisk};
use engine::host::RealHost;
use engine::vdev::{NewLeaf, NewTop};
use tarnfs::{CreateOptions, Credentials, FileSystem, InodeNumber, Pool, Tunables, WriteMode};

const BLOCK: u64 = 4096;
/// Bytes of each file.
const FILE_BYTES: u64 = 8 << 20;
/// How often an operation is done to measure its time, but for those that wait for a disk.
const TIMES: u64 = 200_000;

/// Where an operation is done.
#[derive(Clone)]
pub(crate) struct Place {
    fs: Arc<FileSystem>,
    file: InodeNumber,
    name: String,
}

/// One kind of operation: what is done before each, and what is measured. The number says which one it is.
pub(crate) struct Operation {
    pub(crate) name: &'static str,
    pub(crate) times: u64,
    pub(crate) before: fn(&Place, u64),
    pub(crate) run: fn(&Place, u64),
}

pub(crate) fn nothing(_: &Place, _: u64) {}

/// An offset in the file that seldom follows the last one.
fn anywhere(nth: u64, unit: u64) -> u64 {
    (nth.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % (FILE_BYTES / unit) * unit
}

fn write(at: &Place, offset: u64, length: usize) {
    let data = [7; 8192];
    at.fs.write(at.file, WriteMode::At(offset), &data[..length], &Credentials::root()).expect("write");
}

fn write_durably(at: &Place, nth: u64) {
    at.fs.write_durably(at.file, WriteMode::At(anywhere(nth, BLOCK)), &[7; 4096], &Credentials::root()).expect("write");
}

fn read(at: &Place, offset: u64, length: usize) {
    let mut buffer = [0; 8192];
    at.fs.read_into(at.file, offset, &mut buffer[..length]).expect("read");
}

fn own_name(at: &Place, nth: u64) -> String {
    format!("{}{nth}", at.name)
}

fn create(at: &Place, nth: u64) {
    let stat = at.fs.create(at.fs.root(), own_name(at, nth).as_bytes(), 0o100_644, 0, &Credentials::root()).expect("create");
    at.fs.forget(stat.inode, 1);
}

fn unlink(at: &Place, nth: u64) {
    at.fs.unlink(at.fs.root(), own_name(at, nth).as_bytes()).expect("unlink");
}

/// All of them.
pub(crate) const OPERATIONS: [Operation; 12] = [
    Operation { name: "read 4 KB, cached", times: TIMES, before: nothing, run: |at, nth| read(at, anywhere(nth, BLOCK), 4096) },
    Operation { name: "read 2 KB, cached", times: TIMES, before: nothing, run: |at, nth| read(at, anywhere(nth, 2048), 2048) },
    Operation { name: "stat", times: TIMES, before: nothing, run: |at, _| assert!(at.fs.getattr(at.file).is_ok()) },
    Operation { name: "write 4 KB, dirty block", times: TIMES, before: nothing, run: |at, nth| write(at, nth % 16 * BLOCK, 4096) },
    Operation { name: "write 4 KB, anywhere", times: TIMES, before: nothing, run: |at, nth| write(at, anywhere(nth, BLOCK), 4096) },
    Operation { name: "write 1 to 8 KB, anywhere", times: TIMES, before: nothing, run: |at, nth| write(at, anywhere(nth, 8192), 1024 + (nth % 8 * 1024) as usize) },
    Operation { name: "read 4 KB, dirty", times: TIMES, before: nothing, run: |at, nth| read(at, anywhere(nth, BLOCK), 4096) },
    Operation { name: "create", times: 5000, before: nothing, run: create },
    Operation { name: "unlink", times: 5000, before: nothing, run: unlink },
    Operation { name: "fsync, nothing to do", times: 20_000, before: nothing, run: |at, _| at.fs.fsync(at.file).expect("fsync") },
    Operation { name: "fsync after 4 KB", times: 5000, before: |at, nth| write(at, anywhere(nth, BLOCK), 4096), run: |at, _| at.fs.fsync(at.file).expect("fsync") },
    Operation { name: "write 4 KB, durably", times: 5000, before: nothing, run: write_durably },
];

/// So many locks an operation may take, and none of the pool.
pub(crate) const LOCKS_MAX: [(&str, usize); 5] =
    [("read 4 KB, cached", 10), ("stat", 5), ("write 4 KB, dirty block", 15), ("write 4 KB, anywhere", 15), ("write 1 to 8 KB, anywhere", 15)];

fn place(pool: &Pool, name: &str, file: &str) -> Place {
    let fs = pool.file_system(name).expect("the file system");
    let inode = fs.create(fs.root(), file.as_bytes(), 0o100_644, 0, &Credentials::root()).expect("a file").inode;
    let at = Place { fs, file: inode, name: file.to_owned() };
    (0..FILE_BYTES / 8192).for_each(|nth| write(&at, nth * 8192, 8192));
    at
}

/// A pool in memory, and where operations are done: in two files of one file system, and in one of another.
pub(crate) struct Rig {
    pub(crate) places: [Place; 3],
    pool: Arc<Pool>,
}

impl Rig {
    /// Nothing is dirty, and no group ends by itself.
    pub(crate) fn new() -> Rig {
        let leaf = |disk: DiskRef| NewLeaf { disk, path: "/costs".into(), whole_disk: false };
        let top = NewTop { leaves: vec![leaf(Arc::new(MemDisk::new("costs", 4 << 30)))], ashift: Some(12), ..NewTop::default() };
        let tunables = Tunables { txg_timeout_ns: u64::MAX / 2, ..Tunables::default() };
        let options = CreateOptions { tunables: Some(tunables), ..CreateOptions::default() };
        let pool = Pool::create_on("costs", vec![top], options, RealHost::shared()).expect("the pool");
        pool.create_file_system("costs/other", Vec::new()).expect("another file system");
        let places = [("costs", "own"), ("costs", "neighbour"), ("costs/other", "other")].map(|(name, file)| place(&pool, name, file));
        pool.sync().expect("sync");
        Rig { places, pool }
    }

    /// Puts it away.
    pub(crate) fn end(self) {
        drop(self.places);
        self.pool.export().expect("export");
    }
}

/// What one operation took.
#[cfg(any(feature = "costs", debug_assertions))]
#[derive(Default)]
pub(crate) struct Locks {
    pub(crate) all: usize,
    /// Of these, the locks that the same operation on another file takes too.
    pub(crate) with_file: usize,
    /// The locks that the same operation in another file system of the pool takes too.
    pub(crate) with_pool: usize,
    /// How often at each place in the source, and whether one of the pool's.
    pub(crate) places: std::collections::BTreeMap<String, (usize, bool)>,
}

/// Does an operation in each of the places, each on a thread of its own. `beside` runs the one whose locks are counted.
#[cfg(any(feature = "costs", debug_assertions))]
#[allow(clippy::disallowed_methods)] // a program that measures
pub(crate) fn count_locks(operation: &Operation, places: &[Place; 3], nth: u64, beside: impl Fn(&dyn Fn()) + Sync) -> Locks {
    use parking_lot::counting::{Taken, record};
    use std::collections::HashSet;

    let once = |at: &Place| {
        (operation.before)(at, nth);
        (operation.run)(at, nth);
        (operation.before)(at, nth + 1);
        record(|| beside(&|| (operation.run)(at, nth + 1)))
    };
    let [own, of_file, of_pool] =
        places.each_ref().map(|at| std::thread::scope(|scope| scope.spawn(|| once(at)).join().expect("an operation")));
    let locks = |taken: &[Taken]| taken.iter().map(|taken| taken.lock).collect::<HashSet<_>>();
    let (of_file, of_pool) = (locks(&of_file), locks(&of_pool));
    let mut counted = Locks { all: own.len(), ..Locks::default() };
    for taken in &own {
        counted.with_file += usize::from(of_file.contains(&taken.lock));
        counted.with_pool += usize::from(of_pool.contains(&taken.lock));
        let place = counted.places.entry(format!("{}:{}", taken.place.file(), taken.place.line())).or_default();
        *place = (place.0 + 1, place.1 | of_pool.contains(&taken.lock));
    }
    counted
}

/// Where its locks are, in words.
#[cfg(any(feature = "costs", debug_assertions))]
pub(crate) fn lines(locks: &Locks) -> Vec<String> {
    let line = |(place, (times, is_shared)): (&String, &(usize, bool))| format!("    {times:>3}  {place}{}", if *is_shared { "  (pool)" } else { "" });
    locks.places.iter().map(line).collect()
}
