//! The field of 256 elements, and small matrices over it.

/// What is added where doubling loses a bit.
pub(super) const REDUCTION: u8 = 0x1d;

pub(super) const fn doubled(byte: u8) -> u8 {
    (byte << 1) ^ (((byte as i8) >> 7) as u8 & REDUCTION)
}

pub(super) const fn product(left: u8, right: u8) -> u8 {
    let (mut sum, mut bit) = (0, 8);
    while bit > 0 {
        bit -= 1;
        sum = doubled(sum) ^ if right >> bit & 1 == 1 { left } else { 0 };
    }
    sum
}

/// The powers of two, which repeat after 255.
const POWERS: [u8; 255] = {
    let (mut powers, mut at, mut element) = ([0; 255], 0, 1);
    while at < 255 {
        powers[at] = element;
        element = doubled(element);
        at += 1;
    }
    powers
};

pub(super) fn power_of_two(exponent: usize) -> u8 {
    POWERS[exponent % POWERS.len()]
}

/// Which power of two an element is; zero is none.
const LOGARITHMS: [u8; 256] = {
    let (mut logarithms, mut at) = ([0; 256], 0);
    while at < 255 {
        logarithms[POWERS[at] as usize] = at as u8;
        at += 1;
    }
    logarithms
};

/// # Panics
/// Zero has none.
fn reciprocal(byte: u8) -> u8 {
    assert_ne!(byte, 0, "the reciprocal of zero");
    power_of_two(255 - usize::from(LOGARITHMS[usize::from(byte)]))
}

/// The inverse of a matrix, by Gauss and Jordan.
///
/// # Panics
/// It has none, which a matrix of powers of different elements always has.
pub(super) fn inverted(mut matrix: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
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

    #[test]
    fn a_field() {
        for byte in 1..=255_u8 {
            assert_eq!(product(byte, reciprocal(byte)), 1);
            assert_eq!((product(byte, 2), product(2, byte)), (doubled(byte), doubled(byte)));
        }
        assert_eq!((product(0x80, 2), product(0x8e, 2)), (0x1d, 1));
        assert_eq!((power_of_two(8), power_of_two(255), power_of_two(256)), (0x1d, 1, 2));
    }
}
