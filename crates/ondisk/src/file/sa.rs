//! System attributes: how a file's attributes are packed into its dnode's bonus and spill block.
//!
//! # Theory
//! A buffer (bonus or spill) is a header and then values, each aligned to 8 bytes, in the order of a *layout*: an array of
//! attribute numbers, stored once per dataset under a layout number. Attribute numbers are given per dataset too, by the
//! *registry*, which maps names to (number, length, byte order class). Attributes of variable length keep their lengths in the
//! header.
//!
//! ```text
//! | magic 4 | layout and header size 2 | length 2 | more lengths, padded to 8 | value | value | ...
//! ```
//!
//! The byte order of a buffer is told by its magic, not by the block pointer, because only the layout says where the integers are.
//!
//! # Invariants
//! 1. A header's size is a multiple of 8, at least 8, and covers all lengths.

use crate::corruption::Corruption;

/// First word of a buffer.
#[doc(alias = "SA_MAGIC")]
pub const MAGIC: u32 = 0x002F_505A;
/// Smallest header: magic, layout word, one length.
pub const HEADER_MIN: usize = 8;
/// First layout number that a dataset may give: 0 is the old znode, 1 the empty buffer.
pub const FIRST_LAYOUT: u16 = 2;
/// Layout of an old znode (of objects whose bonus is no SA buffer).
pub const LAYOUT_ZNODE: u16 = 0;
/// Layout of a buffer without attributes.
pub const LAYOUT_EMPTY: u16 = 1;
/// Layout numbers have 10 bits.
pub const LAYOUT_MAX: u16 = 1023;
/// Largest total of the attributes in a spill block.
pub const SPILL_MAX: usize = 128 << 10;
/// Name, in the SA master node, of the ZAP of layouts.
#[doc(alias = "SA_LAYOUTS")]
pub const LAYOUTS_NAME: &str = "LAYOUTS";
/// Name, in the SA master node, of the ZAP of registered attributes.
#[doc(alias = "SA_REGISTRY")]
pub const REGISTRY_NAME: &str = "REGISTRY";

/// How to turn a value to the other byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteOrderClass {
    /// 64-bit integers.
    Words,
    /// 32-bit integers.
    Halves,
    /// 16-bit integers.
    Quarters,
    /// Bytes: nothing to turn.
    Bytes,
    /// Access control entries.
    Acl,
}

impl ByteOrderClass {
    /// The class of a registry entry's number.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(ByteOrderClass::Words),
            1 => Some(ByteOrderClass::Halves),
            2 => Some(ByteOrderClass::Quarters),
            3 => Some(ByteOrderClass::Bytes),
            4 => Some(ByteOrderClass::Acl),
            _ => None,
        }
    }

    /// The number in a registry entry.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Turns `value` to the other byte order.
    pub fn swap(self, value: &mut [u8]) {
        let size = match self {
            ByteOrderClass::Words => 8,
            ByteOrderClass::Halves => 4,
            ByteOrderClass::Quarters => 2,
            ByteOrderClass::Bytes => return,
            ByteOrderClass::Acl => return crate::acl::swap_entries(value),
        };
        for integer in value.chunks_exact_mut(size) {
            integer.reverse();
        }
    }
}

/// The attributes that files have, in the order of OpenZFS's table of them (which gives new datasets their numbers).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // each is its name
pub enum Attribute {
    AccessTime,
    ModificationTime,
    ChangeTime,
    CreationTime,
    Generation,
    Mode,
    Size,
    Parent,
    Links,
    ExtendedAttributes,
    Device,
    Flags,
    Uid,
    Gid,
    Padding,
    ZnodeAcl,
    AclCount,
    SymbolicLink,
    ScanStamp,
    AclEntries,
    ExtendedAttributeList,
    ProjectId,
}

/// Name, length (0: variable) and byte order class of an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttributeKind {
    /// Which.
    pub attribute: Attribute,
    /// Its name in the registry.
    pub name: &'static str,
    /// Bytes of the value; 0 if they vary.
    pub length: u16,
    /// How the value is turned to the other byte order.
    pub class: ByteOrderClass,
}

/// Number of [`Attribute`]s.
pub const ATTRIBUTE_COUNT: usize = 22;
/// The first attributes have fixed numbers, those of the fields of the old znode.
pub const LEGACY_COUNT: usize = 16;

/// All [`Attribute`]s, in order.
pub static ATTRIBUTES: [AttributeKind; ATTRIBUTE_COUNT] = {
    use Attribute::*;
    use ByteOrderClass::{Acl, Bytes, Words};
    const fn kind(attribute: Attribute, name: &'static str, length: u16, class: ByteOrderClass) -> AttributeKind {
        AttributeKind { attribute, name, length, class }
    }
    [
        kind(AccessTime, "ZPL_ATIME", 16, Words),
        kind(ModificationTime, "ZPL_MTIME", 16, Words),
        kind(ChangeTime, "ZPL_CTIME", 16, Words),
        kind(CreationTime, "ZPL_CRTIME", 16, Words),
        kind(Generation, "ZPL_GEN", 8, Words),
        kind(Mode, "ZPL_MODE", 8, Words),
        kind(Size, "ZPL_SIZE", 8, Words),
        kind(Parent, "ZPL_PARENT", 8, Words),
        kind(Links, "ZPL_LINKS", 8, Words),
        kind(ExtendedAttributes, "ZPL_XATTR", 8, Words),
        kind(Device, "ZPL_RDEV", 8, Words),
        kind(Flags, "ZPL_FLAGS", 8, Words),
        kind(Uid, "ZPL_UID", 8, Words),
        kind(Gid, "ZPL_GID", 8, Words),
        kind(Padding, "ZPL_PAD", 32, Words),
        kind(ZnodeAcl, "ZPL_ZNODE_ACL", 88, Bytes),
        kind(AclCount, "ZPL_DACL_COUNT", 8, Words),
        kind(SymbolicLink, "ZPL_SYMLINK", 0, Bytes),
        kind(ScanStamp, "ZPL_SCANSTAMP", 32, Bytes),
        kind(AclEntries, "ZPL_DACL_ACES", 0, Acl),
        kind(ExtendedAttributeList, "ZPL_DXATTR", 0, Bytes),
        kind(ProjectId, "ZPL_PROJID", 8, Words),
    ]
};

/// One attribute of a dataset: the value of a registry entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registration {
    /// The attribute's number in this dataset.
    pub number: u16,
    /// Bytes of the value; 0 if they vary.
    pub length: u16,
    /// How the value is turned to the other byte order.
    pub class: ByteOrderClass,
}

impl Registration {
    /// Decodes the word of a registry entry.
    pub fn decode(word: u64) -> Result<Self, Corruption> {
        let class = ByteOrderClass::from_number((word >> 16) as u8).ok_or(Corruption::new("SA registry", "byte order class", word))?;
        Ok(Registration { number: word as u16, length: (word >> 24) as u16, class })
    }

    /// The word of a registry entry.
    pub fn encode(self) -> u64 {
        u64::from(self.length) << 24 | u64::from(self.class.number()) << 16 | u64::from(self.number)
    }
}

/// The fixed part of a buffer's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Which layout the values have.
    pub layout: u16,
    /// Where the values begin.
    pub size: usize,
    /// The buffer was written by a machine of the other byte order.
    pub swapped: bool,
}

/// The header of a buffer; `None` if nothing was written there yet.
pub fn header(buffer: &[u8]) -> Result<Option<Header>, Corruption> {
    let word = |at: usize| buffer.get(at..at + 4).and_then(|b| <[u8; 4]>::try_from(b).ok());
    let (Some(magic), Some(info)) = (word(0), word(4)) else {
        return Ok(None);
    };
    let swapped = match u32::from_le_bytes(magic) {
        MAGIC => false,
        0 => return Ok(None),
        _ if u32::from_be_bytes(magic) == MAGIC => true,
        other => return Err(Corruption::new("SA header", "magic", u64::from(other))),
    };
    let [first, second, ..] = info;
    let info = if swapped { u16::from_be_bytes([first, second]) } else { u16::from_le_bytes([first, second]) };
    let size = usize::from(info >> 10) * 8;
    // A header of no size is what a buffer without attributes may have.
    if (size < HEADER_MIN && info != 0) || size > buffer.len() {
        return Err(Corruption::new("SA header", "size", size as u64));
    }
    Ok(Some(Header { layout: info & 0x3ff, size: size.max(HEADER_MIN), swapped }))
}

/// The header size for a buffer with `variable` attributes of variable length.
pub const fn header_size(variable: usize) -> usize {
    (6 + 2 * if variable == 0 { 1 } else { variable } + 7) & !7
}

/// Length `index` of the attributes of variable length.
pub fn variable_length(buffer: &[u8], header: &Header, index: usize) -> Option<u16> {
    let at = 6 + 2 * index;
    if at + 2 > header.size {
        return None;
    }
    let bytes: [u8; 2] = buffer.get(at..at + 2)?.try_into().ok()?;
    Some(if header.swapped { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
}

/// Writes a header. `lengths` are those of the attributes of variable length.
pub fn write_header(buffer: &mut [u8], layout: u16, lengths: &[u16]) {
    let size = header_size(lengths.len());
    buffer[..size].fill(0);
    buffer[..4].copy_from_slice(&MAGIC.to_le_bytes());
    buffer[4..6].copy_from_slice(&((size as u16 / 8) << 10 | layout).to_le_bytes());
    for (place, length) in buffer[6..size].chunks_exact_mut(2).zip(lengths) {
        place.copy_from_slice(&length.to_le_bytes());
    }
}

/// The owner of a file's space, as the fixed places of the first attributes tell without knowing any layout.
///
/// All layouts that OpenZFS makes for files begin with mode, size, generation, uid, gid, parent, flags, so that user accounting
/// needs no registry. `None` if the buffer has no attributes.
pub fn owner(buffer: &[u8]) -> Result<Option<Owner>, Corruption> {
    let Some(header) = header(buffer)? else {
        return Ok(None);
    };
    let word = |at: usize| -> Result<u64, Corruption> {
        let at = header.size + at;
        let bytes = buffer.get(at..at + 8).and_then(|b| b.try_into().ok()).ok_or(Corruption::new("SA buffer", "size", buffer.len() as u64))?;
        Ok(if header.swapped { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) })
    };
    let flags = word(48)?;
    let project = if flags & crate::znode::FLAG_PROJECT_ID != 0 { word(128)? } else { 0 };
    Ok(Some(Owner { uid: word(24)?, gid: word(32)?, project, generation: word(16)? }))
}

/// Whose space a file takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Owner {
    /// User.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// Project.
    pub project: u64,
    /// The group in which the file came to be.
    pub generation: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn header_sizes_are_the_formats() {
        assert_eq!([header_size(0), header_size(1), header_size(2), header_size(5), header_size(6)], [8, 8, 16, 16, 24]);
    }

    #[test]
    fn a_header_reads_back_in_both_byte_orders() {
        let mut buffer = vec![0; 64];
        write_header(&mut buffer, 5, &[60, 300]);
        assert_eq!(&buffer[..12], &[0x5a, 0x50, 0x2f, 0, 5, 0x08, 60, 0, 0x2c, 1, 0, 0]);
        let found = header(&buffer).unwrap().unwrap();
        assert_eq!(found, Header { layout: 5, size: 16, swapped: false });
        assert_eq!(variable_length(&buffer, &found, 1), Some(300));
        assert_eq!(variable_length(&buffer, &found, 5), None);
        buffer[..4].reverse();
        buffer[4..6].reverse();
        buffer[6..8].reverse();
        let found = header(&buffer).unwrap().unwrap();
        assert_eq!(found, Header { layout: 5, size: 16, swapped: true });
        assert_eq!(variable_length(&buffer, &found, 0), Some(60));
    }

    #[test]
    fn a_registration_reads_back() {
        // ZPL_DACL_ACES in a new dataset, as zdb shows it: 40013 (length 0, class 4, number 19).
        let found = Registration::decode(0x40013).unwrap();
        assert_eq!(found, Registration { number: 19, length: 0, class: ByteOrderClass::Acl });
        assert_eq!(found.encode(), 0x40013);
        assert!(Registration::decode(0x90013).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(mut buffer in proptest::collection::vec(any::<u8>(), 0..320), magic in any::<bool>()) {
            if magic && buffer.len() > 4 {
                buffer[..4].copy_from_slice(&MAGIC.to_le_bytes());
            }
            if let Ok(Some(header)) = header(&buffer) {
                prop_assert!(header.size <= buffer.len().max(8));
                for index in 0..300 {
                    let _ = variable_length(&buffer, &header, index);
                }
            }
            let _ = owner(&buffer);
        }
    }
}
