//! The rank-sum test of Wilcoxon, and of Mann and Whitney: are the values of the one larger than those of the other?
//!
//! # Theory
//!
//! All values of both are put in one order. If the two do not differ, each choice of places for the first one's values is
//! as likely as any other; so the p-value is the part of all choices whose sum of ranks is at least as far out, on either
//! side. It is counted out, not approximated, up to [`COUNTED`] values; equal values share the mean of their ranks, and
//! are counted as they lie. Beyond that it is the normal approximation with the corrections for ties and for continuity
//! (Lehmann 1975, section 1.4).

use std::collections::HashMap;
use std::rc::Rc;

use super::LEVEL;

/// So many values of both together are counted out: twenty against twenty, as far as printed tables go.
const COUNTED: usize = 40;

/// What a test found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Outcome {
    /// The p-value, two-sided.
    pub(super) chance: f64,
    pub(super) first_is_above: bool,
}

/// How likely each sum of ranks is; kept, because most comparisons of a page have the same ranks.
#[derive(Default)]
pub(super) struct Counted(HashMap<(usize, Vec<u32>), Rc<Vec<f64>>>);

/// Twice the rank of each value among both, those of `first` in front; twice, so that a shared one is whole.
fn doubled_ranks(first: &[f64], other: &[f64]) -> Vec<u32> {
    let values: Vec<f64> = first.iter().chain(other).copied().collect();
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|one, another| values[*one].total_cmp(&values[*another]));
    let mut ranks = vec![0; values.len()];
    let mut place = 0;
    for equal in order.chunk_by(|one, another| values[*one] == values[*another]) {
        equal.iter().for_each(|index| ranks[*index] = (2 * place + equal.len() + 1) as u32);
        place += equal.len();
    }
    ranks
}

/// Of `ranks`, how many choices of so many have each sum, over how many choices there are.
fn count(chosen: usize, ranks: &[u32]) -> Vec<f64> {
    let most = ranks.iter().sum::<u32>() as usize;
    let mut ways = vec![vec![0.0; most + 1]; chosen + 1];
    ways[0][0] = 1.0;
    for rank in ranks.iter().map(|rank| *rank as usize) {
        for number in (1..=chosen).rev() {
            let (fewer, more) = ways.split_at_mut(number);
            for sum in rank..=most {
                more[0][sum] += fewer[number - 1][sum - rank];
            }
        }
    }
    let mut ways = ways.swap_remove(chosen);
    let all: f64 = ways.iter().sum();
    ways.iter_mut().for_each(|number| *number /= all);
    ways
}

/// The mean and the deviation of the doubled sum.
fn moments(chosen: usize, ranks: &[u32]) -> (f64, f64) {
    let (own, all) = (chosen as f64, ranks.len() as f64);
    let mean = ranks.iter().map(|rank| f64::from(*rank)).sum::<f64>() / all;
    let scatter: f64 = ranks.iter().map(|rank| (f64::from(*rank) - mean).powi(2)).sum();
    (own * mean, (own * (all - own) / (all * (all - 1.0)) * scatter).sqrt())
}

impl Counted {
    fn of(&mut self, chosen: usize, mut ranks: Vec<u32>) -> Rc<Vec<f64>> {
        ranks.sort_unstable();
        Rc::clone(self.0.entry((chosen, ranks)).or_insert_with_key(|(chosen, ranks)| Rc::new(count(*chosen, ranks))))
    }

    /// Of two samples that have values, all of them numbers.
    pub(super) fn test(&mut self, first: &[f64], other: &[f64]) -> Outcome {
        let ranks = doubled_ranks(first, other);
        let sum: u32 = ranks[..first.len()].iter().sum();
        let (mean, deviation) = moments(first.len(), &ranks);
        let away = f64::from(sum) - mean;
        let chance = if ranks.len() > COUNTED {
            // Half a step nearer to the middle; a step of the doubled sum is 2.
            let away = (away.abs() - 1.0).max(0.0);
            if deviation > 0.0 { libm::erfc(away / deviation / std::f64::consts::SQRT_2) } else { 1.0 }
        } else {
            let likely = self.of(first.len(), ranks);
            let sum = sum as usize;
            let tail = if away > 0.0 { likely[sum..].iter().sum::<f64>() } else { likely[..=sum].iter().sum() };
            (2.0 * tail).min(1.0)
        };
        Outcome { chance, first_is_above: away > 0.0 }
    }

    /// Of so many values against so many: the largest U, the number of pairs in which the first one is above, that is no likelier than
    /// half of [`LEVEL`], it and all below it together. `None` if not even 0 is so rare.
    pub(super) fn critical(&mut self, first: usize, other: usize) -> Option<usize> {
        let untied = (1..=(first + other) as u32).map(|rank| 2 * rank).collect::<Vec<u32>>();
        // The sum of the ranks where no pair has the first one above.
        let least = first * (first + 1) / 2;
        if first + other > COUNTED {
            let (mean, deviation) = moments(first, &untied);
            // What the normal distribution has 2.5 % below it.
            let critical = (mean - 1.0 - 1.959_964 * deviation) / 2.0 - least as f64;
            return (critical >= 0.0).then_some(critical as usize);
        }
        let likely = self.of(first, untied);
        let mut together = 0.0;
        let rare = (0..=first * other).take_while(|pairs| {
            together += likely[2 * (least + pairs)];
            together <= LEVEL / 2.0
        });
        rare.last()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of two samples of which `pairs` pairs have the first one above.
    fn samples(first: usize, other: usize, pairs: usize) -> (Vec<f64>, Vec<f64>) {
        let other: Vec<f64> = (1..=other).map(|value| value as f64).collect();
        let mut left = pairs;
        let first = (0..first).map(|number| {
            let above = left.min(other.len());
            left -= above;
            above as f64 + 0.5 + number as f64 * 1e-3
        });
        (first.collect(), other)
    }

    /// The largest U that is significant at 5 % on both sides, from the table that textbooks print (Mann and Whitney 1947, Auble 1953).
    const CRITICAL: [(usize, [Option<usize>; 8]); 6] = [
        // other:  3        4        5        6        7        8        10        20
        (3, [None, None, Some(0), Some(1), Some(1), Some(2), Some(3), Some(8)]),
        (4, [None, Some(0), Some(1), Some(2), Some(3), Some(4), Some(5), Some(14)]),
        (5, [Some(0), Some(1), Some(2), Some(3), Some(5), Some(6), Some(8), Some(20)]),
        (7, [Some(1), Some(3), Some(5), Some(6), Some(8), Some(10), Some(14), Some(34)]),
        (10, [Some(3), Some(5), Some(8), Some(11), Some(14), Some(17), Some(23), Some(55)]),
        (20, [Some(8), Some(14), Some(20), Some(27), Some(34), Some(41), Some(55), Some(127)]),
    ];

    #[test]
    fn the_published_table_of_critical_values() {
        let mut counted = Counted::default();
        for (first, row) in CRITICAL {
            for (other, published) in [3, 4, 5, 6, 7, 8, 10, 20].into_iter().zip(row) {
                assert_eq!(counted.critical(first, other), published, "{first} and {other}");
                let mut chance = |pairs| {
                    let (first, other) = samples(first, other, pairs);
                    counted.test(&first, &other).chance
                };
                if let Some(critical) = published {
                    assert!(chance(critical) <= LEVEL && chance(critical + 1) > LEVEL, "{first} and {other}");
                } else {
                    assert!(chance(0) > LEVEL, "{first} and {other}");
                }
            }
        }
    }

    /// What the issue was about: 2 of 20, 2 of 252, 2 of 3,432.
    #[test]
    fn a_full_separation_is_as_likely_as_there_are_orders() {
        let mut counted = Counted::default();
        for (rounds, orders) in [(3, 20.0), (5, 252.0), (7, 3432.0)] {
            let (first, other) = samples(rounds, rounds, 0);
            let outcome = counted.test(&first, &other);
            assert!((outcome.chance - 2.0 / orders).abs() < 1e-12 && !outcome.first_is_above, "{outcome:?}");
            assert!((counted.test(&other, &first).chance - 2.0 / orders).abs() < 1e-12);
            assert!(counted.test(&other, &first).first_is_above);
        }
    }

    /// Counted by hand, choice by choice, with ties too.
    #[test]
    fn every_choice_is_counted_as_often_as_it_is_there() {
        for (first, other) in [
            ([1.0, 2.0, 2.0, 5.0], [2.0, 3.0, 5.0]),
            ([1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 2.0]),
            ([9.0, 8.0, 7.0, 6.0], [1.0, 1.0, 1.0]),
        ] {
            let ranks = doubled_ranks(&first, &other);
            let own: u32 = ranks[..4].iter().sum();
            let choices = (0_u32..1 << 7).filter(|choice| choice.count_ones() == 4);
            let sums: Vec<u32> =
                choices.map(|choice| (0..7).filter(|place| choice >> place & 1 == 1).map(|place| ranks[place]).sum()).collect();
            let part = |is: &dyn Fn(u32) -> bool| sums.iter().filter(|sum| is(**sum)).count() as f64 / sums.len() as f64;
            let expected = (2.0 * part(&|sum| sum <= own).min(part(&|sum| sum >= own))).min(1.0);
            let outcome = Counted::default().test(&first, &other);
            assert!((outcome.chance - expected).abs() < 1e-12, "{first:?} {other:?}: {outcome:?} {expected}");
        }
        assert_eq!(Counted::default().test(&[5.0; 7], &[5.0; 7]).chance, 1.0, "all alike");
        assert_eq!(Counted::default().test(&[5.0; 70], &[5.0; 70]).chance, 1.0, "all alike");
    }

    /// Where counting ends the approximation is as good as it is said to be.
    #[test]
    fn the_approximation_follows_on_the_count() {
        for pairs in [130, 150, 180, 200] {
            let (first, other) = samples(20, 20, pairs);
            let ranks = doubled_ranks(&first, &other);
            let (mean, deviation) = moments(20, &ranks);
            let sum: u32 = ranks[..20].iter().sum();
            let approximated = libm::erfc(((f64::from(sum) - mean).abs() - 1.0) / deviation / std::f64::consts::SQRT_2);
            let counted = Counted::default().test(&first, &other).chance;
            assert!((approximated / counted - 1.0).abs() < 0.05, "{pairs}: {approximated} {counted}");
        }
        let (first, other) = samples(100, 100, 3000);
        assert!(Counted::default().test(&first, &other).chance < 1e-5);
        // 100 and 100, from the formula of the tables: 5000 - 1.96 * sqrt(100 * 100 * 201 / 12) - 1/2.
        assert_eq!(Counted::default().critical(100, 100), Some(4197));
    }
}
