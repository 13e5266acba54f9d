//! The clone table: references to a block beyond the first, by its address.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use ondisk::blkptr::BlkPtr;
use ondisk::brt::{COUNTS_BLOCK_BYTES, ENTRIES_BLOCK_SHIFT, RANGE_BYTES, VDEV_PREFIX, VdevPhys};
use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;
use ondisk::zap_hash::{FLAG_HASH_64, FLAG_WORD_KEYS};
use zerocopy::{FromBytes, IntoBytes};

use crate::bail;
use crate::dmu::SyncTx;
use crate::dsl::meta::key;
use crate::dsl::{Meta, Mos};
use crate::error;
use crate::error::{Result, Within};
use crate::vdev::VdevTree;
use crate::zap::{Integers, Value, Zap, ZapSpec};

/// Counts that a vdev may have: a bound for what a damaged pool can make us allocate.
const COUNTS_MAX: u64 = 1 << 28;

/// Where a block is, as the table knows it: vdev and offset.
fn address(bp: &BlkPtr) -> Option<(u32, u64)> {
    bp.first_dva().map(|dva| (dva.vdev, dva.offset))
}

/// The count in the value of an entry.
fn count_of(value: &Value, offset: u64) -> Result<u64> {
    if value.integer_size() == 8 && value.count() == 1 {
        return Ok(value.first());
    }
    match <[u8; 8]>::try_from(value.to_le_bytes().as_slice()) {
        Ok(bytes) => Ok(u64::from_le_bytes(bytes)),
        Err(_) => bail!(Corrupt, "the clone count of the block at {offset:#x} is no number"),
    }
}

/// What clones are about, in bytes on disk without the share of parity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CloneSpace {
    /// What the blocks that were cloned take.
    pub used: u64,
    /// What their clones would take besides.
    pub saved: u64,
}

/// An entry that this pass came by.
struct Live {
    count: u64,
    stored: u64,
}

/// The table of one vdev.
struct VdevTable {
    /// The array of counts; 0: the table is not on disk.
    object: u64,
    phys: VdevPhys,
    counts: Vec<u16>,
    counts_changed: bool,
    live: BTreeMap<u64, Live>,
}

impl VdevTable {
    fn open(mos: &Mos, object: u64) -> Result<VdevTable> {
        let bonus = mos.bonus(object)?;
        let Ok((phys, _)) = VdevPhys::read_from_prefix(bonus.as_slice()) else { bail!(Corrupt, "bonus of {} bytes", bonus.len()) };
        let (count, there) = (phys.counts.get(), mos.info(object)?.length / 2);
        if count > COUNTS_MAX || phys.range_bytes.get() == 0 || (count > there && phys.total.get() != 0) {
            bail!(Corrupt, "{count} counts, one for {} bytes each", phys.range_bytes);
        }
        let bytes = mos.read(object, 0, count as usize * 2)?;
        let (pairs, _) = bytes.as_chunks::<2>();
        let big_endian = phys.byte_order.get() != 0;
        let counts = pairs.iter().map(|pair| if big_endian { u16::from_be_bytes(*pair) } else { u16::from_le_bytes(*pair) });
        Ok(VdevTable { object, phys, counts: counts.collect(), counts_changed: false, live: BTreeMap::new() })
    }

    fn new(vdevs: &VdevTree, vdev: u32) -> Result<VdevTable> {
        let Some(top) = vdevs.top(vdev.into()) else { bail!(Corrupt, "there is no vdev {vdev}") };
        // As much of the vdev as whole metaslabs cover.
        let bytes = (top.asize() >> top.metaslab_shift()) << top.metaslab_shift();
        let count = bytes.div_ceil(RANGE_BYTES).max(1);
        let phys = VdevPhys { counts: count.into(), range_bytes: RANGE_BYTES.into(), ..VdevPhys::default() };
        Ok(VdevTable { object: 0, phys, counts: vec![0; count as usize], counts_changed: false, live: BTreeMap::new() })
    }

    fn range(&self, offset: u64) -> usize {
        usize::try_from(offset / self.phys.range_bytes.get()).unwrap_or(usize::MAX)
    }

    /// There may be an entry.
    fn may_have(&self, offset: u64) -> bool {
        self.live.contains_key(&offset) || self.counts.get(self.range(offset)).is_some_and(|count| *count > 0)
    }

    /// The entry, in memory; one of 0 if there is none.
    fn load(&mut self, meta: &Meta, offset: u64) -> Result<&mut Live> {
        if !self.live.contains_key(&offset) {
            let entries = self.phys.entries.get();
            let stored = if entries == 0 { None } else { meta.mos.zap(entries)?.lookup_words(&[offset])? };
            let stored = stored.map_or(Ok(0), |value| count_of(&value, offset))?;
            self.live.insert(offset, Live { count: stored, stored });
        }
        self.live.get_mut(&offset).ok_or_else(|| error!(Corrupt, "no clone count at {offset:#x}"))
    }

    /// Calls `visit` with the offset and the count of each entry on disk. What its range does not count is no entry: no free looks for it.
    fn each(&self, mos: &Mos, visit: &mut dyn FnMut(u64, u64)) -> Result<()> {
        if self.phys.entries.get() == 0 {
            return Ok(());
        }
        let entries = mos.zap(self.phys.entries.get())?;
        let mut cursor = entries.cursor_at(0)?;
        while let Some(entry) = entries.next(&mut cursor)? {
            let [offset] = entry.words()[..] else { bail!(Corrupt, "a clone count has a key of {} bytes", entry.name.len()) };
            if self.may_have(offset) {
                visit(offset, count_of(&entry.value, offset)?);
            }
        }
        Ok(())
    }

    fn add(&mut self, meta: &Meta, offset: u64, size: u64, count: u64) -> Result<()> {
        let range = self.range(offset);
        let known = self.may_have(offset);
        let live = if known {
            self.load(meta, offset)?
        } else {
            self.live.entry(offset).or_insert(Live { count: 0, stored: 0 })
        };
        let first = live.count == 0;
        live.count = live.count.saturating_add(count);
        self.phys.saved += size.saturating_mul(count);
        if first {
            self.phys.used += size;
            self.phys.total += 1;
            if self.counts.len() <= range {
                self.counts.resize(range + 1, 0);
                self.phys.counts = (range as u64 + 1).into();
            }
            let Some(more) = self.counts[range].checked_add(1) else { bail!(Corrupt, "too many clones at {offset:#x}") };
            self.counts[range] = more;
            self.counts_changed = true;
        }
        Ok(())
    }

    /// Takes a reference; `false`: there was only the first.
    fn take(&mut self, meta: &Meta, offset: u64, size: u64) -> Result<bool> {
        if !self.may_have(offset) {
            return Ok(false);
        }
        let live = self.load(meta, offset)?;
        if live.count == 0 {
            return Ok(false);
        }
        live.count -= 1;
        let last = live.count == 0;
        self.phys.saved = self.phys.saved.get().saturating_sub(size).into();
        if last {
            self.phys.used = self.phys.used.get().saturating_sub(size).into();
            self.phys.total = self.phys.total.get().saturating_sub(1).into();
            let range = self.range(offset);
            match self.counts.get_mut(range) {
                Some(count @ 1..) => *count -= 1,
                _ => bail!(Corrupt, "the clone at {offset:#x} is not in the count of its range"),
            }
            self.counts_changed = true;
        }
        Ok(true)
    }

    fn create(&mut self, meta: &Meta, vdev: u32, tx: &SyncTx<'_>) -> Result<()> {
        let mos = &meta.mos;
        let spec = ZapSpec::fat(ObjectType::ZAP_METADATA, FLAG_HASH_64 | FLAG_WORD_KEYS, ENTRIES_BLOCK_SHIFT, ENTRIES_BLOCK_SHIFT as u8);
        self.phys.entries = Zap::create(&mos.0, tx, &spec)?.object().into();
        let words = ObjectType::UINT64_METADATA;
        self.object = mos.allocate(words, COUNTS_BLOCK_BYTES, words, size_of::<VdevPhys>(), tx)?;
        mos.zap_add_u64(key::DIRECTORY, &format!("{VDEV_PREFIX}{vdev}"), self.object, tx)?;
        // The form of the entries is that of the first table.
        let features = &meta.features;
        let first = !features.is_active(Feature::BlockCloning);
        if features.is_active(Feature::BlockCloningEndian) || (first && features.is_enabled(Feature::BlockCloningEndian)) {
            features.increment(mos, Feature::BlockCloningEndian, tx)?;
        }
        features.increment(mos, Feature::BlockCloning, tx)
    }

    fn destroy(&self, meta: &Meta, vdev: u32, tx: &SyncTx<'_>) -> Result<()> {
        let mos = &meta.mos;
        mos.free(self.phys.entries.get(), tx)?;
        mos.free(self.object, tx)?;
        mos.zap_remove(key::DIRECTORY, &format!("{VDEV_PREFIX}{vdev}"), tx)?;
        meta.features.decrement(mos, Feature::BlockCloning, tx)?;
        if meta.features.is_active(Feature::BlockCloningEndian) {
            meta.features.decrement(mos, Feature::BlockCloningEndian, tx)?;
        }
        Ok(())
    }

    /// Writes what changed; `false`: nothing is left, and the table is gone.
    fn sync(&mut self, meta: &Meta, vdev: u32, tx: &SyncTx<'_>) -> Result<bool> {
        let live = std::mem::take(&mut self.live);
        if self.phys.total.get() == 0 {
            if self.object != 0 {
                self.destroy(meta, vdev, tx)?;
            }
            return Ok(false);
        }
        if self.object == 0 {
            self.create(meta, vdev, tx)?;
        }
        let mos = &meta.mos;
        let entries = mos.zap(self.phys.entries.get())?;
        let as_number = meta.features.is_active(Feature::BlockCloningEndian);
        let mut changed = false;
        for (offset, entry) in live {
            changed |= entry.count != entry.stored;
            match (entry.count, entry.stored) {
                (count, stored) if count == stored => {}
                (0, _) => entries.remove_words(tx, &[offset])?,
                (count, _) if as_number => entries.update_words(tx, &[offset], Integers::U64(&[count]))?,
                (count, _) => entries.update_words(tx, &[offset], Integers::U8(&count.to_le_bytes()))?,
            }
        }
        if std::mem::take(&mut self.counts_changed) {
            let big_endian = self.phys.byte_order.get() != 0;
            let bytes = self.counts.iter().flat_map(|count| if big_endian { count.to_be_bytes() } else { count.to_le_bytes() });
            let mut bytes: Vec<u8> = bytes.collect();
            bytes.resize(bytes.len().next_multiple_of(COUNTS_BLOCK_BYTES as usize), 0);
            mos.write(self.object, 0, &bytes, tx)?;
            changed = true;
        }
        if changed {
            mos.set_bonus(self.object, self.phys.as_bytes(), tx)?;
        }
        Ok(true)
    }
}

/// The tables of all vdevs.
#[derive(Default)]
pub(super) struct CloneTable {
    vdevs: BTreeMap<u32, VdevTable>,
}

impl CloneTable {
    pub(super) fn open(mos: &Mos) -> Result<CloneTable> {
        let mut table = CloneTable::default();
        for (name, value) in mos.zap_entries(key::DIRECTORY)? {
            if let Some(number) = name.strip_prefix(VDEV_PREFIX) {
                let Ok(vdev) = number.parse() else { bail!(Corrupt, "clone table of vdev {number:?}") };
                let opened = VdevTable::open(mos, value.first()).within(|| format!("clone table of vdev {vdev}"))?;
                table.vdevs.insert(vdev, opened);
            }
        }
        Ok(table)
    }

    pub(super) fn space(&self) -> CloneSpace {
        self.vdevs.values().fold(CloneSpace::default(), |sum, table| CloneSpace {
            used: sum.used.saturating_add(table.phys.used.get()),
            saved: sum.saved.saturating_add(table.phys.saved.get()),
        })
    }

    /// Calls `visit` with the vdev, the offset and the count of each entry on disk.
    pub(super) fn each(&self, mos: &Mos, visit: &mut dyn FnMut(u32, u64, u64)) -> Result<()> {
        for (vdev, table) in &self.vdevs {
            table.each(mos, &mut |offset, count| visit(*vdev, offset, count)).within(|| format!("clone table of vdev {vdev}"))?;
        }
        Ok(())
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.vdevs.values().any(|table| !table.live.is_empty())
    }

    /// Adds references to a block on disk.
    pub(super) fn add(&mut self, meta: &Meta, vdevs: &VdevTree, bp: &BlkPtr, count: u64) -> Result<()> {
        let Some((vdev, offset)) = address(bp) else { return Ok(()) };
        let size = meta.context.io.deflated_size(bp);
        let table = match self.vdevs.entry(vdev) {
            Entry::Occupied(table) => table.into_mut(),
            Entry::Vacant(place) => place.insert(VdevTable::new(vdevs, vdev)?),
        };
        table.add(meta, offset, size, count).within(|| format!("clone table of vdev {vdev}"))
    }

    /// Takes a reference; `false`: there was only the first, and the block is free.
    pub(super) fn take(&mut self, meta: &Meta, bp: &BlkPtr) -> Result<bool> {
        if bp.level() > 0 || bp.is_metadata() {
            return Ok(false);
        }
        let Some((vdev, offset)) = address(bp) else { return Ok(false) };
        let size = meta.context.io.deflated_size(bp);
        match self.vdevs.get_mut(&vdev) {
            Some(table) => table.take(meta, offset, size).within(|| format!("clone table of vdev {vdev}")),
            None => Ok(false),
        }
    }

    pub(super) fn sync(&mut self, meta: &Meta, tx: &SyncTx<'_>) -> Result<()> {
        let mut gone = Vec::new();
        for (vdev, table) in &mut self.vdevs {
            if !table.live.is_empty() && !table.sync(meta, *vdev, tx).within(|| format!("clone table of vdev {vdev}"))? {
                gone.push(*vdev);
            }
        }
        for vdev in gone {
            self.vdevs.remove(&vdev);
        }
        Ok(())
    }
}
