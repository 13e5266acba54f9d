//! A range of a vdev, from devices that have it to devices that have missed it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use transform::parity;

use super::pieces::Piece;
use crate::bail;
use crate::error::Result;
use crate::sync::Executor;
use crate::txg::TXG_INITIAL;
use crate::vdev::map::{Column, Row, Side};
use crate::vdev::{Class, Leaf, Members, TopVdev, VdevConfig, VdevKind};

/// Copies pieces, by several threads.
pub(super) struct Copier {
    top: Arc<TopVdev>,
    members: Arc<Members>,
    /// Of devices that take the place of another: that one, by their numbers.
    replaced: BTreeMap<u32, u32>,
    /// Before this group devices have missed what is copied.
    max_txg: u64,
    /// Bytes of pieces of which a device needed something.
    issued: AtomicU64,
    /// Bytes that were written.
    rebuilt: AtomicU64,
    /// Pieces that nobody has, or of which a distributed spare has not all.
    errors: AtomicU64,
    /// Devices that got parts of distributed spares, by their numbers. guarded by: itself
    of_spares: Mutex<BTreeSet<u32>>,
}

/// What was done so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Copied {
    pub(super) issued: u64,
    pub(super) rebuilt: u64,
    pub(super) errors: u64,
}

type Step = Box<dyn Fn() + Send + Sync>;

impl Copier {
    pub(super) fn new(top: &Arc<TopVdev>, max_txg: u64) -> Copier {
        let members = top.members();
        let mut replaced = BTreeMap::new();
        gather_replaced(&top.config(), &members, &mut replaced);
        let zero = AtomicU64::default;
        Copier { top: top.clone(), members, replaced, max_txg, issued: zero(), rebuilt: zero(), errors: zero(), of_spares: Mutex::default() }
    }

    /// What was done so far.
    pub(super) fn copied(&self) -> Copied {
        Copied { issued: self.issued.load(Relaxed), rebuilt: self.rebuilt.load(Relaxed), errors: self.errors.load(Relaxed) }
    }

    /// Devices that have all of their own, and got parts of distributed spares besides.
    pub(super) fn of_spares(&self) -> Vec<Arc<Leaf>> {
        self.of_spares.lock().iter().filter_map(|number| self.members.leaf(*number)).cloned().collect()
    }

    /// Copies pieces, and returns when all are done.
    pub(super) fn copy_all(self: &Arc<Self>, readers: &Executor, pieces: Vec<Piece>) {
        let (copier, next, pieces) = (self.clone(), Arc::new(AtomicUsize::new(0)), Arc::new(pieces));
        let work = move || {
            while let Some(piece) = pieces.get(next.fetch_add(1, Relaxed)) {
                copier.copy(piece);
            }
        };
        let helping = work.clone();
        let step: Step = Box::new(helping);
        let helpers = readers.lend(readers.workers(), step);
        work();
        helpers.finish();
    }

    fn copy(&self, piece: &Piece) {
        let map = self.top.io_map(piece.offset, piece.physical as usize, TXG_INITIAL);
        let copied = map.and_then(|map| map.rows.iter().try_fold(false, |needed, row| Ok(self.copy_row(row)? || needed)));
        match copied {
            Ok(false) => {}
            Ok(true) => drop(self.issued.fetch_add(piece.allocated, Relaxed)),
            Err(error) => {
                tracing::warn!("vdev {}: {} bytes at {:#x} cannot be rebuilt: {error}", self.top.id(), piece.allocated, piece.offset);
                self.issued.fetch_add(piece.allocated, Relaxed);
                self.errors.fetch_add(1, Relaxed);
            }
        }
    }

    /// Whether a device needed something of a row.
    fn copy_row(&self, row: &Row) -> Result<bool> {
        let mut targets = Vec::new();
        for (column, found) in row.columns.iter().enumerate().filter(|(_, found)| found.length > 0) {
            targets.extend(found.sides.iter().filter(|side| self.is_target(side)).map(|side| (column, *side)));
        }
        let mut known = Known { copier: self, row, bytes: vec![None; row.columns.len()], asked: vec![false; row.columns.len()] };
        for (column, side) in &targets {
            let own = self.replaced.get(&side.leaf.leaf).and_then(|old| {
                let from = row.columns[*column].sides.iter().find(|side| side.leaf.leaf == *old)?;
                self.read(from, row.columns[*column].length)
            });
            match own {
                Some(bytes) => self.write(side, &bytes)?,
                None => self.write(side, known.get(*column)?)?,
            }
        }
        Ok(!targets.is_empty())
    }

    fn leaf(&self, side: &Side) -> Option<&Arc<Leaf>> {
        self.members.leaf(side.leaf.leaf)
    }

    /// Is a side to be written? One that cannot be written is noted to have missed it.
    fn is_target(&self, side: &Side) -> bool {
        let Some(leaf) = self.leaf(side) else { return false };
        if leaf.is_open() {
            return leaf.is_behind() || side.is_stale;
        }
        if side.is_stale {
            // It is asked for the spare's part when it is back.
            leaf.note_missed(TXG_INITIAL, self.max_txg);
        } else if leaf.is_behind() {
            leaf.note_missed_write();
        }
        false
    }

    /// The bytes of a side that has them.
    fn read(&self, side: &Side, length: usize) -> Option<Vec<u8>> {
        let leaf = self.leaf(side).filter(|leaf| leaf.is_open() && !leaf.is_behind() && !side.is_stale)?;
        let mut bytes = vec![0; length];
        leaf.read(Class::Rebuild, side.offset, &mut bytes).ok().map(|()| bytes)
    }

    /// Of a device that refuses it is noted that it has missed it; the part of a spare is on a device that may have all else.
    fn write(&self, side: &Side, bytes: &[u8]) -> Result<()> {
        let Some(leaf) = self.leaf(side) else { return Ok(()) };
        match leaf.write(Class::Rebuild, side.offset, &[bytes]) {
            Ok(()) => {
                if side.is_stale {
                    self.of_spares.lock().insert(side.leaf.leaf);
                }
                leaf.stats.rebuild_processed.fetch_add(bytes.len() as u64, Relaxed);
                self.rebuilt.fetch_add(bytes.len() as u64, Relaxed);
                Ok(())
            }
            Err(error) if side.is_stale => Err(error),
            Err(_) => {
                leaf.note_missed_write();
                Ok(())
            }
        }
    }
}

/// Which device takes the place of which.
fn gather_replaced(config: &VdevConfig, members: &Members, replaced: &mut BTreeMap<u32, u32>) {
    if let (VdevKind::Replacing | VdevKind::Spare, [first, others @ ..]) = (&config.kind, config.children.as_slice()) {
        let number = |leaf: &VdevConfig| members.leaf_of_guid(leaf.guid).map(|leaf| leaf.number());
        if let Some(old) = first.leaves().first().and_then(|leaf| number(leaf)) {
            replaced.extend(others.iter().flat_map(VdevConfig::leaves).filter_map(|leaf| Some((number(leaf)?, old))));
        }
    }
    config.children.iter().for_each(|child| gather_replaced(child, members, replaced));
}

/// What was read of a row, or computed.
struct Known<'a> {
    copier: &'a Copier,
    row: &'a Row,
    /// By column.
    bytes: Vec<Option<Vec<u8>>>,
    asked: Vec<bool>,
}

impl Known<'_> {
    /// The bytes of a column.
    fn get(&mut self, column: usize) -> Result<&[u8]> {
        if !self.read(column) {
            self.rebuild()?;
        }
        match &self.bytes[column] {
            Some(bytes) => Ok(bytes),
            None => bail!(Io, "no device has it"),
        }
    }

    /// Reads a column, unless that was tried before; whether it is known.
    fn read(&mut self, column: usize) -> bool {
        if !std::mem::replace(&mut self.asked[column], true) {
            let Column { sides, length, .. } = &self.row.columns[column];
            self.bytes[column] = sides.iter().find_map(|side| self.copier.read(side, *length));
        }
        self.bytes[column].is_some()
    }

    /// Computes the columns that no device has from the others.
    fn rebuild(&mut self) -> Result<()> {
        let parity = self.row.parity();
        let wanted = (parity..self.row.columns.len()).filter(|column| !self.read(*column)).count();
        let mut given = Vec::new();
        for number in 0..parity {
            if given.len() < wanted && self.read(number) {
                given.push(number);
            }
        }
        if given.len() < wanted {
            bail!(Io, "{wanted} columns cannot be read, and only {} of their parity", given.len());
        }
        let length = self.row.columns.first().map_or(0, |column| column.length);
        let (of_parity, data) = self.bytes.split_at_mut(parity);
        if wanted > 0 {
            let given: Vec<(usize, &[u8])> = given.into_iter().filter_map(|number| Some((number, of_parity[number].as_deref()?))).collect();
            let known: Vec<Option<&[u8]>> = data.iter().map(Option::as_deref).collect();
            let made = parity::rebuild(&given, &known, length);
            data.iter_mut().filter(|bytes| bytes.is_none()).zip(made).for_each(|(bytes, made)| *bytes = Some(made));
        }
        let data: Vec<&[u8]> = data.iter().filter_map(Option::as_deref).collect();
        for (bytes, made) in of_parity.iter_mut().zip(parity::generate(parity, &data, length)) {
            bytes.get_or_insert(made);
        }
        Ok(())
    }
}
