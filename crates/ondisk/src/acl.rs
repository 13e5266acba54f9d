//! Access control lists.
