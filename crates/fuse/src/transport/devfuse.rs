//! The threads of a hot mount that is served over `/dev/fuse`: `read` a request, `writev` the reply.
//!
//! # Theory
//! A mount that is not hot has none of these threads ([`listener`](crate::transport::listener)). The cheapest way to serve is one
//! thread that reads, works and replies, because the kernel then wakes a thread that is warm and often on the caller's
//! CPU. But one thread that waits for a disk stops all callers. So the threads of a *crew* share a role: only the
//! *leader* waits in `read`, and it works on a request while still leading. It hands the role to the follower that was
//! idle most recently (or to a new thread)
//!  - before an operation that [`dispatch::is_heavy`] believes to be slow,
//!  - when the file system says so, by [`before_blocking`],
//!  - when the *watchman* finds it in the same operation for a tick or more.
//!
//! A former leader finishes its operation, replies by itself, and becomes a follower.
//!
//! ```text
//!            read                 done, still leading
//!   leading ──────> working ──────────────────────────> leading
//!                      │ hand_over                          ^
//!                      v                                    │ chosen by hand_over, or nobody leads
//!                   working, not leading ──── done ────> waiting
//! ```
//!
//! Each crew has a clone of the descriptor; several read side by side on machines with many CPUs.
//!
//! The buffer is placed so that the data of a write begins on a page.
//!
//! # Locks
//! `Crew::state` guards the idle list; it is held for a few instructions, never across a system call but a wake-up.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use rustix::io::Errno as Os;
use zerocopy::{FromBytes, IntoBytes};

use crate::transport::buffer::{Buffer, PAGE};
use crate::dispatch::{self, Outcome, Request};
use crate::protocol::{DEV_IOC_CLONE, InHeader, OutHeader, WriteIn};
use crate::session::Shared;
use crate::Errno;

/// How long an operation may hold the role of the leader unseen.
const TICK: Duration = Duration::from_millis(1);
/// Quiet ticks after which the watchman sleeps.
const QUIET_TICKS: u32 = 20;
/// Nobody leads.
const NOBODY: usize = usize::MAX;
/// Where a request is read to, so that the data of a write begins on a page.
pub(crate) const READ_AT: usize = PAGE - size_of::<InHeader>() - size_of::<WriteIn>();

thread_local! {
    static MEMBERSHIP: RefCell<Option<(Arc<Crew>, usize)>> = const { RefCell::new(None) };
}

/// Called by the file system just before it waits for something slow: lets another thread read the next request.
/// Costs nothing on other threads, and little when nothing is to be done.
pub fn before_blocking() {
    MEMBERSHIP.with_borrow(|membership| {
        if let Some((crew, me)) = membership
            && crew.leader.load(Ordering::Acquire) == *me
        {
            crew.hand_over(*me);
        }
    });
}

/// The threads of one mount.
pub(crate) struct DevFuse {
    crews: Vec<Arc<Crew>>,
    watchman: JoinHandle<()>,
    watch: Arc<Watch>,
}

struct Crew {
    device: Arc<OwnedFd>,
    shared: Arc<Shared>,
    watch: Arc<Watch>,
    number: usize,
    threads_max: usize,
    /// Index of the leading thread, or [`NOBODY`].
    leader: AtomicUsize,
    /// Counts the requests that leaders have read; odd while the leader works.
    phase: AtomicU64,
    state: Mutex<CrewState>,
}

#[derive(Default)]
struct CrewState {
    /// Waiting threads, most recent last.
    idle: Vec<(usize, Thread)>,
    /// Threads ever started; a thread's index is its number in this count.
    started: usize,
    handles: Vec<JoinHandle<()>>,
}

/// Finds leaders that are stuck.
struct Watch {
    asleep: AtomicBool,
    wake: Mutex<()>,
    condition: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DevFuse {
    pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<DevFuse> {
        let watch = Arc::new(Watch { asleep: AtomicBool::new(false), wake: Mutex::new(()), condition: Condvar::new() });
        let count = shared.options.readers.max(1);
        let mut crews = Vec::with_capacity(count);
        for number in 0..count {
            // A read of the mount's own descriptor does not wait.
            let device = Arc::new(clone_device(&shared.device)?);
            let crew = Arc::new(Crew {
                device,
                shared: Arc::clone(shared),
                watch: Arc::clone(&watch),
                number,
                threads_max: (shared.options.threads_max / count).max(2),
                leader: AtomicUsize::new(0),
                phase: AtomicU64::new(0),
                state: Mutex::new(CrewState::default()),
            });
            crew.spawn(&mut lock(&crew.state))?;
            crews.push(crew);
        }
        let watched = crews.clone();
        let watching = Arc::clone(&watch);
        let watchman = thread::Builder::new().name(format!("{}-watch", shared.options.name)).spawn(move || watching.run(&watched))?;
        Ok(DevFuse { crews, watchman, watch })
    }

    /// Waits until the mount has ended and all threads are done.
    pub(crate) fn join(self) {
        for crew in &self.crews {
            loop {
                // Threads may still be added while the first ones end.
                let Some(handle) = lock(&crew.state).handles.pop() else { break };
                if handle.join().is_err() {
                    tracing::error!("a FUSE thread panicked");
                }
            }
        }
        self.watch.wake();
        if self.watchman.join().is_err() {
            tracing::error!("the FUSE watch thread panicked");
        }
    }
}

/// A second queue onto the same mount.
fn clone_device(device: &OwnedFd) -> io::Result<OwnedFd> {
    let new = crate::mounting::mount::open_device()?;
    let number = u32::try_from(device.as_raw_fd()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: this ioctl reads one u32, which outlives the call.
    let result = unsafe { libc::ioctl(new.as_raw_fd(), DEV_IOC_CLONE, &raw const number) };
    if result == 0 { Ok(new) } else { Err(io::Error::last_os_error()) }
}

impl Watch {
    fn wake(&self) {
        let _guard = lock(&self.wake);
        self.asleep.store(false, Ordering::Release);
        self.condition.notify_all();
    }

    fn run(&self, crews: &[Arc<Crew>]) {
        let mut seen = vec![0; crews.len()];
        let mut quiet = 0;
        while !crews.iter().any(|crew| crew.shared.is_ended()) {
            let mut active = false;
            for (crew, seen) in crews.iter().zip(&mut seen) {
                let phase = crew.phase.load(Ordering::Acquire);
                active |= phase != *seen || phase % 2 == 1;
                if phase % 2 == 1 && phase == *seen {
                    crew.replace_stuck(phase);
                }
                *seen = phase;
            }
            quiet = if active { 0 } else { quiet + 1 };
            let guard = lock(&self.wake);
            if quiet < QUIET_TICKS {
                drop(guard);
                thread::sleep(TICK);
                continue;
            }
            quiet = 0;
            self.asleep.store(true, Ordering::SeqCst);
            // A leader counts its request, then looks at `asleep`; we set `asleep`, then look at the counts. One sees the other.
            if crews.iter().zip(&seen).any(|(crew, seen)| crew.phase.load(Ordering::SeqCst) != *seen) {
                self.asleep.store(false, Ordering::Release);
                continue;
            }
            // The time-out serves the end of the mount only.
            let _ = self.condition.wait_timeout_while(guard, Duration::from_millis(500), |()| self.asleep.load(Ordering::Acquire));
            self.asleep.store(false, Ordering::Release);
        }
    }
}

impl Crew {
    fn spawn(self: &Arc<Crew>, state: &mut CrewState) -> io::Result<usize> {
        let me = state.started;
        let crew = Arc::clone(self);
        let name = format!("{}-{}.{me}", self.shared.options.name, self.number);
        state.handles.push(thread::Builder::new().name(name).spawn(move || crew.run(me))?);
        state.started += 1;
        Ok(me)
    }

    /// Makes another thread lead, if `me` does.
    fn hand_over(self: &Arc<Crew>, me: usize) {
        let state = lock(&self.state);
        if self.leader.load(Ordering::Acquire) == me {
            self.choose(state);
        }
    }

    /// Makes another thread lead if the leader is still in the operation counted as `phase`.
    fn replace_stuck(self: &Arc<Crew>, phase: u64) {
        let state = lock(&self.state);
        // Under the lock nobody else takes the role away. A leader that finishes meanwhile finds that its operation is no longer counted, and
        // looks under the lock too: did it go on leading beside the new one, the counts of both would get mixed up.
        if self.leader.load(Ordering::Acquire) != NOBODY && self.close_phase(phase) {
            self.choose(state);
        }
    }

    /// Gives the role to a waiting thread, or to a new one, or to nobody: then the next that is done has it.
    fn choose(self: &Arc<Crew>, mut state: MutexGuard<'_, CrewState>) {
        if self.shared.is_ended() {
            return;
        }
        let mut next = NOBODY;
        let follower = state.idle.pop();
        if let Some((follower, _)) = &follower {
            next = *follower;
        } else if state.started < self.threads_max {
            match self.spawn(&mut state) {
                Ok(new) => next = new,
                Err(error) => tracing::warn!(%error, "cannot start one more FUSE thread"),
            }
        }
        let phase = self.phase.load(Ordering::Acquire);
        if phase % 2 == 1 {
            self.close_phase(phase);
        }
        self.leader.store(next, Ordering::Release);
        drop(state);
        if let Some((_, thread)) = follower {
            thread.unpark();
        }
    }

    /// The operation counted as `phase` no longer has the role; `false` if that was noted before.
    fn close_phase(&self, phase: u64) -> bool {
        self.phase.compare_exchange(phase, phase + 1, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// After an operation: go on leading, or wait for the role. `unsure`: it may be about to be taken. False: the mount has ended.
    fn wait_for_lead(&self, me: usize, unsure: bool) -> bool {
        if !unsure && self.leader.load(Ordering::Acquire) == me {
            return !self.shared.is_ended();
        }
        loop {
            {
                let mut state = lock(&self.state);
                let leader = self.leader.load(Ordering::Acquire);
                if leader == NOBODY {
                    self.leader.store(me, Ordering::Release);
                }
                let ended = self.shared.is_ended();
                if leader == NOBODY || leader == me || ended {
                    state.idle.retain(|(waiting, _)| *waiting != me);
                    return !ended;
                }
                // A thread that was chosen, and lost the role again before it woke up, is no longer in the list.
                if !state.idle.iter().any(|(waiting, _)| *waiting == me) {
                    state.idle.push((me, thread::current()));
                }
            }
            thread::park();
        }
    }

    /// The mount has ended: everybody leaves.
    fn end(&self) {
        self.shared.end();
        for (_, thread) in lock(&self.state).idle.drain(..) {
            thread.unpark();
        }
        self.watch.wake();
    }

    fn run(self: Arc<Crew>, me: usize) {
        let sizes = (PAGE + PAGE + self.shared.max_write as usize, PAGE + self.shared.max_write as usize);
        let (mut input, mut output) = match (Buffer::new(sizes.0), Buffer::new(sizes.1)) {
            (Ok(input), Ok(output)) => (input, output),
            (Err(error), _) | (_, Err(error)) => {
                tracing::error!(%error, "no memory for a FUSE thread");
                self.hand_over(me);
                return;
            }
        };
        MEMBERSHIP.set(Some((Arc::clone(&self), me)));
        let mut unsure = false;
        while self.wait_for_lead(me, unsure) {
            match rustix::io::read(&*self.device, &mut input[READ_AT..]) {
                Ok(len) => unsure = !self.serve(me, &input[READ_AT..READ_AT + len], &mut output),
                // The request was withdrawn, or a signal came, or the descriptor does not block.
                Err(Os::INTR | Os::NOENT | Os::AGAIN) => {}
                Err(error) => {
                    if error != Os::NODEV && error != Os::CONNABORTED {
                        tracing::error!(%error, "reading /dev/fuse failed; the mount is given up");
                    }
                    self.end();
                }
            }
        }
        // If the end was noticed elsewhere (an io_uring queue), the waiting threads have not been told.
        self.end();
        MEMBERSHIP.set(None);
    }

    /// One request; `false` if the role was taken meanwhile.
    fn serve(self: &Arc<Crew>, me: usize, message: &[u8], output: &mut [u8]) -> bool {
        let Ok((header, body)) = InHeader::read_from_prefix(message) else {
            tracing::error!(len = message.len(), "short FUSE request");
            return true;
        };
        let mut phase = None;
        let outcome = match Request::parse(&header, body) {
            Ok(request) => {
                if dispatch::is_heavy(&request) {
                    self.hand_over(me);
                } else {
                    phase = Some(self.phase.fetch_add(1, Ordering::SeqCst) + 1);
                    if self.watch.asleep.load(Ordering::SeqCst) {
                        self.watch.wake();
                    }
                }
                dispatch::handle(&*self.shared.filesystem, &request, output)
            }
            Err(errno) => Outcome::Error(errno),
        };
        reply(&self.device, &header, outcome, output);
        phase.is_some_and(|phase| self.close_phase(phase))
    }
}

fn reply(device: &OwnedFd, request: &InHeader, outcome: Outcome, output: &[u8]) {
    let (error, len) = match outcome {
        Outcome::Silent => return,
        Outcome::Error(errno) => (errno.raw(), 0),
        Outcome::Reply(len) => (0, len),
    };
    if let Err(error) = send(device, request.unique, error, &output[..len])
        && error != Errno::ENOENT
        && error != Errno::ENODEV
    {
        tracing::warn!(%error, opcode = request.opcode, len, "the kernel refused a reply");
        // Better an error than a caller that waits for ever.
        let _ = send(device, request.unique, Errno::EIO.raw(), &[]);
    }
}

/// Runs one request that was read from a mount's own descriptor, and replies.
pub(crate) fn serve_plain(shared: &Shared, message: &[u8], output: &mut [u8]) {
    let Ok((header, body)) = InHeader::read_from_prefix(message) else {
        tracing::error!(len = message.len(), "short FUSE request");
        return;
    };
    let outcome = match Request::parse(&header, body) {
        Ok(request) => dispatch::handle(&*shared.filesystem, &request, output),
        Err(errno) => Outcome::Error(errno),
    };
    reply(&shared.device, &header, outcome, output);
}

/// `ENOENT`: the request was interrupted and nobody waits.
fn send(device: &OwnedFd, unique: u64, error: i32, body: &[u8]) -> crate::Result<()> {
    let len = u32::try_from(size_of::<OutHeader>() + body.len()).map_err(|_| Errno::EIO)?;
    let header = OutHeader { len, error: -error, unique };
    loop {
        match rustix::io::writev(device, &[IoSlice::new(header.as_bytes()), IoSlice::new(body)]) {
            Ok(_) => return Ok(()),
            Err(Os::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
