//! Opens, syncs and closes all of the above.

pub mod prop_table;
