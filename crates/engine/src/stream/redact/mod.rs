//! Redaction: which blocks of a snapshot must not be sent, as what was made of it says.
//!
//! # Theory
//! Somebody makes clones of a snapshot and changes or removes what is secret in each. What *all* of them have changed is secret: the blocks that are in the ranges of
//! each clone's changes. They are written down in a bookmark, whose list `send` then leaves out. For each clone [`changed`] finds the ranges, and [`Ranges`] keeps what is
//! common to all; [`run`] says it in blocks of the snapshot's own objects.
//!
//! The list is made in memory and written with its bookmark in one group: there is never half a list of ours. One that OpenZFS left unfinished is made anew.
//!
//! # Path
//! `tarnfs::control` calls [`redact`]; [`SnapshotVerbs::create_redaction`](crate::dsl::SnapshotVerbs::create_redaction) writes it.

mod changed;
mod ranges;
mod run;

pub use run::redact;
