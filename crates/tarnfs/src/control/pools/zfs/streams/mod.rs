//! Verbs on streams.

mod package;
mod properties;
mod receive;
mod send;
