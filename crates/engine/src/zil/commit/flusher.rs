//! One flush for all threads that need one.
//!
//! # Theory
//! A flush makes durable what was written before it began. So a flush under way is of no use to a write that has just
//! ended, but the next one serves all that wait for it: at most two flushes are between a write and its safety, however
//! many threads there are.

use parking_lot::{Condvar, Mutex};

use crate::error::{Error, Result};
use crate::txg::bug;

#[derive(Debug, Default)]
struct State {
    begun: u64,
    ended: u64,
    running: bool,
    failed: Option<(u64, Error)>,
}

/// The flushes of one log.
#[derive(Debug, Default)]
pub(in crate::zil) struct Flusher {
    state: Mutex<State>,
    ended: Condvar,
}

impl Flusher {
    /// Returns when a flush that began after this call has ended.
    pub(in crate::zil) fn flush(&self, flush: impl Fn() -> Result<()>) -> Result<()> {
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
            let mut own = Own { flusher: self, number: state.begun, result: Err(bug(format_args!("ended a thread that flushed the log"))) };
            drop(state);
            own.result = flush();
            drop(own);
            state = self.state.lock();
        }
    }
}

/// A flush that has begun. It ends when this is dropped, by a panic too.
struct Own<'a> {
    flusher: &'a Flusher,
    number: u64,
    result: Result<()>,
}

impl Drop for Own<'_> {
    fn drop(&mut self) {
        let mut state = self.flusher.state.lock();
        state.running = false;
        state.ended = self.number;
        if let Err(error) = &self.result {
            state.failed = Some((self.number, error.clone()));
        }
        self.flusher.ended.notify_all();
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

    /// The thread that flushed for all others died of a bug, and they waited for ever.
    #[test]
    #[allow(clippy::disallowed_methods)] // this test is about threads
    fn a_bug_while_flushing_leaves_nobody_waiting() {
        let flusher = std::sync::Arc::new(Flusher::default());
        let buggy = flusher.clone();
        let died = std::thread::spawn(move || buggy.flush(|| panic!("a bug")));
        assert!(died.join().is_err());
        let (tell, told) = std::sync::mpsc::channel();
        let next = flusher.clone();
        std::thread::spawn(move || tell.send(next.flush(|| Ok(())).is_ok()));
        assert_eq!(told.recv_timeout(std::time::Duration::from_secs(20)), Ok(true));
        // Waiters of the first flush learn that it failed.
        assert_eq!(flusher.state.lock().failed.as_ref().map(|(number, _)| *number), Some(1));
    }
}
