//! Objects made of blocks.
