//! `zpool get` and `zpool set`, of vdevs

use engine::dsl::PropertyValue as Stored;
use engine::dsl::prop_table::is_user_property;
use engine::error::ErrorKind;
use engine::pool::{Pool, vdev_prop_table};

use super::beside::words;
use crate::control::pools::beside::{Table, select};
use crate::control::pools::{Failure, FailureKind};
use crate::control::{PropertyValue, Setting, Source, Value, VdevProperties};

/// What needs something that is not here.
const NOT_HERE: [&str; 1] = ["path"];

/// What users have set of the vdevs of a pool.
pub(in crate::control::pools) fn stored(table: &Table, name: Option<&str>) -> Result<Vec<VdevProperties>, Failure> {
    let mut all = Vec::new();
    for (_, imported) in select(table, name)? {
        let stored = imported.pool.engine().stored_vdev_properties().map_err(|error| Failure::about_pool(&error))?;
        all.extend(stored.into_iter().map(|(guid, values)| VdevProperties { guid, properties: values.into_iter().map(shown).collect() }));
    }
    Ok(all)
}

fn shown((name, value): (String, Stored)) -> PropertyValue {
    let value = match value {
        Stored::Text(text) => Value::Text(text),
        Stored::Number(number) => Value::Number(number),
    };
    PropertyValue::new(name, value, Source::Local)
}

/// Sets a property of the vdev with this guid.
pub(super) fn set(engine: &Pool, guid: u64, setting: &Setting) -> Result<(), Failure> {
    let name = setting.name.as_str();
    let bad = |words: String| Failure::with(FailureKind::BadProperty, words);
    let value = match (&setting.value, vdev_prop_table::find(name).filter(|property| property.name == name)) {
        (_, Some(property)) if property.is_read_only() => return Err(Failure::with(FailureKind::ReadOnlyProperty, format!("'{name}' is readonly"))),
        (_, Some(_)) if NOT_HERE.contains(&name) => return Err(Failure::with(FailureKind::PropertyType, "property not supported for this vdev")),
        (Value::Text(text), Some(property)) if property.is_text() => Stored::Text(text.clone()),
        (Value::Number(number), Some(property)) if !property.is_text() && (property.words().is_empty() || *number <= 1) => Stored::Number(*number),
        (Value::Text(text), None) if is_user_property(name) => Stored::Text(text.clone()),
        _ => return Err(bad(format!("invalid property: '{name}'"))),
    };
    engine.set_vdev_property(guid, name, value).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Failure::with(FailureKind::BadDevice, "no such device in pool"),
        ErrorKind::TooBig | ErrorKind::NameTooLong => bad(words(&error)),
        ErrorKind::Invalid | ErrorKind::NotSupported => Failure::with(FailureKind::PoolNotSupported, words(&error)),
        ErrorKind::Busy => Failure::with(FailureKind::PoolBusy, words(&error)),
        _ => Failure::about_pool(&error),
    })
}
