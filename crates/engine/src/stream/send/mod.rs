//! Sending: a snapshot, or what has changed in it since an older one, as a stream of records.
//!
//! # Theory
//! ```text
//!   walk -> merge -> ahead -> records -> out
//! ```
//! [`walk`] visits the blocks of an object set in the order of their objects and offsets, and leaves out, unread, what is not younger than
//! the older snapshot: a pointer is never older than what is below it. [`merge`] puts the ranges of redaction lists between. [`ahead`] has
//! several blocks read at a time and hands them on in order. [`records`] says each as a record. The caller's thread does it all but
//! the reading, so there is nothing to be told to end but that.
//!
//! What is sent must not change: a snapshot, whose object set stays open meanwhile, so that it cannot be destroyed.
//!
//! # Invariants
//! 1. The stream is that of OpenZFS, to the byte, for the same snapshots and options.
//! 2. Nothing is locked while the stream is written.
//! 3. What is read but not written yet has a limit.

mod ahead;
mod begin;
mod estimate;
pub(in crate::stream) mod item;
mod merge;
mod records;
mod redaction;
pub(in crate::stream) mod sender;
pub(in crate::stream) mod walk;
mod writer;

pub use sender::{SendOptions, Sender};
