//! Log blocks: their pointers, their bytes, how large the next one is to be.

use std::sync::Arc;

use ondisk::algorithm::ChecksumAlgorithm;
use ondisk::blkptr::{BlkPtr, DataPointer};
use ondisk::dva::Dva;
use ondisk::object_type::ObjectType;
use ondisk::zil::{CHECKSUM_SEQUENCE, ChainPhys, LOG_BLOCK_MIN, RecordHeader, WriteRecord};
use transform::checksum::{ZILOG2, embedded};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::ahead::look_ahead;
use crate::alloc::ClassKind;
use crate::bail;
use crate::dmu::DmuContext;
use crate::error::Result;
use crate::txg::Txg;

/// The largest log block.
pub(super) const LOG_BLOCK_MAX: usize = 128 << 10;
/// The bytes of a block that are not records.
pub(super) const LINK_BYTES: usize = size_of::<ChainPhys>();
/// The most bytes that a record of a write can have besides its own fields, so that it fits a block.
pub(super) const DATA_BYTES_MAX: usize = LOG_BLOCK_MAX - LINK_BYTES - size_of::<WriteRecord>();
/// How many commits are remembered.
const HISTORY: usize = 8;

/// The size of a block for `records` bytes of records.
pub(super) fn block_bytes(records: usize) -> usize {
    (records + LINK_BYTES).next_multiple_of(LOG_BLOCK_MIN).min(LOG_BLOCK_MAX)
}

/// The sizes of first block that the last commits would have needed.
#[derive(Debug, Default)]
pub(super) struct Sizes {
    last: [usize; HISTORY],
    next: usize,
}

impl Sizes {
    /// Notes a commit of `records` bytes.
    pub(super) fn note(&mut self, records: usize) {
        self.last[self.next % HISTORY] = block_bytes(records);
        self.next += 1;
    }

    /// The predicted size for the next commit.
    pub(super) fn predicted(&self) -> usize {
        self.last.iter().copied().max().unwrap_or(0).max(LOG_BLOCK_MIN)
    }
}

/// Allocates a block; its checksum words say where in the chain it is.
pub(super) fn allocate(context: &Arc<DmuContext>, bytes: usize, words: [u64; 4], txg: Txg) -> Result<BlkPtr> {
    let dvas = context.io.allocate_log(bytes as u64, 1, txg)?;
    if !has_room(context, &dvas, txg) {
        dvas.iter().try_for_each(|dva| context.io.allocator().unallocate(*dva, txg))?;
        bail!(NoSpace, "the intent log would take what groups need");
    }
    let mut pointer = DataPointer::new(&dvas, ObjectType::INTENT_LOG, 0, txg);
    pointer.logical_size = bytes as u64;
    pointer.physical_size = bytes as u64;
    pointer.checksum_algorithm = ChecksumAlgorithm::Zilog2;
    pointer.checksum = words;
    pointer.fill = 0;
    let pointer = pointer.encode();
    look_ahead(context, &pointer, txg);
    Ok(pointer)
}

/// Whether the log may have these places.
fn has_room(context: &DmuContext, dvas: &[Dva], txg: Txg) -> bool {
    let for_log_alone = |dva: &Dva| context.io.allocator().group(dva.vdev).is_ok_and(|group| group.config().class == ClassKind::Log);
    dvas.iter().all(for_log_alone) || context.has_log_room(txg, 0)
}

/// The words of the block after that of `words`.
pub(super) fn following(mut words: [u64; 4]) -> [u64; 4] {
    words[CHECKSUM_SEQUENCE] = words[CHECKSUM_SEQUENCE].wrapping_add(1);
    words
}

/// Divides `records`, whose single lengths are `lengths`, among blocks; the first has room for `first` bytes.
pub(super) fn divide(lengths: &[usize], first: usize) -> Vec<std::ops::Range<usize>> {
    let (mut blocks, mut start, mut end, mut room) = (Vec::new(), 0, 0, first);
    for length in lengths {
        if end - start + length > room {
            blocks.push(start..end);
            start = end;
            room = LOG_BLOCK_MAX - LINK_BYTES;
        }
        end += length;
    }
    blocks.push(start..end);
    blocks
}

/// The bytes of a block: its link, then records, in as many units as are used.
pub(super) fn encode(block: &BlkPtr, next: &BlkPtr, records: &[u8]) -> Result<Vec<u8>> {
    let used = LINK_BYTES + records.len();
    let mut bytes = Vec::with_capacity(used.next_multiple_of(LOG_BLOCK_MIN));
    let mut link = ChainPhys::new_zeroed();
    link.next = *next;
    link.used_bytes = (used as u64).into();
    bytes.extend_from_slice(link.as_bytes());
    bytes.extend_from_slice(records);
    bytes.resize(used.next_multiple_of(LOG_BLOCK_MIN), 0);
    if embedded::seal(ZILOG2, &mut bytes, block.checksum_words()).is_err() {
        bail!(Invalid, "a log block of {used} bytes cannot be");
    }
    Ok(bytes)
}

/// Numbers records that follow each other in `bytes`, from `sequence` on; returns the number of the last.
pub(super) fn number(bytes: &mut [u8], lengths: &[usize], mut sequence: u64) -> u64 {
    let mut at = 0;
    for length in lengths {
        sequence += 1;
        if let Ok((header, _)) = RecordHeader::mut_from_prefix(&mut bytes[at..]) {
            header.sequence = sequence.into();
        }
        at += length;
    }
    sequence
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // one range is what is expected
mod tests {
    use super::*;

    #[test]
    fn records_are_not_cut_and_the_first_block_may_stay_empty() {
        let all = LOG_BLOCK_MAX - LINK_BYTES;
        assert_eq!(divide(&[100, 200], 4096), [0..300]);
        assert_eq!(divide(&[100, 200], 150), [0..100, 100..300]);
        assert_eq!(divide(&[200], 150), [0..0, 0..200]);
        assert_eq!(divide(&[all, all, 8], all), [0..all, all..2 * all, 2 * all..2 * all + 8]);
        assert_eq!(divide(&[], all), [0..0]);
    }

    #[test]
    fn the_next_block_is_as_large_as_the_largest_lately() {
        let mut sizes = Sizes::default();
        assert_eq!(sizes.predicted(), 4096);
        sizes.note(10_000);
        sizes.note(100);
        assert_eq!(sizes.predicted(), 12 << 10);
        (0..8).for_each(|_| sizes.note(100));
        assert_eq!(sizes.predicted(), 4096);
        sizes.note(1 << 20);
        assert_eq!(sizes.predicted(), LOG_BLOCK_MAX);
    }

    #[test]
    fn a_block_is_found_to_be_itself() {
        let words = [3, 4, 5, 6];
        let mut pointer = DataPointer::new(&[ondisk::dva::Dva::new(0, 4096, 8192)], ObjectType::INTENT_LOG, 0, 7);
        pointer.checksum = words;
        let block = pointer.encode();
        let bytes = encode(&block, &block, &[7; 5000]).unwrap();
        assert_eq!(bytes.len(), 8192);
        assert!(embedded::verify_embedded(ZILOG2, &bytes, words));
        assert!(!embedded::verify_embedded(ZILOG2, &bytes, following(words)));
    }
}
