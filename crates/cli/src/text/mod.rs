//! Words and numbers: as they are read from a command line, and as they are printed.

pub(crate) mod difference;
pub(crate) mod getopt;
pub(crate) mod json;
pub(crate) mod names;
pub(crate) mod owners;
pub(crate) mod suggest;
pub(crate) mod units;
