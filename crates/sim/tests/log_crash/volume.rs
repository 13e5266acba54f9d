//! Logs of volumes: nobody writes volumes here, but OpenZFS does.

use std::sync::Arc;

use ::disk::DiskRef;
use engine::dmu::{DnodeSpec, Objset, OpenTx};
use engine::dsl::NewDataset;
use engine::error::Result;
use engine::pool::Pool;
use engine::zil::{LogSource, WantedWrite, Zil};
use ondisk::object_type::ObjectType;
use ondisk::objset::ObjsetType;
use ondisk::zil::RecordType;
use tarnfs::ImportOptions;

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
    let new = NewDataset {
        case_insensitive: false,
        name: "tank/volume".into(),
        objset_type: ObjsetType::Volume,
        properties: Vec::new(),
        fill: Box::new(|objset, tx| objset.claim(tx, DATA, &DnodeSpec::new(ObjectType::ZVOL, BLOCK)).map(drop)),
    };
    pool.dsl.create_dataset(new).unwrap();
    pool.dsl.objset(&pool.dsl.open_dataset("tank/volume").unwrap()).unwrap()
}

/// A clone within a volume was "a record that a volume cannot have", the end of the log: all that was synced after it was lost.
#[test]
fn a_clone_in_a_volume_is_replayed() {
    let disk = CutDisk::new(vec![0; DISK_BYTES]);
    let pool = create(&disk);
    let objset = make(&pool);
    let (volume, zil) = (objset.hold(DATA).unwrap(), Zil::of(&objset));
    let data: Vec<u8> = (0..BLOCKS * BLOCK).map(|at| (at / 7 + at / BLOCK) as u8).collect();
    let tx = OpenTx::assign(&objset, data.len() as u64).unwrap();
    volume.write(&tx, 0, &data).unwrap();
    zil.log(&tx, RecordType::Truncate as u64, Some(DATA), record(&[DATA, 1 << 30, BLOCK]));
    drop(tx);
    // Whoever begins a log waits for the group in which it begins.
    zil.commit(Some(DATA), &Nobody).unwrap();
    let pointers = volume.synced_pointers(0..BLOCKS).unwrap().expect("they are on disk");
    let tx = OpenTx::assign(&objset, 0).unwrap();
    let mut clone = record(&[DATA, BLOCKS * BLOCK, BLOCKS * BLOCK, BLOCK, BLOCKS]);
    pointers.iter().for_each(|pointer| clone.extend_from_slice(pointer.as_bytes()));
    zil.log(&tx, RecordType::CloneRange as u64, None, clone);
    zil.log(&tx, RecordType::Truncate as u64, None, record(&[DATA, 0, BLOCK]));
    drop(tx);
    zil.commit(Some(DATA), &Nobody).unwrap();
    let image = disk.cut(0).image;
    drop((volume, zil, objset));
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
