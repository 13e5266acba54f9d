//! The OpenZFS on-disk format, and nothing else: no I/O, no policy, no `unsafe`.

pub mod bits;
pub mod label;
pub mod uberblock;
pub mod blkptr;
pub mod dva;
pub mod dnode;
pub mod objset;
pub mod zap_micro;
pub mod zap_fat;
pub mod zap_hash;
pub mod zap_leaf;
pub mod dsl;
pub mod bpobj;
pub mod indirect;
pub mod space_map;
pub mod zil;
pub mod sa;
pub mod znode;
pub mod acl;
pub mod nvlist;
pub mod stream;
pub mod object_type;
pub mod algorithm;
pub mod feature;
pub mod byteswap;
pub mod corruption;
