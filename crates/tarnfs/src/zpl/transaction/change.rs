//! Changing names in a transaction.

use engine::error::Result;
use engine::{bail, error};
use ondisk::znode;

use super::node::Node;
use super::{NodeId, OWN, Transaction};
use crate::zpl::names::create::{inherited_group, inherited_project};
use crate::zpl::names::rename::check_same_project;
use crate::zpl::{Credentials, FileKind, RenameMode, Stat, Time};

const TYPE_DIRECTORY: u32 = 0o040_000;
const TYPE_LINK: u32 = 0o120_000;
const TYPE_MASK: u32 = 0o170_000;
const SET_IDS: u32 = 0o6000;
/// Longest target of a symbolic link.
const TARGET_MAX: usize = 4096;
/// More directories than this one inside the other cannot be.
const DEPTH_MAX: usize = 1 << 20;

/// A name, in a directory.
#[derive(Debug, Clone)]
pub(super) struct EntryName {
    pub(super) directory: NodeId,
    pub(super) name: Vec<u8>,
}

/// A change of names, to be done at the commit.
#[derive(Debug, Clone)]
pub(super) enum NameChange {
    /// A new file.
    Make { entry: EntryName, node: NodeId, mode: u32, device: u64, credentials: Credentials },
    /// One more name.
    Link { node: NodeId, entry: EntryName },
    /// A name less, of a file or of an empty directory.
    Remove { entry: EntryName, directory: bool },
    /// Another name.
    Rename { from: EntryName, to: EntryName, mode: RenameMode },
}

impl Transaction {
    fn entry_name(&mut self, directory: NodeId, name: &[u8]) -> Result<EntryName> {
        self.fs.names.rules().check_name(name)?;
        self.load(directory)?.check_directory()?;
        Ok(EntryName { directory, name: name.to_vec() })
    }

    /// Whether entries may come to a directory, or go.
    fn check_entries(&mut self, directory: NodeId, go: bool) -> Result<()> {
        let node = self.load(directory)?;
        if node.stat.links == 0 {
            bail!(NotFound, "directory {directory} was removed");
        }
        if directory >= OWN {
            return Ok(());
        }
        let inode = self.fs.inode(directory)?;
        if go { inode.check_entries_may_go() } else { inode.check_entries_may_come() }
    }

    /// One more change; a place for it is there.
    fn change(&mut self, change: NameChange) -> Result<()> {
        self.check_count()?;
        self.names.push(change);
        Ok(())
    }

    fn check_count(&self) -> Result<()> {
        if self.names.len() >= self.names_max {
            bail!(TooBig, "a transaction in {} changes at most {} names (tunable transaction_names_max)", self.fs.objset.name(), self.names_max);
        }
        Ok(())
    }

    fn set_entry(&mut self, entry: &EntryName, node: Option<NodeId>) {
        let now = self.fs.now();
        let directory = self.nodes.get_mut(&entry.directory).expect("it was loaded");
        let added = u64::from(node.is_some());
        directory.stat.size = directory.stat.size.saturating_add(added).saturating_sub(1 - added);
        directory.entries.insert(entry.name.clone(), node);
        directory.touch(now);
    }

    fn add_subdirectory(&mut self, directory: NodeId, change: i64) {
        let stat = &mut self.nodes.get_mut(&directory).expect("it was loaded").stat;
        stat.links = stat.links.saturating_add_signed(change);
    }

    fn make(&mut self, entry: EntryName, mode: u32, device: u64, target: Option<&[u8]>, credentials: &Credentials) -> Result<Stat> {
        self.check_entries(entry.directory, false)?;
        if self.find(entry.directory, &entry.name)?.is_some() {
            bail!(Exists, "{:?} exists in directory {}", String::from_utf8_lossy(&entry.name), entry.directory);
        }
        let node = self.new_number();
        let now = self.fs.now();
        let is_directory = FileKind::of_mode(mode) == FileKind::Directory;
        let block_size = self.fs.objset.settings().record_bytes;
        let parent = &self.nodes[&entry.directory];
        // Of links the umask takes nothing.
        let umask = if target.is_some() { 0 } else { credentials.umask };
        let inherited = |parent| inherited_group(parent, mode & !umask, credentials);
        let ((shown, gid), before) = (inherited((parent.stat.mode, parent.stat.gid)), inherited(parent.before));
        let mut stat = new_stat(node, shown, device, if is_directory { 2 } else { 0 }, entry.directory, credentials, now, block_size);
        stat.gid = gid;
        self.change(NameChange::Make { entry: entry.clone(), node, mode, device, credentials: credentials.clone() })?;
        let mut made = Node::new(stat);
        if let Some(target) = target {
            made.stat.size = target.len() as u64;
            made.target = Some(target.to_vec());
        }
        made.patch.kept = 0;
        made.before = before;
        if (shown, gid) != before {
            // The directory did not pass on before this transaction what it does now. A change of the group alone would end set-id bits.
            made.attributes.gid = Some(gid);
            made.attributes.mode = ((shown | before.0) & SET_IDS != 0).then_some(shown & !TYPE_MASK);
        }
        (made.stat.flags, made.stat.project) = inherited_project(&self.fs.files, &self.nodes[&entry.directory].stat, made.kind());
        let stat = made.stat.clone();
        self.nodes.insert(node, made);
        self.set_entry(&entry, Some(node));
        if is_directory {
            self.add_subdirectory(entry.directory, 1);
        }
        Ok(stat)
    }

    /// Makes a file of any type but symbolic link.
    ///
    /// # Errors
    /// `Exists`; `NotFound` if the directory was removed; `TooBig` beyond what a transaction may hold; `Conflict`.
    pub fn create(&mut self, directory: NodeId, name: &[u8], mode: u32, device: u64, credentials: &Credentials) -> Result<Stat> {
        if FileKind::of_mode(mode) == FileKind::Unknown || mode & TYPE_MASK == TYPE_LINK {
            bail!(Invalid, "a file of mode {mode:o} cannot be made");
        }
        let entry = self.entry_name(directory, name)?;
        self.make(entry, mode, device, None, credentials)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// Those of [`Transaction::create`].
    pub fn mkdir(&mut self, directory: NodeId, name: &[u8], mode: u32, credentials: &Credentials) -> Result<Stat> {
        self.create(directory, name, TYPE_DIRECTORY | mode & !TYPE_MASK, 0, credentials)
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// Those of [`Transaction::create`]; `NameTooLong` for the target.
    pub fn symlink(&mut self, directory: NodeId, name: &[u8], target: &[u8], credentials: &Credentials) -> Result<Stat> {
        if target.len() > TARGET_MAX {
            bail!(NameTooLong, "a target of {} bytes is longer than {TARGET_MAX}", target.len());
        }
        let entry = self.entry_name(directory, name)?;
        self.make(entry, TYPE_LINK | 0o777, 0, Some(target), credentials)
    }

    /// Gives a file one more name.
    ///
    /// # Errors
    /// Those of [`Transaction::create`]; `Denied` for directories.
    pub fn link(&mut self, node: NodeId, directory: NodeId, name: &[u8]) -> Result<Stat> {
        let entry = self.entry_name(directory, name)?;
        if self.load(node)?.kind() == FileKind::Directory {
            bail!(Denied, "inode {node} is a directory, which has one name only");
        }
        if self.nodes[&node].stat.links == 0 {
            bail!(NotFound, "inode {node} was removed");
        }
        self.check_entries(directory, false)?;
        self.check_fits(node, None, directory)?;
        if self.find(directory, name)?.is_some() {
            bail!(Exists, "{:?} exists in directory {directory}", String::from_utf8_lossy(name));
        }
        self.change(NameChange::Link { node, entry: entry.clone() })?;
        self.set_entry(&entry, Some(node));
        self.count_links(node, 1);
        Ok(self.nodes[&node].stat.clone())
    }

    /// May a file come into a directory, from another one or this? What is known of them here is as it will be at the commit.
    fn check_fits(&mut self, node: NodeId, from: Option<NodeId>, directory: NodeId) -> Result<()> {
        if node < OWN {
            self.fs.inode(node)?.check_removable()?;
        }
        if from == Some(directory) {
            return Ok(());
        }
        let of = self.load(node)?.stat.clone();
        check_same_project(&of, &self.load(directory)?.stat)
    }

    fn count_links(&mut self, node: NodeId, change: i64) {
        let now = self.fs.now();
        let stat = &mut self.nodes.get_mut(&node).expect("it was loaded").stat;
        stat.links = stat.links.saturating_add_signed(change);
        stat.change_time = now;
    }

    /// Removes a name of a file that is no directory.
    ///
    /// # Errors
    /// `NotFound`; `IsDirectory`; `TooBig` beyond what a transaction may hold; `Conflict`.
    pub fn unlink(&mut self, directory: NodeId, name: &[u8]) -> Result<()> {
        self.remove(directory, name, false)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `NotFound`; `NotDirectory`; `NotEmpty`; `TooBig` beyond what a transaction may hold; `Conflict`.
    pub fn rmdir(&mut self, directory: NodeId, name: &[u8]) -> Result<()> {
        self.remove(directory, name, true)
    }

    fn remove(&mut self, directory: NodeId, name: &[u8], is_directory: bool) -> Result<()> {
        let entry = self.entry_name(directory, name)?;
        let node = self.find(directory, name)?.ok_or_else(|| error!(NotFound, "{:?} is not in directory {directory}", String::from_utf8_lossy(name)))?;
        self.check_removal(&entry, node, is_directory)?;
        self.change(NameChange::Remove { entry: entry.clone(), directory: is_directory })?;
        self.removed(&entry, node, is_directory);
        Ok(())
    }

    fn check_removal(&mut self, entry: &EntryName, node: NodeId, is_directory: bool) -> Result<()> {
        self.check_entries(entry.directory, true)?;
        match (is_directory, self.load(node)?.kind() == FileKind::Directory) {
            (false, true) => bail!(IsDirectory, "{:?} is a directory", String::from_utf8_lossy(&entry.name)),
            (true, false) => bail!(NotDirectory, "{:?} is no directory", String::from_utf8_lossy(&entry.name)),
            _ => {}
        }
        if is_directory && !self.list(node)?.is_empty() {
            bail!(NotEmpty, "directory {:?} has entries", String::from_utf8_lossy(&entry.name));
        }
        if node < OWN { self.fs.inode(node)?.check_removable() } else { Ok(()) }
    }

    fn removed(&mut self, entry: &EntryName, node: NodeId, is_directory: bool) {
        self.set_entry(entry, None);
        if is_directory {
            self.add_subdirectory(entry.directory, -1);
            self.nodes.get_mut(&node).expect("it was loaded").stat.links = 0;
        } else {
            self.count_links(node, -1);
        }
    }

    /// Moves an entry.
    ///
    /// # Errors
    /// `NotFound`; `Exists`; `NotEmpty`; `IsDirectory` or `NotDirectory` if one is a directory and the other is not; `Invalid` if a
    /// directory would come to be inside itself; `TooBig` beyond what a transaction may hold; `Conflict`.
    pub fn rename(&mut self, from: NodeId, name: &[u8], to: NodeId, new_name: &[u8], mode: RenameMode) -> Result<()> {
        let (old, new) = (self.entry_name(from, name)?, self.entry_name(to, new_name)?);
        let moved = self.find(from, name)?.ok_or_else(|| error!(NotFound, "{:?} is not in directory {from}", String::from_utf8_lossy(name)))?;
        let other = self.find(to, new_name)?;
        self.load(moved)?;
        self.check_entries(from, true)?;
        self.check_entries(to, false)?;
        self.check_fits(moved, Some(from), to)?;
        self.check_not_below(moved, to)?;
        match (mode, other) {
            (_, Some(other)) if other == moved => return Ok(()),
            (RenameMode::NoReplace, Some(_)) => bail!(Exists, "{:?} exists", String::from_utf8_lossy(new_name)),
            (RenameMode::Exchange, None) => bail!(NotFound, "{:?} does not exist", String::from_utf8_lossy(new_name)),
            (RenameMode::Exchange, Some(other)) => {
                self.load(other)?;
                self.check_entries(to, true)?;
                self.check_fits(other, Some(to), from)?;
                self.check_not_below(other, from)?;
            }
            (_, Some(other)) => {
                let is_directory = self.nodes[&moved].kind() == FileKind::Directory;
                self.check_removal(&new, other, is_directory)?;
            }
            (_, None) => {}
        }
        self.change(NameChange::Rename { from: old.clone(), to: new.clone(), mode })?;
        if let (Some(other), false) = (other, mode == RenameMode::Exchange) {
            let is_directory = self.nodes[&other].kind() == FileKind::Directory;
            self.removed(&new, other, is_directory);
        }
        let back = other.filter(|_| mode == RenameMode::Exchange);
        if let Some(other) = back {
            // The entry is there already, and names another file now.
            self.set_entry(&new, None);
            self.moved(other, to, from);
        }
        self.set_entry(&old, None);
        self.set_entry(&new, Some(moved));
        self.moved(moved, from, to);
        if let Some(other) = back {
            self.set_entry(&old, Some(other));
        }
        Ok(())
    }

    fn moved(&mut self, node: NodeId, from: NodeId, to: NodeId) {
        let inherited = self.nodes[&to].stat.flags & znode::FLAG_PROJECT_INHERIT;
        let moved = self.nodes.get_mut(&node).expect("it was loaded");
        moved.stat.parent = to;
        moved.stat.flags |= inherited;
        if moved.kind() == FileKind::Directory {
            self.add_subdirectory(from, -1);
            self.add_subdirectory(to, 1);
        }
    }

    fn check_not_below(&mut self, moved: NodeId, to: NodeId) -> Result<()> {
        if self.nodes[&moved].kind() != FileKind::Directory {
            return Ok(());
        }
        let mut at = to;
        for _ in 0..DEPTH_MAX {
            if at == moved {
                bail!(Invalid, "directory {moved} cannot be moved into itself");
            }
            let parent = self.load(at)?.stat.parent;
            if at == self.root() || parent == at {
                return Ok(());
            }
            at = parent;
        }
        Err(error!(Corrupt, "the parents of directory {to} form a circle"))
    }
}

#[allow(clippy::too_many_arguments)] // they are the fields
fn new_stat(inode: NodeId, mode: u32, device: u64, size: u64, parent: NodeId, credentials: &Credentials, now: Time, block_size: u64) -> Stat {
    Stat {
        inode,
        generation: 0,
        mode,
        links: if mode & TYPE_MASK == TYPE_DIRECTORY { 2 } else { 1 },
        uid: credentials.uid,
        gid: credentials.gid,
        device,
        size,
        allocated: 0,
        block_size,
        access_time: now,
        modification_time: now,
        change_time: now,
        creation_time: now,
        parent,
        flags: 0,
        project: 0,
    }
}
