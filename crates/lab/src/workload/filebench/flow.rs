//! One thread of a personality: its file, its random numbers, what it has done.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::iter::Sum;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::super::Parameters;
use super::super::latency::Latencies;
use super::Step;
use super::file_set::FileSet;
use crate::aligned::Aligned;
use crate::workload::metadata::look_at;

/// How often each thing was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) creates: u64,
    pub(super) opens: u64,
    pub(super) closes: u64,
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) syncs: u64,
    pub(super) deletes: u64,
    pub(super) stats: u64,
    pub(super) bytes_read: u64,
    pub(super) bytes_written: u64,
}

impl Tally {
    pub(super) fn operations(&self) -> u64 {
        self.creates + self.opens + self.closes + self.reads + self.writes + self.syncs + self.deletes + self.stats
    }
}

impl Sum for Tally {
    fn sum<I: Iterator<Item = Tally>>(all: I) -> Tally {
        all.fold(Tally::default(), |sum, one| Tally {
            creates: sum.creates + one.creates,
            opens: sum.opens + one.opens,
            closes: sum.closes + one.closes,
            reads: sum.reads + one.reads,
            writes: sum.writes + one.writes,
            syncs: sum.syncs + one.syncs,
            deletes: sum.deletes + one.deletes,
            stats: sum.stats + one.stats,
            bytes_read: sum.bytes_read + one.bytes_read,
            bytes_written: sum.bytes_written + one.bytes_written,
        })
    }
}

pub(super) struct Runner<'a> {
    files: &'a FileSet,
    log: Option<&'a File>,
    random: ChaCha8Rng,
    buffer: Aligned,
    append_bytes: u64,
    open: Option<(usize, File)>,
    tally: Tally,
    latencies: Latencies,
}

impl<'a> Runner<'a> {
    pub(super) fn new(files: &'a FileSet, log: Option<&'a File>, parameters: &Parameters, seed: u64) -> Runner<'a> {
        Runner {
            files,
            log,
            random: ChaCha8Rng::seed_from_u64(seed),
            buffer: Aligned::new(parameters.get("io") as usize),
            append_bytes: parameters.get("append"),
            open: None,
            tally: Tally::default(),
            latencies: Latencies::default(),
        }
    }

    /// Goes through the steps again and again until it is over; the loop that it is in is cut off.
    pub(super) fn run(mut self, steps: &[Step], over: &AtomicBool) -> Result<(Tally, Latencies)> {
        loop {
            for step in steps {
                if over.load(Ordering::Relaxed) {
                    return Ok((self.tally, self.latencies));
                }
                let (done, started) = (self.tally.operations(), Instant::now());
                self.step(*step)?;
                // One that found no file is none.
                if self.tally.operations() > done {
                    self.latencies.add(started.elapsed());
                }
            }
        }
    }

    /// Steps that find no file, or have none open, are left out and do not count.
    fn step(&mut self, step: Step) -> Result<()> {
        match step {
            Step::Create => self.create(),
            Step::Open => self.open_one(),
            Step::Delete => self.delete(),
            Step::Stat => self.stat(),
            Step::Close => {
                if let Some((number, file)) = self.open.take() {
                    drop(file);
                    self.files.give_present(number);
                    self.tally.closes += 1;
                }
                Ok(())
            }
            Step::AppendLog => match self.log {
                Some(log) => self.append(log),
                None => Ok(()),
            },
            Step::WriteWhole | Step::ReadWhole | Step::Append | Step::Sync => {
                let Some((number, file)) = self.open.take() else { return Ok(()) };
                let outcome = self.with_file(step, number, &file);
                self.open = Some((number, file));
                outcome.with_context(|| format!("{step:?} of {}", self.files.path(number).display()))
            }
        }
    }

    fn with_file(&mut self, step: Step, number: usize, file: &File) -> Result<()> {
        match step {
            Step::WriteWhole => self.write(file, self.files.size(number)),
            Step::Append => self.append(file),
            Step::ReadWhole => self.read_whole(file),
            _ => {
                file.sync_all()?;
                self.tally.syncs += 1;
                Ok(())
            }
        }
    }

    fn create(&mut self) -> Result<()> {
        let Some(number) = self.files.take_absent(&mut self.random) else { return Ok(()) };
        let path = self.files.path(number);
        let file = OpenOptions::new().read(true).append(true).create_new(true).open(&path);
        self.open = Some((number, file.with_context(|| format!("cannot create {}", path.display()))?));
        self.tally.creates += 1;
        Ok(())
    }

    fn open_one(&mut self) -> Result<()> {
        let Some(number) = self.files.take_present(&mut self.random) else { return Ok(()) };
        let path = self.files.path(number);
        let file = OpenOptions::new().read(true).append(true).open(&path);
        self.open = Some((number, file.with_context(|| format!("cannot open {}", path.display()))?));
        self.tally.opens += 1;
        Ok(())
    }

    fn delete(&mut self) -> Result<()> {
        let Some(number) = self.files.take_present(&mut self.random) else { return Ok(()) };
        let path = self.files.path(number);
        fs::remove_file(&path).with_context(|| format!("cannot delete {}", path.display()))?;
        self.files.give_absent(number);
        self.tally.deletes += 1;
        Ok(())
    }

    fn stat(&mut self) -> Result<()> {
        let Some(number) = self.files.take_present(&mut self.random) else { return Ok(()) };
        let path = self.files.path(number);
        let found = look_at(&path).with_context(|| format!("cannot stat {}", path.display()));
        self.files.give_present(number);
        self.tally.stats += 1;
        found
    }

    fn write(&mut self, mut file: &File, bytes: u64) -> Result<()> {
        let mut left = bytes;
        while left > 0 {
            let wanted = left.min(self.buffer.len() as u64) as usize;
            let piece = self.files.piece(&mut self.random, wanted);
            file.write_all(piece)?;
            left -= piece.len() as u64;
        }
        self.tally.writes += 1;
        self.tally.bytes_written += bytes;
        Ok(())
    }

    fn append(&mut self, file: &File) -> Result<()> {
        let bytes = self.random.random_range(1..=self.append_bytes);
        self.write(file, bytes)
    }

    fn read_whole(&mut self, mut file: &File) -> Result<()> {
        std::io::Seek::rewind(&mut file)?;
        loop {
            let got = file.read(&mut self.buffer)?;
            if got == 0 {
                break;
            }
            self.tally.bytes_read += got as u64;
        }
        self.tally.reads += 1;
        Ok(())
    }
}
