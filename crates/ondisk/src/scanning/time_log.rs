//! Which transaction group was written when: three rings of moments, for scrubs of what was written in some days.
//!
//! # On disk
//! Three entries of the MOS directory: each a ring of [`ENTRIES_MAX`] pairs of a time and a txg, behind the index of the oldest, that of the one after the newest, and how many there are.

use std::collections::VecDeque;

/// The entries of the MOS directory: of minutes, days, and months.
#[doc(alias("DMU_POOL_TXG_LOG_TIME_MINUTES", "DMU_POOL_TXG_LOG_TIME_DAYS", "DMU_POOL_TXG_LOG_TIME_MONTHS"))]
pub const KEYS: [&str; 3] = ["com.klarasystems:txg_log_time:minutes", "com.klarasystems:txg_log_time:days", "com.klarasystems:txg_log_time:months"];
/// How many moments a ring has.
#[doc(alias = "RRD_MAX_ENTRIES")]
const ENTRIES_MAX: usize = 256;
/// Words before the moments.
const HEADER_WORDS: usize = 3;
/// A moment is noted in the ring of months when the last one there is so old, in seconds; in that of days likewise.
const MONTH: u64 = 30 * DAY;
const DAY: u64 = 24 * 60 * 60;

/// How a moment is looked for that is in no ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounding {
    /// The last one that is not later.
    Down,
    /// The first one that is not earlier.
    Up,
}

/// A ring: pairs of seconds since 1970 and a txg, oldest first.
#[doc(alias = "rrd_t")]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Ring(VecDeque<(u64, u64)>);

impl Ring {
    fn from_words(words: &[u64]) -> Ring {
        let [head, _, length] = [0, 1, 2].map(|index| usize::try_from(words.get(index).copied().unwrap_or(0)).unwrap_or(usize::MAX));
        let at = |number: usize| HEADER_WORDS + head.wrapping_add(number) % ENTRIES_MAX * 2;
        let pair = |number| Some((*words.get(at(number))?, *words.get(at(number) + 1)?));
        Ring((0..length.min(ENTRIES_MAX)).map_while(pair).collect())
    }

    fn words(&self) -> Vec<u64> {
        let length = self.0.len();
        let mut words = vec![0, (length % ENTRIES_MAX) as u64, length as u64];
        words.extend(self.0.iter().flat_map(|(time, txg)| [*time, *txg]));
        words.resize(HEADER_WORDS + 2 * ENTRIES_MAX, 0);
        words
    }

    fn last_time(&self) -> u64 {
        self.0.back().map_or(0, |(time, _)| *time)
    }

    #[doc(alias = "rrd_add")]
    fn add(&mut self, time: u64, txg: u64) {
        if self.0.back().is_some_and(|(last, _)| *last == time) {
            self.0.pop_back();
        }
        if self.0.len() == ENTRIES_MAX {
            self.0.pop_front();
        }
        self.0.push_back((time, txg));
    }

    #[doc(alias = "rrd_query")]
    fn find(&self, time: u64, rounding: Rounding) -> Option<(u64, u64)> {
        match rounding {
            Rounding::Down => self.0.iter().take_while(|(at, _)| *at <= time).last().copied(),
            Rounding::Up => self.0.iter().find(|(at, _)| *at >= time).copied(),
        }
    }
}

/// The three rings.
#[doc(alias = "dbrrd_t")]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TimeLog {
    rings: [Ring; 3],
}

impl TimeLog {
    /// From the words of the three entries; none of one that is absent.
    pub fn from_words(words: &[Vec<u64>; 3]) -> TimeLog {
        TimeLog { rings: std::array::from_fn(|ring| Ring::from_words(&words[ring])) }
    }

    /// The words of the three entries.
    pub fn words(&self) -> [Vec<u64>; 3] {
        std::array::from_fn(|ring| self.rings[ring].words())
    }

    /// When the last group was written that is noted; 0: none is.
    pub fn last_time(&self) -> u64 {
        self.rings.iter().map(Ring::last_time).max().unwrap_or(0)
    }

    /// Notes that the group `txg` was written at this time, in the ring whose turn it is.
    #[doc(alias = "dbrrd_add")]
    pub fn add(&mut self, time: u64, txg: u64) {
        let [minutes, days, months] = &mut self.rings;
        let is_due = |ring: &Ring, seconds: u64| time.checked_sub(ring.last_time()).is_some_and(|passed| passed >= seconds);
        if is_due(months, MONTH) {
            months.add(time, txg);
        } else if is_due(days, DAY) {
            days.add(time, txg);
        } else if is_due(minutes, 0) {
            minutes.add(time, txg);
        }
    }

    /// The group of the moment that is next to `time`; 0: there is none.
    #[doc(alias = "dbrrd_query")]
    pub fn find(&self, time: u64, rounding: Rounding) -> u64 {
        let found = self.rings.iter().filter_map(|ring| ring.find(time, rounding));
        found.min_by_key(|(at, _)| at.abs_diff(time)).map_or(0, |(_, txg)| txg)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_its_words() {
        // Three moments, of which the oldest is the last of the array.
        let mut words = vec![0; 515];
        (words[0], words[1], words[2]) = (255, 2, 3);
        (words[513], words[514]) = (1000, 10);
        words[3..7].copy_from_slice(&[1600, 20, 2200, 30]);
        let ring = Ring::from_words(&words);
        assert_eq!(ring.0, [(1000, 10), (1600, 20), (2200, 30)]);
        assert_eq!(Ring::from_words(&ring.words()), ring);
        assert_eq!((ring.words().len(), &ring.words()[..9]), (515, [0, 3, 3, 1000, 10, 1600, 20, 2200, 30].as_slice()));
        // What makes no sense is cut off.
        assert_eq!(Ring::from_words(&[u64::MAX, 7, u64::MAX, 1]).0, []);
        assert_eq!(Ring::from_words(&[]).0, []);
    }

    #[test]
    fn moments_go_into_the_ring_whose_turn_it_is() {
        let (mut log, start) = (TimeLog::default(), 1_700_000_000);
        for (number, seconds) in [0, 1, 2, 600, 1200, DAY + 1, DAY + 600, 31 * DAY].into_iter().enumerate() {
            log.add(start + seconds, number as u64 + 1);
        }
        let [minutes, days, months] = &log.rings;
        assert_eq!(months.0.iter().map(|(_, txg)| *txg).collect::<Vec<_>>(), [1, 8]);
        assert_eq!(days.0.iter().map(|(_, txg)| *txg).collect::<Vec<_>>(), [2, 6]);
        assert_eq!(minutes.0.iter().map(|(_, txg)| *txg).collect::<Vec<_>>(), [3, 4, 5, 7]);
        // A clock that went back notes nothing.
        log.add(start - 5, 9);
        assert!(log.rings.iter().all(|ring| ring.0.iter().all(|(_, txg)| *txg != 9)));
        let find = |seconds: u64, rounding| log.find(start + seconds, rounding);
        assert_eq!((find(700, Rounding::Down), find(700, Rounding::Up)), (4, 5));
        assert_eq!((find(600, Rounding::Down), find(600, Rounding::Up)), (4, 4));
        assert_eq!((find(40 * DAY, Rounding::Up), log.find(5, Rounding::Down)), (0, 0));
        for number in 0..1000 {
            log.add(start + 31 * DAY + number, number);
        }
        assert_eq!(log.rings[0].0.len(), ENTRIES_MAX);
        assert_eq!(TimeLog::from_words(&log.words()), log);
    }
}
