//! Access control lists: entries in the two stored forms, and the list that says what a mode says.
//!
//! # Theory
//! Version 0 entries are 12 bytes. Version 1 entries are 8 bytes for the owner, the group and everyone, 16 for named users and
//! groups, and 48 for the object entries of CIFS. A file that has nothing but a mode still has a list: the *trivial* one that
//! [`trivial`] makes. The mode can be computed back from a list ([`mode`]).
//!
//! # Invariants
//! 1. `mode(trivial(m)) == m` for every mode m.

use crate::corruption::Corruption;

/// Version of lists before POSIX layer version 3.
#[doc(alias = "ZFS_ACL_VERSION_INITIAL")]
pub const VERSION_0: u16 = 0;
/// Version of lists since.
#[doc(alias = "ZFS_ACL_VERSION_FUID")]
pub const VERSION_1: u16 = 1;
/// Entry type: the permissions are given.
pub const ALLOW: u16 = 0;
/// Entry type: the permissions are refused.
pub const DENY: u16 = 1;

/// Entry flag: files in the directory inherit the entry.
pub const FILE_INHERIT: u16 = 0x1;
/// Entry flag: directories in the directory inherit the entry.
pub const DIRECTORY_INHERIT: u16 = 0x2;
/// Entry flag: inherited once only.
pub const NO_PROPAGATE: u16 = 0x4;
/// Entry flag: only inherited, not in force here.
pub const INHERIT_ONLY: u16 = 0x8;
/// Entry flag: the subject is a group.
pub const IDENTIFIER_GROUP: u16 = 0x40;
/// Entry flag: came by inheritance.
pub const INHERITED: u16 = 0x80;
/// Entry flag: for the file's owner.
pub const OWNER: u16 = 0x1000;
/// Entry flag, with [`IDENTIFIER_GROUP`]: for the file's group.
pub const GROUP: u16 = 0x2000;
/// Entry flag: for everyone.
pub const EVERYONE: u16 = 0x4000;
/// For the file's group.
pub const OWNING_GROUP: u16 = GROUP | IDENTIFIER_GROUP;
const WHO_FLAGS: u16 = OWNER | GROUP | EVERYONE | IDENTIFIER_GROUP;
const INHERIT_FLAGS: u16 = FILE_INHERIT | DIRECTORY_INHERIT | NO_PROPAGATE | INHERIT_ONLY;

const READ_DATA: u32 = 0x1;
const WRITE_DATA: u32 = 0x2;
const APPEND_DATA: u32 = 0x4;
const READ_NAMED: u32 = 0x8;
const WRITE_NAMED: u32 = 0x10;
const EXECUTE: u32 = 0x20;
const DELETE_CHILD: u32 = 0x40;
const READ_ATTRIBUTES: u32 = 0x80;
const WRITE_ATTRIBUTES: u32 = 0x100;
const DELETE: u32 = 0x1_0000;
const READ_ACL: u32 = 0x2_0000;
const WRITE_ACL: u32 = 0x4_0000;
const WRITE_OWNER: u32 = 0x8_0000;
const SYNCHRONIZE: u32 = 0x10_0000;

const EVERYONE_MAY: u32 = READ_ACL | READ_ATTRIBUTES | READ_NAMED | SYNCHRONIZE;
const OWNER_MAY: u32 = EVERYONE_MAY | WRITE_ATTRIBUTES | WRITE_OWNER | WRITE_ACL | WRITE_NAMED;

const OBJECT_TYPES: std::ops::RangeInclusive<u16> = 5..=OBJECT_TYPES_LAST;
const OBJECT_TYPES_LAST: u16 = 8;
/// Types of entries that have two object types, in records of the intent log too.
pub const LOGGED_OBJECT_TYPES: std::ops::RangeInclusive<u16> = OBJECT_TYPES;

/// One entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessEntry {
    /// [`ALLOW`], [`DENY`], or a type that is only kept.
    #[doc(alias = "z_type")]
    pub kind: u16,
    /// For whom, and how it is inherited.
    #[doc(alias = "z_flags")]
    pub flags: u16,
    /// The permissions.
    #[doc(alias = "z_access_mask")]
    pub mask: u32,
    /// User or group, if it is neither owner, owning group nor everyone.
    #[doc(alias = "z_fuid")]
    pub who: u64,
    /// The object types of a CIFS object entry.
    pub object_types: Option<[u8; 32]>,
}

impl AccessEntry {
    const fn new(kind: u16, flags: u16, mask: u32) -> Self {
        AccessEntry { kind, flags, mask, who: u64::MAX, object_types: None }
    }

    /// True for owner, owning group and everyone.
    pub const fn is_abstract(&self) -> bool {
        matches!(self.flags & WHO_FLAGS, OWNER | OWNING_GROUP | EVERYONE)
    }

    /// Bytes of the entry in version 1.
    pub fn size(&self) -> usize {
        if OBJECT_TYPES.contains(&self.kind) {
            48
        } else if self.kind <= DENY && self.is_abstract() {
            8
        } else {
            16
        }
    }
}

/// Decodes a list. Bytes after `count` entries are ignored.
pub fn decode(version: u16, count: usize, bytes: &[u8]) -> Result<Vec<AccessEntry>, Corruption> {
    let mut entries = Vec::with_capacity(count.min(bytes.len() / 8));
    let mut rest = bytes;
    let short = || Corruption::new("ACL", "size", bytes.len() as u64);
    for _ in 0..count {
        let (entry, size) = match version {
            VERSION_0 => (decode_v0(rest).ok_or_else(short)?, 12),
            VERSION_1 => {
                let entry = decode_v1(rest).ok_or_else(short)?;
                (entry, entry.size())
            }
            other => return Err(Corruption::new("ACL", "version", u64::from(other))),
        };
        entries.push(entry);
        rest = rest.get(size..).ok_or_else(short)?;
    }
    Ok(entries)
}

/// Decodes the list in a record of the intent log. There entries are as system calls pass them, whatever the list's version: 12 bytes,
/// and 44 with object types.
pub fn decode_logged(count: usize, bytes: &[u8]) -> Result<Vec<AccessEntry>, Corruption> {
    let mut entries = Vec::with_capacity(count.min(bytes.len() / 12));
    let mut rest = bytes;
    let short = || Corruption::new("ACL", "size", bytes.len() as u64);
    for _ in 0..count {
        let mut entry = decode_v0(rest).ok_or_else(short)?;
        rest = rest.get(12..).ok_or_else(short)?;
        if OBJECT_TYPES.contains(&entry.kind) {
            entry.object_types = Some(field(rest, 0).ok_or_else(short)?);
            rest = rest.get(32..).ok_or_else(short)?;
        }
        entries.push(entry);
    }
    Ok(entries)
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn decode_v0(bytes: &[u8]) -> Option<AccessEntry> {
    let flags = u16::from_le_bytes(field(bytes, 8)?);
    let mut entry = AccessEntry::new(u16::from_le_bytes(field(bytes, 10)?), flags, u32::from_le_bytes(field(bytes, 4)?));
    if !entry.is_abstract() {
        entry.who = u64::from(u32::from_le_bytes(field(bytes, 0)?));
    }
    Some(entry)
}

fn decode_v1(bytes: &[u8]) -> Option<AccessEntry> {
    let (kind, flags) = (u16::from_le_bytes(field(bytes, 0)?), u16::from_le_bytes(field(bytes, 2)?));
    let mut entry = AccessEntry::new(kind, flags, u32::from_le_bytes(field(bytes, 4)?));
    if entry.size() > 8 {
        entry.who = u64::from_le_bytes(field(bytes, 8)?);
    }
    if entry.size() > 16 {
        entry.object_types = Some(field(bytes, 16)?);
    }
    Some(entry)
}

/// Encodes a list.
pub fn encode(version: u16, entries: &[AccessEntry]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(entries.len() * 16);
    for entry in entries {
        if version == VERSION_0 {
            let who = if entry.is_abstract() { 0 } else { entry.who as u32 };
            bytes.extend_from_slice(&who.to_le_bytes());
            bytes.extend_from_slice(&entry.mask.to_le_bytes());
            bytes.extend_from_slice(&entry.flags.to_le_bytes());
            bytes.extend_from_slice(&entry.kind.to_le_bytes());
            continue;
        }
        bytes.extend_from_slice(&entry.kind.to_le_bytes());
        bytes.extend_from_slice(&entry.flags.to_le_bytes());
        bytes.extend_from_slice(&entry.mask.to_le_bytes());
        if entry.size() > 8 {
            bytes.extend_from_slice(&entry.who.to_le_bytes());
        }
        if entry.size() > 16 {
            bytes.extend_from_slice(&entry.object_types.unwrap_or([0; 32]));
        }
    }
    bytes
}

/// Turns version 1 entries from the other byte order, in place.
pub fn swap_entries(bytes: &mut [u8]) {
    let mut at = 0;
    while let Some(head) = bytes.get_mut(at..at + 8) {
        for range in [0..2, 2..4, 4..8] {
            if let Some(integer) = head.get_mut(range) {
                integer.reverse();
            }
        }
        let size = decode_v1(&[&*head, &[0; 40]].concat()).map_or(8, |entry| entry.size());
        if size > 8
            && let Some(who) = bytes.get_mut(at + 8..at + 16)
        {
            who.reverse();
        }
        at += size;
    }
}

/// The permissions that the three bits `rwx` of a mode give.
fn permissions(rwx: u64, directory: bool) -> u32 {
    let write = WRITE_DATA | APPEND_DATA | if directory { DELETE_CHILD } else { 0 };
    [(4, READ_DATA), (2, write), (1, EXECUTE)].into_iter().filter(|(bit, _)| rwx & bit != 0).fold(0, |mask, (_, more)| mask | more)
}

/// The entries that replace those of a mode, before and after the entries that a list keeps.
struct ModeEntries {
    before: Vec<AccessEntry>,
    after: [AccessEntry; 3],
    group_mask: u32,
}

fn mode_entries(mode: u64, directory: bool) -> ModeEntries {
    let (user, group, other) = (mode >> 6 & 7, mode >> 3 & 7, mode & 7);
    // Rights that only others have are denied to the group; rights that the group or others have, to the owner.
    // Rights of the owner and others that the group lacks are given to the owner first.
    let before = [
        (ALLOW, OWNER, permissions(user & !group & other, directory)),
        (DENY, OWNER, permissions(!user & (group | other), directory)),
        (DENY, OWNING_GROUP, permissions(!group & other, directory)),
    ];
    let group_mask = EVERYONE_MAY | permissions(group, directory);
    ModeEntries {
        before: before.into_iter().filter(|(_, _, mask)| *mask != 0).map(|(kind, flags, mask)| AccessEntry::new(kind, flags, mask)).collect(),
        after: [
            AccessEntry::new(ALLOW, OWNER, OWNER_MAY | permissions(user, directory)),
            AccessEntry::new(ALLOW, OWNING_GROUP, group_mask),
            AccessEntry::new(ALLOW, EVERYONE, EVERYONE_MAY | permissions(other, directory)),
        ],
        group_mask,
    }
}

/// The list that says what `mode` says.
pub fn trivial(mode: u64, directory: bool) -> Vec<AccessEntry> {
    let ModeEntries { mut before, after, .. } = mode_entries(mode, directory);
    before.extend(after);
    before
}

/// `entries` after a change of the mode that keeps what the mode does not say.
///
/// With `split`, the entries for owner, group and everyone go, or stay for inheritance only; with `trim`, permissions of others
/// are cut to those of the group.
pub fn change_mode(entries: &[AccessEntry], mode: u64, directory: bool, split: bool, trim: bool) -> Vec<AccessEntry> {
    let ModeEntries { before: mut changed, after, group_mask } = mode_entries(mode, directory);
    for entry in entries {
        let mut entry = *entry;
        if split && entry.is_abstract() {
            if !directory || entry.flags & (FILE_INHERIT | DIRECTORY_INHERIT) == 0 {
                continue;
            }
            entry.flags |= INHERIT_ONLY;
        }
        if trim && entry.kind == ALLOW && entry.flags & INHERIT_ONLY == 0 {
            entry.mask &= group_mask;
        }
        changed.push(entry);
    }
    changed.extend(after);
    changed
}

/// Property `aclmode`: what a change of the mode does to the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModeRule {
    /// It becomes what the mode says.
    Discard,
    /// It stays beside what the mode says, cut to what the group may.
    GroupMask,
    /// It stays beside what the mode says.
    Passthrough,
    /// The mode of a file whose list says more than a mode cannot be changed.
    Restricted,
}

impl ModeRule {
    /// From the number of the property; what is unknown is the default.
    pub fn from_number(number: u64) -> Self {
        match number {
            2 => ModeRule::GroupMask,
            3 => ModeRule::Passthrough,
            4 => ModeRule::Restricted,
            _ => ModeRule::Discard,
        }
    }
}

/// Property `aclinherit`: what a new file takes of the list of its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InheritRule {
    /// Nothing.
    Discard,
    /// Refusals only.
    NoAllow,
    /// All but the right to change owner and list.
    Restricted,
    /// All; where the list has entries for owner, group or everyone, they decide the mode.
    Passthrough,
    /// As [`InheritRule::Passthrough`], but a file can be executed only if it is made so.
    PassthroughExecute,
}

impl InheritRule {
    /// From the number of the property; what is unknown is the default.
    pub fn from_number(number: u64) -> Self {
        match number {
            0 => InheritRule::Discard,
            1 => InheritRule::NoAllow,
            3 => InheritRule::Passthrough,
            5 => InheritRule::PassthroughExecute,
            _ => InheritRule::Restricted,
        }
    }

    fn passes(self) -> bool {
        matches!(self, InheritRule::Passthrough | InheritRule::PassthroughExecute)
    }
}

/// The type of a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Child {
    /// A directory.
    Directory,
    /// A file with contents.
    Regular,
    /// A symbolic link, which inherits nothing.
    SymbolicLink,
    /// Anything else.
    Other,
}

/// The list of a file made with `mode` in a directory whose list is `parent`, and whether the mode had its say in it.
pub fn begin(parent: &[AccessEntry], child: Child, mode: u64, inheriting: InheritRule, changing: ModeRule) -> (Vec<AccessEntry>, bool) {
    let directory = child == Child::Directory;
    let mut entries = match child {
        Child::SymbolicLink => Vec::new(),
        _ => inherit(parent, directory, mode, inheriting),
    };
    let decides = |entry: &AccessEntry| {
        entry.kind <= OBJECT_TYPES_LAST
            && (entry.flags & (OWNER | EVERYONE) != 0 || entry.flags & OWNING_GROUP == OWNING_GROUP)
            && (child == Child::Regular && entry.flags & FILE_INHERIT != 0 || directory && entry.flags & DIRECTORY_INHERIT != 0)
    };
    let list_decides = inheriting.passes() && child != Child::SymbolicLink && parent.iter().any(decides);
    if list_decides || (changing == ModeRule::Restricted && !entries.is_empty()) {
        return (entries, false);
    }
    let trim = changing == ModeRule::GroupMask && !inheriting.passes();
    entries = change_mode(&entries, mode, directory, false, trim);
    (entries, true)
}

/// The entries of a directory's list that a child inherits: the entries that apply to it, marked as inherited.
fn inherit(parent: &[AccessEntry], directory: bool, mode: u64, rule: InheritRule) -> Vec<AccessEntry> {
    let applies = |entry: &&AccessEntry| {
        rule != InheritRule::Discard
            && !(rule == InheritRule::NoAllow && entry.kind == ALLOW)
            && entry.kind <= OBJECT_TYPES_LAST
            && entry.flags & if directory { FILE_INHERIT | DIRECTORY_INHERIT } else { FILE_INHERIT } != 0
            && !(directory && entry.flags & DIRECTORY_INHERIT == 0 && entry.flags & NO_PROPAGATE != 0)
    };
    let child = |entry: &AccessEntry| {
        let mut entry = *entry;
        if entry.kind == ALLOW && rule == InheritRule::Restricted {
            entry.mask &= !(WRITE_ACL | WRITE_OWNER);
        }
        if entry.kind == ALLOW && rule == InheritRule::PassthroughExecute && !directory && mode & 0o111 == 0 {
            entry.mask &= !EXECUTE;
        }
        if !directory || entry.flags & NO_PROPAGATE != 0 {
            entry.flags &= !INHERIT_FLAGS;
        } else if entry.flags & DIRECTORY_INHERIT == 0 {
            entry.flags |= INHERIT_ONLY;
        } else {
            entry.flags &= !INHERIT_ONLY;
        }
        entry.flags |= INHERITED;
        entry
    };
    parent.iter().filter(applies).map(child).collect()
}

/// The permission bits that a list amounts to for the file's owner, its group and others, and whether everyone may execute.
pub fn mode(entries: &[AccessEntry], uid: u64, gid: u64) -> (u64, bool) {
    let (mut seen, mut mode, mut refused) = (0u64, 0u64, false);
    for entry in entries.iter().filter(|entry| entry.flags & INHERIT_ONLY == 0) {
        let rwx = [(READ_DATA, 4), (WRITE_DATA, 2), (EXECUTE, 1)].into_iter().filter(|(bit, _)| entry.mask & bit != 0).fold(0, |rwx, (_, bit)| rwx | bit);
        let bits = match entry.flags & WHO_FLAGS {
            OWNER => rwx << 6,
            0 if entry.who == uid => rwx << 6,
            OWNING_GROUP => rwx << 3,
            IDENTIFIER_GROUP if entry.who == gid => rwx << 3,
            EVERYONE => rwx << 6 | rwx << 3 | rwx,
            _ => {
                refused |= entry.mask & EXECUTE != 0 && entry.kind == DENY;
                continue;
            }
        };
        if entry.kind == ALLOW {
            mode |= bits & !seen;
        }
        seen |= bits;
    }
    (mode, !refused && mode & 0o111 == 0o111)
}

/// True if the list says no more than a mode can.
pub fn is_trivial(entries: &[AccessEntry]) -> bool {
    entries.iter().all(|entry| {
        let owners = WRITE_OWNER | WRITE_ACL | WRITE_ATTRIBUTES | WRITE_NAMED;
        entry.is_abstract()
            && entry.flags & INHERIT_FLAGS == 0
            && !(entry.kind == DENY && entry.mask & (READ_ACL | READ_ATTRIBUTES) != 0)
            && entry.mask & DELETE == 0
            && !(entry.mask & DELETE_CHILD != 0 && entry.mask & WRITE_DATA == 0)
            && !(entry.kind == ALLOW && entry.flags & OWNER == 0 && entry.mask & owners != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records of the log were read as if lists there were stored as in files.
    #[test]
    fn lists_in_records_are_as_system_calls_pass_them() {
        let mut bytes = Vec::new();
        for (who, mask, flags, kind) in [(u32::MAX, 0x1f, OWNER, ALLOW), (1000, 0x3, 0, 5), (1001, 0x7, IDENTIFIER_GROUP, DENY)] {
            bytes.extend([&who.to_le_bytes()[..], &u32::to_le_bytes(mask), &flags.to_le_bytes(), &kind.to_le_bytes()].concat());
            if kind == 5 {
                bytes.extend([9; 32]);
            }
        }
        let list = decode_logged(3, &bytes).unwrap();
        let found: Vec<_> = list.iter().map(|entry| (entry.kind, entry.flags, entry.mask, entry.who)).collect();
        assert_eq!(found, [(ALLOW, OWNER, 0x1f, u64::MAX), (5, 0, 0x3, 1000), (DENY, IDENTIFIER_GROUP, 0x7, 1001)]);
        assert_eq!(list[1].object_types, Some([9; 32]));
        assert!(decode_logged(4, &bytes).is_err() && decode_logged(2, &bytes[..40]).is_err());
    }
    use proptest::prelude::*;

    #[test]
    fn every_mode_comes_back_from_its_list() {
        for bits in 0..0o1000u64 {
            for directory in [false, true] {
                let list = trivial(bits, directory);
                assert_eq!(mode(&list, 1, 1), (bits, bits & 0o111 == 0o111), "mode {bits:o}");
                assert!(is_trivial(&list), "mode {bits:o}");
                assert_eq!(decode(VERSION_1, list.len(), &encode(VERSION_1, &list)).unwrap(), list);
                assert_eq!(decode(VERSION_0, list.len(), &encode(VERSION_0, &list)).unwrap(), list);
            }
        }
    }

    #[test]
    fn the_list_of_0644_is_the_known_one() {
        let bytes = encode(VERSION_1, &trivial(0o644, false));
        let mut expected = Vec::new();
        for (flags, mask) in [(0x1000u16, 0x001e_019fu32), (0x2040, 0x0012_0089), (0x4000, 0x0012_0089)] {
            expected.extend_from_slice(&[0, 0]);
            expected.extend_from_slice(&flags.to_le_bytes());
            expected.extend_from_slice(&mask.to_le_bytes());
        }
        assert_eq!(bytes, expected);
    }

    #[test]
    fn a_change_of_mode_keeps_named_entries() {
        let named = AccessEntry { who: 1000, ..AccessEntry::new(ALLOW, 0, READ_DATA | WRITE_DATA) };
        let mut list = trivial(0o644, false);
        list.insert(0, named);
        assert!(!is_trivial(&list));
        let changed = change_mode(&list, 0o600, false, true, false);
        assert_eq!(changed.len(), 4);
        assert!(changed.contains(&named));
        assert_eq!(mode(&changed, 1, 1).0, 0o600);
        let trimmed = change_mode(&list, 0o640, false, true, true);
        assert_eq!(trimmed[0].mask, READ_DATA);
    }

    #[test]
    fn a_child_inherits_without_the_right_to_give_away() {
        let entry = AccessEntry { who: 7, ..AccessEntry::new(ALLOW, FILE_INHERIT, READ_DATA | WRITE_ACL) };
        let inherit = |parent: &[AccessEntry], directory| inherit(parent, directory, 0o644, InheritRule::Restricted);
        let file = inherit(&[entry], false);
        assert_eq!((file[0].mask, file[0].flags), (READ_DATA, INHERITED));
        let directory = inherit(&[entry], true);
        assert_eq!(directory[0].flags, FILE_INHERIT | INHERIT_ONLY | INHERITED);
        assert!(inherit(&trivial(0o755, true), false).is_empty());
    }

    #[test]
    fn the_rules_of_inheritance_differ() {
        let everyone = AccessEntry::new(ALLOW, EVERYONE | FILE_INHERIT, READ_DATA | EXECUTE | WRITE_OWNER);
        let refusal = AccessEntry { who: 7, ..AccessEntry::new(DENY, FILE_INHERIT, READ_DATA) };
        let parent = [everyone, refusal];
        let begin = |rule, changing| begin(&parent, Child::Regular, 0o640, rule, changing);
        let masks = |rule| inherit(&parent, false, 0o640, rule).iter().map(|entry| entry.mask).collect::<Vec<_>>();
        assert_eq!(masks(InheritRule::Discard), []);
        assert_eq!(masks(InheritRule::NoAllow), [READ_DATA]);
        assert_eq!(masks(InheritRule::Restricted), [READ_DATA | EXECUTE, READ_DATA]);
        assert_eq!(masks(InheritRule::Passthrough), [everyone.mask, READ_DATA]);
        assert_eq!(masks(InheritRule::PassthroughExecute), [READ_DATA | WRITE_OWNER, READ_DATA]);
        // Only where the list has its say is the mode not what was asked for.
        assert_eq!(mode(&begin(InheritRule::Discard, ModeRule::Discard).0, 1, 1), (0o640, false));
        let (list, by_mode) = begin(InheritRule::Passthrough, ModeRule::Discard);
        assert_eq!((mode(&list, 1, 1).0, by_mode, list.len()), (0o555, false, 2));
        assert!(!begin(InheritRule::Restricted, ModeRule::Restricted).1);
        assert!(super::begin(&parent, Child::SymbolicLink, 0o777, InheritRule::Passthrough, ModeRule::Discard).1);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(version in 0u16..3, count in 0usize..100, mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(version, count, &bytes);
            swap_entries(&mut bytes);
        }

        #[test]
        fn swapping_twice_changes_nothing_in_a_list(bits in 0u64..0o1000) {
            let bytes = encode(VERSION_1, &trivial(bits, true));
            let mut swapped: Vec<u8> = bytes.chunks(8).flat_map(|e| [e[1], e[0], e[3], e[2], e[7], e[6], e[5], e[4]]).collect();
            swap_entries(&mut swapped);
            prop_assert_eq!(swapped, bytes);
        }
    }
}
