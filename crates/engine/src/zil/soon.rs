//! What is likely to be asked for soon after it was written.
//!
//! # Theory
//! A program that writes megabytes and then calls `fsync` waits for all of them to be compressed, checksummed and written, while disks and
//! other processors had nothing to do before that. Whole blocks of a stretch can be written earlier, while the next bytes come in: to the place where they stay, as the commit would
//! ([`crate::dmu::Objset::write_soon`]). Where nobody asks that is no gain, and loss if they are changed again. So a commit that has written blocks to their place gives credit for
//! twice as many bytes, to all files of the file system, and what is written before it was asked for uses it up.
//!
//! # Path
//! called by `itx` and `commit::fill`.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::itx::Added;

/// As many bytes are written at a time, about.
const STEP_BYTES: u64 = 1 << 20;
/// The part of a stretch, at its end, of which some may not be written yet.
const BACK_BYTES: u64 = 8 << 20;
/// The most credit.
const CREDIT_MAX: u64 = 64 << 20;

/// The credit of one file system.
#[derive(Debug, Default)]
pub(super) struct Soon(AtomicU64);

impl Soon {
    /// A commit has written blocks of so many bytes to their place.
    pub(super) fn were_asked_for(&self, bytes: u64) {
        self.0.fetch_max(bytes.saturating_mul(2).min(CREDIT_MAX), Ordering::Relaxed);
    }

    /// The range whose whole blocks are worth being written now, if it is time.
    pub(super) fn is_worth_writing(&self, added: &Added) -> Option<Range<u64>> {
        let is_time = added.bytes() / STEP_BYTES > added.before / STEP_BYTES;
        let may = || self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |credit| credit.checked_sub(STEP_BYTES)).is_ok();
        (is_time && may()).then(|| added.stretch.start.max(added.stretch.end.saturating_sub(BACK_BYTES))..added.stretch.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_written_before_the_next_time() {
        const MIB: u64 = 1 << 20;
        let soon = Soon::default();
        let added = |before: u64, bytes: u64| Added { stretch: MIB..MIB + bytes, before, ..Added::default() };
        assert_eq!(soon.is_worth_writing(&added(MIB - 1, MIB)), None, "nobody has ever asked");
        soon.were_asked_for(MIB);
        assert_eq!(soon.is_worth_writing(&added(MIB - 4096, MIB - 1)), None, "too little");
        assert_eq!(soon.is_worth_writing(&added(MIB - 1, MIB + 5)), Some(MIB..2 * MIB + 5));
        assert_eq!(soon.is_worth_writing(&added(MIB, 2 * MIB - 1)), None, "too little more");
        assert_eq!(soon.is_worth_writing(&added(15 * MIB, 16 * MIB)), Some(9 * MIB..17 * MIB));
        assert_eq!(soon.is_worth_writing(&added(16 * MIB, 17 * MIB)), None, "nobody has asked for that");
    }
}
