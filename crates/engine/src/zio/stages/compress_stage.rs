//! What a block becomes before it is given a place: a hole, contents of a pointer, or physical bytes.
//!
//! # Theory
//! Zeros become a hole. What compresses to 112 bytes or less goes into the pointer. The rest is compressed only if that
//! saves at least an eighth and at least one unit of allocation; the result is padded with zeros to whole units,
//! so that the physical size in the pointer is what is really taken. A block for which compression is off is stored as it
//! is, zeros too.

use std::sync::Arc;

use ondisk::algorithm::Compression;
use ondisk::blkptr::{BlkPtr, EMBEDDED_BYTES_MAX, EmbeddedPointer, Hole};
use ondisk::object_type::ObjectType;
use transform::compress;

use crate::zio::{RawBlock, Seal, WriteRequest};
use crate::bail;
use crate::error::Result;

/// The physical bytes of a block.
#[derive(Debug, Clone)]
pub(in crate::zio) enum Contents {
    /// As they are.
    Plain(Arc<Vec<u8>>),
    /// Compressed and padded.
    Packed(Vec<u8>),
}

impl Contents {
    pub(in crate::zio) fn bytes(&self) -> &[u8] {
        match self {
            Contents::Plain(data) => data,
            Contents::Packed(data) => data,
        }
    }
}

/// What a block became.
#[derive(Debug)]
pub(in crate::zio) enum Shaped {
    /// A pointer that needs no space.
    Pointer(BlkPtr),
    /// Bytes that need a place.
    Physical { contents: Contents, compression: Compression },
}

/// What decides about shapes, beside the request.
#[derive(Debug, Clone, Copy)]
pub(in crate::zio) struct ShapeRules {
    /// The pool stores contents in pointers.
    pub(in crate::zio) embedded_data: bool,
    /// The pool remembers when holes were punched.
    pub(in crate::zio) hole_birth: bool,
    /// Bytes of the smallest allocation; a power of two, and all allocations are multiples of it.
    pub(in crate::zio) unit: usize,
    pub(in crate::zio) txg: u64,
}

/// The most that the compressed block may have to be worth it.
fn room(compression: Compression, unit: usize, logical: usize) -> usize {
    let room = logical - logical / 8;
    if compression == Compression::Zle {
        return room;
    }
    let room = room - room % unit;
    if room < unit { EMBEDDED_BYTES_MAX } else { room }
}

fn compression_of(request: &WriteRequest) -> Result<Compression> {
    match Compression::from_number(request.compression) {
        Some(Compression::Inherit | Compression::On) | None => {
            bail!(Invalid, "block {}: compression {} is none to write with", request.bookmark, request.compression)
        }
        Some(compression) => Ok(compression),
    }
}

/// What somebody else has compressed stays so, if that saves anything here.
fn packed(request: &WriteRequest, rules: ShapeRules) -> Option<Shaped> {
    let packed = request.packed.as_ref()?;
    let padded = packed.bytes.len().next_multiple_of(rules.unit);
    let compression = Compression::from_number(packed.compression).filter(|_| !packed.bytes.is_empty() && padded < request.data.len())?;
    let mut bytes = packed.bytes.clone();
    bytes.resize(padded, 0);
    Some(Shaped::Physical { contents: Contents::Packed(bytes), compression })
}

/// What a sender has on disk stays so. Dnodes that were all freed are a hole there too.
fn as_sent(request: &WriteRequest, raw: &RawBlock, rules: ShapeRules) -> Shaped {
    if request.object_type == ObjectType::DNODE && compress::is_zero(&request.data) {
        return Shaped::Pointer(hole(request, rules));
    }
    let padded = request.data.len().next_multiple_of(rules.unit);
    let contents = if padded == request.data.len() {
        Contents::Plain(Arc::clone(&request.data))
    } else {
        let mut bytes = request.data.to_vec();
        bytes.resize(padded, 0);
        Contents::Packed(bytes)
    };
    Shaped::Physical { contents, compression: raw.compression }
}

/// Decides what the block becomes.
///
/// # Errors
/// When the request asks for a compression that does not exist.
pub(in crate::zio) fn shape(request: &WriteRequest, rules: ShapeRules) -> Result<Shaped> {
    if let Seal::Raw(raw) = &request.seal {
        return Ok(as_sent(request, raw, rules));
    }
    if let Some(shaped) = packed(request, rules) {
        return Ok(shaped);
    }
    let compression = compression_of(request)?;
    let plain = || Shaped::Physical { contents: Contents::Plain(Arc::clone(&request.data)), compression: Compression::Off };
    if compression == Compression::Off || matches!(request.seal, Seal::Head) {
        return Ok(plain());
    }
    let logical = request.data.len();
    if compress::is_zero(&request.data) {
        return Ok(Shaped::Pointer(hole(request, rules)));
    }
    if compression == Compression::Empty {
        return Ok(plain());
    }
    let mut packed = vec![0; room(compression, rules.unit, logical)];
    let level = if request.compression_level == 0 { compress::LEVEL_DEFAULT } else { request.compression_level };
    let Some(physical) = compress::compress(compression.number(), level, &request.data, &mut packed) else {
        return Ok(plain());
    };
    if physical == 0 || physical >= logical {
        return Ok(plain());
    }
    packed.truncate(physical);
    if physical <= EMBEDDED_BYTES_MAX && may_embed(request, rules) {
        let pointer =
            EmbeddedPointer::new(&packed, compression, logical as u64, request.object_type, request.level, rules.txg);
        return Ok(Shaped::Pointer(pointer.encode()));
    }
    let padded = physical.next_multiple_of(rules.unit);
    if padded >= logical {
        return Ok(plain());
    }
    packed.resize(padded, 0);
    Ok(Shaped::Physical { contents: Contents::Packed(packed), compression })
}

fn may_embed(request: &WriteRequest, rules: ShapeRules) -> bool {
    rules.embedded_data && !request.no_embed && request.level == 0 && !request.object_type.has_fill()
}

/// A hole where nothing ever was needs no birth.
fn hole(request: &WriteRequest, rules: ShapeRules) -> BlkPtr {
    let remembered = rules.hole_birth && request.previous.logical_birth() != 0;
    let logical_birth = if remembered { rules.txg } else { 0 };
    let (object_type, level) = (request.object_type, request.level);
    Hole { object_type, level, logical_size: request.data.len() as u64, logical_birth }.encode()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zio::{Bookmark, Seal};
    use ondisk::blkptr::BlockPointer;

    const RULES: ShapeRules = ShapeRules { embedded_data: true, hole_birth: true, unit: 4096, txg: 9 };

    fn request(data: Vec<u8>) -> WriteRequest {
        WriteRequest {
            data: Arc::new(data),
            object_type: ObjectType::PLAIN_FILE_CONTENTS,
            level: 0,
            checksum: 7,
            compression: Compression::Lz4.number(),
            compression_level: 0,
            copies: 1,
            small_bytes: 0,
            previous: BlkPtr::ZERO,
            rewrite: false,
            no_embed: false,
            bookmark: Bookmark::default(),
            packed: None,
            seal: Seal::Open,
        }
    }

    /// Bytes of which `noise` cannot be compressed.
    fn half_noise(length: usize, noise: usize) -> Vec<u8> {
        let mut state = 0x1234_5678_9abc_def1_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        (0..length).map(|index| if index < noise { next() } else { 0 }).collect()
    }

    fn physical(shaped: Shaped) -> (usize, Compression) {
        match shaped {
            Shaped::Physical { contents, compression } => (contents.bytes().len(), compression),
            Shaped::Pointer(pointer) => panic!("became {pointer}"),
        }
    }

    #[test]
    fn zeros_become_a_hole_that_remembers_what_it_replaced() {
        let mut zeros = request(vec![0; 8192]);
        let Shaped::Pointer(pointer) = shape(&zeros, RULES).unwrap() else { panic!("zeros were stored") };
        assert_eq!(pointer, BlkPtr::ZERO);
        zeros.previous = Hole { object_type: zeros.object_type, level: 0, logical_size: 8192, logical_birth: 3 }.encode();
        let Shaped::Pointer(pointer) = shape(&zeros, RULES).unwrap() else { panic!("zeros were stored") };
        assert_eq!((pointer.logical_birth(), pointer.logical_size(), pointer.is_hole()), (9, 8192, true));
        zeros.compression = Compression::Off.number();
        assert_eq!(physical(shape(&zeros, RULES).unwrap()), (8192, Compression::Off));
    }

    #[test]
    fn little_goes_into_the_pointer() {
        let mut small = request(half_noise(4096, 40));
        let Shaped::Pointer(pointer) = shape(&small, RULES).unwrap() else { panic!("not embedded") };
        assert!(matches!(pointer.decode(), Ok(BlockPointer::Embedded(_))));
        assert_eq!(pointer.logical_birth(), 9);
        // One unit of contents that cannot be embedded saves nothing.
        for change in [(|r| r.no_embed = true) as fn(&mut WriteRequest), |r| r.level = 1, |r| r.object_type = ObjectType::DNODE] {
            small = request(half_noise(4096, 40));
            change(&mut small);
            assert_eq!(physical(shape(&small, RULES).unwrap()), (4096, Compression::Off));
        }
    }

    #[test]
    fn compression_must_save_a_unit_and_an_eighth() {
        let shaped = |length, noise| physical(shape(&request(half_noise(length, noise)), RULES).unwrap());
        assert_eq!(shaped(131_072, 131_072), (131_072, Compression::Off));
        assert_eq!(shaped(131_072, 120_000), (131_072, Compression::Off));
        assert_eq!(shaped(131_072, 100_000), (25 * 4096, Compression::Lz4));
        assert_eq!(shaped(8192, 3000), (4096, Compression::Lz4));
        assert_eq!(shaped(8192, 5000), (8192, Compression::Off));
        let Shaped::Physical { contents, .. } = shape(&request(half_noise(131_072, 100_000)), RULES).unwrap() else {
            panic!("no bytes")
        };
        assert_eq!(compress::decompress(15, contents.bytes(), 131_072).unwrap(), half_noise(131_072, 100_000));
    }

    #[test]
    fn unknown_compression_is_refused() {
        for number in [0, 1, 17, 255] {
            let mut odd = request(vec![1; 512]);
            odd.compression = number;
            assert!(shape(&odd, RULES).is_err(), "{number}");
        }
    }
}
