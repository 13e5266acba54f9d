//! How long a stream will be, about: from what is counted, without looking at blocks.
//!
//! # Theory
//! Nearly all of a stream is contents. So many bytes were referred to by the one snapshot and by the other, so many were freed between
//! them; the difference is what was written. Each record's worth of it costs a record in the stream, and cost a pointer in the pool.
//! Tools show this number, so it is reckoned as OpenZFS does it, with its roundings.

use std::sync::Arc;

use ondisk::dsl::{BOOKMARK_FLAG_HAS_FREED_BEFORE_NEXT, BookmarkPhys};
use ondisk::objset::ObjsetType;
use ondisk::stream::RECORD_SIZE;

use crate::dsl::deadlist::Deadlist;
use crate::dsl::{Dataset, Dsl, PropertyValue, Space};
use crate::error::Result;

/// Bytes of a block pointer.
const POINTER_BYTES: u64 = 128;

/// Bytes of the stream of a snapshot, from nothing or from what a bookmark says.
#[doc(alias = "dmu_send_estimate_fast")]
pub(super) fn estimate(dsl: &Dsl, dataset: &Arc<Dataset>, from: Option<&BookmarkPhys>, compressed: bool) -> Result<u64> {
    let phys = dataset.phys();
    let written = match from {
        Some(from) => written_since(dsl, dataset, from)?,
        None => Space { used: 0, compressed: phys.compressed_bytes.get(), uncompressed: phys.uncompressed_bytes.get() },
    };
    let number = |name: &str| -> Result<Option<u64>> {
        let value = dataset.any_property(name)?;
        Ok(if let Some((PropertyValue::Number(number), _)) = value { Some(number) } else { None })
    };
    let of_block = if dataset.objset_type()? == ObjsetType::Volume { "volblocksize" } else { "recordsize" };
    let block = number(of_block)?;
    let records = written.uncompressed / block.unwrap_or(128 << 10).max(512);
    let contents = if compressed { written.compressed } else { written.uncompressed };
    let with_records = contents.wrapping_sub(records * POINTER_BYTES).wrapping_add(records * RECORD_SIZE as u64);
    Ok(with_records.wrapping_add(2 * RECORD_SIZE as u64))
}

/// What was written since a bookmark was made.
#[doc(alias = "dsl_dataset_space_written_bookmark")]
fn written_since(dsl: &Dsl, dataset: &Arc<Dataset>, from: &BookmarkPhys) -> Result<Space> {
    let since = from.creation_txg.get();
    let mut phys = dataset.phys();
    let mut sum = Space {
        used: phys.referenced_bytes.get().wrapping_sub(from.referenced_bytes.get()),
        compressed: phys.compressed_bytes.get().wrapping_sub(from.compressed_bytes.get()),
        uncompressed: phys.uncompressed_bytes.get().wrapping_sub(from.uncompressed_bytes.get()),
    };
    let mut add = |space: Space| {
        sum.used = sum.used.wrapping_add(space.used);
        sum.compressed = sum.compressed.wrapping_add(space.compressed);
        sum.uncompressed = sum.uncompressed.wrapping_add(space.uncompressed);
    };
    // Each step goes to an older snapshot: a damaged pool cannot make it endless.
    let mut before = u64::MAX;
    while phys.prev_snapshot_txg.get() > since && phys.prev_snapshot_txg.get() < before && phys.prev_snapshot.get() != 0 {
        add(Deadlist::open(&dsl.meta, phys.deadlist.get())?.space_born_in(&dsl.meta, 0, since)?);
        before = phys.prev_snapshot_txg.get();
        phys = dsl.dataset_record(phys.prev_snapshot.get())?;
    }
    add(if from.flags.get() & BOOKMARK_FLAG_HAS_FREED_BEFORE_NEXT != 0 {
        Space {
            used: from.referenced_freed_before_next.get(),
            compressed: from.compressed_freed_before_next.get(),
            uncompressed: from.uncompressed_freed_before_next.get(),
        }
    } else {
        Deadlist::open(&dsl.meta, phys.deadlist.get())?.space(&dsl.meta)?
    });
    Ok(sum)
}
