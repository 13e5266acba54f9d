//! The random numbers of PostMark 1.5: a Mersenne Twister, seeded in the manner of 1999.
//!
//! # Theory
//!
//! The generator is the common MT19937, but its seed is spread over the state by another recurrence than today's. The
//! crate can take up a state from 624 numbers that it would have drawn; so the initial state is tempered into such
//! numbers, which are never handed out.

use rand_mt::Mt;

const WORDS: usize = 624;
/// Of the linear congruential generator that fills the state, 16 bits at a time.
const MULTIPLIER: u32 = 69069;

pub(super) struct Twister(Mt);

/// What the generator hands out for a word of its state (Matsumoto and Nishimura, 1998).
fn temper(word: u32) -> u32 {
    let word = word ^ (word >> 11);
    let word = word ^ ((word << 7) & 0x9d2c_5680);
    let word = word ^ ((word << 15) & 0xefc6_0000);
    word ^ (word >> 18)
}

impl Twister {
    pub(super) fn new(seed: u32) -> Twister {
        let mut seed = seed;
        let mut high_half = || {
            let half = seed >> 16;
            seed = seed.wrapping_mul(MULTIPLIER).wrapping_add(1);
            half
        };
        let words: Vec<u32> = (0..WORDS).map(|_| temper((high_half() << 16) | high_half())).collect();
        Twister(Mt::recover(words).expect("624 numbers are a whole state"))
    }

    /// A number below `limit`. Nothing is drawn when there is no choice.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        if limit == 0 { 0 } else { u64::from(self.0.next_u32()) % limit }
    }
}
