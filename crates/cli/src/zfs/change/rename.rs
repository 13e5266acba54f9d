//! `zfs rename`

use tarnfs::control::{DatasetKind, DatasetKinds, DatasetRename, Failure, FailureKind, Request};

use crate::session::{Outcome, Session, complain};
use crate::text::getopt::Options;
use crate::text::names;
use crate::zfs::datasets;

const NO_DATASET_NAME: &str = "missing dataset name";

#[derive(Default)]
struct Flags {
    parents: bool,
    recursive: bool,
    no_remount: bool,
    force: bool,
}

pub(in crate::zfs) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let mut flags = Flags::default();
    let mut options = Options::new(words, "pruf", &[]);
    for option in options.by_ref() {
        match option.map_err(|wrong| session.misuse(wrong))?.0 {
            'p' => flags.parents = true,
            'r' => flags.recursive = true,
            'u' => flags.no_remount = true,
            _ => flags.force = true,
        }
    }
    let operands = options.operands();
    let (from, to) = match operands.as_slice() {
        [] => return Err(session.misuse("missing source dataset argument")),
        [_] => return Err(session.misuse("missing target dataset argument")),
        [from, to] => (from, to),
        _ => return Err(session.misuse("too many arguments")),
    };
    for (wrong, words) in [
        (flags.recursive && flags.parents, "-p and -r options are mutually exclusive"),
        (flags.no_remount && flags.parents, "-u and -p options are mutually exclusive"),
        (flags.recursive && !from.contains('@'), "source dataset for recursive rename must be a snapshot"),
    ] {
        if wrong {
            return Err(session.misuse(words));
        }
    }
    let kinds = match (flags.no_remount, flags.parents) {
        (true, _) => DatasetKinds::NONE.with(DatasetKind::Filesystem),
        (false, true) => DatasetKinds::HEADS,
        (false, false) => DatasetKinds::DATASETS,
    };
    let entry = datasets::open(session, from, kinds, &[])?;
    let to = full_target(from, to);
    if *from == to {
        return Ok(0);
    }
    if let Err(failure) = check_target(from, &to, entry.kind) {
        // OpenZFS looks at the place of the new name as if something were made there.
        let verb = if failure.message == NO_DATASET_NAME { "create" } else { "rename to" };
        complain!(session, "cannot {verb} '{to}': {failure}");
        return Ok(1);
    }
    let target = to.clone();
    let request = DatasetRename {
        from: from.clone(),
        to,
        parents: flags.parents,
        recursive: flags.recursive,
        no_remount: flags.no_remount,
        force: flags.force,
    };
    session.perform(Request::DatasetRename(request)).map_err(|failure| match failure.message.starts_with("parent ") {
        true => session.failed(format_args!("cannot create '{target}'"), &failure),
        false => session.failed(format_args!("cannot rename '{from}'"), &failure),
    })?;
    Ok(0)
}

/// `zfs rename a@b c` and `zfs rename a@b @c` mean `a@c`.
fn full_target(from: &str, to: &str) -> String {
    match from.split_once('@') {
        Some((head, _)) if !to.contains('@') => format!("{head}@{to}"),
        Some((head, _)) if to.starts_with('@') => format!("{head}{to}"),
        _ => to.to_owned(),
    }
}

fn check_target(from: &str, to: &str, kind: DatasetKind) -> Result<(), Failure> {
    let bad = |words: &str| Err(Failure::with(FailureKind::InvalidName, words));
    if kind == DatasetKind::Snapshot {
        if from.split('@').next() != to.split('@').next() {
            return bad("snapshots must be part of same dataset");
        }
        return names::check_dataset(to, DatasetKinds::NONE.with(kind), true);
    }
    names::check_dataset(to, DatasetKinds::HEADS, true)?;
    if !to.contains('/') {
        return bad(NO_DATASET_NAME);
    }
    if to.split('/').next() != from.split('/').next() {
        return bad("datasets must be within same pool");
    }
    if to.strip_prefix(from).is_some_and(|rest| rest.starts_with('/')) {
        return bad("New dataset name cannot be a descendant of current dataset name");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_keeps_its_dataset() {
        assert_eq!(full_target("a/b@c", "d"), "a/b@d");
        assert_eq!(full_target("a/b@c", "@d"), "a/b@d");
        assert_eq!(full_target("a/b@c", "a/x@d"), "a/x@d");
        assert_eq!(full_target("a/b", "a/x"), "a/x");
    }

    #[test]
    fn targets_that_cannot_be() {
        let fails = |from, to, kind| check_target(from, to, kind).is_err();
        assert!(!fails("a/b", "a/c", DatasetKind::Filesystem));
        for to in ["a/b/c", "x/c", "a", "a/c@d", "a//c"] {
            assert!(fails("a/b", to, DatasetKind::Filesystem), "{to}");
        }
        assert!(fails("a/b@c", "a/x@c", DatasetKind::Snapshot));
    }
}
