//! What becomes of a change that its caller waits for.
//!
//! # Theory
//! A caller does not wait for ever: where the pool waits for an administrator, the caller may be the one. It undoes then what it has prepared, so the change must not be made later.
//! So it is *withdrawn* with the last look of the caller, unless the sync thread has begun it. What has begun is made when the pool goes on, and the error of the caller says so
//! ([`Error::goes_on`]).
//!
//! # Locks
//! `Answer::state`, and nothing inside it. It is not held while the change is made.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::error;
use crate::error::{Error, Result};

/// A change that was begun has an answer soon: it only reads. Longer than this takes one that hangs.
const LIMIT: Duration = Duration::from_secs(10);

/// See the module. `W`: what makes the change.
pub(in crate::dsl) struct Answer<T, W> {
    state: Mutex<State<T, W>>,
    ended: Condvar,
}

enum State<T, W> {
    /// Nobody has begun it.
    Waiting(W),
    /// The sync thread is at it.
    Begun,
    /// It changed nothing.
    Refused(Error),
    /// It ended half-way, and the pool with it.
    Failed(Error),
    /// The group has it.
    Made(T),
    /// It is not made any more; or the caller has its answer.
    Over,
}

impl<T, W> Answer<T, W> {
    /// Of a change that nobody has begun.
    pub(in crate::dsl) fn of(work: W) -> Self {
        Answer { state: Mutex::new(State::Waiting(work)), ended: Condvar::new() }
    }

    /// Makes the change, in the sync thread, unless it was withdrawn. The inner error of `make` is a refusal.
    ///
    /// # Errors
    /// The outer one of `make`.
    pub(in crate::dsl) fn make(&self, make: impl FnOnce(W) -> Result<Result<T>>) -> Result<()> {
        let work = {
            let mut state = self.state.lock();
            match std::mem::replace(&mut *state, State::Begun) {
                State::Waiting(work) => work,
                other => {
                    *state = other;
                    return Ok(());
                }
            }
        };
        let (end, failed) = match make(work) {
            Ok(Ok(made)) => (State::Made(made), None),
            Ok(Err(refused)) => (State::Refused(refused), None),
            Err(failed) => (State::Failed(failed.clone()), Some(failed)),
        };
        *self.state.lock() = end;
        self.ended.notify_all();
        failed.map_or(Ok(()), Err)
    }

    /// What became of it, when its group is on disk.
    ///
    /// # Errors
    /// It was refused, or has failed.
    pub(in crate::dsl) fn take(&self) -> Result<T> {
        match std::mem::replace(&mut *self.state.lock(), State::Over) {
            State::Made(made) => Ok(made),
            State::Refused(error) | State::Failed(error) => Err(error),
            State::Waiting(_) | State::Begun | State::Over => Err(error!(Suspended, "the pool stopped before the change was made")),
        }
    }

    /// The caller waits no more, for this reason: the change is withdrawn if it can be. Returns what the caller is to be told.
    pub(in crate::dsl) fn give_up(&self, why: Error) -> Error {
        let mut state = self.state.lock();
        while matches!(*state, State::Begun) {
            if self.ended.wait_for(&mut state, LIMIT).timed_out() {
                return why.that_goes_on();
            }
        }
        match std::mem::replace(&mut *state, State::Over) {
            State::Refused(refused) => refused,
            State::Made(_) => why.that_goes_on(),
            State::Waiting(_) | State::Begun | State::Failed(_) | State::Over => why,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use super::*;

    fn why() -> Error {
        error!(Suspended, "the disk is gone")
    }

    #[test]
    fn what_was_withdrawn_is_not_made_and_what_it_held_is_let_go_at_once() {
        let held = Arc::new(());
        let answer: Answer<(), Arc<()>> = Answer::of(held.clone());
        let told = answer.give_up(why());
        assert!(!told.goes_on() && Arc::strong_count(&held) == 1, "{told}");
        answer.make(|_| panic!("it was withdrawn")).unwrap();
        assert!(answer.take().is_err());
    }

    #[test]
    fn what_was_made_or_refused_is_said() {
        let answer = |end: Result<u32>| {
            let answer = Answer::of(());
            answer.make(|()| Ok(end)).unwrap();
            answer
        };
        assert_eq!(answer(Ok(7)).take().unwrap(), 7);
        let told = answer(Ok(7)).give_up(why());
        assert!(told.goes_on() && told.message().contains("the disk is gone"), "{told}");
        let told = answer(Err(error!(Busy, "no"))).give_up(why());
        assert!(!told.goes_on() && told.message() == "no", "{told}");
        let failed: Answer<(), ()> = Answer::of(());
        assert!(failed.make(|()| Err(error!(Io, "half-way"))).is_err());
        assert!(!failed.give_up(why()).goes_on());
    }

    #[test]
    #[allow(clippy::disallowed_methods)] // this test is about threads
    fn a_caller_hears_the_end_of_what_has_begun() {
        for refuses in [false, true] {
            let answer = Arc::new(Answer::of(()));
            let ((begun, has_begun), (end, ends)) = (channel(), channel::<()>());
            let making = answer.clone();
            let maker = std::thread::spawn(move || {
                making.make(|()| {
                    begun.send(()).unwrap();
                    ends.recv().unwrap();
                    Ok(if refuses { Err(error!(Busy, "no")) } else { Ok(()) })
                })
            });
            has_begun.recv().unwrap();
            let waiting = answer.clone();
            let caller = std::thread::spawn(move || waiting.give_up(why()));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!caller.is_finished());
            end.send(()).unwrap();
            maker.join().unwrap().unwrap();
            let told = caller.join().unwrap();
            assert_eq!((told.goes_on(), told.message() == "no"), (!refuses, refuses), "{told}");
        }
    }
}
