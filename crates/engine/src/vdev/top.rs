//! A top-level vdev: its leaves, and how bytes lie on them.
//!
//! It does no I/O of data: it says what an I/O is in I/Os of its leaves ([`TopVdev::io_map`]), which zio makes.

use super::map::{Hold, IoMap, LeafId, Position, View, Wanted};
use super::members::Sitting;
use super::{Bias, Gate, IndirectMap, Layout, Leaf, Members, Moves, Moving, VdevConfig, VdevKind, VdevState, key};
use super::config::RAIDZ_PARITY_MAX;
use crate::error::{Error, Result};
use crate::sync::Executor;
use crate::{bail, error};
use ondisk::indirect::Mapping;
use ondisk::label;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::ops::{Deref, Range};
use std::sync::{Arc, OnceLock};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// A top-level vdev. Offsets are those of DVAs, in bytes.
pub struct TopVdev {
    /// immutable
    id: u64,
    /// immutable
    ashift: u32,
    /// immutable
    is_placeholder: bool,
    /// guarded by: itself; taken before `config`
    members: RwLock<Arc<Members>>,
    /// The number of the next leaf.
    next_number: AtomicU32,
    /// guarded by: itself
    config: RwLock<VdevConfig>,
    /// The size in `config`, for the checks of each I/O.
    asize: AtomicU64,
    /// Its labels have to be written.
    config_dirty: AtomicBool,
    /// Where things are that were here, of a removed vdev; of one that is being removed, what has been copied so far. guarded by: itself
    map: RwLock<Option<Arc<IndirectMap>>>,
    /// Ranges of the map that were freed and are not noted on disk yet: offset and length. guarded by: itself
    obsolete: Mutex<Vec<(u64, u64)>>,
    /// Of a vdev that is being removed: bytes that were freed before they were copied, since this was last asked.
    uncopied: AtomicU64,
    /// Where writers wait when no leaf takes a write. Set when it joins a tree.
    gate: OnceLock<Arc<Gate>>,
    /// What it is for. Set when it is made, or when its ZAP is read.
    bias: OnceLock<Bias>,
    /// Of RAID-Z, whose sectors move when it gets a device more.
    moves: Option<Arc<Moves>>,
    /// Of those with parity: devices that are too slow for readers.
    sitting: Option<Sitting>,
    /// Of others: writes that are under way, for a rebuild, which must not write over what is newer.
    writes: Arc<Moves>,
}

impl TopVdev {
    /// A top-level vdev of these leaves, in the order of `config`.
    pub(super) fn new(config: VdevConfig, leaves: Vec<Arc<Leaf>>) -> TopVdev {
        let ashift = u32::try_from(config.number(key::ASHIFT)).unwrap_or(0);
        TopVdev {
            id: config.id,
            ashift,
            is_placeholder: config.kind.is_placeholder(),
            next_number: AtomicU32::new(leaves.len() as u32),
            moves: (config.kind == VdevKind::Raidz).then(Arc::default),
            writes: Arc::default(),
            sitting: matches!(config.kind, VdevKind::Raidz | VdevKind::Draid).then(Sitting::default),
            members: RwLock::new(Arc::new(Members::new(&config, leaves))),
            asize: AtomicU64::new(config.number(key::ASIZE)),
            config: RwLock::new(config),
            config_dirty: AtomicBool::new(false),
            map: RwLock::default(),
            obsolete: Mutex::default(),
            uncopied: AtomicU64::new(0),
            gate: OnceLock::new(),
            bias: OnceLock::new(),
        }
    }

    /// A vdev that was removed: it has this description, and no devices.
    pub fn of_removed(config: VdevConfig) -> TopVdev {
        TopVdev::new(config, Vec::new())
    }

    /// It belongs to a tree.
    pub(super) fn set_gate(&self, gate: &Arc<Gate>) {
        let _ = self.gate.set(gate.clone());
    }

    /// No leaf took a write: waits until it is worth trying again. `false`: it is not.
    pub fn wait_after(&self, error: &crate::error::Error) -> bool {
        self.gate.get().is_some_and(|gate| gate.wait_after(error))
    }

    /// Refuses a write of a pool that another host may have.
    ///
    /// # Errors
    /// It may.
    pub(crate) fn check_not_ended(&self) -> Result<()> {
        if self.gate.get().is_some_and(|gate| gate.is_ended()) {
            bail!(Suspended, "vdev {}: nothing is written any more, as another host may have taken the pool", self.id);
        }
        Ok(())
    }

    /// Where things are that were here, of a removed vdev; of one that is being removed, what has been copied so far.
    pub fn map(&self) -> Option<Arc<IndirectMap>> {
        self.map.read().clone()
    }

    /// Says where things are that were here; `None`: it is not being removed any more.
    pub fn set_map(&self, map: Option<IndirectMap>) {
        *self.map.write() = map.map(Arc::new);
    }

    /// More has been copied of this vdev, which is being removed. In the sync thread.
    ///
    /// # Errors
    /// It is out of order.
    pub fn extend_map(&self, runs: &[Mapping]) -> Result<()> {
        let mut map = self.map.write();
        let map = Arc::make_mut(map.get_or_insert_default());
        runs.iter().try_for_each(|run| map.push(*run))
    }

    /// Is what it has being copied to others? Nothing new comes to it.
    pub fn is_removing(&self) -> bool {
        self.config.read().number(key::REMOVING) != 0
    }

    /// Bytes of this vdev, which is being removed, were freed before they were copied.
    pub fn note_uncopied(&self, bytes: u64) {
        self.uncopied.fetch_add(bytes, Relaxed);
    }

    /// Has [`TopVdev::take_uncopied`] something?
    pub fn has_uncopied(&self) -> bool {
        self.uncopied.load(Relaxed) != 0
    }

    /// What need not be copied any more, since this was last asked.
    pub fn take_uncopied(&self) -> u64 {
        self.uncopied.swap(0, Relaxed)
    }

    /// A range of the map of this vdev is no longer needed.
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

    /// What it consists of now.
    pub fn members(&self) -> Arc<Members> {
        self.members.read().clone()
    }

    /// A number that no leaf of it has had.
    pub(super) fn take_number(&self) -> u32 {
        self.next_number.fetch_add(1, Relaxed)
    }

    /// Its guid.
    pub fn guid(&self) -> u64 {
        self.members.read().guid
    }

    /// What it is.
    pub fn kind(&self) -> VdevKind {
        self.members.read().kind.clone()
    }

    /// Whether it only keeps a number taken.
    pub fn is_placeholder(&self) -> bool {
        self.is_placeholder
    }

    /// Whether it is for the intent log alone.
    pub fn is_log(&self) -> bool {
        self.config.read().flag(key::IS_LOG)
    }

    /// What it is for, as far as that is known: of all but logs its ZAP says so.
    pub fn bias(&self) -> Bias {
        let default = || if self.is_log() { Bias::Log } else { Bias::None };
        self.bias.get().copied().unwrap_or_else(default)
    }

    /// Says what it is for; the first time counts.
    pub fn set_bias(&self, bias: Bias) {
        let _ = self.bias.set(bias);
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
    pub fn leaves(&self) -> Vec<Arc<Leaf>> {
        self.members.read().leaves.clone()
    }

    /// How bytes lie on its leaves, and what they take there.
    pub fn layout(&self) -> impl Deref<Target = Layout> {
        RwLockReadGuard::map(self.members.read(), |members| &members.layout)
    }

    /// How it is: as good as what its leaves can do together.
    pub fn state(&self) -> VdevState {
        if self.is_placeholder() {
            return if self.kind() == VdevKind::Missing { VdevState::Unavailable } else { VdevState::Online };
        }
        let members = self.members();
        let (columns, parity) = members.layout.columns();
        // A column without a device is a distributed spare that stays for good.
        let has_spares = members.layout.has_whole_spares();
        let of_column = |leaves: &Vec<u32>| match leaves.as_slice() {
            [] if has_spares => VdevState::Online,
            [] => VdevState::Unavailable,
            leaves => state_of_same(leaves.iter().filter_map(|leaf| members.leaf(*leaf)).map(|leaf| leaf.state())),
        };
        match state_of_columns(columns.iter().map(of_column), parity) {
            // Distributed spares have what is missing.
            VdevState::Unavailable if members.layout.tolerates(&|leaves| !of_column(leaves).is_readable()) => VdevState::Degraded,
            state => state,
        }
    }

    /// What a read of `length` bytes at `offset` is in I/Os of its leaves, of a block that was written in the group `birth`.
    ///
    /// # Errors
    /// It has no devices, or not so much space.
    pub fn io_map(&self, offset: u64, length: usize, birth: u64) -> Result<IoMap> {
        self.map_of(Wanted { offset, length, birth }, false)
    }

    /// What a write of `length` bytes at `offset` is in I/Os of its leaves, of a block of the group `birth`.
    ///
    /// # Errors
    /// As for [`TopVdev::io_map`].
    pub fn write_map(&self, offset: u64, length: usize, birth: u64) -> Result<IoMap> {
        self.map_of(Wanted { offset, length, birth }, true)
    }

    fn map_of(&self, wanted: Wanted, writes: bool) -> Result<IoMap> {
        if self.is_placeholder() {
            bail!(NoDevice, "vdev {}: {}", self.id, self.kind());
        }
        let Wanted { offset, length, .. } = wanted;
        if offset.checked_add(length as u64).is_none_or(|end| end > self.asize()) {
            bail!(Io, "vdev {}: {length} bytes at {offset:#x} are past its end", self.id);
        }
        let Some(moves) = &self.moves else {
            let hold = if writes { self.writes.enter(|| self.range_of(&wanted)).1 } else { Hold::default() };
            let mut map = self.layout().map_while(&wanted, None, writes);
            map.hold = hold;
            return Ok(map);
        };
        // Not more than with as much parity as data, in whole sectors.
        let most = || (length as u64 + (1 << self.ashift)).saturating_mul(RAIDZ_PARITY_MAX as u64 + 1);
        let (reflow, hold) = moves.enter(|| offset..offset.saturating_add(most()));
        let mut map = self.layout().map_while(&wanted, reflow, writes);
        map.hold = hold;
        Ok(map)
    }

    /// What a write has of the vdev.
    fn range_of(&self, wanted: &Wanted) -> Range<u64> {
        let allocated = self.layout().allocated_size(wanted.length as u64, wanted.birth);
        wanted.offset..wanted.offset.saturating_add(allocated)
    }

    /// Keeps writes of a range away, as soon as none is under way: what was read there may be written then. `None`: there were some all the time.
    pub fn hold_writes(&self, range: Range<u64>) -> Option<Moving<'_>> {
        self.writes.begin(range)
    }

    /// Nobody will hold writes for now: until then they are only counted.
    pub fn release_writes(&self) {
        self.writes.rest();
    }

    /// Where its sectors are moved, if they ever are.
    pub fn moves(&self) -> Option<&Arc<Moves>> {
        self.moves.as_ref()
    }

    /// One of its leaves.
    ///
    /// # Errors
    /// There is none of that number, or none any more.
    pub fn leaf(&self, id: LeafId) -> Result<Arc<Leaf>> {
        self.members.read().leaf(id.leaf).cloned().ok_or_else(|| error!(NoDevice, "vdev {}: no device {}", self.id, id.leaf))
    }

    /// One of its leaves that can be written.
    ///
    /// # Errors
    /// There is none of that number, or no device.
    pub fn open_leaf(&self, id: LeafId) -> Result<Arc<Leaf>> {
        let leaf = self.leaf(id)?;
        if !leaf.is_open() {
            bail!(NoDevice, "vdev {}: {} cannot be written: {}", self.id, leaf.name(), leaf.state());
        }
        Ok(leaf)
    }

    /// What is known of a leaf, for a read of what was written in the group `birth`.
    pub fn view(&self, id: LeafId, birth: u64) -> View {
        let gone = View { readable: false, ..View::IDLE };
        self.members.read().leaf(id.leaf).map_or(gone, |leaf| leaf.view(birth))
    }

    /// Can be read again what was written to these sides? Then the leaves that failed have missed it. Nothing comes or goes meanwhile.
    pub fn settle_write(&self, map: &IoMap, done: &[(Position, Result<()>)]) -> bool {
        let members = self.members.read();
        let leaf = |at: Position| members.leaf(map.at(at).1.leaf.leaf);
        let is_written = map.is_written(|at| leaf(at).is_some() && done.iter().any(|(other, done)| *other == at && done.is_ok()));
        if is_written {
            done.iter().filter(|(_, done)| done.is_err()).filter_map(|(at, _)| leaf(*at)).for_each(|leaf| leaf.note_missed_write());
        }
        is_written
    }

    /// Both that change together, locked.
    pub(super) fn lock_to_exchange(&self) -> (RwLockWriteGuard<'_, Arc<Members>>, RwLockWriteGuard<'_, VdevConfig>) {
        (self.members.write(), self.config.write())
    }

    /// Notes the size in its description, for the checks of each I/O.
    pub(super) fn note_size(&self, config: &VdevConfig) {
        self.asize.store(config.number(key::ASIZE), Relaxed);
    }

    /// What it consists of, which stays while the guard lives.
    pub(super) fn fixed_members(&self) -> RwLockReadGuard<'_, Arc<Members>> {
        self.members.read()
    }

    pub(super) fn no_device(&self, done: &str) -> Error {
        error!(NoDevice, "vdev {}: no device can be {done}", self.id)
    }

    /// A read of it has ended.
    pub fn after_read(&self) {
        if let Some(sitting) = &self.sitting {
            sitting.after_read(self);
        }
    }

    /// Whether devices that are far slower than the others are left out of reads by themselves. `false`: it is no vdev with parity.
    pub fn set_autosit(&self, is_automatic: bool) -> bool {
        self.sitting.as_ref().inspect(|sitting| sitting.set_automatic(is_automatic)).is_some()
    }

    /// Leaves a device out of reads, as far as there is parity for it, until this is called again.
    ///
    /// # Errors
    /// `NotSupported`: it is no vdev with parity. `Busy`: no more devices can be left out.
    pub fn sit_out(&self, leaf: &Leaf, sits_out: bool) -> Result<()> {
        let Some(sitting) = &self.sitting else { bail!(NotSupported, "operation not supported on this type of vdev") };
        sitting.set(&self.members(), leaf, sits_out)
    }

    /// The threads for several reads at a time, if one of the devices is slow enough for that.
    pub fn beside_reads(&self) -> Option<Arc<Executor>> {
        self.members.read().leaves.iter().find_map(|leaf| leaf.traffic.beside_reads().cloned())
    }

    /// The threads for several writes at a time, if one of the devices is slow enough for that.
    pub fn beside_writes(&self) -> Option<Arc<Executor>> {
        self.members.read().leaves.iter().find_map(|leaf| leaf.traffic.beside_writes().cloned())
    }

    /// Is it worth while to prepare places on one of the leaves? Places of RAID-Z are those of blocks, with the parity of each.
    pub fn gains_by_preparing(&self) -> bool {
        let members = self.members.read();
        !members.layout.has_parity() && members.leaves.iter().any(|leaf| leaf.gains_by_preparing())
    }

    /// Looks whether the devices are larger than they were; the labels at the end of those that are have to be written anew. Whether some are.
    pub fn look_at_sizes(&self) -> bool {
        let mut has_grown = false;
        for disk in self.leaves().iter().filter(|leaf| leaf.is_open()).filter_map(|leaf| leaf.disk()) {
            let before = disk.size_bytes();
            disk.look_at_size();
            has_grown |= disk.size_bytes() > before;
        }
        has_grown
    }

    /// Gives the labels at the end of devices that have grown what the others have.
    pub fn spread_uberblocks(&self) {
        for disk in self.leaves().iter().filter(|leaf| leaf.is_open()).filter_map(|leaf| leaf.disk()) {
            if let Err(error) = super::label::spread_uberblocks(&*disk, self.ashift()) {
                tracing::warn!("{error}");
            }
        }
    }

    /// How much larger it could be, as its devices are.
    #[doc(alias = "vs_esize")]
    pub fn expandable(&self) -> u64 {
        self.asize_max().saturating_sub(self.asize())
    }

    /// The largest size that all leaves have room for. While one is not there the vdev stays as large as it is: one that is smaller
    /// could not come back.
    pub fn asize_max(&self) -> u64 {
        let members = self.members.read();
        if members.leaves.iter().any(|leaf| !leaf.is_open()) {
            return self.asize();
        }
        // One that was closed since has none.
        let sizes = members.leaves.iter().map(|leaf| label::data_bytes(leaf.device_bytes()).unwrap_or(0));
        members.layout.asize_of(sizes.min().unwrap_or(0))
    }
}

/// What holds the same on all its members is online if they are, and degraded while one can still be read.
pub(super) fn state_of_same(members: impl Iterator<Item = VdevState> + Clone) -> VdevState {
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

/// Columns are online if all are, and degraded while no more of them cannot be read than there is parity. One column is what it is.
pub(super) fn state_of_columns(columns: impl Iterator<Item = VdevState> + Clone, parity: usize) -> VdevState {
    if columns.clone().count() == 1 {
        return columns.max().unwrap_or(VdevState::Unavailable);
    }
    if columns.clone().all(|state| state == VdevState::Online) {
        VdevState::Online
    } else if columns.filter(|state| !state.is_readable()).count() <= parity {
        VdevState::Degraded
    } else {
        VdevState::Unavailable
    }
}
