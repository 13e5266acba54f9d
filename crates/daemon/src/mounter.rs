//! Mounts datasets: puts a pool's file system, the operations on it and a FUSE session together.
//!
//! # Theory
//! What a mount does is decided in three places: by options of the kernel's mount (`exec`, `setuid`, `devices`,
//! `readonly`), by the library's file system (`atime`, `readonly`, `xattr`), and by the operations (`sync`, `snapdir`).
//! When properties change, all three follow while the file system stays mounted.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use fuse::{Errno, MountOptions, SessionOptions, Timestamp};
use rustix::mount::MountFlags;
use rustix::process::geteuid;
use tarnfs::control::{Failure, FailureKind, Mount, MountPlan, Mounter};
use tarnfs::{FileSystem, Pool};

use crate::mounts::{MountHow, Mounts, SUBTYPE};
use crate::ops::{Ops, OpsOptions, SnapshotInfo, Snapshots, SyncPolicy};

/// What is mounted from one dataset.
struct Served {
    ops: Arc<Ops>,
    /// Options of this mount only.
    options: Vec<String>,
}

/// Mounts datasets through FUSE.
#[derive(Default)]
pub struct FuseMounter {
    mounts: Mounts,
    /// By the dataset's name.
    served: BTreeMap<String, Served>,
}

impl FuseMounter {
    /// Nothing is mounted.
    pub fn new() -> FuseMounter {
        FuseMounter::default()
    }

    /// The operations on what is no longer mounted hold the file system: they go.
    fn forget_unmounted(&mut self) {
        self.served.retain(|dataset, _| self.mounts.is_mounted(dataset));
    }
}

/// Properties of a dataset that the kernel and the operations need.
struct Properties {
    read_only: bool,
    devices: bool,
    exec: bool,
    setuid: bool,
    atime: bool,
    ops: OpsOptions,
}

impl Properties {
    fn of(pool: &Pool, dataset: &str) -> Result<Properties, tarnfs::Error> {
        let view = pool.engine().dsl.open_dataset(dataset)?;
        let number = |property: &str| view.number_property(property);
        let sync = match number("sync")? {
            1 => SyncPolicy::Always,
            2 => SyncPolicy::Disabled,
            _ => SyncPolicy::Standard,
        };
        Ok(Properties {
            read_only: pool.engine().is_read_only() || number("readonly")? != 0,
            devices: number("devices")? != 0,
            exec: number("exec")? != 0,
            setuid: number("setuid")? != 0,
            atime: number("atime")? != 0,
            ops: OpsOptions {
                sync,
                snapdir_visible: number("snapdir")? == 1,
                xattrs: number("xattr")? != 0,
                record_bytes: u32::try_from(number("recordsize")?).unwrap_or(128 << 10),
                ..OpsOptions::default()
            },
        })
    }

    /// For the kernel: properties, then what was asked for this mount.
    fn mount_options(&self, dataset: &str, asked: &[String]) -> MountOptions {
        let mut options = MountOptions {
            source: dataset.to_owned(),
            subtype: SUBTYPE.to_owned(),
            // Others need root's leave, which `fusermount3` looks for in its configuration.
            allow_other: geteuid().is_root(),
            read_only: self.read_only,
            no_suid: !self.setuid,
            no_dev: !self.devices,
            no_exec: !self.exec,
            no_atime: !self.atime,
            ..MountOptions::default()
        };
        for option in asked {
            match option.as_str() {
                "ro" => options.read_only = true,
                "rw" => options.read_only = self.read_only,
                "nosuid" | "nosetuid" => options.no_suid = true,
                "suid" | "setuid" => options.no_suid = false,
                "nodev" | "nodevices" => options.no_dev = true,
                "dev" | "devices" => options.no_dev = false,
                "noexec" => options.no_exec = true,
                "exec" => options.no_exec = false,
                "noatime" => options.no_atime = true,
                "atime" => options.no_atime = false,
                other => tracing::debug!(option = other, "mount option without effect"),
            }
        }
        options
    }
}

/// Tells the kernel of changed options.
fn change_flags(path: &Path, options: &MountOptions) -> std::io::Result<()> {
    if !geteuid().is_root() {
        // Nobody else may change a mount; the file system itself refuses writes where it is read-only.
        return Ok(());
    }
    let mut flags = MountFlags::BIND;
    for (given, flag) in [
        (options.read_only, MountFlags::RDONLY),
        (options.no_suid, MountFlags::NOSUID),
        (options.no_dev, MountFlags::NODEV),
        (options.no_exec, MountFlags::NOEXEC),
        (options.no_atime, MountFlags::NOATIME),
    ] {
        flags.set(flag, given);
    }
    rustix::mount::mount_remount(path, flags, "").map_err(std::io::Error::from)
}

/// Snapshots of a dataset, for `.zfs/snapshot`.
struct PoolSnapshots {
    pool: Arc<Pool>,
    dataset: String,
}

impl PoolSnapshots {
    fn all(&self) -> Result<Vec<SnapshotInfo>, tarnfs::Error> {
        let dsl = &self.pool.engine().dsl;
        let head = dsl.open_dataset(&self.dataset)?;
        let mut snapshots = Vec::new();
        for (name, id) in head.snapshots()? {
            let seconds = dsl.dataset_record(id)?.creation_time.get();
            let created = Timestamp { seconds: seconds.cast_signed(), nanoseconds: 0 };
            snapshots.push(SnapshotInfo { name, id, created });
        }
        Ok(snapshots)
    }
}

impl Snapshots for PoolSnapshots {
    fn list(&self) -> fuse::Result<Vec<SnapshotInfo>> {
        self.all().map_err(crate::errno::of)
    }

    fn find(&self, name: &str) -> fuse::Result<SnapshotInfo> {
        self.list()?.into_iter().find(|snapshot| snapshot.name == name).ok_or(Errno::ENOENT)
    }

    fn open(&self, name: &str) -> fuse::Result<Arc<FileSystem>> {
        self.pool.file_system(&format!("{}@{name}", self.dataset)).map_err(crate::errno::of)
    }
}

fn failed(error: tarnfs::Error) -> Failure {
    Failure::about_dataset(&error)
}

impl Mounter for FuseMounter {
    fn mount(&mut self, plan: MountPlan) -> Result<(), Failure> {
        let MountPlan { pool, dataset, path, options, overlay } = plan;
        self.mounts.tidy();
        self.forget_unmounted();
        let properties = Properties::of(&pool, &dataset).map_err(failed)?;
        let filesystem = pool.file_system(&dataset).map_err(failed)?;
        let snapshots = Box::new(PoolSnapshots { pool: Arc::clone(&pool), dataset: dataset.clone() });
        let mount = properties.mount_options(&dataset, &options);
        let ops = Arc::new(Ops::new(filesystem, Some(snapshots), properties.ops));
        let how = MountHow { mount, session: SessionOptions { no_opens: true, ..SessionOptions::default() }, overlay };
        let notifier = self.mounts.mount(&dataset, &path, ops.clone(), how)?;
        ops.set_notifier(notifier);
        self.served.insert(dataset, Served { ops, options });
        Ok(())
    }

    fn remount(&mut self, pool: &Arc<Pool>, dataset: &str, options: &[String]) -> Result<(), Failure> {
        let not_mounted = || Failure::with(FailureKind::MountFailed, "not currently mounted");
        let served = self.served.get_mut(dataset).ok_or_else(not_mounted)?;
        let path = self.mounts.path(dataset).ok_or_else(not_mounted)?;
        let options: Vec<String> = options.iter().filter(|option| *option != "remount").cloned().collect();
        let properties = Properties::of(pool, dataset).map_err(failed)?;
        change_flags(path, &properties.mount_options(dataset, &options)).map_err(|error| Failure::with(FailureKind::MountFailed, error.to_string()))?;
        served.options = options;
        Ok(())
    }

    fn unmount(&mut self, dataset: &str, force: bool) -> Result<(), Failure> {
        let result = self.mounts.unmount(dataset, force);
        self.forget_unmounted();
        result
    }

    fn unmount_tree(&mut self, root: &str, force: bool) -> Result<(), Failure> {
        let result = self.mounts.unmount_tree(root, force);
        self.forget_unmounted();
        result
    }

    fn is_mounted(&self, dataset: &str) -> bool {
        self.mounts.is_mounted(dataset)
    }

    fn list(&self) -> Vec<Mount> {
        self.mounts.list()
    }

    fn refresh(&mut self, pool: &Arc<Pool>) {
        let name = pool.name();
        for (dataset, served) in &self.served {
            if dataset.split(['/', '@']).next() != Some(&name) {
                continue;
            }
            let Some(path) = self.mounts.path(dataset) else { continue };
            let changed = Properties::of(pool, dataset).map_err(|error| error.to_string()).and_then(|properties| {
                let options = properties.mount_options(dataset, &served.options);
                served.ops.set_options(properties.ops);
                change_flags(path, &options).map_err(|error| error.to_string())
            });
            if let Err(error) = changed {
                tracing::warn!(dataset, error, "the mount did not follow its properties");
            }
        }
    }

    fn tidy(&mut self) {
        self.mounts.tidy();
        self.forget_unmounted();
        for served in self.served.values() {
            served.ops.tidy();
        }
    }
}
