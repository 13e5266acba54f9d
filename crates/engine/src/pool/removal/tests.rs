//! Removals of pools in memory, without files in them.

use std::sync::Arc;

use disk::{Disk, DiskRef, MemDisk, Request, WatchedDisk};
use ondisk::indirect::REMOVAL_CANCELED;
use parking_lot::Mutex;

use crate::error::ErrorKind;
use crate::host::RealHost;
use crate::pool::check::CheckOptions;
use crate::pool::import::{discover, select};
use crate::pool::{NewPool, OpenOptions, Pool};
use crate::tunables::{Parameter, Tunables};
use crate::vdev::{NewLeaf, NewTop};

type Look = Arc<Mutex<Option<Box<dyn Fn() + Send>>>>;

/// Nothing is copied.
fn options() -> OpenOptions {
    let tunables = Tunables::default();
    tunables.parameters.set(Parameter::RemovalSuspendProgress, "1").unwrap();
    OpenOptions { host: RealHost::shared(), tunables, read_only: false, file_owner: None, new_name: None, forget_log: false }
}

/// A pool on these, each a vdev, of which each request is seen.
fn pool_on(disks: &[Arc<MemDisk>; 2], look: &Look) -> Arc<Pool> {
    let top = |disk: &Arc<MemDisk>| {
        let look = look.clone();
        let before = move |_: Request| {
            if let Some(look) = &*look.lock() {
                look();
            }
            Ok(())
        };
        let leaf = NewLeaf { path: disk.name().to_owned(), disk: Arc::new(WatchedDisk::new(disk.clone(), before)), whole_disk: false };
        NewTop { leaves: vec![leaf], ashift: Some(12), ..NewTop::default() }
    };
    let new = NewPool {
        name: "tank".into(),
        vdevs: disks.iter().map(top).collect(),
        features: ondisk::feature::Feature::for_new_pools().collect(),
        properties: Vec::new(),
        fill: Box::new(|_, _| Ok(())),
        command: "zpool create tank".into(),
        configure: Box::new(|_| ()),
    };
    Pool::create(new, options()).unwrap()
}

/// Groups with something in them.
fn write(pool: &Pool, groups: usize) {
    for group in 0..groups {
        pool.change_config(|config| config.comment = Some(format!("group {group}").as_str().into()));
        pool.sync_all().unwrap();
    }
}

/// A block of the log went to a vdev that was to stay, in front of what was copied of it; the power went before the group that said so was on disk, and at each import then the pool
/// stopped when that block came free.
#[test]
fn a_vdev_that_stays_is_used_when_the_group_is_on_disk_that_says_so() {
    for by_itself in [false, true] {
        let (disks, look) = (["/a", "/b"].map(|name| Arc::new(MemDisk::new(name, 256 << 20))), Look::default());
        let pool = pool_on(&disks, &look);
        write(&pool, 2);
        pool.remove_top(pool.vdevs.tops()[0].guid()).unwrap();
        write(&pool, 2);
        // What a loss of power leaves at the first moment when blocks may go there.
        let left: Arc<Mutex<Option<Vec<DiskRef>>>> = Arc::default();
        let (group, seen) = (pool.context.io.allocator().group(0).unwrap(), left.clone());
        assert!(!group.is_usable());
        *look.lock() = Some(Box::new(move || {
            if group.is_usable() {
                seen.lock().get_or_insert_with(|| disks.iter().map(|disk| Arc::new(disk.snapshot()) as DiskRef).collect());
            }
        }));
        if by_itself {
            pool.groups().removals().state.lock().has_failed = true;
        } else {
            pool.cancel_removal().unwrap();
        }
        write(&pool, 2);
        assert!(!pool.is_removing());
        *look.lock() = None;
        let left = left.lock().take().expect("the vdev is used again");
        pool.export().unwrap();
        let candidates = discover(left);
        let pool = Pool::open(select(&candidates, "tank", false).unwrap(), options()).unwrap();
        assert!(!pool.is_removing(), "by itself: {by_itself}: the power goes, and the vdev is being removed");
        assert_eq!(pool.last_removal().unwrap().map(|removal| removal.phys.state), Some(REMOVAL_CANCELED));
        write(&pool, 2);
        let report = pool.check(CheckOptions { verify_data: true, ..CheckOptions::default() }, &|_| ()).unwrap();
        assert!(report.is_clean(), "by itself: {by_itself}: {:?}", report.findings);
        pool.export().unwrap();
    }
}

/// The sectors that its devices have were not looked at, and what was copied did not fit there: the pool stopped, and again at each import.
#[test]
fn a_vdev_with_other_sectors_is_not_added_beside_a_removal() {
    let disks = ["/a", "/b"].map(|name| Arc::new(MemDisk::new(name, 256 << 20)));
    let pool = pool_on(&disks, &Look::default());
    write(&pool, 2);
    pool.remove_top(pool.vdevs.tops()[0].guid()).unwrap();
    let new = |sector: u64| {
        let disk = Arc::new(MemDisk::with_sector("/c", 256 << 20, sector));
        NewTop { leaves: vec![NewLeaf { path: "/c".to_owned(), disk, whole_disk: false }], ..NewTop::default() }
    };
    let refused = pool.add_vdevs(vec![new(8192)], true).unwrap_err();
    assert!(refused.kind() == ErrorKind::Invalid && refused.message().contains("while a vdev is being removed"), "{refused}");
    pool.add_vdevs(vec![new(4096)], true).unwrap();
    write(&pool, 2);
    pool.export().unwrap();
}
