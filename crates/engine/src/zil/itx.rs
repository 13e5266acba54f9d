//! Records in memory: what is not on disk yet, by group and file.
//!
//! # Theory
//! One group's records are in a list of their own, which is dropped as a whole when the group is on disk. In it, records of
//! names are in order; those of one file's contents wait in the file's list. A write is remembered by where it went, not by its
//! bytes: those are read when the record is written. So writes that follow each other become one record, and a file that is
//! written a thousand times costs a few words.
//!
//! Records take memory until their group is on disk or a commit has taken them: they count as what is dirty ([`crate::txg::DirtyBytes`]), or a pool that
//! cannot be written would let its users go on until there is no memory left.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use ondisk::zil::RecordHeader;
use parking_lot::{Mutex, MutexGuard};
use zerocopy::IntoBytes;

use super::Zil;
use crate::dmu::{ObjectId, Tx};
use crate::txg::{TXG_SIZE, Txg, slot};

/// The contents of a record.
#[derive(Debug)]
pub(super) enum Content {
    /// The whole record; its txg and sequence number are not in it yet.
    Bytes(Vec<u8>),
    /// A write; its bytes are fetched later.
    Write {
        /// To which file.
        object: ObjectId,
        /// The file's generation: its number may be given to another file.
        generation: u64,
        /// Where.
        offset: u64,
        /// How many bytes.
        length: u64,
    },
}

/// A record in memory.
#[derive(Debug)]
pub(super) struct Itx {
    pub(super) txg: Txg,
    pub(super) content: Content,
}

/// What came of one more record.
#[derive(Debug, Default)]
pub(super) struct Added {
    /// What the record covers that is the last of its list now, if it is one of a write.
    pub(super) stretch: Range<u64>,
    /// How many bytes of that it covered before.
    pub(super) before: u64,
    /// How much more memory records take.
    pub(super) memory: u64,
}

impl Added {
    /// Bytes of the stretch.
    pub(super) fn bytes(&self) -> u64 {
        self.stretch.end - self.stretch.start
    }
}

/// The records of one group.
#[derive(Debug, Default)]
struct Records {
    txg: Txg,
    common: Vec<Itx>,
    by_object: BTreeMap<ObjectId, Vec<Itx>>,
}

/// The records of all groups that are not on disk.
#[derive(Debug, Default)]
pub(super) struct Itxs {
    groups: [Mutex<Records>; TXG_SIZE],
    /// `false`: `Records::by_object` of the group is empty. Stored under its lock.
    has_objects: [AtomicBool; TXG_SIZE],
}

impl Records {
    fn of(&mut self, txg: Txg) -> &mut Self {
        if self.txg != txg {
            *self = Records { txg, ..Records::default() };
        }
        self
    }

    /// Lengthens the last record by a write that goes on where it ended, or goes over it again.
    fn extend(list: &mut [Itx], content: &Content) -> bool {
        let (Some(Itx { content: Content::Write { generation, offset, length, .. }, .. }), Content::Write { generation: of, offset: at, length: count, .. }) =
            (list.last_mut(), content)
        else {
            return false;
        };
        let (end, new_end) = (*offset + *length, at + count);
        if generation != of || *at > end || new_end < *offset {
            return false;
        }
        *length = end.max(new_end) - (*offset).min(*at);
        *offset = (*offset).min(*at);
        true
    }
}

impl Itx {
    /// The memory that it takes.
    pub(super) fn memory(&self) -> u64 {
        let own = if let Content::Bytes(bytes) = &self.content { bytes.len() } else { 0 };
        (size_of::<Itx>() + own) as u64
    }

    /// Bytes to be fetched.
    fn write_bytes(&self) -> u64 {
        let written = self.written();
        written.end - written.start
    }

    /// Where they are.
    fn written(&self) -> Range<u64> {
        match self.content {
            Content::Write { offset, length, .. } => offset..offset + length,
            Content::Bytes(_) => 0..0,
        }
    }
}

impl Itxs {
    pub(super) fn add(&self, txg: Txg, object: Option<ObjectId>, content: Content) -> Added {
        let mut records = self.groups[slot(txg)].lock();
        let records = records.of(txg);
        let list = match object {
            None => &mut records.common,
            Some(object) => {
                self.has_objects[slot(txg)].store(true, Ordering::Release);
                records.by_object.entry(object).or_default()
            }
        };
        let before = list.last().map_or(0, Itx::write_bytes);
        let is_new = object.is_none() || !Records::extend(list, &content);
        if is_new {
            list.push(Itx { txg, content });
        }
        let Some(last) = list.last() else { return Added::default() };
        Added { stretch: last.written(), before: if is_new { 0 } else { before }, memory: if is_new { last.memory() } else { 0 } }
    }

    /// How many bytes written to `object` (`None`: to all) the groups after `synced` have.
    pub(super) fn pending_bytes(&self, object: Option<ObjectId>, synced: Txg) -> u64 {
        let of_group = |records: &Mutex<Records>| {
            let records = records.lock();
            let bytes = |list: &Vec<Itx>| list.iter().map(Itx::write_bytes).sum::<u64>();
            match object {
                _ if records.txg <= synced => 0,
                Some(object) => records.by_object.get(&object).map_or(0, bytes),
                None => records.by_object.values().map(bytes).sum(),
            }
        };
        self.groups.iter().map(of_group).sum()
    }

    /// Where the groups after `synced` wrote to `object` (`None`: nowhere).
    pub(super) fn pending_spans(&self, object: Option<ObjectId>, synced: Txg) -> Vec<Range<u64>> {
        let Some(object) = object else { return Vec::new() };
        let mut spans = Vec::new();
        for records in &self.groups {
            let records = records.lock();
            let list = records.by_object.get(&object).filter(|_| records.txg > synced);
            spans.extend(list.into_iter().flatten().filter_map(|itx| match itx.content {
                Content::Write { offset, length, .. } => Some(offset..offset + length),
                Content::Bytes(_) => None,
            }));
        }
        spans
    }

    /// Something that happened to names, or to the contents or attributes of `object`, waits to be taken.
    pub(super) fn is_pending(&self, object: ObjectId) -> bool {
        self.groups.iter().any(|records| {
            let records = records.lock();
            !records.common.is_empty() || records.by_object.contains_key(&object)
        })
    }

    /// Nothing that happened after group `synced` waits to be taken.
    pub(super) fn is_empty_after(&self, synced: Txg) -> bool {
        self.groups.iter().all(|records| {
            let records = records.lock();
            records.txg <= synced || (records.common.is_empty() && records.by_object.is_empty())
        })
    }

    /// The lists of all groups, always in this order.
    fn lock_all(&self) -> [MutexGuard<'_, Records>; TXG_SIZE] {
        self.groups.each_ref().map(|records| records.lock())
    }

    /// The records of `object` (`None`: of all) join the common lists, those of all groups at one moment: [`Itxs::take`] would else find those of one group
    /// without those of the group before it.
    pub(super) fn bring_forward(&self, object: Option<ObjectId>) {
        for records in &mut self.lock_all() {
            let Records { common, by_object, .. } = &mut **records;
            match object {
                Some(object) => common.append(&mut by_object.remove(&object).unwrap_or_default()),
                None => std::mem::take(by_object).into_values().for_each(|mut list| common.append(&mut list)),
            }
        }
    }

    /// The file is gone, and with it what was remembered of its contents.
    pub(super) fn forget(&self, object: ObjectId) {
        for (records, has_objects) in self.groups.iter().zip(&self.has_objects) {
            if has_objects.load(Ordering::Acquire) {
                records.lock().by_object.remove(&object);
            }
        }
    }

    /// Takes the common lists of the groups after `synced`, oldest first: as they are at one moment. One after the other, a record of the next group would be
    /// taken without one of this group that was there before it.
    pub(super) fn take(&self, synced: Txg, into: &mut VecDeque<Itx>) {
        let mut lists: Vec<(Txg, Vec<Itx>)> = Vec::with_capacity(TXG_SIZE);
        let mut groups = self.lock_all();
        for records in &mut groups {
            if records.txg > synced {
                lists.push((records.txg, std::mem::take(&mut records.common)));
            }
        }
        drop(groups);
        lists.sort_unstable_by_key(|(txg, _)| *txg);
        into.extend(lists.into_iter().flat_map(|(_, list)| list));
    }

    /// The group is on disk.
    pub(super) fn clear(&self, txg: Txg) {
        let mut records = self.groups[slot(txg)].lock();
        if records.txg <= txg {
            *records = Records::default();
            self.has_objects[slot(txg)].store(false, Ordering::Release);
        }
    }
}

/// Finishes a record: its length, a multiple of 8, and its type go into its header, which is at its start.
fn finish(record_type: u64, mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let header = RecordHeader { record_type: record_type.into(), length: (bytes.len() as u64).into(), txg: 0.into(), sequence: 0.into() };
    bytes[..size_of::<RecordHeader>()].copy_from_slice(header.as_bytes());
    bytes
}

impl Zil {
    /// Remembers what `tx` did: `bytes` is the record, its header still empty. `object`: it is about the contents or attributes of
    /// this object alone; `None`: about names.
    pub fn log(&self, tx: &Tx, record_type: u64, object: Option<ObjectId>, bytes: Vec<u8>) {
        let added = self.itxs.add(tx.txg(), object, Content::Bytes(finish(record_type, bytes)));
        self.context.dirty.add(tx.txg(), added.memory);
    }

    /// Remembers a write to `object`. `list` as the object of [`Zil::log`]. Returns a range whose whole blocks are worth being written now, if there is one (`soon`).
    pub fn log_write(&self, tx: &Tx, list: Option<ObjectId>, object: ObjectId, generation: u64, offset: u64, length: u64) -> Option<Range<u64>> {
        let added = self.itxs.add(tx.txg(), list, Content::Write { object, generation, offset, length });
        self.context.dirty.add(tx.txg(), added.memory);
        if added.bytes() >= self.context.tunables.early_write_bytes {
            // A writer of so much at a stretch may want it to be safe soon, and the disk is idle meanwhile.
            self.context.groups.kick(tx.txg());
        }
        self.soon.is_worth_writing(&added)
    }

    /// Makes the next commit, of any object, write the records of `object`'s contents (before it is renamed).
    pub fn bring_forward(&self, object: ObjectId) {
        self.itxs.bring_forward(Some(object));
    }

    /// The object is gone.
    pub fn forget(&self, object: ObjectId) {
        self.itxs.forget(object);
    }

    /// `tx` did something that has no record: until its group is on disk, commits wait for it.
    pub fn unlogged(&self, tx: &Tx) {
        self.unlogged.fetch_max(tx.txg(), std::sync::atomic::Ordering::AcqRel);
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // one range is what is expected
mod tests {
    use super::*;

    fn write(offset: u64, length: u64) -> Content {
        Content::Write { object: 7, generation: 1, offset, length }
    }

    fn taken(itxs: &Itxs) -> Vec<(u64, u64)> {
        let mut queue = VecDeque::new();
        itxs.take(0, &mut queue);
        let range = |itx: Itx| match itx.content {
            Content::Write { offset, length, .. } => (offset, length),
            Content::Bytes(_) => (itx.txg, 0),
        };
        queue.into_iter().map(range).collect()
    }

    #[test]
    fn writes_that_touch_become_one_and_others_do_not() {
        let itxs = Itxs::default();
        for (offset, length) in [(0, 10), (10, 10), (5, 3), (100, 1), (90, 10), (95, 3)] {
            itxs.add(5, Some(7), write(offset, length));
        }
        itxs.add(6, Some(7), write(101, 1));
        assert_eq!(taken(&itxs), []);
        itxs.bring_forward(Some(8));
        assert_eq!(taken(&itxs), []);
        itxs.bring_forward(Some(7));
        assert_eq!(taken(&itxs), [(0, 20), (90, 11), (101, 1)]);
        assert_eq!(taken(&itxs), []);
    }

    #[test]
    fn a_record_between_two_writes_keeps_them_apart_and_groups_come_in_order() {
        let itxs = Itxs::default();
        itxs.add(9, None, Content::Bytes(vec![]));
        itxs.add(8, Some(7), write(0, 1));
        itxs.add(8, Some(7), Content::Bytes(vec![]));
        itxs.add(8, Some(7), write(1, 1));
        itxs.bring_forward(None);
        assert_eq!(taken(&itxs), [(0, 1), (8, 0), (1, 1), (9, 0)]);
        itxs.add(8, Some(7), write(0, 1));
        itxs.clear(8);
        itxs.bring_forward(None);
        assert_eq!(taken(&itxs), []);
    }

    #[test]
    fn what_a_commit_would_write_is_known_before() {
        let itxs = Itxs::default();
        let add = |txg, object, content| {
            let Added { stretch, before, memory } = itxs.add(txg, Some(object), content);
            (stretch, before, memory)
        };
        assert_eq!(add(5, 7, write(0, 10)), (0..10, 0, size_of::<Itx>() as u64));
        assert_eq!(add(5, 7, write(10, 10)), (0..20, 10, 0));
        assert_eq!(add(6, 7, write(50, 5)), (50..55, 0, size_of::<Itx>() as u64));
        assert_eq!(add(6, 8, Content::Write { object: 8, generation: 1, offset: 0, length: 100 }).0, 0..100);
        assert_eq!((itxs.pending_bytes(Some(7), 4), itxs.pending_bytes(Some(7), 5), itxs.pending_bytes(Some(9), 4)), (25, 5, 0));
        assert_eq!((itxs.pending_bytes(None, 4), itxs.pending_bytes(None, 6)), (125, 0));
        assert_eq!((itxs.pending_spans(Some(8), 4), itxs.pending_spans(Some(8), 6), itxs.pending_spans(None, 4)), (vec![0..100], vec![], vec![]));
    }

    #[test]
    fn a_record_knows_its_length() {
        let bytes = finish(5, vec![0xff; 37]);
        assert_eq!(bytes.len(), 40);
        assert_eq!(bytes[8..16], 40u64.to_le_bytes());
        assert_eq!(bytes[37..], [0; 3]);
    }

    /// A name that was made in the next group came with a commit, one that another thread had made before it did not: its group's list had been looked at.
    #[test]
    #[allow(clippy::disallowed_methods)] // where processors are busy, the threads wait long for each other: then fewer records must do
    fn what_is_taken_has_all_that_came_before_it() {
        const RECORDS: u64 = 300_000;
        const ENOUGH: std::time::Duration = std::time::Duration::from_secs(3);
        const FIRST: Txg = 100;
        let itxs = Itxs::default();
        let (taken, end) = (std::sync::atomic::AtomicU64::new(0), std::sync::atomic::AtomicU64::new(RECORDS));
        let begun = std::time::Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..RECORDS {
                    if begun.elapsed() > ENOUGH {
                        end.store(number, std::sync::atomic::Ordering::Release);
                        return;
                    }
                    while number >= taken.load(std::sync::atomic::Ordering::Acquire) + (TXG_SIZE as u64 - 1) {
                        std::thread::yield_now();
                    }
                    itxs.add(FIRST + number, None, Content::Bytes(Vec::new()));
                }
            });
            let (mut next, mut queue) = (FIRST, VecDeque::new());
            while next < FIRST + end.load(std::sync::atomic::Ordering::Acquire) {
                itxs.take(0, &mut queue);
                for itx in queue.drain(..) {
                    if itx.txg != next {
                        // The other thread is not to wait.
                        taken.store(RECORDS, std::sync::atomic::Ordering::Release);
                    }
                    assert_eq!(itx.txg, next, "a record was passed over");
                    next += 1;
                }
                taken.store(next - FIRST, std::sync::atomic::Ordering::Release);
            }
        });
    }

    /// A file was cut to nothing in one group and written in the next one. While an `fsync` moved its records, another commit took the write without the cut,
    /// which came behind it in the log: after a crash the file was empty.
    #[test]
    #[allow(clippy::disallowed_methods)] // this test is about threads
    fn the_records_of_a_file_are_moved_at_one_moment() {
        // The next group has the slot that is locked first.
        const FIRST: Txg = TXG_SIZE as Txg * 2 - 1;
        let itxs = Itxs::default();
        itxs.add(FIRST, Some(7), Content::Bytes(vec![]));
        itxs.add(FIRST + 1, Some(7), write(0, 10));
        let of_next = &itxs.groups[slot(FIRST + 1)];
        std::thread::scope(|scope| {
            let held = itxs.groups[slot(FIRST)].lock();
            scope.spawn(|| itxs.bring_forward(Some(7)));
            while of_next.try_lock().is_some_and(|records| records.common.is_empty()) {
                std::thread::yield_now();
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
            assert!(of_next.try_lock().is_none(), "the write can be taken without what came before it");
            drop(held);
        });
        assert_eq!(taken(&itxs), [(FIRST, 0), (0, 10)]);
    }
}
