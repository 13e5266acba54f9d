//! The order of the engine's modules, and of the crates.
//!
//! # Theory
//! A module may use what is below it. The few calls that go up do so through a trait that is declared below and
//! implemented above, which needs no upward `use`, so the list has no exceptions. Modules of one layer may use each
//! other.

use super::{Findings, Tree};

/// The engine's modules, lowest first; one line is one layer. `docs/architecture.md` has the reasons.
const LAYERS: [&[&str]; 13] = [
    &["error", "host", "canary", "tunables", "stats", "sync"],
    &["vdev"],
    &["alloc"],
    &["zio"],
    &["arc"],
    &["txg"],
    &["dmu"],
    &["zap"],
    &["dsl"],
    &["zil"],
    &["logged"],
    &["stream"],
    &["pool"],
];

/// What each crate may use of ours. `lab` may use the library for its embedded rows and `fuse` for its simulated disks and the file system in memory that TarnFS is compared with, `cli`, `sim` and `fuzz` use what they inspect.
const CRATES: [(&str, &[&str]); 13] = [
    ("locks", &[]),
    ("ondisk", &[]),
    ("transform", &[]),
    ("disk", &[]),
    ("fuse", &[]),
    ("engine", &["ondisk", "transform", "disk"]),
    ("tarnfs", &["engine", "ondisk", "transform", "disk"]),
    ("daemon", &["tarnfs", "fuse", "engine", "ondisk", "disk"]),
    ("lab", &["tarnfs", "fuse"]),
    ("cli", &["tarnfs", "daemon", "engine", "ondisk", "transform", "disk", "lab", "fuse"]),
    ("sim", &["tarnfs", "engine", "ondisk", "transform", "disk"]),
    ("fuzz", &["tarnfs", "engine", "ondisk", "transform", "disk", "fuse", "sim"]),
    ("xtask", &["sim", "lab"]),
];

pub(super) fn check(tree: &Tree, findings: &mut Findings) {
    let mut edges = 0;
    for source in tree.sources.iter().filter(|source| source.path.starts_with("crates/engine/src/")) {
        let Some(module) = module_of(&source.path) else { continue };
        let Some(layer) = layer_of(module) else {
            findings.violations.push(format!("{}: module {module} is not in the table of layers", source.path));
            continue;
        };
        for (line, used) in modules_used(source.code_lines()) {
            edges += 1;
            match layer_of(&used) {
                Some(other) if other <= layer => {}
                Some(_) => findings.violations.push(format!("{}:{line}: {module} uses {used}, which is above it", source.path)),
                // An item of the crate's root.
                None => {}
            }
        }
    }
    findings.notes.push(format!("layers: {edges} uses between the engine's modules"));
    check_table(tree, findings);
    check_crates(tree, findings);
}

/// Every module in the table exists. Trees of tests, which lack the crate's root, are not asked.
fn check_table(tree: &Tree, findings: &mut Findings) {
    let modules: Vec<&str> = tree.sources.iter().filter_map(|source| module_of(&source.path)).collect();
    if tree.sources.iter().any(|source| source.path == "crates/engine/src/lib.rs") {
        for module in LAYERS.into_iter().flatten().filter(|module| !modules.contains(*module)) {
            findings.violations.push(format!("the table of layers has {module}, which does not exist"));
        }
    }
}

/// `vdev` of `crates/engine/src/vdev/mirror.rs`; `None` for the crate's root.
fn module_of(path: &str) -> Option<&str> {
    let below = path.strip_prefix("crates/engine/src/")?;
    let module = below.split('/').next()?.trim_end_matches(".rs");
    (module != "lib").then_some(module)
}

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

/// Every `crate::module` in the code, in groups (`crate::{a, b::c}`) too, with its line.
fn modules_used<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<(usize, String)> {
    let mut text = String::new();
    let mut starts = Vec::new();
    for (number, line) in lines {
        starts.push((text.len(), number));
        text.push_str(line);
        text.push('\n');
    }
    let line_at = |position: usize| starts.iter().rev().find(|(start, _)| *start <= position).map_or(0, |(_, number)| *number);
    let mut used = Vec::new();
    for (position, _) in text.match_indices("crate::") {
        // `$crate::` and `my_crate::` are something else.
        if text[..position].ends_with(|before: char| before.is_alphanumeric() || before == '_') {
            continue;
        }
        let after = &text[position + "crate::".len()..];
        let names = match after.strip_prefix('{') {
            Some(group) => group_heads(group),
            None => vec![head(after)],
        };
        used.extend(names.into_iter().filter(|name| !name.is_empty()).map(|name| (line_at(position), name)));
    }
    used
}

fn head(text: &str) -> String {
    text.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect()
}

/// The first names of the items of a `{…}` group whose opening brace has been read.
fn group_heads(group: &str) -> Vec<String> {
    let mut depth = 0;
    let mut items = vec![String::new()];
    for letter in group.chars() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => items.push(String::new()),
            _ if depth == 0 => items.last_mut().unwrap_or(&mut String::new()).push(letter),
            _ => {}
        }
    }
    items.iter().map(|item| head(item.trim())).collect()
}

fn check_crates(tree: &Tree, findings: &mut Findings) {
    let ours: Vec<&str> = CRATES.iter().map(|(name, _)| *name).collect();
    for (path, text) in tree.texts.iter().filter(|(path, _)| path.ends_with("/Cargo.toml")) {
        let folder = path.trim_end_matches("/Cargo.toml");
        // What is neither is no member of the workspace: the program in `fuzz`.
        let Some(folder) = folder.strip_prefix("crates/").or(Some(folder).filter(|folder| *folder == "xtask")) else { continue };
        let Some((name, allowed)) = CRATES.iter().find(|(name, _)| *name == folder) else {
            findings.violations.push(format!("{path}: crate {folder} is not in the table of crates"));
            continue;
        };
        let mut section = "";
        for line in text.lines() {
            if line.starts_with('[') {
                section = line;
            }
            let used = head(line);
            let product = section == "[dependencies]" || section == "[build-dependencies]";
            if product && ours.contains(&used.as_str()) && !allowed.contains(&used.as_str()) {
                findings.violations.push(format!("{path}: {name} may not use {used}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::Source;

    fn violations(path: &str, text: &str) -> Vec<String> {
        let tree = Tree { sources: vec![Source::new(path.to_owned(), text.to_owned())], ..Tree::default() };
        let mut findings = Findings::default();
        check(&tree, &mut findings);
        findings.violations
    }

    #[test]
    fn an_upward_use_is_found_however_it_is_written() {
        let path = "crates/engine/src/zio/read.rs";
        assert_eq!(violations(path, "use crate::vdev::Tree;\nuse crate::error::{Error, Result};\n"), Vec::<String>::new());
        assert_eq!(violations(path, "use crate::dmu::Tx;\n").len(), 1);
        assert_eq!(violations(path, "use crate::{\n    error::Error,\n    arc::{Arc, pool},\n};\n").len(), 1);
        assert_eq!(violations(path, "fn f() { crate::pool::open(); }\n").len(), 1);
        assert_eq!(violations(path, "// use crate::pool::open;\n").len(), 0);
        assert_eq!(violations(path, "#[cfg(test)]\nmod tests {\n    use crate::pool::open;\n}\n").len(), 0);
        assert_eq!(violations("crates/engine/src/newcomer.rs", "").len(), 1);
    }

    #[test]
    fn a_layer_that_is_gone_is_found() {
        let present = |gone: &str| {
            let modules = LAYERS.into_iter().flatten().copied().filter(|module| *module != gone).chain(["lib"]);
            let sources = modules.map(|module| Source::new(format!("crates/engine/src/{module}.rs"), String::new()));
            let mut findings = Findings::default();
            check(&Tree { sources: sources.collect(), ..Tree::default() }, &mut findings);
            findings.violations
        };
        assert_eq!(present(""), Vec::<String>::new());
        assert_eq!(present("zap"), ["the table of layers has zap, which does not exist"]);
    }

    #[test]
    fn a_crate_may_not_use_one_above_it() {
        let manifest = "[dependencies]\nengine.workspace = true\n[dev-dependencies]\nsim.workspace = true\n";
        let tree = Tree { texts: vec![("crates/disk/Cargo.toml".to_owned(), manifest.to_owned())], ..Tree::default() };
        let mut findings = Findings::default();
        check(&tree, &mut findings);
        assert_eq!(findings.violations, ["crates/disk/Cargo.toml: disk may not use engine"]);
    }
}
