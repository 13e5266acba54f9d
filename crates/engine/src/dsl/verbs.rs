//! The administrative verbs: each a check and a change, made by the sync thread.

use std::sync::Arc;

use super::dataset::Dataset;
use super::dsl::Dsl;
use super::props::prop_sync::{PropertyChange, check_properties, set_properties_sync};
use super::space::room::SpaceCheck;
use super::tasks::history::command_record;
use super::tree::create_sync::{NewDataset, check_new_name, create_sync};
use super::tree::destroy_sync::{check_destroy, destroy_head_sync};
use super::tree::names::DatasetName;
use super::tree::rename_sync::{check_rename, check_snapshot_rename, rename_dataset_sync, rename_snapshot_sync};
use crate::dmu::SyncTx;
use crate::error::Result;

impl Dsl {
    /// Makes a file system or volume, and waits until it is on disk.
    ///
    /// # Errors
    /// `Exists`, `NotFound` (its parent), `Invalid`, `NameTooLong`, `NoSpace`.
    pub fn create_dataset(self: &Arc<Self>, new: NewDataset) -> Result<()> {
        new.check_properties()?;
        let name = new.name.clone();
        let check = move |dsl: &Arc<Dsl>| check_new_name(&dsl.parts, "create", &name).map(drop);
        self.run_task(16, SpaceCheck::Normal, check, move |dsl, tx| create_sync(&dsl.parts, new, tx))
    }

    /// Destroys a file system or volume that has no snapshots and no children, and waits until that is on disk.
    /// Its blocks are freed in the background.
    ///
    /// # Errors
    /// `NotFound`; `Busy` (it is in use, or its intent log is not replayed); `Exists` (it has children or snapshots).
    pub fn destroy_dataset(self: &Arc<Self>, name: &str) -> Result<()> {
        let name = name.to_owned();
        let checked = name.clone();
        let find = |dsl: &Dsl, name: &str| check_destroy(&dsl.parts, name, dsl.tasks.is_making_changes());
        let check = move |dsl: &Arc<Dsl>| find(dsl, &checked).map(drop);
        self.run_task(1, SpaceCheck::ExtraReserved, check, move |dsl, tx| destroy_head_sync(&dsl.parts, &find(dsl, &name)?, tx))
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
        let check = move |dsl: &Arc<Dsl>| check_properties(&dsl.parts, &checked_name, &checked);
        self.run_task(1 + changes.len() as u64, SpaceCheck::Reserved, check, move |dsl, tx| {
            set_properties_sync(&dsl.parts, &name, &changes, tx)
        })
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
