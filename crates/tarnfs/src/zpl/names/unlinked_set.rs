//! Files that have no name any more.
//!
//! # Theory
//! The last name of a file may go while somebody has it open. Its object number is then in the delete queue, and when nobody
//! refers to the inode any more its contents are freed, in steps if there are many, and then, in one transaction, the object and its
//! place in the queue. After a crash the queue says what is left to free.

use std::sync::atomic::{AtomicBool, Ordering};

use engine::dmu::{Objset, OpenTx, Tx};
use engine::error::{ErrorKind, Result};
use engine::zap::{Cursor, Zap, int_name};
use ondisk::sa::Attribute;
use ondisk::znode;

use super::entries::whole;
use crate::zpl::file_system::FileSystem;
use crate::zpl::inodes::inode::{Inode, InodeRef};
use crate::zpl::{FileKind, InodeNumber};

/// The delete queue: the numbers of files without links.
pub(in crate::zpl) struct UnlinkedSet(Zap);

impl UnlinkedSet {
    pub(super) fn open(objset: &Objset, object: u64) -> Result<Self> {
        Zap::open(objset, object).map(UnlinkedSet)
    }

    /// Puts a file without links into it.
    pub(super) fn add(&self, tx: &Tx, object: InodeNumber) -> Result<()> {
        match self.0.add_int(tx, object) {
            // Left there by another program; it is where it belongs.
            Err(error) if error.kind() == ErrorKind::Exists => Ok(()),
            other => other,
        }
    }

    /// Takes a file out of it, if it is there.
    pub(super) fn remove(&self, tx: &Tx, object: InodeNumber) -> Result<()> {
        match self.0.remove_int(tx, object) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Reads what it takes to add a file: afterwards that does not fail.
    fn prepare_to_add(&self, tx: &Tx, object: InodeNumber) -> Result<()> {
        self.0.prepare_to_add(tx, int_name(object))
    }

    fn prepare_to_remove(&self, tx: &Tx, object: InodeNumber) -> Result<()> {
        self.0.prepare_to_remove(tx, int_name(object))
    }

    /// Is the file in it?
    pub(in crate::zpl) fn contains(&self, object: InodeNumber) -> Result<bool> {
        self.0.lookup_int(object).map(|found| found.is_some())
    }

    fn all(&self) -> Result<Vec<InodeNumber>> {
        let mut objects = Vec::new();
        let mut cursor = Cursor::start();
        while let Some(entry) = self.0.next(&mut cursor)? {
            objects.push(entry.value.first());
        }
        Ok(objects)
    }
}

impl FileSystem {
    /// Frees the object of a file without links to which nobody refers.
    pub(in crate::zpl) fn free_unlinked(&self, inode: &Inode) -> Result<()> {
        if inode.kind == FileKind::Directory && inode.word(Attribute::Flags)? & znode::FLAG_XATTR != 0 {
            self.empty_xattr_directory(inode)?;
        }
        if inode.kind == FileKind::Regular {
            inode.contents.free_most(&self.membership, &AtomicBool::new(false))?;
        }
        let xattr_directory = inode.maybe_word(Attribute::ExtendedAttributes)?.unwrap_or(0);
        // Released after the transaction: it is freed then.
        let xattr_directory: Option<InodeRef<'_>> = match xattr_directory {
            0 => None,
            object => self.inode_even_unlinked(object).ok(),
        };
        // What is no hidden directory of this file was damaged, and is not ours to remove.
        let is_hidden = |directory: &Inode| -> Result<bool> {
            let word = |attribute| directory.word(attribute);
            Ok(directory.kind == FileKind::Directory
                && word(Attribute::Flags)? & znode::FLAG_XATTR != 0
                && word(Attribute::Parent)? == inode.object
                && directory.object != inode.object)
        };
        let xattr_directory = match xattr_directory {
            Some(directory) if is_hidden(&directory)? => Some(directory),
            _ => None,
        };
        let tx = OpenTx::assign_freeing(&self.membership)?;
        // A number in the queue whose object is gone would be that of another file soon.
        self.names.unlinked().prepare_to_remove(&tx, inode.object)?;
        if let Some(directory) = &xattr_directory {
            directory.stat()?;
            self.names.unlinked().prepare_to_add(&tx, directory.object)?;
        }
        // First: a thread that was slower than another in freeing it must not touch what has its number since.
        match self.objset.free_held(&tx, &inode.contents.dnode) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            other => other?,
        }
        if let Some(directory) = &xattr_directory {
            let unnamed = directory.edit(&tx).set(&[(Attribute::Links, &0u64.to_le_bytes())]);
            whole(&self.files, unnamed.and_then(|()| self.names.unlinked().add(&tx, directory.object)))?;
        }
        whole(&self.files, self.names.unlinked().remove(&tx, inode.object))?;
        if let Some(object) = self.external_acl(inode) {
            self.objset.free(&tx, object)?;
        }
        drop(tx);
        Ok(())
    }

    /// The object that holds a long access control list of an old znode.
    fn external_acl(&self, inode: &Inode) -> Option<u64> {
        let attributes = inode.attributes.read();
        if !attributes.is_znode() {
            return None;
        }
        let acl = attributes.get(Attribute::ZnodeAcl)?;
        Some(u64::from_le_bytes(*acl.first_chunk()?)).filter(|&object| object != 0)
    }

    /// Files without a name that a crash left: to be asked once, before the mount is used, and given to
    /// [`FileSystem::free_left_behind`], but for those that somebody has open ([`FileSystem::known_inodes`]). Nobody can open the others any more, so that
    /// may be done beside other work.
    ///
    /// # Errors
    /// The queue cannot be read.
    pub fn left_behind(&self) -> Result<Vec<InodeNumber>> {
        self.names.unlinked().all()
    }

    /// Frees such files, until `stop` is set: what was not done is done after the next mount. Returns how many were freed.
    ///
    /// # Errors
    /// The pool is stopped or full.
    #[doc(alias = "zfs_unlinked_drain")]
    pub fn free_left_behind(&self, objects: &[InodeNumber], stop: &AtomicBool) -> Result<usize> {
        let mut freed = 0;
        for &object in objects {
            if stop.load(Ordering::Relaxed) || self.is_read_only() {
                break;
            }
            if self.inodes.contains(object) {
                // Somebody has it open, and frees it at the end.
                continue;
            }
            match self.inode_even_unlinked(object) {
                Ok(inode) => {
                    let is_left = inode.word(Attribute::Links)? == 0;
                    if is_left && inode.kind == FileKind::Regular && !inode.contents.free_most(&self.membership, stop)? {
                        inode.leave();
                        break;
                    }
                    // When this reference is dropped the object is freed, if nobody else has one.
                    freed += usize::from(is_left);
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    let tx = OpenTx::assign_freeing(&self.membership)?;
                    self.names.unlinked().remove(&tx, object)?;
                }
                // Somebody else is about to free it.
                Err(error) if error.kind() == ErrorKind::Stale => {}
                Err(error) => tracing::warn!("{}: object {object} of the delete queue cannot be freed: {error}", self.objset.name()),
            }
        }
        Ok(freed)
    }

    /// Frees what the delete queue holds and nobody has open: to be called once after mounting for writing.
    /// Returns how many files were freed.
    ///
    /// # Errors
    /// The queue cannot be read.
    pub fn drain_delete_queue(&self) -> Result<usize> {
        self.check_writable()?;
        self.free_left_behind(&self.left_behind()?, &AtomicBool::new(false))
    }
}
