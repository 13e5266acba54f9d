//! `zfs hold` and `zfs release`

use tarnfs::control::{DatasetKinds, Refusal, Request, SnapshotHolds, SnapshotsTag};

use crate::session::{Outcome, Session, Stop, complain};
use crate::text::getopt::Options;
use crate::zfs::datasets;
use crate::zfs::show::holds::names;

pub(in crate::zfs) fn hold(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let (recurse, tag, operands) = parse(session, words, "rt")?;
    if tag.starts_with('.') {
        return Err(session.misuse("tag may not start with '.'"));
    }
    each(session, &operands, |session, head, snapshot| {
        let names = names(session, head, snapshot, recurse)?;
        if names.is_empty() {
            complain!(session, "cannot hold snapshot '{head}@{snapshot}': dataset does not exist");
            return Err(Stop::Code(1));
        }
        let request = Request::SnapshotsHold(SnapshotsTag { names, tag: tag.clone() });
        answer(session, request, |refusal| format!("cannot hold snapshot '{}'", refusal.name), "cannot hold")
    })
}

pub(in crate::zfs) fn release(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let (recurse, tag, operands) = parse(session, words, "r")?;
    each(session, &operands, |session, head, snapshot| {
        let mut held = Vec::new();
        let mut why = "dataset does not exist";
        for name in names(session, head, snapshot, recurse)? {
            match session.holds(Request::SnapshotHolds(SnapshotHolds { name: name.clone() })) {
                Ok(holds) if holds.iter().any(|hold| hold.tag == tag) => held.push(name),
                Ok(_) => why = "no such tag on this dataset",
                Err(_) => why = "dataset does not exist",
            }
        }
        if held.is_empty() {
            complain!(session, "cannot release hold from snapshot '{head}@{snapshot}': {why}");
            return Err(Stop::Code(1));
        }
        let request = Request::SnapshotsRelease(SnapshotsTag { names: held, tag: tag.clone() });
        answer(session, request, |refusal| format!("cannot release hold from snapshot '{}'", refusal.name), "cannot release")
    })
}

/// Whether it is recursive, the tag, and the operands.
fn parse(session: &mut Session<'_>, words: &[String], letters: &'static str) -> Result<(bool, String, Vec<String>), Stop> {
    let mut options = Options::new(words, letters, &[]);
    let mut recurse = false;
    for option in options.by_ref() {
        recurse |= option.map_err(|wrong| session.misuse(wrong))?.0 == 'r';
    }
    let mut operands = options.operands();
    if operands.len() < 2 {
        return Err(Stop::Usage);
    }
    let tag = operands.remove(0);
    Ok((recurse, tag, operands))
}

/// Does it for each operand; what is wrong with one does not keep the others from being done.
fn each(session: &mut Session<'_>, operands: &[String], mut work: impl FnMut(&mut Session<'_>, &str, &str) -> Result<(), Stop>) -> Outcome {
    let mut code = 0;
    for operand in operands {
        let Some((head, snapshot)) = operand.split_once('@') else {
            complain!(session, "'{operand}' is not a snapshot");
            code = 1;
            continue;
        };
        if datasets::open(session, head, DatasetKinds::HEADS, &[]).and_then(|_| work(session, head, snapshot)).is_err() {
            code = 1;
        }
    }
    Ok(code)
}

fn answer(session: &mut Session<'_>, request: Request, action: impl Fn(&Refusal) -> String, all: &str) -> Result<(), Stop> {
    match session.refusals(request) {
        Ok(refusals) if refusals.is_empty() => Ok(()),
        Ok(refusals) => {
            for refusal in refusals {
                session.failed(action(&refusal), &refusal.failure);
            }
            Err(Stop::Code(1))
        }
        Err(failure) => Err(session.failed(all, &failure)),
    }
}
