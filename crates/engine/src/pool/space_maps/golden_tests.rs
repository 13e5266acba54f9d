//! Space maps written by OpenZFS: what they say is in use is what zdb found in use.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use ondisk::blkptr::BlkPtr;
use ondisk::nvlist::NvList;

use super::open::MOS_DIRECTORY;
use super::tests::{Features, mos_options};
use super::*;
use crate::alloc::{Allocator, ClassKind, GroupConfig};
use crate::dmu::{DmuContext, Objset};
use crate::error::Result;
use crate::pool::import::discover;
use crate::vdev::{TopVdev, VdevTree, key};
use crate::zap::Zap;
use crate::zio::{Device, Devices};

struct Top(Arc<TopVdev>);

impl Device for Top {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read(offset, buf).map(|_| ())
    }
    fn copies(&self) -> usize {
        self.0.copies()
    }
    fn read_copy(&self, copy: usize, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read_copy(copy, offset, buf)
    }
    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.0.write(offset, data)
    }
    fn repair_copy(&self, copy: usize, offset: u64, data: &[u8]) -> Result<()> {
        self.0.repair_copy(copy, offset, data)
    }
    fn note_checksum_error(&self, copy: usize) {
        self.0.note_checksum_error(copy);
    }
    fn ashift(&self) -> u32 {
        self.0.ashift()
    }
    fn allocated_size(&self, physical: u64) -> u64 {
        self.0.allocated_size(physical)
    }
    fn size_bytes(&self) -> u64 {
        self.0.asize()
    }
}

struct Tree(VdevTree);

impl Devices for Tree {
    fn device(&self, vdev: u32) -> Option<Arc<dyn Device>> {
        self.0.top(u64::from(vdev)).map(|top| Arc::new(Top(top)) as Arc<dyn Device>)
    }
    fn flush(&self) -> Result<()> {
        self.0.flush_all()
    }
}

/// The first number behind `name:` in what zdb said.
fn zdb_number(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(name))?;
    line.trim_start_matches(':').split_whitespace().next()?.parse().ok()
}

/// The configuration that the MOS has: unlike labels it names the vdevs' ZAPs.
fn mos_config(mos: &Objset) -> NvList {
    let object = Zap::open(mos, MOS_DIRECTORY).unwrap().get_u64("config").unwrap();
    let dnode = mos.hold(object).unwrap();
    let length = u64::from_le_bytes(dnode.bonus()[..8].try_into().unwrap());
    let mut bytes = vec![0; length as usize];
    dnode.read(0, &mut bytes).unwrap();
    NvList::decode(&bytes).unwrap()
}

fn check(name: &str, unpack: &Path) {
    let directory = tempfile::tempdir().unwrap();
    let status = Command::new(unpack).arg(name).arg(directory.path()).status().unwrap();
    assert!(status.success(), "unpack {name}");
    let text = std::fs::read_to_string(directory.path().join("zdb.txt")).unwrap();
    let candidate = discover(disk::find(&[PathBuf::from(directory.path())])).pop().unwrap();
    let tree = candidate.open_tree().unwrap();
    let tops = tree.tops();
    let context: Arc<DmuContext> = super::tests::context_on(Arc::new(Tree(tree)), candidate.uberblock().txg);
    let root = BlkPtr::from_bytes(&candidate.uberblock().root).unwrap();
    let mos = Objset::open(mos_options(&context), root).unwrap();
    let config = mos_config(&mos);
    let children = config.nvlist("vdev_tree").unwrap().nvlist_array("children").unwrap();
    let vdevs = tops.iter().filter(|top| !top.is_placeholder()).map(|top| {
        let own = Arc::clone(top);
        let group = GroupConfig {
            vdev: top.id() as u32,
            class: if top.is_log() { ClassKind::Log } else { ClassKind::Normal },
            ashift: top.ashift() as u8,
            metaslab_shift: top.metaslab_shift() as u8,
            data_disks: 1,
            allocated_size: Box::new(move |physical| own.allocated_size(physical)),
        };
        let top_zap = children[top.id() as usize].u64(key::TOP_ZAP).unwrap_or(0);
        VdevSpace { group, bytes: top.asize(), metaslab_array: top.metaslab_array(), top_zap }
    });
    let vdevs: Vec<VdevSpace> = vdevs.collect();
    let top_level_vdevs = tops.iter().map(|top| top.id() as u32 + 1).max().unwrap();
    let ids: Vec<u32> = vdevs.iter().map(|vdev| vdev.group.vdev).collect();
    let maps = SpaceMaps::open(SpaceMapsOptions {
        mos,
        allocator: Arc::new(Allocator::new(1)),
        features: Arc::new(Features::new(true, true)),
        vdevs,
        top_level_vdevs,
    })
    .unwrap();
    let total: u64 = ids.iter().map(|id| maps.allocated_ranges(*id).unwrap().bytes()).sum();
    let counted: u64 = ids.iter().map(|id| maps.allocated(*id).unwrap()).sum();
    assert_eq!(total, counted, "{name}: what the headers say");
    let number = |name| zdb_number(&text, name).unwrap();
    let shared = number("bp deduped") + number("bp cloned");
    assert_eq!(total, number("bp allocated") - shared, "{name}: what zdb found");
}

#[test]
fn space_maps_of_openzfs_say_what_zdb_found() {
    let unpack = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/oracle/golden/unpack");
    if !unpack.exists() {
        eprintln!("skipped: no golden pools");
        return;
    }
    for name in ["slog", "single-a9", "mirrors", "stripe4", "special", "slog", "crash", "v28", "nofeat", "upgraded", "bclone", "gang-a12", "full", "zil", "raidz2"] {
        println!("{name}");
        check(name, &unpack);
    }
}
