//! Limits and use of users, groups and projects as properties: `userquota@joe`, `groupused@1000`, `defaultprojectobjquota`.
//!
//! # Theory
//! These are no properties of the DSL: the file system itself has them. What follows the `@` is a number, or a name that this
//! system knows; names are looked up here, where the files are served.

use std::sync::Arc;

use engine::dsl::prop_table::DatasetTypes;
use engine::dsl::{Dataset, Dsl, Identity};
use ondisk::objset::ObjsetType;

use super::set::property_failure;
use crate::control::Setting;
use crate::control::pools::{Failure, FailureKind};
use crate::zpl::{own_quota_of, space_used_by};
use crate::{Error, OwnerKind, Pool, QuotaOf};

/// A limit to be set.
pub(in crate::control::pools) struct Limit {
    kind: OwnerKind,
    of: QuotaOf,
    /// `None`: for those who have none of their own.
    owner: Option<u64>,
    limit: u64,
}

/// What a property of this family is about.
#[derive(Debug, PartialEq, Eq)]
struct Subject<'a> {
    kind: OwnerKind,
    of: QuotaOf,
    is_limit: bool,
    owner: &'a str,
}

fn subject(name: &str) -> Option<Subject<'_>> {
    let (family, owner) = name.split_once('@')?;
    let (kind, rest) = [(OwnerKind::User, "user"), (OwnerKind::Group, "group"), (OwnerKind::Project, "project")]
        .into_iter()
        .find_map(|(kind, word)| Some((kind, family.strip_prefix(word)?)))?;
    let (of, rest) = match rest.strip_prefix("obj") {
        Some(rest) => (QuotaOf::Objects, rest),
        None => (QuotaOf::Bytes, rest),
    };
    let is_limit = match rest {
        "quota" => true,
        "used" => false,
        _ => return None,
    };
    Some(Subject { kind, of, is_limit, owner })
}

fn default_of(name: &str) -> Option<(OwnerKind, QuotaOf)> {
    let all = OwnerKind::ALL.into_iter().flat_map(|kind| [QuotaOf::Bytes, QuotaOf::Objects].map(|of| (kind, of)));
    all.into_iter().find(|(kind, of)| kind.default_entry(*of) == name)
}

/// The number behind a name.
fn id_of(kind: OwnerKind, owner: &str) -> Option<u64> {
    if let Ok(id) = owner.parse::<u32>() {
        return Some(id.into());
    }
    match kind {
        OwnerKind::User => uzers::get_user_by_name(owner).map(|user| user.uid().into()),
        OwnerKind::Group => uzers::get_group_by_name(owner).map(|group| group.gid().into()),
        // Projects have numbers only.
        OwnerKind::Project => None,
    }
}

fn owner_of(name: &str, subject: &Subject<'_>) -> Result<u64, Failure> {
    let unknown = || Failure::with(FailureKind::BadProperty, format!("'{name}' has an invalid user/group name"));
    id_of(subject.kind, subject.owner).ok_or_else(unknown)
}

/// Takes the limits out of settings.
pub(in crate::control::pools) fn split(settings: &[Setting]) -> Result<(Vec<Limit>, Vec<Setting>), Failure> {
    let (mut limits, mut others) = (Vec::new(), Vec::new());
    for setting in settings {
        let name = &setting.name;
        let number = || setting.value.number().ok_or_else(|| Failure::with(FailureKind::BadProperty, format!("'{name}' must be a number")));
        if let Some((kind, of)) = default_of(name) {
            limits.push(Limit { kind, of, owner: None, limit: number()? });
        } else if let Some(subject) = subject(name) {
            if !subject.is_limit {
                return Err(Failure::with(FailureKind::ReadOnlyProperty, format!("'{name}' is readonly")));
            }
            limits.push(Limit { kind: subject.kind, of: subject.of, owner: Some(owner_of(name, &subject)?), limit: number()? });
        } else {
            others.push(setting.clone());
        }
    }
    Ok((limits, others))
}

/// Sets limits in a file system.
pub(in crate::control::pools) fn set(pool: &Arc<Pool>, name: &str, types: DatasetTypes, limits: &[Limit]) -> Result<(), Failure> {
    if limits.is_empty() {
        return Ok(());
    }
    if types != DatasetTypes::FILESYSTEM {
        return Err(Failure::with(FailureKind::PropertyType, "only file systems have quotas of users, groups and projects"));
    }
    let set = || -> Result<(), Error> {
        let filesystem = pool.file_system(name)?;
        for Limit { kind, of, owner, limit } in limits {
            match owner {
                Some(owner) => filesystem.set_quota(*kind, *of, *owner, *limit)?,
                None => filesystem.set_default_quota(*kind, *of, *limit)?,
            }
        }
        filesystem.sync_group()
    };
    set().map_err(|error| property_failure(&error))
}

/// Whether a property of these families is about `who`: that everybody may see.
pub(in crate::control::pools) fn is_about(who: &Identity, property: &str) -> bool {
    let Some(Subject { kind, owner, .. }) = subject(property) else { return false };
    let Some(id) = id_of(kind, owner) else { return false };
    match kind {
        OwnerKind::User => id == who.user,
        OwnerKind::Group => who.groups.contains(&id),
        OwnerKind::Project => false,
    }
}

/// The value of a property of these families. `None`: it is none, or nobody is called so.
pub(in crate::control::pools) fn get(dsl: &Arc<Dsl>, dataset: &Arc<Dataset>, property: &str) -> Result<Option<u64>, Error> {
    let Some(Subject { kind, of, is_limit, owner }) = subject(property) else { return Ok(None) };
    let Some(id) = id_of(kind, owner) else { return Ok(None) };
    let objset = dsl.objset(dataset)?;
    if objset.objset_type() != ObjsetType::FileSystem {
        return Ok(None);
    }
    if is_limit { own_quota_of(&objset, kind, of, id).map(Some) } else { space_used_by(&objset, kind, of, id).map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        let joe = |kind, of, is_limit| Some(Subject { kind, of, is_limit, owner: "joe" });
        assert_eq!(subject("userquota@joe"), joe(OwnerKind::User, QuotaOf::Bytes, true));
        assert_eq!(subject("groupobjused@joe"), joe(OwnerKind::Group, QuotaOf::Objects, false));
        assert_eq!(subject("projectobjquota@joe"), joe(OwnerKind::Project, QuotaOf::Objects, true));
        assert_eq!((subject("userspace@joe"), subject("written@joe"), subject("quota")), (None, None, None));
        assert_eq!(default_of("defaultgroupobjquota"), Some((OwnerKind::Group, QuotaOf::Objects)));
    }

    #[test]
    fn owners_are_known_by_number_and_name() {
        assert_eq!(id_of(OwnerKind::User, "1000"), Some(1000));
        assert_eq!(id_of(OwnerKind::User, "root"), Some(0));
        assert_eq!(id_of(OwnerKind::Project, "root"), None);
        assert_eq!(id_of(OwnerKind::User, "no such user"), None);
    }
}
