//! The vdevs of an imported pool in the words of `control`.

use std::collections::BTreeMap;

use engine::alloc::ClassKind;
use engine::vdev::{self, Leaf, Reason, TopVdev, VdevConfig, key};
use ondisk::label;

use super::leaf_work;
use crate::Pool;
use crate::control::scan::{LeafStatus, tree_status};
use crate::control::{AllocationClass, Requests, VdevAux, VdevKind, VdevState, VdevStats, VdevStatus};

pub(super) fn state_of(state: vdev::VdevState) -> VdevState {
    match state {
        vdev::VdevState::Offline => VdevState::Offline,
        vdev::VdevState::Removed => VdevState::Removed,
        vdev::VdevState::Unavailable => VdevState::CantOpen,
        vdev::VdevState::Faulted => VdevState::Faulted,
        vdev::VdevState::Degraded => VdevState::Degraded,
        vdev::VdevState::Online => VdevState::Healthy,
    }
}

/// Why a leaf is not online.
fn aux_of(status: &vdev::VdevStatus) -> VdevAux {
    match (status.reason, status.state) {
        (Reason::NotFound | Reason::None, vdev::VdevState::Unavailable) => VdevAux::OpenFailed,
        (Reason::TooSmall, _) => VdevAux::TooSmall,
        (Reason::BadLabel, _) => VdevAux::BadLabel,
        (Reason::Errors, _) => VdevAux::TooManyErrors,
        (Reason::Persistent, vdev::VdevState::Faulted | vdev::VdevState::Degraded) => VdevAux::External,
        _ => VdevAux::None,
    }
}

fn gather_leaves<'a>(status: &'a vdev::VdevStatus, leaves: &mut BTreeMap<u64, &'a vdev::VdevStatus>) {
    if status.children.is_empty() {
        leaves.insert(status.guid, status);
    }
    status.children.iter().for_each(|child| gather_leaves(child, leaves));
}

fn requests(of: vdev::Requests) -> Requests {
    Requests { wait: of.wait, single: of.single, joined: of.joined, active: of.active }
}

fn leaf_status(status: &vdev::VdevStatus) -> LeafStatus {
    let [read_requests, log_requests, write_requests, trim_requests] = status.requests.clone().map(requests);
    let stats = VdevStats {
        read_requests,
        log_requests,
        write_requests,
        trim_requests,
        reads: status.reads,
        writes: status.writes,
        read_bytes: status.read_bytes,
        written_bytes: status.written_bytes,
        read_errors: status.read_errors,
        write_errors: status.write_errors,
        checksum_errors: status.checksum_errors,
        slow_ios: status.slow_ios,
        sits_out: status.sits_out,
        scan_processed: status.scan_processed,
        rebuild_processed: status.rebuild_processed,
        self_healed: status.self_healed,
        physical_space: label::usable_bytes(status.device_bytes),
        ..VdevStats::default()
    };
    LeafStatus { state: state_of(status.state), aux: aux_of(status), stats, path: None }
}

/// The tree of a pool, with space and counters.
pub(in crate::control::pools) fn pool_status(pool: &Pool) -> VdevStatus {
    let tree = &pool.engine().vdevs;
    let status = tree.status();
    let mut leaves = BTreeMap::new();
    gather_leaves(&status, &mut leaves);
    let missing = || LeafStatus { state: VdevState::CantOpen, aux: VdevAux::OpenFailed, stats: VdevStats::default(), path: None };
    let config = tree.config();
    let mut root = tree_status(&config, &|leaf| leaves.get(&leaf.guid).map_or_else(missing, |status| leaf_status(status)));
    note_absent(&mut root);
    note_deferred(&mut root, &pool.engine().awaiting_resilver());
    leaf_work::show(pool.engine(), &mut root);
    add_traffic(&mut root);
    for (top, config) in root.children.iter_mut().zip(&config.children) {
        add_space(pool, top, config);
    }
    let capacity = pool.engine().capacity();
    let stats = &mut root.stats;
    (stats.space, stats.allocated, stats.deflated_space) = (capacity.size, capacity.allocated, capacity.size);
    stats.fragmentation = Some(capacity.fragmentation);
    root
}

/// What cache devices hold, and how they do.
pub(in crate::control::pools) fn show_caches(pool: &Pool, caches: &mut [VdevStatus]) {
    for device in pool.engine().context.cache.device_statuses() {
        let Some(shown) = caches.iter_mut().find(|cache| cache.guid == device.status.guid) else { continue };
        let LeafStatus { state, aux, stats, .. } = leaf_status(&device.status);
        let known = std::mem::take(&mut shown.stats);
        (shown.state, shown.aux) = (state, aux);
        shown.stats = VdevStats {
            allocated: device.allocated,
            space: device.space,
            replacement_size: known.replacement_size,
            physical_space: known.physical_space,
            ashift: known.ashift,
            ..stats
        };
    }
}

fn note_deferred(vdev: &mut VdevStatus, deferred: &[u64]) {
    vdev.stats.resilver_deferred = deferred.contains(&vdev.guid);
    vdev.children.iter_mut().for_each(|child| note_deferred(child, deferred));
}

/// A device that could not be opened was not there when the pool was imported: it is known by its number.
fn note_absent(vdev: &mut VdevStatus) {
    vdev.not_present |= vdev.children.is_empty() && vdev.state == VdevState::CantOpen && vdev.aux == VdevAux::OpenFailed;
    vdev.children.iter_mut().for_each(note_absent);
}

/// What a vdev does is what those below it do.
fn add_traffic(vdev: &mut VdevStatus) {
    for child in &mut vdev.children {
        add_traffic(child);
        let (sum, of) = (&mut vdev.stats, &child.stats);
        sum.reads += of.reads;
        sum.writes += of.writes;
        sum.read_bytes += of.read_bytes;
        sum.written_bytes += of.written_bytes;
        sum.read_requests.add(&of.read_requests);
        sum.log_requests.add(&of.log_requests);
        sum.write_requests.add(&of.write_requests);
        sum.trim_requests.add(&of.trim_requests);
    }
}

/// What the allocator knows of a top-level vdev.
fn add_space(pool: &Pool, top: &mut VdevStatus, config: &VdevConfig) {
    set_ashift(top, config.number(key::ASHIFT));
    top.stats.removing = config.number(key::REMOVING) != 0;
    top.stats.map_bytes = pool.engine().map_bytes(config.id);
    if config.number(key::NON_ALLOCATING) != 0 {
        set_closed(top);
    }
    let allocator = pool.engine().context.io.allocator();
    let Some(group) = u32::try_from(config.id).ok().and_then(|id| allocator.group(id).ok()) else { return };
    let class = match group.config().class {
        ClassKind::Special => AllocationClass::Special,
        ClassKind::Dedup => AllocationClass::Dedup,
        _ => top.class,
    };
    set_class(top, class);
    let space = group.space_use();
    let stats = &mut top.stats;
    // What waits to be used again is free to a user: of a pool at rest it waits until more is written.
    (stats.space, stats.allocated, stats.deflated_space) = (space.space, space.allocated.saturating_sub(space.deferred), space.space);
    stats.fragmentation = Some(group.fragmentation());
    // The maps of a pool that has stopped may not be there any more.
    stats.checkpoint_space = pool.engine().checkpoint_bytes(config.number(key::TOP_ZAP)).unwrap_or(0);
    set_replacement_size(top, space.space);
    if let Some(vdev) = pool.engine().vdevs.data_tops().into_iter().find(|vdev| vdev.id() == config.id) {
        set_expandable(&vdev, top);
    }
}

/// What devices have grown by and is not used: whole metaslabs, of a vdev and of each of its devices.
fn set_expandable(vdev: &TopVdev, top: &mut VdevStatus) {
    let leaves = vdev.leaves();
    let whole = |bytes: u64| bytes >> vdev.metaslab_shift() << vdev.metaslab_shift();
    top.stats.expandable = whole(vdev.expandable());
    // Of columns each has its part.
    let parts = if matches!(top.kind, VdevKind::Raidz { .. } | VdevKind::Draid { .. }) { leaves.len().max(1) as u64 } else { 1 };
    let beyond = |leaf: &Leaf| vdev.layout().asize_of(label::data_bytes(leaf.device_bytes()).unwrap_or(0)).saturating_sub(vdev.asize());
    let of = |guid| leaves.iter().find(|leaf| leaf.guid() == guid && leaf.is_open()).map_or(0, |leaf| whole(beyond(leaf) / parts));
    set_expandable_of_devices(&mut top.children, &of);
}

fn set_expandable_of_devices(children: &mut [VdevStatus], of: &dyn Fn(u64) -> u64) {
    for child in children {
        if child.children.is_empty() {
            child.stats.expandable = of(child.guid);
        }
        set_expandable_of_devices(&mut child.children, of);
    }
}

/// The size that whatever takes the place of a vdev must have: of a device, with its labels.
fn set_replacement_size(vdev: &mut VdevStatus, space: u64) {
    let labels = if vdev.children.is_empty() { label::START_BYTES + label::END_BYTES } else { 0 };
    vdev.stats.replacement_size = space + labels;
    vdev.children.iter_mut().for_each(|child| set_replacement_size(child, space));
}

/// Nothing new goes to a vdev, nor to any below it.
fn set_closed(vdev: &mut VdevStatus) {
    vdev.stats.not_allocating = true;
    vdev.children.iter_mut().for_each(set_closed);
}

/// The configuration says so of logs only; of others their ZAP does.
fn set_class(vdev: &mut VdevStatus, class: AllocationClass) {
    if vdev.class != AllocationClass::Spare {
        vdev.class = class;
    }
    vdev.children.iter_mut().for_each(|child| set_class(child, class));
}

fn set_ashift(vdev: &mut VdevStatus, ashift: u64) {
    vdev.stats.ashift = ashift;
    vdev.children.iter_mut().for_each(|child| set_ashift(child, ashift));
}
