//! The intent log: its header, its blocks, and the records in them.
//!
//! # Theory
//! Each object set has a log: a chain of blocks that starts in its header. A block has a trailer (old form) or a header
//! ([`ChainPhys`], new form), which points to the next block: the space of the next block is allocated before this block is
//! written, and the chain ends where a block's checksum is not the expected one. The checksum of a log block is the sequence
//! number's: word 3 of the expected checksum counts up from block to block, words 0 and 1 are a guid of the chain, and word 2
//! is the object set.
//!
//! Each record has a common start ([`RecordHeader`]) with its type and length, then fixed fields, then (names, data, ACEs)
//! bytes of variable length. [`records`] walks a block; [`Record::decode`] gives the fixed part a type.

mod swap;

pub use swap::{ATTRIBUTE_PROJECT, from_big_endian, to_big_endian};

use crate::blkptr::BlkPtr;
use crate::corruption::Corruption;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `LogHeader::flags`: there is something to replay.
pub const LOG_FLAG_REPLAY_NEEDED: u64 = 0x1;
/// `LogHeader::flags`: `claim_record_sequence` is valid.
pub const LOG_FLAG_CLAIM_SEQUENCE_VALID: u64 = 0x2;

/// The head of a log, in the object set.
#[doc(alias = "zil_header_t")]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct LogHeader {
    /// The txg in which the blocks of the log were claimed when the pool was opened.
    #[doc(alias = "zh_claim_txg")]
    pub claim_txg: U64,
    /// The highest record sequence number that has been replayed.
    #[doc(alias = "zh_replay_seq")]
    pub replay_sequence: U64,
    /// The first block.
    #[doc(alias = "zh_log")]
    pub log: BlkPtr,
    /// The highest block sequence number that was claimed.
    #[doc(alias = "zh_claim_blk_seq")]
    pub claim_block_sequence: U64,
    /// `LOG_FLAG_*`.
    #[doc(alias = "zh_flags")]
    pub flags: U64,
    /// The highest record sequence number that was claimed.
    #[doc(alias = "zh_claim_lr_seq")]
    pub claim_record_sequence: U64,
    /// Zero.
    pub padding: [U64; 3],
}
const _: () = assert!(size_of::<LogHeader>() == 192);

impl LogHeader {
    /// The header in these bytes, if they are enough.
    pub fn from_bytes(bytes: &[u8]) -> Option<LogHeader> {
        LogHeader::read_from_prefix(bytes).ok().map(|(header, _)| header)
    }
}

/// Whether the log of this header has something to replay.
pub fn header_needs_replay(header: &[u8]) -> bool {
    LogHeader::from_bytes(header).is_some_and(|header| header.flags.get() & LOG_FLAG_REPLAY_NEEDED != 0)
}

/// The first block of the log of this header, if there is one.
pub fn header_first_block(header: &[u8]) -> Option<BlkPtr> {
    LogHeader::from_bytes(header).map(|header| header.log).filter(|log| !log.is_hole())
}

/// The magic number of an embedded checksum.
#[doc(alias = "ZEC_MAGIC")]
pub const EMBEDDED_CHECKSUM_MAGIC: u64 = 0x0210_da7a_b10c_7a11;

/// A checksum that is stored in the block it protects.
#[doc(alias = "zio_eck_t")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct EmbeddedChecksum {
    /// [`EMBEDDED_CHECKSUM_MAGIC`]; also tells the byte order.
    #[doc(alias = "zec_magic")]
    pub magic: U64,
    /// The checksum.
    #[doc(alias = "zec_cksum")]
    pub checksum: [U64; 4],
}
const _: () = assert!(size_of::<EmbeddedChecksum>() == 40);

/// The link from one log block to the next: at the start of a block with checksum `zilog2`, at the end of one with `zilog`.
#[doc(alias = "zil_chain_t")]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ChainPhys {
    /// Zero.
    pub padding: U64,
    /// The next block.
    #[doc(alias = "zc_next_blk")]
    pub next: BlkPtr,
    /// How many bytes of this block are used; with `zilog2` this record counts.
    #[doc(alias = "zc_nused")]
    pub used_bytes: U64,
    /// The block's own checksum.
    #[doc(alias = "zc_eck")]
    pub embedded: EmbeddedChecksum,
}
const _: () = assert!(size_of::<ChainPhys>() == 184);

/// The smallest log block.
pub const LOG_BLOCK_MIN: usize = 4096;

/// Word of a log block's checksum: guid of the chain, first half.
pub const CHECKSUM_GUID_0: usize = 0;
/// Word of a log block's checksum: guid of the chain, second half.
pub const CHECKSUM_GUID_1: usize = 1;
/// Word of a log block's checksum: the object set.
pub const CHECKSUM_OBJSET: usize = 2;
/// Word of a log block's checksum: the sequence number.
pub const CHECKSUM_SEQUENCE: usize = 3;

macro_rules! record_types {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        /// The type of a record.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u64)]
        pub enum RecordType {
            $(#[doc = $text] $name = $number,)*
        }

        impl RecordType {
            /// The type with this number (without the case-insensitive bit).
            pub fn from_number(number: u64) -> Option<Self> {
                match number {
                    $($number => Some(RecordType::$name),)*
                    _ => None,
                }
            }

            /// Its name in the tools.
            pub fn name(self) -> &'static str {
                match self {
                    $(RecordType::$name => $text,)*
                }
            }
        }
    };
}
record_types! {
    Commit = 0, "TX_COMMIT";
    Create = 1, "TX_CREATE";
    MakeDir = 2, "TX_MKDIR";
    MakeXattrDir = 3, "TX_MKXATTR";
    Symlink = 4, "TX_SYMLINK";
    Remove = 5, "TX_REMOVE";
    RemoveDir = 6, "TX_RMDIR";
    Link = 7, "TX_LINK";
    Rename = 8, "TX_RENAME";
    Write = 9, "TX_WRITE";
    Truncate = 10, "TX_TRUNCATE";
    SetAttr = 11, "TX_SETATTR";
    AclV0 = 12, "TX_ACL_V0";
    Acl = 13, "TX_ACL";
    CreateAcl = 14, "TX_CREATE_ACL";
    CreateAttr = 15, "TX_CREATE_ATTR";
    CreateAclAttr = 16, "TX_CREATE_ACL_ATTR";
    MakeDirAcl = 17, "TX_MKDIR_ACL";
    MakeDirAttr = 18, "TX_MKDIR_ATTR";
    MakeDirAclAttr = 19, "TX_MKDIR_ACL_ATTR";
    Write2 = 20, "TX_WRITE2";
    SetSaXattr = 21, "TX_SETSAXATTR";
    RenameExchange = 22, "TX_RENAME_EXCHANGE";
    RenameWhiteout = 23, "TX_RENAME_WHITEOUT";
    CloneRange = 24, "TX_CLONE_RANGE";
}

/// Set in a record's type: the request ignored the case of names.
pub const RECORD_CASE_INSENSITIVE: u64 = 1 << 63;

impl RecordType {
    /// Whether records of this type may be logged in another order than they happened: those about one object's contents.
    pub fn is_out_of_order(self) -> bool {
        use RecordType as T;
        matches!(
            self,
            T::Write | T::Truncate | T::SetAttr | T::AclV0 | T::Acl | T::Write2 | T::SetSaXattr | T::CloneRange
        )
    }
}

/// The common start of all records.
#[doc(alias = "lr_t")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RecordHeader {
    /// [`RecordType`] and [`RECORD_CASE_INSENSITIVE`].
    #[doc(alias = "lrc_txtype")]
    pub record_type: U64,
    /// The whole record's length in bytes; a multiple of 8.
    #[doc(alias = "lrc_reclen")]
    pub length: U64,
    /// The txg of the change: when that is on disk, the record is done with.
    #[doc(alias = "lrc_txg")]
    pub txg: U64,
    /// Counts up over the whole log.
    #[doc(alias = "lrc_seq")]
    pub sequence: U64,
}
const _: () = assert!(size_of::<RecordHeader>() == 32);

/// The object number within an object id of a record that creates something.
pub fn object_of(id: u64) -> u64 {
    id & ((1 << 48) - 1)
}

/// How many dnode slots the created object takes, kept in the top byte of its object id.
pub fn slots_of(id: u64) -> u64 {
    (id >> 56) + 1
}

/// An object id for a record that creates an object of this many dnode slots.
pub fn object_with_slots(object: u64, slots: u64) -> u64 {
    object_of(object) | ((slots.saturating_sub(1) & 0xff) << 56)
}

macro_rules! records {
    ($($(#[doc = $doc:literal])+ $name:ident ($alias:literal, $size:literal) {
        $($(#[doc = $field_doc:literal])+ $field:ident : $type:ty = $field_alias:literal,)*
    })*) => {
        $(
            $(#[doc = $doc])+
            #[doc(alias = $alias)]
            #[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
            #[repr(C)]
            pub struct $name {
                /// The common start.
                pub header: RecordHeader,
                $($(#[doc = $field_doc])+ #[doc(alias = $field_alias)] pub $field: $type,)*
            }
            const _: () = assert!(size_of::<$name>() == $size);
        )*
    };
}
records! {
    /// Create a file, directory, xattr directory or symbolic link.
    /// Then: the name, and for a symbolic link its target, each ended by a zero byte; before the name, if the type says so,
    /// extended attributes ([`AttrPhys`]), ACL and FUIDs.
    CreateRecord ("lr_create_t", 104) {
        /// The directory.
        dir: U64 = "lr_doid",
        /// The new object, with its slots ([`slots_of`]).
        object: U64 = "lr_foid",
        /// Mode.
        mode: U64 = "lr_mode",
        /// Owner.
        uid: U64 = "lr_uid",
        /// Group.
        gid: U64 = "lr_gid",
        /// The txg of its creation.
        generation: U64 = "lr_gen",
        /// Seconds and nanoseconds.
        created: [U64; 2] = "lr_crtime",
        /// Device number.
        device: U64 = "lr_rdev",
    }
    /// Remove a name. Then: the name.
    RemoveRecord ("lr_remove_t", 40) {
        /// The directory.
        dir: U64 = "lr_doid",
    }
    /// Make a hard link. Then: the name.
    LinkRecord ("lr_link_t", 48) {
        /// The directory.
        dir: U64 = "lr_doid",
        /// The object that gets a name more.
        object: U64 = "lr_link_obj",
    }
    /// Rename, or exchange two names. Then: both names.
    RenameRecord ("lr_rename_t", 48) {
        /// The directory of the old name.
        from_dir: U64 = "lr_sdoid",
        /// The directory of the new name.
        to_dir: U64 = "lr_tdoid",
    }
    /// Rename and leave a whiteout. Then: both names.
    RenameWhiteoutRecord ("lr_rename_whiteout_t", 112) {
        /// The directory of the old name.
        from_dir: U64 = "lr_sdoid",
        /// The directory of the new name.
        to_dir: U64 = "lr_tdoid",
        /// The whiteout's object.
        object: U64 = "lr_wfoid",
        /// The whiteout's mode.
        mode: U64 = "lr_wmode",
        /// The whiteout's owner.
        uid: U64 = "lr_wuid",
        /// The whiteout's group.
        gid: U64 = "lr_wgid",
        /// The txg of its creation.
        generation: U64 = "lr_wgen",
        /// Seconds and nanoseconds.
        created: [U64; 2] = "lr_wcrtime",
        /// Zero.
        device: U64 = "lr_wrdev",
    }
    /// Write. Then: the data, unless the block pointer says where it is.
    WriteRecord ("lr_write_t", 192) {
        /// The file.
        object: U64 = "lr_foid",
        /// Where.
        offset: U64 = "lr_offset",
        /// How many bytes.
        length: U64 = "lr_length",
        /// Zero.
        block_offset: U64 = "lr_blkoff",
        /// The block with the data; all zero if the data follow.
        block: BlkPtr = "lr_blkptr",
    }
    /// Free a range; to the end if `length` is 0.
    TruncateRecord ("lr_truncate_t", 56) {
        /// The file.
        object: U64 = "lr_foid",
        /// From here.
        offset: U64 = "lr_offset",
        /// How many bytes.
        length: U64 = "lr_length",
    }
    /// Set attributes. Then: extended attributes if the mask says so.
    SetAttrRecord ("lr_setattr_t", 112) {
        /// The file.
        object: U64 = "lr_foid",
        /// Which of the following count.
        mask: U64 = "lr_mask",
        /// Mode.
        mode: U64 = "lr_mode",
        /// Owner.
        uid: U64 = "lr_uid",
        /// Group.
        gid: U64 = "lr_gid",
        /// Size.
        size: U64 = "lr_size",
        /// Seconds and nanoseconds.
        accessed: [U64; 2] = "lr_atime",
        /// Seconds and nanoseconds.
        modified: [U64; 2] = "lr_mtime",
    }
    /// Set an extended attribute kept in the system attributes. Then: its name, a zero byte, its value.
    SetSaXattrRecord ("lr_setsaxattr_t", 48) {
        /// The file.
        object: U64 = "lr_foid",
        /// The value's length; 0 removes it.
        size: U64 = "lr_size",
    }
    /// Set an ACL of the oldest form. Then: the ACEs.
    AclV0Record ("lr_acl_v0_t", 48) {
        /// The file.
        object: U64 = "lr_foid",
        /// How many ACEs.
        entries: U64 = "lr_aclcnt",
    }
    /// Set an ACL. Then: ACEs, FUIDs, domains.
    AclRecord ("lr_acl_t", 80) {
        /// The file.
        object: U64 = "lr_foid",
        /// How many ACEs.
        entries: U64 = "lr_aclcnt",
        /// How many domains.
        domains: U64 = "lr_domcnt",
        /// How many FUIDs.
        fuids: U64 = "lr_fuidcnt",
        /// The ACEs' bytes.
        acl_bytes: U64 = "lr_acl_bytes",
        /// Flags of the ACL.
        flags: U64 = "lr_acl_flags",
    }
    /// Clone blocks into a file. Then: `count` block pointers.
    CloneRangeRecord ("lr_clone_range_t", 72) {
        /// The file.
        object: U64 = "lr_foid",
        /// Where.
        offset: U64 = "lr_offset",
        /// How many bytes.
        length: U64 = "lr_length",
        /// The file's block size.
        block_size: U64 = "lr_blksz",
        /// How many block pointers follow.
        count: U64 = "lr_nbps",
    }
}

/// Bit of [`SetAttrRecord::mask`]: extended attributes follow.
#[doc(alias = "ATTR_XVATTR")]
pub const SET_ATTR_EXTENDED: u64 = 1 << 31;

/// The part of a create record with ACL, between [`CreateRecord`] and what varies.
#[doc(alias = "lr_acl_create_t")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CreateAclPhys {
    /// How many ACEs.
    #[doc(alias = "lr_aclcnt")]
    pub entries: U64,
    /// How many domains.
    #[doc(alias = "lr_domcnt")]
    pub domains: U64,
    /// How many FUIDs.
    #[doc(alias = "lr_fuidcnt")]
    pub fuids: U64,
    /// The ACEs' bytes.
    #[doc(alias = "lr_acl_bytes")]
    pub acl_bytes: U64,
    /// Flags of the ACL.
    #[doc(alias = "lr_acl_flags")]
    pub flags: U64,
}
const _: () = assert!(size_of::<CreateAclPhys>() == 40);

/// The start of extended attributes in a record: `mask_words` words of bitmap, then [`AttrEndPhys`].
#[doc(alias = "lr_attr_t")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct AttrPhys {
    /// How many words of 32 bits the bitmap has.
    #[doc(alias = "lr_attr_masksize")]
    pub mask_words: U32,
    /// Its first word.
    #[doc(alias = "lr_attr_bitmap")]
    pub bitmap: U32,
}
const _: () = assert!(size_of::<AttrPhys>() == 8);

/// The end of extended attributes in a record.
#[doc(alias = "lr_attr_end_t")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct AttrEndPhys {
    /// The attributes as bits.
    #[doc(alias = "lr_attr_attrs")]
    pub attributes: U64,
    /// Seconds and nanoseconds.
    #[doc(alias = "lr_attr_crtime")]
    pub created: [U64; 2],
    /// The virus scanner's stamp.
    #[doc(alias = "lr_attr_scanstamp")]
    pub scan_stamp: [u8; 32],
}
const _: () = assert!(size_of::<AttrEndPhys>() == 56);

/// A record with a type.
#[derive(Debug, Clone, Copy)]
pub enum Record<'a> {
    /// Any of the creates: the record, and the rest.
    Create(RecordType, CreateRecord, &'a [u8]),
    /// Remove or rmdir: the record, and the name.
    Remove(RecordType, RemoveRecord, &'a [u8]),
    /// Link: the record, and the name.
    Link(LinkRecord, &'a [u8]),
    /// Rename or exchange: the record, and the names.
    Rename(RecordType, RenameRecord, &'a [u8]),
    /// Rename with whiteout: the record, and the names.
    RenameWhiteout(RenameWhiteoutRecord, &'a [u8]),
    /// Write, or the record of a write that was synced already: the record, and the data.
    Write(RecordType, WriteRecord, &'a [u8]),
    /// Truncate.
    Truncate(TruncateRecord),
    /// Set attributes: the record, and the extended attributes.
    SetAttr(SetAttrRecord, &'a [u8]),
    /// Set an extended attribute: the record, name and value.
    SetSaXattr(SetSaXattrRecord, &'a [u8]),
    /// Old ACL: the record, and the ACEs.
    AclV0(AclV0Record, &'a [u8]),
    /// ACL: the record, and the rest.
    Acl(AclRecord, &'a [u8]),
    /// Clone: the record, and the block pointers' bytes.
    CloneRange(CloneRangeRecord, &'a [u8]),
    /// Commit marker; never on disk.
    Commit,
}

fn split<T: FromBytes + KnownLayout + Immutable>(bytes: &[u8]) -> Result<(T, &[u8]), Corruption> {
    T::read_from_prefix(bytes).map_err(|_| Corruption::new("log record", "length", bytes.len() as u64))
}

impl<'a> Record<'a> {
    /// Gives the bytes of one record (from [`records`]) a type.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Corruption> {
        use RecordType as T;
        let (header, _) = split::<RecordHeader>(bytes)?;
        let number = header.record_type.get() & !RECORD_CASE_INSENSITIVE;
        let kind = T::from_number(number).ok_or(Corruption::new("log record", "type", number))?;
        Ok(match kind {
            T::Commit => Record::Commit,
            T::Create | T::MakeDir | T::MakeXattrDir | T::Symlink | T::CreateAcl | T::CreateAttr | T::CreateAclAttr
            | T::MakeDirAcl | T::MakeDirAttr | T::MakeDirAclAttr => {
                let (record, rest) = split(bytes)?;
                Record::Create(kind, record, rest)
            }
            T::Remove | T::RemoveDir => split(bytes).map(|(record, rest)| Record::Remove(kind, record, rest))?,
            T::Link => split(bytes).map(|(record, rest)| Record::Link(record, rest))?,
            T::Rename | T::RenameExchange => split(bytes).map(|(record, rest)| Record::Rename(kind, record, rest))?,
            T::RenameWhiteout => split(bytes).map(|(record, rest)| Record::RenameWhiteout(record, rest))?,
            T::Write | T::Write2 => split(bytes).map(|(record, rest)| Record::Write(kind, record, rest))?,
            T::Truncate => split(bytes).map(|(record, _)| Record::Truncate(record))?,
            T::SetAttr => split(bytes).map(|(record, rest)| Record::SetAttr(record, rest))?,
            T::SetSaXattr => split(bytes).map(|(record, rest)| Record::SetSaXattr(record, rest))?,
            T::AclV0 => split(bytes).map(|(record, rest)| Record::AclV0(record, rest))?,
            T::Acl => split(bytes).map(|(record, rest)| Record::Acl(record, rest))?,
            T::CloneRange => {
                let (record, rest) = split::<CloneRangeRecord>(bytes)?;
                if record.count.get() > (rest.len() / size_of::<BlkPtr>()) as u64 {
                    return Err(Corruption::new("log record", "block pointers", record.count.get()));
                }
                Record::CloneRange(record, rest)
            }
        })
    }
}

/// The records of a log block, given the bytes between its link and its end. Stops at the first that does not fit.
pub fn records(block: &[u8]) -> impl Iterator<Item = Result<(RecordHeader, &[u8]), Corruption>> {
    let mut rest = block;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let refuse = |found: u64| Some(Err(Corruption::new("log record", "length", found)));
        let Ok((header, _)) = RecordHeader::read_from_prefix(rest) else {
            let found = rest.len() as u64;
            rest = &[];
            return refuse(found);
        };
        let length = header.length.get();
        let whole = usize::try_from(length).ok().filter(|l| *l >= size_of::<RecordHeader>());
        let Some((record, after)) = whole.and_then(|l| rest.split_at_checked(l)) else {
            rest = &[];
            return refuse(length);
        };
        rest = after;
        Some(Ok((header, record)))
    })
}

/// The string at the start of `bytes`, up to its zero byte, and what follows the zero byte.
pub fn c_string(bytes: &[u8]) -> Result<(&[u8], &[u8]), Corruption> {
    let end = bytes.iter().position(|b| *b == 0).ok_or(Corruption::new("log record", "name", bytes.len() as u64))?;
    let (name, rest) = bytes.split_at_checked(end).unwrap_or((bytes, &[]));
    Ok((name, rest.get(1..).unwrap_or(&[])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(kind: RecordType, length: u64) -> Vec<u8> {
        RecordHeader {
            record_type: (kind as u64).into(),
            length: length.into(),
            txg: 5.into(),
            sequence: 1.into(),
        }
        .as_bytes()
        .to_vec()
    }

    #[test]
    fn walks_records() {
        let mut block = header(RecordType::Truncate, 56);
        block.extend([0; 24]);
        block.extend(header(RecordType::Remove, 48));
        block.extend(9u64.to_le_bytes());
        block.extend(*b"abc\0\0\0\0\0");
        let found: Vec<_> = records(&block).map(|r| Record::decode(r.expect("fits").1).expect("is one")).collect();
        assert_eq!(found.len(), 2);
        assert!(matches!(found[0], Record::Truncate(_)));
        let Record::Remove(_, record, rest) = found[1] else { panic!("{:?}", found[1]) };
        assert_eq!(record.dir.get(), 9);
        assert_eq!(c_string(rest).expect("ends").0, b"abc");
    }

    #[test]
    fn refuses_lengths_that_do_not_fit() {
        for length in [0, 8, 31, 57, u64::MAX] {
            let block = [header(RecordType::Truncate, length), vec![0; 24]].concat();
            let all: Vec<_> = records(&block).collect();
            assert_eq!(all.len(), 1, "{length}");
            assert!(all[0].is_err(), "{length}");
        }
        assert!(Record::decode(&header(RecordType::Write, 32)).is_err());
        let mut unknown = header(RecordType::Write, 32);
        unknown[0] = 25;
        assert!(Record::decode(&unknown).is_err());
    }

    #[test]
    fn slots_are_in_the_top_byte() {
        assert_eq!(object_with_slots(77, 1), 77);
        let id = object_with_slots(77, 32);
        assert_eq!((object_of(id), slots_of(id)), (77, 32));
    }
}
