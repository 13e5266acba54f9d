//! What one operation costs: `cargo bench -p tarnfs --features costs --bench costs [-- -v]`.
//!
//! A table of locks and allocations of each operation of the library on a pool in memory; `-v` says where each lock is taken. Without the feature only
//! times are printed, which are those of the library as users have it: `cargo bench -p tarnfs --bench costs`. `docs/performance.md` explains the columns.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

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
struct Place {
    fs: Arc<FileSystem>,
    file: InodeNumber,
    name: String,
}

/// One kind of operation: what is done before each, and what is measured. The number says which one it is.
struct Operation {
    name: &'static str,
    times: u64,
    before: fn(&Place, u64),
    run: fn(&Place, u64),
}

fn nothing(_: &Place, _: u64) {}

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

const OPERATIONS: [Operation; 12] = [
    Operation { name: "read 4 KB, cached", times: TIMES, before: nothing, run: |at, nth| read(at, anywhere(nth, BLOCK), 4096) },
    Operation { name: "read 2 KB, cached", times: TIMES, before: nothing, run: |at, nth| read(at, anywhere(nth, 2048), 2048) },
    Operation { name: "stat", times: TIMES, before: nothing, run: |at, _| drop(at.fs.getattr(at.file).expect("stat")) },
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
const LOCKS_MAX: [(&str, usize); 5] =
    [("read 4 KB, cached", 10), ("stat", 5), ("write 4 KB, dirty block", 15), ("write 4 KB, anywhere", 20), ("write 1 to 8 KB, anywhere", 15)];

#[allow(clippy::disallowed_methods)] // a program that measures
fn nanoseconds(operation: &Operation, at: &Place, first: u64) -> u64 {
    let mut sum = 0;
    if operation.before as usize == nothing as usize {
        let begin = Instant::now();
        (first..first + operation.times).for_each(|nth| (operation.run)(at, nth));
        sum = begin.elapsed().as_nanos();
    } else {
        for nth in first..first + operation.times {
            (operation.before)(at, nth);
            let begin = Instant::now();
            (operation.run)(at, nth);
            sum += begin.elapsed().as_nanos();
        }
    }
    sum as u64 / operation.times
}

/// What one operation takes.
#[derive(Default)]
struct Counted {
    locks: usize,
    /// Of these, the locks that the same operation on another file takes too.
    with_file: usize,
    /// The locks that the same operation in another file system of the pool takes too.
    with_pool: usize,
    allocations: u64,
    allocated: u64,
    places: BTreeMap<String, (usize, bool)>,
}

#[cfg(not(feature = "costs"))]
fn count(_: &Operation, _: [&Place; 3], _: u64) -> Counted {
    Counted::default()
}

/// Does an operation in each of three places, each on a thread of its own: two files of one file system, and one of another.
#[cfg(feature = "costs")]
#[allow(clippy::disallowed_methods)] // a program that measures
fn count(operation: &Operation, places: [&Place; 3], nth: u64) -> Counted {
    use parking_lot::counting::{Taken, record};
    use std::collections::HashSet;

    let once = |at: &Place| {
        (operation.before)(at, nth);
        (operation.run)(at, nth);
        (operation.before)(at, nth + 1);
        let mut allocated = allocation_counter::AllocationInfo::default();
        let taken = record(|| allocated = allocation_counter::measure(|| (operation.run)(at, nth + 1)));
        (taken, allocated)
    };
    let [own, of_file, of_pool] = places.map(|at| std::thread::scope(|scope| scope.spawn(|| once(at)).join().expect("an operation")));
    let locks = |taken: &[Taken]| taken.iter().map(|taken| taken.lock).collect::<HashSet<_>>();
    let (of_file, of_pool) = (locks(&of_file.0), locks(&of_pool.0));
    let mut counted = Counted { locks: own.0.len(), allocations: own.1.count_total, allocated: own.1.bytes_total, ..Counted::default() };
    for taken in &own.0 {
        counted.with_file += usize::from(of_file.contains(&taken.lock));
        counted.with_pool += usize::from(of_pool.contains(&taken.lock));
        let place = counted.places.entry(format!("{}:{}", taken.place.file(), taken.place.line())).or_default();
        *place = (place.0 + 1, place.1 | of_pool.contains(&taken.lock));
    }
    counted
}

fn place(pool: &Pool, name: &str, file: &str) -> Place {
    let fs = pool.file_system(name).expect("the file system");
    let inode = fs.create(fs.root(), file.as_bytes(), 0o100_644, 0, &Credentials::root()).expect("a file").inode;
    let at = Place { fs, file: inode, name: file.to_owned() };
    (0..FILE_BYTES / 8192).for_each(|nth| write(&at, nth * 8192, 8192));
    at
}

fn main() {
    let is_verbose = std::env::args().any(|argument| argument == "-v");
    let leaf = |disk: DiskRef| NewLeaf { disk, path: "/costs".into(), whole_disk: false };
    let top = NewTop { leaves: vec![leaf(Arc::new(MemDisk::new("costs", 4 << 30)))], ashift: Some(12), is_log: false };
    // No group ends by itself.
    let tunables = Tunables { txg_timeout_ns: u64::MAX / 2, ..Tunables::default() };
    let options = CreateOptions { tunables: Some(tunables), ..CreateOptions::default() };
    let pool = Pool::create_on("costs", vec![top], options, RealHost::shared()).expect("the pool");
    pool.create_file_system("costs/other", Vec::new()).expect("another file system");
    let own = place(&pool, "costs", "own");
    let (neighbour, other) = (place(&pool, "costs", "neighbour"), place(&pool, "costs/other", "other"));
    pool.sync().expect("sync");
    println!("{:<28}{:>8}{:>8}{:>8}{:>8}{:>8}{:>10}", "", "ns", "locks", "file", "pool", "allocs", "bytes");
    let mut too_many = Vec::new();
    for operation in &OPERATIONS {
        let counted = count(operation, [&own, &neighbour, &other], 1 << 32);
        let took = nanoseconds(operation, &own, 0);
        let Counted { locks, with_file, with_pool, allocations, allocated, .. } = counted;
        println!("{:<28}{took:>8}{locks:>8}{with_file:>8}{with_pool:>8}{allocations:>8}{allocated:>10}", operation.name);
        let limit = LOCKS_MAX.iter().find(|(name, _)| *name == operation.name);
        if limit.is_some_and(|(_, max)| locks > *max || with_pool > 0) {
            too_many.push(operation.name);
        }
        if is_verbose {
            for (place, (times, is_shared)) in &counted.places {
                println!("    {times:>3}  {place}{}", if *is_shared { "  (pool)" } else { "" });
            }
        }
    }
    drop((own, neighbour, other));
    pool.export().expect("export");
    assert!(too_many.is_empty(), "more locks than LOCKS_MAX allows: {too_many:?}");
}
