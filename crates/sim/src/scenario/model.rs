//! What POSIX says is in a file system.

use std::collections::{BTreeMap, HashMap};

use tarnfs::{FileSystem, InodeNumber};

/// A file of the model.
pub type NodeId = usize;

/// What a file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// Names and files.
    Directory(BTreeMap<Vec<u8>, NodeId>),
    /// Contents.
    File(Vec<u8>),
    /// Target.
    Symlink(Vec<u8>),
    /// A device, fifo or socket: its device number.
    Special(u64),
}

/// A file and its attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub node: Node,
    /// Type and permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Links.
    pub links: u64,
    /// The time of modification, if it was set.
    pub modified: Option<(i64, u32)>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// A file system. Node 0 is the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    entries: Vec<Entry>,
}

/// Of large contents only this much is read at once.
const READ_BYTES: usize = 4 << 20;

impl Default for Model {
    fn default() -> Self {
        Model::new()
    }
}

impl Model {
    /// An empty file system.
    pub fn new() -> Self {
        let root = Entry::new(Node::Directory(BTreeMap::new()), 0o040_755, 0, 0);
        Model { entries: vec![root] }
    }

    /// One file.
    pub fn entry(&self, id: NodeId) -> &Entry {
        &self.entries[id]
    }

    /// One file, to change it.
    pub fn entry_mut(&mut self, id: NodeId) -> &mut Entry {
        &mut self.entries[id]
    }

    /// A new file that no directory has yet.
    pub fn push(&mut self, entry: Entry) -> NodeId {
        self.entries.push(entry);
        self.entries.len() - 1
    }

    /// The names in a directory; `None` if it is none.
    pub fn names(&self, id: NodeId) -> Option<&BTreeMap<Vec<u8>, NodeId>> {
        match &self.entries[id].node {
            Node::Directory(names) => Some(names),
            _ => None,
        }
    }

    /// The names in a directory, to change them.
    pub fn names_mut(&mut self, id: NodeId) -> &mut BTreeMap<Vec<u8>, NodeId> {
        match &mut self.entries[id].node {
            Node::Directory(names) => names,
            _ => panic!("not a directory"),
        }
    }

    /// The file at `path` (names between slashes; the empty path is the root).
    pub fn find(&self, path: &str) -> Option<NodeId> {
        path.split('/').filter(|name| !name.is_empty()).try_fold(0, |at, name| self.names(at)?.get(name.as_bytes()).copied())
    }

    /// All directories that can be reached.
    pub fn directories(&self) -> Vec<NodeId> {
        let (mut found, mut at) = (vec![0], 0);
        while let Some(&id) = found.get(at) {
            found.extend(self.names(id).into_iter().flat_map(BTreeMap::values).filter(|&&id| self.names(id).is_some()));
            at += 1;
        }
        found
    }

    /// Whether `above` is `below` or a directory that it is somewhere in.
    pub fn is_below(&self, below: NodeId, above: NodeId) -> bool {
        below == above || self.names(above).is_some_and(|names| names.values().any(|&id| self.names(id).is_some() && self.is_below(below, id)))
    }

    /// How many names there are.
    pub fn count(&self) -> usize {
        self.directories().into_iter().filter_map(|id| self.names(id)).map(BTreeMap::len).sum()
    }

    /// Compares everything that can be reached with `fs`. Returns the inode of each file of the model.
    pub fn compare(&self, fs: &FileSystem, what: &str) -> HashMap<NodeId, InodeNumber> {
        let mut inodes = HashMap::new();
        let mut todo = vec![(0, fs.root(), String::new())];
        while let Some((id, inode, path)) = todo.pop() {
            let shown = format!("{what}: /{path} (inode {inode})");
            if let Some(known) = inodes.insert(id, inode) {
                assert_eq!(known, inode, "{shown}: two inodes for one file");
                continue;
            }
            self.compare_one(fs, id, inode, &shown);
            if let Some(names) = self.names(id) {
                let found = list(fs, inode, &shown);
                let missing: Vec<_> = names.keys().filter(|name| !found.contains_key(*name)).map(|name| name.escape_ascii().to_string()).take(10).collect();
                let surplus: Vec<_> = found.keys().filter(|name| !names.contains_key(*name)).map(|name| name.escape_ascii().to_string()).take(10).collect();
                assert!(missing.is_empty() && surplus.is_empty(), "{shown}: missing {missing:?}, too many {surplus:?}");
                for (name, id) in names {
                    todo.push((*id, found[name], format!("{path}/{}", name.escape_ascii())));
                }
            }
        }
        inodes
    }

    fn compare_one(&self, fs: &FileSystem, id: NodeId, inode: InodeNumber, shown: &str) {
        let entry = &self.entries[id];
        let stat = fs.getattr(inode).unwrap_or_else(|error| panic!("{shown}: {error}"));
        let (found, expected) = ((stat.mode, stat.uid, stat.gid, stat.links), (entry.mode, entry.uid, entry.gid, entry.links));
        assert_eq!(found, expected, "{shown}: mode {:o} != {:o}, owner, links", stat.mode, entry.mode);
        if let Some(modified) = entry.modified {
            let found = (stat.modification_time.seconds, stat.modification_time.nanoseconds);
            assert_eq!(found, modified, "{shown}: time of modification");
        }
        let size = match &entry.node {
            Node::Directory(names) => names.len() as u64 + 2,
            Node::File(data) => data.len() as u64,
            Node::Symlink(target) => target.len() as u64,
            Node::Special(device) => {
                assert_eq!(stat.device, *device, "{shown}: device");
                stat.size
            }
        };
        assert_eq!(stat.size, size, "{shown}: size");
        let listed = fs.listxattr(inode).unwrap_or_else(|error| panic!("{shown}: {error}"));
        assert!(listed.iter().eq(entry.xattrs.keys()), "{shown}: extended attributes {listed:?} != {:?}", entry.xattrs.keys());
        for (name, value) in &entry.xattrs {
            let found = fs.getxattr(inode, name).unwrap_or_else(|error| panic!("{shown}: {error}"));
            assert!(found == *value, "{shown}: extended attribute {}", name.escape_ascii());
        }
        match &entry.node {
            Node::File(data) => compare_contents(fs, inode, data, shown),
            Node::Symlink(target) => assert_eq!(&fs.readlink(inode).unwrap(), target, "{shown}"),
            Node::Directory(_) | Node::Special(_) => {}
        }
    }
}

fn compare_contents(fs: &FileSystem, inode: InodeNumber, data: &[u8], shown: &str) {
    for (number, expected) in data.chunks(READ_BYTES).enumerate() {
        let at = number * READ_BYTES;
        let found = fs.read(inode, at as u64, expected.len()).unwrap_or_else(|error| panic!("{shown}: reading at {at}: {error}"));
        assert_eq!(found.len(), expected.len(), "{shown}: bytes read at {at}");
        if found != expected {
            let first = found.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(0);
            let last = found.iter().zip(expected).rposition(|(a, b)| a != b).unwrap_or(0);
            panic!("{shown}: contents differ from {} to {} ({:#x} != {:#x})", at + first, at + last, found[first], expected[first]);
        }
    }
    assert!(fs.read(inode, data.len() as u64, 10).unwrap().is_empty(), "{shown}: there is something behind the end");
}

fn list(fs: &FileSystem, inode: InodeNumber, shown: &str) -> HashMap<Vec<u8>, InodeNumber> {
    let mut found = HashMap::new();
    let mut from = 2;
    // In portions, as a kernel asks, so that the cookies are tested too.
    loop {
        let mut left = 100;
        fs.read_directory(inode, from, &mut |entry| {
            left -= 1;
            from = entry.next;
            assert!(found.insert(entry.name.clone(), entry.inode).is_none(), "{shown}: twice: {}", entry.name.escape_ascii());
            left > 0
        })
        .unwrap_or_else(|error| panic!("{shown}: {error}"));
        if left > 0 {
            return found;
        }
    }
}

impl Entry {
    /// A new file.
    pub fn new(node: Node, mode: u32, uid: u32, gid: u32) -> Entry {
        let links = if matches!(node, Node::Directory(_)) { 2 } else { 1 };
        Entry { node, mode, uid, gid, links, modified: None, xattrs: BTreeMap::new() }
    }
}
