//! Making a pool.
//!
//! # Theory
//! A new pool is written as its first transaction group: the tree of the DSL, then the few MOS objects that belong to the pool
//! itself, then the ordinary passes until nothing changes. Devices have labels without a txg before that; a crash in between
//! leaves devices that belong to no pool.

use std::sync::Arc;

use disk::DiskRef;
use ondisk::blkptr::BlkPtr;
use ondisk::feature::Feature;
use ondisk::objset::{ObjsetSize, ObjsetType};
use ondisk::uberblock::Uberblock;
use parking_lot::Mutex;

use super::open::claim;
use super::open::{check_version, create_packed, make_context, mos_options, open_shared, open_space_maps, set_block_features};
use crate::bail;
use crate::dmu::{DmuContext, Objset, ObjsetSettings, SyncTx};
use crate::dsl::bpobj::Bpobj;
use crate::dsl::feature::Features;
use crate::dsl::meta::key;
use crate::dsl::{Dsl, Fill, Meta, Mos, MosSpace, NewTree, PropertyChange};
use crate::error::{Result, Within};
use crate::pool::config::configuration::Configuration;
use crate::pool::config::pool_config::{PoolConfig, VERSION_FEATURES};
use crate::pool::devices::{draid, vdev_zaps};
use crate::pool::layers::Layers;
use crate::pool::maintenance::record_version;
use crate::pool::sync::writer::GroupWriter;
use crate::pool::{OpenOptions, Pool};
use crate::txg::TXG_INITIAL;
use crate::vdev::label::init_labels;
use crate::vdev::{NewTop, VdevTree};

/// In the MOS directory: the version the pool was made with.
const CREATION_VERSION: &str = "creation_version";
/// In the MOS directory: used space is counted without the share of parity.
const DEFLATE: &str = "deflate";
/// The first version that counts so.
const VERSION_DEFLATE: u64 = 3;

/// A top-level vdev of a new pool.
pub type NewVdev = NewTop;

/// What a new pool is to be.
pub struct NewPool {
    /// Its name.
    pub name: String,
    /// Its top-level vdevs.
    pub vdevs: Vec<NewVdev>,
    /// Features to enable, of a pool that has such.
    pub features: Vec<Feature>,
    /// Properties of the root file system.
    pub properties: Vec<(String, PropertyChange)>,
    /// Puts the first objects into the root file system.
    pub fill: Fill,
    /// The command line, for the history; it may be recorded later.
    pub command: String,
    /// Changes to the configuration (version, comment, compatibility).
    pub configure: Box<dyn FnOnce(&mut PoolConfig) + Send>,
}

/// Makes a pool and leaves it open.
///
/// # Errors
/// A device is too small or cannot be written.
pub(in crate::pool) fn create(new: NewPool, options: OpenOptions) -> Result<Arc<Pool>> {
    let name = new.name.clone();
    create_named(new, options).within(|| format!("pool {name}"))
}

fn create_named(new: NewPool, options: OpenOptions) -> Result<Arc<Pool>> {
    let NewPool { name, vdevs, features, properties, fill, command, configure } = new;
    let host = options.host.clone();
    let disks: Vec<DiskRef> = vdevs.iter().flat_map(|top| top.leaves.iter().map(|leaf| leaf.disk.clone())).collect();
    if vdevs.iter().any(|top| top.bias.is_class()) && !features.contains(&Feature::AllocationClasses) {
        bail!(Unsupported, "special and dedup vdevs need the feature allocation_classes");
    }
    if vdevs.iter().any(|top| top.draid.is_some()) && !features.contains(&Feature::Draid) {
        bail!(Unsupported, "dRAID vdevs need the feature draid");
    }
    let vdevs = Arc::new(VdevTree::create(&*host, vdevs, TXG_INITIAL)?);
    let guid = host.random();
    vdevs.update_root_config(|root| root.guid = guid);
    let mut config = PoolConfig::new(&name, guid, VERSION_FEATURES);
    configure(&mut config);
    let version = config.version;
    check_version(version)?;
    write_first_labels(&vdevs, &config, disks.len())?;

    let context = make_context(&options, &vdevs, TXG_INITIAL - 1);
    context.io.set_writable(true);
    let frees = Mutex::new(Vec::new());
    let tx = SyncTx::new(&context, TXG_INITIAL, 1, &frees);
    let space = Arc::new(MosSpace::default());
    let mos = Mos(Objset::create(mos_options(&context, space.clone()), &tx, ObjsetType::Meta, ObjsetSize::for_pool(version)));
    let meta = Meta::new(mos.clone(), Features::default(), version, context.clone());
    let tree = NewTree { pool: name, features, properties, fill };
    let dsl = Dsl::create(meta, tree, space, options.file_owner, &tx)?;
    mos.0.set_settings(ObjsetSettings::mos(dsl.meta.features.is_enabled(Feature::Lz4Compress)));
    let config_object = create_pool_objects(&dsl, &vdevs, &tx)?;
    set_block_features(&context, &dsl.meta)?;
    dsl.meta.features.take_label_is_stale();
    for feature in dsl.meta.features.for_label() {
        config.set_feature_for_read(feature, true);
    }
    let space_maps = open_space_maps(&context, &vdevs, &mos, &dsl)?;
    let shared = Some(open_shared(&context, &vdevs, &dsl)?);
    let deferred = mos.zap_u64(key::DIRECTORY, key::DEFERRED_BPOBJ)?.map(Bpobj);
    let configuration = Arc::new(Configuration::new(vdevs.clone(), config, config_object, true));
    let layers = Layers { vdevs, context: context.clone(), dsl, space_maps: Some(space_maps), shared };
    let writer = Arc::new(GroupWriter::new(layers, configuration.clone(), Uberblock::empty(), deferred));
    let pool = Pool::new(writer.clone(), Vec::new());
    writer.refresh_space();
    claim(&configuration, &host);
    record_version(writer.layers(), &configuration, "create", &tx)?;
    if !command.is_empty() {
        writer.layers().dsl.record_command_sync(&command, 0, &tx)?;
    }
    return_all(&context, &frees)?;
    // The first group: what was just made, and what its space maps need.
    writer.sync_now()?;
    writer.start_threads();
    Ok(pool)
}

/// Objects freed while the tree was made were never written.
fn return_all(context: &DmuContext, frees: &Mutex<Vec<BlkPtr>>) -> Result<()> {
    let freed = std::mem::take(&mut *frees.lock());
    freed.iter().try_for_each(|bp| context.io.free(bp, TXG_INITIAL))
}

fn write_first_labels(vdevs: &VdevTree, config: &PoolConfig, expected: usize) -> Result<()> {
    let mut written = 0;
    for top in vdevs.tops() {
        for leaf in &top.leaves() {
            if let Some(disk) = leaf.disk() {
                init_labels(&*disk, &config.first_label(vdevs, &top, leaf, TXG_INITIAL))?;
                written += 1;
            }
        }
    }
    assert_eq!(written, expected, "a device of the new pool got no label");
    Ok(())
}

/// The MOS objects that belong to the pool itself. Returns that of the configuration.
fn create_pool_objects(dsl: &Arc<Dsl>, vdevs: &VdevTree, tx: &SyncTx<'_>) -> Result<u64> {
    let mos = &dsl.meta.mos;
    let config = create_packed(mos, key::CONFIG, tx)?;
    mos.zap_add_u64(key::DIRECTORY, CREATION_VERSION, dsl.meta.version(), tx)?;
    let deferred = Bpobj::create(&dsl.meta, tx)?;
    mos.zap_add_u64(key::DIRECTORY, key::DEFERRED_BPOBJ, deferred.0, tx)?;
    if dsl.meta.version() >= VERSION_DEFLATE {
        mos.zap_add_u64(key::DIRECTORY, DEFLATE, 1, tx)?;
    }
    if dsl.meta.version() >= VERSION_FEATURES {
        create_salt(dsl, tx)?;
    }
    vdev_zaps::create_all(&dsl.meta, vdevs, tx)?;
    vdev_zaps::create_for_root(&dsl.meta, vdevs, tx)?;
    draid::begin_to_use(&dsl.meta, &vdevs.tops(), tx)?;
    Ok(config)
}

pub(in crate::pool) fn create_salt(dsl: &Dsl, tx: &SyncTx<'_>) -> Result<()> {
    let host = &dsl.meta.context.host;
    let salt: Vec<u8> = (0..4).flat_map(|_| host.random().to_le_bytes()).collect();
    let directory = dsl.meta.mos.zap(key::DIRECTORY)?;
    directory.add(tx, key::CHECKSUM_SALT, crate::zap::Integers::U8(&salt))
}
