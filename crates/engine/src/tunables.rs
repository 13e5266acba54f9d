//! Every limit of every queue and cache.
//!
//! Sizes are in bytes, times in nanoseconds. One [`Tunables`] belongs to a pool; the defaults are for a small server.

use crate::canary::Canary;

mod memory_pressure;
mod parameters;

pub use memory_pressure::{MemoryPressure, Shrink};
pub use parameters::{Parameter, Parameters};

/// The limits of one pool.
#[derive(Debug, Clone)]
pub struct Tunables {
    /// Most bytes in memory: cached blocks, changes that are not on disk yet, objects and files.
    pub cache_bytes_max: u64,
    /// The part of that which other memory of the process takes at present.
    pub memory_pressure: MemoryPressure,
    /// Most bytes of changes that are not on disk yet; writers wait beyond it.
    pub dirty_bytes_max: u64,
    /// Percentage of `dirty_bytes_max` at which a transaction group is closed early.
    pub dirty_sync_percent: u64,
    /// Percentage of `dirty_bytes_max` from which writers are slowed down.
    pub delay_min_percent: u64,
    /// How fast the delay grows: nanoseconds at the middle of the range.
    pub delay_scale_ns: u64,
    /// Longest delay of one transaction.
    pub delay_ns_max: u64,
    /// A transaction group stays open no longer than this.
    pub txg_timeout_ns: u64,
    /// Threads that compress, checksum and write.
    pub write_workers: usize,
    /// Threads that read ahead: as many reads as a device is given at a time.
    pub read_workers: usize,
    /// Commits of one intent log that have blocks in flight at a time; 1: each waits for the one before.
    pub log_commits_max: usize,
    /// A commit of more bytes than this waits for its transaction group instead of writing them to the log, unless the group
    /// would have to write much more.
    pub log_bytes_max: u64,
    /// From this size on a write's whole blocks are written to their own place, not to the log.
    #[doc(alias = "zfs_immediate_write_sz")]
    pub log_indirect_min: u64,
    /// The same, where the first durable write to a place takes longer than the next, as in files: there the log has the better places.
    pub log_indirect_unprepared_min: u64,
    /// A stretch of this many bytes written to one file closes the group early.
    pub early_write_bytes: u64,
    /// Milliseconds between the heartbeats of a pool with the property `multihost`.
    pub multihost_interval_ms: u32,
    /// After how many missed heartbeats the pool is suspended; 0: never.
    pub multihost_fail_intervals: u16,
    /// For how many heartbeats a pool is watched before it is imported, if its host does not say.
    pub multihost_import_intervals: u32,
    /// Most bytes that one transaction of a program may write; never more than a quarter of `dirty_bytes_max`.
    pub transaction_bytes_max: u64,
    /// Most names that one transaction of a program may make, remove or change.
    pub transaction_names_max: usize,
    /// Most blocks that a scrub or resilver looks at in one transaction group.
    pub scan_blocks_max: u64,
    /// Groups follow one another while a scrub or resilver is under way; else it goes on with groups that are written anyway.
    pub scan_hastens: bool,
    /// What was set since the pool was opened.
    pub parameters: Parameters,
    /// A bug for a test to find; [`Canary`] says what this is for.
    pub canary: Option<Canary>,
}

/// Limits of what is dirty, however large the cache is.
const DIRTY_BYTES: std::ops::RangeInclusive<u64> = 32 << 20..=4 << 30;
/// Threads that work on one transaction group.
const WRITE_WORKERS: std::ops::RangeInclusive<usize> = 2..=16;

impl Tunables {
    /// The defaults for a machine with this many processors, `cache_bytes` of whose memory are ours.
    pub fn for_machine(cache_bytes: u64, processors: usize) -> Self {
        Tunables {
            cache_bytes_max: cache_bytes,
            dirty_bytes_max: (cache_bytes / 2).clamp(*DIRTY_BYTES.start(), *DIRTY_BYTES.end()),
            write_workers: processors.clamp(*WRITE_WORKERS.start(), *WRITE_WORKERS.end()),
            ..Tunables::default()
        }
    }
}

impl Default for Tunables {
    fn default() -> Self {
        Tunables {
            cache_bytes_max: 2 << 30,
            memory_pressure: MemoryPressure::default(),
            dirty_bytes_max: 1 << 30,
            dirty_sync_percent: 20,
            delay_min_percent: 60,
            delay_scale_ns: 500_000,
            delay_ns_max: 100_000_000,
            txg_timeout_ns: 5_000_000_000,
            write_workers: 2,
            read_workers: 8,
            log_commits_max: 8,
            log_bytes_max: 32 << 20,
            log_indirect_min: 32 << 10,
            log_indirect_unprepared_min: 512 << 10,
            early_write_bytes: 64 << 20,
            multihost_interval_ms: 1000,
            multihost_fail_intervals: 10,
            multihost_import_intervals: 20,
            transaction_bytes_max: 64 << 20,
            transaction_names_max: 10_000,
            scan_blocks_max: u64::MAX,
            scan_hastens: true,
            parameters: Parameters::default(),
            canary: None,
        }
    }
}
