//! Making and removing names.

use engine::dmu::{OpenTx, Tx};
use engine::error::{Error, ErrorKind, Result};
use engine::zap::Integers;
use engine::{bail, error};
use ondisk::dnode::DNODE_SLOT_BYTES;
use ondisk::feature::Feature;
use ondisk::sa::Attribute;
use ondisk::zil::RecordType;
use ondisk::znode;

use super::create::NewNode;
use crate::zpl::attributes::posix_acl::NewLists;
use super::rules::NAME_MAX;
use crate::zpl::file_system::{Credentials, FileSystem};
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

/// Whether an entry more or less is also a subdirectory more or less.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Added,
    Removed,
}

impl FileSystem {
    /// Brings a directory's size, link count and times up to date after an entry came or went.
    pub(super) fn entry_changed(&self, tx: &Tx, directory: &Inode, kind: FileKind, change: Change) -> Result<()> {
        let mut edit = directory.edit(tx);
        let (size, links, flags) = (edit.word(Attribute::Size)?, edit.word(Attribute::Links)?, edit.word(Attribute::Flags)?);
        let subdirectory = u64::from(kind == FileKind::Directory);
        let (size, links) = match change {
            Change::Added => (size.saturating_add(1), links.saturating_add(subdirectory)),
            Change::Removed => (size.saturating_sub(1), links.saturating_sub(subdirectory)),
        };
        let now = self.now().to_bytes();
        let flags = self.touched_flags(flags, true);
        edit.set(&[
            (Attribute::Size, &size.to_le_bytes()),
            (Attribute::Links, &links.to_le_bytes()),
            (Attribute::ModificationTime, &now),
            (Attribute::ChangeTime, &now),
            (Attribute::Flags, &flags.to_le_bytes()),
        ])
    }

    /// Reads all that it takes to add the entry `name` to a directory, or to remove it: afterwards neither fails. To be called before the
    /// first change, since what is half done is neither what was nor what was wanted.
    pub(super) fn prepare_entry(&self, tx: &Tx, directory: &Inode, name: &[u8], change: Change) -> Result<()> {
        directory.stat()?;
        let zap = self.directory_zap(directory)?;
        match change {
            Change::Added => zap.prepare_to_add(tx, name),
            Change::Removed => zap.prepare_to_remove(tx, name),
        }
    }

    /// What was prepared and fails all the same must not reach the disk by halves: the pool stops, and on disk is what was there before.
    pub(in crate::zpl) fn whole<T>(&self, done: Result<T>) -> Result<T> {
        done.map_err(|error| {
            let name = self.objset.name();
            let error = Error::new(ErrorKind::Suspended, format!("{name}: an operation could not be done to its end, and is undone by stopping the pool: {error}"));
            self.objset.context().groups.fail(error.clone());
            error
        })
    }

    /// Adds the entry `name` for `inode`, whose link count already counts it.
    pub(in crate::zpl) fn add_entry(&self, tx: &Tx, directory: &Inode, name: &[u8], inode: &Inode) -> Result<()> {
        let mode = inode.word(Attribute::Mode)?;
        let value = self.entry_value(inode.object, mode);
        self.directory_zap(directory)?.add(tx, name, Integers::U64(&[value]))?;
        if name.len() > NAME_MAX {
            self.objset.owner().uses(Feature::Longname);
        }
        self.whole(self.entry_changed(tx, directory, inode.kind, Change::Added))
    }

    /// Removes the entry `name`, which names a file of `kind`.
    pub(super) fn remove_entry(&self, tx: &Tx, directory: &Inode, name: &[u8], kind: FileKind) -> Result<()> {
        self.directory_zap(directory)?.remove_matching(tx, name, self.names.rules.matching())?;
        self.whole(self.entry_changed(tx, directory, kind, Change::Removed))
    }

    /// Takes one link from `inode`; without any it goes to the delete queue. It fails before anything has changed, or not at all.
    pub(super) fn drop_link(&self, tx: &Tx, inode: &Inode) -> Result<()> {
        let mut edit = inode.edit(tx);
        let links = edit.word(Attribute::Links)?;
        let left = if inode.kind == FileKind::Directory { 0 } else { links.saturating_sub(1) };
        let now = self.now().to_bytes();
        let flags = self.touched_flags(edit.word(Attribute::Flags)?, false);
        if left == 0 {
            // Freed when nobody has it open any more, which may be in a group after this one.
            tx.note_freeing(inode.contents.dnode.used_bytes().max(DNODE_SLOT_BYTES as u64));
            self.names.unlinked.add(tx, inode.object)?;
        }
        self.whole(edit.set(&[(Attribute::Links, &left.to_le_bytes()), (Attribute::ChangeTime, &now), (Attribute::Flags, &flags.to_le_bytes())]))
    }

    /// Checks that `directory` may get the entry `name`, which it does not have.
    pub(in crate::zpl) fn check_new_entry(&self, directory: &Inode, name: &[u8]) -> Result<()> {
        // Extended attributes may be called what files may not: `user.a/b`.
        match directory.word(Attribute::Flags)? & znode::FLAG_XATTR {
            0 => self.check_name(name)?,
            _ => self.check_new_text(name)?,
        }
        self.check_entries_may_come(directory)?;
        if directory.word(Attribute::Links)? == 0 {
            bail!(NotFound, "directory {} was removed", directory.object);
        }
        if self.find_entry(directory, name)?.is_some() {
            bail!(Exists, "{:?} exists in directory {}", String::from_utf8_lossy(name), directory.object);
        }
        Ok(())
    }

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
        self.check_new_entry(&directory, name)?;
        let (mode, lists) = self.begin_lists(&directory, mode, credentials)?;
        let new = NewNode { salt, ..self.new_node(&directory, mode, device, credentials)? };
        self.check_quota_to_own(Some(new.uid.into()), Some(new.gid.into()), Some(new.project))?;
        let inode = self.make_entry(&directory, name, &new, target, &lists)?;
        self.put_new_lists_aside(&inode, &lists)?;
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
        let inode = self.maker().make(&tx, new)?;
        let made = target.map_or(Ok(()), |target| self.set_target(&tx, &inode, target));
        let made = made.and_then(|()| self.put_new_lists(&tx, &inode, lists)).and_then(|()| self.add_entry(&tx, directory, name, &inode));
        if let Err(error) = made {
            // The object is nobody's: nothing names it.
            self.whole(self.objset.free(&tx, inode.object))?;
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

    /// Makes a file without a name. The inode is counted as known to the kernel.
    ///
    /// # Errors
    /// See [`FileSystem::create`].
    #[doc(alias = "O_TMPFILE")]
    pub fn create_unnamed(&self, directory: InodeNumber, mode: u32, credentials: &Credentials) -> Result<Stat> {
        let directory = self.inode(directory)?;
        directory.check_directory()?;
        self.check_writable()?;
        self.check_entries_may_come(&directory)?;
        let (mode, lists) = self.begin_lists(&directory, 0o100_000 | mode & !TYPE_MASK, credentials)?;
        let mut new = self.new_node(&directory, mode, 0, credentials)?;
        new.links = 0;
        self.check_quota_to_own(Some(new.uid.into()), Some(new.gid.into()), Some(new.project))?;
        let tx = OpenTx::assign(&self.membership, NAME_CHANGE)?;
        let inode = self.maker().make(&tx, &new)?;
        let made = self.put_new_lists(&tx, &inode, &lists).and_then(|()| self.names.unlinked.add(&tx, inode.object));
        if let Err(error) = made {
            self.whole(self.objset.free_held(&tx, &inode.contents.dnode))?;
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
        self.check_new_entry(&directory, name)?;
        let (of_file, of_directory) = (inode.word(Attribute::Flags)?, directory.word(Attribute::Flags)?);
        if (of_file ^ of_directory) & znode::FLAG_XATTR != 0 {
            bail!(Invalid, "a file and an extended attribute cannot share a name");
        }
        inode.check_not_sealed()?;
        self.check_project(&inode, &directory)?;
        let tx = OpenTx::assign(&self.membership, NAME_CHANGE)?;
        self.prepare_entry(&tx, &directory, name, Change::Added)?;
        inode.stat()?;
        let mut edit = inode.edit(&tx);
        let links = edit.word(Attribute::Links)?;
        let Some(more) = links.checked_add(1) else { bail!(TooManyLinks, "inode {} has {links} names", inode.object) };
        if links == 0 {
            // Made without a name, or its last name was just removed: it may come back as long as somebody has it open.
            self.names.unlinked.remove(&tx, inode.object)?;
        }
        let now = self.now().to_bytes();
        let flags = self.touched_flags(edit.word(Attribute::Flags)?, false);
        let linked = edit.set(&[
            (Attribute::Links, &more.to_le_bytes()),
            (Attribute::ChangeTime, &now),
            (Attribute::Flags, &flags.to_le_bytes()),
            (Attribute::Parent, &directory.object.to_le_bytes()),
        ]);
        drop(edit);
        self.whole(linked.and_then(|()| self.add_entry(&tx, &directory, name, &inode)))?;
        // A file that had no name is in no log either.
        let done = if links == 0 { Done::Other } else { Done::Linked { directory: &directory, inode: &inode, name } };
        self.log(&tx, done)?;
        let stat = inode.stat();
        drop(tx);
        let stat = stat?;
        inode.give_to_kernel();
        Ok(stat)
    }

    /// Removes the entry `name`, and the link of `inode` that it is.
    pub(in crate::zpl) fn remove_name(&self, tx: &Tx, directory: &Inode, name: &[u8], inode: &Inode) -> Result<()> {
        self.prepare_entry(tx, directory, name, Change::Removed)?;
        inode.stat()?;
        self.drop_link(tx, inode)?;
        self.whole(self.remove_entry(tx, directory, name, inode.kind))
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
        self.check_entries_may_go(&directory)?;
        if inode.kind == FileKind::Directory {
            bail!(IsDirectory, "{:?} is a directory", String::from_utf8_lossy(name));
        }
        self.check_removable(&inode)?;
        let tx = OpenTx::assign_freeing(&self.membership)?;
        self.remove_name(&tx, &directory, name, &inode)?;
        let gone = inode.word(Attribute::Links)? == 0;
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
        let _tree = self.names.tree.lock();
        let _names = directory.names.write();
        inode = self.entry(&directory, name)?;
        inode.check_directory()?;
        if inode.object == directory.object {
            bail!(Corrupt, "directory {} is an entry of itself", inode.object);
        }
        let _its_names = inode.names.write();
        self.check_entries_may_go(&directory)?;
        self.check_removable(&inode)?;
        if !self.is_empty(&inode)? {
            bail!(NotEmpty, "directory {:?} has entries", String::from_utf8_lossy(name));
        }
        let tx = OpenTx::assign_freeing(&self.membership)?;
        self.remove_name(&tx, &directory, name, &inode)?;
        self.log(&tx, Done::Removed { directory: &directory, name, inode: &inode, gone: true })
    }

    /// A directory that is marked not to be changed gets no entries.
    pub(in crate::zpl) fn check_entries_may_come(&self, directory: &Inode) -> Result<()> {
        if directory.word(Attribute::Flags)? & znode::FLAG_IMMUTABLE != 0 {
            bail!(Denied, "directory {} is marked not to be changed", directory.object);
        }
        Ok(())
    }

    /// Nor does it lose any; one that may only grow does not either.
    pub(in crate::zpl) fn check_entries_may_go(&self, directory: &Inode) -> Result<()> {
        directory.check_not_sealed()
    }

    pub(in crate::zpl) fn check_removable(&self, inode: &Inode) -> Result<()> {
        let flags = inode.word(Attribute::Flags)?;
        if flags & (znode::FLAG_IMMUTABLE | znode::FLAG_NO_UNLINK | znode::FLAG_APPEND_ONLY) != 0 {
            bail!(Denied, "inode {} is marked not to be removed", inode.object);
        }
        Ok(())
    }
}
