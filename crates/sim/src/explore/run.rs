//! Doing a workload on the real engine, on disks that remember.

use std::sync::Arc;

use disk::DiskRef;
use engine::canary::Canary;
use engine::pool::import::discover;
use engine::tunables::Parameter;
use engine::vdev::{Bias, NewLeaf, NewTop};
use tarnfs::{CreateOptions, Error, ImportOptions, Pool, Tunables};

use super::disk::{Event, Image, Recorder, SimDisk, Vices};
use super::op::{Doer, Op};
use super::world::{Effect, World};
use crate::scenario::{SimHost, properties};

/// The devices of a campaign's pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// How it is called.
    pub name: &'static str,
    /// Top-level vdevs.
    pub tops: usize,
    /// Sides of each.
    pub sides: usize,
    /// Columns of parity of each: then its sides are columns.
    pub parity: u8,
    /// So many of the first disks are gone before anything is done.
    pub gone: usize,
    /// Sides of the log device; 0: there is none.
    pub logs: usize,
    /// log2 of the smallest allocation.
    pub ashift: u32,
    /// Properties of the file system.
    pub properties: &'static [(&'static str, &'static str)],
}

/// The layouts, of which a workload's number chooses one.
pub const LAYOUTS: [Layout; 10] = [
    Layout { name: "one disk", tops: 1, sides: 1, parity: 0, gone: 0, logs: 0, ashift: 9, properties: &[("recordsize", "16K")] },
    Layout { name: "a mirror", tops: 1, sides: 2, parity: 0, gone: 0, logs: 0, ashift: 9, properties: &[("recordsize", "4K"), ("compression", "off"), ("direct", "always")] },
    Layout { name: "two disks of large sectors", tops: 2, sides: 1, parity: 0, gone: 0, logs: 0, ashift: 12, properties: &[("recordsize", "128K"), ("compression", "zstd")] },
    Layout { name: "one disk, two copies", tops: 1, sides: 1, parity: 0, gone: 0, logs: 0, ashift: 9, properties: &[("copies", "2"), ("dnodesize", "1k")] },
    Layout { name: "a disk and a log device", tops: 1, sides: 1, parity: 0, gone: 0, logs: 1, ashift: 9, properties: &[("recordsize", "8K"), ("direct", "always")] },
    Layout { name: "a disk and mirrored log devices", tops: 1, sides: 1, parity: 0, gone: 0, logs: 2, ashift: 12, properties: &[("recordsize", "32K")] },
    Layout { name: "one disk, blocks instead of copies in the log", tops: 1, sides: 1, parity: 0, gone: 0, logs: 0, ashift: 9, properties: &[("recordsize", "16K"), ("logbias", "throughput")] },
    Layout { name: "raidz1 of three", tops: 1, sides: 3, parity: 1, gone: 0, logs: 0, ashift: 9, properties: &[("recordsize", "16K"), ("direct", "always")] },
    Layout { name: "raidz2 of five, of which one is gone", tops: 1, sides: 5, parity: 2, gone: 1, logs: 0, ashift: 12, properties: &[("recordsize", "64K"), ("compression", "off")] },
    Layout { name: "raidz1 of four, of which one is gone", tops: 1, sides: 4, parity: 1, gone: 1, logs: 0, ashift: 9, properties: &[("recordsize", "8K")] },
];

/// Layouts of which a vdev can go.
pub const ROOMY_LAYOUTS: [Layout; 3] = [
    Layout { name: "three disks", tops: 3, sides: 1, parity: 0, gone: 0, logs: 0, ashift: 9, properties: &[("recordsize", "16K"), ("compression", "off")] },
    Layout { name: "three mirrors", tops: 3, sides: 2, parity: 0, gone: 0, logs: 0, ashift: 12, properties: &[("recordsize", "8K")] },
    Layout { name: "four disks and a log device", tops: 4, sides: 1, parity: 0, gone: 0, logs: 1, ashift: 9, properties: &[("recordsize", "64K")] },
];

/// The smallest device that OpenZFS takes.
pub const DISK_BYTES: u64 = 64 << 20;
/// Little: one state of many.
const CACHE_BYTES: u64 = 8 << 20;
/// A scrub is under way for many groups.
const SCAN_BLOCKS: u64 = 7;
/// A removal is under way for many groups.
const REMOVED_BYTES: &str = "98304";
/// No group ends by itself.
const NEVER_NS: u64 = 3_600_000_000_000_000;

/// Limits for a small pool in a simulation, and the bug to look for.
pub fn tunables(canary: Option<Canary>) -> Tunables {
    let dirty_bytes_max = 1 << 30;
    let tunables = Tunables { cache_bytes_max: CACHE_BYTES, dirty_bytes_max, txg_timeout_ns: NEVER_NS, scan_blocks_max: SCAN_BLOCKS, scan_hastens: false, canary, ..Tunables::default() };
    for parameter in [Parameter::RemoveMaxCopyBytes, Parameter::RemoveMaxSegment] {
        let set = tunables.parameters.set(parameter, REMOVED_BYTES);
        assert!(set.is_ok(), "{set:?}");
    }
    tunables
}

fn disks(images: &[Image], recorder: Option<&Arc<Recorder>>, vices: Vices) -> Vec<Arc<SimDisk>> {
    let vices = |number| if number == vices.disk { vices } else { Vices::default() };
    images.iter().enumerate().map(|(number, image)| SimDisk::new(number, DISK_BYTES, image.clone(), recorder.cloned(), vices(number))).collect()
}

/// Disks with these contents, which write into a recorder, and each take up to so many microseconds for every I/O.
pub fn recording(images: &[Image], recorder: &Arc<Recorder>, slow_us: u64) -> Vec<Arc<SimDisk>> {
    let disk = |(number, image): (usize, &Image)| SimDisk::new(number, DISK_BYTES, image.clone(), Some(recorder.clone()), Vices { slow_us, ..Vices::default() });
    images.iter().enumerate().map(disk).collect()
}

/// An imported pool and its disks.
pub struct Opened {
    /// The pool.
    pub pool: Arc<Pool>,
    /// Its disks.
    pub disks: Vec<Arc<SimDisk>>,
}

impl Opened {
    /// Imports the pool on these images.
    ///
    /// # Errors
    /// Those of an import; that no pool is found, too.
    pub fn import(images: &[Image], read_only: bool, recorder: Option<&Arc<Recorder>>, canary: Option<Canary>, vices: Vices) -> Result<Opened, Error> {
        Self::import_as(2, images, read_only, recorder, canary, vices)
    }

    /// As [`Opened::import`], with the randomness of `seed`: a second import must not draw the same numbers.
    ///
    /// # Errors
    /// Those of an import; that no pool is found, too.
    pub fn import_as(
        seed: u64,
        images: &[Image],
        read_only: bool,
        recorder: Option<&Arc<Recorder>>,
        canary: Option<Canary>,
        vices: Vices,
    ) -> Result<Opened, Error> {
        let disks = disks(images, recorder, vices);
        let candidates = discover(disks.iter().map(|disk| disk.clone() as DiskRef).collect());
        let Some(candidate) = candidates.into_iter().next() else { engine::bail!(NoDevice, "there is no pool on the disks") };
        let options = ImportOptions { read_only, force: true, tunables: Some(tunables(canary)), ..ImportOptions::default() };
        let (pool, _) = Pool::import_on(candidate, options, SimHost::new(seed))?;
        Ok(Opened { pool, disks })
    }

    /// The images now.
    pub fn images(&self) -> Vec<Image> {
        self.disks.iter().map(|disk| disk.image()).collect()
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.pool.abandon();
    }
}

impl Layout {
    /// So many disks more can be lost without any loss.
    pub fn redundancy(&self) -> usize {
        usize::from(self.parity).saturating_sub(self.gone)
    }
}

/// An empty pool of a layout, on the disks that are there.
pub fn create(layout: &Layout) -> Vec<Image> {
    let disks = disks(&vec![Image::default(); layout.tops * layout.sides + layout.logs], None, Vices::default());
    let leaf = |disk: &Arc<SimDisk>| NewLeaf { disk: disk.clone(), path: disk::Disk::name(&**disk).to_owned(), whole_disk: false };
    let top = |disks: &[Arc<SimDisk>], bias| {
        let parity = if bias == Bias::Log { 0 } else { layout.parity };
        NewTop { leaves: disks.iter().map(leaf).collect(), parity, draid: None, ashift: Some(layout.ashift), bias }
    };
    let (data, logs) = disks.split_at(layout.tops * layout.sides);
    let mut tops: Vec<NewTop> = data.chunks(layout.sides).map(|disks| top(disks, Bias::None)).collect();
    tops.extend((!logs.is_empty()).then(|| top(logs, Bias::Log)));
    let options = CreateOptions {
        properties: properties(layout.properties),
        command: "zpool create tank".into(),
        tunables: Some(tunables(None)),
        ..CreateOptions::default()
    };
    let pool = Pool::create_on("tank", tops, options, SimHost::new(1)).unwrap_or_else(|error| panic!("create: {error}"));
    pool.export().unwrap_or_else(|error| panic!("export: {error}"));
    let image = |(number, disk): (usize, &Arc<SimDisk>)| if number < layout.gone { Image::default() } else { disk.image() };
    disks.iter().enumerate().map(image).collect()
}

/// A run: its operations, and what the disks saw of it.
pub struct Story {
    /// The operations.
    pub ops: Vec<Op>,
    /// The outcome of each operation.
    pub effects: Vec<Effect>,
    /// The worlds before the first operation, after it, and so on.
    pub worlds: Vec<World>,
    /// The disks before.
    pub base: Vec<Image>,
    /// The events at the disks.
    pub events: Vec<Event>,
    /// The file system's `fsync` writes to an intent log.
    pub log: bool,
    /// Others sync its files meanwhile: what they log of a file may be of several versions.
    pub is_shared: bool,
    /// The error that stopped it, if the disks did.
    pub stopped: Option<Error>,
}

impl Story {
    /// Does the operations on a new pool of the layout whose images are `base`.
    pub fn tell(ops: Vec<Op>, base: &[Image], log: bool, canary: Option<Canary>, vices: Vices) -> Story {
        let recorder = Arc::new(Recorder::default());
        let stopped = match Opened::import(base, false, Some(&recorder), canary, vices) {
            Ok(opened) => Self::run(&ops, &opened, &recorder, log).err(),
            Err(error) => Some(error),
        };
        assert!(stopped.is_none() || vices != Vices::default(), "the workload failed: {}", stopped.expect("an error"));
        Story { stopped, log, ..Story::of(ops, World::default(), base, recorder.take()) }
    }

    /// Goes on with a pool that was imported from `base`, on disks that write into `recorder`; `world` is in it.
    pub fn go_on(ops: Vec<Op>, world: World, base: &[Image], opened: &Opened, recorder: &Recorder) -> Story {
        let stopped = Self::run(&ops, opened, recorder, true).err();
        assert!(stopped.is_none(), "the workload failed: {}", stopped.expect("an error"));
        Story::of(ops, world, base, recorder.take())
    }

    /// The effect of these operations on a world.
    pub fn of(ops: Vec<Op>, world: World, base: &[Image], events: Vec<Event>) -> Story {
        let (mut worlds, mut effects) = (vec![world], Vec::new());
        for op in &ops {
            let mut world = worlds[worlds.len() - 1].clone();
            effects.push(world.apply(op).unwrap_or_else(|| panic!("{op:?} cannot be done")));
            worlds.push(world);
        }
        Story { ops, effects, worlds, base: base.to_vec(), events, log: true, is_shared: false, stopped: None }
    }

    fn run(ops: &[Op], opened: &Opened, recorder: &Recorder, log: bool) -> Result<(), Error> {
        let fs = opened.pool.file_system("tank")?;
        let doer = Doer::new(&opened.pool, &fs, log);
        for (number, op) in ops.iter().enumerate() {
            recorder.note(Event::Begin(number));
            doer.run(op)?;
            recorder.note(Event::End(number));
        }
        Ok(())
    }
}
