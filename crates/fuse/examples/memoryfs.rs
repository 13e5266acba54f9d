//! Mounts the in-memory file system: the ceiling that any file system of ours can reach through FUSE.
//! `memoryfs DIRECTORY [auto|devfuse|uring] [writeback] [noopen]`; ends with `umount DIRECTORY`.

#[allow(dead_code, unreachable_pub)]
#[path = "../tests/it/memory.rs"]
mod memory;

use std::path::Path;
use std::sync::Arc;

use fuse::{Mount, MountOptions, Session, SessionOptions, TransportChoice};

fn main() -> std::io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(directory) = words.first() else { return Err(std::io::Error::other("usage: memoryfs DIRECTORY [auto|devfuse|uring] [writeback]")) };
    let transport = match words.get(1).map(String::as_str) {
        Some("devfuse") => TransportChoice::DevFuse,
        Some("uring") => TransportChoice::IoUring,
        _ => TransportChoice::Auto,
    };
    let has = |wanted: &str| words.iter().skip(2).any(|word| word == wanted);
    let options = SessionOptions { transport, writeback_cache: has("writeback"), no_opens: has("noopen"), ..SessionOptions::default() };
    let filesystem = memory::MemoryFs::new(options.no_opens);
    let mount = Mount::new(Path::new(directory), &MountOptions { source: "memory".to_owned(), ..MountOptions::default() })?;
    let mut session = Session::start(mount, Arc::new(filesystem), options)?;
    session.join();
    Ok(())
}
