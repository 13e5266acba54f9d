//! Log devices come and go while files are synced to the log, and the power goes at any moment of that: the pool is one without the
//! device or one with it, never a broken one, and what was acknowledged is there.
//!
//! `TARN_SEED=N` repeats the choice of what is kept at each cut; `TARN_STEP=1` looks at every cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::disk::{Disk, DiskRef};
use engine::pool::{OpenOptions, Pool};
use engine::pool::import::{discover, select};
use engine::vdev::{Bias, NewLeaf, NewTop};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sim::explore::disk::{Cutter, Event, Image, Keep, Recorder, SECTOR, SimDisk, Vices};
use sim::oracle;
use tarnfs::zpl::FileSystem;
use tarnfs::{Credentials, WriteMode};

use crate::{check, create_tops, file_system, options, replay};

const BYTES: u64 = 80 << 20;
/// At one cut in so many the real zdb is asked.
const ZDB_EVERY: usize = 60;

/// The disks of a pool, and what came to them.
pub(crate) struct Rig {
    pub(crate) disks: Vec<Arc<SimDisk>>,
    recorder: Arc<Recorder>,
    base: Vec<Image>,
}

impl Rig {
    /// A pool on the first of `count` disks.
    pub(crate) fn new(count: usize) -> Rig {
        let first = SimDisk::new(0, BYTES, Image::default(), None, Vices::default());
        create_tops(vec![top(&first, false)]).export().unwrap();
        let mut base = vec![Image::default(); count];
        base[0] = first.image();
        // Slow, so that a group takes longer than a commit of the log.
        Rig::with(base, Vices { slow_us: 300, ..Vices::default() })
    }

    fn on(base: Vec<Image>) -> Rig {
        Rig::with(base, Vices::default())
    }

    fn with(base: Vec<Image>, vices: Vices) -> Rig {
        let recorder = Arc::new(Recorder::default());
        let disk = |(number, image): (usize, &Image)| SimDisk::new(number, BYTES, image.clone(), Some(recorder.clone()), vices);
        Rig { disks: base.iter().enumerate().map(disk).collect(), recorder: recorder.clone(), base }
    }

    pub(crate) fn open(&self, read_only: bool) -> Arc<Pool> {
        self.open_with(options(read_only, 8))
    }

    fn open_with(&self, options: OpenOptions) -> Arc<Pool> {
        let candidates = discover(self.disks.iter().map(|disk| disk.clone() as DiskRef).collect());
        let candidate = select(&candidates, "tank", false).unwrap_or_else(|error| panic!("{error}"));
        Pool::open(candidate, options).unwrap_or_else(|error| panic!("open: {error}"))
    }

    /// The real zdb on those disks that are part of the pool.
    fn zdb(&self, what: &str) {
        let directory = tempfile::Builder::new().prefix("tarn-devices-").tempdir().unwrap();
        let candidates = discover(self.disks.iter().map(|disk| disk.clone() as DiskRef).collect());
        let mut paths = Vec::new();
        for (number, disk) in self.disks.iter().enumerate() {
            if candidates[0].devices.iter().any(|device| device.disk.name() == disk.name()) {
                let path = directory.path().join(format!("d{number}.img"));
                let file = std::fs::File::create_new(&path).unwrap();
                file.set_len(BYTES).unwrap();
                for (offset, bytes) in disk.image().chunks() {
                    std::os::unix::fs::FileExt::write_all_at(&file, bytes, offset).unwrap();
                }
                paths.push(path);
            }
        }
        let paths: Vec<&std::path::Path> = paths.iter().map(|path| path.as_path()).collect();
        oracle::zdb_check_crashed(&paths).expect_clean(what);
    }
}

fn top(disk: &Arc<SimDisk>, is_log: bool) -> NewTop {
    mirror(std::slice::from_ref(disk), is_log)
}

fn mirror(disks: &[Arc<SimDisk>], is_log: bool) -> NewTop {
    let leaf = |disk: &Arc<SimDisk>| NewLeaf { disk: disk.clone(), path: disk.name().to_owned(), whole_disk: false };
    NewTop { leaves: disks.iter().map(leaf).collect(), ashift: Some(9), bias: if is_log { Bias::Log } else { Bias::None }, ..NewTop::default() }
}

fn contents(number: usize) -> Vec<u8> {
    vec![number as u8 + 1; 3000 + 500 * number]
}

/// Makes a file durable, and notes when it begins to be so and when it is.
pub(crate) fn synced_file(rig: &Rig, fs: &FileSystem, number: usize) {
    rig.recorder.note(Event::Begin(number));
    let file = fs.create(fs.root(), format!("f{number}").as_bytes(), 0o100_644, 0, &Credentials::root()).unwrap().inode;
    fs.write(file, WriteMode::At(0), &contents(number), &Credentials::root()).unwrap();
    fs.fsync(file).unwrap();
    rig.recorder.note(Event::End(number));
}

/// Does something while another thread makes files durable, from number 20 on.
#[allow(clippy::disallowed_methods)] // this is about threads
pub(crate) fn beside_syncs(rig: &Rig, fs: &FileSystem, work: impl FnOnce()) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| {
            let begun = (20..60).take_while(|_| !done.load(Ordering::SeqCst));
            begun.for_each(|number| synced_file(rig, fs, number));
        });
        work();
        done.store(true, Ordering::SeqCst);
        busy.join().unwrap();
    });
}

/// Opens what a cut left, as a program would, and compares it with what was acknowledged: files of these numbers.
pub(crate) fn judge(images: Vec<Image>, acknowledged: &[usize], ask_zdb: bool, what: &str) -> usize {
    judge_by(images, acknowledged, ask_zdb, &|pool| pool.vdevs.data_tops().iter().filter(|top| top.is_log()).count(), what)
}

/// As [`judge`]; returns what `count` finds.
fn judge_by(images: Vec<Image>, acknowledged: &[usize], ask_zdb: bool, count: &dyn Fn(&Pool) -> usize, what: &str) -> usize {
    let rig = Rig::on(images);
    if ask_zdb {
        rig.zdb(&format!("{what}: as the cut left it"));
    }
    let pool = rig.open(true);
    check(&pool, &format!("{what}: as the cut left it"));
    pool.abandon();
    let pool = rig.open(false);
    let fs = file_system(&pool);
    let replayed = replay(&pool, &fs, what);
    assert_eq!(replayed.passed_over, 0, "{what}");
    for number in acknowledged {
        let file = fs.lookup(fs.root(), format!("f{number}").as_bytes()).unwrap_or_else(|error| panic!("{what}: file {number}: {error}"));
        let found = fs.read(file.inode, 0, 100_000).unwrap();
        assert!(found == contents(*number), "{what}: file {number} has {} bytes", found.len());
    }
    fs.release_all();
    drop(fs);
    pool.sync_all().unwrap();
    check(&pool, &format!("{what}: after the replay"));
    let counted = count(&pool);
    pool.export().unwrap();
    if ask_zdb {
        rig.zdb(&format!("{what}: after the replay"));
    }
    counted
}

/// Cuts at every `step`th event; returns how many states had how many log vdevs.
fn explore(rig: &Rig, name: &str) -> Vec<usize> {
    explore_by(rig, name, &|pool| pool.vdevs.data_tops().iter().filter(|top| top.is_log()).count())
}

/// As [`explore`]; returns how many states there were by what `count` finds in each, up to 3.
pub(crate) fn explore_by(rig: &Rig, name: &str, count: &dyn Fn(&Pool) -> usize) -> Vec<usize> {
    let seed: u64 = std::env::var("TARN_SEED").map_or_else(|_| rand::random_range(0..1 << 40), |seed| seed.parse().expect("a number"));
    let step: usize = std::env::var("TARN_STEP").map_or(10, |step| step.parse().expect("a number"));
    println!("{name}: TARN_SEED={seed} TARN_STEP={step} cargo test -p sim --test log_crash devices");
    let events = rig.recorder.take();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut cutter = Cutter::new(&events, rig.base.clone(), 0);
    let mut found = vec![0; 4];
    let first = random.random_range(0..step);
    for (nth, cut) in (first..=events.len()).step_by(step).enumerate() {
        cutter.advance(cut);
        let keep = [Keep::Nothing, Keep::Everything, Keep::Newest, Keep::AllButOldest, Keep::Some, Keep::Some][random.random_range(0..6)];
        let acknowledged: Vec<usize> = events[..cut].iter().filter_map(|event| if let Event::End(number) = event { Some(*number) } else { None }).collect();
        let what = format!("{name}, seed {seed}, cut {cut} of {}, {keep:?}", events.len());
        found[judge_by(cutter.cut(keep, &mut random), &acknowledged, nth % ZDB_EVERY == 7, count, &what)] += 1;
    }
    println!("{name}: {} events, states with 0, 1, ...: {found:?}", events.len());
    found
}

#[test]
fn a_log_device_is_there_or_not_when_the_power_goes_while_it_is_added() {
    let rig = Rig::new(4);
    let pool = rig.open(false);
    let fs = file_system(&pool);
    (0..4).for_each(|number| synced_file(&rig, &fs, number));
    beside_syncs(&rig, &fs, || pool.add_vdevs(vec![mirror(&rig.disks[1..3], true), top(&rig.disks[3], false)], false).unwrap());
    // The chain goes on where its next block is; the one after that is on the new device.
    (4..6).for_each(|number| synced_file(&rig, &fs, number));
    let before = [0, 1, 2, 3].map(|disk| rig.disks[disk].writes());
    (6..10).for_each(|number| synced_file(&rig, &fs, number));
    let after = [0, 1, 2, 3].map(|disk| rig.disks[disk].writes());
    assert_eq!((after[0], after[3]), (before[0], before[3]), "synchronous writes do not go to the other disks any more");
    assert!(after[1] > before[1] && after[2] > before[2], "they go to both sides of the log: {before:?} {after:?}");
    pool.sync_all().unwrap();
    synced_file(&rig, &fs, 10);
    drop(fs);
    pool.abandon();
    let found = explore(&rig, "add");
    assert!(found[0] > 0 && found[1] > 0, "{found:?}");
}

#[test]
fn a_log_device_is_there_or_not_when_the_power_goes_while_it_is_removed() {
    let rig = Rig::new(2);
    let pool = rig.open(false);
    pool.add_vdevs(vec![top(&rig.disks[1], true)], false).unwrap();
    let fs = file_system(&pool);
    (0..4).for_each(|number| synced_file(&rig, &fs, number));
    let log = pool.vdevs.tops()[1].guid();
    let data = pool.vdevs.tops()[0].guid();
    assert!(pool.remove_log(data).unwrap_err().to_string().contains("holds data"));
    assert!(pool.remove_log(1).is_err());
    beside_syncs(&rig, &fs, || pool.remove_log(log).unwrap());
    (4..8).for_each(|number| synced_file(&rig, &fs, number));
    drop(fs);
    pool.abandon();
    let found = explore(&rig, "remove");
    assert!(found[0] > 0 && found[1] > 0, "{found:?}");
}

/// Added, removed, added elsewhere: the number of a removed vdev is not used again. A device that is gone can be removed too.
#[test]
fn what_was_removed_leaves_a_hole() {
    let rig = Rig::new(4);
    let pool = rig.open(false);
    let fs = file_system(&pool);
    let log = |number: usize| pool.vdevs.tops()[number].guid();
    pool.add_vdevs(vec![top(&rig.disks[1], true), top(&rig.disks[2], false)], false).unwrap();
    (0..3).for_each(|number| synced_file(&rig, &fs, number));
    pool.remove_log(log(1)).unwrap();
    assert_eq!(pool.vdevs.holes(), [1]);
    assert!(discover(vec![rig.disks[1].clone() as DiskRef]).is_empty(), "its labels say that it left");
    (3..5).for_each(|number| synced_file(&rig, &fs, number));
    pool.add_vdevs(vec![top(&rig.disks[1], true)], false).unwrap();
    (5..8).for_each(|number| synced_file(&rig, &fs, number));
    assert_eq!(pool.vdevs.tops().len(), 4);
    fs.release_all();
    drop(fs);
    pool.export().unwrap();
    rig.zdb("a hole among the vdevs");
    assert_eq!(judge(rig.disks.iter().map(|disk| disk.image()).collect(), &[0, 1, 2, 3, 4, 5, 6, 7], true, "a hole among the vdevs"), 1);

    // The log device is lost; what is done without it, and removed.
    let images = rig.disks.iter().enumerate().map(|(number, disk)| if number == 1 { Image::default() } else { disk.image() });
    let rig = Rig::on(images.collect());
    let pool = rig.open_with(OpenOptions { forget_log: true, ..options(false, 8) });
    let fs = file_system(&pool);
    (8..10).for_each(|number| synced_file(&rig, &fs, number));
    pool.remove_log(pool.vdevs.tops()[3].guid()).unwrap();
    (10..12).for_each(|number| synced_file(&rig, &fs, number));
    assert_eq!(pool.vdevs.holes(), [1, 3]);
    pool.sync_all().unwrap();
    check(&pool, "without the log device that was lost");
    drop(fs);
    pool.abandon();
    let acknowledged: Vec<usize> = (0..12).collect();
    assert_eq!(judge(rig.disks.iter().map(|disk| disk.image()).collect(), &acknowledged, true, "without the log device that was lost"), 0);
}

#[test]
fn a_vdev_that_does_not_fit_is_refused() {
    let rig = Rig::new(2);
    let pool = rig.open(false);
    let small = SimDisk::new(1, 1 << 20, Image::default(), None, Vices::default());
    assert!(pool.add_vdevs(vec![top(&small, true)], false).is_err());
    let wide = || NewTop { ashift: Some(12), ..top(&rig.disks[1], false) };
    let refused = pool.add_vdevs(vec![wide()], false).unwrap_err().to_string();
    assert!(refused.contains("4096") && refused.contains(&SECTOR.to_string()), "{refused}");
    assert_eq!(pool.vdevs.tops().len(), 1);
    pool.add_vdevs(vec![wide()], true).unwrap();
    pool.export().unwrap();
    rig.zdb("sectors of two sizes");
}
