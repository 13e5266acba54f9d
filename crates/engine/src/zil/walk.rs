//! Following a log from its header, block by block.

use std::ops::ControlFlow;

use ondisk::blkptr::{BlkPtr, BlockPointer, DataPointer};
use ondisk::zil::{self, ChainPhys, LogHeader};
use zerocopy::FromBytes;

use crate::bail;
use crate::error::{ErrorKind, Result, Within};
use crate::txg::Txg;
use crate::zio::{BlockIo, Bookmark};

/// The level of log blocks in bookmarks.
const LOG_LEVEL: i8 = -2;
/// Longest chain that is believed.
const BLOCKS_MAX: u64 = 1 << 24;

/// How far a log is followed that nobody has claimed yet.
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
    /// Its records; `None`: it has never been written, and is the last.
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
        let sequence = data.checksum[zil::CHECKSUM_SEQUENCE];
        if sequence > end {
            return Ok(());
        }
        let block = match io.read_physical(&pointer, &bookmark(dataset, sequence)) {
            Ok(block) => Some(block),
            // The chain ends at the block that has not been written.
            Err(error) if error.kind() == ErrorKind::Checksum => None,
            Err(error) => return Err(error),
        };
        let parts = block.as_ref().and_then(|block| parts(&data, block));
        let Some((chain, records)) = parts else {
            return visit(LogBlock { pointer: &pointer, sequence, records: None }).map(|_| ());
        };
        if visit(LogBlock { pointer: &pointer, sequence, records: Some(records) })?.is_break() {
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
    const LINK_BYTES: usize = size_of::<ChainPhys>();
    let is_new = pointer.checksum_algorithm.number() == transform::checksum::ZILOG2;
    let (start, chain) = if is_new {
        (LINK_BYTES, ChainPhys::read_from_prefix(block).ok()?.0)
    } else {
        (0, ChainPhys::read_from_suffix(block).ok()?.1)
    };
    let mut expected = pointer.checksum;
    expected[zil::CHECKSUM_SEQUENCE] = expected[zil::CHECKSUM_SEQUENCE].wrapping_add(1);
    if chain.next.checksum_words() != expected {
        return None;
    }
    let end = usize::try_from(chain.used_bytes.get()).ok()?;
    Some((chain, block.get(start..end)?))
}
