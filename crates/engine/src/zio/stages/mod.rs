//! The stages of a block that do not depend on its place: compress, encrypt, checksum on the way down; decrypt and decompress on the way up.
//!
//! # Theory
//! The order is that of the format: the checksum is of what is on disk, and what is on disk is encrypted after it was compressed. All of it comes before the
//! place, because the allocator may want to know the checksum: a block that is there already needs none (dedup, nop-write).

pub(in crate::zio) mod checksum_stage;
pub(in crate::zio) mod compress_stage;
pub(in crate::zio) mod encrypt_stage;
pub(in crate::zio) mod sealed;

use ondisk::algorithm::{ChecksumAlgorithm, Compression};
use ondisk::blkptr::{BLKPTR_BYTES, BlkPtr, DataPointer, EmbeddedPointer, Protection, Secrets};
use ondisk::object_type::ObjectType;
use ondisk::byteswap;
use transform::checksum::fold_for_mac;
use transform::compress;

use compress_stage::{Contents, ShapeRules, Shaped, shape};
use encrypt_stage::{decrypt, protect};
use super::{Bookmark, Seal, WriteRequest};
use crate::bail;
use crate::error::{Error, ErrorKind, Result};

/// A block as it will be on disk; what it lacks is a place.
#[derive(Debug)]
pub(in crate::zio) struct Sealed {
    pub(in crate::zio) contents: Contents,
    /// Bytes of them without what fills up the last unit, which raw blocks do not count.
    pub(in crate::zio) physical_bytes: u64,
    pub(in crate::zio) logical_bytes: u64,
    pub(in crate::zio) little_endian: bool,
    pub(in crate::zio) compression: Compression,
    pub(in crate::zio) secrets: Option<Secrets>,
    pub(in crate::zio) checksum_algorithm: ChecksumAlgorithm,
    pub(in crate::zio) checksum: [u64; 4],
}

/// What a block became.
#[derive(Debug)]
pub(in crate::zio) enum Prepared {
    /// A pointer that needs no space.
    Pointer(BlkPtr),
    /// Bytes that need a place.
    Sealed(Sealed),
}

/// Compress, encrypt, checksum.
///
/// # Errors
/// When the request asks for a compression or a checksum that does not exist, or for what cannot be encrypted.
pub(in crate::zio) fn prepare(request: &WriteRequest, rules: ShapeRules, salt: &[u8; 32]) -> Result<Prepared> {
    let (contents, compression) = match shape(request, rules)? {
        Shaped::Pointer(pointer) => return Ok(Prepared::Pointer(pointer)),
        Shaped::Physical { contents, compression } => (contents, compression),
    };
    let secrets = protect(request)?;
    let Some(checksum_algorithm) = ChecksumAlgorithm::from_number(request.checksum) else {
        bail!(Invalid, "block {}: checksum {} is none to write with", request.bookmark, request.checksum);
    };
    let (physical_bytes, logical_bytes, little_endian) = match &request.seal {
        Seal::Raw(raw) => (request.data.len(), raw.logical_bytes, raw.little_endian),
        _ => (contents.bytes().len(), request.data.len() as u64, true),
    };
    let mut checksum = checksum_stage::compute(checksum_algorithm, &contents.bytes()[..physical_bytes], !little_endian, salt)?;
    if secrets.is_some() && request.object_type != ObjectType::OBJSET {
        let [first, second] = fold_for_mac(checksum_algorithm.number(), checksum);
        checksum = [first, second, 0, 0];
    }
    let physical_bytes = physical_bytes as u64;
    Ok(Prepared::Sealed(Sealed { contents, physical_bytes, logical_bytes, little_endian, compression, secrets, checksum_algorithm, checksum }))
}

/// Is what is on disk what is used? Then [`open`] would only copy it.
pub(in crate::zio) fn is_same(pointer: &DataPointer) -> bool {
    pointer.compression == Compression::Off
        && pointer.little_endian
        && pointer.physical_size == pointer.logical_size
        && !matches!(pointer.protection, Protection::Encrypted { .. })
}

/// Decrypt, decompress, turn around: the contents of a block whose physical bytes were verified.
///
/// # Errors
/// `KeyNotLoaded`, or `Corrupt` when the bytes make no sense.
pub(in crate::zio) fn open(pointer: &DataPointer, physical: &[u8], at: &Bookmark) -> Result<Vec<u8>> {
    let packed = decrypt(pointer, physical, at)?;
    let length = pointer.logical_size as usize;
    let mut contents = match pointer.compression {
        Compression::Off => match packed.get(..length) {
            Some(contents) => contents.to_vec(),
            None => bail!(Corrupt, "block {at}: {} bytes on disk for {length}", packed.len()),
        },
        compression => decompress(compression, &packed, length, at)?,
    };
    if !pointer.little_endian {
        byteswap::swap_block(pointer.object_type, pointer.level, &mut contents);
    }
    Ok(contents)
}

/// The same of a block of pointers, without the zeros at its end; its length is a multiple of that of a pointer.
///
/// # Errors
/// As [`open`].
pub(in crate::zio) fn open_trimmed(pointer: &DataPointer, physical: &[u8], at: &Bookmark) -> Result<Vec<u8>> {
    let packed = decrypt(pointer, physical, at)?;
    let trimmed = compress::decompress_trimmed(pointer.compression.number(), &packed, pointer.logical_size as usize);
    let mut contents = trimmed.map_err(|error| Error::new(ErrorKind::Corrupt, format!("block {at}: {error}")))?;
    contents.resize(contents.len().next_multiple_of(BLKPTR_BYTES), 0);
    contents.shrink_to_fit();
    if !pointer.little_endian {
        byteswap::swap_block(pointer.object_type, pointer.level, &mut contents);
    }
    Ok(contents)
}

/// The contents of a block that is in its pointer.
///
/// # Errors
/// `Corrupt` when the bytes make no sense.
pub(in crate::zio) fn unpack(embedded: &EmbeddedPointer, at: &Bookmark) -> Result<Vec<u8>> {
    let length = embedded.logical_size as usize;
    let mut contents = match embedded.compression {
        Compression::Off => embedded.payload().to_vec(),
        compression => decompress(compression, embedded.payload(), length, at)?,
    };
    if contents.len() != length {
        bail!(Corrupt, "block {at}: {} embedded bytes instead of {length}", contents.len());
    }
    if !embedded.little_endian {
        byteswap::swap_block(embedded.object_type, embedded.level, &mut contents);
    }
    Ok(contents)
}

fn decompress(compression: Compression, bytes: &[u8], length: usize, at: &Bookmark) -> Result<Vec<u8>> {
    compress::decompress(compression.number(), bytes, length).map_err(|error| Error::new(ErrorKind::Corrupt, format!("block {at}: {error}")))
}
