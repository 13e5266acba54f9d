//! `zfs clone`, `zfs promote`, `zfs rollback`

use engine::dsl::Dataset;
use engine::dsl::prop_table::{DatasetTypes, is_space_property};
use engine::error::ErrorKind;

use crate::control::pools::zfs::datasets::is_volume;
use crate::control::pools::zfs::set::reserve_all;
use crate::control::pools::{Failure, FailureKind, Pools, checks, names};
use crate::control::{DatasetClone, DatasetPromote, DatasetRollback, DatasetSet, Setting};

impl Pools {
    pub(in crate::control::pools) fn clone_snapshot(&mut self, clone: &DatasetClone) -> Result<(), Failure> {
        names::check_dataset(&clone.name)?;
        let pool = self.pool_of(&clone.snapshot)?.pool.clone();
        if clone.name.split('/').next() != Some(&pool.name()) {
            return Err(Failure::with(FailureKind::InvalidName, "source and target pools differ"));
        }
        let failed = |error: crate::Error| Failure::about_dataset(&error);
        let origin = pool.engine().dsl.open_dataset(&clone.snapshot).map_err(failed)?;
        if !origin.is_snapshot {
            return Err(Failure::new(FailureKind::BadType));
        }
        let volume = is_volume(origin.objset_type().map_err(failed)?);
        drop(origin);
        let features = &pool.engine().dsl.meta.features;
        let (quotas, mut settings): (Vec<Setting>, Vec<Setting>) = clone.properties.iter().cloned().partition(|setting| is_space_property(&setting.name));
        if volume {
            reserve_all(&pool, &clone.snapshot, &mut settings)?;
        }
        let types = if volume { DatasetTypes::VOLUME } else { DatasetTypes::FILESYSTEM };
        let changes = checks::changes(&settings, types, false, &|feature| features.is_enabled(feature))?;
        if clone.parents {
            self.create_ancestors(&clone.name)?;
        }
        self.check_reservations(&clone.name, &changes)?;
        pool.clone_dataset(&clone.snapshot, &clone.name, changes).map_err(|error| clone_failure(&error))?;
        // Quotas of users, groups and projects are the file system's own, which there must be first.
        if !quotas.is_empty()
            && let Err(failure) = self.set_properties(&DatasetSet { name: clone.name.clone(), settings: quotas, no_remount: true, received: false })
        {
            pool.destroy_file_system(&clone.name).map_err(|error| Failure::about_dataset(&error))?;
            return Err(failure);
        }
        Ok(())
    }

    pub(in crate::control::pools) fn promote(&mut self, promote: &DatasetPromote) -> Result<(), Failure> {
        if promote.name.contains('%') {
            // What a stream goes into is nobody's file system yet.
            return Err(Failure::with(FailureKind::InvalidName, "Invalid argument"));
        }
        let pool = self.pool_of(&promote.name)?.pool.clone();
        let failed = |error: crate::Error| Failure::about_dataset(&error);
        let clone = pool.engine().dsl.open_dataset(&promote.name).map_err(failed)?;
        let Some(origin) = clone.origin().map_err(failed)? else { return Err(Failure::with(FailureKind::BadType, "not a cloned filesystem")) };
        let old_head = origin.dir.full_name();
        let origin_name = origin.name().map_err(failed)?;
        let snapshots = pool.engine().dsl.open_dataset(&old_head).and_then(|head| head.snapshots()).map_err(failed)?;
        let conflicts = conflicts(&clone, &snapshots, origin.object).map_err(failed)?;
        drop((clone, origin));
        let snapshots: Vec<String> = snapshots.into_iter().map(|(name, _)| name).collect();
        // Those that are open because somebody entered them through `.zfs` move, too.
        let mut close = || snapshots.iter().for_each(|name| self.mounter.close_snapshot(&format!("{old_head}@{name}")));
        close();
        let promoted = pool.engine().dsl.promote_dataset(&promote.name);
        close();
        self.mounter.snapshots_changed(&[old_head.clone(), promote.name.clone()])();
        promoted.map_err(|error| match error.kind() {
            ErrorKind::Exists => {
                let words = format!("{} from parent '{origin_name}'{}", last_sentence(error.message()), others(&conflicts));
                Failure::with(FailureKind::DatasetExists, words)
            }
            ErrorKind::Invalid | ErrorKind::Denied => Failure::with(FailureKind::BadType, last_sentence(error.message())),
            _ => Failure::about_dataset(&error),
        })?;
        self.mounter.refresh(&pool);
        Ok(())
    }

    pub(in crate::control::pools) fn roll_back(&mut self, rollback: &DatasetRollback) -> Result<(), Failure> {
        let pool = self.pool_of(&rollback.snapshot)?.pool.clone();
        let Some((head, to)) = rollback.snapshot.split_once('@') else { return Err(Failure::new(FailureKind::BadType)) };
        let rolled_back = |error: crate::Error| match error.kind() {
            ErrorKind::Exists => Failure::with(FailureKind::DatasetExists, format!("there is a snapshot or bookmark more recent than '{}'", rollback.snapshot)),
            ErrorKind::NotFound => {
                Failure::with(FailureKind::NoSuchDataset, format!("'{}' is not found among snapshots of '{head}'", rollback.snapshot))
            }
            _ => Failure::about_dataset(&error),
        };
        if rollback.dry_run {
            self.mounter.check_replace(head)?;
            let is_open = self.mounter.has(head);
            if !is_open {
                pool.refuse_if_used(head).map_err(rolled_back)?;
            }
            return pool.engine().dsl.check_rollback_past_newer(head, to, is_open).map_err(rolled_back);
        }
        let mut change = || pool.roll_back(head, Some(to)).map_err(rolled_back);
        self.replace_contents(&pool, head, &mut change)
    }
}

/// Names of snapshots that would move to a clone, and are there already; the newest first.
fn conflicts(clone: &Dataset, snapshots: &[(String, u64)], origin: u64) -> Result<Vec<String>, crate::Error> {
    let moving = snapshots.iter().position(|(_, object)| *object == origin).map_or(&[][..], |at| &snapshots[..=at]);
    let mut found = Vec::new();
    for (name, _) in moving.iter().rev() {
        if clone.snapshot_object(name)?.is_some() {
            found.push(name.clone());
        }
    }
    Ok(found)
}

/// A line for those that are in conflict beside the first.
fn others(conflicts: &[String]) -> String {
    let others: Vec<String> = conflicts.iter().skip(1).map(|name| format!("'{name}'")).collect();
    if others.is_empty() { String::new() } else { format!("\nother conflicting snapshots: {}", others.join(", ")) }
}

fn clone_failure(error: &crate::Error) -> Failure {
    match error.kind() {
        ErrorKind::NotFound => Failure::with(FailureKind::NoSuchDataset, "parent does not exist"),
        ErrorKind::Invalid => Failure::with(FailureKind::InvalidName, error.message()),
        ErrorKind::TooBig => Failure::with(FailureKind::BadProperty, error.message()),
        _ => Failure::about_dataset(error),
    }
}

/// What follows the names in front.
fn last_sentence(message: &str) -> &str {
    message.rsplit_once(": ").map_or(message, |(_, last)| last)
}
