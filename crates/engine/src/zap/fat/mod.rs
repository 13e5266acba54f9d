//! The extendible hash table: its entries, and how it grows and shrinks.

pub(super) mod fat_zap;
pub(super) mod grow;
mod shrink;
