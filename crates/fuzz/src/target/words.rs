//! Words that users give: names, and values of properties.

use engine::dsl::prop_table;
use ondisk::algorithm::{ChecksumAlgorithm, CompressionSetting};
use ondisk::feature::Feature;

use crate::Input;

pub(super) fn properties(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    let _ = (prop_table::is_user_property(name), prop_table::is_space_property(name), prop_table::is_written_property(name));
    if let Some(property) = prop_table::find(name) {
        let _ = (property.is_visible(), property.is_named(value), property.default_number(), property.default_text());
        if let Some(number) = property.word_to_number(value) {
            assert!(property.number_to_word(number).is_some());
        }
        let _ = property.number_to_word(Input::new(value.as_bytes()).u64());
    }
    let _ = engine::pool::prop_table::find(name);
    if let Some(setting) = CompressionSetting::from_name(value) {
        assert_eq!(
            CompressionSetting::from_property(setting.property()).map(CompressionSetting::property),
            Some(setting.property())
        );
    }
    let _ = CompressionSetting::from_property(Input::new(bytes).u64());
    let _ = (ChecksumAlgorithm::from_name(value), Feature::from_name(value), Feature::from_guid(value));
}

pub(super) fn property_seeds() -> Vec<Vec<u8>> {
    [
        "compression=zstd-19",
        "compression=zstd-fast-100",
        "checksum=blake3",
        "recordsize=131072",
        "atime=off",
        "user:name=x",
        "written@snap=",
        "userquota@0=",
    ]
    .map(|seed| seed.as_bytes().to_vec())
    .to_vec()
}

pub(super) fn names(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(name) = engine::dsl::names::DatasetName::parse(text) {
        let _ = (name.pool().len(), name.below_pool().count());
    }
    if let Some((parent, last)) = engine::dsl::names::split_parent(text) {
        assert_eq!(format!("{parent}/{last}"), text);
    }
}

pub(super) fn name_seeds() -> Vec<Vec<u8>> {
    ["tank", "tank/a/b", "tank/a@snap", "tank/a#mark", "a/../b", "tank/%recv"].map(|seed| seed.as_bytes().to_vec()).to_vec()
}
