//! The layers below an open pool.

use std::sync::Arc;

use super::shared_blocks::SharedBlocks;
use super::space_maps::SpaceMaps;
use crate::dmu::DmuContext;
use crate::dsl::{Dsl, Meta, Mos};
use crate::vdev::VdevTree;

/// See the module. None of them knows the pool.
#[derive(Clone)]
pub(in crate::pool) struct Layers {
    /// Devices and their states.
    pub(in crate::pool) vdevs: Arc<VdevTree>,
    /// Cache, blocks, groups, limits.
    pub(in crate::pool) context: Arc<DmuContext>,
    /// Datasets.
    pub(in crate::pool) dsl: Arc<Dsl>,
    /// Which space is in use; `None` in a pool opened only for reading whose space maps we cannot read.
    pub(in crate::pool) space_maps: Option<Arc<SpaceMaps>>,
    /// Blocks with several pointers; `None` in a pool opened only for reading.
    pub(in crate::pool) shared: Option<Arc<SharedBlocks>>,
}

impl Layers {
    /// The MOS, features, version.
    pub(in crate::pool) fn meta(&self) -> &Meta {
        &self.dsl.meta
    }

    /// The pool's own objects.
    pub(in crate::pool) fn mos(&self) -> &Mos {
        &self.dsl.meta.mos
    }

    /// Nothing may be changed.
    pub(in crate::pool) fn is_read_only(&self) -> bool {
        self.context.read_only
    }
}
