//! The pipeline on mirrors in memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use disk::{Disk, MemDisk};
use ondisk::algorithm::{ChecksumAlgorithm, Compression};
use ondisk::blkptr::{BlkPtr, BlockPointer, DataPointer};
use ondisk::dva::Dva;
use ondisk::object_type::ObjectType;
use parking_lot::{Condvar, Mutex};
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::alloc::{Allocator, ClassKind, Group, GroupConfig, LoadSpaceMap, Metaslab, RangeTree};
use crate::arc::BlockCache;
use crate::error::{ErrorKind, Result};
use crate::host::RealHost;
use crate::tunables::{Parameter, Tunables};
use crate::vdev::{Class, IoMap, LeafId};

mod physical;
mod run;
mod second;

const ASHIFT: u8 = 12;
const METASLAB_SHIFT: u8 = 20;
const METASLABS: u64 = 16;

struct Mirror {
    sides: Vec<Arc<MemDisk>>,
    checksum_errors: crate::stats::Counter,
    slow: Arc<Slow>,
}

/// Devices that are slow, and what is written to them.
#[derive(Default)]
struct Slow {
    is_slow: AtomicBool,
    /// Writing panics.
    is_broken: AtomicBool,
    /// Sizes of the writes so far.
    writes: Mutex<Vec<usize>>,
    /// How many were under way at the same time, now and at most.
    inside: Mutex<(usize, usize)>,
    came: Condvar,
    /// Whether reads wait, and how many do.
    held_reads: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Slow {
    fn hold_reads(&self, hold: bool) {
        self.held_reads.lock().0 = hold;
        self.changed.notify_all();
    }

    /// Waits until a read does.
    fn wait_for_a_held_read(&self) {
        self.changed.wait_while(&mut self.held_reads.lock(), |held| held.1 == 0);
    }

    /// A read waits as long as it is held.
    fn pass_read(&self) {
        let mut held = self.held_reads.lock();
        held.1 += 1;
        self.changed.notify_all();
        self.changed.wait_while(&mut held, |held| held.0);
        held.1 -= 1;
    }

    /// A write takes until two others are under way, or long enough for them to come.
    fn pass(&self, bytes: usize) {
        assert!(!self.is_broken.load(Ordering::Relaxed), "a bug");
        if !self.is_slow.load(Ordering::Relaxed) {
            return;
        }
        self.writes.lock().push(bytes);
        let mut inside = self.inside.lock();
        inside.0 += 1;
        inside.1 = inside.1.max(inside.0);
        self.came.notify_all();
        self.came.wait_while_for(&mut inside, |inside| inside.1 < 3, Duration::from_millis(200));
        inside.0 -= 1;
    }
}

impl BlockDevice for Mirror {
    fn io_map(&self, offset: u64, length: usize, _: u64) -> Result<IoMap> {
        Ok(IoMap::mirror((0..self.sides.len() as u32).map(|leaf| LeafId { vdev: 0, leaf }), offset, length))
    }
    fn read_leaf(&self, leaf: LeafId, _: Class, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.slow.pass_read();
        Ok(self.sides[leaf.leaf as usize].read_at(buf, offset)?)
    }
    fn write_leaf(&self, leaf: LeafId, _: Class, offset: u64, buffers: &[&[u8]]) -> Result<()> {
        if leaf.leaf == 0 {
            self.slow.pass(buffers.iter().map(|buffer| buffer.len()).sum());
        }
        Ok(self.sides[leaf.leaf as usize].write_vectored_at(buffers, offset)?)
    }
    fn note_checksum_error(&self, _: LeafId) {
        self.checksum_errors.add(1);
    }
    fn ashift(&self) -> u32 {
        ASHIFT.into()
    }
    fn size_bytes(&self) -> u64 {
        METASLABS << METASLAB_SHIFT
    }
}

struct Mirrors(Vec<Arc<Mirror>>);

impl BlockDevices for Mirrors {
    fn device(&self, vdev: u32) -> Option<Arc<dyn BlockDevice>> {
        self.0.get(vdev as usize).map(|mirror| Arc::clone(mirror) as Arc<dyn BlockDevice>)
    }
    fn flush(&self) -> Result<()> {
        self.0.iter().flat_map(|mirror| &mirror.sides).try_for_each(|side| Ok(side.flush()?))
    }
    fn is_slow(&self) -> bool {
        self.0.iter().any(|mirror| mirror.slow.is_slow.load(Ordering::Relaxed))
    }
}

struct AllFree;

impl LoadSpaceMap for AllFree {
    fn load(&self, _: u32, metaslab: u64) -> Result<RangeTree> {
        let mut free = RangeTree::new();
        free.add(metaslab << METASLAB_SHIFT, 1 << METASLAB_SHIFT)?;
        Ok(free)
    }
}

/// Only single units are free: every other one.
struct Holes;

impl LoadSpaceMap for Holes {
    fn load(&self, _: u32, metaslab: u64) -> Result<RangeTree> {
        let mut free = RangeTree::new();
        for unit in 0..128 {
            free.add((metaslab << METASLAB_SHIFT) + (unit << 13), 1 << ASHIFT)?;
        }
        Ok(free)
    }
}

/// A bug where blocks are placed.
struct Buggy;

impl LoadSpaceMap for Buggy {
    fn load(&self, _: u32, _: u64) -> Result<RangeTree> {
        panic!("a bug");
    }
}

struct Bench {
    io: Arc<BlockIo>,
    mirrors: Vec<Arc<Mirror>>,
}

fn bench_of(classes: &[ClassKind], sides: usize, free: Arc<dyn LoadSpaceMap>) -> Bench {
    let allocator = Allocator::new(1);
    allocator.set_loader(free);
    let (mut mirrors, slow) = (Vec::new(), Arc::<Slow>::default());
    for (vdev, class) in (0..).zip(classes) {
        let config = GroupConfig {
            vdev,
            class: *class,
            ashift: ASHIFT,
            metaslab_shift: METASLAB_SHIFT,
            data_disks: 1,
            allocation_bytes: 512,
            allocated_size: Box::new(|physical, _| physical.next_multiple_of(1 << ASHIFT)),
        };
        let group = Group::new(config, allocator.streams());
        for id in 0..METASLABS {
            group.add_metaslab(Metaslab::new(vdev, id, 1 << METASLAB_SHIFT, ASHIFT, None, 0));
        }
        allocator.add_group(Arc::new(group));
        let side = |side| Arc::new(MemDisk::new(format!("{vdev}.{side}"), METASLABS << METASLAB_SHIFT));
        let checksum_errors = crate::stats::Counter::default();
        mirrors.push(Arc::new(Mirror { sides: (0..sides).map(side).collect(), checksum_errors, slow: slow.clone() }));
    }
    let devices = Arc::new(Mirrors(mirrors.clone()));
    let threads = BlockThreads { writers: 2, readers: 1 };
    let io = BlockIo::new(&RealHost::shared(), devices, Arc::new(allocator), threads);
    io.set_features(BlockFeatures { embedded_data: true, hole_birth: true, ..BlockFeatures::default() });
    io.set_writable(true);
    Bench { io, mirrors }
}

fn bench_on(vdevs: u32, sides: usize, free: Arc<dyn LoadSpaceMap>) -> Bench {
    bench_of(&vec![ClassKind::Normal; vdevs as usize], sides, free)
}

fn bench(vdevs: u32, sides: usize) -> Bench {
    bench_on(vdevs, sides, Arc::new(AllFree))
}

/// Bytes allocated and freed in `txg` since this was last asked.
fn changes(io: &BlockIo, txg: u64) -> (u64, u64) {
    let sum = |tree: &RangeTree| tree.segments().map(|(_, size)| size).sum::<u64>();
    let (mut allocated, mut freed) = (0, 0);
    for group in io.allocator().groups() {
        for id in group.take_dirty(txg) {
            let changes = group.metaslabs()[id as usize].begin_pass(txg).unwrap();
            allocated += sum(&changes.allocated);
            freed += sum(&changes.freed);
        }
    }
    (allocated, freed)
}

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut data = vec![0; length];
    ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut data);
    data
}

fn request(data: Vec<u8>, copies: u8) -> WriteRequest {
    WriteRequest {
        data: Arc::new(data),
        object_type: ObjectType::PLAIN_FILE_CONTENTS,
        level: 0,
        checksum: ChecksumAlgorithm::Fletcher4.number(),
        compression: Compression::Lz4.number(),
        compression_level: 0,
        copies,
        small_bytes: 0,
        previous: BlkPtr::ZERO,
        rewrite: false,
        no_embed: false,
        bookmark: Bookmark { objset: 5, object: 6, level: 0, block: 7 },
        packed: None,
        seal: Seal::Open,
    }
}

fn data_pointer(bp: &BlkPtr) -> DataPointer {
    match bp.decode() {
        Ok(BlockPointer::Data(data)) => data,
        other => panic!("{other:?}"),
    }
}

const HERE: Bookmark = Bookmark { objset: 1, object: 2, level: 0, block: 3 };

#[test]
fn what_is_written_is_read_whatever_the_algorithms() {
    let seed = 0x210;
    println!("seed {seed:#x}");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let Bench { io, .. } = bench(2, 1);
    io.set_salt([9; 32]);
    let checksums = [2, 6, 7, 8, 10, 11, 12, 13, 14];
    let mut expected = Vec::new();
    let mut requests = Vec::new();
    for number in 0..200 {
        let sectors = random.random_range(1..64);
        let mut data = noise(number, sectors * 512);
        let zeros = random.random_range(0..=data.len());
        data[zeros..].fill(0);
        let mut request = request(data.clone(), 1 + (number % 3) as u8);
        request.checksum = checksums[number as usize % checksums.len()];
        request.compression = random.random_range(2..17);
        expected.push(data);
        requests.push(request);
    }
    let pointers = io.write_many(requests, 10);
    for (index, (pointer, data)) in pointers.into_iter().zip(expected).enumerate() {
        let pointer = pointer.unwrap();
        assert_eq!(*io.read(&pointer, &HERE).unwrap(), data, "block {index}: {pointer}");
        assert_eq!(pointer.logical_size(), if pointer.is_hole() { pointer.logical_size() } else { data.len() as u64 });
        if let Ok(BlockPointer::Data(block)) = pointer.decode() {
            assert_eq!(block.dvas().len(), 1 + index % 3);
            assert_eq!(io.deflated_size(&pointer), pointer.allocated_size());
            assert_eq!((block.logical_birth, block.fill), (10, 1));
        }
    }
}

/// `special_small_blocks`: what of a file is small when it is compressed goes where metadata goes, as long as a quarter is left for that.
#[test]
fn small_blocks_of_files_go_to_special_devices() {
    let Bench { io, .. } = bench_of(&[ClassKind::Normal, ClassKind::Special], 1, Arc::new(AllFree));
    let vdev_of = |data: Vec<u8>, small_bytes, object_type| {
        let pointer = io.write(WriteRequest { small_bytes, object_type, ..request(data, 1) }, 10).unwrap();
        pointer.first_dva().unwrap().vdev
    };
    let file = ObjectType::PLAIN_FILE_CONTENTS;
    assert_eq!(vdev_of(noise(1, 4096), 4096, file), 1);
    assert_eq!(vdev_of(noise(2, 8192), 4096, file), 0);
    assert_eq!(vdev_of(noise(3, 512), 0, file), 0);
    let compresses = [noise(4, 3000), vec![0; 8192 - 3000]].concat();
    assert_eq!(vdev_of(compresses, 4096, file), 1);

    let small = 16 << 10;
    let space = METASLABS << METASLAB_SHIFT;
    let taken = (0..space / small).take_while(|seed| vdev_of(noise(*seed, small as usize), small, file) == 1).count() as u64 * small;
    assert!(taken > space / 10 * 7 && taken <= space / 4 * 3, "{taken} of {space}");
    assert_eq!(vdev_of(noise(5, small as usize), 0, ObjectType::DNODE), 1);
}

#[test]
fn blocks_of_one_batch_follow_each_other_on_disk() {
    let Bench { io, mirrors } = bench(1, 1);
    let requests = (0..40).map(|number| request(noise(number, 4096), 1)).collect();
    let pointers = io.write_many(requests, 10);
    let offsets: Vec<u64> = pointers.iter().map(|bp| bp.as_ref().unwrap().first_dva().unwrap().offset).collect();
    assert!(offsets.windows(2).all(|pair| pair[0] + 4096 == pair[1]), "{offsets:?}");
    assert!(mirrors[0].sides[0].faults.writes() <= 40);
    for (number, pointer) in pointers.into_iter().enumerate() {
        assert_eq!(*io.read(&pointer.unwrap(), &HERE).unwrap(), noise(number as u64, 4096));
    }
}

#[test]
fn a_damaged_side_is_healed_from_the_other() {
    let Bench { io, mirrors } = bench(1, 2);
    let data = noise(1, 65_536);
    let pointer = io.write(request(data.clone(), 1), 10).unwrap();
    let offset = pointer.first_dva().unwrap().offset;
    mirrors[0].sides[0].corrupt(offset + 1000, 10);
    assert_eq!(*io.read(&pointer, &HERE).unwrap(), data);
    assert_eq!((io.counters.checksum_errors.get(), io.counters.healed.get()), (1, 1));
    assert_eq!(mirrors[0].checksum_errors.get(), 1);
    // Now the first side alone is enough.
    mirrors[0].sides[1].corrupt(offset, 65_536);
    assert_eq!(*io.read(&pointer, &HERE).unwrap(), data);
    assert_eq!(io.counters.checksum_errors.get(), 1);
}

#[test]
fn a_second_copy_heals_the_first() {
    let Bench { io, mirrors } = bench(2, 1);
    let data = noise(2, 8192);
    let pointer = io.write(request(data.clone(), 2), 10).unwrap();
    let dvas: Vec<Dva> = pointer.dvas().collect();
    assert_ne!(dvas[0].vdev, dvas[1].vdev, "copies belong on different vdevs");
    mirrors[dvas[0].vdev as usize].sides[0].corrupt(dvas[0].offset, 100);
    assert_eq!(*io.read(&pointer, &HERE).unwrap(), data);
    assert_eq!(io.counters.healed.get(), 1);
    let mut first = vec![0; 8192];
    mirrors[dvas[0].vdev as usize].sides[0].read_at(&mut first, dvas[0].offset).unwrap();
    assert_eq!(first, data);
}

#[test]
fn a_pool_that_may_not_be_written_is_not_healed() {
    let Bench { io, mirrors } = bench(1, 2);
    let data = noise(3, 4096);
    let pointer = io.write(request(data.clone(), 1), 10).unwrap();
    io.set_writable(false);
    let before = mirrors[0].sides[0].faults.writes();
    mirrors[0].sides[0].corrupt(pointer.first_dva().unwrap().offset, 1);
    assert_eq!(*io.read(&pointer, &HERE).unwrap(), data);
    assert_eq!(mirrors[0].sides[0].faults.writes(), before);
}

#[test]
fn a_lost_block_is_named() {
    let Bench { io, mirrors } = bench(1, 2);
    let pointer = io.write(request(noise(4, 4096), 1), 10).unwrap();
    let offset = pointer.first_dva().unwrap().offset;
    mirrors[0].sides.iter().for_each(|side| side.corrupt(offset, 1));
    let error = io.read(&pointer, &HERE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Checksum);
    assert!(error.message().contains("dataset 1, object 2, level 0, block 3"), "{error}");
    mirrors[0].sides.iter().for_each(|side| side.faults.break_reads(true));
    assert_eq!(io.read(&pointer, &HERE).unwrap_err().kind(), ErrorKind::Io);
}

#[test]
fn a_failed_write_leaves_nothing_allocated() {
    let Bench { io, mirrors } = bench(1, 1);
    mirrors[0].sides[0].faults.break_writes(true);
    let results = io.write_many((0..9).map(|number| request(noise(number, 8192), 1)).collect(), 10);
    assert!(results.iter().all(|result| result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Io)));
    assert_eq!(changes(&io, 10), (0, 0));
    mirrors[0].sides[0].faults.break_writes(false);
    io.write(request(noise(1, 8192), 1), 10).unwrap();
    assert_eq!(changes(&io, 10), (8192, 0));
}

/// A program that was killed while it wrote the last block of a log had written it to one side of a mirror: the others were reported to have errors.
#[test]
fn a_write_that_was_cut_off_is_no_error_of_a_device() {
    let Bench { io, mirrors } = bench(1, 3);
    let pointer = io.write(request(noise(3, 8192), 1), 10).unwrap();
    let place = data_pointer(&pointer).dvas()[0].offset;
    for side in [0, 1] {
        mirrors[0].sides[side].corrupt(place, 512);
    }
    assert_eq!(io.read_if_written(&pointer, &HERE).unwrap(), noise(3, 8192));
    assert_eq!((mirrors[0].checksum_errors.get(), io.counters.checksum_errors.get()), (0, 0));
    let mut bytes = vec![0; 8192];
    mirrors[0].sides[1].read_at(&mut bytes, place).unwrap();
    assert_eq!(bytes, noise(3, 8192), "all sides have it now");
}

/// A disk that turns lost a turn for each 128 KiB of a file, as the next ones were written when those were done.
#[test]
fn slow_devices_get_large_writes_and_several_small_ones_at_a_time() {
    let Bench { io, mirrors } = bench(3, 1);
    let slow = &mirrors[0].slow;
    slow.is_slow.store(true, Ordering::Relaxed);
    let pointers = io.write_many((0..100).map(|number| request(noise(number, 8192), 1)).collect(), 10);
    let writes = std::mem::take(&mut *slow.writes.lock());
    assert!(writes.iter().sum::<usize>() == 100 * 8192 && writes.len() <= 3, "one for each place that they went to: {writes:?}");
    for (number, pointer) in pointers.into_iter().enumerate() {
        assert_eq!(*io.read(&pointer.unwrap(), &HERE).unwrap(), noise(number as u64, 8192));
    }
    *slow.inside.lock() = (0, 0);
    let results = io.write_many((0..8).map(|number| request(noise(number, 4096), 1 + number as u8 % 2)).collect(), 10);
    assert!(results.iter().all(Result::is_ok));
    assert!(slow.inside.lock().1 >= 3, "{} at a time", slow.inside.lock().1);
}

#[test]
fn a_later_pass_writes_over_its_own_block() {
    let Bench { io, .. } = bench(2, 1);
    let first = io.write(request(noise(5, 8192), 2), 10).unwrap();
    let again = |data: Vec<u8>, txg| {
        let rewritten = WriteRequest { previous: first, rewrite: true, ..request(data, 2) };
        io.write(rewritten, txg).unwrap()
    };
    let second = again(noise(6, 8192), 10);
    assert_eq!(first.dvas().collect::<Vec<_>>(), second.dvas().collect::<Vec<_>>());
    assert_eq!(*io.read(&second, &HERE).unwrap(), noise(6, 8192));
    assert_eq!(io.read(&first, &HERE).unwrap_err().kind(), ErrorKind::Checksum);
    assert_ne!(first.first_dva(), again(noise(7, 12_288), 10).first_dva(), "another size needs another place");
    assert_ne!(first.first_dva(), again(noise(8, 8192), 11).first_dva(), "a block of another txg is never written over");
}

#[test]
fn without_long_ranges_blocks_become_gangs() {
    let Bench { io, mirrors } = bench_on(2, 1, Arc::new(Holes));
    for (length, copies) in [(8192, 1), (65_536, 1), (131_072, 2), (20_480, 3)] {
        let data = noise(length as u64, length);
        let pointer = io.write(request(data.clone(), copies), 10).unwrap();
        assert!(pointer.is_gang(), "{pointer}");
        assert_eq!(*io.read(&pointer, &HERE).unwrap(), data);
        let gang = data_pointer(&pointer);
        assert_eq!(gang.physical_size, length as u64);
        // The first copy counts its header and a copy of every piece.
        assert!(gang.dvas()[0].allocated > length as u64);
        let header = gang.dvas()[0];
        mirrors[header.vdev as usize].sides[0].corrupt(header.offset + 10, 4);
        assert_eq!(*io.read(&pointer, &HERE).unwrap(), data, "the second header leads to the pieces too");
    }
}

/// Gang blocks of encrypted datasets could not be read, verified or freed: their headers have half a checksum (found in a pool of ztest's).
#[test]
fn the_header_of_an_encrypted_gang_has_half_a_checksum() {
    use transform::checksum::{GANG_HEADER, embedded};
    let Bench { io, mirrors } = bench_on(1, 1, Arc::new(Holes));
    let data = noise(1, 65_536);
    let pointer = data_pointer(&io.write(request(data.clone(), 1), 10).unwrap());
    let first = pointer.dvas()[0];
    let mut header = vec![0; 512];
    mirrors[0].sides[0].read_at(&mut header, first.offset).unwrap();
    header[512 - 16..].fill(0);
    embedded::seal_beside_mac(GANG_HEADER, &mut header, [first.vdev.into(), first.offset, 10, 0]).unwrap();
    for dva in pointer.dvas() {
        mirrors[0].sides[0].write_at(&header, dva.offset).unwrap();
    }
    assert_eq!(io.read_physical(&pointer.encode(), &HERE).unwrap_err().kind(), ErrorKind::Checksum);
    let mut encrypted = pointer.clone();
    encrypted.protection = ondisk::blkptr::Protection::Authenticated;
    assert_eq!(io.read_physical(&encrypted.encode(), &HERE).unwrap(), data);
    header[512 - 32] ^= 1;
    for dva in pointer.dvas() {
        mirrors[0].sides[0].write_at(&header, dva.offset).unwrap();
    }
    assert_eq!(io.read_physical(&encrypted.encode(), &HERE).unwrap_err().kind(), ErrorKind::Checksum);
}

#[test]
fn freeing_a_gang_frees_all_of_it() {
    let Bench { io, .. } = bench_on(1, 1, Arc::new(Holes));
    let pointer = io.write(request(noise(1, 131_072), 1), 10).unwrap();
    let (allocated, _) = changes(&io, 10);
    // 32 pieces, and two copies of the headers that lead to them.
    assert!(allocated > 131_072 + 2 * 11 * 4096, "{allocated}");
    io.free(&pointer, 11).unwrap();
    assert_eq!(changes(&io, 11), (0, allocated));
}

#[test]
fn a_full_pool_says_so_and_loses_nothing() {
    let Bench { io, .. } = bench_on(1, 1, Arc::new(Holes));
    let mut written = 0;
    let error = loop {
        match io.write(request(noise(written, 131_072), 1), 10) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert!(written >= 25, "{written}");
    let (allocated, _) = changes(&io, 10);
    assert_eq!(allocated % written, 0, "what did not fit must be given back whole");
    // What is left is still of use.
    io.write(request(noise(0, 4096), 1), 10).unwrap();
    assert_eq!(changes(&io, 10), (4096, 0));
}

#[test]
fn addresses_that_do_not_exist_are_refused() {
    let Bench { io, .. } = bench(1, 1);
    for dva in [Dva::new(7, 0, 4096), Dva::new(0, METASLABS << METASLAB_SHIFT, 4096), Dva::new(0, u64::MAX >> 12 << 9, 4096)] {
        let pointer = DataPointer::new(&[dva], ObjectType::PLAIN_FILE_CONTENTS, 0, 3).encode();
        assert_eq!(io.read(&pointer, &HERE).unwrap_err().kind(), ErrorKind::Corrupt, "{dva}");
    }
}

#[test]
fn arbitrary_pointers_are_survived() {
    let seed = 0xb10c;
    println!("seed {seed:#x}");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let Bench { io, .. } = bench(1, 1);
    let good = *io.write(request(noise(1, 8192), 1), 10).unwrap().as_bytes();
    for _ in 0..3000 {
        let mut bytes = good;
        for _ in 0..random.random_range(1..6) {
            bytes[random.random_range(0..128)] ^= 1 << random.random_range(0..8);
        }
        let bp = BlkPtr::from_bytes(&bytes).unwrap();
        if let Ok(data) = io.read(&bp, &HERE) {
            assert_eq!(data.len() as u64, bp.logical_size());
        }
    }
}

#[test]
fn the_cache_reads_once_and_keeps_what_was_written() {
    let Bench { io, mirrors } = bench(1, 1);
    let reads = || mirrors[0].sides[0].faults.reads();
    let cache = BlockCache::new(Arc::clone(&io), 1 << 20);
    let data = Arc::new(noise(1, 65_536));
    let pointer = io.write(request(data.to_vec(), 1), 10).unwrap();
    assert_eq!(cache.read(&pointer, &HERE).unwrap(), data);
    assert_eq!(cache.read(&pointer, &HERE).unwrap(), data);
    assert_eq!((reads(), cache.stats().hits, cache.stats().misses), (1, 1, 1));
    let written = io.write(request(noise(2, 65_536), 1), 10).unwrap();
    cache.insert(0, &written, Arc::new(noise(2, 65_536)));
    assert!(cache.is_here(&written));
    assert_eq!(reads(), 1);
    cache.invalidate(&written);
    assert!(!cache.is_here(&written));
    assert_eq!(*cache.read(&written, &HERE).unwrap(), noise(2, 65_536));
    assert_eq!(reads(), 2);
}

#[test]
fn the_cache_leaves_room_for_what_is_dirty() {
    let Bench { io, .. } = bench(1, 1);
    let limit = 4 << 20;
    let cache = BlockCache::new(Arc::clone(&io), limit);
    let resident = || cache.stats().recent_bytes + cache.stats().frequent_bytes;
    let block = Arc::new(noise(1, 32_768));
    let requests = (0..200).map(|_| request(block.to_vec(), 1)).collect();
    let written: Vec<BlkPtr> = io.write_many(requests, 10).into_iter().map(|result| result.unwrap()).collect();
    let fill = || written.iter().for_each(|pointer| cache.insert(0, pointer, block.clone()));
    fill();
    assert!(resident() > limit / 2);
    cache.make_room(3 << 20);
    assert!(resident() <= 1 << 20, "{} bytes", resident());
    fill();
    assert!(resident() <= 1 << 20, "{} bytes", resident());
    // A part is the cache's own, whatever is dirty.
    cache.make_room(1 << 30);
    fill();
    assert!((1..=limit / 8).contains(&resident()), "{} bytes", resident());
    cache.make_room(0);
    fill();
    assert!(resident() > limit / 2);
}

/// Returns when all jobs that were submitted before are done: each worker is at one that came later.
fn finish_jobs(executor: &Executor) {
    let meeting = Arc::new(Barrier::new(executor.workers() + 1));
    for _ in 0..executor.workers() {
        let meeting = Arc::clone(&meeting);
        let job = move || {
            meeting.wait();
        };
        assert!(executor.submit(job), "the queue is full");
    }
    meeting.wait();
}

#[test]
fn the_cache_keeps_its_limit_under_many_threads() {
    let Bench { io, .. } = bench(1, 1);
    let limit = 2 << 20;
    let cache = BlockCache::new(Arc::clone(&io), limit);
    let pointers: Vec<BlkPtr> = io
        .write_many((0..200).map(|number| request(noise(number, 32_768), 1)).collect(), 10)
        .into_iter()
        .map(|result| result.unwrap())
        .collect();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (cache, pointers) = (&cache, &pointers);
            scope.spawn(move || {
                let mut random = ChaCha8Rng::seed_from_u64(thread);
                for _ in 0..1500 {
                    let index = random.random_range(0..200);
                    if random.random_range(0..10) == 0 {
                        cache.prefetch(&pointers[index], &HERE, |see_to_it| see_to_it());
                    }
                    let data = cache.read(&pointers[index], &HERE).unwrap();
                    assert_eq!(data[..8], noise(index as u64, 8)[..]);
                }
            });
        }
    });
    // A reader ahead may be about to evict for the block that it has put in.
    finish_jobs(io.readers());
    let stats = cache.stats();
    assert!(stats.recent_bytes + stats.frequent_bytes <= limit, "{stats:?}");
    assert!(stats.evictions > 0 && stats.hits > 0, "{stats:?}");
    assert_eq!(stats.hits + stats.joined + stats.misses, 6000);
}

/// A reader that waited for a block that was being read ahead counted as one that had missed it.
#[test]
fn a_reader_that_waits_for_a_read_ahead_has_not_missed() {
    let Bench { io, mirrors } = bench(1, 1);
    let cache = BlockCache::new(Arc::clone(&io), 8 << 20);
    let pointers: Vec<BlkPtr> = (0..50).map(|number| io.write(request(noise(number, 8192), 1), 10).unwrap()).collect();
    let mut read = 0;
    for pointer in &pointers {
        mirrors[0].slow.hold_reads(true);
        cache.prefetch(pointer, &HERE, |see_to_it| see_to_it());
        mirrors[0].slow.wait_for_a_held_read();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| cache.read(pointer, &HERE).unwrap());
            // Long enough for it to come as far as that; else once more.
            std::thread::sleep(Duration::from_millis(20));
            mirrors[0].slow.hold_reads(false);
            assert_eq!(reader.join().unwrap().len(), 8192);
        });
        finish_jobs(io.readers());
        read += 1;
        if cache.stats().joined > 0 && cache.stats().ahead.used_in_flight > 0 {
            break;
        }
    }
    let stats = cache.stats();
    assert!(stats.joined > 0 && stats.hits + stats.joined + stats.misses == read, "{stats:?}");
    assert!(stats.ahead.used_in_flight == 1 && stats.ahead.used <= read, "{stats:?}");
}

/// What was set while a pool is in use held from the next block on that came in.
#[test]
fn the_cache_obeys_at_once() {
    let Bench { io, .. } = bench(1, 1);
    let (tunables, given) = (Tunables { cache_bytes_max: 64 << 20, ..Tunables::default() }, 64 << 20);
    let cache = BlockCache::under(Arc::clone(&io), given, tunables.memory_pressure.clone());
    let pointers: Vec<BlkPtr> =
        io.write_many((0..400).map(|number| request(noise(number, 32_768), 1)).collect(), 10).into_iter().map(|result| result.unwrap()).collect();
    let read = || pointers.iter().for_each(|pointer| assert_eq!(cache.read(pointer, &HERE).unwrap().len(), 32_768));
    let set = |parameter, bytes: u64| {
        tunables.parameters.set(parameter, &bytes.to_string()).unwrap();
        tunables.obey_cache_limits();
    };
    read();
    assert!(cache.resident_bytes() > 12 << 20);
    set(Parameter::ArcMax, 8 << 20);
    assert!((4 << 20..=8 << 20).contains(&cache.resident_bytes()), "{}", cache.resident_bytes());
    let stats = cache.stats();
    assert_eq!((stats.limit_bytes, stats.limit_bytes_max, stats.limit_bytes_min), (8 << 20, 8 << 20, 2 << 20));
    assert!(stats.ghosts.recent_bytes > 3 << 20, "{stats:?}");
    set(Parameter::ArcMin, 6 << 20);
    tunables.memory_pressure.add_bytes(given, given);
    assert!((3 << 20..=6 << 20).contains(&cache.resident_bytes()), "{}", cache.resident_bytes());
    assert_eq!(cache.limit(), 8 << 20);
    read();
    let stats = cache.stats();
    assert!(stats.ghosts.recent_hits > 0 && stats.recent_hits + stats.frequent_hits == stats.hits, "{stats:?}");
    // 0 is what it was at first.
    (0..1000).for_each(|_| tunables.memory_pressure.relax());
    set(Parameter::ArcMax, 0);
    read();
    assert!(cache.resident_bytes() > 12 << 20);
    set(Parameter::ArcMax, 128 << 20);
    assert_eq!(cache.limit(), 128 << 20, "it may be more than at first");
}

/// Overwrites the first copy with what somebody else would write there after the block was freed; returns where, and what.
fn reuse_first_place(mirrors: &[Arc<Mirror>], pointer: &BlkPtr) -> (Arc<Mirror>, u64, Vec<u8>) {
    let place = pointer.first_dva().unwrap();
    let (mirror, new) = (mirrors[place.vdev as usize].clone(), noise(77, 8192));
    mirror.sides[0].write_at(&new, place.offset).unwrap();
    (mirror, place.offset, new)
}

/// A block was freed before the job that reads it ahead had its turn, and its place was somebody else's: the job took that for
/// damage, and wrote the old contents over it, from the second copy.
#[test]
fn reading_ahead_repairs_nothing_that_may_be_gone() {
    let Bench { io, mirrors } = bench(2, 1);
    let cache = BlockCache::new(Arc::clone(&io), 1 << 20);
    let pointer = io.write(request(noise(3, 8192), 2), 10).unwrap();
    let (mirror, offset, new) = reuse_first_place(&mirrors, &pointer);
    cache.prefetch(&pointer, &HERE, |_| ());
    finish_jobs(io.readers());
    let mut there = vec![0; 8192];
    mirror.sides[0].read_at(&mut there, offset).unwrap();
    assert_eq!(there, new);
    assert_eq!((io.counters.healed.get(), io.counters.checksum_errors.get(), io.counters.lost_blocks.get()), (0, 0, 0));
    assert!(!cache.is_here(&pointer), "who needs it is to see the damage");
    assert_eq!(*cache.read(&pointer, &HERE).unwrap(), noise(3, 8192));
    assert_eq!((io.counters.healed.get(), io.counters.checksum_errors.get()), (1, 1));
}

/// Devices under which a block is freed between the reading of its first copy and of its second.
struct Freeing {
    mirrors: Mirrors,
    asked: std::sync::atomic::AtomicUsize,
    freed: std::sync::OnceLock<(BlockCache, BlkPtr)>,
}

impl BlockDevices for Freeing {
    fn device(&self, vdev: u32) -> Option<Arc<dyn BlockDevice>> {
        if let Some((cache, pointer)) = self.freed.get()
            && self.asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 1
        {
            cache.invalidate(pointer);
        }
        self.mirrors.device(vdev)
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

#[test]
fn what_was_freed_while_it_was_read_is_not_repaired() {
    let Bench { io, mirrors } = bench(2, 1);
    let pointer = io.write(request(noise(3, 8192), 2), 10).unwrap();
    let (mirror, offset, new) = reuse_first_place(&mirrors, &pointer);
    let devices = Arc::new(Freeing { mirrors: Mirrors(mirrors), asked: 0.into(), freed: std::sync::OnceLock::new() });
    let threads = BlockThreads { writers: 1, readers: 1 };
    let io = BlockIo::new(&RealHost::shared(), devices.clone(), Arc::new(Allocator::new(1)), threads);
    io.set_writable(true);
    let cache = BlockCache::new(Arc::clone(&io), 1 << 20);
    assert!(devices.freed.set((cache.clone(), pointer)).is_ok());
    assert_eq!(*cache.read(&pointer, &HERE).unwrap(), noise(3, 8192));
    let mut there = vec![0; 8192];
    mirror.sides[0].read_at(&mut there, offset).unwrap();
    assert_eq!(there, new);
    assert_eq!((io.counters.healed.get(), io.counters.checksum_errors.get()), (0, 0));
}

/// A thread that placed blocks, or wrote them, had them in hand when a bug ended it, and all others waited for them for ever.
#[test]
#[allow(clippy::disallowed_methods)] // this test is about threads
fn a_bug_in_a_batch_leaves_nobody_waiting() {
    for is_slow in [false, true] {
        for places in [false, true] {
            let Bench { io, mirrors } = if places { bench_on(1, 1, Arc::new(Buggy)) } else { bench(1, 1) };
            mirrors[0].slow.is_slow.store(is_slow, Ordering::Relaxed);
            mirrors[0].slow.is_broken.store(!places, Ordering::Relaxed);
            let (tell, told) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                let requests = (0..20).map(|number| request(noise(number, 131_072), 1)).collect();
                let written = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| io.write_many(requests, 10)));
                tell.send(written.is_ok_and(|results| results.iter().all(Result::is_ok)))
            });
            let done = told.recv_timeout(Duration::from_secs(20));
            assert_eq!(done, Ok(false), "slow: {is_slow}, while placing: {places}");
        }
    }
}
