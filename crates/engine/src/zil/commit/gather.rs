//! A short wait for other commits before a commit takes the queued records.
//!
//! # Theory
//! Commits whose records became stable together come back together, or nearly so: each must first be answered, and ask
//! again. If the first of them began at once, it would have a write of the device for itself, and all others would wait
//! for another one: `n` writers on a rotating disk would get `n / 2` records a turn. So where a write takes
//! milliseconds, the commit first waits for a small part of that, and again as long as more records come. Meanwhile no
//! other commit begins, as this one would take its records. (The rework of 2017 waits a tenth of what the last block
//! took.) Where a write takes less, no commit waits: blocks fill while others are written.
//!
//! A slow disk without a write cache rotates. A write that comes a moment too late for the place behind the last block
//! waits for a whole turn, however large it is; one that comes while the disk is still writing what lies before that
//! place waits for nothing. So there the log *streams*: a full block goes at once, many are under way one behind the
//! other, and the commits that the first ones carried come back with their next records before the last one is written.

use std::time::Duration;

use crate::zil::Zil;

/// A write that takes at least this long is worth waiting for others.
const SLOW_NS: u64 = 1_000_000;
/// The part of a write's duration that each step waits.
const STEP: u64 = 32;
/// The most steps that a commit waits.
const STEPS: u32 = 8;
/// The number of writes, about, over which the mean duration is taken.
const REMEMBERED: u64 = 8;

/// How long writes to a log take, and whether a commit waits for others.
#[derive(Debug, Default)]
pub(in crate::zil) struct Gathering {
    /// A commit waits for others.
    pub(in crate::zil) now: bool,
    /// What a durable write takes, in nanoseconds.
    write_ns: u64,
    /// The number of vdevs to which full blocks go at once; 0: they do not.
    pub(in crate::zil) streams: usize,
}

impl Gathering {
    /// Notes the duration of a durable write.
    pub(in crate::zil) fn note(&mut self, nanoseconds: u64) {
        self.write_ns = match self.write_ns {
            0 => nanoseconds,
            mean => (mean * (REMEMBERED - 1)).saturating_add(nanoseconds) / REMEMBERED,
        };
    }

    fn is_slow(&self) -> bool {
        self.write_ns >= SLOW_NS
    }

    /// How long to wait at a time, if at all.
    fn step(&self) -> Option<Duration> {
        (self.is_slow() && !self.now).then(|| Duration::from_nanos(self.write_ns / STEP))
    }
}

impl Zil {
    /// Waits as long as more commits come, if that is worth while. `true`: no other commit begins until
    /// [`Zil::gathered`].
    pub(in crate::zil) fn gather(&self) -> bool {
        // One commit at a time is the old way, for comparison.
        if self.commits_max() <= 1 {
            return false;
        }
        let (step, streams) = {
            let mut chain = self.chain.lock();
            let gathering = &mut chain.gathering;
            let turns = gathering.is_slow() && !self.context.io.has_write_cache();
            gathering.streams = if turns { self.context.io.log_vdevs().max(1) } else { 0 };
            let Some(step) = gathering.step() else { return false };
            gathering.now = true;
            (step, gathering.streams)
        };
        let mut known = self.queued();
        for _ in 0..STEPS {
            if streams > 0 && self.fills_a_block() {
                break;
            }
            self.context.host.sleep(step);
            let queued = self.queued();
            if std::mem::replace(&mut known, queued) == queued {
                break;
            }
        }
        true
    }

    /// The queued records are taken: other commits may begin.
    pub(in crate::zil) fn gathered(&self, has_gathered: bool) {
        let mut chain = self.chain.lock();
        chain.gathering.now &= !has_gathered;
        self.waiting.one_may_begin(&mut chain, self.commits_max());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_slow_writes_are_waited_before() {
        let mut gathering = Gathering::default();
        assert_eq!(gathering.step(), None, "nothing is known");
        gathering.note(100_000);
        assert_eq!(gathering.step(), None);
        for _ in 0..100 {
            gathering.note(8_000_000);
        }
        let step = gathering.step().unwrap();
        assert!(step > Duration::from_micros(200) && step <= Duration::from_micros(250), "{step:?}");
        gathering.now = true;
        assert_eq!(gathering.step(), None, "one is enough");
        gathering.note(u64::MAX);
    }
}
