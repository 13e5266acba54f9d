//! The pool's history: who did what, and when.
//!
//! # Theory
//! Records are appended to one object, each as its length and a packed nvlist. The first command, which made the pool, stays
//! for ever; the rest of the object is a ring in which new records overwrite the oldest.
//!
//! ```text
//!   0           create_end                         limit
//!   | creation  |  ...newest >|< oldest...         |      offsets beyond `create_end` count on for ever, modulo the ring
//! ```
//!
//! OpenZFS takes the first command for the creation even if so much was recorded before it that its end lies behind the ring's. Then there
//! is no ring any more: what follows is appended for ever.
//!
//! A history that makes no sense is not written; nothing else depends on it.
//!
//! # On disk
//! [`HistoryPhys`] in the bonus buffer; lengths are little-endian words.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ondisk::corruption::Corruption;
use ondisk::nvlist::NvList;
use ondisk::object_type::ObjectType;
use parking_lot::Mutex;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::dsl::tree::dataset::Dataset;
use crate::dsl::meta::{Meta, key};
use crate::dsl::tree::tree::Dsl;
use crate::dmu::SyncTx;
use crate::error::{ErrorKind, Result, Within};

/// Names of the fields of a record.
pub mod field {
    /// Seconds since 1970.
    pub const TIME: &str = "history time";
    /// User id.
    pub const WHO: &str = "history who";
    /// A command line.
    pub const COMMAND: &str = "history command";
    /// The host's name.
    pub const HOST: &str = "history hostname";
    /// The txg of an internal event.
    pub const TXG: &str = "history txg";
    /// What happened, in one word.
    pub const EVENT: &str = "internal_name";
    /// Details.
    pub const DETAILS: &str = "history internal str";
    /// The dataset's name.
    pub const DATASET: &str = "dsname";
    /// The dataset's object.
    pub const DATASET_OBJECT: &str = "dsid";
}

/// The ring's size: a thousandth of the pool, within these bounds.
const RING_MIN: u64 = 128 << 10;
const RING_MAX: u64 = 1 << 30;
/// Without a ring the object is no longer than this.
const ENDLESS_MAX: u64 = 1 << 40;
/// No record is longer.
const RECORD_MAX: u64 = 16 << 20;

/// The bonus buffer of the history object.
#[doc(alias = "spa_history_phys_t")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct HistoryPhys {
    /// The end of the record of the pool's creation.
    create_end: U64,
    /// The end of the ring.
    limit: U64,
    /// The start of the oldest record.
    begin: U64,
    /// The end of the newest record.
    end: U64,
    /// How many records were overwritten.
    lost: U64,
}

impl HistoryPhys {
    fn load(meta: &Meta, object: u64) -> Result<Self> {
        Ok(Self::from_bonus(&meta.mos.bonus(object)?)?)
    }

    /// Reads the record; afterwards there is a ring, and the records are not longer than it.
    fn from_bonus(bonus: &[u8]) -> Result<Self, Corruption> {
        let (phys, _) = Self::read_from_prefix(bonus).map_err(|_| Corruption::new("history", "bonus length", bonus.len() as u64))?;
        let (begin, end) = (phys.begin.get(), phys.end.get());
        let has_place = if phys.is_endless() { phys.limit.get() > 0 && phys.ring() > 0 && end <= ENDLESS_MAX } else { (1..=RING_MAX).contains(&phys.ring()) };
        if !has_place {
            return Err(Corruption::new("history", "limit", phys.limit.get()));
        }
        // Offsets count on for ever, but not to the end of 64 bits.
        if begin > end || end - begin > phys.ring() || end > u64::MAX / 2 {
            return Err(Corruption::new("history", "offsets", end));
        }
        Ok(phys)
    }

    fn is_endless(&self) -> bool {
        self.create_end > self.limit
    }

    /// Where in the object what is written begins anew.
    fn ring_end(&self) -> u64 {
        if self.is_endless() { ENDLESS_MAX } else { self.limit.get() }
    }

    /// The length of the ring.
    fn ring(&self) -> u64 {
        self.ring_end().saturating_sub(self.create_end.get())
    }

    /// Where in the object a logical offset is.
    fn place(&self, offset: u64) -> u64 {
        let ring = self.ring();
        match offset.checked_sub(self.create_end.get()) {
            Some(beyond) => beyond % ring + self.create_end.get(),
            None => offset,
        }
    }

    fn read(&self, meta: &Meta, object: u64, offset: u64, length: u64) -> Result<Vec<u8>> {
        let at = self.place(offset);
        let first = length.min(self.ring_end() - at);
        let mut bytes = meta.mos.read(object, at, first as usize)?;
        if first < length {
            bytes.append(&mut meta.mos.read(object, self.create_end.get(), (length - first) as usize)?);
        }
        Ok(bytes)
    }

    fn record_length(&self, meta: &Meta, object: u64, offset: u64) -> Result<u64> {
        let bytes = self.read(meta, object, offset, 8)?;
        let length = bytes.try_into().map_or(0, u64::from_le_bytes);
        if length > RECORD_MAX || length > self.ring_end() {
            return Err(Corruption::new("history", "record length", length).into());
        }
        Ok(length)
    }

    fn append(&mut self, meta: &Meta, object: u64, bytes: &[u8], tx: &SyncTx<'_>) -> Result<()> {
        let ring = self.ring();
        while ring - (self.end.get() - self.begin.get()) <= bytes.len() as u64 {
            let oldest = self.record_length(meta, object, self.begin.get())?;
            if self.begin == self.end {
                return Ok(()); // It would not fit an empty ring either.
            }
            self.begin = (self.begin.get() + oldest + 8).min(self.end.get()).into();
            self.lost += 1;
        }
        let at = self.place(self.end.get());
        let first = (bytes.len() as u64).min(self.ring_end() - at) as usize;
        meta.mos.write(object, at, &bytes[..first], tx)?;
        if first < bytes.len() {
            meta.mos.write(object, self.create_end.get(), &bytes[first..], tx)?;
        }
        self.end += bytes.len() as u64;
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
        let phys = HistoryPhys { limit: (capacity / 1000).clamp(RING_MIN, RING_MAX).into(), ..HistoryPhys::default() };
        meta.mos.set_bonus(object, phys.as_bytes(), tx)?;
        meta.mos.zap_add_u64(key::DIRECTORY, key::HISTORY, object, tx)?;
        self.open(object);
        Ok(object)
    }

    fn append(&self, meta: &Meta, capacity: u64, record: &NvList, tx: &SyncTx<'_>) -> Result<()> {
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
        let mut phys = HistoryPhys::load(meta, object).within(|| "history")?;
        let packed = record.encode_native();
        let bytes = [&(packed.len() as u64).to_le_bytes()[..], &packed].concat();
        phys.append(meta, object, &bytes, tx)?;
        // A pool that went through its whole ring before the first command has no creation to keep.
        if phys.create_end.get() == 0 && record.contains(field::COMMAND) && phys.end < phys.limit {
            phys.create_end = phys.end;
            phys.begin = phys.end;
        }
        meta.mos.set_bonus(object, phys.as_bytes(), tx)
    }

    /// All records, oldest first. A record that makes no sense ends the list.
    pub fn read(&self, meta: &Meta) -> Result<Vec<NvList>> {
        let object = self.object.load(Ordering::Relaxed);
        let mut records = Vec::new();
        if object == 0 {
            return Ok(records);
        }
        let phys = HistoryPhys::load(meta, object).within(|| "history")?;
        for (mut at, end) in [(0, phys.create_end.get()), (phys.begin.get(), phys.end.get())] {
            while at + 8 <= end {
                let length = match phys.record_length(meta, object, at) {
                    Err(error) if error.kind() == ErrorKind::Corrupt => break,
                    other => other?,
                };
                if at + 8 + length > end {
                    break;
                }
                match NvList::decode(&phys.read(meta, object, at + 8, length)?) {
                    Ok(record) => records.push(record),
                    Err(_) => break,
                }
                at += 8 + length;
            }
        }
        Ok(records)
    }
}

impl Dsl {
    fn append_history(&self, mut record: NvList, tx: &SyncTx<'_>) -> Result<()> {
        record.set(field::HOST, self.meta.context.host.host_name().as_str());
        self.history.append(&self.meta, self.usable_space(crate::dsl::space::room::SpaceCheck::None), &record, tx)
    }

    /// Records a command line, while syncing.
    pub fn record_command_sync(&self, command: &str, user: u64, tx: &SyncTx<'_>) -> Result<()> {
        let mut record = NvList::new();
        record.set(field::COMMAND, command);
        record.set(field::WHO, user);
        record.set(field::TIME, self.meta.context.host.wall_clock().0);
        self.append_history(record, tx)
    }

    /// Records a command line in some txg soon.
    pub fn record_command(self: &Arc<Self>, command: String, user: u64) -> Result<()> {
        self.queue_task(move |dsl, tx| dsl.record_command_sync(&command, user, tx)).map(|_| ())
    }

    /// Records what happened to the pool.
    pub fn record_event(&self, event: &str, details: &str, tx: &SyncTx<'_>) -> Result<()> {
        self.record(event, details, None, tx)
    }

    /// Records what happened to a dataset.
    pub fn record_dataset_event(&self, dataset: &Dataset, event: &str, details: &str, tx: &SyncTx<'_>) -> Result<()> {
        self.record(event, details, Some((dataset.name()?, dataset.object)), tx)
    }

    fn record(&self, event: &str, details: &str, dataset: Option<(String, u64)>, tx: &SyncTx<'_>) -> Result<()> {
        let mut record = NvList::new();
        if let Some((name, object)) = dataset {
            record.set(field::DATASET, name.as_str());
            record.set(field::DATASET_OBJECT, object);
        }
        record.set(field::EVENT, event);
        record.set(field::DETAILS, details);
        record.set(field::WHO, 0u64);
        record.set(field::TIME, self.meta.context.host.wall_clock().0);
        record.set(field::TXG, tx.txg());
        self.append_history(record, tx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found while fuzzing: records that are longer than their ring made a negative number of free bytes.
    #[test]
    fn a_ring_is_at_least_as_long_as_what_is_in_it() {
        let phys = |create_end: u64, limit: u64, begin: u64, end: u64| {
            let phys = HistoryPhys { create_end: create_end.into(), limit: limit.into(), begin: begin.into(), end: end.into(), lost: 0.into() };
            HistoryPhys::from_bonus(phys.as_bytes())
        };
        assert!(phys(500, 128 << 10, 500, 9000).is_ok());
        assert!(phys(500, 128 << 10, 1 << 40, (1 << 40) + 9000).is_ok());
        // No ring any more.
        assert_eq!(phys(300 << 10, 128 << 10, 300 << 10, 400 << 10).unwrap().place(390 << 10), 390 << 10);
        for (create_end, limit, begin, end) in [
            (100 << 10, 128 << 10, 100 << 10, 220 << 10),
            (500, 500, 500, 500),
            (500, 0, 500, 500),
            (500, 400, 500, 1 << 41),
            (u64::MAX, 1, 0, 0),
            (1 << 40, 1, 0, 0),
            (0, u64::MAX, 0, 9000),
            (500, 128 << 10, 9000, 500),
            (500, 128 << 10, u64::MAX - 8, u64::MAX),
        ] {
            assert!(phys(create_end, limit, begin, end).is_err(), "{create_end} {limit} {begin} {end}");
        }
        assert!(HistoryPhys::from_bonus(&[0; 39]).is_err());
    }
}
