//! Moving names.
//!
//! # Theory
//! All renames go one after the other (the lock of the tree), so that "is this directory below that one" stays true while a
//! rename is at work, and so that the locks of two or three directories can be taken in any order: a thread that holds more
//! than one holds the tree.

use engine::dmu::{OpenTx, Tx};
use engine::error::Result;
use engine::{bail, error};
use ondisk::sa::Attribute;
use ondisk::zil::RecordType;
use ondisk::znode;

use super::create::{Fixed, NewNode};
use super::entries::{Change, is_not_there, whole};
use super::link::NAME_CHANGE;
use crate::zpl::file_system::FileSystem;
use crate::zpl::options::Credentials;
use crate::zpl::inodes::inode::{Inode, InodeRef};
use crate::zpl::log::records::Done;
use crate::zpl::{FileKind, InodeNumber, Stat};

/// What to do with an entry that has the new name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameMode {
    /// It is removed.
    Replace,
    /// The rename fails.
    NoReplace,
    /// It gets the old name.
    Exchange,
}

/// A character device; nobody may do anything with it.
const WHITEOUT_MODE: u32 = 0o020_000;
/// More directories than this one inside the other cannot be.
const DEPTH_MAX: usize = 1 << 20;

/// What is left behind.
pub(in crate::zpl) struct Whiteout<'a> {
    pub(in crate::zpl) credentials: &'a Credentials,
    pub(in crate::zpl) fixed: Option<Fixed>,
}

/// One side of a rename.
struct Side<'a> {
    directory: &'a Inode,
    name: &'a [u8],
}

/// See [`FileSystem::check_project`].
pub(in crate::zpl) fn check_same_project(of: &Stat, directory: &Stat) -> Result<()> {
    if directory.flags & znode::FLAG_PROJECT_INHERIT != 0 && directory.project != of.project {
        bail!(CrossDevice, "inode {} belongs to another project than directory {}", of.inode, directory.inode);
    }
    Ok(())
}

impl FileSystem {
    /// Moves an entry.
    ///
    /// # Errors
    /// `NotFound`; `Exists`; `NotEmpty`; `IsDirectory` or `NotDirectory` if one is a directory and the other is not;
    /// `Invalid` if a directory would come to be inside itself.
    pub fn rename(&self, from: InodeNumber, name: &[u8], to: InodeNumber, new_name: &[u8], mode: RenameMode) -> Result<()> {
        self.rename_leaving(from, name, to, new_name, mode, None)
    }

    /// As [`FileSystem::rename`]; with `whiteout`, the old name then stands for a character device without number or permissions, made
    /// by whom is given, as overlay file systems leave it where something below must not show.
    ///
    /// # Errors
    /// As for [`FileSystem::rename`].
    #[doc(alias = "RENAME_WHITEOUT")]
    pub fn rename_leaving(
        &self,
        from: InodeNumber,
        name: &[u8],
        to: InodeNumber,
        new_name: &[u8],
        mode: RenameMode,
        whiteout: Option<&Credentials>,
    ) -> Result<()> {
        let whiteout = whiteout.map(|credentials| Whiteout { credentials, fixed: None });
        self.rename_with(from, name, to, new_name, mode, whiteout.as_ref())
    }

    /// As [`FileSystem::rename_leaving`]; a log says what the whiteout was.
    pub(in crate::zpl) fn rename_with(
        &self,
        from: InodeNumber,
        name: &[u8],
        to: InodeNumber,
        new_name: &[u8],
        mode: RenameMode,
        whiteout: Option<&Whiteout<'_>>,
    ) -> Result<()> {
        let (from, to) = (self.inode(from)?, self.inode(to)?);
        from.check_directory()?;
        to.check_directory()?;
        self.check_writable()?;
        self.names.rules().check_name(new_name)?;
        if name == b"." || name == b".." {
            bail!(Invalid, "{:?} cannot be moved", String::from_utf8_lossy(name));
        }
        // Released last, when neither locks nor the transaction are held: a replaced file may be freed then.
        let moved: InodeRef<'_>;
        let replaced: Option<InodeRef<'_>>;
        let _tree = self.names.lock_tree();
        let _from_names = from.names.write();
        let _to_names = (from.object != to.object).then(|| to.names.write());
        moved = self.entry(&from, name)?;
        replaced = self.target(&to, new_name)?;
        from.check_entries_may_go()?;
        to.check_entries_may_come()?;
        let (old, new) = (Side { directory: &from, name }, Side { directory: &to, name: new_name });
        match (mode, &replaced) {
            (RenameMode::NoReplace, Some(other)) if other.object != moved.object || new_name != name => {
                bail!(Exists, "{:?} exists", String::from_utf8_lossy(new_name))
            }
            (RenameMode::Exchange, None) => bail!(NotFound, "{:?} does not exist", String::from_utf8_lossy(new_name)),
            (RenameMode::Exchange, Some(_)) if whiteout.is_some() => bail!(Invalid, "an exchange leaves nothing behind"),
            (RenameMode::Exchange, Some(other)) => self.exchange(&old, &moved, &new, other),
            (_, Some(other)) if other.object == moved.object => self.rename_spelling(&old, &moved, &new),
            (_, other) => self.replace(&old, &moved, &new, other.as_deref(), whiteout),
        }
    }

    /// What has the new name.
    fn target(&self, to: &Inode, name: &[u8]) -> Result<Option<InodeRef<'_>>> {
        if to.word(Attribute::Links)? == 0 {
            bail!(NotFound, "directory {} was removed", to.object);
        }
        match self.entries().find_entry(to, name)? {
            Some((object, _)) => Ok(Some(self.inode(object)?)),
            None => Ok(None),
        }
    }

    /// Fails if `to` is `moved` or below it.
    fn check_not_below(&self, moved: &Inode, to: &Inode) -> Result<()> {
        if moved.kind != FileKind::Directory {
            return Ok(());
        }
        let mut at = to.object;
        for _ in 0..DEPTH_MAX {
            if at == moved.object {
                bail!(Invalid, "directory {} cannot be moved into itself", moved.object);
            }
            if at == self.root() {
                return Ok(());
            }
            let parent = self.inode(at)?.word(Attribute::Parent)?;
            if parent == at {
                return Ok(());
            }
            at = parent;
        }
        Err(error!(Corrupt, "the parents of directory {} form a circle", to.object))
    }

    fn replace(&self, old: &Side<'_>, moved: &Inode, new: &Side<'_>, replaced: Option<&Inode>, whiteout: Option<&Whiteout<'_>>) -> Result<()> {
        self.check_not_below(moved, new.directory)?;
        moved.check_removable()?;
        self.check_project_to_move(moved, old.directory, new.directory)?;
        let is_directory = moved.kind == FileKind::Directory;
        let _its_names;
        if let Some(replaced) = replaced {
            match (is_directory, replaced.kind == FileKind::Directory) {
                (true, false) => bail!(NotDirectory, "{:?} is no directory", String::from_utf8_lossy(new.name)),
                (false, true) => bail!(IsDirectory, "{:?} is a directory", String::from_utf8_lossy(new.name)),
                _ => {}
            }
            replaced.check_removable()?;
            new.directory.check_entries_may_go()?;
            // A directory that replaces its own parent, which is not empty, must not lock it twice.
            if replaced.object == old.directory.object || replaced.object == new.directory.object {
                bail!(NotEmpty, "directory {:?} has entries", String::from_utf8_lossy(new.name));
            }
            if is_directory {
                _its_names = replaced.names.write();
                if !self.is_empty(replaced)? {
                    bail!(NotEmpty, "directory {:?} has entries", String::from_utf8_lossy(new.name));
                }
            }
        }
        let left = match whiteout {
            Some(whiteout) => {
                let node = NewNode::inherit(&self.files, old.directory, WHITEOUT_MODE, 0, whiteout.credentials)?;
                Some(NewNode { fixed: whiteout.fixed, ..node })
            }
            None => None,
        };
        // What a log says was let.
        if let Some(left) = left.as_ref().filter(|left| left.fixed.is_none()) {
            self.check_quota_to_own(Some(left.uid.into()), Some(left.gid.into()), Some(left.project))?;
        }
        let tx = OpenTx::assign(&self.membership, NAME_CHANGE)?;
        self.entries().prepare_entry(&tx, new.directory, new.name, Change::Added)?;
        self.entries().prepare_entry(&tx, old.directory, old.name, if left.is_some() { Change::Added } else { Change::Removed })?;
        moved.stat()?;
        let left_inode = match &left {
            Some(left) => Some(self.names.maker().make(&tx, left)?),
            None => None,
        };
        if let Some(replaced) = replaced
            && let Err(error) = replaced.stat().and_then(|_| self.entries().drop_link(&tx, replaced))
        {
            if let Some(left) = &left_inode {
                whole(&self.files, self.objset.free_held(&tx, &left.contents.dnode))?;
            }
            return Err(error);
        }
        whole(&self.files, self.move_names(&tx, old, moved, new, replaced, left_inode.as_ref()))?;
        match &left_inode {
            Some(left) => self.log(&tx, Done::LeftWhiteout { from: old.directory, name: old.name, to: new.directory, new_name: new.name, moved, left }),
            None => self.log_rename(&tx, RecordType::Rename, old, new, moved),
        }?;
        // Not before: an `fsync` of the replaced file meanwhile finds the one or the other.
        if let Some(replaced) = replaced
            && replaced.word(Attribute::Links)? == 0
        {
            self.log.forget(replaced.object);
        }
        Ok(())
    }

    /// All changes of the names, which were prepared.
    fn move_names(&self, tx: &Tx, old: &Side<'_>, moved: &Inode, new: &Side<'_>, replaced: Option<&Inode>, left: Option<&Inode>) -> Result<()> {
        if let Some(replaced) = replaced {
            self.entries().remove_entry(tx, new.directory, new.name, replaced.kind)?;
        }
        self.entries().add_entry(tx, new.directory, new.name, moved)?;
        self.entries().remove_entry(tx, old.directory, old.name, moved.kind)?;
        if let Some(left) = left {
            self.entries().add_entry(tx, old.directory, old.name, left)?;
        }
        self.moved(tx, moved, new.directory)
    }

    fn log_rename(&self, tx: &Tx, kind: RecordType, old: &Side<'_>, new: &Side<'_>, moved: &Inode) -> Result<()> {
        self.log(tx, Done::Renamed { kind, from: old.directory, name: old.name, to: new.directory, new_name: new.name, moved })
    }

    /// Where children inherit the project of a directory, nothing of another project comes in.
    pub(super) fn check_project(&self, inode: &Inode, directory: &Inode) -> Result<()> {
        check_same_project(&inode.stat()?, &directory.stat()?)
    }

    /// As [`FileSystem::check_project`]. What gets another name in its directory comes in nowhere: a symbolic link, which belongs to no project.
    fn check_project_to_move(&self, inode: &Inode, from: &Inode, to: &Inode) -> Result<()> {
        if from.object == to.object { Ok(()) } else { self.check_project(inode, to) }
    }

    /// Parent and change time of a file that was moved.
    fn moved(&self, tx: &Tx, moved: &Inode, parent: &Inode) -> Result<()> {
        let now = self.now().to_bytes();
        let mut edit = moved.edit(tx);
        let inherited = parent.word(Attribute::Flags)? & znode::FLAG_PROJECT_INHERIT;
        let flags = self.touched_flags(edit.word(Attribute::Flags)?, true) | inherited;
        edit.set(&[
            (Attribute::Parent, &parent.object.to_le_bytes()),
            (Attribute::ChangeTime, &now),
            (Attribute::Flags, &flags.to_le_bytes()),
        ])
    }

    /// The name of an entry that is there, as it is stored.
    fn stored_name(&self, side: &Side<'_>) -> Result<Vec<u8>> {
        let found = self.entries().find_entry(side.directory, side.name)?;
        found.map(|(_, stored)| stored).ok_or_else(|| is_not_there(side.directory, side.name))
    }

    /// Both names are of one file: nothing to do, unless they are spellings of one name.
    fn rename_spelling(&self, old: &Side<'_>, moved: &Inode, new: &Side<'_>) -> Result<()> {
        if old.directory.object != new.directory.object || old.name == new.name {
            return Ok(());
        }
        if self.stored_name(old)? != self.stored_name(new)? {
            return Ok(());
        }
        let tx = OpenTx::assign(&self.membership, NAME_CHANGE)?;
        self.entries().prepare_entry(&tx, old.directory, old.name, Change::Removed)?;
        self.entries().prepare_entry(&tx, new.directory, new.name, Change::Added)?;
        moved.stat()?;
        let renamed = self.entries().remove_entry(&tx, old.directory, old.name, moved.kind);
        let renamed = renamed.and_then(|()| self.entries().add_entry(&tx, new.directory, new.name, moved));
        whole(&self.files, renamed.and_then(|()| self.moved(&tx, moved, new.directory)))?;
        self.log_rename(&tx, RecordType::Rename, old, new, moved)
    }

    fn exchange(&self, old: &Side<'_>, moved: &Inode, new: &Side<'_>, other: &Inode) -> Result<()> {
        if moved.object == other.object {
            return Ok(());
        }
        // The names change hands and keep their spelling. Another one may be longer than names in this file system are: that of the old name was never checked.
        let (old_name, new_name) = (self.stored_name(old)?, self.stored_name(new)?);
        let old = &Side { directory: old.directory, name: &old_name };
        let new = &Side { directory: new.directory, name: &new_name };
        self.check_not_below(moved, new.directory)?;
        self.check_not_below(other, old.directory)?;
        moved.check_removable()?;
        other.check_removable()?;
        self.check_project_to_move(moved, old.directory, new.directory)?;
        self.check_project_to_move(other, new.directory, old.directory)?;
        new.directory.check_entries_may_go()?;
        let tx = OpenTx::assign(&self.membership, NAME_CHANGE)?;
        for (side, comes) in [(old, other), (new, moved)] {
            self.entries().prepare_entry(&tx, side.directory, side.name, Change::Added)?;
            comes.stat()?;
        }
        let exchange = |side: &Side<'_>, gone: &Inode, comes: &Inode| {
            let mode = comes.word(Attribute::Mode)?;
            let value = self.entries().entry_value(comes.object, mode);
            let zap = side.directory.directory_zap()?;
            zap.remove_matching(&tx, side.name, self.names.rules().matching())?;
            zap.add_u64(&tx, side.name, value)?;
            self.entries().entry_changed(&tx, side.directory, gone.kind, Change::Removed)?;
            self.entries().entry_changed(&tx, side.directory, comes.kind, Change::Added)?;
            self.moved(&tx, comes, side.directory)
        };
        whole(&self.files, exchange(old, moved, other).and_then(|()| exchange(new, other, moved)))?;
        self.log.bring_forward(other.object);
        self.log_rename(&tx, RecordType::RenameExchange, old, new, moved)
    }
}
