//! Finding a free object number, and giving objects back.
//!
//! # Theory
//! Dnodes stand in blocks of 32 slots. The allocator works in one block at a time, of which it knows which slots are
//! taken; when that is full it goes to the next block that has room: first blocks in which something was freed, then
//! forward through the meta-dnode, whose block pointers say how many dnodes are in each block, so that full ones need not
//! be read.

use std::collections::BTreeSet;
use std::sync::Arc;

use ondisk::dnode as disk;
use ondisk::object_type::ObjectType;

use crate::dmu::{Dnode, ObjectId, Objset, Tx};
use crate::bail;
use crate::error::{Error, Result};

/// What a new object is to be.
#[derive(Debug, Clone)]
pub struct DnodeSpec {
    /// What it is.
    pub object_type: ObjectType,
    /// Bytes of a block; 0 is 512.
    pub block_bytes: u64,
    /// log2 of an indirect block; 0 is the default, 17.
    pub indirect_shift: u8,
    /// What the bonus is.
    pub bonus_type: ObjectType,
    /// Bytes of the bonus.
    pub bonus_length: usize,
    /// Slots of 512 bytes.
    pub slots: u8,
    /// Compression override (0: inherit).
    pub compression: u8,
    /// Height of the tree to begin with (1 but for meta-dnodes).
    pub levels: u8,
}

impl DnodeSpec {
    /// An object without a bonus.
    pub fn new(object_type: ObjectType, block_bytes: u64) -> Self {
        DnodeSpec {
            object_type,
            block_bytes,
            indirect_shift: 0,
            bonus_type: ObjectType::NONE,
            bonus_length: 0,
            slots: 1,
            compression: 0,
            levels: 1,
        }
    }

    /// With a bonus.
    #[must_use]
    pub fn with_bonus(self, bonus_type: ObjectType, bonus_length: usize) -> Self {
        DnodeSpec { bonus_type, bonus_length, ..self }
    }

    /// With another indirect block size.
    #[must_use]
    pub fn with_indirect_shift(self, indirect_shift: u8) -> Self {
        DnodeSpec { indirect_shift, ..self }
    }

    /// How many pointers the dnode has room for beside its bonus.
    pub fn pointer_count(&self) -> usize {
        let bonus_max = disk::Dnode::bonus_bytes_max(usize::from(self.slots.max(1)), 1);
        match self.bonus_type {
            ObjectType::SA => 1,
            _ => (1 + (bonus_max.saturating_sub(self.bonus_length) >> disk::BLKPTR_SHIFT)).min(disk::BLOCK_POINTERS_MAX),
        }
    }

    pub(in crate::dmu) fn indirect_shift_or_default(&self) -> u8 {
        match self.indirect_shift {
            0 => disk::INDIRECT_SHIFT_MAX,
            shift => shift.clamp(disk::INDIRECT_SHIFT_MIN, disk::INDIRECT_SHIFT_MAX),
        }
    }
}

/// Where the next object goes. guarded by: `Objset::allocator`
#[derive(Debug, Default)]
pub(in crate::dmu) struct Allocator {
    /// The block being filled, and which of its slots are taken (bit per slot).
    current: Option<(u64, u32)>,
    /// The next block to look at in the way forward.
    forward: u64,
    /// Blocks in which something was freed.
    with_room: BTreeSet<u64>,
}

/// Blocks remembered as having room: enough to keep the set small.
const WITH_ROOM_MAX: usize = 1 << 16;

impl Allocator {
    /// The `slots` of `object` are free.
    pub(in crate::dmu) fn note_freed(&mut self, object: ObjectId, slots: u8) {
        let (block, at) = (object / disk::DNODES_PER_BLOCK, (object % disk::DNODES_PER_BLOCK) as u32);
        match &mut self.current {
            Some((current, taken)) if *current == block => *taken &= !slot_mask(at, slots.into()),
            _ if self.with_room.len() < WITH_ROOM_MAX => {
                self.with_room.insert(block);
            }
            _ => {}
        }
    }
}

/// The bits of `slots` slots from `at` on.
fn slot_mask(at: u32, slots: u32) -> u32 {
    (((1u64 << slots) - 1) << at) as u32
}

fn find_run(taken: u32, slots: u32) -> Option<u32> {
    (0..=32 - slots).find(|&at| taken & slot_mask(at, slots) == 0)
}

impl Dnode {
    /// Makes another object of it, whose contents are none (`free_range` came before, where the size of blocks changes). `false`: it has other slots
    /// or another number of pointers, and must be freed and made anew.
    ///
    /// # Errors
    /// It has more than one block, and they would have another size.
    #[doc(alias = "dnode_reallocate")]
    pub fn reshape(self: &Arc<Self>, tx: &Tx, spec: &DnodeSpec) -> Result<bool> {
        if self.slots() != spec.slots.max(1) || self.on_disk().pointers.len() != spec.pointer_count() {
            return Ok(false);
        }
        if self.block_bytes() != spec.block_bytes {
            self.set_block_bytes(tx, spec.block_bytes, None)?;
        }
        self.change(tx, |header| {
            header.object_type = spec.object_type;
            header.bonus_type = spec.bonus_type;
            let mut bonus = header.bonus.to_vec();
            bonus.resize(spec.bonus_length, 0);
            header.bonus = Arc::new(bonus);
        });
        Ok(true)
    }
}

impl Objset {
    /// Makes a new object with a number of its own.
    ///
    /// # Errors
    /// The meta-dnode cannot be read, or no number is left.
    pub fn allocate(&self, tx: &Tx, spec: &DnodeSpec) -> Result<Arc<Dnode>> {
        let slots = u32::from(spec.slots.clamp(1, disk::DNODE_SLOTS_MAX as u8));
        let mut allocator = self.allocator.lock();
        let (begun, mut lost) = (allocator.forward, None);
        let object = self.free_number(tx, &mut allocator, slots, &mut lost).map_err(|error| match lost {
            // What could not be read may be read the next time.
            Some(loss) => {
                allocator.forward = begun;
                loss
            }
            None => error,
        })?;
        Ok(self.insert_fresh(tx, object, spec))
    }

    /// New objects are put into blocks of dnodes from this one on.
    pub fn allocate_from(&self, block: u64) {
        let mut allocator = self.allocator.lock();
        (allocator.current, allocator.forward) = (None, block);
    }

    /// A number that no object has. `lost`: why blocks of dnodes were passed over; nobody knows what is in them, and nothing new is put there.
    fn free_number(&self, tx: &Tx, allocator: &mut Allocator, slots: u32, lost: &mut Option<Error>) -> Result<ObjectId> {
        loop {
            if let Some((block, taken)) = allocator.current
                && let Some(at) = find_run(taken, slots)
            {
                allocator.current = Some((block, taken | slot_mask(at, slots)));
                return Ok(block * disk::DNODES_PER_BLOCK + u64::from(at));
            }
            let next = self.next_block_with_room(allocator, slots, lost)?;
            match self.taken_slots(next) {
                Ok(taken) => allocator.current = Some((next, taken)),
                Err(error) if error.is_loss() && !tx.is_syncing() => {
                    tracing::warn!("{}: no new objects in a block of dnodes: {error}", self.name());
                    *lost = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes a new object with the number `object`.
    ///
    /// # Errors
    /// `Exists` if it is taken.
    pub fn claim(&self, tx: &Tx, object: ObjectId, spec: &DnodeSpec) -> Result<Arc<Dnode>> {
        // Held until the object is in memory.
        let mut allocator = self.allocator.lock();
        if object < crate::dmu::USED_BY_PROJECT {
            let (block, at) = (object / disk::DNODES_PER_BLOCK, (object % disk::DNODES_PER_BLOCK) as u32);
            let slots = u32::from(spec.slots.max(1));
            if u64::from(at + slots) > disk::DNODES_PER_BLOCK {
                bail!(Invalid, "{}: object {object} of {slots} slots would be in two blocks", self.name());
            }
            let taken = match allocator.current {
                Some((current, taken)) if current == block => taken,
                _ => self.taken_slots(block)?,
            };
            let mask = slot_mask(at, slots);
            if taken & mask != 0 {
                bail!(Exists, "{}: object {object} exists", self.name());
            }
            // A caller that claims numbers claims the next ones too: the block need not be looked at for each.
            if let Some((left, _)) = allocator.current.replace((block, taken | mask))
                && left != block
                && allocator.with_room.len() < WITH_ROOM_MAX
            {
                allocator.with_room.insert(left);
            }
        }
        Ok(self.insert_fresh(tx, object, spec))
    }

    fn insert_fresh(&self, tx: &Tx, object: ObjectId, spec: &DnodeSpec) -> Arc<Dnode> {
        let dnode = Dnode::fresh(self.shared.clone(), object, spec);
        self.insert(&dnode);
        dnode.mark_allocated(tx);
        dnode
    }

    /// Frees an object and all its blocks.
    ///
    /// # Errors
    /// There is no such object.
    pub fn free(&self, tx: &Tx, object: ObjectId) -> Result<()> {
        self.free_held(tx, &self.hold(object)?)
    }

    /// As [`Objset::free`], of the object that the caller has: never of another one that has got its number since.
    ///
    /// # Errors
    /// `NotFound`: it was freed before.
    pub fn free_held(&self, tx: &Tx, dnode: &Arc<Dnode>) -> Result<()> {
        tx.note_freeing(dnode.used_bytes().max(disk::DNODE_SLOT_BYTES as u64));
        let mut state = dnode.state.write();
        if std::mem::replace(&mut state.freed, true) {
            return Err(dnode.was_freed());
        }
        let blocks = {
            let dirty = dnode.dirty(&mut state, tx);
            dirty.freed = true;
            std::mem::take(&mut dirty.blocks)
        };
        let size = state.header.block_bytes;
        drop(state);
        if !tx.is_syncing() {
            self.context().dirty.remove(tx.txg(), blocks.len() as u64 * size);
        }
        let mut table = dnode.blocks.write();
        for block in blocks {
            if let Some(entry) = table.get(&block) {
                entry.versions.lock().retain(|(txg, _)| *txg != tx.txg());
            }
        }
        table.retain(|_, entry| !entry.versions.lock().is_empty());
        Ok(())
    }

    /// Of a block in which nothing was freed we know how many dnodes are in it, but not how large they are: it is taken to be full if it would
    /// be with dnodes as large as the new one. (A set of large ones would be read from its start otherwise, for the first new object.)
    fn next_block_with_room(&self, allocator: &mut Allocator, slots: u32, lost: &mut Option<Error>) -> Result<u64> {
        while let Some(block) = allocator.with_room.pop_first() {
            if allocator.current.is_none_or(|(current, _)| current != block) {
                return Ok(block);
            }
        }
        let meta = self.meta();
        loop {
            let block = allocator.forward;
            allocator.forward += 1;
            if block * disk::DNODES_PER_BLOCK >= disk::OBJECTS_MAX {
                bail!(NoSpace, "{}: no object numbers left", self.name());
            }
            let pointer = match meta.synced_pointer(0, block) {
                Err(error) if error.is_loss() => {
                    let Some(end) = meta.end_of_lost(block) else { return Err(error) };
                    allocator.forward = end;
                    *lost = Some(error);
                    continue;
                }
                pointer => pointer?,
            };
            if pointer.is_hole() || pointer.fill().saturating_add(1).saturating_mul(slots.into()) <= disk::DNODES_PER_BLOCK {
                return Ok(block);
            }
        }
    }

    /// Which slots of a block of dnodes are taken, in memory or on disk (bit per slot; object 0 is taken). In this order: an object that is in memory now may be
    /// written and given up while the block is read, and is then not in what was read.
    fn taken_slots(&self, block: u64) -> Result<u32> {
        let mut taken = u32::from(block == 0);
        let mut mark = |at: usize, slots: usize| {
            for slot in at..(at + slots).min(32) {
                taken |= 1 << slot;
            }
        };
        for at in 0..disk::DNODES_PER_BLOCK {
            if let Some(dnode) = self.cached(block * disk::DNODES_PER_BLOCK + at) {
                mark(at as usize, dnode.slots.into());
            }
        }
        let data = self.meta().block(block)?;
        let mut at = 0;
        while at < disk::DNODES_PER_BLOCK as usize {
            let bytes = data.get(at * disk::DNODE_SLOT_BYTES..).unwrap_or_default();
            let slots = disk::Dnode::peek_slots(bytes);
            if !disk::Dnode::peek_free(bytes) {
                mark(at, slots);
            }
            at += slots;
        }
        Ok(taken)
    }
}
