//! The record of a sequential rebuild of a top-level vdev.
//!
//! # On disk
//! The entry [`KEY`] of the vdev's own ZAP: twelve words. It stays when the rebuild is over; of a vdev that was never rebuilt, or whose record was forgotten, it is absent
//! or zeros.

/// The name of the entry.
#[doc(alias = "VDEV_TOP_ZAP_VDEV_REBUILD_PHYS")]
pub const KEY: &str = "org.openzfs:vdev_rebuild";
/// How many words the record has.
#[doc(alias = "REBUILD_PHYS_ENTRIES")]
const WORDS: usize = 12;

/// How far a rebuild is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[doc(alias = "vdev_rebuild_state_t")]
pub enum RebuildState {
    /// There never was one, or its record was forgotten.
    #[default]
    None,
    /// Under way.
    Active,
    /// Given up.
    Canceled,
    /// At its end.
    Complete,
}

impl RebuildState {
    const ALL: [RebuildState; 4] = [RebuildState::None, RebuildState::Active, RebuildState::Canceled, RebuildState::Complete];
}

/// The record.
#[doc(alias = "vdev_rebuild_phys_t")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RebuildRecord {
    /// How far it is.
    pub state: RebuildState,
    /// All that lies before this offset of the vdev is done.
    #[doc(alias = "vrp_last_offset")]
    pub done: u64,
    /// Devices have missed groups after this one,
    pub min_txg: u64,
    /// and before this one.
    pub max_txg: u64,
    /// When it began, in seconds since 1970.
    pub start_time: u64,
    /// When it ended.
    pub end_time: u64,
    /// For how long it was under way, in milliseconds.
    pub scan_time_ms: u64,
    /// Allocated bytes that were passed.
    pub scanned: u64,
    /// Of these, bytes where a device needed something.
    pub issued: u64,
    /// Bytes that were written to devices.
    pub rebuilt: u64,
    /// Allocated bytes in all, as far as is known.
    pub estimate: u64,
    /// Ranges that could not be rebuilt.
    pub errors: u64,
}

impl RebuildRecord {
    /// From the words of the entry; `None`: they make no sense, or there was none.
    pub fn from_words(words: &[u64]) -> Option<Self> {
        let words: &[u64; WORDS] = words.get(..WORDS)?.try_into().ok()?;
        let [state, done, min_txg, max_txg, start_time, end_time, scan_time_ms, scanned, issued, rebuilt, estimate, errors] = *words;
        let state = *RebuildState::ALL.get(usize::try_from(state).ok()?)?;
        let record = RebuildRecord { state, done, min_txg, max_txg, start_time, end_time, scan_time_ms, scanned, issued, rebuilt, estimate, errors };
        (state != RebuildState::None).then_some(record)
    }

    /// The words of the entry.
    pub fn words(&self) -> [u64; WORDS] {
        let RebuildRecord { state, done, min_txg, max_txg, start_time, end_time, scan_time_ms, scanned, issued, rebuilt, estimate, errors } = *self;
        [state as u64, done, min_txg, max_txg, start_time, end_time, scan_time_ms, scanned, issued, rebuilt, estimate, errors]
    }

    /// Is it under way?
    pub fn is_active(&self) -> bool {
        self.state == RebuildState::Active
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_its_words() {
        let words = [1, 0x40_0000, 3, 127, 1_700_000_000, 0, 1500, 4 << 20, 3 << 20, 2 << 20, 9 << 20, 1];
        let record = RebuildRecord::from_words(&words).unwrap();
        let expected = RebuildRecord {
            state: RebuildState::Active,
            done: 0x40_0000,
            min_txg: 3,
            max_txg: 127,
            start_time: 1_700_000_000,
            end_time: 0,
            scan_time_ms: 1500,
            scanned: 4 << 20,
            issued: 3 << 20,
            rebuilt: 2 << 20,
            estimate: 9 << 20,
            errors: 1,
        };
        assert_eq!(record, expected);
        assert_eq!(record.words(), words);
        assert!(record.is_active());
        for (number, state) in [(2, RebuildState::Canceled), (3, RebuildState::Complete)] {
            let mut words = words;
            words[0] = number;
            assert_eq!(RebuildRecord::from_words(&words).map(|record| record.state), Some(state));
        }
    }

    #[test]
    fn what_is_no_record_is_none() {
        assert_eq!(RebuildRecord::from_words(&[0; WORDS]), None, "forgotten");
        assert_eq!(RebuildRecord::from_words(&[1; WORDS - 1]), None, "cut off");
        assert_eq!(RebuildRecord::from_words(&[4; WORDS]), None, "no such state");
        assert!(RebuildRecord::from_words(&[1; WORDS + 1]).is_some(), "a later version may have more");
        assert_eq!(RebuildRecord::default().words(), [0; WORDS]);
    }
}
