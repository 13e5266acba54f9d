//! A store of images that fills, is read, loses a fifth of its files and fills again.
//!
//! # Theory
//!
//! As a reader of the published comparisons described it: files of 10 to 150 KB, most of them around 20 KB (a gamma
//! distribution of shape 2 above 10 KB, whose peak is at its scale); a tree of about a hundred directories a level and
//! a hundred files a leaf; written at random places of the tree, read whole and at random. The throughput is measured
//! at each tenth of the way to full, because file systems slow down as they fill; then a random fifth is deleted and
//! written again, as often as asked for, because they slow down as they age.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use rand::Rng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Gamma};

use crate::workload::contents::Contents;
use crate::workload::latency::Latencies;
use crate::workload::together::Ground;
use crate::workload::{Figure, MOST_FILES, Parameter, Parameters, Published, Round, Workload, described};
use crate::interrupt;

/// The workload.
pub struct Images {
    parameters: Parameters,
}

const PARAMETERS: [Parameter; 6] = [
    Parameter::scaled("files", "images when it is full", 200_000, 100).at_most(MOST_FILES),
    Parameter::fixed("steps", "measurements on the way", 10).at_most(100),
    Parameter::fixed("reads", "of 100 images written, how many are read", 50).at_most(1000),
    Parameter::fixed("leaf", "files of a directory, and directories of a level", 100).at_most(1 << 20),
    Parameter::fixed("purge", "percentage that is deleted", 20).at_most(100),
    Parameter::fixed("purges", "how often it is deleted and written again", 3).at_least(0).at_most(1000),
];

const SMALLEST: f64 = 10.0 * 1024.0;
const LARGEST: f64 = 150.0 * 1024.0;
const SHAPE: f64 = 2.0;
const SCALE: f64 = 10.0 * 1024.0;

/// Bytes that went through a phase, and how long it took.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Phase {
    files: u64,
    bytes: u64,
    seconds: f64,
}

impl Phase {
    fn megabytes_per_second(&self) -> f64 {
        self.bytes as f64 / f64::from(1 << 20) / self.seconds.max(1e-9)
    }
}

/// The images that there are.
struct Store<'a> {
    ground: Ground<'a>,
    contents: Contents,
    random: ChaCha8Rng,
    sizes: Gamma<f64>,
    leaf: u64,
    total: u64,
    /// Numbers and sizes of those that exist.
    present: Vec<(u64, u64)>,
    /// Numbers of those that do not, in the order in which they will come: scattered over the tree.
    absent: Vec<u64>,
    written: Latencies,
    read: Latencies,
    deleted: Latencies,
}

impl<'a> Store<'a> {
    fn new(ground: Ground<'a>, parameters: &Parameters) -> Store<'a> {
        let mut random = ground.random(0);
        let mut absent: Vec<u64> = (0..parameters.get("files")).collect();
        absent.shuffle(&mut random);
        let sizes = Gamma::new(SHAPE, SCALE).expect("both parameters are above 0");
        let (leaf, total) = (parameters.get("leaf").max(2), parameters.get("files"));
        Store {
            ground,
            contents: Contents::new(ground.seed),
            random,
            sizes,
            leaf,
            total,
            present: Vec::new(),
            absent,
            written: Latencies::default(),
            read: Latencies::default(),
            deleted: Latencies::default(),
        }
    }

    /// Below the directory, a level for each power of the leaf's size.
    fn path(&self, number: u64) -> PathBuf {
        let mut names = vec![format!("i{number}.jpg")];
        let mut directory = number / self.leaf;
        let mut directories = self.total.div_ceil(self.leaf);
        while directories > 1 {
            names.push(format!("d{}", directory % self.leaf));
            directory /= self.leaf;
            directories = directories.div_ceil(self.leaf);
        }
        let mut path = self.ground.directory.to_owned();
        path.extend(names.iter().rev());
        path
    }

    fn size(&mut self) -> u64 {
        loop {
            let size = SMALLEST + self.sizes.sample(&mut self.random);
            if size <= LARGEST {
                return size as u64;
            }
        }
    }

    fn write(&mut self, count: u64) -> Result<Phase> {
        let (started, mut phase) = (Instant::now(), Phase::default());
        for _ in 0..count {
            interrupt::check()?;
            let Some(number) = self.absent.pop() else { break };
            let (path, size) = (self.path(number), self.size());
            let name = || format!("cannot write {}", path.display());
            let piece = self.contents.piece(&mut self.random, size as usize);
            let began = Instant::now();
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).with_context(name)?;
            }
            File::create(&path).with_context(name)?.write_all(piece).with_context(name)?;
            self.written.add(began.elapsed());
            self.present.push((number, size));
            phase.files += 1;
            phase.bytes += size;
        }
        // A phase that leaves its work to the next one has not done it.
        rustix::fs::syncfs(&File::open(self.ground.directory)?).context("cannot sync")?;
        phase.seconds = started.elapsed().as_secs_f64();
        Ok(phase)
    }

    fn read(&mut self, count: u64) -> Result<Phase> {
        let (started, mut phase) = (Instant::now(), Phase::default());
        let mut buffer = Vec::with_capacity(LARGEST as usize);
        for _ in 0..count {
            interrupt::check()?;
            if self.present.is_empty() {
                break;
            }
            let (number, size) = self.present[self.random.random_range(0..self.present.len())];
            let path = self.path(number);
            buffer.clear();
            self.read
                .time(|| File::open(&path).and_then(|mut file| file.read_to_end(&mut buffer)))
                .with_context(|| format!("cannot read {}", path.display()))?;
            ensure!(buffer.len() as u64 == size, "{} has {} bytes instead of {size}", path.display(), buffer.len());
            phase.files += 1;
            phase.bytes += size;
        }
        phase.seconds = started.elapsed().as_secs_f64();
        Ok(phase)
    }

    fn delete(&mut self, count: u64) -> Result<Phase> {
        let (started, mut phase) = (Instant::now(), Phase::default());
        for _ in 0..count.min(self.present.len() as u64) {
            interrupt::check()?;
            let (number, size) = self.present.swap_remove(self.random.random_range(0..self.present.len()));
            let path = self.path(number);
            self.deleted.time(|| fs::remove_file(&path)).with_context(|| format!("cannot delete {}", path.display()))?;
            self.absent.push(number);
            phase.files += 1;
            phase.bytes += size;
        }
        rustix::fs::syncfs(&File::open(self.ground.directory)?).context("cannot sync")?;
        phase.seconds = started.elapsed().as_secs_f64();
        Ok(phase)
    }
}

impl Default for Images {
    fn default() -> Self {
        Self::new()
    }
}

impl Images {
    /// About 6 GB.
    pub fn new() -> Images {
        Images { parameters: Parameters::new(&PARAMETERS) }
    }

    fn run(&self, round: &Round<'_>) -> Result<Vec<Figure>> {
        let value = |name: &str| self.parameters.get(name);
        let mut store = Store::new(Ground::from(round), &self.parameters);
        let (mut points, mut all) = (Vec::new(), [Phase::default(); 2]);
        let sum = |all: &mut Phase, one: Phase| {
            *all = Phase { files: all.files + one.files, bytes: all.bytes + one.bytes, seconds: all.seconds + one.seconds }
        };
        let speed = |name: String, phase: &Phase| Figure::rate(name, "MB/s", phase.megabytes_per_second());
        for step in 1..=value("steps") {
            let wanted = (value("files") * step / value("steps")).saturating_sub(store.present.len() as u64);
            let written = store.write(wanted)?;
            round.target.drop_caches().context("cannot empty the caches")?;
            let read = store.read(wanted * value("reads") / 100)?;
            let percent = step * 100 / value("steps");
            points.push(speed(format!("written at {percent} %"), &written).on("written", "% of all images", percent as f64));
            points.push(speed(format!("read at {percent} %"), &read).on("read", "% of all images", percent as f64));
            sum(&mut all[0], written);
            sum(&mut all[1], read);
        }
        for purge in 1..=value("purges") {
            let count = value("files") * value("purge") / 100;
            let deleted = store.delete(count)?;
            let written = store.write(count)?;
            round.target.drop_caches().context("cannot empty the caches")?;
            let read = store.read(count * value("reads") / 100)?;
            let rate = Figure::rate(format!("deleted, purge {purge}"), "/s", deleted.files as f64 / deleted.seconds.max(1e-9));
            points.push(rate.on("deleted when aged", "purges", purge as f64));
            points.push(speed(format!("written after purge {purge}"), &written).on("written when aged", "purges", purge as f64));
            points.push(speed(format!("read after purge {purge}"), &read).on("read when aged", "purges", purge as f64));
        }
        let mut figures = vec![speed("written, filling".to_owned(), &all[0]), speed("read, filling".to_owned(), &all[1])];
        figures.append(&mut points);
        for (of, latencies) in
            [("an image written", &store.written), ("an image read", &store.read), ("an image deleted", &store.deleted)]
        {
            figures.extend(latencies.figures(of));
        }
        Ok(figures)
    }
}

impl Workload for Images {
    described!("images", "images of 10 to 150 KB in a deep tree: filled, read, a fifth deleted, written again");

    /// Asked for by readers of what was published; nobody has published it.
    fn published(&self) -> &'static [Published] {
        &[]
    }

    fn space_bytes(&self) -> u64 {
        self.parameters.get("files").saturating_mul(48 << 10).saturating_add(1 << 30)
    }

    fn measure(&self, round: &Round<'_>) -> Result<Vec<Figure>> {
        self.run(round)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{HostDirectory, Target};

    fn files(directory: &std::path::Path) -> Vec<u64> {
        let mut all = Vec::new();
        for entry in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap()) {
            match entry.file_type().unwrap().is_dir() {
                true => all.extend(files(&entry.path())),
                false => all.push(entry.metadata().unwrap().len()),
            }
        }
        all
    }

    #[test]
    fn it_fills_and_ages_as_asked() {
        let mut workload = Images::new();
        for (name, value) in [("files", 300), ("steps", 3), ("leaf", 10), ("purges", 1)] {
            workload.parameters_mut().set(name, value).unwrap();
        }
        let host = HostDirectory::new("host", &std::env::temp_dir()).unwrap();
        let figures = workload.run(&Round::new(&host, host.directory(), 0, 3)).unwrap();
        let names: Vec<&str> = figures.iter().map(|figure| figure.name.as_ref()).collect();
        assert_eq!(names[..4], ["written, filling", "read, filling", "written at 33 %", "read at 33 %"]);
        assert_eq!(names[8..11], ["deleted, purge 1", "written after purge 1", "read after purge 1"]);
        assert_eq!(names[11..].iter().filter(|name| name.ends_with(", p99.9")).count(), 3, "written, read, deleted");
        let sizes = files(host.directory());
        assert_eq!(sizes.len(), 300, "what was deleted has been written again");
        assert!(sizes.iter().all(|size| (10 << 10..=150 << 10).contains(size)));
    }

    #[test]
    fn sizes_peak_at_20_kilobytes_and_directories_are_no_wider_than_asked() {
        let mut parameters = Parameters::new(&PARAMETERS);
        parameters.set("files", 12_345).unwrap();
        let nowhere = Ground { directory: std::path::Path::new("/nowhere"), seed: 7 };
        let mut store = Store::new(nowhere, &parameters);
        let sizes: Vec<u64> = (0..20_000).map(|_| store.size() >> 10).collect();
        let count = |from: u64| sizes.iter().filter(|size| (from..from + 4).contains(*size)).count();
        assert!(
            count(18) > count(10) && count(18) > count(30) && count(18) > 4 * count(60),
            "{} {} {}",
            count(10),
            count(18),
            count(30)
        );
        let mut entries: std::collections::HashMap<PathBuf, std::collections::HashSet<PathBuf>> =
            std::collections::HashMap::new();
        for number in 0..12_345 {
            let path = store.path(number);
            for pair in path.ancestors().collect::<Vec<_>>().windows(2).take(3) {
                entries.entry(pair[1].to_owned()).or_default().insert(pair[0].to_owned());
            }
        }
        entries.remove(std::path::Path::new("/"));
        assert!(
            entries.values().all(|names| names.len() <= 100),
            "{:?}",
            entries.values().map(std::collections::HashSet::len).max()
        );
    }
}
