//! Does operations in a transaction of a program.

use std::sync::Arc;

use engine::bail;
use engine::error::Result;
use tarnfs::{Credentials, Durability, FileSystem, NodeId, RenameMode, SetAttributes, SetTime, Time, Transaction, XattrMode};

use super::op::{End, Op, bytes, split};

/// Does `ops` in one transaction.
pub(super) fn run(fs: &Arc<FileSystem>, ops: &[Op], end: End) -> Result<()> {
    let mut transaction = fs.begin()?;
    ops.iter().try_for_each(|op| one(&mut transaction, op))?;
    match end {
        End::Commit => transaction.commit(Durability::Soon),
        End::Durable => transaction.commit(Durability::Now),
        End::Abort => Ok(()),
    }
}

fn place<'p>(tx: &mut Transaction, path: &'p str) -> Result<(NodeId, &'p [u8])> {
    let (directory, name) = split(path);
    Ok((tx.resolve(directory)?, name.as_bytes()))
}

fn set(tx: &mut Transaction, path: &str, set: &SetAttributes) -> Result<()> {
    let node = tx.resolve(path)?;
    tx.setattr(node, set).map(drop)
}

fn rename(tx: &mut Transaction, old: &str, new: &str, mode: RenameMode) -> Result<()> {
    let ((from, name), (to, new_name)) = (place(tx, old)?, place(tx, new)?);
    tx.rename(from, name, to, new_name, mode)
}

fn one(tx: &mut Transaction, op: &Op) -> Result<()> {
    let user = Credentials::root();
    match op {
        Op::Create { path } => place(tx, path).and_then(|(at, name)| tx.create(at, name, 0o100_644, 0, &user)).map(drop),
        Op::Mkdir { path } => place(tx, path).and_then(|(at, name)| tx.mkdir(at, name, 0o755, &user)).map(drop),
        Op::Symlink { path, target } => place(tx, path).and_then(|(at, name)| tx.symlink(at, name, target.as_bytes(), &user)).map(drop),
        Op::Link { old, new } => {
            let (node, (directory, name)) = (tx.resolve(old)?, place(tx, new)?);
            tx.link(node, directory, name).map(drop)
        }
        Op::Unlink { path } => place(tx, path).and_then(|(at, name)| tx.unlink(at, name)),
        Op::Rmdir { path } => place(tx, path).and_then(|(at, name)| tx.rmdir(at, name)),
        Op::Rename { old, new } => rename(tx, old, new, RenameMode::Replace),
        Op::Exchange { one, two } => rename(tx, one, two, RenameMode::Exchange),
        Op::Write { path, offset, length, seed } => tx.resolve(path).and_then(|node| tx.write(node, *offset as u64, &bytes(*seed, *length))),
        Op::Truncate { path, size } => tx.resolve(path).and_then(|node| tx.truncate(node, *size as u64)),
        Op::Punch { path, offset, length } => tx.resolve(path).and_then(|node| tx.zero(node, *offset as u64, *length as u64)),
        Op::Chmod { path, mode } => set(tx, path, &SetAttributes { mode: Some(*mode), ..SetAttributes::default() }),
        Op::Chown { path, uid, gid } => set(tx, path, &SetAttributes { uid: Some(*uid), gid: Some(*gid), ..SetAttributes::default() }),
        Op::Utimes { path, seconds } => {
            let time = SetTime::To(Time { seconds: *seconds, nanoseconds: 0 });
            set(tx, path, &SetAttributes { modification_time: Some(time), ..SetAttributes::default() })
        }
        Op::SetXattr { path, name, length, seed } => {
            let node = tx.resolve(path)?;
            tx.setxattr(node, name.as_bytes(), &bytes(*seed, *length), XattrMode::Any)
        }
        Op::RemoveXattr { path, name } => tx.resolve(path).and_then(|node| tx.removexattr(node, name.as_bytes())),
        Op::Clone { .. } | Op::Fsync { .. } | Op::Sync | Op::Scrub | Op::Evacuate { .. } | Op::Transaction { .. } => bail!(NotSupported, "{op:?} in a transaction"),
    }
}
