//! From properties to how blocks are written, and how object sets are opened.

use std::sync::Arc;

use ondisk::feature::Feature;

use super::Dataset;
use crate::arc::{CachePolicy, Kept};
use crate::dmu::{Direct, FileOwnerOf, ObjsetOptions, ObjsetSettings, RedundantMetadata};
use crate::error::Result;

/// `checksum=on`.
const CHECKSUM_ON: u64 = 1;
/// What that means.
const CHECKSUM_FLETCHER4: u8 = 7;
/// `compression=on`.
const COMPRESSION_ON: u64 = 1;
/// What that means, with the feature `lz4_compress`, and without.
const COMPRESSION_LZ4: u8 = 15;
const COMPRESSION_LZJB: u8 = 3;
/// zstd, and its usual level.
const COMPRESSION_ZSTD: u8 = 16;
const ZSTD_LEVEL_DEFAULT: u8 = 3;
/// The level is above this bit in the property `compression`.
const LEVEL_SHIFT: u32 = 7;
/// `dnodesize=auto`.
const DNODE_SIZE_AUTO: u64 = 1;
/// What that means.
const DNODE_SIZE_AUTO_BYTES: u64 = 1024;

/// `checksum` as the number that goes into block pointers.
fn checksum(property: u64) -> u8 {
    if property == CHECKSUM_ON { CHECKSUM_FLETCHER4 } else { u8::try_from(property & 0xff).unwrap_or(CHECKSUM_FLETCHER4) }
}

/// `compression` as the number that goes into block pointers, and the level.
fn compression(property: u64, lz4: bool) -> (u8, u8) {
    let algorithm = (property & 0x7f) as u8;
    let level = ((property >> LEVEL_SHIFT) & 0xff) as u8;
    match algorithm {
        _ if property == COMPRESSION_ON => (if lz4 { COMPRESSION_LZ4 } else { COMPRESSION_LZJB }, 0),
        COMPRESSION_ZSTD if level == 0 => (COMPRESSION_ZSTD, ZSTD_LEVEL_DEFAULT),
        other => (other, level),
    }
}

impl Dataset {
    /// What its properties mean for blocks written from now on.
    pub fn settings(&self) -> Result<ObjsetSettings> {
        let values = self.property_values();
        let lz4 = self.meta().features.is_active(Feature::Lz4Compress);
        let (compression, compression_level) = compression(values.number_property("compression")?, lz4);
        Ok(ObjsetSettings {
            checksum: checksum(values.number_property("checksum")?),
            compression,
            compression_level,
            copies: values.number_property("copies")?.clamp(1, 3) as u8,
            small_bytes: values.number_property("special_small_blocks")?,
            redundant_metadata: match values.number_property("redundant_metadata")? {
                1 => RedundantMetadata::Most,
                2 => RedundantMetadata::Some,
                3 => RedundantMetadata::None,
                _ => RedundantMetadata::All,
            },
            record_bytes: values.number_property("recordsize")?.clamp(512, 16 << 20),
            lz4_metadata: lz4,
            is_encrypted: self.dir.crypto_key != 0,
            is_mos: false,
            dnode_bytes: match values.number_property("dnodesize")? {
                0 => 512,
                DNODE_SIZE_AUTO => DNODE_SIZE_AUTO_BYTES,
                bytes => bytes.clamp(512, 16 << 10),
            },
            cache: CachePolicy {
                primary: Kept::from_number(values.number_property("primarycache")?),
                secondary: Kept::from_number(values.number_property("secondarycache")?),
            },
            direct: Direct::from_number(values.number_property("direct")?),
        })
    }

    /// How to open its object set.
    pub(in crate::dsl) fn objset_options(self: &Arc<Self>, file_owner: Option<FileOwnerOf>) -> Result<ObjsetOptions> {
        Ok(ObjsetOptions {
            context: self.meta().context.clone(),
            dataset: self.object,
            name: self.name()?,
            owner: self.clone(),
            settings: self.settings()?,
            file_owner,
            snapshot: self.is_snapshot,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_numbers_of_block_pointers() {
        assert_eq!(checksum(1), 7);
        assert_eq!(checksum(14), 14);
        assert_eq!(compression(1, true), (15, 0));
        assert_eq!(compression(1, false), (3, 0));
        assert_eq!(compression(16, true), (16, 3));
        assert_eq!(compression(16 | 19 << 7, true), (16, 19));
        assert_eq!(compression(10, true), (10, 0));
    }
}
