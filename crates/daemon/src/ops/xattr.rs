//! Extended attributes.

use fuse::{Errno, ExtendedAttribute, Result};
use tarnfs::XattrMode;

use super::node::Node;
use super::Ops;

/// Access control lists would have to be obeyed, not only kept.
const ACL_PREFIX: &[u8] = b"system.posix_acl_";

impl Ops {
    fn check_xattr(&self, name: &[u8]) -> Result<()> {
        if !self.options.read().xattrs || name.starts_with(ACL_PREFIX) { Err(Errno::EOPNOTSUPP) } else { Ok(()) }
    }

    pub(super) fn set_xattr(&self, node: Node, attribute: &ExtendedAttribute<'_>) -> Result<()> {
        self.check_xattr(attribute.name)?;
        let mode = match attribute.flags.cast_signed() {
            0 => XattrMode::Any,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Errno::EINVAL),
        };
        let (filesystem, inode) = self.locate_for_change(node)?;
        filesystem.setxattr(inode, attribute.name, attribute.value, mode).map_err(crate::errno::of)
    }

    pub(super) fn get_xattr(&self, node: Node, name: &[u8], out: &mut [u8]) -> Result<usize> {
        self.check_xattr(name)?;
        if matches!(node, Node::Control | Node::Snapshots) {
            return Err(Errno::ENODATA);
        }
        let (located, inode) = self.locate(node)?;
        answer(&located.filesystem().getxattr(inode, name).map_err(crate::errno::of)?, out)
    }

    pub(super) fn list_xattrs(&self, node: Node, out: &mut [u8]) -> Result<usize> {
        if matches!(node, Node::Control | Node::Snapshots) || !self.options.read().xattrs {
            return Ok(0);
        }
        let (located, inode) = self.locate(node)?;
        let names = located.filesystem().listxattr(inode).map_err(crate::errno::of)?;
        let list: Vec<u8> = names.into_iter().flat_map(|name| name.into_iter().chain([0])).collect();
        answer(&list, out)
    }

    pub(super) fn remove_xattr(&self, node: Node, name: &[u8]) -> Result<()> {
        self.check_xattr(name)?;
        let (filesystem, inode) = self.locate_for_change(node)?;
        filesystem.removexattr(inode, name).map_err(crate::errno::of)
    }
}

/// The length is the answer; the bytes are too if there is room.
fn answer(bytes: &[u8], out: &mut [u8]) -> Result<usize> {
    if out.is_empty() {
        return Ok(bytes.len());
    }
    out.get_mut(..bytes.len()).ok_or(Errno::ERANGE)?.copy_from_slice(bytes);
    Ok(bytes.len())
}
