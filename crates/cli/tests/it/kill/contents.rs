//! What a file may contain after a kill.
//!
//! # Theory
//! Contents reach the file system page by page, when the kernel likes. A record may be the one that the last acknowledged
//! `fsync` of its file covered, or `zpool sync`, or any that was written over it since, or zeros where the file has been truncated, punched or
//! extended since. A write is there whole or not at all, but for a large one of which nobody was told that it is safe, and for what goes through a mapping.

use std::collections::BTreeMap;

use super::journal::{Event, Op, Record, fill};
use super::promises::{ORDER, Order};

/// What a file may contain.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Versions that a record may have; 0: zeros. Beyond: zeros.
    may: Vec<Vec<u64>>,
    /// Records that a write has touched of which a part may be there.
    torn: Vec<bool>,
    now: Vec<u64>,
    size_min: u64,
    size_max: u64,
    is_mapped: bool,
}

/// The log cuts writes of more bytes than this where its blocks end.
const WHOLE_MAX: u64 = 100_000;

impl Contents {
    pub(super) fn begin(&mut self, op: &Op) {
        match op {
            Op::Write { first, count, version, .. } | Op::WriteThrough { first, count, version, .. } => {
                let (first, end) = (*first as usize, (first + count) as usize);
                if self.may.len() < end {
                    self.may.resize(end, vec![0]);
                    self.torn.resize(end, false);
                }
                if self.is_mapped || count * Record::BYTES as u64 > WHOLE_MAX {
                    self.torn[first..end].fill(true);
                }
                self.may[first..end].iter_mut().for_each(|may| may.push(*version));
                if self.now.len() < end {
                    self.now.resize(end, 0);
                }
                self.now[first..end].fill(*version);
            }
            Op::Truncate { records, .. } => {
                self.now.resize(*records as usize, 0);
                self.may.iter_mut().skip(*records as usize).for_each(|may| may.push(0));
                self.size_min = self.size_min.min(*records);
            }
            Op::Punch { first, count, .. } => {
                // What lies behind the end stays: a hole makes no file longer.
                let end = self.now.len().min((first + count) as usize);
                let first = end.min(*first as usize);
                self.now[first..end].fill(0);
                let end = self.may.len().min(end);
                self.may[first.min(end)..end].iter_mut().for_each(|may| may.push(0));
            }
            _ => {}
        }
        self.size_max = self.size_max.max(self.now.len() as u64);
    }

    /// What it is now is safe.
    fn synced(&mut self) {
        self.may = self.now.iter().map(|version| vec![*version]).collect();
        self.torn = vec![false; self.now.len()];
        (self.size_min, self.size_max) = (self.now.len() as u64, self.now.len() as u64);
    }

    pub(super) fn done(&mut self, op: &Op) {
        match op {
            Op::Sync { .. } => self.synced(),
            Op::WriteThrough { first, count, version, .. } => {
                self.may[*first as usize..(first + count) as usize].iter_mut().for_each(|may| *may = vec![*version]);
                self.torn[*first as usize..(first + count) as usize].fill(false);
                self.size_min = self.size_min.max(first + count);
            }
            _ => {}
        }
    }

    /// Is it what it may be? How many records it has.
    pub(super) fn judge(&self, file: u64, bytes: &[u8]) -> Result<u64, String> {
        let size = (bytes.len() / Record::BYTES) as u64;
        // Of one that nobody synced the first pieces may be there.
        let may_be_torn = |index: u64| ORDER == Order::Log && self.torn.get(index as usize) == Some(&true);
        let sizes = self.size_min..=self.size_max;
        let cut = !bytes.len().is_multiple_of(Record::BYTES);
        if !sizes.contains(&size) || cut && !(may_be_torn(size) && sizes.contains(&(size + 1))) {
            return Err(format!("{} bytes, which are not {} to {} records", bytes.len(), self.size_min, self.size_max));
        }
        for (index, record) in bytes.chunks(Record::BYTES).enumerate() {
            let may = self.may.get(index).map_or(&[0][..], Vec::as_slice);
            let wrong = match Record::decode(record) {
                Ok(None) if may.contains(&0) => continue,
                Ok(Some(found)) if found.file == file && found.index == index as u64 && may.contains(&found.version) => continue,
                Ok(None) => format!("version 0, not one of {may:?}"),
                Ok(Some(found)) if found.file == file && found.index == index as u64 => format!("version {}, not one of {may:?}", found.version),
                Ok(Some(found)) => format!("{found:?}"),
                Err(text) => text.to_string(),
            };
            if !(may_be_torn(index as u64) && is_torn(file, index as u64, record, may)) {
                return Err(format!("record {index} of {size} of file {file} is {wrong}"));
            }
        }
        Ok(size)
    }
}

/// Whether a record, or what there is of it, is the beginning of one of its versions and then the end of another.
fn is_torn(file: u64, index: u64, record: &[u8], may: &[u64]) -> bool {
    let versions: Vec<Vec<u8>> = may
        .iter()
        .map(|version| if *version == 0 { vec![0; Record::BYTES] } else { fill(file, *version, index, 1) })
        .map(|mut bytes| {
            bytes.truncate(record.len());
            bytes
        })
        .collect();
    let begins = |bytes: &Vec<u8>| record.iter().zip(bytes).take_while(|(one, other)| one == other).count();
    let ends = |bytes: &Vec<u8>| record.iter().rev().zip(bytes.iter().rev()).take_while(|(one, other)| one == other).count();
    let (head, tail) = (versions.iter().map(begins).max(), versions.iter().map(ends).max());
    head.unwrap_or(0) + tail.unwrap_or(0) >= record.len()
}

/// What each file may contain; `pool`: the beginning of the last acknowledged sync of the pool, which makes safe what was done before.
pub(super) fn contents(threads: &[Vec<Event>], pool: usize) -> BTreeMap<u64, Contents> {
    let mut files: BTreeMap<u64, Contents> = BTreeMap::new();
    for (thread, events) in threads.iter().enumerate() {
        let mut own: BTreeMap<u64, Contents> = BTreeMap::new();
        let before = events.iter().take_while(|event| event.done.is_some_and(|done| done < pool)).count();
        for (number, event) in events.iter().enumerate() {
            if number == before {
                own.values_mut().for_each(Contents::synced);
            }
            let (Op::Write { file, .. } | Op::WriteThrough { file, .. } | Op::Truncate { file, .. } | Op::Punch { file, .. } | Op::Sync { file } | Op::Create { file, .. }) = &event.op else { continue };
            let contents = own.entry(*file).or_insert_with(|| Contents { is_mapped: thread as u64 == super::MAPPER, ..Contents::default() });
            contents.begin(&event.op);
            if event.done.is_some() {
                contents.done(&event.op);
            }
        }
        if before == events.len() {
            own.values_mut().for_each(Contents::synced);
        }
        files.append(&mut own);
    }
    files
}

/// Damage of every kind that the judge of contents must see.
pub(super) fn canary() {
    let write = |version, first, count| Op::Write { file: 7, first, count, version };
    let mut contents = Contents::default();
    let ops = [
        write(2, 0, 10),
        Op::Sync { file: 7 },
        write(5, 4, 2),
        Op::Truncate { file: 7, records: 8 },
        Op::Punch { file: 7, first: 6, count: 100 },
    ];
    for op in ops {
        contents.begin(&op);
        contents.done(&op);
    }
    let good = [fill(7, 2, 0, 4), fill(7, 5, 4, 1), fill(7, 2, 5, 5)].concat();
    let damaged = |at: usize, bytes: Vec<u8>| [&good[..at], &bytes, &good[at + bytes.len()..]].concat();
    assert_eq!(contents.judge(7, &good), Ok(10));
    assert_eq!(contents.judge(7, &good[..8 * Record::BYTES]), Ok(8));
    assert_eq!(contents.judge(7, &damaged(6 * Record::BYTES, vec![0; Record::BYTES])), Ok(10));
    let torn = [&fill(7, 5, 4, 1)[..77], &fill(7, 2, 4, 1)[77..]].concat();
    // Of a small write all is there, or nothing.
    assert!(contents.judge(7, &damaged(4 * Record::BYTES, torn.clone())).is_err());
    assert!(contents.judge(7, &good[..8 * Record::BYTES + 100]).is_err());
    contents.torn = vec![true; 10];
    assert_eq!(contents.judge(7, &damaged(4 * Record::BYTES, torn)), Ok(10));
    assert_eq!(contents.judge(7, &good[..8 * Record::BYTES + 100]), Ok(8));
    let torn_by_others = [&fill(7, 5, 4, 1)[..77], &fill(7, 3, 4, 1)[77..]].concat();
    for (bad, why) in [
        (good[..7 * Record::BYTES].to_vec(), "bytes"),
        (good[..7 * Record::BYTES + 100].to_vec(), "bytes"),
        ([&good, &fill(7, 2, 10, 1)[..100]].concat(), "bytes"),
        ([&good[..8 * Record::BYTES], &[9; 100]].concat(), "100 bytes"),
        (damaged(4 * Record::BYTES, torn_by_others), "not a record"),
        (damaged(0, vec![0; Record::BYTES]), "version 0"),
        (damaged(0, fill(7, 3, 0, 1)), "version 3"),
        (damaged(0, fill(8, 2, 0, 1)), "is Record"),
        (damaged(0, fill(7, 2, 1, 1)), "is Record"),
        (damaged(100, vec![1]), "not a record"),
        (damaged(4 * Record::BYTES + 40, vec![9; 8]), "not a record"),
    ] {
        assert!(contents.judge(7, &bad).is_err_and(|text| text.contains(why)), "{why} was not seen");
    }
    pool_canary();
}

/// What `zpool sync` acknowledged was not asked for of contents: only `fsync` was.
fn pool_canary() {
    let event = |op, begun, done| Event { op, begun, done, inode: 5 };
    let write = |version, first, count| Op::Write { file: 7, first, count, version };
    let events = vec![
        event(Op::Create { name: "a".into(), file: 7 }, 0, Some(1)),
        event(write(2, 0, 4), 2, Some(3)),
        event(write(3, 0, 500), 5, Some(8)),
        event(write(4, 1, 1), 9, None),
    ];
    let judge = |pool: usize, bytes: &[u8]| contents(std::slice::from_ref(&events), pool)[&7].judge(7, bytes);
    assert_eq!(judge(0, &[]), Ok(0));
    assert!(judge(4, &[]).is_err(), "a lost write was not seen");
    assert_eq!(judge(6, &fill(7, 2, 0, 4)), Ok(4));
    assert!(judge(9, &fill(7, 2, 0, 4)).is_err(), "a lost write was not seen");
    assert_eq!(judge(9, &[fill(7, 3, 0, 1), fill(7, 4, 1, 1), fill(7, 3, 2, 498)].concat()), Ok(500));
    let torn = [&fill(7, 3, 0, 2)[..300], &fill(7, 2, 0, 4)[300..]].concat();
    assert_eq!(judge(6, &torn), Ok(4));
}
