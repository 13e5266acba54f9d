//! Keeps virtual CPUs from halting while requests come.
//!
//! # Theory
//! Who has his answer is woken on an idle CPU if there is one, since the one on which he asked is still busy with us. An idle virtual
//! CPU is halted, and to start it again takes the hypervisor 30 to 50 µs: several times what the request itself costs. The kernel's
//! own cure is to look around for a while before it halts (the `haltpoll` governor, `guest_halt_poll_ns`). Where that is switched off
//! we do the same: a thread for each CPU that spins as long as the queue of this CPU had a request just now.
//!
//! The threads are of the idle class (`SCHED_IDLE`): whoever has work preempts them at once, and for the scheduler a CPU that only
//! they use is idle. So they take time from nobody in this machine; what they cost is the power of a virtual CPU for the time of a burst
//! of requests and [`LINGER`] beyond.
//!
//! Measured on two virtual CPUs: a request and its answer took 35 to 45 µs without, 12 µs with it (and 12 µs with `haltpoll`). It is only done
//! where it was asked for: a program that mixes requests with work of its own (test 12) came to a third of its speed with it, why is
//! not understood.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};

/// How long a CPU is kept awake after a request: longer than a small write takes to get to a disk.
const LINGER: Duration = Duration::from_micros(300);
/// Requests that wake a thread which sleeps: those that come now and then are not worth it.
const BURST: u64 = 4;
/// Looks at the clock are so many spins apart.
const SPINS: u32 = 50;

/// One thread for each CPU, for all sessions of the process; they last as long as it.
#[derive(Debug)]
pub(crate) struct Awake(Vec<Cpu>);

/// Each on cache lines of its own: they are written at every request.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Cpu {
    requests: AtomicU64,
    /// The thread sleeps until there were so many requests; 0: it is awake.
    sleeps_until: AtomicU64,
    thread: OnceLock<Thread>,
}

impl Awake {
    /// That of this process, for machines with up to so many CPUs; `None` where it would be of no use.
    pub(crate) fn shared(cpus: u16) -> Option<&'static Awake> {
        static SHARED: OnceLock<Option<&'static Awake>> = OnceLock::new();
        *SHARED.get_or_init(|| (cpus > 1 && is_needed()).then(|| Awake::start(cpus)))
    }

    fn start(cpus: u16) -> &'static Awake {
        let awake: &'static Awake = Box::leak(Box::new(Awake((0..cpus).map(|_| Cpu::default()).collect())));
        for (number, cpu) in awake.0.iter().enumerate() {
            match thread::Builder::new().name(format!("awake-{number}")).spawn(move || cpu.keep_awake(number)) {
                Ok(thread) => {
                    let _ = cpu.thread.set(thread.thread().clone());
                }
                Err(error) => tracing::info!(%error, number, "no thread that keeps this CPU awake"),
            }
        }
        awake
    }

    /// A request came on this CPU.
    pub(crate) fn request(&self, cpu: u16) {
        let Some(cpu) = self.0.get(usize::from(cpu)) else { return };
        let requests = cpu.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let until = cpu.sleeps_until.load(Ordering::Relaxed);
        if until != 0 && requests >= until && cpu.sleeps_until.swap(0, Ordering::AcqRel) != 0 {
            cpu.thread.get().inspect(|thread| thread.unpark());
        }
    }
}

impl Cpu {
    fn keep_awake(&self, number: usize) {
        let mut own = CpuSet::new();
        own.set(number);
        // A thread that could not be tied to its CPU (it is offline), or would take time from others, does not spin.
        if sched_setaffinity(None, &own).is_err() || !give_way() {
            return;
        }
        loop {
            self.sleeps_until.store(self.requests.load(Ordering::Relaxed) + BURST, Ordering::Release);
            while self.sleeps_until.load(Ordering::Acquire) != 0 {
                thread::park();
            }
            self.spin();
        }
    }

    /// Returns when there was no request for a while.
    fn spin(&self) {
        let (mut seen, mut since) = (self.requests.load(Ordering::Relaxed), Instant::now());
        loop {
            for _ in 0..SPINS {
                std::hint::spin_loop();
            }
            let now = Instant::now();
            let requests = self.requests.load(Ordering::Relaxed);
            if requests != seen {
                (seen, since) = (requests, now);
            } else if now.duration_since(since) > LINGER {
                return;
            }
        }
    }
}

/// Is this a virtual machine in which halted CPUs wake up slowly?
fn is_needed() -> bool {
    let in_guest = std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.lines().any(|line| line.starts_with("flags") && line.contains(" hypervisor")));
    let polls = std::fs::read_to_string("/sys/module/haltpoll/parameters/guest_halt_poll_ns").is_ok_and(|text| text.trim() != "0");
    in_guest && !polls
}

/// Puts this thread into the idle class.
fn give_way() -> bool {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: 0 is the calling thread; the kernel reads the parameters during the call.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until(what: &str, condition: impl Fn() -> bool) {
        let limit = Instant::now() + Duration::from_secs(20);
        while !condition() {
            assert!(Instant::now() < limit, "{what}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_burst_of_requests_wakes_the_thread_and_it_goes_to_sleep_again() {
        let awake = Awake::start(1);
        let sleeps_until = || awake.0[0].sleeps_until.load(Ordering::SeqCst);
        until("the thread does not sleep at first", || sleeps_until() == BURST);
        (1..BURST).for_each(|_| awake.request(0));
        assert_eq!(sleeps_until(), BURST, "woken too early");
        awake.request(0);
        until("the thread does not sleep again", || sleeps_until() == 2 * BURST);
        // There may be more CPUs than queues were counted.
        awake.request(9);
    }
}
