//! The file attributes of versions before system attributes, and the constants of the POSIX layer's objects.
//!
//! # Theory
//! Before version 5 a file's attributes were one fixed structure in the bonus, followed by a short symbolic link's target or
//! a virus scanner's stamp. Its fields have the numbers 0 to 15 among the system attributes, in this order, so that one piece
//! of code reads both forms.

use crate::corruption::Corruption;
use crate::sa::Owner;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Object number of a file system's master node.
#[doc(alias = "MASTER_NODE_OBJ")]
pub const MASTER_NODE: u64 = 1;
/// Master node: object number of the root directory.
pub const ROOT_NAME: &str = "ROOT";
/// Master node: object number of the set of removed files that are still open.
#[doc(alias = "ZFS_UNLINKED_SET")]
pub const DELETE_QUEUE_NAME: &str = "DELETE_QUEUE";
/// Master node: the version of the POSIX layer.
pub const VERSION_NAME: &str = "VERSION";
/// Master node: object number of the SA master node.
pub const SA_ATTRS_NAME: &str = "SA_ATTRS";
/// Master node: object number of the table of foreign domains.
pub const FUID_NAME: &str = "FUID";
/// Master node: object number of the shares directory.
pub const SHARES_NAME: &str = "SHARES";
/// Version with which directory entries have types.
pub const VERSION_DIRENT: u64 = 2;
/// Version with foreign user ids and access control entries of two sizes.
pub const VERSION_FUID: u64 = 3;
/// Version with user accounting.
pub const VERSION_USERSPACE: u64 = 4;
/// Version with system attributes; the newest.
pub const VERSION_SA: u64 = 5;

/// Size of [`ZnodePhys`].
#[doc(alias = "ZFS_OLD_ZNODE_PHYS_SIZE")]
pub const ZNODE_SIZE: usize = 0x108;

/// File flag: it belongs to a hidden directory of extended attributes.
#[doc(alias = "ZFS_XATTR")]
pub const FLAG_XATTR: u64 = 0x1;
/// File flag: the access control list has entries that children inherit.
#[doc(alias = "ZFS_INHERIT_ACE")]
pub const FLAG_INHERIT_ACE: u64 = 0x2;
/// File flag: the access control list says no more than the mode.
#[doc(alias = "ZFS_ACL_TRIVIAL")]
pub const FLAG_ACL_TRIVIAL: u64 = 0x4;
/// File flag: the access control list has object entries.
#[doc(alias = "ZFS_ACL_OBJ_ACE")]
pub const FLAG_ACL_OBJECT: u64 = 0x8;
/// File flag: the access control list is protected from inheritance.
#[doc(alias = "ZFS_ACL_PROTECTED")]
pub const FLAG_ACL_PROTECTED: u64 = 0x10;
/// File flag: the access control list is a default.
#[doc(alias = "ZFS_ACL_DEFAULTED")]
pub const FLAG_ACL_DEFAULTED: u64 = 0x20;
/// File flag: the access control list came by inheritance.
#[doc(alias = "ZFS_ACL_AUTO_INHERIT")]
pub const FLAG_ACL_AUTO_INHERIT: u64 = 0x40;
/// File flag: a scan stamp follows the old znode.
#[doc(alias = "ZFS_BONUS_SCANSTAMP")]
pub const FLAG_BONUS_SCAN_STAMP: u64 = 0x80;
/// File flag: everyone may execute.
#[doc(alias = "ZFS_NO_EXECS_DENIED")]
pub const FLAG_NO_EXECUTE_DENIED: u64 = 0x100;
/// File attribute: may not be written.
#[doc(alias = "ZFS_READONLY")]
pub const FLAG_READONLY: u64 = 1 << 32;
/// File attribute of DOS.
#[doc(alias = "ZFS_HIDDEN")]
pub const FLAG_HIDDEN: u64 = 1 << 33;
/// File attribute of DOS.
#[doc(alias = "ZFS_SYSTEM")]
pub const FLAG_SYSTEM: u64 = 1 << 34;
/// File attribute of DOS: changed since the last backup.
#[doc(alias = "ZFS_ARCHIVE")]
pub const FLAG_ARCHIVE: u64 = 1 << 35;
/// File attribute: may not be changed in any way.
#[doc(alias = "ZFS_IMMUTABLE")]
pub const FLAG_IMMUTABLE: u64 = 1 << 36;
/// File attribute: may not be removed.
#[doc(alias = "ZFS_NOUNLINK")]
pub const FLAG_NO_UNLINK: u64 = 1 << 37;
/// File attribute: may only grow.
#[doc(alias = "ZFS_APPENDONLY")]
pub const FLAG_APPEND_ONLY: u64 = 1 << 38;
/// File attribute: left out of dumps.
#[doc(alias = "ZFS_NODUMP")]
pub const FLAG_NO_DUMP: u64 = 1 << 39;
/// File attribute: changed since the last virus scan.
#[doc(alias = "ZFS_AV_MODIFIED")]
pub const FLAG_AV_MODIFIED: u64 = 1 << 42;
/// File attribute: known to have holes.
#[doc(alias = "ZFS_SPARSE")]
pub const FLAG_SPARSE: u64 = 1 << 45;
/// File attribute: children inherit the project.
#[doc(alias = "ZFS_PROJINHERIT")]
pub const FLAG_PROJECT_INHERIT: u64 = 1 << 46;
/// The file has a project id attribute.
#[doc(alias = "ZFS_PROJID")]
pub const FLAG_PROJECT_ID: u64 = 1 << 47;

/// The access control list of an old znode.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ZnodeAcl {
    /// Object with the entries, if they do not fit here.
    #[doc(alias = "z_acl_extern_obj")]
    pub object: U64,
    /// Bytes of the entries (version 0: number of entries).
    #[doc(alias = "z_acl_size")]
    pub size: U32,
    /// 0: entries of one size; 1: of two.
    #[doc(alias = "z_acl_version")]
    pub version: U16,
    /// Number of entries (version 0: unused).
    #[doc(alias = "z_acl_count")]
    pub count: U16,
    /// The entries, if they fit.
    #[doc(alias = "z_ace_data")]
    pub entries: [u8; 72],
}

/// The attributes of a file before version 5.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // each field is the attribute of its name
pub struct ZnodePhys {
    #[doc(alias = "zp_atime")]
    pub access_time: [U64; 2],
    #[doc(alias = "zp_mtime")]
    pub modification_time: [U64; 2],
    #[doc(alias = "zp_ctime")]
    pub change_time: [U64; 2],
    #[doc(alias = "zp_crtime")]
    pub creation_time: [U64; 2],
    #[doc(alias = "zp_gen")]
    pub generation: U64,
    #[doc(alias = "zp_mode")]
    pub mode: U64,
    #[doc(alias = "zp_size")]
    pub size: U64,
    #[doc(alias = "zp_parent")]
    pub parent: U64,
    #[doc(alias = "zp_links")]
    pub links: U64,
    #[doc(alias = "zp_xattr")]
    pub extended_attributes: U64,
    #[doc(alias = "zp_rdev")]
    pub device: U64,
    #[doc(alias = "zp_flags")]
    pub flags: U64,
    #[doc(alias = "zp_uid")]
    pub uid: U64,
    #[doc(alias = "zp_gid")]
    pub gid: U64,
    #[doc(alias = "zp_zap")]
    pub extra: U64,
    #[doc(alias = "zp_pad")]
    pub pad: [U64; 3],
    #[doc(alias = "zp_acl")]
    pub acl: ZnodeAcl,
}

const _: () = assert!(size_of::<ZnodeAcl>() == 88 && size_of::<ZnodePhys>() == ZNODE_SIZE);

/// The znode at the start of a bonus (already in little-endian order).
pub fn znode(bonus: &[u8]) -> Result<ZnodePhys, Corruption> {
    ZnodePhys::read_from_prefix(bonus).map(|(znode, _)| znode).map_err(|_| Corruption::new("znode", "size", bonus.len() as u64))
}

/// Whose space the file of an old znode takes.
pub fn owner(bonus: &[u8]) -> Result<Owner, Corruption> {
    znode(bonus).map(|znode| Owner { uid: znode.uid.get(), gid: znode.gid.get(), project: 0, generation: znode.generation.get() })
}

/// The value of a directory entry: object number below, type (the upper bits of the mode) above.
pub const fn directory_entry(object: u64, mode: u64) -> u64 {
    object | (mode >> 12 & 0xf) << 60
}

/// The object number of a directory entry's value.
#[doc(alias = "ZFS_DIRENT_OBJ")]
pub const fn entry_object(value: u64) -> u64 {
    value & ((1 << 48) - 1)
}

/// The type of a directory entry's value, as `d_type` of `readdir` has it; 0 if the version stored none.
#[doc(alias = "ZFS_DIRENT_TYPE")]
pub const fn entry_type(value: u64) -> u8 {
    (value >> 60) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn fields_are_at_their_offsets() {
        assert_eq!(offset_of!(ZnodePhys, generation), 64);
        assert_eq!(offset_of!(ZnodePhys, extended_attributes), 104);
        assert_eq!(offset_of!(ZnodePhys, uid), 128);
        assert_eq!(offset_of!(ZnodePhys, acl), 176);
        assert_eq!(owner(&[0; 100]).unwrap_err().field, "size");
    }

    #[test]
    fn a_directory_entry_keeps_object_and_type() {
        let value = directory_entry(34, 0o040755);
        assert_eq!(value, 0x4000_0000_0000_0022);
        assert_eq!((entry_object(value), entry_type(value)), (34, 4));
    }
}
