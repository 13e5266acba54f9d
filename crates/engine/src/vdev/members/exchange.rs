//! Exchanging what a top-level vdev consists of.

use std::sync::Arc;

use super::Members;
use crate::error::Result;
use crate::vdev::{Leaf, TopVdev, VdevConfig, VdevKind};
use crate::{bail, error};

impl TopVdev {
    /// Exchanges what it consists of: `change` says how it is described from now on, with leaves that are there and of `new`. It may
    /// refuse, and while it decides nothing that was written is judged. It must not ask this vdev for anything: that has its locks.
    ///
    /// # Errors
    /// Those of `change`; everything is as it was.
    pub fn exchange(&self, new: &[Arc<Leaf>], change: impl FnOnce(&Members, &VdevConfig) -> Result<VdevConfig>) -> Result<()> {
        let (mut members, mut config) = self.lock_to_exchange();
        let mut changed = change(&members, &config)?;
        let leaves = changed.leaves().into_iter().map(|leaf| {
            let found = members.leaves.iter().chain(new).find(|other| other.guid() == leaf.guid);
            found.cloned().ok_or_else(|| error!(Invalid, "vdev {}: no device has guid {}", self.id(), leaf.guid))
        });
        let leaves = leaves.collect::<Result<Vec<_>>>()?;
        changed.id = self.id();
        *members = Arc::new(Members::new(&changed, leaves));
        self.note_size(&changed);
        *config = changed;
        self.set_config_dirty();
        Ok(())
    }

    /// Puts `new`, which `described` describes, beside the leaf of guid `old`, in a group of that kind (see [`VdevConfig::with_beside`]).
    ///
    /// # Errors
    /// There is no such leaf.
    pub fn attach_leaf(&self, old: u64, new: &Arc<Leaf>, described: VdevConfig, kind: VdevKind, group: u64) -> Result<()> {
        self.exchange(std::slice::from_ref(new), |_, config| config.with_beside(old, described, kind, group))
    }

    /// Takes out the distributed spare of this guid.
    ///
    /// # Errors
    /// `Unsupported`: it stands in for nothing. `Busy`: the others have not all that it has.
    pub fn detach_distributed(&self, guid: u64) -> Result<()> {
        self.exchange(&[], |members, config| {
            let changed = config.without(guid)?;
            let after = Members::new(&changed, members.leaves.clone());
            if after.has_outage() && !members.has_outage() {
                bail!(Busy, "the others have not all that a distributed spare has");
            }
            Ok(changed)
        })
    }

    /// Takes out the leaf of this guid, and returns it.
    ///
    /// # Errors
    /// `Unsupported`: it is no member of a mirror. `Busy`: the others have not all that it has.
    pub fn detach_leaf(&self, guid: u64) -> Result<Arc<Leaf>> {
        let mut gone = None;
        self.exchange(&[], |members, config| {
            let Some(leaf) = members.leaf_of_guid(guid) else { bail!(NotFound, "no device has guid {guid}") };
            let changed = config.without(guid)?;
            if members.needs(leaf.number()) {
                bail!(Busy, "{}: the others have not all that it has", leaf.name());
            }
            // The device that is left may take the place of the group, with its guid.
            if changed.kind.is_leaf() && members.leaf_of_guid(changed.guid).is_none() {
                members.leaves.iter().filter(|other| other.guid() != guid).for_each(|last| last.set_guid(changed.guid));
            }
            gone = Some(leaf.clone());
            Ok(changed)
        })?;
        gone.ok_or_else(|| error!(NotFound, "no device has guid {guid}"))
    }
}
