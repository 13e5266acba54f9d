//! Suggestions for mistyped words: "did you mean 'list'?"
//!
//! # Theory
//!
//! The known word at the smallest distance is offered, a step being a letter more, less, changed, or swapped with the next one. A long word may
//! be further away than a short one. A beginning that only one known word has means that one. The suggestion is a line of its own on standard
//! error, the last one: after the complaint, which programs may look for, and the usage text, which may be long.

use strsim::osa_distance;

/// Beginnings of fewer letters say nothing.
const BEGINNING_MIN: usize = 3;

/// The most steps between a word of `letters` letters and a suggestion.
fn steps_max(letters: usize) -> usize {
    match letters {
        0..=2 => 0,
        3 => 1,
        4..=8 => 2,
        _ => 3,
    }
}

/// The one of `known` that `word` was probably meant to be.
pub(crate) fn closest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let small = word.to_lowercase();
    let most = steps_max(small.chars().count());
    let mut best: Option<(usize, &str)> = None;
    let mut begun: Vec<&str> = Vec::new();
    for name in known.into_iter().filter(|name| *name != word) {
        let other = name.to_lowercase();
        let steps = osa_distance(&small, &other);
        if steps <= most && best.is_none_or(|(least, _)| steps < least) {
            best = Some((steps, name));
        }
        if small.len() >= BEGINNING_MIN && other.starts_with(&small) {
            begun.push(name);
        }
    }
    match (best, begun.as_slice()) {
        (Some((0 | 1, name)), _) => Some(name),
        (_, [name]) => Some(name),
        (best, _) => best.map(|(_, name)| name),
    }
}

/// The line for it.
pub(crate) fn line(name: &str) -> String {
    format!("did you mean '{name}'?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant() {
        let verbs = ["create", "destroy", "list", "get", "set", "import", "export", "status", "mount", "unmount", "snapshot"];
        for (word, meant) in [
            ("creat", Some("create")),
            ("lsit", Some("list")),
            ("lits", Some("list")),
            ("improt", Some("import")),
            ("GET", Some("get")),
            ("umount", Some("mount")),
            ("snap", Some("snapshot")),
            ("stat", Some("status")),
            ("nosuch", None),
            ("x", None),
            ("", None),
            ("ls", None),
            ("un", None),
        ] {
            assert_eq!(closest(word, verbs), meant, "{word}");
        }
        assert_eq!(closest("recxxx", ["receive", "record"]), None, "far away");
        assert_eq!(closest("rec", ["receive", "record"]), None, "either could be meant");
    }
}
