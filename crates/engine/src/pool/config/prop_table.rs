//! What properties a pool has, in the order of `zpool get all`. The row type is the datasets' one.

use crate::dsl::prop_table::Rule::{Default, Once, ReadOnly};
use crate::dsl::prop_table::{DatasetTypes, Property, SWITCH};

const FAILURE_MODES: &[(&str, u64)] = &[("wait", 0), ("continue", 1), ("panic", 2)];
const POOL: DatasetTypes = DatasetTypes::POOL;

/// Every pool property but the features (`feature@...`).
#[rustfmt::skip]
pub static PROPERTIES: &[Property] = &[
    Property::text("name", None, ReadOnly, POOL, "", "NAME").hidden(),
    Property::number("size", 0, ReadOnly, POOL, "<size>", "SIZE"),
    Property::number("capacity", 0, ReadOnly, POOL, "<percent>", "CAP"),
    Property::text("altroot", None, Default, POOL, "<path>", "ALTROOT"),
    Property::number("health", 0, ReadOnly, POOL, "<state>", "HEALTH"),
    Property::number("guid", 0, ReadOnly, POOL, "<guid>", "GUID").flexible(),
    Property::number("version", 5000, Default, POOL, "<version>", "VERSION"),
    Property::text("bootfs", None, Default, POOL, "<filesystem>", "BOOTFS"),
    Property::index("delegation", 1, SWITCH, Default, POOL, "on | off", "DELEGATION"),
    Property::index("autoreplace", 0, SWITCH, Default, POOL, "on | off", "REPLACE"),
    Property::text("cachefile", None, Default, POOL, "<file> | none", "CACHEFILE"),
    Property::index("failmode", 0, FAILURE_MODES, Default, POOL, "wait | continue | panic", "FAILMODE"),
    Property::index("listsnapshots", 0, SWITCH, Default, POOL, "on | off", "LISTSNAPS"),
    Property::index("autoexpand", 0, SWITCH, Default, POOL, "on | off", "EXPAND"),
    Property::number("dedupditto", 0, Default, POOL, "", "DEDUPDITTO").hidden(),
    Property::number("dedupratio", 0, ReadOnly, POOL, "<1.00x or higher if deduped>", "DEDUP"),
    Property::number("free", 0, ReadOnly, POOL, "<size>", "FREE"),
    Property::number("allocated", 0, ReadOnly, POOL, "<size>", "ALLOC"),
    Property::index("readonly", 0, SWITCH, Default, POOL, "on | off", "RDONLY"),
    Property::number("ashift", 0, Default, POOL, "<ashift, 9-16, or 0=default>", "ASHIFT"),
    Property::text("comment", None, Default, POOL, "<comment-string>", "COMMENT"),
    Property::number("expandsize", 0, ReadOnly, POOL, "<size>", "EXPANDSZ"),
    Property::number("freeing", 0, ReadOnly, POOL, "<size>", "FREEING"),
    Property::number("fragmentation", 0, ReadOnly, POOL, "<percent>", "FRAG"),
    Property::number("leaked", 0, ReadOnly, POOL, "<size>", "LEAKED"),
    Property::number("maxblocksize", 0, ReadOnly, POOL, "", "MAXBLOCKSIZE").hidden(),
    Property::text("tname", None, Once, POOL, "", "TNAME").hidden(),
    Property::number("maxdnodesize", 0, ReadOnly, POOL, "", "MAXDNODESIZE").hidden(),
    Property::index("multihost", 0, SWITCH, Default, POOL, "on | off", "MULTIHOST"),
    Property::number("checkpoint", 0, ReadOnly, POOL, "<size>", "CKPOINT"),
    Property::number("load_guid", 0, ReadOnly, POOL, "<load_guid>", "LOAD_GUID").flexible(),
    Property::index("autotrim", 0, SWITCH, Default, POOL, "on | off", "AUTOTRIM"),
    Property::text("compatibility", Some("off"), Default, POOL, "<file[,file...]> | off | legacy", "COMPATIBILITY"),
    Property::number("bcloneused", 0, ReadOnly, POOL, "<size>", "BCLONE_USED"),
    Property::number("bclonesaved", 0, ReadOnly, POOL, "<size>", "BCLONE_SAVED"),
    Property::number("bcloneratio", 0, ReadOnly, POOL, "<1.00x or higher if cloned>", "BCLONE_RATIO"),
    Property::number("dedup_table_size", 0, ReadOnly, POOL, "<size>", "DDTSIZE"),
    Property::number("dedup_table_quota", u64::MAX, Default, POOL, "<size>", "DDTQUOTA"),
    Property::number("dedupcached", 0, ReadOnly, POOL, "", "DEDUPCACHED").hidden(),
    Property::number("last_scrubbed_txg", 0, ReadOnly, POOL, "<txg>", "LAST_SCRUBBED_TXG"),
];

/// The property called `name`, or whose column heading is `name` in lower case (`cap`, `alloc`, `frag`).
#[must_use]
pub fn find(name: &str) -> Option<&'static Property> {
    PROPERTIES.iter().find(|property| property.is_named(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_headings_are_found() {
        assert_eq!(find("cap").map(|p| p.name), Some("capacity"));
        assert_eq!(find("frag").map(|p| p.name), Some("fragmentation"));
        assert_eq!(find("ckpoint").map(|p| p.name), Some("checkpoint"));
        assert!(find("quota").is_none());
        assert_eq!(PROPERTIES.len(), 40);
    }
}
