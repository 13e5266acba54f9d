//! Runs the tests on several targets in turn.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::job::{Data, Job};
use super::{Cache, Column, MIB, Measurement, Results, Row, Series, Settings, TESTS, UnitTest};
use crate::interrupt;
use crate::target::Target;

/// What is about to be done, for a progress bar.
pub struct Progress<'a> {
    /// Of `total`, both counted in tests times targets.
    pub done: usize,
    pub total: usize,
    pub test: &'static UnitTest,
    pub target: &'a str,
}

struct Driver<'a> {
    settings: &'a Settings,
    data: Data,
    test: &'static UnitTest,
    file_bytes: u64,
}

/// Runs the tests that the settings name. What fails on a target is in its series; an error is only an interruption.
pub fn run(targets: &[&dyn Target], settings: &Settings, progress: &mut dyn FnMut(&Progress<'_>)) -> Result<Results> {
    let tests: Vec<&'static UnitTest> = TESTS.iter().filter(|test| settings.includes(test)).collect();
    let total = tests.len() * targets.len();
    let mut data = Data::new(settings.seed);
    let mut rows = Vec::new();
    for test in tests {
        let driver = Driver { settings, data, test, file_bytes: settings.bytes(test.file) };
        let row = driver.row(targets, &mut |done_here, target| {
            progress(&Progress { done: (rows.len() * targets.len() + done_here).min(total), total, test, target });
        })?;
        data = driver.data;
        rows.push(row);
    }
    let columns = targets.iter().map(|target| Column { name: target.name().to_owned(), description: target.description() });
    Ok(Results { columns: columns.collect(), rows, settings: settings.clone() })
}

impl Driver<'_> {
    fn path(&self, target: &dyn Target) -> PathBuf {
        target.directory().join(format!("unit{:02}", self.test.id))
    }

    /// All repetitions on all targets.
    fn row(&self, targets: &[&dyn Target], progress: &mut dyn FnMut(usize, &str)) -> Result<Row> {
        let mut series = vec![Series::default(); targets.len()];
        let mut spent = vec![Duration::ZERO; targets.len()];
        for (index, target) in targets.iter().enumerate() {
            progress(index, target.name());
            let outcome = self.set_up(*target);
            note_failure(&mut series[index], outcome)?;
        }
        for repetition in 0..self.settings.repetitions {
            for (index, target) in targets.iter().enumerate() {
                if series[index].failure.is_some() || (repetition > 0 && spent[index] > self.settings.enough) {
                    continue;
                }
                progress(index, target.name());
                let started = Instant::now();
                let outcome = self.measure(*target, repetition);
                if let Some(measurement) = note_failure(&mut series[index], outcome)? {
                    series[index].measurements.push(measurement);
                }
                spent[index] += started.elapsed();
            }
        }
        for (index, target) in targets.iter().enumerate() {
            let outcome = self.take_down(*target);
            note_failure(&mut series[index], outcome)?;
        }
        Ok(Row { test: self.test, file_bytes: self.file_bytes, series })
    }

    /// Makes the file that the test expects.
    fn set_up(&self, target: &dyn Target) -> Result<()> {
        if self.test.cache == Cache::NoFile {
            return Ok(());
        }
        let path = self.path(target);
        let mut file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        let mut left = self.file_bytes;
        // Pieces whose numbers no run uses.
        let mut number = u64::MAX / 2;
        while left > 0 {
            interrupt::check()?;
            let length = left.min(MIB) as usize;
            file.write_all(self.data.piece(number, length)).with_context(|| format!("cannot fill {}", path.display()))?;
            left -= length as u64;
            number += 1;
        }
        file.sync_all().with_context(|| format!("cannot sync {}", path.display()))
    }

    /// Brings the caches into the state that the test expects.
    fn prepare(&self, target: &dyn Target) -> Result<()> {
        let path = self.path(target);
        match self.test.cache {
            Cache::NoFile => {
                remove(&path)?;
                target.settle()
            }
            Cache::Full => {
                target.settle()?;
                read_all(&path, self.file_bytes)
            }
            Cache::Empty => {
                target.settle()?;
                target.drop_caches().context("cannot empty the caches")
            }
        }
    }

    fn measure(&self, target: &dyn Target, repetition: u32) -> Result<Measurement> {
        self.prepare(target)?;
        let path = self.path(target);
        let seed = self.settings.seed.wrapping_mul(1009).wrapping_add(u64::from(repetition) * 17 + u64::from(self.test.id));
        let moved_bytes = self.settings.bytes(self.test.moved);
        let started = Instant::now();
        let deadline = started + self.settings.time_limit;
        let job = Job { path: &path, file_bytes: self.file_bytes, moved_bytes, seed, data: &self.data, deadline };
        let bytes = (self.test.run)(&job)?;
        let seconds = started.elapsed().as_secs_f64();
        // What the test left in memory is written now, and not while the next one is timed.
        File::open(&path)?.sync_all()?;
        Ok(Measurement { id: self.test.id, bytes, seconds, complete: bytes == moved_bytes * self.test.times })
    }

    fn take_down(&self, target: &dyn Target) -> Result<()> {
        remove(&self.path(target))?;
        target.settle()
    }
}

/// Puts an error into the series, except an interruption, which goes on.
fn note_failure<T>(series: &mut Series, outcome: Result<T>) -> Result<Option<T>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(error) if interrupt::caused(&error) => Err(error),
        Err(error) => {
            series.failure.get_or_insert_with(|| format!("{error:#}"));
            Ok(None)
        }
    }
}

fn remove(path: &std::path::Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

fn read_all(path: &std::path::Path, expected: u64) -> Result<()> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; MIB as usize];
    let mut bytes = 0;
    loop {
        interrupt::check()?;
        match file.read(&mut buffer)? {
            0 => break,
            got => bytes += got as u64,
        }
    }
    anyhow::ensure!(bytes == expected, "{} has {bytes} bytes instead of {expected}", path.display());
    Ok(())
}
