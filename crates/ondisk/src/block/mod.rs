//! Pointers to blocks, and what says how to read them.

pub mod algorithm;
pub mod bits;
pub mod blkptr;
pub mod byteswap;
pub mod dva;
