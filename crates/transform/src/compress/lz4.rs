//! LZ4: a bare LZ4 block behind its length (four bytes, big-endian).
//!
//! # Theory
//! The reference library: blocks of pointers and dnodes are runs of zeros and of what comes again every 128 or 512 bytes, which it copies by words.

use super::DecompressError;

const HEADER_BYTES: usize = 4;

pub(super) fn compress(source: &[u8], destination: &mut [u8]) -> Option<usize> {
    let (header, body) = destination.split_first_chunk_mut::<HEADER_BYTES>()?;
    let length = lz4::block::compress_to_buffer(source, None, false, body).ok()?;
    *header = u32::try_from(length).ok()?.to_be_bytes();
    Some(HEADER_BYTES + length)
}

pub(super) fn decompress(source: &[u8], destination: &mut [u8]) -> Result<(), DecompressError> {
    let (header, body) = source.split_first_chunk::<HEADER_BYTES>().ok_or(DecompressError::BadHeader)?;
    let length = usize::try_from(u32::from_be_bytes(*header)).map_err(|_| DecompressError::BadHeader)?;
    let body = body.get(..length).ok_or(DecompressError::BadHeader)?;
    let room = i32::try_from(destination.len()).map_err(|_| DecompressError::WrongLength)?;
    match lz4::block::decompress_to_buffer(body, Some(room), destination) {
        Ok(length) if length == destination.len() => Ok(()),
        Ok(_) => Err(DecompressError::WrongLength),
        Err(_) => Err(DecompressError::BadData),
    }
}
