//! Locks: on ranges of an object, and of what can be read without them.

mod published;
mod range_lock;

pub use published::{Publish, Published, PublishedGuard};
pub use range_lock::{RangeGuard, RangeLock};
