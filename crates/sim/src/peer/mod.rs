//! The real kernel module as a peer: it works on pools of ours, and we on what it made of them.
//!
//! # Theory
//! A [`Specimen`] is a pool that we wrote and left in some state. One virtual machine gets many of them, as booting it is
//! slow: the kernel module imports each read-only and describes every file, imports it for writing, scrubs, writes, exports
//! and describes it again ([`machine`]). Then it is our turn ([`verdict`]): what the kernel saw must be what we see in the
//! images that it was given, its pool must satisfy our checker and the real `zdb` and be what it says it is, and we must be
//! able to write it once more.
//!
//! # Path
//! `cargo xtask oracle vm` → [`run`] → [`specimens::make`] → [`machine::run`] → [`verdict::judge`] → a table.

mod contents;
mod machine;
mod packages;
mod specimens;
pub mod space;
pub mod streams;
mod verdict;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

pub use verdict::Row;

/// A pool of ours, as files.
#[derive(Debug, Clone)]
pub struct Specimen {
    /// What it is.
    pub name: String,
    /// The directory of its images, which has nothing else in it.
    pub directory: PathBuf,
    /// A device is missing or behind on purpose: repairs are fine, data errors are not.
    pub degraded: bool,
    /// There is no room to write anything: it is only read.
    pub full: bool,
}

impl Specimen {
    /// The images, in the order of their names.
    pub fn images(&self) -> Result<Vec<PathBuf>> {
        images_in(&self.directory)
    }
}

fn images_in(directory: &Path) -> Result<Vec<PathBuf>> {
    let listed = std::fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut images = listed.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    images.sort();
    ensure!(!images.is_empty(), "{}: no images", directory.display());
    Ok(images)
}

/// The names of all specimens.
pub fn names() -> Vec<String> {
    specimens::all().into_iter().map(|recipe| recipe.name).collect()
}

/// Makes the specimens whose names contain one of `wanted` (all, if it is empty), adds those that are directories of
/// images, shows them to the kernel module, `batch` at a time, and prints a table into `place`, where everything is left.
/// Fails if anything is wrong.
pub fn run(wanted: &[&str], place: &Path, batch: usize) -> Result<()> {
    let mut chosen = Vec::new();
    let made = place.join("pools");
    std::fs::create_dir_all(&made)?;
    for recipe in specimens::all() {
        if wanted.is_empty() || wanted.iter().any(|word| recipe.name.contains(word)) {
            chosen.push(specimens::make(&recipe, &made));
        }
    }
    for directory in wanted.iter().map(Path::new).filter(|path| path.is_dir()) {
        chosen.extend(given(directory)?.into_iter().map(Ok));
    }
    ensure!(!chosen.is_empty(), "there is no specimen of these names; there are {}", names().join(" "));
    let mut rows = Vec::new();
    let mut specimens = Vec::new();
    for specimen in chosen {
        match specimen {
            Ok(specimen) => specimens.push(specimen),
            Err((name, error)) => rows.push(Row::failed(name, &error)),
        }
    }
    for some in specimens.chunks(batch.max(1)) {
        let seen = machine::run(some, place)?;
        for (specimen, seen) in some.iter().zip(seen) {
            let row = verdict::judge(specimen, &seen);
            println!("{row}");
            rows.push(row);
        }
    }
    println!("\n{}", Row::HEAD);
    rows.iter().for_each(|row| println!("{row}"));
    let wrong: Vec<&str> = rows.iter().filter(|row| !row.is_good()).map(|row| row.name.as_str()).collect();
    println!("{} pools, {} of them wrong", rows.len(), wrong.len());
    if !wrong.is_empty() {
        bail!("wrong: {} (logs, manifests and images are in {})", wrong.join(" "), place.display());
    }
    Ok(())
}

/// A directory with the images of a pool, or with such directories in it.
fn given(directory: &Path) -> Result<Vec<Specimen>> {
    let mut found = Vec::new();
    for path in images_in(directory)? {
        if path.is_dir() {
            found.extend(given(&path)?);
        }
    }
    if found.is_empty() {
        let name = directory.file_name().context("a directory has a name")?.to_string_lossy().into_owned();
        // One that was made before.
        let known = specimens::all().into_iter().find(|recipe| recipe.name == name);
        let (degraded, full) = known.map_or((false, false), |recipe| (recipe.degraded, recipe.full));
        found.push(Specimen { name, directory: directory.to_owned(), degraded, full });
    }
    Ok(found)
}
