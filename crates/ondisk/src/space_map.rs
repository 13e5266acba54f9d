//! Space maps: the log of allocations and frees.
