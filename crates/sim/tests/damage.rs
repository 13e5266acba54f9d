//! Damaged images: whatever is in them, opening and reading gives data or an error. No panic, no hang, no wrong data.
//!
//! Each case damages a golden pool at random places that hold something, opens it and reads every file. What is read
//! must be what the manifest says, or be reported as an error. `TARN_SEED=n` runs one case again.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sim::golden::{Compare, Golden, compare, open_images};
use sim::places;

/// The pools to damage, small ones; the first two are in the project.
const POOLS: [&str; 5] = ["acl", "xattr", "single-a9", "mirror2", "copies"];
/// Cases for each pool.
const CASES: u64 = 12;
/// No case takes a tenth of this.
const CASE_SECONDS: u64 = 60;
const PAGE: u64 = 512;

/// The offsets of the pages that are not all zeros.
fn pages_in_use(image: &Path) -> Vec<u64> {
    let bytes = std::fs::read(image).unwrap();
    let pages = bytes.chunks(PAGE as usize).enumerate();
    pages.filter(|(_, page)| page.iter().any(|byte| *byte != 0)).map(|(number, _)| number as u64 * PAGE).collect()
}

/// What was done, in words.
fn damage(image: &Path, random: &mut ChaCha8Rng) -> String {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(image).unwrap();
    let used = pages_in_use(image);
    let pick = |random: &mut ChaCha8Rng| used[random.random_range(0..used.len())];
    match random.random_range(0..6) {
        0 => {
            let flips = random.random_range(1..200);
            for _ in 0..flips {
                let at = pick(random) + random.random_range(0..PAGE);
                let mut byte = [0];
                file.read_exact_at(&mut byte, at).unwrap();
                file.write_all_at(&[byte[0] ^ 1 << random.random_range(0..8)], at).unwrap();
            }
            format!("{flips} bits flipped")
        }
        1 => {
            let zeroed = random.random_range(1..used.len());
            for _ in 0..zeroed {
                file.write_all_at(&[0; PAGE as usize], pick(random)).unwrap();
            }
            format!("{zeroed} pages zeroed")
        }
        2 => {
            let size = random.random_range(0..file.metadata().unwrap().len());
            file.set_len(size).unwrap();
            format!("cut to {size} bytes")
        }
        3 => {
            let written = random.random_range(1..100);
            for _ in 0..written {
                let mut page = [0; PAGE as usize];
                random.fill(&mut page[..]);
                file.write_all_at(&page, pick(random)).unwrap();
            }
            format!("{written} pages of noise")
        }
        4 => {
            let moved = random.random_range(1..100);
            for _ in 0..moved {
                let mut page = [0; PAGE as usize];
                file.read_exact_at(&mut page, pick(random)).unwrap();
                file.write_all_at(&page, pick(random)).unwrap();
            }
            format!("{moved} pages in another's place")
        }
        _ => {
            // One long run, labels included if it comes so.
            let (from, pages) = (pick(random), random.random_range(1..4096));
            let length = (pages * PAGE).min(file.metadata().unwrap().len() - from);
            file.write_all_at(&vec![0xff; length as usize], from).unwrap();
            format!("{length} bytes of ones from {from}")
        }
    }
}

/// A difference that is no error: something was read, and it is not what was written. What could not be read has an
/// error in place of its hash, or is missing from a directory or a dataset that could not be listed.
fn is_lie(line: &str) -> bool {
    let unread = line.ends_with(" != None")
        || line.contains(": error None != Some(")
        || line.ends_with(": missing")
        || line.ends_with(" is missing");
    line.contains(" != ") && !unread
}

/// Runs one case; what it printed is the outcome.
fn run(name: &'static str, seed: u64) -> Option<&'static str> {
    let golden = Golden::find(name).unwrap()?;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut done = Vec::new();
    for image in &golden.images {
        done.push(damage(image, &mut random));
    }
    let what = format!("{name}: seed {seed}: {}", done.join("; "));
    let (sender, receiver) = std::sync::mpsc::channel();
    // In a thread of its own, so that a hang is a failure and not the end of the test run.
    #[allow(clippy::disallowed_methods)]
    let thread = std::thread::spawn(move || {
        let outcome = match open_images(&golden.images) {
            Err(_) => "refused",
            Ok(pool) => match compare(pool.as_ref(), &golden.manifest, Compare::STRICT) {
                Err(_) => "not listed",
                Ok(report) if report.is_same() => "the same",
                Ok(report) => {
                    let lies: Vec<_> = report.differences.iter().filter(|line| is_lie(line)).collect();
                    assert!(lies.is_empty(), "wrong data: {lies:?}");
                    "errors"
                }
            },
        };
        let _ = sender.send(outcome);
    });
    match receiver.recv_timeout(Duration::from_secs(CASE_SECONDS)) {
        Ok(outcome) => {
            thread.join().unwrap();
            Some(outcome)
        }
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("{what}: hangs; again: TARN_SEED={seed}"),
        Err(_) => {
            let _ = thread.join();
            panic!("{what}: panicked; again: TARN_SEED={seed} cargo test -p sim --test damage");
        }
    }
}

#[test]
fn damaged_pools_give_data_or_errors() {
    let only: Option<u64> = std::env::var("TARN_SEED").ok().map(|seed| seed.parse().unwrap());
    let mut cases = Vec::new();
    for (position, name) in POOLS.into_iter().enumerate() {
        cases.extend((0..CASES).map(|case| (name, position as u64 * 1000 + case)));
    }
    cases.retain(|(_, seed)| only.is_none_or(|only| only == *seed));
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(BTreeMap::<&str, u64>::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from).min(4) {
            scope.spawn(|| {
                while let Some((name, seed)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = run(name, *seed).unwrap_or("not found");
                    *outcomes.lock().unwrap().entry(outcome).or_default() += 1;
                }
            });
        }
    });
    let outcomes = outcomes.into_inner().unwrap();
    places::say(&format!("golden: damaged pools: {outcomes:?} (seeds 0 to {})", POOLS.len() as u64 * 1000));
    if only.is_none() {
        // The damage must neither be always fatal nor always without effect, or nothing is tested.
        assert!(outcomes.get("errors").is_some_and(|count| *count >= 5), "{outcomes:?}");
    }
}

#[test]
fn a_lie_is_told_from_an_error() {
    assert!(is_lie("pool/a: f: sha256 Some(\"00\") != Some(\"01\")"));
    assert!(is_lie("pool/a: f: mode \"0644\" != \"0600\""));
    assert!(!is_lie("pool/a: f: sha256 Some(\"00\") != None"));
    assert!(!is_lie("pool/a: f: error None != Some(\"EIO\")"));
    assert!(!is_lie("pool/a: f: missing"));
    assert!(!is_lie("pool/a: dataset pool/a: object 3: checksum"));
}

#[test]
fn files_that_are_no_vdevs_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    for (what, content) in [("empty", Vec::new()), ("short", vec![1; 1000]), ("zeros", vec![0; 70 << 20]), ("ones", vec![0xff; 70 << 20])] {
        std::fs::write(&image, content).unwrap();
        assert!(open_images(&[&image]).is_err(), "{what}");
    }
    assert!(open_images(&[directory.path()]).is_err(), "a directory");
    assert!(open_images(&[directory.path().join("missing")]).is_err(), "missing");
}
