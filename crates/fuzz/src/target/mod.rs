//! The targets, and how one is run.

use std::sync::Once;
use std::time::{Duration, Instant};

use crate::ALLOCATOR;

mod block;
mod files;
mod images;
mod labels;
mod lists;
mod log;
mod maps;
mod packed;
mod requests;
mod streams;
mod words;
mod zaps;

/// One thing that reads bytes from outside.
#[derive(Debug)]
pub struct Target {
    /// The name on the command line.
    pub name: &'static str,
    /// Inputs are not longer than this.
    pub bytes_max: usize,
    /// Reads the bytes; panics if something is wrong.
    pub body: fn(&[u8]),
    /// Inputs to start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// The memory that one input may take beyond what was in use before it.
    pub memory_max: usize,
    /// One input takes no longer (and very much less on a machine that is not busy).
    pub time_max: Duration,
    /// How many mutations `cargo test` tries.
    pub rounds: u64,
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

const fn target(name: &'static str, bytes_max: usize, body: fn(&[u8]), seeds: fn() -> Vec<Vec<u8>>) -> Target {
    Target { name, bytes_max, body, seeds, memory_max: 32 * MIB, time_max: Duration::from_secs(20), rounds: 2000 }
}

const fn image(name: &'static str, body: fn(&[u8])) -> Target {
    Target {
        name,
        bytes_max: 512,
        body,
        seeds: images::seeds,
        memory_max: 512 * MIB,
        time_max: Duration::from_secs(60),
        rounds: 25,
    }
}

/// All targets.
pub static TARGETS: &[Target] = &[
    target("block-pointer", 256, block::block_pointer, block::block_pointer_seeds),
    target("dnode", 16 * KIB, block::dnode, block::dnode_seeds),
    target("objset", 4 * KIB, block::objset, block::objset_seeds),
    target("uberblock", KIB, block::uberblock, block::uberblock_seeds),
    target("byteswap", 16 * KIB, block::byteswap, block::byteswap_seeds),
    target("nvlist", 8 * KIB, labels::nvlist, labels::nvlist_seeds),
    target("vdev-config", 8 * KIB, labels::vdev_config, labels::config_seeds),
    target("pool-config", 8 * KIB, labels::pool_config, labels::config_seeds),
    target("label", 16 * KIB, labels::label, labels::label_seeds),
    target("partitions", 16 * KIB, labels::partitions, labels::partition_seeds),
    target("micro-zap", 4 * KIB, zaps::micro, zaps::micro_seeds),
    target("zap-header", 16 * KIB, zaps::fat_header, zaps::fat_header_seeds),
    target("zap-leaf", 16 * KIB, zaps::leaf, zaps::leaf_seeds),
    target("zap-leaf-write", 16 * KIB, zaps::leaf_write, zaps::leaf_seeds),
    target("system-attributes", KIB, files::system_attributes, files::system_attributes_seeds),
    target("znode", KIB, files::znode, files::znode_seeds),
    target("acl", 2 * KIB, files::acl, files::acl_seeds),
    target("space-map", 4 * KIB, maps::space_map, maps::space_map_seeds),
    target("space-map-header", 512, maps::header, maps::header_seeds),
    target("bpobj", 512, lists::bpobj, lists::bpobj_seeds),
    target("dsl", 2 * KIB, lists::dsl, lists::dsl_seeds),
    target("intent-log", 8 * KIB, log::records, log::records_seeds),
    target("gang-header", KIB, block::gang_header, block::gang_header_seeds),
    target("removal", KIB, lists::removal, lists::removal_seeds),
    target("stream", KIB, lists::stream, lists::stream_seeds),
    target("lz4", 8 * KIB, packed::lz4, packed::lz4_seeds),
    target("lzjb", 8 * KIB, packed::lzjb, packed::lzjb_seeds),
    target("zle", 8 * KIB, packed::zle, packed::zle_seeds),
    target("gzip", 8 * KIB, packed::gzip, packed::gzip_seeds),
    target("zstd", 8 * KIB, packed::zstd, packed::zstd_seeds),
    target("pack", 8 * KIB, packed::round_trip, packed::round_trip_seeds),
    target("checksum", 4 * KIB, packed::checksum, packed::checksum_seeds),
    target("fuse", 4 * KIB, requests::fuse, requests::fuse_seeds),
    target("wire", 8 * KIB, requests::wire, requests::wire_seeds),
    target("properties", 512, words::properties, words::property_seeds),
    target("names", 512, words::names, words::name_seeds),
    image("image-read", images::read),
    image("image-write", images::write),
    Target { bytes_max: 64, seeds: streams::seeds, rounds: 40, ..image("stream-receive", streams::receive) },
];

/// The target with this name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

impl Target {
    /// Runs the target once, within its limits. What is beyond the memory's limit ends the process, as the allocator's
    /// refusal does.
    ///
    /// # Panics
    /// If the target does, or took too long.
    pub fn run(&self, bytes: &[u8]) {
        #[allow(clippy::disallowed_methods)] // measures; decides nothing
        let start = Instant::now();
        lift_limit_of_panics();
        let _ = ALLOCATOR.set_limit(ALLOCATOR.allocated() + self.memory_max);
        (self.body)(bytes);
        let _ = ALLOCATOR.set_limit(usize::MAX);
        assert!(start.elapsed() <= self.time_max, "{}: took {:?}", self.name, start.elapsed());
    }
}

/// To print where a panic was takes memory too.
fn lift_limit_of_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let shown = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let _ = ALLOCATOR.set_limit(usize::MAX);
            shown(panic);
        }));
    });
}
