//! The access control list in the format of NFSv4 that every file has on disk.

use engine::error::Result;
use engine::zil::Zil;
use ondisk::acl::{self, AccessEntry};
use ondisk::corruption::Corruption;
use ondisk::sa::Attribute;
use ondisk::znode;

use crate::zpl::inodes::file_set::FileSet;
use crate::zpl::inodes::inode::{Editor, Inode};
use crate::zpl::names::create::znode_acl;

/// Flags that say what the access control list is like.
const ACL_FLAGS: u64 = znode::FLAG_ACL_AUTO_INHERIT
    | znode::FLAG_ACL_DEFAULTED
    | znode::FLAG_ACL_PROTECTED
    | znode::FLAG_ACL_TRIVIAL
    | znode::FLAG_INHERIT_ACE
    | znode::FLAG_ACL_OBJECT;
/// Those of them that survive a change of the mode.
const LASTING_ACL_FLAGS: u64 = znode::FLAG_ACL_AUTO_INHERIT | znode::FLAG_ACL_DEFAULTED | znode::FLAG_ACL_PROTECTED;

/// Writes mode and access control list.
pub(in crate::zpl) fn set_acl(files: &FileSet, edit: &mut Editor<'_>, mode: u32, entries: &[AccessEntry]) -> Result<()> {
    let (uid, gid, mut flags) = (edit.word(Attribute::Uid)?, edit.word(Attribute::Gid)?, edit.word(Attribute::Flags)?);
    let (_, everyone_executes) = acl::mode(entries, uid, gid);
    flags &= !(ACL_FLAGS & !LASTING_ACL_FLAGS | znode::FLAG_NO_EXECUTE_DENIED);
    if acl::is_trivial(entries) {
        flags |= znode::FLAG_ACL_TRIVIAL;
    }
    if entries.iter().any(|entry| entry.flags & (acl::FILE_INHERIT | acl::DIRECTORY_INHERIT) != 0) {
        flags |= znode::FLAG_INHERIT_ACE;
    }
    if everyone_executes {
        flags |= znode::FLAG_NO_EXECUTE_DENIED;
    }
    let (mode, flags) = (u64::from(mode).to_le_bytes(), flags.to_le_bytes());
    let version = if files.version() >= znode::VERSION_FUID { acl::VERSION_1 } else { acl::VERSION_0 };
    if edit.attributes.is_znode() {
        let external = edit.attributes.get(Attribute::ZnodeAcl).and_then(|acl| acl.first_chunk()).map_or(0, |object| u64::from_le_bytes(*object));
        if external != 0 {
            files.objset().free(edit.writing.tx, external)?;
            // A file that gets this number must not be in the log while this is not: the replay would find the number taken.
            Zil::of(files.objset()).unlogged(edit.writing.tx);
        }
        return edit.set(&[(Attribute::Mode, &mode), (Attribute::Flags, &flags), (Attribute::ZnodeAcl, &znode_acl(version, entries))]);
    }
    let (bytes, count) = (acl::encode(version, entries), (entries.len() as u64).to_le_bytes());
    edit.set(&[(Attribute::Mode, &mode), (Attribute::Flags, &flags), (Attribute::AclEntries, &bytes), (Attribute::AclCount, &count)])
}

/// The access control list of a file.
pub(in crate::zpl) fn read_acl(files: &FileSet, inode: &Inode) -> Result<Vec<AccessEntry>> {
    let mut attributes = inode.attributes.write();
    if attributes.is_znode() {
        return read_znode_acl(files, attributes.get(Attribute::ZnodeAcl).unwrap_or(&[]));
    }
    if attributes.get(Attribute::AclEntries).is_none() {
        attributes.load_spill(&inode.contents.dnode)?;
    }
    let count = attributes.word(Attribute::AclCount).unwrap_or(0);
    let bytes = attributes.get(Attribute::AclEntries).unwrap_or(&[]);
    Ok(acl::decode(acl::VERSION_1, usize::try_from(count).unwrap_or(usize::MAX), bytes)?)
}

fn read_znode_acl(files: &FileSet, bytes: &[u8]) -> Result<Vec<AccessEntry>> {
    let short = || Corruption::new("znode ACL", "size", bytes.len() as u64);
    let word = |at: usize| bytes.get(at..at + 8).and_then(|bytes| bytes.first_chunk()).map(|bytes| u64::from_le_bytes(*bytes));
    let (external, packed) = (word(0).ok_or_else(short)?, word(8).ok_or_else(short)?);
    let (first, version, last) = (packed as u32 as usize, (packed >> 32) as u16, (packed >> 48) as usize);
    let (size, count) = if version == acl::VERSION_0 { (first.saturating_mul(12), first) } else { (first, last) };
    if external == 0 {
        return Ok(acl::decode(version, count, bytes.get(16..).ok_or_else(short)?)?);
    }
    if size > 1 << 20 {
        return Err(Corruption::new("znode ACL", "size", size as u64).into());
    }
    let mut entries = vec![0; size];
    files.objset().hold(external)?.read(0, &mut entries)?;
    Ok(acl::decode(version, count, &entries)?)
}
