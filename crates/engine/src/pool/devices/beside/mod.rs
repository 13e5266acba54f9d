//! Devices beside others: those that come into a mirror or replace another one, those that leave, and those that become a pool of their own.

pub(in crate::pool) mod attach;
pub(in crate::pool) mod detach;
pub(in crate::pool) mod split;
