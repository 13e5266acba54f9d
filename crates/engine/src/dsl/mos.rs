//! The pool's own objects, as the DSL uses them.
//!
//! # Theory
//! The records of the DSL are bonus buffers, plain arrays and dictionaries in the MOS. [`Mos`] has the dozen operations on them
//! that the DSL is made of, so that the code above reads as the format does. Reads may run in any context, changes only in
//! the sync thread.
//!
//! # Path
//! called by all of dsl and by pool; calls dmu and zap.

use std::sync::Arc;

use ondisk::object_type::ObjectType;

use crate::dmu::{Objset, SyncTx};
use crate::error::Result;

/// See the module.
#[derive(Clone)]
pub struct Mos(pub Arc<Objset>);

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Its type.
    pub object_type: ObjectType,
    /// The type of its bonus buffer.
    pub bonus_type: ObjectType,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Bytes up to the end of the last block that was ever written.
    pub length: u64,
}

/// A value in a ZAP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ZapValue {
    /// Integers of one byte.
    Bytes(Vec<u8>),
    /// Integers of eight bytes.
    Numbers(Vec<u64>),
}
