//! Names: directories and their entries, and files that have none any more.

pub(super) mod create;
pub(super) mod directory;
pub(super) mod link;
pub(super) mod paths;
pub(super) mod rename;
mod rules;
pub(super) mod unlinked_set;

use engine::dmu::Objset;
use engine::error::Result;
use engine::zap::Zap;
use ondisk::znode;
use parking_lot::Mutex;

use super::InodeNumber;
use rules::Rules;
use unlinked_set::UnlinkedSet;

pub(crate) use rules::CASE_INSENSITIVE;

/// What a mounted file system knows of names.
pub(super) struct Names {
    root: InodeNumber,
    rules: Rules,
    unlinked: UnlinkedSet,
    /// guards: which directory is in which; taken first
    tree: Mutex<()>,
}

impl Names {
    /// Files without a name.
    pub(in crate::zpl) fn unlinked(&self) -> &UnlinkedSet {
        &self.unlinked
    }

    /// From the master node.
    pub(super) fn load(objset: &Objset, master: &Zap) -> Result<Self> {
        Ok(Names {
            root: master.get_u64(znode::ROOT_NAME)?,
            rules: Rules::load(master)?,
            unlinked: UnlinkedSet::open(objset, master.get_u64(znode::DELETE_QUEUE_NAME)?)?,
            tree: Mutex::new(()),
        })
    }

    pub(super) fn root(&self) -> InodeNumber {
        self.root
    }
}
