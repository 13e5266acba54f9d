//! The object sets of all file systems and volumes, whatever state the tree of names is in, and their intent logs.

use std::sync::Arc;

use ondisk::object_type::ObjectType;

use crate::dmu::Objset;
use crate::dsl::Dsl;
use crate::error::Result;
use crate::zil::Zil;

/// Calls `each` for the object set of every dataset that is no snapshot, but for those that are lost.
pub(in crate::pool) fn each_head(dsl: &Dsl, mut each: impl FnMut(&Arc<Objset>) -> Result<()>) -> Result<()> {
    let mos = &dsl.meta.mos.0;
    let mut object = 0;
    while let Some(next) = mos.next_object(object)? {
        object = next;
        let dnode = mos.hold(object)?;
        if dnode.bonus_type() != ObjectType::DSL_DATASET {
            continue;
        }
        let dataset = dsl.dataset(object)?;
        if dataset.is_snapshot || dataset.phys().block.is_hole() {
            continue;
        }
        match dsl.objset(&dataset) {
            // The others go on without it.
            Err(error) if error.is_loss() => tracing::error!("{}: {error}", dataset.dir.full_name()),
            objset => each(&objset?)?,
        }
    }
    Ok(())
}

/// Every intent log goes on where blocks are allocated now, and gives back what it had. Keep what this returns until the logs' headers are written.
///
/// # Errors
/// A log cannot be written, or a list of datasets cannot be read.
#[must_use = "a log whose object set is closed writes no header"]
pub(in crate::pool) fn begin_logs_anew(dsl: &Dsl) -> Result<Vec<Arc<Objset>>> {
    let mut logs = Vec::new();
    each_head(dsl, |objset| {
        if !objset.pointer().uses_encryption() {
            Zil::of(objset).begin_anew()?;
            logs.push(objset.clone());
        }
        Ok(())
    })?;
    Ok(logs)
}
