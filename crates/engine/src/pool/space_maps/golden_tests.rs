//! Space maps written by OpenZFS: what they say is in use is what zdb found in use.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use disk::Access;
use ondisk::blkptr::BlkPtr;
use ondisk::feature::Feature;
use ondisk::nvlist::NvList;
use ondisk::uberblock::Uberblock;
use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::open::MOS_DIRECTORY;
use super::tests::mos_options;
use super::*;
use crate::alloc::{ClassKind, GroupConfig};
use crate::dmu::{DmuContext, Objset, SyncTx};
use crate::error::Result;
use crate::pool::import::{Candidate, discover};
use crate::vdev::label::{LabelSync, sync_labels};
use crate::vdev::{Leaf, TopVdev, VdevTree, key};
use crate::zap::Zap;
use crate::zio::{BlockDevices, BlockFeatures, SharedVdevs};

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

/// Where an oracle's program is, if it is there.
fn oracle(program: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/oracle").join(program);
    if !path.exists() {
        eprintln!("skipped: no {}", path.display());
    }
    path.exists().then_some(path)
}

/// The pool's real features.
struct Features {
    table: Option<Zap>,
}

impl Features {
    fn count(&self, feature: Feature) -> Option<u64> {
        self.table.as_ref()?.lookup_u64(feature.guid()).unwrap()
    }
}

impl FeatureCounts for Features {
    fn is_enabled(&self, feature: Feature) -> bool {
        self.count(feature).is_some()
    }
    fn is_active(&self, feature: Feature) -> bool {
        self.count(feature).is_some_and(|count| count > 0)
    }
    fn add(&self, tx: &SyncTx<'_>, feature: Feature, change: i64) -> Result<()> {
        let count = self.count(feature).unwrap().checked_add_signed(change).unwrap();
        self.table.as_ref().unwrap().update_u64(tx, feature.guid(), count)
    }
}

/// A pool made by OpenZFS, as far as its space goes.
struct Golden {
    directory: tempfile::TempDir,
    candidate: Candidate,
    tree: Arc<VdevTree>,
    context: Arc<DmuContext>,
    mos: Arc<Objset>,
    maps: Arc<SpaceMaps>,
    vdevs: Vec<u32>,
    top_zap: u64,
}

impl Golden {
    fn open(name: &str, unpack: &Path) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let status = Command::new(unpack).arg(name).arg(directory.path()).status().unwrap();
        assert!(status.success(), "unpack {name}");
        let disks = images(directory.path()).into_iter().map(|path| disk::open(path.to_str().unwrap(), Access::Write).unwrap());
        let candidate = discover(disks.collect()).pop().unwrap();
        let tree = Arc::new(candidate.open_tree().unwrap());
        let tops = tree.tops();
        let devices = Arc::new(SharedVdevs(Arc::clone(&tree))) as Arc<dyn BlockDevices>;
        let context: Arc<DmuContext> = super::tests::context_on(devices, candidate.uberblock().txg);
        let root = BlkPtr::from_bytes(&candidate.uberblock().root).unwrap();
        let mos = Objset::open(mos_options(&context), root).unwrap();
        let config = mos_config(&mos);
        let children = config.nvlist("vdev_tree").unwrap().nvlist_array("children").unwrap();
        let space = |top: &Arc<TopVdev>| {
            let own = Arc::clone(top);
            let group = GroupConfig {
                vdev: top.id() as u32,
                class: if top.is_log() { ClassKind::Log } else { ClassKind::Normal },
                ashift: top.ashift() as u8,
                metaslab_shift: top.metaslab_shift() as u8,
                data_disks: 1,
                allocation_bytes: 512,
                allocated_size: Box::new(move |physical, txg| own.layout().allocated_size(physical, txg)),
            };
            let top_zap = children[top.id() as usize].u64(key::TOP_ZAP).unwrap_or(0);
            VdevSpace { group, bytes: top.asize(), metaslab_array: top.metaslab_array(), top_zap, is_closed: false }
        };
        let vdevs: Vec<VdevSpace> = tops.iter().filter(|top| !top.is_placeholder()).map(space).collect();
        let directory_zap = Zap::open(&mos, MOS_DIRECTORY).unwrap();
        let table = directory_zap.lookup_u64("features_for_write").unwrap();
        let table = table.map(|table| Zap::open(&mos, table).unwrap());
        let features = BlockFeatures { embedded_data: table.is_some(), hole_birth: table.is_some(), ..Default::default() };
        context.io.set_features(features);
        let (ids, top_zap) = (vdevs.iter().map(|vdev| vdev.group.vdev).collect(), vdevs[0].top_zap);
        let maps = SpaceMaps::open(SpaceMapsOptions {
            mos: Arc::clone(&mos),
            allocator: Arc::clone(context.io.allocator()),
            features: Arc::new(Features { table }),
            vdevs,
            top_level_vdevs: tops.iter().map(|top| top.id() as u32 + 1).max().unwrap(),
        })
        .unwrap();
        Self { directory, candidate, tree, context, mos, maps, vdevs: ids, top_zap }
    }

    /// What is in use, by what the space maps say.
    fn allocated(&self) -> u64 {
        let total = self.vdevs.iter().map(|id| self.maps.allocated_ranges(*id).unwrap().bytes()).sum();
        let counted: u64 = self.vdevs.iter().map(|id| self.maps.allocated(*id).unwrap()).sum();
        assert_eq!(total, counted, "what the headers say");
        total
    }

    /// Adds and removes names in a vdev's ZAP, which zdb does not look at, and commits that.
    fn sync(&self, txg: u64, rng: &mut ChaCha8Rng) {
        let frees = Mutex::default();
        let mut root = BlkPtr::ZERO;
        for pass in 1..20 {
            let tx = SyncTx::new(&self.context, txg, pass, &frees);
            let zap = Zap::open(&self.mos, self.top_zap).unwrap();
            for _ in 0..if pass == 1 { rng.random_range(1..200) } else { 0 } {
                let name = format!("a name that is {} of many", rng.random_range(0..4000));
                match zap.contains(&name).unwrap() {
                    true => zap.remove(&tx, &name).unwrap(),
                    false => zap.add_u64(&tx, &name, txg).unwrap(),
                }
            }
            self.mos.sync(&tx).unwrap();
            root = self.mos.sync_root(&tx).unwrap();
            for bp in std::mem::take(&mut *frees.lock()) {
                self.context.io.free(&bp, txg).unwrap();
            }
            self.maps.sync_pass(&tx).unwrap();
            if !self.mos.is_dirty(txg) {
                break;
            }
            assert!(pass < 19, "txg {txg} does not converge");
        }
        self.maps.sync_done(txg, true, true).unwrap();
        self.tree.flush_all().unwrap();
        let uberblock = Uberblock { txg, root: *root.as_bytes(), ..self.candidate.uberblock().clone() };
        let tops = self.tree.data_tops();
        let config = |_: &TopVdev, _: &Leaf| unreachable!("no label is dirty");
        let labels = LabelSync { uberblock: &uberblock, dirty: &[], uberblock_tops: &tops, multihost: false, config: &config };
        sync_labels(&labels).unwrap();
    }
}

fn images(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut images: Vec<_> = entries.filter(|path| path.extension().is_some_and(|ext| ext == "img")).collect();
    images.sort();
    images
}

fn check(name: &str, unpack: &Path) {
    let golden = Golden::open(name, unpack);
    let text = std::fs::read_to_string(golden.directory.path().join("zdb.txt")).unwrap();
    let number = |name| zdb_number(&text, name).unwrap();
    let shared = number("bp deduped") + number("bp cloned");
    assert_eq!(golden.allocated(), number("bp allocated") - shared, "{name}: what zdb found");
}

#[test]
fn zdb_finds_in_use_what_we_say() {
    let (Some(unpack), Some(zdb)) = (oracle("golden/unpack"), oracle("check/zdb")) else { return };
    for (seed, name) in (0..).zip(["mirrors", "nofeat"]) {
        println!("{name}, seed {seed}");
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let golden = Golden::open(name, &unpack);
        let txg = golden.candidate.uberblock().txg;
        let flush_at = txg + rng.random_range(10..30);
        for txg in txg + 1..txg + 40 {
            if txg == flush_at {
                golden.maps.request_flush_all();
            }
            golden.sync(txg, &mut rng);
        }
        let output = Command::new(&zdb).args(images(golden.directory.path())).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{name}: {text}");
        let logs = text.lines().filter(|line| line.starts_with("Log Spacemap object")).count();
        assert_eq!(logs > 1, name == "mirrors", "{name}: {logs} logs");
        let shared = zdb_number(&text, "bp deduped").unwrap() + zdb_number(&text, "bp cloned").unwrap();
        assert_eq!(golden.allocated(), zdb_number(&text, "bp allocated").unwrap() - shared, "{name}");
    }
}

#[test]
fn space_maps_of_openzfs_say_what_zdb_found() {
    let Some(unpack) = oracle("golden/unpack") else { return };
    for name in ["single-a9", "mirrors", "stripe4", "special", "slog", "crash", "v28", "nofeat", "upgraded", "bclone", "gang-a12", "full", "zil"] {
        println!("{name}");
        check(name, &unpack);
    }
}
