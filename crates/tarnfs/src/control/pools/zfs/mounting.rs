//! Which file systems are mounted, and where.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use engine::dsl::{PropertyValue, PropertyValues};

use super::list::source_of;
use crate::PropertyChange;
use crate::control::pools::{Failure, FailureKind, MountPlan, Pools, not_yet};
use crate::control::{DatasetMount, DatasetUnmount, Mount, Source, mountpoint};

/// Numbers of the words of `canmount`.
const CAN_MOUNT_OFF: u64 = 0;
const CAN_MOUNT_ON: u64 = 1;

/// Removes the directory of a mount that is gone; one with something in it stays.
#[allow(clippy::disallowed_methods)] // the directory is the machine's, not a pool's
pub(in crate::control::pools) fn remove_directory(directory: &Path) {
    if let Err(error) = std::fs::remove_dir(directory) {
        tracing::debug!(directory = %directory.display(), %error, "not removed");
    }
}

impl Pools {
    /// Where a file system is to be mounted, and why there.
    pub(in crate::control::pools) fn mountpoint(&self, name: &str) -> Result<(String, Source), Failure> {
        let imported = self.pool_of(name)?;
        let failed = |error: crate::Error| Failure::about_dataset(&error);
        let dataset = imported.pool.engine().dsl.open_dataset(name).map_err(failed)?;
        resolve(&dataset.property_values(), name, imported.altroot.as_deref()).map_err(failed)
    }

    pub(in crate::control::pools) fn mount(&mut self, mount: &DatasetMount) -> Result<(), Failure> {
        if mount.options.iter().any(|option| option == "remount") {
            if mount.load_key {
                self.check_no_key(&mount.name)?;
            }
            let pool = self.pool_of(&mount.name)?.pool.clone();
            return self.mounter.remount(&pool, &mount.name, &mount.options);
        }
        let plan = self.plan(mount)?;
        self.mounter.mount(plan)
    }

    /// Mounts several; for each, in this order, why it is not mounted.
    pub(in crate::control::pools) fn mount_each(&mut self, mounts: &[DatasetMount]) -> Vec<Option<Failure>> {
        let planned: Vec<Result<MountPlan, Failure>> = mounts.iter().map(|mount| self.plan(mount)).collect();
        let (mut failures, mut plans) = (Vec::new(), Vec::new());
        for plan in planned {
            failures.push(plan.map(|plan| plans.push(plan)).map_err(Some));
        }
        let mut mounted = self.mounter.mount_all(plans).into_iter();
        failures.into_iter().map(|planned| planned.map_or_else(|failure| failure, |()| mounted.next().and_then(Result::err))).collect()
    }

    /// Loading and unloading keys means something for what is encrypted only; there it is refused.
    pub(in crate::control::pools) fn check_no_key(&self, name: &str) -> Result<(), Failure> {
        let dataset = self.pool_of(name)?.pool.engine().dsl.open_dataset(name).map_err(|error| Failure::about_dataset(&error))?;
        if dataset.dir.crypto_key == 0 { Ok(()) } else { Err(not_yet("encryption is")) }
    }

    /// What is to be mounted where.
    fn plan(&self, mount: &DatasetMount) -> Result<MountPlan, Failure> {
        let imported = self.pool_of(&mount.name)?;
        let pool = imported.pool.clone();
        if mount.name.contains('#') {
            return Err(Failure::new(FailureKind::BadType));
        }
        // A snapshot has no property that says where, or whether.
        let is_snapshot = mount.name.contains('@');
        let failed = |error: crate::Error| Failure::about_dataset(&error);
        let dataset = pool.engine().dsl.open_dataset(&mount.name).map_err(failed)?;
        if super::datasets::is_volume(dataset.objset_type().map_err(failed)?) {
            return Err(Failure::new(FailureKind::BadType));
        }
        if mount.load_key {
            self.check_no_key(&mount.name)?;
        }
        let values = dataset.property_values();
        let path = match &mount.at {
            Some(path) => path.clone(),
            None if is_snapshot => return Err(Failure::new(FailureKind::BadType)),
            None => resolve(&values, &mount.name, imported.altroot.as_deref()).map_err(failed)?.0,
        };
        match path.as_str() {
            "legacy" => return Err(Failure::with(FailureKind::MountFailed, "legacy mountpoint")),
            path if !path.starts_with('/') => return Err(Failure::with(FailureKind::MountFailed, "no mountpoint set")),
            _ => {}
        }
        if !is_snapshot && values.number_property("canmount").map_err(failed)? == CAN_MOUNT_OFF {
            return Err(Failure::with(FailureKind::MountFailed, "'canmount' property is set to 'off'"));
        }
        let overlay = mount.overlay || values.number_property("overlay").map_err(failed)? != 0;
        drop(dataset);
        let also = mount.at.is_some();
        Ok(MountPlan { pool, dataset: mount.name.clone(), path: path.into(), options: mount.options.clone(), overlay, also, exactly: None })
    }

    /// Mounts a file system if its properties say so. A failure is logged: it is not what was asked for.
    pub(super) fn mount_if_due(&mut self, name: &str) {
        let _ = self.mount_again(name, false);
    }

    /// As above; `was_mounted`: even one that is mounted only when it is named. Why it is nowhere mounted, if so.
    fn mount_again(&mut self, name: &str, was_mounted: bool) -> Option<NotMounted> {
        let failure = self.try_mount(name, was_mounted).err()?;
        self.not_mounted(name, failure)
    }

    /// A mount failed: is the file system nowhere mounted now?
    fn not_mounted(&self, dataset: &str, failure: Failure) -> Option<NotMounted> {
        tracing::warn!(dataset, %failure, "not mounted");
        (!self.mounter.is_mounted(dataset)).then(|| NotMounted { dataset: dataset.to_owned(), failure })
    }

    fn try_mount(&mut self, name: &str, was_mounted: bool) -> Result<(), Failure> {
        // Linux lets nobody else mount.
        if !self.caller.is_superuser || !self.mounter.can_mount() {
            return Ok(());
        }
        let failed = |error: crate::Error| Failure::about_dataset(&error);
        let dataset = self.pool_of(name)?.pool.engine().dsl.open_dataset(name).map_err(failed)?;
        let can_mount = dataset.number_property("canmount").map_err(failed)?;
        let due = (can_mount == CAN_MOUNT_ON || (was_mounted && can_mount != CAN_MOUNT_OFF))
            && dataset.number_property("zoned").map_err(failed)? == 0
            // What has a key that is not loaded, or is received in part, cannot be mounted, and nobody expects that it is.
            && dataset.dir.crypto_key == 0
            && !dataset.is_inconsistent()
            && !super::datasets::is_volume(dataset.objset_type().map_err(failed)?);
        drop(dataset);
        let (place, _) = self.mountpoint(name)?;
        // What was mounted may still be in places that do not move.
        let is_there = |mounts: Vec<Mount>| mounts.iter().any(|mount| !was_mounted || mount.mountpoint == place);
        if !due || !place.starts_with('/') || is_there(self.mounter.places(name)) {
            return Ok(());
        }
        let at = was_mounted.then_some(place);
        let mount = DatasetMount { name: name.to_owned(), options: Vec::new(), overlay: false, force: false, load_key: false, at };
        self.mount(&mount)
    }

    /// Mounts what was mounted before, parents before children; returns what could not be.
    pub(super) fn mount_all_again(&mut self, names: &[String]) -> Vec<NotMounted> {
        names.iter().filter_map(|name| self.mount_again(name, true)).collect()
    }

    /// Unmounts what is about to move because of a change of properties, and finds out what is to be mounted after it.
    pub(super) fn begin_move(&mut self, name: &str, changes: &[(String, PropertyChange)]) -> Result<Moving, Failure> {
        let mut moving = Moving::default();
        let changed = |property: &str| changes.iter().find(|(known, _)| known == property).map(|(_, change)| change);
        let is_below = |dataset: &str| dataset == name || dataset.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'));
        if name.contains('@') {
            return Ok(moving);
        }
        let mounted: Vec<String> = self.mounter.list().into_iter().map(|mount| mount.dataset).filter(|dataset| is_below(dataset)).collect();
        if changed("mountpoint").is_some() {
            moving.mounts_all = true;
            moving.had_no_place = !self.mountpoint(name)?.0.starts_with('/');
            for dataset in mounted {
                if dataset == name || self.inherits_place(&dataset, name)? {
                    moving.datasets.push(dataset);
                }
            }
        } else if changed("canmount") == Some(&PropertyChange::Set(PropertyValue::Number(CAN_MOUNT_OFF))) {
            moving.datasets.extend(mounted.into_iter().filter(|dataset| dataset == name));
        }
        moving.datasets.sort();
        moving.datasets.dedup();
        let before = self.in_sight();
        let directories = self.own_mount_directories_below(&moving.datasets);
        for at in (0..moving.datasets.len()).rev() {
            let dataset = &moving.datasets[at];
            // Unmounting its parent may have taken it along.
            if self.mounter.is_mounted(dataset)
                && let Err(failure) = self.mounter.put_away(dataset, None, false)
            {
                moving.datasets.drain(..=at);
                moving.taken_along = self.taken_along(before, &|dataset| moving.datasets.iter().any(|other| other == dataset));
                moving.mounts_all = false;
                self.end_move(name, &moving);
                return Err(failure);
            }
        }
        // Now that all are unmounted: what is in one of the file systems stays.
        directories.iter().rev().for_each(|directory| remove_directory(directory));
        moving.taken_along = self.taken_along(before, &|dataset| moving.datasets.iter().any(|other| other == dataset));
        Ok(moving)
    }

    /// Unmounts several, each from one place, in this order; for each why it is still mounted. What was mounted below one of them and went along is
    /// mounted again, unless it is one of them.
    pub(in crate::control::pools) fn unmount_each(&mut self, unmounts: &[DatasetUnmount]) -> Vec<Option<Failure>> {
        let before = self.in_sight();
        let mut failures = Vec::with_capacity(unmounts.len());
        for unmount in unmounts {
            let at = unmount.at.as_deref().map(Path::new);
            failures.push(self.mounter.put_away(&unmount.name, at, unmount.force).err());
        }
        let gone: HashSet<(&str, Option<&str>)> = unmounts.iter().map(|unmount| (unmount.name.as_str(), unmount.at.as_deref())).collect();
        let mut taken_along = self.taken_along(before, &|_| false);
        taken_along.retain(|was| !gone.contains(&(was.mount.dataset.as_str(), Some(was.mount.mountpoint.as_str()))) && !gone.contains(&(was.mount.dataset.as_str(), None)));
        self.bring_back(&taken_along);
        failures
    }

    /// Unmounts a file system, and what is below it if that is asked for; all of it, or nothing.
    pub(in crate::control::pools) fn unmount(&mut self, unmount: &DatasetUnmount, is_suspended: bool) -> Result<(), Failure> {
        if unmount.force && is_suspended {
            // Its users wait for the devices, and would never let go of it.
            return if unmount.tree { self.mounter.unmount_tree(&unmount.name, true) } else { self.mounter.unmount(&unmount.name, true) };
        }
        let before = self.in_sight();
        let prefix = format!("{}/", unmount.name);
        let is_below = |mount: &Mount| unmount.tree && mount.dataset.starts_with(&prefix) && !mount.dataset.contains('@');
        // What was mounted last may lie over what was mounted before.
        let mut places: Vec<(String, Option<String>)> = Vec::new();
        for InSight { mount, .. } in before.iter().rev() {
            if is_below(mount) {
                places.push((mount.dataset.clone(), Some(mount.mountpoint.clone())));
            } else if mount.dataset == unmount.name && unmount.at.as_ref().is_none_or(|at| *at == mount.mountpoint) {
                places.push((unmount.name.clone(), unmount.at.clone()));
            }
        }
        // Where it is mounted several times, one of them is meant; and it may be out of sight.
        let own = places.iter().rposition(|(dataset, _)| *dataset == unmount.name);
        let mut at = 0..;
        places.retain(|(dataset, _)| at.next() == own || *dataset != unmount.name);
        if own.is_none() {
            places.push((unmount.name.clone(), unmount.at.clone()));
        }
        let mut result = Ok(());
        for (dataset, at) in &places {
            result = self.mounter.put_away(dataset, at.as_deref().map(Path::new), unmount.force);
            // What lay below another one may have gone along.
            if result.is_err() && (*dataset == unmount.name || self.mounter.is_mounted(dataset)) {
                break;
            }
            result = Ok(());
        }
        if result.is_err() {
            // Also what merely lay over it.
            let gone = self.taken_along(before, &|_| false);
            self.bring_back(&gone);
        }
        result
    }

    /// What is mounted, with what was asked for.
    pub(in crate::control::pools) fn in_sight(&self) -> Vec<InSight> {
        self.in_sight_where(&|_| true)
    }

    /// As above, of what is mounted in or below these places.
    pub(super) fn in_sight_below(&self, places: &[PathBuf]) -> Vec<InSight> {
        self.in_sight_where(&|mount| places.iter().any(|place| Path::new(&mount.mountpoint).starts_with(place)))
    }

    fn in_sight_where(&self, chosen: &dyn Fn(&Mount) -> bool) -> Vec<InSight> {
        let with_options = |mount: Mount| {
            let place = Path::new(&mount.mountpoint);
            InSight { options: self.mounter.options_at(&mount.dataset, place), real: self.mounter.real_place(&mount.dataset, place), mount }
        };
        self.mounter.list().into_iter().filter(chosen).map(with_options).collect()
    }

    /// What was mounted before something was unmounted, and is not any more, although nobody meant it: it was mounted below.
    pub(in crate::control::pools) fn taken_along(&self, before: Vec<InSight>, is_meant: &dyn Fn(&str) -> bool) -> Vec<InSight> {
        let now: HashSet<Mount> = self.mounter.list().into_iter().collect();
        before.into_iter().filter(|was| !is_meant(&was.mount.dataset) && !now.contains(&was.mount)).collect()
    }

    /// Mounts it where it was, and nowhere else: the contents of a file system that it was mounted in may be others, with a symbolic link in its path.
    /// Returns what could not be mounted.
    pub(in crate::control::pools) fn bring_back(&mut self, taken_along: &[InSight]) -> Vec<NotMounted> {
        let mut left = Vec::new();
        for InSight { mount: Mount { dataset, mountpoint }, options, real } in taken_along {
            let (name, at) = (dataset.clone(), Some(mountpoint.clone()));
            let mount = DatasetMount { name, options: options.clone(), overlay: true, force: false, load_key: false, at };
            let plan = self.plan(&mount).map(|plan| MountPlan { exactly: real.clone(), ..plan });
            if let Err(failure) = plan.and_then(|plan| self.mounter.mount(plan)) {
                left.extend(self.not_mounted(dataset, failure));
            }
        }
        left
    }

    /// Mounts at the new place what has moved, parents before children; returns what could not be mounted.
    pub(super) fn end_move(&mut self, name: &str, moving: &Moving) -> Vec<NotMounted> {
        let mut left = self.mount_all_again(&moving.datasets);
        left.extend(self.bring_back(&moving.taken_along));
        if moving.mounts_all {
            for dataset in self.tree_below(name).unwrap_or_default() {
                let has_failed = left.iter().any(|other| other.dataset == dataset);
                if has_failed || (dataset != name && !self.inherits_place(&dataset, name).is_ok_and(|inherits| inherits)) {
                    continue;
                }
                let failed = self.mount_again(&dataset, false);
                // A file system that gets a place is expected there; one that somebody had unmounted is not.
                if moving.had_no_place {
                    left.extend(failed);
                }
            }
        }
        left
    }

    /// A dataset and all below it that have a name for users, parents before children.
    fn tree_below(&self, name: &str) -> Result<Vec<String>, crate::Error> {
        let Ok(imported) = self.pool_of(name) else { return Ok(Vec::new()) };
        let dsl = &imported.pool.engine().dsl;
        let _names = dsl.lock_names();
        let mut names = vec![name.to_owned()];
        let mut at = 0;
        while at < names.len() {
            let dir = dsl.dir_by_name(&names[at])?;
            let children = dsl.children(&dir)?.into_iter().filter(|(child, _)| !child.contains(['$', '%']));
            let children: Vec<String> = children.map(|(child, _)| format!("{}/{child}", names[at])).collect();
            names.extend(children);
            at += 1;
        }
        Ok(names)
    }

    /// Does the place of `dataset` come from `ancestor`, or from above it?
    fn inherits_place(&self, dataset: &str, ancestor: &str) -> Result<bool, Failure> {
        Ok(match self.mountpoint(dataset)?.1 {
            Source::Inherited(from) => from == ancestor || ancestor.starts_with(&format!("{from}/")),
            Source::Default => true,
            _ => false,
        })
    }
}

/// A file system that a verb did not mean to leave unmounted, and why it is.
#[derive(Debug)]
pub(in crate::control::pools) struct NotMounted {
    dataset: String,
    failure: Failure,
}

impl NotMounted {
    /// The answer to a verb that is done: what it left unmounted, a line for each.
    pub(super) fn answer(left: &[NotMounted]) -> Result<(), Failure> {
        if left.is_empty() {
            return Ok(());
        }
        let lines: Vec<String> = left.iter().map(|NotMounted { dataset, failure }| format!("cannot mount '{dataset}': {failure}")).collect();
        Err(Failure::with(FailureKind::MountFailed, lines.join("\n")))
    }
}

/// What a change of `mountpoint` or `canmount` moves.
#[derive(Debug, Default)]
pub(super) struct Moving {
    /// They were mounted; parents before children.
    datasets: Vec<String>,
    /// They were mounted below those, and do not move.
    taken_along: Vec<InSight>,
    /// What has a place now is mounted there, though somebody had unmounted it.
    mounts_all: bool,
    /// The mount point was `none` or `legacy`.
    had_no_place: bool,
}

/// A mount, and what was asked for when it was made.
#[derive(Debug, Clone)]
pub(in crate::control::pools) struct InSight {
    pub(super) mount: Mount,
    options: Vec<String>,
    /// Where that is, without symbolic links.
    real: Option<PathBuf>,
}

/// The mount point of a dataset, from its property.
pub(super) fn resolve(values: &PropertyValues<'_>, name: &str, altroot: Option<&str>) -> Result<(String, Source), crate::Error> {
    let Some((PropertyValue::Text(text), source)) = values.property("mountpoint")? else {
        return Ok(("none".to_owned(), Source::Default));
    };
    let source = source_of(source);
    Ok((mountpoint::resolve(name, &text, &source, altroot), source))
}
