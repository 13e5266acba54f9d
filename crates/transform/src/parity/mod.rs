//! Parity of columns: up to three kinds, any of which makes up for one column that is not known.
//!
//! # Theory
//! Bytes are elements of the field of 256 elements that the polynomial `x^8 + x^4 + x^3 + x^2 + 1` makes: adding is the exclusive
//! or, and doubling is a shift, and an exclusive or with [`field::REDUCTION`] where a bit was lost. Parity of number `p` of the columns
//! of data `d_0 ... d_{n-1}` is the sum of `d_i * g^(n-1-i)`, where `g` is 1, 2 and 4: so it is made from the first column on, by
//! multiplying what there is so far with `g` and adding the next column (Horner). A column that is shorter counts as if it ended with zeros.
//!
//! Where `k` columns are not known, `k` kinds of parity, less what the known columns add to them, are `k` linear equations for each byte. Any `k` of
//! the three have one solution, as the powers of 2 are different for fewer than 255 columns (Plank, "A tutorial on Reed-Solomon coding", and H. P. Anvin,
//! "The mathematics of RAID-6"). The matrix is inverted once for all bytes.
//!
//! All kinds are made in one pass ([`lanes`]): each byte of a column is read once, and sums stay in registers until they are done. Columns are of several lengths: they are taken
//! apart into runs of bytes in which each column either is there or has ended.

// Only for calling functions that are compiled for AVX2, and for their registers.
#![allow(unsafe_code)]

mod field;
mod lanes;

#[cfg(test)]
mod tests;

use std::ops::Range;

use lanes::Pass;

/// The most kinds of parity.
pub const KINDS: usize = 3;

/// The first so many kinds of parity of columns of data, `length` bytes of each.
///
/// # Panics
/// There are not so many kinds.
#[must_use]
pub fn generate(kinds: usize, columns: &[&[u8]], length: usize) -> Vec<Vec<u8>> {
    let mut made: Vec<Vec<u8>> = (0..kinds).map(|_| vec![0; length]).collect();
    generate_into(columns, &mut made.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
    made
}

/// As [`generate`], the kinds into one place each.
///
/// # Panics
/// There are not so many kinds, or the places are of several lengths.
pub fn generate_into(columns: &[&[u8]], into: &mut [&mut [u8]]) {
    const NUMBERS: [usize; KINDS] = [0, 1, 2];
    assert!(into.len() <= KINDS, "a kind of parity that there is not");
    let columns: Vec<Option<&[u8]>> = columns.iter().map(|column| Some(*column)).collect();
    pass_over(&NUMBERS[..into.len()], &columns, &[], &[], into);
}

/// Does the same to each run of bytes.
fn pass_over(kinds: &[usize], columns: &[Option<&[u8]>], parity: &[(usize, &[u8])], factors: &[Vec<u8>], into: &mut [&mut [u8]]) {
    let length = into.first().map_or(0, |first| first.len());
    // The exclusive or is of columns as they are.
    let adds_up = !factors.is_empty() && kinds.first() == Some(&0);
    let given_in = |run: &Range<usize>| -> [&[u8]; KINDS] { std::array::from_fn(|number| parity.get(number).map_or(&[][..], |(_, bytes)| &bytes[run.clone()])) };
    if columns.iter().flatten().all(|column| column.len() == length) {
        let given = given_in(&(0..length));
        return lanes::run(&Pass { kinds, columns, given: &given[..parity.len()], factors, adds_up }, into);
    }
    for run in runs(columns, length) {
        let given = given_in(&run);
        let pass = Pass { kinds, columns: &in_run(columns, &run), given: &given[..parity.len()], factors, adds_up };
        let mut into: Vec<&mut [u8]> = into.iter_mut().map(|bytes| &mut bytes[run.clone()]).collect();
        lanes::run(&pass, &mut into);
    }
}

/// Where columns of data are `None`, what they hold: `length` bytes of each, in their order, from as many kinds of parity as numbers and bytes.
///
/// # Panics
/// There is not one kind of parity for each, in ascending order, all of `length` bytes.
#[must_use]
pub fn rebuild(parity: &[(usize, &[u8])], columns: &[Option<&[u8]>], length: usize) -> Vec<Vec<u8>> {
    let mut made: Vec<Vec<u8>> = parity.iter().map(|_| vec![0; length]).collect();
    rebuild_into(parity, columns, &mut made.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
    made
}

/// As [`rebuild`], each column into its place.
///
/// # Panics
/// As [`rebuild`], or the places are of several lengths.
pub fn rebuild_into(parity: &[(usize, &[u8])], columns: &[Option<&[u8]>], into: &mut [&mut [u8]]) {
    let unknown: Vec<usize> = (0..columns.len()).filter(|column| columns[*column].is_none()).collect();
    assert_eq!(unknown.len(), parity.len(), "as many kinds of parity as columns that are not known");
    let kinds: Vec<usize> = parity.iter().map(|(kind, _)| *kind).collect();
    assert!(kinds.is_sorted_by(|one, next| one < next) && kinds.last().is_none_or(|last| *last < KINDS), "kinds of parity, each once");
    let weight = |kind: usize, column: usize| field::power_of_two(kind * (columns.len() - 1 - column));
    let matrix = kinds.iter().map(|kind| unknown.iter().map(|column| weight(*kind, *column)).collect()).collect();
    assert_eq!(into.len(), unknown.len(), "a place for each column that is not known");
    pass_over(&kinds, columns, parity, &field::inverted(matrix), into);
}

/// Runs of the bytes up to `length`, in each of which a column is there throughout or not at all.
fn runs(columns: &[Option<&[u8]>], length: usize) -> Vec<Range<usize>> {
    let mut ends: Vec<usize> = columns.iter().flatten().map(|column| column.len().min(length)).chain([0, length]).collect();
    ends.sort_unstable();
    ends.dedup();
    ends.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

/// The bytes of each column in a run; `None`: it has ended, or is not known.
fn in_run<'a>(columns: &[Option<&'a [u8]>], run: &Range<usize>) -> Vec<Option<&'a [u8]>> {
    columns.iter().map(|column| column.and_then(|column| column.get(run.clone()))).collect()
}
