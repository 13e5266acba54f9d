//! Encryption, of which there is only the place yet: between compression and the checksum.
//!
//! # Theory
//! What is encrypted is what compression left, and the checksum is of what is on disk: so a block can be verified, healed and sent raw without
//! its key. A block that is encrypted is neither a hole nor in its pointer. It has a salt, an initialization vector and a MAC in its pointer
//! ([`Protection`]), none of which depends on its place.
//!
//! No key is ever loaded. So nothing is encrypted on the way down, and on the way up only what was not can be read.

use std::borrow::Cow;

use ondisk::blkptr::{DataPointer, Protection};
use ondisk::object_type::ObjectType;

use super::compress_stage::Contents;
use crate::zio::{Bookmark, WriteRequest};
use crate::bail;
use crate::error::Result;

/// The physical bytes of a block, and what its pointer says of how they are protected.
#[derive(Debug)]
pub(in crate::zio) struct Protected {
    pub(in crate::zio) contents: Contents,
    pub(in crate::zio) protection: Protection,
}

/// Encrypts what compression left of a block, where its dataset is encrypted: it is not.
///
/// # Errors
/// `KeyNotLoaded` when what the block replaces is encrypted.
pub(in crate::zio) fn encrypt(request: &WriteRequest, contents: Contents) -> Result<Protected> {
    if request.previous.uses_encryption() {
        bail!(KeyNotLoaded, "block {}: what it replaces is encrypted", request.bookmark);
    }
    Ok(Protected { contents, protection: Protection::None })
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
