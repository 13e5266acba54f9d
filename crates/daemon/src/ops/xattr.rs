//! Extended attributes.

use fuse::{Context, Errno, ExtendedAttribute, Result};
use tarnfs::{AclKind, AclType, XattrMode};

use super::node::Node;
use super::Ops;

const USER: &[u8] = b"user.";
const TRUSTED: &[u8] = b"trusted.";
const SECURITY: &[u8] = b"security.";
const SYSTEM: &[u8] = b"system.";

impl Ops {
    /// Whether names like this one can be used. The property `xattr=off` is about those of users only, as in OpenZFS; of those of the
    /// system we know access control lists alone.
    fn is_in_use(&self, name: &[u8]) -> bool {
        if name.starts_with(SYSTEM) {
            return AclKind::of_name(name).is_some() && self.has_posix_acls() && self.filesystem.options().acl_type == AclType::Posix;
        }
        !name.starts_with(USER) || self.options.read().xattrs
    }

    fn check_xattr(&self, name: &[u8]) -> Result<()> {
        if !name.starts_with(SYSTEM) {
            check_namespace(name)?;
        }
        if self.is_in_use(name) { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
    }

    pub(super) fn set_xattr(&self, node: Node, attribute: &ExtendedAttribute<'_>) -> Result<()> {
        self.check_xattr(attribute.name)?;
        if let Some(kind) = AclKind::of_name(attribute.name) {
            let (filesystem, inode) = self.locate_for_change(node)?;
            return filesystem.set_posix_acl(inode, kind, Some(attribute.value), attribute.kill_sgid).map_err(crate::errno::of);
        }
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
        // A kernel that was told to obey lists asks for them before each access; there are none now.
        let no_list = AclKind::of_name(name).is_some() && self.has_posix_acls() && !self.is_in_use(name);
        if no_list || matches!(node, Node::Control | Node::Snapshots) {
            return Err(Errno::ENODATA);
        }
        self.check_xattr(name)?;
        let (located, inode) = self.locate(node)?;
        answer(&located.filesystem().getxattr(inode, name).map_err(crate::errno::of)?, out)
    }

    pub(super) fn list_xattrs(&self, cx: &Context, node: Node, out: &mut [u8]) -> Result<usize> {
        if matches!(node, Node::Control | Node::Snapshots) {
            return Ok(0);
        }
        let (located, inode) = self.locate(node)?;
        let names = located.filesystem().listxattr(inode).map_err(crate::errno::of)?;
        let shown = |name: &Vec<u8>| self.is_in_use(name) && (cx.uid == 0 || !name.starts_with(TRUSTED));
        let list: Vec<u8> = names.into_iter().filter(shown).flat_map(|name| name.into_iter().chain([0])).collect();
        answer(&list, out)
    }

    pub(super) fn remove_xattr(&self, node: Node, name: &[u8]) -> Result<()> {
        self.check_xattr(name)?;
        let (filesystem, inode) = self.locate_for_change(node)?;
        filesystem.removexattr(inode, name).map_err(crate::errno::of)
    }
}

/// Fails for names that files have not on Linux, and for a namespace alone. Stored as they are, the former would come back as those
/// of users: that is how other systems store these.
pub(super) fn check_namespace(name: &[u8]) -> Result<()> {
    match [USER, TRUSTED, SECURITY].into_iter().find_map(|namespace| name.strip_prefix(namespace)) {
        Some([]) => Err(Errno::EINVAL),
        Some(_) => Ok(()),
        None => Err(Errno::EOPNOTSUPP),
    }
}

/// The length is the answer; the bytes are too if there is room.
pub(super) fn answer(bytes: &[u8], out: &mut [u8]) -> Result<usize> {
    if out.is_empty() {
        return Ok(bytes.len());
    }
    out.get_mut(..bytes.len()).ok_or(Errno::ERANGE)?.copy_from_slice(bytes);
    Ok(bytes.len())
}
