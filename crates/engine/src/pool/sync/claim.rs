//! A claim on a pool: other hosts are to see that it is being opened here.
//!
//! # Theory
//! A host that imports a pool with multihost protection writes a random number there, several times, and looks whether it stays: another one
//! may be importing the pool, too. From then on until the pool's own heartbeats begin the number counts up, in a thread of its own: to open a pool may
//! take long, and a host that looks at it meanwhile has to see something change. As with heartbeats the clock decides: a claim that could not be
//! written for so long that another host may have taken the pool is lost. Then it is written no more, and the pool is not opened.
//!
//! # On disk
//! As heartbeats are (see [`super::heartbeat`]).
//!
//! # Locks
//! `Standing::state`, and nothing below it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use ondisk::uberblock::{Multihost, Uberblock};
use parking_lot::{Condvar, Mutex};

use super::heartbeat::{device_ashift, in_use, newest};
use crate::error::Result;
use crate::host::HostRef;
use crate::pool::open::import::Candidate;
use crate::vdev::label::{flush_disk, write_heartbeat};
use crate::{bail, error};

/// From so many numbers hosts draw theirs, at least.
const NUMBERS_MIN: u16 = 1024;
/// How often a claim is written and looked for.
#[doc(alias = "MMP_IMPORT_VERIFY_ITERS")]
const CLAIM_ROUNDS: u32 = 10;

#[derive(Default)]
struct ClaimState {
    /// When it was last written.
    last_ns: u64,
    is_over: bool,
    /// The pool's own heartbeats follow.
    is_handed_over: bool,
    /// The thread has ended, and holds no device any more.
    has_ended: bool,
}

/// How a claim stands.
struct Standing {
    host: HostRef,
    /// If it was not written for longer, another host may have taken the pool.
    limit_ns: u64,
    state: Mutex<ClaimState>,
    changed: Condvar,
}

impl Standing {
    fn silence_ns(&self, state: &ClaimState) -> u64 {
        self.host.now_ns().saturating_sub(state.last_ns)
    }

    fn is_lost(&self, state: &ClaimState) -> bool {
        self.silence_ns(state) > self.limit_ns
    }

    /// Waits until it is to be written again. `false`: it is over, or lost.
    fn wait(&self, interval: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.is_over {
            self.changed.wait_for(&mut state, interval);
        }
        !state.is_over && !self.is_lost(&state)
    }

    fn note_written(&self) {
        let mut state = self.state.lock();
        if !self.is_lost(&state) {
            state.last_ns = self.host.now_ns();
        }
    }

    /// Ends the thread, and waits for that.
    fn end(&self, hands_over: bool) {
        let mut state = self.state.lock();
        state.is_over = true;
        state.is_handed_over |= hands_over;
        self.changed.notify_all();
        while !state.has_ended {
            self.changed.wait(&mut state);
        }
    }
}

/// Says that the thread has ended.
struct Ended(Arc<Standing>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.state.lock().has_ended = true;
        self.0.changed.notify_all();
    }
}

/// What is written, and where.
struct Writing {
    candidate: Candidate,
    /// What was there before.
    first: Uberblock,
    interval: Duration,
    standing: Arc<Standing>,
}

impl Writing {
    /// What is above this number can be told from what was there before; and two hosts have enough of them.
    fn base(&self) -> u16 {
        let sequence = self.first.multihost.and_then(|multihost| multihost.sequence());
        sequence.filter(|sequence| *sequence < u16::MAX - NUMBERS_MIN).unwrap_or(0)
    }

    fn numbered(&self, sequence: u16) -> Uberblock {
        let original = self.first.multihost.unwrap_or_default();
        let config = original.config & !(0xffff << 32) | u64::from(sequence) << 32;
        Uberblock { multihost: Some(Multihost { config, ..original }), ..self.first.clone() }
    }

    fn write(&self, uberblock: &Uberblock) -> Result<()> {
        self.write_each(&mut HashSet::new(), || uberblock.clone(), || ())
    }

    /// Writes what is `next` to each device, and says of each when that is done. Those of `slow` are left out where others can be written; those that take
    /// longer than the interval join them: a disk that dies is not to keep the claim from the others.
    fn write_each(&self, slow: &mut HashSet<usize>, mut next: impl FnMut() -> Uberblock, done: impl Fn()) -> Result<()> {
        let mut result = Err(error!(NoDevice, "pool {}: no device can be written", self.candidate.config.name));
        let (last, first): (Vec<usize>, Vec<usize>) = (0..self.candidate.devices.len()).partition(|index| slow.contains(index));
        for index in first.into_iter().chain(last) {
            if slow.contains(&index) && result.is_ok() {
                break;
            }
            let (device, began) = (&self.candidate.devices[index], self.standing.host.now_ns());
            let written = write_heartbeat(&*device.disk, device_ashift(device), &next(), None).and_then(|()| flush_disk(&*device.disk));
            if u128::from(self.standing.host.now_ns().saturating_sub(began)) > self.interval.as_nanos() {
                slow.insert(index);
            }
            if written.is_ok() {
                done();
            }
            if written.is_ok() || result.is_err() {
                result = written;
            }
        }
        result
    }

    /// Writes random numbers until it is clear that nobody else does. What another host has written meanwhile stays.
    fn win(&self) -> Result<()> {
        let (base, host, mut slow) = (self.base(), &self.standing.host, HashSet::new());
        for _ in 0..CLAIM_ROUNDS {
            let mine = self.numbered(base + 1 + (host.random() % u64::from(u16::MAX - base)) as u16);
            self.write_each(&mut slow, || mine.clone(), || ())?;
            host.sleep(self.interval);
            if newest(&self.candidate).as_ref() != Some(&mine) {
                return Err(in_use(&self.candidate));
            }
        }
        // However long that took: nobody else has written meanwhile.
        self.standing.state.lock().last_ns = host.now_ns();
        Ok(())
    }

    /// Counts up until the claim is over. If it is given up, the number is again what it was, so that a host that tries again sees nothing new.
    fn hold(&self) {
        let (mut sequence, mut slow) = (self.base(), HashSet::new());
        while self.standing.wait(self.interval) {
            // Each device gets a number of its own: there may be many.
            let next = || {
                sequence = sequence.checked_add(1).unwrap_or(1);
                self.numbered(sequence)
            };
            if let Err(error) = self.write_each(&mut slow, next, || self.standing.note_written()) {
                tracing::warn!("pool {}: its claim cannot be written: {error}", self.candidate.config.name);
            }
        }
        let is_given_up = {
            let state = self.standing.state.lock();
            !state.is_handed_over && !self.standing.is_lost(&state)
        };
        if is_given_up && let Err(error) = self.write(&self.first) {
            tracing::warn!("pool {}: its claim cannot be taken back: {error}", self.candidate.config.name);
        }
    }
}

/// See the module. It is given up when it is dropped.
pub struct Claim(Arc<Standing>);

impl Claim {
    /// Claims the pool of `candidate`, of which `first` is on disk. None where the host has no threads (simulation): there the claim is over at once.
    ///
    /// # Errors
    /// `InUseElsewhere`; or nothing can be written.
    pub(super) fn make(candidate: &Candidate, host: &HostRef, first: Uberblock, interval: Duration, limit_ns: u64) -> Result<Option<Claim>> {
        let state = Mutex::new(ClaimState { last_ns: host.now_ns(), ..ClaimState::default() });
        let standing = Arc::new(Standing { host: host.clone(), limit_ns, state, changed: Condvar::new() });
        let writing = Arc::new(Writing { candidate: candidate.clone(), first, interval, standing: standing.clone() });
        writing.win()?;
        let (ended, held) = (Ended(standing.clone()), writing.clone());
        let body = move || {
            held.hold();
            // In this order: when the end is said, the devices are free for others.
            drop(held);
            drop(ended);
        };
        if !host.spawn("claim", Box::new(body)) {
            writing.write(&writing.first)?;
            return Ok(None);
        }
        Ok(Some(Claim(standing)))
    }

    /// The pool's own heartbeats begin now.
    ///
    /// # Errors
    /// `InUseElsewhere`: it was lost.
    pub(in crate::pool) fn hand_over(self) -> Result<()> {
        self.0.end(true);
        let state = self.0.state.lock();
        if self.0.is_lost(&state) {
            let seconds = self.0.silence_ns(&state) / 1_000_000_000;
            bail!(InUseElsewhere, "nothing showed for {seconds} s that it was being opened here, so that another host may have taken it: import it again");
        }
        Ok(())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.0.end(false);
    }
}
