//! Which of several sides of a column to use.
//!
//! # Theory
//! Reads go to the leaf with the shortest queue; of several to the one that was last used nearest to the address: arms then keep to a part of their disks each,
//! and neighbouring reads stay on one device, which may read ahead. Where that does not decide either, the address does, in regions of 2 MiB.
//! A leaf that is behind comes last. Where all are, the one comes first that has not missed the group in which the data was written: two sides
//! that each missed something have everything together, and where nothing has a checksum only this tells which of them has what.

/// log2 of the region that one leaf serves.
const REGION_SHIFT: u32 = 21;

/// What is known of a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// It can be read.
    pub readable: bool,
    /// It has missed the group of what is to be read.
    pub missed: bool,
    /// It has missed writes.
    pub behind: bool,
    /// It is so slow that readers had better do without it.
    pub sits_out: bool,
    /// I/O that it has not done yet.
    pub pending: u64,
    /// Where the last I/O ended, if its reads are so slow that the way from there counts.
    pub last_end: Option<u64>,
}

impl View {
    /// It can be read, has everything, and does nothing.
    pub const IDLE: View = View { readable: true, missed: false, behind: false, sits_out: false, pending: 0, last_end: None };
}

/// The best side to read what is at `offset` from, of those that can be read.
pub(super) fn best(offset: u64, sides: &[View], is_candidate: impl Fn(usize) -> bool) -> Option<usize> {
    let count = sides.len().max(1) as u64;
    let turn = |side: usize| (side as u64 + count - (offset >> REGION_SHIFT) % count) % count;
    let way = |side: usize| sides[side].last_end.map_or(0, |end| end.abs_diff(offset));
    let candidates = (0..sides.len()).filter(|&side| sides[side].readable && is_candidate(side));
    candidates.min_by_key(|&side| (sides[side].missed, sides[side].sits_out, sides[side].behind, sides[side].pending, way(side), turn(side)))
}

/// Whether a flush of these sides of a column, that worked on `flushed`, made the column durable (invariant 3 of vdev).
pub(in crate::vdev) fn flush_is_enough(leaves: &[View], flushed: &[bool]) -> bool {
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

    const IDLE: View = View::IDLE;

    fn read_order(offset: u64, sides: &[View]) -> Vec<usize> {
        let mut order = Vec::new();
        while let Some(next) = best(offset, sides, |side| !order.contains(&side)) {
            order.push(next);
        }
        order
    }

    #[test]
    fn regions_take_turns() {
        let leaves = [IDLE; 3];
        assert_eq!(read_order(0, &leaves), [0, 1, 2]);
        assert_eq!(read_order((1 << 21) - 1, &leaves), [0, 1, 2]);
        assert_eq!(read_order(1 << 21, &leaves), [1, 2, 0]);
        assert_eq!(read_order(5 << 21, &leaves), [2, 0, 1]);
    }

    #[test]
    fn the_nearest_is_read() {
        let leaves = [0, 40 << 20, 90 << 20].map(|end| View { last_end: Some(end), ..IDLE });
        assert_eq!(read_order(0, &leaves), [0, 1, 2]);
        assert_eq!(read_order(60 << 20, &leaves), [1, 2, 0]);
        assert_eq!(read_order(89 << 20, &[leaves[0], leaves[1], View { pending: 1, ..leaves[2] }]), [1, 0, 2]);
    }

    #[test]
    fn the_busy_wait_and_the_stale_come_last() {
        let busy = View { pending: 3, ..IDLE };
        let stale = View { behind: true, ..IDLE };
        let gone = View { readable: false, ..IDLE };
        assert_eq!(read_order(0, &[busy, IDLE, stale, gone]), [1, 0, 2]);
        assert_eq!(read_order(0, &[stale, gone]), [0]);
        assert_eq!(read_order(0, &[gone]), [0usize; 0]);
        assert_eq!(read_order(0, &[View { missed: true, ..stale }, stale]), [1, 0]);
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
