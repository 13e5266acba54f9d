//! How many times as much the one does, and between which bounds.
//!
//! # Theory
//!
//! Each value of the one over each value of the other is a guess at the factor. The middle one of all of them is the
//! estimate of Hodges and Lehmann (1963), of logarithms: unlike a ratio of medians, it uses every round. Moses' interval
//! (1953) goes with the rank-sum test: it leaves out as many of the guesses at each end as that test allows, so that it
//! holds the true factor in at least 95 of 100 cases, whatever the distribution.

use super::rank_sum::Counted;

/// Of so many guesses all are looked at; of more rounds than that, as many of their values, evenly.
const MOST_GUESSES: usize = 1 << 22;
const MOST_VALUES: usize = 1 << 11;

/// How many times as much.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Factor {
    /// The estimate of Hodges and Lehmann.
    pub value: f64,
    /// Moses' 95 % interval; there is none of fewer than four rounds.
    pub interval: Option<(f64, f64)>,
}

impl Factor {
    /// The same, said of the other one. Of nothing there is no factor.
    pub(super) fn reversed(self) -> Option<Factor> {
        let interval = self.interval.map(|(low, high)| (1.0 / high, 1.0 / low));
        Some(Factor { value: 1.0 / self.value, interval }).filter(|factor| factor.value.is_finite())
    }
}

/// Values at even distances in their order, from the first to the last.
fn thinned(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len() - 1;
    (0..MOST_VALUES).map(|number| sorted[number * last / (MOST_VALUES - 1)]).collect()
}

/// `first` over `other`, of values that are 0 or more. Nothing over nothing is as much.
fn over(first: f64, other: f64) -> f64 {
    if first == other { 1.0 } else { first / other }
}

/// The factor of two samples. There is none over 0, and none of what is no number or less than nothing.
pub(super) fn with(counted: &mut Counted, first: &[f64], other: &[f64]) -> Option<Factor> {
    if first.is_empty() || other.is_empty() || first.iter().chain(other).any(|value| !value.is_finite() || *value < 0.0) {
        return None;
    }
    let critical = counted.critical(first.len(), other.len());
    let pairs = first.len().saturating_mul(other.len());
    if pairs > MOST_GUESSES {
        let shrink = |critical: usize| (critical as f64 / pairs as f64 * (MOST_VALUES * MOST_VALUES) as f64) as usize;
        return of_guesses(&thinned(first), &thinned(other), critical.map(shrink));
    }
    of_guesses(first, other, critical)
}

fn of_guesses(first: &[f64], other: &[f64], critical: Option<usize>) -> Option<Factor> {
    let mut guesses: Vec<f64> = first.iter().flat_map(|first| other.iter().map(|other| over(*first, *other))).collect();
    guesses.sort_unstable_by(f64::total_cmp);
    let at = |place: usize| guesses[place];
    let last = guesses.len() - 1;
    // Of an even number the middle two, as logarithms have it.
    let (low, high) = (at(last / 2), at(guesses.len() / 2));
    let value = if low == high { low } else { low.sqrt() * high.sqrt() };
    let interval = critical.map(|critical| (at(critical), at(last - critical)));
    Some(Factor { value, interval }).filter(|factor| factor.value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factor(first: &[f64], other: &[f64]) -> Option<Factor> {
        with(&mut Counted::default(), first, other)
    }

    /// Hollander and Wolfe's example (1973, table 4.1): the tritiated water of ten and five placentas. Its shift of -0.305 and its
    /// interval from -0.76 to 0.15, both published, are those of the logarithms of what is given here.
    #[test]
    fn the_published_example() {
        let term = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46];
        let early = [1.15, 0.88, 0.90, 0.74, 1.21];
        let powers = |values: &[f64]| values.iter().map(|value| f64::exp(*value)).collect::<Vec<f64>>();
        let Factor { value, interval } = factor(&powers(&early), &powers(&term)).unwrap();
        let (low, high) = interval.unwrap();
        let near = |value: f64, published: f64| assert!((value.ln() - published).abs() < 1e-9, "{} {published}", value.ln());
        near(value, -0.305);
        near(low, -0.76);
        near(high, 0.15);
    }

    #[test]
    fn nothing_and_what_is_no_number() {
        let same = factor(&[6.0; 5], &[2.0; 5]).unwrap();
        assert_eq!((same.value, same.interval), (3.0, Some((3.0, 3.0))));
        assert_eq!(factor(&[6.0; 3], &[2.0; 3]).unwrap().interval, None, "three rounds bound nothing");
        assert_eq!(factor(&[7.0; 5], &[0.0; 5]), None);
        assert_eq!(factor(&[0.0; 5], &[0.0; 5]).unwrap().value, 1.0);
        assert_eq!(factor(&[0.0; 5], &[7.0; 5]).unwrap().value, 0.0);
        assert_eq!(factor(&[0.0; 5], &[7.0; 5]).unwrap().reversed(), None);
        for wrong in [f64::NAN, f64::INFINITY, -1.0] {
            assert_eq!(factor(&[wrong, 1.0], &[5.0; 3]), None);
        }
        assert_eq!((factor(&[], &[1.0]), factor(&[1.0], &[])), (None, None));
        let reversed = factor(&[6.0, 7.0, 8.0, 6.5], &[2.0, 2.1, 2.2, 2.3]).unwrap().reversed().unwrap();
        let other = factor(&[2.0, 2.1, 2.2, 2.3], &[6.0, 7.0, 8.0, 6.5]).unwrap();
        assert!((reversed.value / other.value - 1.0).abs() < 1e-12);
        assert!((reversed.interval.unwrap().0 / other.interval.unwrap().0 - 1.0).abs() < 1e-12);
    }

    /// A file may have any number of rounds: the work for them does not grow without bound.
    #[test]
    fn very_many_rounds_are_thinned() {
        let values =
            |factor: f64| (0..50_000).map(|number| factor * (1.0 + f64::from(number % 1000) / 1e4)).collect::<Vec<f64>>();
        let Factor { value, interval } = factor(&values(2.0), &values(1.0)).unwrap();
        let (low, high) = interval.unwrap();
        assert!((value - 2.0).abs() < 1e-3 && low < value && value < high && high - low < 0.01, "{value} {low} {high}");
    }
}
