//! Parity of columns: the exclusive or. More kinds of parity are more numbers here.

/// The parity of this number of columns of data, the shorter of which count as if they ended with zeros.
///
/// # Panics
/// There is no parity of that number.
pub(super) fn of(number: usize, columns: &[&[u8]], length: usize) -> Vec<u8> {
    assert_eq!(number, 0, "a kind of parity that there is not");
    let mut sum = vec![0; length];
    columns.iter().for_each(|column| add(&mut sum, column));
    sum
}

/// The one column that is not known, of `length` bytes, from the others and from the parity.
pub(super) fn missing_column(parity: &[u8], others: &[&[u8]], length: usize) -> Vec<u8> {
    let mut sum = parity.to_vec();
    others.iter().for_each(|column| add(&mut sum, column));
    sum.resize(length, 0);
    sum
}

fn add(sum: &mut [u8], column: &[u8]) {
    sum.iter_mut().zip(column).for_each(|(byte, other)| *byte ^= other);
}
