//! Which names pools, datasets and mount points may have, and OpenZFS's words for those they may not.

use tarnfs::control::{DatasetKinds, Failure, FailureKind};

/// Longest name of a dataset, snapshot or bookmark, with its NUL.
const NAME_SIZE: usize = 256;
/// How many slashes a dataset's name may have, less one.
const NESTING_MAX: usize = 50;

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | ' ')
}

/// Checks `pool/a/b`, `pool/a@snapshot` or `pool/a#bookmark`.
fn check_entity(name: &str) -> Result<(), String> {
    let because = |words: &str| Err(words.to_owned());
    if name.len() >= NAME_SIZE {
        return because("name is too long");
    }
    if name.starts_with('/') {
        return because("leading slash in name");
    }
    let empty = "empty component or misplaced '@' or '#' delimiter in name";
    let mut rest = name;
    let mut delimited = false;
    loop {
        let end = rest.find(['/', '@', '#']).unwrap_or(rest.len());
        let (component, delimiter) = (&rest[..end], rest[end..].chars().next());
        if delimiter.is_none() && component.is_empty() && name.ends_with('/') {
            return because("trailing slash in name");
        }
        if let Some(c) = component.chars().find(|c| !is_name_char(*c) && *c != '%') {
            return Err(format!("invalid character '{c}' in name"));
        }
        if matches!(delimiter, None | Some('/')) {
            match component {
                "." => return because("self reference, '.' is found in name"),
                ".." => return because("parent reference, '..' is found in name"),
                _ => {}
            }
        }
        if matches!(delimiter, Some('@' | '#')) {
            if delimited {
                return because("multiple '@' and/or '#' delimiters in name");
            }
            delimited = true;
        }
        if component.is_empty() {
            return because(empty);
        }
        match delimiter {
            None => return Ok(()),
            Some('/') if delimited => return because("trailing slash in name"),
            Some(_) => rest = &rest[end + 1..],
        }
    }
}

/// Checks the name of something that must be one of `kinds`; `changing` when it is to be made or renamed.
pub(crate) fn check_dataset(name: &str, kinds: DatasetKinds, changing: bool) -> Result<(), Failure> {
    let only_snapshot = kinds == DatasetKinds::NONE.with(tarnfs::control::DatasetKind::Snapshot);
    let only_bookmark = kinds == DatasetKinds::NONE.with(tarnfs::control::DatasetKind::Bookmark);
    let words = if !kinds.snapshot && name.contains('@') {
        "snapshot delimiter '@' is not expected here".to_owned()
    } else if only_snapshot && !name.contains('@') {
        "missing '@' delimiter in snapshot name".to_owned()
    } else if !kinds.bookmark && name.contains('#') {
        "bookmark delimiter '#' is not expected here".to_owned()
    } else if only_bookmark && !name.contains('#') {
        "missing '#' delimiter in bookmark name".to_owned()
    } else if changing && name.contains('%') {
        "invalid character % in name".to_owned()
    } else {
        match check_entity(name) {
            Ok(()) => return Ok(()),
            Err(words) => words,
        }
    };
    Err(Failure::with(FailureKind::InvalidName, words))
}

/// Refuses a name with too many levels.
pub(crate) fn check_nesting(name: &str) -> Result<(), Failure> {
    let head = name.split(['@', '#']).next().unwrap_or(name);
    if head.matches('/').count() < NESTING_MAX {
        return Ok(());
    }
    Err(Failure::with(FailureKind::InvalidName, "maximum name nesting depth exceeded"))
}

/// Checks a pool's name; more names are reserved for pools that are to be made than for those that exist.
pub(crate) fn check_pool(name: &str, creating: bool) -> Result<(), Failure> {
    // Room for the hidden snapshot `name/$ORIGIN@$ORIGIN`.
    let room = NAME_SIZE - 2 - 2 * "$ORIGIN".len();
    let words = if name.len() >= room {
        "name is too long".to_owned()
    } else if let Some(c) = name.chars().find(|c| !is_name_char(*c)) {
        format!("invalid character '{c}' in pool name")
    } else if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        "name must begin with a letter".to_owned()
    } else if matches!(name, "mirror" | "raidz" | "draid")
        || (creating && (["mirror", "raidz", "draid", "spare"].iter().any(|word| name.starts_with(word)) || name == "log"))
    {
        "name is reserved".to_owned()
    } else {
        return Ok(());
    };
    Err(Failure::with(FailureKind::InvalidName, words))
}

/// Checks a mount point: an absolute path of components of bearable length.
pub(crate) fn check_mountpoint(path: &str) -> Result<(), &'static str> {
    if !path.starts_with('/') {
        return Err("must be an absolute path, 'none', or 'legacy'");
    }
    if path.split('/').any(|component| component.len() >= NAME_SIZE) {
        return Err("component too long");
    }
    Ok(())
}

/// The pool that a dataset is in.
pub(crate) fn pool_of(name: &str) -> &str {
    name.split(['/', '@', '#']).next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(name: &str) -> String {
        check_dataset(name, DatasetKinds::ALL, false).err().map_or_else(String::new, |failure| failure.message)
    }

    #[test]
    fn dataset_names() {
        for name in ["tank", "tank/a b/c.d", "tank/a@s", "tank#b-1", "tank/%recv", "1/2"] {
            assert_eq!(why(name), "", "{name}");
        }
        let empty = "empty component or misplaced '@' or '#' delimiter in name";
        for (name, words) in [
            ("", empty), ("tank//a", empty), ("tank/@s", empty), ("@s", empty), ("tank@", empty), ("/tank", "leading slash in name"),
            ("tank/", "trailing slash in name"), ("tank@a/b", "trailing slash in name"), ("tank/a!", "invalid character '!' in name"),
            ("tank@a@b", "multiple '@' and/or '#' delimiters in name"), ("tank/.", "self reference, '.' is found in name"),
            ("tank/../a", "parent reference, '..' is found in name"),
        ] {
            assert_eq!(why(name), words, "{name}");
        }
        assert_eq!(why(&"a".repeat(256)), "name is too long");
        assert!(check_dataset("tank@a", DatasetKinds::HEADS, false).is_err());
        assert!(check_dataset("tank/%a", DatasetKinds::HEADS, true).is_err());
    }

    #[test]
    fn pool_names() {
        let why = |name: &str| check_pool(name, true).err().map_or_else(String::new, |failure| failure.message);
        for name in ["tank", "c0t0d0", "logs", "a.b:c-d e"] {
            assert_eq!(why(name), "", "{name}");
        }
        for name in ["mirror", "raidz2x", "draid", "spare-a", "log"] {
            assert_eq!(why(name), "name is reserved", "{name}");
        }
        assert!(check_pool("log", false).is_ok() && check_pool("mirrors", false).is_ok() && check_pool("raidz", false).is_err());
        assert_eq!(why("1tank"), "name must begin with a letter");
        assert_eq!(why(""), "name must begin with a letter");
        assert_eq!(why("tank%"), "invalid character '%' in pool name");
    }
}
