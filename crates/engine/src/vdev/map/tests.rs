//! Maps against a model, and every way to lose columns.

use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

mod wide;

fn leaves(count: u32) -> Vec<Node> {
    (0..count).map(Node::Leaf).collect()
}

/// Disks of so many bytes.
struct Disks(Vec<Vec<u8>>);

impl Disks {
    fn new(count: usize, bytes: usize, random: &mut ChaCha8Rng) -> Disks {
        let noise = |_| {
            let mut disk = vec![0; bytes];
            random.fill_bytes(&mut disk);
            disk
        };
        Disks((0..count).map(noise).collect())
    }

    fn write(&mut self, map: &IoMap, data: &[u8]) {
        for (at, column, side) in map.sides() {
            let place = side.offset as usize..side.offset as usize + column.length;
            self.0[side.leaf.leaf as usize][place].copy_from_slice(&map.bytes_of(at.row, at.column, data));
        }
    }

    fn column(&self, map: &IoMap, at: Position) -> Vec<u8> {
        let (column, side) = map.at(at);
        self.0[side.leaf.leaf as usize][side.offset as usize..][..column.length].to_vec()
    }
}

/// What came of a read.
struct Found {
    data: Option<Vec<u8>>,
    verdicts: Vec<(Position, Verdict)>,
    asked: usize,
}

/// Reads where some leaves cannot be read; `data` is what is right. With `all`, all sides are asked in the end.
fn read(map: &IoMap, disks: &Disks, view: impl Fn(LeafId) -> View, gone: &[u32], data: &[u8], all: bool) -> Found {
    let mut reading = Reading::new(map, 0, view);
    let mut buf = vec![0; map.length];
    let mut verify = |bytes: &[u8]| Ok::<bool, ()>(bytes == data);
    let mut asked = 0;
    let mut ask = |reading: &mut Reading, ask: Ask, buf: &mut [u8]| {
        asked += 1;
        let (column, side) = map.at(ask.at);
        let bytes = disks.column(map, ask.at);
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
    let mut is_right = false;
    while !is_right {
        let asks = reading.next(map);
        if asks.is_empty() {
            break;
        }
        asks.into_iter().for_each(|next| ask(&mut reading, next, &mut buf));
        is_right = reading.solve(map, &mut buf, &mut verify).unwrap();
    }
    if all {
        reading.others().into_iter().for_each(|next| ask(&mut reading, next, &mut []));
    }
    let verdicts = if is_right { reading.verdicts(map, &buf, &mut verify) } else { reading.verdicts_of_lost(map) };
    Found { data: is_right.then_some(buf), verdicts, asked }
}

fn idle(_: LeafId) -> View {
    View::IDLE
}

fn noise(length: usize, random: &mut ChaCha8Rng) -> Vec<u8> {
    let mut data = vec![0; length];
    random.fill_bytes(&mut data);
    data
}

/// Without a checksum nothing else tells that a column is old: parity is asked instead of a child that has missed the block.
#[test]
fn a_child_that_has_missed_a_block_is_not_asked_while_there_is_parity() {
    let mut random = ChaCha8Rng::seed_from_u64(22);
    for parity in 1..4_u64 {
        let layout = Layout::raidz(0, 9, parity, leaves(5 + parity as u32));
        for missed in (0..5 + parity as u32).map(|first| (first..first + parity as u32).map(|child| child % (5 + parity as u32)).collect::<Vec<u32>>()) {
            let data = noise(6144, &mut random);
            let map = layout.map(512 * 40, data.len(), 4);
            let mut disks = Disks::new(8, 1 << 16, &mut random);
            let old = disks.0.clone();
            disks.write(&map, &data);
            missed.iter().for_each(|child| disks.0[*child as usize].clone_from(&old[*child as usize]));
            let view = |leaf: LeafId| View { missed: missed.contains(&leaf.leaf), behind: missed.contains(&leaf.leaf), ..View::IDLE };
            let mut reading = Reading::new(&map, 0, view);
            let mut buf = vec![0; map.length];
            for ask in reading.next(&map) {
                let bytes = disks.column(&map, ask.at);
                let range = map.at(ask.at).0.range().filter(|_| ask.in_place);
                reading.answer(ask.at, range.map_or(Answer::Bytes(bytes.clone()), |range| {
                    buf[range].copy_from_slice(&bytes);
                    Answer::InPlace
                }));
            }
            assert!(reading.solve(&map, &mut buf, &mut |_| Ok::<bool, ()>(true)).unwrap());
            assert!(buf == data, "parity {parity}, missed {missed:?}");
            let behind = map.sides().filter(|(at, ..)| reading.is_behind(*at)).count();
            assert!(behind > 0 || map.sides().all(|(_, _, side)| !missed.contains(&side.leaf.leaf)));
        }
    }
}

/// Every set of slow, stale and lost children: the slow are read only where parity is not enough, and after all that is lost or stale.
#[test]
fn a_child_that_sits_out_is_not_asked_while_there_is_parity() {
    let mut random = ChaCha8Rng::seed_from_u64(26);
    for parity in 1..4_u64 {
        let width = 4 + parity as u32;
        let layout = Layout::raidz(0, 9, parity, leaves(width));
        for kinds in 0..4_u32.pow(width) {
            let kind = |child: u32| kinds / 4_u32.pow(child) % 4;
            let count = |kind_of: u32| (0..width).filter(|child| kind(*child) == kind_of).count();
            let [slow, stale, gone] = [1, 2, 3].map(count);
            if stale + gone > parity as usize || random.random_range(0..8) > 0 {
                continue;
            }
            let data = noise(512 * 4, &mut random);
            let map = layout.map(512 * 7, data.len(), 4);
            let mut disks = Disks::new(width as usize, 1 << 14, &mut random);
            let old = disks.0.clone();
            disks.write(&map, &data);
            (0..width).filter(|child| kind(*child) == 2).for_each(|child| disks.0[child as usize].clone_from(&old[child as usize]));
            let view = |leaf: LeafId| View { sits_out: kind(leaf.leaf) == 1, missed: kind(leaf.leaf) == 2, behind: kind(leaf.leaf) == 2, readable: kind(leaf.leaf) != 3, ..View::IDLE };
            let reading = &mut Reading::new(&map, 0, view);
            let asks = reading.next(&map);
            let asked = |kind_of: u32| asks.iter().filter(|ask| kind(map.at(ask.at).1.leaf.leaf) == kind_of).count();
            assert_eq!((asked(2), asked(3)), (0, 0), "parity {parity}, kinds {kinds}");
            // The block is on all children: so many of the others are left.
            let well = width as usize - slow - stale - gone;
            assert_eq!(asked(1), 4_usize.saturating_sub(well), "parity {parity}, kinds {kinds}: {asks:?}");
            let gone: Vec<u32> = (0..width).filter(|child| kind(*child) == 3).collect();
            assert_eq!(read(&map, &disks, view, &gone, &data, false).data.as_ref(), Some(&data), "parity {parity}, kinds {kinds}");
        }
    }
}

/// Every byte of a block in some column once, no sector of the children twice, and none outside of what is allocated.
#[test]
fn raidz_columns_are_a_block_and_nothing_else() {
    let mut random = ChaCha8Rng::seed_from_u64(20);
    for _ in 0..3000 {
        let parity = random.random_range(1..4);
        let (width, ashift) = (random.random_range(parity as u32 + 1..14), random.random_range(9..13));
        let layout = Layout::raidz(0, ashift, parity, leaves(width));
        let sector = 1_u64 << ashift;
        let offset = random.random_range(0..4096) * sector;
        let length = random.random_range(1..300) * 512_usize;
        let map = layout.map(offset, length, 4);
        let [row] = map.rows.as_slice() else { panic!("one row") };
        let mut next = 0;
        for range in row.columns.iter().filter_map(Column::range) {
            assert_eq!(range.start, next);
            next = range.end;
        }
        assert_eq!((next, row.parity()), (length, parity as usize));
        // Sectors as the vdev counts them: child after child, from the address on.
        let allocated = layout.allocated_size(length as u64, 4) / sector;
        let mut sectors: Vec<u64> = Vec::new();
        for (_, column, side) in map.sides() {
            let line = side.offset / sector;
            sectors.extend((line..line + column.length as u64 / sector).map(|line| line * u64::from(width) + u64::from(side.leaf.leaf)));
        }
        sectors.sort_unstable();
        assert!(sectors.windows(2).all(|two| two[0] < two[1]), "{map:?}");
        let first = offset / sector;
        assert!(sectors.iter().all(|at| (first..first + allocated).contains(at)), "{offset} {length} {width}: {sectors:?}");
        assert!(allocated - sectors.len() as u64 <= parity && allocated.is_multiple_of(parity + 1));
    }
}

/// What OpenZFS lays out, for some blocks of golden pools: parity goes round, and changes places with the first column every other MiB.
#[test]
fn raidz_columns_lie_where_they_do_on_disk() {
    let layout = Layout::raidz(0, 9, 1, leaves(3));
    let places = |offset, length| -> Vec<(u32, u64, usize)> {
        layout.map(offset, length, 4).sides().map(|(_, column, side)| (side.leaf.leaf, side.offset, column.length)).collect()
    };
    assert_eq!(places(0, 512), [(0, 0, 512), (1, 0, 512)]);
    assert_eq!(places(1024, 512), [(2, 0, 512), (0, 512, 512)]);
    assert_eq!(places(512, 1536), [(1, 0, 1024), (2, 0, 1024), (0, 512, 512)]);
    assert_eq!(places(1 << 20, 1024), [(0, 349_696, 512), (2, 349_184, 512), (1, 349_696, 512)]);
    assert_eq!([512, 1024, 1536, 131_072].map(|size| layout.allocated_size(size, 4)), [1024, 2048, 3072, 196_608]);
    assert_eq!(layout.deflated_size(196_608), 384 * 341);
}

/// Each child lost, and each wrong, and each pair of a lost and a wrong one: a single fault is repaired and the one to blame is named.
#[test]
fn raidz_finds_which_column_is_wrong() {
    let mut random = ChaCha8Rng::seed_from_u64(21);
    for width in [2_u32, 3, 5] {
        for sectors in [1, 2, 3, 4, 9, 16] {
            let layout = Layout::raidz(0, 9, 1, leaves(width));
            let length = sectors * 512;
            let map = layout.map(random.random_range(0..5000) * 512, length, 4);
            let data = noise(length, &mut random);
            let mut disks = Disks::new(width as usize, 4 << 20, &mut random);
            disks.write(&map, &data);
            let whole = read(&map, &disks, idle, &[], &data, false);
            assert_eq!((whole.data.as_ref(), whole.asked), (Some(&data), map.rows[0].columns.len() - 1), "parity is not read");
            let used: Vec<(Position, u32)> = map.sides().map(|(at, _, side)| (at, side.leaf.leaf)).collect();
            for (at, leaf) in &used {
                let found = read(&map, &disks, idle, &[*leaf], &data, true);
                assert_eq!(found.data.as_ref(), Some(&data));
                for (other, verdict) in found.verdicts {
                    assert_eq!(verdict, if other == *at { Verdict::Missing } else { Verdict::Right });
                }
                let (column, side) = map.at(*at);
                let mut bad = Disks(disks.0.clone());
                bad.0[*leaf as usize][side.offset as usize + random.random_range(0..512.min(column.length))] ^= 0x40;
                let found = read(&map, &bad, idle, &[], &data, true);
                assert_eq!(found.data.as_ref(), Some(&data), "{map:?}: {at:?} was wrong");
                for (other, verdict) in &found.verdicts {
                    assert_eq!(*verdict, if other == at { Verdict::Wrong } else { Verdict::Right }, "{at:?} was wrong, this is {other:?}");
                }
                // One lost and one wrong is too much, and says nothing of the others.
                for (_, lost) in used.iter().filter(|(_, other)| other != leaf) {
                    let found = read(&map, &bad, idle, &[*lost], &data, true);
                    assert!(found.data.is_none(), "{map:?}");
                    assert!(found.verdicts.iter().all(|(_, verdict)| matches!(verdict, Verdict::NotAsked | Verdict::Missing)));
                }
            }
        }
    }
}

/// Every set of children that are gone or wrong, with two and three columns of parity: what parity makes up for is repaired and blamed,
/// where the checksum has to find the wrong ones among all; beyond it nothing is found, and no child that was read is blamed.
#[test]
fn raidz_makes_up_for_as_many_columns_as_it_has_parity() {
    let mut random = ChaCha8Rng::seed_from_u64(25);
    for (parity, width) in [(2, 4), (2, 6), (3, 5), (3, 7)] {
        let layout = Layout::raidz(0, 9, parity, leaves(width));
        for sectors in [1, 3, 8] {
            let data = noise(sectors * 512, &mut random);
            let map = layout.map(random.random_range(0..5000) * 512, data.len(), 4);
            let mut disks = Disks::new(width as usize, 4 << 20, &mut random);
            disks.write(&map, &data);
            let used: Vec<(Position, u32)> = map.sides().map(|(at, _, side)| (at, side.leaf.leaf)).collect();
            for faults in 0..3_usize.pow(used.len() as u32) {
                let fault = |index: usize| faults / 3_usize.pow(index as u32) % 3;
                let count = (0..used.len()).filter(|index| fault(*index) > 0).count();
                if count > parity as usize + 1 || random.random_range(0..4) > 0 {
                    continue;
                }
                let mut bad = Disks(disks.0.clone());
                let mut gone = Vec::new();
                for (index, (at, leaf)) in used.iter().enumerate() {
                    let (column, side) = map.at(*at);
                    match fault(index) {
                        1 => gone.push(*leaf),
                        2 => bad.0[*leaf as usize][side.offset as usize + random.random_range(0..512.min(column.length))] ^= 0x11,
                        _ => {}
                    }
                }
                let found = read(&map, &bad, idle, &gone, &data, true);
                if count <= parity as usize {
                    assert_eq!(found.data.as_ref(), Some(&data), "{parity} of {width}, {sectors} sectors, faults {faults}");
                    for (index, (_, verdict)) in found.verdicts.iter().enumerate() {
                        assert_eq!(*verdict, [Verdict::Right, Verdict::Missing, Verdict::Wrong][fault(index)], "{parity} of {width}, faults {faults}");
                    }
                } else if let Some(found) = found.data {
                    // What is wrong is parity, or was not needed.
                    assert_eq!(found, data);
                } else {
                    assert!(found.verdicts.iter().all(|(_, verdict)| matches!(verdict, Verdict::NotAsked | Verdict::Missing)));
                }
            }
        }
    }
}

/// A child that is being replaced has two sides, of which either is enough; the wrong one is known by name.
#[test]
fn a_column_may_have_several_sides() {
    let mut random = ChaCha8Rng::seed_from_u64(22);
    let children = vec![Node::Leaf(0), Node::Same(vec![Node::Leaf(1), Node::Leaf(2)]), Node::Leaf(3)];
    let layout = Layout::raidz(0, 9, 1, children);
    let data = noise(4096, &mut random);
    let map = layout.map(512, data.len(), 4);
    let mut disks = Disks::new(4, 1 << 20, &mut random);
    disks.write(&map, &data);
    for (bad, gone) in [(1, 0), (2, 0), (1, 3), (2, 3)] {
        let mut damaged = Disks(disks.0.clone());
        damaged.0[bad as usize].fill(7);
        let found = read(&map, &damaged, idle, &[gone], &data, true);
        assert_eq!(found.data.as_ref(), Some(&data), "{bad} is wrong, {gone} is gone");
        for (at, verdict) in found.verdicts {
            let leaf = map.at(at).1.leaf.leaf;
            assert_eq!(verdict, if leaf == bad { Verdict::Wrong } else if leaf == gone { Verdict::Missing } else { Verdict::Right });
        }
    }
    // Written is what can be read again.
    let has = |missing: &[u32]| map.is_written(|at| !missing.contains(&map.at(at).1.leaf.leaf));
    assert!(has(&[]) && has(&[0]) && has(&[1, 3]) && has(&[1, 2]) && !has(&[0, 3]) && !has(&[0, 1, 2]));
}

/// Sides that have missed what is wanted are asked when nothing else is left, and are not to blame.
#[test]
fn a_mirror_asks_the_stale_last() {
    let mut random = ChaCha8Rng::seed_from_u64(23);
    let layout = Layout::same(0, 9, Node::Same(leaves(3)));
    let (data, map) = (noise(2048, &mut random), layout.map(4096, 2048, 4));
    let mut disks = Disks::new(3, 1 << 16, &mut random);
    disks.write(&map, &data);
    let stale = |leaf: LeafId| View { missed: leaf.leaf == 0, ..View::IDLE };
    let found = read(&map, &disks, stale, &[], &data, true);
    let verdicts: Vec<Verdict> = found.verdicts.iter().map(|(_, verdict)| *verdict).collect();
    assert_eq!((verdicts, found.asked), (vec![Verdict::NotAsked, Verdict::Right, Verdict::Right], 2));
    disks.0[1].fill(1);
    disks.0[2].fill(2);
    let found = read(&map, &disks, stale, &[], &data, true);
    let verdicts: Vec<Verdict> = found.verdicts.iter().map(|(_, verdict)| *verdict).collect();
    assert_eq!((found.data.as_ref(), verdicts), (Some(&data), vec![Verdict::Right, Verdict::Wrong, Verdict::Wrong]));
    disks.0[0].fill(3);
    let lost = read(&map, &disks, stale, &[], &data, true);
    assert!(lost.data.is_none() && lost.verdicts.iter().all(|(_, verdict)| *verdict == Verdict::Wrong));
}

/// A block in several places, each on a mirror: of each the side that is right.
#[test]
fn the_parts_of_a_block_are_combined() {
    let mut random = ChaCha8Rng::seed_from_u64(24);
    let mirror = |offset, length| Layout::same(0, 9, Node::Same(leaves(2))).map(offset, length, 4);
    let mut map = mirror(0, 1024);
    map.append(mirror(8192, 512));
    map.append(mirror(2048, 2048));
    let data = noise(map.length, &mut random);
    for wrong in 0..1_usize << 6 {
        let mut disks = Disks::new(2, 1 << 16, &mut random);
        disks.write(&map, &data);
        let is_wrong = |at: Position| wrong >> (at.row * 2 + at.side) & 1 != 0;
        for (at, _, side) in map.sides().filter(|(at, ..)| is_wrong(*at)) {
            disks.0[side.leaf.leaf as usize][side.offset as usize] ^= 1 + at.side as u8;
        }
        let found = read(&map, &disks, idle, &[], &data, true);
        let is_lost = (0..3).any(|row| wrong >> (row * 2) & 3 == 3);
        assert_eq!(found.data.is_none(), is_lost, "{wrong:b}");
        if !is_lost {
            for (at, verdict) in found.verdicts {
                assert_eq!(verdict, if is_wrong(at) { Verdict::Wrong } else { Verdict::Right }, "{wrong:b}: {at:?}");
            }
        }
    }
}

/// A checksum leaves out the end of what is read, and sides differ there: none is wrong.
#[test]
fn what_a_checksum_leaves_out_is_nobodys_fault() {
    let map = IoMap::mirror((0..2).map(|leaf| LeafId { vdev: 0, leaf }), 0, 1024);
    let mut reading = Reading::new(&map, 0, idle);
    let mut buf = vec![0; 1024];
    let mut verify = |bytes: &[u8]| Ok::<bool, ()>(bytes[..512] == [1; 512]);
    let asks = reading.next(&map);
    assert_eq!(asks, [Ask { at: Position { row: 0, column: 0, side: 0 }, in_place: true }]);
    buf[..512].fill(1);
    reading.answer(asks[0].at, Answer::InPlace);
    assert!(reading.solve(&map, &mut buf, &mut verify).unwrap());
    for ask in reading.others() {
        reading.answer(ask.at, Answer::Bytes([[1; 512], [9; 512]].concat()));
    }
    assert!(reading.verdicts(&map, &buf, &mut verify).iter().all(|(_, verdict)| *verdict == Verdict::Right));
}

/// Columns that have missed the block are not asked as long as parity makes up for them; where there is not so much parity they are.
#[test]
fn parity_is_asked_before_what_is_stale() {
    let mut random = ChaCha8Rng::seed_from_u64(26);
    for parity in 1..4_u64 {
        let width = parity as usize + 4;
        let map = Layout::raidz(0, 9, parity, leaves(width as u32)).map(0, 4 * 512, 4);
        let data = noise(map.length, &mut random);
        let mut disks = Disks::new(width, 8192, &mut random);
        disks.write(&map, &data);
        let leaf_of = |column: usize| map.rows[0].columns[column].sides[0].leaf.leaf;
        for stale in 0..=4 {
            let has_missed = |leaf: u32| (0..stale).any(|column| leaf_of(parity as usize + column) == leaf);
            let view = |id: LeafId| View { missed: has_missed(id.leaf), behind: has_missed(id.leaf), ..View::IDLE };
            // What is stale there is old, where parity is enough.
            let mut old = Disks(disks.0.clone());
            if stale <= parity as usize {
                (0..width as u32).filter(|leaf| has_missed(*leaf)).for_each(|leaf| old.0[leaf as usize].fill(0xee));
            }
            let found = read(&map, &old, view, &[], &data, false);
            assert_eq!(found.data.as_deref(), Some(data.as_slice()), "{stale} of raidz{parity}");
            let asked: Vec<u32> = found.verdicts.iter().filter(|(_, verdict)| *verdict != Verdict::NotAsked).map(|(at, _)| map.at(*at).1.leaf.leaf).collect();
            let old_asked = asked.iter().filter(|leaf| has_missed(**leaf)).count();
            assert_eq!(old_asked, stale.saturating_sub(parity as usize), "{stale} of raidz{parity}: {asked:?}");
            assert_eq!(found.asked, 4, "no more than is needed");
        }
    }
}

/// A stale column is asked when the parity that was to replace it cannot be read.
#[test]
fn what_is_stale_is_asked_when_parity_is_lost() {
    let mut random = ChaCha8Rng::seed_from_u64(27);
    let map = Layout::raidz(0, 9, 1, leaves(4)).map(0, 3 * 512, 4);
    let data = noise(map.length, &mut random);
    let mut disks = Disks::new(4, 8192, &mut random);
    disks.write(&map, &data);
    let stale = map.rows[0].columns[1].sides[0].leaf;
    let view = |id: LeafId| View { missed: id == stale, behind: id == stale, ..View::IDLE };
    let parity = map.rows[0].columns[0].sides[0].leaf.leaf;
    let found = read(&map, &disks, view, &[parity], &data, false);
    assert_eq!(found.data.as_deref(), Some(data.as_slice()), "it had it after all");
}
