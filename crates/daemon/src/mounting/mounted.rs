//! The mounted datasets, in the order in which they were mounted.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fuse::{Session, MountPoints, Standing};
use tarnfs::control::Failure;

use crate::mounting::mounts::busy_or;
use crate::ops::Ops;

/// A mounted dataset.
#[derive(Debug)]
pub(crate) struct Mounted {
    pub(crate) dataset: String,
    pub(crate) path: PathBuf,
    pub(crate) session: Session,
    pub(crate) ops: Option<Arc<Ops>>,
    /// Further places that were asked for, with their options.
    pub(crate) also: Vec<(Standing, Vec<String>)>,
}

impl Mounted {
    /// Whether it has a mount point in this namespace. It may be mounted in other namespaces only.
    pub(crate) fn is_visible(&self, points: &MountPoints) -> bool {
        !self.session.is_ended() && !self.session.places(points).is_empty()
    }

    /// Its visible mount points, as the user wrote them: the session knows the first one without symbolic links.
    pub(crate) fn places(&self, points: &MountPoints) -> Vec<PathBuf> {
        let given = |place: PathBuf| if place == self.session.path() { self.path.clone() } else { place };
        if self.session.is_ended() { Vec::new() } else { self.session.places(points).into_iter().map(given).collect() }
    }
}

impl Mounted {
    /// Unmounts it. It comes back if it cannot be.
    pub(crate) fn end(self, force: bool, points: &MountPoints) -> Result<(), (Mounted, Failure)> {
        let Mounted { dataset, path, session, ops, also } = self;
        let ended = if force { session.unmount_forced_from(points) } else { session.unmount_from(false, points) };
        match ended {
            Ok(()) => tracing::info!(dataset, path = %path.display(), "unmounted"),
            Err((session, error)) => {
                let failure = busy_or(&path, &error);
                return Err((Mounted { dataset, path, session, ops, also }, failure));
            }
        }
        Ok(())
    }
}

/// All mounted datasets. Each is there at most once.
#[derive(Debug, Default)]
pub(crate) struct List {
    in_order: BTreeMap<u64, Mounted>,
    by_name: HashMap<String, u64>,
    last: u64,
}

impl List {
    pub(crate) fn is_empty(&self) -> bool {
        self.in_order.is_empty()
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Mounted> {
        self.in_order.values()
    }

    pub(crate) fn get(&self, dataset: &str) -> Option<&Mounted> {
        self.in_order.get(self.by_name.get(dataset)?)
    }

    pub(crate) fn get_mut(&mut self, dataset: &str) -> Option<&mut Mounted> {
        self.in_order.get_mut(self.by_name.get(dataset)?)
    }

    /// Whether a dataset is uncovered at its first mount point, has nothing mounted in it and covers nothing. `false`
    /// where that takes reading the kernel's table of mounts, whose length is the number of mounts.
    pub(crate) fn stands_alone(&self, dataset: &str) -> bool {
        let Some(own) = self.get(dataset) else { return false };
        let starts = |other: &Path, own: &Path| other.as_os_str().as_encoded_bytes().starts_with(own.as_os_str().as_encoded_bytes());
        let is_apart = |other: &Mounted| !starts(&other.path, &own.path) && !starts(other.session.path(), own.session.path()) && other.also.is_empty();
        own.also.is_empty() && self.iter().all(|other| other.dataset == dataset || is_apart(other)) && own.session.stands_alone()
    }

    /// Adds it as the newest.
    pub(crate) fn push(&mut self, mounted: Mounted) {
        self.last += 1;
        self.put(self.last, mounted);
    }

    /// Puts it back where it was.
    pub(crate) fn put(&mut self, at: u64, mounted: Mounted) {
        self.by_name.insert(mounted.dataset.clone(), at);
        self.in_order.insert(at, mounted);
    }

    /// Takes it out; also returns where it was.
    pub(crate) fn take(&mut self, dataset: &str) -> Option<(u64, Mounted)> {
        let at = self.by_name.remove(dataset)?;
        Some((at, self.in_order.remove(&at)?))
    }

    /// Gives new names to those that `new_name` has one for.
    pub(crate) fn rename(&mut self, new_name: impl Fn(&Mounted) -> Option<String>) {
        for (at, mounted) in &mut self.in_order {
            if let Some(name) = new_name(mounted) {
                self.by_name.remove(&mounted.dataset);
                mounted.dataset = name;
            }
            self.by_name.insert(mounted.dataset.clone(), *at);
        }
    }
}
