//! What the command says of a stream that was not received, in OpenZFS's words.

use tarnfs::control::{Failure, FailureKind};

use super::one::One;

/// The line. `token`: what is there can be resumed with it.
pub(super) fn words(one: &One, failure: &Failure, token: Option<&str>, resumable: bool) -> String {
    let (name, action) = (one.name(), one.action);
    match failure.kind {
        FailureKind::SnapshotMismatch => format!("{action}: most recent snapshot of {name} does not\nmatch incremental source"),
        FailureKind::DatasetModified => format!("{action}: destination {} has been modified\nsince most recent snapshot", one.dataset),
        FailureKind::DatasetExists if failure.message.starts_with("Resuming") => format!("{action}: {failure}"),
        FailureKind::DatasetExists => format!("cannot restore to {name}: destination already exists"),
        FailureKind::DatasetBusy if token.is_some() => {
            format!("{action}: destination {} contains partially-complete state from \"zfs receive -s\".", one.dataset)
        }
        FailureKind::PropertySpace => format!("{action}: destination {} space quota exceeded.", one.dataset),
        FailureKind::BadStream => match token.filter(|_| resumable) {
            Some(token) => format!(
                "{action}: checksum mismatch or incomplete stream.\nPartially received snapshot is saved.\n\
                 A resuming stream can be generated on the sending system by running:\n    zfs send -t {token}"
            ),
            None => format!("{action}: {} ({failure})", kind_of_damage(&failure.message)),
        },
        _ => format!("{action}: {failure}"),
    }
}

/// OpenZFS's words for it; what is wrong, and where, stands behind.
fn kind_of_damage(message: &str) -> &'static str {
    match message {
        _ if message.contains("checksum") => "checksum mismatch",
        _ if message.contains("the stream ends") || message.contains("cannot be read") => "incomplete stream",
        _ => "invalid backup stream",
    }
}
