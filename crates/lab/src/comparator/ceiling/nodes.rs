//! Files and directories of the file system in memory: what is known of each, and the table of all.
//!
//! # Invariants
//!
//! 1. A node is in the table as long as it has a name or the kernel has a reference to it. The last of both to go is seen under the lock of
//!    the node's state, once, and its finder takes the node out.
//! 2. The kernel lets one caller at a time change a directory; locks here only keep readers from seeing half of a change.
//!
//! # Locks
//!
//! A directory, then the state of a node. Of two directories the one with the lower number first. The table's locks are taken alone.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use fuse::{Attr, Errno, ROOT_NODE, Result, Timestamp};
use parking_lot::{Mutex, RwLock};

use super::contents::Contents;

/// Longest name, as the file systems that it is compared with have it.
pub(super) const NAME_MAX: usize = 255;
/// The cookies of `.` and `..`; names come after them.
const DOTS: u64 = 2;

/// What `stat` shows, and what keeps the node alive.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct State {
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) device: u32,
    pub(super) links: u32,
    /// References that the kernel has.
    pub(super) lookups: u64,
    pub(super) atime: Timestamp,
    pub(super) mtime: Timestamp,
    pub(super) ctime: Timestamp,
    pub(super) birth: Timestamp,
}

/// One name of a directory.
#[derive(Clone)]
pub(super) struct Name {
    pub(super) name: Arc<[u8]>,
    pub(super) node: u64,
    pub(super) mode: u32,
}

/// The names of a directory, in the order in which they came.
#[derive(Default)]
pub(super) struct Names {
    pub(super) parent: u64,
    cookies: HashMap<Arc<[u8]>, u64>,
    names: BTreeMap<u64, Name>,
    last: u64,
}

/// A file of any kind.
pub(super) struct Node {
    pub(super) number: u64,
    pub(super) generation: u64,
    /// guards: attributes and references
    pub(super) state: Mutex<State>,
    /// guards: the bytes of a file
    pub(super) contents: RwLock<Contents>,
    /// guards: the names in a directory
    pub(super) names: Mutex<Names>,
    /// Of a symbolic link.
    pub(super) target: Vec<u8>,
}

/// All nodes, by number.
pub(super) struct Table {
    /// guards: what has which number
    nodes: RwLock<Vec<Option<Arc<Node>>>>,
    /// guards: numbers that are free
    free: Mutex<Vec<u64>>,
    made: AtomicU64,
}

pub(super) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: since.as_secs().cast_signed(), nanoseconds: since.subsec_nanos() }
}

pub(super) fn is_directory(mode: u32) -> bool {
    mode & libc::S_IFMT == libc::S_IFDIR
}

impl State {
    /// Set-id bits go when another user changes the file.
    pub(super) fn end_set_ids(&mut self) {
        if !is_directory(self.mode) {
            let group = if self.mode & libc::S_IXGRP != 0 { libc::S_ISGID } else { 0 };
            self.mode &= !(libc::S_ISUID | group);
        }
    }

    /// The contents changed.
    pub(super) fn touch(&mut self) {
        self.mtime = now();
        self.ctime = self.mtime;
    }
}

impl Names {
    pub(super) fn find(&self, name: &[u8]) -> Option<&Name> {
        self.names.get(self.cookies.get(name)?)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub(super) fn add(&mut self, name: &[u8], node: u64, mode: u32) -> Result<()> {
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        if self.cookies.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        self.last = self.last.max(DOTS) + 1;
        let name: Arc<[u8]> = name.into();
        self.cookies.insert(Arc::clone(&name), self.last);
        self.names.insert(self.last, Name { name, node, mode });
        Ok(())
    }

    pub(super) fn remove(&mut self, name: &[u8]) -> Result<Name> {
        let cookie = self.cookies.remove(name).ok_or(Errno::ENOENT)?;
        self.names.remove(&cookie).ok_or(Errno::ENOENT)
    }

    /// The names after a cookie, each with its own.
    pub(super) fn after(&self, cookie: u64) -> impl Iterator<Item = (u64, &Name)> {
        self.names.range(cookie.max(DOTS) + 1..).map(|(cookie, name)| (*cookie, name))
    }
}

impl Node {
    pub(super) fn attr(&self) -> Attr {
        let (len, blocks) = {
            let contents = self.contents.read();
            (contents.len(), contents.blocks())
        };
        let state = self.state.lock();
        Attr {
            inode: self.number,
            size: len.max(self.target.len() as u64),
            blocks,
            atime: state.atime,
            mtime: state.mtime,
            ctime: state.ctime,
            mode: state.mode,
            links: state.links,
            uid: state.uid,
            gid: state.gid,
            device: state.device,
            block_size: super::contents::CHUNK as u32,
        }
    }

    /// Changes the counts of names and of references; says whether that was the last of both.
    pub(super) fn count(&self, change: impl FnOnce(&mut State)) -> bool {
        let mut state = self.state.lock();
        let before = state.links == 0 && state.lookups == 0;
        change(&mut state);
        !before && state.links == 0 && state.lookups == 0
    }
}

impl Table {
    pub(super) fn new() -> Table {
        let nodes = (0..=ROOT_NODE).map(|_| None).collect();
        // The first node is the root.
        Table { nodes: RwLock::new(nodes), free: Mutex::new(vec![ROOT_NODE]), made: AtomicU64::new(0) }
    }

    /// Makes a node; `state` has its mode, its owner and its counts.
    pub(super) fn make(&self, state: State, parent: u64, target: &[u8]) -> Arc<Node> {
        let time = now();
        let state = State { atime: time, mtime: time, ctime: time, birth: time, ..state };
        let names = Names { parent, ..Names::default() };
        let generation = self.made.fetch_add(1, Ordering::Relaxed);
        let free = self.free.lock().pop();
        let mut nodes = self.nodes.write();
        let number = free.unwrap_or(nodes.len() as u64);
        let node = Node { number, generation, state: Mutex::new(state), contents: RwLock::default(), names: Mutex::new(names), target: target.to_vec() };
        let node = Arc::new(node);
        match nodes.get_mut(number as usize) {
            Some(place) => *place = Some(Arc::clone(&node)),
            None => nodes.push(Some(Arc::clone(&node))),
        }
        node
    }

    pub(super) fn get(&self, number: u64) -> Result<Arc<Node>> {
        self.nodes.read().get(number as usize).cloned().flatten().ok_or(Errno::ESTALE)
    }

    /// Takes a node out that has neither a name nor a reference any more.
    pub(super) fn remove(&self, number: u64) {
        if let Some(place) = self.nodes.write().get_mut(number as usize) {
            *place = None;
        }
        self.free.lock().push(number);
    }

    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        self.nodes.read().len() as u64 - self.free.lock().len() as u64 - 1
    }
}
