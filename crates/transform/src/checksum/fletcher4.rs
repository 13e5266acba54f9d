//! Fletcher-4: four nested running sums over 32-bit words. The default checksum, and so on the path of every block.
//!
//! # Theory
//! Over the words w and with the sums starting at zero, each word does `a += w; b += a; c += b; d += c`.
//! Seen from the end, a word that has x words from itself to the end (itself included) is counted
//! once in a, x times in b, C(x+1,2) times in c and C(x+2,3) times in d.
//!
//! The chain of four dependent additions per word is what limits the textbook loop. So we run N independent chains (lanes): lane j sees
//! the words j, j+N, j+2N, ... A word that is the r-th from the end of its lane has x = N*r - j, and each of the four weights
//! above is a polynomial in x, hence also a combination of the four weights in r that the lane itself has computed.
//! The factors depend only on N and j ([`Factors`]), and the lanes are merged once per call.
//!
//! Putting a piece behind what has been summed before is the same idea: all older words move M words away from the end.
//!
//! All of this is exact in arithmetic modulo 2^64.

// Only for calling a function that is compiled for AVX2.
#![allow(unsafe_code)]

use super::Words;

/// Words that the wide loop takes at once. Eight 64-bit lanes are two AVX2 registers (or one of AVX-512) per sum.
const LANES: usize = 8;

/// Below this size merging the lanes costs more than it saves.
const WIDE_BYTES_MIN: usize = 256;

/// Running state, for blocks and streams that come in pieces.
/// Each piece must be a multiple of 4 bytes; what is over is ignored.
#[derive(Debug, Clone)]
pub struct Fletcher4 {
    words: Words,
    byteswap: bool,
}

impl Fletcher4 {
    #[must_use]
    pub const fn new(byteswap: bool) -> Self {
        Self {
            words: [0; 4],
            byteswap,
        }
    }

    /// Continues from sums that were read or kept elsewhere.
    #[must_use]
    pub const fn with_words(words: Words, byteswap: bool) -> Self {
        Self { words, byteswap }
    }

    pub fn update(&mut self, data: &[u8]) {
        let wide = if data.len() < WIDE_BYTES_MIN {
            0
        } else {
            data.len() - data.len() % (4 * LANES)
        };
        let (head, tail) = data.split_at(wide);
        if wide > 0 {
            let lanes = if self.byteswap {
                sum_lanes::<true>(head)
            } else {
                sum_lanes::<false>(head)
            };
            self.append(lanes.merge(), (wide / 4) as u64);
        }
        self.words = if self.byteswap {
            sum_scalar::<true>(self.words, tail)
        } else {
            sum_scalar::<false>(self.words, tail)
        };
    }

    #[must_use]
    pub const fn words(&self) -> Words {
        self.words
    }

    /// Puts a piece of `count` words, summed from zero, behind what we have.
    fn append(&mut self, piece: Words, count: u64) {
        let [a, b, c, d] = self.words;
        let wide = u128::from(count);
        // Truncation is the reduction modulo 2^64.
        let triangle = (wide * (wide + 1) / 2) as u64;
        let tetrahedron = (wide * (wide + 1) / 2 * (wide + 2) / 3) as u64;
        let product = u64::wrapping_mul;
        let sum = |terms: &[u64]| {
            terms
                .iter()
                .fold(0u64, |total, term| total.wrapping_add(*term))
        };
        self.words = [
            sum(&[a, piece[0]]),
            sum(&[b, product(count, a), piece[1]]),
            sum(&[c, product(count, b), product(triangle, a), piece[2]]),
            sum(&[
                d,
                product(count, c),
                product(triangle, b),
                product(tetrahedron, a),
                piece[3],
            ]),
        ];
    }
}

#[inline]
const fn word<const SWAP: bool>(bytes: [u8; 4]) -> u64 {
    (if SWAP {
        u32::from_be_bytes(bytes)
    } else {
        u32::from_le_bytes(bytes)
    }) as u64
}

/// The definition, one word after the other. For short pieces, and the twin that the wide loop is tested against.
fn sum_scalar<const SWAP: bool>(start: Words, data: &[u8]) -> Words {
    let [mut a, mut b, mut c, mut d] = start;
    for bytes in data.as_chunks::<4>().0 {
        a = a.wrapping_add(word::<SWAP>(*bytes));
        b = b.wrapping_add(a);
        c = c.wrapping_add(b);
        d = d.wrapping_add(c);
    }
    [a, b, c, d]
}

/// The four sums of each lane.
struct Lanes {
    a: [u64; LANES],
    b: [u64; LANES],
    c: [u64; LANES],
    d: [u64; LANES],
}

impl Lanes {
    fn merge(&self) -> Words {
        let mut words = [0u64; 4];
        for (lane, factors) in FACTORS.iter().enumerate() {
            let sums = [self.a[lane], self.b[lane], self.c[lane], self.d[lane]];
            let rows: [&[i64]; 4] = [&[1], &factors.b, &factors.c, &factors.d];
            for (word, row) in words.iter_mut().zip(rows) {
                for (factor, sum) in row.iter().zip(sums) {
                    *word = word.wrapping_add((*factor as u64).wrapping_mul(sum));
                }
            }
        }
        words
    }
}

/// How often each sum of a lane counts in the total b, c and d. (In a, the lane's a counts once.)
struct Factors {
    b: [i64; 2],
    c: [i64; 3],
    d: [i64; 4],
}

const FACTORS: [Factors; LANES] = {
    let mut all = [const {
        Factors {
            b: [0; 2],
            c: [0; 3],
            d: [0; 4],
        }
    }; LANES];
    let n = LANES as i64;
    let mut lane = 0;
    while lane < LANES {
        let j = lane as i64;
        // x, C(x+1,2) and C(x+2,3) with x = n*r - j, written in 1, r, C(r+1,2) and C(r+2,3).
        all[lane] = Factors {
            b: [-j, n],
            c: [j * (j - 1) / 2, -(n * (n - 1) / 2 + n * j), n * n],
            d: [
                -(j * (j - 1) * (j - 2) / 6),
                (n * n * n - 3 * n * n * (1 - j) + 3 * n * j * j - 6 * n * j + 2 * n) / 6,
                -(n * n * (n - 1 + j)),
                n * n * n,
            ],
        };
        lane += 1;
    }
    all
};

/// The lanes' sums over `data`, by the widest registers there are.
fn sum_lanes<const SWAP: bool>(data: &[u8]) -> Lanes {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor was just found to have AVX2, which is all that the function needs.
            return unsafe { sum_lanes_avx2::<SWAP>(data) };
        }
    }
    sum_lanes_portable::<SWAP>(data)
}

/// The portable loop once more, for the compiler to vectorise with wider registers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_lanes_avx2<const SWAP: bool>(data: &[u8]) -> Lanes {
    sum_lanes_portable::<SWAP>(data)
}

#[inline(always)]
fn sum_lanes_portable<const SWAP: bool>(data: &[u8]) -> Lanes {
    let (mut a, mut b, mut c, mut d) = ([0u64; LANES], [0u64; LANES], [0u64; LANES], [0u64; LANES]);
    let (words, _) = data.as_chunks::<4>();
    for row in words.as_chunks::<LANES>().0 {
        for lane in 0..LANES {
            a[lane] = a[lane].wrapping_add(word::<SWAP>(row[lane]));
            b[lane] = b[lane].wrapping_add(a[lane]);
            c[lane] = c[lane].wrapping_add(b[lane]);
            d[lane] = d[lane].wrapping_add(c[lane]);
        }
    }
    Lanes { a, b, c, d }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, RngCore, SeedableRng};

    #[test]
    fn wide_agrees_with_scalar() {
        let seed = 0x1a5e_0001_u64;
        println!("seed {seed:#x}");
        let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
        for length in (0..2100).chain([4096, 131_072, 1 << 20]) {
            let mut data = vec![0u8; length];
            random.fill_bytes(&mut data);
            let start: Words = random.random();
            for byteswap in [false, true] {
                let expected = if byteswap {
                    sum_scalar::<true>(start, &data)
                } else {
                    sum_scalar::<false>(start, &data)
                };
                let mut sum = Fletcher4::with_words(start, byteswap);
                sum.update(&data);
                assert_eq!(
                    sum.words(),
                    expected,
                    "length {length}, byteswap {byteswap}"
                );
            }
        }
    }

    #[test]
    fn every_width_agrees() {
        let data: Vec<u8> = (0..4096u32)
            .flat_map(|i| i.wrapping_mul(0x9e37_79b9).to_le_bytes())
            .collect();
        let expected = sum_scalar::<false>([0; 4], &data);
        assert_eq!(sum_lanes_portable::<false>(&data).merge(), expected);
        assert_eq!(
            sum_lanes_portable::<true>(&data).merge(),
            sum_scalar::<true>([0; 4], &data)
        );
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            // SAFETY: AVX2 was just found to be there.
            assert_eq!(unsafe { sum_lanes_avx2::<false>(&data) }.merge(), expected);
        }
        assert_eq!(sum_lanes::<false>(&data).merge(), expected);
    }

    #[test]
    fn pieces_make_the_whole() {
        let data: Vec<u8> = (0..8192u32)
            .flat_map(|i| i.wrapping_mul(0x85eb_ca6b).to_le_bytes())
            .collect();
        for cut in [4, 252, 256, 300, 4096, 32764] {
            let mut sum = Fletcher4::new(false);
            sum.update(&data[..cut]);
            sum.update(&data[cut..]);
            assert_eq!(
                sum.words(),
                super::super::fletcher4(&data, false),
                "cut at {cut}"
            );
        }
    }
}
