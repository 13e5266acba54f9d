//! Finding pools that could be imported, without importing them.
//!
//! # Theory
//!
//! Labels and the MOS say everything that `zpool import` shows: the tree, who used the pool last, which features it needs.
//! Where the MOS cannot be read the labels must do. Nothing is opened for writing and nothing is locked, so this needs no
//! daemon. A device that the tree names and that was not found is missing; from the leaves the state of each vdev
//! follows, up to the pool.

use std::path::PathBuf;

use engine::dsl::feature::Unsupported;
use engine::error::ErrorKind;
use engine::host::RealHost;
use engine::pool::config::{PoolConfig, PoolState as LabelState};
use engine::pool::examine::{Examined, examine};
use engine::pool::import::{Candidate, discover};
use engine::vdev::{VdevConfig, VdevKind as EngineKind};
use ondisk::feature::{Feature, FeatureFlags, Support};
use ondisk::label;
use ondisk::nvlist::NvString;

use super::auxiliary::AuxiliaryStatus;
use super::compatibility;
use super::protocol::request::{AllocationClass, PoolScan, VdevKind};
use super::protocol::status::{Compatibility, FoundPool, PoolState, PoolStatus, UnsupportedFeature, VdevAux, VdevState, VdevStats, VdevStatus};

/// What is known of a leaf beyond its description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafStatus {
    /// How it is.
    pub state: VdevState,
    /// Why.
    pub aux: VdevAux,
    /// Its counters.
    pub stats: VdevStats,
    /// Where it is now, if elsewhere than described.
    pub path: Option<String>,
}

/// The pools on the devices at `scan.paths`, or in the usual places.
#[must_use]
pub fn scan(scan: &PoolScan, our_host_id: u32) -> Vec<FoundPool> {
    candidates(&scan.paths, scan.destroyed).iter().map(|candidate| found_pool(candidate, our_host_id)).collect()
}

/// Directories of device names: where pools are looked for when nobody says where, in this order. A disk below one of them is
/// called by the rest of its path.
pub const DEVICE_DIRECTORIES: [&str; 9] = [
    "/dev/disk/by-vdev",
    "/dev/mapper",
    "/dev/disk/by-partlabel",
    "/dev/disk/by-partuuid",
    "/dev/disk/by-label",
    "/dev/disk/by-uuid",
    "/dev/disk/by-id",
    "/dev/disk/by-path",
    "/dev",
];

/// The path of a device without the directory of devices that it is in: `ata-X` of `/dev/disk/by-id/ata-X`.
#[must_use]
pub fn strip_directory(path: &str) -> &str {
    let rest = DEVICE_DIRECTORIES.iter().find_map(|directory| path.strip_prefix(directory)?.strip_prefix('/'));
    rest.unwrap_or(path)
}

/// `sda1` to `sda`, `nvme0n1p1` to `nvme0n1`, `ata-X-part1` to `ata-X`.
#[must_use]
pub fn strip_partition(name: &str) -> &str {
    let ends_in_digits = |at: usize| name.len() > at && name[at..].bytes().all(|b| b.is_ascii_digit());
    if let Some(at) = name.find("-part").filter(|at| *at > 0) {
        return if ends_in_digits(at + 5) { &name[..at] } else { name };
    }
    if let Some(at) = name.rfind('p').filter(|at| *at > 1 && name.as_bytes()[at - 1].is_ascii_digit()) {
        return if ends_in_digits(at + 1) { &name[..at] } else { name };
    }
    if ["hd", "sd", "vd", "xvd"].iter().any(|prefix| name.starts_with(prefix)) {
        let letters = name.trim_end_matches(|c: char| c.is_ascii_digit());
        if letters.bytes().all(|b| b.is_ascii_lowercase()) {
            return letters;
        }
    }
    name
}

/// Is a device at `path` called `name`? By its path, by what is left of that below a directory of devices, or by its last part. Of a whole disk, of which the
/// pool uses the first partition, the names of the disk count too: these are shown.
#[must_use]
pub fn is_device(path: &str, whole_disk: bool, name: &str) -> bool {
    let short = strip_directory(path);
    let disk = if whole_disk { strip_partition(short) } else { short };
    let whole = &path[..path.len() - (short.len() - disk.len())];
    short == name || disk == name || [path, whole].iter().any(|path| *path == name || path.rsplit('/').next() == Some(name))
}

/// The pools on the devices at `paths`, or in the usual places.
pub(super) fn candidates(paths: &[PathBuf], destroyed: bool) -> Vec<Candidate> {
    let usual = || DEVICE_DIRECTORIES.iter().map(PathBuf::from).collect();
    let mut paths = if paths.is_empty() { usual() } else { paths.to_vec() };
    let mut found = discover(disk::find(&paths));
    let elsewhere: Vec<PathBuf> = found.iter().flat_map(recorded_elsewhere).collect();
    if !elsewhere.is_empty() {
        let guids: Vec<u64> = found.iter().map(|candidate| candidate.config.guid).collect();
        paths.extend(elsewhere);
        found = discover(disk::find(&paths));
        // What else is at these places was not asked for.
        found.retain(|candidate| guids.contains(&candidate.config.guid));
    }
    found.retain(|candidate| (candidate.config.state == LabelState::Destroyed) == destroyed);
    found
}

/// Devices of a pool that were not found where one was told to look, and are where they were when the pool was used last.
fn recorded_elsewhere(candidate: &Candidate) -> Vec<PathBuf> {
    let is_found = |leaf: &VdevConfig| candidate.devices.iter().any(|device| device.guid == leaf.guid);
    let leaves = candidate.vdev_tree.leaves().into_iter().filter(|leaf| !is_found(leaf));
    leaves.filter_map(|leaf| leaf.string("path").map(PathBuf::from)).filter(|path| path.is_absolute() && path.exists()).collect()
}

/// What labels and the MOS say of a pool.
#[must_use]
pub fn found_pool(candidate: &Candidate, our_host_id: u32) -> FoundPool {
    let config = &candidate.config;
    let findings = match examine(candidate, RealHost::shared()) {
        Ok(examined) => Findings::of_readable(candidate, &examined),
        Err(error) => Findings::of_unreadable(candidate, &error),
    };
    let state = match config.state {
        LabelState::Exported => PoolState::Exported,
        LabelState::Destroyed => PoolState::Destroyed,
        _ => PoolState::Active,
    };
    let auxiliary = findings.auxiliary;
    let host_name = config.host_name.to_string_lossy().into_owned();
    let mut found = FoundPool {
        status: PoolStatus {
            name: config.name.clone(),
            guid: config.guid,
            state,
            txg: candidate.uberblock().txg,
            version: config.version,
            root: findings.root,
            caches: Vec::new(),
            spares: Vec::new(),
            scan: None,
            error_scrub: None,
            rebuilds: Vec::new(),
            checkpoint: None,
            removal: None,
            expansion: None,
            dedup: None,
            error_count: None,
            errors: Vec::new(),
            compatibility: findings.compatibility,
            suspended: None,
        },
        comment: config.comment.as_ref().map(|comment| comment.to_string_lossy().into_owned()),
        hostname: Some(host_name).filter(|name| !name.is_empty()),
        hostid: config.host_id,
        other_host: candidate.is_in_use_elsewhere(our_host_id),
        timestamp: candidate.uberblock().timestamp,
        unsupported: findings.unsupported,
        can_read_only: findings.can_read_only,
    };
    auxiliary.show_in(&mut found.status);
    found
}

/// The log devices of a pool that are not there. Those that were taken out of use are not missed: nothing was written to them since.
#[must_use]
pub fn missing_logs(found: &FoundPool) -> Vec<&VdevStatus> {
    let tops = found.status.root.children.iter();
    tops.filter(|top| top.class == AllocationClass::Log && top.kind != VdevKind::Hole && is_missed(top)).collect()
}

fn is_missed(vdev: &VdevStatus) -> bool {
    vdev.state == VdevState::CantOpen && (vdev.children.is_empty() || vdev.children.iter().any(is_missed))
}

/// What was found out about a pool.
struct Findings {
    root: VdevStatus,
    unsupported: Vec<UnsupportedFeature>,
    can_read_only: bool,
    compatibility: Compatibility,
    auxiliary: AuxiliaryStatus,
}

impl Findings {
    fn new(root: VdevStatus) -> Findings {
        Findings { root, unsupported: Vec::new(), can_read_only: false, compatibility: Compatibility::Fits, auxiliary: AuxiliaryStatus::default() }
    }

    /// The pool cannot be opened because of this, unless something worse is known.
    fn because(mut self, aux: VdevAux) -> Findings {
        self.root.state = VdevState::CantOpen;
        self.root.aux = aux;
        self
    }

    fn of_readable(candidate: &Candidate, examined: &Examined) -> Findings {
        let root = tree_status(&examined.vdevs.config(), &|leaf| found_leaf(candidate, leaf));
        let mut findings = Findings::new(root);
        findings.auxiliary = AuxiliaryStatus::find(candidate, &examined.auxiliary);
        findings.compatibility = compatibility_of(candidate.config.compatibility.as_ref(), &|feature| examined.features.is_enabled(feature));
        if examined.unsupported.is_empty() {
            return findings;
        }
        let named = |feature: &Unsupported| UnsupportedFeature { guid: feature.guid.clone(), description: feature.description.clone() };
        findings.unsupported = examined.unsupported.iter().map(named).collect();
        findings.can_read_only = examined.unsupported.iter().all(|feature| feature.readable);
        findings.because(VdevAux::UnsupportedFeature)
    }

    fn of_unreadable(candidate: &Candidate, error: &engine::error::Error) -> Findings {
        let mut findings = Findings::new(tree_status(&candidate.vdev_tree, &|leaf| found_leaf(candidate, leaf)));
        let config = &candidate.config;
        if config.version > 28 && config.version != 5000 {
            return findings.because(VdevAux::VersionNewer);
        }
        if error.kind() == ErrorKind::Unsupported {
            findings.unsupported = unsupported(config);
            if findings.unsupported.is_empty() {
                // A kind of vdev: the engine's sentence says which.
                let pool = format!("pool {}: ", config.name);
                let message = error.message();
                let guid = message.strip_prefix(&pool).unwrap_or(message).to_owned();
                findings.unsupported.push(UnsupportedFeature { guid, description: String::new() });
            }
            return findings.because(VdevAux::UnsupportedFeature);
        }
        if !candidate.missing_tops.is_empty() {
            return findings.because(VdevAux::BadGuidSum);
        }
        match findings.root.state {
            VdevState::Healthy | VdevState::Degraded => findings.because(VdevAux::CorruptData),
            _ => findings,
        }
    }
}

/// What the features of a pool are to its `compatibility`: the first of them that does not fit says it.
pub(super) fn compatibility_of(compatibility: Option<&NvString>, is_enabled: &dyn Fn(Feature) -> bool) -> Compatibility {
    let value = compatibility.map(NvString::to_string).unwrap_or_default();
    let Ok(allowed) = compatibility::load(&value) else { return Compatibility::Unreadable };
    let unfit = |feature: Feature| {
        let info = feature.info();
        // What an upgrade would enable.
        let is_wanted = info.support == Support::ReadWrite && !info.flags.contains(FeatureFlags::NO_UPGRADE);
        match (allowed.allows(feature), is_enabled(feature)) {
            (true, false) => is_wanted.then_some(Compatibility::FeaturesDisabled),
            (false, true) => Some(Compatibility::FeaturesNotNamed),
            (true, true) | (false, false) => None,
        }
    };
    Feature::all().find_map(unfit).unwrap_or(Compatibility::Fits)
}

/// Features that the label says are needed to read, and that nobody here knows.
fn unsupported(config: &PoolConfig) -> Vec<UnsupportedFeature> {
    let names = config.features_for_read.iter().map(|(name, _)| name.to_string_lossy().into_owned());
    let unknown = names.filter(|guid| Feature::from_guid(guid).is_none_or(|feature| feature.info().support < Support::Read));
    unknown.map(|guid| UnsupportedFeature { guid, description: String::new() }).collect()
}

/// How many bytes a device lacks that is smaller than its labels say: an image that was truncated, a partition made smaller.
fn cut_off(candidate: &Candidate, leaf: &VdevConfig) -> Option<u64> {
    let device = candidate.devices.iter().find(|device| device.guid == leaf.guid)?;
    let top = candidate.vdev_tree.children.iter().find(|top| top.leaves().iter().any(|other| other.guid == leaf.guid))?;
    // How much a device of a kind that we cannot read must have is not known.
    if matches!(top.kind, EngineKind::Other(_)) {
        return None;
    }
    let room = label::data_bytes(device.disk.size_bytes()).unwrap_or(0);
    Some(top.leaf_bytes().saturating_sub(room)).filter(|lacking| *lacking != 0)
}

/// The devices that have been cut off, in words.
pub(super) fn devices_cut_off(candidate: &Candidate) -> Vec<String> {
    let words = |leaf: &VdevConfig, lacking| {
        let device = candidate.devices.iter().find(|device| device.guid == leaf.guid)?;
        Some(format!("{} has been truncated: its {} bytes lack {lacking} or more", device.disk.name(), device.disk.size_bytes()))
    };
    let leaves = candidate.vdev_tree.leaves();
    leaves.into_iter().filter_map(|leaf| words(leaf, cut_off(candidate, leaf)?)).collect()
}

/// Where the devices were that are not there.
pub(super) fn devices_missing(candidate: &Candidate) -> Vec<String> {
    let is_missing = |leaf: &&VdevConfig| candidate.devices.iter().all(|device| device.guid != leaf.guid);
    candidate.vdev_tree.leaves().into_iter().filter(is_missing).filter_map(|leaf| leaf.string("path")).collect()
}

fn found_leaf(candidate: &Candidate, leaf: &VdevConfig) -> LeafStatus {
    let device = candidate.devices.iter().find(|device| device.guid == leaf.guid);
    let (state, aux) = match device {
        _ if leaf.flag("offline") => (VdevState::Offline, VdevAux::None),
        _ if leaf.flag("removed") => (VdevState::Removed, VdevAux::None),
        None => (VdevState::CantOpen, VdevAux::OpenFailed),
        Some(_) if cut_off(candidate, leaf).is_some() => (VdevState::CantOpen, VdevAux::TooSmall),
        Some(_) if leaf.flag("faulted") => (VdevState::Faulted, VdevAux::External),
        Some(_) if leaf.flag("degraded") => (VdevState::Degraded, VdevAux::TooManyErrors),
        Some(_) => (VdevState::Healthy, VdevAux::None),
    };
    LeafStatus { state, aux, stats: VdevStats::default(), path: device.map(|device| device.disk.name().to_owned()) }
}

/// A description as a tree of states: `leaf` says how each device is, the rest follows.
pub fn tree_status(config: &VdevConfig, leaf: &dyn Fn(&VdevConfig) -> LeafStatus) -> VdevStatus {
    status_of(config, AllocationClass::Normal, 0, leaf)
}

/// Vdevs are nested no deeper than the engine accepts; this only keeps a mistake from being endless.
const DEPTH_MAX: usize = 16;

fn status_of(config: &VdevConfig, class: AllocationClass, depth: usize, leaf: &dyn Fn(&VdevConfig) -> LeafStatus) -> VdevStatus {
    let class = class_of(config).unwrap_or(class);
    let children: Vec<VdevStatus> = if depth < DEPTH_MAX {
        config.children.iter().map(|child| status_of(child, class, depth + 1, leaf)).collect()
    } else {
        Vec::new()
    };
    let kind = kind_of(config);
    let own = if config.kind.is_leaf() { leaf(config) } else { state_of(config, kind, &children) };
    VdevStatus {
        kind,
        id: config.id,
        guid: config.guid,
        path: own.path.or_else(|| config.string("path")),
        physical_path: config.string("phys_path"),
        device_id: config.string("devid"),
        whole_disk: config.flag("whole_disk"),
        used_by: None,
        not_present: config.flag("not_present") && own.state == VdevState::CantOpen,
        class,
        state: own.state,
        aux: own.aux,
        stats: own.stats,
        children,
    }
}

fn class_of(config: &VdevConfig) -> Option<AllocationClass> {
    if (config.kind.is_leaf() || config.kind == EngineKind::DraidSpare) && config.flag("is_spare") {
        return Some(AllocationClass::Spare);
    }
    if config.flag("is_log") {
        return Some(AllocationClass::Log);
    }
    match config.string("alloc_bias")?.as_str() {
        "log" => Some(AllocationClass::Log),
        "special" => Some(AllocationClass::Special),
        "dedup" => Some(AllocationClass::Dedup),
        _ => None,
    }
}

fn kind_of(config: &VdevConfig) -> VdevKind {
    let small = |name: &str| u8::try_from(config.number(name)).unwrap_or(0);
    match &config.kind {
        EngineKind::Root => VdevKind::Root,
        EngineKind::Mirror => VdevKind::Mirror,
        EngineKind::Replacing => VdevKind::Replacing,
        EngineKind::Spare => VdevKind::Spare,
        EngineKind::File => VdevKind::File,
        EngineKind::Disk => VdevKind::Disk,
        EngineKind::Hole => VdevKind::Hole,
        EngineKind::Missing => VdevKind::Missing,
        EngineKind::Raidz => VdevKind::Raidz { parity: small("nparity") },
        other => match other.name() {
            "draid" => VdevKind::Draid {
                parity: small("nparity"),
                data: config.number("draid_ndata"),
                children: config.children.len() as u64,
                spares: config.number("draid_nspares"),
            },
            "dspare" => VdevKind::DraidSpare,
            "indirect" => VdevKind::Indirect,
            _ => VdevKind::Missing,
        },
    }
}

/// How a vdev is, from those below it: with too few that work it cannot be opened, with fewer than all it is degraded.
fn state_of(config: &VdevConfig, kind: VdevKind, children: &[VdevStatus]) -> LeafStatus {
    let counted = |child: &&VdevStatus| !matches!(child.kind, VdevKind::Hole | VdevKind::Indirect);
    let total = children.iter().filter(counted).count();
    // What a log device held is lost with it, but not the pool.
    let is_log = |child: &VdevStatus| kind == VdevKind::Root && child.class == AllocationClass::Log;
    let is_broken = |child: &&VdevStatus| child.state < VdevState::Degraded;
    let broken = children.iter().filter(counted).filter(is_broken).filter(|child| !is_log(child)).count();
    let tolerated = match kind {
        VdevKind::Raidz { parity } | VdevKind::Draid { parity, .. } => usize::from(parity),
        VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare => total.saturating_sub(1),
        _ => 0,
    };
    let (state, aux) = if config.kind.is_placeholder() || matches!(kind, VdevKind::Indirect | VdevKind::DraidSpare) {
        (VdevState::Healthy, VdevAux::None)
    } else if broken > tolerated || total == 0 {
        (VdevState::CantOpen, VdevAux::NoReplicas)
    } else if children.iter().filter(counted).any(|child| child.state <= VdevState::Degraded) {
        (VdevState::Degraded, VdevAux::None)
    } else {
        (VdevState::Healthy, VdevAux::None)
    };
    LeafStatus { state, aux, stats: VdevStats::default(), path: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(id: u64) -> VdevConfig {
        let mut leaf = VdevConfig::new(EngineKind::File, id, 100 + id);
        leaf.set_string("path", format!("/img/{id}").as_str());
        leaf
    }

    fn tree(kind: EngineKind, leaves: u64) -> VdevConfig {
        let mut group = VdevConfig::new(kind, 0, 10);
        group.set("nparity", 1);
        group.children = (0..leaves).map(leaf).collect();
        let mut root = VdevConfig::new(EngineKind::Root, 0, 1);
        root.children.push(group);
        root
    }

    fn with_missing(tree: &VdevConfig, missing: &[u64]) -> VdevStatus {
        tree_status(tree, &|leaf| {
            let gone = missing.contains(&leaf.id);
            let (state, aux) = if gone { (VdevState::CantOpen, VdevAux::OpenFailed) } else { (VdevState::Healthy, VdevAux::None) };
            LeafStatus { state, aux, stats: VdevStats::default(), path: None }
        })
    }

    #[test]
    fn states_follow_from_the_leaves() {
        for (kind, leaves, missing, expected) in [
            (EngineKind::Mirror, 2, &[][..], VdevState::Healthy),
            (EngineKind::Mirror, 2, &[1], VdevState::Degraded),
            (EngineKind::Mirror, 2, &[0, 1], VdevState::CantOpen),
            (EngineKind::Raidz, 3, &[1], VdevState::Degraded),
            (EngineKind::Raidz, 3, &[1, 2], VdevState::CantOpen),
        ] {
            let status = with_missing(&tree(kind.clone(), leaves), missing);
            assert_eq!((status.state, status.children[0].state), (expected, expected), "{kind} {missing:?}");
        }
        let status = with_missing(&tree(EngineKind::Raidz, 3), &[1, 2]);
        assert_eq!(status.children[0].kind, VdevKind::Raidz { parity: 1 });
        assert_eq!(status.aux, VdevAux::NoReplicas);
        assert_eq!(status.children[0].children[0].path.as_deref(), Some("/img/0"));
    }

    /// A pool whose log device was taken offline was not imported without `-m`.
    #[test]
    fn a_log_that_is_offline_is_not_missing() {
        use VdevState::{CantOpen, Faulted, Healthy, Offline};
        for (states, expected) in [
            ([Offline, Offline], false), ([Offline, Faulted], false), ([CantOpen, Offline], true), ([CantOpen, CantOpen], true), ([CantOpen, Healthy], false),
        ] {
            let status = tree_status(&tree(EngineKind::Mirror, 2), &|leaf| {
                LeafStatus { state: states[leaf.id as usize], aux: VdevAux::None, stats: VdevStats::default(), path: None }
            });
            assert_eq!(is_missed(&status.children[0]), expected, "{states:?}");
            assert_eq!(is_missed(&status.children[0].children[0]), states[0] == CantOpen);
        }
    }

    /// Of a list that could not be read, and of features that it does not name, `zpool status` said nothing.
    #[test]
    fn features_are_held_against_the_list() {
        let directory = tempfile::tempdir().expect("directory");
        let list = directory.path().join("list");
        let fit = |text: Option<&str>, enabled: &[Feature]| {
            if let Some(text) = text {
                std::fs::write(&list, text).expect("list");
            }
            let value = NvString::from(list.to_str().expect("UTF-8"));
            compatibility_of(text.map(|_| &value), &|feature| enabled.contains(&feature))
        };
        let some: &[Feature] = &[Feature::Lz4Compress];
        let others: &[Feature] = &[Feature::Lz4Compress, Feature::HeadErrlog];
        assert_eq!(fit(Some("lz4_compress"), some), Compatibility::Fits);
        assert_eq!(fit(Some("lz4_compress"), &[]), Compatibility::FeaturesDisabled);
        assert_eq!(fit(Some("lz4_compress"), others), Compatibility::FeaturesNotNamed);
        assert_eq!(fit(Some("no_such_feature"), some), Compatibility::Unreadable);
        assert_eq!(fit(None, some), Compatibility::FeaturesDisabled);
    }

    #[test]
    fn a_directory_without_pools_has_none() {
        let directory = tempfile::tempdir().expect("directory");
        let wanted = PoolScan { paths: vec![directory.path().to_owned()], destroyed: false };
        assert_eq!(scan(&wanted, 0), []);
    }
    #[test]
    fn partitions_are_stripped_as_linux_names_them() {
        for (name, short) in [
            ("sda1", "sda"), ("sda", "sda"), ("nvme0n1p1", "nvme0n1"), ("nvme0n1", "nvme0n1"), ("ata-X-part9", "ata-X"), ("ata-X-partx", "ata-X-partx"),
            ("xvdb2", "xvdb"), ("loop0p1", "loop0"), ("mapper1", "mapper1"),
        ] {
            assert_eq!(strip_partition(name), short);
        }
        assert_eq!(strip_directory("/dev/disk/by-id/ata-X"), "ata-X");
        assert_eq!(strip_directory("/dev/sda"), "sda");
        assert_eq!(strip_directory("/img/d0"), "/img/d0");
    }

    /// `zpool status` shows the name of a whole disk, of which the pool has a partition; no verb knew it.
    #[test]
    fn a_whole_disk_is_called_by_its_name_too() {
        let (disk, by_id) = ("/dev/sda1", "/dev/disk/by-id/ata-X-part1");
        for (path, name) in [
            (disk, "sda"), (disk, "/dev/sda"), (disk, "sda1"), (disk, "/dev/sda1"), (by_id, "ata-X"), (by_id, "/dev/disk/by-id/ata-X"), (by_id, "ata-X-part1"),
            ("/dev/nvme0n1p1", "nvme0n1"), ("/dev/zvol/tank/v", "zvol/tank/v"), ("/img/sda1", "sda1"),
        ] {
            assert!(is_device(path, true, name), "{path} {name}");
        }
        for (path, whole_disk, name) in [(disk, false, "sda"), (disk, false, "/dev/sda"), (disk, true, "sd"), (disk, true, "/dev"), (by_id, true, "/dev/ata-X"), ("/img/sda1", true, "img/sda1")] {
            assert!(!is_device(path, whole_disk, name), "{path} {name}");
        }
    }
}
