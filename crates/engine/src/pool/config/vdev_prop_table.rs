//! What properties a vdev has, in the order of `zpool get all POOL VDEV`. The row type is the datasets' one.

use crate::dsl::prop_table::Rule::{Default, ReadOnly};
use crate::dsl::prop_table::{DatasetTypes, Property, SWITCH};

/// What a switch of a vdev says where it makes no sense.
pub const NOT_APPLICABLE: u64 = 2;
const SWITCH_OR_NONE: &[(&str, u64)] = &[("off", 0), ("on", 1), ("-", NOT_APPLICABLE)];
const VDEV: DatasetTypes = DatasetTypes::VDEV;

/// Every vdev property.
#[rustfmt::skip]
pub static PROPERTIES: &[Property] = &[
    Property::text("name", None, ReadOnly, VDEV, "", "NAME").hidden(),
    Property::number("capacity", 0, ReadOnly, VDEV, "<size>", "CAP"),
    Property::number("state", 0, ReadOnly, VDEV, "<state>", "STATE"),
    Property::number("guid", 0, ReadOnly, VDEV, "<guid>", "GUID").flexible(),
    Property::number("asize", 0, ReadOnly, VDEV, "<asize>", "ASIZE"),
    Property::number("psize", 0, ReadOnly, VDEV, "<psize>", "PSIZE"),
    Property::number("ashift", 0, ReadOnly, VDEV, "<ashift>", "ASHIFT"),
    Property::number("size", 0, ReadOnly, VDEV, "<size>", "SIZE"),
    Property::number("free", 0, ReadOnly, VDEV, "<size>", "FREE"),
    Property::number("allocated", 0, ReadOnly, VDEV, "<size>", "ALLOC"),
    Property::text("comment", None, Default, VDEV, "<comment-string>", "COMMENT"),
    Property::number("expandsize", 0, ReadOnly, VDEV, "<size>", "EXPANDSZ"),
    Property::number("fragmentation", 0, ReadOnly, VDEV, "<percent>", "FRAG"),
    Property::number("bootsize", 0, ReadOnly, VDEV, "<size>", "BOOTSIZE"),
    Property::number("parity", 0, ReadOnly, VDEV, "<parity>", "PARITY"),
    Property::text("path", None, Default, VDEV, "<device-path>", "PATH"),
    Property::text("devid", None, ReadOnly, VDEV, "<devid>", "DEVID"),
    Property::text("physpath", None, ReadOnly, VDEV, "<physpath>", "PHYSPATH"),
    Property::text("encpath", None, ReadOnly, VDEV, "<encpath>", "ENCPATH"),
    Property::text("fru", None, ReadOnly, VDEV, "<fru>", "FRU"),
    Property::text("parent", None, ReadOnly, VDEV, "<parent>", "PARENT"),
    Property::text("children", None, ReadOnly, VDEV, "<child[,...]>", "CHILDREN"),
    Property::number("numchildren", 0, ReadOnly, VDEV, "<number-of-children>", "NUMCHILD"),
    Property::number("read_errors", 0, ReadOnly, VDEV, "<errors>", "RDERR"),
    Property::number("write_errors", 0, ReadOnly, VDEV, "<errors>", "WRERR"),
    Property::number("checksum_errors", 0, ReadOnly, VDEV, "<errors>", "CKERR"),
    Property::number("initialize_errors", 0, ReadOnly, VDEV, "<errors>", "INITERR"),
    Property::number("null_ops", 0, ReadOnly, VDEV, "<operations>", "NULLOP"),
    Property::number("read_ops", 0, ReadOnly, VDEV, "<operations>", "READOP"),
    Property::number("write_ops", 0, ReadOnly, VDEV, "<operations>", "WRITEOP"),
    Property::number("free_ops", 0, ReadOnly, VDEV, "<operations>", "FREEOP"),
    Property::number("claim_ops", 0, ReadOnly, VDEV, "<operations>", "CLAIMOP"),
    Property::number("trim_ops", 0, ReadOnly, VDEV, "<operations>", "TRIMOP"),
    Property::number("null_bytes", 0, ReadOnly, VDEV, "<bytes>", "NULLBYTE"),
    Property::number("read_bytes", 0, ReadOnly, VDEV, "<bytes>", "READBYTE"),
    Property::number("write_bytes", 0, ReadOnly, VDEV, "<bytes>", "WRITEBYTE"),
    Property::number("free_bytes", 0, ReadOnly, VDEV, "<bytes>", "FREEBYTE"),
    Property::number("claim_bytes", 0, ReadOnly, VDEV, "<bytes>", "CLAIMBYTE"),
    Property::number("trim_bytes", 0, ReadOnly, VDEV, "<bytes>", "TRIMBYTE"),
    Property::index("removing", 0, SWITCH, ReadOnly, VDEV, "on | off", "REMOVING"),
    Property::index("allocating", 1, SWITCH_OR_NONE, Default, VDEV, "on | off", "ALLOCATING"),
    Property::index("failfast", 1, SWITCH, Default, VDEV, "on | off", "FAILFAST"),
    Property::number("checksum_n", u64::MAX, Default, VDEV, "<events>", "CKSUM_N"),
    Property::number("checksum_t", u64::MAX, Default, VDEV, "<seconds>", "CKSUM_T"),
    Property::number("io_n", u64::MAX, Default, VDEV, "<events>", "IO_N"),
    Property::number("io_t", u64::MAX, Default, VDEV, "<seconds>", "IO_T"),
    Property::index("raidz_expanding", 0, SWITCH, ReadOnly, VDEV, "on | off", "RAIDZ_EXPANDING"),
    Property::number("slow_io_n", u64::MAX, Default, VDEV, "<events>", "SLOW_IO_N"),
    Property::number("slow_io_t", u64::MAX, Default, VDEV, "<seconds>", "SLOW_IO_T"),
    Property::index("trim_support", 0, SWITCH, ReadOnly, VDEV, "on | off", "TRIMSUP"),
    Property::number("trim_errors", 0, ReadOnly, VDEV, "<errors>", "TRIMERR"),
    Property::number("slow_ios", 0, ReadOnly, VDEV, "<slowios>", "SLOW"),
    Property::index("sit_out", 0, SWITCH, Default, VDEV, "on | off", "SIT_OUT"),
    Property::index("autosit", 0, SWITCH_OR_NONE, Default, VDEV, "on | off", "AUTOSIT"),
    Property::index("slow_io_events", 1, SWITCH, Default, VDEV, "on | off", "SLOW_IO_EVENTS"),
];

/// The property called `name`, or whose column heading is `name` in lower case.
#[must_use]
pub fn find(name: &str) -> Option<&'static Property> {
    PROPERTIES.iter().find(|property| property.is_named(name))
}
