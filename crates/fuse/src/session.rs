//! A mounted file system that is being served.
//!
//! # Theory
//! The kernel's first request is `INIT`. It is read and answered here, on the caller's thread, so that the session
//! knows what was agreed before anybody serves it. The transport is chosen at the same moment, because io_uring
//! has to be agreed on too; once agreed, the kernel waits for the queues and `/dev/fuse` carries only `FORGET`.
//! Requests are served by threads that all sessions share ([`crew`](crate::transport::crew)).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, LazyLock, Mutex, PoisonError, mpsc};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use zerocopy::{FromBytes, IntoBytes};

use crate::mounting::partition::Partition;
use crate::protocol::{InHeader, InitFlags, InitIn, InitOut, MAJOR, MINOR, MINOR_MIN, Opcode, OutHeader};
use crate::mounting::standing::Standing;
use crate::mounting::mount_table::MountPoints;
use crate::mounting::users::{self, Keepers};
use crate::mounting::witness::Watched;
use crate::transport::listener::DeviceMount;
use crate::transport::uring::RingMount;
use crate::{Filesystem, Mount, MountOptions, Negotiated, Notifier, mount, uring};

/// How long the threads may take to leave a mount that has ended.
const LEAVES_WITHIN: Duration = Duration::from_secs(5);
/// The kernel has ended a connection; a busy machine may take a while to run our threads.
const ENDS_WITHIN: Duration = Duration::from_secs(10);
/// The kernel ends a connection before the last `umount` returns, unless somebody is just looking at another copy of the mount.
const ENDED_BY_KERNEL_WITHIN: Duration = Duration::from_millis(200);
/// How long a mount may stay in use where no user of it is found: on a busy machine somebody may be passing through.
const PASSERS_LEAVE_WITHIN: Duration = Duration::from_secs(3);
/// How long a mount may stay in use before its unmount fails: its users may be about to leave.
const USERS_LEAVE_WITHIN: Duration = Duration::from_millis(500);

/// Which transport to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransportChoice {
    /// io_uring if the kernel has it enabled, else `/dev/fuse`.
    Auto,
    /// `/dev/fuse`.
    DevFuse,
    /// io_uring, or fail.
    IoUring,
}

/// Which transport is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransportKind {
    /// `/dev/fuse`.
    DevFuse,
    /// io_uring.
    IoUring,
}

/// How to serve.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// Which transport.
    pub transport: TransportChoice,
    /// The kernel collects writes and sends them later.
    pub writeback_cache: bool,
    /// The kernel checks POSIX ACLs, stored as extended attributes.
    pub posix_acl: bool,
    /// The file system keeps `flock` and byte-range locks; otherwise the kernel does.
    pub remote_locks: bool,
    /// The file system answers `ENOSYS` to opens: then the kernel truncates by itself before it "opens".
    pub no_opens: bool,
    /// Direct I/O of several requests is submitted together, as `libaio` and loop devices do. Only for files that are
    /// not also read through the page cache: after such a write the kernel does not drop what was read into that cache
    /// in the meantime (as file systems on devices do), and old contents would be read from then on (xfstests
    /// generic/451).
    pub async_direct_io: bool,
    /// Largest write in bytes, a multiple of the page size.
    pub max_write: u32,
    /// Read-ahead in bytes.
    pub max_readahead: u32,
    /// Most requests in the background (read-ahead, write-back) at one time.
    pub max_background: u16,
    /// Most requests that are served at a time. Each io_uring queue may have some, whatever the others have.
    pub threads_max: usize,
    /// Threads that wait on `/dev/fuse` at one time, of a mount that is busy.
    pub readers: usize,
    /// Threads yield to the callers they have answered (io_uring only; see [`courtesy`](crate::transport::courtesy)).
    pub courteous: bool,
    /// Name of the threads.
    pub name: String,
}

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        // To count them takes files of the kernel's, as long as all else that a mount reads.
        static CPUS: LazyLock<usize> = LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));
        let cpus = *CPUS;
        SessionOptions {
            transport: TransportChoice::Auto,
            writeback_cache: false,
            posix_acl: false,
            remote_locks: false,
            no_opens: false,
            async_direct_io: false,
            max_write: 1 << 20,
            max_readahead: 1 << 20,
            max_background: 64,
            threads_max: 288,
            readers: (cpus / 2).clamp(1, 4),
            courteous: true,
            name: "fuse".to_owned(),
        }
    }
}

/// What both transports need.
pub(crate) struct Shared {
    pub(crate) device: Arc<OwnedFd>,
    pub(crate) filesystem: Arc<dyn Filesystem>,
    pub(crate) options: SessionOptions,
    pub(crate) max_write: u32,
    pub(crate) ended: AtomicBool,
    /// Requests that threads of the crew have.
    pub(crate) under_way: AtomicUsize,
    destroyed: AtomicBool,
    /// guards: how many [`Seat`]s there are
    seats: Mutex<usize>,
    /// Nobody has a seat, or the mount has ended.
    changed: Condvar,
}

/// A right to serve the mount, or to hold something through which the kernel may send requests.
pub(crate) struct Seat(Arc<Shared>);

impl Seat {
    pub(crate) fn take(shared: &Arc<Shared>) -> Seat {
        *shared.seats.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Seat(Arc::clone(shared))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut seats = self.0.seats.lock().unwrap_or_else(PoisonError::into_inner);
        *seats -= 1;
        if *seats == 0 {
            self.0.changed.notify_all();
        }
    }
}

impl Shared {
    /// The kernel ended the mount.
    pub(crate) fn end(&self) {
        if !self.ended.swap(true, Ordering::SeqCst) {
            self.filesystem.ended();
            // A thread that checked before this is in its wait by now.
            let _seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
            self.changed.notify_all();
        }
    }

    /// Waits so long for the end.
    fn ends_within(&self, limit: Duration) -> bool {
        let seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_timeout_while(seats, limit, |_| !self.is_ended()));
        self.is_ended()
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Waits until nobody serves it.
    fn wait_until_left(&self) {
        let seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(seats, |seats| *seats > 0));
    }

    fn destroy(&self) {
        if !self.destroyed.swap(true, Ordering::SeqCst) {
            self.filesystem.destroy();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // A lazily ended mount: the last thread to leave says so.
        self.destroy();
    }
}

/// The threads that serve a mount.
struct Service {
    shared: Arc<Shared>,
    device: Arc<DeviceMount>,
}

impl Service {
    fn join(self) {
        self.shared.wait_until_left();
        self.device.join();
    }
}

/// One mounted file system. Dropping it unmounts, lazily if need be.
pub struct Session {
    path: PathBuf,
    /// Of the mounted file system.
    device: Option<(u32, u32)>,
    /// The mount at `path`.
    standing: Option<Standing>,
    shared: Arc<Shared>,
    service: Option<Service>,
    kind: TransportKind,
    watched: Option<Watched>,
    /// What it is mounted on, if `sync` and `umount` wait for us.
    partition: Option<Partition>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("path", &self.path).field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Session {
    /// Agrees with the kernel and starts serving. On failure the mount is taken away again.
    pub fn start(mount: Mount, filesystem: Arc<dyn Filesystem>, options: SessionOptions) -> io::Result<Session> {
        let path = mount.path().to_owned();
        Self::start_inner(mount, filesystem, options).inspect_err(|_| {
            // The error to report is the first one; a mount that cannot be ended now ends with the descriptor.
            let _ = mount::unmount(&path, true);
        })
    }

    fn start_inner(mount: Mount, filesystem: Arc<dyn Filesystem>, options: SessionOptions) -> io::Result<Session> {
        let path = mount.path().to_owned();
        let (device, partition, standing) = (Arc::new(mount.device), mount.partition, mount.standing);
        let may_use_rings = match options.transport {
            TransportChoice::DevFuse => false,
            TransportChoice::Auto => uring::was_available(),
            TransportChoice::IoUring => uring::is_available(),
        };
        if options.transport == TransportChoice::IoUring && !may_use_rings {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "FUSE over io_uring is not enabled in this kernel"));
        }
        // Before it is agreed with the kernel, which then waits for the queues.
        let share = may_use_rings.then(uring::Share::take).flatten();
        let negotiated = negotiate(&device, &options, share.is_some())?;
        tracing::debug!(path = %path.display(), minor = negotiated.minor, flags = ?negotiated.flags, "FUSE session agreed");
        filesystem.init(&negotiated);
        let shared = Arc::new(Shared {
            device,
            filesystem,
            options,
            max_write: negotiated.max_write,
            ended: AtomicBool::new(false),
            under_way: AtomicUsize::new(0),
            destroyed: AtomicBool::new(false),
            seats: Mutex::new(0),
            changed: Condvar::new(),
        });
        let rings = share.filter(|_| negotiated.flags.contains(InitFlags::OVER_IO_URING)).map(|share| RingMount::start(&shared, share));
        let kind = if rings.is_some() { TransportKind::IoUring } else { TransportKind::DevFuse };
        let service = Service { shared: Arc::clone(&shared), device: DeviceMount::start(&shared, rings)? };
        let device = standing.as_ref().map(Standing::device).or_else(|| mount::device_at(&path));
        let watched = Watched::begin(device);
        Ok(Session { path, device, standing, shared, service: Some(service), kind, watched, partition })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What lets the kernel read ahead further and collect more writes than it grants to servers that it does not trust. Takes root. To be called once the
    /// mount is used: it costs as much as a tenth of making the mount.
    pub fn cache_relaxer(&self) -> impl FnOnce() + Send + 'static {
        let device = self.device;
        move || device.into_iter().for_each(crate::mounting::backing::relax)
    }

    /// Do `sync`, `syncfs` and `umount` wait for us?
    pub fn is_durable(&self) -> bool {
        self.partition.is_some()
    }

    /// How requests arrive.
    pub fn transport(&self) -> TransportKind {
        self.kind
    }

    /// Tells the kernel of changes that it did not make.
    pub fn notifier(&self) -> Notifier {
        Notifier { device: Arc::clone(&self.shared.device) }
    }

    /// Has the mount ended, perhaps by somebody's `umount`?
    pub fn is_ended(&self) -> bool {
        self.shared.is_ended()
    }

    /// Gives a session without a visible mount point one again. It was unmounted, but not in all mount namespaces
    /// (containers have copies), or lazily while in use, so the kernel still has the file system and all that it knows
    /// of it. Only root can.
    pub fn mount_again(&mut self, path: &Path, options: &MountOptions) -> io::Result<()> {
        let path = mount::resolved(path, options)?;
        self.standing = Some(mount::mount_device(&self.shared.device, &path, options, self.partition.as_ref())?);
        self.path = path;
        Ok(())
    }

    /// Gives it one more place. Only root can.
    pub fn mount_also(&self, path: &Path, options: &MountOptions) -> io::Result<Standing> {
        mount::mount_device(&self.shared.device, &mount::resolved(path, options)?, options, self.partition.as_ref())
    }

    /// The mount that was made first, or made again; `None`: the kernel has no numbers for mounts.
    pub fn standing(&self) -> Option<&Standing> {
        self.standing.as_ref()
    }

    /// All mount points of the whole file system, by any mounter, the newest last.
    pub fn places(&self, points: &MountPoints) -> Vec<PathBuf> {
        self.device.and_then(|device| points.of(device)).map_or_else(|| vec![self.path.clone()], <[PathBuf]>::to_vec)
    }

    /// Unmounts it everywhere and waits until the last operation is done, some seconds at most. If it is in use and not
    /// `lazy`, the session comes back with the error, which names the user unless processes are inside. Copies of the
    /// mount in other mount namespaces end with it if nothing in them is in use.
    pub fn unmount(self, lazy: bool) -> Result<(), (Session, io::Error)> {
        self.unmount_from(lazy, &MountPoints::now())
    }

    /// As [`Session::unmount`], for a caller that has read the mount points.
    pub fn unmount_from(mut self, lazy: bool, points: &MountPoints) -> Result<(), (Session, io::Error)> {
        if let Err(error) = self.detach(lazy, points)
            && !self.is_ended()
        {
            return Err((self, error));
        }
        if lazy {
            self.wait_for_end();
        } else if self.ends() {
            self.wait_for_threads();
        } else {
            let keepers = self.device.map(Keepers::of).unwrap_or_default();
            if keepers.user.is_none() && keepers.copy.is_some() && rustix::process::geteuid().is_root() {
                tracing::info!(path = %self.path.display(), copy = keepers.copy, "unmounted where nobody uses it, too");
                return self.end_everywhere();
            }
            let words = keepers.user.or(keepers.copy);
            if words.is_none() && self.is_ended_by_kernel_within(PASSERS_LEAVE_WITHIN) {
                self.wait_for_threads();
                return Ok(());
            }
            let words = words.unwrap_or_else(|| "it is still in use in another mount namespace".to_owned());
            return Err((self, io::Error::new(io::ErrorKind::ResourceBusy, words)));
        }
        Ok(())
    }

    /// What is mounted at the path is this, and not something that somebody has mounted over it, or in its place: that is not ours to take away.
    fn is_on_top(&self, place: &Path) -> bool {
        match (self.device, mount::device_at(place)) {
            (Some(own), Some(there)) => own == there,
            _ => true,
        }
    }

    /// Unmounts what is at the path, if that is this.
    fn unmount_there(&self, place: &Path, lazy: bool) -> io::Result<()> {
        if self.is_on_top(place) {
            return mount::unmount(place, lazy);
        }
        Err(io::Error::new(io::ErrorKind::ResourceBusy, format!("something else is mounted over it, on {}", place.display())))
    }

    /// Takes one place away. Unless `lazy`, it waits a little for users to leave. A program that was just run in a
    /// mount, or a look at all mounts, keeps it in use a moment longer: a program that is being started has its
    /// starter's files open.
    #[allow(clippy::disallowed_methods)] // the real clock: other processes leave in it
    pub fn unmount_at(&self, place: &Path, lazy: bool) -> io::Result<()> {
        let since = Instant::now();
        loop {
            match if self.is_ended() { Ok(()) } else { self.unmount_there(place, lazy) } {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && error.get_ref().is_none() && self.may_be_left(since.elapsed()) => std::thread::sleep(Duration::from_millis(10)),
                // It was unmounted by another process meanwhile.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(()),
                done => return done,
            }
        }
    }

    /// May its users leave it soon, for whom was waited so long?
    fn may_be_left(&self, waited: Duration) -> bool {
        waited < USERS_LEAVE_WITHIN || waited < PASSERS_LEAVE_WITHIN && self.device.is_some_and(|device| !users::is_used(device))
    }

    /// Takes all places away, the newest first.
    fn detach(&self, lazy: bool, points: &MountPoints) -> io::Result<()> {
        self.places(points).iter().rev().try_for_each(|place| self.unmount_at(place, lazy))
    }

    /// Unmounts although the file system is in use: writes back what the kernel holds, then ends the connection. Users
    /// of open files get errors from then on. Only root can end a connection; for others this is a lazy unmount.
    pub fn unmount_forced(self) -> Result<(), (Session, io::Error)> {
        self.unmount_forced_from(&MountPoints::now())
    }

    /// As [`Session::unmount_forced`], for a caller that has read the mount points.
    pub fn unmount_forced_from(mut self, points: &MountPoints) -> Result<(), (Session, io::Error)> {
        if self.is_ended() || (self.detach(false, points).is_ok() && self.ends()) {
            self.wait_for_threads();
            return Ok(());
        }
        self.end_everywhere()
    }

    /// Ends the connection, and so all mounts of it.
    fn end_everywhere(mut self) -> Result<(), (Session, io::Error)> {
        let mut places = self.places(&MountPoints::now());
        if !places.iter().any(|place| self.is_on_top(place)) && self.mount_also(&self.path, &MountOptions::default()).is_ok() {
            // It lived on in another mount namespace, or below another mount. A connection is ended through a mount.
            places.push(self.path.clone());
        }
        if let Some(place) = places.iter().rev().find(|place| self.is_on_top(place)) {
            mount::abort(place);
        }
        for place in places.iter().rev().filter(|place| self.is_on_top(place)) {
            if let Err(error) = mount::unmount(place, true)
                && error.raw_os_error() != Some(libc::EINVAL)
            {
                return Err((self, error));
            }
        }
        self.wait_for_end();
        Ok(())
    }

    /// After a lazy or forced unmount: the end is near, or else the threads serve until the last user leaves, and nobody waits for that.
    fn wait_for_end(&mut self) {
        if self.ends_within(Duration::from_millis(200)) {
            self.wait_for_threads();
        } else {
            self.service.take();
        }
    }

    /// Waits a while for the threads to leave a mount that has ended. It does not wait for a thread that the file system keeps
    /// (for a device that is gone): the caller may be the one that could help.
    pub fn wait_for_threads(&mut self) {
        let Some(service) = self.service.take() else { return };
        let (shared, (done, is_done)) = (Arc::clone(&self.shared), mpsc::channel());
        let watched = self.watched.take();
        let join = move || {
            service.join();
            drop(watched);
            shared.destroy();
            // The caller may go on to destroy the dataset.
            drop(shared);
            let _ = done.send(());
        };
        let spawned = std::thread::Builder::new().name(format!("{}-end", self.shared.options.name)).spawn(join);
        if spawned.is_err() || is_done.recv_timeout(LEAVES_WITHIN).is_err() {
            tracing::warn!("{}: unmounted, while operations on it still wait", self.path.display());
        }
    }

    /// Waits until somebody unmounts.
    pub fn join(&mut self) {
        let Some(service) = self.service.take() else { return };
        service.join();
        self.shared.destroy();
    }

    /// Is it uncovered where it was mounted first, with nothing mounted below it?
    pub fn stands_alone(&self) -> bool {
        self.standing.as_ref().is_some_and(Standing::is_alone)
    }

    /// Has the kernel ended it already?
    pub fn has_ended(&self) -> bool {
        (self.is_ended() || self.is_hung_up()) && self.ends_within(ENDS_WITHIN)
    }

    /// Has the kernel ended it, now that it is unmounted? It has not if anybody keeps it.
    pub fn ends(&self) -> bool {
        self.is_ended_by_kernel_within(ENDED_BY_KERNEL_WITHIN)
    }

    #[allow(clippy::disallowed_methods)] // the real clock: the kernel ends it in it
    fn is_ended_by_kernel_within(&self, limit: Duration) -> bool {
        let since = Instant::now();
        loop {
            if self.is_ended() || self.is_hung_up() {
                return self.ends_within(ENDS_WITHIN);
            }
            if since.elapsed() > limit {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The kernel says so of the descriptor before any thread of ours has noticed.
    fn is_hung_up(&self) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(self.shared.device.as_fd(), PollFlags::empty())];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|_| fds[0].revents().intersects(PollFlags::ERR | PollFlags::HUP))
    }

    /// Waits so long for the end of the mount; says whether it has ended.
    pub fn ends_within(&self, limit: Duration) -> bool {
        self.shared.ends_within(limit)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.service.is_none() {
            return;
        }
        if !self.is_ended() && self.places(&MountPoints::now()).iter().rev().any(|place| self.unmount_there(place, false).is_err()) {
            // In use: take it out of sight; the threads serve until the last user leaves.
            let _ = self.detach(true, &MountPoints::now());
        }
        self.wait_for_end();
    }
}

/// Reads `INIT` and answers it.
fn negotiate(device: &OwnedFd, options: &SessionOptions, may_use_rings: bool) -> io::Result<Negotiated> {
    // Before it is agreed how large a write may be, none comes.
    let mut buffer = [0; crate::protocol::READ_BUFFER_MIN];
    loop {
        wait_readable(device)?;
        let len = match rustix::io::read(device, &mut buffer[..]) {
            Ok(len) => len,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN | rustix::io::Errno::NOENT) => continue,
            Err(error) => return Err(error.into()),
        };
        let (header, body) = InHeader::read_from_prefix(&buffer[..len]).map_err(|_| protocol_error("short request"))?;
        if header.opcode != Opcode::Init as u32 {
            return Err(protocol_error("the first request is not INIT"));
        }
        // Kernels that do not know the long form send its beginning only.
        let mut bytes = [0u8; size_of::<InitIn>()];
        let given = body.len().min(bytes.len());
        bytes[..given].copy_from_slice(&body[..given]);
        let init = InitIn::read_from_bytes(&bytes).map_err(|_| protocol_error("short INIT"))?;
        if init.major > MAJOR {
            reply_init(device, header.unique, &InitOut { major: MAJOR, minor: MINOR, ..InitOut::default() })?;
            continue;
        }
        if init.major < MAJOR || init.minor < MINOR_MIN {
            return Err(protocol_error("this kernel's FUSE is too old: Linux 5.17 is needed"));
        }
        let (out, negotiated) = agree(&init, options, may_use_rings);
        reply_init(device, header.unique, &out)?;
        return Ok(negotiated);
    }
}

/// `INIT` must arrive soon after the mount; a bound keeps a broken mount from hanging us.
fn wait_readable(device: &OwnedFd) -> io::Result<()> {
    let mut fds = [PollFd::from_borrowed_fd(device.as_fd(), PollFlags::IN)];
    let limit = Timespec { tv_sec: 10, tv_nsec: 0 };
    match poll(&mut fds, Some(&limit)) {
        Ok(0) => Err(io::Error::new(io::ErrorKind::TimedOut, "no INIT from the kernel")),
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn protocol_error(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("FUSE: {text}"))
}

fn reply_init(device: &OwnedFd, unique: u64, out: &InitOut) -> io::Result<()> {
    let header = OutHeader { len: (size_of::<OutHeader>() + size_of::<InitOut>()) as u32, error: 0, unique };
    let message = [header.as_bytes(), out.as_bytes()].concat();
    rustix::io::write(device, &message)?;
    Ok(())
}

/// What both sides want.
fn agree(init: &InitIn, options: &SessionOptions, may_use_rings: bool) -> (InitOut, Negotiated) {
    let offered = InitFlags::from_bits_truncate(u64::from(init.flags) | u64::from(init.flags2) << 32);
    let mut wanted = InitFlags::ASYNC_READ
        | InitFlags::EXPORT_SUPPORT
        | InitFlags::BIG_WRITES
        | InitFlags::HAS_IOCTL_DIR
        | InitFlags::DO_READDIRPLUS
        | InitFlags::READDIRPLUS_AUTO
        | InitFlags::PARALLEL_DIROPS
        | InitFlags::ABORT_ERROR
        | InitFlags::MAX_PAGES
        | InitFlags::CACHE_SYMLINKS
        | InitFlags::NO_OPEN_SUPPORT
        | InitFlags::NO_OPENDIR_SUPPORT
        | InitFlags::EXPLICIT_INVAL_DATA
        | InitFlags::HANDLE_KILLPRIV_V2
        | InitFlags::SETXATTR_EXT
        | InitFlags::INIT_EXT
        | InitFlags::HAS_EXPIRE_ONLY
        | InitFlags::CREATE_SUPP_GROUP
        | InitFlags::DIRECT_IO_ALLOW_MMAP;
    wanted.set(InitFlags::ATOMIC_O_TRUNC, !options.no_opens);
    wanted.set(InitFlags::WRITEBACK_CACHE, options.writeback_cache);
    wanted.set(InitFlags::ASYNC_DIO, options.async_direct_io);
    wanted.set(InitFlags::POSIX_ACL | InitFlags::DONT_MASK, options.posix_acl);
    wanted.set(InitFlags::POSIX_LOCKS | InitFlags::FLOCK_LOCKS, options.remote_locks);
    wanted.set(InitFlags::OVER_IO_URING, may_use_rings);
    let flags = wanted & offered;
    let minor = init.minor.min(MINOR);
    let max_write = options.max_write.max(4096);
    let out = InitOut {
        major: MAJOR,
        minor,
        max_readahead: options.max_readahead,
        flags: (flags.bits() & 0xffff_ffff) as u32,
        flags2: (flags.bits() >> 32) as u32,
        max_background: options.max_background,
        congestion_threshold: options.max_background / 4 * 3,
        max_write,
        time_granularity: 1,
        max_pages: u16::try_from(max_write.div_ceil(4096)).unwrap_or(u16::MAX),
        ..InitOut::default()
    };
    (out, Negotiated { minor, flags, max_write })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asynchronous_writes_past_the_cache_are_not_taken() {
        let init = InitIn { major: 7, minor: 60, flags: (InitFlags::BIG_WRITES | InitFlags::ASYNC_DIO).bits() as u32, ..InitIn::default() };
        assert_eq!(agree(&init, &SessionOptions::default(), true).1.flags, InitFlags::BIG_WRITES);
    }

    #[test]
    fn only_what_both_want() {
        let init = InitIn { major: 7, minor: 60, flags: (InitFlags::BIG_WRITES | InitFlags::WRITEBACK_CACHE).bits() as u32, ..InitIn::default() };
        let (out, negotiated) = agree(&init, &SessionOptions::default(), true);
        assert_eq!(negotiated.flags, InitFlags::BIG_WRITES);
        assert_eq!((out.minor, out.max_write, out.max_pages), (MINOR, 1 << 20, 256));
        let options = SessionOptions { writeback_cache: true, ..SessionOptions::default() };
        assert_eq!(agree(&init, &options, true).1.flags, InitFlags::BIG_WRITES | InitFlags::WRITEBACK_CACHE);
    }
}
