//! A top-level vdev: a set of leaves that hold the same bytes.

use super::{Gate, IndirectMap, Leaf, VdevConfig, VdevKind, VdevState, key, mirror};
use crate::error::{Error, Result};
use crate::host::{HostRef, on_each};
use crate::{bail, error};
use ondisk::label;
use parking_lot::{Mutex, RwLock};
use std::sync::{Arc, OnceLock};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// A top-level vdev. Offsets are those of DVAs, in bytes.
pub struct TopVdev {
    /// immutable
    id: u64,
    /// immutable
    guid: u64,
    /// immutable
    kind: VdevKind,
    /// immutable
    ashift: u32,
    /// immutable
    leaves: Vec<Arc<Leaf>>,
    /// guarded by: itself
    config: RwLock<VdevConfig>,
    /// The size in `config`, for the checks of each I/O.
    asize: AtomicU64,
    /// Its labels have to be written.
    config_dirty: AtomicBool,
    /// Where things are that were here, of a removed vdev. Set when the pool is opened.
    map: OnceLock<IndirectMap>,
    /// Ranges of a removed vdev that were freed and are not noted on disk yet: offset and length. guarded by: itself
    obsolete: Mutex<Vec<(u64, u64)>>,
    /// Where writers wait when no leaf takes a write. Set when it joins a tree.
    gate: OnceLock<Arc<Gate>>,
}

impl TopVdev {
    /// A top-level vdev of these leaves, in the order of `config`.
    pub(super) fn new(config: VdevConfig, leaves: Vec<Arc<Leaf>>) -> TopVdev {
        TopVdev {
            id: config.id,
            guid: config.guid,
            kind: config.kind.clone(),
            ashift: u32::try_from(config.number(key::ASHIFT)).unwrap_or(0),
            leaves,
            asize: AtomicU64::new(config.number(key::ASIZE)),
            config: RwLock::new(config),
            config_dirty: AtomicBool::new(false),
            map: OnceLock::new(),
            obsolete: Mutex::default(),
            gate: OnceLock::new(),
        }
    }

    /// It belongs to a tree.
    pub(super) fn set_gate(&self, gate: &Arc<Gate>) {
        let _ = self.gate.set(gate.clone());
    }

    /// No leaf took a write: waits until it is worth trying again. `false`: it is not.
    pub fn wait_after(&self, error: &crate::error::Error) -> bool {
        self.gate.get().is_some_and(|gate| gate.wait_after(error))
    }

    /// Where things are that were here, of a removed vdev.
    pub fn map(&self) -> Option<&IndirectMap> {
        self.map.get()
    }

    /// Says where things are that were on this removed vdev; once.
    pub fn set_map(&self, map: IndirectMap) {
        assert!(self.map.set(map).is_ok(), "the map of vdev {} was set twice", self.id);
    }

    /// A range of this removed vdev is no longer needed.
    pub fn note_obsolete(&self, offset: u64, length: u64) {
        self.obsolete.lock().push((offset, length));
    }

    /// Whether [`TopVdev::take_obsolete`] has something.
    pub fn has_obsolete(&self) -> bool {
        !self.obsolete.lock().is_empty()
    }

    /// What is no longer needed since this was last asked.
    pub fn take_obsolete(&self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.obsolete.lock())
    }

    /// Its number, as in DVAs.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Its guid.
    pub fn guid(&self) -> u64 {
        self.guid
    }

    /// What it is.
    pub fn kind(&self) -> &VdevKind {
        &self.kind
    }

    /// Whether it only keeps a number taken.
    pub fn is_placeholder(&self) -> bool {
        self.kind.is_placeholder()
    }

    /// Whether it is for the intent log alone.
    pub fn is_log(&self) -> bool {
        self.config.read().flag(key::IS_LOG)
    }

    /// log2 of its sector.
    pub fn ashift(&self) -> u32 {
        self.ashift
    }

    /// The bytes it has for data.
    pub fn asize(&self) -> u64 {
        self.asize.load(Relaxed)
    }

    /// The MOS object that is the array of its space maps; 0 before there is one.
    pub fn metaslab_array(&self) -> u64 {
        self.config.read().number(key::METASLAB_ARRAY)
    }

    /// log2 of the bytes of one of its metaslabs.
    pub fn metaslab_shift(&self) -> u32 {
        u32::try_from(self.config.read().number(key::METASLAB_SHIFT)).unwrap_or(0)
    }

    /// How many whole metaslabs there are.
    pub fn metaslab_count(&self) -> u64 {
        self.asize().checked_shr(self.metaslab_shift()).unwrap_or(0)
    }

    /// Its ZAP in the MOS; 0 if it has none.
    pub fn zap(&self) -> u64 {
        self.config.read().number(key::TOP_ZAP)
    }

    /// Its description.
    pub fn config(&self) -> VdevConfig {
        self.config.read().clone()
    }

    /// Changes its description; its labels will be written.
    pub fn update_config<T>(&self, change: impl FnOnce(&mut VdevConfig) -> T) -> T {
        let mut config = self.config.write();
        let result = change(&mut config);
        self.asize.store(config.number(key::ASIZE), Relaxed);
        self.set_config_dirty();
        result
    }

    /// Says that its labels have to be written.
    pub fn set_config_dirty(&self) {
        self.config_dirty.store(true, Relaxed);
    }

    /// Whether its labels have to be written.
    pub fn is_config_dirty(&self) -> bool {
        self.config_dirty.load(Relaxed)
    }

    /// Whether its labels had to be written; from now on they have not.
    pub fn take_config_dirty(&self) -> bool {
        self.config_dirty.swap(false, Relaxed)
    }

    /// The devices.
    pub fn leaves(&self) -> &[Arc<Leaf>] {
        &self.leaves
    }

    /// What `physical` bytes take on disk.
    pub fn allocated_size(&self, physical: u64) -> u64 {
        physical.next_multiple_of(1 << self.ashift)
    }

    /// Of how much logical space 512 allocated bytes are the place. 512 where nothing is added for parity.
    #[doc(alias = "vdev_deflate_ratio")]
    pub fn deflate_ratio(&self) -> u64 {
        const TYPICAL_BLOCK: u64 = 128 << 10;
        TYPICAL_BLOCK / (self.allocated_size(TYPICAL_BLOCK) / 512).max(1)
    }

    /// What `allocated` bytes count in quotas and statistics.
    pub fn deflated_size(&self, allocated: u64) -> u64 {
        allocated / 512 * self.deflate_ratio()
    }

    /// How it is: as good as what its leaves can do together.
    pub fn state(&self) -> VdevState {
        if self.is_placeholder() {
            return if self.kind == VdevKind::Missing { VdevState::Unavailable } else { VdevState::Online };
        }
        state_of_mirror(self.leaves.iter().map(|leaf| leaf.state()))
    }

    /// How many copies of everything there are: one on each leaf.
    pub fn copies(&self) -> usize {
        self.leaves.len()
    }

    /// Reads what was written in the group `birth` from the best leaf, and from the next if it cannot. Returns which copy it was, for
    /// [`TopVdev::note_checksum_error`] and [`TopVdev::repair_copy`].
    pub fn read(&self, offset: u64, buf: &mut [u8], birth: u64) -> Result<usize> {
        self.check(offset, buf.len())?;
        if let [leaf] = self.leaves.as_slice() {
            return leaf.read(offset, buf).map(|()| 0);
        }
        let views: Vec<_> = self.leaves.iter().map(|leaf| (leaf.has_missed(birth), leaf.view())).collect();
        let mut last = error!(NoDevice, "vdev {}: no device can be read", self.id);
        for copy in mirror::read_order(offset, &views) {
            match self.leaves[copy].read(offset, buf) {
                Ok(()) => return Ok(copy),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Reads from one leaf.
    pub fn read_copy(&self, copy: usize, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check(offset, buf.len())?;
        self.leaf(copy)?.read(offset, buf)
    }

    /// Writes to all leaves. Succeeds if one has it; the others are behind then.
    pub fn write(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.write_vectored(offset, &[buf])
    }

    /// Writes several buffers one behind the other.
    pub fn write_vectored(&self, offset: u64, bufs: &[&[u8]]) -> Result<()> {
        self.check(offset, bufs.iter().map(|b| b.len()).sum())?;
        let written = self.write_each(|leaf| leaf.write(offset, bufs));
        if written.iter().any(Result::is_ok) { Ok(()) } else { self.failure(written, "written") }
    }

    /// Does a write on each leaf, where it is to be had. If one of them has it, the others have missed it; what nobody has is written again, or needed by nobody.
    fn write_each(&self, write: impl Fn(&Leaf) -> Result<()> + Sync) -> Vec<Result<()>> {
        let one = |leaf: &Arc<Leaf>| if leaf.is_open() { write(leaf) } else { Err(self.no_device("written")) };
        let written = on_each(self.beside_writes(), &self.leaves, one);
        if written.iter().any(Result::is_ok) {
            let failed = self.leaves.iter().zip(&written).filter(|(_, written)| written.is_err());
            failed.for_each(|(leaf, _)| leaf.note_missed_write());
        }
        written
    }

    pub(super) fn no_device(&self, done: &str) -> Error {
        error!(NoDevice, "vdev {}: no device can be {done}", self.id)
    }

    /// Who starts threads for several writes at a time, if one of the devices is slow enough for that.
    pub fn beside_writes(&self) -> Option<&HostRef> {
        self.leaves.iter().find_map(|leaf| leaf.traffic.beside_writes())
    }

    /// Writes several buffers one behind the other and makes just that durable, on as many leaves as [`TopVdev::flush`] asks for.
    pub fn write_durable(&self, offset: u64, bufs: &[&[u8]]) -> Result<()> {
        self.check(offset, bufs.iter().map(|b| b.len()).sum())?;
        let mark = self.flush_mark();
        let written = self.write_each(|leaf| leaf.write_durable(offset, bufs));
        self.is_enough(&mark, written, "written")
    }

    /// Writes good data over a copy that was found bad.
    pub fn repair_copy(&self, copy: usize, offset: u64, buf: &[u8]) -> Result<()> {
        self.check(offset, buf.len())?;
        self.leaf(copy)?.write(offset, &[buf])
    }

    /// Counts a block that one leaf gave back wrong.
    pub fn note_checksum_error(&self, copy: usize) {
        if let Some(leaf) = self.leaves.get(copy) {
            leaf.note_checksum_error();
        }
    }

    /// Is it worth while to prepare places on one of the leaves?
    pub fn gains_by_preparing(&self) -> bool {
        self.leaves.iter().any(|leaf| leaf.gains_by_preparing())
    }

    /// Prepares a range, of which nothing is needed, for durable writes. What fails is met again by who writes there.
    pub fn prepare(&self, offset: u64, length: u64) -> Result<()> {
        self.check(offset, length as usize)?;
        self.leaves.iter().filter(|leaf| leaf.is_open()).try_for_each(|leaf| leaf.prepare(offset, length))
    }

    /// Gives back space on all leaves. Best effort: errors do not matter.
    pub fn discard(&self, offset: u64, length: u64) {
        for leaf in &self.leaves {
            let _ = leaf.discard(offset, length);
        }
    }

    fn leaf(&self, copy: usize) -> Result<&Arc<Leaf>> {
        self.leaves.get(copy).ok_or_else(|| error!(Invalid, "vdev {}: no copy {copy}", self.id))
    }

    fn check(&self, offset: u64, length: usize) -> Result<()> {
        if self.is_placeholder() {
            bail!(NoDevice, "vdev {}: {}", self.id, self.kind);
        }
        match offset.checked_add(length as u64) {
            Some(end) if end <= self.asize() => Ok(()),
            _ => bail!(Io, "vdev {}: {length} bytes at {offset:#x} are past its end", self.id),
        }
    }

    /// The largest size that all leaves which are there have room for.
    pub fn asize_max(&self) -> u64 {
        let sizes = self.leaves.iter().filter(|leaf| leaf.is_open());
        sizes.filter_map(|leaf| label::data_bytes(leaf.device_bytes())).min().unwrap_or(0)
    }
}

/// A mirror is online if all its members are, and degraded while one can still be read.
pub(super) fn state_of_mirror(members: impl Iterator<Item = VdevState> + Clone) -> VdevState {
    let best = members.clone().max().unwrap_or(VdevState::Unavailable);
    if members.clone().count() == 1 {
        return best;
    }
    if members.clone().all(|state| state == VdevState::Online) {
        VdevState::Online
    } else if best.is_readable() {
        VdevState::Degraded
    } else {
        VdevState::Unavailable
    }
}
