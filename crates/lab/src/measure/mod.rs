//! What a run costs, and what is watched while it goes on.

pub mod cost;
pub mod flame;
pub mod pool_watch;
pub mod watch;
