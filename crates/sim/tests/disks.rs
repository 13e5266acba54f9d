//! Damage campaigns: within the redundancy nothing is lost or wrong, beyond it what is lost is named.
//!
//! `TARN_SEED=N TARN_ROUNDS=N` chooses the rounds. A thousand of them:
//! `TARN_ROUNDS=1000 cargo test -p sim --test disks -- --ignored --nocapture`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sim::campaign::{Round, Tally};
use sim::places::say;

/// The real `zdb` looks at one of so many.
const ZDB_EVERY: u64 = 25;
/// How a long campaign goes is said after so many.
const SAID_EVERY: u64 = 25;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

fn round(seed: u64, sum: &mut Tally) -> Result<(), String> {
    let mut round = Round::new(seed);
    let steps = ChaCha8Rng::seed_from_u64(!seed).random_range(10..50);
    let judged = catch_unwind(AssertUnwindSafe(|| {
        round.run(steps)?;
        if seed.is_multiple_of(ZDB_EVERY) {
            round.judge_by_zdb(&format!("seed {seed}"));
        }
        round.judge_beyond()
    }));
    let tally = round.tally;
    sum.steps += tally.steps;
    sum.harm += tally.harm;
    sum.cuts += tally.cuts;
    sum.exchanged += tally.exchanged;
    sum.rebuilt += tally.rebuilt;
    sum.spared += tally.spared;
    sum.reshaped += tally.reshaped;
    sum.checkpoints += tally.checkpoints;
    sum.alone += tally.alone;
    sum.lost += tally.lost;
    judged.unwrap_or_else(|_| Err("a panic".to_owned())).map_err(|error| {
        let story = round.story.join("\n    ");
        format!("TARN_SEED={seed} TARN_ROUNDS=1 cargo test -p sim --test disks: {error}\n    {story}")
    })
}

fn campaign(rounds: u64) {
    let (first, rounds) = (number("TARN_SEED").unwrap_or_else(|| rand::random_range(0..1 << 40)), number("TARN_ROUNDS").unwrap_or(rounds));
    println!("TARN_SEED={first} TARN_ROUNDS={rounds} cargo test -p sim --test disks");
    let mut sum = Tally::default();
    let mut failures = Vec::new();
    for seed in first..first + rounds {
        let failure = round(seed, &mut sum).err();
        failure.iter().for_each(|failure| println!("{failure}"));
        failures.extend(failure);
        if (seed + 1 - first).is_multiple_of(SAID_EVERY) {
            println!("{} rounds, {} failed, {sum:?}", seed + 1 - first, failures.len());
        }
    }
    say(&format!("disks: {rounds} rounds, {} failed, {sum:?}", failures.len()));
    assert!(failures.is_empty(), "{} of {rounds} rounds failed, the first: {}", failures.len(), failures[0]);
    assert!(sum.harm > 0 && sum.alone as u64 >= rounds, "hardly anything was done: {sum:?}");
}

#[test]
fn within_the_redundancy_nothing_is_lost() {
    campaign(8);
}

/// A sector could not be read that no block had, so that nothing ever wrote it anew: an expansion waited for it for ever. And while a vdev was removed the campaign
/// tried to replace what was dead until it gave up. And one that came to such a sector after the last scrub waited for one that nobody began.
/// A side of a mirror lost in a flush what it was given of a group, which the next group was to write down: after a loss of power between the two nobody knew.
#[test]
fn stories_that_once_ended_badly() {
    let mut sum = Tally::default();
    for seed in [700_156, 700_696, 1_000_095, 1_000_642, 1_200_778, 1_200_846] {
        round(seed, &mut sum).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
#[ignore = "takes half an hour: a thousand rounds, or TARN_ROUNDS"]
fn campaign_of_a_thousand() {
    campaign(1000);
}
