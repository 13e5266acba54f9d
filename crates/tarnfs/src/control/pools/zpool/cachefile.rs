//! The cache file: which pools were imported, and where their devices are.
//!
//! # Theory
//! `zpool import -c FILE` finds pools without searching. It is written where the property `cachefile` says: nowhere if that is `none`,
//! and in the machine's own file if it says nothing. That file has one writer: the daemon that root has in the usual place, as long as
//! no kernel module is there, whose file it would be. It is replaced as a whole, so that a reader sees the old one or the new one, after a crash too.
//!
//! # On disk
//! One nvlist, packed as XDR: for each pool, by name, its configuration as the MOS has it.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use engine::host::{Host, RealHost};
use ondisk::nvlist::NvList;

use crate::control::pools::{Imported, Pools};

/// The machine's own file, and what the kernel module is spoken to by.
pub const MACHINE_CACHEFILE: &str = "/etc/zfs/zpool.cache";
const KERNEL_MODULE: &str = "/dev/zfs";

/// What the property is shown as: nothing, if it says no more than what is usual.
pub(super) fn shown(property: Option<&str>) -> Option<String> {
    property.filter(|path| *path != MACHINE_CACHEFILE).map(str::to_owned)
}

impl Pools {
    /// The same, with a file for the pools that say nothing of theirs.
    #[must_use]
    pub fn with_cachefile(mut self, path: Option<&str>) -> Pools {
        self.cachefile = path.map(str::to_owned);
        self
    }

    /// The file that a pool is in whose property has this value.
    fn file_of(&self, property: Option<&str>) -> Option<String> {
        match property {
            None | Some("" | MACHINE_CACHEFILE) => self.cachefile.clone(),
            Some("none") => None,
            Some(path) => Some(path.to_owned()),
        }
    }

    /// A pool was imported, or its configuration changed.
    pub(super) fn write_cachefile(&self, name: &str) {
        if let Some(imported) = self.pools.get(name) {
            let property = imported.cachefile.lock().clone();
            self.rewrite(property.as_deref());
        }
    }

    /// A pool is no longer in the file that the property said.
    pub(super) fn forget_in_cachefile(&self, property: Option<&str>) {
        self.rewrite(property);
    }

    fn rewrite(&self, property: Option<&str>) {
        let Some(path) = self.file_of(property).filter(|path| is_ours(path)) else { return };
        let is_in_it = |imported: &Imported| self.file_of(imported.cachefile.lock().as_deref()).as_deref() == Some(&path);
        let mut all = NvList::new();
        for (name, imported) in self.pools.iter().filter(|(_, imported)| is_in_it(imported)) {
            let engine = imported.pool.engine();
            all.set(name.as_str(), engine.config().mos(&engine.vdevs, engine.uberblock().txg));
        }
        if let Err(error) = replace(Path::new(&path), &all) {
            tracing::warn!(path, %error, "the cache file cannot be written");
        }
    }
}

/// May the file be written? That of the machine not, where a kernel module keeps it or its directory is missing.
fn is_ours(path: &str) -> bool {
    path != MACHINE_CACHEFILE || (!Path::new(KERNEL_MODULE).exists() && Path::new(path).parent().is_some_and(Path::is_dir))
}

#[allow(clippy::disallowed_methods)] // the file is the machine's, not a pool's
fn replace(path: &Path, all: &NvList) -> std::io::Result<()> {
    // `cachefile=/dev/null` means that none is wanted, and not that this system is to have a file of that name.
    match fs::metadata(path) {
        Ok(there) if !there.is_file() => return Ok(()),
        _ => {}
    }
    if all.iter().next().is_none() {
        return match fs::remove_file(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(()) => sync_directory_of(path),
        };
    }
    // Nobody knows the name beforehand, and could put a link there.
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{:016x}.tmp", RealHost.random()));
    let mut file = File::create_new(&name)?;
    let written = file.write_all(&all.encode_xdr()).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&name, path));
    if written.is_err() {
        // Why it could not be written says more than why it is left.
        let _ = fs::remove_file(&name);
    }
    written?;
    sync_directory_of(path)
}

/// Makes durable which file has this name.
fn sync_directory_of(path: &Path) -> std::io::Result<()> {
    match path.parent() {
        Some(directory) if directory != Path::new("") => File::open(directory)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}
