//! Space: what is used, and how much may still be.

mod accounting_sync;
mod dataset_sync;
pub(in crate::dsl) mod in_flight;
mod ledger_sync;
pub(in crate::dsl) mod room;
