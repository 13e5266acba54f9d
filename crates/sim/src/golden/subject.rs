//! What can be compared with a manifest: anything that lists datasets and reads files.
//!
//! The traits are small on purpose: an inode number stands for a file, reads are by offset, nothing is cached. The
//! library implements them over its public API, [`super::MountedPool`] over a directory.

use anyhow::Result;

use super::manifest::FileType;

/// What a name in a pool stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DatasetType {
    /// A file system.
    FileSystem,
    /// A volume.
    Volume,
    /// A snapshot, of either.
    Snapshot,
    /// A bookmark.
    Bookmark,
}

impl DatasetType {
    /// The value of the `type` property.
    pub fn name(self) -> &'static str {
        match self {
            DatasetType::FileSystem => "filesystem",
            DatasetType::Volume => "volume",
            DatasetType::Snapshot => "snapshot",
            DatasetType::Bookmark => "bookmark",
        }
    }
}

/// A name in a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetEntry {
    /// The full name: `pool/a`, `pool/a@snapshot`, `pool/a#bookmark`.
    pub name: String,
    /// What it is.
    pub kind: DatasetType,
}

/// A file's attributes, as `stat` gives them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    /// Its type.
    pub kind: FileType,
    /// Permissions with set-id and sticky bits.
    pub mode: u32,
    /// Owner.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// st_size.
    pub size: u64,
    /// st_nlink.
    pub links: u64,
    /// st_ino.
    pub inode: u64,
    /// Seconds and nanoseconds.
    pub modified: (i64, u32),
    /// Seconds and nanoseconds.
    pub changed: (i64, u32),
    /// st_blocks * 512.
    pub allocated: u64,
    /// Major and minor number, of device files.
    pub device: Option<(u32, u32)>,
    /// The project (0: none). `None`: the subject cannot tell.
    pub project: Option<u64>,
    /// FS_IOC_FSGETXATTR's flags. `None`: the subject cannot tell.
    pub flags: Option<u32>,
}

/// What to look for in [`GoldenFiles::seek`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// The next data at or after an offset.
    Data,
    /// The next hole at or after an offset; the end of the file is one.
    Hole,
}

/// A pool that is open for reading.
pub trait GoldenPool {
    /// Its name.
    fn name(&self) -> String;
    /// Every file system, volume, snapshot and bookmark.
    fn datasets(&self) -> Result<Vec<DatasetEntry>>;
    /// Opens a file system or a snapshot of one, by full name.
    fn open_files<'a>(&'a self, name: &str) -> Result<Box<dyn GoldenFiles + 'a>>;
    /// Opens a volume or a snapshot of one.
    fn open_volume<'a>(&'a self, name: &str) -> Result<Box<dyn GoldenVolume + 'a>>;
    /// A dataset's property, as `zfs get -Hp` prints it. `None`: the subject does not have it.
    fn property(&self, name: &str, property: &str) -> Result<Option<String>>;
}

/// A file system that is open for reading.
pub trait GoldenFiles {
    /// The root directory's inode.
    fn root(&self) -> u64;
    /// All entries of a directory, without `.` and `..`, in any order.
    fn read_directory(&self, inode: u64) -> Result<Vec<(Vec<u8>, u64)>>;
    /// The inode of `name` in a directory.
    fn lookup(&self, inode: u64, name: &[u8]) -> Result<u64>;
    /// The attributes.
    fn attributes(&self, inode: u64) -> Result<Attributes>;
    /// Reads up to `buffer.len()` bytes; less only at the end of the file.
    fn read(&self, inode: u64, offset: u64, buffer: &mut [u8]) -> Result<usize>;
    /// `SEEK_DATA`, `SEEK_HOLE`: `None` past the last.
    fn seek(&self, inode: u64, offset: u64, what: Seek) -> Result<Option<u64>>;
    /// A symbolic link's target.
    fn read_link(&self, inode: u64) -> Result<Vec<u8>>;
    /// All extended attributes under their Linux names (`user.a`, `system.posix_acl_access`).
    fn xattrs(&self, inode: u64) -> Result<Vec<(String, Vec<u8>)>>;
}

/// A volume that is open for reading.
pub trait GoldenVolume {
    /// Its size in bytes.
    fn size(&self) -> Result<u64>;
    /// Reads up to `buffer.len()` bytes; less only at the end.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize>;
}
