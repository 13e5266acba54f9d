//! Feature flags of an open pool: which are on, and how many things use each.
//!
//! # Theory
//! A feature is *enabled* when it has an entry in one of two ZAPs of the MOS, and *active* when the number there is not 0. Each
//! thing on disk that needs the feature to be understood counts once. The numbers are kept in memory too, since the
//! write path asks.
//!
//! # On disk
//! `features_for_read` (what a reader must know), `features_for_write` (what only a writer must know),
//! `feature_descriptions`, `feature_enabled_txg`; see [`ondisk::feature`].
//!
//! # Invariants
//! 1. The number in memory is the number in the MOS as of the syncing txg.
//! 2. While a feature flagged MOS is active, its guid is in the label, written no later than the txg that activated it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ondisk::feature::{Feature, FeatureFlags, Support};
use ondisk::object_type::ObjectType;
use parking_lot::RwLock;

use super::meta::key;
use super::mos::Mos;
use crate::bail;
use crate::dmu::SyncTx;
use crate::error::{Result, Within};

/// Which features are enabled, with their counts.
#[derive(Debug, Default)]
pub struct Features {
    for_read: AtomicU64,
    for_write: AtomicU64,
    descriptions: AtomicU64,
    enabled_txg: AtomicU64,
    /// guards: count by feature; what is not there is not enabled
    counts: RwLock<BTreeMap<Feature, u64>>,
    label_is_stale: AtomicBool,
}

/// A feature that is active in the pool and unknown to, or not supported by, this program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsupported {
    /// Its guid.
    pub guid: String,
    /// The description that is in the pool.
    pub description: String,
    /// Whether the pool can at least be read.
    pub readable: bool,
}

impl Features {
    /// Reads the features of a pool; a pool older than version 5000 has none.
    /// Returns those active that this program cannot handle as well.
    pub fn load(mos: &Mos, for_writing: bool) -> Result<(Self, Vec<Unsupported>)> {
        let features = Features::default();
        let mut unsupported = Vec::new();
        let object = |name| mos.zap_u64(key::DIRECTORY, name).map(|found| found.unwrap_or(0));
        features.for_read.store(object(key::FEATURES_FOR_READ)?, Ordering::Relaxed);
        features.for_write.store(object(key::FEATURES_FOR_WRITE)?, Ordering::Relaxed);
        features.descriptions.store(object(key::FEATURE_DESCRIPTIONS)?, Ordering::Relaxed);
        features.enabled_txg.store(object(key::FEATURE_ENABLED_TXG)?, Ordering::Relaxed);
        for (which, read_compatible) in [(&features.for_read, false), (&features.for_write, true)] {
            let object = which.load(Ordering::Relaxed);
            if object == 0 {
                continue;
            }
            for (guid, value) in mos.zap_entries(object).within(|| "the pool's features")? {
                let count = value.first();
                let known = Feature::from_guid(&guid);
                if let Some(feature) = known {
                    features.counts.write().insert(feature, count);
                }
                let support = known.map_or(Support::None, |feature| feature.info().support);
                let readable = read_compatible || support >= Support::Read;
                let enough = if for_writing { support >= Support::Maintain } else { readable };
                if count > 0 && !enough {
                    let description = features.description(mos, &guid)?;
                    unsupported.push(Unsupported { guid, description, readable });
                }
            }
        }
        Ok((features, unsupported))
    }

    fn description(&self, mos: &Mos, guid: &str) -> Result<String> {
        let object = self.descriptions.load(Ordering::Relaxed);
        let found = if object == 0 { None } else { mos.zap_get(object, guid)? };
        Ok(found.map_or_else(String::new, |text| text.to_text()))
    }

    /// Makes the ZAPs, in a new pool or one that gets features.
    pub fn create_objects(&self, mos: &Mos, tx: &SyncTx<'_>) -> Result<()> {
        for (which, name) in [
            (&self.for_read, key::FEATURES_FOR_READ),
            (&self.for_write, key::FEATURES_FOR_WRITE),
            (&self.descriptions, key::FEATURE_DESCRIPTIONS),
        ] {
            let object = mos.zap_create(ObjectType::ZAP_METADATA, tx)?;
            mos.zap_add_u64(key::DIRECTORY, name, object, tx)?;
            which.store(object, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether it may be used.
    pub fn is_enabled(&self, feature: Feature) -> bool {
        self.counts.read().contains_key(&feature)
    }

    /// Whether something uses it.
    pub fn is_active(&self, feature: Feature) -> bool {
        self.count(feature).is_some_and(|count| count > 0)
    }

    /// How many things use it; `None` if it is not enabled.
    pub fn count(&self, feature: Feature) -> Option<u64> {
        self.counts.read().get(&feature).copied()
    }

    /// All that are enabled, with their counts.
    pub fn all(&self) -> Vec<(Feature, u64)> {
        self.counts.read().iter().map(|(feature, count)| (*feature, *count)).collect()
    }

    /// The guids that belong into the label's `features_for_read`: active ones without which the MOS cannot be read.
    pub fn for_label(&self) -> Vec<&'static str> {
        let counts = self.counts.read();
        let active = counts.iter().filter(|(_, count)| **count > 0).map(|(feature, _)| feature.info());
        active.filter(|info| info.flags.contains(FeatureFlags::MOS)).map(|info| info.guid).collect()
    }

    /// Whether [`Features::for_label`] has changed since this was last asked.
    pub fn take_label_is_stale(&self) -> bool {
        self.label_is_stale.swap(false, Ordering::Relaxed)
    }

    fn set(&self, mos: &Mos, feature: Feature, count: u64, tx: &SyncTx<'_>) -> Result<()> {
        let which = if feature.is_read_only_compatible() { &self.for_write } else { &self.for_read };
        mos.zap_set_u64(which.load(Ordering::Relaxed), feature.guid(), count, tx)?;
        self.counts.write().insert(feature, count);
        if feature.info().flags.contains(FeatureFlags::MOS) && count <= 1 {
            self.label_is_stale.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Enables it, with all it depends on. Nothing happens if it is on already.
    pub fn enable(&self, mos: &Mos, feature: Feature, tx: &SyncTx<'_>) -> Result<()> {
        if self.is_enabled(feature) {
            return Ok(());
        }
        for dependency in feature.info().depends_on {
            self.enable(mos, *dependency, tx)?;
        }
        mos.zap_set_text(self.descriptions.load(Ordering::Relaxed), feature.guid(), feature.info().description, tx)?;
        let active = feature.info().flags.contains(FeatureFlags::ACTIVATE_ON_ENABLE);
        self.set(mos, feature, u64::from(active), tx)?;
        if self.is_enabled(Feature::EnabledTxg) {
            if self.enabled_txg.load(Ordering::Relaxed) == 0 {
                let object = mos.zap_create(ObjectType::ZAP_METADATA, tx)?;
                mos.zap_add_u64(key::DIRECTORY, key::FEATURE_ENABLED_TXG, object, tx)?;
                self.enabled_txg.store(object, Ordering::Relaxed);
            }
            self.increment(mos, Feature::EnabledTxg, tx)?;
            mos.zap_set_u64(self.enabled_txg.load(Ordering::Relaxed), feature.guid(), tx.txg(), tx)?;
        }
        Ok(())
    }

    /// The txg in which it was enabled, if the pool remembers.
    pub fn enabled_in(&self, mos: &Mos, feature: Feature) -> Result<Option<u64>> {
        match self.enabled_txg.load(Ordering::Relaxed) {
            0 => Ok(None),
            object => mos.zap_u64(object, feature.guid()),
        }
    }

    /// One thing more uses it.
    pub fn increment(&self, mos: &Mos, feature: Feature, tx: &SyncTx<'_>) -> Result<()> {
        self.increment_by(mos, feature, 1, tx)
    }

    /// `users` things more use it.
    pub fn increment_by(&self, mos: &Mos, feature: Feature, users: u64, tx: &SyncTx<'_>) -> Result<()> {
        match self.count(feature) {
            Some(_) if users == 0 => Ok(()),
            Some(count) => self.set(mos, feature, count.saturating_add(users), tx),
            None => bail!(NotSupported, "the feature {} is not enabled in this pool", feature.name()),
        }
    }

    /// One thing less uses it.
    pub fn decrement(&self, mos: &Mos, feature: Feature, tx: &SyncTx<'_>) -> Result<()> {
        self.decrement_by(mos, feature, 1, tx)
    }

    /// `users` things less use it.
    pub fn decrement_by(&self, mos: &Mos, feature: Feature, users: u64, tx: &SyncTx<'_>) -> Result<()> {
        match self.count(feature) {
            _ if users == 0 => Ok(()),
            Some(count) if count >= users => self.set(mos, feature, count - users, tx),
            _ => bail!(Corrupt, "the feature {} is used by something, but not counted", feature.name()),
        }
    }
}
