//! Properties of the pool that are stored, and enabling features.
//!
//! # Theory
//! A pool's own properties are a dictionary like those of datasets, but one for the whole pool, made when the first
//! property is set. Two are elsewhere: `comment` and `compatibility` belong to the configuration, so that they can be
//! read from a label.
//!
//! # On disk
//! The ZAP named `pool_props` in the MOS directory: numbers as one `u64`, text as bytes with a final zero; `bootfs` is the
//! number of a dataset.

use std::sync::Arc;

use ondisk::feature::{Feature, Support};
use ondisk::object_type::ObjectType;

use crate::pool::Pool;
use crate::pool::devices::vdev_zaps;
use crate::bail;
use crate::dmu::SyncTx;
use crate::dsl::meta::key;
use crate::dsl::prop_sync::check_fits;
use crate::dsl::{Dsl, PropertyValue, SpaceCheck};
use crate::error::Result;

/// The property that heartbeats are written by.
const MULTIHOST: &str = "multihost";

impl Pool {
    /// The value of a property, if it is stored.
    ///
    /// # Errors
    /// The dictionary cannot be read.
    pub fn stored_property(&self, name: &str) -> Result<Option<PropertyValue>> {
        let mos = &self.dsl.meta.mos;
        let Some(dictionary) = mos.zap_u64(key::DIRECTORY, key::PROPS)? else { return Ok(None) };
        let value = mos.zap_get(dictionary, name)?;
        Ok(value.map(|value| match value.integer_size() {
            1 => PropertyValue::Text(value.to_text()),
            _ => PropertyValue::Number(value.first()),
        }))
    }

    /// All stored properties.
    ///
    /// # Errors
    /// The dictionary cannot be read.
    pub fn stored_properties(&self) -> Result<Vec<(String, PropertyValue)>> {
        let mos = &self.dsl.meta.mos;
        let Some(dictionary) = mos.zap_u64(key::DIRECTORY, key::PROPS)? else { return Ok(Vec::new()) };
        let entries = mos.zap_entries(dictionary)?.into_iter().map(|(name, value)| match value.integer_size() {
            1 => (name, PropertyValue::Text(value.to_text())),
            _ => (name, PropertyValue::Number(value.first())),
        });
        Ok(entries.collect())
    }

    /// Stores properties, and waits until that is on disk. An empty text removes. `comment` and `compatibility` go into
    /// the configuration.
    ///
    /// # Errors
    /// The pool is read-only or full.
    #[doc(alias = "spa_sync_props")]
    pub fn set_properties(&self, values: Vec<(String, PropertyValue)>) -> Result<()> {
        if self.is_read_only() {
            bail!(ReadOnly, "pool {} is read-only", self.name());
        }
        values.iter().try_for_each(|(name, value)| check_fits(name, value))?;
        let multihost = values.iter().find(|(name, _)| name == MULTIHOST).map(|(_, value)| value.number() != 0);
        if multihost == Some(true) {
            self.set_multihost(true)?;
        }
        let mut stored = Vec::new();
        for (name, value) in values {
            match (name.as_str(), value) {
                ("comment", PropertyValue::Text(text)) => self.change_config(|config| config.comment = some_text(&text)),
                ("compatibility", PropertyValue::Text(text)) => self.change_config(|config| config.compatibility = some_text(&text)),
                (_, value) => stored.push((name, value)),
            }
        }
        if stored.is_empty() {
            for top in self.vdevs.tops() {
                top.set_config_dirty();
            }
            return self.sync_all();
        }
        self.dsl.run_task(6, SpaceCheck::ExtraReserved, |_| Ok(()), move |dsl, tx| {
            stored.iter().try_for_each(|(name, value)| store(dsl, name, value, tx))
        })?;
        if multihost == Some(false) {
            self.set_multihost(false)?;
            self.set_config_dirty();
            self.sync_all()?;
        }
        Ok(())
    }

    /// Does what the stored properties ask of an open pool.
    pub(in crate::pool) fn obey_stored_properties(&self) -> Result<()> {
        match self.stored_property(MULTIHOST)? {
            Some(value) => self.set_multihost(value.number() != 0),
            None => Ok(()),
        }
    }

    /// Enables features with all they depend on, and waits until that is on disk.
    ///
    /// # Errors
    /// `NotSupported`: this program cannot write pools that have it.
    pub fn enable_features(self: &Arc<Self>, features: Vec<Feature>) -> Result<()> {
        let unsupported = features.iter().find(|feature| feature.info().support != Support::ReadWrite);
        if let Some(feature) = unsupported {
            bail!(NotSupported, "feature '{}' is not supported", feature.name());
        }
        let pool = self.clone();
        self.dsl.run_task(8, SpaceCheck::ExtraReserved, |_| Ok(()), move |dsl, tx| {
            for feature in features {
                dsl.meta.features.enable(&dsl.meta.mos, feature, tx)?;
                dsl.record_event("set", &format!("feature@{}=enabled", feature.name()), tx)?;
            }
            if pool.config().has_vdev_zaps && vdev_zaps::create_for_root(&dsl.meta, &pool.vdevs, tx)? {
                pool.set_config_dirty();
            }
            Self::obey_features(dsl)
        })
    }
}

fn some_text<T: for<'a> From<&'a str>>(text: &str) -> Option<T> {
    (!text.is_empty()).then(|| text.into())
}

fn store(dsl: &Dsl, name: &str, value: &PropertyValue, tx: &SyncTx<'_>) -> Result<()> {
    let mos = &dsl.meta.mos;
    let dictionary = match mos.zap_u64(key::DIRECTORY, key::PROPS)? {
        Some(there) => there,
        None => {
            let made = mos.zap_create(ObjectType::POOL_PROPS, tx)?;
            mos.zap_add_u64(key::DIRECTORY, key::PROPS, made, tx)?;
            made
        }
    };
    match value {
        PropertyValue::Text(text) if text.is_empty() => mos.zap_remove(dictionary, name, tx).map(|_| ())?,
        PropertyValue::Text(text) => mos.zap_set_text(dictionary, name, text, tx)?,
        PropertyValue::Number(number) => mos.zap_set_u64(dictionary, name, *number, tx)?,
    }
    let shown = match value {
        PropertyValue::Text(text) => text.clone(),
        PropertyValue::Number(number) => number.to_string(),
    };
    dsl.record_event("set", &format!("{name}={shown}"), tx)
}
