//! Medians, and what is judged at all. What verdicts are worth is tested on whole pages (`report/verdicts/tests.rs`).

use super::*;

#[test]
fn known_answers() {
    assert_eq!(median(&[]), None);
    assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    assert_eq!(spread(&[8.0, 10.0, 13.0]), Some(0.5));
}

fn verdict(first: &[f64], other: &[f64]) -> Verdict {
    let comparisons = judge(&[(first, other)]);
    let reversed = judge(&[(other, first)]);
    assert_eq!(reversed[0].verdict, comparisons[0].verdict.reversed(), "{first:?} {other:?}");
    comparisons[0].verdict
}

/// Rows of samples and what is to be said of the first; of the second the opposite.
#[test]
fn ties_outliers_nothing_and_what_is_no_number() {
    let rows: [(&[f64], &[f64], Verdict); 17] = [
        // Ties; and rounds that are all alike.
        (&[5.0; 5], &[5.0; 5], Verdict::Draw),
        (&[6.0; 5], &[5.0; 5], Verdict::Above),
        // Certain, and nothing to care about.
        (&[5.2; 9], &[5.0; 9], Verdict::Draw),
        (&[5.0, 5.0, 6.0, 5.0, 6.0], &[5.0, 5.0, 6.0, 5.0, 5.0], Verdict::Draw),
        // Too few rounds, of both or of one.
        (&[9.0], &[1.0], Verdict::Unknown),
        (&[9.0; 9], &[1.0; 4], Verdict::Unknown),
        (&[], &[], Verdict::Unknown),
        // One round went wrong: of five that leaves it open, of seven it does not.
        (&[10.0, 10.1, 0.2, 10.2, 9.9], &[5.0, 5.1, 5.2, 5.0, 5.1], Verdict::Draw),
        (&[10.0, 10.1, 0.2, 10.2, 9.9, 10.0, 10.1], &[5.0, 5.1, 5.2, 5.0, 5.1, 5.0, 5.2], Verdict::Above),
        (&[10.0, 10.1, 1e9, 10.2, 9.9], &[5.0, 5.1, 5.2, 5.0, 5.1], Verdict::Above),
        // A hundred thousand times as much, and next to nothing.
        (&[1e9, 1.1e9, 1e9, 1e9, 1e9], &[1e4, 1.1e4, 1e4, 1e4, 1e4], Verdict::Above),
        (&[1e-9, 1.1e-9, 1e-9, 1e-9, 1e-9], &[1e-4, 1.1e-4, 1e-4, 1e-4, 1e-4], Verdict::Below),
        // Nothing at all.
        (&[0.0; 5], &[0.0; 5], Verdict::Draw),
        (&[7.0; 5], &[0.0; 5], Verdict::Above),
        // No numbers.
        (&[f64::NAN, 1.0, 1.0, 1.0, 1.0], &[5.0; 5], Verdict::Unknown),
        (&[f64::INFINITY; 5], &[5.0; 5], Verdict::Unknown),
        (&[-1.0; 5], &[5.0; 5], Verdict::Unknown),
    ];
    for (first, second, expected) in rows {
        assert_eq!(verdict(first, second), expected, "{first:?} {second:?}");
    }
}

/// The same two samples: alone they differ, among a hundred that do not they do not.
#[test]
fn what_is_certain_alone_is_chance_among_many() {
    let (first, other) = ([6.0, 6.1, 6.2, 6.3, 6.4], [5.0, 5.1, 5.2, 5.3, 5.4]);
    assert_eq!(judge(&[(&first, &other)])[0].verdict, Verdict::Above);
    let mut pairs: Vec<(&[f64], &[f64])> = vec![(&first, &first); 100];
    pairs.push((&first, &other));
    let comparison = judge(&pairs)[100];
    assert_eq!(comparison.verdict, Verdict::Draw);
    let chance = comparison.chance.unwrap();
    assert!((chance.alone - 2.0 / 252.0).abs() < 1e-12 && (chance.corrected - 101.0 * 2.0 / 252.0).abs() < 1e-9, "{chance:?}");
}

/// 2 of 252 orders of five and five, 2 of 924, 2 of 3,432, 2 of 48,620.
#[test]
fn rounds_for_a_difference_that_stands_alone() {
    for (comparisons, rounds) in [(0, 5), (1, 5), (6, 5), (7, 6), (23, 6), (24, 7), (85, 7), (86, 8), (450, 9)] {
        assert_eq!(rounds_for_one(comparisons), rounds, "{comparisons}");
    }
}
