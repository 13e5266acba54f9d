//! The pool's history: an object with a ring of records.
//!
//! # On disk
//! [`HistoryPhys`] in the bonus buffer; each record is its length, a little-endian word, and a packed nvlist with the fields of [`field`].
//!
//! ```text
//!   0           create_end                         limit
//!   | creation  |  ...newest >|< oldest...         |      offsets beyond `create_end` count on for ever, modulo the ring
//! ```
//!
//! OpenZFS takes the first command for the creation even if so much was recorded before it that its end lies behind the ring's. Then there
//! is no ring any more: what follows is appended for ever.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::corruption::Corruption;

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
    /// The zone's name: on Linux its own.
    pub const ZONE: &str = "history zone";
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
/// Without a ring the object is no longer than this. A harmed pool may say that one block is all of it, so that its length is no bound.
const ENDLESS_MAX: u64 = RING_MAX;
/// No record is longer.
const RECORD_MAX: u64 = 16 << 20;
/// Bytes of a record's length.
pub const LENGTH_BYTES: u64 = 8;

/// The bonus buffer of the history object.
#[doc(alias = "spa_history_phys_t")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct HistoryPhys {
    /// The end of the record of the pool's creation.
    pub create_end: U64,
    /// The end of the ring.
    pub limit: U64,
    /// The start of the oldest record.
    pub begin: U64,
    /// The end of the newest record.
    pub end: U64,
    /// How many records were overwritten.
    pub lost: U64,
}

impl HistoryPhys {
    /// Of a pool of `capacity` bytes, without records.
    pub fn for_pool(capacity: u64) -> Self {
        HistoryPhys { limit: (capacity / 1000).clamp(RING_MIN, RING_MAX).into(), ..HistoryPhys::default() }
    }

    /// Reads the record; afterwards there is a ring, and the records are not longer than it.
    pub fn from_bonus(bonus: &[u8]) -> Result<Self, Corruption> {
        let (phys, _) = Self::read_from_prefix(bonus).map_err(|_| Corruption::new("history", "bonus length", bonus.len() as u64))?;
        let (begin, end) = (phys.begin.get(), phys.end.get());
        let has_place = if phys.is_endless() { phys.limit.get() > 0 && phys.ring() > 0 && end <= ENDLESS_MAX } else { (1..=RING_MAX).contains(&phys.ring()) };
        // What is before the ring is read, too.
        if !has_place || phys.create_end.get() > ENDLESS_MAX {
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
    pub fn ring_end(&self) -> u64 {
        if self.is_endless() { ENDLESS_MAX } else { self.limit.get() }
    }

    /// The length of the ring.
    pub fn ring(&self) -> u64 {
        self.ring_end().saturating_sub(self.create_end.get())
    }

    /// Where in the object a logical offset is.
    pub fn place(&self, offset: u64) -> u64 {
        let ring = self.ring();
        match offset.checked_sub(self.create_end.get()) {
            Some(beyond) => beyond % ring + self.create_end.get(),
            None => offset,
        }
    }

    /// The length of the record that begins with these [`LENGTH_BYTES`] bytes.
    pub fn record_length(&self, bytes: &[u8]) -> Result<u64, Corruption> {
        let length = bytes.try_into().map_or(0, u64::from_le_bytes);
        if length > RECORD_MAX || length > self.ring_end() {
            return Err(Corruption::new("history", "record length", length));
        }
        Ok(length)
    }
}

/// A record as it is stored.
pub fn stored_record(packed: &[u8]) -> Vec<u8> {
    [&(packed.len() as u64).to_le_bytes()[..], packed].concat()
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
            (500, 400, 500, (1 << 30) + 1),
            (1 << 40, (1 << 40) + 9000, 1 << 40, (1 << 40) + 100),
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
