//! The property `compatibility`: which features a pool keeps to.
//!
//! # Theory
//! `off`, or nothing: all. `legacy`: none. Else names of files with names of features, separated by white space or commas, a `#`
//! begins a comment; the pool may have what all the files name. A file is called by an absolute path, or is looked for in two
//! directories: that of the administrator, then that of the distribution. Those of the distribution may be newer than
//! this program, so features that nobody here knows are passed over in them, and an error elsewhere.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use ondisk::feature::Feature;

use super::{Failure, FailureKind};

const OF_ADMINISTRATOR: &str = "/etc/zfs/compatibility.d";
const OF_DISTRIBUTION: &str = "/usr/share/zfs/compatibility.d";
/// Larger files are no such lists.
const BYTES_MAX: u64 = 16 << 10;
/// So many files are enough for everybody.
const FILES_MAX: usize = 64;

/// What a pool may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allowed {
    /// Everything.
    All,
    /// These.
    These(Vec<Feature>),
}

impl Allowed {
    /// May the pool have this feature?
    #[must_use]
    pub fn allows(&self, feature: Feature) -> bool {
        match self {
            Allowed::All => true,
            Allowed::These(features) => features.contains(&feature),
        }
    }
}

/// What the property's value allows.
///
/// # Errors
/// `BadProperty`: a file is not there, is none, or names a feature that does not exist.
pub fn load(value: &str) -> Result<Allowed, Failure> {
    match value {
        "" | "off" => return Ok(Allowed::All),
        "legacy" => return Ok(Allowed::These(Vec::new())),
        _ => {}
    }
    let names: Vec<&str> = value.split(',').collect();
    if names.len() > FILES_MAX {
        return Err(bad(format!("compatibility: {} files are too many", names.len())));
    }
    let mut allowed: Vec<Feature> = Feature::all().collect();
    for name in names {
        let features = read(name)?;
        allowed.retain(|feature| features.contains(feature));
    }
    Ok(Allowed::These(allowed))
}

fn bad(words: String) -> Failure {
    Failure::with(FailureKind::BadProperty, words)
}

/// Where the file is, and whether it may name what we do not know.
fn find(name: &str) -> Option<(PathBuf, bool)> {
    if name.starts_with('/') {
        return Some((PathBuf::from(name), false));
    }
    if name.is_empty() || name.contains('/') {
        return None;
    }
    let places = [(OF_ADMINISTRATOR, false), (OF_DISTRIBUTION, true)];
    places.into_iter().map(|(directory, lenient)| (Path::new(directory).join(name), lenient)).find(|(path, _)| path.exists())
}

fn read(name: &str) -> Result<Vec<Feature>, Failure> {
    let Some((path, lenient)) = find(name) else {
        return Err(bad(format!("compatibility: there is no file '{name}' in {OF_ADMINISTRATOR} or {OF_DISTRIBUTION}")));
    };
    let failed = |error: std::io::Error| bad(format!("compatibility: {}: {error}", path.display()));
    let data = fs::metadata(&path).map_err(failed)?;
    // A FIFO would be waited for, as some files of /proc would, which have no length; and a device has no end.
    if !data.is_file() || !(1..=BYTES_MAX).contains(&data.len()) {
        return Err(bad(format!("compatibility: {} is no list of features", path.display())));
    }
    let mut text = String::new();
    File::open(&path).and_then(|file| file.take(BYTES_MAX).read_to_string(&mut text)).map_err(failed)?;
    parse(&text, lenient).map_err(|word| bad(format!("compatibility: {} names '{word}', which is no feature", path.display())))
}

/// The features named, or the first word that is none.
fn parse(text: &str, lenient: bool) -> Result<Vec<Feature>, String> {
    let mut features = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        for word in line.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty()) {
            match Feature::from_name(word) {
                Some(feature) => features.push(feature),
                None if lenient => {}
                None => return Err(word.to_owned()),
            }
        }
    }
    Ok(features)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_for_all_and_nothing() {
        assert_eq!(load(""), Ok(Allowed::All));
        assert_eq!(load("off"), Ok(Allowed::All));
        assert_eq!(load("legacy"), Ok(Allowed::These(Vec::new())));
        for wrong in ["../etc/passwd", "no-such-set-here", "/dev/zero", "/proc/kmsg", "/", ",", "legacy,off"] {
            assert_eq!(load(wrong).map_err(|failure| failure.kind), Err(FailureKind::BadProperty), "{wrong}");
        }
    }

    #[test]
    fn lists_are_words_and_comments() {
        let text = "# all\nasync_destroy,lz4_compress # two\n\t empty_bpobj\n";
        assert_eq!(parse(text, false), Ok(vec![Feature::AsyncDestroy, Feature::Lz4Compress, Feature::EmptyBpobj]));
        assert_eq!(parse("lz4_compress newer", false), Err("newer".to_owned()));
        assert_eq!(parse("lz4_compress newer", true), Ok(vec![Feature::Lz4Compress]));
    }

    #[test]
    fn files_are_intersected() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let (one, two) = (file("one", "async_destroy\nlz4_compress\n"), file("two", "lz4_compress\n"));
        let both = load(&format!("{one},{two}")).unwrap();
        assert!(both.allows(Feature::Lz4Compress) && !both.allows(Feature::AsyncDestroy));
        let large = file("large", &"#".repeat(BYTES_MAX as usize + 1));
        assert!(load(&large).unwrap_err().message.contains("no list of features"));
    }
}
