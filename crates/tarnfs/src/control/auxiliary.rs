//! Hot spares and cache devices, as `zpool status` and `zpool import` show them.
//!
//! # Theory
//! The pool says where they were when it was used last. They may have moved with its other devices, so the directories of those
//! are looked at too; labels tell which is which. A spare that the tree of vdevs has as well stands in for a device.

use std::collections::BTreeMap;
use std::path::PathBuf;

use disk::DiskRef;
use engine::pool::auxiliary::{Auxiliary, find_auxiliary};
use engine::pool::import::Candidate;
use engine::vdev::{VdevConfig, key};
use ondisk::label;

use super::protocol::request::AllocationClass;
use super::protocol::status::{PoolStatus, VdevAux, VdevState, VdevStats, VdevStatus};
use super::scan::{LeafStatus, tree_status};

/// What is known of them when a pool is found or imported.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct AuxiliaryStatus {
    pub(super) spares: Vec<VdevStatus>,
    pub(super) caches: Vec<VdevStatus>,
}

/// Those of `candidate` that are there, by guid. Nobody else is kept from them.
pub(super) fn find_disks(candidate: &Candidate, listed: &Auxiliary) -> BTreeMap<u64, DiskRef> {
    if listed.is_empty() {
        return BTreeMap::new();
    }
    let recorded = listed.spares.iter().chain(&listed.caches).filter_map(|vdev| vdev.string(key::PATH).map(PathBuf::from));
    let mut places: Vec<PathBuf> = recorded.filter(|path| path.is_absolute()).collect();
    places.extend(candidate.device_names().iter().filter_map(|name| Some(PathBuf::from(name).parent()?.to_owned())));
    places.sort();
    places.dedup();
    find_auxiliary(disk::find(&places))
}

impl AuxiliaryStatus {
    /// Looks for those of `candidate`.
    pub(super) fn find(candidate: &Candidate, listed: &Auxiliary) -> AuxiliaryStatus {
        AuxiliaryStatus::of(listed, &find_disks(candidate, listed))
    }

    /// How they are, where just these devices are there.
    pub(super) fn of(listed: &Auxiliary, found: &BTreeMap<u64, DiskRef>) -> AuxiliaryStatus {
        let status = |vdev: &VdevConfig, class: AllocationClass| {
            let mut status = tree_status(vdev, &|leaf| {
                let Some(disk) = found.get(&leaf.guid) else {
                    return LeafStatus { state: VdevState::CantOpen, aux: VdevAux::OpenFailed, stats: VdevStats::default(), path: None };
                };
                let stats = stats_of(leaf, disk.size_bytes(), class);
                LeafStatus { state: VdevState::Healthy, aux: VdevAux::None, stats, path: Some(disk.name().to_owned()) }
            });
            status.class = class;
            status
        };
        AuxiliaryStatus {
            spares: listed.spares.iter().map(|vdev| status(vdev, AllocationClass::Spare)).collect(),
            caches: listed.caches.iter().map(|vdev| status(vdev, AllocationClass::Cache)).collect(),
        }
    }

    /// Puts them into the status of their pool.
    pub(super) fn show_in(&self, pool: &mut PoolStatus) {
        pool.caches.clone_from(&self.caches);
        pool.spares.clone_from(&self.spares);
        for spare in &mut pool.spares {
            if let Some(leaf) = find(&pool.root, spare.guid) {
                (spare.state, spare.aux) = (VdevState::Healthy, VdevAux::Spared);
                spare.path.clone_from(&leaf.path);
                // What it holds is told where it stands in.
                spare.stats = VdevStats::default();
            }
        }
    }
}

/// Of a cache device all but its header can be used.
fn stats_of(vdev: &VdevConfig, device_bytes: u64, class: AllocationClass) -> VdevStats {
    if class != AllocationClass::Cache {
        return VdevStats::default();
    }
    let data = label::data_bytes(device_bytes).unwrap_or(0);
    let ashift = vdev.number(key::ASHIFT).clamp(9, 16);
    VdevStats {
        space: data.saturating_sub(1 << ashift),
        replacement_size: data + label::START_BYTES + label::END_BYTES,
        physical_space: label::usable_bytes(device_bytes),
        ashift,
        ..VdevStats::default()
    }
}

fn find(vdev: &VdevStatus, guid: u64) -> Option<&VdevStatus> {
    if vdev.guid == guid && vdev.children.is_empty() {
        return Some(vdev);
    }
    vdev.children.iter().find_map(|child| find(child, guid))
}
