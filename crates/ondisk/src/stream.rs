//! Send streams: a sequence of records of 312 bytes, some followed by a payload.
//!
//! # Theory
//! The first record (BEGIN) says what is sent, with which features; its magic number tells the byte order. Every other record
//! ends in a checksum (fletcher-4) of everything before it, so a stream is checked while it is read.
//! Multi-byte fields are in the sender's byte order ([`StreamOrder`]).
//! This file has the frame of a stream; `record.rs` has the records.

use crate::corruption::Corruption;

mod record;

pub use record::{
    Begin, End, Free, FreeObjects, Object, ObjectRange, Record, RecordBody, Redact, Spill, Write, WriteByReference, WriteEmbedded,
};

/// The magic number of a BEGIN record.
#[doc(alias = "DMU_BACKUP_MAGIC")]
pub const STREAM_MAGIC: u64 = 0x0002_f5ba_cbac;

/// The size of every record, without its payload.
pub const RECORD_SIZE: usize = 312;

/// Where in a record its checksum is (not in BEGIN).
pub const RECORD_CHECKSUM_OFFSET: usize = RECORD_SIZE - 32;

/// `Object::flags` and `ObjectRange::flags`: the contents are in the other byte order than the stream's.
#[doc(alias = "DRR_RAW_BYTESWAP")]
pub const FLAG_RAW_BYTESWAP: u8 = 1 << 1;
/// `Object::flags`: the object has a spill block.
pub const FLAG_OBJECT_SPILL: u8 = 1 << 2;
/// `Spill::flags`: the block is sent for old receivers, others have it.
pub const FLAG_SPILL_UNMODIFIED: u8 = 1 << 2;

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

/// The header type in `Begin::version_info`: one snapshot.
pub const HEADER_SUBSTREAM: u64 = 1;
/// The header type in `Begin::version_info`: a package of streams.
pub const HEADER_COMPOUND: u64 = 2;

bitflags::bitflags! {
    /// What a receiver must know, in bits 2..58 of `Begin::version_info`.
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

/// `Begin::flags`: may be received as a clone.
pub const BEGIN_FLAG_CLONE: u32 = 1 << 0;
/// `Begin::flags`: names are looked up without regard to case.
pub const BEGIN_FLAG_CASE_INSENSITIVE: u32 = 1 << 1;
/// `Begin::flags`: a full stream which has the FREE records too.
pub const BEGIN_FLAG_FREE_RECORDS: u32 = 1 << 2;
/// `Begin::flags`: OBJECT records say whether there is a spill block.
pub const BEGIN_FLAG_SPILL_BLOCK: u32 = 1 << 3;

/// The byte order of a stream, from its first record.
pub fn stream_order(first_record: &[u8]) -> Result<StreamOrder, Corruption> {
    let short = || Corruption::new("stream record", "length", first_record.len() as u64);
    let magic = first_record.get(8..).and_then(<[u8]>::first_chunk).ok_or_else(short)?;
    match u64::from_le_bytes(*magic) {
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
}
