//! The pool's own objects, as the DSL uses them.
//!
//! # Theory
//! The records of the DSL are bonus buffers, plain arrays and dictionaries in the MOS. [`Mos`] has the dozen operations on them
//! that the DSL is made of, each in one line, so that the code above reads as the format does. Reads may run in any
//! context, changes only in the sync thread.
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
