//! Is what a crash left behind something that it may have left?
//!
//! # Theory
//! As the disks are (`before replay`), the file system is what it was at the end of some transaction group: the last one that was
//! acknowledged, or the one under way.
//!
//! After the intent log is replayed there is more, as OpenZFS promises it. Records of names are logged in their order, so the names
//! are those after the first N operations, where N is not less than the last acknowledged `fsync` of anything. What was done to one file
//! is logged in its order too, but only when that file is synced, renamed or linked (the record of that comes after those of the
//! file): so each file's data is what it was after the first M operations, M being its own. A record of a write holds what the file held
//! when the *log* was written, so a file that was renamed or linked and then written may be a mixture of its versions, byte by byte.

use std::collections::BTreeMap;
use std::sync::Arc;

use tarnfs::{Error, FileKind, FileSystem, InodeNumber};

use super::disk::Event;
use super::op::Op;
use super::run::Story;
use super::world::{Data, Effect, Node, NodeId, Shape, World};

/// The contents of a real file system, in the words of the model. `Data::modified` is always there.
pub struct Seen {
    nodes: Vec<SeenNode>,
}

struct SeenNode {
    inode: InodeNumber,
    shape: Shape,
    links: u64,
    size: u64,
    data: Data,
}

impl Seen {
    /// Reads everything.
    ///
    /// # Errors
    /// Something cannot be read.
    pub fn read(fs: &FileSystem) -> Result<Seen, Error> {
        Self::read_below(fs, fs.root())
    }

    /// Reads everything below a directory, as if that were the root.
    ///
    /// # Errors
    /// Something cannot be read.
    pub fn read_below(fs: &FileSystem, root: InodeNumber) -> Result<Seen, Error> {
        let mut seen = Seen { nodes: vec![SeenNode::read(fs, root)?] };
        let mut by_inode = BTreeMap::from([(root, 0)]);
        let mut at = 0;
        while at < seen.nodes.len() {
            if let Shape::Directory(_) = seen.nodes[at].shape {
                let mut entries = Vec::new();
                fs.read_directory(seen.nodes[at].inode, 2, &mut |entry| {
                    entries.push((String::from_utf8_lossy(&entry.name).into_owned(), entry.inode));
                    true
                })?;
                let mut names = BTreeMap::new();
                for (name, inode) in entries {
                    let known = by_inode.get(&inode).copied();
                    if known.is_none() {
                        by_inode.insert(inode, seen.nodes.len());
                        seen.nodes.push(SeenNode::read(fs, inode)?);
                    }
                    names.insert(name, known.unwrap_or(seen.nodes.len() - 1));
                }
                seen.nodes[at].shape = Shape::Directory(names);
            }
            at += 1;
        }
        Ok(seen)
    }

    /// The world as it is here.
    pub fn world(&self) -> World {
        let node = |seen: &SeenNode| Node { shape: seen.shape.clone(), links: seen.links, data: Arc::new(Data { modified: None, ..seen.data.clone() }) };
        World::of(self.nodes.iter().map(node).collect())
    }

    /// Which file of the world each file is, if the names are the same.
    fn fit(&self, world: &World) -> Result<Vec<(usize, NodeId)>, String> {
        let mut pairs = vec![(0, 0, String::new())];
        let mut partner: BTreeMap<usize, NodeId> = BTreeMap::from([(0, 0)]);
        let mut at = 0;
        while at < pairs.len() {
            let (own, id, path) = pairs[at].clone();
            let (seen, node) = (&self.nodes[own], world.node(id));
            if seen.links != node.links {
                return Err(format!("/{path}: {} links, not {}", seen.links, node.links));
            }
            match (&seen.shape, &node.shape) {
                (Shape::Directory(found), Shape::Directory(names)) => {
                    if !found.keys().eq(names.keys()) {
                        return Err(format!("/{path}: {:?}, not {:?}", found.keys(), names.keys()));
                    }
                    if seen.size != names.len() as u64 + 2 {
                        return Err(format!("/{path}: the size {} of {} entries", seen.size, names.len()));
                    }
                    for (name, own) in found {
                        let (id, path) = (names[name], format!("{path}/{name}"));
                        match partner.insert(*own, id) {
                            None => pairs.push((*own, id, path)),
                            Some(other) if other != id => return Err(format!("/{path} is another file")),
                            Some(_) => {}
                        }
                    }
                }
                (found, shape) if found == shape => {}
                (found, shape) => return Err(format!("/{path}: {found:?}, not {shape:?}")),
            }
            at += 1;
        }
        let one_to_one = pairs.len() == pairs.iter().map(|pair| pair.1).collect::<std::collections::BTreeSet<_>>().len();
        if one_to_one { Ok(pairs.into_iter().map(|(own, id, _)| (own, id)).collect()) } else { Err("two files where one has two names".into()) }
    }
}

impl SeenNode {
    fn read(fs: &FileSystem, inode: InodeNumber) -> Result<SeenNode, Error> {
        let stat = fs.getattr(inode)?;
        let mut data = Data {
            contents: Vec::new(),
            mode: stat.mode & 0o7777,
            uid: stat.uid,
            gid: stat.gid,
            xattrs: BTreeMap::new(),
            modified: Some(stat.modification_time.seconds),
        };
        for name in fs.listxattr(inode)? {
            let value = fs.getxattr(inode, &name)?;
            data.xattrs.insert(String::from_utf8_lossy(&name).into_owned(), value);
        }
        let shape = match stat.kind() {
            FileKind::Directory => Shape::Directory(BTreeMap::new()),
            FileKind::SymbolicLink => Shape::Link(String::from_utf8_lossy(&fs.readlink(inode)?).into_owned()),
            _ => {
                data.contents = fs.read(inode, 0, stat.size as usize)?;
                Shape::File
            }
        };
        Ok(SeenNode { inode, shape, links: stat.links, size: stat.size, data })
    }
}

fn data_fits(seen: &SeenNode, is_root: bool, data: &Data) -> bool {
    let same_attributes = seen.data.uid == data.uid && seen.data.gid == data.gid && seen.data.mode == data.mode;
    let is_file = seen.shape == Shape::File;
    // The root directory belongs to the user that runs the tests.
    (same_attributes || is_root)
        && seen.data.xattrs == data.xattrs
        && seen.data.contents == data.contents
        && (!is_file || seen.size == data.contents.len() as u64)
        && data.modified.is_none_or(|modified| seen.data.modified == Some(modified))
}

/// The promises that had been made at a cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promises {
    /// Operations that had begun.
    pub begun: usize,
    /// Operations that had ended.
    pub ended: usize,
}

impl Promises {
    /// At the cut just before event `cut`.
    pub fn at(story: &Story, cut: usize) -> Promises {
        let mut promises = Promises { begun: 0, ended: 0 };
        for event in &story.events[..cut] {
            match event {
                Event::Begin(number) => promises.begun = number + 1,
                Event::End(number) => promises.ended = number + 1,
                _ => {}
            }
        }
        promises
    }

    /// Nothing was promised: a disk that lies is allowed any state that there was.
    #[must_use]
    pub fn broken(self) -> Promises {
        Promises { ended: 0, ..self }
    }

    /// The groups that may be the last on disk, as how many operations they hold.
    fn groups(self, story: &Story) -> Vec<usize> {
        let ends = |number: &usize| story.ops[*number].ends_a_group();
        let promises = |number: &usize| match story.effects[*number] {
            Effect::Fsync(_) => !story.log,
            ref effect => effect.makes_safe(),
        };
        let safe = (0..self.ended).rev().find(promises);
        let first = safe.unwrap_or(0);
        // What shares blocks has the group end before it, all else in it.
        let end = |number: usize| number + usize::from(!matches!(story.ops[number], Op::Clone { .. }));
        let mut groups: Vec<usize> = (first..self.begun).filter(ends).map(end).collect();
        if safe.is_none() {
            groups.push(0);
        }
        groups
    }

    /// May the file system be this without its intent log?
    ///
    /// # Errors
    /// Why not.
    pub fn allow_group(self, story: &Story, seen: &Seen) -> Result<(), String> {
        let mut reasons = String::new();
        for group in self.groups(story) {
            let world = &story.worlds[group];
            let reason = match seen.fit(world) {
                Err(reason) => reason,
                Ok(pairs) => match pairs.iter().find(|(own, id)| !data_fits(&seen.nodes[*own], *id == 0, &world.node(*id).data)) {
                    None => return Ok(()),
                    Some((own, id)) => difference(&seen.nodes[*own], *id, &world.node(*id).data),
                },
            };
            reasons += &format!("\n  after {group} operations: {reason}");
        }
        Err(format!("{self:?}; it is not the state{reasons}"))
    }

    /// May the file system be this after its intent log was replayed?
    ///
    /// # Errors
    /// Why not.
    pub fn allow_replayed(self, story: &Story, seen: &Seen) -> Result<(), String> {
        if !story.log {
            return self.allow_group(story, seen);
        }
        // An `fsync` of one file makes all earlier names safe, whatever was left to do for this file.
        let is_promise = |number: &usize| match story.effects[*number] {
            Effect::Fsync(_) => true,
            ref effect => effect.makes_safe(),
        };
        let safe = (0..self.ended).rev().find(is_promise).map_or(0, |number| number + 1);
        let mut reasons = String::new();
        for names in (safe..=self.begun).rev() {
            match seen.fit(&story.worlds[names]) {
                Err(reason) => reasons += &format!("\n  names after {names} operations: {reason}"),
                Ok(pairs) => match pairs.iter().find_map(|(own, id)| self.file_differs(story, &seen.nodes[*own], *id, names)) {
                    None => return Ok(()),
                    Some(reason) => reasons += &format!("\n  names after {names} operations, but {reason}"),
                },
            }
        }
        Err(format!("{self:?}; names of {safe} operations are safe{reasons}"))
    }

    /// Why a file cannot be this when the names are those after `names` operations.
    fn file_differs(self, story: &Story, seen: &SeenNode, id: NodeId, names: usize) -> Option<String> {
        let acknowledged = (0..self.ended).rev().find(|number| match story.effects[*number] {
            Effect::Fsync(file) => file == id,
            ref effect => effect.makes_safe(),
        });
        let renamed = (0..names).rev().find(|number| matches!(&story.effects[*number], Effect::Names { renamed, .. } if renamed.contains(&id)));
        // A transaction is in the names, and then in the file, or in neither.
        let changed = |number: &usize| matches!(&story.effects[*number], Effect::Transaction { files, .. } if files.contains(&id));
        let whole = (0..names).rev().find(changed).map(|number| number + 1);
        let first = acknowledged.max(renamed).max(whole).unwrap_or(0);
        let last = (names..self.begun).find(changed).unwrap_or(self.begun);
        if first > last {
            return Some(format!("file {id} has a part of a transaction only"));
        }
        let versions: Vec<&Arc<Data>> = story.worlds[first..=last].iter().filter(|world| id < world.len()).map(|world| &world.node(id).data).collect();
        let fits = versions.iter().any(|data| data_fits(seen, id == 0, data));
        let mixes = (story.is_shared || renamed.is_some_and(|renamed| renamed == first)) && is_mixture(seen, &versions, story.is_shared);
        if fits || mixes {
            return None;
        }
        let closest = versions.first().map_or_else(String::new, |data| difference(seen, id, data));
        Some(format!("file {id} is no version since operation {first}: {closest}"))
    }
}

/// Each byte is of one of these versions of the file: what was acknowledged is in all of them.
/// `cut`: its end is anywhere between theirs, as a large write is several records.
fn is_mixture(seen: &SeenNode, versions: &[&Arc<Data>], cut: bool) -> bool {
    let attributes = versions.iter().any(|data| seen.data.mode == data.mode && seen.data.uid == data.uid && seen.data.xattrs == data.xattrs);
    let lengths = || versions.iter().map(|data| data.contents.len());
    let found = seen.data.contents.len();
    let length = lengths().any(|length| length == found) || (cut && lengths().any(|length| length > found) && lengths().any(|length| length < found));
    let byte = |at: usize| versions.iter().any(|data| data.contents.get(at).copied().unwrap_or(0) == seen.data.contents[at]);
    attributes && length && (0..seen.data.contents.len()).all(byte)
}

fn difference(seen: &SeenNode, id: NodeId, data: &Data) -> String {
    let at = seen.data.contents.iter().zip(&data.contents).position(|(found, expected)| found != expected);
    let sizes = (seen.data.contents.len(), data.contents.len());
    let attributes = |data: &Data| format!("mode {:o}, owner {}:{}, mtime {:?}, xattrs {:?}", data.mode, data.uid, data.gid, data.modified, data.xattrs.keys());
    format!("file {id} has {} bytes (first difference at {at:?}) and {}, not {} bytes and {}", sizes.0, attributes(&seen.data), sizes.1, attributes(data))
}
