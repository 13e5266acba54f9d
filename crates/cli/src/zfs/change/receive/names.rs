//! What a stream is received as, by what it was.

use tarnfs::control::{DatasetEntry, DatasetKind, DatasetKinds, DatasetList, Failure, FailureKind, Request, Wanted};

use super::Run;
use crate::session::Stop;
use crate::zfs::datasets::{self, Query};

/// All that a guid can be looked up of.
const SNAPSHOTS: DatasetKinds = DatasetKinds { filesystem: false, volume: false, snapshot: true, bookmark: false };
const ALL: DatasetKinds = DatasetKinds { filesystem: true, volume: true, snapshot: true, bookmark: false };

/// The part of a sent name that is put behind the target. `send_fs` is what was sent, `recursive`: with what is below it.
///
/// # Errors
/// Why that cannot be.
pub(super) fn kept_part<'n>(sent: &'n str, send_fs: &str, target: &str, (prefix, tail): (bool, bool), recursive: bool) -> Result<String, &'static str> {
    let has_snapshot = target.contains('@');
    if tail {
        if has_snapshot {
            return Err("invalid argument - snapshot not allowed with -e");
        }
        return Ok(match send_fs.rfind('/') {
            Some(at) => sent[at..].to_owned(),
            None => format!("/{sent}"),
        });
    }
    if prefix {
        if has_snapshot {
            return Err("invalid argument - snapshot not allowed with -d");
        }
        let from = sent.find('/').or_else(|| sent.find('@')).unwrap_or(sent.len());
        return Ok(sent[from..].to_owned());
    }
    if !has_snapshot {
        return Ok(sent.get(send_fs.len()..).unwrap_or_default().to_owned());
    }
    if recursive {
        return Err("cannot specify snapshot name for multi-snapshot stream");
    }
    Ok(String::new())
}

impl Run<'_, '_> {
    /// A dataset, if it is there and can be looked at.
    pub(super) fn entry(&mut self, name: &str, properties: &[&str]) -> Option<DatasetEntry> {
        self.look_at(name, properties).ok()?
    }

    /// As above, of a dataset that may be overwritten: that it cannot be looked at is not to say that it is not there.
    pub(super) fn entry_or_stop(&mut self, name: &str, properties: &[&str]) -> Result<Option<DatasetEntry>, Stop> {
        self.look_at(name, properties).map_err(|failure| self.session.failed(format_args!("cannot receive: cannot open '{name}'"), &failure))
    }

    fn look_at(&mut self, name: &str, properties: &[&str]) -> Result<Option<DatasetEntry>, Failure> {
        let properties = Wanted::Only(properties.iter().map(|name| (*name).to_owned()).collect());
        let list = datasets::request(&Query::new(ALL, properties), Some(name), Some(0));
        match self.session.datasets(Request::DatasetList(list)) {
            Ok(found) => Ok(found.entries.into_iter().find(|entry| entry.name == name)),
            Err(failure) if matches!(failure.kind, FailureKind::NoSuchDataset | FailureKind::NoSuchPool) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Snapshots below a dataset, with their guids, the oldest first: all of them, or a failure. What is not listed would seem not to be there.
    pub(super) fn snapshots(&mut self, root: &str, depth: Option<u64>) -> Result<Vec<(String, u64)>, Failure> {
        let wanted = Wanted::Only(vec!["guid".to_owned()]);
        let list = DatasetList { depth, ..datasets::request(&Query::new(SNAPSHOTS, wanted), Some(root), depth) };
        let mut entries = self.session.datasets(Request::DatasetList(list))?.entries;
        entries.sort_by_key(|entry| entry.creation_txg);
        let with_guid = |entry: DatasetEntry| match entry.property("guid").and_then(|value| value.value.number()) {
            Some(guid) => Ok((entry.name, guid)),
            None => Err(Failure::with(FailureKind::Other, format!("{} has no guid", entry.name))),
        };
        entries.into_iter().filter(|entry| entry.kind == DatasetKind::Snapshot).map(with_guid).collect()
    }

    /// The snapshot with that guid: near the place first, then anywhere in the pool. One that is not found is not received into, so it is no matter why.
    pub(super) fn snapshot_with_guid(&mut self, near: &str, guid: u64) -> Option<String> {
        let mut at = near.split('@').next().unwrap_or(near);
        loop {
            if let Some((name, _)) = self.snapshots(at, None).unwrap_or_default().into_iter().find(|(_, found)| *found == guid) {
                return Some(name);
            }
            at = at.rsplit_once('/')?.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_as_openzfs_keeps_them() {
        let kept = |sent: &str, fs: &str, target: &str, how| kept_part(sent, fs, target, how, false);
        assert_eq!(kept("a/b/c@s", "a/b/c", "t/x", (false, false)).unwrap(), "@s");
        assert_eq!(kept("a/b/c@s", "a/b", "t/x", (false, false)).unwrap(), "/c@s");
        assert_eq!(kept("a/b/c@s", "a/b/c", "t/x@n", (false, false)).unwrap(), "");
        assert_eq!(kept("a/b/c@s", "a/b/c", "t", (true, false)).unwrap(), "/b/c@s");
        assert_eq!(kept("a@s", "a", "t", (true, false)).unwrap(), "@s");
        assert_eq!(kept("a/b/c@s", "a/b/c", "t", (true, true)).unwrap(), "/c@s");
        assert_eq!(kept("a/b/c/d@s", "a/b/c", "t", (true, true)).unwrap(), "/c/d@s");
        assert_eq!(kept("a@s", "a", "t", (true, true)).unwrap(), "/a@s");
        assert!(kept_part("a@s", "a", "t@s", (false, false), true).is_err());
        assert!(kept("a@s", "a", "t@s", (true, false)).is_err());
    }
}
