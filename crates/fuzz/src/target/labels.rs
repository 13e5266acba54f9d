//! What a device says of itself: labels, their nvlists, partition tables.

use std::sync::Arc;

use disk::{Disk, DiskRef, MemDisk};
use engine::pool::config::PoolConfig;
use engine::pool::import::discover;
use engine::vdev::VdevConfig;
use ondisk::label::{self, DEVICE_BYTES_MIN};
use ondisk::nvlist::NvList;
use transform::checksum::{LABEL, embedded};

use crate::seeds;

pub(super) fn nvlist(bytes: &[u8]) {
    let Ok((list, used)) = NvList::decode_prefix(bytes) else { return };
    assert!(used <= bytes.len() && list.depth() < 64);
    for packed in [list.encode_xdr(), list.encode_native()] {
        let again = NvList::decode(&packed).expect("what was packed");
        // By bytes, because a floating-point number may be none.
        assert_eq!(again.encode_xdr(), list.encode_xdr());
    }
}

pub(super) fn nvlist_seeds() -> Vec<Vec<u8>> {
    let configs = config_seeds();
    let native = configs.iter().filter_map(|bytes| Some(NvList::decode(bytes).ok()?.encode_native()));
    configs.iter().cloned().chain(native).collect()
}

pub(super) fn vdev_config(bytes: &[u8]) {
    let Ok(list) = NvList::decode(bytes) else { return };
    let Ok(config) = VdevConfig::from_nvlist(list.nvlist("vdev_tree").unwrap_or(&list)) else { return };
    let again = VdevConfig::from_nvlist(&config.to_mos()).expect("what was written");
    assert_eq!(again.to_mos().encode_xdr(), config.to_mos().encode_xdr());
    let _ = (config.to_label(), config.guid_sum(), config.leaves().len(), config.find(1).is_some(), config.display_name());
    let _ = config.check_supported();
}

pub(super) fn pool_config(bytes: &[u8]) {
    let Ok(list) = NvList::decode(bytes) else { return };
    if let Ok(config) = PoolConfig::from_nvlist(&list) {
        let _ = (config.check_features_for_read(), config.has_features());
    }
}

pub(super) fn config_seeds() -> Vec<Vec<u8>> {
    seeds::configs().iter().map(NvList::encode_xdr).collect()
}

/// A device whose labels have the right checksums: two bytes say how long the configuration is, behind it is an uberblock.
pub(super) fn label(bytes: &[u8]) {
    let Some(([low, high], rest)) = bytes.split_first_chunk::<2>() else { return };
    let (config, uberblock) = rest.split_at(usize::from(u16::from_le_bytes([*low, *high])).min(rest.len()));
    let disk = MemDisk::new("fuzz", DEVICE_BYTES_MIN);
    let put = |piece: &[u8], length: usize, at: u64| {
        let mut part = vec![0; length];
        let used = piece.len().min(length - label::CHECKSUM_BYTES);
        part[..used].copy_from_slice(&piece[..used]);
        embedded::seal(LABEL, &mut part, [at, 0, 0, 0]).expect("there is room");
        disk.write_at(&part, at).expect("inside of the disk");
    };
    for index in [0, 3] {
        let start = label::label_offset(DEVICE_BYTES_MIN, index);
        put(config, label::CONFIG_BYTES, start + label::CONFIG_OFFSET);
        put(uberblock, 1 << 10, start + label::RING_OFFSET);
        put(uberblock, 4 << 10, start + label::RING_OFFSET + (4 << 10));
    }
    let disk: DiskRef = Arc::new(disk);
    for candidate in discover(vec![disk]) {
        let _ = (candidate.device_names(), candidate.is_in_use_elsewhere(1), candidate.uberblock().txg);
        let _ = candidate.config.check_features_for_read();
        let mut tree = candidate.vdev_tree.clone();
        candidate.correct_paths(&mut tree);
        let _ = tarnfs::control::scan::found_pool(&candidate, 1);
        if let Ok(tree) = candidate.open_tree() {
            let _ = tree.check_complete();
        }
    }
}

pub(super) fn label_seeds() -> Vec<Vec<u8>> {
    let uberblocks = seeds::uberblocks();
    let with = |config: Vec<u8>| {
        let length = u16::try_from(config.len()).expect("the configurations of small pools are small").to_le_bytes();
        [&length, config.as_slice(), uberblocks[0].as_slice()].concat()
    };
    config_seeds().into_iter().map(with).collect()
}

/// The sectors behind the first of an otherwise empty disk.
pub(super) fn partitions(bytes: &[u8]) {
    let disk = MemDisk::new("fuzz", 1 << 20);
    disk.write_at(bytes, 512).expect("inside of the disk");
    let disk: DiskRef = Arc::new(disk);
    for (_, part) in disk::partitions(&disk) {
        let mut sector = [0; 512];
        let _ = part.read_at(&mut sector, 0);
        let _ = part.read_at(&mut sector, part.size_bytes().saturating_sub(512));
    }
}

pub(super) fn partition_seeds() -> Vec<Vec<u8>> {
    let mut table = vec![0; 2 << 10];
    table[..8].copy_from_slice(b"EFI PART");
    table[72] = 2;
    table[80] = 9;
    table[84] = 128;
    for (number, (first, last)) in [(40u64, 99u64), (100, 1000)].into_iter().enumerate() {
        let at = 512 + 128 * number;
        table[at] = 1;
        table[at + 32..at + 40].copy_from_slice(&first.to_le_bytes());
        table[at + 40..at + 48].copy_from_slice(&last.to_le_bytes());
    }
    vec![table]
}
