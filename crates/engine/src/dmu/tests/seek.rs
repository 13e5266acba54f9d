//! Searches for data and holes beside groups that get to disk.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// Tells a search to end when this is dropped, also by a panic.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A search read pointers from disk before it asked memory: blocks that got to disk in between seemed to be holes, and a program that copies only data copied zeros.
#[test]
fn what_gets_to_disk_is_no_hole_meanwhile() {
    const BLOCKS: u64 = 1000;
    #[cfg(debug_assertions)]
    let _pauses = parking_lot::counting::pause(100);
    let rig = rig();
    let objset = Objset::create(rig.options(), &Tx::for_test(4), ObjsetType::FileSystem, ObjsetSize::V3);
    for txg in 4..10 {
        let tx = Tx::for_test(txg);
        let dnode = objset.allocate(&tx, &DnodeSpec::new(ObjectType(19), 512)).unwrap();
        for block in 0..BLOCKS {
            dnode.write(&tx, block * 512, &[block as u8 | 1; 512]).unwrap();
        }
        let (is_over, start) = (AtomicBool::new(false), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(dnode.next_hole_block(0).unwrap(), BLOCKS, "group {txg}");
                    assert_eq!(dnode.next_hole_block_to_be(0).unwrap(), BLOCKS, "group {txg}");
                }
            });
            let _ends = Ends(&is_over);
            start.wait();
            rig.sync(&objset, txg);
        });
        assert_eq!(dnode.next_hole_block(0).unwrap(), BLOCKS);
    }
}
