//! The crash explorer, as much of it as is fast. The long run is `cargo xtask explore`.
//!
//! Each test takes another seed from `TARN_SEED`; a failure prints the command that repeats it.

use std::collections::HashMap;

use engine::canary::Canary;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sim::explore::campaign::LOG;
use sim::explore::disk::{Cutter, Event, Keep, Vices};
use sim::explore::judge::Promises;
use sim::explore::op::{End, Op};
use sim::explore::run::{LAYOUTS, Layout, Story, create};
use sim::explore::state::{Depth, Outcome, State, judge, judge_damaged, states};
use sim::explore::workload::{Workload, short_count};
use sim::explore::{Explorer, Kind, Plan, Report};
use sim::places::say;

fn seed() -> u64 {
    let seed = std::env::var("TARN_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| rand::random_range(0..1 << 40));
    println!("seed {seed}: TARN_SEED={seed} cargo test -p sim --test explore");
    seed
}

fn plan(kind: Kind, states: u64) -> Plan {
    Plan { seed: seed(), states, of_each: 30, write_every: 3, zdb_every: 0, threads: 2, canary: None, kind }
}

fn expect_clean(what: &str, report: &Report) {
    say(&format!("explore, {what}: {report}"));
    let failures: String = report.failures.iter().map(|failure| format!("\n{failure}")).collect();
    assert!(report.failures.is_empty(), "{what}:{failures}");
}

#[test]
fn random_workloads() {
    let report = Explorer::default().explore(&Plan { zdb_every: 60, ..plan(Kind::Random, 300) });
    expect_clean("random workloads", &report);
    assert!(report.states >= 300 && report.written > 10);
}

/// A scrub is under way, paused, at its end, while the machine fails.
#[test]
fn scrubbed_workloads() {
    let report = Explorer::default().explore(&Plan { zdb_every: 20, ..plan(Kind::Scrubbed, 150) });
    expect_clean("scrubs", &report);
    assert!(report.states >= 150 && report.written > 5);
}

/// A vdev is being removed, is gone, or was to go, while the machine fails.
#[test]
fn removals_of_vdevs() {
    let report = Explorer::default().explore(&Plan { zdb_every: 10, ..plan(Kind::Removing, 150) });
    expect_clean("removals of vdevs", &report);
    assert!(report.states >= 150 && report.written > 5);
}

#[test]
fn short_sequences() {
    let explorer = Explorer::default();
    expect_clean("sequences of one operation", &explorer.explore(&Plan { of_each: 2, ..plan(Kind::Sample(1), 60) }));
    expect_clean("sequences of two operations", &explorer.explore(&Plan { of_each: 2, ..plan(Kind::Sample(2), 60) }));
    expect_clean("sequences of three operations", &explorer.explore(&Plan { of_each: 2, ..plan(Kind::Sample(3), 60) }));
}

/// An explorer that finds nothing may be blind.
#[test]
fn bugs_on_purpose_are_found() {
    let explorer = Explorer::default();
    for (canary, words) in [(Canary::NoFlushBeforeUberblock, ""), (Canary::NoUberblock, ""), (Canary::NoFlushOfLog, "opened for writing")] {
        let report = explorer.explore(&Plan { canary: Some(canary), ..plan(Kind::Random, 3000) });
        say(&format!("explore, {canary:?}: found after {report}"));
        let failure = report.failures.first().unwrap_or_else(|| panic!("{canary:?} was not found in {} states", report.states));
        assert!(failure.reason.contains(words), "{canary:?}: {failure}");
        // What is printed leads back to it, and the bug is the reason.
        let text = failure.to_string();
        let again: Vec<&str> = text.rsplit_once("--workload ").expect("a command").1.split(" --state ").collect();
        let (workload, state) = (Workload::parse(again[0]).unwrap(), State::parse(again[1]).unwrap());
        assert_eq!((workload, state), (failure.workload, failure.state));
        let repeat = |canary| {
            let (story, images) = explorer.state(workload, state, canary).unwrap();
            Explorer::replay(&story, &images, workload, state)
        };
        assert!(repeat(Some(canary)).is_err(), "{canary:?}: it cannot be repeated: {failure}");
    }
}

/// A run is the same each time: else a failure could not be repeated.
#[test]
fn a_run_is_repeated_exactly() {
    let explorer = Explorer::default();
    let seed = seed();
    for workload in [Workload::Random(seed), Workload::Random(seed + 1)] {
        let tell = || {
            let story = explorer.tell(workload, None, Vices::default()).unwrap();
            let cut = State { cut: story.events.len() / 2, variant: 7 };
            let images = cut.images(&mut Cutter::new(&story.events, story.base.clone(), 0), seed);
            let mut chunks: Vec<(u64, Vec<u8>)> = images.iter().flat_map(|image| image.chunks().map(|(at, chunk)| (at, chunk.to_vec()))).collect();
            chunks.sort();
            (story.events.len(), states(&story).len(), chunks)
        };
        assert!(tell() == tell(), "{workload}: two runs differ");
    }
}

/// Flushes that do nothing: what is there afterwards is old or is refused, but it is nothing that never was.
#[test]
fn disks_that_lie_are_not_believed() {
    let (explorer, first) = (Explorer::default(), seed());
    let mut outcomes: HashMap<Outcome, u32> = HashMap::new();
    for workload in (first..first + 8).map(Workload::Random) {
        let story = explorer.tell(workload, None, Vices::default()).unwrap();
        let mut dice = ChaCha8Rng::seed_from_u64(workload.seed());
        for _ in 0..12 {
            let cut = dice.random_range(0..=story.events.len());
            let mut cutter = Cutter::new(&story.events, story.base.clone(), dice.random_range(1..80));
            cutter.advance(cut);
            let images = cutter.cut(Keep::Some, &mut dice);
            let outcome = judge_damaged(&story, &images, Promises::at(&story, cut));
            *outcomes.entry(outcome.unwrap_or_else(|reason| panic!("{workload}, cut {cut}: {reason}"))).or_default() += 1;
        }
    }
    say(&format!("explore, disks that lie: {outcomes:?}"));
    assert!(outcomes.contains_key(&Outcome::Refused) && outcomes.len() > 1, "the lies made no difference: {outcomes:?}");
}

/// Found by the explorer: a file was written, got a second name, and was made shorter; another file was synced. The log had the name, and
/// neither what was written, which had gone, nor the end of the file, which nobody had asked for.
#[test]
fn a_name_comes_with_what_its_file_was() {
    let path = |name: &str| name.to_owned();
    let create = |name| Op::Create { path: path(name) };
    let write = |offset, length| Op::Write { path: path("a"), offset, length, seed: 7 };
    let fsync = |name| Op::Fsync { path: path(name) };
    let ops = vec![
        create("a"),
        create("b"),
        write(0, 93),
        fsync("a"),
        fsync("b"),
        write(93, 1),
        Op::Link { old: path("a"), new: path("c") },
        Op::Truncate { path: path("a"), size: 37 },
        fsync("b"),
    ];
    let mut judged = 0;
    for layout in [&LAYOUTS[0], &LAYOUTS[4]] {
        let base = sim::explore::run::create(layout);
        let story = Story::tell(ops.clone(), &base, LOG, None, Vices::default());
        // Those of the last operation, one for each cut.
        let is_of_interest = |state: &State| state.variant == 0 && Promises::at(&story, state.cut).begun == ops.len();
        for state in states(&story).into_iter().filter(is_of_interest) {
            let images = state.images(&mut Cutter::new(&story.events, story.base.clone(), 0), 0);
            let depth = Depth { write: true, ..Depth::default() };
            let judgement = judge(&story, &images, Promises::at(&story, state.cut), depth, &mut state.dice(0));
            judgement.unwrap_or_else(|reason| panic!("{}, {state}: {reason}", layout.name));
            judged += 1;
        }
    }
    assert!(judged > 10, "{judged}");
}

/// Bits flip: one disk notices, a mirror does not mind.
#[test]
fn bits_that_flip_are_noticed() {
    let first = seed();
    let mut outcomes: HashMap<(usize, Outcome), u32> = HashMap::new();
    for layout in &LAYOUTS[..2] {
        let base = create(layout);
        for number in first..first + 3 {
            let ops = Workload::Random(number).ops().unwrap();
            let story = Story::tell(ops, &base, LOG, None, Vices::default());
            let mut dice = ChaCha8Rng::seed_from_u64(number);
            for round in 0..12 {
                let mut cutter = Cutter::new(&story.events, story.base.clone(), 0);
                cutter.advance(story.events.len());
                let mut images = cutter.cut(Keep::Everything, &mut dice);
                let mut chunks: Vec<u64> = images[0].chunks().map(|(at, _)| at).collect();
                chunks.sort_unstable();
                for _ in 0..1 << round {
                    let at = chunks[dice.random_range(0..chunks.len())] + dice.random_range(0..4096);
                    let mut byte = [0];
                    images[0].read(at, &mut byte);
                    images[0].write(at, &[byte[0] ^ 1 << dice.random_range(0..8)]);
                }
                let what = format!("{}, workload random:{number}, round {round}", layout.name);
                let outcome = judge_damaged(&story, &images, Promises::at(&story, story.events.len())).unwrap_or_else(|reason| panic!("{what}: {reason}"));
                assert!(layout.sides == 1 || outcome == Outcome::Kept, "{what}: {outcome:?}");
                *outcomes.entry((layout.sides, outcome)).or_default() += 1;
            }
        }
    }
    say(&format!("explore, bits that flip (sides, outcome): {outcomes:?}"));
    assert!(outcomes.contains_key(&(1, Outcome::Refused)), "nobody noticed: {outcomes:?}");
}

/// Whatever fails, what was acknowledged before is there when the disk works again. A mirror goes on.
#[test]
fn errors_of_disks_lose_nothing() {
    let first = seed();
    let mut stopped = 0;
    for (number, layout) in (first..).zip([LAYOUTS[0], LAYOUTS[1], LAYOUTS[2]].iter().cycle().take(9)) {
        let base = create(layout);
        let ops = Workload::Random(number).ops().unwrap();
        let mut dice = ChaCha8Rng::seed_from_u64(number);
        for kind in 0..3 {
            let nth = Some(dice.random_range(1..[200, 100, 20][kind]));
            let vices = match kind {
                0 => Vices { write_error: nth, ..Vices::default() },
                1 => Vices { read_error: nth, ..Vices::default() },
                _ => Vices { flush_error: nth, ..Vices::default() },
            };
            stopped += u32::from(one_error(layout, &base, ops.clone(), vices, number));
        }
    }
    // A log device that fails is done without: nothing stops, nothing is lost.
    for (number, layout) in (first + 9..).zip(&LAYOUTS[4..6]) {
        let base = create(layout);
        let nth = Some(rand::rngs::StdRng::seed_from_u64(number).random_range(1..60));
        for vices in [Vices { disk: 1, write_error: nth, ..Vices::default() }, Vices { disk: 1, flush_error: nth, ..Vices::default() }] {
            one_error(layout, &base, Workload::Random(number).ops().unwrap(), vices, number);
        }
    }
    say(&format!("explore: {stopped} of 27 runs were stopped by errors of a disk"));
    assert!(stopped > 3, "only {stopped} runs were stopped");
}

fn one_error(layout: &Layout, base: &[sim::explore::disk::Image], ops: Vec<Op>, vices: Vices, number: u64) -> bool {
    let what = format!("{}, workload random:{number}, {vices:?}", layout.name);
    let story = Story::tell(ops, base, LOG, None, vices);
    assert!((layout.sides == 1 && vices.disk == 0) || story.stopped.is_none(), "{what}: a mirror, and a pool whose log device fails, go on: {:?}", story.stopped);
    let mut dice = ChaCha8Rng::seed_from_u64(number);
    for keep in [Keep::Nothing, Keep::Everything, Keep::Some] {
        let mut cutter = Cutter::new(&story.events, story.base.clone(), 0);
        cutter.advance(story.events.len());
        let images = cutter.cut(keep, &mut dice);
        let depth = Depth { write: true, ..Depth::default() };
        let judged = judge(&story, &images, Promises::at(&story, story.events.len()), depth, &mut dice);
        judged.unwrap_or_else(|reason| panic!("{what}, {keep:?}: {reason}"));
    }
    story.stopped.is_some()
}

/// The installation of a package, cut off at every write: the old one is there, or the new one.
#[test]
fn a_transaction_is_there_or_is_not_wherever_the_power_goes() {
    let at = |path: &str| path.to_owned();
    let mut ops = vec![Op::Mkdir { path: at("bin") }, Op::Mkdir { path: at("etc") }];
    for (path, seed) in [("bin/tool", 1), ("bin/helper", 2), ("etc/conf", 3)] {
        ops.extend([Op::Create { path: at(path) }, Op::Write { path: at(path), offset: 0, length: 30_000, seed }]);
    }
    let replaced = vec![
        Op::Rename { old: at("bin/tool"), new: at("bin/tool.old") },
        Op::Create { path: at("bin/tool") },
        Op::Write { path: at("bin/tool"), offset: 0, length: 50_000, seed: 4 },
        Op::Chmod { path: at("bin/tool"), mode: 0o755 },
        Op::Write { path: at("etc/conf"), offset: 29_000, length: 3000, seed: 5 },
        Op::Unlink { path: at("bin/helper") },
        Op::Mkdir { path: at("share") },
        Op::Symlink { path: at("share/link"), target: at("../bin/tool") },
        Op::SetXattr { path: at("bin/tool"), name: at("user.version"), length: 9, seed: 6 },
        Op::Unlink { path: at("bin/tool.old") },
    ];
    ops.extend([Op::Sync, Op::Transaction { ops: replaced, end: End::Durable }]);
    let seed = seed();
    let base = create(&LAYOUTS[seed as usize % LAYOUTS.len()]);
    let story = Story::tell(ops, &base, LOG, None, Vices::default());
    let last = story.ops.len() - 1;
    let begun = story.events.iter().position(|event| matches!(event, Event::Begin(number) if *number == last)).unwrap();
    let mut cutter = Cutter::new(&story.events, story.base.clone(), 0);
    let mut count = 0;
    for state in states(&story).into_iter().filter(|state| state.cut > begun && (state.variant < 2 || (state.cut as u64 + seed) % 5 == state.variant as u64)) {
        let images = state.images(&mut cutter, seed);
        let depth = Depth { write: state.cut % 8 == 0, ..Depth::default() };
        let judged = judge(&story, &images, Promises::at(&story, state.cut), depth, &mut state.dice(seed));
        judged.unwrap_or_else(|reason| panic!("state {state} of {}, TARN_SEED={seed}: {reason}", story.events.len()));
        count += 1;
    }
    say(&format!("explore: a transaction of ten changes, cut off in {count} states"));
    assert!(count > 50, "{count}");
}

/// Time does not matter.
#[test]
fn a_slow_disk_is_only_slow() {
    let number = seed();
    let ops = Workload::Random(number).ops().unwrap();
    let slow = Vices { slow_us: 300, ..Vices::default() };
    let story = Story::tell(ops, &create(&LAYOUTS[2]), LOG, None, slow);
    assert!(story.stopped.is_none(), "{:?}", story.stopped);
    let mut cutter = Cutter::new(&story.events, story.base.clone(), 0);
    cutter.advance(story.events.len());
    let images = cutter.cut(Keep::Nothing, &mut ChaCha8Rng::seed_from_u64(1));
    judge(&story, &images, Promises::at(&story, story.events.len()), Depth::default(), &mut ChaCha8Rng::seed_from_u64(1)).unwrap();
}

/// The alphabet of the short sequences is not smaller than it was.
#[test]
fn there_are_sequences_enough() {
    assert!(short_count(1) >= 300 && short_count(2) >= 14_000);
}
