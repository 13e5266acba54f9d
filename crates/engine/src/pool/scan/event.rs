//! What is told of scans, in the words of events.

/// Something happened to a scan or a rebuild.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanEvent {
    /// The last part of the event's class.
    pub name: &'static str,
    /// Of a resilver: which of the two kinds it is.
    #[doc(alias = "ZFS_EV_RESILVER_TYPE")]
    pub resilver_type: Option<&'static str>,
}

impl ScanEvent {
    /// Of a scrub.
    pub(in crate::pool) fn of_scrub(name: &'static str) -> ScanEvent {
        ScanEvent { name, resilver_type: None }
    }

    /// Of a resilver that follows block pointers.
    pub(in crate::pool) fn healing(name: &'static str) -> ScanEvent {
        ScanEvent { name, resilver_type: Some("healing") }
    }

    /// Of a rebuild.
    pub(in crate::pool) fn sequential(name: &'static str) -> ScanEvent {
        ScanEvent { name, resilver_type: Some("sequential") }
    }
}
