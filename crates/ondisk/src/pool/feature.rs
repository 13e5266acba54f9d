//! Feature flags: one table.
//!
//! # Theory
//! Since version 5000 a pool has no version that grows but a set of features, each with a guid that says who made it
//! up and a reference count in the pool: 0 is *enabled*, more is *active* (something on disk is in the new form).
//! A program may write a pool if it knows every active feature; it may read it if it knows all but those that are
//! compatible for reading. What it does not know, it names. The table says what this program can do with each.
//!
//! # On disk
//! The MOS has three ZAPs: `features_for_read`, `features_for_write` (those compatible for reading) and
//! `feature_descriptions`; all from guid. Features without which not even the MOS can be read are named in the labels
//! too, while they are active.

use bitflags::bitflags;

bitflags! {
    /// The attributes of a feature.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct FeatureFlags: u8 {
        /// The pool can be read by a program that does not know the feature.
        #[doc(alias = "ZFEATURE_FLAG_READONLY_COMPAT")]
        const READ_ONLY_COMPATIBLE = 1;
        /// Needed to read the MOS, so the labels name it while it is active.
        const MOS = 2;
        /// Enabled is active.
        const ACTIVATE_ON_ENABLE = 4;
        /// Each dataset that uses it says so; the reference count is the number of such datasets.
        const PER_DATASET = 8;
        /// Enabled by `zpool upgrade` only if asked for by name.
        const NO_UPGRADE = 16;
        /// What a dataset says is a list of numbers rather than its presence.
        const UINT64_ARRAY = 32;
    }
}

/// The support of this program for pools in which a feature is active.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Support {
    /// Nothing.
    None,
    /// Read them.
    Read,
    /// Write them too, and keep right what is in the feature's form; but not begin to use it: new pools do not get it.
    Maintain,
    /// Read and write them, and use the feature.
    ReadWrite,
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct FeatureInfo {
    /// Which feature it is.
    pub feature: Feature,
    /// The name that users see, as in `feature@lz4_compress`.
    #[doc(alias = "fi_uname")]
    pub name: &'static str,
    /// The name on disk.
    #[doc(alias = "fi_guid")]
    pub guid: &'static str,
    /// Its attributes.
    pub flags: FeatureFlags,
    /// The features that have to be enabled with it.
    pub depends_on: &'static [Feature],
    /// What this program can do with it.
    pub support: Support,
    /// One line for users.
    pub description: &'static str,
}

/// The features of OpenZFS 2.4, in its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Feature {
    AsyncDestroy,
    EmptyBpobj,
    Lz4Compress,
    MultiVdevCrashDump,
    SpacemapHistogram,
    EnabledTxg,
    HoleBirth,
    ExtensibleDataset,
    EmbeddedData,
    Bookmarks,
    FilesystemLimits,
    LargeBlocks,
    LargeDnode,
    Sha512,
    Skein,
    Edonr,
    UserobjAccounting,
    Encryption,
    ProjectQuota,
    DeviceRemoval,
    ObsoleteCounts,
    PoolCheckpoint,
    SpacemapV2,
    AllocationClasses,
    ResilverDefer,
    BookmarkV2,
    RedactionBookmarks,
    RedactedDatasets,
    BookmarkWritten,
    LogSpacemap,
    Livelist,
    DeviceRebuild,
    ZstdCompress,
    Draid,
    Zilsaxattr,
    HeadErrlog,
    Blake3,
    BlockCloning,
    VdevZapsV2,
    RedactionListSpill,
    RaidzExpansion,
    FastDedup,
    Longname,
    LargeMicrozap,
    DynamicGangHeader,
    BlockCloningEndian,
    PhysicalRewrite,
}

/// How many features there are.
pub const FEATURES: usize = 47;

/// A row, written as it reads in the table below.
macro_rules! row {
    ($feature:ident, $name:literal, $guid:literal, [$($flag:ident)*], [$($dep:ident)*], $support:ident, $text:literal) => {
        FeatureInfo {
            feature: Feature::$feature,
            name: $name,
            guid: $guid,
            flags: FeatureFlags::empty()$(.union(FeatureFlags::$flag))*,
            depends_on: &[$(Feature::$dep),*],
            support: Support::$support,
            description: $text,
        }
    };
}

/// The table, indexed by `Feature as usize`.
#[rustfmt::skip]
pub static FEATURE_TABLE: [FeatureInfo; FEATURES] = [
    row!(AsyncDestroy, "async_destroy", "com.delphix:async_destroy", [READ_ONLY_COMPATIBLE], [], ReadWrite,
         "Destroys datasets in the background"),
    row!(EmptyBpobj, "empty_bpobj", "com.delphix:empty_bpobj", [READ_ONLY_COMPATIBLE], [], ReadWrite,
         "Snapshots share one empty list of blocks"),
    row!(Lz4Compress, "lz4_compress", "org.illumos:lz4_compress", [ACTIVATE_ON_ENABLE], [], ReadWrite,
         "LZ4 compression"),
    row!(MultiVdevCrashDump, "multi_vdev_crash_dump", "com.joyent:multi_vdev_crash_dump", [], [], ReadWrite,
         "Crash dumps to pools of several vdevs"),
    row!(SpacemapHistogram, "spacemap_histogram", "com.delphix:spacemap_histogram", [READ_ONLY_COMPATIBLE], [], ReadWrite,
         "Space maps keep a histogram of their free segments"),
    row!(EnabledTxg, "enabled_txg", "com.delphix:enabled_txg", [READ_ONLY_COMPATIBLE], [], ReadWrite,
         "Records in which txg a feature was enabled"),
    row!(HoleBirth, "hole_birth", "com.delphix:hole_birth", [MOS ACTIVATE_ON_ENABLE], [EnabledTxg], ReadWrite,
         "Holes know when they were made, for smaller incremental streams"),
    row!(ExtensibleDataset, "extensible_dataset", "com.delphix:extensible_dataset", [], [], ReadWrite,
         "Datasets can have more fields, which other features need"),
    row!(EmbeddedData, "embedded_data", "com.delphix:embedded_data", [MOS ACTIVATE_ON_ENABLE], [], ReadWrite,
         "Tiny blocks live in their block pointer"),
    row!(Bookmarks, "bookmarks", "com.delphix:bookmarks", [READ_ONLY_COMPATIBLE], [ExtensibleDataset], ReadWrite,
         "Bookmarks: the source of an incremental stream without its snapshot"),
    row!(FilesystemLimits, "filesystem_limits", "com.joyent:filesystem_limits", [READ_ONLY_COMPATIBLE], [ExtensibleDataset], ReadWrite,
         "Limits on the number of file systems and snapshots"),
    row!(LargeBlocks, "large_blocks", "org.open-zfs:large_blocks", [PER_DATASET], [ExtensibleDataset], ReadWrite,
         "Blocks larger than 128 KiB"),
    row!(LargeDnode, "large_dnode", "org.zfsonlinux:large_dnode", [PER_DATASET], [ExtensibleDataset], ReadWrite,
         "Dnodes larger than 512 bytes"),
    row!(Sha512, "sha512", "org.illumos:sha512", [PER_DATASET], [ExtensibleDataset], ReadWrite,
         "SHA-512/256 checksums"),
    row!(Skein, "skein", "org.illumos:skein", [PER_DATASET], [ExtensibleDataset], ReadWrite,
         "Skein checksums"),
    row!(Edonr, "edonr", "org.illumos:edonr", [PER_DATASET], [ExtensibleDataset], ReadWrite,
         "Edon-R checksums"),
    row!(UserobjAccounting, "userobj_accounting", "org.zfsonlinux:userobj_accounting", [READ_ONLY_COMPATIBLE PER_DATASET], [ExtensibleDataset], ReadWrite,
         "Counts each user's and group's objects"),
    row!(Encryption, "encryption", "com.datto:encryption", [PER_DATASET], [ExtensibleDataset BookmarkV2], ReadWrite,
         "Encrypted datasets"),
    row!(ProjectQuota, "project_quota", "org.zfsonlinux:project_quota", [READ_ONLY_COMPATIBLE PER_DATASET], [ExtensibleDataset], ReadWrite,
         "Accounting and quotas by project"),
    row!(DeviceRemoval, "device_removal", "com.delphix:device_removal", [MOS], [], ReadWrite,
         "Top-level vdevs can be removed"),
    row!(ObsoleteCounts, "obsolete_counts", "com.delphix:obsolete_counts", [READ_ONLY_COMPATIBLE], [ExtensibleDataset DeviceRemoval], ReadWrite,
         "Removed vdevs take less memory as their blocks are freed"),
    row!(PoolCheckpoint, "zpool_checkpoint", "com.delphix:zpool_checkpoint", [READ_ONLY_COMPATIBLE], [], ReadWrite,
         "The pool's state can be kept, to go back to it later"),
    row!(SpacemapV2, "spacemap_v2", "com.delphix:spacemap_v2", [READ_ONLY_COMPATIBLE ACTIVATE_ON_ENABLE], [], ReadWrite,
         "Space maps store large segments in fewer bytes"),
    row!(AllocationClasses, "allocation_classes", "org.zfsonlinux:allocation_classes", [READ_ONLY_COMPATIBLE], [], ReadWrite,
         "Vdevs for metadata, small blocks or deduplication tables alone"),
    row!(ResilverDefer, "resilver_defer", "com.datto:resilver_defer", [READ_ONLY_COMPATIBLE], [], ReadWrite,
         "A second resilver waits for the first"),
    row!(BookmarkV2, "bookmark_v2", "com.datto:bookmark_v2", [], [ExtensibleDataset Bookmarks], ReadWrite,
         "Bookmarks with more fields"),
    row!(RedactionBookmarks, "redaction_bookmarks", "com.delphix:redaction_bookmarks", [], [BookmarkV2 ExtensibleDataset Bookmarks], ReadWrite,
         "Bookmarks that hold the list of redacted blocks"),
    row!(RedactedDatasets, "redacted_datasets", "com.delphix:redacted_datasets", [PER_DATASET UINT64_ARRAY], [ExtensibleDataset], ReadWrite,
         "Datasets received from a redacted stream"),
    row!(BookmarkWritten, "bookmark_written", "com.delphix:bookmark_written", [], [BookmarkV2 ExtensibleDataset Bookmarks], ReadWrite,
         "Knows how much was written since a bookmark"),
    row!(LogSpacemap, "log_spacemap", "com.delphix:log_spacemap", [READ_ONLY_COMPATIBLE], [SpacemapV2], ReadWrite,
         "Logs the changes of all metaslabs in one space map per txg"),
    row!(Livelist, "livelist", "com.delphix:livelist", [READ_ONLY_COMPATIBLE], [ExtensibleDataset], ReadWrite,
         "Clones know their own blocks and are destroyed faster"),
    row!(DeviceRebuild, "device_rebuild", "org.openzfs:device_rebuild", [READ_ONLY_COMPATIBLE], [], ReadWrite,
         "Mirrors and dRAID can be rebuilt sequentially"),
    row!(ZstdCompress, "zstd_compress", "org.freebsd:zstd_compress", [PER_DATASET], [ExtensibleDataset], ReadWrite,
         "Zstandard compression"),
    row!(Draid, "draid", "org.openzfs:draid", [MOS], [], ReadWrite,
         "dRAID: RAID with distributed spares"),
    row!(Zilsaxattr, "zilsaxattr", "org.openzfs:zilsaxattr", [READ_ONLY_COMPATIBLE PER_DATASET], [ExtensibleDataset], ReadWrite,
         "The intent log records extended attributes kept with the file"),
    row!(HeadErrlog, "head_errlog", "com.delphix:head_errlog", [ACTIVATE_ON_ENABLE], [], ReadWrite,
         "The log of damaged blocks is kept by dataset"),
    row!(Blake3, "blake3", "org.openzfs:blake3", [PER_DATASET], [ExtensibleDataset], ReadWrite,
         "BLAKE3 checksums"),
    row!(BlockCloning, "block_cloning", "com.fudosecurity:block_cloning", [READ_ONLY_COMPATIBLE], [], ReadWrite,
         "Files can share blocks"),
    row!(VdevZapsV2, "vdev_zaps_v2", "com.klarasystems:vdev_zaps_v2", [MOS], [], ReadWrite,
         "The root vdev has a ZAP for its properties"),
    row!(RedactionListSpill, "redaction_list_spill", "com.delphix:redaction_list_spill", [], [RedactionBookmarks], ReadWrite,
         "Redaction with more snapshots than fit a bonus buffer"),
    row!(RaidzExpansion, "raidz_expansion", "org.openzfs:raidz_expansion", [MOS], [], ReadWrite,
         "RAIDZ vdevs can get one disk more"),
    row!(FastDedup, "fast_dedup", "com.klarasystems:fast_dedup", [READ_ONLY_COMPATIBLE], [], Maintain,
         "Deduplication tables with a log and flat entries"),
    row!(Longname, "longname", "org.zfsonlinux:longname", [PER_DATASET], [ExtensibleDataset], ReadWrite,
         "File names of up to 1023 bytes"),
    row!(LargeMicrozap, "large_microzap", "com.klarasystems:large_microzap", [READ_ONLY_COMPATIBLE PER_DATASET], [ExtensibleDataset LargeBlocks], ReadWrite,
         "Micro ZAPs larger than 128 KiB"),
    row!(DynamicGangHeader, "dynamic_gang_header", "com.klarasystems:dynamic_gang_header", [MOS NO_UPGRADE], [], Maintain,
         "Gang headers as large as the sectors they lie in"),
    row!(BlockCloningEndian, "block_cloning_endian", "com.truenas:block_cloning_endian", [READ_ONLY_COMPATIBLE], [], ReadWrite,
         "Clone counts are stored as numbers, not as bytes"),
    row!(PhysicalRewrite, "physical_rewrite", "com.truenas:physical_rewrite", [READ_ONLY_COMPATIBLE PER_DATASET], [ExtensibleDataset], ReadWrite,
         "Blocks rewritten in another place keep their logical birth"),
];

impl Feature {
    /// The feature's row.
    pub fn info(self) -> &'static FeatureInfo {
        &FEATURE_TABLE[self as usize]
    }

    /// The name on disk.
    pub fn guid(self) -> &'static str {
        self.info().guid
    }

    /// The name that users see.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// Whether a pool with this feature active can be read without knowing it.
    pub fn is_read_only_compatible(self) -> bool {
        self.info().flags.contains(FeatureFlags::READ_ONLY_COMPATIBLE)
    }

    /// The feature of this name on disk.
    pub fn from_guid(guid: &str) -> Option<Feature> {
        FEATURE_TABLE.iter().find(|row| row.guid == guid).map(|row| row.feature)
    }

    /// The feature that users call so.
    pub fn from_name(name: &str) -> Option<Feature> {
        FEATURE_TABLE.iter().find(|row| row.name == name).map(|row| row.feature)
    }

    /// All features in their order.
    pub fn all() -> impl Iterator<Item = Feature> {
        FEATURE_TABLE.iter().map(|row| row.feature)
    }

    /// The features that a new pool gets: those that this program can write, with all they depend on.
    pub fn for_new_pools() -> impl Iterator<Item = Feature> {
        FEATURE_TABLE.iter().filter(|row| row.support == Support::ReadWrite).map(|row| row.feature)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_indexed_by_feature() {
        for (index, row) in FEATURE_TABLE.iter().enumerate() {
            assert_eq!(row.feature as usize, index, "{}", row.name);
            assert_eq!(Feature::from_guid(row.guid), Some(row.feature));
            assert_eq!(Feature::from_name(row.name), Some(row.feature));
            assert!(row.guid.ends_with(&format!(":{}", row.name)));
        }
        assert_eq!(Feature::from_guid("com.example:none"), None);
    }

    #[test]
    fn flags_and_dependencies_make_sense() {
        for row in &FEATURE_TABLE {
            let flags = row.flags;
            assert!(!flags.contains(FeatureFlags::MOS | FeatureFlags::READ_ONLY_COMPATIBLE), "{}", row.name);
            if flags.contains(FeatureFlags::PER_DATASET) {
                assert!(row.depends_on.contains(&Feature::ExtensibleDataset), "{}", row.name);
            }
            for dependency in row.depends_on {
                assert!(dependency.info().support >= row.support, "{} needs {}", row.name, dependency.name());
            }
        }
    }
}
