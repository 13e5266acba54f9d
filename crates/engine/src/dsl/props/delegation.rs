//! What directories grant to users, and whether that is enough.
//!
//! # Theory
//! Whether a user may do something on a dataset is asked of its directory and of each above it, upwards: a directory may grant a permission to the user, to a
//! group of theirs, or to everyone. In the dataset's own directory what is granted *locally* counts, in those above what is granted to *descendents*. A
//! snapshot counts as a descendent of its dataset. A grant may name sets of permissions; the nearest directory, from there upwards, that defines
//! a set says what is in it, and a set may hold other sets.
//!
//! What is granted to creators does nothing by itself. It is copied into each new dataset, as a local grant to the user who makes it
//! ([`copy_creation_grants`](super::delegation_sync::copy_creation_grants)); so it counts already when a caller is about to make one.
//!
//! # On disk
//! [`ondisk::delegation`]

use std::collections::BTreeMap;

use ondisk::delegation::{GrantKey, Grantee, Reach};

use crate::dsl::dsl::Parts;
use crate::dsl::mos::Mos;
use crate::dsl::tree::dir::Dir;
use crate::error::Result;

/// A user, as far as grants know users.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// The user.
    pub user: u64,
    /// All groups of the user.
    pub groups: Vec<u64>,
}

impl Identity {
    /// Those whose grants are the user's.
    fn grantees(&self) -> impl Iterator<Item = Grantee> {
        let groups = self.groups.iter().map(|group| Grantee::Group(*group));
        [Grantee::User(self.user), Grantee::Everyone].into_iter().chain(groups)
    }
}

/// The object with the list of a key.
pub(super) fn list_of(mos: &Mos, delegations: u64, key: &GrantKey) -> Result<Option<u64>> {
    mos.zap_u64(delegations, &key.name())
}

/// Looks for one permission.
struct Search<'a> {
    mos: &'a Mos,
    permission: &'a str,
    /// Sets that are granted, and whether it is known what is in them.
    sets: BTreeMap<String, bool>,
}

impl Search<'_> {
    fn has(&self, delegations: u64, to: Grantee, reach: Reach) -> Result<Option<bool>> {
        let list = list_of(self.mos, delegations, &GrantKey { to, reach, of_sets: false })?;
        list.map(|list| self.mos.zap_contains(list, self.permission)).transpose()
    }

    /// Adds the sets that are granted; whether there are any.
    fn add_sets(&mut self, delegations: u64, to: Grantee, reach: Reach) -> Result<bool> {
        let Some(list) = list_of(self.mos, delegations, &GrantKey { to, reach, of_sets: true })? else { return Ok(false) };
        for (set, _) in self.mos.zap_entries(list)? {
            self.sets.entry(set).or_insert(false);
        }
        Ok(true)
    }

    /// Whether a set has the permission, as far as this directory says what is in sets.
    fn is_in_sets(&mut self, delegations: u64) -> Result<bool> {
        loop {
            let mut has_more = false;
            let open: Vec<String> = self.sets.iter().filter(|(_, known)| !**known).map(|(set, _)| set.clone()).collect();
            for set in open {
                let found = self.has(delegations, Grantee::Set(set.clone()), Reach::Unsaid)?;
                if found == Some(true) {
                    return Ok(true);
                }
                let has_sets = self.add_sets(delegations, Grantee::Set(set.clone()), Reach::Unsaid)?;
                has_more |= has_sets;
                self.sets.insert(set, found.is_some() || has_sets);
            }
            if !has_more {
                return Ok(false);
            }
        }
    }

    /// Whether one directory grants it.
    fn is_granted_in(&mut self, dir: &Dir, who: &Identity, reach: Reach) -> Result<bool> {
        let delegations = dir.phys().delegations.get();
        if delegations == 0 {
            return Ok(false);
        }
        for to in who.grantees() {
            self.add_sets(delegations, to, reach)?;
        }
        if self.is_in_sets(delegations)? {
            return Ok(true);
        }
        for to in who.grantees() {
            if self.has(delegations, to, reach)? == Some(true) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Whether `who` is granted `permission` on a file system, volume or snapshot.
pub(in crate::dsl) fn is_granted(parts: &Parts, who: &Identity, name: &str, permission: &str) -> Result<bool> {
    // A snapshot need not be there: what is granted on it depends on what it is of.
    let (head, mut reach) = match name.split_once('@') {
        Some((head, _)) => (head, Reach::Descendent),
        None => (name, Reach::Local),
    };
    let mut search = Search { mos: &parts.meta.mos, permission, sets: BTreeMap::new() };
    for dir in parts.tree.dir_by_name(head)?.and_above() {
        if search.is_granted_in(&dir, who, reach)? {
            return Ok(true);
        }
        reach = Reach::Descendent;
    }
    Ok(false)
}

/// Whether `who` will be granted `permission` on what they make below `parent`.
pub(in crate::dsl) fn is_granted_below(parts: &Parts, who: &Identity, parent: &str, permission: &str) -> Result<bool> {
    let mut search = Search { mos: &parts.meta.mos, permission, sets: BTreeMap::new() };
    let above: Vec<_> = parts.tree.dir_by_name(parent)?.and_above().collect();
    for delegations in above.iter().map(|dir| dir.phys().delegations.get()).filter(|delegations| *delegations != 0) {
        if search.has(delegations, Grantee::Creator, Reach::Unsaid)? == Some(true) {
            return Ok(true);
        }
        search.add_sets(delegations, Grantee::Creator, Reach::Unsaid)?;
    }
    for dir in above {
        if search.is_granted_in(&dir, who, Reach::Descendent)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What one directory grants. Keys that make no sense are passed over.
pub(in crate::dsl) fn grants_of(mos: &Mos, dir: &Dir) -> Result<Vec<(GrantKey, Vec<String>)>> {
    let delegations = dir.phys().delegations.get();
    let entries = if delegations == 0 { Vec::new() } else { mos.zap_entries(delegations)? };
    let mut grants = Vec::new();
    for (key, list) in entries {
        let (Some(key), Some(list)) = (GrantKey::parse(&key), list.integers().next()) else { continue };
        grants.push((key, mos.zap_entries(list)?.into_iter().map(|(permission, _)| permission).collect()));
    }
    Ok(grants)
}
