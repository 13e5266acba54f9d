//! Keys of encrypted datasets: wrapped, as no key of a user is ever there.

pub(in crate::dsl) mod keys_sync;
pub(in crate::dsl) mod root_sync;
pub(in crate::dsl) mod wrapped_key;
