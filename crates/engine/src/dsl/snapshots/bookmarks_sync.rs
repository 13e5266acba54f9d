//! Bookmarks that count what their dataset frees.
//!
//! # Theory
//! A bookmark may count what was freed since, of what there was when it was made; up to the next snapshot, that is, only while
//! nothing was snapshotted after it. So it can tell how much was written since then.
//!
//! # On disk
//! `ondisk::dsl::BookmarkPhys`
//!
//! # Path
//! [`Dataset::sync`](crate::dsl::Dataset::sync) calls these before and after its object set is written.

use ondisk::dsl::{BOOKMARK_FLAG_HAS_FREED_BEFORE_NEXT, BOOKMARK_FLAG_SNAPSHOT_EXISTS, BookmarkPhys, DatasetPhys, dataset_field};
use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;
use zerocopy::byteorder::{LittleEndian, U64};

use crate::dmu::SyncTx;
use crate::dsl::dead::deadlist::Deadlist;
use crate::dsl::meta::{Meta, Space};
use crate::error::{Result, Within};

/// A bookmark that counts, while its dataset is written.
#[derive(Debug, Clone)]
pub(in crate::dsl) struct CountingBookmark {
    name: String,
    phys: BookmarkPhys,
    changed: bool,
}

fn add(sum: &mut U64<LittleEndian>, bytes: u64) {
    *sum = sum.get().saturating_add(bytes).into();
}

impl CountingBookmark {
    /// The txg of the snapshot that it was made from.
    pub(in crate::dsl) fn creation_txg(&self) -> u64 {
        self.phys.creation_txg.get()
    }

    /// A block of `birth` was freed.
    pub(in crate::dsl) fn killed(&mut self, birth: u64, space: Space) {
        if birth <= self.phys.creation_txg.get() {
            add(&mut self.phys.referenced_freed_before_next, space.used);
            add(&mut self.phys.compressed_freed_before_next, space.compressed);
            add(&mut self.phys.uncompressed_freed_before_next, space.uncompressed);
            self.changed = true;
        }
    }
}

/// The bookmarks of a dataset: their object, and those that count.
pub(in crate::dsl) fn counting_bookmarks(meta: &Meta, dataset: u64) -> Result<Option<(u64, Vec<CountingBookmark>)>> {
    let mos = &meta.mos;
    if !meta.features.is_active(Feature::BookmarkWritten) || mos.info(dataset)?.object_type != ObjectType::ZAP_METADATA {
        return Ok(None);
    }
    let Some(object) = mos.zap_u64(dataset, dataset_field::BOOKMARKS)? else { return Ok(None) };
    let mut found = Vec::new();
    for (name, value) in mos.zap_entries(object).within(|| format!("bookmarks of dataset {dataset}"))? {
        let phys = BookmarkPhys::from_words(&value.to_u64s()).within(|| format!("bookmark {name} of dataset {dataset}"))?;
        if phys.flags.get() & BOOKMARK_FLAG_HAS_FREED_BEFORE_NEXT != 0 {
            found.push(CountingBookmark { name, phys, changed: false });
        }
    }
    Ok(Some((object, found)))
}

/// Writes down what the bookmarks of a dataset counted while its object set was written.
pub(in crate::dsl) fn write_bookmarks(meta: &Meta, dataset: u64, mut bookmarks: Vec<CountingBookmark>, tx: &SyncTx<'_>) -> Result<()> {
    bookmarks.retain(|bookmark| bookmark.changed);
    if bookmarks.is_empty() {
        return Ok(());
    }
    let Some(object) = meta.mos.zap_u64(dataset, dataset_field::BOOKMARKS)? else { return Ok(()) };
    for CountingBookmark { name, phys, .. } in bookmarks {
        meta.mos.zap_set_numbers(object, &name, &phys.to_words(), tx)?;
    }
    Ok(())
}

/// A snapshot of `head` is destroyed: bookmarks between it and the one before count what died up to the snapshot after it, `next`. Whether a
/// bookmark is left that counts what was born up to the snapshot.
#[doc(alias = "dsl_bookmark_ds_destroyed")]
pub(in crate::dsl) fn snapshot_destroyed(meta: &Meta, head: u64, snapshot: &DatasetPhys, next: &Deadlist, tx: &SyncTx<'_>) -> Result<bool> {
    let Some((object, bookmarks)) = counting_bookmarks(meta, head)? else { return Ok(false) };
    let mut is_left = false;
    for CountingBookmark { name, mut phys, .. } in bookmarks {
        let txg = phys.creation_txg.get();
        if txg == snapshot.creation_txg.get() {
            phys.flags &= !BOOKMARK_FLAG_SNAPSHOT_EXISTS;
            is_left = true;
        } else if txg >= snapshot.prev_snapshot_txg.get() && txg < snapshot.creation_txg.get() {
            let died = next.space_born_in(meta, 0, txg)?;
            add(&mut phys.referenced_freed_before_next, died.used);
            add(&mut phys.compressed_freed_before_next, died.compressed);
            add(&mut phys.uncompressed_freed_before_next, died.uncompressed);
        } else {
            continue;
        }
        meta.mos.zap_set_numbers(object, &name, &phys.to_words(), tx)?;
    }
    Ok(is_left)
}

/// A bookmark is destroyed: what it says of redaction goes with it. `list` may be 0: it says nothing.
pub(in crate::dsl) fn destroy_redaction_list(meta: &Meta, list: u64, tx: &SyncTx<'_>) -> Result<()> {
    if list == 0 {
        return Ok(());
    }
    if meta.mos.0.hold(list)?.spill()?.is_some() {
        meta.features.decrement(&meta.mos, Feature::RedactionListSpill, tx)?;
    }
    meta.mos.free(list, tx)?;
    meta.features.decrement(&meta.mos, Feature::RedactionBookmarks, tx)
}

/// A dataset is destroyed, and its bookmarks with it.
pub(in crate::dsl) fn destroy_bookmarks(meta: &Meta, dataset: u64, tx: &SyncTx<'_>) -> Result<()> {
    if meta.mos.info(dataset)?.object_type != ObjectType::ZAP_METADATA {
        return Ok(());
    }
    for _ in counting_bookmarks(meta, dataset)?.into_iter().flat_map(|(_, bookmarks)| bookmarks) {
        meta.features.decrement(&meta.mos, Feature::BookmarkWritten, tx)?;
    }
    if let Some(bookmarks) = meta.mos.zap_u64(dataset, dataset_field::BOOKMARKS)? {
        for (name, value) in meta.mos.zap_entries(bookmarks)? {
            let phys = BookmarkPhys::from_words(&value.to_u64s()).within(|| format!("bookmark {name} of dataset {dataset}"))?;
            destroy_redaction_list(meta, phys.redaction_list.get(), tx)?;
        }
        meta.mos.free(bookmarks, tx)?;
        meta.features.decrement(&meta.mos, Feature::Bookmarks, tx)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bookmark_counts_what_it_had_seen() {
        let mut phys: BookmarkPhys = zerocopy::FromZeros::new_zeroed();
        phys.creation_txg = 10.into();
        let mut bookmark = CountingBookmark { name: "b".into(), phys, changed: false };
        let space = Space { used: 4096, compressed: 1000, uncompressed: 8192 };
        bookmark.killed(11, space);
        assert!(!bookmark.changed, "it came later");
        bookmark.killed(10, space);
        bookmark.killed(3, space);
        let counted = (bookmark.phys.referenced_freed_before_next.get(), bookmark.phys.uncompressed_freed_before_next.get());
        assert_eq!((bookmark.changed, counted), (true, (2 * 4096, 2 * 8192)));
    }
}
