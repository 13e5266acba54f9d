//! A property's raw value as the text that is printed.
//!
//! # Theory
//!
//! What a number means is a property's own affair: a size, a count, a ratio, a time, an identifier that must not be
//! rounded, a word. `exact` (`-p`) prints all of them as numbers that a program reads back.

use engine::dsl::prop_table::{self, Property, PropertyKind};
use jiff::tz::TimeZone;
use tarnfs::control::{PropertyValue, Source, Value};

use crate::text::units;

/// How values are to be printed.
#[derive(Clone)]
pub(crate) struct Style {
    /// `-p`
    pub(crate) exact: bool,
    pub(crate) zone: TimeZone,
}

/// A dataset property's value. `None` prints as `-`.
pub(crate) fn dataset_value(value: &PropertyValue, style: &Style) -> Option<String> {
    match (&value.value, prop_table::find(&value.name)) {
        (Value::Text(text), _) => Some(text.clone()),
        (Value::Number(number), None) => Some(space_value(&value.name, *number, style)),
        (Value::Number(number), Some(property)) => native_number(property, *number, style),
    }
}

fn native_number(property: &Property, number: u64, style: &Style) -> Option<String> {
    if let PropertyKind::Index { .. } = property.kind {
        return match property.name {
            "mounted" => Some(if number != 0 { "yes" } else { "no" }.to_owned()),
            _ => property.number_to_word(number).map(str::to_owned),
        };
    }
    Some(match property.name {
        "creation" if !style.exact => units::creation_time(number, &style.zone),
        "snapshots_changed" if number == 0 => return None,
        "snapshots_changed" if !style.exact => units::change_time(number, &style.zone),
        "filesystem_limit" | "snapshot_limit" | "filesystem_count" | "snapshot_count" if number == u64::MAX => "none".to_owned(),
        "compressratio" | "refcompressratio" => units::ratio(number, style.exact),
        _ if style.exact => number.to_string(),
        "quota" | "refquota" | "reservation" | "refreservation" if number == 0 => "none".to_owned(),
        "guid" | "keyguid" | "ivsetguid" | "createtxg" | "objsetid" | "pbkdf2iters" => number.to_string(),
        "quota" | "refquota" | "reservation" | "refreservation" | "referenced" | "available" | "used" | "usedbysnapshots"
        | "usedbydataset" | "usedbyrefreservation" | "usedbychildren" => units::nice_bytes(number),
        _ => units::nice_number(number),
    })
}

/// `userquota@...` and `written@...`.
fn space_value(name: &str, number: u64, style: &Style) -> String {
    let is_quota = name.contains("quota@");
    if style.exact {
        number.to_string()
    } else if is_quota && number == 0 {
        "none".to_owned()
    } else if name.contains("obj") && prop_table::is_space_property(name) {
        units::nice_number(number)
    } else {
        units::nice_bytes(number)
    }
}

/// A pool property's value.
pub(crate) fn pool_value(value: &PropertyValue, style: &Style) -> String {
    let number = match &value.value {
        Value::Text(text) => return text.clone(),
        Value::Number(number) => *number,
    };
    let property = engine::pool::prop_table::find(&value.name);
    if let Some(word) = property.and_then(|property| property.number_to_word(number)) {
        return word.to_owned();
    }
    let exact = style.exact;
    match value.name.as_str() {
        "dedup_table_quota" if number == u64::MAX => "auto".to_owned(),
        "dedup_table_quota" if number == 0 => if exact { "0" } else { "none" }.to_owned(),
        "expandsize" | "checkpoint" if number == 0 => "-".to_owned(),
        "fragmentation" if number == u64::MAX => "-".to_owned(),
        "version" if number >= 1000 => "-".to_owned(),
        "dedupratio" | "bcloneratio" => units::ratio(number, exact),
        _ if exact => number.to_string(),
        "expandsize" | "checkpoint" => units::nice_bytes(number),
        "capacity" | "fragmentation" => format!("{number}%"),
        "dedup_table_quota" | "size" | "allocated" | "free" | "freeing" | "leaked" | "ashift" | "maxblocksize" | "maxdnodesize"
        | "bclonesaved" | "bcloneused" | "dedup_table_size" | "dedupcached" => units::nice_number(number),
        _ => number.to_string(),
    }
}

/// The SOURCE column.
pub(crate) fn source(source: &Source) -> String {
    match source {
        Source::None => "-".to_owned(),
        Source::Default => "default".to_owned(),
        Source::Temporary => "temporary".to_owned(),
        Source::Local => "local".to_owned(),
        Source::Inherited(from) => format!("inherited from {from}"),
        Source::Received => "received".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dataset(name: &str, number: u64, exact: bool) -> String {
        let style = Style { exact, zone: TimeZone::UTC };
        dataset_value(&PropertyValue::new(name, number, Source::None), &style).unwrap_or_else(|| "-".to_owned())
    }

    #[test]
    fn each_kind_of_dataset_value() {
        for (name, number, human, exact) in [
            ("used", 6_818_672, "6.50M", "6818672"), ("quota", 0, "none", "0"), ("recordsize", 131_072, "128K", "131072"),
            ("snapshot_limit", u64::MAX, "none", "none"), ("compressratio", 922, "9.22x", "9.22"), ("guid", 3_203_627_035_591_283_789, "3203627035591283789", "3203627035591283789"),
            ("mounted", 1, "yes", "yes"), ("compression", 16, "zstd", "zstd"), ("snapshots_changed", 0, "-", "-"),
            ("defaultuserquota", 0, "0", "0"), ("written", 0, "0", "0"), ("used", 0, "0B", "0"), ("userquota@bob", 0, "none", "0"),
            ("userobjused@1000", 2048, "2K", "2048"), ("written@a", 0, "0B", "0"), ("version", 5, "5", "5"), ("acltype", 1, "posix", "posix"),
        ] {
            assert_eq!(dataset(name, number, false), human, "{name}");
            assert_eq!(dataset(name, number, true), exact, "{name}");
        }
    }

    #[test]
    fn each_kind_of_pool_value() {
        for (name, number, human, exact) in [
            ("size", 352_321_536, "336M", "352321536"), ("capacity", 3, "3%", "3"), ("fragmentation", u64::MAX, "-", "-"),
            ("dedupratio", 559, "5.59x", "5.59"), ("version", 5000, "-", "-"), ("expandsize", 0, "-", "-"), ("checkpoint", 659_456, "644K", "659456"),
            ("dedup_table_quota", u64::MAX, "auto", "auto"), ("failmode", 0, "wait", "wait"), ("ashift", 12, "12", "12"),
            ("freeing", 0, "0", "0"), ("guid", 5, "5", "5"),
        ] {
            let value = PropertyValue::new(name, number, Source::None);
            assert_eq!(pool_value(&value, &Style { exact: false, zone: TimeZone::UTC }), human, "{name}");
            assert_eq!(pool_value(&value, &Style { exact: true, zone: TimeZone::UTC }), exact, "{name}");
        }
    }
}
