//! What was measured, for people and for programs.

pub mod unit;
