//! How pointers say what protects an encrypted block.

use super::{BlkPtr, DataPointer, Protection};
use crate::bits;
use crate::object_type::ObjectType;

/// Salt, initialization vector and authentication code of a block.
pub type Secrets = ([u8; 8], [u8; 12], [u8; 16]);

/// A pointer among what a MAC is made of: properties, MAC of its block, zeros.
#[doc(alias = "blkptr_auth_buf_t")]
pub const AUTHENTICATED_BYTES: usize = 32;

impl BlkPtr {
    /// What of the pointer is the same wherever the block is sent to: its properties without what depends on the pool, and its MAC.
    #[doc(alias = "zio_crypt_bp_auth_init", alias = "zio_crypt_bp_zero_nonportable_blkprop")]
    pub fn authenticated(&self) -> [u8; AUTHENTICATED_BYTES] {
        let mut out = [0; AUTHENTICATED_BYTES];
        if self.is_hole() {
            return out;
        }
        let mut word = bits::set(bits::set(self.properties.get(), 62, 1, 0), 40, 8, 0);
        if self.level() != 0 {
            // Streams say nothing of how indirect blocks are stored.
            word = bits::set(bits::set(bits::set(word, 63, 1, 0), 32, 7, 0), 16, 16, 0);
        }
        out[..8].copy_from_slice(&word.to_le_bytes());
        if self.object_type() != ObjectType::OBJSET {
            out[8..16].copy_from_slice(&self.checksum[2].get().to_le_bytes());
            out[16..24].copy_from_slice(&self.checksum[3].get().to_le_bytes());
        }
        out
    }
}

impl DataPointer {
    /// Salt, initialization vector and authentication code, as raw streams have them. What is only authenticated has no salt and no vector.
    #[doc(alias = "zio_crypt_decode_params_bp")]
    pub fn secrets(&self) -> Secrets {
        let (mut salt, mut iv, mut mac) = ([0; 8], [0; 12], [0; 16]);
        if let Protection::Encrypted { salt: word, iv: head, iv_tail } = self.protection {
            salt = word.to_le_bytes();
            iv[..8].copy_from_slice(&head.to_le_bytes());
            iv[8..].copy_from_slice(&iv_tail.to_le_bytes());
        }
        mac[..8].copy_from_slice(&self.checksum[2].to_le_bytes());
        mac[8..].copy_from_slice(&self.checksum[3].to_le_bytes());
        (salt, iv, mac)
    }

    /// The other way round: the block is protected by these. [`DataPointer::checksum`] keeps its first two words.
    #[doc(alias = "zio_crypt_encode_params_bp", alias = "zio_crypt_encode_mac_bp")]
    pub fn set_secrets(&mut self, (salt, iv, mac): &Secrets) {
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        self.protection = match (self.level > 0, self.object_type.is_encrypted()) {
            (true, _) => Protection::IndirectMac,
            (false, false) => Protection::Authenticated,
            (false, true) => Protection::Encrypted { salt: word(salt), iv: word(&iv[..8]), iv_tail: word(&iv[8..]) as u32 },
        };
        // The head of an object set has its MACs inside, and all of its checksum.
        if self.object_type != ObjectType::OBJSET {
            (self.checksum[2], self.checksum[3]) = (word(&mac[..8]), word(&mac[8..]));
        }
    }
}
