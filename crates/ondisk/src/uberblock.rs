//! The uberblock and its ring.
