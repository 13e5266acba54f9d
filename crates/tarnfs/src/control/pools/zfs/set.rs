//! `zfs set` and `zfs inherit`

use engine::dsl::prop_table::{DatasetTypes, find, is_user_property};
use engine::error::ErrorKind;

use super::datasets::volume_reservation;
use super::mounting::NotMounted;
use super::quotas;
use crate::control::pools::{Failure, FailureKind, Pools, checks};
use crate::control::{DatasetInherit, DatasetSet, Setting, Value};
use crate::{Pool, PropertyChange};

/// The property of which the kernel learns only at a mount.
const ACL_TYPE: &str = "acltype";

impl Pools {
    pub(in crate::control::pools) fn set_properties(&mut self, set: &DatasetSet) -> Result<(), Failure> {
        let types = self.types_of(&set.name)?;
        if types == DatasetTypes::SNAPSHOT && set.settings.iter().any(|setting| !is_user_property(&setting.name)) {
            return Err(Failure::with(FailureKind::PropertyType, "this property can not be modified for snapshots"));
        }
        let pool = self.pool_of(&set.name)?.pool.clone();
        let (limits, mut settings) = quotas::split(&set.settings)?;
        if types == DatasetTypes::VOLUME {
            reserve_all(&pool, &set.name, &mut settings)?;
        }
        let features = &pool.engine().dsl.meta.features;
        let mut changes = checks::changes(&settings, types, false, &|feature| features.is_enabled(feature))?;
        if set.received {
            changes = changes.into_iter().map(|(name, change)| (name, as_received(change))).collect();
        }
        self.set_version(&set.name, &set.settings)?;
        quotas::set(&pool, &set.name, types, &limits)?;
        self.change(&set.name, changes, set.no_remount)
    }

    pub(in crate::control::pools) fn inherit_property(&mut self, inherit: &DatasetInherit) -> Result<(), Failure> {
        let types = self.types_of(&inherit.name)?;
        let name = match find(&inherit.property) {
            Some(property) if property.is_read_only() => return Err(Failure::new(FailureKind::ReadOnlyProperty)),
            Some(property) if !property.applies_to(types) => return Err(Failure::new(FailureKind::PropertyType)),
            Some(property) if !property.is_inheritable() && !inherit.received => return Err(Failure::new(FailureKind::NotInheritable)),
            Some(property) => property.name.to_owned(),
            None if is_user_property(&inherit.property) => inherit.property.clone(),
            None => return Err(Failure::with(FailureKind::BadProperty, format!("invalid property '{}'", inherit.property))),
        };
        let change = if inherit.received { PropertyChange::Revert } else { PropertyChange::Inherit };
        self.change(&inherit.name, vec![(name, change)], false)
    }

    /// Changes properties; what is mounted follows.
    fn change(&mut self, name: &str, changes: Vec<(String, PropertyChange)>, no_remount: bool) -> Result<(), Failure> {
        if changes.is_empty() {
            return Ok(());
        }
        let pool = self.pool_of(name)?.pool.clone();
        let sets_acltype = changes.iter().any(|(property, _)| property == ACL_TYPE);
        let moving = if no_remount { Default::default() } else { self.begin_move(name, &changes)? };
        let changed = pool.engine().dsl.set_properties(name, changes);
        let left = self.end_move(name, &moving);
        // Where the pool stopped after they were changed they stay so.
        if changed.as_ref().is_err_and(|error| !error.goes_on()) {
            return changed.map_err(|error| property_failure(&error));
        }
        let refreshed = pool.refresh_mount_options();
        let unchanged = if refreshed.is_ok() { self.mounter.refresh(&pool) } else { Default::default() };
        changed.map_err(|error| property_failure(&error))?;
        refreshed.map_err(|error| Failure::about_dataset(&error))?;
        NotMounted::answer(&left)?;
        if sets_acltype { takes_effect(name, unchanged) } else { Ok(()) }
    }
}

/// The kernel is told of access control lists when a file system is mounted: is all of a dataset, and of those below it, mounted as it says now?
fn takes_effect(name: &str, unchanged: Vec<(String, Failure)>) -> Result<(), Failure> {
    let is_meant = |dataset: &str| dataset.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '@']));
    let line = |(dataset, failure): (String, Failure)| format!("{ACL_TYPE} of '{dataset}' takes effect when it is mounted anew: {failure}");
    let lines: Vec<String> = unchanged.into_iter().filter(|(dataset, _)| is_meant(dataset)).map(line).collect();
    if lines.is_empty() { Ok(()) } else { Err(Failure::with(FailureKind::TakesEffectLater, lines.join("\n"))) }
}

fn as_received(change: PropertyChange) -> PropertyChange {
    match change {
        PropertyChange::Set(value) => PropertyChange::Receive(value),
        other => other,
    }
}

/// `refreservation=auto` of a volume: what all of it takes.
pub(in crate::control::pools) fn reserve_all(pool: &Pool, name: &str, settings: &mut [Setting]) -> Result<(), Failure> {
    let given = |settings: &[Setting], name: &str| settings.iter().find(|setting| setting.name == name).and_then(|setting| setting.value.number());
    if given(settings, "refreservation") != Some(u64::MAX) {
        return Ok(());
    }
    let of_volume = |property: &str| -> Result<u64, Failure> {
        let dataset = pool.engine().dsl.open_dataset(name).map_err(|error| Failure::about_dataset(&error))?;
        let value = dataset.any_property(property).map_err(|error| Failure::about_dataset(&error))?;
        Ok(value.map_or(0, |(value, _)| value.number()))
    };
    let either = |property: &str| given(settings, property).map_or_else(|| of_volume(property), Ok);
    let bytes = volume_reservation(either("volsize")?, of_volume("volblocksize")?, either("copies")?.max(1));
    for setting in settings.iter_mut().filter(|setting| setting.name == "refreservation") {
        setting.value = Value::Number(bytes);
    }
    Ok(())
}

pub(super) fn property_failure(error: &crate::Error) -> Failure {
    match error.kind() {
        ErrorKind::NoSpace if error.message().contains("size is") => {
            let words = error.message();
            let begin = words.find("size is").unwrap_or(0);
            Failure::with(FailureKind::PropertySpace, &words[begin..])
        }
        ErrorKind::Denied => Failure::with(FailureKind::ReadOnlyProperty, error.message()),
        ErrorKind::Invalid | ErrorKind::TooBig | ErrorKind::NameTooLong => Failure::with(FailureKind::BadProperty, error.message()),
        ErrorKind::NotSupported => Failure::with(FailureKind::PropertyType, error.message()),
        _ => Failure::about_dataset(error),
    }
}
