//! Livelists: the blocks that are a clone's own.
//!
//! # Theory
//! A clone may have a *livelist* of its own blocks, by which OpenZFS destroys it faster. It must name every block that
//! is born or freed, or none: we take it away before the clone is written, as OpenZFS itself does with those that do not pay.
//!
//! # On disk
//! `ondisk::dsl::dir_field::LIVELIST`

use ondisk::dsl::dir_field;
use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;

use super::deadlist::Deadlist;
use crate::dmu::SyncTx;
use crate::dsl::meta::Meta;
use crate::error::{Result, Within};

/// Takes away the list of a clone's own blocks, not the blocks. `dir` is the clone's directory.
#[doc(alias = "dsl_dir_remove_livelist")]
pub(in crate::dsl) fn remove_livelist(meta: &Meta, dir: u64, tx: &SyncTx<'_>) -> Result<()> {
    if !meta.features.is_active(Feature::Livelist) || meta.mos.info(dir)?.object_type != ObjectType::ZAP_METADATA {
        return Ok(());
    }
    let Some(list) = meta.mos.zap_u64(dir, dir_field::LIVELIST)? else { return Ok(()) };
    Deadlist::destroy(meta, list, tx).within(|| format!("livelist of directory {dir}"))?;
    meta.mos.zap_remove(dir, dir_field::LIVELIST, tx)?;
    meta.features.decrement(&meta.mos, Feature::Livelist, tx)
}
