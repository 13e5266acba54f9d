//! The sources, and their code without comments, strings and tests.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Directories that are not ours.
const SKIPPED: [&str; 3] = ["target", ".git", "corpus"];

/// A Rust source.
#[derive(Debug)]
pub struct Source {
    /// Its path below the root, with `/`.
    pub path: String,
    /// All of it.
    pub text: String,
    /// The same lines with comments, strings and character literals blanked out.
    pub code: String,
    /// How many of its lines come before its test module.
    pub lines_without_tests: usize,
}

impl Source {
    /// Takes a source apart.
    pub fn new(path: String, text: String) -> Source {
        let code = blank(&text);
        let whole = is_test_path(&path);
        let lines_without_tests = if whole { 0 } else { test_module_line(&code).unwrap_or_else(|| code.lines().count()) };
        Source { path, text, code, lines_without_tests }
    }

    /// The lines of code before the test module, with their numbers.
    pub fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.lines().take(self.lines_without_tests).enumerate().map(|(index, line)| (index + 1, line))
    }

    /// The crate's folder (`engine`), or `xtask`.
    pub fn crate_name(&self) -> &str {
        let path = self.path.strip_prefix("crates/").unwrap_or(&self.path);
        path.split('/').next().unwrap_or(path)
    }
}

/// Everything that the rules look at.
#[derive(Debug, Default)]
pub struct Tree {
    /// The Rust sources.
    pub sources: Vec<Source>,
    /// All other files that are text: path and text.
    pub texts: Vec<(String, String)>,
    /// The paths of all files.
    pub paths: Vec<String>,
}

impl Tree {
    /// Reads the workspace at `root`.
    pub fn read(root: &Path) -> Result<Tree> {
        let mut tree = Tree::default();
        let walk = walkdir::WalkDir::new(root).sort_by_file_name().into_iter();
        for entry in walk.filter_entry(|entry| !SKIPPED.contains(&entry.file_name().to_string_lossy().as_ref())) {
            let entry = entry?;
            if !entry.file_type().is_file() {
                continue;
            }
            let path = entry.path().strip_prefix(root)?.components().collect::<PathBuf>();
            let path = path.to_string_lossy().into_owned();
            let bytes = std::fs::read(entry.path()).with_context(|| path.clone())?;
            tree.paths.push(path.clone());
            match String::from_utf8(bytes) {
                Ok(text) if path.ends_with(".rs") => tree.sources.push(Source::new(path, text)),
                Ok(text) => tree.texts.push((path, text)),
                Err(_) => {}
            }
        }
        Ok(tree)
    }
}

/// Test code as a whole file.
fn is_test_path(path: &str) -> bool {
    path.ends_with("/tests.rs") || ["/tests/", "/benches/", "/examples/"].iter().any(|part| path.contains(part))
}

/// The line of the `#[cfg(test)]` that begins a test module written in the file (by convention the last item).
fn test_module_line(code: &str) -> Option<usize> {
    let lines: Vec<&str> = code.lines().collect();
    let begins = |index: usize| {
        let after = lines[index + 1..].iter().map(|line| line.trim()).find(|line| !line.is_empty() && !line.starts_with("#["));
        after.is_some_and(|line| line.starts_with("mod ") && line.ends_with('{'))
    };
    (0..lines.len()).find(|&index| lines[index].trim() == "#[cfg(test)]" && begins(index))
}

/// Blanks comments, strings and character literals, and keeps the lines.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let length = if rest.starts_with(b"//") {
            rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len())
        } else if rest.starts_with(b"/*") {
            block_comment(rest)
        } else if rest[0] == b'"' {
            string(rest)
        } else if raw_hashes(rest).is_some() && (at == 0 || !is_word(bytes[at - 1])) {
            raw_string(rest)
        } else if rest[0] == b'\'' {
            character(rest)
        } else {
            0
        };
        if length == 0 {
            out.push(rest[0]);
            at += 1;
        } else {
            out.extend(rest[..length].iter().map(|byte| if *byte == b'\n' { b'\n' } else { b' ' }));
            at += length;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn string(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// `r`, `r#`, `r##`…: how many hashes, if a raw string begins here.
fn raw_hashes(rest: &[u8]) -> Option<usize> {
    let after = rest.strip_prefix(b"r").or_else(|| rest.strip_prefix(b"br"))?;
    let hashes = after.iter().take_while(|byte| **byte == b'#').count();
    (after.get(hashes) == Some(&b'"')).then_some(hashes)
}

fn raw_string(rest: &[u8]) -> usize {
    let hashes = raw_hashes(rest).unwrap_or(0);
    let start = rest.iter().position(|byte| *byte == b'"').unwrap_or(0) + 1;
    let end = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
    let found = rest[start..].windows(end.len()).position(|window| window == end);
    found.map_or(rest.len(), |position| start + position + end.len())
}

/// A character literal, and not a lifetime.
fn character(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'\\') {
        // The byte after the backslash may itself be a quote.
        return rest.iter().skip(3).position(|byte| *byte == b'\'').map_or(0, |position| position + 4);
    }
    // One character of up to four bytes, then a quote.
    (2..=5).find(|end| rest.get(*end) == Some(&b'\'') && (*end == 2 || rest[1] >= 0x80)).map_or(0, |end| end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_blanked() {
        let text = "let a = \"unsafe // \\\" x\"; // unsafe\nlet c = '\"'; let q = '\\''; /* a /* b */ c */ let l: &'static str = r#\"x\"y\"#;\n";
        let code = blank(text);
        assert_eq!(code.lines().count(), 2);
        assert!(!code.contains("unsafe") && !code.contains('x') && !code.contains('b'), "{code}");
        assert!(code.contains("let q =") && code.contains("&'static str ="), "{code}");
    }

    #[test]
    fn the_test_module_does_not_count() {
        let text = "//! A.\nfn a() {}\n#[cfg(test)]\nfn helper() {}\n#[cfg(test)]\nmod tests;\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n";
        let source = Source::new("crates/a/src/x.rs".to_owned(), text.to_owned());
        assert_eq!(source.lines_without_tests, 6);
        assert_eq!(source.crate_name(), "a");
        assert_eq!(Source::new("crates/a/tests/x.rs".to_owned(), text.to_owned()).lines_without_tests, 0);
    }
}
