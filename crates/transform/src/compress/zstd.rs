//! Zstandard: a frame without magic, behind a header of eight bytes.
//!
//! # Theory
//! The frame has neither magic nor content size nor checksum: the block pointer knows all of that.
//! The header has the length of the frame, and the level and library version that made it, so that a block can be
//! compressed again to the same bytes.
//!
//! Levels have their own numbers on disk and in properties: 1 to 19 are themselves, the "fast" (negative) ones start at 103.
//!
//! High levels are slow, also on data that does not compress. So before trying hard on a large block we ask cheap algorithms:
//! if neither lz4 nor level 1 can make it fit, it is not tried.
//!
//! # On disk
//! Two big-endian words: length of the frame; `level << 24 | version`. The second was a C bit-field once, and big-endian
//! machines have written it as `version << 8 | level`; [`level_of`] knows.

use super::{DecompressError, LEVEL_DEFAULT};
use std::cell::RefCell;
use zstd::zstd_safe::{self, CCtx, CParameter, DCtx, DParameter, FrameFormat};

const HEADER_BYTES: usize = 8;

/// Highest of the levels 1, 2, 3, ...
pub const LEVEL_MAX: u8 = 19;
/// The level that `compression=zstd` means.
pub const LEVEL_ZSTD_DEFAULT: u8 = 3;
/// The number of zstd-fast-1.
#[doc(alias = "ZIO_ZSTD_LEVEL_FAST_1")]
pub const LEVEL_FAST_1: u8 = 103;

/// The fast levels in the order of their numbers.
const FAST: [i32; 21] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 500, 1000,
];

/// From this level and size on, incompressible data is looked for first.
const EARLY_ABORT_LEVEL: i32 = 3;
const EARLY_ABORT_BYTES: usize = 128 << 10;

thread_local! {
    static COMPRESSOR: RefCell<Option<CCtx<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

/// The library's level for a stored one: 1 to 19, or negative for the fast ones.
#[must_use]
pub fn library_level(level: u8) -> Option<i32> {
    match level {
        1..=LEVEL_MAX => Some(i32::from(level)),
        LEVEL_DEFAULT => Some(i32::from(LEVEL_ZSTD_DEFAULT)),
        _ => FAST
            .get(usize::from(level.checked_sub(LEVEL_FAST_1)?))
            .map(|fast| -fast),
    }
}

/// The stored number of a library level: the reverse of [`library_level`].
#[must_use]
pub fn stored_level(level: i32) -> Option<u8> {
    if (1..=i32::from(LEVEL_MAX)).contains(&level) {
        return u8::try_from(level).ok();
    }
    let index = FAST.iter().position(|fast| -fast == level)?;
    Some(LEVEL_FAST_1 + u8::try_from(index).ok()?)
}

/// What stands before the data of a compressed block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the data.
    pub length: u32,
    /// Of the library that compressed it: 10405 is 1.4.5.
    pub version: u32,
    /// See [`level_of`].
    pub level: u8,
}

/// The header of a compressed block.
#[must_use]
pub fn header_of(source: &[u8]) -> Option<Header> {
    let [a, b, c, d, first, second, third, last] = *source.first_chunk::<HEADER_BYTES>()?;
    // The top byte of the version is zero, and where it is tells the layout.
    let (level, version) = match (last, third, second, first) {
        (0, ..) => (first, [0, last, third, second]),
        (_, 0, ..) => (last, [0, third, second, first]),
        (_, _, 0, _) => (first, [0, second, third, last]),
        (.., 0) => (last, [0, first, second, third]),
        _ => return None,
    };
    let header = Header { length: u32::from_be_bytes([a, b, c, d]), version: u32::from_be_bytes(version), level };
    (level != LEVEL_DEFAULT && library_level(level).is_some()).then_some(header)
}

/// The stored level of a compressed block.
#[must_use]
pub fn level_of(source: &[u8]) -> Option<u8> {
    header_of(source).map(|header| header.level)
}

pub(super) fn compress(level: u8, source: &[u8], destination: &mut [u8]) -> Option<usize> {
    let library = library_level(level)?;
    let stored = if level == LEVEL_DEFAULT {
        LEVEL_ZSTD_DEFAULT
    } else {
        level
    };
    let unlikely = library >= EARLY_ABORT_LEVEL
        && source.len() >= EARLY_ABORT_BYTES
        && super::lz4::compress(source, destination).is_none()
        && compress_at(1, 1, source, destination).is_none();
    if unlikely {
        return None;
    }
    compress_at(library, stored, source, destination)
}

fn compress_at(library: i32, stored: u8, source: &[u8], destination: &mut [u8]) -> Option<usize> {
    let (header, body) = destination.split_first_chunk_mut::<HEADER_BYTES>()?;
    let length = COMPRESSOR.with_borrow_mut(|slot| {
        let context = match slot {
            Some(context) => context,
            None => slot.insert(new_compressor()?),
        };
        context
            .set_parameter(CParameter::CompressionLevel(library))
            .ok()?;
        context.compress2(body, source).ok()
    })?;
    let version = zstd_safe::version_number() & 0x00ff_ffff;
    header[..4].copy_from_slice(&u32::try_from(length).ok()?.to_be_bytes());
    header[4..].copy_from_slice(&(u32::from(stored) << 24 | version).to_be_bytes());
    Some(HEADER_BYTES + length)
}

pub(super) fn decompress(source: &[u8], destination: &mut [u8]) -> Result<(), DecompressError> {
    let (header, body) = source
        .split_first_chunk::<HEADER_BYTES>()
        .ok_or(DecompressError::BadHeader)?;
    level_of(source).ok_or(DecompressError::BadHeader)?;
    let length = header
        .first_chunk()
        .map_or(0, |bytes| u32::from_be_bytes(*bytes));
    let length = usize::try_from(length).map_err(|_| DecompressError::BadHeader)?;
    let body = body.get(..length).ok_or(DecompressError::BadHeader)?;
    DECOMPRESSOR.with_borrow_mut(|slot| {
        let context = match slot {
            Some(context) => context,
            None => slot.insert(new_decompressor().ok_or(DecompressError::BadData)?),
        };
        match context.decompress(destination, body) {
            Ok(length) if length == destination.len() => Ok(()),
            Ok(_) => Err(DecompressError::WrongLength),
            Err(_) => Err(DecompressError::BadData),
        }
    })
}

fn new_compressor() -> Option<CCtx<'static>> {
    let mut context = CCtx::try_create()?;
    for parameter in [
        CParameter::Format(FrameFormat::Magicless),
        CParameter::ContentSizeFlag(false),
        CParameter::ChecksumFlag(false),
    ] {
        context.set_parameter(parameter).ok()?;
    }
    Some(context)
}

fn new_decompressor() -> Option<DCtx<'static>> {
    let mut context = DCtx::try_create()?;
    context
        .set_parameter(DParameter::Format(FrameFormat::Magicless))
        .ok()?;
    Some(context)
}
