//! Parts that stay parts: types implemented in few files, folders of few files.
//!
//! # Theory
//! A type that is implemented in many files has fields that all of these touch: then no file says by its imports what it may change. And a
//! folder with many files has rooms that nobody has drawn. Both grow one file at a time, so both are counted here.

use std::collections::BTreeMap;

use super::{Findings, Source, Tree};

/// Types that were implemented all over a folder, with the number of files that may do so. Numbers may only shrink.
const TYPES: &[(&str, &str, usize)] = &[
    ("crates/engine/src/dsl/", "Dataset", 8),
    ("crates/engine/src/dsl/", "Dsl", 4),
    ("crates/engine/src/pool/", "GroupWriter", 4),
    ("crates/engine/src/pool/", "Pool", 2),
    ("crates/tarnfs/src/zpl/", "FileSystem", 11),
];

/// Sources in one folder.
const FOLDER_MAX: usize = 12;
/// Folders with more, and with how many. This list may only shrink.
const LARGE_FOLDERS: &[(&str, usize)] = &[];

pub(super) fn check(tree: &Tree, findings: &mut Findings) {
    check_types(tree, TYPES, findings);
    check_folders(tree, LARGE_FOLDERS, findings);
}

fn check_types(tree: &Tree, types: &[(&str, &str, usize)], findings: &mut Findings) {
    for (folder, name, most) in types {
        let implements = |source: &&Source| source.path.starts_with(folder) && source.code_lines().any(|(_, line)| implemented(line) == Some(name));
        let files = tree.sources.iter().filter(implements).count();
        if files > *most {
            findings.violations.push(format!("{folder}: {name} is implemented in {files} files, more than {most}: what is new belongs to a part of it"));
        }
    }
}

/// The type that a line begins to implement, if not for a trait.
fn implemented(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("impl ")?;
    let path = rest.strip_suffix('{').unwrap_or(rest).trim();
    if path.contains(" for ") {
        return None;
    }
    let path = path.split('<').next()?;
    path.rsplit("::").next()
}

fn check_folders(tree: &Tree, large: &[(&str, usize)], findings: &mut Findings) {
    let mut folders: BTreeMap<&str, usize> = BTreeMap::new();
    for source in tree.sources.iter().filter(|source| source.path.contains("src/")) {
        let folder = source.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        *folders.entry(folder).or_default() += 1;
    }
    for (folder, files) in &folders {
        let allowed = large.iter().find(|(name, _)| name == folder).map_or(FOLDER_MAX, |(_, most)| *most);
        if *files > allowed {
            findings.violations.push(format!("{folder}: {files} sources, more than {allowed}: give them rooms"));
        }
    }
    for (name, _) in large.iter().filter(|(name, _)| folders.get(name).is_none_or(|files| *files <= FOLDER_MAX)) {
        findings.violations.push(format!("LARGE_FOLDERS: {name} has not more than {FOLDER_MAX} sources: take it out"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(paths: &[&str], text: &str) -> Tree {
        let sources = paths.iter().map(|path| Source::new((*path).to_owned(), text.to_owned())).collect();
        Tree { sources, ..Tree::default() }
    }

    #[test]
    fn a_type_in_too_many_files_is_found() {
        let text = "//! A.\nimpl crate::a::Big {\n}\nimpl Debug for Big {}\n";
        let violations = |most| {
            let mut findings = Findings::default();
            check_types(&tree(&["crates/a/src/x.rs", "crates/a/src/y.rs", "crates/b/src/z.rs"], text), &[("crates/a/", "Big", most)], &mut findings);
            findings.violations.len()
        };
        assert_eq!((violations(1), violations(2)), (1, 0));
        assert_eq!(implemented("impl Big<T> {"), Some("Big"));
        assert_eq!(implemented("impl Debug for Big {"), None);
    }

    #[test]
    fn a_large_folder_is_found_and_so_is_one_that_is_not_large_any_more() {
        let paths: Vec<String> = (0..=FOLDER_MAX).map(|number| format!("crates/a/src/x/f{number}.rs")).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let violations = |paths: &[&str], large: &[(&str, usize)]| {
            let mut findings = Findings::default();
            check_folders(&tree(paths, "//! A.\n"), large, &mut findings);
            findings.violations.len()
        };
        assert_eq!(violations(&paths, &[]), 1);
        assert_eq!(violations(&paths[1..], &[]), 0);
        assert_eq!(violations(&paths, &[("crates/a/src/x", FOLDER_MAX + 1)]), 0);
        assert_eq!(violations(&paths[1..], &[("crates/a/src/x", FOLDER_MAX + 1)]), 1, "it may only shrink");
    }
}
