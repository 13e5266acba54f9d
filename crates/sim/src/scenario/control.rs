//! Administrative verbs on images, without a daemon.

use std::path::PathBuf;

use tarnfs::control::{FoundPool, PoolImport, PoolScan, scan};

/// The one pool on these images.
///
/// # Panics
/// If there is none, or more.
pub fn found_pool(paths: &[PathBuf]) -> FoundPool {
    let mut found = scan::scan(&PoolScan { paths: paths.to_vec(), destroyed: false }, 7);
    assert_eq!(found.len(), 1, "pools on {paths:?}");
    found.remove(0)
}

/// Imports that pool, mounts nothing.
pub fn import_of(found: &FoundPool, paths: &[PathBuf]) -> PoolImport {
    PoolImport { force: true, ..PoolImport::new(found.status.guid, &*found.status.name, paths.to_vec()) }
}
