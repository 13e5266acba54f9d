//! Files without a name that a crash left behind, freed beside the work of the mount.
//!
//! # Theory
//! A file that was removed while open is freed when it is closed; after a crash, when its dataset is mounted; and after a change
//! of the contents of a mounted dataset that was refused. Freeing a large one takes long, and no program can open it, so the mount
//! does not wait: a thread frees it, and is told to stop at the unmount.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use tarnfs::{FileSystem, InodeNumber};

/// The thread; dropping this ends it.
#[derive(Debug)]
pub(super) struct LeftBehind {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl LeftBehind {
    /// Starts, if something was left.
    pub(super) fn start(filesystem: &Arc<FileSystem>) -> Option<LeftBehind> {
        let name = filesystem.objset().name();
        // What a program still has open is freed when that closes it. Asked first: what is closed meanwhile may be another file a moment later.
        let known: BTreeSet<InodeNumber> = filesystem.known_inodes().into_iter().collect();
        let mut objects = match filesystem.left_behind() {
            Ok(objects) if objects.is_empty() => return None,
            Ok(objects) => objects,
            Err(error) => {
                tracing::warn!(dataset = name, "files removed while open before the last unmount stay until the next mount: {error}");
                return None;
            }
        };
        objects.retain(|object| !known.contains(object));
        if objects.is_empty() {
            return None;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (filesystem, told) = (Arc::clone(filesystem), Arc::clone(&stop));
        #[allow(clippy::disallowed_methods)] // the engine does not see this thread: to it, these are calls as the kernel's
        let thread = std::thread::Builder::new().name("left-behind".to_owned()).spawn(move || match filesystem.free_left_behind(&objects, &told) {
            Ok(count) => tracing::info!(dataset = name, count, of = objects.len(), "freed files that were removed while open"),
            Err(error) => tracing::warn!(dataset = name, "files removed while open before the last unmount stay until the next mount: {error}"),
        });
        thread.inspect_err(|error| tracing::warn!("no thread to free removed files: {error}")).ok().map(|thread| LeftBehind { stop, thread: Some(thread) })
    }
}

impl Drop for LeftBehind {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
