//! Files of at most 800 lines, functions of at most 70, a theory statement in front of each module.

use super::{Findings, Source, Tree};

/// Lines of a file, tests not counted.
const FILE_LINES_MAX: usize = 800;
/// Lines of a function.
const FUNCTION_LINES_MAX: usize = 70;
/// Functions that are longer, as (file, function). This list may only shrink.
const LONG_FUNCTIONS: &[(&str, &str)] = &[];

pub(super) fn check(tree: &Tree, findings: &mut Findings) {
    let mut lines = 0;
    let mut longest = (0, String::new());
    let mut excused = 0;
    for source in &tree.sources {
        lines += source.lines_without_tests;
        longest = longest.max((source.lines_without_tests, source.path.clone()));
        if source.lines_without_tests > FILE_LINES_MAX {
            let size = source.lines_without_tests;
            findings.violations.push(format!("{}: {size} lines, more than {FILE_LINES_MAX}", source.path));
        }
        let is_test = source.lines_without_tests == 0;
        if !is_test && !opens_with_theory(&source.text) {
            findings.violations.push(format!("{}: does not open with a `//!` statement", source.path));
        }
        for (name, line, length) in functions(source) {
            if length <= FUNCTION_LINES_MAX {
                continue;
            }
            if LONG_FUNCTIONS.contains(&(source.path.as_str(), name.as_str())) {
                excused += 1;
            } else {
                let path = &source.path;
                findings.violations.push(format!("{path}:{line}: {name}: {length} lines, more than {FUNCTION_LINES_MAX}"));
            }
        }
    }
    if excused < LONG_FUNCTIONS.len() {
        let gone = LONG_FUNCTIONS.len() - excused;
        findings.violations.push(format!("LONG_FUNCTIONS: {gone} of them are short or gone: take them out"));
    }
    findings.notes.push(format!(
        "sizes: {} sources, {lines} lines without tests, the longest is {} ({})",
        tree.sources.len(),
        longest.1,
        longest.0
    ));
}

/// The first line that is neither empty nor an attribute is `//!`.
fn opens_with_theory(text: &str) -> bool {
    let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with("#!["));
    first.is_none_or(|line| line.starts_with("//!"))
}

/// Name, first line and length of each function. The end is the closing brace at the indentation of the `fn`.
fn functions(source: &Source) -> Vec<(String, usize, usize)> {
    let lines: Vec<(usize, &str)> = source.code_lines().collect();
    let mut found = Vec::new();
    for (index, (number, line)) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let indent = line.len() - line.trim_start().len();
        let closes = |other: &str| other.len() - other.trim_start().len() == indent && other.trim_start().starts_with('}');
        let ends_here = |other: &str| other.trim_end().ends_with(';') || other.trim_end().ends_with('}');
        // A declaration without a body, or all on one line.
        if ends_here(line) {
            continue;
        }
        if let Some(length) = lines[index + 1..].iter().position(|(_, other)| closes(other)) {
            found.push((name, *number, length + 2));
        }
    }
    found
}

fn function_name(line: &str) -> Option<String> {
    let mut words = line.split_whitespace().peekable();
    while let Some(word) = words.peek() {
        let qualifier = word.starts_with("pub") || ["const", "unsafe", "extern", "\"C\"", "crate)", "super)"].contains(word);
        if !qualifier {
            break;
        }
        words.next();
    }
    if words.next()? != "fn" {
        return None;
    }
    let name: String = words.next()?.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect();
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations(text: &str) -> Vec<String> {
        let source = Source::new("crates/a/src/x.rs".to_owned(), text.to_owned());
        let mut findings = Findings::default();
        check(&Tree { sources: vec![source], ..Tree::default() }, &mut findings);
        findings.violations
    }

    #[test]
    fn long_functions_and_files_are_found() {
        let body = "        let x = 1;\n".repeat(69);
        let function = format!("//! A.\nimpl X {{\n    pub(crate) fn long() {{\n{body}    }}\n}}\n");
        assert_eq!(violations(&function).len(), 1, "71 lines");
        let body = "        let x = 1;\n".repeat(68);
        let function = format!("//! A.\nimpl X {{\n    pub(crate) fn long() {{\n{body}    }}\n}}\n");
        assert_eq!(violations(&function), Vec::<String>::new(), "70 lines");
        let file = format!("//! A.\n{}", "const A: u8 = 1;\n".repeat(800));
        assert_eq!(violations(&file).len(), 1);
    }

    #[test]
    fn a_module_without_theory_is_found() {
        assert_eq!(violations("use std::io;\n").len(), 1);
        assert_eq!(violations("#![allow(dead_code)]\n\n//! A.\n").len(), 0);
    }
}
