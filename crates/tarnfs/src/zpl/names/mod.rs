//! Names: directories and their entries, and files that have none any more.

pub(super) mod create;
pub(super) mod directory;
pub(super) mod entries;
pub(super) mod known;
pub(super) mod link;
pub(super) mod paths;
pub(super) mod rename;
mod rules;
pub(super) mod unlinked_set;
pub(super) mod upgrade;

use std::sync::Arc;

use engine::error::Result;
use engine::zap::Zap;
use ondisk::znode;
use parking_lot::{Mutex, MutexGuard};

use super::InodeNumber;
use super::inodes::file_set::FileSet;
use create::Maker;
use entries::Entries;
use rules::Rules;
use unlinked_set::UnlinkedSet;

pub(crate) use rules::CASE_INSENSITIVE;

/// What a mounted file system knows of names.
pub(super) struct Names {
    files: Arc<FileSet>,
    root: InodeNumber,
    rules: Rules,
    unlinked: UnlinkedSet,
    /// guards: which directory is in which; taken first
    tree: Mutex<()>,
}

impl Names {
    /// From the master node.
    pub(super) fn load(files: &Arc<FileSet>, master: &Zap) -> Result<Self> {
        Ok(Names {
            files: files.clone(),
            root: master.get_u64(znode::ROOT_NAME)?,
            rules: Rules::load(files.clone(), master)?,
            unlinked: UnlinkedSet::open(files.objset(), master.get_u64(znode::DELETE_QUEUE_NAME)?)?,
            tree: Mutex::new(()),
        })
    }

    /// The root directory.
    pub(super) fn root(&self) -> InodeNumber {
        self.root
    }

    /// Which names there may be.
    pub(super) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Files without a name.
    pub(super) fn unlinked(&self) -> &UnlinkedSet {
        &self.unlinked
    }

    /// What is done with entries.
    pub(super) fn entries(&self) -> Entries<'_> {
        Entries { files: &self.files, rules: &self.rules, unlinked: &self.unlinked }
    }

    /// What makes files.
    pub(super) fn maker(&self) -> Maker<'_> {
        Maker::new(&self.files, &self.rules)
    }

    /// For the time in which directories are moved or go: the first of all locks of names.
    pub(super) fn lock_tree(&self) -> MutexGuard<'_, ()> {
        self.tree.lock()
    }
}
