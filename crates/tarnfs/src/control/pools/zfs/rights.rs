//! `zfs holds` and `zfs allow`, as far as they look.
//!
//! # On disk
//! A snapshot's holds are a ZAP of tags, each with a time. A directory's grants are a ZAP whose keys are a letter for the kind of grantee
//! (in capitals: it names sets of permissions), one for the reach, `$`, and the grantee; each names a ZAP whose keys are the permissions.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::dsl::{Dir, Dsl};

use crate::control::pools::{Failure, FailureKind, Pools};
use crate::control::{DatasetGrants, Grant, Grantee, Hold, Reach, SnapshotHolds};

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
}

/// What one directory grants, in the order in which it is shown. What cannot be understood is passed over.
fn grants_of(dsl: &Dsl, dir: &Dir) -> Result<Vec<Grant>, crate::Error> {
    let delegations = dir.phys().delegations.get();
    let mut found: BTreeMap<(Reach, Grantee), Vec<String>> = BTreeMap::new();
    let entries = if delegations == 0 { Vec::new() } else { dsl.meta.mos.zap_entries(delegations)? };
    for (key, list) in entries {
        let (Some(who), Some(list)) = (grantee(&key), list.integers().next()) else { continue };
        let permissions = dsl.meta.mos.zap_entries(list)?.into_iter().map(|(permission, _)| permission);
        found.entry(who).or_default().extend(permissions);
    }
    let dataset = dir.full_name();
    let grant = |((reach, to), mut permissions): ((Reach, Grantee), Vec<String>)| {
        permissions.sort();
        Grant { dataset: dataset.clone(), to, reach, permissions }
    };
    Ok(found.into_iter().map(grant).collect())
}

/// `ul$1000`
fn grantee(key: &str) -> Option<(Reach, Grantee)> {
    let (letters, who) = key.split_once('$')?;
    let mut letters = letters.chars();
    let kind = letters.next()?.to_ascii_lowercase();
    let reach = match letters.next()? {
        'l' => Reach::Local,
        'd' => Reach::Descendent,
        _ => Reach::Unsaid,
    };
    let to = match kind {
        'u' => Grantee::User(who.parse().ok()?),
        'g' => Grantee::Group(who.parse().ok()?),
        'e' => Grantee::Everyone,
        's' => Grantee::Set(who.to_owned()),
        'c' => Grantee::Creator,
        _ => return None,
    };
    Some((reach, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_say_to_whom_and_where() {
        assert_eq!(grantee("ul$1000"), Some((Reach::Local, Grantee::User(1000))));
        assert_eq!(grantee("Gd$7"), Some((Reach::Descendent, Grantee::Group(7))));
        assert_eq!(grantee("s-$@basic"), Some((Reach::Unsaid, Grantee::Set("@basic".to_owned()))));
        assert_eq!(
            (grantee("c-$"), grantee("el$")),
            (Some((Reach::Unsaid, Grantee::Creator)), Some((Reach::Local, Grantee::Everyone)))
        );
        assert_eq!((grantee(""), grantee("u$1"), grantee("ul$x"), grantee("zz$1")), (None, None, None, None));
    }
}
