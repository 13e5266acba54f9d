//! The threads that serve all mounts of this process.
//!
//! # Theory
//! Ten thousand mounts of which a few are busy need as many threads as there are requests under way, and no more. So no
//! thread belongs to a mount. Requests arrive at two threads that run no operation and wait only for the kernel: the
//! [`porter`](crate::transport::porter) has the entries of all io_uring queues, the [`listener`](crate::transport::listener) the descriptors
//! of `/dev/fuse`. Both give each request to a thread of the crew: an idle one, best one on the caller's CPU, or a new
//! one.
//!
//! Two wake-ups for a request are expensive. So a thread that serves a *hot* mount ([`Heat`](crate::transport::heat)) keeps its
//! entry: while the mount is hot it waits for the next request on its own ring, without the porter
//! ([`uring`](crate::transport::uring) says why that is fast).
//!
//! Each operation may take long, and may wait for another one. So the crew grows with the requests that wait. When it
//! has reached its limit, the next request waits for a thread. A few requests of each mount are always served, so that
//! a mount whose disk is gone stops no other.
//!
//! # Invariants
//! 1. The porter and the listener run no operation.
//! 2. A thread waits on its ring for one entry only, and has no other while it serves that one: what comes for others never waits for it.
//!
//! # Locks
//! `State` is held for a few instructions, and while a thread is started.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::transport::buffer::Buffer;
use crate::transport::courtesy::Membership;
use crate::transport::entry::{self, Entry, Ring, new_ring};
use crate::transport::listener::DeviceMount;
use crate::transport::porter;

/// The most threads for all mounts, unless a mount would have fewer than [`ALWAYS_SERVED`].
const THREADS_MAX: usize = 1024;
/// Requests of one mount that are served at the same time however many threads there are.
const ALWAYS_SERVED: usize = 4;
/// Threads that may keep an entry of a hot mount. Requests for further hot mounts go through the porter.
const KEEPERS_MAX: usize = 512;
/// With this many keepers it is checked whether their mounts are still hot.
const KEEPERS_MANY: usize = 48;
/// How long a thread without work stays.
const IDLE_FOR: Duration = Duration::from_secs(5);
/// Entries that a thread's own ring can have under way: it has one.
const OWN_RING: u32 = 2;
/// The pause after a ring failed.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What a thread of the crew is given.
pub(crate) enum Job {
    /// An entry with a request, and how many others of its queue were idle when the request came.
    Answer(Entry, usize),
    /// A mount of which something can be read.
    Read(Arc<DeviceMount>),
}

impl Job {
    fn cpu(&self) -> Option<u16> {
        match self {
            Job::Answer(entry, _) => Some(entry.queue),
            Job::Read(_) => None,
        }
    }

    /// The requests of its mount that threads of the crew have.
    fn under_way(&self) -> &AtomicUsize {
        match self {
            Job::Answer(entry, _) => &entry.mount.shared.under_way,
            Job::Read(mount) => &mount.shared.under_way,
        }
    }
}

/// All threads of the process that serve mounts.
#[derive(Default)]
pub(crate) struct Crew {
    state: Mutex<State>,
    /// Threads that keep an entry.
    keepers: AtomicUsize,
    /// Jobs wait for a thread.
    is_short: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Threads without work, the most recent last.
    idle: Vec<Idle>,
    alive: usize,
    /// Threads ever started.
    started: usize,
    waiting: VecDeque<Job>,
}

/// A thread without work.
struct Idle {
    given: Arc<Mutex<Option<Job>>>,
    thread: Thread,
    cpu: Option<u16>,
}

/// The crew of this process.
pub(crate) fn crew() -> &'static Crew {
    static CREW: std::sync::OnceLock<Crew> = std::sync::OnceLock::new();
    CREW.get_or_init(Crew::default)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Crew {
    /// Gives a job to a thread, or leaves it for the next idle one. Only the porter and the listener call this, as new
    /// threads inherit the caller's CPU and class.
    pub(crate) fn give(&'static self, job: Job) {
        let mut state = lock(&self.state);
        self.place(&mut state, job);
    }

    fn place(&'static self, state: &mut State, job: Job) {
        let cpu = job.cpu();
        let best = state.idle.iter().rposition(|idle| cpu.is_some() && idle.cpu == cpu);
        let under_way = job.under_way().fetch_add(1, Ordering::Relaxed);
        if let Some(at) = best.or(state.idle.len().checked_sub(1)) {
            let idle = state.idle.remove(at);
            *lock(&idle.given) = Some(job);
            idle.thread.unpark();
            return;
        }
        let job = if state.alive < THREADS_MAX || under_way < ALWAYS_SERVED {
            match self.start(state, job) {
                Ok(()) => return,
                Err(job) => job,
            }
        } else {
            job
        };
        job.under_way().fetch_sub(1, Ordering::Relaxed);
        state.waiting.push_back(job);
        self.is_short.store(true, Ordering::Relaxed);
    }

    /// Starts one more thread. Returns the job if no thread can be started.
    fn start(&'static self, state: &mut State, job: Job) -> Result<(), Job> {
        let given = Arc::new(Mutex::new(Some(job)));
        let own = Arc::clone(&given);
        let started = thread::Builder::new().name(format!("fuse-crew-{}", state.started)).spawn(move || Worker::new(self, own).run());
        match started {
            Ok(_) => {
                state.alive += 1;
                state.started += 1;
                Ok(())
            }
            Err(error) => {
                tracing::warn!(%error, threads = state.alive, "cannot start one more FUSE thread");
                let job = lock(&given).take();
                job.map_or(Ok(()), Err)
            }
        }
    }

    /// Whether jobs wait for a thread. The caller then tries again later.
    pub(crate) fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed)
    }

    /// Gives waiting jobs to threads, where that is possible now.
    pub(crate) fn try_again(&'static self) {
        let mut state = lock(&self.state);
        self.is_short.store(false, Ordering::Relaxed);
        for _ in 0..state.waiting.len() {
            if let Some(job) = state.waiting.pop_front() {
                self.place(&mut state, job);
            }
        }
    }
}

/// A request of a mount that a thread serves; counted until this is dropped.
struct UnderWay<'a>(&'a AtomicUsize);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A thread's place among the keepers of entries.
struct Keeper {
    crew: &'static Crew,
    membership: Option<Membership>,
}

impl Keeper {
    fn new(crew: &'static Crew, entry: &Entry) -> Option<Keeper> {
        if crew.keepers.fetch_add(1, Ordering::Relaxed) >= KEEPERS_MAX {
            crew.keepers.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Keeper { crew, membership: entry.mount.courtesy.and_then(|courtesy| courtesy.join(entry.queue)) })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.crew.keepers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A thread of the crew.
pub(crate) struct Worker {
    crew: &'static Crew,
    given: Arc<Mutex<Option<Job>>>,
    /// A ring of its own, with nothing in it but the entry that it keeps.
    ring: Option<Ring>,
    /// The CPU that it stays on.
    cpu: Option<u16>,
    /// All CPUs that the process may use.
    any_cpu: Option<CpuSet>,
    /// For what is read from `/dev/fuse`, and for the answers.
    pub(crate) buffers: Option<(Buffer, Buffer)>,
}

impl Worker {
    fn new(crew: &'static Crew, given: Arc<Mutex<Option<Job>>>) -> Worker {
        // The process's mask, not this thread's: the thread's creator may be pinned to a CPU.
        let any_cpu = sched_getaffinity(Some(rustix::process::getpid())).ok();
        Worker { crew, given, ring: None, cpu: None, any_cpu, buffers: None }
    }

    fn run(mut self) {
        while let Some(job) = self.next() {
            match job {
                Job::Answer(entry, others) => self.answer(entry, others),
                Job::Read(mount) => {
                    self.pin(None);
                    let _under_way = UnderWay(&mount.shared.under_way);
                    mount.serve(&mut self);
                }
            }
        }
    }

    /// The next job; `None`: the thread has been idle for long.
    fn next(&mut self) -> Option<Job> {
        if let Some(job) = lock(&self.given).take() {
            return Some(job);
        }
        {
            let mut state = lock(&self.crew.state);
            if let Some(job) = state.waiting.pop_front() {
                job.under_way().fetch_add(1, Ordering::Relaxed);
                return Some(job);
            }
            self.crew.is_short.store(false, Ordering::Relaxed);
            state.idle.push(Idle { given: Arc::clone(&self.given), thread: thread::current(), cpu: self.cpu });
        }
        loop {
            thread::park_timeout(IDLE_FOR);
            if let Some(job) = lock(&self.given).take() {
                return Some(job);
            }
            let mut state = lock(&self.crew.state);
            if let Some(at) = state.idle.iter().position(|idle| Arc::ptr_eq(&idle.given, &self.given)) {
                // Park may return early; then the thread leaves early, and no harm is done.
                state.idle.remove(at);
                state.alive -= 1;
                return None;
            }
            // It was chosen meanwhile: the job is there, or about to be.
        }
    }

    /// Ties the thread to a CPU, or lets it go anywhere.
    pub(crate) fn pin(&mut self, cpu: Option<u16>) {
        if self.cpu == cpu {
            return;
        }
        self.cpu = cpu;
        let mut own = CpuSet::new();
        // A CPU that is offline cannot be chosen; its queue is never used.
        let _ = match (cpu, &self.any_cpu) {
            (Some(cpu), _) => {
                own.set(usize::from(cpu));
                sched_setaffinity(None, &own)
            }
            (None, Some(any)) => sched_setaffinity(None, any),
            (None, None) => Ok(()),
        };
    }

    /// Answers the request in an entry, and those that follow while the entry is kept.
    fn answer(&mut self, mut entry: Entry, mut others: usize) {
        let mount = Arc::clone(&entry.mount);
        let mut keeper: Option<Keeper> = None;
        let mut under_way = Some(UnderWay(&mount.shared.under_way));
        loop {
            let in_queue = mount.make_room(entry.queue, others, keeper.is_some());
            if let Some(membership) = keeper.as_ref().and_then(|keeper| keeper.membership.as_ref()) {
                membership.request(in_queue);
            }
            self.pin((!entry.is_bulk()).then_some(entry.queue));
            let commit_id = entry.answer();
            mount.answered(entry.queue);
            self.keep(&entry, &mut keeper);
            if keeper.is_none() {
                entry.shrink();
                porter::commit(entry, commit_id);
                return;
            }
            // What it serves from now on takes no thread from others.
            under_way.take();
            if let Some(membership) = keeper.as_ref().and_then(|keeper| keeper.membership.as_ref()) {
                membership.answers();
            }
            match self.commit_and_wait(&entry, commit_id) {
                Ok(0) => others = mount.given(entry.queue),
                Ok(error) if entry::is_end(error) => {
                    mount.shared.end();
                    return;
                }
                // Either the reply was for a request that was aborted meanwhile, or is malformed, and the kernel has
                // taken the entry back; or the ring can no longer be asked and the kernel may still have the entry.
                failed => {
                    drop(keeper);
                    self.ring = None;
                    let error = failed.map_or_else(|error| error, |error| io::Error::from_raw_os_error(-error));
                    let queue = entry.queue;
                    if mount.lost(entry, &error) {
                        thread::sleep(RETRY_AFTER);
                        if let Err(error) = mount.add(queue) {
                            tracing::error!(%error, queue, "no memory for an entry of FUSE over io_uring");
                        }
                    }
                    return;
                }
            }
        }
    }

    /// Does the thread keep the entry?
    fn keep(&mut self, entry: &Entry, keeper: &mut Option<Keeper>) {
        if keeper.is_some() && self.crew.keepers.load(Ordering::Relaxed) < KEEPERS_MANY {
            return;
        }
        if !entry.mount.heat.count() {
            *keeper = None;
            return;
        }
        if keeper.is_none() && self.has_ring() {
            *keeper = Keeper::new(self.crew, entry);
        }
    }

    fn has_ring(&mut self) -> bool {
        if self.ring.is_none() {
            // The thread that makes a single-issuer ring is the one that may use it.
            self.ring = new_ring(OWN_RING, 2 * OWN_RING).inspect_err(|error| tracing::debug!(%error, "no ring for a FUSE thread")).ok();
        }
        self.ring.is_some()
    }

    fn commit_and_wait(&mut self, entry: &Entry, commit_id: u64) -> io::Result<i32> {
        let ring = self.ring.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        entry::push(ring, &entry.commit(commit_id))?;
        entry::wait(ring)
    }
}
