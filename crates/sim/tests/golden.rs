//! Pools made by the real OpenZFS, read by the library and compared with their manifests: every file, every attribute,
//! every byte.
//!
//! One table; `TARN_GOLDEN=name,name` runs only these pools.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use sim::golden::{Compare, Golden, Report, compare, findings, open_checkpoint, open_images};
use sim::places;

/// What is to happen.
#[derive(Debug, Clone, Copy)]
enum Expected {
    /// It opens and is the same as its manifest.
    Same,
    /// It opens and is the same but for this many differences that have one of these words.
    SameBut(usize, &'static [&'static str]),
    /// It opens, so many datasets say that their key is not loaded, and the others are the same.
    Locked(u64),
}
use Expected::{Locked, Same, SameBut};

const TABLE: &[(&str, Expected)] = &[
    // In the project itself.
    ("acl", Same),
    ("xattr", Same),
    ("v1", Same),
    ("noalloc", Same),
    // What this version must read.
    ("single-a9", Same),
    ("single-a12", Same),
    ("compress", Same),
    ("checksum", Same),
    ("recordsize", Same),
    ("dnodesize", Same),
    ("mirror2", Same),
    ("mirror3", Same),
    ("mirrors", Same),
    ("stripe2", Same),
    ("stripe4", Same),
    ("nofeat", Same),
    ("v28", Same),
    ("upgraded", Same),
    ("labels", Same),
    ("uberblock", Same),
    ("bigdir", Same),
    ("holes", Same),
    ("copies", Same),
    // What it reads besides.
    ("names", Same),
    ("quota", Same),
    ("gang-a9", Same),
    ("gang-a12", Same),
    ("full", Same),
    ("crash", Same),
    ("errors", Same),
    ("special", Same),
    ("cache", Same),
    ("spare", Same),
    ("resilver", Same),
    ("degraded-mir", Same),
    ("checkpoint", Same),
    ("dedup-legacy", Same),
    ("dedup-fast", Same),
    ("bclone", Same),
    ("rewrite", Same),
    ("zvol", Same),
    ("disktype", Same),
    ("wholedisk", Same),
    ("remove", Same),
    ("raidz1", Same),
    ("raidz2", Same),
    ("raidz3", Same),
    ("degraded-z1", Same),
    ("degraded-z2", Same),
    ("degraded-off", Same),
    ("expand", Same),
    ("expand-part", Same),
    ("draid2", Same),
    ("everything", Same),
    // What it can list, and read where there is no key to have.
    ("encrypt", Locked(22)),
    // A dataset of it has `acltype=off` and was received with ACLs: to hide them is the daemon's.
    ("streams", SameBut(14, &["g_streams/redclone"])),
    // What it does not know, and says so.
    // One file system shows `.zfs` in its root (`snapdir=visible`), which is the daemon's.
    ("snap", SameBut(6, &[".zfs", "g_snap/a/other: .: nlink"])),
    // Not in the table: zil and slog, whose manifests are of after a replay.
];

/// One row: the line to print, or what is wrong.
fn run(name: &str, expected: Expected) -> Result<Outcome, String> {
    let golden = match Golden::find(name) {
        Ok(Some(golden)) => golden,
        Ok(None) => return Ok(Outcome::Skipped),
        Err(error) => return Err(format!("{name}: {error:#}")),
    };
    let opened = open_images(&golden.images);
    match (expected, opened) {
        (Same | SameBut(..) | Locked(_), Err(error)) => Err(format!("{name}: {error:#}")),
        (Same, Ok(pool)) => judge(name, compare(pool.as_ref(), &golden.manifest, Compare::STRICT)),
        (Locked(count), Ok(pool)) => match compare(pool.as_ref(), &golden.manifest, Compare::LISTED) {
            Ok(report) if report.locked != count => {
                let (locked, shown) = (report.locked, report.differences.iter().take(20).fold(String::new(), |shown, line| shown + "\n    " + line));
                Err(format!("{name}: {locked} datasets are locked, not {count}{shown}"))
            }
            report => judge(name, report),
        },
        (SameBut(count, words), Ok(pool)) => {
            let report = compare(pool.as_ref(), &golden.manifest, Compare::STRICT);
            let known = |line: &String| words.iter().any(|word| line.contains(word));
            match report {
                Ok(report) if report.differences.len() == count && report.differences.iter().all(known) => Ok(Outcome::Same(report)),
                other => judge(name, other),
            }
        }
    }
}

enum Outcome {
    Skipped,
    Same(Report),
}

fn judge(name: &str, report: anyhow::Result<Report>) -> Result<Outcome, String> {
    match report {
        Ok(report) if report.is_same() => Ok(Outcome::Same(report)),
        Ok(report) => {
            let shown = report.differences.iter().take(20).fold(String::new(), |shown, line| shown + "\n    " + line);
            Err(format!("{name}: {} differences in {} files{shown}", report.differences_found, report.files_compared))
        }
        Err(error) => Err(format!("{name}: {error:#}")),
    }
}

#[derive(Default)]
struct Total {
    pools: u64,
    files: u64,
    bytes: u64,
    skipped: Vec<&'static str>,
    wrong: Vec<String>,
}

#[test]
fn golden_pools_are_the_same_as_their_manifests() {
    let chosen = std::env::var("TARN_GOLDEN").ok();
    let chosen: Option<Vec<&str>> = chosen.as_deref().map(|names| names.split(',').collect());
    let is_chosen = |name: &str| chosen.as_ref().is_none_or(|chosen| chosen.contains(&name));
    let rows: Vec<_> = TABLE.iter().filter(|(name, _)| is_chosen(name)).collect();
    let next = AtomicUsize::new(0);
    let total = Mutex::new(Total::default());
    let work = || {
        while let Some((name, expected)) = rows.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = run(name, *expected);
            let mut total = total.lock().unwrap();
            match outcome {
                Ok(Outcome::Skipped) => total.skipped.push(name),
                Ok(Outcome::Same(report)) => {
                    total.pools += 1;
                    total.files += report.files_compared;
                    total.bytes += report.bytes_compared;
                    let (datasets, files, bytes) = (report.datasets, report.files_compared, report.bytes_compared);
                    let more = match (report.locked, report.properties_compared) {
                        (0, 0) => String::new(),
                        (locked, properties) => format!(", {locked} datasets locked, {properties} properties"),
                    };
                    places::say(&format!("golden: {name}: same: {datasets} datasets, {files} files, {bytes} bytes{more}"));
                }
                Err(message) => {
                    places::say(&format!("golden: {name}: WRONG"));
                    total.wrong.push(message);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from).min(4) {
            scope.spawn(work);
        }
    });
    let total = total.into_inner().unwrap();
    if !total.skipped.is_empty() {
        places::skipped(&format!("{} golden pools: not found: {}", total.skipped.len(), total.skipped.join(" ")));
    }
    places::say(&format!(
        "golden: {} pools read, {} files compared, {} bytes, {} wrong",
        total.pools,
        total.files,
        total.bytes,
        total.wrong.len()
    ));
    assert!(total.wrong.is_empty(), "\n{}", total.wrong.join("\n"));
    // The project has pools of its own: a run that compared nothing is none.
    assert!(total.pools > 0 || chosen.is_some(), "no golden pool was read");
}

/// Our checker finds nothing wrong with them, as the real zdb does not. What a checkpoint keeps was called leaked.
#[test]
fn our_checker_finds_nothing_in_golden_pools() {
    let mut checked = 0;
    for (name, _) in TABLE.iter().chain(&[("zil", Same), ("slog", Same)]) {
        let Some(golden) = Golden::find(name).expect("a golden pool") else {
            places::skipped(&format!("golden pool {name}: not found"));
            continue;
        };
        let found = findings(&golden.images).unwrap_or_else(|error| panic!("{name}: {error:#}"));
        // Of what was damaged on purpose copies are wrong, and only of that.
        let damaged: Vec<&str> = golden.manifest.images.iter().filter(|image| image.state.starts_with("corrupted")).map(|image| image.file.as_str()).collect();
        let is_meant = |finding: &String| finding.contains("one copy is wrong") && damaged.iter().any(|file| finding.contains(&format!("/{file}, ")));
        let (meant, wrong): (Vec<String>, Vec<String>) = found.into_iter().partition(is_meant);
        assert!(wrong.is_empty(), "{name}: {} findings: {:#?}", wrong.len(), wrong.iter().take(20).collect::<Vec<_>>());
        assert_eq!(meant.is_empty(), damaged.is_empty(), "{name}: {damaged:?}");
        checked += 1;
    }
    places::say(&format!("golden: {checked} pools checked, nothing wrong"));
    assert!(checked > 0, "no golden pool was checked");
}

/// A pool with a checkpoint, as it was when that was made: what the real OpenZFS shows with `--rewind-to-checkpoint`.
#[test]
fn a_checkpoint_is_what_the_pool_was() {
    let Some(golden) = Golden::find("checkpoint").expect("a golden pool") else {
        return places::skipped("golden pool checkpoint: not found");
    };
    let manifest = golden.other_manifest("manifest-rewound.json").expect("a manifest").expect("it has two");
    let pool = open_checkpoint(&golden.images).unwrap_or_else(|error| panic!("{error:#}"));
    let report = compare(pool.as_ref(), &manifest, Compare::STRICT).expect("the datasets");
    assert!(report.is_same(), "{:#?}", report.differences.iter().take(20).collect::<Vec<_>>());
    places::say(&format!("golden: checkpoint, rewound: same: {} datasets, {} files", report.datasets, report.files_compared));
    // And that is not what it is.
    let now = open_images(&golden.images).expect("the pool");
    assert!(!compare(now.as_ref(), &manifest, Compare::STRICT).expect("the datasets").is_same());
    let other = Golden::find("single-a9").expect("a golden pool").expect("it is beside the other");
    let message = open_checkpoint(&other.images).map(drop).expect_err("it has none").to_string();
    assert!(message.contains("no checkpoint"), "{message}");
}
