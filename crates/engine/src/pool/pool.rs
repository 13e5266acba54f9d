//! An open pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ondisk::feature::Feature;
use ondisk::uberblock::Uberblock;
use parking_lot::{Condvar, Mutex};

use crate::pool::config::pool_config::PoolConfig;
use crate::pool::sync::heartbeat::Heartbeat;
use crate::pool::shared_blocks::{CloneSpace, DedupSpace, SharedBlocks};
use crate::pool::space_maps::{FeatureCounts, SpaceMaps};
use crate::alloc::ClassKind;
use crate::dmu::{DmuContext, SyncTx};
use crate::dsl::bpobj::Bpobj;
use crate::dsl::meta::key;
use crate::dsl::{Dsl, PoolSpace};
use crate::error::{Result, Within};
use crate::txg::Txg;
use crate::vdev::VdevTree;

/// How full a pool is, in bytes as `zpool list` counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolCapacity {
    /// All space.
    pub size: u64,
    /// In use.
    pub allocated: u64,
    /// How scattered the free space is, in percent.
    pub fragmentation: u64,
}

/// An open pool.
pub struct Pool {
    /// Devices and their states.
    pub vdevs: Arc<VdevTree>,
    /// Cache, blocks, groups, limits.
    pub context: Arc<DmuContext>,
    /// Datasets.
    pub dsl: Arc<Dsl>,
    /// Which space is in use; `None` in a pool opened only for reading whose space maps we cannot read.
    pub space_maps: Option<Arc<SpaceMaps>>,
    /// Blocks with several pointers; `None` in a pool opened only for reading.
    pub(in crate::pool) shared: Option<Arc<SharedBlocks>>,
    /// Features in use that this program can only read past: the reason why the pool is read-only.
    pub unsupported: Vec<crate::dsl::feature::Unsupported>,
    /// guards: what labels and the MOS say of the pool
    pub(in crate::pool) config: Mutex<PoolConfig>,
    /// guards: the last one written
    pub(in crate::pool) uberblock: Mutex<Uberblock>,
    /// The MOS object with the configuration.
    pub(in crate::pool) config_object: u64,
    /// Blocks freed late in a group, to be freed in the next.
    pub(in crate::pool) deferred: Option<Bpobj>,
    pub(in crate::pool) config_dirty: AtomicBool,
    /// The group that is being written has a new configuration: labels say it, too.
    pub(in crate::pool) labels_due: AtomicBool,
    /// How many of the two threads are running.
    pub(in crate::pool) threads: Mutex<u32>,
    pub(in crate::pool) thread_ended: Condvar,
    /// One at a time; without threads (simulation) the caller of [`Pool::sync_now`] is the sync thread.
    pub(in crate::pool) sync_lock: Mutex<()>,
    /// Groups up to this one are written even if nothing has changed.
    pub(in crate::pool) written_anyway: AtomicU64,
    pub(in crate::pool) heartbeat: Heartbeat,
    /// Vdevs are added and removed one after the other.
    pub(in crate::pool) vdev_changes: Mutex<()>,
}

impl Pool {
    /// The pool's name.
    pub fn name(&self) -> String {
        let config = self.config.lock();
        config.temporary_name.as_ref().unwrap_or(&config.name).clone()
    }

    /// The name that the pool goes by is a temporary one: on disk it is called `stored`.
    pub fn set_stored_name(&self, stored: &str) {
        self.change_config(|config| {
            let name = std::mem::replace(&mut config.name, stored.to_owned());
            config.temporary_name.get_or_insert(name);
        });
    }

    /// The pool's guid.
    pub fn guid(&self) -> u64 {
        self.config.lock().guid
    }

    /// The pool's configuration, without the vdevs.
    pub fn config(&self) -> PoolConfig {
        self.config.lock().clone()
    }

    /// Changes the configuration; it is written with the next group.
    pub fn change_config(&self, change: impl FnOnce(&mut PoolConfig)) {
        change(&mut self.config.lock());
        self.set_config_dirty();
    }

    /// The last uberblock written.
    pub fn uberblock(&self) -> Uberblock {
        self.uberblock.lock().clone()
    }

    /// Nothing may be changed.
    pub fn is_read_only(&self) -> bool {
        self.context.read_only
    }

    pub(in crate::pool) fn set_config_dirty(&self) {
        self.config_dirty.store(true, Ordering::Release);
    }

    /// How full the pool is.
    pub fn capacity(&self) -> PoolCapacity {
        let allocator = self.context.io.allocator();
        let mut capacity = PoolCapacity { fragmentation: allocator.fragmentation(ClassKind::Normal), ..PoolCapacity::default() };
        for class in [ClassKind::Normal, ClassKind::Special, ClassKind::Dedup] {
            let space = allocator.space_use(class);
            capacity.size += space.space;
            capacity.allocated += space.allocated;
        }
        capacity
    }

    /// The newest group that a scrub of OpenZFS's has seen to the end; 0: none.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn last_scrubbed_txg(&self) -> Result<u64> {
        Ok(self.dsl.meta.mos.zap_u64(key::DIRECTORY, key::LAST_SCRUBBED_TXG)?.unwrap_or(0))
    }

    /// What deduplication and cloning do for the pool.
    pub fn shared_space(&self) -> (DedupSpace, CloneSpace) {
        self.shared.as_ref().map_or_else(Default::default, |shared| (shared.dedup_space(), shared.clone_space()))
    }

    /// Tells the DSL how much space there is. Of a pool that may only be read OpenZFS does not load what is allocated: what special and
    /// dedup devices hold does not count as space there.
    pub(in crate::pool) fn refresh_space(&self) {
        let allocator = self.context.io.allocator();
        let normal = allocator.space_use(ClassKind::Normal);
        let used = |class| if self.is_read_only() { 0 } else { allocator.space_use(class).allocated };
        let elsewhere = [ClassKind::Special, ClassKind::Dedup].map(used);
        let waiting = self.deferred.and_then(|list| list.space(&self.dsl.meta).ok());
        self.dsl.set_pool_space(PoolSpace {
            capacity: allocator.data_bytes(ClassKind::Normal),
            elsewhere: elsewhere.iter().sum::<u64>() + self.shared.as_ref().map_or(0, |shared| shared.saved_bytes()),
            embedded_log: allocator.embedded_log_bytes(),
            withheld: waiting.map_or(0, |space| space.used) + self.kept_by_checkpoint().unwrap_or(0),
            deferred: normal.deferred,
        });
    }

    /// Waits until everything changed before this call is on disk.
    ///
    /// # Errors
    /// What stopped the pool.
    pub fn sync_all(&self) -> Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        let txg = self.context.groups.open_txg();
        self.wait_synced(txg)
    }

    /// As [`Pool::sync_all`]; there is a new group on disk afterwards even if nothing was changed (`zpool sync`).
    ///
    /// # Errors
    /// What stopped the pool.
    pub fn write_group(&self) -> Result<()> {
        self.written_anyway.fetch_max(self.context.groups.open_txg(), Ordering::AcqRel);
        self.sync_all()
    }

    /// Waits until everything is on disk that somebody has asked for.
    ///
    /// # Errors
    /// What stopped the pool, or what it waits for.
    pub fn wait_wanted(&self) -> Result<()> {
        self.wait_synced(self.context.groups.wanted_txg())
    }

    /// Waits until `txg` is on disk; writes it in this thread if the host has no others.
    ///
    /// # Errors
    /// What stopped the pool.
    pub fn wait_synced(&self, txg: Txg) -> Result<()> {
        if let Some(failure) = self.context.groups.failure() {
            return Err(failure.within(format!("pool {}", self.name())));
        }
        if *self.threads.lock() == 0 {
            while self.context.groups.synced_txg() < txg {
                self.sync_now()?;
            }
            return Ok(());
        }
        let suspension = || self.vdevs.gate().failure();
        self.context.groups.wait_synced_unless(txg, &suspension).within(|| format!("pool {}", self.name()))
    }
}

/// The features as the space maps see them.
pub(in crate::pool) struct DslFeatures(pub(in crate::pool) Arc<Dsl>);

impl FeatureCounts for DslFeatures {
    fn is_enabled(&self, feature: Feature) -> bool {
        self.0.meta.features.is_enabled(feature)
    }

    fn is_active(&self, feature: Feature) -> bool {
        self.0.meta.features.is_active(feature)
    }

    fn add(&self, tx: &SyncTx<'_>, feature: Feature, change: i64) -> Result<()> {
        let meta = &self.0.meta;
        for _ in 0..change.unsigned_abs() {
            if change > 0 {
                meta.features.increment(&meta.mos, feature, tx)?;
            } else {
                meta.features.decrement(&meta.mos, feature, tx)?;
            }
        }
        Ok(())
    }
}
