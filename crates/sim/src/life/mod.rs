//! The life of datasets: what can be done with them, at random or in any order, compared with a model that knows only what was done.
//!
//! # Theory
//! A [`Verb`] is one thing that somebody does: write files, snapshot, clone, promote, roll back, rename, destroy, hold, bookmark, receive. A [`Tree`] is what
//! must be there afterwards, or why the verb is refused ([`Tree::apply`]); [`perform`] does the same to a real pool. [`compare()`] says what
//! is different: names, contents of every version, origins, clones, holds, bookmarks, guids; and [`space`] counts the blocks that each version has, one by one,
//! and compares the sums with those that the pool keeps. `crash` cuts the power in verbs.
//!
//! # Invariants
//! 1. The model uses nothing of the engine but its kinds of errors.
//! 2. A verb that is refused has changed nothing, in the model and in the pool.
//!
//! # Path
//! `tests/life.rs`, `tests/verbs.rs`, `cargo xtask explore --verbs`.

mod compare;
pub mod crash;
mod ground;
mod model;
mod perform;
mod random;
mod received;
mod space;
mod verb;

pub use compare::{Guids, compare};
pub use model::{Bookmark, Dataset, File, Files, Outcome, Snapshot, Tree};
pub use perform::perform;
pub use random::{Limits, random_verb};
pub use verb::{Change, Cut, Receive, Verb};
