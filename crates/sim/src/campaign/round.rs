//! One pool of a campaign, and the steps that are taken with it.

#![allow(clippy::disallowed_methods)] // scans are done by real threads

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use disk::DiskRef;
use engine::host::RealHost;
use engine::pool::import::discover;
use engine::tunables::Tunables;
use parking_lot::RwLock;
use rand::seq::IndexedRandom as _;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tarnfs::{CreateOptions, FileSystem, ImportOptions, Pool, Rewind};

use super::device::Device;
use super::files::{Files, Wrong};
use super::shape::{Shape, fast};
use super::spares::StandIn;
use crate::scenario::properties;

pub(super) const POOL: &str = "tank";
/// No scan of pools as small as these takes longer.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// What a device may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Suspect {
    /// It is new and has not everything: right after a resilver.
    Filling,
    /// It has missed something: right after a resilver.
    Behind,
    /// What it has may be wrong: right after a scrub.
    Wrong,
    /// It will never answer again.
    Dead,
}

/// What was done in a round.
#[derive(Debug, Default, Clone, Copy)]
pub struct Tally {
    /// Steps.
    pub steps: usize,
    /// Harm done.
    pub harm: usize,
    /// Losses of power.
    pub cuts: usize,
    /// Devices replaced, attached, detached or split off.
    pub exchanged: usize,
    /// Of these, devices that were filled by a rebuild.
    pub rebuilt: usize,
    /// Distributed spares that came in.
    pub spared: usize,
    /// Expansions of RAID-Z, and removals of vdevs, that began.
    pub reshaped: usize,
    /// Checkpoints taken, and gone back to.
    pub checkpoints: usize,
    /// Sets of devices that were enough by themselves.
    pub alone: usize,
    /// Files that were lost beyond the redundancy, all of them named.
    pub lost: usize,
}

/// A top-level vdev: its columns, or sides, each with a device, or two of which one replaces the other.
pub(super) type Columns = Vec<Vec<Arc<Device>>>;

/// A pool of a campaign.
pub struct Round {
    pub(super) random: ChaCha8Rng,
    pub(super) shape: Shape,
    pub(super) parity: u8,
    pub(super) tunables: Tunables,
    pub(super) tops: Vec<Columns>,
    pub(super) suspects: BTreeMap<String, Suspect>,
    /// Devices that are filled by a rebuild, which copies what is wrong, too.
    pub(super) copying: BTreeSet<String>,
    /// Suspects of which wrong sectors were moved to other devices.
    pub(super) spread: BTreeSet<String>,
    /// Devices of which a flush fails.
    pub(super) forgetful: BTreeSet<String>,
    /// Distributed spares, by the device for which they stand in.
    pub(super) stand_ins: BTreeMap<String, StandIn>,
    pub(super) power: Arc<RwLock<()>>,
    pub(super) pool: Arc<Pool>,
    /// `None` while the pool is exported.
    pub(super) fs: Option<Arc<FileSystem>>,
    pub(super) files: Files,
    /// The files that a checkpoint has.
    pub(super) kept: Option<Files>,
    pub(super) devices_made: usize,
    /// What was done, in words.
    pub story: Vec<String>,
    /// How much of it.
    pub tally: Tally,
}

/// Imports the pool that is on these devices.
pub(super) fn import(devices: Vec<Arc<Device>>, read_only: bool) -> Result<Arc<Pool>, String> {
    import_with(devices, ImportOptions { read_only, tunables: Some(fast()), ..ImportOptions::default() })
}

pub(super) fn import_with(devices: Vec<Arc<Device>>, options: ImportOptions) -> Result<Arc<Pool>, String> {
    let disks = devices.into_iter().filter(|device| !device.is_gone()).map(|device| device as DiskRef).collect();
    let candidate = discover(disks).into_iter().next().ok_or("no pool was found")?;
    let options = ImportOptions { force: true, ..options };
    Pool::import_on(candidate, options, RealHost::shared()).map(|(pool, _)| pool).map_err(|error| format!("import: {error}"))
}

pub(super) fn open_files(pool: &Arc<Pool>) -> Result<Arc<FileSystem>, String> {
    pool.file_system(POOL).map_err(|error| format!("{POOL}: {error}"))
}

impl Round {
    /// A new pool.
    pub fn new(seed: u64) -> Round {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let shape = Shape::random(&mut random);
        let record = *["8K", "32K", "128K"].choose(&mut random).expect("one of three");
        let (power, mut made, tunables) = (Arc::<RwLock<()>>::default(), 0, shape.tunables(&mut random));
        let mut new_device = || {
            made += 1;
            vec![Device::new(format!("/memory/d{made}"), shape.bytes, power.clone(), seed ^ (made as u64) << 40)]
        };
        let devices: Vec<Columns> = (0..shape.tops).map(|_| (0..shape.columns).map(|_| new_device()).collect()).collect();
        let new = devices.iter().map(|top| shape.new_top(top.iter().flatten())).collect();
        let options = CreateOptions { properties: properties(&[("recordsize", record)]), tunables: Some(tunables.clone()), ..CreateOptions::default() };
        let pool = Pool::create_on(POOL, new, options, RealHost::shared()).unwrap_or_else(|error| panic!("create: {error}"));
        let fs = open_files(&pool).unwrap_or_else(|error| panic!("{error}"));
        Round {
            random,
            shape,
            parity: shape.parity,
            tunables,
            tops: devices,
            suspects: BTreeMap::new(),
            copying: BTreeSet::new(),
            spread: BTreeSet::new(),
            forgetful: BTreeSet::new(),
            stand_ins: BTreeMap::new(),
            power,
            pool,
            fs: Some(fs),
            files: Files::default(),
            kept: None,
            devices_made: made,
            story: vec![format!("{shape:?}, records of {record}")],
            tally: Tally::default(),
        }
    }

    /// Takes so many steps, and judges what is there then.
    ///
    /// # Errors
    /// What was lost, or is wrong.
    pub fn run(&mut self, steps: usize) -> Result<(), String> {
        for _ in 0..steps {
            self.step()?;
            self.diagnose()?;
            self.tally.steps += 1;
        }
        self.judge()
    }

    fn step(&mut self) -> Result<(), String> {
        match self.random.random_range(0..100) {
            0..28 => self.write(),
            28..40 => self.sync(),
            40..47 => self.read(),
            47..63 => self.harm(),
            63..69 => self.give_back(),
            69..73 => self.scrub(),
            73..78 => self.cut_power(),
            78..80 => self.import_again(),
            80 => self.look_alone(),
            81..86 => self.replace(),
            86..89 => self.keep_or_go_back(),
            89..93 => self.reshape(),
            93..96 => self.offline(),
            _ => self.change_members(),
        }
    }

    pub(super) fn say(&mut self, what: impl Into<String>) {
        self.story.push(what.into());
    }

    fn write(&mut self) -> Result<(), String> {
        let count = self.random.random_range(1..6);
        self.say(format!("write {count}"));
        let Round { fs: Some(fs), files, random, .. } = self else { return Ok(()) };
        (0..count).try_for_each(|_| files.change(fs, random))
    }

    pub(super) fn sync(&mut self) -> Result<(), String> {
        self.say("sync");
        self.pool.sync().map_err(|error| format!("sync: {error}"))?;
        self.files.note_synced();
        self.let_expand();
        Ok(())
    }

    pub(super) fn read(&mut self) -> Result<(), String> {
        self.say("read");
        self.fs.as_ref().map_or(Ok(()), |fs| expect_right(&self.files.compare(fs)))
    }

    /// Waits until nobody is behind and nothing is being replaced, as far as that comes by itself, and forgets devices that are not in the pool any more.
    pub(super) fn wait(&mut self) -> Result<(), String> {
        self.remind()?;
        let begun = Instant::now();
        loop {
            let engine = self.pool.engine();
            // In this order: a scrub begins with the end of a rebuild.
            if !engine.is_rebuilding() && !self.is_filling() && !engine.is_scanning() {
                break;
            }
            self.diagnose()?;
            if begun.elapsed() > PATIENCE {
                let engine = self.pool.engine();
                return Err(format!("the scan does not end: {:?} {:?} {:?}", engine.scan_progress(), engine.rebuild_progress(), engine.vdevs.status()));
            }
            self.pass()?;
        }
        self.forget_departed();
        if self.kept.is_none() {
            self.clear(Suspect::Filling);
            self.clear(Suspect::Behind);
            let suspects = &self.suspects;
            self.copying.retain(|name| suspects.contains_key(name));
        }
        Ok(())
    }

    /// What is under way goes on.
    pub(super) fn pass(&self) -> Result<(), String> {
        if self.shape.is_stepwise {
            return self.pool.engine().write_group().map(drop).map_err(|error| format!("a group: {error}"));
        }
        std::thread::sleep(Duration::from_millis(3));
        Ok(())
    }

    /// Devices that are there are suspect no more for this reason.
    pub(super) fn clear(&mut self, reason: Suspect) {
        let leaves = self.pool.engine().vdevs.leaves();
        let gone: Vec<Arc<Device>> = self.devices().into_iter().filter(|device| device.is_gone()).collect();
        let is_gone = |name: &str| gone.iter().any(|device| disk::Disk::name(&**device) == name);
        let is_there = |name: &str| !is_gone(name) && leaves.iter().any(|leaf| leaf.name() == name && leaf.is_open());
        self.suspects.retain(|name, suspect| *suspect != reason || !is_there(name));
    }

    /// Is a device that answers behind, or takes the place of another?
    fn is_filling(&self) -> bool {
        if self.kept.is_some() {
            // Devices stay as they are with a checkpoint, which nobody looks at.
            return false;
        }
        let leaves = self.pool.engine().vdevs.leaves();
        let leaf_of = |device: &Arc<Device>| leaves.iter().find(|leaf| leaf.name() == disk::Disk::name(&**device));
        self.tops.iter().flatten().any(|column| {
            let there: Vec<_> = column.iter().filter_map(|device| leaf_of(device).map(|leaf| (device, leaf))).collect();
            let is_behind = there.iter().any(|(device, leaf)| !device.is_gone() && leaf.is_open() && leaf.is_behind());
            // The new device is the last one.
            let is_replacing = there.len() > 1 && there.last().is_some_and(|(device, _)| !device.is_gone());
            is_behind || is_replacing
        }) || self.is_spare_filling()
    }

    /// Forgets vdevs that an imported pool does not have: those that left it, and those that it did not have at its checkpoint, to which it went back. Their labels may stay.
    pub(super) fn forget_absent(&mut self) {
        let leaves = self.pool.engine().vdevs.leaves();
        self.tops.retain(|top| top.iter().flatten().any(|device| leaves.iter().any(|leaf| leaf.name() == disk::Disk::name(&**device))));
        self.forget_departed();
    }

    /// Forgets devices that are not in the pool any more.
    pub(super) fn forget_departed(&mut self) {
        let leaves = self.pool.engine().vdevs.leaves();
        let is_there = |device: &Arc<Device>| leaves.iter().any(|leaf| leaf.name() == disk::Disk::name(&**device));
        for top in &mut self.tops {
            // A vdev that was removed has left when that is on disk: its labels say so then. Until then a loss of power brings it back.
            let has_labels = |device: &Arc<Device>| device.is_gone() || device.has_label();
            let is_leaving = !top.iter().flatten().any(is_there) && top.iter().flatten().all(has_labels);
            let stays = |device: &Arc<Device>| is_there(device) || is_leaving && !device.is_gone();
            top.iter_mut().for_each(|column| column.retain(stays));
            top.retain(|column| !column.is_empty());
        }
        let devices: Vec<String> = self.tops.iter().flatten().flatten().map(|device| disk::Disk::name(&**device).to_owned()).collect();
        self.suspects.retain(|name, _| devices.contains(name));
        self.copying.retain(|name| devices.contains(name));
        self.tops.retain(|top| !top.is_empty());
        self.forget_stand_ins();
    }

    /// All devices.
    pub(super) fn devices(&self) -> Vec<Arc<Device>> {
        self.tops.iter().flatten().flatten().cloned().collect()
    }

    fn cut_power(&mut self) -> Result<(), String> {
        self.say("power cut");
        self.tally.cuts += 1;
        let power: Arc<RwLock<()>> = Arc::default();
        {
            let _off = self.power.write();
            for device in self.tops.iter_mut().flatten().flatten() {
                *device = device.after_power_cut(power.clone());
            }
        }
        self.power = power;
        self.close_files();
        self.pool.abandon();
        self.open_again()?;
        let Round { fs: Some(fs), files, .. } = self else { return Ok(()) };
        expect_right(&files.adopt(fs))
    }

    fn import_again(&mut self) -> Result<(), String> {
        self.say("export and import");
        self.export()?;
        self.open_again()
    }

    fn close_files(&mut self) {
        if let Some(fs) = self.fs.take() {
            fs.release_all();
        }
    }

    pub(super) fn export(&mut self) -> Result<(), String> {
        self.close_files();
        self.pool.export().map_err(|error| format!("export: {error}"))?;
        self.files.note_synced();
        Ok(())
    }

    pub(super) fn open_again(&mut self) -> Result<(), String> {
        self.open_again_at(Rewind::No)
    }

    pub(super) fn open_again_at(&mut self, rewind: Rewind) -> Result<(), String> {
        self.pool = import_with(self.devices(), ImportOptions { rewind, tunables: Some(self.tunables.clone()), ..ImportOptions::default() })?;
        self.fs = Some(open_files(&self.pool)?);
        // What the pool on disk does not have has left it, whatever its labels say: a loss of power can come between the two.
        self.forget_absent();
        Ok(())
    }
}

/// Nothing is wrong.
pub(super) fn expect_right(wrong: &[Wrong]) -> Result<(), String> {
    if wrong.is_empty() { Ok(()) } else { Err(format!("{wrong:?}")) }
}

impl Drop for Round {
    fn drop(&mut self) {
        // One that failed leaves the threads of the pool behind otherwise.
        self.close_files();
        self.pool.abandon();
    }
}
