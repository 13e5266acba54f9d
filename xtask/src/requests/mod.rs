//! `cargo xtask requests`: how many requests the kernel sends for what programs do, by kind, and how long one takes.
//!
//! # Theory
//!
//! A file system of the kernel is asked for everything with a call of a function, one in user space with two switches between programs. So the
//! first thing to know of a slow program is what it made the kernel ask for. The pool is one on a file, with a daemon of its own;
//! `--on fuse-ceiling` counts the same for a file system in memory behind the same transport: what it is not asked for need not be asked.
//! The time is that of the work by its own clock, with the tracer on, which takes about a tenth of a microsecond for each request.

mod table;
mod trace;
mod work;

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use lab::comparator::{Attempt, Setup, prepare};
use lab::interrupt;
use lab::target::Target;
use lab::undo::{self, Undo};

use crate::words::Words;
use table::Row;
use trace::Tracer;
use work::{Ground, WORK, Work};

pub(crate) const HELP: &str = "\
cargo xtask requests [--on NAME,...] [--files N] [--seed N] [--dir DIRECTORY] [WORKLOAD...]
                                     the kernel's requests to a mount, by kind, for postmark, tar, rm, unlink, stat, git, build (root);
                                     NAME is tarn or fuse-ceiling; beside them what is wanted of them, and the time of one
";

const IMAGE_BYTES: u64 = 4 << 30;
const FILES: usize = 4_000;

/// Does a piece of work, counted.
fn measure(tracer: &Tracer, counted: work::Counted<'_>) -> Result<Row> {
    let work::Counted { name, unit, units, wanted, run } = counted;
    let counting = tracer.count()?;
    let began = Instant::now();
    run().with_context(|| name.to_owned())?;
    let seconds = began.elapsed().as_secs_f64();
    Ok(Row { name, unit, units, wanted, counts: counting.end()?, seconds })
}

fn count(ground: &Ground<'_>, chosen: &[&Work]) -> Result<Vec<Row>> {
    let tracer = Tracer::new(ground.target.directory(), ground.scratch)?;
    let mut rows = Vec::new();
    for work in chosen {
        interrupt::check()?;
        let place = ground.target.directory().join(work.name);
        fs::create_dir(&place).with_context(|| format!("cannot make {}", place.display()))?;
        match (work.begin)(ground, place.clone()).with_context(|| work.name.to_owned())? {
            Some(all) => {
                for counted in all {
                    // What was prepared is written, and does not cost what is counted.
                    ground.target.settle()?;
                    rows.push(measure(&tracer, counted)?);
                }
            }
            None => sim::places::skipped(&format!("requests of {}: what it takes is not installed", work.about)),
        }
        fs::remove_dir_all(&place)?;
    }
    Ok(rows)
}

fn chosen(words: &[&str]) -> Result<Vec<&'static Work>> {
    for word in words {
        let names = || WORK.iter().map(|work| format!("{} ({})", work.name, work.about)).collect::<Vec<_>>().join(", ");
        ensure!(WORK.iter().any(|work| work.name == *word), "there is no workload {word}; there are {}", names());
    }
    Ok(WORK.iter().filter(|work| words.is_empty() || words.contains(&work.name)).collect())
}

pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let mut words = Words::new(arguments);
    let on: Vec<&str> = words.value("--on")?.unwrap_or("tarn").split(',').collect();
    let (files, seed) = (words.number("--files")?.unwrap_or(FILES), words.number("--seed")?.unwrap_or(42));
    let directory = words.value("--dir")?.map_or_else(std::env::temp_dir, PathBuf::from);
    let chosen = chosen(&words.rest())?;
    ensure!(rustix::process::geteuid().is_root(), "requests are counted by the kernel's tracer, which takes root");
    let tarn = crate::mounted::tarn()?;
    interrupt::guard(|| {
        let mut undo = Undo::new();
        let scratch = undo::scratch_directory(&directory.canonicalize()?, "tarn-requests-", &mut undo)?;
        for name in &on {
            let setup = Setup::new(scratch.clone(), IMAGE_BYTES, tarn.clone());
            let target: Box<dyn Target> = match prepare(name, &setup)? {
                Attempt::Ready(target) => target,
                Attempt::Skipped(why) => bail!("{why}"),
            };
            println!("{name}: {}", target.description());
            let rows = count(&Ground { target: target.as_ref(), scratch: &scratch, files, seed }, &chosen)?;
            println!("\n{}", table::table(&rows));
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_have_names() {
        assert_eq!(chosen(&[]).unwrap().len(), WORK.len());
        assert_eq!(chosen(&["stat", "tar"]).unwrap().iter().map(|work| work.name).collect::<Vec<_>>(), ["tar", "stat"]);
        let error = chosen(&["tar", "cp"]).err().unwrap().to_string();
        assert!(error.starts_with("there is no workload cp; there are postmark (5,000 files"), "{error}");
    }

    /// The kernel asks once for each name to be removed, and perhaps looks at its directory: the counts are of this mount, and whole.
    #[test]
    fn unlinking_is_counted() {
        let setup = Setup::new(std::env::temp_dir(), 1 << 30, PathBuf::from("tarn"));
        if !rustix::process::geteuid().is_root() {
            return sim::places::skipped("counting requests: the tracer takes root");
        }
        let target = match prepare("fuse-ceiling", &setup).unwrap() {
            Attempt::Ready(target) => target,
            Attempt::Skipped(why) => return sim::places::skipped(&format!("counting requests: {why}")),
        };
        let scratch = tempfile::tempdir().unwrap();
        let ground = Ground { target: target.as_ref(), scratch: scratch.path(), files: 120, seed: 1 };
        let rows = match count(&ground, &chosen(&["unlink", "stat"]).unwrap()) {
            Err(error) if error.to_string().contains("tracepoint") => return sim::places::skipped(&format!("counting requests: {error:#}")),
            rows => rows.unwrap(),
        };
        assert_eq!(rows.iter().map(|row| (row.name, row.units)).collect::<Vec<_>>(), [("unlink", 120), ("stat", 120)]);
        let counts = &rows[0].counts;
        assert_eq!((counts.get("UNLINK"), counts.get("CREATE"), counts.get("WRITE")), (Some(&120), None, None), "{counts:?}");
        assert!(rows[0].all() < 250, "{counts:?}");
        assert_eq!(rows[1].all(), 0, "{:?}", rows[1].counts);
    }
}
