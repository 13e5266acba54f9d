//! What `zpool import` says of a pool that could be imported.

use tarnfs::control::{FoundPool, PoolState, VdevAux, VdevKind, VdevState, VdevStatus};

use crate::session::{Session, say};
use crate::zpool::show::reason::{self, Reason};
use crate::zpool::show::status::{is_listed_apart, is_ordinary};
use crate::zpool::spec::vdev_name::{CLASSES, Naming};

/// Narrowest name column.
const NAME_WIDTH_MIN: usize = 10;

/// `status:`, its further lines indented by a tab and `{i}`.
fn status_words(reason: Reason, found: &FoundPool) -> Option<String> {
    let words = match reason {
        Reason::Fine => return None,
        Reason::Missing | Reason::MissingFatal | Reason::BadGuidSum => "One or more devices are missing from the system.\n",
        Reason::CorruptLabel | Reason::CorruptLabelFatal => "One or more devices contains corrupted data.\n",
        Reason::CorruptData => "The pool data is corrupted.\n",
        Reason::Offline => "One or more devices are offlined.\n",
        Reason::CorruptPool => "The pool metadata is corrupted.\n",
        Reason::VersionOlder => "The pool is formatted using a legacy on-disk version.\n",
        Reason::VersionNewer => "The pool is formatted using an incompatible version.\n",
        Reason::FeaturesDisabled => {
            "Some supported features are not enabled on the pool.\n\t{i}(Note that they may be intentionally disabled if the\n\t{i}'compatibility' property is set.)\n"
        }
        Reason::FeaturesNotNamed => "One or more features are enabled on the pool despite not being\n\t{i}requested by the 'compatibility' property.\n",
        Reason::CompatibilityUnreadable => "Error reading or parsing the file(s) indicated by the 'compatibility'\n\t{i}property.\n",
        Reason::UnsupportedToRead => "The pool uses the following feature(s) not supported on this system:\n",
        Reason::UnsupportedToWrite => {
            "The pool can only be accessed in read-only mode on this system. It\n\t{i}cannot be accessed in read-write mode because it uses the following\n\t{i}feature(s) not supported on this system:\n"
        }
        Reason::OtherHostActive => "The pool is currently imported by another system.\n",
        Reason::OtherHost => "The pool was last accessed by another system.\n",
        Reason::Faulted | Reason::FaultedFatal => "One or more devices are faulted.\n",
        Reason::BadLog => "An intent log record cannot be read.\n",
        Reason::Resilvering => "One or more devices were being resilvered.\n",
        Reason::WrongAshift => "One or more devices are configured to use a non-native block size.\n\t{i}Expect reduced performance.\n",
        Reason::Removed | Reason::Rebuilt | Reason::FailingDevice | Reason::SuspendedWaiting | Reason::SuspendedContinuing
        | Reason::SuspendedByMultihost | Reason::Ended => return Some(String::new()),
    };
    let mut text = words.to_owned();
    if matches!(reason, Reason::UnsupportedToRead | Reason::UnsupportedToWrite) {
        text.push_str(&unsupported_lines(found));
    }
    Some(text)
}

/// The unknown features, a line each.
pub(super) fn unsupported_lines(found: &FoundPool) -> String {
    let line = |feature: &tarnfs::control::UnsupportedFeature| match feature.description.as_str() {
        "" => format!("\t{}\n", feature.guid),
        description => format!("\t{} ({description})\n", feature.guid),
    };
    found.unsupported.iter().map(line).collect()
}

/// `action:`
fn action_words(reason: Reason, found: &FoundPool) -> String {
    let words = match (found.status.root.state, reason) {
        (VdevState::Healthy, Reason::VersionOlder | Reason::FeaturesDisabled) => {
            "The pool can be imported using its name or numeric identifier, though\n\t{i}some features will not be available without an explicit 'zpool upgrade'.\n"
        }
        (VdevState::Healthy, Reason::CompatibilityUnreadable) => {
            "The pool can be imported using its name or numeric identifier, though\n\t{i}the file(s) indicated by its 'compatibility' property cannot be parsed at\n\t{i}this time.\n"
        }
        (VdevState::Healthy, Reason::OtherHost) => "The pool can be imported using its name or numeric identifier and\n\t{i}the '-f' flag.\n",
        (VdevState::Healthy, _) => "The pool can be imported using its name or numeric identifier.\n",
        (VdevState::Degraded, _) => {
            "The pool can be imported despite missing or damaged devices.  The\n\t{i}fault tolerance of the pool may be compromised if imported.\n"
        }
        (_, Reason::VersionNewer) => {
            "The pool cannot be imported.  Access the pool on a system running newer\n\t{i}software, or recreate the pool from backup.\n"
        }
        (_, Reason::UnsupportedToRead) => {
            "The pool cannot be imported. Access the pool on a system that supports\n\t{i}the required feature(s), or recreate the pool from backup.\n"
        }
        (_, Reason::UnsupportedToWrite) => {
            "The pool cannot be imported in read-write mode. Import the pool with\n\t{i}'-o readonly=on', access the pool on a system that supports the\n\t{i}required feature(s), or recreate the pool from backup.\n"
        }
        (_, Reason::Missing | Reason::MissingFatal | Reason::BadGuidSum) => {
            "The pool cannot be imported. Attach the missing\n\t{i}devices and try again.\n"
        }
        (_, Reason::OtherHostActive) => {
            let host = found.hostname.as_deref().unwrap_or("unknown");
            return format!("The pool must be exported from {host} (hostid={:x})\n\t{{i}}before it can be safely imported.\n", found.hostid);
        }
        _ => "The pool cannot be imported due to damaged devices or data.\n",
    };
    words.to_owned()
}

/// Prints everything about the pool.
pub(in crate::zpool) fn print(session: &mut Session<'_>, found: &FoundPool) {
    let status = &found.status;
    let root = &status.root;
    let reason = reason::of_found(found);
    let indent = if found.comment.is_some() { " " } else { "" };
    let indented = |words: String| words.replace("{i}", indent);
    let destroyed = status.state == PoolState::Destroyed;
    say!(session, "{indent}  pool: {}", status.name);
    say!(session, "{indent}    id: {}", status.guid);
    say!(session, "{indent} state: {}{}", root.state.word(root.aux), if destroyed { " (DESTROYED)" } else { "" });
    if let Some(words) = status_words(reason, found) {
        session.print(format_args!("{indent}status: {}", indented(words)));
    }
    session.print(format_args!("{indent}action: {}", indented(action_words(reason, found))));
    if let Some(comment) = &found.comment {
        say!(session, "comment: {comment}");
    }
    if matches!(root.state, VdevState::Closed | VdevState::CantOpen) && root.aux == VdevAux::CorruptData {
        if destroyed {
            say!(session, "\t{indent}The pool was destroyed, but can be imported using the '-Df' flags.");
        } else if status.state != PoolState::Exported {
            say!(session, "\t{indent}The pool may be active on another system, but can be imported using\n\t{indent}the '-f' flag.");
        }
    }
    if let Some(id) = reason.message_id() {
        say!(session, "{indent}   see: {}", reason::page(id));
    }
    say!(session, "{indent}config:\n");
    print_config(session, found);
    if reason == Reason::BadGuidSum {
        say!(session, "\n\t{indent}Additional devices are known to be part of this pool, though their");
        say!(session, "\t{indent}exact configuration cannot be determined.");
    }
}

fn print_config(session: &mut Session<'_>, found: &FoundPool) {
    let status = &found.status;
    let naming = Naming::default();
    let width = naming.width(status, &status.name).max(NAME_WIDTH_MIN);
    print_vdev(session, &status.root, &status.name, width, 0);
    for (vdevs, title) in [(&status.caches, "cache"), (&status.spares, "spares")] {
        if !vdevs.is_empty() {
            say!(session, "\t{title}");
        }
        for vdev in vdevs {
            say!(session, "\t  {}", naming.name(vdev, &status.name));
        }
    }
    for (class, title) in CLASSES {
        let mut vdevs = status.root.children.iter().filter(|vdev| is_listed_apart(vdev, class)).peekable();
        if vdevs.peek().is_some() {
            say!(session, "\t{title}\t");
        }
        vdevs.for_each(|vdev| print_vdev(session, vdev, &status.name, width, 2));
    }
}

fn print_vdev(session: &mut Session<'_>, vdev: &VdevStatus, pool: &str, width: usize, depth: usize) {
    if matches!(vdev.kind, VdevKind::Missing | VdevKind::Hole) {
        return;
    }
    let name = Naming::default().name(vdev, pool);
    let why = match vdev.aux {
        VdevAux::None => "",
        VdevAux::OpenFailed => "  cannot open",
        VdevAux::BadGuidSum => "  missing device",
        VdevAux::NoReplicas => "  insufficient replicas",
        VdevAux::VersionNewer => "  newer version",
        VdevAux::UnsupportedFeature => "  unsupported feature(s)",
        VdevAux::TooManyErrors => "  too many errors",
        VdevAux::Active => "  currently in use",
        VdevAux::ChildrenOffline => "  all children offline",
        VdevAux::BadLabel => "  invalid label",
        _ => "  corrupted data",
    };
    let rest = width.saturating_sub(depth);
    say!(session, "\t{:depth$}{name:<rest$}  {}{why}", "", vdev.state.word(vdev.aux));
    for child in vdev.children.iter().filter(|child| is_ordinary(vdev, child)) {
        print_vdev(session, child, pool, width, depth + 2);
    }
}
