//! Fletcher-2: two interleaved pairs of running sums over 64-bit words.
//!
//! # Theory
//! Even words feed the first pair, odd words the second. It is weak (high bits cancel) and only kept for old pools
//! and for the old form of intent log blocks.

use super::Words;

/// Running state, for blocks that come in pieces. Each piece must be a multiple of 16 bytes; what is over is ignored.
#[derive(Debug, Clone)]
pub struct Fletcher2 {
    words: Words,
    byteswap: bool,
}

impl Fletcher2 {
    #[must_use]
    pub const fn new(byteswap: bool) -> Self {
        Self {
            words: [0; 4],
            byteswap,
        }
    }

    pub fn update(&mut self, data: &[u8]) {
        if self.byteswap {
            self.add(data, u64::from_be_bytes);
        } else {
            self.add(data, u64::from_le_bytes);
        }
    }

    #[must_use]
    pub const fn words(&self) -> Words {
        self.words
    }

    #[inline]
    fn add(&mut self, data: &[u8], word: impl Fn([u8; 8]) -> u64) {
        let [mut a0, mut a1, mut b0, mut b1] = self.words;
        let (words, _) = data.as_chunks::<8>();
        for [even, odd] in words.as_chunks::<2>().0 {
            a0 = a0.wrapping_add(word(*even));
            a1 = a1.wrapping_add(word(*odd));
            b0 = b0.wrapping_add(a0);
            b1 = b1.wrapping_add(a1);
        }
        self.words = [a0, a1, b0, b1];
    }
}
