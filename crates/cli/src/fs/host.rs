//! Files of this system.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;

use rustix::fs::{CWD, FileType, Mode, major, makedev, minor, mknodat};

use super::tree::{Entry, Identity, Kind, Path, Result, Tree, shown};

/// Bits of a minor device number in an [`Entry`].
const MINOR_BITS: u32 = 20;

/// Files below a directory; or one file, when the path is empty.
pub(super) struct HostTree {
    root: PathBuf,
    /// The file that is being read or written.
    open: Option<(Vec<u8>, File)>,
}

impl HostTree {
    pub(super) fn new(root: PathBuf) -> HostTree {
        HostTree { root, open: None }
    }

    fn path(&self, path: Path<'_>) -> PathBuf {
        if path.is_empty() { self.root.clone() } else { self.root.join(OsStr::from_bytes(path)) }
    }

    fn failed(&self, path: Path<'_>, error: &io::Error) -> String {
        format!("{}: {error}", self.shown(path))
    }

    fn done<T>(&self, path: Path<'_>, result: io::Result<T>) -> Result<T> {
        result.map_err(|error| self.failed(path, &error))
    }

    fn file(&mut self, path: Path<'_>, write: bool) -> Result<&File> {
        if self.open.as_ref().is_none_or(|(open, _)| open != path) {
            let opened = OpenOptions::new().read(true).write(write).open(self.path(path));
            let opened = self.done(path, opened)?;
            self.open = Some((path.to_vec(), opened));
        }
        self.open.as_ref().map(|(_, file)| file).ok_or_else(|| "no file".to_owned())
    }
}

impl Tree for HostTree {
    fn entry(&mut self, path: Path<'_>) -> Result<Entry> {
        let found = self.done(path, fs::symlink_metadata(self.path(path)))?;
        let kind = match found.file_type() {
            kind if kind.is_file() => Kind::Regular,
            kind if kind.is_dir() => Kind::Directory,
            kind if kind.is_symlink() => Kind::SymbolicLink,
            _ => Kind::Special,
        };
        let time = |seconds: i64, nanoseconds: i64| (seconds, u32::try_from(nanoseconds).unwrap_or(0));
        Ok(Entry {
            kind,
            mode: found.mode(),
            inode: found.ino(),
            links: found.nlink(),
            device: u64::from(major(found.rdev())) << MINOR_BITS | u64::from(minor(found.rdev())),
            uid: found.uid(),
            gid: found.gid(),
            size: found.size(),
            allocated: found.blocks() * 512,
            times: [
                time(found.atime(), found.atime_nsec()),
                time(found.mtime(), found.mtime_nsec()),
                time(found.ctime(), found.ctime_nsec()),
            ],
        })
    }

    fn shown(&self, path: Path<'_>) -> String {
        shown(self.path(path).as_os_str().as_bytes())
    }

    /// Of what a link leads to: that is what would be written.
    fn identity(&mut self, path: Path<'_>) -> Option<Identity> {
        let found = fs::metadata(self.path(path)).ok()?;
        Some(Identity { place: format!("device {}", found.dev()), inode: found.ino() })
    }

    fn names(&mut self, path: Path<'_>) -> Result<Vec<Vec<u8>>> {
        let listed = fs::read_dir(self.path(path)).and_then(|entries| entries.map(|entry| Ok(entry?.file_name().into_vec())).collect());
        let mut names: Vec<Vec<u8>> = self.done(path, listed)?;
        names.sort();
        Ok(names)
    }

    fn read(&mut self, path: Path<'_>, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let read = self.file(path, false)?.read_at(buffer, offset);
        self.done(path, read)
    }

    fn next_data(&mut self, path: Path<'_>, offset: u64) -> Result<Option<u64>> {
        use rustix::fs::{SeekFrom, seek};
        match seek(self.file(path, false)?, SeekFrom::Data(offset)) {
            Ok(at) => Ok(Some(at)),
            Err(rustix::io::Errno::NXIO) => Ok(None),
            // Not every file system knows.
            Err(_) => Ok(Some(offset)),
        }
    }

    fn link_target(&mut self, path: Path<'_>) -> Result<Vec<u8>> {
        let target = fs::read_link(self.path(path));
        Ok(self.done(path, target)?.into_os_string().into_vec())
    }

    fn attributes(&mut self, path: Path<'_>) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        use rustix::fs::{lgetxattr, llistxattr};
        let place = self.path(path);
        let mut list = vec![0; 64 << 10];
        let Ok(length) = llistxattr(&place, &mut list) else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for name in list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let mut value = vec![0; 64 << 10];
            if let Ok(length) = lgetxattr(&place, OsStr::from_bytes(name), &mut value) {
                value.truncate(length);
                found.push((name.to_vec(), value));
            }
        }
        Ok(found)
    }

    fn make_directory(&mut self, path: Path<'_>, mode: u32) -> Result<()> {
        let place = self.path(path);
        match fs::create_dir(&place) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && place.is_dir() => Ok(()),
            other => {
                self.done(path, other)?;
                // Its owner must be able to fill it.
                self.done(path, fs::set_permissions(&place, fs::Permissions::from_mode(mode & 0o777 | 0o700)))
            }
        }
    }

    fn make_file(&mut self, path: Path<'_>, mode: u32) -> Result<()> {
        let place = self.path(path);
        let made = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(mode & 0o777 | 0o200).open(&place);
        let made = self.done(path, made)?;
        self.open = Some((path.to_vec(), made));
        Ok(())
    }

    fn make_special(&mut self, path: Path<'_>, mode: u32, device: u64) -> Result<()> {
        let kind = FileType::from_raw_mode(mode);
        let number = makedev((device >> MINOR_BITS) as u32, device as u32 & ((1 << MINOR_BITS) - 1));
        let made = mknodat(CWD, self.path(path), kind, Mode::from_raw_mode(mode & 0o7777), number).map_err(io::Error::from);
        self.done(path, made)
    }

    fn make_link(&mut self, path: Path<'_>, target: &[u8]) -> Result<()> {
        self.done(path, std::os::unix::fs::symlink(OsStr::from_bytes(target), self.path(path)))
    }

    fn make_hard_link(&mut self, path: Path<'_>, there: Path<'_>) -> Result<()> {
        if fs::symlink_metadata(self.path(path)).is_ok_and(|found| !found.is_dir()) {
            let removed = fs::remove_file(self.path(path));
            self.done(path, removed)?;
        }
        self.done(path, fs::hard_link(self.path(there), self.path(path)))
    }

    fn write(&mut self, path: Path<'_>, offset: u64, data: &[u8]) -> Result<()> {
        let written = self.file(path, true)?.write_all_at(data, offset);
        self.done(path, written)
    }

    fn set_size(&mut self, path: Path<'_>, size: u64) -> Result<()> {
        let set = self.file(path, true)?.set_len(size);
        self.done(path, set)
    }

    fn set_entry(&mut self, path: Path<'_>, entry: &Entry, attributes: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        use rustix::fs::{AtFlags, Timespec, Timestamps, XattrFlags, lsetxattr, utimensat};
        let place = self.path(path);
        self.open = None;
        // Users other than root remain the owners of what they copy.
        let _ = std::os::unix::fs::lchown(&place, Some(entry.uid), Some(entry.gid));
        for (name, value) in attributes {
            let _ = lsetxattr(&place, OsStr::from_bytes(name), value, XattrFlags::empty());
        }
        if entry.kind != Kind::SymbolicLink {
            self.done(path, fs::set_permissions(&place, fs::Permissions::from_mode(entry.mode & 0o7777)))?;
        }
        let time = |(seconds, nanoseconds): (i64, u32)| Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() };
        let times = Timestamps { last_access: time(entry.times[0]), last_modification: time(entry.times[1]) };
        let set = utimensat(rustix::fs::CWD, &place, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(io::Error::from);
        self.done(path, set)
    }

    fn finish(&mut self) -> Result<()> {
        self.open = None;
        Ok(())
    }
}
