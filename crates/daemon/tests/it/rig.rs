//! A pool on one file, made by the engine, its root dataset mounted by the daemon's operations.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use daemon::ops::{Ops, OpsOptions};
use daemon::{MountHow, Mounts};
use disk::{Access, FileDisk};
use engine::host::RealHost;
use engine::pool::check::CheckOptions;
use engine::pool::import::{discover, select};
use engine::pool::{NewPool, Pool};
use engine::tunables::Tunables;
use engine::vdev::{NewLeaf, NewTop};
use fuse::{SessionOptions, TransportChoice};
use tarnfs::{FileSystem, MountOptions};

pub(crate) struct Rig {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) pool: Option<Arc<Pool>>,
    pub(crate) mounts: Mounts,
}

fn options(tunables: Tunables) -> engine::pool::OpenOptions {
    engine::pool::OpenOptions { host: RealHost::shared(), tunables, read_only: false, file_owner: Some(tarnfs::zpl::file_owner), new_name: None, forget_log: false }
}

/// Can this machine mount?
pub(crate) fn can_mount() -> bool {
    let can = rustix::process::geteuid().is_root() && OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    if !can {
        sim::places::skipped("a mounted pool: needs root and /dev/fuse");
    }
    can
}

impl Rig {
    pub(crate) fn new(bytes: u64) -> Rig {
        Rig::with(bytes, Tunables::default())
    }

    pub(crate) fn with(bytes: u64, tunables: Tunables) -> Rig {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        let disk = Arc::new(FileDisk::create(&path, bytes).unwrap());
        let leaf = NewLeaf { disk, path: path.display().to_string(), whole_disk: false };
        let new = NewPool {
            name: "tank".into(),
            vdevs: vec![NewTop { leaves: vec![leaf], ashift: Some(12), ..NewTop::default() }],
            features: ondisk::feature::Feature::for_new_pools().collect(),
            properties: Vec::new(),
            fill: Box::new(|objset, tx| tarnfs::zpl::initialize(objset, tx, &tarnfs::zpl::NewFileSystem::default())),
            command: "zpool create tank disk.img".into(),
            configure: Box::new(|_| ()),
        };
        let pool = Pool::create(new, options(tunables)).unwrap();
        Rig { directory, pool: Some(pool), mounts: Mounts::default() }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.directory.path().join("mnt")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        self.pool.as_ref().unwrap()
    }

    /// Mounts the root dataset, with writes as they are made.
    pub(crate) fn mount(&mut self, announce_opens: bool, transport: TransportChoice) -> Arc<Ops> {
        self.mount_with(SessionOptions { transport, no_opens: !announce_opens, ..SessionOptions::default() })
    }

    /// Mounts the root dataset, with writes that the kernel collects.
    pub(crate) fn mount_with_writeback(&mut self, transport: TransportChoice) -> Arc<Ops> {
        self.mount_with(SessionOptions { transport, writeback_cache: true, ..SessionOptions::default() })
    }

    fn mount_with(&mut self, session: SessionOptions) -> Arc<Ops> {
        let pool = self.pool().clone();
        let dataset = pool.dsl.open_dataset("tank").unwrap();
        let objset = pool.dsl.objset(&dataset).unwrap();
        let space = move || (dataset.referenced().used, dataset.available());
        let filesystem = Arc::new(FileSystem::open(objset, MountOptions::default(), space).unwrap());
        let ops = Arc::new(Ops::new(filesystem, None, OpsOptions { announce_opens: !session.no_opens, ..OpsOptions::default() }));
        let how = MountHow {
            mount: fuse::MountOptions { source: "tank".into(), ..fuse::MountOptions::default() },
            session,
            overlay: false,
        };
        self.mounts.mount_ops("tank", &self.root(), ops.clone(), how).unwrap();
        ops
    }

    /// Unmounts, exports, opens again.
    pub(crate) fn reopen(&mut self) {
        self.close();
        self.open();
    }

    /// Imports the pool from its image.
    pub(crate) fn open(&mut self) {
        let disks = vec![disk::open(&self.image().display().to_string(), Access::Write).unwrap()];
        let candidates = discover(disks);
        self.pool = Some(Pool::open(select(&candidates, "tank", false).unwrap(), options(Tunables::default())).unwrap());
    }

    /// Unmounts, checks, exports.
    pub(crate) fn close(&mut self) {
        self.mounts.unmount_all(false).unwrap();
        let pool = self.pool.take().unwrap();
        pool.sync_all().unwrap();
        let report = pool.check(CheckOptions { verify_data: true, ..CheckOptions::default() }, &|_| ()).unwrap();
        assert!(report.is_clean(), "{:?}", report.findings);
        pool.export().unwrap();
    }

    pub(crate) fn image(&self) -> PathBuf {
        self.directory.path().join("disk.img")
    }
}

/// OpenZFS's own checker.
pub(crate) fn zdb(image: &Path) {
    sim::oracle::zdb_check(&[image]).expect_clean("a pool that was mounted");
}
