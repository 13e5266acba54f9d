//! Random operations against a model of what POSIX says, with reopening in between.

use std::collections::BTreeMap;

use engine::dmu::ObjsetSettings;
use engine::error::ErrorKind;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::rig::Rig;
use super::*;

#[derive(Debug, Clone)]
enum Node {
    Directory(BTreeMap<String, usize>),
    File { data: Vec<u8> },
    Link(Vec<u8>),
}

#[derive(Debug, Clone)]
struct Entry {
    node: Node,
    mode: u32,
    links: u64,
    xattrs: BTreeMap<String, Vec<u8>>,
}

/// Index 0 is the root. Nothing is ever removed from the list, only from directories.
struct Model {
    entries: Vec<Entry>,
}

impl Model {
    fn directory(&self, index: usize) -> Option<&BTreeMap<String, usize>> {
        match &self.entries[index].node {
            Node::Directory(names) => Some(names),
            _ => None,
        }
    }

    fn directory_mut(&mut self, index: usize) -> &mut BTreeMap<String, usize> {
        match &mut self.entries[index].node {
            Node::Directory(names) => names,
            _ => panic!("a directory"),
        }
    }

    /// All directories that can be reached, with their paths.
    fn directories(&self) -> Vec<usize> {
        let (mut found, mut at) = (vec![0], 0);
        while at < found.len() {
            let names = self.directory(found[at]).unwrap();
            found.extend(names.values().filter(|&&index| self.directory(index).is_some()));
            at += 1;
        }
        found
    }

    fn is_below(&self, below: usize, above: usize) -> bool {
        below == above || self.directory(above).is_some_and(|names| names.values().any(|&index| self.is_below(below, index)))
    }
}

struct Test<'a> {
    fs: &'a FileSystem,
    model: &'a mut Model,
    /// Model index to inode.
    inodes: Vec<InodeNumber>,
}

impl Test<'_> {
    fn inode(&self, index: usize) -> InodeNumber {
        self.inodes[index]
    }

    fn add(&mut self, directory: usize, name: String, node: Node, mode: u32, stat: &Stat) {
        let links = if matches!(node, Node::Directory(_)) { 2 } else { 1 };
        if links == 2 {
            self.model.entries[directory].links += 1;
        }
        self.model.entries.push(Entry { node, mode, links, xattrs: BTreeMap::new() });
        self.inodes.push(stat.inode);
        let index = self.model.entries.len() - 1;
        self.model.directory_mut(directory).insert(name, index);
        self.fs.forget(stat.inode, 1);
    }

    fn remove(&mut self, directory: usize, name: &str) {
        let index = self.model.directory_mut(directory).remove(name).unwrap();
        if self.model.directory(index).is_some() {
            self.model.entries[directory].links -= 1;
            self.model.entries[index].links = 0;
        } else {
            self.model.entries[index].links -= 1;
        }
    }

    fn step(&mut self, random: &mut ChaCha8Rng) {
        let directories = self.model.directories();
        let directory = directories[random.random_range(0..directories.len())];
        let name = format!("n{}", random.random_range(0..12));
        let there = self.model.directory(directory).unwrap().get(&name).copied();
        let at = self.inode(directory);
        let user = Credentials { uid: 1000, gid: 100, groups: vec![], umask: 0 };
        match random.random_range(0..100) {
            0..15 => {
                let result = self.fs.create(at, name.as_bytes(), 0o100_640, 0, &user);
                match there {
                    Some(_) => assert_eq!(result.unwrap_err().kind(), ErrorKind::Exists),
                    None => self.add(directory, name, Node::File { data: vec![] }, 0o100_640, &result.unwrap()),
                }
            }
            15..22 => {
                let result = self.fs.mkdir(at, name.as_bytes(), 0o750, &user);
                match there {
                    Some(_) => assert_eq!(result.unwrap_err().kind(), ErrorKind::Exists),
                    None => self.add(directory, name, Node::Directory(BTreeMap::new()), 0o040_750, &result.unwrap()),
                }
            }
            22..26 => {
                let target = vec![b'x'; random.random_range(1..400)];
                let result = self.fs.symlink(at, name.as_bytes(), &target, &user);
                match there {
                    Some(_) => assert_eq!(result.unwrap_err().kind(), ErrorKind::Exists),
                    None => self.add(directory, name, Node::Link(target), 0o120_777, &result.unwrap()),
                }
            }
            26..36 => self.step_remove(directory, &name, there),
            36..46 => self.step_rename(random, directory, &name, there),
            46..50 => self.step_link(random, &directories, directory, &name, there),
            50..75 => self.step_write(random, there),
            75..82 => self.step_truncate(random, there),
            82..92 => self.step_xattr(random, there),
            _ => {
                if let Some(index) = there {
                    let mode = random.random_range(0..0o1000);
                    let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
                    self.fs.setattr(self.inode(index), &set, &user).unwrap();
                    let entry = &mut self.model.entries[index];
                    entry.mode = entry.mode & 0o170_000 | mode;
                }
            }
        }
    }

    fn step_remove(&mut self, directory: usize, name: &str, there: Option<usize>) {
        let at = self.inode(directory);
        let Some(index) = there else {
            assert_eq!(self.fs.unlink(at, name.as_bytes()).unwrap_err().kind(), ErrorKind::NotFound);
            return;
        };
        match self.model.directory(index).map(BTreeMap::is_empty) {
            None => {
                assert_eq!(self.fs.rmdir(at, name.as_bytes()).unwrap_err().kind(), ErrorKind::NotDirectory);
                self.fs.unlink(at, name.as_bytes()).unwrap();
                self.remove(directory, name);
            }
            Some(true) => {
                self.fs.rmdir(at, name.as_bytes()).unwrap();
                self.remove(directory, name);
            }
            Some(false) => assert_eq!(self.fs.rmdir(at, name.as_bytes()).unwrap_err().kind(), ErrorKind::NotEmpty),
        }
    }

    fn step_rename(&mut self, random: &mut ChaCha8Rng, from: usize, name: &str, moved: Option<usize>) {
        let directories = self.model.directories();
        let to = directories[random.random_range(0..directories.len())];
        let new_name = format!("n{}", random.random_range(0..12));
        let result = self.fs.rename(self.inode(from), name.as_bytes(), self.inode(to), new_name.as_bytes(), RenameMode::Replace);
        let Some(moved) = moved else {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::NotFound);
            return;
        };
        let target = self.model.directory(to).unwrap().get(&new_name).copied();
        if target == Some(moved) {
            return result.unwrap();
        }
        let is_directory = self.model.directory(moved).is_some();
        if is_directory && self.model.is_below(to, moved) {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::Invalid);
            return;
        }
        if let Some(target) = target {
            match (is_directory, self.model.directory(target).map(BTreeMap::is_empty)) {
                (true, None) => return assert_eq!(result.unwrap_err().kind(), ErrorKind::NotDirectory),
                (false, Some(_)) => return assert_eq!(result.unwrap_err().kind(), ErrorKind::IsDirectory),
                (true, Some(false)) => return assert_eq!(result.unwrap_err().kind(), ErrorKind::NotEmpty),
                _ => self.remove(to, &new_name),
            }
        }
        result.unwrap();
        self.model.directory_mut(from).remove(name);
        self.model.directory_mut(to).insert(new_name, moved);
        if is_directory {
            self.model.entries[from].links -= 1;
            self.model.entries[to].links += 1;
        }
    }

    fn step_link(&mut self, random: &mut ChaCha8Rng, directories: &[usize], from: usize, name: &str, there: Option<usize>) {
        let Some(index) = there else { return };
        let _ = (from, name);
        let to = directories[random.random_range(0..directories.len())];
        let new_name = format!("n{}", random.random_range(0..12));
        let result = self.fs.link(self.inode(index), self.inode(to), new_name.as_bytes());
        if self.model.directory(index).is_some() {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::Denied);
        } else if self.model.directory(to).unwrap().contains_key(&new_name) {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::Exists);
        } else {
            self.fs.forget(result.unwrap().inode, 1);
            self.model.directory_mut(to).insert(new_name, index);
            self.model.entries[index].links += 1;
        }
    }

    fn step_write(&mut self, random: &mut ChaCha8Rng, there: Option<usize>) {
        let Some(index) = there else { return };
        let inode = self.inode(index);
        let Node::File { data } = &mut self.model.entries[index].node else { return };
        let length = [10, 700, 5000, 40_000][random.random_range(0..4)];
        let bytes: Vec<u8> = (0..length).map(|_| random.random()).collect();
        let offset = random.random_range(0..data.len() + 2000);
        let mode = if random.random_range(0..4) == 0 { WriteMode::Append } else { WriteMode::At(offset as u64) };
        let went = self.fs.write(inode, mode, &bytes, &root()).unwrap() as usize;
        assert_eq!(went, if mode == WriteMode::Append { data.len() } else { offset });
        if data.len() < went + length {
            data.resize(went + length, 0);
        }
        data[went..went + length].copy_from_slice(&bytes);
    }

    fn step_truncate(&mut self, random: &mut ChaCha8Rng, there: Option<usize>) {
        let Some(index) = there else { return };
        let inode = self.inode(index);
        let Node::File { data } = &mut self.model.entries[index].node else { return };
        let size = random.random_range(0..data.len() * 3 / 2 + 10);
        if random.random() {
            self.fs.truncate(inode, size as u64, &root()).unwrap();
            data.resize(size, 0);
        } else {
            let length = random.random_range(1..20_000);
            self.fs.punch_hole(inode, size as u64, length as u64, &root()).unwrap();
            let end = data.len();
            data[size.min(end)..(size + length).min(end)].fill(0);
        }
    }

    fn step_xattr(&mut self, random: &mut ChaCha8Rng, there: Option<usize>) {
        let Some(index) = there else { return };
        let inode = self.inode(index);
        let name = format!("user.k{}", random.random_range(0..4));
        let xattrs = &mut self.model.entries[index].xattrs;
        if random.random_range(0..3) == 0 {
            let removed = self.fs.removexattr(inode, name.as_bytes());
            assert_eq!(removed.is_ok(), xattrs.remove(&name).is_some());
        } else {
            let value = vec![random.random(); [3, 100, 1000, 40_000][random.random_range(0..4)]];
            self.fs.setxattr(inode, name.as_bytes(), &value, XattrMode::Any).unwrap();
            xattrs.insert(name, value);
        }
    }
}

/// Compares everything that can be reached; returns the inode of each model entry.
fn compare(fs: &FileSystem, model: &Model) -> Vec<InodeNumber> {
    let mut inodes = vec![0; model.entries.len()];
    let mut todo = vec![(0, fs.root())];
    while let Some((index, inode)) = todo.pop() {
        inodes[index] = inode;
        let entry = &model.entries[index];
        let stat = fs.getattr(inode).unwrap();
        assert_eq!((stat.mode, stat.links), (entry.mode, entry.links), "{entry:?}");
        let names: Vec<Vec<u8>> = entry.xattrs.keys().map(|name| name.clone().into_bytes()).collect();
        assert_eq!(fs.listxattr(inode).unwrap(), names);
        for (name, value) in &entry.xattrs {
            assert_eq!(&fs.getxattr(inode, name.as_bytes()).unwrap(), value);
        }
        match &entry.node {
            Node::File { data } => {
                assert_eq!(stat.size, data.len() as u64);
                assert!(fs.read(inode, 0, data.len() + 100).unwrap() == *data, "contents of inode {inode}");
            }
            Node::Link(target) => assert_eq!(&fs.readlink(inode).unwrap(), target),
            Node::Directory(names) => {
                let mut found = BTreeMap::new();
                // One entry at a time, so that the cookies are tested too.
                let mut at = 2;
                loop {
                    let mut one = None;
                    fs.read_directory(inode, at, &mut |entry| {
                        one = Some(entry);
                        false
                    })
                    .unwrap();
                    let Some(entry) = one else { break };
                    at = entry.next;
                    assert!(found.insert(String::from_utf8(entry.name).unwrap(), entry.inode).is_none());
                }
                assert!(found.keys().eq(names.keys()), "{found:?} {names:?}");
                assert_eq!(stat.size, names.len() as u64 + 2);
                for (name, index) in names {
                    if inodes[*index] == 0 {
                        todo.push((*index, found[name]));
                    } else {
                        assert_eq!(inodes[*index], found[name]);
                    }
                }
            }
        }
    }
    inodes
}

fn run(seed: u64, version: u64, dnode_bytes: u64) {
    println!("seed {seed}, version {version}, dnodes of {dnode_bytes}");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let settings = ObjsetSettings { dnode_bytes, record_bytes: 16 << 10, ..ObjsetSettings::dataset_default(true) };
    let (rig, mut fs) = Rig::new(&NewFileSystem { version, ..NewFileSystem::default() }, settings);
    if seed % 2 == 1 {
        rig.crowd();
    }
    let root = Entry { node: Node::Directory(BTreeMap::new()), mode: 0o040_755, links: 2, xattrs: BTreeMap::new() };
    let mut model = Model { entries: vec![root] };
    let mut inodes = vec![fs.root()];
    for round in 0..12 {
        let mut test = Test { fs: &fs, model: &mut model, inodes };
        for step in 0..120 {
            test.step(&mut random);
            if step % 37 == 36 {
                rig.sync(fs.objset());
            }
        }
        compare(&fs, &model);
        rig.sync(fs.objset());
        if round % 4 == 3 {
            fs = rig.reopen();
            assert_eq!(fs.drain_delete_queue().unwrap(), 0, "nothing was open");
        }
        inodes = compare(&fs, &model);
        rig.check();
    }
}

#[test]
fn a_file_system_is_what_posix_says() {
    run(1, 5, 512);
    run(2, 5, 1024);
    run(3, 5, 512);
}

#[test]
fn an_old_file_system_is_what_posix_says() {
    run(4, 4, 512);
    run(5, 2, 512);
}
