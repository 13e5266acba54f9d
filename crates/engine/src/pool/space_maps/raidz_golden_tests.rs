//! The map of RAID-Z against a pool that OpenZFS made: every block is read with each child gone, and with each child wrong.

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

const NONE: u32 = u32::MAX;

/// The children of a RAID-Z vdev, of which one may be gone, and one wrong.
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
    fn io_map(&self, offset: u64, length: usize) -> Result<IoMap> {
        Ok(self.layout.map(offset, length))
    }
    fn view(&self, leaf: LeafId, _: u64) -> View {
        View { readable: self.gone.load(Relaxed) != leaf.leaf, ..View::IDLE }
    }
    fn read_leaf(&self, leaf: LeafId, _: Class, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.disks[leaf.leaf as usize].read_at(buf, START_BYTES + offset)?;
        if self.wrong.load(Relaxed) == leaf.leaf {
            buf.iter_mut().for_each(|byte| *byte ^= 0x55);
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
        self.layout.allocated_size(physical)
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
fn every_block_of_a_raidz_pool_is_read_without_each_child_and_with_each_child_wrong() {
    let unpack = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/oracle/golden/unpack");
    if !unpack.exists() {
        eprintln!("skipped: no {}", unpack.display());
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    assert!(Command::new(unpack).arg("raidz1").arg(directory.path()).status().unwrap().success());
    let paths = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
    let images = paths.filter(|path| path.extension().is_some_and(|ext| ext == "img"));
    let disks = images.map(|path| disk::open(path.to_str().unwrap(), Access::Read).unwrap());
    let pool = discover(disks.collect()).pop().unwrap();
    let top = &pool.vdev_tree.children[0];
    let found = pool.device_map();
    let disks: Vec<DiskRef> = top.children.iter().map(|child| found.get(child.guid).unwrap().clone()).collect();
    assert!(pool.vdev_tree.children.len() == 1 && disks.len() > 2, "{top:?}");
    let (ashift, width) = (top.number(key::ASHIFT) as u32, disks.len() as u32);
    let children = Arc::new(Children {
        layout: Layout::raidz(0, ashift, (0..width).map(Node::Leaf).collect()),
        ashift,
        size: top.number(key::ASIZE),
        disks,
        gone: AtomicU32::new(NONE),
        wrong: AtomicU32::new(NONE),
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
    for child in 0..width {
        children.gone.store(child, Relaxed);
        all_right(&format!("without child {child}"));
        children.gone.store(NONE, Relaxed);
        assert_eq!(blamed(), vec![0; width as usize], "without child {child}");
        children.wrong.store(child, Relaxed);
        all_right(&format!("child {child} is wrong"));
        children.wrong.store(NONE, Relaxed);
        let blamed = blamed();
        assert!((0..width).all(|other| (blamed[other as usize] > 0) == (other == child)), "child {child} is wrong: {blamed:?}");
    }
    assert_eq!(context.io.counters.lost_blocks.get(), 0);
    println!("{} blocks on {width} children", blocks.len());
}
