//! The project of a file, and whether what is made in it gets the same: what any file system may know of its files.
//!
//! # Path
//! `zfs project` → here → the kernel → the file system, as for `chattr -p`

#![allow(unsafe_code)] // each block says why

use std::fs::File;
use std::io;

use rustix::ioctl::{self, Getter, Setter, opcode};

/// `FS_XFLAG_PROJINHERIT`
const INHERITS: u32 = 0x200;

/// `struct fsxattr` of `linux/fs.h`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Attributes {
    flags: u32,
    extent_bytes: u32,
    extents: u32,
    project: u32,
    copy_extent_bytes: u32,
    _unused: [u8; 8],
}

/// A file's project.
#[derive(Debug, Clone, Copy)]
pub struct Project(Attributes);

impl Project {
    /// That of an open file.
    ///
    /// # Errors
    /// The file system knows of no projects.
    pub fn of(file: &File) -> io::Result<Project> {
        // SAFETY: the kernel writes one `Attributes`, which is plain numbers.
        let found = unsafe { ioctl::ioctl(file, Getter::<{ opcode::read::<Attributes>(b'X', 31) }, Attributes>::new()) }?;
        Ok(Project(found))
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.0.project
    }

    /// Does what is made in it get the same?
    #[must_use]
    pub fn inherits(&self) -> bool {
        self.0.flags & INHERITS != 0
    }

    /// The same file with another number.
    #[must_use]
    pub fn with_number(self, number: u32) -> Project {
        Project(Attributes { project: number, ..self.0 })
    }

    /// The same file whose project is handed on, or not.
    #[must_use]
    pub fn with_inheritance(self, inherits: bool) -> Project {
        let flags = if inherits { self.0.flags | INHERITS } else { self.0.flags & !INHERITS };
        Project(Attributes { flags, ..self.0 })
    }

    /// Gives a file this project.
    ///
    /// # Errors
    /// The file system knows of no projects, the caller may not, a quota is in the way.
    pub fn set(&self, file: &File) -> io::Result<()> {
        // SAFETY: the kernel reads one `Attributes`.
        unsafe { ioctl::ioctl(file, Setter::<{ opcode::write::<Attributes>(b'X', 32) }, Attributes>::new(self.0)) }?;
        Ok(())
    }
}
