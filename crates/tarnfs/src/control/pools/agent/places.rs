//! What is at the paths of devices: nothing is opened here that is in use.

use std::fs::{File, Metadata};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use disk::DiskKind;
use engine::pool::Pool;
use engine::vdev::{Leaf, TopVdev, VdevConfig, VdevState};
use ondisk::label;

use super::{Action, Known, path_of};

/// Which device or file it is, and in which condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity([u64; 6]);

impl Identity {
    pub(super) fn of(found: &Metadata) -> Identity {
        Identity([found.dev(), found.ino(), found.rdev(), found.size(), found.mtime().cast_unsigned(), found.ctime().cast_unsigned()])
    }
}

/// What is at the path of a device.
pub(super) struct Found {
    path: String,
    what: Option<Metadata>,
}

impl Found {
    /// Looks there; waits for the server of the path, if it has one.
    pub(super) fn at(described: &VdevConfig) -> Option<Found> {
        let path = path_of(described).filter(|path| path.starts_with('/') && !path.contains('#'))?;
        let what = std::fs::metadata(&path).ok();
        Some(Found { path, what })
    }
}

/// Has a device gone from its path, or come back to it?
pub(super) fn look(leaf: &Leaf, Found { path, what: found }: Found, known: &mut Known) -> Option<Action> {
    if leaf.is_open() {
        let is_gone = found.is_none() && leaf.disk().is_some_and(|disk| disk.kind() == DiskKind::Block);
        known.refused = None;
        if !is_gone {
            known.is_nameless = false;
        }
        let is_news = is_gone && !std::mem::replace(&mut known.is_nameless, is_gone);
        return is_news.then_some(Action::Removed(leaf.guid()));
    }
    if !matches!(leaf.state(), VdevState::Unavailable | VdevState::Removed) {
        return None;
    }
    let Some(found) = found else {
        known.refused = None;
        return None;
    };
    let identity = Identity::of(&found);
    let is_news = known.refused.replace(identity) != Some(identity);
    is_news.then(|| Action::Back(leaf.guid(), path))
}

/// The bytes of what is at a path.
fn bytes_at(path: &str) -> Option<u64> {
    let found = std::fs::metadata(Path::new(path)).ok()?;
    if found.is_file() { Some(found.len()) } else { File::open(path).ok()?.seek(SeekFrom::End(0)).ok() }
}

/// Could vdevs of a pool be larger, which says `autoexpand`? `tried`: the sizes that were tried before.
pub(super) fn have_grown(engine: &Pool, tried: &mut Vec<u64>) -> bool {
    if !is_on(engine, "autoexpand") {
        tried.clear();
        return false;
    }
    let sizes: Vec<u64> = engine.vdevs.data_tops().iter().map(|top| size_now(top)).collect();
    let has_grown = engine.vdevs.data_tops().iter().zip(&sizes).any(|(top, size)| *size >= top.asize() + (1 << top.metaslab_shift()));
    has_grown && std::mem::replace(tried, sizes.clone()) != sizes
}

/// The bytes for data that a vdev could have; 0 while a device is away, as nobody knows how large that is.
fn size_now(top: &TopVdev) -> u64 {
    let bytes = |leaf: &std::sync::Arc<Leaf>| label::data_bytes(label::usable_bytes(bytes_at(leaf.name())?.max(leaf.device_bytes())));
    let leaves = top.leaves();
    if leaves.iter().any(|leaf| !leaf.is_open()) {
        return 0;
    }
    top.layout().asize_of(leaves.iter().map(|leaf| bytes(leaf).unwrap_or(0)).min().unwrap_or(0))
}

/// Is a property of the pool on?
pub(super) fn is_on(engine: &Pool, name: &str) -> bool {
    engine.stored_property(name).ok().flatten().is_some_and(|value| value.number() != 0)
}
