//! Clones that were destroyed, and whose own blocks are still to be freed, by their livelists.
//!
//! # Theory
//! When a clone is destroyed its livelist is put into a dictionary of the pool, and nothing else is done. In the background one sublist after the other is
//! read whole, what is alive on it is freed, and it goes, all in one group; at last the list itself goes. So a crash loses nothing.
//!
//! # On disk
//! `dsl::meta::key::DELETED_CLONES`: a ZAP of the lists.

use std::sync::atomic::{AtomicU64, Ordering};

use ondisk::blkptr::BlkPtr;
use ondisk::dsl::number_key;
use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;

use super::deadlist::Deadlist;
use super::livelist_sync::blocks_alive;
use crate::dmu::SyncTx;
use crate::dsl::meta::{Meta, key};
use crate::error::Result;

/// See the module.
#[derive(Debug, Default)]
pub(in crate::dsl) struct DeletedClones {
    /// The dictionary; 0: there is none, or none of which more can be freed before the pool is next opened.
    lists: AtomicU64,
}

impl DeletedClones {
    /// The pool has this dictionary; 0: none.
    pub(in crate::dsl) fn set(&self, lists: u64) {
        self.lists.store(lists, Ordering::Relaxed);
    }

    /// Whether something is left to free.
    pub(super) fn has_any(&self) -> bool {
        self.lists.load(Ordering::Relaxed) != 0
    }

    /// A clone was destroyed: what is alive on its list is to be freed.
    pub(super) fn queue(&self, meta: &Meta, livelist: u64, tx: &SyncTx<'_>) -> Result<()> {
        let lists = match meta.mos.zap_u64(key::DIRECTORY, key::DELETED_CLONES)? {
            Some(lists) => lists,
            None => {
                let lists = meta.mos.zap_create(ObjectType::ZAP_METADATA, tx)?;
                meta.mos.zap_add_u64(key::DIRECTORY, key::DELETED_CLONES, lists, tx)?;
                lists
            }
        };
        self.set(lists);
        meta.mos.zap(lists)?.add_int(tx, livelist)
    }

    /// Frees what is alive on one sublist after the other, until it `is_enough`.
    ///
    /// # Errors
    /// A list cannot be read, or makes no sense.
    #[doc(alias = "spa_livelist_delete_cb")]
    pub(super) fn free_some(&self, meta: &Meta, is_enough: &dyn Fn() -> bool, free: &mut dyn FnMut(&BlkPtr), tx: &SyncTx<'_>) -> Result<()> {
        while self.has_any() && !is_enough() {
            let lists = self.lists.load(Ordering::Relaxed);
            match meta.mos.zap_entries(lists)?.first() {
                Some((_, livelist)) => self.free_part(meta, lists, livelist.first(), free, tx)?,
                None => {
                    meta.mos.zap_remove(key::DIRECTORY, key::DELETED_CLONES, tx)?;
                    meta.mos.free(lists, tx)?;
                    self.set(0);
                }
            }
        }
        Ok(())
    }

    /// Frees one sublist, or the list if none is left.
    fn free_part(&self, meta: &Meta, lists: u64, livelist: u64, free: &mut dyn FnMut(&BlkPtr), tx: &SyncTx<'_>) -> Result<()> {
        let list = Deadlist::open(meta, livelist)?;
        if let Some((first, blocks)) = list.entries(meta)?.first().copied() {
            blocks_alive(meta, blocks)?.iter().for_each(free);
            return list.remove_entry(meta, first, tx);
        }
        meta.mos.zap_remove(lists, &number_key(livelist), tx)?;
        Deadlist::destroy(meta, livelist, tx)?;
        meta.features.decrement(&meta.mos, Feature::Livelist, tx)
    }
}
