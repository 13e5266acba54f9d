//! The properties of what is received.
//!
//! # Theory
//! What came with a stream takes the place of all that came with the streams before it. What was set on the dataset counts more, and stays; only the first
//! time that properties are received into a dataset, what was set there goes too. (Before pools told the two apart, what was set had been received.) What might
//! refuse the contents, `refquota`, is set when they are there. If the stream breaks off, all is as it was.
//!
//! A stream is not refused for a property: one that the pool cannot have, that makes no sense, or that the receiver may not change, is left out, and that is said.
//! Nor does it take away what the receiver may not change. To receive is not to set: else the owner of a stream would give itself any property.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::dsl::prop_table::{find, is_user_property};
use engine::dsl::{Dsl, PropertyValue, StoredProperty};
use ondisk::feature::Feature;

use crate::PropertyChange;
use crate::control::pools::checks;
use crate::control::pools::zfs::set::property_failure;
use crate::control::{Failure, Refusal, Setting, Value};

type Changes = Vec<(String, PropertyChange)>;

/// Refuses a property (the second) of a dataset (the first) to a receiver who is not granted it.
pub(super) type MayChange = Box<dyn Fn(&str, &str) -> Result<(), Failure> + Send>;

/// What is set at the end.
const DELAYED: &str = "refquota";

/// See the module.
pub(super) struct ReceivedProperties {
    /// What came, if properties did.
    received: Option<Changes>,
    /// What is set, or inherited, because the command says so.
    local: Changes,
    /// What was stored before, of a dataset that was there.
    before: Option<BTreeMap<String, StoredProperty>>,
    /// What could not be set.
    pub(super) refused: Vec<Refusal>,
    may_change: MayChange,
    /// What was changed: nothing else is restored.
    changed: BTreeSet<String>,
}

impl ReceivedProperties {
    pub(super) fn new(received: Option<&[Setting]>, local: Changes, is_enabled: &dyn Fn(Feature) -> bool, may_change: MayChange) -> ReceivedProperties {
        let mut refused = Vec::new();
        let mut is_good = |setting: &&Setting| match checks::check_received(setting, is_enabled) {
            Ok(()) => true,
            Err(failure) => {
                refused.push(Refusal { name: setting.name.clone(), failure });
                false
            }
        };
        let received = received.map(|settings| changes(settings.iter().filter(&mut is_good)));
        ReceivedProperties { received, local, before: None, refused, may_change, changed: BTreeSet::new() }
    }

    /// The dataset is there.
    pub(super) fn set_first(&mut self, dsl: &Arc<Dsl>, name: &str, is_new: bool) {
        if !is_new {
            self.make_way(dsl, name);
        }
        let is_first = |(property, _): &&(String, PropertyChange)| property != DELAYED;
        let all: Changes = self.received.iter().flatten().chain(&self.local).filter(is_first).cloned().collect();
        self.set(dsl, name, all);
        self.note_received(dsl, name);
    }

    /// Properties came, if only some that were not taken.
    fn note_received(&self, dsl: &Arc<Dsl>, name: &str) {
        let is_noted = || dsl.open_dataset(name).and_then(|dataset| dataset.has_received());
        if self.received.is_some()
            && !matches!(is_noted(), Ok(true))
            && let Err(error) = dsl.note_received(name)
        {
            tracing::warn!("{name}: that properties were received is not noted: {error}");
        }
    }

    /// Its contents are there.
    pub(super) fn set_last(&mut self, dsl: &Arc<Dsl>, name: &str) {
        let all: Changes = self.received.iter().flatten().chain(&self.local).filter(|(property, _)| property == DELAYED).cloned().collect();
        self.set(dsl, name, all);
    }

    /// What came before does not count any more.
    fn make_way(&mut self, dsl: &Arc<Dsl>, name: &str) {
        let Ok(dataset) = dsl.open_dataset(name) else { return };
        let (Ok(stored), Ok(has_received)) = (dataset.stored_properties(), dataset.has_received()) else { return };
        drop(dataset);
        // What is not to be taken from the stream stays as it was set here.
        let is_kept = |name: &str, local: &Changes| {
            let is_excluded = local.iter().any(|(other, change)| other == name && *change == PropertyChange::Inherit);
            is_excluded && stored.get(name).is_some_and(|stored| stored.set.is_some())
        };
        let kept: Vec<String> = stored.keys().filter(|name| is_kept(name, &self.local)).cloned().collect();
        self.local.retain(|(name, _)| !kept.contains(name));
        if let Some(received) = &mut self.received {
            let is_own = |name: &str| is_user_property(name) || find(name).is_some_and(|property| !property.is_read_only());
            let own = || stored.iter().filter(|(name, _)| is_own(name));
            let comes = |name: &String| received.iter().any(|(other, _)| other == name);
            let away: Changes = if has_received {
                own().filter(|(name, stored)| stored.received.is_some() && !comes(name)).map(|(name, _)| (name.clone(), PropertyChange::Unreceive)).collect()
            } else {
                own().filter(|(name, stored)| stored.set.is_some() && !kept.contains(name)).map(|(name, _)| (name.clone(), PropertyChange::Revert)).collect()
            };
            // What does not change is not written.
            received.retain(|(name, change)| {
                let before = stored.get(name).and_then(|stored| stored.received.clone());
                before.map(PropertyChange::Receive).as_ref() != Some(change)
            });
            self.set(dsl, name, away);
        }
        self.before = Some(stored);
    }

    /// Sets what the receiver may change.
    fn set(&mut self, dsl: &Arc<Dsl>, name: &str, changes: Changes) {
        let is_granted = |(property, _): &(String, PropertyChange)| match (self.may_change)(name, property) {
            Ok(()) => true,
            Err(failure) => {
                self.refused.push(Refusal { name: property.clone(), failure });
                false
            }
        };
        let changes: Changes = changes.into_iter().filter(is_granted).collect();
        self.changed.extend(changes.iter().map(|(property, _)| property.clone()));
        self.store(dsl, name, changes);
    }

    /// Sets all at once or, where one of them cannot be, those that can.
    fn store(&mut self, dsl: &Arc<Dsl>, name: &str, changes: Changes) {
        if changes.is_empty() || dsl.set_properties(name, changes.clone()).is_ok() {
            return;
        }
        for (property, change) in changes {
            if let Err(error) = dsl.set_properties(name, vec![(property.clone(), change)]) {
                self.refused.push(Refusal { name: property, failure: property_failure(&error) });
            }
        }
    }

    /// The stream broke off: what was there counts again.
    pub(super) fn restore(&mut self, dsl: &Arc<Dsl>, name: &str) {
        let Some(before) = self.before.take() else { return };
        let Ok(now) = dsl.open_dataset(name).and_then(|dataset| dataset.stored_properties()) else { return };
        let none = StoredProperty::default();
        let mut back = Changes::new();
        let all = before.keys().chain(now.keys().filter(|property| !before.contains_key(*property)));
        for property in all.filter(|property| self.changed.contains(*property)) {
            let (old, new) = (before.get(property).unwrap_or(&none), now.get(property).unwrap_or(&none));
            if old.received != new.received {
                back.push((property.clone(), old.received.clone().map_or(PropertyChange::Unreceive, PropertyChange::Receive)));
            }
            if (&old.set, old.inherits) != (&new.set, new.inherits) {
                let change = match (&old.set, old.inherits) {
                    (Some(value), _) => PropertyChange::Set(value.clone()),
                    (None, true) => PropertyChange::Inherit,
                    (None, false) => PropertyChange::Revert,
                };
                back.push((property.clone(), change));
            }
        }
        self.store(dsl, name, back);
        self.refused.clear();
    }

    /// The properties that came for the snapshot itself. What is not of users' own it inherits.
    pub(super) fn set_of_snapshot(&mut self, dsl: &Arc<Dsl>, name: &str, settings: &[Setting]) {
        let mut changes = changes(settings.iter());
        changes.retain(|(property, _)| is_user_property(property));
        let Some((property, _)) = changes.first() else { return };
        // All of them are one permission.
        if let Err(failure) = (self.may_change)(name, property) {
            self.refused.extend(changes.into_iter().map(|(name, _)| Refusal { name, failure: failure.clone() }));
        } else if let Err(error) = dsl.set_properties(name, changes) {
            tracing::warn!("properties of {name} are not received: {error}");
        }
    }
}

/// What a stream says of properties, as far as this program knows them.
fn changes<'a>(settings: impl Iterator<Item = &'a Setting>) -> Changes {
    let known = |setting: &&Setting| is_user_property(&setting.name) || find(&setting.name).is_some_and(|property| !property.is_read_only());
    let change = |setting: &Setting| {
        let value = match &setting.value {
            Value::Number(number) => PropertyValue::Number(*number),
            Value::Text(text) => PropertyValue::Text(text.clone()),
        };
        (setting.name.clone(), PropertyChange::Receive(value))
    };
    settings.filter(known).map(change).collect()
}
