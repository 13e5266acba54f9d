//! Medians, their spread, and how sure a ratio is.
//!
//! # Theory
//!
//! Rounds are few and their distribution is not known, so the confidence interval of a ratio of medians is taken by the
//! bootstrap (Efron 1979): both samples are drawn anew, with repetition, many times, and the interval is what 95 % of
//! the ratios lie in. Two file systems differ if that interval does not hold 1, and the medians differ by more than a
//! threshold below which nobody would care; otherwise it is a draw. Fewer than [`FEWEST`] rounds of either say nothing.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Below so many rounds there is no interval.
pub const FEWEST: usize = 3;
/// Less than this is no difference worth a word.
pub const WORTH_A_WORD: f64 = 1.05;
const DRAWS: usize = 2000;
const TAIL: f64 = 0.025;

/// A ratio of two medians with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

/// What a ratio says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Above,
    Below,
    Draw,
    /// Too few rounds.
    Unknown,
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

/// The median of `above` over that of `below`. The same samples give the same interval. There is none over 0, and none of what is no number.
pub fn ratio(above: &[f64], below: &[f64]) -> Option<Ratio> {
    if above.iter().chain(below).any(|value| !value.is_finite()) {
        return None;
    }
    let value = median(above)? / median(below).filter(|median| *median != 0.0)?;
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut again = |values: &[f64]| {
        let mut drawn: Vec<f64> = (0..values.len()).map(|_| values[random.random_range(0..values.len())]).collect();
        drawn.sort_by(f64::total_cmp);
        median_of_sorted(&drawn).unwrap_or(f64::NAN)
    };
    let mut ratios: Vec<f64> = (0..DRAWS).map(|_| again(above) / again(below)).filter(|ratio| !ratio.is_nan()).collect();
    ratios.sort_by(f64::total_cmp);
    let at = |part: f64| ratios.get(((ratios.len() as f64 - 1.0) * part).round() as usize).copied();
    Some(Ratio { value, low: at(TAIL)?, high: at(1.0 - TAIL)? })
}

/// Where the lower one is 0 in half of its rounds or more there is no ratio; that something is more than nothing can be told all the same.
fn over_nothing(above: &[f64], below: &[f64]) -> Verdict {
    let lowest = above.iter().copied().min_by(f64::total_cmp).unwrap_or(f64::NAN);
    let highest = below.iter().copied().max_by(f64::total_cmp).unwrap_or(f64::NAN);
    match () {
        () if above.iter().chain(below).any(|value| !value.is_finite()) => Verdict::Unknown,
        () if lowest > highest => Verdict::Above,
        () => Verdict::Draw,
    }
}

/// What the samples say about who is ahead.
pub fn verdict(above: &[f64], below: &[f64]) -> Verdict {
    if above.len() < FEWEST || below.len() < FEWEST {
        return Verdict::Unknown;
    }
    match ratio(above, below) {
        None => over_nothing(above, below),
        Some(ratio) if ratio.low > 1.0 && ratio.value >= WORTH_A_WORD => Verdict::Above,
        Some(ratio) if ratio.high < 1.0 && ratio.value <= 1.0 / WORTH_A_WORD => Verdict::Below,
        Some(_) => Verdict::Draw,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(spread(&[8.0, 10.0, 13.0]), Some(0.5));
        let same = ratio(&[6.0, 6.0, 6.0], &[2.0, 2.0, 2.0]).unwrap();
        assert_eq!((same.value, same.low, same.high), (3.0, 3.0, 3.0));
    }

    #[test]
    fn the_winner_is_named_only_outside_the_noise() {
        assert_eq!(verdict(&[10.0, 11.0, 10.5, 10.2], &[5.0, 5.5, 5.2, 5.1]), Verdict::Above);
        assert_eq!(verdict(&[5.0, 5.5, 5.2, 5.1], &[10.0, 11.0, 10.5, 10.2]), Verdict::Below);
        // The medians differ by a fifth, the rounds by a factor of three.
        assert_eq!(verdict(&[6.0, 12.0, 18.0], &[5.0, 10.0, 15.0]), Verdict::Draw);
        // Certain, and nothing to care about.
        assert_eq!(verdict(&[1.01, 1.01, 1.01], &[1.0, 1.0, 1.0]), Verdict::Draw);
        assert_eq!(verdict(&[10.0, 11.0], &[5.0, 5.0]), Verdict::Unknown);
    }

    const OPPOSITE: [(Verdict, Verdict); 4] = [
        (Verdict::Above, Verdict::Below),
        (Verdict::Below, Verdict::Above),
        (Verdict::Draw, Verdict::Draw),
        (Verdict::Unknown, Verdict::Unknown),
    ];

    /// Rows of samples and what is to be said of the first; of the second the opposite.
    #[test]
    fn ties_outliers_nothing_and_what_is_no_number() {
        let rows: [(&[f64], &[f64], Verdict); 17] = [
            // Ties; and rounds that are all alike, so that the interval has no width.
            (&[5.0; 3], &[5.0; 3], Verdict::Draw),
            (&[6.0; 3], &[5.0; 3], Verdict::Above),
            (&[5.2; 9], &[5.0; 9], Verdict::Draw),
            (&[5.0, 5.0, 6.0], &[5.0, 5.0, 6.0], Verdict::Draw),
            // One round, two, none.
            (&[9.0], &[1.0], Verdict::Unknown),
            (&[9.0; 5], &[1.0; 2], Verdict::Unknown),
            (&[], &[], Verdict::Unknown),
            // One round went wrong: of three that leaves it open, of seven it does not.
            (&[10.0, 10.1, 0.2], &[5.0, 5.1, 5.2], Verdict::Draw),
            (&[10.0, 10.1, 0.2, 10.2, 9.9, 10.0, 10.1], &[5.0, 5.1, 5.2, 5.0, 5.1, 5.0, 5.2], Verdict::Above),
            (&[10.0, 10.1, 1e9], &[5.0, 5.1, 5.2], Verdict::Above),
            // A hundred thousand times as much, and next to nothing.
            (&[1e9, 1.1e9, 1e9], &[1e4, 1.1e4, 1e4], Verdict::Above),
            (&[1e-9, 1.1e-9, 1e-9], &[1e-4, 1.1e-4, 1e-4], Verdict::Below),
            // Nothing at all.
            (&[0.0; 3], &[0.0; 3], Verdict::Draw),
            (&[7.0; 3], &[0.0; 3], Verdict::Above),
            (&[7.0; 3], &[0.0, 0.0, 8.0], Verdict::Draw),
            // No numbers.
            (&[f64::NAN, 1.0, 1.0], &[5.0; 3], Verdict::Unknown),
            (&[f64::INFINITY; 3], &[5.0; 3], Verdict::Unknown),
        ];
        for (first, second, expected) in rows {
            assert_eq!(verdict(first, second), expected, "{first:?} {second:?}");
            let (_, opposite) = OPPOSITE.into_iter().find(|(one, _)| *one == expected).unwrap();
            assert_eq!(verdict(second, first), opposite, "{second:?} {first:?}");
        }
    }

    /// Of two samples of the same distribution a winner is called about as often as the interval promises.
    #[test]
    fn noise_alone_has_no_winner() {
        let mut random = ChaCha8Rng::seed_from_u64(7);
        let mut sample = || (0..7).map(|_| random.random_range(90.0..110.0)).collect::<Vec<f64>>();
        let called = (0..200).filter(|_| verdict(&sample(), &sample()) != Verdict::Draw).count();
        assert!(called <= 20, "{called} of 200");
    }

    #[test]
    fn an_interval_holds_the_true_ratio() {
        let mut random = ChaCha8Rng::seed_from_u64(8);
        let held = (0..200).filter(|_| {
            let mut sample = |around: f64| (0..9).map(|_| around * random.random_range(0.9..1.1)).collect::<Vec<f64>>();
            let ratio = ratio(&sample(200.0), &sample(100.0)).unwrap();
            ratio.low <= 2.0 && 2.0 <= ratio.high
        });
        let held = held.count();
        assert!(held >= 175, "{held} of 200");
    }
}
