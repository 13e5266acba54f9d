//! Encryption roots: the directories whose user's key wraps the master keys of what is at and below them.
//!
//! # Theory
//! The object with a master key names its root, and a clone shares the object of its origin. So when a clone is promoted whose origin is a root by
//! itself, the clone becomes the root, with the place of the user's key, also of all below them that has its key from there: the old file system may be
//! destroyed next, and a root that is no more has no key. The origin may have its key from above instead; then the clone has to be below the same root.
//!
//! A sender may have given a dataset a key of its own, or taken it away, since the last stream. A package says which it has, and the next stream brings the master
//! key as it is wrapped now: the root here changes with that, or no key of a user would unwrap it.
//!
//! # On disk
//! [`ondisk::dsl::crypto_field::ROOT_DIR`]

use std::collections::BTreeSet;
use std::sync::Arc;

use ondisk::dsl::crypto_field;

use crate::dmu::SyncTx;
use crate::dsl::PropertyValue;
use crate::dsl::dataset::Dataset;
use crate::dsl::dsl::Parts;
use crate::dsl::props::prop_sync::{PropertyChange, change_property_sync};
use crate::dsl::tree::dir::Dir;
use crate::error::Result;

const KEY_LOCATION: &str = "keylocation";

/// The encryption root of a directory: its object. `None`: it is not encrypted.
#[doc(alias = "dsl_dir_get_encryption_root_ddobj")]
pub(in crate::dsl) fn root_of(parts: &Parts, dir: &Dir) -> Result<Option<u64>> {
    match dir.crypto_key {
        0 => Ok(None),
        key => parts.meta.mos.zap_u64(key, crypto_field::ROOT_DIR),
    }
}

fn is_clone(parts: &Parts, dir: &Dir) -> bool {
    let origin = dir.phys().origin.get();
    origin != 0 && Some(origin) != parts.tree.origin_snapshot()
}

/// Whether the directory is an encryption root that a clone takes over which is promoted in its place.
fn gives_root(parts: &Parts, origin: &Dir) -> Result<bool> {
    Ok(!is_clone(parts, origin) && root_of(parts, origin)? == Some(origin.object))
}

/// Whether the keys let a clone be promoted in the place of its origin.
#[doc(alias = "dsl_dataset_promote_crypt_check")]
pub(in crate::dsl) fn may_take_place(parts: &Parts, clone: &Dir, origin: &Dir) -> Result<bool> {
    if origin.crypto_key != clone.crypto_key {
        return Ok(false);
    }
    if origin.crypto_key == 0 || is_clone(parts, origin) || gives_root(parts, origin)? {
        return Ok(true);
    }
    let above = |dir: &Dir| dir.parent().map_or(Ok(None), |parent| root_of(parts, &parent));
    let root = above(origin)?;
    Ok(root.is_some() && root == above(clone)?)
}

/// A clone is promoted in the place of `origin`, the head that it was cloned from: it becomes the encryption root, if that was one. Checked before, and called
/// before anything moves.
#[doc(alias = "dsl_dataset_promote_crypt_sync")]
pub(in crate::dsl) fn take_root_sync(parts: &Parts, clone: &Arc<Dataset>, origin: &Arc<Dataset>, tx: &SyncTx<'_>) -> Result<()> {
    if !gives_root(parts, &origin.dir)? {
        return Ok(());
    }
    let location = origin.property(KEY_LOCATION)?.map_or_else(|| PropertyValue::Text("none".to_owned()), |(location, _)| location);
    change_property_sync(parts, clone, KEY_LOCATION, &PropertyChange::Set(location), tx)?;
    change_property_sync(parts, origin, KEY_LOCATION, &PropertyChange::Revert, tx)?;
    move_root_sync(parts, &origin.dir, origin.dir.object, clone.dir.object, tx)
}

/// The key of what was received on top of `head` is wrapped as the sender has it now: with the key of what is above it (`inherits`), or with one of its own, which is
/// at `location`. What is below and follows it has its key from the same place. A clone has that of its origin.
#[doc(alias = "recv_fix_encryption_hierarchy")]
pub(in crate::dsl) fn place_root_sync(parts: &Parts, head: &Arc<Dataset>, inherits: bool, location: Option<&str>, tx: &SyncTx<'_>) -> Result<()> {
    let dir = &head.dir;
    let Some(root) = root_of(parts, dir)?.filter(|_| !is_clone(parts, dir)) else { return Ok(()) };
    let is_root = root == dir.object;
    if inherits {
        let above = dir.parent().map_or(Ok(None), |parent| root_of(parts, &parent))?;
        let Some(above) = above.filter(|above| is_root && *above != root) else { return Ok(()) };
        change_property_sync(parts, head, KEY_LOCATION, &PropertyChange::Revert, tx)?;
        return move_root_sync(parts, dir, root, above, tx);
    }
    if !is_root {
        move_root_sync(parts, dir, root, dir.object, tx)?;
    }
    match location.or_else(|| (!is_root).then_some("prompt")) {
        Some(location) => change_property_sync(parts, head, KEY_LOCATION, &PropertyChange::Set(PropertyValue::Text(location.to_owned())), tx),
        None => Ok(()),
    }
}

/// From a directory on, what has its key from the directory `old` has it from `new`: what is below, and what is below clones.
#[doc(alias = "spa_keystore_change_key_sync_impl")]
fn move_root_sync(parts: &Parts, first: &Arc<Dir>, old: u64, new: u64, tx: &SyncTx<'_>) -> Result<()> {
    let mos = &parts.meta.mos;
    let (mut waiting, mut seen) = (vec![(first.clone(), false)], BTreeSet::new());
    while let Some((dir, is_done)) = waiting.pop() {
        // Hidden ones are clones, for an instant. In a damaged pool one may be in several places.
        if dir.name().starts_with(['$', '%']) || !seen.insert((dir.object, is_done)) {
            continue;
        }
        // The key object of a clone is its origin's, and is changed with that one; what is below the clone has others.
        if !is_done {
            if is_clone(parts, &dir) || root_of(parts, &dir)? != Some(old) {
                continue;
            }
            mos.zap_set_u64(dir.crypto_key, crypto_field::ROOT_DIR, new, tx)?;
        }
        waiting.extend(parts.tree.children(&dir)?.into_iter().map(|(_, child)| (child, false)));
        if dir.phys().clones.get() != 0 {
            for (_, clone) in mos.zap_entries(dir.phys().clones.get())? {
                waiting.push((parts.tree.dataset(clone.first())?.dir.clone(), true));
            }
        }
    }
    Ok(())
}
