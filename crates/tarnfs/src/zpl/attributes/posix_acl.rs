//! POSIX access control lists (property `acltype=posix`).
//!
//! # Theory
//! They are extended attributes with two fixed names, in the form in which Linux passes them. The kernel obeys them; what is left
//! to do here is to keep list and mode in step: a list that is set decides the mode, and is there before it; a list that says no more than the mode is not
//! stored; a change of the mode changes the list; and a new file begins with the default list of its directory, in place of
//! the caller's umask. The NFSv4 list that every file has on disk stays as it is: OpenZFS does not touch it either.
//!
//! # On disk
//! As any other extended attribute: see [`super::xattr`].

use engine::bail;
use engine::dmu::{OpenTx, Tx};
use engine::error::{ErrorKind, Result};
use ondisk::nvlist::{NvList, NvString, Value};
use ondisk::sa::Attribute;

use crate::zpl::file_system::FileSystem;
use crate::zpl::options::{AclType, Credentials};
use crate::zpl::inodes::inode::Inode;
use crate::zpl::log::records::{ChangedAttributes, Done};
use crate::zpl::names::link::NAME_CHANGE;
use crate::zpl::{FileKind, InodeNumber, XattrMode};

const SET_GROUP_ID: u64 = 0o2000;
const PERMISSIONS: u64 = 0o777;
/// Of the form in which lists are passed.
const VERSION: u32 = 2;
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;

const USER_OBJECT: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJECT: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// Which of the two lists of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AclKind {
    /// Which users may do what with it.
    Access,
    /// With what new files in it (a directory) begin.
    Default,
}

impl AclKind {
    /// The name of the extended attribute.
    pub fn name(self) -> &'static [u8] {
        match self {
            AclKind::Access => b"system.posix_acl_access",
            AclKind::Default => b"system.posix_acl_default",
        }
    }

    /// The list that is stored under this name, if it is one.
    pub fn of_name(name: &[u8]) -> Option<AclKind> {
        [AclKind::Access, AclKind::Default].into_iter().find(|kind| kind.name() == name)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    tag: u16,
    permissions: u16,
    id: u32,
}

/// A list that makes sense.
#[derive(Debug, Clone, PartialEq, Eq)]
struct List(Vec<Entry>);

/// What the permissions of a mode amount to beside a list.
struct Mode {
    bits: u64,
    /// The list says no more than the bits.
    says_all: bool,
}

impl List {
    fn decode(bytes: &[u8]) -> Result<List> {
        let Some((version, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else { bail!(Invalid, "an access control list of {} bytes", bytes.len()) };
        if u32::from_le_bytes(*version) != VERSION {
            bail!(NotSupported, "an access control list of version {}", u32::from_le_bytes(*version));
        }
        let (entries, left) = rest.as_chunks::<ENTRY_BYTES>();
        let entries = entries.iter().map(|[tag, tag2, permissions, permissions2, id @ ..]| Entry {
            tag: u16::from_le_bytes([*tag, *tag2]),
            permissions: u16::from_le_bytes([*permissions, *permissions2]),
            id: u32::from_le_bytes(*id),
        });
        let list = List(entries.collect());
        if !left.is_empty() || !list.makes_sense() {
            bail!(Invalid, "the access control list makes no sense");
        }
        Ok(list)
    }

    /// Owner, group and others once each, in this order and named ones behind theirs; named ones need a mask.
    fn makes_sense(&self) -> bool {
        let count = |tag| self.0.iter().filter(|entry| entry.tag == tag).count();
        let named = count(USER) + count(GROUP);
        self.0.iter().all(|entry| matches!(entry.tag, USER_OBJECT | USER | GROUP_OBJECT | GROUP | MASK | OTHER) && entry.permissions <= 7)
            && self.0.is_sorted_by_key(|entry| entry.tag)
            && [USER_OBJECT, GROUP_OBJECT, OTHER].into_iter().all(|tag| count(tag) == 1)
            && (count(MASK) == 1 || (count(MASK) == 0 && named == 0))
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            bytes.extend_from_slice(&entry.tag.to_le_bytes());
            bytes.extend_from_slice(&entry.permissions.to_le_bytes());
            bytes.extend_from_slice(&entry.id.to_le_bytes());
        }
        bytes
    }

    fn permissions(&self, tag: u16) -> Option<u64> {
        self.0.iter().find(|entry| entry.tag == tag).map(|entry| entry.permissions.into())
    }

    /// The permissions of a file with this list: where there is a mask, the group's bits show it.
    fn mode(&self) -> Mode {
        let bits = |tag| self.permissions(tag).unwrap_or(0);
        let group = self.permissions(MASK).unwrap_or(bits(GROUP_OBJECT));
        let says_all = self.0.iter().all(|entry| matches!(entry.tag, USER_OBJECT | GROUP_OBJECT | OTHER));
        Mode { bits: bits(USER_OBJECT) << 6 | group << 3 | bits(OTHER), says_all }
    }

    /// The entry that the group's bits of the mode stand for.
    fn group_class(&self) -> u16 {
        if self.permissions(MASK).is_some() { MASK } else { GROUP_OBJECT }
    }

    /// Permissions of `mode` for the class of an entry; `None`: the mode says nothing of it.
    fn share(tag: u16, group_class: u16, mode: u64) -> Option<u16> {
        let share = match tag {
            USER_OBJECT => mode >> 6,
            OTHER => mode,
            tag if tag == group_class => mode >> 3,
            _ => return None,
        };
        Some((share & 7) as u16)
    }

    /// After a change of the mode.
    fn with_mode(mut self, mode: u64) -> List {
        let group_class = self.group_class();
        for entry in &mut self.0 {
            entry.permissions = Self::share(entry.tag, group_class, mode).unwrap_or(entry.permissions);
        }
        self
    }

    /// The list of a new file that is made with `mode`, if this is the default list of its directory: no more than both allow.
    fn for_new_file(mut self, mode: u64) -> List {
        let group_class = self.group_class();
        for entry in &mut self.0 {
            entry.permissions &= Self::share(entry.tag, group_class, mode).unwrap_or(7);
        }
        self
    }
}

/// One list of a new file, as it is stored.
type NewList = (AclKind, Vec<u8>);

/// The lists that a new file begins with.
#[derive(Default)]
pub(in crate::zpl) struct NewLists {
    all: Vec<NewList>,
    /// So many of them go among its attributes, the others into files of their own. Decided once: the property `xattr` may change while the file is made.
    listed: usize,
}

impl NewLists {
    fn listed(&self) -> &[NewList] {
        &self.all[..self.listed]
    }

    fn aside(&self) -> &[NewList] {
        &self.all[self.listed..]
    }
}

impl FileSystem {
    fn has_posix_lists(&self) -> bool {
        self.options().acl_type == AclType::Posix
    }

    fn posix_list(&self, inode: &Inode, kind: AclKind) -> Result<Option<List>> {
        // A crash may leave an empty one that was about to be written; to Linux, too, that is none.
        let found = self.find_xattr(inode, kind.name())?.filter(|(_, bytes, _)| !bytes.is_empty());
        found.map(|(_, bytes, _)| List::decode(&bytes)).transpose()
    }

    /// Sets or takes away a list. `kill_set_group_id`: the caller is not in the file's group, and the set-group-id bit goes.
    ///
    /// # Errors
    /// `NotSupported` unless the property `acltype` is `posix`, and for symbolic links; `Invalid` for a list that makes no sense, and for
    /// a default list of what is no directory.
    pub fn set_posix_acl(&self, inode: InodeNumber, kind: AclKind, list: Option<&[u8]>, kill_set_group_id: bool) -> Result<()> {
        let inode = self.inode(inode)?;
        self.check_writable()?;
        inode.check_not_sealed()?;
        if !self.has_posix_lists() || inode.kind == FileKind::SymbolicLink {
            bail!(NotSupported, "inode {} has no POSIX access control lists (property acltype)", inode.object);
        }
        if kind == AclKind::Default && inode.kind != FileKind::Directory && list.is_some() {
            bail!(Invalid, "inode {} is no directory and has no default list", inode.object);
        }
        let list = list.map(List::decode).transpose()?;
        let _xattrs = inode.xattrs.write();
        let mode = list.as_ref().filter(|_| kind == AclKind::Access).map(List::mode);
        let set_mode = || mode.as_ref().map_or(Ok(()), |mode| self.set_permissions(&inode, mode.bits, kill_set_group_id));
        match &list {
            Some(list) if mode.as_ref().is_none_or(|mode| !mode.says_all) => {
                // The group's bits of the mode are the list's mask: where the list is missing, the group would have them.
                self.put_xattr(&inode, kind.name(), &list.encode(), XattrMode::Any)?;
                set_mode()
            }
            _ => {
                set_mode()?;
                match self.take_xattr(&inode, kind.name()) {
                    Err(error) if error.kind() == ErrorKind::NoAttribute => Ok(()),
                    other => other,
                }
            }
        }
    }

    /// Changes the permission bits of the mode and nothing else.
    fn set_permissions(&self, inode: &Inode, bits: u64, kill_set_group_id: bool) -> Result<()> {
        let tx = OpenTx::assign(&self.membership, NAME_CHANGE)?;
        let mut edit = inode.edit(&tx);
        let old = edit.word(Attribute::Mode)?;
        let mode = (old & !PERMISSIONS | bits) & if kill_set_group_id { !SET_GROUP_ID } else { !0 };
        if mode == old {
            return Ok(());
        }
        edit.set(&[(Attribute::Mode, &mode.to_le_bytes()), (Attribute::ChangeTime, &self.now().to_bytes())])?;
        drop(edit);
        self.log(&tx, Done::Set { inode, changed: ChangedAttributes { mode: Some(mode as u32), ..ChangedAttributes::default() } })
    }

    /// Brings the access list up to date after a change of the mode. The caller holds the lock of the extended attributes.
    pub(super) fn mode_changed(&self, inode: &Inode, mode: u64) -> Result<()> {
        if !self.has_posix_lists() {
            return Ok(());
        }
        match self.posix_list(inode, AclKind::Access)? {
            Some(list) => self.put_xattr(inode, AclKind::Access.name(), &list.with_mode(mode).encode(), XattrMode::Any),
            None => Ok(()),
        }
    }

    /// The mode that a new file in `directory` gets in place of `mode`, and the lists that it begins with.
    pub(in crate::zpl) fn begin_lists(&self, directory: &Inode, mode: u32, credentials: &Credentials) -> Result<(u32, NewLists)> {
        let kind = FileKind::of_mode(mode);
        if kind == FileKind::SymbolicLink {
            return Ok((mode, NewLists::default()));
        }
        let default = if self.has_posix_lists() {
            let _xattrs = directory.xattrs.read();
            self.posix_list(directory, AclKind::Default)?
        } else {
            None
        };
        let Some(default) = default else {
            return Ok((mode & !(credentials.umask & PERMISSIONS as u32), NewLists::default()));
        };
        let mut lists = Vec::new();
        if kind == FileKind::Directory {
            lists.push((AclKind::Default, default.encode()));
        }
        let access = default.for_new_file(mode.into());
        let begins = access.mode();
        if !begins.says_all {
            lists.push((AclKind::Access, access.encode()));
        }
        Ok((mode & !(PERMISSIONS as u32) | begins.bits as u32, self.place_new_lists(lists)?))
    }

    /// Decides which of the lists of a new file go among its attributes: as many as there is room for.
    fn place_new_lists(&self, all: Vec<NewList>) -> Result<NewLists> {
        let mut listed = all.len();
        while listed > 0 && !self.would_list(None, all[..listed].iter().map(|(kind, bytes)| (kind.name().len(), bytes.len())))? {
            listed -= 1;
        }
        Ok(NewLists { all, listed })
    }

    /// Gives a file that was just made those of its lists that go among its attributes.
    pub(in crate::zpl) fn put_new_lists(&self, tx: &Tx, inode: &Inode, lists: &NewLists) -> Result<()> {
        if lists.listed().is_empty() {
            return Ok(());
        }
        let mut list = NvList::new();
        for (kind, bytes) in lists.listed() {
            list.push(NvString::from_bytes(kind.name().to_vec()), Value::ByteArray(bytes.clone()));
        }
        inode.edit(tx).set(&[(Attribute::ExtendedAttributeList, &list.encode_xdr())])
    }

    /// What [`FileSystem::put_new_lists`] did is logged among the names: a new file does not come back without them.
    pub(in crate::zpl) fn log_new_lists(&self, tx: &Tx, inode: &Inode, lists: &NewLists) -> Result<()> {
        lists.listed().iter().try_for_each(|(kind, bytes)| self.log(tx, Done::SetXattrOfNew { inode, name: kind.name(), value: bytes }))
    }

    /// As [`FileSystem::put_new_lists`], those that go into files of their own: these take transactions of their own.
    pub(in crate::zpl) fn put_new_lists_aside(&self, inode: &Inode, lists: &NewLists) -> Result<()> {
        if lists.aside().is_empty() {
            return Ok(());
        }
        let _xattrs = inode.xattrs.write();
        lists.aside().iter().try_for_each(|(kind, bytes)| self.write_xattr_file(inode, kind.name(), bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(u16, u16, u32)]) -> List {
        List(entries.iter().map(|&(tag, permissions, id)| Entry { tag, permissions, id }).collect())
    }

    const NOBODY: u32 = u32::MAX;

    #[test]
    fn what_linux_passes_is_understood_and_passed_back() {
        // setfacl -m u:1000:rw on a file of mode 640
        let bytes = hex("0200000001000600ffffffff02000600e803000004000400ffffffff10000600ffffffff20000000ffffffff");
        let found = List::decode(&bytes).unwrap();
        assert_eq!(found, list(&[(1, 6, NOBODY), (2, 6, 1000), (4, 4, NOBODY), (0x10, 6, NOBODY), (0x20, 0, NOBODY)]));
        assert_eq!(found.encode(), bytes);
        assert_eq!((found.mode().bits, found.mode().says_all), (0o660, false));
    }

    fn hex(text: &str) -> Vec<u8> {
        text.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    }

    #[test]
    fn nonsense_is_refused() {
        let plain = [(1, 7, NOBODY), (4, 5, NOBODY), (0x20, 5, NOBODY)];
        assert!(list(&plain).makes_sense());
        assert_eq!((list(&plain).mode().bits, list(&plain).mode().says_all), (0o755, true));
        for wrong in [&plain[..2], &[plain[1], plain[0], plain[2]], &[plain[0], (2, 7, 5), plain[1], plain[2]], &[plain[0], plain[0], plain[1], plain[2]]] {
            assert!(!list(wrong).makes_sense(), "{wrong:?}");
        }
        for length in [0, 3, 5, 11] {
            assert!(List::decode(&list(&plain).encode()[..length]).is_err());
        }
    }

    #[test]
    fn the_mask_stands_for_the_group() {
        let masked = list(&[(1, 7, NOBODY), (2, 7, 5), (4, 7, NOBODY), (0x10, 7, NOBODY), (0x20, 7, NOBODY)]);
        let changed = masked.clone().with_mode(0o741);
        assert_eq!(changed, list(&[(1, 7, NOBODY), (2, 7, 5), (4, 7, NOBODY), (0x10, 4, NOBODY), (0x20, 1, NOBODY)]));
        let new = masked.for_new_file(0o640);
        assert_eq!(new.mode().bits, 0o640);
        assert_eq!(new.permissions(GROUP_OBJECT), Some(7), "the mask alone is cut");
    }
}
