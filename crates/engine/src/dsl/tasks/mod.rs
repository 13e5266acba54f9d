//! Administrative changes, for whom they are made, and the history of them.

pub(in crate::dsl) mod actor;
pub(in crate::dsl) mod answer;
pub mod history;
pub(in crate::dsl) mod sync_tasks;
