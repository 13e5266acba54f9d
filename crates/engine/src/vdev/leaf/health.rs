//! How vdevs are.

use super::Requests;
use crate::vdev::VdevKind;
use std::fmt;

/// How well a vdev works, worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[doc(alias = "vdev_state_t")]
pub enum VdevState {
    /// Taken out of use by the administrator.
    Offline = 2,
    /// Pulled out.
    Removed = 3,
    /// Cannot be opened.
    Unavailable = 4,
    /// Not used any more, because of its errors.
    Faulted = 5,
    /// Works, but not as it ought to.
    Degraded = 6,
    /// Works.
    Online = 7,
}

impl VdevState {
    /// The word in `zpool status`.
    pub fn name(self) -> &'static str {
        match self {
            VdevState::Offline => "OFFLINE",
            VdevState::Removed => "REMOVED",
            VdevState::Unavailable => "UNAVAIL",
            VdevState::Faulted => "FAULTED",
            VdevState::Degraded => "DEGRADED",
            VdevState::Online => "ONLINE",
        }
    }

    /// Whether there is something to read.
    pub fn is_readable(self) -> bool {
        self >= VdevState::Degraded
    }

    pub(in crate::vdev) fn from_u8(value: u8) -> VdevState {
        match value {
            2 => VdevState::Offline,
            3 => VdevState::Removed,
            5 => VdevState::Faulted,
            6 => VdevState::Degraded,
            7 => VdevState::Online,
            _ => VdevState::Unavailable,
        }
    }
}

impl fmt::Display for VdevState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a vdev is not online.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[doc(alias = "vdev_aux_t")]
pub enum Reason {
    /// There is none.
    #[default]
    None,
    /// No device with its guid was found.
    NotFound,
    /// The device is smaller than it was.
    TooSmall,
    /// Writes failed.
    Errors,
    /// The label says so.
    Persistent,
    /// It was away while others were written, and does not have all that it should.
    Behind,
    /// What is there has not the label that it should have.
    BadLabel,
}

impl Reason {
    pub(in crate::vdev) fn from_u8(value: u8) -> Reason {
        [Reason::None, Reason::NotFound, Reason::TooSmall, Reason::Errors, Reason::Persistent, Reason::Behind, Reason::BadLabel]
            .into_iter()
            .find(|reason| *reason as u8 == value)
            .unwrap_or_default()
    }
}

/// What `zpool status` shows of a vdev and of those below it.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct VdevStatus {
    pub kind: VdevKind,
    pub id: u64,
    pub guid: u64,
    pub path: Option<String>,
    pub state: VdevState,
    pub reason: Reason,
    pub read_errors: u64,
    pub write_errors: u64,
    pub checksum_errors: u64,
    /// Requests that took too long.
    pub slow_ios: u64,
    /// Readers do without it, for it is too slow.
    pub sits_out: bool,
    /// How often that was so without an administrator.
    pub sat_out: u64,
    pub scan_processed: u64,
    /// Bytes that the last rebuild wrote here.
    pub rebuild_processed: u64,
    pub self_healed: u64,
    pub reads: u64,
    pub writes: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Of a device: reads, writes of the log, other writes.
    pub requests: [Requests; 4],
    /// A top-level vdev for the intent log.
    pub is_log: bool,
    /// It missed writes.
    pub is_behind: bool,
    /// Bytes of the device, 0 if there is none.
    pub device_bytes: u64,
    pub children: Vec<VdevStatus>,
}
