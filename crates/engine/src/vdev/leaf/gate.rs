//! Where writers wait while nothing can be written.
//!
//! # Theory
//! When no device of a top-level vdev takes a write, the pool cannot go on; but often the reason goes away again: a cable, a network,
//! a full file system that holds the image. So the writer waits here, with what it wants to write in its hands, until somebody
//! says that it should try again (`zpool clear`), or gives the pool up. The property `failmode` says what happens to everybody
//! else meanwhile: they wait too, or new writes fail at once, or the program ends.
//!
//! A library that is used without an administrator has nobody to say so: there an error ends the pool, as before.
//!
//! # Locks
//! `Gate::state`, and nothing below it.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::error::Error;

/// What to do when nothing can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FailureMode {
    /// The pool stops for good: nobody is there to clear it.
    #[default]
    Stop,
    /// Everybody waits.
    Wait,
    /// New writes fail; what was accepted waits.
    Continue,
    /// The program ends.
    Panic,
}

#[derive(Debug, Default)]
struct GateState {
    mode: FailureMode,
    /// What was wrong.
    failure: Option<Error>,
    /// Counts how often somebody said to try again.
    clears: u64,
    is_given_up: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
    /// `failure` is there: asked on every write.
    is_shut: AtomicBool,
    /// Nothing may be written any more: asked on every write.
    is_ended: AtomicBool,
}

impl Gate {
    /// Changes what is done.
    pub fn set_mode(&self, mode: FailureMode) {
        self.state.lock().mode = mode;
    }

    /// A write failed on every device. Waits until it is worth trying again; `false`: it never will be.
    pub fn wait_after(&self, error: &Error) -> bool {
        let mut state = self.state.lock();
        match state.mode {
            _ if state.is_given_up => return false,
            FailureMode::Stop => return false,
            FailureMode::Panic => {
                tracing::error!("failmode=panic: {error}");
                std::process::abort();
            }
            FailureMode::Wait | FailureMode::Continue => {}
        }
        if state.failure.is_none() {
            tracing::error!("pool I/O is suspended: {error}; repair that, then 'zpool clear' goes on");
        }
        state.failure = Some(error.clone());
        self.is_shut.store(true, Ordering::Release);
        let clears = state.clears;
        while state.clears == clears && !state.is_given_up {
            self.changed.wait(&mut state);
        }
        !state.is_given_up
    }

    /// A failure after which trying again is of no use: where `failmode` says that the program ends, it ends.
    pub fn end_after(&self, error: &Error) {
        if self.state.lock().mode == FailureMode::Panic {
            tracing::error!("failmode=panic: {error}");
            std::process::abort();
        }
    }

    /// Why everybody waits, if they do.
    pub fn failure(&self) -> Option<Error> {
        if self.is_shut.load(Ordering::Acquire) { self.state.lock().failure.clone() } else { None }
    }

    /// Why a new write fails at once, if it does.
    pub fn refusal(&self) -> Option<Error> {
        if !self.is_shut.load(Ordering::Acquire) {
            return None;
        }
        let state = self.state.lock();
        state.failure.clone().filter(|_| state.mode == FailureMode::Continue)
    }

    /// Those who wait try again.
    pub fn clear(&self) {
        let mut state = self.state.lock();
        state.failure = None;
        state.clears += 1;
        self.is_shut.store(false, Ordering::Release);
        drop(state);
        self.changed.notify_all();
    }

    /// Those who wait fail, and all after them.
    pub fn give_up(&self) {
        self.state.lock().is_given_up = true;
        self.changed.notify_all();
    }

    /// Another host may have the pool: nothing is written any more, whatever the devices would take.
    pub fn end(&self) {
        self.is_ended.store(true, Ordering::Release);
    }

    /// May nothing be written any more ([`Gate::end`])?
    pub fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error;
    use std::sync::Arc;

    #[test]
    #[allow(clippy::disallowed_methods)] // this test is about threads
    fn a_writer_waits_until_it_is_cleared_or_given_up() {
        let gate = Arc::new(Gate::default());
        let error = error!(Io, "full");
        assert!(!gate.wait_after(&error), "nobody could clear it");
        for give_up in [false, true] {
            gate.set_mode(FailureMode::Wait);
            let (waiting, why) = (gate.clone(), error.clone());
            let writer = std::thread::spawn(move || waiting.wait_after(&why));
            while gate.failure().is_none() {
                std::thread::yield_now();
            }
            assert!(gate.refusal().is_none(), "in this mode others wait");
            gate.set_mode(FailureMode::Continue);
            assert!(gate.refusal().is_some());
            if give_up { gate.give_up() } else { gate.clear() }
            assert_eq!(writer.join().unwrap(), !give_up);
        }
        assert!(!gate.wait_after(&error), "once given up it stays so");
    }
}
