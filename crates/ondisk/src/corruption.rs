//! Errors of bytes from a disk.
//!
//! # Theory
//! A decoder never trusts what it reads. What it refuses it names: which structure, which field, and the value found,
//! so that a person can look at the place with `zdb -R`.

use std::fmt;

/// One thing wrong with bytes that came from a disk, a stream or a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Corruption {
    /// The on-disk structure, for example `"dnode"`.
    pub structure: &'static str,
    /// The field of it.
    pub field: &'static str,
    /// The value found there, or the length of what was too short.
    pub found: u64,
}

impl Corruption {
    /// Names what was found wrong.
    pub const fn new(structure: &'static str, field: &'static str, found: u64) -> Self {
        Corruption { structure, field, found }
    }
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: bad {} ({:#x})", self.structure, self.field, self.found)
    }
}

impl std::error::Error for Corruption {}
