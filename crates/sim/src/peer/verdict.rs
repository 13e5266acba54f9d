//! Our turn: do we see what the kernel module saw, and can we work with what it left?

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use tarnfs::{Credentials, ImportOptions, Pool, WriteMode};

use super::machine::Seen;
use super::{Specimen, images_in};
use crate::golden::{Compare, Manifest, compare, open_images};
use crate::oracle::{OracleResult, zdb_check, zdb_check_damaged};
use crate::scenario::contents;

/// One pool's result.
#[derive(Debug)]
pub struct Row {
    /// Which pool.
    pub name: String,
    steps: Vec<Step>,
}

#[derive(Debug)]
struct Step {
    words: String,
    is_good: bool,
}

impl Row {
    /// The columns.
    pub const HEAD: &str = "pool: kernel module | what it saw is what we see | what it left, our checker | is what it says | zdb | written again";

    /// A pool that could not even be made.
    pub(super) fn failed(name: String, error: &anyhow::Error) -> Row {
        Row { name, steps: vec![Step { words: format!("not made: {error:#}"), is_good: false }] }
    }

    /// Everything was right.
    pub fn is_good(&self) -> bool {
        self.steps.iter().all(|step| step.is_good)
    }

    fn note(&mut self, result: Result<String>) {
        let step = match result {
            Ok(words) => Step { words, is_good: true },
            Err(error) => Step { words: format!("WRONG: {error:#}"), is_good: false },
        };
        self.steps.push(step);
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps: Vec<&str> = self.steps.iter().map(|step| step.words.as_str()).collect();
        write!(f, "{}: {}", self.name, steps.join(" | "))
    }
}

/// Judges one pool.
pub(super) fn judge(specimen: &Specimen, seen: &Seen) -> Row {
    let mut row = Row { name: specimen.name.clone(), steps: Vec::new() };
    row.note(kernel(seen));
    let given = specimen.images();
    row.note(given.and_then(|images| same(&images, &seen.directory.join("manifest-ro.json"))));
    if seen.is_clean != Some(true) {
        return row;
    }
    if specimen.full {
        return row;
    }
    let left = seen.directory.join("images");
    row.note(checked(&left));
    row.note(images_in(&left).and_then(|images| same(&images, &seen.directory.join("manifest-rw.json"))));
    row.note(zdb(&left, specimen.degraded));
    row.note(written_again(&left, specimen.degraded));
    row
}

fn kernel(seen: &Seen) -> Result<String> {
    match seen.is_clean {
        Some(true) => {
            let log = seen.log();
            let wrote = log.lines().find(|line| line.starts_with("wrote to")).unwrap_or("wrote nothing");
            Ok(format!("clean, {wrote}"))
        }
        Some(false) => {
            let log = seen.log();
            let wrong: Vec<&str> = log.lines().filter(|line| line.starts_with("WRONG")).collect();
            bail!("{} (see {})", wrong.join("; "), seen.directory.join("log").display())
        }
        None => bail!("the machine ended before it was done with this pool"),
    }
}

/// Compares what we read with what the kernel module said.
fn same(images: &[PathBuf], manifest: &Path) -> Result<String> {
    let text = std::fs::read_to_string(manifest).with_context(|| manifest.display().to_string())?;
    let manifest: Manifest = serde_json::from_str(&text)?;
    let pool = open_images(images)?;
    let report = compare(pool.as_ref(), &manifest, Compare::STRICT)?;
    if !report.is_same() {
        bail!("{} differences in {} files: {}", report.differences_found, report.files_compared, report.differences.iter().take(5).cloned().collect::<Vec<_>>().join("; "));
    }
    Ok(format!("{} datasets, {} files", report.datasets, report.files_compared))
}

fn import(directory: &Path, read_only: bool) -> Result<std::sync::Arc<Pool>> {
    let paths = [directory.to_owned()];
    let found = tarnfs::find_pools(&paths);
    ensure!(found.len() == 1, "{} pools in {}", found.len(), directory.display());
    let options = ImportOptions { read_only, force: true, ..ImportOptions::default() };
    Ok(Pool::import_found(&found[0], options)?)
}

/// Our checker on the images in a directory.
fn checked(directory: &Path) -> Result<String> {
    let pool = import(directory, true)?;
    let report = pool.check(true, &|_| ())?;
    pool.export()?;
    let shown: Vec<String> = report.findings.iter().take(5).map(ToString::to_string).collect();
    ensure!(report.is_clean(), "{} findings: {}", report.findings.len(), shown.join("; "));
    Ok(format!("{} blocks", report.blocks))
}

fn zdb(directory: &Path, degraded: bool) -> Result<String> {
    let images = images_in(directory)?;
    let images: Vec<&Path> = images.iter().map(PathBuf::as_path).collect();
    match if degraded { zdb_check_damaged(&images) } else { zdb_check(&images) } {
        OracleResult::Clean => Ok("clean".to_owned()),
        OracleResult::Wrong(text) => bail!("zdb: {text}"),
        OracleResult::Unavailable(reason) => bail!("zdb cannot be asked: {reason}"),
    }
}

/// We write a file into each file system and remove something; then the checkers look again.
fn written_again(directory: &Path, degraded: bool) -> Result<String> {
    let pool = import(directory, false)?;
    let names: Vec<String> = file_systems(&pool)?;
    for name in &names {
        let fs = pool.file_system(name)?;
        if fs.is_read_only() {
            continue;
        }
        let user = Credentials::root();
        let full = |error: &tarnfs::Error| matches!(error.kind(), tarnfs::ErrorKind::NoSpace | tarnfs::ErrorKind::Quota);
        let written = fs.create(fs.root(), b"tarn-again", 0o100_644, 0, &user).and_then(|stat| {
            fs.write(stat.inode, WriteMode::At(0), &contents(5, 300_000, 1), &user)?;
            fs.forget(stat.inode, 1);
            Ok(())
        });
        match written {
            Err(error) if !full(&error) => return Err(error.into()),
            _ => {}
        }
        fs.release_all();
    }
    pool.export()?;
    checked(directory)?;
    zdb(directory, degraded)?;
    Ok(format!("{} file systems", names.len()))
}

fn file_systems(pool: &Pool) -> Result<Vec<String>> {
    let dsl = &pool.engine().dsl;
    let mut waiting = vec![dsl.root_dir()?];
    let mut found = Vec::new();
    while let Some(dir) = waiting.pop() {
        let name = dir.full_name();
        if pool.file_system(&name).is_ok() {
            found.push(name);
        }
        waiting.extend(dsl.children(&dir)?.into_iter().filter(|(child, _)| !child.starts_with(['$', '%'])).map(|(_, child)| child));
    }
    Ok(found)
}
