//! Blocks that die: the lists they are on, and freeing them.

pub mod bpobj;
pub mod bptree;
pub mod deadlist;
pub(in crate::dsl) mod frees_sync;
pub(in crate::dsl) mod deleted_clones_sync;
pub(in crate::dsl) mod livelist_sync;
pub(in crate::dsl) mod scan_sync;
pub(in crate::dsl) mod traverse;
