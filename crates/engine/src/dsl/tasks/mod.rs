//! Administrative changes, and the history of them.

pub mod history;
pub(in crate::dsl) mod sync_tasks;
