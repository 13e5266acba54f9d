//! Other contents for a mounted file system, and what is mounted below it.
//!
//! # Theory
//! When contents are replaced (rollback, receive) the kernel is told to look all names up again. A name that it looks up while it walks a path is let go
//! first, and with it what is mounted at it or below; a name that comes with a listing of its directory is kept, if it is still the same. So the directories that
//! lead to mounts are listed at once. What was let go nevertheless, as somebody was faster or a directory is large, is mounted again.

use std::path::Path;
use std::sync::Arc;

use crate::Pool;
use crate::control::Mount;
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
        let before = self.in_sight();
        let replaced = self.mounter.replace_contents(pool, dataset, change);
        for place in before.iter().filter(|of| of.mount.dataset == dataset) {
            before.iter().for_each(|below| look_up_again(&place.mount, &below.mount));
        }
        let taken_along = self.taken_along(before, &|_| false);
        self.bring_back(&taken_along);
        replaced
    }
}

/// Has the kernel learn the names that lead from one mount to another below it.
#[allow(clippy::disallowed_methods)] // the directories are the machine's, not a pool's
fn look_up_again(from: &Mount, below: &Mount) {
    let (mut directory, below) = (Path::new(&from.mountpoint).to_owned(), Path::new(&below.mountpoint));
    let Ok(names) = below.strip_prefix(&directory) else { return };
    for name in names {
        if let Ok(entries) = std::fs::read_dir(&directory) {
            entries.take(LISTED).for_each(drop);
        }
        directory.push(name);
    }
    // What could not be kept goes now, not when its user comes.
    let _ = std::fs::symlink_metadata(below);
}
