//! A rollback with changes on top: begun, worked in, and done or given up.
//!
//! # Theory
//! See `rollback_sync.rs`. Whoever has a [`RollbackBegun`] may use the hidden clone as he likes; to end it he lets go of the clone's object set first.

use std::sync::Arc;

use super::rollback_sync::{ROLLBACK_NAME, begin_sync, check_begin, check_end, end_sync};
use crate::bail;
use crate::dsl::dataset::Dataset;
use crate::dsl::dsl::Dsl;
use crate::dsl::received::Receives;
use crate::dsl::space::room::SpaceCheck;
use crate::error::Result;
use crate::txg::Txg;

/// A rollback that is not done yet. Dropped, it leaves the hidden clone to [`Dsl::give_up_rollback`], or to the next import.
pub struct RollbackBegun {
    /// The clone that will take the head's place.
    pub dataset: Arc<Dataset>,
    begun: Arc<Receives>,
}

impl Drop for RollbackBegun {
    fn drop(&mut self) {
        self.begun.end(self.dataset.object);
    }
}

impl Dsl {
    /// The group that is being written, if this is the sync thread.
    pub(in crate::dsl) fn making(&self) -> Option<Txg> {
        self.tasks.is_making_changes().then(|| self.meta.context.groups.synced_txg() + 1)
    }

    /// Begins a rollback to the snapshot `to` (as of [`Dsl::roll_back`]) on top of which something is to be changed before anybody sees it. Others may use the
    /// head meanwhile; what they change goes.
    ///
    /// # Errors
    /// `NotFound`, `Exists` (a snapshot or bookmark is newer), `Busy` (one is begun), `NoSpace`, `ReadOnly`.
    pub fn begin_rollback(self: &Arc<Self>, name: &str, to: Option<&str>) -> Result<RollbackBegun> {
        let context = &self.meta.context;
        if context.read_only {
            bail!(ReadOnly, "the pool is read-only");
        }
        self.receiving().destroy_leftover(name, ROLLBACK_NAME)?;
        context.groups.wait_synced_unless(context.groups.open_txg(), &|| context.io.devices().suspension())?;
        let (name, to) = (name.to_owned(), to.map(str::to_owned));
        let find = move |dsl: &Dsl| check_begin(&dsl.parts, &name, to.as_deref(), dsl.making());
        let check = {
            let find = find.clone();
            move |dsl: &Arc<Dsl>| find(dsl).map(drop)
        };
        let dataset = self.run_task(3, SpaceCheck::Normal, check, move |dsl, tx| begin_sync(&dsl.parts, &find(dsl)?, tx))?;
        Ok(RollbackBegun { dataset, begun: self.parts.receives.clone() })
    }

    /// What was begun takes the head's place, all in one group, and is on disk when this returns. `then`: with a snapshot of just that (its name after the `@`).
    ///
    /// # Errors
    /// `Exists` (a snapshot or bookmark is newer by now, or there is a snapshot `then`), `Busy` (somebody uses the head, or what was begun), `Quota`, `NoSpace`:
    /// nothing has happened.
    pub fn end_rollback(self: &Arc<Self>, begun: &RollbackBegun, then: Option<&str>) -> Result<()> {
        let context = &self.meta.context;
        context.groups.wait_synced_unless(context.groups.open_txg(), &|| context.io.devices().suspension())?;
        let (clone, then) = (begun.dataset.clone(), then.map(|then| (then.to_owned(), context.host.wall_clock().0)));
        let find = {
            let then = then.clone();
            move |dsl: &Dsl| check_end(&dsl.parts, &clone, then.as_ref().map(|(name, _)| name.as_str()), dsl.making())
        };
        let check = {
            let find = find.clone();
            move |dsl: &Arc<Dsl>| find(dsl).map(drop)
        };
        let clone = begun.dataset.clone();
        self.run_task(3, SpaceCheck::Reserved, check, move |dsl, tx| {
            let head = find(dsl)?;
            end_sync(&dsl.parts, &clone, &head, then.as_ref().map(|(name, now)| (name.as_str(), *now)), tx)
        })
    }

    /// Gives up what was begun.
    ///
    /// # Errors
    /// It cannot be destroyed (`Busy`: it is in use); the next import does it.
    pub fn give_up_rollback(self: &Arc<Self>, begun: RollbackBegun) -> Result<()> {
        let groups = &self.meta.context.groups;
        groups.wait_synced(groups.open_txg())?;
        let name = begun.dataset.name()?;
        drop(begun);
        self.destroy_dataset(&name)
    }
}
