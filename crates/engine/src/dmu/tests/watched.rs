//! What happens while the disk is busy: it calls what a test has given it before it reads or writes.

use disk::{Request, WatchedDisk};

use super::*;
use crate::dmu::blocks::dirty_block::Contents;

type Call = Box<dyn FnOnce() + Send>;

/// What is called before the next read, and before the next write.
#[derive(Default)]
struct Calls {
    read: Mutex<Option<Call>>,
    write: Mutex<Option<Call>>,
}

fn watched_rig() -> (Rig, Arc<Calls>) {
    let calls = Arc::new(Calls::default());
    let seen = calls.clone();
    let watch = move |request: Request| -> std::io::Result<()> {
        let call = match request {
            Request::Read(_) => seen.read.lock().take(),
            Request::Write(_) => seen.write.lock().take(),
            Request::Flush | Request::Discard(_) => None,
        };
        if let Some(call) = call {
            call();
        }
        Ok(())
    };
    (rig_on(Arc::new(WatchedDisk::new(mem_disk(), watch))), calls)
}

/// What no compression makes smaller.
pub(super) fn noise(seed: u32, length: u32) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 11) as u8).collect()
}

/// A thread that writes blocks soon was overtaken by their writer, who went around the cache: the place that counted was freed, and the group stopped the pool.
#[test]
fn blocks_are_written_around_the_cache_while_they_are_written_soon() {
    let (rig, calls) = watched_rig();
    let tx = Tx::for_test(4);
    let objset = Objset::create(rig.options(), &tx, ObjsetType::FileSystem, ObjsetSize::V3);
    let dnode = objset.allocate(&tx, &DnodeSpec::new(ObjectType(19), 131_072)).unwrap();
    let contents = noise(1, 1 << 20);
    dnode.write(&tx, 0, &contents).unwrap();
    let (same_set, same) = (objset.clone(), dnode.clone());
    *calls.write.lock() = Some(Box::new(move || same_set.write_through(&same, &Tx::for_test(4), 0, 1 << 20)));
    let soon = objset.write_early(&dnode, 0..8, 4);
    let root = rig.sync(&objset, 4);
    rig.check(&root);
    let mut back = vec![0; contents.len()];
    dnode.read(0, &mut back).unwrap();
    assert!(back == contents);
    assert!(soon.is_empty(), "these places were freed with the group");
}

/// A reader of one half of a block had its pointer and was slow. Meanwhile the other half was written, and the place given to another file: whose bytes it got, if there was no
/// checksum to tell them by.
#[test]
fn a_slow_reader_gets_no_bytes_of_others_where_there_is_no_checksum() {
    const BLOCK: u32 = 16 << 10;
    const HALF: usize = BLOCK as usize / 2;
    for is_past in [false, true] {
        let (rig, calls) = watched_rig();
        let rig = Arc::new(rig);
        let tx = Tx::for_test(4);
        let objset = Objset::create(rig.options(), &tx, ObjsetType::FileSystem, ObjsetSize::V3);
        // Both are off.
        objset.set_settings(ObjsetSettings { checksum: 2, compression: 2, ..objset.settings() });
        let dnode = objset.allocate(&tx, &DnodeSpec::new(ObjectType(19), BLOCK.into())).unwrap();
        let contents = noise(1, BLOCK);
        dnode.write(&tx, 0, &contents).unwrap();
        rig.sync(&objset, 4);
        let pointer = dnode.block_pointer(0).unwrap();
        assert!(!pointer.has_checksum());
        rig.context.cache.invalidate(&pointer);
        let new_half = [&contents[..HALF], &noise(2, BLOCK / 2)[..]].concat();
        let (same_rig, same) = (rig.clone(), dnode.clone());
        *calls.read.lock() = Some(Box::new(move || {
            same.write_block(&Tx::for_test(5), 0, new_half).unwrap();
            same_rig.sync(&objset, 5);
            let device = same_rig.context.io.devices().device(0).unwrap();
            let place = pointer.first_dva().unwrap().offset;
            crate::zio::write_range(&device, Class::AsyncWrite, place, &[&noise(3, BLOCK)[..]], 6).unwrap();
        }));
        let mut back = vec![0; HALF];
        let read = if is_past { dnode.read_past(0, &mut back) } else { dnode.read(0, &mut back) };
        read.unwrap();
        assert!(calls.read.lock().is_none(), "the disk was not read");
        assert!(back[..] == contents[..HALF], "another file's bytes were read, around the cache: {is_past}");
    }
}

/// A reader of a spill block was slow: meanwhile the object had got another one, and the place had been given to another's block. That was an error of the device.
#[test]
fn a_slow_reader_of_a_spill_block_gets_the_new_one() {
    const BYTES: u32 = 512;
    let (rig, calls) = watched_rig();
    let rig = Arc::new(rig);
    let tx = Tx::for_test(4);
    let objset = Objset::create(rig.options(), &tx, ObjsetType::FileSystem, ObjsetSize::V3);
    let object = {
        let dnode = objset.allocate(&tx, &DnodeSpec::new(ObjectType(19), 4096).with_bonus(ObjectType::SA, 100)).unwrap();
        dnode.set_spill(&tx, Some(noise(1, BYTES)));
        dnode.object()
    };
    let root = rig.sync(&objset, 4);
    drop(objset);
    // What is in memory knows its spill block.
    let objset = Objset::open(rig.options(), root).unwrap();
    let dnode = objset.hold(object).unwrap();
    let pointer = dnode.on_disk().spill.unwrap();
    rig.context.cache.invalidate(&pointer);
    let (same_rig, same_set, same) = (rig.clone(), objset.clone(), dnode.clone());
    *calls.read.lock() = Some(Box::new(move || {
        same.set_spill(&Tx::for_test(5), Some(noise(2, BYTES)));
        same_rig.sync(&same_set, 5);
        let device = same_rig.context.io.devices().device(0).unwrap();
        for dva in pointer.dvas() {
            crate::zio::write_range(&device, Class::AsyncWrite, dva.offset, &[&noise(3, BYTES)[..]], 6).unwrap();
        }
    }));
    assert_eq!(*dnode.spill().unwrap().unwrap(), noise(2, BYTES));
    assert!(calls.read.lock().is_none(), "the disk was not read");
}

/// The same of a block that had been written around the cache, and was written again in the same group.
#[test]
fn a_slow_reader_of_a_block_around_the_cache_gets_the_new_one() {
    const BLOCK: u32 = 131_072;
    let (rig, calls) = watched_rig();
    let tx = Tx::for_test(4);
    let objset = Objset::create(rig.options(), &tx, ObjsetType::FileSystem, ObjsetSize::V3);
    let dnode = objset.allocate(&tx, &DnodeSpec::new(ObjectType(19), BLOCK.into())).unwrap();
    dnode.write(&tx, 0, &noise(1, BLOCK)).unwrap();
    objset.write_through(&dnode, &tx, 0, BLOCK.into());
    let Some(Contents::Placed(pointer)) = dnode.unsynced(0).and_then(|dirty| dirty.newest()) else { panic!("it is not placed") };
    rig.context.cache.invalidate(&pointer);
    let (device, same) = (rig.context.io.devices().device(0).unwrap(), dnode.clone());
    let place = pointer.first_dva().unwrap().offset;
    *calls.read.lock() = Some(Box::new(move || {
        same.write_block(&Tx::for_test(4), 0, noise(2, BLOCK)).unwrap();
        crate::zio::write_range(&device, Class::AsyncWrite, place, &[&noise(3, BLOCK)[..]], 4).unwrap();
    }));
    assert!(*dnode.block(0).unwrap() == noise(2, BLOCK));
    assert!(calls.read.lock().is_none(), "the disk was not read");
}
