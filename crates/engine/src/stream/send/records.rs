//! Says each part of a stream as a record.
//!
//! # Theory
//! The fields are OpenZFS's, which a receiver compares with what it has. Of a block that is sent as it is the deduplication key is said,
//! too; of one that was split, embedded or decrypted there is none.

use std::sync::Arc;

use ondisk::algorithm::{ChecksumAlgorithm, Compression};
use ondisk::blkptr::{BlkPtr, BlockPointer, DataPointer, EmbeddedPointer, Protection};
use ondisk::dnode::{DNODES_PER_BLOCK, Dnode, FLAG_SPILL};
use ondisk::object_type::ObjectType;
use ondisk::stream::{
    FLAG_OBJECT_SPILL, FLAG_RAW_BYTESWAP, FLAG_SPILL_UNMODIFIED, Object, ObjectRange, RecordBody, Spill, StreamFeatures, Write, WriteEmbedded,
};

use super::ahead::Form;
use super::item::{Blocks, DataBlock, Item, SPILL};
use super::writer::{Payload, RecordWriter, TO_THE_END};
use crate::error::{Result, Within};
use crate::{bail, error};

/// The largest block that receivers take without being told.
#[doc(alias = "SPA_OLD_MAXBLOCKSIZE")]
const OLD_BLOCK_BYTES: u64 = 128 << 10;
/// Compression up to `gzip-9` and `zle` needs no feature of the stream.
#[doc(alias = "ZIO_COMPRESS_LEGACY_FUNCTIONS")]
const LEGACY_COMPRESSIONS: u8 = 15;
/// `Write::flags`: the key serves deduplication.
#[doc(alias = "DRR_CHECKSUM_DEDUP")]
const FLAG_CHECKSUM_DEDUP: u8 = 1 << 0;
/// What can be embedded in a pointer: contents.
const EMBEDDED_DATA: u8 = 0;

/// What decides how parts become records.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manner {
    pub(super) features: StreamFeatures,
    pub(super) guid: u64,
    pub(super) after_txg: u64,
    /// One more than the highest number of an object that the snapshot has room for.
    pub(super) objects_end: u64,
    /// The object to begin at.
    pub(super) first_object: u64,
    /// Count, and write nothing.
    pub(super) is_dry: bool,
}

impl Manner {
    fn has(&self, feature: StreamFeatures) -> bool {
        self.features.contains(feature)
    }

    /// Larger than the receiver takes.
    fn is_split(&self, block: &DataBlock) -> bool {
        block.bytes > OLD_BLOCK_BYTES && !self.has(StreamFeatures::LARGE_BLOCKS)
    }

    /// Whether the pointer itself is sent. Of a spill block it is not, here unlike in OpenZFS, whose receivers lose such a block: it would be
    /// contents far behind the end of the file.
    fn is_embedded(&self, block: &DataBlock) -> bool {
        let pointer = &block.pointer;
        if block.block == SPILL || !pointer.is_embedded() || pointer.embedded_kind() != EMBEDDED_DATA || !self.has(StreamFeatures::EMBED_DATA) {
            return false;
        }
        let compression = pointer.compression_number();
        (compression < LEGACY_COMPRESSIONS || self.has(StreamFeatures::LZ4))
            && (compression != Compression::Zstd.number() || self.has(StreamFeatures::ZSTD))
    }

    /// Whether a block is sent as it is on disk.
    fn is_physical(&self, block: &DataBlock) -> bool {
        let pointer = &block.pointer;
        if self.has(StreamFeatures::RAW) {
            return true;
        }
        let can_be = !self.is_split(block) && pointer.is_little_endian() && !pointer.is_embedded() && !pointer.object_type().is_metadata();
        self.has(StreamFeatures::COMPRESSED) && can_be
    }

    /// How the contents of a block are wanted.
    pub(super) fn form(&self, block: &DataBlock) -> Form {
        if self.is_dry || self.is_embedded(block) {
            Form::None
        } else if self.is_physical(block) {
            Form::Physical
        } else {
            Form::Plain
        }
    }

    /// Writes a part.
    pub(super) fn write(&self, item: &Item, contents: Option<&Arc<Vec<u8>>>, out: &mut RecordWriter<'_>) -> Result<()> {
        match item {
            Item::ObjectRange(block, pointer) if self.has(StreamFeatures::RAW) => self.object_range(*block, pointer, out),
            Item::ObjectRange(..) => Ok(()),
            Item::Object { object, dnode, within, spill } => {
                self.object(*object, dnode, within, out)?;
                match spill {
                    Some(block) if *object >= self.first_object => self.data(block, contents, out),
                    _ => Ok(()),
                }
            }
            Item::Hole(blocks) => self.hole(blocks, out),
            Item::Redacted(blocks) => {
                let bytes = blocks.end.wrapping_sub(blocks.first).saturating_mul(blocks.bytes);
                out.redact(blocks.object, blocks.first.saturating_mul(blocks.bytes), bytes)
            }
            Item::RedactedBefore(_) => Ok(()),
            Item::Data(block) => self.data(block, contents, out),
        }
    }

    /// Objects whose numbers cannot exist there are left out.
    fn free_objects(&self, first: u64, count: u64, out: &mut RecordWriter<'_>) -> Result<()> {
        match self.objects_end.saturating_sub(first).min(count) {
            0 => Ok(()),
            count => out.free_objects(first, count),
        }
    }

    fn hole(&self, blocks: &Blocks, out: &mut RecordWriter<'_>) -> Result<()> {
        if blocks.object == 0 {
            let first = blocks.first.saturating_mul(DNODES_PER_BLOCK);
            return self.free_objects(first, blocks.end.saturating_mul(DNODES_PER_BLOCK).saturating_sub(first), out);
        }
        // Beyond 64 bits of bytes there was never anything.
        let Some(offset) = blocks.first.checked_mul(blocks.bytes) else { return Ok(()) };
        let end = blocks.end.saturating_mul(blocks.bytes);
        out.free(blocks.object, offset, end.wrapping_sub(offset))
    }

    fn swapped(pointer: &BlkPtr) -> u8 {
        if pointer.is_little_endian() { 0 } else { FLAG_RAW_BYTESWAP }
    }

    fn object(&self, object: u64, bytes: &[u8], within: &BlkPtr, out: &mut RecordWriter<'_>) -> Result<()> {
        if object < self.first_object {
            return Ok(());
        }
        let dnode = Dnode::decode(bytes).within(|| format!("object {object}"))?;
        if dnode.object_type == ObjectType::NONE {
            return self.free_objects(object, 1, out);
        }
        let mut record = Object {
            object,
            object_type: dnode.object_type.0.into(),
            bonus_type: dnode.bonus_type.0.into(),
            block_bytes: dnode.block_bytes as u32,
            bonus_bytes: dnode.bonus.len() as u32,
            checksum: dnode.checksum,
            compression: dnode.compression,
            slots: dnode.slots,
            to_guid: self.guid,
            ..Object::zeroed()
        };
        if !self.has(StreamFeatures::LARGE_BLOCKS) {
            record.block_bytes = record.block_bytes.min(OLD_BLOCK_BYTES as u32);
        }
        let mut bonus_bytes = dnode.bonus.len().next_multiple_of(8);
        if self.has(StreamFeatures::RAW) {
            record.flags |= Self::swapped(within);
            record.last_block = dnode.max_block;
            record.indirect_shift = dnode.indirect_shift;
            record.levels = dnode.levels;
            record.pointers = dnode.pointers.len() as u8;
            if bonus_bytes != 0 {
                bonus_bytes = Dnode::bonus_bytes_max(dnode.slots.into(), dnode.pointers.len());
                bonus_bytes -= if dnode.spill.is_some() { ondisk::blkptr::BLKPTR_BYTES } else { 0 };
                record.raw_bonus_bytes = bonus_bytes as u32;
            }
        }
        if dnode.flags & FLAG_SPILL != 0 {
            record.flags |= FLAG_OBJECT_SPILL;
        }
        let bonus_at = ondisk::dnode::DNODE_CORE_BYTES + dnode.pointers.len() * ondisk::blkptr::BLKPTR_BYTES;
        let bonus = bytes.get(bonus_at..bonus_at + bonus_bytes);
        let bonus = bonus.ok_or_else(|| error!(Corrupt, "object {object}: its bonus is longer than its dnode"))?;
        out.record(RecordBody::Object(record), Payload::Bytes(bonus))?;
        out.free(object, dnode.max_block.wrapping_add(1).wrapping_mul(dnode.block_bytes), TO_THE_END)
    }

    fn object_range(&self, block: u64, pointer: &BlkPtr, out: &mut RecordWriter<'_>) -> Result<()> {
        let slots = pointer.logical_size() >> 9;
        let (salt, iv, mac) = secrets(pointer)?;
        let first_object = block.saturating_mul(slots);
        let record = ObjectRange { first_object, slots, to_guid: self.guid, salt, iv, mac, flags: Self::swapped(pointer), reserved: [0; 3] };
        out.record(RecordBody::ObjectRange(record), Payload::Count(0))
    }

    fn data(&self, block: &DataBlock, contents: Option<&Arc<Vec<u8>>>, out: &mut RecordWriter<'_>) -> Result<()> {
        let pointer = &block.pointer;
        let place = || format!("object {} block {}", block.object, block.block);
        let decoded = pointer.decode().within(place)?;
        match &decoded {
            BlockPointer::Embedded(embedded) if self.is_embedded(block) => return self.embedded(block, embedded, out),
            BlockPointer::Hole(_) | BlockPointer::Redacted(_) => bail!(Corrupt, "{}: a pointer to nothing", place()),
            BlockPointer::Embedded(_) | BlockPointer::Data(_) => {}
        }
        let is_raw = self.has(StreamFeatures::RAW);
        if is_raw && !pointer.uses_encryption() {
            bail!(Corrupt, "{}: a block that is not encrypted in a dataset that is", place());
        }
        let payload = |bytes: u64| match contents {
            Some(contents) => Payload::Bytes(contents.as_slice()),
            None => Payload::Count(bytes),
        };
        if block.block == SPILL {
            let record = self.spill(block)?;
            let bytes = if is_raw { record.compressed_bytes } else { record.logical_bytes };
            return out.record(RecordBody::Spill(record), payload(bytes));
        }
        let offset = block.block.saturating_mul(block.bytes);
        if self.is_split(block) {
            return self.split(block, offset, contents, out);
        }
        let mut record = self.plain_write(block, offset, block.bytes);
        let data = if let BlockPointer::Data(data) = &decoded { Some(data) } else { None };
        let mut bytes = block.bytes;
        let is_compressed = self.is_physical(block) && pointer.compression_number() != Compression::Off.number();
        if is_raw || is_compressed {
            if is_raw {
                record.flags |= Self::swapped(pointer);
                (record.salt, record.iv, record.mac) = secrets(pointer)?;
            }
            record.compression = pointer.compression_number();
            record.compressed_bytes = pointer.physical_size();
            bytes = record.compressed_bytes;
        }
        if let Some(data) = data.filter(|_| is_raw || !pointer.uses_encryption()) {
            deduplication_key(&mut record, data);
        }
        out.record(RecordBody::Write(record), payload(bytes))
    }

    /// A write without a key.
    fn plain_write(&self, block: &DataBlock, offset: u64, bytes: u64) -> Write {
        Write {
            object: block.object,
            object_type: block.object_type.0.into(),
            offset,
            logical_bytes: bytes,
            to_guid: self.guid,
            checksum: ChecksumAlgorithm::Off.number(),
            ..Write::zeroed()
        }
    }

    /// A block in parts that any receiver takes.
    fn split(&self, block: &DataBlock, offset: u64, contents: Option<&Arc<Vec<u8>>>, out: &mut RecordWriter<'_>) -> Result<()> {
        let mut at = 0;
        while at < block.bytes {
            let bytes = OLD_BLOCK_BYTES.min(block.bytes - at);
            let part = contents.map(|contents| contents.get(at as usize..(at + bytes) as usize).unwrap_or_default());
            let payload = part.map_or(Payload::Count(bytes), Payload::Bytes);
            out.record(RecordBody::Write(self.plain_write(block, offset + at, bytes)), payload)?;
            at += bytes;
        }
        Ok(())
    }

    fn spill(&self, block: &DataBlock) -> Result<Spill> {
        let pointer = &block.pointer;
        let mut record = Spill { object: block.object, logical_bytes: pointer.logical_size(), to_guid: self.guid, ..Spill::zeroed() };
        if pointer.logical_birth() <= self.after_txg {
            record.flags |= FLAG_SPILL_UNMODIFIED;
        }
        if self.has(StreamFeatures::RAW) {
            record.flags |= Self::swapped(pointer);
            record.compression = pointer.compression_number();
            record.compressed_bytes = pointer.physical_size();
            (record.salt, record.iv, record.mac) = secrets(pointer)?;
        }
        Ok(record)
    }

    fn embedded(&self, block: &DataBlock, embedded: &EmbeddedPointer, out: &mut RecordWriter<'_>) -> Result<()> {
        let mut payload = embedded.payload().to_vec();
        let record = WriteEmbedded {
            object: block.object,
            offset: block.block.saturating_mul(block.bytes),
            bytes: block.bytes,
            to_guid: self.guid,
            compression: embedded.compression.number(),
            embedded_type: EMBEDDED_DATA,
            reserved: [0; 6],
            logical_bytes: embedded.logical_size as u32,
            physical_bytes: payload.len() as u32,
        };
        payload.resize(payload.len().next_multiple_of(8), 0);
        out.record(RecordBody::WriteEmbedded(record), Payload::Bytes(&payload))
    }
}

/// Sizes, compression and checksum: equal blocks have equal keys.
fn deduplication_key(record: &mut Write, data: &DataPointer) {
    let sectors = |bytes: u64| (bytes >> 9).saturating_sub(1) & 0xffff;
    record.checksum = data.checksum_algorithm.number();
    if data.checksum_algorithm.is_for_dedup() {
        record.flags |= FLAG_CHECKSUM_DEDUP;
    }
    record.key_checksum = data.checksum;
    let is_protected = data.protection != Protection::None;
    record.key_properties = sectors(data.logical_size)
        | sectors(data.physical_size) << 16
        | u64::from(data.compression.number()) << 32
        | u64::from(is_protected) << 39;
}

/// Salt, initialization vector and authentication code of a pointer.
fn secrets(pointer: &BlkPtr) -> Result<([u8; 8], [u8; 12], [u8; 16])> {
    let BlockPointer::Data(data) = pointer.decode()? else { bail!(Corrupt, "an encrypted block has no place on disk") };
    Ok(data.secrets())
}
