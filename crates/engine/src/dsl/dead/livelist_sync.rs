//! Livelists: the blocks that are a clone's own.
//!
//! # Theory
//! A clone has a *livelist* of the blocks that it has for itself, by which it is destroyed without a walk over all that it shares with its origin. It is
//! a log: each block that is born and each that is freed is an entry, so nothing is looked up while the clone is written. What is alive is what was
//! born and not freed since.
//!
//! It is cut up by birth, as a deadlist is, into sublists: a new one begins with the group after the newest one has become long. A block that is freed
//! is noted where its birth is, so each sublist can be read without the others; and two neighbours of which little is left alive are
//! *condensed* into one, which has that alone. The newest one still grows, and is not condensed.
//!
//! Where little is shared with the origin, a walk is as good, and the list is given up. So it is where what it says would be wrong: when the clone is
//! promoted, or changes contents with another head, or blocks of it were lost.
//!
//! # On disk
//! `ondisk::dsl::dir_field::LIVELIST`: a deadlist, whose entries may say that a block was freed, and which it counts less then.
//!
//! # Invariants
//! 1. All entries about a block are in one sublist: of one group, all blocks are in the same.
//! 2. The sums of the list are those of the blocks that only the clone has, but for embedded ones.

use std::collections::HashMap;
use std::ops::ControlFlow;

use ondisk::blkptr::BlkPtr;
use ondisk::dsl::dir_field;
use ondisk::dva::Dva;
use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;

use super::bpobj::Bpobj;
use super::deadlist::Deadlist;
use crate::dmu::SyncTx;
use crate::dsl::meta::{Meta, Space};
use crate::error::{Result, Within};
use crate::tunables::Parameter;
use crate::{bail, error};

/// A sublist with more entries than this is not read: it would not fit into memory.
const ENTRIES_MAX: u64 = 1 << 23;
/// Two sublists with more entries than this are not condensed: the group would wait for it.
const CONDENSED_MAX: u64 = 1 << 21;

/// The livelist of a clone, while the clone is in memory.
#[derive(Debug)]
pub(in crate::dsl) struct Livelist {
    list: Deadlist,
}

impl Livelist {
    /// The list of a directory's head, if it has one.
    pub(in crate::dsl) fn of_dir(meta: &Meta, dir: u64) -> Result<Option<Livelist>> {
        let Some(list) = object_of_dir(meta, dir)? else { return Ok(None) };
        let list = Deadlist::open(meta, list).within(|| format!("livelist of directory {dir}"))?;
        Ok(Some(Livelist { list }))
    }

    /// Gives a new clone, whose directory this is, an empty list.
    pub(in crate::dsl) fn create(meta: &Meta, dir: u64, tx: &SyncTx<'_>) -> Result<()> {
        if !meta.features.is_enabled(Feature::Livelist) {
            return Ok(());
        }
        meta.zapify(dir, tx)?;
        let list = Deadlist::create(meta, tx)?;
        meta.mos.zap_add_u64(dir, dir_field::LIVELIST, list, tx)?;
        meta.features.increment(&meta.mos, Feature::Livelist, tx)
    }

    /// Notes what was born and what was freed while the clone was written. `is_first`: it was not written before in this group.
    #[doc(alias = "dsl_flush_pending_livelist")]
    pub(in crate::dsl) fn note(&self, meta: &Meta, born: &[BlkPtr], freed: &[BlkPtr], is_first: bool, tx: &SyncTx<'_>) -> Result<()> {
        let is_full = match self.list.entries(meta)?.last() {
            None => true,
            Some((_, newest)) => is_first && alive(meta, *newest)? > meta.context.tunables.now(Parameter::LivelistMaxEntries),
        };
        if is_full {
            self.list.add_key(meta, tx.txg() - 1, tx)?;
        }
        self.list.insert_marked(meta, born, false, tx)?;
        self.list.insert_marked(meta, freed, true, tx)?;
        self.condense_some(meta, tx)
    }

    /// Makes one sublist of the first two neighbours of which little is left.
    #[doc(alias = "dsl_livelist_try_condense")]
    fn condense_some(&self, meta: &Meta, tx: &SyncTx<'_>) -> Result<()> {
        let entries = self.list.entries(meta)?;
        let limit = meta.context.tunables.now(Parameter::LivelistMaxEntries);
        let Some((_, all_but_newest)) = entries.split_last() else { return Ok(()) };
        for pair in all_but_newest.windows(2) {
            let [(key, first), (next_key, next)] = *pair else { continue };
            let ((one, _), (other, _)) = (first.load(meta)?, next.load(meta)?);
            let (count, freed) = (one.count.get() + other.count.get(), one.freed_count.get() + other.freed_count.get());
            if count.saturating_sub(2 * freed) < limit && count <= CONDENSED_MAX {
                return self.condense((key, first), (next_key, next), meta, tx);
            }
        }
        Ok(())
    }

    #[doc(alias = "spa_livelist_condense_sync")]
    fn condense(&self, (key, first): (u64, Bpobj), (next_key, next): (u64, Bpobj), meta: &Meta, tx: &SyncTx<'_>) -> Result<()> {
        let mut kept = blocks_alive(meta, first)?;
        kept.append(&mut blocks_alive(meta, next)?);
        self.list.remove_entry(meta, next_key, tx)?;
        self.list.clear_entry(meta, key, tx)?;
        self.list.insert_marked(meta, &kept, false, tx)
    }

    /// The space of what is alive, and how many sublists there are.
    pub(in crate::dsl) fn extent(&self, meta: &Meta) -> Result<(Space, u64)> {
        Ok((self.list.space(meta)?, self.list.entries(meta)?.len() as u64))
    }

    /// The object, the group before the first one that it knows of, and the space of what is alive.
    pub(in crate::dsl) fn sum(&self, meta: &Meta) -> Result<(u64, u64, Space)> {
        let first = self.list.entries(meta)?.first().map_or(0, |(key, _)| *key);
        Ok((self.list.object, first, self.list.space(meta)?))
    }
}

fn object_of_dir(meta: &Meta, dir: u64) -> Result<Option<u64>> {
    if !meta.features.is_active(Feature::Livelist) || meta.mos.info(dir)?.object_type != ObjectType::ZAP_METADATA {
        return Ok(None);
    }
    meta.mos.zap_u64(dir, dir_field::LIVELIST)
}

/// Takes the list away from the directory. `with_object`: and frees it, not the blocks. What cannot be read of it stays, and is nobody's.
#[doc(alias = "dsl_dir_remove_livelist")]
pub(in crate::dsl) fn take_away(meta: &Meta, dir: u64, with_object: bool, tx: &SyncTx<'_>) -> Result<()> {
    let Some(list) = object_of_dir(meta, dir)? else { return Ok(()) };
    meta.mos.zap_remove(dir, dir_field::LIVELIST, tx)?;
    if !with_object {
        return Ok(());
    }
    match Deadlist::destroy(meta, list, tx) {
        Err(error) if meta.context.io.is_lost(&error) => tracing::error!("the livelist of directory {dir} is left over: {error}"),
        destroyed => destroyed.within(|| format!("livelist of directory {dir}"))?,
    }
    meta.features.decrement(&meta.mos, Feature::Livelist, tx)
}

/// How many entries of a sublist say that a block was born, as OpenZFS counts them.
fn alive(meta: &Meta, list: Bpobj) -> Result<u64> {
    let (phys, _) = list.load(meta)?;
    Ok(phys.count.get().saturating_sub(phys.freed_count.get()))
}

/// The blocks of a sublist that were born and not freed since.
///
/// # Errors
/// It cannot be read; `Corrupt`: something was freed that was not born, or there are too many entries.
#[doc(alias = "dsl_process_sub_livelist")]
pub(super) fn blocks_alive(meta: &Meta, list: Bpobj) -> Result<Vec<BlkPtr>> {
    let count = list.load(meta)?.0.count.get();
    if count > ENTRIES_MAX {
        bail!(Corrupt, "livelist {}: {count} entries are too many", list.0);
    }
    let mut freed: HashMap<(Option<Dva>, u64), u64> = HashMap::new();
    let mut alive = Vec::new();
    // The newest entry comes first, and a block is freed after it was born.
    list.for_each(meta, |bp, is_freed| {
        let block = (bp.first_dva(), bp.birth());
        match freed.get_mut(&block) {
            _ if is_freed => *freed.entry(block).or_insert(0) += 1,
            Some(times) if *times > 0 => *times -= 1,
            _ => alive.push(*bp),
        }
        Ok(ControlFlow::Continue(()))
    })?;
    match freed.values().filter(|times| **times > 0).count() {
        0 => Ok(alive),
        wrong => Err(error!(Corrupt, "livelist {}: {wrong} blocks were freed that were not born", list.0)),
    }
}
