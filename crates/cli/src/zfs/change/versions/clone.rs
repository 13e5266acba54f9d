//! `zfs clone`

use tarnfs::control::{DatasetClone, DatasetKind, DatasetKinds, Failure, FailureKind, Request};

use crate::zfs::change::create::{add_pair, check_parents, is_absent, lookup};
use crate::properties::columns::Scope;
use crate::properties::effectless;
use crate::properties::settings::{self, When};
use crate::session::{Outcome, Session};
use crate::text::getopt::Options;
use crate::text::names;
use crate::zfs::{datasets, mount_after};

pub(in crate::zfs) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let (mut pairs, mut parents, mut no_mount) = (Vec::new(), false, false);
    let mut options = Options::new(words, "o:pu", &[]);
    for option in options.by_ref() {
        let (letter, argument) = option.map_err(|wrong| session.misuse(wrong))?;
        match letter {
            'o' => add_pair(session, &mut pairs, &argument.unwrap_or_default())?,
            'p' => parents = true,
            _ => no_mount = true,
        }
    }
    let operands = options.operands();
    let (snapshot, name) = match operands.as_slice() {
        [] => return Err(session.misuse("missing source dataset argument")),
        [_] => return Err(session.misuse("missing target dataset argument")),
        [snapshot, name] => (snapshot, name),
        _ => return Err(session.misuse("too many arguments")),
    };
    let source = datasets::open(session, snapshot, DatasetKinds::NONE.with(DatasetKind::Snapshot), &[])?;
    let head = source.name.split('@').next().unwrap_or_default().to_owned();
    let kind = lookup(session, &head).unwrap_or(DatasetKind::Filesystem);
    let name_is_valid = names::check_dataset(name, DatasetKinds::HEADS, true);
    // What is there already is what was wanted.
    if parents && name_is_valid.is_ok() && lookup(session, name).is_ok() {
        return Ok(0);
    }
    let action = format!("cannot create '{name}'");
    let clone = name_is_valid
        .and_then(|()| names::check_nesting(name))
        .and_then(|()| if names::pool_of(name) == names::pool_of(&head) { check_parents(session, name, parents) } else { Err(other_pool()) })
        .and_then(|()| settings::dataset_settings(&pairs, datasets::types_of(kind), When::Existing))
        .map(|properties| DatasetClone { snapshot: source.name.clone(), name: name.clone(), properties, parents });
    let made = clone.and_then(|clone| session.perform(Request::DatasetClone(clone)));
    made.map_err(|failure| {
        let stop = session.failed(&action, &failure);
        if let Some((parent, _)) = name.rsplit_once('/').filter(|_| is_absent(&failure)) {
            datasets::hint(session, parent);
        }
        stop
    })?;
    effectless::warn(session, Scope::Dataset, &pairs);
    if !no_mount && kind == DatasetKind::Filesystem {
        // A clone that cannot be mounted has been made all the same.
        let _ = mount_after(session, name);
    }
    Ok(0)
}

fn other_pool() -> Failure {
    Failure::with(FailureKind::InvalidName, "source and target pools differ")
}
