//! Lets the time pass that a model asks for.
//!
//! # Theory
//!
//! Whoever asks for something is held until it is done. For a rotating disk one thread is the arm: it looks at what
//! waits, takes the request that it reaches first, and sleeps until that is done. Times are kept as the model has them,
//! so a sleep that takes too long delays one request and not all that follow.
//!
//! # Locks
//!
//! One mutex holds everything; nobody sleeps, or touches the file, with it held.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::flash::Channels;
use super::rotating::Arm;
use super::{Kind, Model, Rotating};

thread_local! {
    /// Made when a thread first sleeps: from then on it wakes when it asked to.
    static PRECISE: () = {
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    };
}

/// The cache takes what comes at this rate.
const INTERFACE_BYTES_PER_SECOND: f64 = 300e6;

#[derive(Debug, Clone, Copy, PartialEq)]
struct Request {
    number: u64,
    offset: u64,
    bytes: u64,
    is_read: bool,
    arrival: f64,
    /// Nobody waits for it: it is in the write cache.
    cached: bool,
}

struct State {
    arm: Arm,
    waiting: Vec<Request>,
    /// The one that the arm is at.
    current: Option<Request>,
    channels: Option<Channels>,
    /// Somebody waits until the cache is empty.
    flushes: usize,
    next: u64,
    over: bool,
}

/// What the threads share.
struct Shared {
    model: Model,
    disk_bytes: u64,
    began: Instant,
    /// guards: everything that changes
    state: Mutex<State>,
    /// Something came, or it is over.
    came: Condvar,
    /// A request is done.
    done: Condvar,
    requests: AtomicU64,
}

/// The clockwork of one disk.
pub(super) struct Timing {
    shared: Arc<Shared>,
    arm: Option<std::thread::JoinHandle<()>>,
}

impl Timing {
    pub(super) fn new(model: Model, disk_bytes: u64) -> Timing {
        let channels = match &model.kind {
            Kind::Flash(disk) => Some(Channels::new(disk)),
            Kind::Rotating(_) => None,
        };
        let arm = Arm { place: 0, free_at: 0.0, reading: false };
        let state = State { arm, waiting: Vec::new(), current: None, channels, flushes: 0, next: 0, over: false };
        let shared = Shared {
            model,
            disk_bytes,
            began: Instant::now(),
            state: Mutex::new(state),
            came: Condvar::new(),
            done: Condvar::new(),
            requests: AtomicU64::new(0),
        };
        let shared = Arc::new(shared);
        let arm = matches!(shared.model.kind, Kind::Rotating(_)).then(|| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || shared.move_arm())
        });
        Timing { shared, arm }
    }

    /// Requests so far.
    pub(super) fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }

    /// The time that [`Timing::pass`] counts from.
    pub(super) fn now(&self) -> f64 {
        self.shared.now()
    }

    /// Returns when a request that came at `arrival` is done.
    pub(super) fn pass(&self, arrival: f64, offset: u64, bytes: u64, is_read: bool) {
        self.shared.requests.fetch_add(1, Ordering::Relaxed);
        match &self.shared.model.kind {
            Kind::Rotating(disk) => self.shared.wait_for_arm(disk, arrival, offset, bytes, is_read),
            Kind::Flash(disk) => {
                let mut state = self.shared.state.lock();
                let done = state.channels.as_mut().map_or(arrival, |channels| channels.take(disk, bytes, is_read, arrival));
                drop(state);
                self.shared.sleep_until(done);
            }
        }
    }

    /// Returns when everything that was written before is on the disk.
    pub(super) fn flush(&self) {
        match &self.shared.model.kind {
            Kind::Rotating(_) => self.shared.wait_for_cache(),
            Kind::Flash(disk) => {
                let now = self.shared.now();
                let done = self.shared.state.lock().channels.as_ref().map_or(now, |channels| channels.flush(disk, now));
                self.shared.sleep_until(done);
            }
        }
    }
}

impl Drop for Timing {
    fn drop(&mut self) {
        self.shared.state.lock().over = true;
        self.shared.came.notify_all();
        self.shared.done.notify_all();
        if let Some(arm) = self.arm.take() {
            let _ = arm.join();
        }
    }
}

impl Shared {
    fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    fn sleep_until(&self, time: f64) {
        let left = time - self.now();
        if left > 0.0 {
            // Otherwise the kernel lets sleepers lie for 50 us more. Once for each thread.
            PRECISE.with(|()| ());
            std::thread::sleep(Duration::from_secs_f64(left));
        }
    }

    fn wait_for_arm(&self, disk: &Rotating, arrival: f64, offset: u64, bytes: u64, is_read: bool) {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        let cached_bytes: u64 =
            state.waiting.iter().chain(&state.current).filter(|request| request.cached).map(|request| request.bytes).sum();
        let cached = !is_read && cached_bytes + bytes <= disk.write_cache_bytes;
        let held =
            |request: &Request| request.cached && request.offset <= offset && offset + bytes <= request.offset + request.bytes;
        if is_read && state.waiting.iter().chain(&state.current).any(held) {
            drop(state);
            return self.sleep_until(arrival + bytes as f64 / INTERFACE_BYTES_PER_SECOND);
        }
        state.waiting.push(Request { number, offset, bytes, is_read, arrival, cached });
        self.came.notify_one();
        if cached {
            drop(state);
            return self.sleep_until(arrival + disk.overhead.as_secs_f64() + bytes as f64 / INTERFACE_BYTES_PER_SECOND);
        }
        let is_mine = |request: &Request| request.number == number;
        while !state.over && (state.waiting.iter().any(is_mine) || state.current.as_ref().is_some_and(is_mine)) {
            self.done.wait(&mut state);
        }
    }

    fn wait_for_cache(&self) {
        let mut state = self.state.lock();
        let before = state.next;
        let is_cached = |request: &Request| request.cached && request.number < before;
        state.flushes += 1;
        self.came.notify_one();
        while !state.over && (state.waiting.iter().any(is_cached) || state.current.as_ref().is_some_and(is_cached)) {
            self.done.wait(&mut state);
        }
        state.flushes -= 1;
    }

    /// The request that the arm reaches first; what is only cached comes after what somebody waits for.
    fn choose(&self, disk: &Rotating, state: &State) -> Option<usize> {
        let somebody_waits = state.flushes == 0 && state.waiting.iter().any(|request| !request.cached);
        let candidates =
            state.waiting.iter().enumerate().filter(|(_, request)| !somebody_waits || !request.cached).take(disk.queue.max(1));
        let done_at = |request: &Request| {
            disk.done_at(&state.arm, request.offset, request.bytes, request.is_read, request.arrival, self.disk_bytes)
                - disk.transfer(request.bytes)
        };
        candidates.min_by(|(_, one), (_, other)| done_at(one).total_cmp(&done_at(other))).map(|(index, _)| index)
    }

    fn move_arm(&self) {
        let Kind::Rotating(disk) = &self.model.kind else { return };
        loop {
            let done = {
                let mut state = self.state.lock();
                let index = loop {
                    if state.over {
                        return;
                    }
                    match self.choose(disk, &state) {
                        Some(index) => break index,
                        None => self.came.wait(&mut state),
                    }
                };
                let request = state.waiting.remove(index);
                state.current = Some(request);
                let Request { offset, bytes, is_read, arrival, .. } = request;
                let done = disk.done_at(&state.arm, offset, bytes, is_read, arrival, self.disk_bytes);
                state.arm = disk.arm_after(&state.arm, offset, bytes, is_read, done);
                done
            };
            self.sleep_until(done);
            self.state.lock().current = None;
            self.done.notify_all();
        }
    }
}
