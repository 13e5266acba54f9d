//! Writing what one group changed in one object.
//!
//! # Theory
//! [`DnodeSync`] takes a group's changes and a copy of the object's tree, frees what was freed, then gives out the blocks
//! to write level by level: the pointers that come back for level *n* are the contents of level *n + 1*. The caller
//! ([`crate::dmu::sync::objset_sync`]) asks many objects at a time, so that all workers have something to do. Nothing of it is seen by
//! readers before [`DnodeSync::install`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ondisk::algorithm::Compression;
use ondisk::blkptr::{BlkPtr, Hole, Secrets};
use ondisk::dnode as disk;
use ondisk::object_type::ObjectType;

use crate::dmu::blocks::dirty_block::Contents;
use crate::dmu::objects::dnode::{BlockRanges, DnodeDirty};
use crate::dmu::blocks::early::EarlyBlock;
use crate::dmu::blocks::raw::secrets_of;
use crate::dmu::sync::objset_sync::SyncContext;
use crate::dmu::settings::write_policy;
use crate::dmu::objects::tree::{entry, fanout_shift, span_shift};
use crate::dmu::{Dnode, SyncTx};
use crate::bail;
use crate::error::Result;
use crate::txg::{Txg, slot};
use crate::zio::{RawBlock, Seal, WriteRequest};

/// Passes from which a block born in this group is written over in place.
pub(in crate::dmu) const PASS_REWRITE: u32 = 2;
/// Passes from which a block born in this group is no longer compressed, so that its size stays.
pub(in crate::dmu) const PASS_DO_NOT_COMPRESS: u32 = 8;

/// An indirect block being changed.
pub(in crate::dmu) struct Indirect {
    pub(in crate::dmu) data: Vec<u8>,
    pub(in crate::dmu) changed: bool,
}

/// One object on its way to disk.
pub(in crate::dmu) struct DnodeSync {
    pub(in crate::dmu) dnode: Arc<Dnode>,
    pub(in crate::dmu) dirty: Box<DnodeDirty>,
    frees: BlockRanges,
    /// The tree being built.
    pub(in crate::dmu) tree: disk::Dnode,
    pub(in crate::dmu) indirect: BTreeMap<(u8, u64), Indirect>,
    /// Blocks that are on disk already.
    early: BTreeMap<u64, EarlyBlock>,
    used_before: u64,
    /// When the indirect blocks were born that were freed and could not be read.
    pub(in crate::dmu) lost: Vec<Txg>,
    /// Bytes of data blocks that were written.
    written_bytes: u64,
}

impl DnodeSync {
    /// Takes what `tx`'s group changed; `None` if nothing.
    pub(in crate::dmu) fn take(dnode: &Arc<Dnode>, tx: &SyncTx<'_>) -> Option<Self> {
        let index = slot(tx.txg());
        let mut state = dnode.state.write();
        let dirty = state.dirty[index].take()?;
        let frees = state.frees[index].clone();
        drop(state);
        let tree = dnode.disk.read().clone();
        let used_before = tree.used_bytes();
        Some(DnodeSync { dnode: dnode.clone(), dirty, frees, tree, indirect: BTreeMap::new(), early: BTreeMap::new(), used_before, lost: Vec::new(), written_bytes: 0 })
    }

    /// Whether the object ends here.
    pub(in crate::dmu) fn is_freed(&self) -> bool {
        self.dirty.freed
    }

    /// The new dnode (after the last level).
    pub(in crate::dmu) fn tree(&self) -> &disk::Dnode {
        &self.tree
    }

    /// Height of the tree.
    pub(in crate::dmu) fn levels(&self) -> u8 {
        self.tree.levels
    }

    /// Applies header and frees; after it, level 0 can be written.
    pub(in crate::dmu) fn prepare(&mut self, context: &SyncContext<'_>) -> Result<()> {
        if self.tree.flags & disk::FLAG_USED_BYTES == 0 {
            self.tree.used <<= 9;
            self.tree.flags |= disk::FLAG_USED_BYTES;
        }
        self.sort_early(context.tx);
        if self.dirty.freed {
            return self.free_everything(context);
        }
        let header = self.dirty.header.clone();
        self.tree.object_type = header.object_type;
        self.tree.bonus_type = header.bonus_type;
        self.tree.bonus.clone_from(&header.bonus);
        match &header.bonus_rest {
            Some(rest) => self.tree.bonus_rest.clone_from(rest),
            None => self.tree.bonus_rest.clear(),
        }
        self.tree.checksum = header.checksum;
        self.tree.compression = header.compression;
        if self.tree.levels == 1 {
            self.tree.indirect_shift = header.indirect_shift;
        }
        self.tree.block_bytes = header.block_bytes;
        let frees = std::mem::take(&mut self.frees);
        for (&start, &end) in &frees {
            self.free_blocks(context, start, end)?;
        }
        self.frees = frees;
        self.note_leaks(context);
        self.tree.max_block = header.max_block;
        self.grow(header.max_block);
        Ok(())
    }

    /// Keeps those early blocks that are what the group made of them in the end, and frees the others.
    fn sort_early(&mut self, tx: &SyncTx<'_>) {
        let (early, stale) = self.dnode.take_early(tx.txg());
        stale.iter().for_each(|pointer| tx.free(pointer));
        for (block, early) in early {
            let version = self.dnode.blocks.read().get(&block).and_then(|dirty| dirty.version(tx.txg()));
            let is_last = version.is_some_and(|version| early.is(&version));
            let fits = early.pointer.logical_size() == self.dirty.header.block_bytes && self.dirty.blocks.contains(&block);
            if is_last && fits && !self.dirty.freed {
                self.early.insert(block, early);
            } else {
                tx.free(&early.pointer);
            }
        }
    }

    /// Makes the tree high enough for `max_block`.
    fn grow(&mut self, max_block: u64) {
        let roots = self.tree.pointers.len() as u64;
        while self.tree.levels < self.dirty.header.levels_min
            || (max_block >> span_shift(self.tree.indirect_shift, self.tree.levels - 1) >= roots && (self.tree.levels > 1 || max_block >= roots))
        {
            let any = self.tree.pointers.iter().any(|pointer| !is_zero(pointer));
            if any {
                let mut data = vec![0; 1 << self.tree.indirect_shift];
                for (i, pointer) in self.tree.pointers.iter().enumerate() {
                    put(&mut data, i, pointer);
                }
                self.indirect.insert((self.tree.levels, 0), Indirect { data, changed: true });
            }
            self.tree.pointers.fill(BlkPtr::ZERO);
            self.tree.levels += 1;
        }
    }

    /// The pointer to a block, in the tree being built.
    pub(in crate::dmu) fn pointer(&mut self, context: &SyncContext<'_>, level: u8, block: u64) -> Result<BlkPtr> {
        if level + 1 >= self.tree.levels {
            return Ok(usize::try_from(block).ok().and_then(|b| self.tree.pointers.get(b).copied()).unwrap_or(BlkPtr::ZERO));
        }
        let shift = fanout_shift(self.tree.indirect_shift);
        let index = (block & ((1 << shift) - 1)) as usize;
        let parent = self.load(context, level + 1, block >> shift)?;
        Ok(entry(&parent.data, index).unwrap_or(BlkPtr::ZERO))
    }

    /// An indirect block, read (or made) if need be.
    pub(in crate::dmu) fn load(&mut self, context: &SyncContext<'_>, level: u8, block: u64) -> Result<&mut Indirect> {
        if !self.indirect.contains_key(&(level, block)) {
            let pointer = self.pointer(context, level, block)?;
            let data = if pointer.is_hole() {
                self.recreate(level, &pointer)
            } else {
                self.dnode.read_indirect(&self.tree, &pointer, level, block)?.to_block()
            };
            self.indirect.insert((level, block), Indirect { data, changed: false });
        }
        Ok(self.indirect.get_mut(&(level, block)).unwrap_or_else(|| unreachable!("inserted above")))
    }

    /// An indirect block in the place of a hole: all holes, which inherit its birth.
    fn recreate(&self, level: u8, hole: &BlkPtr) -> Vec<u8> {
        let mut data = vec![0; 1 << self.tree.indirect_shift];
        let birth = hole.logical_birth();
        if birth != 0 {
            let child = self.hole_at(level - 1, birth);
            for index in 0..data.len() / disk::BLKPTR_BYTES {
                put(&mut data, index, &child);
            }
        }
        data
    }

    fn hole_at(&self, level: u8, birth: u64) -> BlkPtr {
        let logical_size = if level == 0 { self.tree.block_bytes } else { 1 << self.tree.indirect_shift };
        Hole { object_type: self.tree.object_type, level, logical_size, logical_birth: birth }.encode()
    }

    /// Changes a pointer in the tree being built.
    pub(in crate::dmu) fn set_pointer(&mut self, context: &SyncContext<'_>, level: u8, block: u64, pointer: &BlkPtr) -> Result<()> {
        if level + 1 >= self.tree.levels {
            if let Some(root) = usize::try_from(block).ok().and_then(|b| self.tree.pointers.get_mut(b)) {
                *root = *pointer;
            }
            return Ok(());
        }
        let shift = fanout_shift(self.tree.indirect_shift);
        let index = (block & ((1 << shift) - 1)) as usize;
        let parent = self.load(context, level + 1, block >> shift)?;
        put(&mut parent.data, index, pointer);
        parent.changed = true;
        Ok(())
    }

    /// A block goes: its owner is told, its space no longer counts.
    pub(in crate::dmu) fn kill(&mut self, context: &SyncContext<'_>, pointer: &BlkPtr) -> Result<()> {
        let size = context.tx.context.io.deflated_size(pointer);
        self.tree.used = self.tree.used.saturating_sub(size);
        context.owner.killed(context.tx, pointer)
    }

    /// What takes the place of a freed block.
    pub(in crate::dmu) fn hole_after(&self, context: &SyncContext<'_>, level: u8) -> BlkPtr {
        if context.hole_birth { self.hole_at(level, context.tx.txg()) } else { BlkPtr::ZERO }
    }

    /// The blocks to write at `level`, with their numbers. Level 0 comes with the spill block, as number `u64::MAX`.
    pub(in crate::dmu) fn requests(&mut self, context: &SyncContext<'_>, level: u8) -> Result<Vec<(u64, WriteRequest)>> {
        let mut out = Vec::new();
        if self.dirty.freed || level >= self.tree.levels {
            return Ok(out);
        }
        if level == 0 {
            let blocks: Vec<u64> = self.dirty.blocks.iter().copied().collect();
            for block in blocks {
                if !self.has_place(context, block)? {
                    continue;
                }
                if let Some(EarlyBlock { data, pointer }) = self.early.remove(&block) {
                    match data {
                        Some(data) => self.written(context, 0, block, &data, pointer)?,
                        None => self.placed(context, 0, block, pointer)?,
                    }
                    continue;
                }
                let dirty = self.dnode.blocks.read().get(&block).cloned();
                match dirty.as_ref().and_then(|dirty| dirty.to_write(context.tx.txg())) {
                    Some(Contents::Cloned(pointer)) => self.share(context, block, &pointer)?,
                    Some(Contents::Placed(_)) => bail!(Corrupt, "block {} was written and has no place", self.dnode.bookmark(0, block)),
                    Some(Contents::Raw(raw)) => {
                        let previous = self.pointer(context, 0, block)?;
                        let request = self.request(context, 0, block, raw.data.clone(), previous);
                        out.push((block, WriteRequest { seal: Seal::Raw(raw.block.clone()), ..request }));
                    }
                    Some(contents) => {
                        if let Some(data) = contents.whole() {
                            let previous = self.pointer(context, 0, block)?;
                            let packed = dirty.and_then(|dirty| dirty.packed_of(&data));
                            let seal = self.seal_of_dnodes(context, block, &data, &previous)?;
                            let request = self.request(context, 0, block, self.whole_block(data), previous);
                            out.push((block, WriteRequest { packed, seal, ..request }));
                        }
                    }
                    None => {}
                }
            }
            if let Some(change) = self.dirty.spill.take() {
                self.spill_request(context, change, &mut out)?;
            }
            return Ok(out);
        }
        let changed: Vec<u64> =
            self.indirect.range((level, 0)..=(level, u64::MAX)).filter(|(_, i)| i.changed).map(|(&(_, block), _)| block).collect();
        for block in changed {
            let previous = self.pointer(context, level, block)?;
            let mut data = self.indirect.remove(&(level, block)).map(|indirect| indirect.data).unwrap_or_default();
            // One that leads to nothing becomes a hole itself. What is below it inherits that one's birth, if it has one.
            if previous.logical_birth() != 0 && BlkPtr::slice_of(&data).iter().all(BlkPtr::is_hole) {
                data.fill(0);
            }
            let seal = if context.settings.is_encrypted { Seal::Pointers } else { Seal::Open };
            out.push((block, WriteRequest { seal, ..self.request(context, level, block, Arc::new(data), previous) }));
        }
        Ok(out)
    }

    /// What protects a block that was made here: in an encrypted set only blocks of dnodes are.
    fn seal_of_dnodes(&self, context: &SyncContext<'_>, block: u64, data: &[u8], previous: &BlkPtr) -> Result<Seal> {
        if !context.settings.is_encrypted {
            return Ok(Seal::Open);
        }
        let noted = self.dnode.objset.dnode_secrets.lock().get(&block).copied();
        let secrets = match noted {
            Some((secrets, _)) => Some(secrets),
            None => secrets_of(previous)?,
        };
        match secrets.or_else(|| is_zero_data(data).then(Secrets::default)) {
            Some(secrets) if self.tree.object_type == ObjectType::DNODE => {
                Ok(Seal::Raw(RawBlock { logical_bytes: data.len() as u64, compression: Compression::Off, little_endian: true, secrets }))
            }
            _ => bail!(KeyNotLoaded, "block {} is to be encrypted", self.dnode.bookmark(0, block)),
        }
    }

    /// Is there a place for a block's pointer? An indirect block that was there when the block was changed may be lost by now: then the block is, too.
    fn has_place(&mut self, context: &SyncContext<'_>, block: u64) -> Result<bool> {
        let is_users = self.is_users();
        match self.pointer(context, 0, block) {
            Err(error) if is_users && context.tx.context.io.is_lost(&error) => {
                tracing::error!("block {block} of object {} is lost: {error}", self.dnode.object);
                self.early.remove(&block).iter().for_each(|early| context.tx.free(&early.pointer));
                Ok(false)
            }
            pointer => pointer.map(|_| true),
        }
    }

    /// A block of another object becomes this one's too.
    fn share(&mut self, context: &SyncContext<'_>, block: u64, pointer: &BlkPtr) -> Result<()> {
        let previous = self.pointer(context, 0, block)?;
        let own = pointer.reborn(context.tx.txg());
        // Contents of a pointer are copied with it.
        if !pointer.is_embedded() {
            context.tx.context.io.add_reference(pointer, self.dnode.dataset())?;
        }
        if !previous.is_hole() {
            self.kill(context, &previous)?;
        }
        self.tree.used += context.tx.context.io.deflated_size(&own);
        context.owner.born(context.tx, &own)?;
        self.set_pointer(context, 0, block, &own)
    }

    /// A version that is older than a change of the block size is brought to it.
    fn whole_block(&self, data: Arc<Vec<u8>>) -> Arc<Vec<u8>> {
        if data.len() as u64 == self.tree.block_bytes {
            return data;
        }
        let mut resized = data.to_vec();
        resized.resize(self.tree.block_bytes as usize, 0);
        Arc::new(resized)
    }

    fn spill_request(
        &mut self,
        context: &SyncContext<'_>,
        change: Option<Arc<Vec<u8>>>,
        out: &mut Vec<(u64, WriteRequest)>,
    ) -> Result<()> {
        let previous = self.tree.spill.unwrap_or(BlkPtr::ZERO);
        match change {
            Some(data) => {
                let mut request = self.request(context, 0, u64::MAX, data, previous);
                request.object_type = ObjectType::SA;
                request.no_embed = true;
                let policy = write_policy(&context.settings, ObjectType::SA, 0, true, 0, 0);
                request.copies = policy.copies;
                request.compression = policy.compression;
                request.checksum = policy.checksum;
                if let Some(raw) = self.dirty.raw_spill.take() {
                    request.seal = Seal::Raw(raw);
                }
                out.push((u64::MAX, request));
            }
            None => {
                if self.tree.spill.take().is_some() {
                    self.kill(context, &previous)?;
                }
            }
        }
        Ok(())
    }

    fn request(&self, context: &SyncContext<'_>, level: u8, block: u64, data: Arc<Vec<u8>>, previous: BlkPtr) -> WriteRequest {
        let policy =
            write_policy(&context.settings, self.tree.object_type, level, false, self.tree.checksum, self.tree.compression);
        let again = previous.birth() == context.tx.txg() && !previous.is_hole();
        let rewrite = again && context.tx.pass >= PASS_REWRITE;
        if rewrite {
            context.tx.context.cache.begin_rewrite(&previous, Arc::clone(&data));
        }
        WriteRequest {
            data,
            object_type: self.tree.object_type,
            level,
            checksum: policy.checksum,
            compression: if again && context.tx.pass >= PASS_DO_NOT_COMPRESS { 2 } else { policy.compression },
            compression_level: policy.compression_level,
            copies: policy.copies,
            small_bytes: policy.small_bytes,
            previous,
            rewrite,
            no_embed: false,
            bookmark: self.dnode.bookmark(level as i8, block),
            packed: None,
            seal: Seal::Open,
        }
    }

    /// A block of `level` was written: `pointer` is where.
    pub(in crate::dmu) fn written(&mut self, context: &SyncContext<'_>, level: u8, block: u64, data: &Arc<Vec<u8>>, mut pointer: BlkPtr) -> Result<()> {
        if !pointer.is_hole() && !pointer.is_embedded() {
            pointer.set_fill(self.fill(level, data));
            // Of what takes a key there are no plain contents; of dnodes only the bonuses take one.
            if !pointer.uses_encryption() || level > 0 || self.tree.object_type == ObjectType::DNODE {
                context.tx.context.cache.insert(self.dnode.bookmark(0, 0).objset, &pointer, data.clone());
            }
        }
        self.placed(context, level, block, pointer)
    }

    /// A block of `level` is at `pointer` now.
    fn placed(&mut self, context: &SyncContext<'_>, level: u8, block: u64, pointer: BlkPtr) -> Result<()> {
        let spill = level == 0 && block == u64::MAX;
        if level == 0 {
            self.written_bytes += if spill { pointer.logical_size() } else { self.tree.block_bytes };
        }
        let previous = if spill { self.tree.spill.unwrap_or(BlkPtr::ZERO) } else { self.pointer(context, level, block)? };
        let in_place = !pointer.is_hole() && !previous.is_hole() && !pointer.is_embedded() && pointer.same_block(&previous);
        if !in_place {
            if !previous.is_hole() {
                self.kill(context, &previous)?;
            }
            if !pointer.is_hole() {
                self.tree.used += context.tx.context.io.deflated_size(&pointer);
                context.owner.born(context.tx, &pointer)?;
            }
        }
        if spill {
            self.tree.spill = if pointer.is_hole() { None } else { Some(pointer) };
            return Ok(());
        }
        self.set_pointer(context, level, block, &pointer)
    }

    /// How much is below a block: of dnodes their number, else the number of data blocks.
    fn fill(&self, level: u8, data: &[u8]) -> u64 {
        if level > 0 {
            return BlkPtr::slice_of(data).iter().filter(|pointer| !pointer.is_hole()).map(BlkPtr::fill).sum();
        }
        if self.tree.object_type != ObjectType::DNODE {
            return 1;
        }
        let mut at = 0;
        let mut count = 0;
        while let Some(bytes) = data.get(at * disk::DNODE_SLOT_BYTES..).filter(|bytes| !bytes.is_empty()) {
            count += u64::from(!disk::Dnode::peek_free(bytes));
            at += disk::Dnode::peek_slots(bytes);
        }
        count
    }

    /// Bytes of data blocks that were written.
    pub(in crate::dmu) fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Space used before and after.
    pub(in crate::dmu) fn used_change(&self) -> (u64, u64) {
        (self.used_before, self.tree.used_bytes())
    }

    /// Changes the dnode's flags.
    pub(in crate::dmu) fn set_flags(&mut self, set: u8) {
        self.tree.flags |= set;
    }

    /// The dnode as it was before, and whether the object is new.
    pub(in crate::dmu) fn before(&self) -> disk::Dnode {
        self.dnode.disk.read().clone()
    }

    /// The dnode in the form that stands in the meta-dnode.
    pub(in crate::dmu) fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; usize::from(self.tree.slots) * disk::DNODE_SLOT_BYTES];
        self.tree.encode(&mut out);
        out
    }

    /// What the group changed is lost, as there is no way to where it would stand: the object stays as it was.
    pub(in crate::dmu) fn give_up(self, tx: &SyncTx<'_>) {
        let (early, stale) = self.dnode.take_early(tx.txg());
        early.iter().map(|(_, early)| &early.pointer).chain(&stale).for_each(|pointer| tx.free(pointer));
        self.install(tx);
    }

    /// Shows readers the new tree, and forgets what is on disk now.
    pub(in crate::dmu) fn install(self, tx: &SyncTx<'_>) {
        let txg = tx.txg();
        *self.dnode.disk.write() = self.tree;
        let mut state = self.dnode.state.write();
        if !std::mem::take(&mut state.frees[slot(txg)]).is_empty() {
            self.dnode.pending_frees.fetch_sub(1, Ordering::AcqRel);
        }
        drop(state);
        let mut blocks = self.dnode.blocks.write();
        for block in self.dirty.blocks.iter().chain(&self.dirty.freed_versions) {
            let Some(dirty) = blocks.get(block) else { continue };
            // A writer that holds the entry is about to add a version: then it must stay in the table.
            if dirty.forget(txg) && Arc::strong_count(dirty) == 1 {
                blocks.remove(block);
            }
        }
    }
}

fn put(data: &mut [u8], index: usize, pointer: &BlkPtr) {
    let at = index * disk::BLKPTR_BYTES;
    data[at..at + disk::BLKPTR_BYTES].copy_from_slice(pointer.as_bytes());
}

fn is_zero_data(data: &[u8]) -> bool {
    transform::compress::is_zero(data)
}

fn is_zero(pointer: &BlkPtr) -> bool {
    *pointer == BlkPtr::ZERO
}
