//! One pass over a run of bytes, by the widest registers there are.
//!
//! # Theory
//! The loop is written once, over a type that is a register ([`Register`]): 32 bytes that the compiler makes of what every processor has, or a register of AVX2. It is compiled
//! for each choice of kinds of parity, so that their sums are in registers. A product with a factor is two look-ups in tables of 16 bytes in AVX2, by the
//! halves of each byte, since a product is the sum of those of the halves; elsewhere it is made bit by bit.

use super::KINDS;
use super::field::{REDUCTION, doubled, product};

/// Bytes of a register.
const WIDTH: usize = 32;
/// Registers that are worked on at a time, so that the next do not wait for the last.
const AT_ONCE: usize = 2;

/// What is to be done with a run of bytes. All slices are as long as the run.
pub(super) struct Pass<'a> {
    /// Which kinds of parity, ascending.
    pub(super) kinds: &'a [usize],
    /// The columns of data; those that are not there are zeros.
    pub(super) columns: &'a [Option<&'a [u8]>],
    /// Parity that is added to that of the columns, of each kind; or nothing.
    pub(super) given: &'a [&'a [u8]],
    /// What comes out is these combinations of the sums; none: the sums.
    pub(super) factors: &'a [Vec<u8>],
    /// All that comes out adds up to the first of the sums: the last one is made of the others.
    pub(super) adds_up: bool,
}

/// Several bytes that are worked on together.
trait Register: Copy {
    /// A factor in the form that products need.
    type Factor: Copy;

    const ZERO: Self;

    /// # Safety
    /// `WIDTH` bytes can be read there.
    unsafe fn load(from: *const u8) -> Self;
    /// # Safety
    /// `WIDTH` bytes can be written there.
    unsafe fn store(self, to: *mut u8);
    fn add(self, other: Self) -> Self;
    fn double(self) -> Self;
    fn factor(factor: u8) -> Self::Factor;
    fn multiply(self, factor: Self::Factor) -> Self;
}

/// Makes what `pass` says, as long as `into`.
///
/// # Panics
/// A slice is of another length.
pub(super) fn run(pass: &Pass<'_>, into: &mut [&mut [u8]]) {
    let Some(length) = into.first().map(|first| first.len()) else { return };
    let is_whole = into.iter().all(|bytes| bytes.len() == length)
        && pass.columns.iter().flatten().all(|bytes| bytes.len() == length)
        && pass.given.iter().all(|bytes| bytes.len() == length);
    assert!(is_whole, "all slices are as long as the run");
    assert!(pass.given.is_empty() || pass.given.len() == pass.kinds.len(), "parity of each kind");
    assert_eq!(into.len(), if pass.factors.is_empty() { pass.kinds.len() } else { pass.factors.len() }, "a place for each");
    let wide = length - length % (WIDTH * AT_ONCE);
    run_wide(pass, into, wide);
    run_bytes(pass, into, wide..length);
}

/// The definition, byte by byte: for what is over, and the twin that the wide loops are tested against.
pub(super) fn run_bytes(pass: &Pass<'_>, into: &mut [&mut [u8]], range: std::ops::Range<usize>) {
    for at in range {
        let mut sums = [0; KINDS];
        for (number, kind) in pass.kinds.iter().enumerate() {
            for column in pass.columns {
                sums[number] = (0..*kind).fold(sums[number], |sum, _| doubled(sum)) ^ column.map_or(0, |bytes| bytes[at]);
            }
            sums[number] ^= pass.given.get(number).map_or(0, |bytes| bytes[at]);
        }
        for (number, bytes) in into.iter_mut().enumerate() {
            bytes[at] = match pass.factors.get(number) {
                None => sums[number],
                Some(row) => row.iter().zip(sums).fold(0, |sum, (factor, of_kind)| sum ^ product(*factor, of_kind)),
            };
        }
    }
}

fn run_wide(pass: &Pass<'_>, into: &mut [&mut [u8]], wide: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor was just found to have AVX2, which is all that the function needs.
            return unsafe { avx2::run(pass, into, wide) };
        }
    }
    run_portable(pass, into, wide);
}

pub(super) fn run_portable(pass: &Pass<'_>, into: &mut [&mut [u8]], wide: usize) {
    run_for_kinds::<[u8; WIDTH]>(pass, into, wide);
}

/// Chooses the loop that is made for just these kinds.
#[inline(always)]
fn run_for_kinds<R: Register>(pass: &Pass<'_>, into: &mut [&mut [u8]], wide: usize) {
    match pass.kinds {
        [0] => run_loop::<R, 1, 0b001>(pass, into, wide),
        [1] => run_loop::<R, 1, 0b010>(pass, into, wide),
        [2] => run_loop::<R, 1, 0b100>(pass, into, wide),
        [0, 1] => run_loop::<R, 2, 0b011>(pass, into, wide),
        [0, 2] => run_loop::<R, 2, 0b101>(pass, into, wide),
        [1, 2] => run_loop::<R, 2, 0b110>(pass, into, wide),
        [0, 1, 2] => run_loop::<R, 3, 0b111>(pass, into, wide),
        other => assert!(other.is_empty(), "kinds of parity in their order"),
    }
}

/// The loop over `wide` bytes, for so many kinds, which are the bits of `MASK`.
#[inline(always)]
fn run_loop<R: Register, const COUNT: usize, const MASK: usize>(pass: &Pass<'_>, into: &mut [&mut [u8]], wide: usize) {
    let kinds: [usize; COUNT] = const { kinds_of::<COUNT, MASK>() };
    let is_plain = pass.factors.is_empty() || matches!(pass.factors, [row] if row[..] == [1]);
    let factor = |row: usize, column: usize| pass.factors.get(row).and_then(|row| row.get(column)).copied().unwrap_or(0);
    let factors: [[R::Factor; COUNT]; COUNT] = std::array::from_fn(|row| std::array::from_fn(|column| R::factor(factor(row, column))));
    for at in (0..wide).step_by(WIDTH * AT_ONCE) {
        let mut sums = [[R::ZERO; AT_ONCE]; COUNT];
        for column in pass.columns {
            let data: [R; AT_ONCE] = match column {
                // SAFETY: `run` has seen that every slice is as long as the run, of which `at` is a multiple of what is loaded before its end.
                Some(bytes) => std::array::from_fn(|lane| unsafe { R::load(bytes.as_ptr().add(at + lane * WIDTH)) }),
                None => [R::ZERO; AT_ONCE],
            };
            for (sum, kind) in sums.iter_mut().zip(kinds) {
                for (lane, data) in sum.iter_mut().zip(data) {
                    let mut raised = *lane;
                    if kind > 0 {
                        raised = raised.double();
                    }
                    if kind > 1 {
                        raised = raised.double();
                    }
                    *lane = raised.add(data);
                }
            }
        }
        for (sum, bytes) in sums.iter_mut().zip(pass.given) {
            for (lane, sum) in sum.iter_mut().enumerate() {
                // SAFETY: as above.
                *sum = sum.add(unsafe { R::load(bytes.as_ptr().add(at + lane * WIDTH)) });
            }
        }
        let mut rest = sums[0];
        for (row, bytes) in into.iter_mut().enumerate().take(COUNT) {
            for lane in 0..AT_ONCE {
                let made = if is_plain {
                    sums[row][lane]
                } else if pass.adds_up && row + 1 == COUNT {
                    rest[lane]
                } else {
                    (0..COUNT).fold(R::ZERO, |made, kind| made.add(sums[kind][lane].multiply(factors[row][kind])))
                };
                rest[lane] = rest[lane].add(made);
                // SAFETY: as above.
                unsafe { made.store(bytes.as_mut_ptr().add(at + lane * WIDTH)) };
            }
        }
    }
}

const fn kinds_of<const COUNT: usize, const MASK: usize>() -> [usize; COUNT] {
    let (mut kinds, mut number, mut kind) = ([0; COUNT], 0, 0);
    while kind < KINDS {
        if MASK >> kind & 1 == 1 {
            kinds[number] = kind;
            number += 1;
        }
        kind += 1;
    }
    kinds
}

impl Register for [u8; WIDTH] {
    type Factor = u8;

    const ZERO: Self = [0; WIDTH];

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller says that the bytes are there; bytes need no alignment.
        unsafe { from.cast::<Self>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: as above.
        unsafe { to.cast::<Self>().write_unaligned(self) }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        std::array::from_fn(|at| self[at] ^ other[at])
    }

    #[inline(always)]
    fn double(self) -> Self {
        std::array::from_fn(|at| doubled(self[at]))
    }

    #[inline(always)]
    fn factor(factor: u8) -> u8 {
        factor
    }

    #[inline(always)]
    fn multiply(self, factor: u8) -> Self {
        let mut sum = Self::ZERO;
        for bit in (0..8).rev() {
            // All ones where the factor has the bit.
            let mask = 0_u8.wrapping_sub(factor >> bit & 1);
            sum = std::array::from_fn(|at| doubled(sum[at]) ^ (self[at] & mask));
        }
        sum
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        __m128i, __m256i, _mm_loadu_si128, _mm256_add_epi8, _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_cmpgt_epi8, _mm256_loadu_si256, _mm256_set1_epi8,
        _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi16, _mm256_storeu_si256, _mm256_xor_si256,
    };

    use super::{Pass, REDUCTION, Register, product, run_for_kinds};

    /// A register. Its functions are for those alone that are compiled for AVX2: they are part of [`run`].
    #[derive(Clone, Copy)]
    struct Wide(__m256i);

    /// The loop, compiled for AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) fn run(pass: &Pass<'_>, into: &mut [&mut [u8]], wide: usize) {
        run_for_kinds::<Wide>(pass, into, wide);
    }

    impl Register for Wide {
        /// Products with what the lower half of a byte can be, and the upper one.
        type Factor = (Wide, Wide);

        // SAFETY: all bits of a register may be zero.
        const ZERO: Wide = Wide(unsafe { std::mem::zeroed() });

        #[inline(always)]
        unsafe fn load(from: *const u8) -> Wide {
            // SAFETY: the caller says that the bytes are there; and only `run` has a `Wide`.
            unsafe { Wide(_mm256_loadu_si256(from.cast())) }
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut u8) {
            // SAFETY: as above.
            unsafe { _mm256_storeu_si256(to.cast(), self.0) }
        }

        #[inline(always)]
        fn add(self, other: Wide) -> Wide {
            // SAFETY: only `run` has a `Wide`.
            unsafe { Wide(_mm256_xor_si256(self.0, other.0)) }
        }

        #[inline(always)]
        fn double(self) -> Wide {
            // SAFETY: as above.
            unsafe {
                let lost = _mm256_cmpgt_epi8(_mm256_setzero_si256(), self.0);
                let reduced = _mm256_and_si256(lost, _mm256_set1_epi8(REDUCTION as i8));
                Wide(_mm256_xor_si256(_mm256_add_epi8(self.0, self.0), reduced))
            }
        }

        #[inline(always)]
        fn factor(factor: u8) -> (Wide, Wide) {
            let low: [u8; 16] = std::array::from_fn(|half| product(factor, half as u8));
            let high: [u8; 16] = std::array::from_fn(|half| product(factor, (half << 4) as u8));
            // SAFETY: the tables have the bytes that are loaded; and as above.
            unsafe {
                let table = |bytes: &[u8; 16]| Wide(_mm256_broadcastsi128_si256(_mm_loadu_si128(bytes.as_ptr().cast::<__m128i>())));
                (table(&low), table(&high))
            }
        }

        #[inline(always)]
        fn multiply(self, (low, high): (Wide, Wide)) -> Wide {
            // SAFETY: as above.
            unsafe {
                let half = _mm256_set1_epi8(0x0f);
                let lower = _mm256_and_si256(self.0, half);
                let upper = _mm256_and_si256(_mm256_srli_epi16::<4>(self.0), half);
                Wide(_mm256_xor_si256(_mm256_shuffle_epi8(low.0, lower), _mm256_shuffle_epi8(high.0, upper)))
            }
        }
    }
}
