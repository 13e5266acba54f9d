//! One file in a transaction.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use engine::bail;
use engine::error::Result;
use ondisk::znode;

use super::NodeId;
use crate::zpl::{FileKind, FileSystem, InodeNumber, SetAttributes, Stat, Time};

/// Unit of a patch.
pub(super) const PIECE: usize = 4096;

/// A file as the transaction has it.
pub(super) struct Node {
    /// The file as it was first looked at; `None`: the transaction made it. What has a base is counted once as known to the kernel.
    pub(super) base: Option<Base>,
    /// What is known of it, with the changes.
    pub(super) stat: Stat,
    /// Mode and group before the commit changes attributes, which it does last.
    pub(super) before: (u32, u32),
    /// The file system's file must be as it was.
    pub(super) depends: bool,
    /// Changed contents.
    pub(super) patch: Patch,
    /// Entries that came (with what they name) or went.
    pub(super) entries: BTreeMap<Vec<u8>, Option<NodeId>>,
    /// Attributes to be set.
    pub(super) attributes: SetAttributes,
    /// Extended attributes that were set or removed.
    pub(super) xattrs: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Of a new symbolic link.
    pub(super) target: Option<Vec<u8>>,
}

/// What a file of the file system was when a transaction first looked at it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Base {
    /// When it had been changed last.
    changed_at: u64,
    /// Marks that forbid changes.
    marks: u64,
    parent: InodeNumber,
    links: u64,
    project: u64,
}

impl Base {
    fn of(stat: &Stat, changed_at: u64) -> Base {
        Base { changed_at, marks: stat.flags & MARKS, parent: stat.parent, links: stat.links, project: stat.project }
    }

    /// The file system's file is still what it was.
    pub(super) fn check_unchanged(&self, fs: &FileSystem, inode: InodeNumber) -> Result<()> {
        if fs.inode(inode)?.changed_at.load(Ordering::Acquire) != self.changed_at {
            bail!(Conflict, "{}: inode {inode} was changed by somebody else", fs.objset().name());
        }
        Ok(())
    }

    /// What was allowed with it is still allowed, whatever it contains now.
    pub(super) fn check_rules(&self, fs: &FileSystem, inode: InodeNumber) -> Result<()> {
        let now = fs.getattr(inode)?;
        let is_directory = now.kind() == FileKind::Directory;
        let moved = is_directory && (now.parent != self.parent || now.links == 0);
        if now.flags & MARKS != self.marks || now.project != self.project || moved {
            bail!(Conflict, "{}: inode {inode} was marked, moved or removed by somebody else", fs.objset().name());
        }
        Ok(())
    }
}

const MARKS: u64 = znode::FLAG_IMMUTABLE | znode::FLAG_APPEND_ONLY | znode::FLAG_NO_UNLINK | znode::FLAG_PROJECT_INHERIT;

/// Contents that differ from the file's.
#[derive(Default)]
pub(super) struct Patch {
    /// There is one.
    pub(super) exists: bool,
    /// Of the file's own contents this much is still there.
    pub(super) kept: u64,
    /// Whole pieces, by number.
    pub(super) pieces: BTreeMap<u64, Box<[u8; PIECE]>>,
}

impl Node {
    /// A file of the file system.
    pub(super) fn of(fs: &FileSystem, inode: InodeNumber) -> Result<Node> {
        // The time first: a change in between is a conflict, not something unseen.
        let changed_at = fs.inode(inode)?.changed_at.load(Ordering::Acquire);
        let stat = fs.lookup_inode(inode)?;
        // Nobody else holds it in memory if it was loaded just now.
        let now = fs.inode(inode)?.changed_at.load(Ordering::Acquire);
        if now != changed_at {
            fs.forget(inode, 1);
            bail!(Conflict, "inode {inode} is being changed by somebody else");
        }
        Ok(Node { base: Some(Base::of(&stat, changed_at)), ..Node::new(stat) })
    }

    /// Reads it anew. Nobody is changing it: the gate is closed.
    pub(super) fn read_again(&mut self, fs: &FileSystem, inode: InodeNumber) -> Result<()> {
        let changed_at = fs.inode(inode)?.changed_at.load(Ordering::Acquire);
        let stat = fs.getattr(inode)?;
        *self = Node { base: Some(Base::of(&stat, changed_at)), ..Node::new(stat) };
        Ok(())
    }

    /// When the file system's file had been changed last.
    pub(super) fn changed_at(&self) -> u64 {
        self.base.map_or(0, |base| base.changed_at)
    }

    /// One that the transaction has made.
    pub(super) fn new(stat: Stat) -> Node {
        let patch = Patch { kept: stat.size, ..Patch::default() };
        Node {
            base: None,
            before: (stat.mode, stat.gid),
            stat,
            depends: false,
            patch,
            entries: BTreeMap::new(),
            attributes: SetAttributes::default(),
            xattrs: BTreeMap::new(),
            target: None,
        }
    }

    pub(super) fn kind(&self) -> FileKind {
        self.stat.kind()
    }

    pub(super) fn is_changed(&self) -> bool {
        self.patch.exists || self.attributes != SetAttributes::default() || !self.xattrs.is_empty()
    }

    /// The commit will make it another than it was.
    pub(super) fn is_touched(&self) -> bool {
        let moved = self.base.is_some_and(|base| base.parent != self.stat.parent || base.links != self.stat.links);
        moved || self.is_changed() || !self.entries.is_empty()
    }

    pub(super) fn check_directory(&self) -> Result<()> {
        if self.kind() == FileKind::Directory { Ok(()) } else { bail!(NotDirectory, "inode {} is no directory", self.stat.inode) }
    }

    pub(super) fn check_regular(&self) -> Result<()> {
        match self.kind() {
            FileKind::Regular => Ok(()),
            FileKind::Directory => bail!(IsDirectory, "inode {} is a directory", self.stat.inode),
            _ => bail!(Invalid, "inode {} has no contents", self.stat.inode),
        }
    }

    /// Its contents were changed.
    pub(super) fn touch(&mut self, now: Time) {
        (self.stat.modification_time, self.stat.change_time) = (now, now);
        self.attributes.modification_time = None;
    }
}
