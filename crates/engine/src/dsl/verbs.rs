//! The administrative verbs: each a check and a change, made by the sync thread.

use std::sync::Arc;
use std::time::Duration;

use ondisk::delegation::GrantKey;

use super::dataset::Dataset;
use super::dsl::Dsl;
use super::props::delegation::{self, Identity};
use super::props::delegation_sync::{GrantChange, check_grants, grant_sync, ungrant_sync};
use super::received::ReceiveVerbs;
use super::props::prop_sync::{PropertyChange, check_properties, note_received_sync, set_properties_sync};
use super::snapshots::verbs::SnapshotVerbs;
use super::snapshots::rolling_back::making;
use super::snapshots::rollback_sync::{ROLLBACK_NAME, check_past_newer, check_rollback, rollback_sync};
use super::space::room::SpaceCheck;
use super::tasks::history::command_record;
use super::tree::clone_sync::{NewClone, check_clone, clone_sync};
use super::tree::create_sync::{NewDataset, check_create, create_sync};
use super::tree::destroy_sync::{check_destroy, destroy_head_sync};
use super::tree::dir::Dir;
use super::tree::names::DatasetName;
use super::tree::promote_sync::{check_promote, promote_sync};
use super::tree::rename_sync::{check_rename, check_snapshot_rename, rename_dataset_sync, rename_snapshot_sync};
use crate::dmu::SyncTx;
use crate::error::{ErrorKind, Result};

/// How often a dataset that somebody looks at, as a listing does, is tried to be destroyed.
const BUSY_TRIES: u32 = 20;
/// Before the second try; each further pause is as much longer, some two seconds in all.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

impl Dsl {
    /// Makes a file system or volume, and waits until it is on disk.
    ///
    /// # Errors
    /// `Exists`, `NotFound` (its parent), `Invalid`, `NameTooLong`, `NoSpace`.
    pub fn create_dataset(self: &Arc<Self>, new: NewDataset) -> Result<()> {
        new.check_properties(&self.meta)?;
        let name = new.name.clone();
        let check = move |dsl: &Arc<Dsl>| check_create(&dsl.parts, &name).map(drop);
        self.run_task(16, SpaceCheck::Normal, check, move |dsl, tx| create_sync(&dsl.parts, new, tx))
    }

    /// Makes a file system or volume that begins as a snapshot, and waits until it is on disk.
    ///
    /// # Errors
    /// `Exists`, `NotFound` (the snapshot; its parent), `Invalid`, `NameTooLong`, `NoSpace`.
    #[doc(alias = "dmu_objset_clone")]
    pub fn clone_dataset(self: &Arc<Self>, new: NewClone) -> Result<()> {
        new.check_properties(&self.meta)?;
        let checked = new.clone();
        let check = move |dsl: &Arc<Dsl>| check_clone(&dsl.parts, &checked).map(drop);
        self.run_task(6, SpaceCheck::Normal, check, move |dsl, tx| clone_sync(&dsl.parts, &new, tx))
    }

    /// Promotes a clone: it gets the snapshots that it shares with its origin, whose file system becomes a clone of the newest of them.
    ///
    /// # Errors
    /// `Invalid` (it is no clone), `Exists` (it has a snapshot of the name of one of those), `Busy` (one of those is in use), `NameTooLong`, `NoSpace`.
    #[doc(alias = "dsl_dataset_promote")]
    pub fn promote_dataset(self: &Arc<Self>, name: &str) -> Result<()> {
        let snapshots = self.open_dataset(name)?.snapshots()?.len() as u64;
        let (checked, name) = (name.to_owned(), name.to_owned());
        let check = move |dsl: &Arc<Dsl>| check_promote(&dsl.parts, &checked).map(drop);
        self.run_task(2 + snapshots, SpaceCheck::Reserved, check, move |dsl, tx| promote_sync(&dsl.parts, &name, tx))
    }

    /// Rolls a file system or volume back to the snapshot `to` (its name after the `@`), which must be the newest one; without `to`, to the newest one,
    /// whichever that is. All that was written since is freed in the background. Nobody may use the object set: a user that has it open (a mounted file
    /// system) lets go of it before, and opens it again. A receive that is forced begins with this, too.
    ///
    /// # Errors
    /// `NotFound`, `Exists` (a snapshot or bookmark is newer), `Busy` (it is in use, or was changed just now), `Quota`, `NoSpace`.
    #[doc(alias = "dsl_dataset_rollback")]
    pub fn roll_back(self: &Arc<Self>, name: &str, to: Option<&str>) -> Result<()> {
        let context = &self.meta.context;
        if context.read_only {
            crate::bail!(ReadOnly, "the pool is read-only");
        }
        self.receiving().destroy_leftover(name, ROLLBACK_NAME)?;
        context.groups.wait_synced_unless(context.groups.open_txg(), &|| context.io.devices().suspension())?;
        let (name, to) = (name.to_owned(), to.map(str::to_owned));
        let find = move |dsl: &Dsl| check_rollback(&dsl.parts, &name, to.as_deref(), making(dsl));
        let check = {
            let find = find.clone();
            move |dsl: &Arc<Dsl>| find(dsl).map(drop)
        };
        self.run_task(1, SpaceCheck::Reserved, check, move |dsl, tx| rollback_sync(&dsl.parts, &find(dsl)?, tx))
    }

    /// Could [`Dsl::roll_back`] go back to the snapshot `to`, if no snapshot or bookmark were newer? To be asked before those are destroyed. `is_open`: the
    /// caller has the head open as a file system, and lets go of it before.
    ///
    /// # Errors
    /// Those of [`Dsl::roll_back`], but for `Exists` and `NoSpace`.
    pub fn check_rollback_past_newer(self: &Arc<Self>, name: &str, to: &str, is_open: bool) -> Result<()> {
        if self.meta.context.read_only {
            crate::bail!(ReadOnly, "the pool is read-only");
        }
        self.receiving().destroy_leftover(name, ROLLBACK_NAME)?;
        let _names = self.lock_names();
        check_past_newer(&self.parts, name, to, is_open)
    }

    /// What can be done with snapshots, holds and bookmarks.
    pub fn snapshot_verbs(self: &Arc<Self>) -> SnapshotVerbs<'_> {
        SnapshotVerbs(self)
    }

    /// What can be done with streams that are received.
    pub fn receiving(self: &Arc<Self>) -> ReceiveVerbs<'_> {
        ReceiveVerbs(self)
    }

    /// Destroys a file system or volume that has no snapshots and no children, and waits until that is on disk.
    /// Its blocks are freed in the background.
    ///
    /// # Errors
    /// `NotFound`; `Busy` (it is in use, or its intent log is not replayed); `Exists` (it has children or snapshots).
    pub fn destroy_dataset(self: &Arc<Self>, name: &str) -> Result<()> {
        self.receiving().destroy_leftovers(name)?;
        self.while_busy(|| self.try_destroy_dataset(name))
    }

    /// Destroys what a receive has left, as [`Dsl::destroy_dataset`] does: this very dataset. If it is gone, or became whole, or another has its name by now,
    /// there is nothing to do.
    ///
    /// # Errors
    /// As for [`Dsl::destroy_dataset`], but for `NotFound`.
    pub(in crate::dsl) fn destroy_unfinished(self: &Arc<Self>, left: &Arc<Dataset>) -> Result<()> {
        self.while_busy(|| self.try_destroy_unfinished(left))
    }

    fn while_busy(&self, destroy: impl Fn() -> Result<()>) -> Result<()> {
        let mut tries = BUSY_TRIES;
        loop {
            match destroy() {
                Err(error) if error.kind() == ErrorKind::Busy && tries > 1 => {
                    tries -= 1;
                    self.meta.context.host.sleep(BUSY_PAUSE * (BUSY_TRIES - tries));
                }
                done => return done,
            }
        }
    }

    fn try_destroy_dataset(self: &Arc<Self>, name: &str) -> Result<()> {
        let name = name.to_owned();
        let checked = name.clone();
        let find = |dsl: &Dsl, name: &str| check_destroy(&dsl.parts, name, dsl.tasks.is_making_changes());
        let check = move |dsl: &Arc<Dsl>| find(dsl, &checked).map(drop);
        self.run_task(1, SpaceCheck::ExtraReserved, check, move |dsl, tx| destroy_head_sync(&dsl.parts, &find(dsl, &name)?, tx))
    }

    fn try_destroy_unfinished(self: &Arc<Self>, left: &Arc<Dataset>) -> Result<()> {
        let (left, checked) = (left.clone(), left.clone());
        let find = |dsl: &Dsl, left: &Arc<Dataset>| {
            let is_left = dsl.parts.tree.is_current(left) && left.is_inconsistent();
            is_left.then(|| check_destroy(&dsl.parts, &left.name()?, dsl.tasks.is_making_changes())).transpose()
        };
        let check = move |dsl: &Arc<Dsl>| find(dsl, &checked).map(drop);
        self.run_task(1, SpaceCheck::ExtraReserved, check, move |dsl, tx| match find(dsl, &left)? {
            Some(doomed) => destroy_head_sync(&dsl.parts, &doomed, tx),
            None => Ok(()),
        })
    }

    /// Renames a file system or volume with all below it, and waits until that is on disk. Nothing of it may be mounted under
    /// a name that is remembered elsewhere; object sets that are open learn of it.
    ///
    /// # Errors
    /// `NotFound` (it, or the new parent), `Exists`, `Invalid` (another pool, below itself), `NameTooLong`, `NoSpace`.
    #[doc(alias = "dsl_dir_rename")]
    pub fn rename_dataset(self: &Arc<Self>, from: &str, to: &str) -> Result<()> {
        let (from, to) = (from.to_owned(), to.to_owned());
        let (old, new) = (from.clone(), to.clone());
        let check = move |dsl: &Arc<Dsl>| check_rename(&dsl.parts, &old, &new).map(drop);
        self.run_task(3, SpaceCheck::Reserved, check, move |dsl, tx| rename_dataset_sync(&dsl.parts, &from, &to, tx))
    }

    /// Renames a snapshot; with `recursive` those of the same name of everything below, where there are any.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `NameTooLong`.
    pub fn rename_snapshot(self: &Arc<Self>, head: &str, from: &str, to: &str, recursive: bool) -> Result<()> {
        DatasetName::parse(&format!("{head}@{to}"))?;
        let names = [head, from, to].map(str::to_owned);
        let checked = names.clone();
        let check = move |dsl: &Arc<Dsl>| {
            let [head, from, to] = &checked;
            check_snapshot_rename(&dsl.parts, head, from, to, recursive).map(drop)
        };
        self.run_task(1, SpaceCheck::Reserved, check, move |dsl, tx| {
            let [head, from, to] = &names;
            rename_snapshot_sync(&dsl.parts, head, from, to, recursive, tx)
        })
    }

    /// Changes properties of a dataset, and waits until that is on disk.
    ///
    /// # Errors
    /// `NotFound`, `Invalid`, `NoSpace` (a quota below what is used, a reservation beyond what there is).
    pub fn set_properties(self: &Arc<Self>, name: &str, changes: Vec<(String, PropertyChange)>) -> Result<()> {
        let (name, changes) = (name.to_owned(), Arc::new(changes));
        let (checked_name, checked) = (name.clone(), changes.clone());
        let check = move |dsl: &Arc<Dsl>| check_properties(&dsl.parts, &checked_name, &checked, false);
        // Lowering these is what makes room where hardly any is left.
        let is_of_space = changes.iter().all(|(property, _)| matches!(property.as_str(), "quota" | "refquota" | "reservation" | "refreservation"));
        let space = if is_of_space { SpaceCheck::ExtraReserved } else { SpaceCheck::Reserved };
        self.run_refusable_task(1 + changes.len() as u64, space, check, move |dsl, tx| match check_properties(&dsl.parts, &name, &changes, true) {
            Ok(()) => set_properties_sync(&dsl.parts, &name, &changes, tx).map(Ok),
            Err(refused) => Ok(Err(refused)),
        })
    }

    /// Says that properties came with a stream, if only none, and waits until that is on disk: the next stream's do not take away what is set by then.
    ///
    /// # Errors
    /// `NotFound`
    pub fn note_received(self: &Arc<Self>, name: &str) -> Result<()> {
        let (name, checked) = (name.to_owned(), name.to_owned());
        let check = move |dsl: &Arc<Dsl>| dsl.parts.tree.dataset_by_name(&checked).map(drop);
        self.run_task(1, SpaceCheck::Reserved, check, move |dsl, tx| note_received_sync(&dsl.parts, &name, tx))
    }

    /// Grants permissions on a file system or volume (`taken`: takes them away), and waits until that is on disk.
    ///
    /// # Errors
    /// `NotFound`, `NotSupported` (the pool is too old), `NameTooLong`.
    pub fn change_grants(self: &Arc<Self>, name: &str, changes: Vec<GrantChange>, taken: bool) -> Result<()> {
        let (name, changes) = (name.to_owned(), Arc::new(changes));
        let (checked_name, checked) = (name.clone(), changes.clone());
        let check = move |dsl: &Arc<Dsl>| check_grants(&dsl.parts, &checked_name, &checked, taken);
        self.run_task(1 + changes.len() as u64, SpaceCheck::Reserved, check, move |dsl, tx| match taken {
            false => grant_sync(&dsl.parts, &name, &changes, tx),
            true => ungrant_sync(&dsl.parts, &name, &changes, tx),
        })
    }

    /// Whether `who` is granted `permission` on a file system, volume or snapshot.
    ///
    /// # Errors
    /// `NotFound`; or it cannot be read.
    #[doc(alias = "dsl_deleg_access")]
    pub fn is_granted(&self, who: &Identity, name: &str, permission: &str) -> Result<bool> {
        let _names = self.lock_names();
        delegation::is_granted(&self.parts, who, name, permission)
    }

    /// Whether `who` will be granted `permission` on what they make below `parent`.
    ///
    /// # Errors
    /// As for [`Dsl::is_granted`].
    pub fn is_granted_below(&self, who: &Identity, parent: &str, permission: &str) -> Result<bool> {
        let _names = self.lock_names();
        delegation::is_granted_below(&self.parts, who, parent, permission)
    }

    /// What one directory grants, in no order. Keys that make no sense are passed over.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn grants_of(&self, dir: &Dir) -> Result<Vec<(GrantKey, Vec<String>)>> {
        delegation::grants_of(&self.meta.mos, dir)
    }

    /// Records a command line, while syncing.
    ///
    /// # Errors
    /// The history cannot be written.
    pub fn record_command_sync(&self, command: &str, user: u64, tx: &SyncTx<'_>) -> Result<()> {
        let record = command_record(command, user, &*self.meta.context.host);
        self.history.append(&self.meta, self.parts.room.usable_space(SpaceCheck::None), &record, tx)
    }

    /// Records a command line in some txg soon.
    ///
    /// # Errors
    /// The pool is read-only or has stopped.
    pub fn record_command(&self, command: String, user: u64) -> Result<()> {
        self.queue_task(move |dsl, tx| dsl.record_command_sync(&command, user, tx)).map(drop)
    }

    /// Records what happened to the pool.
    ///
    /// # Errors
    /// The history cannot be written.
    pub fn record_event(&self, event: &str, details: &str, tx: &SyncTx<'_>) -> Result<()> {
        self.parts.record_event(event, details, tx)
    }

    /// Records what happened to a dataset.
    ///
    /// # Errors
    /// The history cannot be written.
    pub fn record_dataset_event(&self, dataset: &Dataset, event: &str, details: &str, tx: &SyncTx<'_>) -> Result<()> {
        self.parts.record_dataset_event(dataset, event, details, tx)
    }
}
