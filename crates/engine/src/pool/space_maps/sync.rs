//! Writing what a txg allocated and freed, in the sync thread.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::sync::atomic::{AtomicBool, Ordering};

use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;
use ondisk::space_map::Action;
use parking_lot::{Mutex, RwLock};

use super::log::Log;
use super::map::SpaceMap;
use super::open::{FLUSH_TXGS, FeatureCounts};
use super::vdev_maps::{MetaslabMap, VdevMaps, block_bytes};
use crate::alloc::{Allocator, LoadSpaceMap, Metaslab, RangeTree};
use crate::bail;
use crate::dmu::{DnodeSpec, ObjectId, Objset, SyncTx};
use crate::error::{Result, Within};
use crate::zap::Zap;

/// A metaslab may be forgotten as soon as it was read, but not that often.
const LOADS_MAX: usize = 8;

/// All of a range.
fn whole(start: u64, end: u64) -> Result<RangeTree> {
    let mut all = RangeTree::new();
    all.add(start, end - start)?;
    Ok(all)
}

/// Block size of the array of flush txgs.
const FLUSH_TXGS_BLOCK_BYTES: u64 = 128 << 10;

/// All space maps of a pool.
pub struct SpaceMaps {
    pub(super) mos: Arc<Objset>,
    pub(super) allocator: Arc<Allocator>,
    pub(super) features: Arc<dyn FeatureCounts>,
    pub(super) vdevs: RwLock<BTreeMap<u32, Arc<VdevMaps>>>,
    pub(super) log: Mutex<Log>,
    /// Metaslabs that the syncing txg has come by.
    pub(super) touched: Mutex<BTreeSet<(u32, u64)>>,
    /// The next txg flushes everything.
    pub(super) flush_all: AtomicBool,
}

/// What the allocator reads space maps with. Weak, as the space maps are objects that are read and written with what the
/// allocator gives: held, they would keep each other, and the pool's threads, for ever.
pub(super) struct Loader(pub(super) Weak<SpaceMaps>);

impl LoadSpaceMap for Loader {
    fn load(&self, vdev: u32, metaslab: u64) -> Result<RangeTree> {
        match self.0.upgrade() {
            Some(space_maps) => space_maps.load(vdev, metaslab),
            None => bail!(Suspended, "the pool is closed"),
        }
    }
}

/// The same for a caller that has them.
struct LoadFrom<'a>(&'a SpaceMaps);

impl LoadSpaceMap for LoadFrom<'_> {
    fn load(&self, vdev: u32, metaslab: u64) -> Result<RangeTree> {
        self.0.load(vdev, metaslab)
    }
}

impl SpaceMaps {
    fn load(&self, vdev: u32, metaslab: u64) -> Result<RangeTree> {
        let maps = self.vdev(vdev)?;
        let Some(slot) = maps.maps.get(metaslab as usize) else { bail!(Corrupt, "there is no metaslab {metaslab}") };
        slot.lock().free(maps.area(metaslab))
    }

    fn vdev(&self, vdev: u32) -> Result<Arc<VdevMaps>> {
        match self.vdevs.read().get(&vdev) {
            Some(maps) => Ok(Arc::clone(maps)),
            None => bail!(Corrupt, "vdev {vdev} has no space maps"),
        }
    }

    pub(super) fn all_vdevs(&self) -> Vec<Arc<VdevMaps>> {
        self.vdevs.read().values().cloned().collect()
    }

    /// A pool that was made before vdevs had ZAPs begins when OpenZFS has given it some: there is no place for the flush txgs. Not begun without
    /// histograms: the real `zdb` takes it that the log of each group counts as one that has one, and calls the pool damaged.
    fn is_logging(&self) -> bool {
        let has = |feature| self.features.is_enabled(feature);
        let has_place = || self.vdevs.read().values().all(|maps| maps.top_zap != 0);
        has(Feature::LogSpacemap) && (self.features.is_active(Feature::LogSpacemap) || (has(Feature::SpacemapHistogram) && has_place()))
    }

    /// The object with the numbers of a vdev's space maps: the label's `metaslab_array`; 0: not made yet.
    pub fn metaslab_array(&self, vdev: u32) -> ObjectId {
        self.vdev(vdev).ok().and_then(|maps| maps.array.lock().as_ref().map(|array| array.object())).unwrap_or(0)
    }

    /// Makes the arrays of new vdevs; `true`: there were some, so the configuration has to be written.
    /// In pass 1, before the configuration is.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn make_arrays(&self, tx: &SyncTx<'_>) -> Result<bool> {
        let mut made = false;
        for maps in self.all_vdevs() {
            let mut array = maps.array.lock();
            if array.is_none() {
                *array = Some(self.mos.allocate(tx, &DnodeSpec::new(ObjectType::OBJECT_ARRAY, 0))?);
                made = true;
            }
        }
        Ok(made)
    }

    /// Has the next txg flush every metaslab, so that the next import need not read logs: before an export.
    pub fn request_flush_all(&self) {
        self.flush_all.store(true, Ordering::Relaxed);
    }

    /// Writes what has been allocated and freed since the last pass.  Afterwards the MOS is dirty if anything was, and
    /// another pass is needed.
    ///
    /// # Errors
    /// What is on disk contradicts the allocator, or the MOS cannot be read: the txg cannot be finished.
    pub fn sync_pass(&self, tx: &SyncTx<'_>) -> Result<()> {
        self.make_arrays(tx)?;
        if tx.pass == 1 {
            self.flush_some(tx)?;
        }
        for maps in self.all_vdevs() {
            for id in maps.group.take_dirty(tx.txg()) {
                self.touched.lock().insert((maps.vdev(), id));
                let metaslab = maps.group.metaslabs().get(id as usize).cloned();
                let Some(metaslab) = metaslab else { bail!(Corrupt, "vdev {} has no metaslab {id}", maps.vdev()) };
                self.sync_metaslab(tx, &maps, &metaslab).within(|| &metaslab)?;
            }
        }
        if let Some(current) = &mut self.log.lock().current {
            current.store_header(tx);
        }
        Ok(())
    }

    fn sync_metaslab(&self, tx: &SyncTx<'_>, maps: &VdevMaps, metaslab: &Metaslab) -> Result<()> {
        let _loads_excluded = metaslab.exclude_load();
        let mut slot = maps.maps[metaslab.id as usize].lock();
        if !metaslab.has_changes(tx.txg()) {
            return Ok(());
        }
        self.make_map(tx, maps, metaslab, &mut slot)?;
        if tx.pass == 1 {
            self.condense(tx, maps, metaslab, &mut slot)?;
        }
        let changes = metaslab.begin_pass(tx.txg())?;
        self.keep(tx, maps, &changes.kept)?;
        if changes.allocated.is_empty() && changes.freed.is_empty() {
            return Ok(());
        }
        let features = self.features.as_ref();
        if self.is_logging() {
            let mut log = self.log.lock();
            let current = log.current(&self.mos, tx, features)?;
            current.append(tx, features, Some(maps.vdev()), &changes.allocated, &changes.freed)?;
            drop(log);
            if !slot.has_unflushed {
                slot.has_unflushed = true;
                self.set_flush_txg(tx, maps, metaslab.id, &mut slot)?;
            }
        }
        let first_pass = slot.histogram_txg != tx.txg();
        slot.histogram_txg = tx.txg();
        let is_logging = self.is_logging();
        let Some(map) = &mut slot.map else { unreachable!("the map was made above") };
        if !is_logging {
            map.append(tx, features, None, &changes.allocated, &changes.freed)?;
        }
        // With a log the histogram is all that changes here; once a txg is often enough for it.
        if !is_logging || first_pass {
            metaslab.update_histogram(&mut map.header, &changes.freed);
            map.store_header(tx);
        }
        if is_logging {
            slot.logged.push(changes);
        }
        Ok(())
    }

    /// Makes the space map of a metaslab that has never been used.
    fn make_map(&self, tx: &SyncTx<'_>, maps: &VdevMaps, metaslab: &Metaslab, slot: &mut MetaslabMap) -> Result<()> {
        if slot.map.is_none() {
            let (id, bytes) = (metaslab.id, block_bytes(self.is_logging()));
            let map = SpaceMap::create(&self.mos, tx, self.features.as_ref(), maps.area(id), bytes)?;
            self.enter_map(tx, maps, id, map.object())?;
            slot.map = Some(map);
        }
        Ok(())
    }

    fn enter_map(&self, tx: &SyncTx<'_>, maps: &VdevMaps, id: u64, object: ObjectId) -> Result<()> {
        let array = maps.array.lock().clone();
        let Some(array) = array else { bail!(Corrupt, "vdev {} has no array of space maps", maps.vdev()) };
        array.write(tx, id * 8, &object.to_le_bytes())
    }

    /// Rewrites a space map that is too long, if the free space is in memory; `true`: done, which flushes it too.
    fn condense(
        &self,
        tx: &SyncTx<'_>,
        maps: &VdevMaps,
        metaslab: &Metaslab,
        slot: &mut MetaslabMap,
    ) -> Result<bool> {
        let features = self.features.as_ref();
        let Some(counts) = metaslab.class_counts() else { return Ok(false) };
        if !slot.map.as_ref().is_some_and(|map| slot.outdated || map.should_condense(&counts, features)) {
            return Ok(false);
        }
        let (Some(free), Some(mut map)) = (metaslab.free_on_disk()?, slot.map.take()) else { return Ok(false) };
        let bytes = block_bytes(self.is_logging());
        if !map.is_current_form(features, bytes) {
            map.destroy(&self.mos, tx, features)?;
            map = SpaceMap::create(&self.mos, tx, features, maps.area(metaslab.id), bytes)?;
            self.enter_map(tx, maps, metaslab.id, map.object())?;
        }
        map.rewrite(tx, features, &free)?;
        metaslab.update_histogram(&mut map.header, &RangeTree::new());
        map.store_header(tx);
        slot.map = Some(map);
        slot.outdated = false;
        self.flushed(tx, maps, metaslab.id, slot)?;
        Ok(true)
    }

    /// Appends a metaslab's unflushed changes to its own space map.
    fn flush(&self, tx: &SyncTx<'_>, maps: &VdevMaps, metaslab: &Metaslab, slot: &mut MetaslabMap) -> Result<()> {
        self.make_map(tx, maps, metaslab, slot)?;
        if self.condense(tx, maps, metaslab, slot)? {
            return Ok(());
        }
        let (allocated, freed) = (&slot.unflushed_allocated, &slot.unflushed_freed);
        let Some(map) = &mut slot.map else { unreachable!("the map was made above") };
        map.append(tx, self.features.as_ref(), None, allocated, freed)?;
        map.store_header(tx);
        self.flushed(tx, maps, metaslab.id, slot)
    }

    /// The map has everything up to this txg, exclusive.
    fn flushed(&self, tx: &SyncTx<'_>, maps: &VdevMaps, id: u64, slot: &mut MetaslabMap) -> Result<()> {
        slot.unflushed_allocated = RangeTree::new();
        slot.unflushed_freed = RangeTree::new();
        slot.synced_length = slot.map.as_ref().map_or(0, SpaceMap::length);
        slot.has_unflushed = false;
        if slot.flush_txg != 0 { self.set_flush_txg(tx, maps, id, slot) } else { Ok(()) }
    }

    /// Remembers that the logs from this txg on are the ones that matter for a metaslab. The log of this txg must exist.
    fn set_flush_txg(&self, tx: &SyncTx<'_>, maps: &VdevMaps, id: u64, slot: &mut MetaslabMap) -> Result<()> {
        self.log.lock().current(&self.mos, tx, self.features.as_ref())?;
        slot.flush_txg = tx.txg();
        let mut array = maps.flush_txgs.lock();
        if array.is_none() {
            if maps.top_zap == 0 {
                bail!(Unsupported, "vdev {} has no ZAP, and the pool logs its space maps", maps.vdev());
            }
            let spec = DnodeSpec::new(ObjectType::UINT64_METADATA, FLUSH_TXGS_BLOCK_BYTES);
            let new = self.mos.allocate(tx, &spec)?;
            Zap::open(&self.mos, maps.top_zap)?.add_u64(tx, FLUSH_TXGS, new.object())?;
            *array = Some(new);
        }
        match &*array {
            Some(array) => array.write(tx, id * 8, &tx.txg().to_le_bytes()),
            None => Ok(()),
        }
    }

    /// Flushes some metaslabs, those first whose last flush is longest ago, and frees logs that nobody needs any more.
    fn flush_some(&self, tx: &SyncTx<'_>) -> Result<()> {
        if !self.is_logging() || self.log.lock().table.is_none() {
            return Ok(());
        }
        let flush_all = self.flush_all.swap(false, Ordering::Relaxed);
        // A txg that changes nothing stays so.
        if !flush_all && !self.mos.is_dirty(tx.txg()) && !self.has_changes(tx.txg()) {
            return Ok(());
        }
        let (mut queue, mut unflushed, mut segments) = (Vec::new(), 0, 0);
        for maps in self.all_vdevs() {
            for (id, slot) in (0_u64..).zip(&maps.maps) {
                let slot = slot.lock();
                if slot.flush_txg != 0 {
                    queue.push((slot.flush_txg, maps.vdev(), id));
                    unflushed += u64::from(slot.has_unflushed);
                    segments += slot.unflushed_segments() as u64;
                }
            }
        }
        queue.sort_unstable();
        let wanted = self.log.lock().flushes_wanted(unflushed, segments);
        let mut left = if flush_all { u64::MAX } else { wanted };
        let mut oldest = tx.txg();
        for (flush_txg, vdev, id) in queue {
            if left == 0 {
                oldest = flush_txg;
                break;
            }
            left -= u64::from(self.flush_one(tx, vdev, id)?);
        }
        self.log.lock().free_before(&self.mos, tx, self.features.as_ref(), oldest)
    }

    /// Flushes a metaslab; `false`: there was nothing to do but to note that.
    fn flush_one(&self, tx: &SyncTx<'_>, vdev: u32, id: u64) -> Result<bool> {
        let maps = self.vdev(vdev)?;
        let metaslab = maps.group.metaslabs().get(id as usize).cloned();
        let Some(metaslab) = metaslab else { bail!(Corrupt, "vdev {vdev} has no metaslab {id}") };
        let _loads_excluded = metaslab.exclude_load();
        let mut slot = maps.maps[id as usize].lock();
        let had_unflushed = slot.has_unflushed;
        if had_unflushed {
            self.flush(tx, &maps, &metaslab, &mut slot).within(|| format!("flush of {metaslab}"))?;
        } else {
            self.set_flush_txg(tx, &maps, id, &mut slot)?;
        }
        Ok(had_unflushed)
    }

    /// Something was allocated or freed since the last pass.
    pub fn has_changes(&self, txg: u64) -> bool {
        self.all_vdevs().iter().any(|maps| maps.group.has_changes(txg))
    }

    /// The txg is over: what it freed begins to wait, what waited long enough can be used again. What waits does so for txgs that are on disk, not for
    /// those in which nothing changed and that no uberblock tells of (`is_written`): else fewer of the last uberblocks than two would be left whole.
    /// `may_defer` is false when space is so short that freed space must be usable at once; then time passes in any case.
    ///
    /// # Errors
    /// What was written contradicts what is in memory.
    pub fn sync_done(&self, txg: u64, is_written: bool, may_defer: bool) -> Result<()> {
        self.log.lock().end(txg);
        let waiting = (is_written || !may_defer, may_defer);
        // In a txg that wrote nothing no pass has come by.
        for maps in self.all_vdevs() {
            self.touched.lock().extend(maps.group.take_dirty(txg).into_iter().map(|id| (maps.vdev(), id)));
        }
        for (vdev, id) in std::mem::take(&mut *self.touched.lock()) {
            let maps = self.vdev(vdev)?;
            let metaslab = maps.group.metaslabs().get(id as usize).cloned();
            let Some(metaslab) = metaslab else { bail!(Corrupt, "vdev {vdev} has no metaslab {id}") };
            let _loads_excluded = metaslab.exclude_load();
            let mut slot = maps.maps[id as usize].lock();
            for changes in std::mem::take(&mut slot.logged) {
                for (action, ranges) in [(Action::Allocate, &changes.allocated), (Action::Free, &changes.freed)] {
                    for (offset, size) in ranges.segments() {
                        slot.note_unflushed(action, offset, size).within(|| &metaslab)?;
                    }
                }
            }
            slot.synced_length = slot.map.as_ref().map_or(0, SpaceMap::length);
            let header = slot.map.as_ref().map(|map| &map.header);
            let done = metaslab.sync_done(txg, waiting, header)?;
            maps.group.count_sync_done(id, txg, done);
        }
        self.all_vdevs().iter().for_each(|maps| maps.group.forget_taken(txg));
        self.allocator.rebalance();
        Ok(())
    }

    /// Bytes in use on a vdev, as of the last synced txg, by the headers of its space maps.
    ///
    /// # Errors
    /// There is no such vdev.
    pub fn allocated(&self, vdev: u32) -> Result<u64> {
        Ok(self.vdev(vdev)?.maps.iter().fold(0, |sum: u64, slot| sum.saturating_add(slot.lock().allocated())))
    }

    /// Brings into memory what is free in the metaslab at an offset.
    ///
    /// # Errors
    /// Its space map cannot be read or makes no sense.
    pub fn bring_in(&self, vdev: u32, offset: u64) -> Result<()> {
        self.vdev(vdev)?.group.metaslab_at(offset)?.load(&LoadFrom(self))
    }

    /// What cannot be allocated just now of a range of one metaslab. All of it, where its space map cannot be read.
    ///
    /// # Errors
    /// There is no such metaslab.
    pub fn not_free(&self, vdev: u32, start: u64, end: u64) -> Result<RangeTree> {
        let metaslab = self.vdev(vdev)?.group.metaslab_at(start)?;
        match self.loaded(&metaslab, |metaslab| metaslab.used_of(start, end)) {
            Ok(used) => Ok(used),
            Err(error) => {
                tracing::warn!(%error, "what is free in a metaslab is not known: nothing is");
                whole(start, end)
            }
        }
    }

    /// As [`SpaceMaps::not_free`], for a caller for which nothing can be read: all of it, where that is not in memory.
    ///
    /// # Errors
    /// There is no such metaslab.
    pub fn not_free_in_memory(&self, vdev: u32, start: u64, end: u64) -> Result<RangeTree> {
        self.vdev(vdev)?.group.metaslab_at(start)?.used_of(start, end)?.map_or_else(|| whole(start, end), Ok)
    }

    /// What is in use of a range of one metaslab and was not freed by the group that is being written, in the sync thread.
    ///
    /// # Errors
    /// There is no such metaslab, or its space map cannot be read or makes no sense.
    pub fn in_use(&self, vdev: u32, start: u64, end: u64) -> Result<RangeTree> {
        let metaslab = self.vdev(vdev)?.group.metaslab_at(start)?;
        self.loaded(&metaslab, |metaslab| metaslab.in_use(start, end))
    }

    /// Asks a metaslab for what it may not have in memory.
    fn loaded(&self, metaslab: &Metaslab, ask: impl Fn(&Metaslab) -> Result<Option<RangeTree>>) -> Result<RangeTree> {
        for _ in 0..LOADS_MAX {
            metaslab.load(&LoadFrom(self))?;
            if let Some(found) = ask(metaslab)? {
                return Ok(found);
            }
        }
        bail!(Corrupt, "{metaslab}: what is free is not in memory")
    }

    /// How many pieces of free space of a vdev are longer than `gap`, about, and how many bytes the others have, by the histograms of its space maps.
    ///
    /// # Errors
    /// There is no such vdev.
    pub fn free_pieces(&self, vdev: u32, gap: u64) -> Result<(u64, u64)> {
        let maps = self.vdev(vdev)?;
        let shift = u32::from(maps.group.config().ashift);
        let long_from = (gap.max(2).ilog2() + 1).saturating_sub(2);
        let (mut pieces, mut between) = (0_u64, 0_u64);
        for slot in &maps.maps {
            let Some(histogram) = slot.lock().map.as_ref().and_then(|map| map.header.histogram) else { continue };
            for (class, count) in (shift..).zip(histogram) {
                if class < long_from {
                    between = between.saturating_add(count.saturating_mul(2_u64.saturating_pow(class + 1)));
                } else {
                    pieces = pieces.saturating_add(count);
                }
            }
        }
        Ok((pieces, between))
    }

    /// What is in use on a vdev, as of the last synced txg: for the checker. Reads every space map.
    ///
    /// # Errors
    /// A space map cannot be read or makes no sense.
    pub fn allocated_ranges(&self, vdev: u32) -> Result<RangeTree> {
        let maps = self.vdev(vdev)?;
        let mut allocated = RangeTree::new();
        for id in 0..maps.maps.len() as u64 {
            let area = maps.area(id);
            let mut used = RangeTree::new();
            used.add(area.start, area.size)?;
            let free = self.load(vdev, id).within(|| format!("vdev {vdev}, metaslab {id}"))?;
            used.remove_all(&free)?;
            allocated.add_all(&used)?;
        }
        Ok(allocated)
    }
}
