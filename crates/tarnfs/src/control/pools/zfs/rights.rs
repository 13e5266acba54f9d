//! `zfs holds`, as far as it looks, `zfs allow` and `zfs unallow`.
//!
//! # On disk
//! A snapshot's holds are a ZAP of tags, each with a time. Grants: [`ondisk::delegation`].

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::dsl::names::DatasetName;
use engine::dsl::{Dir, Dsl, GrantChange};
use engine::error::ErrorKind;
use ondisk::delegation::{self, GrantKey, SET_NAME_BYTES_MAX};

use crate::control::pools::grants::denied;
use crate::control::permission::{Asked, Of, stored_name};
use crate::control::pools::{Failure, FailureKind, Pools};
use crate::control::{DatasetAllow, DatasetGrants, Grant, GrantEdit, Grantee, Hold, Reach, SnapshotHolds};

impl Pools {
    pub(in crate::control::pools) fn holds(&self, wanted: &SnapshotHolds) -> Result<Vec<Hold>, Failure> {
        if !wanted.name.contains('@') {
            return Err(Failure::with(FailureKind::BadType, format!("'{}' is not a snapshot", wanted.name)));
        }
        let dsl = &self.pool_of(&wanted.name)?.pool.engine().dsl;
        let read = || -> Result<Vec<Hold>, crate::Error> {
            let holds = dsl.open_dataset(&wanted.name)?.phys().user_holds.get();
            let entries = if holds == 0 { Vec::new() } else { dsl.meta.mos.zap_entries(holds)? };
            Ok(entries.into_iter().map(|(tag, since)| Hold { tag, since: since.integers().next().unwrap_or(0) }).collect())
        };
        read().map_err(|error| Failure::about_dataset(&error))
    }

    pub(in crate::control::pools) fn grants(&self, wanted: &DatasetGrants) -> Result<Vec<Grant>, Failure> {
        let dsl = &self.pool_of(&wanted.name)?.pool.engine().dsl;
        let read = || -> Result<Vec<Grant>, crate::Error> {
            let mut grants = Vec::new();
            let mut dir = Some(Arc::clone(&dsl.open_dataset(&wanted.name)?.dir));
            while let Some(of) = dir {
                grants.extend(grants_of(dsl, &of)?);
                dir = of.parent();
            }
            Ok(grants)
        };
        read().map_err(|error| Failure::about_dataset(&error))
    }

    /// `zfs allow` and `zfs unallow`
    pub(in crate::control::pools) fn change_grants(&mut self, allow: &DatasetAllow) -> Result<(), Failure> {
        if allow.name.contains(['@', '#']) {
            return Err(Failure::new(FailureKind::BadType));
        }
        let changes = stored(allow)?;
        self.check_hands_on(allow, &changes)?;
        let dsl = &self.pool_of(&allow.name)?.pool.engine().dsl;
        dsl.change_grants(&allow.name, changes, allow.taken).map_err(|error| match error.kind() {
            ErrorKind::NotSupported => Failure::with(FailureKind::Unsupported, error.message()),
            _ => Failure::about_dataset(&error),
        })
    }

    /// Users that are allowed to hand on grants may hand on what is granted to them, and take from nobody but themselves.
    #[doc(alias = "dsl_deleg_can_allow")]
    fn check_hands_on(&self, allow: &DatasetAllow, changes: &[GrantChange]) -> Result<(), Failure> {
        if self.caller.is_superuser {
            return Ok(());
        }
        let asked = |permission: &str| Asked { permission: permission.to_owned(), of: Of::Dataset(allow.name.clone()) };
        self.check_granted(&asked("allow"))?;
        for GrantChange { key, permissions } in changes {
            if allow.taken {
                if key.to != delegation::Grantee::User(self.caller.identity.user) {
                    return Err(denied());
                }
                continue;
            }
            for permission in permissions {
                if permission == "allow" {
                    return Err(denied());
                }
                self.check_granted(&asked(permission))?;
            }
        }
        Ok(())
    }
}

/// What one directory grants, in the order in which it is shown. What cannot be understood is passed over.
fn grants_of(dsl: &Dsl, dir: &Dir) -> Result<Vec<Grant>, crate::Error> {
    let mut found: BTreeMap<(Reach, Grantee), Vec<String>> = BTreeMap::new();
    for (key, permissions) in dsl.grants_of(dir)? {
        found.entry((shown_reach(key.reach), shown_grantee(key.to))).or_default().extend(permissions);
    }
    let dataset = dir.full_name();
    let grant = |((reach, to), mut permissions): ((Reach, Grantee), Vec<String>)| {
        permissions.sort();
        Grant { dataset: dataset.clone(), to, reach, permissions }
    };
    Ok(found.into_iter().map(grant).collect())
}

fn shown_reach(reach: delegation::Reach) -> Reach {
    match reach {
        delegation::Reach::Local => Reach::Local,
        delegation::Reach::Descendent => Reach::Descendent,
        delegation::Reach::Unsaid => Reach::Unsaid,
    }
}

fn shown_grantee(to: delegation::Grantee) -> Grantee {
    match to {
        delegation::Grantee::Set(name) => Grantee::Set(name),
        delegation::Grantee::Creator => Grantee::Creator,
        delegation::Grantee::User(user) => Grantee::User(user),
        delegation::Grantee::Group(group) => Grantee::Group(group),
        delegation::Grantee::Everyone => Grantee::Everyone,
    }
}

/// The key of a grant; permissions and sets of them have keys of their own.
fn key(edit: &GrantEdit, of_sets: bool) -> GrantKey {
    let reach = match edit.reach {
        Reach::Local => delegation::Reach::Local,
        Reach::Descendent => delegation::Reach::Descendent,
        Reach::Unsaid => delegation::Reach::Unsaid,
    };
    let to = match &edit.to {
        Grantee::Set(name) => delegation::Grantee::Set(name.clone()),
        Grantee::Creator => delegation::Grantee::Creator,
        Grantee::User(user) => delegation::Grantee::User(*user),
        Grantee::Group(group) => delegation::Grantee::Group(*group),
        Grantee::Everyone => delegation::Grantee::Everyone,
    };
    GrantKey { to, reach, of_sets }
}

/// Is it the name of a set of permissions?
fn is_set_name(name: &str) -> bool {
    name.len() <= SET_NAME_BYTES_MAX && name.strip_prefix('@').is_some_and(|rest| DatasetName::parse(rest).is_ok() && !rest.contains('/'))
}

/// What is granted, as it is stored. OpenZFS has one word for all that is wrong with it.
fn stored(allow: &DatasetAllow) -> Result<Vec<GrantChange>, Failure> {
    let wrong = || Failure::new(FailureKind::BadType);
    let mut changes = Vec::new();
    for edit in &allow.changes {
        let says_where = matches!(edit.to, Grantee::Set(_) | Grantee::Creator) == (edit.reach == Reach::Unsaid);
        if !says_where || matches!(&edit.to, Grantee::Set(name) if !is_set_name(name)) {
            return Err(wrong());
        }
        let (sets, permissions): (Vec<&String>, Vec<&String>) = edit.permissions.iter().partition(|name| name.starts_with('@'));
        if !sets.iter().all(|name| is_set_name(name)) {
            return Err(wrong());
        }
        let permissions = permissions.into_iter().map(|name| stored_name(name).map(str::to_owned)).collect::<Option<Vec<_>>>().ok_or_else(wrong)?;
        let sets: Vec<String> = sets.into_iter().cloned().collect();
        match (edit.permissions.is_empty(), allow.taken) {
            (true, false) => return Err(wrong()),
            (true, true) => changes.extend([false, true].map(|of_sets| GrantChange { key: key(edit, of_sets), permissions: Vec::new() })),
            (false, _) => {
                let of_each = [(false, permissions), (true, sets)].into_iter().filter(|(_, names)| !names.is_empty());
                changes.extend(of_each.map(|(of_sets, permissions)| GrantChange { key: key(edit, of_sets), permissions }));
            }
        }
    }
    if changes.is_empty() { Err(wrong()) } else { Ok(changes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(to: Grantee, reach: Reach, permissions: &[&str], taken: bool) -> Result<String, FailureKind> {
        let permissions = permissions.iter().map(|name| (*name).to_owned()).collect();
        let allow = DatasetAllow { name: "p".into(), taken, changes: vec![GrantEdit { to, reach, permissions }] };
        let words = |change: GrantChange| format!("{} {}", change.key.name(), change.permissions.join(","));
        stored(&allow).map(|changes| changes.into_iter().map(words).collect::<Vec<_>>().join("; ")).map_err(|failure| failure.kind)
    }

    #[test]
    fn grants_are_stored_as_openzfs_does() {
        let user = || Grantee::User(7);
        assert_eq!(edit(user(), Reach::Local, &["create", "@s", "compress"], false).unwrap(), "ul$7 create,compression; Ul$7 @s");
        assert_eq!(edit(user(), Reach::Descendent, &[], true).unwrap(), "ud$7 ; Ud$7 ");
        assert_eq!(edit(Grantee::Set("@s".into()), Reach::Unsaid, &["@t"], false).unwrap(), "S-$@s @t");
        let bad = Err(FailureKind::BadType);
        assert_eq!(edit(user(), Reach::Local, &[], false), bad);
        assert_eq!(edit(user(), Reach::Unsaid, &["create"], false), bad);
        assert_eq!(edit(user(), Reach::Local, &["scrub"], false), bad);
        assert_eq!(edit(Grantee::Set("s".into()), Reach::Unsaid, &["create"], false), bad);
        assert_eq!(edit(Grantee::Set(format!("@{}", "s".repeat(63))), Reach::Unsaid, &["create"], false), bad);
        assert_eq!(edit(user(), Reach::Local, &["@a/b"], false), bad);
    }
}
