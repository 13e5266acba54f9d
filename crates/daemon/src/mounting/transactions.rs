//! Transactions of programs over the mount: their mounted views, their owners, their ends.
//!
//! # Theory
//! A transaction is a [`View`], mounted on a directory of its own beside the daemon's socket. It has an *owner*, a
//! process: when the owner ends without a commit, the transaction is forgotten, so that a crash leaves nothing behind.
//! The same happens when the daemon ends, however it ends.
//!
//! The commit first unmounts the view: the kernel hands over what is mapped or cached, and no change is under way. A
//! view in use cannot be committed; it stays. Then everything else the kernel knows of the dataset's files is brought
//! in order around the commit itself ([`crate::ops::Ops::change_behind`]).
//!
//! # Locks
//! Ending a transaction may wait for the pool. So it is a [`Job`] that runs without the table of pools, as the pool may
//! be waiting for a `zpool clear`.
//!
//! # Path
//! `tarn transaction` → control socket → `FuseMounter` → here → [`View::take`] → `tarnfs::Transaction::commit`

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fuse::{Mount as FuseMount, MountOptions, Session, SessionOptions};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tarnfs::control::{Failure, FailureKind, Job, TransactionBegin, TransactionEnd, TransactionFate, TransactionPlace, no_transaction};
use tarnfs::{Durability, Error, ErrorKind};

use crate::mounting::mounts::SUBTYPE;
use crate::ops::{Ops, View};
use crate::socket::trust;

/// Transactions that may be open at a time.
const OPEN_MAX: usize = 64;

/// How often, and how long each time, a forced unmount waits for a commit that is under way.
const LOOKS: u32 = 100;
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// One transaction that has begun.
struct Open {
    dataset: String,
    directory: PathBuf,
    /// Readable when the owner has ended.
    owner: OwnedFd,
    view: Arc<View>,
    session: Session,
    ops: Arc<Ops>,
}

/// All transactions of a daemon.
#[derive(Default)]
pub(crate) struct Transactions {
    open: Mutex<Vec<Open>>,
    /// The datasets of transactions that are being committed.
    ending: Mutex<Vec<String>>,
    begun: Mutex<u64>,
}

impl std::fmt::Debug for Transactions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} transactions", self.open.lock().len())
    }
}

/// How a view is mounted.
pub(crate) struct ViewHow {
    /// For the kernel.
    pub(crate) mount: MountOptions,
    /// For the session.
    pub(crate) session: SessionOptions,
    /// Preferred size of an I/O.
    pub(crate) block_size: u32,
}

fn failed(error: &io::Error) -> Failure {
    Failure::with(FailureKind::MountFailed, format!("the view of the transaction cannot be mounted: {error}"))
}

/// An engine error in the words of a command.
fn refused(error: &Error) -> Failure {
    match error.kind() {
        // The messages of these name the obstacle and the remedy.
        ErrorKind::TooBig | ErrorKind::NoSpace | ErrorKind::Quota | ErrorKind::Suspended => Failure::with(FailureKind::Other, error.message()),
        _ => Failure::about_dataset(error),
    }
}

impl Open {
    fn owner_has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.owner, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
    }

    /// Forgets it even if the view is in use. The error says why it could not have been committed.
    fn abort(self, why: &str) -> Option<Error> {
        let Open { dataset, directory, view, session, .. } = self;
        // First, so that users that keep the view hold nothing of the dataset.
        let failed = view.abandon();
        if let Err((_, error)) = session.unmount_forced() {
            tracing::warn!(dataset, directory = %directory.display(), %error, "the view of an aborted transaction stays mounted");
        }
        let _ = fs::remove_dir(&directory);
        tracing::info!(dataset, directory = %directory.display(), "transaction aborted: {why}");
        failed
    }

    /// Commits. The transaction is over then, unless it comes back with the failure.
    fn commit(self, durability: Durability) -> Result<(), (Option<Open>, Failure)> {
        let Open { dataset, directory, owner, view, session, ops } = self;
        if let Err((session, error)) = session.unmount(false) {
            let failure = Failure::with(
                FailureKind::DatasetBusy,
                format!("{} is in use: leave the directory and close its files, then commit again ({error})", directory.display()),
            );
            return Err((Some(Open { dataset, directory, owner, view, session, ops }), failure));
        }
        let _ = fs::remove_dir(&directory);
        let over = |failure| (None, failure);
        let (transaction, failed) = view.take();
        if let Some(error) = failed {
            let failure = refused(&error);
            return Err(over(Failure::with(failure.kind, format!("an operation in the transaction failed: {}", failure.message))));
        }
        let Some(transaction) = transaction else { return Err(over(no_transaction(&directory))) };
        if ops.is_ended() {
            return Err(over(Failure::with(FailureKind::Conflict, format!("{dataset} was unmounted meanwhile"))));
        }
        let changed = transaction.changed();
        // Programs see the changes before they are on disk, so the kernel is told before the wait for the disk.
        let committed = ops.change_behind(&changed, || transaction.commit(Durability::Soon)).and_then(|()| match durability {
            Durability::Now => ops.filesystem().map_or(Ok(()), |filesystem| filesystem.sync_group()),
            Durability::Soon => Ok(()),
        });
        match &committed {
            Ok(()) => tracing::info!(dataset, names = changed.names.len(), inodes = changed.inodes.len(), "transaction committed"),
            Err(error) => tracing::info!(dataset, %error, "transaction not committed"),
        }
        committed.map_err(|error| over(refused(&error)))
    }
}

/// Marks that a transaction of its dataset is being committed, until this is dropped.
struct Ending {
    all: Arc<Transactions>,
    dataset: String,
}

impl Ending {
    fn new(all: Arc<Transactions>, dataset: &str) -> Ending {
        all.ending.lock().push(dataset.to_owned());
        Ending { all, dataset: dataset.to_owned() }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let mut ending = self.all.ending.lock();
        if let Some(at) = ending.iter().position(|dataset| *dataset == self.dataset) {
            ending.swap_remove(at);
        }
    }
}

impl Transactions {
    /// Begins a transaction on a mounted dataset, whose operations are `ops`.
    pub(crate) fn begin(&self, place: &Path, begin: &TransactionBegin, ops: Arc<Ops>, mountpoint: &Path, how: ViewHow) -> Result<TransactionPlace, Failure> {
        if self.open.lock().len() >= OPEN_MAX {
            return Err(Failure::with(FailureKind::Other, format!("{OPEN_MAX} transactions are open, which is the most: commit or abort one first")));
        }
        let no_owner = || Failure::with(FailureKind::Other, format!("there is no process {} to own the transaction", begin.owner));
        let owner = pidfd_open(Pid::from_raw(begin.owner).ok_or_else(no_owner)?, PidfdFlags::empty()).map_err(|_| no_owner())?;
        let filesystem = ops.filesystem().map_err(|_| Failure::with(FailureKind::MountFailed, "not currently mounted"))?;
        let transaction = filesystem.begin().map_err(|error| refused(&error))?;
        let directory = self.make_directory(place).map_err(|error| failed(&error))?;
        let view = Arc::new(View::new(transaction, how.block_size, ops.xattrs_in_use()));
        let mounted = FuseMount::new(&directory, &how.mount).and_then(|mount| Session::start(mount, Arc::clone(&view) as Arc<dyn fuse::Filesystem>, how.session));
        let session = mounted.map_err(|error| {
            let _ = fs::remove_dir(&directory);
            failed(&error)
        })?;
        tracing::info!(dataset = begin.dataset, directory = %directory.display(), owner = begin.owner, "transaction begun");
        let open = Open { dataset: begin.dataset.clone(), directory: directory.clone(), owner, view, session, ops };
        self.open.lock().push(open);
        Ok(TransactionPlace { directory, mountpoint: mountpoint.to_owned() })
    }

    /// Makes a directory for a view. Remains of a killed daemon are cleared away.
    fn make_directory(&self, place: &Path) -> io::Result<PathBuf> {
        trust::make_private_directory(place)?;
        let mut begun = self.begun.lock();
        if *begun == 0 {
            for left in fs::read_dir(place)?.filter_map(Result::ok) {
                let _ = fuse::mount::clear_dead(&left.path(), SUBTYPE);
                let _ = fs::remove_dir(left.path());
            }
        }
        *begun += 1;
        let directory = place.join(begun.to_string());
        fs::DirBuilder::new().mode(0o700).create(&directory)?;
        Ok(directory)
    }

    /// Takes a transaction out, and returns the job that ends it.
    pub(crate) fn end(self: &Arc<Self>, end: TransactionEnd) -> Result<Job, Failure> {
        let open = {
            let mut all = self.open.lock();
            let at = all.iter().position(|open| open.directory == end.directory).ok_or_else(|| no_transaction(&end.directory))?;
            all.remove(at)
        };
        let all = Arc::clone(self);
        let TransactionFate::Commit { durable } = end.fate else {
            return Ok(Box::new(move || {
                // A conflict is reported, as it may make the caller try again.
                match open.abort("somebody said so").map(|error| refused(&error)) {
                    Some(failure) if failure.kind == FailureKind::Conflict => Err(failure),
                    _ => Ok(()),
                }
            }));
        };
        let ending = Ending::new(all, &open.dataset);
        Ok(Box::new(move || {
            open.commit(if durable { Durability::Now } else { Durability::Soon }).map_err(|(open, failure)| {
                ending.all.open.lock().extend(open);
                failure
            })
        }))
    }

    /// Forgets transactions whose owner has ended.
    pub(crate) fn tidy(&self) {
        self.abort_where(|open| open.owner_has_ended(), "its owner has ended");
    }

    /// Called before datasets are unmounted: open transactions make that fail, or are forgotten with `force`.
    pub(crate) fn before_unmount(&self, chosen: impl Fn(&str) -> bool, force: bool) -> Result<(), Failure> {
        self.tidy();
        if force {
            self.abort_where(|open| chosen(&open.dataset), "the dataset is unmounted");
        }
        for _ in 0..if force { LOOKS } else { 0 } {
            if !self.ending.lock().iter().any(|dataset| chosen(dataset)) {
                break;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        if let Some(dataset) = self.ending.lock().iter().find(|dataset| chosen(dataset)) {
            return Err(Failure::with(FailureKind::DatasetBusy, format!("a transaction of {dataset} is being committed: pool or dataset is busy")));
        }
        match self.open.lock().iter().find(|open| chosen(&open.dataset)) {
            Some(open) => Err(Failure::with(FailureKind::DatasetBusy, format!("a transaction is open at {}: pool or dataset is busy", open.directory.display()))),
            None => Ok(()),
        }
    }

    fn abort_where(&self, chosen: impl Fn(&Open) -> bool, why: &str) {
        let gone: Vec<Open> = self.open.lock().extract_if(.., |open| chosen(open)).collect();
        for open in gone {
            open.abort(why);
        }
    }
}
