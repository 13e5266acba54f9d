//! Locks with ranks; range locks.
