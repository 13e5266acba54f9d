//! Entries of the table of dirty blocks that have no version.

use super::*;

const BLOCK: u64 = 8192;

/// A change of a part of a block failed, as the indirect block above could not be read, and left an entry without a version. The next write of the whole block took that for
/// a version and did not look for a way to the block: it was told that all is well, and its group lost what it had written.
#[test]
fn what_there_is_no_way_to_is_not_written() {
    let rig = rig();
    let tx = Tx::for_test(4);
    let objset = Objset::create(rig.options(), &tx, ObjsetType::FileSystem, ObjsetSize::V3);
    let dnode = objset.allocate(&tx, &DnodeSpec { indirect_shift: 12, ..DnodeSpec::new(ObjectType(19), BLOCK) }).unwrap();
    for block in 0..40u64 {
        dnode.write(&tx, block * BLOCK, &[block as u8 + 1; BLOCK as usize]).unwrap();
    }
    // A reader that has the entry while its version gets to disk leaves it there without one, too.
    let held = dnode.unsynced(1);
    rig.sync(&objset, 4);
    drop(held);
    assert!(dnode.blocks.read().contains_key(&1) && !dnode.has_version(1));
    let above = dnode.on_disk().pointers[0];
    assert_eq!(above.level(), 1);
    let device = rig.context.io.devices().device(0).unwrap();
    for copy in above.dvas() {
        crate::zio::write_range(&device, Class::AsyncWrite, copy.offset, &[&[0xee; 512]], 4).unwrap();
    }
    rig.context.cache.invalidate(&above);
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
