//! Worker threads: those that compress and checksum, that make I/Os of leaves, that read ahead.
//!
//! # Theory
//! Threads take jobs from one bounded queue. A thread with work to share puts *helpers* into the queue and does the work
//! too: so it is done even when every worker is busy or the host has no threads (the simulation), and no thread waits for a
//! job that is still in the queue. A helper that comes late finds nothing left to do and ends.
//!
//! # Invariants
//! 1. `submit` never waits: a full queue refuses.
//! 2. `share` returns when all work is done, and only then; a panic in the work does not make it wait for ever.
//! 3. Dropping the executor ends the threads after the jobs that are queued.

use std::sync::Arc;

use crossbeam_channel::{Sender, TrySendError, bounded};
use parking_lot::{Condvar, Mutex};

use crate::host::{HostRef, Urgency, urgency, work_at, yield_to_others};

type Job = Box<dyn FnOnce() + Send>;

/// Jobs that may wait for a worker.
const QUEUE_JOBS_MAX: usize = 1024;

/// The worker threads of one pool.
#[derive(Debug)]
pub struct Executor {
    /// immutable; `None` when the host has no threads
    queue: Option<Sender<Job>>,
    workers: usize,
}

impl Executor {
    /// Starts `workers` threads named `name-0`, `name-1`..., if the host has threads.
    pub fn new(host: &HostRef, name: &str, workers: usize) -> Self {
        Executor::started(host, name, workers, || ())
    }

    /// As [`Executor::new`], of threads that let all others of the machine go first.
    pub fn in_background(host: &HostRef, name: &str, workers: usize) -> Self {
        Executor::started(host, name, workers, yield_to_others)
    }

    fn started(host: &HostRef, name: &str, workers: usize, begin: fn()) -> Self {
        let (queue, jobs) = bounded::<Job>(QUEUE_JOBS_MAX);
        let mut started = 0;
        for index in 0..workers {
            let jobs = jobs.clone();
            let work = Box::new(move || {
                begin();
                jobs.iter().for_each(run_guarded);
            });
            if host.spawn(&format!("{name}-{index}"), work) {
                started += 1;
            }
        }
        Executor { queue: (started > 0).then_some(queue), workers: started }
    }

    /// An executor without threads: everything is done by the caller.
    pub fn inline() -> Self {
        Executor { queue: None, workers: 0 }
    }

    /// How many threads there are.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Queues a job. `false`: no room, or no threads; the job was dropped.
    pub fn submit(&self, job: impl FnOnce() + Send + 'static) -> bool {
        let Some(queue) = &self.queue else { return false };
        match queue.try_send(Box::new(job)) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }

    /// Runs `step` on this thread and on up to `helpers` workers, and returns when this
    /// thread and all helpers that began have ended.
    pub fn share(&self, helpers: usize, step: impl Fn() + Send + Sync + 'static) {
        let lent = self.lend(helpers, step);
        (lent.0.step)();
        lent.finish();
    }

    /// Runs `step` on up to `helpers` workers while the caller does something else. When that is done, the caller waits for the helpers that began.
    pub fn lend<F: Fn() + Send + Sync + 'static>(&self, helpers: usize, step: F) -> Lent<F> {
        let team = Arc::new(Team { step, urgency: urgency(), state: Mutex::new(TeamState::default()), ended: Condvar::new() });
        for _ in 0..helpers.min(self.workers) {
            let team = Arc::clone(&team);
            if !self.submit(move || team.help()) {
                break;
            }
        }
        Lent(team)
    }

    /// As [`Executor::map`] if there is a crew; else the caller does it all.
    pub fn map_with<T, R>(crew: Option<&Arc<Executor>>, items: Vec<T>, work: impl Fn(T) -> R + Send + Sync + 'static) -> Vec<R>
    where
        T: Send + 'static,
        R: Send + 'static,
    {
        match crew {
            Some(crew) => crew.map(items, work),
            None => items.into_iter().map(work).collect(),
        }
    }

    /// `work` for each of `items`, in parallel; the results are in the order of the items.
    pub fn map<T, R>(&self, items: Vec<T>, work: impl Fn(T) -> R + Send + Sync + 'static) -> Vec<R>
    where
        T: Send + 'static,
        R: Send + 'static,
    {
        let count = items.len();
        if count <= 1 || self.workers == 0 {
            return items.into_iter().map(work).collect();
        }
        let todo = Mutex::new(items.into_iter().enumerate());
        let done: Arc<Mutex<Vec<Option<R>>>> = Arc::new(Mutex::new((0..count).map(|_| None).collect()));
        let results = Arc::clone(&done);
        self.share(count - 1, move || {
            loop {
                let next = todo.lock().next();
                let Some((index, item)) = next else { return };
                let result = work(item);
                results.lock()[index] = Some(result);
            }
        });
        let results = std::mem::take(&mut *done.lock());
        results.into_iter().map(|result| result.expect("every item was worked on")).collect()
    }
}

/// A panic in a job ends the job and not the thread; `Team` tells the thread that shared the work.
fn run_guarded(job: Job) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)).is_err() {
        tracing::error!("a job of the executor panicked");
    }
}

#[derive(Debug, Default)]
struct TeamState {
    running: usize,
    closed: bool,
    panicked: bool,
}

/// Workers that help a thread, which waits for them when this is dropped.
pub struct Lent<F: Fn()>(Arc<Team<F>>);

impl<F: Fn()> Lent<F> {
    /// Waits for the helpers that began; no other begins.
    ///
    /// # Panics
    /// A helper panicked.
    pub fn finish(self) {
        let panicked = self.0.close();
        assert!(!panicked, "a worker panicked");
    }
}

impl<F: Fn()> Drop for Lent<F> {
    fn drop(&mut self) {
        self.0.close();
    }
}

struct Team<F> {
    step: F,
    /// That of the thread which shares the work.
    urgency: Option<Urgency>,
    state: Mutex<TeamState>,
    ended: Condvar,
}

impl<F: Fn()> Team<F> {
    /// Keeps further helpers from beginning, and waits until none is at work. Returns whether one panicked.
    fn close(&self) -> bool {
        let mut state = self.state.lock();
        state.closed = true;
        while state.running > 0 {
            self.ended.wait(&mut state);
        }
        state.panicked
    }

    fn help(&self) {
        {
            let mut state = self.state.lock();
            if state.closed {
                return;
            }
            state.running += 1;
        }
        let _running = Running(self);
        let _urgent = work_at(self.urgency.clone());
        (self.step)();
    }
}

struct Running<'a, F>(&'a Team<F>);

impl<F> Drop for Running<'_, F> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.running -= 1;
        state.panicked |= std::thread::panicking();
        self.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::RealHost;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn results_are_in_order_with_and_without_threads() {
        for executor in [Executor::inline(), Executor::new(&RealHost::shared(), "test", 3)] {
            let squares = executor.map((0..1000_u64).collect(), |n| n * n);
            assert_eq!(squares, (0..1000).map(|n| n * n).collect::<Vec<u64>>());
        }
    }

    #[test]
    fn many_may_share_work_at_once() {
        let executor = Arc::new(Executor::new(&RealHost::shared(), "test", 2));
        let sum = Arc::new(AtomicUsize::new(0));
        let inner = Arc::clone(&executor);
        let counted = Arc::clone(&sum);
        executor.map((0..50).collect(), move |n: usize| {
            // Workers share again: the queue is full of helpers, and still no thread waits for ever.
            let inner_sum: usize = inner.map(vec![n; 20], |n| n).into_iter().sum();
            counted.fetch_add(inner_sum, Ordering::Relaxed);
        });
        assert_eq!(sum.load(Ordering::Relaxed), 20 * 49 * 50 / 2);
    }

    /// None of them comes past the barrier alone.
    #[test]
    fn what_is_mapped_is_done_at_the_same_time() {
        let executor = Executor::new(&RealHost::shared(), "test", 2);
        let barrier = std::sync::Barrier::new(3);
        let wait = move |number: u32| {
            barrier.wait();
            number * 2
        };
        assert_eq!(executor.map(vec![1, 2, 3], wait), [2, 4, 6]);
        assert_eq!(Executor::inline().map(vec![1, 2, 3], |number| number * 2), [2, 4, 6]);
    }

    /// A user may come to wait for the work while it is done; what the helpers do afterwards nobody waits for.
    #[test]
    fn helpers_are_as_urgent_as_the_work() {
        let executor = Executor::new(&RealHost::shared(), "test", 2);
        let (asked, urgency) = (Arc::new(Mutex::new(Vec::new())), Urgency::default());
        let ask = |asked: &Arc<Mutex<Vec<bool>>>| {
            let asked = Arc::clone(asked);
            move || asked.lock().push(crate::host::is_waited_for())
        };
        let lend = |asked: &Arc<Mutex<Vec<bool>>>| {
            let count = asked.lock().len();
            let lent = executor.lend(1, ask(asked));
            while asked.lock().len() == count {
                std::thread::yield_now();
            }
            lent.finish();
        };
        {
            let _urgent = work_at(Some(urgency.clone()));
            lend(&asked);
            urgency.set_waited_for(true);
            lend(&asked);
            let inner = work_at(None);
            assert!(!crate::host::is_waited_for());
            drop(inner);
            assert!(crate::host::is_waited_for());
        }
        (0..4).for_each(|_| lend(&asked));
        assert_eq!(*asked.lock(), [false, true, false, false, false, false]);
        assert!(urgency.is_waited_for() && !crate::host::is_waited_for());
    }

    #[test]
    fn a_full_queue_refuses() {
        let executor = Executor::new(&RealHost::shared(), "test", 1);
        let gate = Arc::new(Mutex::new(()));
        let closed = gate.lock();
        let mut accepted = 0;
        while accepted <= QUEUE_JOBS_MAX + 1 {
            let gate = Arc::clone(&gate);
            if !executor.submit(move || drop(gate.lock())) {
                break;
            }
            accepted += 1;
        }
        assert!((QUEUE_JOBS_MAX..=QUEUE_JOBS_MAX + 1).contains(&accepted), "{accepted}");
        drop(closed);
    }
}
