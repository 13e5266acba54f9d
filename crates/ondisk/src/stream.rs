//! Send streams: a sequence of records of 312 bytes, some followed by a payload.
//!
//! # Theory
//! The first record (BEGIN) says what is sent, with which features; its magic number tells the byte order. Every other record
//! ends in a checksum (fletcher-4) of everything before it, so a stream is checked while it is read.
//! Multi-byte fields are in the sender's byte order: [`StreamOrder`] swaps those of a big-endian one.
//! This file has the frame of a stream and the BEGIN record; the other records are decoded by the receiver.

use crate::corruption::Corruption;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The magic number of a BEGIN record.
#[doc(alias = "DMU_BACKUP_MAGIC")]
pub const STREAM_MAGIC: u64 = 0x0002_f5ba_cbac;

/// The size of every record, without its payload.
pub const RECORD_SIZE: usize = 312;

/// Where in a record its checksum is (not in BEGIN).
pub const RECORD_CHECKSUM_OFFSET: usize = RECORD_SIZE - 32;

/// The byte order of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamOrder {
    /// As ours.
    Little,
    /// To be swapped.
    Big,
}

macro_rules! stream_records {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        /// The type of a record.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum StreamRecordType {
            $(#[doc = $text] $name = $number,)*
        }

        impl StreamRecordType {
            /// The type with this number.
            pub fn from_number(number: u32) -> Result<Self, Corruption> {
                match number {
                    $($number => Ok(StreamRecordType::$name),)*
                    _ => Err(Corruption::new("stream record", "type", u64::from(number))),
                }
            }

            /// Its name in the tools.
            pub fn name(self) -> &'static str {
                match self {
                    $(StreamRecordType::$name => $text,)*
                }
            }
        }
    };
}
stream_records! {
    Begin = 0, "BEGIN";
    Object = 1, "OBJECT";
    FreeObjects = 2, "FREEOBJECTS";
    Write = 3, "WRITE";
    Free = 4, "FREE";
    End = 5, "END";
    WriteByReference = 6, "WRITE_BYREF";
    Spill = 7, "SPILL";
    WriteEmbedded = 8, "WRITE_EMBEDDED";
    ObjectRange = 9, "OBJECT_RANGE";
    Redact = 10, "REDACT";
}

/// The header type in `BeginPhys::version_info`: one snapshot.
pub const HEADER_SUBSTREAM: u64 = 1;
/// The header type in `BeginPhys::version_info`: a package of streams.
pub const HEADER_COMPOUND: u64 = 2;

bitflags::bitflags! {
    /// What a receiver must know, in bits 2..58 of `BeginPhys::version_info`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct StreamFeatures: u64 {
        /// WRITE_BYREF records.
        const DEDUP = 1 << 0;
        /// Checksums for dedup are in the records.
        const DEDUP_PROPS = 1 << 1;
        /// SPILL records.
        const SA_SPILL = 1 << 2;
        /// WRITE_EMBEDDED records.
        const EMBED_DATA = 1 << 16;
        /// Data compressed with lz4.
        const LZ4 = 1 << 17;
        /// Blocks of more than 128 KiB.
        const LARGE_BLOCKS = 1 << 19;
        /// Goes on where a stream broke off.
        const RESUMING = 1 << 20;
        /// REDACT records.
        const REDACTED = 1 << 21;
        /// Compressed data as on disk.
        const COMPRESSED = 1 << 22;
        /// Dnodes of more than 512 bytes.
        const LARGE_DNODE = 1 << 23;
        /// Encrypted data as on disk.
        const RAW = 1 << 24;
        /// Data compressed with zstd.
        const ZSTD = 1 << 25;
        /// Holds.
        const HOLDS = 1 << 26;
        /// The stream before this one may have split large blocks.
        const SWITCH_TO_LARGE_BLOCKS = 1 << 27;
        /// Names of more than 255 bytes.
        const LONG_NAME = 1 << 28;
        /// Micro-ZAPs of more than 128 KiB.
        const LARGE_MICROZAP = 1 << 29;
    }
}

/// `BeginPhys::flags`: may be received as a clone.
pub const BEGIN_FLAG_CLONE: u32 = 1 << 0;
/// `BeginPhys::flags`: names are looked up without regard to case.
pub const BEGIN_FLAG_CASE_INSENSITIVE: u32 = 1 << 1;
/// `BeginPhys::flags`: a full stream which has the FREE records too.
pub const BEGIN_FLAG_FREE_RECORDS: u32 = 1 << 2;
/// `BeginPhys::flags`: OBJECT records say whether there is a spill block.
pub const BEGIN_FLAG_SPILL_BLOCK: u32 = 1 << 3;

/// The start of every record.
#[doc(alias = "dmu_replay_record_t")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct StreamRecordHeader {
    /// [`StreamRecordType`].
    #[doc(alias = "drr_type")]
    pub record_type: U32,
    /// Bytes that follow the record, of BEGIN and END records.
    #[doc(alias = "drr_payloadlen")]
    pub payload_bytes: U32,
}
const _: () = assert!(size_of::<StreamRecordHeader>() == 8);

/// The body of a BEGIN record.
#[doc(alias = "drr_begin")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct BeginPhys {
    /// [`STREAM_MAGIC`].
    #[doc(alias = "drr_magic")]
    pub magic: U64,
    /// Header type and [`StreamFeatures`].
    #[doc(alias = "drr_versioninfo")]
    pub version_info: U64,
    /// When the snapshot was made.
    #[doc(alias = "drr_creation_time")]
    pub creation_time: U64,
    /// The type of object set.
    #[doc(alias = "drr_type")]
    pub objset_type: U32,
    /// `BEGIN_FLAG_*`.
    #[doc(alias = "drr_flags")]
    pub flags: U32,
    /// The snapshot's guid.
    #[doc(alias = "drr_toguid")]
    pub to_guid: U64,
    /// The guid of the snapshot it is incremental from; 0 if it is full.
    #[doc(alias = "drr_fromguid")]
    pub from_guid: U64,
    /// The snapshot's name, ended by a zero byte.
    #[doc(alias = "drr_toname")]
    pub to_name: [u8; 256],
}
const _: () = assert!(size_of::<BeginPhys>() == RECORD_SIZE - size_of::<StreamRecordHeader>());

impl BeginPhys {
    /// [`HEADER_SUBSTREAM`] or [`HEADER_COMPOUND`].
    pub fn header_type(&self) -> u64 {
        self.version_info.get() & 3
    }

    /// What a receiver must know; bits unknown to us are kept.
    pub fn features(&self) -> StreamFeatures {
        StreamFeatures::from_bits_retain((self.version_info.get() >> 2) & ((1 << 56) - 1))
    }

    /// The snapshot's name.
    pub fn to_name(&self) -> &[u8] {
        self.to_name.split(|b| *b == 0).next().unwrap_or(&[])
    }
}

/// The byte order of a stream, from its first record.
pub fn stream_order(first_record: &[u8]) -> Result<StreamOrder, Corruption> {
    let (_, rest) = StreamRecordHeader::read_from_prefix(first_record)
        .map_err(|_| Corruption::new("stream record", "length", first_record.len() as u64))?;
    let (magic, _) =
        U64::read_from_prefix(rest).map_err(|_| Corruption::new("stream record", "length", rest.len() as u64))?;
    match magic.get() {
        STREAM_MAGIC => Ok(StreamOrder::Little),
        other if other.swap_bytes() == STREAM_MAGIC => Ok(StreamOrder::Big),
        other => Err(Corruption::new("stream", "magic", other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_magic_tells_the_order() {
        let mut record = [0u8; RECORD_SIZE];
        record[8..16].copy_from_slice(&STREAM_MAGIC.to_le_bytes());
        assert_eq!(stream_order(&record), Ok(StreamOrder::Little));
        record[8..16].copy_from_slice(&STREAM_MAGIC.to_be_bytes());
        assert_eq!(stream_order(&record), Ok(StreamOrder::Big));
        record[8] = 1;
        assert!(stream_order(&record).is_err());
        assert!(stream_order(&record[..12]).is_err());
    }

    #[test]
    fn version_info_has_type_and_features() {
        let mut begin: BeginPhys = zerocopy::FromZeros::new_zeroed();
        begin.version_info = (HEADER_SUBSTREAM | (StreamFeatures::LZ4.bits() << 2)).into();
        begin.to_name[..3].copy_from_slice(b"a@b");
        assert_eq!(begin.header_type(), HEADER_SUBSTREAM);
        assert_eq!(begin.features(), StreamFeatures::LZ4);
        assert_eq!(begin.to_name(), b"a@b");
    }
}
