//! Writing a transaction group.
//!
//! # Theory
//! Writing changes what has to be written: new blocks take space, the space maps that say so are blocks themselves.
//! So a group is written in passes. The first writes all datasets and the MOS; the next ones only what the pass before
//! changed in the MOS, until nothing does. From the second pass on blocks born in this group are written over in place,
//! so that their space does not change again; and what is freed is kept for the next group, unless the pool logs its
//! space maps, where a change costs the same few bytes each time.
//!
//! # The commit point
//! All data, then flush, then labels 0 and 2, flush, the uberblock, flush, labels 1 and 3, flush. Before the uberblock is
//! there, the pool is what it was; afterwards it is the new one. Where a device loses in the first flush what it was given, and the
//! others are enough, one more pass writes down that it has missed this group, and a flush follows.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use ondisk::blkptr::BlkPtr;
use ondisk::feature::Feature;
use ondisk::uberblock::Uberblock;
use parking_lot::Mutex;

use super::writer::GroupWriter;
use crate::alloc::{ClassKind, slop_bytes};
use crate::canary::Canary;
use crate::dmu::SyncTx;
use crate::dsl::FreeBudget;
use crate::error::{Result, Within};
use crate::pool::checkpoint::discard_sync;
use crate::pool::devices::beside::detach;
use crate::pool::devices::{dirty_time_log, removed};
use crate::pool::{error_log_sync, expansion, rebuild, removal, scan, time_log_sync};
use crate::txg::Txg;
use crate::vdev::label::{LabelSync, sync_labels};
use crate::{bail, error};

/// Pass from which frees wait for the next group.
const PASS_DEFERRED_FREE: u32 = 2;
/// More passes than this means that a group does not converge, which is a bug: better to stop.
const PASSES_MAX: u32 = 200;
/// The software version in uberblocks.
const SOFTWARE_VERSION: u64 = 5000;

impl GroupWriter {
    /// Closes the open group and writes it, in this thread: where the host has no threads.
    ///
    /// # Errors
    /// What stopped the pool.
    pub(in crate::pool) fn sync_now(&self) -> Result<()> {
        let _one_at_a_time = self.sync_lock.lock();
        let groups = &self.layers.context.groups;
        if let Some(failure) = groups.failure() {
            return Err(failure);
        }
        let txg = groups.quiesce();
        let Some(begun) = groups.begin_sync() else { bail!(Suspended, "pool {} is being closed", self.configuration.name()) };
        assert_eq!(begun, txg, "somebody else syncs");
        if self.threads.is_none() {
            self.works.step_all(self);
        }
        let result = self.sync_group(txg);
        groups.end_sync(txg, result.clone());
        result
    }

    /// Is something under way of which each group does a piece, one group behind the other?
    fn goes_on(&self) -> bool {
        let is_rebuilding = self.rebuilds.is_active() && !self.scans.is_ending();
        self.scans.is_active() || self.scans.is_scrubbing_errors() || is_rebuilding || discard_sync::is_discarding(self)
    }

    /// Whether writing `txg` would change anything.
    fn has_work(&self, txg: Txg) -> Result<bool> {
        Ok(self.layers.context.groups.is_written_anyway(txg)
            || self.layers.dsl.is_dirty(txg)
            || self.layers.dsl.has_tasks(txg)
            || self.configuration.is_dirty()
            || self.layers.space_maps.as_ref().is_some_and(|maps| maps.has_changes(txg))
            || dirty_time_log::has_unsaved(&self.layers.vdevs)
            || self.goes_on()
            || self.works.needs_groups()
            || self.expansion.is_active()
            || self.removals.has_work(&self.layers)
            || self.removals.condensing.has_work(&self.layers)
            || error_log_sync::has_work(&self.layers)
            || self.layers.dsl.has_background_frees()?)
    }

    /// Writes one group.
    pub(super) fn sync_group(&self, txg: Txg) -> Result<()> {
        // Also if there is nothing to write: the log may write for the next ones.
        self.layers.vdevs.set_writing_txg(txg);
        self.layers.context.cache.begin_rewrites(txg);
        if !self.has_work(txg)? {
            return self.group_done(txg, false);
        }
        let frees = Mutex::new(Vec::new());
        let mut pass = 0;
        loop {
            pass += 1;
            if pass > PASSES_MAX {
                bail!(Corrupt, "txg {txg} does not converge");
            }
            self.check_may_write(self.layers.context.host.now_ns())?;
            let tx = SyncTx::new(&self.layers.context, txg, pass, &frees);
            self.sync_pass(&tx, &frees).within(|| format!("txg {txg}, pass {pass}"))?;
            if !self.is_written(txg) {
                continue;
            }
            self.flush()?;
            // A device that lost in this flush what it was given has missed this group, which the group itself has to say: nothing else would after a crash.
            if !dirty_time_log::has_unsaved(&self.layers.vdevs) {
                break;
            }
        }
        self.commit(txg)?;
        self.group_done(txg, true)
    }

    fn is_written(&self, txg: Txg) -> bool {
        let space_changed = self.layers.space_maps.as_ref().is_some_and(|maps| maps.has_changes(txg));
        !space_changed && !self.layers.dsl.is_dirty(txg) && !removed::has_obsolete(&self.layers.vdevs) && !self.removals.has_uncopied() && !dirty_time_log::has_unsaved(&self.layers.vdevs) && !self.layers.shared.as_ref().is_some_and(|shared| shared.has_changes())
    }

    fn sync_pass(&self, tx: &SyncTx<'_>, frees: &Mutex<Vec<BlkPtr>>) -> Result<()> {
        let Some(space_maps) = &self.layers.space_maps else { bail!(ReadOnly, "the space maps are not open") };
        if tx.pass == 1 {
            space_maps.make_arrays(tx)?;
            self.configuration.note_metaslab_arrays(space_maps);
        }
        dirty_time_log::sync(&self.layers, &self.configuration, tx)?;
        if tx.pass == 1 {
            self.configuration.sync(self.layers.meta(), tx)?;
        }
        self.layers.dsl.sync_pass(tx)?;
        if tx.pass == 1 {
            discard_sync::sync(self, tx)?;
            self.layers.dsl.free_in_background(FreeBudget::default(), tx)?;
            expansion::sync(self, tx)?;
            removal::condense_sync::sync(self, tx)?;
            removal::sync(self, tx)?;
            self.configuration.sync(self.layers.meta(), tx)?;
        }
        self.return_frees(tx, frees)?;
        if let Some(shared) = &self.layers.shared {
            shared.sync_pass(tx)?;
        }
        self.removals.condensing.note_changed(&removed::sync_obsolete(&self.layers, tx)?);
        removal::sync_progress(self, tx)?;
        space_maps.sync_pass(tx)?;
        if tx.pass == 1 {
            self.return_deferred(tx)?;
            rebuild::sync(self, tx)?;
            scan::sync(self, tx)?;
            scan::sync_errors(self, tx)?;
            self.works.sync(&self.layers, tx)?;
            time_log_sync::sync(self, tx)?;
            error_log_sync::sync(&self.layers, self.scans.is_active(), tx)?;
        }
        Ok(())
    }

    /// Gives back what was freed in this pass, or keeps it for the next group.
    fn return_frees(&self, tx: &SyncTx<'_>, frees: &Mutex<Vec<BlkPtr>>) -> Result<()> {
        let freed = std::mem::take(&mut *frees.lock());
        let now = tx.pass < PASS_DEFERRED_FREE || self.layers.dsl.meta.features.is_active(Feature::LogSpacemap);
        match (&self.deferred, now) {
            (Some(list), false) => list.append(&self.layers.dsl.meta, &freed, tx),
            _ => freed.iter().try_for_each(|bp| self.layers.context.io.free(bp, tx.txg())),
        }
    }

    /// Gives back what the last group kept.
    fn return_deferred(&self, tx: &SyncTx<'_>) -> Result<()> {
        let Some(list) = self.deferred else { return Ok(()) };
        if list.is_empty(&self.layers.dsl.meta)? {
            return Ok(());
        }
        list.drain(&self.layers.dsl.meta, tx, |bp, _freed| {
            self.layers.context.io.free(bp, tx.txg())?;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(())
    }

    /// Makes durable what the passes wrote.
    fn flush(&self) -> Result<()> {
        if self.layers.context.tunables.canary == Some(Canary::NoFlushBeforeUberblock) {
            return Ok(());
        }
        self.layers.context.io.flush()
    }

    /// The commit point: labels, uberblock. All else is durable.
    fn commit(&self, txg: Txg) -> Result<()> {
        let pointer = self.layers.dsl.meta.mos.0.pointer();
        let (canary, host) = (self.layers.context.tunables.canary, &self.layers.context.host);
        self.check_may_write(host.now_ns())?;
        let all = self.configuration.take_labels_due();
        let dirty = if all { self.layers.vdevs.data_tops() } else { Vec::new() };
        let config = self.configuration.get();
        let uberblock = Uberblock {
            version: config.version,
            txg,
            guid_sum: self.layers.vdevs.guid_sum(),
            timestamp: host.wall_clock().0,
            root: *pointer.as_bytes(),
            software_version: SOFTWARE_VERSION,
            multihost: Some(self.heartbeat.of_group(&self.layers.context.tunables)),
            raidz_reflow: self.expansion.reflow(),
            ..Uberblock::empty()
        };
        let tops = self.layers.vdevs.uberblock_tops(txg, all);
        let labels = LabelSync {
            uberblock: &uberblock,
            dirty: &dirty,
            uberblock_tops: &tops,
            multihost: self.heartbeat.is_on(),
            config: &|top, leaf| config.label(&self.layers.vdevs, top, leaf, txg),
        };
        let result = loop {
            if canary == Some(Canary::NoUberblock) && txg.is_multiple_of(2) {
                break Ok(());
            }
            match sync_labels(&labels) {
                // Labels that a flush has lost can be written again, but not what else was written before that flush.
                // The wait may have been long.
                Err(error) if !self.layers.vdevs.has_lost_writes() && self.layers.vdevs.gate().wait_after(&error) => self.check_may_write(host.now_ns())?,
                done => break done,
            }
        };
        if let Err(error) = result {
            self.configuration.set_dirty();
            return Err(error!(Suspended, "the labels cannot be written: {error}"));
        }
        let now = host.now_ns();
        self.check_may_write(now)?;
        *self.uberblock.lock() = uberblock;
        self.heartbeat.note_written(now, 0, true);
        expansion::committed(self);
        Ok(())
    }

    /// Freed space waits two written groups before it is used again, unless there is hardly any other.
    fn may_defer(&self) -> bool {
        let allocator = self.layers.context.io.allocator();
        let normal = allocator.open_space(ClassKind::Normal);
        normal.free() > slop_bytes(normal.space, allocator.embedded_log_bytes())
    }

    /// The group is on disk, or there was nothing to write: what it held in memory goes.
    fn group_done(&self, txg: Txg, is_written: bool) -> Result<()> {
        detach::let_go(self);
        let may_defer = self.may_defer();
        if is_written || !may_defer {
            self.released.fetch_max(txg, Ordering::AcqRel);
        }
        if let Some(maps) = &self.layers.space_maps {
            maps.sync_done(txg, is_written, may_defer)?;
        }
        self.layers.context.cache.end_rewrites();
        self.open_vdevs();
        // Before the promises go: those that ask for room would see neither what was promised nor what was freed and waits.
        self.refresh_space();
        self.layers.dsl.clear_in_flight(txg);
        tracing::debug!(txg, dirty = self.layers.context.dirty.total(), cache = ?self.layers.context.cache.stats(), "a group is on disk");
        self.layers.context.dirty.clear(txg);
        self.layers.dsl.trim_objsets(txg);
        self.layers.dsl.meta.mos.0.trim(txg);
        self.layers.dsl.close_idle_objsets();
        if self.goes_on() {
            self.hasten();
        }
        removal::group_done(self);
        Ok(())
    }
}
