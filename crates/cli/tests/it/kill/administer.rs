//! What an administrator does to the pool while its daemon is killed.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::journal::{Journal, Op, fill};
use super::ADMINISTRATOR;
use crate::durable::is_on_block_device;
use crate::rig::Rig;

/// Records of the file in each dataset.
const RECORDS: u64 = 40;

/// Datasets that must be there, with the file in them, and those of which nobody knows.
#[derive(Debug, Default)]
pub(super) struct Datasets {
    pub(super) made: BTreeSet<String>,
    pub(super) doubtful: BTreeSet<String>,
    count: u64,
}

/// What the file of dataset `number` has in it.
fn contents(number: u64) -> Vec<u8> {
    fill(number, 1, 0, RECORDS)
}

/// The root of our mount, if `syncfs` waits for us there.
fn durable_root(mount: &Path) -> Option<File> {
    let root = File::open(mount).ok().filter(|_| is_on_block_device(mount))?;
    // Not that of what is below, if it was unmounted meanwhile.
    let is_mounted = root.metadata().ok()?.dev() != fs::metadata(mount.parent()?).ok()?.dev();
    is_mounted.then_some(root)
}

impl Datasets {
    /// Compares the pool's datasets with what must be there, and destroys them all.
    pub(super) fn judge(&mut self, rig: &Rig, mount: &Path, what: &str) {
        let listed: BTreeSet<String> = rig.ok("zfs list -H -o name -r tank").lines().skip(1).map(str::to_owned).collect();
        let missing: Vec<&String> = self.made.difference(&listed).collect();
        assert!(missing.is_empty(), "{what}: datasets that were made are gone: {missing:?}");
        let extra: Vec<&String> = listed.difference(&self.made).filter(|name| !self.doubtful.contains(*name)).collect();
        assert!(extra.is_empty(), "{what}: datasets that were destroyed are back: {extra:?}");
        for name in &self.made {
            let number = name.trim_start_matches("tank/c").parse().unwrap();
            let found = fs::read(mount.join(format!("c{number}/file"))).unwrap_or_else(|error| panic!("{what}: {name}: its file: {error}"));
            assert!(found == contents(number), "{what}: {name}: its file is not what was synced");
        }
        for name in &listed {
            rig.ok(&format!("zfs destroy {name}"));
        }
        self.made.clear();
        self.doubtful.clear();
    }

    /// Administrative verbs, until `ending`.
    pub(super) fn administer(&mut self, rig: &Rig, mount: &Path, journal: &Journal, seed: u64, ending: &AtomicBool) {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        while !ending.load(Ordering::SeqCst) {
            match random.random_range(0..6) {
                0 => self.create(rig, mount),
                1 => {
                    if let Some(name) = self.made.pop_first() {
                        self.doubtful.insert(name.clone());
                        if run(rig, &format!("zfs destroy {name}")) {
                            self.doubtful.remove(&name);
                        }
                    }
                }
                2 => {
                    let compression = ["off", "lz4", "zstd-1", "gzip-1", "lzjb", "zle"][random.random_range(0..6)];
                    run(rig, &format!("zfs set compression={compression} tank"));
                }
                3 => {
                    let size = ["4K", "16K", "128K", "1M"][random.random_range(0..4)];
                    run(rig, &format!("zfs set recordsize={size} tank"));
                }
                4 => {
                    // All that is journaled is in this one file system.
                    let root = if random.random_bool(0.5) { durable_root(mount) } else { None };
                    journal.begin(ADMINISTRATOR, &Op::SyncPool);
                    let synced = root.map_or_else(|| run(rig, "zpool sync tank"), |root| rustix::fs::syncfs(&root).is_ok());
                    if synced {
                        journal.done(ADMINISTRATOR, 0);
                    }
                }
                _ => {
                    run(rig, &format!("zfs set checksum={} tank", ["on", "sha256", "blake3"][random.random_range(0..3)]));
                }
            }
            thread::sleep(Duration::from_millis(random.random_range(0..150)));
        }
    }

    /// A dataset with a file that is synced.
    fn create(&mut self, rig: &Rig, mount: &Path) {
        self.count += 1;
        let number = self.count;
        let name = format!("tank/c{number}");
        self.doubtful.insert(name.clone());
        if !run(rig, &format!("zfs create {name}")) {
            return;
        }
        let path = mount.join(format!("c{number}/file"));
        if fs::write(&path, contents(number)).and_then(|()| File::open(&path)?.sync_all()).is_ok() {
            self.doubtful.remove(&name);
            self.made.insert(name);
        }
    }
}

/// Runs a command that may fail only because of the kill.
fn run(rig: &Rig, words: &str) -> bool {
    let ran = rig.run(words);
    let expected = ["cannot be reached", "no such pool", "does not exist", "is busy", "no pools available"];
    let is_killed = ran.code == 0 || expected.iter().any(|reason| ran.err.contains(reason));
    assert!(is_killed, "tarn {words}: {ran:?}");
    ran.code == 0
}
