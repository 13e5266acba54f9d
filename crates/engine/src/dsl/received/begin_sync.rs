//! Making the dataset that a stream is received into.

use std::sync::Arc;

use ondisk::dsl::{DATASET_FLAG_CASE_INSENSITIVE, DATASET_FLAG_INCONSISTENT, crypto_field, dataset_field as field};
use ondisk::feature::Feature;
use ondisk::objset::{ObjsetSize, ObjsetType};
use ondisk::stream::{BEGIN_FLAG_CASE_INSENSITIVE, StreamFeatures};

use super::RECEIVED_BELOW;
use super::checks::{Place, check_begin};
use super::target::{ReceiveTarget, ReceivedDataset, StreamHead};
use crate::dmu::SyncTx;
use crate::dsl::dataset::Dataset;
use crate::dsl::dsl::Parts;
use crate::dsl::PropertyValue;
use crate::dsl::props::prop_sync::{PropertyChange, change_property_sync};
use crate::dsl::tree::clone_sync::forget_log;
use crate::dsl::tree::create_sync::{create_dataset_sync, create_objset_sync};
use crate::dsl::keys::wrapped_key::WrappedKey;
use crate::error::Result;

/// What says by being there that something may be sent.
const FLAGS: [(StreamFeatures, &str); 4] = [
    (StreamFeatures::LARGE_BLOCKS, field::RESUME_LARGE_BLOCK),
    (StreamFeatures::EMBED_DATA, field::RESUME_EMBED),
    (StreamFeatures::COMPRESSED, field::RESUME_COMPRESS),
    (StreamFeatures::RAW, field::RESUME_RAW),
];

/// Features of a dataset that it has from the beginning, so that what is sent on from it, or received on it, is known to need them.
const FEATURES: [(StreamFeatures, Feature); 3] = [
    (StreamFeatures::LARGE_BLOCKS, Feature::LargeBlocks),
    (StreamFeatures::LONG_NAME, Feature::Longname),
    (StreamFeatures::LARGE_MICROZAP, Feature::LargeMicrozap),
];

/// Makes the dataset, or finds what is to be resumed.
#[doc(alias = "dmu_recv_begin_sync")]
pub(super) fn begin_sync(parts: &Parts, target: ReceiveTarget, head: &StreamHead, tx: &SyncTx<'_>) -> Result<ReceivedDataset> {
    let key = head.key()?;
    let (dataset, is_new, is_resumed) = match check_begin(parts, &target, head)? {
        Place::New { parent, name, origin } => (create_dataset_sync(parts, &parent, &name, origin.as_ref(), key.as_ref().map(|key| (key, target.inherits_key == Some(true))), tx)?, true, false),
        Place::Existing { head, from } => (create_dataset_sync(parts, &head.dir, RECEIVED_BELOW, from.as_ref(), None, tx)?, false, false),
        Place::Resumed { dataset, is_new } => (dataset, is_new, true),
    };
    let mut bytes_before = 0;
    if is_resumed {
        bytes_before = parts.meta.mos.zap_u64(dataset.object, field::RESUME_BYTES)?.unwrap_or(0);
        parts.record_dataset_event(&dataset, "resume receive", " ", tx)?;
    } else {
        furnish(parts, &dataset, &target, head, key.as_ref(), tx)?;
        parts.record_dataset_event(&dataset, "receive", " ", tx)?;
    }
    // One that is resumed nobody else can take since it was checked: that needs the lock of names.
    let under_way = parts.receives.begin(dataset.object);
    // What it is a clone of has had a log since, and the first block of that is named in its root.
    forget_log(parts, &dataset, tx)?;
    let objset = parts.objsets.objset(&dataset)?;
    if let Some(key) = key.filter(|_| !is_resumed) {
        objset.set_raw_head(tx, &key.head)?;
    }
    Ok(ReceivedDataset { dataset, objset, is_new, bytes_before, should_save: is_resumed, target, _under_way: under_way })
}

/// Gives a new dataset what a received one has.
fn furnish(parts: &Parts, dataset: &Arc<Dataset>, target: &ReceiveTarget, head: &StreamHead, key: Option<&WrappedKey>, tx: &SyncTx<'_>) -> Result<()> {
    // A clone of a redacted snapshot is not redacted for the same ones.
    if dataset.features().contains(&Feature::RedactedDatasets) {
        dataset.deactivate_feature(Feature::RedactedDatasets, tx)?;
    }
    if target.resumable {
        note_resumable(parts, dataset, head, tx)?;
    }
    if head.features().contains(StreamFeatures::REDACTED)
        && let Some(snapshots) = head.redact_snapshots()
    {
        dataset.activate_feature(Feature::RedactedDatasets, tx)?;
        parts.meta.mos.zap_set_numbers(dataset.object, Feature::RedactedDatasets.guid(), snapshots, tx)?;
    }
    let case_insensitive = head.begin.flags & BEGIN_FLAG_CASE_INSENSITIVE != 0;
    dataset.change(|state| {
        let flags = DATASET_FLAG_INCONSISTENT | if case_insensitive { DATASET_FLAG_CASE_INSENSITIVE } else { 0 };
        state.phys_mut().flags |= flags;
    });
    for (stream, feature) in FEATURES {
        if head.features().contains(stream) {
            dataset.activate_feature(feature, tx)?;
        }
    }
    if !dataset.phys().block.is_hole() {
        return Ok(());
    }
    let objset_type = ObjsetType::from_number(head.begin.objset_type.into());
    let Some(key) = key else { return create_objset_sync(parts, dataset, objset_type, Box::new(|_, _| Ok(())), tx) };
    dataset.activate_feature(Feature::Encryption, tx)?;
    if parts.meta.mos.zap_u64(dataset.dir.crypto_key, crypto_field::ROOT_DIR)? == Some(dataset.dir.object) {
        let location = target.key_location.clone().unwrap_or_else(|| "prompt".to_owned());
        change_property_sync(parts, dataset, "keylocation", &PropertyChange::Set(PropertyValue::Text(location)), tx)?;
    }
    let objset = parts.objsets.create_raw(dataset, objset_type, ObjsetSize::for_pool(parts.meta.version()), &key.head, tx)?;
    parts.objsets.insert(dataset, &objset);
    Ok(())
}

/// Writes down what the sender of the rest will have to know.
fn note_resumable(parts: &Parts, dataset: &Dataset, head: &StreamHead, tx: &SyncTx<'_>) -> Result<()> {
    let (mos, object) = (&parts.meta.mos, dataset.object);
    parts.meta.zapify(object, tx)?;
    if !head.is_full() {
        mos.zap_add_u64(object, field::RESUME_FROM_GUID, head.begin.from_guid, tx)?;
    }
    mos.zap_add_u64(object, field::RESUME_TO_GUID, head.begin.to_guid, tx)?;
    mos.zap_set_text(object, field::RESUME_TO_NAME, &String::from_utf8_lossy(head.begin.name()), tx)?;
    mos.zap_add_u64(object, field::RESUME_OBJECT, 1, tx)?;
    mos.zap_add_u64(object, field::RESUME_OFFSET, 0, tx)?;
    mos.zap_add_u64(object, field::RESUME_BYTES, 0, tx)?;
    for (stream, name) in FLAGS {
        if head.features().contains(stream) {
            mos.zap_add_u64(object, name, 1, tx)?;
        }
    }
    if let Some(snapshots) = head.redact_from_snapshots() {
        mos.zap_set_numbers(object, field::RESUME_REDACT_SNAPSHOTS, snapshots, tx)?;
    }
    Ok(())
}
