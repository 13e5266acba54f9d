//! The pieces in which what is in use of a metaslab is rebuilt.

use crate::alloc::RangeTree;
use crate::vdev::Layout;

/// A range that is rebuilt at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    /// Where it begins.
    pub(super) offset: u64,
    /// What it has of the vdev's space.
    pub(super) allocated: u64,
    /// The bytes of data in it.
    pub(super) physical: u64,
}

impl Piece {
    /// Where it ends.
    pub(super) fn end(&self) -> u64 {
        self.offset + self.allocated
    }
}

/// The pieces of some ranges, in their order.
pub(super) struct Pieces<'a> {
    layout: Layout,
    segment: u64,
    ranges: Box<dyn Iterator<Item = (u64, u64)> + 'a>,
    /// What is left of the range that was begun: offset and bytes.
    left: (u64, u64),
}

impl<'a> Pieces<'a> {
    /// Those of all ranges of `used`, where a column has about `segment` bytes of each.
    pub(super) fn new(layout: Layout, used: &'a RangeTree, segment: u64) -> Pieces<'a> {
        Pieces { layout, segment, ranges: Box::new(used.segments()), left: (0, 0) }
    }

    /// As many as have so many bytes together, or one; no more than `count`.
    pub(super) fn window(&mut self, bytes: u64, count: u64) -> Vec<Piece> {
        let (mut window, mut sum) = (Vec::new(), 0);
        while sum < bytes && (window.len() as u64) < count {
            let Some(piece) = self.next() else { break };
            sum += piece.allocated;
            window.push(piece);
        }
        window
    }
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        loop {
            let (offset, left) = self.left;
            if left > 0 {
                let (allocated, physical) = self.layout.rebuild_piece(offset, left, self.segment);
                // Less than a line is nothing that was allocated.
                self.left = if allocated == 0 { (0, 0) } else { (offset + allocated, left - allocated) };
                if allocated > 0 {
                    return Some(Piece { offset, allocated, physical });
                }
                continue;
            }
            self.left = self.ranges.next()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vdev::map::Node;
    use crate::vdev::map::draid::{Draid, ROW_BYTES, Shape};

    fn used(ranges: &[(u64, u64)]) -> RangeTree {
        let mut used = RangeTree::new();
        ranges.iter().for_each(|(offset, size)| used.add(*offset, *size).unwrap());
        used
    }

    #[test]
    fn a_mirror_s_pieces_are_its_ranges_cut_up() {
        let used = used(&[(4096, 512), (10_000 * 512, 5000)]);
        let layout = Layout::same(0, 9, Node::Same(vec![Node::Leaf(0), Node::Leaf(1)]));
        let pieces: Vec<Piece> = Pieces::new(layout, &used, 2048).collect();
        let shown: Vec<(u64, u64)> = pieces.iter().map(|piece| (piece.offset, piece.allocated)).collect();
        assert_eq!(shown, [(4096, 512), (5_120_000, 2048), (5_122_048, 2048), (5_124_096, 904)]);
        assert!(pieces.iter().all(|piece| piece.physical == piece.allocated));
    }

    #[test]
    fn a_piece_of_draid_is_whole_lines_of_one_group() {
        let shape = Shape { data: 3, parity: 1, spares: 1, children: 6, groups: 0 }.with_fewest_groups();
        let layout = Layout::draid(0, 12, Draid::new(shape, 12), (0..6).map(Node::Leaf).collect());
        let (line, group) = (4 << 12, 4 * ROW_BYTES);
        let used = used(&[(group - 2 * line, 5 * line)]);
        let pieces: Vec<Piece> = Pieces::new(layout, &used, 8192).collect();
        let shown: Vec<(u64, u64, u64)> = pieces.iter().map(|piece| (piece.offset, piece.allocated / line, piece.physical)).collect();
        let data = 3 << 12;
        assert_eq!(shown, [(group - 2 * line, 2, 2 * data), (group, 2, 2 * data), (group + 2 * line, 1, data)]);
    }
}
