//! The engine's tree of vdevs in the words of `control`.

use engine::vdev::{self, Reason, VdevConfig, VdevTree, key};
use ondisk::label;

use crate::Pool;
use crate::control::{AllocationClass, VdevAux, VdevKind, VdevState, VdevStats, VdevStatus};

fn kind_of(config: &VdevConfig) -> VdevKind {
    let parity = u8::try_from(config.number(key::PARITY)).unwrap_or(u8::MAX);
    match &config.kind {
        vdev::VdevKind::Root => VdevKind::Root,
        vdev::VdevKind::Mirror => VdevKind::Mirror,
        vdev::VdevKind::Replacing => VdevKind::Replacing,
        vdev::VdevKind::Spare => VdevKind::Spare,
        vdev::VdevKind::File => VdevKind::File,
        vdev::VdevKind::Disk => VdevKind::Disk,
        vdev::VdevKind::Hole => VdevKind::Hole,
        vdev::VdevKind::Missing => VdevKind::Missing,
        vdev::VdevKind::Other(name) => match name.as_str() {
            "raidz" => VdevKind::Raidz { parity },
            "draid" => VdevKind::Draid {
                parity,
                data: config.number("draid_ndata"),
                children: config.children.len() as u64,
                spares: config.number("draid_nspares"),
            },
            "indirect" => VdevKind::Indirect,
            _ => VdevKind::Missing,
        },
    }
}

fn class_of(config: &VdevConfig) -> AllocationClass {
    match config.string("alloc_bias").as_deref() {
        _ if config.flag(key::IS_LOG) => AllocationClass::Log,
        Some("log") => AllocationClass::Log,
        Some("special") => AllocationClass::Special,
        Some("dedup") => AllocationClass::Dedup,
        _ => AllocationClass::Normal,
    }
}

fn state_of(state: vdev::VdevState) -> VdevState {
    match state {
        vdev::VdevState::Offline => VdevState::Offline,
        vdev::VdevState::Removed => VdevState::Removed,
        vdev::VdevState::Unavailable => VdevState::CantOpen,
        vdev::VdevState::Faulted => VdevState::Faulted,
        vdev::VdevState::Degraded => VdevState::Degraded,
        vdev::VdevState::Online => VdevState::Healthy,
    }
}

/// Why a vdev is not online. What stands for several devices is so for want of them.
fn aux_of(status: &vdev::VdevStatus) -> VdevAux {
    let leafless = !status.children.is_empty();
    match (status.reason, status.state) {
        (_, vdev::VdevState::Unavailable) if leafless => VdevAux::NoReplicas,
        (Reason::NotFound, vdev::VdevState::Unavailable) => VdevAux::OpenFailed,
        (Reason::TooSmall, _) => VdevAux::TooSmall,
        (Reason::Errors, _) => VdevAux::TooManyErrors,
        (Reason::Persistent, vdev::VdevState::Faulted | vdev::VdevState::Degraded) => VdevAux::External,
        (Reason::None, vdev::VdevState::Unavailable) => VdevAux::OpenFailed,
        _ => VdevAux::None,
    }
}

/// The tree, put together from its description and its state. `pool`: if it is open, space is known too.
pub(super) fn tree_status(tree: &VdevTree, pool: Option<&Pool>) -> VdevStatus {
    status_of(&tree.config(), &tree.status(), pool, 0, AllocationClass::Normal, 0)
}

fn status_of(config: &VdevConfig, status: &vdev::VdevStatus, pool: Option<&Pool>, depth: u32, class: AllocationClass, ashift: u64) -> VdevStatus {
    let (class, ashift) = if depth == 1 { (class_of(config), config.number(key::ASHIFT)) } else { (class, ashift) };
    let pairs = config.children.iter().zip(&status.children);
    let children: Vec<VdevStatus> = pairs.map(|(config, status)| status_of(config, status, pool, depth + 1, class, ashift)).collect();
    let mut stats = VdevStats {
        read_errors: status.read_errors,
        write_errors: status.write_errors,
        checksum_errors: status.checksum_errors,
        physical_space: label::usable_bytes(status.device_bytes),
        ashift,
        physical_ashift: 0,
        ..VdevStats::default()
    };
    let group = pool.filter(|_| depth == 1).and_then(|pool| {
        let allocator = pool.engine().context.io.allocator();
        allocator.group(u32::try_from(config.id).ok()?).ok()
    });
    if let Some(group) = group {
        let space = group.space_use();
        (stats.space, stats.allocated, stats.deflated_space) = (space.space, space.allocated, space.space);
        stats.fragmentation = (class != AllocationClass::Log).then(|| group.fragmentation());
    }
    if depth == 0
        && let Some(pool) = pool
    {
        let capacity = pool.engine().capacity();
        (stats.space, stats.allocated, stats.deflated_space) = (capacity.size, capacity.allocated, capacity.size);
        stats.fragmentation = Some(capacity.fragmentation);
    }
    VdevStatus {
        kind: kind_of(config),
        id: config.id,
        guid: config.guid,
        path: config.string(key::PATH),
        physical_path: config.string(key::PHYSICAL_PATH),
        device_id: config.string(key::DEVID),
        whole_disk: config.flag(key::WHOLE_DISK),
        not_present: config.flag("not_present") || (status.children.is_empty() && status.reason == Reason::NotFound && pool.is_some()),
        class,
        state: state_of(status.state),
        aux: aux_of(status),
        stats,
        children,
    }
}

/// The tree as labels describe it, where nothing can be said of its state: `has` says which devices are there.
pub(super) fn config_status(config: &VdevConfig, has: &dyn Fn(u64) -> bool) -> VdevStatus {
    let children: Vec<VdevStatus> = config.children.iter().map(|child| config_status(child, has)).collect();
    let is_there = if children.is_empty() { has(config.guid) } else { children.iter().any(|child| child.state == VdevState::Healthy) };
    VdevStatus {
        kind: kind_of(config),
        id: config.id,
        guid: config.guid,
        path: config.string(key::PATH),
        physical_path: config.string(key::PHYSICAL_PATH),
        device_id: config.string(key::DEVID),
        whole_disk: config.flag(key::WHOLE_DISK),
        not_present: false,
        class: class_of(config),
        state: if is_there { VdevState::Healthy } else { VdevState::CantOpen },
        aux: if is_there { VdevAux::None } else { VdevAux::OpenFailed },
        stats: VdevStats::default(),
        children,
    }
}
