//! Tools of threads: locks on ranges of an object, values that can be read without a lock, and shared work.

mod executor;
mod published;
mod range_lock;

pub use executor::{Executor, Lent};
pub use published::{Publish, Published, PublishedGuard};
pub use range_lock::{RangeGuard, RangeLock};
