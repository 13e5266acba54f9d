//! A pool on disks in memory, with a clock and randomness of its own and no threads but the two that write groups, and the one that reads a
//! stream that is received and touches nothing of the pool: one thing happens at a time, the same in every run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use disk::{Disk, DiskRef, MemDisk};
use engine::host::{Host, HostRef};
use engine::pool::import::discover;
use engine::vdev::{Bias, NewLeaf, NewTop};
use parking_lot::Mutex;
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tarnfs::{CreateOptions, Error, ImportOptions, Pool};

use super::{Layout, properties};

/// A machine on which one thing happens at a time.
pub struct SimHost {
    now_ns: AtomicU64,
    random: Mutex<ChaCha8Rng>,
}

impl SimHost {
    /// One whose randomness is that of `seed`.
    #[allow(clippy::new_ret_no_self)] // it is only ever shared
    pub fn new(seed: u64) -> HostRef {
        Arc::new(SimHost { now_ns: AtomicU64::new(0), random: Mutex::new(ChaCha8Rng::seed_from_u64(seed)) })
    }
}

impl Host for SimHost {
    fn now_ns(&self) -> u64 {
        self.now_ns.fetch_add(1000, Ordering::Relaxed)
    }

    fn wall_clock(&self) -> (u64, u32) {
        let now = self.now_ns();
        (1_700_000_000 + now / 1_000_000_000, (now % 1_000_000_000) as u32)
    }

    fn random(&self) -> u64 {
        self.random.lock().next_u64() | 1
    }

    fn sleep(&self, duration: Duration) {
        self.now_ns.fetch_add(duration.as_nanos() as u64, Ordering::Relaxed);
    }

    #[allow(clippy::disallowed_methods)] // the host is where threads come from
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> bool {
        (name.starts_with("txg_") || name == "stream reader") && std::thread::Builder::new().name(name.to_owned()).spawn(body).is_ok()
    }

    fn processors(&self) -> usize {
        1
    }

    fn host_name(&self) -> String {
        "simulated".to_owned()
    }

    fn host_id(&self) -> u32 {
        7
    }
}

/// The devices of a pool, in the order of its top-level vdevs, each of which has as many `sides`.
pub struct MemoryDisks {
    disks: Vec<Arc<MemDisk>>,
    sides: usize,
}

impl MemoryDisks {
    /// Makes a pool `tank` and exports it.
    pub fn create(layout: Layout, words: &[(&str, &str)]) -> MemoryDisks {
        Self::create_with_logs(layout, 0, words)
    }

    /// The same with so many log devices more, which are like the others.
    pub fn create_with_logs(layout: Layout, logs: usize, words: &[(&str, &str)]) -> MemoryDisks {
        let mut disks = Vec::new();
        let mut tops = Vec::new();
        for top in 0..layout.tops + logs {
            let mut leaves = Vec::new();
            for _ in 0..layout.sides {
                let name = format!("/memory/d{}", disks.len());
                let disk = Arc::new(MemDisk::new(name.clone(), layout.bytes));
                leaves.push(NewLeaf { disk: disk.clone(), path: name, whole_disk: false });
                disks.push(disk);
            }
            let (parity, bias) = if top < layout.tops { (layout.parity, Bias::None) } else { (0, Bias::Log) };
            tops.push(NewTop { leaves, parity, ashift: Some(layout.ashift), bias, ..NewTop::default() });
        }
        let options = CreateOptions { properties: properties(words), command: "zpool create tank".into(), ..CreateOptions::default() };
        let pool = Pool::create_on("tank", tops, options, SimHost::new(1)).unwrap_or_else(|error| panic!("create: {error}"));
        pool.export().unwrap_or_else(|error| panic!("export: {error}"));
        MemoryDisks { disks, sides: layout.sides }
    }

    /// A pool on single devices that are there as images.
    pub fn of_images(images: &[std::path::PathBuf]) -> MemoryDisks {
        let load = |path: &std::path::PathBuf| {
            let bytes = std::fs::read(path).expect("an image");
            let disk = MemDisk::new(path.display().to_string(), bytes.len() as u64);
            for (number, chunk) in bytes.chunks(1 << 16).enumerate().filter(|(_, chunk)| chunk.iter().any(|byte| *byte != 0)) {
                disk.write_at(chunk, (number as u64) << 16).expect("memory");
            }
            Arc::new(disk)
        };
        MemoryDisks { disks: images.iter().map(load).collect(), sides: 1 }
    }

    /// Imports the pool.
    ///
    /// # Errors
    /// Those of the import; that nothing was found, too.
    pub fn import(&self, read_only: bool) -> Result<Arc<Pool>, Error> {
        self.import_as(2, read_only)
    }

    /// Imports the pool, with the randomness of `seed`: where guids are drawn again, they must not be the same.
    ///
    /// # Errors
    /// As for [`MemoryDisks::import`].
    pub fn import_as(&self, seed: u64, read_only: bool) -> Result<Arc<Pool>, Error> {
        let candidates = discover(self.disks.iter().map(|disk| disk.clone() as DiskRef).collect());
        let Some(candidate) = candidates.into_iter().next() else { engine::bail!(NoDevice, "no pool in memory") };
        let options = ImportOptions { read_only, force: true, ..ImportOptions::default() };
        Pool::import_on(candidate, options, SimHost::new(seed)).map(|(pool, _)| pool)
    }

    /// A disk.
    pub fn disk(&self, number: usize) -> &MemDisk {
        &self.disks[number]
    }

    /// The disks of a top-level vdev.
    pub fn sides_of(&self, top: usize) -> &[Arc<MemDisk>] {
        &self.disks[top * self.sides..][..self.sides]
    }

    /// The contents as they are, without faults.
    #[must_use]
    pub fn snapshot(&self) -> MemoryDisks {
        MemoryDisks { disks: self.disks.iter().map(|disk| Arc::new(disk.snapshot())).collect(), sides: self.sides }
    }

    /// Writes them as images, for the real `zdb`.
    pub fn to_images(&self, directory: &std::path::Path) -> Vec<std::path::PathBuf> {
        use std::os::unix::fs::FileExt;
        let mut paths = Vec::new();
        let mut buffer = vec![0; 1 << 16];
        for (number, disk) in self.disks.iter().enumerate() {
            let path = directory.join(format!("d{number}.img"));
            let file = std::fs::File::create(&path).expect("an image");
            file.set_len(disk.size_bytes()).expect("an image");
            for at in (0..disk.size_bytes()).step_by(buffer.len()) {
                disk.read_at(&mut buffer, at).expect("memory");
                if buffer.iter().any(|byte| *byte != 0) {
                    file.write_all_at(&buffer, at).expect("an image");
                }
            }
            paths.push(path);
        }
        paths
    }
}
