//! The deduplication table: which blocks may be referred to more than once, and how often they are.
//!
//! # Theory
//! A block that was written with deduplication is found by its contents: by its checksum, its sizes and its compression. For
//! each checksum algorithm there is a table for blocks with one reference and one for those with more. An entry says where the
//! block is and how many references there are. Old tables have a slot for each number of copies, newer ones
//! (*flat*) only one; newer ones also have logs, to which changes go first.
//!
//! # On disk
//! ```text
//! MOS directory: DDT-sha256-zap-unique, DDT-sha256-zap-duplicate ──> ZAP: Key (5 words) ──> Entry, compressed
//!                DDT-sha512 ──> ZAP of a newer table: version, flags, and both of the above, and the logs
//!                DDT-statistics ──> ZAP: name of a table ──> 64 times 8 sums, by log2 of the references
//! ```
//! A value is a byte (compression, 0x80: little-endian) and the words of an [`Entry`]. A log is blocks of records that
//! do not cross them; its header is in the bonus.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bits;
use crate::blkptr::{DataPointer, Protection};
use crate::corruption::Corruption;
use crate::dva::{Dva, RawDva, SECTOR_SHIFT};

/// Words of a key.
pub const KEY_WORDS: usize = 5;
/// Key of the MOS's directory: sums for `zpool list`.
pub const STATISTICS: &str = "DDT-statistics";
/// Buckets of the sums, and numbers in each.
pub const STATISTICS_BUCKETS: usize = 64;
/// Numbers in a bucket: blocks, logical, physical and allocated bytes, then the same times the references.
pub const STATISTICS_NUMBERS: usize = 8;
/// In the ZAP of a newer table.
pub const VERSION: &str = "version";
/// In the ZAP of a newer table: `FLAG_*`.
pub const FLAGS: &str = "flags";
/// The entries are flat.
pub const FLAG_FLAT: u64 = 1;
/// The table has logs.
pub const FLAG_LOG: u64 = 2;
/// The newer version.
pub const VERSION_FLAT: u64 = 1;
/// A value's first byte: words are little-endian.
pub const VALUE_LITTLE_ENDIAN: u8 = 0x80;
/// Record of a log: an entry, to replace one of the table.
pub const RECORD_ENTRY: u64 = 1;
/// Log flag: it is being moved into the table.
pub const LOG_FLUSHING: u64 = 1;
/// Log flag: entries up to the header's key have been moved.
pub const LOG_CHECKPOINT: u64 = 2;

const SLOTS_OLD: usize = 4;
const WORDS_OLD: usize = 8;
const WORDS_FLAT: usize = 9;

/// The checksum algorithms that tables are for: number in block pointers, and name.
pub const ALGORITHMS: [(u8, &str); 5] = [(8, "sha256"), (11, "sha512"), (12, "skein"), (13, "edonr"), (14, "blake3")];

/// Which of the two tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Kept by old versions for blocks with extra copies.
    Ditto = 0,
    /// Two references or more.
    Duplicate = 1,
    /// One reference.
    Unique = 2,
}

impl Class {
    /// All, in the order in which they are searched.
    pub const ALL: [Class; 3] = [Class::Ditto, Class::Duplicate, Class::Unique];

    /// The class of an entry with so many references.
    pub fn of(references: u64) -> Class {
        if references > 1 { Class::Duplicate } else { Class::Unique }
    }

    /// The last part of the table's name.
    pub fn name(self) -> &'static str {
        match self {
            Class::Ditto => "ditto",
            Class::Duplicate => "duplicate",
            Class::Unique => "unique",
        }
    }
}

/// What a block is found by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[doc(alias = "ddt_key")]
pub struct Key(pub [u64; KEY_WORDS]);

impl Key {
    /// Of a block.
    pub fn of(block: &DataPointer) -> Key {
        let sectors = |bytes: u64| (bytes >> SECTOR_SHIFT).wrapping_sub(1);
        let encrypted = u64::from(block.protection != Protection::None);
        let properties = bits::set(0, 0, 16, sectors(block.logical_size) & 0xffff);
        let properties = bits::set(properties, 16, 16, sectors(block.physical_size) & 0xffff);
        let properties = bits::set(properties, 32, 7, u64::from(block.compression.number()));
        let [a, b, c, d] = block.checksum;
        Key([a, b, c, d, bits::set(properties, 39, 1, encrypted)])
    }

    /// Bytes before compression.
    pub fn logical_size(&self) -> u64 {
        bits::get_scaled(self.0[4], 0, 16, SECTOR_SHIFT, 1)
    }

    /// Bytes after compression.
    pub fn physical_size(&self) -> u64 {
        bits::get_scaled(self.0[4], 16, 16, SECTOR_SHIFT, 1)
    }

    /// The block is encrypted, so the third place is none.
    pub fn is_encrypted(&self) -> bool {
        bits::get(self.0[4], 39, 1) != 0
    }
}

/// One block with these contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[doc(alias = "ddt_phys")]
pub struct Slot {
    dvas: [RawDva; 3],
    /// How many pointers lead to it.
    pub references: u64,
    /// When it was written; 0: there is none.
    pub birth: u64,
}

impl Slot {
    /// Where it is.
    pub fn dvas(&self, key: &Key) -> Vec<Dva> {
        let places = if key.is_encrypted() { 2 } else { 3 };
        self.dvas[..places].iter().filter(|dva| dva.is_valid()).map(RawDva::decode).collect()
    }

    /// Whether `block` is this one.
    pub fn is(&self, block: &DataPointer) -> bool {
        self.birth == block.physical_birth && block.dvas().first().is_some_and(|dva| dva.encode() == self.dvas[0])
    }
}

/// An entry: the blocks with the same contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// One of a flat table, else four, of which the first is not used any more.
    pub slots: Vec<Slot>,
    /// Flat tables: when it last changed, in seconds since 1970.
    pub changed: u64,
}

impl Entry {
    /// Words of an entry.
    pub fn words(flat: bool) -> usize {
        if flat { WORDS_FLAT } else { SLOTS_OLD * WORDS_OLD }
    }

    /// From its words.
    pub fn from_words(words: &[u64], flat: bool) -> Result<Entry, Corruption> {
        if words.len() != Self::words(flat) {
            return Err(Corruption::new("dedup entry", "length", words.len() as u64));
        }
        let slot = |words: &[u64]| {
            let dva = |at: usize| RawDva { location: words[at].into(), offset: words[at + 1].into() };
            Slot { dvas: [dva(0), dva(2), dva(4)], references: words[6], birth: words[7] }
        };
        if flat {
            return Ok(Entry { slots: vec![slot(words)], changed: words[8] });
        }
        Ok(Entry { slots: words.chunks_exact(WORDS_OLD).map(slot).collect(), changed: 0 })
    }

    /// Its words.
    pub fn to_words(&self, flat: bool) -> Vec<u64> {
        let mut words = Vec::with_capacity(Self::words(flat));
        for slot in &self.slots {
            words.extend(slot.dvas.iter().flat_map(|dva| [dva.location.get(), dva.offset.get()]));
            words.extend([slot.references, slot.birth]);
        }
        if flat {
            words.push(self.changed);
        }
        words
    }

    /// All references.
    pub fn references(&self) -> u64 {
        self.slots.iter().fold(0, |sum: u64, slot| sum.saturating_add(slot.references))
    }
}

/// The bonus of a log.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[doc(alias = "ddt_log_header")]
pub struct LogHeaderPhys {
    /// Version in the lowest byte, flags in the next.
    pub info: U64,
    /// Bytes of it that are in use.
    pub length: U64,
    /// When it was begun.
    pub first_txg: U64,
    /// Entries up to this one are in the table already, if the flag says so.
    pub checkpoint: [U64; KEY_WORDS],
}

impl LogHeaderPhys {
    /// `LOG_*`.
    pub fn flags(&self) -> u64 {
        bits::get(self.info.get(), 8, 8)
    }

    /// 1 is the only one.
    pub fn version(&self) -> u64 {
        bits::get(self.info.get(), 0, 8)
    }

    /// The last entry that was moved.
    pub fn checkpoint_key(&self) -> Option<Key> {
        (self.flags() & LOG_CHECKPOINT != 0).then(|| Key(self.checkpoint.map(U64::get)))
    }
}

/// A record of a log: which table it is in, if any; key and entry.
pub type LogRecord = (Option<Class>, Key, Entry);

/// The records of one block of a log.
pub fn log_records(block: &[u8], flat: bool) -> Result<Vec<LogRecord>, Corruption> {
    let mut records = Vec::new();
    let mut rest = block;
    while let Some((head, _)) = rest.split_first_chunk::<8>() {
        let info = u64::from_le_bytes(*head);
        let (kind, length, class) = (bits::get(info, 0, 8), bits::get(info, 8, 16) as usize, bits::get(info, 56, 8));
        if kind == 0 {
            break;
        }
        let Some(record) = rest.get(8..length).filter(|_| kind == RECORD_ENTRY) else {
            return Err(Corruption::new("dedup log", "record", info));
        };
        let (words, _) = record.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let (Some((key, words)), true) = (words.split_first_chunk(), words.len() >= KEY_WORDS + Entry::words(flat)) else {
            return Err(Corruption::new("dedup log", "length of a record", length as u64));
        };
        let class = Class::ALL.into_iter().find(|known| *known as u64 == class);
        records.push((class, Key(*key), Entry::from_words(&words[..Entry::words(flat)], flat)?));
        rest = rest.get(length..).unwrap_or_default();
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object_type::ObjectType;

    #[test]
    fn an_entry_is_found_by_contents_and_has_its_words() {
        let mut block = DataPointer::new(&[Dva::new(1, 0x2000, 0x1000)], ObjectType::PLAIN_FILE_CONTENTS, 0, 7);
        block.checksum = [1, 2, 3, 4];
        (block.logical_size, block.physical_size) = (128 << 10, 4096);
        let key = Key::of(&block);
        assert_eq!((key.logical_size(), key.physical_size(), key.is_encrypted()), (128 << 10, 4096, false));
        for flat in [false, true] {
            let mut words = vec![0; Entry::words(flat)];
            let at = if flat { 0 } else { WORDS_OLD };
            let dva = block.dvas()[0].encode();
            words[at..at + 2].copy_from_slice(&[dva.location.get(), dva.offset.get()]);
            words[at + 6..at + 8].copy_from_slice(&[5, 7]);
            let entry = Entry::from_words(&words, flat).unwrap();
            assert_eq!(entry.to_words(flat), words);
            assert_eq!(entry.references(), 5);
            let slot = entry.slots.iter().find(|slot| slot.is(&block)).unwrap();
            assert_eq!(slot.dvas(&key), block.dvas());
            // The same in a log, with the rest of the block empty.
            let mut log = (RECORD_ENTRY | (8 * (1 + KEY_WORDS + words.len()) as u64) << 8 | 2 << 56).to_le_bytes().to_vec();
            log.extend(key.0.iter().chain(&words).flat_map(|word| word.to_le_bytes()));
            log.resize(log.len() + 100, 0);
            assert_eq!(log_records(&log, flat).unwrap(), [(Some(Class::Unique), key, entry)]);
            log[1] = 20;
            log[2] = 0;
            assert!(log_records(&log, flat).is_err());
        }
    }
}
