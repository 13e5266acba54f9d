//! Which requests for contents go around the cache.
//!
//! # Theory
//! As OpenZFS decides it: what the property `direct` allows, and only what begins and ends on a page. A request that asked for it and does not is
//! served as any other, or refused if `zfs_dio_strict` says so. What a kernel collected in its own cache does not go around ours: the file is mapped.

use engine::bail;
use engine::dmu::{Caching, Direct};
use engine::error::Result;
use engine::tunables::Parameter;

use crate::zpl::inodes::file_set::FileSet;

/// Bytes of a page.
const PAGE: u64 = 4096;

/// How contents are read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadManner {
    /// Around the cache, if that is allowed (`O_DIRECT`).
    pub direct: bool,
    /// The access time stays (`O_NOATIME`).
    pub unnoticed: bool,
}

/// How contents are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriteManner {
    /// Around the cache, if that is allowed (`O_DIRECT`).
    pub direct: bool,
    /// It is safe when the call returns (`O_DSYNC`).
    pub durable: bool,
}

impl FileSet {
    /// The property `direct`, as long as `zfs_dio_enabled` does not say otherwise.
    pub(super) fn direct(&self) -> Direct {
        let is_enabled = self.objset().context().tunables.now(Parameter::DirectEnabled) != 0;
        if is_enabled { self.objset().settings().direct } else { Direct::Disabled }
    }

    /// What becomes of a request's contents. `asked`: it wants to go around the cache.
    pub(super) fn caching(&self, asked: bool, offset: u64, length: usize) -> Result<Caching> {
        let wanted = match self.direct() {
            Direct::Disabled => false,
            Direct::Standard => asked,
            Direct::Always => true,
        };
        if !wanted || length == 0 {
            return Ok(Caching::Usual);
        }
        if offset.is_multiple_of(PAGE) && (length as u64).is_multiple_of(PAGE) {
            return Ok(Caching::Around);
        }
        if asked && self.objset().context().tunables.now(Parameter::DirectStrict) != 0 {
            bail!(Invalid, "{length} bytes at {offset} cannot go around the cache: they do not begin and end on a page of {PAGE} bytes");
        }
        Ok(Caching::Usual)
    }
}
