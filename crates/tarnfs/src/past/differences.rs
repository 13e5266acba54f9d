//! The differences between two states of a file system, in the terms of `zfs diff`.
//!
//! # Theory
//! Objects are compared, not paths: a file that was renamed is the same object elsewhere. An object of the same number is another file if
//! its generation differs. What has the same generation and time of change is the same.

use std::ops::ControlFlow;

use engine::dsl::{Dataset, MaybeChanged, changed_objects};
use engine::error::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::Pool;
use crate::zpl::{FileKind, FileSystem, Paths, Place, Stat};

/// Objects that are looked at together: the names of as many are in memory.
const BATCH: usize = 1 << 15;
/// Clones of clones beyond this depth are taken for a circle.
const CLONES_MAX: usize = 1 << 16;
/// What OpenZFS shows in place of the path of a file that has none any more.
const NO_NAME: &[u8] = b"(on_delete_queue)";

/// How a file differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// It was made.
    Added {
        /// Where.
        path: Vec<u8>,
    },
    /// It is gone.
    Removed {
        /// Where it was.
        path: Vec<u8>,
    },
    /// Its contents or attributes were changed.
    Modified {
        /// Where it is.
        path: Vec<u8>,
    },
    /// It is elsewhere.
    Renamed {
        /// Where it was.
        from: Vec<u8>,
        /// Where it is.
        to: Vec<u8>,
    },
    /// It has more names, or fewer.
    Links {
        /// One of them.
        path: Vec<u8>,
        /// How many more.
        delta: i64,
    },
}

/// One line of `zfs diff`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// What it is.
    pub change: Change,
    /// Type and permissions.
    pub mode: u32,
    /// When the file was changed: seconds, nanoseconds.
    pub changed: (i64, u32),
}

/// Is a snapshot one that a head or snapshot comes from: of the same file system and older, or such a one of what that was cloned from?
///
/// # Errors
/// One of them is not there, or cannot be read.
#[doc(alias = "dsl_dataset_is_before")]
pub fn is_earlier(pool: &Pool, snapshot: &str, later: &str) -> Result<bool> {
    let dsl = &pool.engine().dsl;
    let (earlier, mut later) = (dsl.open_dataset(snapshot)?, dsl.open_dataset(later)?);
    let born = |dataset: &Dataset| dataset.phys().creation_txg.get();
    let mut steps = 0;
    loop {
        if later.dir.object == earlier.dir.object {
            return Ok(later.object == earlier.object || !later.is_snapshot || born(&earlier) < born(&later));
        }
        match later.origin()? {
            Some(origin) if steps < CLONES_MAX => later = origin,
            _ => return Ok(false),
        }
        steps += 1;
    }
}

/// A file in one of the states.
enum Seen {
    /// There is no such file.
    Absent,
    /// It has no path that can be found, but attributes.
    Nameless(Stat),
    File(Stat, Vec<u8>),
}

impl Seen {
    fn links(&self) -> u64 {
        match self {
            Seen::Absent => 0,
            Seen::Nameless(stat) | Seen::File(stat, _) => stat.links,
        }
    }

    fn is_directory(&self) -> bool {
        matches!(self, Seen::Nameless(stat) | Seen::File(stat, _) if stat.kind() == FileKind::Directory)
    }
}

/// The two states, and what is told.
struct Comparison<'a, 'v> {
    old: &'a FileSystem,
    new: &'a FileSystem,
    old_paths: Paths<'a>,
    new_paths: Paths<'a>,
    each: &'a mut (dyn FnMut(Difference) -> ControlFlow<()> + 'v),
    unclear: &'a mut (dyn FnMut(String) + 'v),
}

/// Calls `each` with the differences, by ascending object, until it breaks. Both must stay as they are meanwhile. `unclear` is told of files
/// whose attributes or path cannot be found.
///
/// # Errors
/// Blocks that say what was changed cannot be read.
pub fn differences(
    old: &FileSystem,
    new: &FileSystem,
    each: &mut dyn FnMut(Difference) -> ControlFlow<()>,
    unclear: &mut dyn FnMut(String),
) -> Result<()> {
    let shares = new.shares_object()?;
    let mut comparison = Comparison { old, new, old_paths: Paths::new(old), new_paths: Paths::new(new), each, unclear };
    let mut batch = Vec::new();
    let mut broken = false;
    changed_objects(old.objset(), new.objset(), &mut Err, &mut |changed| {
        if Some(changed.object) != shares {
            batch.push(changed);
        }
        if batch.len() >= BATCH {
            broken = comparison.batch(std::mem::take(&mut batch)).is_break();
        }
        Ok(if broken { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    if !broken {
        let _ = comparison.batch(batch);
    }
    Ok(())
}

/// What was read of both states of an object before its paths are searched for.
struct Candidate {
    changed: MaybeChanged,
    old: Option<Stat>,
    new: Option<Stat>,
}

impl Comparison<'_, '_> {
    fn stat(&mut self, is_old: bool, object: u64) -> Option<Stat> {
        let state = if is_old { self.old } else { self.new };
        let found = state.stat_of_object(object);
        found.unwrap_or_else(|error| {
            self.say_unclear(is_old, object, &error);
            None
        })
    }

    fn say_unclear(&mut self, is_old: bool, object: u64, error: &Error) {
        let name = if is_old { self.old.objset().name() } else { self.new.objset().name() };
        (self.unclear)(format!("Unable to determine path or stats for object {object} in {name}: {}", error.message()));
    }

    fn batch(&mut self, batch: Vec<MaybeChanged>) -> ControlFlow<()> {
        let mut candidates = Vec::new();
        for changed in batch {
            let old = if changed.in_old { self.stat(true, changed.object) } else { None };
            let new = if changed.in_new { self.stat(false, changed.object) } else { None };
            let is_same = |old: &Stat, new: &Stat| {
                (old.generation, old.change_time, old.kind()) == (new.generation, new.change_time, new.kind())
            };
            match (&old, &new) {
                (None, None) => {}
                (Some(old), Some(new)) if is_same(old, new) => {}
                _ => candidates.push(Candidate { changed, old, new }),
            }
        }
        let olds: Vec<Stat> = candidates.iter().filter_map(|candidate| candidate.old.clone()).collect();
        self.old_paths.prepare(&olds);
        let news: Vec<Stat> = candidates.iter().filter_map(|candidate| candidate.new.clone()).collect();
        self.new_paths.prepare(&news);
        for candidate in candidates {
            for difference in self.compare(candidate) {
                (self.each)(difference)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// The place of a file in one of the states.
    fn seen(&mut self, is_old: bool, stat: Option<Stat>) -> Seen {
        let Some(stat) = stat else { return Seen::Absent };
        let paths = if is_old { &mut self.old_paths } else { &mut self.new_paths };
        match paths.path(&stat) {
            Ok(Place::Path(path)) => Seen::File(stat, path),
            Ok(Place::Unlinked) => Seen::File(stat, NO_NAME.to_vec()),
            Err(error) => {
                if error.kind() != ErrorKind::NotFound {
                    self.say_unclear(is_old, stat.inode, &error);
                }
                Seen::Nameless(stat)
            }
        }
    }

    /// The lines about one object: two, if its number is another file's now.
    #[doc(alias = "write_inuse_diffs_one")]
    fn compare(&mut self, candidate: Candidate) -> Vec<Difference> {
        let is_freed = !candidate.changed.in_new;
        let (old, new) = (self.seen(true, candidate.old), self.seen(false, candidate.new));
        if is_freed {
            return match old {
                Seen::File(stat, path) if path != NO_NAME => vec![line(Change::Removed { path }, &stat)],
                _ => Vec::new(),
            };
        }
        let counts = !old.is_directory() && !new.is_directory() && old.links() != 0 && new.links() != 0;
        let delta = if counts { new.links().cast_signed().wrapping_sub(old.links().cast_signed()) } else { 0 };
        match (old, new) {
            (Seen::File(old, from), Seen::File(new, to)) => both((old, from), (new, to), delta),
            (_, Seen::File(stat, path)) if delta != 0 => vec![line(Change::Links { path, delta }, &stat)],
            (_, Seen::File(stat, path)) => vec![line(Change::Added { path }, &stat)],
            (Seen::File(stat, path), _) if delta != 0 => vec![line(Change::Links { path, delta }, &stat)],
            (Seen::File(stat, path), _) => vec![line(Change::Removed { path }, &stat)],
            _ => Vec::new(),
        }
    }
}

fn line(change: Change, stat: &Stat) -> Difference {
    Difference { change, mode: stat.mode, changed: (stat.change_time.seconds, stat.change_time.nanoseconds) }
}

fn both((old, from): (Stat, Vec<u8>), (new, to): (Stat, Vec<u8>), delta: i64) -> Vec<Difference> {
    if old.generation != new.generation || old.kind() != new.kind() {
        return vec![line(Change::Removed { path: from }, &old), line(Change::Added { path: to }, &new)];
    }
    let change = match delta {
        0 if from == to => Change::Modified { path: from },
        0 => Change::Renamed { from, to },
        delta => Change::Links { path: if delta > 0 { from } else { to }, delta },
    };
    vec![line(change, &new)]
}
