//! The commit of a transaction.
//!
//! # Theory
//! Everything that can be refused is refused before the first change: then nothing has happened. Names come first, in their order; then
//! contents, attributes and extended attributes of what still has a name, which do not depend on each other.

use std::collections::HashMap;
use std::sync::Arc;

use engine::dmu::{Membership, Refusal};
use engine::dsl::{Dsl, NewSnapshots};
use engine::error::{Error, ErrorKind, Result};
use engine::bail;

use super::change::{NameChange, EntryName};
use super::names_fit::Salts;
use super::node::{Node, PIECE};
use super::{Durability, NodeId, OWN, Transaction};
use crate::zpl::file_system::AloneFileSystem;
use crate::zpl::names::link::NAME_CHANGE;
use crate::zpl::{Credentials, InodeNumber, SetAttributes, WriteMode, XattrMode};

/// Worst case of the metadata of one file's new contents.
const FILE_METADATA: u64 = 256 << 10;
/// How often there is waited for a group with room.
const WAITS_MAX: usize = 16;
/// Contents are written in parts of so many pieces.
const RUN_PIECES: usize = 256;

impl Transaction {
    /// Does all changes at once. Nobody sees some of them without the others, and no crash leaves some of them.
    ///
    /// # Errors
    /// Nothing has happened: `Conflict` if what the transaction has seen has changed; `NoSpace`, `Quota`, `ReadOnly`. `Suspended`: one of the
    /// changes could not be done; the pool has stopped, and is on disk as it was before.
    pub fn commit(self, durability: Durability) -> Result<()> {
        self.commit_then(durability, None)
    }

    /// As [`Transaction::commit`], and takes a snapshot of the file system as it is then: with all that was committed, and with nothing that came later.
    /// Returns when both are on disk. Meanwhile nobody else gets into the file system until the group is closed.
    ///
    /// # Errors
    /// Those of [`Transaction::commit`]; what is in the way of the snapshot: nothing has happened. Only if a snapshot of the same name is taken in the
    /// same instant the changes are done and the snapshot (`Exists`, `Conflict`) is not.
    pub(crate) fn commit_with_snapshot(self, dsl: &Arc<Dsl>, name: &str) -> Result<()> {
        let new = NewSnapshots { names: vec![format!("{}@{name}", self.fs.objset.name())], properties: Vec::new() };
        dsl.snapshot_verbs().check_new(&new)?;
        self.commit_then(Durability::Now, Some((dsl, new)))
    }

    fn commit_then(self, durability: Durability, snapshot: Option<(&Arc<Dsl>, NewSnapshots)>) -> Result<()> {
        let fs = self.fs.clone();
        let room = self.room();
        let mut pending = None;
        let mut made = HashMap::new();
        let mut waits = 0;
        let txg = loop {
            let mut alone = fs.alone();
            match self.check(&alone) {
                Err(Refusal::ForNow(_)) if waits < WAITS_MAX => {
                    drop(alone);
                    waits += 1;
                    fs.objset.context().groups.wait_for_room()?;
                    continue;
                }
                answer => answer?,
            }
            let salts = self.check_names_fit(&alone)?;
            if self.is_empty() && snapshot.is_none() {
                drop(alone);
                // What it has seen is to be on disk, too.
                let groups = &fs.objset.context().groups;
                return if durability == Durability::Now { groups.wait_stuck(groups.open_txg()) } else { Ok(()) };
            }
            if !alone.begin(room)? {
                drop(alone);
                if waits == WAITS_MAX {
                    bail!(NoSpace, "{}: there is no room for a transaction of {room} bytes", fs.objset.name());
                }
                waits += 1;
                Membership::wait(&fs.objset, room)?;
                continue;
            }
            if let Err(error) = self.apply(&alone, &mut made, &salts) {
                let name = fs.objset.name();
                let error = Error::new(ErrorKind::Suspended, format!("{name}: a transaction could not be done to its end, and is undone by stopping the pool: {error}"));
                alone.membership.give_up(error.clone());
                return Err(error);
            }
            let txg = alone.membership.txg().unwrap_or_default();
            if let Some((dsl, new)) = snapshot {
                pending = Some(dsl.snapshot_verbs().create_with(&alone.membership, new)?);
                // The snapshot has all of the group: nothing more of this file system is to get into it.
                alone.end();
                fs.objset.context().groups.wait_quiesced(txg);
            }
            break txg;
        };
        for inode in made.into_values() {
            fs.forget(inode, 1);
        }
        // What was removed may be freed now.
        drop(self);
        if durability == Durability::Now {
            fs.objset.context().groups.wait_stuck(txg)?;
        }
        pending.map_or(Ok(()), |pending| pending.outcome())
    }

    /// Worst case of what the commit writes. A commit that only frees needs no room.
    pub(super) fn room(&self) -> u64 {
        let only_frees = |change: &NameChange| matches!(change, NameChange::Remove { .. });
        if self.bytes == 0 && self.names.iter().all(only_frees) && self.nodes.values().all(|node| !node.is_changed()) {
            return 0;
        }
        let files = self.nodes.values().filter(|node| node.is_changed()).count() as u64;
        let blocks: u64 = self.nodes.values().map(|node| self.room_of_patch(node)).sum();
        self.bytes + blocks + files * FILE_METADATA + self.names.len() as u64 * NAME_CHANGE
    }

    /// What the patch of a file takes beside its own bytes: a block that is written in part is written as a whole.
    fn room_of_patch(&self, node: &Node) -> u64 {
        if !node.patch.exists {
            return 0;
        }
        let piece = PIECE as u64;
        // The only block of a file may grow to the size of a record; that of a new one is no larger than the file.
        let record = node.stat.block_size.max(self.fs.objset.settings().record_bytes).max(piece);
        let block = if node.base.is_some() { record } else { record.min(node.stat.size.next_multiple_of(piece).max(piece)) };
        let mut touched: Vec<u64> = node.patch.pieces.keys().map(|number| number * piece / block).collect();
        touched.dedup();
        // One more, where a file that was there is cut.
        let blocks = touched.len() as u64 + u64::from(node.base.is_some());
        (blocks * block).saturating_sub(node.patch.pieces.len() as u64 * piece)
    }

    /// Is everything as it was seen, and may everything be done?
    fn check(&self, fs: &AloneFileSystem<'_>) -> Result<(), Refusal> {
        fs.check_writable()?;
        for (id, node) in &self.nodes {
            if let Some(base) = &node.base {
                base.check_rules(fs, *id)?;
            }
            if node.patch.exists && node.base.is_some() {
                fs.quotas.check_to_write(&*fs.inode(*id)?)?;
            }
            if node.base.is_none() || node.attributes.uid.is_some() || node.attributes.gid.is_some() {
                fs.quotas.check_to_own(Some(node.stat.uid.into()), Some(node.stat.gid.into()), node.base.is_none().then_some(node.stat.project))?;
            }
        }
        Ok(self.check_seen_unchanged(fs)?)
    }

    /// Is everything as it was seen?
    pub(super) fn check_seen_unchanged(&self, fs: &AloneFileSystem<'_>) -> Result<()> {
        for (id, node) in self.nodes.iter().filter(|(_, node)| node.depends) {
            if let Some(base) = &node.base {
                base.check_unchanged(fs, *id)?;
            }
        }
        for ((directory, name), found) in &self.seen {
            let now = match fs.lookup(*directory, name) {
                Ok(stat) => {
                    fs.forget(stat.inode, 1);
                    Some(stat.inode)
                }
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Stale) => None,
                Err(error) => return Err(error),
            };
            if now != *found {
                bail!(Conflict, "{}: {:?} in directory {directory} was changed by somebody else", fs.objset.name(), String::from_utf8_lossy(name));
            }
        }
        Ok(())
    }

    fn apply(&self, fs: &AloneFileSystem<'_>, made: &mut HashMap<NodeId, InodeNumber>, salts: &Salts) -> Result<()> {
        #[cfg_attr(not(test), expect(clippy::unused_enumerate_index, reason = "a test counts the changes"))]
        for (_nth, change) in self.names.iter().enumerate() {
            #[cfg(test)]
            if self.fail_at == Some(_nth) {
                bail!(Io, "a test wants this change to fail");
            }
            self.apply_name(fs, change, made, salts)?;
        }
        let mut ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            let node = &self.nodes[&id];
            if node.stat.links > 0 && node.is_changed() {
                self.apply_node(fs, node, number(made, id), salts.of_xattrs.get(&id).copied())?;
            }
        }
        Ok(())
    }

    fn apply_name(&self, fs: &AloneFileSystem<'_>, change: &NameChange, made: &mut HashMap<NodeId, InodeNumber>, salts: &Salts) -> Result<()> {
        match change {
            NameChange::Make { entry, node, mode, device, credentials } => {
                let directory = number(made, entry.directory);
                let stat = match (&self.nodes[node].target, salts.of_directories.get(node)) {
                    (Some(target), _) => fs.symlink(directory, &entry.name, target, credentials)?,
                    (None, Some(salt)) => fs.mkdir_salted(directory, &entry.name, *mode, credentials, *salt)?,
                    (None, None) => fs.create(directory, &entry.name, *mode, *device, credentials)?,
                };
                made.insert(*node, stat.inode);
                Ok(())
            }
            NameChange::Link { node, entry } => {
                let stat = fs.link(number(made, *node), number(made, entry.directory), &entry.name)?;
                fs.forget(stat.inode, 1);
                Ok(())
            }
            NameChange::Remove { entry, directory: true } => fs.rmdir(number(made, entry.directory), &entry.name),
            NameChange::Remove { entry, directory: false } => fs.unlink(number(made, entry.directory), &entry.name),
            NameChange::Rename { from, to, mode } => {
                let at = |entry: &EntryName| number(made, entry.directory);
                fs.rename(at(from), &from.name, at(to), &to.name, *mode)
            }
        }
    }

    fn apply_node(&self, fs: &AloneFileSystem<'_>, node: &Node, inode: InodeNumber, salt: Option<u64>) -> Result<()> {
        let root = Credentials::root();
        if node.patch.exists {
            self.apply_patch(fs, node, inode)?;
        }
        if node.attributes != SetAttributes::default() {
            fs.setattr(inode, &node.attributes, &root)?;
        }
        if let Some(salt) = salt {
            fs.make_xattr_directory(&*fs.inode(inode)?, None, Some(salt))?;
        }
        for (name, value) in &node.xattrs {
            match value {
                Some(value) => fs.setxattr(inode, name, value, XattrMode::Any)?,
                None => fs.removexattr(inode, name)?,
            }
        }
        Ok(())
    }

    fn apply_patch(&self, fs: &AloneFileSystem<'_>, node: &Node, inode: InodeNumber) -> Result<()> {
        let (root, size) = (Credentials::root(), node.stat.size);
        if fs.getattr(inode)?.size > node.patch.kept {
            fs.truncate(inode, node.patch.kept, &root)?;
        }
        let pieces: Vec<(u64, &[u8; PIECE])> = node.patch.pieces.iter().map(|(number, piece)| (*number, &**piece)).collect();
        for run in pieces.chunk_by(|a, b| a.0 + 1 == b.0) {
            for part in run.chunks(RUN_PIECES) {
                let at = part[0].0 * PIECE as u64;
                let mut bytes: Vec<u8> = part.iter().flat_map(|(_, piece)| piece.iter().copied()).collect();
                bytes.truncate(usize::try_from(size.saturating_sub(at)).unwrap_or(usize::MAX));
                if !bytes.is_empty() {
                    fs.write(inode, WriteMode::At(at), &bytes, &root)?;
                }
            }
        }
        if fs.getattr(inode)?.size != size { fs.truncate(inode, size, &root) } else { Ok(()) }
    }
}

/// The inode number of a file of the transaction.
fn number(made: &HashMap<NodeId, InodeNumber>, id: NodeId) -> InodeNumber {
    if id < OWN { id } else { made[&id] }
}
