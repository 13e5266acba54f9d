//! What a crash may not lose.
//!
//! # Theory
//! The intent log of an object set is a chain of blocks from its header. The real OpenZFS leaves the chain's next block in
//! the header when it closes a dataset, written or not. Such a log has nothing that is not on disk anyway, and stays where
//! it is; only one with something to replay stands in the way of writing.

use ondisk::blkptr::{BlkPtr, BlockPointer, DataPointer};
use ondisk::zil::{self, ChainPhys, LogHeader, RecordHeader};
use zerocopy::FromBytes;

use crate::dmu::Objset;
use crate::bail;
use crate::error::{ErrorKind, Result, Within};
use crate::zio::{BlockIo, Bookmark};

/// The level of log blocks in bookmarks.
const LOG_LEVEL: i8 = -2;
/// Longest chain that is believed.
const BLOCKS_MAX: u64 = 1 << 24;

/// A log block that was walked by.
pub struct LogBlock<'a> {
    /// Where it is.
    pub pointer: &'a BlkPtr,
    /// Its records; `None`: it has never been written, and is the last.
    pub records: Option<&'a [u8]>,
}

/// Walks the log in the header of object set `dataset` as far as its blocks are surely allocated. `first_txg` is the first
/// txg after those that are on disk.
///
/// # Errors
/// The log cannot be read or has no end; what `visit` says.
pub fn walk(io: &BlockIo, dataset: u64, header: &LogHeader, first_txg: u64, visit: &mut dyn FnMut(LogBlock<'_>) -> Result<()>) -> Result<()> {
    let claimed = header.claim_txg.get() != 0;
    let has_end = header.flags.get() & zil::LOG_FLAG_CLAIM_SEQUENCE_VALID != 0;
    let end = if has_end { header.claim_block_sequence.get() } else { u64::MAX };
    let mut pointer = header.log;
    for _ in 0..BLOCKS_MAX {
        if pointer.is_hole() || (!claimed && pointer.birth() >= first_txg) {
            return Ok(());
        }
        let BlockPointer::Data(data) = pointer.decode().within(|| format!("intent log of dataset {dataset}"))? else {
            bail!(Corrupt, "dataset {dataset}: its intent log leads to no block");
        };
        let sequence = data.checksum[zil::CHECKSUM_SEQUENCE];
        if sequence > end {
            return Ok(());
        }
        let at = Bookmark { objset: dataset, object: 0, level: LOG_LEVEL, block: sequence };
        let block = match io.read_physical(&pointer, &at) {
            Ok(block) => block,
            // The chain ends at the block that has not been written.
            Err(error) if error.kind() == ErrorKind::Checksum => return visit(LogBlock { pointer: &pointer, records: None }),
            Err(error) => return Err(error),
        };
        let Some((chain, records)) = parts(&data, &block) else {
            return visit(LogBlock { pointer: &pointer, records: None });
        };
        visit(LogBlock { pointer: &pointer, records: Some(records) })?;
        pointer = chain.next;
    }
    bail!(Corrupt, "dataset {dataset}: its intent log has no end")
}

/// Whether the log of `objset` has changes that are not on disk. `first_txg` is the first that this import will write.
///
/// # Errors
/// The log cannot be read.
pub fn has_changes(objset: &Objset, first_txg: u64) -> Result<bool> {
    let bytes = objset.zil_header();
    let Ok((header, _)) = LogHeader::read_from_prefix(&bytes) else { return Ok(false) };
    let claim_txg = header.claim_txg.get();
    let mut found = false;
    walk(&objset.context().io, objset.dataset(), &header, first_txg, &mut |block| {
        let Some(records) = block.records else { return Ok(()) };
        // What follows a block that nobody has claimed is not surely allocated: whoever finds one has to claim first.
        found |= claim_txg == 0;
        for record in zil::records(records) {
            let is_done = |record: RecordHeader| record.txg.get() < claim_txg || record.sequence.get() <= header.replay_sequence.get();
            found |= !record.is_ok_and(|(record, _)| is_done(record));
        }
        Ok(())
    })?;
    Ok(found)
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
