//! Extended attributes.

use fuse::{Context, Errno, ExtendedAttribute, Result};
use tarnfs::{AclKind, AclType, XattrMode};

use super::Ops;
use super::nodes::node::Node;
use super::rights::{self, Namespace, Request};

/// Which extended attributes a mount has.
#[derive(Debug, Clone, Copy)]
pub struct XattrsInUse {
    /// Those of users: not with the property `xattr=off`, which is about no others, as in OpenZFS.
    pub users: bool,
    /// Access control lists.
    pub lists: bool,
}

impl XattrsInUse {
    fn has(self, namespace: Namespace) -> bool {
        match namespace {
            Namespace::User => self.users,
            Namespace::Lists => self.lists,
            Namespace::Trusted | Namespace::Security | Namespace::System | Namespace::None => true,
        }
    }

    /// Fails unless the caller may read or change an attribute of this name.
    pub(super) fn check(self, cx: &Context, name: &[u8], changes: bool) -> Result<()> {
        let namespace = Namespace::of(name);
        rights::check(cx, if changes { Request::ChangeXattr(namespace) } else { Request::ReadXattr(namespace) })?;
        if name.ends_with(b".") && name.iter().filter(|byte| **byte == b'.').count() == 1 {
            return Err(Errno::EINVAL);
        }
        if self.has(namespace) { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
    }

    /// Those of `names` that the caller may know, as `listxattr` has them.
    pub(super) fn list(self, cx: &Context, names: Vec<Vec<u8>>) -> Vec<u8> {
        let shown = |name: &Vec<u8>| {
            let namespace = Namespace::of(name);
            self.has(namespace) && rights::check(cx, Request::NameXattr(namespace)).is_ok()
        };
        names.into_iter().filter(shown).flat_map(|name| name.into_iter().chain([0])).collect()
    }
}

/// The mode that a program has given as a number.
pub(super) fn mode_of(attribute: &ExtendedAttribute<'_>) -> Result<XattrMode> {
    match attribute.flags.cast_signed() {
        0 => Ok(XattrMode::Any),
        libc::XATTR_CREATE => Ok(XattrMode::Create),
        libc::XATTR_REPLACE => Ok(XattrMode::Replace),
        _ => Err(Errno::EINVAL),
    }
}

impl Ops {
    /// Which extended attributes this mount has.
    pub fn xattrs_in_use(&self) -> XattrsInUse {
        let lists = self.has_posix_acls() && self.filesystem().is_ok_and(|filesystem| filesystem.options().acl_type == AclType::Posix);
        XattrsInUse { users: self.options.read().xattrs, lists }
    }

    pub(super) fn set_xattr(&self, cx: &Context, node: Node, attribute: &ExtendedAttribute<'_>) -> Result<()> {
        self.xattrs_in_use().check(cx, attribute.name, true)?;
        if let Some(kind) = AclKind::of_name(attribute.name) {
            let (filesystem, inode) = self.locate_for_change(node)?;
            return filesystem.set_posix_acl(inode, kind, Some(attribute.value), attribute.kill_sgid).map_err(crate::errno::of);
        }
        let mode = mode_of(attribute)?;
        let (filesystem, inode) = self.locate_for_change(node)?;
        filesystem.setxattr(inode, attribute.name, attribute.value, mode).map_err(crate::errno::of)
    }

    pub(super) fn get_xattr(&self, cx: &Context, node: Node, name: &[u8], out: &mut [u8]) -> Result<usize> {
        // A kernel that was told to obey lists asks for them before each access; there are none now.
        let no_list = AclKind::of_name(name).is_some() && self.has_posix_acls() && !self.xattrs_in_use().lists;
        if no_list || matches!(node, Node::Control | Node::Snapshots) {
            return Err(Errno::ENODATA);
        }
        self.xattrs_in_use().check(cx, name, false)?;
        let (located, inode) = self.locate(node)?;
        let found = located.filesystem().getxattr_if_any(inode, name).map_err(crate::errno::of)?;
        answer(&found.ok_or(Errno::ENODATA)?, out)
    }

    pub(super) fn list_xattrs(&self, cx: &Context, node: Node, out: &mut [u8]) -> Result<usize> {
        if matches!(node, Node::Control | Node::Snapshots) {
            return Ok(0);
        }
        let (located, inode) = self.locate(node)?;
        let names = located.filesystem().listxattr(inode).map_err(crate::errno::of)?;
        answer(&self.xattrs_in_use().list(cx, names), out)
    }

    pub(super) fn remove_xattr(&self, cx: &Context, node: Node, name: &[u8]) -> Result<()> {
        self.xattrs_in_use().check(cx, name, true)?;
        let (filesystem, inode) = self.locate_for_change(node)?;
        filesystem.removexattr(inode, name).map_err(crate::errno::of)
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
