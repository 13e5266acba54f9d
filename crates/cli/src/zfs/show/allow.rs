//! `zfs allow DATASET`: what is granted there, and above.

use std::collections::{BTreeMap, BTreeSet};

use tarnfs::control::{DatasetGrants, DatasetKinds, Grant, Grantee, Reach, Request};

use crate::session::{Outcome, Session, say};
use crate::text::owners::{name_of_group, name_of_user};
use crate::zfs::datasets;

/// So wide is the line above what a dataset grants.
const LINE_WIDTH: usize = 70;

/// Shows what a dataset and those above it grant.
pub(in crate::zfs) fn show(session: &mut Session<'_>, name: &str) -> Outcome {
    datasets::open(session, name, DatasetKinds::HEADS, &[])?;
    let grants = session.grants(Request::DatasetGrants(DatasetGrants { name: name.to_owned() }));
    let grants = grants.map_err(|failure| session.failed(format_args!("cannot get permissions on '{name}'"), &failure))?;
    for of in grants.chunk_by(|a, b| a.dataset == b.dataset) {
        print(session, of);
    }
    Ok(0)
}

fn print(session: &mut Session<'_>, grants: &[Grant]) {
    let line = format!("---- Permissions on {} ", grants[0].dataset);
    say!(session, "{line:-<LINE_WIDTH$}");
    let mut part = |title: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            say!(session, "{title}:");
            lines.iter().for_each(|line| say!(session, "\t{line}"));
        }
    };
    let list = |grant: &Grant| grant.permissions.join(",");
    let sets = grants
        .iter()
        .filter_map(|grant| if let Grantee::Set(name) = &grant.to { Some(format!("{name} {}", list(grant))) } else { None });
    part("Permission sets", sets.collect());
    part("Create time permissions", grants.iter().filter(|grant| grant.to == Grantee::Creator).map(list).collect());
    let reaches = reaches(grants);
    part("Local permissions", lines(&reaches, &[Reach::Local]));
    part("Descendent permissions", lines(&reaches, &[Reach::Descendent]));
    part("Local+Descendent permissions", lines(&reaches, &[Reach::Local, Reach::Descendent]));
}

/// A grantee as it is ordered (users, groups, everyone; numbers as text, as in OpenZFS), and as it is shown.
type Who = (u8, String, String);

fn who(to: &Grantee) -> Option<Who> {
    let named = |name: Option<String>, id: u64| name.unwrap_or_else(|| format!("(unknown: {id})"));
    match to {
        Grantee::User(user) => Some((0, user.to_string(), format!("user {}", named(name_of_user(*user), *user)))),
        Grantee::Group(group) => Some((1, group.to_string(), format!("group {}", named(name_of_group(*group), *group)))),
        Grantee::Everyone => Some((2, String::new(), "everyone".to_owned())),
        Grantee::Set(_) | Grantee::Creator => None,
    }
}

/// Where each permission of each grantee is so.
fn reaches(grants: &[Grant]) -> BTreeMap<Who, BTreeMap<&str, BTreeSet<Reach>>> {
    let mut found: BTreeMap<Who, BTreeMap<&str, BTreeSet<Reach>>> = BTreeMap::new();
    for grant in grants {
        let Some(who) = who(&grant.to) else { continue };
        let permissions = found.entry(who).or_default();
        for permission in &grant.permissions {
            permissions.entry(permission).or_default().insert(grant.reach);
        }
    }
    found
}

/// What is granted with just this reach: a line for each grantee.
fn lines(found: &BTreeMap<Who, BTreeMap<&str, BTreeSet<Reach>>>, reach: &[Reach]) -> Vec<String> {
    let wanted: BTreeSet<Reach> = reach.iter().copied().collect();
    let line = |((_, _, shown), permissions): (&Who, &BTreeMap<&str, BTreeSet<Reach>>)| {
        let here: Vec<&str> = permissions.iter().filter(|(_, reach)| **reach == wanted).map(|(permission, _)| *permission).collect();
        (!here.is_empty()).then(|| format!("{shown} {}", here.join(",")))
    };
    found.iter().filter_map(line).collect()
}
