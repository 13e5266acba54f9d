//! Against the definition: sums of products, with a table of logarithms, without Horner.

use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::lanes::{Pass, run_bytes, run_portable};
use super::*;

/// Powers of the element 2, and their exponents.
struct Tables {
    powers: [u8; 255],
    logarithms: [usize; 256],
}

impl Tables {
    #[allow(clippy::needless_range_loop)]
    fn new() -> Tables {
        let (mut powers, mut logarithms, mut element) = ([0_u8; 255], [0_usize; 256], 1_u16);
        for power in 0..255 {
            (powers[power], logarithms[element as usize]) = (element as u8, power);
            element <<= 1;
            if element > 255 {
                element ^= 0x11d;
            }
        }
        Tables { powers, logarithms }
    }

    fn parity(&self, kind: usize, columns: &[&[u8]], length: usize) -> Vec<u8> {
        let term = |column: usize, at: usize| match columns[column].get(at) {
            None | Some(0) => 0,
            Some(byte) => self.powers[(self.logarithms[usize::from(*byte)] + kind * (columns.len() - 1 - column)) % 255],
        };
        (0..length).map(|at| (0..columns.len()).map(|column| term(column, at)).fold(0, |sum, term| sum ^ term)).collect()
    }
}

fn random_columns(random: &mut ChaCha8Rng, width: usize, lengths: Range<usize>) -> Vec<Vec<u8>> {
    let column = |_| {
        let mut bytes = vec![0; random.random_range(lengths.clone())];
        random.fill_bytes(&mut bytes);
        bytes
    };
    (0..width).map(column).collect()
}

#[test]
fn parity_is_the_sum_of_its_definition() {
    let (tables, mut random) = (Tables::new(), ChaCha8Rng::seed_from_u64(1));
    for (width, lengths, length) in [(1, 0..5, 4), (4, 1..4, 3), (3, 60..200, 200), (9, 500..513, 512), (17, 64..65, 64), (200, 90..130, 130)] {
        let data = random_columns(&mut random, width, lengths);
        let columns: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        for kinds in 0..=KINDS {
            let made = generate(kinds, &columns, length);
            assert_eq!(made.len(), kinds);
            for (kind, made) in made.iter().enumerate() {
                assert_eq!(*made, tables.parity(kind, &columns, length), "parity {kind} of {width} columns");
            }
        }
    }
}

/// Every choice of up to three columns, from every choice of as many kinds of parity.
#[test]
fn every_loss_is_made_up_for() {
    let mut random = ChaCha8Rng::seed_from_u64(3);
    for (width, lengths, length) in [(1, 60..65, 64), (2, 1..65, 64), (3, 130..200, 200), (5, 60..65, 64), (9, 60..65, 64), (16, 60..65, 64)] {
        let data = random_columns(&mut random, width, lengths);
        let all: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let parity = generate(KINDS, &all, length);
        for lost in (0_u32..1 << width).filter(|lost| lost.count_ones() <= 3) {
            for kinds in (0_u32..1 << KINDS).filter(|kinds| kinds.count_ones() == lost.count_ones()) {
                let has = |kind: &usize| kinds >> kind & 1 == 1;
                let given: Vec<(usize, &[u8])> = (0..KINDS).filter(has).map(|kind| (kind, parity[kind].as_slice())).collect();
                let known: Vec<Option<&[u8]>> = (0..width).map(|column| (lost >> column & 1 == 0).then_some(all[column])).collect();
                let mut found = rebuild(&given, &known, length).into_iter();
                for column in (0..width).filter(|column| lost >> column & 1 == 1) {
                    let bytes = found.next().expect("one for each");
                    assert_eq!(bytes[..data[column].len()], data[column][..], "{width} columns, {lost:b} lost, parity {kinds:b}");
                    assert!(bytes[data[column].len()..].iter().all(|byte| *byte == 0));
                }
            }
        }
    }
}

/// The widest vdev, of which three columns are lost in some hundred places each.
#[test]
fn losses_of_the_widest_are_made_up_for() {
    let mut random = ChaCha8Rng::seed_from_u64(4);
    let data = random_columns(&mut random, 252, 128..129);
    let all: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let parity = generate(KINDS, &all, 128);
    let given: Vec<(usize, &[u8])> = parity.iter().map(Vec::as_slice).enumerate().collect();
    for _ in 0..300 {
        let lost: [usize; 3] = std::array::from_fn(|_| random.random_range(0..252));
        let known: Vec<Option<&[u8]>> = (0..252).map(|column| (!lost.contains(&column)).then_some(all[column])).collect();
        let unknown: Vec<usize> = (0..252).filter(|column| lost.contains(column)).collect();
        let found = rebuild(&given[..unknown.len()], &known, 128);
        unknown.iter().zip(found).for_each(|(column, bytes)| assert_eq!(bytes, data[*column], "{lost:?}"));
    }
}

/// The wide loops do what the definition does, byte by byte: that of the widest registers of this machine, and the portable one.
#[test]
fn every_width_agrees() {
    let mut random = ChaCha8Rng::seed_from_u64(5);
    for kinds in [&[0][..], &[1], &[2], &[0, 1], &[0, 2], &[1, 2], &[0, 1, 2]] {
        for length in [64, 128, 192, 1024] {
            let bytes = random_columns(&mut random, 10, length..length + 1);
            let all: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
            let (data, given) = all.split_at(7);
            let columns: Vec<Option<&[u8]>> = data.iter().enumerate().map(|(at, column)| (at % 3 != 1).then_some(*column)).collect();
            for (given, factors) in [(&[][..], Vec::new()), (&given[..kinds.len()], kinds.iter().map(|_| kinds.iter().map(|_| random.random()).collect()).collect())] {
                let pass = Pass { kinds, columns: &columns, given, factors: &factors, adds_up: false };
                let by = |run: &dyn Fn(&Pass<'_>, &mut [&mut [u8]])| {
                    let mut made: Vec<Vec<u8>> = kinds.iter().map(|_| vec![0xee; length]).collect();
                    run(&pass, &mut made.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
                    made
                };
                let expected = by(&|pass, into| run_bytes(pass, into, 0..length));
                assert_eq!(by(&|pass, into| run_portable(pass, into, length)), expected, "portable, kinds {kinds:?}");
                assert_eq!(by(&lanes::run), expected, "kinds {kinds:?}");
            }
        }
    }
}
