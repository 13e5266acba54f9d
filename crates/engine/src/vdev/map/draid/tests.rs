//! dRAID against its definition.

use std::collections::BTreeSet;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

fn shape(parity: u64, data: u64, children: u64, spares: u64) -> Shape {
    Shape { data, parity, spares, children, groups: 0 }.with_fewest_groups()
}

/// Each is checked against its checksum when it is made.
#[test]
fn the_orders_are_those_of_the_format() {
    for children in CHILDREN.map(|children| children as usize) {
        let orders = orders(children);
        assert_eq!(orders.len(), children * if children < 32 { 256 } else { 512 });
        for order in orders.chunks(children) {
            assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), children);
        }
    }
}

/// The numbers of the golden pool `draid2`, and of pools in the manual.
#[test]
fn sizes_are_those_of_the_format() {
    let golden = Draid::new(shape(2, 4, 8, 1), 12);
    assert_eq!((golden.shape.groups, golden.line_bytes()), (7, 24_576));
    assert_eq!(golden.asize_of((64 << 20) - (4 << 20) - (512 << 10)), 100_663_296);
    assert_eq!(golden.leaf_bytes(100_663_296), 48 << 20);
    assert_eq!([1, 4096, 16_384, 16_385, 131_072].map(|size| golden.allocated_size(size) / 24_576), [1, 1, 1, 2, 8]);
    for (parity, data, children, spares, groups) in [(1, 8, 14, 2, 4), (2, 4, 8, 2, 1), (1, 4, 11, 1, 2), (3, 8, 255, 100, 155)] {
        assert_eq!(shape(parity, data, children, spares).groups, groups, "{parity} {data} {children} {spares}");
    }
    assert!(!Shape { groups: 3, ..shape(2, 4, 8, 1) }.is_possible());
    for (parity, data, children, spares) in [(0, 4, 8, 1), (4, 4, 20, 1), (2, 4, 6, 1), (1, 4, 256, 1), (1, 0, 8, 1), (1, u64::MAX, 8, 1), (1, 1, 1, 0), (1, 2, 200, 101)] {
        assert!(!shape(parity, data, children, spares).is_possible(), "{parity} {data} {children} {spares}");
    }
}

/// Group after group is dealt out, row after row, as the module says: no place twice, each line at one height, and none on the spares of its slice.
#[test]
fn groups_are_dealt_out_to_all_children() {
    let mut random = ChaCha8Rng::seed_from_u64(31);
    for _ in 0..60 {
        let (parity, data) = (random.random_range(1..4), random.random_range(1..9));
        let spares = random.random_range(0..4);
        let children = random.random_range(parity + data + spares..parity + data + spares + 20);
        let draid = Draid::new(shape(parity, data, children, spares), 12);
        let Shape { groups, .. } = draid.shape;
        let (width, disks) = (draid.shape.width(), draid.shape.disks());
        let slices = 3 * children;
        let mut used = BTreeSet::new();
        for (number, group) in (0..slices.min(40) * groups).enumerate() {
            let (slice, line) = (group / groups, random.random_range(0..16) * 4096);
            let rows = draid.rows(group * width * ROW_BYTES + line * width, 4096 * data as usize);
            let [row] = rows.as_slice() else { panic!("one row") };
            for (column, part) in row.iter().enumerate() {
                // The columns of all groups, counted.
                let place = number as u64 * width + column as u64;
                assert_eq!(part.offset, place / disks * ROW_BYTES + line);
                assert!(used.insert((part.child, place / disks)), "a place twice");
                assert!((0..spares).all(|spare| draid.spare_child(spare, part.offset) != part.child), "slice {slice}");
            }
        }
        // Spares are different children, each its turn.
        let at = |spare, slice: u64| draid.spare_child(spare, slice * draid.rows_of_slice() * ROW_BYTES);
        for slice in 0..slices {
            assert_eq!((0..spares).map(|spare| at(spare, slice)).collect::<BTreeSet<_>>().len() as u64, spares);
        }
    }
}

/// All of the buffer once, all columns as high as the first, and where a group ends the rest begins the next one.
#[test]
fn a_block_is_as_wide_as_its_group() {
    let mut random = ChaCha8Rng::seed_from_u64(32);
    for _ in 0..2000 {
        let (parity, data) = (random.random_range(1..4), random.random_range(1..9));
        let draid = Draid::new(shape(parity, data, parity + data + 3, 1), random.random_range(9..14));
        let length = random.random_range(1..400) * 512_usize;
        let allocated = draid.allocated_size(length as u64);
        let lines = allocated / draid.line_bytes();
        assert!((lines * data) << draid.ashift >= length as u64 && ((lines - 1) * data) << draid.ashift < length as u64);
        let group = draid.group_bytes();
        let offset = random.random_range(1..4) * group - random.random_range(0..lines + 3) * draid.line_bytes();
        let rows = draid.rows(offset, length);
        assert_eq!(rows.len(), if offset / group == (offset + allocated - 1) / group { 1 } else { 2 });
        let mut next = 0;
        for row in &rows {
            assert_eq!(row.len() as u64, draid.shape.width());
            assert!(row.iter().all(|part| part.length == row[0].length));
            for part in row {
                if let Content::Data(range) = &part.content {
                    assert!(range.start == next && range.len() <= part.length);
                    next = range.end;
                }
            }
        }
        assert_eq!(next, length);
        let heights: u64 = rows.iter().map(|row| row[0].length as u64).sum();
        assert_eq!(heights << draid.ashift, lines << (2 * draid.ashift));
    }
}

/// What of a range lies on each child is what its lines have there, and ranges of a child ascend with those of the vdev.
#[test]
fn ranges_on_children_are_those_of_their_lines() {
    let mut random = ChaCha8Rng::seed_from_u64(33);
    for _ in 0..200 {
        let (parity, data) = (random.random_range(1..4), random.random_range(1..9));
        let draid = Draid::new(shape(parity, data, parity + data + random.random_range(1..6), 1), 12);
        let (line, group) = (draid.line_bytes(), draid.group_bytes());
        let mut ends = vec![0; draid.shape.children as usize];
        for number in 0..2 * draid.shape.groups + 3 {
            let start = number * group + random.random_range(0..3) * line;
            let end = (start + random.random_range(1..5) * line).min(draid.group_end(start));
            let rows = draid.rows(start, ((end - start) / line * data) as usize * 4096);
            let [row] = rows.as_slice() else { panic!("one group") };
            for (child, before) in ends.iter_mut().enumerate() {
                let part = row.iter().find(|part| part.child == child).map(|part| part.offset..part.offset + part.length as u64);
                assert_eq!(draid.on_child(child, &(start..end)), part, "child {child} of {:?}", draid.shape);
                if let Some(part) = part {
                    assert!(part.start >= *before, "they ascend");
                    *before = part.end;
                }
            }
        }
    }
}

/// Where a spare stands in, as many disks may be lost as before; and each set of columns leaves out the child that is the spare there.
#[test]
fn a_spare_that_has_everything_makes_up_for_its_disk() {
    use crate::vdev::map::{Layout, Node};
    let draid = || Draid::new(shape(1, 3, 6, 1), 12);
    let children = |is_behind| {
        let spared = Node::Same(vec![Node::Leaf(0), Node::Distributed { spare: 0, is_behind }]);
        std::iter::once(spared).chain((1..6).map(Node::Leaf)).collect::<Vec<_>>()
    };
    let survives = |layout: &Layout, lost: &[u32]| layout.tolerates(&|leaves: &Vec<u32>| leaves.iter().all(|leaf| lost.contains(leaf)));
    let (whole, filling) = (Layout::draid(0, 12, draid(), children(false)), Layout::draid(0, 12, draid(), children(true)));
    assert_eq!((filling.column_sets().len(), whole.column_sets().len()), (1, 6));
    assert!(whole.column_sets().iter().all(|columns| columns.len() == 5));
    for other in 1..6 {
        assert!(survives(&whole, &[0, other]) && !survives(&filling, &[0, other]), "{other}");
        assert!(survives(&whole, &[other]) && !survives(&whole, &[other, other % 5 + 1]), "{other}");
    }
}
