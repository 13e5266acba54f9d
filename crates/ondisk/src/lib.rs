//! The OpenZFS on-disk format, and nothing else: no I/O, no policy, no `unsafe`.

mod block;
mod file;
mod pool;
mod scanning;
mod space;
mod zap;

pub mod corruption;
pub mod delegation;
pub mod dnode;
pub mod dsl;
pub mod history;
pub mod nvlist;
pub mod object_type;
pub mod objset;
pub mod stream;
pub mod zil;

pub use block::{algorithm, bits, blkptr, byteswap, dva};
pub use file::{acl, sa, znode};
pub use pool::{cache_device, feature, label, uberblock};
pub use scanning::{error_scrub, rebuild, scan, time_log};
pub use space::{bpobj, brt, ddt, indirect, space_map};
pub use zap::{fat as zap_fat, hash as zap_hash, leaf as zap_leaf, micro as zap_micro};
