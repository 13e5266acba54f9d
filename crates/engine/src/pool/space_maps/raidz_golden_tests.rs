//! The map of RAID-Z against pools that OpenZFS made: every block is read with children gone, and with children wrong.

use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use disk::{Access, DiskRef};
use ondisk::blkptr::BlkPtr;
use ondisk::dsl::DatasetPhys;
use ondisk::label::START_BYTES;
use zerocopy::FromBytes;

use super::tests::{context_on, mos_options};
use crate::bail;
use crate::dmu::Objset;
use crate::dsl::Traversal;
use crate::error::Result;
use crate::pool::import::discover;
use crate::vdev::{Class, IoMap, Layout, LeafId, Node, View, key};
use crate::zio::{BlockDevice, BlockDevices, Bookmark};

/// The children of a RAID-Z vdev, of which some may be gone, and some wrong: a bit for each.
struct Children {
    layout: Layout,
    ashift: u32,
    size: u64,
    disks: Vec<DiskRef>,
    gone: AtomicU32,
    wrong: AtomicU32,
    blamed: Vec<AtomicU64>,
}

impl BlockDevice for Children {
    fn io_map(&self, offset: u64, length: usize, birth: u64) -> Result<IoMap> {
        Ok(self.layout.map(offset, length, birth))
    }
    fn view(&self, leaf: LeafId, _: u64) -> View {
        View { readable: self.gone.load(Relaxed) >> leaf.leaf & 1 == 0, ..View::IDLE }
    }
    fn read_leaf(&self, leaf: LeafId, _: Class, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.disks[leaf.leaf as usize].read_at(buf, START_BYTES + offset)?;
        if self.wrong.load(Relaxed) >> leaf.leaf & 1 == 1 {
            buf.iter_mut().for_each(|byte| *byte ^= 0x55 + leaf.leaf as u8);
        }
        Ok(())
    }
    fn write_leaf(&self, _: LeafId, _: Class, _: u64, _: &[&[u8]]) -> Result<()> {
        bail!(ReadOnly, "nothing is written here")
    }
    fn note_checksum_error(&self, leaf: LeafId) {
        self.blamed[leaf.leaf as usize].fetch_add(1, Relaxed);
    }
    fn ashift(&self) -> u32 {
        self.ashift
    }
    fn allocated_size(&self, physical: u64) -> u64 {
        self.layout.allocated_size(physical, 0)
    }
    fn size_bytes(&self) -> u64 {
        self.size
    }
}

struct OneVdev(Arc<Children>);

impl BlockDevices for OneVdev {
    fn device(&self, vdev: u32) -> Option<Arc<dyn BlockDevice>> {
        (vdev == 0).then(|| self.0.clone() as Arc<dyn BlockDevice>)
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

#[test]
fn every_block_of_raidz_pools_is_read_without_children_and_with_wrong_ones() {
    let unpack = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/oracle/golden/unpack");
    if !unpack.exists() {
        eprintln!("skipped: no {}", unpack.display());
        return;
    }
    for (name, parity) in [("raidz1", 1), ("raidz2", 2), ("raidz3", 3)] {
        blocks_are_read(&unpack, name, parity);
    }
}

fn blocks_are_read(unpack: &Path, name: &str, parity: u64) {
    let directory = tempfile::tempdir().unwrap();
    assert!(Command::new(unpack).arg(name).arg(directory.path()).status().unwrap().success());
    let paths = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
    let images = paths.filter(|path| path.extension().is_some_and(|ext| ext == "img"));
    let disks = images.map(|path| disk::open(path.to_str().unwrap(), Access::Read).unwrap());
    let pool = discover(disks.collect()).pop().unwrap();
    let top = &pool.vdev_tree.children[0];
    let found = pool.device_map();
    let disks: Vec<DiskRef> = top.children.iter().map(|child| found.get(child.guid).unwrap().clone()).collect();
    assert!(pool.vdev_tree.children.len() == 1 && disks.len() > 2, "{top:?}");
    assert_eq!(top.number(key::PARITY), parity);
    let (ashift, width) = (top.number(key::ASHIFT) as u32, disks.len() as u32);
    let children = Arc::new(Children {
        layout: Layout::raidz(0, ashift, parity, (0..width).map(Node::Leaf).collect()),
        ashift,
        size: top.number(key::ASIZE),
        disks,
        gone: AtomicU32::new(0),
        wrong: AtomicU32::new(0),
        blamed: (0..width).map(|_| AtomicU64::new(0)).collect(),
    });
    let context = context_on(Arc::new(OneVdev(children.clone())), pool.uberblock().txg);
    let root = BlkPtr::from_bytes(&pool.uberblock().root).unwrap();
    let mut blocks: Vec<(BlkPtr, Bookmark)> = Vec::new();
    let mut collect = |objset, root: &BlkPtr| {
        let walk = Traversal::new(&context, objset, 0);
        walk.run(root, &mut |block| {
            blocks.push((*block.pointer, block.at));
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
    };
    collect(0, &root);
    let mos = Objset::open(mos_options(&context), root).unwrap();
    let mut object = 0;
    while let Some(next) = mos.next_object(object).unwrap() {
        object = next;
        let dnode = mos.hold(object).unwrap();
        if dnode.bonus_type() == ondisk::object_type::ObjectType::DSL_DATASET {
            collect(object, &DatasetPhys::read_from_prefix(&dnode.bonus()).unwrap().0.block);
        }
    }
    blocks.retain(|(pointer, _)| !pointer.is_hole() && !pointer.is_embedded());
    assert!(blocks.len() > 100, "{} blocks", blocks.len());
    let whole: Vec<_> = blocks.iter().map(|(pointer, at)| context.io.read(pointer, at).unwrap()).collect();
    let all_right = |what: &str| {
        for ((pointer, at), whole) in blocks.iter().zip(&whole) {
            assert!(*context.io.read(pointer, at).unwrap() == **whole, "{what}: {pointer}");
        }
    };
    let blamed = || children.blamed.iter().map(|blamed| blamed.swap(0, Relaxed)).collect::<Vec<u64>>();
    let mut faults = 0;
    // Of three bad children a part: all of them are minutes.
    let is_tried = |bad: &u32| u64::from(bad.count_ones()) <= parity && (bad.count_ones() < 3 || bad.is_multiple_of(5));
    for bad in (1_u32..1 << width).filter(is_tried) {
        // All of them gone; all wrong; the first gone and the others wrong.
        for gone in [bad, 0, bad & bad.wrapping_neg()] {
            let wrong = bad & !gone;
            children.gone.store(gone, Relaxed);
            children.wrong.store(wrong, Relaxed);
            all_right(&format!("{name}: children {gone:b} are gone, {wrong:b} are wrong"));
            let blamed = blamed();
            assert!((0..width).all(|child| (blamed[child as usize] > 0) == (wrong >> child & 1 == 1)), "{name}: {gone:b} gone, {wrong:b} wrong: {blamed:?}");
            faults += 1;
        }
    }
    assert_eq!(context.io.counters.lost_blocks.get(), 0);
    println!("{name}: {} blocks on {width} children, {faults} faults", blocks.len());
}
