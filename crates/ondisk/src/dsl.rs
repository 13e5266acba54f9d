//! DSL directories and datasets: the records that make a tree of file systems out of objects of the MOS.
//!
//! # Theory
//! A *directory* is a node in the tree of names: it has a parent, children, properties, and it sums up the space of everything
//! below it. A *dataset* is one version of one file system or volume: the live one (its directory's head) or a snapshot.
//! Both records are the bonus buffer of an object in the MOS; with the feature `extensible_dataset` the object itself is a ZAP
//! which holds whatever came after the fixed record was full. The keys of those ZAPs are in [`dir_field`] and [`dataset_field`].
//!
//! # On disk
//! Little-endian here, as everywhere in this crate: the engine swaps big-endian blocks before it hands them out.

use crate::blkptr::BlkPtr;
use crate::corruption::Corruption;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The kind of consumer that a directory's space belongs to: the index into [`DirPhys::used_breakdown`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UsedKind {
    /// The live dataset.
    Head = 0,
    /// Blocks only snapshots still refer to.
    Snapshot = 1,
    /// The directories below.
    Child = 2,
    /// The unused reservations of the directories below.
    ChildReservation = 3,
    /// The unused reservation of the live dataset itself.
    RefReservation = 4,
}

/// How many [`UsedKind`]s there are.
pub const USED_KINDS: usize = 5;

/// `DirPhys::flags`: `used_breakdown` is maintained.
pub const DIR_FLAG_USED_BREAKDOWN: u64 = 1 << 0;

/// The bonus buffer of a DSL directory.
#[doc(alias = "dsl_dir_phys_t")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DirPhys {
    /// Seconds since 1970.
    #[doc(alias = "dd_creation_time")]
    pub creation_time: U64,
    /// The live dataset; 0 for `$MOS` and `$FREE`.
    #[doc(alias = "dd_head_dataset_obj")]
    pub head_dataset: U64,
    /// The directory above; 0 for the root.
    #[doc(alias = "dd_parent_obj")]
    pub parent: U64,
    /// The snapshot this directory's head was cloned from; 0 if it was not.
    #[doc(alias = "dd_origin_obj")]
    pub origin: U64,
    /// ZAP: name to directory object.
    #[doc(alias = "dd_child_dir_zapobj")]
    pub child_dirs: U64,
    /// Bytes on disk (deflated) of this directory and all below, with unused reservations.
    #[doc(alias = "dd_used_bytes")]
    pub used_bytes: U64,
    /// Bytes after compression.
    #[doc(alias = "dd_compressed_bytes")]
    pub compressed_bytes: U64,
    /// Bytes before compression.
    #[doc(alias = "dd_uncompressed_bytes")]
    pub uncompressed_bytes: U64,
    /// The property `quota`; 0 is none.
    #[doc(alias = "dd_quota")]
    pub quota: U64,
    /// The property `reservation`; 0 is none.
    #[doc(alias = "dd_reserved")]
    pub reserved: U64,
    /// ZAP: local and received properties.
    #[doc(alias = "dd_props_zapobj")]
    pub props: U64,
    /// ZAP: `zfs allow`.
    #[doc(alias = "dd_deleg_zapobj")]
    pub delegations: U64,
    /// [`DIR_FLAG_USED_BREAKDOWN`].
    #[doc(alias = "dd_flags")]
    pub flags: U64,
    /// `used_bytes` by [`UsedKind`].
    #[doc(alias = "dd_used_breakdown")]
    pub used_breakdown: [U64; USED_KINDS],
    /// ZAP: the directories cloned from `$ORIGIN` or from snapshots of this one. Keys are object numbers.
    #[doc(alias = "dd_clones")]
    pub clones: U64,
    /// Zero.
    pub padding: [U64; 13],
}
const _: () = assert!(size_of::<DirPhys>() == 256);

/// Keys of the ZAP of a directory that is one.
pub mod dir_field {
    /// How many file systems and volumes are below, with this one.
    pub const FILESYSTEM_COUNT: &str = "com.joyent:filesystem_count";
    /// How many snapshots are below, with this one's.
    pub const SNAPSHOT_COUNT: &str = "com.joyent:snapshot_count";
    /// The object with the wrapped master key.
    pub const CRYPTO_KEY: &str = "com.datto:crypto_key_obj";
    /// A clone's list of its own blocks.
    pub const LIVELIST: &str = "com.delphix:livelist";
    /// When a snapshot was last made, destroyed or renamed.
    pub const SNAPSHOTS_CHANGED: &str = "com.ixsystems:snapshots_changed";
}

/// Entries of the ZAP of a master key (`dir_field::CRYPTO_KEY`), beside the properties that say how it is wrapped.
pub mod crypto_field {
    /// Which cipher.
    pub const SUITE: &str = "DSL_CRYPTO_SUITE";
    /// Names the key.
    pub const GUID: &str = "DSL_CRYPTO_GUID";
    /// The directory whose user's key wraps this one.
    pub const ROOT_DIR: &str = "DSL_CRYPTO_ROOT_DDOBJ";
    /// How many directories use it: an origin and its clones share one.
    pub const REFERENCES: &str = "DSL_CRYPTO_REFCOUNT";
}

/// `DatasetPhys::flags`: being received or being destroyed; do not mount.
pub const DATASET_FLAG_INCONSISTENT: u64 = 1 << 0;
/// `DatasetPhys::flags`: must not be promoted.
pub const DATASET_FLAG_NO_PROMOTE: u64 = 1 << 1;
/// `DatasetPhys::flags`: `unique_bytes` of a head dataset is right.
pub const DATASET_FLAG_UNIQUE_ACCURATE: u64 = 1 << 2;
/// `DatasetPhys::flags`: destroy this snapshot when its last hold and clone have gone.
pub const DATASET_FLAG_DEFER_DESTROY: u64 = 1 << 3;
/// `DatasetPhys::flags`: names are looked up without regard to case.
pub const DATASET_FLAG_CASE_INSENSITIVE: u64 = 1 << 16;

/// The bonus buffer of a dataset.
#[doc(alias = "dsl_dataset_phys_t")]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DatasetPhys {
    /// The directory it belongs to.
    #[doc(alias = "ds_dir_obj")]
    pub dir: U64,
    /// The snapshot before this one; 0 if there is none.
    #[doc(alias = "ds_prev_snap_obj")]
    pub prev_snapshot: U64,
    /// The txg of the snapshot before this one. Blocks born later are this dataset's own.
    #[doc(alias = "ds_prev_snap_txg")]
    pub prev_snapshot_txg: U64,
    /// Of a snapshot: the snapshot or head after it. Of a head: 0.
    #[doc(alias = "ds_next_snap_obj")]
    pub next_snapshot: U64,
    /// Of a head: ZAP, snapshot name to dataset object. Of a snapshot: 0.
    #[doc(alias = "ds_snapnames_zapobj")]
    pub snapshot_names: U64,
    /// Of a snapshot: the next one and its clones. Of a head: 0.
    #[doc(alias = "ds_num_children")]
    pub children: U64,
    /// Seconds since 1970.
    #[doc(alias = "ds_creation_time")]
    pub creation_time: U64,
    /// The txg that made it.
    #[doc(alias = "ds_creation_txg")]
    pub creation_txg: U64,
    /// The deadlist: blocks the snapshot before still refers to, and this one does not.
    #[doc(alias = "ds_deadlist_obj")]
    pub deadlist: U64,
    /// Bytes on disk (deflated) of all blocks reachable from here, shared or not.
    #[doc(alias = "ds_referenced_bytes")]
    pub referenced_bytes: U64,
    /// The same after compression.
    #[doc(alias = "ds_compressed_bytes")]
    pub compressed_bytes: U64,
    /// The same before compression.
    #[doc(alias = "ds_uncompressed_bytes")]
    pub uncompressed_bytes: U64,
    /// Bytes on disk that would come free if this dataset went.
    #[doc(alias = "ds_unique_bytes")]
    pub unique_bytes: U64,
    /// 56 bits that identify the mounted file system; unique on one machine.
    #[doc(alias = "ds_fsid_guid")]
    pub fsid_guid: U64,
    /// 64 bits that identify this dataset for ever, in every pool it is sent to.
    #[doc(alias = "ds_guid")]
    pub guid: U64,
    /// `DATASET_FLAG_*`.
    #[doc(alias = "ds_flags")]
    pub flags: U64,
    /// The object set.
    #[doc(alias = "ds_bp")]
    pub block: BlkPtr,
    /// Of a snapshot: ZAP of the head datasets cloned from it. Keys are object numbers.
    #[doc(alias = "ds_next_clones_obj")]
    pub next_clones: U64,
    /// Of a snapshot: ZAP of its own properties.
    #[doc(alias = "ds_props_obj")]
    pub props: U64,
    /// Of a snapshot: ZAP of the holds on it.
    #[doc(alias = "ds_userrefs_obj")]
    pub user_holds: U64,
    /// Zero.
    pub padding: [U64; 5],
}
const _: () = assert!(size_of::<DatasetPhys>() == 320);

/// Keys of the ZAP of a dataset that is one. The guid of a feature that is active per dataset is a key too (value 0).
pub mod dataset_field {
    /// ZAP of bookmarks.
    pub const BOOKMARKS: &str = "com.delphix:bookmarks";
    /// There may be dnodes of more than 512 bytes.
    pub const LARGE_DNODE: &str = "org.zfsonlinux:large_dnode";
    /// A receive was interrupted: the guid of what it was incremental from.
    pub const RESUME_FROM_GUID: &str = "com.delphix:resume_fromguid";
    /// A receive was interrupted: the name sent.
    pub const RESUME_TO_NAME: &str = "com.delphix:resume_toname";
    /// A receive was interrupted: the guid of what was sent.
    pub const RESUME_TO_GUID: &str = "com.delphix:resume_toguid";
    /// A receive was interrupted: the object to go on with.
    pub const RESUME_OBJECT: &str = "com.delphix:resume_object";
    /// A receive was interrupted: the offset to go on at.
    pub const RESUME_OFFSET: &str = "com.delphix:resume_offset";
    /// A receive was interrupted: bytes received so far.
    pub const RESUME_BYTES: &str = "com.delphix:resume_bytes";
    /// The stream had large blocks.
    pub const RESUME_LARGE_BLOCK: &str = "com.delphix:resume_largeblockok";
    /// The stream had embedded blocks.
    pub const RESUME_EMBED: &str = "com.delphix:resume_embedok";
    /// The stream had compressed blocks.
    pub const RESUME_COMPRESS: &str = "com.delphix:resume_compressok";
    /// The stream was raw.
    pub const RESUME_RAW: &str = "com.datto:resume_rawok";
    /// The guids of the redaction snapshots of the bookmark that the interrupted receive is incremental from.
    pub const RESUME_REDACT_SNAPSHOTS: &str = "com.delphix:resume_redact_book_snaps";
    /// Deadlist of blocks moved by a device removal.
    pub const REMAP_DEADLIST: &str = "com.delphix:remap_deadlist";
    /// Identifies the set of IVs of an encrypted snapshot.
    pub const IVSET_GUID: &str = "com.datto:ivset_guid";
}

/// The bonus buffer of a deadlist. The object is a ZAP: previous-snapshot txg (hexadecimal) to bpobj.
#[doc(alias = "dsl_deadlist_phys_t")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DeadlistPhys {
    /// Bytes on disk (deflated).
    #[doc(alias = "dl_used")]
    pub used_bytes: U64,
    /// Bytes after compression.
    #[doc(alias = "dl_comp")]
    pub compressed_bytes: U64,
    /// Bytes before compression.
    #[doc(alias = "dl_uncomp")]
    pub uncompressed_bytes: U64,
    /// Zero.
    pub padding: [U64; 37],
}
const _: () = assert!(size_of::<DeadlistPhys>() == 320);

/// `BookmarkPhys::flags`: the `freed_before_next` counters are maintained.
pub const BOOKMARK_FLAG_HAS_FREED_BEFORE_NEXT: u64 = 1 << 0;
/// `BookmarkPhys::flags`: the snapshot still exists.
pub const BOOKMARK_FLAG_SNAPSHOT_EXISTS: u64 = 1 << 1;

/// How many words a bookmark has without `bookmark_v2`.
pub const BOOKMARK_WORDS_V1: usize = 3;

/// A bookmark: the value of an entry of the ZAP named by [`dataset_field::BOOKMARKS`], as an array of `u64`.
#[doc(alias = "zfs_bookmark_phys_t")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct BookmarkPhys {
    /// The snapshot's guid.
    #[doc(alias = "zbm_guid")]
    pub guid: U64,
    /// The snapshot's txg.
    #[doc(alias = "zbm_creation_txg")]
    pub creation_txg: U64,
    /// The snapshot's time.
    #[doc(alias = "zbm_creation_time")]
    pub creation_time: U64,
    /// The redaction list; 0 if it is no redaction bookmark.
    #[doc(alias = "zbm_redaction_obj")]
    pub redaction_list: U64,
    /// `BOOKMARK_FLAG_*`.
    #[doc(alias = "zbm_flags")]
    pub flags: U64,
    /// The blocks that the snapshot referred to: bytes on disk.
    #[doc(alias = "zbm_referenced_bytes_refd")]
    pub referenced_bytes: U64,
    /// The blocks that the snapshot referred to: bytes after compression.
    #[doc(alias = "zbm_compressed_bytes_refd")]
    pub compressed_bytes: U64,
    /// The blocks that the snapshot referred to: bytes before compression.
    #[doc(alias = "zbm_uncompressed_bytes_refd")]
    pub uncompressed_bytes: U64,
    /// Freed between this bookmark and the next snapshot: bytes on disk.
    #[doc(alias = "zbm_referenced_freed_before_next_snap")]
    pub referenced_freed_before_next: U64,
    /// Freed between this bookmark and the next snapshot: bytes after compression.
    #[doc(alias = "zbm_compressed_freed_before_next_snap")]
    pub compressed_freed_before_next: U64,
    /// Freed between this bookmark and the next snapshot: bytes before compression.
    #[doc(alias = "zbm_uncompressed_freed_before_next_snap")]
    pub uncompressed_freed_before_next: U64,
    /// Identifies the set of IVs of an encrypted snapshot.
    #[doc(alias = "zbm_ivset_guid")]
    pub ivset_guid: U64,
}
const _: () = assert!(size_of::<BookmarkPhys>() == 96);

impl BookmarkPhys {
    /// From the words of its ZAP entry; words an older pool does not have are 0.
    pub fn from_words(words: &[u64]) -> Result<Self, Corruption> {
        if words.len() < BOOKMARK_WORDS_V1 {
            return Err(Corruption::new("bookmark", "length", words.len() as u64));
        }
        let mut bookmark: BookmarkPhys = zerocopy::FromZeros::new_zeroed();
        for (to, from) in bookmark.as_mut_bytes().chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&from.to_le_bytes());
        }
        Ok(bookmark)
    }

    /// The words of its ZAP entry.
    pub fn to_words(&self) -> Vec<u64> {
        let (words, _) = self.as_bytes().as_chunks::<8>();
        words.iter().map(|word| u64::from_le_bytes(*word)).collect()
    }
}

/// The start of the bonus buffer of a redaction list; the guids of `snapshots` redaction snapshots follow.
#[doc(alias = "redaction_list_phys_t")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RedactionListPhys {
    /// How far the list is complete: object.
    #[doc(alias = "rlp_last_object")]
    pub last_object: U64,
    /// How far the list is complete: block.
    #[doc(alias = "rlp_last_blkid")]
    pub last_block: U64,
    /// How many [`RedactBlockPhys`] the object has.
    #[doc(alias = "rlp_num_entries")]
    pub entries: U64,
    /// How many guids follow.
    #[doc(alias = "rlp_num_snaps")]
    pub snapshots: U64,
}
const _: () = assert!(size_of::<RedactionListPhys>() == 32);

impl RedactionListPhys {
    /// The guids of the redaction snapshots, which follow it in the bonus buffer.
    pub fn snapshot_guids(bonus: &[u8]) -> Result<Vec<u64>, Corruption> {
        let count = Self::from_bonus(bonus)?.snapshots.get();
        let (guids, _) = bonus.get(size_of::<Self>()..).unwrap_or_default().as_chunks::<8>();
        let guids = usize::try_from(count).ok().and_then(|count| guids.get(..count)).ok_or(Corruption::new("redaction list", "snapshots", count))?;
        Ok(guids.iter().map(|guid| u64::from_le_bytes(*guid)).collect())
    }
}

/// One run of redacted blocks.
#[doc(alias = "redact_block_phys_t")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RedactBlockPhys {
    /// The object.
    #[doc(alias = "rbp_object")]
    pub object: U64,
    /// The first block.
    #[doc(alias = "rbp_blkid")]
    pub block: U64,
    /// Bits 0..48: how many blocks, less one; bits 48..64: their size in sectors of 512 bytes.
    #[doc(alias = "rbp_size_count")]
    pub size_and_count: U64,
    /// Zero.
    pub padding: U64,
}
const _: () = assert!(size_of::<RedactBlockPhys>() == 32);

impl RedactBlockPhys {
    /// The most blocks of one run.
    #[doc(alias = "REDACT_BLOCK_MAX_COUNT")]
    pub const COUNT_MAX: u64 = 1 << 48;

    /// `count` blocks of `block_bytes` each, from `block` on. At least one, and no more than [`Self::COUNT_MAX`].
    pub fn new(object: u64, block: u64, count: u64, block_bytes: u64) -> RedactBlockPhys {
        let size_and_count = (block_bytes >> 9) << 48 | (count.wrapping_sub(1) & (Self::COUNT_MAX - 1));
        RedactBlockPhys { object: object.into(), block: block.into(), size_and_count: size_and_count.into(), padding: 0.into() }
    }

    /// How many blocks.
    pub fn count(&self) -> u64 {
        (self.size_and_count.get() & ((1 << 48) - 1)) + 1
    }

    /// The size of a block in bytes.
    pub fn block_bytes(&self) -> u64 {
        (self.size_and_count.get() >> 48) << 9
    }
}

macro_rules! from_bonus {
    ($type:ty, $name:literal) => {
        impl $type {
            /// Reads the record at the start of a bonus buffer, or of what the object has, which may be longer.
            pub fn from_bonus(bonus: &[u8]) -> Result<Self, Corruption> {
                Self::read_from_prefix(bonus)
                    .map(|(record, _)| record)
                    .map_err(|_| Corruption::new($name, "bonus length", bonus.len() as u64))
            }
        }
    };
}
from_bonus!(RedactBlockPhys, "redacted range");
from_bonus!(DirPhys, "dsl directory");
from_bonus!(DatasetPhys, "dataset");
from_bonus!(DeadlistPhys, "deadlist");
from_bonus!(RedactionListPhys, "redaction list");

/// The key of a deadlist entry, or of any ZAP whose keys are numbers: hexadecimal without leading zeros.
pub fn number_key(number: u64) -> String {
    format!("{number:x}")
}

/// The number that [`number_key`] wrote.
pub fn parse_number_key(key: &str) -> Result<u64, Corruption> {
    let plain = !key.is_empty() && key.bytes().all(|b| b.is_ascii_hexdigit());
    let number = if plain { u64::from_str_radix(key, 16).ok() } else { None };
    number.ok_or(Corruption::new("number key", "length", key.len() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn fields_are_where_the_format_has_them() {
        assert_eq!(offset_of!(DirPhys, used_bytes), 40);
        assert_eq!(offset_of!(DirPhys, flags), 96);
        assert_eq!(offset_of!(DirPhys, used_breakdown), 104);
        assert_eq!(offset_of!(DirPhys, clones), 144);
        assert_eq!(offset_of!(DatasetPhys, deadlist), 64);
        assert_eq!(offset_of!(DatasetPhys, flags), 120);
        assert_eq!(offset_of!(DatasetPhys, block), 128);
        assert_eq!(offset_of!(DatasetPhys, next_clones), 256);
        assert_eq!(offset_of!(DatasetPhys, user_holds), 272);
        assert_eq!(offset_of!(BookmarkPhys, ivset_guid), 88);
    }

    #[test]
    fn number_keys_round_trip() {
        for number in [0, 1, 15, 16, 0xabc, u64::MAX] {
            assert_eq!(parse_number_key(&number_key(number)), Ok(number));
        }
        assert_eq!(number_key(0x2f), "2f");
        for bad in ["", "xyz", "+1", "11111111111111111"] {
            assert!(parse_number_key(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn short_records_are_refused() {
        assert!(DirPhys::from_bonus(&[0; 255]).is_err());
        assert!(DirPhys::from_bonus(&[0; 320]).is_ok());
        assert!(DatasetPhys::from_bonus(&[0; 319]).is_err());
        assert!(BookmarkPhys::from_words(&[1, 2]).is_err());
        let bookmark = BookmarkPhys::from_words(&[7, 8, 9]).expect("three words are enough");
        assert_eq!((bookmark.guid.get(), bookmark.creation_time.get(), bookmark.flags.get()), (7, 9, 0));
    }

    #[test]
    fn redacted_runs() {
        let run = RedactBlockPhys {
            object: 1.into(),
            block: 2.into(),
            size_and_count: (256 << 48 | 77).into(),
            padding: 0.into(),
        };
        // It says one less.
        assert_eq!((run.block_bytes(), run.count()), (131_072, 78));
        assert_eq!(RedactBlockPhys::new(1, 2, 78, 131_072), run);
    }
}
