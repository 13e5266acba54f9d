//! Files that are gone from a file system, but not from its past.
//!
//! # Theory
//! What was deleted is wanted as it was last. So of each file the newest version counts, and what has that; of several files that had one name after
//! the other, the last. A snapshot and a group are compared by the group in which the snapshot was taken.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::ControlFlow;

use engine::dsl::changed_objects;
use engine::error;
use engine::error::{Error, ErrorKind, Result};
use ondisk::znode;

use super::history::{Holder, find};
use super::states::Past;
use crate::zpl::{FileKind, FileSystem, Paths, Place, Stat};
use crate::Pool;

/// Files whose names are searched for together.
const BATCH: usize = 1 << 14;

/// A file that was deleted.
#[derive(Debug, Clone)]
pub struct Deleted {
    /// Where it was, from the root of its file system.
    pub path: Vec<u8>,
    /// What was known of its newest version.
    pub stat: Stat,
    /// What has that version still, newest first.
    pub holders: Vec<Holder>,
}

/// The newest version of a file that has been seen by now.
struct Found {
    path: Vec<u8>,
    stat: Stat,
    /// The newest group that has it.
    newest: u64,
    holders: Vec<(u64, Holder)>,
}

impl Found {
    fn is_version(&self, stat: &Stat) -> bool {
        self.stat.size == stat.size && self.stat.modification_time == stat.modification_time && self.stat.change_time == stat.change_time
    }
}

struct Search<'a> {
    now: &'a FileSystem,
    below: &'a [u8],
    found: Vec<Found>,
    known: HashMap<(u64, u64), usize>,
}

impl Search<'_> {
    /// Looks at one older state, as of a group; blocks that were written over are passed over.
    fn look(&mut self, pool: &Pool, name: &str, txg: u64, holder: &Holder) -> Result<()> {
        let then = pool.file_system(name)?;
        let mut gone = Vec::new();
        let mut pass_over = |_| Ok(());
        changed_objects(then.objset(), self.now.objset(), &mut pass_over, &mut |changed| {
            if changed.in_old {
                gone.push(changed);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let mut paths = Paths::new(&then);
        for batch in gone.chunks(BATCH) {
            let mut files = Vec::new();
            for changed in batch {
                let Ok(Some(stat)) = then.stat_of_object(changed.object) else { continue };
                let is_there = changed.in_new && matches!(self.now.stat_of_object(changed.object), Ok(Some(now)) if now.generation == stat.generation && now.links != 0);
                // Extended attributes go with their file.
                if is_there || stat.links == 0 || stat.flags & znode::FLAG_XATTR != 0 {
                    continue;
                }
                let known = self.known.get(&(stat.inode, stat.generation)).copied().unwrap_or(self.found.len());
                match self.found.get_mut(known) {
                    Some(found) if found.is_version(&stat) => {
                        found.newest = found.newest.max(txg);
                        found.holders.push((txg, holder.clone()));
                    }
                    Some(found) if found.newest >= txg => {}
                    _ => files.push(stat),
                }
            }
            paths.prepare(&files);
            for stat in files {
                let Ok(Place::Path(path)) = paths.path(&stat) else { continue };
                // What has been replaced is a version of what is there: `history` has it.
                if !is_below(&path, self.below) || matches!(find(self.now, &path), Ok(Some(now)) if now.kind() == stat.kind()) {
                    continue;
                }
                let at = *self.known.entry((stat.inode, stat.generation)).or_insert(self.found.len());
                let found = Found { path, stat, newest: txg, holders: vec![(txg, holder.clone())] };
                match self.found.get_mut(at) {
                    Some(older) => *older = found,
                    None => self.found.push(found),
                }
            }
        }
        Ok(())
    }
}

fn is_below(path: &[u8], directory: &[u8]) -> bool {
    let directory = directory.strip_suffix(b"/").unwrap_or(directory);
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// Of a dataset that is gone itself: where it can be had.
fn hint(past: &Past, dataset: &str, error: Error) -> Error {
    if error.kind() != ErrorKind::NotFound {
        return error;
    }
    match past.last_with(dataset) {
        Some(state) => error!(NotFound, "the dataset was destroyed, and txg {0} has it still: tarn fs at {0} '{dataset}:/' DIRECTORY copies it out", state.txg),
        None => error!(NotFound, "dataset does not exist, and no group that is left has it"),
    }
}

/// Files and directories of a dataset that were below `directory` (from the root, with a slash in front) in a snapshot or an older group,
/// and are gone, each path once. In order of their paths; what is to be had nowhere is not among them.
///
/// # Errors
/// The newest state cannot be read.
pub fn deleted(past: &Past, dataset: &str, directory: &[u8]) -> Result<Vec<Deleted>> {
    let newest = past.newest()?;
    let now = newest.file_system(dataset).map_err(|error| hint(past, dataset, error))?;
    let mut search = Search { now: &now, below: directory, found: Vec::new(), known: HashMap::new() };
    for snapshot in Past::snapshots(&newest, dataset)? {
        let name = format!("{dataset}@{}", snapshot.name);
        if let Err(error) = search.look(&newest, &name, snapshot.txg, &Holder::Snapshot(snapshot.name)) {
            tracing::warn!("{name}: {error}");
        }
    }
    for state in past.states().iter().filter(|state| state.txg < newest.state.txg) {
        // What cannot be read any more holds nothing.
        let looked = past.at(*state).and_then(|pool| search.look(&pool, dataset, state.txg, &Holder::Group(state.txg)));
        if let Err(error) = looked {
            tracing::info!("txg {}: {error}", state.txg);
        }
    }
    let mut found = search.found;
    drop(now);
    found.retain(|found| found.stat.kind() != FileKind::Unknown);
    found.sort_by(|a, b| a.path.cmp(&b.path).then(b.newest.cmp(&a.newest)));
    found.dedup_by(|later, first| later.path == first.path);
    let deleted = |Found { path, stat, mut holders, .. }: Found| {
        holders.sort_by_key(|(txg, _)| Reverse(*txg));
        Deleted { path, stat, holders: holders.into_iter().map(|(_, holder)| holder).collect() }
    };
    Ok(found.into_iter().map(deleted).collect())
}
