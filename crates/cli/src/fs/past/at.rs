//! `tarn fs at`: copies out what a file or directory was.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use tarnfs::past::{Moment, Past, PastPool};

use super::moment::moment;
use super::place::{FilePlace, place};
use super::{Flags, failed, open, parse, say_damage};
use crate::fs::copy::copy_out;
use crate::fs::host::HostTree;
use crate::fs::pool::PoolTree;
use crate::fs::tree::{Kind, Result, Tree, join, last_name};
use crate::session::{Outcome, Session, complain};
use crate::text::names;

/// Bytes that are printed at a time.
const BUFFER_BYTES: usize = 1 << 20;

pub(in crate::fs) fn run(session: &mut Session<'_>, words: &[OsString]) -> Outcome {
    let (flags, operands) = parse(session, words, "d:")?;
    let (when, file, target) = match operands.as_slice() {
        [when, file] => (when, file, None),
        [when, file, target] => (when, file, Some(PathBuf::from(target))),
        [] | [_] => return Err(session.misuse("missing moment or file")),
        _ => return Err(session.misuse("too many arguments")),
    };
    let copied = find(session, &flags, when, file).and_then(|(pool, name, place)| match target {
        Some(target) => copy_to(&pool, &name, &place, target),
        None => print(session, &pool, &name, &place).map(|()| Vec::new()),
    });
    let failures = copied.map_err(|words| failed(session, "at", &words))?;
    for words in &failures {
        complain!(session, "tarn fs at: {words}");
    }
    Ok(u8::from(!failures.is_empty()))
}

/// The pool as it was, the name of the file system in it, and the file.
fn find(session: &mut Session<'_>, flags: &Flags, when: &OsString, file: &OsString) -> Result<(PastPool, String, FilePlace)> {
    let place = place(session, file)?;
    let past: Past = open(session, names::pool_of(&place.dataset), &flags.pool_paths)?;
    let moment = moment(session, &when.to_string_lossy());
    let (pool, name) = past.open_at(&place.dataset, &moment).map_err(|error| error.message().to_owned())?;
    if matches!(moment, Moment::Now | Moment::Snapshot(_)) {
        say_damage(session, "at", &past, past.groups_after(pool.state).next());
    }
    Ok((pool, name, place))
}

/// Copies a file, or a directory with all below it, with owners, modes, times and attributes. What could not be copied is said.
fn copy_to(pool: &PastPool, name: &str, place: &FilePlace, target: PathBuf) -> Result<Vec<String>> {
    let mut from = PoolTree::new((*pool).clone(), name)?;
    let mut to = HostTree::new(target);
    // Into a directory that is there goes what has a name, under its name.
    let into = to.entry(b"").is_ok_and(|entry| entry.kind == Kind::Directory);
    let at = match last_name(&place.path) {
        Some(last) if into => join(b"", last),
        _ => Vec::new(),
    };
    Ok(copy_out(&mut from, &place.path, &mut to, &at))
}

fn print(session: &mut Session<'_>, pool: &PastPool, name: &str, place: &FilePlace) -> Result<()> {
    let mut tree = PoolTree::new((*pool).clone(), name)?;
    let entry = tree.entry(&place.path)?;
    if entry.kind != Kind::Regular {
        return Err(format!("{}: it is no regular file: say where to copy it", tree.shown(&place.path)));
    }
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut offset = 0;
    loop {
        let read = tree.read(&place.path, offset, &mut buffer)?;
        if read == 0 || session.out.write_all(&buffer[..read]).is_err() {
            return Ok(());
        }
        offset += read as u64;
    }
}

/// A path that can be shown as a place again.
pub(super) fn target_name(path: &std::path::Path) -> String {
    crate::fs::tree::shown(path.as_os_str().as_bytes())
}
