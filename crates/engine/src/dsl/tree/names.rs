//! Names of datasets: `pool/a/b`, `pool/a/b@snapshot`, `pool/a/b#bookmark`.

use crate::bail;
use crate::error::Result;

/// The longest name, of all components with what separates them.
#[doc(alias = "ZFS_MAX_DATASET_NAME_LEN")]
pub const NAME_BYTES_MAX: usize = 255;
/// How deep the tree may be.
pub const NESTING_MAX: usize = 50;

/// A dataset's name, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatasetName<'a> {
    /// `pool/a/b`
    pub dir: &'a str,
    /// The snapshot, if it names one.
    pub snapshot: Option<&'a str>,
}

impl<'a> DatasetName<'a> {
    /// Takes a name apart, and checks it.
    pub fn parse(name: &'a str) -> Result<Self> {
        let (dir, snapshot) = match name.split_once('@') {
            Some((dir, snapshot)) => (dir, Some(snapshot)),
            None => (name, None),
        };
        if name.len() > NAME_BYTES_MAX {
            bail!(NameTooLong, "{name}: name is too long");
        }
        for component in dir.split('/').chain(snapshot) {
            check_component(name, component)?;
        }
        if dir.split('/').count() > NESTING_MAX {
            bail!(NameTooLong, "{name}: nested too deep");
        }
        Ok(DatasetName { dir, snapshot })
    }

    /// The components after the pool's name.
    pub fn below_pool(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.dir.split('/').skip(1)
    }

    /// The pool's name.
    pub fn pool(&self) -> &'a str {
        self.dir.split('/').next().unwrap_or(self.dir)
    }
}

/// The name of the directory above, and the last component.
pub fn split_parent(dir: &str) -> Option<(&str, &str)> {
    dir.rsplit_once('/')
}

fn check_component(name: &str, component: &str) -> Result<()> {
    if component.is_empty() {
        bail!(Invalid, "{name}: empty component in name");
    }
    if matches!(component, "." | "..") {
        bail!(Invalid, "{name}: component '{component}' is not allowed");
    }
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | ' ' | '%');
    // Names that begin with a dollar sign are the pool's own.
    let body = component.strip_prefix('$').unwrap_or(component);
    match body.chars().find(|c| !good(*c)) {
        Some(bad) => bail!(Invalid, "{name}: invalid character '{bad}' in name"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        let name = DatasetName::parse("tank/a/b@now").unwrap();
        assert_eq!((name.pool(), name.dir, name.snapshot), ("tank", "tank/a/b", Some("now")));
        assert_eq!(name.below_pool().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(split_parent("tank/a/b"), Some(("tank/a", "b")));
        assert_eq!(split_parent("tank"), None);
    }

    #[test]
    fn bad_names_are_refused() {
        for bad in ["", "/", "tank/", "tank//a", "tank/a@", "tank/a@b@c", "tank/a@b/c", "tank/a,b", "tank/..", "tank/ä"] {
            assert!(DatasetName::parse(bad).is_err(), "{bad}");
        }
        assert!(DatasetName::parse(&"a".repeat(256)).is_err());
        assert!(DatasetName::parse(&["a"; 51].join("/")).is_err());
        assert!(DatasetName::parse("$ORIGIN@$ORIGIN").is_ok());
    }
}
