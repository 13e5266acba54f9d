//! Following a log from its header, block by block.

use std::borrow::Cow;
use std::ops::ControlFlow;

use ondisk::blkptr::{BlkPtr, BlockPointer, DataPointer};
use ondisk::corruption::Corruption;
use ondisk::zil::{self, ChainPhys, LogHeader, RecordHeader};
use zerocopy::FromBytes;

use crate::bail;
use crate::error::{ErrorKind, Result, Within};
use crate::txg::Txg;
use crate::zio::{BlockIo, Bookmark};

/// The level of log blocks in bookmarks.
const LOG_LEVEL: i8 = -2;
/// Longest chain that is believed.
const BLOCKS_MAX: u64 = 1 << 24;

const LINK_BYTES: usize = size_of::<ChainPhys>();

/// How far a log is followed that is not claimed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// As long as its blocks are surely allocated: those born before this group, the first that is not on disk.
    Allocated(Txg),
    /// To its end, to claim it.
    Whole,
}

/// A log block that was walked by.
pub struct LogBlock<'a> {
    /// Where it is.
    pub pointer: &'a BlkPtr,
    /// Its number.
    pub sequence: u64,
    /// Its records, in our byte order; `None`: it has never been written, or was damaged since, and is the last that is found.
    pub records: Option<&'a [u8]>,
}

/// Walks the log in the header of object set `dataset`. A claimed log ends where it was claimed.
///
/// # Errors
/// The log cannot be read or has no end; what `visit` says.
pub fn walk(
    io: &BlockIo,
    dataset: u64,
    header: &LogHeader,
    extent: Extent,
    visit: &mut dyn FnMut(LogBlock<'_>) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let claimed = header.claim_txg.get() != 0;
    let end = if claimed { header.claim_block_sequence.get() } else { u64::MAX };
    let mut pointer = header.log;
    for _ in 0..BLOCKS_MAX {
        let beyond = match extent {
            Extent::Allocated(first_txg) => !claimed && pointer.birth() >= first_txg,
            Extent::Whole => false,
        };
        if pointer.is_hole() || beyond {
            return Ok(());
        }
        let BlockPointer::Data(data) = pointer.decode().within(|| format!("intent log of dataset {dataset}"))? else {
            bail!(Corrupt, "dataset {dataset}: its intent log leads to no block");
        };
        let (sequence, little_endian) = (data.checksum[zil::CHECKSUM_SEQUENCE], data.little_endian);
        if sequence > end {
            return Ok(());
        }
        let block = match io.read_if_written(&pointer, &bookmark(dataset, sequence)) {
            Ok(block) => Some(block),
            // The chain ends at the block that has not been written.
            Err(error) if error.kind() == ErrorKind::Checksum => None,
            Err(error) => return Err(error),
        };
        let parts = block.as_ref().and_then(|block| parts(&data, block));
        let Some((chain, records)) = parts else {
            return visit(LogBlock { pointer: &pointer, sequence, records: None }).map(|_| ());
        };
        let records = if little_endian { Cow::Borrowed(records) } else { Cow::Owned(zil::from_big_endian(records)) };
        if visit(LogBlock { pointer: &pointer, sequence, records: Some(&records) })?.is_break() {
            return Ok(());
        }
        pointer = chain.next;
    }
    bail!(Corrupt, "dataset {dataset}: its intent log has no end")
}

/// The name of a log block, for messages.
pub(super) fn bookmark(dataset: u64, sequence: u64) -> Bookmark {
    Bookmark { objset: dataset, object: 0, level: LOG_LEVEL, block: sequence }
}

/// A block's link and its records; `None`: they do not fit, or the link is not to the block that must follow.
fn parts<'a>(pointer: &DataPointer, block: &'a [u8]) -> Option<(ChainPhys, &'a [u8])> {
    let is_new = pointer.checksum_algorithm.number() == transform::checksum::ZILOG2;
    let start = if is_new { 0 } else { block.len().checked_sub(LINK_BYTES)? };
    let mut link = *block.get(start..)?.first_chunk::<LINK_BYTES>()?;
    if !pointer.little_endian {
        link.as_chunks_mut::<8>().0.iter_mut().for_each(|word| word.reverse());
    }
    let chain = ChainPhys::read_from_bytes(&link).ok()?;
    let mut expected = pointer.checksum;
    expected[zil::CHECKSUM_SEQUENCE] = expected[zil::CHECKSUM_SEQUENCE].wrapping_add(1);
    if chain.next.checksum_words() != expected {
        return None;
    }
    let end = usize::try_from(chain.used_bytes.get()).ok()?;
    Some((chain, block.get(if is_new { LINK_BYTES } else { 0 }..end)?))
}

/// The records of a block.
pub(super) fn records<'a>(block: &LogBlock<'a>) -> impl Iterator<Item = Result<(RecordHeader, &'a [u8]), Corruption>> + use<'a> {
    zil::records(block.records.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use ondisk::algorithm::ChecksumAlgorithm;
    use ondisk::dva::Dva;
    use ondisk::object_type::ObjectType;
    use zerocopy::{FromZeros, IntoBytes};

    use super::*;

    /// The link of a big-endian block was read as if it were little-endian, did not lead anywhere, and the log was taken for empty.
    #[test]
    fn a_written_block_of_either_byte_order_is_seen_to_be_one() {
        for (algorithm, little_endian) in [ChecksumAlgorithm::Zilog, ChecksumAlgorithm::Zilog2].into_iter().flat_map(|a| [(a, false), (a, true)]) {
            let mut pointer = DataPointer::new(&[Dva::new(0, 4096, 8192)], ObjectType::INTENT_LOG, 0, 7);
            (pointer.checksum_algorithm, pointer.checksum, pointer.little_endian) = (algorithm, [3, 4, 5, 6], little_endian);
            let mut next = pointer.clone();
            next.checksum = [3, 4, 5, 7];
            let mut chain = ChainPhys::new_zeroed();
            chain.next = next.encode();
            let is_new = algorithm == ChecksumAlgorithm::Zilog2;
            chain.used_bytes = if is_new { LINK_BYTES as u64 + 48 } else { 48 }.into();
            let mut link = chain.as_bytes().to_vec();
            if !little_endian {
                link.as_chunks_mut::<8>().0.iter_mut().for_each(|word| word.reverse());
            }
            let mut block = vec![0xee; 4096];
            let at = if is_new { 0 } else { 4096 - LINK_BYTES };
            block[at..at + LINK_BYTES].copy_from_slice(&link);
            let (_, found) = parts(&pointer, &block).unwrap();
            assert_eq!(found.len(), 48);
        }
    }
}
