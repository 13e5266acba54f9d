//! Words that must not be in the project: `unsafe` and errno where they are not allowed, places of some machine, marks of
//! things left undone; and file names that are not ASCII.

use super::{Findings, Tree};

/// The crates that talk to the operating system or have SIMD.
const UNSAFE_CRATES: [&str; 3] = ["disk", "transform", "fuse"];

/// The crates that know no errno: the daemon has the one table.
const CRATES_WITHOUT_ERRNO: [&str; 4] = ["ondisk", "transform", "engine", "tarnfs"];

pub(super) fn check(tree: &Tree, findings: &mut Findings) {
    check_unsafe(tree, findings);
    check_errno(tree, findings);
    for path in tree.paths.iter().filter(|path| !path.bytes().all(|byte| byte.is_ascii_graphic())) {
        findings.violations.push(format!("{path:?}: a file name that is not plain ASCII"));
    }
    let sources = tree.sources.iter().map(|source| (&source.path, &source.text));
    for (path, text) in sources.chain(tree.texts.iter().map(|(path, text)| (path, text))) {
        for (number, line) in text.lines().enumerate() {
            for word in forbidden_words() {
                if line.contains(&word) {
                    findings.violations.push(format!("{path}:{}: {word:?} must not be in the project", number + 1));
                }
            }
        }
    }
}

/// Put together here, so that this file is not against its own rule.
fn forbidden_words() -> [String; 5] {
    [["/wo", "rk/"].concat(), ["/tmp/", "ozfs"].concat(), ["/ro", "ot/"].concat(), ["FIX", "ME"].concat(), ["XX", "X:"].concat()]
}

fn check_unsafe(tree: &Tree, findings: &mut Findings) {
    let mut counts: Vec<(&str, usize)> = UNSAFE_CRATES.iter().map(|name| (*name, 0)).collect();
    for source in &tree.sources {
        for (number, line) in source.code.lines().enumerate() {
            let uses = unsafe_uses(line);
            match counts.iter_mut().find(|(name, _)| *name == source.crate_name()) {
                Some((_, count)) => *count += uses,
                None if uses > 0 => {
                    findings.violations.push(format!("{}:{}: unsafe outside of {UNSAFE_CRATES:?}", source.path, number + 1));
                }
                None => {}
            }
        }
    }
    let shown: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    findings.notes.push(format!("unsafe: {}", shown.join(", ")));
}

fn check_errno(tree: &Tree, findings: &mut Findings) {
    for source in tree.sources.iter().filter(|source| CRATES_WITHOUT_ERRNO.contains(&source.crate_name())) {
        for (number, line) in source.code_lines().filter(|(_, line)| names_errno(line)) {
            findings.violations.push(format!("{}:{number}: an errno outside of the daemon's table: {}", source.path, line.trim()));
        }
    }
}

/// `Errno::`, or a constant of `libc` such as `libc::EIO`.
fn names_errno(line: &str) -> bool {
    let is_capital = |text: &str, at: usize| text.as_bytes().get(at).is_some_and(u8::is_ascii_uppercase);
    line.contains("Errno::") || line.match_indices("libc::E").any(|(at, found)| is_capital(line, at + found.len()))
}

/// Blocks, functions, impls; not the lint's name.
fn unsafe_uses(line: &str) -> usize {
    ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern", "unsafe trait"].iter().map(|form| line.matches(form).count()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::Source;

    #[test]
    fn unsafe_places_and_names_are_found() {
        let source = |path: &str, text: &str| Source::new(path.to_owned(), text.to_owned());
        let mut tree = Tree::default();
        tree.sources.push(source("crates/disk/src/a.rs", "fn a() { unsafe { b() } }"));
        tree.sources.push(source("crates/engine/src/a.rs", "fn a() { unsafe { b() } }"));
        tree.sources.push(source("crates/engine/src/b.rs", "#![deny(unsafe_code)] // unsafe { }"));
        tree.texts.push(("README.md".to_owned(), ["see /wo", "rk/main"].concat()));
        tree.paths.push("docs/\u{fc}ber.md".to_owned());
        let mut findings = Findings::default();
        check(&tree, &mut findings);
        assert_eq!(findings.violations.len(), 3, "{:?}", findings.violations);
        assert_eq!(findings.notes, ["unsafe: disk 1, transform 0, fuse 0"]);
    }

    #[test]
    fn an_errno_in_the_engine_is_found() {
        let violations = |path: &str, text: &str| {
            let tree = Tree { sources: vec![Source::new(path.to_owned(), text.to_owned())], ..Tree::default() };
            let mut findings = Findings::default();
            check(&tree, &mut findings);
            findings.violations.len()
        };
        assert_eq!(violations("crates/engine/src/a.rs", "fn a() { Errno::EIO; libc::ENOENT; }"), 1);
        assert_eq!(violations("crates/tarnfs/src/a.rs", "fn a() { libc::ENOENT; }"), 1);
        assert_eq!(violations("crates/tarnfs/src/a.rs", "fn a() { ErrorKind::Io; libc::Elf; } // Errno::EIO"), 0);
        assert_eq!(violations("crates/daemon/src/errno.rs", "fn a() { Errno::EIO; }"), 0);
    }
}
