//! Upgrading a pool from before feature flags.
//!
//! # Theory
//! From version 26 on the structures of the DSL are those of today: what the later versions and version 5000 need besides is
//! made here, in the one group whose uberblock has the new version. Older pools would need an origin for every head and
//! deadlists of another kind; they are refused by name.
//!
//! # On disk
//! The ZAPs of the features, empty, and the salt of salted checksums. The version is in the uberblock, the labels and the
//! configuration.

use std::sync::Arc;

use ondisk::feature::Feature;

use super::configuration::Configuration;
use super::{VERSION_BEFORE_FEATURES, VERSION_FEATURES};
use crate::bail;
use crate::dmu::ObjsetSettings;
use crate::dsl::meta::key;
use crate::dsl::{Dsl, SpaceCheck};
use crate::error::Result;
use crate::pool::layers::Layers;
use crate::pool::open::create::create_salt;
use crate::pool::open::open::set_block_features;

/// The first version whose deadlists and origins are those of today.
const VERSION_OF_TODAYS_DSL: u64 = 26;

/// Raises the version, and waits until that is on disk. Features are not enabled yet (`enable_features`).
///
/// # Errors
/// `NotSupported`: the pool is older than what this program can convert, or there is no such version.
#[doc(alias = "spa_sync_version")]
pub(in crate::pool) fn raise_version(layers: &Layers, configuration: &Arc<Configuration>, version: u64) -> Result<()> {
    let now = configuration.get().version;
    if version <= now {
        return Ok(());
    }
    if now < VERSION_OF_TODAYS_DSL {
        let name = configuration.name();
        bail!(NotSupported, "pool {name} has version {now}; pools older than version {VERSION_OF_TODAYS_DSL} are upgraded by OpenZFS only");
    }
    if version > VERSION_BEFORE_FEATURES && version != VERSION_FEATURES {
        bail!(NotSupported, "there is no version {version}");
    }
    let (configuration, name) = (configuration.clone(), configuration.name());
    // Looked at again in the sync thread: what is made here must not be made twice.
    let check = move |dsl: &Arc<Dsl>| -> Result<()> {
        if dsl.meta.version() != now {
            bail!(Busy, "pool {name}: it is being upgraded by somebody else");
        }
        Ok(())
    };
    layers.dsl.run_task(6, SpaceCheck::Reserved, check, move |dsl, tx| {
        let mos = &dsl.meta.mos;
        if version == VERSION_FEATURES {
            dsl.meta.features.create_objects(mos, tx)?;
            if !mos.zap_contains(key::DIRECTORY, key::CHECKSUM_SALT)? {
                create_salt(dsl, tx)?;
            }
        }
        dsl.meta.set_version(version);
        configuration.change_on_labels(|config| config.version = version);
        dsl.record_event("set", &format!("version={version}"), tx)
    })
}

/// Features were enabled: blocks are written as they allow from now on. In the same group, since a hole that is made later
/// without a birth would count as one from before `hole_birth`, and be missed by incremental streams.
pub(in crate::pool) fn obey_features(dsl: &Dsl) -> Result<()> {
    let (meta, context) = (&dsl.meta, &dsl.meta.context);
    meta.mos.0.set_settings(ObjsetSettings::mos(meta.features.is_enabled(Feature::Lz4Compress)));
    set_block_features(context, meta)
}
