//! LZ4: a bare LZ4 block behind its length (four bytes, big-endian).
//!
//! # Theory
//! The crate's encoder wants room for the worst case, which the destination has not, so it writes to scratch memory of the thread.
//! The scratch grows to the largest block that the thread has seen and stays.

use super::DecompressError;
use std::cell::RefCell;

const HEADER_BYTES: usize = 4;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

pub(super) fn compress(source: &[u8], destination: &mut [u8]) -> Option<usize> {
    let (header, body) = destination.split_first_chunk_mut::<HEADER_BYTES>()?;
    let worst = lz4_flex::block::get_maximum_output_size(source.len());
    let length = if body.len() >= worst {
        lz4_flex::block::compress_into(source, body).ok()?
    } else {
        SCRATCH.with_borrow_mut(|scratch| {
            if scratch.len() < worst {
                scratch.resize(worst, 0);
            }
            let length = lz4_flex::block::compress_into(source, scratch).ok()?;
            body.get_mut(..length)?.copy_from_slice(&scratch[..length]);
            Some(length)
        })?
    };
    *header = u32::try_from(length).ok()?.to_be_bytes();
    Some(HEADER_BYTES + length)
}

pub(super) fn decompress(source: &[u8], destination: &mut [u8]) -> Result<(), DecompressError> {
    let (header, body) = source
        .split_first_chunk::<HEADER_BYTES>()
        .ok_or(DecompressError::BadHeader)?;
    let length =
        usize::try_from(u32::from_be_bytes(*header)).map_err(|_| DecompressError::BadHeader)?;
    let body = body.get(..length).ok_or(DecompressError::BadHeader)?;
    match lz4_flex::block::decompress_into(body, destination) {
        Ok(length) if length == destination.len() => Ok(()),
        Ok(_) => Err(DecompressError::WrongLength),
        Err(_) => Err(DecompressError::BadData),
    }
}
