//! Verbs on streams.

mod diff;
mod package;
mod receive;
mod send;
