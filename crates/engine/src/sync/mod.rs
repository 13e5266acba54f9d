//! What threads share: locks on ranges of an object, what can be read without a lock, and work.

mod executor;
mod published;
mod range_lock;

pub use executor::{Executor, Lent};
pub use published::{Publish, Published, PublishedGuard};
pub use range_lock::{RangeGuard, RangeLock};
