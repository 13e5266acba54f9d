//! Finding all space maps and logs when a pool is opened; nothing is changed here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ondisk::feature::Feature;
use ondisk::space_map::Area;
use parking_lot::{Mutex, RwLock};

use super::kept::open_kept;
use super::log::{Log, LogInfo};
use super::map::SpaceMap;
use super::sync::{Loader, SpaceMaps};
use super::vdev_maps::{VdevMaps, block_bytes};
use crate::alloc::{Allocator, ClassKind, Group, GroupConfig, Metaslab};
use crate::bail;
use crate::dmu::{Dnode, ObjectId, Objset, SyncTx};
use crate::error::{Result, Within};
use crate::zap::Zap;

/// In the MOS's directory: the ZAP from txg to log space map.
pub(super) const LOG_TABLE: &str = "com.delphix:log_spacemap_zap";
/// In a top-level vdev's ZAP: the array of flush txgs.
pub(super) const FLUSH_TXGS: &str = "com.delphix:ms_unflushed_phys_txgs";
/// The MOS's directory.
pub(super) const MOS_DIRECTORY: ObjectId = 1;
/// Metaslabs that a vdev may have: a bound for what a label can make us allocate.
const METASLABS_MAX: u64 = 1 << 22;

/// What the space maps need to know of the pool's features, and change in it.
pub trait FeatureCounts: Send + Sync {
    /// The feature may be used.
    fn is_enabled(&self, feature: Feature) -> bool;
    /// The feature is in use.
    fn is_active(&self, feature: Feature) -> bool;
    /// Adds `change` to the count of the feature's uses.
    ///
    /// # Errors
    /// The table of counts cannot be read.
    fn add(&self, tx: &SyncTx<'_>, feature: Feature, change: i64) -> Result<()>;
}

/// The space of one top-level vdev.
pub struct VdevSpace {
    /// What it is to the allocator.
    pub group: GroupConfig,
    /// Allocatable bytes (label: `asize`).
    pub bytes: u64,
    /// Label: `metaslab_array`; 0: a new vdev.
    pub metaslab_array: ObjectId,
    /// Label: `com.delphix:vdev_zap_top`; 0: none.
    pub top_zap: ObjectId,
    /// Label: `non_allocating`: nothing new goes there (`zpool set allocating=off`, and while it is being removed).
    pub is_closed: bool,
}

/// What it takes to open the space maps.
pub struct SpaceMapsOptions {
    /// The pool's meta objset.
    pub mos: Arc<Objset>,
    /// Gets a group for each vdev.
    pub allocator: Arc<Allocator>,
    /// The pool's features.
    pub features: Arc<dyn FeatureCounts>,
    /// Top-level vdevs that have space: not holes, not indirect ones.
    pub vdevs: Vec<VdevSpace>,
    /// Top-level vdevs, holes and indirect ones included.
    pub top_level_vdevs: u32,
}

impl SpaceMaps {
    /// Finds the space maps of a pool and gives the allocator its groups.
    ///
    /// # Errors
    /// What is on disk makes no sense, or cannot be read.
    pub fn open(options: SpaceMapsOptions) -> Result<Arc<Self>> {
        let SpaceMapsOptions { mos, allocator, features, vdevs, top_level_vdevs } = options;
        let mut opened = BTreeMap::new();
        // OpenZFS does not close the last one.
        let any_open = vdevs.iter().any(|vdev| vdev.group.class == ClassKind::Normal && !vdev.is_closed);
        for mut vdev in vdevs {
            let id = vdev.group.vdev;
            vdev.is_closed &= any_open;
            let maps = open_vdev(&mos, features.as_ref(), &allocator, vdev).within(|| format!("vdev {id}"))?;
            opened.insert(id, Arc::new(maps));
        }
        let log = open_log(&mos, &opened, top_level_vdevs)?;
        for maps in opened.values() {
            add_metaslabs(maps);
            allocator.add_group(Arc::clone(&maps.group));
        }
        allocator.rebalance();
        let space_maps = Arc::new(Self {
            mos,
            allocator: Arc::clone(&allocator),
            features,
            vdevs: RwLock::new(opened),
            log: Mutex::new(log),
            touched: Mutex::default(),
            flush_all: AtomicBool::new(false),
        });
        allocator.set_loader(Arc::new(Loader(Arc::downgrade(&space_maps))));
        Ok(space_maps)
    }

    /// Adds a new top-level vdev (`zpool add`); its array is made in the next pass. Nothing is allocated on it before
    /// [`Group::set_usable`](crate::alloc::Group::set_usable) says so: until the configuration that has it is on disk, nobody
    /// could find what is there.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn add_vdev(&self, vdev: VdevSpace) -> Result<()> {
        let id = vdev.group.vdev;
        let maps = open_vdev(&self.mos, self.features.as_ref(), &self.allocator, vdev)?;
        add_metaslabs(&maps);
        let maps = Arc::new(maps);
        maps.group.set_usable(false);
        self.allocator.add_group(Arc::clone(&maps.group));
        self.vdevs.write().insert(id, maps);
        Ok(())
    }

    /// A vdev has so many bytes now, in the sync thread: what it has more is used at once, so the group that says so must be on disk.
    ///
    /// # Errors
    /// There is no such vdev.
    #[doc(alias = "vdev_expand")]
    pub fn grow_vdev(&self, vdev: u32, bytes: u64) -> Result<()> {
        let mut vdevs = self.vdevs.write();
        let Some(old) = vdevs.get(&vdev).cloned() else { bail!(Corrupt, "vdev {vdev} has no space maps") };
        let config = old.group.config();
        let count = (bytes >> config.metaslab_shift).min(METASLABS_MAX) as usize;
        let mut maps = old.maps.clone();
        while maps.len() < count {
            let id = maps.len() as u64;
            maps.push(Arc::default());
            old.group.add_metaslab(Metaslab::with_area(config.vdev, id, config.metaslab_area(id), config.ashift, None, 0));
        }
        let (array, flush_txgs, kept) = (old.array.lock().clone(), old.flush_txgs.lock().clone(), old.kept.lock().take());
        let grown = VdevMaps {
            group: old.group.clone(),
            top_zap: old.top_zap,
            array: Mutex::new(array),
            flush_txgs: Mutex::new(flush_txgs),
            kept: Mutex::new(kept),
            maps,
        };
        vdevs.insert(vdev, Arc::new(grown));
        Ok(())
    }

    /// Takes out a top-level vdev on which nothing is allocated, and frees what the MOS has of its space. Its ZAP is the caller's.
    ///
    /// # Errors
    /// There is no such vdev, or an object cannot be freed.
    pub fn remove_vdev(&self, tx: &SyncTx<'_>, vdev: u32) -> Result<()> {
        let Some(maps) = self.vdevs.write().remove(&vdev) else { bail!(Corrupt, "vdev {vdev} has no space maps") };
        self.allocator.remove_group(vdev);
        self.touched.lock().retain(|(of, _)| *of != vdev);
        for slot in &maps.maps {
            if let Some(map) = slot.lock().map.take() {
                map.destroy(&self.mos, tx, self.features.as_ref())?;
            }
        }
        let lists = [maps.array.lock().take(), maps.flush_txgs.lock().take()];
        lists.into_iter().flatten().try_for_each(|list| self.mos.free(tx, list.object()))
    }
}

impl SpaceMaps {
    /// The ZAP of a vdev that has no space any more says nothing of flushes: [`SpaceMaps::remove_vdev`] has freed the array.
    ///
    /// # Errors
    /// The ZAP cannot be read.
    #[doc(alias = "vdev_destroy_ms_flush_data")]
    pub fn forget_flushes(&self, top_zap: ObjectId, tx: &SyncTx<'_>) -> Result<()> {
        let zap = Zap::open(&self.mos, top_zap)?;
        if zap.contains(FLUSH_TXGS)? { zap.remove(tx, FLUSH_TXGS) } else { Ok(()) }
    }
}

/// Reads an array of words, of which those that were never written are 0.
fn read_words(dnode: &Dnode, count: u64) -> Result<Vec<u64>> {
    let mut bytes = vec![0; count as usize * 8];
    dnode.read(0, &mut bytes).within(|| format!("object {}", dnode.object()))?;
    let (words, _) = bytes.as_chunks::<8>();
    Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

fn open_vdev(
    mos: &Objset,
    features: &dyn FeatureCounts,
    allocator: &Allocator,
    vdev: VdevSpace,
) -> Result<VdevMaps> {
    let VdevSpace { group: config, bytes, metaslab_array, top_zap, is_closed } = vdev;
    let is_wide = config.allocation_bytes > 1 << config.metaslab_shift.min(62);
    if is_wide || !(9..=16).contains(&config.ashift) || !(config.ashift + 1..63).contains(&config.metaslab_shift) {
        bail!(Corrupt, "sectors of 2^{} and metaslabs of 2^{} bytes", config.ashift, config.metaslab_shift);
    }
    let count = bytes >> config.metaslab_shift;
    if count > METASLABS_MAX {
        bail!(Corrupt, "{count} metaslabs of 2^{} bytes", config.metaslab_shift);
    }
    let array = if metaslab_array == 0 { None } else { Some(mos.hold(metaslab_array)?) };
    let flush_txgs = open_flush_txgs(mos, top_zap)?;
    let objects = array.as_ref().map(|array| read_words(array, count)).transpose()?;
    let kept = open_kept(mos, top_zap, config.ashift)?;
    let txgs = flush_txgs.as_ref().map(|dnode| read_words(dnode, count)).transpose()?;
    let maps = VdevMaps {
        group: Arc::new(Group::new(config, allocator.streams())),
        top_zap,
        array: Mutex::new(array),
        flush_txgs: Mutex::new(flush_txgs),
        kept: Mutex::new(kept),
        maps: (0..count).map(|_| Arc::default()).collect(),
    };
    maps.group.set_usable(!is_closed);
    let map_block_bytes = block_bytes(features.is_enabled(Feature::LogSpacemap));
    for (id, slot) in (0_u64..).zip(&maps.maps) {
        let word = |words: &Option<Vec<u64>>| words.as_ref().and_then(|words| words.get(id as usize)).copied();
        let mut slot = slot.lock();
        slot.flush_txg = word(&txgs).unwrap_or(0);
        if let Some(object @ 1..) = word(&objects) {
            let map = SpaceMap::open(mos, object, maps.area(id)).within(|| format!("metaslab {id}"))?;
            slot.synced_length = map.length();
            slot.outdated = map.header.histogram.is_none() && !map.is_current_form(features, map_block_bytes);
            slot.map = Some(map);
        }
    }
    Ok(maps)
}

fn open_flush_txgs(mos: &Objset, top_zap: ObjectId) -> Result<Option<Arc<Dnode>>> {
    if top_zap == 0 {
        return Ok(None);
    }
    Zap::open(mos, top_zap)?.lookup_u64(FLUSH_TXGS)?.map(|object| mos.hold(object)).transpose()
}

/// Finds the logs, and puts what is only in them into memory.
fn open_log(mos: &Objset, vdevs: &BTreeMap<u32, Arc<VdevMaps>>, top_level_vdevs: u32) -> Result<Log> {
    let mut log = Log { table: Zap::open(mos, MOS_DIRECTORY)?.lookup_u64(LOG_TABLE)?, ..Log::default() };
    let Some(table) = log.table else { return Ok(log) };
    for entry in Zap::open(mos, table)?.entries()? {
        let name = entry.text();
        let Ok(txg) = u64::from_str_radix(&name, 16) else { bail!(Corrupt, "log space map of txg {name:?}") };
        log.logs.insert(txg, LogInfo { object: entry.value.first(), blocks: 0 });
    }
    for (txg, info) in &mut log.logs {
        let map = SpaceMap::open(mos, info.object, Area::LOG)?;
        info.blocks = map.blocks();
        map.replay(map.length(), |entry| {
            let Some(vdev) = entry.vdev.filter(|vdev| *vdev < top_level_vdevs) else {
                bail!(Corrupt, "an entry for vdev {:?}", entry.vdev);
            };
            // A vdev without space has been removed: what was on it has moved.
            let Some(maps) = vdevs.get(&vdev) else { return Ok(()) };
            let id = entry.offset >> maps.group.config().metaslab_shift;
            let area = maps.area(id);
            let Some(slot) = maps.maps.get(id as usize) else { bail!(Corrupt, "an entry beyond vdev {vdev}") };
            if entry.offset + entry.size > area.start + area.size {
                bail!(Corrupt, "an entry that crosses metaslabs {id} and {} of vdev {vdev}", id + 1);
            }
            if maps.top_zap == 0 {
                // Without its flush txgs there is no telling which entries matter (labels do not name the ZAP).
                bail!(Corrupt, "an entry for vdev {vdev}, which has no ZAP");
            }
            let mut slot = slot.lock();
            if *txg < slot.flush_txg {
                return Ok(());
            }
            slot.has_unflushed = true;
            slot.note_unflushed(entry.action, entry.offset, entry.size)
        })
        .within(|| format!("log space map of txg {txg}"))?;
    }
    Ok(log)
}

fn add_metaslabs(maps: &VdevMaps) {
    let config = maps.group.config();
    for (id, slot) in (0_u64..).zip(&maps.maps) {
        let slot = slot.lock();
        let header = slot.map.as_ref().map(|map| &map.header);
        let metaslab = Metaslab::with_area(config.vdev, id, config.metaslab_area(id), config.ashift, header, slot.allocated());
        maps.group.add_metaslab(metaslab);
    }
    maps.group.set_log_area();
}
