//! The cache has blocks as they are on disk beside what is plain.

use ondisk::blkptr::Protection;
use ondisk::byteswap;
use transform::compress::is_zero;

use super::*;

/// Contents of which about a third is left when they are compressed.
fn third(seed: u64, length: usize) -> Vec<u8> {
    let mut data = noise(seed, length);
    data[length / 3..].fill(seed as u8 | 1);
    data
}

fn on_device(mirror: &Mirror, bp: &BlkPtr) -> Vec<u8> {
    let mut bytes = vec![0; bp.physical_size() as usize];
    mirror.sides[0].read_at(&mut bytes, bp.first_dva().unwrap().offset).unwrap();
    bytes
}

fn resident(cache: &BlockCache) -> u64 {
    let stats = cache.stats();
    stats.recent_bytes + stats.frequent_bytes
}

#[test]
fn physical_bytes_are_those_of_the_device_whatever_compressed_them() {
    let Bench { io, mirrors } = bench(1, 1);
    let reads = || mirrors[0].sides[0].faults.reads();
    for compression in [Compression::Off, Compression::Lzjb, Compression::Gzip6, Compression::Zle, Compression::Lz4, Compression::Zstd] {
        let data = if compression == Compression::Zle { let mut data = noise(5, 65_536); data[20_000..].fill(0); data } else { third(5, 65_536) };
        let pointer = io.write(WriteRequest { compression: compression.number(), ..request(data.clone(), 1) }, 10).unwrap();
        assert_eq!(pointer.physical_size() < 65_536, compression != Compression::Off, "{compression:?}");
        for physical_first in [true, false] {
            let cache = BlockCache::new(Arc::clone(&io), 1 << 20);
            let device = on_device(&mirrors[0], &pointer);
            let before = reads();
            for is_physical in [physical_first, !physical_first, true, false] {
                if is_physical {
                    assert_eq!(*cache.physical(&pointer, &HERE).unwrap(), device, "{compression:?}");
                } else {
                    assert_eq!(*cache.read(&pointer, &HERE).unwrap(), data, "{compression:?}");
                }
            }
            assert_eq!((reads() - before, cache.stats().misses, cache.stats().hits), (1, 1, 3), "{compression:?}");
            let both = device.len() as u64 + if compression == Compression::Off { 0 } else { 65_536 };
            let stats = cache.stats();
            assert_eq!((stats.compressed_bytes, stats.uncompressed_bytes), (device.len() as u64, 65_536), "{compression:?}");
            assert_eq!((stats.overhead_bytes, resident(&cache) - both < 200), (both - device.len() as u64, true), "{compression:?}");
        }
    }
}

#[test]
fn what_is_not_compressed_is_one_copy() {
    let Bench { io, .. } = bench(1, 1);
    let cache = BlockCache::new(Arc::clone(&io), 1 << 20);
    let data = Arc::new(noise(1, 65_536));
    let pointer = io.write(request(data.to_vec(), 1), 10).unwrap();
    let read = cache.read(&pointer, &HERE).unwrap();
    assert!(Arc::ptr_eq(&read, &cache.physical(&pointer, &HERE).unwrap()));
    cache.insert(0, &pointer, Arc::clone(&data));
    assert!(Arc::ptr_eq(&data, &cache.physical(&pointer, &HERE).unwrap()) && Arc::ptr_eq(&data, &cache.read(&pointer, &HERE).unwrap()));
}

#[test]
fn gangs_and_what_is_in_pointers_have_physical_bytes_too() {
    let Bench { io, .. } = bench_on(2, 1, Arc::new(Holes));
    let cache = BlockCache::new(Arc::clone(&io), 1 << 20);
    let data = third(3, 131_072);
    let gang = io.write(request(data.clone(), 2), 10).unwrap();
    assert!(gang.is_gang());
    let physical = cache.physical(&gang, &HERE).unwrap();
    assert_eq!(physical.len() as u64, gang.physical_size());
    assert_eq!(BlockIo::open(&data_pointer(&gang), &physical, &HERE).unwrap(), data);
    assert_eq!(*cache.read(&gang, &HERE).unwrap(), data);
    let embedded = io.write(request(vec![7; 4096], 1), 10).unwrap();
    let Ok(BlockPointer::Embedded(inside)) = embedded.decode() else { panic!("{embedded}") };
    assert_eq!(*cache.physical(&embedded, &HERE).unwrap(), inside.payload());
    let hole = io.write(request(vec![0; 4096], 1), 10).unwrap();
    assert_eq!(cache.physical(&hole, &HERE).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn what_a_big_endian_machine_wrote_is_turned_around_in_the_plain_copy_alone() {
    let Bench { io, mirrors } = bench(1, 1);
    let plain: Vec<u8> = noise(9, 16_384);
    let mut swapped = plain.clone();
    byteswap::swap_block(ObjectType::DNODE, 0, &mut swapped);
    assert_ne!(plain, swapped);
    let mut pointer = data_pointer(&io.write(request(noise(1, 16_384), 1), 10).unwrap());
    (pointer.object_type, pointer.little_endian) = (ObjectType::DNODE, false);
    pointer.checksum = transform::checksum::checksum(pointer.checksum_algorithm.number(), &swapped, true, &[0; 32]).unwrap();
    mirrors[0].sides[0].write_at(&swapped, pointer.dvas()[0].offset).unwrap();
    let (pointer, cache) = (pointer.encode(), BlockCache::new(Arc::clone(&io), 1 << 20));
    assert_eq!(*cache.physical(&pointer, &HERE).unwrap(), swapped);
    assert_eq!(*cache.read(&pointer, &HERE).unwrap(), io.read(&pointer, &HERE).unwrap()[..]);
    assert_eq!(*cache.physical(&pointer, &HERE).unwrap(), swapped);
}

#[test]
fn physical_bytes_are_verified_and_the_wrong_copy_mended() {
    let Bench { io, mirrors } = bench(1, 2);
    let pointer = io.write(request(third(4, 65_536), 1), 10).unwrap();
    let right = on_device(&mirrors[0], &pointer);
    mirrors[0].sides[0].corrupt(pointer.first_dva().unwrap().offset + 5, 1);
    let cache = BlockCache::new(Arc::clone(&io), 1 << 20);
    assert_eq!(*cache.physical(&pointer, &HERE).unwrap(), right);
    assert_eq!((on_device(&mirrors[0], &pointer), io.counters.healed.get()), (right, 1));
    mirrors[0].sides.iter().for_each(|side| side.corrupt(pointer.first_dva().unwrap().offset, 1));
    cache.invalidate(&pointer);
    assert_eq!(cache.physical(&pointer, &HERE).unwrap_err().kind(), ErrorKind::Checksum);
}

#[test]
fn what_is_encrypted_can_be_had_as_it_is_and_not_plain() {
    let Bench { io, mirrors } = bench(1, 1);
    let mut pointer = data_pointer(&io.write(request(noise(6, 16_384), 1), 10).unwrap());
    pointer.protection = Protection::Encrypted { salt: 1, iv: 2, iv_tail: 3 };
    let words = transform::checksum::checksum(pointer.checksum_algorithm.number(), &noise(6, 16_384), false, &[0; 32]).unwrap();
    let folded = transform::checksum::fold_for_mac(pointer.checksum_algorithm.number(), words);
    pointer.checksum = [folded[0], folded[1], 4, 5];
    let (encrypted, cache) = (pointer.encode(), BlockCache::new(Arc::clone(&io), 1 << 20));
    let before = mirrors[0].sides[0].faults.reads();
    assert_eq!(cache.read(&encrypted, &HERE).unwrap_err().kind(), ErrorKind::KeyNotLoaded);
    assert_eq!(mirrors[0].sides[0].faults.reads(), before);
    assert_eq!(*cache.physical(&encrypted, &HERE).unwrap(), noise(6, 16_384));
    assert_eq!(cache.read(&encrypted, &HERE).unwrap_err().kind(), ErrorKind::KeyNotLoaded);
    // Nor is it replaced by what is not encrypted.
    let plain = WriteRequest { previous: encrypted, ..request(noise(7, 16_384), 1) };
    changes(&io, 11);
    assert_eq!(io.write(plain, 11).unwrap_err().kind(), ErrorKind::KeyNotLoaded);
    assert_eq!(changes(&io, 11), (0, 0));
}

#[test]
fn compressed_blocks_stay_when_their_plain_copies_do_not_fit() {
    let Bench { io, mirrors } = bench(1, 1);
    let reads = || mirrors[0].sides[0].faults.reads();
    let contents = |number: u64| { let mut data = vec![number as u8 | 1; 131_072]; data[..2000].copy_from_slice(&noise(number, 2000)); data };
    let requests = (0..64).map(|number| request(contents(number), 1)).collect();
    let written: Vec<BlkPtr> = io.write_many(requests, 10).into_iter().map(|result| result.unwrap()).collect();
    // They are 8 MB, compressed 256 KB.
    let cache = BlockCache::new(Arc::clone(&io), 2 << 20);
    for round in 0..3 {
        let before = reads();
        for (number, pointer) in (0..).zip(&written) {
            assert_eq!(*cache.read(pointer, &HERE).unwrap(), contents(number));
            assert!(resident(&cache) <= 2 << 20);
        }
        assert_eq!(reads() - before, if round == 0 { 64 } else { 0 });
    }
}

#[test]
fn the_holes_at_the_end_of_a_block_of_pointers_take_no_memory() {
    let Bench { io, mirrors } = bench(1, 1);
    let child = io.write(request(noise(1, 4096), 1), 9).unwrap();
    let mut block = vec![0; 131_072];
    for index in [0, 5] {
        block[index * 128..][..128].copy_from_slice(child.as_bytes());
    }
    for compression in [Compression::Lz4, Compression::Off] {
        let as_pointers = WriteRequest { level: 1, compression: compression.number(), ..request(block.clone(), 1) };
        let pointer = io.write(as_pointers, 10).unwrap();
        for is_inserted in [false, true] {
            let cache = BlockCache::new(Arc::clone(&io), 1 << 20);
            if is_inserted {
                cache.insert(0, &pointer, Arc::new(block.clone()));
            }
            let before = mirrors[0].sides[0].faults.reads();
            let pointers = cache.read_pointers(&pointer, &HERE).unwrap();
            let found: Vec<bool> = (0..1024).map(|index| pointers.get(index).unwrap() == child).collect();
            assert!(found.iter().enumerate().all(|(index, is_child)| *is_child == [0, 5].contains(&index)));
            assert_eq!((pointers.get(1024), pointers.count(), pointers.kept().len()), (None, 1024, 6));
            assert_eq!(pointers.to_block(), block);
            assert_eq!(*cache.read(&pointer, &HERE).unwrap(), block);
            assert_eq!(mirrors[0].sides[0].faults.reads() - before, u64::from(!is_inserted));
            assert!(resident(&cache) < 1000, "{} bytes", resident(&cache));
            // As it is on disk it takes another read, which is right all the same.
            assert_eq!(*cache.physical(&pointer, &HERE).unwrap(), on_device(&mirrors[0], &pointer));
            assert_eq!(cache.read_pointers(&pointer, &HERE).unwrap().to_block(), block);
        }
    }
    assert!(is_zero(&block[6 * 128..]));
}

/// A reader that had the pointer to a block that the group being synced wrote over in its place found a wrong checksum, if the cache had given it up: the
/// device was blamed, and file systems could not be mounted.
#[test]
fn a_block_that_is_written_over_in_its_place_can_be_read_with_the_pointer_from_before() {
    let Bench { io, .. } = bench(1, 2);
    let cache = BlockCache::new(Arc::clone(&io), 1 << 20);
    let (before, after) = (noise(1, 16_384), noise(2, 16_384));
    let first = io.write(request(before, 1), 10).unwrap();
    cache.begin_rewrite(&first, Arc::new(after.clone()));
    let again = WriteRequest { previous: first, rewrite: true, ..request(after.clone(), 1) };
    let second = io.write(again, 10).unwrap();
    assert!(second.first_dva() == first.first_dva() && second != first);
    for pointer in [&first, &second] {
        cache.invalidate(pointer);
        assert_eq!(*cache.read(pointer, &HERE).unwrap(), after);
    }
    assert_eq!((io.counters.checksum_errors.get(), io.counters.lost_blocks.get()), (0, 0));
    cache.end_rewrites();
    cache.invalidate(&second);
    assert_eq!(*cache.read(&second, &HERE).unwrap(), after);
    cache.invalidate(&second);
    assert_eq!(cache.read(&first, &HERE).unwrap_err().kind(), ErrorKind::Checksum);
}

/// A reader that found one side written over and the other not yet wrote what had been there before over what was new.
#[test]
fn what_the_group_being_written_may_write_over_is_not_healed() {
    let Bench { io, mirrors } = bench(1, 2);
    let cache = BlockCache::new(Arc::clone(&io), 1 << 20);
    let requests = (0..8).map(|number| request(noise(number, 16_384), 1)).collect();
    let pointers: Vec<BlkPtr> = io.write_many(requests, 10).into_iter().map(Result::unwrap).collect();
    // Whichever side is asked first.
    for (pointer, side) in pointers.iter().zip([0, 1].into_iter().cycle()) {
        mirrors[0].sides[side].corrupt(pointer.first_dva().unwrap().offset, 100);
    }
    let read_all = || {
        for (number, pointer) in (0..).zip(&pointers) {
            cache.invalidate(pointer);
            assert_eq!(*cache.read(pointer, &HERE).unwrap(), noise(number, 16_384));
        }
        (io.counters.healed.get(), io.counters.checksum_errors.get())
    };
    cache.begin_rewrites(10);
    assert_eq!(read_all(), (0, 0));
    cache.end_rewrites();
    let (healed, wrong) = read_all();
    assert!(healed > 0 && wrong == healed, "{healed} of {wrong} were healed");
}

/// Whatever is asked for and given up, what is counted is what there is.
#[test]
fn memory_is_counted_exactly_under_pressure() {
    const BLOCKS: u64 = 120;
    let seed = 0xa2c;
    println!("seed {seed:#x}");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let Bench { io, mirrors } = bench(1, 1);
    let contents = |number: u64| if number.is_multiple_of(3) { noise(number, 16_384) } else { third(number, 32_768) };
    let requests = (0..BLOCKS).map(|number| request(contents(number), 1)).collect();
    let written: Vec<BlkPtr> = io.write_many(requests, 10).into_iter().map(|result| result.unwrap()).collect();
    let cache = BlockCache::new(Arc::clone(&io), 1 << 20);
    for step in 0..20_000 {
        let number = random.random_range(0..BLOCKS);
        let pointer = &written[number as usize];
        match random.random_range(0..10) {
            0..4 => assert_eq!(*cache.read(pointer, &HERE).unwrap(), contents(number)),
            4..7 => assert_eq!(*cache.physical(pointer, &HERE).unwrap(), on_device(&mirrors[0], pointer)),
            7 => cache.insert(0, pointer, Arc::new(contents(number))),
            8 => cache.invalidate(pointer),
            _ => cache.set_limit(random.random_range(1 << 20..3 << 20)),
        }
        let stats = cache.stats();
        assert_eq!(resident(&cache), cache.resident_bytes(), "step {step}");
        assert!(resident(&cache) <= cache.limit(), "step {step}: {stats:?}");
        let overhead = resident(&cache) - stats.compressed_bytes - stats.overhead_bytes;
        assert!(overhead.is_multiple_of(128) && overhead <= BLOCKS * 128, "step {step}: {stats:?}");
    }
    written.iter().for_each(|pointer| cache.invalidate(pointer));
    let stats = cache.stats();
    assert_eq!((resident(&cache), stats.compressed_bytes, stats.uncompressed_bytes, stats.overhead_bytes), (0, 0, 0, 0));
}

/// One side of a mirror has missed the last block of a log, and the other cannot be read for now: the block was taken for one that was never written, and with it
/// the log ended there. A side that was cut off the same way beside one that is right is no reason to refuse it.
#[test]
fn a_block_that_a_device_refuses_to_read_is_not_one_that_was_never_written() {
    let Bench { io, mirrors } = bench(1, 2);
    let pointer = io.write(request(noise(3, 8192), 1), 10).unwrap();
    mirrors[0].sides[0].corrupt(data_pointer(&pointer).dvas()[0].offset, 8192);
    mirrors[0].sides[1].faults.break_reads(true);
    assert_eq!(io.read_if_written(&pointer, &HERE).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(io.read_physical(&pointer, &HERE).unwrap_err().kind(), ErrorKind::Checksum, "another block is lost either way");
    mirrors[0].sides[1].faults.break_reads(false);
    assert_eq!(io.read_if_written(&pointer, &HERE).unwrap(), noise(3, 8192));
    let pointer = io.write(request(noise(4, 8192), 1), 10).unwrap();
    for side in &mirrors[0].sides {
        side.corrupt(data_pointer(&pointer).dvas()[0].offset, 8192);
    }
    assert_eq!(io.read_if_written(&pointer, &HERE).unwrap_err().kind(), ErrorKind::Checksum);
}
