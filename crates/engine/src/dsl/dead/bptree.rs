//! The queue of destroyed datasets whose blocks are still to be freed.
//!
//! # On disk
//! [`ondisk::bpobj::BptreePhys`] in the bonus buffer; the object is an array of [`ondisk::bpobj::BptreeEntryPhys`].

use std::ops::Range;

use ondisk::blkptr::BlkPtr;
use ondisk::bpobj::{BlockBookmarkPhys, BptreeEntryPhys, BptreePhys};
use ondisk::object_type::ObjectType;
use zerocopy::{FromBytes, IntoBytes};

use crate::dmu::SyncTx;
use crate::dsl::meta::{Meta, Space, SpaceDelta};
use crate::error::{Result, Within};
use crate::{bail, error};

const ENTRY_BYTES: u64 = size_of::<BptreeEntryPhys>() as u64;

/// The bptree with this object number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bptree(pub u64);

impl Bptree {
    /// Makes an empty queue.
    pub fn create(meta: &Meta, tx: &SyncTx<'_>) -> Result<Self> {
        let (kind, bonus) = (ObjectType::UINT64_METADATA, size_of::<BptreePhys>());
        meta.mos.allocate(kind, 128 << 10, kind, bonus, tx).map(Bptree)
    }

    /// The record.
    pub fn load(self, meta: &Meta) -> Result<BptreePhys> {
        BptreePhys::from_bonus(&meta.mos.bonus(self.0)?).within(|| format!("bptree {}", self.0))
    }

    fn store(self, meta: &Meta, phys: &BptreePhys, tx: &SyncTx<'_>) -> Result<()> {
        meta.mos.set_bonus(self.0, phys.as_bytes(), tx)
    }

    /// Queues the blocks below `block` that were born after `birth_txg`; they take `space`.
    pub fn push(self, meta: &Meta, block: BlkPtr, birth_txg: u64, space: Space, tx: &SyncTx<'_>) -> Result<()> {
        let mut phys = self.load(meta)?;
        let entry = BptreeEntryPhys { block, birth_txg: birth_txg.into(), resume: BlockBookmarkPhys::default() };
        meta.mos.write(self.0, phys.end.get() * ENTRY_BYTES, entry.as_bytes(), tx)?;
        phys.end += 1;
        space.positive().apply(&mut phys.bytes, &mut phys.compressed_bytes, &mut phys.uncompressed_bytes);
        self.store(meta, &phys, tx)
    }

    /// An entry.
    pub fn entry(self, meta: &Meta, index: u64) -> Result<BptreeEntryPhys> {
        let bytes = meta.mos.read(self.0, index.saturating_mul(ENTRY_BYTES), ENTRY_BYTES as usize)?;
        BptreeEntryPhys::read_from_bytes(&bytes).map_err(|_| error!(Corrupt, "bptree {}: entry {index} is cut off", self.0))
    }

    /// The entries that are left.
    pub fn indexes(self, meta: &Meta) -> Result<Range<u64>> {
        let phys = self.load(meta)?;
        let there = meta.mos.info(self.0)?.length / ENTRY_BYTES;
        if phys.begin > phys.end || phys.end.get() > there {
            bail!(Corrupt, "bptree {}: entries {} to {}, and room for {there}", self.0, phys.begin, phys.end);
        }
        Ok(phys.begin.get()..phys.end.get())
    }

    /// All entries: what waits to be freed.
    pub fn entries(self, meta: &Meta) -> Result<Vec<BptreeEntryPhys>> {
        self.indexes(meta)?.map(|index| self.entry(meta, index)).collect()
    }

    /// Of an entry blocks of `freed` space have been freed; the next ones are at `resume`.
    pub fn set_resume(self, meta: &Meta, index: u64, freed: SpaceDelta, resume: BlockBookmarkPhys, tx: &SyncTx<'_>) -> Result<()> {
        let entry = BptreeEntryPhys { resume, ..self.entry(meta, index)? };
        meta.mos.write(self.0, index * ENTRY_BYTES, entry.as_bytes(), tx)?;
        self.subtract(meta, freed, tx)
    }

    /// An entry is done, its last blocks took `freed` space. It goes if it is the first one; else nothing is to be found in it.
    #[doc(alias = "bptree_iterate")]
    pub fn finish(self, meta: &Meta, index: u64, freed: SpaceDelta, tx: &SyncTx<'_>) -> Result<()> {
        let mut phys = self.load(meta)?;
        if phys.begin == index {
            meta.mos.free_range(self.0, index * ENTRY_BYTES, ENTRY_BYTES, tx)?;
            phys.begin += 1;
            self.store(meta, &phys, tx)?;
        } else {
            let entry = BptreeEntryPhys { birth_txg: u64::MAX.into(), ..self.entry(meta, index)? };
            meta.mos.write(self.0, index * ENTRY_BYTES, entry.as_bytes(), tx)?;
        }
        self.subtract(meta, freed, tx)
    }

    fn subtract(self, meta: &Meta, freed: SpaceDelta, tx: &SyncTx<'_>) -> Result<()> {
        let mut phys = self.load(meta)?;
        freed.apply(&mut phys.bytes, &mut phys.compressed_bytes, &mut phys.uncompressed_bytes);
        self.store(meta, &phys, tx)
    }
}
