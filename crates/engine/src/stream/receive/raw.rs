//! Records of streams that were sent raw, of encrypted datasets: what is stored as it comes.
//!
//! # Theory
//! The MACs that protect a block of dnodes cover the shape of each object: how high its tree is, where it ends, how its blocks were made smaller. So all of that
//! becomes as the sender has it, and an object that cannot become so is freed first. Nothing is decompressed, split or turned around.

use std::sync::Arc;

use ondisk::algorithm::Compression;
use ondisk::blkptr::Secrets;
use ondisk::dnode as disk;
use ondisk::stream::{FLAG_OBJECT_SPILL, FLAG_RAW_BYTESWAP, FLAG_SPILL_UNMODIFIED, Object, ObjectRange, Spill, Write};

use super::apply::Applier;
use super::contents::{SPILL_BYTES_MAX, check_range, check_room_for_spill};
use super::objects::Existing;
use crate::bail;
use crate::dmu::{Dnode, DnodeSpec, ObjectId, Tx};
use crate::error::Result;
use crate::zio::RawBlock;

impl Applier<'_> {
    /// What protects the block of dnodes whose objects come next.
    #[doc(alias = "receive_object_range")]
    pub(super) fn object_range(&mut self, record: &ObjectRange) -> Result<()> {
        let ObjectRange { first_object, slots, flags, salt, iv, mac, .. } = *record;
        if !self.is_raw {
            bail!(Corrupt, "only streams that were sent raw have such records");
        }
        if slots != disk::DNODES_PER_BLOCK || !first_object.is_multiple_of(slots) || first_object >= disk::OBJECTS_MAX {
            bail!(Corrupt, "{slots} dnodes from {first_object} on are no block of dnodes");
        }
        if flags & FLAG_RAW_BYTESWAP != 0 {
            bail!(NotSupported, "its dnodes have the other byte order, and cannot be turned around without the key");
        }
        self.range = Some((first_object / slots, (salt, iv, mac)));
        Ok(())
    }

    /// What protects the block of dnodes that an object stands in is known before the object changes. Of the block alone nothing is noted: its sender could
    /// have any number of them.
    pub(super) fn note_secrets(&self, tx: &Tx, object: ObjectId) -> Result<()> {
        let Some((_, secrets)) = self.range.filter(|(block, _)| *block == object / disk::DNODES_PER_BLOCK) else {
            bail!(Corrupt, "object {object}: nothing was said of the block that its dnode stands in");
        };
        self.objset.note_dnode_secrets(tx, object, secrets);
        Ok(())
    }

    /// The fields of a raw stream's object that say how its tree is.
    pub(super) fn check_tree(&self, record: &Object, spec: &DnodeSpec) -> Result<()> {
        let Object { object, indirect_shift, levels, pointers, last_block, raw_bonus_bytes, bonus_bytes, flags, .. } = *record;
        if !self.is_raw {
            if raw_bonus_bytes != 0 || indirect_shift != 0 || levels != 0 || pointers != 0 {
                bail!(Corrupt, "object {object}: only streams that were sent raw say how its tree is");
            }
            return Ok(());
        }
        if flags & FLAG_RAW_BYTESWAP != 0 {
            bail!(NotSupported, "object {object} has the other byte order, and cannot be turned around without the key");
        }
        let shifts = disk::INDIRECT_SHIFT_MIN..=disk::INDIRECT_SHIFT_MAX;
        if !shifts.contains(&indirect_shift) || !(1..=disk::LEVELS_MAX).contains(&levels) || usize::from(pointers) != spec.pointer_count() {
            bail!(Corrupt, "object {object}: a tree of {levels} levels of 2^{indirect_shift} bytes below {pointers} pointers cannot be");
        }
        let end = last_block.checked_add(1).and_then(|blocks| blocks.checked_mul(spec.block_bytes));
        if end.is_none_or(|end| end > i64::MAX as u64) {
            bail!(Corrupt, "object {object}: it ends at block {last_block}, which cannot be");
        }
        let spill = if flags & FLAG_OBJECT_SPILL != 0 { disk::BLKPTR_BYTES } else { 0 };
        let room = disk::Dnode::bonus_bytes_max(spec.slots.into(), spec.pointer_count()).saturating_sub(spill);
        let raw = raw_bonus_bytes as usize;
        if (bonus_bytes == 0) != (raw == 0) || raw > room || (bonus_bytes as usize) > room || (raw != 0 && raw < bonus_bytes as usize) {
            bail!(Corrupt, "object {object}: a bonus of {bonus_bytes} bytes cannot take {raw} when it is encrypted");
        }
        Ok(())
    }

    /// What an object that has the number can become. `None`: it may be kept as any is.
    #[doc(alias = "receive_handle_existing_object")]
    pub(super) fn make_way_for_raw(&self, tx: &Tx, dnode: &Arc<Dnode>, record: &Object, spec: &DnodeSpec) -> Result<Existing> {
        let info = dnode.info();
        let is_other_shape = info.levels > record.levels || (info.levels > 1 && info.indirect_shift != record.indirect_shift);
        if info.slots != spec.slots || dnode.on_disk().pointers.len() != spec.pointer_count() || is_other_shape {
            self.objset.free_held(tx, dnode)?;
            return Ok(Existing::Freed);
        }
        if spec.block_bytes != info.block_bytes || info.indirect_shift != record.indirect_shift {
            dnode.free_range(tx, 0, u64::MAX)?;
            // What is encrypted keeps its end when its blocks are freed, and with several blocks it could not get blocks of another size.
            dnode.set_tree_shape(tx, 1, 0)?;
        }
        Ok(Existing::Becomes(spec.block_bytes))
    }

    /// Gives an object the bonus and the shape that its sender says.
    pub(super) fn shape_raw(&self, tx: &Tx, dnode: &Arc<Dnode>, record: &Object, payload: &[u8]) -> Result<()> {
        let Some(bonus) = payload.get(..record.raw_bonus_bytes as usize) else {
            bail!(Corrupt, "object {}: its bonus is not all there", record.object);
        };
        dnode.set_raw_bonus(tx, bonus.to_vec(), record.bonus_bytes as usize);
        dnode.set_indirect_shift(tx, record.indirect_shift);
        dnode.set_tree_shape(tx, record.levels, record.last_block)
    }

    /// A block is stored as it comes.
    pub(super) fn raw_write(&mut self, tx: &Tx, record: &Write, payload: &mut Vec<u8>) -> Result<()> {
        let Write { object, offset, logical_bytes, compression, compressed_bytes, flags, salt, iv, mac, .. } = *record;
        check_range(offset, logical_bytes)?;
        self.check_order(object, offset)?;
        let raw = raw_block((logical_bytes, compressed_bytes), compression, flags, (salt, iv, mac), payload)?;
        self.check_enabled(raw.compression.feature())?;
        let dnode = self.hold(object)?;
        let size = dnode.block_bytes();
        if logical_bytes != size || !offset.is_multiple_of(size) {
            bail!(Corrupt, "{logical_bytes} bytes at byte {offset} are no block of object {object}, whose blocks have {size}");
        }
        dnode.write_raw(tx, offset / size, std::mem::take(payload), raw)
    }

    /// A spill block is stored as it comes.
    pub(super) fn raw_spill(&mut self, tx: &Tx, record: &Spill, payload: &mut Vec<u8>) -> Result<()> {
        let Spill { object, logical_bytes, compression, compressed_bytes, flags, salt, iv, mac, .. } = *record;
        if self.knows_spill && flags & FLAG_SPILL_UNMODIFIED != 0 {
            return Ok(());
        }
        if logical_bytes == 0 || !logical_bytes.is_multiple_of(512) || logical_bytes > SPILL_BYTES_MAX {
            bail!(Corrupt, "a spill block of {logical_bytes} bytes cannot be");
        }
        let raw = raw_block((logical_bytes, compressed_bytes), compression, flags, (salt, iv, mac), payload)?;
        self.check_enabled(raw.compression.feature())?;
        let dnode = self.hold(object)?;
        check_room_for_spill(&dnode)?;
        dnode.set_raw_spill(tx, std::mem::take(payload), raw);
        Ok(())
    }
}

fn raw_block((logical_bytes, physical_bytes): (u64, u64), compression: u8, flags: u8, secrets: Secrets, payload: &[u8]) -> Result<RawBlock> {
    let compression = match Compression::from_number(compression) {
        None | Some(Compression::Inherit | Compression::On | Compression::Empty) => {
            bail!(Corrupt, "compression {compression} is none that contents can have")
        }
        Some(compression) => compression,
    };
    let is_right = match compression {
        Compression::Off => physical_bytes == logical_bytes,
        _ => physical_bytes < logical_bytes,
    };
    if !is_right || physical_bytes == 0 || !physical_bytes.is_multiple_of(512) || payload.len() as u64 != physical_bytes {
        bail!(Corrupt, "{} bytes cannot be {physical_bytes} of {logical_bytes}", payload.len());
    }
    Ok(RawBlock { logical_bytes, compression, little_endian: flags & FLAG_RAW_BYTESWAP == 0, secrets })
}
