//! The tree of a new pool.
//!
//! # On disk
//! Made in this order, as OpenZFS does: the object directory (object 1), the root directory, `$MOS`, `$FREE` with the list of blocks
//! to free, `$ORIGIN` with its snapshot `$ORIGIN@$ORIGIN`, the features' ZAPs, the root's head with its object set.

use std::sync::Arc;

use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;
use ondisk::objset::ObjsetType;
use zerocopy::IntoBytes;

use super::dataset::Dataset;
use super::dead::bpobj::Bpobj;
use super::dsl::{Dsl, Parts};
use super::meta::{Meta, key};
use super::props::prop_sync::{PropertyChange, change_property_sync};
use super::tree::create_sync::{Fill, create_dataset_sync, create_dir_sync, create_head_sync, create_objset_sync, new_dataset_phys};
use super::{FREE_DIR, MOS_DIR, MosSpace, ORIGIN_DIR};
use crate::dmu::{FileOwnerOf, SyncTx};
use crate::error::Result;
use crate::zap::{Zap, ZapSpec};

/// Pool version with features.
const VERSION_FEATURES: u64 = 5000;

/// What a new pool's tree starts with.
pub struct NewTree {
    /// The pool's name.
    pub pool: String,
    /// The features to enable; those they depend on are too.
    pub features: Vec<Feature>,
    /// Properties of the root file system.
    pub properties: Vec<(String, PropertyChange)>,
    /// Puts the first objects into the root file system.
    pub fill: Fill,
}

impl Dsl {
    /// Makes the tree of a new pool. `meta` has the new MOS, without any object yet, and no features.
    ///
    /// # Errors
    /// None that is expected; the pool is not made.
    pub fn create(
        meta: Meta,
        new: NewTree,
        mos_space: Arc<MosSpace>,
        file_owner: Option<FileOwnerOf>,
        tx: &SyncTx<'_>,
    ) -> Result<Arc<Self>> {
        let dsl = Self::new(meta, mos_space, file_owner);
        create_tree(&dsl.parts, new, tx)?;
        Ok(dsl)
    }
}

fn create_tree(parts: &Parts, new: NewTree, tx: &SyncTx<'_>) -> Result<()> {
    let NewTree { pool, features, properties, fill } = new;
    let Parts { meta, tree, ledger, frees, .. } = parts;
    let mos = &meta.mos;
    Zap::create_at(&mos.0, tx, key::DIRECTORY, &ZapSpec::new(ObjectType::OBJECT_DIRECTORY))?;
    let root = tree.dir(create_dir_sync(parts, None, &pool, tx)?, Some(&pool))?;
    tree.set_root(root.clone());
    ledger.set_mos_dir(tree.dir(create_dir_sync(parts, Some(&root), MOS_DIR, tx)?, Some(MOS_DIR))?);
    if meta.version() >= 26 {
        frees.set_dir(tree.dir(create_dir_sync(parts, Some(&root), FREE_DIR, tx)?, Some(FREE_DIR))?);
        let list = Bpobj::create(meta, tx)?;
        mos.zap_add_u64(key::DIRECTORY, key::FREE_BPOBJ, list.0, tx)?;
        frees.set_list(list);
    }
    if meta.version() >= 11 {
        create_origin(parts, tx)?;
    }
    if meta.version() >= VERSION_FEATURES {
        meta.features.create_objects(mos, tx)?;
        for feature in features {
            meta.features.enable(mos, feature, tx)?;
        }
    }
    let head = tree.dataset(create_head_sync(parts, &root, None, tx)?)?;
    for (property, change) in &properties {
        change_property_sync(parts, &head, property, change, tx)?;
    }
    create_objset_sync(parts, &head, ObjsetType::FileSystem, fill, tx)
}

/// Makes `$ORIGIN` and its snapshot, which have no object set.
fn create_origin(parts: &Parts, tx: &SyncTx<'_>) -> Result<()> {
    let root = parts.tree.root_dir()?;
    let head = create_dataset_sync(parts, &root, ORIGIN_DIR, None, None, tx)?;
    let snapshot = snapshot_empty_head(parts, &head, ORIGIN_DIR, tx)?;
    parts.tree.set_origin_snapshot(snapshot);
    Ok(())
}

/// A snapshot of a head that has nothing in it. Its txg is 1: before everything else in the pool.
fn snapshot_empty_head(parts: &Parts, head: &Arc<Dataset>, name: &str, tx: &SyncTx<'_>) -> Result<u64> {
    let mos = &parts.meta.mos;
    let from = head.phys();
    let object = mos.allocate(ObjectType::DSL_DATASET, 0, ObjectType::DSL_DATASET, size_of_val(&from), tx)?;
    let mut phys = new_dataset_phys(parts, &head.dir);
    phys.next_snapshot = head.object.into();
    phys.children = 1.into();
    phys.creation_txg = 1.into();
    phys.deadlist = from.deadlist;
    phys.flags = from.flags;
    mos.set_bonus(object, phys.as_bytes(), tx)?;
    let deadlist = Arc::new(head.deadlist().clone_keys(&parts.meta, u64::MAX, &|| Ok(Vec::new()), tx)?);
    deadlist.add_key(&parts.meta, from.prev_snapshot_txg.get(), tx)?;
    mos.zap_add_u64(from.snapshot_names.get(), name, object, tx)?;
    let snapshot = parts.tree.dataset(object)?;
    head.change(|state| {
        state.set_deadlist(deadlist);
        state.set_prev(Some(snapshot));
        let phys = state.phys_mut();
        phys.prev_snapshot = object.into();
        phys.prev_snapshot_txg = 1.into();
        phys.unique_bytes = 0.into();
    });
    parts.records.flush(&parts.meta.mos, tx)?;
    Ok(object)
}
