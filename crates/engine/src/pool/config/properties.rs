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

use super::configuration::Configuration;
use super::upgrade::obey_features;
use crate::bail;
use crate::dmu::SyncTx;
use crate::dsl::meta::key;
use crate::dsl::prop_sync::check_fits;
use crate::dsl::{Dsl, PropertyValue, SpaceCheck};
use crate::error::Result;
use crate::pool::devices::vdev_zaps;
use crate::pool::layers::Layers;
use crate::pool::sync::writer::GroupWriter;

/// The property that heartbeats are written by.
const MULTIHOST: &str = "multihost";

/// The value of a property, if it is stored.
///
/// # Errors
/// The dictionary cannot be read.
pub(in crate::pool) fn stored_property(layers: &Layers, name: &str) -> Result<Option<PropertyValue>> {
    let mos = layers.mos();
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
pub(in crate::pool) fn stored_properties(layers: &Layers) -> Result<Vec<(String, PropertyValue)>> {
    let mos = layers.mos();
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
pub(in crate::pool) fn set_properties(writer: &GroupWriter, values: Vec<(String, PropertyValue)>) -> Result<()> {
    let (layers, configuration) = (writer.layers(), writer.configuration());
    if layers.is_read_only() {
        bail!(ReadOnly, "pool {} is read-only", configuration.name());
    }
    values.iter().try_for_each(|(name, value)| check_fits(name, value))?;
    let multihost = values.iter().find(|(name, _)| name == MULTIHOST).map(|(_, value)| value.number() != 0);
    if multihost == Some(true) {
        writer.set_multihost(true)?;
    }
    let mut stored = Vec::new();
    for (name, value) in values {
        match (name.as_str(), value) {
            ("comment", PropertyValue::Text(text)) => configuration.change(|config| config.comment = some_text(&text)),
            ("compatibility", PropertyValue::Text(text)) => configuration.change(|config| config.compatibility = some_text(&text)),
            (_, value) => stored.push((name, value)),
        }
    }
    if stored.is_empty() {
        configuration.write_labels();
        return writer.sync_all();
    }
    layers.dsl.run_task(6, SpaceCheck::ExtraReserved, |_| Ok(()), move |dsl, tx| {
        stored.iter().try_for_each(|(name, value)| store(dsl, name, value, tx))
    })?;
    if multihost == Some(false) {
        writer.set_multihost(false)?;
        configuration.set_dirty();
        writer.sync_all()?;
    }
    Ok(())
}

/// Does what the stored properties ask of an open pool.
pub(in crate::pool) fn obey_stored_properties(writer: &GroupWriter) -> Result<()> {
    match stored_property(writer.layers(), MULTIHOST)? {
        Some(value) => writer.set_multihost(value.number() != 0),
        None => Ok(()),
    }
}

/// Enables features with all they depend on, and waits until that is on disk.
///
/// # Errors
/// `NotSupported`: this program cannot write pools that have it.
pub(in crate::pool) fn enable_features(layers: &Layers, configuration: &Arc<Configuration>, features: Vec<Feature>) -> Result<()> {
    let unsupported = features.iter().find(|feature| feature.info().support != Support::ReadWrite);
    if let Some(feature) = unsupported {
        bail!(NotSupported, "feature '{}' is not supported", feature.name());
    }
    let (vdevs, configuration) = (layers.vdevs.clone(), configuration.clone());
    layers.dsl.run_task(8, SpaceCheck::ExtraReserved, |_| Ok(()), move |dsl, tx| {
        for feature in features {
            dsl.meta.features.enable(&dsl.meta.mos, feature, tx)?;
            dsl.record_event("set", &format!("feature@{}=enabled", feature.name()), tx)?;
        }
        if configuration.get().has_vdev_zaps && vdev_zaps::create_for_root(&dsl.meta, &vdevs, tx)? {
            configuration.set_dirty();
        }
        obey_features(dsl)
    })
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
