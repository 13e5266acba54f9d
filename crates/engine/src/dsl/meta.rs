//! What the lower structures of the DSL share: the MOS, the features, and the size of blocks.
//!
//! # Theory
//! Bpobjs, deadlists, directories and datasets all live in the MOS, switch features, and add up the space of blocks.
//! [`Meta`] is what they need for that, and no more: no names, no tree.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ondisk::blkptr::BlkPtr;
use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;
use zerocopy::little_endian::U64;

use super::feature::Features;
use super::mos::Mos;
use crate::dmu::{DmuContext, SyncTx};
use crate::error::Result;

/// Keys of the MOS's object directory, which is object 1.
pub mod key {
    /// The object directory itself.
    pub const DIRECTORY: u64 = 1;
    /// The root directory.
    pub const ROOT_DATASET: &str = "root_dataset";
    /// The pool's configuration.
    pub const CONFIG: &str = "config";
    /// Features that a reader must know.
    pub const FEATURES_FOR_READ: &str = "features_for_read";
    /// Features that a writer must know.
    pub const FEATURES_FOR_WRITE: &str = "features_for_write";
    /// What the features are, in words.
    pub const FEATURE_DESCRIPTIONS: &str = "feature_descriptions";
    /// When features were enabled.
    pub const FEATURE_ENABLED_TXG: &str = "feature_enabled_txg";
    /// Frees put off to the next txg.
    pub const DEFERRED_BPOBJ: &str = "sync_bplist";
    /// The pool's properties.
    pub const PROPS: &str = "pool_props";
    /// The pool's history.
    pub const HISTORY: &str = "history";
    /// Blocks that are freed in the background.
    pub const FREE_BPOBJ: &str = "free_bpobj";
    /// Datasets that are freed in the background.
    pub const BPTREE: &str = "bptree_obj";
    /// The shared empty bpobj.
    pub const EMPTY_BPOBJ: &str = "empty_bpobj";
    /// What scrubs have seen.
    pub const LAST_SCRUBBED_TXG: &str = "last_scrubbed_txg";
    /// Temporary holds.
    pub const TMP_USERREFS: &str = "tmp_userrefs";
    /// The salt of salted checksums.
    pub const CHECKSUM_SALT: &str = "org.illumos:checksum_salt";
    /// Clones whose livelists are freed in the background.
    pub const DELETED_CLONES: &str = "com.delphix:deleted_clones";
    /// The last scrub or resilver, or the one that is under way.
    pub const SCAN: &str = "scan";
    /// The last scrub of damaged blocks only.
    pub const ERROR_SCRUB: &str = "error_scrub";
    /// Ranges of removed vdevs whose maps are not needed there any more, and do not say so yet.
    pub const OBSOLETE_BPOBJ: &str = "com.delphix:obsolete_bpobj";
}

/// Space of one or many blocks, as it is counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Space {
    /// On disk, all copies, without the share of parity (deflated ASIZE).
    pub used: u64,
    /// After compression (PSIZE).
    pub compressed: u64,
    /// Before compression (LSIZE; of metadata PSIZE).
    pub uncompressed: u64,
}

impl Space {
    /// Adds another.
    pub fn add(&mut self, other: Space) {
        self.used = self.used.saturating_add(other.used);
        self.compressed = self.compressed.saturating_add(other.compressed);
        self.uncompressed = self.uncompressed.saturating_add(other.uncompressed);
    }

    /// As an increase.
    pub fn positive(self) -> SpaceDelta {
        SpaceDelta {
            used: self.used as i64,
            compressed: self.compressed as i64,
            uncompressed: self.uncompressed as i64,
        }
    }

    /// As a decrease.
    pub fn negative(self) -> SpaceDelta {
        let up = self.positive();
        SpaceDelta { used: up.used.wrapping_neg(), compressed: up.compressed.wrapping_neg(), uncompressed: up.uncompressed.wrapping_neg() }
    }
}

/// A change of space.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpaceDelta {
    /// On disk.
    pub used: i64,
    /// After compression.
    pub compressed: i64,
    /// Before compression.
    pub uncompressed: i64,
}

impl SpaceDelta {
    /// Adds another.
    pub fn add(&mut self, other: SpaceDelta) {
        self.used = self.used.wrapping_add(other.used);
        self.compressed = self.compressed.wrapping_add(other.compressed);
        self.uncompressed = self.uncompressed.wrapping_add(other.uncompressed);
    }

    /// Whether nothing changes.
    pub fn is_zero(self) -> bool {
        self == SpaceDelta::default()
    }

    /// Adds it to three counters of a record.
    pub fn apply(self, used: &mut U64, compressed: &mut U64, uncompressed: &mut U64) {
        change(used, self.used);
        change(compressed, self.compressed);
        change(uncompressed, self.uncompressed);
    }
}

/// Adds `delta` to a counter. A counter never goes below 0: one that would was wrong on disk already, and is reported.
pub(crate) fn change(counter: &mut U64, delta: i64) {
    let after = match counter.get().checked_add_signed(delta) {
        Some(after) => after,
        None => {
            tracing::warn!("space accounting: {} {delta:+} is out of range", counter.get());
            if delta < 0 { 0 } else { u64::MAX }
        }
    };
    *counter = after.into();
}

/// See the module.
pub struct Meta {
    /// The pool's own objects.
    pub mos: Mos,
    /// Which features are on.
    pub features: Features,
    version: AtomicU64,
    /// The layers below.
    pub context: Arc<DmuContext>,
    empty_bpobj: AtomicU64,
}

impl fmt::Debug for Meta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meta").field("version", &self.version()).finish_non_exhaustive()
    }
}

impl Meta {
    /// Of an open pool, or of one being created.
    pub fn new(mos: Mos, features: Features, version: u64, context: Arc<DmuContext>) -> Self {
        Meta { mos, features, version: AtomicU64::new(version), context, empty_bpobj: AtomicU64::new(0) }
    }

    /// The pool's version: 1 to 28, or 5000 with features.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// The pool has this version from now on: what the versions between need has been made.
    pub(crate) fn set_version(&self, version: u64) {
        self.version.store(version, Ordering::Relaxed);
    }

    /// The shared empty bpobj, if there is one.
    pub fn empty_bpobj(&self) -> Option<u64> {
        Some(self.empty_bpobj.load(Ordering::Relaxed)).filter(|object| *object != 0)
    }

    /// The shared empty bpobj is this; 0: there is none.
    pub fn set_empty_bpobj(&self, object: u64) {
        self.empty_bpobj.store(object, Ordering::Relaxed);
    }

    /// Makes an object of the DSL a ZAP too, so that it can have more fields.
    pub(super) fn zapify(&self, object: u64, tx: &SyncTx<'_>) -> Result<()> {
        if self.mos.zapify(object, tx)? {
            self.features.increment(&self.mos, Feature::ExtensibleDataset, tx)?;
        }
        Ok(())
    }

    /// Frees an object of the DSL that may be a ZAP.
    pub(super) fn free_zapified(&self, object: u64, tx: &SyncTx<'_>) -> Result<()> {
        if self.mos.info(object)?.object_type == ObjectType::ZAP_METADATA {
            self.features.decrement(&self.mos, Feature::ExtensibleDataset, tx)?;
        }
        self.mos.free(object, tx)
    }

    /// Says in a dataset's ZAP that it uses a feature.
    pub(super) fn activate_feature(&self, object: u64, feature: Feature, tx: &SyncTx<'_>) -> Result<()> {
        self.features.increment(&self.mos, feature, tx)?;
        self.zapify(object, tx)?;
        self.mos.zap_add_u64(object, feature.guid(), 0, tx)
    }

    /// A block's space, as it is counted.
    pub fn space_of(&self, bp: &BlkPtr) -> Space {
        let compressed = bp.physical_size();
        Space {
            used: self.context.io.deflated_size(bp),
            compressed,
            uncompressed: if bp.is_metadata() { compressed } else { bp.logical_size() },
        }
    }
}
