//! `zfs inherit`

use engine::dsl::prop_table;
use tarnfs::control::{DatasetInherit, DatasetKinds, Failure, FailureKind, Request, Wanted};

use crate::properties::columns::{self, Scope};
use crate::session::{Outcome, Session, Stop, complain};
use crate::text::getopt::Options;
use crate::zfs::datasets::{self, Query};

pub(in crate::zfs) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let mut options = Options::new(words, "rS", &[]);
    let (mut recurse, mut received) = (false, false);
    for option in options.by_ref() {
        match option.map_err(|wrong| session.misuse(wrong))?.0 {
            'r' => recurse = true,
            _ => received = true,
        }
    }
    let operands = options.operands();
    let (name, datasets) = match operands.as_slice() {
        [] => return Err(session.misuse("missing property argument")),
        [_] => return Err(session.misuse("missing dataset argument")),
        [name, datasets @ ..] => (name, datasets),
    };
    check(session, name, received)?;
    let property = prop_table::find(name);
    let mut query = Query::new(DatasetKinds::DATASETS, Wanted::Only(Vec::new()));
    query.recurse = recurse;
    let (entries, mut code) = datasets::gather(session, datasets, &query)?;
    for entry in entries {
        if let Some(property) = property
            && !property.applies_to(datasets::types_of(entry.kind))
        {
            if !recurse {
                session.failed(format_args!("cannot inherit {name} for '{}'", entry.name), &Failure::new(FailureKind::PropertyType));
                code = 1;
            }
            continue;
        }
        let property = property.map_or(name.as_str(), |property| property.name).to_owned();
        let request = DatasetInherit { name: entry.name.clone(), property, received };
        if let Err(failure) = session.perform(Request::DatasetInherit(request)) {
            session.failed(format_args!("cannot inherit {name} for '{}'", entry.name), &failure);
            code = 1;
        }
    }
    Ok(code)
}

/// Refuses properties that cannot be inherited.
fn check(session: &mut Session<'_>, name: &str, received: bool) -> Result<(), Stop> {
    let Some(property) = prop_table::find(name) else {
        if prop_table::is_user_property(name) {
            return Ok(());
        }
        let stop = session.misuse(format_args!("invalid property '{name}'"));
        columns::hint(session, name, Scope::Dataset);
        return Err(stop);
    };
    if property.is_read_only() {
        complain!(session, "{name} property is read-only");
        return Err(Stop::Code(1));
    }
    if !property.is_inheritable() && !received {
        complain!(session, "'{name}' property cannot be inherited");
        if matches!(property.name, "quota" | "reservation" | "refquota" | "refreservation") {
            complain!(session, "use 'zfs set {name}=none' to clear");
            complain!(session, "use 'zfs inherit -S {name}' to revert to received value");
        }
        return Err(Stop::Code(1));
    }
    if received && matches!(property.name, "volsize" | "version") {
        complain!(session, "'{name}' property cannot be reverted to a received value");
        return Err(Stop::Code(1));
    }
    Ok(())
}
