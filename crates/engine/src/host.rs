//! Time, randomness and threads.
//!
//! # Theory
//! The engine asks a [`Host`] for everything that differs from run to run, so that a simulation can give a virtual
//! clock, seeded randomness and no threads at all. `clippy.toml` bans the direct calls elsewhere.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::thread::{sched_getaffinity, sched_setaffinity};

/// The surroundings of the engine.
pub trait Host: Send + Sync {
    /// Nanoseconds of a clock that never goes back.
    fn now_ns(&self) -> u64;
    /// Seconds and nanoseconds since 1970.
    fn wall_clock(&self) -> (u64, u32);
    /// A random number, never 0 (guids).
    fn random(&self) -> u64;
    /// Sleeps; a simulated host moves its clock.
    fn sleep(&self, duration: Duration);
    /// Starts a named thread. `false`: this host has none, the caller works in its own (simulation).
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> bool;
    /// How many workers are worth having.
    fn processors(&self) -> usize;
    /// The host's name (labels).
    fn host_name(&self) -> String;
    /// The host's id (labels; 0 where there is none).
    fn host_id(&self) -> u32;
}

/// How nice a thread is that yields.
const NICE: i32 = 10;

/// Makes the calling thread as urgent as others.
static CLAIM_CPU: OnceLock<fn()> = OnceLock::new();

/// Sets how a thread of this process becomes as urgent as others. Threads that serve mounts may be in the idle class of the scheduler, and a new thread inherits
/// its maker's class. Set once.
pub fn set_cpu_claim(claim: fn()) {
    let _ = CLAIM_CPU.set(claim);
}

/// Makes the calling thread as urgent as others. To be called before it makes a thread, and before it waits for a device or for another thread: one that wakes up
/// in the idle class waits for all others as well.
pub(crate) fn claim_cpu() {
    CLAIM_CPU.get().iter().for_each(|claim| claim());
}

/// Lets this thread run on every CPU that the program may use. A thread inherits its maker's CPU, and threads that serve requests of the kernel are pinned to
/// one; it would work there beside them and their callers, while other CPUs are idle.
fn run_anywhere() {
    if let Ok(cpus) = sched_getaffinity(Some(rustix::process::getpid())) {
        // If that fails, the thread works on that one CPU.
        let _ = sched_setaffinity(None, &cpus);
    }
}

thread_local! {
    static IN_BACKGROUND: Cell<bool> = const { Cell::new(false) };
    static URGENCY: RefCell<Option<Urgency>> = const { RefCell::new(None) };
}

/// How urgent it is what threads do now. It may change while they do it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Urgency(Arc<UrgencyState>);

/// Of something that threads do.
#[derive(Debug, Default)]
struct UrgencyState {
    is_waited_for: AtomicBool,
    percent: AtomicU32,
}

impl Urgency {
    /// Says whether a user can do nothing before.
    pub(crate) fn set_waited_for(&self, is_waited_for: bool) {
        self.0.is_waited_for.store(is_waited_for, Ordering::Relaxed);
    }

    /// Can a user do nothing before?
    pub(crate) fn is_waited_for(&self) -> bool {
        self.0.is_waited_for.load(Ordering::Relaxed)
    }

    /// Says how near it is that users can do nothing before, up to 100.
    pub(crate) fn set_percent(&self, percent: u32) {
        // All users say so, and few change it.
        if self.0.percent.load(Ordering::Relaxed) != percent {
            self.0.percent.store(percent.min(100), Ordering::Relaxed);
        }
    }

    fn percent(&self) -> u32 {
        if self.is_waited_for() { 100 } else { self.0.percent.load(Ordering::Relaxed) }
    }
}

/// A thread works at something of this urgency, until this is dropped.
pub(crate) struct Urgent(Option<Urgency>);

impl Drop for Urgent {
    fn drop(&mut self) {
        URGENCY.set(self.0.take());
    }
}

/// What this thread does from now on has that urgency; none: nobody knows. Threads that help it ([`crate::sync::Executor`]) have the same.
pub(crate) fn work_at(urgency: Option<Urgency>) -> Urgent {
    Urgent(URGENCY.replace(urgency))
}

/// The urgency of what this thread does.
pub(crate) fn urgency() -> Option<Urgency> {
    URGENCY.with_borrow(Clone::clone)
}

/// Does a user wait for what this thread does?
pub(crate) fn is_waited_for() -> bool {
    URGENCY.with_borrow(|urgency| urgency.as_ref().is_some_and(Urgency::is_waited_for))
}

/// How near it is that users can do nothing before this thread has done what it does, up to 100.
pub(crate) fn urgency_percent() -> u32 {
    URGENCY.with_borrow(|urgency| urgency.as_ref().map_or(0, Urgency::percent))
}

/// What this thread does from now on no user waits for.
pub(crate) fn work_in_background() {
    IN_BACKGROUND.set(true);
}

/// Does no user wait for what this thread does?
pub(crate) fn is_in_background() -> bool {
    IN_BACKGROUND.get()
}

/// Lets all other threads of the machine go first, from now on. For work that nobody waits for; what it holds meanwhile somebody may wait for, so it still gets
/// a tenth of a processor that others want.
pub(crate) fn yield_to_others() {
    work_in_background();
    // If that fails, the thread is as urgent as others.
    let _ = rustix::process::nice(NICE);
}

/// A shared host.
pub type HostRef = Arc<dyn Host>;

/// The machine that the program runs on.
#[derive(Debug, Default)]
pub struct RealHost;

impl RealHost {
    /// The real host, shared.
    pub fn shared() -> HostRef {
        Arc::new(RealHost)
    }
}

#[allow(clippy::disallowed_methods)] // this is the one place where they are called
impl Host for RealHost {
    fn now_ns(&self) -> u64 {
        use rustix::time::{ClockId, clock_gettime};
        // While the machine sleeps this one goes on: another host may take a pool meanwhile.
        let now = clock_gettime(ClockId::Boottime);
        let now = u64::try_from(now.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0));
        static START: OnceLock<u64> = OnceLock::new();
        now.saturating_sub(*START.get_or_init(|| now))
    }

    fn wall_clock(&self) -> (u64, u32) {
        match std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
            Ok(since) => (since.as_secs(), since.subsec_nanos()),
            Err(_) => (0, 0),
        }
    }

    fn random(&self) -> u64 {
        loop {
            if let Ok(number) = getrandom::u64()
                && number != 0
            {
                return number;
            }
        }
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }

    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> bool {
        let anywhere = move || {
            run_anywhere();
            body();
        };
        claim_cpu();
        std::thread::Builder::new().name(name.to_owned()).spawn(anywhere).is_ok()
    }

    fn processors(&self) -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }

    fn host_name(&self) -> String {
        std::fs::read_to_string("/proc/sys/kernel/hostname").map_or_else(|_| "localhost".to_owned(), |s| s.trim().to_owned())
    }

    fn host_id(&self) -> u32 {
        // As the kernel module does: its parameter, then the file. Containers share the file, so the environment goes first.
        if let Some(id) = std::env::var("TARN_HOSTID").ok().and_then(|text| u32::from_str_radix(text.trim_start_matches("0x"), 16).ok()) {
            return id;
        }
        let parameter = std::fs::read_to_string("/sys/module/spl/parameters/spl_hostid").ok();
        if let Some(id) = parameter.and_then(|text| text.trim().parse::<u64>().ok()).filter(|id| *id != 0) {
            return id as u32;
        }
        let Ok(bytes) = std::fs::read("/etc/hostid") else { return 0 };
        bytes.get(..4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use rustix::thread::CpuSet;

    use super::*;

    /// The thread that prepares the next places of the log was made by one that serves a mount, and inherited its CPU: it worked where the writers were.
    #[test]
    #[allow(clippy::disallowed_methods)] // real threads are what is tested
    fn a_thread_is_not_tied_to_the_cpu_of_its_maker() {
        let maker = std::thread::spawn(|| {
            let all = sched_getaffinity(None).unwrap();
            let mut one = CpuSet::new();
            one.set((0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).unwrap());
            sched_setaffinity(None, &one).unwrap();
            let (tell, told) = channel();
            assert!(RealHost.spawn("test", Box::new(move || tell.send(sched_getaffinity(None).unwrap().count()).unwrap())));
            assert_eq!(told.recv().unwrap(), all.count());
        });
        maker.join().unwrap();
    }

    /// The maker of a thread claims its CPU, in its own thread, and so does who reads, writes and flushes.
    #[test]
    fn a_thread_claims_its_cpu_before_it_makes_another_or_waits_for_a_device() {
        use crate::vdev::{Class, Leaf};
        thread_local!(static CLAIMED: Cell<u32> = const { Cell::new(0) });
        set_cpu_claim(|| CLAIMED.set(CLAIMED.get() + 1));
        let claims = |act: &dyn Fn()| {
            CLAIMED.set(0);
            act();
            CLAIMED.get() > 0
        };
        assert!(claims(&|| assert!(RealHost.spawn("test", Box::new(|| {})))));
        let leaf = Leaf::alone(1, "a".to_owned(), Arc::new(disk::MemDisk::new("a", 16 << 20)), &RealHost::shared());
        assert!(claims(&|| leaf.write(Class::AsyncWrite, 0, &[&[1; 4096]]).unwrap()));
        assert!(claims(&|| leaf.write_durable(0, &[&[1; 4096]]).unwrap()));
        assert!(claims(&|| leaf.flush().unwrap()));
        assert!(claims(&|| leaf.read(Class::SyncRead, 0, &mut [0; 4096]).unwrap()));
    }
}
