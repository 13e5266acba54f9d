//! Waiting a moment for others before a commit takes what there is.
//!
//! # Theory
//! Those whose records became stable together come with the next ones together, or nearly so: each must first be answered, and ask. Whoever
//! of them is the first, and begins at once, has a write of the device for himself, and all others wait for another one: `n` writers on a
//! disk that turns get `n / 2` records a turn. Where a write takes milliseconds, a small part of that is waited first, and again as long as
//! more come. Meanwhile nobody else begins, who would only have his records taken. (The rework of 2017 does the same with a tenth of what the last
//! block took.) Where a write takes less than that is worth, nobody waits: blocks fill while others are written.

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
}

impl Gathering {
    /// A durable write took so long.
    pub(super) fn note(&mut self, nanoseconds: u64) {
        self.write_ns = match self.write_ns {
            0 => nanoseconds,
            mean => (mean * (REMEMBERED - 1)).saturating_add(nanoseconds) / REMEMBERED,
        };
    }

    /// How long to wait at a time, if at all.
    fn step(&self) -> Option<Duration> {
        (self.write_ns >= SLOW_NS && !self.now).then(|| Duration::from_nanos(self.write_ns / STEP))
    }
}

impl Zil {
    /// Waits as long as others come, if that is worth while. `true`: nobody else begins until [`Zil::gathered`].
    pub(super) fn gather(&self) -> bool {
        let step = {
            let mut chain = self.chain.lock();
            // One commit at a time is the old way, for comparison.
            let Some(step) = chain.gathering.step().filter(|_| self.commits_max() > 1) else { return false };
            chain.gathering.now = true;
            step
        };
        let mut known = self.queued();
        for _ in 0..STEPS {
            self.context.host.sleep(step);
            let queued = self.queued();
            if std::mem::replace(&mut known, queued) == queued {
                break;
            }
        }
        true
    }

    /// What had come is taken: others may begin.
    pub(super) fn gathered(&self) {
        let mut chain = self.chain.lock();
        chain.gathering.now = false;
        self.waiting.one_may_begin(&chain, self.commits_max());
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
