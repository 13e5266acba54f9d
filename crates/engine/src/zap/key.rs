//! Keys: how a name becomes a hash, and when two names are the same.
//!
//! # Theory
//! A ZAP may ask for names to be normalised: to one of the four Unicode forms, and to upper case. The hash is always that of the
//! name with all of that applied, so that all spellings of a name share a bucket; whether two spellings are *the same* is up to
//! the lookup ([`Match`]).

use std::borrow::Cow;

use ondisk::zap_hash;
use unicode_normalization::UnicodeNormalization;

use super::zap_object::Match;
use crate::bail;
use crate::error::Result;

const UPPER: u64 = 0x2;
const CANONICAL_DECOMPOSITION: u64 = 0x10;
const COMPATIBILITY_DECOMPOSITION: u64 = 0x20;
const CANONICAL_COMPOSITION: u64 = 0x40;

/// How names are normalised before they are hashed. The flags are those of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[doc(alias = "normflags")]
pub struct Normalization(u64);

impl Normalization {
    /// Names are bytes.
    pub const NONE: Normalization = Normalization(0);

    /// From the word of a ZAP header or of the property `normalization`.
    pub fn from_flags(flags: u64) -> Result<Self> {
        let form = flags & !UPPER;
        let known = [0, CANONICAL_DECOMPOSITION, COMPATIBILITY_DECOMPOSITION, 0x50, 0x60];
        if !known.contains(&form) {
            bail!(Unsupported, "names normalised by the unknown rule {flags:#x}");
        }
        Ok(Normalization(flags))
    }

    /// The word of a ZAP header.
    pub fn flags(self) -> u64 {
        self.0
    }

    /// The same, and to upper case too.
    #[must_use]
    pub fn ignoring_case(self) -> Self {
        Normalization(self.0 | UPPER)
    }

    fn with_case(self) -> Self {
        Normalization(self.0 & !UPPER)
    }

    /// The normal form of `name`. Names that are not UTF-8 stay as they are.
    pub(super) fn apply(self, name: &[u8]) -> Cow<'_, [u8]> {
        if self.0 == 0 || (name.is_ascii() && self.0 & UPPER == 0) {
            return Cow::Borrowed(name);
        }
        if name.is_ascii() {
            return Cow::Owned(name.to_ascii_uppercase());
        }
        let Ok(text) = std::str::from_utf8(name) else {
            return Cow::Borrowed(name);
        };
        let upper: Cow<'_, str> = if self.0 & UPPER == 0 { text.into() } else { text.chars().map(simple_upper).collect::<String>().into() };
        let normal: String = match self.0 & !UPPER {
            CANONICAL_DECOMPOSITION => upper.nfd().collect(),
            COMPATIBILITY_DECOMPOSITION => upper.nfkd().collect(),
            flags if flags == CANONICAL_DECOMPOSITION | CANONICAL_COMPOSITION => upper.nfc().collect(),
            flags if flags == COMPATIBILITY_DECOMPOSITION | CANONICAL_COMPOSITION => upper.nfkc().collect(),
            _ => upper.into_owned(),
        };
        Cow::Owned(normal.into_bytes())
    }
}

/// Upper case where it is one character.
fn simple_upper(character: char) -> char {
    let mut upper = character.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(one), None) => one,
        _ => character,
    }
}

/// A name with its hash.
#[derive(Debug)]
pub(super) struct Key<'a> {
    pub(super) original: &'a [u8],
    pub(super) hash: u64,
}

impl<'a> Key<'a> {
    pub(super) fn of_name(name: &'a [u8], salt: u64, flags: u64, normalization: Normalization) -> Self {
        Key { original: name, hash: zap_hash::hash_name(salt, flags, &normalization.apply(name)) }
    }

    /// Whether `stored` is this name.
    pub(super) fn matches(&self, stored: &[u8], normalization: Normalization, matching: Match) -> bool {
        let rule = match matching {
            Match::Exact => return self.original == stored,
            Match::Normalized => normalization,
            Match::NormalizedWithCase => normalization.with_case(),
        };
        rule.apply(self.original) == rule.apply(stored)
    }
}

/// The name that stands for a number in ZAPs keyed by numbers.
#[doc(alias = "zap_add_int")]
pub fn int_name(number: u64) -> String {
    format!("{number:x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_share_a_normal_form() {
        let formd = Normalization::from_flags(0x10).unwrap();
        assert_eq!(formd.apply("é".as_bytes()), formd.apply("e\u{301}".as_bytes()));
        assert_ne!(Normalization::NONE.apply("é".as_bytes()), Normalization::NONE.apply("e\u{301}".as_bytes()));
        let upper = Normalization::NONE.ignoring_case();
        assert_eq!(upper.apply("Straße é".as_bytes()), upper.apply("STRAßE É".as_bytes()));
        assert_eq!(upper.apply(b"\xff\xfe").as_ref(), b"\xff\xfe");
        assert!(Normalization::from_flags(0x400).is_err());
    }
}
