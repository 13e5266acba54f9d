//! Files of a dataset that this process has open.

use std::collections::HashSet;
use std::sync::Arc;

use tarnfs::{Credentials, Error, FileKind, FileSystem, InodeNumber, Pool, Seek, SetAttributes, SetTime, Stat, Time, WriteMode, XattrMode};

use super::tree::{Entry, Identity, Kind, Path, Result, Tree, components, join, last_name, shown};

/// As many links in a path are taken for a circle.
const LINKS_MAX: u32 = 40;

/// The files of a file system or snapshot.
pub(super) struct PoolTree {
    pool: Arc<Pool>,
    name: String,
    files: Option<Arc<FileSystem>>,
    /// The file that was used last.
    last: Option<(Vec<u8>, InodeNumber)>,
    /// Directories that were listed: each is in one other, once. In a damaged pool one may be in itself, and a walk would not end.
    listed: HashSet<InodeNumber>,
    changed: bool,
}

fn root() -> Credentials {
    Credentials { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw(), ..tarnfs::Credentials::default() }
}

fn entry_of(stat: &Stat) -> Entry {
    let kind = match stat.kind() {
        FileKind::Regular => Kind::Regular,
        FileKind::Directory => Kind::Directory,
        FileKind::SymbolicLink => Kind::SymbolicLink,
        _ => Kind::Special,
    };
    let time = |time: Time| (time.seconds, time.nanoseconds);
    Entry {
        kind,
        mode: stat.mode,
        inode: stat.inode,
        links: stat.links,
        device: stat.device,
        uid: stat.uid,
        gid: stat.gid,
        size: stat.size,
        allocated: stat.allocated,
        times: [time(stat.access_time), time(stat.modification_time), time(stat.change_time)],
    }
}

impl PoolTree {
    pub(super) fn new(pool: Arc<Pool>, name: &str) -> Result<PoolTree> {
        let files = pool.file_system(name).map_err(|error| match error.kind() {
            tarnfs::ErrorKind::NotFound => format!("{name}: dataset does not exist; 'tarn zdb -d' lists what the pool has"),
            _ => format!("{name}: {error}"),
        })?;
        Ok(PoolTree { pool, name: name.to_owned(), files: Some(files), last: None, listed: HashSet::new(), changed: false })
    }

    fn files(&self) -> &FileSystem {
        self.files.as_ref().expect("it is open until it is dropped")
    }

    fn failed(&self, path: Path<'_>, error: &Error) -> String {
        let words = match error.kind() {
            tarnfs::ErrorKind::NotFound => "No such file or directory".to_owned(),
            tarnfs::ErrorKind::NotDirectory => "Not a directory".to_owned(),
            tarnfs::ErrorKind::IsDirectory => "Is a directory".to_owned(),
            tarnfs::ErrorKind::Exists => "File exists".to_owned(),
            tarnfs::ErrorKind::ReadOnly => "Read-only file system".to_owned(),
            tarnfs::ErrorKind::NoSpace => "No space left on device".to_owned(),
            _ => error.message().to_owned(),
        };
        format!("{}: {words}", self.shown(path))
    }

    fn done<T>(&self, path: Path<'_>, result: std::result::Result<T, Error>) -> Result<T> {
        result.map_err(|error| self.failed(path, &error))
    }

    /// The file of that name in a directory.
    fn step(&self, directory: InodeNumber, name: &[u8]) -> std::result::Result<Stat, Error> {
        let stat = self.files().lookup(directory, name)?;
        self.files().forget(stat.inode, 1);
        Ok(stat)
    }

    /// Follows a path from the root; links in the middle too, the last one not.
    fn walk(&self, path: Path<'_>) -> Result<InodeNumber> {
        let mut waiting: Vec<Vec<u8>> = components(path).map(<[u8]>::to_vec).collect();
        waiting.reverse();
        let mut at = vec![self.files().root()];
        let mut links = 0;
        while let Some(name) = waiting.pop() {
            let directory = at.last().copied().unwrap_or_else(|| self.files().root());
            if name == b".." {
                if at.len() > 1 {
                    at.pop();
                }
                continue;
            }
            let stat = self.done(path, self.step(directory, &name))?;
            if stat.kind() == FileKind::SymbolicLink && !waiting.is_empty() {
                links += 1;
                if links > LINKS_MAX {
                    return Err(format!("{}:/{}: Too many levels of symbolic links", self.name, shown(path)));
                }
                let target = self.done(path, self.files().readlink(stat.inode))?;
                if target.starts_with(b"/") {
                    at.truncate(1);
                }
                let mut steps: Vec<Vec<u8>> = components(&target).map(<[u8]>::to_vec).collect();
                steps.reverse();
                waiting.extend(steps);
                continue;
            }
            at.push(stat.inode);
        }
        Ok(at.pop().unwrap_or_else(|| self.files().root()))
    }

    fn find(&mut self, path: Path<'_>) -> Result<InodeNumber> {
        if let Some((last, inode)) = &self.last
            && last == path
        {
            return Ok(*inode);
        }
        let inode = self.walk(path)?;
        self.last = Some((path.to_vec(), inode));
        Ok(inode)
    }

    /// The directory that a new thing is to be in, and its name there.
    fn parent<'a>(&self, path: Path<'a>) -> Result<(InodeNumber, &'a [u8])> {
        let name = last_name(path).ok_or_else(|| self.failed(path, &Error::new(tarnfs::ErrorKind::Exists, "")))?;
        let all: Vec<&[u8]> = components(path).collect();
        let above = all[..all.len() - 1].iter().fold(Vec::new(), |path, name| join(&path, name));
        // A link to a directory will do.
        let above = if above.is_empty() { above } else { join(&above, b".") };
        Ok((self.walk(&above)?, name))
    }

    fn note_change(&mut self, path: Path<'_>, inode: InodeNumber) {
        self.changed = true;
        self.last = Some((path.to_vec(), inode));
    }
}

impl Tree for PoolTree {
    fn entry(&mut self, path: Path<'_>) -> Result<Entry> {
        let inode = self.find(path)?;
        self.done(path, self.files().getattr(inode)).map(|stat| entry_of(&stat))
    }

    fn shown(&self, path: Path<'_>) -> String {
        format!("{}:/{}", self.name, shown(path))
    }

    fn identity(&mut self, path: Path<'_>) -> Option<Identity> {
        Some(Identity { place: self.name.clone(), inode: self.walk(path).ok()? })
    }

    fn names(&mut self, path: Path<'_>) -> Result<Vec<Vec<u8>>> {
        let inode = self.find(path)?;
        if !self.listed.insert(inode) {
            return Err(format!("{}: the pool is damaged: this directory is in itself, or has two names", self.shown(path)));
        }
        let mut names = Vec::new();
        let listed = self.files().read_directory(inode, 0, &mut |entry| {
            if !matches!(entry.name.as_slice(), b"." | b"..") {
                names.push(entry.name);
            }
            true
        });
        self.done(path, listed)?;
        names.sort();
        Ok(names)
    }

    fn read(&mut self, path: Path<'_>, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let inode = self.find(path)?;
        self.done(path, self.files().read_into(inode, offset, buffer))
    }

    fn next_data(&mut self, path: Path<'_>, offset: u64) -> Result<Option<u64>> {
        let inode = self.find(path)?;
        self.done(path, self.files().seek(inode, offset, Seek::Data))
    }

    fn link_target(&mut self, path: Path<'_>) -> Result<Vec<u8>> {
        let inode = self.find(path)?;
        self.done(path, self.files().readlink(inode))
    }

    fn attributes(&mut self, path: Path<'_>) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let inode = self.find(path)?;
        let names = self.done(path, self.files().listxattr(inode))?;
        names.into_iter().map(|name| Ok((name.clone(), self.done(path, self.files().getxattr(inode, &name))?))).collect()
    }

    fn make_directory(&mut self, path: Path<'_>, mode: u32) -> Result<()> {
        if let Ok(inode) = self.walk(path)
            && self.files().getattr(inode).is_ok_and(|stat| stat.kind() == FileKind::Directory)
        {
            return Ok(());
        }
        let (parent, name) = self.parent(path)?;
        let made = self.done(path, self.files().mkdir(parent, name, mode & 0o7777, &root()))?;
        self.files().forget(made.inode, 1);
        self.note_change(path, made.inode);
        Ok(())
    }

    fn make_file(&mut self, path: Path<'_>, mode: u32) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        let inode = match self.step(parent, name) {
            Ok(there) if there.kind() == FileKind::Regular => {
                self.done(path, self.files().truncate(there.inode, 0, &root()))?;
                there.inode
            }
            Ok(_) => return Err(self.failed(path, &Error::new(tarnfs::ErrorKind::Exists, ""))),
            Err(error) if error.kind() == tarnfs::ErrorKind::NotFound => {
                let made = self.done(path, self.files().create(parent, name, 0o100_000 | mode & 0o7777, 0, &root()))?;
                self.files().forget(made.inode, 1);
                made.inode
            }
            Err(error) => return Err(self.failed(path, &error)),
        };
        self.note_change(path, inode);
        Ok(())
    }

    fn make_special(&mut self, path: Path<'_>, mode: u32, device: u64) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        let made = self.done(path, self.files().create(parent, name, mode, device, &root()))?;
        self.files().forget(made.inode, 1);
        self.note_change(path, made.inode);
        Ok(())
    }

    fn make_link(&mut self, path: Path<'_>, target: &[u8]) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        let made = self.done(path, self.files().symlink(parent, name, target, &root()))?;
        self.files().forget(made.inode, 1);
        self.note_change(path, made.inode);
        Ok(())
    }

    fn make_hard_link(&mut self, path: Path<'_>, there: Path<'_>) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        let inode = self.walk(there)?;
        if self.step(parent, name).is_ok_and(|old| old.kind() != FileKind::Directory) {
            self.done(path, self.files().unlink(parent, name))?;
        }
        let made = self.done(path, self.files().link(inode, parent, name))?;
        self.files().forget(made.inode, 1);
        self.note_change(path, made.inode);
        Ok(())
    }

    fn write(&mut self, path: Path<'_>, offset: u64, data: &[u8]) -> Result<()> {
        let inode = self.find(path)?;
        self.changed = true;
        self.done(path, self.files().write(inode, WriteMode::At(offset), data, &root())).map(|_| ())
    }

    fn set_size(&mut self, path: Path<'_>, size: u64) -> Result<()> {
        let inode = self.find(path)?;
        self.changed = true;
        self.done(path, self.files().truncate(inode, size, &root()))
    }

    fn set_entry(&mut self, path: Path<'_>, entry: &Entry, attributes: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let inode = self.find(path)?;
        self.changed = true;
        for (name, value) in attributes {
            self.done(path, self.files().setxattr(inode, name, value, XattrMode::Any))?;
        }
        let time = |(seconds, nanoseconds): (i64, u32)| Some(SetTime::To(Time { seconds, nanoseconds }));
        let set = SetAttributes {
            mode: (entry.kind != Kind::SymbolicLink).then_some(entry.mode & 0o7777),
            uid: Some(entry.uid),
            gid: Some(entry.gid),
            access_time: time(entry.times[0]),
            modification_time: time(entry.times[1]),
            ..SetAttributes::default()
        };
        self.done(path, self.files().setattr(inode, &set, &root())).map(|_| ())
    }

    fn finish(&mut self) -> Result<()> {
        if !self.changed {
            return Ok(());
        }
        self.changed = false;
        self.pool.sync().map_err(|error| format!("{}: {error}", self.name))
    }
}
