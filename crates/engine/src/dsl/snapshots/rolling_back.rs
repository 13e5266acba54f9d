//! A rollback with changes on top: begun, worked in, and done or given up.
//!
//! # Theory
//! See `rollback_sync.rs`. The owner of a [`RollbackBegun`] may use the hidden clone as it likes, and lets go of the clone's object set before it ends it.

use std::sync::Arc;

use super::rollback_sync::{ROLLBACK_NAME, begin_sync, check_begin, check_end, end_sync};
use super::verbs::SnapshotVerbs;
use crate::bail;
use crate::dsl::dataset::Dataset;
use crate::dsl::dsl::Dsl;
use crate::dsl::received::UnderWay;
use crate::dsl::space::room::SpaceCheck;
use crate::error::Result;
use crate::txg::Txg;

/// A rollback that is not done yet. Dropped, it leaves the hidden clone to the next rollback or import.
pub struct RollbackBegun {
    /// The clone that will take the head's place.
    pub dataset: Arc<Dataset>,
    _begun: UnderWay,
}

impl RollbackBegun {
    pub(super) fn new(dataset: Arc<Dataset>, begun: UnderWay) -> Self {
        RollbackBegun { dataset, _begun: begun }
    }
}

/// The group that is being written, if this is the sync thread.
pub(in crate::dsl) fn making(dsl: &Dsl) -> Option<Txg> {
    dsl.tasks.is_making_changes().then(|| dsl.meta.context.groups.synced_txg() + 1)
}

impl SnapshotVerbs<'_> {
    /// Begins a rollback to the snapshot `to` (as of [`Dsl::roll_back`]) on top of which something is to be changed before anybody sees it. Others may use the
    /// head meanwhile; what they change goes.
    ///
    /// # Errors
    /// `NotFound`, `Exists` (a snapshot or bookmark is newer), `Busy` (one is begun), `NoSpace`, `ReadOnly`.
    pub fn begin_rollback(&self, name: &str, to: Option<&str>) -> Result<RollbackBegun> {
        let context = &self.0.meta.context;
        if context.read_only {
            bail!(ReadOnly, "the pool is read-only");
        }
        self.0.receiving().destroy_leftover(name, ROLLBACK_NAME)?;
        context.groups.wait_synced_unless(context.groups.open_txg(), &|| context.io.devices().suspension())?;
        let (name, to) = (name.to_owned(), to.map(str::to_owned));
        let find = move |dsl: &Dsl| check_begin(&dsl.parts, &name, to.as_deref(), making(dsl));
        let check = {
            let find = find.clone();
            move |dsl: &Arc<Dsl>| find(dsl).map(drop)
        };
        self.0.run_task(3, SpaceCheck::Normal, check, move |dsl, tx| begin_sync(&dsl.parts, &find(dsl)?, tx))
    }

    /// What was begun takes the head's place, all in one group, and is on disk when this returns. `then`: with a snapshot of just that (its name after the `@`).
    ///
    /// # Errors
    /// `Exists` (a snapshot or bookmark is newer by now, or there is a snapshot `then`), `Busy` (somebody uses the head, or what was begun), `Quota`, `NoSpace`:
    /// nothing has happened.
    pub fn end_rollback(&self, begun: &RollbackBegun, then: Option<&str>) -> Result<()> {
        let context = &self.0.meta.context;
        context.groups.wait_synced_unless(context.groups.open_txg(), &|| context.io.devices().suspension())?;
        let (clone, then) = (begun.dataset.clone(), then.map(|then| (then.to_owned(), context.host.wall_clock().0)));
        let find = {
            let then = then.clone();
            move |dsl: &Dsl| check_end(&dsl.parts, &clone, then.as_ref().map(|(name, _)| name.as_str()), making(dsl))
        };
        let check = {
            let find = find.clone();
            move |dsl: &Arc<Dsl>| find(dsl).map(drop)
        };
        let clone = begun.dataset.clone();
        self.0.run_task(3, SpaceCheck::Reserved, check, move |dsl, tx| {
            let head = find(dsl)?;
            end_sync(&dsl.parts, &clone, &head, then.as_ref().map(|(name, now)| (name.as_str(), *now)), tx)
        })
    }

    /// Gives up what was begun.
    ///
    /// # Errors
    /// It cannot be destroyed (`Busy`: it is in use); the next import does it.
    pub fn give_up_rollback(&self, begun: RollbackBegun) -> Result<()> {
        let context = &self.0.meta.context;
        context.groups.wait_synced_unless(context.groups.open_txg(), &|| context.io.devices().suspension())?;
        let name = begun.dataset.name()?;
        drop(begun);
        self.0.destroy_dataset(&name)
    }
}
