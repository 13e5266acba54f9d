//! What is on a cache device: its header, its log blocks, and what these say of the blocks in between.
//!
//! # Theory
//! A cache device is written round and round: blocks of the pool as they are there, one behind the other, and after so many of them a *log block*, which says of
//! each which block it is and where. The header points to the two newest log blocks, and each log block to the one before the one before it; so two can be read at
//! a time. All of it can be lost: a reader of a block verifies it with the checksum in the pool.
//!
//! On its first round a device has nothing behind the hand that writes. Later what lies between the hand and the *evicted* offset is about to be written over: a log block
//! is valid if neither it nor what it describes touches that. Places go round, so a range may begin behind its end.
//!
//! # On disk
//! ```text
//! | labels, boot area 4M | header, 512 bytes or a sector | start ... end | labels |
//! header:    magic, version, guids, entries of a log block, evicted, flags, start, end, two pointers, sums, checksum as in a label
//! log block: magic, pointer, zeros up to 128 bytes, 1022 entries of 64 bytes; LZ4 where that saves a sector; fletcher4 in the pointer
//! properties: | state 4 @57 | protected @56 | type 8 @48 | checksum 8 @40 | prefetched @39 | compression 7 @32 | PSIZE 16 @16 | LSIZE 16 @0 |
//! ```
//! Numbers are in the order of the writer, which the magic tells.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bits;
use crate::corruption::Corruption;
use crate::dva::RawDva;
use crate::label;
use crate::zil::EmbeddedChecksum;

/// "ZFSCACHE".
#[doc(alias = "L2ARC_DEV_HDR_MAGIC")]
pub const HEADER_MAGIC: u64 = 0x5a46_5343_4143_4845;
/// "LOGBLKHD".
#[doc(alias = "L2ARC_LOG_BLK_MAGIC")]
pub const LOG_MAGIC: u64 = 0x4c4f_4742_4c4b_4844;
/// The only version there is.
#[doc(alias = "L2ARC_PERSISTENT_VERSION")]
pub const VERSION: u64 = 1;
/// Bytes of the header, without what fills up a sector.
pub const HEADER_BYTES: usize = 512;
/// Most entries of a log block.
#[doc(alias = "L2ARC_LOG_BLK_MAX_ENTRIES")]
pub const ENTRIES_MAX: u64 = 1022;
/// Bytes of a log block that is not compressed.
pub const LOG_BYTES: usize = 64 << 10;
/// The largest block of a pool: each entry of a log block has so much room on the device.
#[doc(alias = "SPA_MAXBLOCKSHIFT")]
const BLOCK_SHIFT_MAX: u32 = 24;
/// Nothing behind the hand was written yet.
#[doc(alias = "L2ARC_DEV_HDR_EVICT_FIRST")]
const FLAG_FIRST: u64 = 1;

#[doc(alias = "l2arc_log_blkptr_t")]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct PointerPhys {
    address: U64,
    payload_bytes: U64,
    payload_start: U64,
    properties: U64,
    checksum: [U64; 4],
}

#[doc(alias = "l2arc_dev_hdr_phys_t")]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct HeaderPhys {
    magic: U64,
    version: U64,
    pool_guid: U64,
    vdev_guid: U64,
    entries: U64,
    evicted: U64,
    flags: U64,
    start: U64,
    end: U64,
    newest: [PointerPhys; 2],
    log_bytes: U64,
    log_blocks: U64,
    trim_time: U64,
    trim_state: U64,
    padding: [U64; 30],
    tail: EmbeddedChecksum,
}

#[doc(alias = "l2arc_log_ent_phys_t")]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct EntryPhys {
    dva: RawDva,
    birth: U64,
    properties: U64,
    address: U64,
    compression_level: U64,
    padding: [U64; 2],
}

#[doc(alias = "l2arc_log_blk_phys_t")]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct LogPhys {
    magic: U64,
    previous: PointerPhys,
    padding: [U64; 7],
}

const _: () = assert!(size_of::<HeaderPhys>() == HEADER_BYTES);
const _: () = assert!(size_of::<LogPhys>() == 128);
const _: () = assert!(size_of::<LogPhys>() + size_of::<EntryPhys>() * ENTRIES_MAX as usize == LOG_BYTES);

/// The properties of what a pointer or an entry means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Properties {
    logical_bytes: u64,
    physical_bytes: u64,
    compression: u8,
    is_prefetched: bool,
    checksum: u8,
    /// One more than the type.
    kind: u8,
    is_protected: bool,
    state: u8,
}

impl Properties {
    fn decode(word: u64) -> Properties {
        Properties {
            logical_bytes: bits::get_scaled(word, 0, 16, 9, 1),
            physical_bytes: bits::get_scaled(word, 16, 16, 9, 1),
            compression: bits::get(word, 32, 7) as u8,
            is_prefetched: bits::get(word, 39, 1) != 0,
            checksum: bits::get(word, 40, 8) as u8,
            kind: bits::get(word, 48, 8) as u8,
            is_protected: bits::get(word, 56, 1) != 0,
            state: bits::get(word, 57, 4) as u8,
        }
    }

    fn encode(&self) -> u64 {
        let word = bits::set_scaled(0, 0, 16, 9, 1, self.logical_bytes);
        let word = bits::set_scaled(word, 16, 16, 9, 1, self.physical_bytes);
        let word = bits::set(word, 32, 7, self.compression.into());
        let word = bits::set(word, 39, 1, self.is_prefetched.into());
        let word = bits::set(word, 40, 8, self.checksum.into());
        let word = bits::set(word, 48, 8, self.kind.into());
        let word = bits::set(word, 56, 1, self.is_protected.into());
        bits::set(word, 57, 4, self.state.into())
    }
}

/// Where a log block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogPointer {
    /// Where it begins on the device; 0: there is none.
    #[doc(alias = "lbp_daddr")]
    pub address: u64,
    /// Bytes of the blocks that it describes.
    #[doc(alias = "lbp_payload_asize")]
    pub payload_bytes: u64,
    /// Where the first of these is.
    #[doc(alias = "lbp_payload_start")]
    pub payload_start: u64,
    /// Its bytes on the device: whole sectors.
    pub bytes: u64,
    /// `ZIO_COMPRESS_*`.
    pub compression: u8,
    /// `ZIO_CHECKSUM_*`.
    pub checksum_algorithm: u8,
    /// Of these bytes.
    #[doc(alias = "lbp_cksum")]
    pub checksum: [u64; 4],
}

impl LogPointer {
    fn decode(phys: &PointerPhys) -> LogPointer {
        let word = phys.properties.get();
        let properties = Properties::decode(word);
        LogPointer {
            address: phys.address.get(),
            payload_bytes: phys.payload_bytes.get(),
            payload_start: phys.payload_start.get(),
            bytes: if word == 0 { 0 } else { properties.physical_bytes },
            compression: properties.compression,
            checksum_algorithm: properties.checksum,
            checksum: phys.checksum.map(U64::get),
        }
    }

    fn encode(&self) -> PointerPhys {
        let properties = Properties {
            logical_bytes: LOG_BYTES as u64,
            physical_bytes: self.bytes,
            compression: self.compression,
            checksum: self.checksum_algorithm,
            ..Properties::default()
        };
        PointerPhys {
            address: self.address.into(),
            payload_bytes: self.payload_bytes.into(),
            payload_start: self.payload_start.into(),
            properties: if self.bytes == 0 { 0 } else { properties.encode() }.into(),
            checksum: self.checksum.map(U64::new),
        }
    }

    /// Where it ends.
    pub fn end(&self) -> u64 {
        self.address.saturating_add(self.bytes)
    }
}

/// The part of a cache device that holds blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    /// Its first byte on the device.
    pub start: u64,
    /// The first byte behind it.
    pub end: u64,
}

impl Area {
    /// That of a device of so many bytes with sectors of `1 << ashift`; `None`: it is too small.
    pub fn of(device_bytes: u64, ashift: u32) -> Option<Area> {
        let data = label::data_bytes(device_bytes)?;
        let start = label::START_BYTES + header_bytes(ashift) as u64;
        let end = label::START_BYTES + data;
        (start < end).then_some(Area { start, end })
    }

    /// How many entries a log block has on such a device, if what is there is to be found again on one of at least `bytes_min`.
    pub fn entries(&self, bytes_min: u64) -> u64 {
        if self.end < bytes_min { 0 } else { ((self.end - self.start) >> BLOCK_SHIFT_MAX).min(ENTRIES_MAX) }
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }
}

/// Bytes of the header on a device with such sectors.
pub const fn header_bytes(ashift: u32) -> usize {
    let sector = 1 << ashift;
    if sector > HEADER_BYTES { sector } else { HEADER_BYTES }
}

/// Whether `at` lies in the range that goes from `from` round to `to`, both included.
#[doc(alias = "l2arc_range_check_overlap")]
pub fn is_between(from: u64, to: u64, at: u64) -> bool {
    if from <= to { (from..=to).contains(&at) } else { at >= from || at <= to }
}

/// The header of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Whose blocks these are.
    #[doc(alias = "dh_spa_guid")]
    pub pool_guid: u64,
    /// The device.
    #[doc(alias = "dh_vdev_guid")]
    pub vdev_guid: u64,
    /// Entries of each log block.
    #[doc(alias = "dh_log_entries")]
    pub entries: u64,
    /// What lies from the end of the newest log block up to here is void.
    #[doc(alias = "dh_evict")]
    pub evicted: u64,
    /// The device is written for the first time.
    #[doc(alias = "dh_flags")]
    pub is_first_round: bool,
    /// Where blocks are.
    pub area: Area,
    /// The newest log block and the one before it.
    #[doc(alias = "dh_start_lbps")]
    pub newest: [LogPointer; 2],
    /// Bytes of all log blocks.
    #[doc(alias = "dh_lb_asize")]
    pub log_bytes: u64,
    /// Their number.
    #[doc(alias = "dh_lb_count")]
    pub log_blocks: u64,
}

impl Header {
    /// The header in these bytes, whose checksum was looked at.
    ///
    /// # Errors
    /// It is none, or of another version.
    pub fn decode(bytes: &[u8]) -> Result<Header, Corruption> {
        let bytes = in_our_order(bytes, HEADER_BYTES, HEADER_MAGIC).ok_or_else(|| Corruption::new("cache device", "magic", word(bytes)))?;
        let Ok((phys, _)) = HeaderPhys::read_from_prefix(&bytes) else { return Err(Corruption::new("cache device", "length", bytes.len() as u64)) };
        if phys.version.get() != VERSION {
            return Err(Corruption::new("cache device", "version", phys.version.get()));
        }
        Ok(Header {
            pool_guid: phys.pool_guid.get(),
            vdev_guid: phys.vdev_guid.get(),
            entries: phys.entries.get(),
            evicted: phys.evicted.get(),
            is_first_round: phys.flags.get() & FLAG_FIRST != 0,
            area: Area { start: phys.start.get(), end: phys.end.get() },
            newest: phys.newest.each_ref().map(LogPointer::decode),
            log_bytes: phys.log_bytes.get(),
            log_blocks: phys.log_blocks.get(),
        })
    }

    /// The header, without the checksum, which goes to the end of the sector.
    pub fn encode(&self, ashift: u32) -> Vec<u8> {
        let phys = HeaderPhys {
            magic: HEADER_MAGIC.into(),
            version: VERSION.into(),
            pool_guid: self.pool_guid.into(),
            vdev_guid: self.vdev_guid.into(),
            entries: self.entries.into(),
            evicted: self.evicted.into(),
            flags: u64::from(self.is_first_round).into(),
            start: self.area.start.into(),
            end: self.area.end.into(),
            newest: self.newest.each_ref().map(LogPointer::encode),
            log_bytes: self.log_bytes.into(),
            log_blocks: self.log_blocks.into(),
            trim_time: U64::ZERO,
            trim_state: U64::ZERO,
            padding: [U64::ZERO; 30],
            tail: EmbeddedChecksum { magic: U64::ZERO, checksum: [U64::ZERO; 4] },
        };
        let mut bytes = phys.as_bytes().to_vec();
        bytes.resize(header_bytes(ashift), 0);
        bytes
    }

    /// Where the next block goes.
    pub fn hand(&self) -> u64 {
        self.newest[0].end().max(self.area.start)
    }

    /// Whether a log block and all that it describes are there, where the next block goes to `hand`.
    #[doc(alias = "l2arc_log_blkptr_valid")]
    pub fn has(&self, pointer: &LogPointer, hand: u64) -> bool {
        let (first, end) = (pointer.payload_start, pointer.end());
        if pointer.bytes == 0 || pointer.bytes > LOG_BYTES as u64 || first < self.area.start || end > self.area.end {
            return false;
        }
        let last = end - 1;
        if self.is_first_round {
            return last < hand;
        }
        let is_touched = is_between(first, last, hand) || is_between(first, last, self.evicted);
        !is_touched && !is_between(hand, self.evicted, first) && !is_between(hand, self.evicted, last)
    }

    /// Whether the log block behind `newer` in the chain has been written over by it.
    pub fn has_come_round(&self, newer: &LogPointer, older: &LogPointer) -> bool {
        !self.is_first_round && is_between(older.payload_start, newer.payload_start, self.evicted)
    }
}

/// One block of the pool on a cache device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Where its first copy is in the pool.
    #[doc(alias = "le_dva")]
    pub dva: RawDva,
    /// When that was written.
    #[doc(alias = "le_birth")]
    pub birth: u64,
    /// Where it is on the device.
    #[doc(alias = "le_daddr")]
    pub address: u64,
    /// Bytes of contents (LSIZE).
    pub logical_bytes: u64,
    /// Bytes on disk (PSIZE).
    pub physical_bytes: u64,
    /// `ZIO_COMPRESS_*`.
    pub compression: u8,
    /// The level of zstd.
    #[doc(alias = "le_complevel")]
    pub compression_level: u8,
    /// It leads to others.
    pub is_metadata: bool,
    /// It is of an encrypted dataset.
    pub is_protected: bool,
    /// It was read ahead, and not used yet.
    pub is_prefetched: bool,
    /// It was used again and again.
    pub is_frequent: bool,
}

/// `ARC_STATE_MRU` and `ARC_STATE_MFU`.
const STATE_RECENT: u8 = 1;
const STATE_FREQUENT: u8 = 3;

impl Entry {
    fn decode(phys: &EntryPhys) -> Entry {
        let properties = Properties::decode(phys.properties.get());
        Entry {
            dva: phys.dva,
            birth: phys.birth.get(),
            address: phys.address.get(),
            logical_bytes: properties.logical_bytes,
            physical_bytes: properties.physical_bytes,
            compression: properties.compression,
            compression_level: phys.compression_level.get() as u8,
            is_metadata: properties.kind >= 2,
            is_protected: properties.is_protected,
            is_prefetched: properties.is_prefetched,
            is_frequent: properties.state == STATE_FREQUENT,
        }
    }

    fn encode(&self) -> EntryPhys {
        let properties = Properties {
            logical_bytes: self.logical_bytes,
            physical_bytes: self.physical_bytes,
            compression: self.compression,
            is_prefetched: self.is_prefetched,
            checksum: 0,
            kind: 1 + u8::from(self.is_metadata),
            is_protected: self.is_protected,
            state: if self.is_frequent { STATE_FREQUENT } else { STATE_RECENT },
        };
        EntryPhys {
            dva: self.dva,
            birth: self.birth.into(),
            properties: properties.encode().into(),
            address: self.address.into(),
            compression_level: u64::from(self.compression_level).into(),
            padding: [U64::ZERO; 2],
        }
    }
}

/// A log block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogBlock {
    /// The log block before the one before this.
    #[doc(alias = "lb_prev_lbp")]
    pub previous: LogPointer,
    /// What lies between, in its order.
    #[doc(alias = "lb_entries")]
    pub entries: Vec<Entry>,
}

impl LogBlock {
    /// The log block in these bytes, which are not compressed, with so many entries.
    ///
    /// # Errors
    /// It is none.
    pub fn decode(bytes: &[u8], entries: u64) -> Result<LogBlock, Corruption> {
        let bytes = in_our_order(bytes, LOG_BYTES, LOG_MAGIC).ok_or_else(|| Corruption::new("log block of a cache device", "magic", word(bytes)))?;
        let Ok((head, rest)) = LogPhys::ref_from_prefix(&bytes) else { return Err(Corruption::new("log block of a cache device", "length", bytes.len() as u64)) };
        let all = rest.chunks_exact(size_of::<EntryPhys>()).take(entries.min(ENTRIES_MAX) as usize);
        let entries = all.filter_map(|entry| EntryPhys::ref_from_bytes(entry).ok().map(Entry::decode)).collect();
        Ok(LogBlock { previous: LogPointer::decode(&head.previous), entries })
    }

    /// Its bytes.
    ///
    /// # Panics
    /// It has more entries than there can be.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.entries.len() as u64 <= ENTRIES_MAX, "too many entries for a log block");
        let head = LogPhys { magic: LOG_MAGIC.into(), previous: self.previous.encode(), padding: [U64::ZERO; 7] };
        let mut bytes = Vec::with_capacity(LOG_BYTES);
        bytes.extend_from_slice(head.as_bytes());
        self.entries.iter().for_each(|entry| bytes.extend_from_slice(entry.encode().as_bytes()));
        bytes.resize(LOG_BYTES, 0);
        bytes
    }
}

fn word(bytes: &[u8]) -> u64 {
    U64::read_from_prefix(bytes).map_or(0, |(word, _)| word.get())
}

/// The first `length` bytes, little-endian. `None`: there are not so many, or they do not begin with `magic` in either order.
fn in_our_order(bytes: &[u8], length: usize, magic: u64) -> Option<Vec<u8>> {
    let bytes = bytes.get(..length)?;
    if word(bytes) == magic {
        return Some(bytes.to_vec());
    }
    (word(bytes) == magic.swap_bytes()).then(|| bytes.chunks_exact(8).flat_map(|word| word.iter().rev().copied()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointer(address: u64) -> LogPointer {
        let checksum = [1, 2, 3, address];
        LogPointer { address, payload_bytes: 8192, payload_start: address - 8192, bytes: 4096, compression: 15, checksum_algorithm: 7, checksum }
    }

    fn header() -> Header {
        let area = Area::of(2 << 30, 12).unwrap();
        let newest = [pointer(area.start + 81_920), pointer(area.start + 40_960)];
        Header { pool_guid: 7, vdev_guid: 9, entries: area.entries(1 << 30), evicted: area.start, is_first_round: true, area, newest, log_bytes: 8192, log_blocks: 2 }
    }

    fn entry(number: u64) -> Entry {
        let dva = RawDva { location: (8 + (3 << 32)).into(), offset: number.into() };
        Entry {
            dva,
            birth: 77,
            address: number << 12,
            logical_bytes: 131_072,
            physical_bytes: 3584,
            compression: 16,
            compression_level: 3,
            is_metadata: number % 2 == 0,
            is_protected: number % 3 == 0,
            is_prefetched: number % 5 == 0,
            is_frequent: number % 7 == 0,
        }
    }

    fn swapped(bytes: &[u8]) -> Vec<u8> {
        bytes.chunks_exact(8).flat_map(|word| word.iter().rev().copied()).collect()
    }

    #[test]
    fn what_is_written_reads_back_in_both_orders() {
        let header = header();
        assert_eq!((header.area.start, header.area.end, header.entries), (4_198_400, (2 << 30) - (512 << 10), 127));
        let bytes = header.encode(12);
        assert_eq!((bytes.len(), Header::decode(&bytes).unwrap(), Header::decode(&swapped(&bytes)).unwrap()), (4096, header, header));
        assert_eq!(&bytes[..8], b"EHCACSFZ");
        let block = LogBlock { previous: pointer(1 << 30), entries: (0..127).map(entry).collect() };
        let bytes = block.encode();
        assert_eq!((bytes.len(), LogBlock::decode(&bytes, 127).unwrap(), LogBlock::decode(&swapped(&bytes), 127).unwrap()), (LOG_BYTES, block.clone(), block));
    }

    #[test]
    fn a_log_block_is_valid_outside_of_what_is_void() {
        let mut header = header();
        let [newest, older] = header.newest;
        let hand = header.hand();
        assert!(hand == newest.end() && header.has(&newest, hand) && header.has(&older, hand));
        assert!(!header.has(&newest, hand - 1) && !header.has(&LogPointer::default(), hand));
        header.is_first_round = false;
        header.evicted = hand + (1 << 20);
        assert!(header.has(&newest, hand) && !header.has(&pointer(hand + 40_960), hand) && header.has(&pointer(header.evicted + 40_960), hand));
        assert!(header.has_come_round(&pointer(hand), &pointer(hand + (1 << 19))));
        assert!(!header.has_come_round(&newest, &older));
    }

    #[test]
    fn any_bytes_are_answered() {
        let mut state = 0x000c_ac4e_u64;
        println!("seed {state:#x}");
        let mut random = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            state >> 16 ^ state << 40
        };
        for round in 0..100 {
            let mut bytes: Vec<u8> = (0..LOG_BYTES / 8).flat_map(|_| random().to_le_bytes()).collect();
            let magic = if round % 2 == 0 { HEADER_MAGIC } else { LOG_MAGIC };
            bytes[..8].copy_from_slice(&if round % 4 < 2 { magic } else { magic.swap_bytes() }.to_le_bytes());
            if round % 3 == 0 {
                bytes[8..16].copy_from_slice(&VERSION.to_le_bytes());
            }
            if let Ok(header) = Header::decode(&bytes) {
                for pointer in &header.newest {
                    assert!(!header.has(pointer, header.hand()) || pointer.end() <= header.area.end);
                    header.has_come_round(pointer, pointer);
                }
            }
            if let Ok(block) = LogBlock::decode(&bytes, random()) {
                assert!(block.entries.len() as u64 <= ENTRIES_MAX);
                header().has(&block.previous, random());
            }
            assert!(LogBlock::decode(&bytes[..random() as usize % LOG_BYTES], 5).is_err());
        }
    }
}
