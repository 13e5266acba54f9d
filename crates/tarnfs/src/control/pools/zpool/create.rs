//! `zpool create`

use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{DiskRef, Footprint};
use engine::dsl::PropertyValue;
use engine::dsl::prop_table::{DatasetTypes, is_user_property};
use engine::error::ErrorKind;
use engine::host::{Host, RealHost};
use engine::pool::auxiliary::{AuxiliaryKind, NewAuxiliary};
use engine::pool::config::{PoolState, VERSION_BEFORE_FEATURES, VERSION_FEATURES};
use engine::pool::import::discover;
use engine::pool::prop_table::find;
use engine::vdev::{Bias, DraidColumns, NewLeaf, NewTop};
use ondisk::feature::{Feature, Support};

use crate::control::pools::zfs::quotas;
use crate::control::pools::{Failure, FailureKind, Imported, Pools, checks, names, not_yet};
use crate::control::{AllocationClass, FeatureChoice, PoolCreate, SAME_DEVICE, Setting, Value, VdevKind, VdevSpec};
use crate::pool::{open_leaf, open_tops};
use crate::{CreateOptions, Pool, VdevPaths};

/// Pool properties taken apart by where they go.
#[derive(Debug, Default, PartialEq)]
pub(super) struct PoolSettings {
    pub(in crate::control::pools) altroot: Option<String>,
    pub(in crate::control::pools) cachefile: Option<String>,
    pub(in crate::control::pools) ashift: Option<u32>,
    /// Of a new pool.
    pub(in crate::control::pools) version: Option<u64>,
    pub(in crate::control::pools) comment: Option<String>,
    pub(super) compatibility: Option<String>,
    pub(super) read_only: bool,
    /// What is stored in the pool's dictionary.
    pub(super) stored: Vec<(String, PropertyValue)>,
    /// Features to enable.
    pub(in crate::control::pools) features: Vec<Feature>,
}

/// Which verb sets pool properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    Creating,
    Importing,
    Existing,
}

impl PoolSettings {
    /// Checks settings and sorts them.
    pub(in crate::control::pools) fn of(settings: &[Setting], when: When) -> Result<PoolSettings, Failure> {
        let mut sorted = PoolSettings::default();
        settings.iter().try_for_each(|setting| sorted.take(setting, when))?;
        Ok(sorted)
    }

    fn take(&mut self, setting: &Setting, when: When) -> Result<(), Failure> {
        let name = setting.name.as_str();
        let bad = |words: String| Err(Failure::with(FailureKind::BadProperty, words));
        if let Some(feature) = name.strip_prefix("feature@") {
            if setting.value.text() != Some("enabled") {
                return bad(format!("property '{name}' can only be set to 'enabled'"));
            }
            self.features.push(writable_feature(feature)?);
            return Ok(());
        }
        let Some(property) = find(name) else {
            let Value::Text(text) = &setting.value else { return bad(format!("invalid property '{name}'")) };
            if !is_user_property(name) {
                return bad(format!("invalid property '{name}'"));
            }
            self.stored.push((name.to_owned(), PropertyValue::Text(text.clone())));
            return Ok(());
        };
        let is_word = |number| property.words().is_empty() || property.number_to_word(number).is_some();
        match (&setting.value, property.name) {
            (Value::Text(_), _) if !property.is_text() => bad(format!("invalid value of '{name}'")),
            (Value::Number(_), _) if property.is_text() => bad(format!("invalid value of '{name}'")),
            (Value::Text(text), _) => self.take_text(property.name, text.clone(), when),
            (Value::Number(number), _) if !is_word(*number) => bad(format!("invalid value of '{name}'")),
            (Value::Number(number), _) => self.take_number(property.name, *number, when),
        }
    }

    fn take_text(&mut self, name: &str, text: String, when: When) -> Result<(), Failure> {
        let bad = |words: &str| Err(Failure::with(FailureKind::BadProperty, words));
        match name {
            "altroot" if when == When::Existing => bad("property 'altroot' can only be set during pool creation or import"),
            "altroot" if !text.starts_with('/') => bad("bad alternate root"),
            "altroot" => {
                self.altroot = Some(text);
                Ok(())
            }
            "cachefile" => {
                self.cachefile = Some(text);
                Ok(())
            }
            "comment" if text.len() > 32 || !text.bytes().all(|b| (b' '..=b'~').contains(&b)) => bad("comment must be at most 32 printable characters"),
            "comment" => {
                self.comment = Some(text);
                Ok(())
            }
            "compatibility" => {
                self.compatibility = Some(text);
                Ok(())
            }
            "bootfs" if when == When::Existing => {
                self.stored.push((name.to_owned(), PropertyValue::Text(text)));
                Ok(())
            }
            "tname" => Ok(()),
            _ => bad(&format!("property '{name}' cannot be set now")),
        }
    }

    fn take_number(&mut self, name: &str, number: u64, when: When) -> Result<(), Failure> {
        let bad = |words: String| Err(Failure::with(FailureKind::BadProperty, words));
        match name {
            "version" if number == VERSION_FEATURES => Ok(()),
            "version" if when == When::Creating && (1..=VERSION_BEFORE_FEATURES).contains(&number) => {
                self.version = Some(number);
                Ok(())
            }
            "version" => Err(Failure::with(FailureKind::Unsupported, format!("property 'version' number {number} is invalid."))),
            "ashift" if number != 0 && !(9..=16).contains(&number) => {
                bad(format!("property 'ashift' number {number} is invalid, only values between 9 and 16 are allowed."))
            }
            "ashift" => {
                self.ashift = u32::try_from(number).ok().filter(|ashift| *ashift != 0);
                self.stored.push((name.to_owned(), PropertyValue::Number(number)));
                Ok(())
            }
            "readonly" if when == When::Importing => {
                self.read_only = number != 0;
                Ok(())
            }
            "readonly" => bad("property 'readonly' can only be set at import time".to_owned()),
            "multihost" if number != 0 && RealHost.host_id() == 0 => bad("requires a non-zero system hostid: write one with zgenhostid(8)".to_owned()),
            "delegation" | "autoreplace" | "failmode" | "listsnapshots" | "autoexpand" | "multihost" | "autotrim" | "dedup_table_quota" | "dedupditto" => {
                self.stored.push((name.to_owned(), PropertyValue::Number(number)));
                Ok(())
            }
            _ => Err(Failure::with(FailureKind::ReadOnlyProperty, format!("'{name}' is readonly"))),
        }
    }
}

/// A feature that may be enabled.
fn writable_feature(name: &str) -> Result<Feature, Failure> {
    match Feature::from_name(name) {
        None => Err(Failure::with(FailureKind::BadProperty, format!("feature '{name}' unsupported by kernel"))),
        Some(feature) if feature.info().support != Support::ReadWrite => Err(not_yet(&format!("feature '{name}' is"))),
        Some(feature) => Ok(feature),
    }
}

/// The features of a new pool, with all they depend on.
fn chosen_features(choice: &FeatureChoice) -> Result<Vec<Feature>, Failure> {
    let mut features: Vec<Feature> = Feature::for_new_pools().filter(|feature| choice.enables(feature.name())).collect();
    for name in &choice.enabled {
        features.push(writable_feature(name)?);
    }
    let mut at = 0;
    while at < features.len() {
        let missing: Vec<Feature> = features[at].info().depends_on.iter().copied().filter(|needed| !features.contains(needed)).collect();
        features.extend(missing);
        at += 1;
    }
    features.sort_unstable();
    features.dedup();
    Ok(features)
}

/// Specifications as the library takes them.
#[derive(Default)]
pub(super) struct NewDevices {
    tops: Vec<VdevPaths>,
    auxiliary: Vec<(AuxiliaryKind, PathBuf)>,
}

/// Those devices, which are nobody else's from now on.
pub(super) struct ClaimedDevices {
    pub(super) tops: Vec<NewTop>,
    pub(super) auxiliary: Vec<NewAuxiliary>,
}

impl NewDevices {
    pub(super) fn of(specs: &[VdevSpec]) -> Result<NewDevices, Failure> {
        let mut devices = NewDevices::default();
        for spec in specs {
            let bias = match spec.class {
                AllocationClass::Normal => Bias::None,
                AllocationClass::Log => Bias::Log,
                AllocationClass::Special => Bias::Special,
                AllocationClass::Dedup => Bias::Dedup,
                AllocationClass::Cache => {
                    devices.auxiliary.push((AuxiliaryKind::Cache, leaf_path(spec)?));
                    continue;
                }
                AllocationClass::Spare => {
                    devices.auxiliary.push((AuxiliaryKind::Spare, leaf_path(spec)?));
                    continue;
                }
            };
            let children = || spec.children.iter().map(leaf_path).collect::<Result<Vec<PathBuf>, Failure>>();
            let (paths, parity, draid) = match spec.kind {
                VdevKind::Disk | VdevKind::File => (vec![leaf_path(spec)?], 0, None),
                VdevKind::Mirror if !spec.children.is_empty() => (children()?, 0, None),
                VdevKind::Raidz { parity } if parity != 0 => (children()?, parity, None),
                VdevKind::Draid { parity, data, spares, .. } if parity != 0 => (children()?, parity, Some(DraidColumns { data, spares })),
                _ => return Err(Failure::new(FailureKind::BadVdevs)),
            };
            devices.tops.push(VdevPaths { paths, parity, draid, bias });
        }
        Ok(devices)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tops.is_empty() && self.auxiliary.is_empty()
    }
}

fn leaf_path(spec: &VdevSpec) -> Result<PathBuf, Failure> {
    let path = spec.path.clone().filter(|path| path.is_absolute() && matches!(spec.kind, VdevKind::Disk | VdevKind::File));
    path.ok_or_else(|| Failure::new(FailureKind::BadVdevs))
}

/// The word that begins the list of a class; of normal vdevs there is none.
fn class_word(class: AllocationClass) -> Option<&'static str> {
    Some(match class {
        AllocationClass::Normal => return None,
        AllocationClass::Log => "log",
        AllocationClass::Special => "special",
        AllocationClass::Dedup => "dedup",
        AllocationClass::Cache => "cache",
        AllocationClass::Spare => "spare",
    })
}

/// The command line for the history, as far as it can be told from the request.
fn command_line(create: &PoolCreate) -> String {
    let mut words = vec!["zpool create".to_owned()];
    words.extend(create.force.then(|| "-f".to_owned()));
    for (letter, settings) in [('o', &create.properties), ('O', &create.dataset_properties)] {
        words.extend(settings.iter().map(|setting| match &setting.value {
            Value::Text(text) => format!("-{letter} {}={text}", setting.name),
            Value::Number(number) => format!("-{letter} {}={number}", setting.name),
        }));
    }
    words.push(create.name.clone());
    let mut last = AllocationClass::Normal;
    for spec in &create.vdevs {
        if spec.class != last {
            words.extend(class_word(spec.class).map(str::to_owned));
            last = spec.class;
        }
        words.extend(match spec.kind {
            VdevKind::Mirror => Some("mirror".to_owned()),
            VdevKind::Raidz { parity } => Some(format!("raidz{parity}")),
            VdevKind::Draid { parity, data, children, spares } => Some(format!("draid{parity}:{data}d:{children}c:{spares}s")),
            _ => None,
        });
        let leaves = spec.path.iter().chain(spec.children.iter().filter_map(|child| child.path.as_ref()));
        words.extend(leaves.map(|path| path.display().to_string()));
    }
    words.join(" ")
}

impl Pools {
    pub(in crate::control::pools) fn create_pool(&mut self, create: &PoolCreate) -> Result<(), Failure> {
        names::check_pool(&create.name)?;
        let name = create.temporary_name.as_deref().unwrap_or(&create.name);
        names::check_pool(name)?;
        if self.pools.contains_key(name) {
            return Err(Failure::new(FailureKind::PoolExists));
        }
        let settings = PoolSettings::of(&create.properties, When::Creating)?;
        let features = if settings.version.is_some() { Vec::new() } else { chosen_features(&create.features)? };
        // Quotas of users, groups and projects are the file system's own, which there must be first.
        let (quotas, dataset_settings) = quotas::split(&create.dataset_properties)?;
        let properties = checks::changes(&dataset_settings, DatasetTypes::FILESYSTEM, true, &|feature| features.contains(&feature))?;
        let devices = NewDevices::of(&create.vdevs)?;
        if devices.tops.iter().all(|vdev| vdev.bias != Bias::None) {
            return Err(Failure::new(FailureKind::BadVdevs));
        }
        let ClaimedDevices { tops, auxiliary } = self.claim_devices(&devices, settings.ashift, create.force)?;
        let options = CreateOptions {
            ashift: settings.ashift,
            version: settings.version,
            properties,
            features: Some(features),
            comment: settings.comment,
            compatibility: settings.compatibility.filter(|text| !text.is_empty()),
            temporary_name: create.temporary_name.clone(),
            tunables: Some(self.limits.clone()),
            ..CreateOptions::default()
        };
        let pool = Pool::create_on(&create.name, tops, options, RealHost::shared()).map_err(|error| creation_failure(&error))?;
        let name = name.to_owned();
        if let Err(failure) = quotas::set(&pool, &name, DatasetTypes::FILESYSTEM, &quotas) {
            pool.destroy().map_err(|error| Failure::about_pool(&error))?;
            return Err(failure);
        }
        if !settings.stored.is_empty() {
            pool.engine().set_properties(settings.stored).map_err(|error| Failure::about_pool(&error))?;
        }
        pool.engine().obey_failmode().map_err(|error| Failure::about_pool(&error))?;
        let mut imported = Imported::new(pool);
        if let Err(failure) = self.add_auxiliary(&imported, &auxiliary) {
            imported.pool.destroy().map_err(|error| Failure::about_pool(&error))?;
            return Err(failure);
        }
        imported.altroot = settings.altroot;
        *imported.cachefile.get_mut() = settings.cachefile;
        let words = if create.command.words.is_empty() { command_line(create) } else { create.command.words.clone() };
        imported.pool.record_command(&words, create.command.user);
        self.note_pool_event("pool_create", &imported);
        self.pools.insert(name.clone(), Arc::new(imported));
        self.write_cachefile(&name);
        Ok(())
    }

    /// Opens the devices of new vdevs for good, and only then looks whether they are parts of pools: what was seen before could be otherwise by now.
    pub(super) fn claim_devices(&self, devices: &NewDevices, ashift: Option<u32>, force: bool) -> Result<ClaimedDevices, Failure> {
        let bad = |words: String| Failure::with(FailureKind::BadDevice, words);
        self.wait_for_departures();
        let of_tops = devices.tops.iter().flat_map(|vdev| &vdev.paths).map(|path| (path, false));
        let auxiliary = devices.auxiliary.iter().map(|(kind, path)| (path, *kind == AuxiliaryKind::Spare));
        let mut taken: Vec<Footprint> = Vec::new();
        for (path, is_spare) in of_tops.chain(auxiliary) {
            let footprint = disk::footprint(&path.to_string_lossy());
            if let Some(owner) = self.user_of(&footprint, &|_| false)
                && !(is_spare && self.shared_spare(&footprint).is_some())
            {
                return Err(bad(format!("{} is part of active pool '{owner}'", path.display())));
            }
            if taken.iter().any(|other| other.overlaps(&footprint)) {
                return Err(bad(SAME_DEVICE.to_owned()));
            }
            taken.push(footprint);
        }
        let tops = open_tops(&devices.tops, ashift).map_err(|error| creation_failure(&error))?;
        let auxiliary = devices.auxiliary.iter().map(|(kind, path)| self.claim_auxiliary(*kind, path, ashift)).collect::<Result<Vec<_>, _>>()?;
        let unshared = auxiliary.iter().filter(|device| device.shared.is_none()).map(|device| &device.leaf);
        tops.iter().flat_map(|top| &top.leaves).chain(unshared).try_for_each(|leaf| self.check_labels(leaf, force))?;
        Ok(ClaimedDevices { tops, auxiliary })
    }

    fn claim_auxiliary(&self, kind: AuxiliaryKind, path: &Path, ashift: Option<u32>) -> Result<NewAuxiliary, Failure> {
        let shared = self.shared_spare(&disk::footprint(&path.to_string_lossy())).filter(|_| kind == AuxiliaryKind::Spare);
        let device = match shared {
            Some((guid, disk)) => {
                let leaf = NewLeaf { disk, path: path.display().to_string(), whole_disk: false };
                NewAuxiliary { leaf, kind, ashift, shared: Some(guid) }
            }
            None => NewAuxiliary { leaf: open_leaf(path).map_err(|error| creation_failure(&error))?, kind, ashift, shared: None },
        };
        // Before anything is done for the others.
        device.leaf.measure(ashift).map_err(|error| creation_failure(&error))?;
        Ok(device)
    }

    /// As [`Pools::claim_devices`], for a device that comes beside another one; a device of a pool that is `given_up` is no user of what is where it was.
    pub(super) fn claim_device(&self, path: &Path, force: bool, given_up: &dyn Fn(u64) -> bool) -> Result<NewLeaf, Failure> {
        self.wait_for_departures();
        let footprint = disk::footprint(&path.to_string_lossy());
        if let Some(owner) = self.user_of(&footprint, given_up) {
            return Err(Failure::with(FailureKind::BadDevice, format!("{} is part of active pool '{owner}'", path.display())));
        }
        let leaf = open_leaf(path).map_err(|error| creation_failure(&error))?;
        self.check_labels(&leaf, force)?;
        Ok(leaf)
    }

    /// Devices that pools have given up have no labels any more.
    pub(in crate::control::pools) fn wait_for_departures(&self) {
        self.pools.values().for_each(|imported| imported.pool.engine().vdevs.departures().wait());
    }

    /// The pool of this daemon that has a device, whatever it is called there.
    fn user_of(&self, footprint: &Footprint, given_up: &dyn Fn(u64) -> bool) -> Option<&String> {
        let has = |imported: &Imported| {
            let leaves = imported.pool.engine().vdevs.leaves().into_iter().filter(|leaf| !given_up(leaf.guid()));
            leaves.into_iter().any(|leaf| disk::footprint(leaf.name()).overlaps(footprint))
        };
        self.pools.iter().find(|(_, imported)| has(imported)).map(|(name, _)| name).or_else(|| self.auxiliary_user(footprint))
    }

    /// Refuses a device whose labels say that it belongs to a pool, or those of one of its partitions: OpenZFS puts a pool that has a whole disk on the
    /// first of them.
    fn check_labels(&self, leaf: &NewLeaf, force: bool) -> Result<(), Failure> {
        let partitions = disk::partitions(&leaf.disk).into_iter().map(|(_, partition)| partition);
        std::iter::once(Arc::clone(&leaf.disk)).chain(partitions).try_for_each(|disk| self.check_labels_on(disk, &leaf.path, force))
    }

    fn check_labels_on(&self, disk: DiskRef, shown: &str, force: bool) -> Result<(), Failure> {
        let bad = |words: String| Failure::with(FailureKind::BadDevice, words);
        let found = discover(vec![disk]);
        let Some(candidate) = found.first() else { return Ok(()) };
        let owner = &candidate.config.name;
        if let Some(imported) = self.pools.values().find(|imported| imported.pool.engine().guid() == candidate.config.guid) {
            // A device that the pool has given up is nobody's.
            let tree = imported.pool.engine().vdevs.config();
            let is_member = candidate.vdev_tree.leaves().iter().any(|leaf| candidate.devices.iter().any(|found| found.guid == leaf.guid) && tree.find(leaf.guid).is_some());
            return if is_member { Err(bad(format!("{shown} is part of active pool '{owner}'"))) } else { Ok(()) };
        }
        let state = match candidate.config.state {
            _ if force => return Ok(()),
            PoolState::Destroyed => return Ok(()),
            PoolState::Exported => "exported",
            PoolState::Active => "potentially active",
            PoolState::Spare | PoolState::CacheDevice => "another",
        };
        Err(bad(format!("{shown} is part of {state} pool '{owner}': use force to override")))
    }
}

/// Why a pool could not be made.
pub(in crate::control::pools) fn creation_failure(error: &crate::Error) -> Failure {
    match error.kind() {
        ErrorKind::Invalid if error.message().contains("less than the minimum of 64M") => {
            Failure::with(FailureKind::BadDevice, "one or more devices is less than the minimum size (64M)")
        }
        ErrorKind::Unsupported if error.message().contains("allocation_classes") => {
            Failure::with(FailureKind::Unsupported, "special and dedup vdevs need the feature 'allocation_classes'")
        }
        ErrorKind::Invalid | ErrorKind::NoDevice | ErrorKind::Io | ErrorKind::Denied => Failure::with(FailureKind::BadDevice, error.message()),
        _ => Failure::about_pool(error),
    }
}
