//! Every version of a file that is still to be had.

use std::collections::HashMap;

use engine::bail;
use engine::error::{ErrorKind, Result};
use ondisk::blkptr::BlkPtr;

use super::states::{Past, PastPool, State};
use crate::zpl::{FileKind, FileSystem, Stat};
use crate::Pool;

/// Bytes that are read at a time to see whether they are there.
const PIECE_BYTES: usize = 128 << 10;

/// Something that still has a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// The file system as it is.
    Now,
    /// A snapshot.
    Snapshot(String),
    /// A group that is over: nobody keeps what it had.
    Group(u64),
}

/// A version of a file.
#[derive(Debug, Clone)]
pub struct Version {
    /// What was known of it.
    pub stat: Stat,
    /// The group in which its contents were written last.
    pub txg: u64,
    /// What has it, newest first.
    pub holders: Vec<Holder>,
    /// Bytes of it that were written over, if only groups have it.
    pub gone_bytes: u64,
}

/// The versions of a file, newest first, and what could not be looked at.
#[derive(Debug, Default)]
pub struct History {
    /// The versions.
    pub versions: Vec<Version>,
    /// Where there was no such file.
    pub absent: Vec<Holder>,
    /// Groups of which nothing can be read any more.
    pub lost_groups: Vec<u64>,
    /// What is damaged of the file as it is now.
    pub damage: Option<String>,
    /// The oldest group that the labels know.
    pub oldest: Option<State>,
}

/// What makes two sightings the same version.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    inode: u64,
    generation: u64,
    size: u64,
    modified: (i64, u32),
    pointers: Vec<BlkPtr>,
}

struct Search<'a> {
    path: &'a [u8],
    history: History,
    known: HashMap<Key, usize>,
    /// Has any state that was looked at such a file system?
    has_dataset: bool,
}

/// Finds a file by its path below the root. Links are not followed.
pub(super) fn find(fs: &FileSystem, path: &[u8]) -> Result<Option<Stat>> {
    let mut at = fs.getattr(fs.root())?;
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        let found = fs.lookup(at.inode, name);
        at = match found {
            Ok(found) => {
                fs.forget(found.inode, 1);
                found
            }
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotDirectory) => return Ok(None),
            Err(error) => return Err(error),
        };
    }
    Ok(Some(at))
}

/// The bytes of a file that cannot be read.
fn gone_bytes(fs: &FileSystem, stat: &Stat) -> u64 {
    if stat.kind() != FileKind::Regular {
        return 0;
    }
    let (mut at, mut gone) = (0, 0);
    while at < stat.size {
        let piece = (stat.size - at).min(PIECE_BYTES as u64);
        if fs.read(stat.inode, at, piece as usize).is_err() {
            gone += piece;
        }
        at += piece;
    }
    gone
}

impl Search<'_> {
    /// Looks at one state. The error is that it cannot be looked at.
    fn look(&mut self, pool: &Pool, name: &str, holder: Holder, txg: u64) -> Result<()> {
        let fs = match pool.file_system(name) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.history.absent.push(holder);
                return Ok(());
            }
            fs => fs?,
        };
        self.has_dataset = true;
        let Some(stat) = find(&fs, self.path)? else {
            self.history.absent.push(holder);
            return Ok(());
        };
        let dnode = fs.objset().hold(stat.inode)?.on_disk();
        let born = dnode.pointers.iter().filter(|pointer| !pointer.is_hole()).map(BlkPtr::birth).max();
        let modified = (stat.modification_time.seconds, stat.modification_time.nanoseconds);
        let key = Key { inode: stat.inode, generation: stat.generation, size: stat.size, modified, pointers: dnode.pointers };
        if let Some(known) = self.known.get(&key) {
            self.history.versions[*known].holders.push(holder);
            return Ok(());
        }
        let is_kept = !matches!(holder, Holder::Group(_));
        let gone_bytes = if is_kept { 0 } else { gone_bytes(&fs, &stat) };
        self.known.insert(key, self.history.versions.len());
        let txg = born.unwrap_or(txg).min(txg);
        self.history.versions.push(Version { stat, txg, holders: vec![holder], gone_bytes });
        Ok(())
    }
}

/// Looks for the versions of a file of a dataset, by its path below the root, in the newest state, its snapshots and all older groups.
///
/// # Errors
/// No state can be read, or none has such a file system.
pub fn history(past: &Past, dataset: &str, path: &[u8]) -> Result<History> {
    let newest: PastPool = past.newest()?;
    let history = History { oldest: past.states().last().copied(), ..History::default() };
    let mut search = Search { path, history, known: HashMap::new(), has_dataset: false };
    let now = newest.state.txg;
    search.history.lost_groups.extend(past.groups_after(newest.state));
    let holder = if search.history.lost_groups.is_empty() { Holder::Now } else { Holder::Group(now) };
    // What is damaged hides nothing else: neither snapshots nor groups.
    if let Err(error) = search.look(&newest, dataset, holder, now) {
        search.history.damage = Some(error.message().to_owned());
    }
    for snapshot in Past::snapshots(&newest, dataset).unwrap_or_default() {
        let holder = Holder::Snapshot(snapshot.name.clone());
        if let Err(error) = search.look(&newest, &format!("{dataset}@{}", snapshot.name), holder, snapshot.txg) {
            tracing::warn!("{dataset}@{}: {error}", snapshot.name);
        }
    }
    drop(newest);
    for state in past.states().iter().filter(|state| state.txg < now) {
        let looked = past.at(*state).and_then(|pool| search.look(&pool, dataset, Holder::Group(state.txg), state.txg));
        if looked.is_err() {
            search.history.lost_groups.push(state.txg);
        }
    }
    if !search.has_dataset && search.history.damage.is_none() {
        bail!(NotFound, "dataset does not exist, and no group that is left has it");
    }
    let mut history = search.history;
    history.versions.sort_by_key(|version| std::cmp::Reverse((version.stat.modification_time, version.txg)));
    Ok(history)
}
