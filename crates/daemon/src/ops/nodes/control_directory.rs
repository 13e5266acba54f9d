//! The `.zfs` directory: `.zfs/snapshot/NAME` is the root of a snapshot. Nothing here is on disk.
//!
//! # Theory
//! In `.zfs/snapshot`, `mkdir` takes a snapshot, `rename` renames one, `rmdir` destroys one. Both directories have the mode that OpenZFS
//! gives them, which lets all users try; the pool is asked which of them may, as for `zfs snapshot`, `rename` and `destroy`.
//!
//! A snapshot that is renamed stays where it is to those who are in it. One that is destroyed is stale to them.

use fuse::{Attr, Attributes, Context, Entry, EntryKind, Errno, Result, ROOT_NODE, Timestamp};

use crate::ops::nodes::node::{CONTROL_DIRECTORY, Node, SNAPSHOT_DIRECTORY};
use crate::ops::nodes::slots::SnapshotInfo;
use crate::ops::rights;
use crate::ops::{LONG, Ops, SHORT, SnapDir};

/// The name in the root directory.
pub(in crate::ops) const CONTROL_NAME: &[u8] = b".zfs";
const SNAPSHOT_NAME: &[u8] = b"snapshot";
/// Cookies of a listing: "." and "..", then the entries; of snapshots, the id and this.
const COOKIE_FIRST: u64 = 2;
/// Snapshots that one answer has at the most.
const LISTED_MAX: usize = 1024;
/// The longest name of a dataset, snapshot or not, with its NUL.
const NAME_SIZE: usize = 256;

/// Inode numbers that `stat` shows, as OpenZFS on Linux has them: of `.zfs`, of `snapshot` in it, and from where those of the
/// snapshots in that are counted down.
pub(in crate::ops) const SHOWN_CONTROL: u64 = 0xffff_ffff_ffff;
const SHOWN_SNAPSHOTS: u64 = 0xffff_ffff_fffd;
pub(in crate::ops) const SHOWN_SNAPSHOT: u64 = 0xffff_ffff_fffc;

/// A line of a listing.
pub(in crate::ops) struct ControlEntry {
    pub(in crate::ops) inode: u64,
    pub(in crate::ops) next: u64,
    pub(in crate::ops) name: Vec<u8>,
}

impl Ops {
    /// Is this the directory in which `.zfs` is, unless the property `snapdir` is `disabled`?
    pub(in crate::ops) fn may_have_control_directory(&self, parent: Node) -> bool {
        parent == Node::Root && self.slots.exist()
    }

    /// Does `.zfs` exist in this directory?
    pub(in crate::ops) fn has_control_directory(&self, parent: Node) -> bool {
        self.may_have_control_directory(parent) && self.options.read().snapdir != SnapDir::Disabled
    }

    pub(in crate::ops) fn control_entry(&self) -> Entry {
        let attr = self.control_attr(SHOWN_CONTROL, 3, Timestamp::default());
        Entry { node: CONTROL_DIRECTORY, generation: 0, attr, entry_valid: LONG, attr_valid: LONG }
    }

    fn control_attr(&self, inode: u64, links: u32, time: Timestamp) -> Attr {
        Attr { inode, size: u64::from(links), atime: time, mtime: time, ctime: time, mode: libc::S_IFDIR | 0o777, links, block_size: 512, ..Attr::default() }
    }

    pub(in crate::ops) fn control_attributes(&self, node: Node) -> Result<Attributes> {
        match node {
            Node::Control => Ok(Attributes { attr: self.control_attr(SHOWN_CONTROL, 3, Timestamp::default()), valid: LONG }),
            Node::Snapshots => {
                let count = self.slots.source()?.list()?.len();
                let links = u32::try_from(count).unwrap_or(u32::MAX).saturating_add(2);
                let attr = self.control_attr(SHOWN_SNAPSHOTS, links, self.slots.source()?.changed()?);
                Ok(Attributes { attr: Attr { size: 2, ..attr }, valid: SHORT })
            }
            _ => Err(Errno::ESTALE),
        }
    }

    pub(in crate::ops) fn look_up_control(&self, parent: Node, name: &[u8]) -> Result<Entry> {
        match (parent, name) {
            (Node::Control, b"..") => {
                let _inside = self.enter(ROOT_NODE);
                self.look_up(Node::Root, b".")
            }
            (Node::Control, b".") | (Node::Snapshots, b"..") => Ok(self.control_entry()),
            (Node::Control, SNAPSHOT_NAME) | (Node::Snapshots, b".") => {
                let attributes = self.control_attributes(Node::Snapshots)?;
                Ok(Entry { node: SNAPSHOT_DIRECTORY, generation: 0, attr: attributes.attr, entry_valid: LONG, attr_valid: attributes.valid })
            }
            (Node::Snapshots, _) => self.enter_snapshot(name),
            _ => Ok(Entry::negative(LONG)),
        }
    }

    fn enter_snapshot(&self, name: &[u8]) -> Result<Entry> {
        let Ok(name) = std::str::from_utf8(name) else { return Err(Errno::ENOENT) };
        // From here on it counts as known to the kernel.
        let (slot, filesystem) = self.slots.enter(name)?;
        let stat = filesystem.lookup_inode(filesystem.root()).map_err(crate::errno::of).inspect_err(|_| self.slots.forgotten(slot, 1))?;
        // Not for long: a snapshot may be destroyed and another be made under its name.
        Ok(Entry { entry_valid: SHORT, ..self.entry(slot, &stat) })
    }

    /// The entries from a cookie on, or as many of them as are asked for at a time.
    pub(in crate::ops) fn control_list(&self, node: Node, offset: u64) -> Result<Vec<ControlEntry>> {
        let (inode, parent) = match node {
            Node::Control => {
                let _inside = self.enter(ROOT_NODE);
                let root = self.filesystem()?.root();
                (SHOWN_CONTROL, root)
            }
            _ => (SHOWN_SNAPSHOTS, SHOWN_CONTROL),
        };
        let mut all = vec![(inode, b".".to_vec()), (parent, b"..".to_vec())];
        debug_assert_eq!(all.len() as u64, COOKIE_FIRST);
        if node == Node::Control {
            all.push((SHOWN_SNAPSHOTS, SNAPSHOT_NAME.to_vec()));
        }
        let numbered = all.into_iter().enumerate().skip(usize::try_from(offset).unwrap_or(usize::MAX));
        let mut entries: Vec<ControlEntry> = numbered.map(|(at, (inode, name))| ControlEntry { inode, next: at as u64 + 1, name }).collect();
        if node == Node::Snapshots {
            let list = self.slots.listing(offset <= COOKIE_FIRST)?;
            let first = list.partition_point(|snapshot| snapshot.id.saturating_add(COOKIE_FIRST) <= offset);
            // An inode number that does not depend on whether the snapshot is open.
            let entry = |snapshot: &SnapshotInfo| ControlEntry {
                inode: SHOWN_SNAPSHOT.saturating_sub(snapshot.id),
                next: snapshot.id.saturating_add(COOKIE_FIRST),
                name: snapshot.name.clone().into_bytes(),
            };
            entries.extend(list[first..].iter().take(LISTED_MAX).map(entry));
        }
        Ok(entries)
    }

    /// `mkdir` in `.zfs/snapshot`.
    #[doc(alias = "zfsctl_snapdir_mkdir")]
    pub(in crate::ops) fn make_snapshot(&self, cx: &Context, name: &[u8]) -> Result<Entry> {
        let caller = rights::snapshot_caller(cx)?;
        let name = snapshot_name(name)?;
        fuse::before_blocking();
        self.slots.source()?.make(&caller, name)?;
        self.enter_snapshot(name.as_bytes())
    }

    /// `rename` in `.zfs/snapshot`.
    #[doc(alias = "zfsctl_snapdir_rename")]
    pub(in crate::ops) fn rename_snapshot(&self, cx: &Context, from: &[u8], to: &[u8]) -> Result<()> {
        let caller = rights::snapshot_caller(cx)?;
        let from = std::str::from_utf8(from).map_err(|_| Errno::ENOENT)?;
        let to = snapshot_name(to)?;
        if from == to {
            return Ok(());
        }
        fuse::before_blocking();
        let source = self.slots.source()?;
        let renamed = source.rename(&caller, from, to);
        // Where the pool stopped meanwhile it may have the new name, though this failed.
        if renamed.is_ok() || source.guid(from) == Err(Errno::ENOENT) && source.guid(to).is_ok() {
            self.slots.renamed(from, to);
        }
        renamed
    }

    /// `rmdir` in `.zfs/snapshot`.
    #[doc(alias = "zfsctl_snapdir_remove")]
    pub(in crate::ops) fn destroy_snapshot(&self, cx: &Context, name: &[u8]) -> Result<()> {
        let caller = rights::snapshot_caller(cx)?;
        let name = std::str::from_utf8(name).map_err(|_| Errno::ENOENT)?;
        fuse::before_blocking();
        // A program that is in it keeps it if this caller may not destroy it.
        self.slots.source()?.check_destroy(&caller, name)?;
        let taken = self.slots.take(name).map(|(slot, snapshot)| {
            drop(snapshot);
            slot
        });
        let destroyed = self.slots.source()?.destroy(&caller, name);
        if let (Err(_), Some(slot)) = (&destroyed, taken)
            && let Ok(snapshot) = self.slots.source()?.open(name)
        {
            self.slots.give_back(slot, snapshot);
        }
        destroyed
    }

    /// What `..` is of the root of a snapshot.
    pub(in crate::ops) fn is_snapshot_root(&self, node: Node) -> bool {
        matches!(node, Node::Snapshot(slot, inode) if self.slots.get(slot).is_ok_and(|filesystem| filesystem.root() == inode))
    }
}

/// A name that a snapshot may have.
fn snapshot_name(name: &[u8]) -> Result<&str> {
    let is_good = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':' | b' ');
    if name.len() >= NAME_SIZE {
        return Err(Errno::ENAMETOOLONG);
    }
    std::str::from_utf8(name).ok().filter(|name| name.as_bytes().iter().all(is_good)).ok_or(Errno::EILSEQ)
}

/// All entries of `.zfs` are directories.
pub(in crate::ops) const KIND: EntryKind = EntryKind(4);
const _: () = assert!(ROOT_NODE == 1);
