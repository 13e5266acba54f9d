//! Marks of files (`chattr`, `lsattr`) and their projects, which programs ask for with `ioctl`.
//!
//! # Theory
//! Linux has two requests for the same: the older one passes a word of flags, the newer one a structure with the
//! project. The kernel checks the caller's right to either, and passes both on, for its own system calls of that
//! purpose too. The older one has a second number, for 32-bit programs, which the kernel translates before it checks.
//! It does not check a caller that sends that number itself, so that number is refused ([`super::rights`]).

use fuse::{Context, Errno, Ioctl, Result};
use ondisk::znode::{FLAG_APPEND_ONLY, FLAG_IMMUTABLE, FLAG_NO_DUMP, FLAG_PROJECT_INHERIT};
use tarnfs::{Credentials, SetAttributes, Stat};

use super::Ops;
use super::nodes::node::Node;
use super::rights::{self, Request};

/// Commands: direction, size of the argument, family and number in one word, as the system's headers make them.
pub(super) const GET_FLAGS: u32 = 0x8008_6601;
pub(super) const SET_FLAGS: u32 = 0x4008_6602;
pub(super) const GET_FLAGS_32: u32 = 0x8004_6601;
pub(super) const SET_FLAGS_32: u32 = 0x4004_6602;
pub(super) const GET_VERSION: u32 = 0x8008_7601;
pub(super) const GET_XATTR: u32 = 0x801c_581f;
pub(super) const SET_XATTR: u32 = 0x401c_5820;
/// The structure of the newer request; the flags are its first word, the project its fourth.
const XATTR_BYTES: usize = 28;
const PROJECT_AT: usize = 12;

/// What we call it, what the older request calls it, what the newer one does.
const FLAGS: [(u64, u32, u32); 4] =
    [(FLAG_IMMUTABLE, 0x10, 0x8), (FLAG_APPEND_ONLY, 0x20, 0x10), (FLAG_NO_DUMP, 0x40, 0x80), (FLAG_PROJECT_INHERIT, 0x2000_0000, 0x200)];

/// Which of the two requests.
#[derive(Clone, Copy)]
enum Form {
    Word,
    Structure,
}

impl Form {
    fn of(self, flag: &(u64, u32, u32)) -> u32 {
        match self {
            Form::Word => flag.1,
            Form::Structure => flag.2,
        }
    }

    fn encode(self, stored: u64) -> u32 {
        FLAGS.iter().filter(|flag| stored & flag.0 != 0).fold(0, |word, flag| word | self.of(flag))
    }

    /// The flags to be added and removed; `None` for flags that we do not have.
    fn decode(self, word: u32) -> Option<(u64, u64)> {
        let known = FLAGS.iter().fold(0, |known, flag| known | self.of(flag));
        let added = FLAGS.iter().filter(|flag| word & self.of(flag) != 0).fold(0, |all, flag| all | flag.0);
        let all = FLAGS.iter().fold(0, |all, flag| all | flag.0);
        (word & !known == 0).then_some((added, all & !added))
    }
}

// The words of these requests are in the byte order of the machine, as a program on it made them.
#[allow(clippy::host_endian_bytes)]
fn word(input: &[u8], at: usize) -> Result<u32> {
    let bytes = input.get(at..at + 4).and_then(|bytes| bytes.first_chunk()).ok_or(Errno::EINVAL)?;
    Ok(u32::from_ne_bytes(*bytes))
}

fn put(out: &mut [u8], bytes: &[u8]) -> Result<usize> {
    out.get_mut(..bytes.len()).ok_or(Errno::EINVAL)?.copy_from_slice(bytes);
    Ok(bytes.len())
}

/// Does this request change something?
pub(super) fn changes(command: u32) -> bool {
    matches!(command, SET_FLAGS | SET_XATTR)
}

/// Answers a request that only asks; returns how many bytes of answer there are.
#[allow(clippy::host_endian_bytes)] // as above
pub(super) fn say(command: u32, stat: &Stat, out: &mut [u8]) -> Result<usize> {
    match command {
        GET_FLAGS => put(out, &Form::Word.encode(stat.flags).to_ne_bytes()),
        GET_VERSION => put(out, &(stat.generation as u32).to_ne_bytes()),
        GET_XATTR => {
            let mut bytes = [0; XATTR_BYTES];
            bytes[..4].copy_from_slice(&Form::Structure.encode(stat.flags).to_ne_bytes());
            bytes[PROJECT_AT..PROJECT_AT + 4].copy_from_slice(&(stat.project as u32).to_ne_bytes());
            put(out, &bytes)
        }
        _ => Err(Errno::ENOTTY),
    }
}

impl Ops {
    /// Runs one request; returns how many bytes of answer there are.
    pub(super) fn control(&self, cx: &Context, node: Node, ioctl: &Ioctl<'_>, out: &mut [u8]) -> Result<usize> {
        rights::check(cx, Request::Control(ioctl.command))?;
        match ioctl.command {
            SET_FLAGS => self.mark(node, Form::Word, word(ioctl.input, 0)?, None),
            SET_XATTR => self.mark(node, Form::Structure, word(ioctl.input, 0)?, Some(word(ioctl.input, PROJECT_AT)?)),
            command => say(command, &self.stat_of(node)?, out),
        }
    }

    fn stat_of(&self, node: Node) -> Result<Stat> {
        let (located, inode) = self.locate(node).map_err(|_| Errno::ENOTTY)?;
        located.filesystem().getattr(inode).map_err(crate::errno::of)
    }

    fn mark(&self, node: Node, form: Form, flags: u32, project: Option<u32>) -> Result<usize> {
        let (filesystem, inode) = self.locate_for_change(node)?;
        let flags = form.decode(flags).ok_or(Errno::EOPNOTSUPP)?;
        if project == Some(u32::MAX) {
            return Err(Errno::EINVAL);
        }
        // A file that has always been of project 0 need not say so, so that flags can be set where projects cannot.
        let old = filesystem.getattr(inode).map_err(crate::errno::of)?;
        let project = project.map(u64::from).filter(|project| *project != old.project);
        let set = SetAttributes { flags: Some(flags), project, ..SetAttributes::default() };
        filesystem.setattr(inode, &set, &Credentials::root()).map_err(crate::errno::of)?;
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_translated() {
        let stored = FLAG_IMMUTABLE | FLAG_PROJECT_INHERIT | 1 << 35;
        assert_eq!((Form::Word.encode(stored), Form::Structure.encode(stored)), (0x2000_0010, 0x208));
        assert_eq!(Form::Word.decode(0x20), Some((FLAG_APPEND_ONLY, FLAG_IMMUTABLE | FLAG_NO_DUMP | FLAG_PROJECT_INHERIT)));
        assert_eq!(Form::Structure.decode(0x1), None);
    }
}
