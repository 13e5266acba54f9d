//! Locks: the order in which they are taken, and range locks.

mod range_lock;

pub use range_lock::{RangeGuard, RangeLock};
