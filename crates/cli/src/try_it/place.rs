//! Where the tour can take place, and whether it can.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use lab::system;

/// The space that the tour needs at its largest moment.
const NEEDED_BYTES: u64 = 3 << 30;

/// Can a file system be mounted by us?
pub(super) fn expect_fuse() -> Result<()> {
    ensure!(Path::new("/dev/fuse").exists(), "there is no /dev/fuse here, and without it nothing can be mounted (modprobe fuse?)");
    if !rustix::process::geteuid().is_root() && lab::process::find("fusermount3").is_none() {
        bail!("mounting without being root takes fusermount3 (the package fuse3)");
    }
    File::options().read(true).write(true).open("/dev/fuse").context("cannot open /dev/fuse, and without it nothing can be mounted")?;
    Ok(())
}

fn in_memory(directory: &Path) -> bool {
    system::mount_of(directory).is_some_and(|mount| matches!(mount.kind.as_str(), "tmpfs" | "ramfs"))
}

/// A directory to make the temporary one in: on a disk if there is one, so that the comparison is with a disk.
pub(super) fn parent(wanted: Option<&Path>) -> Result<PathBuf> {
    let fits = |directory: &Path| system::free_space_bytes(directory).is_some_and(|bytes| bytes >= NEEDED_BYTES);
    if let Some(directory) = wanted {
        ensure!(directory.is_dir(), "{} is not a directory", directory.display());
        ensure!(fits(directory), "{} has not the {} GB free that this takes", directory.display(), NEEDED_BYTES >> 30);
        return Ok(directory.canonicalize()?);
    }
    let mut candidates = vec![std::env::temp_dir(), PathBuf::from("/var/tmp")];
    candidates.extend(std::env::current_dir().ok());
    candidates.retain(|directory| fits(directory));
    candidates.sort_by_key(|directory| in_memory(directory));
    match candidates.first() {
        Some(directory) => Ok(directory.canonicalize()?),
        None => bail!("no directory with {} GB free; name one with --in DIR", NEEDED_BYTES >> 30),
    }
}

/// This project's own checkout, if it is still where it was built.
pub(super) fn checkout() -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?;
    built.join("Cargo.toml").exists().then(|| built.to_owned())
}

/// Trees that most machines have, the more interesting ones first.
pub(super) fn larger_trees() -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| home.map(|home| home.join(".cargo")));
    let mut trees: Vec<PathBuf> = cargo.map(|cargo| cargo.join("registry/src")).into_iter().collect();
    trees.extend(["/usr/src", "/usr/include", "/usr/share", "/usr/lib"].map(PathBuf::from));
    trees
}
