//! What the documents name must exist: functions (`Type::function`) and source files (`engine/dmu/tx.rs`).
//!
//! A document that names what is gone is worse than none.

use std::collections::HashSet;

use super::{Findings, Tree};

/// The files at the root that are documents, beside all in `docs`.
const AT_THE_ROOT: [&str; 2] = ["README.md", "CONTRIBUTING.md"];

fn is_document(path: &str) -> bool {
    AT_THE_ROOT.contains(&path) || path.starts_with("docs/") && path.ends_with(".md")
}

pub(super) fn check(tree: &Tree, findings: &mut Findings) {
    let defined = Defined::of(tree);
    let mut named = 0;
    for (path, text) in tree.texts.iter().filter(|(path, _)| is_document(path)) {
        for (number, line) in text.lines().enumerate() {
            for (owner, function) in functions_named(line) {
                named += 1;
                if !defined.functions.contains(function) || !defined.owners.contains(owner) {
                    findings.violations.push(format!("{path}:{}: there is no {owner}::{function}", number + 1));
                }
            }
            for file in files_named(line) {
                named += 1;
                if !tree.sources.iter().any(|source| is_named(&source.path, file)) {
                    findings.violations.push(format!("{path}:{}: there is no {file}", number + 1));
                }
            }
        }
    }
    findings.notes.push(format!("documents: {named} functions and files named"));
}

/// What the sources define.
struct Defined<'a> {
    functions: HashSet<&'a str>,
    /// Types, traits, and modules: what stands before the `::`.
    owners: HashSet<&'a str>,
}

impl Defined<'_> {
    fn of(tree: &Tree) -> Defined<'_> {
        let mut defined = Defined { functions: HashSet::new(), owners: HashSet::new() };
        for source in &tree.sources {
            let file = source.path.trim_end_matches("/mod.rs").trim_end_matches(".rs");
            defined.owners.extend(file.split('/'));
            let mut words =
                source.code.split(|letter: char| !letter.is_alphanumeric() && letter != '_').filter(|word| !word.is_empty());
            let mut before = "";
            for word in words.by_ref() {
                match before {
                    "fn" => drop(defined.functions.insert(word)),
                    "struct" | "enum" | "trait" | "type" => drop(defined.owners.insert(word)),
                    _ => {}
                }
                before = word;
            }
        }
        defined
    }
}

/// Every `Owner::function` in a line. `std::fs::read` and `Type::Variant` are not meant.
fn functions_named(line: &str) -> Vec<(&str, &str)> {
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut found = Vec::new();
    for (position, _) in line.match_indices("::") {
        let owner = line[..position].rsplit(|letter: char| !is_name(letter)).next().unwrap_or("");
        let function = line[position + 2..].split(|letter: char| !is_name(letter)).next().unwrap_or("");
        let is_path = line[position + 2 + function.len()..].starts_with("::");
        let is_function = function.starts_with(|letter: char| letter.is_ascii_lowercase());
        if owner.starts_with(|letter: char| letter.is_ascii_uppercase()) && is_function && !is_path {
            found.push((owner, function));
        }
    }
    found
}

/// Every word that ends in `.rs`, but for endings such as `_sync.rs`.
fn files_named(line: &str) -> Vec<&str> {
    let is_part = |letter: char| letter.is_alphanumeric() || "_-./".contains(letter);
    let words = line.split(|letter: char| !is_part(letter));
    words.filter(|word| word.ends_with(".rs") && word.len() > 3 && !word.starts_with('_')).collect()
}

/// A document may leave out `crates/` and `src/`: `engine/dmu/tx.rs`, or only the end: `tx.rs`.
fn is_named(path: &str, named: &str) -> bool {
    let short = path.trim_start_matches("crates/").replacen("/src/", "/", 1);
    [path, short.as_str()].iter().any(|full| full.strip_suffix(named).is_some_and(|rest| rest.is_empty() || rest.ends_with('/')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::Source;

    #[test]
    fn a_map_that_names_what_is_gone_is_found() {
        let mut tree = Tree::default();
        let text = "pub struct OpenTx;\nimpl OpenTx { pub fn assign(&self) {} }\n";
        tree.sources.push(Source::new("crates/engine/src/dmu/tx.rs".to_owned(), text.to_owned()));
        let map = "engine/dmu/tx.rs   OpenTx::assign   joins\n`OpenTx::gone`, `Gone::assign`, `dmu/gone.rs`, `_sync.rs`, ErrorKind::Io\n";
        tree.texts.push(("docs/write-path.md".to_owned(), map.to_owned()));
        let mut findings = Findings::default();
        check(&tree, &mut findings);
        assert_eq!(findings.violations.len(), 3, "{:?}", findings.violations);
    }
}
