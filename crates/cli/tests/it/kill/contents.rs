//! What a file may contain after a kill.
//!
//! # Theory
//! Contents reach the file system page by page, when the kernel likes. A record may be the one that the last acknowledged
//! `fsync` of its file covered, or any that was written over it since, or zeros where the file has been truncated, punched or
//! extended since.

use std::collections::BTreeMap;

use super::journal::{Event, Op, Record};

/// What a file may contain.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Versions that a record may have; 0: zeros. Beyond: zeros.
    may: Vec<Vec<u64>>,
    now: Vec<u64>,
    size_min: u64,
    size_max: u64,
}

impl Contents {
    pub(super) fn begin(&mut self, op: &Op) {
        match op {
            Op::Write { first, count, version, .. } | Op::WriteThrough { first, count, version, .. } => {
                let (first, end) = (*first as usize, (first + count) as usize);
                if self.may.len() < end {
                    self.may.resize(end, vec![0]);
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

    pub(super) fn done(&mut self, op: &Op) {
        match op {
            Op::Sync { .. } => {
                self.may = self.now.iter().map(|version| vec![*version]).collect();
                (self.size_min, self.size_max) = (self.now.len() as u64, self.now.len() as u64);
            }
            Op::WriteThrough { first, count, version, .. } => {
                self.may[*first as usize..(first + count) as usize].iter_mut().for_each(|may| *may = vec![*version]);
                self.size_min = self.size_min.max(first + count);
            }
            _ => {}
        }
    }

    /// Is it what it may be? How many records it has.
    pub(super) fn judge(&self, file: u64, bytes: &[u8]) -> Result<u64, String> {
        let size = (bytes.len() / Record::BYTES) as u64;
        if !bytes.len().is_multiple_of(Record::BYTES) || !(self.size_min..=self.size_max).contains(&size) {
            return Err(format!("{} bytes, which are not {} to {} records", bytes.len(), self.size_min, self.size_max));
        }
        for (index, record) in bytes.chunks(Record::BYTES).enumerate() {
            let version = match Record::decode(record) {
                Ok(None) => 0,
                Ok(Some(found)) if found.file == file && found.index == index as u64 => found.version,
                Ok(Some(found)) => return Err(format!("record {index} of file {file} is {found:?}")),
                Err(text) => return Err(format!("record {index} of {size}: {text}")),
            };
            let may = self.may.get(index).map_or(&[0][..], Vec::as_slice);
            if !may.contains(&version) {
                return Err(format!("record {index} of {size} has version {version}, not one of {may:?}"));
            }
        }
        Ok(size)
    }
}

/// What each file may contain.
pub(super) fn contents(threads: &[Vec<Event>]) -> BTreeMap<u64, Contents> {
    let mut files: BTreeMap<u64, Contents> = BTreeMap::new();
    for event in threads.iter().flatten() {
        let (Op::Write { file, .. } | Op::WriteThrough { file, .. } | Op::Truncate { file, .. } | Op::Punch { file, .. } | Op::Sync { file } | Op::Create { file, .. }) = &event.op else { continue };
        let contents = files.entry(*file).or_default();
        contents.begin(&event.op);
        if event.done.is_some() {
            contents.done(&event.op);
        }
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
    let fill = super::journal::fill;
    let good = [fill(7, 2, 0, 4), fill(7, 5, 4, 1), fill(7, 2, 5, 5)].concat();
    let damaged = |at: usize, bytes: Vec<u8>| [&good[..at], &bytes, &good[at + bytes.len()..]].concat();
    assert_eq!(contents.judge(7, &good), Ok(10));
    assert_eq!(contents.judge(7, &good[..8 * Record::BYTES]), Ok(8));
    assert_eq!(contents.judge(7, &damaged(6 * Record::BYTES, vec![0; Record::BYTES])), Ok(10));
    for (bad, why) in [
        (good[..7 * Record::BYTES].to_vec(), "bytes"),
        (damaged(0, vec![0; Record::BYTES]), "version 0"),
        (damaged(0, fill(7, 3, 0, 1)), "version 3"),
        (damaged(0, fill(8, 2, 0, 1)), "is Record"),
        (damaged(0, fill(7, 2, 1, 1)), "is Record"),
        (damaged(100, vec![1]), "not a record"),
        (damaged(4 * Record::BYTES + 40, vec![9; 8]), "not a record"),
    ] {
        assert!(contents.judge(7, &bad).is_err_and(|text| text.contains(why)), "{why} was not seen");
    }
}
