//! The vdevs that `zpool create` is given: words to a checked tree.
//!
//! # Theory
//!
//! A word is a keyword that begins a group (`mirror`, `raidz2`), a keyword that says what the following vdevs are for
//! (`log`, `special`), or a device. A device is an absolute path, or the short name of one below `/dev`. Then each is
//! looked at: does it exist, is it in use, is the redundancy the same everywhere? The last two questions can be
//! silenced with `-f`, except that a device of an imported pool is never taken.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use disk::Footprint;
use rustix::fs::{Access, AtFlags, CWD};
use tarnfs::control::SAME_DEVICE;
use tarnfs::control::scan::{DEVICE_DIRECTORIES, strip_directory};
use tarnfs::control::{AllocationClass, Failure, FailureKind, PoolScan, PoolSelect, PoolState, PoolStatus, Request, VdevKind, VdevSpec, VdevStatus, Wanted};

use super::device_contents::{self, Contents};
use super::replication;
use crate::session::{Session, Stop, complain};

fn refuse(session: &mut Session<'_>, words: std::fmt::Arguments<'_>) -> Stop {
    complain!(session, "{words}");
    Stop::Code(1)
}

fn invalid(session: &mut Session<'_>, words: std::fmt::Arguments<'_>) -> Stop {
    refuse(session, format_args!("invalid vdev specification: {words}"))
}

/// A word that is not a device.
enum Keyword {
    Group(VdevKind),
    Class(AllocationClass),
}

/// The number in `raidz2`: no leading zero, 1 to 3, 1 when there is none.
fn parity(suffix: &str) -> Option<u8> {
    match suffix {
        "" => Some(1),
        "1" | "2" | "3" => suffix.parse().ok(),
        _ => None,
    }
}

fn keyword(word: &str) -> Option<Keyword> {
    let class = match word {
        "mirror" => return Some(Keyword::Group(VdevKind::Mirror)),
        "log" => AllocationClass::Log,
        "special" => AllocationClass::Special,
        "dedup" => AllocationClass::Dedup,
        "cache" => AllocationClass::Cache,
        "spare" => AllocationClass::Spare,
        _ => {
            if let Some(suffix) = word.strip_prefix("raidz") {
                return parity(suffix).map(|parity| Keyword::Group(VdevKind::Raidz { parity }));
            }
            let suffix = word.strip_prefix("draid")?;
            let parity = parity(suffix.split(':').next().unwrap_or(""))?;
            return Some(Keyword::Group(VdevKind::Draid { parity, data: 0, children: 0, spares: 0 }));
        }
    };
    Some(Keyword::Class(class))
}

/// The name of a group for messages, without its number.
pub(super) fn group_word(kind: VdevKind) -> &'static str {
    super::vdev_name::type_word(kind)
}

/// Reads the words. `adding`: to a pool that has vdevs already.
pub(in crate::zpool) fn parse(session: &mut Session<'_>, words: &[String], adding: bool) -> Result<Vec<VdevSpec>, Stop> {
    let mut specs: Vec<VdevSpec> = Vec::new();
    let mut class = AllocationClass::Normal;
    let mut seen: Vec<AllocationClass> = Vec::new();
    let mut next = 0;
    while next < words.len() {
        let word = &words[next];
        next += 1;
        match keyword(word) {
            None => specs.push(leaf(session, word, class)?),
            Some(Keyword::Class(new)) => {
                let once = matches!(new, AllocationClass::Log | AllocationClass::Cache | AllocationClass::Spare);
                if once && seen.contains(&new) {
                    return Err(invalid(session, format_args!("'{word}' can be specified only once")));
                }
                seen.push(new);
                class = new;
            }
            Some(Keyword::Group(kind)) => {
                let end = words[next..].iter().position(|word| keyword(word).is_some()).map_or(words.len(), |count| next + count);
                specs.push(group(session, word, kind, class, &words[next..end])?);
                next = end;
            }
        }
    }
    check_presence(session, &specs, &seen, adding)?;
    Ok(specs)
}

fn check_presence(session: &mut Session<'_>, specs: &[VdevSpec], seen: &[AllocationClass], adding: bool) -> Result<(), Stop> {
    for (class, word) in [(AllocationClass::Log, "log"), (AllocationClass::Cache, "cache"), (AllocationClass::Spare, "spare")] {
        if seen.contains(&class) && !specs.iter().any(|spec| spec.class == class) {
            return Err(invalid(session, format_args!("{word} requires at least 1 device{}", if word == "log" { "" } else { "s" })));
        }
    }
    if !adding && specs.is_empty() {
        return Err(invalid(session, format_args!("at least one toplevel vdev must be specified")));
    }
    Ok(())
}

fn group(session: &mut Session<'_>, word: &str, kind: VdevKind, class: AllocationClass, words: &[String]) -> Result<VdevSpec, Stop> {
    if class == AllocationClass::Log && kind != VdevKind::Mirror {
        return Err(invalid(session, format_args!("unsupported 'log' device: {}", group_word(kind))));
    }
    if matches!(class, AllocationClass::Cache | AllocationClass::Spare) {
        // A group ends the list of caches or spares.
        return group(session, word, kind, AllocationClass::Normal, words);
    }
    let children: Vec<VdevSpec> = words.iter().map(|word| leaf(session, word, class)).collect::<Result<_, _>>()?;
    let (least, most) = match kind {
        VdevKind::Raidz { parity } | VdevKind::Draid { parity, .. } => (usize::from(parity) + 1, 255),
        _ => (2, usize::MAX),
    };
    if children.len() < least {
        return Err(invalid(session, format_args!("{word} requires at least {least} devices")));
    }
    if children.len() > most {
        return Err(invalid(session, format_args!("{word} supports no more than {most} devices")));
    }
    let kind = match kind {
        VdevKind::Draid { parity, .. } => super::draid_spec::parse(session, word, parity, children.len() as u64)?,
        kind => kind,
    };
    Ok(VdevSpec { kind, path: None, class, children })
}

fn leaf(session: &mut Session<'_>, word: &str, class: AllocationClass) -> Result<VdevSpec, Stop> {
    if super::draid_spec::is_spare(word) {
        return Err(refuse(session, format_args!("cannot open '{word}': dRAID spares can only be used to replace primary vdevs")));
    }
    let path = if word.starts_with('/') {
        if fs::canonicalize(word).is_err() {
            return Err(refuse(session, format_args!("cannot resolve path '{word}'")));
        }
        PathBuf::from(word)
    } else {
        let below = DEVICE_DIRECTORIES.iter().map(|directory| Path::new(directory).join(word));
        let found = below.into_iter().find(|path| !word.is_empty() && path.exists());
        found.ok_or_else(|| {
            complain!(session, "cannot open '{word}': no such device in /dev");
            if let Ok(here) = fs::canonicalize(word) {
                session.hint(format!("for the file in this directory: {}", here.display()));
            }
            refuse(session, format_args!("must be a full path or shorthand device name"))
        })?
    };
    let kind = match fs::metadata(&path) {
        Ok(metadata) if metadata.file_type().is_block_device() => VdevKind::Disk,
        Ok(metadata) if metadata.is_file() => VdevKind::File,
        Ok(_) => return Err(refuse(session, format_args!("cannot use '{}': must be a block device or regular file", path.display()))),
        Err(error) => return Err(refuse(session, format_args!("cannot open '{}': {}", path.display(), error))),
    };
    if let Err(error) = check_access(&path, false) {
        return Err(refuse(session, format_args!("cannot open '{}': {error}", path.display())));
    }
    Ok(VdevSpec { kind, path: Some(path), class, children: Vec::new() })
}

/// Whether the caller may use a device. The daemon may be more than its caller: what the caller may not write is not given to a pool.
pub(in crate::zpool) fn check_access(path: &Path, read_only: bool) -> std::io::Result<()> {
    let wanted = if read_only { Access::READ_OK } else { Access::READ_OK | Access::WRITE_OK };
    Ok(rustix::fs::accessat(CWD, path, wanted, AtFlags::EACCESS)?)
}

/// Complaints that are gathered under one heading.
pub(super) struct Complaints {
    force: bool,
    any: bool,
}

impl Complaints {
    pub(super) fn add(&mut self, session: &mut Session<'_>, words: std::fmt::Arguments<'_>) {
        self.add_any(session, !self.force, words);
    }

    /// `yields`: force helps against it.
    fn add_any(&mut self, session: &mut Session<'_>, yields: bool, words: std::fmt::Arguments<'_>) {
        if !std::mem::replace(&mut self.any, true) {
            complain!(session, "invalid vdev specification");
            let words = if !yields { "the following errors must be manually repaired:" } else { "use '-f' to override the following errors:" };
            complain!(session, "{words}");
        }
        complain!(session, "{words}");
    }
}

/// Refuses a device in use that is to come beside another. `given_up`: the device that it replaces is not used.
pub(in crate::zpool) fn check_one(session: &mut Session<'_>, spec: &VdevSpec, force: bool, given_up: Option<u64>) -> Result<(), Stop> {
    let mut complaints = Complaints { force, any: false };
    check_use(session, std::slice::from_ref(spec), &mut complaints, given_up);
    if complaints.any { Err(Stop::Code(1)) } else { Ok(()) }
}

/// Has a pool this device as a hot spare?
pub(in crate::zpool) fn is_spare_of(pool: &PoolStatus, spec: &VdevSpec) -> bool {
    let Some(wanted) = spec.path.as_deref().map(footprint) else { return false };
    pool.spares.iter().flat_map(|spare| held(spare, None)).any(|spare| spare.overlaps(&wanted))
}

/// What is not refused.
#[derive(Debug, Clone, Copy)]
pub(in crate::zpool) struct Allowed {
    /// Devices with something on them.
    pub(in crate::zpool) in_use: bool,
    /// Vdevs that do not survive the same losses.
    pub(in crate::zpool) any_redundancy: bool,
}

/// Refuses devices in use, and uneven redundancy, unless that is allowed. `pool`: the pool that they are added to.
pub(in crate::zpool) fn check(session: &mut Session<'_>, specs: &[VdevSpec], allowed: Allowed, pool: Option<&PoolStatus>) -> Result<(), Stop> {
    let mut complaints = Complaints { force: allowed.in_use, any: false };
    check_use(session, specs, &mut complaints, None);
    if !complaints.any && !allowed.any_redundancy {
        replication::check(session, specs, pool, &mut complaints);
    }
    if !complaints.any && pool.is_none() && !specs.iter().any(|spec| spec.class == AllocationClass::Normal) {
        complaints.add(session, format_args!("at least one general top-level vdev must be specified"));
    }
    if complaints.any { Err(Stop::Code(1)) } else { Ok(()) }
}

/// All devices, and what they are to be used for.
fn leaves(specs: &[VdevSpec]) -> Vec<(&Path, AllocationClass)> {
    let mut paths = Vec::new();
    for spec in specs {
        paths.extend(spec.path.as_deref().map(|path| (path, spec.class)));
        paths.extend(leaves(&spec.children));
    }
    paths
}

fn footprint(path: &Path) -> Footprint {
    disk::footprint(&path.to_string_lossy())
}

/// Is one device named twice, by whatever names?
fn has_duplicates(specs: &[VdevSpec]) -> bool {
    let footprints: Vec<Footprint> = leaves(specs).into_iter().map(|(path, _)| footprint(path)).collect();
    footprints.iter().enumerate().any(|(at, one)| footprints[..at].iter().any(|other| one.overlaps(other)))
}

/// What the devices below a vdev of an imported pool are.
fn held(vdev: &VdevStatus, given_up: Option<u64>) -> Vec<Footprint> {
    let own = vdev.path.as_deref().filter(|_| given_up != Some(vdev.guid)).map(disk::footprint);
    own.into_iter().chain(vdev.children.iter().flat_map(|child| held(child, given_up))).collect()
}

/// What a pool has devices for.
struct User<'a> {
    pool: &'a str,
    class: AllocationClass,
    held: Vec<Footprint>,
}

/// Spares come first: one that stands in for a device is a spare still.
fn users_of(pool: &PoolStatus, given_up: Option<u64>) -> [User<'_>; 3] {
    let held = |vdevs: &[VdevStatus]| vdevs.iter().flat_map(|vdev| held(vdev, given_up)).collect();
    let user = |class, vdevs: &[VdevStatus]| User { pool: &pool.name, class, held: held(vdevs) };
    [
        user(AllocationClass::Spare, &pool.spares),
        user(AllocationClass::Cache, &pool.caches),
        user(AllocationClass::Normal, std::slice::from_ref(&pool.root)),
    ]
}

/// The imported pool that has a device, and what for.
pub(in crate::zpool) fn user_of(session: &mut Session<'_>, path: &Path) -> Option<(String, AllocationClass)> {
    let imported = imported(session);
    let wanted = footprint(path);
    let users = imported.iter().flat_map(|pool| users_of(pool, None));
    users.into_iter().find(|user| user.held.iter().any(|other| other.overlaps(&wanted))).map(|user| (user.pool.to_owned(), user.class))
}

fn imported(session: &mut Session<'_>) -> Vec<PoolStatus> {
    let select = PoolSelect { name: None, properties: Wanted::Only(Vec::new()) };
    session.status(Request::PoolStatus(select)).unwrap_or_default()
}

/// Looks for devices in imported pools, and for labels of other pools.
fn check_use(session: &mut Session<'_>, specs: &[VdevSpec], complaints: &mut Complaints, given_up: Option<u64>) {
    let force = complaints.force;
    let imported = imported(session);
    let users: Vec<User<'_>> = imported.iter().flat_map(|pool| users_of(pool, given_up)).collect();
    for (path, class) in leaves(specs) {
        let wanted = footprint(path);
        let user = users.iter().find(|user| user.held.iter().any(|other| other.overlaps(&wanted)));
        match user.map(|user| (user.class, user.pool)) {
            // Several pools may have the same spare.
            Some((AllocationClass::Spare, _)) if class == AllocationClass::Spare => continue,
            Some((AllocationClass::Spare, pool)) => {
                complaints.add_any(session, false, format_args!("{} is reserved as a hot spare for pool {pool}", path.display()));
                continue;
            }
            Some((AllocationClass::Cache, pool)) => {
                complaints.add(session, format_args!("{} is part of unknown pool '{pool}'", path.display()));
                continue;
            }
            Some((_, pool)) => {
                complaints.add_any(session, false, format_args!("{} is part of active pool '{pool}'", path.display()));
                continue;
            }
            None => {}
        }
        if force {
            continue;
        }
        check_contents(session, path, false, complaints);
        // Other systems put a pool that has a whole disk on the first partition.
        for partition in device_contents::partitions(path) {
            check_contents(session, &partition, true, complaints);
        }
    }
}

/// Looks for the labels of pools, and for whatever else a device contains.
fn check_contents(session: &mut Session<'_>, device: &Path, is_partition: bool, complaints: &mut Complaints) {
    let shown = device.display();
    let scan = |destroyed| Request::PoolScan(PoolScan { paths: vec![device.to_owned()], destroyed });
    let found = match session.found(scan(false)) {
        Ok(found) => found,
        Err(failure) => return complaints.add(session, format_args!("{shown} cannot be looked at: {failure}")),
    };
    for pool in &found {
        let state = match pool.status.state {
            PoolState::Exported => "exported",
            PoolState::Destroyed => continue,
            PoolState::Active | PoolState::PotentiallyActive => "potentially active",
            PoolState::Unavailable => "unknown",
        };
        complaints.add(session, format_args!("{shown} is part of {state} pool '{}'", pool.status.name));
    }
    match device_contents::of(device) {
        Some(Contents::Type(kind)) => complaints.add(session, format_args!("{shown} contains a filesystem of type '{kind}'")),
        Some(Contents::Several) => complaints.add(session, format_args!("{shown} contains several signatures")),
        Some(Contents::Unknown(why)) => complaints.add(session, format_args!("cannot tell what is on {shown} ({why})")),
        // A whole device that is in no pool any more keeps its traces; a partition whose labels cannot be read may be another system's.
        Some(Contents::PoolMember) if is_partition && found.is_empty() && session.found(scan(true)).is_ok_and(|destroyed| destroyed.is_empty()) => {
            complaints.add(session, format_args!("{shown} contains a filesystem of type 'zfs_member'"));
        }
        Some(Contents::PoolMember) | None => {}
    }
}

/// Refuses a device that is named twice.
pub(in crate::zpool) fn check_possible(specs: &[VdevSpec]) -> Result<(), Failure> {
    if has_duplicates(specs) {
        return Err(Failure::with(FailureKind::BadDevice, SAME_DEVICE));
    }
    Ok(())
}

/// The lists of a layout, in order.
fn headings(pool: &str) -> [(AllocationClass, &str); 6] {
    [
        (AllocationClass::Normal, pool),
        (AllocationClass::Dedup, "dedup"),
        (AllocationClass::Special, "special"),
        (AllocationClass::Log, "logs"),
        (AllocationClass::Cache, "cache"),
        (AllocationClass::Spare, "spares"),
    ]
}

/// The layout that `-n` prints of a pool with what is added to it.
pub(in crate::zpool) fn print_grown_layout(session: &mut Session<'_>, pool: &PoolStatus, naming: super::vdev_name::Naming, specs: &[VdevSpec]) {
    for (class, title) in headings(&pool.name) {
        let shown = |vdev: &&VdevStatus| vdev.class == class && vdev.kind != VdevKind::Hole;
        let old: Vec<&VdevStatus> = match class {
            AllocationClass::Cache => pool.caches.iter().collect(),
            AllocationClass::Spare => pool.spares.iter().collect(),
            _ => pool.root.children.iter().filter(shown).collect(),
        };
        let new: Vec<&VdevSpec> = specs.iter().filter(|spec| spec.class == class).collect();
        if !old.is_empty() || !new.is_empty() {
            session.print(format_args!("\t{title}\n"));
        }
        let is_numbered = class == AllocationClass::Normal;
        old.into_iter().for_each(|vdev| print_existing(session, naming, vdev, is_numbered, 2));
        new.into_iter().for_each(|spec| print_spec(session, spec, 2));
    }
}

/// Groups outside of the list of normal vdevs are shown without their numbers.
fn print_existing(session: &mut Session<'_>, naming: super::vdev_name::Naming, vdev: &VdevStatus, is_numbered: bool, indent: usize) {
    let name = if is_numbered || vdev.path.is_some() { naming.name(vdev, "") } else { kind_name(vdev.kind) };
    session.print(format_args!("\t{:indent$}{name}\n", ""));
    vdev.children.iter().for_each(|child| print_existing(session, naming, child, is_numbered, indent + 2));
}

/// What a group is called without its number.
fn kind_name(kind: VdevKind) -> String {
    match kind {
        VdevKind::Raidz { parity } => format!("raidz{parity}"),
        VdevKind::Draid { parity, data, children, spares } => format!("draid{parity}:{data}d:{children}c:{spares}s"),
        kind => group_word(kind).to_owned(),
    }
}

/// The layout that `-n` prints.
pub(in crate::zpool) fn print_layout(session: &mut Session<'_>, pool: &str, specs: &[VdevSpec]) {
    for (class, title) in headings(pool) {
        let mut of_class = specs.iter().filter(|spec| spec.class == class).peekable();
        if of_class.peek().is_some() {
            session.print(format_args!("\t{title}\n"));
        }
        of_class.for_each(|spec| print_spec(session, spec, 2));
    }
}

fn print_spec(session: &mut Session<'_>, spec: &VdevSpec, indent: usize) {
    let name = match (&spec.path, spec.kind) {
        (Some(path), VdevKind::Disk) => {
            strip_directory(&path.display().to_string()).to_owned()
        }
        (Some(path), _) => path.display().to_string(),
        (None, kind) => kind_name(kind),
    };
    session.print(format_args!("\t{:indent$}{name}\n", ""));
    spec.children.iter().for_each(|child| print_spec(session, child, indent + 2));
}
