//! Logs of volumes: OpenZFS's, with what nobody logs here, and ours.

use std::ops::ControlFlow;
use std::sync::Arc;

use ::disk::DiskRef;
use engine::dmu::{Membership, Objset, OpenTx};
use engine::dsl::{NewDataset, PropertyChange, PropertyValue};
use engine::error::Result;
use engine::logged::{Volume, VolumeReplay, create_volume_objects};
use engine::pool::Pool;
use engine::zil::{Extent, LogSource, WantedWrite, Zil, walk};
use ondisk::objset::ObjsetType;
use ondisk::zil::{LogHeader, Record, RecordHeader, RecordType};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tarnfs::ImportOptions;
use zerocopy::FromBytes;

use crate::disk::CutDisk;
use crate::{DISK_BYTES, check, create, zdb};

const BLOCK: u64 = 16 << 10;
const BLOCKS: u64 = 8;
const DATA: u64 = 1;

/// There are no writes.
struct Nobody;

impl LogSource for Nobody {
    fn fetch(&self, _write: &WantedWrite, _out: &mut Vec<u8>) -> Result<()> {
        Ok(())
    }
}

/// A record of these words, its header still empty.
fn record(words: &[u64]) -> Vec<u8> {
    [0; 4].iter().chain(words).flat_map(|word| word.to_le_bytes()).collect()
}

fn make(pool: &Arc<Pool>) -> Arc<Objset> {
    make_at(pool, "tank/volume")
}

fn make_at(pool: &Arc<Pool>, name: &str) -> Arc<Objset> {
    let new = NewDataset {
        case_insensitive: false,
        name: name.into(),
        objset_type: ObjsetType::Volume,
        properties: Vec::new(),
        fill: Box::new(|objset, tx| create_volume_objects(objset, tx, 1 << 30, BLOCK)),
    };
    pool.dsl.create_dataset(new).unwrap();
    pool.dsl.objset(&pool.dsl.open_dataset(name).unwrap()).unwrap()
}

/// A clone within a volume was "a record that a volume cannot have", the end of the log: all that was synced after it was lost.
#[test]
fn a_clone_in_a_volume_is_replayed() {
    clone_is_replayed(false);
}

/// OpenZFS logs clones of blocks that were themselves cloned in a group that is not on disk: these have the birth of that group. The log was taken to end there.
#[test]
fn a_clone_of_a_clone_in_a_volume_is_replayed() {
    clone_is_replayed(true);
}

fn clone_is_replayed(is_of_clone: bool) {
    let disk = CutDisk::new(vec![0; DISK_BYTES]);
    let pool = create(&disk);
    let objset = make(&pool);
    let (volume, zil) = (objset.hold(DATA).unwrap(), Zil::of(&objset));
    let data: Vec<u8> = (0..BLOCKS * BLOCK).map(|at| (at / 7 + at / BLOCK) as u8).collect();
    let member = Membership::single(objset.clone());
    let tx = OpenTx::assign(&member, data.len() as u64).unwrap();
    volume.write(&tx, 0, &data).unwrap();
    zil.log(&tx, RecordType::Truncate as u64, Some(DATA), record(&[DATA, 1 << 30, BLOCK]));
    drop(tx);
    // The commit that begins a log waits for the group in which it begins.
    zil.commit(Some(DATA), &Nobody).unwrap();
    let pointers = volume.synced_pointers(0..BLOCKS).unwrap().expect("they are on disk");
    let tx = OpenTx::assign(&member, 0).unwrap();
    let mut clone = record(&[DATA, BLOCKS * BLOCK, BLOCKS * BLOCK, BLOCK, BLOCKS]);
    for pointer in pointers {
        let pointer = if is_of_clone { pointer.reborn(tx.txg()) } else { pointer };
        clone.extend_from_slice(pointer.as_bytes());
    }
    zil.log(&tx, RecordType::CloneRange as u64, None, clone);
    zil.log(&tx, RecordType::Truncate as u64, None, record(&[DATA, 0, BLOCK]));
    drop(tx);
    zil.commit(Some(DATA), &Nobody).unwrap();
    let image = disk.cut(0).image;
    drop((volume, zil, member, objset));
    pool.abandon();

    let disk = CutDisk::new(image);
    let pool = tarnfs::Pool::import_disks(vec![disk.clone() as DiskRef], ImportOptions { force: true, ..ImportOptions::default() }).unwrap();
    let engine = pool.engine();
    let objset = engine.dsl.objset(&engine.dsl.open_dataset("tank/volume").unwrap()).unwrap();
    let mut found = vec![1; data.len()];
    let volume = objset.hold(DATA).unwrap();
    volume.read(BLOCKS * BLOCK, &mut found).unwrap();
    assert!(found == data, "the clone has other contents");
    volume.read(0, &mut found).unwrap();
    assert!(found[..BLOCK as usize].iter().all(|byte| *byte == 0), "what came after the clone was not replayed");
    assert!(found[BLOCK as usize..] == data[BLOCK as usize..], "the source has other contents");
    drop((volume, objset));
    engine.sync_all().unwrap();
    check(engine, "a volume's clone");
    pool.export().unwrap();
    zdb(&disk.cut(0).image, "a volume's clone");
}

fn open(pool: &Pool, name: &str) -> Volume {
    Volume::open(pool.dsl.objset(&pool.dsl.open_dataset(name).unwrap()).unwrap()).unwrap()
}

/// The records of a volume's log that nobody has replayed: type, object, offset, length.
fn records(pool: &Pool, name: &str) -> Vec<(&'static str, u64, u64, u64)> {
    let objset = pool.dsl.objset(&pool.dsl.open_dataset(name).unwrap()).unwrap();
    let header = LogHeader::read_from_bytes(&objset.zil_header()).unwrap();
    let mut found = Vec::new();
    walk(&objset.context().io, objset.dataset(), &header, Extent::Whole, &mut |block| {
        let mut rest = block.records.unwrap_or_default();
        while let Ok((head, _)) = RecordHeader::read_from_prefix(rest) {
            let length = head.length.get() as usize;
            if length == 0 || length > rest.len() {
                break;
            }
            let (record, after) = rest.split_at(length);
            match Record::decode(record).unwrap() {
                Record::Write(_, write, _) => found.push(("write", write.object.get(), write.offset.get(), write.length.get())),
                Record::Truncate(freed) => found.push(("truncate", freed.object.get(), freed.offset.get(), freed.length.get())),
                _ => found.push(("other", 0, 0, 0)),
            }
            rest = after;
        }
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    found
}

/// What a volume wrote and discarded and was told is safe is there after the power went, replayed from its log, which holds what a volume's of OpenZFS does.
#[test]
fn a_volume_is_replayed() {
    let disk = CutDisk::new(vec![0; DISK_BYTES]);
    let pool = create(&disk);
    drop(make(&pool));
    let volume = open(&pool, "tank/volume");
    let mut model = vec![0; 8 << 20];
    let mut random = ChaCha8Rng::seed_from_u64(0x701);
    let write = |model: &mut Vec<u8>, random: &mut ChaCha8Rng, offset: usize, length: usize| {
        let data: Vec<u8> = (0..length).map(|_| random.random()).collect();
        model[offset..offset + length].copy_from_slice(&data);
        volume.write(offset as u64, &data).unwrap();
    };
    // The commit that begins a log waits for the group in which it begins.
    write(&mut model, &mut random, 900 * 4096, 4096);
    volume.commit().unwrap();
    // As `zilops.py` does it to the golden pool's volume, where Linux makes pages of what is written.
    let pages: Vec<usize> = [(0, 2), (1 << 20, 4), (5 << 20, 1)].iter().flat_map(|&(at, count)| (0..count).map(move |page| at + page * 4096)).collect();
    for page in &pages {
        write(&mut model, &mut random, *page, 4096);
        volume.commit().unwrap();
    }
    let expected: Vec<_> = pages.iter().map(|page| ("write", 1, *page as u64, 4096)).collect();
    let like_openzfs = disk.cut(0).image;
    for _ in 0..60 {
        let (offset, length) = (random.random_range(0..7 << 20), random.random_range(1..100_000));
        if random.random_range(0..4) == 0 {
            volume.discard(offset as u64, length as u64).unwrap();
            model[offset..offset + length].fill(0);
        } else {
            write(&mut model, &mut random, offset, length);
        }
    }
    volume.commit().unwrap();
    let image = disk.cut(0).image;
    drop(volume);
    pool.abandon();

    let look = |image: Vec<u8>, read_only| {
        let disk = CutDisk::new(image);
        let options = ImportOptions { force: true, read_only, ..ImportOptions::default() };
        (tarnfs::Pool::import_disks(vec![disk.clone() as DiskRef], options).unwrap(), disk)
    };
    let (ours, _disk) = look(like_openzfs, true);
    let ours = records(ours.engine(), "tank/volume");
    assert_eq!(ours[ours.len() - pages.len()..], expected);
    match sim::golden::Golden::find("zil").unwrap() {
        Some(golden) => {
            let options = ImportOptions { force: true, read_only: true, ..ImportOptions::default() };
            let theirs = tarnfs::Pool::import(&[golden.directory().to_owned()], "g_zil", options).unwrap();
            let theirs = records(theirs.engine(), "g_zil/vol");
            assert_eq!(theirs[theirs.len() - pages.len()..], expected, "what OpenZFS logs for the same writes");
        }
        None => sim::places::skipped("golden pool zil: not found"),
    }

    let (pool, disk) = look(image, false);
    let volume = open(pool.engine(), "tank/volume");
    let mut found = vec![1; model.len()];
    volume.read(0, &mut found).unwrap();
    let wrong = (0..model.len()).find(|at| model[*at] != found[*at]);
    assert_eq!(wrong, None, "the first byte that is not what was written");
    assert!(volume.write(volume.size() - 1, &[1, 2]).is_err() && volume.read(u64::MAX, &mut [0]).is_err(), "beyond the end");
    drop(volume);
    pool.engine().sync_all().unwrap();
    check(pool.engine(), "a volume");
    pool.export().unwrap();
    zdb(&disk.cut(0).image, "a volume");
}

/// A discard makes room, and is let in where a write is not. Its replay was refused as a write would be, and with it all that was synced after it was lost.
#[test]
fn a_discard_is_replayed_where_nothing_may_be_written() {
    let disk = CutDisk::new(vec![0; DISK_BYTES]);
    let pool = create(&disk);
    let above = NewDataset {
        case_insensitive: false,
        name: "tank/full".into(),
        objset_type: ObjsetType::FileSystem,
        properties: Vec::new(),
        fill: Box::new(|objset, tx| tarnfs::zpl::initialize(objset, tx, &tarnfs::zpl::NewFileSystem::default())),
    };
    pool.dsl.create_dataset(above).unwrap();
    drop(make_at(&pool, "tank/full/volume"));
    let volume = open(&pool, "tank/full/volume");
    let data = vec![7; 64 * BLOCK as usize];
    volume.write(0, &data).unwrap();
    // The commit that begins a log waits for the group in which it begins.
    volume.commit().unwrap();
    pool.sync_all().unwrap();
    let freed = [0..4 * BLOCK as usize, 32 * BLOCK as usize..40 * BLOCK as usize];
    for range in &freed {
        volume.discard(range.start as u64, range.len() as u64).unwrap();
    }
    volume.commit().unwrap();
    let image = disk.cut(0).image;
    drop(volume);
    pool.abandon();

    let pool = crate::open(&CutDisk::new(image), false);
    pool.sync_all().unwrap();
    let used = pool.dsl.open_dataset("tank/full").unwrap().dir.phys().used_bytes.get();
    pool.dsl.set_properties("tank/full", vec![("quota".to_owned(), PropertyChange::Set(PropertyValue::Number(used)))]).unwrap();
    let objset = pool.dsl.objset(&pool.dsl.open_dataset("tank/full/volume").unwrap()).unwrap();
    let volume = open(&pool, "tank/full/volume");
    let replayed = Zil::of(&objset).replay(&objset, &|| pool.sync_all(), &VolumeReplay(&volume)).unwrap();
    assert_eq!((replayed.lost, replayed.records), (None, freed.len() as u64));
    let mut wanted = data;
    freed.into_iter().for_each(|range| wanted[range].fill(0));
    let mut found = vec![1; wanted.len()];
    volume.read(0, &mut found).unwrap();
    assert!(found == wanted, "the volume has other contents");
    drop((volume, objset));
    pool.sync_all().unwrap();
    check(&pool, "discards at a quota");
    pool.export().unwrap();
}
