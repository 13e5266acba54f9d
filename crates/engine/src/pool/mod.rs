//! Opens, syncs and closes all of the above.

pub mod check;
pub mod space_maps;
