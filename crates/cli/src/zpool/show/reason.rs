//! What is the matter with a pool: the worst of all that is wrong, and what to do about it.
//!
//! # Theory
//!
//! A pool may suffer from several things; one is reported, by rank. The order of the questions below is that rank.

use tarnfs::control::{Compatibility, FoundPool, PoolState, PoolStatus, RebuildState, ScanFunction, ScanState, ScanStatus, Suspension, VdevAux, VdevKind, VdevState, VdevStatus};

/// The worst thing that is the matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::zpool) enum Reason {
    Fine,
    Resilvering,
    Rebuilt,
    OtherHostActive,
    OtherHost,
    VersionNewer,
    UnsupportedToRead,
    UnsupportedToWrite,
    BadGuidSum,
    SuspendedWaiting,
    SuspendedContinuing,
    SuspendedByMultihost,
    Ended,
    BadLog,
    FaultedFatal,
    MissingFatal,
    CorruptLabelFatal,
    CorruptPool,
    CorruptData,
    Faulted,
    Missing,
    CorruptLabel,
    FailingDevice,
    Offline,
    Removed,
    WrongAshift,
    VersionOlder,
    FeaturesDisabled,
    FeaturesNotNamed,
    CompatibilityUnreadable,
}

fn any_leaf(vdev: &VdevStatus, into_replacing: bool, test: &dyn Fn(&VdevStatus) -> bool) -> bool {
    if vdev.kind == VdevKind::Replacing && !into_replacing {
        return false;
    }
    if vdev.children.is_empty() { test(vdev) } else { vdev.children.iter().any(|child| any_leaf(child, into_replacing, test)) }
}

/// What is the matter with an imported pool.
pub(super) fn of_pool(status: &PoolStatus) -> Reason {
    of(status, None)
}

/// What is the matter with a pool that could be imported.
pub(in crate::zpool) fn of_found(found: &FoundPool) -> Reason {
    of(&found.status, Some(found))
}

fn of(status: &PoolStatus, found: Option<&FoundPool>) -> Reason {
    if status.scan.as_ref().is_some_and(|scan| scan.function == ScanFunction::Resilver && scan.state == ScanState::Scanning) {
        return Reason::Resilvering;
    }
    if let Some(reason) = of_rebuilds(status) {
        return reason;
    }
    if let Some(reason) = of_root(status, found) {
        return reason;
    }
    of_leaves(status, found.is_some())
}

/// What was rebuilt and never scrubbed since is not known to be right.
fn of_rebuilds(status: &PoolStatus) -> Option<Reason> {
    if status.rebuilds.iter().any(|rebuild| rebuild.state == RebuildState::Active) {
        return Some(Reason::Resilvering);
    }
    let complete = status.rebuilds.iter().filter(|rebuild| rebuild.state == RebuildState::Complete);
    let end = complete.map(|rebuild| rebuild.end_time).max()?;
    let is_later = |scan: &ScanStatus| scan.function == ScanFunction::Scrub && scan.state == ScanState::Finished && end > scan.end_time;
    status.scan.as_ref().is_none_or(is_later).then_some(Reason::Rebuilt)
}

/// Questions about the pool as a whole.
fn of_root(status: &PoolStatus, found: Option<&FoundPool>) -> Option<Reason> {
    let cannot_open = status.root.state == VdevState::CantOpen;
    let aux = status.root.aux;
    let has_leaf = |test: &dyn Fn(&VdevStatus) -> bool| any_leaf(&status.root, false, test) || status.caches.iter().any(test);
    if cannot_open && aux == VdevAux::Active {
        return Some(Reason::OtherHostActive);
    }
    if found.is_some_and(|found| found.other_host && status.state == PoolState::Active) {
        return Some(Reason::OtherHost);
    }
    if !cannot_open {
        return status.suspended.map(of_suspension);
    }
    match aux {
        VdevAux::VersionNewer => return Some(Reason::VersionNewer),
        VdevAux::UnsupportedFeature if found.is_some_and(|found| found.can_read_only) => return Some(Reason::UnsupportedToWrite),
        VdevAux::UnsupportedFeature => return Some(Reason::UnsupportedToRead),
        VdevAux::BadGuidSum => return Some(Reason::BadGuidSum),
        _ => {}
    }
    if let Some(suspension) = status.suspended {
        return Some(of_suspension(suspension));
    }
    if aux == VdevAux::BadLog {
        Some(Reason::BadLog)
    } else if has_leaf(&|vdev| vdev.state == VdevState::Faulted) {
        Some(Reason::FaultedFatal)
    } else if has_leaf(&is_missing) {
        Some(Reason::MissingFatal)
    } else if has_leaf(&|vdev| vdev.state == VdevState::CantOpen) {
        Some(Reason::CorruptLabelFatal)
    } else {
        (aux == VdevAux::CorruptData).then_some(Reason::CorruptPool)
    }
}

fn of_suspension(suspension: Suspension) -> Reason {
    match suspension {
        Suspension::Waiting => Reason::SuspendedWaiting,
        Suspension::Continuing => Reason::SuspendedContinuing,
        Suspension::Multihost => Reason::SuspendedByMultihost,
        Suspension::Ended => Reason::Ended,
    }
}

fn is_missing(vdev: &VdevStatus) -> bool {
    vdev.state == VdevState::CantOpen && vdev.aux == VdevAux::OpenFailed
}

/// Questions about single devices.
fn of_leaves(status: &PoolStatus, importing: bool) -> Reason {
    let has_leaf = |test: &dyn Fn(&VdevStatus) -> bool| any_leaf(&status.root, false, test) || status.caches.iter().any(test);
    let has_errors = |vdev: &VdevStatus| {
        let stats = &vdev.stats;
        vdev.state == VdevState::Degraded || stats.read_errors != 0 || stats.write_errors != 0 || stats.checksum_errors != 0
    };
    if !importing && status.error_count.is_some_and(|count| count != 0) {
        Reason::CorruptData
    } else if has_leaf(&|vdev| vdev.state == VdevState::Faulted) {
        Reason::Faulted
    } else if has_leaf(&is_missing) {
        Reason::Missing
    } else if has_leaf(&|vdev| vdev.state == VdevState::CantOpen) {
        Reason::CorruptLabel
    } else if !importing && has_leaf(&has_errors) {
        Reason::FailingDevice
    } else if has_leaf(&|vdev| vdev.state == VdevState::Offline) {
        Reason::Offline
    } else if has_leaf(&|vdev| vdev.state == VdevState::Removed) {
        Reason::Removed
    } else if !importing && any_leaf(&status.root, true, &has_wrong_ashift) {
        Reason::WrongAshift
    } else if status.version != 5000 {
        Reason::VersionOlder
    } else {
        match status.compatibility {
            Compatibility::Fits => Reason::Fine,
            Compatibility::FeaturesDisabled => Reason::FeaturesDisabled,
            Compatibility::FeaturesNotNamed => Reason::FeaturesNotNamed,
            Compatibility::Unreadable => Reason::CompatibilityUnreadable,
        }
    }
}

/// Is the device written in smaller sectors than it has?
pub(super) fn has_wrong_ashift(vdev: &VdevStatus) -> bool {
    vdev.stats.ashift != 0 && vdev.stats.ashift < vdev.stats.physical_ashift
}

impl Reason {
    /// Is it one of those that `status -x` does not count?
    pub(super) fn is_healthy(self) -> bool {
        matches!(self, Reason::Fine | Reason::VersionOlder | Reason::FeaturesDisabled | Reason::FeaturesNotNamed | Reason::CompatibilityUnreadable)
    }

    /// The number of its page in the message catalogue.
    pub(in crate::zpool) fn message_id(self) -> Option<&'static str> {
        Some(match self {
            Reason::Missing => "ZFS-8000-2Q",
            Reason::MissingFatal => "ZFS-8000-3C",
            Reason::CorruptLabel => "ZFS-8000-4J",
            Reason::CorruptLabelFatal => "ZFS-8000-5E",
            Reason::BadGuidSum => "ZFS-8000-6X",
            Reason::CorruptPool => "ZFS-8000-72",
            Reason::CorruptData => "ZFS-8000-8A",
            Reason::FailingDevice => "ZFS-8000-9P",
            Reason::VersionNewer => "ZFS-8000-A5",
            Reason::OtherHost | Reason::OtherHostActive => "ZFS-8000-EY",
            Reason::SuspendedWaiting => "ZFS-8000-HC",
            Reason::SuspendedContinuing => "ZFS-8000-JQ",
            Reason::SuspendedByMultihost => "ZFS-8000-MM",
            Reason::BadLog => "ZFS-8000-K4",
            _ => return None,
        })
    }

    /// The `status:` and `action:` of an imported pool, their further lines indented by a tab.
    pub(in crate::zpool) fn words(self) -> Option<(&'static str, &'static str)> {
        const ATTACH: &str = "Attach the missing device and online it using 'zpool online'.\n";
        const RECREATE: &str = "Destroy and re-create the pool from\n\ta backup source.\n";
        Some(match self {
            Reason::Missing => (
                "One or more devices could not be opened.  Sufficient replicas exist for\n\tthe pool to continue functioning in a degraded state.\n",
                ATTACH,
            ),
            Reason::MissingFatal => (
                "One or more devices could not be opened.  There are insufficient\n\treplicas for the pool to continue functioning.\n",
                ATTACH,
            ),
            Reason::CorruptLabel => (
                "One or more devices could not be used because the label is missing or\n\tinvalid.  Sufficient replicas exist for the pool to continue\n\tfunctioning in a degraded state.\n",
                "Replace the device using 'zpool replace'.\n",
            ),
            Reason::CorruptLabelFatal => (
                "One or more devices could not be used because the label is missing \n\tor invalid.  There are insufficient replicas for the pool to continue\n\tfunctioning.\n",
                RECREATE,
            ),
            Reason::FailingDevice => (
                "One or more devices has experienced an unrecoverable error.  An\n\tattempt was made to correct the error.  Applications are unaffected.\n",
                "Determine if the device needs to be replaced, and clear the errors\n\tusing 'zpool clear' or replace the device with 'zpool replace'.\n",
            ),
            Reason::Offline => (
                "One or more devices has been taken offline by the administrator.\n\tSufficient replicas exist for the pool to continue functioning in a\n\tdegraded state.\n",
                "Online the device using 'zpool online' or replace the device with\n\t'zpool replace'.\n",
            ),
            Reason::Removed => (
                "One or more devices have been removed.\n\tSufficient replicas exist for the pool to continue functioning in a\n\tdegraded state.\n",
                "Online the device using zpool online' or replace the device with\n\t'zpool replace'.\n",
            ),
            Reason::Resilvering => (
                "One or more devices is currently being resilvered.  The pool will\n\tcontinue to function, possibly in a degraded state.\n",
                "Wait for the resilver to complete.\n",
            ),
            Reason::Rebuilt => (
                "One or more devices have been sequentially resilvered, scrubbing\n\tthe pool is recommended.\n",
                "Use 'zpool scrub' to verify all data checksums.\n",
            ),
            Reason::CorruptData => (
                "One or more devices has experienced an error resulting in data\n\tcorruption.  Applications may be affected.\n",
                "Restore the file in question if possible.  Otherwise restore the\n\tentire pool from backup.\n",
            ),
            Reason::CorruptPool => ("The pool metadata is corrupted and the pool cannot be opened.\n", RECREATE),
            Reason::Faulted => (
                "One or more devices are faulted in response to persistent errors.\n\tSufficient replicas exist for the pool to continue functioning in a\n\tdegraded state.\n",
                "Replace the faulted device, or use 'zpool clear' to mark the device\n\trepaired.\n",
            ),
            Reason::FaultedFatal => (
                "One or more devices are faulted in response to persistent errors.  There are insufficient replicas for the pool to\n\tcontinue functioning.\n",
                "Destroy and re-create the pool from a backup source.  Manually marking the device\n\trepaired using 'zpool clear' may allow some data to be recovered.\n",
            ),
            other => return other.more_words(),
        })
    }

    fn more_words(self) -> Option<(&'static str, &'static str)> {
        Some(match self {
            Reason::VersionOlder => (
                "The pool is formatted using a legacy on-disk format.  The pool can\n\tstill be used, but some features are unavailable.\n",
                "Upgrade the pool using 'zpool upgrade'.  Once this is done, the\n\tpool will no longer be accessible on software that does not support\n\tfeature flags.\n",
            ),
            Reason::VersionNewer => (
                "The pool has been upgraded to a newer, incompatible on-disk version.\n\tThe pool cannot be accessed on this system.\n",
                "Access the pool from a system running more recent software, or\n\trestore the pool from backup.\n",
            ),
            Reason::FeaturesDisabled => (
                "Some supported and requested features are not enabled on the pool.\n\tThe pool can still be used, but some features are unavailable.\n",
                "Enable all features using 'zpool upgrade'. Once this is done,\n\tthe pool may no longer be accessible by software that does not support\n\tthe features. See zpool-features(7) for details.\n",
            ),
            Reason::FeaturesNotNamed => (
                "One or more features are enabled on the pool despite not being\n\trequested by the 'compatibility' property.\n",
                "Consider setting 'compatibility' to an appropriate value, or\n\tadding needed features to the relevant file in\n\t/etc/zfs/compatibility.d or /usr/share/zfs/compatibility.d.\n",
            ),
            Reason::CompatibilityUnreadable => (
                "This pool has a compatibility list specified, but it could not be\n\tread/parsed at this time. The pool can still be used, but this\n\tshould be investigated.\n",
                "Check the value of the 'compatibility' property against the\n\tappropriate file in /etc/zfs/compatibility.d or /usr/share/zfs/compatibility.d.\n",
            ),
            Reason::SuspendedWaiting | Reason::SuspendedContinuing => (
                "One or more devices are faulted in response to IO failures.\n",
                "Make sure the affected devices are connected, then run 'zpool clear'.\n",
            ),
            Reason::SuspendedByMultihost => (
                "The pool is suspended because multihost writes failed or were delayed;\n\tanother system could import the pool undetected.\n",
                "Make sure the pool's devices are connected, then reboot your system and\n\timport the pool.\n",
            ),
            Reason::Ended => (
                "The pool was stopped by an error that 'zpool clear' does not mend.\n",
                "End it with 'zpool export -F' and import it again.\n",
            ),
            Reason::BadLog => (
                "An intent log record could not be read.\n\tWaiting for administrator intervention to fix the faulted pool.\n",
                "Either restore the affected device(s) and import the pool again,\n\tor ignore the intent log records with 'zpool import -m'.\n",
            ),
            Reason::WrongAshift => (
                "One or more devices are configured to use a non-native block size.\n\tExpect reduced performance.\n",
                "Replace affected devices with devices that support the\n\tconfigured block size, or migrate data to a properly configured\n\tpool.\n",
            ),
            Reason::OtherHost | Reason::OtherHostActive => (
                "Mismatch between pool hostid and system hostid on imported pool.\n\tThis pool was previously imported into a system with a different hostid,\n\tand then was verbatim imported into this system.\n",
                "Export this pool on all systems on which it is imported.\n\tThen import it to correct the mismatch.\n",
            ),
            _ => return None,
        })
    }
}

/// Where the page of a message is.
pub(in crate::zpool) fn page(id: &str) -> String {
    format!("https://openzfs.github.io/openzfs-docs/msg/{id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pool that another host may have was to be repaired with `zpool clear`, which refuses that.
    #[test]
    fn a_pool_that_stopped_for_good_is_not_to_be_cleared() {
        for suspension in [Suspension::Multihost, Suspension::Ended] {
            let (_, action) = of_suspension(suspension).words().unwrap();
            assert!(action.contains("import") && !action.contains("zpool clear"), "{action}");
        }
        assert_eq!(of_suspension(Suspension::Multihost).message_id(), Some("ZFS-8000-MM"));
    }
}
