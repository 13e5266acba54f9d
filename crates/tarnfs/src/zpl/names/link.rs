//! Making and removing names.

use engine::dmu::{OpenTx, Tx};
use engine::error::Result;
use engine::{bail, error};
use ondisk::sa::Attribute;
use ondisk::zil::RecordType;
use ondisk::znode;

use super::create::NewNode;
use super::entries::{Change, whole};
use crate::zpl::attributes::posix_acl::NewLists;
use crate::zpl::file_system::FileSystem;
use crate::zpl::options::Credentials;
use crate::zpl::inodes::inode::{Inode, InodeRef};
use crate::zpl::log::records::Done;
use crate::zpl::{FileKind, InodeNumber, Stat};

const TYPE_DIRECTORY: u32 = 0o040_000;
const TYPE_LINK: u32 = 0o120_000;
const TYPE_MASK: u32 = 0o170_000;
/// Longest target of a symbolic link.
const TARGET_MAX: usize = 4096;
/// Worst case of what making or removing a name writes, in bytes.
pub(in crate::zpl) const NAME_CHANGE: u64 = 32 << 10;

impl FileSystem {
    /// Makes a file of any type but symbolic link. The inode is counted as known to the kernel.
    ///
    /// # Errors
    /// `Exists`; `NotFound` if the directory was removed; `NoSpace`.
    pub fn create(&self, directory: InodeNumber, name: &[u8], mode: u32, device: u64, credentials: &Credentials) -> Result<Stat> {
        if FileKind::of_mode(mode) == FileKind::Unknown || mode & TYPE_MASK == TYPE_LINK {
            bail!(Invalid, "a file of mode {mode:o} cannot be made");
        }
        self.create_with(directory, name, mode, device, credentials, None, None)
    }

    /// As [`FileSystem::create`], of a directory with a certain salt.
    pub(in crate::zpl) fn mkdir_salted(&self, directory: InodeNumber, name: &[u8], mode: u32, credentials: &Credentials, salt: u64) -> Result<Stat> {
        self.create_with(directory, name, TYPE_DIRECTORY | mode & !TYPE_MASK, 0, credentials, None, Some(salt))
    }

    /// Makes a directory. The inode is counted as known to the kernel.
    ///
    /// # Errors
    /// See [`FileSystem::create`].
    pub fn mkdir(&self, directory: InodeNumber, name: &[u8], mode: u32, credentials: &Credentials) -> Result<Stat> {
        self.create(directory, name, TYPE_DIRECTORY | mode & !TYPE_MASK, 0, credentials)
    }

    /// Makes a symbolic link. The inode is counted as known to the kernel.
    ///
    /// # Errors
    /// See [`FileSystem::create`]; `NameTooLong` for the target.
    pub fn symlink(&self, directory: InodeNumber, name: &[u8], target: &[u8], credentials: &Credentials) -> Result<Stat> {
        if target.len() > TARGET_MAX {
            bail!(NameTooLong, "a target of {} bytes is longer than {TARGET_MAX}", target.len());
        }
        self.create_with(directory, name, TYPE_LINK | 0o777, 0, credentials, Some(target), None)
    }

    #[expect(clippy::too_many_arguments, reason = "what makes a file; the public verbs have fewer")]
    fn create_with(
        &self,
        directory: InodeNumber,
        name: &[u8],
        mode: u32,
        device: u64,
        credentials: &Credentials,
        target: Option<&[u8]>,
        salt: Option<u64>,
    ) -> Result<Stat> {
        let directory = self.inode(directory)?;
        directory.check_directory()?;
        self.check_writable()?;
        let _names = directory.names.write();
        self.entries().check_new_entry(&directory, name)?;
        let (mode, lists) = self.begin_lists(&directory, mode, credentials)?;
        let new = NewNode { salt, ..NewNode::inherit(&self.files, &directory, mode, device, credentials)? };
        self.check_quota_to_own(Some(new.uid.into()), Some(new.gid.into()), Some(new.project))?;
        let inode = self.make_entry(&directory, name, &new, target, &lists)?;
        if let Err(error) = self.put_new_lists_aside(&inode, &lists) {
            if let Err(failure) = self.take_back(&directory, name, &inode) {
                tracing::warn!("{}: inode {} was made without its access control list, so check its mode: {failure}", self.objset.name(), inode.object);
            }
            return Err(error);
        }
        let stat = inode.stat()?;
        inode.give_to_kernel();
        Ok(stat)
    }

    /// Makes a file and its entry. The caller holds the lock of the names, and has checked that there is no such entry.
    pub(in crate::zpl) fn make_entry(
        &self,
        directory: &Inode,
        name: &[u8],
        new: &NewNode,
        target: Option<&[u8]>,
        lists: &NewLists,
    ) -> Result<InodeRef<'_>> {
        let tx = OpenTx::assign(&self.membership, NAME_CHANGE)?;
        let inode = self.names.maker().make(&tx, new)?;
        let made = target.map_or(Ok(()), |target| self.set_target(&tx, &inode, target));
        let made = made.and_then(|()| self.put_new_lists(&tx, &inode, lists)).and_then(|()| self.entries().add_entry(&tx, directory, name, &inode));
        if let Err(error) = made {
            // The object is nobody's: nothing names it.
            whole(&self.files, self.objset.free(&tx, inode.object))?;
            return Err(error);
        }
        let inode = self.insert_inode(inode);
        let kind = match inode.kind {
            FileKind::Directory => RecordType::MakeDir,
            FileKind::SymbolicLink => RecordType::Symlink,
            _ => RecordType::Create,
        };
        self.log(&tx, Done::Made { kind, directory, inode: &inode, name, target })?;
        self.log_new_lists(&tx, &inode, lists)?;
        drop(tx);
        Ok(inode)
    }

    /// Removes a file that was just made and could not get its lists: without them its group would have what their mask allows. The caller holds the lock of
    /// the names since it was made.
    fn take_back(&self, directory: &Inode, name: &[u8], inode: &Inode) -> Result<()> {
        let tx = OpenTx::assign_freeing(&self.membership)?;
        let gone = self.entries().remove_name(&tx, directory, name, inode)?;
        self.log(&tx, Done::Removed { directory, name, inode, gone })
    }

    /// Makes a file without a name. The inode is counted as known to the kernel.
    ///
    /// # Errors
    /// See [`FileSystem::create`].
    #[doc(alias = "O_TMPFILE")]
    pub fn create_unnamed(&self, directory: InodeNumber, mode: u32, credentials: &Credentials) -> Result<Stat> {
        let directory = self.inode(directory)?;
        directory.check_directory()?;
        self.check_writable()?;
        directory.check_entries_may_come()?;
        let (mode, lists) = self.begin_lists(&directory, 0o100_000 | mode & !TYPE_MASK, credentials)?;
        let mut new = NewNode::inherit(&self.files, &directory, mode, 0, credentials)?;
        new.links = 0;
        self.check_quota_to_own(Some(new.uid.into()), Some(new.gid.into()), Some(new.project))?;
        let tx = OpenTx::assign(&self.membership, NAME_CHANGE)?;
        let inode = self.names.maker().make(&tx, &new)?;
        let made = self.put_new_lists(&tx, &inode, &lists).and_then(|()| self.names.unlinked().add(&tx, inode.object));
        if let Err(error) = made {
            whole(&self.files, self.objset.free_held(&tx, &inode.contents.dnode))?;
            return Err(error);
        }
        let inode = self.insert_inode(inode);
        drop(tx);
        self.put_new_lists_aside(&inode, &lists)?;
        let stat = inode.stat()?;
        inode.give_to_kernel();
        Ok(stat)
    }

    fn set_target(&self, tx: &Tx, inode: &Inode, target: &[u8]) -> Result<()> {
        let size = (target.len() as u64).to_le_bytes();
        let mut edit = inode.edit(tx);
        if !edit.attributes.is_znode() {
            return edit.set(&[(Attribute::SymbolicLink, target), (Attribute::Size, &size)]);
        }
        if znode::ZNODE_SIZE + target.len() <= inode.contents.dnode.bonus_bytes_max() {
            let writing = edit.writing;
            edit.attributes.set_after_znode(&writing, target);
        } else {
            inode.contents.dnode.set_block_bytes(tx, target.len().next_multiple_of(512) as u64, None)?;
            inode.contents.dnode.write(tx, 0, target)?;
        }
        edit.set(&[(Attribute::Size, &size)])
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `Invalid` if it is none.
    pub fn readlink(&self, inode: InodeNumber) -> Result<Vec<u8>> {
        let inode = self.inode(inode)?;
        if inode.kind != FileKind::SymbolicLink {
            bail!(Invalid, "inode {} is no symbolic link", inode.object);
        }
        let size = inode.word(Attribute::Size)?;
        let mut attributes = inode.attributes.write();
        if !attributes.is_znode() {
            if attributes.get(Attribute::SymbolicLink).is_none() {
                attributes.load_spill(&inode.contents.dnode)?;
            }
            let target = attributes.get(Attribute::SymbolicLink);
            return target.map(<[u8]>::to_vec).ok_or_else(|| error!(Corrupt, "symbolic link {} has no target", inode.object));
        }
        let size = usize::try_from(size).ok().filter(|&size| size <= TARGET_MAX).ok_or_else(|| error!(Corrupt, "symbolic link {} is too long", inode.object))?;
        if let Some(target) = attributes.after_znode().get(..size) {
            return Ok(target.to_vec());
        }
        let mut target = vec![0; size];
        inode.contents.dnode.read(0, &mut target)?;
        Ok(target)
    }

    /// Gives a file one more name. The inode is counted once more as known to the kernel.
    ///
    /// # Errors
    /// `Exists`; `Denied` for directories; `NotFound` if the file was removed.
    pub fn link(&self, inode: InodeNumber, directory: InodeNumber, name: &[u8]) -> Result<Stat> {
        let directory = self.inode(directory)?;
        let inode = self.inode(inode)?;
        directory.check_directory()?;
        self.check_writable()?;
        if inode.kind == FileKind::Directory {
            bail!(Denied, "inode {} is a directory, which has one name only", inode.object);
        }
        let _names = directory.names.write();
        self.entries().check_new_entry(&directory, name)?;
        let (of_file, of_directory) = (inode.word(Attribute::Flags)?, directory.word(Attribute::Flags)?);
        if (of_file ^ of_directory) & znode::FLAG_XATTR != 0 {
            bail!(Invalid, "a file and an extended attribute cannot share a name");
        }
        inode.check_not_sealed()?;
        self.check_project(&inode, &directory)?;
        let tx = OpenTx::assign(&self.membership, NAME_CHANGE)?;
        self.entries().prepare_entry(&tx, &directory, name, Change::Added)?;
        inode.stat()?;
        let mut edit = inode.edit(&tx);
        let links = edit.word(Attribute::Links)?;
        let Some(more) = links.checked_add(1) else { bail!(TooManyLinks, "inode {} has {links} names", inode.object) };
        if links == 0 {
            // Made without a name, or its last name was just removed: it may come back as long as somebody has it open.
            self.names.unlinked().remove(&tx, inode.object)?;
        }
        let now = self.now().to_bytes();
        let flags = self.touched_flags(edit.word(Attribute::Flags)?, false);
        let linked = edit.set(&[
            (Attribute::Links, &more.to_le_bytes()),
            (Attribute::ChangeTime, &now),
            (Attribute::Flags, &flags.to_le_bytes()),
            (Attribute::Parent, &directory.object.to_le_bytes()),
        ]);
        // A file that had no name is in no log either. Logged before its other name can go: a replay would free the file with that one.
        let done = if links == 0 { Done::Other } else { Done::Linked { directory: &directory, inode: &inode, name } };
        let linked = linked.and_then(|()| self.log(&tx, done));
        drop(edit);
        whole(&self.files, linked.and_then(|()| self.entries().add_entry(&tx, &directory, name, &inode)))?;
        let stat = inode.stat();
        drop(tx);
        let stat = stat?;
        inode.give_to_kernel();
        Ok(stat)
    }

    /// Removes a name of a file that is no directory.
    ///
    /// # Errors
    /// `NotFound`; `IsDirectory`.
    pub fn unlink(&self, directory: InodeNumber, name: &[u8]) -> Result<()> {
        let directory = self.inode(directory)?;
        directory.check_directory()?;
        self.check_writable()?;
        let names = directory.names.write();
        let inode = self.entry(&directory, name)?;
        directory.check_entries_may_go()?;
        if inode.kind == FileKind::Directory {
            bail!(IsDirectory, "{:?} is a directory", String::from_utf8_lossy(name));
        }
        inode.check_removable()?;
        let tx = OpenTx::assign_freeing(&self.membership)?;
        let gone = self.entries().remove_name(&tx, &directory, name, &inode)?;
        self.log(&tx, Done::Removed { directory: &directory, name, inode: &inode, gone })?;
        drop(tx);
        drop(names);
        Ok(())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `NotFound`; `NotDirectory`; `NotEmpty`.
    pub fn rmdir(&self, directory: InodeNumber, name: &[u8]) -> Result<()> {
        let directory = self.inode(directory)?;
        directory.check_directory()?;
        self.check_writable()?;
        if name == b"." || name == b".." {
            bail!(Invalid, "{:?} cannot be removed", String::from_utf8_lossy(name));
        }
        let inode: InodeRef<'_>;
        let _tree = self.names.lock_tree();
        let _names = directory.names.write();
        inode = self.entry(&directory, name)?;
        inode.check_directory()?;
        if inode.object == directory.object {
            bail!(Corrupt, "directory {} is an entry of itself", inode.object);
        }
        let _its_names = inode.names.write();
        directory.check_entries_may_go()?;
        inode.check_removable()?;
        if !self.is_empty(&inode)? {
            bail!(NotEmpty, "directory {:?} has entries", String::from_utf8_lossy(name));
        }
        let tx = OpenTx::assign_freeing(&self.membership)?;
        self.entries().remove_name(&tx, &directory, name, &inode)?;
        self.log(&tx, Done::Removed { directory: &directory, name, inode: &inode, gone: true })
    }
}
