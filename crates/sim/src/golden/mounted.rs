//! A pool that is mounted: each file system at a directory of the host.
//!
//! # Theory
//! The same comparison through the kernel judges the mount: `stat`, `readdir`, `read`, `lseek`, `listxattr` as any
//! program sees them. A path stands behind each inode number that was handed out; hard links share one. Everything is
//! done on the path without following symbolic links, and nothing is opened that is not a file or a directory.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;

use super::manifest::FileType;
use super::subject::{Attributes, DatasetEntry, DatasetType, GoldenFiles, GoldenPool, GoldenVolume, Seek};

/// No attribute's name list or value is larger on Linux.
const XATTR_BYTES_MAX: usize = 64 << 10;

/// A mounted pool: where each of its file systems and snapshots is.
#[derive(Debug)]
pub struct MountedPool {
    name: String,
    mounts: BTreeMap<String, PathBuf>,
}

impl MountedPool {
    /// The pool `name`, with `mounts`: full dataset name (snapshots too), directory.
    pub fn new(name: &str, mounts: impl IntoIterator<Item = (String, PathBuf)>) -> MountedPool {
        MountedPool { name: name.to_owned(), mounts: mounts.into_iter().collect() }
    }
}

impl GoldenPool for MountedPool {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn datasets(&self) -> Result<Vec<DatasetEntry>> {
        let kind = |name: &str| if name.contains('@') { DatasetType::Snapshot } else { DatasetType::FileSystem };
        Ok(self.mounts.keys().map(|name| DatasetEntry { name: name.clone(), kind: kind(name) }).collect())
    }

    fn open_files<'a>(&'a self, name: &str) -> Result<Box<dyn GoldenFiles + 'a>> {
        let path = self.mounts.get(name).with_context(|| format!("{name}: not mounted"))?;
        Ok(Box::new(MountedFiles::new(path)?))
    }

    fn open_volume<'a>(&'a self, name: &str) -> Result<Box<dyn GoldenVolume + 'a>> {
        bail!("{name}: a volume cannot be mounted")
    }

    fn property(&self, _name: &str, _property: &str) -> Result<Option<String>> {
        Ok(None)
    }
}

/// One directory tree. It must lie on one file system: what is mounted below is not entered.
struct MountedFiles {
    root: u64,
    device: u64,
    paths: Mutex<HashMap<u64, PathBuf>>,
}

impl MountedFiles {
    fn new(root: &Path) -> Result<MountedFiles> {
        let found = root.symlink_metadata().with_context(|| root.display().to_string())?;
        let paths = Mutex::new(HashMap::from([(found.ino(), root.to_path_buf())]));
        Ok(MountedFiles { root: found.ino(), device: found.dev(), paths })
    }

    fn path(&self, inode: u64) -> Result<PathBuf> {
        self.paths.lock().get(&inode).cloned().with_context(|| format!("inode {inode}: never seen"))
    }

    fn remember(&self, path: PathBuf) -> Result<u64> {
        let found = path.symlink_metadata().with_context(|| path.display().to_string())?;
        if found.dev() != self.device {
            bail!("{}: something else is mounted there", path.display());
        }
        self.paths.lock().entry(found.ino()).or_insert(path);
        Ok(found.ino())
    }

    fn open(&self, inode: u64) -> Result<std::fs::File> {
        let path = self.path(inode)?;
        let flags = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
        std::fs::OpenOptions::new().read(true).custom_flags(flags).open(&path).with_context(|| path.display().to_string())
    }
}

fn file_type(kind: std::fs::FileType) -> Result<FileType> {
    Ok(match kind {
        kind if kind.is_file() => FileType::File,
        kind if kind.is_dir() => FileType::Dir,
        kind if kind.is_symlink() => FileType::Symlink,
        kind if kind.is_fifo() => FileType::Fifo,
        kind if kind.is_socket() => FileType::Socket,
        kind if kind.is_char_device() => FileType::Chr,
        kind if kind.is_block_device() => FileType::Blk,
        kind => bail!("{kind:?}: no such file type"),
    })
}

impl GoldenFiles for MountedFiles {
    fn root(&self) -> u64 {
        self.root
    }

    fn read_directory(&self, inode: u64) -> Result<Vec<(Vec<u8>, u64)>> {
        let path = self.path(inode)?;
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(&path).with_context(|| path.display().to_string())? {
            let entry = entry?;
            let inode = self.remember(entry.path())?;
            entries.push((entry.file_name().into_vec(), inode));
        }
        Ok(entries)
    }

    fn lookup(&self, inode: u64, name: &[u8]) -> Result<u64> {
        self.remember(self.path(inode)?.join(OsStr::from_bytes(name)))
    }

    fn attributes(&self, inode: u64) -> Result<Attributes> {
        let path = self.path(inode)?;
        let found = path.symlink_metadata().with_context(|| path.display().to_string())?;
        let device = (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()));
        Ok(Attributes {
            kind: file_type(found.file_type())?,
            mode: found.mode() & 0o7777,
            uid: u64::from(found.uid()),
            gid: u64::from(found.gid()),
            size: found.size(),
            links: found.nlink(),
            inode: found.ino(),
            modified: (found.mtime(), found.mtime_nsec() as u32),
            changed: (found.ctime(), found.ctime_nsec() as u32),
            allocated: found.blocks() * 512,
            device: Some(device),
            project: None,
            flags: None,
        })
    }

    fn read(&self, inode: u64, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let file = self.open(inode)?;
        let mut done = 0;
        while done < buffer.len() {
            match file.read_at(&mut buffer[done..], offset + done as u64)? {
                0 => break,
                read => done += read,
            }
        }
        Ok(done)
    }

    fn seek(&self, inode: u64, offset: u64, what: Seek) -> Result<Option<u64>> {
        let file = self.open(inode)?;
        let to = match what {
            Seek::Data => rustix::fs::SeekFrom::Data(offset),
            Seek::Hole => rustix::fs::SeekFrom::Hole(offset),
        };
        match rustix::fs::seek(&file, to) {
            Ok(found) => Ok(Some(found)),
            Err(rustix::io::Errno::NXIO) => Ok(None),
            Err(error) => Err(std::io::Error::from(error).into()),
        }
    }

    fn read_link(&self, inode: u64) -> Result<Vec<u8>> {
        let path = self.path(inode)?;
        Ok(std::fs::read_link(&path).with_context(|| path.display().to_string())?.into_os_string().into_vec())
    }

    fn xattrs(&self, inode: u64) -> Result<Vec<(String, Vec<u8>)>> {
        let path = self.path(inode)?;
        let mut names = vec![0u8; XATTR_BYTES_MAX];
        let length = match rustix::fs::llistxattr(&path, &mut names[..]) {
            Ok(length) => length,
            Err(rustix::io::Errno::OPNOTSUPP) => return Ok(Vec::new()),
            Err(error) => return Err(std::io::Error::from(error)).with_context(|| path.display().to_string()),
        };
        let mut found = Vec::new();
        for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let mut value = vec![0u8; XATTR_BYTES_MAX];
            let length = rustix::fs::lgetxattr(&path, name, &mut value[..]).map_err(std::io::Error::from)?;
            value.truncate(length);
            found.push((String::from_utf8_lossy(name).into_owned(), value));
        }
        Ok(found)
    }
}
