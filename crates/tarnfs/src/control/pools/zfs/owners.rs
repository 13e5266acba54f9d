//! `zfs userspace`, `groupspace`, `projectspace`: what each owner has in a file system, and may have.
//!
//! # On disk
//! What is used: the three ZAPs of the object set with fixed numbers, by the owner's number in hexadecimal; objects with `obj-`
//! before it. Quotas: ZAPs that the master node names, by the same numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::dmu::{Objset, USED_BY_GROUP, USED_BY_PROJECT, USED_BY_USER};
use engine::error::{ErrorKind, Result};
use engine::zap::Zap;
use ondisk::objset::ObjsetType;
use ondisk::znode::MASTER_NODE;

use crate::control::pools::{Failure, FailureKind, Pools};
use crate::control::{OwnerKind, OwnerSpace, OwnerUse};
use crate::zpl::{self, QuotaOf};

/// Names the number of objects.
const OBJECTS_PREFIX: &str = "obj-";
/// Owners of a reply, at most.
const OWNERS_MAX: usize = 1 << 20;

impl Pools {
    pub(in crate::control::pools) fn space_by_owner(&self, wanted: &OwnerSpace) -> std::result::Result<Vec<OwnerUse>, Failure> {
        let dsl = &self.pool_of(&wanted.name)?.pool.engine().dsl;
        let failed = |error: crate::Error| Failure::about_dataset(&error);
        let dataset = dsl.open_dataset(&wanted.name).map_err(failed)?;
        let objset = dsl.objset(&dataset).map_err(failed)?;
        if objset.objset_type() != ObjsetType::FileSystem {
            return Err(Failure::with(FailureKind::BadType, "operation is only applicable to filesystems and their snapshots"));
        }
        owners(&objset, wanted.kind).map_err(failed)
    }
}

/// All owners of something, or with a quota.
fn owners(objset: &Arc<Objset>, kind: OwnerKind) -> Result<Vec<OwnerUse>> {
    let (used, kind) = match kind {
        OwnerKind::User => (USED_BY_USER, zpl::OwnerKind::User),
        OwnerKind::Group => (USED_BY_GROUP, zpl::OwnerKind::Group),
        OwnerKind::Project => (USED_BY_PROJECT, zpl::OwnerKind::Project),
    };
    let mut found: BTreeMap<String, OwnerUse> = BTreeMap::new();
    for (name, number) in numbers(objset, used)? {
        let (owner, is_objects) = match name.strip_prefix(OBJECTS_PREFIX) {
            Some(owner) => (owner, true),
            None => (name.as_str(), false),
        };
        let of = found.entry(owner.to_owned()).or_default();
        *if is_objects { &mut of.objects } else { &mut of.used } = Some(number);
    }
    let master = Zap::open(objset, MASTER_NODE)?;
    for limit in [QuotaOf::Bytes, QuotaOf::Objects] {
        let field = |of: &mut OwnerUse, quota| *if limit == QuotaOf::Objects { &mut of.object_quota } else { &mut of.quota } = Some(quota);
        // An owner has the default, if there is one, until it has a limit of its own.
        if let Some(default) = master.lookup_u64(kind.default_entry(limit))?.filter(|default| *default != 0) {
            found.values_mut().for_each(|of| field(of, default));
        }
        let Some(quotas) = master.lookup_u64(kind.quota_entry(limit))? else { continue };
        for (owner, quota) in numbers(objset, quotas)? {
            field(found.entry(owner).or_default(), quota);
        }
    }
    Ok(found.into_iter().take(OWNERS_MAX).map(|(name, of)| OwnerUse { owner: decimal(&name), ..of }).collect())
}

/// All entries of a ZAP that may not be there.
fn numbers(objset: &Arc<Objset>, object: u64) -> Result<Vec<(String, u64)>> {
    match Zap::open(objset, object) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
        Ok(zap) => Ok(zap.entries()?.into_iter().map(|entry| (entry.text(), entry.value.first())).collect()),
    }
}

/// An owner's number as people write it. The upper half of an identity of Windows is the number of its domain.
fn decimal(name: &str) -> String {
    match u64::from_str_radix(name, 16) {
        Ok(number) if number >> 32 == 0 => number.to_string(),
        Ok(number) => format!("{}-{}", number >> 32, number & 0xffff_ffff),
        Err(_) => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_written_in_decimal() {
        assert_eq!((decimal("0"), decimal("3e8"), decimal("1000003e8")), ("0".into(), "1000".into(), "1-1000".into()));
        assert_eq!(decimal("nobody"), "nobody");
    }
}
