//! A tree of real files: listed, copied, compared.
//!
//! # Invariants
//!
//! 1. The comparison takes the list that was copied, and the copy must hold that and nothing else.
//! 2. An original that changed while it was copied is no fault of the copy; it is counted, not compared.

use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use lab::interrupt;
use rustix::fs::{Timespec, Timestamps};
use walkdir::WalkDir;

const BUFFER: usize = 1 << 20;

/// How much is enough.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) files: usize,
    pub(super) bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Directory,
    File { bytes: u64 },
    Link { target: PathBuf },
}

/// An entry as it was when it was listed.
#[derive(Debug, Clone)]
struct Entry {
    relative: PathBuf,
    kind: Kind,
    mode: u32,
    modified: (i64, i64),
}

/// A tree to be copied.
pub(super) struct Tree {
    pub(super) root: PathBuf,
    pub(super) files: usize,
    pub(super) bytes: u64,
    /// There was more than the bounds allow.
    pub(super) cut: bool,
    entries: Vec<Entry>,
}

/// The result of a comparison.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub(super) files: usize,
    pub(super) others: usize,
    pub(super) bytes: u64,
    pub(super) changed_meanwhile: usize,
    pub(super) differences: Vec<String>,
}

fn entry(root: &Path, path: &Path) -> Option<Entry> {
    let metadata = fs::symlink_metadata(path).ok()?;
    let kind = match metadata.file_type() {
        kind if kind.is_dir() => Kind::Directory,
        kind if kind.is_symlink() => Kind::Link { target: fs::read_link(path).ok()? },
        kind if kind.is_file() => {
            // Files that we may not read are not copied.
            File::open(path).ok()?;
            Kind::File { bytes: metadata.len() }
        }
        _ => return None,
    };
    let relative = path.strip_prefix(root).ok()?.to_owned();
    Some(Entry { relative, kind, mode: metadata.mode() & 0o777, modified: (metadata.mtime(), metadata.mtime_nsec()) })
}

impl Tree {
    /// Lists what is below `root`, up to the bounds, without what `left_out` names.
    pub(super) fn list(root: &Path, bounds: Bounds, left_out: &[&str]) -> Result<Tree> {
        let root = root.canonicalize().with_context(|| root.display().to_string())?;
        let mut tree = Tree { root: root.clone(), files: 0, bytes: 0, cut: false, entries: Vec::new() };
        let kept = |name: &std::ffi::OsStr| !left_out.iter().any(|out| name == *out);
        let walk = WalkDir::new(&root).min_depth(1).same_file_system(true).sort_by_file_name().into_iter();
        for found in walk.filter_entry(|found| found.depth() == 0 || kept(found.file_name())) {
            interrupt::check()?;
            let Some(entry) = found.ok().and_then(|found| entry(&root, found.path())) else { continue };
            if let Kind::File { bytes } = entry.kind {
                if tree.files >= bounds.files || tree.bytes + bytes > bounds.bytes {
                    tree.cut = true;
                    break;
                }
                tree.files += 1;
                tree.bytes += bytes;
            }
            tree.entries.push(entry);
        }
        Ok(tree)
    }

    /// Copies it to `to`; `progress` is told of bytes as they are written.
    pub(super) fn copy(&self, to: &Path, progress: &dyn Fn(u64)) -> Result<()> {
        let mut buffer = vec![0; BUFFER];
        fs::create_dir(to).with_context(|| format!("cannot make {}", to.display()))?;
        for entry in &self.entries {
            interrupt::check()?;
            let target = to.join(&entry.relative);
            let made = match &entry.kind {
                Kind::Directory => fs::create_dir(&target),
                Kind::Link { target: place } => symlink(place, &target),
                Kind::File { .. } => self.copy_file(entry, &target, &mut buffer, progress),
            };
            made.with_context(|| format!("cannot copy to {}", target.display()))?;
        }
        // Directories last, deepest first: filling one changes its time, and one may forbid being filled.
        for entry in self.entries.iter().rev().filter(|entry| entry.kind == Kind::Directory) {
            let target = to.join(&entry.relative);
            let done = File::open(&target).and_then(|directory| finish(&directory, entry));
            done.with_context(|| format!("cannot set the attributes of {}", target.display()))?;
        }
        Ok(())
    }

    fn copy_file(&self, entry: &Entry, target: &Path, buffer: &mut [u8], progress: &dyn Fn(u64)) -> std::io::Result<()> {
        let mut from = match File::open(self.root.join(&entry.relative)) {
            // Gone since it was listed: the comparison will see that too.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            from => from?,
        };
        let mut copy = File::create_new(target)?;
        loop {
            let got = from.read(buffer)?;
            if got == 0 {
                return finish(&copy, entry);
            }
            copy.write_all(&buffer[..got])?;
            progress(got as u64);
        }
    }

    /// Compares the copy at `to` with the original.
    pub(super) fn compare(&self, to: &Path, progress: &dyn Fn(u64)) -> Result<Comparison> {
        let mut comparison = Comparison::default();
        let mut buffers = (vec![0; BUFFER], vec![0; BUFFER]);
        for listed in &self.entries {
            interrupt::check()?;
            if !self.is_as_listed(listed) {
                comparison.changed_meanwhile += 1;
                continue;
            }
            match &listed.kind {
                Kind::File { bytes } => {
                    comparison.files += 1;
                    comparison.bytes += bytes;
                }
                _ => comparison.others += 1,
            }
            if let Err(difference) = self.compare_entry(listed, to, &mut buffers, progress) {
                // Unless it changed under our eyes.
                if self.is_as_listed(listed) {
                    comparison.differences.push(format!("{}: {difference:#}", to.join(&listed.relative).display()));
                }
            }
        }
        let there = WalkDir::new(to).min_depth(1).into_iter().filter(Result::is_ok).count();
        if there != self.entries.len() && comparison.changed_meanwhile == 0 {
            comparison.differences.push(format!("{}: {there} entries instead of {}", to.display(), self.entries.len()));
        }
        Ok(comparison)
    }

    fn is_as_listed(&self, listed: &Entry) -> bool {
        entry(&self.root, &self.root.join(&listed.relative)).is_some_and(|now| now.kind == listed.kind && now.modified == listed.modified)
    }

    fn compare_entry(&self, listed: &Entry, to: &Path, buffers: &mut (Vec<u8>, Vec<u8>), progress: &dyn Fn(u64)) -> Result<()> {
        let path = to.join(&listed.relative);
        let metadata = fs::symlink_metadata(&path)?;
        let copied = entry(to, &path).context("cannot be read")?;
        anyhow::ensure!(copied.kind == listed.kind, "{:?} instead of {:?}", copied.kind, listed.kind);
        if let Kind::Link { .. } = listed.kind {
            return Ok(());
        }
        anyhow::ensure!(copied.mode == listed.mode, "mode {:o} instead of {:o}", metadata.mode() & 0o777, listed.mode);
        anyhow::ensure!(copied.modified == listed.modified, "modified {:?} instead of {:?}", copied.modified, listed.modified);
        if let Kind::File { bytes } = listed.kind {
            compare_contents(&self.root.join(&listed.relative), &path, bytes, buffers, progress)?;
        }
        Ok(())
    }
}

/// Permissions and time of what was copied.
fn finish(copy: &File, entry: &Entry) -> std::io::Result<()> {
    let (tv_sec, tv_nsec) = entry.modified;
    let time = Timespec { tv_sec, tv_nsec };
    rustix::fs::futimens(copy, &Timestamps { last_access: time, last_modification: time })?;
    copy.set_permissions(Permissions::from_mode(entry.mode))
}

fn compare_contents(
    original: &Path,
    copy: &Path,
    bytes: u64,
    (left, right): &mut (Vec<u8>, Vec<u8>),
    progress: &dyn Fn(u64),
) -> Result<()> {
    let (mut original, mut copy) = (File::open(original)?, File::open(copy)?);
    let mut offset = 0;
    while offset < bytes {
        interrupt::check()?;
        let length = (bytes - offset).min(BUFFER as u64) as usize;
        original.read_exact(&mut left[..length]).context("the original cannot be read")?;
        copy.read_exact(&mut right[..length]).context("cannot be read")?;
        if let Some(at) = (0..length).find(|at| left[*at] != right[*at]) {
            anyhow::bail!("differs from the original at byte {}", offset + at as u64);
        }
        offset += length as u64;
        progress(length as u64);
    }
    anyhow::ensure!(copy.read(&mut right[..1])? == 0, "longer than the original");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLENTY: Bounds = Bounds { files: 100, bytes: 1 << 24 };

    fn original() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("a/b")).unwrap();
        fs::create_dir_all(root.path().join("target/junk")).unwrap();
        fs::write(root.path().join("a/b/long"), vec![7; BUFFER + 5]).unwrap();
        fs::write(root.path().join("a/empty"), b"").unwrap();
        symlink("../nowhere", root.path().join("a/link")).unwrap();
        fs::set_permissions(root.path().join("a/empty"), Permissions::from_mode(0o640)).unwrap();
        root
    }

    #[test]
    fn a_copy_is_like_its_original_and_a_change_is_found() {
        let (root, place) = (original(), tempfile::tempdir().unwrap());
        let copy = place.path().join("copy");
        let tree = Tree::list(root.path(), PLENTY, &["target"]).unwrap();
        assert_eq!((tree.files, tree.bytes, tree.cut), (2, BUFFER as u64 + 5, false));
        tree.copy(&copy, &|_| ()).unwrap();
        let differences = || tree.compare(&copy, &|_| ()).unwrap().differences;
        let same = tree.compare(&copy, &|_| ()).unwrap();
        assert_eq!((same.files, same.others, same.differences.as_slice()), (2, 3, [].as_slice()));

        let long = copy.join("a/b/long");
        let modified = fs::metadata(&long).unwrap().modified().unwrap();
        let spoil = |byte: u8| {
            use std::os::unix::fs::FileExt;
            let file = File::options().write(true).open(&long).unwrap();
            file.write_all_at(&[byte], BUFFER as u64 + 1).unwrap();
            file.set_modified(modified).unwrap();
        };
        spoil(8);
        assert!(differences()[0].ends_with(&format!("a/b/long: differs from the original at byte {}", BUFFER + 1)));
        spoil(7);
        assert!(differences().is_empty());

        fs::set_permissions(copy.join("a/empty"), Permissions::from_mode(0o600)).unwrap();
        assert!(differences()[0].ends_with("mode 600 instead of 640"));
        fs::set_permissions(copy.join("a/empty"), Permissions::from_mode(0o640)).unwrap();
        fs::write(copy.join("more"), b"").unwrap();
        assert!(differences()[0].contains("6 entries instead of 5"));
        fs::remove_file(copy.join("more")).unwrap();
        fs::remove_file(copy.join("a/link")).unwrap();
        // The link, the number of entries, and the time of the directory.
        assert_eq!(differences().len(), 3);
    }

    #[test]
    fn the_bounds_hold() {
        let root = original();
        let tree = Tree::list(root.path(), Bounds { files: 1, bytes: 1 << 24 }, &[]).unwrap();
        assert_eq!((tree.files, tree.cut), (1, true));
        let tree = Tree::list(root.path(), Bounds { files: 100, bytes: 10 }, &[]).unwrap();
        assert_eq!((tree.files, tree.cut), (0, true));
    }

    #[test]
    fn an_original_that_changed_is_not_held_against_the_copy() {
        let (root, place) = (original(), tempfile::tempdir().unwrap());
        let copy = place.path().join("copy");
        let tree = Tree::list(root.path(), PLENTY, &["target"]).unwrap();
        tree.copy(&copy, &|_| ()).unwrap();
        fs::write(root.path().join("a/empty"), b"not any more").unwrap();
        let comparison = tree.compare(&copy, &|_| ()).unwrap();
        assert_eq!((comparison.files, comparison.changed_meanwhile, comparison.differences.len()), (1, 1, 0));
    }
}
