//! Edon-R 512 (in the tweaked form), keyed, cut to 256 bits.
//!
//! # Theory
//! Edon-R has a double-width state ("pipe") of 16 words and takes blocks of 16 words. It folds them together with one binary operation on
//! vectors of eight words, a *quasigroup*: if x*y = z, any two of the three determine the third.
//! `x*y` sums five words at a time from each side, rotates, and mixes both halves with xor and addition ([`quasigroup`]).
//! Eight such products per block make the new state; the tweak xors the old state and the block into it.
//!
//! There is no crate for it, and nothing but this file system uses it. As a keyed hash, its key is one block put in front
//! of the data: the hash of the salt and the hash of that hash.

type Half = [u64; 8];

const BLOCK_BYTES: usize = 128;

/// The mask that keeps the product from having 0*0 = 0; each side takes one of the two complements.
const ALTERNATING: u64 = 0xaaaa_aaaa_aaaa_aaaa;

/// The two halves of the pipe.
#[derive(Clone, Copy)]
struct Pipe {
    low: Half,
    high: Half,
}

impl Pipe {
    /// The bytes 80, 81, 82, ... ff, read as big-endian words.
    const START: Self = {
        let (mut low, mut high) = ([0; 8], [0; 8]);
        let mut i = 0;
        while i < 8 {
            let step = 0x0808_0808_0808_0808 * i as u64;
            low[i] = 0x8081_8283_8485_8687 + step;
            high[i] = 0xc0c1_c2c3_c4c5_c6c7 + step;
            i += 1;
        }
        Self { low, high }
    };

    fn absorb(&mut self, block: &[u8; BLOCK_BYTES]) {
        let mut first = [0u64; 8];
        let mut second = [0u64; 8];
        for (word, bytes) in first.iter_mut().chain(&mut second).zip(block.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        // Four rows; each multiplies what the row before has left.
        let mut p = quasigroup(&reversed(&second), &first);
        let mut q = quasigroup(&p, &second);
        p = quasigroup(&self.high, &p);
        q = quasigroup(&p, &q);
        p = quasigroup(&p, &self.low);
        q = quasigroup(&q, &p);
        p = quasigroup(&reversed(&first), &p);
        q = quasigroup(&p, &q);
        for i in 0..8 {
            self.low[i] ^= second[i] ^ p[i];
            self.high[i] ^= first[i] ^ q[i];
        }
    }
}

#[inline(always)]
fn reversed(half: &Half) -> Half {
    let [a, b, c, d, e, f, g, h] = *half;
    [h, g, f, e, d, c, b, a]
}

/// The product x*y. Written out: nothing of it goes through memory, and what several sums share is added once.
#[inline(always)]
fn quasigroup(x: &Half, y: &Half) -> Half {
    macro_rules! sum {
        ($first:expr $(, $more:expr)*) => { $first$(.wrapping_add($more))* };
    }
    let [x0, x1, x2, x3, x4, x5, x6, x7] = *x;
    let (x01, x04, x23, x56) = (sum!(x0, x1), sum!(x0, x4), sum!(x2, x3), sum!(x5, x6));
    let (x47, x67, x235, x0147) = (sum!(x4, x7), sum!(x6, x7), sum!(x23, x5), sum!(x01, x4, x7));
    let s0 = sum!(x0147, x2, ALTERNATING);
    let s1 = sum!(x0147, x3).rotate_left(5);
    let s2 = sum!(x01, x47, x6).rotate_left(15);
    let s3 = sum!(x235, x67).rotate_left(22);
    let s4 = sum!(x1, x23, x56).rotate_left(31);
    let s5 = sum!(x04, x235).rotate_left(40);
    let s6 = sum!(x01, x56, x7).rotate_left(50);
    let s7 = sum!(x235, x4, x6).rotate_left(59);
    let [y0, y1, y2, y3, y4, y5, y6, y7] = *y;
    let (y01, y34, y67) = (sum!(y0, y1), sum!(y3, y4), sum!(y6, y7));
    let (y25, y013, y467) = (sum!(y2, y5), sum!(y01, y3), sum!(y4, y67));
    let t0 = sum!(y01, y25, y7, !ALTERNATING);
    let t1 = sum!(y01, y34, y6).rotate_left(10);
    let t2 = sum!(y013, y25).rotate_left(19);
    let t3 = sum!(y2, y3, y467).rotate_left(29);
    let t4 = sum!(y01, y34, y5).rotate_left(36);
    let t5 = sum!(y25, y467).rotate_left(44);
    let t6 = sum!(y1, y25, y67).rotate_left(48);
    let t7 = sum!(y0, y34, y67).rotate_left(55);
    [
        (s0 ^ s1 ^ s4).wrapping_add(t0 ^ t1 ^ t5),
        (s0 ^ s4 ^ s7).wrapping_add(t2 ^ t6 ^ t7),
        (s1 ^ s6 ^ s7).wrapping_add(t0 ^ t1 ^ t3),
        (s2 ^ s3 ^ s4).wrapping_add(t0 ^ t3 ^ t4),
        (s0 ^ s1 ^ s7).wrapping_add(t1 ^ t2 ^ t5),
        (s3 ^ s5 ^ s6).wrapping_add(t3 ^ t4 ^ t6),
        (s2 ^ s5 ^ s6).wrapping_add(t2 ^ t5 ^ t7),
        (s2 ^ s3 ^ s5).wrapping_add(t4 ^ t6 ^ t7),
    ]
}

/// Hashes `data`, of which the pipe has already seen `bytes_before` bytes.
fn finish(mut pipe: Pipe, bytes_before: u64, data: &[u8]) -> [u8; 64] {
    let (full, rest) = data.as_chunks::<BLOCK_BYTES>();
    for block in full {
        pipe.absorb(block);
    }
    // One bit, zeros, and the length in bits in the last word; in a block of its own if it does not fit.
    let mut last = [0u8; BLOCK_BYTES];
    last[..rest.len()].copy_from_slice(rest);
    last[rest.len()] = 0x80;
    if rest.len() >= BLOCK_BYTES - 8 {
        pipe.absorb(&last);
        last = [0; BLOCK_BYTES];
    }
    let bits = bytes_before.wrapping_add(data.len() as u64).wrapping_mul(8);
    last[BLOCK_BYTES - 8..].copy_from_slice(&bits.to_le_bytes());
    pipe.absorb(&last);
    let mut digest = [0; 64];
    for (to, word) in digest.as_chunks_mut().0.iter_mut().zip(pipe.high) {
        *to = word.to_le_bytes();
    }
    digest
}

/// The first half of the hash of `data` with the salt's block in front.
pub(super) fn keyed_256(salt: &[u8; 32], data: &[u8]) -> [u8; 32] {
    let once = finish(Pipe::START, 0, salt);
    let twice = finish(Pipe::START, 0, &once);
    let mut key = [0; BLOCK_BYTES];
    key[..64].copy_from_slice(&once);
    key[64..].copy_from_slice(&twice);
    let mut pipe = Pipe::START;
    pipe.absorb(&key);
    finish(pipe, BLOCK_BYTES as u64, data)
        .first_chunk()
        .copied()
        .unwrap_or_default()
}
