//! The micro form: slots of one block, and the index over them.

use std::collections::BTreeMap;

use ondisk::corruption::Corruption;
use ondisk::zap_leaf;
use ondisk::{zap_hash, zap_micro};

use super::blocks::{ReadBlocks, WriteBlocks};
use super::fat::grow::SURE_BITS;
use super::key::{Key, Normalization};
use super::zap_object::Match;
use crate::error::Result;

/// The index of a micro ZAP's block.
#[derive(Debug)]
pub(super) struct Micro {
    pub(super) salt: u64,
    pub(super) normalization: Normalization,
    slot_count: usize,
    /// Where the search for a free slot begins.
    next_slot: usize,
    /// (hash, collision number) → slot.
    index: BTreeMap<(u64, u32), u16>,
}

/// An entry of a micro ZAP.
pub(super) struct MicroEntry {
    pub(super) hash: u64,
    pub(super) collision: u32,
    pub(super) name: Vec<u8>,
    pub(super) value: u64,
}

/// Chunks that the largest micro entry takes in a leaf.
const LEAF_CHUNKS_PER_ENTRY: usize = 1 + zap_leaf::array_chunks(zap_micro::NAME_MAX + 1) + zap_leaf::array_chunks(8);

const fn leaf_chunks() -> usize {
    zap_leaf::chunk_count(ondisk::zap_fat::DEFAULT_BLOCK_SHIFT)
}

impl Micro {
    /// Reads the block and builds the index.
    pub(super) fn open(block: &[u8]) -> Result<Micro> {
        let header = zap_micro::header(block)?;
        let (salt, normalization) = (header.salt.get(), Normalization::from_flags(header.normalization.get())?);
        let mut micro = Micro { salt, normalization, slot_count: zap_micro::slot_count(block.len()), next_slot: 0, index: BTreeMap::new() };
        for (number, slot) in zap_micro::slots(block).iter().enumerate().filter(|(_, slot)| !slot.is_free()) {
            let hash = micro.hash(slot.name());
            let mut collision = slot.collision.get();
            // Two slots of one position would be a damaged block; both must stay reachable.
            while micro.index.contains_key(&(hash, collision)) {
                collision = collision.wrapping_add(0x1_0000);
            }
            // There is no position behind such an entry: a listing of the directory would see it again and again.
            if collision >= zap_hash::collision_limit(0) - 1 {
                return Err(Corruption::new("micro ZAP", "collision number", collision.into()).into());
            }
            micro.index.insert((hash, collision), number as u16);
        }
        Ok(micro)
    }

    fn hash(&self, name: &[u8]) -> u64 {
        zap_hash::hash_name(self.salt, 0, &self.normalization.apply(name))
    }

    pub(super) fn key<'a>(&self, name: &'a [u8]) -> Key<'a> {
        Key::of_name(name, self.salt, 0, self.normalization)
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.index.len() >= self.slot_count
    }

    fn find(&self, block: &[u8], key: &Key<'_>, matching: Match) -> Option<((u64, u32), u16)> {
        let slots = zap_micro::slots(block);
        let same_hash = self.index.range((key.hash, 0)..=(key.hash, u32::MAX));
        same_hash
            .map(|(position, slot)| (*position, *slot))
            .find(|(_, slot)| slots.get(usize::from(*slot)).is_some_and(|slot| key.matches(slot.name(), self.normalization, matching)))
    }

    /// The value and the name as stored.
    pub(super) fn lookup(&self, block: &[u8], key: &Key<'_>, matching: Match) -> Option<(u64, Vec<u8>)> {
        let (_, slot) = self.find(block, key, matching)?;
        zap_micro::slots(block).get(usize::from(slot)).map(|slot| (slot.value.get(), slot.name().to_vec()))
    }

    /// Chunks of the entries that may have to share a leaf with this hash, if this became a fat ZAP.
    pub(super) fn chunks_near(&self, hash: u64) -> usize {
        let rest = u64::MAX >> SURE_BITS;
        self.index.range((hash & !rest, 0)..=(hash | rest, u32::MAX)).count() * LEAF_CHUNKS_PER_ENTRY
    }

    /// Whether one more entry of this hash would still fit one leaf together with those of nearly the same hash, if this became a fat ZAP.
    pub(super) fn leaf_would_hold(&self, hash: u64) -> bool {
        self.chunks_near(hash) + LEAF_CHUNKS_PER_ENTRY < leaf_chunks()
    }

    /// Whether all entries would find room, if this became a fat ZAP.
    pub(super) fn fits_leaves(&self) -> bool {
        self.index.keys().all(|(hash, _)| self.chunks_near(*hash) < leaf_chunks())
    }

    /// Makes the block larger by one sector.
    pub(super) fn grow(&mut self, blocks: &impl WriteBlocks) -> Result<()> {
        let size = blocks.block_size() + 512;
        blocks.set_block_size(size)?;
        self.slot_count = zap_micro::slot_count(size);
        Ok(())
    }

    /// Adds an entry that is not there; there is a free slot.
    pub(super) fn add(&mut self, blocks: &impl WriteBlocks, key: &Key<'_>, value: u64) -> Result<()> {
        let same_hash = self.index.range((key.hash, 0)..=(key.hash, u32::MAX));
        let collision = same_hash.map(|((_, used), _)| *used).zip(0..).find(|(used, free)| used != free);
        let collision = collision.map_or_else(|| self.index.range((key.hash, 0)..=(key.hash, u32::MAX)).count() as u32, |(_, free)| free);
        let (start, count) = (self.next_slot, self.slot_count);
        let slot = blocks.modify(0, |block| {
            let slots = zap_micro::slots(block);
            let free = (start..count).chain(0..start).find(|&slot| slots.get(slot).is_some_and(zap_micro::MicroSlot::is_free));
            let Some(slot) = free else {
                return Err(ondisk::corruption::Corruption::new("micro ZAP", "free slots", 0).into());
            };
            zap_micro::write_slot(block, slot, key.original, value, collision);
            Ok(slot)
        })?;
        self.next_slot = (slot + 1) % count;
        self.index.insert((key.hash, collision), slot as u16);
        Ok(())
    }

    /// Adds or replaces.
    pub(super) fn update(&mut self, blocks: &impl WriteBlocks, key: &Key<'_>, value: u64) -> Result<()> {
        let Some((_, slot)) = self.find(&blocks.read(0)?.clone(), key, Match::Exact) else {
            return self.add(blocks, key, value);
        };
        blocks.modify(0, |block| {
            if let Some(slot) = zap_micro::slot_mut(block, usize::from(slot)) {
                slot.value = value.into();
            }
            Ok(())
        })
    }

    /// Removes; `false` if there is no such entry.
    pub(super) fn remove(&mut self, blocks: &impl WriteBlocks, key: &Key<'_>, matching: Match) -> Result<bool> {
        let Some((position, slot)) = self.find(&blocks.read(0)?.clone(), key, matching) else {
            return Ok(false);
        };
        blocks.modify(0, |block| {
            zap_micro::clear_slot(block, usize::from(slot));
            Ok(())
        })?;
        self.index.remove(&position);
        Ok(true)
    }

    /// The first entry at or after a position.
    pub(super) fn next(&self, blocks: &impl ReadBlocks, hash: u64, collision: u32) -> Result<Option<MicroEntry>> {
        let block = blocks.read(0)?;
        Ok(self.index.range((hash, collision)..).next().and_then(|(position, slot)| {
            let slot = zap_micro::slots(&block).get(usize::from(*slot))?;
            Some(MicroEntry { hash: position.0, collision: position.1, name: slot.name().to_vec(), value: slot.value.get() })
        }))
    }

    /// All entries, in the order of their slots.
    pub(super) fn entries(&self, block: &[u8]) -> Vec<MicroEntry> {
        let mut entries: Vec<(u16, MicroEntry)> = self
            .index
            .iter()
            .filter_map(|(position, number)| {
                let slot = zap_micro::slots(block).get(usize::from(*number))?;
                let entry = MicroEntry { hash: position.0, collision: position.1, name: slot.name().to_vec(), value: slot.value.get() };
                Some((*number, entry))
            })
            .collect();
        entries.sort_unstable_by_key(|(number, _)| *number);
        entries.into_iter().map(|(_, entry)| entry).collect()
    }
}
