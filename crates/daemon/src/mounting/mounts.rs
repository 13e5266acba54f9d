//! The mounted datasets, their mount points, and their sessions.
//!
//! # Theory
//! A dataset has one session, which the kernel may show in several places: where the dataset's properties say, where
//! one more was asked for (`mount -t tarn`), and where it was bound. A session without a place in this mount namespace
//! lives on while another namespace, of a container, has a copy: the dataset is not mounted, but in use; mounted again,
//! it is the same session.
//!
//! # Invariants
//! 1. A dataset has one session at most.
//! 2. What was mounted last is unmounted first: it may lie over anything that was there before, also over the directory
//!    of mounts below it.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fuse::{Filesystem, Mount as FuseMount, MountOptions, Session, SessionOptions, MountPoints, Standing};
use tarnfs::control::{Failure, FailureKind, Mount};

use crate::mounting::many::unmount_many;
use crate::mounting::mounted::{List, Mounted};
use crate::ops::Ops;

/// The subtype of our mounts, whose type is `fuse.` and this.
pub(crate) const SUBTYPE: &str = "tarn";

/// How long after `umount` a session may take to notice.
const UNMOUNT_SEEN_WITHIN: Duration = Duration::from_secs(5);

/// All mounts of this daemon, in the order in which they were made.
#[derive(Debug, Default)]
pub struct Mounts {
    list: List,
}

/// How to mount one dataset.
#[derive(Debug, Clone)]
pub struct MountHow {
    /// For the kernel.
    pub mount: MountOptions,
    /// For the session.
    pub session: SessionOptions,
    /// Over a directory that has entries.
    pub overlay: bool,
}

impl Mounts {
    /// Is this dataset mounted?
    pub fn is_mounted(&self, dataset: &str) -> bool {
        self.list.get(dataset).is_some_and(|mounted| mounted.is_visible(&MountPoints::now()))
    }

    /// Whether a dataset has a session, visible or not.
    pub fn has(&self, dataset: &str) -> bool {
        self.list.get(dataset).is_some()
    }

    /// Mounts a visible dataset in one more place, which becomes the first if that one is gone. `false`: it is not
    /// visible.
    pub fn mount_also(&mut self, dataset: &str, path: &Path, how: &MountHow, asked: &[String]) -> Result<bool, Failure> {
        let Some(mounted) = self.list.get_mut(dataset) else { return Ok(false) };
        let points = MountPoints::now();
        if !mounted.is_visible(&points) {
            return Ok(false);
        }
        prepare(path, how)?;
        if path.canonicalize().is_ok_and(|path| mounted.session.places(&points).contains(&path)) {
            return Err(Failure::with(FailureKind::MountFailed, "filesystem already mounted"));
        }
        let failed = |error: io::Error| Failure::with(FailureKind::MountFailed, error.to_string());
        mounted.also.retain(|(standing, _)| standing.is_there());
        if mounted.session.standing().is_some_and(Standing::is_there) {
            let standing = mounted.session.mount_also(path, &how.mount).map_err(failed)?;
            mounted.also.push((standing, asked.to_vec()));
        } else {
            mounted.session.mount_again(path, &how.mount).map_err(failed)?;
            mounted.path = path.to_owned();
        }
        tracing::info!(dataset, path = %path.display(), "mounted in one more place");
        Ok(true)
    }

    /// The places of a dataset that have options of their own.
    pub fn also(&self, dataset: &str) -> &[(Standing, Vec<String>)] {
        self.list.get(dataset).map_or(&[], |mounted| &mounted.also)
    }

    /// A place of a dataset without symbolic links.
    pub fn real_place(&self, dataset: &str, place: &Path) -> Option<PathBuf> {
        let mounted = self.list.get(dataset)?;
        Some(if place == mounted.path { mounted.session.path() } else { place }.to_owned())
    }

    /// The first place of a dataset, as the kernel knows it.
    pub fn standing(&self, dataset: &str) -> Option<&Standing> {
        self.list.get(dataset)?.session.standing()
    }

    /// Mounts a session again that was unmounted, but not everywhere (see [`Session::mount_again`]). `false`: there is
    /// no such session.
    pub fn mount_again(&mut self, dataset: &str, path: &Path, how: &MountHow) -> Result<bool, Failure> {
        let Some(mounted) = self.list.get_mut(dataset) else { return Ok(false) };
        if mounted.is_visible(&MountPoints::now()) {
            return Err(Failure::with(FailureKind::MountFailed, "filesystem already mounted"));
        }
        prepare(path, how)?;
        match mounted.session.mount_again(path, &how.mount) {
            Ok(()) => {
                mounted.path = path.to_owned();
                if let Some((_, newest)) = self.list.take(dataset) {
                    self.list.push(newest);
                }
                tracing::info!(dataset, path = %path.display(), "mounted again");
                return Ok(true);
            }
            // The kernel has ended it, and the session is about to see that.
            Err(error) => tracing::debug!(dataset, %error, "not to be mounted again"),
        }
        if !mounted.session.ends_within(UNMOUNT_SEEN_WITHIN) {
            return Err(Failure::with(FailureKind::MountFailed, "filesystem already mounted, in another mount namespace"));
        }
        self.tidy_one(dataset);
        Ok(false)
    }

    /// A dataset was renamed, and those below it with it.
    pub fn renamed(&mut self, from: &str, to: &str) {
        self.list.rename(|mounted| {
            let name = renamed(&mounted.dataset, from, to)?;
            tracing::info!(dataset = mounted.dataset, path = %mounted.path.display(), name, "renamed");
            Some(name)
        });
    }

    /// Whether nothing is mounted.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The first mount point of a dataset.
    pub fn path(&self, dataset: &str) -> Option<&Path> {
        self.list.get(dataset).map(|mounted| mounted.path.as_path())
    }

    /// Mounts a dataset on `path`, which is made if it does not exist.
    pub fn mount(&mut self, dataset: &str, path: &Path, filesystem: Arc<dyn Filesystem>, how: MountHow) -> Result<(), Failure> {
        self.may_mount(dataset)?;
        let made = self.make(dataset, path, filesystem, None, how)?;
        self.list.push(made);
        Ok(())
    }

    /// Refuses a dataset that has a session: there is one, visible or not.
    pub(crate) fn may_mount(&mut self, dataset: &str) -> Result<(), Failure> {
        self.tidy_one(dataset);
        if self.has(dataset) {
            return Err(Failure::with(FailureKind::MountFailed, "filesystem already mounted"));
        }
        Ok(())
    }

    /// As [`Mounts::mount`], for our own operations, which may then be told of changes.
    pub fn mount_ops(&mut self, dataset: &str, path: &Path, ops: Arc<Ops>, how: MountHow) -> Result<(), Failure> {
        self.may_mount(dataset)?;
        let made = self.make_ops(dataset, path, ops, how)?;
        self.keep(made);
        Ok(())
    }

    /// Makes the mount of a dataset that may be mounted, to be kept by [`Mounts::keep`]. `ops` are to be told of changes.
    pub(crate) fn make_ops(&self, dataset: &str, path: &Path, ops: Arc<Ops>, how: MountHow) -> Result<Mounted, Failure> {
        self.make(dataset, path, Arc::clone(&ops) as Arc<dyn Filesystem>, Some(ops), how)
    }

    /// Knows a mount as the newest.
    pub(crate) fn keep(&mut self, made: Mounted) {
        self.list.push(made);
    }

    fn make(&self, dataset: &str, path: &Path, filesystem: Arc<dyn Filesystem>, ops: Option<Arc<Ops>>, how: MountHow) -> Result<Mounted, Failure> {
        prepare(path, &how)?;
        let failed = |error: io::Error| match error.kind() {
            ErrorKind::PermissionDenied => Failure::with(FailureKind::Permission, format!("Insufficient privileges: {}: {error}", path.display())),
            _ => Failure::with(FailureKind::MountFailed, format!("{}: {error}", path.display())),
        };
        let mount = FuseMount::new(path, &how.mount).map_err(failed).map_err(|mut failure| {
            let is_within = self.list.iter().any(|mounted| path != mounted.path && path.starts_with(&mounted.path));
            if failure.kind == FailureKind::Permission && is_within && !how.mount.allow_other {
                failure.message.push_str(" (a user's mount within another needs the line user_allow_other in /etc/fuse.conf)");
            }
            failure
        })?;
        let session = Session::start(mount, filesystem, how.session).map_err(failed)?;
        let relax_cache = session.cache_relaxer();
        if let Some(ops) = &ops {
            ops.set_notifier(session.notifier());
            ops.when_used(Box::new(relax_cache));
        } else {
            relax_cache();
        }
        tracing::info!(dataset, path = %path.display(), transport = ?session.transport(), "mounted");
        Ok(Mounted { dataset: dataset.to_owned(), path: path.to_owned(), session, ops, also: Vec::new() })
    }

    /// Unmounts a dataset, and what is mounted below it, everywhere. `force`: even if it is in use.
    pub fn unmount(&mut self, dataset: &str, force: bool) -> Result<(), Failure> {
        self.tidy_one(dataset);
        let Some(place) = self.path(dataset).map(Path::to_owned) else { return Err(not_mounted()) };
        for (name, place) in self.within(dataset, place).into_iter().rev() {
            if force || name == dataset {
                self.unmount_each(vec![name], force)?;
            } else {
                self.put_away_one(&name, &place)?;
            }
        }
        Ok(())
    }

    /// Takes a dataset, and what is mounted below it, from one place, or from its first mount point. Other places and
    /// other mount namespaces keep it.
    pub fn put_away(&mut self, dataset: &str, at: Option<&Path>) -> Result<(), Failure> {
        self.tidy_one(dataset);
        let Some(mounted) = self.list.get(dataset) else { return Err(not_mounted()) };
        if at.is_none_or(|at| at == mounted.path) && self.list.stands_alone(dataset) {
            let place = mounted.path.clone();
            return self.put_away_one(dataset, &place);
        }
        let places = mounted.places(&MountPoints::now());
        let place = match at {
            Some(at) => places.iter().rev().find(|place| *place == at),
            None => places.iter().find(|place| **place == mounted.path).or(places.last()),
        };
        let Some(place) = place.cloned() else { return Err(not_mounted()) };
        self.within(dataset, place).into_iter().rev().try_for_each(|(name, place)| self.put_away_one(&name, &place))
    }

    /// The dataset at a place and the visible mounts on it and below it, in the order in which they were made. Mounts
    /// below the place that it lies on itself stay.
    fn within(&self, dataset: &str, place: PathBuf) -> Vec<(String, PathBuf)> {
        if self.list.get(dataset).is_some_and(|mounted| mounted.path == place) && self.list.stands_alone(dataset) {
            return vec![(dataset.to_owned(), place)];
        }
        let points = MountPoints::now();
        let mut within = Vec::new();
        let mut lies_on_it = false;
        for mounted in self.list.iter() {
            if mounted.dataset == dataset {
                within.push((dataset.to_owned(), place.clone()));
                lies_on_it = true;
                continue;
            }
            let belongs = |other: &PathBuf| other.starts_with(&place) && (lies_on_it || *other != place);
            within.extend(mounted.places(&points).into_iter().filter(belongs).map(|other| (mounted.dataset.clone(), other)));
        }
        within
    }

    fn put_away_one(&mut self, dataset: &str, place: &Path) -> Result<(), Failure> {
        let Some(mounted) = self.list.get_mut(dataset) else { return Ok(()) };
        let real = if place == mounted.path { mounted.session.path().to_owned() } else { place.to_owned() };
        mounted.session.unmount_at(&real, false).map_err(|error| busy_or(place, &error))?;
        mounted.also.retain(|(standing, _)| standing.is_there());
        if mounted.session.has_ended() || !mounted.is_visible(&MountPoints::now()) && mounted.session.ends() {
            mounted.session.wait_for_threads();
            self.list.take(dataset);
        }
        tracing::info!(dataset, path = %place.display(), "unmounted");
        Ok(())
    }

    /// Unmounts all datasets of a pool, or a dataset and those below it.
    pub fn unmount_tree(&mut self, root: &str, force: bool) -> Result<(), Failure> {
        self.tidy();
        self.unmount_where(|mounted| mounted.dataset == root || mounted.dataset.strip_prefix(root).is_some_and(|rest| rest.starts_with(['/', '@'])), force)
    }

    /// Unmounts everything.
    pub fn unmount_all(&mut self, force: bool) -> Result<(), Failure> {
        self.tidy();
        self.unmount_where(|_| true, force)
    }

    fn unmount_where(&mut self, chosen: impl Fn(&Mounted) -> bool, force: bool) -> Result<(), Failure> {
        let names = self.list.iter().rev().filter(|mounted| chosen(mounted)).map(|mounted| mounted.dataset.clone()).collect();
        self.unmount_each(names, force)
    }

    /// Unmounts datasets, the last first that was mounted.
    fn unmount_each(&mut self, names: Vec<String>, force: bool) -> Result<(), Failure> {
        // The table is read once, as it is as long as there are mounts. A mount that is made meanwhile keeps its file
        // system in use.
        let points = MountPoints::now();
        let mut mounted: Vec<_> = names.iter().filter_map(|name| self.list.take(name)).collect();
        mounted.sort_by_key(|(at, _)| *at);
        let (left, failure) = unmount_many(mounted, force, &points);
        for (at, mounted) in left {
            self.list.put(at, mounted);
        }
        failure.map_or(Ok(()), Err)
    }

    /// Forgets sessions that ended without us. Returns their names.
    pub fn tidy(&mut self) -> Vec<String> {
        fuse::errand::rest();
        let gone: Vec<String> = self.list.iter().filter(|mounted| mounted.session.is_ended()).map(|mounted| mounted.dataset.clone()).collect();
        for dataset in &gone {
            self.tidy_one(dataset);
        }
        for (_, ops) in self.all_ops() {
            ops.tidy();
        }
        gone
    }

    /// The same for one dataset. `true`: it had ended.
    pub fn tidy_one(&mut self, dataset: &str) -> bool {
        let is_gone = self.list.get(dataset).is_some_and(|mounted| mounted.session.is_ended());
        if is_gone && let Some((_, mut mounted)) = self.list.take(dataset) {
            mounted.session.wait_for_threads();
        }
        is_gone
    }

    /// The operations of mounted datasets.
    pub fn all_ops(&self) -> impl Iterator<Item = (&str, &Arc<Ops>)> {
        self.list.iter().filter_map(|mounted| mounted.ops.as_ref().map(|ops| (mounted.dataset.as_str(), ops)))
    }

    /// The operations of a mounted dataset.
    pub fn ops(&self, dataset: &str) -> Option<&Arc<Ops>> {
        self.list.get(dataset)?.ops.as_ref()
    }

    /// The mount points of one dataset.
    pub fn places(&self, dataset: &str) -> Vec<Mount> {
        self.list.get(dataset).map_or(Vec::new(), |mounted| mounts_of(mounted, &MountPoints::now()))
    }

    /// All mounts, for `zfs mount`.
    pub fn list(&self) -> Vec<Mount> {
        let points = MountPoints::now();
        self.list.iter().flat_map(|mounted| mounts_of(mounted, &points)).collect()
    }
}

fn mounts_of(mounted: &Mounted, points: &MountPoints) -> Vec<Mount> {
    let of = |place: PathBuf| Mount { dataset: mounted.dataset.clone(), mountpoint: place.to_string_lossy().into_owned() };
    mounted.places(points).into_iter().map(of).collect()
}

/// The new name of a dataset, if it is the one that was renamed or is below it.
pub(crate) fn renamed(dataset: &str, from: &str, to: &str) -> Option<String> {
    let rest = dataset.strip_prefix(from).filter(|rest| rest.is_empty() || rest.starts_with(['/', '@']))?;
    Some(format!("{to}{rest}"))
}

fn not_mounted() -> Failure {
    Failure::with(FailureKind::UnmountFailed, "not currently mounted")
}

/// Why a place could not be taken away. If it is in use the error may name the user.
pub(crate) fn busy_or(place: &Path, error: &io::Error) -> Failure {
    if error.kind() != ErrorKind::ResourceBusy {
        return Failure::with(FailureKind::UnmountFailed, format!("cannot unmount '{}': {error}", place.display()));
    }
    let mut message = format!("cannot unmount '{}': pool or dataset is busy", place.display());
    if error.get_ref().is_some() {
        message = format!("{message}: {error}");
    }
    Failure::with(FailureKind::DatasetBusy, message)
}

/// Makes the directory, and refuses one that has entries. A mount that a killed daemon left behind is cleared away first.
fn prepare(path: &Path, how: &MountHow) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::with(FailureKind::MountFailed, format!("failed to create mountpoint {}: {error}", path.display()));
    if let Some(expected) = &how.mount.exactly
        && !expected.ancestors().find_map(|above| Some(above.canonicalize().ok()? == above)).unwrap_or(false)
    {
        return Err(Failure::with(FailureKind::MountFailed, format!("the path {} leads elsewhere by now", path.display())));
    }
    if fuse::mount::clear_dead(path, SUBTYPE).map_err(failed)? {
        tracing::warn!(path = %path.display(), "cleared a mount whose daemon had died");
    }
    match fs::read_dir(path) {
        Ok(mut entries) => match entries.next() {
            Some(_) if !how.overlay => Err(Failure::with(FailureKind::MountFailed, "directory is not empty")),
            _ => Ok(()),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => fs::create_dir_all(path).map_err(failed),
        Err(error) => Err(failed(error)),
    }
}
