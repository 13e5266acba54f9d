//! Lets the time pass that a model asks for.
//!
//! # Theory
//!
//! A request is held until it is done. For a rotating disk one thread is the arm: it looks at what
//! waits, takes the request that it reaches first, says when that will be done, and sleeps until then. Times are kept as the
//! model has them, so a sleep that takes too long delays one request and not all that follow.
//!
//! A user of the disk also waits for the way to it and back ([`Way`]), which is no part of any model. It has been measured: a request
//! is taken to have come earlier by one half of it, and is answered earlier by the other half. A request that takes less than the way
//! cannot be made as fast as it ought to be. Sleepers wake late; they are woken earlier by what that usually comes to, and look at the clock for the rest.
//!
//! # Locks
//!
//! One mutex guards everything. No thread sleeps, or touches the file, while it holds it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};

use super::flash::Channels;
use super::rotating::Arm;
use super::way::Way;
use super::{Kind, Model, Rotating};

thread_local! {
    /// Made when a thread first sleeps: otherwise the kernel lets sleepers lie for 50 us more.
    static PRECISE: () = {
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    };
}

/// For so many seconds, and as long as it then takes to wake up.
pub(super) fn sleep(seconds: f64) {
    PRECISE.with(|()| ());
    std::thread::sleep(Duration::from_secs_f64(seconds));
}

/// The cache of a rotating disk takes what comes at this rate.
pub(super) const INTERFACE_BYTES_PER_SECOND: f64 = 300e6;

#[derive(Debug, Clone, Copy, PartialEq)]
struct Request {
    number: u64,
    offset: u64,
    bytes: u64,
    is_read: bool,
    arrival: f64,
    /// It is in the write cache and was answered.
    cached: bool,
}

struct State {
    arm: Arm,
    waiting: Vec<Request>,
    /// The request that the arm is at.
    current: Option<Request>,
    /// The moment at which the chosen request is done, for its waiter.
    decided: HashMap<u64, f64>,
    channels: Option<Channels>,
    /// A flush waits until the cache is empty.
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
    /// It is known when a request is done, or the cache has one less.
    done: Condvar,
    requests: AtomicU64,
    /// Every request takes so long instead: to measure the way.
    fixed: RwLock<Option<f64>>,
    /// A thread spins on the clock until it is time. One is enough: more would be in the way of those that work.
    looking: AtomicBool,
    /// guards: the time of the way; `None` until it was measured
    way: RwLock<Way>,
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
        let state = State { arm, waiting: Vec::new(), current: None, decided: HashMap::new(), channels, flushes: 0, next: 0, over: false };
        let shared = Shared {
            model,
            disk_bytes,
            began: Instant::now(),
            state: Mutex::new(state),
            came: Condvar::new(),
            done: Condvar::new(),
            requests: AtomicU64::new(0),
            fixed: RwLock::new(None),
            looking: AtomicBool::new(false),
            way: RwLock::default(),
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

    /// Answers after so many seconds, 0 for at once, or as the model says.
    pub(super) fn set_fixed(&self, seconds: Option<f64>) {
        *self.shared.fixed.write() = seconds;
    }

    /// Notes the measured time of the way.
    pub(super) fn set_way(&self, way: Way) {
        *self.shared.way.write() = way;
    }

    /// Returns when a request that came at `arrival` is to be answered.
    pub(super) fn pass(&self, arrival: f64, offset: u64, bytes: u64, is_read: bool) {
        self.shared.requests.fetch_add(1, Ordering::Relaxed);
        let half = self.shared.way.read().outside(bytes) / 2.0;
        if let Some(seconds) = *self.shared.fixed.read() {
            return self.shared.sleep_until(arrival + seconds - 2.0 * half);
        }
        let done = match &self.shared.model.kind {
            Kind::Rotating(disk) => self.shared.wait_for_arm(disk, arrival - half, offset, bytes, is_read),
            Kind::Flash(disk) => {
                let mut state = self.shared.state.lock();
                state.channels.as_mut().map_or(arrival, |channels| channels.take(disk, bytes, is_read, arrival - half))
            }
        };
        self.shared.sleep_until(done - half);
    }

    /// Returns when everything that was written before is on the disk.
    pub(super) fn flush(&self) {
        let half = self.shared.way.read().outside(0) / 2.0;
        match &self.shared.model.kind {
            Kind::Rotating(_) => self.shared.wait_for_cache(),
            Kind::Flash(disk) => {
                let now = self.shared.now() - half;
                let done = self.shared.state.lock().channels.as_ref().map_or(now, |channels| channels.flush(disk, now));
                self.shared.sleep_until(done - half);
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
        if left <= 0.0 {
            return;
        }
        let early = self.way.read().wakes_late;
        if left > early {
            sleep(left - early);
        }
        if !self.looking.swap(true, Ordering::Acquire) {
            while self.now() < time {
                std::thread::yield_now();
            }
            self.looking.store(false, Ordering::Release);
        } else if self.now() < time {
            sleep((time - self.now()).max(0.0));
        }
    }

    /// When the request is done. Returns as soon as that is known.
    fn wait_for_arm(&self, disk: &Rotating, arrival: f64, offset: u64, bytes: u64, is_read: bool) -> f64 {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        let cached_bytes: u64 =
            state.waiting.iter().chain(&state.current).filter(|request| request.cached).map(|request| request.bytes).sum();
        let cached = !is_read && cached_bytes + bytes <= disk.write_cache_bytes;
        let held =
            |request: &Request| request.cached && request.offset <= offset && offset + bytes <= request.offset + request.bytes;
        let over_the_interface = arrival + bytes as f64 / INTERFACE_BYTES_PER_SECOND;
        if is_read && state.waiting.iter().chain(&state.current).any(held) {
            return over_the_interface;
        }
        state.waiting.push(Request { number, offset, bytes, is_read, arrival, cached });
        self.came.notify_one();
        if cached {
            return arrival + disk.cached_write(bytes);
        }
        loop {
            match state.decided.remove(&number) {
                Some(done) => return done,
                None if state.over => return arrival,
                None => self.done.wait(&mut state),
            }
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

    /// The request that the arm reaches first. Cached writes come after requests that are waited for.
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
                if !request.cached {
                    state.decided.insert(request.number, done);
                    self.done.notify_all();
                }
                done
            };
            self.sleep_until(done);
            self.state.lock().current = None;
            self.done.notify_all();
        }
    }
}
