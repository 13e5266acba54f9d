//! `fsperf ceiling`: serves the file system in memory that `run --on fuse-ceiling` measures.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use lab::comparator::ceiling;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Where it is mounted
    directory: PathBuf,
    /// How many bytes its files may take together
    limit: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    ceiling::serve(&arguments.directory, arguments.limit)
}
