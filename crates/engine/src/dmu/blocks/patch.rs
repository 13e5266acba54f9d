//! A block of which a group has changed some bytes only.
//!
//! # Theory
//! A small write into a large block need not copy the block: it is enough to keep the new bytes, and whom they go over.
//! A program that overwrites 8 KiB at random places of records of 128 KiB so copies 8 KiB for each write, and the record once for each
//! group, in the sync thread; and one that overwrites a record from one end to the other never copies the old contents at all.
//! The old contents are held, not looked for later: what is to be written when the group is synced needs no I/O, and so
//! cannot fail for want of a block that was readable when its writer was told "done".
//!
//! # Invariants
//! 1. Pieces are in order, do not overlap and do not touch, and lie inside the base.
//! 2. There are at most [`PIECES_MAX`] pieces: the caller makes a whole block of a patch that has more.

use std::sync::Arc;

use transform::compress::is_zero;

/// Blocks smaller than this are copied: that is as cheap.
pub(in crate::dmu) const PATCHED_BLOCK_MIN: u64 = 16 << 10;
/// Beyond this number of pieces, looking at each costs more than a copy of the block.
pub(in crate::dmu) const PIECES_MAX: usize = 64;

#[derive(Debug, Clone)]
struct Piece {
    start: usize,
    bytes: Vec<u8>,
}

impl Piece {
    fn end(&self) -> usize {
        self.start + self.bytes.len()
    }
}

/// New bytes over older contents.
#[derive(Debug, Clone)]
pub(in crate::dmu) struct Patch {
    base: Arc<Vec<u8>>,
    pieces: Vec<Piece>,
}

impl Patch {
    /// `base`, unchanged.
    pub(in crate::dmu) fn over(base: Arc<Vec<u8>>) -> Self {
        Patch { base, pieces: Vec::new() }
    }

    /// Puts `data` at `start`.
    ///
    /// # Panics
    /// If it does not lie inside the block.
    pub(in crate::dmu) fn write(&mut self, start: usize, data: &[u8]) {
        let end = start + data.len();
        assert!(end <= self.base.len(), "a patch of {start}..{end} in a block of {} bytes", self.base.len());
        // Those that the new bytes overlap or touch.
        let first = self.pieces.partition_point(|piece| piece.end() < start);
        let last = self.pieces.partition_point(|piece| piece.start <= end);
        if first >= last {
            self.pieces.insert(first, Piece { start, bytes: data.to_vec() });
            return;
        }
        let longest = self.base.len();
        let head = &mut self.pieces[first];
        if head.start <= start {
            let at = start - head.start;
            // A piece that grows once will grow again: room for all that can come, instead of copy upon copy.
            if at + data.len() > head.bytes.capacity() {
                head.bytes.reserve_exact(longest - head.end());
            }
            let inside = data.len().min(head.bytes.len() - at);
            head.bytes[at..at + inside].copy_from_slice(&data[..inside]);
            head.bytes.extend_from_slice(&data[inside..]);
        } else {
            let mut bytes = data.to_vec();
            bytes.extend_from_slice(head.bytes.get(end - head.start..).unwrap_or(&[]));
            *head = Piece { start, bytes };
        }
        let absorbed: Vec<Piece> = self.pieces.drain(first + 1..last).collect();
        let head = &mut self.pieces[first];
        for piece in absorbed {
            let known = head.end().saturating_sub(piece.start);
            head.bytes.extend_from_slice(piece.bytes.get(known..).unwrap_or(&[]));
        }
    }

    /// How many bytes are new.
    pub(in crate::dmu) fn own_bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes.len() as u64).sum()
    }

    /// Whether no new byte is anything but zero.
    pub(in crate::dmu) fn writes_zeros(&self) -> bool {
        self.pieces.iter().all(|piece| is_zero(&piece.bytes))
    }

    /// Fills `out` with what is at `start`; zeros beyond the end.
    pub(in crate::dmu) fn read(&self, start: usize, out: &mut [u8]) {
        let old = self.base.get(start..self.base.len().min(start + out.len())).unwrap_or(&[]);
        out[..old.len()].copy_from_slice(old);
        out[old.len()..].fill(0);
        self.lay_over(start, out);
    }

    fn lay_over(&self, start: usize, out: &mut [u8]) {
        let end = start + out.len();
        let first = self.pieces.partition_point(|piece| piece.end() <= start);
        for piece in self.pieces[first..].iter().take_while(|piece| piece.start < end) {
            let (from, to) = (piece.start.max(start), piece.end().min(end));
            out[from - start..to - start].copy_from_slice(&piece.bytes[from - piece.start..to - piece.start]);
        }
    }

    /// The whole block.
    pub(in crate::dmu) fn whole(&self) -> Vec<u8> {
        if let [piece] = &self.pieces[..]
            && piece.bytes.len() == self.base.len()
        {
            return piece.bytes.clone();
        }
        let mut bytes = self.base.to_vec();
        self.lay_over(0, &mut bytes);
        bytes
    }

    /// The whole block, if there is no use any more in keeping pieces: they cover it, or there are too many.
    pub(in crate::dmu) fn take_finished(&mut self) -> Option<Vec<u8>> {
        match &mut self.pieces[..] {
            [piece] if piece.bytes.len() == self.base.len() => Some(std::mem::take(&mut piece.bytes)),
            pieces if pieces.len() > PIECES_MAX => Some(self.whole()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn a_patched_block_is_the_block_with_the_writes_made() {
        const LENGTH: usize = 300;
        let seed = 0x9a7c;
        println!("seed {seed:#x}");
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut finished = 0;
        for _ in 0..300 {
            let mut model: Vec<u8> = (0..LENGTH).map(|at| at as u8).collect();
            let mut patch = Patch::over(Arc::new(model.clone()));
            for step in 0..200 {
                let start = random.random_range(0..LENGTH);
                let longest = (LENGTH - start).min(1 << random.random_range(0..8));
                let length = random.random_range(1..=longest);
                let data: Vec<u8> = (0..length).map(|_| random.random()).collect();
                model[start..start + length].copy_from_slice(&data);
                patch.write(start, &data);
                let ordered = patch.pieces.windows(2).all(|pair| pair[0].end() < pair[1].start);
                assert!(ordered && patch.pieces.iter().all(|piece| !piece.bytes.is_empty()), "invariant 1 at step {step}");
                let from = random.random_range(0..LENGTH + 10);
                let mut out = vec![1; random.random_range(0..50)];
                patch.read(from, &mut out);
                let expected: Vec<u8> = (from..from + out.len()).map(|at| model.get(at).copied().unwrap_or(0)).collect();
                assert_eq!(out, expected);
                assert_eq!(patch.whole(), model);
                if let Some(whole) = patch.take_finished() {
                    assert_eq!(whole, model);
                    finished += 1;
                    break;
                }
            }
        }
        assert!(finished > 50, "only {finished} patches ended as a whole block");
    }

    #[test]
    fn writing_from_end_to_end_never_looks_at_the_old_contents() {
        let mut patch = Patch::over(Arc::new(vec![1; 1 << 17]));
        for at in (0..1 << 17).step_by(4096) {
            assert!(patch.take_finished().is_none());
            patch.write(at, &[2; 4096]);
            assert_eq!(patch.pieces.len(), 1);
        }
        assert_eq!(patch.take_finished(), Some(vec![2; 1 << 17]));
    }
}
