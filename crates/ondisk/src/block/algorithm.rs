//! Numbers of the checksum and compression algorithms, and the names of the properties that choose them.
//!
//! # Theory
//! A block pointer says how its block was made: one number for the checksum, one for the compression. The numbers are
//! shared with dataset properties, which also use `inherit` and `on`; those two are resolved before a block is written.
//! The level of `zstd` and `gzip` is part of the property, not of the pointer: gzip has a number for each level, and zstd
//! says its level in the compressed data.

use std::fmt;

use crate::bits;
use crate::feature::Feature;

/// How the contents of a block are verified (`ZIO_CHECKSUM_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are those of the algorithms")]
pub enum ChecksumAlgorithm {
    /// Property only: as the parent.
    Inherit = 0,
    /// Property only: the default, fletcher4.
    On = 1,
    Off = 2,
    /// SHA-256 kept in the block, of labels and uberblocks.
    Label = 3,
    /// SHA-256 kept in the block, of gang headers.
    GangHeader = 4,
    /// fletcher2 kept in the block, of old intent-log blocks.
    Zilog = 5,
    Fletcher2 = 6,
    Fletcher4 = 7,
    Sha256 = 8,
    /// fletcher4 kept in the block, of intent-log blocks.
    Zilog2 = 9,
    NoParity = 10,
    Sha512 = 11,
    Skein = 12,
    EdonR = 13,
    Blake3 = 14,
}

impl ChecksumAlgorithm {
    /// All, in order of their numbers.
    pub const ALL: [ChecksumAlgorithm; 15] = {
        use ChecksumAlgorithm::*;
        [
            Inherit, On, Off, Label, GangHeader, Zilog, Fletcher2, Fletcher4, Sha256, Zilog2, NoParity, Sha512, Skein,
            EdonR, Blake3,
        ]
    };

    /// The algorithm of a number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The number of the algorithm.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Its name in properties and in the output of `zdb`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inherit => "inherit",
            Self::On => "on",
            Self::Off => "off",
            Self::Label => "label",
            Self::GangHeader => "gang_header",
            Self::Zilog => "zilog",
            Self::Fletcher2 => "fletcher2",
            Self::Fletcher4 => "fletcher4",
            Self::Sha256 => "sha256",
            Self::Zilog2 => "zilog2",
            Self::NoParity => "noparity",
            Self::Sha512 => "sha512",
            Self::Skein => "skein",
            Self::EdonR => "edonr",
            Self::Blake3 => "blake3",
        }
    }

    /// The algorithm of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// The checksum is kept at the end (or the beginning) of the block itself, not in the pointer.
    pub const fn is_embedded(self) -> bool {
        matches!(self, Self::Label | Self::GangHeader | Self::Zilog | Self::Zilog2)
    }

    /// The feature that a program has to know to read a block with it.
    pub const fn feature(self) -> Option<Feature> {
        match self {
            Self::Sha512 => Some(Feature::Sha512),
            Self::Skein => Some(Feature::Skein),
            Self::EdonR => Some(Feature::Edonr),
            Self::Blake3 => Some(Feature::Blake3),
            _ => None,
        }
    }

    /// Keyed by the pool's checksum salt.
    pub const fn is_salted(self) -> bool {
        matches!(self, Self::Skein | Self::EdonR | Self::Blake3)
    }

    /// Strong enough for metadata.
    pub const fn is_for_metadata(self) -> bool {
        !matches!(self, Self::Inherit | Self::On | Self::Off | Self::Zilog | Self::Fletcher2 | Self::Zilog2 | Self::NoParity)
    }

    /// Strong enough that equal checksums mean equal blocks.
    pub const fn is_for_dedup(self) -> bool {
        matches!(self, Self::Sha256 | Self::Sha512 | Self::Skein | Self::Blake3)
    }
}

impl fmt::Display for ChecksumAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How a block was made smaller (`ZIO_COMPRESS_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are those of the algorithms")]
pub enum Compression {
    /// Property only: as the parent.
    Inherit = 0,
    /// Property only: the default, lz4.
    On = 1,
    Off = 2,
    Lzjb = 3,
    /// All zeros: used while a block is on its way to become a hole.
    Empty = 4,
    Gzip1 = 5,
    Gzip2 = 6,
    Gzip3 = 7,
    Gzip4 = 8,
    Gzip5 = 9,
    Gzip6 = 10,
    Gzip7 = 11,
    Gzip8 = 12,
    Gzip9 = 13,
    Zle = 14,
    Lz4 = 15,
    Zstd = 16,
}

impl Compression {
    /// All, in order of their numbers.
    pub const ALL: [Compression; 17] = {
        use Compression::*;
        [
            Inherit, On, Off, Lzjb, Empty, Gzip1, Gzip2, Gzip3, Gzip4, Gzip5, Gzip6, Gzip7, Gzip8, Gzip9, Zle, Lz4, Zstd,
        ]
    };

    /// The algorithm of a number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The number of the algorithm.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The feature that a pool must have enabled for blocks with it.
    pub const fn feature(self) -> Option<Feature> {
        match self {
            Self::Lz4 => Some(Feature::Lz4Compress),
            Self::Zstd => Some(Feature::ZstdCompress),
            _ => None,
        }
    }

    /// The level of the gzip algorithms, 1 to 9.
    pub const fn gzip_level(self) -> Option<u8> {
        let number = self as u8;
        if number >= Self::Gzip1 as u8 && number <= Self::Gzip9 as u8 { Some(number - Self::Gzip1 as u8 + 1) } else { None }
    }

    /// Its name as `zdb` prints it of a block (a block that is not compressed is `uncompressed`).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "uncompressed",
            other => other.property_name(),
        }
    }

    /// Its name in properties, without the level of zstd.
    pub const fn property_name(self) -> &'static str {
        match self {
            Self::Inherit => "inherit",
            Self::On => "on",
            Self::Off => "off",
            Self::Lzjb => "lzjb",
            Self::Empty => "empty",
            Self::Gzip1 => "gzip-1",
            Self::Gzip2 => "gzip-2",
            Self::Gzip3 => "gzip-3",
            Self::Gzip4 => "gzip-4",
            Self::Gzip5 => "gzip-5",
            Self::Gzip6 => "gzip-6",
            Self::Gzip7 => "gzip-7",
            Self::Gzip8 => "gzip-8",
            Self::Gzip9 => "gzip-9",
            Self::Zle => "zle",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

const ALGORITHM_BITS: u32 = 7;
/// Number of the first of the fast levels of zstd (`zstd-fast-1`) in the format's one-byte level.
const ZSTD_FAST_1: u8 = 103;
/// The levels that `zstd-fast-N` knows, in the order of their numbers.
const ZSTD_FAST: [u16; 21] =
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 500, 1000];

/// The level of zstd as the format numbers it: 1 to 19, then 103 to 123 for the fast (negative) ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ZstdLevel(u8);

impl ZstdLevel {
    /// The level of plain `zstd`: 3.
    pub const DEFAULT: ZstdLevel = ZstdLevel(3);

    /// The level of a number of the format.
    pub fn from_number(number: u8) -> Option<Self> {
        let fast = number >= ZSTD_FAST_1 && usize::from(number - ZSTD_FAST_1) < ZSTD_FAST.len();
        ((1..=19).contains(&number) || fast).then_some(ZstdLevel(number))
    }

    /// The level that the zstd library knows: 1 to 19, or negative.
    pub fn library_level(self) -> i32 {
        match self.0.checked_sub(ZSTD_FAST_1) {
            Some(index) => -i32::from(ZSTD_FAST[usize::from(index)]),
            None => i32::from(self.0),
        }
    }

    /// The level with the given number in the zstd library.
    pub fn from_library_level(level: i32) -> Option<Self> {
        if (1..=19).contains(&level) {
            return u8::try_from(level).ok().map(ZstdLevel);
        }
        let index = ZSTD_FAST.iter().position(|&fast| i32::from(fast) == -level)?;
        u8::try_from(index).ok().map(|index| ZstdLevel(ZSTD_FAST_1 + index))
    }

    /// The number of the format.
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// The value of the `compression` property: an algorithm, and for zstd its level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CompressionSetting {
    /// The algorithm.
    pub algorithm: Compression,
    /// The level, when the property names one. Only zstd has one.
    pub level: Option<ZstdLevel>,
}

impl CompressionSetting {
    /// An algorithm at its default level.
    pub const fn new(algorithm: Compression) -> Self {
        CompressionSetting { algorithm, level: None }
    }

    /// Decodes the property's number: the algorithm in the low 7 bits, the level above.
    pub fn from_property(value: u64) -> Option<Self> {
        let algorithm = Compression::from_number(bits::get(value, 0, ALGORITHM_BITS) as u8)?;
        let level = match value >> ALGORITHM_BITS {
            0 => None,
            level => Some(ZstdLevel::from_number(u8::try_from(level).ok()?)?),
        };
        (level.is_none() || algorithm == Compression::Zstd).then_some(CompressionSetting { algorithm, level })
    }

    /// The property's number.
    pub fn property(self) -> u64 {
        let level = self.level.map_or(0, ZstdLevel::number);
        u64::from(self.algorithm.number()) | (u64::from(level) << ALGORITHM_BITS)
    }

    /// The level to compress with.
    pub fn zstd_level(self) -> ZstdLevel {
        self.level.unwrap_or(ZstdLevel::DEFAULT)
    }

    /// Parses what a user types: `lz4`, `gzip`, `gzip-9`, `zstd`, `zstd-7`, `zstd-fast`, `zstd-fast-100`...
    pub fn from_name(name: &str) -> Option<Self> {
        if name == "gzip" {
            return Some(Self::new(Compression::Gzip6));
        }
        let level = match name.strip_prefix("zstd-") {
            Some("fast") => ZstdLevel::from_library_level(-1)?,
            Some(rest) => match rest.strip_prefix("fast-") {
                Some(fast) => ZstdLevel::from_library_level(-plain_number(fast)?)?,
                None => ZstdLevel::from_library_level(plain_number(rest)?)?,
            },
            None => {
                let known = |algorithm: &Compression| algorithm.property_name() == name && name != "empty";
                return Compression::ALL.into_iter().find(known).map(Self::new);
            }
        };
        Some(CompressionSetting { algorithm: Compression::Zstd, level: Some(level) })
    }
}

fn plain_number(text: &str) -> Option<i32> {
    if text.starts_with('0') || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

impl fmt::Display for CompressionSetting {
    /// As `zfs get compression` prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.level.map(ZstdLevel::library_level) {
            _ if self.algorithm == Compression::Gzip6 => f.pad("gzip"),
            None => f.pad(self.algorithm.property_name()),
            Some(-1) => f.pad("zstd-fast"),
            Some(level) if level < 0 => f.pad(&format!("zstd-fast-{}", -level)),
            Some(level) => f.pad(&format!("zstd-{level}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_agree() {
        for (index, algorithm) in ChecksumAlgorithm::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(algorithm.number()), index);
            assert_eq!(ChecksumAlgorithm::from_name(algorithm.name()), Some(algorithm));
        }
        for (index, algorithm) in Compression::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(algorithm.number()), index);
        }
        assert_eq!(ChecksumAlgorithm::from_number(15), None);
        assert_eq!(Compression::from_number(17), None);
        assert_eq!(Compression::Gzip9.gzip_level(), Some(9));
        assert_eq!(Compression::Lz4.gzip_level(), None);
    }

    #[test]
    fn zstd_levels_have_the_numbers_of_the_format() {
        // From the format: zstd-19 is 19, zstd-fast-1 is 103, zstd-fast-10 is 112, zstd-fast-1000 is 123.
        let number = |name: &str| CompressionSetting::from_name(name).and_then(|s| s.level).map(ZstdLevel::number);
        assert_eq!(number("zstd-19"), Some(19));
        assert_eq!(number("zstd-fast-1"), Some(103));
        assert_eq!(number("zstd-fast-10"), Some(112));
        assert_eq!(number("zstd-fast-20"), Some(113));
        assert_eq!(number("zstd-fast-1000"), Some(123));
        for refused in ["zstd-0", "zstd-20", "zstd-fast-11", "zstd-fast--5", "zstd-+3", "zstd-03", "zstd-", "empty", "lz5"] {
            assert_eq!(CompressionSetting::from_name(refused), None, "{refused}");
        }
    }

    #[test]
    fn properties_round_trip() {
        for name in ["off", "on", "lz4", "gzip", "gzip-1", "zle", "lzjb", "zstd", "zstd-3", "zstd-fast", "zstd-fast-50"] {
            let setting = CompressionSetting::from_name(name).unwrap();
            assert_eq!(CompressionSetting::from_property(setting.property()), Some(setting));
            assert_eq!(setting.to_string(), name);
        }
        assert_eq!(CompressionSetting::from_name("zstd-7").unwrap().property(), 16 | 7 << 7);
        assert_eq!(CompressionSetting::from_property(15 | 7 << 7), None);
        assert_eq!(CompressionSetting::from_property(u64::MAX), None);
    }
}
