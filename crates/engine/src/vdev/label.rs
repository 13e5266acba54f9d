//! Reading and writing labels.
//!
//! # Theory
//! A txg is committed by its uberblock. If the tree changed too, the labels have to change with it, and a crash between
//! the two must leave a label that fits whichever uberblock is the newest. Hence the order of [`sync_labels`]: labels 0
//! and 2, flush; uberblocks, flush; labels 1 and 3, flush. Before the uberblock is down, labels 1 and 3 fit the old one;
//! after it, labels 0 and 2 fit the new one. A label says its txg, so that the one that is newer than the uberblock can
//! be told.
//!
//! Each of these steps is done on all devices at the same time, if they are slow: a pool of twelve disks that turn would wait for a turn of each.
//!
//! # On disk
//! `ondisk::label`, `ondisk::uberblock`.

use super::flush::FlushMark;
use super::{Leaf, TopVdev};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::Executor;
use crate::{bail, error};
use disk::{Disk, DiskRef};
use ondisk::label::{self, LABELS, Ring};
use ondisk::nvlist::NvList;
use ondisk::uberblock::Uberblock;
use std::sync::Arc;
use transform::checksum::{LABEL, embedded};

/// What the four labels of a device hold, as far as it can be read.
#[derive(Debug)]
pub struct DeviceLabels {
    configs: [Option<NvList>; LABELS],
    unsealed: [Option<NvList>; LABELS],
    rings: [Option<Vec<u8>>; LABELS],
    device_bytes: u64,
}

/// An uberblock and where it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundUberblock {
    /// The label.
    pub label: usize,
    /// The slot of its ring.
    pub slot: u64,
    /// The uberblock itself.
    pub uberblock: Uberblock,
}

fn verified(bytes: &[u8], device_offset: u64) -> bool {
    embedded::verify_embedded(LABEL, bytes, [device_offset, 0, 0, 0])
}

fn seal(bytes: &mut [u8], device_offset: u64) {
    embedded::seal(LABEL, bytes, [device_offset, 0, 0, 0]).expect("a part of a label has room for its checksum");
}

impl DeviceLabels {
    /// Reads what can be read. A device that is too small has no labels.
    pub fn read(disk: &dyn Disk) -> DeviceLabels {
        let device_bytes = disk.size_bytes();
        let mut labels = DeviceLabels { configs: Default::default(), unsealed: Default::default(), rings: Default::default(), device_bytes };
        if label::data_bytes(device_bytes).is_none() {
            return labels;
        }
        for index in 0..LABELS {
            let start = label::label_offset(device_bytes, index);
            let mut config = vec![0; label::CONFIG_BYTES];
            let at = start + label::CONFIG_OFFSET;
            if disk.read_at(&mut config, at).is_ok() {
                let which = if verified(&config, at) { &mut labels.configs } else { &mut labels.unsealed };
                which[index] = NvList::decode(&config[..label::CONFIG_NVLIST_BYTES]).ok();
            }
            let mut ring = vec![0; label::RING_BYTES as usize];
            if disk.read_at(&mut ring, start + label::RING_OFFSET).is_ok() {
                labels.rings[index] = Some(ring);
            }
        }
        labels
    }

    /// The configuration of each label that has one.
    pub fn configs(&self) -> impl Iterator<Item = (usize, &NvList)> {
        self.configs.iter().enumerate().filter_map(|(index, config)| Some((index, config.as_ref()?)))
    }

    /// What labels seem to say whose checksum is wrong: to be shown, and not to be believed.
    pub fn unsealed(&self) -> impl Iterator<Item = (usize, &NvList)> {
        self.unsealed.iter().enumerate().filter_map(|(index, config)| Some((index, config.as_ref()?)))
    }

    /// The newest configuration that is not newer than `txg`. Labels without a txg (spares, cache devices, vdevs that
    /// were never synced) count as the oldest.
    pub fn config(&self, txg: u64) -> Option<&NvList> {
        let mut best: Option<(u64, &NvList)> = None;
        for (_, config) in self.configs() {
            let at = config.u64("txg").unwrap_or(0);
            if at <= txg && best.is_none_or(|(best_txg, _)| at > best_txg) {
                best = Some((at, config));
            }
        }
        best.map(|(_, config)| config)
    }

    /// The newest configuration.
    pub fn newest_config(&self) -> Option<&NvList> {
        self.config(u64::MAX)
    }

    /// All uberblocks with a good checksum, in the order of labels and slots.
    pub fn uberblocks(&self, ashift: u32) -> Vec<FoundUberblock> {
        let ring = Ring::new(ashift);
        let mut found = Vec::new();
        for (index, bytes) in self.rings.iter().enumerate() {
            let Some(bytes) = bytes else { continue };
            let start = label::label_offset(self.device_bytes, index);
            for (slot, bytes) in bytes.chunks_exact(ring.slot_bytes()).enumerate() {
                let slot = slot as u64;
                if let Ok(uberblock) = Uberblock::decode(bytes)
                    && verified(bytes, start + ring.slot_offset(slot))
                {
                    found.push(FoundUberblock { label: index, slot, uberblock });
                }
            }
        }
        found
    }
}

/// Packs a configuration as a label has it; the checksum is added per place.
fn pack(config: &NvList, name: &str) -> Result<Vec<u8>> {
    let mut bytes = config.encode_xdr();
    if bytes.len() > label::CONFIG_NVLIST_BYTES {
        bail!(NameTooLong, "{name}: the pool's configuration has {} bytes, too many for a label", bytes.len());
    }
    bytes.resize(label::CONFIG_BYTES, 0);
    Ok(bytes)
}

fn io_error(disk: &dyn Disk, cause: &std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("{}: label: {cause}", disk.name()))
}

/// Writes all four labels of a new device: configuration, an empty boot environment, an empty ring.
pub fn init_labels(disk: &dyn Disk, config: &NvList) -> Result<()> {
    let packed = pack(config, disk.name())?;
    if label::data_bytes(disk.size_bytes()).is_none() {
        bail!(Invalid, "{}: too small for labels", disk.name());
    }
    let boot = label::BOOT_ENVIRONMENT_OFFSET as usize;
    let (config_at, ring_at) = (label::CONFIG_OFFSET as usize, label::RING_OFFSET as usize);
    for index in 0..LABELS {
        let start = label::label_offset(disk.size_bytes(), index);
        let mut bytes = vec![0; label::LABEL_BYTES as usize];
        seal(&mut bytes[boot..config_at], start + label::BOOT_ENVIRONMENT_OFFSET);
        bytes[config_at..ring_at].copy_from_slice(&packed);
        seal(&mut bytes[config_at..ring_at], start + label::CONFIG_OFFSET);
        // The first 8 KiB are not ours: a partition table or a boot block may be there.
        disk.write_at(&bytes[boot..], start + label::BOOT_ENVIRONMENT_OFFSET).map_err(|e| io_error(disk, &e))?;
    }
    flush_disk(disk)
}

/// Makes durable what was written to the labels of a device that no open pool has: a failure is nobody else's.
pub fn flush_disk(disk: &dyn Disk) -> Result<()> {
    disk.flush().map_err(|cause| io_error(disk, &cause))
}

/// Overwrites what is a label with zeros, and leaves alone what stands in the place of one. The room in front of each, for a partition table and a
/// boot environment, stays as it is.
pub fn clear_labels(disk: &dyn Disk) -> Result<()> {
    overwrite_labels(disk, &DeviceLabels::read(disk), None)
}

/// Makes the labels of a device that left its pool say so: as those of a new device they are of txg 0, without an uberblock, and no pool is found by
/// them. What it was stays to be read, as OpenZFS leaves it. Labels that cannot be read are cleared.
pub fn retire_labels(disk: &dyn Disk) -> Result<()> {
    let labels = DeviceLabels::read(disk);
    let left = labels.newest_config().cloned().map(|mut config| {
        config.set("txg", 0);
        config.set("create_txg", 0);
        config
    });
    overwrite_labels(disk, &labels, left.as_ref())
}

/// Writes a configuration, or none, and an empty ring where a label is.
fn overwrite_labels(disk: &dyn Disk, labels: &DeviceLabels, config: Option<&NvList>) -> Result<()> {
    if label::data_bytes(disk.size_bytes()).is_none() {
        bail!(Invalid, "{}: too small for labels", disk.name());
    }
    let packed = config.map(|config| pack(config, disk.name())).transpose()?;
    for (index, _) in labels.configs().chain(labels.unsealed()) {
        let at = label::label_offset(disk.size_bytes(), index) + label::CONFIG_OFFSET;
        let mut bytes = vec![0; (label::LABEL_BYTES - label::CONFIG_OFFSET) as usize];
        if let Some(packed) = &packed {
            bytes[..label::CONFIG_BYTES].copy_from_slice(packed);
            seal(&mut bytes[..label::CONFIG_BYTES], at);
        }
        disk.write_at(&bytes, at).map_err(|e| io_error(disk, &e))?;
    }
    flush_disk(disk)
}

/// What [`sync_labels`] writes.
pub struct LabelSync<'a> {
    /// The uberblock; its txg decides the slot.
    pub uberblock: &'a Uberblock,
    /// The vdevs whose description changed.
    pub dirty: &'a [Arc<TopVdev>],
    /// The vdevs that get the uberblock.
    pub uberblock_tops: &'a [Arc<TopVdev>],
    /// Multihost protection keeps a slot for itself.
    pub multihost: bool,
    /// The configuration that a leaf's label gets.
    pub config: &'a dyn Fn(&TopVdev, &Leaf) -> NvList,
}

/// Commits a txg: everything it wrote must have been flushed. If it fails it can be called again.
#[doc(alias = "vdev_config_sync")]
pub fn sync_labels(sync: &LabelSync<'_>) -> Result<()> {
    sync_config(sync, 0)?;
    sync_uberblock(sync)?;
    sync_config(sync, 1)
}

/// One device of a vdev, and what its labels are to get.
struct LabelWrite {
    /// Index in the vdevs that are written.
    top: usize,
    /// The number of its leaf in that vdev.
    number: u32,
    leaf: Arc<Leaf>,
    ashift: u32,
    disk: DiskRef,
    bytes: Vec<u8>,
}

/// The vdevs that are there, and how they were before anything was written.
fn with_marks(tops: &[Arc<TopVdev>]) -> Vec<(Arc<TopVdev>, FlushMark)> {
    tops.iter().filter(|top| !top.is_placeholder()).map(|top| (top.clone(), top.flush_mark())).collect()
}

/// What each device that is there is to get, as `bytes` says.
fn writes_to(tops: &[(Arc<TopVdev>, FlushMark)], bytes: impl Fn(&TopVdev, &Leaf) -> Result<Vec<u8>>) -> Result<Vec<LabelWrite>> {
    let mut writes = Vec::new();
    for (at, (top, _)) in tops.iter().enumerate() {
        for leaf in &top.members().leaves {
            if let Some(disk) = leaf.disk().filter(|_| leaf.is_open()) {
                writes.push(LabelWrite { top: at, number: leaf.number(), leaf: leaf.clone(), ashift: top.ashift(), disk, bytes: bytes(top, leaf)? });
            }
        }
    }
    Ok(writes)
}

/// Writes to all devices, to one beside the other if they take long.
fn write_each<R: Send + 'static>(
    tops: &[(Arc<TopVdev>, FlushMark)],
    writes: Vec<LabelWrite>,
    write: impl Fn(&mut LabelWrite) -> R + Send + Sync + 'static,
) -> Vec<(LabelWrite, R)> {
    let crew = tops.iter().find_map(|(top, _)| top.beside_writes());
    Executor::map_with(crew.as_ref(), writes, move |mut label| {
        let result = write(&mut label);
        (label, result)
    })
}

/// Writes the even (0, 2) or odd (1, 3) labels of the vdevs that changed, and flushes them. A vdev of which no device
/// could be written is an error, unless it is a log.
fn sync_config(sync: &LabelSync<'_>, parity: usize) -> Result<()> {
    let mut tops = with_marks(sync.dirty);
    let writes = writes_to(&tops, |top, leaf| pack(&(sync.config)(top, leaf), leaf.name()))?;
    let written = write_each(&tops, writes, move |write| write_configs(&*write.disk, &mut write.bytes, parity));
    let mut good = vec![0; tops.len()];
    let mut last: Vec<Error> = tops.iter().map(|(top, _)| error!(NoDevice, "vdev {}: no device can be written", top.id())).collect();
    for (write, result) in written {
        match result {
            Ok(()) => good[write.top] += 1,
            Err(cause) => {
                last[write.top] = note_failure(&write.leaf, &*write.disk, &cause);
                tops[write.top].1.leave_out(write.number);
            }
        }
    }
    for (((top, _), good), last) in tops.iter().zip(good).zip(last) {
        if good == 0 && !top.is_log() {
            return Err(last);
        }
    }
    flush(&tops)
}

/// Writes one configuration to two labels. One that was written is enough: either tells what is needed.
fn write_configs(disk: &dyn Disk, packed: &mut [u8], parity: usize) -> std::io::Result<()> {
    let mut result = Err(std::io::Error::other("no label"));
    for index in (parity..LABELS).step_by(2) {
        let at = label::label_offset(disk.size_bytes(), index) + label::CONFIG_OFFSET;
        seal(packed, at);
        let written = disk.write_at(packed, at);
        if written.is_ok() || result.is_err() {
            result = written;
        }
    }
    result
}

/// Writes the uberblock to all four labels of all devices of some vdevs, and flushes them. One that was written on a
/// vdev that is in use already is enough, if that is not for the log: a pool is imported without those.
fn sync_uberblock(sync: &LabelSync<'_>) -> Result<()> {
    let mut tops = with_marks(sync.uberblock_tops);
    let writes = writes_to(&tops, |top, _| {
        let mut bytes = vec![0; Ring::new(top.ashift()).slot_bytes()];
        bytes[..Uberblock::BYTES].copy_from_slice(&sync.uberblock.encode());
        Ok(bytes)
    })?;
    let (txg, multihost) = (sync.uberblock.txg, sync.multihost);
    let written = write_each(&tops, writes, move |write| {
        let ring = Ring::new(write.ashift);
        write_ring(&*write.disk, &write.bytes, ring.slot_offset(ring.slot_of(txg, multihost)), 0..LABELS)
    });
    let (mut good, mut last) = (0, error!(NoDevice, "uberblock: no device can be written"));
    let mut without = vec![Vec::new(); tops.len()];
    let mut anywhere = vec![false; tops.len()];
    for (write, (labels, failures)) in written {
        for cause in failures {
            last = note_failure(&write.leaf, &*write.disk, &cause);
        }
        let (top, _) = &tops[write.top];
        if top.metaslab_array() != 0 && !top.is_log() {
            good += labels;
        }
        match labels {
            0 => without[write.top].push(write.number),
            _ => anywhere[write.top] = true,
        }
    }
    // Of a vdev where nobody has it, others do.
    for (((_, mark), without), _) in tops.iter_mut().zip(without).zip(anywhere).filter(|(_, anywhere)| *anywhere) {
        without.into_iter().for_each(|number| mark.leave_out(number));
    }
    if good == 0 {
        return Err(last);
    }
    flush(&tops)
}

/// Writes an uberblock over the one of its group, in all labels of all devices that are there, and flushes them: two labels first, and then the others, so that always one is
/// whole. Where a device could not be written the old one is found, which is older than those of the others.
///
/// # Errors
/// Those of the devices, if the others are not enough.
pub fn write_uberblock_everywhere(uberblock: &Uberblock, tops: &[Arc<TopVdev>], multihost: bool) -> Result<()> {
    for parity in [0, 1] {
        let mut tops = with_marks(tops);
        for (top, mark) in &mut tops {
            let ring = Ring::new(top.ashift());
            let mut bytes = vec![0; ring.slot_bytes()];
            bytes[..Uberblock::BYTES].copy_from_slice(&uberblock.encode());
            for leaf in top.leaves().iter().filter(|leaf| leaf.is_open()) {
                let Some(disk) = leaf.disk() else { continue };
                let labels = (parity..LABELS).step_by(2);
                let (_, failures) = write_ring(&*disk, &bytes, ring.slot_offset(ring.slot_of(uberblock.txg, multihost)), labels);
                if let Some(cause) = failures.first() {
                    tracing::warn!("{}", note_failure(leaf, &*disk, cause));
                    mark.leave_out(leaf.number());
                }
            }
        }
        flush(&tops)?;
    }
    Ok(())
}

/// Writes an uberblock to its slot in these labels; returns how many have it, and why others have not.
fn write_ring(disk: &dyn Disk, bytes: &[u8], slot: u64, indices: impl Iterator<Item = usize>) -> (usize, Vec<std::io::Error>) {
    let mut bytes = bytes.to_vec();
    let (mut labels, mut failures) = (0, Vec::new());
    for index in indices {
        let at = label::label_offset(disk.size_bytes(), index) + slot;
        seal(&mut bytes, at);
        match disk.write_at(&bytes, at) {
            Ok(()) => labels += 1,
            Err(cause) => failures.push(cause),
        }
    }
    (labels, failures)
}

/// Writes an uberblock to all rings of a device that is no part of the tree: other programs tell by it what the device is used for.
///
/// # Errors
/// A ring could not be written.
pub fn write_uberblock(disk: &dyn Disk, ashift: u32, uberblock: &Uberblock) -> Result<()> {
    let ring = Ring::new(ashift);
    let mut bytes = vec![0; ring.slot_bytes()];
    bytes[..Uberblock::BYTES].copy_from_slice(&uberblock.encode());
    match write_ring(disk, &bytes, ring.slot_offset(ring.slot_of(uberblock.txg, false)), 0..LABELS) {
        (_, failures) if failures.is_empty() => flush_disk(disk),
        (_, failures) => Err(io_error(disk, &failures[0])),
    }
}

/// Gives all rings of a device what is in the first one: where a device has grown, its last labels are in another place, and nothing is there yet.
#[doc(alias = "vdev_copy_uberblocks")]
pub fn spread_uberblocks(disk: &dyn Disk, ashift: u32) -> Result<()> {
    let ring = Ring::new(ashift);
    let found = DeviceLabels::read(disk).uberblocks(ashift);
    for first in found.iter().filter(|found| found.label == 0) {
        let mut bytes = vec![0; ring.slot_bytes()];
        bytes[..Uberblock::BYTES].copy_from_slice(&first.uberblock.encode());
        let has = |index: usize| found.iter().any(|other| (other.label, other.slot) == (index, first.slot) && other.uberblock == first.uberblock);
        let (_, failures) = write_ring(disk, &bytes, ring.slot_offset(first.slot), (1..LABELS).filter(|index| !has(*index)));
        if let Some(cause) = failures.first() {
            return Err(io_error(disk, cause));
        }
    }
    flush_disk(disk)
}

/// Writes a heartbeat of multihost protection: an uberblock in the last slot of the ring of one label, or of all. It is durable when the device was
/// flushed.
pub fn write_heartbeat(disk: &dyn Disk, ashift: u32, uberblock: &Uberblock, label: Option<usize>) -> Result<()> {
    let ring = Ring::new(ashift);
    if label::data_bytes(disk.size_bytes()).is_none() {
        bail!(Invalid, "{}: too small for labels", disk.name());
    }
    let mut bytes = vec![0; ring.slot_bytes()];
    bytes[..Uberblock::BYTES].copy_from_slice(&uberblock.encode());
    for index in (0..LABELS).filter(|index| label.is_none_or(|label| label == *index)) {
        let at = label::label_offset(disk.size_bytes(), index) + ring.slot_offset(ring.slots() - 1);
        seal(&mut bytes, at);
        disk.write_at(&bytes, at).map_err(|cause| io_error(disk, &cause))?;
    }
    Ok(())
}

fn note_failure(leaf: &Leaf, disk: &dyn Disk, cause: &std::io::Error) -> Error {
    leaf.stats.write_errors.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    io_error(disk, cause)
}

/// Makes durable what was written, on one vdev beside the other if that takes long.
fn flush(written: &[(Arc<TopVdev>, FlushMark)]) -> Result<()> {
    let crew = written.iter().find_map(|(top, _)| top.beside_flushes());
    let flushed = Executor::map_with(crew.as_ref(), written.to_vec(), |(top, mark)| top.flush_since(&mark));
    let failed = |(result, (top, _)): (Result<()>, &(Arc<TopVdev>, FlushMark))| if top.is_log() { Ok(()) } else { result };
    flushed.into_iter().zip(written).try_for_each(failed)
}
