//! The objects with the wrapped master keys of encrypted datasets.
//!
//! # Theory
//! A directory that is encrypted names such an object in its own ZAP; clones share that of their origin, and it counts them. Which key of a user
//! wraps it is a matter of the *encryption root*, a directory: what is received raw is its own.
//!
//! # On disk
//! [`ondisk::dsl::crypto_field`]

use ondisk::dsl::{crypto_field, dir_field};
use ondisk::object_type::ObjectType;

use crate::dmu::SyncTx;
use crate::dsl::dsl::Parts;
use super::wrapped_key::WrappedKey;
use crate::error::Result;

/// Gives a new directory a key. It is wrapped with the user's key that wraps `above`, or (0) with one of its own.
#[doc(alias = "dsl_crypto_recv_raw_key_sync")]
pub(in crate::dsl) fn create_key_sync(parts: &Parts, dir: u64, key: &WrappedKey, above: u64, tx: &SyncTx<'_>) -> Result<()> {
    let mos = &parts.meta.mos;
    let root = if above == 0 { dir } else { mos.zap_u64(above, crypto_field::ROOT_DIR)?.unwrap_or(dir) };
    let object = mos.zap_create(ObjectType::ZAP_METADATA, tx)?;
    mos.zap_add_u64(object, crypto_field::REFERENCES, 1, tx)?;
    mos.zap_add_u64(object, "DSL_CRYPTO_VERSION", key.version, tx)?;
    mos.zap_add_u64(object, crypto_field::ROOT_DIR, root, tx)?;
    store_key_sync(parts, object, key, tx)?;
    parts.meta.zapify(dir, tx)?;
    mos.zap_add_u64(dir, dir_field::CRYPTO_KEY, object, tx)
}

/// The key was wrapped anew, perhaps, since it was received.
pub(in crate::dsl) fn store_key_sync(parts: &Parts, object: u64, key: &WrappedKey, tx: &SyncTx<'_>) -> Result<()> {
    let mos = &parts.meta.mos;
    mos.zap_set_u64(object, crypto_field::SUITE, key.suite, tx)?;
    mos.zap_set_u64(object, crypto_field::GUID, key.guid, tx)?;
    for (name, bytes) in &key.parts {
        mos.zap_set_bytes(object, name, bytes, tx)?;
    }
    key.numbers.iter().try_for_each(|(name, number)| mos.zap_set_u64(object, name, *number, tx))
}

/// A clone's directory gets the key of its origin.
#[doc(alias = "dsl_crypto_key_clone_sync")]
pub(in crate::dsl) fn share_key_sync(parts: &Parts, dir: u64, key: u64, tx: &SyncTx<'_>) -> Result<()> {
    let mos = &parts.meta.mos;
    let users = mos.zap_u64(key, crypto_field::REFERENCES)?.unwrap_or(1);
    mos.zap_set_u64(key, crypto_field::REFERENCES, users + 1, tx)?;
    parts.meta.zapify(dir, tx)?;
    mos.zap_add_u64(dir, dir_field::CRYPTO_KEY, key, tx)
}
