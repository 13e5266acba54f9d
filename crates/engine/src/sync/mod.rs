//! What threads share: range locks, and work.

mod executor;
mod range_lock;

pub use executor::{Executor, Lent};
pub use range_lock::{RangeGuard, RangeLock};
