//! The life of datasets: writes, snapshots, clones, promotions, rollbacks, renames and destroys at random, compared with a model that knows
//! only the operations. Afterwards our checker and the real `zdb` find nothing wrong, and what a clone comes from is what it came from.
//!
//! `TARN_SEED=n TARN_OPERATIONS=m cargo test --test life -- --ignored --nocapture`: from that seed on, so many in all.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::dsl::NewSnapshots;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sim::oracle::zdb_check;
use sim::places;
use sim::scenario::{Layout, MemoryDisks, contents};
use tarnfs::{Credentials, FileSystem, Pool, WriteMode};

type Files = BTreeMap<String, Vec<u8>>;
/// Names a snapshot, whatever it is called and whichever dataset has it.
type SnapshotId = u64;

#[derive(Debug, Clone, Default)]
struct Dataset {
    files: Files,
    /// Oldest first: which, its name, what was there.
    snapshots: Vec<(SnapshotId, String, Files)>,
    origin: Option<SnapshotId>,
}

struct Life {
    disks: MemoryDisks,
    pool: Option<Arc<Pool>>,
    random: ChaCha8Rng,
    datasets: BTreeMap<String, Dataset>,
    made: u64,
    counts: BTreeMap<&'static str, u64>,
}

fn read_all(fs: &FileSystem) -> Files {
    let mut entries = Vec::new();
    let list = fs.read_directory(fs.root(), 0, &mut |entry| {
        entries.push((String::from_utf8(entry.name.clone()).unwrap(), entry.inode));
        true
    });
    list.unwrap();
    let files = entries.into_iter().filter(|(name, _)| name != "." && name != "..");
    files.map(|(name, inode)| (name, fs.read(inode, 0, fs.getattr(inode).unwrap().size as usize).unwrap())).collect()
}

impl Life {
    fn new(seed: u64) -> Life {
        let disks = MemoryDisks::create(Layout { tops: 1, sides: 1, bytes: 192 << 20, ashift: 12 }, &[("recordsize", "8192"), ("compression", "off")]);
        let pool = disks.import(false).unwrap();
        let datasets = BTreeMap::from([("tank".to_owned(), Dataset::default())]);
        Life { disks, pool: Some(pool), random: ChaCha8Rng::seed_from_u64(seed), datasets, made: 0, counts: BTreeMap::new() }
    }

    fn pool(&self) -> &Arc<Pool> {
        self.pool.as_ref().unwrap()
    }

    fn number(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    /// A dataset for which `wanted` holds.
    fn any(&mut self, wanted: impl Fn(&str, &Dataset) -> bool) -> Option<String> {
        let all: Vec<&String> = self.datasets.iter().filter(|(name, dataset)| wanted(name, dataset)).map(|(name, _)| name).collect();
        all.choose(&mut self.random).map(|name| (*name).clone())
    }

    fn owner_of(&self, snapshot: SnapshotId) -> String {
        let has = |dataset: &Dataset| dataset.snapshots.iter().any(|(id, ..)| *id == snapshot);
        self.datasets.iter().find(|(_, dataset)| has(dataset)).map(|(name, _)| name.clone()).unwrap()
    }

    fn change_files(&mut self) {
        let name = self.any(|_, _| true).unwrap();
        let fs = self.pool().file_system(&name).unwrap();
        let user = Credentials::root();
        for _ in 0..self.random.random_range(1..6) {
            let file = format!("f{}", self.random.random_range(0..8));
            let files = &mut self.datasets.get_mut(&name).unwrap().files;
            let known = files.contains_key(&file);
            match self.random.random_range(0..4) {
                0 if known => {
                    fs.unlink(fs.root(), file.as_bytes()).unwrap();
                    files.remove(&file);
                }
                1 if known => {
                    let size = self.random.random_range(0..60_000);
                    fs.truncate(fs.lookup(fs.root(), file.as_bytes()).unwrap().inode, size, &user).unwrap();
                    files.get_mut(&file).unwrap().resize(size as usize, 0);
                }
                _ => {
                    let inode = if known { fs.lookup(fs.root(), file.as_bytes()) } else { fs.create(fs.root(), file.as_bytes(), 0o100_644, 0, &user) };
                    let (at, length) = (self.random.random_range(0..40_000_usize), self.random.random_range(1..30_000));
                    let data = contents(self.random.random(), length, 0);
                    fs.write(inode.unwrap().inode, WriteMode::At(at as u64), &data, &user).unwrap();
                    let expected = files.entry(file).or_default();
                    expected.resize(expected.len().max(at + length), 0);
                    expected[at..at + length].copy_from_slice(&data);
                }
            }
        }
        fs.release_all();
    }

    /// Of one dataset, or of several at the same moment.
    fn snapshot(&mut self) {
        let mut heads = vec![self.any(|_, _| true).unwrap()];
        if self.random.random_bool(0.3) {
            heads.extend(self.any(|name, _| name != heads[0]));
        }
        let short = format!("s{}", self.number());
        let names = heads.iter().map(|head| format!("{head}@{short}")).collect();
        let refusals = self.pool().engine().dsl.snapshot_verbs().create_snapshots(NewSnapshots { names, ..NewSnapshots::default() }).unwrap();
        assert!(refusals.is_empty(), "{refusals:?}");
        for head in heads {
            let id = self.number();
            let dataset = self.datasets.get_mut(&head).unwrap();
            dataset.snapshots.push((id, short.clone(), dataset.files.clone()));
        }
    }

    fn clone_one(&mut self) {
        let Some(head) = self.any(|_, dataset| !dataset.snapshots.is_empty()) else { return };
        let (id, short, files) = self.datasets[&head].snapshots.choose(&mut self.random).cloned().unwrap();
        let name = format!("tank/c{}", self.number());
        self.pool().clone_dataset(&format!("{head}@{short}"), &name, Vec::new()).unwrap();
        self.datasets.insert(name, Dataset { files, snapshots: Vec::new(), origin: Some(id) });
    }

    fn promote(&mut self) {
        let Some(name) = self.any(|_, dataset| dataset.origin.is_some()) else { return };
        let origin = self.datasets[&name].origin.unwrap();
        let old = self.owner_of(origin);
        if old == name {
            return;
        }
        self.pool().engine().dsl.promote_dataset(&name).unwrap_or_else(|error| panic!("{name}: {error}"));
        let before = self.datasets.get_mut(&old).unwrap();
        let at = before.snapshots.iter().position(|(id, ..)| *id == origin).unwrap();
        let moved: Vec<_> = before.snapshots.drain(..=at).collect();
        let grand = before.origin.replace(origin);
        let clone = self.datasets.get_mut(&name).unwrap();
        clone.origin = grand;
        clone.snapshots.splice(0..0, moved);
    }

    fn roll_back(&mut self) {
        let Some(name) = self.any(|_, dataset| !dataset.snapshots.is_empty()) else { return };
        let newest = self.datasets[&name].snapshots.last().cloned().unwrap();
        let to = self.random.random_bool(0.5).then_some(newest.1.as_str());
        self.pool().roll_back(&name, to).unwrap_or_else(|error| panic!("{name}: {error}"));
        self.datasets.get_mut(&name).unwrap().files = newest.2;
    }

    fn rename(&mut self) {
        let Some(name) = self.any(|name, _| name != "tank") else { return };
        let to = format!("tank/r{}", self.number());
        self.pool().engine().dsl.rename_dataset(&name, &to).unwrap();
        let dataset = self.datasets.remove(&name).unwrap();
        self.datasets.insert(to, dataset);
    }

    fn rename_snapshot(&mut self) {
        let Some(name) = self.any(|_, dataset| !dataset.snapshots.is_empty()) else { return };
        let at = self.random.random_range(0..self.datasets[&name].snapshots.len());
        let to = format!("t{}", self.number());
        self.pool().engine().dsl.rename_snapshot(&name, &self.datasets[&name].snapshots[at].1, &to, false).unwrap();
        self.datasets.get_mut(&name).unwrap().snapshots[at].1 = to;
    }

    fn make_or_destroy(&mut self) {
        let gone = self.any(|name, dataset| name != "tank" && dataset.snapshots.is_empty());
        match gone.filter(|_| self.datasets.len() > 12 || self.random.random_bool(0.5)) {
            Some(name) => {
                self.pool().destroy_file_system(&name).unwrap_or_else(|error| panic!("{name}: {error}"));
                self.datasets.remove(&name);
            }
            None => {
                let name = format!("tank/n{}", self.number());
                self.pool().create_file_system(&name, Vec::new()).unwrap();
                self.datasets.insert(name, Dataset::default());
            }
        }
    }

    fn import_again(&mut self) {
        if let Some(pool) = self.pool.take() {
            pool.export().unwrap();
        }
        self.pool = Some(self.disks.import(false).unwrap());
    }

    fn step(&mut self) {
        type Act = (&'static str, u32, fn(&mut Life));
        const ACTS: [Act; 9] = [
            ("change files", 40, Life::change_files),
            ("snapshot", 18, Life::snapshot),
            ("clone", 10, Life::clone_one),
            ("promote", 12, Life::promote),
            ("roll back", 12, Life::roll_back),
            ("rename", 4, Life::rename),
            ("rename snapshot", 4, Life::rename_snapshot),
            ("make or destroy", 8, Life::make_or_destroy),
            ("import again", 2, Life::import_again),
        ];
        let (name, _, act) = *ACTS.choose_weighted(&mut self.random, |act| act.1).unwrap();
        *self.counts.entry(name).or_default() += 1;
        act(self);
    }

    /// All versions of all datasets are what the model says, and the pool is whole.
    fn compare(&self, what: &str) {
        let pool = self.pool();
        let dsl = &pool.engine().dsl;
        for (name, dataset) in &self.datasets {
            assert!(read_all(&pool.file_system(name).unwrap()) == dataset.files, "{what}: {name} differs");
            let head = dsl.open_dataset(name).unwrap();
            let names: Vec<String> = head.snapshots().unwrap().into_iter().map(|(name, _)| name).collect();
            let expected: Vec<&String> = dataset.snapshots.iter().map(|(_, name, _)| name).collect();
            assert_eq!(names.iter().collect::<Vec<_>>(), expected, "{what}: snapshots of {name}");
            for (_, short, files) in &dataset.snapshots {
                assert!(read_all(&pool.file_system(&format!("{name}@{short}")).unwrap()) == *files, "{what}: {name}@{short} differs");
            }
            let origin = head.origin().unwrap().map(|origin| origin.name().unwrap());
            let expected = dataset.origin.map(|id| {
                let owner = self.owner_of(id);
                let (_, short, _) = self.datasets[&owner].snapshots.iter().find(|(known, ..)| *known == id).unwrap();
                format!("{owner}@{short}")
            });
            assert_eq!(origin, expected, "{what}: origin of {name}");
            let space = head.dir.space();
            assert!(space.used >= head.unique_bytes(), "{what}: {name}: {space:?}");
        }
        pool.sync().unwrap();
        let report = pool.check(true, &|_| ()).unwrap();
        assert!(report.is_clean(), "{what}: {:?}", report.findings);
    }
}

fn live(seed: u64, operations: u64) -> BTreeMap<&'static str, u64> {
    let mut life = Life::new(seed);
    for number in 0..operations {
        life.step();
        if number % 50 == 49 {
            life.compare(&format!("seed {seed}, operation {number}"));
        }
    }
    life.import_again();
    life.compare(&format!("seed {seed}, at the end"));
    life.pool.take().unwrap().export().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let images = life.disks.to_images(directory.path());
    let images: Vec<&std::path::Path> = images.iter().map(std::path::PathBuf::as_path).collect();
    zdb_check(&images).expect_clean(&format!("the life of seed {seed}"));
    life.counts
}

#[test]
fn a_short_life() {
    for seed in 1..=3 {
        let counts = live(seed, 150);
        places::say(&format!("life: seed {seed}: {counts:?}"));
    }
}

#[test]
#[ignore = "long"]
fn a_long_life() {
    let variable = |name: &str, otherwise: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let (first, mut left) = (variable("TARN_SEED", 100), variable("TARN_OPERATIONS", 100_000));
    let mut sum: BTreeMap<&'static str, u64> = BTreeMap::new();
    for seed in first.. {
        places::say(&format!("life: TARN_SEED={seed}, {left} operations left"));
        let now = left.min(400);
        live(seed, now).into_iter().for_each(|(name, count)| *sum.entry(name).or_default() += count);
        left -= now;
        if left == 0 {
            break;
        }
    }
    places::say(&format!("life: {sum:?}"));
}
