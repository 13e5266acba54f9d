//! Objects of encrypted datasets, which come as they are on the disk of a sender and go to disk so.
//!
//! # Theory
//! Without its key, a block that is encrypted can only be stored with the salt, the vector and the MAC that its sender gave. The same is true of a
//! block of dnodes, of which the bonuses are encrypted: its dnodes come one by one, and what protects the block they stand in comes before them
//! ([`Objset::note_dnode_secrets`]). The MAC of such a block is of the dnodes as they are when all of the stream was received.
//!
//! The block on disk cannot be relied on to have secrets when an object is put into it: a group that is being written may free all that is there, and leave a
//! hole. So they are noted with each object, in its transaction, and until its group is on disk. From then on the block has them as long as there is something
//! in it.
//!
//! # Invariants
//! 1. Every block of dnodes that is changed has secrets, noted or those of the block on disk that it replaces, or has no dnodes.
//! 2. There are no more noted secrets than objects that groups have changed which are not on disk.

use std::sync::Arc;

use ondisk::blkptr::{BlkPtr, BlockPointer, Secrets};
use ondisk::dnode as disk;

use crate::dmu::blocks::dirty_block::Contents;
use crate::dmu::{Dnode, ObjectId, Objset, Tx};
use crate::error::Result;
use crate::txg::Txg;
use crate::zio::RawBlock;
use crate::{bail, error};

/// Physical bytes, and what they are.
#[derive(Debug)]
pub(in crate::dmu) struct RawContents {
    pub(in crate::dmu) data: Arc<Vec<u8>>,
    pub(in crate::dmu) block: RawBlock,
}

/// What a sender says of the head of its object set.
#[derive(Debug, Clone)]
pub struct RawHead {
    /// The MAC of what is the same wherever it is sent to.
    pub portable_mac: [u8; 32],
    /// Height of the tree of dnodes.
    pub levels: u8,
    /// Its highest block.
    pub max_block: u64,
    /// log2 of the size of its indirect blocks.
    pub indirect_shift: u8,
    /// Its checksum id.
    pub checksum: u8,
    /// Its compression id.
    pub compression: u8,
}

/// The secrets of a block that is on disk; `None`: it has none.
pub(in crate::dmu) fn secrets_of(pointer: &BlkPtr) -> Result<Option<Secrets>> {
    match pointer.decode()? {
        BlockPointer::Data(data) if pointer.uses_encryption() => Ok(Some(data.secrets())),
        _ => Ok(None),
    }
}

impl Dnode {
    /// Replaces a block by one that is stored as it comes.
    ///
    /// # Errors
    /// The object was freed, or an indirect block above the block cannot be read; `Corrupt`: the object set is not encrypted.
    ///
    /// # Panics
    /// If it is not one block long.
    pub fn write_raw(self: &Arc<Self>, tx: &Tx, block: u64, data: Vec<u8>, raw: RawBlock) -> Result<()> {
        if !self.objset.settings.load().is_encrypted {
            bail!(Corrupt, "object {}: what is encrypted cannot be stored in a dataset that is not", self.object);
        }
        assert_eq!(raw.logical_bytes, self.block_bytes(), "object {}: not a whole block", self.object);
        self.put_version(tx, block, Contents::Raw(Arc::new(RawContents { data: Arc::new(data), block: raw })))
    }

    /// Replaces the bonus, of which all bytes that it has room for are given: `length` of them count.
    ///
    /// # Panics
    /// If it does not fit.
    pub fn set_raw_bonus(self: &Arc<Self>, tx: &Tx, mut bonus: Vec<u8>, length: usize) {
        assert!(bonus.len() <= self.bonus_bytes_max(), "object {}: bonus of {} bytes does not fit", self.object, bonus.len());
        let rest = bonus.split_off(length.min(bonus.len()));
        self.change(tx, |header| (header.bonus, header.bonus_rest) = (Arc::new(bonus), Some(Arc::new(rest))));
    }

    /// The size of indirect blocks, where there are none yet.
    pub fn set_indirect_shift(self: &Arc<Self>, tx: &Tx, shift: u8) {
        self.change(tx, |header| header.indirect_shift = shift);
    }

    /// The tree is so high at least, and ends with this block. What is beyond it is freed.
    ///
    /// # Errors
    /// The object was freed, or an indirect block cannot be read.
    pub fn set_tree_shape(self: &Arc<Self>, tx: &Tx, levels: u8, max_block: u64) -> Result<()> {
        if max_block < self.max_block() {
            let end = max_block.saturating_add(1).saturating_mul(self.block_bytes());
            self.free_range(tx, end, u64::MAX)?;
        }
        self.change(tx, |header| (header.levels_min, header.max_block) = (levels, max_block));
        Ok(())
    }
}

impl Objset {
    /// What protects the block of dnodes that an object stands in which `tx` makes or changes.
    pub fn note_dnode_secrets(&self, tx: &Tx, object: ObjectId, secrets: Secrets) {
        self.shared.dnode_secrets.lock().insert(object / disk::DNODES_PER_BLOCK, (secrets, tx.txg()));
    }

    /// The blocks of dnodes that a group changed are on disk, with what protects them.
    pub(in crate::dmu) fn forget_dnode_secrets(&self, txg: Txg) {
        self.shared.dnode_secrets.lock().retain(|_, (_, noted_in)| *noted_in > txg);
    }

    /// Brings the head of an encrypted object set to what its sender says, in the sync thread.
    ///
    /// # Errors
    /// `Corrupt`: it cannot have become that since what is there was sent.
    #[doc(alias = "dsl_crypto_recv_raw_objset_sync")]
    pub fn set_raw_head(&self, tx: &Tx, head: &RawHead) -> Result<()> {
        let meta = self.meta();
        let info = meta.info();
        // What dnodes beyond its end lead to could not be found any more, to free it. The end of the dnodes of a sender never comes nearer.
        if head.levels < info.levels || head.indirect_shift != info.indirect_shift || head.max_block < info.max_block {
            bail!(Corrupt, "{}: the dnodes of the stream are in a tree of another shape", self.name());
        }
        meta.set_tree_shape(tx, head.levels, head.max_block)?;
        meta.set_checksum(tx, head.checksum);
        meta.set_compression(tx, head.compression);
        let mut root = self.root.lock();
        // What users have is not counted before the key is there, and so needs no MAC.
        root.phys.flags = 0;
        root.phys.macs = [0; 64];
        let place = root.phys.macs.get_mut(..head.portable_mac.len()).ok_or_else(|| error!(Corrupt, "a MAC is too long"))?;
        place.copy_from_slice(&head.portable_mac);
        root.changed = true;
        Ok(())
    }
}
