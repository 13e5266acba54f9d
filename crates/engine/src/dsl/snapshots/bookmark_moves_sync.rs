//! Bookmarks whose snapshot gets another directory, or another successor.
//!
//! # Theory
//! Bookmarks belong to a head, and speak of its past. When a clone is promoted it gets the past up to its origin, and the bookmarks of that.
//! One that counts what was freed since its snapshot looks at the version after that one. If another comes after it now, what was freed is what
//! is on that one's deadlist.
//!
//! # On disk
//! `ondisk::dsl::BookmarkPhys`, [`ondisk::dsl::dataset_field::BOOKMARKS`]

use ondisk::dsl::{BOOKMARK_FLAG_HAS_FREED_BEFORE_NEXT, BookmarkPhys, dataset_field};
use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;

use crate::dmu::SyncTx;
use crate::dsl::dataset::Dataset;
use crate::dsl::dsl::Parts;
use crate::dsl::meta::Meta;
use crate::dsl::tasks::sync_tasks::cannot;
use crate::dsl::tree::names::NAME_BYTES_MAX;
use crate::error::{ErrorKind, Result, Within};

/// The bookmarks of a dataset; none: it never had any.
fn list_of(meta: &Meta, dataset: u64) -> Result<Option<u64>> {
    if meta.mos.info(dataset)?.object_type != ObjectType::ZAP_METADATA {
        return Ok(None);
    }
    meta.mos.zap_u64(dataset, dataset_field::BOOKMARKS)
}

/// Names and words of the bookmarks in a list that are not newer than `last`.
fn up_to(meta: &Meta, list: u64, last: u64) -> Result<Vec<(String, Vec<u64>)>> {
    let mut found = Vec::new();
    for (name, value) in meta.mos.zap_entries(list)? {
        let words = value.to_u64s();
        let phys = BookmarkPhys::from_words(&words).within(|| format!("bookmark {name}"))?;
        if phys.creation_txg.get() <= last {
            found.push((name, words));
        }
    }
    Ok(found)
}

/// Refuses a promotion after which two bookmarks of `clone` would have one name, or a name that is too long.
pub(in crate::dsl) fn check_bookmarks_move(meta: &Meta, name: &str, from: &Dataset, clone: &Dataset, last: u64) -> Result<()> {
    let Some(list) = list_of(meta, from.object)? else { return Ok(()) };
    let theirs = list_of(meta, clone.object)?;
    let moved = up_to(meta, list, last)?;
    for (short, _) in &moved {
        if let Some(theirs) = theirs
            && meta.mos.zap_contains(theirs, short)?
        {
            return Err(cannot("promote", name, &format!("conflicting snapshot '{short}'"), ErrorKind::Exists));
        }
        if name.len() + 1 + short.len() > NAME_BYTES_MAX {
            return Err(cannot("promote", name, "bookmark name is too long", ErrorKind::NameTooLong));
        }
    }
    let Some(theirs) = theirs else { return Ok(()) };
    let entries: Vec<(&[u8], usize)> = moved.iter().map(|(short, words)| (short.as_bytes(), size_of_val(words.as_slice()))).collect();
    meta.mos.zap(theirs)?.check_room_for(&entries)
}

/// Bookmarks of `from` up to `origin` are `clone`'s.
pub(in crate::dsl) fn move_bookmarks_sync(parts: &Parts, from: &Dataset, clone: &Dataset, origin: &Dataset, tx: &SyncTx<'_>) -> Result<()> {
    let (meta, mos) = (&parts.meta, &parts.meta.mos);
    let Some(list) = list_of(meta, from.object)? else { return Ok(()) };
    let moved = up_to(meta, list, origin.phys().creation_txg.get())?;
    if moved.is_empty() {
        return Ok(());
    }
    let target = match list_of(meta, clone.object)? {
        Some(there) => there,
        None => {
            let made = mos.zap_create_upper(ObjectType::ZAP_METADATA, tx)?;
            meta.features.increment(mos, Feature::Bookmarks, tx)?;
            meta.zapify(clone.object, tx)?;
            mos.zap_add_u64(clone.object, dataset_field::BOOKMARKS, made, tx)?;
            made
        }
    };
    for (name, words) in moved {
        mos.zap_remove(list, &name, tx)?;
        mos.zap_set_numbers(target, &name, &words, tx)?;
    }
    next_changed(parts, clone, origin, tx)
}

/// Another version comes after `snapshot`: those of the head's bookmarks that were made of the snapshot count from anew.
#[doc(alias = "dsl_bookmark_next_changed")]
pub(in crate::dsl) fn next_changed(parts: &Parts, head: &Dataset, snapshot: &Dataset, tx: &SyncTx<'_>) -> Result<()> {
    let meta = &parts.meta;
    let Some(list) = list_of(meta, head.object)? else { return Ok(()) };
    let txg = snapshot.phys().creation_txg.get();
    let next = snapshot.phys().next_snapshot.get();
    for (name, words) in up_to(meta, list, txg)? {
        let mut phys = BookmarkPhys::from_words(&words)?;
        if phys.creation_txg.get() != txg || phys.flags.get() & BOOKMARK_FLAG_HAS_FREED_BEFORE_NEXT == 0 || next == 0 {
            continue;
        }
        let dead = parts.tree.dataset(next)?.deadlist().space(meta)?;
        phys.referenced_freed_before_next = dead.used.into();
        phys.compressed_freed_before_next = dead.compressed.into();
        phys.uncompressed_freed_before_next = dead.uncompressed.into();
        meta.mos.zap_set_numbers(list, &name, &phys.to_words(), tx)?;
    }
    Ok(())
}

/// The txg of a dataset's newest bookmark; 0: it has none.
pub(in crate::dsl) fn latest_txg(meta: &Meta, dataset: u64) -> Result<u64> {
    let Some(list) = list_of(meta, dataset)? else { return Ok(0) };
    let mut latest = 0;
    for (name, value) in meta.mos.zap_entries(list)? {
        let phys = BookmarkPhys::from_words(&value.to_u64s()).within(|| format!("bookmark {name}"))?;
        latest = latest.max(phys.creation_txg.get());
    }
    Ok(latest)
}
