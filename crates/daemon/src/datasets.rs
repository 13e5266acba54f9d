//! Mounts datasets of a pool: what their properties mean for FUSE, and where `.zfs/snapshot` finds snapshots.
//!
//! `TARN_FUSE` chooses among ways to serve, as words between commas: `devfuse` or `uring` (instead of the better one that
//! there is), `writeback` (the kernel collects writes), `opens` (the kernel announces opens).

use std::path::Path;
use std::sync::Arc;

use fuse::{Errno, SessionOptions, Timestamp, TransportChoice};
use tarnfs::control::{Failure, FailureKind};
use tarnfs::{Error, FileSystem, Pool};

use crate::mounts::{MountHow, Mounts, SUBTYPE};
use crate::ops::{Ops, OpsOptions, SnapshotInfo, Snapshots, SyncPolicy};

/// Values of properties.
const SYNC_ALWAYS: u64 = 1;
const SYNC_DISABLED: u64 = 2;
const SNAPDIR_VISIBLE: u64 = 1;
const SNAPDIR_DISABLED: u64 = 2;
const XATTR_OFF: u64 = 0;
/// Largest dataset-independent read and write.
const TRANSFER_BYTES: u32 = 1 << 20;

/// Properties of one dataset, as the mount needs them.
struct Properties {
    ops: OpsOptions,
    read_only: bool,
    setuid: bool,
    devices: bool,
    exec: bool,
    atime: bool,
    snapshots: bool,
}

/// Snapshots of a dataset, for `.zfs/snapshot`.
struct OfPool {
    pool: Arc<Pool>,
    dataset: String,
}

impl OfPool {
    fn info(&self, name: String, object: u64) -> Result<SnapshotInfo, Error> {
        let record = self.pool.engine().dsl.dataset_record(object)?;
        let created = Timestamp { seconds: record.creation_time.get().cast_signed(), nanoseconds: 0 };
        Ok(SnapshotInfo { name, id: object, created })
    }
}

impl Snapshots for OfPool {
    fn list(&self) -> fuse::Result<Vec<SnapshotInfo>> {
        let list = || -> Result<Vec<SnapshotInfo>, Error> {
            let dataset = self.pool.engine().dsl.open_dataset(&self.dataset)?;
            dataset.snapshots()?.into_iter().map(|(name, object)| self.info(name, object)).collect()
        };
        list().map_err(crate::errno::of)
    }

    fn open(&self, name: &str) -> fuse::Result<Arc<FileSystem>> {
        // What a name that contains these would say is not a snapshot of this dataset.
        if name.contains(['@', '/', '%']) {
            return Err(Errno::ENOENT);
        }
        self.pool.file_system(&format!("{}@{name}", self.dataset)).map_err(crate::errno::of)
    }
}

fn properties(pool: &Pool, dataset: &str) -> Result<Properties, Error> {
    let opened = pool.engine().dsl.open_dataset(dataset)?;
    let number = |name: &str| opened.number_property(name);
    let snapdir = number("snapdir")?;
    let sync = match number("sync").unwrap_or(0) {
        SYNC_ALWAYS => SyncPolicy::Always,
        SYNC_DISABLED => SyncPolicy::Disabled,
        _ => SyncPolicy::Standard,
    };
    Ok(Properties {
        ops: OpsOptions {
            sync,
            snapdir_visible: snapdir == SNAPDIR_VISIBLE,
            xattrs: number("xattr")? != XATTR_OFF,
            record_bytes: u32::try_from(number("recordsize").unwrap_or(0)).ok().filter(|bytes| *bytes > 0).unwrap_or(128 << 10),
            announce_opens: words().any(|word| word == "opens"),
        },
        read_only: pool.mount_options(dataset)?.read_only,
        setuid: number("setuid")? != 0,
        devices: number("devices")? != 0,
        exec: number("exec")? != 0,
        atime: number("atime").unwrap_or(1) != 0,
        snapshots: snapdir != SNAPDIR_DISABLED && !dataset.contains('@'),
    })
}

fn words() -> impl Iterator<Item = String> {
    let text = std::env::var("TARN_FUSE").unwrap_or_default();
    text.split(',').map(|word| word.trim().to_owned()).collect::<Vec<_>>().into_iter()
}

fn session_options(announce_opens: bool) -> SessionOptions {
    let has = |wanted: &str| words().any(|word| word == wanted);
    let transport = if has("devfuse") {
        TransportChoice::DevFuse
    } else {
        if rustix::process::geteuid().is_root() && !fuse::uring::enable() {
            tracing::info!("this kernel has no FUSE over io_uring");
        }
        if has("uring") { TransportChoice::IoUring } else { TransportChoice::Auto }
    };
    SessionOptions { transport, writeback_cache: has("writeback"), no_opens: !announce_opens, max_write: TRANSFER_BYTES, name: "tarn-fuse".to_owned(), ..SessionOptions::default() }
}

impl Mounts {
    /// Mounts a file system or snapshot of `pool` on `path`, as its properties and `options` (`ro`, `noatime`, ...: for
    /// this mount only) say.
    ///
    /// # Errors
    /// It is mounted already, is no file system, or the directory cannot be used.
    pub fn mount_dataset(&mut self, pool: &Arc<Pool>, dataset: &str, path: &Path, options: &[String], overlay: bool) -> Result<(), Failure> {
        if self.is_mounted(dataset) {
            return Err(Failure::with(FailureKind::MountFailed, "filesystem already mounted"));
        }
        let about = |error: Error| Failure::about_dataset(&error);
        let mut properties = properties(pool, dataset).map_err(about)?;
        for option in options.iter().flat_map(|option| option.split(',')) {
            apply(&mut properties, option)?;
        }
        let filesystem = pool.file_system(dataset).map_err(about)?;
        if !filesystem.is_read_only()
            && let Err(error) = filesystem.drain_delete_queue()
        {
            tracing::warn!(dataset, "files removed while open before the last unmount stay until the next mount: {error}");
        }
        let mount = fuse::MountOptions {
            source: dataset.to_owned(),
            subtype: SUBTYPE.to_owned(),
            allow_other: rustix::process::geteuid().is_root(),
            default_permissions: true,
            read_only: properties.read_only || filesystem.is_read_only(),
            no_suid: !properties.setuid,
            no_dev: !properties.devices,
            no_exec: !properties.exec,
            no_atime: !properties.atime,
            max_read: TRANSFER_BYTES,
        };
        let snapshots = properties.snapshots.then(|| Box::new(OfPool { pool: Arc::clone(pool), dataset: dataset.to_owned() }) as Box<dyn Snapshots>);
        let session = session_options(properties.ops.announce_opens);
        let ops = Arc::new(Ops::new(filesystem, snapshots, properties.ops));
        self.mount_ops(dataset, path, ops, MountHow { mount, session, overlay })
    }

    /// Properties changed: all mounts of `pool` learn of it. What the kernel was told at the mount (`readonly`, `setuid`,
    /// `devices`, `exec`) changes at the next one, but a file system that became read-only refuses changes at once.
    ///
    /// # Errors
    /// Properties cannot be read.
    pub fn refresh(&self, pool: &Pool) -> Result<(), Failure> {
        pool.refresh_mount_options().map_err(|error| Failure::about_dataset(&error))?;
        let name = pool.name();
        for (dataset, ops) in self.all_ops() {
            if dataset.split(['/', '@']).next() == Some(&name) {
                let properties = properties(pool, dataset).map_err(|error| Failure::about_dataset(&error))?;
                ops.set_options(OpsOptions { announce_opens: ops.announces_opens(), ..properties.ops });
            }
        }
        Ok(())
    }
}

/// An option for one mount.
fn apply(properties: &mut Properties, option: &str) -> Result<(), Failure> {
    match option {
        "ro" | "readonly" => properties.read_only = true,
        "rw" => properties.read_only = false,
        "suid" | "setuid" => properties.setuid = true,
        "nosuid" | "nosetuid" => properties.setuid = false,
        "dev" | "devices" => properties.devices = true,
        "nodev" | "nodevices" => properties.devices = false,
        "exec" => properties.exec = true,
        "noexec" => properties.exec = false,
        "atime" => properties.atime = true,
        "noatime" => properties.atime = false,
        "xattr" | "saxattr" | "dirxattr" => properties.ops.xattrs = true,
        "noxattr" => properties.ops.xattrs = false,
        // Meant for mount(8), or decided by the kernel.
        "" | "defaults" | "remount" | "relatime" | "norelatime" | "mand" | "nomand" | "zfsutil" | "auto" | "noauto" | "_netdev" => {}
        _ if option.starts_with("x-") || option.starts_with("zfsprops=") => {}
        _ => return Err(Failure::with(FailureKind::MountFailed, format!("invalid mount option '{option}'"))),
    }
    Ok(())
}
