//! What a dataset's properties mean for its blocks.

use ondisk::object_type::ObjectType;

use crate::arc::CachePolicy;

/// `ZIO_CHECKSUM_FLETCHER_4`.
const FLETCHER4: u8 = 7;
/// `ZIO_COMPRESS_LZ4`.
const LZ4: u8 = 15;
/// `ZIO_COMPRESS_LZJB`.
const LZJB: u8 = 3;
/// `ZIO_COMPRESS_OFF`.
pub(super) const COMPRESS_OFF: u8 = 2;
/// `ZIO_COMPRESS_EMPTY`: zeros become holes.
const COMPRESS_EMPTY: u8 = 4;

/// The property `redundant_metadata`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedundantMetadata {
    /// One more copy of all metadata.
    All,
    /// One more copy of metadata that would lose much: not of the lowest indirect blocks.
    Most,
    /// One more copy of critical metadata only.
    Some,
    /// None.
    None,
}

/// The property `direct`: which requests for contents go around the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[doc(alias = "os_direct")]
pub enum Direct {
    /// None.
    Disabled,
    /// Those that ask for it (`O_DIRECT`).
    #[default]
    Standard,
    /// All that can.
    Always,
}

impl Direct {
    /// The value of the property that has this number.
    pub fn from_number(number: u64) -> Direct {
        match number {
            0 => Direct::Disabled,
            2 => Direct::Always,
            _ => Direct::Standard,
        }
    }
}

/// What becomes of the contents that one request reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caching {
    /// They stay in memory, as long as others need its room less.
    Usual,
    /// They do not: see `blocks/direct.rs`.
    Around,
}

/// The owners of a file: for the accounting of used space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileOwner {
    /// User id.
    pub user: u64,
    /// Group id.
    pub group: u64,
    /// Project id.
    pub project: u64,
}

/// Finds the owner in an object's bonus; `None` if it is no file.
pub type FileOwnerOf = fn(bonus_type: ObjectType, bonus: &[u8]) -> Option<FileOwner>;

/// What a dataset's properties mean for its blocks. Ids are resolved: never `inherit` or `on`.
#[derive(Debug, Clone, Copy)]
pub struct ObjsetSettings {
    /// `ZIO_CHECKSUM_*` for data.
    pub checksum: u8,
    /// `ZIO_COMPRESS_*` for data.
    pub compression: u8,
    /// zstd level for data.
    pub compression_level: u8,
    /// Copies of data.
    pub copies: u8,
    /// Largest physical size of blocks of files that go to special devices (`special_small_blocks`); 0: none do.
    pub small_bytes: u64,
    /// Copies of metadata.
    pub redundant_metadata: RedundantMetadata,
    /// Largest block of a new file.
    pub record_bytes: u64,
    /// The pool has the feature lz4_compress: metadata is compressed with it (else lzjb).
    pub lz4_metadata: bool,
    /// Blocks are encrypted, and written as a sender has them.
    pub is_encrypted: bool,
    /// The pool's own object set: three copies of everything.
    pub is_mos: bool,
    /// Extra slots of new dnodes (property `dnodesize`), in bytes; 0 is the old 512.
    pub dnode_bytes: u64,
    /// Which blocks are kept, in memory and on cache devices.
    pub cache: CachePolicy,
    /// Which requests go around the cache.
    pub direct: Direct,
}

impl ObjsetSettings {
    /// Those of the MOS.
    pub fn mos(lz4: bool) -> Self {
        ObjsetSettings {
            checksum: FLETCHER4,
            compression: if lz4 { LZ4 } else { LZJB },
            compression_level: 0,
            copies: 3,
            small_bytes: 0,
            redundant_metadata: RedundantMetadata::All,
            record_bytes: 128 << 10,
            lz4_metadata: lz4,
            is_encrypted: false,
            is_mos: true,
            dnode_bytes: 512,
            cache: CachePolicy::default(),
            direct: Direct::default(),
        }
    }

    /// Those of a dataset without properties.
    pub fn dataset_default(lz4: bool) -> Self {
        ObjsetSettings { copies: 1, is_mos: false, ..Self::mos(lz4) }
    }
}

/// How one block is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WritePolicy {
    pub(super) checksum: u8,
    pub(super) compression: u8,
    pub(super) compression_level: u8,
    pub(super) copies: u8,
    pub(super) small_bytes: u64,
}

/// Checksums that detect corruption well enough for metadata (`ZCHECKSUM_FLAG_METADATA`).
fn good_for_metadata(checksum: u8) -> bool {
    matches!(checksum, 7 | 8 | 11 | 12 | 13 | 14)
}

/// How to write a block of an object of `object_type` at `level` (`dmu_write_policy`). `own_*` are the dnode's overrides.
pub(super) fn write_policy(
    settings: &ObjsetSettings,
    object_type: ObjectType,
    level: u8,
    spill: bool,
    own_checksum: u8,
    own_compression: u8,
) -> WritePolicy {
    let metadata = level > 0 || object_type.is_metadata() || spill;
    let checksum = if own_checksum > 1 { own_checksum } else { settings.checksum };
    let (mut checksum, mut compression, mut copies) = (checksum, settings.compression, settings.copies);
    if metadata {
        compression = if settings.lz4_metadata { LZ4 } else { LZJB };
        if !good_for_metadata(checksum) {
            checksum = FLETCHER4;
        }
        let one_more = match settings.redundant_metadata {
            RedundantMetadata::All => true,
            RedundantMetadata::Most => level >= 2 || object_type.is_metadata() || spill,
            RedundantMetadata::Some => object_type.is_critical(level),
            RedundantMetadata::None => false,
        };
        copies += u8::from(one_more);
    } else if own_compression > 1 {
        compression = own_compression;
    }
    if settings.is_encrypted {
        // The third place is taken in pointers to what is encrypted; dnodes are never compressed there.
        copies = copies.min(2);
        if level == 0 && matches!(object_type, ObjectType::DNODE | ObjectType::OBJSET) {
            compression = COMPRESS_EMPTY;
        }
    }
    if settings.is_mos && own_compression == COMPRESS_OFF && level == 0 {
        compression = COMPRESS_OFF;
    }
    WritePolicy { checksum, compression, compression_level: settings.compression_level, copies: copies.min(3), small_bytes: settings.small_bytes }
}
