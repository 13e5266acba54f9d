//! The record of an error scrub, which reads again what is known to be damaged.
//!
//! # On disk
//! The entry `error_scrub` of the MOS directory: nine words. A scrub of everything forgets it.

/// How many words the record has.
#[doc(alias = "ERRORSCRUB_PHYS_NUMINTS")]
const WORDS: usize = 9;
/// What it does, among the functions of scans.
#[doc(alias = "POOL_SCAN_ERRORSCRUB")]
const FUNCTION: u64 = 3;

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorScrubState {
    /// Under way, or paused.
    Running,
    /// At its end.
    Finished,
    /// Given up.
    Canceled,
}

impl ErrorScrubState {
    /// Their numbers, among the states of scans.
    const NUMBERS: [(ErrorScrubState, u64); 3] = [(ErrorScrubState::Finished, 2), (ErrorScrubState::Canceled, 3), (ErrorScrubState::Running, 4)];

    fn number(self) -> u64 {
        ErrorScrubState::NUMBERS.iter().find(|(state, _)| *state == self).map_or(0, |(_, number)| *number)
    }
}

/// The record.
#[doc(alias = "dsl_errorscrub_phys_t")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorScrubRecord {
    /// How far it is.
    pub state: ErrorScrubState,
    /// Where in the log it is: a cursor of its ZAP.
    pub cursor: u64,
    /// When it began, in seconds since 1970.
    pub start_time: u64,
    /// When it ended.
    pub end_time: u64,
    /// Blocks that are left.
    pub to_examine: u64,
    /// Blocks that were read.
    pub examined: u64,
    /// Blocks that could not be read.
    pub errors: u64,
    /// Somebody has paused it.
    pub is_paused: bool,
}

impl ErrorScrubRecord {
    /// One that begins.
    pub fn new(start_time: u64, to_examine: u64) -> Self {
        ErrorScrubRecord { state: ErrorScrubState::Running, cursor: 0, start_time, end_time: 0, to_examine, examined: 0, errors: 0, is_paused: false }
    }

    /// From the words of the entry; `None`: there was none, or it makes no sense.
    pub fn from_words(words: &[u64]) -> Option<Self> {
        let words: &[u64; WORDS] = words.get(..WORDS)?.try_into().ok()?;
        let [function, state, cursor, start_time, end_time, to_examine, examined, errors, paused] = *words;
        let (state, _) = *ErrorScrubState::NUMBERS.iter().find(|(_, number)| *number == state)?;
        let record = ErrorScrubRecord { state, cursor, start_time, end_time, to_examine, examined, errors, is_paused: paused != 0 };
        (function == FUNCTION).then_some(record)
    }

    /// The words of the entry.
    pub fn words(&self) -> [u64; WORDS] {
        let ErrorScrubRecord { state, cursor, start_time, end_time, to_examine, examined, errors, is_paused } = *self;
        [FUNCTION, state.number(), cursor, start_time, end_time, to_examine, examined, errors, is_paused.into()]
    }

    /// Is it under way, paused or not?
    pub fn is_running(&self) -> bool {
        self.state == ErrorScrubState::Running
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_its_words() {
        let words = [3, 4, 77, 1_700_000_000, 0, 12, 5, 2, 1];
        let record = ErrorScrubRecord::from_words(&words).unwrap();
        assert_eq!((record.state, record.cursor, record.to_examine, record.examined, record.errors, record.is_paused), (ErrorScrubState::Running, 77, 12, 5, 2, true));
        assert_eq!(record.words(), words);
        assert_eq!(ErrorScrubRecord::from_words(&[3, 2, 0, 1, 2, 0, 1, 0, 0]).map(|record| record.is_running()), Some(false));
        // A scrub of everything leaves zeros; others are none.
        for wrong in [[0; 9].as_slice(), &[3, 4, 0, 0, 0, 0, 0, 0], &[1, 4, 0, 0, 0, 0, 0, 0, 0], &[3, 1, 0, 0, 0, 0, 0, 0, 0]] {
            assert_eq!(ErrorScrubRecord::from_words(wrong), None, "{wrong:?}");
        }
        assert_eq!(ErrorScrubRecord::new(9, 4).words(), [3, 4, 0, 9, 0, 4, 0, 0, 0]);
    }
}
