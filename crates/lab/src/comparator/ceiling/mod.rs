//! `fuse-ceiling`: a file system in memory behind the transport that TarnFS is mounted through.
//!
//! # Theory
//!
//! What TarnFS loses to a file system of the kernel is lost in two places: on the way through FUSE, and in what is done at its end. This
//! one has the same way (crate `fuse`, with what the daemon agrees on with the kernel) and does next to nothing at its end. So what it
//! loses to others is FUSE's part, and what TarnFS loses to it is ours. It is served by a process of its own, as TarnFS is, so that
//! processor time and memory are measured of both alike.
//!
//! It has no disk, and `fsync` does nothing: in durable and cold tests it shows the transport, and nothing that a file system could do.
//! So it is never called the first of the file systems ([`is_one`]).
//!
//! # Path
//!
//! `fsperf run --on fuse-ceiling` → [`prepare`] → `fsperf ceiling DIRECTORY` → [`serve()`] → [`memory`]

mod contents;
mod memory;
mod nodes;
mod serve;

#[cfg(test)]
mod tests;

use std::fs;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{Attempt, Setup, folder, no_fuse, unmount};
use crate::process;
use crate::system;
use crate::target::{self, Prepared};
use crate::undo::Undo;

pub use serve::serve;

/// What it is called.
pub const NAME: &str = "fuse-ceiling";
/// The hidden subcommand of `fsperf` that serves it.
pub const COMMAND: &str = "ceiling";
/// What every report says of it.
const WORDS: &str = "a file system in memory behind TarnFS's transport: no disk, fsync does nothing";
/// How long the process may take to end when its mount has ended.
const PATIENCE: Duration = Duration::from_secs(10);

/// Is a system of this label such a file system? It keeps nothing, and so it is not compared as one that does.
pub fn is_one(label: &str) -> bool {
    label == NAME || label.strip_prefix(NAME).is_some_and(|rest| rest.starts_with(':'))
}

/// The program that serves it: this one, or the one beside it.
fn program() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    // A test is in a folder below the programs.
    let beside = own.ancestors().skip(1).take(2).map(|folder| folder.join("fsperf"));
    beside.into_iter().find(|program| program.is_file())
}

/// Starts the process; returns it, and how it is served.
fn start(program: &Path, mounted: &Path, limit_bytes: u64) -> Result<(Child, String)> {
    let mut command = Command::new(program);
    command.arg(COMMAND).arg(mounted).arg(limit_bytes.to_string()).process_group(0);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().context("cannot start it")?;
    let mut said = String::new();
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    BufReader::new(stdout.context("it has no output")?).read_line(&mut said)?;
    if !said.is_empty() {
        return Ok((child, said.trim().to_owned()));
    }
    let mut complaint = String::new();
    stderr.context("it has no output for errors")?.read_to_string(&mut complaint)?;
    child.wait()?;
    bail!("{}", process::in_a_line(&complaint));
}

fn end(mut child: Child, mounted: &Path) -> Result<()> {
    let unmounted = unmount(mounted);
    // Without its input it takes the mount away itself, whatever it is used by.
    drop(child.stdin.take());
    if process::wait(&mut child, PATIENCE)?.is_none() {
        child.kill()?;
        child.wait()?;
        bail!("the process that serves it does not end: killed");
    }
    unmounted
}

pub(super) fn prepare(setup: &Setup) -> Result<Attempt> {
    let skipped = |why: &str| Ok(Attempt::Skipped(format!("{NAME}: {why}")));
    if setup.disks > 1 || setup.model.is_some() {
        return skipped("it has no disk, and so neither several nor a simulated one");
    }
    let Some(program) = program() else {
        return skipped("fsperf serves it, and is not beside this program (cargo build -p lab)");
    };
    if let Some(why) = no_fuse() {
        return skipped(why);
    }
    let free = system::free_memory_bytes().unwrap_or(setup.image_bytes);
    let limit = setup.image_bytes.min(free / 4 * 3);
    let mut undo = Undo::new();
    let folder = folder(setup, NAME, &mut undo)?;
    let mounted = folder.join("mounted");
    fs::create_dir(&mounted)?;
    let (child, transport) = start(&program, &mounted, limit).with_context(|| format!("{NAME} on {}", mounted.display()))?;
    let (number, directory, synced) = (child.id(), mounted.clone(), mounted.clone());
    undo.push(format!("end {NAME}"), move || end(child, &directory));
    let drop_caches = move || {
        rustix::fs::syncfs(&File::open(&synced)?).context("cannot sync")?;
        target::drop_kernel_caches();
        Ok(())
    };
    let description = format!("{WORDS}; up to {} MB, over {transport}", limit >> 20);
    let target = Prepared::new(setup.label(NAME), description, mounted, drop_caches, undo)
        .served_by(move || Some(number))
        .fact("version", env!("CARGO_PKG_VERSION"))
        .fact("TARN_FUSE", std::env::var("TARN_FUSE").unwrap_or_default());
    Ok(Attempt::Ready(Box::new(target)))
}
