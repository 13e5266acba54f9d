//! Verbs on datasets that a loss of power cuts off, as many as are fast. All of them: `cargo xtask explore --verbs`.
//!
//! Each test takes another seed from `TARN_SEED`; a failure prints the command that repeats it.

use engine::canary::Canary;
use sim::explore::state::State;
use sim::life::crash::{Explorer, FAR, Plan, Report, Workload, first_pair, pair_count};
use sim::places::say;

fn seed() -> u64 {
    let seed = std::env::var("TARN_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| rand::random_range(0..1 << 40));
    println!("seed {seed}: TARN_SEED={seed} cargo test -p sim --test verbs");
    seed
}

fn plan(first: Workload, states: u64) -> Plan {
    Plan { first, numbers: 0..u64::MAX, states, of_each: 6, one_of_each_cut: false, write_every: 2, zdb_every: 0, threads: 2, canary: None, step: FAR }
}

fn expect_clean(what: &str, report: &Report) {
    say(&format!("verbs, {what}: {report}"));
    assert!(report.failures.is_empty(), "{what}:\n{}", report.failures.join("\n"));
}

#[test]
fn pairs_of_verbs() {
    let explorer = Explorer::default();
    let first = Workload::Pair(seed() % pair_count());
    let report = explorer.explore(&Plan { zdb_every: 60, ..plan(first, 240) });
    expect_clean("pairs", &report);
    assert!(report.states >= 240 && report.written > 50);
}

#[test]
fn random_verbs() {
    let explorer = Explorer::default();
    let report = explorer.explore(&plan(Workload::Random(seed()), 120));
    expect_clean("random", &report);
}

/// The bug is found among the pairs that begin with a verb, and what is printed leads back to it.
fn find(canary: Canary, verb: &str) {
    let explorer = Explorer::default();
    let first = first_pair(verb).expect("a pair");
    let report = explorer.explore(&Plan { canary: Some(canary), of_each: 20, step: 1, ..plan(first, 500) });
    say(&format!("verbs, {canary:?}: found after {report}"));
    let failure = report.failures.first().unwrap_or_else(|| panic!("{canary:?} was not found in {} states", report.states));
    let again: Vec<&str> = failure.rsplit_once("--workload ").unwrap_or_else(|| panic!("no command: {failure}")).1.split(" --state ").collect();
    let (workload, state) = (Workload::parse(again[0]).expect("a workload"), State::parse(again[1]).expect("a state"));
    assert!(explorer.replay(workload, state, Some(canary)).is_err(), "{canary:?}: it cannot be repeated: {failure}");
    // Without it, a run may be shorter.
    if let Err(reason) = explorer.replay(workload, state, None) {
        assert!(reason.starts_with("there are only"), "{canary:?}: without it, too: {reason}");
    }
}

/// An explorer that finds nothing may be blind.
#[test]
fn a_bug_on_purpose_is_found() {
    find(Canary::NoUberblock, "create");
}

#[test]
#[ignore = "long on a busy machine"]
fn bugs_on_purpose_are_found() {
    find(Canary::SnapshotsOneByOne, "snapshot");
    find(Canary::PromoteMovesNoSpace, "promote");
    find(Canary::DestroyedSnapshotKeepsBlocks, "destroy snapshots");
    find(Canary::HalfReceivedStays, "receive");
}

/// A run is the same each time: else a failure could not be repeated.
#[test]
fn a_run_is_repeated_exactly() {
    let explorer = Explorer::default();
    let first = seed();
    for workload in [Workload::Pair(first % pair_count()), Workload::Pair((first + 1) % pair_count()), Workload::Random(first)] {
        let (one, two) = (explorer.tell(workload, None), explorer.tell(workload, None));
        assert!(one.verbs == two.verbs && one.events.len() == two.events.len(), "{workload}: {} events, and {}", one.events.len(), two.events.len());
    }
}
