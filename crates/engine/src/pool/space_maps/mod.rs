//! Where the allocator's knowledge is kept on disk.
//!
//! # Theory
//!
//! Each metaslab has a space map, an object in the MOS that logs its allocations and frees; each top-level vdev has an array
//! of their object numbers.  In a pool without feature `log_spacemap` each txg appends its changes to the maps of all
//! metaslabs that it touched.
//!
//! With the feature, each txg appends *all* its changes to one new object, its *log*, so that freeing all over the pool does
//! not dirty every space map.  The changes of a metaslab that are in logs only are its *unflushed* changes; they are also
//! in memory.  From time to time a metaslab is *flushed*: its unflushed changes are appended to its own map.  A metaslab
//! remembers the txg of its last flush, on disk too ("its map has everything before this txg, the logs from it on have the
//! rest"); a log is freed when every metaslab has been flushed after it.
//!
//! When a space map has become much longer than need be it is *condensed*: replaced by "all is in use, but for these".
//!
//! # On disk
//!
//! ```text
//! label: vdev tree: metaslab_array ──> OBJECT_ARRAY: u64 space map object of each metaslab (0: never used)
//! top-level vdev ZAP: com.delphix:ms_unflushed_phys_txgs ──> u64 txg of each metaslab's last flush (0: never in a log)
//! MOS directory: com.delphix:log_spacemap_zap ──> ZAP: txg (hexadecimal) ──> log space map object
//! ```
//!
//! # Invariants
//!
//! 1. The space map up to `synced_length`, then the unflushed changes: that is the state after the last synced txg.
//! 2. Every flush txg that is not 0 has a log, even if an empty one: other implementations refuse the pool otherwise.
//! 3. A metaslab without a space map has never been in a log.
//! 4. Flushing and condensing are done before the txg's own changes are written, in pass 1 only.
//!
//! # Locks
//!
//! [`Metaslab::exclude_load`](crate::alloc::Metaslab::exclude_load), then the metaslab's map here, then the log; all held
//! across reads.  The allocator is never called with the log locked.
//!
//! # Path
//!
//! `pool/sync` calls [`SpaceMaps::sync_pass`] in each pass and [`SpaceMaps::sync_done`] when the txg is on disk; the
//! allocator calls [`LoadSpaceMap`](crate::alloc::LoadSpaceMap).

mod kept;
mod log;
mod map;
mod obsolete;
mod open;
mod ranges;
mod sync;
mod vdev_maps;

pub(in crate::pool) use kept::CHECKPOINT_MAP;
pub use open::{FeatureCounts, SpaceMapsOptions, VdevSpace};
pub use ranges::{read_frees, read_ranges};
pub use sync::SpaceMaps;

#[cfg(test)]
mod tests;

#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod raidz_golden_tests;
