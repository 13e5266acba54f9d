//! What is wrong with bytes from a disk.
