//! The checker: reads every block, and proves that what is allocated is what is referenced.
//!
//! # Theory
//! Everything in a pool hangs from the uberblock. The checker walks from there through the MOS and every dataset and
//! snapshot, without the caches and structures that a mounted pool has, so that a mistake of theirs cannot hide itself. A
//! snapshot's blocks that an older snapshot has too are visited once: a walk skips what was born no later than the
//! previous snapshot. Each block's space is *claimed*; a claim that overlaps another is a double allocation. Then the
//! claims are compared with the space maps: what is allocated and not claimed is a leak, what is claimed and not
//! allocated will be overwritten one day.
//!
//! To a block that is deduplicated or cloned several pointers lead. Each is visited once, in heads, snapshots, logs that were
//! claimed, and on the lists of what is still to be freed. The tables of shared blocks count as many, or a free gives away what
//! another pointer leads to, or the last one frees nothing.
//!
//! Findings are data, never only text.
//!
//! # Path
//! called by tarnfs (`zdb -b`, `-c`, `try`); calls zio for blocks, ondisk for their meaning, pool/space_maps for the other side.

mod claims;
mod report;
mod same;
pub(in crate::pool) mod verify;
mod walk;

pub use claims::Claims;
pub use report::{CheckReport, Finding, TypeTotals};
pub use same::{SameBlocks, SameTotals};
pub use walk::{CheckOptions, Walker};
