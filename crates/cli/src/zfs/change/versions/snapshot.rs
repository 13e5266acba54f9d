//! `zfs snapshot`

use engine::dsl::prop_table::DatasetTypes;
use tarnfs::control::{DatasetKind, DatasetKinds, Request, SnapshotsCreate, Value};

use crate::zfs::change::create::add_pair;
use crate::properties::settings::{self, When};
use crate::session::{Outcome, Session, Stop, complain};
use crate::text::getopt::Options;
use crate::text::names;
use crate::zfs::datasets;

pub(in crate::zfs) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let mut options = Options::new(words, "ro:", &[]);
    let (mut recurse, mut pairs) = (false, Vec::new());
    for option in options.by_ref() {
        match option.map_err(|wrong| session.misuse(wrong))? {
            ('r', _) => recurse = true,
            (_, argument) => add_pair(session, &mut pairs, &argument.unwrap_or_default())?,
        }
    }
    let operands = options.operands();
    if operands.is_empty() {
        return Err(session.misuse("missing snapshot argument"));
    }
    let several = recurse || operands.len() > 1;
    let mut wanted: Vec<String> = Vec::new();
    for operand in &operands {
        for name in snapshots_of(session, operand, recurse)? {
            if !wanted.contains(&name) {
                wanted.push(name);
            }
        }
    }
    let done = take(session, wanted, &pairs);
    if done.is_err() && several {
        complain!(session, "no snapshots were created");
    }
    done.map(|()| 0)
}

/// The full names that an operand stands for. One that is none ends with the usage text, as in OpenZFS.
fn snapshots_of(session: &mut Session<'_>, operand: &str, recurse: bool) -> Result<Vec<String>, Stop> {
    let Some((head, snapshot)) = operand.split_once('@') else { return Err(Stop::Usage) };
    const BEING_MADE: &str = "inconsistent";
    let root = datasets::open(session, head, DatasetKinds::HEADS, &[BEING_MADE]).map_err(|_| Stop::Usage)?;
    let mut heads = vec![root];
    if recurse {
        heads.extend(datasets::below(session, head, DatasetKinds::HEADS, &[BEING_MADE])?);
        // What is being received, and what is below it, is passed over.
        let mut passed_over: Vec<String> = Vec::new();
        heads.retain(|entry| {
            let is_below = passed_over.iter().any(|above| entry.name.strip_prefix(above.as_str()).is_some_and(|rest| rest.starts_with('/')));
            let being_made = entry.property(BEING_MADE).is_some_and(|value| value.value == Value::Number(1));
            if being_made {
                passed_over.push(entry.name.clone());
            }
            !is_below && !being_made
        });
    }
    Ok(heads.into_iter().map(|entry| format!("{}@{snapshot}", entry.name)).collect())
}

fn take(session: &mut Session<'_>, names: Vec<String>, pairs: &[(String, String)]) -> Result<(), Stop> {
    for name in &names {
        names::check_dataset(name, DatasetKinds::NONE.with(DatasetKind::Snapshot), true)
            .map_err(|failure| session.failed(format_args!("cannot create snapshot '{name}'"), &failure))?;
    }
    let Some(first) = names.first().cloned() else { return Err(Stop::Code(1)) };
    // Without a name behind it: the same words say why a property is none.
    let properties = settings::dataset_settings(pairs, DatasetTypes::SNAPSHOT, When::Creating)
        .map_err(|failure| session.failed("cannot create snapshots ", &failure))?;
    let pool = names::pool_of(&first);
    if names.iter().any(|name| names::pool_of(name) != pool) {
        complain!(session, "cannot create snapshots : operation crosses datasets or pools");
        return Err(Stop::Code(1));
    }
    match session.refusals(Request::SnapshotsCreate(SnapshotsCreate { names, properties })) {
        Ok(refusals) if refusals.is_empty() => Ok(()),
        Ok(refusals) => {
            for refusal in refusals {
                session.failed(format_args!("cannot create snapshot '{}'", refusal.name), &refusal.failure);
            }
            Err(Stop::Code(1))
        }
        Err(failure) => Err(session.failed("cannot create snapshots ", &failure)),
    }
}
