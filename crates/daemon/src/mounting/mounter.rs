//! Mounts datasets: puts a pool's file system, the operations on it and a FUSE session together.
//!
//! # Theory
//! A mount's behaviour is decided in three places: by options of the kernel's mount (`exec`, `setuid`, `devices`,
//! `readonly`), by the library's file system (`atime`, `readonly`, `xattr`), and by the operations (`sync`, `snapdir`).
//! When properties change, all three follow while the file system stays mounted.
//!
//! `TARN_FUSE` chooses among ways to serve, as words between commas: `devfuse` or `uring` (instead of the better one
//! that there is), `writeback` (the kernel has a write-back cache), `no-opens` (the kernel does not tell us of opens: 8
//! % more transactions of PostMark, a third of test 11, where four threads write one file with `O_DSYNC`), `ordinary`
//! (server threads do not yield to callers: `fuse::courtesy`).
//!
//! With a write-back cache (`ops::writeback`) a small write costs what it costs on any file system, and we get whole
//! records; but each file that was written costs one request more when it is closed. Data that `write` left in the
//! kernel's cache is not in the pool yet: `fsync`, `close`, `umount` and [`Mounter::flush`] bring it there, and the
//! kernel itself does so after half a minute. So a crash may cost a file that stays open that half minute and one
//! transaction group; a file that was closed, one transaction group.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fuse::{MountOptions, SessionOptions, Standing, TransportChoice};
use rustix::process::geteuid;
use tarnfs::control::{Failure, FailureKind, Flush, Job, Mount, MountPlan, Mounter, TransactionBegin, TransactionEnd, TransactionPlace};
use tarnfs::{AccessTime, Error, FileSystem, Pool};

use crate::mounting::many::Opening;
use crate::mounting::mounted::Mounted;
use crate::mounting::mounts::{MountHow, Mounts, SUBTYPE, renamed};
use crate::mounting::pool_snapshots::{PoolSnapshots, RenamedElsewhere};
use crate::ops::{Opener, Ops, OpsOptions, SnapDir, Snapshots, SyncPolicy};
use crate::mounting::transactions::{Transactions, ViewHow};

/// Values of properties.
const SYNC_ALWAYS: u64 = 1;
const SYNC_DISABLED: u64 = 2;
const SNAPDIR_VISIBLE: u64 = 1;
const SNAPDIR_DISABLED: u64 = 2;
const XATTR_OFF: u64 = 0;
const ACL_TYPE_POSIX: u64 = 1;
/// Largest read and write.
const TRANSFER_BYTES: u32 = 1 << 20;

/// Directories that no mount may hide.
#[derive(Debug)]
pub(super) struct Ours {
    own: Option<PathBuf>,
    /// Most places are none of these, which is soon known.
    numbers: Vec<(u32, u32, u64)>,
}

/// Device and number of a file. No server is asked for more.
fn number(path: &Path) -> Option<(u32, u32, u64)> {
    let found = rustix::fs::statx(rustix::fs::CWD, path, rustix::fs::AtFlags::STATX_DONT_SYNC, rustix::fs::StatxFlags::INO).ok()?;
    Some((found.stx_dev_major, found.stx_dev_minor, found.stx_ino))
}

/// Mounts datasets through FUSE.
#[derive(Debug, Default)]
pub struct FuseMounter {
    mounts: Mounts,
    /// Options of one mount only, by dataset, for datasets that have some.
    asked: BTreeMap<String, Vec<String>>,
    transactions: Arc<Transactions>,
    /// Snapshots that were renamed through `.zfs/snapshot`.
    renamed_elsewhere: RenamedElsewhere,
    /// The directory below which views of transactions are mounted; `None`: nowhere.
    transactions_at: Option<PathBuf>,
}

/// Properties of one dataset, as the mount needs them.
struct Properties {
    ops: OpsOptions,
    read_only: bool,
    setuid: bool,
    devices: bool,
    exec: bool,
    /// For the library. The kernel is not told to update access times, so it does not.
    access_time: AccessTime,
    directory_access_time: bool,
    snapshots: bool,
}

/// Which reads change a time of a file.
#[derive(Debug, Clone, Copy)]
struct Times {
    access: AccessTime,
    directories: bool,
}

impl Times {
    fn tell(self, filesystem: &FileSystem) {
        filesystem.set_options(tarnfs::MountOptions { access_time: self.access, directory_access_time: self.directories, ..filesystem.options() });
    }
}

fn snapdir_of(number: u64) -> SnapDir {
    match number {
        SNAPDIR_VISIBLE => SnapDir::Visible,
        SNAPDIR_DISABLED => SnapDir::Disabled,
        _ => SnapDir::Hidden,
    }
}

impl Properties {
    /// The stored properties, overridden by the options of this mount.
    fn of(pool: &Pool, dataset: &str, asked: &[String]) -> Result<Properties, Failure> {
        let mut properties = Properties::stored(pool, dataset).map_err(failed)?;
        for option in asked {
            properties.apply(option)?;
        }
        Ok(properties)
    }

    fn stored(pool: &Pool, dataset: &str) -> Result<Properties, Error> {
        let opened = pool.engine().dsl.open_dataset(dataset)?;
        let values = opened.property_values();
        let number = |name: &str| values.number_property(name);
        let options = pool.mount_options(dataset)?;
        let sync = match number("sync")? {
            SYNC_ALWAYS => SyncPolicy::Always,
            SYNC_DISABLED => SyncPolicy::Disabled,
            _ => SyncPolicy::Standard,
        };
        Ok(Properties {
            ops: OpsOptions {
                sync,
                snapdir: snapdir_of(number("snapdir")?),
                xattrs: number("xattr")? != XATTR_OFF,
                posix_acls: number("acltype")? == ACL_TYPE_POSIX,
                record_bytes: u32::try_from(number("recordsize")?).ok().filter(|bytes| *bytes > 0).unwrap_or(128 << 10),
                announce_opens: !chosen("no-opens") || chosen("writeback"),
                ..OpsOptions::default()
            },
            read_only: options.read_only,
            setuid: number("setuid")? != 0,
            devices: number("devices")? != 0,
            exec: number("exec")? != 0,
            access_time: options.access_time,
            directory_access_time: true,
            snapshots: !dataset.contains('@'),
        })
    }

    fn apply(&mut self, option: &str) -> Result<(), Failure> {
        match option {
            "ro" | "readonly" => self.read_only = true,
            // An option cannot allow writing where the property, the pool or the dataset forbids it.
            "rw" => {}
            "suid" | "setuid" => self.setuid = true,
            "nosuid" | "nosetuid" => self.setuid = false,
            "dev" | "devices" => self.devices = true,
            "nodev" | "nodevices" => self.devices = false,
            "exec" => self.exec = true,
            "noexec" => self.exec = false,
            "atime" | "relatime" => self.access_time = AccessTime::Relative,
            "noatime" => self.access_time = AccessTime::Off,
            "norelatime" | "strictatime" => self.access_time = AccessTime::Strict,
            "diratime" => self.directory_access_time = true,
            "nodiratime" => self.directory_access_time = false,
            "sync" => self.ops.sync = SyncPolicy::Always,
            "xattr" | "saxattr" | "dirxattr" => self.ops.xattrs = true,
            "noxattr" => self.ops.xattrs = false,
            // Meant for mount(8), or decided by the kernel.
            "" | "defaults" | "remount" | "async" | "silent" | "loud" | "lazytime" | "nolazytime" | "iversion" | "noiversion" | "mand" | "nomand" | "zfsutil" | "auto" | "noauto" | "_netdev" => {}
            // OpenZFS accepts these in `/etc/fstab`. They inform its readers, or a property decides.
            "acl" | "noacl" | "posixacl" | "casesensitive" | "caseinsensitive" | "casemixed" | "group" | "nofail" | "nostrictatime" | "comment" => {}
            _ if ["x-", "X-", "zfsprops=", "comment="].iter().any(|start| option.starts_with(start)) => {}
            _ => return Err(Failure::with(FailureKind::MountFailed, format!("invalid mount option '{option}'"))),
        }
        Ok(())
    }

    /// Whether a mount has to be changed by the kernel to be so. For a user's mount set-id bits and devices are always ignored, and access times are the library's.
    fn changes_mount(&self, before: &Properties) -> bool {
        (self.read_only, self.exec) != (before.read_only, before.exec)
    }

    /// Tells the library's file system where this mount differs from the stored properties.
    fn tell(&self, filesystem: &FileSystem) {
        self.times().tell(filesystem);
    }

    /// Where nothing may be written, reading changes no times.
    fn times(&self) -> Times {
        match self.read_only {
            true => Times { access: AccessTime::Off, directories: false },
            false => Times { access: self.access_time, directories: self.directory_access_time },
        }
    }

    /// Opens the file system that is this object, whatever it is called by then.
    fn opener(&self, pool: Arc<Pool>, object: u64) -> Opener {
        let (times, may_write) = (self.times(), !self.read_only);
        Box::new(move || {
            let filesystem = pool.file_system(&pool.engine().dsl.dataset(object)?.name()?)?;
            times.tell(&filesystem);
            let frees_left_behind = may_write && !filesystem.is_read_only();
            Ok((filesystem, frees_left_behind))
        })
    }

    fn for_kernel(&self, dataset: &str) -> MountOptions {
        MountOptions {
            source: dataset.to_owned(),
            subtype: SUBTYPE.to_owned(),
            durable: !chosen("plain"),
            allow_other: geteuid().is_root() || fuse::mount::users_may_allow_others(),
            default_permissions: true,
            read_only: self.read_only,
            no_suid: !self.setuid,
            no_dev: !self.devices,
            no_exec: !self.exec,
            no_atime: self.access_time == AccessTime::Off,
            no_directory_atime: !self.directory_access_time,
            max_read: TRANSFER_BYTES,
            exactly: None,
        }
    }

    fn how(&self, plan: &MountPlan) -> MountHow {
        let mount = MountOptions { exactly: plan.exactly.clone(), ..self.for_kernel(&plan.dataset) };
        MountHow { mount, session: session_options(&self.ops), overlay: plan.overlay }
    }
}

/// Tells the kernel of changed options. Only root may change a mount; for others the file system itself refuses writes
/// where the property `readonly` says so.
fn change(standing: &Standing, options: &MountOptions) -> Result<(), Failure> {
    if !geteuid().is_root() {
        return Ok(());
    }
    standing.change(options).map_err(|error| Failure::with(FailureKind::MountFailed, error.to_string()))
}

fn failed(error: Error) -> Failure {
    Failure::about_dataset(&error)
}

/// Whether `TARN_FUSE` has this word.
fn chosen(wanted: &str) -> bool {
    std::env::var("TARN_FUSE").is_ok_and(|text| text.split(',').any(|word| word.trim() == wanted))
}

fn session_options(ops: &OpsOptions) -> SessionOptions {
    let transport = if chosen("devfuse") {
        TransportChoice::DevFuse
    } else {
        if geteuid().is_root() && !fuse::uring::enable() {
            tracing::info!("this kernel has no FUSE over io_uring");
        }
        if chosen("uring") { TransportChoice::IoUring } else { TransportChoice::Auto }
    };
    let name = "tarn-fuse".to_owned();
    SessionOptions {
        transport,
        writeback_cache: chosen("writeback"),
        no_opens: !ops.announce_opens,
        posix_acl: ops.posix_acls,
        max_write: TRANSFER_BYTES,
        courteous: !chosen("ordinary"),
        name,
        ..SessionOptions::default()
    }
}

/// Splits words that have several options.
fn split(options: &[String]) -> Vec<String> {
    options.iter().flat_map(|word| word.split(',')).filter(|option| *option != "remount").map(str::to_owned).collect()
}

fn how(plan: &MountPlan) -> Result<(MountHow, Vec<String>), Failure> {
    let asked = split(&plan.options);
    let properties = Properties::of(&plan.pool, &plan.dataset, &asked)?;
    Ok((properties.how(plan), asked))
}

impl FuseMounter {
    /// A mounter without mounts.
    pub fn new() -> FuseMounter {
        // Threads that a mount's thread starts must not inherit its idle class.
        tarnfs::set_cpu_claim(fuse::claim_cpu);
        FuseMounter::default()
    }

    /// The same, with transactions whose views are mounted below a directory.
    #[must_use]
    pub fn with_transactions_at(mut self, directory: PathBuf) -> FuseMounter {
        self.transactions_at = Some(directory);
        self
    }

    /// The directory of the daemon's socket, and those above it.
    pub(super) fn ours(&self) -> Ours {
        let own = self.transactions_at.as_deref().and_then(Path::parent).and_then(|path| path.canonicalize().ok());
        let numbers = own.iter().flat_map(|own| own.ancestors()).filter_map(number).collect();
        Ours { own, numbers }
    }

    /// Refuses a mount over the directory of the daemon's socket: no command could reach the daemon any more, and
    /// another one would begin on top.
    pub(super) fn refuse_to_hide(&self, ours: &Ours, place: &Path) -> Result<(), Failure> {
        if !number(place).is_some_and(|number| ours.numbers.contains(&number)) {
            return Ok(());
        }
        match (&ours.own, place.canonicalize().ok()) {
            (Some(own), Some(place)) if own.starts_with(&place) => Err(Failure::with(
                FailureKind::MountFailed,
                format!(
                    "the daemon's socket is in {}, which a mount on {} would hide: export the pool, set TARN_SOCKET to a path elsewhere, import it again",
                    own.display(),
                    place.display()
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Follows what was renamed without this mounter.
    fn follow_renames(&mut self) {
        for (from, to) in self.renamed_elsewhere.take() {
            self.follow_rename(&from, &to);
        }
    }

    fn follow_rename(&mut self, from: &str, to: &str) {
        self.mounts.renamed(from, to);
        let asked = std::mem::take(&mut self.asked);
        self.asked = asked.into_iter().map(|(dataset, options)| (renamed(&dataset, from, to).unwrap_or(dataset), options)).collect();
    }

    /// Mounts what has no session.
    pub(super) fn make(&self, plan: &MountPlan, opening: Opening) -> Result<(Mounted, Vec<String>), Failure> {
        let MountPlan { pool, dataset, path, options, .. } = plan;
        let asked = split(options);
        let properties = Properties::of(pool, dataset, &asked)?;
        let how = properties.how(plan);
        let object = pool.file_system_to_open(dataset).map_err(failed)?;
        let renamed = self.renamed_elsewhere.clone();
        let snapshots = properties.snapshots.then(|| Box::new(PoolSnapshots { pool: Arc::clone(pool), dataset: object, renamed }) as Box<dyn Snapshots>);
        let opener = properties.opener(Arc::clone(pool), object);
        let ops = Arc::new(Ops::unopened(opener, snapshots, properties.ops));
        if opening == Opening::Now {
            ops.open_contents().map_err(failed)?;
        }
        Ok((self.mounts.make_ops(dataset, path, ops, how)?, asked))
    }

    /// Nobody has it mounted, in sight or not.
    pub(super) fn is_new(&mut self, plan: &MountPlan) -> bool {
        self.mounts.may_mount(&plan.dataset).is_ok()
    }

    pub(super) fn keep(&mut self, (made, asked): (Mounted, Vec<String>)) {
        self.remember(made.dataset.clone(), asked);
        self.mounts.keep(made);
    }

    fn remember(&mut self, dataset: String, asked: Vec<String>) {
        if asked.is_empty() {
            self.asked.remove(&dataset);
        } else {
            self.asked.insert(dataset, asked);
        }
    }

    /// Has the kernel write back what it holds of a mounted dataset, if it has a write-back cache.
    fn fetch_writes(&self, dataset: &str) {
        let collects = self.mounts.ops(dataset).is_some_and(|ops| ops.has_writeback_cache());
        let Some(path) = self.mounts.path(dataset).filter(|_| collects) else { return };
        if let Err(error) = fuse::errand::sync(&[path.to_owned()]) {
            tracing::warn!(dataset, %error, "data in the kernel's cache could not be written back");
        }
    }

    fn follow(&self, pool: &Arc<Pool>, dataset: &str, asked: &[String]) -> Result<(), Failure> {
        let properties = Properties::of(pool, dataset, asked)?;
        let object = pool.engine().dsl.open_dataset(dataset).map_err(failed)?.object;
        let opener = properties.opener(Arc::clone(pool), object);
        if !self.mounts.ops(dataset).is_some_and(|ops| ops.is_to_be_opened_by(opener)) {
            properties.tell(&*pool.file_system(dataset).map_err(failed)?);
        }
        let mut done = self.mounts.standing(dataset).map_or(Ok(()), |standing| change(standing, &properties.for_kernel(dataset)));
        for (standing, asked) in self.mounts.also(dataset) {
            done = done.and(change(standing, &Properties::of(pool, dataset, asked)?.for_kernel(dataset)));
        }
        if let Some(ops) = self.mounts.ops(dataset) {
            // These two were agreed with the kernel at the mount.
            ops.set_options(OpsOptions { announce_opens: ops.announces_opens(), posix_acls: ops.has_posix_acls(), ..properties.ops });
        }
        done
    }

    /// Mounts a dataset again if `acltype` changed: the kernel learns at the mount whether to obey access control
    /// lists. That takes new mounts of what is mounted below, too. A mount in use stays as it is, which is an error.
    fn mount_anew(&mut self, pool: &Arc<Pool>, dataset: &str, options: Vec<String>) -> Result<(), Failure> {
        let wanted = Properties::of(pool, dataset, &options)?.ops.posix_acls;
        let (Some(path), Some(ops)) = (self.mounts.path(dataset).map(Path::to_owned), self.mounts.ops(dataset)) else { return Ok(()) };
        if ops.has_posix_acls() == wanted {
            return Ok(());
        }
        let again = self.mounted_within(pool, dataset, &path);
        let may_go = match &again {
            Some(again) => self.transactions.before_unmount(|other| again.iter().any(|plan| plan.dataset == other), false),
            None => Err(Failure::with(FailureKind::DatasetBusy, "file systems of another pool are mounted in it")),
        };
        // Mount everything again that was unmounted, whether or not all could be.
        let mut done = may_go.and_then(|()| self.mounts.unmount(dataset, false));
        let left = self.mounts.list();
        for plan in again.into_iter().flatten() {
            if !left.iter().any(|mount| mount.dataset == plan.dataset && Path::new(&mount.mountpoint) == plan.path) {
                done = done.and(self.mount(plan));
            }
        }
        done
    }

    /// What is mounted at `place` and below, as it is to be mounted again, in the order in which it was. `None`: not
    /// all of it is of this pool.
    fn mounted_within(&self, pool: &Arc<Pool>, dataset: &str, place: &Path) -> Option<Vec<MountPlan>> {
        let name = pool.name();
        let within = self.mounts.list().into_iter().filter(|mount| mount.dataset == dataset || Path::new(&mount.mountpoint).starts_with(place));
        let plan = |Mount { dataset, mountpoint }: Mount| {
            let (options, exactly) = (self.options_at(&dataset, Path::new(&mountpoint)), self.mounts.real_place(&dataset, Path::new(&mountpoint)));
            let is_ours = dataset.split(['/', '@']).next() == Some(&name);
            is_ours.then(|| MountPlan { pool: Arc::clone(pool), dataset, path: mountpoint.into(), options, overlay: true, also: true, exactly })
        };
        within.map(plan).collect()
    }
}

impl Mounter for FuseMounter {
    fn mount(&mut self, plan: MountPlan) -> Result<(), Failure> {
        if self.mounts.tidy_one(&plan.dataset) {
            self.asked.remove(&plan.dataset);
        }
        self.refuse_to_hide(&self.ours(), &plan.path)?;
        if self.mounts.has(&plan.dataset) {
            let (how, asked) = how(&plan)?;
            if plan.also && self.mounts.mount_also(&plan.dataset, &plan.path, &how, &asked)? {
                return Ok(());
            }
            if self.mounts.mount_again(&plan.dataset, &plan.path, &how)? {
                self.follow(&plan.pool, &plan.dataset, &asked)?;
                self.remember(plan.dataset, asked);
                return Ok(());
            }
        }
        self.mounts.may_mount(&plan.dataset)?;
        let made = self.make(&plan, Opening::Now)?;
        self.keep(made);
        Ok(())
    }

    fn mount_all(&mut self, plans: Vec<MountPlan>) -> Vec<Result<(), Failure>> {
        self.mount_many(plans)
    }

    fn open(&mut self, dataset: &str) {
        // Its users learn the error.
        let _ = self.mounts.ops(dataset).map(|ops| ops.filesystem());
    }

    fn remount(&mut self, pool: &Arc<Pool>, dataset: &str, options: &[String]) -> Result<(), Failure> {
        if !self.mounts.is_mounted(dataset) {
            return Err(Failure::with(FailureKind::MountFailed, "not currently mounted"));
        }
        let asked = split(options);
        if !geteuid().is_root() && Properties::of(pool, dataset, &asked)?.changes_mount(&Properties::of(pool, dataset, &self.options(dataset))?) {
            return Err(Failure::with(FailureKind::MountFailed, "only root can change 'ro', 'rw', 'exec' and 'noexec' of what is mounted: unmount it, and mount it with them"));
        }
        self.follow(pool, dataset, &asked)?;
        self.remember(dataset.to_owned(), asked);
        Ok(())
    }

    fn unmount(&mut self, dataset: &str, force: bool) -> Result<(), Failure> {
        self.follow_renames();
        let below = self.mounts.path(dataset).map(Path::to_owned);
        let is_below = |other: &str| other == dataset || below.as_ref().is_some_and(|below| self.mounts.path(other).is_some_and(|path| path.starts_with(below)));
        self.transactions.before_unmount(is_below, force)?;
        self.mounts.unmount(dataset, force)
    }

    fn put_away(&mut self, dataset: &str, at: Option<&Path>, end_transactions: bool) -> Result<(), Failure> {
        let below = at.or(self.mounts.path(dataset)).map(Path::to_owned);
        let is_below = |other: &str| other == dataset || below.as_ref().is_some_and(|below| self.mounts.path(other).is_some_and(|path| path.starts_with(below)));
        self.transactions.before_unmount(is_below, end_transactions)?;
        // The kernel writes back by itself only if the file system ends with this mount.
        self.fetch_writes(dataset);
        self.mounts.put_away(dataset, at)
    }

    fn has(&self, dataset: &str) -> bool {
        self.mounts.has(dataset)
    }

    fn unmount_tree(&mut self, root: &str, force: bool) -> Result<(), Failure> {
        self.follow_renames();
        let is_below = |dataset: &str| dataset == root || dataset.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'));
        self.transactions.before_unmount(is_below, force)?;
        self.mounts.unmount_tree(root, force)
    }

    fn check_rename(&self, from: &str) -> Result<(), Failure> {
        self.transactions.before_unmount(|dataset| renamed(dataset, from, "").is_some(), false)
    }

    fn renamed(&mut self, from: &str, to: &str) {
        self.follow_renames();
        self.follow_rename(from, to);
        // Of a snapshot the place in `.zfs/snapshot` moves, too.
        if let (Some((head, old)), Some((_, new))) = (from.split_once('@'), to.split_once('@'))
            && let Some(ops) = self.mounts.ops(head)
        {
            ops.snapshot_renamed(old, new);
        }
    }

    fn snapshots_changed(&mut self, heads: &[String]) -> Box<dyn FnOnce() + Send> {
        let all: Vec<Arc<Ops>> = heads.iter().filter_map(|head| self.mounts.ops(head)).cloned().collect();
        Box::new(move || all.iter().for_each(|ops| ops.snapshots_changed()))
    }

    fn close_snapshot(&mut self, name: &str) {
        if let Some((head, snapshot)) = name.split_once('@')
            && let Some(ops) = self.mounts.ops(head)
        {
            ops.close_snapshot(snapshot);
        }
    }

    fn check_replace(&self, dataset: &str) -> Result<(), Failure> {
        self.transactions.before_unmount(|other| other == dataset, false)
    }

    fn replace_contents(&mut self, pool: &Arc<Pool>, dataset: &str, change: &mut dyn FnMut() -> Result<(), Failure>) -> Result<(), Failure> {
        let Some(ops) = self.mounts.ops(dataset).map(Arc::clone).filter(|ops| !ops.is_ended()) else { return change() };
        self.check_replace(dataset)?;
        self.fetch_writes(dataset);
        let asked = self.options(dataset);
        let object = pool.engine().dsl.open_dataset(dataset).map_err(failed)?.object;
        let opener = Properties::of(pool, dataset, &asked)?.opener(Arc::clone(pool), object);
        ops.replace_contents(change, opener, failed)?;
        self.follow(pool, dataset, &asked)
    }

    fn is_mounted(&self, dataset: &str) -> bool {
        self.mounts.is_mounted(dataset)
    }

    fn options(&self, dataset: &str) -> Vec<String> {
        self.asked.get(dataset).cloned().unwrap_or_default()
    }

    fn options_at(&self, dataset: &str, place: &Path) -> Vec<String> {
        let own = self.mounts.also(dataset).iter().find(|(standing, _)| standing.path() == place).map(|(_, asked)| asked.clone());
        own.unwrap_or_else(|| self.options(dataset))
    }

    fn real_place(&self, dataset: &str, place: &Path) -> Option<PathBuf> {
        self.mounts.real_place(dataset, place)
    }

    fn list(&self) -> Vec<Mount> {
        self.mounts.list()
    }

    fn places(&self, dataset: &str) -> Vec<Mount> {
        self.mounts.places(dataset)
    }

    fn refresh(&mut self, pool: &Arc<Pool>) -> Vec<(String, Failure)> {
        let name = pool.name();
        let mut left = Vec::new();
        for Mount { dataset, .. } in self.mounts.list() {
            if dataset.split(['/', '@']).next() != Some(&name) {
                continue;
            }
            let asked = self.asked.get(&dataset).cloned().unwrap_or_default();
            if let Err(failure) = self.follow(pool, &dataset, &asked).and_then(|()| self.mount_anew(pool, &dataset, asked)) {
                tracing::warn!(dataset, %failure, "the options of the mount could not be changed");
                left.push((dataset, failure));
            }
        }
        left
    }

    fn flush(&mut self, pool: &Arc<Pool>) -> Flush {
        let name = pool.name();
        let of_pool = |mount: &Mount| mount.dataset.split(['/', '@']).next() == Some(&name);
        let mounts = self.mounts.list().into_iter().filter(of_pool);
        let found = |mount: Mount| Some((self.mounts.path(&mount.dataset)?.to_owned(), Arc::clone(self.mounts.ops(&mount.dataset)?)));
        let (places, all_ops): (Vec<PathBuf>, Vec<Arc<Ops>>) = mounts.filter_map(found).unzip();
        Box::new(move || {
            // Before and after: where `sync` waits for us everything is settled afterwards, but data of mapped memory
            // arrives only with it.
            let before: Vec<_> = all_ops.iter().map(|ops| ops.unsettled()).collect();
            if let Err(error) = fuse::errand::sync(&places) {
                tracing::warn!(pool = name, %error, "data in the kernel's cache could not be written back");
            }
            let changed: Vec<_> = all_ops.into_iter().zip(before).map(|(ops, before)| ([before, ops.unsettled()].concat(), ops)).collect();
            Box::new(move || changed.iter().for_each(|(inodes, ops)| ops.forget_space(inodes)))
        })
    }

    fn fetch(&mut self, datasets: &[String]) -> Box<dyn FnOnce() + Send> {
        let places: Vec<PathBuf> = datasets.iter().filter_map(|dataset| self.mounts.path(dataset)).map(Path::to_owned).collect();
        Box::new(move || {
            if let Err(error) = fuse::errand::sync(&places) {
                tracing::warn!(?places, %error, "data in the kernel's cache could not be written back");
            }
        })
    }

    fn tidy(&mut self) {
        self.follow_renames();
        self.transactions.tidy();
        self.mounts.tidy();
        if self.asked.is_empty() {
            return;
        }
        let in_sight: BTreeSet<String> = self.mounts.list().into_iter().map(|mount| mount.dataset).collect();
        self.asked.retain(|dataset, _| in_sight.contains(dataset));
    }

    fn begin_transaction(&mut self, pool: &Arc<Pool>, begin: &TransactionBegin) -> Result<TransactionPlace, Failure> {
        let dataset = begin.dataset.as_str();
        let (Some(place), Some(ops), Some(path)) = (&self.transactions_at, self.mounts.ops(dataset), self.mounts.path(dataset)) else {
            return Err(Failure::with(FailureKind::MountFailed, "not currently mounted"));
        };
        if ops.is_ended() {
            return Err(Failure::with(FailureKind::MountFailed, "not currently mounted"));
        }
        let properties = Properties::of(pool, dataset, self.asked.get(dataset).map_or(&[], Vec::as_slice))?;
        self.fetch_writes(dataset);
        let how = ViewHow {
            mount: MountOptions { source: format!("{dataset}(transaction)"), durable: false, ..properties.for_kernel(dataset) },
            session: SessionOptions {
                transport: TransportChoice::DevFuse,
                no_opens: true,
                posix_acl: ops.has_posix_acls(),
                max_write: TRANSFER_BYTES,
                name: "tarn-view".to_owned(),
                ..SessionOptions::default()
            },
            block_size: properties.ops.record_bytes,
        };
        self.transactions.begin(place, begin, Arc::clone(ops), path, how)
    }

    fn end_transaction(&mut self, end: TransactionEnd) -> Result<Job, Failure> {
        self.transactions.end(end)
    }
}
