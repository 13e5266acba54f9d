//! The life of datasets: everything that can be done with them, at random, compared with a model that knows only the verbs (`sim::life`).
//! Our checker looks at each life now and then, and the real `zdb` at its end.
//!
//! `TARN_SEED=n TARN_OPERATIONS=m cargo test -p sim --test life -- --ignored --nocapture`: lives from that seed on, so many verbs in all.
//! `TARN_EVERY=k`: everything is compared after every k verbs.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sim::life::{Guids, Limits, Tree, Verb, compare, perform, random_verb};
use sim::oracle::{zdb_check, zdb_check_metadata};
use sim::places;
use sim::scenario::{Layout, MemoryDisks};
use tarnfs::Pool;

/// Verbs of one life.
const OF_EACH: u64 = 400;
/// Lives that fail until it is enough.
const FAILURES_MAX: usize = 5;
/// Verbs that are told when one fails.
const TOLD: usize = 12;
const LIMITS: Limits = Limits { datasets: 12, snapshots: 60, file_bytes: 60_000, files: 8 };
/// Groups in which all that was destroyed comes free.
const GROUPS_MAX: usize = 500;

/// The pools of the lives, in turn.
const KINDS: [&[(&str, &str)]; 4] = [
    &[("recordsize", "8192"), ("compression", "off"), ("atime", "off"), ("xattr", "sa")],
    &[("recordsize", "131072"), ("compression", "lz4"), ("atime", "off"), ("xattr", "sa")],
    &[("recordsize", "1024"), ("compression", "off"), ("atime", "off"), ("dnodesize", "1k"), ("xattr", "sa")],
    &[("recordsize", "16384"), ("compression", "zstd"), ("atime", "off"), ("copies", "2"), ("xattr", "on")],
];

type Counts = BTreeMap<&'static str, (u64, u64)>;

struct Life {
    seed: u64,
    disks: MemoryDisks,
    pool: Option<Arc<Pool>>,
    dice: ChaCha8Rng,
    tree: Tree,
    guids: Guids,
    /// Done, and refused.
    counts: Counts,
    done: Vec<Verb>,
}

impl Life {
    fn new(seed: u64) -> Life {
        let ashift = if seed.is_multiple_of(3) { 12 } else { 9 };
        let disks = MemoryDisks::create(Layout { tops: 1, sides: 1, parity: 0, bytes: 256 << 20, ashift }, KINDS[(seed % 4) as usize]);
        let pool = Some(disks.import(false).expect("the new pool"));
        let (dice, tree) = (ChaCha8Rng::seed_from_u64(seed), Tree::new("tank"));
        Life { seed, disks, pool, dice, tree, guids: Guids::new(), counts: Counts::new(), done: Vec::new() }
    }

    fn pool(&self) -> &Arc<Pool> {
        self.pool.as_ref().expect("the pool is imported")
    }

    /// Exported and imported, or gone without a word and imported.
    fn import_again(&mut self) {
        let pool = self.pool.take().expect("the pool is imported");
        if self.dice.random() {
            pool.export().expect("an export");
        } else {
            pool.sync().expect("a sync");
            pool.abandon();
        }
        drop(pool);
        self.pool = Some(self.disks.import_as(self.dice.random(), false).expect("an import"));
        self.counts.entry("import again").or_default().0 += 1;
    }

    fn step(&mut self) {
        if self.dice.random_range(0..50) == 0 {
            self.import_again();
            return;
        }
        let verb = random_verb(&self.tree, &mut self.dice, LIMITS);
        self.done.push(verb.clone());
        let mut tree = self.tree.clone();
        let expected = tree.apply(&verb);
        let found = perform(self.pool(), &verb);
        let kind = found.as_ref().map(|()| ()).map_err(tarnfs::Error::kind);
        assert_eq!(kind, expected, "{found:?}");
        let count = self.counts.entry(verb.name()).or_default();
        match expected {
            Ok(()) => {
                self.tree = tree;
                count.0 += 1;
            }
            Err(_) => count.1 += 1,
        }
    }

    fn compare(&mut self) {
        let pool = self.pool.clone().expect("the pool is imported");
        pool.sync().expect("a sync");
        compare(&pool, &self.tree, &mut self.guids, false).unwrap_or_else(|reason| panic!("{reason}"));
        let report = pool.check(true, &|_| ()).expect("a check");
        assert!(report.is_clean(), "{:?}", report.findings);
    }

    fn end(&mut self, with_zdb: bool) {
        self.import_again();
        for _ in 0..GROUPS_MAX {
            if !self.pool().engine().dsl.has_background_frees().expect("the list of frees") {
                break;
            }
            self.pool().sync().expect("a sync");
        }
        assert!(!self.pool().engine().dsl.has_background_frees().expect("the list of frees"), "freeing has no end");
        self.compare();
        self.pool.take().expect("the pool is imported").export().expect("an export");
        let directory = tempfile::tempdir().expect("a directory");
        let images = self.disks.to_images(directory.path());
        let images: Vec<&Path> = images.iter().map(PathBuf::as_path).collect();
        let what = format!("the life of seed {}", self.seed);
        if with_zdb { zdb_check(&images) } else { zdb_check_metadata(&images) }.expect_clean(&what);
    }
}

fn live(seed: u64, verbs: u64, with_zdb: bool) -> Counts {
    let every: u64 = variable("TARN_EVERY", 25);
    let mut life = Life::new(seed);
    for number in 0..=verbs {
        let one = AssertUnwindSafe(|| match number {
            _ if number == verbs => life.end(with_zdb),
            _ => {
                life.step();
                if number % every == every - 1 {
                    life.compare();
                }
            }
        });
        if let Err(panic) = catch_unwind(one) {
            let told = &life.done[life.done.len().saturating_sub(TOLD)..];
            let told: String = told.iter().map(|verb| format!("\n    {verb:?}")).collect();
            let again = format!("TARN_SEED={seed} TARN_OPERATIONS={} TARN_EVERY={every} cargo test -p sim --test life a_long -- --ignored --nocapture", (number + 1).min(verbs));
            places::say(&format!("life: seed {seed}, verb {number} failed, after these:{told}\n  again: {again}"));
            resume_unwind(panic);
        }
    }
    life.counts
}

fn variable(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn add(sum: &mut Counts, counts: Counts) {
    for (name, (done, refused)) in counts {
        let entry = sum.entry(name).or_default();
        *entry = (entry.0 + done, entry.1 + refused);
    }
}

#[test]
fn short_lives() {
    let mut sum = Counts::new();
    for seed in 1..=4 {
        add(&mut sum, live(seed, 120, true));
    }
    let verbs: u64 = sum.values().map(|(done, refused)| done + refused).sum();
    places::say(&format!("life: {verbs} verbs, done and refused: {sum:?}"));
    assert!(sum.len() >= 18, "a verb is never tried: {sum:?}");
}

#[test]
#[ignore = "long"]
fn a_long_life() {
    let (first, mut left) = (variable("TARN_SEED", 100), variable("TARN_OPERATIONS", 100_000));
    let (mut sum, mut failed) = (Counts::new(), Vec::new());
    for seed in first.. {
        let now = left.min(OF_EACH);
        match catch_unwind(|| live(seed, now, seed.is_multiple_of(5))) {
            Ok(counts) => add(&mut sum, counts),
            Err(_) => failed.push(seed),
        }
        left -= now;
        if seed.is_multiple_of(10) || left == 0 {
            let verbs: u64 = sum.values().map(|(done, refused)| done + refused).sum();
            places::say(&format!("life: seeds {first} to {seed}: {verbs} verbs, done and refused: {sum:?}"));
        }
        if left == 0 || failed.len() >= FAILURES_MAX {
            break;
        }
    }
    assert!(failed.is_empty(), "the lives of seeds {failed:?} failed");
}
