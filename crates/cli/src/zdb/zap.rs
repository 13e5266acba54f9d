//! What a ZAP holds, and how it is filled.

use std::collections::BTreeSet;
use std::sync::Arc;

use engine::dmu::{Dnode, Objset};
use engine::error::Error;
use engine::zap::{Value, Zap};
use ondisk::object_type::ObjectType;
use ondisk::zap_fat::{self, FatHeader};
use ondisk::zap_leaf::{self, Leaf};
use ondisk::{zap_micro, znode};

use super::znode::type_words;
use crate::session::{Session, say};

/// Buckets of a histogram; the last one has what is beyond.
const BUCKETS: usize = 10;
/// Stars of the longest line.
const STARS: u64 = 40;
/// Bytes of a chunk of a leaf: what it holds, and all of it.
const CHUNK_DATA_BYTES: usize = 21;
const CHUNK_BYTES: u64 = 24;
/// Of a table of pointers and of leaves no more than this are looked at.
const TABLE_BLOCKS_MAX: u64 = 1 << 20;
const LEAVES_MAX: usize = 1 << 20;
/// Texts that are bytes: keys and the salt.
const BYTES: [&str; 5] =
    ["DSL_CRYPTO_MASTER_KEY_1", "DSL_CRYPTO_HMAC_KEY_1", "DSL_CRYPTO_IV", "DSL_CRYPTO_MAC", "org.illumos:checksum_salt"];

/// The entries of a dictionary.
pub(super) fn show(session: &mut Session<'_>, objset: &Arc<Objset>, dnode: &Arc<Dnode>, object: u64) -> Result<(), Error> {
    show_shape(session, dnode)?;
    say!(session, "");
    for entry in Zap::open(objset, object)?.entries()? {
        let name = entry.text();
        let value = match dnode.object_type() {
            ObjectType::SA_ATTR_REGISTRATION => registration_text(&entry.value),
            ObjectType::SA_ATTR_LAYOUTS => layout_text(&entry.value),
            _ => value_text(&name, &entry.value),
        };
        say!(session, "\t\t{} = {value}", super::shown_name(&name));
    }
    Ok(())
}

/// A system attribute: its length, how its bytes are swapped, its number.
fn registration_text(value: &Value) -> String {
    let word = value.first();
    format!(" {word:x} : [{}:{}:{}]", word >> 24 & 0xffff, word >> 16 & 0xff, word & 0xffff)
}

/// The numbers of the attributes of a layout, in their order.
fn layout_text(value: &Value) -> String {
    let numbers: String = value.integers().map(|number| format!(" {number} ")).collect();
    format!("[{numbers}]")
}

/// The entries of a directory.
pub(super) fn show_directory(session: &mut Session<'_>, objset: &Arc<Objset>, dnode: &Arc<Dnode>, object: u64) -> Result<(), Error> {
    show_shape(session, dnode)?;
    say!(session, "");
    for entry in Zap::open(objset, object)?.entries()? {
        let value = entry.value.first();
        let words = type_words(value >> 60);
        say!(session, "\t\t{} = {} (type: {words})", super::shown_name(&entry.text()), znode::entry_object(value));
    }
    Ok(())
}

fn value_text(name: &str, value: &Value) -> String {
    if value.count() == 0 {
        return String::new();
    }
    if value.integer_size() == 1 {
        let bytes = value.to_le_bytes();
        if BYTES.contains(&name) {
            return bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        }
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        return super::shown_name(&String::from_utf8_lossy(&bytes[..end]));
    }
    let signed = value.integer_size() == 8;
    value.integers().map(|number| if signed { format!("{} ", number.cast_signed()) } else { format!("{number} ") }).collect()
}

fn show_shape(session: &mut Session<'_>, dnode: &Arc<Dnode>) -> Result<(), Error> {
    let first = dnode.block(0)?;
    if let Ok(header) = zap_fat::header(&first) {
        return show_fat(session, dnode, &first, &header);
    }
    let slots = zap_micro::slots(&first);
    let used = slots.iter().filter(|slot| !slot.is_free()).count();
    say!(session, "\tmicrozap: {} bytes, {used} entries", first.len());
    Ok(())
}

#[derive(Default)]
struct Shape {
    leaves: [u64; BUCKETS],
    entries: [u64; BUCKETS],
    full: [u64; BUCKETS],
    chunks: [u64; BUCKETS],
    buckets: [u64; BUCKETS],
}

fn count(histogram: &mut [u64; BUCKETS], at: u64) {
    let at = usize::try_from(at).unwrap_or(BUCKETS).min(BUCKETS - 1);
    histogram[at] += 1;
}

impl Shape {
    fn add(&mut self, block: &[u8], table_shift: u64) {
        let Ok(leaf) = Leaf::open(block) else { return };
        let bytes = block.len() as u64;
        count(&mut self.leaves, table_shift.saturating_sub(leaf.prefix_length().into()));
        count(&mut self.entries, u64::from(leaf.entry_count()) / 5);
        // As OpenZFS counts a free chunk: its data and one byte.
        let free = u64::from(leaf.free_chunks()) * (CHUNK_DATA_BYTES as u64 + 1);
        count(&mut self.full, bytes.saturating_sub(free) * 10 / bytes.max(1));
        let hash_shift = bytes.max(32).ilog2() - 5;
        let mut buckets = vec![0u64; 1 << hash_shift];
        for entry in leaf.entries().unwrap_or_default() {
            let chunks = |bytes: usize| bytes.div_ceil(CHUNK_DATA_BYTES);
            count(&mut self.chunks, (1 + chunks(entry.name_count.into()) + chunks(entry.value_size())) as u64);
            let below = 64u32.saturating_sub(hash_shift + leaf.prefix_length());
            let bucket = entry.hash.checked_shr(below).unwrap_or(0) & ((1 << hash_shift) - 1);
            if let Some(bucket) = buckets.get_mut(bucket as usize) {
                *bucket += 1;
            }
        }
        buckets.iter().for_each(|entries| count(&mut self.buckets, *entries));
    }
}

fn show_fat(session: &mut Session<'_>, dnode: &Arc<Dnode>, first: &[u8], header: &FatHeader) -> Result<(), Error> {
    let table = &header.pointer_table;
    let mut shape = Shape::default();
    let mut seen = BTreeSet::new();
    let embedded = table.block_count.get() == 0;
    // A table is not longer than its object, even if its header says so: behind that are holes.
    let beyond = dnode.max_block().saturating_add(1);
    let blocks = if embedded { 1 } else { table.block_count.get().min(beyond.saturating_sub(table.start_block.get())).min(TABLE_BLOCKS_MAX) };
    for index in 0..blocks {
        let block = if embedded { None } else { Some(dnode.block(table.start_block.get() + index)?) };
        let pointers = block.as_ref().map_or_else(|| zap_fat::embedded_table(first), |block| zap_fat::table(block));
        for leaf in pointers.iter().map(|pointer| pointer.get()).filter(|leaf| *leaf != 0 && *leaf < beyond) {
            // Each leaf once, however often a damaged table has it.
            if seen.last() == Some(&leaf) || seen.len() >= LEAVES_MAX || !seen.insert(leaf) {
                continue;
            }
            let block = dnode.block(leaf)?;
            if zap_leaf::is_leaf(&block) {
                shape.add(&block, table.shift.get());
            }
        }
    }
    say!(session, "\tFat ZAP stats:\n\t\tPointer table:");
    say!(session, "\t\t\t{} elements", 1u64.checked_shl(table.shift.get() as u32).unwrap_or(0));
    say!(session, "\t\t\tzt_blk: {}\n\t\t\tzt_numblks: {}\n\t\t\tzt_shift: {}", table.start_block, table.block_count, table.shift);
    say!(session, "\t\t\tzt_blks_copied: {}\n\t\t\tzt_nextblk: {}", table.blocks_copied, table.next_start_block);
    say!(session, "\t\tZAP entries: {}\n\t\tLeaf blocks: {}", header.entry_count, header.leaf_count);
    say!(session, "\t\tTotal blocks: {}\n\t\tzap_block_type: {:#x}", header.next_free_block, header.block_type.get());
    say!(session, "\t\tzap_magic: {:#x}\n\t\tzap_salt: {:#x}", header.magic.get(), header.salt.get());
    for (title, histogram) in [
        ("Leafs with 2^n pointers", &shape.leaves),
        ("Blocks with n*5 entries", &shape.entries),
        ("Blocks n/10 full", &shape.full),
        ("Entries with n chunks", &shape.chunks),
        ("Buckets with n entries", &shape.buckets),
    ] {
        say!(session, "\t\t{title}:");
        show_histogram(session, histogram);
    }
    Ok(())
}

fn show_histogram(session: &mut Session<'_>, histogram: &[u64; BUCKETS]) {
    let used = |(_, count): &(usize, &u64)| **count != 0;
    let first = histogram.iter().enumerate().find(used).map_or(BUCKETS - 1, |(index, _)| index);
    let last = histogram.iter().enumerate().rfind(used).map_or(0, |(index, _)| index);
    let most = histogram.iter().copied().max().unwrap_or(0).max(STARS);
    for (index, count) in histogram.iter().enumerate().take(last + 1).skip(first) {
        let stars = STARS - (most - count) * STARS / most;
        say!(session, "\t\t\t{index:>3}: {count:>6} {}", "*".repeat(stars as usize));
    }
}

/// The bytes of a chunk are a fact of the format; the arithmetic above relies on it.
const _: () = assert!(CHUNK_BYTES == CHUNK_DATA_BYTES as u64 + 3);
