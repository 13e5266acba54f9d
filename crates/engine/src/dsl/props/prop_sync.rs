//! Setting properties.
//!
//! # Theory
//! Most properties are an entry in a dictionary and nothing else. Five are numbers of the records too, since space is counted
//! against them: quota, reservation, refquota, refreservation, and the two limits' counters. All of them are set in the sync
//! thread; open object sets learn of it right after.

use std::sync::Arc;

use ondisk::algorithm::Compression;
use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;
use ondisk::zap_fat;

use super::prop::{HAS_RECEIVED, INHERIT, PropertyValue, RECEIVED, UNKNOWN_TO_OTHERS};
use super::prop_table::{NAME_LENGTH_MAX, Property, find, is_user_property};
use crate::bail;
use crate::dmu::SyncTx;
use crate::dsl::counts::begin_counts;
use crate::dsl::dataset::Dataset;
use crate::dsl::dsl::Parts;
use crate::dsl::meta::Meta;
use crate::dsl::mos::Mos;
use crate::dsl::space::room::SpaceCheck;
use crate::error::Result;
use crate::zap::{Integers, Normalization, Zap};

/// What the low bits of `compression` say: the rest is a level.
const COMPRESSION_MASK: u64 = 0x7f;

/// Pools of this version and later tell received values from set ones.
const RECEIVED_VERSION: u64 = 22;

/// How a property is to be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PropertyChange {
    /// `zfs set`.
    Set(PropertyValue),
    /// `zfs inherit`: as if it had never been set, and not as received either.
    Inherit,
    /// `zfs inherit -S`: as received.
    Revert,
    /// It came with a stream.
    Receive(PropertyValue),
    /// What came with a stream before does not count any more.
    Unreceive,
}

/// Values that programs before OpenZFS 2.2 do not know: they see the default.
fn unknown_to_others(name: &str, value: &PropertyValue) -> bool {
    match name {
        "redundant_metadata" => matches!(value.number(), 2 | 3),
        "snapdir" => value.number() == 2,
        _ => false,
    }
}

/// Does it choose zstd, at whatever level?
fn is_zstd(change: &PropertyChange) -> bool {
    match change {
        PropertyChange::Set(value) | PropertyChange::Receive(value) => value.number() & COMPRESSION_MASK == Compression::Zstd as u64,
        PropertyChange::Inherit | PropertyChange::Revert | PropertyChange::Unreceive => false,
    }
}

/// Does it set a limit, and does not take one away?
fn is_limit(change: &PropertyChange) -> bool {
    matches!(change, PropertyChange::Set(value) | PropertyChange::Receive(value) if value.number() != u64::MAX)
}

fn put(mos: &Mos, dictionary: u64, key: &str, value: &PropertyValue, tx: &SyncTx<'_>) -> Result<()> {
    match value {
        PropertyValue::Number(number) => mos.zap_set_u64(dictionary, key, *number, tx),
        PropertyValue::Text(text) => {
            // What is there may be of the other kind; an update replaces both.
            let bytes = [text.as_bytes(), &[0]].concat();
            mos.zap(dictionary)?.update(tx, key, Integers::U8(&bytes))
        }
    }
}

/// Refuses what no dictionary can hold. Found out by the sync thread, that would stop the pool.
///
/// # Errors
/// `NameTooLong`, `TooBig`
pub(crate) fn check_fits(name: &str, value: &PropertyValue) -> Result<()> {
    if name.len() >= NAME_LENGTH_MAX {
        bail!(NameTooLong, "property name '{name}' is too long");
    }
    // A zero byte ends it.
    if matches!(value, PropertyValue::Text(text) if text.len() >= zap_fat::VALUE_MAX) {
        bail!(TooBig, "property value too long");
    }
    Ok(())
}

/// What the changes put into a dictionary: names, and how many bytes their values have.
fn entries_put(changes: &[(String, PropertyChange)]) -> Vec<(String, usize)> {
    let bytes = |value: &PropertyValue| match value {
        PropertyValue::Number(_) => size_of::<u64>(),
        PropertyValue::Text(text) => text.len() + 1,
    };
    let entry = |(name, change): &(String, PropertyChange)| match change {
        PropertyChange::Set(value) => Some((name.clone(), bytes(value))),
        PropertyChange::Receive(value) => Some((format!("{name}{RECEIVED}"), bytes(value))),
        PropertyChange::Inherit => Some((format!("{name}{INHERIT}"), size_of::<u64>())),
        PropertyChange::Revert | PropertyChange::Unreceive => None,
    };
    changes.iter().filter_map(entry).collect()
}

/// Refuses changes for which a dictionary that is made for them has no room, all together. Each of them fits: see [`check_fits`].
///
/// # Errors
/// `NoSpace`: too many names have nearly the same hash.
fn check_fit_together(changes: &[(String, PropertyChange)]) -> Result<()> {
    let put = entries_put(changes);
    let put: Vec<(&[u8], usize)> = put.iter().map(|(name, bytes)| (name.as_bytes(), *bytes)).collect();
    // Names of one length that share a hash do so with whatever salt.
    Zap::check_room_in_new_for(&put, 1, Normalization::NONE)
}

/// As [`check_fits`], of a change, with what it is called in the dictionary; and refuses what needs a feature that is not enabled.
///
/// # Errors
/// `NameTooLong`, `TooBig`, `Invalid`, `NotSupported`
fn check_change(meta: &Meta, name: &str, change: &PropertyChange) -> Result<()> {
    if name.is_empty() || name.contains('\0') {
        bail!(Invalid, "invalid property '{}'", name.escape_debug());
    }
    let (value, key_bytes) = match change {
        PropertyChange::Set(value) => (value, name.len()),
        PropertyChange::Receive(value) => (value, name.len() + RECEIVED.len()),
        PropertyChange::Inherit | PropertyChange::Revert | PropertyChange::Unreceive => return Ok(()),
    };
    check_fits(name, value)?;
    if key_bytes >= NAME_LENGTH_MAX {
        bail!(NameTooLong, "property name '{name}' is too long");
    }
    let counts = matches!(find(name).map(|property| property.name), Some("filesystem_limit" | "snapshot_limit"));
    if counts && is_limit(change) && !meta.features.is_enabled(Feature::FilesystemLimits) {
        bail!(NotSupported, "pool and or dataset must be upgraded to set this property or value");
    }
    Ok(())
}

/// Refuses properties of a new dataset that no dictionary can hold, or not together.
///
/// # Errors
/// `NameTooLong`, `TooBig`, `Invalid`, `NotSupported`; `NoSpace`: too many names have nearly the same hash.
pub(in crate::dsl) fn check_new_properties(meta: &Meta, changes: &[(String, PropertyChange)]) -> Result<()> {
    changes.iter().try_for_each(|(property, change)| check_change(meta, property, change))?;
    check_fit_together(changes)
}

/// Whether all the changes make sense for the dataset called `name`. Unless it `is_known` what is used, as it is in the sync thread, what is being freed is not held
/// against them.
pub(in crate::dsl) fn check_properties(parts: &Parts, name: &str, changes: &[(String, PropertyChange)], is_known: bool) -> Result<()> {
    let dataset = parts.tree.dataset_by_name(name)?;
    changes.iter().try_for_each(|(property, change)| dataset.check_property(property, change, changes, is_known))?;
    dataset.check_dictionary_has_room(changes)
}

/// Changes properties of the dataset called `name`. Checked before.
pub(in crate::dsl) fn set_properties_sync(parts: &Parts, name: &str, changes: &[(String, PropertyChange)], tx: &SyncTx<'_>) -> Result<()> {
    let dataset = parts.tree.dataset_by_name(name)?;
    for (property, change) in changes {
        change_property_sync(parts, &dataset, property, change, tx)?;
    }
    parts.objsets.refresh_settings()
}

/// From now on what came with streams counts for the dataset called `name`, even if nothing came: what is set on it stays at the next.
#[doc(alias = "dsl_prop_set_hasrecvd")]
pub(in crate::dsl) fn note_received_sync(parts: &Parts, name: &str, tx: &SyncTx<'_>) -> Result<()> {
    let dataset = parts.tree.dataset_by_name(name)?;
    let dictionary = dataset.own_dictionary(tx)?;
    dataset.note_received(dictionary, tx)
}

impl Dataset {
    /// Whether the change makes sense for this dataset, together with all others.
    fn check_property(self: &Arc<Self>, name: &str, change: &PropertyChange, all: &[(String, PropertyChange)], is_known: bool) -> Result<()> {
        let property = match find(name) {
            Some(property) => Some(property),
            None if is_user_property(name) => None,
            None => bail!(Invalid, "invalid property '{name}'"),
        };
        if self.is_snapshot && property.is_some() {
            bail!(NotSupported, "the property '{name}' cannot be set on a snapshot");
        }
        if property.is_some_and(|p| p.is_read_only() && !matches!(change, PropertyChange::Receive(_))) {
            bail!(Denied, "the property '{name}' is read-only");
        }
        check_change(self.meta(), name, change)?;
        if let PropertyChange::Set(value) | PropertyChange::Receive(value) = change {
            if property.is_some_and(|p| p.is_text() != matches!(value, PropertyValue::Text(_))) {
                bail!(Invalid, "the property '{name}' has a value of the wrong kind");
            }
            if is_known || !self.is_for_later(name) {
                self.check_limits(name, value.number(), all)?;
            }
        }
        Ok(())
    }

    /// Whether a limit fits is known only when the groups are on disk that take and free space now.
    fn is_for_later(&self, name: &str) -> bool {
        match name {
            "quota" => self.dir.promised() > 0 || self.dir.freeing() > 0,
            "reservation" | "refreservation" => true,
            _ => false,
        }
    }

    /// A limit has to fit what it will meet: the other limits are as `all` makes them.
    fn check_limits(self: &Arc<Self>, name: &str, value: u64, all: &[(String, PropertyChange)]) -> Result<()> {
        let changed = |wanted: &str| all.iter().rev().find_map(|(name, change)| match change {
            PropertyChange::Set(value) | PropertyChange::Receive(value) if name == wanted => Some(value.number()),
            _ => None,
        });
        let phys = self.dir.phys();
        let limits = self.limits();
        let (unique, reserved, refquota) = (limits.unique(), limits.reserved(), limits.quota());
        match name {
            "quota" if value != 0 => {
                let given_up = changed("refreservation").map_or(0, |new| unique.max(reserved).saturating_sub(unique.max(new)));
                let used = phys.used_bytes.get().saturating_sub(given_up);
                if value < used || value < changed("reservation").unwrap_or(phys.reserved.get()) {
                    bail!(NoSpace, "size is less than current used or reserved space");
                }
            }
            "refquota" if value != 0 && (value < self.referenced().used || value < changed("refreservation").unwrap_or(reserved)) => {
                bail!(NoSpace, "size is less than current used or reserved space");
            }
            "reservation" => {
                let used = phys.used_bytes.get();
                let more = used.max(value).saturating_sub(used.max(phys.reserved.get()));
                let above = match self.dir.parent() {
                    Some(parent) => self.room().available(&parent, false),
                    None => self.room().usable_space(SpaceCheck::Normal).saturating_sub(used),
                };
                let quota = changed("quota").unwrap_or(phys.quota.get());
                let over_quota = quota != 0 && value > quota;
                if more > 0 && (more > above || over_quota) {
                    bail!(NoSpace, "size is greater than available space");
                }
            }
            "refreservation" => {
                let more = unique.max(value).saturating_sub(unique.max(reserved));
                let refquota = changed("refquota").unwrap_or(refquota);
                let over_quota = refquota != 0 && value > refquota;
                if more > 0 && (over_quota || more > self.room().available_with(&self.dir, true, 0, changed("quota"))) {
                    bail!(NoSpace, "size is greater than available space");
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The object with what is stored here; 0: nothing is.
    fn dictionary(&self) -> u64 {
        if self.is_snapshot { self.phys().props.get() } else { self.dir.phys().props.get() }
    }

    /// Whether what the changes put into it finds room.
    fn check_dictionary_has_room(&self, changes: &[(String, PropertyChange)]) -> Result<()> {
        let dictionary = self.dictionary();
        if dictionary == 0 {
            return check_fit_together(changes);
        }
        let put = entries_put(changes);
        let put: Vec<(&[u8], usize)> = put.iter().map(|(name, bytes)| (name.as_bytes(), *bytes)).collect();
        self.meta().mos.zap(dictionary)?.check_room_for(&put)
    }

    /// The same, made if need be.
    fn own_dictionary(self: &Arc<Self>, tx: &SyncTx<'_>) -> Result<u64> {
        let mut dictionary = self.dictionary();
        if dictionary == 0 {
            dictionary = self.meta().mos.zap_create(ObjectType::DSL_PROPS, tx)?;
            self.change(|state| state.phys_mut().props = dictionary.into());
        }
        Ok(dictionary)
    }

    /// From now on `zfs inherit` has to say that the received value does not count.
    fn note_received(&self, dictionary: u64, tx: &SyncTx<'_>) -> Result<()> {
        let mos = &self.meta().mos;
        if self.meta().version() < RECEIVED_VERSION || mos.zap_contains(dictionary, HAS_RECEIVED)? {
            return Ok(());
        }
        mos.zap_set_u64(dictionary, HAS_RECEIVED, 0, tx)
    }

    /// The entries of the dictionary.
    fn store_property(self: &Arc<Self>, name: &str, change: &PropertyChange, tx: &SyncTx<'_>) -> Result<()> {
        let mos = &self.meta().mos;
        let takes_away = matches!(change, PropertyChange::Inherit | PropertyChange::Revert | PropertyChange::Unreceive);
        if takes_away && self.dictionary() == 0 {
            return Ok(());
        }
        let dictionary = self.own_dictionary(tx)?;
        let (inherit, received) = (format!("{name}{INHERIT}"), format!("{name}{RECEIVED}"));
        let unknown = format!("{name}{UNKNOWN_TO_OTHERS}");
        match change {
            PropertyChange::Set(value) => {
                mos.zap_remove(dictionary, &inherit, tx)?;
                if unknown_to_others(name, value) {
                    let default = PropertyValue::Number(find(name).map_or(0, Property::default_number));
                    put(mos, dictionary, &unknown, value, tx)?;
                    return put(mos, dictionary, name, &default, tx);
                }
                mos.zap_remove(dictionary, &unknown, tx)?;
                put(mos, dictionary, name, value, tx)
            }
            PropertyChange::Receive(value) => {
                self.note_received(dictionary, tx)?;
                put(mos, dictionary, &received, value, tx)
            }
            PropertyChange::Unreceive => mos.zap_remove(dictionary, &received, tx).map(|_| ()),
            PropertyChange::Revert => {
                mos.zap_remove(dictionary, name, tx)?;
                mos.zap_remove(dictionary, &inherit, tx).map(|_| ())
            }
            PropertyChange::Inherit => {
                mos.zap_remove(dictionary, name, tx)?;
                mos.zap_remove(dictionary, &unknown, tx)?;
                let fits = inherit.len() < zap_fat::NAME_MAX;
                if fits && self.meta().version() >= RECEIVED_VERSION && mos.zap_contains(dictionary, HAS_RECEIVED)? {
                    mos.zap_set_u64(dictionary, &inherit, 0, tx)?;
                }
                Ok(())
            }
        }
    }
}

/// Changes one property, with all that hangs on it. Checked before.
pub(in crate::dsl) fn change_property_sync(parts: &Parts, dataset: &Arc<Dataset>, name: &str, change: &PropertyChange, tx: &SyncTx<'_>) -> Result<()> {
    let name = find(name).map_or(name, |property| property.name);
    dataset.store_property(name, change, tx)?;
    match name {
        "quota" => {
            let value = dataset.number_property(name)?;
            parts.ledger.change_dir(&dataset.dir, |state| state.phys_mut().quota = value.into());
        }
        "reservation" => parts.ledger.set_reservation(&dataset.dir, dataset.number_property(name)?),
        "filesystem_limit" | "snapshot_limit" if is_limit(change) => begin_counts(&parts.meta, &parts.tree, &dataset.dir, tx)?,
        "refquota" => dataset.set_refquota(dataset.number_property(name)?),
        "refreservation" => dataset.set_refreservation(dataset.number_property(name)?),
        // A program without zstd must not take the value for something else, even if no block has it yet.
        "compression" if is_zstd(change) && parts.meta.features.is_enabled(Feature::ZstdCompress) => {
            dataset.activate_feature(Feature::ZstdCompress, tx)?;
        }
        _ => {}
    }
    let (event, details) = match change {
        PropertyChange::Set(value) | PropertyChange::Receive(value) => ("set", format!("{name}={}", printed(name, value))),
        PropertyChange::Inherit | PropertyChange::Revert | PropertyChange::Unreceive => ("inherit", name.to_owned()),
    };
    parts.record_dataset_event(dataset, event, &details, tx)
}

fn printed(name: &str, value: &PropertyValue) -> String {
    match value {
        PropertyValue::Text(text) => text.clone(),
        PropertyValue::Number(number) => match find(name).and_then(|p| p.number_to_word(*number)) {
            Some(word) => word.to_owned(),
            None => number.to_string(),
        },
    }
}
