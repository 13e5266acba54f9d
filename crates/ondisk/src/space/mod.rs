//! What is allocated, shared, moved, or to be freed.

pub mod bpobj;
pub mod brt;
pub mod ddt;
pub mod indirect;
pub mod space_map;
