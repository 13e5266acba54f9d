//! Copying a range by sharing its blocks.
//!
//! # Theory
//! Where source and target are aligned to blocks of the same size, the target gets the pointers of the source: no contents move,
//! and no space is taken. Contents that are not on disk yet are written first, which takes one group. What cannot be shared
//! (the parts of blocks at either end, blocks of another size) is the caller's to copy.

use engine::bail;
use engine::dmu::OpenTx;
use engine::logged::{CLONE_METADATA_BYTES, clone_blocks};
use engine::error::{ErrorKind, Result};
use ondisk::blkptr::BlkPtr;
use ondisk::sa::Attribute;
use ondisk::znode;

use crate::zpl::InodeNumber;
use super::Contents;
use crate::zpl::options::Credentials;
use crate::zpl::inodes::file_set::FileSet;
use crate::zpl::inodes::inode::Inode;
use crate::zpl::log::records::Done;

/// Blocks shared in one transaction.
const STEP_BLOCKS: u64 = 1024;
/// How often unwritten contents are waited for; then somebody writes all the time, and copying is quicker.
const WAITS_MAX: u32 = 2;

/// What is to be shared.
#[derive(Debug, Clone, Copy)]
pub struct CloneRange {
    /// The file that has the contents.
    pub source: InodeNumber,
    /// From here on.
    pub from: u64,
    /// The file that gets them.
    pub target: InodeNumber,
    /// From here on.
    pub to: u64,
    /// So many bytes.
    pub length: u64,
}

impl Contents<'_> {
    /// See [`FileSystem::clone_range`](crate::FileSystem::clone_range). `other`: what the source is of.
    pub(super) fn clone_range(&self, other: &FileSet, source: &Inode, target: &Inode, range: &CloneRange, credentials: &Credentials) -> Result<u64> {
        source.check_regular()?;
        target.check_regular()?;
        self.files.check_writable()?;
        if !self.files.objset().context().io.features().block_cloning {
            return Ok(0);
        }
        if target.word(Attribute::Flags)? & (znode::FLAG_IMMUTABLE | znode::FLAG_APPEND_ONLY) != 0 {
            bail!(Denied, "inode {} is marked not to be written", target.object);
        }
        let mut done = 0;
        let mut waits = 0;
        while done < range.length {
            let rest = CloneRange { from: range.from + done, to: range.to + done, length: range.length - done, ..*range };
            match self.clone_step(other, source, target, &rest, credentials) {
                Ok(Step::Shared(0)) => break,
                Ok(Step::Shared(bytes)) => (done, waits) = (done + bytes, 0),
                Ok(Step::Unwritten) if waits < WAITS_MAX => {
                    waits += 1;
                    let groups = &self.files.objset().context().groups;
                    match groups.wait_synced(groups.open_txg()) {
                        Err(_) if done > 0 => break,
                        waited => waited?,
                    };
                }
                Ok(Step::Unwritten) => break,
                // What is shared is said to be: the caller goes on behind it, and meets the failure again.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn clone_step(&self, other: &FileSet, source: &Inode, target: &Inode, range: &CloneRange, credentials: &Credentials) -> Result<Step> {
        let same = std::ptr::eq(source, target);
        let (from, to) = (range.from, range.to);
        if same && from < to.saturating_add(range.length) && to < from.saturating_add(range.length) {
            bail!(Invalid, "the ranges of inode {} overlap", source.object);
        }
        // Of two files the one with the lower number first, as a copy the other way does.
        let place = |files: &FileSet, inode: &Inode| (files.objset().dataset(), inode.object);
        let source_first = place(other, source) < place(self.files, target);
        let before = (source_first && !same).then(|| source.contents.lock_to_read(0..u64::MAX));
        let _target = target.contents.lock_whole();
        let _source = (!source_first && !same).then(|| source.contents.lock_to_read(0..u64::MAX)).or(before);

        let block = source.contents.dnode.block_bytes();
        let (source_size, target_size) = (source.word(Attribute::Size)?, target.word(Attribute::Size)?);
        let mut length = range.length.min(source_size.saturating_sub(from)).min(STEP_BLOCKS * block);
        // The last block of the source may be shared only where the target ends too.
        let is_tail = from + length == source_size && to.saturating_add(length) >= target_size;
        if !is_tail {
            length -= length % block;
        }
        let odd = !block.is_power_of_two() && (to != 0 || target_size > block);
        if length == 0 || !from.is_multiple_of(block) || !to.is_multiple_of(block) || odd || to.checked_add(length).is_none() || !takes_blocks(target, target_size, block) {
            return Ok(Step::Shared(0));
        }
        // As often as a write of so much would: what is shared is the owner's as what is copied.
        self.quotas.ask_to_write(target, self.is_alone)?;
        let holes = self.quotas.growth(target, to..to + length);
        let tx = OpenTx::assign(self.membership, CLONE_METADATA_BYTES)?;
        let first = from / block;
        let Some(pointers) = source.contents.dnode.synced_pointers(first..first + length.div_ceil(block))? else { return Ok(Step::Unwritten) };
        // A pointer can be older than a change of the block size.
        if pointers.iter().any(|pointer| !pointer.is_hole() && pointer.logical_size() != block) {
            return Ok(Step::Shared(0));
        }
        // The table of shared blocks would have it under one address, and a snapshot under the other: zdb takes that for a leak.
        let io = &self.files.objset().context().io;
        if pointers.iter().any(|pointer| io.may_have_other_address(pointer)) {
            return Ok(Step::Shared(0));
        }
        let shared = pointers.iter().filter(|pointer| !pointer.is_hole()).count() as u64 * block;
        self.quotas.note_growth(target, tx.txg(), holes.min(shared))?;
        if !self.share_blocks(&tx, target, target_size, to, block, &pointers)? {
            return Ok(Step::Shared(0));
        }
        let mut edit = target.edit(&tx);
        let changed = self.changed(&mut edit, target_size.max(to + length), credentials)?;
        drop(edit);
        self.log_changed(&tx, target, changed, Done::Cloned { inode: target, offset: to, length, block, pointers: &pointers })?;
        Ok(Step::Shared(length))
    }

    /// Puts `pointers` in place of the blocks of `block` bytes from `to` on. `false`: the blocks of the file have another size.
    pub(in crate::zpl) fn share_blocks(&self, tx: &OpenTx<'_>, target: &Inode, size: u64, to: u64, block: u64, pointers: &[BlkPtr]) -> Result<bool> {
        if !takes_blocks(target, size, block) {
            return Ok(false);
        }
        if target.contents.dnode.block_bytes() != block {
            match target.contents.dnode.set_block_bytes(tx, block, None) {
                Err(error) if error.kind() == ErrorKind::Invalid => return Ok(false),
                other => other?,
            }
        }
        clone_blocks(&target.contents.dnode, tx, to, pointers)?;
        Ok(true)
    }
}

/// Whether a file of that size can have blocks of `block` bytes. They never become smaller, even where nothing is in them any more: a receiver that has the same
/// file with larger ones could not take that.
fn takes_blocks(target: &Inode, size: u64, block: u64) -> bool {
    let own = target.contents.dnode.block_bytes();
    block == own || block > own && size <= own
}

/// What one transaction did.
enum Step {
    /// So many bytes; 0: the next ones cannot be shared.
    Shared(u64),
    /// Something of the source is not on disk yet.
    Unwritten,
}
