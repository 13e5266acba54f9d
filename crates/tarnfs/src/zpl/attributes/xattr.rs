//! Extended attributes.
//!
//! # Theory
//! There are two places: a packed list of names and values among the system attributes (property `xattr=sa`), and a hidden
//! directory with one file per name (`xattr=dir`). Both are always read; the property says where new ones go. What is too large
//! for the list goes to the directory. A name is in one place only; after a crash it may be in both, and the list counts.
//!
//! Names are stored with their namespace. Other systems store user attributes without one; a name without a known namespace is
//! shown as `user.`.

use std::collections::BTreeSet;

use engine::bail;
use engine::dmu::OpenTx;
use engine::error::{ErrorKind, Result};
use engine::error;
use ondisk::nvlist::{NvList, NvString, Value};
use ondisk::sa::Attribute;

use crate::zpl::file_system::FileSystem;
use crate::zpl::inodes::inode::Inode;
use crate::zpl::log::records::Done;
use crate::zpl::names::link::NAME_CHANGE;
use crate::zpl::{AclKind, InodeNumber};

/// Whether an extended attribute may or must exist before it is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrMode {
    /// Either.
    Any,
    /// It must not.
    Create,
    /// It must.
    Replace,
}

const USER: &[u8] = b"user.";
const NAMESPACES: [&[u8]; 4] = [b"user.", b"system.", b"security.", b"trusted."];
/// Longest name.
const NAME_MAX: usize = 255;
/// Largest value that goes into the list.
const LISTED_VALUE_MAX: usize = 32 << 10;
/// What an entry of the list takes beside its name and value, at the most.
const LISTED_EXTRA: usize = 64;
/// Largest list.
const LIST_MAX: usize = 64 << 10;
/// Largest value at all.
const VALUE_MAX: usize = 64 << 10;

/// The name without its namespace, under which other systems store user attributes.
fn bare(name: &[u8]) -> Option<&[u8]> {
    let bare = name.strip_prefix(USER)?;
    (!bare.is_empty() && !NAMESPACES.iter().any(|namespace| bare.starts_with(namespace))).then_some(bare)
}

fn full(stored: &[u8]) -> Vec<u8> {
    if NAMESPACES.iter().any(|namespace| stored.starts_with(namespace)) { stored.to_vec() } else { [USER, stored].concat() }
}

/// Where a file has its extended attributes.
#[derive(Debug, Clone, Default)]
pub struct RawXattrs {
    /// The object of their directory.
    pub directory: Option<u64>,
    /// Bytes of the list among its own attributes, and the list.
    pub listed: Option<(usize, NvList)>,
}

impl FileSystem {
    /// Where a file has its extended attributes.
    ///
    /// # Errors
    /// The file or its list cannot be read.
    pub fn raw_xattrs(&self, inode: InodeNumber) -> Result<RawXattrs> {
        let inode = self.inode(inode)?;
        let mut attributes = inode.attributes.write();
        attributes.load_spill(&inode.contents.dnode)?;
        let directory = attributes.word(Attribute::ExtendedAttributes).filter(|object| *object != 0);
        let listed = match attributes.get(Attribute::ExtendedAttributeList) {
            Some(bytes) if !bytes.is_empty() => Some((bytes.len(), NvList::decode(bytes)?)),
            _ => None,
        };
        Ok(RawXattrs { directory, listed })
    }

    /// Neither a list nor a directory of them: so it is with most files, and a kernel asks before each write.
    fn has_no_xattrs(&self, inode: &Inode) -> Result<bool> {
        let mut look = inode.look();
        let directory = look.maybe_word(Attribute::ExtendedAttributes)?.unwrap_or(0);
        let attributes = look.attributes();
        Ok(directory == 0 && !attributes.spill_unread() && attributes.get(Attribute::ExtendedAttributeList).is_none())
    }

    fn xattr_list(&self, inode: &Inode) -> Result<NvList> {
        let mut attributes = inode.attributes.write();
        if attributes.get(Attribute::ExtendedAttributeList).is_none() {
            attributes.load_spill(&inode.contents.dnode)?;
        }
        match attributes.get(Attribute::ExtendedAttributeList) {
            Some(bytes) if !bytes.is_empty() => Ok(NvList::decode(bytes)?),
            _ => Ok(NvList::new()),
        }
    }

    /// `changes`: what is different in it, for the log.
    fn write_xattr_list(&self, inode: &Inode, list: &NvList, changes: &[(&[u8], Option<&[u8]>)]) -> Result<()> {
        let bytes = list.encode_xdr();
        if bytes.len() >= LIST_MAX {
            bail!(TooBig, "the extended attributes of inode {} are larger than {LIST_MAX} bytes", inode.object);
        }
        let tx = OpenTx::assign(&self.membership, NAME_CHANGE + bytes.len() as u64)?;
        let now = self.now().to_bytes();
        let mut edit = inode.edit(&tx);
        let flags = self.touched_flags(edit.word(Attribute::Flags)?, false);
        edit.set(&[(Attribute::ExtendedAttributeList, &bytes), (Attribute::ChangeTime, &now), (Attribute::Flags, &flags.to_le_bytes())])?;
        drop(edit);
        changes.iter().try_for_each(|&(name, value)| self.log(&tx, Done::SetXattr { inode, name, value }))
    }

    /// Where `name` is stored: under which name in the list, or in the directory.
    pub(super) fn find_xattr(&self, inode: &Inode, name: &[u8]) -> Result<Option<(Vec<u8>, Vec<u8>, bool)>> {
        if self.has_no_xattrs(inode)? {
            return Ok(None);
        }
        let list = self.xattr_list(inode)?;
        let names = [Some(name), bare(name)];
        for stored in names.into_iter().flatten() {
            if let Some(Value::ByteArray(bytes)) = list.get_bytes(stored) {
                return Ok(Some((stored.to_vec(), bytes.clone(), true)));
            }
        }
        for stored in names.into_iter().flatten() {
            if let Some(bytes) = self.read_xattr_file(inode, stored, VALUE_MAX)? {
                return Ok(Some((stored.to_vec(), bytes, false)));
            }
        }
        Ok(None)
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// `NoAttribute`.
    pub fn getxattr(&self, inode: InodeNumber, name: &[u8]) -> Result<Vec<u8>> {
        let found = self.getxattr_if_any(inode, name)?;
        found.ok_or_else(|| error!(NoAttribute, "inode {inode} has no attribute {}", String::from_utf8_lossy(name)))
    }

    /// The value of an extended attribute, if there is one of this name.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn getxattr_if_any(&self, inode: InodeNumber, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let inode = self.inode(inode)?;
        let _xattrs = inode.xattrs.read();
        Ok(self.find_xattr(&inode, name)?.map(|(_, bytes, _)| bytes))
    }

    /// Is there such an extended attribute?
    ///
    /// # Errors
    /// They cannot be read.
    pub fn has_xattr(&self, inode: InodeNumber, name: &[u8]) -> Result<bool> {
        let inode = self.inode(inode)?;
        let _xattrs = inode.xattrs.read();
        Ok(self.find_xattr(&inode, name)?.is_some())
    }

    /// The names of all extended attributes.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn listxattr(&self, inode: InodeNumber) -> Result<Vec<Vec<u8>>> {
        let inode = self.inode(inode)?;
        let _xattrs = inode.xattrs.read();
        let mut names: BTreeSet<Vec<u8>> = self.xattr_list(&inode)?.iter().map(|(name, _)| full(name.as_bytes())).collect();
        names.extend(self.xattr_file_names(&inode)?.iter().map(|name| full(name)));
        Ok(names.into_iter().collect())
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// `Exists` or `NoAttribute`, as `mode` demands; `Range` for a name that is too long; `TooBig`; `NoSpace`.
    pub fn setxattr(&self, inode: InodeNumber, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        if let Some(kind) = AclKind::of_name(name) {
            return self.set_posix_acl(inode, kind, Some(value), false);
        }
        let inode = self.inode(inode)?;
        self.check_writable()?;
        inode.check_not_sealed()?;
        if name.is_empty() || name.len() > NAME_MAX || name.contains(&0) {
            bail!(Range, "a name of {} bytes for an extended attribute", name.len());
        }
        if value.len() > VALUE_MAX {
            bail!(TooBig, "an extended attribute of {} bytes is larger than {VALUE_MAX}", value.len());
        }
        let _xattrs = inode.xattrs.write();
        self.put_xattr(&inode, name, value, mode)
    }

    /// Whether new extended attributes of a file belong among its attributes, if they are small enough.
    pub(super) fn lists_xattrs(&self, inode: &Inode) -> bool {
        self.files.uses_attributes() && self.options().xattr_in_attributes && !inode.attributes.read().is_znode()
    }

    /// Whether attributes with names and values of these lengths will all be in the list of the file; `None`: of a new one.
    pub(in crate::zpl) fn would_list(&self, inode: Option<&Inode>, mut lengths: impl Iterator<Item = (usize, usize)>) -> Result<bool> {
        let (lists, mut total) = match inode {
            Some(inode) => (self.lists_xattrs(inode), self.xattr_list(inode)?.encode_xdr().len()),
            None => (self.files.uses_attributes() && self.options().xattr_in_attributes, 0),
        };
        let fits = lengths.all(|(name, value)| {
            total += LISTED_EXTRA + name + value;
            value <= LISTED_VALUE_MAX && total < LIST_MAX
        });
        Ok(lists && fits)
    }

    /// Sets an extended attribute. The caller holds the lock of the extended attributes.
    pub(super) fn put_xattr(&self, inode: &Inode, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let old = self.find_xattr(inode, name)?;
        match (mode, &old) {
            (XattrMode::Create, Some(_)) => bail!(Exists, "the attribute {} exists", String::from_utf8_lossy(name)),
            (XattrMode::Replace, None) => bail!(NoAttribute, "there is no attribute {}", String::from_utf8_lossy(name)),
            _ => {}
        }
        let in_list = self.lists_xattrs(inode) && value.len() <= LISTED_VALUE_MAX && self.try_list(inode, name, value, old.as_ref().filter(|old| old.2).map(|old| old.0.as_slice()))?;
        if !in_list {
            self.write_xattr_file(inode, name, value)?;
        }
        match old {
            // In the other place, or under the name without namespace: gone from there.
            Some((stored, _, true)) if !in_list => self.remove_listed(inode, &stored),
            Some((stored, _, false)) if in_list || stored != name => self.remove_xattr_file(inode, &stored),
            _ => Ok(()),
        }
    }

    /// Puts a value into the list; `false` if the list has no room.
    fn try_list(&self, inode: &Inode, name: &[u8], value: &[u8], old: Option<&[u8]>) -> Result<bool> {
        let mut list = self.xattr_list(inode)?;
        if let Some(old) = old {
            list.remove_bytes(old);
        }
        list.push(NvString::from_bytes(name.to_vec()), Value::ByteArray(value.to_vec()));
        let gone = old.filter(|&old| old != name).map(|old| (old, None));
        let changes: Vec<_> = gone.into_iter().chain([(name, Some(value))]).collect();
        match self.write_xattr_list(inode, &list, &changes) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::TooBig => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn remove_listed(&self, inode: &Inode, stored: &[u8]) -> Result<()> {
        let mut list = self.xattr_list(inode)?;
        list.remove_bytes(stored);
        self.write_xattr_list(inode, &list, &[(stored, None)])
    }

    /// Does again what a log says of an attribute in the list, whose name is as it was stored.
    pub(in crate::zpl) fn replay_listed(&self, inode: &Inode, name: &[u8], value: Option<&[u8]>) -> Result<()> {
        let _xattrs = inode.xattrs.write();
        let mut list = self.xattr_list(inode)?;
        list.remove_bytes(name);
        if let Some(value) = value {
            list.push(NvString::from_bytes(name.to_vec()), Value::ByteArray(value.to_vec()));
        }
        self.write_xattr_list(inode, &list, &[(name, value)])
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `NoAttribute`.
    pub fn removexattr(&self, inode: InodeNumber, name: &[u8]) -> Result<()> {
        if let Some(kind) = AclKind::of_name(name) {
            return self.set_posix_acl(inode, kind, None, false);
        }
        let inode = self.inode(inode)?;
        self.check_writable()?;
        inode.check_not_sealed()?;
        let _xattrs = inode.xattrs.write();
        self.take_xattr(&inode, name)
    }

    /// Removes an extended attribute. The caller holds the lock of the extended attributes.
    pub(super) fn take_xattr(&self, inode: &Inode, name: &[u8]) -> Result<()> {
        let mut found = self.find_xattr(inode, name)?;
        if found.is_none() {
            bail!(NoAttribute, "inode {} has no attribute {}", inode.object, String::from_utf8_lossy(name));
        }
        // A crash while it was moved from one place to the other leaves an older value in the other.
        while let Some((stored, _, is_listed)) = found {
            if is_listed { self.remove_listed(inode, &stored)? } else { self.remove_xattr_file(inode, &stored)? }
            found = self.find_xattr(inode, name)?;
        }
        Ok(())
    }
}
