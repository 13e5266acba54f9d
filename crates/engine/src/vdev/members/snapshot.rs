//! What a top-level vdev consists of at one time: its devices, and how bytes lie on them.
//!
//! # Invariants
//! 1. The leaves are those of the vdev's description, in its order, and the layout knows them by their numbers.

use super::outage::{self, Missed};
use crate::vdev::{Layout, Leaf, VdevConfig, VdevKind};
use std::sync::Arc;

/// See the module.
pub struct Members {
    /// What the vdev is: an attached device makes a mirror of a device.
    pub kind: VdevKind,
    /// The guid of the vdev, which goes with its kind.
    pub guid: u64,
    /// How bytes lie on the leaves.
    pub layout: Layout,
    /// The devices.
    pub leaves: Vec<Arc<Leaf>>,
}

impl Members {
    /// Those that `config` describes. `leaves` are in its order.
    pub(in crate::vdev) fn new(config: &VdevConfig, leaves: Vec<Arc<Leaf>>) -> Members {
        let mut numbers = leaves.iter().map(|leaf| leaf.number());
        let layout = config.layout(&mut || numbers.next().expect("the leaves are those of the description"));
        Members { kind: config.kind.clone(), guid: config.guid, layout, leaves }
    }

    /// The leaf of this number, if it is still there.
    pub fn leaf(&self, number: u32) -> Option<&Arc<Leaf>> {
        // Before anything was exchanged the number is the place.
        let found = self.leaves.get(number as usize).filter(|leaf| leaf.number() == number);
        found.or_else(|| self.leaves.iter().find(|leaf| leaf.number() == number))
    }

    /// The leaf with this guid.
    pub fn leaf_of_guid(&self, guid: u64) -> Option<&Arc<Leaf>> {
        self.leaves.iter().find(|leaf| leaf.guid() == guid)
    }

    /// Would something that was written be nowhere if the leaf of this number were not there?
    #[doc(alias = "vdev_dtl_required")]
    pub fn needs(&self, number: u32) -> bool {
        self.has_outage_without(&[number])
    }

    /// As [`Members::needs`], if those that are being replaced in other columns than its own fail, too.
    pub fn needs_beside_replacements(&self, number: u32, config: &VdevConfig) -> bool {
        let mut without = vec![number];
        if self.layout.has_parity() {
            let replacing = config.children.iter().filter(|child| child.kind == VdevKind::Replacing);
            for child in replacing {
                let leaves: Vec<u32> = child.leaves().iter().filter_map(|leaf| Some(self.leaf_of_guid(leaf.guid)?.number())).collect();
                if !leaves.contains(&number) {
                    without.extend(leaves);
                }
            }
        }
        self.has_outage_without(&without)
    }

    /// Is something that was written nowhere?
    pub(super) fn has_outage(&self) -> bool {
        self.has_outage_without(&[])
    }

    fn has_outage_without(&self, without: &[u32]) -> bool {
        let of_leaf = |leaf: &u32| self.leaf(*leaf).map(|leaf| leaf.outage());
        let others = |leaves: &Vec<u32>| -> Vec<Missed> { leaves.iter().filter(|leaf| !without.contains(leaf)).filter_map(of_leaf).collect() };
        let parity = self.layout.columns().1;
        self.layout.column_sets().iter().any(|columns| outage::has_outage(&columns.iter().map(others).collect::<Vec<_>>(), parity))
    }
}
