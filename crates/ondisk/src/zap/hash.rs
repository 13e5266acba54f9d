//! The hash of a ZAP: which names it spreads where.
//!
//! # Theory
//! A ZAP orders its entries by a 64-bit CRC (the ECMA-182 polynomial, bit-reflected, no final inversion) that starts from the
//! ZAP's own salt instead of zero, so that nobody can prepare names that all collide. Only the upper bits are kept:
//! 28 of them, so that a position (hash and collision number) fits the 32-bit directory cookie of old programs,
//! or 48 in ZAPs made with [`FLAG_HASH_64`].
//!
//! # Invariants
//! 1. The bits below [`hash_bits`] are zero in every hash that is stored or compared.

/// Fat ZAP flag: hashes keep 48 bits instead of 28.
#[doc(alias = "ZAP_FLAG_HASH64")]
pub const FLAG_HASH_64: u64 = 1 << 0;
/// Fat ZAP flag: keys are arrays of 64-bit words, not strings.
#[doc(alias = "ZAP_FLAG_UINT64_KEY")]
pub const FLAG_WORD_KEYS: u64 = 1 << 1;
/// Fat ZAP flag: the first word of a key is already evenly spread and is the hash.
#[doc(alias = "ZAP_FLAG_PRE_HASHED_KEY")]
pub const FLAG_PRE_HASHED: u64 = 1 << 2;

const POLYNOMIAL: u64 = 0xC96C_5795_D787_0F42;

static TABLE: [u64; 256] = table();

const fn table() -> [u64; 256] {
    let mut table = [0u64; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u64;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
}

/// Continues the CRC `crc` with `bytes`.
pub fn crc64(crc: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(crc, |crc, &byte| (crc >> 8) ^ TABLE[usize::from(crc as u8 ^ byte)])
}

/// How many upper bits of a hash are kept in a ZAP with these flags.
pub const fn hash_bits(flags: u64) -> u32 {
    if flags & FLAG_HASH_64 != 0 { 48 } else { 28 }
}

/// The exclusive bound of collision numbers in a ZAP with these flags.
pub const fn collision_limit(flags: u64) -> u32 {
    if flags & FLAG_HASH_64 != 0 { 0xffff } else { u32::MAX }
}

const fn keep_upper(hash: u64, flags: u64) -> u64 {
    hash & !((1u64 << (64 - hash_bits(flags))) - 1)
}

/// The hash of a string key, given without its terminating zero (and already normalised, if the ZAP normalises).
pub fn hash_name(salt: u64, flags: u64, name: &[u8]) -> u64 {
    keep_upper(crc64(salt, name), flags)
}

/// The hash of a key of 64-bit words.
pub fn hash_words(salt: u64, flags: u64, words: &[u64]) -> u64 {
    if flags & FLAG_PRE_HASHED != 0 {
        return keep_upper(words.first().copied().unwrap_or(0), flags);
    }
    keep_upper(words.iter().fold(salt, |crc, word| crc64(crc, &word.to_le_bytes())), flags)
}

/// The index that the upper `bits` bits of `hash` give.
pub const fn index(hash: u64, bits: u32) -> u64 {
    if bits == 0 { 0 } else { hash >> (64 - bits) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_the_reflected_ecma_table() {
        // The entry of 0x80 is the polynomial itself in every reflected CRC table.
        assert_eq!(TABLE[128], POLYNOMIAL);
        assert_eq!(TABLE[0], 0);
        // CRC-64/XZ is this CRC with both inversions; its published check value.
        assert_eq!(!crc64(!0, b"123456789"), 0x995D_C9BB_DF19_39FA);
    }

    #[test]
    fn only_the_upper_bits_are_kept() {
        assert_eq!(hash_name(1, 0, b"a name") & ((1 << 36) - 1), 0);
        assert_eq!(hash_name(1, FLAG_HASH_64, b"a name") & 0xffff, 0);
        assert_eq!(hash_words(1, FLAG_WORD_KEYS | FLAG_PRE_HASHED, &[u64::MAX]), 0xffff_fff0_0000_0000);
        assert_eq!(index(0x8000_0000_0000_0000, 1), 1);
        assert_eq!(index(u64::MAX, 0), 0);
    }
}
