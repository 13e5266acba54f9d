//! `cargo xtask fsx`: the file system exerciser of other projects, on a mount of ours.
//!
//! # Theory
//! fsx does random operations on one file (read, write, mmap, truncate, punch, copy, ...) and knows what the file must hold. It
//! is somebody else's program, so it must be installed: `cargo install fsx`. Rounds differ in what the pool is made with and in how
//! the kernel is spoken to; after each the pool is exported and imported, and the file must be what it was.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::mounted::{Mounted, Pool};
use crate::words::Words;

pub(crate) const HELP: &str = "\
cargo xtask fsx [--operations N] [--seed N] [--rounds N] [--dir DIRECTORY]
                                     runs an installed fsx (cargo install fsx, or FSX=PROGRAM) on fresh mounts
";

/// What rounds go through, one after the other: record size, compression, transport.
const RECORDS: [&str; 4] = ["4K", "128K", "512", "1M"];
const COMPRESSIONS: [&str; 3] = ["lz4", "off", "zstd"];
const TRANSPORTS: [&str; 5] = ["uring", "devfuse", "uring,opens", "devfuse,writeback", "uring,writeback"];
const POOL_BYTES: u64 = 1 << 30;

/// One round: all that is needed to do it again.
#[derive(Debug, PartialEq, Eq)]
struct Round {
    seed: u64,
    operations: u64,
    record: &'static str,
    compression: &'static str,
    transport: &'static str,
    /// Longest file, and longest operation.
    file: u64,
    operation: u64,
    /// Each mapped write is followed by a sync.
    syncs: bool,
}

impl Round {
    /// Everything follows from the seed.
    fn of(seed: u64, operations: u64) -> Round {
        let pick = |from: u64, count: usize| ((seed / from) % count as u64) as usize;
        let (file, operation) = [(256 << 10, 64 << 10), (4 << 20, 64 << 10), (64 << 10, 4 << 10), (1 << 20, 16 << 10)][pick(7, 4)];
        let (compression, transport) = (COMPRESSIONS[pick(4, 3)], TRANSPORTS[pick(3, 5)]);
        Round { seed, operations, record: RECORDS[pick(1, 4)], compression, transport, file, operation, syncs: seed % 11 == 10 }
    }

    fn configuration(&self) -> String {
        let (file, operation, nosync) = (self.file, self.operation, !self.syncs);
        let sync = if self.syncs { 1.0 } else { 0.005 };
        format!(
            "flen = {file}\nnomsyncafterwrite = {nosync}\n[opsize]\nmax = {operation}\nmin = 1\nalign = 1\n[weights]\nclose_open = 1\nread = 10\nwrite = 10\n\
             mapread = 10\nmapwrite = 10\ninvalidate = 1\ntruncate = 5\nfsync = {sync}\nfdatasync = {sync}\nposix_fallocate = 3\npunch_hole = 5\nsendfile = 3\n\
             posix_fadvise = 2\ncopy_file_range = 5\n"
        )
    }

    fn properties(&self) -> Vec<String> {
        let sync = if self.syncs { "standard" } else { "disabled" };
        vec![format!("recordsize={}", self.record), format!("compression={}", self.compression), format!("sync={sync}")]
    }

    fn run(&self, fsx: &Path, directory: &Path) -> Result<()> {
        let Round { seed, operations, .. } = self;
        println!("{self:?}\n  again: cargo xtask fsx --rounds 1 --seed {seed} --operations {operations}");
        let directory = directory.join(format!("fsx-{}-{seed}", std::process::id()));
        let mounted = Mounted::new(&directory, &Pool { bytes: POOL_BYTES, properties: &self.properties(), transport: self.transport })?;
        let configuration = directory.join("fsx.toml");
        fs::write(&configuration, self.configuration())?;
        let file = mounted.path().join("file");
        let mut command = Command::new(fsx);
        command.args(["-q", "-q", "-N", &operations.to_string(), "-S", &seed.to_string()]);
        command.arg("-f").arg(&configuration).arg("-P").arg(&directory).arg(&file);
        let output = command.output().with_context(|| format!("{}: install it with `cargo install fsx`", fsx.display()))?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
            bail!("{self:?} failed; its artifacts and image are in {}\n{text}", directory.display());
        }
        let before = fs::read(&file)?;
        mounted.export()?;
        mounted.import()?;
        ensure!(fs::read(&file)? == before, "{self:?}: the file is another one after a remount; see {}", directory.display());
        mounted.finish()
    }
}

pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let mut words = Words::new(arguments);
    let operations = words.number("--operations")?.unwrap_or(20_000);
    let first = words.number("--seed")?.unwrap_or(1);
    let rounds = words.number("--rounds")?.unwrap_or(12);
    let directory = words.value("--dir")?.map_or_else(std::env::temp_dir, PathBuf::from);
    words.none_left()?;
    let fsx = std::env::var_os("FSX").map_or_else(|| PathBuf::from("fsx"), PathBuf::from);
    for seed in first..first + rounds {
        Round::of(seed, operations).run(&fsx, &directory)?;
    }
    println!("fsx: {} operations in {rounds} rounds, nothing wrong", operations * rounds);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_go_through_everything() {
        let rounds: Vec<Round> = (0..48).map(|seed| Round::of(seed, 1)).collect();
        assert!(RECORDS.iter().all(|record| rounds.iter().any(|round| round.record == *record)));
        assert!(COMPRESSIONS.iter().all(|name| rounds.iter().any(|round| round.compression == *name)));
        assert!(TRANSPORTS.iter().all(|name| rounds.iter().any(|round| round.transport == *name)));
        assert!(rounds.iter().any(|round| round.syncs) && rounds.iter().any(|round| !round.syncs));
        assert_eq!(Round::of(5, 9), Round::of(5, 9));
    }
}
