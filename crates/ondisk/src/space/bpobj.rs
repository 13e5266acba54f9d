//! Lists of block pointers on disk: the bpobj, and the bptree of destroyed datasets.
//!
//! # Theory
//! A bpobj is an object whose data is an array of block pointers, and whose bonus buffer counts them and their space.
//! So that a long list can join another in constant time, it may refer to other bpobjs, listed in a second object.
//! The bonus buffer grew three times; its size says which fields there are.
//!
//! A bptree is a queue of roots: each entry is the root block of a destroyed dataset, and how far its blocks have been freed.

use crate::blkptr::BlkPtr;
use crate::corruption::Corruption;
use zerocopy::little_endian::{I64, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bonus size of pools before version 10 (`compressed_bytes` and what follows are missing).
pub const BPOBJ_SIZE_V0: usize = 16;
/// Bonus size of pools before version 26 (`sub_objects` and what follows are missing).
pub const BPOBJ_SIZE_V1: usize = 32;
/// Bonus size of pools without livelists (`freed_count` is missing).
pub const BPOBJ_SIZE_V2: usize = 48;
/// Bonus size of pools in which the feature `livelist` is active.
pub const BPOBJ_SIZE_V3: usize = 56;

/// The bonus buffer of a bpobj.
#[doc(alias = "bpobj_phys_t")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct BpobjPhys {
    /// How many block pointers the object itself has.
    #[doc(alias = "bpo_num_blkptrs")]
    pub count: U64,
    /// Bytes on disk (deflated), with the sub-objects'.
    #[doc(alias = "bpo_bytes")]
    pub bytes: U64,
    /// Bytes after compression, with the sub-objects'.
    #[doc(alias = "bpo_comp")]
    pub compressed_bytes: U64,
    /// Bytes before compression, with the sub-objects'.
    #[doc(alias = "bpo_uncomp")]
    pub uncompressed_bytes: U64,
    /// The object that lists the sub-objects as an array of `u64`; 0 if there are none.
    #[doc(alias = "bpo_subobjs")]
    pub sub_objects: U64,
    /// How many sub-objects.
    #[doc(alias = "bpo_num_subobjs")]
    pub sub_object_count: U64,
    /// Livelists only: how many of `count` say that a block was freed.
    #[doc(alias = "bpo_num_freed")]
    pub freed_count: U64,
}
const _: () = assert!(size_of::<BpobjPhys>() == BPOBJ_SIZE_V3);

/// Which fields a bpobj's bonus buffer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BpobjVersion {
    /// Count and bytes.
    V0,
    /// Also compressed and uncompressed bytes.
    V1,
    /// Also sub-objects.
    V2,
    /// Also the count of freed entries.
    V3,
}

impl BpobjVersion {
    /// What a bonus buffer of this many bytes has.
    pub fn from_bonus_size(bytes: usize) -> Result<Self, Corruption> {
        match bytes {
            BPOBJ_SIZE_V0 => Ok(BpobjVersion::V0),
            BPOBJ_SIZE_V1 => Ok(BpobjVersion::V1),
            BPOBJ_SIZE_V2 => Ok(BpobjVersion::V2),
            BPOBJ_SIZE_V3.. => Ok(BpobjVersion::V3),
            _ => Err(Corruption::new("bpobj", "bonus length", bytes as u64)),
        }
    }

    /// The size of its bonus buffer in bytes.
    pub const fn bonus_size(self) -> usize {
        match self {
            BpobjVersion::V0 => BPOBJ_SIZE_V0,
            BpobjVersion::V1 => BPOBJ_SIZE_V1,
            BpobjVersion::V2 => BPOBJ_SIZE_V2,
            BpobjVersion::V3 => BPOBJ_SIZE_V3,
        }
    }
}

impl BpobjPhys {
    /// Reads a bonus buffer of any of the sizes; fields it does not have are 0.
    pub fn from_bonus(bonus: &[u8]) -> Result<(Self, BpobjVersion), Corruption> {
        let version = BpobjVersion::from_bonus_size(bonus.len())?;
        let mut whole = [0u8; BPOBJ_SIZE_V3];
        for (to, from) in whole.iter_mut().zip(bonus) {
            *to = *from;
        }
        Ok((zerocopy::transmute!(whole), version))
    }

    /// The bytes of its bonus buffer.
    pub fn to_bonus(&self, version: BpobjVersion) -> Vec<u8> {
        self.as_bytes().iter().copied().take(version.bonus_size()).collect()
    }

    /// Whether it has neither block pointers nor sub-objects.
    pub fn is_empty(&self) -> bool {
        self.count.get() == 0 && self.sub_object_count.get() == 0
    }
}

/// Of an entry in a livelist: the block was freed, not allocated. It is the lowest bit of the fill count, which lists do not keep.
const ENTRY_FREED: u64 = 1;
/// Where a block pointer's properties, logical birth, fill count and checksum are.
const PROPERTIES: std::ops::Range<usize> = 0x30..0x38;
const LOGICAL_BIRTH: std::ops::Range<usize> = 0x50..0x58;
const FILL: std::ops::Range<usize> = 0x58..0x60;
const CHECKSUM: std::ops::Range<usize> = 0x60..0x80;

fn copy(to: &mut [u8], from: &[u8], range: std::ops::Range<usize>) {
    if let (Some(to), Some(from)) = (to.get_mut(range.clone()), from.get(range)) {
        to.copy_from_slice(from);
    }
}

/// What a list keeps of a block pointer: what freeing needs. The rest is zero, so that lists compress well.
pub fn listed(bp: &BlkPtr, freed: bool) -> [u8; size_of::<BlkPtr>()] {
    let (mut kept, zeros) = (*bp.as_bytes(), [0; size_of::<BlkPtr>()]);
    if bp.is_embedded() {
        kept = zeros;
        copy(&mut kept, bp.as_bytes(), PROPERTIES);
        copy(&mut kept, bp.as_bytes(), LOGICAL_BIRTH);
    } else if !bp.is_dedup() {
        copy(&mut kept, &zeros, CHECKSUM);
    }
    let mut fill = zeros;
    if let Some(place) = fill.get_mut(FILL) {
        place.copy_from_slice(&u64::from(freed).to_le_bytes());
    }
    copy(&mut kept, &fill, FILL);
    kept
}

/// Whether an entry of a livelist says that the block was freed.
pub fn entry_is_freed(entry: &BlkPtr) -> bool {
    entry.as_bytes().get(FILL.start).is_some_and(|low| u64::from(*low) & ENTRY_FREED != 0)
}

/// The bonus buffer of a bptree. Its object is an array of [`BptreeEntryPhys`].
#[doc(alias = "bptree_phys_t")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct BptreePhys {
    /// The first entry that is not done.
    #[doc(alias = "bt_begin")]
    pub begin: U64,
    /// One past the last entry.
    #[doc(alias = "bt_end")]
    pub end: U64,
    /// Bytes on disk (deflated) still to free.
    #[doc(alias = "bt_bytes")]
    pub bytes: U64,
    /// Bytes after compression still to free.
    #[doc(alias = "bt_comp")]
    pub compressed_bytes: U64,
    /// Bytes before compression still to free.
    #[doc(alias = "bt_uncomp")]
    pub uncompressed_bytes: U64,
}
const _: () = assert!(size_of::<BptreePhys>() == 40);

impl BptreePhys {
    /// Reads the record at the start of a bonus buffer.
    pub fn from_bonus(bonus: &[u8]) -> Result<Self, Corruption> {
        let (tree, _) = Self::read_from_prefix(bonus)
            .map_err(|_| Corruption::new("bptree", "bonus length", bonus.len() as u64))?;
        if tree.begin.get() > tree.end.get() {
            return Err(Corruption::new("bptree", "begin", tree.begin.get()));
        }
        Ok(tree)
    }
}

/// The address of a block by what it belongs to.
#[doc(alias = "zbookmark_phys_t")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct BlockBookmarkPhys {
    /// The dataset's object, or [`DESTROYED_OBJSET`].
    #[doc(alias = "zb_objset")]
    pub objset: U64,
    /// The object.
    #[doc(alias = "zb_object")]
    pub object: U64,
    /// The level of indirection; negative levels are the intent log and the object set itself.
    #[doc(alias = "zb_level")]
    pub level: I64,
    /// The block within the level.
    #[doc(alias = "zb_blkid")]
    pub block: U64,
}
const _: () = assert!(size_of::<BlockBookmarkPhys>() == 32);

/// `BlockBookmarkPhys::objset` while the blocks of a destroyed dataset are freed.
pub const DESTROYED_OBJSET: u64 = u64::MAX;

/// One destroyed dataset.
#[doc(alias = "bptree_entry_phys_t")]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct BptreeEntryPhys {
    /// The object set.
    #[doc(alias = "be_bp")]
    pub block: BlkPtr,
    /// Only blocks born after this txg are to be freed; `u64::MAX`: nothing is left to free.
    #[doc(alias = "be_birth_txg")]
    pub birth_txg: U64,
    /// Where to go on.
    #[doc(alias = "be_zb")]
    pub resume: BlockBookmarkPhys,
}
const _: () = assert!(size_of::<BptreeEntryPhys>() == 168);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bonus_size_has_its_fields() {
        let whole: Vec<u8> = (1u8..=7).flat_map(|n| u64::from(n).to_le_bytes()).collect();
        for (size, version) in [
            (BPOBJ_SIZE_V0, BpobjVersion::V0),
            (BPOBJ_SIZE_V1, BpobjVersion::V1),
            (BPOBJ_SIZE_V2, BpobjVersion::V2),
            (BPOBJ_SIZE_V3, BpobjVersion::V3),
        ] {
            let (record, found) = BpobjPhys::from_bonus(&whole[..size]).expect("a size that exists");
            assert_eq!(found, version);
            assert_eq!(record.to_bonus(version), &whole[..size]);
            assert_eq!(record.sub_object_count.get(), if version >= BpobjVersion::V2 { 6 } else { 0 });
        }
        assert!(BpobjPhys::from_bonus(&whole[..40]).is_err());
        assert!(BpobjPhys::from_bonus(&[]).is_err());
    }

    #[test]
    fn entries_keep_what_freeing_needs() {
        let bytes: Vec<u8> = (0..128u8).map(|n| n | 1).collect();
        let mut bytes: [u8; 128] = bytes.try_into().expect("128");
        bytes[0x30 + 4] = 0; // not embedded
        bytes[0x30 + 7] = 0; // no dedup, no encryption
        let bp = BlkPtr::from_bytes(&bytes).expect("any bytes");
        let entry = listed(&bp, false);
        assert_eq!(entry[..0x58], bytes[..0x58]);
        assert_eq!(entry[0x58..], [0; 0x28]);
        let freed = BlkPtr::from_bytes(&listed(&bp, true)).expect("any bytes");
        assert!(entry_is_freed(&freed));
        assert!(!entry_is_freed(&BlkPtr::from_bytes(&entry).expect("any bytes")));
        bytes[0x30 + 4] = 0x80; // embedded
        let bp = BlkPtr::from_bytes(&bytes).expect("any bytes");
        let entry = listed(&bp, false);
        assert_eq!(entry[..0x30], [0; 0x30]);
        assert_eq!(entry[0x30..0x38], bytes[0x30..0x38]);
        assert_eq!(entry[0x50..0x58], bytes[0x50..0x58]);
        assert_eq!(entry[0x58..], [0; 0x28]);
    }

    #[test]
    fn a_bptree_does_not_end_before_it_begins() {
        let tree = BptreePhys { begin: 3.into(), end: 2.into(), ..Default::default() };
        assert!(BptreePhys::from_bonus(tree.as_bytes()).is_err());
    }
}
