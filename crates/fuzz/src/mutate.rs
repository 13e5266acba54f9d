//! Mutations of inputs, for [`crate::replay`]. (libFuzzer has its own.)

use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// Numbers at which things go wrong.
const EDGES: [u64; 16] = [
    0,
    1,
    2,
    7,
    0x7f,
    0xff,
    0x7fff,
    0xffff,
    0x10_0000,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 48,
    1 << 62,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

fn number(random: &mut ChaCha8Rng) -> u64 {
    match random.random_range(0..3) {
        0 => EDGES[random.random_range(0..EDGES.len())],
        1 => random.random_range(0..256),
        _ => random.random(),
    }
}

/// Changes `input` in one to eight places.
pub fn mutate(input: &mut Vec<u8>, others: &[Vec<u8>], bytes_max: usize, random: &mut ChaCha8Rng) {
    for _ in 0..random.random_range(1..=8) {
        if input.is_empty() {
            input.push(random.random());
        }
        let at = random.random_range(0..input.len());
        match random.random_range(0..9) {
            0 => input[at] ^= 1 << random.random_range(0..8),
            1 => input[at] = random.random(),
            2 => {
                // A number of one, two, four or eight bytes, mostly where such numbers are.
                let size = 1 << random.random_range(0..4);
                let at = if random.random_bool(0.75) { at / size * size } else { at };
                let bytes = if random.random_bool(0.8) { number(random).to_le_bytes() } else { number(random).to_be_bytes() };
                input.iter_mut().skip(at).take(size).zip(bytes).for_each(|(to, from)| *to = from);
            }
            3 => {
                let by = random.random_range(0..=64u8).wrapping_sub(32);
                input[at] = input[at].wrapping_add(by);
            }
            4 => input.truncate(at),
            5 => {
                let length = random.random_range(1..=64.min(input.len() - at));
                input.drain(at..at + length);
            }
            6 => {
                let inserted: Vec<u8> = (0..random.random_range(1..32)).map(|_| random.random()).collect();
                input.splice(at..at, inserted);
            }
            7 => {
                // A piece of this or another input, over what is there.
                let from = if others.is_empty() || random.random_bool(0.5) {
                    input.clone()
                } else {
                    others[random.random_range(0..others.len())].clone()
                };
                let start = random.random_range(0..=from.len());
                let piece = from[start..].iter().take(random.random_range(1..128));
                input.iter_mut().skip(at).zip(piece).for_each(|(to, from)| *to = *from);
            }
            _ => {
                let length = random.random_range(1..128);
                input.iter_mut().skip(at).take(length).for_each(|byte| *byte = 0);
            }
        }
    }
    input.truncate(bytes_max);
}
