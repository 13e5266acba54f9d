//! Medians, how far two systems are apart, and what of that is more than chance.
//!
//! # Theory
//!
//! Rounds are few, their distribution is not known, and one of them may have gone wrong; so everything here goes by ranks.
//! The p-value of a comparison is that of the exact two-sided rank-sum test ([`rank_sum`]; Wilcoxon 1945, Mann and Whitney
//! 1947). How many times as much the one does is estimated after Hodges and Lehmann, with Moses' interval ([`factor`]).
//!
//! Of three rounds against three, two of the twenty orders are a full separation: equal systems seem to differ in one of
//! ten comparisons. [`FEWEST`] rounds are needed before anything can be said. And a page has hundreds of comparisons, of
//! which one in twenty would be called by chance alone; so all comparisons of a page are judged together ([`judge`]), by
//! the procedure of Benjamini and Hochberg ([`correction`]): of all differences that a page calls, at most one in twenty
//! is expected to be chance, and where nothing differs, it calls anything in one page of twenty at most.
//!
//! # Invariants
//!
//! 1. What a page says of two systems comes from one call of [`judge`] with all of its comparisons.
//! 2. The same figures give the same verdict; exchanging the two gives the opposite one.

mod correction;
mod factor;
mod rank_sum;

#[cfg(test)]
mod tests;

pub use factor::Factor;

/// Below so many rounds of either there is no verdict: of four against four, 2 of 70 orders are a full separation, which is hardly ever rare enough among others.
pub const FEWEST: usize = 5;
/// Less than this is no difference worth a word.
pub const WORTH_A_WORD: f64 = 1.05;
/// The part of the verdicts that may be chance; and what an interval may miss.
pub const LEVEL: f64 = 0.05;

/// What a comparison says of the first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Above,
    Below,
    /// Not told apart, or too little to care about.
    Draw,
    /// Too few rounds.
    Unknown,
}

/// Two systems by one figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// How many times as much the first one does. There is none over 0.
    pub factor: Option<Factor>,
    pub verdict: Verdict,
    /// How often equal systems would lie so far apart, by itself, and after the correction for the page.
    pub chance: Option<Chance>,
}

/// See [`Comparison::chance`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Chance {
    pub alone: f64,
    pub corrected: f64,
}

impl Verdict {
    /// The same, said of the other one.
    pub fn reversed(self) -> Verdict {
        match self {
            Verdict::Above => Verdict::Below,
            Verdict::Below => Verdict::Above,
            same => same,
        }
    }
}

impl Comparison {
    /// The same, said of the other one.
    pub fn reversed(self) -> Comparison {
        Comparison { factor: self.factor.and_then(Factor::reversed), verdict: self.verdict.reversed(), chance: self.chance }
    }
}

fn median_of_sorted(sorted: &[f64]) -> Option<f64> {
    let (low, high) = (sorted.get(sorted.len().wrapping_sub(1) / 2)?, sorted.get(sorted.len() / 2)?);
    Some((low + high) / 2.0)
}

/// The middle value; of an even number the mean of the middle two.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    median_of_sorted(&sorted)
}

/// How far the values lie apart, as a part of the median: (highest - lowest) / median.
pub fn spread(values: &[f64]) -> Option<f64> {
    let lowest = values.iter().copied().min_by(f64::total_cmp)?;
    let highest = values.iter().copied().max_by(f64::total_cmp)?;
    Some((highest - lowest) / median(values).filter(|median| *median != 0.0)?)
}

fn is_measured(values: &[f64]) -> bool {
    values.iter().all(|value| value.is_finite() && *value >= 0.0)
}

/// The rounds that it takes to find a difference which stands alone among so many comparisons: a full separation of fewer is likelier than
/// the correction lets through.
pub fn rounds_for_one(comparisons: usize) -> usize {
    // Of so many rounds against as many: how many orders there are of 2, 4, 6, ...
    let orders = (1..).scan(1.0, |orders, rounds| {
        *orders *= f64::from(2 * rounds * (2 * rounds - 1)) / f64::from(rounds * rounds);
        Some(*orders)
    });
    let enough = |orders: f64| 2.0 / orders * comparisons as f64 <= LEVEL;
    orders.take_while(|orders| !enough(*orders)).count().saturating_add(1).max(FEWEST)
}

/// Judges all comparisons of a page: of each pair, what is to be said of the first one.
pub fn judge(pairs: &[(&[f64], &[f64])]) -> Vec<Comparison> {
    let mut counted = rank_sum::Counted::default();
    let enough =
        |(first, other): &(&[f64], &[f64])| first.len().min(other.len()) >= FEWEST && is_measured(first) && is_measured(other);
    let tests: Vec<Option<rank_sum::Outcome>> =
        pairs.iter().map(|pair| enough(pair).then(|| counted.test(pair.0, pair.1))).collect();
    let alone: Vec<f64> = tests.iter().flatten().map(|test| test.chance).collect();
    let mut corrected = correction::corrected(&alone).into_iter();
    let one = |(pair, test): (&(&[f64], &[f64]), &Option<rank_sum::Outcome>)| {
        let factor = factor::with(&mut counted, pair.0, pair.1);
        let Some((test, corrected)) = test.as_ref().zip(test.as_ref().and_then(|_| corrected.next())) else {
            return Comparison { factor, verdict: Verdict::Unknown, chance: None };
        };
        let worth_a_word = factor.is_none_or(|factor| factor.value.max(1.0 / factor.value) >= WORTH_A_WORD);
        let verdict = match () {
            () if corrected > LEVEL || !worth_a_word => Verdict::Draw,
            () if test.first_is_above => Verdict::Above,
            () => Verdict::Below,
        };
        Comparison { factor, verdict, chance: Some(Chance { alone: test.chance, corrected }) }
    };
    pairs.iter().zip(&tests).map(one).collect()
}
