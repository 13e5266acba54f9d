//! Setting properties.
//!
//! # Theory
//! Most properties are an entry in a dictionary and nothing else. Five are numbers of the records too, since space is counted
//! against them: quota, reservation, refquota, refreservation, and the two limits' counters. All of them are set in the sync
//! thread; open object sets learn of it right after.

use std::sync::Arc;

use ondisk::algorithm::Compression;
use ondisk::dsl::UsedKind;
use ondisk::feature::Feature;
use ondisk::object_type::ObjectType;
use ondisk::zap_fat;

use crate::dsl::tree::dataset::Dataset;
use crate::dsl::tree::dir::Dir;
use crate::dsl::meta::SpaceDelta;
use crate::dsl::props::prop::{HAS_RECEIVED, INHERIT, PropertyValue, RECEIVED, UNKNOWN_TO_OTHERS};
use crate::dsl::props::prop_table::{NAME_LENGTH_MAX, Property, find, is_user_property};
use crate::dsl::space::room::SpaceCheck;
use crate::dsl::tree::tree::Dsl;
use crate::bail;
use crate::dmu::SyncTx;
use crate::error::Result;
use crate::zap::Integers;

/// What the low bits of `compression` say: the rest is a level.
const COMPRESSION_MASK: u64 = 0x7f;

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
        PropertyChange::Inherit | PropertyChange::Revert => false,
    }
}

fn put(dsl: &Dsl, dictionary: u64, key: &str, value: &PropertyValue, tx: &SyncTx<'_>) -> Result<()> {
    match value {
        PropertyValue::Number(number) => dsl.meta.mos.zap_set_u64(dictionary, key, *number, tx),
        PropertyValue::Text(text) => {
            // What is there may be of the other kind; an update replaces both.
            let bytes = [text.as_bytes(), &[0]].concat();
            dsl.meta.mos.zap(dictionary)?.update(tx, key, Integers::U8(&bytes))
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

impl Dsl {
    /// Changes properties of a dataset, and waits until that is on disk.
    ///
    /// # Errors
    /// `NotFound`, `Invalid`, `NoSpace` (a quota below what is used, a reservation beyond what there is).
    pub fn set_properties(self: &Arc<Self>, name: &str, changes: Vec<(String, PropertyChange)>) -> Result<()> {
        let (name, changes) = (name.to_owned(), Arc::new(changes));
        let (checked_name, checked) = (name.clone(), changes.clone());
        let check = move |dsl: &Arc<Dsl>| {
            let dataset = dsl.dataset_by_name(&checked_name)?;
            checked.iter().try_for_each(|(property, change)| dataset.check_property(property, change, &checked))
        };
        self.run_task(1 + changes.len() as u64, SpaceCheck::Reserved, check, move |dsl, tx| {
            let dataset = dsl.dataset_by_name(&name)?;
            for (property, change) in changes.iter() {
                dataset.change_property_sync(property, change, tx)?;
            }
            dsl.refresh_settings()
        })
    }
}

impl Dataset {
    /// Whether the change makes sense for this dataset, together with all others.
    fn check_property(self: &Arc<Self>, name: &str, change: &PropertyChange, all: &[(String, PropertyChange)]) -> Result<()> {
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
        if let PropertyChange::Set(value) | PropertyChange::Receive(value) = change {
            check_fits(name, value)?;
            if property.is_some_and(|p| p.is_text() != matches!(value, PropertyValue::Text(_))) {
                bail!(Invalid, "the property '{name}' has a value of the wrong kind");
            }
            self.check_limits(name, value.number(), all)?;
        }
        Ok(())
    }

    /// A limit has to fit what it will meet: the other limits are as `all` makes them.
    fn check_limits(self: &Arc<Self>, name: &str, value: u64, all: &[(String, PropertyChange)]) -> Result<()> {
        let changed = |wanted: &str| all.iter().rev().find_map(|(name, change)| match change {
            PropertyChange::Set(value) | PropertyChange::Receive(value) if name == wanted => Some(value.number()),
            _ => None,
        });
        let phys = self.dir.phys();
        let (unique, reserved, refquota) = {
            let state = self.state.lock();
            (state.phys.unique_bytes.get(), state.reserved, state.quota)
        };
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
                    Some(parent) => self.dsl.available(&parent, false),
                    None => self.dsl.usable_space(SpaceCheck::Normal).saturating_sub(used),
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
                if more > 0 && (over_quota || more > self.dsl.available_with(&self.dir, true, 0, changed("quota"))) {
                    bail!(NoSpace, "size is greater than available space");
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Changes one property, with all that hangs on it. Checked before.
    pub fn change_property_sync(self: &Arc<Self>, name: &str, change: &PropertyChange, tx: &SyncTx<'_>) -> Result<()> {
        let name = find(name).map_or(name, |property| property.name);
        self.store_property(name, change, tx)?;
        match name {
            "quota" => {
                let value = self.number_property(name)?;
                self.dsl.change_dir(&self.dir, |state| state.phys.quota = value.into());
            }
            "reservation" => self.dsl.set_reservation(&self.dir, self.number_property(name)?),
            "refquota" => {
                let value = self.number_property(name)?;
                self.state.lock().quota = value;
            }
            "refreservation" => self.set_refreservation(self.number_property(name)?),
            // Who knows no zstd must not take the value for something else, even if no block has it yet.
            "compression" if is_zstd(change) && self.dsl.meta.features.is_enabled(Feature::ZstdCompress) => {
                self.activate_feature(Feature::ZstdCompress, tx)?;
            }
            _ => {}
        }
        let (event, details) = match change {
            PropertyChange::Set(value) | PropertyChange::Receive(value) => ("set", format!("{name}={}", printed(name, value))),
            PropertyChange::Inherit | PropertyChange::Revert => ("inherit", name.to_owned()),
        };
        self.dsl.record_dataset_event(self, event, &details, tx)
    }

    /// The entries of the dictionary.
    fn store_property(self: &Arc<Self>, name: &str, change: &PropertyChange, tx: &SyncTx<'_>) -> Result<()> {
        let mos = &self.dsl.meta.mos;
        let mut dictionary = if self.is_snapshot { self.phys().props.get() } else { self.dir.phys().props.get() };
        if dictionary == 0 {
            if matches!(change, PropertyChange::Inherit | PropertyChange::Revert) {
                return Ok(());
            }
            dictionary = mos.zap_create(ObjectType::DSL_PROPS, tx)?;
            self.change(|state| state.phys.props = dictionary.into());
        }
        let (inherit, received) = (format!("{name}{INHERIT}"), format!("{name}{RECEIVED}"));
        let unknown = format!("{name}{UNKNOWN_TO_OTHERS}");
        match change {
            PropertyChange::Set(value) => {
                mos.zap_remove(dictionary, &inherit, tx)?;
                if unknown_to_others(name, value) {
                    let default = PropertyValue::Number(find(name).map_or(0, Property::default_number));
                    put(&self.dsl, dictionary, &unknown, value, tx)?;
                    return put(&self.dsl, dictionary, name, &default, tx);
                }
                mos.zap_remove(dictionary, &unknown, tx)?;
                put(&self.dsl, dictionary, name, value, tx)
            }
            PropertyChange::Receive(value) => put(&self.dsl, dictionary, &received, value, tx),
            PropertyChange::Revert => {
                mos.zap_remove(dictionary, name, tx)?;
                mos.zap_remove(dictionary, &inherit, tx).map(|_| ())
            }
            PropertyChange::Inherit => {
                mos.zap_remove(dictionary, name, tx)?;
                mos.zap_remove(dictionary, &unknown, tx)?;
                let fits = inherit.len() < zap_fat::NAME_MAX;
                if fits && self.dsl.meta.version() >= 22 && mos.zap_contains(dictionary, HAS_RECEIVED)? {
                    mos.zap_set_u64(dictionary, &inherit, 0, tx)?;
                }
                Ok(())
            }
        }
    }

    /// The dataset has this much for itself alone.
    pub(in crate::dsl) fn set_refreservation(self: &Arc<Self>, value: u64) {
        let delta = self.change(|state| {
            let unique = state.phys.unique_bytes.get();
            let before = state.reserved.saturating_sub(unique);
            state.reserved = value;
            value.saturating_sub(unique) as i64 - before as i64
        });
        self.dsl.did_use(&self.dir, UsedKind::RefReservation, SpaceDelta { used: delta, ..SpaceDelta::default() });
    }
}

impl Dsl {
    /// `dir` and what is below it have this much.
    pub(in crate::dsl) fn set_reservation(&self, dir: &Arc<Dir>, value: u64) {
        let delta = self.change_dir(dir, |state| {
            let used = state.phys.used_bytes.get();
            let before = used.max(state.phys.reserved.get());
            state.phys.reserved = value.into();
            used.max(value) as i64 - before as i64
        });
        if let Some(parent) = dir.parent() {
            self.did_use(&parent, UsedKind::ChildReservation, SpaceDelta { used: delta, ..SpaceDelta::default() });
        }
    }
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
