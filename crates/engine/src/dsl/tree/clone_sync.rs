//! Making a clone: a file system or volume that begins as a snapshot.
//!
//! # Theory
//! A clone is made as any head is (`create_sync`), of a snapshot of its own choice instead of the empty one. It owns nothing at first: what it
//! refers to is the snapshot's, and the lists of relatives (`next_clones` of the snapshot, `clones` of its directory) say so. The object set is
//! the snapshot's until it is written; only its intent log, which was the head's at that time, is not the clone's.
//!
//! # On disk
//! `ondisk::dsl::DatasetPhys::next_clones`, `ondisk::dsl::DirPhys::clones`, `ondisk::dsl::DirPhys::origin`

use std::sync::Arc;

use ondisk::objset::ZIL_HEADER_BYTES;

use super::create_sync::{check_create, create_dataset_sync};
use super::dir::Dir;
use crate::dmu::SyncTx;
use crate::dsl::dataset::Dataset;
use crate::dsl::dsl::Parts;
use crate::dsl::meta::Meta;
use crate::dsl::props::prop_sync::{PropertyChange, change_property_sync, check_new_properties};
use crate::dsl::tasks::sync_tasks::cannot;
use crate::error::{ErrorKind, Result};

/// What is to be made of a snapshot.
#[derive(Debug, Clone)]
pub struct NewClone {
    /// `pool/a/b`
    pub name: String,
    /// `pool/c@d`
    pub snapshot: String,
    /// Properties to set on it.
    pub properties: Vec<(String, PropertyChange)>,
}

impl NewClone {
    /// Refuses properties that no dictionary can hold.
    pub(in crate::dsl) fn check_properties(&self, meta: &Meta) -> Result<()> {
        check_new_properties(meta, &self.properties)
    }
}

/// The new parent, the last component of the name, and the snapshot.
pub(in crate::dsl) fn check_clone(parts: &Parts, new: &NewClone) -> Result<(Arc<Dir>, String, Arc<Dataset>)> {
    let refuse = |why: &str, kind| cannot("create", &new.name, why, kind);
    let origin = parts.tree.dataset_by_name(&new.snapshot)?;
    if !origin.is_snapshot {
        return Err(refuse("only a snapshot can be cloned", ErrorKind::Invalid));
    }
    if origin.dir.crypto_key != 0 {
        return Err(refuse("its origin is encrypted, and this version makes no encrypted datasets", ErrorKind::NotSupported));
    }
    let (parent, last) = check_create(parts, &new.name)?;
    Ok((parent, last, origin))
}

/// Makes a clone. Checked before.
#[doc(alias = "dmu_objset_clone_sync")]
pub(in crate::dsl) fn clone_sync(parts: &Parts, new: &NewClone, tx: &SyncTx<'_>) -> Result<()> {
    let (parent, last, origin) = check_clone(parts, new)?;
    let clone = create_dataset_sync(parts, &parent, &last, Some(&origin), None, tx)?;
    for (property, change) in &new.properties {
        change_property_sync(parts, &clone, property, change, tx)?;
    }
    forget_log(parts, &clone, tx)?;
    parts.record_dataset_event(&clone, "clone", &format!("origin={} ({})", new.snapshot, origin.object), tx)
}

/// A head that has a snapshot's object set has not the intent log that the head of that time had.
#[doc(alias = "dsl_dataset_zero_zil")]
pub(in crate::dsl) fn forget_log(parts: &Parts, head: &Arc<Dataset>, tx: &SyncTx<'_>) -> Result<()> {
    if head.phys().block.is_hole() {
        return Ok(());
    }
    let objset = parts.objsets.objset(head)?;
    if objset.zil_header() != [0; ZIL_HEADER_BYTES] {
        objset.set_zil_header(tx, [0; ZIL_HEADER_BYTES]);
    }
    Ok(())
}
