//! The bytes of records: what a commit fetches before it asks for a place.
//!
//! # Theory
//! A write is remembered by its range. To make it durable, either its bytes go into the log, and into the file once
//! more when the group is synced; or the blocks of the file are written at once, to where they stay, and the log has
//! their pointers. The second is cheaper for blocks that are written whole: their bytes are on disk once instead of
//! twice. For parts of blocks the whole block would be written now, and perhaps again; and a device for the log alone
//! is faster than the others. So covered blocks are placed, in large writes and without a log device; with
//! `logbias=throughput` all blocks are, as in OpenZFS. Where a place that is written for the first time costs more than
//! many bytes do ([`crate::alloc::LogArea`]), blocks are placed in very large writes only.
//!
//! A record and the block that it points to are durable together, with one flush. After a crash between the two, a
//! missing block ends the log, and no commit behind it was acknowledged ([`crate::zil::claim`]).

use ondisk::blkptr::BlkPtr;
use ondisk::zil::{RecordHeader, RecordType, WriteRecord};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::zil::Zil;
use crate::zil::block::{DATA_BYTES_MAX, LINK_BYTES, LOG_BLOCK_MAX};
use crate::zil::commit::Round;
use crate::zil::itx::{Content, Itx};
use crate::alloc::ClassKind;
use crate::dmu::ObjectId;
use crate::error::Result;
use crate::tunables::Parameter;
use crate::txg::Txg;

/// A write whose bytes are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedWrite {
    /// The file.
    pub object: ObjectId,
    /// Its generation: another file may have its number by now.
    pub generation: u64,
    /// Where.
    pub offset: u64,
    /// How many bytes.
    pub length: usize,
}

/// Which blocks of a write are to be in their own place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placing {
    /// Those that are there already: they were written around the cache.
    Placed,
    /// All that it covers.
    Covered,
    /// All that it touches.
    Touched,
}

/// Supplies the bytes of writes (upward call: implemented by the layer of files).
pub trait LogSource {
    /// Appends the bytes to `out`, fewer at the end of the file, none if the file is gone.
    ///
    /// # Errors
    /// They cannot be read.
    fn fetch(&self, write: &WantedWrite, out: &mut Vec<u8>) -> Result<()>;

    /// The size of the blocks of a file, if it is there still.
    fn block_bytes(&self, object: ObjectId) -> Option<u64> {
        let _ = object;
        None
    }

    /// Writes blocks of the write to their own place, if `txg` is open still, and if they are not there already.
    /// Returns the ones that are written, in order; what they have of the write need not be fetched.
    ///
    /// # Errors
    /// The file cannot be read.
    fn place(&self, write: &WantedWrite, txg: Txg, which: Placing) -> Result<Vec<PlacedBlock>> {
        let _ = (write, txg, which);
        Ok(Vec::new())
    }
}

/// A block in its own place, and what it has of a write.
#[derive(Debug, Clone, Copy)]
pub struct PlacedBlock {
    /// Where in the file.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
    /// The block.
    pub pointer: BlkPtr,
}

/// The bytes of a round.
#[derive(Default)]
pub(in crate::zil) struct Filled {
    pub(in crate::zil) bytes: Vec<u8>,
    pub(in crate::zil) lengths: Vec<usize>,
    pub(in crate::zil) newest: Txg,
    /// Some records lead to blocks of files, which must be durable when they are.
    pub(in crate::zil) has_placed: bool,
}

impl Zil {
    /// Fetches what the records of a round say.
    pub(in crate::zil) fn fill(&self, round: &Round, source: &dyn LogSource) -> Filled {
        let mut filled = Filled::with_room(self.room_for(round));
        let synced = self.context.groups.synced_txg();
        // A change without a record may have come since this commit began, before some of these records. After a crash
        // without it they must not be there. Commits of these records wait for groups anyway.
        let newest = round.records.iter().map(|itx| itx.txg).max().unwrap_or(0);
        if self.has_unlogged_after(synced) {
            self.note_unlogged(newest);
            return filled;
        }
        for itx in round.records.iter().filter(|itx| itx.txg > synced) {
            match &itx.content {
                Content::Bytes(bytes) if bytes.len() <= LOG_BLOCK_MAX - LINK_BYTES => filled.push(itx.txg, bytes),
                // No block has room for it.
                Content::Bytes(_) => self.note_unlogged(itx.txg),
                Content::Write { object, generation, offset, length } => {
                    let wanted = WantedWrite { object: *object, generation: *generation, offset: *offset, length: *length as usize };
                    self.fill_write(round, itx.txg, &wanted, source, &mut filled);
                }
            }
        }
        // One of these themselves has none: then a name of a file could be there without what was in the file when it got that name.
        if self.has_unlogged_after(synced) {
            self.note_unlogged(newest);
            return Filled::default();
        }
        filled
    }

    /// The bytes of memory that a round's records take, if no block is found in its place.
    fn room_for(&self, round: &Round) -> usize {
        let bytes = |itx: &Itx| match &itx.content {
            Content::Bytes(bytes) => bytes.len(),
            Content::Write { length, .. } => match self.placing(*length) {
                Placing::Placed => (*length as usize).next_multiple_of(8) + (1 + *length as usize / DATA_BYTES_MAX) * size_of::<WriteRecord>(),
                Placing::Covered | Placing::Touched => size_of::<WriteRecord>(),
            },
        };
        round.records.iter().map(bytes).sum()
    }

    /// The record of a write, or several: pointers to blocks that are in their place, and bytes of what is between.
    fn fill_write(&self, round: &Round, txg: Txg, write: &WantedWrite, source: &dyn LogSource, filled: &mut Filled) {
        let which = self.placing(write.length as u64);
        let placed = source.place(write, txg, which).unwrap_or_default();
        if which == Placing::Covered {
            self.soon.were_asked_for(placed.iter().map(|block| block.length).sum());
        }
        let end = write.offset + write.length as u64;
        let mut at = write.offset;
        for block in placed {
            self.fill_bytes(round, txg, &WantedWrite { offset: at, length: block.offset.saturating_sub(at) as usize, ..*write }, source, filled);
            filled.push_placed(txg, write.object, &block);
            at = block.offset + block.length;
        }
        self.fill_bytes(round, txg, &WantedWrite { offset: at, length: end.saturating_sub(at) as usize, ..*write }, source, filled);
    }

    /// Which blocks of a write of so many bytes are to be written to their own place.
    #[doc(alias = "zil_write_state")]
    fn placing(&self, bytes: u64) -> Placing {
        if self.prefers_throughput() {
            return Placing::Touched;
        }
        let (io, tunables) = (&self.context.io, &self.context.tunables);
        let has_log_device = !io.allocator().class_groups(ClassKind::Log).is_empty();
        if has_log_device || bytes < tunables.now(Parameter::ImmediateWriteSize) {
            return Placing::Placed;
        }
        // The log's places are prepared, those of files are not.
        if bytes >= tunables.log_indirect_min(io.gains_by_preparing()) { Placing::Covered } else { Placing::Placed }
    }

    fn fill_bytes(&self, round: &Round, txg: Txg, write: &WantedWrite, source: &dyn LogSource, filled: &mut Filled) {
        let (mut at, end) = (write.offset, write.offset + write.length as u64);
        while at < end {
            let length = ((end - at) as usize).min(DATA_BYTES_MAX);
            match filled.push_write(txg, &WantedWrite { offset: at, length, ..*write }, source) {
                Ok(fetched) if fetched == length => {}
                // The file was made shorter, or removed. If that comes in a later round, neither what was written nor the end of it would be there until
                // then, but what was there before.
                Ok(_) if self.is_last_word(round, write.object) => {}
                Ok(_) => self.note_unlogged(self.context.groups.open_txg()),
                Err(_) => self.note_unlogged(txg),
            }
            at += length as u64;
        }
    }
}

impl Filled {
    fn with_room(bytes: usize) -> Filled {
        Filled { bytes: Vec::with_capacity(bytes), ..Filled::default() }
    }

    fn push_placed(&mut self, txg: Txg, object: ObjectId, block: &PlacedBlock) {
        let mut record = WriteRecord::new_zeroed();
        record.header.record_type = (RecordType::Write as u64).into();
        record.header.length = (size_of::<WriteRecord>() as u64).into();
        record.header.txg = txg.into();
        record.object = object.into();
        record.offset = block.offset.into();
        record.length = block.length.into();
        record.block = block.pointer;
        self.bytes.extend_from_slice(record.as_bytes());
        self.lengths.push(size_of::<WriteRecord>());
        self.newest = self.newest.max(txg);
        self.has_placed = true;
    }

    fn push(&mut self, txg: Txg, record: &[u8]) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(record);
        if let Ok((header, _)) = RecordHeader::mut_from_prefix(&mut self.bytes[at..]) {
            header.txg = txg.into();
        }
        self.lengths.push(record.len());
        self.newest = self.newest.max(txg);
    }

    /// Returns how many bytes there were.
    fn push_write(&mut self, txg: Txg, wanted: &WantedWrite, source: &dyn LogSource) -> Result<usize> {
        let at = self.bytes.len();
        let mut record = WriteRecord::new_zeroed();
        self.bytes.extend_from_slice(record.as_bytes());
        let start = self.bytes.len();
        if let Err(error) = source.fetch(wanted, &mut self.bytes) {
            self.bytes.truncate(at);
            return Err(error);
        }
        let fetched = self.bytes.len() - start;
        if fetched == 0 {
            self.bytes.truncate(at);
            return Ok(0);
        }
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        let length = self.bytes.len() - at;
        record.header.record_type = (RecordType::Write as u64).into();
        record.header.length = (length as u64).into();
        record.header.txg = txg.into();
        record.object = wanted.object.into();
        record.offset = wanted.offset.into();
        record.length = (fetched as u64).into();
        self.bytes[at..start].copy_from_slice(record.as_bytes());
        self.lengths.push(length);
        self.newest = self.newest.max(txg);
        Ok(fetched)
    }
}
