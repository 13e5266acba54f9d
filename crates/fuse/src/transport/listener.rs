//! The thread that waits on `/dev/fuse` for all mounts.
//!
//! # Theory
//! No thread waits in `read` for a mount that is not hot. This thread waits for all of them, and has a thread of the
//! [`crew`](crate::transport::crew) read each request. That thread asks to be told of the next request before it runs the one that
//! it has read, so that a slow operation keeps no other waiting. A hot mount gets threads of its own
//! ([`devfuse`](crate::transport::devfuse)), which wait in `read` and stay until the mount ends.
//!
//! A mount that is served through io_uring sends only `FORGET` and interrupts here. They gather for some milliseconds.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno as Os;

use crate::transport::buffer::{Buffer, PAGE};
use crate::transport::crew::{Job, Worker, crew};
use crate::transport::devfuse::{DevFuse, READ_AT, serve_plain};
use crate::transport::heat::Heat;
use crate::session::{Seat, Shared};
use crate::transport::uring::RingMount;

/// How long messages gather that need no answer.
const GATHERS_FOR: Duration = Duration::from_millis(20);
/// The most mounts with threads of their own.
const OWN_THREADS_MAX: usize = 32;
/// The most events fetched at a time.
const EVENTS: usize = 64;
/// The pause when no thread could be started.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Mounts that have threads of their own.
static WITH_THREADS: AtomicUsize = AtomicUsize::new(0);

/// A mount, and how its `/dev/fuse` is read.
pub(crate) struct DeviceMount {
    pub(crate) shared: Arc<Shared>,
    number: u64,
    /// Set for a mount with queues. It sends requests here only if an entry was refused.
    rings: Option<Arc<RingMount>>,
    heat: Heat,
    /// Requests that are run.
    running: AtomicUsize,
    /// Too many requests run: the next one is not announced before one of them has ended.
    is_full: AtomicBool,
    /// guards: the threads that it has of its own
    own: Mutex<Option<DevFuse>>,
}

struct Listener {
    epoll: OwnedFd,
    mounts: Mutex<HashMap<u64, (Arc<DeviceMount>, Seat)>>,
    last: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The listener of this process. The first call starts it.
fn listener() -> io::Result<&'static Listener> {
    static LISTENER: OnceLock<Listener> = OnceLock::new();
    static STARTING: Mutex<()> = Mutex::new(());
    let _starting = lock(&STARTING);
    if let Some(listener) = LISTENER.get() {
        return Ok(listener);
    }
    let listener = Listener { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?, mounts: Mutex::default(), last: AtomicU64::new(0) };
    thread::Builder::new().name("fuse-listener".to_owned()).spawn(|| LISTENER.wait().run())?;
    Ok(LISTENER.get_or_init(|| listener))
}

impl Listener {
    fn run(&'static self) {
        let mut space = [const { MaybeUninit::uninit() }; EVENTS];
        let mut gathering: VecDeque<(Instant, u64)> = VecDeque::new();
        loop {
            #[allow(clippy::disallowed_methods)] // the real clock: the kernel counts in it
            let now = Instant::now();
            let next = gathering.front().map(|(at, _)| at.saturating_duration_since(now));
            let limit = [next, crew().is_short().then_some(AGAIN_AFTER)].into_iter().flatten().min();
            let limit = limit.map(|limit| Timespec { tv_sec: 0, tv_nsec: i64::from(limit.subsec_nanos()) });
            let events: Vec<(u64, epoll::EventFlags)> = match epoll::wait(&self.epoll, &mut space, limit.as_ref()) {
                Ok((events, _)) => events.iter().map(|event| (event.data.u64(), event.flags)).collect(),
                Err(Os::INTR) => Vec::new(),
                Err(error) => {
                    tracing::error!(%error, "waiting on /dev/fuse failed; it is tried again");
                    thread::sleep(AGAIN_AFTER);
                    Vec::new()
                }
            };
            for (number, flags) in events {
                let Some(mount) = lock(&self.mounts).get(&number).map(|(mount, _)| Arc::clone(mount)) else { continue };
                if flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP) {
                    mount.end();
                } else if mount.rings.as_ref().is_some_and(|rings| !rings.lacks_entries()) {
                    gathering.push_back((now + GATHERS_FOR, number));
                } else {
                    crew().give(Job::Read(mount));
                }
            }
            while let Some((_, number)) = gathering.pop_front_if(|(at, _)| *at <= now) {
                if let Some((mount, _)) = lock(&self.mounts).get(&number) {
                    crew().give(Job::Read(Arc::clone(mount)));
                }
            }
            if crew().is_short() {
                crew().try_again();
            }
        }
    }
}

impl DeviceMount {
    /// From now on whatever comes is served.
    pub(crate) fn start(shared: &Arc<Shared>, rings: Option<Arc<RingMount>>) -> io::Result<Arc<DeviceMount>> {
        let listener = listener()?;
        let flags = rustix::fs::fcntl_getfl(&*shared.device)?;
        rustix::fs::fcntl_setfl(&*shared.device, flags | rustix::fs::OFlags::NONBLOCK)?;
        let number = listener.last.fetch_add(1, Ordering::Relaxed) + 1;
        let mount = Arc::new(DeviceMount {
            shared: Arc::clone(shared),
            number,
            rings,
            heat: Heat::default(),
            running: AtomicUsize::new(0),
            is_full: AtomicBool::new(false),
            own: Mutex::default(),
        });
        lock(&listener.mounts).insert(number, (Arc::clone(&mount), Seat::take(shared)));
        let added = epoll::add(&listener.epoll, &*shared.device, epoll::EventData::new_u64(number), wanted());
        added.inspect_err(|_| drop(lock(&listener.mounts).remove(&number)))?;
        Ok(mount)
    }

    /// Asks to be told of the next request.
    fn ask(&self) {
        if let Ok(listener) = listener() {
            // It fails when the mount has threads of its own by now.
            let _ = epoll::modify(&listener.epoll, &*self.shared.device, epoll::EventData::new_u64(self.number), wanted());
        }
    }

    /// Nobody listens any more.
    fn forget(&self) {
        if let Ok(listener) = listener() {
            let _ = epoll::delete(&listener.epoll, &*self.shared.device);
            let gone = lock(&listener.mounts).remove(&self.number);
            drop(gone);
        }
    }

    fn end(&self) {
        self.shared.end();
        self.forget();
    }

    /// Reads and runs what has come.
    pub(crate) fn serve(self: &Arc<Self>, worker: &mut Worker) {
        let _seat = Seat::take(&self.shared);
        let (mut input, mut output) = match worker.buffers.take().map_or_else(|| self.buffers(), Ok) {
            Ok(buffers) if buffers.1.len() >= PAGE + self.shared.max_write as usize => buffers,
            Ok(_) => match self.buffers() {
                Ok(buffers) => buffers,
                Err(error) => return self.no_memory(&error),
            },
            Err(error) => return self.no_memory(&error),
        };
        let mut has_asked = false;
        loop {
            match rustix::io::read(&*self.shared.device, &mut input[READ_AT..]) {
                Ok(len) => {
                    let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
                    if !has_asked && running < self.shared.options.threads_max {
                        has_asked = true;
                        self.ask();
                    } else if !has_asked {
                        self.is_full.store(true, Ordering::SeqCst);
                    }
                    serve_plain(&self.shared, &input[READ_AT..READ_AT + len], &mut output);
                    self.running.fetch_sub(1, Ordering::SeqCst);
                    if self.is_full.swap(false, Ordering::SeqCst) {
                        has_asked = true;
                        self.ask();
                    }
                    if self.rings.is_none() && self.heat.count() && self.has_own_threads(worker) {
                        break;
                    }
                }
                Err(Os::AGAIN) => {
                    if !has_asked {
                        self.ask();
                    }
                    break;
                }
                // The request was withdrawn, or a signal came.
                Err(Os::INTR | Os::NOENT) => {}
                Err(error) => {
                    if error != Os::NODEV && error != Os::CONNABORTED {
                        tracing::error!(%error, "reading /dev/fuse failed; the mount is given up");
                    }
                    self.end();
                    break;
                }
            }
        }
        input.give_back(2 * PAGE);
        output.give_back(PAGE);
        worker.buffers = Some((input, output));
    }

    fn buffers(&self) -> io::Result<(Buffer, Buffer)> {
        let size = PAGE + self.shared.max_write as usize;
        Ok((Buffer::new(PAGE + size)?, Buffer::new(size)?))
    }

    fn no_memory(&self, error: &io::Error) {
        tracing::error!(%error, "no memory to read /dev/fuse; it is tried again");
        thread::sleep(AGAIN_AFTER);
        self.ask();
    }

    /// A hot mount gets threads of its own, if few have.
    fn has_own_threads(&self, worker: &mut Worker) -> bool {
        let mut own = lock(&self.own);
        if own.is_some() {
            return true;
        }
        if WITH_THREADS.fetch_add(1, Ordering::Relaxed) >= OWN_THREADS_MAX {
            WITH_THREADS.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        // They run where they like.
        worker.pin(None);
        match DevFuse::start(&self.shared) {
            Ok(threads) => {
                *own = Some(threads);
                drop(own);
                self.forget();
                true
            }
            Err(error) => {
                WITH_THREADS.fetch_sub(1, Ordering::Relaxed);
                tracing::debug!(%error, "no threads for a mount of its own");
                false
            }
        }
    }

    /// Waits until the mount has ended, and its own threads are done.
    pub(crate) fn join(&self) {
        let own = lock(&self.own).take();
        if let Some(threads) = own {
            threads.join();
            WITH_THREADS.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Told once, of a request.
fn wanted() -> epoll::EventFlags {
    epoll::EventFlags::IN | epoll::EventFlags::ONESHOT
}
