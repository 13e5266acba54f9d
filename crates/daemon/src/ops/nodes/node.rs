//! Node numbers: which file system, which inode.

use tarnfs::InodeNumber;

/// Bits of an object number.
const OBJECT_BITS: u32 = 48;
const OBJECT_MASK: u64 = (1 << OBJECT_BITS) - 1;
/// The slot of the nodes of `.zfs`.
const CONTROL_SLOT: u16 = u16::MAX;

/// `.zfs`.
pub(crate) const CONTROL_DIRECTORY: u64 = (CONTROL_SLOT as u64) << OBJECT_BITS | 1;
/// `.zfs/snapshot`.
pub(crate) const SNAPSHOT_DIRECTORY: u64 = (CONTROL_SLOT as u64) << OBJECT_BITS | 2;

/// A node number, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Node {
    /// The root directory of the dataset.
    Root,
    /// A file of the dataset.
    Head(InodeNumber),
    /// A file of a snapshot: slot (never 0) and inode.
    Snapshot(u16, InodeNumber),
    /// `.zfs`.
    Control,
    /// `.zfs/snapshot`.
    Snapshots,
    /// No node of ours.
    Foreign,
}

impl Node {
    pub(crate) fn of(number: u64) -> Node {
        match number {
            fuse::ROOT_NODE => Node::Root,
            CONTROL_DIRECTORY => Node::Control,
            SNAPSHOT_DIRECTORY => Node::Snapshots,
            _ => match ((number >> OBJECT_BITS) as u16, number & OBJECT_MASK) {
                (0, object) => Node::Head(object),
                (CONTROL_SLOT, _) => Node::Foreign,
                (slot, object) => Node::Snapshot(slot, object),
            },
        }
    }
}

/// The node number of an inode in a slot. The root of slot 0 has another, see [`Node::Root`].
pub(crate) fn number(slot: u16, inode: InodeNumber) -> u64 {
    u64::from(slot) << OBJECT_BITS | inode & OBJECT_MASK
}

/// Highest number of a slot for a snapshot.
pub(crate) const SLOT_MAX: u16 = CONTROL_SLOT - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_nodes() {
        for (number, node) in [
            (1, Node::Root),
            (34, Node::Head(34)),
            (number(3, 34), Node::Snapshot(3, 34)),
            (number(SLOT_MAX, OBJECT_MASK), Node::Snapshot(SLOT_MAX, OBJECT_MASK)),
            (CONTROL_DIRECTORY, Node::Control),
            (SNAPSHOT_DIRECTORY, Node::Snapshots),
            (u64::MAX, Node::Foreign),
        ] {
            assert_eq!(Node::of(number), node);
        }
    }
}
