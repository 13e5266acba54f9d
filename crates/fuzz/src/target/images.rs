//! Whole pools: see [`crate::image`].

use crate::Input;
use crate::image::{bases, exercise};

fn base(input: &mut Input<'_>) -> Vec<disk::DiskRef> {
    let bases = bases();
    bases[usize::from(input.u8()) % bases.len()].changed(input)
}

/// Imported for reading, looked at, checked.
pub(super) fn read(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let disks = base(&mut input);
    let Some(pool) = exercise::import(disks, true) else { return };
    exercise::look(&pool);
    let _ = pool.check(true, &|_| ());
    let _ = pool.export();
}

/// Imported for writing, changed, exported, and looked at again.
pub(super) fn write(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let disks = base(&mut input);
    let Some(pool) = exercise::import(disks.clone(), false) else { return };
    exercise::change(&pool, &mut input);
    let _ = pool.export();
    drop(pool);
    let Some(pool) = exercise::import(disks, true) else { return };
    exercise::look(&pool);
    let _ = pool.check(false, &|_| ());
    let _ = pool.export();
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for base in 0..bases().len() as u8 {
        // Unchanged, and with some changes spread over the blocks.
        seeds.push(vec![base, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]);
        for step in [3u16, 977, 5003, 20011] {
            let mut seed = vec![base, 4];
            for number in 1..=4u16 {
                seed.extend(step.wrapping_mul(number).to_le_bytes());
                seed.push(number as u8 * 3);
                seed.extend(step.wrapping_mul(number * 7).to_le_bytes());
                seed.extend(u64::from(step.wrapping_mul(number)).to_le_bytes());
            }
            seed.extend([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12].map(|n: u8| n.wrapping_mul(base + 5)));
            seeds.push(seed);
        }
    }
    seeds
}
