//! Verbs on streams.

mod diff;
mod package;
mod properties;
mod receive;
mod send;
