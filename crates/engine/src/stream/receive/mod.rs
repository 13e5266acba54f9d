//! Receiving: the records of one stream become a dataset.
//!
//! # Theory
//! A thread reads records ahead and checks them ([`queue`]); another applies them ([`apply`]), as many in one transaction as are there. Groups end as
//! they do under any load: what is in memory is bounded, and a stream takes many groups. Nobody sees the dataset before its end, when a snapshot of it
//! is taken ([`ReceiveVerbs::end_receive`](crate::dsl::ReceiveVerbs::end_receive)).
//!
//! An object that a stream speaks of may be there already, as another one that had its number: then all of it is replaced. Where its place among the
//! dnodes must be another one, the old one has to be on disk as free first, and a group is waited for.
//!
//! # Invariants
//! 1. An error names the record that it is about.
//! 2. No group is held while the stream is waited for.
//! 3. Objects and offsets only grow, so that a stream can be resumed at the last of them.
//!
//! # Path
//! `tarnfs::control` and tests call [`Receiving`].

mod apply;
mod contents;
mod heal;
mod objects;
mod queue;
mod raw;
mod receiving;

pub use receiving::{Finished, Receiving};
