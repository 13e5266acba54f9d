//! Listings of directories, with and without attributes.

use fuse::{DirectoryPlusWriter, DirectoryWriter, EntryKind, Result};

use super::nodes::control_directory::{CONTROL_NAME, KIND, SHOWN_CONTROL};
use super::nodes::node::Node;
use super::{Ops, SnapDir};

/// The cookie of `.zfs` in the root, shown after everything else; no position of a ZAP is as high.
const CONTROL_COOKIE: u64 = i64::MAX as u64;

impl Ops {
    pub(super) fn shows_control_directory(&self, node: Node) -> bool {
        self.has_control_directory(node) && self.options.read().snapdir == SnapDir::Visible
    }

    pub(super) fn list(&self, node: Node, offset: u64, out: &mut DirectoryWriter<'_>) -> Result<()> {
        if matches!(node, Node::Control | Node::Snapshots) {
            for entry in self.control_list(node, offset)? {
                if !out.push(entry.inode, entry.next, KIND, &entry.name) {
                    break;
                }
            }
            return Ok(());
        }
        if offset == CONTROL_COOKIE {
            return Ok(());
        }
        let (located, directory) = self.locate(node)?;
        let mut full = false;
        let listed = located.filesystem().read_directory(directory, offset, &mut |entry| {
            full = !out.push(Self::shown_inode(located.slot(), located.filesystem(), entry.inode), entry.next, EntryKind(entry.kind.directory_type()), &entry.name);
            !full
        });
        if let Err(error) = listed {
            // As OpenZFS does: what is before the damage can be saved.
            return if out.is_empty() { Err(crate::errno::of(error)) } else { Ok(()) };
        }
        if !full && self.shows_control_directory(node) {
            let _ = out.push(SHOWN_CONTROL, CONTROL_COOKIE, KIND, CONTROL_NAME);
        }
        Ok(())
    }

    pub(super) fn list_plus(&self, node: Node, offset: u64, out: &mut DirectoryPlusWriter<'_>) -> Result<()> {
        if matches!(node, Node::Control | Node::Snapshots) {
            for entry in self.control_list(node, offset)? {
                // Without attributes: those would open each snapshot.
                if !out.push_bare(entry.inode, entry.next, KIND, &entry.name) {
                    break;
                }
            }
            return Ok(());
        }
        if offset == CONTROL_COOKIE {
            return Ok(());
        }
        let (located, directory) = self.locate(node)?;
        let (filesystem, slot) = (located.filesystem(), located.slot());
        let mut full = false;
        let listed = filesystem.read_directory(directory, offset, &mut |entry| {
            full = !out.has_room(entry.name.len());
            if full {
                return false;
            }
            let stat = if entry.name == b"." || entry.name == b".." { None } else { filesystem.lookup_inode(entry.inode).ok() };
            let pushed = match stat.filter(|_| slot == 0 || self.slots.known(slot, filesystem).is_ok()) {
                Some(stat) => out.push(entry.next, &entry.name, &self.entry(slot, &stat)),
                None => out.push_bare(Self::shown_inode(slot, filesystem, entry.inode), entry.next, EntryKind(entry.kind.directory_type()), &entry.name),
            };
            assert!(pushed, "there was room");
            true
        });
        if let Err(error) = listed {
            // What it is not told of the kernel cannot forget: so it gets what there is, and the error with its next call.
            return if out.is_empty() { Err(crate::errno::of(error)) } else { Ok(()) };
        }
        if !full && self.shows_control_directory(node) {
            let _ = out.push_bare(SHOWN_CONTROL, CONTROL_COOKIE, KIND, CONTROL_NAME);
        }
        Ok(())
    }
}
