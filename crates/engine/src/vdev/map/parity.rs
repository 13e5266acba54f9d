//! Parity of columns: up to three kinds, any of which makes up for one column that is not known.
//!
//! # Theory
//! Bytes are elements of the field of 256 elements that the polynomial `x^8 + x^4 + x^3 + x^2 + 1` makes: adding is the exclusive
//! or, and doubling is a shift, and an exclusive or with [`REDUCTION`] where a bit was lost. Parity of number `p` of the columns
//! of data `d_0 ... d_{n-1}` is the sum of `d_i * g^(n-1-i)`, where `g` is 1, 2 and 4: so it is made from the first column on, by
//! multiplying what there is so far with `g` and adding the next column (Horner). A column that is shorter counts as if it ended with zeros.
//!
//! Where `k` columns are not known, `k` kinds of parity, less what the known columns add to them, are `k` linear equations for each byte. Any `k` of
//! the three have one solution, as the powers of 2 are different for fewer than 255 columns (Plank, "A tutorial on Reed-Solomon coding", and H. P. Anvin,
//! "The mathematics of RAID-6"). The matrix is inverted once for all bytes.
//!
//! # Path
//! [`super::IoMap::bytes_of`] makes parity that is written, [`super::Reading`] rebuilds what cannot be read.

/// The most kinds of parity.
pub(super) const KINDS: usize = 3;
/// What is added where doubling loses a bit.
const REDUCTION: u8 = 0x1d;

/// The parity of this number of columns of data, the shorter of which count as if they ended with zeros.
///
/// # Panics
/// There is no parity of that number.
pub(super) fn of(number: usize, columns: &[&[u8]], length: usize) -> Vec<u8> {
    assert!(number < KINDS, "a kind of parity that there is not");
    let mut sum = vec![0; length];
    columns.iter().for_each(|column| next_term(number, &mut sum, column));
    sum
}

/// Where columns of data are `None`, what they hold: `length` bytes of each, in their order, from as many kinds of parity as numbers and bytes.
///
/// # Panics
/// There is not one kind of parity for each.
pub(super) fn rebuilt(parity: &[(usize, &[u8])], columns: &[Option<&[u8]>], length: usize) -> Vec<Vec<u8>> {
    let unknown: Vec<usize> = (0..columns.len()).filter(|column| columns[*column].is_none()).collect();
    assert_eq!(unknown.len(), parity.len(), "as many kinds of parity as columns that are not known");
    let power = |(number, column): (usize, usize)| (0..number * (columns.len() - 1 - column)).fold(1, |element, _| doubled(element));
    let matrix = parity.iter().map(|(number, _)| unknown.iter().map(|column| power((*number, *column))).collect()).collect();
    let inverse = inverted(matrix);
    let left: Vec<Vec<u8>> = parity.iter().map(|(number, bytes)| what_is_left(*number, bytes, columns, length)).collect();
    let column_of = |factors: &Vec<u8>| {
        let mut sum = vec![0; length];
        factors.iter().zip(&left).for_each(|(factor, left)| add_product(&mut sum, *factor, left));
        sum
    };
    inverse.iter().map(column_of).collect()
}

/// What the columns that are not known add to a parity.
fn what_is_left(number: usize, parity: &[u8], columns: &[Option<&[u8]>], length: usize) -> Vec<u8> {
    let known: Vec<&[u8]> = columns.iter().map(|column| column.unwrap_or_default()).collect();
    let mut sum = of(number, &known, length);
    add(&mut sum, parity);
    sum
}

/// One step of Horner's.
fn next_term(number: usize, sum: &mut [u8], column: &[u8]) {
    (0..number).for_each(|_| sum.iter_mut().for_each(|byte| *byte = doubled(*byte)));
    add(sum, column);
}

fn add(sum: &mut [u8], column: &[u8]) {
    sum.iter_mut().zip(column).for_each(|(byte, other)| *byte ^= other);
}

fn add_product(sum: &mut [u8], factor: u8, column: &[u8]) {
    match factor {
        0 => {}
        1 => add(sum, column),
        _ => {
            let products: [u8; 256] = std::array::from_fn(|byte| product(factor, byte as u8));
            sum.iter_mut().zip(column).for_each(|(byte, other)| *byte ^= products[usize::from(*other)]);
        }
    }
}

/// Without a branch, so that many bytes are doubled at once.
fn doubled(byte: u8) -> u8 {
    (byte << 1) ^ (((byte as i8) >> 7) as u8 & REDUCTION)
}

fn product(left: u8, right: u8) -> u8 {
    (0..8).rev().fold(0, |sum, bit| doubled(sum) ^ if right >> bit & 1 == 1 { left } else { 0 })
}

fn reciprocal(byte: u8) -> u8 {
    // The element to the power of 254, as to that of 255 it is 1.
    (0..253).fold(byte, |power, _| product(power, byte))
}

/// The inverse of a matrix, by Gauss and Jordan.
///
/// # Panics
/// It has none, which a matrix of this module always has.
fn inverted(mut matrix: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let size = matrix.len();
    for (number, row) in matrix.iter_mut().enumerate() {
        row.extend((0..size).map(|column| u8::from(column == number)));
    }
    for at in 0..size {
        let pivot = (at..size).find(|row| matrix[*row][at] != 0).expect("a matrix of powers has an inverse");
        matrix.swap(at, pivot);
        let factor = reciprocal(matrix[at][at]);
        matrix[at].iter_mut().for_each(|element| *element = product(*element, factor));
        let row = matrix[at].clone();
        for (_, other) in matrix.iter_mut().enumerate().filter(|(number, _)| *number != at) {
            let factor = other[at];
            other.iter_mut().zip(&row).for_each(|(element, of_row)| *element ^= product(factor, *of_row));
        }
    }
    matrix.into_iter().map(|row| row[size..].to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, RngCore, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn a_field() {
        for byte in 1..=255_u8 {
            assert_eq!(product(byte, reciprocal(byte)), 1);
            assert_eq!((product(byte, 2), product(2, byte)), (doubled(byte), doubled(byte)));
        }
        assert_eq!((product(0x80, 2), product(0x8e, 2)), (0x1d, 1));
    }

    /// Sums of products, as the definition has them, without Horner and with a table of logarithms of its own.
    #[test]
    fn parity_is_the_sum_of_its_definition() {
        let (mut powers, mut logarithms, mut element) = ([0_u8; 255], [0_usize; 256], 1_u16);
        for power in 0..255 {
            (powers[power], logarithms[element as usize]) = (element as u8, power);
            element <<= 1;
            if element > 255 {
                element ^= 0x11d;
            }
        }
        let columns: [&[u8]; 4] = [&[1, 2, 200], &[77, 0, 255], &[9, 8, 128], &[5, 250]];
        for number in 0..KINDS {
            let term = |column: usize, at: usize| match columns[column].get(at) {
                None | Some(0) => 0,
                Some(byte) => powers[(logarithms[usize::from(*byte)] + number * (3 - column)) % 255],
            };
            let expected: Vec<u8> = (0..3).map(|at| (0..4).map(|column| term(column, at)).fold(0, |sum, term| sum ^ term)).collect();
            assert_eq!(of(number, &columns, 3), expected, "parity {number}");
        }
    }

    /// Every choice of up to three columns, from every choice of as many kinds of parity.
    #[test]
    fn every_loss_is_made_up_for() {
        let mut random = ChaCha8Rng::seed_from_u64(3);
        for width in [1, 2, 3, 5, 9, 16] {
            let data: Vec<Vec<u8>> = (0..width)
                .map(|_| {
                    let mut bytes = vec![0; random.random_range(60..=64)];
                    random.fill_bytes(&mut bytes);
                    bytes
                })
                .collect();
            let all: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
            let parity: Vec<Vec<u8>> = (0..KINDS).map(|number| of(number, &all, 64)).collect();
            for lost in (0_u32..1 << width).filter(|lost| lost.count_ones() <= 3) {
                for kinds in (0_u32..1 << KINDS).filter(|kinds| kinds.count_ones() == lost.count_ones()) {
                    let has = |number: &usize| kinds >> number & 1 == 1;
                    let given: Vec<(usize, &[u8])> = (0..KINDS).filter(has).map(|number| (number, parity[number].as_slice())).collect();
                    let known: Vec<Option<&[u8]>> = (0..width).map(|column| (lost >> column & 1 == 0).then_some(all[column])).collect();
                    let mut found = rebuilt(&given, &known, 64).into_iter();
                    for column in (0..width).filter(|column| lost >> column & 1 == 1) {
                        let bytes = found.next().expect("one for each");
                        assert_eq!(bytes[..data[column].len()], data[column][..], "{width} columns, {lost:b} lost, parity {kinds:b}");
                        assert!(bytes[data[column].len()..].iter().all(|byte| *byte == 0));
                    }
                }
            }
        }
    }
}
