//! Attributes: from the library's form into the kernel's, and changes of them.

use std::sync::Arc;

use fuse::{Attr, Attributes, Context, Entry, Errno, Result, SetAttr, StatFs, StatX, Timestamp};
use tarnfs::{FileKind, FileSystem, InodeNumber, SetAttributes, SetTime, Stat, Time};

use super::files::{SET_IDS, writer};
use super::nodes::control_directory::SHOWN_SNAPSHOT;
use super::nodes::node::{Node, number};
use super::{LONG, Ops, SETTLES_AFTER, SHORT};

/// Bits of a minor device number, in memory and on disk.
const MINOR_BITS: u32 = 20;
/// What a file says is a good size for an I/O (`st_blksize`), at least. The C library's buffer is as large, and each of its writes is a request; the block of a
/// small file is as small as 512 bytes.
const PREFERRED_BYTES: u64 = 32 << 10;
/// From the encoding on disk to the kernel's for FUSE.
pub(super) fn device_to_kernel(device: u64) -> u32 {
    let (major, minor) = ((device >> MINOR_BITS) as u32, device as u32 & ((1 << MINOR_BITS) - 1));
    minor & 0xff | (major & 0xfff) << 8 | (minor & !0xff) << 12
}

/// The other way.
pub(super) fn device_from_kernel(device: u32) -> u64 {
    let (major, minor) = ((device & 0xfff00) >> 8, device & 0xff | device >> 12 & 0xfff00);
    u64::from(major) << MINOR_BITS | u64::from(minor)
}

fn timestamp(time: Time) -> Timestamp {
    Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

fn time(timestamp: Timestamp) -> Time {
    Time { seconds: timestamp.seconds, nanoseconds: timestamp.nanoseconds }
}

#[allow(clippy::disallowed_methods)] // how long the kernel may cache is no matter of replay
pub(super) fn seconds_now() -> i64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed())
}

/// The kernel's form of the attributes of a file that `stat` shows with the number `inode`.
pub(super) fn attr_of(inode: u64, stat: &Stat) -> Attr {
    Attr {
        inode,
        size: stat.size,
        blocks: stat.allocated.div_ceil(512),
        atime: timestamp(stat.access_time),
        mtime: timestamp(stat.modification_time),
        ctime: timestamp(stat.change_time),
        mode: stat.mode,
        links: u32::try_from(stat.links).unwrap_or(u32::MAX),
        uid: stat.uid,
        gid: stat.gid,
        device: device_to_kernel(stat.device),
        block_size: u32::try_from(stat.block_size.max(PREFERRED_BYTES)).unwrap_or(1 << 20),
    }
}

/// Whether the file has set-id bits. They go when another user changes the file; the kernel leaves that to us and goes
/// on believing in the mode that it knows. So it is told not to cache such a file's attributes, and asks for them when
/// the file is run.
pub(super) fn acts_for_its_owner(stat: &Stat) -> bool {
    stat.mode & SET_IDS != 0 && stat.kind() != FileKind::Directory
}

/// What the kernel wants to be changed.
pub(super) fn set_of(changes: &SetAttr) -> SetAttributes {
    let pick = |change: fuse::SetTime| match change {
        fuse::SetTime::Now => SetTime::Now,
        fuse::SetTime::At(at) => SetTime::To(time(at)),
    };
    SetAttributes {
        mode: changes.mode.map(|mode| mode & 0o7777),
        uid: changes.uid,
        gid: changes.gid,
        size: changes.size,
        access_time: changes.atime.map(pick),
        modification_time: changes.mtime.map(pick),
        change_time: changes.ctime.map(time),
        flags: None,
        project: None,
    }
}

/// The room at a file, in units of `block_size`.
pub(super) fn room_at(filesystem: &FileSystem, inode: InodeNumber, block_size: u32) -> Result<StatFs> {
    let space = filesystem.space_at(inode).map_err(crate::errno::of)?;
    let unit = u64::from(block_size);
    let free = space.available / unit;
    Ok(StatFs {
        blocks: (space.referenced.next_multiple_of(unit) + space.available) / unit,
        blocks_free: free,
        blocks_available: free,
        files: space.objects + space.objects_available,
        files_free: space.objects_available,
        block_size,
        fragment_size: block_size,
        name_max: u32::try_from(filesystem.name_max()).unwrap_or(255),
    })
}

impl Ops {
    /// The file system and inode of a node. Nodes of `.zfs` have none.
    pub(super) fn locate(&self, node: Node) -> Result<(Located, InodeNumber)> {
        match node {
            Node::Root => Ok((Located::Head(self.filesystem()?), self.head.root())),
            Node::Head(inode) => Ok((Located::Head(self.filesystem_of(inode)?), inode)),
            Node::Snapshot(slot, inode) => Ok((Located::Snapshot(slot, self.slots.get(slot)?), inode)),
            Node::Control | Node::Snapshots => Err(Errno::EPERM),
            Node::Foreign => Err(Errno::ESTALE),
        }
    }

    /// As [`Ops::locate`], for a change: snapshots and `.zfs` cannot be changed.
    pub(super) fn locate_for_change(&self, node: Node) -> Result<(Arc<FileSystem>, InodeNumber)> {
        match node {
            Node::Root => Ok((self.filesystem()?, self.head.root())),
            Node::Head(inode) => Ok((self.filesystem_of(inode)?, inode)),
            Node::Snapshot(..) => Err(Errno::EROFS),
            Node::Control | Node::Snapshots => Err(super::rights::CONTROL_DIRECTORY_IS_FIXED),
            Node::Foreign => Err(Errno::ESTALE),
        }
    }

    /// The kernel's node number for an inode.
    pub(super) fn node_number(&self, slot: u16, inode: InodeNumber) -> u64 {
        if slot == 0 && inode == self.head.root() { fuse::ROOT_NODE } else { number(slot, inode) }
    }

    /// The number that `stat` shows. One mount has one device number, so files of snapshots must not share numbers with the living ones. The root of a
    /// snapshot has, wherever it is mounted, the number that it is listed with in `.zfs/snapshot`, as in OpenZFS.
    pub(super) fn shown_inode(slot: u16, filesystem: &FileSystem, inode: InodeNumber) -> u64 {
        if filesystem.objset().is_snapshot() && inode == filesystem.root() {
            return SHOWN_SNAPSHOT.saturating_sub(filesystem.objset().dataset());
        }
        number(slot, inode)
    }

    pub(super) fn entry(&self, slot: u16, stat: &Stat) -> Entry {
        if slot == 0 {
            self.head.told_of(stat);
        }
        let (attr, attr_valid) = self.attr_in(slot, stat);
        // What else had this node number before must not be taken for this file.
        let salt = if slot == 0 { self.times_replaced(stat.inode) } else { self.slots.salt(slot) };
        let generation = stat.generation.wrapping_add(salt);
        Entry { node: self.node_number(slot, stat.inode), generation, attr, entry_valid: self.name_life(), attr_valid }
    }

    /// Where `A` and `a` are one name, the kernel must not remember either: a change of one is a change of both.
    pub(super) fn name_life(&self) -> std::time::Duration {
        if self.head.current().is_some_and(|filesystem| filesystem.names_are_exact()) && !self.is_being_changed() { LONG } else { std::time::Duration::ZERO }
    }

    /// The same of a name that is not there.
    pub(super) fn absence_life(&self) -> std::time::Duration {
        self.name_life().min(if self.forgets_names() { LONG } else { SHORT })
    }

    /// As [`Ops::attr`], of a file in a slot.
    fn attr_in(&self, slot: u16, stat: &Stat) -> (Attr, std::time::Duration) {
        // Of a file system that is closed just now the answer is stale anyhow.
        let filesystem = if slot == 0 { self.filesystem() } else { self.slots.get(slot) };
        self.attr(slot, filesystem.ok().as_deref(), stat)
    }

    fn attr(&self, slot: u16, filesystem: Option<&FileSystem>, stat: &Stat) -> (Attr, std::time::Duration) {
        let shown = filesystem.map_or(number(slot, stat.inode), |filesystem| Self::shown_inode(slot, filesystem, stat.inode));
        let mut attr = attr_of(shown, stat);
        if slot == 0 && stat.inode == self.head.root() && self.shows_control_directory(Node::Root) {
            // `.zfs` is a directory in it, and counts as one, as in OpenZFS.
            attr.links = attr.links.saturating_add(1);
        }
        let settled = slot != 0 || seconds_now().saturating_sub(stat.change_time.seconds) > SETTLES_AFTER;
        let life = match settled {
            // A writer is to ask first: see [`Ops::before_write`].
            _ if slot == 0 && (self.asks_before_writes() || self.is_being_changed() || acts_for_its_owner(stat)) => std::time::Duration::ZERO,
            true => LONG,
            false => SHORT,
        };
        (attr, life)
    }

    pub(super) fn attributes(&self, node: Node) -> Result<Attributes> {
        if matches!(node, Node::Control | Node::Snapshots) {
            return self.control_attributes(node);
        }
        let (located, inode) = self.locate(node)?;
        let stat = located.filesystem().getattr(inode).map_err(crate::errno::of)?;
        let (attr, valid) = self.attr(located.slot(), Some(located.filesystem()), &stat);
        Ok(Attributes { attr, valid })
    }

    pub(super) fn extended_stat(&self, node: Node) -> Result<StatX> {
        if matches!(node, Node::Control | Node::Snapshots) {
            return Ok(StatX { attributes: self.control_attributes(node)?, birth: None, flags: 0, flags_mask: 0 });
        }
        let (located, inode) = self.locate(node)?;
        let stat = located.filesystem().getattr(inode).map_err(crate::errno::of)?;
        let (attr, valid) = self.attr(located.slot(), Some(located.filesystem()), &stat);
        Ok(StatX { attributes: Attributes { attr, valid }, birth: Some(timestamp(stat.creation_time)), flags: 0, flags_mask: 0 })
    }

    pub(super) fn change_attributes(&self, cx: &Context, node: Node, changes: &SetAttr) -> Result<Attributes> {
        let (filesystem, inode) = self.locate_for_change(node)?;
        let set = set_of(changes);
        let old = filesystem.getattr(inode).map_err(crate::errno::of)?;
        // The kernel says for every change of the owner that the bits must go, but not all of them must.
        let must_go = (set.uid.is_none() && set.gid.is_none()).then_some(changes.kill_suidgid);
        // A change of nothing is what remains of `chown(-1, -1)`, which takes set-id bits as any chown does; the kernel
        // lets a stranger's pass too. It is also what remains of a write to a file that had capabilities: then the
        // superuser's write takes the bits, which it need not.
        if set == SetAttributes::default() && (cx.uid == 0 || old.uid == cx.uid) {
            filesystem.clear_set_id(inode, &writer(cx, old.mode, None)).map_err(crate::errno::of)?;
        }
        let stat = filesystem.setattr(inode, &set, &writer(cx, old.mode, must_go)).map_err(crate::errno::of)?;
        let (attr, valid) = self.attr(0, Some(&filesystem), &stat);
        Ok(Attributes { attr, valid })
    }

    pub(super) fn link_target(&self, node: Node) -> Result<Vec<u8>> {
        let (located, inode) = self.locate(node)?;
        located.filesystem().readlink(inode).map_err(crate::errno::of)
    }

    pub(super) fn space(&self, node: Node) -> Result<StatFs> {
        let (located, inode) = self.locate(node).or_else(|_| self.locate(Node::Root))?;
        // As OpenZFS on Linux does, where programs take the two for one.
        room_at(located.filesystem(), inode, self.options.read().record_bytes)
    }
}

/// A file system in use for one call.
pub(super) enum Located {
    Head(Arc<FileSystem>),
    Snapshot(u16, Arc<FileSystem>),
}

impl Located {
    pub(super) fn filesystem(&self) -> &FileSystem {
        match self {
            Located::Head(filesystem) => filesystem,
            Located::Snapshot(_, filesystem) => filesystem,
        }
    }

    pub(super) fn slot(&self) -> u16 {
        match self {
            Located::Head(_) => 0,
            Located::Snapshot(slot, _) => *slot,
        }
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn devices_survive_both_encodings() {
        for (major, minor) in [(1u64, 3u64), (8, 0), (259, 70_000), (0xfff, 0xfffff), (136, 256)] {
            let stored = major << 20 | minor;
            let kernel = device_to_kernel(stored);
            assert_eq!(device_from_kernel(kernel), stored);
            let user = libc::makedev(major as u32, minor as u32);
            assert_eq!(u64::from(kernel), user & 0xffff_ffff, "glibc's lower half is the kernel's encoding");
        }
    }
}
