//! `zfs promote`

use tarnfs::control::{DatasetKinds, DatasetPromote, Failure, FailureKind, Request};

use crate::session::{Outcome, Session};
use crate::text::getopt::Options;
use crate::zfs::datasets;

pub(in crate::zfs) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let mut options = Options::new(words, "", &[]);
    for option in options.by_ref() {
        option.map_err(|wrong| session.misuse(wrong))?;
    }
    let operands = options.operands();
    let [name] = operands.as_slice() else {
        return Err(session.misuse(if operands.is_empty() { "missing clone filesystem argument" } else { "too many arguments" }));
    };
    let clone = datasets::open(session, name, DatasetKinds::HEADS, &["origin"])?;
    let action = format!("cannot promote '{name}'");
    if clone.property("origin").and_then(|origin| origin.value.text()).is_none_or(str::is_empty) {
        return Err(session.failed(&action, &Failure::with(FailureKind::BadType, "not a cloned filesystem")));
    }
    session.perform(Request::DatasetPromote(DatasetPromote { name: name.clone() })).map_err(|failure| session.failed(&action, &failure))?;
    Ok(0)
}
