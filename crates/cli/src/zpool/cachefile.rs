//! Reading a cache file, ours or OpenZFS's: `zpool import -c`.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use ondisk::nvlist::NvList;

/// Larger ones are not believed.
const BYTES_MAX: u64 = 64 << 20;
/// Vdevs are nested less deep.
const DEPTH_MAX: usize = 16;

/// What it says.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Cached {
    /// The pools.
    pub(super) guids: Vec<u64>,
    /// Where their devices were.
    pub(super) paths: Vec<PathBuf>,
}

/// Reads the file, or says what is wrong with it.
pub(super) fn read(path: &str) -> Result<Cached, String> {
    let failed = |error: std::io::Error| format!("failed to open cache file '{path}': {error}");
    let invalid = || format!("invalid or corrupt cache file contents: invalid or missing cache file '{path}'");
    // A FIFO would be waited for, and a device has no end.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(invalid());
    }
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(invalid());
    }
    parse(&bytes).ok_or_else(invalid)
}

fn parse(bytes: &[u8]) -> Option<Cached> {
    let all = NvList::decode(bytes).ok()?;
    let mut cached = Cached::default();
    for (name, _) in all.iter() {
        let config = all.nvlist(&name.to_string_lossy())?;
        cached.guids.push(config.u64("pool_guid")?);
        leaves(config.nvlist("vdev_tree")?, 0, &mut cached.paths);
    }
    Some(cached)
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
        assert_eq!(parse(b"no nvlist"), None);
        let mut bad = NvList::new();
        bad.set("tank", 5u64);
        assert_eq!(parse(&bad.encode_xdr()), None);
        assert_eq!(parse(&NvList::new().encode_xdr()), Some(Cached::default()));
    }
}
