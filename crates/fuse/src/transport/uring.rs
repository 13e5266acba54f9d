//! The transport over io_uring (Linux 6.14 and later, when root has set `fuse.enable_uring`).
//!
//! # Theory
//! The kernel has one queue of requests for each possible CPU, and puts a request into the queue of the CPU on which
//! the caller runs. We offer *entries* ([`entry`](crate::transport::entry)), each a header area and a payload area. A mount that
//! is not hot has a few in each queue, all with the [`porter`](crate::transport::porter). They cost next to nothing, as their
//! memory is untouched until it is used.
//!
//! A thread that serves a hot mount keeps its entry. Then one system call both answers and waits for the next request,
//! and the caller and its server share a CPU, so that the wake-up is cheap. The thread has its own ring and is pinned
//! to the queue's CPU, so a ring has a single issuer and runs its completions when that thread asks (`DEFER_TASKRUN`).
//! The kernel gives a request to the entry that became free last, so that one thread per CPU stays warm and does all
//! the work while nothing blocks. An operation that waits for a disk leaves the next request to the next entry.
//!
//! A thread that takes a request and leaves few idle entries makes another one first, up to a limit, so that a hundred
//! requests may wait for a disk together. It keeps a few and not none, because the kernel does not hand a waiting
//! request to a new entry: a request that finds no entry waits until one of the others has answered, which may be long.
//! So the thread that took the last entry begins when the next one is there.
//!
//! That is right for a caller that waits, and wrong for write-back and read-ahead
//! ([`dispatch::is_bulk`](crate::dispatch::is_bulk)). There the kernel has many requests under way in one queue and
//! waits for no single one of them, and the one CPU on which the caller is busy would serve them all. So a thread that
//! is given such a request leaves its CPU until it is given one of the other kind.
//!
//! An answered caller should go on where it is, not on another CPU that must be woken first:
//! [`courtesy`](crate::transport::courtesy).
//!
//! `/dev/fuse` still carries `FORGET`, which needs no answer, and interrupts. The [`listener`](crate::transport::listener)
//! collects those every few milliseconds, so that no thread is woken for each.

use std::io;
use std::sync::{Arc, OnceLock};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::transport::courtesy::Courtesy;
use crate::transport::entry::{Entry, new_ring};
use crate::transport::heat::Heat;
use crate::transport::porter;
use crate::session::Shared;

/// The kernel's switch for FUSE over io_uring.
const ENABLE: &str = "/sys/module/fuse/parameters/enable_uring";
/// The entries with which each queue begins.
const FIRST_OF_QUEUE: usize = 2;
/// The entries that each queue may have, whatever the others have. An entry that had a large request keeps its memory
/// while its mount is hot.
const MORE_ENTRIES: usize = 16;
/// The entries of a hot mount's queue that are kept idle or on their way.
const IDLE_ENTRIES: usize = 4;
/// The same for a mount that is not hot.
const IDLE_ENTRIES_COLD: usize = 1;
/// The most queues of all mounts. Further mounts are served over `/dev/fuse`: a queue takes 5 KB of the kernel's
/// memory.
const QUEUES_MAX: usize = 1 << 15;
/// The interval between looks for a new entry.
const LOOK_EVERY: Duration = Duration::from_micros(100);
/// The most looks for one.
const LOOKS_MAX: u32 = 10_000;

/// The queues of all mounts of this process.
static QUEUES: AtomicUsize = AtomicUsize::new(0);

/// Whether this process may use FUSE over io_uring here.
pub fn is_available() -> bool {
    static HAS_RINGS: OnceLock<bool> = OnceLock::new();
    let enabled = std::fs::read_to_string(ENABLE).is_ok_and(|text| matches!(text.trim(), "Y" | "1"));
    enabled && *HAS_RINGS.get_or_init(|| new_ring(2, 4).is_ok()) && possible_cpus().is_some()
}

/// As [`is_available`], without asking again where it was: what is turned off later the kernel does not offer to a mount.
pub(crate) fn was_available() -> bool {
    static WAS: AtomicBool = AtomicBool::new(false);
    if !WAS.load(Ordering::Relaxed) && is_available() {
        WAS.store(true, Ordering::Relaxed);
    }
    WAS.load(Ordering::Relaxed)
}

/// Turns FUSE over io_uring on for mounts made from now on, as root may. Returns whether it is on, or was.
pub fn enable() -> bool {
    was_available() || std::fs::write(ENABLE, "Y").is_ok() && was_available()
}

/// The number of possible CPUs, which is the number of queues.
fn possible_cpus() -> Option<u16> {
    static POSSIBLE: OnceLock<Option<u16>> = OnceLock::new();
    *POSSIBLE.get_or_init(|| {
        let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").ok()?;
        let last = text.trim().rsplit([',', '-']).next()?.parse::<u16>().ok()?;
        last.checked_add(1)
    })
}

/// The queues that one mount has of [`QUEUES_MAX`].
#[derive(Debug)]
pub(crate) struct Share(usize);

impl Share {
    /// Takes a share. `None` if there is no porter, or if too many queues exist.
    pub(crate) fn take() -> Option<Share> {
        let queues = usize::from(possible_cpus()?);
        let share = Share(queues);
        let before = QUEUES.fetch_add(queues, Ordering::Relaxed);
        (before + queues <= QUEUES_MAX && porter::is_there()).then_some(share)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        QUEUES.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// A mount that is served through queues.
pub(crate) struct RingMount {
    pub(crate) shared: Arc<Shared>,
    pub(crate) heat: Heat,
    pub(crate) courtesy: Option<&'static Courtesy>,
    queues: Vec<Queue>,
    /// The entries of all queues.
    all: AtomicUsize,
    /// The kernel may send requests over `/dev/fuse` too.
    lacks_entries: AtomicBool,
    _share: Share,
}

/// The entries of one queue.
#[derive(Default)]
struct Queue {
    all: AtomicUsize,
    /// Entries that the kernel does not have yet.
    coming: AtomicUsize,
    /// Entries that the kernel has without a request.
    idle: AtomicUsize,
}

impl RingMount {
    /// Offers entries to all queues. The kernel keeps callers waiting until each queue has one, or one is refused.
    pub(crate) fn start(shared: &Arc<Shared>, share: Share) -> Arc<RingMount> {
        let queues = share.0;
        let mount = Arc::new(RingMount {
            shared: Arc::clone(shared),
            heat: Heat::default(),
            courtesy: shared.options.courteous.then(|| Courtesy::shared(queues as u16)).flatten(),
            queues: (0..queues).map(|_| Queue::default()).collect(),
            all: AtomicUsize::new(0),
            lacks_entries: AtomicBool::new(false),
            _share: share,
        });
        for queue in (0..queues).flat_map(|queue| [queue as u16; FIRST_OF_QUEUE]) {
            if let Err(error) = mount.add(queue) {
                tracing::warn!(%error, "no memory for FUSE over io_uring: the mount is served over /dev/fuse");
                mount.has_fewer();
                porter::refuse(shared);
                break;
            }
        }
        mount
    }

    /// Gives one more entry of a queue to the porter.
    pub(crate) fn add(self: &Arc<Self>, queue: u16) -> io::Result<()> {
        let entry = Entry::new(self, queue)?;
        let counts = &self.queues[usize::from(queue)];
        counts.all.fetch_add(1, Ordering::Relaxed);
        self.all.fetch_add(1, Ordering::Relaxed);
        counts.coming.fetch_add(1, Ordering::Relaxed);
        porter::register(entry);
        Ok(())
    }

    /// Notes that the kernel has the entry.
    pub(crate) fn came(&self, queue: u16) {
        let counts = &self.queues[usize::from(queue)];
        counts.idle.fetch_add(1, Ordering::Relaxed);
        counts.coming.fetch_sub(1, Ordering::Relaxed);
    }

    /// Notes that the kernel has lost the entry by an error. Returns whether the mount still needs one instead.
    pub(crate) fn lost(&self, entry: Entry, error: &io::Error) -> bool {
        let counts = &self.queues[usize::from(entry.queue)];
        counts.idle.fetch_sub(1, Ordering::Relaxed);
        counts.all.fetch_sub(1, Ordering::Relaxed);
        self.all.fetch_sub(1, Ordering::Relaxed);
        if !self.shared.is_ended() {
            tracing::error!(%error, queue = entry.queue, "an entry of FUSE over io_uring failed");
        }
        // The ring can no longer be asked, so the kernel may still have the entry, and may write to it until it has
        // taken the ring apart. Nothing reports that.
        entry.abandon();
        !self.shared.is_ended()
    }

    /// Notes that an entry was refused: the kernel may send requests over `/dev/fuse`.
    pub(crate) fn has_fewer(&self) {
        self.lacks_entries.store(true, Ordering::Relaxed);
    }

    /// Whether requests from `/dev/fuse` must be read at once.
    pub(crate) fn lacks_entries(&self) -> bool {
        self.lacks_entries.load(Ordering::Relaxed)
    }

    /// Notes that an entry has got a request. Returns how many others of its queue have none.
    pub(crate) fn given(&self, queue: u16) -> usize {
        self.queues[usize::from(queue)].idle.fetch_sub(1, Ordering::Relaxed).saturating_sub(1)
    }

    /// Adds an entry if the request to be run left only `others` idle ones. Returns how many requests are under way in
    /// this queue.
    pub(crate) fn make_room(self: &Arc<Self>, queue: u16, others: usize, is_hot: bool) -> usize {
        let counts = &self.queues[usize::from(queue)];
        let few = others + counts.coming.load(Ordering::Relaxed) < if is_hot { IDLE_ENTRIES } else { IDLE_ENTRIES_COLD };
        let may_grow =
            || counts.all.load(Ordering::Relaxed) < MORE_ENTRIES || self.all.load(Ordering::Relaxed) < self.shared.options.threads_max;
        if few && may_grow() && let Err(error) = self.add(queue) {
            tracing::debug!(%error, queue, "no further entry of FUSE over io_uring");
        }
        if others == 0 {
            counts.wait_for_next();
        }
        let (all, coming, idle) =
            (counts.all.load(Ordering::Relaxed), counts.coming.load(Ordering::Relaxed), counts.idle.load(Ordering::Relaxed));
        all.saturating_sub(coming + idle)
    }

    /// Notes that an entry has answered.
    pub(crate) fn answered(&self, queue: u16) {
        self.queues[usize::from(queue)].idle.fetch_add(1, Ordering::Relaxed);
    }
}

impl Queue {
    /// Waits until the kernel has an entry for the next request, if one is coming. The porter takes some microseconds,
    /// on a busy machine some milliseconds.
    fn wait_for_next(&self) {
        for _ in 0..LOOKS_MAX {
            if self.idle.load(Ordering::Relaxed) > 0 || self.coming.load(Ordering::Relaxed) == 0 {
                return;
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}
