//! Devices that fail again and again are not used any more.
//!
//! # Theory
//! One error may be anybody's. OpenZFS's daemon takes ten in ten minutes for the device's own: of reads and writes, the device counts as broken, of wrong checksums, it is
//! suspect, and used on. So does this, each time when the counters are looked at. The properties `io_n`, `io_t`, `checksum_n` and `checksum_t` of the device, or of a vdev above it,
//! say other numbers of errors and seconds; where `slow_io_n` and `slow_io_t` are both set, so many requests that took too long make it suspect. If what is on it is nowhere else
//! it is used for as long as it gives anything.

use std::collections::VecDeque;

use engine::pool::Stopped;

/// So many errors in [`WINDOW_SECONDS`] are the device's own.
const ERRORS: u64 = 10;
const WINDOW_SECONDS: u64 = 600;
const SECOND_NS: u64 = 1_000_000_000;

/// How many errors in how much time are too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limit {
    errors: u64,
    window_ns: u64,
}

/// What is too much for one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    requests: Limit,
    checksums: Limit,
    /// `None`: slow requests say nothing.
    slow: Option<Limit>,
}

impl Limits {
    /// As a property of the device says, `None` where nobody has set it.
    pub(super) fn new(property: impl Fn(&str) -> Option<u64>) -> Limits {
        let set = |name: &str| property(name).filter(|value| *value != u64::MAX);
        let limit = |errors: u64, seconds: u64| Limit { errors: errors.max(1), window_ns: seconds.saturating_mul(SECOND_NS) };
        let either = |errors: &str, seconds: &str| limit(set(errors).unwrap_or(ERRORS), set(seconds).unwrap_or(WINDOW_SECONDS));
        Limits {
            requests: either("io_n", "io_t"),
            checksums: either("checksum_n", "checksum_t"),
            slow: set("slow_io_n").zip(set("slow_io_t")).map(|(errors, seconds)| limit(errors, seconds)),
        }
    }
}

/// Errors that are new since the device was looked at last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Errors {
    /// Reads and writes that failed.
    pub requests: u64,
    /// What was read and was wrong.
    pub checksums: u64,
    /// Requests that took too long.
    pub slow: u64,
}

/// Errors of one kind lately: when, and how many.
#[derive(Debug, Default)]
struct Recent(VecDeque<(u64, u64)>);

impl Recent {
    /// So many are new. Are these too many?
    fn note(&mut self, now_ns: u64, new: u64, limit: Limit) -> bool {
        self.0.retain(|(at, _)| now_ns.saturating_sub(*at) < limit.window_ns);
        if new > 0 {
            self.0.push_back((now_ns, new));
        }
        let is_much = self.0.iter().map(|(_, count)| *count).sum::<u64>() >= limit.errors;
        if is_much {
            self.0.clear();
        }
        is_much
    }
}

/// What happened to a device lately.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    requests: Recent,
    checksums: Recent,
    slow: Recent,
}

impl Trouble {
    /// So many errors are new. What is to be done with the device?
    pub(super) fn note(&mut self, now_ns: u64, errors: Errors, limits: &Limits) -> Option<Stopped> {
        let is_failing = self.requests.note(now_ns, errors.requests, limits.requests);
        let is_wrong = self.checksums.note(now_ns, errors.checksums, limits.checksums);
        let is_slow = limits.slow.is_some_and(|limit| self.slow.note(now_ns, errors.slow, limit));
        if is_failing { Some(Stopped::Failing) } else { (is_wrong || is_slow).then_some(Stopped::Suspect) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60 * SECOND_NS;

    fn errors(requests: u64, checksums: u64) -> Errors {
        Errors { requests, checksums, slow: 0 }
    }

    #[test]
    fn ten_errors_in_ten_minutes_are_too_many() {
        let limits = Limits::new(|_| None);
        let mut trouble = Trouble::default();
        assert_eq!((0..9).find_map(|at| trouble.note(at * MINUTE, errors(1, 0), &limits)), None);
        assert_eq!(trouble.note(9 * MINUTE, errors(1, 0), &limits), Some(Stopped::Failing));
        assert_eq!(trouble.note(9 * MINUTE, errors(9, 9), &limits), None, "each is counted once");
        assert_eq!(trouble.note(9 * MINUTE, errors(0, 1), &limits), Some(Stopped::Suspect));
        // One each minute and a bit is fewer.
        let mut trouble = Trouble::default();
        assert_eq!((0..100).find_map(|at| trouble.note(at * 67 * MINUTE / 60, errors(1, 1), &limits)), None);
    }

    #[test]
    fn properties_say_how_many_are_too_many() {
        let of = |words: &'static [(&'static str, u64)]| Limits::new(move |name| words.iter().find(|(known, _)| *known == name).map(|(_, value)| *value));
        let limits = of(&[("checksum_n", 2), ("io_n", u64::MAX), ("io_t", 60)]);
        let mut trouble = Trouble::default();
        assert_eq!(trouble.note(0, errors(9, 1), &limits), None);
        assert_eq!(trouble.note(MINUTE, errors(9, 1), &limits), Some(Stopped::Suspect), "nine and nine, a minute apart, are not ten in a minute");
        assert_eq!(trouble.note(MINUTE, errors(1, 0), &limits), Some(Stopped::Failing));
        // What is slow counts only where both are set.
        let slow = |slow: u64| Errors { slow, ..Errors::default() };
        for (limits, expected) in [(of(&[("slow_io_n", 5)]), None), (of(&[("slow_io_n", 5), ("slow_io_t", 10)]), Some(Stopped::Suspect))] {
            let mut trouble = Trouble::default();
            assert_eq!(trouble.note(0, slow(4), &limits), None);
            assert_eq!(trouble.note(SECOND_NS, slow(1), &limits), expected);
        }
    }
}
