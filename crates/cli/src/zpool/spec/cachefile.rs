//! Reading a cache file, ours or OpenZFS's: `zpool import -c`.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use ondisk::nvlist::NvList;

/// Larger ones are not believed.
const BYTES_MAX: u64 = 64 << 20;
/// Vdevs are nested less deep.
const DEPTH_MAX: usize = 16;

/// What it says.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Cached {
    /// The pools.
    pub(in crate::zpool) guids: Vec<u64>,
    /// Where their devices were.
    pub(in crate::zpool) paths: Vec<PathBuf>,
}

impl Cached {
    /// What is of use in a cache file; `None`: something is missing.
    pub(crate) fn of(all: &NvList) -> Option<Cached> {
        let mut cached = Cached::default();
        for (name, _) in all.iter() {
            let config = all.nvlist(&name.to_string_lossy())?;
            cached.guids.push(config.u64("pool_guid")?);
            leaves(config.nvlist("vdev_tree")?, 0, &mut cached.paths);
        }
        Some(cached)
    }

    /// Where to look: where the devices were, and then what else is there. Some may have been renamed, or added since the file was written. A device that is found
    /// by the name that the pool has for it keeps that.
    pub(crate) fn places(&self) -> Vec<PathBuf> {
        let mut directories: Vec<PathBuf> = self.paths.iter().filter_map(|path| path.parent()).map(Path::to_path_buf).collect();
        directories.sort();
        let mut seen = BTreeSet::new();
        self.paths.iter().cloned().chain(directories).filter(|path| path.is_absolute() && seen.insert(path.clone())).collect()
    }
}

/// Reads the file, or says what is wrong with it.
pub(in crate::zpool) fn read(path: &str) -> Result<Cached, String> {
    Cached::of(&load(path)?).ok_or_else(|| invalid(path))
}

fn invalid(path: &str) -> String {
    format!("invalid or corrupt cache file contents: invalid or missing cache file '{path}'")
}

/// All that is in the file.
pub(crate) fn load(path: &str) -> Result<NvList, String> {
    let failed = |error: std::io::Error| format!("failed to open cache file '{path}': {error}");
    let invalid = || invalid(path);
    // A FIFO would be waited for, and a device has no end.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(invalid());
    }
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(invalid());
    }
    NvList::decode(&bytes).map_err(|_| invalid())
}

fn leaves(vdev: &NvList, depth: usize, paths: &mut Vec<PathBuf>) {
    if depth > DEPTH_MAX {
        return;
    }
    paths.extend(vdev.str("path").map(PathBuf::from));
    for group in ["children", "l2cache", "spares"] {
        for child in vdev.nvlist_array(group).unwrap_or_default() {
            leaves(child, depth + 1, paths);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_cache_file_is_refused() {
        let mut bad = NvList::new();
        bad.set("tank", 5u64);
        assert_eq!(Cached::of(&bad), None);
        assert_eq!(Cached::of(&NvList::new()), Some(Cached::default()));
    }

    /// The directories came first, so that a device was found by the first of its names there.
    #[test]
    fn devices_are_looked_for_by_their_own_names_first() {
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let cached = Cached { guids: vec![1], paths: paths(&["/x/wwn-1", "/a/d", "relative", "/x/ata-1", "/x/wwn-1"]) };
        assert_eq!(cached.places(), paths(&["/x/wwn-1", "/a/d", "/x/ata-1", "/a", "/x"]));
    }
}
