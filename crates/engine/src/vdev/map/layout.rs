//! The tree of a top-level vdev, for I/O.

use std::ops::Range;

use super::raidz::Raidz;
use super::{Column, Content, IoMap, LeafId, Row, Side};

/// A block of this size stands for all where the space that parity takes is left out of what users are told.
const TYPICAL_BLOCK: u64 = 128 << 10;

/// A vdev below a top-level vdev, or that itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// The leaf of this number.
    Leaf(u32),
    /// All children hold the same: a mirror, a device and what replaces it, a device and its spare.
    Same(Vec<Node>),
}

impl Node {
    /// The leaves that have what is at `offset` of this vdev.
    fn sides(&self, vdev: u32, offset: u64, sides: &mut Vec<Side>) {
        match self {
            Node::Leaf(leaf) => sides.push(Side { leaf: LeafId { vdev, leaf: *leaf }, offset }),
            Node::Same(children) => children.iter().for_each(|child| child.sides(vdev, offset, sides)),
        }
    }

    /// The leaves of which one is enough to have all that is here.
    fn leaves(&self, leaves: &mut Vec<u32>) {
        match self {
            Node::Leaf(leaf) => leaves.push(*leaf),
            Node::Same(children) => children.iter().for_each(|child| child.leaves(leaves)),
        }
    }
}

/// How bytes lie on the children of a top-level vdev.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Form {
    Same(Node),
    Raidz(Raidz, Vec<Node>),
}

/// A top-level vdev, as far as I/O and space go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    vdev: u32,
    ashift: u32,
    form: Form,
}

impl Layout {
    /// A top-level vdev of this number that is a leaf, or vdevs that hold the same.
    pub fn same(vdev: u32, ashift: u32, node: Node) -> Layout {
        Layout { vdev, ashift, form: Form::Same(node) }
    }

    /// A top-level vdev of this number with the bytes in columns on `children`, `parity` of each block parity.
    pub fn raidz(vdev: u32, ashift: u32, parity: u64, children: Vec<Node>) -> Layout {
        Layout { vdev, ashift, form: Form::Raidz(Raidz { width: children.len() as u64, parity, ashift }, children) }
    }

    /// What `length` bytes at `offset` are in I/Os of leaves.
    pub fn map(&self, offset: u64, length: usize) -> IoMap {
        let sides = |node: &Node, offset| {
            let mut sides = Vec::new();
            node.sides(self.vdev, offset, &mut sides);
            sides
        };
        match &self.form {
            Form::Same(node) => {
                let column = Column { content: Content::Data(0..length), length, sides: sides(node, offset) };
                IoMap { rows: vec![Row { columns: vec![column] }], length }
            }
            Form::Raidz(raidz, children) => {
                let columns = raidz.columns(offset, length as u64).into_iter();
                let columns = columns.map(|part| {
                    let sides = sides(&children[part.child], part.offset);
                    Column { content: part.content, length: part.length, sides }
                });
                IoMap { rows: vec![Row { columns: columns.collect() }], length }
            }
        }
    }

    /// The numbers of the leaves by column: of each set one leaf has to have what is written, except in as many as there is parity.
    pub fn columns(&self) -> (Vec<Vec<u32>>, usize) {
        let leaves = |node: &Node| {
            let mut leaves = Vec::new();
            node.leaves(&mut leaves);
            leaves
        };
        match &self.form {
            Form::Same(node) => (vec![leaves(node)], 0),
            Form::Raidz(raidz, children) => (children.iter().map(leaves).collect(), raidz.parity as usize),
        }
    }

    /// What of a range that is no block, but free or to be moved, lies on the leaf of this number: a range of the leaf. `None`: nothing.
    #[doc(alias = "vdev_xlate")]
    pub fn on_leaf(&self, leaf: u32, range: Range<u64>) -> Option<Range<u64>> {
        let has = |node: &Node| {
            let mut leaves = Vec::new();
            node.leaves(&mut leaves);
            leaves.contains(&leaf)
        };
        let found = match &self.form {
            Form::Same(node) => Some(range).filter(|_| has(node)),
            Form::Raidz(raidz, children) => {
                let child = children.iter().position(has)?;
                Some(raidz.on_child(child as u64, &range))
            }
        };
        found.filter(|range| !range.is_empty())
    }

    /// On how many disks the data of a large block lies.
    pub fn data_disks(&self) -> u64 {
        match &self.form {
            Form::Same(_) => 1,
            Form::Raidz(raidz, _) => raidz.width - raidz.parity,
        }
    }

    /// What each leaf has of a vdev with so many bytes for data.
    pub fn leaf_bytes(&self, asize: u64) -> u64 {
        match &self.form {
            Form::Same(_) => asize,
            Form::Raidz(raidz, _) => asize.div_ceil(raidz.width),
        }
    }

    /// The bytes for data of a vdev whose smallest leaf has so many.
    pub fn asize_of(&self, leaf_bytes: u64) -> u64 {
        match &self.form {
            Form::Same(_) => leaf_bytes,
            Form::Raidz(raidz, _) => leaf_bytes.saturating_mul(raidz.width),
        }
    }

    /// What `physical` bytes take on disk.
    #[doc(alias = "vdev_psize_to_asize")]
    pub fn allocated_size(&self, physical: u64) -> u64 {
        match &self.form {
            Form::Same(_) => physical.next_multiple_of(1 << self.ashift),
            Form::Raidz(raidz, _) => raidz.allocated_size(physical),
        }
    }

    /// What `allocated` bytes count in quotas and statistics.
    pub fn deflated_size(&self, allocated: u64) -> u64 {
        deflated_size(allocated, |physical| self.allocated_size(physical))
    }
}

/// What `allocated` bytes count in quotas and statistics, where so much is allocated for a physical size: without the
/// share of parity, and as if there were no other rounding than of a block of 128 KiB.
#[doc(alias = "vdev_deflate_ratio")]
pub fn deflated_size(allocated: u64, allocated_size: impl Fn(u64) -> u64) -> u64 {
    allocated / 512 * (TYPICAL_BLOCK / (allocated_size(TYPICAL_BLOCK) / 512).max(1))
}
