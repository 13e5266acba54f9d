//! Waiting a moment for others before a commit takes what there is.
//!
//! # Theory
//! Those whose records became stable together come with the next ones together, or nearly so: each must first be answered, and ask. Whoever
//! of them is the first, and begins at once, has a write of the device for himself, and all others wait for another one: `n` writers on a
//! disk that turns get `n / 2` records a turn. Where a write takes milliseconds, a small part of that is waited first, and again as long as
//! more come. Meanwhile nobody else begins, who would only have his records taken. (The rework of 2017 does the same with a tenth of what the last
//! block took.) Where a write takes less than that is worth, nobody waits: blocks fill while others are written.
//!
//! A slow disk without a write cache turns. Whoever comes a moment too late for the place behind the last block waits for a whole turn,
//! however much he brings; who comes while it is still writing what lies before that place waits for nothing. So there the log *streams*: a block that is
//! full goes at once, many are under way, one behind the other, and those that the first ones carried are back with the next before the last one is written.

use std::time::Duration;

use super::Zil;

/// Worth while from here on.
const SLOW_NS: u64 = 1_000_000;
/// Of what a write takes, this part is waited at a time,
const STEP: u64 = 32;
/// so many times at most.
const STEPS: u32 = 8;
/// What a write takes is the mean of so many, about.
const REMEMBERED: u64 = 8;

/// What writes to a log take, and who waits for others.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    /// Somebody waits for others.
    pub(super) now: bool,
    /// What a durable write takes, in nanoseconds.
    write_ns: u64,
    /// Blocks go as soon as they are full, to so many vdevs; 0: they do not.
    pub(super) streams: usize,
}

impl Gathering {
    /// A durable write took so long.
    pub(super) fn note(&mut self, nanoseconds: u64) {
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
    /// Waits as long as others come, if that is worth while. `true`: nobody else begins until [`Zil::gathered`].
    pub(super) fn gather(&self) -> bool {
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

    /// What had come is taken: others may begin.
    pub(super) fn gathered(&self, has_gathered: bool) {
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
