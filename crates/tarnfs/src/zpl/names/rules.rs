//! Which names there may be, and which are one and the same.

use std::sync::Arc;

use engine::bail;
use engine::error::Result;
use engine::zap::{Match, Normalization, Zap};

use crate::zpl::inodes::file_set::FileSet;

/// Longest name in bytes.
pub(super) const NAME_MAX: usize = 255;
/// Longest name in bytes, with the property `longname`.
const LONG_NAME_MAX: usize = 1023;
/// Values of the property `casesensitivity`.
pub(crate) const CASE_INSENSITIVE: u64 = 1;
const CASE_MIXED: u64 = 2;

/// May something in a directory be called that?
pub(super) fn is_a_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0)
}

/// What was decided of names when the file system was made.
pub(in crate::zpl) struct Rules {
    files: Arc<FileSet>,
    matching: Match,
    normalization: Normalization,
    utf8_only: bool,
}

impl Rules {
    pub(super) fn load(files: Arc<FileSet>, master: &Zap) -> Result<Self> {
        let word = |name: &str| -> Result<u64> { Ok(master.lookup_u64(name)?.unwrap_or(0)) };
        let mut normalization = Normalization::from_flags(word("normalization")?)?;
        let case = word("casesensitivity")?;
        if case == CASE_INSENSITIVE || case == CASE_MIXED {
            normalization = normalization.ignoring_case();
        }
        let matching = match (normalization == Normalization::NONE, case) {
            (true, _) => Match::Exact,
            (false, CASE_MIXED) => Match::NormalizedWithCase,
            (false, _) => Match::Normalized,
        };
        Ok(Rules { files, matching, normalization, utf8_only: word("utf8only")? != 0 })
    }

    /// How the names in directories are compared.
    pub(super) fn matching(&self) -> Match {
        self.matching
    }

    /// How the names in new directories are normalised.
    pub(super) fn normalization(&self) -> Normalization {
        self.normalization
    }

    /// Names that differ at all are different names: no property asks for case or normalisation to be ignored.
    pub(in crate::zpl) fn are_exact(&self) -> bool {
        self.matching == Match::Exact
    }

    /// Longest name in bytes.
    pub(in crate::zpl) fn name_max(&self) -> usize {
        if self.files.options().long_names { LONG_NAME_MAX } else { NAME_MAX }
    }

    /// Checks a name for a new entry.
    pub(in crate::zpl) fn check_name(&self, name: &[u8]) -> Result<()> {
        if !is_a_name(name) {
            bail!(Invalid, "{:?} is no name for a file", String::from_utf8_lossy(name));
        }
        if name.len() > self.name_max() {
            bail!(NameTooLong, "a name of {} bytes is longer than {}", name.len(), self.name_max());
        }
        self.check_new_text(name)
    }

    /// Checks the bytes of a name for something new. Where names are normalised, OpenZFS finds only those that can be.
    pub(in crate::zpl) fn check_new_text(&self, name: &[u8]) -> Result<()> {
        self.check_encoding(name)?;
        if self.normalization != Normalization::NONE && std::str::from_utf8(name).is_err() {
            bail!(NotSupported, "the name {:?} is not UTF-8 and cannot be normalised (properties casesensitivity, normalization)", String::from_utf8_lossy(name));
        }
        Ok(())
    }

    /// Checks that a name is UTF-8 where it must be.
    pub(in crate::zpl) fn check_encoding(&self, name: &[u8]) -> Result<()> {
        if self.utf8_only && std::str::from_utf8(name).is_err() {
            bail!(NotText, "the name {:?} is not UTF-8, which the property utf8only demands", String::from_utf8_lossy(name));
        }
        Ok(())
    }
}
