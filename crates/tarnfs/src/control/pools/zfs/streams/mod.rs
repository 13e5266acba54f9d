//! Verbs on streams.

mod package;
mod receive;
mod send;
