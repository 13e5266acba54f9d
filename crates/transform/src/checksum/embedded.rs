//! Checksums that live inside the block they protect.
//!
//! # Theory
//! A label, a gang header and an intent log block are found by their address alone or by a pointer that was written before
//! they were: nobody outside can hold their checksum. So the block carries it, in a *trailer* of a magic number and four words.
//! While summing, the four words hold a *verifier* that says which block this ought to be; a block in the wrong place fails.
//! The verifier is the offset for a label, `[vdev, offset, txg, 0]` for a gang header, and
//! the words of the log block's pointer for the log; the caller knows it.
//!
//! # On disk
//! The trailer (`zio_eck_t`, 40 bytes) is at the end of the block; for [`ZILOG2`](super::ZILOG2) it is at byte 144, inside the log's
//! header, and only the used part of the block, rounded up to 4 KiB, is summed. The magic also tells the byte order.

use super::{GANG_HEADER, LABEL, Words, ZILOG, ZILOG2, fold_for_mac, words_from_digest};
use sha2::Digest;

/// What says that a trailer is there.
#[doc(alias = "ZEC_MAGIC")]
pub const MAGIC: u64 = 0x0210_da7a_b10c_7a11;

/// Magic and four words.
#[doc(alias = "zio_eck_t")]
pub const TRAILER_BYTES: usize = 40;

/// Where the log header says how many bytes of the block are in use.
#[doc(alias = "zc_nused")]
const LOG_USED_OFFSET: usize = 136;
/// Where the trailer is in a log block that begins with it.
#[doc(alias = "zc_eck")]
const LOG_TRAILER_OFFSET: usize = 144;
/// The used part is summed in steps of this.
#[doc(alias = "ZIL_MIN_BLKSZ")]
const LOG_STEP_BYTES: u64 = 4096;

/// Why a block has no checksum to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmbeddedError {
    /// The algorithm does not embed.
    NotEmbedded(u8),
    /// Neither byte order of the magic is there.
    NoMagic(u64),
    /// The block is shorter than its trailer, or than the size in use that it claims.
    TooShort,
}

impl std::fmt::Display for EmbeddedError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotEmbedded(algorithm) => {
                write!(f, "checksum algorithm {algorithm} is not embedded")
            }
            Self::NoMagic(found) => write!(f, "embedded checksum: bad magic ({found:#x})"),
            Self::TooShort => f.write_str("embedded checksum: the block is too short"),
        }
    }
}

impl std::error::Error for EmbeddedError {}

/// What a block says, and what is true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Embedded {
    /// The checksum in the trailer.
    pub stored: Words,
    /// The checksum of the block.
    pub computed: Words,
    /// The block was written in the other byte order.
    pub byteswap: bool,
}

impl Embedded {
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.stored == self.computed
    }

    /// As [`Self::is_valid`], for an encrypted block, in which half of the stored words is its authentication code.
    #[must_use]
    pub fn is_valid_beside_mac(&self, algorithm: u8) -> bool {
        self.stored[..2] == fold_for_mac(algorithm, self.computed)
    }
}

/// Reads the trailer of `block` and computes what it ought to say.
pub fn embedded(algorithm: u8, block: &[u8], verifier: Words) -> Result<Embedded, EmbeddedError> {
    let trailer = trailer_offset(algorithm, block.len())?;
    let magic = word_at(block, trailer).ok_or(EmbeddedError::TooShort)?;
    let byteswap = match magic {
        MAGIC => false,
        _ if magic == MAGIC.swap_bytes() => true,
        _ => return Err(EmbeddedError::NoMagic(magic)),
    };
    let covered = covered(algorithm, block, byteswap)?;
    let swap = |word: u64| if byteswap { word.swap_bytes() } else { word };
    let mut stored = [0; 4];
    for (index, word) in stored.iter_mut().enumerate() {
        *word = swap(word_at(block, trailer + 8 + 8 * index).ok_or(EmbeddedError::TooShort)?);
    }
    let computed = sum_around(
        algorithm,
        covered,
        trailer + 8,
        verifier.map(swap),
        byteswap,
    )?;
    Ok(Embedded {
        stored,
        computed,
        byteswap,
    })
}

/// Is `block` what and where it ought to be?
#[must_use]
pub fn verify_embedded(algorithm: u8, block: &[u8], verifier: Words) -> bool {
    embedded(algorithm, block, verifier).is_ok_and(|found| found.is_valid())
}

/// Writes magic and checksum into `block`; returns the checksum.
pub fn seal(algorithm: u8, block: &mut [u8], verifier: Words) -> Result<Words, EmbeddedError> {
    write_trailer(algorithm, block, verifier, |computed, _| computed)
}

/// As [`seal`], for an encrypted block: the last two words in the trailer already are its authentication code and stay.
pub fn seal_beside_mac(
    algorithm: u8,
    block: &mut [u8],
    verifier: Words,
) -> Result<Words, EmbeddedError> {
    write_trailer(algorithm, block, verifier, |computed, old| {
        let [first, second] = fold_for_mac(algorithm, computed);
        [first, second, old[2], old[3]]
    })
}

fn write_trailer(
    algorithm: u8,
    block: &mut [u8],
    verifier: Words,
    choose: impl Fn(Words, Words) -> Words,
) -> Result<Words, EmbeddedError> {
    let trailer = trailer_offset(algorithm, block.len())?;
    let mut old = [0; 4];
    for (index, word) in old.iter_mut().enumerate() {
        *word = word_at(block, trailer + 8 + 8 * index).ok_or(EmbeddedError::TooShort)?;
    }
    covered(algorithm, block, false)?;
    block[trailer..trailer + 8].copy_from_slice(&MAGIC.to_le_bytes());
    let computed = sum_around(
        algorithm,
        covered(algorithm, block, false)?,
        trailer + 8,
        verifier,
        false,
    )?;
    let words = choose(computed, old);
    for (index, word) in words.iter().enumerate() {
        let at = trailer + 8 + 8 * index;
        block[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    Ok(words)
}

/// Where the trailer begins in a block of this length.
fn trailer_offset(algorithm: u8, length: usize) -> Result<usize, EmbeddedError> {
    match algorithm {
        LABEL | GANG_HEADER | ZILOG => length
            .checked_sub(TRAILER_BYTES)
            .ok_or(EmbeddedError::TooShort),
        ZILOG2 if length < LOG_TRAILER_OFFSET + TRAILER_BYTES => Err(EmbeddedError::TooShort),
        ZILOG2 => Ok(LOG_TRAILER_OFFSET),
        _ => Err(EmbeddedError::NotEmbedded(algorithm)),
    }
}

/// The part of `block` that is summed.
fn covered(algorithm: u8, block: &[u8], byteswap: bool) -> Result<&[u8], EmbeddedError> {
    if algorithm != ZILOG2 {
        return Ok(block);
    }
    let used = word_at(block, LOG_USED_OFFSET).ok_or(EmbeddedError::TooShort)?;
    let used = if byteswap { used.swap_bytes() } else { used };
    let used = used
        .checked_next_multiple_of(LOG_STEP_BYTES)
        .ok_or(EmbeddedError::TooShort)?;
    let used = usize::try_from(used).map_err(|_| EmbeddedError::TooShort)?;
    // A used size of nothing would leave out the header itself.
    block
        .get(..used)
        .filter(|part| !part.is_empty())
        .ok_or(EmbeddedError::TooShort)
}

/// The checksum of `data` as if the four words at `offset` were `verifier`, without touching or copying the block.
fn sum_around(
    algorithm: u8,
    data: &[u8],
    offset: usize,
    verifier: Words,
    byteswap: bool,
) -> Result<Words, EmbeddedError> {
    let mut words = [0u8; 32];
    for (to, word) in words.as_chunks_mut().0.iter_mut().zip(verifier) {
        *to = word.to_le_bytes();
    }
    let before = data.get(..offset).ok_or(EmbeddedError::TooShort)?;
    let after = data
        .get(offset + words.len()..)
        .ok_or(EmbeddedError::TooShort)?;
    let pieces = [before, &words, after];
    Ok(match algorithm {
        LABEL | GANG_HEADER => {
            let mut sum = sha2::Sha256::new();
            pieces.iter().for_each(|piece| sum.update(piece));
            words_from_digest(&sum.finalize().into(), true)
        }
        ZILOG => {
            let mut sum = super::Fletcher2::new(byteswap);
            pieces.iter().for_each(|piece| sum.update(piece));
            sum.words()
        }
        ZILOG2 => {
            let mut sum = super::Fletcher4::new(byteswap);
            pieces.iter().for_each(|piece| sum.update(piece));
            sum.words()
        }
        _ => return Err(EmbeddedError::NotEmbedded(algorithm)),
    })
}

fn word_at(block: &[u8], offset: usize) -> Option<u64> {
    block
        .get(offset..)?
        .first_chunk()
        .map(|bytes| u64::from_le_bytes(*bytes))
}
