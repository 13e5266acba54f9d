//! Compression of blocks, in the framing that the format wants.
//!
//! # Theory
//! A block of `logical` bytes is worth compressing only if it ends up in fewer sectors, so the caller says how much room there is (the
//! destination's length) and gets `None` if the result would not fit; it then stores the block as it is.
//! The physical block is padded with zeros to whole sectors. Algorithms that cannot see where their data ends (lz4, zstd) store
//! their length in front; the others stop when the logical size is reached.
//!
//! A block must decompress to *exactly* its logical size; anything else is corruption.
//!
//! # Invariants
//! 1. Nothing here writes, reads or allocates beyond the sizes it was given, whatever the bytes are.
//! 2. What `compress` returns is what `decompress` takes, also with zeros appended.

mod gzip;
mod lz4;
mod lzjb;
mod trimmed;
mod zle;
pub mod zstd;

#[cfg(test)]
mod tests;

/// "As the parent says": a property value, never in a block pointer.
pub const INHERIT: u8 = 0;
/// "The default": a property value, never in a block pointer.
pub const ON: u8 = 1;
/// The block is stored as it is.
pub const OFF: u8 = 2;
pub const LZJB: u8 = 3;
/// Only blocks of zeros shrink: they become holes.
pub const EMPTY: u8 = 4;
pub const GZIP_1: u8 = 5;
pub const GZIP_2: u8 = 6;
pub const GZIP_3: u8 = 7;
pub const GZIP_4: u8 = 8;
pub const GZIP_5: u8 = 9;
pub const GZIP_6: u8 = 10;
pub const GZIP_7: u8 = 11;
pub const GZIP_8: u8 = 12;
pub const GZIP_9: u8 = 13;
pub const ZLE: u8 = 14;
pub const LZ4: u8 = 15;
pub const ZSTD: u8 = 16;
/// One more than the highest number in use.
pub const COUNT: u8 = 17;

/// The level of an algorithm that the dataset has not given one: each algorithm knows its own.
#[doc(alias = "ZIO_COMPLEVEL_DEFAULT")]
pub const LEVEL_DEFAULT: u8 = 255;

/// The largest block of the format.
#[doc(alias = "SPA_MAXBLOCKSIZE")]
pub const LOGICAL_BYTES_MAX: usize = 16 << 20;

/// Why a block could not be decompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecompressError {
    /// There is no such algorithm, or it stores nothing to decompress.
    UnknownAlgorithm(u8),
    /// The framing in front of the data is not believable.
    BadHeader,
    /// The compressed data is not.
    BadData,
    /// It decompresses to less than the logical size, or to more.
    WrongLength,
    /// The logical size is larger than any block can be.
    TooLarge(usize),
}

impl std::fmt::Display for DecompressError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::UnknownAlgorithm(algorithm) => {
                write!(f, "compression algorithm {algorithm} is unknown")
            }
            Self::BadHeader => f.write_str("compressed block: bad header"),
            Self::BadData => f.write_str("compressed block: bad data"),
            Self::WrongLength => {
                f.write_str("compressed block: it does not expand to its logical size")
            }
            Self::TooLarge(size) => write!(f, "compressed block: logical size {size} is too large"),
        }
    }
}

impl std::error::Error for DecompressError {}

/// Compresses `source` into the front of `destination` and returns how many bytes that took; `None` if they do not fit.
///
/// `level` is the one of the dataset, and only zstd reads it (gzip's is in the number of the algorithm). What lies behind the result in
/// `destination` is unspecified: the caller pads with zeros.
#[must_use]
pub fn compress(algorithm: u8, level: u8, source: &[u8], destination: &mut [u8]) -> Option<usize> {
    match algorithm {
        LZJB => lzjb::compress(source, destination),
        EMPTY => is_zero(source).then_some(0),
        GZIP_1..=GZIP_9 => gzip::compress(algorithm - GZIP_1 + 1, source, destination),
        ZLE => zle::compress(source, destination),
        LZ4 => lz4::compress(source, destination),
        ZSTD => zstd::compress(level, source, destination),
        _ => None,
    }
}

/// Decompresses `source`, a physical block with or without its padding, to exactly `logical_size` bytes.
pub fn decompress(
    algorithm: u8,
    source: &[u8],
    logical_size: usize,
) -> Result<Vec<u8>, DecompressError> {
    if logical_size > LOGICAL_BYTES_MAX {
        return Err(DecompressError::TooLarge(logical_size));
    }
    let mut block = vec![0; logical_size];
    decompress_into(algorithm, source, &mut block)?;
    Ok(block)
}

/// As [`decompress`], without the zeros at the end: a block that is nearly all zeros costs next to nothing.
pub fn decompress_trimmed(
    algorithm: u8,
    source: &[u8],
    logical_size: usize,
) -> Result<Vec<u8>, DecompressError> {
    if algorithm == LZ4 && logical_size <= LOGICAL_BYTES_MAX {
        return trimmed::decompress_lz4(source, logical_size);
    }
    let mut block = decompress(algorithm, source, logical_size)?;
    block.truncate(trimmed::length(&block));
    Ok(block)
}

/// As [`decompress`], into a buffer of the logical size. After an error its contents are unspecified.
pub fn decompress_into(
    algorithm: u8,
    source: &[u8],
    destination: &mut [u8],
) -> Result<(), DecompressError> {
    match algorithm {
        OFF => {
            destination.copy_from_slice(
                source
                    .get(..destination.len())
                    .ok_or(DecompressError::WrongLength)?,
            );
            Ok(())
        }
        LZJB => lzjb::decompress(source, destination),
        GZIP_1..=GZIP_9 => gzip::decompress(source, destination),
        ZLE => zle::decompress(source, destination),
        LZ4 => lz4::decompress(source, destination),
        ZSTD => zstd::decompress(source, destination),
        _ => Err(DecompressError::UnknownAlgorithm(algorithm)),
    }
}

/// Are all bytes zero? (Then the block is a hole and takes no space.)
#[must_use]
pub fn is_zero(data: &[u8]) -> bool {
    // Wide enough for the inner loop to become vector instructions, narrow enough to stop soon.
    const STEP: usize = 256;
    let (steps, rest) = data.as_chunks::<STEP>();
    let none_in = |bytes: &[u8]| bytes.iter().fold(0, |all, byte| all | byte) == 0;
    steps.iter().all(|step| none_in(step)) && none_in(rest)
}
