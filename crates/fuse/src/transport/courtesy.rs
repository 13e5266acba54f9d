//! Server threads that yield their CPU to the caller they have just answered, while CPUs are plentiful.
//!
//! # Theory
//! The scheduler wakes an answered caller on an idle CPU if there is one. The CPU on which the caller asked is not
//! idle: it runs the server thread. So in a burst of requests the caller moves from CPU to CPU, and each move wakes a
//! sleeping CPU, which takes a virtual machine 30 to 50 µs, several times the cost of the request. But a CPU that only
//! runs threads of the idle class (`SCHED_IDLE`) counts as idle: a caller answered by such a thread stays where it is
//! and goes on at once.
//!
//! A thread of the idle class may wait very long when others want the CPU. So the threads of a queue are in that class
//! only during a burst, and only while a *probe*, a thread of the same class on the same CPU, runs whenever it is
//! asked to. A guard thread of the ordinary class asks it every [`TICK`]. Without an answer, or at the end of the
//! burst, the guard takes the threads back. So when others begin to use the CPU in the middle of a burst, one request
//! is at most two ticks late.
//!
//! When many callers ask at the same time, no CPU is idle, and yielding only costs: dozens of threads change class and
//! then wait for all others. (64 and 128 synchronous writers on two CPUs, beside compilers, did 1.5 and 1.9 times as
//! many writes without it.)
//!
//! A thread that waits for a disk would come back behind all others, as late as two ticks. So a thread leaves the idle
//! class before it does ([`claim_cpu`]), and enters it again just before it answers. Where many requests wait, the CPU is
//! busy with them, and nobody yields.
//!
//! A new thread inherits the class of its creator. So a thread leaves the idle class before it creates another one, too:
//! the guard does not know threads that serve no queue, and one left in the idle class could be kept from the CPU for
//! ever with everything that it holds.
//!
//! A thread also needs the CPU to end. A probe left in the idle class on a busy machine would keep a killed process
//! alive, with the disks that it has locked. So a probe is in that class only while it is asked.
//!
//! To take a thread back needs a right (`CAP_SYS_NICE` or `RLIMIT_NICE`). Without it no thread ever yields.
//!
//! Measured on two virtual CPUs: a request with its answer took 35 to 45 µs without yielding, 9 to 12 µs with it.
//!
//! # Invariants
//! 1. A thread says that it is in the idle class ([`Member::gives_way`]) before it enters it. The guard does not sleep
//!    while any thread says so.
//! 2. A member's thread lives as long as the member is in its queue's list.
//! 3. The probe is asked again only after it has answered.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use rustix::thread::{CpuSet, gettid, sched_setaffinity};

/// The interval between two looks of the guard.
const TICK: Duration = Duration::from_millis(4);
/// The requests of one queue between two looks that begin a burst, and also the number that wakes the guard. Slower
/// requests wait for disks: there is little to gain, and on a busy machine a thread that wakes up in the idle class
/// waits for the guard. (A durable writer asks 16 times. With 12 here he did 0.65 of what he does alone beside a
/// stream, with 40 he does 1.0, and 0.93 when he is alone.)
const BURST: u64 = 40;
/// The requests between two looks below which a burst ends.
const BURST_MIN: u64 = 30;
/// The most requests under way in a queue with which its threads still yield.
const CROWD: usize = 3;
/// One of so many requests may wait while threads still yield.
const FEW_WAIT: u64 = 16;
/// Looks without any request after which a burst has ended.
const QUIET_TICKS: u32 = 3;
/// Consecutive looks that the probe must have answered before threads yield again.
const CALM_TICKS: u32 = 3;

/// The guard's view of all queues. There is one for the process, and it is never dropped.
#[derive(Debug)]
pub(crate) struct Courtesy {
    queues: Vec<Queue>,
    guard: OnceLock<Thread>,
    /// The guard sleeps until a queue has had a burst.
    sleeps: AtomicBool,
}

/// The requests of one CPU, and the threads that serve them. Every request writes here, so each queue has cache lines
/// of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Queue {
    requests: AtomicU64,
    /// The most requests under way at a time since the guard's last look.
    crowd: AtomicUsize,
    /// How often requests waited, for a disk or another thread.
    waits: AtomicU64,
    /// Its threads are to be in the idle class.
    gives_way: AtomicBool,
    members: Mutex<Vec<Arc<Member>>>,
    probe: OnceLock<Thread>,
    /// The probe's thread id; 0 if there is no probe that could answer.
    probe_thread: AtomicI32,
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
    /// The calling thread and its queue, if it serves one.
    static OWN: RefCell<Option<(&'static Queue, Arc<Member>)>> = const { RefCell::new(None) };
}

/// Keeps the calling thread from yielding until it answers. For a thread that is about to wait, or to start another one,
/// which would inherit the idle class for good.
pub fn claim_cpu() {
    OWN.with_borrow(|own| {
        if let Some((queue, member)) = own {
            queue.waits.fetch_add(1, Ordering::Relaxed);
            member.stop_giving_way();
        }
    });
}

/// A thread's membership in its queue; the thread leaves the queue when this is dropped.
pub(crate) struct Membership {
    courtesy: &'static Courtesy,
    queue: u16,
    member: Arc<Member>,
}

/// What the guard remembers of a queue from one look to the next.
#[derive(Debug, Default)]
struct Watch {
    requests: u64,
    waits: u64,
    quiet: u32,
    calm: u32,
}

impl Courtesy {
    /// The courtesy of this process, for machines with up to `cpus` CPUs. `None` where yielding is of no use or not
    /// allowed.
    pub(crate) fn shared(cpus: u16) -> Option<&'static Courtesy> {
        static SHARED: OnceLock<Option<&'static Courtesy>> = OnceLock::new();
        *SHARED.get_or_init(|| (cpus > 1 && can_be_taken_back()).then(|| Courtesy::start(cpus)).flatten())
    }

    fn start(cpus: u16) -> Option<&'static Courtesy> {
        let queues = (0..cpus).map(|_| Queue::default()).collect();
        let courtesy: &'static Courtesy = Box::leak(Box::new(Courtesy { queues, guard: OnceLock::new(), sleeps: AtomicBool::new(false) }));
        for (number, queue) in courtesy.queues.iter().enumerate() {
            let probe = thread::Builder::new().name(format!("probe-{number}")).spawn(move || queue.answer(number));
            let _ = queue.probe.set(probe.ok()?.thread().clone());
        }
        let guard = thread::Builder::new().name("fuse-guard".to_owned()).spawn(|| courtesy.watch());
        let _ = courtesy.guard.set(guard.ok()?.thread().clone());
        Some(courtesy)
    }

    /// The calling thread serves this queue from now on.
    pub(crate) fn join(&'static self, queue: u16) -> Option<Membership> {
        let member = Arc::new(Member { thread: gettid().as_raw_nonzero().get(), gives_way: AtomicBool::new(false) });
        let joined = self.queues.get(usize::from(queue))?;
        joined.members().push(Arc::clone(&member));
        OWN.set(Some((joined, Arc::clone(&member))));
        Some(Membership { courtesy: self, queue, member })
    }

    /// The guard thread.
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
    /// Puts the thread back into the ordinary class.
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

    /// One look of the guard. Returns whether it must look again.
    fn look(&self, watch: &mut Watch) -> bool {
        let requests = self.requests.load(Ordering::Relaxed);
        let came = requests - std::mem::replace(&mut watch.requests, requests);
        let waits = self.waits.load(Ordering::Relaxed);
        let waited = waits - std::mem::replace(&mut watch.waits, waits);
        watch.quiet = if came == 0 { watch.quiet + 1 } else { 0 };
        let (asked, probe) = (self.asked.load(Ordering::Relaxed), self.probe_thread.load(Ordering::Acquire));
        watch.calm = if self.answered.load(Ordering::Acquire) == asked { watch.calm + 1 } else { 0 };
        if watch.calm == 0 && probe != 0 {
            // The probe waits for the CPU: others want it.
            set_class(probe, libc::SCHED_OTHER);
        }
        let burst = watch.quiet < QUIET_TICKS;
        let is_crowd = self.crowd.swap(0, Ordering::Relaxed) > CROWD;
        let may = watch.calm >= CALM_TICKS && !is_crowd && waited * FEW_WAIT <= came;
        let gives_way = probe != 0 && may && burst && (came >= BURST || came >= BURST_MIN && self.gives_way.load(Ordering::Relaxed));
        self.gives_way.store(gives_way, Ordering::SeqCst);
        if burst && watch.calm > 0 && probe != 0 && set_class(probe, libc::SCHED_IDLE) {
            self.asked.store(asked + 1, Ordering::Release);
            self.probe.get().inspect(|probe| probe.unpark());
        }
        if !gives_way {
            self.take_back();
        }
        burst || self.members().iter().any(|member| member.gives_way.load(Ordering::SeqCst))
    }

    /// Puts all threads back into the ordinary class.
    fn take_back(&self) {
        self.members().iter().for_each(|member| member.stop_giving_way());
    }

    /// The probe thread.
    fn answer(&self, cpu: usize) {
        let mut own = CpuSet::new();
        own.set(cpu);
        // No probe answers on a CPU that is offline, so threads there never yield.
        if sched_setaffinity(None, &own).is_err() {
            return;
        }
        self.probe_thread.store(gettid().as_raw_nonzero().get(), Ordering::Release);
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
    /// Counts a request that this thread is to answer; `under_way` requests of its queue are under way.
    pub(crate) fn request(&self, under_way: usize) {
        let queue = &self.courtesy.queues[usize::from(self.queue)];
        if under_way > queue.crowd.load(Ordering::Relaxed) {
            queue.crowd.store(under_way, Ordering::Relaxed);
        }
        let requests = queue.requests.fetch_add(1, Ordering::Relaxed);
        if requests.is_multiple_of(BURST) && self.courtesy.sleeps.load(Ordering::Relaxed) && self.courtesy.sleeps.swap(false, Ordering::SeqCst) {
            self.courtesy.guard.get().inspect(|guard| guard.unpark());
        }
    }

    /// The thread is about to answer.
    pub(crate) fn answers(&self) {
        let queue = &self.courtesy.queues[usize::from(self.queue)];
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

/// Puts a thread of this process (0: the calling one) into a class. Returns whether that worked.
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

    fn until(what: &str, mut condition: impl FnMut() -> bool) {
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

    /// A thread that is asked all the time, and its id.
    fn served(courtesy: &'static Courtesy, ends: &Arc<AtomicBool>, pause: &Arc<AtomicBool>) -> (thread::JoinHandle<()>, libc::pid_t) {
        let (ends, pause, (tell, told)) = (Arc::clone(ends), Arc::clone(pause), std::sync::mpsc::channel());
        let thread = thread::spawn(move || {
            let membership = courtesy.join(0).expect("there is a queue");
            tell.send(membership.member.thread).expect("somebody waits");
            while !ends.load(Ordering::SeqCst) {
                if !pause.load(Ordering::SeqCst) {
                    // However long a sleep takes on a busy machine, a tick with one is a burst.
                    (0..BURST).for_each(|_| membership.request(1));
                    membership.answers();
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
        // Once, beside a hundred busy programs, a killed daemon lived on for minutes, because its probe needed the CPU
        // to end.
        let probe = courtesy.queues[0].probe_thread.load(Ordering::SeqCst);
        assert!(probe != 0);
        until("the probe stays in the idle class", || class(probe) == libc::SCHED_OTHER);
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
    fn in_a_crowd_nobody_makes_way_nor_where_many_wait() {
        if !can_be_taken_back() {
            println!("SKIPPED: threads that make way: this process may not leave the idle class");
            return;
        }
        let courtesy = Courtesy::start(1).expect("threads can be started");
        thread::spawn(move || {
            let membership = courtesy.join(0).expect("there is a queue");
            let burst_of = |under_way| {
                (0..2 * BURST).for_each(|_| membership.request(under_way));
                membership.answers();
            };
            until("the thread does not make way for a few", || {
                burst_of(CROWD);
                class(0) == libc::SCHED_IDLE
            });
            until("the thread makes way in a crowd", || {
                burst_of(CROWD + 1);
                class(0) == libc::SCHED_OTHER
            });
            until("the thread does not make way again", || {
                burst_of(CROWD);
                class(0) == libc::SCHED_IDLE
            });
            // Half of the requests wait. Without heed of that it would make way before each answer.
            let mut ordinary = 0;
            until("the thread makes way where half of the requests wait", || {
                (0..BURST).for_each(|_| claim_cpu());
                burst_of(CROWD);
                ordinary = if class(0) == libc::SCHED_OTHER { ordinary + 1 } else { 0 };
                ordinary == 10
            });
        })
        .join()
        .expect("it says nothing else");
    }

    /// On a machine full of compilers, threads that a mount's thread had started inherited the idle class for good and
    /// made no progress. One of them prepared the log's blocks and held a group meanwhile.
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
                    membership.answers();
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
