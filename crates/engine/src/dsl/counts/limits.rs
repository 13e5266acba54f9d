//! Limits on how many file systems and snapshots a tree may have.
//!
//! # Theory
//! `filesystem_limit` and `snapshot_limit` of a directory count everything below it, and what is made there must fit the limits of all directories
//! above. No limit counts for the superuser. A user that is granted the right to change a limit is not bound by it where that is granted, but by those
//! of the directories above it.
//!
//! Counts are kept from a directory with a limit downwards ([`super::counts_sync`]): where there is none, there are no limits above.
//!
//! # Path
//! the checks of create, clone, snapshot, rename, promote and receive → here

use std::sync::Arc;

use ondisk::dsl::dir_field;
use ondisk::object_type::ObjectType;

use crate::dsl::dsl::Parts;
use crate::dsl::props::delegation::is_granted;
use crate::dsl::props::prop::dir_property;
use crate::dsl::tasks::actor::{Actor, actor};
use crate::dsl::tree::dir::Dir;
use crate::error::{ErrorKind, Result};

/// What is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::dsl) enum Limited {
    /// File systems and volumes.
    FileSystems,
    /// Snapshots.
    Snapshots,
}

impl Limited {
    /// The property with the limit, which is the name of the right to change it, too.
    fn property(self) -> &'static str {
        match self {
            Limited::FileSystems => "filesystem_limit",
            Limited::Snapshots => "snapshot_limit",
        }
    }

    fn count(self) -> &'static str {
        match self {
            Limited::FileSystems => dir_field::FILESYSTEM_COUNT,
            Limited::Snapshots => dir_field::SNAPSHOT_COUNT,
        }
    }
}

/// Whether the user for whom the thread works may have `more` in `dir`. What is below `ancestor` already is counted there and above.
///
/// # Errors
/// `Quota`: no.
#[doc(alias = "dsl_fs_ss_limit_check")]
pub(in crate::dsl) fn check_limits(parts: &Parts, dir: &Arc<Dir>, more: u64, what: Limited, ancestor: Option<&Dir>) -> Result<()> {
    let actor = actor();
    if actor.is_superuser || more == 0 {
        return Ok(());
    }
    for dir in dir.and_above() {
        if ancestor.is_some_and(|ancestor| ancestor.object == dir.object) {
            return Ok(());
        }
        let Some(count) = count_of(parts, &dir, what)? else { return Ok(()) };
        let limit = dir_property(&parts.meta, &dir, what.property(), false)?.map_or(u64::MAX, |(value, _)| value.number());
        if count.saturating_add(more) > limit && !may_change(parts, &actor, &dir, what)? {
            return Err(crate::error::Error::new(ErrorKind::Quota, format!("{}: its {} of {limit} is reached", dir.full_name(), what.property())));
        }
    }
    Ok(())
}

/// Whether the user is granted the right to change the limit of a directory. In a zone that does not count.
#[doc(alias = "dsl_enforce_ds_ss_limits")]
fn may_change(parts: &Parts, actor: &Actor, dir: &Arc<Dir>, what: Limited) -> Result<bool> {
    let zoned = dir_property(&parts.meta, dir, "zoned", false)?.is_some_and(|(value, _)| value.number() != 0);
    Ok(!zoned && is_granted(parts, &actor.identity, &dir.full_name(), what.property())?)
}

/// How many a directory has below it, if that is kept.
pub(in crate::dsl) fn count_of(parts: &Parts, dir: &Dir, what: Limited) -> Result<Option<u64>> {
    let mos = &parts.meta.mos;
    match mos.info(dir.object)?.object_type {
        ObjectType::ZAP_METADATA => mos.zap_u64(dir.object, what.count()),
        _ => Ok(None),
    }
}

/// Where two paths upwards meet.
#[doc(alias = "closest_common_ancestor")]
pub(in crate::dsl) fn common_ancestor(one: &Arc<Dir>, other: &Arc<Dir>) -> Option<Arc<Dir>> {
    one.and_above().find(|dir| other.and_above().any(|above| above.object == dir.object))
}
