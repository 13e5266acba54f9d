//! Many comparisons at once: each p-value becomes what it is worth among all of them.
//!
//! # Theory
//!
//! Benjamini and Hochberg 1995: of `m` p-values in their order, the `k`-th is worth `p * m / k`, and no more than any that
//! is larger. If differences are called where that is 5 % at most, then on average no more than 5 % of the calls are
//! chance. Holm's and Bonferroni's stricter promise (no error on a whole page in 19 of 20) is out of reach of seven rounds:
//! the smallest p-value that they can have is 2 of 3,432, and a page has hundreds of comparisons. Where nothing at all
//! differs, the two promises are the same one.

/// The corrected p-values, in the same order.
pub(super) fn corrected(all: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by(|one, other| all[*one].total_cmp(&all[*other]));
    let mut corrected = vec![1.0; all.len()];
    let mut least = 1.0_f64;
    for (place, index) in order.into_iter().enumerate().rev() {
        least = least.min(all[index] * all.len() as f64 / (place + 1) as f64);
        corrected[index] = least;
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::corrected;

    /// The fifteen p-values of the paper's own example (section 3.2): at 5 % the procedure finds the four smallest.
    #[test]
    fn the_published_example() {
        let published =
            [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0];
        let mut shuffled = published;
        shuffled.reverse();
        let found: Vec<f64> = shuffled
            .iter()
            .zip(corrected(&shuffled))
            .filter(|(_, corrected)| *corrected <= 0.05)
            .map(|(alone, _)| *alone)
            .collect();
        assert_eq!(found, [0.0095, 0.0019, 0.0004, 0.0001]);
        assert_eq!(corrected(&[]), Vec::<f64>::new());
        assert_eq!(corrected(&[0.04]), [0.04], "one comparison is what it is");
        assert_eq!(corrected(&[0.01, 0.02, 0.02]), [0.02; 3], "none is worth more than a larger one");
    }
}
