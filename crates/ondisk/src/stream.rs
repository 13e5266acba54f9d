//! Send streams.
