//! Which of several equal leaves to use: pure functions.
//!
//! # Theory
//! Reads go to the leaf with the shortest queue. Where that does not decide, the address does, in regions of 2 MiB:
//! neighbouring reads then stay on one device, which may read ahead, while different regions use all devices.
//! A leaf that is behind comes last. Where all are, the one comes first that has not missed the group in which the data was written: two sides
//! that each missed something have everything together, and where nothing has a checksum only this tells which of them has what.

/// log2 of the region that one leaf serves.
const REGION_SHIFT: u32 = 21;

/// What the choice depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    /// It can be read.
    pub(super) readable: bool,
    /// It has missed writes.
    pub(super) behind: bool,
    /// I/O that it has not done yet.
    pub(super) pending: u64,
}

/// The leaves to read from, best first; those that cannot be read are left out. With each: has it missed what is to be read?
pub(super) fn read_order(offset: u64, leaves: &[(bool, View)]) -> Vec<usize> {
    let count = leaves.len() as u64;
    let mut order: Vec<usize> = (0..leaves.len()).filter(|&i| leaves[i].1.readable).collect();
    let turn = |i: usize| (i as u64 + count - (offset >> REGION_SHIFT) % count) % count;
    order.sort_by_key(|&i| (leaves[i].0, leaves[i].1.behind, leaves[i].1.pending, turn(i)));
    order
}

/// Whether a flush that worked on `flushed` made everything durable (invariant 3 of the module).
pub(super) fn flush_is_enough(leaves: &[View], flushed: &[bool]) -> bool {
    let open = || leaves.iter().zip(flushed).filter(|(leaf, _)| leaf.readable);
    if open().any(|(leaf, _)| !leaf.behind) {
        open().any(|(leaf, &done)| !leaf.behind && done)
    } else {
        open().count() > 0 && open().all(|(_, &done)| done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: View = View { readable: true, behind: false, pending: 0 };

    #[test]
    fn regions_take_turns() {
        let leaves = [(false, IDLE); 3];
        assert_eq!(read_order(0, &leaves), [0, 1, 2]);
        assert_eq!(read_order((1 << 21) - 1, &leaves), [0, 1, 2]);
        assert_eq!(read_order(1 << 21, &leaves), [1, 2, 0]);
        assert_eq!(read_order(5 << 21, &leaves), [2, 0, 1]);
    }

    #[test]
    fn the_busy_wait_and_the_stale_come_last() {
        let busy = View { pending: 3, ..IDLE };
        let stale = View { behind: true, ..IDLE };
        let gone = View { readable: false, ..IDLE };
        let has = |view| (false, view);
        assert_eq!(read_order(0, &[busy, IDLE, stale, gone].map(has)), [1, 0, 2]);
        assert_eq!(read_order(0, &[stale, gone].map(has)), [0]);
        assert_eq!(read_order(0, &[has(gone)]), [0usize; 0]);
        assert_eq!(read_order(0, &[(true, stale), (false, stale)]), [1, 0]);
        assert_eq!(read_order(0, &[]), [0usize; 0]);
    }

    #[test]
    fn a_flush_of_the_stale_is_not_enough() {
        let stale = View { behind: true, ..IDLE };
        let gone = View { readable: false, ..IDLE };
        assert!(flush_is_enough(&[IDLE, stale], &[true, false]));
        assert!(!flush_is_enough(&[IDLE, stale], &[false, true]));
        assert!(flush_is_enough(&[IDLE, IDLE], &[false, true]));
        assert!(flush_is_enough(&[stale, stale, gone], &[true, true, false]));
        assert!(!flush_is_enough(&[stale, stale], &[true, false]));
        assert!(!flush_is_enough(&[gone], &[false]));
    }
}
