//! What the state of a device means for the agent: pure functions.

use engine::vdev::{VdevConfig, VdevKind, VdevState, key};

/// How a device is, for the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    /// Nothing is to be done.
    Well,
    /// The administrator has taken it out of use.
    Resting,
    /// It is lost, or was found to be suspect.
    Bad,
}

/// How a device is that is described so.
pub(super) fn condition(state: VdevState, described: &VdevConfig) -> Condition {
    match state {
        VdevState::Offline => Condition::Resting,
        VdevState::Removed | VdevState::Unavailable | VdevState::Faulted => Condition::Bad,
        // A write that failed makes it degraded, too; only a diagnosis is written down.
        VdevState::Degraded if described.flag(key::DEGRADED) => Condition::Bad,
        VdevState::Degraded | VdevState::Online => Condition::Well,
    }
}

/// Is something there that holds what a device should, or is to hold it: a spare, or what replaces it? Logs have no spares.
pub(super) fn is_covered(tree: &VdevConfig, guid: u64, is_open: &dyn Fn(u64) -> bool) -> bool {
    let is_log = |top: &VdevConfig| top.flag(key::IS_LOG) && top.find(guid).is_some();
    if tree.children.iter().any(is_log) {
        return true;
    }
    let mut inner = guid;
    while let Some(group) = tree.parent_of(inner) {
        let is_pair = matches!(group.kind, VdevKind::Replacing | VdevKind::Spare);
        let mut others = group.children.iter().filter(|child| child.guid != inner);
        if is_pair && others.any(|other| is_there(other, is_open)) {
            return true;
        }
        if !is_pair {
            break;
        }
        inner = group.guid;
    }
    false
}

/// Is there anything of a vdev? A distributed spare has no device of its own.
fn is_there(vdev: &VdevConfig, is_open: &dyn Fn(u64) -> bool) -> bool {
    match vdev.kind {
        VdevKind::DraidSpare => true,
        _ if vdev.children.is_empty() => is_open(vdev.guid),
        _ => vdev.children.iter().any(|child| is_there(child, is_open)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(kind: VdevKind, guid: u64, children: Vec<VdevConfig>) -> VdevConfig {
        let mut group = VdevConfig::new(kind, 0, guid);
        group.children = children;
        group
    }

    fn disk(guid: u64) -> VdevConfig {
        VdevConfig::new(VdevKind::Disk, 0, guid)
    }

    #[test]
    fn the_administrator_s_devices_and_single_errors_are_left_alone() {
        let mut suspect = disk(1);
        assert_eq!(condition(VdevState::Offline, &suspect), Condition::Resting);
        assert_eq!(condition(VdevState::Degraded, &suspect), Condition::Well);
        suspect.set(key::DEGRADED, 1);
        assert_eq!(condition(VdevState::Degraded, &suspect), Condition::Bad);
        for state in [VdevState::Removed, VdevState::Unavailable, VdevState::Faulted] {
            assert_eq!(condition(state, &disk(1)), Condition::Bad, "{state}");
        }
    }

    #[test]
    fn what_has_a_spare_needs_no_other() {
        let replacing = group(VdevKind::Replacing, 20, vec![disk(3), disk(4)]);
        let spared = group(VdevKind::Spare, 21, vec![replacing, disk(5)]);
        let mut log = disk(9);
        log.set(key::IS_LOG, 1);
        let tree = group(VdevKind::Root, 1, vec![group(VdevKind::Mirror, 10, vec![disk(2), spared]), log]);
        let covered = |guid: u64, open: &[u64]| is_covered(&tree, guid, &|guid| open.contains(&guid));
        assert!(!covered(2, &[3, 4, 5]), "the other side of a mirror is no spare");
        assert!(covered(3, &[4]) && covered(3, &[5]) && !covered(3, &[2]), "what replaces it, or the spare of both");
        assert!(!covered(5, &[2]) && covered(5, &[3]), "a spare that fails is replaced, unless its device is back");
        assert!(covered(9, &[]), "a log");
        // A distributed spare took the place of a spare that failed: it stands in for the device, too.
        let nested = group(VdevKind::Spare, 23, vec![disk(11), VdevConfig::new(VdevKind::DraidSpare, 0, 12)]);
        let spared = group(VdevKind::Spare, 22, vec![disk(10), nested]);
        let tree = group(VdevKind::Root, 1, vec![group(VdevKind::Draid, 30, vec![disk(2), spared])]);
        assert!(is_covered(&tree, 10, &|_| false) && is_covered(&tree, 11, &|_| false));
    }
}
