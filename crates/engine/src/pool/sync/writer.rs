//! What writes transaction groups, and waiting for them.
//!
//! # Theory
//! [`GroupWriter`] is what the threads of a pool hold. It does not know the [`Pool`](crate::pool::Pool): so a pool that nobody holds any
//! more ends, threads or not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ondisk::uberblock::Uberblock;
use parking_lot::Mutex;

use super::heartbeat::Heartbeat;
use super::threads::Threads;
use crate::alloc::ClassKind;
use crate::dsl::PoolSpace;
use crate::dsl::bpobj::Bpobj;
use crate::error::{Result, Within};
use crate::pool::checkpoint::kept_by_checkpoint;
use crate::pool::config::configuration::Configuration;
use crate::pool::layers::Layers;
use crate::pool::leaf_work::Works;
use crate::pool::expansion::Expansion;
use crate::pool::removal::Removals;
use crate::pool::rebuild::Rebuilds;
use crate::pool::scan::Scans;
use crate::pool::time_log_sync::GroupTimes;
use crate::txg::Txg;
use crate::vdev::{TopVdev, key};

/// For so many groups freed space waits.
const DEFERRED_GROUPS: u64 = 2;

/// See the module.
pub(in crate::pool) struct GroupWriter {
    pub(super) layers: Layers,
    pub(super) configuration: Arc<Configuration>,
    pub(super) heartbeat: Heartbeat,
    pub(super) threads: Arc<Threads>,
    /// guards: the last one written
    pub(super) uberblock: Mutex<Uberblock>,
    /// Blocks freed late in a group, to be freed in the next.
    pub(super) deferred: Option<Bpobj>,
    /// One at a time; without threads (simulation) the caller of [`GroupWriter::sync_now`] is the sync thread.
    pub(super) sync_lock: Mutex<()>,
    /// Scrubs and resilvers.
    pub(super) scans: Scans,
    /// When groups were written.
    pub(super) times: GroupTimes,
    /// Sequential rebuilds.
    pub(super) rebuilds: Rebuilds,
    /// Work on the free space of devices.
    pub(super) works: Works,
    /// What was freed two groups before this one can be used again, and no older.
    pub(super) released: AtomicU64,
    /// RAID-Z that gets a device more.
    pub(super) expansion: Expansion,
    /// Vdevs that are being removed, and maps of those that were.
    pub(super) removals: Removals,
    /// Vdevs where blocks may go from then on when the group that is being written is on disk.
    opening: Mutex<Vec<Arc<TopVdev>>>,
}

impl GroupWriter {
    /// Of a pool whose last uberblock is this.
    pub(in crate::pool) fn new(layers: Layers, configuration: Arc<Configuration>, uberblock: Uberblock, deferred: Option<Bpobj>) -> Self {
        let released = AtomicU64::new(uberblock.txg + DEFERRED_GROUPS);
        GroupWriter {
            layers,
            configuration,
            heartbeat: Heartbeat::default(),
            threads: Arc::default(),
            uberblock: Mutex::new(uberblock),
            deferred,
            sync_lock: Mutex::new(()),
            scans: Scans::default(),
            times: GroupTimes::default(),
            rebuilds: Rebuilds::default(),
            works: Works::default(),
            released,
            expansion: Expansion::default(),
            removals: Removals::default(),
            opening: Mutex::default(),
        }
    }

    /// What the pool is made of.
    pub(in crate::pool) fn layers(&self) -> &Layers {
        &self.layers
    }

    /// What labels and the MOS are to say of the pool.
    pub(in crate::pool) fn configuration(&self) -> &Arc<Configuration> {
        &self.configuration
    }

    /// Scrubs and resilvers.
    pub(in crate::pool) fn scans(&self) -> &Scans {
        &self.scans
    }

    /// When groups were written.
    pub(in crate::pool) fn times(&self) -> &GroupTimes {
        &self.times
    }

    /// Sequential rebuilds.
    pub(in crate::pool) fn rebuilds(&self) -> &Rebuilds {
        &self.rebuilds
    }

    /// Work on the free space of devices.
    pub(in crate::pool) fn works(&self) -> &Works {
        &self.works
    }

    /// Whether what is free was free in the last two groups, too, that are on disk. What was freed in the last groups before an import does not wait any
    /// more; and where space is short what was freed comes free at once, and with groups that are not written.
    pub(in crate::pool) fn is_settled(&self) -> bool {
        self.uberblock.lock().txg >= self.released.load(Ordering::Acquire)
    }

    /// RAID-Z that gets a device more.
    pub(in crate::pool) fn expansion(&self) -> &Expansion {
        &self.expansion
    }

    /// Vdevs that are being removed, and maps of those that were.
    pub(in crate::pool) fn removals(&self) -> &Removals {
        &self.removals
    }

    /// Blocks may go to a vdev, if its description does not say otherwise, when the group that is being written is on disk; in the sync thread. Not before: a block of
    /// the log is written and pointed to at once, and the pool of the group before, which a crash brings back, could not follow that.
    pub(in crate::pool) fn open_when_written(&self, top: &Arc<TopVdev>) {
        self.opening.lock().push(top.clone());
    }

    /// The group is on disk: blocks may go where it says so.
    pub(super) fn open_vdevs(&self) {
        for top in std::mem::take(&mut *self.opening.lock()) {
            // It may be gone again.
            if let Ok(group) = self.layers.context.io.allocator().group(top.id() as u32) {
                group.set_usable(top.config().number(key::NON_ALLOCATING) == 0 && top.state().is_readable());
            }
        }
    }

    /// The last uberblock on disk is this now, in the sync thread: it differs in what it says of sectors that were moved.
    pub(in crate::pool) fn replace_uberblock(&self, uberblock: Uberblock) {
        *self.uberblock.lock() = uberblock;
    }

    /// Multihost protection is on.
    pub(in crate::pool) fn has_heartbeat(&self) -> bool {
        self.heartbeat.is_on()
    }

    /// The open group is to be written soon, though nobody waits for it.
    pub(in crate::pool) fn hasten(&self) {
        if self.layers.context.tunables.scan_hastens {
            self.layers.context.groups.hasten(self.layers.context.groups.open_txg());
        }
    }

    /// The last uberblock written.
    pub(in crate::pool) fn uberblock(&self) -> Uberblock {
        self.uberblock.lock().clone()
    }

    /// Tells the DSL how much space there is. Of a pool that may only be read OpenZFS does not load what is allocated: what special and
    /// dedup devices hold does not count as space there.
    pub(in crate::pool) fn refresh_space(&self) {
        let allocator = self.layers.context.io.allocator();
        let normal = allocator.data_use(ClassKind::Normal);
        let in_use = |class| allocator.data_use(class).allocated.saturating_sub(allocator.data_use(class).deferred);
        let used = |class| if self.layers.is_read_only() { 0 } else { in_use(class) };
        let elsewhere = [ClassKind::Special, ClassKind::Dedup].map(used);
        let waiting = self.deferred.and_then(|list| list.space(&self.layers.dsl.meta).ok());
        self.layers.dsl.set_pool_space(PoolSpace {
            capacity: allocator.data_bytes(ClassKind::Normal),
            elsewhere: elsewhere.iter().sum::<u64>() + self.layers.shared.as_ref().map_or(0, |shared| shared.saved_bytes()),
            embedded_log: allocator.embedded_log_data(),
            withheld: waiting.map_or(0, |space| space.used) + kept_by_checkpoint(&self.layers).unwrap_or(0),
            deferred: normal.deferred,
            free: allocator.data_free(ClassKind::Normal),
        });
    }

    /// Waits until everything changed before this call is on disk.
    ///
    /// # Errors
    /// What stopped the pool.
    pub(in crate::pool) fn sync_all(&self) -> Result<()> {
        if self.layers.is_read_only() {
            return Ok(());
        }
        let txg = self.layers.context.groups.open_txg();
        self.wait_synced(txg)
    }

    /// As [`GroupWriter::sync_all`]; there is a new group on disk afterwards even if nothing was changed (`zpool sync`).
    ///
    /// # Errors
    /// What stopped the pool.
    pub(in crate::pool) fn write_group(&self) -> Result<()> {
        self.layers.context.groups.write_anyway(self.layers.context.groups.open_txg());
        self.sync_all()
    }

    /// Waits until everything is on disk that somebody has asked for.
    ///
    /// # Errors
    /// What stopped the pool, or what it waits for.
    pub(in crate::pool) fn wait_wanted(&self) -> Result<()> {
        self.wait_synced(self.layers.context.groups.wanted_txg())
    }

    /// Waits until `txg` is on disk; writes it in this thread if the host has no others.
    ///
    /// # Errors
    /// What stopped the pool.
    pub(in crate::pool) fn wait_synced(&self, txg: Txg) -> Result<()> {
        if let Some(failure) = self.layers.context.groups.failure() {
            return Err(failure.within(format!("pool {}", self.configuration.name())));
        }
        if self.threads.is_none() {
            while self.layers.context.groups.synced_txg() < txg {
                self.sync_now()?;
            }
            return Ok(());
        }
        let suspension = || self.layers.vdevs.gate().failure();
        self.layers.context.groups.wait_synced_unless(txg, &suspension).within(|| format!("pool {}", self.configuration.name()))
    }
}
