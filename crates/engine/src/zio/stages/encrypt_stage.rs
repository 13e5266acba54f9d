//! Encryption, of which there is only the place yet: between compression and the checksum.
//!
//! # Theory
//! What is encrypted is what compression left, and the checksum is of what is on disk: so a block can be verified, healed and sent raw without
//! its key. A block that is encrypted is neither a hole nor in its pointer. It has a salt, an initialization vector and a MAC in its pointer
//! ([`Protection`]), none of which depends on its place.
//!
//! No key is ever loaded. So nothing is encrypted on the way down: blocks of encrypted datasets come as a sender has them ([`Seal::Raw`]), and what
//! points at them has a checksum of their MACs, which takes no key. On the way up only what was not encrypted can be read.

use std::borrow::Cow;

use ondisk::blkptr::{BlkPtr, DataPointer, Protection, Secrets};
use ondisk::object_type::ObjectType;
use transform::checksum::sha512_digest;

use crate::zio::{Bookmark, Seal, WriteRequest};
use crate::bail;
use crate::error::Result;

/// What protects a block: what its sender gave, or a checksum. `None`: nothing.
///
/// # Errors
/// `KeyNotLoaded` when what the block replaces is encrypted, and this is not.
pub(in crate::zio) fn protect(request: &WriteRequest) -> Result<Option<Secrets>> {
    match &request.seal {
        Seal::Open if request.previous.uses_encryption() => bail!(KeyNotLoaded, "block {}: what it replaces is encrypted", request.bookmark),
        Seal::Open => Ok(None),
        Seal::Raw(raw) => Ok(Some(raw.secrets)),
        Seal::Pointers => Ok(Some(([0; 8], [0; 12], mac_of_pointers(&request.data)))),
        Seal::Head => Ok(Some(Secrets::default())),
    }
}

/// What stands for the MACs of the blocks that these pointers lead to.
#[doc(alias = "zio_crypt_do_indirect_mac_checksum")]
fn mac_of_pointers(pointers: &[u8]) -> [u8; 16] {
    let authenticated: Vec<u8> = BlkPtr::slice_of(pointers).iter().flat_map(BlkPtr::authenticated).collect();
    let mut mac = [0; 16];
    mac.copy_from_slice(&sha512_digest(&authenticated)[..16]);
    mac
}

/// Does it take a key to make the block plain? Of dnodes only the bonus buffers are encrypted: the rest must be found without the key, to free it
/// for one.
pub(in crate::zio) fn needs_key(pointer: &DataPointer) -> bool {
    matches!(pointer.protection, Protection::Encrypted { .. }) && pointer.object_type != ObjectType::DNODE
}

/// Decrypts the physical bytes of a block, where it needs a key: there is none.
///
/// # Errors
/// `KeyNotLoaded`.
pub(in crate::zio) fn decrypt<'a>(pointer: &DataPointer, physical: &'a [u8], at: &Bookmark) -> Result<Cow<'a, [u8]>> {
    check_key(pointer, at)?;
    Ok(Cow::Borrowed(physical))
}

/// Fails if [`decrypt`] would, before anything is read.
///
/// # Errors
/// `KeyNotLoaded`.
pub(in crate::zio) fn check_key(pointer: &DataPointer, at: &Bookmark) -> Result<()> {
    if needs_key(pointer) {
        bail!(KeyNotLoaded, "block {at} is encrypted");
    }
    Ok(())
}
