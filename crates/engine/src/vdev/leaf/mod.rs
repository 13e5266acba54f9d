//! One device of a pool: its I/O in turns, its health, what was counted of it.

mod drive;
mod gate;
mod health;
#[allow(clippy::module_inception)]
mod leaf;
mod queue;
mod together;
mod traffic;

pub use gate::{FailureMode, Gate};
pub use health::{Reason, VdevState, VdevStatus};
pub use leaf::{Leaf, LeafStats};
pub use queue::Class;
pub use traffic::{RequestKind, Requests, Traffic};
pub(in crate::vdev) use traffic::WAIT_BUCKETS;
