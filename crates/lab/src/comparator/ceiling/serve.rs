//! The process that serves the file system in memory.
//!
//! # Theory
//!
//! The mount and the session are what the daemon makes of a dataset, by the same words of `TARN_FUSE` (`daemon/src/mounting/mounter.rs`).
//! The process ends with its mount. Its standard input is a pipe from the process that started it: when that is closed, because that
//! process is gone, however it ended, the mount is taken away.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use fuse::{Filesystem, Mount, MountOptions, Session, SessionOptions, TransportChoice, TransportKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::memory::MemoryFs;
use crate::interrupt;

/// Largest read and write.
const TRANSFER_BYTES: u32 = 1 << 20;
/// Memory that is touched before it is served.
const TOUCHED: u64 = 256 << 20;
/// How often it is looked whether this process was told to end.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

/// Whether `TARN_FUSE` has this word.
fn chosen(wanted: &str) -> bool {
    std::env::var("TARN_FUSE").is_ok_and(|text| text.split(',').any(|word| word.trim() == wanted))
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn mount_options() -> MountOptions {
    MountOptions {
        source: super::NAME.to_owned(),
        subtype: "fsperf".to_owned(),
        durable: !chosen("plain"),
        allow_other: is_root() || fuse::mount::users_may_allow_others(),
        default_permissions: true,
        no_atime: true,
        max_read: TRANSFER_BYTES,
        ..MountOptions::default()
    }
}

fn session_options(no_opens: bool) -> SessionOptions {
    let may_use_rings = !chosen("devfuse") && (!is_root() || fuse::uring::enable());
    let transport = match chosen("uring") {
        true => TransportChoice::IoUring,
        false if may_use_rings => TransportChoice::Auto,
        false => TransportChoice::DevFuse,
    };
    SessionOptions {
        transport,
        writeback_cache: chosen("writeback"),
        no_opens,
        max_write: TRANSFER_BYTES,
        courteous: !chosen("ordinary"),
        name: "ceiling-fuse".to_owned(),
        ..SessionOptions::default()
    }
}

/// Waits until the starter of this process is gone, or this process is told to end.
fn wait_for_the_end() {
    let input = std::io::stdin();
    let mut buffer = [0; 64];
    while !interrupt::pending() {
        let mut fds = [PollFd::new(&input, PollFlags::IN)];
        let _ = poll(&mut fds, Some(&LOOK_EVERY));
        if !fds[0].revents().is_empty() && !matches!(rustix::io::read(&input, &mut buffer), Ok(1..) | Err(rustix::io::Errno::INTR)) {
            return;
        }
    }
}

/// Mounts an empty file system in memory on `directory`, says so on standard output, with the transport, and serves it until it is unmounted.
///
/// # Errors
/// It cannot be mounted.
pub fn serve(directory: &Path, limit_bytes: u64) -> Result<()> {
    let no_opens = chosen("no-opens") && !chosen("writeback");
    let filesystem = Arc::new(MemoryFs::new(limit_bytes, TOUCHED.min(limit_bytes / 2), no_opens)) as Arc<dyn Filesystem>;
    let mount = Mount::new(directory, &mount_options()).with_context(|| format!("cannot mount on {}", directory.display()))?;
    let mut session = Session::start(mount, filesystem, session_options(no_opens)).context("cannot serve a file system in memory")?;
    session.cache_relaxer()();
    let transport = match session.transport() {
        TransportKind::IoUring => "io_uring",
        TransportKind::DevFuse => "/dev/fuse",
    };
    crate::outln!("{transport}{}", if session.is_durable() { ", told of sync" } else { "" });
    let mounted = directory.to_owned();
    std::thread::spawn(move || {
        wait_for_the_end();
        let _ = fuse::mount::unmount(&mounted, true);
    });
    session.join();
    Ok(())
}
