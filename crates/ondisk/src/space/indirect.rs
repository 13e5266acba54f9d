//! Where things went that were on a removed vdev.
//!
//! # Theory
//! A top-level vdev is removed by copying what it has to the others. Block pointers cannot be changed (snapshots have
//! them), so the pool keeps a map from old addresses to new ones. It was made without regard to blocks: one block
//! may have gone to several places.
//!
//! # On disk
//! The MOS object `com.delphix:indirect_object` of a vdev is an array of [`MappingPhys`], by old address, with
//! [`MappingHeaderPhys`] in its bonus (the last word is missing in old ones). Another object, which that word names, says of each
//! run how many bytes of it nothing needs any more, as numbers of 32 bits. The object `com.delphix:indirect_births` says in which group what lies in front of an
//! address was copied: an array of [`BirthPhys`], their number in the bonus. The entry `com.delphix:removing` of the MOS's
//! directory is [`RemovalPhys`]; its `previous` is the vdev removed last, whose own description names the one before. While a map is being made shorter, the
//! entry `com.delphix:condensing_indirect` is [`CondensingPhys`].

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bits;
use crate::corruption::Corruption;
use crate::dva::{Dva, RawDva, SECTOR_SHIFT};

/// Key of the MOS's directory: the last removal, [`RemovalPhys`] as words.
pub const REMOVING: &str = "com.delphix:removing";
/// Key of the MOS's directory: there while a map is being made shorter.
pub const CONDENSING: &str = "com.delphix:condensing_indirect";
/// In a removed vdev's description: the object with the map.
pub const MAPPING_OBJECT: &str = "com.delphix:indirect_object";
/// In a removed vdev's description: the object that says when what was copied.
pub const BIRTHS_OBJECT: &str = "com.delphix:indirect_births";
/// In a removed vdev's description: the vdev that was removed before it.
pub const PREVIOUS_VDEV: &str = "com.delphix:prev_indirect_vdev";
/// In a removed vdev's ZAP: the space map of what is no longer needed of the map.
pub const OBSOLETE_MAP: &str = "com.delphix:indirect_obsolete_sm";
/// In a removed vdev's ZAP: 1 if all that nothing needs of the map is counted.
pub const COUNTS_ARE_PRECISE: &str = "com.delphix:obsolete_counts_are_precise";
/// There is no such vdev.
pub const NO_VDEV: u64 = u64::MAX;
/// Words of [`RemovalPhys`] that are read.
pub const REMOVAL_WORDS: usize = 7;
/// `RemovalPhys::state`: nothing was ever removed.
pub const REMOVAL_NONE: u64 = 0;
/// `RemovalPhys::state`: being copied.
pub const REMOVAL_ACTIVE: u64 = 1;
/// `RemovalPhys::state`: done.
pub const REMOVAL_FINISHED: u64 = 2;
/// `RemovalPhys::state`: given up.
pub const REMOVAL_CANCELED: u64 = 3;

/// One run of bytes that was moved as a whole.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[doc(alias = "vdev_indirect_mapping_entry_phys")]
pub struct MappingPhys {
    /// The old offset in sectors, 63 bits; the highest bit is used by checkers.
    pub source: U64,
    /// Where it is now, and its length.
    pub target: RawDva,
}

/// The bonus of the object with the map.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[doc(alias = "vdev_indirect_mapping_phys")]
pub struct MappingHeaderPhys {
    /// The end of the last run.
    pub end: U64,
    /// The sum of all lengths.
    pub bytes: U64,
    /// How many runs there are.
    pub entries: U64,
}

/// What is behind [`MappingHeaderPhys`] where what nothing needs is counted: the object with the counts.
pub type CountsObject = U64;

/// One step of the copying: when what lies in front of `end` was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[doc(alias = "vdev_indirect_birth_entry_phys")]
pub struct BirthPhys {
    /// The end of the last run of the step.
    pub end: U64,
    /// The group in which it was copied.
    pub txg: U64,
}

const _: () = assert!(size_of::<MappingPhys>() == 24 && size_of::<MappingHeaderPhys>() == 24 && size_of::<BirthPhys>() == 16);

/// A map that is being made shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "spa_condensing_indirect_phys")]
pub struct CondensingPhys {
    /// The removed vdev.
    pub vdev: u64,
    /// The space map of what nothing needs of its map, as it was when this began.
    pub obsolete_map: u64,
    /// The object that becomes its map.
    pub next_mapping: u64,
}

impl CondensingPhys {
    /// From the words of the entry.
    pub fn from_words(words: &[u64]) -> Result<CondensingPhys, Corruption> {
        let [vdev, obsolete_map, next_mapping, ..] = words else {
            return Err(Corruption::new("condensing of an indirect mapping", "words", words.len() as u64));
        };
        Ok(CondensingPhys { vdev: *vdev, obsolete_map: *obsolete_map, next_mapping: *next_mapping })
    }

    /// The words of the entry.
    pub fn to_words(&self) -> [u64; 3] {
        [self.vdev, self.obsolete_map, self.next_mapping]
    }
}

/// What the last removal was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "spa_removing_phys")]
pub struct RemovalPhys {
    /// Whether it goes on.
    pub state: u64,
    /// The vdev that is or was being removed.
    pub vdev: u64,
    /// The vdev whose removal ended last.
    pub previous: u64,
    /// When it began, in seconds since 1970.
    pub start_time: u64,
    /// When it ended.
    pub end_time: u64,
    /// Bytes that have to be copied.
    pub to_copy: u64,
    /// Bytes that were.
    pub copied: u64,
}

impl RemovalPhys {
    /// From the words of the entry.
    pub fn from_words(words: &[u64]) -> Result<RemovalPhys, Corruption> {
        let [state, vdev, previous, rest @ ..] = words else {
            return Err(Corruption::new("device removal", "words", words.len() as u64));
        };
        let word = |index: usize| rest.get(index).copied().unwrap_or(0);
        let [start_time, end_time, to_copy, copied] = [word(0), word(1), word(2), word(3)];
        Ok(RemovalPhys { state: *state, vdev: *vdev, previous: *previous, start_time, end_time, to_copy, copied })
    }

    /// The words of the entry.
    pub fn to_words(&self) -> [u64; REMOVAL_WORDS] {
        [self.state, self.vdev, self.previous, self.start_time, self.end_time, self.to_copy, self.copied]
    }
}

/// One run of bytes that was moved as a whole, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// Where it was.
    pub source: u64,
    /// Where it is, and how long it is.
    pub target: Dva,
}

impl MappingPhys {
    /// The run.
    pub fn decode(&self) -> Result<Mapping, Corruption> {
        let source = bits::get(self.source.get(), 0, 63).saturating_mul(1 << SECTOR_SHIFT);
        let target = self.target.decode();
        let past_end = source.checked_add(target.allocated).is_none() || target.offset.checked_add(target.allocated).is_none();
        if target.allocated == 0 || target.gang || past_end {
            return Err(Corruption::new("indirect mapping", "target", self.target.offset.get()));
        }
        Ok(Mapping { source, target })
    }
}

impl Mapping {
    /// As it is on disk.
    pub fn encode(&self) -> MappingPhys {
        MappingPhys { source: bits::set(0, 0, 63, self.source >> SECTOR_SHIFT).into(), target: self.target.encode() }
    }

    /// Where it ended.
    pub fn end(&self) -> u64 {
        self.source.saturating_add(self.target.allocated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What OpenZFS has in the golden pool `remove`: objects 154 and 156 of its MOS.
    #[test]
    fn what_openzfs_wrote_is_written_the_same() {
        let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let of_golden: [([u64; 3], Mapping); 2] = [
            ([0x80, 0x88, 0x6a0], Mapping { source: 0x10000, target: Dva::new(0, 0xd4000, 0x11000) }),
            ([0x10228, 0xc8, 0x1288], Mapping { source: 0x204_5000, target: Dva::new(0, 0x25_1000, 0x19000) }),
        ];
        for (words, run) in of_golden {
            assert_eq!(run.encode().as_bytes(), bytes(&words));
            assert_eq!(MappingPhys::read_from_bytes(&bytes(&words)).unwrap().decode().unwrap(), run);
        }
        // The vdev is from bit 32 on.
        let elsewhere = Mapping { source: 0x6400, target: Dva::new(3, 0x4a00, 0x1600) };
        assert_eq!(elsewhere.encode().as_bytes(), bytes(&[0x32, 3 << 32 | 0xb, 0x25]));
        let header = bytes(&[0x205_e000, 0x18_f000, 8, 0x9b]);
        let (header, rest) = MappingHeaderPhys::read_from_prefix(&header).unwrap();
        assert_eq!((header.end.get(), header.bytes.get(), header.entries.get()), (0x205_e000, 0x18_f000, 8));
        assert_eq!(CountsObject::read_from_prefix(rest).unwrap().0.get(), 0x9b);
        let birth = BirthPhys { end: 0x205_e000.into(), txg: 31.into() };
        assert_eq!(birth.as_bytes(), bytes(&[0x205_e000, 0x1f]));
    }

    #[test]
    fn words_of_the_directory_are_read_as_they_are_written() {
        let removal = RemovalPhys { state: 3, vdev: 1, previous: NO_VDEV, start_time: 3, end_time: 4, to_copy: 6, copied: 5 };
        assert_eq!(RemovalPhys::from_words(&removal.to_words()).unwrap(), removal);
        let condensing = CondensingPhys { vdev: 1, obsolete_map: 30, next_mapping: 40 };
        assert_eq!(CondensingPhys::from_words(&condensing.to_words()).unwrap(), condensing);
        assert!(CondensingPhys::from_words(&[1, 2]).is_err());
    }

    #[test]
    fn a_run_is_decoded_in_bytes() {
        let mut raw = MappingPhys { source: (1 << 63 | 0x10).into(), target: Dva::new(3, 0x4000, 0x2000).encode() };
        let run = raw.decode().unwrap();
        assert_eq!(run, Mapping { source: 0x2000, target: Dva::new(3, 0x4000, 0x2000) });
        raw.target.location = 0.into();
        assert!(raw.decode().is_err());
        assert!(RemovalPhys::from_words(&[0, 1]).is_err());
        let removal = RemovalPhys { state: 2, vdev: 1, previous: 1, start_time: 3, end_time: 4, to_copy: 6, copied: 5 };
        assert_eq!(RemovalPhys::from_words(&[2, 1, 1, 3, 4, 6, 5]).unwrap(), removal);
    }
}
