//! What a top-level vdev could not give without a device.
//!
//! # Theory
//! A leaf that is behind has a list of the groups whose writes it missed, and one that is not there has missed all. What was written in
//! a group is there if of all columns, but for as many as there is parity, some leaf has not missed it. So a device may go if that
//! holds for every group without it.

/// The groups whose writes a leaf missed: half-open and ascending.
pub(in crate::vdev) type Missed = Vec<(u64, u64)>;

/// Nothing can be had from there.
pub(in crate::vdev) fn all() -> Missed {
    vec![(0, u64::MAX)]
}

fn has_missed(missed: &Missed, txg: u64) -> bool {
    let after = missed.partition_point(|(start, _)| *start <= txg);
    after.checked_sub(1).is_some_and(|before| txg < missed[before].1)
}

/// Is there a group whose writes nobody has any more? `columns`: what the leaves of each have missed.
pub(super) fn has_outage(columns: &[Vec<Missed>], parity: usize) -> bool {
    // Where nothing begins, nothing becomes worse.
    let beginnings = columns.iter().flatten().flatten().map(|(start, _)| *start).chain([0]);
    let is_lost = |txg: u64| columns.iter().filter(|leaves| leaves.iter().all(|missed| has_missed(missed, txg))).count() > parity;
    beginnings.into_iter().any(is_lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_that_missed_something_else_have_everything_together() {
        let (none, early, late) = (vec![], vec![(4, 7)], vec![(10, 13), (20, 30)]);
        assert!(!has_outage(&[vec![none.clone(), all()]], 0));
        assert!(!has_outage(&[vec![early.clone(), late.clone()]], 0));
        assert!(has_outage(&[vec![early.clone(), all()]], 0));
        assert!(has_outage(&[vec![late.clone(), vec![(12, 14)]]], 0));
        assert!(!has_outage(&[vec![late.clone(), vec![(13, 20)]]], 0), "the ends are not part of it");
        assert!(has_outage(&[vec![]], 0), "nobody is left");
    }

    #[test]
    fn parity_makes_up_for_columns() {
        let (none, early, late): (Missed, Missed, Missed) = (vec![], vec![(4, 7)], vec![(5, 6)]);
        let columns = [vec![early.clone()], vec![late.clone()], vec![none.clone()], vec![all()]];
        assert!(has_outage(&columns, 2));
        assert!(!has_outage(&columns, 3));
        let columns = [vec![early], vec![vec![(7, 9)]], vec![none]];
        assert!(!has_outage(&columns, 1), "never two at a time");
    }
}
