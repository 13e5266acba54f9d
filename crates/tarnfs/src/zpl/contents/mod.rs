//! Contents of files.
//!
//! # Path
//! `requests` finds the file; [`Contents`] does the rest, over [`engine::logged`].

pub(super) mod clone;
pub(super) mod direct;
pub(super) mod file;
mod requests;

use engine::dmu::{Membership, Tx};
use engine::error::Result;

use super::attributes::quota::Quotas;
use super::inodes::file_set::FileSet;
use super::log::Log;
use super::log::records::Done;

/// What operations on contents need, and no more of the file system.
pub(super) struct Contents<'a> {
    pub(super) files: &'a FileSet,
    pub(super) membership: &'a Membership,
    pub(super) quotas: &'a Quotas,
    pub(super) log: &'a Log,
    /// The commit of a program's transaction does them.
    pub(super) is_alone: bool,
}

impl Contents<'_> {
    fn note(&self, tx: &Tx, done: Done<'_>) -> Result<()> {
        self.log.note(tx, self.is_alone, done)
    }
}
