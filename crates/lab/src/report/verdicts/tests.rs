//! The whole procedure on made-up pages: what it calls where nothing differs, and what it finds where something does.
//!
//! Once a page said "95 %" of each of its verdicts, from three rounds, of which two orders in twenty are a full separation, and of
//! hundreds of comparisons one by one: of equal systems every page named winners. The bounds here are not fitted to what came out: they are
//! what a procedure that keeps its word exceeds less often than once in a million seeds.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Normal};

use super::*;
use crate::record::System;
use crate::statistics::LEVEL;
use crate::workload::rounds::Plan;

const SYSTEMS: [&str; 6] = ["tarn", "tarn-embedded", "ext4", "xfs", "btrfs", "zfs-fuse"];
const WORKLOADS: usize = 30;
/// Of a page: each two systems in each workload.
const COMPARISONS: usize = WORKLOADS * 15;
const ROUNDS: usize = 7;
/// One seed in so many may fail a procedure that keeps its word.
const SEEDS: f64 = 1e6;

/// How the rounds of a workload come out beside their true value, as real ones did.
#[derive(Clone, Copy)]
enum Noise {
    /// By so much of itself, either way.
    Even(f64),
    /// And one round of ten goes wrong.
    Slips(f64),
    /// Fast or slow by turns.
    TwoFaced,
    /// The machine is slow in some rounds, for all systems, and slower from round to round.
    Together,
    /// A few whole numbers: ties.
    Coarse,
}

const NOISES: [Noise; 7] =
    [Noise::Even(0.01), Noise::Even(0.08), Noise::Even(0.3), Noise::Slips(0.05), Noise::TwoFaced, Noise::Together, Noise::Coarse];

fn round_of(noise: Noise, round: usize, machine: f64, random: &mut ChaCha8Rng) -> f64 {
    let mut around = |deviation: f64| Normal::new(0.0, deviation).unwrap().sample(random).exp();
    match noise {
        Noise::Even(deviation) => around(deviation),
        Noise::Slips(deviation) => around(deviation) * if random.random_bool(0.1) { random.random_range(0.1..0.9) } else { 1.0 },
        Noise::TwoFaced => around(0.05) * if random.random_bool(0.4) { 0.45 } else { 1.0 },
        Noise::Together => around(0.05) * machine * 0.97_f64.powi(round as i32),
        Noise::Coarse => (around(0.2) * 6.0).round() / 6.0,
    }
}

/// A page of so many rounds, on which `factor` says what a system truly does in a workload.
fn page(random: &mut ChaCha8Rng, rounds: usize, noise: impl Fn(usize) -> Noise, factor: impl Fn(usize, usize) -> f64) -> Record {
    let mut record = Record::begin(Plan::default());
    record.systems = SYSTEMS.map(|name| System { name: name.into(), description: String::new(), facts: Vec::new() }).to_vec();
    for workload in 0..WORKLOADS {
        let machine: Vec<f64> = (0..rounds).map(|_| if random.random_bool(0.2) { 0.5 } else { 1.0 }).collect();
        let better = if workload.is_multiple_of(3) { Better::Lower } else { Better::Higher };
        let column = |(system, name): (usize, &&str)| {
            let truth = 100.0 * factor(workload, system);
            let values = (0..rounds).map(|round| truth * round_of(noise(workload), round, machine[round], random)).collect();
            let sample = Sample { name: "figure".into(), unit: "/s".into(), better, values, point: None, percentile: None };
            Column { target: (*name).into(), samples: vec![sample], ..Column::default() }
        };
        record.workloads.push(Outcome {
            workload: format!("workload{workload}"),
            about: String::new(),
            parameters: Vec::new(),
            published: Vec::new(),
            plan: record.plan,
            columns: SYSTEMS.iter().enumerate().map(column).collect(),
        });
    }
    record
}

fn of_every_kind(workload: usize) -> Noise {
    NOISES[workload % NOISES.len()]
}

/// What fewer than one in [`SEEDS`] of `number` trials exceed that come out so `often`: from the binomial distribution.
fn bound(number: usize, often: f64) -> usize {
    let mut likely = (1.0 - often).powi(number as i32);
    let mut together = likely;
    let mut count = 0;
    while 1.0 - together > 1.0 / SEEDS {
        count += 1;
        likely *= (number - count + 1) as f64 / count as f64 * often / (1.0 - often);
        together += likely;
    }
    count
}

#[test]
fn the_bounds_are_those_of_the_binomial_distribution() {
    // 2 ^ -20 is less than one in a million; 20 coins all fall on one side once in 1,048,576 times.
    assert_eq!((bound(20, 0.5), bound(19, 0.5)), (19, 19));
    // Poisson's 20: 45 and more in 1.1 of a million.
    assert!((43..=46).contains(&bound(400, 0.05)), "{}", bound(400, 0.05));
}

fn calls(comparison: &Comparison) -> bool {
    matches!(comparison.verdict, Verdict::Above | Verdict::Below)
}

/// Of 400 pages on which nothing differs, at most those with any false verdict that 5 % allow; judged one by one, nearly all have some.
#[test]
fn equal_systems_are_seldom_told_apart() {
    let mut random = ChaCha8Rng::seed_from_u64(19);
    const PAGES: usize = 400;
    let (mut with_any, mut with_any_alone) = (0, 0);
    for _ in 0..PAGES {
        let record = page(&mut random, ROUNDS, of_every_kind, |_, _| 1.0);
        let verdicts = Verdicts::of(&record);
        assert_eq!(verdicts.all.len(), COMPARISONS);
        let any = verdicts.all.values().any(calls);
        let named = record.workloads.iter().any(|outcome| matches!(verdicts.first(outcome, "figure"), First::Alone(..)));
        assert!(any || !named, "a first place rests on verdicts alone");
        with_any += usize::from(any);
        with_any_alone += usize::from(verdicts.all.values().any(|comparison| comparison.chance.unwrap().alone <= LEVEL));
    }
    let most = bound(PAGES, LEVEL);
    eprintln!("{with_any} of {PAGES} pages with a false verdict, {most} allowed; {with_any_alone} without the correction");
    assert!(with_any <= most, "{with_any} of {PAGES} pages have a false verdict; {most} at most");
    assert!(with_any_alone > most, "this test could not fail: {with_any_alone}");
}

/// What the mean of `number` parts, each between 0 and 1 and `expected` on average, exceeds in fewer than one of [`SEEDS`] cases: Hoeffding's inequality
/// (1963, theorem 1).
fn bound_of_mean(number: usize, expected: f64) -> f64 {
    let exponent =
        |mean: f64| number as f64 * (mean * (mean / expected).ln() + (1.0 - mean) * ((1.0 - mean) / (1.0 - expected)).ln());
    (0..1000).map(|step| expected + f64::from(step) * 1e-3).find(|mean| exponent(*mean) >= SEEDS.ln()).unwrap()
}

/// Where a third of the workloads has real differences: of all that is called at most one in twenty is chance, on average over the pages.
#[test]
fn among_real_differences_few_are_chance() {
    let mut random = ChaCha8Rng::seed_from_u64(20);
    const PAGES: usize = 400;
    let truth = |workload: usize, system: usize| if workload % 3 == 1 && system == 0 { 1.3 } else { 1.0 };
    let (mut parts, mut called) = (0.0, 0);
    for _ in 0..PAGES {
        let record = page(&mut random, ROUNDS, of_every_kind, truth);
        let verdicts = Verdicts::of(&record);
        let verdicts: Vec<_> = verdicts.all.iter().filter(|(_, comparison)| calls(comparison)).collect();
        let is_false = |([workload, _, first, _], comparison): &(&[&str; 4], &Comparison)| {
            let number: usize = workload.trim_start_matches("workload").parse().unwrap();
            // Of two pairs the first one is the one that comes first in the list of systems.
            number % 3 != 1 || *first != "tarn" || comparison.verdict != Verdict::Above
        };
        let wrong = verdicts.iter().filter(|verdict| is_false(verdict)).count();
        parts += wrong as f64 / verdicts.len().max(1) as f64;
        called += verdicts.len();
    }
    let part = parts / PAGES as f64;
    let most = bound_of_mean(PAGES, LEVEL);
    eprintln!("{called} verdicts on {PAGES} pages, {:.2} % of them chance, {:.2} % allowed", part * 100.0, most * 100.0);
    assert!(called > PAGES, "nothing was called: {called}");
    assert!(part <= most, "{part} of the verdicts are chance; {most} at most");
}

/// Noise of 15 % either way cannot hide a factor of 1.5: (1 - 0.15) * 1.5 > 1 + 0.15, so that all rounds of the one are above all of the other. Each such
/// comparison has the p-value 2/3432, which the correction lets through if there are enough of them: 2/3432 * 450 / 50 < 5 %. So all are found.
#[test]
fn differences_beyond_the_noise_are_all_found() {
    let mut random = ChaCha8Rng::seed_from_u64(21);
    let truth = |workload: usize, system: usize| match (workload, system) {
        (0..10, 0) if workload.is_multiple_of(3) => 1.0 / 1.5,
        (0..10, 0) => 1.5,
        _ => 1.0,
    };
    for _ in 0..20 {
        let mut record = page(&mut random, ROUNDS, |_| Noise::Even(0.0), truth);
        let values =
            record.workloads.iter_mut().flat_map(|outcome| &mut outcome.columns).flat_map(|column| &mut column.samples[0].values);
        values.for_each(|value| *value *= random.random_range(0.85..1.15));
        let verdicts = Verdicts::of(&record);
        for outcome in &record.workloads[..10] {
            let words = verdicts.first_words(outcome, "figure");
            assert!(words.starts_with("tarn 1."), "{words}");
            for other in &SYSTEMS[1..] {
                let comparison = verdicts.between(outcome, "figure", "tarn", other).unwrap();
                assert_eq!(comparison.verdict, Verdict::Above, "{} against {other}", outcome.workload);
                assert!(comparison.chance.unwrap().corrected <= LEVEL);
                let reversed = verdicts.between(outcome, "figure", other, "tarn").unwrap();
                assert_eq!(reversed.verdict, Verdict::Below);
            }
        }
    }
}

/// A quarter more, in noise of 5 %, without an end to either side: one pair of rounds is the wrong way round with the probability that a normal deviate
/// is 3.15 deviations out (ln 1.25 / (0.05 * sqrt 2)), some pair of 49 in 4 % of comparisons at most. As many of 50 differences a page may be missed.
#[test]
fn differences_in_the_noise_are_found_as_often_as_they_must_be() {
    let mut random = ChaCha8Rng::seed_from_u64(22);
    const PAGES: usize = 40;
    let truth = |workload: usize, system: usize| match (workload, system) {
        (0..10, 0) if workload.is_multiple_of(3) => 0.8,
        (0..10, 0) => 1.25,
        _ => 1.0,
    };
    let (mut missed, mut whole) = (0, 0);
    for _ in 0..PAGES {
        let record = page(&mut random, ROUNDS, |_| Noise::Even(0.05), truth);
        let verdicts = Verdicts::of(&record);
        for outcome in &record.workloads[..10] {
            let found = |other: &&&str| verdicts.between(outcome, "figure", "tarn", other).unwrap().verdict == Verdict::Above;
            let found = SYSTEMS[1..].iter().filter(found).count();
            missed += SYSTEMS.len() - 1 - found;
            whole += usize::from(found < SYSTEMS.len() - 1);
        }
    }
    // The five comparisons of a workload share the rounds of tarn: the workloads are what is independent. One is missed in 5 * 4 %.
    let wrong_way_round = libm::erfc(1.25_f64.ln() / (0.05 * 2.0)) / 2.0;
    let most = bound(PAGES * 10, 5.0 * 49.0 * wrong_way_round);
    eprintln!("{missed} of {} differences missed, in {whole} of {} workloads, {most} allowed", PAGES * 50, PAGES * 10);
    assert!(whole <= most, "in {whole} of {} workloads a difference was missed; {most} at most", PAGES * 10);
}

/// The interval by itself holds the true factor in 95 of 100 cases, whatever the noise.
#[test]
fn an_interval_holds_the_true_factor() {
    let mut random = ChaCha8Rng::seed_from_u64(23);
    let (mut missed, mut all) = (0, 0);
    for _ in 0..100 {
        let record = page(&mut random, ROUNDS, of_every_kind, |_, system| if system == 0 { 2.0 } else { 1.0 });
        let verdicts = Verdicts::of(&record);
        for outcome in &record.workloads {
            let better = if outcome.columns[0].samples[0].better == Better::Higher { 2.0 } else { 0.5 };
            // One of each workload: those of others share its rounds.
            let (low, high) = verdicts.between(outcome, "figure", "tarn", "ext4").unwrap().factor.unwrap().interval.unwrap();
            missed += usize::from(!(low..=high).contains(&better));
            all += 1;
        }
    }
    assert!(missed <= bound(all, LEVEL), "{missed} of {all}; {} at most", bound(all, LEVEL));
}

/// Three rounds, or four, say nothing of anybody, however far apart; of five enough comparisons do.
#[test]
fn too_few_rounds_are_said() {
    let mut random = ChaCha8Rng::seed_from_u64(24);
    for rounds in 1..=5 {
        let record = page(
            &mut random,
            rounds,
            |_| Noise::Even(0.01),
            |workload, system| if workload.is_multiple_of(3) { 1.0 } else { 2.0_f64.powi(system as i32) },
        );
        let verdicts = Verdicts::of(&record);
        let words = verdicts.first_words(&record.workloads[1], "figure");
        assert_eq!(words == "too few rounds", rounds < FEWEST, "{rounds}: {words}");
        assert_eq!(
            verdicts.words().contains("450 comparisons have no verdict: too few rounds (at least 5 of both)"),
            rounds < FEWEST
        );
        assert_eq!(verdicts.words().contains("differ after the correction of Benjamini and Hochberg"), rounds >= FEWEST);
    }
}

/// Postmark's 4,980 against 25,234 read "draw", because the best two of all, ext4 and xfs, were one.
#[test]
fn who_shares_the_first_place_is_named() {
    let mut random = ChaCha8Rng::seed_from_u64(25);
    let truth = |_: usize, system: usize| [4980.0, 5000.0, 25_234.0, 25_000.0, 10_648.0, 3263.0][system];
    let record = page(&mut random, ROUNDS, |_| Noise::Even(0.03), truth);
    let verdicts = Verdicts::of(&record);
    let outcome = &record.workloads[1];
    let First::Shared(mut first) = verdicts.first(outcome, "figure") else { panic!("{:?}", verdicts.first(outcome, "figure")) };
    first.sort();
    assert_eq!(first, ["ext4", "xfs"]);
    assert_eq!(verdicts.between(outcome, "figure", "tarn", "ext4").unwrap().verdict, Verdict::Below);
    assert_eq!(verdicts.between(outcome, "figure", "tarn", "zfs-fuse").unwrap().verdict, Verdict::Above);
    assert_eq!(verdicts.between(outcome, "figure", "tarn", "ufs"), None);
}

/// Of two systems of which one has 0 in all rounds there is no factor; which is more is known all the same.
#[test]
fn more_than_nothing_is_more() {
    let mut random = ChaCha8Rng::seed_from_u64(26);
    let record = page(&mut random, ROUNDS, |_| Noise::Even(0.01), |_, system| if system == 0 { 0.0 } else { 1.0 });
    let verdicts = Verdicts::of(&record);
    let comparison = verdicts.between(&record.workloads[1], "figure", "ext4", "tarn").unwrap();
    assert_eq!((comparison.verdict, comparison.factor), (Verdict::Above, None));
    assert_eq!((factor_words(&comparison).as_str(), short_words(&comparison).as_str()), ("ahead", "ahead"));
}

/// It keeps nothing: to call it the first of the file systems would be a joke, and to let it keep another from being that, too.
#[test]
fn the_ceiling_is_compared_and_has_no_place() {
    let random = &mut ChaCha8Rng::seed_from_u64(3);
    let mut record = page(random, ROUNDS, |_| Noise::Even(0.001), |_, system| if system == 0 { 2.0 } else { 1.0 });
    for outcome in &mut record.workloads {
        let best = |value: &f64| if outcome.columns[0].samples[0].better == Better::Lower { value / 100.0 } else { value * 100.0 };
        let values = outcome.columns[0].samples[0].values.iter().map(best).collect();
        outcome.columns[5].samples[0].values = values;
        outcome.columns[5].target = "fuse-ceiling".into();
    }
    let verdicts = Verdicts::of(&record);
    for outcome in record.workloads.iter().filter(|outcome| outcome.columns[0].samples[0].better == Better::Higher) {
        let beside = verdicts.between(outcome, "figure", "tarn", "fuse-ceiling").unwrap();
        assert_eq!(beside.verdict, Verdict::Below);
        assert!(matches!(verdicts.first(outcome, "figure"), First::Alone(name, Some(factor)) if name == "tarn" && factor > 1.9));
    }
    assert!(ceiling::is_one("fuse-ceiling") && ceiling::is_one("fuse-ceiling:2") && !ceiling::is_one("tarn"));
}

/// The rounds that are missing went too fast to be measured: the slow ones must not speak for all.
#[test]
fn a_figure_without_all_rounds_has_no_verdict() {
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let mut record = page(&mut random, 7, |_| Noise::Even(0.01), |_, system| if system == 2 { 2.0 } else { 1.0 });
    let words = |record: &Record| {
        let (verdicts, outcome) = (Verdicts::of(record), &record.workloads[1]);
        let against = verdicts.between(outcome, "figure", "tarn", "ext4").map(|comparison| comparison.verdict);
        (against, verdicts.first(outcome, "figure"))
    };
    let (against, first) = words(&record);
    assert_eq!(against, Some(Verdict::Below));
    assert!(matches!(first, First::Alone(ref name, _) if name == "ext4"), "{first:?}");
    for column in &mut record.workloads[1].columns {
        column.costs = vec![crate::cost::Cost::default(); 7];
    }
    record.workloads[1].columns[2].samples[0].values.truncate(6);
    assert_eq!(words(&record), (None, First::TooFewRounds));
    record.workloads[1].columns[2].samples[0].values.clear();
    assert_eq!(words(&record), (None, First::TooFewRounds));
}

/// How often a mailbox was looked into is a setting: more of it is no better.
#[test]
fn what_says_how_the_work_was_done_is_not_judged() {
    let mut random = ChaCha8Rng::seed_from_u64(4);
    let mut record = page(&mut random, 7, |_| Noise::Even(0.01), |_, system| 1.0 + system as f64);
    for column in &mut record.workloads[1].columns {
        column.samples[0].name = mail::LOOKS.into();
    }
    let verdicts = Verdicts::of(&record);
    assert_eq!(verdicts.between(&record.workloads[1], mail::LOOKS, "tarn", "ext4"), None);
    assert!(verdicts.between(&record.workloads[2], "figure", "tarn", "ext4").is_some());
}
