//! Making and destroying bookmarks.
//!
//! # Theory
//! A bookmark says of a snapshot that may be gone which one it was, so that what came later can be sent. It belongs to a file system whose
//! past the snapshot is in. With the feature `bookmark_written` it says how much the snapshot referred to, and counts.
//!
//! # On disk
//! [`ondisk::dsl::BookmarkPhys`]; the smallest of its sizes that has all that is not 0.
//!
//! # Path
//! [`SnapshotVerbs::create_bookmarks`](crate::dsl::SnapshotVerbs::create_bookmarks), [`SnapshotVerbs::destroy_bookmarks`](crate::dsl::SnapshotVerbs::destroy_bookmarks).

use std::collections::BTreeMap;
use std::sync::Arc;

use ondisk::dsl::{
    BOOKMARK_FLAG_HAS_FREED_BEFORE_NEXT, BOOKMARK_FLAG_SNAPSHOT_EXISTS, BOOKMARK_WORDS_V1, BookmarkPhys, dataset_field,
};
use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;

use super::bookmarks_sync::{counting_bookmarks, destroy_redaction_list};
use super::destroy_sync::{collapse_keys, remove_key};
use super::redaction_sync::NewRedaction;
use super::snapshot_sync::Refusals;
use crate::dmu::SyncTx;
use crate::dsl::dataset::Dataset;
use crate::dsl::dsl::Parts;
use crate::dsl::received::UnderWay;
use crate::error::{ErrorKind, Result, Within};
use crate::zap::{Normalization, Zap};
use crate::{bail, error};

/// The name of a bookmark is not longer than that of a dataset.
const NAME_BYTES_MAX: usize = 255;

/// What is to be made: the new bookmark's full name, and the snapshot or bookmark that it is made of.
#[derive(Debug, Clone)]
pub struct NewBookmark {
    /// `pool/a#bookmark`
    pub name: String,
    /// `pool/a@snapshot` or `pool/b#bookmark`
    pub source: String,
}

/// The head and the short name.
pub(super) fn parse<'a>(parts: &Parts, name: &'a str) -> Result<(Arc<Dataset>, &'a str)> {
    let Some((head, short)) = name.split_once('#') else { bail!(Invalid, "{name}: it is no name of a bookmark") };
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | ' ');
    if short.is_empty() || !short.chars().all(is_allowed) || short == "." || short == ".." {
        bail!(Invalid, "{name}: invalid argument");
    }
    if name.len() > NAME_BYTES_MAX {
        bail!(NameTooLong, "{name}: the name is too long");
    }
    let head = parts.tree.dataset_by_name(head)?;
    if head.is_snapshot {
        bail!(Invalid, "{name}: it is of a snapshot");
    }
    Ok((head, short))
}

/// The bookmarks of a head: their object.
fn object_of(parts: &Parts, head: &Dataset) -> Result<Option<u64>> {
    let mos = &parts.meta.mos;
    if mos.info(head.object)?.object_type != ObjectType::ZAP_METADATA {
        return Ok(None);
    }
    mos.zap_u64(head.object, dataset_field::BOOKMARKS)
}

/// What a bookmark has, and of how many words it is.
pub(super) fn find(parts: &Parts, head: &Dataset, short: &str) -> Result<Option<(BookmarkPhys, usize)>> {
    let Some(object) = object_of(parts, head)? else { return Ok(None) };
    let Some(value) = parts.meta.mos.zap_get(object, short)? else { return Ok(None) };
    let words = value.to_u64s();
    Ok(Some((BookmarkPhys::from_words(&words)?, words.len())))
}

/// A bookmark that a stream is sent by, or from. While it lives, its redaction list cannot be destroyed.
#[derive(Debug)]
pub struct SentBookmark {
    /// What it says.
    pub phys: BookmarkPhys,
    _list: Option<UnderWay>,
}

/// The bookmark of that short name. The caller holds the lock of names: it is not destroyed between the look and the note.
pub(super) fn bookmark_to_send(parts: &Parts, head_name: &str, short: &str) -> Result<SentBookmark> {
    let head = parts.tree.dataset_by_name(head_name)?;
    let found = find(parts, &head, short).within(|| format!("{head_name}#{short}"))?;
    let (phys, _) = found.ok_or_else(|| error!(NotFound, "{head_name}#{short}: bookmark does not exist"))?;
    let list = phys.redaction_list.get();
    Ok(SentBookmark { phys, _list: (list != 0).then(|| parts.sent_lists.begin(list)) })
}

/// Whether the snapshot of `txg` in `dir` is in the past of `later`.
#[doc(alias = "dsl_dataset_is_before")]
fn is_before(later: &Arc<Dataset>, dir: u64, txg: u64) -> Result<bool> {
    let mut later = later.clone();
    loop {
        if later.is_snapshot && txg > later.phys().creation_txg.get() {
            return Ok(false);
        }
        if later.dir.object == dir {
            return Ok(true);
        }
        match later.origin()? {
            // Each origin is older: a damaged pool cannot make it endless.
            Some(origin) if !later.is_snapshot || origin.phys().creation_txg.get() < later.phys().creation_txg.get() => later = origin,
            _ => return Ok(false),
        }
    }
}

impl NewBookmark {
    pub(super) fn check(&self, parts: &Parts) -> Result<()> {
        if !parts.meta.features.is_enabled(Feature::Bookmarks) {
            bail!(NotSupported, "{}: bookmark feature not enabled", self.name);
        }
        let (head, short) = parse(parts, &self.name)?;
        if find(parts, &head, short)?.is_some() {
            bail!(Exists, "{}: bookmark exists", self.name);
        }
        if let Some(object) = object_of(parts, &head)? {
            parts.meta.mos.zap(object)?.check_room_for(&[(short.as_bytes(), size_of::<BookmarkPhys>())])?;
        }
        let (dir, txg) = if self.source.contains('@') {
            let snapshot = parts.tree.dataset_by_name(&self.source)?;
            if snapshot.features().contains(&Feature::RedactedDatasets) {
                redaction_of(parts, &snapshot)?.check_fits()?;
                // The bookmark has a list of what its snapshot is redacted for.
                if !parts.meta.features.is_enabled(Feature::RedactionBookmarks) {
                    bail!(NotSupported, "{}: redaction bookmarks feature not enabled", self.name);
                }
            }
            (snapshot.dir.object, snapshot.phys().creation_txg.get())
        } else {
            let (of, short) = parse(parts, &self.source)?;
            let (phys, _) = find(parts, &of, short)?.ok_or_else(|| error!(NotFound, "{}: there is no such bookmark", self.source))?;
            (of.dir.object, phys.creation_txg.get())
        };
        if !is_before(&head, dir, txg)? {
            bail!(CrossDevice, "{}: source is not an ancestor of the new bookmark's dataset", self.name);
        }
        Ok(())
    }

    fn create_sync(&self, parts: &Parts, tx: &SyncTx<'_>) -> Result<()> {
        let (head, short) = parse(parts, &self.name)?;
        let (phys, recorded_on, details) = if self.source.contains('@') {
            let snapshot = parts.tree.dataset_by_name(&self.source)?;
            let mut phys = phys_of(parts, &snapshot)?;
            let list = list_of_redacted(parts, &snapshot, tx)?;
            phys.redaction_list = list.into();
            let details = format!("name={short} creation_txg={} target_snap={} redact_obj={list}", phys.creation_txg, snapshot.object);
            (phys, head.clone(), details)
        } else {
            let (of, old) = parse(parts, &self.source)?;
            let (found, _) = find(parts, &of, old)?.ok_or_else(|| error!(Corrupt, "{}: the bookmark is gone", self.source))?;
            let phys = BookmarkPhys { redaction_list: 0.into(), ..found };
            (phys, of, format!("name={short} creation_txg={} source_guid={}", phys.creation_txg, phys.guid))
        };
        add_counted(parts, &head, short, &phys, tx)?;
        parts.record_dataset_event(&recorded_on, "bookmark", &details, tx)
    }
}

/// What a bookmark of a snapshot that was received redacted says: for which snapshots. 0: it is complete.
fn list_of_redacted(parts: &Parts, snapshot: &Dataset, tx: &SyncTx<'_>) -> Result<u64> {
    if !snapshot.features().contains(&Feature::RedactedDatasets) {
        return Ok(0);
    }
    redaction_of(parts, snapshot)?.write_list(parts, tx)
}

/// What a snapshot lacks: for which others, and no list of what.
fn redaction_of(parts: &Parts, snapshot: &Dataset) -> Result<NewRedaction> {
    let value = parts.meta.mos.zap_get(snapshot.object, Feature::RedactedDatasets.guid())?;
    let snapshots = value.map_or(Vec::new(), |value| value.to_u64s());
    Ok(NewRedaction { name: String::new(), source: String::new(), snapshots, blocks: Vec::new() })
}

fn counts(phys: &BookmarkPhys) -> bool {
    phys.flags.get() & BOOKMARK_FLAG_HAS_FREED_BEFORE_NEXT != 0
}

/// The bookmark of a snapshot that is there.
#[doc(alias = "dsl_bookmark_set_phys")]
pub(super) fn phys_of(parts: &Parts, snapshot: &Dataset) -> Result<BookmarkPhys> {
    let (meta, of) = (&parts.meta, snapshot.phys());
    let mut phys = BookmarkPhys::from_words(&[of.guid.get(), of.creation_txg.get(), of.creation_time.get()])?;
    if snapshot.dir.crypto_key != 0 && meta.features.is_enabled(Feature::BookmarkV2) && meta.mos.info(snapshot.object)?.object_type == ObjectType::ZAP_METADATA {
        phys.ivset_guid = meta.mos.zap_u64(snapshot.object, dataset_field::IVSET_GUID)?.unwrap_or(0).into();
    }
    if meta.features.is_enabled(Feature::BookmarkWritten) {
        phys.flags = (BOOKMARK_FLAG_SNAPSHOT_EXISTS | BOOKMARK_FLAG_HAS_FREED_BEFORE_NEXT).into();
        phys.referenced_bytes = of.referenced_bytes;
        phys.compressed_bytes = of.compressed_bytes;
        phys.uncompressed_bytes = of.uncompressed_bytes;
        let dead = parts.tree.dataset(of.next_snapshot.get())?.deadlist().space(meta)?;
        phys.referenced_freed_before_next = dead.used.into();
        phys.compressed_freed_before_next = dead.compressed.into();
        phys.uncompressed_freed_before_next = dead.uncompressed.into();
    }
    Ok(phys)
}

/// Adds a bookmark to those of a head; one that counts needs its feature.
pub(super) fn add_counted(parts: &Parts, head: &Arc<Dataset>, short: &str, phys: &BookmarkPhys, tx: &SyncTx<'_>) -> Result<()> {
    if counts(phys) {
        parts.meta.features.increment(&parts.meta.mos, Feature::BookmarkWritten, tx)?;
    }
    add(parts, head, short, phys, tx)
}

#[doc(alias = "dsl_bookmark_node_add")]
fn add(parts: &Parts, head: &Arc<Dataset>, short: &str, phys: &BookmarkPhys, tx: &SyncTx<'_>) -> Result<()> {
    let (meta, mos) = (&parts.meta, &parts.meta.mos);
    let object = match object_of(parts, head)? {
        Some(object) => object,
        None => {
            let object = mos.zap_create_upper(ObjectType::ZAP_METADATA, tx)?;
            meta.features.increment(mos, Feature::Bookmarks, tx)?;
            meta.zapify(head.object, tx)?;
            mos.zap_add_u64(head.object, dataset_field::BOOKMARKS, object, tx)?;
            object
        }
    };
    let needs_all = phys.ivset_guid.get() != 0 || counts(phys) || phys.redaction_list.get() != 0;
    let words = phys.to_words();
    if !needs_all || !meta.features.is_enabled(Feature::BookmarkV2) {
        return mos.zap_set_numbers(object, short, &words[..BOOKMARK_WORDS_V1], tx);
    }
    meta.features.increment(mos, Feature::BookmarkV2, tx)?;
    mos.zap_set_numbers(object, short, &words, tx)
}

/// Why some of them cannot be made.
pub(in crate::dsl) fn create_refusals(parts: &Parts, new: &[NewBookmark]) -> Refusals {
    let twice = |at: usize| new[..at].iter().any(|other| other.name == new[at].name);
    let refusal = |(at, bookmark): (usize, &NewBookmark)| {
        let refused = if twice(at) { Some(error!(Exists, "{}: bookmark exists", bookmark.name)) } else { bookmark.check(parts).err() };
        Some((bookmark.name.clone(), refused?))
    };
    let refusals: Refusals = new.iter().enumerate().filter_map(refusal).collect();
    if refusals.is_empty() { crowded(parts, new) } else { refusals }
}

/// Of those that are made together: the last one of each head whose dictionary has no room for all of them.
fn crowded(parts: &Parts, new: &[NewBookmark]) -> Refusals {
    let mut by_head: BTreeMap<&str, (&str, Vec<(&[u8], usize)>)> = BTreeMap::new();
    for NewBookmark { name, .. } in new {
        let Some((head, short)) = name.split_once('#') else { continue };
        let (last, entries) = by_head.entry(head).or_default();
        *last = name.as_str();
        entries.push((short.as_bytes(), size_of::<BookmarkPhys>()));
    }
    let check = |name: &str, entries: &[(&[u8], usize)]| -> Result<()> {
        let (head, _) = parse(parts, name)?;
        match object_of(parts, &head)? {
            Some(object) => parts.meta.mos.zap(object)?.check_room_for(entries),
            // Names of one length that share a hash do so with whatever salt.
            None => Zap::check_room_in_new_for(entries, 1, Normalization::NONE.ignoring_case()),
        }
    };
    by_head.into_values().filter_map(|(last, entries)| Some((last.to_owned(), check(last, &entries).err()?))).collect()
}

/// Makes bookmarks. Checked before.
pub(in crate::dsl) fn create_bookmarks_sync(parts: &Parts, new: &[NewBookmark], tx: &SyncTx<'_>) -> Result<()> {
    new.iter().try_for_each(|bookmark| bookmark.create_sync(parts, tx))
}

/// As [`parse`]; `None`: there is no such head.
fn parse_there<'a>(parts: &Parts, name: &'a str) -> Result<Option<(Arc<Dataset>, &'a str)>> {
    match parse(parts, name) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        parsed => parsed.map(Some),
    }
}

/// Whether these are names of bookmarks, there or not, and no stream is sent by one of them: its list would end in the middle, or be another object.
#[doc(alias = "dsl_bookmark_destroy_check")]
pub(in crate::dsl) fn check_destroy_bookmarks(parts: &Parts, names: &[String]) -> Result<()> {
    for name in names {
        let Some((head, short)) = parse_there(parts, name)? else { continue };
        if let Some((phys, _)) = find(parts, &head, short)?
            && parts.sent_lists.is_under_way(phys.redaction_list.get())
        {
            bail!(Busy, "{name}: dataset is busy");
        }
    }
    Ok(())
}

/// Destroys bookmarks; those that are not there are passed over. Checked before.
#[doc(alias = "dsl_bookmark_destroy_sync_impl")]
pub(in crate::dsl) fn destroy_bookmarks_sync(parts: &Parts, names: &[String], tx: &SyncTx<'_>) -> Result<()> {
    for name in names {
        let Some((head, short)) = parse_there(parts, name)? else { continue };
        if let Some((phys, words)) = find(parts, &head, short)? {
            destroy_one(parts, &head, short, &phys, words, tx)?;
        }
    }
    Ok(())
}

fn destroy_one(parts: &Parts, head: &Arc<Dataset>, short: &str, phys: &BookmarkPhys, words: usize, tx: &SyncTx<'_>) -> Result<()> {
    let (meta, mos) = (&parts.meta, &parts.meta.mos);
    let object = object_of(parts, head)?.ok_or_else(|| error!(Corrupt, "{}: its bookmarks are gone", head.dir.full_name()))?;
    if words > BOOKMARK_WORDS_V1 {
        meta.features.decrement(mos, Feature::BookmarkV2, tx)?;
    }
    let txg = phys.creation_txg.get();
    if counts(phys) {
        let others = counting_bookmarks(meta, head.object)?.map_or(Vec::new(), |(_, bookmarks)| bookmarks);
        let is_last = others.iter().filter(|other| other.creation_txg() == txg).count() == 1;
        let snapshot_exists = phys.flags.get() & BOOKMARK_FLAG_SNAPSHOT_EXISTS != 0;
        if is_last && !snapshot_exists && txg < head.phys().prev_snapshot_txg.get() {
            collapse_keys(parts, &head.dir, txg, tx)?;
            remove_key(parts, head, txg, tx)?;
        }
        meta.features.decrement(mos, Feature::BookmarkWritten, tx)?;
    }
    destroy_redaction_list(meta, phys.redaction_list.get(), tx)?;
    mos.zap_remove(object, short, tx)?;
    if mos.zap_count(object)? == 0 {
        mos.free(object, tx)?;
        meta.features.decrement(mos, Feature::Bookmarks, tx)?;
        mos.zap_remove(head.object, dataset_field::BOOKMARKS, tx)?;
    }
    parts.record_dataset_event(head, "remove bookmark", &format!("name={short}"), tx)
}
