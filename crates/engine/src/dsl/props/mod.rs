//! Properties of datasets: the table of them, their values, what they mean for blocks, facts shown as properties, and what is granted to users.

pub(in crate::dsl) mod delegation;
pub(in crate::dsl) mod delegation_sync;
mod facts;
pub(in crate::dsl) mod prop;
pub(crate) mod prop_sync;
pub mod prop_table;
mod resume;

pub use facts::MASTER_NODE_ENTRIES;
