//! The queue of destroyed datasets whose blocks are still to be freed.
//!
//! # On disk
//! [`ondisk::bpobj::BptreePhys`] in the bonus buffer; the object is an array of [`ondisk::bpobj::BptreeEntryPhys`].

use ondisk::blkptr::BlkPtr;
use ondisk::bpobj::{BlockBookmarkPhys, BptreeEntryPhys, BptreePhys};
use ondisk::object_type::ObjectType;
use zerocopy::{FromBytes, IntoBytes};

use super::meta::{Meta, Space, SpaceDelta};
use crate::dmu::SyncTx;
use crate::error;
use crate::error::{Result, Within};

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

    /// The entry that is to be worked on.
    pub fn first(self, meta: &Meta) -> Result<Option<BptreeEntryPhys>> {
        let phys = self.load(meta)?;
        if phys.begin == phys.end {
            return Ok(None);
        }
        let bytes = meta.mos.read(self.0, phys.begin.get() * ENTRY_BYTES, ENTRY_BYTES as usize)?;
        let entry = BptreeEntryPhys::read_from_bytes(&bytes);
        entry.map(Some).map_err(|_| error!(Corrupt, "bptree {}: entry {} is cut off", self.0, phys.begin))
    }

    /// All entries: what waits to be freed.
    pub fn entries(self, meta: &Meta) -> Result<Vec<BptreeEntryPhys>> {
        let phys = self.load(meta)?;
        let mut entries = Vec::new();
        for index in phys.begin.get()..phys.end.get() {
            let bytes = meta.mos.read(self.0, index * ENTRY_BYTES, ENTRY_BYTES as usize)?;
            let entry = BptreeEntryPhys::read_from_bytes(&bytes);
            entries.push(entry.map_err(|_| error!(Corrupt, "bptree {}: entry {index} is cut off", self.0))?);
        }
        Ok(entries)
    }

    /// Some blocks of the first entry have been freed, of `freed` space; go on at `resume`, or with the next entry.
    pub fn advance(self, meta: &Meta, freed: SpaceDelta, resume: Option<BlockBookmarkPhys>, tx: &SyncTx<'_>) -> Result<()> {
        let mut phys = self.load(meta)?;
        let at = phys.begin.get() * ENTRY_BYTES;
        match (resume, self.first(meta)?) {
            (Some(resume), Some(entry)) => {
                meta.mos.write(self.0, at, BptreeEntryPhys { resume, ..entry }.as_bytes(), tx)?;
            }
            _ => {
                meta.mos.free_range(self.0, at, ENTRY_BYTES, tx)?;
                phys.begin += 1;
            }
        }
        freed.apply(&mut phys.bytes, &mut phys.compressed_bytes, &mut phys.uncompressed_bytes);
        self.store(meta, &phys, tx)
    }
}
