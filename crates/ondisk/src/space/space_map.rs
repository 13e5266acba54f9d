//! Space maps: the log of allocations and frees that says which bytes of a metaslab are in use.
//!
//! # Theory
//!
//! A space map is an object in the meta objset whose data is a log of ranges: "allocated" and "freed", in the order in
//! which it happened.  Replaying the log from the start gives the state.  Nothing is ever changed in place: a txg appends,
//! and from time to time the whole log is replaced by a shorter one that says the same ("condensing").
//! The object's bonus buffer holds [`SpaceMapHeader`]: how much of the object is log, and what the log adds up to.
//!
//! # On disk
//!
//! The log is a sequence of 64-bit words.  The top two bits say what a word is:
//!
//! ```text
//! 0x  one-word entry    63: 0 | 62..16: offset | 15: action | 14..0: run - 1
//! 10  debug entry       61..60: action | 59..50: sync pass | 49..0: txg
//! 11  two-word entry    59..24: run - 1 | 23..0: vdev        (61..60 are unused)
//!     its second word   63: action | 62..0: offset
//! ```
//!
//! Offsets and runs count units of `1 << shift` bytes; offsets are relative to the start of the map.
//! A debug entry precedes each batch and says in which txg and sync pass the batch was written.  One that is otherwise zero
//! is padding: a two-word entry never straddles two blocks of the object.
//!
//! # Invariants
//!
//! 1. What [`Decoder`] yields lies inside the map's area and is a whole number of units: anything else is `Corruption`.
//! 2. [`Encoder`] and [`Decoder`] are inverse: decoding what was encoded yields the same ranges, maybe in pieces.

use zerocopy::byteorder::little_endian::{I64, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::corruption::Corruption;

/// Buckets of the histogram of free segments.
pub const HISTOGRAM_BUCKETS: usize = 32;
/// Bonus size of a space map object without a histogram.
pub const HEADER_BYTES_V0: usize = 24;
/// Bonus size of a space map object with a histogram (feature `spacemap_histogram`).
pub const HEADER_BYTES: usize = size_of::<SpaceMapPhys>();
/// Block size of a metaslab's space map in pools that write each txg's changes straight to it.
pub const BLOCK_BYTES_DIRECT: u32 = 16 << 10;
/// Block size of a metaslab's space map, and of log space maps, in pools with feature `log_spacemap`.
pub const BLOCK_BYTES_LOGGED: u32 = 128 << 10;
/// Log2 of the indirect block size of every space map object: small, because an append rewrites the whole path.
pub const INDIRECT_SHIFT: u8 = 14;
/// The unit of a log space map, whatever the vdevs' own: it holds ranges of all of them.
pub const LOG_SHIFT: u8 = 9;

const WORD: usize = 8;
const RUN_BITS: u32 = 15;
const OFFSET_BITS: u32 = 47;
const VDEV_BITS: u32 = 24;
const LONG_RUN_BITS: u32 = 36;
const LONG_OFFSET_BITS: u32 = 63;
const PREFIX_DEBUG: u64 = 0b10;
const PREFIX_LONG: u64 = 0b11;

const fn field(word: u64, low: u32, bits: u32) -> u64 {
    (word >> low) & ((1 << bits) - 1)
}

/// The bonus buffer of a space map object.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SpaceMapPhys {
    /// The space map's own object number: written, never needed.
    #[doc(alias = "smp_object")]
    pub object: U64,
    /// How many bytes of the object's data are log.
    #[doc(alias = "smp_length")]
    pub length: U64,
    /// Bytes allocated less bytes freed, over the whole log.
    #[doc(alias = "smp_alloc")]
    pub allocated: I64,
    /// Unused, zero.
    #[doc(alias = "smp_pad")]
    pub reserved: [U64; 5],
    /// Bucket `i`: how many free segments are of `1 << (i + shift)` bytes up to twice that.
    #[doc(alias = "smp_histogram")]
    pub histogram: [U64; HISTOGRAM_BUCKETS],
}

const _: () = assert!(size_of::<SpaceMapPhys>() == 320);
const _: () = assert!(std::mem::offset_of!(SpaceMapPhys, length) == 8);
const _: () = assert!(std::mem::offset_of!(SpaceMapPhys, allocated) == 16);
const _: () = assert!(std::mem::offset_of!(SpaceMapPhys, histogram) == 64);

/// The header of a space map, as the engine uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceMapHeader {
    /// The space map's own object number.
    pub object: u64,
    /// Bytes of log in the object.
    pub length: u64,
    /// Bytes allocated less bytes freed, over the whole log.
    pub allocated: i64,
    /// Free segments by size, or `None` in objects from before feature `spacemap_histogram`.
    pub histogram: Option<[u64; HISTOGRAM_BUCKETS]>,
}

impl SpaceMapHeader {
    /// The header of an empty space map.
    pub const fn empty(object: u64, with_histogram: bool) -> Self {
        let histogram = if with_histogram { Some([0; HISTOGRAM_BUCKETS]) } else { None };
        Self { object, length: 0, allocated: 0, histogram }
    }

    /// Reads a bonus buffer; its size says whether there is a histogram.
    pub fn decode(bonus: &[u8]) -> Result<Self, Corruption> {
        let short = Corruption::new("space map header", "size", bonus.len() as u64);
        let header = if let Ok((phys, _)) = SpaceMapPhys::read_from_prefix(bonus) {
            let mut histogram = [0; HISTOGRAM_BUCKETS];
            for (to, from) in histogram.iter_mut().zip(phys.histogram) {
                *to = from.get();
            }
            Self {
                object: phys.object.get(),
                length: phys.length.get(),
                allocated: phys.allocated.get(),
                histogram: Some(histogram),
            }
        } else {
            let (words, _) = <[U64; HEADER_BYTES_V0 / WORD]>::read_from_prefix(bonus).map_err(|_| short)?;
            let [object, length, allocated] = words;
            Self {
                object: object.get(),
                length: length.get(),
                allocated: allocated.get().cast_signed(),
                histogram: None,
            }
        };
        if !header.length.is_multiple_of(WORD as u64) {
            return Err(Corruption::new("space map header", "length", header.length));
        }
        Ok(header)
    }

    /// The bonus buffer: [`HEADER_BYTES`] long with a histogram, else [`HEADER_BYTES_V0`].
    pub fn encode(&self) -> Vec<u8> {
        let mut phys = SpaceMapPhys::read_from_bytes(&[0; HEADER_BYTES]).unwrap_or_else(|_| unreachable!());
        phys.object = self.object.into();
        phys.length = self.length.into();
        phys.allocated = self.allocated.into();
        let Some(histogram) = self.histogram else {
            return phys.as_bytes().iter().copied().take(HEADER_BYTES_V0).collect();
        };
        for (to, from) in phys.histogram.iter_mut().zip(histogram) {
            *to = from.into();
        }
        phys.as_bytes().to_vec()
    }

    /// Counts free segments of `size` bytes.  Those too large for the last bucket count as several of its size.
    pub fn histogram_add(&mut self, shift: u8, size: u64, segments: u64) {
        let Some(histogram) = &mut self.histogram else { return };
        let (bucket, weight) = histogram_bucket(shift, size);
        if let Some(count) = histogram.get_mut(bucket) {
            *count = count.saturating_add(segments.saturating_mul(weight));
        }
    }
}

/// The bucket in which a free segment is counted, and how many times.
pub fn histogram_bucket(shift: u8, size: u64) -> (usize, u64) {
    let log2 = size.max(1).ilog2();
    let bucket = log2.saturating_sub(u32::from(shift)) as usize;
    let last = HISTOGRAM_BUCKETS - 1;
    if bucket <= last { (bucket, 1) } else { (last, 1 << (bucket - last)) }
}

/// What happened to a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// It came into use.
    #[doc(alias = "SM_ALLOC")]
    Allocate,
    /// It was given back.
    #[doc(alias = "SM_FREE")]
    Free,
}

impl Action {
    const fn bit(self) -> u64 {
        match self {
            Self::Allocate => 0,
            Self::Free => 1,
        }
    }

    const fn from_bit(bit: u64) -> Self {
        if bit == 0 { Self::Allocate } else { Self::Free }
    }
}

/// The part of a vdev (or, for a log, of all of them) that a space map describes, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    /// First byte.
    pub start: u64,
    /// How many bytes.
    pub size: u64,
    /// Log2 of the unit in which the map counts.
    pub shift: u8,
}

impl Area {
    /// The area of a log space map.
    pub const LOG: Self = Self { start: 0, size: u64::MAX, shift: LOG_SHIFT };

    fn range(&self, offset_units: u64, run_units: u64) -> Result<(u64, u64), Corruption> {
        let bad = |name, found| Corruption::new("space map entry", name, found);
        let scale = |units: u64| {
            let bytes = units.checked_shl(u32::from(self.shift))?;
            (bytes >> self.shift == units).then_some(bytes)
        };
        let offset = scale(offset_units).ok_or(bad("offset", offset_units))?;
        let size = scale(run_units).ok_or(bad("run", run_units))?;
        let end = offset.checked_add(size).filter(|end| *end <= self.size).ok_or(bad("run", run_units))?;
        self.start.checked_add(end).ok_or(bad("offset", offset_units))?;
        Ok((self.start + offset, size))
    }
}

/// One allocated or freed range, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Which of the two.
    pub action: Action,
    /// The top-level vdev, which only log space maps say.
    pub vdev: Option<u32>,
    /// First byte, as an offset in the vdev.
    pub offset: u64,
    /// How many bytes.
    pub size: u64,
    /// The txg that the last debug entry named, 0 if none did.
    pub txg: u64,
    /// The sync pass that the last debug entry named.
    pub pass: u16,
}

impl Entry {
    /// Bytes that it takes in the map it was read from.
    pub const fn bytes(&self) -> usize {
        if self.vdev.is_some() { 2 * WORD } else { WORD }
    }
}

/// Decodes a space map, block by block.
#[derive(Debug)]
pub struct Decoder {
    area: Area,
    txg: u64,
    pass: u16,
}

impl Decoder {
    /// A decoder for the space map of `area`, at its first block.
    pub const fn new(area: Area) -> Self {
        Self { area, txg: 0, pass: 0 }
    }

    /// The entries in `bytes`: the next whole blocks of the log, or what is left of it.
    pub const fn entries<'a>(&'a mut self, bytes: &'a [u8]) -> Entries<'a> {
        Entries { decoder: self, bytes }
    }
}

/// The entries of some blocks of a space map; ends after the first corruption.
#[derive(Debug)]
pub struct Entries<'a> {
    decoder: &'a mut Decoder,
    bytes: &'a [u8],
}

impl Entries<'_> {
    /// Bytes that are not decoded yet.
    pub const fn left(&self) -> usize {
        self.bytes.len()
    }

    fn word(&mut self) -> Option<u64> {
        let (word, rest) = self.bytes.split_first_chunk::<WORD>()?;
        self.bytes = rest;
        Some(u64::from_le_bytes(*word))
    }

    fn entry(&mut self, first: u64) -> Result<Option<Entry>, Corruption> {
        let (action, vdev, offset, run) = match first >> 62 {
            PREFIX_DEBUG => {
                let txg = field(first, 0, 50);
                if txg != 0 {
                    self.decoder.txg = txg;
                    self.decoder.pass = field(first, 50, 10) as u16;
                }
                return Ok(None);
            }
            PREFIX_LONG => {
                let second = self.word().ok_or(Corruption::new("space map entry", "second word", first))?;
                let vdev = field(first, 0, VDEV_BITS) as u32;
                let run = field(first, VDEV_BITS, LONG_RUN_BITS) + 1;
                (Action::from_bit(second >> 63), Some(vdev), field(second, 0, LONG_OFFSET_BITS), run)
            }
            _ => {
                let run = field(first, 0, RUN_BITS) + 1;
                (Action::from_bit(field(first, 15, 1)), None, field(first, 16, OFFSET_BITS), run)
            }
        };
        let (offset, size) = self.decoder.area.range(offset, run)?;
        Ok(Some(Entry { action, vdev, offset, size, txg: self.decoder.txg, pass: self.decoder.pass }))
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<Entry, Corruption>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Some(first) = self.word() else {
                let rest = std::mem::take(&mut self.bytes).len();
                let torn = Corruption::new("space map", "length", rest as u64);
                return (rest != 0).then_some(Err(torn));
            };
            match self.entry(first) {
                Ok(None) => {}
                Ok(Some(entry)) => return Some(Ok(entry)),
                Err(corruption) => {
                    self.bytes = &[];
                    return Some(Err(corruption));
                }
            }
        }
    }
}

/// Encodes a batch of entries to be appended to a space map.
#[derive(Debug)]
pub struct Encoder {
    area: Area,
    /// Log in the object before this batch.
    length: u64,
    block_bytes: u64,
    /// Feature `spacemap_v2` is active, so two-word entries are allowed.
    long_entries: bool,
    bytes: Vec<u8>,
}

impl Encoder {
    /// An encoder for what follows the first `length` bytes of a log kept in blocks of `block_bytes`.
    pub fn new(area: Area, length: u64, block_bytes: u32, long_entries: bool) -> Self {
        assert!(length.is_multiple_of(WORD as u64) && block_bytes >= 16, "space map of {length} in {block_bytes}");
        Self { area, length, block_bytes: u64::from(block_bytes), long_entries, bytes: Vec::new() }
    }

    /// The debug entry that precedes each batch.
    pub fn begin(&mut self, action: Action, txg: u64, pass: u16) {
        let debug = PREFIX_DEBUG << 62 | action.bit() << 60 | field(u64::from(pass), 0, 10) << 50 | field(txg, 0, 50);
        self.push(debug);
    }

    /// A range.  `vdev` is given in log space maps only, and needs feature `spacemap_v2`.
    pub fn range(&mut self, action: Action, vdev: Option<u32>, offset: u64, size: u64) {
        let Area { start, size: area_size, shift } = self.area;
        let unit = 1_u64 << shift;
        let inside = offset >= start && offset - start < area_size && size <= area_size - (offset - start);
        assert!(inside && size > 0, "space map range {offset:#x}+{size:#x} outside {:?}", self.area);
        let mut at = (offset - start) >> shift;
        let mut left = size >> shift;
        let whole = (offset - start).is_multiple_of(unit) && size.is_multiple_of(unit);
        assert!(whole, "space map range {offset:#x}+{size:#x} not in units of {unit:#x}");
        let long = self.long_entries && (at >> OFFSET_BITS != 0 || left > 1 << RUN_BITS || vdev.is_some());
        assert!(long || (vdev.is_none() && at >> OFFSET_BITS == 0), "space map range {offset:#x} needs two words");
        let run_max = 1_u64 << if long { LONG_RUN_BITS } else { RUN_BITS };
        while left > 0 {
            let run = left.min(run_max);
            if long {
                self.push_long(action, vdev.unwrap_or(1 << VDEV_BITS), at, run);
            } else {
                self.push(at << 16 | action.bit() << 15 | (run - 1));
            }
            at += run;
            left -= run;
        }
    }

    fn push_long(&mut self, action: Action, vdev: u32, at: u64, run: u64) {
        if (self.length + self.bytes.len() as u64) % self.block_bytes == self.block_bytes - WORD as u64 {
            self.push(PREFIX_DEBUG << 62);
        }
        // A map of one metaslab names no vdev: the writer's "none" is 1 << 24, of which nothing is left in 24 bits.
        let vdev = field(u64::from(vdev), 0, VDEV_BITS);
        self.push(PREFIX_LONG << 62 | (run - 1) << VDEV_BITS | vdev);
        self.push(action.bit() << 63 | at);
    }

    fn push(&mut self, word: u64) {
        self.bytes.extend_from_slice(&word.to_le_bytes());
    }

    /// The batch: to be written to the object at the length given to [`Encoder::new`].
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// At most how many bytes of log `segments` (counts by log2 of the size in bytes) take when written to an empty map.
pub fn estimate_bytes(segments: &[u64; 64], shift: u8, block_bytes: u32, long_entries: bool) -> u64 {
    let run_bits = if long_entries { LONG_RUN_BITS } else { RUN_BITS };
    let mut words = 0_u64;
    for (log2, count) in segments.iter().enumerate() {
        let log2 = log2 as u32;
        let entry_words = u64::from(1 + u32::from(long_entries && log2 >= RUN_BITS + u32::from(shift)));
        let pieces = 1_u64 << (log2 + 1).saturating_sub(run_bits + u32::from(shift)).min(32);
        words = words.saturating_add(count.saturating_mul(entry_words * pieces));
    }
    let bytes = words.saturating_mul(WORD as u64);
    let padding = if long_entries { (bytes / u64::from(block_bytes.max(1)) + 1) * WORD as u64 } else { 0 };
    bytes.saturating_add(padding)
}

#[cfg(test)]
mod tests;
