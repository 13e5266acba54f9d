//! The versions of one block that are not on disk yet.

use std::sync::Arc;

use ondisk::blkptr::BlkPtr;
use parking_lot::Mutex;
use transform::compress::is_zero;

use crate::dmu::blocks::patch::Patch;
use crate::dmu::blocks::raw::RawContents;
use crate::txg::Txg;
use crate::zio::PackedBlock;

/// What a group made of a block.
#[derive(Debug, Clone)]
pub(in crate::dmu) enum Contents {
    /// New contents, always a whole block.
    Data(Arc<Vec<u8>>),
    /// New bytes of a part of the block.
    Patch(Patch),
    /// The block was freed: zeros.
    Freed,
    /// A block on disk that another object has too.
    Cloned(Box<BlkPtr>),
    /// A block that is stored as a sender has it.
    Raw(Arc<RawContents>),
    /// A whole block that is on disk already, where it will stay.
    Placed(Box<BlkPtr>),
}

impl Contents {
    /// The whole block; `None`: it was freed, or is on disk, or takes a key.
    pub(in crate::dmu) fn whole(&self) -> Option<Arc<Vec<u8>>> {
        match self {
            Contents::Data(data) => Some(data.clone()),
            Contents::Patch(patch) => Some(Arc::new(patch.whole())),
            Contents::Freed | Contents::Cloned(_) | Contents::Raw(_) | Contents::Placed(_) => None,
        }
    }

    /// How many bytes are not those of an older version.
    pub(in crate::dmu) fn own_bytes(&self) -> u64 {
        match self {
            Contents::Data(data) => data.len() as u64,
            Contents::Patch(patch) => patch.own_bytes(),
            Contents::Raw(raw) => raw.block.logical_bytes,
            Contents::Freed | Contents::Cloned(_) | Contents::Placed(_) => 0,
        }
    }
}

/// A block with at least one unsynced version, oldest first; at most one per living group.
#[derive(Debug, Default)]
pub(in crate::dmu) struct DirtyBlock {
    /// guards: the versions
    pub(in crate::dmu) versions: Mutex<Vec<(Txg, Contents)>>,
    /// guards: contents that are known compressed. Contents that were changed since are others.
    packed: Mutex<Option<(Arc<Vec<u8>>, PackedBlock)>>,
}

impl DirtyBlock {
    /// A block that has contents since a group.
    pub(in crate::dmu) fn new(txg: Txg, contents: Contents) -> DirtyBlock {
        DirtyBlock { versions: Mutex::new(vec![(txg, contents)]), packed: Mutex::default() }
    }

    /// Somebody knows these contents, which a version has, compressed.
    pub(in crate::dmu) fn set_packed(&self, data: Arc<Vec<u8>>, packed: PackedBlock) {
        *self.packed.lock() = Some((data, packed));
    }

    /// The same contents, compressed, if they are known so.
    pub(in crate::dmu) fn packed_of(&self, data: &Arc<Vec<u8>>) -> Option<PackedBlock> {
        self.packed.lock().take_if(|(own, _)| Arc::ptr_eq(own, data)).map(|(_, packed)| packed)
    }

    /// The newest contents.
    pub(in crate::dmu) fn newest(&self) -> Option<Contents> {
        self.versions.lock().last().map(|(_, contents)| contents.clone())
    }

    /// Whether the newest version is contents, not "freed"; `None` if there is no version.
    pub(in crate::dmu) fn has_data(&self) -> Option<bool> {
        self.versions.lock().last().map(|(_, contents)| !matches!(contents, Contents::Freed))
    }

    /// Whether the newest version is contents, and nothing but zeros.
    pub(in crate::dmu) fn is_zeros(&self) -> bool {
        match self.versions.lock().last() {
            Some((_, Contents::Data(data))) => is_zero(data),
            Some((_, Contents::Patch(patch))) => patch.writes_zeros() && is_zero(&patch.whole()),
            _ => false,
        }
    }

    /// What `txg` made of it.
    pub(in crate::dmu) fn version(&self, txg: Txg) -> Option<Contents> {
        self.versions.lock().iter().find(|(own, _)| *own == txg).map(|(_, contents)| contents.clone())
    }

    /// What `txg`, which is being written, made of it. A patch becomes a whole block on the way, once: with the old contents below
    /// each, a group of patches would take twice what it was let in for.
    pub(in crate::dmu) fn to_write(&self, txg: Txg) -> Option<Contents> {
        let mut versions = self.versions.lock();
        let (_, contents) = versions.iter_mut().find(|(own, _)| *own == txg)?;
        if let Contents::Patch(patch) = contents {
            *contents = Contents::Data(Arc::new(patch.whole()));
        }
        Some(contents.clone())
    }

    /// Forgets the versions up to `txg`; `true` if none is left.
    pub(in crate::dmu) fn forget(&self, txg: Txg) -> bool {
        let mut versions = self.versions.lock();
        versions.retain(|(own, _)| *own > txg);
        versions.is_empty()
    }
}
