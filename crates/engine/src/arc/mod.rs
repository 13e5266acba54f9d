//! Which blocks are in memory.
