//! The manifest: what the real OpenZFS says is in a pool.
//!
//! JSON, one record a line. Every field is named here and unknown ones are an error, so that a manifest that says
//! more than we compare is noticed.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::archive::read_text;

/// Above this size contents are summed up page by page ([`FileRecord::pages_sha256`]).
pub(crate) const HUGE_FILE: u64 = 64 << 20;
/// A directory with more entries than this is summed up ([`FileRecord::big`]).
pub(crate) const BIG_DIRECTORY: usize = 3000;

/// A manifest.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// 1.
    pub format: u32,
    /// The golden pool's name.
    pub name: String,
    /// The version that made it.
    pub zfs: String,
    /// The pool's properties and status.
    pub pool: PoolRecord,
    /// The image files.
    #[serde(default)]
    pub images: Vec<ImageRecord>,
    /// What is remarkable about the pool, in words.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Which key file belongs to which dataset.
    #[serde(default)]
    pub keys: Vec<KeyRecord>,
    /// Pool totals in bytes, before it was exported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space_before_export: Option<Space>,
    /// What `zdb` says: `clean`, or why not.
    #[serde(default)]
    pub zdb: String,
    /// How it was imported for this manifest.
    #[serde(default)]
    pub import: String,
    /// `zdb`'s exit status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zdb_status: Option<i64>,
    /// How each stream was sent and what it yields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<Value>,
    /// File systems, volumes, snapshots and bookmarks.
    pub datasets: Vec<DatasetRecord>,
}

/// The pool itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PoolRecord {
    /// Its name.
    pub name: String,
    /// Its properties.
    #[serde(default)]
    pub props: BTreeMap<String, Property>,
    /// `zpool status -j`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Value>,
}

/// An image file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ImageRecord {
    /// Its name.
    pub file: String,
    /// Its size in bytes (0: missing on purpose).
    #[serde(default)]
    pub size: u64,
    /// `ok`, or what was done to it.
    pub state: String,
    /// sha256 of all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// A dataset's key.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyRecord {
    /// The encryption root.
    pub dataset: String,
    /// The file in `keys/`.
    pub file: String,
}

/// Pool totals.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Space {
    /// `size`.
    pub size: u64,
    /// `allocated`.
    pub allocated: u64,
    /// `free`.
    pub free: u64,
}

/// A property: a plain value is a default or a fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Property {
    /// A default, or a fact that nobody set.
    Plain(String),
    /// Set or inherited.
    Set {
        /// The value.
        value: String,
        /// `local`, `received`, `inherited from …`.
        source: String,
    },
}

impl Property {
    /// The value alone.
    pub fn value(&self) -> &str {
        match self {
            Property::Plain(value) | Property::Set { value, .. } => value,
        }
    }
}

/// A file system, volume, snapshot or bookmark.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatasetRecord {
    /// The full name.
    pub name: String,
    /// Every property.
    #[serde(default)]
    pub props: BTreeMap<String, Property>,
    /// `filesystem`, `volume`, `snapshot`, `bookmark`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What is in a file system or a snapshot of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Vec<FileRecord>>,
    /// What is in a volume (`null`: not visible when the manifest was made).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Volume>,
    /// Its key was not loaded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub locked: bool,
    /// Why the real OpenZFS did not mount it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_error: Option<String>,
    /// `zfs userspace`: type, name, used, quota, objects used, object quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub userspace: Option<Vec<Vec<String>>>,
    /// The same for groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groupspace: Option<Vec<Vec<String>>>,
    /// The same for projects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub projectspace: Option<Vec<Vec<String>>>,
    /// A snapshot's holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<Value>,
    /// `zfs allow`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<Value>,
}

/// What kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileType {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    Chr,
    /// A block device.
    Blk,
}

impl FileType {
    /// The name in the manifest.
    pub fn name(self) -> &'static str {
        match self {
            FileType::File => "file",
            FileType::Dir => "dir",
            FileType::Symlink => "symlink",
            FileType::Fifo => "fifo",
            FileType::Socket => "socket",
            FileType::Chr => "chr",
            FileType::Blk => "blk",
        }
    }
}

/// A file of any type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRecord {
    /// Its path below the dataset's root, `.` for the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The same in hex, where it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_hex: Option<String>,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: FileType,
    /// Permissions with set-id and sticky bits, four octal digits.
    pub mode: String,
    /// Owner.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// Size in bytes (directories: number of entries and two).
    pub size: u64,
    /// Links.
    pub nlink: u64,
    /// Object number.
    pub ino: u64,
    /// Seconds and nanoseconds.
    pub mtime: (i64, u32),
    /// Seconds and nanoseconds.
    pub ctime: (i64, u32),
    /// st_blocks * 512.
    pub alloc: u64,
    /// Values in hex.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub xattrs: BTreeMap<String, String>,
    /// A symbolic link's target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The same in hex, where it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_hex: Option<String>,
    /// A device's major and minor number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rdev: Option<(u32, u32)>,
    /// The project, if not 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub projid: Option<u64>,
    /// FS_IOC_FSGETXATTR flags, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xflags: Option<u32>,
    /// Offset and length of each data segment, where the file has holes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Vec<(u64, u64)>>,
    /// sha256 of the contents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// sha256 of the non-zero pages and their numbers: files above 64 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages_sha256: Option<String>,
    /// The real OpenZFS cannot read it: which errno.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// A directory of more than 3000 entries, summed up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub big: Option<BigDirectory>,
}

impl FileRecord {
    /// The path's bytes.
    pub fn path_bytes(&self) -> Result<Vec<u8>> {
        match (&self.path, &self.path_hex) {
            (Some(path), None) => Ok(path.clone().into_bytes()),
            (None, Some(path)) => hex::decode(path).with_context(|| format!("path_hex {path}")),
            _ => anyhow::bail!("a record needs either path or path_hex"),
        }
    }
}

/// A large directory, summed up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BigDirectory {
    /// How many entries.
    pub entries: u64,
    /// sha256 over each name and LF, sorted by bytes.
    pub names_sha256: String,
    /// sha256 over name NUL type NUL size NUL (sha256 or target) LF.
    pub entries_sha256: String,
    /// Some of the entries.
    #[serde(default)]
    pub sample: Vec<FileRecord>,
}

/// What is in a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Volume {
    /// Bytes.
    pub size: u64,
    /// sha256 of all of it.
    pub sha256: String,
    /// Offset, length and sha256 of each MiB that is not all zeros.
    pub nonzero_mib: Vec<(u64, u64, String)>,
}

impl Manifest {
    /// Reads `path` (JSON, or JSON compressed with zstd if it ends in `.zst`).
    pub fn read(path: &Path) -> Result<Manifest> {
        Manifest::parse(&read_text(path)?).with_context(|| path.display().to_string())
    }

    /// Parses the JSON.
    pub fn parse(text: &str) -> Result<Manifest> {
        let manifest: Manifest = serde_json::from_str(text)?;
        ensure!(manifest.format == 1, "manifest format {}, not 1", manifest.format);
        Ok(manifest)
    }

    /// The dataset `name`.
    pub fn dataset(&self, name: &str) -> Option<&DatasetRecord> {
        self.datasets.iter().find(|dataset| dataset.name == name)
    }

    /// How many files the manifest describes, the entries of large directories included.
    pub fn files(&self) -> u64 {
        let files = self.datasets.iter().filter_map(|dataset| dataset.files.as_ref()).flatten();
        files.map(|file| 1 + file.big.as_ref().map_or(0, |big| big.entries)).sum()
    }
}
