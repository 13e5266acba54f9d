//! ZLE: runs of zeros are shortened, everything else is stored.
//!
//! # Theory
//! Each item begins with a byte n. Below 64, n+1 literal bytes follow; from 64 on, it stands for n-63 zeros.
//! Two zeros in a row end a run of literals, one alone does not.

use super::DecompressError;

const LITERALS_MAX: usize = 64;
const ZEROS_MAX: usize = 256 - LITERALS_MAX;

pub(super) fn compress(source: &[u8], destination: &mut [u8]) -> Option<usize> {
    let mut rest = source;
    let mut to = 0;
    while !rest.is_empty() {
        let zeros = rest
            .iter()
            .take(ZEROS_MAX)
            .take_while(|byte| **byte == 0)
            .count();
        if zeros > 0 {
            *destination.get_mut(to)? = (zeros - 1 + LITERALS_MAX) as u8;
            to += 1;
            rest = &rest[zeros..];
            continue;
        }
        let window = &rest[..rest.len().min(LITERALS_MAX)];
        let pair = window.windows(2).position(|pair| pair == [0, 0]);
        // A zero as the last byte of the window is left to the next item: there it may be the first of many.
        let literals = pair.unwrap_or_else(|| window.len() - usize::from(window.ends_with(&[0])));
        let item = destination.get_mut(to..to + 1 + literals)?;
        item[0] = (literals - 1) as u8;
        item[1..].copy_from_slice(&window[..literals]);
        to += 1 + literals;
        rest = &rest[literals..];
    }
    Some(to)
}

pub(super) fn decompress(source: &[u8], destination: &mut [u8]) -> Result<(), DecompressError> {
    let (mut from, mut to) = (0, 0);
    while to < destination.len() {
        let head = usize::from(*source.get(from).ok_or(DecompressError::BadData)?);
        from += 1;
        if head < LITERALS_MAX {
            let literals = source
                .get(from..from + head + 1)
                .ok_or(DecompressError::BadData)?;
            destination
                .get_mut(to..to + head + 1)
                .ok_or(DecompressError::WrongLength)?
                .copy_from_slice(literals);
            from += head + 1;
            to += head + 1;
        } else {
            let zeros = head + 1 - LITERALS_MAX;
            destination
                .get_mut(to..to + zeros)
                .ok_or(DecompressError::WrongLength)?
                .fill(0);
            to += zeros;
        }
    }
    Ok(())
}
