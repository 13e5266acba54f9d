//! Does verbs to a real pool.

use std::io::Cursor;
use std::sync::Arc;

use engine::dsl::{Dsl, NewBookmark, RECEIVED_BELOW, ReceiveTarget, Refusals};
use engine::error;
use engine::error::{ErrorKind, Result};
use engine::stream::receive::Receiving;
use engine::stream::{Progress, SendOptions, Sender, StreamReader};
use ondisk::dsl::dataset_field;
use ondisk::object_type::ObjectType;
use tarnfs::{Credentials, FileSystem, Pool, RenameMode, SetAttributes, WriteMode, XattrMode};

use super::verb::{Change, Cut, Receive, Verb};
use crate::explore::op::bytes;

/// The attribute that files have, if any.
pub(super) const XATTR: &str = "user.of";
/// A stream is not cut in its first record, which says what it is.
const HEAD_BYTES: usize = 400;

/// Does a verb, and waits until it is on disk (a write may wait for what comes after it).
///
/// # Errors
/// Why it is refused: of several reasons the first.
pub fn perform(pool: &Arc<Pool>, verb: &Verb) -> Result<()> {
    let dsl = &pool.engine().dsl;
    let verbs = dsl.snapshot_verbs();
    match verb {
        Verb::Write { dataset, changes, sync } => {
            write(pool, dataset, changes)?;
            if *sync { pool.sync() } else { Ok(()) }
        }
        Verb::Create { dataset } => pool.create_file_system(dataset, Vec::new()),
        Verb::Snapshot { names } => pool.take_snapshots(names.clone()),
        Verb::Clone { snapshot, to } => pool.clone_dataset(snapshot, to, Vec::new()),
        Verb::Promote { dataset } => dsl.promote_dataset(dataset),
        Verb::RollBack { dataset, to } => pool.roll_back(dataset, to.as_deref()),
        Verb::RollBackAndWrite { dataset, changes, snapshot } => {
            let rolling_back = pool.begin_rollback(dataset, None)?;
            changes.iter().try_for_each(|change| apply(rolling_back.file_system(), change))?;
            match snapshot {
                Some(snapshot) => rolling_back.commit_with_snapshot(snapshot),
                None => rolling_back.commit(),
            }
        }
        Verb::Rename { from, to } => dsl.rename_dataset(from, to),
        Verb::RenameSnapshot { dataset, from, to, recursive } => dsl.rename_snapshot(dataset, from, to, *recursive),
        Verb::Destroy { dataset } => pool.destroy_file_system(dataset),
        Verb::DestroySnapshots { names, defer } => unless_refused(verbs.destroy_snapshots(names.clone(), *defer)),
        Verb::Hold { names, tag } => unless_refused(verbs.hold_snapshots(names.clone(), tag.clone())),
        Verb::Release { names, tag } => unless_refused(verbs.release_snapshots(names.clone(), tag.clone())),
        Verb::Bookmark { name, source } => unless_refused(verbs.create_bookmarks(vec![NewBookmark { name: name.clone(), source: source.clone() }])),
        Verb::DestroyBookmarks { names } => verbs.destroy_bookmarks(names.clone()),
        Verb::Receive(receive) => send_and_receive(dsl, receive),
    }
}

fn unless_refused(answer: Result<Refusals>) -> Result<()> {
    answer?.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
}

fn write(pool: &Arc<Pool>, dataset: &str, changes: &[Change]) -> Result<()> {
    let fs = pool.file_system(dataset)?;
    let done = changes.iter().try_for_each(|change| apply(&fs, change));
    fs.release_all();
    done
}

fn apply(fs: &FileSystem, change: &Change) -> Result<()> {
    let user = Credentials::root();
    let find = |file: &str| fs.lookup(fs.root(), file.as_bytes()).map(|stat| stat.inode);
    match change {
        Change::Write { file, offset, length, seed } => {
            let inode = match find(file) {
                Err(error) if error.kind() == ErrorKind::NotFound => fs.create(fs.root(), file.as_bytes(), 0o100_644, 0, &user)?.inode,
                found => found?,
            };
            fs.write(inode, WriteMode::At(*offset as u64), &bytes(*seed, *length), &user).map(drop)
        }
        Change::Truncate { file, size } => fs.truncate(find(file)?, *size as u64, &user),
        Change::Punch { file, offset, length } => fs.punch_hole(find(file)?, *offset as u64, *length as u64, &user),
        Change::Remove { file } => fs.unlink(fs.root(), file.as_bytes()),
        Change::Rename { from, to } => fs.rename(fs.root(), from.as_bytes(), fs.root(), to.as_bytes(), RenameMode::Replace),
        Change::Chmod { file, mode } => fs.setattr(find(file)?, &SetAttributes { mode: Some(*mode), ..SetAttributes::default() }, &user).map(drop),
        Change::SetXattr { file, length, seed } => fs.setxattr(find(file)?, XATTR.as_bytes(), &bytes(*seed, *length), XattrMode::Any),
    }
}

fn send(dsl: &Arc<Dsl>, what: &Receive, resume: Option<(u64, u64)>) -> Result<Vec<u8>> {
    let options = SendOptions { large_blocks: what.flags & 1 != 0, embedded: what.flags & 2 != 0, compressed: what.flags & 4 != 0, resume, ..SendOptions::default() };
    let sender = Sender::new(dsl, &what.snapshot, what.from.as_deref(), &options)?;
    let mut stream = Vec::new();
    sender.send(&mut stream, &|| false)?;
    Ok(stream)
}

fn take(dsl: &Arc<Dsl>, stream: Vec<u8>, target: ReceiveTarget) -> Result<()> {
    let receiving = Receiving::open(StreamReader::new(Cursor::new(stream)), Progress::default())?;
    receiving.receive(dsl, target, |_, _| ()).1?.end()
}

fn send_and_receive(dsl: &Arc<Dsl>, what: &Receive) -> Result<()> {
    let stream = send(dsl, what, None)?;
    let (dataset, snapshot) = what.to.split_once('@').ok_or_else(|| error!(Invalid, "{} is no snapshot", what.to))?;
    let resumable = matches!(what.cut, Cut::Resumed(_));
    let target = ReceiveTarget { dataset: dataset.to_owned(), snapshot: snapshot.to_owned(), origin: what.origin.clone(), force: what.force, resumable, ..ReceiveTarget::default() };
    let last = stream.len() - 1;
    let cut = |at: u32| stream[..(stream.len() * at as usize / 1000).clamp(HEAD_BYTES.min(last), last)].to_vec();
    match what.cut {
        Cut::Whole => take(dsl, stream, target),
        Cut::Lost(at) => take(dsl, cut(at), target),
        Cut::Resumed(at) => {
            match take(dsl, cut(at), target.clone()) {
                Err(error) if error.kind() == ErrorKind::Corrupt => {}
                refused => return refused,
            }
            let rest = match resume_point(dsl, dataset)? {
                None => stream,
                place => send(dsl, what, place)?,
            };
            take(dsl, rest, target).inspect_err(|_| {
                // It is kept to be resumed again. That there is nothing is no mistake: it may have been refused at once.
                let _ = dsl.receiving().abort_receive(dataset);
            })
        }
    }
}

/// Where what broke off goes on; nowhere, if nothing was kept.
fn resume_point(dsl: &Arc<Dsl>, name: &str) -> Result<Option<(u64, u64)>> {
    let below = format!("{name}/{RECEIVED_BELOW}");
    let half = match dsl.open_dataset(&below) {
        Err(error) if error.kind() == ErrorKind::NotFound => dsl.open_dataset(name),
        found => found,
    };
    let half = match half {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        half => half?,
    };
    let mos = &dsl.meta.mos;
    if mos.info(half.object)?.object_type != ObjectType::ZAP_METADATA {
        return Ok(None);
    }
    let number = |field: &str| mos.zap_u64(half.object, field);
    Ok(number(dataset_field::RESUME_OBJECT)?.zip(number(dataset_field::RESUME_OFFSET)?))
}
