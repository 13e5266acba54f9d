//! Opening a pool.
//!
//! # Theory
//! The labels say just enough to read the MOS; the MOS has the whole configuration. So the pool is opened twice: once
//! to read the configuration, with the vdev tree that the labels describe, and then for good with the tree of the MOS.

use std::sync::{Arc, Weak};
use std::sync::atomic::{AtomicBool, AtomicU64};

use ondisk::blkptr::BlkPtr;
use ondisk::feature::Feature;
use ondisk::nvlist::NvList;
use ondisk::uberblock::Uberblock;
use parking_lot::{Condvar, Mutex};

use super::config::{PoolConfig, PoolState};
use super::import::Candidate;
use super::vdev_zaps::ALLOCATION_BIAS;
use super::{checkpoint, missed, removed};
use super::pool::{DslFeatures, Pool};
use super::shared_blocks::SharedBlocks;
use super::space_maps::{SpaceMaps, SpaceMapsOptions, VdevSpace};
use crate::alloc::{Allocator, ClassKind, GroupConfig};
use crate::arc::BlockCache;
use crate::dmu::{DmuContext, FileOwnerOf, Objset, ObjsetOptions, ObjsetSettings};
use crate::dsl::bpobj::Bpobj;
use crate::dsl::feature::Features;
use crate::dsl::meta::key;
use crate::dsl::{Dsl, Meta, Mos, MosSpace};
use crate::error::{Result, Within};
use crate::host::HostRef;
use crate::tunables::Tunables;
use crate::txg::{DirtyBytes, TxgGroups};
use crate::vdev::key as vdev_key;
use crate::vdev::{TopVdev, VdevConfig, VdevTree};
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

/// Pool version from which log blocks begin with their link.
#[doc(alias = "SPA_VERSION_SLIM_ZIL")]
const VERSION_NEW_LOG: u64 = 26;
/// Largest configuration that is believed.
const CONFIG_BYTES_MAX: u64 = 64 << 20;

/// Makes the layers up to the dmu.
pub(super) fn make_context(options: &OpenOptions, vdevs: &Arc<VdevTree>, synced: u64) -> Arc<DmuContext> {
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

pub(super) fn open_mos(context: &Arc<DmuContext>, uberblock: &Uberblock, space: Arc<MosSpace>) -> Result<Mos> {
    let Some(pointer) = BlkPtr::from_bytes(&uberblock.root) else { bail!(Corrupt, "uberblock: no root pointer") };
    Ok(Mos(Objset::open(mos_options(context, space), pointer)?))
}

/// How the MOS is opened, and made.
pub(super) fn mos_options(context: &Arc<DmuContext>, space: Arc<MosSpace>) -> ObjsetOptions {
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
pub(super) fn read_config(mos: &Mos) -> Result<(u64, NvList)> {
    let object = mos.zap_u64(key::DIRECTORY, key::CONFIG)?.ok_or_else(|| error!(Corrupt, "the MOS has no configuration"))?;
    Ok((object, read_packed(mos, object).within(|| "configuration")?))
}

/// Reads an nvlist that is an object of its own.
pub(super) fn read_packed(mos: &Mos, object: u64) -> Result<NvList> {
    let bonus = mos.bonus(object)?;
    let size = bonus.get(..8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes);
    if size == 0 || size > CONFIG_BYTES_MAX {
        bail!(Corrupt, "{size} bytes");
    }
    let packed = mos.read(object, 0, size as usize)?;
    Ok(NvList::decode(&packed)?)
}

impl Pool {
    /// Opens the pool of `candidate`, whose devices are open as `options` needs them.
    ///
    /// # Errors
    /// A device is missing, a feature is not known, something cannot be read: the error names it.
    pub fn open(candidate: &Candidate, options: OpenOptions) -> Result<Arc<Pool>> {
        let label_name = candidate.config.name.clone();
        Self::open_named(candidate, options).within(|| format!("pool {label_name}"))
    }

    fn open_named(candidate: &Candidate, options: OpenOptions) -> Result<Arc<Pool>> {
        candidate.config.check_features_for_read()?;
        let uberblock = candidate.uberblock().clone();
        let vdevs = Arc::new(candidate.open_tree()?);
        let context = make_context(&options, &vdevs, uberblock.txg);
        let mos = open_mos(&context, &uberblock, Arc::default())?;
        let (_, stored) = read_config(&mos)?;
        drop((mos, context, vdevs));

        let mut tree = VdevConfig::from_nvlist(stored.require_nvlist("vdev_tree")?).within(|| "vdev tree")?;
        candidate.correct_paths(&mut tree);
        let vdevs = Arc::new(VdevTree::from_config(tree, &candidate.device_map())?);
        vdevs.check_complete()?;
        // Going back in time does not use a txg's number twice.
        let context = make_context(&options, &vdevs, candidate.newest_txg);
        let space = Arc::new(MosSpace::default());
        let mos = open_mos(&context, &uberblock, space.clone())?;
        removed::load_maps(&mos, &vdevs, options.read_only)?;
        missed::load(&mos, &vdevs, candidate)?;
        let (config_object, stored) = read_config(&mos)?;
        let mut config = PoolConfig::from_nvlist(&stored)?;
        config.version = uberblock.version;
        config.name = options.new_name.clone().unwrap_or_else(|| candidate.config.name.clone());
        config.state = PoolState::Active;
        config.features_for_read.clone_from(&candidate.config.features_for_read);
        check_version(config.version)?;
        let (features, unsupported) = load_features(&mos, &options)?;
        mos.0.set_settings(ObjsetSettings::mos(features.is_enabled(Feature::Lz4Compress)));
        let meta = Meta::new(mos.clone(), features, config.version, context.clone());
        set_block_features(&context, &meta)?;
        context.io.set_writable(!options.read_only);
        let dsl = Dsl::open(meta, &config.name, space, options.file_owner)?;
        let space_maps = match open_space_maps(&context, &vdevs, &mos, &dsl) {
            Ok(maps) => Some(maps),
            Err(_) if options.read_only => None,
            Err(error) => return Err(error),
        };
        // What only reads wants no more of the tables than what they save.
        let shared = if options.read_only { SharedBlocks::open(&dsl, &vdevs).ok() } else { Some(open_shared(&context, &vdevs, &dsl)?) };
        let deferred = mos.zap_u64(key::DIRECTORY, key::DEFERRED_BPOBJ)?.map(Bpobj);
        let pool = Arc::new(Pool {
            vdevs,
            context,
            dsl,
            space_maps,
            shared,
            unsupported,
            config: Mutex::new(config),
            uberblock: Mutex::new(uberblock),
            config_object,
            deferred,
            config_dirty: AtomicBool::new(false),
            labels_due: AtomicBool::new(false),
            threads: Mutex::new(0),
            thread_ended: Condvar::new(),
            sync_lock: Mutex::new(()),
            written_anyway: AtomicU64::new(0),
            heartbeat: super::heartbeat::Heartbeat::default(),
            vdev_changes: Mutex::new(()),
        });
        pool.refresh_space();
        if !options.read_only
            && let Err(error) = pool.begin_writing(&options.host, options.forget_log)
        {
            // What was opened refers to itself in circles: without this the devices would stay locked.
            pool.abandon();
            return Err(error);
        }
        Ok(pool)
    }

    fn begin_writing(self: &Arc<Self>, host: &HostRef, forget_log: bool) -> Result<()> {
        checkpoint::refuse(&self.dsl.meta.mos, &self.vdevs)?;
        self.claim_logs(forget_log)?;
        self.obey_stored_properties()?;
        self.claim(host);
        self.start_threads();
        Ok(())
    }

    /// The labels are to say that the pool is ours and in use.
    pub(super) fn claim(&self, host: &HostRef) {
        self.change_config(|config| {
            config.host_id = host.host_id().into();
            config.host_name = host.host_name().as_str().into();
        });
        for top in self.vdevs.tops() {
            top.set_config_dirty();
        }
    }

    /// Claims the intent logs of all datasets (see [`crate::zil`]), before anything else is allocated.
    fn claim_logs(&self, forget_unreadable: bool) -> Result<()> {
        let hold = self.context.groups.hold();
        let first = self.uberblock().txg + 1;
        self.each_head(|objset| {
            if objset.pointer().uses_encryption() {
                return crate::zil::refuse_encrypted(objset);
            }
            if first < hold.txg() {
                return crate::zil::give_up_later(objset, first, hold.txg());
            }
            crate::zil::claim(objset, hold.txg(), forget_unreadable).map(|_| ())
        })
    }

    /// Calls `each` for the object set of every dataset that is no snapshot, but for those that are lost.
    pub(super) fn each_head(&self, mut each: impl FnMut(&Arc<Objset>) -> Result<()>) -> Result<()> {
        let mos = &self.dsl.meta.mos.0;
        let mut object = 0;
        while let Some(next) = mos.next_object(object)? {
            object = next;
            let dnode = mos.hold(object)?;
            if dnode.bonus_type() != ondisk::object_type::ObjectType::DSL_DATASET {
                continue;
            }
            let dataset = self.dsl.dataset(object)?;
            if dataset.is_snapshot || dataset.phys().block.is_hole() {
                continue;
            }
            match self.dsl.objset(&dataset) {
                // The others go on without it.
                Err(error) if error.is_loss() => tracing::error!("pool {}: {}: {error}", self.name(), dataset.dir.full_name()),
                objset => each(&objset?)?,
            }
        }
        Ok(())
    }
}

pub(super) fn check_version(version: u64) -> Result<()> {
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
pub(super) fn set_block_features(context: &DmuContext, meta: &Meta) -> Result<()> {
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

/// What a top-level vdev is for, as its ZAP says.
fn allocation_class(mos: &Mos, zap: u64) -> Result<ClassKind> {
    let bias = if zap == 0 { None } else { mos.zap_get(zap, ALLOCATION_BIAS)? };
    Ok(match bias.map(|bias| bias.to_text()).as_deref() {
        Some("special") => ClassKind::Special,
        Some("dedup") => ClassKind::Dedup,
        Some("log") => ClassKind::Log,
        _ => ClassKind::Normal,
    })
}

/// What the allocator needs to know of each vdev.
fn vdev_spaces(vdevs: &VdevTree, mos: &Mos) -> Result<Vec<VdevSpace>> {
    vdevs.data_tops().iter().map(|top| vdev_space(top, mos)).collect()
}

/// What the allocator needs to know of a vdev.
pub(super) fn vdev_space(top: &Arc<TopVdev>, mos: &Mos) -> Result<VdevSpace> {
    let narrow = |what: &str, number: u64| u8::try_from(number).map_err(|_| error!(Corrupt, "vdev {}: bad {what} ({number})", top.id()));
    let sizing = top.clone();
    let class = if top.is_log() { ClassKind::Log } else { allocation_class(mos, top.zap())? };
    Ok(VdevSpace {
        group: GroupConfig {
            vdev: u32::try_from(top.id()).map_err(|_| error!(Corrupt, "vdev {}: number too large", top.id()))?,
            class,
            ashift: narrow("ashift", top.ashift().into())?,
            metaslab_shift: narrow("metaslab shift", top.metaslab_shift().into())?,
            data_disks: 1,
            allocated_size: Box::new(move |physical| sizing.layout().allocated_size(physical)),
        },
        bytes: top.asize(),
        metaslab_array: top.metaslab_array(),
        top_zap: top.zap(),
        is_closed: top.config().number(vdev_key::NON_ALLOCATING) != 0,
    })
}

pub(super) fn open_shared(context: &DmuContext, vdevs: &Arc<VdevTree>, dsl: &Arc<Dsl>) -> Result<Arc<SharedBlocks>> {
    let shared = SharedBlocks::open(dsl, vdevs)?;
    context.io.set_tables(Arc::downgrade(&shared) as Weak<dyn BlockTables>);
    Ok(shared)
}

pub(super) fn open_space_maps(context: &Arc<DmuContext>, vdevs: &Arc<VdevTree>, mos: &Mos, dsl: &Arc<Dsl>) -> Result<Arc<SpaceMaps>> {
    SpaceMaps::open(SpaceMapsOptions {
        mos: mos.0.clone(),
        allocator: context.io.allocator().clone(),
        features: Arc::new(DslFeatures(dsl.clone())),
        vdevs: vdev_spaces(vdevs, mos)?,
        top_level_vdevs: vdevs.tops().len() as u32,
    })
}
