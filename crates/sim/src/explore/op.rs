//! The operations of a workload, and what does them to a real file system.

use std::sync::Arc;

use engine::error::{ErrorKind, Result};
use tarnfs::{CloneRange, Credentials, FileSystem, InodeNumber, Pool, RenameMode, SetAttributes, SetTime, Time, WriteMode, XattrMode};

/// One operation. Paths are names between slashes, from the root.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // the names of the fields say it
pub enum Op {
    Create { path: String },
    Mkdir { path: String },
    Symlink { path: String, target: String },
    Link { old: String, new: String },
    Unlink { path: String },
    Rmdir { path: String },
    Rename { old: String, new: String },
    Exchange { one: String, two: String },
    Write { path: String, offset: usize, length: usize, seed: u64 },
    Truncate { path: String, size: usize },
    Punch { path: String, offset: usize, length: usize },
    Chmod { path: String, mode: u32 },
    Chown { path: String, uid: u32, gid: u32 },
    Utimes { path: String, seconds: i64 },
    SetXattr { path: String, name: String, length: usize, seed: u64 },
    RemoveXattr { path: String, name: String },
    /// The contents of a file are shared by another, which is not longer.
    Clone { from: String, to: String },
    Fsync { path: String },
    /// `sync(2)` of the mounted file system.
    Sync,
    /// A scrub begins, or goes on if it was paused; one that is under way is paused. A piece of it is done in each group.
    Scrub,
    /// A vdev begins to go, if one can: a piece of it is copied in each group. Or the removal is given up.
    Evacuate { give_up: bool },
    /// Several of the others as one transaction of a program.
    Transaction { ops: Vec<Op>, end: End },
}

/// How a transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It is committed.
    Commit,
    /// It is committed, and on disk when that returns.
    Durable,
    /// It is given up.
    Abort,
}

/// Bytes that compress a little: a function of the arguments.
pub fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(length + 8);
    while out.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let word = if state & 3 == 0 { seed } else { state };
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.truncate(length);
    out
}

impl Op {
    /// Whether a transaction group may end before it or in it. (The first `fsync` of all has to make the log, and one that
    /// comes after a transaction waits for its group.)
    pub fn ends_a_group(&self) -> bool {
        matches!(self, Op::Sync | Op::Scrub | Op::Evacuate { .. } | Op::Fsync { .. } | Op::Clone { .. } | Op::Transaction { end: End::Durable, .. })
    }
}

/// Cuts a path into its directory and its last name.
pub(super) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// Does operations.
pub struct Doer<'a> {
    /// The pool.
    pub pool: &'a Pool,
    /// The file system.
    pub fs: &'a Arc<FileSystem>,
    /// `fsync` is the file system's own; without an intent log it is a sync of the pool, which promises the same.
    pub log: bool,
    root: InodeNumber,
    user: Credentials,
}

impl<'a> Doer<'a> {
    /// On this file system.
    pub fn new(pool: &'a Pool, fs: &'a Arc<FileSystem>, log: bool) -> Self {
        Self::below(pool, fs, fs.root(), log)
    }

    /// All paths begin at this directory.
    pub fn below(pool: &'a Pool, fs: &'a Arc<FileSystem>, root: InodeNumber, log: bool) -> Self {
        Doer { pool, fs, log, root, user: Credentials::root() }
    }

    fn inode(&self, path: &str) -> Result<InodeNumber> {
        path.split('/').filter(|name| !name.is_empty()).try_fold(self.root, |at, name| {
            let stat = self.fs.lookup(at, name.as_bytes())?;
            self.fs.forget(stat.inode, 1);
            Ok(stat.inode)
        })
    }

    fn place<'p>(&self, path: &'p str) -> Result<(InodeNumber, &'p [u8])> {
        let (directory, name) = split(path);
        Ok((self.inode(directory)?, name.as_bytes()))
    }

    fn made(&self, made: Result<tarnfs::Stat>) -> Result<()> {
        made.map(|stat| self.fs.forget(stat.inode, 1))
    }

    fn set(&self, path: &str, set: &SetAttributes) -> Result<()> {
        self.fs.setattr(self.inode(path)?, set, &self.user).map(drop)
    }

    fn rename(&self, old: &str, new: &str, mode: RenameMode) -> Result<()> {
        let ((from, name), (to, new_name)) = (self.place(old)?, self.place(new)?);
        self.fs.rename(from, name, to, new_name, mode)
    }

    fn share(&self, from: &str, to: &str) -> Result<()> {
        let (source, target) = (self.inode(from)?, self.inode(to)?);
        let length = self.fs.getattr(source)?.size;
        let range = CloneRange { source, from: 0, target, to: 0, length };
        if self.fs.clone_range(self.fs, &range, &self.user)? < length {
            let contents = self.fs.read(source, 0, length as usize)?;
            self.fs.write(target, WriteMode::At(0), &contents, &self.user)?;
        }
        Ok(())
    }

    fn evacuate(&self, give_up: bool) -> Result<()> {
        let engine = self.pool.engine();
        let done = match engine.vdevs.data_tops().first() {
            _ if engine.is_removing() && give_up => engine.cancel_removal(),
            Some(top) if !engine.is_removing() => engine.remove_top(top.guid()),
            _ => Ok(()),
        };
        match done {
            // There is no room any more, or only one vdev.
            Err(error) if matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Invalid) => Ok(()),
            done => done,
        }
    }

    /// Does one.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn run(&self, op: &Op) -> Result<()> {
        let (fs, user) = (self.fs, &self.user);
        match op {
            Op::Create { path } => self.place(path).and_then(|(at, name)| self.made(fs.create(at, name, 0o100_644, 0, user))),
            Op::Mkdir { path } => self.place(path).and_then(|(at, name)| self.made(fs.mkdir(at, name, 0o755, user))),
            Op::Symlink { path, target } => self.place(path).and_then(|(at, name)| self.made(fs.symlink(at, name, target.as_bytes(), user))),
            Op::Link { old, new } => {
                let (directory, name) = self.place(new)?;
                self.made(fs.link(self.inode(old)?, directory, name))
            }
            Op::Unlink { path } => self.place(path).and_then(|(at, name)| fs.unlink(at, name)),
            Op::Rmdir { path } => self.place(path).and_then(|(at, name)| fs.rmdir(at, name)),
            Op::Rename { old, new } => self.rename(old, new, RenameMode::Replace),
            Op::Exchange { one, two } => self.rename(one, two, RenameMode::Exchange),
            Op::Write { path, offset, length, seed } => fs.write(self.inode(path)?, WriteMode::At(*offset as u64), &bytes(*seed, *length), user).map(drop),
            Op::Truncate { path, size } => fs.truncate(self.inode(path)?, *size as u64, user),
            Op::Punch { path, offset, length } => fs.punch_hole(self.inode(path)?, *offset as u64, *length as u64, user),
            Op::Chmod { path, mode } => self.set(path, &SetAttributes { mode: Some(*mode), ..SetAttributes::default() }),
            Op::Chown { path, uid, gid } => self.set(path, &SetAttributes { uid: Some(*uid), gid: Some(*gid), ..SetAttributes::default() }),
            Op::Utimes { path, seconds } => {
                let time = SetTime::To(Time { seconds: *seconds, nanoseconds: 0 });
                self.set(path, &SetAttributes { modification_time: Some(time), ..SetAttributes::default() })
            }
            Op::SetXattr { path, name, length, seed } => fs.setxattr(self.inode(path)?, name.as_bytes(), &bytes(*seed, *length), XattrMode::Any),
            Op::RemoveXattr { path, name } => fs.removexattr(self.inode(path)?, name.as_bytes()),
            Op::Clone { from, to } => self.share(from, to),
            Op::Fsync { path } if self.log => fs.fsync(self.inode(path)?),
            Op::Fsync { .. } => self.pool.sync(),
            Op::Sync => self.fs.sync_changes(),
            Op::Scrub => {
                let engine = self.pool.engine();
                if engine.is_scanning() { engine.pause_scrub() } else { engine.scrub(false) }
            }
            Op::Evacuate { give_up } => self.evacuate(*give_up),
            Op::Transaction { ops, end } => super::transaction::run(self.fs, ops, *end),
        }
    }
}
