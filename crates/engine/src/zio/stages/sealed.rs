//! How blocks of encrypted datasets are written without a key: as a sender has them.

use ondisk::algorithm::Compression;
use ondisk::blkptr::Secrets;

/// A block as it is on the disk of a sender: its bytes are neither compressed nor encrypted here.
#[derive(Debug, Clone)]
pub struct RawBlock {
    /// Bytes of its contents.
    pub logical_bytes: u64,
    /// How they were made smaller.
    pub compression: Compression,
    /// Contents are little-endian.
    pub little_endian: bool,
    /// What protects them.
    pub secrets: Secrets,
}

/// How encryption protects a block that is written.
#[derive(Debug, Clone, Default)]
pub enum Seal {
    /// Not at all.
    #[default]
    Open,
    /// As its sender did it. The data of the request are physical bytes.
    Raw(RawBlock),
    /// Its contents are pointers to protected blocks: by a checksum of their authentication codes.
    Pointers,
    /// It is the head of an object set, and has its authentication codes inside.
    Head,
}
