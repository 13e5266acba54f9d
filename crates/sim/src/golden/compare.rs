//! Compares a subject with a manifest, file by file.

use std::collections::BTreeMap;

use anyhow::Result;

use super::describe::{describe_files, describe_volume};
use super::manifest::{DatasetRecord, FileRecord, Manifest};
use super::subject::{DatasetEntry, DatasetType, GoldenPool};

/// The differences that are kept in words; all are counted.
const DIFFERENCES_KEPT: usize = 20_000;

/// What the real OpenZFS lists of a dataset whose key is not loaded as of one whose key is.
const LISTED_PROPERTIES: &[&str] = &[
    "type", "creation", "used", "referenced", "compressratio", "createtxg", "guid", "origin", "encryption", "keyformat",
    "keylocation", "pbkdf2iters", "encryptionroot", "recordsize", "compression", "checksum", "copies", "volsize", "volblocksize",
    "version", "utf8only", "casesensitivity", "normalization",
];

/// What to compare beyond types, modes, owners, sizes, link counts, mtimes, xattrs, targets, devices and contents.
#[derive(Debug, Clone, Copy)]
pub struct Compare {
    /// Object numbers.
    pub inodes: bool,
    /// st_blocks.
    pub allocated: bool,
    /// `SEEK_DATA` and `SEEK_HOLE`.
    pub segments: bool,
    /// ctimes.
    pub changed: bool,
    /// Projects and the flags of FS_IOC_FSGETXATTR.
    pub projects: bool,
    /// These properties of each dataset, where the subject has them.
    pub properties: &'static [&'static str],
}

impl Compare {
    /// Everything that `manifest-diff -s` compares.
    pub const STRICT: Compare =
        Compare { inodes: true, allocated: true, segments: true, changed: true, projects: true, properties: &[] };
    /// As [`Compare::STRICT`], and what can be listed of a dataset without its key.
    pub const LISTED: Compare = Compare { properties: LISTED_PROPERTIES, ..Compare::STRICT };
    /// The aspects that are the same in any copy of the tree, by any writer.
    pub const CONTENTS: Compare =
        Compare { inodes: false, allocated: false, segments: false, changed: false, projects: true, properties: &[] };
    /// The aspects that can be seen through a mount.
    pub const MOUNTED: Compare =
        Compare { inodes: true, allocated: true, segments: true, changed: true, projects: false, properties: &[] };
}

/// The outcome.
#[derive(Debug, Default)]
pub struct Report {
    /// Datasets compared.
    pub datasets: u64,
    /// Files of any type compared, entries of large directories included.
    pub files_compared: u64,
    /// Bytes of content that the hashes cover.
    pub bytes_compared: u64,
    /// Properties compared.
    pub properties_compared: u64,
    /// Datasets that could not be looked into without their key.
    pub locked: u64,
    /// The differences: the first 20000.
    pub differences: Vec<String>,
    /// How many differences there are.
    pub differences_found: u64,
    /// Aspects that were not compared, and why.
    pub notes: Vec<String>,
}

impl Report {
    fn differs(&mut self, what: String) {
        self.differences_found += 1;
        if self.differences.len() < DIFFERENCES_KEPT {
            self.differences.push(what);
        }
    }

    /// Nothing differs, and something was compared.
    pub fn is_same(&self) -> bool {
        self.differences_found == 0 && self.files_compared > 0
    }
}

/// Compares `pool` with `manifest`. Fails only where the list of datasets cannot be had; all else is a difference.
pub fn compare(pool: &dyn GoldenPool, manifest: &Manifest, what: Compare) -> Result<Report> {
    let mut report = Report::default();
    let found = pool.datasets()?;
    // A pool that was imported under another name is the same pool.
    let strip = |name: &str, pool: &str| name.strip_prefix(pool).unwrap_or(name).to_owned();
    let own = pool.name();
    let mut found: BTreeMap<String, DatasetEntry> = found.into_iter().map(|entry| (strip(&entry.name, &own), entry)).collect();
    for expected in &manifest.datasets {
        let name = strip(&expected.name, &manifest.pool.name);
        match found.remove(&name) {
            Some(entry) => compare_dataset(pool, expected, &entry, what, &mut report),
            None => report.differs(format!("{}: {} is missing", expected.name, expected.kind)),
        }
    }
    for entry in found.values() {
        report.differs(format!("{}: {} is not in the manifest", entry.name, entry.kind.name()));
    }
    Ok(report)
}

fn compare_dataset(pool: &dyn GoldenPool, expected: &DatasetRecord, entry: &DatasetEntry, what: Compare, report: &mut Report) {
    let name = &expected.name;
    report.datasets += 1;
    if expected.kind != entry.kind.name() {
        report.differs(format!("{name}: type {} != {}", expected.kind, entry.kind.name()));
        return;
    }
    compare_properties(pool, expected, &entry.name, what, report);
    if expected.locked {
        report.notes.push(format!("{name}: its key is not loaded"));
    } else if let Some(error) = &expected.mount_error {
        report.notes.push(format!("{name}: the real OpenZFS does not mount it: {}", error.trim()));
    } else if let Some(files) = &expected.files {
        let found = pool.open_files(&entry.name).and_then(|found| describe_files(found.as_ref()));
        match found {
            Ok(found) => compare_files(name, files, &found, what, report),
            Err(error) if is_locked(expected, &error) => report.locked += 1,
            Err(error) => report.differs(format!("{name}: {error:#}")),
        }
    } else if let Some(content) = &expected.content {
        match pool.open_volume(&entry.name).and_then(|volume| describe_volume(volume.as_ref())) {
            Ok(found) if found == *content => {
                report.files_compared += 1;
                report.bytes_compared += content.size;
            }
            Ok(found) => report.differs(format!("{name}: volume {content:?} != {found:?}")),
            Err(error) if is_locked(expected, &error) => report.locked += 1,
            Err(error) => report.differs(format!("{name}: {error:#}")),
        }
    } else if entry.kind != DatasetType::Bookmark {
        report.notes.push(format!("{name}: the manifest does not say what is in it"));
    }
}

/// The dataset is encrypted, and the subject says that it has no key: then there is nothing to compare.
fn is_locked(expected: &DatasetRecord, error: &anyhow::Error) -> bool {
    let encrypted = expected.props.get("encryption").is_some_and(|value| value.value() != "off");
    let kind = error.downcast_ref::<engine::error::Error>().map(engine::error::Error::kind);
    encrypted && kind == Some(engine::error::ErrorKind::KeyNotLoaded)
}

fn compare_properties(pool: &dyn GoldenPool, expected: &DatasetRecord, name: &str, what: Compare, report: &mut Report) {
    for property in what.properties {
        let Some(value) = expected.props.get(*property) else { continue };
        match pool.property(name, property) {
            Ok(Some(found)) if found == value.value() => report.properties_compared += 1,
            Ok(Some(found)) => report.differs(format!("{name}: property {property} {} != {found}", value.value())),
            Ok(None) => {}
            Err(error) => report.differs(format!("{name}: property {property}: {error:#}")),
        }
    }
}

fn compare_files(dataset: &str, expected: &[FileRecord], found: &[FileRecord], what: Compare, report: &mut Report) {
    let mut others = BTreeMap::new();
    for record in found {
        match record.path_bytes() {
            Ok(path) => drop(others.insert(path, record)),
            Err(error) => report.differs(format!("{dataset}: {error:#}")),
        }
    }
    for record in expected {
        let path = match record.path_bytes() {
            Ok(path) => path,
            Err(error) => {
                report.differs(format!("{dataset}: {error:#}"));
                continue;
            }
        };
        let shown = format!("{dataset}: {}", path.escape_ascii());
        match others.remove(&path) {
            Some(other) => {
                compare_records(&shown, record, other, what, report);
                if let (Some(big), Some(other)) = (&record.big, &other.big) {
                    compare_sample(dataset, &big.sample, &other.sample, what, report);
                }
            }
            None => report.differs(format!("{shown}: missing")),
        }
    }
    for path in others.keys() {
        report.differs(format!("{dataset}: {}: not in the manifest", path.escape_ascii()));
    }
}

fn compare_sample(dataset: &str, expected: &[FileRecord], found: &[FileRecord], what: Compare, report: &mut Report) {
    if expected.len() != found.len() {
        report.differs(format!("{dataset}: {} samples of a large directory != {}", expected.len(), found.len()));
        return;
    }
    for (one, other) in expected.iter().zip(found) {
        let shown = format!("{dataset}: {}", one.path.as_deref().or(one.path_hex.as_deref()).unwrap_or("?"));
        if one.path != other.path || one.path_hex != other.path_hex {
            report.differs(format!("{shown}: path != {:?} {:?}", other.path, other.path_hex));
            continue;
        }
        compare_records(&shown, one, other, what, report);
    }
}

/// Compares one file. The destructuring makes a new field that nobody compares a compile error.
fn compare_records(shown: &str, one: &FileRecord, other: &FileRecord, what: Compare, report: &mut Report) {
    let FileRecord { path: _, path_hex: _, kind, mode, uid, gid, size, nlink, ino, mtime, ctime, alloc, xattrs, .. } = one;
    let FileRecord { target, target_hex, rdev, projid, xflags, data, sha256, pages_sha256, error, big, .. } = one;
    report.files_compared += 1 + big.as_ref().map_or(0, |big| big.entries);
    report.bytes_compared += if sha256.is_some() { *size } else { 0 };
    let mut check = |field: &str, compared: bool, same: bool, values: &dyn Fn() -> String| {
        if compared && !same {
            report.differs(format!("{shown}: {field} {}", values()));
        }
    };
    macro_rules! check {
        ($field:ident, $compared:expr) => {
            check(stringify!($field), $compared, *$field == other.$field, &|| format!("{:?} != {:?}", $field, other.$field));
        };
    }
    check!(kind, true);
    check!(mode, true);
    check!(uid, true);
    check!(gid, true);
    check!(size, true);
    check!(nlink, true);
    check!(mtime, true);
    check!(xattrs, true);
    check!(target, true);
    check!(target_hex, true);
    check!(rdev, true);
    check!(sha256, true);
    check!(pages_sha256, true);
    check!(error, true);
    check!(ino, what.inodes);
    check!(ctime, what.changed);
    check!(alloc, what.allocated);
    check!(data, what.segments);
    check!(projid, what.projects);
    check!(xflags, what.projects);
    // The samples are compared one by one.
    let summed =
        |record: &FileRecord| record.big.as_ref().map(|big| (big.entries, big.names_sha256.clone(), big.entries_sha256.clone()));
    check("big", true, summed(one) == summed(other), &|| format!("{:?} != {:?}", summed(one), summed(other)));
}
