//! Is this the block that the pointer means?
//!
//! # Theory
//! The pointer holds the checksum of the physical bytes. Intent log blocks hold it themselves, and the pointer holds the
//! verifier that makes it depend on the place in the chain. In encrypted datasets half of the words are a MAC, and only
//! the other half is compared; the objset block is the exception, as its MACs are inside it.

use ondisk::algorithm::ChecksumAlgorithm;
use ondisk::blkptr::{DataPointer, Protection};
use ondisk::object_type::ObjectType;
use transform::checksum::{self, embedded};

use crate::bail;
use crate::error::Result;

/// Half of the words of the block's checksum are a MAC.
pub(in crate::zio) fn shares_with_mac(pointer: &DataPointer) -> bool {
    pointer.protection != Protection::None && pointer.object_type != ObjectType::OBJSET
}

/// Whether `bytes` are what `pointer` means.
///
/// # Errors
/// `Unsupported` when the pointer has a checksum that no block can have.
pub(in crate::zio) fn verify(pointer: &DataPointer, bytes: &[u8], salt: &[u8; 32]) -> Result<bool> {
    let algorithm = pointer.checksum_algorithm;
    let number = algorithm.number();
    let shares_with_mac = shares_with_mac(pointer);
    match algorithm {
        ChecksumAlgorithm::Off | ChecksumAlgorithm::NoParity => Ok(true),
        ChecksumAlgorithm::Zilog | ChecksumAlgorithm::Zilog2 => {
            let Ok(found) = embedded::embedded(number, bytes, pointer.checksum) else { return Ok(false) };
            Ok(if shares_with_mac { found.is_valid_beside_mac(number) } else { found.is_valid() })
        }
        ChecksumAlgorithm::Inherit
        | ChecksumAlgorithm::On
        | ChecksumAlgorithm::Label
        | ChecksumAlgorithm::GangHeader => bail!(Unsupported, "a block with a checksum of kind \"{algorithm}\""),
        _ => {
            let Some(words) = checksum::checksum(number, bytes, !pointer.little_endian, salt) else {
                bail!(Unsupported, "checksum \"{algorithm}\"");
            };
            Ok(if shares_with_mac {
                checksum::fold_for_mac(number, words) == [pointer.checksum[0], pointer.checksum[1]]
            } else {
                words == pointer.checksum
            })
        }
    }
}

/// The checksum of a new block; `swapped`: its contents are not in our byte order.
///
/// # Errors
/// `Unsupported` when `algorithm` is none for ordinary blocks.
pub(in crate::zio) fn compute(algorithm: ChecksumAlgorithm, bytes: &[u8], swapped: bool, salt: &[u8; 32]) -> Result<[u64; 4]> {
    let property = matches!(algorithm, ChecksumAlgorithm::Inherit | ChecksumAlgorithm::On);
    match checksum::checksum(algorithm.number(), bytes, swapped, salt) {
        Some(words) if !algorithm.is_embedded() && !property => Ok(words),
        _ => bail!(Unsupported, "writing a block with checksum \"{algorithm}\""),
    }
}
