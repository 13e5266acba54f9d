//! What was measured, for people and for programs.

pub mod rounds;
pub mod unit;

mod words;
