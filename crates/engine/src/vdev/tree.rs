//! The whole tree.
//!
//! # Locks
//! `tops` is held for as long as it takes to clone an `Arc`; a vdev that is taken out lives on in those who use it.

use super::top::{state_of_columns, state_of_same};
use super::create::{NewLeaf, kind_of};
use super::map::Reflow;
use super::{ASHIFT_MAX, ASHIFT_MIN, Bias, Departures, Gate, Leaf, Reason, RequestKind, Requests, TopVdev, VdevConfig, VdevKind, VdevState, VdevStatus, key, metaslab_shift};
use crate::bail;
use crate::error::{Result, Within};
use crate::host::HostRef;
use crate::sync::Executor;
use crate::tunables::Tunables;
use disk::DiskRef;
use ondisk::label;
use ondisk::nvlist::NvList;
use ondisk::uberblock::Uberblock;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How many top-level vdevs get an uberblock in a txg that does not change the tree.
#[doc(alias = "SPA_SYNC_MIN_VDEVS")]
const UBERBLOCK_TOPS: usize = 3;

/// The devices that were found, by the guid in their label.
#[derive(Clone, Default)]
pub struct Devices {
    by_guid: BTreeMap<u64, DiskRef>,
}

impl Devices {
    /// None.
    pub fn new() -> Devices {
        Devices::default()
    }

    /// Adds a device.
    pub fn insert(&mut self, guid: u64, disk: DiskRef) {
        self.by_guid.insert(guid, disk);
    }

    /// The device with this guid.
    pub fn get(&self, guid: u64) -> Option<&DiskRef> {
        self.by_guid.get(&guid)
    }

    /// All, by guid.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &DiskRef)> {
        self.by_guid.iter().map(|(guid, disk)| (*guid, disk))
    }
}

/// The vdevs of a pool.
pub struct VdevTree {
    /// The description of the root, without its children. guarded by: itself
    root: RwLock<VdevConfig>,
    /// By number. guarded by: itself
    tops: RwLock<Vec<Arc<TopVdev>>>,
    /// The txg that is being written.
    writing_txg: Arc<AtomicU64>,
    /// For devices that come later too.
    clock: OnceLock<HostRef>,
    /// For devices that come later too.
    crew: OnceLock<Arc<Executor>>,
    limits: OnceLock<Tunables>,
    /// Where writers wait while nothing can be written.
    gate: Arc<Gate>,
    /// Devices that were taken out.
    departures: Departures,
}

impl VdevTree {
    /// Makes the tree that `root` describes out of these devices. What is missing is unavailable, not an error: see
    /// [`VdevTree::check_complete`].
    pub fn open(root: &NvList, devices: &Devices) -> Result<VdevTree> {
        let config = VdevConfig::from_nvlist(root).within(|| "vdev tree")?;
        VdevTree::from_config(config, devices)
    }

    /// As [`VdevTree::open`], from a description that is read already.
    pub fn from_config(mut root: VdevConfig, devices: &Devices) -> Result<VdevTree> {
        if root.kind != VdevKind::Root {
            bail!(Corrupt, "vdev tree: its root is of type {}", root.kind);
        }
        root.check_supported()?;
        let writing_txg = Arc::new(AtomicU64::new(0));
        let mut tops = Vec::new();
        for (index, mut top) in std::mem::take(&mut root.children).into_iter().enumerate() {
            if top.id != index as u64 {
                bail!(Corrupt, "vdev {}: it is number {index} of the tree", top.id);
            }
            check_top(&top)?;
            // OpenZFS adds a vdev in two steps, and a program that opens the pool between them does the second one.
            if !top.kind.is_placeholder() && top.number(key::METASLAB_ARRAY) == 0 && top.number(key::METASLAB_SHIFT) == 0 {
                top.set(key::METASLAB_SHIFT, metaslab_shift(top.number(key::ASIZE)).into());
            }
            let leaves = (0..).zip(top.leaves()).map(|(number, leaf)| open_leaf(number, &top, leaf, devices, &writing_txg)).collect();
            tops.push(Arc::new(TopVdev::new(top, leaves)));
        }
        let gate = Arc::new(Gate::default());
        tops.iter().for_each(|top| top.set_gate(&gate));
        Ok(VdevTree { root: RwLock::new(root), tops: RwLock::new(tops), writing_txg, clock: OnceLock::new(), crew: OnceLock::new(), limits: OnceLock::new(), gate, departures: Departures::default() })
    }

    /// From now on the devices measure how long their requests take.
    pub fn set_clock(&self, host: &HostRef) {
        let _ = self.clock.set(host.clone());
        self.leaves().iter().for_each(|leaf| leaf.traffic.set_clock(host));
    }

    /// How much of what may be under way on the devices.
    pub fn set_limits(&self, limits: &Tunables) {
        let _ = self.limits.set(limits.clone());
        self.leaves().iter().for_each(|leaf| leaf.set_limits(limits));
    }

    /// Where devices are slow, these threads make several requests at a time.
    pub fn set_crew(&self, crew: &Arc<Executor>) {
        let _ = self.crew.set(crew.clone());
        self.leaves().iter().for_each(|leaf| leaf.traffic.set_crew(crew));
    }

    /// The pool's guid.
    pub fn guid(&self) -> u64 {
        self.root.read().guid
    }

    /// The top-level vdev of this number.
    pub fn top(&self, id: u64) -> Option<Arc<TopVdev>> {
        self.tops.read().get(usize::try_from(id).ok()?).cloned()
    }

    /// All top-level vdevs by number, placeholders too.
    pub fn tops(&self) -> Vec<Arc<TopVdev>> {
        self.tops.read().clone()
    }

    /// The top-level vdevs that hold data.
    pub fn data_tops(&self) -> Vec<Arc<TopVdev>> {
        self.tops.read().iter().filter(|top| !top.is_placeholder()).cloned().collect()
    }

    /// All devices.
    pub fn leaves(&self) -> Vec<Arc<Leaf>> {
        self.tops.read().iter().flat_map(|top| top.leaves()).collect()
    }

    /// A top-level vdev on these devices (guid, name, device), which is not part of the tree yet.
    pub(super) fn make_top(&self, config: VdevConfig, leaves: Vec<(u64, String, DiskRef)>) -> Arc<TopVdev> {
        let leaves = (0..).zip(leaves).map(|(number, (guid, name, disk))| self.make_leaf(number, guid, name, disk));
        Arc::new(TopVdev::new(config, leaves.collect()))
    }

    /// A device that is not part of the tree yet, for a top-level vdev of which no leaf has had `number`.
    pub(super) fn make_leaf(&self, number: u32, guid: u64, name: String, disk: DiskRef) -> Arc<Leaf> {
        let leaf = Leaf::new(number, guid, name, Some(disk), VdevState::Online, Reason::None, Arc::clone(&self.writing_txg));
        if let Some(host) = self.clock.get() {
            leaf.traffic.set_clock(host);
        }
        if let Some(crew) = self.crew.get() {
            leaf.traffic.set_crew(crew);
        }
        if let Some(limits) = self.limits.get() {
            leaf.set_limits(limits);
        }
        Arc::new(leaf)
    }

    /// A device that is to become part of a top-level vdev, with its own description: see [`TopVdev::attach_leaf`].
    pub fn prepare_leaf(&self, top: &TopVdev, guid: u64, new: NewLeaf) -> (Arc<Leaf>, VdevConfig) {
        let kind = kind_of(&new.disk);
        let mut config = VdevConfig::new(kind.clone(), 0, guid);
        config.set_string(key::PATH, new.path.as_str());
        if kind == VdevKind::Disk {
            config.set(key::WHOLE_DISK, u64::from(new.whole_disk));
        }
        (self.make_leaf(top.take_number(), guid, new.path, new.disk), config)
    }

    /// The top-level vdev that has a device of this guid, and the device.
    pub fn find_leaf(&self, guid: u64) -> Option<(Arc<TopVdev>, Arc<Leaf>)> {
        self.tops().into_iter().find_map(|top| top.members().leaf_of_guid(guid).map(|leaf| (top.clone(), leaf.clone())))
    }

    /// The top-level vdev that has a vdev of this guid, which need be no device, and its description.
    pub fn find_described(&self, guid: u64) -> Option<(Arc<TopVdev>, VdevConfig)> {
        self.data_tops().into_iter().find_map(|top| {
            let found = top.config().find(guid)?.clone();
            Some((top, found))
        })
    }

    /// The devices that were taken out.
    pub fn departures(&self) -> &Departures {
        &self.departures
    }

    /// Appends a top-level vdev; it must have the next number. Its labels will be written.
    pub fn attach(&self, top: &Arc<TopVdev>) {
        let mut tops = self.tops.write();
        assert_eq!(top.id(), tops.len() as u64, "the next number");
        top.set_config_dirty();
        top.set_gate(&self.gate);
        tops.push(Arc::clone(top));
    }

    /// Takes a top-level vdev out: its number stays taken, by a hole. Returns what was there.
    pub fn detach(&self, id: u64) -> Option<Arc<TopVdev>> {
        let mut tops = self.tops.write();
        let place = tops.get_mut(usize::try_from(id).ok()?)?;
        let mut config = VdevConfig::new(VdevKind::Hole, id, 0);
        for name in [key::METASLAB_ARRAY, key::METASLAB_SHIFT, key::ASHIFT, key::ASIZE, key::IS_LOG] {
            config.set(name, 0);
        }
        config.set(key::IS_HOLE, 1);
        Some(std::mem::replace(place, Arc::new(TopVdev::new(config, Vec::new()))))
    }

    /// Puts another top-level vdev in the place of the one that has its number, and returns that.
    pub fn replace_top(&self, top: &Arc<TopVdev>) -> Option<Arc<TopVdev>> {
        let mut tops = self.tops.write();
        let place = tops.get_mut(usize::try_from(top.id()).ok()?)?;
        top.set_gate(&self.gate);
        Some(std::mem::replace(place, Arc::clone(top)))
    }

    /// Says which txg is being written, for the leaves that miss it.
    pub fn set_writing_txg(&self, txg: u64) {
        self.writing_txg.store(txg, Relaxed);
    }

    /// Lets go of all devices, so that others can have them: the end of an open pool.
    pub fn close_all(&self) {
        self.leaves().iter().for_each(|leaf| leaf.close());
    }

    /// The pool is opened as this uberblock has it: a device that came to RAID-Z may be filled up to some place.
    pub fn set_reflow(&self, uberblock: &Uberblock) {
        let found = uberblock.raidz_reflow;
        let reflow = Reflow { synced: found.offset(), moved: found.offset(), in_scratch: found.is_in_scratch() };
        for moves in self.data_tops().iter().filter(|top| top.config().is_expanding()).filter_map(|top| top.moves()) {
            moves.open_at(reflow);
        }
    }

    /// Where writers wait while nothing can be written.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Of some vdev every device has failed a flush, or is behind anyway: what was written since the flush before it may be nowhere. Nothing that relies upon it may be
    /// called written, however well later flushes go: the pool can only be imported again, as it was.
    pub fn has_lost_writes(&self) -> bool {
        let lost = |top: &Arc<TopVdev>| {
            let members = top.members();
            let is_lost = |leaves: &Vec<u32>| {
                let open = || leaves.iter().filter_map(|leaf| members.leaf(*leaf)).filter(|leaf| leaf.is_open());
                open().all(|leaf| leaf.has_lost_writes() || leaf.is_behind())
            };
            members.leaves.iter().any(|leaf| leaf.is_open() && leaf.has_lost_writes()) && !members.layout.tolerates(&is_lost)
        };
        self.data_tops().iter().filter(|top| !top.is_log() && !top.is_placeholder()).any(lost)
    }

    fn check_nothing_lost(&self) -> Result<()> {
        if self.has_lost_writes() {
            bail!(Suspended, "a device could not be flushed, and what was written to it before may be lost: export the pool with 'zpool export -F' and import it again");
        }
        Ok(())
    }

    /// Makes durable what was written to any vdev. A group needs no device that is for the log alone.
    pub fn flush_all(&self) -> Result<()> {
        self.check_nothing_lost()?;
        flush_each(&self.data_tops(), |top| match top.flush() {
            Err(error) if !top.is_log() => Err(error),
            _ => Ok(()),
        })?;
        self.check_nothing_lost()
    }

    /// As [`VdevTree::flush_all`], for a commit of the log: devices of the log count, unless they are gone.
    pub fn flush_with_logs(&self) -> Result<()> {
        self.check_nothing_lost()?;
        let mut tops = self.data_tops();
        tops.retain(|top| !top.is_log() || top.state().is_readable());
        flush_each(&tops, |top| top.flush())?;
        self.check_nothing_lost()
    }

    /// The description of the whole tree.
    pub fn config(&self) -> VdevConfig {
        let mut root = self.root.read().clone();
        root.children = self.tops.read().iter().map(|top| top.config()).collect();
        root
    }

    /// Changes the description of the root; its children are not there.
    pub fn update_root_config<T>(&self, change: impl FnOnce(&mut VdevConfig) -> T) -> T {
        change(&mut self.root.write())
    }

    /// The numbers that are holes.
    pub fn holes(&self) -> Vec<u64> {
        self.tops.read().iter().filter(|top| top.kind() == VdevKind::Hole).map(|top| top.id()).collect()
    }

    /// The vdevs that get the uberblock of `txg`: all if their descriptions change with it, otherwise three, by turns.
    /// Logs never count: a pool can be imported without them.
    pub fn uberblock_tops(&self, txg: u64, all: bool) -> Vec<Arc<TopVdev>> {
        let mut tops = self.data_tops();
        if all {
            return tops;
        }
        tops.retain(|top| !top.is_log() && top.metaslab_array() != 0 && top.state().is_readable());
        let count = tops.len();
        if count > 0 {
            tops.rotate_left((txg % count as u64) as usize);
        }
        tops.truncate(UBERBLOCK_TOPS);
        tops
    }

    /// The sum of all guids, as in uberblocks.
    pub fn guid_sum(&self) -> u64 {
        self.config().guid_sum()
    }

    /// The smallest and the largest unit of allocation of vdevs that are for all kinds of blocks.
    pub fn allocation_units(&self) -> (u64, u64) {
        let units = self.data_tops().into_iter().filter(|top| top.bias() == Bias::None).map(|top| 1u64 << top.ashift());
        units.fold((u64::MAX, 0), |(least, most), unit| (least.min(unit), most.max(unit)))
    }

    /// Refuses a tree that cannot serve reads. A missing log is no reason: it is replayed or it is not.
    pub fn check_complete(&self) -> Result<()> {
        for top in self.tops() {
            if top.kind() == VdevKind::Missing {
                bail!(NoDevice, "vdev {}: no device of it was found", top.id());
            }
            if top.state().is_readable() || top.is_log() {
                continue;
            }
            let names: Vec<String> = top.leaves().iter().map(|leaf| leaf.name().to_owned()).collect();
            bail!(NoDevice, "vdev {}: not enough devices ({})", top.id(), names.join(", "));
        }
        Ok(())
    }

    /// How the pool is.
    pub fn state(&self) -> VdevState {
        let tops = self.tops();
        if tops.iter().any(|top| !top.state().is_readable() && !top.is_log()) {
            VdevState::Unavailable
        } else if tops.iter().any(|top| top.state() != VdevState::Online) {
            VdevState::Degraded
        } else {
            VdevState::Online
        }
    }

    /// What `zpool status` shows.
    pub fn status(&self) -> VdevStatus {
        let leaves: BTreeMap<u64, Arc<Leaf>> = self.leaves().into_iter().map(|leaf| (leaf.guid(), leaf)).collect();
        let mut status = status_of(&self.config(), &leaves);
        status.state = self.state();
        status
    }
}

/// Flushes, the one vdev beside the other if that takes long.
fn flush_each(tops: &[Arc<TopVdev>], flush: fn(&TopVdev) -> Result<()>) -> Result<()> {
    let crew = tops.iter().find_map(|top| top.beside_flushes());
    Executor::map_with(crew.as_ref(), tops.to_vec(), move |top| flush(&top)).into_iter().collect()
}

/// Refuses numbers that would make arithmetic go wrong later.
fn check_top(top: &VdevConfig) -> Result<()> {
    if matches!(top.kind, VdevKind::Hole | VdevKind::Missing) {
        return Ok(());
    }
    if top.kind == VdevKind::Root {
        bail!(Corrupt, "vdev {}: a root in a root", top.id);
    }
    let ashift = top.number(key::ASHIFT);
    if !(u64::from(ASHIFT_MIN)..=u64::from(ASHIFT_MAX)).contains(&ashift) {
        bail!(Corrupt, "vdev {}: bad ashift ({ashift})", top.id);
    }
    let asize = top.number(key::ASIZE);
    if asize == 0 || asize > 1 << 62 {
        bail!(Corrupt, "vdev {}: bad asize ({asize:#x})", top.id);
    }
    let shift = top.number(key::METASLAB_SHIFT);
    if shift > 62 || (shift < 17 && top.number(key::METASLAB_ARRAY) != 0) {
        bail!(Corrupt, "vdev {}: bad metaslab_shift ({shift})", top.id);
    }
    Ok(())
}

fn open_leaf(number: u32, top: &VdevConfig, leaf: &VdevConfig, devices: &Devices, writing_txg: &Arc<AtomicU64>) -> Arc<Leaf> {
    let disk = devices.get(leaf.guid).cloned();
    let wanted = top.leaf_bytes();
    let room = |disk: &DiskRef| label::data_bytes(disk.size_bytes()).is_some_and(|room| room >= wanted);
    let (state, reason) = match &disk {
        _ if leaf.flag(key::OFFLINE) => (VdevState::Offline, Reason::Persistent),
        // Errors that another host saw may have been its own.
        _ if leaf.flag(key::FAULTED) && leaf.string(key::AUX_STATE).as_deref() == Some("external") => (VdevState::Faulted, Reason::Persistent),
        None if leaf.flag(key::REMOVED) => (VdevState::Removed, Reason::NotFound),
        None => (VdevState::Unavailable, Reason::NotFound),
        Some(disk) if !room(disk) => (VdevState::Unavailable, Reason::TooSmall),
        Some(_) if leaf.flag(key::DEGRADED) => (VdevState::Degraded, Reason::Persistent),
        Some(_) => (VdevState::Online, Reason::None),
    };
    let disk = disk.filter(|_| state.is_readable());
    let opened = Leaf::new(number, leaf.guid, leaf.display_name(), disk, state, reason, Arc::clone(writing_txg));
    // What is being filled, or has a log of what it missed, is not to be trusted before the others.
    if leaf.is_filling() {
        opened.set_behind(true);
    }
    Arc::new(opened)
}

/// How a device is that is in no tree.
pub(crate) fn leaf_status(config: &VdevConfig, leaf: &Leaf) -> VdevStatus {
    status_with(config, Some(leaf), Vec::new())
}

fn status_of(config: &VdevConfig, leaves: &BTreeMap<u64, Arc<Leaf>>) -> VdevStatus {
    let children: Vec<VdevStatus> = config.children.iter().map(|child| status_of(child, leaves)).collect();
    status_with(config, leaves.get(&config.guid).filter(|_| config.kind.is_leaf()).map(|leaf| &**leaf), children)
}

fn status_with(config: &VdevConfig, leaf: Option<&Leaf>, children: Vec<VdevStatus>) -> VdevStatus {
    let number = |of: fn(&Leaf) -> &AtomicU64| leaf.map_or(0, |leaf| of(leaf).load(Relaxed));
    let state = match leaf {
        Some(leaf) => leaf.state(),
        None if matches!(config.kind, VdevKind::Hole | VdevKind::Indirect | VdevKind::DraidSpare) => VdevState::Online,
        None if config.kind == VdevKind::Missing => VdevState::Unavailable,
        None if matches!(config.kind, VdevKind::Raidz | VdevKind::Draid) => state_of_columns(children.iter().map(|child| child.state), config.number(key::PARITY) as usize),
        None => state_of_same(children.iter().map(|child| child.state)),
    };
    VdevStatus {
        kind: config.kind.clone(),
        id: config.id,
        guid: config.guid,
        path: config.string(key::PATH),
        state,
        reason: leaf.map_or(Reason::None, |leaf| leaf.reason()),
        read_errors: number(|leaf| &leaf.stats.read_errors),
        write_errors: number(|leaf| &leaf.stats.write_errors),
        checksum_errors: number(|leaf| &leaf.stats.checksum_errors),
        slow_ios: leaf.map_or(0, |leaf| leaf.traffic.slow()),
        sits_out: leaf.is_some_and(|leaf| leaf.traffic.sits_out()),
        sat_out: leaf.map_or(0, |leaf| leaf.traffic.sat_out()),
        scan_processed: number(|leaf| &leaf.stats.scan_processed),
        rebuild_processed: number(|leaf| &leaf.stats.rebuild_processed),
        self_healed: number(|leaf| &leaf.stats.self_healed),
        reads: number(|leaf| &leaf.stats.reads),
        writes: number(|leaf| &leaf.stats.writes),
        read_bytes: number(|leaf| &leaf.stats.read_bytes),
        written_bytes: number(|leaf| &leaf.stats.written_bytes),
        is_log: config.flag(key::IS_LOG),
        is_behind: leaf.is_some_and(|leaf| leaf.is_behind()),
        requests: [RequestKind::Read, RequestKind::LogWrite, RequestKind::Write, RequestKind::Trim]
            .map(|kind| leaf.map_or_else(Requests::default, |leaf| leaf.traffic.of(kind))),
        device_bytes: leaf.map_or(0, |leaf| leaf.device_bytes()),
        children,
    }
}
