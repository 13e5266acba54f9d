//! The pool's history: what was done by which user, and when.
//!
//! # Theory
//! The first command, which made the pool, stays for ever; the rest is a ring in which new records overwrite the oldest.
//! A history that makes no sense is not written; nothing else depends on it.
//!
//! # On disk
//! [`ondisk::history`]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

pub use ondisk::history::field;
use ondisk::history::{HistoryPhys, LENGTH_BYTES, stored_record};
use ondisk::nvlist::NvList;
use ondisk::object_type::ObjectType;
use parking_lot::Mutex;
use zerocopy::IntoBytes;

use crate::dmu::SyncTx;
use crate::dsl::meta::{Meta, key};
use crate::error::{ErrorKind, Result, Within};
use crate::host::Host;
use crate::txg::Txg;

/// Records that are read into memory, at most: a ring may have many millions. What is older is left out.
const RECORDS_MAX: usize = 100_000;
/// Their bytes, at most.
const RECORDS_BYTES_MAX: u64 = 32 << 20;

/// The ring in the object, with its record.
struct Ring {
    object: u64,
    phys: HistoryPhys,
}

impl Ring {
    fn load(meta: &Meta, object: u64) -> Result<Self> {
        Ok(Ring { object, phys: HistoryPhys::from_bonus(&meta.mos.bonus(object)?)? })
    }

    fn read(&self, meta: &Meta, offset: u64, length: u64) -> Result<Vec<u8>> {
        let at = self.phys.place(offset);
        let first = length.min(self.phys.ring_end() - at);
        let mut bytes = meta.mos.read(self.object, at, first as usize)?;
        if first < length {
            bytes.append(&mut meta.mos.read(self.object, self.phys.create_end.get(), (length - first) as usize)?);
        }
        Ok(bytes)
    }

    fn record_length(&self, meta: &Meta, offset: u64) -> Result<u64> {
        Ok(self.phys.record_length(&self.read(meta, offset, LENGTH_BYTES)?)?)
    }

    fn append(&mut self, meta: &Meta, bytes: &[u8], tx: &SyncTx<'_>) -> Result<()> {
        let ring = self.phys.ring();
        while ring - (self.phys.end.get() - self.phys.begin.get()) <= bytes.len() as u64 {
            let oldest = self.record_length(meta, self.phys.begin.get())?;
            if self.phys.begin == self.phys.end {
                return Ok(()); // It would not fit an empty ring either.
            }
            self.phys.begin = (self.phys.begin.get() + oldest + LENGTH_BYTES).min(self.phys.end.get()).into();
            self.phys.lost += 1;
        }
        let at = self.phys.place(self.phys.end.get());
        let first = (bytes.len() as u64).min(self.phys.ring_end() - at) as usize;
        meta.mos.write(self.object, at, &bytes[..first], tx)?;
        if first < bytes.len() {
            meta.mos.write(self.object, self.phys.create_end.get(), &bytes[first..], tx)?;
        }
        self.phys.end += bytes.len() as u64;
        Ok(())
    }
}

/// The history of one pool.
#[derive(Debug, Default)]
pub struct History {
    object: AtomicU64,
    /// guards: the order of records
    lock: Mutex<()>,
}

impl History {
    /// The history is in `object`; 0: there is none yet.
    pub(in crate::dsl) fn open(&self, object: u64) {
        self.object.store(object, Ordering::Relaxed);
    }

    /// Makes the history object, for a pool of so many bytes.
    pub(in crate::dsl) fn create(&self, meta: &Meta, capacity: u64, tx: &SyncTx<'_>) -> Result<u64> {
        let bonus = size_of::<HistoryPhys>();
        let object = meta.mos.allocate(ObjectType::SPA_HISTORY, 128 << 10, ObjectType::SPA_HISTORY_OFFSETS, bonus, tx)?;
        meta.mos.set_bonus(object, HistoryPhys::for_pool(capacity).as_bytes(), tx)?;
        meta.mos.zap_add_u64(key::DIRECTORY, key::HISTORY, object, tx)?;
        self.open(object);
        Ok(object)
    }

    /// Appends a record. `capacity` is the size of the pool, for one that has no history yet.
    pub(in crate::dsl) fn append(&self, meta: &Meta, capacity: u64, record: &NvList, tx: &SyncTx<'_>) -> Result<()> {
        match self.try_append(meta, capacity, record, tx) {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                tracing::warn!("the pool's history makes no sense, and is not written: {error}");
                Ok(())
            }
            other => other,
        }
    }

    fn try_append(&self, meta: &Meta, capacity: u64, record: &NvList, tx: &SyncTx<'_>) -> Result<()> {
        let _order = self.lock.lock();
        let object = match self.object.load(Ordering::Relaxed) {
            0 => self.create(meta, capacity, tx)?,
            object => object,
        };
        let mut ring = Ring::load(meta, object).within(|| "history")?;
        ring.append(meta, &stored_record(&record.encode_native()), tx)?;
        let phys = &mut ring.phys;
        // A pool that went through its whole ring before the first command has no creation to keep.
        if phys.create_end.get() == 0 && record.contains(field::COMMAND) && phys.end < phys.limit {
            phys.create_end = phys.end;
            phys.begin = phys.end;
        }
        meta.mos.set_bonus(object, phys.as_bytes(), tx)
    }

    /// The first record and the newest ones, oldest first, as many as there is room for.
    pub fn read(&self, meta: &Meta) -> Result<Vec<NvList>> {
        self.newest(meta, RECORDS_MAX, RECORDS_BYTES_MAX)
    }

    /// The first record, and the last of all others: no more than `most` in all, of so many bytes.
    pub(in crate::dsl) fn newest(&self, meta: &Meta, most: usize, bytes_max: u64) -> Result<Vec<NvList>> {
        let mut first = None;
        let (mut newest, mut bytes) = (VecDeque::new(), 0);
        self.each(meta, &mut |record, length| {
            if first.is_none() {
                first = Some(record);
                return;
            }
            newest.push_back((record, length));
            bytes += length;
            while newest.len() >= most || bytes > bytes_max {
                let Some((_, length)) = newest.pop_front() else { break };
                bytes -= length;
            }
        })?;
        Ok(first.into_iter().chain(newest.into_iter().map(|(record, _)| record)).collect())
    }

    /// Shows all records, oldest first, each with its length. A record that makes no sense ends them.
    pub fn each(&self, meta: &Meta, visit: &mut dyn FnMut(NvList, u64)) -> Result<()> {
        let object = self.object.load(Ordering::Relaxed);
        if object == 0 {
            return Ok(());
        }
        let ring = Ring::load(meta, object).within(|| "history")?;
        for (mut at, end) in [(0, ring.phys.create_end.get()), (ring.phys.begin.get(), ring.phys.end.get())] {
            while at + LENGTH_BYTES <= end {
                let length = match ring.record_length(meta, at) {
                    Err(error) if error.kind() == ErrorKind::Corrupt => break,
                    other => other?,
                };
                if at + LENGTH_BYTES + length > end {
                    break;
                }
                match NvList::decode(&ring.read(meta, at + LENGTH_BYTES, length)?) {
                    Ok(record) => visit(record, length),
                    Err(_) => break,
                }
                at += LENGTH_BYTES + length;
            }
        }
        Ok(())
    }
}

/// As OpenZFS calls Linux, which has no zones.
const ZONE: &str = "linux";

/// The record of a command line.
pub(in crate::dsl) fn command_record(command: &str, user: u64, host: &dyn Host) -> NvList {
    let mut record = NvList::new();
    record.set(field::COMMAND, command);
    record.set(field::WHO, user);
    record.set(field::TIME, host.wall_clock().0);
    record.set(field::HOST, host.host_name().as_str());
    record.set(field::ZONE, ZONE);
    record
}

/// The record of what happened to the pool, or to the dataset with this name and object.
pub(in crate::dsl) fn event_record(event: &str, details: &str, dataset: Option<(String, u64)>, txg: Txg, host: &dyn Host) -> NvList {
    let mut record = NvList::new();
    if let Some((name, object)) = dataset {
        record.set(field::DATASET, name.as_str());
        record.set(field::DATASET_OBJECT, object);
    }
    record.set(field::EVENT, event);
    record.set(field::DETAILS, details);
    record.set(field::WHO, 0u64);
    record.set(field::TIME, host.wall_clock().0);
    record.set(field::TXG, txg);
    record.set(field::HOST, host.host_name().as_str());
    record
}
