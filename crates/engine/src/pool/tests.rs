//! Pools made and read by the engine alone, without files in them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{Access, FileDisk};

use super::check::CheckOptions;
use super::import::{discover, select};
use super::{NewPool, OpenOptions, Pool};
use crate::host::RealHost;
use crate::tunables::Tunables;
use crate::vdev::{NewLeaf, NewTop};

fn options(read_only: bool) -> OpenOptions {
    OpenOptions { host: RealHost::shared(), tunables: Tunables::default(), read_only, file_owner: None, new_name: None, forget_log: false }
}

fn new_file(directory: &Path, name: &str, bytes: u64) -> NewLeaf {
    let path = directory.join(name);
    let disk = Arc::new(FileDisk::create(&path, bytes).unwrap());
    NewLeaf { disk, path: path.display().to_string(), whole_disk: false }
}

fn open(directory: &Path, read_only: bool) -> Arc<Pool> {
    let access = if read_only { Access::Read } else { Access::Write };
    let paths: Vec<PathBuf> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    let disks = paths.iter().map(|path| disk::open(&path.display().to_string(), access).unwrap()).collect();
    let candidates = discover(disks);
    let name = candidates[0].config.name.clone();
    Pool::open(select(&candidates, &name, false).unwrap(), options(read_only)).unwrap()
}

#[test]
fn a_new_pool_is_clean_and_opens_again() {
    let directory = std::env::var("KEEP").map_or_else(|_| tempfile::tempdir().unwrap().keep(), PathBuf::from);
    let tops = vec![NewTop { leaves: vec![new_file(&directory, "a.img", 256 << 20)], ashift: Some(12), ..NewTop::default() }];
    let new = NewPool {
        name: "tank".into(),
        vdevs: tops,
        features: ondisk::feature::Feature::for_new_pools().collect(),
        properties: Vec::new(),
        fill: Box::new(|_, _| Ok(())),
        command: "zpool create tank a.img".into(),
        configure: Box::new(|_| ()),
    };
    let pool = Pool::create(new, options(false)).unwrap();
    pool.sync_all().unwrap();
    let report = pool.check(CheckOptions { verify_data: true, ..CheckOptions::default() }, &|_| ()).unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
    pool.export().unwrap();
    drop(pool);
    for _ in 0..3 {
        let pool = open(&directory, false);
        pool.sync_all().unwrap();
        let report = pool.check(CheckOptions { verify_data: true, ..CheckOptions::default() }, &|_| ()).unwrap();
        assert!(report.is_clean(), "{:?}", report.findings);
        pool.export().unwrap();
    }
    if std::env::var("KEEP").is_err() {
        std::fs::remove_dir_all(directory).unwrap();
    }
}

#[test]
#[ignore = "by hand: GOLDEN=directory of an unpacked pool"]
fn a_golden_pool_checks_clean() {
    let Ok(directory) = std::env::var("GOLDEN") else { return };
    let pool = open(Path::new(&directory), true);
    let report = pool.check(CheckOptions { verify_data: true, ..CheckOptions::default() }, &|_| ()).unwrap();
    println!("{} blocks, {} verified, {} datasets, claimed {} allocated {}", report.blocks, report.verified, report.datasets, report.claimed_bytes, report.allocated_bytes);
    assert!(report.is_clean(), "{:?}", report.findings);
}

/// The disk goes away under an open pool: all that wait for the pool hear of it, nobody hangs, and closing works.
#[test]
fn a_disk_that_vanishes_suspends_the_pool() {
    let disk = Arc::new(disk::MemDisk::new("vanishing", 256 << 20));
    let leaf = NewLeaf { disk: disk.clone(), path: "/vanishing".into(), whole_disk: false };
    let new = NewPool {
        name: "gone".into(),
        vdevs: vec![NewTop { leaves: vec![leaf], ashift: Some(12), ..NewTop::default() }],
        features: ondisk::feature::Feature::for_new_pools().collect(),
        properties: Vec::new(),
        fill: Box::new(|_, _| Ok(())),
        command: "zpool create gone".into(),
        configure: Box::new(|_| ()),
    };
    let pool = Pool::create(new, options(false)).unwrap();
    disk.faults.break_writes(true);
    pool.change_config(|config| config.comment = Some("changed".into()));
    let error = pool.sync_all().unwrap_err();
    assert!(error.message().contains("gone"), "{error}");
    let again = pool.sync_all().unwrap_err();
    assert_eq!(again.kind(), error.kind());
    assert!(pool.export().is_err());
}

/// An export that could not be written said so on the labels later, when the disk was back and the pool in use again.
#[test]
fn a_pool_that_could_not_be_exported_is_not_exported() {
    let disk = Arc::new(disk::MemDisk::new("coming-back", 256 << 20));
    let leaf = NewLeaf { disk: disk.clone(), path: "/coming-back".into(), whole_disk: false };
    let new = NewPool {
        name: "back".into(),
        vdevs: vec![NewTop { leaves: vec![leaf], ashift: Some(12), ..NewTop::default() }],
        features: ondisk::feature::Feature::for_new_pools().collect(),
        properties: Vec::new(),
        fill: Box::new(|_, _| Ok(())),
        command: "zpool create back".into(),
        configure: Box::new(|_| ()),
    };
    let pool = Pool::create(new, options(false)).unwrap();
    // Nothing is left to be written but the export.
    (0..4).for_each(|_| pool.sync_all().unwrap());
    pool.vdevs.gate().set_mode(crate::vdev::FailureMode::Wait);
    disk.faults.break_writes(true);
    assert!(pool.export().is_err());
    disk.faults.break_writes(false);
    pool.clear_errors(None);
    pool.sync_all().unwrap();
    pool.sync_all().unwrap();
    for (label, config) in crate::vdev::label::DeviceLabels::read(&*disk).configs() {
        assert_eq!(config.u64("state"), Some(0), "label {label}");
    }
    pool.export().unwrap();
}

/// After a flush that failed `zpool clear` had it repeated: the second one succeeded, as the system had dropped what it could not write, and a group was
/// taken for written that was nowhere.
#[test]
#[allow(clippy::disallowed_methods)] // this test is about threads
fn what_a_failed_flush_may_have_lost_is_never_taken_for_written() {
    // Before the labels, and among them: those are written again, and nothing else was written before that flush.
    for nth in [1, 2, 3] {
        let (disk, pool) = meddled();
        (0..4).for_each(|_| pool.sync_all().unwrap());
        pool.vdevs.gate().set_mode(crate::vdev::FailureMode::Wait);
        let synced = pool.context.groups.synced_txg();
        // In this order: the group begins with the change.
        disk.0.faults.fail_flush(nth);
        pool.change_config(|config| config.comment = Some("changed".into()));
        let clearing = {
            let pool = pool.clone();
            std::thread::spawn(move || {
                for _ in 0..200 {
                    pool.clear_errors(None);
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
            })
        };
        let result = pool.sync_all();
        clearing.join().unwrap();
        if nth > 1 {
            // A thread that waited may have looked while the pool waited to be cleared.
            pool.sync_all().unwrap_or_else(|error| panic!("flush {nth}: {error}"));
            pool.export().unwrap();
            continue;
        }
        let error = result.expect_err("a flush failed");
        assert!(error.message().contains("flush"), "flush {nth}: {error}");
        pool.clear_errors(None);
        assert!(pool.sync_all().is_err(), "flush {nth}");
        assert_eq!(pool.context.groups.synced_txg(), synced, "flush {nth}");
        assert!(pool.export().is_err());
    }
}

/// A heartbeat flushed past all book-keeping: what that was told of, a group never heard.
#[test]
fn what_the_flush_of_a_heartbeat_may_have_lost_is_not_taken_for_written() {
    let (disk, pool) = meddled();
    (0..4).for_each(|_| pool.sync_all().unwrap());
    let top = pool.vdevs.top(0).unwrap();
    // As a group does, somewhere at the end.
    let end = top.asize();
    crate::zio::write_range(&(top as Arc<dyn crate::zio::BlockDevice>), crate::vdev::Class::AsyncWrite, end - 4096, &[&[1; 4096]], 4).unwrap();
    disk.0.faults.fail_flush(1);
    pool.groups().beat(0);
    assert!(pool.vdevs.has_lost_writes());
    pool.change_config(|config| config.comment = Some("changed".into()));
    assert!(pool.sync_all().is_err());
    assert!(pool.export().is_err());
}

/// A disk that does something else at the next flush.
struct MeddlingDisk(disk::MemDisk, parking_lot::Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl disk::Disk for MeddlingDisk {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.0.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> std::io::Result<()> {
        self.0.write_at(buf, offset)
    }
    fn flush(&self) -> std::io::Result<()> {
        let meddle = self.1.lock().take();
        if let Some(meddle) = meddle {
            meddle();
        }
        self.0.flush()
    }
    fn discard(&self, offset: u64, length: u64) -> std::io::Result<()> {
        self.0.discard(offset, length)
    }
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }
    fn sector_bytes(&self) -> u64 {
        self.0.sector_bytes()
    }
    fn kind(&self) -> disk::DiskKind {
        self.0.kind()
    }
    fn name(&self) -> &str {
        self.0.name()
    }
}

/// A pool on such a disk.
fn meddled() -> (Arc<MeddlingDisk>, Arc<Pool>) {
    let disk = Arc::new(MeddlingDisk(disk::MemDisk::new("meddling", 256 << 20), None.into()));
    let leaf = NewLeaf { disk: disk.clone(), path: "/meddling".into(), whole_disk: false };
    let new = NewPool {
        name: "meddled".into(),
        vdevs: vec![NewTop { leaves: vec![leaf], ashift: Some(12), ..NewTop::default() }],
        features: ondisk::feature::Feature::for_new_pools().collect(),
        properties: Vec::new(),
        fill: Box::new(|_, _| Ok(())),
        command: "zpool create meddled".into(),
        configure: Box::new(|_| ()),
    };
    let pool = Pool::create(new, options(false)).unwrap();
    (disk, pool)
}

/// The thread that writes groups panicked, and everybody who waited for it waited for ever.
#[test]
fn a_panic_in_the_sync_thread_is_heard() {
    let (disk, pool) = meddled();
    *disk.1.lock() = Some(Box::new(|| panic!("a bug, on purpose")));
    pool.change_config(|config| config.comment = Some("changed".into()));
    let error = pool.sync_all().unwrap_err();
    assert!(error.message().contains("a bug"), "{error}");
    assert!(pool.export().is_err());
}

/// The real host, but a bug ends who asks for the time in a thread of this name.
struct BuggyHost(&'static str);

impl crate::host::Host for BuggyHost {
    fn now_ns(&self) -> u64 {
        RealHost.now_ns()
    }
    fn wall_clock(&self) -> (u64, u32) {
        assert_ne!(std::thread::current().name(), Some(self.0), "a bug, on purpose");
        RealHost.wall_clock()
    }
    fn random(&self) -> u64 {
        RealHost.random()
    }
    fn sleep(&self, duration: std::time::Duration) {
        RealHost.sleep(duration);
    }
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> bool {
        RealHost.spawn(name, body)
    }
    fn processors(&self) -> usize {
        1
    }
    fn host_name(&self) -> String {
        "host".into()
    }
    fn host_id(&self) -> u32 {
        1
    }
}

/// The thread that shows other hosts that the pool is in use was gone, and the pool went on: another host may take it.
#[test]
#[allow(clippy::disallowed_methods)] // this test is about threads
fn a_panic_in_any_of_the_threads_stops_the_pool() {
    let disk = Arc::new(disk::MemDisk::new("heartbeat", 256 << 20));
    let host: crate::host::HostRef = Arc::new(BuggyHost("heartbeat"));
    let pool = Pool::create(new_on(&disk), OpenOptions { host, ..options(false) }).unwrap();
    pool.set_multihost(true).unwrap();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while pool.context.groups.failure().is_none() && std::time::Instant::now() < until {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    pool.change_config(|config| config.comment = Some("changed".into()));
    let error = pool.sync_all().expect_err("nobody shows that the pool is in use");
    assert!(error.message().contains("heartbeat"), "{error}");
    assert!(pool.export().is_err());
}

/// Both sides of a mirror refused the same write, which was repeated after 'zpool clear'; and both were behind for ever, though neither has missed anything.
#[test]
#[allow(clippy::disallowed_methods)] // this test is about threads
fn a_write_that_no_side_took_and_that_was_repeated_is_missed_by_none() {
    let sides = ["left", "right"].map(|name| Arc::new(disk::MemDisk::new(name, 256 << 20)));
    let leaf = |disk: &Arc<disk::MemDisk>| NewLeaf { disk: disk.clone(), path: format!("/{}", disk::Disk::name(&**disk)), whole_disk: false };
    let mut new = new_on(&sides[0]);
    new.vdevs[0].leaves = sides.iter().map(leaf).collect();
    let pool = Pool::create(new, options(false)).unwrap();
    pool.sync_all().unwrap();
    pool.vdevs.gate().set_mode(crate::vdev::FailureMode::Wait);
    sides.iter().for_each(|side| side.faults.break_writes(true));
    pool.change_config(|config| config.comment = Some("changed".into()));
    pool.context.groups.kick(pool.context.groups.open_txg());
    while pool.vdevs.gate().failure().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(pool.vdevs.state(), crate::vdev::VdevState::Degraded);
    sides.iter().for_each(|side| side.faults.break_writes(false));
    pool.clear_errors(None);
    pool.sync_all().unwrap();
    pool.clear_errors(None);
    pool.sync_all().unwrap();
    for leaf in pool.vdevs.leaves() {
        assert!(!leaf.is_behind() && leaf.missing_txgs().is_empty(), "{}: {:?}", leaf.name(), leaf.missing_txgs());
    }
    assert_eq!(pool.vdevs.state(), crate::vdev::VdevState::Online);
    let report = pool.check(CheckOptions { verify_data: true, ..CheckOptions::default() }, &|_| ()).unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
    pool.export().unwrap();
}

/// The comment was set while a group was being written, after its MOS: the labels of that group had it, and the MOS, which counts
/// when a pool is opened, never got it.
#[test]
fn what_is_configured_while_a_group_is_written_is_kept() {
    let (disk, pool) = meddled();
    pool.sync_all().unwrap();
    let set = |pool: &Pool, text: &str| {
        // As `Pool::set_properties` does.
        pool.change_config(|config| config.comment = Some(text.into()));
        pool.vdevs.tops().iter().for_each(|top| top.set_config_dirty());
    };
    let meddled = pool.clone();
    *disk.1.lock() = Some(Box::new(move || set(&meddled, "second")));
    set(&pool, "first");
    pool.sync_all().unwrap();
    assert!(disk.1.lock().is_none());
    pool.sync_all().unwrap();
    let candidates = discover(vec![Arc::new(disk.0.snapshot())]);
    let again = Pool::open(select(&candidates, "meddled", false).unwrap(), options(true)).unwrap();
    assert_eq!(again.config().comment, Some("second".into()));
    pool.export().unwrap();
}

/// A pool on one disk, of its name.
fn new_on(disk: &Arc<disk::MemDisk>) -> NewPool {
    let name = disk::Disk::name(&**disk).to_owned();
    NewPool {
        vdevs: vec![NewTop { leaves: vec![NewLeaf { disk: disk.clone(), path: format!("/{name}"), whole_disk: false }], ashift: Some(12), ..NewTop::default() }],
        features: ondisk::feature::Feature::for_new_pools().collect(),
        properties: Vec::new(),
        fill: Box::new(|_, _| Ok(())),
        command: format!("zpool create {name}"),
        configure: Box::new(|_| ()),
        name,
    }
}

fn pool_on(disk: &Arc<disk::MemDisk>) -> Arc<Pool> {
    Pool::create(new_on(disk), options(false)).unwrap()
}

/// A pool was refused, or could not be made, and its devices stayed in use until the program ended.
#[test]
fn a_pool_that_is_not_opened_lets_go_of_its_devices() {
    let disk = Arc::new(disk::MemDisk::new("refused", 256 << 20));
    for writes in [1, 6, 20] {
        disk.faults.fail_writes_from(writes);
        assert!(Pool::create(new_on(&disk), options(false)).is_err());
        assert_eq!(Arc::strong_count(&disk), 1, "after write {writes} failed");
    }
    let disk = Arc::new(disk::MemDisk::new("refused", 256 << 20));
    let pool = pool_on(&disk);
    let zap = pool.vdevs.tops()[0].zap();
    let mark = move |dsl: &Arc<crate::dsl::Dsl>, tx: &crate::dmu::SyncTx<'_>| dsl.meta.mos.zap_add_u64(zap, "com.delphix:pool_checkpoint_sm", 1, tx);
    pool.dsl.run_task(1, crate::dsl::SpaceCheck::None, |_| Ok(()), mark).unwrap();
    pool.export().unwrap();
    drop(pool);
    for read_only in [true, false] {
        let candidates = discover(vec![disk.clone()]);
        let opened = Pool::open(select(&candidates, "refused", false).unwrap(), options(read_only));
        assert_eq!(opened.is_ok(), read_only, "a checkpoint can be looked at, and nothing more");
        if let Ok(pool) = opened {
            pool.export().unwrap();
        }
        drop(candidates);
        assert_eq!(Arc::strong_count(&disk), 1, "read-only: {read_only}");
    }
}

/// The log of damaged blocks was damaged itself: the next block that was found stopped the pool, and so did the end of a scrub, after each import.
#[test]
#[allow(clippy::disallowed_methods)] // real threads are waited for
fn a_log_of_damaged_blocks_that_is_damaged_begins_anew() {
    // The log itself, or what a head has there; and what comes next: a block that is damaged, or a scrub.
    for (of_head, scrubs) in [(false, false), (true, false), (false, true), (true, true)] {
        let what = format!("of a head: {of_head}, a scrub: {scrubs}");
        let disk = Arc::new(disk::MemDisk::new("rotten", 256 << 20));
        let pool = pool_on(&disk);
        let note = |pool: &Pool, objects: std::ops::Range<u64>| {
            // Of many heads, so that neither the log nor what a head has there fits into a pointer.
            let found = objects.map(|object| (crate::zio::Bookmark { objset: 100_000 + object % 40, object: 1000 + object * 77, level: 0, block: object * object }, 4 + object));
            pool.context.io.lost.put_back(found.collect(), std::collections::BTreeSet::new());
            pool.sync_all()
        };
        note(&pool, 0..2000).unwrap();
        assert_eq!(pool.damaged().unwrap().len(), 2000, "{what}");
        let mos = &pool.dsl.meta.mos;
        let log = mos.zap_u64(crate::dsl::meta::key::DIRECTORY, super::error_log_sync::LAST).unwrap().unwrap();
        let harmed = if of_head { mos.zap_entries(log).unwrap()[0].1.first() } else { log };
        let info = mos.info(harmed).unwrap();
        let dnode = mos.0.hold(harmed).unwrap();
        let blocks: Vec<_> = (0..info.length / info.block_bytes).map(|block| dnode.block_pointer(block).unwrap().decode().unwrap()).collect();
        drop(dnode);
        pool.export().unwrap();
        drop(pool);
        let mut places = 0;
        for block in blocks {
            let ondisk::blkptr::BlockPointer::Data(data) = block else { continue };
            for dva in data.dvas() {
                disk.corrupt(ondisk::label::START_BYTES + dva.offset, dva.allocated as usize);
                places += 1;
            }
        }
        assert!(places > 0, "{what}: {places} places");
        let pool = Pool::open(select(&discover(vec![disk.clone()]), "rotten", false).unwrap(), options(false)).unwrap();
        if scrubs {
            pool.scrub(false).unwrap();
            while pool.is_scanning() && pool.context.groups.failure().is_none() {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            pool.sync_all().unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        note(&pool, 2000..2040).unwrap_or_else(|error| panic!("{what}: {error}"));
        let known = pool.damaged().unwrap_or_else(|error| panic!("{what}: {error}"));
        let new = known.iter().filter(|damaged| damaged.at.object >= 1000 + 2000 * 77).count();
        assert_eq!(new, 40, "{what}");
        assert!(scrubs || known.len() == 40, "{what}: {}", known.len());
        pool.scrub(false).unwrap();
        while pool.is_scanning() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        note(&pool, 2040..2041).unwrap_or_else(|error| panic!("{what}: {error}"));
        pool.export().unwrap();
    }
}

/// A pool in which a clone was destroyed whose livelist has two blocks, and frees one of them so often.
fn check_deleted_clone(frees: usize) -> Vec<super::check::Finding> {
    use ondisk::feature::Feature;
    use crate::dsl::meta::key;
    let disk = Arc::new(disk::MemDisk::new("clones", 256 << 20));
    let pool = pool_on(&disk);
    pool.dsl.run_task(4, crate::dsl::SpaceCheck::None, |_| Ok(()), move |dsl, tx| {
        let (meta, mos) = (&dsl.meta, &dsl.meta.mos);
        meta.features.enable(mos, Feature::Livelist, tx)?;
        meta.features.increment(mos, Feature::Livelist, tx)?;
        let lists = mos.zap_create(ondisk::object_type::ObjectType::ZAP_METADATA, tx)?;
        mos.zap_add_u64(key::DIRECTORY, key::DELETED_CLONES, lists, tx)?;
        let list = crate::dsl::deadlist::Deadlist::create(meta, tx)?;
        mos.zap(lists)?.add_int(tx, list)?;
        let list = crate::dsl::deadlist::Deadlist::open(meta, list)?;
        list.add_key(meta, 0, tx)?;
        let write = |fill| tx.context.io.write(plain_block(fill), tx.txg());
        let (kept, freed) = (write(1)?, write(2)?);
        list.insert_marked(meta, &[kept, freed], false, tx)?;
        list.insert_marked(meta, &vec![freed; frees], true, tx)?;
        tx.free(&freed);
        Ok(())
    }).unwrap();
    let report = pool.check(CheckOptions { verify_data: true, ..CheckOptions::default() }, &|_| ()).unwrap();
    pool.export().unwrap();
    report.findings
}

/// A clone with a livelist was destroyed, and OpenZFS was not done with freeing it: its blocks belong to nobody else, and were called leaked.
#[test]
fn blocks_of_deleted_clones_are_no_leaks() {
    let found = check_deleted_clone(1);
    assert!(found.is_empty(), "{found:#?}");
}

/// A list that frees a block more often than it was born is not to be believed, as what is freed through it says; nothing was said of it before.
#[test]
fn a_livelist_that_frees_what_was_not_born_is_found() {
    let found = check_deleted_clone(2);
    assert!(matches!(found[..], [super::check::Finding::Accounting { recorded: 2, found: 1, .. }]), "{found:#?}");
}

fn plain_block(fill: u8) -> crate::zio::WriteRequest {
    crate::zio::WriteRequest {
        data: Arc::new((0..4096_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8 ^ fill).collect()),
        object_type: ondisk::object_type::ObjectType::PLAIN_FILE_CONTENTS,
        level: 0,
        checksum: 7,
        compression: 2,
        compression_level: 0,
        copies: 1,
        small_bytes: 0,
        previous: ondisk::blkptr::BlkPtr::ZERO,
        rewrite: false,
        no_embed: true,
        bookmark: crate::zio::Bookmark::default(),
        packed: None,
        seal: crate::zio::Seal::Open,
    }
}

/// Nobody has closed it, and its threads are running: all the same everything that the pool held goes with it, the devices first of all.
#[test]
fn what_is_dropped_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let leaf = new_file(directory.path(), "a.img", 256 << 20);
    let disk = Arc::downgrade(&leaf.disk);
    let new = NewPool {
        name: "tank".into(),
        vdevs: vec![NewTop { leaves: vec![leaf], ashift: Some(12), ..NewTop::default() }],
        features: ondisk::feature::Feature::for_new_pools().collect(),
        properties: Vec::new(),
        fill: Box::new(|_, _| Ok(())),
        command: "zpool create tank a.img".into(),
        configure: Box::new(|_| ()),
    };
    let pool = Pool::create(new, options(false)).unwrap();
    let objset = pool.dsl.objset(&pool.dsl.open_dataset("tank").unwrap()).unwrap();
    pool.dsl.record_command("zfs list".into(), 0).unwrap();
    let held = (Arc::downgrade(&pool.dsl), Arc::downgrade(&pool.vdevs), Arc::downgrade(&pool.context));
    let (maps, writer) = (Arc::downgrade(pool.space_maps.as_ref().unwrap()), Arc::downgrade(pool.groups()));
    drop(objset);
    drop(pool);
    assert!(writer.upgrade().is_none(), "a thread holds what writes groups");
    assert!(held.0.upgrade().is_none(), "the DSL is held");
    assert!(maps.upgrade().is_none(), "the space maps are held");
    assert!(held.2.upgrade().is_none(), "the layers up to the dmu are held");
    assert!(held.1.upgrade().is_none(), "the vdevs are held");
    assert!(disk.upgrade().is_none(), "the device is held");
}

/// A stream was there and the pool waited for its device when it was to end, or the receive began then: the thread panicked that waited for the end, and
/// what had begun was in the way of another stream until the pool was imported again.
#[test]
#[allow(clippy::disallowed_methods)] // this test is about threads
fn receives_while_the_pool_waits_for_its_device() {
    use crate::dsl::{ReceiveTarget, StreamHead};
    use crate::error::ErrorKind;
    use ondisk::stream::{Begin, HEADER_SUBSTREAM, STREAM_MAGIC};
    let begin = Begin { magic: STREAM_MAGIC, version_info: HEADER_SUBSTREAM, objset_type: 2, to_guid: 7, ..Begin::zeroed() };
    let head = StreamHead { begin, list: ondisk::nvlist::NvList::new() };
    let target = |name: &str| ReceiveTarget { dataset: name.into(), snapshot: "s".into(), ..ReceiveTarget::default() };
    let disk = Arc::new(disk::MemDisk::new("receiving", 256 << 20));
    let pool = pool_on(&disk);
    pool.sync_all().unwrap();
    pool.vdevs.gate().set_mode(crate::vdev::FailureMode::Wait);
    let receiving = pool.dsl.receiving();
    let first = receiving.begin_receive(target("receiving/first"), &head).unwrap();
    // A group cannot be written: the changes are queued for the one after it.
    disk.faults.break_writes(true);
    pool.change_config(|config| config.comment = Some("changed".into()));
    assert!(pool.sync_all().is_err());
    let (error, first) = receiving.end_receive(first, &head).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Suspended, "{error}");
    assert!(receiving.abandon_receive(first.unwrap()).is_err(), "it cannot be destroyed now, and nobody waits for it");
    let error = receiving.begin_receive(target("receiving/second"), &head).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Suspended, "{error}");
    disk.faults.break_writes(false);
    for _ in 0..100 {
        pool.clear_errors(None);
        if pool.sync_all().is_ok() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    pool.sync_all().unwrap();
    for name in ["receiving/first", "receiving/second"] {
        assert!(pool.dsl.open_dataset(&format!("{name}@s")).is_err(), "{name} was given up");
        let received = receiving.begin_receive(target(name), &head).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(receiving.begin_receive(target(name), &head).err().map(|error| error.kind()), Some(ErrorKind::Busy), "{name} is under way");
        assert!(receiving.end_receive(received, &head).is_ok(), "{name}");
        assert!(pool.dsl.open_dataset(&format!("{name}@s")).is_ok(), "{name}");
    }
    // The pool stops for good.
    let third = receiving.begin_receive(target("receiving/third"), &head).unwrap();
    pool.vdevs.gate().set_mode(crate::vdev::FailureMode::Stop);
    disk.faults.break_writes(true);
    pool.change_config(|config| config.comment = Some("again".into()));
    assert!(pool.sync_all().is_err());
    assert!(receiving.end_receive(third, &head).is_err());
}
