//! `zfs wait`

use std::time::Duration;

use tarnfs::control::{DatasetKind, DatasetKinds, DeleteQueue, FailureKind, Request};

use crate::session::{Outcome, Session, Stop};
use crate::text::getopt::Options;
use crate::zfs::datasets;

const ACTIVITY: &str = "deleteq";
const STEP: Duration = Duration::from_millis(100);

pub(in crate::zfs) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let mut options = Options::new(words, "t:", &[]);
    for option in options.by_ref() {
        let (_, argument) = option.map_err(|wrong| session.misuse(wrong))?;
        let argument = argument.unwrap_or_default();
        if let Some(unknown) = argument.split(',').find(|word| *word != ACTIVITY) {
            return Err(session.misuse(format_args!("invalid activity '{unknown}'")));
        }
    }
    let operands = options.operands();
    let [name] = operands.as_slice() else {
        return Err(session.misuse(if operands.is_empty() { "missing 'filesystem' argument" } else { "too many arguments" }));
    };
    datasets::open(session, name, DatasetKinds::NONE.with(DatasetKind::Filesystem), &[])?;
    while is_deleting(session, name)? {
        std::thread::sleep(STEP);
    }
    Ok(0)
}

/// Files that have no name are being freed, or are open.
fn is_deleting(session: &mut Session<'_>, name: &str) -> Result<bool, Stop> {
    match session.count(Request::DeleteQueue(DeleteQueue { name: name.to_owned() })) {
        Ok(count) => Ok(count > 0),
        // It was destroyed or exported meanwhile: nothing goes on in it any more.
        Err(failure) if matches!(failure.kind, FailureKind::NoSuchPool | FailureKind::NoSuchDataset) => Ok(false),
        Err(failure) => Err(session.failed(format_args!("failed to wait for activity '{ACTIVITY}' in '{name}'"), &failure)),
    }
}
