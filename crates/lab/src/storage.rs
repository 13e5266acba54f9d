//! Files as a workload sees them: through system calls on a mounted file system, or through a library without a mount.
//!
//! # Theory
//!
//! The difference between the two is what the way through the kernel costs. What can be done on both goes through
//! [`Storage`]; a dynamic call in front of a system call does not show.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result};

/// For [`OpenOptionsExt::custom_flags`]: each write waits until the data is stable, and as much of the attributes as it takes to read
/// it. From libc: what rustix calls so asks for `O_SYNC` on some of its backends.
pub(crate) const WRITE_THROUGH: i32 = libc::O_DSYNC;

/// How to open a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    /// A new one, or an old one made empty, only to be written (`creat`).
    Create,
    /// The same, to be written and read.
    CreateAndRead,
    /// A new one; each write waits for stable storage (O_DSYNC).
    CreateSynchronous,
    /// One that exists.
    Existing,
    /// One that exists; each write waits for stable storage.
    ExistingSynchronous,
}

/// An open file, with a position as system calls have it.
pub trait Handle: Send + Sync {
    /// Reads from the position on; fewer bytes than asked for only at the end of the file.
    fn read(&self, buffer: &mut [u8]) -> Result<usize>;
    /// Writes all of it from the position on.
    fn write(&self, piece: &[u8]) -> Result<()>;
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()>;
    fn write_all_at(&self, piece: &[u8], offset: u64) -> Result<()>;
    /// To the beginning.
    fn rewind(&self) -> Result<()>;
    /// Waits until the file is on stable storage.
    fn sync(&self) -> Result<()>;
}

/// Where files are. Paths begin with the directory of the target.
pub trait Storage: Sync {
    fn open(&self, path: &Path, how: Open) -> Result<Box<dyn Handle>>;
    fn remove_file(&self, path: &Path) -> Result<()>;
    fn make_directory(&self, path: &Path) -> Result<()>;
    /// With everything in it.
    fn remove_directory(&self, path: &Path) -> Result<()>;
}

/// System calls.
pub struct Host;

impl Handle for File {
    fn read(&self, buffer: &mut [u8]) -> Result<usize> {
        let mut file = self;
        Ok(Read::read(&mut file, buffer)?)
    }

    fn write(&self, piece: &[u8]) -> Result<()> {
        let mut file = self;
        Ok(file.write_all(piece)?)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        Ok(FileExt::read_exact_at(self, buffer, offset)?)
    }

    fn write_all_at(&self, piece: &[u8], offset: u64) -> Result<()> {
        Ok(FileExt::write_all_at(self, piece, offset)?)
    }

    fn rewind(&self) -> Result<()> {
        let mut file = self;
        Ok(Seek::rewind(&mut file)?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.sync_all()?)
    }
}

impl Storage for Host {
    fn open(&self, path: &Path, how: Open) -> Result<Box<dyn Handle>> {
        let mut options = OpenOptions::new();
        options.read(how != Open::Create).write(true);
        if matches!(how, Open::Create | Open::CreateAndRead | Open::CreateSynchronous) {
            options.create(true).truncate(true);
        }
        if matches!(how, Open::CreateSynchronous | Open::ExistingSynchronous) {
            options.custom_flags(WRITE_THROUGH);
        }
        Ok(Box::new(options.open(path).with_context(|| format!("cannot open {}", path.display()))?))
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))
    }

    fn make_directory(&self, path: &Path) -> Result<()> {
        fs::create_dir(path).with_context(|| format!("cannot make {}", path.display()))
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        fs::remove_dir_all(path).with_context(|| format!("cannot remove {}", path.display()))
    }
}
