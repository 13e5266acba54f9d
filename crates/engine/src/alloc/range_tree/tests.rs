use std::collections::BTreeSet;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

const SPACE: u64 = 400;

/// The model: the set of single bytes.
fn check(tree: &RangeTree, model: &BTreeSet<u64>) {
    let mut bytes = Vec::new();
    let mut previous_end = None;
    for (offset, size) in tree.segments() {
        assert!(size > 0 && previous_end.is_none_or(|end| end < offset), "segments touch or are out of order");
        previous_end = Some(offset + size);
        bytes.extend(offset..offset + size);
    }
    assert!(bytes.iter().eq(model.iter()), "tree and model differ");
    assert_eq!(tree.bytes(), model.len() as u64);
    let plain = RangeTree { index: None, ..tree.clone() };
    assert_eq!(tree.class_counts(), plain.class_counts());
    assert_eq!(tree.largest(), plain.largest());
}

#[test]
fn behaves_like_a_set_of_bytes() {
    for seed in 0..30 {
        println!("seed {seed}");
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut tree = if seed % 2 == 0 { RangeTree::indexed() } else { RangeTree::new() };
        let mut model = BTreeSet::new();
        for _ in 0..400 {
            let offset = rng.random_range(0..SPACE);
            let size = rng.random_range(1..=40);
            let range = offset..offset + size;
            let present = range.clone().filter(|byte| model.contains(byte)).count() as u64;
            assert_eq!(tree.contains(offset, size), present == size);
            assert_eq!(tree.overlaps(offset, size), present > 0);
            match rng.random_range(0..5) {
                0 | 1 => {
                    assert_eq!(tree.add(offset, size).is_ok(), present == 0);
                    if present == 0 {
                        model.extend(range);
                    }
                }
                2 | 3 => {
                    assert_eq!(tree.remove(offset, size).is_ok(), present == size);
                    if present == size {
                        model.retain(|byte| !range.contains(byte));
                    }
                }
                _ => {
                    let removed: u64 = tree.remove_present(offset, size / 4 + 1).iter().map(|piece| piece.1).sum();
                    let before = model.len() as u64;
                    model.retain(|byte| !(offset..offset + size / 4 + 1).contains(byte));
                    assert_eq!(removed, before - model.len() as u64);
                }
            }
            check(&tree, &model);
        }
        check(&tree.into_indexed(), &model);
    }
}

#[test]
fn fits_are_found_where_there_are_any() {
    for seed in 0..30 {
        println!("seed {seed}");
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut tree = RangeTree::indexed();
        for _ in 0..150 {
            let _ = tree.add(rng.random_range(0..8000), rng.random_range(1..30));
        }
        for size in 1..80 {
            let fits = tree.largest() >= size;
            let best = tree.best_fit(size);
            assert_eq!(best.is_some(), fits, "best fit of {size}");
            let cursor = rng.random_range(0..8000);
            let first = tree.first_fit(cursor, size, u64::MAX, 0);
            let expected = (cursor..9000).find(|offset| tree.contains(*offset, size));
            assert_eq!(first, expected, "first fit of {size} from {cursor}");
            for found in [best, first].into_iter().flatten() {
                assert!(tree.contains(found, size));
            }
        }
    }
}

#[test]
fn first_fit_gives_up_after_the_distance() {
    let mut tree = RangeTree::new();
    for i in 0..100 {
        tree.add(i * 100, 10).unwrap();
    }
    tree.add(20_000, 50).unwrap();
    assert_eq!(tree.first_fit(0, 50, 1_000, 5), None);
    assert_eq!(tree.first_fit(0, 50, 1_000, 500), Some(20_000));
    assert_eq!(tree.first_fit(0, 50, u64::MAX, 5), Some(20_000));
}

#[test]
fn opposite_changes_cancel() {
    for seed in 0..20 {
        println!("seed {seed}");
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut allocated = RangeTree::new();
        let (mut since_allocated, mut since_freed) = (RangeTree::new(), RangeTree::new());
        for _ in 0..40 {
            let _ = allocated.add(rng.random_range(0..1000), rng.random_range(1..20));
        }
        let before = allocated.clone();
        for _ in 0..300 {
            let (offset, size) = (rng.random_range(0..1000), rng.random_range(1..40));
            if allocated.contains(offset, size) {
                allocated.remove(offset, size).unwrap();
                since_freed.add_or_cancel(&mut since_allocated, offset, size).unwrap();
            } else if !allocated.overlaps(offset, size) {
                allocated.add(offset, size).unwrap();
                since_allocated.add_or_cancel(&mut since_freed, offset, size).unwrap();
            }
        }
        let mut replayed = before;
        replayed.remove_all(&since_freed).unwrap();
        replayed.add_all(&since_allocated).unwrap();
        assert!(replayed.segments().eq(allocated.segments()));
    }
}

#[test]
fn malformed_ranges_are_refused() {
    let mut tree = RangeTree::new();
    assert_eq!(tree.add(5, 0).unwrap_err().fault, RangeFault::Malformed);
    assert_eq!(tree.add(u64::MAX, 2).unwrap_err().fault, RangeFault::Malformed);
    tree.add(0, u64::MAX).unwrap();
    assert!(tree.contains(7, 1 << 40));
    tree.remove(10, 5).unwrap();
    assert_eq!(tree.segment_count(), 2);
}
