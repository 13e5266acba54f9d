//! Names that a request may give to new things. The command has looked at them, but a request may come from anybody.

use engine::dsl::names::DatasetName;
use engine::error::ErrorKind;

use super::{Failure, FailureKind};

/// Words that a pool cannot be called, because they mean something where a vdev is expected.
const RESERVED: [&str; 5] = ["mirror", "raidz", "draid", "spare", "log"];
/// Room for the hidden snapshot `name/$ORIGIN@$ORIGIN` in the longest name.
const POOL_NAME_BYTES_MAX: usize = 239;

/// Refuses a name that a pool cannot have.
pub(super) fn check_pool(name: &str) -> Result<(), Failure> {
    let invalid = |words: &str| Err(Failure::with(FailureKind::InvalidName, words));
    if name.len() > POOL_NAME_BYTES_MAX {
        return invalid("name is too long");
    }
    if let Some(c) = name.chars().find(|c| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_' | '.' | ':' | ' ')) {
        return Err(Failure::with(FailureKind::InvalidName, format!("invalid character '{c}' in pool name")));
    }
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return invalid("name must begin with a letter");
    }
    if RESERVED.contains(&name) || ["mirror", "raidz", "draid", "spare"].iter().any(|word| name.starts_with(word)) {
        return invalid("name is reserved");
    }
    Ok(())
}

/// Refuses a name that a file system or volume below a pool cannot have.
pub(super) fn check_dataset(name: &str) -> Result<(), Failure> {
    match DatasetName::parse(name) {
        Ok(parsed) if parsed.snapshot.is_some() || name.contains('%') || name.contains('$') => {
            Err(Failure::with(FailureKind::InvalidName, "invalid character in name"))
        }
        Ok(_) if !name.contains('/') => Err(Failure::with(FailureKind::InvalidName, "missing dataset name")),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NameTooLong => Err(Failure::with(FailureKind::NameTooLong, "name is too long")),
        Err(error) => Err(Failure::with(FailureKind::InvalidName, error.message())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_pools_and_datasets() {
        for good in ["tank", "t-1", "Tank.a:b c"] {
            assert_eq!(check_pool(good), Ok(()), "{good}");
        }
        for bad in ["", "1tank", "mirror", "raidz2", "tank/a", "tank@a", "log", "ta\u{e4}nk", &"a".repeat(240)] {
            assert!(check_pool(bad).is_err(), "{bad}");
        }
        assert_eq!(check_dataset("tank/a/b"), Ok(()));
        for bad in ["tank", "tank/a@b", "tank//a", "tank/$a", "tank/a%b", "tank/.."] {
            assert!(check_dataset(bad).is_err(), "{bad}");
        }
    }
}
