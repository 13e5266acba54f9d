//! Damage made while a pool is exported, to each kind of block and to each label, on each layout.
//!
//! # Theory
//! One kind of block is damaged in one copy, or in all; then the pool is imported, worked on, exported. Nothing panics, nothing hangs. With a good copy left
//! nobody hears of it, and afterwards our checker and the real zdb find nothing wrong. With none left the error names what is lost; the pool stops, or is not
//! imported, only if what is lost is the pool's own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::Disk;
use engine::dmu::Dnode;
use engine::dsl::meta::key;
use ondisk::blkptr::BlkPtr;
use ondisk::label;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sim::golden::Golden;
use sim::oracle::{zdb_check, zdb_check_damaged};
use sim::places::{say, skipped};
use sim::scenario::{Layout, MemoryDisks, contents, properties};
use tarnfs::{Credentials, Error, Pool, WriteMode, XattrMode};

const LAYOUTS: [(&str, Layout); 3] = [
    ("single", Layout { tops: 1, sides: 1, parity: 0, bytes: 64 << 20, ashift: 12 }),
    ("mirror", Layout { tops: 1, sides: 2, parity: 0, bytes: 64 << 20, ashift: 9 }),
    ("stripe", Layout { tops: 3, sides: 1, parity: 0, bytes: 64 << 20, ashift: 12 }),
];
const BYTES: usize = 3 << 20;
/// Where the header of an intent log has the pointer to its first block.
const LOG_POINTER: usize = 16;

fn create(layout: Layout) -> MemoryDisks {
    let disks = MemoryDisks::create(layout, &[("compression", "off"), ("xattr", "sa")]);
    let pool = disks.import(false).unwrap();
    // Of what belongs to files there are two copies.
    pool.create_file_system("tank/d", properties(&[("copies", "2"), ("recordsize", "4K")])).unwrap();
    pool.create_file_system("tank/other", Vec::new()).unwrap();
    // So many names that what lists them has blocks of its own.
    for number in 0..24_u32 {
        let name = format!("{:x}", number.wrapping_mul(2_654_435_761));
        pool.create_file_system(&format!("tank/{name}"), Vec::new()).unwrap();
        write(&pool, "tank/d", &name, 10).unwrap();
    }
    write(&pool, "tank/d", "f", BYTES).unwrap();
    write(&pool, "tank/other", "f", 100_000).unwrap();
    let fs = pool.file_system("tank/d").unwrap();
    let file = fs.lookup(fs.root(), b"f").unwrap().inode;
    fs.setxattr(file, b"user.large", &[7; 5000], XattrMode::Any).unwrap();
    fs.forget(file, 1);
    drop(fs);
    pool.export().unwrap();
    disks
}

fn write(pool: &Arc<Pool>, dataset: &str, name: &str, bytes: usize) -> Result<(), Error> {
    let (fs, user) = (pool.file_system(dataset)?, Credentials::root());
    let file = fs.create(fs.root(), name.as_bytes(), 0o100_644, 0, &user)?.inode;
    let written = fs.write(file, WriteMode::At(0), &contents(5, bytes, 0), &user);
    fs.forget(file, 1);
    written.map(drop)
}

/// All of what was written, read twice: each time from perhaps another side.
fn read(pool: &Arc<Pool>) -> Result<(), Error> {
    for (dataset, bytes) in [("tank/d", BYTES), ("tank/other", 100_000)] {
        let fs = pool.file_system(dataset)?;
        let file = fs.lookup(fs.root(), b"f")?.inode;
        let found = fs.read(file, 0, bytes);
        let attribute = fs.listxattr(file);
        fs.forget(file, 1);
        assert!(found? == contents(5, bytes, 0), "{dataset}: other contents");
        attribute?;
    }
    Ok(())
}

fn mos_object(pool: &Arc<Pool>, object: u64) -> Vec<BlkPtr> {
    let dnode = pool.engine().dsl.meta.mos.0.hold(object).unwrap();
    (0..=dnode.max_block()).filter_map(|block| dnode.block_pointer(block).ok()).filter(|pointer| pointer.first_dva().is_some()).take(4).collect()
}

fn mos_entry(pool: &Arc<Pool>, name: &str) -> Vec<BlkPtr> {
    mos_object(pool, pool.engine().dsl.meta.mos.zap_u64(key::DIRECTORY, name).unwrap().unwrap())
}

fn file(pool: &Arc<Pool>) -> Arc<Dnode> {
    let fs = pool.file_system("tank/d").unwrap();
    let inode = fs.lookup(fs.root(), b"f").unwrap().inode;
    let dnode = fs.objset().hold(inode).unwrap();
    fs.forget(inode, 1);
    dnode
}

fn space_map(pool: &Arc<Pool>) -> Vec<BlkPtr> {
    let array = pool.engine().vdevs.top(0).unwrap().metaslab_array();
    let bytes = pool.engine().dsl.meta.mos.read(array, 0, 64).unwrap();
    let objects = bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).filter(|object| *object != 0);
    objects.flat_map(|object| mos_object(pool, object)).collect()
}

type Find = fn(&Arc<Pool>) -> Vec<BlkPtr>;

/// Kinds of blocks: what they are called, where they are, and whether they are the pool's own.
const KINDS: [(&str, Find, bool); 14] = [
    ("MOS root", |pool| vec![pool.engine().dsl.meta.mos.0.pointer()], true),
    ("MOS dnodes", |pool| vec![pool.engine().dsl.meta.mos.0.meta().block_pointer(0).unwrap()], true),
    ("object directory", |pool| mos_object(pool, key::DIRECTORY), true),
    ("configuration", |pool| mos_entry(pool, key::CONFIG), true),
    ("history", |pool| mos_entry(pool, key::HISTORY), true),
    ("space maps", space_map, true),
    ("directory of datasets", |pool| mos_object(pool, pool.engine().dsl.root_dir().unwrap().phys().child_dirs.get()), true),
    ("object set", |pool| vec![pool.file_system("tank/d").unwrap().objset().pointer()], false),
    ("meta-dnode", |pool| pool.file_system("tank/d").unwrap().objset().meta().on_disk().pointers[..1].to_vec(), false),
    ("dnodes", |pool| vec![pool.file_system("tank/d").unwrap().objset().meta().block_pointer(0).unwrap()], false),
    ("level-1 block", |pool| file(pool).on_disk().pointers[..1].to_vec(), false),
    ("data", |pool| vec![file(pool).block_pointer(100).unwrap(), file(pool).block_pointer(500).unwrap()], false),
    ("spill block", |pool| vec![file(pool).on_disk().spill.expect("a spill block")], false),
    (
        "directory",
        |pool| {
            let fs = pool.file_system("tank/d").unwrap();
            vec![fs.objset().hold(fs.root()).unwrap().block_pointer(0).unwrap()]
        },
        false,
    ),
];

fn pointers(disks: &MemoryDisks, find: Find) -> Vec<BlkPtr> {
    let pool = disks.import(true).unwrap();
    let mut found = find(&pool);
    found.retain(|pointer| pointer.first_dva().is_some());
    pool.abandon();
    found
}

fn check_named(error: &Error, what: &str) {
    let message = error.message();
    assert!(message.len() > 10 && !message.contains("(os error"), "{what}: the error names nothing: {message}");
}

/// Imports, works, exports. What failed first, if anything did.
fn live(disks: &MemoryDisks, what: &str) -> Result<(), Error> {
    let pool = disks.import(false)?;
    let mut result = read(&pool);
    for (dataset, name) in [("tank/d", "new"), ("tank/other", "new")] {
        let written = write(&pool, dataset, name, 200_000);
        result = result.and(written);
    }
    for name in ["f", "new"] {
        let removed = pool.file_system("tank/d").and_then(|fs| fs.unlink(fs.root(), name.as_bytes()));
        result = result.and(removed);
    }
    let synced = pool.sync();
    if let Err(error) = &synced {
        check_named(error, what);
        pool.abandon();
        return synced;
    }
    pool.export()?;
    result
}

fn zdb(disks: &MemoryDisks, what: &str, lacks_labels: bool) {
    let directory = tempfile::tempdir().unwrap();
    let images = disks.to_images(directory.path());
    let images: Vec<&Path> = images.iter().map(PathBuf::as_path).collect();
    let verdict = if lacks_labels { zdb_check_damaged(&images) } else { zdb_check(&images) };
    verdict.expect_clean(what);
}

/// One copy of each kind is damaged, of all kinds at once: nobody hears of it.
#[test]
fn one_damaged_copy_of_anything_is_not_noticed() {
    for (name, layout) in LAYOUTS {
        let made = create(layout);
        let found: Vec<(&str, Vec<BlkPtr>)> = KINDS.iter().map(|(kind, find, _)| (*kind, pointers(&made, *find))).collect();
        let everything = made.snapshot();
        for (kind, pointers) in &found {
            let what = format!("{name}: one copy of {kind}");
            assert!(!pointers.is_empty(), "{what}: none found");
            let disks = made.snapshot();
            for pointer in pointers {
                let is_first = |number: usize, side: usize| if layout.sides > 1 { side == 1 } else { number == 0 };
                assert!(layout.sides > 1 || pointer.dvas().count() > 1, "{what}: there is no other");
                disks.damage_block(pointer, &is_first);
                everything.damage_block(pointer, &|number, side| if layout.sides > 1 { side == 0 } else { number == 0 });
            }
            live(&disks, &what).unwrap_or_else(|error| panic!("{what}: {error}"));
            let pool = disks.import(true).unwrap_or_else(|error| panic!("{what}: {error}"));
            let report = pool.check(false, &|_| ()).unwrap();
            let wrong: Vec<_> = report.findings.iter().filter(|finding| !matches!(finding, engine::pool::check::Finding::WrongCopy { .. })).collect();
            assert!(wrong.is_empty(), "{what}: {wrong:?}");
            pool.abandon();
        }
        live(&everything, name).unwrap_or_else(|error| panic!("{name}: one copy of everything: {error}"));
        zdb(&everything, &format!("{name}: one copy of everything"), false);
    }
}

/// All copies of one kind are damaged: what is lost says so, and only what is the pool's own may stop the pool.
#[test]
fn what_is_lost_says_so() {
    for (name, layout) in LAYOUTS {
        let made = create(layout);
        let mut outcomes = Vec::new();
        for (kind, find, is_pools) in KINDS {
            let what = format!("{name}: all copies of {kind}");
            let disks = made.snapshot();
            for pointer in pointers(&made, find) {
                disks.damage_block(&pointer, &|_, _| true);
            }
            match disks.import(false) {
                Err(error) => {
                    check_named(&error, &what);
                    assert!(is_pools, "{what}: the pool is not imported: {error}");
                    outcomes.push(format!("{kind}: not imported"));
                    continue;
                }
                Ok(pool) => pool.abandon(),
            }
            match live(&disks, &what) {
                Ok(()) => outcomes.push(format!("{kind}: not noticed")),
                Err(error) => {
                    check_named(&error, &what);
                    outcomes.push(format!("{kind}: {error}"));
                }
            }
            let pool = match disks.import(false) {
                Ok(pool) => pool,
                Err(error) => {
                    assert!(is_pools, "{what}: afterwards the pool is not imported: {error}");
                    continue;
                }
            };
            let goes_on = write(&pool, "tank/other", "after", 50_000).and_then(|()| pool.sync());
            assert!(is_pools || goes_on.is_ok(), "{what}: the pool stopped: {goes_on:?}");
            if !is_pools {
                pool.destroy_file_system("tank/d").unwrap_or_else(|error| panic!("{what}: destroy: {error}"));
                pool.export().unwrap_or_else(|error| panic!("{what}: export: {error}"));
                disks.import(false).unwrap().export().unwrap();
            } else {
                pool.abandon();
            }
        }
        say(&format!("damage while exported, {name}: {}", outcomes.join("; ")));
    }
}

/// Each label, each ring of uberblocks, of one device and of all: one that is left is enough, and the next export makes all of them right again.
#[test]
fn damaged_labels_are_written_anew() {
    for (name, layout) in LAYOUTS {
        let made = create(layout);
        let devices = layout.tops * layout.sides;
        // Which labels of each device are damaged: each one, all but each one.
        for lost in [0b0001_u8, 0b1000, 0b1110, 0b0111] {
            for (part, offset, length) in [("configuration", label::CONFIG_OFFSET, label::CONFIG_BYTES), ("ring", label::RING_OFFSET, label::RING_BYTES as usize)] {
                let what = format!("{name}: {part} of labels {lost:04b}");
                let disks = made.snapshot();
                for device in 0..devices {
                    let disk = disks.disk(device);
                    for number in (0..label::LABELS).filter(|number| lost & 1 << number != 0) {
                        disk.corrupt(label::label_offset(disk.size_bytes(), number) + offset, length);
                    }
                }
                live(&disks, &what).unwrap_or_else(|error| panic!("{what}: {error}"));
                if lost == 0b0111 || lost == 0b0001 && part == "ring" {
                    zdb(&disks, &what, part == "ring");
                }
            }
        }
    }
}

/// A log that cannot be read ends there, wherever it lies: what was not synced is lost with it, and nothing else.
#[test]
fn a_damaged_log_block_ends_the_log() {
    for (place, logs) in [("in the pool", 0), ("on a device of its own", 1)] {
        let disks = MemoryDisks::create_with_logs(LAYOUTS[0].1, logs, &[]);
        let pool = disks.import(false).unwrap();
        let (fs, user) = (pool.file_system("tank").unwrap(), Credentials::root());
        for name in [&b"synced"[..], b"logged"] {
            let file = fs.create(fs.root(), name, 0o100_644, 0, &user).unwrap().inode;
            fs.write(file, WriteMode::At(0), &contents(7, 20_000, 0), &user).unwrap();
            fs.fsync(file).unwrap();
            fs.forget(file, 1);
            if name == b"synced" {
                pool.sync().unwrap();
            }
        }
        drop(fs);
        pool.abandon();
        let found = pointers(&disks, |pool| {
            let header = pool.file_system("tank").unwrap().objset().zil_header();
            BlkPtr::slice_of(&header[LOG_POINTER..][..128]).to_vec()
        });
        assert_eq!(found.len(), 1, "{place}: no log");
        assert_eq!(found[0].first_dva().unwrap().vdev as usize, logs, "{place}");
        for lost in [false, true] {
            let disks = disks.snapshot();
            if lost {
                disks.damage_block(&found[0], &|_, _| true);
            }
            let pool = disks.import(false).unwrap_or_else(|error| panic!("{place}: {error}"));
            let fs = pool.file_system("tank").unwrap();
            assert!(fs.lookup(fs.root(), b"synced").is_ok(), "{place}");
            assert_eq!(fs.lookup(fs.root(), b"logged").is_ok(), !lost, "{place}, lost: {lost}");
            fs.release_all();
            drop(fs);
            write(&pool, "tank", "after", 50_000).unwrap();
            pool.export().unwrap();
            zdb(&disks, place, false);
        }
    }
}

/// Golden pools of more layouts, with their special and log devices: random damage in what is in use, then work. Whatever is lost, nothing panics or hangs.
/// `TARN_SEED=n` runs one case again.
#[test]
fn damaged_golden_pools_are_written() {
    let only: Option<u64> = std::env::var("TARN_SEED").ok().map(|seed| seed.parse().unwrap());
    let mut outcomes = std::collections::BTreeMap::<&str, u32>::new();
    for (position, name) in ["special", "slog", "mirror2", "stripe2", "snap", "gang-a9"].into_iter().enumerate() {
        let Some(golden) = Golden::find(name).unwrap() else {
            skipped(&format!("damage to the golden pool {name}: it is not there"));
            continue;
        };
        let made = MemoryDisks::of_images(&golden.images);
        for seed in (position as u64 * 100..).take(5).filter(|seed| only.is_none_or(|only| only == *seed)) {
            let disks = made.snapshot();
            damage_at_random(&disks, golden.images.len(), seed);
            let what = format!("{name}: TARN_SEED={seed}");
            let (sender, receiver) = std::sync::mpsc::channel();
            // In a thread of its own, so that a hang is a failure and not the end of the test run.
            #[allow(clippy::disallowed_methods)]
            let thread = std::thread::spawn(move || sender.send(work_everywhere(&disks)));
            match receiver.recv_timeout(std::time::Duration::from_secs(240)) {
                Ok(outcome) => *outcomes.entry(outcome).or_default() += 1,
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("{what}: hangs"),
                Err(_) => panic!("{what}: panicked: {:?}", thread.join().is_err()),
            }
        }
    }
    say(&format!("damage while exported, golden pools written afterwards: {outcomes:?}"));
}

/// Between the labels: some pages inverted, of one device or all.
fn damage_at_random(disks: &MemoryDisks, devices: usize, seed: u64) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut page = vec![0; 4096];
    for device in 0..devices {
        let disk = disks.disk(device);
        let used: Vec<u64> = (4 << 20..disk.size_bytes() - (512 << 10))
            .step_by(page.len())
            .filter(|at| disk.read_at(&mut page, *at).is_ok() && page.iter().any(|byte| *byte != 0))
            .collect();
        let pages = if used.is_empty() { 0 } else { random.random_range(0..8) };
        for _ in 0..pages {
            disk.corrupt(used[random.random_range(0..used.len())], page.len());
        }
    }
}

/// Reads, makes and removes something in each file system.
fn work_everywhere(disks: &MemoryDisks) -> &'static str {
    let Ok(pool) = disks.import(false) else { return "not imported" };
    let dsl = &pool.engine().dsl;
    let mut waiting: Vec<(String, _)> = dsl.root_dir().map(|root| (pool.name(), root)).into_iter().collect();
    let mut failed = false;
    while let Some((name, dir)) = waiting.pop() {
        let children = dsl.children(&dir);
        failed |= children.is_err();
        waiting.extend(children.unwrap_or_default().into_iter().map(|(child, dir)| (format!("{name}/{child}"), dir)));
        let Ok(fs) = pool.file_system(&name) else { continue };
        let user = Credentials::root();
        let mut names = Vec::new();
        let _ = fs.read_directory(fs.root(), 2, &mut |entry| {
            names.push(entry.name);
            names.len() < 20
        });
        for (number, file) in names.iter().enumerate() {
            let Ok(stat) = fs.lookup(fs.root(), file) else { continue };
            failed |= fs.read(stat.inode, 0, 300_000).is_err();
            let _ = fs.write(stat.inode, WriteMode::At(7), &[number as u8; 5000], &user);
            let _ = fs.truncate(stat.inode, 100, &user);
            fs.forget(stat.inode, 1);
            if number % 2 == 0 {
                let _ = fs.unlink(fs.root(), file);
            }
        }
        fs.release_all();
        drop(fs);
        failed |= write(&pool, &name, "made after the damage", 100_000).is_err();
        if let Err(error) = pool.sync() {
            assert!(!error.message().contains("a bug"), "{error}");
            pool.abandon();
            return "stopped";
        }
    }
    match pool.export() {
        Ok(()) if failed => "with errors",
        Ok(()) => "well",
        Err(error) => {
            assert!(!error.message().contains("a bug"), "{error}");
            "stopped"
        }
    }
}
