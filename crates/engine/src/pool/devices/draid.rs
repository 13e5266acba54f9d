//! What a pool says of new dRAID vdevs besides their description.

use std::sync::Arc;

use ondisk::feature::Feature;

pub(in crate::pool) mod distributed;

use super::auxiliary;
use crate::dmu::SyncTx;
use crate::dsl::Meta;
use crate::error::Result;
use crate::vdev::{TopVdev, VdevKind};

/// Counts the dRAID vdevs among new ones, and lists their spares, in the sync thread.
///
/// # Errors
/// The MOS cannot be changed.
pub(in crate::pool) fn begin_to_use(meta: &Meta, tops: &[Arc<TopVdev>], tx: &SyncTx<'_>) -> Result<()> {
    for _ in tops.iter().filter(|top| top.kind() == VdevKind::Draid) {
        meta.features.increment(&meta.mos, Feature::Draid, tx)?;
    }
    auxiliary::list_distributed(&meta.mos, &*meta.context.host, tops, tx)
}
