//! Names: looked up, made, removed, renamed.

use fuse::{Context, Entry, Errno, Result};
use tarnfs::{Credentials, ErrorKind, InodeNumber, RenameMode};

use super::attributes::{Located, device_from_kernel};
use super::nodes::control_directory::CONTROL_NAME;
use super::nodes::node::Node;
use super::Ops;

/// The caller's credentials. The kernel sends only those of its groups that matter.
pub(super) fn credentials(cx: &Context, umask: u32) -> Credentials {
    Credentials { uid: cx.uid, gid: cx.gid, groups: cx.other_group.into_iter().collect(), umask }
}

impl Ops {
    pub(super) fn look_up(&self, parent: Node, name: &[u8]) -> Result<Entry> {
        if matches!(parent, Node::Control | Node::Snapshots) {
            return self.look_up_control(parent, name);
        }
        if name == CONTROL_NAME && self.has_control_directory(parent) {
            return Ok(self.control_entry());
        }
        if name == b".." && self.is_snapshot_root(parent) {
            return self.look_up_control(Node::Snapshots, b".");
        }
        let (located, directory) = self.locate(parent)?;
        if name == b"." {
            return self.look_up_number(&located, directory);
        }
        match located.filesystem().lookup_if_any(directory, name) {
            Ok(Some(stat)) => {
                let slot = located.slot();
                if slot != 0 {
                    self.slots.known(slot, located.filesystem())?;
                }
                Ok(self.entry(slot, &stat))
            }
            Ok(None) => Ok(Entry::negative(self.absence_life())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Entry::negative(self.absence_life())),
            Err(error) => Err(crate::errno::of(error)),
        }
    }

    /// A file by its number: the kernel asks when a handle (of an NFS client, or in `open_by_handle_at`) names a file
    /// that it has forgotten. The file may be gone, or its number may be another object's by now.
    fn look_up_number(&self, located: &Located, inode: InodeNumber) -> Result<Entry> {
        let stat = located.filesystem().lookup_inode(inode).map_err(|error| match error.kind() {
            ErrorKind::Io | ErrorKind::Checksum | ErrorKind::Suspended => crate::errno::of(error),
            _ => Errno::ESTALE,
        })?;
        if located.slot() != 0 {
            self.slots.known(located.slot(), located.filesystem())?;
        }
        Ok(self.entry(located.slot(), &stat))
    }

    pub(super) fn forget_node(&self, node: Node, count: u64) {
        match node {
            // FUSE never counts the root, but other lookups of it are counted: take those back.
            Node::Root => self.head.forget(self.head.root(), count),
            Node::Head(inode) => self.head.forget(inode, count),
            Node::Snapshot(slot, inode) => {
                if let Ok(filesystem) = self.slots.get(slot) {
                    filesystem.forget(inode, count);
                }
                self.slots.forgotten(slot, count);
            }
            Node::Control | Node::Snapshots | Node::Foreign => {}
        }
    }

    /// `.zfs` cannot be removed or renamed. A directory of a user that has this name can, while the property `snapdir` is `disabled`.
    fn check_name(&self, parent: Node, name: &[u8], refusal: Errno) -> Result<()> {
        if name == CONTROL_NAME && self.has_control_directory(parent) { Err(refusal) } else { Ok(()) }
    }

    /// Nothing else can be made with this name, whatever `snapdir` says today: when it says something else, it would be out of sight.
    fn check_new_name(&self, parent: Node, name: &[u8], refusal: Errno) -> Result<()> {
        if name == CONTROL_NAME && self.may_have_control_directory(parent) { Err(refusal) } else { Ok(()) }
    }

    pub(super) fn make_file(&self, cx: &Context, parent: Node, name: &[u8], mode: u32, umask: u32, device: u32) -> Result<Entry> {
        self.check_new_name(parent, name, Errno::EEXIST)?;
        let (filesystem, directory) = self.locate_for_change(parent)?;
        // A mode without a type means a regular file.
        let mode = if mode & libc::S_IFMT == 0 { mode | libc::S_IFREG } else { mode };
        let stat = filesystem.create(directory, name, mode, device_from_kernel(device), &credentials(cx, umask)).map_err(crate::errno::of)?;
        Ok(self.entry(0, &stat))
    }

    pub(super) fn make_directory(&self, cx: &Context, parent: Node, name: &[u8], mode: u32, umask: u32) -> Result<Entry> {
        self.check_new_name(parent, name, Errno::EEXIST)?;
        if parent == Node::Snapshots {
            return self.make_snapshot(cx, name);
        }
        let (filesystem, directory) = self.locate_for_change(parent)?;
        let stat = filesystem.mkdir(directory, name, mode, &credentials(cx, umask)).map_err(crate::errno::of)?;
        Ok(self.entry(0, &stat))
    }

    pub(super) fn make_link(&self, cx: &Context, parent: Node, name: &[u8], target: &[u8]) -> Result<Entry> {
        self.check_new_name(parent, name, Errno::EEXIST)?;
        let (filesystem, directory) = self.locate_for_change(parent)?;
        let stat = filesystem.symlink(directory, name, target, &credentials(cx, 0)).map_err(crate::errno::of)?;
        Ok(self.entry(0, &stat))
    }

    pub(super) fn make_unnamed(&self, cx: &Context, parent: Node, mode: u32, umask: u32) -> Result<Entry> {
        let (filesystem, directory) = self.locate_for_change(parent)?;
        let stat = filesystem.create_unnamed(directory, mode, &credentials(cx, umask)).map_err(crate::errno::of)?;
        Ok(self.entry(0, &stat))
    }

    pub(super) fn add_link(&self, node: Node, parent: Node, name: &[u8]) -> Result<Entry> {
        self.check_new_name(parent, name, Errno::EEXIST)?;
        let (filesystem, directory) = self.locate_for_change(parent)?;
        let (_, inode) = match node {
            Node::Snapshot(..) | Node::Control | Node::Snapshots => return Err(Errno::EXDEV),
            node => self.locate_for_change(node)?,
        };
        let stat = filesystem.link(inode, directory, name).map_err(crate::errno::of)?;
        Ok(self.entry(0, &stat))
    }

    pub(super) fn remove_file(&self, parent: Node, name: &[u8]) -> Result<()> {
        self.check_name(parent, name, Errno::EISDIR)?;
        let (filesystem, directory) = self.locate_for_change(parent)?;
        filesystem.unlink(directory, name).map_err(crate::errno::of)
    }

    pub(super) fn remove_directory(&self, cx: &Context, parent: Node, name: &[u8]) -> Result<()> {
        self.check_name(parent, name, Errno::EPERM)?;
        if parent == Node::Snapshots {
            return self.destroy_snapshot(cx, name);
        }
        let (filesystem, directory) = self.locate_for_change(parent)?;
        filesystem.rmdir(directory, name).map_err(crate::errno::of)
    }

    pub(super) fn rename_entry(&self, cx: &Context, from: (Node, &[u8]), to: (Node, &[u8]), flags: u32) -> Result<()> {
        self.check_name(from.0, from.1, Errno::EPERM)?;
        self.check_new_name(to.0, to.1, Errno::EPERM)?;
        if from.0 == Node::Snapshots || to.0 == Node::Snapshots {
            // Snapshots cannot be moved out of where they are, nor replaced.
            return if from.0 == to.0 && flags & !libc::RENAME_NOREPLACE == 0 { self.rename_snapshot(cx, from.1, to.1) } else { Err(Errno::EINVAL) };
        }
        let whiteout = (flags & libc::RENAME_WHITEOUT != 0).then(|| credentials(cx, 0));
        let mode = match flags & !libc::RENAME_WHITEOUT {
            0 => RenameMode::Replace,
            libc::RENAME_NOREPLACE => RenameMode::NoReplace,
            libc::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return Err(Errno::EINVAL),
        };
        let (filesystem, directory) = self.locate_for_change(from.0)?;
        let (_, new_directory) = self.locate_for_change(to.0)?;
        filesystem.rename_leaving(directory, from.1, new_directory, to.1, mode, whiteout.as_ref()).map_err(crate::errno::of)
    }
}
