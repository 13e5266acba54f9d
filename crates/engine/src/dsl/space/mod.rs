//! Space: what is used ([`ledger_sync`]), and how much may still be ([`room`]).

pub(in crate::dsl) mod in_flight;
pub(in crate::dsl) mod ledger_sync;
pub(in crate::dsl) mod mos_space;
pub(in crate::dsl) mod room;
