//! What was measured, for people and for programs.

pub mod changes;
pub mod csv;
pub mod findings;
pub mod html;
pub mod shape;
pub mod table;
pub mod verdicts;

mod chart;

mod words;
