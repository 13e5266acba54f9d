//! One space map object: a log of ranges with a header.

use std::sync::Arc;

use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;
use ondisk::space_map::{
    Action, Area, Decoder, Encoder, Entry, HEADER_BYTES, HEADER_BYTES_V0, INDIRECT_SHIFT, SpaceMapHeader, estimate_bytes,
};

use super::open::FeatureCounts;
use crate::alloc::{RangeTree, SIZE_CLASSES};
use crate::bail;
use crate::dmu::{Dnode, DnodeSpec, ObjectId, Objset, SyncTx};
use crate::error::{Result, Within};

/// A space map is condensed when it is this many times as long as need be, in percent...
const CONDENSE_PERCENT: u64 = 200;
/// ...and longer than so many blocks.
const CONDENSE_BLOCKS_MIN: u64 = 4;

/// One space map object.
pub(super) struct SpaceMap {
    dnode: Arc<Dnode>,
    area: Area,
    block_bytes: u32,
    /// The header after the last change; on disk when [`SpaceMap::store_header`] has been called.
    pub(super) header: SpaceMapHeader,
    /// The header that was stored last.
    stored: SpaceMapHeader,
}

impl SpaceMap {
    /// A new, empty one.
    pub(super) fn create(
        mos: &Objset,
        tx: &SyncTx<'_>,
        features: &dyn FeatureCounts,
        area: Area,
        block_bytes: u32,
    ) -> Result<Self> {
        let with_histogram = features.is_enabled(Feature::SpacemapHistogram);
        let bonus_bytes = if with_histogram { HEADER_BYTES } else { HEADER_BYTES_V0 };
        let spec = DnodeSpec::new(ObjectType::SPACE_MAP, u64::from(block_bytes))
            .with_bonus(ObjectType::SPACE_MAP_HEADER, bonus_bytes)
            .with_indirect_shift(INDIRECT_SHIFT);
        let dnode = mos.allocate(tx, &spec)?;
        if with_histogram {
            features.add(tx, Feature::SpacemapHistogram, 1)?;
        }
        let header = SpaceMapHeader::empty(dnode.object(), with_histogram);
        dnode.set_bonus(tx, header.encode());
        Ok(Self { dnode, area, block_bytes, header, stored: header })
    }

    /// The one stored as `object`.
    pub(super) fn open(mos: &Objset, object: ObjectId, area: Area) -> Result<Self> {
        let dnode = mos.hold(object)?;
        if dnode.object_type() != ObjectType::SPACE_MAP {
            bail!(Corrupt, "object {object} of the MOS is no space map");
        }
        let header = SpaceMapHeader::decode(&dnode.bonus()).within(|| format!("space map {object}"))?;
        let block_bytes = dnode.block_bytes();
        let room = (dnode.max_block().saturating_add(1)).saturating_mul(block_bytes);
        if header.length > room || block_bytes > 16 << 20 {
            bail!(Corrupt, "space map {object}: {} bytes long, has room for {room}", header.length);
        }
        Ok(Self { dnode, area, block_bytes: block_bytes as u32, header, stored: header })
    }

    pub(super) fn object(&self) -> ObjectId {
        self.dnode.object()
    }

    pub(super) fn length(&self) -> u64 {
        self.header.length
    }

    pub(super) fn blocks(&self) -> u64 {
        self.header.length.div_ceil(u64::from(self.block_bytes))
    }

    /// Frees the object and what it counts.
    pub(super) fn destroy(self, mos: &Objset, tx: &SyncTx<'_>, features: &dyn FeatureCounts) -> Result<()> {
        if self.header.histogram.is_some() && features.is_enabled(Feature::SpacemapHistogram) {
            features.add(tx, Feature::SpacemapHistogram, -1)?;
        }
        mos.free(tx, self.object())
    }

    /// Writes the header, if it has changed: a txg ends when a pass changes nothing.
    pub(super) fn store_header(&mut self, tx: &SyncTx<'_>) {
        if self.header != self.stored {
            self.dnode.set_bonus(tx, self.header.encode());
            self.stored = self.header;
        }
    }

    /// Calls `each` for the entries of the first `length` bytes, in order.
    pub(super) fn replay(&self, length: u64, mut each: impl FnMut(&Entry) -> Result<()>) -> Result<()> {
        let thing = || format!("space map {}", self.object());
        let mut decoder = Decoder::new(self.area);
        let block_bytes = u64::from(self.block_bytes);
        self.dnode.prefetch(0, length);
        for block in 0..length.div_ceil(block_bytes) {
            let contents = self.dnode.block(block).within(thing)?;
            let take = (length - block * block_bytes).min(contents.len() as u64) as usize;
            for entry in decoder.entries(&contents[..take]) {
                each(&entry.within(thing)?).within(thing)?;
            }
        }
        Ok(())
    }

    fn encoder(&self, length: u64, features: &dyn FeatureCounts) -> Encoder {
        Encoder::new(self.area, length, self.block_bytes, features.is_active(Feature::SpacemapV2))
    }

    fn encode(encoder: &mut Encoder, tx: &SyncTx<'_>, action: Action, vdev: Option<u32>, ranges: &RangeTree) {
        if !ranges.is_empty() {
            encoder.begin(action, tx.txg(), tx.pass as u16);
            ranges.segments().for_each(|(offset, size)| encoder.range(action, vdev, offset, size));
        }
    }

    fn count(&mut self, action: Action, ranges: &RangeTree) {
        let bytes = ranges.bytes().cast_signed();
        self.header.allocated += if action == Action::Allocate { bytes } else { -bytes };
    }

    /// Writes whole blocks as far as possible: what lies behind the log does not matter, so it need not be read.
    fn write(&mut self, tx: &SyncTx<'_>, mut bytes: Vec<u8>) -> Result<()> {
        let at = self.header.length;
        let end = at + bytes.len() as u64;
        bytes.resize((end.next_multiple_of(u64::from(self.block_bytes)) - at) as usize, 0);
        self.dnode.write(tx, at, &bytes).within(|| format!("space map {}", self.object()))?;
        self.header.length = end;
        Ok(())
    }

    /// What it says is void; what is appended next stands at its start.
    pub(super) fn restart(&mut self) {
        self.header.length = 0;
        self.header.allocated = 0;
    }

    /// Appends allocations, then frees.
    pub(super) fn append(
        &mut self,
        tx: &SyncTx<'_>,
        features: &dyn FeatureCounts,
        vdev: Option<u32>,
        allocated: &RangeTree,
        freed: &RangeTree,
    ) -> Result<()> {
        let mut encoder = self.encoder(self.header.length, features);
        for (action, ranges) in [(Action::Allocate, allocated), (Action::Free, freed)] {
            Self::encode(&mut encoder, tx, action, vdev, ranges);
            self.count(action, ranges);
        }
        let bytes = encoder.finish();
        if bytes.is_empty() { Ok(()) } else { self.write(tx, bytes) }
    }

    /// Takes the last entries out of the map, `most` of them at the most and none from two blocks: their actions and ranges.
    #[doc(alias = "space_map_incremental_destroy")]
    pub(super) fn take_last(&mut self, tx: &SyncTx<'_>, most: usize) -> Result<Vec<(Action, u64, u64)>> {
        let thing = || format!("space map {}", self.object());
        let block_bytes = u64::from(self.block_bytes);
        let block = self.header.length.saturating_sub(1) / block_bytes;
        let start = block * block_bytes;
        let contents = self.dnode.block(block).within(thing)?;
        let length = (self.header.length - start).min(contents.len() as u64) as usize;
        let mut decoder = Decoder::new(self.area);
        let mut entries = decoder.entries(&contents[..length]);
        let (mut found, mut starts) = (Vec::new(), Vec::new());
        while let Some(entry) = entries.next() {
            let entry = entry.within(thing)?;
            starts.push(length - entries.left() - entry.bytes());
            found.push((entry.action, entry.offset, entry.size));
        }
        let first = found.len().saturating_sub(most);
        let taken = found.split_off(first);
        for (action, _, size) in &taken {
            self.header.allocated -= if *action == Action::Allocate { size.cast_signed() } else { -size.cast_signed() };
        }
        self.header.length = start + if first == 0 { 0 } else { starts[first] as u64 };
        self.dnode.free_range(tx, self.header.length.next_multiple_of(block_bytes), u64::MAX)?;
        self.store_header(tx);
        Ok(taken)
    }

    /// Replaces the log by the shortest that says that of `area` just `free` is free.
    pub(super) fn rewrite(&mut self, tx: &SyncTx<'_>, features: &dyn FeatureCounts, free: &RangeTree) -> Result<()> {
        let mut whole = RangeTree::new();
        whole.add(self.area.start, self.area.size)?;
        self.header.allocated = 0;
        let mut encoder = self.encoder(0, features);
        for (action, ranges) in [(Action::Allocate, &whole), (Action::Free, free)] {
            Self::encode(&mut encoder, tx, action, None, ranges);
            self.count(action, ranges);
        }
        self.header.length = 0;
        self.write(tx, encoder.finish())?;
        let end = self.header.length.next_multiple_of(u64::from(self.block_bytes));
        self.dnode.free_range(tx, end, u64::MAX)
    }

    /// The log is so much longer than need be that it should be rewritten. `free`: the free segments by size class.
    pub(super) fn should_condense(&self, free: &[u64; SIZE_CLASSES], features: &dyn FeatureCounts) -> bool {
        if free.iter().all(|count| *count == 0) {
            return self.header.length > 64;
        }
        let long = features.is_enabled(Feature::SpacemapV2);
        let optimal = estimate_bytes(free, self.area.shift, self.block_bytes, long);
        let record = u64::from(self.block_bytes).max(1 << self.area.shift);
        self.header.length >= optimal.saturating_mul(CONDENSE_PERCENT) / 100
            && self.header.length > CONDENSE_BLOCKS_MIN * record
    }

    /// The object has the form that a new one would have.
    pub(super) fn is_current_form(&self, features: &dyn FeatureCounts, block_bytes: u32) -> bool {
        let wants_histogram = features.is_enabled(Feature::SpacemapHistogram);
        self.block_bytes == block_bytes
            && self.dnode.info().indirect_shift == INDIRECT_SHIFT
            && (self.header.histogram.is_some() || !wants_histogram)
    }
}
