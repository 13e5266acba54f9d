//! The daemon is killed at random moments, again and again, on one pool.
//!
//! # Theory
//! Programs work on the mounted pool and write into a journal, on the host's own file system, what they begin and what
//! was acknowledged ([`journal`]). When the daemon is killed their calls fail and they end. The images must satisfy our
//! checker and the real `zdb`; then the pool is imported again and looked at ([`verdict`]): what an acknowledged `fsync`
//! covers is there, names and attributes are those after a prefix of what each thread did, the prefixes fit together,
//! and every record of every file is one that was written there.

mod journal;
mod verdict;
mod work;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::rig::{LIMIT, Rig, has_program, wait_for};
use journal::{Journal, Record, fill};

/// Processes that work, and threads of each.
const PROCESSES: u64 = 2;
pub(crate) const THREADS: u64 = 2;
/// Records of a file in `keep`.
const KEPT_RECORDS: u64 = 300;

/// One pool and its kills.
struct Campaign {
    rig: Rig,
    seed: u64,
    random: ChaCha8Rng,
    images: Vec<String>,
    /// Datasets that must be there, and those of which nobody knows.
    datasets: BTreeSet<String>,
    doubtful: BTreeSet<String>,
    kept: u64,
    /// Objects of the empty file system.
    objects_at_first: u64,
    totals: verdict::Totals,
}

impl Campaign {
    fn new(rig: Rig, seed: u64) -> Campaign {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let images: Vec<String> = (0..random.random_range(1..3)).map(|number| format!("disk{number}.img")).collect();
        let paths: Vec<String> = images.iter().map(|name| rig.image(name, 640 << 20)).collect();
        rig.ok(&format!("zpool create -m @mnt -o ashift={} tank {}", random.random_range(9..14), paths.join(" ")));
        let mut campaign = Campaign {
            rig,
            seed,
            random,
            images,
            datasets: BTreeSet::new(),
            doubtful: BTreeSet::new(),
            kept: 0,
            objects_at_first: 0,
            totals: verdict::Totals::default(),
        };
        fs::create_dir(campaign.mount().join("keep")).unwrap();
        campaign.rig.ok("zpool sync tank");
        campaign.objects_at_first = campaign.objects() - walk(&campaign.mount());
        campaign
    }

    fn mount(&self) -> PathBuf {
        self.rig.path("mnt")
    }

    /// Objects in use in the root file system, as `df -i` has them.
    fn objects(&self) -> u64 {
        let space = rustix::fs::statvfs(self.mount()).unwrap();
        space.f_files - space.f_ffree
    }

    fn judge_images(&self, what: &str) {
        eprintln!("{what}: the images");
        self.rig.check("tank");
        let images: Vec<&str> = self.images.iter().map(String::as_str).collect();
        self.rig.zdb(&images);
    }

    fn import(&self) {
        self.rig.ok("zpool import -d @ tank");
    }

    /// One round of work and a kill.
    fn round(&mut self, number: u64) {
        let what = format!("seed {} round {number}", self.seed);
        let directory = self.mount().join(format!("r{number}"));
        fs::create_dir(&directory).unwrap();
        let journal = Journal::create(&self.rig.path(&format!("journal{number}")));
        let mut workers = self.start_workers(&directory, &journal);
        let ending = AtomicBool::new(false);
        let millis = if self.random.random_ratio(1, 4) { self.random.random_range(0..6000) } else { self.random.random_range(20..1500) };
        let how = self.random.random_range(0..8);
        let admin_seed = self.random.random();
        let (rig, mount) = (&self.rig, self.mount());
        let (datasets, doubtful) = (&mut self.datasets, &mut self.doubtful);
        thread::scope(|scope| {
            let (ending, journal) = (&ending, &journal);
            scope.spawn(move || work::administer(rig, admin_seed, ending, datasets, doubtful));
            // Long lists of frees are on their way too.
            let old = mount.join(format!("r{}", number.saturating_sub(2)));
            scope.spawn(move || if number >= 2 { drop(fs::remove_dir_all(old)) });
            thread::sleep(Duration::from_millis(millis));
            journal.kill_follows();
            if how == 0 {
                // The daemon is busy with the export when it dies.
                let mut export = rig.start("zpool export -f tank");
                thread::sleep(Duration::from_millis(millis % 200));
                rig.kill();
                let _ = wait_for(&mut export, LIMIT);
            }
            ending.store(true, Ordering::SeqCst);
            rig.kill();
        });
        for (name, worker) in &mut workers {
            let status = wait_for(worker, LIMIT);
            assert!(status.is_some(), "{what}: {name} hangs");
        }
        self.after_the_kill(number, &what);
        let found = verdict::judge(&directory, &journal, &what);
        self.totals.add(&found);
        self.judge_the_rest(&what);
        fs::remove_file(journal.path()).unwrap();
    }

    /// The images as the kill left them; sometimes more kills while the pool is imported; the import that stays.
    fn after_the_kill(&mut self, number: u64, what: &str) {
        // Otherwise the import finds the dead mount and clears it.
        if self.random.random() {
            self.rig.unmount_all();
        }
        self.judge_images(what);
        if self.random.random_ratio(1, 3) {
            let mut import = self.rig.start("zpool import -d @ tank");
            let delay = Duration::from_millis(self.random.random_range(0..400));
            let begin = Instant::now();
            while begin.elapsed() < delay || self.rig.find_daemon().is_none() {
                thread::sleep(Duration::from_millis(1));
                if wait_for(&mut import, Duration::ZERO).is_some() {
                    break;
                }
            }
            self.rig.kill();
            assert!(wait_for(&mut import, LIMIT).is_some(), "{what}: import hangs");
            self.rig.unmount_all();
            self.judge_images(&format!("{what}, killed while importing"));
        }
        self.import();
        if number.is_multiple_of(7) {
            // What replaces the dead daemon exports in order, too.
            self.rig.ok("zpool export tank");
            self.judge_images(&format!("{what}, exported"));
            self.import();
        }
    }

    /// What is not the round's own: kept files, datasets, the number of objects.
    fn judge_the_rest(&mut self, what: &str) {
        let keep = self.mount().join("keep");
        for number in 0..self.kept {
            let bytes = fs::read(keep.join(number.to_string())).unwrap_or_else(|error| panic!("{what}: kept file {number}: {error}"));
            assert!(bytes == fill(number, 2 * number + 1, 0, KEPT_RECORDS), "{what}: kept file {number} has changed");
        }
        let path = keep.join(self.kept.to_string());
        fs::write(&path, fill(self.kept, 2 * self.kept + 1, 0, KEPT_RECORDS)).unwrap();
        fs::File::open(&path).unwrap().sync_all().unwrap();
        self.kept += 1;
        let listed: BTreeSet<String> = self.rig.ok("zfs list -H -o name -r tank").lines().skip(1).map(str::to_owned).collect();
        let missing: Vec<&String> = self.datasets.difference(&listed).collect();
        assert!(missing.is_empty(), "{what}: datasets that were made are gone: {missing:?}");
        let extra: Vec<&String> = listed.difference(&self.datasets).filter(|name| !self.doubtful.contains(*name)).collect();
        assert!(extra.is_empty(), "{what}: datasets that were destroyed are back: {extra:?}");
        for name in &listed {
            self.rig.ok(&format!("zfs destroy {name}"));
        }
        self.datasets.clear();
        self.doubtful.clear();
        // Files that were removed while they were open are freed by the import, after it or in it.
        let begin = Instant::now();
        loop {
            let (counted, walked) = (self.objects(), self.objects_at_first + walk(&self.mount()));
            if counted == walked {
                break;
            }
            assert!(begin.elapsed() < LIMIT, "{what}: {counted} objects in use, {walked} can be reached: the unlinked set is not empty");
            self.rig.ok("zpool sync tank");
        }
    }

    fn start_workers(&mut self, directory: &Path, journal: &Journal) -> Vec<(String, Child)> {
        let mut workers = Vec::new();
        for process in 0..PROCESSES {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "kill::work::worker", "--ignored", "--nocapture"]);
            command.env("KILL_WORKER", process.to_string()).env("KILL_SEED", self.random.random::<u64>().to_string());
            workers.push((format!("worker {process}"), command));
        }
        if has_program("python3") {
            let mut command = Command::new("python3");
            command.args(["-c", work::MAPPER]).env("KILL_WORKER", (PROCESSES * THREADS).to_string());
            workers.push(("mapper".to_owned(), command));
        }
        let start = |(name, mut command): (String, Command)| {
            command.env("KILL_DIRECTORY", directory).env("KILL_JOURNAL", journal.path()).process_group(0);
            let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            (name, child)
        };
        workers.into_iter().map(start).collect()
    }

    fn finish(self) {
        fs::remove_dir_all(self.mount().join("keep")).unwrap();
        self.rig.ok("zpool export tank");
        self.judge_images(&format!("seed {} at the end", self.seed));
        sim::places::say(&format!("kills, seed {}: {}", self.seed, self.totals));
    }
}

/// Inodes that can be reached below `directory`, the directory itself included.
fn walk(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let mut inodes = BTreeSet::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(path) = waiting.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        inodes.insert(metadata.ino());
        if metadata.is_dir() {
            waiting.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    inodes.len() as u64
}

fn campaign(seed: u64, kills: u64) {
    let Some(rig) = Rig::new() else { return };
    let mut campaign = Campaign::new(rig, seed);
    for number in 0..kills {
        campaign.round(number);
    }
    let made = campaign.totals.acknowledged;
    assert!(made > kills, "{made} operations in {kills} rounds: nothing was tested");
    campaign.finish();
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: not a number")))
}

#[test]
fn three_kills() {
    campaign(1, 3);
}

/// The long form: `KILLS` rounds from `SEED`.
#[test]
#[ignore = "long: KILLS=n SEED=s"]
fn many_kills() {
    let (kills, seed) = (number("KILLS", 50), number("SEED", 1));
    sim::places::say(&format!("KILLS={kills} SEED={seed} cargo test --release -p cli --test it many_kills -- --ignored --nocapture"));
    campaign(seed, kills);
}

/// The judge must see what is wrong, or it judges nothing.
#[test]
fn the_judge_sees_damage() {
    verdict::canary();
    assert_eq!(fill(7, 3, 5, 2).len(), 2 * Record::BYTES);
}
