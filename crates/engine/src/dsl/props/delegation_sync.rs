//! Changing what a directory grants.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ondisk::delegation::{GrantKey, Grantee, Reach};
use ondisk::object_type::ObjectType;

use super::delegation::list_of;
use crate::bail;
use crate::dmu::SyncTx;
use crate::dsl::dsl::Parts;
use crate::dsl::mos::Mos;
use crate::dsl::tasks::actor::actor;
use crate::dsl::tree::dir::Dir;
use crate::error::{ErrorKind, Result, Within};
use crate::zap::{Normalization, Zap};

/// The longest name of a permission.
const NAME_BYTES_MAX: usize = 255;
/// The first version of pools that has grants.
const VERSION_OF_GRANTS: u64 = 8;

/// A change of what is granted under one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantChange {
    /// To whom, and where.
    pub key: GrantKey,
    /// What. When it is taken away, nothing means all.
    pub permissions: Vec<String>,
}

/// Whether a dataset can have these grants. `taken`: they are to be taken away.
pub(in crate::dsl) fn check_grants(parts: &Parts, name: &str, changes: &[GrantChange], taken: bool) -> Result<()> {
    for change in changes {
        let names = change.permissions.iter().chain([&change.key.name()]).map(String::len).max();
        if names > Some(NAME_BYTES_MAX) {
            bail!(NameTooLong, "{name}: the name of a permission is too long");
        }
        if change.permissions.iter().any(|permission| permission.is_empty() || permission.contains('\0')) {
            bail!(Invalid, "{name}: it is no name of a permission");
        }
    }
    if parts.meta.version() < VERSION_OF_GRANTS {
        bail!(NotSupported, "pool must be upgraded");
    }
    let head = parts.tree.dataset_by_name(name)?;
    if head.is_snapshot {
        bail!(Invalid, "{name}: it is a snapshot");
    }
    if taken { Ok(()) } else { check_room(&parts.meta.mos, head.dir.phys().delegations.get(), changes).within(|| name) }
}

/// Whether the dictionaries have room for grants, all together, those that are made for them too.
fn check_room(mos: &Mos, delegations: u64, changes: &[GrantChange]) -> Result<()> {
    let mut by_key: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for change in changes {
        by_key.entry(change.key.name()).or_default().extend(change.permissions.iter().map(String::as_str));
    }
    let mut new_keys = Vec::new();
    for (key, permissions) in &by_key {
        let permissions: Vec<&str> = permissions.iter().copied().collect();
        let list = if delegations == 0 { None } else { mos.zap_u64(delegations, key)? };
        match list {
            Some(list) => mos.zap(list)?.check_room(&permissions)?,
            None => {
                new_keys.push(key.as_str());
                // Names of one length that share a hash do so with whatever salt.
                Zap::check_room_in_new(&permissions, 1, Normalization::NONE)?;
            }
        }
    }
    if delegations == 0 { Zap::check_room_in_new(&new_keys, 1, Normalization::NONE) } else { mos.zap(delegations)?.check_room(&new_keys) }
}

/// The dictionary of a directory, made where there is none.
fn dictionary_of(parts: &Parts, dir: &Arc<Dir>, tx: &SyncTx<'_>) -> Result<u64> {
    match dir.phys().delegations.get() {
        0 => {
            let made = parts.meta.mos.zap_create(ObjectType::DSL_PERMS, tx)?;
            parts.ledger.change_dir(dir, |state| state.phys_mut().delegations = made.into());
            Ok(made)
        }
        there => Ok(there),
    }
}

/// Adds permissions under a key.
fn add(parts: &Parts, dir: &Arc<Dir>, key: &GrantKey, permissions: &[String], tx: &SyncTx<'_>) -> Result<()> {
    let mos = &parts.meta.mos;
    let delegations = dictionary_of(parts, dir, tx)?;
    let list = match list_of(mos, delegations, key)? {
        Some(list) => list,
        None => {
            let made = mos.zap_create(ObjectType::DSL_PERMS, tx)?;
            mos.zap_add_u64(delegations, &key.name(), made, tx)?;
            made
        }
    };
    permissions.iter().try_for_each(|permission| mos.zap_set_u64(list, permission, 0, tx))
}

/// Grants what `changes` say. Checked before.
pub(in crate::dsl) fn grant_sync(parts: &Parts, name: &str, changes: &[GrantChange], tx: &SyncTx<'_>) -> Result<()> {
    let dir = parts.tree.dir_by_name(name)?;
    let head = parts.tree.dataset(dir.phys().head_dataset.get())?;
    for change in changes {
        add(parts, &dir, &change.key, &change.permissions, tx)?;
        for permission in &change.permissions {
            parts.record_dataset_event(&head, "permission update", &format!("{} {permission}", change.key.name()), tx)?;
        }
    }
    Ok(())
}

/// Takes away what `changes` say. Checked before.
pub(in crate::dsl) fn ungrant_sync(parts: &Parts, name: &str, changes: &[GrantChange], tx: &SyncTx<'_>) -> Result<()> {
    let mos = &parts.meta.mos;
    let dir = parts.tree.dir_by_name(name)?;
    let head = parts.tree.dataset(dir.phys().head_dataset.get())?;
    let delegations = dir.phys().delegations.get();
    if delegations == 0 {
        return Ok(());
    }
    for GrantChange { key, permissions } in changes {
        let list = list_of(mos, delegations, key)?;
        if permissions.is_empty() {
            if let Some(list) = list {
                mos.zap_remove(delegations, &key.name(), tx)?;
                mos.free(list, tx)?;
            }
            parts.record_dataset_event(&head, "permission who remove", &key.name(), tx)?;
            continue;
        }
        let Some(list) = list else { continue };
        for permission in permissions {
            mos.zap_remove(list, permission, tx)?;
            parts.record_dataset_event(&head, "permission remove", &format!("{} {permission}", key.name()), tx)?;
        }
        if mos.zap_count(list)? == 0 {
            mos.zap_remove(delegations, &key.name(), tx)?;
            mos.free(list, tx)?;
        }
    }
    Ok(())
}

/// Grants to the creator of a new dataset, on it, what the directories above grant to creators.
#[doc(alias = "dsl_deleg_set_create_perms")]
pub(in crate::dsl) fn copy_creation_grants(parts: &Parts, dir: &Arc<Dir>, tx: &SyncTx<'_>) -> Result<()> {
    let mos = &parts.meta.mos;
    for above in dir.and_above().skip(1) {
        let delegations = above.phys().delegations.get();
        if delegations == 0 {
            continue;
        }
        for of_sets in [false, true] {
            let from = GrantKey { to: Grantee::Creator, reach: Reach::Unsaid, of_sets };
            let Some(list) = list_of(mos, delegations, &from)? else { continue };
            let permissions: Vec<String> = mos.zap_entries(list)?.into_iter().map(|(permission, _)| permission).collect();
            let key = GrantKey { to: Grantee::User(actor().identity.user), reach: Reach::Local, of_sets };
            let copied = GrantChange { key, permissions };
            match check_room(mos, dir.phys().delegations.get(), std::slice::from_ref(&copied)) {
                Ok(()) => add(parts, dir, &copied.key, &copied.permissions, tx)?,
                // Each directory above has room for its own, but not one list for those of all: the creator is granted less.
                Err(error) if error.kind() == ErrorKind::NoSpace => {
                    tracing::warn!("{}: it has no room for what {} grants to creators: {error}", dir.full_name(), above.full_name());
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}
