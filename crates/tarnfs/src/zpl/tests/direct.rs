//! Contents that are read and written around the cache.

use engine::dmu::{Direct, ObjsetSettings};
use engine::error::ErrorKind;
use engine::tunables::Parameter;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::rig::Rig;
use super::*;

const DIRECT: WriteManner = WriteManner { direct: true, durable: false };
const READ_DIRECT: ReadManner = ReadManner { direct: true, unnoticed: false };
const RECORD: usize = 128 << 10;

fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    ChaCha8Rng::seed_from_u64(seed).fill(&mut bytes[..]);
    bytes
}

fn cached(rig: &Rig) -> u64 {
    let stats = rig.context.cache.stats();
    stats.recent_bytes + stats.frequent_bytes
}

/// How many blocks were read and written around the cache.
fn past(rig: &Rig) -> (u64, u64) {
    let past = rig.context.cache.stats().past;
    (past.reads, past.writes)
}

fn read_direct(fs: &FileSystem, inode: InodeNumber, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![7; length];
    let count = fs.read_as(inode, offset, &mut bytes, READ_DIRECT).unwrap();
    bytes.truncate(count);
    bytes
}

#[test]
fn whole_records_leave_nothing_in_memory() {
    let (rig, fs) = new();
    let inode = file(&fs, "f").inode;
    rig.sync(fs.objset());
    let before = cached(&rig);
    let bytes = noise(8 * RECORD, 1);
    fs.write_as(inode, WriteMode::At(0), &bytes, DIRECT, &root()).unwrap();
    assert_eq!(past(&rig), (0, 8));
    assert!(read_direct(&fs, inode, 0, bytes.len() + 4096) == bytes, "before the group is on disk");
    assert_eq!(past(&rig), (8, 8), "memory has forgotten it");
    rig.sync(fs.objset());
    assert!(read_direct(&fs, inode, 0, bytes.len()) == bytes);
    assert_eq!(past(&rig), (16, 8));
    // The blocks that lead to it are there.
    assert!(cached(&rig) < before + 64 * 1024, "{} bytes are cached, before {before}", cached(&rig));
    rig.check();
    let fs = rig.reopen();
    assert!(fs.read(inode, 0, bytes.len()).unwrap() == bytes);
    let full = cached(&rig);
    assert!(full > before + 7 * RECORD as u64);
    assert!(read_direct(&fs, inode, 0, bytes.len()) == bytes);
    assert_eq!(cached(&rig), full, "what others keep stays");
    // What was cached of the old contents is of no use.
    fs.write_as(inode, WriteMode::At(0), &noise(8 * RECORD, 2), DIRECT, &root()).unwrap();
    rig.sync(fs.objset());
    assert!(cached(&rig) < before + 64 * 1024, "{} bytes are cached, before {before}", cached(&rig));
    assert!(fs.read(inode, 0, bytes.len()).unwrap() == noise(8 * RECORD, 2));
    rig.check();
}

/// The parts of a request that are not whole records, records of zeros, and a file of one record that may grow go the usual way.
#[test]
fn what_cannot_go_around_goes_the_usual_way() {
    let (rig, fs) = new();
    let inode = file(&fs, "f").inode;
    let mut model = vec![0; 0];
    for (offset, bytes, blocks) in [(0, noise(4096, 1), 0), (4096, noise(RECORD - 4096, 2), 0), (RECORD / 2, noise(2 * RECORD, 3), 1), (3 * RECORD, vec![0; RECORD], 0), (2 * RECORD + 4096, noise(4096, 4), 0), (0, noise(RECORD, 5), 1), (0, noise(RECORD, 6), 1)] {
        let (_, before) = past(&rig);
        fs.write_as(inode, WriteMode::At(offset as u64), &bytes, DIRECT, &root()).unwrap();
        assert_eq!(past(&rig).1 - before, blocks, "{} bytes at {offset}", bytes.len());
        model.resize(model.len().max(offset + bytes.len()), 0);
        model[offset..offset + bytes.len()].copy_from_slice(&bytes);
        assert!(read_direct(&fs, inode, 0, model.len()) == model);
        assert!(fs.read(inode, 0, model.len()).unwrap() == model);
    }
    assert_eq!(fs.seek(inode, 3 * RECORD as u64, Seek::Data).unwrap(), None);
    rig.sync(fs.objset());
    assert!(read_direct(&fs, inode, 0, model.len()) == model);
    rig.check();
}

#[test]
fn the_property_and_the_parameters_decide() {
    let (rig, fs) = new();
    let inode = file(&fs, "f").inode;
    let set = |direct| fs.objset().set_settings(ObjsetSettings { direct, ..fs.objset().settings() });
    let tunables = &rig.context.tunables;
    let blocks = |asked: bool, offset: usize, length: usize| {
        let (reads, writes) = past(&rig);
        fs.write_as(inode, WriteMode::At(offset as u64), &noise(length, 9), WriteManner { direct: asked, durable: false }, &root()).unwrap();
        fs.read_as(inode, offset as u64, &mut vec![0; length], ReadManner { direct: asked, unnoticed: true }).unwrap();
        (past(&rig).0 - reads, past(&rig).1 - writes)
    };
    fs.write(inode, WriteMode::At(0), &noise(4 * RECORD, 1), &root()).unwrap();
    let both = |offset, length| [false, true].map(|asked| blocks(asked, offset, length));
    assert_eq!(both(0, 2 * RECORD), [(0, 0), (2, 2)]);
    assert_eq!(both(0, 2 * RECORD + 512), [(0, 0), (0, 0)]);
    assert_eq!(both(512, 2 * RECORD), [(0, 0), (0, 0)]);
    set(Direct::Always);
    assert_eq!(both(0, 2 * RECORD), [(2, 2), (2, 2)]);
    assert_eq!(both(512, 2 * RECORD), [(0, 0), (0, 0)]);
    fs.write(inode, WriteMode::Mapped(0), &noise(RECORD, 1), &root()).unwrap();
    assert_eq!(past(&rig).1, 6, "mapped memory");
    tunables.parameters.set(Parameter::DirectEnabled, "0").unwrap();
    assert_eq!(both(0, 2 * RECORD), [(0, 0), (0, 0)]);
    tunables.parameters.set(Parameter::DirectEnabled, "1").unwrap();
    set(Direct::Disabled);
    assert_eq!(both(0, 2 * RECORD), [(0, 0), (0, 0)]);
    // Only who asked is told that it cannot be.
    tunables.parameters.set(Parameter::DirectStrict, "1").unwrap();
    assert_eq!(both(512, 2 * RECORD), [(0, 0), (0, 0)]);
    set(Direct::Always);
    assert_eq!(blocks(false, 512, RECORD), (0, 0));
    for (offset, length) in [(512, RECORD), (0, RECORD + 100), (0, 512)] {
        let error = fs.write_as(inode, WriteMode::At(offset), &noise(length, 1), DIRECT, &root()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        let error = fs.read_as(inode, offset, &mut vec![0; length], READ_DIRECT).unwrap_err();
        assert!(error.to_string().contains("page"), "{error}");
    }
    rig.sync(fs.objset());
    rig.check();
}

/// Many threads read and write one file, each its own part, in both ways, while groups are written.
#[test]
fn threads_go_both_ways() {
    let (rig, fs) = new();
    let inode = file(&fs, "f").inode;
    fs.write(inode, WriteMode::At(0), &vec![0; 8 * RECORD], &root()).unwrap();
    let left = std::sync::atomic::AtomicUsize::new(4);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (fs, left) = (&fs, &left);
            scope.spawn(move || {
                let mut random = ChaCha8Rng::seed_from_u64(thread);
                let mut own = vec![0; 2 * RECORD];
                for round in 0..60 {
                    let (at, length) = if random.random() { (random.random_range(0..2) * RECORD, RECORD) } else { (random.random_range(0..60) * 4096, 8192) };
                    let bytes = noise(length, round << 8 | thread);
                    own[at..at + length].copy_from_slice(&bytes);
                    let start = thread * 2 * RECORD as u64;
                    fs.write_as(inode, WriteMode::At(start + at as u64), &bytes, WriteManner { direct: random.random(), durable: false }, &root()).unwrap();
                    let mut back = vec![0; own.len()];
                    fs.read_as(inode, start, &mut back, ReadManner { direct: random.random(), unnoticed: true }).unwrap();
                    assert!(back == own, "thread {thread}, round {round}");
                }
                left.fetch_sub(1, std::sync::atomic::Ordering::Release);
            });
        }
        while left.load(std::sync::atomic::Ordering::Acquire) > 0 {
            rig.sync(fs.objset());
        }
    });
    rig.sync(fs.objset());
    rig.check();
}

/// How many blocks were written around the cache: few, where the file got a block of an odd size.
fn run(seed: u64, settings: ObjsetSettings) -> u64 {
    println!("TARN_SEED={seed}");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (rig, mut fs) = Rig::new(&NewFileSystem::default(), settings);
    let inode = file(&fs, "f").inode;
    let mut model: Vec<u8> = Vec::new();
    for step in 0..400 {
        let pages = random.random_range(0..100);
        let odd = if random.random_range(0..3) == 0 { random.random_range(0..4096) } else { 0 };
        let (at, length) = (pages * 4096 + odd, random.random_range(1..40) * 4096);
        match random.random_range(0..20) {
            0..10 => {
                let bytes = if random.random_range(0..6) == 0 { vec![0; length] } else { noise(length, random.random()) };
                let manner = WriteManner { direct: random.random_range(0..4) > 0, durable: false };
                let mode = if random.random_range(0..8) == 0 { WriteMode::Append } else { WriteMode::At(at as u64) };
                let went = fs.write_as(inode, mode, &bytes, manner, &root()).unwrap() as usize;
                model.resize(model.len().max(went + length), 0);
                model[went..went + length].copy_from_slice(&bytes);
            }
            10 => {
                model.resize(at, 0);
                fs.truncate(inode, at as u64, &root()).unwrap();
            }
            11 => {
                fs.punch_hole(inode, at as u64, length as u64, &root()).unwrap();
                let end = model.len();
                model[at.min(end)..(at + length).min(end)].fill(0);
            }
            12 => fs = rig.reopen_synced(&fs),
            13..16 => rig.sync(fs.objset()),
            _ => {
                let mut back = vec![1; length];
                let manner = ReadManner { direct: random.random_range(0..3) > 0, unnoticed: true };
                let count = fs.read_as(inode, at as u64, &mut back, manner).unwrap();
                let expected = model.get(at..model.len().min(at + length)).unwrap_or_default();
                assert!(back[..count] == *expected, "step {step}: {length} bytes at {at}, {manner:?}");
            }
        }
        if step % 50 == 49 {
            rig.sync(fs.objset());
            assert!(read_direct(&fs, inode, 0, model.len() + 4096) == model, "step {step}");
            rig.check();
        }
    }
    past(&rig).1
}

#[test]
fn a_file_is_what_was_written_whichever_way() {
    let first = std::env::var("TARN_SEED").ok().and_then(|seed| seed.parse().ok());
    let mut around = 0;
    for seed in first.map_or(1..7, |seed: u64| seed..seed + 1) {
        let record_bytes = [16 << 10, 128 << 10, 4 << 10][seed as usize % 3];
        let (compression, copies) = [(2, 1), (15, 1), (15, 2)][seed as usize / 2 % 3];
        let direct = if seed % 4 == 3 { Direct::Always } else { Direct::Standard };
        around += run(seed, ObjsetSettings { record_bytes, compression, copies, direct, ..ObjsetSettings::dataset_default(true) });
    }
    assert!(first.is_some() || around > 1000, "{around}");
}
