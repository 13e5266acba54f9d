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

use crate::dsl::dead::bpobj::Bpobj;
use crate::dsl::tree::create_sync::Fill;
use crate::dsl::tree::dataset::Dataset;
use crate::dsl::dead::deadlist::Deadlist;
use crate::dsl::meta::{Meta, key};
use crate::dsl::props::prop_sync::PropertyChange;
use crate::dsl::tree::tree::{Dsl, FREE_DIR, MOS_DIR, MosSpace, ORIGIN_DIR};
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
        let NewTree { pool, features, properties, fill } = new;
        let dsl = Self::new(meta, mos_space, file_owner);
        let mos = dsl.meta.mos.clone();
        Zap::create_at(&mos.0, tx, key::DIRECTORY, &ZapSpec::new(ObjectType::OBJECT_DIRECTORY))?;
        let root = dsl.create_dir_sync(None, &pool, tx)?;
        let root = dsl.dir(root, Some(&pool))?;
        dsl.special.write().root = Some(root.clone());
        let mos_dir = dsl.create_dir_sync(Some(&root), MOS_DIR, tx)?;
        dsl.special.write().mos = Some(dsl.dir(mos_dir, Some(MOS_DIR))?);
        if dsl.meta.version() >= 26 {
            let free = dsl.create_dir_sync(Some(&root), FREE_DIR, tx)?;
            dsl.special.write().free = Some(dsl.dir(free, Some(FREE_DIR))?);
            let list = Bpobj::create(&dsl.meta, tx)?;
            mos.zap_add_u64(key::DIRECTORY, key::FREE_BPOBJ, list.0, tx)?;
            dsl.special.write().free_bpobj = Some(list);
        }
        if dsl.meta.version() >= 11 {
            dsl.create_origin(tx)?;
        }
        if dsl.meta.version() >= VERSION_FEATURES {
            dsl.meta.features.create_objects(&mos, tx)?;
            for feature in features {
                dsl.meta.features.enable(&mos, feature, tx)?;
            }
        }
        let head = dsl.create_head_sync(&root, None, tx)?;
        let head = dsl.dataset(head)?;
        for (property, change) in &properties {
            head.change_property_sync(property, change, tx)?;
        }
        dsl.create_objset_sync(&head, ObjsetType::FileSystem, fill, tx)?;
        Ok(dsl)
    }

    /// Makes `$ORIGIN` and its snapshot, which have no object set.
    fn create_origin(self: &Arc<Self>, tx: &SyncTx<'_>) -> Result<()> {
        let root = self.root_dir()?;
        let head = self.create_dataset_sync(&root, ORIGIN_DIR, None, tx)?;
        let snapshot = self.snapshot_empty_head(&head, ORIGIN_DIR, tx)?;
        self.special.write().origin_snapshot = Some(snapshot);
        Ok(())
    }

    /// A snapshot of a head that has nothing in it. Its txg is 1: before everything else in the pool.
    fn snapshot_empty_head(self: &Arc<Self>, head: &Arc<Dataset>, name: &str, tx: &SyncTx<'_>) -> Result<u64> {
        let mos = &self.meta.mos;
        let from = head.phys();
        let object = mos.allocate(ObjectType::DSL_DATASET, 0, ObjectType::DSL_DATASET, size_of_val(&from), tx)?;
        let mut phys = self.new_dataset_phys(&head.dir);
        phys.next_snapshot = head.object.into();
        phys.children = 1.into();
        phys.creation_txg = 1.into();
        phys.deadlist = from.deadlist;
        phys.flags = from.flags;
        mos.set_bonus(object, phys.as_bytes(), tx)?;
        let deadlist = head.deadlist().clone_keys(&self.meta, u64::MAX, &[], tx)?;
        let deadlist = Arc::new(Deadlist::open(&self.meta, deadlist)?);
        deadlist.add_key(&self.meta, from.prev_snapshot_txg.get(), tx)?;
        mos.zap_add_u64(from.snapshot_names.get(), name, object, tx)?;
        let snapshot = self.dataset(object)?;
        head.change(|state| {
            state.phys.deadlist = deadlist.object.into();
            state.deadlist = deadlist;
            state.phys.prev_snapshot = object.into();
            state.phys.prev_snapshot_txg = 1.into();
            state.phys.unique_bytes = 0.into();
            state.prev = Some(snapshot);
        });
        self.flush_records(tx)?;
        Ok(object)
    }
}
