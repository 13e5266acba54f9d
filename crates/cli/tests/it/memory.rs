//! How much memory a daemon takes, whatever is done: its cache (`TARN_CACHE`) and a quarter.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread::scope;
use std::time::{Duration, Instant};

use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sim::places::say;

use crate::rig::{LIMIT, Rig, run_for};

const MB: u64 = 1 << 20;

/// A pool on one image, mounted, whose daemon has a cache of so many megabytes.
struct Limited {
    rig: Rig,
    cache_mb: u64,
}

impl Limited {
    fn new(cache_mb: u64, image_bytes: u64) -> Option<Limited> {
        let rig = Rig::new()?;
        rig.image("img", image_bytes);
        fs::create_dir(rig.path("m")).unwrap();
        let mut create = rig.command("zpool create -m @m tank @img");
        let said = run_for(create.env("TARN_CACHE", format!("{cache_mb}M")), LIMIT).expect("it does not hang");
        assert_eq!(said.code, 0, "{said:?}");
        Some(Limited { rig, cache_mb })
    }

    fn status(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.rig.daemon().as_raw_nonzero())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.trim_start_matches(':').trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() >> 10
    }

    /// Does something, and looks at the peak since the daemon began.
    #[track_caller]
    fn step(&self, what: &str, act: impl FnOnce(&Path)) {
        let begin = Instant::now();
        act(&self.rig.path("m"));
        let (peak, now, bound) = (self.status("VmHWM"), self.status("VmRSS"), self.cache_mb * 5 / 4);
        say(&format!("memory: cache {} MB: {what}: {:.1} s, peak {peak} MB, now {now} MB", self.cache_mb, begin.elapsed().as_secs_f64()));
        assert!(peak <= bound, "{what}: {peak} MB, where {bound} MB are allowed");
    }

    fn remount(&self) {
        self.rig.ok("zfs unmount tank");
        self.rig.ok("zfs mount tank");
    }
}

fn make_files(directory: &Path, count: usize) {
    fs::create_dir(directory).unwrap();
    scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || (thread..count).step_by(4).for_each(|n| drop(File::create_new(directory.join(format!("file-{n:07}"))).unwrap())));
        }
    });
}

fn look_at_all(directory: &Path, count: usize) {
    let found = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().metadata().unwrap()).filter(|metadata| metadata.len() == 0).count();
    assert_eq!(found, count);
}

fn remove_while_listing(directory: &Path, count: usize) {
    let mut removed = 0;
    for entry in fs::read_dir(directory).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
        removed += 1;
    }
    assert_eq!(removed, count);
    fs::remove_dir(directory).unwrap();
}

fn write_large(path: &Path, bytes: u64, random: &mut ChaCha8Rng) {
    let mut block = vec![0; MB as usize];
    random.fill_bytes(&mut block);
    let file = File::create(path).unwrap();
    (0..bytes / MB).for_each(|n| file.write_all_at(&block, n * MB).unwrap());
    file.sync_all().unwrap();
}

fn overwrite_at_random(path: &Path, bytes: u64, count: usize, random: &mut ChaCha8Rng) {
    let file = File::options().write(true).open(path).unwrap();
    for _ in 0..count {
        file.write_all_at(&[7; 4096], random.random_range(0..bytes / 4096) * 4096).unwrap();
    }
    file.sync_all().unwrap();
}

fn read_all(path: &Path) {
    let (mut file, mut block) = (File::open(path).unwrap(), vec![0; MB as usize]);
    while file.read(&mut block).unwrap() > 0 {}
}

fn make_small_files(directory: &Path, threads: usize, each: usize) {
    scope(|scope| {
        for thread in 0..threads {
            let own = directory.join(format!("t{thread}"));
            scope.spawn(move || {
                fs::create_dir(&own).unwrap();
                (0..each).for_each(|n| fs::write(own.join(n.to_string()), vec![1; n * 7919 % 60_000]).unwrap());
            });
        }
    });
}

/// A daemon kept all it knew of each file that the kernel remembered, 3 KB, whatever its cache was, and a second copy of what was
/// overwritten in part while it was written.
#[test]
fn a_daemon_keeps_to_its_cache_and_a_quarter() {
    const FILES: usize = 20_000;
    let Some(limited) = Limited::new(128, 1 << 30) else { return };
    let random = &mut ChaCha8Rng::seed_from_u64(1);
    limited.step("empty files", |m| make_files(&m.join("d"), FILES));
    limited.step("a look at all", |m| look_at_all(&m.join("d"), FILES));
    limited.step("one of 192 MB", |m| write_large(&m.join("large"), 192 * MB, random));
    limited.step("overwritten at random", |m| overwrite_at_random(&m.join("large"), 192 * MB, 1000, random));
    limited.step("removed while listed", |m| remove_while_listing(&m.join("d"), FILES));
}

/// `FILES=n CACHE=megabytes`.
#[test]
#[ignore = "takes minutes: FILES=n CACHE=megabytes"]
fn a_daemon_with_a_million_files_keeps_to_its_cache_and_a_quarter() {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (files, cache_mb) = (number("FILES", 1_000_000) as usize, number("CACHE", 256));
    let Some(limited) = Limited::new(cache_mb, 16 << 30) else { return };
    let random = &mut ChaCha8Rng::seed_from_u64(1);
    let large = 1536 * MB;
    limited.step("one of 1.5 GB", |m| write_large(&m.join("large"), large, random));
    limited.step("overwritten at random", |m| overwrite_at_random(&m.join("large"), large, 20_000, random));
    limited.step("read", |m| read_all(&m.join("large")));
    limited.step("empty files", |m| make_files(&m.join("d"), files));
    limited.remount();
    limited.step("a look at all", |m| look_at_all(&m.join("d"), files));
    limited.step("small files by many threads", |m| make_small_files(m, 16, 1000));
    limited.step("one more of 1.5 GB", |m| write_large(&m.join("large2"), large, random));
    limited.step("removed while listed", |m| remove_while_listing(&m.join("d"), files));
    limited.step("the last of 1.5 GB", |m| write_large(&m.join("large3"), large, random));
    let said = run_for(&mut limited.rig.command("zpool export tank"), Duration::from_secs(300)).expect("it does not hang");
    assert_eq!(said.code, 0, "{said:?}");
    limited.rig.zdb(&["img"]);
}

/// What the caches did is told: as lines, one after the other with an interval, and as JSON by OpenZFS's names.
#[test]
fn what_caches_do_is_told() {
    let Some(rig) = Rig::with_tank("a.img", 128 << 20, "-O mountpoint=@mnt") else { return };
    let bytes: Vec<u8> = (0..4_u32 << 20).map(|index| (index.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(rig.path("mnt/file"), &bytes).unwrap();
    // On a busy machine there may be no thread that reads ahead of the reader.
    let mut counters = serde_json::Value::Null;
    rig.wait("what is read from its beginning is read ahead", || {
        rig.ok("zpool export tank");
        rig.ok("zpool import -d @. tank");
        assert_eq!(fs::read(rig.path("mnt/file")).unwrap(), bytes);
        counters = serde_json::from_str(&rig.ok("arcstat -j tank")).unwrap();
        counters["pools"]["tank"]["predictive_prefetch"].as_u64().unwrap() > 10
    });
    let of = |name: &str| counters["pools"]["tank"][name].as_u64().unwrap_or_else(|| panic!("{name}: {counters}"));
    assert!(of("misses") > 0 && of("size") >= 4 << 20 && of("c") >= of("size") && of("l2_hits") == 0, "{counters}");
    for name in ["mru_hits", "mfu_hits", "mru_ghost_size", "mfu_ghost_size", "mru_ghost_hits", "mfu_ghost_hits", "zfetch_hits", "zfetch_max_streams"] {
        of(name);
    }
    assert!(of("c_min") <= of("c") && of("c") <= of("c_max"), "{counters}");
    let lines = rig.ok("arcstat tank 1 2");
    assert_eq!(lines.lines().map(|line| line.split_whitespace().next().unwrap()).collect::<Vec<_>>(), ["pool", "tank", "tank"]);
    rig.refused("arcstat nosuch", "cannot open 'nosuch': no such pool");
    rig.finish("tank", &["a.img"]);
}

/// A pool that is imported read-only did not use the cache devices that OpenZFS had filled.
#[test]
fn a_pool_that_may_not_write_reads_its_cache_devices() {
    let Some(rig) = Rig::new() else { return };
    let Some(golden) = sim::golden::Golden::find("cache").unwrap() else { return sim::places::skipped("golden pool cache: it is not there") };
    fs::create_dir(rig.path("limits")).unwrap();
    fs::write(rig.path("limits/l2arc_rebuild_blocks_min_l2size"), "0").unwrap();
    let before: Vec<Vec<u8>> = golden.images.iter().map(|image| fs::read(image).unwrap()).collect();
    let mut import = rig.command(&format!("zpool import -f -o readonly=on -R @r -d {} g_cache", golden.directory().display()));
    let said = run_for(import.env("TARN_PARAMETERS", rig.path("limits")), LIMIT).expect("it does not hang");
    assert_eq!(said.code, 0, "{said:?}");
    let counter = |name: &str| {
        let all: serde_json::Value = serde_json::from_str(&rig.ok("arcstat -j g_cache")).unwrap();
        all["pools"]["g_cache"][name].as_u64().unwrap()
    };
    rig.wait("what is on the device is found again", || counter("l2_rebuild_success") == 1);
    let status = rig.ok("zpool status g_cache");
    assert!(status.contains("cache") && status.contains("ONLINE"), "{status}");
    for place in rig.mounts() {
        for entry in fs::read_dir(place).unwrap().map(Result::unwrap).filter(|entry| entry.file_type().unwrap().is_file()) {
            fs::read(entry.path()).unwrap();
        }
    }
    assert!(counter("l2_hits") > 0 && counter("l2_writes_sent") == 0 && counter("l2_cksum_bad") == 0);
    rig.ok("zpool export g_cache");
    for (image, before) in golden.images.iter().zip(before) {
        assert!(fs::read(image).unwrap() == before, "{} was written", image.display());
    }
}
