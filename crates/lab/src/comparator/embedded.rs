//! `tarn-embedded`: the library in this very process, without a mount.
//!
//! # Theory
//!
//! The same pool as the comparator `tarn` has, the same engine, and no kernel between the workload and it: what both
//! differ by is what FUSE costs. There is no page cache either; what is cached is cached by the engine.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, anyhow, ensure};
use parking_lot::RwLock;
use tarnfs::{
    AccessTime, CreateOptions, Credentials, FileKind, FileSystem, ImportOptions, InodeNumber, Pool, PropertyChange, PropertyValue,
    VdevPaths, WriteMode,
};

use super::{Attempt, Setup, Stand, folder};
use crate::storage::{Handle, Open, Storage};
use crate::target::{self, Target};
use crate::undo::Undo;

const POOL: &str = "fsperf-embedded";
/// The number of `compression=off`.
const COMPRESSION_OFF: u64 = 2;

struct Opened {
    pool: Arc<Pool>,
    files: Arc<FileSystem>,
}

/// The pool, for several threads.
struct Library {
    /// guards: the pool; `None` only while it is taken anew, and after it could not be
    opened: RwLock<Option<Opened>>,
}

/// The pool as a target.
struct Embedded {
    name: String,
    files: Vec<PathBuf>,
    description: String,
    library: Library,
    // After the pool.
    _undo: Undo,
}

struct OpenFile {
    files: Arc<FileSystem>,
    inode: InodeNumber,
    synchronous: bool,
    position: AtomicU64,
}

fn plain(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("{error}")
}

fn open(pool: Arc<Pool>) -> Result<Opened> {
    let files = pool.file_system(POOL).map_err(plain)?;
    let options = tarnfs::MountOptions { access_time: AccessTime::Off, ..files.options() };
    files.set_options(options);
    Ok(Opened { pool, files })
}

/// A pool on these, with the properties that every ZFS gets ([`super::ORDINARY`]; `atime` is an option of the mount here).
fn make_pool(paths: &[PathBuf]) -> Result<Arc<Pool>> {
    let vdevs: Vec<VdevPaths> = paths.iter().map(|path| VdevPaths { paths: vec![path.clone()], ..VdevPaths::default() }).collect();
    let uncompressed = PropertyChange::Set(PropertyValue::Number(COMPRESSION_OFF));
    let options = CreateOptions { properties: vec![("compression".to_owned(), uncompressed)], ..CreateOptions::default() };
    Pool::create(POOL, &vdevs, options).map_err(plain)
}

pub(super) fn prepare(setup: &Setup) -> Result<Attempt> {
    if !setup.properties.is_empty() {
        return Ok(Attempt::Skipped("tarn-embedded: it has no zpool command to take properties".to_owned()));
    }
    let mut undo = Undo::new();
    let folder = folder(setup, "tarn-embedded", &mut undo)?;
    let Stand { paths: files, words, .. } = setup.stand(&folder, &mut undo)?;
    let library = Library { opened: RwLock::new(Some(open(make_pool(&files)?)?)) };
    let description = format!("the TarnFS library {} without a mount, {words}, {}", env!("CARGO_PKG_VERSION"), setup.properties_in_words());
    Ok(Attempt::Ready(Box::new(Embedded { name: setup.label("tarn-embedded"), files, description, library, _undo: undo })))
}

impl Library {
    fn files(&self) -> Result<Arc<FileSystem>> {
        Ok(Arc::clone(&self.opened.read().as_ref().context("the pool was lost when its caches were emptied")?.files))
    }

    /// The directory of a path, and its last name.
    fn parent<'a>(files: &FileSystem, path: &'a Path) -> Result<(InodeNumber, &'a [u8])> {
        let mut names: Vec<&[u8]> = path.iter().map(|name| name.as_encoded_bytes()).filter(|name| *name != b"/").collect();
        let last = names.pop().context("a path without a name")?;
        let mut inode = files.root();
        for name in names {
            let found = files.lookup(inode, name).map_err(plain)?.inode;
            files.forget(found, 1);
            inode = found;
        }
        Ok((inode, last))
    }

    fn remove_below(files: &FileSystem, directory: InodeNumber, name: &[u8]) -> Result<()> {
        let found = files.lookup(directory, name).map_err(plain)?;
        let mut names = Vec::new();
        if found.kind() == FileKind::Directory {
            let mut emit = |entry: tarnfs::DirectoryEntry| {
                if entry.name != b"." && entry.name != b".." {
                    names.push(entry.name.to_vec());
                }
                true
            };
            files.read_directory(found.inode, 0, &mut emit).map_err(plain)?;
            for name in names {
                Self::remove_below(files, found.inode, &name)?;
            }
            files.rmdir(directory, name).map_err(plain)?;
        } else {
            files.unlink(directory, name).map_err(plain)?;
        }
        files.forget(found.inode, 1);
        Ok(())
    }
}

impl Target for Embedded {
    fn name(&self) -> &str {
        &self.name
    }

    fn directory(&self) -> &Path {
        Path::new("/")
    }

    fn drop_caches(&self) -> Result<()> {
        let mut opened = self.library.opened.write();
        let Some(Opened { pool, files }) = opened.take() else { return Ok(()) };
        drop(files);
        pool.export().map_err(plain)?;
        drop(pool);
        for file in &self.files {
            target::forget_file(file)?;
        }
        target::drop_kernel_caches();
        *opened = Some(open(Pool::import(&self.files, POOL, ImportOptions::default()).map_err(plain)?)?);
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        match self.library.opened.read().as_ref() {
            Some(opened) => opened.pool.sync().map_err(plain),
            None => Ok(()),
        }
    }

    fn description(&self) -> String {
        self.description.clone()
    }

    fn process(&self) -> Option<u32> {
        Some(std::process::id())
    }

    fn beneath(&self) -> &Path {
        self.files.first().map_or(Path::new("/"), PathBuf::as_path)
    }

    fn storage(&self) -> &dyn Storage {
        &self.library
    }

    fn is_mounted(&self) -> bool {
        false
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        if let Some(Opened { pool, files }) = self.library.opened.get_mut().take() {
            drop(files);
            if let Err(error) = pool.destroy() {
                crate::errln!("warning: could not destroy the embedded pool: {error}");
            }
        }
    }
}

impl Storage for Library {
    fn open(&self, path: &Path, how: Open) -> Result<Box<dyn Handle>> {
        let files = self.files()?;
        let (directory, name) = Self::parent(&files, path)?;
        let name_of = || format!("{} on tarn-embedded", path.display());
        let found = files.lookup(directory, name);
        let inode = match (how, found) {
            (Open::Existing | Open::ExistingSynchronous, found) => found.map_err(plain).with_context(name_of)?.inode,
            (_, Ok(found)) => {
                files.truncate(found.inode, 0, &Credentials::root()).map_err(plain).with_context(name_of)?;
                found.inode
            }
            (_, Err(_)) => {
                files.create(directory, name, 0o100_644, 0, &Credentials::root()).map_err(plain).with_context(name_of)?.inode
            }
        };
        let synchronous = matches!(how, Open::CreateSynchronous | Open::ExistingSynchronous);
        Ok(Box::new(OpenFile { files, inode, synchronous, position: AtomicU64::new(0) }))
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        let files = self.files()?;
        let (directory, name) = Self::parent(&files, path)?;
        files.unlink(directory, name).map_err(plain)
    }

    fn make_directory(&self, path: &Path) -> Result<()> {
        let files = self.files()?;
        let (directory, name) = Self::parent(&files, path)?;
        let made = files.mkdir(directory, name, 0o40_755, &Credentials::root()).map_err(plain)?;
        files.forget(made.inode, 1);
        Ok(())
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        let files = self.files()?;
        let (directory, name) = Self::parent(&files, path)?;
        Self::remove_below(&files, directory, name)
    }
}

impl Handle for OpenFile {
    fn read(&self, buffer: &mut [u8]) -> Result<usize> {
        let position = self.position.load(Ordering::Relaxed);
        let got = self.files.read_into(self.inode, position, buffer).map_err(plain)?;
        self.position.store(position + got as u64, Ordering::Relaxed);
        Ok(got)
    }

    fn write(&self, piece: &[u8]) -> Result<()> {
        let position = self.position.load(Ordering::Relaxed);
        self.write_all_at(piece, position)?;
        self.position.store(position + piece.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let got = self.files.read_into(self.inode, offset, buffer).map_err(plain)?;
        ensure!(got == buffer.len(), "the file ends at {}", offset + got as u64);
        Ok(())
    }

    fn write_all_at(&self, piece: &[u8], offset: u64) -> Result<()> {
        self.files.write(self.inode, WriteMode::At(offset), piece, &Credentials::root()).map_err(plain)?;
        if self.synchronous { self.sync() } else { Ok(()) }
    }

    fn rewind(&self) -> Result<()> {
        self.position.store(0, Ordering::Relaxed);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.files.fsync(self.inode).map_err(plain)
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.files.forget(self.inode, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_not_compressed() {
        let scratch = tempfile::tempdir().unwrap();
        let image = scratch.path().join("image");
        std::fs::File::create_new(&image).unwrap().set_len(256 << 20).unwrap();
        let library = Library { opened: RwLock::new(Some(open(make_pool(&[image]).unwrap()).unwrap())) };
        library.open(Path::new("/file"), Open::Create).unwrap().write(&[b'a'; 1 << 20]).unwrap();
        let Some(Opened { pool, files }) = library.opened.into_inner() else { panic!("it has a pool") };
        pool.sync().unwrap();
        let stat = files.lookup(files.root(), b"file").unwrap();
        assert!(stat.allocated >= 1 << 20, "{} bytes", stat.allocated);
        files.forget(stat.inode, 1);
        drop(files);
        pool.destroy().unwrap();
    }
}
