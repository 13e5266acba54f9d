//! What a property may be set to: its kind, and what it needs of the pool and of this program.

use engine::dsl::PropertyValue;
use engine::dsl::prop_table::{DatasetTypes, Property, find, is_space_property, is_user_property};
use ondisk::feature::Feature;

use super::{Failure, FailureKind, not_yet};
use crate::PropertyChange;
use crate::control::{Setting, Value};

/// `dedup=off`, `encryption=off`.
const OFF: u64 = 2;
/// The largest block that needs no feature.
const BLOCK_BYTES_SMALL: u64 = 128 << 10;
/// What the low bits of `compression` say.
const COMPRESSION_MASK: u64 = 0x7f;
/// Only `quota` and the like of numbers in the table are in bytes or counts that everybody may set.
const VERSION_CURRENT: u64 = 5;

/// Settings as the engine takes them. `creating`: what cannot be changed later is allowed too.
pub(super) fn changes(
    settings: &[Setting],
    types: DatasetTypes,
    creating: bool,
    is_enabled: &dyn Fn(Feature) -> bool,
) -> Result<Vec<(String, PropertyChange)>, Failure> {
    let mut changes = Vec::new();
    for setting in settings {
        if let Some(value) = check(setting, types, creating, is_enabled)? {
            changes.push((setting.name.clone(), PropertyChange::Set(value)));
        }
    }
    Ok(changes)
}

/// Why a value that comes with a stream cannot be had here. What the program does not know, or does not do, is kept all the same.
pub(super) fn check_received(setting: &Setting, is_enabled: &dyn Fn(Feature) -> bool) -> Result<(), Failure> {
    let Some(property) = find(&setting.name).filter(|property| !property.is_read_only()) else { return Ok(()) };
    let bad = || Failure::with(FailureKind::BadProperty, format!("invalid value of '{}'", setting.name));
    match &setting.value {
        Value::Text(text) if property.is_text() && property.name != "keylocation" => check_text(property.name, text),
        Value::Text(_) if property.is_text() => Ok(()),
        Value::Number(number) if !property.is_text() && is_word(property, &PropertyValue::Number(*number)) => {
            check_block_bytes(property.name, *number)?;
            check_feature(property.name, *number, is_enabled)
        }
        _ => Err(bad()),
    }
}

/// One setting, as it is to be stored; `None` if there is nothing to store.
fn check(setting: &Setting, types: DatasetTypes, creating: bool, is_enabled: &dyn Fn(Feature) -> bool) -> Result<Option<PropertyValue>, Failure> {
    let name = setting.name.as_str();
    let value = match &setting.value {
        Value::Number(number) => PropertyValue::Number(*number),
        Value::Text(text) => PropertyValue::Text(text.clone()),
    };
    let bad = |words: String| Err(Failure::with(FailureKind::BadProperty, words));
    let Some(property) = find(name) else {
        return match &value {
            PropertyValue::Text(_) if is_user_property(name) => Ok(Some(value)),
            _ if is_space_property(name) => bad(format!("'{name}' can be set on a file system that exists")),
            _ => bad(format!("invalid property '{name}'")),
        };
    };
    if !property.applies_to(types) {
        return Err(Failure::with(FailureKind::PropertyType, format!("'{name}' does not apply to datasets of this type")));
    }
    if property.is_read_only() && !(creating && property.is_set_once()) {
        return Err(Failure::with(FailureKind::ReadOnlyProperty, format!("'{name}' is readonly")));
    }
    if property.is_text() != matches!(value, PropertyValue::Text(_)) || !is_word(property, &value) {
        return bad(format!("invalid value of '{name}'"));
    }
    match &value {
        PropertyValue::Text(text) => check_text(property.name, text)?,
        PropertyValue::Number(number) => {
            check_number(property.name, *number, creating)?;
            check_feature(property.name, *number, is_enabled)?;
        }
    }
    let is_default = property.name == "version" || matches!(property.name, "encryption" | "keyformat" | "keylocation" | "pbkdf2iters");
    Ok((!is_default || (creating && property.name == "version")).then_some(value))
}

/// A number that stands for no word is no value of an index.
fn is_word(property: &Property, value: &PropertyValue) -> bool {
    property.words().is_empty() || property.number_to_word(value.number()).is_some()
}

fn check_text(name: &str, text: &str) -> Result<(), Failure> {
    let bad = |words: &str| Err(Failure::with(FailureKind::BadProperty, words));
    match name {
        "mountpoint" if !matches!(text, "none" | "legacy") => {
            if !text.starts_with('/') {
                return bad("'mountpoint' must be an absolute path, 'none', or 'legacy'");
            }
            if text.split('/').any(|component| matches!(component, "." | "..")) || text.contains('\0') {
                return bad("'mountpoint' must not have '.' or '..' in it");
            }
            Ok(())
        }
        "keylocation" if text != "none" => Err(not_yet("encryption is")),
        _ if text.contains('\0') => bad("a value cannot have a zero byte in it"),
        _ => Ok(()),
    }
}

fn check_block_bytes(name: &str, number: u64) -> Result<(), Failure> {
    if matches!(name, "recordsize" | "volblocksize") && (!number.is_power_of_two() || !(512..=16 << 20).contains(&number)) {
        return Err(Failure::with(FailureKind::BadProperty, format!("'{name}' must be power of 2 from 512B to 16M")));
    }
    Ok(())
}

fn check_number(name: &str, number: u64, creating: bool) -> Result<(), Failure> {
    check_block_bytes(name, number)?;
    match name {
        "dedup" if number != OFF => Err(not_yet("deduplication is")),
        "encryption" if number != OFF => Err(not_yet("encryption is")),
        "keyformat" | "pbkdf2iters" | "pbkdf2salt" if number != 0 => Err(not_yet("encryption is")),
        "volsize" if !creating => Err(not_yet("changing the size of a volume is")),
        "version" if number > VERSION_CURRENT || number == 0 => {
            Err(Failure::with(FailureKind::Unsupported, format!("'version' {number} is not supported")))
        }
        _ => Ok(()),
    }
}

/// Some values need a feature of the pool.
fn check_feature(name: &str, number: u64, is_enabled: &dyn Fn(Feature) -> bool) -> Result<(), Failure> {
    let feature = match (name, number) {
        ("compression", value) if value & COMPRESSION_MASK == 16 => Feature::ZstdCompress,
        ("compression", 15) => Feature::Lz4Compress,
        ("checksum", 11) => Feature::Sha512,
        ("checksum", 12) => Feature::Skein,
        ("checksum", 13) => Feature::Edonr,
        ("checksum", 14) => Feature::Blake3,
        ("recordsize" | "volblocksize", bytes) if bytes > BLOCK_BYTES_SMALL => Feature::LargeBlocks,
        ("dnodesize", bytes) if bytes != 0 => Feature::LargeDnode,
        ("longname", 1) => Feature::Longname,
        ("filesystem_limit" | "snapshot_limit", limit) if limit != u64::MAX => Feature::FilesystemLimits,
        _ => return Ok(()),
    };
    if is_enabled(feature) {
        return Ok(());
    }
    Err(Failure::with(FailureKind::PoolNotSupported, "pool and or dataset must be upgraded to set this property or value"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, value: impl Into<Value>, creating: bool, feature: bool) -> Result<usize, FailureKind> {
        let settings = [Setting { name: name.into(), value: value.into() }];
        changes(&settings, DatasetTypes::FILESYSTEM, creating, &|_| feature).map(|changes| changes.len()).map_err(|failure| failure.kind)
    }

    #[test]
    fn what_is_received_is_checked() {
        let one = |name: &str, value: Value, feature: bool| {
            check_received(&Setting { name: name.into(), value }, &|_| feature).map_err(|failure| failure.kind)
        };
        assert_eq!(one("recordsize", (1u64 << 20).into(), true), Ok(()));
        assert_eq!(one("recordsize", (1u64 << 20).into(), false), Err(FailureKind::PoolNotSupported));
        assert_eq!(one("recordsize", 12_345u64.into(), true), Err(FailureKind::BadProperty));
        assert_eq!(one("recordsize", 0u64.into(), true), Err(FailureKind::BadProperty));
        assert_eq!(one("compression", 16u64.into(), false), Err(FailureKind::PoolNotSupported));
        assert_eq!(one("compression", 99u64.into(), true), Err(FailureKind::BadProperty));
        assert_eq!(one("compression", "lz4".into(), true), Err(FailureKind::BadProperty));
        assert_eq!(one("mountpoint", "../x".into(), true), Err(FailureKind::BadProperty));
        assert_eq!(one("of.another:program", "x".into(), false), Ok(()));
    }

    #[test]
    fn settings_are_checked() {
        assert_eq!(one("compression", 15u64, false, true), Ok(1));
        assert_eq!(one("compression", 16u64, false, false), Err(FailureKind::PoolNotSupported));
        assert_eq!(one("compression", 4u64, false, true), Err(FailureKind::BadProperty));
        assert_eq!(one("compression", "lz4", false, true), Err(FailureKind::BadProperty));
        assert_eq!(one("my:own", "x", false, true), Ok(1));
        assert_eq!(one("my:own", 1u64, false, true), Err(FailureKind::BadProperty));
        assert_eq!(one("used", 1u64, true, true), Err(FailureKind::ReadOnlyProperty));
        assert_eq!(one("utf8only", 1u64, false, true), Err(FailureKind::ReadOnlyProperty));
        assert_eq!(one("utf8only", 1u64, true, true), Ok(1));
        assert_eq!(one("volsize", 1u64, true, true), Err(FailureKind::PropertyType));
        assert_eq!(one("mountpoint", "/a/../b", true, true), Err(FailureKind::BadProperty));
        assert_eq!(one("mountpoint", "legacy", true, true), Ok(1));
        assert_eq!(one("encryption", 1u64, true, true), Err(FailureKind::Unsupported));
        assert_eq!(one("encryption", 2u64, true, true), Ok(0));
        assert_eq!(one("recordsize", 3000u64, true, true), Err(FailureKind::BadProperty));
    }
}
