//! Properties of pools and datasets: as they are listed, and as users set them.

pub(crate) mod columns;
pub(crate) mod display;
pub(crate) mod effectless;
pub(crate) mod settings;
pub(crate) mod shares;
pub(crate) mod table;
