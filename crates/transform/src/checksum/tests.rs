//! Published vectors, and blocks of a pool that OpenZFS 2.4 has written.

use super::*;

/// The salt of that pool.
const SALT: &str = "c7bb2ef1a23af8804d152bfd3f25c070c8828406e9e9565624f75ca153bc260e";

fn salt() -> [u8; 32] {
    hex::decode(SALT).unwrap().try_into().unwrap()
}

/// One sector per algorithm, with what the block pointer says of it (printed by zdb).
#[test]
fn blocks_of_a_real_pool() {
    let vectors: [(u8, &[u8; 512], Words); 7] = [
        (
            FLETCHER2,
            include_bytes!("vectors/fletcher2"),
            [
                0x7ce5_9de3_688e_5781,
                0x060e_acf0_760b_7d16,
                0xa61f_3bfa_c751_27d7,
                0x7e70_26ff_d184_1ab9,
            ],
        ),
        (
            FLETCHER4,
            include_bytes!("vectors/fletcher4"),
            [
                0x0000_0029_6533_c80f,
                0x0000_0c48_bb68_8542,
                0x0002_25ce_a8ea_0ac0,
                0x0047_0efe_85d8_3479,
            ],
        ),
        (
            SHA256,
            include_bytes!("vectors/sha256"),
            [
                0x589b_547c_15b5_ec4c,
                0xd219_24f9_1d47_7ed1,
                0x2f3a_a5c7_8e76_86ae,
                0xc28d_e79a_65ce_4862,
            ],
        ),
        (
            SHA512,
            include_bytes!("vectors/sha512"),
            [
                0xd63d_f66c_eee1_c2b8,
                0xf15f_2899_b913_6b40,
                0xac7c_9b8e_101e_534f,
                0x75c4_38e1_c408_ca43,
            ],
        ),
        (
            SKEIN,
            include_bytes!("vectors/skein"),
            [
                0x28a4_4aad_6c09_9c6e,
                0xaaf6_09a1_c7e2_5450,
                0x90d4_5894_da67_93bb,
                0x8546_e428_1be6_4819,
            ],
        ),
        (
            EDONR,
            include_bytes!("vectors/edonr"),
            [
                0x3a34_6fb8_da8f_f5f5,
                0x7a7a_1573_6b61_ad4f,
                0xe203_fe72_7caa_16b8,
                0xeda6_2afe_94ce_3436,
            ],
        ),
        (
            BLAKE3,
            include_bytes!("vectors/blake3"),
            [
                0x994c_4d3d_bc87_059d,
                0x681e_cb13_2b60_20e3,
                0x89bb_8844_19b3_56fc,
                0x7494_d435_77c7_f6d5,
            ],
        ),
    ];
    for (algorithm, block, words) in vectors {
        assert_eq!(
            checksum(algorithm, block, false, &salt()),
            Some(words),
            "algorithm {algorithm}"
        );
        let mut other_salt = salt();
        other_salt[31] ^= 1;
        let salted = checksum(algorithm, block, false, &other_salt) != Some(words);
        assert_eq!(
            salted,
            is_salted(algorithm),
            "algorithm {algorithm} and the salt"
        );
        let mut damaged = *block;
        damaged[77] ^= 0x10;
        assert_ne!(
            checksum(algorithm, &damaged, false, &salt()),
            Some(words),
            "algorithm {algorithm}, damaged"
        );
    }
}

/// The digests of "abc" in FIPS 180-4.
#[test]
fn published_sha() {
    assert_eq!(
        sha256(b"abc"),
        [
            0xba78_16bf_8f01_cfea,
            0x4141_40de_5dae_2223,
            0xb003_61a3_9617_7a9c,
            0xb410_ff61_f200_15ad
        ]
    );
    assert_eq!(
        sha512(b"abc", true),
        [
            0x5304_8e26_8194_1ef9,
            0x9b2e_29b7_6b4c_7dab,
            0xe4c2_d0c6_34fc_6d46,
            0xe0e2_f131_07e7_af23
        ]
    );
    assert_eq!(
        sha512(b"abc", false),
        sha512(b"abc", true).map(u64::swap_bytes)
    );
}

/// Sums of small words by hand.
#[test]
fn fletcher_by_hand() {
    let words: Vec<u8> = [1u32, 2, 3, 4]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    assert_eq!(fletcher4(&words, false), [10, 20, 35, 56]);
    let longs: Vec<u8> = [1u64, 10, 2, 20]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    assert_eq!(fletcher2(&longs, false), [3, 30, 4, 40]);
}

/// A block written on a big-endian machine: the same numbers in the other order give the same sums.
#[test]
fn byteswap() {
    let little: Vec<u8> = (0..1024u32)
        .flat_map(|i| i.wrapping_mul(0x9e37_79b9).to_le_bytes())
        .collect();
    let swapped = |step: usize| -> Vec<u8> {
        little
            .chunks(step)
            .flat_map(|word| word.iter().rev().copied())
            .collect()
    };
    assert_eq!(fletcher4(&swapped(4), true), fletcher4(&little, false));
    assert_eq!(fletcher2(&swapped(8), true), fletcher2(&little, false));
    for algorithm in [SHA512, SKEIN, EDONR, BLAKE3] {
        let native = checksum(algorithm, &little, false, &salt()).unwrap();
        assert_eq!(
            checksum(algorithm, &little, true, &salt()),
            Some(native.map(u64::swap_bytes))
        );
    }
    assert_eq!(
        checksum(SHA256, &little, true, &salt()),
        checksum(SHA256, &little, false, &salt())
    );
}

#[test]
fn numbers() {
    for algorithm in 0..=u8::MAX {
        let known = checksum(algorithm, &[0; 512], false, &salt()).is_some();
        assert_eq!(
            known,
            (OFF..COUNT).contains(&algorithm),
            "algorithm {algorithm}"
        );
    }
    assert_eq!(checksum(OFF, &[1; 512], false, &salt()), Some([0; 4]));
}

/// A log block as OpenZFS lays it out: used size at 136, trailer at 144.
fn log_block(used: u64) -> Vec<u8> {
    let mut block: Vec<u8> = (0..16384u32).map(|i| (i * 7 + i / 256) as u8).collect();
    block[136..144].copy_from_slice(&used.to_le_bytes());
    block
}

#[test]
fn sealed_blocks_verify() {
    let verifier = [0x1c000, 7, 9, 0];
    for algorithm in [LABEL, GANG_HEADER, ZILOG, ZILOG2] {
        let mut block = log_block(4097);
        let words = embedded::seal(algorithm, &mut block, verifier).unwrap();
        let found = embedded::embedded(algorithm, &block, verifier).unwrap();
        assert_eq!(
            (found.stored, found.computed, found.byteswap),
            (words, words, false)
        );
        assert!(
            !embedded::verify_embedded(algorithm, &block, [0x1c001, 7, 9, 0]),
            "algorithm {algorithm}: wrong place"
        );
        let mut damaged = block.clone();
        damaged[5000] ^= 1;
        assert!(
            !embedded::verify_embedded(algorithm, &damaged, verifier),
            "algorithm {algorithm}: damaged"
        );
        // Behind the used part, a log block may hold anything.
        let mut behind = block.clone();
        behind[8192] ^= 1;
        assert_eq!(
            embedded::verify_embedded(algorithm, &behind, verifier),
            algorithm == ZILOG2
        );
    }
}

/// The definition, spelled out: with the verifier in place, the bare sum is what the trailer gets.
#[test]
fn seal_is_the_sum_with_the_verifier_in_place() {
    let verifier = [1, 2, 3, 4u64];
    let mut block = log_block(512);
    let words = embedded::seal(ZILOG2, &mut block, verifier).unwrap();
    for (index, word) in verifier.iter().enumerate() {
        block[152 + 8 * index..160 + 8 * index].copy_from_slice(&word.to_le_bytes());
    }
    assert_eq!(fletcher4(&block[..4096], false), words);
}

/// A log block from a big-endian machine: each word reversed.
#[test]
fn sealed_in_the_other_order() {
    let verifier = [5, 6, 7, 8];
    let mut block = log_block(4096);
    embedded::seal(ZILOG, &mut block, verifier).unwrap();
    let other: Vec<u8> = block
        .chunks(8)
        .flat_map(|word| word.iter().rev().copied())
        .collect();
    let found = embedded::embedded(ZILOG, &other, verifier).unwrap();
    assert!(found.byteswap && found.is_valid());
    assert!(!embedded::verify_embedded(ZILOG, &other, [5, 6, 7, 9]));
}

#[test]
fn sealed_beside_mac() {
    for algorithm in [ZILOG, ZILOG2] {
        let mut block = log_block(4096);
        let mac_at = if algorithm == ZILOG2 {
            168
        } else {
            block.len() - 16
        };
        block[mac_at..mac_at + 16].fill(0xaa);
        embedded::seal_beside_mac(algorithm, &mut block, [1, 2, 3, 4]).unwrap();
        assert_eq!(block[mac_at..mac_at + 16], [0xaa; 16]);
        assert!(
            embedded::embedded(algorithm, &block, [1, 2, 3, 4])
                .unwrap()
                .is_valid_beside_mac(algorithm)
        );
        assert!(
            !embedded::embedded(algorithm, &block, [1, 2, 3, 5])
                .unwrap()
                .is_valid_beside_mac(algorithm)
        );
    }
}

#[test]
fn hostile_trailers() {
    let verifier = [0; 4];
    assert_eq!(
        embedded::embedded(FLETCHER4, &[0; 512], verifier),
        Err(EmbeddedError::NotEmbedded(FLETCHER4))
    );
    for algorithm in [LABEL, GANG_HEADER, ZILOG, ZILOG2] {
        for length in [0, 8, 39, 40, 143, 144, 183, 184, 512] {
            let mut block = vec![0; length];
            assert!(
                embedded::embedded(algorithm, &block, verifier).is_err(),
                "algorithm {algorithm}, {length} bytes"
            );
            let _ = embedded::seal(algorithm, &mut block, verifier);
        }
    }
    for used in [0, 16385, u64::MAX, u64::MAX - 4095, 1 << 63] {
        let mut block = log_block(used);
        assert_eq!(
            embedded::seal(ZILOG2, &mut block, verifier),
            Err(EmbeddedError::TooShort),
            "used {used}"
        );
        block[144..152].copy_from_slice(&embedded::MAGIC.to_le_bytes());
        assert_eq!(
            embedded::embedded(ZILOG2, &block, verifier),
            Err(EmbeddedError::TooShort),
            "used {used}"
        );
    }
}

/// The label of a golden pool: its name-value list area carries a checksum whose verifier is the area's offset.
#[test]
fn label_of_a_golden_pool() {
    let golden =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/oracle/golden");
    if !golden.join("unpack").exists() {
        eprintln!(
            "SKIPPED label_of_a_golden_pool: no golden pools at {}",
            golden.display()
        );
        return;
    }
    let directory = std::env::temp_dir().join(format!("transform-label-{}", std::process::id()));
    let status = std::process::Command::new(golden.join("unpack"))
        .arg("single-a9")
        .arg(&directory)
        .status()
        .unwrap();
    assert!(status.success(), "golden/unpack failed");
    let image = std::fs::File::open(directory.join("d0.img")).unwrap();
    let mut area = vec![0; 112 << 10];
    std::os::unix::fs::FileExt::read_exact_at(&image, &mut area, 16 << 10).unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    assert!(embedded::verify_embedded(LABEL, &area, [16 << 10, 0, 0, 0]));
    assert!(!embedded::verify_embedded(LABEL, &area, [0; 4]));
}
