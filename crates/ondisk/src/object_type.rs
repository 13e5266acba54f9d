//! Object types: one table.
//!
//! # Theory
//! The type of an object says three things about its blocks: how to turn them around when the pool was written on a
//! machine of the other byte order, whether they are metadata (kept in more copies, cached apart), and whether
//! they are encrypted in an encrypted dataset. Types below 54 are numbers with a meaning each and are listed here. Later
//! types are self-describing: bit 7 set, then metadata (6), encrypted (5), and the byte-swap class in bits 0-4; new kinds
//! of object share those and are told apart by what points to them.

use std::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// How the contents of a block are turned around.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteswapClass {
    /// Bytes: nothing to do.
    U8,
    /// An array of 16-bit numbers.
    U16,
    /// An array of 32-bit numbers.
    U32,
    /// An array of 64-bit numbers.
    U64,
    /// A ZAP block: micro, header, pointer table or leaf.
    Zap,
    /// An array of dnodes.
    Dnode,
    /// The head of an object set.
    Objset,
    /// File attributes before system attributes.
    Znode,
    /// An array of version-0 access control entries.
    OldAcl,
    /// Access control entries of varying size.
    Acl,
}

impl ByteswapClass {
    /// All of them, in the order of their numbers.
    pub const ALL: [ByteswapClass; 10] = [
        ByteswapClass::U8,
        ByteswapClass::U16,
        ByteswapClass::U32,
        ByteswapClass::U64,
        ByteswapClass::Zap,
        ByteswapClass::Dnode,
        ByteswapClass::Objset,
        ByteswapClass::Znode,
        ByteswapClass::OldAcl,
        ByteswapClass::Acl,
    ];

    /// The name that `zdb` gives to a self-describing type of this class.
    pub const fn name(self) -> &'static str {
        match self {
            ByteswapClass::U8 => "uint8",
            ByteswapClass::U16 => "uint16",
            ByteswapClass::U32 => "uint32",
            ByteswapClass::U64 => "uint64",
            ByteswapClass::Zap => "zap",
            ByteswapClass::Dnode => "dnode",
            ByteswapClass::Objset => "objset",
            ByteswapClass::Znode => "znode",
            ByteswapClass::OldAcl => "oldacl",
            ByteswapClass::Acl => "acl",
        }
    }
}

/// The type byte of an object or block (`DMU_OT_*`), valid or not.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
pub struct ObjectType(pub u8);

struct Row {
    byteswap: ByteswapClass,
    metadata: bool,
    encrypted: bool,
    /// Small, hot pool metadata for which a part of the dbuf cache is reserved.
    cached_apart: bool,
    name: &'static str,
}

const fn has(flags: &str, at: usize) -> bool {
    flags.as_bytes()[at] != b'-'
}

/// Flags: `M`etadata, `C`ached apart, `E`ncrypted in encrypted datasets.
macro_rules! object_types {
    ($($number:literal $constant:ident $class:ident $flags:literal $name:literal;)*) => {
        impl ObjectType {
            $(#[doc = concat!("Type ", stringify!($number), ", \"", $name, "\".")]
              pub const $constant: ObjectType = ObjectType($number);)*
        }
        const TABLE: &[Row] = &[$(Row {
            byteswap: ByteswapClass::$class,
            metadata: has($flags, 0),
            encrypted: has($flags, 2),
            cached_apart: has($flags, 1),
            name: $name,
        }),*];
        #[cfg(test)]
        const NUMBERS: &[u8] = &[$($number),*];
    };
}

object_types! {
     0 NONE                       U8      "M--" "unallocated";
     1 OBJECT_DIRECTORY           Zap     "MC-" "object directory";
     2 OBJECT_ARRAY               U64     "MC-" "object array";
     3 PACKED_NVLIST              U8      "M--" "packed nvlist";
     4 PACKED_NVLIST_SIZE         U64     "M--" "packed nvlist size";
     5 BPOBJ                      U64     "M--" "bpobj";
     6 BPOBJ_HDR                  U64     "M--" "bpobj header";
     7 SPACE_MAP_HEADER           U64     "M--" "SPA space map header";
     8 SPACE_MAP                  U64     "M--" "SPA space map";
     9 INTENT_LOG                 U64     "M-E" "ZIL intent log";
    10 DNODE                      Dnode   "M-E" "DMU dnode";
    11 OBJSET                     Objset  "MC-" "DMU objset";
    12 DSL_DIR                    U64     "MC-" "DSL directory";
    13 DSL_DIR_CHILD_MAP          Zap     "MC-" "DSL directory child map";
    14 DSL_DS_SNAP_MAP            Zap     "MC-" "DSL dataset snap map";
    15 DSL_PROPS                  Zap     "MC-" "DSL props";
    16 DSL_DATASET                U64     "MC-" "DSL dataset";
    17 ZNODE                      Znode   "M--" "ZFS znode";
    18 OLDACL                     OldAcl  "M-E" "ZFS V0 ACL";
    19 PLAIN_FILE_CONTENTS        U8      "--E" "ZFS plain file";
    20 DIRECTORY_CONTENTS         Zap     "M-E" "ZFS directory";
    21 MASTER_NODE                Zap     "M--" "ZFS master node";
    22 UNLINKED_SET               Zap     "M-E" "ZFS delete queue";
    23 ZVOL                       U8      "--E" "zvol object";
    24 ZVOL_PROP                  Zap     "M--" "zvol prop";
    25 PLAIN_OTHER                U8      "--E" "other uint8[]";
    26 UINT64_OTHER               U64     "--E" "other uint64[]";
    27 ZAP_OTHER                  Zap     "M--" "other ZAP";
    28 ERROR_LOG                  Zap     "M--" "persistent error log";
    29 SPA_HISTORY                U8      "M--" "SPA history";
    30 SPA_HISTORY_OFFSETS        U64     "M--" "SPA history offsets";
    31 POOL_PROPS                 Zap     "MC-" "Pool properties";
    32 DSL_PERMS                  Zap     "MC-" "DSL permissions";
    33 ACL                        Acl     "M-E" "ZFS ACL";
    34 SYSACL                     U8      "M-E" "ZFS SYSACL";
    35 FUID                       U8      "M-E" "FUID table";
    36 FUID_SIZE                  U64     "M--" "FUID table size";
    37 NEXT_CLONES                Zap     "MC-" "DSL dataset next clones";
    38 SCAN_QUEUE                 Zap     "M--" "scan work queue";
    39 USERGROUP_USED             Zap     "M-E" "ZFS user/group/project used";
    40 USERGROUP_QUOTA            Zap     "M-E" "ZFS user/group/project quota";
    41 USERREFS                   Zap     "MC-" "snapshot refcount tags";
    42 DDT_ZAP                    Zap     "M--" "DDT ZAP algorithm";
    43 DDT_STATS                  Zap     "M--" "DDT statistics";
    44 SA                         U8      "M-E" "System attributes";
    45 SA_MASTER_NODE             Zap     "M-E" "SA master node";
    46 SA_ATTR_REGISTRATION       Zap     "M-E" "SA attr registration";
    47 SA_ATTR_LAYOUTS            Zap     "M-E" "SA attr layouts";
    48 SCAN_XLATE                 Zap     "M--" "scan translations";
    49 DEDUP                      U8      "--E" "deduplicated block";
    50 DEADLIST                   Zap     "MC-" "DSL deadlist map";
    51 DEADLIST_HDR               U64     "MC-" "DSL deadlist map hdr";
    52 DSL_CLONES                 Zap     "MC-" "DSL dir clones";
    53 BPOBJ_SUBOBJ               U64     "M--" "bpobj subobj";
}

const NEW_STYLE: u8 = 0x80;
const NEW_METADATA: u8 = 0x40;
const NEW_ENCRYPTED: u8 = 0x20;
const NEW_CLASS: u8 = 0x1f;

impl ObjectType {
    /// A self-describing type.
    pub const fn self_describing(class: ByteswapClass, metadata: bool, encrypted: bool) -> Self {
        let metadata = if metadata { NEW_METADATA } else { 0 };
        let encrypted = if encrypted { NEW_ENCRYPTED } else { 0 };
        ObjectType(NEW_STYLE | metadata | encrypted | class as u8)
    }

    /// `DMU_OTN_UINT8_DATA`
    pub const UINT8_DATA: Self = Self::self_describing(ByteswapClass::U8, false, false);
    /// `DMU_OTN_UINT8_METADATA`
    pub const UINT8_METADATA: Self = Self::self_describing(ByteswapClass::U8, true, false);
    /// `DMU_OTN_UINT16_METADATA`
    pub const UINT16_METADATA: Self = Self::self_describing(ByteswapClass::U16, true, false);
    /// `DMU_OTN_UINT32_METADATA`
    pub const UINT32_METADATA: Self = Self::self_describing(ByteswapClass::U32, true, false);
    /// `DMU_OTN_UINT64_DATA`
    pub const UINT64_DATA: Self = Self::self_describing(ByteswapClass::U64, false, false);
    /// `DMU_OTN_UINT64_METADATA`
    pub const UINT64_METADATA: Self = Self::self_describing(ByteswapClass::U64, true, false);
    /// `DMU_OTN_ZAP_DATA`
    pub const ZAP_DATA: Self = Self::self_describing(ByteswapClass::Zap, false, false);
    /// `DMU_OTN_ZAP_METADATA`
    pub const ZAP_METADATA: Self = Self::self_describing(ByteswapClass::Zap, true, false);
    /// `DMU_OTN_UINT8_ENC_DATA`
    pub const UINT8_ENCRYPTED_DATA: Self = Self::self_describing(ByteswapClass::U8, false, true);
    /// `DMU_OTN_ZAP_ENC_METADATA`
    pub const ZAP_ENCRYPTED_METADATA: Self = Self::self_describing(ByteswapClass::Zap, true, true);

    fn row(self) -> Option<&'static Row> {
        TABLE.get(usize::from(self.0))
    }

    const fn is_self_describing(self) -> bool {
        self.0 & NEW_STYLE != 0
    }

    /// The format knows this number.
    pub fn is_valid(self) -> bool {
        self.byteswap().is_some()
    }

    /// How blocks of this type are turned around; `None` for numbers that the format does not know.
    pub fn byteswap(self) -> Option<ByteswapClass> {
        if self.is_self_describing() {
            ByteswapClass::ALL.get(usize::from(self.0 & NEW_CLASS)).copied()
        } else {
            self.row().map(|row| row.byteswap)
        }
    }

    /// Blocks of this type are metadata at every level. (Indirect blocks always are: see `BlkPtr::is_metadata`.)
    pub fn is_metadata(self) -> bool {
        if self.is_self_describing() { self.0 & NEW_METADATA != 0 } else { self.row().is_some_and(|row| row.metadata) }
    }

    /// Blocks of this type are encrypted in an encrypted dataset.
    pub fn is_encrypted(self) -> bool {
        if self.is_self_describing() { self.0 & NEW_ENCRYPTED != 0 } else { self.row().is_some_and(|row| row.encrypted) }
    }

    /// Small and hot enough that a part of the dbuf cache is reserved for it.
    pub fn is_cached_apart(self) -> bool {
        if self.is_self_describing() { self.is_metadata() } else { self.row().is_some_and(|row| row.cached_apart) }
    }

    /// The fill count of a level-0 block of this type is not simply one, so that it cannot be embedded.
    pub fn has_fill(self) -> bool {
        self == Self::DNODE || self == Self::OBJSET
    }

    /// Losing a block of this type at this level loses more than one file or directory.
    pub fn is_critical(self, level: u8) -> bool {
        self.is_metadata()
            && (self != Self::DNODE || level > 0)
            && self != Self::DIRECTORY_CONTENTS
            && self != Self::SA
    }

    /// The name that `zdb` prints.
    pub fn name(self) -> &'static str {
        if self.is_self_describing() {
            self.byteswap().map_or("UNKNOWN", ByteswapClass::name)
        } else {
            self.row().map_or("UNKNOWN", |row| row.name)
        }
    }
}

impl fmt::Display for ObjectType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for ObjectType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectType({} \"{}\")", self.0, self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_complete() {
        assert_eq!(TABLE.len(), 54);
        assert!(NUMBERS.iter().enumerate().all(|(index, &number)| index == usize::from(number)));
        assert!(ObjectType(53).is_valid());
        assert!(!ObjectType(54).is_valid());
        assert_eq!(ObjectType(54).name(), "UNKNOWN");
    }

    #[test]
    fn self_describing_types_have_the_numbers_of_the_format() {
        assert_eq!(ObjectType::UINT8_DATA.0, 0x80);
        assert_eq!(ObjectType::ZAP_METADATA.0, 0xc4);
        assert_eq!(ObjectType::UINT64_METADATA.0, 0xc3);
        assert_eq!(ObjectType::UINT8_ENCRYPTED_DATA.0, 0xa0);
        assert_eq!(ObjectType::ZAP_METADATA.name(), "zap");
        assert!(ObjectType::ZAP_METADATA.is_metadata() && !ObjectType::ZAP_METADATA.is_encrypted());
        assert!(!ObjectType(0x9f).is_valid());
    }

    #[test]
    fn every_byte_has_an_answer() {
        for byte in 0..=u8::MAX {
            let object_type = ObjectType(byte);
            assert_eq!(object_type.is_valid(), object_type.name() != "UNKNOWN");
            assert!(object_type.is_valid() || byte >= 54);
        }
    }
}
