//! Datasets: one version of a file system or volume, live or snapshot.
//!
//! # Theory
//! A dataset is a record that says where an object set is, how much space it refers to and has for itself alone, and which
//! snapshot came before it. Blocks born after that snapshot are the dataset's own: freeing them gives their space back.
//! Older ones the snapshot still needs: they go on the deadlist.
//!
//! A [`Dataset`] pays for the blocks of its [`Objset`](crate::dmu::Objset): it is the `SpaceOwner`. The object sets that are
//! open are kept by [`OpenObjsets`], not here, so that nothing holds itself.
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
use std::sync::{Arc, Weak};

use ondisk::dsl::{BOOKMARK_FLAG_HAS_FREED_BEFORE_NEXT, BookmarkPhys, DATASET_FLAG_CASE_INSENSITIVE, DATASET_FLAG_INCONSISTENT, DatasetPhys};
use ondisk::feature::{Feature, FeatureFlags};
use ondisk::object_type::ObjectType;

use super::livelist_sync::{OpenLivelist, livelist_of};
use super::objsets::OpenObjsets;
use super::state::{DatasetLimits, DatasetState};
use crate::dmu::Objset;
use crate::dsl::dead::deadlist::Deadlist;
use crate::dsl::dead::livelist_sync::Livelist;
use crate::dsl::meta::{Meta, Space};
use crate::dsl::received::ResumePoints;
use crate::dsl::space::in_flight::InFlight;
use crate::dsl::space::ledger_sync::Ledger;
use crate::dsl::space::room::Room;
use crate::dsl::tree::dir::Dir;
use crate::dsl::tree::records::Records;
use crate::dsl::tree::tree::Tree;
use crate::error::{Result, Within};
use crate::sync::Published;
use crate::txg::Txg;
use crate::zap::Match;
use crate::{bail, error};

/// What datasets use of the DSL. Weakly what keeps datasets, so that nothing holds itself.
#[derive(Clone)]
pub(in crate::dsl) struct Links {
    pub(in crate::dsl) meta: Arc<Meta>,
    pub(in crate::dsl) ledger: Arc<Ledger>,
    pub(in crate::dsl) room: Arc<Room>,
    pub(in crate::dsl) records: Weak<Records>,
    pub(in crate::dsl) objsets: Weak<OpenObjsets>,
}

/// One dataset in memory.
pub struct Dataset {
    tree: Arc<Tree>,
    links: Links,
    /// Its object in the MOS. immutable
    pub object: u64,
    /// The directory it belongs to. immutable
    pub dir: Arc<Dir>,
    /// Read-only for ever. immutable
    pub is_snapshot: bool,
    /// guards: the record, and what is derived from it
    pub(super) state: Published<DatasetState>,
    /// What is promised to transactions of it that are not on disk yet.
    pub(super) promised: InFlight,
    /// What transactions that are not on disk yet free of it, about.
    pub(super) freeing: InFlight,
    /// How far what is received has come.
    resume_points: ResumePoints,
}

impl fmt::Debug for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dataset").field("object", &self.object).field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Dataset {
    /// Reads the dataset in `object`. Called by [`Tree::dataset`], which keeps it.
    pub(in crate::dsl) fn load(tree: &Arc<Tree>, links: &Links, object: u64) -> Result<Self> {
        let named = || format!("dataset {object}");
        let meta = &links.meta;
        let info = meta.mos.info(object).within(named)?;
        if info.bonus_type != ObjectType::DSL_DATASET {
            bail!(Corrupt, "dataset {object}: the object is a {}", info.bonus_type);
        }
        let phys = DatasetPhys::from_bonus(&meta.mos.bonus(object)?).within(named)?;
        let dir = tree.dir(phys.dir.get(), None).within(named)?;
        let is_snapshot = phys.children.get() != 0;
        let mut features = BTreeSet::new();
        if info.object_type == ObjectType::ZAP_METADATA {
            let per_dataset = |feature: &Feature| feature.info().flags.contains(FeatureFlags::PER_DATASET);
            for feature in Feature::all().filter(per_dataset) {
                if meta.mos.zap_contains(object, feature.guid())? {
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
                if tree.dataset_record(prev)?.children.get() == 0 {
                    bail!(Corrupt, "dataset {object}: the snapshot before it, {prev}, is none");
                }
                Some(tree.dataset(prev)?)
            }
        };
        let deadlist = Arc::new(Deadlist::open(meta, phys.deadlist.get()).within(named)?);
        let dataset = Dataset {
            tree: tree.clone(),
            links: links.clone(),
            object,
            dir,
            is_snapshot,
            state: Published::new(DatasetState::new(phys, prev, deadlist, features)),
            promised: InFlight::default(),
            freeing: InFlight::default(),
            resume_points: ResumePoints::default(),
        };
        if !is_snapshot {
            let reserved = dataset.number_property("refreservation")?;
            let quota = dataset.number_property("refquota")?;
            let livelist = Livelist::of_dir(meta, dataset.dir.object)?.map(OpenLivelist::new);
            let mut state = dataset.state.lock();
            (state.reserved, state.quota, state.livelist) = (reserved, quota, livelist);
        }
        Ok(dataset)
    }

    /// The tree it belongs to.
    pub(in crate::dsl) fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// The MOS and the features.
    pub(in crate::dsl) fn meta(&self) -> &Meta {
        &self.links.meta
    }

    /// Where its space is counted.
    pub(in crate::dsl) fn ledger(&self) -> &Ledger {
        &self.links.ledger
    }

    /// What may still be written.
    pub(in crate::dsl) fn room(&self) -> &Room {
        &self.links.room
    }

    /// How far what is received has come.
    pub fn resume_points(&self) -> &ResumePoints {
        &self.resume_points
    }

    /// Its object set: opened on first use, kept while it is used or has unsynced changes.
    pub(in crate::dsl) fn objset(self: &Arc<Self>) -> Result<Arc<Objset>> {
        let objsets = self.links.objsets.upgrade().ok_or_else(|| error!(Suspended, "the pool is closed"))?;
        objsets.objset(self)
    }

    /// Runs `work` on the record and remembers to write it.
    pub(in crate::dsl) fn change<T>(self: &Arc<Self>, work: impl FnOnce(&mut DatasetState) -> T) -> T {
        let mut state = self.state.lock();
        let result = work(&mut state);
        let is_first = state.note_change();
        drop(state);
        if is_first && let Some(records) = self.links.records.upgrade() {
            records.note_dataset(self);
        }
        result
    }

    /// The record, which is written into the MOS now.
    pub(in crate::dsl) fn take_record(&self) -> DatasetPhys {
        self.state.lock().take_record()
    }

    /// What a promise of space is measured by, without a lock.
    pub(in crate::dsl) fn limits(&self) -> &DatasetLimits {
        self.state.published()
    }

    /// `txg` is on disk: what it had promised it has taken or did not need, and what it frees is free.
    pub(in crate::dsl) fn group_done(&self, txg: Txg) {
        self.promised.clear(txg);
        self.freeing.clear(txg);
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
        let head = self.tree.dataset_record(self.dir.phys().head_dataset.get())?;
        self.tree.snapshot_names().name_of(&self.meta().mos, head.snapshot_names.get(), self.object).map(Some)
    }

    /// The snapshots of a head, oldest first: name and object.
    pub fn snapshots(&self) -> Result<Vec<(String, u64)>> {
        let names = self.phys().snapshot_names.get();
        if names == 0 {
            return Ok(Vec::new());
        }
        let mut snapshots = Vec::new();
        for (name, value) in self.meta().mos.zap_entries(names)? {
            let object = value.first();
            snapshots.push((self.tree.dataset_record(object)?.creation_txg.get(), name, object));
        }
        snapshots.sort();
        Ok(snapshots.into_iter().map(|(_, name, object)| (name, object)).collect())
    }

    /// Whether case does not matter to names of files and snapshots.
    pub(in crate::dsl) fn ignores_case(&self) -> bool {
        self.phys().flags.get() & DATASET_FLAG_CASE_INSENSITIVE != 0
    }

    /// The object of the snapshot called `name`. Where case does not matter to names of files, it does not to those of snapshots: one that is written just so
    /// is the one, and else one that differs in case.
    #[doc(alias = "dsl_dataset_snap_lookup")]
    pub fn snapshot_object(&self, name: &str) -> Result<Option<u64>> {
        let phys = self.phys();
        let names = match phys.snapshot_names.get() {
            0 => return Ok(None),
            names => self.meta().mos.zap(names)?,
        };
        let found = names.lookup_u64(name)?;
        if found.is_some() || !self.ignores_case() {
            return Ok(found);
        }
        Ok(names.lookup_matching(name, Match::Normalized)?.map(|(value, _)| value.first()))
    }

    /// The snapshot that a clone's head comes from; `None` if it is no clone.
    pub fn origin(&self) -> Result<Option<Arc<Dataset>>> {
        match self.dir.phys().origin.get() {
            0 => Ok(None),
            origin if Some(origin) == self.tree.origin_snapshot() => Ok(None),
            origin => self.tree.dataset(origin).map(Some),
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

    /// The space of what is alive on the list of its own blocks, if it has one, and how many sublists there are.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn livelist(&self) -> Result<Option<(Space, u64)>> {
        livelist_of(self)
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
            prev => self.tree.dataset_record(prev)?.referenced_bytes.get(),
        };
        let dead = self.deadlist().space(self.meta())?.used;
        Ok(phys.referenced_bytes.get().saturating_add(dead).saturating_sub(before))
    }

    /// Space written since a snapshot of it, or of what it was cloned from. `None`: it does not come from that snapshot.
    ///
    /// # Errors
    /// The MOS cannot be read.
    #[doc(alias = "dsl_dataset_space_written")]
    pub fn written_since(&self, snapshot: &Dataset) -> Result<Option<u64>> {
        let meta = self.meta();
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
            at = self.tree.dataset_record(previous)?;
        }
    }

    /// Space written since a bookmark of the file system in the directory `dir`. `None`: this does not come from there, or the bookmark does not count what
    /// was freed.
    ///
    /// # Errors
    /// The MOS cannot be read.
    #[doc(alias = "dsl_dataset_space_written_bookmark")]
    pub fn written_since_bookmark(&self, dir: u64, bookmark: &BookmarkPhys) -> Result<Option<u64>> {
        let since = bookmark.creation_txg.get();
        if bookmark.flags.get() & BOOKMARK_FLAG_HAS_FREED_BEFORE_NEXT == 0 || !self.comes_from(dir, since)? {
            return Ok(None);
        }
        let mut freed = bookmark.referenced_freed_before_next.get();
        let mut at = self.phys();
        while at.prev_snapshot_txg.get() > since {
            let txg = at.prev_snapshot_txg.get();
            let dead = Deadlist::open(self.meta(), at.deadlist.get())?.space_born_in(self.meta(), 0, since)?;
            freed = freed.saturating_add(dead.used);
            at = self.tree.dataset_record(at.prev_snapshot.get())?;
            if at.prev_snapshot_txg.get() >= txg {
                bail!(Corrupt, "dataset {}: its snapshots are not in a row", self.object);
            }
        }
        let now = self.phys().referenced_bytes.get().saturating_add(freed);
        Ok(Some(now.saturating_sub(bookmark.referenced_bytes.get())))
    }

    /// Whether a snapshot of `txg` in the directory `dir` is before this dataset, or before what it was cloned from.
    #[doc(alias = "dsl_dataset_is_before")]
    fn comes_from(&self, dir: u64, txg: u64) -> Result<bool> {
        let mut at = self.dir.clone();
        let mut end = if self.is_snapshot { self.phys().creation_txg.get() } else { u64::MAX };
        while txg < end && at.object != dir {
            let origin = at.phys().origin.get();
            if origin == 0 {
                return Ok(false);
            }
            let record = self.tree.dataset_record(origin)?;
            if record.creation_txg.get() >= end {
                bail!(Corrupt, "dataset {origin}: it is younger than its clone");
            }
            if record.creation_txg.get() == txg && record.dir.get() == dir {
                return Ok(true);
            }
            end = record.creation_txg.get();
            at = self.tree.dir(record.dir.get(), None)?;
        }
        Ok(txg < end)
    }
}
