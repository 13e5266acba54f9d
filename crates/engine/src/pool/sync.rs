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
//! there, the pool is what it was; afterwards it is the new one.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ondisk::blkptr::BlkPtr;
use ondisk::feature::Feature;
use ondisk::uberblock::Uberblock;
use parking_lot::Mutex;

use super::Pool;
use crate::alloc::{ClassKind, slop_bytes};
use crate::canary::Canary;
use crate::dmu::SyncTx;
use crate::dsl::FreeBudget;
use crate::error::{Result, Within};
use crate::txg::{Txg, bug};
use crate::vdev::label::{LabelSync, sync_labels};
use crate::{bail, error};

/// Pass from which frees wait for the next group.
const PASS_DEFERRED_FREE: u32 = 2;
/// More passes than this means that a group does not converge, which is a bug: better to stop.
const PASSES_MAX: u32 = 200;
/// The software version in uberblocks.
const SOFTWARE_VERSION: u64 = 5000;

impl Pool {
    /// Starts the threads, if the host has threads.
    pub(super) fn start_threads(self: &Arc<Self>) {
        let mut threads = self.threads.lock();
        let bodies: [(&str, fn(&Pool)); 3] =
            [("txg_quiesce", Pool::quiesce_thread), ("txg_sync", Pool::sync_thread), ("heartbeat", Pool::heartbeat_thread)];
        for (name, body) in bodies {
            let pool = self.clone();
            let run = move || {
                // A bug must not leave everybody waiting for a thread that is gone.
                if catch_unwind(AssertUnwindSafe(|| body(&pool))).is_err() {
                    let failure = bug(format_args!("ended the thread {name}"));
                    tracing::error!("pool {}: suspended: {failure}", pool.name());
                    pool.context.groups.fail(failure);
                }
                *pool.threads.lock() -= 1;
                pool.thread_ended.notify_all();
            };
            if self.context.host.spawn(name, Box::new(run)) {
                *threads += 1;
            }
        }
    }

    fn quiesce_thread(&self) {
        let groups = &self.context.groups;
        let timeout = Duration::from_nanos(self.context.tunables.txg_timeout_ns);
        while groups.wait_for_work(timeout) {
            if groups.failure().is_some() {
                return;
            }
            groups.quiesce();
        }
    }

    fn sync_thread(&self) {
        while let Some(txg) = self.context.groups.begin_sync() {
            let result = self.sync_group(txg);
            if let Err(error) = &result {
                tracing::error!("pool {}: suspended: txg {txg}: {error}", self.name());
            }
            let failed = result.is_err();
            self.context.groups.end_sync(txg, result);
            if failed {
                return;
            }
        }
    }

    /// Closes the open group and writes it, in this thread: where the host has no threads.
    ///
    /// # Errors
    /// What stopped the pool.
    pub fn sync_now(&self) -> Result<()> {
        let _one_at_a_time = self.sync_lock.lock();
        let groups = &self.context.groups;
        if let Some(failure) = groups.failure() {
            return Err(failure);
        }
        let txg = groups.quiesce();
        let Some(begun) = groups.begin_sync() else { bail!(Suspended, "pool {} is being closed", self.name()) };
        assert_eq!(begun, txg, "somebody else syncs");
        let result = self.sync_group(txg);
        groups.end_sync(txg, result.clone());
        result
    }

    /// Whether writing `txg` would change anything.
    fn has_work(&self, txg: Txg) -> Result<bool> {
        Ok(self.written_anyway.load(Ordering::Acquire) >= txg
            || self.dsl.is_dirty(txg)
            || self.dsl.has_tasks(txg)
            || self.is_config_dirty()
            || self.space_maps.as_ref().is_some_and(|maps| maps.has_changes(txg))
            || self.has_missed()
            || self.dsl.has_background_frees()?)
    }

    /// Writes one group.
    fn sync_group(&self, txg: Txg) -> Result<()> {
        // Also if there is nothing to write: the log may write for the next ones.
        self.vdevs.set_writing_txg(txg);
        if !self.has_work(txg)? {
            return self.group_done(txg);
        }
        let frees = Mutex::new(Vec::new());
        let mut pass = 0;
        loop {
            pass += 1;
            if pass > PASSES_MAX {
                bail!(Corrupt, "txg {txg} does not converge");
            }
            let tx = SyncTx::new(&self.context, txg, pass, &frees);
            self.sync_pass(&tx, &frees).within(|| format!("txg {txg}, pass {pass}"))?;
            if self.is_written(txg) {
                break;
            }
        }
        self.commit(txg)?;
        self.group_done(txg)
    }

    fn is_written(&self, txg: Txg) -> bool {
        let space_changed = self.space_maps.as_ref().is_some_and(|maps| maps.has_changes(txg));
        !space_changed && !self.dsl.is_dirty(txg) && !self.has_obsolete() && !self.has_missed() && !self.shared.as_ref().is_some_and(|shared| shared.has_changes())
    }

    fn sync_pass(&self, tx: &SyncTx<'_>, frees: &Mutex<Vec<BlkPtr>>) -> Result<()> {
        let Some(space_maps) = &self.space_maps else { bail!(ReadOnly, "the space maps are not open") };
        if tx.pass == 1 {
            space_maps.make_arrays(tx)?;
            self.note_metaslab_arrays();
        }
        self.sync_missed(tx)?;
        if tx.pass == 1 {
            self.sync_config(tx)?;
        }
        self.dsl.sync_pass(tx)?;
        if tx.pass == 1 {
            self.dsl.free_in_background(FreeBudget::default(), tx)?;
            self.sync_config(tx)?;
        }
        self.return_frees(tx, frees)?;
        if let Some(shared) = &self.shared {
            shared.sync_pass(tx)?;
        }
        self.sync_obsolete(tx)?;
        space_maps.sync_pass(tx)?;
        if tx.pass == 1 {
            self.return_deferred(tx)?;
        }
        Ok(())
    }

    /// Gives back what was freed in this pass, or keeps it for the next group.
    fn return_frees(&self, tx: &SyncTx<'_>, frees: &Mutex<Vec<BlkPtr>>) -> Result<()> {
        let freed = std::mem::take(&mut *frees.lock());
        let now = tx.pass < PASS_DEFERRED_FREE || self.dsl.meta.features.is_active(Feature::LogSpacemap);
        match (&self.deferred, now) {
            (Some(list), false) => list.append(&self.dsl.meta, &freed, tx),
            _ => freed.iter().try_for_each(|bp| self.context.io.free(bp, tx.txg())),
        }
    }

    /// Gives back what the last group kept.
    fn return_deferred(&self, tx: &SyncTx<'_>) -> Result<()> {
        let Some(list) = self.deferred else { return Ok(()) };
        if list.is_empty(&self.dsl.meta)? {
            return Ok(());
        }
        list.drain(&self.dsl.meta, tx, |bp, _freed| {
            self.context.io.free(bp, tx.txg())?;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(())
    }

    /// The commit point: flush, labels, uberblock.
    fn commit(&self, txg: Txg) -> Result<()> {
        let pointer = self.dsl.meta.mos.0.pointer();
        let canary = self.context.tunables.canary;
        if canary != Some(Canary::NoFlushBeforeUberblock) {
            self.context.io.flush()?;
        }
        if let Some(failure) = self.context.groups.failure() {
            return Err(failure);
        }
        let all = self.labels_due.swap(false, Ordering::AcqRel);
        let dirty = if all { self.vdevs.data_tops() } else { Vec::new() };
        let config = self.config();
        let uberblock = Uberblock {
            version: config.version,
            txg,
            guid_sum: self.vdevs.guid_sum(),
            timestamp: self.context.host.wall_clock().0,
            root: *pointer.as_bytes(),
            software_version: SOFTWARE_VERSION,
            multihost: Some(self.heartbeat.of_group(&self.context.tunables)),
            ..Uberblock::empty()
        };
        let tops = self.vdevs.uberblock_tops(txg, all);
        let labels = LabelSync {
            uberblock: &uberblock,
            dirty: &dirty,
            uberblock_tops: &tops,
            multihost: self.heartbeat.is_on(),
            config: &|top, leaf| config.label(&self.vdevs, top, leaf, txg),
        };
        let result = loop {
            if canary == Some(Canary::NoUberblock) && txg.is_multiple_of(2) {
                break Ok(());
            }
            match sync_labels(&labels) {
                // Labels that a flush has lost can be written again, but not what else was written before that flush.
                Err(error) if !self.vdevs.has_lost_writes() && self.vdevs.gate().wait_after(&error) => {}
                done => break done,
            }
        };
        if let Err(error) = result {
            self.set_config_dirty();
            return Err(error!(Suspended, "the labels cannot be written: {error}"));
        }
        *self.uberblock.lock() = uberblock;
        self.heartbeat.note_written(self.context.host.now_ns(), 0, true);
        Ok(())
    }

    /// Freed space waits two groups before it is used again, unless there is hardly any other.
    fn may_defer(&self) -> bool {
        let allocator = self.context.io.allocator();
        let normal = allocator.open_space(ClassKind::Normal);
        normal.free() > slop_bytes(normal.space, allocator.embedded_log_bytes())
    }

    /// The group is on disk: what it held in memory goes.
    fn group_done(&self, txg: Txg) -> Result<()> {
        if let Some(maps) = &self.space_maps {
            maps.sync_done(txg, self.may_defer())?;
        }
        self.dsl.clear_in_flight(txg);
        self.context.cache.end_rewrites();
        tracing::debug!(txg, dirty = self.context.dirty.total(), cache = ?self.context.cache.stats(), "a group is on disk");
        self.context.dirty.clear(txg);
        self.refresh_space();
        for (_, objset) in self.dsl.open_objsets() {
            objset.trim();
            if let Some(log) = objset.log() {
                log.synced(txg);
            }
        }
        self.dsl.meta.mos.0.trim();
        self.dsl.close_idle_objsets();
        Ok(())
    }
}
