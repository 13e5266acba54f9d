//! Opens, syncs and closes all of the above.

pub mod check;
pub mod prop_table;
pub mod space_maps;
