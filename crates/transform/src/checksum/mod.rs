//! Block checksums: 256 bits, as the four words that a block pointer stores.
//!
//! # Theory
//! A block pointer holds the checksum of the *physical* bytes it points to, and a bit that says in which byte order they were written.
//! Words in a block pointer are in host order since it was decoded; `byteswap` says that the *block* was written in
//! the other order (for us: big-endian). Fletcher sums machine words, so the order changes the arithmetic. The cryptographic
//! hashes see bytes; there the order only decides how the digest is cut into words. SHA-256 is the exception: its digest
//! is big-endian on every machine.
//!
//! Four "algorithms" are no algorithms but places: the label, the gang header and the two forms of intent log block carry their
//! own checksum *inside* the block; see [`embedded`].
//!
//! Skein, Edon-R and BLAKE3 are keyed by the pool's salt, so that nobody can prepare colliding blocks beforehand.
//!
//! # Invariants
//! 1. `checksum` never fails on the data, only on an algorithm number that means nothing.
//! 2. Fletcher sums whole words; blocks are multiples of a sector, and a partial word at the end would be ignored.

mod edonr;
pub mod embedded;
mod fletcher2;
mod fletcher4;
mod skein;

#[cfg(test)]
mod tests;

pub use embedded::{Embedded, EmbeddedError};
pub use fletcher2::Fletcher2;
pub use fletcher4::Fletcher4;

use sha2::Digest;

/// The four words of a checksum, in host order.
pub type Words = [u64; 4];

/// "As the parent says": a property value, never in a block pointer.
pub const INHERIT: u8 = 0;
/// "The default": a property value, never in a block pointer.
pub const ON: u8 = 1;
/// No checksum: all words are zero.
pub const OFF: u8 = 2;
/// SHA-256 embedded at the end of a label block.
pub const LABEL: u8 = 3;
/// SHA-256 embedded at the end of a gang header.
pub const GANG_HEADER: u8 = 4;
/// Fletcher-2 embedded at the end of an intent log block (old form).
pub const ZILOG: u8 = 5;
pub const FLETCHER2: u8 = 6;
pub const FLETCHER4: u8 = 7;
pub const SHA256: u8 = 8;
/// Fletcher-4 embedded at the beginning of an intent log block.
pub const ZILOG2: u8 = 9;
/// As [`OFF`]; a test value of the format.
pub const NOPARITY: u8 = 10;
/// SHA-512/256.
pub const SHA512: u8 = 11;
/// Skein-512 with 256 bits of output, keyed.
pub const SKEIN: u8 = 12;
/// Edon-R 512, keyed, cut to 256 bits.
pub const EDONR: u8 = 13;
/// BLAKE3, keyed.
pub const BLAKE3: u8 = 14;
/// One more than the highest number in use.
pub const COUNT: u8 = 15;

/// The checksum of `data` by the algorithm with this number; `None` if there is no such algorithm.
///
/// For the embedded ones this is the bare sum over all of `data`; [`embedded`] has their placement.
#[must_use]
pub fn checksum(algorithm: u8, data: &[u8], byteswap: bool, salt: &[u8; 32]) -> Option<Words> {
    Some(match algorithm {
        OFF | NOPARITY => [0; 4],
        FLETCHER2 | ZILOG => fletcher2(data, byteswap),
        FLETCHER4 | ZILOG2 => fletcher4(data, byteswap),
        SHA256 | LABEL | GANG_HEADER => sha256(data),
        SHA512 => sha512(data, byteswap),
        SKEIN => words_from_digest(&skein::keyed_256(salt, data), byteswap),
        EDONR => words_from_digest(&edonr::keyed_256(salt, data), byteswap),
        BLAKE3 => words_from_digest(blake3::keyed_hash(salt, data).as_bytes(), byteswap),
        _ => return None,
    })
}

/// Fletcher-2 of a whole block.
#[must_use]
pub fn fletcher2(data: &[u8], byteswap: bool) -> Words {
    let mut sum = Fletcher2::new(byteswap);
    sum.update(data);
    sum.words()
}

/// Fletcher-4 of a whole block.
#[must_use]
pub fn fletcher4(data: &[u8], byteswap: bool) -> Words {
    let mut sum = Fletcher4::new(byteswap);
    sum.update(data);
    sum.words()
}

/// SHA-256; its words are big-endian whatever the block's byte order is.
#[must_use]
pub fn sha256(data: &[u8]) -> Words {
    words_from_digest(&sha2::Sha256::digest(data).into(), true)
}

/// All of SHA-512, of which encryption cuts authentication codes.
#[must_use]
pub fn sha512_digest(data: &[u8]) -> [u8; 64] {
    sha2::Sha512::digest(data).into()
}

/// SHA-512 cut to 256 bits, with the initial values made for that.
#[must_use]
pub fn sha512(data: &[u8], byteswap: bool) -> Words {
    words_from_digest(&sha2::Sha512_256::digest(data).into(), byteswap)
}

/// May blocks with this checksum be shared by their checksum alone (deduplication)? Also: is it so strong that each part of it is?
#[must_use]
pub const fn is_dedup_safe(algorithm: u8) -> bool {
    matches!(algorithm, SHA256 | SHA512 | SKEIN | BLAKE3)
}

/// Is an equal checksum reason enough not to write the block again?
#[must_use]
pub const fn is_nopwrite_safe(algorithm: u8) -> bool {
    matches!(algorithm, SHA256 | SHA512 | SKEIN | EDONR | BLAKE3)
}

/// Is it good enough for metadata? (If not, metadata gets Fletcher-4.)
#[must_use]
pub const fn is_metadata_safe(algorithm: u8) -> bool {
    matches!(
        algorithm,
        LABEL | GANG_HEADER | FLETCHER4 | SHA256 | SHA512 | SKEIN | EDONR | BLAKE3
    )
}

/// Does the result depend on the pool's salt?
#[must_use]
pub const fn is_salted(algorithm: u8) -> bool {
    matches!(algorithm, SKEIN | EDONR | BLAKE3)
}

/// Does the block carry the checksum itself?
#[must_use]
pub const fn is_embedded(algorithm: u8) -> bool {
    matches!(algorithm, LABEL | GANG_HEADER | ZILOG | ZILOG2)
}

/// The two words that are left of a checksum when the other two make room for the authentication code of an encrypted block.
///
/// Weak sums do not spread their information evenly, so there the second half is folded into the first.
#[must_use]
pub const fn fold_for_mac(algorithm: u8, words: Words) -> [u64; 2] {
    if is_dedup_safe(algorithm) {
        [words[0], words[1]]
    } else {
        [words[0] ^ words[2], words[1] ^ words[3]]
    }
}

/// Cuts a digest into words; `big_endian` is the order of the machine that did so when the block was written.
fn words_from_digest(digest: &[u8; 32], big_endian: bool) -> Words {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(digest.as_chunks().0) {
        *word = if big_endian {
            u64::from_be_bytes(*bytes)
        } else {
            u64::from_le_bytes(*bytes)
        };
    }
    words
}
