//! The daemon's side of the control socket.
//!
//! # Theory
//! One thread accepts; each connection has a thread, which reads requests one after the other. Requests of all
//! connections take turns at the backend: administrative verbs change one thing at a time. Requests that only look at
//! pools, and `zpool clear`, take no turn ([`Beside`]): the one that has the turn may be waiting for just that, and
//! looking may take long itself. File operations do not come this way.
//!
//! The daemon's own user and root may do everything, but what they may not open is not opened for them ([`caller_rights`](super::caller_rights)).
//! Root's daemon listens to others too: each request of theirs is checked against what the pool grants ([`Backend::admit`]) before it is
//! carried out, their messages are short, their connections few, and they learn no names of damaged files.

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use tarnfs::control::permission::{Need, needs};
use tarnfs::control::wire::{LENGTH_MAX, read_message_within, write_message};
use tarnfs::control::{Backend, Beside, Caller, DAMAGED_FILES, Failure, FailureKind, Reply, Request, Streamed, Wanted, Way, execute, execute_stream, refusable};

use crate::DaemonPaths;
use crate::socket::caller_rights::CallerRights;
use crate::socket::crowd::{Crowd, Place};
use crate::socket::passing::Receiving;
use crate::socket::streaming;
use crate::socket::trust;

/// Most connections at one time.
const CONNECTIONS_MAX: usize = 256;
/// The longest message of a caller who is not the superuser, in bytes.
const OTHERS_LENGTH_MAX: u32 = 1 << 20;
/// Says `off` where nobody shall look after devices, as OpenZFS is without its daemon.
const AGENT: &str = "TARN_AGENT";
/// How often the devices of the pools are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often the daemon checks whether it is still needed.
const TICK: Duration = Duration::from_millis(100);
/// Ticks without a connection or pool after which a daemon ends.
const IDLE_TICKS: u32 = 10;
/// The same for a daemon that has never been called.
const FIRST_CALL_TICKS: u32 = 100;
/// How long to wait for a daemon that is ending.
const LOCK_LIMIT: Duration = Duration::from_secs(10);

/// A backend that a daemon can serve.
pub trait Service: Backend + Send + 'static {
    /// Are there pools, or is there work, for which the daemon must stay?
    fn is_needed(&self) -> bool;

    /// Called every second or so: forgets file systems that were unmounted and snapshots that are not in use.
    fn tidy(&mut self) {}

    /// Answers requests while another one has the turn.
    fn beside(&self) -> Option<Beside> {
        None
    }
}

/// Tells a running daemon to end.
#[derive(Debug, Default)]
pub struct Switch {
    ending: AtomicBool,
    connections: AtomicUsize,
    calls: AtomicUsize,
}

impl Switch {
    /// Ends the daemon soon.
    pub fn end(&self) {
        self.ending.store(true, Ordering::SeqCst);
    }

    /// Was it told to end?
    pub fn is_ending(&self) -> bool {
        self.ending.load(Ordering::SeqCst)
    }
}

/// The lock and the socket of a daemon's paths.
#[derive(Debug)]
pub struct ControlSocket {
    paths: DaemonPaths,
    listener: UnixListener,
    /// Locked; released when the process ends, however it ends.
    lock: File,
    /// A descriptor in reserve, for when there are no others.
    spare: Mutex<Option<File>>,
}

impl ControlSocket {
    /// Becomes the daemon of these paths. `None`: another one is, and stays.
    pub fn claim(paths: &DaemonPaths) -> io::Result<Option<ControlSocket>> {
        paths.prepare()?;
        let lock = trust::open_file(&paths.lock(), OpenOptions::new().write(true))?;
        let mut waited = Duration::ZERO;
        while let Err(error) = lock.try_lock() {
            match error {
                fs::TryLockError::Error(error) => return Err(error),
                // A daemon that answers stays; one that does not is ending.
                fs::TryLockError::WouldBlock if UnixStream::connect(paths.socket()).is_ok() || waited >= LOCK_LIMIT => return Ok(None),
                fs::TryLockError::WouldBlock => {}
            }
            thread::sleep(Duration::from_millis(20));
            waited += Duration::from_millis(20);
        }
        if paths.has_socket()? {
            fs::remove_file(paths.socket()).map_err(trust::named(paths.socket()))?;
        }
        let listener = UnixListener::bind(paths.socket())?;
        fs::set_permissions(paths.socket(), fs::Permissions::from_mode(socket_mode()))?;
        listener.set_nonblocking(true)?;
        Ok(Some(ControlSocket { paths: paths.clone(), listener, lock, spare: Mutex::new(File::open("/dev/null").ok()) }))
    }

    /// Serves until the switch says so, or until the daemon is not needed; then asks the backend to quit.
    pub fn serve<B: Service>(mut self, backend: &Arc<Mutex<B>>, switch: &Arc<Switch>) -> Result<(), Failure> {
        let served = Served {
            paths: self.paths.clone(),
            backend: Arc::clone(backend),
            beside: backend.lock().beside(),
            switch: Arc::clone(switch),
            crowd: Crowd::default(),
        };
        let is_wanted = std::env::var_os(AGENT).is_none_or(|word| word != "off");
        if let Some(beside) = served.beside.clone().filter(|_| is_wanted) {
            look_after(beside, switch);
        }
        let mut idle = 0;
        let mut ticks = 0u32;
        loop {
            self.accept_all(&served);
            if switch.is_ending() {
                break;
            }
            ticks = ticks.wrapping_add(1);
            // A request that runs holds the lock; then there is no time to tidy, and the daemon is needed.
            let mut needed = true;
            if let Some(mut backend) = backend.try_lock() {
                needed = backend.is_needed();
                if ticks.is_multiple_of(10) {
                    backend.tidy();
                }
            }
            let limit = if switch.calls.load(Ordering::Relaxed) == 0 { FIRST_CALL_TICKS } else { IDLE_TICKS };
            idle = if needed || switch.connections.load(Ordering::SeqCst) > 0 { 0 } else { idle + 1 };
            if idle > limit {
                // From now on new commands find no socket; a caller that came at the last moment is still served.
                self.remove_socket();
                self.accept_all(&served);
                while switch.connections.load(Ordering::SeqCst) > 0 {
                    thread::sleep(Duration::from_millis(5));
                }
                if !backend.lock().is_needed() {
                    break;
                }
                // The last command imported a pool: stay, under a new socket.
                self.rebind()?;
                idle = 0;
            }
            self.wait();
        }
        self.finish(backend)
    }

    /// If the directory with the lock and the socket was removed, another daemon may have made its own there by now.
    /// Then the socket is that daemon's.
    fn remove_socket(&self) {
        let identity = |found: io::Result<Metadata>| found.ok().map(|found| (found.dev(), found.ino()));
        if identity(self.lock.metadata()) == identity(fs::metadata(self.paths.lock())) {
            let _ = fs::remove_file(self.paths.socket());
        }
    }

    fn rebind(&mut self) -> Result<(), Failure> {
        let bound = UnixListener::bind(self.paths.socket()).and_then(|listener| {
            listener.set_nonblocking(true)?;
            fs::set_permissions(self.paths.socket(), fs::Permissions::from_mode(socket_mode()))?;
            Ok(listener)
        });
        self.listener = bound.map_err(|error| Failure::with(FailureKind::Other, format!("{}: {error}", self.paths.socket().display())))?;
        Ok(())
    }

    /// Waits for a connection, at most one tick.
    fn wait(&self) {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut fds = [PollFd::new(&self.listener, PollFlags::IN)];
        let tick = Timespec { tv_sec: 0, tv_nsec: i64::from(TICK.subsec_nanos()) };
        if let Err(error) = poll(&mut fds, Some(&tick))
            && error != rustix::io::Errno::INTR
        {
            tracing::warn!(%error, "waiting for connections failed");
            thread::sleep(TICK);
        }
    }

    fn accept_all<B: Service>(&self, served: &Served<B>) {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    if let Err(error) = admit(stream, served) {
                        tracing::warn!(%error, "a connection was refused");
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection failed");
                    self.turn_away();
                    return;
                }
            }
        }
    }

    /// Tells a waiting caller that there is no descriptor for its connection, over one that was kept for that.
    fn turn_away(&self) {
        thread::sleep(TICK);
        *self.spare.lock() = None;
        if let Ok((mut stream, _)) = self.listener.accept() {
            let failure = Failure::with(FailureKind::NoDaemon, "the tarn daemon has too many files open");
            let _ = write_message(&mut stream, &Reply::Failed(failure));
        }
        *self.spare.lock() = File::open("/dev/null").ok();
    }

    /// New commands must wait for the lock, which is released last.
    fn finish<B: Service>(self, backend: &Arc<Mutex<B>>) -> Result<(), Failure> {
        self.remove_socket();
        backend.lock().quit()
    }
}

/// Has an agent look after the devices of all pools, until the daemon ends.
fn look_after(beside: Beside, switch: &Arc<Switch>) {
    let switch = Arc::clone(switch);
    let work = move || {
        while !switch.is_ending() {
            thread::sleep(LOOK_EVERY);
            beside.look_after();
        }
    };
    if let Err(error) = thread::Builder::new().name("agent".to_owned()).spawn(work) {
        tracing::warn!(%error, "nobody looks after the devices of the pools");
    }
}

/// Everybody may call root.
fn socket_mode() -> u32 {
    if rustix::process::geteuid().is_root() { 0o666 } else { 0o600 }
}

/// Checks the caller, and starts a thread for it.
fn admit<B: Service>(mut stream: UnixStream, served: &Served<B>) -> io::Result<()> {
    let switch = &served.switch;
    let caller = trust::caller(&stream, served.paths.socket())?;
    let rights = CallerRights::of(&stream)?;
    let place = if caller.is_superuser { Some(None) } else { served.crowd.enter(fuse::peer(&stream)?.uid).map(Some) };
    let Some(place) = place.filter(|_| switch.connections.load(Ordering::SeqCst) < CONNECTIONS_MAX) else {
        let failure = Failure::with(FailureKind::NoDaemon, format!("the tarn daemon serves {CONNECTIONS_MAX} other commands"));
        write_message(&mut stream, &Reply::Failed(failure))?;
        return Err(io::Error::other("too many connections"));
    };
    stream.set_nonblocking(false)?;
    switch.connections.fetch_add(1, Ordering::SeqCst);
    let own = Served {
        paths: served.paths.clone(),
        backend: Arc::clone(&served.backend),
        beside: served.beside.clone(),
        switch: Arc::clone(switch),
        crowd: served.crowd.clone(),
    };
    let started = thread::Builder::new().name("control".to_owned()).spawn(move || {
        let _place: Option<Place> = place;
        if let Err(error) = converse(stream, &caller, rights, &own) {
            tracing::debug!(%error, "a connection ended early");
        }
        own.switch.connections.fetch_sub(1, Ordering::SeqCst);
    });
    if let Err(error) = started {
        switch.connections.fetch_sub(1, Ordering::SeqCst);
        return Err(error);
    }
    Ok(())
}

fn converse<B: Service>(mut stream: UnixStream, caller: &Caller, rights: CallerRights, served: &Served<B>) -> io::Result<()> {
    let length_max = if caller.is_superuser { LENGTH_MAX } else { OTHERS_LENGTH_MAX };
    let mut changed = BTreeSet::new();
    loop {
        let mut receiving = Receiving { stream: &stream, descriptor: None };
        let Some(mut request) = read_message_within::<Request>(&mut receiving, length_max)? else { return Ok(()) };
        let descriptor = receiving.descriptor;
        served.switch.calls.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(?request, "request");
        let quit = request == Request::Quit;
        let pool = changes(&request);
        let reply = if may_record(&mut request, caller, &changed) {
            rights.during(|| served.answer(caller, request, &stream, descriptor))?
        } else {
            Reply::Failed(Failure::new(FailureKind::Permission))
        };
        if quit && matches!(reply, Reply::Done) {
            served.switch.end();
        }
        if !matches!(reply, Reply::Failed(_)) {
            changed.extend(pool);
        }
        write_message(&mut stream, &reply)?;
    }
}

/// The pool that a request of a delegate changes: what needs permissions changes something.
fn changes(request: &Request) -> Option<String> {
    let of_dataset = |name: &str| name.split(['/', '@', '#']).next().map(str::to_owned);
    match (request, needs(request)) {
        (Request::DatasetAllow(allow), _) => of_dataset(&allow.name),
        (_, Need::All(all)) => all.first().and_then(|asked| of_dataset(asked.of.name())),
        _ => None,
    }
}

/// A delegate's command is recorded in pools that it has changed, under the delegate's own name.
fn may_record(request: &mut Request, caller: &Caller, changed: &BTreeSet<String>) -> bool {
    let Request::PoolRecord(record) = request else { return true };
    if caller.is_superuser {
        return true;
    }
    record.command.user = u32::try_from(caller.identity.user).unwrap_or(u32::MAX);
    changed.contains(&record.pool)
}

/// Names of damaged files are for the superuser, and are not looked for on behalf of others: that takes long.
fn without_names(mut request: Request) -> Request {
    if let Request::PoolStatus(select) = &mut request
        && let Wanted::Only(names) = &mut select.properties
    {
        names.retain(|name| name != DAMAGED_FILES);
    }
    request
}

/// The backend, and what the daemon knows of its callers.
struct Served<B> {
    paths: DaemonPaths,
    backend: Arc<Mutex<B>>,
    beside: Option<Beside>,
    switch: Arc<Switch>,
    /// Connections of delegates.
    crowd: Crowd,
}

impl<B: Service> Served<B> {
    /// A request that may wait for the pool is carried out without the lock, so that others need not wait for it.
    fn carry_out(&self, caller: &Caller, request: Request) -> Reply {
        let request = if caller.is_superuser { request } else { without_names(request) };
        // If another request has the turn, which may be long, the mounts are not known.
        let mounts = || self.backend.try_lock().and_then(|mut backend| backend.mount_list().ok()).unwrap_or_default();
        // What is answered without a turn only looks, or is the superuser's.
        if (caller.is_superuser || needs(&request) == Need::Nothing)
            && let Some(reply) = self.beside.as_ref().and_then(|beside| beside.answer(&request, mounts))
        {
            return reply;
        }
        let job = {
            let mut backend = self.backend.lock();
            if let Err(failure) = backend.admit(caller, &request) {
                return Reply::Failed(failure);
            }
            match request {
                Request::TransactionEnd(end) => backend.transaction_end(end),
                Request::PoolSync(select) => backend.pool_sync(select),
                Request::SnapshotRedact(redact) => backend.snapshot_redact(redact),
                Request::DatasetUnmount(unmount) => backend.dataset_unmount(unmount),
                Request::DatasetsUnmount(unmounts) => {
                    let job = backend.datasets_unmount(unmounts);
                    drop(backend);
                    return Reply::Unmounted(job());
                }
                // Fetching what the kernel has may be long.
                request @ (Request::SnapshotsCreate(_)
                | Request::SnapshotsDestroy(_)
                | Request::SnapshotsHold(_)
                | Request::SnapshotsRelease(_)
                | Request::BookmarksCreate(_)) => {
                    let job = refusable(&mut *backend, request);
                    drop(backend);
                    return job.and_then(|job| job()).map_or_else(Reply::Failed, Reply::Refused);
                }
                Request::StreamSize(send) => {
                    let job = backend.stream_size(send);
                    drop(backend);
                    return job.and_then(|job| job()).map_or_else(Reply::Failed, Reply::StreamSize);
                }
                request => return execute(&mut *backend, request),
            }
        };
        job.and_then(|job| job()).map_or_else(Reply::Failed, |()| Reply::Done)
    }

    /// A stream may take hours, and goes without the lock.
    fn stream(&self, caller: &Caller, request: Request, connection: &UnixStream, descriptor: Option<OwnedFd>) -> Result<Reply, Failure> {
        let job = {
            let mut backend = self.backend.lock();
            backend.admit(caller, &request)?;
            execute_stream(&mut *backend, request.clone())?
        };
        match streaming::stream(connection, &request, descriptor, job, &|| self.is_still_allowed(caller, &request))? {
            Streamed::Over(reply) => Ok(reply),
            Streamed::There(end) => self.backend.lock().stream_end(end),
        }
    }

    /// May a stream that goes out go on? What a receive needs depends on what it has made by now, so that is asked once.
    fn is_still_allowed(&self, caller: &Caller, request: &Request) -> bool {
        if caller.is_superuser || request.stream_way() != Some(Way::Out) {
            return true;
        }
        // While another request has its turn nothing is revoked.
        self.backend.try_lock().is_none_or(|mut backend| backend.admit(caller, request).is_ok())
    }

    /// A panic in a verb is that verb's failure; the pools stay served.
    fn answer(&self, caller: &Caller, request: Request, connection: &UnixStream, descriptor: Option<OwnedFd>) -> Reply {
        let _acting = caller.act();
        crate::parameters::catch_up();
        let answer = || match (&request, request.stream_way()) {
            (Request::Ping, _) => Reply::Done,
            (_, Some(_)) => self.stream(caller, request, connection, descriptor).unwrap_or_else(Reply::Failed),
            (_, None) => self.carry_out(caller, request),
        };
        catch_unwind(AssertUnwindSafe(answer)).unwrap_or_else(|_| {
            tracing::error!("a request panicked");
            Reply::Failed(Failure::with(FailureKind::Other, "internal error: the request panicked; see the daemon's log"))
        })
    }
}
