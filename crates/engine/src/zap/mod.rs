//! Objects that are dictionaries.
//!
//! # Theory
//! A ZAP maps names (or arrays of 64-bit words) to arrays of integers. It begins as one block with fixed slots (*micro*) and
//! becomes an extendible hash table (*fat*) when an entry does not fit a slot or the block would become too large.
//! Directories, the MOS, properties, all small tables of the format are ZAPs.
//!
//! A [`Zap`] is a handle on an object; what all handles of one object share hangs on the [`Dnode`](crate::dmu::Dnode): the lock,
//! and for a micro ZAP an index of its slots by hash, so that a lookup does not scan the block.
//!
//! Entries are ordered by (hash, collision number). That position, packed into a word, is what directory cookies are made of:
//! it stays true while other entries come and go, and through the change from micro to fat.
//!
//! # On disk
//! [`ondisk::zap_micro`], [`ondisk::zap_fat`], [`ondisk::zap_leaf`], [`ondisk::zap_hash`].
//!
//! # Invariants
//! 1. No two entries have the same (hash, collision number).
//! 2. The index of a micro ZAP says what its block says; after any failed change it is thrown away and rebuilt.
//! 3. A leaf of prefix length p is named by exactly the 2^(shift - p) pointers whose upper p bits are its prefix.
//!
//! # Locks
//! One read-write lock per object, held across I/O: readers share, a change excludes all.
//!
//! # Path
//! called by dsl, pool, `tarnfs::zpl`; calls dmu.

mod blocks;
mod crowd;
mod cursor;
mod fat;
mod key;
mod micro;
mod upgrade;
mod value;
mod zap_object;

#[cfg(test)]
mod tests;

pub use cursor::{Cursor, CursorEntry};
pub use key::{Normalization, int_name};
pub use ondisk::zap_hash::{FLAG_HASH_64, FLAG_PRE_HASHED, FLAG_WORD_KEYS};
pub use value::{Integers, Value};
pub use zap_object::{Match, Zap, ZapSpec};
