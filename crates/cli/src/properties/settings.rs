//! Property values as users write them, checked against the table before anybody is asked to store them.

use engine::dsl::prop_table::{self, DatasetTypes, Property, PropertyKind};
use engine::pool::config::{VERSION_BEFORE_FEATURES, VERSION_FEATURES};
use tarnfs::control::{Failure, FailureKind, Setting, Value, compatibility};

use crate::properties::columns::{self, Scope};
use crate::properties::shares;
use crate::text::names;
use crate::text::units;

/// Largest block, and the largest value of `special_small_blocks`.
const BLOCK_SIZE_MAX: u64 = 16 << 20;
/// Longest text of a property.
const TEXT_LENGTH_MAX: usize = 8192;

fn bad(words: impl Into<String>) -> Failure {
    Failure::with(FailureKind::BadProperty, words)
}

fn no_property(name: &str, scope: Scope) -> Failure {
    let meant = columns::meant(name, scope).map(|line| format!("\n{line}"));
    bad(format!("invalid property '{name}'{}", meant.unwrap_or_default()))
}

/// When a value is being set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    Creating,
    Importing,
    Existing,
}

/// Splits `name=value`.
pub(crate) fn split(word: &str) -> Option<(&str, &str)> {
    word.split_once('=')
}

/// Checks and converts settings of a dataset of type `types` (one type).
pub(crate) fn dataset_settings(pairs: &[(String, String)], types: DatasetTypes, when: When) -> Result<Vec<Setting>, Failure> {
    let mut settings = Vec::new();
    for (name, text) in pairs {
        settings.push(dataset_setting(name, text, types, when)?);
    }
    couple_normalization(&mut settings)?;
    Ok(settings)
}

fn dataset_setting(name: &str, text: &str, types: DatasetTypes, when: When) -> Result<Setting, Failure> {
    let property = prop_table::find(name);
    if property.is_none() && prop_table::is_user_property(name) {
        if name.len() >= prop_table::NAME_LENGTH_MAX {
            return Err(bad(format!("property name '{name}' is too long")));
        }
        return Ok(Setting::new(name, text));
    }
    if types == DatasetTypes::SNAPSHOT {
        return Err(Failure::with(FailureKind::PropertyType, "this property can not be modified for snapshots"));
    }
    let read_only = || Failure::with(FailureKind::ReadOnlyProperty, format!("'{name}' is readonly"));
    let Some(property) = property else {
        if prop_table::is_space_property(name) {
            return if name.contains("quota@") { Ok(Setting::new(name, quota_number(text)?)) } else { Err(read_only()) };
        }
        if prop_table::is_written_property(name) {
            return Err(read_only());
        }
        return Err(no_property(name, Scope::Dataset));
    };
    if !property.applies_to(types) {
        return Err(Failure::with(FailureKind::PropertyType, format!("'{name}' does not apply to datasets of this type")));
    }
    if property.is_read_only() && !(property.is_set_once() && when == When::Creating) {
        return Err(read_only());
    }
    let value = parse_value(property, name, text, types)?;
    check_dataset_value(property, name, &value)?;
    Ok(Setting { name: property.name.to_owned(), value })
}

fn quota_number(text: &str) -> Result<u64, Failure> {
    if text == "none" { Ok(0) } else { tarnfs::control::parse_size(text).map_err(bad) }
}

/// A value by the kind of its property.
fn parse_value(property: &Property, name: &str, text: &str, types: DatasetTypes) -> Result<Value, Failure> {
    match property.kind {
        PropertyKind::Text { .. } if text.len() >= TEXT_LENGTH_MAX => Err(bad(format!("'{name}' is too long"))),
        PropertyKind::Text { .. } => Ok(text.into()),
        PropertyKind::Index { .. } => property.word_to_number(text).map(Value::Number).ok_or_else(|| {
            bad(format!("'{}' must be one of '{}'", property.name, property.values.unwrap_or("")))
        }),
        PropertyKind::Number { .. } => parse_number(property, name, text, types).map(Value::Number),
    }
}

fn parse_number(property: &Property, name: &str, text: &str, types: DatasetTypes) -> Result<u64, Failure> {
    match (text, property.name) {
        ("none", "filesystem_limit" | "snapshot_limit") => return Ok(u64::MAX),
        ("none", _) => return Ok(0),
        ("auto", "refreservation") if types != DatasetTypes::VOLUME => return Err(bad(format!("'{name}=auto' only allowed on volumes"))),
        ("auto", "refreservation" | "dedup_table_quota") => return Ok(u64::MAX),
        ("auto", _) => return Err(bad(format!("'auto' is invalid value for '{name}'"))),
        _ => {}
    }
    let number = tarnfs::control::parse_size(text).map_err(bad)?;
    match property.name {
        "quota" | "refquota" if number == 0 => Err(bad("use 'none' to disable quota/refquota")),
        "dedup_table_quota" if number == 0 => Err(bad("use 'none' to disable ddt table quota")),
        _ => Ok(number),
    }
}

fn check_dataset_value(property: &Property, name: &str, value: &Value) -> Result<(), Failure> {
    let number = value.number().unwrap_or(0);
    let text = value.text().unwrap_or("");
    match property.name {
        "volblocksize" | "recordsize" if !(512..=BLOCK_SIZE_MAX).contains(&number) || !number.is_power_of_two() => {
            Err(bad(format!("'{name}' must be power of 2 from 512B to {}", units::nice_bytes(BLOCK_SIZE_MAX))))
        }
        "special_small_blocks" if number > BLOCK_SIZE_MAX => {
            Err(bad(format!("invalid '{name}' property: must be between zero and {}", units::nice_bytes(BLOCK_SIZE_MAX))))
        }
        "mlslabel" => Err(bad("mlslabels are unsupported")),
        "sharenfs" if !shares::is_nfs(text) => Err(bad(format!("'{name}' cannot be set to invalid options"))),
        "sharesmb" if !shares::is_smb(text) => Err(bad(format!("'{name}' cannot be set to invalid options"))),
        "mountpoint" if text != "none" && text != "legacy" => names::check_mountpoint(text).map_err(|why| {
            if why.starts_with("component") { bad(format!("component of '{name}' is too long")) } else { bad(format!("'{name}' {why}")) }
        }),
        "keylocation" if !is_key_location(text) => Err(bad("invalid keylocation")),
        "pbkdf2iters" if number < 100_000 => Err(bad("minimum pbkdf2 iterations is 100000")),
        _ => Ok(()),
    }
}

fn is_key_location(text: &str) -> bool {
    matches!(text, "none" | "prompt")
        || ["file:///", "https://", "http://"].iter().any(|scheme| text.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty()))
}

/// Normalised names must be UTF-8: choosing the one sets the other, and contradicting it is an error.
fn couple_normalization(settings: &mut Vec<Setting>) -> Result<(), Failure> {
    let chosen = |settings: &[Setting], name: &str| settings.iter().find(|s| s.name == name).and_then(|s| s.value.number());
    match (chosen(settings, "normalization"), chosen(settings, "utf8only")) {
        (Some(form), None) if form > 0 => settings.push(Setting::new("utf8only", 1)),
        (Some(form), Some(0)) if form > 0 => return Err(bad("'utf8only' must be set 'on' if normalization chosen")),
        (None, Some(0)) => settings.push(Setting::new("normalization", 0)),
        _ => {}
    }
    Ok(())
}

/// Checks and converts a setting of a vdev.
pub(crate) fn vdev_setting(name: &str, text: &str) -> Result<Setting, Failure> {
    let Some(property) = engine::pool::vdev_prop_table::find(name) else {
        return if prop_table::is_user_property(name) { Ok(Setting::new(name, text)) } else { Err(bad(format!("invalid property: '{name}'"))) };
    };
    if property.is_read_only() {
        return Err(Failure::with(FailureKind::ReadOnlyProperty, format!("'{name}' is readonly")));
    }
    // Of these, none is no number at all.
    let value = match property.kind {
        PropertyKind::Number { default: u64::MAX } if text == "none" => Value::Number(u64::MAX),
        _ => parse_value(property, name, text, DatasetTypes::VDEV)?,
    };
    Ok(Setting { name: property.name.to_owned(), value })
}

/// Checks and converts settings of a pool. `feature@x` stays with its text.
pub(crate) fn pool_settings(pairs: &[(String, String)], when: When) -> Result<Vec<Setting>, Failure> {
    pairs.iter().map(|(name, text)| pool_setting(name, text, when)).collect()
}

fn pool_setting(name: &str, text: &str, when: When) -> Result<Setting, Failure> {
    let property = engine::pool::prop_table::find(name);
    if property.is_none() && name.starts_with("feature@") {
        return feature_setting(name, text, when);
    }
    if property.is_none() && prop_table::is_user_property(name) {
        if name.len() >= prop_table::NAME_LENGTH_MAX {
            return Err(bad(format!("property name '{name}' is too long")));
        }
        if text.len() >= TEXT_LENGTH_MAX {
            return Err(bad(format!("property value '{text}' is too long")));
        }
        return Ok(Setting::new(name, text));
    }
    let property = property.ok_or_else(|| no_property(name, Scope::Pool))?;
    if property.rule == prop_table::Rule::ReadOnly {
        return Err(Failure::with(FailureKind::ReadOnlyProperty, format!("'{name}' is readonly")));
    }
    if when != When::Creating && property.is_set_once() {
        return Err(bad(format!("property '{name}' can only be set at creation time")));
    }
    let value = parse_value(property, name, text, DatasetTypes::POOL)?;
    check_pool_value(property, name, &value, when)?;
    Ok(Setting { name: property.name.to_owned(), value })
}

fn feature_setting(name: &str, text: &str, when: When) -> Result<Setting, Failure> {
    if !matches!(text, "enabled" | "disabled") {
        return Err(bad(format!("property '{name}' can only be set to 'enabled' or 'disabled'")));
    }
    if text == "disabled" && when != When::Creating {
        return Err(bad(format!("property '{name}' can only be set to 'disabled' at creation time")));
    }
    Ok(Setting::new(name, text))
}

fn check_pool_value(property: &Property, name: &str, value: &Value, when: When) -> Result<(), Failure> {
    let number = value.number().unwrap_or(0);
    let text = value.text().unwrap_or("");
    match property.name {
        "version" if number != VERSION_FEATURES && !(when == When::Creating && (1..=VERSION_BEFORE_FEATURES).contains(&number)) => {
            Err(Failure::with(FailureKind::Unsupported, format!("property '{name}' number {number} is invalid.")))
        }
        "ashift" if number != 0 && !(9..=16).contains(&number) => {
            Err(bad(format!("property '{name}' number {number} is invalid, only values between 9 and 16 are allowed.")))
        }
        "bootfs" if when != When::Existing => Err(bad(format!("property '{name}' cannot be set at creation or import time"))),
        "altroot" if when == When::Existing => Err(bad(format!("property '{name}' can only be set during pool creation or import"))),
        "altroot" if !text.starts_with('/') => Err(bad(format!("bad alternate root '{text}'"))),
        "cachefile" if !text.is_empty() && text != "none" && !text.starts_with('/') => {
            Err(bad(format!("property '{name}' must be empty, an absolute path, or 'none'")))
        }
        "cachefile" if text.starts_with('/') => check_cache_file(text),
        "comment" if !text.bytes().all(|b| (b' '..=b'~').contains(&b)) => Err(bad("comment may only have printable characters")),
        "comment" if text.len() > 32 => Err(bad("comment must not exceed 32 characters")),
        "readonly" if when != When::Importing => Err(bad(format!("property '{name}' can only be set at import time"))),
        "compatibility" => compatibility::load(text).map(drop),
        _ => Ok(()),
    }
}

/// A file of that name can be made: an import that then has no cache file would look as if it had one.
fn check_cache_file(path: &str) -> Result<(), Failure> {
    let (directory, file) = path.rsplit_once('/').unwrap_or(("", path));
    if matches!(file, "" | "." | "..") {
        return Err(bad(format!("'{path}' is not a valid file")));
    }
    if !directory.is_empty() && !std::path::Path::new(directory).is_dir() {
        return Err(bad(format!("'{directory}' is not a valid directory")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, text: &str, types: DatasetTypes, when: When) -> Result<Vec<Setting>, String> {
        dataset_settings(&[(name.into(), text.into())], types, when).map_err(|failure| failure.message)
    }

    #[test]
    fn values_become_the_numbers_of_the_format() {
        const F: DatasetTypes = DatasetTypes::FILESYSTEM;
        assert_eq!(one("compression", "lz4", F, When::Existing), Ok(vec![Setting::new("compression", 15)]));
        assert_eq!(one("compress", "lz4", F, When::Existing), Ok(vec![Setting::new("compression", 15)]));
        assert_eq!(one("quota", "10G", F, When::Existing), Ok(vec![Setting::new("quota", 10 << 30)]));
        assert_eq!(one("quota", "none", F, When::Existing), Ok(vec![Setting::new("quota", 0)]));
        assert_eq!(one("snapshot_limit", "none", F, When::Existing), Ok(vec![Setting::new("snapshot_limit", u64::MAX)]));
        assert_eq!(one("a:b", "12", DatasetTypes::SNAPSHOT, When::Existing), Ok(vec![Setting::new("a:b", "12")]));
        assert_eq!(
            one("normalization", "formD", F, When::Creating),
            Ok(vec![Setting::new("normalization", 0x10), Setting::new("utf8only", 1)])
        );
    }

    #[test]
    fn refusals_have_the_usual_words() {
        const F: DatasetTypes = DatasetTypes::FILESYSTEM;
        for (name, text, words) in [
            ("quota", "0", "use 'none' to disable quota/refquota"),
            ("quota", "x", "bad numeric value 'x'"),
            ("used", "1", "'used' is readonly"),
            ("utf8only", "on", "'utf8only' is readonly"),
            ("volsize", "1G", "'volsize' does not apply to datasets of this type"),
            ("atime", "yes", "'atime' must be one of 'on | off'"),
            ("nosuch", "1", "invalid property 'nosuch'"),
            ("recordsize", "100K", "'recordsize' must be power of 2 from 512B to 16M"),
            ("mountpoint", "a/b", "'mountpoint' must be an absolute path, 'none', or 'legacy'"),
            ("refreservation", "auto", "'refreservation=auto' only allowed on volumes"),
            ("sharenfs", "junk,,,", "'sharenfs' cannot be set to invalid options"),
            ("sharenfs", "", "'sharenfs' cannot be set to invalid options"),
            ("sharesmb", "rw", "'sharesmb' cannot be set to invalid options"),
            ("userused@1", "1", "'userused@1' is readonly"),
            ("written@a", "1", "'written@a' is readonly"),
        ] {
            assert_eq!(one(name, text, F, When::Existing), Err(words.to_owned()), "{name}");
        }
        assert_eq!(one("atime", "on", DatasetTypes::SNAPSHOT, When::Existing), Err("this property can not be modified for snapshots".into()));
    }

    #[test]
    fn pool_values() {
        let one = |name: &str, text: &str, when| pool_setting(name, text, when).map_err(|failure| failure.message);
        assert_eq!(one("ashift", "12", When::Creating), Ok(Setting::new("ashift", 12)));
        assert_eq!(one("feature@lz4_compress", "enabled", When::Existing), Ok(Setting::new("feature@lz4_compress", "enabled")));
        assert_eq!(one("cachefile", "/dev/null", When::Importing), Ok(Setting::new("cachefile", "/dev/null")));
        assert_eq!(one("cachefile", "/missing/directory/file", When::Importing), Err("'/missing/directory' is not a valid directory".into()));
        assert_eq!(one("cachefile", "/dev/..", When::Existing), Err("'/dev/..' is not a valid file".into()));
        assert!(one("ashift", "17", When::Creating).unwrap_err().contains("only values between 9 and 16"));
        assert!(one("readonly", "on", When::Existing).unwrap_err().contains("import time"));
        assert!(one("size", "1", When::Existing).unwrap_err().contains("readonly"));
        assert!(one("feature@x", "off", When::Creating).is_err());
    }
}
