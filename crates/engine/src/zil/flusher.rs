//! One flush for all who need one.
//!
//! # Theory
//! A flush makes durable what was written before it began. So one that is under way is of no use to who has just written, but the
//! next one serves all who wait for it: at most two flushes are between a write and its safety, however many threads there are.

use parking_lot::{Condvar, Mutex};

use crate::error::{Error, Result};

#[derive(Debug, Default)]
struct State {
    begun: u64,
    ended: u64,
    running: bool,
    failed: Option<(u64, Error)>,
}

/// The flushes of one log.
#[derive(Debug, Default)]
pub(super) struct Flusher {
    state: Mutex<State>,
    ended: Condvar,
}

impl Flusher {
    /// Returns when a flush that began after this call has ended.
    pub(super) fn flush(&self, flush: impl Fn() -> Result<()>) -> Result<()> {
        let mut state = self.state.lock();
        let wanted = state.begun + 1;
        loop {
            if state.ended >= wanted {
                return match &state.failed {
                    Some((number, error)) if *number >= wanted => Err(error.clone()),
                    _ => Ok(()),
                };
            }
            if state.running {
                self.ended.wait(&mut state);
                continue;
            }
            state.running = true;
            state.begun += 1;
            let number = state.begun;
            drop(state);
            let result = flush();
            state = self.state.lock();
            state.running = false;
            state.ended = number;
            if let Err(error) = &result {
                state.failed = Some((number, error.clone()));
            }
            self.ended.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn many_share_few_flushes_and_each_gets_one_that_began_after_its_write() {
        let (flusher, flushes, written) = (Flusher::default(), AtomicU64::new(0), AtomicU64::new(0));
        let safe = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let own = written.fetch_add(1, Ordering::SeqCst) + 1;
                        flusher
                            .flush(|| {
                                let seen = written.load(Ordering::SeqCst);
                                std::thread::yield_now();
                                flushes.fetch_add(1, Ordering::SeqCst);
                                safe.fetch_max(seen, Ordering::SeqCst);
                                Ok(())
                            })
                            .unwrap();
                        assert!(safe.load(Ordering::SeqCst) >= own);
                    }
                });
            }
        });
        assert!(flushes.load(Ordering::SeqCst) <= 1600);
    }
}
