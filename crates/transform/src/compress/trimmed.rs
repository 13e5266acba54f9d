//! Decompression that leaves out the zeros at the end.
//!
//! # Theory
//! In an object set of few objects the indirect blocks of 128 KB above them have one pointer each. LZ4 has the rest as one long match of a zero. Here zeros are
//! only counted until something else comes behind them, so such a block takes as long as its pointer does.

use super::{DecompressError, is_zero};

/// Bytes of the length in front.
const HEADER_BYTES: usize = 4;
/// A match is this much longer than its token says.
const MATCH_MIN: usize = 4;
/// A length of this continues in the next byte.
const CONTINUED: usize = 15;

/// How many bytes there are up to the last that is not zero.
pub(super) fn length(block: &[u8]) -> usize {
    const STEP: usize = 1024;
    let steps = block.chunks(STEP);
    let last = steps.rev().position(|step| !is_zero(step));
    let behind = last.map_or(block.len(), |whole| match whole {
        0 => 0,
        // The last step may be a short one.
        whole => (block.len() - 1) % STEP + 1 + (whole - 1) * STEP,
    });
    let end = block.len() - behind;
    block[..end].iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// What was decompressed so far.
struct Output {
    bytes: Vec<u8>,
    /// Zeros behind these.
    zeros: usize,
    limit: usize,
}

impl Output {
    fn length(&self) -> usize {
        self.bytes.len() + self.zeros
    }

    /// Fails if so many more would be too many.
    fn check(&self, more: usize) -> Result<(), DecompressError> {
        if more > self.limit - self.length() { Err(DecompressError::BadData) } else { Ok(()) }
    }

    fn write_zeros(&mut self) {
        self.bytes.resize(self.length(), 0);
        self.zeros = 0;
    }

    fn literals(&mut self, literals: &[u8]) -> Result<(), DecompressError> {
        self.check(literals.len())?;
        let kept = length(literals);
        if kept > 0 {
            self.write_zeros();
            self.bytes.extend_from_slice(&literals[..kept]);
        }
        self.zeros += literals.len() - kept;
        Ok(())
    }

    /// Repeats what lies `offset` bytes back.
    fn repeat(&mut self, offset: usize, count: usize) -> Result<(), DecompressError> {
        self.check(count)?;
        if offset == 0 || offset > self.length() {
            return Err(DecompressError::BadData);
        }
        if offset <= self.zeros {
            self.zeros += count;
            return Ok(());
        }
        self.write_zeros();
        let (start, end) = (self.bytes.len() - offset, self.bytes.len() + count);
        while self.bytes.len() < end {
            // What was repeated once can be repeated with it.
            let from = start..self.bytes.len().min(start + end - self.bytes.len());
            self.bytes.extend_from_within(from);
        }
        Ok(())
    }
}

/// The rest of a length that its token has the beginning of.
fn whole_length(begun: u8, rest: &mut &[u8]) -> Result<usize, DecompressError> {
    let mut length = usize::from(begun);
    if length < CONTINUED {
        return Ok(length);
    }
    loop {
        let (byte, after) = rest.split_first().ok_or(DecompressError::BadData)?;
        *rest = after;
        length += usize::from(*byte);
        if *byte != u8::MAX {
            return Ok(length);
        }
    }
}

/// Decompresses to exactly `logical_size` bytes, of which the zeros at the end are left out.
pub(super) fn decompress_lz4(source: &[u8], logical_size: usize) -> Result<Vec<u8>, DecompressError> {
    let (header, body) = source.split_first_chunk::<HEADER_BYTES>().ok_or(DecompressError::BadHeader)?;
    let packed = usize::try_from(u32::from_be_bytes(*header)).map_err(|_| DecompressError::BadHeader)?;
    let mut rest = body.get(..packed).ok_or(DecompressError::BadHeader)?;
    let mut output = Output { bytes: Vec::new(), zeros: 0, limit: logical_size };
    loop {
        let (token, after) = rest.split_first().ok_or(DecompressError::BadData)?;
        rest = after;
        let (literals, after) = {
            let count = whole_length(token >> 4, &mut rest)?;
            rest.split_at_checked(count).ok_or(DecompressError::BadData)?
        };
        rest = after;
        output.literals(literals)?;
        // The last sequence has no match.
        if rest.is_empty() {
            break;
        }
        let (offset, after) = rest.split_first_chunk::<2>().ok_or(DecompressError::BadData)?;
        rest = after;
        let count = whole_length(token & 15, &mut rest)? + MATCH_MIN;
        output.repeat(usize::from(u16::from_le_bytes(*offset)), count)?;
    }
    if output.length() != logical_size {
        return Err(DecompressError::WrongLength);
    }
    let kept = length(&output.bytes);
    output.bytes.truncate(kept);
    Ok(output.bytes)
}
