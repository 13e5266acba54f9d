//! What the kernel has cached: its writes, and what it must forget.

pub(super) mod replaced;
pub(super) mod seek;
pub(super) mod teller;
pub(super) mod writeback;
