//! The wrapped key that comes with a stream of an encrypted dataset, and the shape of its object set.

use ondisk::dnode as disk;
use ondisk::nvlist::NvList;

use crate::dmu::RawHead;
use crate::error::Result;
use crate::{bail, error};

/// The list in the payload of BEGIN.
const KEY_DATA: &str = "crypt_keydata";
/// `encryption`: ciphers that there are.
const SUITES: std::ops::RangeInclusive<u64> = 3..=8;
/// The way to encrypt that can be received.
const KEY_VERSION: u64 = 1;
/// `keyformat`: raw, hex, passphrase.
const FORMATS: std::ops::RangeInclusive<u64> = 1..=3;
const FORMAT_PASSPHRASE: u64 = 3;
/// `pbkdf2iters` is no less.
const ITERATIONS_MIN: u64 = 100_000;
/// Pointers of a meta-dnode.
const META_POINTERS: u64 = 3;

/// A master key, wrapped with the key of a user of the sender.
#[derive(Debug, Clone)]
pub(in crate::dsl) struct WrappedKey {
    /// Which cipher.
    pub(in crate::dsl) suite: u64,
    /// Names the master key.
    pub(in crate::dsl) guid: u64,
    /// How it is wrapped.
    pub(in crate::dsl) version: u64,
    /// Its parts, wrapped, by the names of their entries.
    pub(in crate::dsl) parts: [(&'static str, Vec<u8>); 4],
    /// `keyformat`, `pbkdf2iters`, `pbkdf2salt`.
    pub(in crate::dsl) numbers: [(&'static str, u64); 3],
    /// Names the vectors of the snapshot that the stream is incremental from; 0: not known.
    pub(in crate::dsl) from_ivset_guid: u64,
    /// Names those of the one that is received.
    pub(in crate::dsl) to_ivset_guid: u64,
    /// The head of its object set.
    pub(in crate::dsl) head: RawHead,
}

/// Entries of the list and of the key's object, with their lengths.
const PARTS: [(&str, usize); 4] = [("DSL_CRYPTO_MASTER_KEY_1", 32), ("DSL_CRYPTO_HMAC_KEY_1", 64), ("DSL_CRYPTO_IV", 12), ("DSL_CRYPTO_MAC", 16)];

impl WrappedKey {
    /// What the list of a stream says.
    ///
    /// # Errors
    /// `Corrupt`: something is missing, or cannot be.
    #[doc(alias = "dsl_crypto_recv_raw_key_check")]
    pub(in crate::dsl) fn parse(list: &NvList) -> Result<WrappedKey> {
        let Some(list) = list.nvlist(KEY_DATA) else { bail!(Corrupt, "the stream is encrypted, and has no key") };
        let missing = |name: &str| error!(Corrupt, "the key of the stream has no {name}");
        let number = |name: &str| list.u64(name).ok_or_else(|| missing(name));
        let within = |name: &str, range: std::ops::RangeInclusive<u64>| match number(name)? {
            found if range.contains(&found) => Ok(found),
            found => Err(error!(Corrupt, "the key of the stream says {name} {found}, which cannot be")),
        };
        let bytes = |name: &str, length: usize| match list.bytes(name) {
            Some(found) if found.len() == length => Ok(found.to_vec()),
            _ => Err(missing(name)),
        };
        let format = within("keyformat", FORMATS)?;
        let iterations = within("pbkdf2iters", if format == FORMAT_PASSPHRASE { ITERATIONS_MIN..=u64::MAX } else { 0..=u64::MAX })?;
        let [master, hmac, iv, mac] = PARTS.map(|(name, length)| bytes(name, length).map(|found| (name, found)));
        within("mdn_blksz", disk::DNODE_BLOCK_BYTES..=disk::DNODE_BLOCK_BYTES)?;
        within("mdn_nblkptr", META_POINTERS..=META_POINTERS)?;
        let mut portable_mac = [0; 32];
        portable_mac.copy_from_slice(&bytes("portable_mac", 32)?);
        Ok(WrappedKey {
            suite: within("DSL_CRYPTO_SUITE", SUITES)?,
            guid: number("DSL_CRYPTO_GUID")?,
            version: within("DSL_CRYPTO_VERSION", KEY_VERSION..=KEY_VERSION)?,
            parts: [master?, hmac?, iv?, mac?],
            numbers: [("keyformat", format), ("pbkdf2iters", iterations), ("pbkdf2salt", number("pbkdf2salt")?)],
            from_ivset_guid: list.u64("from_ivset_guid").unwrap_or(0),
            to_ivset_guid: list.u64("to_ivset_guid").unwrap_or(0),
            head: RawHead {
                portable_mac,
                levels: within("mdn_nlevels", 1..=disk::LEVELS_MAX.into())? as u8,
                max_block: within("mdn_maxblkid", 0..=disk::OBJECTS_MAX / disk::DNODES_PER_BLOCK)?,
                indirect_shift: within("mdn_indblkshift", disk::INDIRECT_SHIFT_MIN.into()..=disk::INDIRECT_SHIFT_MAX.into())? as u8,
                checksum: within("mdn_checksum", 0..=14)? as u8,
                compression: within("mdn_compress", 0..=16)? as u8,
            },
        })
    }
}
