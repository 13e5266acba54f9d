//! Settings that are kept and do nothing. The user that makes one is told.
//!
//! # Theory
//!
//! A pool is OpenZFS's too, which acts on properties that mean nothing here. They are stored for it. Silence would let somebody believe
//! that a file system is shared.

use engine::dsl::prop_table::Property;

use crate::properties::columns::Scope;
use crate::session::{Session, complain};

/// The property, the value that asks for nothing, and what to do instead, or why.
type Row = (&'static str, &'static str, &'static str);

const OF_VOLUMES: &str = "volumes have no block devices here";
const SELINUX: &str = "labels of files are set with setfattr(1) or by the kernel's policy";

const OF_DATASETS: &[Row] = &[
    ("sharenfs", "off", "its mount point is shared as any directory is, with exportfs(8)"),
    ("sharesmb", "off", "its mount point is shared as any directory is, in smb.conf(5)"),
    ("vscan", "off", "nothing scans files for viruses here"),
    ("nbmand", "off", "Linux has no mandatory locks"),
    ("prefetch", "all", "what will be read next is always read ahead"),
    ("snapdev", "hidden", OF_VOLUMES),
    ("volmode", "default", OF_VOLUMES),
    ("volthreading", "on", OF_VOLUMES),
    ("context", "none", SELINUX),
    ("fscontext", "none", SELINUX),
    ("defcontext", "none", SELINUX),
    ("rootcontext", "none", SELINUX),
];

const OF_POOLS: &[Row] = &[("dedup_table_quota", "auto", "what is written is not deduplicated here")];

fn rows(scope: Scope) -> (&'static [Row], fn(&str) -> Option<&'static Property>) {
    match scope {
        Scope::Dataset => (OF_DATASETS, engine::dsl::prop_table::find),
        Scope::Pool => (OF_POOLS, engine::pool::prop_table::find),
    }
}

/// Warns of each setting that was made and does nothing.
pub(crate) fn warn(session: &mut Session<'_>, scope: Scope, pairs: &[(String, String)]) {
    let (rows, find) = rows(scope);
    for (given, value) in pairs {
        let name = find(given).map_or("", |property| property.name);
        if let Some((_, _, instead)) = rows.iter().find(|(known, idle, _)| *known == name && idle != value) {
            complain!(session, "warning: '{given}={value}' is kept for OpenZFS and has no effect here: {instead}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row whose property or value is misspelt would never be found.
    #[test]
    fn every_row_is_of_a_property_and_one_of_its_values() {
        for scope in [Scope::Dataset, Scope::Pool] {
            let (rows, find) = rows(scope);
            for (name, idle, _) in rows {
                let property = find(name).unwrap_or_else(|| panic!("no property '{name}'"));
                assert_eq!(property.name, *name);
                let words = property.words();
                assert!(words.is_empty() || property.word_to_number(idle).is_some(), "'{name}' is never '{idle}'");
            }
        }
    }
}
