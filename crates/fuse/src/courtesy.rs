//! Threads that answer requests make way for whoever asked, while CPUs are not short.
//!
//! # Theory
//! Who has his answer is woken on a CPU that has nothing to do, if there is one; and the one on which he asked has something to do: it
//! runs us. So in a burst of requests the caller is sent from CPU to CPU, and each time one has to be woken that sleeps, which takes a
//! virtual machine 30 to 50 µs, several times what the request itself costs. But a CPU that only runs threads of the idle class
//! (`SCHED_IDLE`) counts as one that has nothing to do: answered by such a thread, the caller stays where he is and goes on at once.
//!
//! A thread of the idle class may have to wait very long where others want the CPU. So the threads of a queue are in it only
//! during a burst, and only as long as a *canary*, a thread of this class on the same CPU, runs whenever it is asked to. A guard, which is
//! of the ordinary class, asks every [`TICK`]; without an answer, or at the end of the burst, it takes the threads back. So a
//! request is served late by two ticks at most, once, when others begin to use the CPU in the middle of a burst.
//!
//! Where many ask at the same time no CPU has nothing to do, whoever answers. There it only costs: changing the class of dozens of threads, which then wait for
//! all others. (64 and 128 synchronous writers on two CPUs, beside programs that compile: 1.5 and 1.9 times as many writes without.)
//!
//! A thread is made in the class of its maker. So whoever is about to make one leaves the idle class first ([`claim_cpu`]): nobody would take back a
//! thread that serves no queue, and the rest of the machine could keep it from the CPU for as long as it liked, whatever it holds.
//!
//! A thread of the idle class must have the CPU to end, too: killed on a machine where others want it, the process would stay, with the
//! disks that it has locked. So the canary is of this class only while it is asked.
//!
//! To take a thread back takes a right (`CAP_SYS_NICE`, or `RLIMIT_NICE`): without it nothing is done.
//!
//! Measured on two virtual CPUs: a request and its answer took 35 to 45 µs without, 9 to 12 µs with it.
//!
//! # Invariants
//! 1. A thread that is in the idle class, or about to be, says so ([`Member::gives_way`]) before it is; the guard does not sleep while one
//!    does.
//! 2. A member's thread lives as long as it is in the list of its queue.
//! 3. The canary is asked again only when it has answered.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use rustix::thread::{CpuSet, gettid, sched_setaffinity};

/// How often the guard looks.
const TICK: Duration = Duration::from_millis(4);
/// So many requests of one queue between two looks begin a burst; so many wake the guard. Requests that come slower wait for disks:
/// there is little to gain, and on a busy machine a thread that wakes up in the idle class waits for the guard.
const BURST: u64 = 12;
/// Fewer end it.
const BURST_MIN: u64 = 6;
/// A queue of which more requests are under way is a crowd's.
const CROWD: usize = 3;
/// Looks without any request after which a burst has ended.
const QUIET_TICKS: u32 = 3;
/// Looks that the canary must have answered, one after the other, before threads make way again.
const CALM_TICKS: u32 = 3;

/// The guard's view of all queues; one for the process, which lasts as long as it.
#[derive(Debug)]
pub(crate) struct Courtesy {
    queues: Vec<Queue>,
    guard: OnceLock<Thread>,
    /// The guard sleeps until a queue has had a burst.
    sleeps: AtomicBool,
}

/// The requests of one CPU, and the threads that serve them. On cache lines of its own: it is written at every request.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Queue {
    requests: AtomicU64,
    /// The most that were under way at a time since the guard's last look.
    crowd: AtomicUsize,
    /// Its threads are to be in the idle class.
    gives_way: AtomicBool,
    members: Mutex<Vec<Arc<Member>>>,
    canary: OnceLock<Thread>,
    /// The canary's number; 0: there is none that could answer.
    canary_thread: AtomicI32,
    asked: AtomicU64,
    answered: AtomicU64,
}

/// A thread that serves a queue.
#[derive(Debug)]
struct Member {
    thread: libc::pid_t,
    gives_way: AtomicBool,
}

thread_local! {
    /// The calling thread, if it serves a queue.
    static OWN: RefCell<Option<Arc<Member>>> = const { RefCell::new(None) };
}

/// The calling thread does not make way for others any more, until its next request: for who is about to start another thread, which would be of the same
/// class for ever.
pub fn claim_cpu() {
    OWN.with_borrow(|own| own.iter().for_each(|member| member.stop_giving_way()));
}

/// The membership of the thread that has it.
pub(crate) struct Membership {
    courtesy: &'static Courtesy,
    queue: u16,
    member: Arc<Member>,
}

/// What the guard remembers of a queue from one look to the next.
#[derive(Debug, Default)]
struct Watch {
    requests: u64,
    quiet: u32,
    calm: u32,
}

impl Courtesy {
    /// That of this process, for machines with up to so many CPUs; `None` where it would be of no use, or cannot be.
    pub(crate) fn shared(cpus: u16) -> Option<&'static Courtesy> {
        static SHARED: OnceLock<Option<&'static Courtesy>> = OnceLock::new();
        *SHARED.get_or_init(|| (cpus > 1 && can_be_taken_back()).then(|| Courtesy::start(cpus)).flatten())
    }

    fn start(cpus: u16) -> Option<&'static Courtesy> {
        let queues = (0..cpus).map(|_| Queue::default()).collect();
        let courtesy: &'static Courtesy = Box::leak(Box::new(Courtesy { queues, guard: OnceLock::new(), sleeps: AtomicBool::new(false) }));
        for (number, queue) in courtesy.queues.iter().enumerate() {
            let canary = thread::Builder::new().name(format!("canary-{number}")).spawn(move || queue.sing(number));
            let _ = queue.canary.set(canary.ok()?.thread().clone());
        }
        let guard = thread::Builder::new().name("fuse-guard".to_owned()).spawn(|| courtesy.watch());
        let _ = courtesy.guard.set(guard.ok()?.thread().clone());
        Some(courtesy)
    }

    /// The calling thread serves this queue from now on.
    pub(crate) fn join(&'static self, queue: u16) -> Option<Membership> {
        let member = Arc::new(Member { thread: gettid().as_raw_nonzero().get(), gives_way: AtomicBool::new(false) });
        self.queues.get(usize::from(queue))?.members().push(Arc::clone(&member));
        OWN.set(Some(Arc::clone(&member)));
        Some(Membership { courtesy: self, queue, member })
    }

    /// The guard.
    fn watch(&self) {
        let mut watches: Vec<Watch> = self.queues.iter().map(|_| Watch::default()).collect();
        loop {
            let mut busy = false;
            for (queue, watch) in self.queues.iter().zip(&mut watches) {
                busy |= queue.look(watch);
            }
            if busy {
                thread::sleep(TICK);
                continue;
            }
            self.sleeps.store(true, Ordering::SeqCst);
            while self.sleeps.load(Ordering::SeqCst) {
                thread::park();
            }
        }
    }
}

impl Member {
    /// It is of the ordinary class again.
    fn stop_giving_way(&self) {
        if self.gives_way.load(Ordering::SeqCst) && set_class(self.thread, libc::SCHED_OTHER) {
            self.gives_way.store(false, Ordering::SeqCst);
        }
    }
}

impl Queue {
    fn members(&self) -> MutexGuard<'_, Vec<Arc<Member>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One look of the guard; says whether there must be a next one.
    fn look(&self, watch: &mut Watch) -> bool {
        let requests = self.requests.load(Ordering::Relaxed);
        let came = requests - std::mem::replace(&mut watch.requests, requests);
        watch.quiet = if came == 0 { watch.quiet + 1 } else { 0 };
        let (asked, canary) = (self.asked.load(Ordering::Relaxed), self.canary_thread.load(Ordering::Acquire));
        watch.calm = if self.answered.load(Ordering::Acquire) == asked { watch.calm + 1 } else { 0 };
        if watch.calm == 0 && canary != 0 {
            // It waits for the CPU: others want it.
            set_class(canary, libc::SCHED_OTHER);
        }
        let burst = watch.quiet < QUIET_TICKS;
        let is_crowd = self.crowd.swap(0, Ordering::Relaxed) > CROWD;
        let may = watch.calm >= CALM_TICKS && !is_crowd;
        let gives_way = canary != 0 && may && burst && (came >= BURST || came >= BURST_MIN && self.gives_way.load(Ordering::Relaxed));
        self.gives_way.store(gives_way, Ordering::SeqCst);
        if burst && watch.calm > 0 && canary != 0 && set_class(canary, libc::SCHED_IDLE) {
            self.asked.store(asked + 1, Ordering::Release);
            self.canary.get().inspect(|canary| canary.unpark());
        }
        if !gives_way {
            self.take_back();
        }
        burst || self.members().iter().any(|member| member.gives_way.load(Ordering::SeqCst))
    }

    /// All threads are of the ordinary class again.
    fn take_back(&self) {
        self.members().iter().for_each(|member| member.stop_giving_way());
    }

    /// The canary.
    fn sing(&self, cpu: usize) {
        let mut own = CpuSet::new();
        own.set(cpu);
        // On a CPU that is offline nobody answers: threads stay as they are.
        if sched_setaffinity(None, &own).is_err() {
            return;
        }
        self.canary_thread.store(gettid().as_raw_nonzero().get(), Ordering::Release);
        loop {
            thread::park();
            let asked = self.asked.load(Ordering::Acquire);
            if self.answered.load(Ordering::Relaxed) != asked {
                set_class(0, libc::SCHED_OTHER);
                self.answered.store(asked, Ordering::Release);
            }
        }
    }
}

impl Membership {
    /// A request came, and is to be answered by this thread; so many of its queue are under way.
    pub(crate) fn request(&self, under_way: usize) {
        let queue = &self.courtesy.queues[usize::from(self.queue)];
        if under_way > queue.crowd.load(Ordering::Relaxed) {
            queue.crowd.store(under_way, Ordering::Relaxed);
        }
        let requests = queue.requests.fetch_add(1, Ordering::Relaxed);
        if requests.is_multiple_of(BURST) && self.courtesy.sleeps.load(Ordering::Relaxed) && self.courtesy.sleeps.swap(false, Ordering::SeqCst) {
            self.courtesy.guard.get().inspect(|guard| guard.unpark());
        }
        if queue.gives_way.load(Ordering::Relaxed) && !self.member.gives_way.load(Ordering::Relaxed) {
            self.give_way(queue);
        }
    }

    #[cold]
    fn give_way(&self, queue: &Queue) {
        self.member.gives_way.store(true, Ordering::SeqCst);
        set_class(0, libc::SCHED_IDLE);
        // The guard may have looked in between.
        if !queue.gives_way.load(Ordering::SeqCst) {
            self.member.stop_giving_way();
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.courtesy.queues[usize::from(self.queue)].members().retain(|member| !Arc::ptr_eq(member, &self.member));
        self.member.stop_giving_way();
        OWN.set(None);
    }
}

/// May a thread of this process leave the idle class again?
fn can_be_taken_back() -> bool {
    #[allow(clippy::disallowed_methods)] // a try on the real scheduler; it ends at once
    let tried = thread::spawn(|| set_class(0, libc::SCHED_IDLE) && set_class(0, libc::SCHED_OTHER));
    tried.join().unwrap_or(false)
}

/// Puts a thread of this process (0: the calling one) into a class; says whether it is there.
fn set_class(thread: libc::pid_t, class: libc::c_int) -> bool {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel reads the parameters during the call.
    unsafe { libc::sched_setscheduler(thread, class, &raw const parameters) == 0 }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // real threads and clocks are what is tested
mod tests {
    use std::time::Instant;

    use super::*;

    fn until(what: &str, condition: impl Fn() -> bool) {
        let limit = Instant::now() + Duration::from_secs(60);
        while !condition() {
            assert!(Instant::now() < limit, "{what}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn class(thread: libc::pid_t) -> libc::c_int {
        // SAFETY: no pointers.
        unsafe { libc::sched_getscheduler(thread) }
    }

    /// A thread that is asked all the time, and its number.
    fn served(courtesy: &'static Courtesy, ends: &Arc<AtomicBool>, pause: &Arc<AtomicBool>) -> (thread::JoinHandle<()>, libc::pid_t) {
        let (ends, pause, (tell, told)) = (Arc::clone(ends), Arc::clone(pause), std::sync::mpsc::channel());
        let thread = thread::spawn(move || {
            let membership = courtesy.join(0).expect("there is a queue");
            tell.send(membership.member.thread).expect("somebody waits");
            while !ends.load(Ordering::SeqCst) {
                if !pause.load(Ordering::SeqCst) {
                    membership.request(1);
                }
                thread::sleep(Duration::from_micros(100));
            }
        });
        let number = told.recv().expect("it starts");
        (thread, number)
    }

    #[test]
    fn threads_make_way_in_a_burst_and_come_back_at_its_end_or_when_others_want_the_cpu() {
        if !can_be_taken_back() {
            println!("SKIPPED: threads that make way: this process may not leave the idle class");
            return;
        }
        let courtesy = Courtesy::start(1).expect("threads can be started");
        let (ends, pause, hog) = (Arc::default(), Arc::default(), Arc::new(AtomicBool::new(false)));
        let (thread, number) = served(courtesy, &ends, &pause);
        until("the thread does not make way in a burst", || class(number) == libc::SCHED_IDLE);
        pause.store(true, Ordering::SeqCst);
        until("the thread stays in the idle class after the burst", || class(number) == libc::SCHED_OTHER);
        until("the guard does not sleep", || courtesy.sleeps.load(Ordering::SeqCst));
        // Found with a hundred programs beside it: the daemon, killed, lived on for minutes, since the canary had to have the CPU to end.
        let canary = courtesy.queues[0].canary_thread.load(Ordering::SeqCst);
        assert!(canary != 0);
        until("the canary stays in the idle class", || class(canary) == libc::SCHED_OTHER);
        pause.store(false, Ordering::SeqCst);
        until("the thread does not make way in a second burst", || class(number) == libc::SCHED_IDLE);
        let wanted = Arc::clone(&hog);
        hog.store(true, Ordering::SeqCst);
        let other = thread::spawn(move || {
            let mut own = CpuSet::new();
            own.set(0);
            sched_setaffinity(None, &own).expect("there is a CPU 0");
            while wanted.load(Ordering::SeqCst) {
                std::hint::spin_loop();
            }
        });
        until("the thread makes way although another uses the CPU", || class(number) == libc::SCHED_OTHER);
        hog.store(false, Ordering::SeqCst);
        other.join().expect("the other one ends");
        until("the thread does not make way when the CPU is free again", || class(number) == libc::SCHED_IDLE);
        ends.store(true, Ordering::SeqCst);
        thread.join().expect("the thread ends");
        assert!(courtesy.queues[0].members().is_empty());
    }

    #[test]
    fn in_a_crowd_nobody_makes_way() {
        if !can_be_taken_back() {
            println!("SKIPPED: threads that make way: this process may not leave the idle class");
            return;
        }
        let courtesy = Courtesy::start(1).expect("threads can be started");
        thread::spawn(move || {
            let membership = courtesy.join(0).expect("there is a queue");
            let burst_of = |under_way| (0..2 * BURST).for_each(|_| membership.request(under_way));
            until("the thread does not make way for a few", || {
                burst_of(CROWD);
                class(0) == libc::SCHED_IDLE
            });
            until("the thread makes way in a crowd", || {
                burst_of(CROWD + 1);
                class(0) == libc::SCHED_OTHER
            });
        })
        .join()
        .expect("it says nothing else");
    }

    /// Found on a machine where many compiled: what a mount's thread had started, another of its kind, or one that writes ahead of the log and
    /// holds a group meanwhile, was of the idle class for ever, and came to nothing.
    #[test]
    fn who_is_started_in_a_burst_does_not_give_way_for_ever() {
        if !can_be_taken_back() {
            println!("SKIPPED: threads that make way: this process may not leave the idle class");
            return;
        }
        let courtesy = Courtesy::start(1).expect("threads can be started");
        let class_of_new = || thread::spawn(|| class(0)).join().expect("it ends");
        thread::spawn(move || {
            let membership = courtesy.join(0).expect("there is a queue");
            let make_way = || {
                until("the thread does not make way in a burst", || {
                    (0..2 * BURST).for_each(|_| membership.request(1));
                    class(0) == libc::SCHED_IDLE
                });
            };
            make_way();
            claim_cpu();
            assert_eq!((class(0), class_of_new()), (libc::SCHED_OTHER, libc::SCHED_OTHER));
            make_way();
        })
        .join()
        .expect("it says nothing else");
        claim_cpu();
        assert_eq!(class(0), libc::SCHED_OTHER, "a thread that serves nobody is what it was");
    }
}
