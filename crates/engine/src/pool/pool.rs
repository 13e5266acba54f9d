//! An open pool.
//!
//! # Theory
//! [`Pool`] puts the parts together and has no state of its own: layers below ([`Layers`](super::layers::Layers)), what labels say
//! ([`Configuration`](super::config::configuration::Configuration)), what writes groups ([`GroupWriter`]). What can be done with a pool
//! is in functions that are given the parts they need (`verbs.rs` lists them). No part knows the pool: when it is dropped, all of it goes.

use std::sync::Arc;

use ondisk::uberblock::Uberblock;
use parking_lot::{Mutex, MutexGuard};

use super::config::PoolConfig;
use super::open::close::abandon;
use super::shared_blocks::{CloneSpace, DedupSpace};
use super::space_maps::SpaceMaps;
use super::sync::writer::GroupWriter;
use crate::alloc::ClassKind;
use crate::dmu::DmuContext;
use crate::dsl::Dsl;
use crate::dsl::feature::Unsupported;
use crate::dsl::meta::key;
use crate::error::Result;
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
    /// Features in use that this program can only read past: the reason why the pool is read-only.
    pub unsupported: Vec<Unsupported>,
    groups: Arc<GroupWriter>,
    /// Vdevs are added and removed one after the other.
    vdev_changes: Mutex<()>,
}

impl Drop for Pool {
    /// No different from a crash, if the pool was not exported before.
    fn drop(&mut self) {
        abandon(&self.groups);
    }
}

impl Pool {
    pub(super) fn new(groups: Arc<GroupWriter>, unsupported: Vec<Unsupported>) -> Arc<Self> {
        let layers = groups.layers().clone();
        Arc::new(Pool {
            vdevs: layers.vdevs,
            context: layers.context,
            dsl: layers.dsl,
            space_maps: layers.space_maps,
            unsupported,
            groups,
            vdev_changes: Mutex::new(()),
        })
    }

    /// What writes its groups.
    pub(super) fn groups(&self) -> &Arc<GroupWriter> {
        &self.groups
    }

    /// No vdev is added or removed by anybody else while this is held.
    pub(super) fn lock_vdev_changes(&self) -> MutexGuard<'_, ()> {
        self.vdev_changes.lock()
    }

    /// The pool's name.
    pub fn name(&self) -> String {
        self.groups.configuration().name()
    }

    /// The pool's guid.
    pub fn guid(&self) -> u64 {
        self.config().guid
    }

    /// The pool's configuration, without the vdevs.
    pub fn config(&self) -> PoolConfig {
        self.groups.configuration().get()
    }

    /// Changes the configuration; it is written with the next group.
    pub fn change_config(&self, change: impl FnOnce(&mut PoolConfig)) {
        self.groups.configuration().change(change);
    }

    /// The last uberblock written.
    pub fn uberblock(&self) -> Uberblock {
        self.groups.uberblock()
    }

    /// Nothing may be changed.
    pub fn is_read_only(&self) -> bool {
        self.context.read_only
    }

    /// How full the pool is.
    pub fn capacity(&self) -> PoolCapacity {
        let allocator = self.context.io.allocator();
        let mut capacity = PoolCapacity { fragmentation: allocator.fragmentation(ClassKind::Normal), ..PoolCapacity::default() };
        for class in [ClassKind::Normal, ClassKind::Special, ClassKind::Dedup] {
            let space = allocator.space_use(class);
            capacity.size += space.space;
            // What waits to be used again is free to a user: of a pool at rest it waits until more is written.
            capacity.allocated += space.allocated.saturating_sub(space.deferred);
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
        let shared = self.groups.layers().shared.as_ref();
        shared.map_or_else(Default::default, |shared| (shared.dedup_space(), shared.clone_space()))
    }

    /// Waits until everything changed before this call is on disk.
    ///
    /// # Errors
    /// What stopped the pool.
    pub fn sync_all(&self) -> Result<()> {
        self.groups.sync_all()
    }

    /// As [`Pool::sync_all`]; there is a new group on disk afterwards even if nothing was changed (`zpool sync`).
    ///
    /// # Errors
    /// What stopped the pool.
    pub fn write_group(&self) -> Result<()> {
        self.groups.write_group()
    }

    /// Waits until everything is on disk that somebody has asked for.
    ///
    /// # Errors
    /// What stopped the pool, or what it waits for.
    pub fn wait_wanted(&self) -> Result<()> {
        self.groups.wait_wanted()
    }

    /// Waits until `txg` is on disk; writes it in this thread if the host has no others.
    ///
    /// # Errors
    /// What stopped the pool.
    pub fn wait_synced(&self, txg: Txg) -> Result<()> {
        self.groups.wait_synced(txg)
    }

    /// Closes the open group and writes it, in this thread: where the host has no threads.
    ///
    /// # Errors
    /// What stopped the pool.
    pub fn sync_now(&self) -> Result<()> {
        self.groups.sync_now()
    }
}
