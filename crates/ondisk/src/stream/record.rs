//! The records of a send stream: what each says, in the order of its fields.
//!
//! # On disk
//! A record has 312 bytes: its type, the length of a BEGIN record's payload, the fields of its type, zeros, and the checksum (in
//! BEGIN the name reaches to the end). What follows a record is its payload, whose length is in the fields.

use super::{RECORD_CHECKSUM_OFFSET, RECORD_SIZE, StreamFeatures, StreamOrder, StreamRecordType};
use crate::corruption::Corruption;

/// The largest payload of a record that is about one block or one dnode.
#[doc(alias = "SPA_MAXBLOCKSIZE")]
const BLOCK_BYTES_MAX: u64 = 16 << 20;

/// A value of fixed size in a record.
trait Field: Sized {
    fn read(bytes: &mut &[u8], order: StreamOrder) -> Self;
    fn write(&self, bytes: &mut Vec<u8>, order: StreamOrder);
}

/// The next `N` bytes; zeros where a record has none, which its size makes impossible.
fn take<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    match bytes.split_first_chunk() {
        Some((first, rest)) => {
            *bytes = rest;
            *first
        }
        None => [0; N],
    }
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Field for $number {
            fn read(bytes: &mut &[u8], order: StreamOrder) -> Self {
                match order {
                    StreamOrder::Little => Self::from_le_bytes(take(bytes)),
                    StreamOrder::Big => Self::from_be_bytes(take(bytes)),
                }
            }

            fn write(&self, bytes: &mut Vec<u8>, order: StreamOrder) {
                match order {
                    StreamOrder::Little => bytes.extend(self.to_le_bytes()),
                    StreamOrder::Big => bytes.extend(self.to_be_bytes()),
                }
            }
        }
    )*};
}
numbers!(u8 u32 u64);

impl<const N: usize> Field for [u8; N] {
    fn read(bytes: &mut &[u8], _: StreamOrder) -> Self {
        take(bytes)
    }

    fn write(&self, bytes: &mut Vec<u8>, _: StreamOrder) {
        bytes.extend(self);
    }
}

impl Field for [u64; 4] {
    fn read(bytes: &mut &[u8], order: StreamOrder) -> Self {
        std::array::from_fn(|_| u64::read(bytes, order))
    }

    fn write(&self, bytes: &mut Vec<u8>, order: StreamOrder) {
        self.iter().for_each(|word| word.write(bytes, order));
    }
}

macro_rules! record {
    ($(#[$about:meta])* $name:ident { $($(#[$field_about:meta])* $field:ident: $kind:ty,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_about])* pub $field: $kind,)*
        }

        impl $name {
            /// All zeros, for a writer to fill in.
            pub fn zeroed() -> Self {
                Field::read(&mut &[0; RECORD_SIZE][..], StreamOrder::Little)
            }
        }

        impl Field for $name {
            fn read(bytes: &mut &[u8], order: StreamOrder) -> Self {
                $(let $field = <$kind as Field>::read(bytes, order);)*
                Self { $($field,)* }
            }

            fn write(&self, bytes: &mut Vec<u8>, order: StreamOrder) {
                $(self.$field.write(bytes, order);)*
            }
        }
    };
}

record! {
    /// BEGIN: what is sent. Its payload is an nvlist.
    #[doc(alias = "drr_begin")]
    Begin {
        /// [`STREAM_MAGIC`](super::STREAM_MAGIC).
        magic: u64,
        /// The header type, and [`StreamFeatures`].
        version_info: u64,
        /// Seconds since 1970 at which the snapshot was made.
        creation_time: u64,
        /// The type of object set.
        objset_type: u32,
        /// `BEGIN_FLAG_*`.
        flags: u32,
        /// The snapshot's guid.
        to_guid: u64,
        /// The guid of the snapshot that it is incremental from, or 0.
        from_guid: u64,
        /// The snapshot's name, ended by a zero byte.
        name: [u8; 256],
    }
}

impl Begin {
    /// [`HEADER_SUBSTREAM`](super::HEADER_SUBSTREAM) or [`HEADER_COMPOUND`](super::HEADER_COMPOUND).
    pub fn header_type(&self) -> u64 {
        self.version_info & 3
    }

    /// What a receiver must know; bits unknown to us are kept.
    pub fn features(&self) -> StreamFeatures {
        StreamFeatures::from_bits_retain((self.version_info >> 2) & ((1 << 56) - 1))
    }

    /// The snapshot's name, without the zeros behind it.
    pub fn name(&self) -> &[u8] {
        self.name.split(|byte| *byte == 0).next().unwrap_or(&[])
    }
}

record! {
    /// OBJECT: a dnode, made or changed. Its payload is the bonus.
    #[doc(alias = "drr_object")]
    Object {
        /// The object's number.
        object: u64,
        /// The type of its contents.
        object_type: u32,
        /// The type of its bonus.
        bonus_type: u32,
        /// Bytes of a data block.
        block_bytes: u32,
        /// Bytes of the bonus.
        bonus_bytes: u32,
        /// The checksum that its property asks for.
        checksum: u8,
        /// The compression that its property asks for.
        compression: u8,
        /// How many slots of 512 bytes it takes; 0 in streams from before large dnodes.
        slots: u8,
        /// `FLAG_RAW_BYTESWAP`, `FLAG_OBJECT_SPILL`.
        flags: u8,
        /// Bytes of the bonus as it is in a raw stream.
        raw_bonus_bytes: u32,
        /// The snapshot's guid.
        to_guid: u64,
        /// Of raw streams: the binary logarithm of the size of indirect blocks.
        indirect_shift: u8,
        /// Of raw streams: levels of the tree of blocks.
        levels: u8,
        /// Of raw streams: block pointers in the dnode.
        pointers: u8,
        /// Zeros.
        reserved: [u8; 5],
        /// Of raw streams: the number of the last block.
        last_block: u64,
    }
}

record! {
    /// FREEOBJECTS: there are no objects in this range.
    #[doc(alias = "drr_freeobjects")]
    FreeObjects {
        /// The first number.
        first_object: u64,
        /// How many.
        objects: u64,
        /// The snapshot's guid.
        to_guid: u64,
    }
}

record! {
    /// WRITE: contents of a block, as they are or compressed.
    #[doc(alias = "drr_write")]
    Write {
        /// The object's number.
        object: u64,
        /// The type of its contents.
        object_type: u32,
        /// Zeros.
        reserved: u32,
        /// Where in the object, in bytes.
        offset: u64,
        /// How many bytes, decompressed.
        logical_bytes: u64,
        /// The snapshot's guid.
        to_guid: u64,
        /// The algorithm of the deduplication key.
        checksum: u8,
        /// Whether the key serves deduplication, and `FLAG_RAW_BYTESWAP`.
        flags: u8,
        /// The algorithm that the payload is compressed with; 0 if it is not.
        compression: u8,
        /// Zeros.
        reserved_2: [u8; 5],
        /// The deduplication key's checksum.
        key_checksum: [u64; 4],
        /// The deduplication key's sizes and compression.
        key_properties: u64,
        /// Bytes of the payload if it is compressed.
        compressed_bytes: u64,
        /// Of raw streams: the salt of the block's key.
        salt: [u8; 8],
        /// Of raw streams: the initialization vector.
        iv: [u8; 12],
        /// Of raw streams: the authentication code.
        mac: [u8; 16],
    }
}

record! {
    /// FREE: nothing is written in this range of an object.
    #[doc(alias = "drr_free")]
    Free {
        /// The object's number.
        object: u64,
        /// Where in the object, in bytes.
        offset: u64,
        /// How many bytes; all ones is to the end.
        bytes: u64,
        /// The snapshot's guid.
        to_guid: u64,
    }
}

record! {
    /// END: the stream ends.
    #[doc(alias = "drr_end")]
    End {
        /// The checksum of all that was before this record.
        checksum: [u64; 4],
        /// The snapshot's guid.
        to_guid: u64,
    }
}

record! {
    /// WRITE_BYREF: contents that were sent before (streams of old programs).
    #[doc(alias = "drr_write_byref")]
    WriteByReference {
        /// The object's number.
        object: u64,
        /// Where in the object, in bytes.
        offset: u64,
        /// How many bytes.
        bytes: u64,
        /// The snapshot's guid.
        to_guid: u64,
        /// The guid of the snapshot that has them.
        from_guid: u64,
        /// The object there.
        from_object: u64,
        /// Where in it, in bytes.
        from_offset: u64,
        /// The algorithm of the deduplication key.
        checksum: u8,
        /// As of [`Write`].
        flags: u8,
        /// Zeros.
        reserved: [u8; 6],
        /// The deduplication key's checksum.
        key_checksum: [u64; 4],
        /// The deduplication key's sizes and compression.
        key_properties: u64,
    }
}

record! {
    /// SPILL: an object's spill block.
    #[doc(alias = "drr_spill")]
    Spill {
        /// The object's number.
        object: u64,
        /// How many bytes, decompressed.
        logical_bytes: u64,
        /// The snapshot's guid.
        to_guid: u64,
        /// `FLAG_SPILL_UNMODIFIED`, `FLAG_RAW_BYTESWAP`.
        flags: u8,
        /// The algorithm that the payload is compressed with; 0 if it is not.
        compression: u8,
        /// Zeros.
        reserved: [u8; 6],
        /// Bytes of the payload if it is compressed or raw.
        compressed_bytes: u64,
        /// Of raw streams: the salt of the block's key.
        salt: [u8; 8],
        /// Of raw streams: the initialization vector.
        iv: [u8; 12],
        /// Of raw streams: the authentication code.
        mac: [u8; 16],
        /// The type of its contents.
        object_type: u32,
    }
}

record! {
    /// WRITE_EMBEDDED: contents of a block that its pointer holds.
    #[doc(alias = "drr_write_embedded")]
    WriteEmbedded {
        /// The object's number.
        object: u64,
        /// Where in the object, in bytes.
        offset: u64,
        /// The size of the block.
        bytes: u64,
        /// The snapshot's guid.
        to_guid: u64,
        /// The algorithm that the payload is compressed with.
        compression: u8,
        /// The type of embedded data.
        embedded_type: u8,
        /// Zeros.
        reserved: [u8; 6],
        /// Bytes of the payload, decompressed.
        logical_bytes: u32,
        /// Bytes of the payload.
        physical_bytes: u32,
    }
}

record! {
    /// OBJECT_RANGE: of raw streams, a block of dnodes.
    #[doc(alias = "drr_object_range")]
    ObjectRange {
        /// The number of the first.
        first_object: u64,
        /// How many slots of 512 bytes.
        slots: u64,
        /// The snapshot's guid.
        to_guid: u64,
        /// The salt of the block's key.
        salt: [u8; 8],
        /// The initialization vector.
        iv: [u8; 12],
        /// The authentication code.
        mac: [u8; 16],
        /// `FLAG_RAW_BYTESWAP`.
        flags: u8,
        /// Zeros.
        reserved: [u8; 3],
    }
}

record! {
    /// REDACT: contents that the receiver is not to have.
    #[doc(alias = "drr_redact")]
    Redact {
        /// The object's number.
        object: u64,
        /// Where in the object, in bytes.
        offset: u64,
        /// How many bytes.
        bytes: u64,
        /// The snapshot's guid.
        to_guid: u64,
    }
}

/// What a record says, by its type.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "each has the documentation of its fields")]
pub enum RecordBody {
    Begin(Box<Begin>),
    Object(Object),
    FreeObjects(FreeObjects),
    Write(Write),
    Free(Free),
    End(End),
    WriteByReference(WriteByReference),
    Spill(Spill),
    WriteEmbedded(WriteEmbedded),
    ObjectRange(ObjectRange),
    Redact(Redact),
}

/// One record, without its payload.
#[doc(alias = "dmu_replay_record_t")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What it says.
    pub body: RecordBody,
    /// Bytes that follow it if it is a BEGIN record.
    pub begin_payload_bytes: u32,
    /// The checksum of all that was before it, zeros if there is none. BEGIN has none.
    pub checksum: [u64; 4],
}

impl Record {
    /// Decodes a record. Its numbers are as they are: what they are about must be looked at by the caller.
    pub fn decode(record: &[u8; RECORD_SIZE], order: StreamOrder) -> Result<Record, Corruption> {
        let mut bytes = &record[..];
        let record_type = StreamRecordType::from_number(u32::read(&mut bytes, order))?;
        let begin_payload_bytes = u32::read(&mut bytes, order);
        macro_rules! body {
            ($name:ident) => {
                RecordBody::$name(Field::read(&mut bytes, order))
            };
        }
        let body = match record_type {
            StreamRecordType::Begin => RecordBody::Begin(Box::new(Field::read(&mut bytes, order))),
            StreamRecordType::Object => body!(Object),
            StreamRecordType::FreeObjects => body!(FreeObjects),
            StreamRecordType::Write => body!(Write),
            StreamRecordType::Free => body!(Free),
            StreamRecordType::End => body!(End),
            StreamRecordType::WriteByReference => body!(WriteByReference),
            StreamRecordType::Spill => body!(Spill),
            StreamRecordType::WriteEmbedded => body!(WriteEmbedded),
            StreamRecordType::ObjectRange => body!(ObjectRange),
            StreamRecordType::Redact => body!(Redact),
        };
        let checksum = match body {
            RecordBody::Begin(_) => [0; 4],
            _ => Field::read(&mut &record[RECORD_CHECKSUM_OFFSET..], order),
        };
        Ok(Record { body, begin_payload_bytes, checksum })
    }

    /// The record's bytes: what [`decode`](Record::decode) reads.
    pub fn encode(&self, order: StreamOrder) -> [u8; RECORD_SIZE] {
        let mut bytes = Vec::with_capacity(RECORD_SIZE);
        (self.record_type() as u32).write(&mut bytes, order);
        self.begin_payload_bytes.write(&mut bytes, order);
        match &self.body {
            RecordBody::Begin(begin) => begin.write(&mut bytes, order),
            RecordBody::Object(object) => object.write(&mut bytes, order),
            RecordBody::FreeObjects(free) => free.write(&mut bytes, order),
            RecordBody::Write(write) => write.write(&mut bytes, order),
            RecordBody::Free(free) => free.write(&mut bytes, order),
            RecordBody::End(end) => end.write(&mut bytes, order),
            RecordBody::WriteByReference(write) => write.write(&mut bytes, order),
            RecordBody::Spill(spill) => spill.write(&mut bytes, order),
            RecordBody::WriteEmbedded(write) => write.write(&mut bytes, order),
            RecordBody::ObjectRange(range) => range.write(&mut bytes, order),
            RecordBody::Redact(redact) => redact.write(&mut bytes, order),
        }
        if !matches!(self.body, RecordBody::Begin(_)) {
            bytes.resize(RECORD_CHECKSUM_OFFSET, 0);
            self.checksum.write(&mut bytes, order);
        }
        let mut record = [0; RECORD_SIZE];
        record.copy_from_slice(&bytes);
        record
    }

    /// Its type.
    pub fn record_type(&self) -> StreamRecordType {
        match self.body {
            RecordBody::Begin(_) => StreamRecordType::Begin,
            RecordBody::Object(_) => StreamRecordType::Object,
            RecordBody::FreeObjects(_) => StreamRecordType::FreeObjects,
            RecordBody::Write(_) => StreamRecordType::Write,
            RecordBody::Free(_) => StreamRecordType::Free,
            RecordBody::End(_) => StreamRecordType::End,
            RecordBody::WriteByReference(_) => StreamRecordType::WriteByReference,
            RecordBody::Spill(_) => StreamRecordType::Spill,
            RecordBody::WriteEmbedded(_) => StreamRecordType::WriteEmbedded,
            RecordBody::ObjectRange(_) => StreamRecordType::ObjectRange,
            RecordBody::Redact(_) => StreamRecordType::Redact,
        }
    }

    /// The guid of the snapshot that it belongs to.
    pub fn to_guid(&self) -> u64 {
        match &self.body {
            RecordBody::Begin(begin) => begin.to_guid,
            RecordBody::Object(object) => object.to_guid,
            RecordBody::FreeObjects(free) => free.to_guid,
            RecordBody::Write(write) => write.to_guid,
            RecordBody::Free(free) => free.to_guid,
            RecordBody::End(end) => end.to_guid,
            RecordBody::WriteByReference(write) => write.to_guid,
            RecordBody::Spill(spill) => spill.to_guid,
            RecordBody::WriteEmbedded(write) => write.to_guid,
            RecordBody::ObjectRange(range) => range.to_guid,
            RecordBody::Redact(redact) => redact.to_guid,
        }
    }

    /// How many bytes follow it. More than the largest block, where a block is what follows, is an error.
    pub fn payload_bytes(&self) -> Result<u64, Corruption> {
        let bytes = match &self.body {
            RecordBody::Begin(_) => return Ok(u64::from(self.begin_payload_bytes)),
            RecordBody::Object(object) if object.bonus_bytes == 0 => 0,
            RecordBody::Object(object) if object.raw_bonus_bytes > 0 => u64::from(object.raw_bonus_bytes),
            RecordBody::Object(object) => u64::from(object.bonus_bytes).next_multiple_of(8),
            RecordBody::Write(write) if write.compression != 0 => write.compressed_bytes,
            RecordBody::Write(write) => write.logical_bytes,
            RecordBody::Spill(spill) if spill.compressed_bytes != 0 => spill.compressed_bytes,
            RecordBody::Spill(spill) => spill.logical_bytes,
            RecordBody::WriteEmbedded(write) => u64::from(write.physical_bytes).next_multiple_of(8),
            RecordBody::FreeObjects(_)
            | RecordBody::Free(_)
            | RecordBody::End(_)
            | RecordBody::WriteByReference(_)
            | RecordBody::ObjectRange(_)
            | RecordBody::Redact(_) => 0,
        };
        if bytes > BLOCK_BYTES_MAX {
            return Err(Corruption::new("stream record", "payload", bytes));
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of this type in which each byte behind the header tells its place.
    fn numbered(record_type: u32, order: StreamOrder) -> [u8; RECORD_SIZE] {
        let mut record: [u8; RECORD_SIZE] = std::array::from_fn(|at| at as u8);
        let mut head = Vec::new();
        record_type.write(&mut head, order);
        0u32.write(&mut head, order);
        record[..8].copy_from_slice(&head);
        record
    }

    #[test]
    fn what_is_encoded_is_what_was_decoded() {
        for order in [StreamOrder::Little, StreamOrder::Big] {
            for number in 0..=10 {
                let mut bytes = numbered(number, order);
                let record = Record::decode(&bytes, order).unwrap();
                // Between the fields and the checksum are zeros.
                let again = record.encode(order);
                let end = again[..RECORD_CHECKSUM_OFFSET].iter().rposition(|byte| *byte != 0).unwrap() + 1;
                if number != 0 {
                    bytes[end..RECORD_CHECKSUM_OFFSET].fill(0);
                }
                assert_eq!(again, bytes, "{:?}", record.record_type());
                assert_eq!(Record::decode(&again, order).unwrap(), record);
            }
        }
        assert_eq!(Record::decode(&numbered(11, StreamOrder::Little), StreamOrder::Little).unwrap_err().field, "type");
    }

    /// The sizes that the C structures have, without what only rounds them up.
    #[test]
    fn records_have_the_sizes_of_the_format() {
        let sizes = [304, 56, 24, 132, 32, 40, 104, 80, 48, 64, 32];
        for (number, size) in (0..).zip(sizes) {
            let mut bytes = [0xff; RECORD_SIZE];
            bytes[..8].fill(0);
            bytes[0] = number;
            let encoded = Record::decode(&bytes, StreamOrder::Little).unwrap().encode(StreamOrder::Little);
            let end = if number == 0 { RECORD_SIZE } else { RECORD_CHECKSUM_OFFSET };
            let fields = encoded[8..end].iter().rposition(|byte| *byte != 0).unwrap() + 1;
            assert_eq!(fields, size, "record type {number}");
        }
    }

    #[test]
    fn version_info_has_type_and_features() {
        let mut bytes = [0; RECORD_SIZE];
        let info = super::super::HEADER_SUBSTREAM | (StreamFeatures::LZ4.bits() << 2);
        bytes[16..24].copy_from_slice(&info.to_le_bytes());
        bytes[56..59].copy_from_slice(b"a@b");
        let RecordBody::Begin(begin) = Record::decode(&bytes, StreamOrder::Little).unwrap().body else { panic!("not BEGIN") };
        assert_eq!(begin.header_type(), super::super::HEADER_SUBSTREAM);
        assert_eq!(begin.features(), StreamFeatures::LZ4);
        assert_eq!(begin.name(), b"a@b");
    }

    #[test]
    fn a_payload_is_no_larger_than_a_block() {
        let mut bytes = numbered(3, StreamOrder::Little);
        assert_eq!(Record::decode(&bytes, StreamOrder::Little).unwrap().payload_bytes().unwrap_err().field, "payload");
        // The logical size of a WRITE record, which is not compressed.
        bytes[32..40].copy_from_slice(&(16u64 << 20).to_le_bytes());
        bytes[50] = 0;
        assert_eq!(Record::decode(&bytes, StreamOrder::Little).unwrap().payload_bytes(), Ok(16 << 20));
    }
}
