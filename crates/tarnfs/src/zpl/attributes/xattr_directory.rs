//! The hidden directory of extended attributes.
//!
//! # Theory
//! A file with attributes of this kind names, among its own attributes, a directory that no other directory has; in it is one
//! file per attribute. All of them are marked [`ondisk::znode::FLAG_XATTR`].

use engine::dmu::OpenTx;
use engine::error::{ErrorKind, Result};
use engine::zap::Cursor;
use engine::{bail, error};
use ondisk::acl;
use ondisk::sa::Attribute;
use ondisk::zil::RecordType;
use ondisk::znode;

use crate::zpl::FileKind;
use crate::zpl::contents::Contents;
use crate::zpl::file_system::FileSystem;
use crate::zpl::options::Credentials;
use crate::zpl::inodes::inode::{Inode, InodeRef};
use crate::zpl::log::records::Done;
use crate::zpl::names::create::{Fixed, NewNode};
use crate::zpl::names::entries::whole;
use crate::zpl::names::link::NAME_CHANGE;

const DIRECTORY_MODE: u32 = 0o041_777;
const FILE_MODE: u32 = 0o100_644;

impl FileSystem {
    /// `None` too where an old mistake of ZFS on Linux has removed the directory and not the file (OpenZFS's issue 4083).
    pub(in crate::zpl) fn xattr_directory(&self, inode: &Inode) -> Result<Option<InodeRef<'_>>> {
        let object = inode.maybe_word(Attribute::ExtendedAttributes)?.unwrap_or(0);
        if object == 0 {
            return Ok(None);
        }
        match self.inode(object) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            other => other.map(Some),
        }
    }

    /// The object of one attribute.
    fn xattr_file(&self, inode: &Inode, name: &[u8]) -> Result<Option<InodeRef<'_>>> {
        let Some(directory) = self.xattr_directory(inode)? else {
            return Ok(None);
        };
        match self.entries().find_entry(&directory, name)? {
            Some((object, _)) => self.inode(object).map(Some),
            None => Ok(None),
        }
    }

    pub(super) fn read_xattr_file(&self, inode: &Inode, name: &[u8], max: usize) -> Result<Option<Vec<u8>>> {
        let Some(file) = self.xattr_file(inode, name)? else {
            return Ok(None);
        };
        let size = file.word(Attribute::Size)?;
        let size = usize::try_from(size).ok().filter(|&size| size <= max).ok_or_else(|| error!(TooBig, "an extended attribute of {size} bytes"))?;
        let mut bytes = vec![0; size];
        file.contents.dnode.read(0, &mut bytes)?;
        Ok(Some(bytes))
    }

    pub(super) fn xattr_file_names(&self, inode: &Inode) -> Result<Vec<Vec<u8>>> {
        match self.xattr_directory(inode)? {
            Some(directory) => Ok(directory.directory_zap()?.entries()?.into_iter().map(|entry| entry.name).collect()),
            None => Ok(Vec::new()),
        }
    }

    pub(in crate::zpl) fn make_xattr_directory(&self, inode: &Inode, fixed: Option<Fixed>, salt: Option<u64>) -> Result<InodeRef<'_>> {
        let stat = inode.stat()?;
        let credentials = Credentials { uid: stat.uid, gid: stat.gid, ..Credentials::default() };
        let mut new = NewNode::inherit(&self.files, inode, DIRECTORY_MODE, 0, &credentials)?;
        new.fixed = fixed;
        new.salt = salt;
        new.mode = DIRECTORY_MODE;
        new.gid = stat.gid;
        new.flags |= znode::FLAG_XATTR;
        new.acl = acl::trivial(DIRECTORY_MODE.into(), true);
        let tx = OpenTx::assign(&self.membership, NAME_CHANGE)?;
        let directory = self.names.maker().make(&tx, &new)?;
        inode.edit(&tx).set(&[(Attribute::ExtendedAttributes, &directory.object.to_le_bytes())])?;
        let directory = self.insert_inode(directory);
        self.log(&tx, Done::Made { kind: RecordType::MakeXattrDir, directory: inode, inode: &directory, name: b"", target: None })?;
        drop(tx);
        Ok(directory)
    }

    pub(in crate::zpl) fn write_xattr_file(&self, inode: &Inode, name: &[u8], value: &[u8]) -> Result<()> {
        let directory = match self.xattr_directory(inode)? {
            Some(directory) => directory,
            None => self.make_xattr_directory(inode, None, None)?,
        };
        let stat = directory.stat()?;
        let credentials = Credentials { uid: stat.uid, gid: stat.gid, ..Credentials::default() };
        match self.entries().find_entry(&directory, name)? {
            Some((object, _)) => {
                let file = self.inode(object)?;
                if file.kind != FileKind::Regular {
                    bail!(Corrupt, "the extended attribute {} is no file", String::from_utf8_lossy(name));
                }
                self.quotas.ask_to_write(&file, self.is_alone())?;
                let _guard = file.contents.lock_whole();
                let tx = OpenTx::assign(&self.membership, Contents::room_to_replace(value))?;
                self.contents().replace(&file, &tx, value)?;
            }
            None => self.make_xattr_file(&directory, name, value, &credentials)?,
        }
        let tx = OpenTx::assign(&self.membership, 0)?;
        inode.edit(&tx).set(&[(Attribute::ChangeTime, &self.now().to_bytes())])
    }

    /// Makes a file with its value in one transaction: no crash leaves an attribute without the one or the other.
    fn make_xattr_file(&self, directory: &Inode, name: &[u8], value: &[u8], credentials: &Credentials) -> Result<()> {
        let _names = directory.names.write();
        self.entries().check_new_entry(directory, name)?;
        let new = NewNode::inherit(&self.files, directory, FILE_MODE, 0, credentials)?;
        self.check_quota_to_own(Some(new.uid.into()), Some(new.gid.into()), Some(new.project))?;
        let tx = OpenTx::assign(&self.membership, NAME_CHANGE + Contents::room_to_replace(value))?;
        let file = self.names.maker().make(&tx, &new)?;
        let made = self.contents().replace(&file, &tx, value).and_then(|()| self.entries().add_entry(&tx, directory, name, &file));
        if let Err(error) = made {
            whole(&self.files, self.objset.free_held(&tx, &file.contents.dnode))?;
            return Err(error);
        }
        drop(self.insert_inode(file));
        Ok(())
    }

    pub(super) fn remove_xattr_file(&self, inode: &Inode, name: &[u8]) -> Result<()> {
        match self.xattr_directory(inode)? {
            Some(directory) => {
                // What the file has instead, a value in its list or a mode, must not be missing where this is in the log, among the names.
                self.log.bring_forward(inode.object);
                self.unlink(directory.object, name)?;
                let tx = OpenTx::assign_freeing(&self.membership)?;
                inode.edit(&tx).set(&[(Attribute::ChangeTime, &self.now().to_bytes())])
            }
            None => Ok(()),
        }
    }

    /// Removes all entries of a hidden directory whose file is being freed.
    pub(in crate::zpl) fn empty_xattr_directory(&self, directory: &Inode) -> Result<()> {
        let zap = directory.directory_zap()?;
        let mut cursor = Cursor::start();
        while let Some(entry) = zap.next(&mut cursor)? {
            let file = self.inode_even_unlinked(znode::entry_object(entry.value.first()))?;
            let tx = OpenTx::assign_freeing(&self.membership)?;
            self.entries().remove_name(&tx, directory, &entry.name, &file)?;
            drop(tx);
        }
        Ok(())
    }
}
