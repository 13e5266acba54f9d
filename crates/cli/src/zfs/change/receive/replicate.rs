//! An incremental package: what the sender has destroyed or renamed since is destroyed and renamed here, too.
//!
//! # Theory
//! Snapshots are known by their guids, and file systems by their snapshots. What has no snapshot that the package knows is not the sender's any more:
//! with `-F` it goes. Names follow the sender's. So nothing may be done unless all that is here was listed: what is not known has no snapshots.

use std::collections::{BTreeMap, BTreeSet};

use tarnfs::control::{DatasetDestroy, DatasetKinds, DatasetList, DatasetRename, DatasetSet, DatasetUnmount, Failure, Request, SnapshotsDestroy, Wanted};

use super::Run;
use super::package::Package;
use crate::session::{Stop, say};
use crate::zfs::datasets::{self, Query};

const HEADS: DatasetKinds = DatasetKinds { filesystem: true, volume: true, snapshot: false, bookmark: false };

impl Run<'_, '_> {
    /// Brings what is there below `root` to what the package begins with.
    pub(super) fn replicate(&mut self, package: &Package, root: &str) -> Result<(), Stop> {
        let Some(from) = package.from_snapshot().filter(|_| package.recursive) else { return Ok(()) };
        if self.entry_or_stop(root, &[])?.is_none() {
            return Ok(());
        }
        let known = package.guids();
        if known.is_empty() {
            return Err(self.refuse("cannot receive", "invalid backup stream (it names no snapshots)"));
        }
        // What is made between the two lists is in the second one at most, and stays.
        let listed = self.heads(root).and_then(|heads| Ok((heads, self.snapshots(root, None)?)));
        let (heads, found) = listed.map_err(|failure| self.session.failed(format_args!("cannot receive: cannot list what is below '{root}'"), &failure))?;
        let mut snapshots: BTreeMap<String, Vec<(String, u64)>> = BTreeMap::new();
        for (name, guid) in found {
            let (head, snapshot) = name.split_once('@').unwrap_or((&name, ""));
            snapshots.entry(head.to_owned()).or_default().push((snapshot.to_owned(), guid));
        }
        let (mut gone, mut kept) = (Vec::new(), Vec::new());
        // What is below goes before what is above.
        for head in heads.into_iter().rev() {
            let own = snapshots.remove(&head).unwrap_or_default();
            if !own.iter().any(|(_, guid)| known.contains(guid)) {
                gone.push(head);
                continue;
            }
            for (snapshot, guid) in &own {
                let name = format!("{head}@{snapshot}");
                if known.contains(guid) {
                    self.follow(package, &name, *guid);
                } else {
                    self.destroy(&name, root);
                }
            }
            let is_from = |guid: &u64| package.described(*guid).and_then(|of| of.snapshot(*guid)).as_deref() == Some(from);
            kept.push((head, own.iter().map(|(_, guid)| *guid).find(is_from)));
        }
        // Before the renames: what goes may have the name that another one gets.
        self.destroy_all(gone, root);
        kept.into_iter().for_each(|(head, guid)| self.rename(package, &head, root, guid));
        Ok(())
    }

    /// A clone goes before its origin, whatever their names: so what cannot go is tried again, as long as others go.
    fn destroy_all(&mut self, mut heads: Vec<String>, root: &str) {
        loop {
            let before = heads.len();
            heads.retain(|head| !self.destroy(head, root));
            if heads.is_empty() || heads.len() == before {
                return;
            }
        }
    }

    /// File systems and volumes, those above first.
    fn heads(&mut self, root: &str) -> Result<Vec<String>, Failure> {
        let list = DatasetList { depth: None, ..datasets::request(&Query::new(HEADS, Wanted::Only(Vec::new())), Some(root), None) };
        let entries = self.session.datasets(Request::DatasetList(list))?.entries;
        let names: BTreeSet<String> = entries.into_iter().map(|entry| entry.name).collect();
        Ok(names.into_iter().collect())
    }

    /// What the sender does not have any more. That it cannot go is no error: what is received in its place says so.
    fn destroy(&mut self, name: &str, root: &str) -> bool {
        if !self.flags.force || name == root {
            return false;
        }
        if self.flags.verbose {
            say!(self.session, "attempting destroy {name}");
        }
        if self.flags.dry_run {
            return false;
        }
        let done = self.destroy_with_snapshots(name);
        if self.flags.verbose {
            say!(self.session, "{}", if done { "success" } else { "failed - trying rename" });
        }
        done
    }

    fn destroy_with_snapshots(&mut self, name: &str) -> bool {
        if !name.contains('@') {
            let Ok(snapshots) = self.snapshots(name, Some(1)) else { return false };
            let unmount = DatasetUnmount { name: name.to_owned(), at: None, tree: false, force: self.flags.force_unmount, unload_key: false };
            let _ = self.session.perform(Request::DatasetUnmount(unmount));
            // Its snapshots go first.
            for (snapshot, _) in snapshots.into_iter().filter(|(snapshot, _)| snapshot.starts_with(&format!("{name}@"))) {
                self.destroy_one(snapshot);
            }
        }
        self.destroy_one(name.to_owned())
    }

    fn destroy_one(&mut self, name: String) -> bool {
        let (names, force) = (vec![name], self.flags.force_unmount);
        if names[0].contains('@') {
            return self.session.refusals(Request::SnapshotsDestroy(SnapshotsDestroy { names, defer: false })).is_ok_and(|refusals| refusals.is_empty());
        }
        self.session.perform(Request::DatasetDestroy(DatasetDestroy { names, defer: false, force })).is_ok()
    }

    /// A snapshot gets the properties and the name that it has at the sender's.
    fn follow(&mut self, package: &Package, name: &str, guid: u64) {
        let Some(described) = package.described(guid).filter(|_| !self.flags.dry_run) else { return };
        let (Some((head, ours)), Some(theirs)) = (name.split_once('@'), described.snapshot(guid)) else { return };
        let mut settings = described.snapshot_properties(&theirs);
        settings.retain(|setting| setting.name.contains(':'));
        if !settings.is_empty() {
            let set = DatasetSet { name: name.to_owned(), settings, no_remount: false, received: true };
            let _ = self.session.perform(Request::DatasetSet(set));
        }
        if ours != theirs {
            self.rename_to(name.to_owned(), format!("{head}@{theirs}"));
        }
    }

    /// The sender calls it otherwise, in the same place.
    fn rename(&mut self, package: &Package, head: &str, root: &str, from: Option<u64>) {
        let Some(sent) = from.and_then(|guid| package.name_of(guid)).filter(|_| head != root) else { return };
        let (Some((parent, ours)), Some((_, theirs))) = (head.rsplit_once('/'), sent.rsplit_once('/')) else { return };
        if ours == theirs || self.flags.dry_run {
            return;
        }
        self.rename_to(head.to_owned(), format!("{parent}/{theirs}"));
    }

    fn rename_to(&mut self, from: String, to: String) {
        if self.flags.verbose {
            say!(self.session, "attempting rename {from} to {to}");
        }
        let rename = DatasetRename { from, to, parents: false, recursive: false, no_remount: false, force: self.flags.force_unmount };
        let done = self.session.perform(Request::DatasetRename(rename)).is_ok();
        if self.flags.verbose {
            say!(self.session, "{}", if done { "success" } else { "failed" });
        }
    }
}
