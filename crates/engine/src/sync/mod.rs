//! What threads share: locks on ranges of an object, what can be read without a lock, tables of what others keep, and work.

mod executor;
mod published;
mod range_lock;
mod weak_table;

pub use executor::{Executor, Lent};
pub use published::{Publish, Published, PublishedGuard};
pub use range_lock::{RangeGuard, RangeLock};
pub use weak_table::insert_weak;
