//! Threads that work at once, groups that end by themselves, and the power that goes under them.
//!
//! # Theory
//! The crash explorer does one thing at a time. Here threads do random operations, each in a directory of its own, in two file systems of one pool,
//! while one more syncs files of theirs, and a group ends every few milliseconds: rounds of the log are in flight beside each other and beside the groups. The
//! power goes at any event, with any of what was not flushed; what is left must be, for each thread, what the explorer's judge allows.
//! A file that others sync may be a mixture of what it was since it was last synced by its own thread, byte by byte.
//!
//! `TARN_SEED=N` chooses the operations and the cuts (how the threads race it does not); `TARN_ROUNDS=N` does more of them.
#![allow(clippy::disallowed_methods)] // real threads are what is tested

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use disk::DiskRef;
use engine::host::RealHost;
use engine::pool::import::discover;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sim::explore::disk::{Cutter, Event, Image, Keep, Recorder};
use sim::explore::judge::{Promises, Seen};
use sim::explore::op::{Doer, Op};
use sim::explore::run::{LAYOUTS, Layout, Story, create, recording, tunables};
use sim::explore::state::store;
use sim::explore::workload::random_of;
use sim::explore::world::World;
use sim::oracle;
use sim::places::say;
use tarnfs::{Credentials, FileSystem, ImportOptions, InodeNumber, Pool, Tunables};

const THREADS: usize = 4;
/// Events of one thread are numbered from a multiple of this on.
const PART: usize = 1_000_000;
const DATASETS: [&str; 2] = ["tank", "tank/other"];
const CUTS: usize = 10;
const GROUP_NS: u64 = 4_000_000;

fn import(images: &[Image], recorder: &Arc<Recorder>, slow_us: u64, read_only: bool) -> Arc<Pool> {
    let disks = recording(images, recorder, slow_us);
    let candidates = discover(disks.iter().map(|disk| disk.clone() as DiskRef).collect());
    let candidate = candidates.into_iter().next().expect("a pool");
    let tunables = Tunables { txg_timeout_ns: GROUP_NS, ..tunables(None) };
    let options = ImportOptions { read_only, force: true, tunables: Some(tunables), ..ImportOptions::default() };
    Pool::import_on(candidate, options, RealHost::shared()).unwrap_or_else(|error| panic!("import: {error}")).0
}

fn directory(fs: &FileSystem, thread: usize) -> InodeNumber {
    fs.lookup(fs.root(), format!("t{thread}").as_bytes()).unwrap_or_else(|error| panic!("t{thread}: {error}")).inode
}

/// Of several steps, or of several threads: neither is there as a whole.
fn is_one_step(op: &Op) -> bool {
    !matches!(op, Op::Clone { .. } | Op::Transaction { .. })
}

/// Syncs what others work on.
fn sync_others(pool: &Pool, seed: u64, done: &AtomicBool) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let systems = DATASETS.map(|name| pool.file_system(name).expect(name));
    while !done.load(Ordering::SeqCst) {
        let thread = random.random_range(0..THREADS);
        let fs = &systems[thread % 2];
        let mut inodes = Vec::new();
        let listed = fs.read_directory(directory(fs, thread), 2, &mut |entry| {
            inodes.push(entry.inode);
            true
        });
        listed.expect("a directory");
        if random.random_range(0..6) == 0 || inodes.is_empty() {
            fs.commit().expect("a commit");
        } else {
            // It may be gone.
            let _ = fs.fsync(inodes[random.random_range(0..inodes.len())]);
        }
        std::thread::sleep(std::time::Duration::from_micros(random.random_range(0..1500)));
    }
}

/// What came to the disks, and from which event on the power may go.
struct Tale {
    stories: Vec<Story>,
    base: Vec<Image>,
    events: Vec<Event>,
    begin: usize,
}

fn tell(layout: &Layout, seed: u64) -> Tale {
    let (base, recorder) = (create(layout), Arc::new(Recorder::default()));
    // Every third time on disks that take milliseconds: there blocks of the log, and writes of a group, go beside each other.
    let slow_us = if seed.is_multiple_of(3) { 3000 } else { 150 };
    let pool = import(&base, &recorder, slow_us, false);
    pool.create_file_system(DATASETS[1], Vec::new()).expect("another file system");
    let systems = DATASETS.map(|name| pool.file_system(name).expect(name));
    for thread in 0..THREADS {
        let fs = &systems[thread % 2];
        fs.mkdir(fs.root(), format!("t{thread}").as_bytes(), 0o755, &Credentials::root()).expect("a directory");
    }
    pool.sync().expect("a sync");
    let begin = recorder.count();
    let ops: Vec<Vec<Op>> = (0..THREADS).map(|thread| random_of(World::default(), seed ^ (thread as u64) << 50, &is_one_step)).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (pool, fs, ops, recorder) = (&pool, &systems[thread % 2], &ops[thread], &recorder);
                scope.spawn(move || {
                    let doer = Doer::below(pool, fs, directory(fs, thread), true);
                    for (number, op) in ops.iter().enumerate() {
                        recorder.note(Event::Begin(thread * PART + number));
                        doer.run(op).unwrap_or_else(|error| panic!("thread {thread}: {op:?}: {error}"));
                        recorder.note(Event::End(thread * PART + number));
                    }
                })
            })
            .collect();
        let (pool, done) = (&pool, &done);
        scope.spawn(move || sync_others(pool, seed, done));
        let ended: Vec<_> = workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::SeqCst);
        assert!(ended.iter().all(Result::is_ok), "seed {seed}: a thread failed");
    });
    drop(systems);
    pool.abandon();
    let story = |ops| Story { is_shared: true, ..Story::of(ops, World::default(), &[], Vec::new()) };
    Tale { stories: ops.into_iter().map(story).collect(), base, events: recorder.take(), begin }
}

impl Tale {
    fn promises(&self, thread: usize, cut: usize) -> Promises {
        let mut promises = Promises { begun: 0, ended: 0 };
        for event in &self.events[..cut] {
            match event {
                Event::Begin(number) if number / PART == thread => promises.begun = number % PART + 1,
                Event::End(number) if number / PART == thread => promises.ended = number % PART + 1,
                _ => {}
            }
        }
        promises
    }

    fn judge(&self, images: &[Image], cut: usize, what: &str, ask_zdb: bool) {
        let pool = import(images, &Arc::default(), 0, true);
        check(&pool, what);
        pool.abandon();
        if ask_zdb {
            let place = tempfile::tempdir().expect("a directory");
            let paths = store(images, place.path()).expect("images");
            oracle::zdb_check_crashed(&paths.iter().map(PathBuf::as_path).collect::<Vec<_>>()).expect_clean(what);
        }
        let pool = import(images, &Arc::default(), 0, false);
        for (thread, story) in self.stories.iter().enumerate() {
            let fs = pool.file_system(DATASETS[thread % 2]).expect("a file system");
            let seen = Seen::read_below(&fs, directory(&fs, thread)).unwrap_or_else(|error| panic!("{what}: thread {thread}: {error}"));
            let promises = self.promises(thread, cut);
            promises.allow_replayed(story, &seen).unwrap_or_else(|reason| {
                // Where it would have been right to stop, to help find the reason.
                let fits = |begun: &usize| Promises { begun: *begun, ended: 0 }.allow_replayed(story, &seen).is_ok();
                let before = (0..=promises.begun).find(fits);
                let ops: String = story.ops.iter().take(promises.begun).enumerate().map(|(number, op)| format!("\n    {number}: {op:?}")).collect();
                panic!("{what}: thread {thread} of {}: {reason}\n  it is as after {before:?} operations{ops}", DATASETS[thread % 2])
            });
        }
        pool.sync().unwrap_or_else(|error| panic!("{what}: {error}"));
        check(&pool, &format!("{what}: replayed"));
        pool.abandon();
    }
}

fn check(pool: &Pool, what: &str) {
    let report = pool.check(true, &|_| ()).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(report.is_clean(), "{what}: {:#?}", report.findings);
}

/// A run, and what is left of it after cuts. Counts the states, and the operations that had ended.
fn race(layout: &Layout, seed: u64, counts: &mut (usize, usize)) {
    let tale = tell(layout, seed);
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut cuts: Vec<usize> = (0..CUTS).map(|_| random.random_range(tale.begin..=tale.events.len())).collect();
    cuts.sort_unstable();
    let mut cutter = Cutter::new(&tale.events, tale.base.clone(), 0);
    for cut in cuts {
        cutter.advance(cut);
        let keep = [Keep::Nothing, Keep::Everything, Keep::Newest, Keep::AllButOldest, Keep::Some, Keep::Some][random.random_range(0..6)];
        let images = cutter.cut(keep, &mut random);
        let what = format!("{}, seed {seed}, cut {cut} of {}, {keep:?}", layout.name, tale.events.len());
        tale.judge(&images, cut, &what, counts.0 % 40 == 7);
        counts.0 += 1;
        counts.1 += (0..THREADS).map(|thread| tale.promises(thread, cut).ended).sum::<usize>();
    }
}

fn race_on(test: &str, layouts: &[&Layout], rounds: u64) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let (first, rounds) = (number("TARN_SEED").unwrap_or_else(|| rand::random_range(0..1 << 40)), number("TARN_ROUNDS").unwrap_or(rounds));
    println!("TARN_SEED={first} TARN_ROUNDS={rounds} cargo test -p sim --test racing {test}");
    let mut counts = (0, 0);
    for seed in first..first + rounds {
        race(layouts[seed as usize % layouts.len()], seed, &mut counts);
    }
    say(&format!("racing: {} states of {rounds} runs, {} operations that had ended", counts.0, counts.1));
    assert!(counts.1 > counts.0, "hardly anything was done before a cut");
}

#[test]
fn what_racing_threads_were_told_is_there() {
    race_on("what_racing", &LAYOUTS.iter().collect::<Vec<_>>(), 7);
}

/// Several threads make blocks of the log that are not full, and lie one behind the other. On RAID-Z they were once written as on a mirror: in part, or
/// several as one, which is elsewhere than where a block is read.
#[test]
fn a_log_on_raidz_is_there() {
    race_on("a_log_on_raidz", &LAYOUTS.iter().filter(|layout| layout.parity > 0).collect::<Vec<_>>(), 3);
}
