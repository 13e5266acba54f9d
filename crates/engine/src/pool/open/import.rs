//! Finding pools on devices.
//!
//! # Theory
//! A device's label knows its pool's guid, the top-level vdev it belongs to, and how many of those there are. So the
//! devices of a pool are put together like this: group by pool guid; the newest uberblock of any ring is the state of
//! the pool (of a device that is there twice only that counts which was written last); of each device take the newest label that is not newer than that uberblock; of each top-level vdev take
//! the description from its newest label. Numbers that nobody describes are holes if the labels say so, and missing
//! otherwise. What this gives is good enough to read the MOS, which has the whole tree.
//!
//! A pool may have been given another guid, and the power gone in the middle: some devices have labels with the new one, and of no group that
//! was to make it true is there an uberblock. Then a label counts that a device had before, and has still (see [`crate::vdev::label`]).
//!
//! # Sectors that were moved
//! An uberblock says how far the sectors of a RAID-Z that is being expanded were moved, and there is one place for each. So a state from before a move
//! is there no more, whatever its checksums let one hope: OpenZFS takes no uberblock that says something else than the newest does
//! ([`Candidate::has_moved_since`]). When all is moved uberblocks say nothing again; then the label has the group in which that was.
//!
//! # Devices that left
//! The label of a device that left says what it was, with txg 0. No pool is found by it; but where one goes back to a group in which it had the device,
//! that is used again.
//!
//! # Path
//! Called with opened devices; opening them, and looking for them, is `disk`'s.

use crate::error::{Error, ErrorKind, Result};
use crate::pool::config::pool_config::{PoolConfig, PoolState};
use crate::vdev::label::DeviceLabels;
use crate::vdev::{Devices, VdevConfig, VdevKind, VdevTree, key};
use disk::DiskRef;
use ondisk::nvlist::NvList;
use ondisk::uberblock::Uberblock;
use std::collections::{BTreeMap, BTreeSet};

/// More top-level vdevs than this are taken for damage.
const TOPS_MAX: u64 = 4096;

/// One device of a pool.
#[derive(Clone)]
pub struct FoundDevice {
    /// Its guid.
    pub guid: u64,
    /// The device.
    pub disk: DiskRef,
    /// The newest label that fits the pool's uberblock.
    pub config: NvList,
    /// The txg of that label.
    pub txg: u64,
    /// The txgs of its uberblocks.
    pub uberblock_txgs: Vec<u64>,
    /// How many of its four labels are good.
    pub labels: usize,
}

/// A pool that could be imported.
#[derive(Clone)]
pub struct Candidate {
    /// What the newest label says.
    pub config: PoolConfig,
    /// Its devices, by guid.
    pub devices: Vec<FoundDevice>,
    /// The tree put together from labels; not yet that of the MOS.
    pub vdev_tree: VdevConfig,
    /// All different uberblocks, newest first; never empty.
    pub uberblocks: Vec<Uberblock>,
    /// The numbers of top-level vdevs of which nothing was found.
    pub missing_tops: Vec<u64>,
    /// The newest txg that is on the devices, even when an older one was asked for.
    pub newest_txg: u64,
    /// Since this state sectors of a RAID-Z have been moved for another device: what it leads to is not where it says.
    pub has_moved_since: bool,
    /// Devices that left it, or were never part of it.
    pub(super) left: Vec<FoundDevice>,
    /// An older state was asked for, which may have had those.
    pub(super) goes_back: bool,
}

impl FoundDevice {
    /// Is it there, or was it when its label was written?
    fn lies_at(&self, path: &str) -> bool {
        let described = || self.config.nvlist("vdev_tree").and_then(|top| VdevConfig::from_nvlist(top).ok());
        self.disk.name() == path || described().is_some_and(|top| top.find(self.guid).and_then(|leaf| leaf.string(key::PATH)).as_deref() == Some(path))
    }
}

struct Scanned {
    disk: DiskRef,
    labels: DeviceLabels,
    uberblocks: Vec<Uberblock>,
}

impl Scanned {
    /// What its newest label says.
    fn number(&self, name: &str) -> Option<u64> {
        self.labels.newest_config()?.u64(name)
    }

    /// The groups in which its rings and its labels were written last.
    fn written(&self) -> (Option<u64>, Option<u64>) {
        (self.uberblocks.iter().map(|uberblock| uberblock.txg).max(), self.number("txg"))
    }
}

impl Candidate {
    /// The newest uberblock.
    pub fn uberblock(&self) -> &Uberblock {
        &self.uberblocks[0]
    }

    /// The devices by guid, for [`VdevTree::open`].
    pub fn device_map(&self) -> Devices {
        let mut devices = Devices::new();
        for device in self.usable() {
            devices.insert(device.guid, device.disk.clone());
        }
        devices
    }

    /// Those that its description may name: of one guid the last.
    fn usable(&self) -> impl Iterator<Item = &FoundDevice> {
        self.left.iter().filter(|_| self.goes_back).chain(&self.devices)
    }

    /// The names of devices that left it.
    pub fn names_of_left(&self) -> Vec<String> {
        self.left.iter().map(|device| device.disk.name().to_owned()).collect()
    }

    /// All devices, those that left it last.
    pub fn disks(&self) -> Vec<DiskRef> {
        self.devices.iter().chain(&self.left).map(|device| device.disk.clone()).collect()
    }

    /// The tree by which the MOS can be read.
    pub fn open_tree(&self) -> Result<VdevTree> {
        VdevTree::from_config(self.vdev_tree.clone(), &self.device_map())
    }

    /// The names of the devices, to open them again.
    pub fn device_names(&self) -> Vec<String> {
        self.devices.iter().map(|device| device.disk.name().to_owned()).collect()
    }

    /// Puts into a description where its devices are now.
    pub fn correct_paths(&self, tree: &mut VdevConfig) {
        for device in self.usable() {
            let name = device.disk.name();
            // A partition inside an image has no path of its own.
            if name.starts_with('/')
                && !name.contains('#')
                && let Some(leaf) = tree.find_mut(device.guid).filter(|found| found.kind.is_leaf())
                && leaf.string(key::PATH).as_deref() != Some(name)
            {
                leaf.set_string(key::PATH, name);
            }
        }
    }

    /// The same pool, with its devices known by the guids that they have in `tree`, which is that of an older state. What stayed of a mirror is told by where it lies; with
    /// `by_path` so is every device of the pool of which the tree does not have the guid.
    #[doc(alias = "vdev_validate")]
    pub(super) fn recognized(&self, tree: &VdevConfig, by_path: bool) -> Candidate {
        let mut known = self.clone();
        if !self.goes_back {
            return known;
        }
        let mut there: BTreeSet<u64> = self.usable().map(|device| device.guid).collect();
        for device in &mut known.devices {
            let within = match tree.find(device.guid) {
                Some(found) if found.kind.is_leaf() => continue,
                Some(group) => group,
                None if by_path => tree,
                None => continue,
            };
            let mut missing = within.leaves().into_iter().filter(|leaf| !there.contains(&leaf.guid));
            if let Some(leaf) = missing.find(|leaf| leaf.string(key::PATH).is_some_and(|path| device.lies_at(&path))) {
                device.guid = leaf.guid;
                there.insert(leaf.guid);
            }
        }
        known
    }

    /// Whether another host seems to have it: it is active, and was last written by another.
    pub fn is_in_use_elsewhere(&self, our_host_id: u32) -> bool {
        self.config.state == PoolState::Active
            && self.config.host_id != 0
            && self.config.host_id != u64::from(our_host_id)
    }
}

/// Finds the pools of which these devices are parts, ordered by name and guid.
pub fn discover(disks: Vec<DiskRef>) -> Vec<Candidate> {
    discover_before(disks, u64::MAX)
}

/// As [`discover`], but as the pools were in a txg, or in the last one before it that is still known.
pub fn discover_before(disks: Vec<DiskRef>, txg_max: u64) -> Vec<Candidate> {
    let mut pools: BTreeMap<u64, Vec<Scanned>> = BTreeMap::new();
    for disk in disks {
        if let Some((pool, scanned)) = scan(disk) {
            pools.entry(pool).or_default().push(scanned);
        }
    }
    give_back_early_labels(&mut pools);
    let mut candidates: Vec<Candidate> = pools.into_iter().filter_map(|(guid, found)| assemble(guid, found, txg_max)).collect();
    candidates.sort_by(|a, b| (&a.config.name, a.config.guid).cmp(&(&b.config.name, b.config.guid)));
    candidates
}

/// The one pool of this name or guid among `candidates`. Destroyed ones only if asked for.
pub fn select<'a>(candidates: &'a [Candidate], name_or_guid: &str, destroyed: bool) -> Result<&'a Candidate> {
    let guid = name_or_guid.parse::<u64>().ok();
    let fits = |c: &&Candidate| {
        (c.config.name == name_or_guid || Some(c.config.guid) == guid)
            && (c.config.state == PoolState::Destroyed) == destroyed
    };
    let mut found = candidates.iter().filter(fits);
    match (found.next(), found.next()) {
        (Some(candidate), None) => Ok(candidate),
        (None, _) => Err(Error::new(ErrorKind::NotFound, format!("no such pool available: {name_or_guid}"))),
        (Some(_), Some(_)) => {
            let message = format!("more than one pool is called {name_or_guid}: use its guid");
            Err(Error::new(ErrorKind::Invalid, message))
        }
    }
}

/// Devices whose newest label is of a group that never was, and names another pool than the label before it, belong to that pool.
fn give_back_early_labels(pools: &mut BTreeMap<u64, Vec<Scanned>>) {
    let mut given_back = Vec::new();
    for (&pool, devices) in pools.iter_mut() {
        let newest = devices.iter().flat_map(|device| &device.uberblocks).map(|uberblock| uberblock.txg).max().unwrap_or(0);
        let before = |device: &Scanned| {
            let label = device.labels.config(newest)?;
            label.u64("pool_guid").filter(|&other| other != pool && label.u64("txg").unwrap_or(0) != 0)
        };
        let (other, own) = std::mem::take(devices).into_iter().partition::<Vec<_>, _>(|device| before(device).is_some());
        *devices = own;
        given_back.extend(other.into_iter().filter_map(|device| Some((before(&device)?, device))));
    }
    for (pool, device) in given_back {
        pools.entry(pool).or_default().push(device);
    }
}

/// Reads one device; its pool's guid, if it is part of one.
fn scan(disk: DiskRef) -> Option<(u64, Scanned)> {
    let labels = DeviceLabels::read(&*disk);
    let config = labels.newest_config()?;
    let pool = config.u64("pool_guid")?;
    config.u64("guid")?;
    config.u64("txg")?;
    let ashift = config.nvlist("vdev_tree")?.u64(key::ASHIFT).unwrap_or(9);
    let found = labels.uberblocks(u32::try_from(ashift).ok()?);
    let uberblocks = found.into_iter().map(|found| found.uberblock).collect();
    Some((pool, Scanned { disk, labels, uberblocks }))
}

/// A device whose label is of txg 0: one that was being added, or has left.
fn as_left(found: Scanned) -> Option<FoundDevice> {
    let config = found.labels.newest_config()?.clone();
    let labels = found.labels.configs().count();
    Some(FoundDevice { guid: config.u64("guid")?, disk: found.disk, config, txg: 0, uberblock_txgs: Vec::new(), labels })
}

/// Of each device that is there more than once the one that was written last, or the first: of copies that are older nothing counts. Labels do not tell, as they are written
/// only when the configuration changes.
fn without_copies(scanned: Vec<Scanned>) -> Vec<Scanned> {
    let mut kept: BTreeMap<u64, Scanned> = BTreeMap::new();
    for found in scanned {
        let Some(guid) = found.number("guid") else { continue };
        if kept.get(&guid).is_none_or(|other| other.written() < found.written()) {
            kept.insert(guid, found);
        }
    }
    kept.into_values().collect()
}

fn assemble(pool: u64, scanned: Vec<Scanned>, txg_max: u64) -> Option<Candidate> {
    let is_part = |found: &Scanned| found.labels.newest_config().and_then(|config| config.u64("txg")) != Some(0);
    let (scanned, left): (Vec<Scanned>, Vec<Scanned>) = scanned.into_iter().partition(is_part);
    let scanned = without_copies(scanned);
    let mut uberblocks: Vec<Uberblock> = scanned.iter().flat_map(|s| s.uberblocks.iter().cloned()).collect();
    uberblocks.sort_by(|a, b| b.compare_age(a));
    uberblocks.dedup();
    let (newest_txg, newest_reflow) = uberblocks.first().map(|newest| (newest.txg, newest.raidz_reflow))?;
    uberblocks.retain(|uberblock| uberblock.txg <= txg_max);
    let (txg, reflow) = uberblocks.first().map(|chosen| (chosen.txg, chosen.raidz_reflow))?;
    let has_moved_since = txg < newest_txg && (reflow != newest_reflow || txg < scanned.iter().filter_map(last_expansion).max().unwrap_or(0));
    let mut devices: BTreeMap<u64, FoundDevice> = BTreeMap::new();
    for found in scanned {
        let Some(config) = found.labels.config(txg).or(found.labels.newest_config()).cloned() else { continue };
        // Of the label that fits: a device that was to take the place of a mirror has another guid in the one after it.
        let Some(guid) = config.u64("guid") else { continue };
        let device = FoundDevice {
            guid,
            disk: found.disk,
            txg: config.u64("txg").unwrap_or(0),
            uberblock_txgs: found.uberblocks.iter().map(|uberblock| uberblock.txg).collect(),
            labels: found.labels.configs().count(),
            config,
        };
        // One device under two names, or a stale copy of it: the newer label wins, then the first.
        match devices.get(&device.guid) {
            Some(other) if other.txg >= device.txg => {}
            _ => {
                devices.insert(device.guid, device);
            }
        }
    }
    let newest = devices.values().max_by_key(|device| device.txg)?;
    let config = PoolConfig::from_nvlist(&newest.config).ok()?;
    let tops_expected = newest.config.u64("vdev_children").unwrap_or(0).min(TOPS_MAX);
    let holes = newest.config.u64_array("hole_array").unwrap_or(&[]).to_vec();
    let (vdev_tree, missing_tops) = assemble_tree(pool, devices.values(), tops_expected, &holes);
    let devices = devices.into_values().filter(|device| vdev_tree.find(device.guid).is_some()).collect();
    let (left, goes_back) = (left.into_iter().filter_map(as_left).collect(), txg_max != u64::MAX);
    Some(Candidate { config, devices, vdev_tree, uberblocks, missing_tops, newest_txg, has_moved_since, left, goes_back })
}

/// The txg in which the last expansion of a device's vdev ended, by its newest label.
fn last_expansion(scanned: &Scanned) -> Option<u64> {
    let tree = scanned.labels.newest_config()?.nvlist("vdev_tree")?;
    tree.u64_array(key::EXPAND_TXGS)?.iter().copied().max()
}

/// The tree of the newest description of each top-level vdev, and the numbers of those without any.
fn assemble_tree<'a>(
    pool: u64,
    devices: impl Iterator<Item = &'a FoundDevice>,
    expected: u64,
    holes: &[u64],
) -> (VdevConfig, Vec<u64>) {
    let mut tops: BTreeMap<u64, (u64, VdevConfig)> = BTreeMap::new();
    for device in devices {
        let Some(Ok(top)) = device.config.nvlist("vdev_tree").map(VdevConfig::from_nvlist) else { continue };
        // A device that its own vdev does not list was taken out of the pool.
        if top.id >= TOPS_MAX || top.find(device.guid).is_none() {
            continue;
        }
        match tops.get(&top.id) {
            Some((txg, _)) if *txg >= device.txg => {}
            _ => {
                tops.insert(top.id, (device.txg, top));
            }
        }
    }
    let count = expected.max(tops.keys().next_back().map_or(0, |last| last + 1));
    let mut root = VdevConfig::new(VdevKind::Root, 0, pool);
    let mut missing = Vec::new();
    for id in 0..count {
        root.children.push(match tops.remove(&id) {
            Some((_, top)) => top,
            None if holes.contains(&id) => VdevConfig::new(VdevKind::Hole, id, 0),
            None => {
                missing.push(id);
                VdevConfig::new(VdevKind::Missing, id, 0)
            }
        });
    }
    (root, missing)
}
