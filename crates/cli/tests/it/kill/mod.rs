//! The daemon is killed at random moments, again and again, on one pool.
//!
//! # Theory
//! Programs work on the mounted pool and write into a journal, on the host's own file system, what they begin and what
//! was acknowledged ([`journal`]). When the daemon is killed their calls fail and they end. The images must satisfy our
//! checker and the real `zdb`; then the pool is imported again and looked at ([`verdict`]): what an acknowledged `fsync`
//! covers is there, names and attributes are those after a prefix of what each thread did, the prefixes fit together,
//! and every record of every file is one that was written there.

mod administer;
mod contents;
mod journal;
mod names;
mod promises;
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
use administer::Datasets;
use journal::{Journal, Record, fill};

/// Processes that work, and threads of each.
const PROCESSES: u64 = 2;
pub(crate) const THREADS: u64 = 2;
/// The thread that writes through a mapping, and the one with the administrative verbs.
const MAPPER: u64 = PROCESSES * THREADS;
const ADMINISTRATOR: u64 = MAPPER + 1;
/// Records of a file in `keep`.
const KEPT_RECORDS: u64 = 300;

/// One pool and its kills.
struct Campaign {
    rig: Rig,
    seed: u64,
    random: ChaCha8Rng,
    images: Vec<String>,
    datasets: Datasets,
    pace: Pace,
    kept: u64,
    /// Objects of the empty file system.
    objects_at_first: u64,
    totals: verdict::Totals,
    /// How often the images were looked at.
    judged: u64,
}

impl Campaign {
    fn new(rig: Rig, seed: u64, pace: Pace) -> Campaign {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let images: Vec<String> = (0..random.random_range(1..4)).map(|number| format!("disk{number}.img")).collect();
        let paths: Vec<String> = images.iter().map(|name| rig.image(name, 640 << 20)).collect();
        let layout = if paths.len() > 1 { ["", "mirror", "raidz1"][random.random_range(0..3)] } else { "" };
        rig.ok(&format!("zpool create -m @mnt -o ashift={} tank {layout} {}", random.random_range(9..14), paths.join(" ")));
        let mut campaign = Campaign {
            rig,
            seed,
            random,
            images,
            datasets: Datasets::default(),
            pace,
            kept: 0,
            objects_at_first: 0,
            totals: verdict::Totals::default(),
            judged: 0,
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

    /// `killed`: perhaps while labels were being written.
    fn judge_images(&mut self, what: &str, killed: bool) {
        self.judged += 1;
        for name in &self.images {
            let path = self.rig.path(name);
            assert!(path.exists(), "{what}: {} is gone: somebody else removed it (clean temporary directories when no test runs, or set TMPDIR)", path.display());
        }
        let with_zdb = self.judged.is_multiple_of(self.pace.zdb_every);
        eprintln!("{what}: the images{}", if with_zdb { ", with zdb" } else { "" });
        self.rig.check("tank");
        if with_zdb {
            let images: Vec<&str> = self.images.iter().map(String::as_str).collect();
            if killed { self.rig.zdb_after_kill(&images) } else { self.rig.zdb(&images) }
            self.keep(what);
        }
    }

    /// With `KILL_KEEP=DIR`, what `zdb` has seen is kept for the real kernel module (`cargo xtask oracle vm DIR`).
    fn keep(&self, what: &str) {
        let Some(place) = std::env::var_os("KILL_KEEP") else { return };
        let place = Path::new(&place).join(what.replace([' ', ','], "-"));
        fs::create_dir_all(&place).unwrap();
        let images = self.images.iter().map(|name| self.rig.path(name));
        let copied = Command::new("cp").arg("--sparse=always").args(images).arg(&place).status();
        assert!(copied.is_ok_and(|status| status.success()), "copying to {}", place.display());
    }

    fn import(&self) {
        self.rig.ok("zpool import -d @ tank");
        // The end of the intent log, a block that was never written, was once counted as an error of its device.
        let status = self.rig.ok("zpool status tank");
        let rows: Vec<&str> = status.lines().filter(|line| line.contains(" ONLINE ")).collect();
        assert!(!rows.is_empty() && rows.iter().all(|row| row.ends_with("0     0     0")), "{status}");
    }

    /// One round of work and a kill.
    fn round(&mut self, number: u64) {
        let what = format!("seed {} round {number}", self.seed);
        let directory = self.mount().join(format!("r{number}"));
        fs::create_dir(&directory).unwrap();
        let journal = Journal::create(&self.rig.path(&format!("journal{number}")));
        let mut workers = self.start_workers(&directory, &journal);
        let ending = AtomicBool::new(false);
        let longest = if self.random.random_ratio(1, 4) { 4 * self.pace.millis } else { self.pace.millis };
        let millis = self.random.random_range(0..longest);
        let how = self.random.random_range(0..8);
        let admin_seed = self.random.random();
        let (rig, mount) = (&self.rig, self.mount());
        let datasets = &mut self.datasets;
        thread::scope(|scope| {
            let (ending, journal) = (&ending, &journal);
            let mounted = mount.clone();
            scope.spawn(move || datasets.administer(rig, &mounted, journal, admin_seed, ending));
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
        self.judge_images(what, true);
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
            // A command that had not asked the daemon that died starts another one, which imports the pool.
            self.rig.kill();
            self.rig.unmount_all();
            self.judge_images(&format!("{what}, killed while importing"), true);
        }
        self.import();
        if number.is_multiple_of(7) {
            // What replaces the dead daemon exports in order, too.
            self.rig.ok("zpool export tank");
            self.judge_images(&format!("{what}, exported"), false);
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
        self.datasets.judge(&self.rig, &self.rig.path("mnt"), what);
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
            command.args(["-c", work::MAPPER]).env("KILL_WORKER", MAPPER.to_string());
            workers.push(("mapper".to_owned(), command));
        }
        let start = |(name, mut command): (String, Command)| {
            command.env("KILL_DIRECTORY", directory).env("KILL_JOURNAL", journal.path()).process_group(0);
            let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            (name, child)
        };
        workers.into_iter().map(start).collect()
    }

    fn finish(mut self) {
        fs::remove_dir_all(self.mount().join("keep")).unwrap();
        self.rig.ok("zpool export tank");
        self.judge_images(&format!("seed {} at the end", self.seed), false);
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

/// How long rounds are, and how often the real `zdb` is asked.
#[derive(Debug, Clone, Copy)]
struct Pace {
    millis: u64,
    zdb_every: u64,
}

fn campaign(seed: u64, kills: u64, pace: Pace) {
    let Some(rig) = Rig::new() else { return };
    let mut campaign = Campaign::new(rig, seed, pace);
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
    campaign(1, 3, Pace { millis: 1500, zdb_every: 1 });
}

/// The long form: `KILLS` rounds, from `SEED`, a new pool every 50. `ZDB_EVERY`: how often the real `zdb` is asked.
#[test]
#[ignore = "long: KILLS=n SEED=s"]
fn many_kills() {
    let (kills, seed) = (number("KILLS", 50), number("SEED", 1));
    let pace = Pace { millis: number("MILLIS", 800), zdb_every: number("ZDB_EVERY", 8) };
    for (at, begin) in (0..kills).step_by(50).enumerate() {
        let (seed, kills) = (seed + at as u64, (kills - begin).min(50));
        sim::places::say(&format!("KILLS={kills} SEED={seed} cargo test -p cli --test it many_kills -- --ignored --nocapture"));
        campaign(seed, kills, pace);
    }
}

/// The judge must see what is wrong, or it judges nothing.
#[test]
fn the_judge_sees_damage() {
    verdict::canary();
    assert_eq!(fill(7, 3, 5, 2).len(), 2 * Record::BYTES);
}
