//! Lists of block pointers on disk; deadlists.
