//! The files that the threads of a personality share, and which of them a thread may have.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Gamma};

use super::super::Parameters;
use crate::interrupt;

/// Of the gamma distribution of sizes.
const SHAPE: f64 = 1.5;
const PIECE: usize = 1 << 20;

/// Numbers of files, by what may be done with them. Taking one at random is one swap.
#[derive(Default)]
struct Free {
    present: Vec<usize>,
    absent: Vec<usize>,
}

pub(super) struct FileSet {
    directory: PathBuf,
    width: usize,
    sizes: Vec<u64>,
    /// So many exist at the beginning: the first ones of an order that is random.
    order: Vec<usize>,
    present: usize,
    contents: Vec<u8>,
    free: Mutex<Free>,
}

impl FileSet {
    /// The same parameters and seed give the same set.
    pub(super) fn new(directory: &Path, parameters: &Parameters, seed: u64) -> FileSet {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let count = parameters.get("files") as usize;
        let mean = parameters.get("size") as f64;
        let gamma = Gamma::new(SHAPE, mean / SHAPE).expect("both parameters are above 0");
        let sizes = (0..count).map(|_| gamma.sample(&mut random) as u64).collect();
        let mut order: Vec<usize> = (0..count).collect();
        for index in (1..count).rev() {
            order.swap(index, random.random_range(0..=index));
        }
        let mut contents = vec![0; 2 * PIECE];
        random.fill(contents.as_mut_slice());
        let present = count * (parameters.get("exist") as usize).min(100) / 100;
        let width = parameters.get("width").max(2) as usize;
        FileSet { directory: directory.to_owned(), width, sizes, order, present, contents, free: Mutex::default() }
    }

    /// The tree has as many levels as it takes for no directory to have more entries than the width.
    pub(super) fn path(&self, number: usize) -> PathBuf {
        let mut names = vec![format!("f{number}")];
        let mut directory = number / self.width;
        let mut directories = self.sizes.len().div_ceil(self.width);
        while directories > 1 {
            names.push(format!("d{directory}"));
            directory /= self.width;
            directories = directories.div_ceil(self.width);
        }
        let mut path = self.directory.clone();
        path.extend(names.iter().rev());
        path
    }

    /// Bytes that a file is meant to have.
    pub(super) fn size(&self, number: usize) -> u64 {
        self.sizes[number]
    }

    /// What to write: `length` bytes, 1 MB at most, from somewhere.
    pub(super) fn piece(&self, random: &mut ChaCha8Rng, length: usize) -> &[u8] {
        let start = random.random_range(0..PIECE);
        &self.contents[start..start + length.min(PIECE)]
    }

    /// Writes the files that exist at the beginning.
    pub(super) fn make(&self) -> Result<()> {
        let mut random = ChaCha8Rng::seed_from_u64(self.sizes.len() as u64);
        for number in 0..self.sizes.len() {
            interrupt::check()?;
            if let Some(parent) = self.path(number).parent() {
                fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
            }
        }
        for number in &self.order[..self.present] {
            interrupt::check()?;
            let path = self.path(*number);
            let name = || format!("cannot fill {}", path.display());
            let mut file = File::create(&path).with_context(name)?;
            let mut left = self.sizes[*number];
            while left > 0 {
                let piece = self.piece(&mut random, left.min(PIECE as u64) as usize);
                file.write_all(piece).with_context(name)?;
                left -= piece.len() as u64;
            }
        }
        Ok(())
    }

    /// The set as [`FileSet::make`] left it, for threads to use.
    pub(super) fn found_on_disk(self) -> Result<FileSet> {
        let (present, absent) = self.order.split_at(self.present);
        if let Some(first) = present.first() {
            fs::metadata(self.path(*first)).context("the files have not been made")?;
        }
        let free = Free { present: present.to_vec(), absent: absent.to_vec() };
        Ok(FileSet { free: Mutex::new(free), ..self })
    }

    pub(super) fn open_log(&self) -> Result<File> {
        Ok(OpenOptions::new().append(true).create(true).open(self.directory.join("log"))?)
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn take(random: &mut ChaCha8Rng, from: &mut Vec<usize>) -> Option<usize> {
        let last = from.len().checked_sub(1)?;
        Some(from.swap_remove(random.random_range(0..=last)))
    }

    /// Takes one that exists; nobody else has it then.
    pub(super) fn take_present(&self, random: &mut ChaCha8Rng) -> Option<usize> {
        Self::take(random, &mut self.free().present)
    }

    /// Takes one that does not exist.
    pub(super) fn take_absent(&self, random: &mut ChaCha8Rng) -> Option<usize> {
        Self::take(random, &mut self.free().absent)
    }

    /// Gives one back that exists now.
    pub(super) fn give_present(&self, number: usize) {
        self.free().present.push(number);
    }

    /// Gives one back that does not exist now.
    pub(super) fn give_absent(&self, number: usize) {
        self.free().absent.push(number);
    }
}
