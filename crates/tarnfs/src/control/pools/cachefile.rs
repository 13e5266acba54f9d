//! The cache file: which pools were imported, and where their devices are.
//!
//! # Theory
//! `zpool import -c FILE` finds pools without searching. Ours is written where the property `cachefile` says, and nowhere if that
//! is empty or `none`: nothing on this system imports our pools at boot by itself. It is replaced as a whole, so that a
//! reader sees the old one or the new one.
//!
//! # On disk
//! One nvlist, packed as XDR: for each pool, by name, its configuration as the MOS has it.

use std::path::Path;

use ondisk::nvlist::NvList;

use super::Pools;

/// The words of the property that mean that there is none.
fn is_none(path: &str) -> bool {
    matches!(path, "" | "none")
}

impl Pools {
    /// A pool was imported, or its configuration changed.
    pub(super) fn write_cachefile(&self, name: &str) {
        if let Some(path) = self.pools.get(name).and_then(|imported| imported.cachefile.lock().clone()) {
            self.rewrite(&path);
        }
    }

    /// A pool is no longer in the file.
    pub(super) fn forget_in_cachefile(&self, path: Option<&str>) {
        if let Some(path) = path {
            self.rewrite(path);
        }
    }

    fn rewrite(&self, path: &str) {
        if is_none(path) {
            return;
        }
        let mut all = NvList::new();
        for (name, imported) in self.pools.iter().filter(|(_, imported)| imported.cachefile.lock().as_deref() == Some(path)) {
            let engine = imported.pool.engine();
            all.set(name.as_str(), engine.config().mos(&engine.vdevs, engine.uberblock().txg));
        }
        if let Err(error) = replace(Path::new(path), &all) {
            tracing::warn!(path, %error, "the cache file cannot be written");
        }
    }
}

#[allow(clippy::disallowed_methods)] // the file is the machine's, not a pool's
fn replace(path: &Path, all: &NvList) -> std::io::Result<()> {
    // `cachefile=/dev/null` means that none is wanted, and not that this system is to have a file of that name.
    match std::fs::metadata(path) {
        Ok(there) if !there.is_file() => return Ok(()),
        _ => {}
    }
    if all.iter().next().is_none() {
        return match std::fs::remove_file(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            other => other,
        };
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    std::fs::write(&name, all.encode_xdr())?;
    std::fs::rename(&name, path)
}
