//! Which blocks are in memory.
//!
//! # Theory
//! Of a block there are its bytes as they are on disk (*physical*: compressed, perhaps encrypted), as they are used (*plain*: decompressed, in our byte order),
//! or both (`copies`). What a device gives is physical, and verified; plain is made from it when somebody asks for it. The two are one copy where
//! nothing was done to the block on its way to the disk, and what is on disk is kept only where it is smaller. Under pressure the plain one goes
//! first, but of blocks that are used again and again the other one. A block that was just written is there as it is used. Of blocks of pointers the holes at
//! the end are left out (`pointers`).
//!
//! Blocks are found under the address of their first copy and the txg in which it was
//! written: an address is used again only in a later txg, so that pair never means two different blocks (but for a block
//! that the sync thread writes over within one txg, which replaces what is here).
//!
//! What to keep is decided as the adaptive replacement cache decides it: blocks seen once (*recent*) and blocks seen again
//! (*frequent*) compete, and the *ghosts*, addresses of blocks lately evicted, tell which of the two was
//! evicted too eagerly. A stream of blocks that are read once does not push out the working set. Different from the
//! textbook: a hit moves nothing. It sets a flag under a shared lock, and the eviction, which sweeps like a clock, looks
//! at the flags and does the moving (`shard`). So hits on different cores do not wait for each other.
//!
//! The limit is for all that is kept in memory of a pool: changes that are not on disk, and what is known of objects and files
//! ([`Held`]), count first, and the blocks have the rest.
//!
//! What `primarycache` of a dataset excludes (`policy`) is read, shared by those that read it at the same time, and not kept.
//!
//! What was read ahead, and whether it was of use, is known (`ahead`): too much is not begun with.
//!
//! A reader that goes around the cache ([`BlockCache::read_past`]) gets what is here, and leaves nothing behind.
//!
//! Concurrent misses of one block make one read; the others wait for it (`flight`).
//!
//! # Invariants
//! 1. The cache keeps at most its limit less what counts first, but an eighth of it in any case, give or take the block that is being inserted.
//! 2. Blocks are shared and immutable: a writer makes a copy.
//! 3. Eviction drops references and never waits for I/O.
//!
//! # Locks
//! Each shard has a lock for its flights and, taken under that or alone, a lock for its blocks. No I/O is done under either.
//!
//! # Path
//! Called by `dmu`; calls `zio::BlockIo` (`load`), and cache devices (`second`).

mod ahead;
mod cache;
mod copies;
mod flight;
mod load;
mod pointers;
mod policy;
mod second;
mod shard;

pub use ahead::{AheadStats, Foreseen};
pub use cache::{BlockCache, CacheStats, Held, PastStats};
pub use pointers::Pointers;
pub use shard::Ghosts;
pub use policy::{CachePolicy, Kept};
pub use second::{CacheDeviceStatus, NewCacheDevice, SecondStats};
