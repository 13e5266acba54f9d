//! dRAID, and RAID-Z that has got a device more.

use std::collections::BTreeMap;

use super::*;
use crate::vdev::map::draid::{Draid, Shape};

const SECTOR: u64 = 512;

/// Sectors by leaf and offset.
#[derive(Clone, Default)]
struct Sectors(BTreeMap<(u32, u64), Vec<u8>>);

impl Sectors {
    fn write(&mut self, map: &IoMap, data: &[u8]) {
        for (at, _, side) in map.sides() {
            for (index, sector) in map.bytes_of(at.row, at.column, data).chunks(SECTOR as usize).enumerate() {
                self.0.insert((side.leaf.leaf, side.offset + index as u64 * SECTOR), sector.to_vec());
            }
        }
    }

    fn column(&self, column: &Column, side: Side) -> Vec<u8> {
        let at = (side.offset..side.offset + column.length as u64).step_by(SECTOR as usize);
        at.flat_map(|offset| self.0.get(&(side.leaf.leaf, offset)).cloned().unwrap_or_else(|| vec![0xee; SECTOR as usize])).collect()
    }

    /// A bit of each sector of these leaves is another one.
    fn damaged(&self, leaves: &[u32], random: &mut ChaCha8Rng) -> Sectors {
        let mut bad = self.clone();
        bad.0.iter_mut().filter(|((leaf, _), _)| leaves.contains(leaf)).for_each(|(_, sector)| sector[random.random_range(0..SECTOR as usize)] ^= 1 << random.random_range(0..8));
        bad
    }
}

/// Reads where some leaves are gone; `right` is what is right.
fn read_sectors(map: &IoMap, sectors: &Sectors, gone: &[u32], right: &[u8]) -> (bool, Vec<(Position, Verdict)>) {
    let mut reading = Reading::new(map, 0, idle);
    let mut buf = vec![0; map.length];
    let mut verify = |bytes: &[u8]| Ok::<bool, ()>(bytes == right);
    let ask = |reading: &mut Reading, ask: Ask, buf: &mut [u8]| {
        let (column, side) = map.at(ask.at);
        let bytes = sectors.column(column, side);
        let answer = match column.range() {
            _ if gone.contains(&side.leaf.leaf) => Answer::Failed,
            Some(range) if ask.in_place => {
                buf[range].copy_from_slice(&bytes);
                Answer::InPlace
            }
            _ => Answer::Bytes(bytes),
        };
        reading.answer(ask.at, answer);
    };
    loop {
        let asks = reading.next(map);
        if asks.is_empty() {
            return (false, reading.verdicts_of_lost(map));
        }
        asks.into_iter().for_each(|next| ask(&mut reading, next, &mut buf));
        if reading.solve(map, &mut buf, &mut verify).unwrap() {
            reading.others().into_iter().for_each(|next| ask(&mut reading, next, &mut []));
            return (true, reading.verdicts(map, &buf, &mut verify));
        }
    }
}

/// All sets of up to `most` of so many leaves.
fn sets(of: u32, most: usize) -> Vec<Vec<u32>> {
    (0..1_u32 << of).filter(|bits| bits.count_ones() as usize <= most).map(|bits| (0..of).filter(|leaf| bits >> leaf & 1 == 1).collect()).collect()
}

/// Every set of leaves up to the parity that is gone, or wrong, or one part this and the rest that: all is there, and the wrong ones are named.
fn survives(map: &IoMap, sectors: &Sectors, data: &[u8], (width, parity): (u32, usize), random: &mut ChaCha8Rng) {
    for set in sets(width, parity) {
        let split = random.random_range(0..=set.len());
        for (gone, wrong) in [(&set[..], &[][..]), (&[][..], &set[..]), (&set[..split], &set[split..])] {
            let (is_right, verdicts) = read_sectors(map, &sectors.damaged(wrong, random), gone, data);
            assert!(is_right, "{gone:?} gone, {wrong:?} wrong: {map:?}");
            for (at, verdict) in verdicts {
                let leaf = map.at(at).1.leaf.leaf;
                let expected = if gone.contains(&leaf) { Verdict::Missing } else if wrong.contains(&leaf) { Verdict::Wrong } else { Verdict::Right };
                assert_eq!(verdict, expected, "{leaf} of {gone:?} gone, {wrong:?} wrong");
            }
        }
    }
}

#[test]
fn draid_makes_up_for_as_many_children_as_it_has_parity() {
    let mut random = ChaCha8Rng::seed_from_u64(41);
    for (parity, data, children, spares) in [(1, 2, 5, 1), (2, 4, 8, 1), (3, 2, 7, 0), (1, 1, 2, 0)] {
        let shape = Shape { data, parity, spares, children, groups: 0 }.with_fewest_groups();
        let draid = Draid::new(shape, 9);
        let (line, group) = (draid.line_bytes(), shape.width() * crate::vdev::map::draid::ROW_BYTES);
        let layout = Layout::draid(0, 9, draid, leaves(children as u32));
        for sectors in [1, data, data + 1, 3 * data + 1] {
            // In a group, and over the end of one.
            for offset in [random.random_range(0..1000) * line, random.random_range(1..20) * group - line] {
                let block = noise((sectors * SECTOR) as usize, &mut random);
                let map = layout.map(offset, block.len(), 4);
                let mut disks = Sectors::default();
                disks.write(&map, &block);
                survives(&map, &disks, &block, (children as u32, parity as usize), &mut random);
            }
        }
    }
}

/// What lies behind the data of a block is zeros: a side that has something else there is wrong, and nothing is rebuilt from it.
#[test]
fn what_draid_fills_up_with_zeros_is_looked_at() {
    let mut random = ChaCha8Rng::seed_from_u64(42);
    let shape = Shape { data: 3, parity: 1, spares: 0, children: 4, groups: 1 };
    let layout = Layout::draid(0, 9, Draid::new(shape, 9), leaves(4));
    let block = noise(SECTOR as usize, &mut random);
    let map = layout.map(0, block.len(), 4);
    let mut disks = Sectors::default();
    disks.write(&map, &block);
    let places: Vec<(Position, u32)> = map.sides().map(|(at, _, side)| (at, side.leaf.leaf)).collect();
    let empty = places.iter().filter(|(at, _)| map.at(*at).0.range().is_some_and(|range| range.is_empty()));
    for (at, leaf) in empty {
        let bad = disks.damaged(&[*leaf], &mut random);
        let (is_right, verdicts) = read_sectors(&map, &bad, &[places[1].1], &block);
        assert!(is_right, "rebuilt from parity and zeros");
        assert!(verdicts.iter().all(|(other, verdict)| *verdict == if other == at { Verdict::Wrong } else if other.column == 1 { Verdict::Missing } else { Verdict::Right }));
    }
}

/// A spare has the bytes of the child that it stands for on the child whose turn it is; while it is filled it is asked last.
#[test]
fn a_distributed_spare_is_where_it_has_its_turn() {
    let shape = Shape { data: 2, parity: 1, spares: 2, children: 6, groups: 0 }.with_fewest_groups();
    let draid = Draid::new(shape, 9);
    let spare = |spare, is_behind| Node::Same(vec![Node::Leaf(spare as u32), Node::Distributed { spare, is_behind }]);
    let mut children = leaves(6);
    (children[0], children[1]) = (spare(0, false), spare(1, true));
    let layout = Layout::draid(0, 9, draid.clone(), children);
    for slice in 0..40 {
        let map = layout.map(slice * shape.width() * shape.groups * crate::vdev::map::draid::ROW_BYTES, 1024, 4);
        for column in &map.rows[0].columns {
            let first = column.sides[0];
            assert!(!first.is_stale && first.leaf.leaf < 6);
            let (others, is_spared) = (&column.sides[1..], first.leaf.leaf < 2);
            assert_eq!(others.is_empty(), !is_spared, "{column:?}");
            for side in others {
                assert!(side.offset == first.offset && side.leaf != first.leaf);
                let turns: Vec<u32> = (0..2).map(|spare| draid.spare_child(spare, side.offset) as u32).collect();
                assert!(turns.contains(&side.leaf.leaf));
                assert!(side.is_stale || first.leaf.leaf == 0 || turns[1] != side.leaf.leaf);
            }
        }
    }
}

/// RAID-Z as it is defined: sectors by their number, on so many children.
fn moved(sectors: &Sectors, (from, to): (u64, u64), until: u64) -> Sectors {
    let at = |number: u64, width: u64| ((number % width) as u32, number / width * SECTOR);
    let mut new = sectors.clone();
    for number in 0..until {
        match sectors.0.get(&at(number, from)) {
            Some(sector) => new.0.insert(at(number, to), sector.clone()),
            None => new.0.remove(&at(number, to)),
        };
    }
    new
}

fn expanding(parity: u64, children: u64, expanded: &[u64]) -> Layout {
    Layout::expanded(0, 9, parity, Widths::new(children, expanded, true), leaves(children as u32))
}

/// A block that was written before a device came is there while its sectors are moved, and afterwards, and after the next device.
#[test]
fn blocks_are_found_where_their_sectors_were_moved() {
    let mut random = ChaCha8Rng::seed_from_u64(43);
    for (parity, old) in [(1, 2), (1, 4), (2, 4), (3, 5)] {
        let before = Layout::raidz(0, 9, parity, leaves(old as u32));
        let now = expanding(parity, old + 1, &[]);
        let after = Layout::expanded(0, 9, parity, Widths::new(old + 1, &[100], false), leaves(old as u32 + 1));
        let later = Layout::expanded(0, 9, parity, Widths::new(old + 2, &[100, 200], false), leaves(old as u32 + 2));
        for sectors in [1, 2, 3, old, 3 * old + 1] {
            for start in [random.random_range(2000..2100), random.random_range(1..9) * 2048 + random.random_range(0..8)] {
                let block = noise((sectors * SECTOR) as usize, &mut random);
                let mut disks = Sectors::default();
                disks.write(&before.map(start * SECTOR, block.len(), 50), &block);
                let end = start + before.allocated_size(block.len() as u64, 50) / SECTOR;
                for synced in [start - 9, start, start + 1, start + old, (start + end) / 2, end, end + 20] {
                    let reflow = Reflow { synced: synced * SECTOR, moved: synced * SECTOR, in_scratch: false };
                    let map = now.map_while(&Wanted { offset: start * SECTOR, length: block.len(), birth: 50 }, Some(reflow), false);
                    survives(&map, &moved(&disks, (old, old + 1), synced), &block, (old as u32 + 1, parity as usize), &mut random);
                }
                let wider = moved(&disks, (old, old + 1), 20_000);
                let map = after.map(start * SECTOR, block.len(), 50);
                assert_eq!(map, now.map_while(&Wanted { offset: start * SECTOR, length: block.len(), birth: 50 }, None, false));
                survives(&map, &wider, &block, (old as u32 + 1, parity as usize), &mut random);
                let widest = moved(&wider, (old + 1, old + 2), 20_000);
                survives(&later.map(start * SECTOR, block.len(), 50), &widest, &block, (old as u32 + 2, parity as usize), &mut random);
                // What is written when all is moved lies as on a vdev that was made so.
                let made = Layout::raidz(0, 9, parity, leaves(old as u32 + 1));
                assert_eq!(after.map(start * SECTOR, block.len(), 100), made.map(start * SECTOR, block.len(), 100));
                assert_eq!(after.allocated_size(block.len() as u64, 99), before.allocated_size(block.len() as u64, 99));
                assert_eq!(after.allocated_size(block.len() as u64, 100), made.allocated_size(block.len() as u64, 100));
            }
        }
    }
}

/// A child that was wrong before its sectors were moved is wrong on all children afterwards, and is made up for all the same.
#[test]
fn a_child_that_was_wrong_before_is_found() {
    let mut random = ChaCha8Rng::seed_from_u64(44);
    for (parity, old) in [(1, 4), (2, 5)] {
        let before = Layout::raidz(0, 9, parity, leaves(old as u32));
        let after = Layout::expanded(0, 9, parity, Widths::new(old + 1, &[100], false), leaves(old as u32 + 1));
        let block = noise(40 * SECTOR as usize, &mut random);
        let mut disks = Sectors::default();
        disks.write(&before.map(2048 * SECTOR, block.len(), 50), &block);
        for set in sets(old as u32, parity as usize) {
            let bad = moved(&disks.damaged(&set, &mut random), (old, old + 1), 20_000);
            assert!(read_sectors(&after.map(2048 * SECTOR, block.len(), 50), &bad, &[], &block).0, "{set:?} were wrong");
        }
    }
}

/// What is written to sectors that were moved, but of which no uberblock says so, is found whether it will or not.
#[test]
fn what_is_written_meanwhile_is_in_both_places() {
    let mut random = ChaCha8Rng::seed_from_u64(45);
    for (parity, old) in [(1, 3), (2, 4), (3, 5)] {
        let layout = expanding(parity, old + 1, &[]);
        for _ in 0..200 {
            let (start, sectors) = (random.random_range(3000..3100), random.random_range(1..30));
            let (synced, until) = (random.random_range(2950..3150), random.random_range(0..200));
            let block = noise(sectors * SECTOR as usize, &mut random);
            let wanted = Wanted { offset: start * SECTOR, length: block.len(), birth: 60 };
            let reflow = Reflow { synced: synced * SECTOR, moved: (synced + until) * SECTOR, in_scratch: false };
            let mut disks = Sectors::default();
            let map = layout.map_while(&wanted, Some(reflow), true);
            assert!(map.is_written(|_| true));
            disks.write(&map, &block);
            // A crash: what was moved since is as if it had not been.
            let crashed = Reflow { moved: reflow.synced, ..reflow };
            assert!(read_sectors(&layout.map_while(&wanted, Some(crashed), false), &disks, &[], &block).0);
            // Or it is synced; the rest is moved from where it was.
            let mut rest = moved(&disks, (old, old + 1), 20_000);
            for (place, sector) in &disks.0 {
                let number = place.1 / SECTOR * (old + 1) + u64::from(place.0);
                if number < synced + until {
                    rest.0.insert(*place, sector.clone());
                }
            }
            assert!(read_sectors(&layout.map_while(&wanted, None, false), &rest, &[], &block).0, "{parity} of {old}: {wanted:?} {reflow:?}");
        }
    }
}

/// A scrub mended a column where it was, after a copy of it had gone to another device: with the next uberblock the wrong one was what counts, and two devices fewer could be lost.
#[test]
fn what_is_mended_meanwhile_is_mended_in_both_places() {
    let layout = expanding(2, 5, &[]);
    let wanted = Wanted { offset: 3000 * SECTOR, length: 20 * SECTOR as usize, birth: 60 };
    let reflow = Reflow { synced: 2900 * SECTOR, moved: 3012 * SECTOR, in_scratch: false };
    let (read, written) = (layout.map_while(&wanted, Some(reflow), false), layout.map_while(&wanted, Some(reflow), true));
    let mut mended = 0;
    for (position, column, side) in read.sides() {
        let also: Vec<Side> = read.moved_to(column).collect();
        let all: Vec<Side> = written.sides().filter(|(_, other, _)| other.sector == column.sector).map(|(_, _, side)| side).collect();
        assert_eq!([vec![side], also.clone()].concat(), all, "{position:?}");
        mended += also.len();
    }
    assert_eq!(mended, 12, "sectors that were moved");
    assert!(layout.map_while(&wanted, None, false).moved.is_empty());
}
