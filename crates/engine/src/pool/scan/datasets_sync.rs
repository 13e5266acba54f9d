//! The datasets that a scan goes through, and their order.
//!
//! # Theory
//! After a snapshot come the one that follows it and its clones, which have what it has and need not look at that again. Which datasets are left is in
//! a ZAP, each with the txg up to which another one has looked already.

use std::collections::BTreeMap;
use std::sync::Arc;

use ondisk::blkptr::BlkPtr;
use ondisk::bpobj::BlockBookmarkPhys;
use ondisk::dsl::{DatasetPhys, number_key, parse_number_key};
use ondisk::scan::{ScanFunction, ScanRecord};
use ondisk::zil::LogHeader;
use zerocopy::FromBytes;

use super::begin_end_sync::{is_resilvering, load_running, store};
use super::collect::Collector;
use crate::dmu::SyncTx;
use crate::dsl::{Dir, Dsl, Traversal};
use crate::error::{ErrorKind, Result};
use crate::pool::layers::Layers;
use crate::txg::Txg;
use crate::zio::Bookmark;

/// Pool version from which all file systems are clones of one empty snapshot.
#[doc(alias = "SPA_VERSION_ORIGIN")]
const VERSION_ORIGIN: u64 = 13;
/// The level of an object set's own block, and of blocks of an intent log.
const ROOT_LEVEL: i8 = -1;
const LOG_LEVEL: i8 = -2;

/// A walk through all datasets.
pub(super) struct Datasets<'a, 'c> {
    pub(super) layers: &'a Layers,
    pub(super) tx: &'a SyncTx<'a>,
    pub(super) collector: Collector<'c>,
    /// The queue, as it is on disk: datasets, and up to which txg another one has looked.
    queue: BTreeMap<u64, u64>,
}

impl<'a, 'c> Datasets<'a, 'c> {
    /// Those of the pool, with the queue of the collector's record.
    ///
    /// # Errors
    /// The queue cannot be read.
    pub(super) fn new(layers: &'a Layers, tx: &'a SyncTx<'a>, collector: Collector<'c>) -> Result<Self> {
        let entries = match collector.record.queue {
            0 => Vec::new(),
            queue => layers.mos().zap_entries(queue)?,
        };
        let queue = entries.iter().filter_map(|(name, since)| Some((parse_number_key(name).ok()?, since.first()))).collect();
        Ok(Datasets { layers, tx, collector, queue })
    }

    /// Goes on where the record says. `true`: all are done.
    #[doc(alias = "dsl_scan_visit")]
    pub(super) fn run(&mut self) -> Result<bool> {
        self.collector.record.enter_datasets();
        let dataset = self.collector.record.dataset();
        if dataset == 0 {
            let record = &mut self.collector.record;
            (record.dataset_min_txg, record.dataset_max_txg) = (record.min_txg, record.max_txg);
            let mos = self.layers.mos().0.pointer();
            if !self.walk(&mos, 0)? {
                return Ok(false);
            }
            self.queue_first()?;
        } else if !self.collector.record.is_between_datasets() && !self.visit(dataset)? {
            return Ok(false);
        }
        self.collector.record.leave_dataset();
        while let Some((dataset, since)) = self.queue.first_key_value().map(|(dataset, since)| (*dataset, *since)) {
            if self.collector.is_over() {
                return Ok(false);
            }
            self.dequeue(dataset)?;
            let Some(phys) = self.record_of(dataset)? else { continue };
            let record = &mut self.collector.record;
            record.bookmark = BlockBookmarkPhys { objset: dataset.into(), ..BlockBookmarkPhys::default() };
            let since = if since != 0 { since } else { phys.prev_snapshot_txg.get() };
            record.dataset_min_txg = record.min_txg.max(since);
            record.dataset_max_txg = if phys.children.get() == 0 { record.max_txg } else { record.max_txg.min(phys.creation_txg.get()) };
            if !self.visit(dataset)? {
                return Ok(false);
            }
            self.collector.record.leave_dataset();
            self.collector.done += 1;
        }
        Ok(true)
    }

    fn enqueue(&mut self, dataset: u64, since: u64) -> Result<()> {
        self.queue.insert(dataset, since);
        match self.collector.record.queue {
            0 => Ok(()),
            queue => self.layers.mos().zap_set_u64(queue, &number_key(dataset), since, self.tx),
        }
    }

    fn dequeue(&mut self, dataset: u64) -> Result<()> {
        self.queue.remove(&dataset);
        match self.collector.record.queue {
            0 => Ok(()),
            queue => self.layers.mos().zap_remove(queue, &number_key(dataset), self.tx).map(|_| ()),
        }
    }

    /// The datasets that come first: the empty snapshot, of which all are clones; in an old pool the oldest of each.
    fn queue_first(&mut self) -> Result<()> {
        let dsl = self.layers.dsl.clone();
        if let Some(origin) = dsl.origin_snapshot().filter(|_| self.layers.meta().version() >= VERSION_ORIGIN) {
            return self.enqueue(origin, 0);
        }
        for head in heads(&dsl)? {
            let mut oldest = head;
            while let Some(phys) = self.record_of(oldest)? {
                let before = phys.prev_snapshot.get();
                if before == 0 {
                    self.enqueue(oldest, 0)?;
                    break;
                }
                // The first of a clone is found by way of its origin.
                if self.record_of(before)?.is_none_or(|phys| phys.next_snapshot.get() != oldest) {
                    break;
                }
                oldest = before;
            }
        }
        Ok(())
    }

    fn record_of(&self, dataset: u64) -> Result<Option<DatasetPhys>> {
        record_of(self.layers, dataset)
    }

    /// Looks at a dataset, and queues those that come after it. `false`: the piece is over.
    #[doc(alias = "dsl_scan_visitds")]
    fn visit(&mut self, dataset: u64) -> Result<bool> {
        let Some(phys) = self.record_of(dataset)? else { return Ok(true) };
        self.collector.enter_dataset();
        let record = &self.collector.record;
        let has_only_its_own = || record.function == ScanFunction::Scrub || self.layers.shared.as_ref().is_none_or(|shared| !shared.may_be_cloned_amid_scan());
        if record.dataset_min_txg >= record.max_txg && has_only_its_own() {
            // All that it and its successors have is too young; but for what was cloned, which may be all that leads to what a device has missed.
            return Ok(true);
        }
        if phys.children.get() == 0 {
            self.log(&phys.block, dataset);
        }
        if !self.walk(&phys.block, dataset)? {
            return Ok(false);
        }
        if self.collector.record.take_visit_again() {
            self.enqueue(dataset, self.collector.record.dataset_max_txg)?;
            return Ok(true);
        }
        let born = phys.creation_txg.get();
        if phys.next_snapshot.get() != 0 {
            self.enqueue(phys.next_snapshot.get(), born)?;
        }
        if phys.children.get() > 1 {
            for clone in self.clones(dataset, &phys)? {
                self.enqueue(clone, born)?;
            }
        }
        Ok(true)
    }

    /// The oldest own dataset of each clone of a snapshot.
    fn clones(&self, snapshot: u64, phys: &DatasetPhys) -> Result<Vec<u64>> {
        let mos = self.layers.mos();
        if phys.next_clones.get() != 0 && mos.zap_count(phys.next_clones.get())? + 1 == phys.children.get() {
            return mos.zap_entries(phys.next_clones.get())?.iter().map(|(name, _)| Ok(parse_number_key(name)?)).collect();
        }
        let mut found = Vec::new();
        for head in heads(&self.layers.dsl)? {
            let mut oldest = head;
            while let Some(phys) = self.record_of(oldest)? {
                let before = phys.prev_snapshot.get();
                let is_own = before != 0 && self.record_of(before)?.is_some_and(|phys| phys.next_snapshot.get() == oldest);
                if !is_own {
                    found.extend((before == snapshot).then_some(oldest));
                    break;
                }
                oldest = before;
            }
        }
        Ok(found)
    }

    /// Walks through an object set from where the record says. `false`: the piece is over, and the record says where it goes on.
    fn walk(&mut self, root: &BlkPtr, dataset: u64) -> Result<bool> {
        let record = &self.collector.record;
        // What cannot be read is found out again when its block is looked at.
        let walk = Traversal::new(&self.layers.context, dataset, record.dataset_min_txg).go_on_at(&record.bookmark).pass_over(&|_| true);
        let stopped = walk.run(root, &mut |block| Ok(self.collector.visit(block)))?;
        if let Some(at) = stopped {
            self.collector.record.bookmark = BlockBookmarkPhys { objset: dataset.into(), ..at };
            return Ok(false);
        }
        // The scan goes back into this dataset.
        Ok(!self.collector.is_cut())
    }

    /// What is claimed of an intent log, and not replayed yet.
    fn log(&mut self, root: &BlkPtr, dataset: u64) {
        let at = Bookmark { objset: dataset, object: 0, level: ROOT_LEVEL, block: 0 };
        if root.is_hole() {
            return;
        }
        let io = &self.layers.context.io;
        let read = self.layers.context.cache.read(root, &at).ok();
        let header = read.and_then(|data| ondisk::objset::Objset::decode(&data).ok()).map(|objset| objset.zil_header);
        let Some((header, _)) = header.as_ref().and_then(|bytes| LogHeader::read_from_prefix(bytes).ok()) else { return };
        if header.claim_txg.get() == 0 {
            return;
        }
        for block in crate::zil::claimed_blocks(io, dataset, &header).unwrap_or_default() {
            self.collector.examine(&block, Bookmark { level: LOG_LEVEL, ..at });
        }
    }
}

fn record_of(layers: &Layers, dataset: u64) -> Result<Option<DatasetPhys>> {
    match layers.dsl.dataset_record(dataset) {
        Ok(phys) => Ok(Some(phys)),
        // A number that leads nowhere is passed over, as what is lost of the MOS is.
        Err(error) if error.is_loss() || matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corrupt) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What was cloned in this group may lie behind the place of a resilver, and what else leads to it may be gone before that comes there: so it looks at
/// these datasets once more, for what they got in this group.
pub(super) fn look_again_at_clones(layers: &Layers, tx: &SyncTx<'_>) -> Result<()> {
    let cloned = layers.shared.as_ref().map(|shared| shared.take_cloned()).unwrap_or_default();
    if cloned.is_empty() {
        return Ok(());
    }
    let has_begun = |record: &ScanRecord| is_resilvering(record) && record.dataset() != 0 && record.queue != 0;
    let Some(mut record) = load_running(layers)?.filter(has_begun) else { return Ok(()) };
    let since = tx.txg() - 1;
    for (head, (oldest, newest)) in cloned {
        if newest <= record.min_txg || oldest >= record.max_txg {
            continue;
        }
        let Some(dataset) = holder(layers, head, tx.txg())? else { continue };
        if dataset == record.dataset() {
            record.visit_again_since(since);
            store(layers, &record, tx)?;
        } else if !is_to_come(layers, &record, dataset)? {
            layers.mos().zap_set_u64(record.queue, &number_key(dataset), since, tx)?;
        }
    }
    Ok(())
}

/// What has now what a head got in the group `txg`: the snapshot that was taken of it afterwards, in the same group, or the head. `None`: it was destroyed.
fn holder(layers: &Layers, head: u64, txg: Txg) -> Result<Option<u64>> {
    let phys = record_of(layers, head)?;
    Ok(phys.map(|phys| if phys.prev_snapshot_txg.get() == txg { phys.prev_snapshot.get() } else { head }))
}

/// Does a scan come to a dataset anyway? It is in the queue, or one before it is, or the scan is in one before it. Of those that come after each other
/// only one is ever in the queue.
fn is_to_come(layers: &Layers, record: &ScanRecord, dataset: u64) -> Result<bool> {
    let (mut at, mut later) = (dataset, Txg::MAX);
    loop {
        if at == record.dataset() || layers.mos().zap_u64(record.queue, &number_key(at))?.is_some() {
            return Ok(true);
        }
        let Some(phys) = record_of(layers, at)? else { return Ok(false) };
        let (before, born) = (phys.prev_snapshot.get(), phys.prev_snapshot_txg.get());
        // Of a damaged pool they may lead in a circle.
        if before == 0 || born >= later {
            return Ok(false);
        }
        (at, later) = (before, born);
    }
}

/// The heads of all directories.
fn heads(dsl: &Arc<Dsl>) -> Result<Vec<u64>> {
    let mut found = Vec::new();
    let mut dirs: Vec<Arc<Dir>> = vec![dsl.root_dir()?];
    while let Some(dir) = dirs.pop() {
        found.push(dir.phys().head_dataset.get());
        dirs.extend(dsl.children(&dir)?.into_iter().map(|(_, dir)| dir));
    }
    found.retain(|head| *head != 0);
    found.sort_unstable();
    Ok(found)
}
