//! PostMark: a mail server's or a news server's many small files that come and go.
//!
//! # Theory
//!
//! Files of random sizes are created; then each transaction reads a file or appends to one, and creates a file or
//! deletes one; at the end all are deleted. The published program is version 1.5, which draws all of its choices from
//! one Mersenne Twister in a fixed order. This is an implementation of its own that draws the same numbers in the same
//! order, so that it does the very same operations, and takes its times with a better clock than whole seconds.
//!
//! As published with ZFS and UFS, the file system is synced after the creation and after the transactions, inside the
//! timed part. The original goes through the C library's buffered files, whose buffer is the file's preferred block;
//! so does this.

mod choices;
mod files;
mod twister;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::latency::Latencies;
use super::{Figure, LONGEST_CALL, MOST_FILES, Parameter, Parameters, Published, Round, Workload};
use crate::interrupt;
use choices::Choices;
use files::{Counts, Files, Times};

/// The workload.
pub struct Postmark {
    parameters: Parameters,
}

const fn parameter(name: &'static str, about: &'static str, value: u64, scales: bool, smallest: u64, largest: u64) -> Parameter {
    Parameter { name, about, value, scales, smallest, largest }
}

const PARAMETERS: [Parameter; 10] = [
    parameter("files", "files at the beginning", 20_000, true, 1, MOST_FILES),
    parameter("transactions", "transactions", 1_000_000, true, 10, 1 << 32),
    parameter("smallest", "smallest file, in bytes", 500, false, 1, LONGEST_CALL),
    parameter("largest", "largest file, in bytes", 10_000, false, 1, LONGEST_CALL),
    parameter("subdirectories", "directories that they are spread over; 0 for none", 0, false, 0, 1 << 20),
    parameter("read", "bytes in a read call", 512, false, 1, LONGEST_CALL),
    parameter("write", "bytes in a write call", 512, false, 1, LONGEST_CALL),
    parameter("bias-read", "of 10 transactions, how many read rather than append", 5, false, 0, 10),
    parameter("bias-create", "of 10 transactions, how many create rather than delete", 5, false, 0, 10),
    parameter("sync", "1: sync the file system after creation and after the transactions", 1, false, 0, 1),
];

const ZFS: &str = "ZFS";
const UFS: &str = "UFS";

const fn published(figure: &'static str, system: &'static str, value: f64) -> Published {
    Published { figure, system, value }
}

const PUBLISHED: [Published; 18] = [
    published("transactions", ZFS, 4672.0),
    published("transactions", UFS, 292.0),
    published("total", ZFS, 220.0),
    published("total", UFS, 3450.0),
    published("created alone", ZFS, 4000.0),
    published("created alone", UFS, 909.0),
    published("created mixed", ZFS, 2335.0),
    published("created mixed", UFS, 146.0),
    published("read", ZFS, 2337.0),
    published("read", UFS, 146.0),
    published("appended", ZFS, 2312.0),
    published("appended", UFS, 144.0),
    published("deleted alone", ZFS, 19660.0),
    published("deleted alone", UFS, 2184.0),
    published("bytes read", ZFS, 14.73),
    published("bytes read", UFS, 0.94),
    published("bytes written", ZFS, 15.30),
    published("bytes written", UFS, 0.98),
];

/// What a round did, and when each phase ended, in seconds since the beginning.
struct Outcome {
    created: f64,
    transacted: f64,
    total: f64,
    after_creation: Counts,
    after_transactions: Counts,
    counts: Counts,
    transactions: Latencies,
    latencies: Times,
}

impl Default for Postmark {
    fn default() -> Self {
        Self::new()
    }
}

impl Postmark {
    /// The published parameters.
    pub fn new() -> Postmark {
        Postmark { parameters: Parameters::new(&PARAMETERS) }
    }

    fn sync(&self, round: &Round<'_>) -> Result<()> {
        if self.parameters.get("sync") != 0 {
            rustix::fs::syncfs(&File::open(round.directory)?).context("cannot sync the file system")?;
        }
        Ok(())
    }

    fn run(&self, round: &Round<'_>) -> Result<Outcome> {
        let (mut choices, contents) = Choices::new(&self.parameters, u32::try_from(round.seed).unwrap_or(u32::MAX));
        let mut files = Files::new(round.directory, &self.parameters, contents);
        files.make_subdirectories()?;
        let started = Instant::now();
        let since = || started.elapsed().as_secs_f64();
        for _ in 0..self.parameters.get("files") {
            interrupt::check()?;
            files.perform(&choices.create())?;
        }
        self.sync(round)?;
        let (created, after_creation) = (since(), files.counts);
        let mut transactions = Latencies::default();
        for _ in 0..self.parameters.get("transactions") {
            interrupt::check()?;
            ensure!(!choices.depleted(), "out of files: it takes more files or fewer transactions");
            transactions.time(|| {
                files.perform(&choices.read_or_append())?;
                files.perform(&choices.create_or_delete())
            })?;
        }
        self.sync(round)?;
        let (transacted, after_transactions) = (since(), files.counts);
        let mut from = 0;
        while let Some(delete) = choices.delete_one_of_the_rest(&mut from) {
            interrupt::check()?;
            files.perform(&delete)?;
        }
        let total = since();
        files.remove_subdirectories()?;
        let Files { counts, latencies, .. } = files;
        Ok(Outcome { created, transacted, total, after_creation, after_transactions, counts, transactions, latencies })
    }
}

impl Workload for Postmark {
    fn name(&self) -> &'static str {
        "postmark"
    }

    fn about(&self) -> &'static str {
        "PostMark 1.5: many small files are created, read, appended to and deleted"
    }

    fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    fn parameters_mut(&mut self) -> &mut Parameters {
        &mut self.parameters
    }

    fn published(&self) -> &'static [Published] {
        &PUBLISHED
    }

    fn space_bytes(&self) -> u64 {
        // Twice as many files as at the beginning can be there, each in whole blocks.
        let each = self.parameters.get("largest").div_ceil(4096).saturating_mul(4096).saturating_add(4096);
        self.parameters.get("files").saturating_mul(2).saturating_mul(each).saturating_mul(2)
    }

    fn measure(&self, round: &Round<'_>) -> Result<Vec<Figure>> {
        let Outcome { created, transacted, total, after_creation, after_transactions, counts, transactions, latencies } =
            self.run(round)?;
        let mixed = transacted - created;
        let rate = |name, number: u64, seconds: f64| Figure::rate(name, "/s", number as f64 / seconds.max(1e-9));
        let bytes = |name, bytes: u64| Figure::rate(name, "MB/s", bytes as f64 / f64::from(1 << 20) / total.max(1e-9));
        let mut figures = vec![
            rate("transactions", self.parameters.get("transactions"), mixed),
            Figure::seconds("total", total),
            rate("created alone", after_creation.created, created),
            rate("created mixed", counts.created - after_creation.created, mixed),
            rate("read", counts.read, mixed),
            rate("appended", counts.appended, mixed),
            rate("deleted alone", counts.deleted - after_transactions.deleted, total - transacted),
            rate("deleted mixed", after_transactions.deleted, mixed),
            bytes("bytes read", counts.bytes_read),
            bytes("bytes written", counts.bytes_written),
        ];
        let Times { creation, read, append, deletion } = &latencies;
        let operations = [
            ("a transaction", &transactions),
            ("a creation", creation),
            ("a read", read),
            ("an append", append),
            ("a deletion", deletion),
        ];
        figures.extend(operations.into_iter().flat_map(|(name, latencies)| latencies.figures(name)));
        Ok(figures)
    }
}
