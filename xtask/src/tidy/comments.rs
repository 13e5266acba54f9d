//! Comments name their subjects: a waiter is called a waiter.
//!
//! # Theory
//! A relative clause without a noun before it makes the reader look for one. Its first word, and the word before that, give
//! it away.

use super::{Findings, Tree};

/// Words that give `who` no noun.
const BEFORE: [&str; 15] = ["for", "to", "of", "by", "from", "with", "that", "than", "as", "and", "at", "what", "nor", "is", "are"];

pub(super) fn check(tree: &Tree, findings: &mut Findings) {
    for source in &tree.sources {
        for (number, (line, code)) in source.text.lines().zip(source.code.lines()).enumerate() {
            // What the code has blanked out, from `//` on, is a comment.
            let start = line.match_indices("//").map(|(at, _)| at).find(|at| code.get(*at..).is_none_or(|rest| rest.trim().is_empty()));
            if start.is_some_and(|start| is_nameless(&line[start..])) {
                findings.violations.push(format!("{}:{}: a comment with a \"who\" that has no noun", source.path, number + 1));
            }
        }
    }
}

/// Finds the pronoun at the beginning of a sentence, or after a word that is no noun.
fn is_nameless(comment: &str) -> bool {
    let mut before = "";
    for word in comment.split_whitespace() {
        let plain = word.trim_matches(|letter: char| !letter.is_alphanumeric()).to_ascii_lowercase();
        let begins = before.is_empty() || before.starts_with("//") || before == "*" || before == "-" || before.ends_with(['.', ':', ';']);
        let asks = comment.trim_end().ends_with('?');
        if plain == "whoever" || plain == "who" && !asks && (begins || BEFORE.contains(&before)) {
            return true;
        }
        before = word;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::Source;

    #[test]
    fn subjects_without_a_name_are_found() {
        for wrong in ["// Who waits is woken.", "/// Whoever waits.", "//! It is woken. Who waits goes on.", "// for who waits", "// as who waits"] {
            assert!(is_nameless(wrong), "{wrong}");
        }
        for right in ["// The one who waits is woken.", "// those who wait", "// Is it known who waits?", "// whole", "// users, who wait"] {
            assert!(!is_nameless(right), "{right}");
        }
    }

    #[test]
    fn only_comments_count() {
        let count = |text: &str| {
            let sources = vec![Source::new("crates/a/src/x.rs".to_owned(), text.to_owned())];
            let mut findings = Findings::default();
            check(&Tree { sources, ..Tree::default() }, &mut findings);
            findings.violations.len()
        };
        assert_ne!(count("let a = 1; // Who waits.\n"), 0);
        assert_eq!(count("let a = \"// Who waits.\";\n"), 0);
    }
}
