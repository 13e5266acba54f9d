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

/// What is to be added: a name, and how many bytes its value has.
pub(super) type NewEntry<'a> = (&'a [u8], usize);

/// Entries of one word each.
pub(super) fn of_words<N: AsRef<[u8]>>(names: &[N]) -> Vec<NewEntry<'_>> {
    names.iter().map(|name| (name.as_ref(), size_of::<u64>())).collect()
}

/// Chunks of an entry.
const fn chunks(name_bytes: usize, value_bytes: usize) -> usize {
    1 + array_chunks(name_bytes + 1) + array_chunks(value_bytes)
}

/// Chunks that the entries whose names have the same `bits` upper bits of their hashes take.
fn grouped(entries: &[NewEntry<'_>], bits: u32, hash: impl Fn(&[u8]) -> u64) -> BTreeMap<u64, usize> {
    let mut groups = BTreeMap::new();
    for (name, value_bytes) in entries {
        *groups.entry(zap_hash::index(hash(name), bits)).or_default() += chunks(name.len(), *value_bytes);
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

/// Whether a new ZAP with this salt has room for these entries.
pub(super) fn check_new(entries: &[NewEntry<'_>], salt: u64, normalization: Normalization) -> Result<()> {
    let groups = grouped(entries, SURE_BITS, |name| Key::of_name(name, salt, 0, normalization).hash);
    check(groups, chunk_count(zap_fat::DEFAULT_BLOCK_SHIFT), |_| Ok(0))
}

/// Whether a micro ZAP has room for these entries, perhaps as a fat one.
pub(super) fn check_micro(micro: &Micro, entries: &[NewEntry<'_>]) -> Result<()> {
    let groups = grouped(entries, SURE_BITS, |name| micro.key(name).hash);
    check(groups, chunk_count(zap_fat::DEFAULT_BLOCK_SHIFT), |group| Ok(micro.chunks_near(group << (64 - SURE_BITS))))
}

/// Whether a fat ZAP has room for these entries. Those that are there under these names are replaced.
pub(super) fn check_fat(fat: &Fat, blocks: &impl ReadBlocks, entries: &[NewEntry<'_>]) -> Result<()> {
    let header = zap_fat::header(&blocks.read(0)?)?;
    let bits = sure_bits(header.leaf_count.get(), header.pointer_table.shift.get() as u32, fat.flags);
    let groups = grouped(entries, bits, |name| Key::of_name(name, fat.salt, fat.flags, fat.normalization).hash);
    check(groups, chunk_count(fat.block_shift), |group| {
        let (mut hash, mut collision, mut there) = (group << (64 - bits), 0, 0);
        while let Some((entry, name, value)) = fat.next(blocks, hash, collision)?.filter(|(entry, ..)| zap_hash::index(entry.hash, bits) == group) {
            if !entries.iter().any(|(new, _)| *new == name.as_slice()) {
                there += chunks(name.len(), value.count() * value.integer_size());
            }
            (hash, collision) = (entry.hash, entry.collision + 1);
        }
        Ok(there)
    })
}
