//! Tools of threads: locks on ranges of an object, values that can be read without a lock, tables of weak references, and shared work.

mod executor;
mod published;
mod range_lock;
mod weak_table;

pub use executor::{Executor, Lent};
pub use published::{Publish, Published, PublishedGuard};
pub use range_lock::{RangeGuard, RangeLock};
pub use weak_table::insert_weak;
