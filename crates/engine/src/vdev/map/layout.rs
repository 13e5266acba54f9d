//! The tree of a top-level vdev, for I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use super::draid::Draid;
use super::expanded::{Narrow, Reflow, Widths};
use super::raidz::{Part, Raidz};
use super::{Column, Content, IoMap, LeafId, Row, Side};

/// A block of this size stands for all where the space that parity takes is left out of what users are told.
const TYPICAL_BLOCK: u64 = 128 << 10;
/// The group of the first blocks: what a vdev was made with.
const FIRST_BIRTH: u64 = 0;

/// A vdev below a top-level vdev, or that itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// The leaf of this number.
    Leaf(u32),
    /// All children hold the same: a mirror, a device and what replaces it, a device and its spare.
    Same(Vec<Node>),
    /// Room that the children of a dRAID vdev keep free.
    Distributed {
        /// Which of its spares.
        spare: u64,
        /// It has not all that it is to have.
        is_behind: bool,
    },
}

impl Node {
    /// The leaves of which one is enough to have all that is here.
    fn leaves(&self, leaves: &mut Vec<u32>) {
        match self {
            Node::Leaf(leaf) => leaves.push(*leaf),
            Node::Same(children) => children.iter().for_each(|child| child.leaves(leaves)),
            Node::Distributed { .. } => {}
        }
    }

    /// As [`Node::leaves`], with those of the children that spares which have everything are; `left`: how many spares may still stand for one another.
    fn leaves_with(&self, spares: &BTreeMap<u64, &Node>, left: usize, leaves: &mut Vec<u32>) {
        match self {
            Node::Leaf(leaf) => leaves.push(*leaf),
            Node::Same(children) => children.iter().for_each(|child| child.leaves_with(spares, left, leaves)),
            Node::Distributed { spare, is_behind: false } if left > 0 => {
                if let Some(child) = spares.get(spare) {
                    child.leaves_with(spares, left - 1, leaves);
                }
            }
            Node::Distributed { .. } => {}
        }
    }

    /// The distributed spares that have everything.
    fn add_whole_spares(&self, spares: &mut BTreeSet<u64>) {
        match self {
            Node::Leaf(_) | Node::Distributed { is_behind: true, .. } => {}
            Node::Same(children) => children.iter().for_each(|child| child.add_whole_spares(spares)),
            Node::Distributed { spare, is_behind: false } => drop(spares.insert(*spare)),
        }
    }
}

/// How bytes lie on the children of a top-level vdev.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Form {
    Same(Node),
    Raidz(Widths, u64, Vec<Node>),
    /// With the sets of columns, where spares have everything ([`Layout::column_sets`]).
    Draid(Draid, Vec<Node>, Arc<[Columns]>),
}

/// The leaves of each column.
pub type Columns = Vec<Vec<u32>>;

/// A top-level vdev, as far as I/O and space go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    vdev: u32,
    ashift: u32,
    form: Form,
}

/// An I/O of a top-level vdev.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Where it begins.
    pub offset: u64,
    /// Its bytes.
    pub length: usize,
    /// The group in which the block was written, or is.
    pub birth: u64,
}

impl Layout {
    /// A top-level vdev of this number that is a leaf, or vdevs that hold the same.
    pub fn same(vdev: u32, ashift: u32, node: Node) -> Layout {
        Layout { vdev, ashift, form: Form::Same(node) }
    }

    /// A top-level vdev of this number with the bytes in columns on `children`, `parity` of each block parity.
    pub fn raidz(vdev: u32, ashift: u32, parity: u64, children: Vec<Node>) -> Layout {
        Layout::expanded(vdev, ashift, parity, Widths::one(children.len() as u64), children)
    }

    /// As [`Layout::raidz`], where blocks are not all as wide as there are children.
    pub fn expanded(vdev: u32, ashift: u32, parity: u64, widths: Widths, children: Vec<Node>) -> Layout {
        Layout { vdev, ashift, form: Form::Raidz(widths, parity, children) }
    }

    /// A dRAID vdev of this number.
    pub fn draid(vdev: u32, ashift: u32, draid: Draid, children: Vec<Node>) -> Layout {
        let sets = spared_columns(&draid, &children).into();
        Layout { vdev, ashift, form: Form::Draid(draid, children, sets) }
    }

    /// Where `length` bytes at `offset` are that were written in the group `birth`.
    pub fn map(&self, offset: u64, length: usize, birth: u64) -> IoMap {
        self.map_while(&Wanted { offset, length, birth }, None, false)
    }

    /// What an I/O is in I/Os of leaves, while sectors are moved as `reflow` says; with `writes`, with all places where something has to be written.
    pub fn map_while(&self, wanted: &Wanted, reflow: Option<Reflow>, writes: bool) -> IoMap {
        let Wanted { offset, length, birth } = *wanted;
        match &self.form {
            Form::Same(node) => {
                let column = Column { content: Content::Data(0..length), length, sector: 0, sides: self.sides(node, offset, None) };
                IoMap { rows: vec![Row { columns: vec![column] }], length, ..IoMap::default() }
            }
            Form::Raidz(widths, parity, children) => {
                let (width, parity) = (widths.of(birth), *parity);
                if width == children.len() as u64 {
                    let raidz = Raidz { width, parity, ashift: self.ashift };
                    let row = self.row(children, None, raidz.columns(offset, length as u64));
                    return IoMap { rows: vec![row], length, ..IoMap::default() };
                }
                let narrow = Narrow { width, children: children.len() as u64, parity, ashift: self.ashift };
                let found = narrow.rows(offset, length, reflow);
                let mut rows: Vec<Row> = found.rows.into_iter().map(|parts| self.row(children, None, parts)).collect();
                let mut moved: Vec<Row> = found.shadows.into_iter().map(|parts| self.shadow(children, parts)).collect();
                if writes {
                    rows.append(&mut moved);
                }
                IoMap { rows, length, widths: (widths.first()..=children.len() as u64).rev().collect(), moved, ..IoMap::default() }
            }
            Form::Draid(draid, children, _) => {
                let rows = draid.rows(offset, length).into_iter();
                IoMap { rows: rows.map(|parts| self.row(children, Some(draid), parts)).collect(), length, ..IoMap::default() }
            }
        }
    }

    fn row(&self, children: &[Node], draid: Option<&Draid>, parts: Vec<Part>) -> Row {
        let column = |part: Part| {
            let sides = if part.length == 0 { Vec::new() } else { self.sides(&children[part.child], part.offset, draid.map(|draid| (draid, children))) };
            Column { content: part.content, length: part.length, sector: part.sector, sides }
        };
        Row { columns: parts.into_iter().map(column).collect() }
    }

    /// The same row in its other places, as far as it has any.
    fn shadow(&self, children: &[Node], parts: Vec<(Part, bool)>) -> Row {
        let column = |(part, is_there): (Part, bool)| {
            let sides = if is_there { self.sides(&children[part.child], part.offset, None) } else { Vec::new() };
            Column { content: part.content, length: part.length, sector: part.sector, sides }
        };
        Row { columns: parts.into_iter().map(column).collect() }
    }

    /// The leaves that have what is at `offset` of a child.
    fn sides(&self, node: &Node, offset: u64, draid: Option<(&Draid, &[Node])>) -> Vec<Side> {
        let mut sides = Vec::new();
        let depth = draid.map_or(0, |(draid, _)| draid.shape().spares);
        self.add_sides(node, offset, draid, (depth, false), &mut sides);
        sides
    }

    /// `left`: how many spares may still stand for one another. `is_stale`: one of those on the way has not all that it is to have.
    fn add_sides(&self, node: &Node, offset: u64, draid: Option<(&Draid, &[Node])>, (left, is_stale): (u64, bool), sides: &mut Vec<Side>) {
        match (node, draid) {
            (Node::Leaf(leaf), _) => {
                let leaf = LeafId { vdev: self.vdev, leaf: *leaf };
                if sides.iter().all(|side: &Side| side.leaf != leaf) {
                    sides.push(Side { leaf, offset, is_stale });
                }
            }
            (Node::Same(children), _) => children.iter().for_each(|child| self.add_sides(child, offset, draid, (left, is_stale), sides)),
            (Node::Distributed { spare, is_behind }, Some((draid, children))) if left > 0 => {
                let child = &children[draid.spare_child(*spare, offset)];
                self.add_sides(child, offset, Some((draid, children)), (left - 1, is_stale || *is_behind), sides);
            }
            (Node::Distributed { .. }, _) => {}
        }
    }

    /// The numbers of the leaves by column: of each set one leaf has to have what is written, except in as many as there is parity.
    pub fn columns(&self) -> (Columns, usize) {
        let leaves = |node: &Node| {
            let mut leaves = Vec::new();
            node.leaves(&mut leaves);
            leaves
        };
        match &self.form {
            Form::Same(node) => (vec![leaves(node)], 0),
            Form::Raidz(_, parity, children) => (children.iter().map(leaves).collect(), *parity as usize),
            Form::Draid(draid, children, _) => (children.iter().map(leaves).collect(), draid.shape().parity as usize),
        }
    }

    /// As [`Layout::columns`], where distributed spares have everything that stands in them, too: which leaves these are is another thing in each slice. So there are
    /// several sets, and in each of them no more columns than there is parity may be lost.
    pub fn column_sets(&self) -> Vec<Columns> {
        match &self.form {
            Form::Draid(_, _, sets) if !sets.is_empty() => sets.to_vec(),
            _ => vec![self.columns().0],
        }
    }

    /// Does a distributed spare stand in that has everything?
    pub fn has_whole_spares(&self) -> bool {
        matches!(&self.form, Form::Draid(_, _, sets) if !sets.is_empty())
    }

    /// Can everything be had although the columns are lost of which this says so?
    pub fn tolerates(&self, is_lost: &dyn Fn(&Vec<u32>) -> bool) -> bool {
        let (columns, parity) = self.columns();
        let is_enough = |columns: &Columns| columns.iter().filter(|leaves| is_lost(leaves)).count() <= parity;
        match &self.form {
            Form::Draid(_, _, sets) if !sets.is_empty() => sets.iter().all(is_enough),
            _ => is_enough(&columns),
        }
    }

    /// Can it be rebuilt from its space maps, without block pointers?
    #[doc(alias = "vdev_op_rebuild_asize")]
    pub fn can_rebuild(&self) -> bool {
        !matches!(self.form, Form::Raidz(..))
    }

    /// What is rebuilt at once of `allocated` bytes at `offset`, where a column has about `segment`: how much of them, and the bytes of data in it.
    pub fn rebuild_piece(&self, offset: u64, allocated: u64, segment: u64) -> (u64, u64) {
        match &self.form {
            Form::Same(_) | Form::Raidz(..) => (allocated.min(segment), allocated.min(segment)),
            Form::Draid(draid, ..) => draid.rebuild_piece(offset, allocated, segment),
        }
    }

    /// Where a range of whole units of allocation that begins at `offset` must end to lie as a range on each leaf: on dRAID each group has other children.
    pub fn range_end(&self, offset: u64) -> u64 {
        match &self.form {
            Form::Same(_) | Form::Raidz(..) => u64::MAX,
            Form::Draid(draid, ..) => draid.group_end(offset),
        }
    }

    /// Does a range that is no block lie as a range on each leaf ([`Layout::range_end`])? Not while sectors are moved to a new one.
    pub fn has_ranges(&self) -> bool {
        match &self.form {
            Form::Same(_) => true,
            Form::Raidz(widths, _, children) => widths.last() == children.len() as u64,
            Form::Draid(..) => true,
        }
    }

    /// What of a range that is no block, but free or to be moved, lies on the leaf of this number: a range of the leaf. Of one that is longer than [`Layout::range_end`] says
    /// it is what encloses all of it. `None`: nothing.
    #[doc(alias = "vdev_xlate")]
    pub fn on_leaf(&self, leaf: u32, range: Range<u64>) -> Option<Range<u64>> {
        if !self.has_ranges() {
            return None;
        }
        let has = |node: &Node| {
            let mut leaves = Vec::new();
            node.leaves(&mut leaves);
            leaves.contains(&leaf)
        };
        let found = match &self.form {
            Form::Same(node) => Some(range).filter(|_| has(node)),
            Form::Raidz(_, parity, children) => {
                let child = children.iter().position(has)?;
                let raidz = Raidz { width: children.len() as u64, parity: *parity, ashift: self.ashift };
                Some(raidz.on_child(child as u64, &range))
            }
            Form::Draid(draid, children, _) => draid.on_child(children.iter().position(has)?, &range),
        };
        found.filter(|range| !range.is_empty())
    }

    /// Do all of its blocks have the same bytes on each leaf, with nothing to compute?
    pub fn has_parity(&self) -> bool {
        !matches!(self.form, Form::Same(_))
    }

    /// On how many disks the data of a large block lies.
    pub fn data_disks(&self) -> u64 {
        match &self.form {
            Form::Same(_) => 1,
            Form::Raidz(widths, parity, _) => widths.last() - parity,
            Form::Draid(draid, ..) => (draid.shape().disks() - draid.shape().parity).max(1),
        }
    }

    /// What each leaf has of a vdev with so many bytes for data.
    pub fn leaf_bytes(&self, asize: u64) -> u64 {
        match &self.form {
            Form::Same(_) => asize,
            Form::Raidz(widths, ..) => asize.div_ceil(widths.last()),
            Form::Draid(draid, ..) => draid.leaf_bytes(asize),
        }
    }

    /// The bytes for data of a vdev whose smallest leaf has so many.
    pub fn asize_of(&self, leaf_bytes: u64) -> u64 {
        match &self.form {
            Form::Same(_) => leaf_bytes,
            Form::Raidz(widths, ..) => leaf_bytes.saturating_mul(widths.last()),
            Form::Draid(draid, ..) => draid.asize_of(leaf_bytes),
        }
    }

    /// All that is allocated begins at a multiple of so many bytes.
    #[doc(alias = "vdev_get_astart")]
    pub fn allocation_bytes(&self) -> u64 {
        match &self.form {
            Form::Same(_) | Form::Raidz(..) => 1 << self.ashift,
            Form::Draid(draid, ..) => draid.line_bytes(),
        }
    }

    /// The fewest bytes of data that are worth being allocated.
    #[doc(alias = "vdev_min_alloc")]
    pub fn least_data(&self) -> u64 {
        match &self.form {
            Form::Same(_) | Form::Raidz(..) => 1 << self.ashift,
            Form::Draid(draid, ..) => draid.shape().data << self.ashift,
        }
    }

    /// What `physical` bytes take on disk that are written in the group `birth`.
    #[doc(alias = "vdev_psize_to_asize_txg")]
    pub fn allocated_size(&self, physical: u64, birth: u64) -> u64 {
        match &self.form {
            Form::Same(_) => physical.next_multiple_of(1 << self.ashift),
            Form::Raidz(widths, parity, _) => Raidz { width: widths.of(birth), parity: *parity, ashift: self.ashift }.allocated_size(physical),
            Form::Draid(draid, ..) => draid.allocated_size(physical),
        }
    }

    /// What `allocated` bytes count in quotas and statistics.
    pub fn deflated_size(&self, allocated: u64) -> u64 {
        deflated_size(allocated, |physical| self.allocated_size(physical, FIRST_BIRTH))
    }
}

/// The sets of columns of a dRAID vdev, where some of its spares have everything; else none.
fn spared_columns(draid: &Draid, children: &[Node]) -> Vec<Columns> {
    let mut spares = BTreeSet::new();
    children.iter().for_each(|child| child.add_whole_spares(&mut spares));
    if spares.is_empty() {
        return Vec::new();
    }
    let spares: Vec<u64> = spares.into_iter().collect();
    let set_of = |places: Vec<usize>| {
        let stand_in: BTreeMap<u64, &Node> = spares.iter().copied().zip(places.iter().map(|child| &children[*child])).collect();
        let is_column = |(child, _): &(usize, &Node)| !places.contains(child);
        let leaves = |(_, node): (usize, &Node)| {
            let mut leaves = Vec::new();
            node.leaves_with(&stand_in, spares.len(), &mut leaves);
            leaves
        };
        children.iter().enumerate().filter(is_column).map(leaves).collect()
    };
    draid.spare_places(&spares).into_iter().map(set_of).collect()
}

/// What `allocated` bytes count in quotas and statistics, where so much was allocated for a physical size when the vdev was made: without the
/// share of parity, and as if there were no other rounding than of a block of 128 KiB.
#[doc(alias = "vdev_deflate_ratio")]
pub fn deflated_size(allocated: u64, allocated_size: impl Fn(u64) -> u64) -> u64 {
    allocated / 512 * (TYPICAL_BLOCK / (allocated_size(TYPICAL_BLOCK) / 512).max(1))
}
