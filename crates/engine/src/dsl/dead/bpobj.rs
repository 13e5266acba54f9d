//! Lists of block pointers in the MOS.
//!
//! # Theory
//! A bpobj is an array of block pointers with a count and a sum of space in its bonus buffer. It can adopt another bpobj
//! in constant time, by listing it as a sub-object; small ones are copied instead, so that chains stay short.
//! What is stored of a pointer is what freeing needs: checksum and fill are cleared, so that the list compresses well.
//!
//! Nothing is kept in memory: each operation reads the bonus buffer, which is in the cache anyway, and writes it back.
//! So any number of handles of one list agree.
//!
//! # On disk
//! [`ondisk::bpobj`]. Lists that would be empty share one object (`empty_bpobj`), counted by the feature of that name.
//!
//! # Invariants
//! 1. `bytes`, `compressed_bytes` and `uncompressed_bytes` are sums over the list and all that it adopted.
//! 2. A bpobj has at most one parent.

use std::collections::HashSet;
use std::ops::ControlFlow;

use ondisk::blkptr::BlkPtr;
use ondisk::bpobj::{BpobjPhys, BpobjVersion, entry_is_freed, listed};
use ondisk::corruption::Corruption;
use ondisk::dnode::OBJECTS_MAX;
use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;

use crate::bail;
use crate::dmu::SyncTx;
use crate::dsl::meta::{Meta, Space, SpaceDelta, key};
use crate::error::{Result, Within};

/// Bytes of a block pointer.
const POINTER_BYTES: u64 = 128;
/// How many pointers are read at a time.
const READ_POINTERS: u64 = 1024;
/// Block size of lists.
pub(crate) const LIST_BLOCK_BYTES: u64 = 128 << 10;

/// The bpobj with this object number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bpobj(pub u64);

impl Bpobj {
    /// Makes an empty list.
    pub fn create(meta: &Meta, tx: &SyncTx<'_>) -> Result<Self> {
        let version = if meta.version() < 10 {
            BpobjVersion::V0
        } else if meta.version() < 26 {
            BpobjVersion::V1
        } else if !meta.features.is_active(Feature::Livelist) {
            BpobjVersion::V2
        } else {
            BpobjVersion::V3
        };
        Self::create_as(meta, version, tx)
    }

    fn create_as(meta: &Meta, version: BpobjVersion, tx: &SyncTx<'_>) -> Result<Self> {
        let bonus = version.bonus_size();
        meta.mos.allocate(ObjectType::BPOBJ, LIST_BLOCK_BYTES, ObjectType::BPOBJ_HDR, bonus, tx).map(Bpobj)
    }

    /// An empty list that is shared until something is to be put into it.
    pub fn create_empty(meta: &Meta, tx: &SyncTx<'_>) -> Result<Self> {
        match Self::share_empty(meta, 1, tx)? {
            Some(shared) => Ok(shared),
            None => Self::create(meta, tx),
        }
    }

    /// The shared empty list, which has so many `users` more. `None`: lists are not shared in this pool.
    pub fn share_empty(meta: &Meta, users: u64, tx: &SyncTx<'_>) -> Result<Option<Self>> {
        if !meta.features.is_enabled(Feature::EmptyBpobj) {
            return Ok(None);
        }
        if meta.empty_bpobj().is_none() {
            let made = Self::create(meta, tx)?;
            meta.mos.zap_add_u64(key::DIRECTORY, key::EMPTY_BPOBJ, made.0, tx)?;
            meta.set_empty_bpobj(made.0);
        }
        meta.features.increment_by(&meta.mos, Feature::EmptyBpobj, users, tx)?;
        Ok(meta.empty_bpobj().map(Bpobj))
    }

    /// Whether this is the shared empty list.
    pub fn is_shared_empty(self, meta: &Meta) -> bool {
        meta.empty_bpobj() == Some(self.0)
    }

    /// So many users of the shared empty list less.
    pub fn release_empty(meta: &Meta, users: u64, tx: &SyncTx<'_>) -> Result<()> {
        if users == 0 {
            return Ok(());
        }
        meta.features.decrement_by(&meta.mos, Feature::EmptyBpobj, users, tx)?;
        if !meta.features.is_active(Feature::EmptyBpobj)
            && let Some(object) = meta.empty_bpobj()
        {
            meta.mos.zap_remove(key::DIRECTORY, key::EMPTY_BPOBJ, tx)?;
            meta.mos.free(object, tx)?;
            meta.set_empty_bpobj(0);
        }
        Ok(())
    }

    /// Frees the list and all it adopted (not the blocks in it), or lets go of the shared one.
    pub fn destroy(self, meta: &Meta, tx: &SyncTx<'_>) -> Result<()> {
        if self.is_shared_empty(meta) {
            return Self::release_empty(meta, 1, tx);
        }
        let mut seen = HashSet::from([self.0]);
        let mut left = vec![self.0];
        while let Some(object) = left.pop() {
            let (phys, _) = Bpobj(object).load(meta)?;
            if phys.sub_objects.get() != 0 {
                for index in 0..phys.sub_object_count.get() {
                    let child = sub_object(meta, object, &phys, index)?;
                    if !seen.insert(child) {
                        bail!(Corrupt, "bpobj {object}: sub-object {child} is there twice");
                    }
                    left.push(child);
                }
                meta.mos.free(phys.sub_objects.get(), tx)?;
            }
            meta.mos.free(object, tx)?;
        }
        Ok(())
    }

    /// The record in the bonus buffer, checked.
    pub fn load(self, meta: &Meta) -> Result<(BpobjPhys, BpobjVersion)> {
        let bonus = meta.mos.bonus(self.0).within(|| format!("bpobj {}", self.0))?;
        let (phys, version) = BpobjPhys::from_bonus(&bonus).within(|| format!("bpobj {}", self.0))?;
        if phys.count.get() > u64::MAX / POINTER_BYTES {
            return Err(Corruption::new("bpobj", "count", phys.count.get()).into());
        }
        // Sub-objects are objects, and of those there are no more than this.
        if phys.sub_object_count.get() > OBJECTS_MAX {
            return Err(Corruption::new("bpobj", "sub-object count", phys.sub_object_count.get()).into());
        }
        Ok((phys, version))
    }

    fn store(self, meta: &Meta, phys: &BpobjPhys, version: BpobjVersion, tx: &SyncTx<'_>) -> Result<()> {
        meta.mos.set_bonus(self.0, &phys.to_bonus(version), tx)
    }

    /// Whether it has no entries, own or adopted.
    pub fn is_empty(self, meta: &Meta) -> Result<bool> {
        self.load(meta).map(|(phys, _)| phys.is_empty())
    }

    /// The space of all its entries. A list too old to keep all the sums is read through.
    pub fn space(self, meta: &Meta) -> Result<Space> {
        let (phys, version) = self.load(meta)?;
        if version >= BpobjVersion::V1 {
            return Ok(Space {
                used: phys.bytes.get(),
                compressed: phys.compressed_bytes.get(),
                uncompressed: phys.uncompressed_bytes.get(),
            });
        }
        self.space_born_in(meta, 0, u64::MAX)
    }

    /// The space of the entries born after `after` and not after `last`.
    pub fn space_born_in(self, meta: &Meta, after: u64, last: u64) -> Result<Space> {
        let mut sum = Space::default();
        self.for_each(meta, |bp, _| {
            if bp.birth() > after && bp.birth() <= last {
                sum.add(meta.space_of(bp));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(sum)
    }

    /// Appends pointers to blocks.
    pub fn append(self, meta: &Meta, pointers: &[BlkPtr], tx: &SyncTx<'_>) -> Result<()> {
        self.append_marked(meta, pointers, false, tx)
    }

    /// Appends; in a livelist `freed` says that the blocks were freed.
    pub fn append_marked(self, meta: &Meta, pointers: &[BlkPtr], freed: bool, tx: &SyncTx<'_>) -> Result<()> {
        if self.is_shared_empty(meta) {
            bail!(Corrupt, "bpobj {}: it is the empty list that others share, and is to get entries", self.0);
        }
        if pointers.is_empty() {
            return Ok(());
        }
        let (mut phys, version) = self.load(meta)?;
        let mut bytes = Vec::with_capacity(pointers.len() * POINTER_BYTES as usize);
        let mut sum = Space::default();
        for bp in pointers {
            bytes.extend_from_slice(&listed(bp, freed));
            sum.add(meta.space_of(bp));
        }
        meta.mos.write(self.0, phys.count.get() * POINTER_BYTES, &bytes, tx)?;
        phys.count += pointers.len() as u64;
        if freed {
            phys.freed_count += pointers.len() as u64;
        }
        let signed = if freed { sum.negative() } else { sum.positive() };
        signed.apply(&mut phys.bytes, &mut phys.compressed_bytes, &mut phys.uncompressed_bytes);
        self.store(meta, &phys, version, tx)
    }

    /// Visits all entries, newest first, own before adopted. `true`: the visitor saw all of them.
    pub fn for_each(
        self,
        meta: &Meta,
        mut visit: impl FnMut(&BlkPtr, bool) -> Result<ControlFlow<()>>,
    ) -> Result<bool> {
        Walk::new(meta, self, None)?.run(&mut visit)
    }

    /// Visits entries as [`Bpobj::for_each`] does, and removes what was visited. An entry whose visit breaks off stays.
    pub fn drain(
        self,
        meta: &Meta,
        tx: &SyncTx<'_>,
        mut visit: impl FnMut(&BlkPtr, bool) -> Result<ControlFlow<()>>,
    ) -> Result<bool> {
        Walk::new(meta, self, Some(tx))?.run(&mut visit)
    }

    /// Takes over the entries of `other`, which is gone after that.
    pub fn adopt(self, meta: &Meta, other: Bpobj, tx: &SyncTx<'_>) -> Result<()> {
        if other.is_shared_empty(meta) {
            return Self::release_empty(meta, 1, tx);
        }
        let (theirs, _) = other.load(meta)?;
        if theirs.is_empty() {
            return other.destroy(meta, tx);
        }
        let space = other.space(meta)?;
        let (mut phys, version) = self.load(meta)?;
        if version < BpobjVersion::V2 {
            bail!(Corrupt, "bpobj {}: its record has no room for sub-objects", self.0);
        }
        let one_block = |object: u64| meta.mos.info(object).map(|info| info.length <= info.block_bytes);
        let their_list = theirs.sub_objects.get();
        let copy_list = their_list == 0 || one_block(their_list)?;
        let copy_pointers = copy_list && one_block(other.0)?;
        if copy_list && their_list != 0 {
            let bytes = checked_read(meta, their_list, theirs.sub_object_count.get(), 8)?;
            self.add_sub_objects(meta, &mut phys, &bytes, tx)?;
            let (mut theirs, their_version) = (theirs, other.load(meta)?.1);
            theirs.sub_objects = 0.into();
            theirs.sub_object_count = 0.into();
            other.store(meta, &theirs, their_version, tx)?;
            meta.mos.free(their_list, tx)?;
        }
        if copy_pointers {
            let bytes = checked_read(meta, other.0, theirs.count.get(), POINTER_BYTES)?;
            meta.mos.write(self.0, phys.count.get() * POINTER_BYTES, &bytes, tx)?;
            phys.count += theirs.count.get();
            meta.mos.free(other.0, tx)?;
        } else {
            self.add_sub_objects(meta, &mut phys, &other.0.to_le_bytes(), tx)?;
        }
        space.positive().apply(&mut phys.bytes, &mut phys.compressed_bytes, &mut phys.uncompressed_bytes);
        self.store(meta, &phys, version, tx)
    }

    fn add_sub_objects(self, meta: &Meta, phys: &mut BpobjPhys, numbers: &[u8], tx: &SyncTx<'_>) -> Result<()> {
        if phys.sub_objects.get() == 0 {
            let list = meta.mos.allocate(ObjectType::BPOBJ_SUBOBJ, LIST_BLOCK_BYTES, ObjectType::NONE, 0, tx)?;
            phys.sub_objects = list.into();
        }
        meta.mos.write(phys.sub_objects.get(), phys.sub_object_count.get() * 8, numbers, tx)?;
        phys.sub_object_count += numbers.len() as u64 / 8;
        Ok(())
    }
}

/// Reads `count` records of one block, which must have them.
fn checked_read(meta: &Meta, object: u64, count: u64, record_bytes: u64) -> Result<Vec<u8>> {
    if count > LIST_BLOCK_BYTES.max(meta.mos.info(object)?.block_bytes) / record_bytes {
        return Err(Corruption::new("bpobj", "count", count).into());
    }
    meta.mos.read(object, 0, (count * record_bytes) as usize)
}

fn sub_object(meta: &Meta, object: u64, phys: &BpobjPhys, index: u64) -> Result<u64> {
    let bytes = meta.mos.read(phys.sub_objects.get(), index * 8, 8)?;
    match bytes.try_into().map(u64::from_le_bytes) {
        Ok(0) | Err(_) => bail!(Corrupt, "bpobj {object}: sub-object {index} of {} is missing", phys.sub_object_count.get()),
        Ok(child) => Ok(child),
    }
}

/// One list on the way down.
struct Frame {
    list: Bpobj,
    phys: BpobjPhys,
    version: BpobjVersion,
    visited: bool,
    subs_left: u64,
}

/// A walk over a list and all it adopted, which needs no recursion and notices loops. With `tx` it removes what it visits.
struct Walk<'a> {
    meta: &'a Meta,
    tx: Option<&'a SyncTx<'a>>,
    stack: Vec<Frame>,
    seen: HashSet<u64>,
}

type Visit<'v> = &'v mut dyn FnMut(&BlkPtr, bool) -> Result<ControlFlow<()>>;

impl<'a> Walk<'a> {
    fn new(meta: &'a Meta, root: Bpobj, tx: Option<&'a SyncTx<'a>>) -> Result<Self> {
        let mut walk = Walk { meta, tx, stack: Vec::new(), seen: HashSet::new() };
        walk.push(root)?;
        Ok(walk)
    }

    fn push(&mut self, list: Bpobj) -> Result<()> {
        if !self.seen.insert(list.0) {
            bail!(Corrupt, "bpobj {}: it is its own sub-object", list.0);
        }
        let (phys, version) = list.load(self.meta)?;
        let subs_left = if phys.sub_objects.get() == 0 { 0 } else { phys.sub_object_count.get() };
        self.stack.push(Frame { list, phys, version, visited: false, subs_left });
        Ok(())
    }

    fn run(mut self, visit: Visit<'_>) -> Result<bool> {
        let walked = self.walk(visit);
        // After an error too: what was visited may be free by the end of the group, and must not be found again.
        self.store_all()?;
        walked
    }

    fn walk(&mut self, visit: Visit<'_>) -> Result<bool> {
        while let Some(top) = self.stack.last_mut() {
            if !top.visited {
                top.visited = true;
                if self.visit_pointers(visit)?.is_break() {
                    return Ok(false);
                }
            } else if top.subs_left > 0 {
                top.subs_left -= 1;
                let child = sub_object(self.meta, top.list.0, &top.phys, top.subs_left)?;
                self.push(Bpobj(child))?;
            } else if let Some(done) = self.stack.pop() {
                self.finish(done)?;
            }
        }
        Ok(true)
    }

    /// A list with all it adopted is done: if we remove, it goes, or (the root) its record is stored.
    fn finish(&mut self, done: Frame) -> Result<()> {
        let Some(tx) = self.tx else { return Ok(()) };
        let Some(parent) = self.stack.last_mut() else {
            return done.list.store(self.meta, &done.phys, done.version, tx);
        };
        parent.phys.sub_object_count -= 1;
        self.meta.mos.free_range(parent.phys.sub_objects.get(), parent.phys.sub_object_count.get() * 8, 8, tx)?;
        if done.phys.sub_objects.get() != 0 {
            self.meta.mos.free(done.phys.sub_objects.get(), tx)?;
        }
        self.meta.mos.free(done.list.0, tx)
    }

    fn store_all(&self) -> Result<()> {
        let Some(tx) = self.tx else { return Ok(()) };
        self.stack.iter().try_for_each(|frame| frame.list.store(self.meta, &frame.phys, frame.version, tx))
    }

    /// Visits the pointers of the topmost list, last first. If we remove, those that were visited are no more on it, even if the visit fails.
    fn visit_pointers(&mut self, visit: Visit<'_>) -> Result<ControlFlow<()>> {
        let (list, whole) = match self.stack.last() {
            Some(top) => (top.list, top.phys.count.get()),
            None => return Ok(ControlFlow::Continue(())),
        };
        let mut visited = Visited { end: whole, space: Space::default().positive(), freed_entries: 0 };
        let flow = self.visit_backwards(list, &mut visited, visit);
        let Some(tx) = self.tx.filter(|_| visited.end < whole) else { return flow };
        if let Some(top) = self.stack.last_mut() {
            top.phys.count = visited.end.into();
            top.phys.freed_count = top.phys.freed_count.get().saturating_sub(visited.freed_entries).into();
        }
        for frame in &mut self.stack {
            let phys = &mut frame.phys;
            visited.space.apply(&mut phys.bytes, &mut phys.compressed_bytes, &mut phys.uncompressed_bytes);
        }
        let freed = self.meta.mos.free_range(list.0, visited.end * POINTER_BYTES, u64::MAX, tx);
        flow.and_then(|flow| freed.map(|()| flow))
    }

    fn visit_backwards(&self, list: Bpobj, visited: &mut Visited, visit: Visit<'_>) -> Result<ControlFlow<()>> {
        let whole = visited.end;
        while visited.end > 0 {
            let end = visited.end;
            let start = (end - 1) / READ_POINTERS * READ_POINTERS;
            let bytes = self.meta.mos.read(list.0, start * POINTER_BYTES, ((end - start) * POINTER_BYTES) as usize)?;
            for bp in BlkPtr::slice_of(&bytes).iter().rev() {
                // Nobody lists a hole. A count beyond the list's end would go on for ages otherwise.
                if bp.is_hole() {
                    return Err(Corruption::new("bpobj", "count", whole).into());
                }
                let freed = entry_is_freed(bp);
                if visit(bp, freed)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                visited.end -= 1;
                let space = self.meta.space_of(bp);
                visited.space.add(if freed { space.positive() } else { space.negative() });
                visited.freed_entries += u64::from(freed);
            }
            if visited.end != start {
                return Err(Corruption::new("bpobj", "count", whole).into());
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// How far the visit of a list came.
struct Visited {
    /// Entries before this one are left.
    end: u64,
    /// What the list has less.
    space: SpaceDelta,
    /// Entries that say that a block was freed.
    freed_entries: u64,
}
