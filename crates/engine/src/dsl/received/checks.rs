//! Whether a stream can be received where it is to go.

use std::sync::Arc;

use ondisk::algorithm::ChecksumAlgorithm;
use ondisk::dsl::{crypto_field, dataset_field as field};
use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;
use ondisk::objset::ObjsetType;
use ondisk::stream::{BEGIN_FLAG_CLONE, BEGIN_FLAG_FREE_RECORDS, BEGIN_FLAG_SPILL_BLOCK, HEADER_SUBSTREAM, StreamFeatures};
use ondisk::zap_fat;

use super::target::{ReceiveTarget, StreamHead};
use super::RECEIVED_BELOW;
use crate::dsl::PropertyValue;
use crate::dsl::counts::{Limited, check_limits};
use crate::dsl::dataset::Dataset;
use crate::dsl::dsl::Parts;
use crate::dsl::keys::wrapped_key::WrappedKey;
use crate::dsl::props::prop_sync::check_fits;
use crate::dsl::tree::create_sync::check_new_name;
use crate::dsl::tree::dir::Dir;
use crate::dsl::tree::names::DatasetName;
use crate::error;
use crate::error::{ErrorKind, Result};

/// Where it goes.
pub(super) enum Place {
    /// Into a new dataset below the directory, with this name; a clone of a snapshot, perhaps.
    New { parent: Arc<Dir>, name: String, origin: Option<Arc<Dataset>> },
    /// Into a hidden child of the head, which begins as a clone of the snapshot, if the stream is incremental.
    Existing { head: Arc<Dataset>, from: Option<Arc<Dataset>> },
    /// On with what is there.
    Resumed { dataset: Arc<Dataset>, is_new: bool },
}

/// What a pool must have enabled for a feature of a stream.
const NEEDED: [(StreamFeatures, Feature); 9] = [
    (StreamFeatures::RAW, Feature::Encryption),
    (StreamFeatures::LZ4, Feature::Lz4Compress),
    (StreamFeatures::ZSTD, Feature::ZstdCompress),
    (StreamFeatures::EMBED_DATA, Feature::EmbeddedData),
    (StreamFeatures::LARGE_BLOCKS, Feature::LargeBlocks),
    (StreamFeatures::LARGE_DNODE, Feature::LargeDnode),
    (StreamFeatures::LARGE_MICROZAP, Feature::LargeMicrozap),
    (StreamFeatures::REDACTED, Feature::RedactedDatasets),
    (StreamFeatures::LONG_NAME, Feature::Longname),
];

/// What an entry of a dictionary has room for.
const GUIDS_MAX: usize = zap_fat::VALUE_MAX / size_of::<u64>();

/// Looks whether the stream can go there. In open context, and again in the sync thread.
#[doc(alias = "dmu_recv_begin_check")]
pub(super) fn check_begin(parts: &Parts, target: &ReceiveTarget, head: &StreamHead) -> Result<Place> {
    check_stream(parts, target, head)?;
    check_raw(head)?;
    if head.is_resuming() {
        return check_resume(parts, target, head);
    }
    match parts.tree.dataset_by_name(&target.dataset) {
        Ok(dataset) => check_existing(parts, target, head, dataset),
        Err(error) if error.kind() == ErrorKind::NotFound => check_new(parts, target, head),
        Err(error) => Err(error),
    }
}

fn check_stream(parts: &Parts, target: &ReceiveTarget, head: &StreamHead) -> Result<()> {
    DatasetName::parse(&format!("{}@{}", target.dataset, target.snapshot))?;
    if head.begin.header_type() != HEADER_SUBSTREAM {
        return Err(error!(Invalid, "a package of streams is no stream of one snapshot"));
    }
    let features = head.features();
    let unknown = features.difference(StreamFeatures::all());
    if !unknown.is_empty() {
        return Err(error!(Unsupported, "the stream needs features that this version does not know (bits {:#x})", unknown.bits()));
    }
    if features.intersects(StreamFeatures::DEDUP | StreamFeatures::DEDUP_PROPS) {
        return Err(error!(Unsupported, "deduplicated streams are not received any more: 'zstream redup' makes others of them"));
    }
    let key = head.key()?;
    check_noted(target, head)?;
    let enabled = &parts.meta.features;
    let of_dnodes = key.and_then(|key| ChecksumAlgorithm::from_number(key.head.checksum)).and_then(ChecksumAlgorithm::feature);
    let needed = NEEDED.into_iter().filter(|(stream, _)| features.contains(*stream)).map(|(_, feature)| feature);
    for feature in needed.chain(of_dnodes) {
        if !enabled.is_enabled(feature) {
            return Err(error!(NotSupported, "the pool must be upgraded to receive this stream: it needs the feature {}", feature.guid()));
        }
    }
    if target.resumable && !enabled.is_enabled(Feature::ExtensibleDataset) {
        return Err(error!(NotSupported, "the pool must be upgraded to receive resumable streams: it needs the feature {}", Feature::ExtensibleDataset.guid()));
    }
    let kind = ObjsetType::from_number(head.begin.objset_type.into());
    if !matches!(kind, ObjsetType::FileSystem | ObjsetType::Volume) {
        return Err(error!(Invalid, "the stream is of no file system and no volume, but of type {}", head.begin.objset_type));
    }
    if features.contains(StreamFeatures::REDACTED) && head.redact_snapshots().is_none() {
        return Err(error!(Corrupt, "the stream is redacted, and does not say for which snapshots"));
    }
    if head.begin.flags & BEGIN_FLAG_CLONE != 0 && target.origin.is_none() && !head.is_resuming() {
        return Err(error!(Invalid, "the stream is of a clone, and nobody says of which snapshot"));
    }
    Ok(())
}

/// What is sent raw says which objects have spill blocks, and has no contents in pointers: so OpenZFS asks.
fn check_raw(head: &StreamHead) -> Result<()> {
    let features = head.features();
    if !features.contains(StreamFeatures::RAW) {
        return Ok(());
    }
    if features.contains(StreamFeatures::EMBED_DATA) {
        return Err(error!(Invalid, "the stream is encrypted, and embeds contents in pointers"));
    }
    if head.begin.flags & BEGIN_FLAG_SPILL_BLOCK == 0 {
        return Err(error!(NotSupported, "Spill block flag missing for raw send.\nThe zfs software on the sending system must be updated."));
    }
    Ok(())
}

/// What the dataset notes of the stream and of its target must fit: found out when the dataset is made, that would stop the pool.
fn check_noted(target: &ReceiveTarget, head: &StreamHead) -> Result<()> {
    for guids in [head.redact_snapshots(), head.redact_from_snapshots()].into_iter().flatten() {
        if guids.len() > GUIDS_MAX {
            return Err(error!(Unsupported, "the stream is redacted for {} snapshots: a dataset can be for {GUIDS_MAX}", guids.len()));
        }
    }
    match &target.key_location {
        Some(location) => check_fits("keylocation", &PropertyValue::Text(location.clone())),
        None => Ok(()),
    }
}

/// It is not in a file system that is there, nor is it being received.
fn check_new(parts: &Parts, target: &ReceiveTarget, head: &StreamHead) -> Result<Place> {
    let name = &target.dataset;
    if !head.is_full() && target.origin.is_none() {
        return Err(error!(NotFound, "destination '{name}' does not exist"));
    }
    if head.is_full() && target.origin.is_some() && head.begin.flags & BEGIN_FLAG_FREE_RECORDS == 0 {
        return Err(error!(Invalid, "the stream does not say what is free, and cannot be received as a clone"));
    }
    let (parent, last) = check_new_name(parts, "receive", name)?;
    check_limits(parts, &parent, 1, Limited::FileSystems, None)?;
    check_limits(parts, &parent, 1, Limited::Snapshots, None)?;
    let Some(origin) = &target.origin else {
        // It would be encrypted with the key of what is above it.
        if parent.crypto_key != 0 && !head.features().contains(StreamFeatures::RAW) && !target.stays_plain {
            return Err(error!(KeyNotLoaded, "inherited key must be loaded"));
        }
        return Ok(Place::New { parent, name: last, origin: None });
    };
    let origin = parts.tree.dataset_by_name(origin)?;
    if !origin.is_snapshot {
        return Err(error!(Invalid, "'{}' is no snapshot", origin.name()?));
    }
    if !head.is_full() && origin.phys().guid.get() != head.begin.from_guid {
        return Err(error!(Mismatch, "'{}' is not the snapshot that the stream is incremental from", origin.name()?));
    }
    check_redaction(parts, head, &origin)?;
    check_large_blocks(head, &origin)?;
    check_vectors(parts, head, &origin)?;
    Ok(Place::New { parent, name: last, origin: Some(origin) })
}

/// It goes into a file system that is there.
#[doc(alias = "recv_begin_check_existing_impl")]
fn check_existing(parts: &Parts, target: &ReceiveTarget, head: &StreamHead, dataset: Arc<Dataset>) -> Result<Place> {
    let name = &target.dataset;
    if dataset.is_snapshot || target.origin.is_some() {
        return Err(error!(Invalid, "'{name}' exists, and cannot become a clone"));
    }
    let busy = || error!(Busy, "'{name}': dataset is busy");
    if parts.tree.find_child(&dataset.dir, RECEIVED_BELOW)?.is_some() || has_resume_state(parts, dataset.object)? || dataset.is_inconsistent() {
        return Err(busy());
    }
    check_replayed(parts, &dataset)?;
    if dataset.snapshot_object(&target.snapshot)?.is_some() {
        return Err(error!(Exists, "'{name}@{}': destination already exists", target.snapshot));
    }
    let is_raw = head.features().contains(StreamFeatures::RAW);
    if head.is_full() && (is_raw || dataset.dir.crypto_key != 0) && target.force {
        return Err(error!(
            NotSupported,
            "zfs receive -F cannot be used to destroy an encrypted filesystem or overwrite an unencrypted one with an encrypted one"
        ));
    }
    if dataset.dir.crypto_key != 0 && !is_raw {
        return Err(error!(KeyNotLoaded, "inherited key must be loaded"));
    }
    if ObjsetType::from_number(head.begin.objset_type.into()) != ObjsetType::FileSystem && parts.meta.mos.zap_count(dataset.dir.phys().child_dirs.get())? != 0 {
        return Err(error!(Invalid, "'{name}' has children, which a volume cannot have"));
    }
    check_limits(parts, &dataset.dir, 1, Limited::Snapshots, None)?;
    if head.is_full() {
        if !target.force {
            return Err(error!(Exists, "destination '{name}' exists"));
        }
        return Ok(Place::Existing { head: dataset, from: None });
    }
    let from = snapshot_with_guid(parts, &dataset, head.begin.from_guid)?;
    let Some(from) = from else {
        return Err(error!(Mismatch, "most recent snapshot of {name} does not\nmatch incremental source"));
    };
    if !target.force && modified_since(&dataset, &from)? {
        return Err(error!(Modified, "destination {name} has been modified\nsince most recent snapshot"));
    }
    check_redaction(parts, head, &from)?;
    check_large_blocks(head, &from)?;
    check_vectors(parts, head, &from)?;
    // Without changes in between, what is newer than the one that matches is the same.
    let newest = dataset.prev().filter(|prev| !target.force && prev.dir.object == dataset.dir.object);
    Ok(Place::Existing { head: dataset, from: Some(newest.unwrap_or(from)) })
}

/// Refuses to replace a head whose intent log was not replayed: what that holds, and nobody else, would go with it.
///
/// # Errors
/// `Busy`; the head cannot be read.
pub(super) fn check_replayed(parts: &Parts, head: &Arc<Dataset>) -> Result<()> {
    if head.phys().block.is_hole() {
        return Ok(());
    }
    match parts.objsets.objset(head) {
        // It can be replaced, and what it held is leaked.
        Err(error) if parts.meta.context.io.is_lost(&error) => Ok(()),
        Err(error) => Err(error),
        Ok(objset) if ondisk::zil::header_needs_replay(&objset.zil_header()) => Err(error!(
            Busy,
            "'{}': its intent log is not replayed: import the pool again when its devices can be read, or with -m to lose what the log holds",
            head.dir.full_name()
        )),
        Ok(_) => Ok(()),
    }
}

/// The snapshot of a head with that guid.
fn snapshot_with_guid(parts: &Parts, head: &Arc<Dataset>, guid: u64) -> Result<Option<Arc<Dataset>>> {
    let mut at = head.phys().prev_snapshot.get();
    let mut before = u64::MAX;
    while at != 0 {
        let record = parts.tree.dataset_record(at)?;
        if record.dir.get() != head.dir.object || record.creation_txg.get() >= before {
            return Ok(None);
        }
        if record.guid.get() == guid {
            return parts.tree.dataset(at).map(Some);
        }
        (at, before) = (record.prev_snapshot.get(), record.creation_txg.get());
    }
    Ok(None)
}

/// Whether a head has been changed since one of its snapshots: another dnode of dnodes. What only the log changed does not count.
#[doc(alias = "dsl_dataset_modified_since_snap")]
pub(super) fn modified_since(head: &Arc<Dataset>, snapshot: &Arc<Dataset>) -> Result<bool> {
    if head.phys().block.logical_birth() <= snapshot.phys().creation_txg.get() {
        return Ok(false);
    }
    Ok(head.objset()?.meta().on_disk() != snapshot.objset()?.meta().on_disk())
}

/// A stream without large blocks cannot be put on top of what was received with them: their parts would have to be put together.
fn check_large_blocks(head: &StreamHead, before: &Dataset) -> Result<()> {
    if before.features().contains(&Feature::LargeBlocks) && !head.features().contains(StreamFeatures::LARGE_BLOCKS) {
        return Err(error!(
            Invalid,
            "incremental send stream requires -L (--large-block), to match previous receive."
        ));
    }
    Ok(())
}

/// What is sent raw goes on top of what was received raw, with the same master key and the vectors that the sender says.
#[doc(alias = "dsl_crypto_recv_raw_objset_check")]
fn check_vectors(parts: &Parts, head: &StreamHead, before: &Arc<Dataset>) -> Result<()> {
    let (mos, own) = (&parts.meta.mos, before.dir.crypto_key);
    let Some(key) = head.key()? else {
        return if own == 0 { Ok(()) } else { Err(error!(KeyNotLoaded, "inherited key must be loaded")) };
    };
    check_key(parts, &key, before)?;
    if key.head.max_block < before.objset()?.meta().max_block() {
        return Err(error!(Invalid, "the dnodes of the stream end before those of '{}'", before.name()?));
    }
    let has_fields = mos.info(before.object)?.object_type == ObjectType::ZAP_METADATA;
    let ours = if has_fields { mos.zap_u64(before.object, field::IVSET_GUID)?.unwrap_or(0) } else { 0 };
    if key.from_ivset_guid == 0 || ours == 0 {
        return Err(error!(NotSupported, "IV set guid missing. See errata 4 at https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-ER."));
    }
    if key.from_ivset_guid != ours {
        return Err(error!(
            NotSupported,
            "IV set guid mismatch. See the 'zfs receive' man page section\n discussing the limitations of raw encrypted send streams."
        ));
    }
    Ok(())
}

/// What is there is encrypted with the master key of the stream, and its dnodes are in a tree that can become that of the stream.
fn check_key(parts: &Parts, key: &WrappedKey, before: &Arc<Dataset>) -> Result<()> {
    let own = before.dir.crypto_key;
    if own == 0 {
        return Err(error!(NotSupported, "'{}' is not encrypted, and the stream is", before.name()?));
    }
    if parts.meta.mos.zap_u64(own, crypto_field::GUID)? != Some(key.guid) {
        return Err(error!(NotSupported, "encryption key does not match existing key"));
    }
    let dnodes = before.objset()?.meta().info();
    if key.head.levels < dnodes.levels || key.head.indirect_shift != dnodes.indirect_shift {
        return Err(error!(Invalid, "the dnodes of the stream are in a tree of another shape than those of '{}'", before.name()?));
    }
    Ok(())
}

/// On top of a redacted snapshot goes only what is redacted no less, or is one of those that it was redacted for.
#[doc(alias = "redact_check")]
fn check_redaction(parts: &Parts, head: &StreamHead, before: &Dataset) -> Result<()> {
    if head.is_full() || !before.features().contains(&Feature::RedactedDatasets) {
        return Ok(());
    }
    let theirs = parts.meta.mos.zap_get(before.object, Feature::RedactedDatasets.guid())?.map_or(Vec::new(), |value| value.to_u64s());
    let within = |snapshots: &[u64]| snapshots.iter().all(|guid| theirs.contains(guid));
    let is_right = match (head.redact_from_snapshots(), head.redact_snapshots()) {
        (Some(from), _) => within(from),
        (None, Some(snapshots)) if head.features().contains(StreamFeatures::REDACTED) => within(snapshots),
        (None, _) => theirs.contains(&head.begin.to_guid),
    };
    if is_right {
        return Ok(());
    }
    Err(error!(Invalid, "the stream cannot be received on '{}', which is redacted for other snapshots", before.name()?))
}

/// Whether the dataset says where an interrupted receive goes on.
pub(super) fn has_resume_state(parts: &Parts, dataset: u64) -> Result<bool> {
    let mos = &parts.meta.mos;
    Ok(mos.info(dataset)?.object_type == ObjectType::ZAP_METADATA && mos.zap_contains(dataset, field::RESUME_TO_GUID)?)
}

/// The stream goes on where another one broke off.
#[doc(alias = "dmu_recv_resume_begin_check")]
fn check_resume(parts: &Parts, target: &ReceiveTarget, head: &StreamHead) -> Result<Place> {
    let mos = &parts.meta.mos;
    let base = parts.tree.dataset_by_name(&target.dataset)?;
    let below = parts.tree.find_child(&base.dir, RECEIVED_BELOW)?;
    let is_new = below.is_none();
    let dataset = match below {
        Some(below) => parts.tree.dataset(below.phys().head_dataset.get())?,
        None => base.clone(),
    };
    if !is_new && head.is_full() && !target.force {
        return Err(error!(Exists, "Resuming recv on existing destination without force"));
    }
    if !is_new {
        check_replayed(parts, &base)?;
    }
    let mismatch = |what: &str| error!(Invalid, "the stream does not go on with what '{}' has of an interrupted one: {what}", target.dataset);
    if !dataset.is_inconsistent() || !has_resume_state(parts, dataset.object)? {
        return Err(mismatch("none was"));
    }
    let number = |name: &str| mos.zap_u64(dataset.object, name);
    if number(field::RESUME_TO_GUID)? != Some(head.begin.to_guid) {
        return Err(mismatch("it is of another snapshot"));
    }
    if parts.receives.is_under_way(dataset.object) {
        return Err(error!(Busy, "'{}': dataset is busy", target.dataset));
    }
    if dataset.prev().is_some_and(|prev| prev.dir.object == dataset.dir.object) {
        return Err(mismatch("it has a snapshot"));
    }
    if number(field::RESUME_FROM_GUID)?.unwrap_or(0) != head.begin.from_guid {
        return Err(mismatch("it is incremental from another snapshot"));
    }
    let place = (head.list.u64("resume_object"), head.list.u64("resume_offset"));
    if place != (number(field::RESUME_OBJECT)?, number(field::RESUME_OFFSET)?) {
        return Err(mismatch("it goes on at another place"));
    }
    let key = head.key()?;
    if key.is_some() != (dataset.dir.crypto_key != 0) {
        return Err(mismatch("one of the two was sent raw, the other was not"));
    }
    if let Some(key) = &key {
        check_key(parts, key, &dataset)?;
    }
    // Where the receive began at a newer one without changes, this one may be gone.
    if let Some(from) = snapshot_resumed_from(parts, head, &base, &dataset)? {
        check_vectors(parts, head, &from)?;
    }
    if head.features().contains(StreamFeatures::REDACTED) {
        let ours = mos.zap_get(dataset.object, Feature::RedactedDatasets.guid())?.map(|value| value.to_u64s());
        if ours.as_deref() != head.redact_snapshots() {
            return Err(mismatch("it is redacted for other snapshots"));
        }
    }
    check_large_blocks(head, &dataset)?;
    Ok(Place::Resumed { dataset, is_new })
}

/// The snapshot that the stream which goes on is incremental from.
fn snapshot_resumed_from(parts: &Parts, head: &StreamHead, base: &Arc<Dataset>, dataset: &Arc<Dataset>) -> Result<Option<Arc<Dataset>>> {
    if head.is_full() {
        return Ok(None);
    }
    if base.object == dataset.object { Ok(dataset.prev()) } else { snapshot_with_guid(parts, base, head.begin.from_guid) }
}
