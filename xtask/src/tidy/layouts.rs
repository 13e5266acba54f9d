//! The format on disk is said in `ondisk`, and nowhere else.
//!
//! # Theory
//! Where a number is put together of bytes, or a constant says at which byte something is, a layout is written down. In the product
//! that is `ondisk`'s to do, for what is on disk. Code that only hands a number to an interface of bytes is listed here, with its reason.

use super::{Findings, Tree};

/// What a layout is written with.
const CONVERSIONS: [&str; 4] = ["from_le_bytes", "to_le_bytes", "from_be_bytes", "to_be_bytes"];
/// How names of places end.
const PLACES: [&str; 4] = ["_OFFSET: usize", "_OFFSET: u64", "_BYTE: usize", "_AT: usize"];
/// The crates that work with what is on disk.
const CRATES: [&str; 2] = ["crates/engine/src/", "crates/tarnfs/src/"];

/// Files that may, or folders whose files may, how often, and why. Numbers may only shrink.
const EXCEPTIONS: &[(&str, usize, &str)] = &[
    ("crates/engine/src/dsl/dead/bpobj.rs", 2, "a list of numbers is an object of bytes"),
    ("crates/engine/src/host.rs", 1, "/etc/hostid of this machine"),
    ("crates/engine/src/pool/checkpoint.rs", 1, "a value of a ZAP as bytes"),
    ("crates/engine/src/pool/open/create.rs", 1, "a salt is random bytes"),
    ("crates/engine/src/pool/open/open.rs", 1, "a value of a ZAP as bytes"),
    ("crates/engine/src/pool/shared_blocks/brt.rs", 7, "counts in either byte order, values of a ZAP as bytes"),
    ("crates/engine/src/pool/shared_blocks/ddt.rs", 5, "words in either byte order, values of a ZAP as bytes"),
    ("crates/engine/src/pool/space_maps/", 2, "a list of numbers is an object of bytes"),
    ("crates/engine/src/zap/", 6, "integers of a value are big-endian bytes"),
    ("crates/tarnfs/src/control/wire.rs", 2, "our own protocol of the control socket"),
    ("crates/tarnfs/src/zpl/", 15, "numbers as values of attributes, lists of access control as the kernel passes them"),
];

pub(super) fn check(tree: &Tree, findings: &mut Findings) {
    check_with(tree, EXCEPTIONS, findings);
}

fn check_with(tree: &Tree, exceptions: &[(&str, usize, &str)], findings: &mut Findings) {
    let mut excused = vec![0; exceptions.len()];
    for source in tree.sources.iter().filter(|source| CRATES.iter().any(|name| source.path.starts_with(name)) && !source.path.ends_with("_tests.rs")) {
        let mut found = Vec::new();
        for (number, line) in source.code_lines() {
            let conversions = CONVERSIONS.iter().map(|word| line.matches(word).count()).sum::<usize>();
            let places = if line.contains("const ") { PLACES.iter().filter(|place| line.contains(*place)).count() } else { 0 };
            found.extend(std::iter::repeat_n(number, conversions + places));
        }
        let exception = exceptions.iter().position(|(path, ..)| source.path.starts_with(path));
        let allowed = exception.map_or(0, |index| exceptions[index].1);
        if let Some(index) = exception {
            excused[index] += found.len();
        }
        if found.len() > allowed {
            let path = &source.path;
            findings.violations.push(format!("{path}: bytes of a layout, {} times (lines {found:?}): layouts belong into ondisk", found.len()));
        }
    }
    for ((path, ..), _) in exceptions.iter().zip(excused).filter(|(_, found)| *found == 0) {
        findings.violations.push(format!("layouts: {path} has none any more: take it out"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::Source;

    #[test]
    fn a_layout_outside_of_ondisk_is_found() {
        let text = "//! A.\nconst STATE_OFFSET: usize = 8;\nfn a() { u64::from_le_bytes(b) }\n// from_le_bytes(\n";
        let violations = |path: &str, exceptions: &[(&str, usize, &str)]| {
            let mut findings = Findings::default();
            let source = Source::new(path.to_owned(), text.to_owned());
            check_with(&Tree { sources: vec![source], ..Tree::default() }, exceptions, &mut findings);
            findings.violations.len()
        };
        let path = "crates/engine/src/x.rs";
        assert_eq!(violations(path, &[]), 1);
        assert_eq!(violations("crates/ondisk/src/x.rs", &[]), 0);
        assert_eq!(violations(path, &[(path, 2, "")]), 0);
        assert_eq!(violations(path, &[(path, 1, "")]), 1, "there is one more than that");
        assert_eq!(violations(path, &[(path, 2, ""), ("crates/engine/src/y.rs", 1, "")]), 1, "it may only shrink");
    }
}
