//! Opens, syncs and closes all of the above.

pub mod space_maps;
