//! Where blocks of the intent log go on a vdev.
//!
//! # Theory
//! Somebody waits for each block of the log, and it is needed for some seconds only. So the log has a metaslab to itself, where it takes the
//! lowest room that there is: its places come round again and again, and its short-lived blocks do not fragment the rest.
//!
//! The first durable write to a place of a file takes several times as long as the next one: the file system below has to record that the place
//! is in use now, and make that durable too. So what lies ahead of the log is *prepared*: taken out of the free space for a
//! moment, written with zeros, and given back.
//!
//! Nothing on disk says so. When all else is full, others use the metaslab too; when it is full, the log goes elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::metaslab::Metaslab;

/// The first piece that is prepared, and the largest: each is twice the one before, so that a program that syncs little writes little.
const PIECE_MIN: u64 = 4 << 20;
const PIECE_MAX: u64 = 32 << 20;
/// A piece is at most this part of the metaslab: it is not to be had by others meanwhile.
const PIECE_PART: u64 = 8;
/// When the log has taken this part of its metaslab in one group, that ought to be written: blocks of three groups wait to be free again.
const CROWDED_PART: u64 = 5;
/// But not sooner than so many nanoseconds after the log began to take from it: to write a group has its price, too.
const CROWDED_AFTER_NS: u64 = 1_500_000_000;

/// The metaslab of the log.
#[derive(Debug)]
pub struct LogArea {
    metaslab: Arc<Metaslab>,
    /// All below this offset in the vdev is prepared, or in use.
    prepared: AtomicU64,
    /// Size of the next piece.
    piece: AtomicU64,
    /// Somebody prepares.
    preparing: AtomicBool,
    /// A leaf.
    taken: Mutex<Taken>,
}

/// What the log has taken in its last group.
#[derive(Debug, Default)]
struct Taken {
    txg: u64,
    bytes: u64,
    /// When it began, in nanoseconds of the host's clock.
    since: u64,
}

/// A piece that is being prepared: nobody else has it meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Offset in the vdev, in bytes.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
}

impl LogArea {
    pub(super) fn new(metaslab: Arc<Metaslab>) -> LogArea {
        let piece = PIECE_MIN.min(metaslab.size / PIECE_PART);
        let (prepared, piece) = (AtomicU64::new(metaslab.start), AtomicU64::new(piece));
        LogArea { metaslab, prepared, piece, preparing: AtomicBool::new(false), taken: Mutex::default() }
    }

    /// Where it is.
    pub fn metaslab(&self) -> &Arc<Metaslab> {
        &self.metaslab
    }

    fn end(&self) -> u64 {
        self.metaslab.start + self.metaslab.size
    }

    /// The log has taken `size` bytes in `txg`, at `now` (nanoseconds); says whether the group ought to be written soon.
    pub fn note_taken(&self, txg: u64, size: u64, now: u64) -> bool {
        let mut taken = self.taken.lock();
        if taken.txg < txg {
            *taken = Taken { txg, bytes: 0, since: now };
        }
        taken.bytes += size;
        taken.bytes >= self.metaslab.size / CROWDED_PART && now.saturating_sub(taken.since) >= CROWDED_AFTER_NS
    }

    /// The log goes up to `end`: is it time to prepare what lies ahead? If so, the caller does, until [`LogArea::end_preparing`].
    pub fn begin_preparing(&self, end: u64) -> bool {
        let prepared = self.prepared.load(Ordering::Acquire);
        let ahead = self.piece.load(Ordering::Relaxed) / 2;
        let is_time = (self.metaslab.start..=self.end()).contains(&end) && prepared < self.end() && end + ahead > prepared;
        is_time && !self.preparing.swap(true, Ordering::AcqRel)
    }

    /// Takes the next piece out of the free space, for a caller that holds `txg` until it has given it back
    /// ([`Group::unallocate`](super::Group)) and said so here ([`LogArea::piece_prepared`]). `None`: there is none.
    pub(super) fn take_piece(&self, txg: u64) -> Option<Piece> {
        let (from, size) = (self.prepared.load(Ordering::Acquire), self.piece.load(Ordering::Relaxed));
        let unit = 1_u64 << self.metaslab.shift;
        let size = size.min(self.end().saturating_sub(from)) / unit * unit;
        let (offset, _) = if size == 0 { None } else { self.metaslab.allocate_behind(from, size, txg) }?;
        Some(Piece { offset, size })
    }

    /// A piece is as it should be.
    pub fn piece_prepared(&self, piece: Piece) {
        self.prepared.store(piece.offset + piece.size, Ordering::Release);
        let next = (2 * self.piece.load(Ordering::Relaxed)).min(PIECE_MAX).min(self.metaslab.size / PIECE_PART);
        self.piece.store(next.max(1 << self.metaslab.shift), Ordering::Relaxed);
    }

    /// Nobody prepares any more. `is_over`: there is nothing more that could be.
    pub fn end_preparing(&self, is_over: bool) {
        if is_over {
            self.prepared.store(self.end(), Ordering::Release);
        }
        self.preparing.store(false, Ordering::Release);
    }
}
