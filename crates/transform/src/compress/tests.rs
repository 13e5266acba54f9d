//! Blocks that OpenZFS 2.4 has compressed, round trips, limits, and bytes that nobody has compressed.

use super::*;
use rand::{Rng, RngCore, SeedableRng};

const ALGORITHMS: [u8; 13] = [
    LZJB, GZIP_1, GZIP_2, GZIP_3, GZIP_4, GZIP_5, GZIP_6, GZIP_7, GZIP_8, GZIP_9, ZLE, LZ4, ZSTD,
];

fn random(name: &str, seed: u64) -> rand_chacha::ChaCha8Rng {
    println!("{name}: seed {seed:#x}");
    rand_chacha::ChaCha8Rng::seed_from_u64(seed)
}

/// Text-like, sparse, repetitive and random stretches.
fn mixture(random: &mut impl Rng, length: usize) -> Vec<u8> {
    let mut data = Vec::with_capacity(length + 4096);
    while data.len() < length {
        let stretch = random.random_range(1..2000);
        match random.random_range(0..5) {
            0 => data.resize(data.len() + stretch, 0),
            1 => data.extend((0..stretch).map(|_| random.random::<u8>())),
            2 => data.extend((0..stretch).map(|_| b"abcde "[random.random_range(0..6)])),
            3 if !data.is_empty() => {
                let from = random.random_range(0..data.len());
                let copy = data[from..]
                    .iter()
                    .copied()
                    .take(stretch)
                    .collect::<Vec<_>>();
                data.extend(copy);
            }
            _ => data.resize(data.len() + stretch, random.random()),
        }
    }
    data.truncate(length);
    data
}

/// The same kind of block by each algorithm: 2000 bytes of text, then zeros up to 128 KiB. The digests are of blocks whose
/// files had the digests in that pool's manifest.
#[test]
fn blocks_of_a_real_pool() {
    let vectors: [(u8, &[u8], &str); 8] = [
        (
            LZJB,
            include_bytes!("vectors/lzjb"),
            "d97f1fe5b83726c641c7cd86d129ad0cd823ec7033d80672fae16b00ce4890a0",
        ),
        (
            LZ4,
            include_bytes!("vectors/lz4"),
            "17dcdecb49c35a9aed16326abcd81084645ada350e082f384e7128d673b8a88b",
        ),
        (
            GZIP_1,
            include_bytes!("vectors/gzip-1"),
            "3a81e4a8bddd77f4aa82de76452f053895ee80aaabc11ed66d9598c9ab1b0f99",
        ),
        (
            GZIP_9,
            include_bytes!("vectors/gzip-9"),
            "54907924c5ef3cfe2edaeaecdd49cd7671a2e7452d1b54194008cc52927d0a08",
        ),
        (
            ZLE,
            include_bytes!("vectors/zle"),
            "2ff42dd1635442ed68d6f3d50592f9f461379d918310690dec26d11d4be9b552",
        ),
        (
            ZSTD,
            include_bytes!("vectors/zstd-3"),
            "ae3d742fce5dae09fa6d7a1b31f78c132892aff9b9f0a559ae8120edfcefcc0d",
        ),
        (
            ZSTD,
            include_bytes!("vectors/zstd-19"),
            "352ce038ede16b0cd8241b713a7091d6a0a2ceefd2c6929f5a8faed037c3d952",
        ),
        (
            ZSTD,
            include_bytes!("vectors/zstd-fast-100"),
            "a1c2773a86d23590b7f340c9d98351c52ea56e5c053bad726b1201bc3b5229dc",
        ),
    ];
    for (algorithm, compressed, expected) in vectors {
        let mut padded = compressed.to_vec();
        padded.resize(compressed.len().next_multiple_of(4096), 0);
        let block = decompress(algorithm, &padded, 128 << 10).unwrap();
        let digest = crate::checksum::sha256(&block)
            .map(|word| format!("{word:016x}"))
            .concat();
        assert_eq!(digest, expected, "algorithm {algorithm}");
        // The same data takes us about as much room as it took them.
        let level = zstd::level_of(compressed)
            .filter(|_| algorithm == ZSTD)
            .unwrap_or(LEVEL_DEFAULT);
        let mut room = vec![0; padded.len()];
        let length =
            compress(algorithm, level, &block, &mut room).expect("does not fit where theirs did");
        assert!(
            length <= compressed.len() + compressed.len() / 4 + 64,
            "algorithm {algorithm}: {length} against {}",
            compressed.len()
        );
    }
    assert_eq!(zstd::level_of(include_bytes!("vectors/zstd-19")), Some(19));
    assert_eq!(
        zstd::level_of(include_bytes!("vectors/zstd-fast-100")),
        Some(zstd::LEVEL_FAST_1 + 18)
    );
}

#[test]
fn round_trips() {
    let mut random = random("round_trips", 0x1a5e_0002);
    for round in 0..60 {
        let length = if round < 8 {
            512 * (round + 1)
        } else {
            512 * random.random_range(1..300)
        };
        let data = mixture(&mut random, length);
        for algorithm in ALGORITHMS {
            let level = [
                1,
                3,
                LEVEL_DEFAULT,
                zstd::LEVEL_FAST_1,
                zstd::LEVEL_FAST_1 + 20,
            ][round % 5];
            let mut room = vec![0xee; length];
            let Some(compressed) = compress(algorithm, level, &data, &mut room) else {
                continue;
            };
            for padding in [0, 1, 511] {
                let mut physical = room[..compressed].to_vec();
                physical.resize(compressed + padding, 0);
                assert_eq!(
                    decompress(algorithm, &physical, length).as_ref(),
                    Ok(&data),
                    "algorithm {algorithm}, round {round}, padding {padding}"
                );
            }
            assert!(
                decompress(algorithm, &room[..compressed], length + 512).is_err(),
                "algorithm {algorithm}: too long"
            );
        }
    }
}

/// The room that is needed is enough; random data never fits; nothing panics in no room at all.
#[test]
fn limits() {
    let mut random = random("limits", 0x1a5e_0003);
    let data = mixture(&mut random, 128 << 10);
    let mut noise = vec![0; 128 << 10];
    random.fill_bytes(&mut noise);
    for algorithm in ALGORITHMS {
        let mut room = vec![0; 256 << 10];
        let needed = compress(algorithm, 1, &data, &mut room).unwrap();
        assert!(needed < data.len());
        // LZJB stops early when a group of items might not fit, and zstd writes words at a time.
        let slack = if matches!(algorithm, LZJB | ZSTD) {
            64
        } else {
            0
        };
        assert_eq!(
            compress(algorithm, 1, &data, &mut room[..needed + slack]),
            Some(needed),
            "algorithm {algorithm}"
        );
        for limit in [needed - 1, needed / 2, 20, 9, 8, 4, 3, 1, 0] {
            assert_eq!(
                compress(algorithm, 1, &data, &mut room[..limit]),
                None,
                "algorithm {algorithm}, limit {limit}"
            );
        }
        let seven_eighths = noise.len() / 8 * 7;
        for level in [1, 3, 19] {
            assert_eq!(
                compress(algorithm, level, &noise, &mut room[..seven_eighths]),
                None,
                "algorithm {algorithm}, noise"
            );
        }
        assert!(
            compress(algorithm, 1, &[0; 131_072], &mut room[..8192]).is_some(),
            "algorithm {algorithm}, zeros"
        );
    }
}

#[test]
fn zstd_levels() {
    let data = mixture(&mut random("zstd_levels", 0x1a5e_0004), 16 << 10);
    for level in 0..=u8::MAX {
        let valid = matches!(level, 1..=19 | 103..=123 | LEVEL_DEFAULT);
        assert_eq!(zstd::library_level(level).is_some(), valid, "level {level}");
        let mut room = vec![0; 32 << 10];
        let length = compress(ZSTD, level, &data, &mut room);
        assert_eq!(length.is_some(), valid, "level {level}");
        if let Some(length) = length {
            let stored = if level == LEVEL_DEFAULT {
                zstd::LEVEL_ZSTD_DEFAULT
            } else {
                level
            };
            assert_eq!(zstd::level_of(&room), Some(stored));
            assert_eq!(
                zstd::stored_level(zstd::library_level(stored).unwrap()),
                Some(stored)
            );
            assert_eq!(
                decompress(ZSTD, &room[..length], data.len()).as_ref(),
                Ok(&data)
            );
        }
    }
    assert_eq!(zstd::library_level(123), Some(-1000));
    assert_eq!(zstd::stored_level(-500), Some(122));
    assert_eq!(zstd::stored_level(-11), None);
    // The layout that big-endian machines have written.
    assert_eq!(
        zstd::level_of(&[0, 0, 0, 1, 0x00, 0x28, 0xa5, 0x03]),
        Some(3)
    );
    assert_eq!(
        zstd::level_of(&[0, 0, 0, 1, 0x03, 0x00, 0x28, 0xa5]),
        Some(3)
    );
}

/// Random bytes, and good blocks with damage, never panic and never give more than was asked for.
#[test]
fn hostile_input() {
    let mut random = random("hostile_input", 0x1a5e_0005);
    let good = mixture(&mut random, 8192);
    for round in 0..3000 {
        let algorithm = ALGORITHMS[round % ALGORITHMS.len()];
        let mut bytes = vec![0; 16384];
        let mut length = compress(algorithm, 1, &good, &mut bytes).unwrap();
        if round % 3 == 0 {
            length = random.random_range(0..200);
            random.fill_bytes(&mut bytes[..length]);
        } else {
            for _ in 0..random.random_range(1..5) {
                let at = random.random_range(0..length);
                bytes[at] = random.random();
            }
        }
        length = if round % 2 == 0 {
            length
        } else {
            random.random_range(0..=length)
        };
        let logical = [0, 1, 512, 8192, 131_072][random.random_range(0..5)];
        if let Ok(block) = decompress(algorithm, &bytes[..length], logical) {
            assert_eq!(block.len(), logical);
        }
    }
    for algorithm in 0..=u8::MAX {
        assert_eq!(
            decompress(algorithm, &[], LOGICAL_BYTES_MAX + 1),
            Err(DecompressError::TooLarge(LOGICAL_BYTES_MAX + 1))
        );
        assert!(decompress(algorithm, &[], 512).is_err());
    }
    assert_eq!(
        decompress(EMPTY, &[0; 512], 512),
        Err(DecompressError::UnknownAlgorithm(EMPTY))
    );
}

/// The decoders' own checks, one by one.
#[test]
fn bad_data_by_hand() {
    // A match before the beginning.
    assert_eq!(
        decompress(LZJB, &[0x01, 0x00, 0x05], 16),
        Err(DecompressError::BadData)
    );
    // A match at no distance.
    assert_eq!(
        decompress(LZJB, &[0x02, 0x41, 0x00, 0x00], 16),
        Err(DecompressError::BadData)
    );
    // Literals, then a match over the end, which stops there.
    assert_eq!(
        decompress(LZJB, &[0x02, 0x41, 0xfc, 0x01], 5).as_deref(),
        Ok(b"AAAAA".as_slice())
    );
    // More zeros than there is room for; literals cut off.
    assert_eq!(
        decompress(ZLE, &[0xff], 16),
        Err(DecompressError::WrongLength)
    );
    assert_eq!(
        decompress(ZLE, &[0x03, 1, 2], 4),
        Err(DecompressError::BadData)
    );
    assert_eq!(
        decompress(ZLE, &[0x01, 1, 2, 0x41], 4).as_deref(),
        Ok([1, 2, 0, 0].as_slice())
    );
    // Lengths beyond the block.
    assert_eq!(
        decompress(LZ4, &[0xff; 64], 512),
        Err(DecompressError::BadHeader)
    );
    assert_eq!(
        decompress(ZSTD, &[0xff, 0xff, 0xff, 0xff, 3, 0, 0x28, 0xa5, 0], 512),
        Err(DecompressError::BadHeader)
    );
    // A level that does not exist.
    assert_eq!(
        decompress(ZSTD, &[0, 0, 0, 1, 77, 0, 0x28, 0xa5, 0], 512),
        Err(DecompressError::BadHeader)
    );
}

#[test]
fn zeros() {
    for length in [0, 1, 255, 256, 257, 512, 4096 + 7] {
        let mut data = vec![0; length];
        assert!(is_zero(&data));
        for at in [0, length / 2, length.saturating_sub(1)] {
            if let Some(byte) = data.get_mut(at) {
                *byte = 0x80;
                assert!(!is_zero(&data), "{at} of {length}");
                data[at] = 0;
            }
        }
    }
    assert_eq!(compress(EMPTY, 0, &[0; 512], &mut []), Some(0));
    assert_eq!(compress(EMPTY, 0, &[1; 512], &mut [0; 512]), None);
}

/// Without the zeros at the end it is what it is with them, also of what nobody has compressed.
#[test]
fn what_is_trimmed_is_the_same() {
    let mut random = random("trimmed", 0x7213);
    let mut compared = 0;
    for round in 0..3000 {
        let length = random.random_range(1..200_usize) * 512;
        let mut data = mixture(&mut random, length);
        let kept = random.random_range(0..=length);
        match round % 4 {
            0 => data[kept..].fill(0),
            1 => data[kept.min(random.random_range(0..400))..].fill(0),
            2 => data[..kept].fill(0),
            _ => {}
        }
        let algorithm = ALGORITHMS[if round % 3 == 0 { round % ALGORITHMS.len() } else { 11 }];
        let mut packed = vec![0; length + length / 8 + 64];
        let Some(size) = compress(algorithm, LEVEL_DEFAULT, &data, &mut packed) else { continue };
        packed.truncate(size.next_multiple_of(512));
        if round % 5 == 0 {
            for _ in 0..random.random_range(1..4) {
                let at = random.random_range(0..packed.len().min(200));
                packed[at] = random.random();
            }
        }
        let whole = decompress(algorithm, &packed, length);
        let trimmed = decompress_trimmed(algorithm, &packed, length);
        match (whole, trimmed) {
            (Ok(whole), Ok(mut trimmed)) => {
                assert!(trimmed.last() != Some(&0), "round {round}");
                trimmed.resize(length, 0);
                assert!(whole == trimmed, "round {round}");
                compared += 1;
            }
            (Err(_), Err(_)) => assert_eq!(round % 5, 0, "round {round}"),
            (whole, trimmed) => assert_eq!((round % 5, whole.is_ok()), (0, trimmed.is_ok()), "round {round}: only one of them fails"),
        }
    }
    assert!(compared > 2000, "{compared}");
}
