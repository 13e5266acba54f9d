//! A pool that was closed leaves nothing behind: its parts held each other in a circle once, and ten threads of every pool
//! that a process ever opened stayed (600 pools in one test ran into the limit of mappings).

use std::time::{Duration, Instant};

use super::{CutDisk, DISK_BYTES, check, create, file_system, open};

/// Threads of pools, other tests' too.
fn pool_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("zio-")).count()
}

#[test]
fn a_closed_pool_leaves_no_threads() {
    let disk = CutDisk::new(vec![0; DISK_BYTES]);
    create(&disk).export().unwrap();
    let (mut opened, before) = (0, pool_threads());
    for _ in 0..20 {
        let pool = open(&disk, true);
        opened += 1;
        check(&pool, "read only");
        pool.abandon();
        let pool = open(&disk, false);
        opened += 1;
        drop(file_system(&pool));
        pool.export().unwrap();
    }
    // Those that end now, and those of the tests beside this one.
    let allowed = before + 5 * opened;
    let until = Instant::now() + Duration::from_secs(20);
    while pool_threads() > allowed {
        assert!(Instant::now() < until, "{} threads after {opened} pools were closed, {before} before", pool_threads());
        std::thread::sleep(Duration::from_millis(20));
    }
}
