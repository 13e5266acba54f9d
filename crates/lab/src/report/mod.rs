//! What was measured, for people and for programs.

pub mod changes;
pub mod csv;
pub mod html;
pub mod table;

mod chart;

mod words;
