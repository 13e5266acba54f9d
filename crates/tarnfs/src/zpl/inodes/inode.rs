//! Files in memory, and references to them.
//!
//! # Theory
//! An [`Inode`] is in the table while somebody has a reference: the kernel (as often as it was told of the file) or a call
//! in progress ([`InodeRef`]). When the last one goes and the file has no links, its object is freed. An inode that only the
//! kernel refers to may be given up meanwhile, and made again: [`super::inode_table`].

use std::ops::{ControlFlow, Deref};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use engine::arc::Held;
use engine::dmu::{Dnode, Tx};
use engine::error::{Result, Within};
use engine::logged::LoggedObject;
use engine::zap::Zap;
use engine::{bail, error};
use ondisk::sa::Attribute;
use ondisk::znode;
use parking_lot::{RwLock, RwLockWriteGuard};

use super::commit_gate::Entered;
use super::inode_table::{Found, InodeTable};
use crate::zpl::attributes::values::{Attributes, Writing};
use crate::zpl::file_system::FileSystem;
use crate::zpl::log::records::LogFacts;
use crate::zpl::{FileKind, InodeNumber};

/// What an inode weighs beside its object: itself, the index of its attributes, a copy of them.
const INODE_BYTES: usize = size_of::<Inode>() + 1024;

/// A file in memory.
#[derive(Debug)]
pub(in crate::zpl) struct Inode {
    pub(in crate::zpl) object: InodeNumber,
    pub(in crate::zpl) kind: FileKind,
    /// The object: what the file contains, or a directory's entries.
    pub(in crate::zpl) contents: LoggedObject,
    /// guards: the attributes
    pub(in crate::zpl) attributes: RwLock<Attributes>,
    /// guards: the entries (directories only)
    pub(in crate::zpl) names: RwLock<()>,
    /// guards: the extended attributes
    pub(in crate::zpl) xattrs: RwLock<()>,
    /// When it was changed last, by the table's clock; its access time does not count.
    pub(in crate::zpl) changed_at: AtomicU64,
    /// The kernel has handed over contents, and may be about to tell the times that go with them.
    pub(in crate::zpl) times_owed: AtomicBool,
    /// The first is added under the shard's lock, and the last is taken away under it.
    pub(super) references: AtomicU64,
    /// Somebody asked for it since the table's hand came by.
    pub(in crate::zpl) used: AtomicBool,
    /// Which entry of the table's order is its own.
    pub(super) ticket: u64,
    /// What it weighs.
    _held: Held,
}

impl Inode {
    pub(in crate::zpl) fn new(object: InodeNumber, dnode: Arc<Dnode>, attributes: Attributes) -> Result<Self> {
        let Some(mode) = attributes.word(Attribute::Mode) else {
            bail!(Corrupt, "object {object} has no attributes of a file");
        };
        Ok(Inode {
            object,
            kind: FileKind::of_mode(mode as u32),
            _held: dnode.hold_memory(INODE_BYTES as u64),
            contents: LoggedObject::new(dnode),
            attributes: RwLock::new(attributes),
            names: RwLock::new(()),
            xattrs: RwLock::new(()),
            changed_at: AtomicU64::new(0),
            times_owed: AtomicBool::new(false),
            references: AtomicU64::new(0),
            used: AtomicBool::new(false),
            ticket: 0,
        })
    }

    /// Locks the attributes for a change in `tx`.
    pub(in crate::zpl) fn edit<'a>(&'a self, tx: &'a Tx) -> Editor<'a> {
        let editor = self.edit_quietly(tx);
        self.changed_at.store(editor.attributes.set_of_files().count_change(), Ordering::Release);
        editor
    }

    /// As [`Inode::edit`], for a change that is no reason to do anything again.
    pub(in crate::zpl) fn edit_quietly<'a>(&'a self, tx: &'a Tx) -> Editor<'a> {
        Editor { attributes: self.attributes.write(), writing: Writing { dnode: &self.contents.dnode, tx } }
    }

    /// Fails unless the file is a directory.
    pub(in crate::zpl) fn check_directory(&self) -> Result<()> {
        if self.kind == FileKind::Directory { Ok(()) } else { Err(error!(NotDirectory, "inode {} is no directory", self.object)) }
    }

    /// Fails for a file that is marked: it may not be changed, or may only grow.
    pub(in crate::zpl) fn check_not_sealed(&self) -> Result<()> {
        if self.word(Attribute::Flags)? & (znode::FLAG_IMMUTABLE | znode::FLAG_APPEND_ONLY) != 0 {
            bail!(Denied, "inode {} is marked not to be changed", self.object);
        }
        Ok(())
    }

    /// Fails unless the file has contents.
    pub(in crate::zpl) fn check_regular(&self) -> Result<()> {
        match self.kind {
            FileKind::Regular => Ok(()),
            FileKind::Directory => Err(error!(IsDirectory, "inode {} is a directory", self.object)),
            _ => Err(error!(Invalid, "inode {} has no contents", self.object)),
        }
    }

    /// A directory that is marked not to be changed gets no entries.
    pub(in crate::zpl) fn check_entries_may_come(&self) -> Result<()> {
        self.check_entries_may_come_by(self.word(Attribute::Flags)?)
    }

    /// As [`Inode::check_entries_may_come`], of one with these flags.
    pub(in crate::zpl) fn check_entries_may_come_by(&self, flags: u64) -> Result<()> {
        if flags & znode::FLAG_IMMUTABLE != 0 {
            bail!(Denied, "directory {} is marked not to be changed", self.object);
        }
        Ok(())
    }

    /// Nor does it lose any; a directory that may only grow does not either.
    pub(in crate::zpl) fn check_entries_may_go(&self) -> Result<()> {
        self.check_not_sealed()
    }

    /// Fails for a file that is marked not to lose a name.
    pub(in crate::zpl) fn check_removable(&self) -> Result<()> {
        let flags = self.word(Attribute::Flags)?;
        if flags & (znode::FLAG_IMMUTABLE | znode::FLAG_NO_UNLINK | znode::FLAG_APPEND_ONLY) != 0 {
            bail!(Denied, "inode {} is marked not to be removed", self.object);
        }
        Ok(())
    }

    /// The entries of a directory.
    pub(in crate::zpl) fn directory_zap(&self) -> Result<Zap> {
        self.check_directory()?;
        Zap::of(self.contents.dnode.clone())
    }
}

/// The attributes of an inode, locked for a change: what is read stays true until it is written.
pub(in crate::zpl) struct Editor<'a> {
    pub(in crate::zpl) attributes: RwLockWriteGuard<'a, Attributes>,
    pub(in crate::zpl) writing: Writing<'a>,
}

impl Editor<'_> {
    /// A word that every file has.
    pub(in crate::zpl) fn word(&mut self, attribute: Attribute) -> Result<u64> {
        let object = self.writing.dnode.object();
        self.maybe_word(attribute)?.ok_or_else(|| error!(Corrupt, "object {object} has not the attribute {attribute:?}"))
    }

    /// A word that a file may have.
    pub(in crate::zpl) fn maybe_word(&mut self, attribute: Attribute) -> Result<Option<u64>> {
        if self.attributes.word(attribute).is_none() {
            self.attributes.load_spill(self.writing.dnode)?;
        }
        Ok(self.attributes.word(attribute))
    }

    /// What the intent log wants to know.
    pub(in crate::zpl) fn facts(&mut self) -> Result<LogFacts> {
        let links = self.word(Attribute::Links)?;
        Ok(LogFacts { links, flags: self.word(Attribute::Flags)?, generation: self.word(Attribute::Generation)? })
    }

    /// Sets attributes.
    pub(in crate::zpl) fn set(&mut self, changes: &[(Attribute, &[u8])]) -> Result<()> {
        self.attributes.set(&self.writing, changes)
    }
}

/// A reference to an inode for the time of a call.
pub(in crate::zpl) struct InodeRef<'a> {
    fs: &'a FileSystem,
    inode: Arc<Inode>,
    /// No transaction of a program is committed meanwhile.
    _entered: Entered<'a>,
    /// Its end was seen to.
    leaves: bool,
}

impl Deref for InodeRef<'_> {
    type Target = Inode;

    fn deref(&self) -> &Inode {
        &self.inode
    }
}

impl Drop for InodeRef<'_> {
    fn drop(&mut self) {
        if self.leaves || InodeTable::release_one_of_several(&self.inode) {
            return;
        }
        // The gate is passed: see `_entered`.
        if let Some(inode) = self.fs.inodes.table.release(self.inode.object, 1) {
            self.fs.released(&inode);
        }
    }
}

impl InodeRef<'_> {
    /// Ends the reference without freeing a file that has no links: it stays in the delete queue.
    pub(in crate::zpl) fn leave(mut self) {
        self.leaves = true;
        if let Some(inode) = self.fs.inodes.table.release(self.inode.object, 1) {
            self.fs.inodes.table.left(&inode);
        }
    }

    /// The reference is the kernel's from now on.
    pub(in crate::zpl) fn give_to_kernel(self) {
        InodeTable::refer(&self.inode);
    }
}

/// What kernels were told of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// The file.
    pub inode: InodeNumber,
    /// How often.
    pub count: u64,
    /// Which file of that number; `None`: it cannot be read.
    pub generation: Option<u64>,
}

impl FileSystem {
    /// The inode with number `object`.
    pub(in crate::zpl) fn inode(&self, object: InodeNumber) -> Result<InodeRef<'_>> {
        self.inode_if(object, false)
    }

    pub(in crate::zpl) fn inode_even_unlinked(&self, object: InodeNumber) -> Result<InodeRef<'_>> {
        self.inode_if(object, true)
    }

    fn inode_if(&self, object: InodeNumber, even_unlinked: bool) -> Result<InodeRef<'_>> {
        let entered = self.enter();
        let mut was_known = None;
        loop {
            let departures = match self.inodes.table.find(object) {
                Found::Whole(inode) => return Ok(InodeRef { fs: self, inode, _entered: entered, leaves: false }),
                Found::ToLoad { is_known, departures } => {
                    was_known.get_or_insert(is_known);
                    departures
                }
                Found::Leaving => bail!(Stale, "inode {object} was removed"),
            };
            let loaded = self.load_inode(object)?;
            let Some(inode) = self.inodes.table.insert_loaded(loaded, departures) else { continue };
            self.make_room();
            let inode = InodeRef { fs: self, inode, _entered: entered, leaves: false };
            // One without links is alive only as long as somebody refers to it, and nobody did.
            if !even_unlinked && was_known == Some(false) && inode.word(Attribute::Links)? == 0 {
                bail!(Stale, "inode {object} was removed");
            }
            return Ok(inode);
        }
    }

    pub(in crate::zpl) fn load_inode(&self, object: InodeNumber) -> Result<Inode> {
        let dnode = self.objset.hold(object)?;
        let mut attributes = Attributes::load(&dnode, &self.files).within(|| format!("inode {object}"))?;
        if attributes.word(Attribute::Mode).is_none() {
            attributes.load_spill(&dnode)?;
        }
        Inode::new(object, dnode, attributes)
    }

    /// Puts a new file's inode into the table.
    pub(in crate::zpl) fn insert_inode(&self, inode: Inode) -> InodeRef<'_> {
        let inode = InodeRef { fs: self, inode: self.inodes.table.insert_new(inode), _entered: self.enter(), leaves: false };
        self.make_room();
        inode
    }

    /// Gives up inodes that were not used lately, if there are too many.
    fn make_room(&self) {
        for inode in self.inodes.table.sweep() {
            let dnode = inode.contents.dnode.clone();
            drop(inode);
            self.objset.let_go(dnode);
        }
    }

    fn release(&self, object: InodeNumber, count: u64) {
        let _entered = self.enter();
        if let Some(inode) = self.inodes.table.release(object, count) {
            self.released(&inode);
        }
    }

    /// The last reference to an inode was given back: a file without links goes with it.
    fn released(&self, inode: &Inode) {
        let object = inode.object;
        match inode.word(Attribute::Links) {
            // One that is not in the delete queue was not removed, whatever its links say: freed, it would leave its name to the next file of its number.
            Ok(0) if !self.is_read_only() && self.names.unlinked().contains(object).unwrap_or(false) => {
                // What fails here stays in the delete queue, and is tried again at the next mount.
                if let Err(error) = self.free_unlinked(inode) {
                    tracing::warn!("{}: inode {object} was removed but cannot be freed yet: {error}", self.objset.name());
                }
            }
            _ => {}
        }
        self.inodes.table.left(inode);
    }

    /// Lets go of all inodes, as at an unmount: files that were removed while open are freed. Stops when a new user comes.
    pub fn release_all(&self) {
        self.let_go_of_all(|inode| self.released(inode));
    }

    /// As [`FileSystem::release_all`], but files that were removed while open stay in the delete queue.
    pub(super) fn leave_all(&self) {
        self.let_go_of_all(|inode| self.inodes.table.left(inode));
    }

    fn let_go_of_all(&self, released: impl Fn(&Inode)) {
        for object in self.inodes.table.all() {
            let _entered = self.enter();
            match self.inodes.release_unless_used(object) {
                ControlFlow::Break(()) => return,
                ControlFlow::Continue(last) => last.iter().for_each(|inode| released(inode)),
            }
        }
    }

    /// What kernels were told of.
    pub fn told(&self) -> Vec<Told> {
        let generation = |object| self.inode_even_unlinked(object).and_then(|inode| inode.stat()).map(|stat| stat.generation).ok();
        self.inodes.table.references().into_iter().map(|(inode, count)| Told { inode, count, generation: generation(inode) }).collect()
    }

    /// What a kernel was told of passes on to other contents of the dataset: counts an inode as told `count` times, if it is the file of this
    /// generation, with a name or without. `false`: it is not.
    pub fn take_over(&self, inode: InodeNumber, generation: u64, count: u64) -> bool {
        let Ok(found) = self.inode_even_unlinked(inode) else { return false };
        if found.stat().map_or(true, |stat| stat.generation != generation) {
            // If it has no name it is freed with all that are left so: calls wait here.
            found.leave();
            return false;
        }
        (0..count).for_each(|_| InodeTable::refer(&found.inode));
        true
    }

    /// All inodes that somebody refers to.
    pub fn known_inodes(&self) -> Vec<InodeNumber> {
        self.inodes.table.all()
    }

    /// Files in memory that changed at that second or later.
    pub fn changed_since(&self, seconds: i64) -> Vec<InodeNumber> {
        let is_recent = |inode: &Arc<Inode>| inode.stat().is_ok_and(|stat| stat.change_time.seconds >= seconds);
        self.inodes.table.whole().into_iter().filter(is_recent).map(|inode| inode.object).collect()
    }

    /// The kernel forgets the inode `count` times.
    pub fn forget(&self, inode: InodeNumber, count: u64) {
        self.release(inode, count);
    }
}
