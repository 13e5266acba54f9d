//! Writing what one group changed in a set of objects.
//!
//! # Path
//! called by dsl (datasets) and pool/sync (the MOS); calls [`crate::dmu::sync::dnode_sync`], zio.

use std::sync::Arc;

use ondisk::blkptr::BlkPtr;
use ondisk::dnode as disk;
use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;
use ondisk::objset::{ObjsetSize, ObjsetType};

use crate::dmu::sync::dnode_sync::{DnodeSync, PASS_REWRITE};
use crate::dmu::settings::write_policy;
use crate::dmu::{Dnode, FileOwner, ObjectId, Objset, ObjsetSettings, SpaceOwner, SyncTx, USED_BY_GROUP, USED_BY_PROJECT, USED_BY_USER};
use crate::error::{Result, Within};
use crate::txg::slot;
use crate::zio::{Bookmark, Seal, WriteRequest};

/// Data handed to the workers at a time.
const BATCH_BYTES: u64 = 32 << 20;
/// Objects handled at a time.
const BATCH_OBJECTS: usize = 512;

/// What the sync of one object needs to know.
pub(in crate::dmu) struct SyncContext<'a> {
    pub(in crate::dmu) tx: &'a SyncTx<'a>,
    pub(in crate::dmu) owner: &'a Arc<dyn SpaceOwner>,
    pub(in crate::dmu) settings: ObjsetSettings,
    pub(in crate::dmu) hole_birth: bool,
}

/// How the space that a file's owner uses changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccountingChange {
    /// The owner.
    pub owner: FileOwner,
    /// Bytes more (or less).
    pub bytes: i64,
    /// Objects more (or less).
    pub objects: i64,
}

impl Objset {
    /// Writes all objects that `tx`'s group changed; the set's own block is for [`Objset::sync_root`]. What files use more
    /// or less than before is left in [`Objset::take_accounting`].
    ///
    /// # Errors
    /// A write failed: the pool cannot go on.
    pub fn sync(&self, tx: &SyncTx<'_>) -> Result<()> {
        let context = self.sync_context(tx);
        let index = slot(tx.txg());
        loop {
            let batch = self.next_batch(index);
            if batch.is_empty() {
                break;
            }
            for sync in self.sync_objects(&context, self.with_place(tx, batch))? {
                self.finish_object(tx, sync)?;
            }
        }
        for object in [USED_BY_PROJECT, USED_BY_GROUP, USED_BY_USER, 0] {
            let dirty = self.shared.dirty[index].lock().remove(&object);
            if let Some(dnode) = dirty {
                for sync in self.sync_objects(&context, vec![dnode])? {
                    self.finish_special(tx, sync);
                }
            }
        }
        self.forget_dnode_secrets(tx.txg());
        Ok(())
    }

    fn sync_context<'a>(&'a self, tx: &'a SyncTx<'a>) -> SyncContext<'a> {
        SyncContext { tx, owner: self.owner(), settings: self.settings(), hole_birth: tx.context.io.features().hole_birth }
    }

    fn next_batch(&self, index: usize) -> Vec<Arc<Dnode>> {
        let mut dirty = self.shared.dirty[index].lock();
        let mut batch = Vec::new();
        let mut bytes = 0;
        let mut after = 0;
        while let Some((&object, dnode)) = dirty.range(after + 1..USED_BY_PROJECT).next() {
            let size = {
                let state = dnode.state.read();
                let blocks = state.dirty[index].as_ref().map_or(0, |dirty| dirty.blocks.len() as u64);
                blocks * state.header.block_bytes
            };
            if !batch.is_empty() && (bytes + size > BATCH_BYTES || batch.len() >= BATCH_OBJECTS) {
                break;
            }
            bytes += size;
            batch.push(dnode.clone());
            after = object;
        }
        for dnode in &batch {
            dirty.remove(&dnode.object);
        }
        batch
    }

    /// Those of the objects that have a place in the meta-dnode. It was there when they were changed; if it is lost by now, so are they, and the pool
    /// goes on.
    fn with_place(&self, tx: &SyncTx<'_>, batch: Vec<Arc<Dnode>>) -> Vec<Arc<Dnode>> {
        if self.dataset() == 0 {
            return batch;
        }
        let meta = self.meta();
        let mut looked_at = None;
        let has_place = |dnode: &Arc<Dnode>| {
            let block = dnode.object / disk::DNODES_PER_BLOCK;
            if let Some((known, has_place)) = looked_at
                && known == block
            {
                return has_place;
            }
            let found = if meta.has_version(block) { meta.synced_pointer(0, block).map(drop) } else { meta.block(block).map(drop) };
            let has_place = match found {
                Err(error) if tx.context.io.is_lost(&error) => {
                    tracing::error!("{}: changes of objects are lost with the block of dnodes that they stand in: {error}", self.name());
                    false
                }
                _ => true,
            };
            looked_at = Some((block, has_place));
            has_place
        };
        let (with_place, lost): (Vec<_>, Vec<_>) = batch.into_iter().partition(has_place);
        lost.iter().filter_map(|dnode| DnodeSync::take(dnode, tx)).for_each(|sync| sync.give_up(tx));
        with_place
    }

    /// Frees and writes all levels of the objects.
    fn sync_objects(&self, context: &SyncContext<'_>, dnodes: Vec<Arc<Dnode>>) -> Result<Vec<DnodeSync>> {
        let mut syncs: Vec<DnodeSync> = dnodes.iter().filter_map(|dnode| DnodeSync::take(dnode, context.tx)).collect();
        for sync in &mut syncs {
            let object = sync.dnode.object;
            sync.prepare(context).within(|| format!("{}: object {object}", self.name()))?;
        }
        let levels = syncs.iter().map(DnodeSync::levels).max().unwrap_or(0);
        for level in 0..levels {
            self.sync_level(context, &mut syncs, level)?;
        }
        Ok(syncs)
    }

    fn sync_level(&self, context: &SyncContext<'_>, syncs: &mut [DnodeSync], level: u8) -> Result<()> {
        let mut whose = Vec::new();
        let mut requests: Vec<WriteRequest> = Vec::new();
        for (index, sync) in syncs.iter_mut().enumerate() {
            for (block, request) in sync.requests(context, level)? {
                whose.push((index, block, request.data.clone()));
                requests.push(request);
            }
        }
        if requests.is_empty() {
            return Ok(());
        }
        let results = context.tx.context.io.write_many(requests, context.tx.txg());
        for ((index, block, data), result) in whose.into_iter().zip(results) {
            let pointer = result.within(|| format!("{}: object {}", self.name(), syncs[index].dnode.object))?;
            syncs[index].written(context, level, block, &data, pointer)?;
        }
        Ok(())
    }

    /// Puts the new dnode into the meta-dnode.
    fn finish_object(&self, tx: &SyncTx<'_>, mut sync: DnodeSync) -> Result<()> {
        self.account(&mut sync);
        let object = sync.dnode.object;
        if sync.dnode.slots > 1 && !sync.is_freed() {
            self.owner().uses(Feature::LargeDnode);
        }
        self.meta().write(tx, object * disk::DNODE_SLOT_BYTES as u64, &sync.encode())?;
        if sync.is_freed() {
            // Both at once, and the number is nobody's: else who has taken it since would lose it to a third.
            let mut allocator = self.allocator.lock();
            if self.forget(&sync.dnode) {
                allocator.note_freed(object, sync.dnode.slots);
            }
        }
        self.install(tx, sync);
        Ok(())
    }

    /// Shows readers what was written. Only then it is gone from memory, and no longer dirty.
    fn install(&self, tx: &SyncTx<'_>, sync: DnodeSync) {
        let bytes = sync.written_bytes();
        sync.install(tx);
        if !self.settings().is_mos {
            tx.context.dirty.remove(tx.txg(), bytes);
            tx.context.cache.make_room(tx.context.dirty.total());
        }
    }

    /// Puts the new dnode of the meta-dnode or an accounting object into the set's own block.
    fn finish_special(&self, tx: &SyncTx<'_>, sync: DnodeSync) {
        let mut root = self.root.lock();
        root.changed = true;
        let tree = sync.tree().clone();
        match sync.dnode.object {
            0 => root.phys.meta = tree,
            USED_BY_USER => root.phys.user_used = tree,
            USED_BY_GROUP => root.phys.group_used = tree,
            _ => root.phys.project_used = tree,
        }
        drop(root);
        self.install(tx, sync);
    }

    /// Whether the set counts the space used by each user (`dmu_objset_userused_enabled`).
    pub fn counts_used_space(&self) -> bool {
        self.shared.file_owner.is_some() && !self.settings().is_encrypted && self.objset_type() == ObjsetType::FileSystem && self.phys_size() >= ObjsetSize::V2
    }

    /// Compares how much each owner had before with how much each has now (`do_userquota_update`).
    fn account(&self, sync: &mut DnodeSync) {
        let Some(file_owner) = self.shared.file_owner.filter(|_| self.counts_used_space()) else { return };
        let before = sync.before();
        let counts_objects = self.flags() & ondisk::objset::FLAG_USER_OBJECT_ACCOUNTING_COMPLETE != 0;
        let mut changes = Vec::new();
        let (used_before, used_after) = sync.used_change();
        if before.flags & disk::FLAG_USER_ACCOUNTED != 0
            && let Some(owner) = file_owner(before.bonus_type, &before.bonus)
        {
            let objects = -i64::from(before.flags & disk::FLAG_USER_OBJECTS_ACCOUNTED != 0);
            changes.push(AccountingChange { owner, bytes: -((used_before + 512) as i64), objects });
        }
        if !sync.is_freed() {
            sync.set_flags(disk::FLAG_USER_ACCOUNTED | if counts_objects { disk::FLAG_USER_OBJECTS_ACCOUNTED } else { 0 });
            if let Some(owner) = file_owner(sync.tree().bonus_type, &sync.tree().bonus) {
                // OpenZFS counts an object from when it has the flag, which may be before the whole set is counted.
                let objects = i64::from(sync.tree().flags & disk::FLAG_USER_OBJECTS_ACCOUNTED != 0);
                changes.push(AccountingChange { owner, bytes: (used_after + 512) as i64, objects });
            }
        }
        self.accounting.lock().append(&mut changes);
    }

    /// What files use more or less since the last call.
    pub fn take_accounting(&self) -> Vec<AccountingChange> {
        std::mem::take(&mut self.accounting.lock())
    }

    /// The object that counts used space by user, group or project, made if it does not exist.
    pub fn accounting_object(&self, tx: &SyncTx<'_>, object: ObjectId) -> Result<Arc<Dnode>> {
        if let Some(dnode) = self.special.read().get(&object) {
            return Ok(dnode.clone());
        }
        let spec = crate::dmu::DnodeSpec::new(ObjectType::USERGROUP_USED, 0);
        self.claim(tx, object, &spec)
    }

    /// Writes the set's own block if anything below it changed; returns where it is.
    ///
    /// # Errors
    /// The write failed.
    pub fn sync_root(&self, tx: &SyncTx<'_>) -> Result<BlkPtr> {
        let context = self.sync_context(tx);
        let (previous, data, fill) = {
            let mut root = self.root.lock();
            if !root.changed {
                return Ok(root.pointer);
            }
            root.changed = false;
            let fill = root.phys.meta.pointers.iter().map(BlkPtr::fill).sum();
            (root.pointer, Arc::new(root.phys.encode()), fill)
        };
        let policy = write_policy(&context.settings, ObjectType::OBJSET, 0, false, 0, 0);
        let again = previous.birth() == tx.txg() && !previous.is_hole();
        let rewrite = again && tx.pass >= PASS_REWRITE;
        if rewrite {
            tx.context.cache.begin_rewrite(&previous, Arc::clone(&data));
        }
        let request = WriteRequest {
            data: data.clone(),
            object_type: ObjectType::OBJSET,
            level: 0,
            checksum: policy.checksum,
            compression: policy.compression,
            compression_level: 0,
            copies: policy.copies,
            small_bytes: policy.small_bytes,
            previous,
            rewrite,
            no_embed: true,
            bookmark: Bookmark { objset: self.dataset(), object: 0, level: -1, block: 0 },
            packed: None,
            seal: if context.settings.is_encrypted { Seal::Head } else { Seal::Open },
        };
        let result = tx.context.io.write_many(vec![request], tx.txg()).pop();
        let mut pointer = result.unwrap_or_else(|| Err(crate::error!(Io, "no answer to a write"))).within(|| self.name())?;
        pointer.set_fill(fill);
        if !pointer.same_block(&previous) {
            if !previous.is_hole() {
                context.owner.killed(tx, &previous)?;
            }
            context.owner.born(tx, &pointer)?;
        }
        tx.context.cache.insert(self.dataset(), &pointer, data);
        self.root.lock().pointer = pointer;
        Ok(pointer)
    }
}
