//! `zfs allow`, as far as it shows what is granted.

use tarnfs::control::{DatasetGrants, DatasetKinds, Grant, Grantee, Reach, Request};

use crate::session::{Outcome, Session, complain, say};
use crate::text::getopt::Options;
use crate::text::owners::{name_of_group, name_of_user};
use crate::zfs::datasets;

/// So wide is the line above what a dataset grants.
const LINE_WIDTH: usize = 70;

pub(in crate::zfs) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let mut options = Options::new(words, "ldugecsh", &[]);
    let grants = options.by_ref().any(|option| option != Ok(('h', None)));
    let operands = options.operands();
    let [name] = operands.as_slice() else {
        if operands.is_empty() {
            return Err(session.misuse("missing dataset argument"));
        }
        complain!(
            session,
            "zfs allow: granting permissions is not yet supported by this version of tarn; 'zfs allow DATASET' shows those that there are"
        );
        return Ok(1);
    };
    if grants {
        return Err(session.misuse("wrong number of parameters"));
    }
    datasets::open(session, name, DatasetKinds::DATASETS, &[])?;
    let grants = session.grants(Request::DatasetGrants(DatasetGrants { name: name.clone() }));
    let grants =
        grants.map_err(|failure| session.failed(format_args!("cannot retrieve the permissions of '{name}'"), &failure))?;
    for of in grants.chunk_by(|a, b| a.dataset == b.dataset) {
        print(session, of);
    }
    Ok(0)
}

fn print(session: &mut Session<'_>, grants: &[Grant]) {
    let line = format!("---- Permissions on {} ", grants[0].dataset);
    say!(session, "{line:-<LINE_WIDTH$}");
    let list = |grant: &Grant| grant.permissions.join(",");
    let mut part = |title: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            say!(session, "{title}:");
            lines.iter().for_each(|line| say!(session, "\t{line}"));
        }
    };
    let sets = grants
        .iter()
        .filter_map(|grant| if let Grantee::Set(name) = &grant.to { Some(format!("{name} {}", list(grant))) } else { None });
    part("Permission sets", sets.collect());
    part("Create time permissions", grants.iter().filter(|grant| grant.to == Grantee::Creator).map(list).collect());
    let (local, below) = (of_reach(grants, Reach::Local), of_reach(grants, Reach::Descendent));
    part("Local permissions", local.iter().filter(|line| !below.contains(line)).cloned().collect());
    part("Descendent permissions", below.iter().filter(|line| !local.contains(line)).cloned().collect());
    part("Local+Descendent permissions", local.iter().filter(|line| below.contains(line)).cloned().collect());
}

/// The grants, a line for each grantee.
fn of_reach(grants: &[Grant], reach: Reach) -> Vec<String> {
    let line = |grant: &Grant| {
        let who = match &grant.to {
            Grantee::User(user) => format!("user {}", name_of_user(*user).unwrap_or_else(|| user.to_string())),
            Grantee::Group(group) => format!("group {}", name_of_group(*group).unwrap_or_else(|| group.to_string())),
            Grantee::Everyone => "everyone".to_owned(),
            Grantee::Set(_) | Grantee::Creator => return None,
        };
        Some(format!("{who} {}", grant.permissions.join(",")))
    };
    grants.iter().filter(|grant| grant.reach == reach).filter_map(line).collect()
}
