//! Pools: find, import, make, export.
//!
//! # Theory
//! A [`Pool`] is the engine's pool with the meaning of files added: it knows how a new file system begins, who owns a
//! file, and which file systems are open. Programs hold it in an `Arc`; the file systems they open keep it open.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use disk::DiskRef;
use engine::dmu::Objset;
use engine::dsl::{Dataset, MASTER_NODE_ENTRIES, NewClone, NewDataset, NewSnapshots, PropertyChange, PropertyValue};
use engine::error::{ErrorKind, Result, Within};
use engine::host::{HostRef, RealHost};
use engine::logged::{Volume, VolumeReplay, create_volume_objects};
use engine::pool::check::{CheckOptions, CheckReport};
use engine::pool::config::{PoolConfig, VERSION_FEATURES};
use engine::pool::import::{Candidate, discover, select};
use engine::pool::{Import, NewPool, OpenOptions};
use engine::tunables::Tunables;
use engine::vdev::{Bias, DraidColumns, NewLeaf, NewTop};
use engine::zil::{Replayed, Zil};
use engine::{bail, error};
use ondisk::acl::{InheritRule, ModeRule};
use ondisk::feature::Feature;
use ondisk::objset::ObjsetType;
use parking_lot::Mutex;

use crate::open_file_systems::{OpenFileSystems, Use};
use crate::rewind::{self, Rewind, Rewound};
use crate::zpl::{self, AccessTime, AclRules, AclType, FileSystem, MountOptions, NewFileSystem, OwnerKind, QuotaOf, Transaction};

/// A top-level vdev of a new pool: one path, the paths of the sides of a mirror, or of the devices of RAID-Z.
#[derive(Debug, Clone, Default)]
pub struct VdevPaths {
    /// Files or block devices.
    pub paths: Vec<PathBuf>,
    /// Columns of parity of RAID-Z; 0: all hold the same.
    pub parity: u8,
    /// It is dRAID, not RAID-Z.
    pub draid: Option<DraidColumns>,
    /// What it is for.
    pub bias: Bias,
}

/// How a pool is made.
#[derive(Debug, Clone, Default)]
pub struct CreateOptions {
    /// log2 of the smallest allocation; the devices decide if it is not given.
    pub ashift: Option<u32>,
    /// Properties of the root file system: name and value.
    pub properties: Vec<(String, PropertyChange)>,
    /// Features to enable; `None`: all that this program can write.
    pub features: Option<Vec<Feature>>,
    /// The command line, for the history.
    pub command: String,
    /// The pool's version, if another than that with features.
    pub version: Option<u64>,
    /// The pool's comment.
    pub comment: Option<String>,
    /// The pool's `compatibility`.
    pub compatibility: Option<String>,
    /// The name that it goes by until it is exported, if another.
    pub temporary_name: Option<String>,
    /// Limits.
    pub tunables: Option<Tunables>,
}

/// How a pool is imported.
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// Nothing may be changed.
    pub read_only: bool,
    /// Although another host seems to have it.
    pub force: bool,
    /// A destroyed pool.
    pub destroyed: bool,
    /// Another name.
    pub new_name: Option<String>,
    /// That name is for this import only.
    pub temporary_name: bool,
    /// What an intent log holds that cannot be read, or replayed, may be lost (`-m`).
    pub forget_log: bool,
    /// Which state of the pool to open.
    pub rewind: Rewind,
    /// Limits.
    pub tunables: Option<Tunables>,
}

/// An imported pool.
pub struct Pool {
    engine: Arc<engine::pool::Pool>,
    file_systems: OpenFileSystems,
    /// guards: those that nobody may open now, by dataset object
    owned: Mutex<HashSet<u64>>,
}

/// A file system or volume that nobody opens while this lives.
pub(crate) struct OwnedHead {
    pool: Arc<Pool>,
    object: u64,
}

impl OwnedHead {
    /// Waits until all that was written to it is on disk. It stays as it is from then on.
    ///
    /// # Errors
    /// The pool cannot be written.
    pub(crate) fn settle(&self) -> Result<()> {
        self.pool.sync()
    }
}

impl Drop for OwnedHead {
    fn drop(&mut self) {
        self.pool.owned.lock().remove(&self.object);
    }
}

/// Every pool that has a part in `paths` (devices, files, or directories of them).
pub fn find_pools(paths: &[PathBuf]) -> Vec<Candidate> {
    discover(disk::find(paths))
}

/// How the engine is to open a pool.
pub(crate) fn open_options(read_only: bool, new_name: Option<String>, tunables: Option<Tunables>, host: HostRef) -> OpenOptions {
    OpenOptions {
        host,
        tunables: tunables.unwrap_or_default(),
        read_only,
        file_owner: Some(zpl::file_owner),
        new_name,
        forget_log: false,
    }
}

/// Opens the devices of new vdevs, which are nobody else's from now on.
pub(crate) fn open_tops(vdevs: &[VdevPaths], ashift: Option<u32>) -> Result<Vec<NewTop>> {
    let open = |vdev: &VdevPaths| {
        let leaves = vdev.paths.iter().map(|path| open_leaf(path)).collect::<Result<_>>()?;
        Ok(NewTop { leaves, parity: vdev.parity, draid: vdev.draid, ashift, bias: vdev.bias })
    };
    vdevs.iter().map(open).collect()
}

/// Opens the device of a new vdev, which is nobody else's from now on.
pub(crate) fn open_leaf(path: &Path) -> Result<NewLeaf> {
    let name = path.display().to_string();
    let disk = disk::open(&name, disk::Access::Write).within(|| name.clone())?;
    Ok(NewLeaf { disk, path: name, whole_disk: false })
}

impl Pool {
    /// Makes a pool on files or block devices that exist, and leaves it imported.
    ///
    /// # Errors
    /// A device cannot be opened, is in use or too small.
    pub fn create(name: &str, vdevs: &[VdevPaths], options: CreateOptions) -> Result<Arc<Pool>> {
        Self::create_on(name, open_tops(vdevs, options.ashift)?, options, RealHost::shared())
    }

    /// As [`Pool::create`], on devices and a host of the caller's own: for simulations.
    ///
    /// # Errors
    /// As for [`Pool::create`].
    pub fn create_on(name: &str, tops: Vec<NewTop>, options: CreateOptions, host: HostRef) -> Result<Arc<Pool>> {
        let features = options.features.unwrap_or_else(|| Feature::for_new_pools().collect());
        let version = options.version.unwrap_or(VERSION_FEATURES);
        let new_root = new_file_system(&options.properties, version, features.contains(&Feature::ProjectQuota));
        let (comment, compatibility) = (options.comment, options.compatibility);
        let (stored_name, temporary_name) = (name.to_owned(), options.temporary_name);
        let new = NewPool {
            name: temporary_name.clone().unwrap_or_else(|| name.to_owned()),
            vdevs: tops,
            features,
            properties: stored_properties(options.properties),
            fill: Box::new(move |objset, tx| zpl::initialize(objset, tx, &new_root)),
            command: options.command,
            configure: Box::new(move |config: &mut PoolConfig| {
                (config.name, config.temporary_name) = (stored_name, temporary_name);
                config.version = version;
                config.comment = comment.as_deref().map(Into::into);
                config.compatibility = compatibility.as_deref().map(Into::into);
            }),
        };
        Ok(Self::wrap(engine::pool::Pool::create(new, open_options(false, None, options.tunables, host))?))
    }

    /// Adds top-level vdevs, on files or block devices that exist (`zpool add`). `any_ashift`: although their sectors are of another
    /// size than those of the others.
    ///
    /// # Errors
    /// A device cannot be opened, is in use or too small; its sectors are of another size.
    pub fn add_vdevs(&self, vdevs: &[VdevPaths], ashift: Option<u32>, any_ashift: bool) -> Result<()> {
        self.engine.add_vdevs(open_tops(vdevs, ashift)?, any_ashift)
    }

    /// Imports the pool `name_or_guid`, whose devices are looked for in `paths`.
    ///
    /// # Errors
    /// There is no such pool there, a device is missing or in use, another host has it, or it cannot be read.
    pub fn import(paths: &[PathBuf], name_or_guid: &str, options: ImportOptions) -> Result<Arc<Pool>> {
        let candidates = find_pools(paths);
        let candidate = select(&candidates, name_or_guid, options.destroyed)?;
        Self::import_found(candidate, options)
    }

    /// Imports a pool that was found. Whether it is a destroyed one does not matter here.
    ///
    /// # Errors
    /// As for [`Pool::import`].
    pub fn import_found(candidate: &Candidate, options: ImportOptions) -> Result<Arc<Pool>> {
        Self::import_rewound(candidate, options).map(|(pool, _)| pool)
    }

    /// As [`Pool::import_found`]; says what was given up, if `options.rewind` made it go back in time.
    ///
    /// # Errors
    /// As for [`Pool::import`].
    pub fn import_rewound(candidate: &Candidate, options: ImportOptions) -> Result<(Arc<Pool>, Option<Rewound>)> {
        let opened = rewind::open_devices(candidate, options.read_only, options.rewind)?;
        Self::import_on(opened, options, RealHost::shared())
    }

    /// As [`Pool::import_rewound`], on the very devices in which the pool was found and a host of the caller's own.
    ///
    /// # Errors
    /// As for [`Pool::import`].
    pub fn import_on(opened: Candidate, options: ImportOptions, host: HostRef) -> Result<(Arc<Pool>, Option<Rewound>)> {
        let (name, guid) = (opened.config.name.clone(), opened.config.guid);
        if opened.is_in_use_elsewhere(host.host_id()) && !options.force {
            bail!(Busy, "pool {name} ({guid}) was last used by another system: use force to import it anyway");
        }
        let tunables = options.tunables.clone().unwrap_or_default();
        let claim = engine::pool::check_not_in_use(&opened, &host, &tunables, !options.read_only)?;
        let (opened, rewound) = rewind::choose(opened, &options)?;
        let import = Import { temporary_name: options.temporary_name && options.new_name.is_some(), claim };
        let forget_log = options.forget_log;
        let open = OpenOptions { forget_log, ..open_options(options.read_only, options.new_name, options.tunables, host) };
        let pool = Self::wrap(engine::pool::Pool::open_imported(&opened, open, import)?);
        if let Err(error) = pool.replay_logs(forget_log) {
            // Else its threads would go on, and its devices be in use.
            pool.abandon();
            return Err(error).within(|| format!("pool {name}"));
        }
        if !pool.engine.is_read_only()
            && let Err(error) = pool.engine.dsl.receiving().destroy_inconsistent()
        {
            tracing::warn!("pool {name}: what is left of streams that broke off stays: {error}");
        }
        if !pool.engine.is_read_only()
            && let Err(error) = pool.engine.dsl.snapshot_verbs().release_temporary()
        {
            tracing::warn!("pool {name}: snapshots stay held by sends that broke off: {error}");
        }
        Ok((pool, rewound))
    }

    /// Replays the intent logs that a crash left. All of them, mounted or not: nothing else can be done with such a dataset.
    /// `forget`: a log that cannot be replayed is given up.
    fn replay_logs(&self, forget: bool) -> Result<()> {
        if self.engine.is_read_only() {
            return Ok(());
        }
        // Object sets with a claimed log stay open until it is replayed.
        for (dataset, objset) in self.engine.dsl.open_objsets() {
            let zil = Zil::of(&objset);
            if dataset.is_snapshot || !zil.needs_replay() {
                continue;
            }
            let name = dataset.name()?;
            let replayed = match self.replay_log(&name, &objset, &zil) {
                Err(error) if forget && (error.is_loss() || error.kind() == ErrorKind::NoDevice) => zil.give_up_claimed(&objset, &error),
                // The other datasets go on without it; its log is kept, and nobody opens it.
                Err(error) if error.is_loss() => {
                    tracing::error!("{name}: its intent log cannot be replayed, and it cannot be used until it is: {error}");
                    continue;
                }
                replayed => replayed?,
            };
            tracing::info!("{name}: {} records of the intent log were replayed, {} were of objects that are gone", replayed.records, replayed.passed_over);
            if let Some(lost) = replayed.lost {
                // `zpool history -i` tells it, however much later somebody asks.
                self.engine.dsl.queue_task(move |dsl, tx| dsl.record_dataset_event(&dataset, "log replay", &lost, tx))?;
            }
        }
        Ok(())
    }

    fn replay_log(&self, name: &str, objset: &Arc<Objset>, zil: &Arc<Zil>) -> Result<Replayed> {
        let wait_synced = || self.engine.sync_all();
        if objset.objset_type() != ObjsetType::FileSystem {
            return zil.replay(objset, &wait_synced, &VolumeReplay(&Volume::open(objset.clone())?));
        }
        let options = MountOptions { read_only: false, access_time: AccessTime::Off, ..self.mount_options(name)? };
        let file_system = FileSystem::open(objset.clone(), options, || (0, 0))?;
        // What was being removed is removed before what came after it is done, as in OpenZFS.
        file_system.drain_delete_queue()?;
        zil.replay(objset, &wait_synced, &zpl::FileReplay(&file_system))
    }

    /// Imports the one pool that `disks` are: for devices that are no files, as those of a program's own.
    ///
    /// # Errors
    /// As for [`Pool::import`]; also if they are parts of no pool or of several.
    pub fn import_disks(disks: Vec<DiskRef>, options: ImportOptions) -> Result<Arc<Pool>> {
        let mut found = discover(disks);
        let (Some(opened), true) = (found.pop(), found.is_empty()) else {
            bail!(NotFound, "the devices are parts of no pool, or of several");
        };
        Self::import_on(opened, options, RealHost::shared()).map(|(pool, _)| pool)
    }

    /// What going back in time would give up, without changing anything.
    ///
    /// # Errors
    /// No state that may be gone back to can be read.
    pub fn rewind_dry(candidate: &Candidate, options: ImportOptions) -> Result<Option<Rewound>> {
        let opened = rewind::open_devices(candidate, true, options.rewind)?;
        let options = ImportOptions { read_only: options.read_only || options.rewind == Rewind::ToCheckpoint, ..options };
        rewind::choose(opened, &options).map(|(_, rewound)| rewound)
    }

    pub(crate) fn wrap(engine: Arc<engine::pool::Pool>) -> Arc<Pool> {
        Arc::new(Pool { engine, file_systems: OpenFileSystems::default(), owned: Mutex::default() })
    }

    /// The engine's pool, for inspection and administration.
    pub fn engine(&self) -> &Arc<engine::pool::Pool> {
        &self.engine
    }

    /// The pool's name.
    pub fn name(&self) -> String {
        self.engine.name()
    }

    /// Opens a file system or a snapshot of one; all openers of one share it.
    ///
    /// # Errors
    /// There is none of that name, it is a volume, its key is not loaded, or it cannot be read.
    pub fn file_system(&self, name: &str) -> Result<Arc<FileSystem>> {
        let dsl = &self.engine.dsl;
        let dataset = dsl.open_dataset(name)?;
        // One that was destroyed may be open still, and its object be another's by now.
        let current = dsl.objset(&dataset)?;
        self.file_systems.get_or_open(dataset.object, |open| Arc::ptr_eq(open.objset(), &current), || {
            let objset = self.file_system_objset(name, &dataset)?;
            let options = self.mount_options(name)?;
            let of_space = dataset.clone();
            FileSystem::open(objset, options, move || (of_space.referenced().used, of_space.available()))
        })
    }

    /// What can be said without looking at the files: whether a dataset is a file system that may be opened. Returns its object, as its name may change.
    ///
    /// # Errors
    /// As of [`Pool::file_system`]; but its files may still turn out to be unreadable.
    pub fn file_system_to_open(&self, name: &str) -> Result<u64> {
        let dataset = self.engine.dsl.open_dataset(name)?;
        if self.file_system_objset(name, &dataset)?.is_locked() {
            bail!(KeyNotLoaded, "it is encrypted, and its key is not loaded");
        }
        Ok(dataset.object)
    }

    fn file_system_objset(&self, name: &str, dataset: &Arc<Dataset>) -> Result<Arc<Objset>> {
        // A receive that was interrupted goes on from what there is now.
        if dataset.is_inconsistent() {
            bail!(Busy, "{name} is being received or destroyed");
        }
        if self.owned.lock().contains(&dataset.object) {
            bail!(Busy, "{name} is being sent");
        }
        let objset = self.engine.dsl.objset(dataset)?;
        if objset.objset_type() != ObjsetType::FileSystem {
            bail!(Invalid, "{name} is not a file system");
        }
        self.check_replayed(name, dataset, &objset)?;
        Ok(objset)
    }

    /// A log that could not be replayed has what is newer than what is on disk, and would be replayed over what somebody writes now.
    fn check_replayed(&self, name: &str, dataset: &Dataset, objset: &Objset) -> Result<()> {
        if !self.engine.is_read_only() && !dataset.is_snapshot && Zil::of(objset).needs_replay() {
            bail!(
                Io,
                "{name}: its intent log could not be replayed: import the pool again when its devices can be read, with -m to lose what the log holds, or with -o readonly=on to read without it"
            );
        }
        Ok(())
    }

    /// What the properties of a dataset mean for its mount.
    ///
    /// # Errors
    /// The properties cannot be read.
    pub fn mount_options(&self, name: &str) -> Result<MountOptions> {
        let dataset = self.engine.dsl.open_dataset(name)?;
        let values = dataset.property_values();
        let number = |property: &str| values.number_property(property);
        let access_time = match (number("atime")? != 0, number("relatime")? != 0) {
            (false, _) => AccessTime::Off,
            (true, true) => AccessTime::Relative,
            (true, false) => AccessTime::Strict,
        };
        Ok(MountOptions {
            xattr_in_attributes: number("xattr")? == XATTR_SA,
            access_time,
            directory_access_time: true,
            read_only: self.engine.is_read_only() || dataset.is_snapshot || number("readonly")? != 0,
            project_ids: self.engine.dsl.meta.features.is_enabled(Feature::ProjectQuota),
            long_names: number("longname").unwrap_or(0) != 0,
            acl_type: match number("acltype")? {
                1 => AclType::Posix,
                2 => AclType::Nfsv4,
                _ => AclType::Off,
            },
            acl_rules: AclRules { mode: ModeRule::from_number(number("aclmode")?), inherit: InheritRule::from_number(number("aclinherit")?) },
            sync_disabled: number("sync")? == SYNC_DISABLED,
            log_throughput: number("logbias")? == LOGBIAS_THROUGHPUT,
            log_xattrs: self.engine.dsl.meta.features.is_enabled(Feature::Zilsaxattr),
        })
    }

    /// Properties of `name` and what inherits from it changed: open file systems learn of it.
    ///
    /// # Errors
    /// The properties cannot be read.
    pub fn refresh_mount_options(&self) -> Result<()> {
        for file_system in self.file_systems.all() {
            let name = file_system.objset().name();
            file_system.set_options(self.mount_options(&name)?);
        }
        Ok(())
    }

    /// Has a dataset or snapshot another name after this? Also where the pool stopped before that was on disk, and so the caller got an error.
    pub fn is_renamed(&self, from: &str, renamed: &Result<()>) -> bool {
        match renamed {
            Ok(()) => true,
            Err(error) => error.goes_on() && self.engine.dsl.open_dataset(from).is_err_and(|error| error.kind() == ErrorKind::NotFound),
        }
    }

    /// Makes a file system; its parent must exist.
    ///
    /// # Errors
    /// The name is taken or cannot be, a property cannot have that value.
    pub fn create_file_system(&self, name: &str, properties: Vec<(String, PropertyChange)>) -> Result<()> {
        let new = self.inherit_new_file_system(name, &properties)?;
        self.engine.dsl.create_dataset(NewDataset {
            name: name.to_owned(),
            objset_type: ObjsetType::FileSystem,
            case_insensitive: new.case == zpl::CASE_INSENSITIVE,
            properties: stored_properties(properties),
            fill: Box::new(move |objset, tx| zpl::initialize(objset, tx, &new)),
        })
    }

    /// Makes a volume of `bytes`, in blocks of `block_bytes`; its parent must exist.
    ///
    /// # Errors
    /// The name is taken or cannot be, a property cannot have that value.
    pub fn create_volume(&self, name: &str, bytes: u64, block_bytes: u64, properties: Vec<(String, PropertyChange)>) -> Result<()> {
        if !block_bytes.is_power_of_two() || !(512..=16 << 20).contains(&block_bytes) {
            bail!(Invalid, "volume block size {block_bytes} is no power of 2 from 512 to 16M");
        }
        if bytes == 0 || !bytes.is_multiple_of(block_bytes) {
            bail!(Invalid, "volume size must be a multiple of volume block size");
        }
        self.engine.dsl.create_dataset(NewDataset {
            name: name.to_owned(),
            objset_type: ObjsetType::Volume,
            case_insensitive: false,
            properties,
            fill: Box::new(move |objset, tx| {
                create_volume_objects(objset, tx, bytes, block_bytes)
            }),
        })
    }

    /// What a file system begins with comes from the parent, unless it is given: what is fixed from then on, and, as in OpenZFS, default
    /// quotas, which have a value of their own from then on.
    fn inherit_new_file_system(&self, name: &str, properties: &[(String, PropertyChange)]) -> Result<NewFileSystem> {
        let parent = name.rsplit_once('/').and_then(|(parent, _)| self.engine.dsl.open_dataset(parent).ok());
        let from_parent = |property: &str| match parent.as_ref().map(|parent| parent.any_property(property)) {
            Some(Ok(Some((value, _)))) => Ok(value.number()),
            Some(Err(error)) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(0),
        };
        let mut all: Vec<(String, PropertyChange)> = properties.to_vec();
        for name in MASTER_NODE_ENTRIES.into_iter().filter(|name| *name != "version") {
            if !properties.iter().any(|(given, _)| given == name) {
                all.push((name.to_owned(), PropertyChange::Set(PropertyValue::Number(from_parent(name)?))));
            }
        }
        let project_ids = self.engine.dsl.meta.features.is_enabled(Feature::ProjectQuota);
        Ok(new_file_system(&all, self.engine.dsl.meta.version(), project_ids))
    }

    /// Destroys a file system without children or snapshots. It must not be open.
    ///
    /// # Errors
    /// It is open, has children, or does not exist.
    pub fn destroy_file_system(&self, name: &str) -> Result<()> {
        self.refuse_if_used(name)?;
        self.engine.dsl.destroy_dataset(name)
    }

    /// Makes a file system or volume that begins as a snapshot.
    ///
    /// # Errors
    /// The name is taken or cannot be, there is no such snapshot, a property cannot have that value.
    pub fn clone_dataset(&self, snapshot: &str, name: &str, properties: Vec<(String, PropertyChange)>) -> Result<()> {
        self.engine.dsl.clone_dataset(NewClone { name: name.to_owned(), snapshot: snapshot.to_owned(), properties: stored_properties(properties) })
    }

    /// Rolls a file system or volume back to the snapshot `to`, which must be its newest one; without it to the newest, whichever that is.
    ///
    /// # Errors
    /// It is in use: each user that has it open lets go of it, and opens it again afterwards. There is no such snapshot, or a newer one.
    pub fn roll_back(&self, name: &str, to: Option<&str>) -> Result<()> {
        self.refuse_if_used(name)?;
        self.engine.dsl.roll_back(name, to)
    }

    /// Raises the version of a file system (`zfs upgrade`), and waits until that is on disk.
    ///
    /// # Errors
    /// It is in use, as for [`Pool::roll_back`]; the pool is too old for file systems of that version.
    pub fn upgrade_file_system(&self, name: &str, version: u64) -> Result<()> {
        self.refuse_if_used(name)?;
        let dsl = &self.engine.dsl;
        if version > file_system_version(dsl.meta.version()) {
            bail!(NotSupported, "pool and or dataset must be upgraded to set this property or value");
        }
        let dataset = dsl.open_dataset(name)?;
        let objset = dsl.objset(&dataset)?;
        if objset.is_locked() {
            bail!(KeyNotLoaded, "it is encrypted, and its key is not loaded");
        }
        self.check_replayed(name, &dataset, &objset)?;
        let was = zpl::raise_version(&objset, version)?;
        if was < version {
            dsl.queue_task(move |dsl, tx| dsl.record_dataset_event(&dataset, "upgrade", &format!("from {was} to {version}"), tx))?;
        }
        self.sync()
    }

    pub(crate) fn refuse_if_used(&self, name: &str) -> Result<()> {
        let dataset = self.engine.dsl.open_dataset(name)?;
        self.unless_used(name, &dataset, || Some(()))
    }

    /// Has nobody open a file system or volume until what is returned goes. See [`OwnedHead::settle`].
    ///
    /// # Errors
    /// `Busy`: somebody has it open, or receives into it.
    pub(crate) fn own_head(self: &Arc<Self>, name: &str) -> Result<OwnedHead> {
        let dataset = self.engine.dsl.open_dataset(name)?;
        let object = dataset.object;
        let own = || (!dataset.is_inconsistent() && self.owned.lock().insert(object)).then(|| OwnedHead { pool: self.clone(), object });
        self.unless_used(name, &dataset, own)
    }

    /// What `act` returns, during which nobody opens the dataset; `None` of it: it is in use after all.
    fn unless_used<T>(&self, name: &str, dataset: &Dataset, mut act: impl FnMut() -> Option<T>) -> Result<T> {
        // On a busy machine somebody who only passes through may have it for a moment longer.
        for _ in 0..PASSERS_TRIES {
            if let Some(done) = self.file_systems.unless_used(dataset.object, &mut act) {
                return done.ok_or_else(|| error!(Busy, "{name} is in use"));
            }
            self.engine.context.host.sleep(PASSERS_PAUSE);
        }
        bail!(Busy, "{name} is in use");
    }

    /// Takes snapshots by their full names, all at the same moment, and waits until they are on disk.
    ///
    /// # Errors
    /// Why one of them cannot be taken: then none is.
    pub fn take_snapshots(&self, names: Vec<String>) -> Result<()> {
        let refusals = self.engine.dsl.snapshot_verbs().create_snapshots(NewSnapshots { names, properties: Vec::new() })?;
        refusals.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Commits a transaction, and takes a snapshot of its file system (its name after the `@`) that has what was committed and nothing that came
    /// later. Returns when both are on disk; after a crash both are there, or neither.
    ///
    /// # Errors
    /// Those of [`Transaction::commit`]; what is in the way of the snapshot. Nothing has happened then, unless a snapshot of that name was taken in the
    /// same instant: then the changes are done.
    pub fn commit_with_snapshot(&self, transaction: Transaction, snapshot: &str) -> Result<()> {
        transaction.commit_with_snapshot(&self.engine.dsl, snapshot)
    }

    /// When a snapshot of a dataset, which is named by its object, was made, renamed or destroyed last, in seconds since 1970. 0: never, or
    /// before pools told.
    ///
    /// # Errors
    /// There is none of that number, or it cannot be read.
    pub fn snapshots_changed(&self, dataset: u64) -> Result<u64> {
        let found = self.engine.dsl.dataset(dataset)?.any_property("snapshots_changed")?;
        Ok(if let Some((PropertyValue::Number(seconds), _)) = found { seconds } else { 0 })
    }

    /// Waits until everything changed before this call is on disk.
    ///
    /// # Errors
    /// What stopped the pool.
    pub fn sync(&self) -> Result<()> {
        self.engine.sync_all()
    }

    /// Reads every block and proves that what is allocated is what is referenced. See [`engine::pool::check`].
    ///
    /// # Errors
    /// The walk could not begin.
    pub fn check(&self, verify_data: bool, progress: &(dyn Fn(u64) + Sync)) -> Result<CheckReport> {
        self.engine.check(CheckOptions { verify_data, ..CheckOptions::default() }, progress)
    }

    fn refuse_if_open(&self) -> Result<()> {
        match self.file_systems.any_use() {
            Some(Use::Open(file_system)) => bail!(Busy, "{} is in use", file_system.objset().name()),
            Some(Use::Opening) => bail!(Busy, "a file system of {} is being opened", self.name()),
            None => Ok(()),
        }
    }

    /// Writes everything and lets go of the devices. Nothing may be used afterwards.
    ///
    /// # Errors
    /// A file system is open, or something could not be written.
    pub fn export(&self) -> Result<()> {
        self.refuse_if_open()?;
        self.engine.export()
    }

    /// As [`Pool::export`], but the pool is destroyed.
    ///
    /// # Errors
    /// As for [`Pool::export`].
    pub fn destroy(&self) -> Result<()> {
        self.refuse_if_open()?;
        self.engine.destroy()
    }

    /// Lets go of the devices without writing anything: what a crash does.
    pub fn abandon(&self) {
        self.engine.abandon();
    }
}

/// A thread that passes through a file system which is to be destroyed, rolled back, upgraded or sent itself is waited for so often, each time so long.
const PASSERS_TRIES: u32 = 50;
const PASSERS_PAUSE: Duration = Duration::from_millis(10);

/// The value of the property `sync` that means that nobody waits.
const SYNC_DISABLED: u64 = 2;
/// The value of the property `logbias` that means that the log has pointers, not bytes.
const LOGBIAS_THROUGHPUT: u64 = 1;
/// The value of the property `xattr` that means system attributes.
const XATTR_SA: u64 = 2;

/// The newest version of file systems that pools of this version have.
fn file_system_version(pool_version: u64) -> u64 {
    match pool_version {
        0..9 => 2,
        9..15 => 3,
        15..24 => 4,
        _ => NewFileSystem::default().version,
    }
}

/// What of a dataset's first properties is decided for ever when it is made.
fn new_file_system(properties: &[(String, PropertyChange)], pool_version: u64, project_ids: bool) -> NewFileSystem {
    let number = |name: &str| {
        properties.iter().find(|(own, _)| own == name).map_or(0, |(_, change)| match change {
            PropertyChange::Set(value) | PropertyChange::Receive(value) => value.number(),
            PropertyChange::Inherit | PropertyChange::Revert | PropertyChange::Unreceive => 0,
        })
    };
    let normalization = number("normalization");
    NewFileSystem {
        version: match number("version") {
            0 => file_system_version(pool_version),
            version => version,
        },
        normalization,
        utf8_only: number("utf8only") != 0 || normalization != 0,
        case: number("casesensitivity"),
        // The root directory belongs to the user that makes the file system.
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        project_ids,
        default_quotas: [QuotaOf::Bytes, QuotaOf::Objects].map(|of| OwnerKind::ALL.map(|kind| number(kind.default_entry(of)))),
    }
}

/// Those properties that are stored as properties, not in the file system.
fn stored_properties(properties: Vec<(String, PropertyChange)>) -> Vec<(String, PropertyChange)> {
    properties.into_iter().filter(|(name, _)| !MASTER_NODE_ENTRIES.contains(&name.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Credentials, WriteMode};

    /// A host that is slow when a pool begins to be written, and does something then.
    struct SlowToBegin(Box<dyn Fn() + Send + Sync>);

    impl engine::host::Host for SlowToBegin {
        fn now_ns(&self) -> u64 {
            RealHost.now_ns()
        }
        fn wall_clock(&self) -> (u64, u32) {
            RealHost.wall_clock()
        }
        fn random(&self) -> u64 {
            RealHost.random()
        }
        fn sleep(&self, duration: std::time::Duration) {
            RealHost.sleep(duration);
        }
        fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> bool {
            let spawned = RealHost.spawn(name, body);
            // The last of them.
            if name == "heartbeat" {
                self.sleep(std::time::Duration::from_millis(500));
                (self.0)();
            }
            spawned
        }
        fn processors(&self) -> usize {
            RealHost.processors()
        }
        fn host_name(&self) -> String {
            RealHost.host_name()
        }
        fn host_id(&self) -> u32 {
            RealHost.host_id()
        }
    }

    /// Another program writes what it reads: what it made of a transaction's mark came later, and is not in that transaction's snapshot.
    #[test]
    fn a_snapshot_has_what_was_committed_with_it_and_nothing_later() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let disk = Arc::new(disk::MemDisk::new("exact", 256 << 20));
        let top = NewTop { leaves: vec![NewLeaf { disk, path: "/exact".into(), whole_disk: false }], ashift: Some(12), ..NewTop::default() };
        let pool = Pool::create_on("tank", vec![top], CreateOptions::default(), RealHost::shared()).unwrap();
        let fs = pool.file_system("tank").unwrap();
        let root = Credentials::root();
        let [mark, echo] = [b"mark", b"echo"].map(|name| {
            let file = fs.create(fs.root(), name, 0o100_644, 0, &root).unwrap().inode;
            fs.write(file, WriteMode::At(0), &0u64.to_le_bytes(), &root).unwrap();
            file
        });
        let number = |fs: &FileSystem, file| u64::from_le_bytes(fs.read(file, 0, 8).unwrap()[..].try_into().unwrap());
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let seen = number(&fs, mark);
                    fs.write(echo, WriteMode::At(0), &seen.to_le_bytes(), &root).unwrap();
                }
            });
            for round in 1..=12u64 {
                let mut transaction = fs.begin().unwrap();
                transaction.write(mark, 0, &round.to_le_bytes()).unwrap();
                pool.commit_with_snapshot(transaction, &format!("s{round}")).unwrap();
            }
            over.store(true, Ordering::Relaxed);
        });
        for round in 1..=12u64 {
            let then = pool.file_system(&format!("tank@s{round}")).unwrap();
            let [mark, echo] = [b"mark".as_slice(), b"echo"].map(|name| number(&then, then.lookup(then.root(), name).unwrap().inode));
            assert_eq!(mark, round);
            assert!(echo < round, "the snapshot of transaction {round} has what came after it");
        }
        let mut transaction = fs.begin().unwrap();
        transaction.write(mark, 0, &99u64.to_le_bytes()).unwrap();
        assert_eq!(pool.commit_with_snapshot(transaction, "s1").unwrap_err().kind(), ErrorKind::Exists);
        assert_eq!(number(&fs, mark), 12, "where the snapshot cannot be, nothing is committed");
        pool.commit_with_snapshot(fs.begin().unwrap(), "empty").unwrap();
        drop(fs);
        assert!(pool.check(true, &|_| ()).unwrap().is_clean());
        pool.export().unwrap();
    }

    /// A rollback does not take away what a transaction has read.
    #[test]
    fn nothing_is_rolled_back_below_a_transaction() {
        let disk = Arc::new(disk::MemDisk::new("back", 256 << 20));
        let top = NewTop { leaves: vec![NewLeaf { disk, path: "/back".into(), whole_disk: false }], ashift: Some(12), ..NewTop::default() };
        let pool = Pool::create_on("tank", vec![top], CreateOptions::default(), RealHost::shared()).unwrap();
        pool.create_file_system("tank/a", Vec::new()).unwrap();
        let names = |fs: &FileSystem| [b"before".as_slice(), b"later", b"never"].map(|name| fs.lookup(fs.root(), name).is_ok());
        let create = |name: &[u8]| {
            let fs = pool.file_system("tank/a").unwrap();
            fs.create(fs.root(), name, 0o100_644, 0, &Credentials::root()).map(drop).unwrap();
        };
        create(b"before");
        let fs = pool.file_system("tank/a").unwrap();
        pool.commit_with_snapshot(fs.begin().unwrap(), "s").unwrap();
        drop(fs);
        create(b"later");
        let fs = pool.file_system("tank/a").unwrap();
        let mut transaction = fs.begin().unwrap();
        transaction.create(fs.root(), b"never", 0o100_644, 0, &Credentials::root()).unwrap();
        assert_eq!(pool.roll_back("tank/a", None).unwrap_err().kind(), ErrorKind::Busy);
        assert_eq!(names(&fs), [true, true, false]);
        drop((transaction, fs));
        pool.roll_back("tank/a", Some("s")).unwrap();
        let fs = pool.file_system("tank/a").unwrap();
        assert_eq!(names(&fs), [true, false, false]);
        drop(fs);
        assert!(pool.check(true, &|_| ()).unwrap().is_clean());
        pool.export().unwrap();
    }

    /// A thread that passes through a file system is waited for, whatever is about to happen to it; one that stays is in the way.
    #[test]
    fn passers_are_waited_for() {
        let disk = Arc::new(disk::MemDisk::new("passed", 128 << 20));
        let top = NewTop { leaves: vec![NewLeaf { disk, path: "/passed".into(), whole_disk: false }], ashift: Some(12), ..NewTop::default() };
        let pool = Pool::create_on("tank", vec![top], CreateOptions::default(), RealHost::shared()).unwrap();
        pool.create_file_system("tank/a", Vec::new()).unwrap();
        let while_passed = |act: &dyn Fn()| {
            let passing = pool.file_system("tank/a").unwrap();
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    engine::host::Host::sleep(&RealHost, Duration::from_millis(100));
                    drop(passing);
                });
                act();
            });
        };
        while_passed(&|| pool.refuse_if_used("tank/a").unwrap());
        while_passed(&|| drop(pool.own_head("tank/a").unwrap()));
        let owned = pool.own_head("tank/a").unwrap();
        let kinds = || [pool.own_head("tank/a").err(), pool.file_system("tank/a").err()].map(|error| error.map(|error| error.kind()));
        assert_eq!(kinds(), [Some(ErrorKind::Busy); 2], "it is sent");
        drop(owned);
        let stays = pool.file_system("tank/a").unwrap();
        assert_eq!(pool.own_head("tank/a").err().map(|error| error.kind()), Some(ErrorKind::Busy));
        drop(stays);
        pool.export().unwrap();
    }

    fn written_every(milliseconds: u64) -> Option<Tunables> {
        Some(Tunables { txg_timeout_ns: milliseconds * 1_000_000, ..Tunables::default() })
    }

    /// A group ended between the opening of a pool and the replay of its logs: their object sets were closed, and what `fsync` had promised was forgotten.
    #[test]
    fn a_log_is_replayed_however_long_that_takes_to_begin() {
        let disk = Arc::new(disk::MemDisk::new("slow", 128 << 20));
        let top = NewTop { leaves: vec![NewLeaf { disk: disk.clone(), path: "/slow".into(), whole_disk: false }], ashift: Some(12), ..NewTop::default() };
        let options = CreateOptions { tunables: written_every(3_600_000), ..CreateOptions::default() };
        let pool = Pool::create_on("tank", vec![top], options, RealHost::shared()).unwrap();
        let fs = pool.file_system("tank").unwrap();
        pool.sync().unwrap();
        // The first is what the log begins with.
        for name in ["first", "promised"] {
            let file = fs.create(fs.root(), name.as_bytes(), 0o100_644, 0, &Credentials::root()).unwrap().inode;
            fs.write(file, WriteMode::Append, b"what it says", &Credentials::root()).unwrap();
            fs.fsync(file).unwrap();
        }
        let crashed: DiskRef = Arc::new(disk.snapshot());
        pool.abandon();
        let candidate = discover(vec![crashed]).pop().unwrap();
        let options = ImportOptions { force: true, tunables: written_every(20), ..ImportOptions::default() };
        let (pool, _) = Pool::import_on(candidate, options, Arc::new(SlowToBegin(Box::new(|| ())))).unwrap();
        let fs = pool.file_system("tank").unwrap();
        assert!(fs.lookup(fs.root(), b"promised").is_ok(), "the log was not replayed");
        drop(fs);
        pool.export().unwrap();
    }

    /// A group ended before it was said that a name was a temporary one: labels and MOS had it, and it stayed after a crash.
    #[test]
    fn a_temporary_name_is_never_on_disk() {
        let disk = Arc::new(disk::MemDisk::new("named", 128 << 20));
        let seen = Arc::new(Mutex::new(Vec::<String>::new()));
        let (looked_at, noted) = (disk.clone(), seen.clone());
        let look = move || {
            let there: DiskRef = Arc::new(looked_at.snapshot());
            noted.lock().extend(discover(vec![there]).into_iter().map(|found| found.config.name));
        };
        let host: HostRef = Arc::new(SlowToBegin(Box::new(look)));
        let top = NewTop { leaves: vec![NewLeaf { disk: disk.clone(), path: "/named".into(), whole_disk: false }], ashift: Some(12), ..NewTop::default() };
        let options = CreateOptions { temporary_name: Some("other".into()), tunables: written_every(20), ..CreateOptions::default() };
        let pool = Pool::create_on("tank", vec![top], options, host.clone()).unwrap();
        assert_eq!(pool.name(), "other");
        pool.export().unwrap();
        let candidate = discover(vec![disk]).pop().unwrap();
        let options = ImportOptions { new_name: Some("other".into()), temporary_name: true, tunables: written_every(20), ..ImportOptions::default() };
        let (pool, _) = Pool::import_on(candidate, options, host).unwrap();
        assert_eq!(pool.name(), "other");
        pool.export().unwrap();
        assert_eq!(*seen.lock(), ["tank", "tank"]);
    }

    /// A file is on disk, eight bytes of its second block are written again and synced, and the power goes. Also returns where that block lies.
    fn overwritten_and_crashed() -> (Arc<disk::MemDisk>, std::ops::Range<u64>) {
        let disk = Arc::new(disk::MemDisk::new("bad", 128 << 20));
        let top = NewTop { leaves: vec![NewLeaf { disk: disk.clone(), path: "/bad".into(), whole_disk: false }], ashift: Some(12), ..NewTop::default() };
        let options = CreateOptions { tunables: written_every(3_600_000), ..CreateOptions::default() };
        let pool = Pool::create_on("tank", vec![top], options, RealHost::shared()).unwrap();
        let fs = pool.file_system("tank").unwrap();
        let root = Credentials::root();
        let file = fs.create(fs.root(), b"file", 0o100_644, 0, &root).unwrap().inode;
        // The commit that begins a log waits for the group in which it begins.
        fs.fsync(file).unwrap();
        let contents: Vec<u8> = (0..100_000u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        fs.write(file, WriteMode::At(0), &contents, &root).unwrap();
        pool.sync().unwrap();
        fs.write(file, WriteMode::At(200_000), b"promised", &root).unwrap();
        fs.fsync(file).unwrap();
        let place = fs.objset().hold(file).unwrap().block_pointer(1).unwrap().first_dva().unwrap();
        let crashed = Arc::new(disk.snapshot());
        drop(fs);
        pool.abandon();
        let start = ondisk::label::START_BYTES + place.offset;
        (crashed, start..start + place.allocated)
    }

    /// The disk, of which a range cannot be read.
    fn unreadable(disk: &Arc<disk::MemDisk>, range: std::ops::Range<u64>) -> DiskRef {
        let watch = move |request: disk::Request| match request {
            disk::Request::Read(read) if read.start < range.end && range.start < read.end => Err(std::io::Error::other("a bad sector")),
            _ => Ok(()),
        };
        Arc::new(disk::WatchedDisk::new(disk.clone(), watch))
    }

    fn import_after_crash(disk: DiskRef, forget_log: bool) -> Arc<Pool> {
        let candidate = discover(vec![disk]).pop().unwrap();
        let options = ImportOptions { force: true, forget_log, tunables: written_every(3_600_000), ..ImportOptions::default() };
        Pool::import_on(candidate, options, RealHost::shared()).unwrap().0
    }

    /// A device error broke off a replay, and the file system was mounted all the same: nothing that was synced then was safe, and the next import replayed the old
    /// log over it.
    #[test]
    fn what_has_a_log_that_cannot_be_replayed_is_not_opened() {
        let (disk, bad) = overwritten_and_crashed();
        let pool = import_after_crash(unreadable(&disk, bad), false);
        let refused = pool.file_system("tank").err().expect("it is refused");
        assert_eq!(refused.kind(), ErrorKind::Io);
        assert!(refused.message().starts_with("tank: its intent log could not be replayed"), "{refused}");
        pool.sync().unwrap();
        pool.abandon();
        let pool = import_after_crash(disk, false);
        let fs = pool.file_system("tank").unwrap();
        let file = fs.lookup(fs.root(), b"file").unwrap().inode;
        assert_eq!(fs.read(file, 200_000, 8).unwrap(), b"promised");
        drop(fs);
        assert!(pool.check(true, &|_| ()).unwrap().is_clean());
        pool.export().unwrap();
    }

    /// A stream that replaces such a file system would take with it what was synced and is in the log only.
    #[test]
    fn what_has_a_log_that_cannot_be_replayed_is_not_received_into() {
        use engine::dsl::{ReceiveTarget, StreamHead};
        use ondisk::stream::{Begin, HEADER_SUBSTREAM, STREAM_MAGIC};
        let (disk, bad) = overwritten_and_crashed();
        let pool = import_after_crash(unreadable(&disk, bad), false);
        let begin = Begin { magic: STREAM_MAGIC, version_info: HEADER_SUBSTREAM, objset_type: 2, to_guid: 7, ..Begin::zeroed() };
        let head = StreamHead { begin, list: ondisk::nvlist::NvList::new() };
        let target = ReceiveTarget { dataset: "tank".into(), snapshot: "s".into(), force: true, ..ReceiveTarget::default() };
        let refused = pool.engine().dsl.receiving().begin_receive(target, &head).err().expect("it is refused");
        assert_eq!(refused.kind(), ErrorKind::Busy, "{refused}");
        assert!(refused.message().starts_with("'tank': its intent log is not replayed"), "{refused}");
        pool.abandon();
        let pool = import_after_crash(disk, false);
        let fs = pool.file_system("tank").unwrap();
        let file = fs.lookup(fs.root(), b"file").unwrap().inode;
        assert_eq!(fs.read(file, 200_000, 8).unwrap(), b"promised");
        drop(fs);
        pool.export().unwrap();
    }

    /// The way out, where a device will not be read again.
    #[test]
    fn a_log_that_cannot_be_replayed_is_given_up_if_asked() {
        let (disk, bad) = overwritten_and_crashed();
        let pool = import_after_crash(unreadable(&disk, bad), true);
        let fs = pool.file_system("tank").unwrap();
        let later = fs.create(fs.root(), b"later", 0o100_644, 0, &Credentials::root()).unwrap().inode;
        fs.fsync(later).unwrap();
        drop(fs);
        pool.export().unwrap();
        let pool = import_after_crash(disk, false);
        let fs = pool.file_system("tank").unwrap();
        let [file, _] = [b"file".as_slice(), b"later"].map(|name| fs.lookup(fs.root(), name).unwrap().inode);
        assert_ne!(fs.read(file, 200_000, 8).unwrap(), b"promised", "it is on disk");
        drop(fs);
        assert!(pool.check(true, &|_| ()).unwrap().is_clean(), "its blocks were not freed");
        pool.export().unwrap();
    }
}
