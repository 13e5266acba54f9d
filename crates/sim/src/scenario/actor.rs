//! Does each operation to a file system and to its model.
//!
//! Paths are names between slashes from the root. An operation that the model allows must succeed; scenarios that expect
//! an error ask the file system itself ([`Actor::fs`]).

use std::collections::BTreeMap;

use tarnfs::{Credentials, FileSystem, InodeNumber, RenameMode, SetAttributes, SetTime, Stat, Time, WriteMode, XattrMode};

use super::model::{Entry, Model, Node, NodeId};

/// Works on one file system.
pub struct Actor<'a> {
    /// The file system.
    pub fs: &'a FileSystem,
    /// Its model.
    pub model: &'a mut Model,
    /// The user that does it all.
    pub user: Credentials,
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

impl<'a> Actor<'a> {
    pub(super) fn new(fs: &'a FileSystem, model: &'a mut Model) -> Self {
        Actor { fs, model, user: Credentials::root() }
    }

    /// The model's file at `path`.
    #[track_caller]
    pub fn id(&self, path: &str) -> NodeId {
        self.model.find(path).unwrap_or_else(|| panic!("the model has no {path}"))
    }

    /// The inode at `path`.
    #[track_caller]
    pub fn inode(&self, path: &str) -> InodeNumber {
        path.split('/').filter(|name| !name.is_empty()).fold(self.fs.root(), |at, name| {
            let stat = self.fs.lookup(at, name.as_bytes()).unwrap_or_else(|error| panic!("{path}: {error}"));
            self.fs.forget(stat.inode, 1);
            stat.inode
        })
    }

    fn add(&mut self, path: &str, node: Node, stat: &Stat) -> NodeId {
        let (directory, name) = split(path);
        let directory = self.id(directory);
        if matches!(node, Node::Directory(_)) {
            self.model.entry_mut(directory).links += 1;
        }
        self.model.entry_mut(directory).modified = None;
        let id = self.model.push(Entry::new(node, stat.mode, self.user.uid, self.user.gid));
        self.model.names_mut(directory).insert(name.as_bytes().to_vec(), id);
        id
    }

    /// An empty file. The inode stays held: [`FileSystem::forget`] lets go of it.
    #[track_caller]
    pub fn create_held(&mut self, path: &str) -> InodeNumber {
        let (directory, name) = split(path);
        let at = self.inode(directory);
        let stat = self.fs.create(at, name.as_bytes(), 0o100_644, 0, &self.user).unwrap_or_else(|error| panic!("create {path}: {error}"));
        assert_eq!(stat.mode, 0o100_644, "{path}");
        self.add(path, Node::File(Vec::new()), &stat);
        stat.inode
    }

    /// A file with contents.
    #[track_caller]
    pub fn file(&mut self, path: &str, data: &[u8]) {
        let inode = self.create_held(path);
        if !data.is_empty() {
            self.fs.write(inode, WriteMode::At(0), data, &self.user).unwrap_or_else(|error| panic!("write {path}: {error}"));
            let id = self.id(path);
            self.model.entry_mut(id).node = Node::File(data.to_vec());
        }
        self.fs.forget(inode, 1);
    }

    /// The model learns of a file that was made past it.
    #[track_caller]
    pub fn adopt(&mut self, path: &str, data: &[u8], mode: u32) {
        let stat = self.fs.getattr(self.inode(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(stat.mode, mode, "{path}");
        self.add(path, Node::File(data.to_vec()), &stat);
    }

    /// The model learns of an empty directory that was made past it.
    #[track_caller]
    pub fn adopt_directory(&mut self, path: &str) {
        let stat = self.fs.getattr(self.inode(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        self.add(path, Node::Directory(BTreeMap::new()), &stat);
    }

    /// A directory.
    #[track_caller]
    pub fn mkdir(&mut self, path: &str) {
        let (directory, name) = split(path);
        let at = self.inode(directory);
        let stat = self.fs.mkdir(at, name.as_bytes(), 0o755, &self.user).unwrap_or_else(|error| panic!("mkdir {path}: {error}"));
        self.fs.forget(stat.inode, 1);
        self.add(path, Node::Directory(BTreeMap::new()), &stat);
    }

    /// A symbolic link.
    #[track_caller]
    pub fn symlink(&mut self, path: &str, target: &[u8]) {
        let (directory, name) = split(path);
        let at = self.inode(directory);
        let stat = self.fs.symlink(at, name.as_bytes(), target, &self.user).unwrap_or_else(|error| panic!("symlink {path}: {error}"));
        self.fs.forget(stat.inode, 1);
        self.add(path, Node::Symlink(target.to_vec()), &stat);
    }

    /// A device, fifo or socket.
    #[track_caller]
    pub fn special(&mut self, path: &str, mode: u32, device: u64) {
        let (directory, name) = split(path);
        let at = self.inode(directory);
        let stat = self.fs.create(at, name.as_bytes(), mode, device, &self.user).unwrap_or_else(|error| panic!("mknod {path}: {error}"));
        self.fs.forget(stat.inode, 1);
        self.add(path, Node::Special(device), &stat);
    }

    /// A second name.
    #[track_caller]
    pub fn link(&mut self, old: &str, new: &str) {
        let (directory, name) = split(new);
        let (inode, at) = (self.inode(old), self.inode(directory));
        let stat = self.fs.link(inode, at, name.as_bytes()).unwrap_or_else(|error| panic!("link {old} {new}: {error}"));
        self.fs.forget(stat.inode, 1);
        let (id, directory) = (self.id(old), self.id(directory));
        self.model.entry_mut(id).links += 1;
        self.model.entry_mut(directory).modified = None;
        self.model.names_mut(directory).insert(name.as_bytes().to_vec(), id);
    }

    /// Writes at an offset.
    #[track_caller]
    pub fn write(&mut self, path: &str, offset: usize, data: &[u8]) {
        let inode = self.inode(path);
        self.fs.write(inode, WriteMode::At(offset as u64), data, &self.user).unwrap_or_else(|error| panic!("write {path}: {error}"));
        self.wrote(path, offset, data);
    }

    /// The model learns of a write.
    #[track_caller]
    pub fn wrote(&mut self, path: &str, offset: usize, data: &[u8]) {
        let id = self.id(path);
        let entry = self.model.entry_mut(id);
        entry.modified = None;
        let Node::File(bytes) = &mut entry.node else { panic!("{path} is no file") };
        if bytes.len() < offset + data.len() {
            bytes.resize(offset + data.len(), 0);
        }
        bytes[offset..offset + data.len()].copy_from_slice(data);
    }

    /// Sets the size.
    #[track_caller]
    pub fn truncate(&mut self, path: &str, size: usize) {
        let inode = self.inode(path);
        self.fs.truncate(inode, size as u64, &self.user).unwrap_or_else(|error| panic!("truncate {path}: {error}"));
        let id = self.id(path);
        let entry = self.model.entry_mut(id);
        entry.modified = None;
        let Node::File(bytes) = &mut entry.node else { panic!("{path} is no file") };
        bytes.resize(size, 0);
    }

    /// Makes a hole.
    #[track_caller]
    pub fn punch(&mut self, path: &str, offset: usize, length: usize) {
        let inode = self.inode(path);
        self.fs.punch_hole(inode, offset as u64, length as u64, &self.user).unwrap_or_else(|error| panic!("punch {path}: {error}"));
        let id = self.id(path);
        let entry = self.model.entry_mut(id);
        entry.modified = None;
        let Node::File(bytes) = &mut entry.node else { panic!("{path} is no file") };
        let end = bytes.len();
        bytes[offset.min(end)..(offset + length).min(end)].fill(0);
    }

    /// Takes a name away from a file; frees it with the last one.
    #[track_caller]
    pub fn unlink(&mut self, path: &str) {
        let (directory, name) = split(path);
        let at = self.inode(directory);
        self.fs.unlink(at, name.as_bytes()).unwrap_or_else(|error| panic!("unlink {path}: {error}"));
        self.remove_name(directory, name);
    }

    fn remove_name(&mut self, directory: &str, name: &str) {
        let directory = self.id(directory);
        self.model.entry_mut(directory).modified = None;
        let id = self.model.names_mut(directory).remove(name.as_bytes()).expect("the name");
        if self.model.names(id).is_some() {
            self.model.entry_mut(directory).links -= 1;
        } else {
            self.model.entry_mut(id).links -= 1;
            if self.model.entry(id).links == 0 {
                // Nobody looks at it any more.
                self.model.entry_mut(id).node = Node::Special(0);
            }
        }
    }

    /// Removes an empty directory.
    #[track_caller]
    pub fn rmdir(&mut self, path: &str) {
        let (directory, name) = split(path);
        let at = self.inode(directory);
        self.fs.rmdir(at, name.as_bytes()).unwrap_or_else(|error| panic!("rmdir {path}: {error}"));
        self.remove_name(directory, name);
    }

    /// Removes `path` with everything below it.
    #[track_caller]
    pub fn remove_all(&mut self, path: &str) {
        let names: Option<Vec<Vec<u8>>> = self.model.names(self.id(path)).map(|names| names.keys().cloned().collect());
        let Some(names) = names else { return self.unlink(path) };
        for name in names {
            self.remove_all(&format!("{path}/{}", String::from_utf8(name).expect("a name of a test")));
        }
        self.rmdir(path);
    }

    /// Renames; what has the new name is replaced.
    #[track_caller]
    pub fn rename(&mut self, old: &str, new: &str, mode: RenameMode) {
        let ((from, name), (to, new_name)) = (split(old), split(new));
        let (from_inode, to_inode) = (self.inode(from), self.inode(to));
        let renamed = self.fs.rename(from_inode, name.as_bytes(), to_inode, new_name.as_bytes(), mode);
        renamed.unwrap_or_else(|error| panic!("rename {old} {new} {mode:?}: {error}"));
        let moved = self.id(old);
        if self.model.find(new) == Some(moved) {
            return;
        }
        let (from_id, to_id) = (self.id(from), self.id(to));
        let other = self.model.find(new);
        if let (RenameMode::Replace, Some(_)) = (mode, other) {
            self.remove_name(to, new_name);
        }
        for directory in [from_id, to_id] {
            self.model.entry_mut(directory).modified = None;
        }
        self.model.names_mut(from_id).remove(name.as_bytes());
        self.model.names_mut(to_id).insert(new_name.as_bytes().to_vec(), moved);
        self.moved_links(moved, from_id, to_id);
        if let (RenameMode::Exchange, Some(other)) = (mode, other) {
            self.model.names_mut(from_id).insert(name.as_bytes().to_vec(), other);
            self.moved_links(other, to_id, from_id);
        }
    }

    fn moved_links(&mut self, moved: NodeId, from: NodeId, to: NodeId) {
        if self.model.names(moved).is_some() {
            self.model.entry_mut(from).links -= 1;
            self.model.entry_mut(to).links += 1;
        }
    }

    /// Permissions.
    #[track_caller]
    pub fn chmod(&mut self, path: &str, mode: u32) {
        let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        self.fs.setattr(self.inode(path), &set, &self.user).unwrap_or_else(|error| panic!("chmod {path}: {error}"));
        let id = self.id(path);
        let entry = self.model.entry_mut(id);
        entry.mode = entry.mode & 0o170_000 | mode;
    }

    /// Owner and group.
    #[track_caller]
    pub fn chown(&mut self, path: &str, uid: u32, gid: u32) {
        let set = SetAttributes { uid: Some(uid), gid: Some(gid), ..SetAttributes::default() };
        self.fs.setattr(self.inode(path), &set, &self.user).unwrap_or_else(|error| panic!("chown {path}: {error}"));
        let id = self.id(path);
        (self.model.entry_mut(id).uid, self.model.entry_mut(id).gid) = (uid, gid);
    }

    /// The time of modification.
    #[track_caller]
    pub fn utimens(&mut self, path: &str, seconds: i64, nanoseconds: u32) {
        let time = SetTime::To(Time { seconds, nanoseconds });
        let set = SetAttributes { modification_time: Some(time), access_time: Some(SetTime::Now), ..SetAttributes::default() };
        self.fs.setattr(self.inode(path), &set, &self.user).unwrap_or_else(|error| panic!("utimens {path}: {error}"));
        let id = self.id(path);
        self.model.entry_mut(id).modified = Some((seconds, nanoseconds));
    }

    /// Sets an extended attribute.
    #[track_caller]
    pub fn setxattr(&mut self, path: &str, name: &str, value: &[u8]) {
        let inode = self.inode(path);
        self.fs.setxattr(inode, name.as_bytes(), value, XattrMode::Any).unwrap_or_else(|error| panic!("setxattr {path} {name}: {error}"));
        let id = self.id(path);
        self.model.entry_mut(id).xattrs.insert(name.as_bytes().to_vec(), value.to_vec());
    }

    /// Removes an extended attribute.
    #[track_caller]
    pub fn removexattr(&mut self, path: &str, name: &str) {
        let inode = self.inode(path);
        self.fs.removexattr(inode, name.as_bytes()).unwrap_or_else(|error| panic!("removexattr {path} {name}: {error}"));
        let id = self.id(path);
        self.model.entry_mut(id).xattrs.remove(name.as_bytes());
    }
}
