//! What workloads write: random bytes, so that nobody wins by compressing them.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The longest piece.
pub(super) const LONGEST: usize = 1 << 20;

/// Random bytes to take pieces from.
pub(super) struct Contents(Vec<u8>);

impl Contents {
    pub(super) fn new(seed: u64) -> Contents {
        let mut bytes = vec![0; 2 * LONGEST];
        ChaCha8Rng::seed_from_u64(seed).fill(bytes.as_mut_slice());
        Contents(bytes)
    }

    /// `length` bytes, [`LONGEST`] at most, from somewhere.
    pub(super) fn piece(&self, random: &mut ChaCha8Rng, length: usize) -> &[u8] {
        let start = random.random_range(0..LONGEST);
        &self.0[start..start + length.min(LONGEST)]
    }
}
