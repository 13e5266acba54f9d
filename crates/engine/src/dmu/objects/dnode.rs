//! One object in memory.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use ondisk::blkptr::BlkPtr;
use ondisk::dnode as disk;
use ondisk::object_type::ObjectType;
use parking_lot::{Mutex, RwLock};

use crate::dmu::blocks::dirty_block::DirtyBlock;
use crate::dmu::blocks::early::EarlyBlocks;
use crate::dmu::objects::objset::ObjsetShared;
use crate::dmu::{DnodeSpec, ObjectId, Tx};
use crate::arc::Held;
use crate::error::{Error, Result, Within};
use crate::sync::{Publish, Published};
use crate::txg::{TXG_SIZE, slot};
use crate::zio::{Bookmark, RawBlock};
use crate::{bail, error};

/// The part of a dnode that open context changes as a whole.
#[derive(Debug, Clone)]
pub(in crate::dmu) struct Header {
    pub(in crate::dmu) object_type: ObjectType,
    pub(in crate::dmu) bonus_type: ObjectType,
    pub(in crate::dmu) bonus: Arc<Vec<u8>>,
    /// What stands behind the bonus where that is encrypted.
    pub(in crate::dmu) bonus_rest: Option<Arc<Vec<u8>>>,
    pub(in crate::dmu) block_bytes: u64,
    pub(in crate::dmu) indirect_shift: u8,
    pub(in crate::dmu) checksum: u8,
    pub(in crate::dmu) compression: u8,
    pub(in crate::dmu) max_block: u64,
    /// The tree is so high at least.
    pub(in crate::dmu) levels_min: u8,
}

/// What one group changed in an object.
#[derive(Debug)]
pub(in crate::dmu) struct DnodeDirty {
    /// The header after the last change of the group.
    pub(in crate::dmu) header: Header,
    /// Blocks that have a version of this group.
    pub(in crate::dmu) blocks: BTreeSet<u64>,
    /// Blocks whose version of this group is "freed" (an older one was still unsynced).
    pub(in crate::dmu) freed_versions: Vec<u64>,
    /// A new spill block (`Some(Some)`), or its removal (`Some(None)`).
    pub(in crate::dmu) spill: Option<Option<Arc<Vec<u8>>>>,
    /// The new spill block is stored as it comes.
    pub(in crate::dmu) raw_spill: Option<RawBlock>,
    /// The object came to be in this group.
    pub(in crate::dmu) allocated: bool,
    /// The object was freed in this group.
    pub(in crate::dmu) freed: bool,
}

/// What an object weighs in memory, beside its bonus and its pointers: itself, its place in the table, and what the allocator rounds up.
const DNODE_BYTES: usize = size_of::<Dnode>() + 256;
/// What a change of an object weighs until its group is on disk: the record here, in the lists of the group and of the intent log.
const DNODE_DIRTY_BYTES: u64 = size_of::<DnodeDirty>() as u64 + 512;

/// Disjoint ranges of blocks: start to end.
pub(in crate::dmu) type BlockRanges = BTreeMap<u64, u64>;

/// The newest state, and what each group changed.
#[derive(Debug)]
pub(in crate::dmu) struct State {
    pub(in crate::dmu) header: Header,
    pub(in crate::dmu) spill: Option<Arc<Vec<u8>>>,
    /// `spill` tells the truth; otherwise the spill block is on disk.
    pub(in crate::dmu) spill_known: bool,
    /// The last spill block was given as it is stored, whether it is on disk yet or not.
    pub(in crate::dmu) has_raw_spill: bool,
    pub(in crate::dmu) freed: bool,
    pub(in crate::dmu) dirty: [Option<Box<DnodeDirty>>; TXG_SIZE],
    /// Ranges freed by each group, until its tree is installed.
    pub(in crate::dmu) frees: [BlockRanges; TXG_SIZE],
}

/// What of [`State`] is read without its lock.
#[derive(Debug, Default)]
pub(in crate::dmu) struct Shape {
    object_type: AtomicU8,
    block_bytes: AtomicU64,
    max_block: AtomicU64,
    freed: AtomicBool,
}

impl Publish for State {
    type Published = Shape;

    fn publish(&self, shape: &Shape) {
        shape.object_type.store(self.header.object_type.0, Ordering::Release);
        shape.block_bytes.store(self.header.block_bytes, Ordering::Release);
        shape.max_block.store(self.header.max_block, Ordering::Release);
        shape.freed.store(self.freed, Ordering::Release);
    }
}

/// Blocks with unsynced versions.
pub(in crate::dmu) type DirtyBlocks = BTreeMap<u64, Arc<DirtyBlock>>;

impl Publish for DirtyBlocks {
    /// A bit for each block that may be in it, of 64 numbers one ([`bit_of`]). The writer that puts one in sets it, with the lock; all are cleared when
    /// the last one is gone.
    type Published = AtomicU64;

    fn publish(&self, bits: &AtomicU64) {
        if self.is_empty() {
            bits.store(0, Ordering::Release);
        }
    }
}

/// The bit of a block among those that are published.
pub(in crate::dmu) fn bit_of(block: u64) -> u64 {
    1 << (block % u64::from(u64::BITS))
}

/// One object. Obtained from [`crate::dmu::Objset::hold`] or [`crate::dmu::Objset::allocate`].
pub struct Dnode {
    pub(in crate::dmu) objset: Arc<ObjsetShared>,
    pub(in crate::dmu) object: ObjectId,
    pub(in crate::dmu) slots: u8,
    /// guards: what open context changes
    pub(in crate::dmu) state: Published<State>,
    /// Most bytes that the bonus can have, without a spill block.
    bonus_bytes_max: usize,
    /// The tree on disk. guarded by itself; readers hold it across the I/O of indirect blocks, the sync thread replaces it
    pub(in crate::dmu) disk: RwLock<disk::Dnode>,
    /// Blocks with unsynced versions; some entries may have none ([`Dnode::has_version`]).
    pub(in crate::dmu) blocks: Published<DirtyBlocks>,
    /// How many of `State::frees` are not empty (a hint that saves readers the lock).
    pub(in crate::dmu) pending_frees: AtomicU64,
    /// Blocks that are on disk before their group is.
    pub(in crate::dmu) early: Mutex<EarlyBlocks>,
    /// guards: that no block is written early by two threads at once; held across that I/O
    pub(in crate::dmu) early_turn: Mutex<()>,
    attachment: OnceLock<Arc<dyn Any + Send + Sync>>,
    attachment_lock: Mutex<()>,
    /// What it weighs in memory.
    _held: Held,
}

/// Facts about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnodeInfo {
    /// What it is.
    pub object_type: ObjectType,
    /// What its bonus is.
    pub bonus_type: ObjectType,
    /// Bytes of its bonus.
    pub bonus_length: usize,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// log2 of the size of an indirect block.
    pub indirect_shift: u8,
    /// Height of the tree on disk.
    pub levels: u8,
    /// Highest block id.
    pub max_block: u64,
    /// Space allocated on disk, in bytes (deflated).
    pub used_bytes: u64,
    /// Slots.
    pub slots: u8,
    /// Checksum id, 0 = inherited.
    pub checksum: u8,
    /// Compression id, 0 = inherited.
    pub compression: u8,
    /// `ondisk::dnode::FLAG_*`.
    pub flags: u8,
}

impl Dnode {
    /// An object as it is on disk.
    pub(in crate::dmu) fn from_disk(objset: Arc<ObjsetShared>, object: ObjectId, on_disk: disk::Dnode) -> Arc<Self> {
        let header = Header {
            object_type: on_disk.object_type,
            bonus_type: on_disk.bonus_type,
            bonus: Arc::new(on_disk.bonus.clone()),
            bonus_rest: objset.settings.load().is_encrypted.then(|| Arc::new(on_disk.bonus_rest.clone())),
            block_bytes: on_disk.block_bytes,
            indirect_shift: on_disk.indirect_shift,
            checksum: on_disk.checksum,
            compression: on_disk.compression,
            max_block: on_disk.max_block,
            levels_min: 1,
        };
        Self::build(objset, object, header, on_disk)
    }

    /// An object that is not on disk yet. The caller marks it dirty.
    pub(in crate::dmu) fn fresh(objset: Arc<ObjsetShared>, object: ObjectId, spec: &DnodeSpec) -> Arc<Self> {
        let slots = usize::from(spec.slots.max(1));
        let bonus_max = disk::Dnode::bonus_bytes_max(slots, 1);
        let bonus_length = spec.bonus_length.min(bonus_max);
        let pointers = spec.pointer_count();
        let header = Header {
            object_type: spec.object_type,
            bonus_type: spec.bonus_type,
            bonus: Arc::new(vec![0; bonus_length]),
            bonus_rest: None,
            block_bytes: if spec.block_bytes == 0 { 512 } else { spec.block_bytes.next_multiple_of(512) },
            indirect_shift: spec.indirect_shift_or_default(),
            checksum: 0,
            compression: spec.compression,
            max_block: 0,
            levels_min: 1,
        };
        let on_disk = disk::Dnode {
            object_type: header.object_type,
            indirect_shift: header.indirect_shift,
            levels: spec.levels.max(1),
            bonus_type: header.bonus_type,
            flags: disk::FLAG_USED_BYTES,
            block_bytes: header.block_bytes,
            slots: slots as u8,
            pointers: vec![BlkPtr::ZERO; pointers],
            ..disk::Dnode::free()
        };
        Self::build(objset, object, header, on_disk)
    }

    fn build(objset: Arc<ObjsetShared>, object: ObjectId, header: Header, on_disk: disk::Dnode) -> Arc<Self> {
        // The bonus is there twice, and as an allocation each.
        let weight = DNODE_BYTES + 2 * header.bonus.len() + on_disk.pointers.len() * disk::BLKPTR_BYTES;
        Arc::new(Dnode {
            _held: objset.context.cache.hold(weight as u64),
            objset,
            object,
            slots: on_disk.slots,
            bonus_bytes_max: disk::Dnode::bonus_bytes_max(on_disk.slots.into(), on_disk.pointers.len()),
            state: Published::new(State {
                header,
                spill: None,
                spill_known: on_disk.spill.is_none(),
                has_raw_spill: false,
                freed: false,
                dirty: Default::default(),
                frees: Default::default(),
            }),
            disk: RwLock::new(on_disk),
            blocks: Published::default(),
            pending_frees: AtomicU64::new(0),
            early: Mutex::default(),
            early_turn: Mutex::default(),
            attachment: OnceLock::new(),
            attachment_lock: Mutex::new(()),
        })
    }

    /// The object's number.
    pub fn object(&self) -> ObjectId {
        self.object
    }

    /// The number of the dataset that it belongs to (0: the MOS).
    pub fn dataset(&self) -> u64 {
        self.objset.dataset
    }

    /// How many slots of 512 bytes it takes in its block of dnodes.
    pub fn slots(&self) -> u8 {
        self.slots
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> u64 {
        self.state.published().block_bytes.load(Ordering::Acquire)
    }

    /// What the object is.
    pub fn object_type(&self) -> ObjectType {
        ObjectType(self.state.published().object_type.load(Ordering::Acquire))
    }

    /// Highest block id.
    pub fn max_block(&self) -> u64 {
        self.state.published().max_block.load(Ordering::Acquire)
    }

    /// Facts, as of now (`levels`, `used_bytes` and `flags` as of the last sync).
    pub fn info(&self) -> DnodeInfo {
        let header = self.state.read().header.clone();
        let disk = self.disk.read();
        DnodeInfo {
            object_type: header.object_type,
            bonus_type: header.bonus_type,
            bonus_length: header.bonus.len(),
            block_bytes: header.block_bytes,
            indirect_shift: header.indirect_shift,
            levels: disk.levels,
            max_block: header.max_block,
            used_bytes: disk.used_bytes(),
            slots: self.slots,
            checksum: header.checksum,
            compression: header.compression,
            flags: disk.flags,
        }
    }

    /// What it takes on disk, as of the last sync.
    pub fn used_bytes(&self) -> u64 {
        self.disk.read().used_bytes()
    }

    /// The dnode as it is on disk (inspection: zdb and the checker).
    pub fn on_disk(&self) -> disk::Dnode {
        self.disk.read().clone()
    }

    /// The bonus data.
    pub fn bonus(&self) -> Arc<Vec<u8>> {
        self.state.read().header.bonus.clone()
    }

    /// What the bonus is.
    pub fn bonus_type(&self) -> ObjectType {
        self.state.read().header.bonus_type
    }

    /// Most bytes that the bonus can have, without a spill block.
    pub fn bonus_bytes_max(&self) -> usize {
        self.bonus_bytes_max
    }

    /// Replaces the bonus data (its length too).
    ///
    /// # Panics
    /// If it does not fit: see [`Self::bonus_bytes_max`].
    pub fn set_bonus(self: &Arc<Self>, tx: &Tx, bonus: impl Into<Arc<Vec<u8>>>) {
        let bonus = bonus.into();
        assert!(bonus.len() <= self.bonus_bytes_max(), "object {}: bonus of {} bytes does not fit", self.object, bonus.len());
        self.change(tx, |header| (header.bonus, header.bonus_rest) = (bonus, None));
    }

    /// Changes what the bonus is.
    pub fn set_bonus_type(self: &Arc<Self>, tx: &Tx, bonus_type: ObjectType) {
        self.change(tx, |header| header.bonus_type = bonus_type);
    }

    /// Overrides the dataset's compression for this object (0: inherit again).
    pub fn set_compression(self: &Arc<Self>, tx: &Tx, compression: u8) {
        self.change(tx, |header| header.compression = compression);
    }

    /// Overrides the dataset's checksum for this object (0: inherit again).
    pub fn set_checksum(self: &Arc<Self>, tx: &Tx, checksum: u8) {
        self.change(tx, |header| header.checksum = checksum);
    }

    /// Changes what the object is (a directory-like ZAP that becomes extensible, for example).
    pub fn set_object_type(self: &Arc<Self>, tx: &Tx, object_type: ObjectType) {
        self.change(tx, |header| header.object_type = object_type);
    }

    /// Changes the header and remembers the change for the transaction's group.
    pub(in crate::dmu) fn change(self: &Arc<Self>, tx: &Tx, change: impl FnOnce(&mut Header)) {
        let mut state = self.state.write();
        change(&mut state.header);
        self.dirty(&mut state, tx);
    }

    /// What `tx`'s group changes, made if need be; its header is brought up to date.
    pub(in crate::dmu) fn dirty<'s>(self: &Arc<Self>, state: &'s mut State, tx: &Tx) -> &'s mut DnodeDirty {
        let index = slot(tx.txg());
        let State { header, dirty, .. } = state;
        let record = &mut dirty[index];
        if record.is_none() {
            let is_first_of_block = self.objset.add_dirty(tx.txg(), self);
            if !tx.is_syncing() {
                // The block of dnodes will be written too, and be in memory until the group is on disk.
                let bytes = DNODE_DIRTY_BYTES + if is_first_of_block { disk::DNODE_BLOCK_BYTES } else { 0 };
                self.objset.context.note_dirty(tx.txg(), bytes);
                self.objset.context.dirty.ripen(tx.txg(), DNODE_DIRTY_BYTES);
                tx.note_dirtied(DNODE_DIRTY_BYTES);
            }
        }
        let record = record.get_or_insert_with(|| {
            Box::new(DnodeDirty {
                header: header.clone(),
                blocks: BTreeSet::new(),
                freed_versions: Vec::new(),
                spill: None,
                raw_spill: None,
                allocated: false,
                freed: false,
            })
        });
        record.header = header.clone();
        record
    }

    /// Marks a fresh object as allocated in the transaction's group.
    pub(in crate::dmu) fn mark_allocated(self: &Arc<Self>, tx: &Tx) {
        let mut state = self.state.write();
        self.dirty(&mut state, tx).allocated = true;
    }

    /// Changes the block size; possible only while there is at most one block, whose contents are kept.
    ///
    /// # Errors
    /// `Invalid` if there are more blocks, or the size cannot be.
    pub fn set_block_bytes(self: &Arc<Self>, tx: &Tx, block_bytes: u64, indirect_shift: Option<u8>) -> Result<()> {
        if block_bytes == 0 || !block_bytes.is_multiple_of(512) || block_bytes > disk::BLOCK_BYTES_MAX {
            bail!(Invalid, "object {}: a block of {block_bytes} bytes cannot be", self.object);
        }
        let old = self.block_bytes();
        if self.max_block() > 0 {
            bail!(Invalid, "object {}: the block size is fixed once there is more than one block", self.object);
        }
        if old == block_bytes {
            return Ok(());
        }
        let contents = if self.is_hole(0)? { None } else { Some(self.block(0)?) };
        let was_dirty = self.state.read().dirty[slot(tx.txg())].as_ref().is_some_and(|dirty| dirty.blocks.contains(&0));
        self.change(tx, |header| {
            header.block_bytes = block_bytes;
            if let Some(shift) = indirect_shift {
                header.indirect_shift = shift;
            }
        });
        if let Some(contents) = contents {
            let mut resized = contents.to_vec();
            resized.resize(block_bytes as usize, 0);
            self.write_block(tx, 0, resized)?;
        }
        if was_dirty && !tx.is_syncing() {
            // It was counted with the size that it had.
            let more = block_bytes.saturating_sub(old);
            self.objset.context.note_dirty(tx.txg(), more);
            self.objset.context.dirty.remove(tx.txg(), old.saturating_sub(block_bytes));
            tx.note_dirtied(self.objset.worst_case(more, block_bytes));
        }
        Ok(())
    }

    /// Reads the spill block, if there is one.
    ///
    /// # Errors
    /// The block cannot be read.
    pub fn spill(&self) -> Result<Option<Arc<Vec<u8>>>> {
        loop {
            {
                let state = self.state.read();
                if state.spill_known {
                    return Ok(state.spill.clone());
                }
            }
            let Some(pointer) = self.disk.read().spill else { return Ok(None) };
            let read = self.read_spill(&pointer);
            // A slow reader finds that the object has another one by now, and another's block in the place of the old one.
            let is_there = self.disk.read().spill == Some(pointer);
            let mut state = self.state.write();
            if !state.spill_known && !is_there {
                continue;
            }
            if !state.spill_known {
                state.spill = read?;
                state.spill_known = true;
            }
            return Ok(state.spill.clone());
        }
    }

    fn read_spill(&self, pointer: &BlkPtr) -> Result<Option<Arc<Vec<u8>>>> {
        if pointer.is_hole() {
            return Ok(None);
        }
        let at = self.bookmark(0, u64::MAX);
        // As in `Dnode::read_synced`.
        let read = self.objset.context.cache.read_while(pointer, &at, &|see_to_it| {
            let tree = self.disk.read();
            if tree.spill == Some(*pointer) {
                see_to_it();
            }
        });
        read.map(Some).within(|| "spill block")
    }

    /// Whether there is a spill block.
    pub fn has_spill(&self) -> bool {
        let state = self.state.read();
        if state.spill_known { state.spill.is_some() } else { state.has_raw_spill || self.disk.read().spill.is_some() }
    }

    /// Whether the pointer to a spill block fits beside the bonus, and what stands behind that.
    pub fn has_room_for_spill(&self) -> bool {
        let state = self.state.read();
        let rest = state.header.bonus_rest.as_ref().map_or(0, |rest| rest.len());
        state.header.bonus.len() + rest + disk::BLKPTR_BYTES <= self.bonus_bytes_max
    }

    /// Writes or removes the spill block. Its length must be a multiple of 512.
    pub fn set_spill(self: &Arc<Self>, tx: &Tx, data: Option<Vec<u8>>) {
        assert!(data.as_ref().is_none_or(|d| d.len() % 512 == 0 && !d.is_empty()), "spill block of a size that cannot be");
        let bytes = data.as_ref().map_or(0, Vec::len) as u64;
        let data = data.map(Arc::new);
        let mut state = self.state.write();
        state.spill = data.clone();
        (state.spill_known, state.has_raw_spill) = (true, false);
        let dirty = self.dirty(&mut state, tx);
        dirty.raw_spill = None;
        let is_first = dirty.spill.replace(data).is_none();
        drop(state);
        if is_first && !tx.is_syncing() {
            self.objset.context.note_dirty(tx.txg(), bytes);
            tx.note_dirtied(self.objset.worst_case(bytes, bytes.max(1)));
        }
    }

    /// Writes a spill block that is stored as it comes. It cannot be read before it is on disk, nor after that without a key.
    pub fn set_raw_spill(self: &Arc<Self>, tx: &Tx, data: Vec<u8>, raw: RawBlock) {
        self.set_spill(tx, Some(data));
        let mut state = self.state.write();
        (state.spill, state.spill_known, state.has_raw_spill) = (None, false, true);
        self.dirty(&mut state, tx).raw_spill = Some(raw);
    }

    /// The name of a block, for errors.
    pub(in crate::dmu) fn bookmark(&self, level: i8, block: u64) -> Bookmark {
        Bookmark { objset: self.objset.dataset, object: self.object, level, block }
    }

    /// What upper layers keep with an object weighs `bytes`: it counts towards the cache.
    pub fn hold_memory(&self, bytes: u64) -> Held {
        self.objset.context.cache.hold(bytes)
    }

    /// What upper layers keep with an object (the index of a ZAP, say): made on first use, gone with the object.
    ///
    /// # Panics
    /// If two layers attach different types to one object.
    pub fn attachment<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        if self.attachment.get().is_none() {
            let _guard = self.attachment_lock.lock();
            if self.attachment.get().is_none() {
                let _ = self.attachment.set(Arc::new(make()));
            }
        }
        let any = self.attachment.get().cloned().unwrap_or_else(|| unreachable!("set above"));
        any.downcast::<T>().unwrap_or_else(|_| panic!("object {}: two kinds of attachment", self.object))
    }

    /// Whether a block has an unsynced version.
    pub(in crate::dmu) fn has_version(&self, block: u64) -> bool {
        self.unsynced(block).is_some_and(|dirty| dirty.has_data().is_some())
    }

    /// Whether any block has an unsynced version. A thread that held an entry of the table while its last version got to disk has left it there without one.
    pub(in crate::dmu) fn has_versions(&self) -> bool {
        self.blocks.read().values().any(|dirty| dirty.has_data().is_some())
    }

    /// The entry of a block in the table of unsynced versions, if there is one. It may have no version.
    pub(in crate::dmu) fn unsynced(&self, block: u64) -> Option<Arc<DirtyBlock>> {
        if self.may_be_unsynced(block) { self.blocks.read().get(&block).cloned() } else { None }
    }

    /// `false`: no block has unsynced versions whose number has the same rest.
    pub(in crate::dmu) fn may_be_unsynced(&self, block: u64) -> bool {
        self.blocks.published().load(Ordering::Acquire) & bit_of(block) != 0
    }

    /// Whether some group freed `block` and that is not on disk yet.
    pub(in crate::dmu) fn is_pending_free(&self, block: u64) -> bool {
        self.pending_frees.load(Ordering::Acquire) > 0
            && self.state.read().frees.iter().any(|ranges| contains(ranges, block))
    }

    /// Fails if the object was freed.
    pub(in crate::dmu) fn check_alive(&self) -> Result<()> {
        if self.state.published().freed.load(Ordering::Acquire) { Err(self.was_freed()) } else { Ok(()) }
    }

    pub(in crate::dmu) fn was_freed(&self) -> Error {
        error!(NotFound, "dataset {}: object {} was freed", self.objset.dataset, self.object)
    }
}

/// Whether `block` is in `ranges`.
pub(in crate::dmu) fn contains(ranges: &BlockRanges, block: u64) -> bool {
    ranges.range(..=block).next_back().is_some_and(|(_, &end)| block < end)
}

/// Adds a range, merging with those it touches.
pub(in crate::dmu) fn add_range(ranges: &mut BlockRanges, range: Range<u64>) {
    let (mut start, mut end) = (range.start, range.end);
    if start >= end {
        return;
    }
    let touching: Vec<u64> = ranges.range(..=end).filter(|&(_, &other_end)| other_end >= start).map(|(&s, _)| s).collect();
    for other in touching {
        if let Some(other_end) = ranges.remove(&other) {
            start = start.min(other);
            end = end.max(other_end);
        }
    }
    ranges.insert(start, end);
}

impl fmt::Debug for Dnode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dnode(dataset {}, object {})", self.objset.dataset, self.object)
    }
}
