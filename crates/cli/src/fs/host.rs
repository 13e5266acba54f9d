//! Files of this system.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;

use rustix::fs::{CWD, FileType, Mode, major, makedev, minor, mknodat};

use super::tree::{Entry, Identity, Kind, Path, Result, Tree, ancestors, shown};

/// Bits of a minor device number in an [`Entry`].
const MINOR_BITS: u32 = 20;

/// When a directory was made.
enum Made {
    Before,
    Now,
}

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

    /// Makes a directory, or takes the one that is there. The root may be a link to one, as the user named it; below it a link would lead out of it.
    fn create_directory(&self, path: Path<'_>) -> io::Result<Made> {
        let place = self.path(path);
        match fs::create_dir(&place) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let found = if path.is_empty() { fs::metadata(&place)? } else { fs::symlink_metadata(&place)? };
                if found.is_dir() { Ok(Made::Before) } else { Err(error) }
            }
            made => made.map(|()| Made::Now),
        }
    }

    /// Makes the directories above a path that are missing, and the root.
    pub(super) fn make_ancestors(&self, path: Path<'_>) -> Result<()> {
        self.done(b"", fs::create_dir_all(&self.root))?;
        ancestors(path).try_for_each(|above| self.done(above, self.create_directory(above)).map(|_| ()))
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

    /// Of a root that is a link, of what it leads to: that is what would be written.
    fn identity(&mut self, path: Path<'_>) -> Option<Identity> {
        let place = self.path(path);
        let found = if path.is_empty() { fs::metadata(place) } else { fs::symlink_metadata(place) }.ok()?;
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
        match self.done(path, self.create_directory(path))? {
            Made::Before => Ok(()),
            // Its owner must be able to fill it.
            Made::Now => self.done(path, fs::set_permissions(self.path(path), fs::Permissions::from_mode(mode & 0o777 | 0o700))),
        }
    }

    fn make_file(&mut self, path: Path<'_>, mode: u32) -> Result<()> {
        let place = self.path(path);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(mode & 0o777 | 0o200);
        // The root is what the user named, be it through a link or a device. What has a name below it may come from an earlier copy, whose owner chose
        // where it leads: the file takes its place.
        if !path.is_empty() {
            if fs::symlink_metadata(&place).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
                self.done(path, fs::remove_file(&place))?;
            }
            options.custom_flags(libc::O_NOFOLLOW);
        }
        let made = self.done(path, options.open(&place))?;
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn trees() -> (tempfile::TempDir, HostTree) {
        let place = tempfile::tempdir().unwrap();
        for name in ["copy", "elsewhere"] {
            fs::create_dir(place.path().join(name)).unwrap();
        }
        fs::write(place.path().join("elsewhere/file"), "precious").unwrap();
        let tree = HostTree::new(place.path().join("copy"));
        (place, tree)
    }

    /// A second copy went through the links of the first one: root wrote wherever a user had let a link lead.
    #[test]
    fn a_copy_does_not_go_through_links_below_its_root() {
        let (place, mut tree) = trees();
        symlink(place.path().join("elsewhere"), place.path().join("copy/d")).unwrap();
        symlink(place.path().join("elsewhere/file"), place.path().join("copy/f")).unwrap();
        assert!(tree.make_directory(b"d", 0o755).unwrap_err().contains("exists"));
        assert!(tree.make_ancestors(b"d/below/file").unwrap_err().contains("exists"));
        tree.make_file(b"f", 0o644).unwrap();
        tree.write(b"f", 0, b"copied").unwrap();
        assert_eq!(fs::read(place.path().join("elsewhere/file")).unwrap(), b"precious");
        assert_eq!(fs::read(place.path().join("copy/f")).unwrap(), b"copied");
        assert!(fs::symlink_metadata(place.path().join("copy/f")).unwrap().is_file());
        assert_eq!(fs::read_dir(place.path().join("elsewhere")).unwrap().count(), 1);
    }

    #[test]
    fn the_root_may_be_a_link_and_what_is_there_is_used() {
        let (place, _) = trees();
        let link = place.path().join("link");
        symlink(place.path().join("copy"), &link).unwrap();
        let mut tree = HostTree::new(link);
        tree.make_ancestors(b"a/b/file").unwrap();
        tree.make_directory(b"", 0o755).unwrap();
        tree.make_directory(b"a/b", 0o755).unwrap();
        tree.make_file(b"a/b/file", 0o644).unwrap();
        assert!(place.path().join("copy/a/b/file").is_file());
        let file = place.path().join("elsewhere/file");
        symlink(&file, place.path().join("named")).unwrap();
        HostTree::new(place.path().join("named")).make_file(b"", 0o644).unwrap();
        assert_eq!(fs::metadata(file).unwrap().len(), 0);
    }
}
