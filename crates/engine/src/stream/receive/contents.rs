//! WRITE, WRITE_EMBEDDED, FREE and SPILL records.

use std::sync::Arc;

use ondisk::algorithm::{ChecksumAlgorithm, Compression};
use ondisk::blkptr::{BlockPointer, EMBEDDED_BYTES_MAX, EmbeddedPointer};
use ondisk::byteswap::swap_block;
use ondisk::dnode::BLOCK_BYTES_MAX;
use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;
use ondisk::stream::{FLAG_SPILL_UNMODIFIED, Redact, Spill, StreamFeatures, Write, WriteEmbedded};
use transform::compress::decompress;

use super::apply::Applier;
use super::objects::object_type;
use crate::bail;
use crate::dmu::{Dnode, ObjectId, Tx};
use crate::error;
use crate::error::Result;
use crate::zio::{Bookmark, PackedBlock};

/// Spill blocks are no larger.
pub(super) const SPILL_BYTES_MAX: u64 = 128 << 10;

/// The block number that senders count an embedded spill block's offset from.
const SPILL_BLOCK: u64 = u64::MAX - 1;
/// No object has more bytes.
const OBJECT_BYTES_MAX: u64 = i64::MAX as u64;
/// Checksums that two different blocks do not have in common.
const STRONG: [ChecksumAlgorithm; 5] =
    [ChecksumAlgorithm::Sha256, ChecksumAlgorithm::Sha512, ChecksumAlgorithm::Skein, ChecksumAlgorithm::EdonR, ChecksumAlgorithm::Blake3];
/// The kind of an embedded block that has data.
const EMBEDDED_DATA: u8 = 0;

impl Applier<'_> {
    /// Contents of a block, or of several.
    #[doc(alias = "receive_process_write_record")]
    pub(super) fn write(&mut self, tx: &Tx, record: &Write, payload: &mut Vec<u8>) -> Result<()> {
        let Write { object, offset, logical_bytes, compression, .. } = *record;
        check_range(offset, logical_bytes)?;
        let kind = object_type(record.object_type, "contents")?;
        self.check_order(object, offset)?;
        let dnode = self.hold(object)?;
        let mut packed = None;
        let mut data = if compression == 0 {
            std::mem::take(payload)
        } else {
            self.check_compression(compression)?;
            if payload.len() as u64 >= logical_bytes {
                bail!(Corrupt, "{} bytes are compressed ones of {logical_bytes}", payload.len());
            }
            let data = decompress(compression, payload, logical_bytes as usize);
            packed = Some(PackedBlock { bytes: std::mem::take(payload), compression });
            data.map_err(|why| error!(Corrupt, "its contents cannot be decompressed: {why}"))?
        };
        if self.is_swapped && compression == 0 {
            swap_block(kind, 0, &mut data);
        }
        if self.is_clone && self.is_there_already(&dnode, offset, &data)? {
            return Ok(());
        }
        let size = dnode.block_bytes();
        match packed.filter(|_| logical_bytes == size && offset.is_multiple_of(size) && !self.is_swapped) {
            Some(packed) => dnode.write_packed(tx, offset / size, data, packed),
            None => put(&dnode, tx, offset, data),
        }
    }

    /// Contents come in the order of their places.
    pub(super) fn check_order(&mut self, object: ObjectId, offset: u64) -> Result<()> {
        if (object, offset) < self.last {
            bail!(Corrupt, "it is out of order: object {object}, byte {offset} comes after object {}, byte {}", self.last.0, self.last.1);
        }
        self.last = (object, offset);
        Ok(())
    }

    /// Whether the block is what the origin of a full stream's clone has there, and that can be told for sure: then it is shared on.
    #[doc(alias = "zio_nop_write")]
    fn is_there_already(&self, dnode: &Arc<Dnode>, offset: u64, data: &[u8]) -> Result<bool> {
        let size = dnode.block_bytes();
        if data.len() as u64 != size || !offset.is_multiple_of(size) {
            return Ok(false);
        }
        let block = offset / size;
        let Some(pointer) = dnode.synced_pointers(block..block + 1)?.and_then(|pointers| pointers.first().copied()) else { return Ok(false) };
        let BlockPointer::Data(found) = pointer.decode()? else { return Ok(false) };
        if found.logical_size != size || !STRONG.contains(&found.checksum_algorithm) {
            return Ok(false);
        }
        let at = Bookmark { objset: dnode.dataset(), object: dnode.object(), level: 0, block };
        // What cannot be read is written.
        Ok(self.objset.context().cache.read(&pointer, &at).is_ok_and(|theirs| theirs.as_slice() == data))
    }

    fn check_compression(&self, compression: u8) -> Result<()> {
        let needed = match Compression::from_number(compression) {
            None | Some(Compression::Inherit | Compression::On | Compression::Off | Compression::Empty) => {
                bail!(Corrupt, "compression {compression} is none that contents can have")
            }
            Some(Compression::Lz4) => StreamFeatures::LZ4,
            Some(Compression::Zstd) => StreamFeatures::ZSTD,
            Some(_) => StreamFeatures::empty(),
        };
        if !self.features.contains(needed) {
            bail!(Corrupt, "its contents are compressed in a way that the stream's beginning does not tell of");
        }
        Ok(())
    }

    /// Blocks are made only in ways that the pool has enabled: in the thread that writes them it would be too late to say no.
    pub(super) fn check_enabled(&self, feature: Option<Feature>) -> Result<()> {
        match feature.filter(|feature| !self.meta.features.is_enabled(*feature)) {
            Some(feature) => Err(error!(NotSupported, "the pool must be upgraded to receive it: it needs the feature {}", feature.guid())),
            None => Ok(()),
        }
    }

    /// Contents that a pointer holds.
    #[doc(alias = "receive_write_embedded")]
    pub(super) fn write_embedded(&mut self, tx: &Tx, record: &WriteEmbedded, payload: &[u8]) -> Result<()> {
        let WriteEmbedded { object, offset, bytes, embedded_type, compression, logical_bytes, physical_bytes, .. } = *record;
        let is_spill = offset == SPILL_BLOCK.wrapping_mul(bytes);
        check_range(if is_spill { 0 } else { offset }, bytes)?;
        let Some(compression) = Compression::from_number(compression) else { bail!(Corrupt, "compression {compression} is none") };
        self.check_enabled(compression.feature())?;
        let length = physical_bytes as usize;
        if !self.features.contains(StreamFeatures::EMBED_DATA) || embedded_type != EMBEDDED_DATA {
            bail!(Corrupt, "embedded contents of kind {embedded_type} cannot be in this stream");
        }
        let contents = payload.get(..length).filter(|_| (1..=EMBEDDED_BYTES_MAX).contains(&length));
        let Some(contents) = contents.filter(|_| u64::from(logical_bytes) <= bytes && logical_bytes > 0) else {
            bail!(Corrupt, "{physical_bytes} bytes cannot be embedded for {logical_bytes}");
        };
        let dnode = self.hold(object)?;
        let mut pointer = EmbeddedPointer::new(contents, compression, logical_bytes.into(), dnode.object_type(), 0, tx.txg());
        pointer.little_endian = !self.is_swapped;
        let pointer = pointer.encode();
        let data = self.objset.context().io.read(&pointer, &Bookmark { objset: dnode.dataset(), object, level: 0, block: 0 })?;
        if is_spill {
            check_room_for_spill(&dnode)?;
            dnode.set_spill(tx, Some(data.to_vec()));
            return Ok(());
        }
        let size = dnode.block_bytes();
        if u64::from(logical_bytes) == size && offset.is_multiple_of(size) {
            return dnode.clone_block(tx, offset / size, &pointer);
        }
        put(&dnode, tx, offset, data.to_vec())
    }

    /// Contents of a range were left out on purpose: nothing is there, as it is with OpenZFS.
    #[doc(alias = "receive_redact")]
    pub(super) fn redact(&mut self, tx: &Tx, record: &Redact) -> Result<()> {
        if !self.features.contains(StreamFeatures::REDACTED) {
            bail!(Corrupt, "the stream's beginning does not tell that contents are left out");
        }
        self.free(tx, record.object, record.offset, record.bytes)
    }

    /// Nothing is written in a range.
    pub(super) fn free(&mut self, tx: &Tx, object: ObjectId, offset: u64, bytes: u64) -> Result<()> {
        let dnode = self.hold(object)?;
        if bytes != u64::MAX && offset.checked_add(bytes).is_none() {
            bail!(Corrupt, "{bytes} bytes from byte {offset} on are more than an object has");
        }
        if self.is_raw {
            check_whole_blocks(&dnode, offset, bytes)?;
        }
        dnode.free_range(tx, offset, bytes)
    }

    /// An object's spill block.
    #[doc(alias = "receive_spill")]
    pub(super) fn spill(&mut self, tx: &Tx, record: &Spill, payload: &mut Vec<u8>) -> Result<()> {
        let Spill { object, logical_bytes, flags, .. } = *record;
        if self.knows_spill && flags & FLAG_SPILL_UNMODIFIED != 0 {
            return Ok(());
        }
        if logical_bytes == 0 || !logical_bytes.is_multiple_of(512) || logical_bytes > SPILL_BYTES_MAX || payload.len() as u64 != logical_bytes {
            bail!(Corrupt, "a spill block of {logical_bytes} bytes cannot be");
        }
        let dnode = self.hold(object)?;
        let mut data = std::mem::take(payload);
        if self.is_swapped {
            swap_block(ObjectType::SA, 0, &mut data);
        }
        check_room_for_spill(&dnode)?;
        dnode.set_spill(tx, Some(data));
        Ok(())
    }
}

pub(super) fn check_range(offset: u64, bytes: u64) -> Result<()> {
    if bytes == 0 || !bytes.is_multiple_of(512) || bytes > BLOCK_BYTES_MAX || offset.checked_add(bytes).is_none_or(|end| end > OBJECT_BYTES_MAX) {
        bail!(Corrupt, "{bytes} bytes at byte {offset} cannot be those of a block");
    }
    Ok(())
}

/// A part of a block cannot be made zero without the key. What is behind the object's end does not matter.
fn check_whole_blocks(dnode: &Dnode, offset: u64, bytes: u64) -> Result<()> {
    let size = dnode.block_bytes();
    let (end, object_end) = (offset.saturating_add(bytes), dnode.max_block().saturating_add(1).saturating_mul(size));
    let is_border = |at: u64| at >= object_end || at.is_multiple_of(size);
    if !is_border(offset) || !is_border(end) {
        bail!(Corrupt, "{bytes} bytes from byte {offset} on are no whole blocks of object {}, whose blocks have {size}", dnode.object());
    }
    Ok(())
}

/// A dnode whose bonus takes all of its room could not be written with a spill block.
pub(super) fn check_room_for_spill(dnode: &Dnode) -> Result<()> {
    if !dnode.has_room_for_spill() {
        bail!(Corrupt, "object {}: its bonus leaves no room for a spill block", dnode.object());
    }
    Ok(())
}

fn put(dnode: &Arc<Dnode>, tx: &Tx, offset: u64, data: Vec<u8>) -> Result<()> {
    let size = dnode.block_bytes();
    if data.len() as u64 == size && offset.is_multiple_of(size) { dnode.write_block(tx, offset / size, data) } else { dnode.write(tx, offset, &data) }
}
