//! The allowed contents of a file system, from the operations alone: nothing here asks the engine.
//!
//! # Theory
//! A [`World`] is what POSIX says is there after some operations. [`World::apply`] does one, or says that it cannot be done. The
//! contents and attributes of a file ([`Data`]) are kept apart from the names, because a crash can leave them at different times:
//! see `judge.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::op::{End, Op, bytes, split};

/// A file of the world; 0 is the root.
pub type NodeId = usize;

/// A file and its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// With entries.
    Directory(BTreeMap<String, NodeId>),
    /// With contents.
    File,
    /// With a target.
    Link(String),
}

/// The part of a file that operations on the file itself change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Data {
    /// Contents.
    pub contents: Vec<u8>,
    /// Permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Extended attributes.
    pub xattrs: BTreeMap<String, Vec<u8>>,
    /// The time of modification, in seconds, if it was set.
    pub modified: Option<i64>,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its kind.
    pub shape: Shape,
    /// Its names; of a directory, 2 and its subdirectories.
    pub links: u64,
    /// The rest.
    pub data: Arc<Data>,
}

impl Node {
    /// They are the same, but perhaps for the time of modification.
    fn is_like(&self, other: &Node) -> bool {
        let data = Data { modified: self.data.modified, ..(*other.data).clone() };
        (&self.shape, self.links, &*self.data) == (&other.shape, other.links, &data)
    }
}

/// All files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct World {
    nodes: Vec<Node>,
}

/// The class of an operation, which tells what may be lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// It changed names. A rename takes what was done to the file with it, an exchange what was done to both.
    Names {
        /// The files that were renamed, or got a second name.
        renamed: Vec<NodeId>,
        /// Directories and files that it changed.
        touched: Vec<NodeId>,
    },
    /// It changed one file.
    Data(NodeId),
    /// Everything before it is safe when it returns.
    Sync,
    /// All names, and everything that was done to this file, are safe when it returns.
    Fsync(NodeId),
    /// It changed all of these, or none; `durable`: everything up to it is safe when it returns.
    Transaction {
        /// The files that it changed.
        files: Vec<NodeId>,
        /// Whether it waited.
        durable: bool,
    },
    /// It changed nothing.
    Nothing,
}

impl Effect {
    /// When it returns, everything is safe.
    pub fn makes_safe(&self) -> bool {
        matches!(self, Effect::Sync | Effect::Transaction { durable: true, .. })
    }
}

impl Default for World {
    fn default() -> Self {
        World { nodes: vec![new_node(Shape::Directory(BTreeMap::new()), 0o755)] }
    }
}

fn new_node(shape: Shape, mode: u32) -> Node {
    let links = if matches!(shape, Shape::Directory(_)) { 2 } else { 1 };
    let data = Data { contents: Vec::new(), mode, uid: 0, gid: 0, xattrs: BTreeMap::new(), modified: None };
    Node { shape, links, data: Arc::new(data) }
}

impl World {
    /// These files, of which the first is the root.
    pub fn of(nodes: Vec<Node>) -> World {
        World { nodes }
    }

    /// One file.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id]
    }

    /// How many files there have ever been.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Never true: there is a root.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The file at `path`.
    pub fn find(&self, path: &str) -> Option<NodeId> {
        path.split('/').filter(|name| !name.is_empty()).try_fold(0, |at, name| self.names(at)?.get(name).copied())
    }

    /// The entries of a directory.
    pub fn names(&self, id: NodeId) -> Option<&BTreeMap<String, NodeId>> {
        match &self.nodes[id].shape {
            Shape::Directory(names) => Some(names),
            _ => None,
        }
    }

    /// All paths, and what they are.
    pub fn paths(&self) -> Vec<(String, NodeId)> {
        let mut found = vec![(String::new(), 0)];
        let mut at = 0;
        while let Some((path, id)) = found.get(at).cloned() {
            for (name, id) in self.names(id).into_iter().flatten() {
                found.push((if path.is_empty() { name.clone() } else { format!("{path}/{name}") }, *id));
            }
            at += 1;
        }
        found
    }

    fn is_file(&self, id: NodeId) -> bool {
        self.nodes[id].shape == Shape::File
    }

    fn is_directory(&self, id: NodeId) -> bool {
        matches!(self.nodes[id].shape, Shape::Directory(_))
    }

    fn is_below(&self, below: NodeId, above: NodeId) -> bool {
        below == above || self.names(above).is_some_and(|names| names.values().any(|id| self.is_below(below, *id)))
    }

    fn names_mut(&mut self, id: NodeId) -> &mut BTreeMap<String, NodeId> {
        match &mut self.nodes[id].shape {
            Shape::Directory(names) => names,
            _ => panic!("not a directory"),
        }
    }

    fn parent(&self, path: &str) -> Option<NodeId> {
        self.find(split(path).0).filter(|id| self.is_directory(*id))
    }

    fn make(&mut self, path: &str, shape: Shape, mode: u32) -> Option<Effect> {
        let parent = self.parent(path)?;
        if self.find(path).is_some() {
            return None;
        }
        let id = self.nodes.len();
        self.nodes.push(new_node(shape, mode));
        self.nodes[parent].links += u64::from(self.is_directory(id));
        self.names_mut(parent).insert(split(path).1.to_owned(), id);
        Some(Effect::Names { renamed: Vec::new(), touched: vec![parent, id] })
    }

    fn remove(&mut self, path: &str, directory: bool) -> Option<Effect> {
        let (parent, id) = (self.parent(path)?, self.find(path)?);
        if id == 0 || self.is_directory(id) != directory || self.names(id).is_some_and(|names| !names.is_empty()) {
            return None;
        }
        self.names_mut(parent).remove(split(path).1);
        let changed = if directory { parent } else { id };
        self.nodes[changed].links -= 1;
        Some(Effect::Names { renamed: Vec::new(), touched: vec![parent, id] })
    }

    fn link(&mut self, old: &str, new: &str) -> Option<Effect> {
        let (id, parent) = (self.find(old)?, self.parent(new)?);
        if self.is_directory(id) || self.find(new).is_some() {
            return None;
        }
        self.nodes[id].links += 1;
        self.names_mut(parent).insert(split(new).1.to_owned(), id);
        Some(Effect::Names { renamed: vec![id], touched: vec![parent, id] })
    }

    fn rename(&mut self, old: &str, new: &str) -> Option<Effect> {
        let (from, moved, to) = (self.parent(old)?, self.find(old)?, self.parent(new)?);
        let other = self.find(new);
        if moved == 0 || other == Some(moved) || self.is_below(to, moved) {
            return None;
        }
        if let Some(other) = other {
            if self.is_directory(other) != self.is_directory(moved) {
                return None;
            }
            self.remove(new, self.is_directory(other))?;
        }
        self.names_mut(from).remove(split(old).1);
        self.names_mut(to).insert(split(new).1.to_owned(), moved);
        self.moved_links(moved, from, to);
        Some(Effect::Names { renamed: vec![moved], touched: [from, to, moved].into_iter().chain(other).collect() })
    }

    fn exchange(&mut self, one: &str, two: &str) -> Option<Effect> {
        let (from, to) = (self.parent(one)?, self.parent(two)?);
        let (first, second) = (self.find(one)?, self.find(two)?);
        if first == second || self.is_below(to, first) || self.is_below(from, second) {
            return None;
        }
        self.names_mut(from).insert(split(one).1.to_owned(), second);
        self.names_mut(to).insert(split(two).1.to_owned(), first);
        self.moved_links(first, from, to);
        self.moved_links(second, to, from);
        Some(Effect::Names { renamed: vec![first, second], touched: vec![from, to, first, second] })
    }

    fn moved_links(&mut self, moved: NodeId, from: NodeId, to: NodeId) {
        if self.is_directory(moved) {
            self.nodes[from].links -= 1;
            self.nodes[to].links += 1;
        }
    }

    fn change(&mut self, path: &str, contents: bool, change: impl FnOnce(&mut Data)) -> Option<Effect> {
        let id = self.find(path)?;
        if (contents && !self.is_file(id)) || matches!(self.nodes[id].shape, Shape::Link(_)) {
            return None;
        }
        let data = Arc::make_mut(&mut self.nodes[id].data);
        if contents {
            data.modified = None;
        }
        change(data);
        Some(Effect::Data(id))
    }

    fn write(&mut self, path: &str, offset: usize, new: &[u8]) -> Option<Effect> {
        self.change(path, true, |data| {
            let end = offset + new.len();
            data.contents.resize(data.contents.len().max(end), 0);
            data.contents[offset..end].copy_from_slice(new);
        })
    }

    /// Does one operation; `None`: it cannot be done, and nothing has changed.
    pub fn apply(&mut self, op: &Op) -> Option<Effect> {
        match op {
            Op::Create { path } => self.make(path, Shape::File, 0o644),
            Op::Mkdir { path } => self.make(path, Shape::Directory(BTreeMap::new()), 0o755),
            Op::Symlink { path, target } => self.make(path, Shape::Link(target.clone()), 0o777),
            Op::Link { old, new } => self.link(old, new),
            Op::Unlink { path } => self.remove(path, false),
            Op::Rmdir { path } => self.remove(path, true),
            Op::Rename { old, new } => self.rename(old, new),
            Op::Exchange { one, two } => self.exchange(one, two),
            Op::Write { path, offset, length, seed } => self.write(path, *offset, &bytes(*seed, *length)),
            Op::Truncate { path, size } => self.change(path, true, |data| data.contents.resize(*size, 0)),
            Op::Punch { path, offset, length } => self.change(path, true, |data| {
                let end = data.contents.len();
                data.contents[(*offset).min(end)..(offset + length).min(end)].fill(0);
            }),
            Op::Chmod { path, mode } => self.change(path, false, |data| data.mode = *mode),
            Op::Chown { path, uid, gid } => self.change(path, false, |data| (data.uid, data.gid) = (*uid, *gid)),
            Op::Utimes { path, seconds } => self.change(path, true, |data| data.modified = Some(*seconds)),
            Op::SetXattr { path, name, length, seed } => self.change(path, false, |data| {
                data.xattrs.insert(name.clone(), bytes(*seed, *length));
            }),
            Op::RemoveXattr { path, name } => {
                let id = self.find(path)?;
                self.nodes[id].data.xattrs.get(name)?;
                self.change(path, false, |data| drop(data.xattrs.remove(name)))
            }
            Op::Clone { from, to } => {
                let (source, target) = (self.find(from)?, self.find(to)?);
                if source == target || !self.is_file(source) {
                    return None;
                }
                let contents = self.nodes[source].data.contents.clone();
                if contents.len() < self.nodes[target].data.contents.len() {
                    return None;
                }
                self.write(to, 0, &contents)
            }
            Op::Fsync { path } => self.find(path).map(Effect::Fsync),
            Op::Sync => Some(Effect::Sync),
            Op::Scrub | Op::Evacuate { .. } => Some(Effect::Nothing),
            Op::Transaction { ops, end } => self.transaction(ops, *end),
        }
    }

    fn transaction(&mut self, ops: &[Op], end: End) -> Option<Effect> {
        let (mut after, mut files) = (self.clone(), Vec::new());
        for op in ops {
            match after.apply(op)? {
                Effect::Names { touched, .. } => files.extend(touched),
                Effect::Data(file) => files.push(file),
                _ => return None,
            }
        }
        if end == End::Abort {
            return Some(Effect::Nothing);
        }
        // A hole punched where nothing is leaves nothing that could be there or not.
        files.retain(|id| self.nodes.get(*id).is_none_or(|before| !before.is_like(&after.nodes[*id])));
        *self = after;
        Some(Effect::Transaction { files, durable: end == End::Durable })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `random:2026112448`, state 107.5: a change of owner without a sync was missed, as the transaction behind it had punched
    /// a hole into that file, which was empty.
    #[test]
    fn a_transaction_has_changed_what_is_different_behind_it() {
        let mut world = World::default();
        let path = || "f".to_owned();
        world.apply(&Op::Create { path: path() }).unwrap();
        let punch = || Op::Transaction { ops: vec![Op::Punch { path: path(), offset: 0, length: 100 }], end: End::Commit };
        assert_eq!(world.apply(&punch()), Some(Effect::Transaction { files: vec![], durable: false }));
        world.apply(&Op::Write { path: path(), offset: 0, length: 10, seed: 1 }).unwrap();
        assert_eq!(world.apply(&punch()), Some(Effect::Transaction { files: vec![1], durable: false }));
    }
}
