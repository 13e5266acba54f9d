//! Whether names will find room before they are added: those that nearly share a hash have to share a leaf.
//!
//! # Theory
//! A leaf that is full is split by one more bit of its hashes, but a table of pointers has only so many bits (see `fat::grow`). So a
//! ZAP can refuse a name, of which many others have the hash. A caller that adds several names and must not fail in the middle asks before.
//! All names that share the bits that a table may always use are taken together: if these fit one leaf, each finds room.

use std::collections::BTreeMap;

use ondisk::zap_leaf::{array_chunks, chunk_count};
use ondisk::{zap_fat, zap_hash};

use super::blocks::ReadBlocks;
use super::fat::fat_zap::Fat;
use super::fat::grow::{SURE_BITS, sure_bits};
use super::key::{Key, Normalization};
use super::micro::Micro;
use crate::bail;
use crate::error::Result;

/// Chunks of an entry of one word.
const fn chunks(name_bytes: usize) -> usize {
    1 + array_chunks(name_bytes + 1) + array_chunks(8)
}

/// Chunks that the names with the same `bits` upper bits of their hashes take.
fn grouped<N: AsRef<[u8]>>(names: &[N], bits: u32, hash: impl Fn(&[u8]) -> u64) -> BTreeMap<u64, usize> {
    let mut groups = BTreeMap::new();
    for name in names {
        let name = name.as_ref();
        *groups.entry(zap_hash::index(hash(name), bits)).or_default() += chunks(name.len());
    }
    groups
}

fn check(groups: BTreeMap<u64, usize>, leaf_chunks: usize, there: impl Fn(u64) -> Result<usize>) -> Result<()> {
    for (group, new) in groups {
        if new + there(group)? > leaf_chunks {
            bail!(NoSpace, "too many names have nearly the same hash");
        }
    }
    Ok(())
}

/// Whether a new ZAP with this salt has room for these names.
pub(super) fn check_new<N: AsRef<[u8]>>(names: &[N], salt: u64, normalization: Normalization) -> Result<()> {
    let groups = grouped(names, SURE_BITS, |name| Key::of_name(name, salt, 0, normalization).hash);
    check(groups, chunk_count(zap_fat::DEFAULT_BLOCK_SHIFT), |_| Ok(0))
}

/// Whether a micro ZAP has room for these names, perhaps as a fat one.
pub(super) fn check_micro<N: AsRef<[u8]>>(micro: &Micro, names: &[N]) -> Result<()> {
    let groups = grouped(names, SURE_BITS, |name| micro.key(name).hash);
    check(groups, chunk_count(zap_fat::DEFAULT_BLOCK_SHIFT), |group| Ok(micro.chunks_near(group << (64 - SURE_BITS))))
}

/// Whether a fat ZAP has room for these names.
pub(super) fn check_fat<N: AsRef<[u8]>>(fat: &Fat, blocks: &impl ReadBlocks, names: &[N]) -> Result<()> {
    let header = zap_fat::header(&blocks.read(0)?)?;
    let bits = sure_bits(header.leaf_count.get(), header.pointer_table.shift.get() as u32, fat.flags);
    let groups = grouped(names, bits, |name| Key::of_name(name, fat.salt, fat.flags, fat.normalization).hash);
    check(groups, chunk_count(fat.block_shift), |group| {
        let (mut hash, mut collision, mut there) = (group << (64 - bits), 0, 0);
        while let Some((entry, name, value)) = fat.next(blocks, hash, collision)?.filter(|(entry, ..)| zap_hash::index(entry.hash, bits) == group) {
            there += 1 + array_chunks(name.len() + 1) + array_chunks(value.count() * value.integer_size());
            (hash, collision) = (entry.hash, entry.collision + 1);
        }
        Ok(there)
    })
}
