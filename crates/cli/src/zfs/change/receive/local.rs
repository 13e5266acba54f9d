//! What is here of the datasets of an incremental package, and where each belongs.
//!
//! # Theory
//! A dataset here is the one of the sender's that has its snapshots, whatever both are called. It belongs below the one that is its parent at the sender's,
//! which may itself be elsewhere by now, or come with the streams. So a place follows from what is here, and is looked up again after each change.

use std::collections::{BTreeMap, BTreeSet};

use super::package::{Known, Package};

/// A file system or volume that is here.
pub(super) struct Local {
    pub(super) name: String,
    /// Names and guids of its snapshots, the oldest first.
    pub(super) snapshots: Vec<(String, u64)>,
    /// The guid of the snapshot that it is a clone of, if that is below the same root.
    origin: Option<u64>,
    /// Its snapshot that the package is incremental from.
    from: Option<u64>,
    /// The snapshot that says which of the sender's it is: that one, else the newest that the sender has, too.
    sent: Option<u64>,
    /// Which dataset of the package it is. The root is what was named, whatever its snapshots say.
    dataset: Option<usize>,
}

impl Local {
    /// The sender has one of its snapshots, too.
    pub(super) fn is_known(&self) -> bool {
        self.sent.is_some()
    }

    /// A name that none of its snapshots has, for one that is in another's way.
    pub(super) fn snapshot_aside(&self) -> String {
        first_aside(|name| self.snapshots.iter().any(|(other, _)| other == name))
    }
}

/// Where a dataset is to be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Where it is, as far as is known.
    Here,
    /// Under this name.
    Named(String),
    /// Below a dataset that is not here yet.
    Later,
}

/// All that is here from a root on, what is above first.
pub(super) struct Locals<'p> {
    pub(super) known: &'p BTreeMap<u64, Known<'p>>,
    pub(super) all: Vec<Local>,
    root: String,
    /// The names that the package's datasets would have if all of them were new.
    promised: BTreeSet<String>,
}

impl<'p> Locals<'p> {
    /// `heads`: names, and the snapshots that they are clones of; `snapshots`: full names and guids, the oldest first.
    pub(super) fn new(
        package: &Package,
        known: &'p BTreeMap<u64, Known<'p>>,
        root: &str,
        heads: BTreeMap<String, String>,
        snapshots: Vec<(String, u64)>,
    ) -> Locals<'p> {
        let from_name = package.from_snapshot().unwrap_or_default();
        let guids: BTreeMap<String, u64> = snapshots.iter().cloned().collect();
        let mut of_heads: BTreeMap<String, Vec<(String, u64)>> = BTreeMap::new();
        for (name, guid) in snapshots {
            let (head, snapshot) = name.split_once('@').unwrap_or((&name, ""));
            of_heads.entry(head.to_owned()).or_default().push((snapshot.to_owned(), guid));
        }
        let local = |(name, origin): (String, String)| {
            let snapshots = of_heads.remove(&name).unwrap_or_default();
            let is_from = |guid: &u64| known.get(guid).is_some_and(|known| known.snapshot == from_name);
            let from = snapshots.iter().map(|(_, guid)| *guid).find(is_from);
            let newest = snapshots.iter().rev().map(|(_, guid)| *guid).find(|guid| known.contains_key(guid));
            let sent = from.or(newest);
            let named = if name == root { package.top() } else { None };
            let dataset = named.or_else(|| sent.and_then(|guid| known.get(&guid)).map(|known| known.dataset));
            Local { origin: guids.get(&origin).copied(), name, snapshots, from, sent, dataset }
        };
        let all = heads.into_iter().map(local).collect();
        let here = |name: &str| {
            let rest = name.strip_prefix(package.send_fs.as_str())?;
            (rest.is_empty() || rest.starts_with('/')).then(|| format!("{root}{rest}"))
        };
        let promised = package.names().filter_map(here).collect();
        Locals { known, all, root: root.to_owned(), promised }
    }

    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.all.iter().position(|local| local.name == name)
    }

    /// The sender has none of its snapshots any more.
    pub(super) fn is_gone(&self, at: usize) -> bool {
        let local = &self.all[at];
        !local.is_known() && local.name != self.root
    }

    /// Both are the same dataset of the sender's.
    pub(super) fn are_copies(&self, at: usize, other: usize) -> bool {
        self.all[at].from.is_some() && self.all[at].from == self.all[other].from
    }

    /// A dataset of the package would be received under that name.
    pub(super) fn is_promised(&self, name: &str) -> bool {
        self.promised.contains(name)
    }

    /// Clones that have, at the sender's, what they are clones of here.
    pub(super) fn to_promote(&self) -> Vec<String> {
        self.all.iter().filter(|local| self.is_promoted(local)).map(|local| local.name.clone()).collect()
    }

    fn is_promoted(&self, local: &Local) -> bool {
        let (Some(origin), Some(sent)) = (local.origin, local.sent.and_then(|guid| self.known.get(&guid))) else { return false };
        if sent.described.origin() == Some(origin) {
            return false;
        }
        match self.known.get(&origin) {
            Some(owner) => owner.dataset == sent.dataset,
            // The sender could destroy it only when nothing else was a clone of it any more: what has it here is gone, or older than the promotion.
            None => {
                let owner = self.all.iter().find(|other| other.snapshots.iter().any(|(_, guid)| *guid == origin));
                owner.is_some_and(|owner| owner.dataset.is_none_or(|dataset| dataset == sent.dataset))
            }
        }
    }

    /// One without the snapshot that the package is incremental from stays where it is: nothing is received into it.
    pub(super) fn place(&self, at: usize) -> Place {
        let local = &self.all[at];
        let Some(sent) = local.from.and_then(|guid| self.known.get(&guid)).filter(|_| local.name != self.root) else { return Place::Here };
        let theirs = sent.described.name().and_then(|name| name.rsplit_once('/'));
        let (Some((above, _)), Some((_, last))) = (local.name.rsplit_once('/'), theirs) else { return Place::Here };
        let parent = match sent.described.parent_snapshot().and_then(|guid| Some((guid, self.known.get(&guid)?))) {
            None => Some(above),
            Some((guid, parent)) => {
                let has_it = self.all.iter().find(|other| other.from == Some(guid));
                let found = has_it.or_else(|| self.all.iter().find(|other| other.dataset == Some(parent.dataset)));
                found.map(|other| other.name.as_str())
            }
        };
        match parent.map(|parent| format!("{parent}/{last}")) {
            None => Place::Later,
            Some(name) if name == local.name => Place::Here,
            Some(name) => Place::Named(name),
        }
    }

    /// A name that no dataset has, for one that is in another's way. `None`: it has such a name already.
    pub(super) fn aside(&self, at: usize) -> Option<String> {
        let below = self.all[at].name.strip_prefix(self.root.as_str())?.strip_prefix('/')?;
        if below.starts_with(&aside_prefix()) && !below.contains('/') {
            return None;
        }
        let full = |last: &str| format!("{}/{last}", self.root);
        Some(full(&first_aside(|last| self.find(&full(last)).is_some())))
    }

    /// A dataset has another name now, and so has all that is below it.
    pub(super) fn renamed(&mut self, from: &str, to: &str) {
        for local in &mut self.all {
            let rest = local.name.strip_prefix(from).filter(|rest| rest.is_empty() || rest.starts_with('/'));
            if let Some(name) = rest.map(|rest| format!("{to}{rest}")) {
                local.name = name;
            }
        }
    }
}

/// What OpenZFS begins such names with: where it finds one, it gives it its place, too.
fn aside_prefix() -> String {
    format!("recv-{}-", std::process::id())
}

/// It, or something above it, is only on its way to its place.
pub(super) fn is_aside(name: &str) -> bool {
    let prefix = aside_prefix();
    name.split('/').any(|part| part.starts_with(&prefix))
}

fn first_aside(is_taken: impl Fn(&str) -> bool) -> String {
    let prefix = aside_prefix();
    let mut number = 1_u64;
    while is_taken(&format!("{prefix}{number}")) {
        number += 1;
    }
    format!("{prefix}{number}")
}
