//! Datasets: one version of a file system or volume, live or snapshot.
//!
//! # Theory
//! A dataset is a record that says where an object set is, how much space it refers to and has for itself alone, and which
//! snapshot came before it. Blocks born after that snapshot are the dataset's own: freeing them gives their space back.
//! Older ones the snapshot still needs: they go on the deadlist.
//!
//! A [`Dataset`] pays for the blocks of its [`Objset`](crate::dmu::Objset): it is the `SpaceOwner`. The object sets that are
//! open are kept by [`Dsl`], not here, so that nothing holds itself.
//!
//! # On disk
//! [`ondisk::dsl::DatasetPhys`] in the bonus buffer of a MOS object; [`ondisk::dsl::dataset_field`] and the guids of the
//! features that it uses in its ZAP, if it is one.
//!
//! # Invariants
//! 1. There is at most one `Dataset` in memory for one object.
//! 2. The record changes in the sync thread only.
//!
//! # Locks
//! `Dataset::state`, then `Dir::state`; never those of two datasets.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ondisk::blkptr::BlkPtr;
use ondisk::dsl::{DATASET_FLAG_INCONSISTENT, DatasetPhys};
use ondisk::feature::{Feature, FeatureFlags};
use ondisk::object_type::ObjectType;

use crate::dsl::dead::deadlist::Deadlist;
use crate::dsl::tree::dir::Dir;
use crate::dsl::space::in_flight::InFlight;
use crate::dsl::meta::Space;
use crate::dsl::snapshots::written_sync::CountingBookmark;
use crate::dsl::tree::tree::Dsl;
use crate::bail;
use crate::error::{Result, Within};
use crate::sync::{Publish, Published};

/// One dataset in memory.
pub struct Dataset {
    pub(in crate::dsl) dsl: Arc<Dsl>,
    /// Its object in the MOS. immutable
    pub object: u64,
    /// The directory it belongs to. immutable
    pub dir: Arc<Dir>,
    /// Read-only for ever. immutable
    pub is_snapshot: bool,
    /// guards: the record, and what is derived from it
    pub(in crate::dsl) state: Published<DatasetState>,
    /// What transactions that are not on disk yet free of it, about.
    pub(in crate::dsl) freeing: InFlight,
}

pub(in crate::dsl) struct DatasetState {
    pub(in crate::dsl) phys: DatasetPhys,
    /// The record in the MOS is older than this one.
    pub(in crate::dsl) dirty: bool,
    /// The snapshot before (of a head).
    pub(in crate::dsl) prev: Option<Arc<Dataset>>,
    pub(in crate::dsl) deadlist: Arc<Deadlist>,
    /// Blocks that go on the deadlist when the object set has been written.
    pub(in crate::dsl) pending_dead: Vec<BlkPtr>,
    /// Bookmarks that count what is freed, while the object set is being written.
    pub(in crate::dsl) bookmarks: Vec<CountingBookmark>,
    /// Features that its ZAP names.
    pub(in crate::dsl) features: BTreeSet<Feature>,
    /// Features that blocks written in this txg use.
    pub(in crate::dsl) new_features: BTreeSet<Feature>,
    /// The property `refreservation` (of a head).
    pub(in crate::dsl) reserved: u64,
    /// The property `refquota` (of a head).
    pub(in crate::dsl) quota: u64,
}

/// Those numbers that a promise of space is measured by.
#[derive(Debug, Default)]
pub(in crate::dsl) struct DatasetLimits {
    unique: AtomicU64,
    referenced: AtomicU64,
    reserved: AtomicU64,
    quota: AtomicU64,
}

impl DatasetLimits {
    /// Space that only it refers to.
    pub(in crate::dsl) fn unique(&self) -> u64 {
        self.unique.load(Ordering::Acquire)
    }

    /// Space that it refers to.
    pub(in crate::dsl) fn referenced(&self) -> u64 {
        self.referenced.load(Ordering::Acquire)
    }

    /// The property `refreservation`.
    pub(in crate::dsl) fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Acquire)
    }

    /// The property `refquota`; 0: none.
    pub(in crate::dsl) fn quota(&self) -> u64 {
        self.quota.load(Ordering::Acquire)
    }
}

impl Publish for DatasetState {
    type Published = DatasetLimits;

    fn publish(&self, limits: &DatasetLimits) {
        limits.unique.store(self.phys.unique_bytes.get(), Ordering::Release);
        limits.referenced.store(self.phys.referenced_bytes.get(), Ordering::Release);
        limits.reserved.store(self.reserved, Ordering::Release);
        limits.quota.store(self.quota, Ordering::Release);
    }
}

impl fmt::Debug for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dataset").field("object", &self.object).field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Dataset {
    /// Reads the dataset in `object`. Called by [`Dsl::dataset`], which keeps it.
    pub(in crate::dsl) fn load(dsl: &Arc<Dsl>, object: u64) -> Result<Self> {
        let named = || format!("dataset {object}");
        let info = dsl.meta.mos.info(object).within(named)?;
        if info.bonus_type != ObjectType::DSL_DATASET {
            bail!(Corrupt, "dataset {object}: the object is a {}", info.bonus_type);
        }
        let phys = DatasetPhys::from_bonus(&dsl.meta.mos.bonus(object)?).within(named)?;
        let dir = dsl.dir(phys.dir.get(), None).within(named)?;
        let is_snapshot = phys.children.get() != 0;
        let mut features = BTreeSet::new();
        if info.object_type == ObjectType::ZAP_METADATA {
            let per_dataset = |feature: &Feature| feature.info().flags.contains(FeatureFlags::PER_DATASET);
            for feature in Feature::all().filter(per_dataset) {
                if dsl.meta.mos.zap_contains(object, feature.guid())? {
                    features.insert(feature);
                }
            }
        }
        let prev = match phys.prev_snapshot.get() {
            0 => None,
            _ if is_snapshot => None,
            prev if prev == object => bail!(Corrupt, "dataset {object}: it is its own snapshot"),
            prev => {
                // Checked before it is loaded, or two records that name each other would have no end.
                if dsl.dataset_record(prev)?.children.get() == 0 {
                    bail!(Corrupt, "dataset {object}: the snapshot before it, {prev}, is none");
                }
                Some(dsl.dataset(prev)?)
            }
        };
        let deadlist = Arc::new(Deadlist::open(&dsl.meta, phys.deadlist.get()).within(named)?);
        let dataset = Dataset {
            dsl: dsl.clone(),
            object,
            dir,
            is_snapshot,
            state: Published::new(DatasetState {
                phys,
                dirty: false,
                prev,
                deadlist,
                pending_dead: Vec::new(),
                features,
                new_features: BTreeSet::new(),
                bookmarks: Vec::new(),
                reserved: 0,
                quota: 0,
            }),
            freeing: InFlight::default(),
        };
        if !is_snapshot {
            let reserved = dataset.number_property("refreservation")?;
            let quota = dataset.number_property("refquota")?;
            let mut state = dataset.state.lock();
            (state.reserved, state.quota) = (reserved, quota);
        }
        Ok(dataset)
    }

    /// The tree it belongs to.
    pub fn dsl(&self) -> &Arc<Dsl> {
        &self.dsl
    }

    /// The record.
    pub fn phys(&self) -> DatasetPhys {
        self.state.read().phys
    }

    /// The snapshot before a head.
    pub fn prev(&self) -> Option<Arc<Dataset>> {
        self.state.read().prev.clone()
    }

    /// The deadlist.
    pub fn deadlist(&self) -> Arc<Deadlist> {
        self.state.read().deadlist.clone()
    }

    /// Features that its ZAP names.
    pub fn features(&self) -> BTreeSet<Feature> {
        self.state.read().features.clone()
    }

    /// Whether it is being received or destroyed.
    pub fn is_inconsistent(&self) -> bool {
        self.phys().flags.get() & DATASET_FLAG_INCONSISTENT != 0
    }

    /// The name: `pool/a/b`, or `pool/a/b@snapshot`.
    pub fn name(&self) -> Result<String> {
        let dir = self.dir.full_name();
        match self.snapshot_name()? {
            Some(snapshot) => Ok(format!("{dir}@{snapshot}")),
            None => Ok(dir),
        }
    }

    /// What follows the `@` of a snapshot's name.
    pub fn snapshot_name(&self) -> Result<Option<String>> {
        if !self.is_snapshot {
            return Ok(None);
        }
        let head = self.dsl.dataset_record(self.dir.phys().head_dataset.get())?;
        self.dsl.meta.mos.zap_name_of(head.snapshot_names.get(), self.object).map(Some)
    }

    /// The snapshots of a head, oldest first: name and object.
    pub fn snapshots(&self) -> Result<Vec<(String, u64)>> {
        let names = self.phys().snapshot_names.get();
        if names == 0 {
            return Ok(Vec::new());
        }
        let mut snapshots = Vec::new();
        for (name, value) in self.dsl.meta.mos.zap_entries(names)? {
            let object = value.first();
            snapshots.push((self.dsl.dataset_record(object)?.creation_txg.get(), name, object));
        }
        snapshots.sort();
        Ok(snapshots.into_iter().map(|(_, name, object)| (name, object)).collect())
    }

    /// The object of the snapshot called `name`.
    pub fn snapshot_object(&self, name: &str) -> Result<Option<u64>> {
        match self.phys().snapshot_names.get() {
            0 => Ok(None),
            names => self.dsl.meta.mos.zap_u64(names, name),
        }
    }

    /// The snapshot that a clone's head comes from; `None` if it is no clone.
    pub fn origin(&self) -> Result<Option<Arc<Dataset>>> {
        match self.dir.phys().origin.get() {
            0 => Ok(None),
            origin if Some(origin) == self.dsl.origin_snapshot() => Ok(None),
            origin => self.dsl.dataset(origin).map(Some),
        }
    }

    /// Space it refers to, shared or not.
    pub fn referenced(&self) -> Space {
        let phys = self.phys();
        Space {
            used: phys.referenced_bytes.get(),
            compressed: phys.compressed_bytes.get(),
            uncompressed: phys.uncompressed_bytes.get(),
        }
    }

    /// Space that only it refers to.
    pub fn unique_bytes(&self) -> u64 {
        self.phys().unique_bytes.get()
    }

    /// Space written since the snapshot before it.
    pub fn written(&self) -> Result<u64> {
        let phys = self.phys();
        let before = match phys.prev_snapshot.get() {
            0 => 0,
            prev => self.dsl.dataset_record(prev)?.referenced_bytes.get(),
        };
        let dead = self.deadlist().space(&self.dsl.meta)?.used;
        Ok(phys.referenced_bytes.get().saturating_add(dead).saturating_sub(before))
    }

    /// Space written since a snapshot of it, or of what it was cloned from. `None`: it does not come from that snapshot.
    ///
    /// # Errors
    /// The MOS cannot be read.
    #[doc(alias = "dsl_dataset_space_written")]
    pub fn written_since(&self, snapshot: &Dataset) -> Result<Option<u64>> {
        let meta = &self.dsl.meta;
        let since = snapshot.phys().creation_txg.get();
        let mut total = self.phys().referenced_bytes.get().saturating_sub(snapshot.phys().referenced_bytes.get());
        let lacking = snapshot.phys().referenced_bytes.get().saturating_sub(self.phys().referenced_bytes.get());
        let mut at = self.phys();
        // Each step goes to an older snapshot: a damaged pool cannot make it endless.
        let mut before = u64::MAX;
        loop {
            let (previous, txg) = (at.prev_snapshot.get(), at.prev_snapshot_txg.get());
            if previous == 0 || txg >= before || txg < since {
                return Ok(None);
            }
            let dead = Deadlist::open(meta, at.deadlist.get())?;
            // What a deadlist has is not newer than the snapshot before: of the last one, all of it counts.
            let space = if previous == snapshot.object { dead.space(meta)? } else { dead.space_born_in(meta, 0, since)? };
            total = total.saturating_add(space.used);
            if previous == snapshot.object {
                return Ok(Some(total.saturating_sub(lacking)));
            }
            before = txg;
            at = self.dsl.dataset_record(previous)?;
        }
    }
}
