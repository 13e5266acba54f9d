//! What else has to know of the blocks that a dataset frees: its bookmarks, and the list of a clone's own blocks.
//!
//! # Theory
//! A bookmark may count what was freed since, of what there was when it was made; up to the next snapshot, that is, only while
//! nothing was snapshotted after it. So it can tell how much was written since then.
//!
//! A clone may have a *livelist* of the blocks that are its own, by which OpenZFS destroys it faster. It must name every block that
//! is born or freed, or none: we take it away before the clone is written, as OpenZFS itself does with those that do not pay.
//!
//! # On disk
//! `ondisk::dsl::BookmarkPhys`, `ondisk::dsl::dir_field::LIVELIST`
//!
//! # Path
//! [`Dataset::sync`] calls these before and after its object set is written.

use std::sync::Arc;

use ondisk::dsl::{BOOKMARK_FLAG_HAS_FREED_BEFORE_NEXT, BookmarkPhys, dataset_field, dir_field};
use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;
use zerocopy::IntoBytes;
use zerocopy::byteorder::{LittleEndian, U64};

use crate::dsl::tree::dataset::Dataset;
use crate::dsl::dead::deadlist::Deadlist;
use crate::dsl::meta::Space;
use crate::dsl::tree::tree::Dsl;
use crate::dmu::SyncTx;
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

impl Dsl {
    /// The bookmarks of a dataset: their object, and those that count.
    pub(in crate::dsl) fn counting_bookmarks(&self, dataset: u64) -> Result<Option<(u64, Vec<CountingBookmark>)>> {
        let mos = &self.meta.mos;
        if !self.meta.features.is_active(Feature::BookmarkWritten) || mos.info(dataset)?.object_type != ObjectType::ZAP_METADATA {
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
}

impl Dataset {
    /// Before the object set is written.
    pub(in crate::dsl) fn prepare_sync(self: &Arc<Self>, tx: &SyncTx<'_>) -> Result<()> {
        self.remove_livelist(tx)?;
        if let Some((_, mut bookmarks)) = self.dsl.counting_bookmarks(self.object)? {
            let mut state = self.state.lock();
            let newest = state.phys.prev_snapshot_txg.get();
            bookmarks.retain(|bookmark| bookmark.phys.creation_txg.get() >= newest);
            state.bookmarks = bookmarks;
        }
        Ok(())
    }

    /// After it: what the bookmarks counted.
    pub(in crate::dsl) fn finish_bookmarks(&self, tx: &SyncTx<'_>) -> Result<()> {
        let changed: Vec<CountingBookmark> = std::mem::take(&mut self.state.lock().bookmarks).into_iter().filter(|bookmark| bookmark.changed).collect();
        if changed.is_empty() {
            return Ok(());
        }
        let mos = &self.dsl.meta.mos;
        let Some(object) = mos.zap_u64(self.object, dataset_field::BOOKMARKS)? else { return Ok(()) };
        for CountingBookmark { name, phys, .. } in changed {
            let (words, _) = phys.as_bytes().as_chunks::<8>();
            let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
            mos.zap_set_numbers(object, &name, &words, tx)?;
        }
        Ok(())
    }

    /// Takes away the list of the clone's own blocks, not the blocks.
    #[doc(alias = "dsl_dir_remove_livelist")]
    pub(in crate::dsl) fn remove_livelist(&self, tx: &SyncTx<'_>) -> Result<()> {
        let (meta, dir) = (&self.dsl.meta, self.dir.object);
        if !meta.features.is_active(Feature::Livelist) || meta.mos.info(dir)?.object_type != ObjectType::ZAP_METADATA {
            return Ok(());
        }
        let Some(list) = meta.mos.zap_u64(dir, dir_field::LIVELIST)? else { return Ok(()) };
        Deadlist::destroy(meta, list, tx).within(|| format!("livelist of directory {dir}"))?;
        meta.mos.zap_remove(dir, dir_field::LIVELIST, tx)?;
        meta.features.decrement(&meta.mos, Feature::Livelist, tx)
    }
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
