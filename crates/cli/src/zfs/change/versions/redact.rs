//! `zfs redact`

use tarnfs::control::{DatasetKind, DatasetKinds, FailureKind, Request, SnapshotRedact};

use crate::session::{Outcome, Session, complain};
use crate::zfs::datasets;

/// The errno that the command ends with.
fn code(kind: FailureKind) -> u8 {
    match kind {
        FailureKind::NoSuchDataset => 2,
        FailureKind::DatasetExists => 17,
        FailureKind::NotEarlier => 18,
        FailureKind::BadType | FailureKind::InvalidName => 22,
        FailureKind::NameTooLong => 36,
        FailureKind::PoolNotSupported => 95,
        _ => 1,
    }
}

pub(in crate::zfs) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let [snapshot, bookmark, others @ ..] = words else { return Err(session.misuse("too few arguments")) };
    if others.is_empty() {
        return Err(session.misuse("too few arguments"));
    }
    let redact = SnapshotRedact { snapshot: snapshot.clone(), bookmark: bookmark.clone(), others: others.to_vec() };
    let Err(failure) = session.perform(Request::SnapshotRedact(redact)) else { return Ok(0) };
    if failure.kind != FailureKind::NoSuchDataset {
        complain!(session, "{failure}");
        return Ok(code(failure.kind));
    }
    for name in std::iter::once(snapshot).chain(others) {
        if datasets::open(session, name, DatasetKinds::NONE.with(DatasetKind::Snapshot), &[]).is_err() {
            complain!(session, "provided snapshot {name} does not exist");
        }
    }
    Ok(code(failure.kind))
}
