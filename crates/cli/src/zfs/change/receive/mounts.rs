//! What is mounted and unmounted around what is received.
//!
//! # Theory
//! A stream that goes on with a dataset is received under its mount. One that stands for itself replaces all of the dataset: that is unmounted
//! before, with those below it, and mounted again. What is new is mounted at the end, when all streams are there. What is on its way to another name
//! is not mounted meanwhile, for others may come where it would be.

use tarnfs::control::{DatasetEntry, DatasetKind, DatasetKinds, DatasetList, DatasetUnmount, Failure, Request, Wanted};

use super::Run;
use super::local::is_aside;
use super::one::One;
use crate::session::{Outcome, Stop, worst};
use crate::zfs::change::mount;
use crate::zfs::datasets::{self, Query};

const FILESYSTEMS: DatasetKinds = DatasetKinds { filesystem: true, volume: false, snapshot: false, bookmark: false };

fn number(entry: &DatasetEntry, name: &str) -> Option<u64> {
    entry.property(name).and_then(|value| value.value.number())
}

impl Run<'_, '_> {
    /// File systems, those above first: name, whether it is mounted, whether it is not to be: it was received without some of its contents, or
    /// its key is not there.
    fn filesystems(&mut self, root: &str) -> Result<Vec<(String, bool, bool)>, Stop> {
        let wanted = Wanted::Only(["mounted", "redacted", "keystatus"].map(str::to_owned).to_vec());
        let list = DatasetList { depth: None, ..datasets::request(&Query::new(FILESYSTEMS, wanted), Some(root), None) };
        let listed = self.session.datasets(Request::DatasetList(list)).map_err(|failure| self.session.failed(format_args!("cannot list '{root}'"), &failure))?;
        let entries = listed.entries;
        let is = |entry: &tarnfs::control::DatasetEntry, name: &str| entry.property(name).and_then(|value| value.value.number()) == Some(1);
        let is_withheld = |entry: &tarnfs::control::DatasetEntry| is(entry, "redacted") || mount::is_locked(entry);
        let of_kind = entries.iter().filter(|entry| entry.kind == DatasetKind::Filesystem);
        let mut found: Vec<_> = of_kind.map(|entry| (entry.name.clone(), is(entry, "mounted"), is_withheld(entry))).collect();
        found.sort();
        Ok(found)
    }

    /// Unmounts what is replaced. Returns what was mounted.
    pub(super) fn unmount_replaced(&mut self, one: &One) -> Result<Vec<String>, Stop> {
        let mounted: Vec<String> = self.filesystems(&one.dataset)?.into_iter().filter(|(_, mounted, _)| *mounted).map(|(name, ..)| name).collect();
        for name in mounted.iter().rev() {
            let unmount = DatasetUnmount { name: name.clone(), at: None, tree: false, force: self.flags.force_unmount, unload_key: false };
            let unmounted = self.session.perform(Request::DatasetUnmount(unmount));
            unmounted.map_err(|failure| self.session.failed(format_args!("cannot unmount '{name}'"), &failure))?;
        }
        Ok(mounted)
    }

    /// What was complete and mounted lacks something now: programs are not to run into that.
    pub(super) fn unmount_incomplete(&mut self, one: &One) {
        let was = |name: &str| one.before.as_ref().and_then(|entry| entry.property(name)).and_then(|value| value.value.number()) == Some(1);
        if was("mounted") && !was("redacted") {
            let unmount = DatasetUnmount { name: one.dataset.clone(), at: None, tree: false, force: true, unload_key: false };
            let _ = self.session.perform(Request::DatasetUnmount(unmount));
        }
    }

    /// Mounts them again.
    pub(super) fn mount_again(&mut self, mounted: &[String]) -> Outcome {
        let mut code = 0;
        if self.flags.no_mount {
            return Ok(code);
        }
        for name in mounted {
            if self.entry(name, &[]).is_some() {
                code = worst(code, mount::mount_received(self.session, name)?);
            }
        }
        Ok(code)
    }

    /// File systems, those above first, with what says whether they are mounted, and their guids.
    fn mountable(&mut self, root: &str) -> Result<Vec<DatasetEntry>, Failure> {
        let wanted = Wanted::Only(["mounted", "guid"].map(str::to_owned).to_vec());
        let list = DatasetList { depth: None, ..datasets::request(&Query::new(FILESYSTEMS, wanted), Some(root), None) };
        let mut entries = self.session.datasets(Request::DatasetList(list))?.entries;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// Unmounts what is on its way to another place, with all that is below it.
    pub(super) fn unmount_moving(&mut self, name: &str) -> Result<(), Failure> {
        for entry in self.mountable(name)?.iter().rev().filter(|entry| number(entry, "mounted") == Some(1)) {
            let unmount = DatasetUnmount { name: entry.name.clone(), at: None, tree: false, force: self.flags.force_unmount, unload_key: false };
            self.session.perform(Request::DatasetUnmount(unmount))?;
            self.unmounted.extend(number(entry, "guid"));
        }
        Ok(())
    }

    /// What was unmounted for that is mounted again where it is now, unless it is still on its way.
    pub(super) fn mount_moved(&mut self, root: &str) -> Outcome {
        let unmounted = std::mem::take(&mut self.unmounted);
        let mut code = 0;
        if unmounted.is_empty() {
            return Ok(code);
        }
        let listed = self.mountable(root).map_err(|failure| self.session.failed(format_args!("cannot list '{root}'"), &failure))?;
        for entry in listed.iter().filter(|entry| number(entry, "mounted") != Some(1) && !is_aside(&entry.name)) {
            if number(entry, "guid").is_some_and(|guid| unmounted.contains(&guid)) {
                code = worst(code, mount::mount_received(self.session, &entry.name)?);
            }
        }
        Ok(code)
    }

    /// Everything is received: what is new is mounted.
    pub(super) fn mount_received(&mut self) -> Outcome {
        let Some(top) = self.top.clone().filter(|_| self.has_new && !self.flags.no_mount && !self.flags.dry_run) else { return Ok(0) };
        let mut code = 0;
        for (name, mounted, withheld) in self.filesystems(&top)? {
            if !mounted && !withheld {
                code = worst(code, mount::mount_received(self.session, &name)?);
            }
        }
        Ok(code)
    }
}
