//! Checkpoints: what is kept stays whatever happens to the pool, and is freed when it is given up; after each step, crashes among them, our checker and
//! the real `zdb`, which looks at the checkpoint too, find nothing wrong.

use std::time::{Duration, Instant};

use engine::host::RealHost;
use engine::pool::{OpenOptions, Stopped};
use engine::pool::checkpoint::Checkpoint;
use engine::tunables::{Parameter, Tunables};
use ondisk::feature::Feature;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sim::golden::{Compare, Golden, compare, open_checkpoint, open_images};
use sim::places;
use sim::scenario::{Layout, Model, Rig, contents};
use tarnfs::{ErrorKind, FileKind, FileSystem, InodeNumber};

const LAYOUTS: [Layout; 3] = [
    Layout { tops: 1, sides: 1, parity: 0, bytes: 96 << 20, ashift: 9 },
    Layout { tops: 2, sides: 2, parity: 0, bytes: 96 << 20, ashift: 12 },
    Layout { tops: 1, sides: 4, parity: 1, bytes: 96 << 20, ashift: 12 },
];
const FILES: u64 = 30;
/// A resilver of pools as small as these takes no longer.
const PATIENCE: Duration = Duration::from_secs(60);

fn name(number: u64) -> String {
    format!("f{number}")
}

/// Files of many sizes, in several groups.
fn fill(rig: &mut Rig, seed: u64) {
    for number in 0..FILES {
        rig.actor("tank").file(&name(number), &contents(seed + number, 1000 + 9000 * number as usize, number as u8 % 3));
        if number % 10 == 0 {
            rig.sync();
        }
    }
    rig.sync();
}

/// Files are written over, removed and made again, as much as the pool has room for, so that what a checkpoint did not keep would be written over.
fn disturb(rig: &mut Rig, random: &mut ChaCha8Rng, steps: u64) {
    for step in 0..steps {
        let chosen = name(random.random_range(0..FILES));
        let seed = random.random();
        let mut actor = rig.actor("tank");
        match (actor.model.find(&chosen), random.random_range(0..4)) {
            (None, _) => actor.file(&chosen, &contents(seed, random.random_range(1..300_000), 0)),
            (Some(_), 0) => actor.unlink(&chosen),
            (Some(_), 1) => actor.truncate(&chosen, random.random_range(0..100_000)),
            (Some(_), _) => actor.write(&chosen, random.random_range(0..200_000), &contents(seed, random.random_range(1..200_000), 0)),
        }
        if step % 8 == 7 {
            rig.sync();
        }
    }
    rig.sync();
}

fn checkpoint(rig: &Rig) -> Option<Checkpoint> {
    rig.pool().engine().checkpoint().expect("the MOS")
}

fn kept_bytes(rig: &Rig) -> u64 {
    let engine = rig.pool().engine();
    engine.vdevs.data_tops().iter().map(|top| engine.checkpoint_bytes(top.zap()).expect("the MOS")).sum()
}

/// As the pool was when the checkpoint was taken.
fn compare_kept(rig: &Rig, kept: &Model, what: &str) {
    let fs = rig.pool().file_system("tank").unwrap_or_else(|error| panic!("{what}: {error}"));
    kept.compare(&fs, what);
}

fn seed() -> u64 {
    let seed = std::env::var("TARN_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random);
    places::say(&format!("checkpoint: TARN_SEED={seed}"));
    seed
}

#[test]
fn what_a_checkpoint_keeps_comes_back() {
    let mut random = ChaCha8Rng::seed_from_u64(seed());
    for (number, layout) in LAYOUTS.into_iter().enumerate() {
        let what = format!("layout {number}");
        let mut rig = Rig::create(layout, &[]);
        fill(&mut rig, number as u64 * 1000);
        let kept = rig.model("tank").clone();
        rig.pool().engine().take_checkpoint().expect("a checkpoint");
        disturb(&mut rig, &mut random, 60);
        assert!(kept_bytes(&rig) > 1 << 20, "{what}: {} bytes are kept", kept_bytes(&rig));
        rig.judge(&format!("{what}: disturbed"));
        disturb(&mut rig, &mut random, 30);
        rig.judge_crash(&format!("{what}: crashed"));
        let now = rig.model("tank").clone();
        compare_kept(&rig, &now, &format!("{what}: after the crash"));
        rig.export();
        rig.rewind(true).expect("to look at it");
        compare_kept(&rig, &kept, &format!("{what}: looked at"));
        rig.export();
        rig.import();
        compare_kept(&rig, &now, &format!("{what}: looking changed nothing"));
        rig.export();
        rig.rewind(false).expect("to go back");
        assert_eq!(checkpoint(&rig), None, "{what}: a checkpoint does not have itself");
        rig.set_model("tank", kept);
        rig.judge_thoroughly(&format!("{what}: gone back"));
        disturb(&mut rig, &mut random, 30);
        rig.judge(&format!("{what}: lived on"));
        let error = rig.pool().engine().discard_checkpoint().expect_err("there is none");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
}

/// The pool is cut off as soon as it has gone back: it is what the checkpoint kept from then on.
#[test]
fn going_back_is_one_step() {
    let mut random = ChaCha8Rng::seed_from_u64(seed());
    let mut rig = Rig::create(LAYOUTS[1], &[]);
    fill(&mut rig, 1);
    let kept = rig.model("tank").clone();
    rig.pool().engine().take_checkpoint().expect("a checkpoint");
    disturb(&mut rig, &mut random, 40);
    // A log that was written after the checkpoint: it is void when the pool goes back.
    rig.actor("tank").file("durable", &contents(7, 40_000, 0));
    let inode = rig.actor("tank").inode("durable");
    rig.actor("tank").fs.fsync(inode).expect("fsync");
    rig.crash();
    rig.rewind(false).expect("to go back");
    rig.set_model("tank", kept.clone());
    rig.judge_crash("gone back, and cut off");
    rig.compare("gone back, and cut off");
    rig.judge("gone back");
}

#[test]
fn what_a_checkpoint_kept_is_freed_piece_by_piece() {
    let mut random = ChaCha8Rng::seed_from_u64(seed());
    for (number, layout) in LAYOUTS.into_iter().enumerate() {
        let what = format!("layout {number}");
        // A piece is some ranges, and there is a group only when one is asked for.
        let tunables = Tunables { scan_hastens: false, txg_timeout_ns: u64::MAX / 4, ..Tunables::default() };
        tunables.parameters.set(Parameter::DiscardMemoryLimit, "256").unwrap();
        let mut rig = Rig::create_with(layout, &[], tunables);
        fill(&mut rig, number as u64 * 1000);
        rig.pool().engine().take_checkpoint().expect("a checkpoint");
        disturb(&mut rig, &mut random, 60);
        let engine = rig.pool().engine().clone();
        assert_eq!(engine.take_checkpoint().expect_err("one is enough").kind(), ErrorKind::Exists);
        let mut left = kept_bytes(&rig);
        engine.discard_checkpoint().expect("discard");
        assert!(checkpoint(&rig).is_some_and(|found| found.discarding), "{what}");
        assert_eq!(engine.take_checkpoint().expect_err("it is being freed").kind(), ErrorKind::Exists);
        drop(engine);
        rig.judge(&format!("{what}: being discarded"));
        rig.judge_crash(&format!("{what}: being discarded, crashed"));
        let (mut groups, mut used) = (0, u64::MAX);
        while checkpoint(&rig).is_some() {
            rig.pool().engine().write_group().expect("a group");
            let now = kept_bytes(&rig);
            assert!(now < left || now == 0, "{what}: {now} bytes are kept, after {left}");
            left = now;
            groups += 1;
            if groups % 8 == 0 {
                disturb(&mut rig, &mut random, 4);
                rig.judge_crash(&format!("{what}: crashed after {groups} groups"));
            }
            used = rig.pool().engine().capacity().allocated;
        }
        assert!(groups > 3, "{what}: {groups} groups");
        assert!(!rig.pool().engine().dsl.meta.features.is_active(Feature::PoolCheckpoint), "{what}");
        rig.judge_thoroughly(&format!("{what}: discarded"));
        rig.pool().engine().take_checkpoint().expect("another one");
        rig.judge(&format!("{what}: another one"));
        places::say(&format!("checkpoint: {what}: freed in {groups} groups, {used} bytes in use then"));
    }
}

#[test]
fn vdevs_stay_as_they_are_while_there_is_a_checkpoint() {
    let mut rig = Rig::create(LAYOUTS[1], &[]);
    fill(&mut rig, 1);
    let engine = rig.pool().engine().clone();
    engine.take_checkpoint().expect("a checkpoint");
    let side = engine.vdevs.leaves()[0].guid();
    let (host, tunables) = (RealHost::shared(), Tunables::default());
    let options = OpenOptions { host, tunables, read_only: false, file_owner: None, new_name: Some("half".into()), forget_log: false };
    let refused = [
        engine.detach_device(side).map(drop),
        engine.change_guid(None),
        engine.remove_log(engine.vdevs.data_tops()[0].guid()),
        engine.remove_auxiliary(1).map(drop),
        engine.split(&[side], options).map(drop),
    ];
    for result in refused {
        let error = result.expect_err("a checkpoint needs the vdevs as they are");
        assert_eq!(error.kind(), ErrorKind::Exists, "{error}");
        assert!(error.to_string().contains("checkpoint exists"), "{error}");
    }
    drop(engine);
    rig.judge("nothing was done");
}

/// Removes what is in a directory, but for what was made here; what is marked not to be removed stays.
fn empty(fs: &FileSystem, directory: InodeNumber) {
    let mut names = Vec::new();
    fs.read_directory(directory, 2, &mut |entry| { names.push(entry.name); true }).expect("a directory");
    for name in names.iter().filter(|name| !name.starts_with(b"tarn-wrote")) {
        let stat = fs.lookup(directory, name).expect("a name");
        let done = if stat.kind() == FileKind::Directory {
            empty(fs, stat.inode);
            fs.rmdir(directory, name)
        } else {
            fs.unlink(directory, name)
        };
        fs.forget(stat.inode, 1);
        assert!(done.as_ref().map_or_else(|error| matches!(error.kind(), ErrorKind::Denied | ErrorKind::NotEmpty), |()| true), "{done:?}");
    }
}

/// A pool with a checkpoint that OpenZFS took: written here, gone back, discarded.
#[test]
fn a_checkpoint_of_openzfs_is_kept_and_discarded() {
    for discard in [false, true] {
        let Some(mut rig) = Rig::golden("checkpoint") else { return places::skipped("golden pool checkpoint: not found") };
        let rewound = rig.golden_pool().other_manifest("manifest-rewound.json").expect("a manifest").expect("it has two");
        assert!(checkpoint(&rig).is_some_and(|found| !found.discarding));
        let before = kept_bytes(&rig);
        let datasets: Vec<String> = rig.golden_pool().manifest.datasets.iter().filter(|dataset| dataset.kind == "filesystem").map(|dataset| dataset.name.clone()).collect();
        for dataset in &datasets {
            rig.adopt(dataset);
            for number in 0..20 {
                rig.actor(dataset).file(&format!("tarn-wrote-{number}"), &contents(number, 70_000, 0));
            }
            rig.sync();
            for number in 0..10 {
                rig.actor(dataset).unlink(&format!("tarn-wrote-{number}"));
            }
            // What the checkpoint has too.
            let fs = rig.pool().file_system(dataset).expect("a file system");
            empty(&fs, fs.root());
            fs.release_all();
        }
        rig.sync();
        // A snapshot holds the files that the checkpoint has: nothing that is kept may go, and nothing need come.
        let now = kept_bytes(&rig);
        assert!(now >= before, "{before} bytes were kept, {now} now");
        rig.export();
        rig.check("written");
        rig.zdb("written", true);
        let same = |golden: &Golden, manifest, checkpoint: bool| {
            let pool = if checkpoint { open_checkpoint(&golden.images) } else { open_images(&golden.images) }.expect("the pool");
            let report = compare(pool.as_ref(), manifest, Compare::STRICT).expect("the datasets");
            assert!(report.is_same(), "{:#?}", report.differences.iter().take(20).collect::<Vec<_>>());
        };
        same(rig.golden_pool(), &rewound, true);
        if discard {
            rig.import();
            rig.pool().engine().discard_checkpoint().expect("discard");
            while checkpoint(&rig).is_some() {
                rig.pool().engine().write_group().expect("a group");
            }
            rig.export();
        } else {
            rig.rewind(false).expect("to go back");
            rig.export();
            same(rig.golden_pool(), &rewound, false);
        }
        rig.check("after it");
        rig.zdb("after it", true);
    }
}

/// A device that was resilvered beside a checkpoint counts as behind, as nobody looked at what is kept: when that is freed, it has everything again, by itself.
#[test]
fn a_device_catches_up_when_a_checkpoint_goes() {
    let mut random = ChaCha8Rng::seed_from_u64(seed());
    let mut rig = Rig::create(LAYOUTS[1], &[]);
    fill(&mut rig, 1);
    let engine = rig.pool().engine().clone();
    let away = engine.vdevs.leaves()[1].clone();
    engine.stop_device(away.guid(), Stopped::Offline, false).expect("offline");
    disturb(&mut rig, &mut random, 20);
    engine.take_checkpoint().expect("a checkpoint");
    disturb(&mut rig, &mut random, 20);
    let disk = disk::open(away.name(), disk::Access::Write).expect("the image");
    engine.online_device(away.guid(), Some(disk), false).expect("online");
    drop(away);
    let is_behind = || engine.vdevs.leaves().iter().any(|leaf| leaf.is_behind());
    let wait = |until: &dyn Fn() -> bool, what: &str| {
        let begun = Instant::now();
        while !until() {
            assert!(begun.elapsed() < PATIENCE, "{what}: {:?}", engine.scan_progress());
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    wait(&|| engine.scan_progress().is_some() && !engine.is_scanning(), "the resilver");
    assert!(is_behind(), "what the checkpoint keeps was not looked at");
    engine.discard_checkpoint().expect("to give it up");
    wait(&|| !is_behind(), "after the checkpoint");
    drop(engine);
    rig.judge_thoroughly("without a checkpoint");
}
