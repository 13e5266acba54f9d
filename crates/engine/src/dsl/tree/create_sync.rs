//! Making directories and datasets.
//!
//! # Theory
//! A new file system is a new directory with an empty head. In pools from version 17 on, every head is a clone: those that are
//! clones of nothing are clones of the empty snapshot `$ORIGIN@$ORIGIN`. That saves special cases where clones are
//! walked.
//!
//! What is *in* a new object set (a master node, a root directory) the layer above knows: it passes a function that fills it.

use std::sync::Arc;

use ondisk::dsl::{
    DATASET_FLAG_CASE_INSENSITIVE, DATASET_FLAG_INCONSISTENT, DATASET_FLAG_UNIQUE_ACCURATE, DIR_FLAG_USED_BREAKDOWN,
    DatasetPhys, DirPhys, dir_field,
};
use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;
use ondisk::objset::{ObjsetSize, ObjsetType};
use zerocopy::{FromZeros, IntoBytes};

use super::dir::Dir;
use super::names::{DatasetName, split_parent};
use crate::bail;
use crate::dmu::{Objset, SyncTx};
use crate::dsl::counts::{Limited, adjust_count, check_limits};
use crate::dsl::dataset::Dataset;
use crate::dsl::dead::deadlist::Deadlist;
use crate::dsl::dead::livelist_sync::Livelist;
use crate::dsl::dsl::Parts;
use crate::dsl::meta::{Meta, key};
use crate::dsl::keys::keys_sync::{create_key_sync, share_key_sync};
use crate::dsl::keys::wrapped_key::WrappedKey;
use crate::dsl::props::delegation_sync::copy_creation_grants;
use crate::dsl::props::prop_sync::{PropertyChange, change_property_sync, check_new_properties};
use crate::dsl::tasks::sync_tasks::cannot;
use crate::error::{ErrorKind, Result};
use crate::txg::TXG_INITIAL;

/// Fills a new object set: called in the sync thread, in the txg that makes it.
pub type Fill = Box<dyn FnOnce(&Arc<Objset>, &SyncTx<'_>) -> Result<()> + Send>;

/// What is to be made.
pub struct NewDataset {
    /// `pool/a/b`
    pub name: String,
    /// File system or volume.
    pub objset_type: ObjsetType,
    /// Names are looked up without regard to case, those of its snapshots too.
    pub case_insensitive: bool,
    /// Properties to set on it.
    pub properties: Vec<(String, PropertyChange)>,
    /// Puts the first objects into it.
    pub fill: Fill,
}

impl NewDataset {
    /// Refuses properties that no dictionary can hold.
    pub(in crate::dsl) fn check_properties(&self, meta: &Meta) -> Result<()> {
        check_new_properties(meta, &self.properties)
    }
}

/// Makes a directory below `parent`, or (none) the root. Returns its object.
pub(in crate::dsl) fn create_dir_sync(parts: &Parts, parent: Option<&Arc<Dir>>, name: &str, tx: &SyncTx<'_>) -> Result<u64> {
    let mos = &parts.meta.mos;
    let object = mos.allocate(ObjectType::DSL_DIR, 0, ObjectType::DSL_DIR, size_of::<DirPhys>(), tx)?;
    let mut phys = DirPhys::new_zeroed();
    match parent {
        Some(parent) => {
            mos.zap_add_u64(parent.phys().child_dirs.get(), name, object, tx)?;
            phys.parent = parent.object.into();
            adjust_count(&parts.meta, parent, dir_field::FILESYSTEM_COUNT, 1, tx)?;
        }
        None => mos.zap_add_u64(key::DIRECTORY, key::ROOT_DATASET, object, tx)?,
    }
    phys.creation_time = parts.meta.context.host.wall_clock().0.into();
    phys.props = mos.zap_create(ObjectType::DSL_PROPS, tx)?.into();
    phys.child_dirs = mos.zap_create(ObjectType::DSL_DIR_CHILD_MAP, tx)?.into();
    if parts.meta.version() >= 13 {
        phys.flags = DIR_FLAG_USED_BREAKDOWN.into();
    }
    mos.set_bonus(object, phys.as_bytes(), tx)?;
    Ok(object)
}

/// Makes the head dataset of a directory: a clone of `origin`, or of the empty snapshot, or (when that is being made)
/// of nothing. Returns its object.
pub(in crate::dsl) fn create_head_sync(
    parts: &Parts,
    dir: &Arc<Dir>,
    origin: Option<&Arc<Dataset>>,
    tx: &SyncTx<'_>,
) -> Result<u64> {
    let mos = &parts.meta.mos;
    let origin = match (origin, parts.tree.origin_snapshot()) {
        (Some(origin), _) => Some(origin.clone()),
        (None, Some(empty)) => Some(parts.tree.dataset(empty)?),
        (None, None) => None,
    };
    let object = mos.allocate(ObjectType::DSL_DATASET, 0, ObjectType::DSL_DATASET, size_of::<DatasetPhys>(), tx)?;
    let mut phys = new_dataset_phys(parts, dir);
    phys.snapshot_names = mos.zap_create_upper(ObjectType::DSL_DS_SNAP_MAP, tx)?.into();
    phys.creation_txg = if tx.txg() == TXG_INITIAL { 1 } else { tx.txg() }.into();
    match &origin {
        None => phys.deadlist = Deadlist::create(&parts.meta, tx)?.into(),
        Some(origin) => link_to_origin(parts, object, &mut phys, dir, origin, tx)?,
    }
    if parts.meta.version() >= 15 {
        phys.flags |= DATASET_FLAG_UNIQUE_ACCURATE;
    }
    mos.set_bonus(object, phys.as_bytes(), tx)?;
    parts.ledger.change_dir(dir, |state| state.phys_mut().head_dataset = object.into());
    // The dataset will be read through the MOS: nothing newer may be kept back.
    parts.records.flush(&parts.meta.mos, tx)?;
    Ok(object)
}

/// A record with new guids.
pub(in crate::dsl) fn new_dataset_phys(parts: &Parts, dir: &Dir) -> DatasetPhys {
    let host = &parts.meta.context.host;
    let mut phys = DatasetPhys::new_zeroed();
    phys.dir = dir.object.into();
    phys.fsid_guid = ((host.random() & ((1 << 56) - 1)).max(1)).into();
    phys.guid = host.random().into();
    phys.creation_time = host.wall_clock().0.into();
    phys
}

/// Makes a new head's record that of a clone, and tells the origin.
fn link_to_origin(
    parts: &Parts,
    object: u64,
    phys: &mut DatasetPhys,
    dir: &Arc<Dir>,
    origin: &Arc<Dataset>,
    tx: &SyncTx<'_>,
) -> Result<()> {
    let mos = &parts.meta.mos;
    let from = origin.phys();
    phys.prev_snapshot = origin.object.into();
    phys.prev_snapshot_txg = from.creation_txg;
    phys.referenced_bytes = from.referenced_bytes;
    phys.compressed_bytes = from.compressed_bytes;
    phys.uncompressed_bytes = from.uncompressed_bytes;
    phys.block = from.block;
    phys.flags |= from.flags.get() & (DATASET_FLAG_INCONSISTENT | DATASET_FLAG_CASE_INSENSITIVE);
    for feature in origin.features() {
        parts.meta.activate_feature(object, feature, tx)?;
    }
    let head = parts.tree.dataset(origin.dir.phys().head_dataset.get())?;
    let old_keys = || snapshot_txgs_before(parts, origin);
    phys.deadlist = head.deadlist().clone_keys(&parts.meta, from.creation_txg.get(), &old_keys, tx)?.object.into();
    let next_clones = match from.next_clones.get() {
        0 if parts.meta.version() >= 11 => mos.zap_create(ObjectType::NEXT_CLONES, tx)?,
        there => there,
    };
    origin.change(|state| {
        state.phys_mut().children += 1;
        state.phys_mut().next_clones = next_clones.into();
    });
    if next_clones != 0 {
        mos.zap(next_clones)?.add_int(tx, object)?;
    }
    parts.ledger.change_dir(dir, |state| state.phys_mut().origin = origin.object.into());
    if Some(origin.object) != parts.tree.origin_snapshot() {
        dir.set_origin_txg(from.creation_txg.get());
    }
    if parts.meta.version() >= 26 {
        let clones = match origin.dir.phys().clones.get() {
            0 => mos.zap_create(ObjectType::DSL_CLONES, tx)?,
            there => there,
        };
        parts.ledger.change_dir(&origin.dir, |state| state.phys_mut().clones = clones.into());
        mos.zap(clones)?.add_int(tx, object)?;
    }
    Ok(())
}

/// The txgs of the snapshots before `snapshot` and before those, newest first: the keys of a deadlist.
pub(in crate::dsl) fn snapshot_txgs_before(parts: &Parts, snapshot: &Dataset) -> Result<Vec<u64>> {
    let (mut txgs, mut phys) = (Vec::new(), snapshot.phys());
    loop {
        txgs.push(phys.prev_snapshot_txg.get());
        match phys.prev_snapshot.get() {
            0 => return Ok(txgs),
            prev => phys = parts.tree.dataset_record(prev)?,
        }
        if txgs.len() > 1 << 20 {
            bail!(Corrupt, "dataset {}: its snapshots do not end", snapshot.object);
        }
    }
}

/// Makes a directory and its head below `parent`; `key`: it is encrypted, perhaps with the user's key of what is above. A clone has the key of its origin.
pub(in crate::dsl) fn create_dataset_sync(
    parts: &Parts,
    parent: &Arc<Dir>,
    name: &str,
    origin: Option<&Arc<Dataset>>,
    key: Option<(&WrappedKey, bool)>,
    tx: &SyncTx<'_>,
) -> Result<Arc<Dataset>> {
    let dir = create_dir_sync(parts, Some(parent), name, tx)?;
    // Before the directory is in memory, where it does not change any more.
    match (origin.map_or(0, |origin| origin.dir.crypto_key), key) {
        (0, Some((key, inherits))) => create_key_sync(parts, dir, key, if inherits { parent.crypto_key } else { 0 }, tx)?,
        (0, None) => {}
        (shared, _) => share_key_sync(parts, dir, shared, tx)?,
    }
    let dir = parts.tree.dir(dir, Some(name))?;
    copy_creation_grants(parts, &dir, tx)?;
    let head = create_head_sync(parts, &dir, origin, tx)?;
    if origin.is_some() {
        Livelist::create(&parts.meta, dir.object, tx)?;
    }
    if parts.meta.features.is_active(Feature::FilesystemLimits) {
        parts.meta.zapify(dir.object, tx)?;
        parts.meta.mos.zap_add_u64(dir.object, dir_field::FILESYSTEM_COUNT, 0, tx)?;
        parts.meta.mos.zap_add_u64(dir.object, dir_field::SNAPSHOT_COUNT, 0, tx)?;
    }
    parts.tree.dataset(head)
}

/// Makes the object set of a new head, and has it filled.
pub(in crate::dsl) fn create_objset_sync(
    parts: &Parts,
    dataset: &Arc<Dataset>,
    objset_type: ObjsetType,
    fill: Fill,
    tx: &SyncTx<'_>,
) -> Result<()> {
    let size = ObjsetSize::for_pool(parts.meta.version());
    let objset = parts.objsets.create(dataset, objset_type, size, tx)?;
    if objset_type == ObjsetType::FileSystem && size >= ObjsetSize::V3 {
        let mut flags = ondisk::objset::FLAG_USER_ACCOUNTING_COMPLETE;
        if parts.meta.features.is_enabled(Feature::UserobjAccounting) {
            dataset.activate_feature(Feature::UserobjAccounting, tx)?;
            flags |= ondisk::objset::FLAG_USER_OBJECT_ACCOUNTING_COMPLETE;
        }
        if parts.meta.features.is_enabled(Feature::ProjectQuota) {
            dataset.activate_feature(Feature::ProjectQuota, tx)?;
            flags |= ondisk::objset::FLAG_PROJECT_QUOTA_COMPLETE;
        }
        objset.set_flags(tx, flags);
    }
    parts.objsets.insert(dataset, &objset);
    fill(&objset, tx)
}

/// Makes a file system or volume. Checked before.
pub(in crate::dsl) fn create_sync(parts: &Parts, new: NewDataset, tx: &SyncTx<'_>) -> Result<()> {
    let NewDataset { name, objset_type, case_insensitive, properties, fill } = new;
    let (parent, last) = check_create(parts, &name)?;
    let dataset = create_dataset_sync(parts, &parent, &last, None, None, tx)?;
    if case_insensitive {
        dataset.change(|state| state.phys_mut().flags |= DATASET_FLAG_CASE_INSENSITIVE);
    }
    let set_properties = || properties.iter().try_for_each(|(property, change)| change_property_sync(parts, &dataset, property, change, tx));
    if objset_type == ObjsetType::FileSystem {
        // As with OpenZFS, what a file system is made of is written as is inherited: with so many copies, for one.
        create_objset_sync(parts, &dataset, objset_type, fill, tx)?;
        dataset.sync(&parts.objsets.objset(&dataset)?, tx)?;
        set_properties()?;
    } else {
        set_properties()?;
        create_objset_sync(parts, &dataset, objset_type, fill, tx)?;
    }
    parts.record_dataset_event(&dataset, "create", "", tx)
}

/// The parent and the last component of the name of a new file system or volume, for which the limits leave room.
#[doc(alias = "dmu_objset_create_check")]
pub(in crate::dsl) fn check_create(parts: &Parts, name: &str) -> Result<(Arc<Dir>, String)> {
    let (parent, last) = check_new_name(parts, "create", name)?;
    if parent.crypto_key != 0 {
        return Err(cannot("create", name, "its parent is encrypted, and this version makes no encrypted datasets", ErrorKind::NotSupported));
    }
    check_limits(parts, &parent, 1, Limited::FileSystems, None)?;
    Ok((parent, last))
}

/// The parent and the last component of a name that is not taken.
pub(in crate::dsl) fn check_new_name(parts: &Parts, verb: &str, name: &str) -> Result<(Arc<Dir>, String)> {
    let parsed = DatasetName::parse(name)?;
    let invalid = |why| cannot(verb, name, why, ErrorKind::Invalid);
    let Some((parent, last)) = split_parent(parsed.dir).filter(|_| parsed.snapshot.is_none()) else {
        return Err(invalid("it is no name of a file system or volume below a pool"));
    };
    if last.starts_with('$') {
        return Err(invalid("reserved name"));
    }
    let parent = parts.tree.dir_by_name(parent).map_err(|error| match error.kind() {
        ErrorKind::NotFound => cannot(verb, name, "parent does not exist", ErrorKind::NotFound),
        _ => error,
    })?;
    if parts.tree.find_child(&parent, last)?.is_some() {
        return Err(cannot(verb, name, "dataset already exists", ErrorKind::Exists));
    }
    parts.meta.mos.zap_check_room(parent.phys().child_dirs.get(), last)?;
    let is_file_system = match parent.phys().head_dataset.get() {
        0 => false,
        head => parts.tree.dataset(head)?.objset_type()? == ObjsetType::FileSystem,
    };
    if !is_file_system {
        return Err(cannot(verb, name, "parent is not a filesystem", ErrorKind::Invalid));
    }
    Ok((parent, last.to_owned()))
}
