//! A set of objects: a dataset's, or the pool's own (the MOS).

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use ondisk::blkptr::{BlkPtr, Secrets};
use ondisk::dnode as disk;
use ondisk::objset::{Objset as DiskObjset, ObjsetSize, ObjsetType};
use ondisk::object_type::ObjectType;
use arc_swap::ArcSwap;
use parking_lot::{Mutex, RwLock};

use crate::dmu::objects::allocate::Allocator;
use crate::dmu::objects::presence::Presence;
use crate::dmu::settings::FileOwnerOf;
use crate::dmu::{AccountingChange, DmuContext, Dnode, DnodeSpec, ObjectId, ObjsetSettings, RawHead, SpaceOwner};
use crate::bail;
use crate::error::{Result, Within};
use crate::txg::{TXG_SIZE, Txg, slot};
use crate::zio::Bookmark;

/// The object that counts the space used by each user.
#[doc(alias = "DMU_USERUSED_OBJECT")]
pub const USED_BY_USER: ObjectId = u64::MAX;
/// The object that counts the space used by each group.
#[doc(alias = "DMU_GROUPUSED_OBJECT")]
pub const USED_BY_GROUP: ObjectId = u64::MAX - 1;
/// The object that counts the space used by each project.
#[doc(alias = "DMU_PROJECTUSED_OBJECT")]
pub const USED_BY_PROJECT: ObjectId = u64::MAX - 2;

/// So many objects in each shard are kept in memory whether somebody uses them or not.
const SHARD_DNODES_MIN: usize = 256;
/// A shard with more objects is looked through after one group in [`SHARDS`] only: a group must not cost more where many files are in use.
const SHARD_DNODES_SMALL: usize = 1024;
const SHARDS: usize = 16;
/// Where the cache is full of what is held, each shard is looked through after one group in so many: a million files that somebody uses are not
/// forgotten for it.
const CROWDED_TURNS: Txg = 4;

/// What an object set shares with its objects.
pub(in crate::dmu) struct ObjsetShared {
    pub(in crate::dmu) context: Arc<DmuContext>,
    pub(in crate::dmu) dataset: u64,
    /// What is read ahead has this, and not the set.
    pub(in crate::dmu) presence: Arc<Presence>,
    pub(in crate::dmu) settings: ArcSwap<ObjsetSettings>,
    pub(in crate::dmu) file_owner: Option<FileOwnerOf>,
    /// Of an encrypted set: what protects blocks of dnodes that come from a sender, and the last group that changed them.
    pub(in crate::dmu) dnode_secrets: Mutex<BTreeMap<u64, (Secrets, Txg)>>,
    /// Objects that each group changed.
    pub(in crate::dmu) dirty: [Mutex<BTreeMap<ObjectId, Arc<Dnode>>>; TXG_SIZE],
}

impl ObjsetShared {
    /// `true`: it is the group's first of those whose dnodes stand in the same block.
    pub(in crate::dmu) fn add_dirty(&self, txg: Txg, dnode: &Arc<Dnode>) -> bool {
        let first = dnode.object - dnode.object % disk::DNODES_PER_BLOCK;
        let mut dirty = self.dirty[slot(txg)].lock();
        let is_first = dirty.range(first..=first | (disk::DNODES_PER_BLOCK - 1)).next().is_none();
        dirty.insert(dnode.object, dnode.clone());
        is_first
    }

    /// The most that `bytes` in blocks of `block_bytes` can take on disk.
    #[doc(alias = "spa_get_worst_case_asize")]
    pub(in crate::dmu) fn worst_case(&self, bytes: u64, block_bytes: u64) -> u64 {
        let copies = u64::from(self.settings.load().copies).clamp(1, 3);
        // Allocations are in units, and with parity that may be more than its share.
        let block = block_bytes.max(512);
        bytes.saturating_mul(self.context.io.worst_data_share(block)) / block * copies
    }
}

/// The objset's own block, apart from the dnodes that live in [`Objset::special`].
pub(in crate::dmu) struct Root {
    pub(in crate::dmu) pointer: BlkPtr,
    pub(in crate::dmu) phys: DiskObjset,
    /// The block itself was changed (header, flags) in the group being synced.
    pub(in crate::dmu) changed: bool,
}

/// Objects in memory.
#[derive(Default)]
struct Shard {
    dnodes: HashMap<ObjectId, Arc<Dnode>>,
    /// How often objects were forgotten. What was read from disk before one was may be older than what that one wrote.
    departures: u64,
    /// Beyond this number it is time to look which of them nobody uses.
    trim_at: usize,
}

impl Shard {
    fn remove(&mut self, object: ObjectId) {
        self.departures += 1;
        self.dnodes.remove(&object);
    }

    /// Forgets objects that nobody uses, if there are too many.
    fn trim(&mut self) {
        if self.dnodes.len() > SHARD_DNODES_MIN {
            self.departures += 1;
            self.dnodes.retain(|_, dnode| Arc::strong_count(dnode) > 1 || dnode.has_versions());
            // After one with many.
            if self.dnodes.capacity() > 4 * self.dnodes.len().max(SHARD_DNODES_MIN) {
                self.dnodes.shrink_to(2 * self.dnodes.len());
            }
        }
        self.trim_at = (2 * self.dnodes.len()).max(SHARD_DNODES_MIN);
    }

    /// Before one more comes.
    fn trim_when_full(&mut self) {
        if self.dnodes.len() > self.trim_at {
            self.trim();
        }
    }
}

/// A set of objects.
pub struct Objset {
    pub(in crate::dmu) shared: Arc<ObjsetShared>,
    name: RwLock<String>,
    owner: Arc<dyn SpaceOwner>,
    snapshot: bool,
    pub(in crate::dmu) root: Mutex<Root>,
    /// Object 0, and the accounting objects that exist.
    pub(in crate::dmu) special: RwLock<HashMap<ObjectId, Arc<Dnode>>>,
    dnodes: [Mutex<Shard>; SHARDS],
    /// guards: itself; held across the I/O of dnode blocks
    pub(in crate::dmu) allocator: Mutex<Allocator>,
    /// What the last `sync` changed in the space that files use; for the dsl to write down.
    pub(in crate::dmu) accounting: Mutex<Vec<AccountingChange>>,
    pub(in crate::dmu) log: OnceLock<Arc<dyn crate::dmu::ObjsetLog>>,
}

/// What [`Objset::open`] and [`Objset::create`] need to know.
pub struct ObjsetOptions {
    /// The pool's layers.
    pub context: Arc<DmuContext>,
    /// The dataset's object number, 0 for the MOS.
    pub dataset: u64,
    /// For messages.
    pub name: String,
    /// What pays.
    pub owner: Arc<dyn SpaceOwner>,
    /// What properties say.
    pub settings: ObjsetSettings,
    /// Finds the owner of a file (file systems only).
    pub file_owner: Option<FileOwnerOf>,
    /// Never written.
    pub snapshot: bool,
}

impl Drop for Objset {
    fn drop(&mut self) {
        self.shared.presence.end();
    }
}

impl Objset {
    /// Opens the set of objects whose block is at `pointer`.
    ///
    /// # Errors
    /// The block cannot be read, or makes no sense.
    pub fn open(options: ObjsetOptions, pointer: BlkPtr) -> Result<Arc<Self>> {
        if pointer.is_hole() {
            bail!(Corrupt, "{}: has no object set", options.name);
        }
        let at = Bookmark { objset: options.dataset, object: 0, level: -1, block: 0 };
        let data = options.context.cache.read(&pointer, &at).within(|| format!("{}: object set", options.name))?;
        let phys = DiskObjset::decode(&data).within(|| format!("{}: object set", options.name))?;
        if phys.meta.object_type != ObjectType::DNODE || phys.meta.block_bytes != disk::DNODE_BLOCK_BYTES {
            bail!(Corrupt, "{}: the meta-dnode is no dnode object", options.name);
        }
        let special = [(0, &phys.meta), (USED_BY_USER, &phys.user_used), (USED_BY_GROUP, &phys.group_used), (USED_BY_PROJECT, &phys.project_used)]
            .into_iter()
            .filter(|(_, dnode)| dnode.object_type != ObjectType::NONE)
            .map(|(object, dnode)| (object, dnode.clone()))
            .collect::<Vec<_>>();
        let objset = Self::build(options, Root { pointer, phys, changed: false });
        for (object, dnode) in special {
            let dnode = Dnode::from_disk(objset.shared.clone(), object, dnode);
            objset.special.write().insert(object, dnode);
        }
        Ok(objset)
    }

    /// A new, empty set of objects, to be written with the next [`Objset::sync`] in `tx`'s group.
    pub fn create(options: ObjsetOptions, tx: &crate::dmu::Tx, objset_type: ObjsetType, size: ObjsetSize) -> Arc<Self> {
        // The meta-dnode of a dataset is as high as the highest object number needs (as OpenZFS makes it).
        let mut levels = 1;
        if objset_type != ObjsetType::Meta {
            let mut covers = 3 * u128::from(disk::DNODES_PER_BLOCK);
            while covers < u128::from(disk::OBJECTS_MAX) {
                covers <<= disk::INDIRECT_SHIFT_MAX - 7;
                levels += 1;
            }
        }
        Self::create_shaped(options, tx, objset_type, size, &DnodeSpec { levels, ..DnodeSpec::new(ObjectType::DNODE, disk::DNODE_BLOCK_BYTES) })
    }

    /// As [`Objset::create`], of an encrypted dataset, for what a sender has.
    ///
    /// # Errors
    /// The head makes no sense.
    #[doc(alias = "dmu_objset_create_impl_dnstats")]
    pub fn create_raw(options: ObjsetOptions, tx: &crate::dmu::Tx, objset_type: ObjsetType, size: ObjsetSize, head: &RawHead) -> Result<Arc<Self>> {
        let spec = DnodeSpec { levels: head.levels, ..DnodeSpec::new(ObjectType::DNODE, disk::DNODE_BLOCK_BYTES).with_indirect_shift(head.indirect_shift) };
        let objset = Self::create_shaped(options, tx, objset_type, size, &spec);
        objset.set_raw_head(tx, head)?;
        Ok(objset)
    }

    fn create_shaped(options: ObjsetOptions, tx: &crate::dmu::Tx, objset_type: ObjsetType, size: ObjsetSize, spec: &DnodeSpec) -> Arc<Self> {
        let phys = DiskObjset {
            meta: disk::Dnode::free(),
            zil_header: [0; ondisk::objset::ZIL_HEADER_BYTES],
            objset_type,
            flags: 0,
            macs: [0; 64],
            user_used: disk::Dnode::free(),
            group_used: disk::Dnode::free(),
            project_used: disk::Dnode::free(),
            size,
        };
        let objset = Self::build(options, Root { pointer: BlkPtr::ZERO, phys, changed: true });
        objset.insert_special(tx, 0, spec);
        objset
    }

    fn build(options: ObjsetOptions, root: Root) -> Arc<Self> {
        options.context.cache.set_policy(options.dataset, options.settings.cache);
        Arc::new(Objset {
            shared: Arc::new(ObjsetShared {
                context: options.context,
                dataset: options.dataset,
                presence: Arc::default(),
                settings: ArcSwap::from_pointee(options.settings),
                file_owner: options.file_owner,
                dnode_secrets: Mutex::default(),
                dirty: Default::default(),
            }),
            name: RwLock::new(options.name),
            owner: options.owner,
            snapshot: options.snapshot,
            root: Mutex::new(root),
            special: RwLock::new(HashMap::new()),
            dnodes: Default::default(),
            allocator: Mutex::default(),
            accounting: Mutex::default(),
            log: OnceLock::new(),
        })
    }

    /// Makes the meta-dnode or an accounting object.
    fn insert_special(&self, tx: &crate::dmu::Tx, object: ObjectId, spec: &DnodeSpec) -> Arc<Dnode> {
        let dnode = Dnode::fresh(self.shared.clone(), object, spec);
        self.special.write().insert(object, dnode.clone());
        dnode.mark_allocated(tx);
        dnode
    }

    /// The pool's layers.
    pub fn context(&self) -> &Arc<DmuContext> {
        &self.shared.context
    }

    /// The dataset's object number, 0 for the MOS.
    pub fn dataset(&self) -> u64 {
        self.shared.dataset
    }

    /// For what reads blocks of the set in the background.
    pub fn presence(&self) -> &Arc<Presence> {
        &self.shared.presence
    }

    /// The name, for messages.
    pub fn name(&self) -> String {
        self.name.read().clone()
    }

    /// The dataset was renamed.
    pub fn set_name(&self, name: &str) {
        name.clone_into(&mut self.name.write());
    }

    /// What pays.
    pub fn owner(&self) -> &Arc<dyn SpaceOwner> {
        &self.owner
    }

    /// The most that `bytes` in blocks of `block_bytes` can take on disk.
    pub(in crate::dmu) fn worst_case(&self, bytes: u64, block_bytes: u64) -> u64 {
        self.shared.worst_case(bytes, block_bytes)
    }

    /// Never written.
    pub fn is_snapshot(&self) -> bool {
        self.snapshot
    }

    /// Its contents are encrypted, and no key opens them: what can be read is its shape.
    pub fn is_locked(&self) -> bool {
        self.settings().is_encrypted || self.root.lock().pointer.uses_encryption()
    }

    /// What properties say.
    pub fn settings(&self) -> ObjsetSettings {
        **self.shared.settings.load()
    }

    /// A property changed: for blocks written from now on.
    pub fn set_settings(&self, settings: ObjsetSettings) {
        self.context().cache.set_policy(self.dataset(), settings.cache);
        self.shared.settings.store(Arc::new(settings));
    }

    /// What the set is.
    pub fn objset_type(&self) -> ObjsetType {
        self.root.lock().phys.objset_type
    }

    /// `ondisk::objset::FLAG_*`.
    pub fn flags(&self) -> u64 {
        self.root.lock().phys.flags
    }

    /// Changes the flags, while syncing.
    pub fn set_flags(&self, _tx: &crate::dmu::SyncTx<'_>, flags: u64) {
        let mut root = self.root.lock();
        root.phys.flags = flags;
        root.changed = true;
    }

    /// The intent log's header, raw.
    pub fn zil_header(&self) -> [u8; ondisk::objset::ZIL_HEADER_BYTES] {
        self.root.lock().phys.zil_header
    }

    /// Changes the intent log's header, while syncing.
    pub fn set_zil_header(&self, _tx: &crate::dmu::SyncTx<'_>, header: [u8; ondisk::objset::ZIL_HEADER_BYTES]) {
        let mut root = self.root.lock();
        root.phys.zil_header = header;
        root.changed = true;
    }

    /// Where the set's own block is (as of the last sync).
    pub fn pointer(&self) -> BlkPtr {
        self.root.lock().pointer
    }

    /// How much of the objset structure is on disk.
    pub fn phys_size(&self) -> ObjsetSize {
        self.root.lock().phys.size
    }

    /// Object 0: its data are the dnodes.
    pub fn meta(&self) -> Arc<Dnode> {
        self.special.read().get(&0).cloned().unwrap_or_else(|| unreachable!("every set has a meta-dnode"))
    }

    /// The number of objects in use, as of the last sync.
    pub fn objects_used(&self) -> u64 {
        self.meta().on_disk().pointers.iter().map(BlkPtr::fill).sum()
    }

    fn shard(&self, object: ObjectId) -> &Mutex<Shard> {
        &self.dnodes[(object / 32 % SHARDS as u64) as usize]
    }

    /// The object, if it is in memory.
    pub(in crate::dmu) fn cached(&self, object: ObjectId) -> Option<Arc<Dnode>> {
        self.shard(object).lock().dnodes.get(&object).cloned()
    }

    pub(in crate::dmu) fn insert(&self, dnode: &Arc<Dnode>) {
        if dnode.object >= USED_BY_PROJECT || dnode.object == 0 {
            self.special.write().insert(dnode.object, dnode.clone());
        } else {
            let mut shard = self.shard(dnode.object).lock();
            shard.trim_when_full();
            shard.dnodes.insert(dnode.object, dnode.clone());
        }
    }

    /// The object is gone. `false`: another one has its number by now.
    pub(in crate::dmu) fn forget(&self, dnode: &Arc<Dnode>) -> bool {
        let mut shard = self.shard(dnode.object).lock();
        let is_same = shard.dnodes.get(&dnode.object).is_some_and(|here| Arc::ptr_eq(here, dnode));
        if is_same {
            shard.remove(dnode.object);
        }
        is_same
    }

    /// The caller needs the object no longer, and expects nobody to need it soon.
    pub fn let_go(&self, dnode: Arc<Dnode>) {
        let object = dnode.object;
        let mut shard = self.shard(object).lock();
        let is_same = shard.dnodes.get(&object).is_some_and(|here| Arc::ptr_eq(here, &dnode));
        // Here and in the table; a group that has changes of it would be a third.
        if is_same && Arc::strong_count(&dnode) == 2 && !dnode.has_versions() {
            shard.remove(object);
        }
    }

    /// The object with number `object`.
    ///
    /// # Errors
    /// `NotFound` if there is none; the block of dnodes cannot be read or makes no sense.
    pub fn hold(&self, object: ObjectId) -> Result<Arc<Dnode>> {
        if object == 0 || object >= USED_BY_PROJECT {
            let special = self.special.read().get(&object).cloned();
            return special.ok_or_else(|| crate::error!(NotFound, "{}: there is no object {object}", self.name()));
        }
        loop {
            let departures = {
                let shard = self.shard(object).lock();
                if let Some(dnode) = shard.dnodes.get(&object).cloned() {
                    drop(shard);
                    dnode.check_alive()?;
                    return Ok(dnode);
                }
                shard.departures
            };
            if object >= disk::OBJECTS_MAX {
                bail!(NotFound, "{}: there is no object {object}", self.name());
            }
            let on_disk = self.read_dnode(object)?;
            let mut shard = self.shard(object).lock();
            // Perhaps it was here meanwhile, was changed and written, and is gone again: then what was read is old.
            if shard.dnodes.contains_key(&object) || shard.departures != departures {
                continue;
            }
            shard.trim_when_full();
            let dnode = Dnode::from_disk(self.shared.clone(), object, on_disk);
            shard.dnodes.insert(object, dnode.clone());
            return Ok(dnode);
        }
    }

    /// Starts reading what it takes to hold these objects soon, without waiting.
    pub fn prefetch_objects(&self, objects: impl Iterator<Item = ObjectId>) {
        let is_needed = |object: &ObjectId| *object != 0 && *object < disk::OBJECTS_MAX && self.cached(*object).is_none();
        let mut blocks: Vec<u64> = objects.filter(is_needed).map(|object| object / disk::DNODES_PER_BLOCK).collect();
        if blocks.is_empty() {
            return;
        }
        blocks.sort_unstable();
        blocks.dedup();
        let meta = self.meta();
        let bytes = meta.block_bytes();
        blocks.into_iter().filter_map(|block| block.checked_mul(bytes)).for_each(|offset| meta.prefetch(offset, 1));
    }

    fn read_dnode(&self, object: ObjectId) -> Result<disk::Dnode> {
        let (block, wanted) = (object / disk::DNODES_PER_BLOCK, (object % disk::DNODES_PER_BLOCK) as usize);
        let meta = self.meta();
        let missing = || crate::error!(NotFound, "{}: there is no object {object}", self.name());
        if block > meta.max_block() {
            return Err(missing());
        }
        let data = meta.block(block).within(|| format!("{}: object {object}", self.name()))?;
        let mut at = 0;
        while at < wanted {
            at += disk::Dnode::peek_slots(data.get(at * disk::DNODE_SLOT_BYTES..).unwrap_or_default());
        }
        let bytes = data.get(wanted * disk::DNODE_SLOT_BYTES..).unwrap_or_default();
        if at != wanted || disk::Dnode::peek_free(bytes) {
            return Err(missing());
        }
        disk::Dnode::decode(bytes).within(|| format!("{}: object {object}", self.name()))
    }

    /// The first object on disk with a number above `after` (0 to begin). Objects of groups not yet synced are not seen.
    ///
    /// # Errors
    /// The meta-dnode cannot be read.
    pub fn next_object(&self, after: ObjectId) -> Result<Option<ObjectId>> {
        let meta = self.meta();
        let mut from = after + 1;
        while let Some(block) = meta.next_synced_data(from / disk::DNODES_PER_BLOCK)? {
            let start = block * disk::DNODES_PER_BLOCK;
            let data = meta.block(block)?;
            let mut at = 0;
            while at < disk::DNODES_PER_BLOCK {
                let bytes = data.get(at as usize * disk::DNODE_SLOT_BYTES..).unwrap_or_default();
                if start + at >= from && start + at > 0 && !disk::Dnode::peek_free(bytes) {
                    return Ok(Some(start + at));
                }
                at += disk::Dnode::peek_slots(bytes) as u64;
            }
            from = start + disk::DNODES_PER_BLOCK;
        }
        Ok(None)
    }

    /// Whether `txg` changed anything in this set.
    pub fn is_dirty(&self, txg: Txg) -> bool {
        !self.shared.dirty[slot(txg)].lock().is_empty() || self.root.lock().changed || self.log().is_some_and(|log| log.is_dirty(txg))
    }

    /// Objects with changes that are not on disk yet.
    pub fn dirty_objects(&self) -> Vec<ObjectId> {
        let mut objects: Vec<ObjectId> = self.shared.dirty.iter().flat_map(|dirty| dirty.lock().keys().copied().collect::<Vec<_>>()).collect();
        objects.sort_unstable();
        objects.dedup();
        objects
    }

    /// Forgets objects that nobody uses, if there are too many: after `txg`.
    pub fn trim(&self, txg: Txg) {
        let is_crowded = self.context().cache.is_crowded();
        for (at, shard) in (0..).zip(&self.dnodes) {
            let turns = if is_crowded { CROWDED_TURNS } else { SHARDS as Txg };
            let (is_its_turn, mut shard) = (txg % turns == at % turns, shard.lock());
            if is_its_turn || shard.dnodes.len() <= SHARD_DNODES_SMALL {
                shard.trim();
            }
        }
    }
}
