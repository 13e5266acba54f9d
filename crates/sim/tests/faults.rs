//! One thing goes wrong, at every place in turn: the n-th read, write or flush of a device, the n-th allocation.
//!
//! # Theory
//! A short run (import, some work, export) on disks in memory, one thing at a time, is the same every time, so its I/Os and
//! allocations have numbers. For each number the run is repeated with a fault there. Nothing may panic or hang; what fails
//! says so; a sync that failed keeps failing. Then the faults are over: the pool can be imported, our checker finds it clean,
//! and it is what it was at one of the syncs: the last one that was acknowledged, or the one that was under way (of a file's, as much as the log has).
//! A mirror goes on instead, and nobody hears of it.
//!
//! Every number in turn takes minutes: `cargo test -p sim --test faults -- --ignored`. The fast run takes some of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sim::oracle::zdb_check;
use sim::places::say;
use sim::scenario::{Layout, MemoryDisks, contents};
use tarnfs::{Credentials, Error, FileKind, FileSystem, InodeNumber, Pool, RenameMode, WriteMode, XattrMode};

/// How many files are made and synced, one after the other.
const SYNCED_FILES: u64 = 3;
const LAYOUT: Layout = Layout { tops: 1, sides: 1, parity: 0, bytes: 64 << 20, ashift: 9 };

/// Tells contents apart.
fn sum_of(data: &[u8]) -> u64 {
    data.iter().fold(7u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)))
}

/// The file that is made and synced in a round, and its contents.
fn synced_file(round: u64) -> (String, Vec<u8>) {
    (format!("safe{round}"), contents(20 + round, [100, 30_000, 200_000][round as usize], 0))
}

/// Is `found` what was there `before`, and the beginning of what was being made safe when it failed: the next file, with none or the
/// first of its bytes? The log has as much of it as was written.
fn is_beginning_of_a_round(found: &str, before: &str) -> bool {
    let is_there = |name: &str| before.lines().any(|line| line.starts_with(&format!("/{name} ")));
    let Some((name, data)) = (0..SYNCED_FILES).map(synced_file).find(|(name, _)| !is_there(name)) else { return false };
    let (added, kept): (Vec<&str>, Vec<&str>) = found.lines().partition(|line| line.starts_with(&format!("/{name} ")));
    let [line] = added[..] else { return false };
    let bytes = line.split(' ').nth(2).and_then(|size| size.parse().ok()).and_then(|size: usize| data.get(..size));
    kept == before.lines().collect::<Vec<_>>() && bytes.is_some_and(|bytes| line == format!("/{name} 100644 {} 1 {:x} 0", bytes.len(), sum_of(bytes)))
}

/// What a file system holds, in words.
fn describe(fs: &FileSystem, directory: InodeNumber, path: &str, out: &mut String) -> Result<(), Error> {
    let mut names = Vec::new();
    fs.read_directory(directory, 2, &mut |entry| {
        names.push(entry.name);
        true
    })?;
    names.sort();
    for name in names {
        let stat = fs.lookup(directory, &name)?;
        let path = format!("{path}/{}", name.escape_ascii());
        let data = if stat.kind() == FileKind::Regular { fs.read(stat.inode, 0, stat.size as usize)? } else { Vec::new() };
        let sum = sum_of(&data);
        let attributes: usize = fs.listxattr(stat.inode)?.iter().map(|name| fs.getxattr(stat.inode, name).map(|value| value.len())).sum::<Result<usize, _>>()?;
        out.push_str(&format!("{path} {:o} {} {} {sum:x} {attributes}\n", stat.mode, stat.size, stat.links));
        if stat.kind() == FileKind::Directory {
            describe(fs, stat.inode, &path, out)?;
        }
        fs.forget(stat.inode, 1);
    }
    Ok(())
}

fn state_of(pool: &Arc<Pool>) -> Result<String, Error> {
    let fs = pool.file_system("tank")?;
    let mut out = String::new();
    describe(&fs, fs.root(), "", &mut out)?;
    Ok(out)
}

/// Syncs of one run, of the pool and of files: which were acknowledged, and what the pool was then.
#[derive(Default)]
struct Syncs {
    begun: usize,
    /// The last one of the pool.
    done: usize,
    /// The last one of either kind: what is there when the log was replayed.
    safe: usize,
    /// Filled by the run without faults.
    states: Vec<String>,
    record: bool,
}

impl Syncs {
    fn sync(&mut self, pool: &Arc<Pool>) -> Result<(), Error> {
        self.begun += 1;
        pool.sync()?;
        (self.done, self.safe) = (self.begun, self.begun);
        if self.record {
            self.states.push(state_of(pool)?);
        }
        Ok(())
    }

    /// The file is all that has changed since the sync before.
    fn fsync(&mut self, pool: &Arc<Pool>, fs: &FileSystem, file: InodeNumber) -> Result<(), Error> {
        self.begun += 1;
        fs.fsync(file)?;
        self.safe = self.begun;
        if self.record {
            self.states.push(state_of(pool)?);
        }
        Ok(())
    }
}

/// The work: blocks of several sizes, directories that grow into fat ZAPs, attributes, frees, a dataset that comes and goes.
fn work(pool: &Arc<Pool>, syncs: &mut Syncs) -> Result<(), Error> {
    let fs = pool.file_system("tank")?;
    let user = Credentials::root();
    let make = |directory: InodeNumber, name: &str, data: &[u8]| -> Result<(), Error> {
        let stat = fs.create(directory, name.as_bytes(), 0o100_644, 0, &user)?;
        fs.write(stat.inode, WriteMode::At(0), data, &user)?;
        fs.forget(stat.inode, 1);
        Ok(())
    };
    let directory = fs.mkdir(fs.root(), b"d", 0o755, &user)?.inode;
    for number in 0..6u64 {
        make(directory, &format!("f{number}"), &contents(number, [0, 100, 3000, 20_000, 150_000, 300_000][number as usize], number as u8 % 3))?;
    }
    syncs.sync(pool)?;
    let changed = fs.lookup(directory, b"f5")?.inode;
    fs.write(changed, WriteMode::At(100_000), &contents(9, 50_000, 0), &user)?;
    fs.setxattr(changed, b"user.a", &[7; 5000], XattrMode::Any)?;
    fs.rename(directory, b"f3", fs.root(), b"moved", RenameMode::NoReplace)?;
    fs.unlink(directory, b"f4")?;
    for number in 0..60 {
        make(directory, &format!("a-name-that-is-too-long-for-a-small-directory-because-it-has-more-than-fifty-bytes-{number}"), b"x")?;
    }
    syncs.sync(pool)?;
    for round in 0..SYNCED_FILES {
        let (name, data) = synced_file(round);
        let stat = fs.create(fs.root(), name.as_bytes(), 0o100_644, 0, &user)?;
        fs.write(stat.inode, WriteMode::At(0), &data, &user)?;
        syncs.fsync(pool, &fs, stat.inode)?;
        fs.forget(stat.inode, 1);
    }
    pool.create_file_system("tank/child", Vec::new())?;
    fs.truncate(changed, 1000, &user)?;
    fs.forget(changed, 1);
    syncs.sync(pool)?;
    pool.destroy_file_system("tank/child")?;
    for number in (0..60).step_by(2) {
        fs.unlink(directory, format!("a-name-that-is-too-long-for-a-small-directory-because-it-has-more-than-fifty-bytes-{number}").as_bytes())?;
    }
    fs.forget(directory, 1);
    syncs.sync(pool)
}

/// Import, work, export. `arm` is told of the pool when it is open.
fn run(disks: &MemoryDisks, syncs: &mut Syncs, arm: &dyn Fn(&Pool)) -> Result<(), Error> {
    let pool = disks.import(false)?;
    arm(&pool);
    let mut result = work(&pool, syncs);
    if result.is_ok() {
        result = pool.export();
    } else {
        // A failed sync is not forgotten: a pool that goes on would lose what it had acknowledged since.
        let failed = pool.sync().is_err();
        assert!(!failed || pool.sync().is_err(), "a pool that failed goes on");
        let _ = pool.file_system("tank").and_then(|fs| fs.mkdir(fs.root(), b"after", 0o755, &Credentials::root()).map(drop));
        pool.abandon();
    }
    result
}

/// The pool before the run, and the states that it passes through.
struct Story {
    disks: MemoryDisks,
    states: Vec<String>,
}

impl Story {
    fn new(layout: Layout) -> Story {
        let disks = MemoryDisks::create(layout, &[("recordsize", "16K"), ("xattr", "on")]);
        let mut syncs = Syncs { record: true, ..Syncs::default() };
        let pool = disks.snapshot().import(true).unwrap();
        syncs.states.push(state_of(&pool).unwrap());
        pool.export().unwrap();
        run(&disks.snapshot(), &mut syncs, &|_| ()).expect("the run without faults");
        assert!(syncs.states.windows(2).filter(|pair| pair[0] != pair[1]).count() >= 3, "the syncs make no difference");
        Story { disks, states: syncs.states }
    }

    /// Repeats the run with a fault. `true`: nobody noticed.
    fn with_fault(&self, what: &str, before: &dyn Fn(&MemoryDisks), arm: &dyn Fn(&Pool)) -> bool {
        let disks = self.disks.snapshot();
        let mut syncs = Syncs::default();
        before(&disks);
        let result = run(&disks, &mut syncs, arm);
        let after = disks.snapshot();
        let pool = after.import(true).unwrap_or_else(|error| panic!("{what}: the pool cannot be imported: {error}"));
        let report = pool.check(true, &|_| ()).unwrap_or_else(|error| panic!("{what}: check: {error}"));
        assert!(report.is_clean(), "{what}: {:?}", report.findings);
        let found = state_of(&pool).unwrap_or_else(|error| panic!("{what}: {error}"));
        pool.abandon();
        drop(pool);
        // After a sync that seemed to fail the group may be there all the same. Work that was not synced may be, too.
        let may = &self.states[syncs.done..=(syncs.begun).min(self.states.len() - 1)];
        assert!(may.contains(&found), "{what}: {} syncs of {} were acknowledged, and this is there:\n{found}", syncs.done, syncs.begun);
        let again = after.import(false).unwrap_or_else(|error| panic!("{what}: import for writing: {error}"));
        let replayed = state_of(&again).unwrap_or_else(|error| panic!("{what}: {error}"));
        let may = &self.states[syncs.safe..=(syncs.begun).min(self.states.len() - 1)];
        let begun = syncs.begun > syncs.safe && is_beginning_of_a_round(&replayed, &self.states[syncs.safe]);
        assert!(may.contains(&replayed) || begun, "{what}: sync {} of {} was acknowledged, and this is there after the log was replayed:\n{replayed}", syncs.safe, syncs.begun);
        again.export().unwrap_or_else(|error| panic!("{what}: the pool cannot be written afterwards: {error}"));
        result.is_ok()
    }

    fn zdb(&self, what: &str, before: &dyn Fn(&MemoryDisks), arm: &dyn Fn(&Pool)) {
        let disks = self.disks.snapshot();
        before(&disks);
        let _ = run(&disks, &mut Syncs::default(), arm);
        let directory = tempfile::tempdir().unwrap();
        let images = disks.to_images(directory.path());
        let images: Vec<&Path> = images.iter().map(PathBuf::as_path).collect();
        zdb_check(&images).expect_clean(what);
    }

    /// How many I/Os the run does on the first disk: reads, writes, flushes.
    fn counts(&self) -> [u64; 3] {
        let disks = self.disks.snapshot();
        run(&disks, &mut Syncs::default(), &|_| ()).unwrap();
        let faults = &disks.disk(0).faults;
        [faults.reads(), faults.writes(), faults.flushes()]
    }
}

/// What goes wrong with the first disk.
const DEVICE_FAULTS: [(&str, fn(&MemoryDisks, u64)); 4] = [
    ("read", |disks, n| disks.disk(0).faults.fail_read(n)),
    ("write", |disks, n| disks.disk(0).faults.fail_write(n)),
    ("flush", |disks, n| disks.disk(0).faults.fail_flush(n)),
    ("write and all after it", |disks, n| disks.disk(0).faults.fail_writes_from(n)),
];

/// `runs`: at most so many of each kind.
fn device_faults(layout: Layout, runs: u64) {
    let story = Story::new(layout);
    let thorough = runs == u64::MAX;
    let [reads, writes, flushes] = story.counts();
    for ((kind, fault), count) in DEVICE_FAULTS.into_iter().zip([reads, writes, flushes, writes]) {
        let step = count.div_ceil(runs).max(1);
        let mut unnoticed = 0;
        for n in (1..=count).step_by(step as usize) {
            let what = format!("{} sides, parity {}: {kind} {n} of {count} fails", layout.sides, layout.parity);
            let well = story.with_fault(&what, &|disks| fault(disks, n), &|_| ());
            assert!(well || layout.sides == 1, "{what}: a mirror does not mind, nor does parity");
            unnoticed += u64::from(well);
        }
        let middle = count / 2;
        if thorough || kind == "write" {
            story.zdb(&format!("{kind} {middle} fails"), &|disks| fault(disks, middle), &|_| ());
        }
        say(&format!("faults, {} sides, parity {}: {} of {count} {kind}s failed, {unnoticed} runs went well all the same", layout.sides, layout.parity, count.div_ceil(step)));
    }
}

/// Allocations that find no room: one, some in a row, all from there on.
fn allocation_faults(runs: u64) {
    let story = Story::new(LAYOUT);
    let count = {
        let disks = story.disks.snapshot();
        let pool = disks.import(false).unwrap();
        let allocator = pool.engine().context.io.allocator().clone();
        allocator.faults.watch();
        work(&pool, &mut Syncs::default()).unwrap();
        pool.export().unwrap();
        allocator.faults.count()
    };
    let thorough = runs == u64::MAX;
    assert!(count > 100, "only {count} allocations");
    for more in [0, 4, u64::MAX] {
        let step = count.div_ceil(runs).max(1);
        let mut unnoticed = 0;
        for n in (1..=count).step_by(step as usize) {
            let what = format!("allocation {n} of {count} fails, and {more} more");
            let arm = move |pool: &Pool| pool.engine().context.io.allocator().faults.fail(n, more);
            unnoticed += u64::from(story.with_fault(&what, &|_| (), &arm));
        }
        say(&format!("faults: {} of {count} allocations failed in turn, with {more} more; {unnoticed} runs went well all the same", count.div_ceil(step)));
        if !thorough && more > 0 {
            continue;
        }
        story.zdb(&format!("allocation {} and {more} more", count / 3), &|_| (), &|pool| pool.engine().context.io.allocator().faults.fail(count / 3, more));
    }
}

#[test]
fn some_device_faults() {
    device_faults(LAYOUT, 12);
    device_faults(Layout { sides: 2, ..LAYOUT }, 12);
}

#[test]
fn some_device_faults_of_raidz() {
    device_faults(Layout { sides: 3, parity: 1, ..LAYOUT }, 8);
    device_faults(Layout { sides: 5, parity: 2, ashift: 12, ..LAYOUT }, 8);
}

#[test]
fn some_allocation_faults() {
    allocation_faults(12);
}

/// All free space is in small pieces: everything larger is a gang block, that of the last passes too. A group did not end,
/// because each pass gave these new places.
#[test]
fn a_pool_in_small_pieces_goes_on() {
    let story = Story::new(LAYOUT);
    for largest in [512, 1024, 4096, 16 << 10] {
        let arm = move |pool: &Pool| pool.engine().context.io.allocator().faults.fragment(largest);
        assert!(story.with_fault(&format!("no room for more than {largest} bytes"), &|_| (), &arm), "{largest}: somebody noticed");
    }
    story.zdb("everything in pieces", &|_| (), &|pool| pool.engine().context.io.allocator().faults.fragment(1024));
}

/// The same on RAID-Z, where a header takes as many sectors as it has columns.
#[test]
fn a_raidz_pool_in_small_pieces_goes_on() {
    for (sides, parity) in [(3, 1), (5, 2)] {
        let story = Story::new(Layout { sides, parity, ..LAYOUT });
        for largest in [4096, 16 << 10] {
            let arm = move |pool: &Pool| pool.engine().context.io.allocator().faults.fragment(largest);
            assert!(story.with_fault(&format!("raidz{parity}: no room for more than {largest} bytes"), &|_| (), &arm), "{largest}: somebody noticed");
        }
        story.zdb(&format!("raidz{parity}: everything in pieces"), &|_| (), &|pool| pool.engine().context.io.allocator().faults.fragment(4096));
    }
}

#[test]
#[ignore = "long"]
fn every_device_fault() {
    for ashift in [9, 12] {
        device_faults(Layout { ashift, ..LAYOUT }, u64::MAX);
        device_faults(Layout { ashift, sides: 2, ..LAYOUT }, u64::MAX);
        device_faults(Layout { ashift, tops: 2, ..LAYOUT }, u64::MAX);
        device_faults(Layout { ashift, sides: 4, parity: 2, ..LAYOUT }, u64::MAX);
    }
}

#[test]
#[ignore = "long"]
fn every_allocation_fault() {
    allocation_faults(u64::MAX);
}
