//! Log records of machines of the other byte order.
//!
//! # Theory
//! A log is written in the byte order of its machine; the byte order of a block's pointer says which that was. Numbers are
//! swapped, each as large as it is; names, targets, values and data are bytes, and stay. So each type of record has to be known,
//! and an unknown one is left after its header: the decoder refuses it anyway.
//!
//! # Invariants
//! 1. Whatever the bytes are: the result is not longer than they are, and a record that does not fit ends it.
//! 2. Swapping twice changes nothing.

use super::{
    AclRecord, AclV0Record, AttrPhys, CloneRangeRecord, CreateAclPhys, CreateRecord, LinkRecord, RECORD_CASE_INSENSITIVE, RecordHeader, RecordType, RemoveRecord,
    RenameRecord, RenameWhiteoutRecord, SET_ATTR_EXTENDED, SetAttrRecord, SetSaXattrRecord, TruncateRecord, WriteRecord,
};
use crate::acl::LOGGED_OBJECT_TYPES;

/// Bytes of an entry of an access control list in a record, and of one with two types of objects.
const ENTRY_BYTES: usize = 12;
const OBJECT_ENTRY_BYTES: usize = 44;
/// The words of [`super::AttrEndPhys`] before the stamp, and the stamp.
const ATTRIBUTE_WORDS: usize = 3;
const STAMP_BYTES: usize = 32;
/// The bit of the bitmap that says that the stamp is a project.
pub const ATTRIBUTE_PROJECT: u32 = 0x4_0000;

/// The records of a block of a big-endian log, as they would be in one of ours.
pub fn from_big_endian(block: &[u8]) -> Vec<u8> {
    swap_block(block, u64::from_be_bytes)
}

/// The other way: for tests, which make logs of such machines.
pub fn to_big_endian(block: &[u8]) -> Vec<u8> {
    swap_block(block, u64::from_le_bytes)
}

fn swap_block(block: &[u8], read: fn([u8; 8]) -> u64) -> Vec<u8> {
    let mut out = block.to_vec();
    let mut at = 0;
    while out.len() - at >= size_of::<RecordHeader>() {
        let word = |index: usize| out[at + 8 * index..].first_chunk().map_or(0, |bytes| read(*bytes));
        let (kind, length) = (word(0), word(1));
        let end = usize::try_from(length).ok().and_then(|length| at.checked_add(length)).filter(|end| *end <= out.len());
        match end.filter(|_| length >= size_of::<RecordHeader>() as u64) {
            Some(end) => {
                Swap { bytes: &mut out[at..end], read }.record(kind);
                at = end;
            }
            None => {
                // Its length is wrong, and shall be seen to be.
                Swap { bytes: &mut out[at..], read }.words(0, size_of::<RecordHeader>() / 8);
                break;
            }
        }
    }
    out
}

/// One record that is being swapped. Numbers are read before they are.
struct Swap<'a> {
    bytes: &'a mut [u8],
    /// How numbers are stored so far.
    read: fn([u8; 8]) -> u64,
}

impl Swap<'_> {
    fn word(&self, at: usize) -> u64 {
        self.bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| (self.read)(*bytes))
    }

    /// A word of 32 bits, as the low half of one of 64.
    fn half(&self, at: usize) -> u32 {
        let Some(bytes) = self.bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()) else { return 0 };
        let is_little = (self.read)([1, 0, 0, 0, 0, 0, 0, 0]) == 1;
        if is_little { u32::from_le_bytes(*bytes) } else { u32::from_be_bytes(*bytes) }
    }

    /// A number that says how much follows; never more than there can be.
    fn count(&self, at: usize) -> usize {
        usize::try_from(self.word(at)).unwrap_or(usize::MAX).min(self.bytes.len())
    }

    fn each(&mut self, at: usize, size: usize, count: usize) {
        let Some(rest) = self.bytes.get_mut(at..) else { return };
        rest.chunks_exact_mut(size).take(count).for_each(|number| number.reverse());
    }

    fn words(&mut self, at: usize, count: usize) {
        self.each(at, 8, count);
    }

    /// The fixed part of a record.
    fn fixed<T>(&mut self) {
        self.words(0, size_of::<T>() / 8);
    }

    fn record(mut self, kind: u64) {
        use RecordType as T;
        let Some(kind) = RecordType::from_number(kind & !RECORD_CASE_INSENSITIVE) else { return self.fixed::<RecordHeader>() };
        let end = size_of::<CreateRecord>();
        match kind {
            T::Commit => self.fixed::<RecordHeader>(),
            T::Create | T::MakeDir | T::MakeXattrDir | T::Symlink => self.fixed::<CreateRecord>(),
            T::CreateAttr | T::MakeDirAttr => {
                self.attributes(end);
                self.fixed::<CreateRecord>();
            }
            T::CreateAcl | T::MakeDirAcl => self.created_with_acl(end + size_of::<CreateAclPhys>()),
            T::CreateAclAttr | T::MakeDirAclAttr => {
                let after = self.attributes(end + size_of::<CreateAclPhys>());
                self.created_with_acl(after);
            }
            T::Remove | T::RemoveDir => self.fixed::<RemoveRecord>(),
            T::Link => self.fixed::<LinkRecord>(),
            T::Rename | T::RenameExchange => self.fixed::<RenameRecord>(),
            T::RenameWhiteout => self.fixed::<RenameWhiteoutRecord>(),
            T::Write | T::Write2 => self.fixed::<WriteRecord>(),
            T::Truncate => self.fixed::<TruncateRecord>(),
            T::SetSaXattr => self.fixed::<SetSaXattrRecord>(),
            T::SetAttr => {
                // The mask is the second word after the header.
                if self.word(size_of::<RecordHeader>() + 8) & SET_ATTR_EXTENDED != 0 {
                    self.attributes(size_of::<SetAttrRecord>());
                }
                self.fixed::<SetAttrRecord>();
            }
            T::AclV0 => {
                let bytes = self.count(size_of::<RecordHeader>() + 8).saturating_mul(ENTRY_BYTES);
                self.entries(size_of::<AclV0Record>(), bytes);
                self.fixed::<AclV0Record>();
            }
            T::Acl => {
                self.list(size_of::<RecordHeader>() + 24, size_of::<AclRecord>());
                self.fixed::<AclRecord>();
            }
            T::CloneRange => {
                let words = self.count(size_of::<CloneRangeRecord>() - 8).saturating_mul(16);
                self.words(size_of::<CloneRangeRecord>(), words);
                self.fixed::<CloneRangeRecord>();
            }
        }
    }

    /// A create record whose access control list begins at `at`.
    fn created_with_acl(&mut self, at: usize) {
        self.list(size_of::<CreateRecord>() + 16, at);
        self.words(0, (size_of::<CreateRecord>() + size_of::<CreateAclPhys>()) / 8);
    }

    /// A list and the FUIDs after it; how many FUIDs, and how long the list is, stands at `numbers`.
    fn list(&mut self, numbers: usize, at: usize) {
        let (fuids, bytes) = (self.count(numbers), self.count(numbers + 8));
        self.entries(at, bytes);
        self.words(at.saturating_add(bytes.next_multiple_of(8)), fuids);
    }

    fn entries(&mut self, at: usize, bytes: usize) {
        let (mut at, end) = (at, at.saturating_add(bytes).min(self.bytes.len()));
        while at + ENTRY_BYTES <= end {
            let [low, high] = [self.bytes[at + 10], self.bytes[at + 11]];
            let is_little = (self.read)([1, 0, 0, 0, 0, 0, 0, 0]) == 1;
            let kind = if is_little { u16::from_le_bytes([low, high]) } else { u16::from_be_bytes([low, high]) };
            self.each(at, 4, 2);
            self.each(at + 8, 2, 2);
            at += if LOGGED_OBJECT_TYPES.contains(&kind) { OBJECT_ENTRY_BYTES } else { ENTRY_BYTES };
        }
    }

    /// Extended attributes; returns where they end.
    fn attributes(&mut self, at: usize) -> usize {
        let words = (self.half(at) as usize).clamp(1, 64);
        let has_project = self.half(at + 4) & ATTRIBUTE_PROJECT != 0;
        let values = at + size_of::<AttrPhys>() + 4 * (words - 1);
        self.each(at, 4, 1 + words);
        self.words(values, ATTRIBUTE_WORDS + usize::from(has_project));
        values + 8 * ATTRIBUTE_WORDS + STAMP_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A part of a record, as a machine writes it.
    enum Part {
        Word(u64),
        Half(u32),
        Short(u16),
        Raw(&'static [u8]),
    }
    use Part::{Half, Raw, Short, Word};

    /// A record in both byte orders.
    fn both(kind: RecordType, body: &[Part]) -> [Vec<u8>; 2] {
        [false, true].map(|big| {
            let put = |out: &mut Vec<u8>, part: &Part| match (part, big) {
                (Word(number), false) => out.extend(number.to_le_bytes()),
                (Word(number), true) => out.extend(number.to_be_bytes()),
                (Half(number), false) => out.extend(number.to_le_bytes()),
                (Half(number), true) => out.extend(number.to_be_bytes()),
                (Short(number), false) => out.extend(number.to_le_bytes()),
                (Short(number), true) => out.extend(number.to_be_bytes()),
                (Raw(bytes), _) => out.extend(*bytes),
            };
            let mut rest = Vec::new();
            body.iter().for_each(|part| put(&mut rest, part));
            rest.resize(rest.len().next_multiple_of(8), 0);
            let mut out = Vec::new();
            for number in [kind as u64, 32 + rest.len() as u64, 0x0102_0304, 0x0506_0708] {
                put(&mut out, &Word(number));
            }
            out.extend(rest);
            out
        })
    }

    fn words(count: u64) -> Vec<Part> {
        (1..=count).map(|number| Word(number * 0x0101_0203_0405_0607)).collect()
    }

    fn attributes() -> Vec<Part> {
        // Two words of bitmap, one of them with the project; its words; the project; the rest of the stamp.
        let mut parts = vec![Half(2), Half(ATTRIBUTE_PROJECT | 0x40), Half(0x1020_3040)];
        parts.extend([Word(0x40), Word(1_600_000_000), Word(123_456_789), Word(4711), Raw(&[0; 24])]);
        parts
    }

    fn entries() -> Vec<Part> {
        let mut parts = Vec::new();
        for kind in [0u16, 5, 1] {
            parts.extend([Half(1000), Half(0x001f_01ff), Short(0x40), Short(kind)]);
            if kind == 5 {
                parts.push(Raw(b"sixteen bytes...and other sixteen"[..32].as_ref()));
            }
        }
        parts
    }

    /// Numbers of the list: entries, domains, FUIDs, bytes, flags.
    fn list_numbers() -> [Part; 5] {
        [Word(3), Word(0), Word(2), Word(12 + 44 + 12), Word(0x0102)]
    }

    fn after_entries() -> Vec<Part> {
        vec![Raw(&[0; 4]), Word(0x11_0000_0022), Word(0x33_0000_0044)]
    }

    fn all() -> Vec<[Vec<u8>; 2]> {
        use RecordType as T;
        let name = || vec![Raw(b"name\0target\0")];
        let joined = |parts: Vec<Vec<Part>>| parts.into_iter().flatten().collect::<Vec<_>>();
        let mut all = Vec::new();
        for kind in [T::Create, T::MakeDir, T::MakeXattrDir, T::Symlink] {
            all.push(both(kind, &joined(vec![words(9), name()])));
        }
        for kind in [T::CreateAttr, T::MakeDirAttr] {
            all.push(both(kind, &joined(vec![words(9), attributes(), name()])));
        }
        for kind in [T::CreateAcl, T::MakeDirAcl] {
            all.push(both(kind, &joined(vec![words(9), list_numbers().into(), entries(), after_entries(), name()])));
        }
        for kind in [T::CreateAclAttr, T::MakeDirAclAttr] {
            // The bitmap of three words and its length are whole words together.
            let mut extended = attributes();
            extended[0] = Half(3);
            extended.insert(3, Half(0x5060_7080));
            all.push(both(kind, &joined(vec![words(9), list_numbers().into(), extended, entries(), after_entries(), name()])));
        }
        for (kind, count) in [(T::Remove, 1), (T::RemoveDir, 1), (T::Link, 2), (T::Rename, 2), (T::RenameExchange, 2), (T::RenameWhiteout, 10)] {
            all.push(both(kind, &joined(vec![words(count), name()])));
        }
        for kind in [T::Write, T::Write2] {
            all.push(both(kind, &joined(vec![words(20), vec![Raw(b"data that stay as they are")]])));
        }
        all.push(both(T::Truncate, &words(3)));
        all.push(both(T::SetAttr, &words(10)));
        let mut extended = words(10);
        extended[1] = Word(SET_ATTR_EXTENDED | 3);
        all.push(both(T::SetAttr, &joined(vec![extended, attributes()])));
        all.push(both(T::SetSaXattr, &joined(vec![words(2), vec![Raw(b"user.name\0value")]])));
        let old = [[Half(5), Half(6), Short(7), Short(0)], [Half(8), Half(9), Short(10), Short(1)]];
        all.push(both(T::AclV0, &joined(vec![vec![Word(77), Word(2)], old.into_iter().flatten().collect()])));
        all.push(both(T::Acl, &joined(vec![vec![Word(77)], list_numbers().into(), entries(), after_entries()])));
        all.push(both(T::CloneRange, &joined(vec![vec![Word(7), Word(8), Word(9), Word(10), Word(2)], words(32)])));
        all
    }

    #[test]
    fn each_type_is_swapped_as_its_numbers_are() {
        let all = all();
        for [little, big] in &all {
            let kind = little[0];
            assert!(little != big, "{kind}");
            assert_eq!(from_big_endian(big), *little, "type {kind}");
            assert_eq!(to_big_endian(little), *big, "type {kind}");
        }
        let kinds: std::collections::BTreeSet<u8> = all.iter().map(|[little, _]| little[0]).collect();
        let known = (1..64).filter(|number| RecordType::from_number(*number).is_some()).count();
        assert_eq!(kinds.len(), known, "each type is here");
        let joined = |which: usize| all.iter().flat_map(|pair| pair[which].clone()).collect::<Vec<u8>>();
        assert_eq!(from_big_endian(&joined(1)), joined(0));
    }

    /// Whatever the bytes are: an end, and as many bytes.
    #[test]
    fn damaged_records_are_survived() {
        let whole: Vec<u8> = all().iter().flat_map(|pair| pair[1].clone()).collect();
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                assert_eq!(from_big_endian(&bytes).len(), bytes.len());
            }
            assert_eq!(from_big_endian(&whole[..at]).len(), at);
        }
    }
}
