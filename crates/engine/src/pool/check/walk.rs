//! The walk through all blocks.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use ondisk::blkptr::BlkPtr;
use ondisk::dnode::{self, Dnode};
use ondisk::object_type::ObjectType;
use ondisk::objset::Objset;
use ondisk::zil::LogHeader;
use zerocopy::FromBytes;

use super::{CheckReport, Claims, Finding};
use crate::zil;
use crate::zio::{BlockIo, Bookmark, WrongCopy};

/// How thorough the checker is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckOptions {
    /// Read and verify data blocks too, not only metadata.
    pub verify_data: bool,
    /// Find out which data blocks are the same ([`CheckReport::same_blocks`]); takes some 100 bytes of memory for each block.
    pub find_same: bool,
}

/// Blocks that lead to no others verified at a time, by all workers.
const VERIFY_BATCH: usize = 256;

/// Walks trees of blocks, claiming and verifying.
pub struct Walker<'a> {
    io: &'a Arc<BlockIo>,
    options: CheckOptions,
    /// What was found.
    pub report: CheckReport,
    /// What was claimed.
    pub claims: Claims,
    /// Of MOS objects that are datasets: the bonus.
    pub datasets: BTreeMap<u64, Vec<u8>>,
    batch: Vec<(BlkPtr, Bookmark)>,
    progress: &'a (dyn Fn(u64) + Sync),
}

impl<'a> Walker<'a> {
    /// Nothing is claimed yet. `progress` is told the number of blocks now and then.
    pub fn new(io: &'a Arc<BlockIo>, options: CheckOptions, progress: &'a (dyn Fn(u64) + Sync)) -> Self {
        Walker {
            io,
            options,
            report: CheckReport::default(),
            claims: Claims::default(),
            datasets: BTreeMap::new(),
            batch: Vec::new(),
            progress,
        }
    }

    /// Walks an object set, whose block is at `root`; skips what was born in or before `after`.
    pub fn walk_objset(&mut self, root: &BlkPtr, dataset: u64, after: u64) {
        self.report.datasets += 1;
        let at = Bookmark { objset: dataset, object: 0, level: -1, block: 0 };
        if root.is_hole() || root.birth() <= after || !self.visit(root, &at) {
            return;
        }
        let Some(data) = self.read(root, &at) else { return };
        match Objset::decode(&data) {
            Ok(objset) => {
                let special = [(0, &objset.meta), (u64::MAX, &objset.user_used), (u64::MAX - 1, &objset.group_used), (u64::MAX - 2, &objset.project_used)];
                for (object, dnode) in special {
                    self.walk_dnode(dnode, dataset, object, after);
                }
            }
            Err(corruption) => self.unreadable(&at, corruption),
        }
        self.verify_batch();
    }

    /// Claims the intent log of the file system or volume whose block is at `root`.
    pub fn walk_log(&mut self, root: &BlkPtr, dataset: u64, first_txg: u64) {
        let at = Bookmark { objset: dataset, object: 0, level: -1, block: 0 };
        if root.is_hole() {
            return;
        }
        // What is wrong with it was found when it was walked.
        let header = self.io.read(root, &at).ok().and_then(|data| Objset::decode(&data).ok()).map(|objset| objset.zil_header);
        let Some((header, _)) = header.as_ref().and_then(|bytes| LogHeader::read_from_prefix(bytes).ok()) else { return };
        let io = self.io.clone();
        let log_at = Bookmark { level: -2, ..at };
        let walked = if header.claim_txg.get() != 0 {
            zil::claimed_blocks(&io, dataset, &header).map(|blocks| {
                for block in blocks {
                    self.visit(&block, &log_at);
                }
            })
        } else {
            zil::walk(&io, dataset, &header, zil::Extent::Allocated(first_txg), &mut |block| {
                self.visit(block.pointer, &log_at);
                Ok(ControlFlow::Continue(()))
            })
        };
        if let Err(error) = walked {
            self.unreadable(&log_at, error);
        }
    }

    /// Counts and claims a block; `false` if it was there before and need not be walked.
    pub fn visit(&mut self, bp: &BlkPtr, at: &Bookmark) -> bool {
        self.report.blocks += 1;
        if self.report.blocks.is_multiple_of(4096) {
            (self.progress)(self.report.blocks);
        }
        let totals = self.report.totals.entry((bp.object_type().name().to_owned(), bp.level())).or_default();
        totals.blocks += 1;
        totals.logical += bp.logical_size();
        totals.physical += bp.physical_size();
        totals.allocated += bp.allocated_size();
        if bp.is_embedded() {
            return true;
        }
        if self.options.find_same {
            self.report.same_blocks.add(bp, self.io.deflated_size(bp));
        }
        match self.io.spaces_of(bp, at) {
            Ok(spaces) => self.claims.claim(bp, &spaces, at, &mut self.report),
            Err(error) => {
                self.unreadable(at, error);
                false
            }
        }
    }

    fn read(&mut self, bp: &BlkPtr, at: &Bookmark) -> Option<Arc<Vec<u8>>> {
        match self.io.inspect(bp, at) {
            Ok((data, wrong)) => {
                self.report.verified += 1;
                self.wrong_copies(at, wrong);
                Some(data)
            }
            Err(error) => {
                self.unreadable(at, error);
                None
            }
        }
    }

    fn wrong_copies(&mut self, at: &Bookmark, wrong: Vec<WrongCopy>) {
        for WrongCopy { place, reason } in wrong {
            self.report.find(Finding::WrongCopy { block: at.to_string(), place, reason });
        }
    }

    fn unreadable(&mut self, at: &Bookmark, reason: impl ToString) {
        self.report.find(Finding::Unreadable { block: at.to_string(), reason: reason.to_string() });
    }

    /// Blocks that lead to no others are verified many at a time: metadata, and data if that was asked for.
    fn verify_later(&mut self, bp: &BlkPtr, at: Bookmark) {
        // Which data are the same does not depend on metadata.
        let is_wanted = self.options.verify_data || (bp.is_metadata() && !self.options.find_same);
        if is_wanted {
            self.batch.push((*bp, at));
            if self.batch.len() >= VERIFY_BATCH {
                self.verify_batch();
            }
        }
    }

    fn verify_batch(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        if batch.is_empty() {
            return;
        }
        let io = self.io.clone();
        let results = self.io.readers().map(batch, move |(bp, at)| {
            let result = io.inspect(&bp, &at).map(|(_, wrong)| wrong);
            (at, result)
        });
        for (at, result) in results {
            match result {
                Ok(wrong) => {
                    self.report.verified += 1;
                    self.wrong_copies(&at, wrong);
                }
                Err(error) => self.unreadable(&at, error),
            }
        }
    }

    fn walk_dnode(&mut self, dnode: &Dnode, dataset: u64, object: u64, after: u64) {
        for (index, pointer) in dnode.pointers.iter().enumerate() {
            self.walk_block(pointer, dnode, dataset, object, dnode.levels - 1, index as u64, after);
        }
        if let Some(spill) = &dnode.spill {
            let at = Bookmark { objset: dataset, object, level: 0, block: u64::MAX };
            if !spill.is_hole() && spill.birth() > after && self.visit(spill, &at) {
                self.verify_later(spill, at);
            }
        }
        if dataset == 0 && dnode.bonus_type == ObjectType::DSL_DATASET {
            self.datasets.insert(object, dnode.bonus.clone());
        }
    }

    fn walk_block(&mut self, bp: &BlkPtr, dnode: &Dnode, dataset: u64, object: u64, level: u8, block: u64, after: u64) {
        if bp.is_hole() || bp.is_redacted() || bp.birth() <= after {
            return;
        }
        let at = Bookmark { objset: dataset, object, level: level as i8, block };
        if bp.level() != level {
            self.unreadable(&at, format!("the pointer says level {}", bp.level()));
            return;
        }
        if !self.visit(bp, &at) {
            return;
        }
        if level == 0 && dnode.object_type != ObjectType::DNODE {
            self.verify_later(bp, at);
            return;
        }
        let Some(data) = self.read(bp, &at) else { return };
        if level > 0 {
            let children = BlkPtr::slice_of(&data);
            for (index, child) in children.iter().enumerate() {
                let below = block.saturating_mul(children.len() as u64).saturating_add(index as u64);
                self.walk_block(child, dnode, dataset, object, level - 1, below, after);
            }
            return;
        }
        let mut slot = 0;
        while let Some(bytes) = data.get(slot * dnode::DNODE_SLOT_BYTES..).filter(|bytes| !bytes.is_empty()) {
            if !Dnode::peek_free(bytes) {
                let child = block.saturating_mul(dnode::DNODES_PER_BLOCK).saturating_add(slot as u64);
                match Dnode::decode(bytes) {
                    Ok(below) => self.walk_dnode(&below, dataset, child, after),
                    Err(corruption) => self.unreadable(&Bookmark { object: child, ..at }, corruption),
                }
            }
            slot += Dnode::peek_slots(bytes);
        }
    }
}
