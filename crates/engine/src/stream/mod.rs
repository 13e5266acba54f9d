//! Send streams: datasets as bytes on their way to another pool.
//!
//! # Theory
//! A stream is a line of records ([`ondisk::stream`]), each with the checksum of all that was before it. [`StreamReader`] hands them
//! out one by one, checked; [`Progress`] knows which may follow which. Neither needs a pool, so a stream can be looked at anywhere.
//! [`receive`] makes a dataset of what they say.
//!
//! # Invariants
//! 1. No more is allocated for a payload than the stream really has.
//! 2. A record is not handed out before its own checksum was compared; its payload is covered by that of the next one.

mod progress;
mod reader;
mod redact;
mod send;
pub mod receive;

pub use progress::Progress;
pub use redact::redact;
pub use reader::{Received, StreamReader, hexadecimal};
pub use send::{SendOptions, Sender};
