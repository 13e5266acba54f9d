//! Devices that fail again and again are not used any more.
//!
//! # Theory
//! One error may be anybody's. OpenZFS's daemon takes ten in ten minutes for the device's own: of reads and writes, the device counts as broken, of wrong checksums, it is
//! suspect, and used on. So does this, each time when the counters are looked at. If what is on it is nowhere else it is used for as
//! long as it gives anything.

use std::collections::VecDeque;

use engine::pool::Stopped;

/// So many errors in [`WINDOW_NS`] are the device's own.
const ERRORS: u64 = 10;
const WINDOW_NS: u64 = 600 * 1_000_000_000;

/// What happened to a device lately: when, and how many errors.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// Of reads and writes.
    requests: VecDeque<(u64, u64)>,
    checksums: VecDeque<(u64, u64)>,
}

impl Trouble {
    /// So many errors are new. What is to be done with the device?
    pub(super) fn note(&mut self, now_ns: u64, requests: u64, checksums: u64) -> Option<Stopped> {
        let is_much = |recent: &mut VecDeque<(u64, u64)>, new: u64| {
            recent.retain(|(at, _)| now_ns.saturating_sub(*at) < WINDOW_NS);
            if new > 0 {
                recent.push_back((now_ns, new));
            }
            let is_much = recent.iter().map(|(_, count)| *count).sum::<u64>() >= ERRORS;
            if is_much {
                recent.clear();
            }
            is_much
        };
        let (failing, suspect) = (is_much(&mut self.requests, requests), is_much(&mut self.checksums, checksums));
        if failing { Some(Stopped::Failing) } else { suspect.then_some(Stopped::Suspect) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_errors_in_ten_minutes_are_too_many() {
        let minute = 60 * 1_000_000_000;
        let mut trouble = Trouble::default();
        assert_eq!((0..9).find_map(|at| trouble.note(at * minute, 1, 0)), None);
        assert_eq!(trouble.note(9 * minute, 1, 0), Some(Stopped::Failing));
        assert_eq!(trouble.note(9 * minute, 9, 9), None, "each is counted once");
        assert_eq!(trouble.note(9 * minute, 0, 1), Some(Stopped::Suspect));
        // One each minute and a bit is fewer.
        let mut trouble = Trouble::default();
        assert_eq!((0..100).find_map(|at| trouble.note(at * 67 * minute / 60, 1, 1)), None);
    }
}
