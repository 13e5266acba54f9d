//! What one operation costs: `cargo bench -p tarnfs --features costs --bench costs [-- -v]`.
//!
//! A table of locks and allocations of each operation of the library on a pool in memory; `-v` says where each lock is taken. Without the feature only
//! times are printed, which are those of the library as users have it: `cargo bench -p tarnfs --bench costs`. `docs/performance.md` explains the columns.

use std::time::Instant;

mod shared;

use shared::{OPERATIONS, Operation, Place, Rig, nothing};

#[allow(clippy::disallowed_methods)] // a program that measures
fn nanoseconds(operation: &Operation, at: &Place, first: u64) -> u64 {
    let mut sum = 0;
    if operation.before as *const () == nothing as *const () {
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

/// The columns of an operation beside its time, and where its locks are.
#[cfg(not(feature = "costs"))]
fn count(_: &Operation, _: &[Place; 3]) -> (String, Vec<String>) {
    Default::default()
}

#[cfg(feature = "costs")]
fn count(operation: &Operation, places: &[Place; 3]) -> (String, Vec<String>) {
    use std::sync::Mutex;

    // The operation is done in the last place last: what counts is the first one's.
    let allocated = Mutex::new(None);
    let measure = |run: &dyn Fn()| {
        let info = allocation_counter::measure(run);
        allocated.lock().expect("nobody panicked").get_or_insert(info);
    };
    let locks = shared::count_locks(operation, places, 1 << 32, measure);
    let info = allocated.into_inner().expect("nobody panicked").unwrap_or_default();
    let columns = format!("{:>8}{:>8}{:>8}{:>8}{:>10}", locks.all, locks.with_file, locks.with_pool, info.count_total, info.bytes_total);
    (columns, shared::lines(&locks))
}

fn main() {
    let is_verbose = std::env::args().any(|argument| argument == "-v");
    let rig = Rig::new();
    println!("{:<28}{:>8}{:>8}{:>8}{:>8}{:>8}{:>10}", "", "ns", "locks", "file", "pool", "allocs", "bytes");
    for operation in &OPERATIONS {
        let (columns, lines) = count(operation, &rig.places);
        println!("{:<28}{:>8}{columns}", operation.name, nanoseconds(operation, &rig.places[0], 0));
        lines.iter().filter(|_| is_verbose).for_each(|line| println!("{line}"));
    }
    rig.end();
}
