//! Skein-512 as a keyed hash with 256 bits of output.
//!
//! # Theory
//! Skein chains calls of the block cipher Threefish-512 in "unique block iteration": each 64-byte block is encrypted under the
//! chaining value, with a tweak that says how many bytes have been processed, what the input is for, and whether the block
//! is the first or last of it; the ciphertext xor the block is the next chaining value.
//! The key goes through it first, then a configuration block, then the message, and at last the output counter.
//!
//! The cipher is a crate's. The `skein` crate has no way to give a key.

use threefish::Threefish512;

type Chain = [u64; 8];

const BLOCK_BYTES: usize = 64;

/// What an input is for: bits 56..62 of the second word of the tweak.
#[derive(Clone, Copy)]
enum Purpose {
    Key = 0,
    Configuration = 4,
    Message = 48,
    Output = 63,
}

const FIRST: u64 = 1 << 62;
const FINAL: u64 = 1 << 63;

/// The MAC of `data` under `key`.
pub(super) fn keyed_256(key: &[u8; 32], data: &[u8]) -> [u8; 32] {
    finish(absorb(&[0; 8], Purpose::Key, key), data, 256)
        .first_chunk()
        .copied()
        .unwrap_or_default()
}

/// Everything after the key.
fn finish(keyed: Chain, data: &[u8], output_bits: u64) -> [u8; BLOCK_BYTES] {
    let mut configuration = [0u8; 32];
    configuration[..4].copy_from_slice(b"SHA3");
    configuration[4] = 1;
    configuration[8..16].copy_from_slice(&output_bits.to_le_bytes());
    let chain = absorb(&keyed, Purpose::Configuration, &configuration);
    let chain = absorb(&chain, Purpose::Message, data);
    let output = absorb(&chain, Purpose::Output, &0u64.to_le_bytes());
    let mut bytes = [0; BLOCK_BYTES];
    for (to, word) in bytes.as_chunks_mut().0.iter_mut().zip(output) {
        *to = word.to_le_bytes();
    }
    bytes
}

/// One run of unique block iteration over `input`. Even an empty input is one (zero) block.
fn absorb(start: &Chain, purpose: Purpose, input: &[u8]) -> Chain {
    let purpose = (purpose as u64) << 56;
    let full_but_last = input.len().saturating_sub(1) / BLOCK_BYTES;
    let (full, last) = input.split_at(full_but_last * BLOCK_BYTES);
    let mut chain = *start;
    let mut position = 0u64;
    let mut flags = FIRST;
    for block in full.as_chunks::<BLOCK_BYTES>().0 {
        position += BLOCK_BYTES as u64;
        chain = compress(&chain, [position, purpose | flags], block);
        flags = 0;
    }
    let mut padded = [0; BLOCK_BYTES];
    padded[..last.len()].copy_from_slice(last);
    position += last.len() as u64;
    compress(&chain, [position, purpose | flags | FINAL], &padded)
}

#[inline]
fn compress(chain: &Chain, tweak: [u64; 2], block: &[u8; BLOCK_BYTES]) -> Chain {
    let mut plain = [0u64; 8];
    for (word, bytes) in plain.iter_mut().zip(block.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    let mut cipher = plain;
    Threefish512::new_with_tweak_u64(chain, &tweak).encrypt_block_u64(&mut cipher);
    for (word, plain) in cipher.iter_mut().zip(plain) {
        *word ^= plain;
    }
    cipher
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Skein-512-512 of the byte ff, from the appendix of the Skein 1.3 paper (no key: the chain starts at zero).
    #[test]
    fn published_vector() {
        let digest = finish([0; 8], &[0xff], 512);
        assert_eq!(
            hex::encode(digest),
            "71b7bce6fe6452227b9ced6014249e5bf9a9754c3ad618ccc4e0aae16b316cc8\
             ca698d864307ed3e80b6ef1570812ac5272dc409b5a012df2a579102f340617a"
        );
    }

    /// A message that ends at a block boundary has no block of padding.
    #[test]
    fn exact_blocks_are_final() {
        let data = [7u8; 128];
        let whole = absorb(&[0; 8], Purpose::Message, &data);
        let first = compress(&[0; 8], [64, (48 << 56) | FIRST], &[7; 64]);
        assert_eq!(whole, compress(&first, [128, (48 << 56) | FINAL], &[7; 64]));
    }
}
