//! Other contents for a mounted file system, and what is mounted below it.
//!
//! # Theory
//! When contents are replaced (rollback, receive) the kernel is told to look all names up again. A name that it looks up while it walks a path is let go
//! first, and with it what is mounted at it or below; a name that comes with a listing of its directory is kept, if it is still the same. So the directories that
//! lead to mounts are listed at once. What was let go nevertheless, as somebody was faster or a directory is large, is mounted again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::mounting::InSight;
use crate::Pool;
use crate::control::pools::{Failure, Pools};

/// A listing brings this many names at least, and needs no more: the first ones come with what they lead to.
const LISTED: usize = 1000;

impl Pools {
    /// Does `change`, which gives a file system other contents; what is mounted below it stays mounted.
    pub(in crate::control::pools) fn replace_contents(
        &mut self,
        pool: &Arc<Pool>,
        dataset: &str,
        change: &mut dyn FnMut() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let own: Vec<PathBuf> = self.mounter.places(dataset).into_iter().map(|mount| mount.mountpoint.into()).collect();
        // Most file systems are not mounted, or have nothing mounted below them: then nothing more is asked.
        let before = if own.is_empty() { Vec::new() } else { self.in_sight_below(&own) };
        let replaced = self.mounter.replace_contents(pool, dataset, change);
        look_up_again(&own, &before);
        if !before.is_empty() {
            let taken_along = self.taken_along(before, &|_| false);
            self.bring_back(&taken_along);
        }
        replaced
    }
}

/// Has the kernel learn the names that lead from these places to the mounts below them; each directory is listed once.
#[allow(clippy::disallowed_methods)] // the directories are the machine's, not a pool's
fn look_up_again(from: &[PathBuf], below: &[InSight]) {
    let below: Vec<&Path> = below.iter().map(|InSight { mount, .. }| Path::new(&mount.mountpoint)).collect();
    // In the order of a walk: a directory before what is in it.
    let directories: BTreeSet<&Path> = below.iter().flat_map(|place| leading(from, place)).collect();
    for directory in directories {
        if let Ok(entries) = std::fs::read_dir(directory) {
            entries.take(LISTED).for_each(drop);
        }
    }
    // What could not be kept goes now, not when its user comes.
    below.iter().for_each(|place| drop(std::fs::symlink_metadata(place)));
}

/// The directories that lead to a place from one of these, or from several.
fn leading<'a>(from: &[PathBuf], place: &'a Path) -> impl Iterator<Item = &'a Path> {
    let length = |path: &Path| path.components().count();
    let highest = from.iter().filter(|from| place.starts_with(from)).map(|from| length(from)).min();
    place.ancestors().skip(1).take_while(move |above| highest.is_some_and(|highest| length(above) >= highest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_between_a_place_and_what_is_below_it() {
        let of = |from: &[&str], place: &'static str| {
            let from: Vec<PathBuf> = from.iter().map(PathBuf::from).collect();
            leading(&from, Path::new(place)).map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(of(&["/a"], "/a/b/c"), ["/a/b", "/a"]);
        assert_eq!(of(&["/a/b", "/a"], "/a/b/c"), ["/a/b", "/a"]);
        assert_eq!(of(&["/a/b", "/x"], "/a/b/c/d"), ["/a/b/c", "/a/b"]);
        assert_eq!(of(&["/"], "/a"), ["/"]);
        assert!(of(&["/a"], "/a").is_empty() && of(&["/a"], "/ab/c").is_empty() && of(&[], "/a").is_empty());
    }
}
