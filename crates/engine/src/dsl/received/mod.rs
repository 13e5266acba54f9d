//! Datasets that a stream is received into.
//!
//! # Theory
//! A stream becomes a dataset of its own, which is marked inconsistent until all of it is there: a new one, or, where the file system is there already, a hidden
//! child `%recv` of it. That begins as a clone of the snapshot that the stream is incremental from. At the end a snapshot is taken with the guid and time of the one
//! that was sent; before, the hidden child and the head have changed places, and the child, which has the old contents now, is destroyed.
//!
//! What is left of a receive that broke off is destroyed, unless it is to be resumed: then the dataset's ZAP says where to go on.
//!
//! # On disk
//! [`ondisk::dsl::DATASET_FLAG_INCONSISTENT`], `RESUME_*` in [`ondisk::dsl::dataset_field`]
//!
//! # Path
//! `stream::receive` calls [`ReceiveVerbs::begin_receive`], writes the dataset's objects, and calls the others.

mod begin_sync;
mod checks;
mod end_sync;
mod resume_sync;
mod swap_check;
mod target;
mod verbs;

pub use resume_sync::{ResumePoint, ResumePoints};
pub(in crate::dsl) use target::{Receives, UnderWay};
pub use verbs::ReceiveVerbs;
pub use target::{ReceiveTarget, ReceivedDataset, SavedState, StreamHead};

/// The hidden child that a stream is received into where the file system is there already.
pub const RECEIVED_BELOW: &str = "%recv";
