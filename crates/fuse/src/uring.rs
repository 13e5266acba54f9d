//! The transport over io_uring (Linux 6.14 and later, when root has set `fuse.enable_uring`).
//!
//! # Theory
//! The kernel has one queue of requests for each CPU that may exist, and puts a request into the queue of the CPU on
//! which the caller runs. We offer *entries*: a header area and a payload area. Serving an entry costs one system call,
//! which commits the last reply and waits for the next request; a caller and its server share a CPU, so that the
//! wake-up is cheap.
//!
//! Each entry has its own thread and its own ring, pinned to the queue's CPU, so a ring has a single issuer and runs
//! its completions when that thread asks (`DEFER_TASKRUN`). The kernel gives a request to the entry that became free
//! last, so that one thread per CPU stays warm and does all the work while nothing blocks; an operation that waits for
//! a disk just leaves the next request to the next thread. Nothing is handed over between threads. Whoever takes a request and
//! leaves few for the next ones makes another entry first, up to a limit: a hundred who wait for a disk may wait for it together.
//! Few and not none, as the kernel does not look at what waits already when an entry is new: a request that finds no entry waits until one of the
//! others has answered, which may be long. So whoever took the last one begins when the next one is there.
//!
//! That is right for a caller that waits. It is wrong for write-back and read-ahead ([`dispatch::is_bulk`]): there the kernel
//! has many requests under way in one queue, nobody waits for a single one, and all of them would be served by the one CPU on
//! which the caller is busy. So a thread that was given such a request lets go of its CPU, until it is given one of the others.
//!
//! Who has his answer should go on where he is, not on another CPU that must be woken first: [`courtesy`](crate::courtesy).
//!
//! Payload areas are mapped but untouched until used: an idle entry costs a few pages.
//!
//! `/dev/fuse` still carries `FORGET`, which nobody waits for: a thread collects those every few milliseconds rather
//! than being woken for each.

use std::io;
use std::mem::transmute;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use io_uring::{IoUring, cqueue, opcode as ring_opcode, squeue, types};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno as Os;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use zerocopy::{FromBytes, IntoBytes};

use crate::courtesy::{self, Courtesy};
use crate::buffer::{Buffer, PAGE};
use crate::devfuse::send;
use crate::dispatch::{self, Outcome, Request, SMALL_REPLY};
use crate::protocol::{InHeader, Opcode, OutHeader, RING_COMMIT_AND_FETCH, RING_REGISTER, RingCommand, RingEntry, RingHeader};
use crate::session::Shared;
use crate::{Errno, Result};

type Ring = IoUring<squeue::Entry128, cqueue::Entry>;

/// The kernel's switch.
const ENABLE: &str = "/sys/module/fuse/parameters/enable_uring";
/// How often forgotten nodes are collected while there are some.
const FORGET_EVERY: Duration = Duration::from_millis(20);
/// Empty collections after which the collector blocks.
const QUIET_COLLECTIONS: u32 = 10;
/// How long after a ring failed the next one is made.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The queues begin with so many entries, each with some of them,
const FIRST_ENTRIES: usize = 32;
const FIRST_OF_QUEUE: std::ops::RangeInclusive<usize> = 4..=16;
/// and may get so many each, whatever the others have. One that had a large request keeps its memory.
const MORE_ENTRIES: usize = 16;
/// So many are to be idle, or on their way.
const IDLE_ENTRIES: usize = 4;
/// How often to look whether one has come, and how many times at most.
const LOOK_EVERY: Duration = Duration::from_micros(100);
const LOOKS_MAX: u32 = 10_000;
/// Offsets in a submission entry.
const SQE_ADDRESS: usize = 16;
const SQE_LEN: usize = 24;
const SQE_COMMAND: usize = 48;

/// May this process use FUSE over io_uring here?
pub fn is_available() -> bool {
    let enabled = std::fs::read_to_string(ENABLE).is_ok_and(|text| matches!(text.trim(), "Y" | "1"));
    enabled && new_ring().is_ok() && possible_cpus().is_some()
}

/// Turns FUSE over io_uring on for mounts made from now on, as root may. False: it stays off.
pub fn enable() -> bool {
    is_available() || std::fs::write(ENABLE, "Y").is_ok() && is_available()
}

fn new_ring() -> io::Result<Ring> {
    IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(2)
}

/// Number of CPUs that may exist, which is the number of queues.
fn possible_cpus() -> Option<u16> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").ok()?;
    let last = text.trim().rsplit([',', '-']).next()?.parse::<u16>().ok()?;
    last.checked_add(1)
}

/// The threads of one session.
pub(crate) struct Rings {
    crew: Arc<Crew>,
}

/// What the threads of a session share.
struct Crew {
    shared: Arc<Shared>,
    queues: Vec<Queue>,
    /// Entries of all queues.
    all: AtomicUsize,
    courtesy: Option<&'static Courtesy>,
    /// guards: those that have not been waited for
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// The entries of one queue.
#[derive(Default)]
struct Queue {
    all: AtomicUsize,
    /// Those that the kernel does not have yet.
    coming: AtomicUsize,
    /// Those that the kernel has, and no request for.
    idle: AtomicUsize,
}

impl Rings {
    /// Offers entries to all queues. The kernel keeps callers waiting until each queue has one.
    pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<Rings> {
        let queues = possible_cpus().ok_or(io::ErrorKind::Unsupported)?;
        let crew = Arc::new(Crew {
            shared: Arc::clone(shared),
            queues: (0..queues).map(|_| Queue::default()).collect(),
            all: AtomicUsize::new(0),
            courtesy: shared.options.courteous.then(|| Courtesy::shared(queues)).flatten(),
            threads: Mutex::default(),
        });
        for queue in 0..queues {
            let first = (FIRST_ENTRIES / usize::from(queues)).clamp(*FIRST_OF_QUEUE.start(), *FIRST_OF_QUEUE.end());
            for _ in 0..first {
                crew.add(queue)?;
            }
        }
        let collector = Arc::clone(shared);
        let thread = thread::Builder::new().name(format!("{}-forget", shared.options.name)).spawn(move || collect(&collector))?;
        crew.keep(thread);
        Ok(Rings { crew })
    }

    pub(crate) fn join(self) {
        loop {
            // Whoever made another thread was alive then: none is missed.
            let Some(thread) = self.crew.threads.lock().unwrap_or_else(PoisonError::into_inner).pop() else { return };
            if thread.join().is_err() {
                tracing::error!("a FUSE ring thread panicked");
            }
        }
    }
}

impl Crew {
    /// One more entry, with its thread.
    fn add(self: &Arc<Self>, queue: u16) -> io::Result<()> {
        let counts = &self.queues[usize::from(queue)];
        let number = counts.all.fetch_add(1, Ordering::Relaxed);
        self.all.fetch_add(1, Ordering::Relaxed);
        counts.coming.fetch_add(1, Ordering::Relaxed);
        let made = Entry::new(self, queue).and_then(|entry| {
            let name = format!("{}-q{queue}.{number}", self.shared.options.name);
            courtesy::claim_cpu();
            thread::Builder::new().name(name).spawn(move || entry.run())
        });
        match made {
            Ok(thread) => self.keep(thread),
            Err(error) => {
                self.gave_up(queue);
                return Err(error);
            }
        }
        Ok(())
    }

    /// An entry does not come.
    fn gave_up(&self, queue: u16) {
        let counts = &self.queues[usize::from(queue)];
        counts.coming.fetch_sub(1, Ordering::Relaxed);
        counts.all.fetch_sub(1, Ordering::Relaxed);
        self.all.fetch_sub(1, Ordering::Relaxed);
    }

    fn keep(&self, thread: JoinHandle<()>) {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
    }

    /// The kernel has the entry.
    fn came(&self, queue: u16) {
        let counts = &self.queues[usize::from(queue)];
        counts.idle.fetch_add(1, Ordering::Relaxed);
        counts.coming.fetch_sub(1, Ordering::Relaxed);
    }

    /// The kernel has not got the entry any more; it comes again.
    fn lost(&self, queue: u16) {
        let counts = &self.queues[usize::from(queue)];
        counts.coming.fetch_add(1, Ordering::Relaxed);
        counts.idle.fetch_sub(1, Ordering::Relaxed);
    }

    /// An entry has got a request. The next ones are to find others. Returns how many are under way in this queue.
    fn took(self: &Arc<Self>, queue: u16) -> usize {
        let counts = &self.queues[usize::from(queue)];
        let others = counts.idle.fetch_sub(1, Ordering::Relaxed) - 1;
        let few = others + counts.coming.load(Ordering::Relaxed) < IDLE_ENTRIES;
        let may_grow = || {
            counts.all.load(Ordering::Relaxed) < MORE_ENTRIES || self.all.load(Ordering::Relaxed) < self.shared.options.threads_max
        };
        if few && may_grow() && let Err(error) = self.add(queue) {
            tracing::debug!(%error, queue, "no further FUSE ring");
        }
        if others == 0 {
            counts.wait_for_next();
        }
        let (all, coming, idle) = (counts.all.load(Ordering::Relaxed), counts.coming.load(Ordering::Relaxed), counts.idle.load(Ordering::Relaxed));
        all.saturating_sub(coming + idle)
    }

    /// An entry has answered.
    fn answered(&self, queue: u16) {
        self.queues[usize::from(queue)].idle.fetch_add(1, Ordering::Relaxed);
    }
}

impl Queue {
    /// Until the kernel has an entry for the next request, if one is coming. A thread starts within a millisecond, on a busy machine within some dozens.
    fn wait_for_next(&self) {
        for _ in 0..LOOKS_MAX {
            if self.idle.load(Ordering::Relaxed) > 0 || self.coming.load(Ordering::Relaxed) == 0 {
                return;
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

/// One entry of one queue, with its thread.
struct Entry {
    shared: Arc<Shared>,
    crew: Arc<Crew>,
    queue: u16,
    header: Buffer,
    payload: Buffer,
    /// Copy of names that arrive in the payload area when the reply goes there too.
    names: Vec<u8>,
    /// The kernel has it.
    registered: bool,
    /// The thread stays on the queue's CPU.
    pinned: bool,
    /// All CPUs that the process may use.
    any_cpu: CpuSet,
}

impl Entry {
    fn new(crew: &Arc<Crew>, queue: u16) -> io::Result<Entry> {
        let shared = &crew.shared;
        let payload = Buffer::new((shared.max_write as usize).max(2 * PAGE))?;
        let header = Buffer::new(size_of::<RingHeader>())?;
        // Not this thread's: it may be tied to a queue's CPU.
        let any_cpu = sched_getaffinity(Some(rustix::process::getpid()))?;
        Ok(Entry { shared: Arc::clone(shared), crew: Arc::clone(crew), queue, header, payload, names: Vec::new(), registered: false, pinned: false, any_cpu })
    }

    fn run(mut self) {
        self.pin(true);
        // A queue without entries would keep its callers waiting for ever: so whatever fails is tried again.
        while let Err(error) = self.serve() {
            // Who cannot ask the ring any more does not know whether the kernel still has the entry. It may write there until it has
            // taken the ring apart, which nobody hears of.
            self.header.keep_mapped();
            self.payload.keep_mapped();
            if self.shared.is_ended() {
                return;
            }
            tracing::error!(%error, queue = self.queue, "a FUSE ring failed; a new one is made");
            if std::mem::take(&mut self.registered) {
                self.crew.lost(self.queue);
            }
            thread::sleep(RETRY_AFTER);
            match (Buffer::new(self.header.len()), Buffer::new(self.payload.len())) {
                (Ok(header), Ok(payload)) => (self.header, self.payload) = (header, payload),
                (Err(error), _) | (_, Err(error)) => {
                    tracing::error!(%error, queue = self.queue, "no memory for a new FUSE ring; its thread ends");
                    self.crew.gave_up(self.queue);
                    return;
                }
            }
        }
    }

    /// Ties the thread to the queue's CPU, or lets it go anywhere.
    fn pin(&mut self, pinned: bool) {
        if self.pinned == pinned {
            return;
        }
        self.pinned = pinned;
        let mut own = CpuSet::new();
        own.set(usize::from(self.queue));
        // A CPU that is offline cannot be chosen; its queue is never used.
        let _ = sched_setaffinity(None, if pinned { &own } else { &self.any_cpu });
    }

    fn serve(&mut self) -> io::Result<()> {
        let membership = self.crew.courtesy.and_then(|courtesy| courtesy.join(self.queue));
        // The thread that makes a single-issuer ring is the one that may use it.
        let mut ring = new_ring()?;
        let segments = [self.header.as_mut_ptr(), self.payload.as_mut_ptr()]
            .into_iter()
            .zip([size_of::<RingHeader>(), self.payload.len()])
            .map(|(base, len)| libc::iovec { iov_base: base.cast(), iov_len: len })
            .collect::<Vec<_>>();
        let register = RingCommand { queue: self.queue, ..RingCommand::default() };
        push(&mut ring, &self.submission(RING_REGISTER, &register, Some(&segments)))?;
        ring.submit()?;
        self.registered = true;
        self.crew.came(self.queue);
        loop {
            match wait(&mut ring)? {
                0 => {}
                error if [-libc::ENOTCONN, -libc::ECANCELED, -libc::ECONNABORTED].contains(&error) => {
                    self.shared.end();
                    return Ok(());
                }
                // The reply was for a request that was aborted meanwhile, or is malformed; the kernel has taken the entry back.
                error => return Err(io::Error::from_raw_os_error(-error)),
            }
            let under_way = self.crew.took(self.queue);
            if let Some(membership) = &membership {
                membership.request(under_way);
            }
            let commit_id = self.answer();
            self.crew.answered(self.queue);
            let command = RingCommand { commit_id, queue: self.queue, ..RingCommand::default() };
            push(&mut ring, &self.submission(RING_COMMIT_AND_FETCH, &command, None))?;
        }
    }

    fn submission(&self, operation: u32, command: &RingCommand, segments: Option<&[libc::iovec]>) -> squeue::Entry128 {
        let entry = ring_opcode::UringCmd80::new(types::Fd(self.shared.device.as_raw_fd()), operation).build();
        // SAFETY: both types are 128 plain bytes (the compiler checks the size) without invalid values.
        let mut bytes: [u8; 128] = unsafe { transmute::<squeue::Entry128, [u8; 128]>(entry) };
        if let Some(segments) = segments {
            bytes[SQE_ADDRESS..SQE_ADDRESS + 8].copy_from_slice((segments.as_ptr() as u64).as_bytes());
            bytes[SQE_LEN..SQE_LEN + 4].copy_from_slice((segments.len() as u32).as_bytes());
        }
        bytes[SQE_COMMAND..SQE_COMMAND + size_of::<RingCommand>()].copy_from_slice(command.as_bytes());
        // SAFETY: as above; the kernel checks what the fields say.
        unsafe { transmute::<[u8; 128], squeue::Entry128>(bytes) }
    }

    /// Runs the request in the entry and leaves the reply there. Returns the number to commit it by.
    fn answer(&mut self) -> u64 {
        let Ok((ring_header, _)) = RingHeader::read_from_prefix(&self.header) else { return 0 };
        let Ok((header, _)) = InHeader::read_from_prefix(&ring_header.in_out) else { return 0 };
        let (error, len) = match self.run_request(&header, &ring_header) {
            Outcome::Reply(len) => (0, len),
            Outcome::Error(errno) => (errno.raw(), 0),
            Outcome::Silent => (0, 0),
        };
        let mut reply = ring_header;
        let out = OutHeader { len: (size_of::<OutHeader>() + len) as u32, error: -error, unique: header.unique };
        reply.in_out[..size_of::<OutHeader>()].copy_from_slice(out.as_bytes());
        reply.entry = RingEntry { payload_size: len as u32, ..ring_header.entry };
        self.header[..size_of::<RingHeader>()].copy_from_slice(reply.as_bytes());
        ring_header.entry.commit_id
    }

    fn run_request(&mut self, header: &InHeader, ring_header: &RingHeader) -> Outcome {
        let bulk = Opcode::from_number(header.opcode).is_some_and(|opcode| {
            dispatch::is_bulk(&Request { header, opcode, fixed: ring_header.fixed.get(..opcode.fixed_len()).unwrap_or(&[]), payload: &[] })
        });
        self.pin(!bulk);
        let filesystem = &*self.shared.filesystem;
        let len = ring_header.entry.payload_size as usize;
        let result = (|| -> Result<Outcome> {
            let opcode = Opcode::from_number(header.opcode).ok_or(Errno::ENOSYS)?;
            let fixed = ring_header.fixed.get(..opcode.fixed_len()).ok_or(Errno::EINVAL)?;
            let payload = self.payload.get(..len).ok_or(Errno::EINVAL)?;
            if dispatch::is_long_reply(opcode) {
                // Request and reply share the payload area; what came in is short.
                self.names.clear();
                self.names.extend_from_slice(payload);
                let request = Request { header, opcode, fixed, payload: &self.names };
                return Ok(dispatch::handle(filesystem, &request, &mut self.payload));
            }
            let mut out = [0u8; SMALL_REPLY];
            let request = Request { header, opcode, fixed, payload };
            let outcome = dispatch::handle(filesystem, &request, &mut out);
            if let Outcome::Reply(len) = outcome {
                self.payload[..len].copy_from_slice(&out[..len]);
            }
            Ok(outcome)
        })();
        result.unwrap_or_else(Outcome::Error)
    }
}

/// Leaves an entry to be submitted.
fn push(ring: &mut Ring, submission: &squeue::Entry128) -> io::Result<()> {
    // SAFETY: the areas that the entry names are unmapped only after the kernel has given the entry back: if the ring fails, they
    // stay (`Entry::run`). The segment list is read while the entry is submitted, and lives longer.
    unsafe { ring.submission().push(submission) }.map_err(|_| io::Error::other("io_uring submission queue full"))
}

/// Submits what there is to submit, and waits for one completion; its result.
fn wait(ring: &mut Ring) -> io::Result<i32> {
    loop {
        match ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if [Some(libc::EINTR), Some(libc::EAGAIN), Some(libc::EBUSY)].contains(&error.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
        if let Some(completion) = ring.completion().next() {
            return Ok(completion.result());
        }
    }
}

/// Takes `FORGET`s, and whatever else the kernel does not send through a queue, from `/dev/fuse`.
fn collect(shared: &Shared) {
    let size = 2 * PAGE + shared.max_write as usize;
    let (mut input, mut output) = match (Buffer::new(size), Buffer::new(size)) {
        (Ok(input), Ok(output)) => (input, output),
        (Err(error), _) | (_, Err(error)) => {
            tracing::error!(%error, "no memory for collecting FORGET");
            return;
        }
    };
    let mut quiet = 0;
    while !shared.is_ended() {
        let limit = if quiet < QUIET_COLLECTIONS {
            thread::sleep(FORGET_EVERY);
            Timespec { tv_sec: 0, tv_nsec: 0 }
        } else {
            Timespec { tv_sec: 3600, tv_nsec: 0 }
        };
        quiet = quiet.saturating_add(1);
        loop {
            let wait = if quiet == 0 { Timespec { tv_sec: 0, tv_nsec: 0 } } else { limit };
            let mut fds = [PollFd::from_borrowed_fd(shared.device.as_fd(), PollFlags::IN)];
            match poll(&mut fds, Some(&wait)) {
                Ok(0) => break,
                Ok(_) | Err(Os::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "polling /dev/fuse failed");
                    return;
                }
            }
            if fds[0].revents().is_empty() {
                continue;
            }
            match rustix::io::read(&*shared.device, &mut input[..]) {
                Ok(len) => serve_plain(shared, &input[..len], &mut output),
                Err(Os::INTR | Os::AGAIN | Os::NOENT) => {}
                Err(_) => {
                    shared.end();
                    return;
                }
            }
            quiet = 0;
        }
    }
}

fn serve_plain(shared: &Shared, message: &[u8], output: &mut [u8]) {
    let Ok((header, body)) = InHeader::read_from_prefix(message) else { return };
    let outcome = match Request::parse(&header, body) {
        Ok(request) => dispatch::handle(&*shared.filesystem, &request, output),
        Err(errno) => Outcome::Error(errno),
    };
    let sent = match outcome {
        Outcome::Silent => Ok(()),
        Outcome::Error(errno) => send(&shared.device, header.unique, errno.raw(), &[]),
        Outcome::Reply(len) => send(&shared.device, header.unique, 0, &output[..len]),
    };
    if let Err(error) = sent {
        tracing::debug!(%error, opcode = header.opcode, "reply on /dev/fuse refused");
    }
}
