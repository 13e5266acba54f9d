//! The objects of a removed vdev in the MOS: its map, how much of each run nothing needs, and when what was copied.

use ondisk::feature::Feature;
use ondisk::indirect::{BirthPhys, CountsObject, Mapping, MappingHeaderPhys, MappingPhys};
use ondisk::object_type::ObjectType;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use crate::bail;
use crate::dmu::{ObjectId, SyncTx};
use crate::dsl::{Meta, Mos};
use crate::error::{Result, Within};
use crate::vdev::IndirectMap;

/// Block size of these objects.
const BLOCK_BYTES: u64 = 128 << 10;
/// Runs that a map may have (24 bytes each).
const RUNS_MAX: u64 = 1 << 26;
/// Runs that are read or written at a time: a map is only believed as far as it makes sense, so a damaged pool cannot have us take more
/// memory than what is really there.
const RUNS_PER_STEP: usize = 1 << 12;

/// A run that is new in a map.
#[derive(Debug, Clone, Copy)]
pub(in crate::pool) struct NewRun {
    /// Where it was and is.
    pub(in crate::pool) run: Mapping,
    /// So many bytes of it nothing needs.
    pub(in crate::pool) obsolete: u32,
}

/// The header of a map, and the object with the counts; 0: nothing is counted.
struct Header {
    phys: MappingHeaderPhys,
    counts: ObjectId,
}

fn header(mos: &Mos, object: ObjectId) -> Result<Header> {
    let bonus = mos.bonus(object)?;
    let Ok((phys, rest)) = MappingHeaderPhys::read_from_prefix(bonus.as_slice()) else {
        bail!(Corrupt, "map in object {object}: bonus of {} bytes", bonus.len());
    };
    let there = mos.info(object)?.length / size_of::<MappingPhys>() as u64;
    if phys.entries.get() > there.min(RUNS_MAX) {
        bail!(Corrupt, "map in object {object}: {} runs, and room for {there}", phys.entries);
    }
    let counts = CountsObject::read_from_prefix(rest).map_or(0, |(counts, _)| counts.get());
    Ok(Header { phys, counts })
}

/// Makes an empty map.
#[doc(alias = "vdev_indirect_mapping_alloc")]
pub(in crate::pool) fn create(meta: &Meta, tx: &SyncTx<'_>) -> Result<ObjectId> {
    let mos = &meta.mos;
    let is_counted = meta.features.is_enabled(Feature::ObsoleteCounts);
    let bonus = size_of::<MappingHeaderPhys>() + if is_counted { size_of::<CountsObject>() } else { 0 };
    let object = mos.allocate(ObjectType::UINT64_METADATA, BLOCK_BYTES, ObjectType::UINT64_METADATA, bonus, tx)?;
    if is_counted {
        let counts = mos.allocate(ObjectType::UINT32_METADATA, BLOCK_BYTES, ObjectType::NONE, 0, tx)?;
        let empty = MappingHeaderPhys { end: 0.into(), bytes: 0.into(), entries: 0.into() };
        mos.set_bonus(object, &[empty.as_bytes(), U64::new(counts).as_bytes()].concat(), tx)?;
        meta.features.increment(mos, Feature::ObsoleteCounts, tx)?;
    }
    Ok(object)
}

/// Appends runs to a map.
///
/// # Errors
/// The map cannot be read or written.
#[doc(alias = "vdev_indirect_mapping_add_entries")]
pub(in crate::pool) fn append(mos: &Mos, object: ObjectId, runs: &[NewRun], tx: &SyncTx<'_>) -> Result<()> {
    let Header { mut phys, counts } = header(mos, object)?;
    for step in runs.chunks(RUNS_PER_STEP) {
        let entries = phys.entries.get();
        let raw: Vec<MappingPhys> = step.iter().map(|new| new.run.encode()).collect();
        mos.write(object, entries * size_of::<MappingPhys>() as u64, raw.as_bytes(), tx)?;
        if counts != 0 {
            let obsolete: Vec<U32> = step.iter().map(|new| U32::new(new.obsolete)).collect();
            mos.write(counts, entries * size_of::<U32>() as u64, obsolete.as_bytes(), tx)?;
        }
        phys.entries.set(entries + step.len() as u64);
        phys.bytes.set(step.iter().fold(phys.bytes.get(), |bytes, new| bytes.saturating_add(new.run.target.allocated)));
        phys.end.set(step.last().map_or(phys.end.get(), |new| new.run.end()));
    }
    mos.set_bonus(object, phys.as_bytes(), tx)
}

/// Reads a map.
///
/// # Errors
/// It cannot be read, or makes no sense.
#[doc(alias = "vdev_indirect_mapping_open")]
pub(in crate::pool) fn read(mos: &Mos, object: ObjectId) -> Result<IndirectMap> {
    let mut left = header(mos, object)?.phys.entries.get() as usize;
    let mut map = IndirectMap::default();
    let mut at = 0;
    while left > 0 {
        let count = left.min(RUNS_PER_STEP);
        let bytes = mos.read(object, at, count * size_of::<MappingPhys>())?;
        for raw in bytes.chunks_exact(size_of::<MappingPhys>()) {
            let Ok(raw) = MappingPhys::read_from_bytes(raw) else { bail!(Corrupt, "map in object {object}: a part of a run") };
            map.push(raw.decode()?).within(|| format!("map in object {object}"))?;
        }
        left -= count;
        at += bytes.len() as u64;
    }
    Ok(map)
}

/// The bytes that a map says to have moved.
pub(in crate::pool) fn bytes(mos: &Mos, object: ObjectId) -> Result<u64> {
    Ok(header(mos, object)?.phys.bytes.get())
}

/// How many bytes of each run of a map with `runs` runs nothing needs, as the map itself says: what has come to that since is in a space map.
///
/// # Errors
/// The counts cannot be read.
pub(in crate::pool) fn obsolete_counts(mos: &Mos, object: ObjectId, runs: usize) -> Result<Vec<u64>> {
    let counts = header(mos, object)?.counts;
    if counts == 0 {
        return Ok(vec![0; runs]);
    }
    let bytes = mos.read(counts, 0, runs * size_of::<U32>())?;
    Ok(bytes.chunks_exact(size_of::<U32>()).map(|raw| U32::read_from_bytes(raw).map_or(0, |count| count.get().into())).collect())
}

/// Frees a map.
///
/// # Errors
/// It cannot be read or freed.
#[doc(alias = "vdev_indirect_mapping_free")]
pub(in crate::pool) fn free(meta: &Meta, object: ObjectId, tx: &SyncTx<'_>) -> Result<()> {
    let counts = header(&meta.mos, object)?.counts;
    if counts != 0 {
        meta.mos.free(counts, tx)?;
        meta.features.decrement(&meta.mos, Feature::ObsoleteCounts, tx)?;
    }
    meta.mos.free(object, tx)
}

/// Makes the list of when what was copied.
pub(in crate::pool) fn create_births(mos: &Mos, tx: &SyncTx<'_>) -> Result<ObjectId> {
    mos.allocate(ObjectType::UINT64_METADATA, BLOCK_BYTES, ObjectType::UINT64_METADATA, size_of::<U64>(), tx)
}

/// All in front of `end` that was not copied before is copied in the group of `tx`.
///
/// # Errors
/// The list cannot be read or written.
#[doc(alias = "vdev_indirect_births_add_entry")]
pub(in crate::pool) fn append_birth(mos: &Mos, object: ObjectId, end: u64, tx: &SyncTx<'_>) -> Result<()> {
    let bonus = mos.bonus(object)?;
    let Ok((count, _)) = U64::read_from_prefix(bonus.as_slice()) else { bail!(Corrupt, "births in object {object}: bonus of {} bytes", bonus.len()) };
    if count.get() > RUNS_MAX {
        bail!(Corrupt, "births in object {object}: {count} of them");
    }
    let birth = BirthPhys { end: end.into(), txg: tx.txg().into() };
    mos.write(object, count.get() * size_of::<BirthPhys>() as u64, birth.as_bytes(), tx)?;
    mos.set_bonus(object, U64::new(count.get() + 1).as_bytes(), tx)
}

/// The group in which something was copied last; 0: nothing was.
///
/// # Errors
/// The list cannot be read.
#[doc(alias = "vdev_indirect_births_last_entry_txg")]
pub(in crate::pool) fn last_birth(mos: &Mos, object: ObjectId) -> Result<u64> {
    let bonus = mos.bonus(object)?;
    let count = U64::read_from_prefix(bonus.as_slice()).map_or(0, |(count, _)| count.get());
    let Some(last) = count.checked_sub(1) else { return Ok(0) };
    let bytes = mos.read(object, last.saturating_mul(size_of::<BirthPhys>() as u64), size_of::<BirthPhys>())?;
    Ok(BirthPhys::read_from_bytes(&bytes).map_or(0, |birth| birth.txg.get()))
}
