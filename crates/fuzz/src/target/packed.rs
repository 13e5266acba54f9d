//! Compressed blocks and checksums.

use ondisk::object_type::ObjectType;
use transform::checksum::{self, embedded};
use transform::compress::{self, compress, decompress};

use crate::{Input, seeds};

/// Two bytes say how long the result is to be, in sectors or in bytes; the rest is the block.
fn unpack(algorithm: u8, bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let size = input.u16();
    let logical = if size & 1 == 0 { usize::from(size >> 1) << 4 } else { usize::from(size >> 1) };
    if let Ok(contents) = decompress(algorithm, input.rest(), logical) {
        assert_eq!(contents.len(), logical);
    }
}

/// Contents of different sorts, cut to a few kilobytes.
fn contents() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> =
        vec![vec![0; 1024], b"tarnished copper ".repeat(100), (0..4096u32).map(|n| ((n * n) >> 3) as u8).collect()];
    for kind in [ObjectType::DNODE, ObjectType::OBJSET, ObjectType::PLAIN_FILE_CONTENTS, ObjectType::MASTER_NODE] {
        all.extend(seeds::blocks(kind).into_iter().take(3));
    }
    all.iter_mut().for_each(|block| block.truncate(4096));
    all
}

fn packed(algorithm: u8, level: u8) -> Vec<Vec<u8>> {
    let pack = |block: Vec<u8>| {
        let mut out = vec![0; block.len()];
        let length = compress(algorithm, level, &block, &mut out)?;
        out.truncate(length.next_multiple_of(512));
        let size = (block.len() as u16) << 1 | 1;
        Some([&size.to_le_bytes(), out.as_slice()].concat())
    };
    contents().into_iter().filter_map(pack).collect()
}

pub(super) fn lz4(bytes: &[u8]) {
    unpack(compress::LZ4, bytes);
}

pub(super) fn lz4_seeds() -> Vec<Vec<u8>> {
    packed(compress::LZ4, compress::LEVEL_DEFAULT)
}

pub(super) fn lzjb(bytes: &[u8]) {
    unpack(compress::LZJB, bytes);
}

pub(super) fn lzjb_seeds() -> Vec<Vec<u8>> {
    packed(compress::LZJB, compress::LEVEL_DEFAULT)
}

pub(super) fn zle(bytes: &[u8]) {
    unpack(compress::ZLE, bytes);
}

pub(super) fn zle_seeds() -> Vec<Vec<u8>> {
    packed(compress::ZLE, compress::LEVEL_DEFAULT)
}

pub(super) fn gzip(bytes: &[u8]) {
    unpack(compress::GZIP_6, bytes);
}

pub(super) fn gzip_seeds() -> Vec<Vec<u8>> {
    packed(compress::GZIP_6, compress::LEVEL_DEFAULT)
}

pub(super) fn zstd(bytes: &[u8]) {
    unpack(compress::ZSTD, bytes);
    let _ = compress::zstd::level_of(bytes);
}

pub(super) fn zstd_seeds() -> Vec<Vec<u8>> {
    packed(compress::ZSTD, 3)
}

/// Compressed bytes come back, by each algorithm.
pub(super) fn round_trip(bytes: &[u8]) {
    let Some(([algorithm, level, room], block)) = bytes.split_first_chunk::<3>() else { return };
    let algorithm = compress::LZJB + algorithm % (compress::COUNT - compress::LZJB);
    // Higher levels are the library's and slow.
    let level = level % 6;
    let mut out = vec![0xa5; block.len() * (1 + usize::from(*room)) / 256 + 32];
    let Some(length) = compress(algorithm, level, block, &mut out) else { return };
    assert!(length <= out.len(), "{length} bytes in {}", out.len());
    if algorithm == compress::EMPTY {
        assert!(compress::is_zero(block));
        return;
    }
    out[length..].fill(0);
    assert_eq!(decompress(algorithm, &out, block.len()).as_deref(), Ok(block), "algorithm {algorithm}");
}

pub(super) fn round_trip_seeds() -> Vec<Vec<u8>> {
    let one = |(number, block): (usize, Vec<u8>)| [&[number as u8, 3, 255], block.as_slice()].concat();
    contents().into_iter().cycle().take(28).enumerate().map(one).collect()
}

/// All checksums of a block; those that can go on in the middle do not care where it was cut.
pub(super) fn checksum(bytes: &[u8]) {
    let Some(([algorithm, cut], block)) = bytes.split_first_chunk::<2>() else { return };
    let salt = [7; 32];
    for swapped in [false, true] {
        let whole = checksum::checksum(*algorithm % 20, block, swapped, &salt);
        assert_eq!(whole.is_none(), matches!(*algorithm % 20, 0 | 1 | 15..));
        let (front, back) = block.split_at((usize::from(*cut) * 16).min(block.len() / 16 * 16));
        let mut sum = checksum::Fletcher4::new(swapped);
        sum.update(front);
        sum.update(back);
        assert_eq!(sum.words(), checksum::fletcher4(block, swapped));
        let mut sum = checksum::Fletcher2::new(swapped);
        sum.update(front);
        sum.update(back);
        assert_eq!(sum.words(), checksum::fletcher2(block, swapped));
    }
    let mut sealed = block.to_vec();
    let verifier = [1, 2, 3, 4];
    let _ = embedded::embedded(*algorithm % 20, &sealed, verifier).map(|found| found.is_valid_beside_mac(*algorithm));
    if embedded::seal(*algorithm % 20, &mut sealed, verifier).is_ok() {
        assert!(embedded::verify_embedded(*algorithm % 20, &sealed, verifier), "algorithm {}", *algorithm % 20);
    }
}

pub(super) fn checksum_seeds() -> Vec<Vec<u8>> {
    contents()
        .into_iter()
        .cycle()
        .take(20)
        .enumerate()
        .map(|(number, block)| [&[number as u8, 3], block.as_slice()].concat())
        .collect()
}
