//! Many mounts at once, as an import makes them.
//!
//! # Theory
//! Mounts that do not lie in one another are made by several threads: most of a mount is waiting, for the pool, for the kernel, for the server of the
//! file system above. What lies in another is made after it, or not at all if that one could not be mounted, and unmounted before it; so is what was
//! mounted over it later. Few of many mounts are used: beyond the first ones each is opened when somebody uses it (`ops::head`).

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::ops::Bound;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;

use fuse::MountPoints;
use parking_lot::Mutex;
use tarnfs::control::{Failure, FailureKind, MountPlan, Mounter};

use crate::mounting::mounted::Mounted;
use crate::mounting::mounter::FuseMounter;

/// So many are opened at once, and one that cannot be opened is not mounted.
const OPENED_MAX: usize = 64;
/// Most threads that mount or unmount.
const THREADS_MAX: usize = 16;

/// When the files of a mount are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening {
    /// Before it is mounted.
    Now,
    /// When somebody uses them.
    Used,
}

/// For each place how many others, each related to the next, come before it: places are related where one lies in the other, or both are one.
fn levels(places: &[&Path]) -> Vec<usize> {
    let mut levels = Vec::with_capacity(places.len());
    let mut known: BTreeMap<&Path, usize> = BTreeMap::new();
    for place in places {
        let above = place.ancestors().filter_map(|above| known.get(above));
        let below = known.range::<Path, _>((Bound::Excluded(*place), Bound::Unbounded)).take_while(|(below, _)| below.starts_with(place));
        let level = above.chain(below.map(|(_, level)| level)).max().map_or(0, |level| level + 1);
        levels.push(level);
        known.insert(place, level);
    }
    levels
}

/// Does something to each of these, several at a time; in any order.
fn beside<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    beside_from(items, || {}, work)
}

/// As above; each thread of several begins with `begin`.
fn beside_from<T: Send, R: Send>(items: Vec<T>, begin: impl Fn() + Sync, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let threads = thread::available_parallelism().map_or(1, usize::from).saturating_mul(2).min(THREADS_MAX).min(items.len());
    let items = Mutex::new(items.into_iter());
    let next = || items.lock().next();
    let all = || iter::from_fn(next).map(&work).collect::<Vec<R>>();
    let beginning = || {
        begin();
        all()
    };
    thread::scope(|scope| {
        let count = if threads > 1 { threads } else { 0 };
        let others: Vec<_> = (0..count).filter_map(|_| thread::Builder::new().name("mount".to_owned()).spawn_scoped(scope, beginning).ok()).collect();
        // The caller is not idle if no thread could be had.
        let own = if others.is_empty() { all() } else { Vec::new() };
        own.into_iter().chain(others.into_iter().flat_map(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic)))).collect()
    })
}

impl FuseMounter {
    /// Mounts each; what lies in another after it. The answers are in the order of the plans.
    pub(super) fn mount_many(&mut self, plans: Vec<MountPlan>) -> Vec<Result<(), Failure>> {
        let opening = if plans.len() > OPENED_MAX { Opening::Used } else { Opening::Now };
        let mut plans: Vec<(usize, MountPlan)> = plans.into_iter().enumerate().collect();
        plans.sort_by(|(_, a), (_, b)| a.path.cmp(&b.path));
        let levels = levels(&plans.iter().map(|(_, plan)| plan.path.as_path()).collect::<Vec<_>>());
        let ours = self.ours();
        let mut done: BTreeMap<usize, Result<(), Failure>> = BTreeMap::new();
        let mut failed: BTreeSet<PathBuf> = BTreeSet::new();
        for level in by_level(plans, levels).into_values() {
            let mut tried = Vec::new();
            for (at, plan) in level {
                match failed_above(&failed, &plan.path) {
                    Some(above) => drop(done.insert(at, Err(not_below(above)))),
                    None => tried.push((at, plan)),
                }
            }
            let places: Vec<(usize, String, PathBuf)> = tried.iter().map(|(at, plan)| (*at, plan.dataset.clone(), plan.path.clone())).collect();
            // A dataset with a session, or named twice, is a matter of what there is by then.
            let mut named = BTreeSet::new();
            let (new, others): (Vec<_>, Vec<_>) = tried.into_iter().partition(|(_, plan)| self.is_new(plan) && named.insert(plan.dataset.clone()));
            let begin = || {
                if let Err(error) = fuse::stand_apart() {
                    tracing::debug!(%error, "each mount is made by a thread of its own");
                }
            };
            let make = |(at, plan): (usize, MountPlan)| (at, self.refuse_to_hide(&ours, &plan.path).and_then(|()| self.make(&plan, opening)));
            let mut made = beside_from(new, begin, make);
            made.sort_by_key(|(at, _)| *at);
            done.extend(made.into_iter().map(|(at, made)| (at, made.map(|made| self.keep(made)))));
            done.extend(others.into_iter().map(|(at, plan)| (at, self.mount(plan))));
            // One that is mounted already is in nobody's way.
            let is_missing = |at: usize, dataset: &str| done.get(&at).is_some_and(Result::is_err) && !self.is_mounted(dataset);
            failed.extend(places.into_iter().filter(|(at, dataset, _)| is_missing(*at, dataset)).map(|(_, _, path)| path));
        }
        done.into_values().collect()
    }
}

/// The place that this one lies in and where a mount has failed.
fn failed_above<'a>(failed: &BTreeSet<PathBuf>, place: &'a Path) -> Option<&'a Path> {
    // All places lie in `/`, and what lies there is mounted already.
    place.ancestors().skip(1).filter(|above| above.parent().is_some()).find(|above| failed.contains(*above))
}

/// What is mounted there later would hide it.
fn not_below(above: &Path) -> Failure {
    Failure::with(FailureKind::MountFailed, format!("it lies in {}, whose own file system could not be mounted", above.display()))
}

fn by_level<T>(items: Vec<T>, levels: Vec<usize>) -> BTreeMap<usize, Vec<T>> {
    let mut all: BTreeMap<usize, Vec<T>> = BTreeMap::new();
    for (item, level) in items.into_iter().zip(levels) {
        all.entry(level).or_default().push(item);
    }
    all
}

/// Unmounts these, which were mounted in this order: of those that are related the last one first. Returns those that could not be unmounted, or were not
/// tried after that, and why not.
pub(super) fn unmount_many(mounted: Vec<(u64, Mounted)>, force: bool, points: &MountPoints) -> (Vec<(u64, Mounted)>, Option<Failure>) {
    // Where one was bound or moved, the order in which they were made is all that is known.
    let is_where_it_was = |(_, mounted): &(u64, Mounted)| mounted.session.places(points).iter().all(|place| place == mounted.session.path());
    let levels = match mounted.iter().all(is_where_it_was) {
        true => levels(&mounted.iter().map(|(_, mounted)| mounted.session.path()).collect::<Vec<_>>()),
        false => (0..mounted.len()).collect(),
    };
    let (mut left, mut first) = (Vec::new(), None);
    for level in by_level(mounted, levels).into_values().rev() {
        if first.is_some() {
            left.extend(level);
            continue;
        }
        for kept in beside(level, |(at, mounted)| mounted.end(force, points).map_err(|(mounted, failure)| (at, mounted, failure))) {
            let Err((at, mounted, failure)) = kept else { continue };
            left.push((at, mounted));
            first.get_or_insert(failure);
        }
    }
    (left, first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_another_comes_after_it() {
        let places = ["/", "/a", "/a", "/a/b", "/a/b/c", "/a/x/y", "/ab"].map(Path::new);
        assert_eq!(levels(&places), [0, 1, 2, 3, 4, 3, 1]);
        assert_eq!(levels(&[]), [0; 0]);
        // One that was mounted over others later goes first.
        let places = ["/a/x/y", "/a/x", "/a!", "/b", "/a", "/a/z"].map(Path::new);
        assert_eq!(levels(&places), [0, 1, 0, 0, 2, 3]);
    }

    #[test]
    fn nothing_is_mounted_in_what_failed() {
        let failed = BTreeSet::from([PathBuf::from("/a/b")]);
        let above = |place: &'static str| failed_above(&failed, Path::new(place));
        assert_eq!([above("/a/b/c/d"), above("/a/b/c")], [Some(Path::new("/a/b")); 2]);
        assert_eq!([above("/a/b"), above("/a/bc"), above("/a"), above("/")], [None; 4]);
    }

    #[test]
    fn each_is_done_once() {
        for count in [0, 1, 2, 1000] {
            let mut done = beside((0..count).collect(), |number: usize| number);
            done.sort_unstable();
            assert!(done.into_iter().eq(0..count));
        }
    }
}
