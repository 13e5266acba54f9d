//! OBJECT and FREEOBJECTS records.

use std::sync::Arc;

use ondisk::algorithm::{ChecksumAlgorithm, Compression};
use ondisk::dnode as disk;
use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;
use ondisk::stream::{FLAG_OBJECT_SPILL, FreeObjects, Object};
use ondisk::{byteswap, sa, znode};

use super::apply::{Applier, Outcome};
use crate::bail;
use crate::dmu::{Dnode, DnodeSpec, ObjectId, Tx};
use crate::error;
use crate::error::{ErrorKind, Result};

/// The largest block of a pool without the feature of large ones.
const OLD_BLOCK_BYTES_MAX: u64 = 128 << 10;

/// So many objects are freed in one transaction: the group that has it can be closed then, and does not have all of them in memory.
const FREED_MAX: usize = 1024;

/// What becomes of an object that has the number already.
pub(super) enum Existing {
    /// It becomes the new one, with blocks of this size.
    Becomes(u64),
    /// It was freed, and the new one is made when that is on disk.
    Freed,
}

/// What only a pool itself has. Programs that tell by the type what pointers a block has would follow those in the contents of a file.
const OF_POOLS: [ObjectType; 21] = [
    ObjectType::OBJECT_DIRECTORY,
    ObjectType::OBJECT_ARRAY,
    ObjectType::BPOBJ,
    ObjectType::BPOBJ_HDR,
    ObjectType::SPACE_MAP_HEADER,
    ObjectType::SPACE_MAP,
    ObjectType::INTENT_LOG,
    ObjectType::DNODE,
    ObjectType::OBJSET,
    ObjectType::DSL_DIR,
    ObjectType::DSL_DIR_CHILD_MAP,
    ObjectType::DSL_DS_SNAP_MAP,
    ObjectType::DSL_PROPS,
    ObjectType::DSL_DATASET,
    ObjectType::POOL_PROPS,
    ObjectType::DSL_PERMS,
    ObjectType::NEXT_CLONES,
    ObjectType::DEADLIST,
    ObjectType::DEADLIST_HDR,
    ObjectType::DSL_CLONES,
    ObjectType::BPOBJ_SUBOBJ,
];

/// The type of something in a file system or a volume.
pub(super) fn object_type(number: u32, what: &str) -> Result<ObjectType> {
    match u8::try_from(number).map(ObjectType) {
        Ok(known) if known.is_valid() && !OF_POOLS.contains(&known) => Ok(known),
        _ => Err(error!(Corrupt, "{what} of type {number} is in no file system and no volume")),
    }
}

impl Applier<'_> {
    /// An object is made, or changed.
    #[doc(alias = "receive_object")]
    pub(super) fn object(&mut self, tx: &Tx, record: &Object, payload: &[u8]) -> Result<Outcome> {
        let mut spec = self.checked_spec(record)?;
        self.highest = self.highest.max(record.object);
        self.held = None;
        let bonus = if self.is_raw { Vec::new() } else { self.bonus(&spec, payload)? };
        if self.is_raw {
            self.note_secrets(tx, record.object)?;
        }
        let existing = match self.objset.hold(record.object) {
            Ok(dnode) => Some(dnode),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let is_there = match &existing {
            None => false,
            Some(dnode) => match self.make_way_for(tx, dnode, record, &spec, &bonus)? {
                Existing::Becomes(block_bytes) => {
                    spec.block_bytes = block_bytes;
                    true
                }
                Existing::Freed => {
                    // What stands in its later slots goes in the same group: the record waits only once.
                    self.free_neighbours(tx, record.object, spec.slots)?;
                    return Ok(Outcome::AfterSync);
                }
            },
        };
        if self.free_neighbours(tx, record.object, spec.slots)? {
            return Ok(Outcome::AfterSync);
        }
        let dnode = match existing.filter(|_| is_there) {
            Some(dnode) => dnode,
            None => match self.objset.claim(tx, record.object, &spec) {
                Ok(dnode) => dnode,
                // What has the place was freed by a record before, and that is not on disk yet.
                Err(error) if error.kind() == ErrorKind::Exists => return Ok(Outcome::AfterSync),
                Err(error) => return Err(error),
            },
        };
        if is_there {
            dnode.reshape(tx, &spec)?;
            if self.knows_spill && record.flags & FLAG_OBJECT_SPILL == 0 && dnode.has_spill() {
                dnode.set_spill(tx, None);
            }
        }
        dnode.set_checksum(tx, record.checksum);
        dnode.set_compression(tx, record.compression);
        if self.is_raw {
            self.shape_raw(tx, &dnode, record, payload)?;
        } else if !bonus.is_empty() {
            dnode.set_bonus(tx, bonus);
        }
        if dnode.has_spill() && !dnode.has_room_for_spill() {
            // The record does not say that there is a spill block: if there is one, it comes again.
            dnode.set_spill(tx, None);
        }
        self.held = Some(dnode);
        Ok(Outcome::Done)
    }

    /// What the object is to be.
    #[doc(alias = "recv_check_drr_object")]
    fn checked_spec(&self, record: &Object) -> Result<DnodeSpec> {
        let Object { object, block_bytes, bonus_bytes, slots, .. } = *record;
        let enabled = |feature| self.meta.features.is_enabled(feature);
        if object == 0 || object >= disk::OBJECTS_MAX {
            bail!(Corrupt, "object {object} cannot be");
        }
        let block_max = if enabled(Feature::LargeBlocks) { disk::BLOCK_BYTES_MAX } else { OLD_BLOCK_BYTES_MAX };
        let block_bytes = u64::from(block_bytes);
        if block_bytes == 0 || !block_bytes.is_multiple_of(512) || block_bytes > block_max {
            bail!(Corrupt, "object {object}: a block of {block_bytes} bytes cannot be");
        }
        let slots = slots.max(1);
        let slots_max = if enabled(Feature::LargeDnode) { disk::DNODE_SLOTS_MAX } else { 1 };
        if usize::from(slots) > slots_max || object % disk::DNODES_PER_BLOCK + u64::from(slots) > disk::DNODES_PER_BLOCK {
            bail!(Corrupt, "object {object}: a dnode of {slots} slots cannot be there");
        }
        let bonus_max = disk::Dnode::bonus_bytes_max(slots.into(), 1);
        if bonus_bytes as usize > bonus_max {
            bail!(Corrupt, "object {object}: a bonus of {bonus_bytes} bytes has no room");
        }
        // 0 is that of the dataset. One that is kept in the block itself is for no object, and would be met when its blocks are written.
        let checksum = ChecksumAlgorithm::from_number(record.checksum).filter(|algorithm| !algorithm.is_embedded());
        let (Some(checksum), Some(compression)) = (checksum, Compression::from_number(record.compression)) else {
            bail!(Corrupt, "object {object}: checksum {}, compression {} are none", record.checksum, record.compression);
        };
        self.check_enabled(checksum.feature())?;
        self.check_enabled(compression.feature())?;
        let spec = DnodeSpec::new(object_type(record.object_type, "an object")?, block_bytes);
        if spec.object_type == ObjectType::NONE {
            bail!(Corrupt, "object {object} has no type");
        }
        let spec = DnodeSpec { slots, ..spec.with_bonus(object_type(record.bonus_type, "a bonus")?, bonus_bytes as usize) };
        let room = disk::Dnode::bonus_bytes_max(slots.into(), spec.pointer_count());
        if record.flags & FLAG_OBJECT_SPILL != 0 && spec.bonus_length + disk::BLKPTR_BYTES > room {
            bail!(Corrupt, "object {object}: a bonus of {bonus_bytes} bytes leaves no room for a spill block");
        }
        self.check_tree(record, &spec)?;
        Ok(if self.is_raw { spec.with_indirect_shift(record.indirect_shift) } else { spec })
    }

    /// The bonus, in our byte order.
    fn bonus(&self, spec: &DnodeSpec, payload: &[u8]) -> Result<Vec<u8>> {
        let mut bonus = payload.to_vec();
        if self.is_swapped
            && let Some(class) = spec.bonus_type.byteswap()
        {
            byteswap::swap(class, &mut bonus);
        }
        if bonus.len() < spec.bonus_length {
            bail!(Corrupt, "a bonus of {} bytes is shorter than it says", bonus.len());
        }
        bonus.truncate(spec.bonus_length);
        Ok(bonus)
    }

    fn make_way_for(&self, tx: &Tx, dnode: &Arc<Dnode>, record: &Object, spec: &DnodeSpec, bonus: &[u8]) -> Result<Existing> {
        if self.is_raw { self.make_way_for_raw(tx, dnode, record, spec) } else { self.make_way(tx, dnode, spec, bonus) }
    }

    /// The number is taken: by the same object, or by one that had it before. What of that cannot stay goes.
    #[doc(alias = "receive_handle_existing_object")]
    fn make_way(&self, tx: &Tx, dnode: &Arc<Dnode>, spec: &DnodeSpec, bonus: &[u8]) -> Result<Existing> {
        let info = dnode.info();
        if info.slots != spec.slots || dnode.on_disk().pointers.len() != spec.pointer_count() {
            self.objset.free_held(tx, dnode)?;
            return Ok(Existing::Freed);
        }
        if spec.block_bytes == info.block_bytes {
            return Ok(Existing::Becomes(spec.block_bytes));
        }
        let is_file = spec.object_type == ObjectType::PLAIN_FILE_CONTENTS && info.object_type == ObjectType::PLAIN_FILE_CONTENTS;
        if !self.is_full && is_file && info.max_block > 0 {
            let (old, new) = (generation(info.bonus_type, &dnode.bonus())?, generation(spec.bonus_type, bonus)?);
            if old == new {
                // The same file, sent with large blocks now and without them before: it keeps the small ones.
                if spec.block_bytes <= info.block_bytes {
                    bail!(Corrupt, "object {}: its blocks become smaller, from {} bytes to {}", dnode.object(), info.block_bytes, spec.block_bytes);
                }
                return Ok(Existing::Becomes(info.block_bytes));
            }
        }
        dnode.free_range(tx, 0, u64::MAX)?;
        Ok(Existing::Becomes(spec.block_bytes))
    }

    /// Objects that stand where the later slots of a large dnode are to be go. `true`: there were some.
    fn free_neighbours(&self, tx: &Tx, object: ObjectId, slots: u8) -> Result<bool> {
        let mut any = false;
        for slot in object + 1..object + u64::from(slots) {
            any |= self.free_object(tx, slot)?;
        }
        Ok(any)
    }

    fn free_object(&self, tx: &Tx, object: ObjectId) -> Result<bool> {
        match self.objset.free(tx, object) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// There are no objects in a range. What is too much for one transaction is left in the record.
    pub(super) fn free_objects(&mut self, tx: &Tx, record: &mut FreeObjects) -> Result<Outcome> {
        let Some(end) = record.first_object.checked_add(record.objects) else {
            bail!(Corrupt, "{} objects from {} on are more than there can be", record.objects, record.first_object);
        };
        self.held = None;
        let mut at = record.first_object.saturating_sub(1);
        while let Some(object) = self.objset.next_object(at)?.filter(|object| *object < end) {
            if self.freed >= FREED_MAX {
                (record.first_object, record.objects) = (object, end - object);
                return Ok(Outcome::Again);
            }
            self.free_object(tx, object)?;
            self.freed += 1;
            at = object;
        }
        Ok(Outcome::Done)
    }
}

/// The group in which a file came to be: another one is another file.
fn generation(bonus_type: ObjectType, bonus: &[u8]) -> Result<Option<u64>> {
    Ok(match bonus_type {
        ObjectType::SA => sa::owner(bonus)?.map(|owner| owner.generation),
        ObjectType::ZNODE => Some(znode::owner(bonus)?.generation),
        _ => None,
    })
}
