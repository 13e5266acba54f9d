//! Blocks that are read as one.

use super::*;

fn run_of(pointers: &[BlkPtr]) -> Run {
    let mut run = Run::default();
    pointers.iter().for_each(|pointer| assert!(run.add(pointer, &HERE), "{pointer}"));
    run
}

fn contents(number: u64) -> Vec<u8> {
    let length = 8192 + 4096 * (number % 3) as usize;
    let mut data = noise(number, length);
    data[length / 2..].fill(0);
    data
}

fn written(io: &Arc<BlockIo>, count: u64) -> Vec<BlkPtr> {
    let requests = (0..count).map(|number| request(contents(number), 1)).collect();
    io.write_many(requests, 10).into_iter().map(Result::unwrap).collect()
}

#[test]
fn blocks_that_follow_each_other_are_one_read() {
    let Bench { io, mirrors } = bench(1, 2);
    let pointers = written(&io, 20);
    let reads = || mirrors[0].sides.iter().map(|side| side.faults.reads()).sum::<u64>();
    let before = reads();
    let cache = BlockCache::new(io.clone(), 1 << 20);
    for physical in [false, true] {
        let mut number = 0;
        cache.read_once(&run_of(&pointers), physical, &|see_to_it| see_to_it(), |read| {
            let expected = if physical { io.read_physical(&pointers[number as usize], &HERE).unwrap() } else { contents(number) };
            assert_eq!(*read.unwrap(), expected, "block {number}");
            number += 1;
        });
        assert_eq!(number, 20);
        assert_eq!(reads() - before, if physical { 2 + 20 } else { 1 });
    }
}

#[test]
fn a_damaged_block_of_a_run_is_healed_and_the_others_are_right() {
    let Bench { io, mirrors } = bench(1, 2);
    let pointers = written(&io, 20);
    for side in &mirrors[0].sides {
        side.corrupt(pointers[3].first_dva().unwrap().offset, 100);
    }
    mirrors[0].sides[0].corrupt(pointers[7].first_dva().unwrap().offset, 100);
    let (mut number, mut lost) = (0, Vec::new());
    BlockCache::new(io.clone(), 1 << 20).read_once(&run_of(&pointers), false, &|see_to_it| see_to_it(), |read| {
        match read {
            Ok(read) => assert_eq!(*read, contents(number), "block {number}"),
            Err(error) => lost.push((number, error.kind())),
        }
        number += 1;
    });
    assert_eq!((number, lost), (20, vec![(3, ErrorKind::Checksum)]));
    assert_eq!(io.counters.healed.get(), 1);
}

/// What a stream was sent of was destroyed, and its reads were still to come.
#[test]
fn a_run_of_what_is_gone_is_not_healed() {
    let Bench { io, mirrors } = bench(1, 2);
    let pointers = written(&io, 20);
    mirrors[0].sides[0].corrupt(pointers[7].first_dva().unwrap().offset, 100);
    let mut number = 0;
    BlockCache::new(io.clone(), 1 << 20).read_once(&run_of(&pointers), false, &|_| (), |read| {
        assert_eq!(*read.unwrap(), contents(number), "block {number}");
        number += 1;
    });
    assert_eq!((number, io.counters.healed.get(), mirrors[0].checksum_errors.get()), (20, 0, 0));
}

#[test]
fn a_run_is_near_ordered_and_bounded() {
    let Bench { io, .. } = bench(1, 1);
    let pointers = written(&io, 200);
    let place = |pointer: &BlkPtr| pointer.first_dva().unwrap();
    let mut run = Run::default();
    assert!(run.add(&pointers[5], &HERE));
    assert!(!run.add(&pointers[4], &HERE), "an earlier place");
    assert!(!run.add(&pointers[5], &HERE), "the same place");
    let mut whole = Run::default();
    let taken = pointers.iter().take_while(|pointer| whole.add(pointer, &HERE)).count();
    let bytes = place(&pointers[taken - 1]).offset - place(&pointers[0]).offset;
    assert!(taken < 200 && taken > 50 && bytes <= 1 << 20, "{taken} blocks, {bytes} bytes");
    // What has no checksum, or is in its pointer, is alone.
    let unsure = io.write(WriteRequest { checksum: ChecksumAlgorithm::Off.number(), ..request(noise(1, 4096), 1) }, 10).unwrap();
    let embedded = io.write(request(vec![7; 4096], 1), 10).unwrap();
    for pointer in [unsure, embedded] {
        let mut run = Run::default();
        assert!(run.add(&pointer, &HERE) && !run.add(&pointers[5], &HERE), "{pointer}");
        assert_eq!(io.read_run(&run), [None]);
    }
}
