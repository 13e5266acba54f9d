//! What a crash may not lose.
//!
//! # Theory
//! The intent log of an object set is a chain of blocks from its header. The real OpenZFS leaves the chain's next block in
//! the header when it closes a dataset, written or not. Such a log has nothing that is not on disk anyway, and stays where
//! it is; only one with something to replay stands in the way of writing.

use ondisk::blkptr::{BlockPointer, DataPointer};
use ondisk::zil::{self, ChainPhys, LogHeader};
use zerocopy::FromBytes;

use crate::dmu::Objset;
use crate::bail;
use crate::error::{ErrorKind, Result, Within};
use crate::zio::Bookmark;

/// The level of log blocks in bookmarks.
const LOG_LEVEL: i8 = -2;
/// Longest chain that is believed.
const BLOCKS_MAX: u64 = 1 << 24;

/// Whether the log of `objset` has changes that are not on disk. `first_txg` is the first that this import will write.
///
/// # Errors
/// The log cannot be read.
pub fn has_changes(objset: &Objset, first_txg: u64) -> Result<bool> {
    let bytes = objset.zil_header();
    let Ok((header, _)) = LogHeader::read_from_prefix(&bytes) else { return Ok(false) };
    let mut pointer = header.log;
    for _ in 0..BLOCKS_MAX {
        if pointer.is_hole() {
            return Ok(false);
        }
        let BlockPointer::Data(data) = pointer.decode().within(|| format!("{}: intent log", objset.name()))? else {
            bail!(Corrupt, "{}: its intent log leads to no block", objset.name());
        };
        let sequence = data.checksum[zil::CHECKSUM_SEQUENCE];
        let at = Bookmark { objset: objset.dataset(), object: 0, level: LOG_LEVEL, block: sequence };
        let block = match objset.context().io.read_physical(&pointer, &at) {
            Ok(block) => block,
            // The chain ends at the block that has not been written.
            Err(error) if error.kind() == ErrorKind::Checksum => return Ok(false),
            Err(error) => return Err(error),
        };
        // Blocks that nobody has claimed are only surely allocated if they are the first and empty.
        if header.claim_txg.get() == 0 {
            return Ok(true);
        }
        let Some((chain, records)) = parts(&data, &block) else { return Ok(true) };
        let done = header.claim_txg.get().min(first_txg);
        for record in zil::records(records) {
            match record {
                Ok((record, _)) if record.txg.get() < done || record.sequence.get() <= header.replay_sequence.get() => {}
                _ => return Ok(true),
            }
        }
        pointer = chain.next;
    }
    bail!(Corrupt, "{}: its intent log has no end", objset.name())
}

/// A block's link and its records; `None`: they do not fit.
fn parts<'a>(pointer: &DataPointer, block: &'a [u8]) -> Option<(ChainPhys, &'a [u8])> {
    const LINK_BYTES: usize = size_of::<ChainPhys>();
    let is_new = pointer.checksum_algorithm.number() == transform::checksum::ZILOG2;
    let (start, chain) = if is_new {
        (LINK_BYTES, ChainPhys::read_from_prefix(block).ok()?.0)
    } else {
        (0, ChainPhys::read_from_suffix(block).ok()?.1)
    };
    let end = usize::try_from(chain.used_bytes.get()).ok()?;
    Some((chain, block.get(start..end)?))
}
