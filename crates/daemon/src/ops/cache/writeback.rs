//! What a write-back cache in the kernel requires of us.
//!
//! # Theory
//! With a write-back cache a `write` ends in the kernel's memory. We get the data when the file is closed or synced,
//! when memory is short, or after half a minute. Then it may be too late to refuse it: the kernel reports data that
//! could not be stored at the next `fsync` or at the `close`, and goes on accepting writes. So that must be rare, and
//! it must end:
//!
//! 1. The dirty data in the kernel is bounded ([`fuse::HELD_BYTES`]). While there is less room than that may need, or
//!    quotas of users, groups or projects may be in the way, the kernel is told to cache no attributes. Then it asks
//!    for them before each write, and says through which open file. We fetch what was written before and check whether
//!    there is room for more; if not, the answer is the error, and so the `write` fails. Only a single `write` that is
//!    larger than the room is accepted and cannot be stored.
//! 2. When written-back data is refused, the kernel is told to forget the file's attributes, and its next writer gets
//!    the error in the same way. So no program writes for ever onto a full disk.
//!
//! Serving such files without the cache would be simpler, but the kernel keeps the times of all files and does not
//! change them for writes past its cache. For the same reason written-back data leaves the times alone: the kernel
//! sends them.
//!
//! # Invariants
//! 1. At most [`FETCHERS_MAX`] calls on one CPU fetch from the kernel at a time: each waits until other threads have
//!    served the writes that it causes.
//! 2. A thread of its own tells the kernel to forget attributes, never an operation: the kernel may hold a lock until
//!    the operation ends.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use fuse::{Errno, Notifier, Result};
use parking_lot::Mutex;
use tarnfs::FileSystem;

use crate::ops::Ops;
use crate::ops::nodes::node::Node;
use crate::ops::cache::teller::{Forget, Teller};

/// Flag in the handle of an open file: it may be written.
pub(in crate::ops) const WRITER: u64 = 1;
/// Calls on one CPU that may fetch from the kernel at a time.
const FETCHERS_MAX: u32 = 1;
/// The number of counters for CPUs.
const CPUS: usize = 64;
/// Room is short below this: with two copies of each block, all dirty data in the kernel just fits.
pub(in crate::ops) const SHORT_BYTES: u64 = 2 * fuse::HELD_BYTES;
/// The free room is checked after this many bytes.
const LOOK_EVERY: u64 = 1 << 20;

/// The state of write-back in one mount.
#[derive(Debug, Default)]
pub(in crate::ops) struct Writeback {
    /// The kernel has a write-back cache for this mount.
    agreed: AtomicBool,
    /// Open files that may be written, for each node.
    writers: Mutex<HashMap<u64, u32>>,
    /// The errors of refused data, until the writers are told.
    refused: Mutex<HashMap<u64, Errno>>,
    room_is_short: AtomicBool,
    since_looked: AtomicU64,
    fetchers: Fetchers,
    teller: Teller,
}

/// How many calls on each CPU fetch from the kernel.
#[derive(Debug)]
struct Fetchers([AtomicU32; CPUS]);

impl Default for Fetchers {
    fn default() -> Fetchers {
        Fetchers(std::array::from_fn(|_| AtomicU32::new(0)))
    }
}

impl Writeback {
    pub(in crate::ops) fn agree(&self, agreed: bool) {
        self.agreed.store(agreed, Ordering::Relaxed);
    }

    pub(in crate::ops) fn is_agreed(&self) -> bool {
        self.agreed.load(Ordering::Relaxed)
    }

    pub(in crate::ops) fn room_is_short(&self) -> bool {
        self.room_is_short.load(Ordering::Relaxed)
    }

    pub(in crate::ops) fn opened(&self, node: u64) {
        *self.writers.lock().entry(node).or_default() += 1;
    }

    pub(in crate::ops) fn closed(&self, node: u64) {
        let mut writers = self.writers.lock();
        if let Some(count) = writers.get_mut(&node) {
            *count -= 1;
            if *count == 0 {
                writers.remove(&node);
                self.refused.lock().remove(&node);
            }
        }
    }

    /// Whether the file is open for writing, so that the kernel may have more of it.
    pub(in crate::ops) fn may_have_more(&self, node: u64) -> bool {
        self.writers.lock().contains_key(&node)
    }

    fn refusal(&self, node: u64) -> Result<()> {
        self.refused.lock().remove(&node).map_or(Ok(()), Err)
    }

    pub(in crate::ops) fn forget(&self, whose: Forget) {
        self.teller.forget(whose);
    }

    /// Begins telling the kernel what to forget.
    pub(in crate::ops) fn start(&self, notifier: Notifier, nodes: impl Fn() -> Vec<u64> + Send + Sync + 'static) {
        self.teller.start(notifier, nodes);
    }

    pub(in crate::ops) fn end(&self) {
        self.teller.end();
    }

    /// Begins a fetch, unless too many are under way on this CPU.
    pub(in crate::ops) fn fetching(&self) -> Option<Fetching<'_>> {
        let count = &self.fetchers.0[rustix::thread::sched_getcpu() % CPUS];
        if count.fetch_add(1, Ordering::AcqRel) < FETCHERS_MAX {
            return Some(Fetching(count));
        }
        count.fetch_sub(1, Ordering::AcqRel);
        None
    }
}

/// One call that fetches.
pub(in crate::ops) struct Fetching<'a>(&'a AtomicU32);

impl Drop for Fetching<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Ops {
    /// Checks the free room, of which what we have taken from the kernel is no part any more, on disk or not. Returns whether it is short.
    pub(in crate::ops) fn look_for_room(&self) -> bool {
        let available = self.head.current().map_or(0, |filesystem| filesystem.room());
        let limit = self.options.read().short_of_room;
        let short = available < limit;
        if short && !self.writeback.room_is_short.swap(true, Ordering::Relaxed) {
            tracing::debug!(dataset = self.dataset_name(), available, "little room: the kernel asks before each write");
            self.writeback.forget(Forget::All);
        } else if available / 2 >= limit {
            // The room falls and rises with what waits to be written: not with each group.
            self.writeback.room_is_short.store(false, Ordering::Relaxed);
        }
        short
    }

    /// Checks the room before a file is made, as its first attributes say how long they may be cached.
    pub(in crate::ops) fn look_for_room_to_write_back(&self) {
        if self.writeback.is_agreed() {
            self.look_for_room();
        }
    }

    /// Notes that `len` bytes of written-back data were stored, or refused.
    pub(in crate::ops) fn written_back(&self, node: u64, len: usize, result: Result<()>) -> Result<()> {
        if self.writeback.since_looked.fetch_add(len as u64, Ordering::Relaxed) + len as u64 >= LOOK_EVERY {
            self.writeback.since_looked.store(0, Ordering::Relaxed);
            self.look_for_room();
        }
        if let Err(errno) = result {
            tracing::warn!(dataset = self.dataset_name(), node, %errno, len, "written-back data cannot be stored");
            self.writeback.refused.lock().insert(node, errno);
            self.writeback.forget(Forget::One(node));
        }
        result
    }

    /// Whether the kernel must ask before each write.
    pub(in crate::ops) fn asks_before_writes(&self) -> bool {
        self.writeback.is_agreed() && (self.writeback.room_is_short() || self.head.current().is_some_and(|filesystem| filesystem.has_owner_quotas()))
    }

    /// Called when the kernel asks before a write, outside the gate.
    pub(in crate::ops) fn before_write(&self, number: u64) -> Result<()> {
        self.writeback.refusal(number)?;
        let may_be_short = || {
            let _inside = self.enter(number);
            self.asks_before_writes() && (self.look_for_room() || self.head.current().is_some_and(|filesystem| filesystem.has_owner_quotas()))
        };
        if !may_be_short() {
            return Ok(());
        }
        // If too many are fetching, the error comes with a later write.
        self.fetch_writes(number);
        self.writeback.refusal(number)?;
        let _inside = self.enter(number);
        let (filesystem, inode) = self.locate_for_change(Node::of(number))?;
        filesystem.check_room_to_write(inode).map_err(crate::errno::of)
    }

    /// Has the kernel write back its data of a file. Invalidating the contents is the one way to ask for that; it takes
    /// no lock that the kernel holds while it waits for our answer, but it waits for requests that are under way: so it is never done inside the gate, where these
    /// may wait. `false`: not now.
    pub(in crate::ops) fn fetch_writes(&self, node: u64) -> bool {
        if !self.writeback.is_agreed() || !self.writeback.may_have_more(node) {
            return true;
        }
        let Some(notifier) = self.notifier.lock().clone() else { return true };
        let Some(_fetching) = self.writeback.fetching() else { return false };
        fuse::before_blocking();
        if let Err(error) = notifier.inval_inode(node, 0, 0) {
            tracing::warn!(node, %error, "data in the kernel's cache could not be written back");
        }
        true
    }

    /// Checks marks before a file is opened for writing: the kernel does not know them, and would accept writes that
    /// they forbid.
    pub(in crate::ops) fn check_may_write(&self, node: Node, flags: u32) -> Result<()> {
        let (filesystem, inode) = self.locate_for_change(node)?;
        let marks = filesystem.write_marks(inode).map_err(crate::errno::of)?;
        if marks.immutable || marks.append_only && flags & libc::O_APPEND as u32 == 0 {
            return Err(Errno::EPERM);
        }
        if self.writeback.is_agreed() {
            self.look_for_room();
        }
        Ok(())
    }
}

/// All nodes of a file system, as the kernel knows them.
pub(in crate::ops) fn nodes_of(filesystem: &FileSystem) -> Vec<u64> {
    filesystem.known_inodes().into_iter().map(|inode| crate::ops::nodes::node::number(0, inode)).collect()
}
