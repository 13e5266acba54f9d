//! gzip-1 to gzip-9: a zlib stream (despite the name, not a gzip file).
//!
//! # Theory
//! The stream knows its own end, so no length is stored, and padding behind it is never looked at.
//! Contexts are large, so each thread keeps one per level that it has used.
//!
//! The library's level 1 is a shortcut with fixed codes that compresses far worse than zlib's, so gzip-1 gets its level 2.

use super::DecompressError;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use std::cell::RefCell;

const LEVELS: usize = 9;

thread_local! {
    static COMPRESSORS: RefCell<[Option<Compress>; LEVELS]> = const { RefCell::new([const { None }; LEVELS]) };
    static DECOMPRESSOR: RefCell<Option<Decompress>> = const { RefCell::new(None) };
}

pub(super) fn compress(level: u8, source: &[u8], destination: &mut [u8]) -> Option<usize> {
    COMPRESSORS.with_borrow_mut(|all| {
        let slot = all.get_mut(usize::from(level).checked_sub(1)?)?;
        let context = slot
            .get_or_insert_with(|| Compress::new(Compression::new(u32::from(level).max(2)), true));
        context.reset();
        match context.compress(source, destination, FlushCompress::Finish) {
            Ok(Status::StreamEnd) => usize::try_from(context.total_out()).ok(),
            _ => None,
        }
    })
}

pub(super) fn decompress(source: &[u8], destination: &mut [u8]) -> Result<(), DecompressError> {
    DECOMPRESSOR.with_borrow_mut(|slot| {
        let context = slot.get_or_insert_with(|| Decompress::new(true));
        context.reset(true);
        match context.decompress(source, destination, FlushDecompress::Finish) {
            Ok(Status::StreamEnd) if context.total_out() == destination.len() as u64 => Ok(()),
            Ok(_) => Err(DecompressError::WrongLength),
            Err(_) => Err(DecompressError::BadData),
        }
    })
}
