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

fn reversed(half: &Half) -> Half {
    let mut other = *half;
    other.reverse();
    other
}

fn sum<const N: usize>(half: &Half, indices: [usize; N]) -> u64 {
    indices
        .iter()
        .fold(0, |total, index| total.wrapping_add(half[*index]))
}

/// The product x*y.
#[inline]
fn quasigroup(x: &Half, y: &Half) -> Half {
    let s = [
        sum(x, [0, 1, 2, 4, 7]).wrapping_add(ALTERNATING),
        sum(x, [0, 1, 3, 4, 7]).rotate_left(5),
        sum(x, [0, 1, 4, 6, 7]).rotate_left(15),
        sum(x, [2, 3, 5, 6, 7]).rotate_left(22),
        sum(x, [1, 2, 3, 5, 6]).rotate_left(31),
        sum(x, [0, 2, 3, 4, 5]).rotate_left(40),
        sum(x, [0, 1, 5, 6, 7]).rotate_left(50),
        sum(x, [2, 3, 4, 5, 6]).rotate_left(59),
    ];
    let t = [
        sum(y, [0, 1, 2, 5, 7]).wrapping_add(!ALTERNATING),
        sum(y, [0, 1, 3, 4, 6]).rotate_left(10),
        sum(y, [0, 1, 2, 3, 5]).rotate_left(19),
        sum(y, [2, 3, 4, 6, 7]).rotate_left(29),
        sum(y, [0, 1, 3, 4, 5]).rotate_left(36),
        sum(y, [2, 4, 5, 6, 7]).rotate_left(44),
        sum(y, [1, 2, 5, 6, 7]).rotate_left(48),
        sum(y, [0, 3, 4, 6, 7]).rotate_left(55),
    ];
    let mix = |a: [usize; 3], b: [usize; 3]| {
        (s[a[0]] ^ s[a[1]] ^ s[a[2]]).wrapping_add(t[b[0]] ^ t[b[1]] ^ t[b[2]])
    };
    [
        mix([0, 1, 4], [0, 1, 5]),
        mix([0, 4, 7], [2, 6, 7]),
        mix([1, 6, 7], [0, 1, 3]),
        mix([2, 3, 4], [0, 3, 4]),
        mix([0, 1, 7], [1, 2, 5]),
        mix([3, 5, 6], [3, 4, 6]),
        mix([2, 5, 6], [2, 5, 7]),
        mix([2, 3, 5], [4, 6, 7]),
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
