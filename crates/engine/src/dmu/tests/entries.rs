//! Entries of the table of dirty blocks that have no version.

use std::sync::atomic::Ordering;

use super::watched::noise;
use super::*;

const BLOCK: u64 = 8192;

/// No copy of the block can be read any more.
fn lose(rig: &Rig, pointer: &BlkPtr) {
    let device = rig.context.io.devices().device(0).unwrap();
    assert!(pointer.dvas().count() > 0);
    for copy in pointer.dvas() {
        crate::zio::write_range(&device, Class::AsyncWrite, copy.offset, &[&[0xee; 512]], 4).unwrap();
    }
    rig.context.cache.invalidate(pointer);
}

/// A change of a part of a block failed, as the indirect block above could not be read, and left an entry without a version. The next write of the whole block took that for
/// a version and did not look for a way to the block: it was told that all is well, and its group lost what it had written.
#[test]
fn what_there_is_no_way_to_is_not_written() {
    let rig = rig();
    let tx = Tx::for_test(4);
    let objset = Objset::create(rig.options(), &tx, ObjsetType::FileSystem, ObjsetSize::V3);
    let dnode = objset.allocate(&tx, &DnodeSpec { indirect_shift: 12, ..DnodeSpec::new(ObjectType(19), BLOCK) }).unwrap();
    dnode.write(&tx, 0, &noise(1, 40 * BLOCK as u32)).unwrap();
    // A reader that has the entry while its version gets to disk leaves it there without one, too.
    let held = dnode.unsynced(1);
    rig.sync(&objset, 4);
    drop(held);
    assert!(dnode.blocks.read().contains_key(&1) && !dnode.has_version(1));
    let above = dnode.on_disk().pointers[0];
    assert_eq!(above.level(), 1);
    lose(&rig, &above);
    let tx = Tx::for_test(5);
    let write = |block: u64, bytes: &[u8]| dnode.write(&tx, block * BLOCK, bytes);
    assert!(write(0, b"a part").is_err());
    assert!(write(0, &[9; BLOCK as usize]).is_err(), "after a change that failed");
    assert!(write(1, &[9; BLOCK as usize]).is_err(), "after a reader");
    assert!(!dnode.blocks.read().contains_key(&0), "an entry without a version stayed");
    write(39, &[9; BLOCK as usize]).unwrap();
    rig.sync(&objset, 5);
    assert_eq!(*dnode.block(39).unwrap(), vec![9; BLOCK as usize]);
}

/// Objects with such entries were never given up.
#[test]
fn an_entry_without_a_version_keeps_no_object_in_memory() {
    let rig = rig();
    let tx = Tx::for_test(4);
    let objset = Objset::create(rig.options(), &tx, ObjsetType::FileSystem, ObjsetSize::V3);
    let dnode = objset.allocate(&tx, &DnodeSpec::new(ObjectType(19), BLOCK)).unwrap();
    dnode.write(&tx, 0, b"little").unwrap();
    let held = dnode.unsynced(0);
    rig.sync(&objset, 4);
    drop(held);
    assert!(dnode.blocks.read().contains_key(&0), "a reader had it");
    let object = dnode.object();
    objset.let_go(dnode);
    assert!(objset.cached(object).is_none());
}

/// A block of dnodes with such an entry passed for one that is in memory: when it was lost, the group stopped the pool that was to write to it.
#[test]
fn an_entry_without_a_version_stands_for_no_block_of_dnodes() {
    let rig = rig();
    let tx = Tx::for_test(4);
    let objset = Objset::create(rig.options(), &tx, ObjsetType::FileSystem, ObjsetSize::V3);
    let dnodes: Vec<_> = (0..40).map(|_| objset.allocate(&tx, &DnodeSpec::new(ObjectType(19), BLOCK)).unwrap()).collect();
    // Else all of them would fit the pointer.
    (0..).zip(&dnodes).for_each(|(seed, dnode)| dnode.write(&tx, 0, &noise(seed, BLOCK as u32)).unwrap());
    rig.sync(&objset, 4);
    let meta = objset.meta();
    meta.blocks.write().insert(0, Arc::default());
    meta.blocks.published().fetch_or(1, Ordering::Release);
    lose(&rig, &meta.block_pointer(0).unwrap());
    dnodes.iter().for_each(|dnode| dnode.write(&Tx::for_test(5), 0, b"changed").unwrap());
    let root = rig.sync(&objset, 5);
    let last = dnodes[39].object();
    assert!(last >= 32, "in another block");
    let mut back = [0; 7];
    Objset::open(rig.options(), root).unwrap().hold(last).unwrap().read(0, &mut back).unwrap();
    assert_eq!(&back, b"changed");
}

/// Contents that are to be encrypted were taken, and the group that had them could not be written: the pool stopped. What protects blocks of dnodes was kept until the
/// object set was closed, so a sender could fill the memory with it.
#[test]
fn what_is_to_be_encrypted_is_refused_before_its_group() {
    let rig = rig();
    let mut options = rig.options();
    options.settings.is_encrypted = true;
    let head = RawHead { portable_mac: [0; 32], levels: 1, max_block: 0, indirect_shift: 17, checksum: 0, compression: 0 };
    let tx = Tx::for_test(4);
    let objset = Objset::create_raw(options, &tx, ObjsetType::FileSystem, ObjsetSize::V3, &head).unwrap();
    // A master node, whose contents are not encrypted, but have a checksum that takes the key.
    let dnode = objset.allocate(&tx, &DnodeSpec::new(ObjectType(21), BLOCK)).unwrap();
    objset.note_dnode_secrets(&tx, dnode.object(), Default::default());
    let refused = |result: Result<()>| assert_eq!(result.unwrap_err().kind(), crate::error::ErrorKind::KeyNotLoaded);
    refused(dnode.write(&tx, 0, b"a part"));
    refused(dnode.write(&tx, 0, &[9; BLOCK as usize]));
    refused(dnode.modify_block(&tx, 0, |contents| contents.fill(9)));
    rig.sync(&objset, 4);
    assert!(objset.shared.dnode_secrets.lock().is_empty(), "they are on disk");
    // The end of the dnodes only grows.
    let tx = Tx::for_test(5);
    objset.set_raw_head(&tx, &RawHead { max_block: 3, ..head.clone() }).unwrap();
    assert!(objset.set_raw_head(&tx, &RawHead { max_block: 2, ..head }).is_err());
}
