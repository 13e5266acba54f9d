//! Opening a pool.
//!
//! # Theory
//! The labels say just enough to read the MOS; the MOS has the whole configuration. So the pool is opened twice: once
//! to read the configuration, with the vdev tree that the labels describe, and then for good with the tree of the MOS.

use std::sync::{Arc, Weak};

use ondisk::blkptr::BlkPtr;
use ondisk::feature::Feature;
use ondisk::nvlist::NvList;
use ondisk::object_type::ObjectType;
use ondisk::uberblock::Uberblock;
use zerocopy::{FromBytes, IntoBytes};
use zerocopy::little_endian::U64;

use super::heads::each_head;
use super::import::Candidate;
use crate::alloc::{Allocator, ClassKind, GroupConfig};
use crate::arc::BlockCache;
use crate::dmu::{DmuContext, FileOwnerOf, Objset, ObjsetOptions, ObjsetSettings, SyncTx};
use crate::dsl::bpobj::Bpobj;
use crate::dsl::feature::Features;
use crate::dsl::meta::key;
use crate::dsl::{Dsl, Meta, Mos, MosSpace};
use crate::error::{Result, Within};
use crate::host::HostRef;
use crate::pool::Pool;
use crate::pool::checkpoint;
use crate::pool::config::configuration::Configuration;
use crate::pool::config::pool_config::{PoolConfig, PoolState};
use crate::pool::config::properties::obey_stored_properties;
use crate::pool::devices::{dirty_time_log, distributed};
use crate::pool::devices::removed;
use crate::pool::devices::vdev_properties::load_autosit;
use crate::pool::devices::vdev_zaps::{ALLOCATION_BIAS, free_of_leaf};
use crate::pool::layers::Layers;
use crate::pool::{expansion, leaf_work, rebuild, removal, scan, time_log_sync};
use crate::pool::shared_blocks::SharedBlocks;
use crate::pool::space_maps::{FeatureCounts, SpaceMaps, SpaceMapsOptions, VdevSpace};
use crate::pool::sync::claim::Claim;
use crate::pool::sync::writer::GroupWriter;
use crate::tunables::{Parameter, Tunables};
use crate::txg::{DirtyBytes, Txg, TxgGroups};
use crate::vdev::key as vdev_key;
use crate::vdev::{Bias, TopVdev, VdevConfig, VdevTree};
use crate::zio::{BlockFeatures, BlockIo, BlockTables, BlockThreads, SharedVdevs};
use crate::{bail, error};

/// How a pool is to be opened.
pub struct OpenOptions {
    /// Time, randomness, threads.
    pub host: HostRef,
    /// Limits.
    pub tunables: Tunables,
    /// Nothing may be changed.
    pub read_only: bool,
    /// Finds the owner of a file in its bonus (file systems: from the layer above).
    pub file_owner: Option<FileOwnerOf>,
    /// Another name for the pool.
    pub new_name: Option<String>,
    /// What an intent log on a device that is missing holds may be lost (`zpool import -m`).
    pub forget_log: bool,
}

/// What the import of a pool says of it, that no other way of opening one has to say.
#[derive(Default)]
pub struct Import {
    /// The new name is for this import only: on disk the pool keeps its own.
    pub temporary_name: bool,
    /// By it other hosts see that the pool is being opened.
    pub claim: Option<Claim>,
}

/// Pool version from which log blocks begin with their link.
#[doc(alias = "SPA_VERSION_SLIM_ZIL")]
const VERSION_NEW_LOG: u64 = 26;
/// Block size of objects that are an nvlist.
const PACKED_BLOCK_BYTES: u64 = 16 << 10;
/// Largest configuration that is believed.
const CONFIG_BYTES_MAX: u64 = 64 << 20;

/// Makes the layers up to the dmu.
pub(in crate::pool) fn make_context(options: &OpenOptions, vdevs: &Arc<VdevTree>, synced: u64) -> Arc<DmuContext> {
    vdevs.set_clock(&options.host);
    vdevs.set_limits(&options.tunables);
    vdevs.set_writing_txg(synced);
    let workers = options.tunables.write_workers;
    let allocator = Arc::new(Allocator::new(workers));
    let threads = BlockThreads { writers: workers, readers: options.tunables.read_workers };
    let io = BlockIo::new(&options.host, Arc::new(SharedVdevs(vdevs.clone())), allocator, threads);
    Arc::new(DmuContext {
        cache: Arc::new(BlockCache::under(io.clone(), options.tunables.cache_bytes_max, options.tunables.memory_pressure.clone())),
        io,
        groups: TxgGroups::new(synced),
        dirty: DirtyBytes::default(),
        host: options.host.clone(),
        tunables: options.tunables.clone(),
        read_only: options.read_only,
    })
}

pub(in crate::pool) fn open_mos(context: &Arc<DmuContext>, uberblock: &Uberblock, space: Arc<MosSpace>) -> Result<Mos> {
    let Some(pointer) = BlkPtr::from_bytes(&uberblock.root) else { bail!(Corrupt, "uberblock: no root pointer") };
    Ok(Mos(Objset::open(mos_options(context, space), pointer)?))
}

/// How the MOS is opened, and made.
pub(in crate::pool) fn mos_options(context: &Arc<DmuContext>, space: Arc<MosSpace>) -> ObjsetOptions {
    ObjsetOptions {
        context: context.clone(),
        dataset: 0,
        name: "MOS".into(),
        owner: space,
        settings: ObjsetSettings::mos(true),
        file_owner: None,
        snapshot: false,
    }
}

/// Reads the configuration that is in the MOS.
pub(in crate::pool) fn read_config(mos: &Mos) -> Result<(u64, NvList)> {
    let object = mos.zap_u64(key::DIRECTORY, key::CONFIG)?.ok_or_else(|| error!(Corrupt, "the MOS has no configuration"))?;
    Ok((object, read_packed(mos, object).within(|| "configuration")?))
}

/// Reads an nvlist that is an object of its own.
pub(in crate::pool) fn read_packed(mos: &Mos, object: u64) -> Result<NvList> {
    let bonus = mos.bonus(object)?;
    let size = U64::read_from_prefix(&bonus).map_or(0, |(size, _)| size.get());
    if size == 0 || size > CONFIG_BYTES_MAX {
        bail!(Corrupt, "{size} bytes");
    }
    let packed = mos.read(object, 0, size as usize)?;
    Ok(NvList::decode(&packed)?)
}

/// Writes such an nvlist. What was there may have been longer: its size is what counts.
pub(in crate::pool) fn write_packed(mos: &Mos, object: u64, list: &NvList, tx: &SyncTx<'_>) -> Result<()> {
    let packed = list.encode_xdr();
    mos.write(object, 0, &packed, tx)?;
    mos.set_bonus(object, U64::new(packed.len() as u64).as_bytes(), tx)
}

/// Makes an object for such an nvlist, and notes it in the MOS's directory.
pub(in crate::pool) fn create_packed(mos: &Mos, name: &str, tx: &SyncTx<'_>) -> Result<u64> {
    let object = mos.allocate(ObjectType::PACKED_NVLIST, PACKED_BLOCK_BYTES, ObjectType::PACKED_NVLIST_SIZE, 8, tx)?;
    mos.zap_add_u64(key::DIRECTORY, name, object, tx)?;
    Ok(object)
}

/// Opens the pool of `candidate`, whose devices are open as `options` needs them.
///
/// # Errors
/// A device is missing, a feature is not known, something cannot be read: the error names it.
pub(in crate::pool) fn open(candidate: &Candidate, options: OpenOptions, import: Import) -> Result<Arc<Pool>> {
    let label_name = candidate.config.name.clone();
    open_named(candidate, options, None, import).within(|| format!("pool {label_name}"))
}

/// Opens what the devices of `candidate`, one side of each mirror, hold, as another pool with this guid.
///
/// # Errors
/// As for [`open`]; a top-level vdev is no mirror.
pub(in crate::pool) fn open_split(candidate: &Candidate, options: OpenOptions, guid: u64) -> Result<Arc<Pool>> {
    open_named(candidate, options, Some(guid), Import::default())
}

fn open_named(candidate: &Candidate, options: OpenOptions, split: Option<u64>, import: Import) -> Result<Arc<Pool>> {
    candidate.config.check_features_for_read()?;
    if candidate.has_moved_since {
        let txg = candidate.uberblock().txg;
        bail!(Corrupt, "its state in txg {txg} is gone: sectors of a RAID-Z that got a device more have been moved since");
    }
    let uberblock = candidate.uberblock().clone();
    let vdevs = Arc::new(candidate.open_tree()?);
    vdevs.set_reflow(&uberblock);
    let context = make_context(&options, &vdevs, uberblock.txg);
    let mos = open_mos(&context, &uberblock, Arc::default())?;
    let (_, stored) = read_config(&mos)?;
    drop((mos, context, vdevs));

    let mut tree = VdevConfig::from_nvlist(stored.require_nvlist("vdev_tree")?).within(|| "vdev tree")?;
    let mut gone = Vec::new();
    if let Some(guid) = split {
        (tree, gone) = tree.split(&|side| candidate.devices.iter().any(|device| device.guid == side))?;
        tree.guid = guid;
    }
    let candidate = &candidate.recognized(&tree, options.tunables.now(Parameter::ValidateSkip) != 0);
    candidate.correct_paths(&mut tree);
    let vdevs = Arc::new(VdevTree::from_config(tree, &candidate.device_map())?);
    vdevs.check_complete()?;
    vdevs.set_reflow(&uberblock);
    // Going back in time does not use a txg's number twice.
    let context = make_context(&options, &vdevs, candidate.newest_txg);
    let space = Arc::new(MosSpace::default());
    let mos = open_mos(&context, &uberblock, space.clone())?;
    removed::load_maps(&mos, &vdevs)?;
    dirty_time_log::load(&mos, &vdevs, candidate)?;
    let (config_object, stored) = read_config(&mos)?;
    let mut config = PoolConfig::from_nvlist(&stored)?;
    config.version = uberblock.version;
    let (name, stored_name) = names(candidate, &options, &import);
    (config.name, config.temporary_name) = (stored_name, import.temporary_name.then(|| name.clone()));
    config.state = PoolState::Active;
    config.guid = split.unwrap_or(config.guid);
    config.features_for_read.clone_from(&candidate.config.features_for_read);
    check_version(config.version)?;
    let (features, unsupported) = load_features(&mos, &options)?;
    mos.0.set_settings(ObjsetSettings::mos(features.is_enabled(Feature::Lz4Compress)));
    let meta = Meta::new(mos.clone(), features, config.version, context.clone());
    set_block_features(&context, &meta)?;
    context.io.set_writable(!options.read_only);
    let dsl = Dsl::open(meta, &name, space, options.file_owner)?;
    let space_maps = match open_space_maps(&context, &vdevs, &mos, &dsl) {
        Ok(maps) => Some(maps),
        Err(_) if options.read_only => None,
        Err(error) => return Err(error),
    };
    // What only reads wants no more of the tables than what they save.
    let shared = if options.read_only { SharedBlocks::open(&dsl.meta, &vdevs).ok() } else { Some(open_shared(&context, &vdevs, &dsl)?) };
    let deferred = mos.zap_u64(key::DIRECTORY, key::DEFERRED_BPOBJ)?.map(Bpobj);
    let configuration = Arc::new(Configuration::new(vdevs.clone(), config, config_object, false));
    let layers = Layers { vdevs, context, dsl, space_maps, shared };
    let writer = Arc::new(GroupWriter::new(layers, configuration, uberblock, deferred));
    let pool = Pool::new(writer, unsupported);
    pool.groups().refresh_space();
    expansion::open(pool.groups())?;
    rebuild::open(pool.groups())?;
    time_log_sync::open(pool.groups())?;
    if split.is_some() {
        forget_sides(pool.groups(), gone)?;
    }
    if !options.read_only {
        begin_writing(pool.groups(), &options.host, options.forget_log, import.claim)?;
    }
    Ok(pool)
}

/// The name that the pool goes by, and the one that it has on disk.
fn names(candidate: &Candidate, options: &OpenOptions, import: &Import) -> (String, String) {
    let old = candidate.config.name.clone();
    let name = options.new_name.clone().unwrap_or_else(|| old.clone());
    let stored = if import.temporary_name { old } else { name.clone() };
    (name, stored)
}

/// What the MOS has of devices that are another pool's is freed with the first group.
fn forget_sides(writer: &Arc<GroupWriter>, gone: Vec<VdevConfig>) -> Result<()> {
    let (layers, forgetting) = (writer.layers(), writer.clone());
    writer.configuration().write_labels();
    layers.dsl.queue_task(move |dsl, tx| {
        let maps = forgetting.layers().space_maps.as_ref();
        for side in gone.iter().flat_map(|side| side.leaves()) {
            if let (Some(maps), 1..) = (maps, side.number(vdev_key::DTL)) {
                maps.free_ranges(tx, side.number(vdev_key::DTL))?;
            }
            free_of_leaf(&dsl.meta.mos, side, tx)?;
        }
        Ok(())
    })?;
    Ok(())
}

fn begin_writing(writer: &Arc<GroupWriter>, host: &HostRef, forget_log: bool, import_claim: Option<Claim>) -> Result<()> {
    let layers = writer.layers();
    checkpoint::open(writer)?;
    claim_logs(layers, &writer.uberblock(), forget_log)?;
    obey_stored_properties(writer)?;
    removal::open(writer)?;
    claim(writer.configuration(), host);
    distributed::open(writer)?;
    scan::open(writer)?;
    leaf_work::open(writer)?;
    if let Some(import_claim) = import_claim {
        import_claim.hand_over()?;
    }
    writer.start_threads();
    leaf_work::resume(writer);
    leaf_work::autotrim::obey(writer)
}

/// The labels are to say that the pool is ours and in use.
pub(in crate::pool) fn claim(configuration: &Configuration, host: &HostRef) {
    configuration.change_on_labels(|config| {
        config.host_id = host.host_id().into();
        config.host_name = host.host_name().as_str().into();
    });
}

/// Claims the intent logs of all datasets (see [`crate::zil`]), before anything else is allocated. Those of a checkpoint are void, as are those of a
/// group that others followed.
fn claim_logs(layers: &Layers, opened: &Uberblock, forget_unreadable: bool) -> Result<()> {
    let hold = layers.context.groups.hold();
    let last: Txg = if opened.checkpoint_txg == 0 { opened.txg } else { opened.checkpoint_txg };
    let first = last + 1;
    each_head(&layers.dsl, |objset| {
        if objset.pointer().uses_encryption() {
            return crate::zil::claim_encrypted(objset, first, hold.txg(), forget_unreadable);
        }
        if first < hold.txg() {
            return crate::zil::give_up_later(objset, first, hold.txg());
        }
        crate::zil::claim(objset, hold.txg(), forget_unreadable).map(|_| ())
    })
}

pub(in crate::pool) fn check_version(version: u64) -> Result<()> {
    match version {
        1..=28 | 5000 => Ok(()),
        other => bail!(Unsupported, "version {other} is not supported"),
    }
}

fn load_features(mos: &Mos, options: &OpenOptions) -> Result<(Features, Vec<crate::dsl::feature::Unsupported>)> {
    let (features, unsupported) = Features::load(mos, !options.read_only)?;
    let blocking: Vec<String> = unsupported
        .iter()
        .filter(|feature| !options.read_only || !feature.readable)
        .map(|feature| if feature.description.is_empty() { feature.guid.clone() } else { format!("{} ({})", feature.guid, feature.description) })
        .collect();
    if blocking.is_empty() {
        return Ok((features, unsupported));
    }
    let readable = unsupported.iter().all(|feature| feature.readable);
    let advice = if readable && !options.read_only { "; the pool can be imported with -o readonly=on" } else { "" };
    bail!(Unsupported, "uses features that are not supported: {}{advice}", blocking.join(", "))
}

/// Tells the block layer what the features allow, and the salt.
pub(in crate::pool) fn set_block_features(context: &DmuContext, meta: &Meta) -> Result<()> {
    let features = &meta.features;
    context.io.set_features(BlockFeatures {
        embedded_data: features.is_enabled(Feature::EmbeddedData),
        hole_birth: features.is_active(Feature::HoleBirth),
        block_cloning: features.is_enabled(Feature::BlockCloning),
        dynamic_gang_header: features.is_active(Feature::DynamicGangHeader),
        old_log: meta.version() < VERSION_NEW_LOG,
    });
    if let Some(value) = meta.mos.zap_get(key::DIRECTORY, key::CHECKSUM_SALT)? {
        let bytes = value.to_le_bytes();
        let Ok(salt) = <[u8; 32]>::try_from(bytes.as_slice()) else { bail!(Corrupt, "checksum salt of {} bytes", bytes.len()) };
        context.io.set_salt(salt);
    }
    Ok(())
}

/// What a top-level vdev is for: its ZAP says so, and of a log its description.
fn allocation_class(mos: &Mos, top: &TopVdev) -> Result<ClassKind> {
    let word = if top.is_log() || top.zap() == 0 { None } else { mos.zap_get(top.zap(), ALLOCATION_BIAS)? };
    if let Some(word) = word {
        top.set_bias(Bias::from_word(&word.to_text()));
    }
    Ok(match top.bias() {
        Bias::None => ClassKind::Normal,
        Bias::Log => ClassKind::Log,
        Bias::Special => ClassKind::Special,
        Bias::Dedup => ClassKind::Dedup,
    })
}

/// What the allocator needs to know of each vdev.
fn vdev_spaces(vdevs: &VdevTree, mos: &Mos) -> Result<Vec<VdevSpace>> {
    vdevs.data_tops().iter().map(|top| vdev_space(top, mos)).collect()
}

/// What the allocator needs to know of a vdev.
pub(in crate::pool) fn vdev_space(top: &Arc<TopVdev>, mos: &Mos) -> Result<VdevSpace> {
    let narrow = |what: &str, number: u64| u8::try_from(number).map_err(|_| error!(Corrupt, "vdev {}: bad {what} ({number})", top.id()));
    let sizing = top.clone();
    let class = allocation_class(mos, top)?;
    load_autosit(mos, top)?;
    Ok(VdevSpace {
        group: GroupConfig {
            vdev: u32::try_from(top.id()).map_err(|_| error!(Corrupt, "vdev {}: number too large", top.id()))?,
            class,
            ashift: narrow("ashift", top.ashift().into())?,
            metaslab_shift: narrow("metaslab shift", top.metaslab_shift().into())?,
            data_disks: top.layout().data_disks(),
            allocation_bytes: top.layout().allocation_bytes(),
            allocated_size: Box::new(move |physical, txg| sizing.layout().allocated_size(physical, txg)),
        },
        bytes: top.asize(),
        metaslab_array: top.metaslab_array(),
        top_zap: top.zap(),
        is_closed: top.config().number(vdev_key::NON_ALLOCATING) != 0 || top.is_removing(),
    })
}

pub(in crate::pool) fn open_shared(context: &DmuContext, vdevs: &Arc<VdevTree>, dsl: &Arc<Dsl>) -> Result<Arc<SharedBlocks>> {
    let shared = SharedBlocks::open(&dsl.meta, vdevs)?;
    context.io.set_tables(Arc::downgrade(&shared) as Weak<dyn BlockTables>);
    Ok(shared)
}

pub(in crate::pool) fn open_space_maps(context: &Arc<DmuContext>, vdevs: &Arc<VdevTree>, mos: &Mos, dsl: &Arc<Dsl>) -> Result<Arc<SpaceMaps>> {
    SpaceMaps::open(SpaceMapsOptions {
        mos: mos.0.clone(),
        allocator: context.io.allocator().clone(),
        features: Arc::new(CountedFeatures(dsl.meta.clone())),
        vdevs: vdev_spaces(vdevs, mos)?,
        top_level_vdevs: vdevs.tops().len() as u32,
    })
}

/// The features as the space maps see them.
struct CountedFeatures(Arc<Meta>);

impl FeatureCounts for CountedFeatures {
    fn is_enabled(&self, feature: Feature) -> bool {
        self.0.features.is_enabled(feature)
    }

    fn is_active(&self, feature: Feature) -> bool {
        self.0.features.is_active(feature)
    }

    fn add(&self, tx: &SyncTx<'_>, feature: Feature, change: i64) -> Result<()> {
        let meta = &self.0;
        for _ in 0..change.unsigned_abs() {
            if change > 0 {
                meta.features.increment(&meta.mos, feature, tx)?;
            } else {
                meta.features.decrement(&meta.mos, feature, tx)?;
            }
        }
        Ok(())
    }
}
