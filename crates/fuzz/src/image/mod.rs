//! Whole pools, changed behind their checksums.
//!
//! # Theory
//! A [`Base`] is a small pool in memory and the list of its blocks, decompressed, each with the places that point at it. An
//! input chooses a base and some changes of blocks' contents. [`Base::changed`] then compresses each changed block, writes it,
//! puts its new checksum into what points at it, and goes on with that, up to the uberblock and the labels. The result
//! is a pool that nobody ever wrote and in which every checksum is right: so that what reads it has to look for itself.
//!
//! A block that no longer fits where it was goes to the end of the device, uncompressed, where the space maps say that nothing is.
//!
//! # Path
//! called by the targets `image-read` and `image-write`: [`bases`] → [`Base::changed`] → [`exercise`].

mod big_endian;
mod change;
pub mod exercise;
mod walk;

use std::path::Path;
use std::sync::OnceLock;

use disk::{Disk, MemDisk};
use engine::vdev::label::DeviceLabels;
use ondisk::label::{self, Ring};
use ondisk::nvlist::NvList;
use ondisk::uberblock::Uberblock;
use sim::golden::Golden;
use sim::scenario::{Layout, Rig, contents};

pub use walk::Node;

/// One device of a base.
pub(crate) struct Device {
    disk: MemDisk,
    /// The top-level vdev that it belongs to.
    top: u32,
    config: NvList,
    ring: Ring,
}

/// A pool to be changed.
pub struct Base {
    /// Where it comes from.
    pub name: String,
    devices: Vec<Device>,
    uberblock: Uberblock,
    /// Its blocks; what a block points at comes before it.
    pub nodes: Vec<Node>,
}

/// Golden pools that are in the project.
const GOLDEN: [&str; 2] = ["acl", "xattr"];

/// The pools to start from.
pub fn bases() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| {
        let mut bases: Vec<Base> = GOLDEN.iter().map(|name| golden(name)).collect();
        bases.push(own("files", Layout { bytes: 64 << 20, ashift: 9, ..Layout::default() }, fill_files));
        bases.push(own("datasets", Layout { bytes: 64 << 20, sides: 2, ..Layout::default() }, fill_datasets));
        bases.push(own("large", Layout { bytes: 128 << 20, tops: 2, ..Layout::default() }, fill_large));
        bases
    })
}

fn golden(name: &str) -> Base {
    let golden = Golden::find(name).ok().flatten().unwrap_or_else(|| panic!("the golden pool {name} is in the project"));
    let images: Vec<&Path> = golden.images.iter().map(std::path::PathBuf::as_path).collect();
    Base::load(name, &images)
}

fn own(name: &str, layout: Layout, fill: fn(&mut Rig)) -> Base {
    let mut rig = Rig::create(layout, &[("compression", "lz4")]);
    fill(&mut rig);
    rig.export();
    let images = rig.images();
    let images: Vec<&Path> = images.iter().map(std::path::PathBuf::as_path).collect();
    Base::load(name, &images)
}

/// Files of all sorts.
fn fill_files(rig: &mut Rig) {
    rig.set("tank", &[("recordsize", "4K"), ("xattr", "sa")]);
    let mut actor = rig.actor("tank");
    actor.mkdir("d");
    for number in 0..60 {
        actor.file(&format!("d/a name of some length {number}"), &contents(number, 100, 1));
    }
    actor.file("large", &contents(1, 300_000, 1));
    actor.file("random", &contents(2, 20_000, 0));
    actor.file("holes", &contents(3, 10_000, 1));
    actor.write("holes", 2 << 20, b"the end");
    actor.symlink("s", b"d/name 0");
    actor.symlink("long", &[b't'; 2000]);
    actor.special("fifo", 0o010_600, 0);
    actor.link("large", "hard");
    actor.setxattr("large", "user.small", b"value");
    actor.setxattr("large", "user.large", &contents(4, 3000, 1));
    rig.sync();
    rig.actor("tank").unlink("random");
    rig.sync();
}

/// Many datasets, properties, attribute directories.
fn fill_datasets(rig: &mut Rig) {
    for (name, words) in [
        ("tank/a", &[("compression", "zstd-3"), ("xattr", "on"), ("recordsize", "1M")][..]),
        ("tank/a/b", &[("checksum", "sha256"), ("copies", "2"), ("dnodesize", "4k")]),
        ("tank/c", &[("compression", "gzip-6"), ("checksum", "blake3")]),
        ("tank/d", &[("compression", "off"), ("checksum", "off")]),
    ] {
        rig.create_file_system(name, words);
        let mut actor = rig.actor(name);
        actor.mkdir("d");
        actor.file("d/f", &contents(7, 40_000, 2));
        actor.setxattr("d/f", "user.one", &contents(8, 500, 1));
        rig.sync();
    }
    rig.create_file_system("tank/gone", &[]);
    rig.actor("tank/gone").file("f", &contents(9, 200_000, 0));
    rig.sync();
    rig.destroy_file_system("tank/gone");
    rig.sync();
}

/// Directories of several blocks, indirect blocks of several levels, freed space.
fn fill_large(rig: &mut Rig) {
    rig.set("tank", &[("recordsize", "512")]);
    let mut actor = rig.actor("tank");
    actor.mkdir("many");
    for number in 0..700 {
        actor.file(&format!("many/{number} {}", "x".repeat(40)), b"");
    }
    actor.file("deep", &contents(1, 700_000, 2));
    rig.sync();
    let mut actor = rig.actor("tank");
    for number in (0..700).step_by(7) {
        actor.unlink(&format!("many/{number} {}", "x".repeat(40)));
    }
    actor.punch("deep", 10_000, 300_000);
    rig.sync();
}

impl Base {
    /// The pool on these images.
    pub fn load(name: &str, images: &[&Path]) -> Base {
        let devices: Vec<Device> = images.iter().map(|image| load_device(image)).collect();
        let newest =
            devices.iter().flat_map(|device| DeviceLabels::read(&device.disk).uberblocks(device.ring.slot_bytes().ilog2()));
        let uberblock = newest.map(|found| found.uberblock).max_by(Uberblock::compare_age).expect("a pool has an uberblock");
        let mut base = Base { name: name.to_owned(), devices, uberblock, nodes: Vec::new() };
        base.nodes = walk::walk(&base);
        assert!(base.nodes.len() > 30, "{name}: only {} blocks were found", base.nodes.len());
        base
    }

    /// The uberblock's bytes.
    pub(crate) fn uberblock_bytes(&self) -> Vec<u8> {
        self.uberblock.encode().to_vec()
    }

    /// The devices' configurations.
    pub(crate) fn configs(&self) -> impl Iterator<Item = &NvList> {
        self.devices.iter().map(|device| &device.config)
    }
}

fn load_device(image: &Path) -> Device {
    let bytes = std::fs::read(image).expect("an image");
    let disk = MemDisk::new(image.display().to_string(), bytes.len() as u64);
    for (chunk, content) in bytes.chunks(4096).enumerate() {
        if content.iter().any(|byte| *byte != 0) {
            disk.write_at(content, chunk as u64 * 4096).expect("inside of the disk");
        }
    }
    let labels = DeviceLabels::read(&disk);
    let config = labels.newest_config().expect("a label").clone();
    let tree = config.nvlist("vdev_tree").expect("a vdev tree");
    let number = |name: &str| tree.u64(name).expect("a number of the vdev");
    let (top, ashift) = (number("id") as u32, number("ashift") as u32);
    Device { disk, top, ring: Ring::new(ashift), config }
}

/// Where a device's data end.
fn data_end(device: &Device) -> u64 {
    label::usable_bytes(device.disk.size_bytes()) - label::END_BYTES - label::START_BYTES
}
