//! `zfs set`

use tarnfs::control::{DatasetKinds, DatasetSet, FailureKind, Request};

use super::create::add_pair;
use crate::properties::columns::Scope;
use crate::properties::effectless;
use crate::properties::settings::{self, When};
use crate::session::{Outcome, Session, Stop, complain, worst};
use crate::text::getopt::Options;
use crate::zfs::datasets;

pub(in crate::zfs) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let mut options = Options::new(words, "u", &[]);
    let mut no_remount = false;
    for option in options.by_ref() {
        option.map_err(|wrong| session.misuse(wrong))?;
        no_remount = true;
    }
    let operands = options.operands();
    match operands.as_slice() {
        [] => return Err(session.misuse("missing arguments")),
        [word] if word.contains('=') => return Err(session.misuse("missing dataset name(s)")),
        [_] => return Err(session.misuse("missing property=value argument(s)")),
        _ => {}
    }
    let is_pair = |word: &String| word.contains('=');
    let begin = operands.iter().position(|word| !is_pair(word)).ok_or_else(|| session.misuse("missing dataset name(s)"))?;
    if begin > 0 && operands[begin..].iter().any(is_pair) {
        return Err(session.misuse("invalid argument order"));
    }
    let mut pairs = Vec::new();
    for word in &operands[..begin] {
        if add_pair(session, &mut pairs, word).is_err() {
            return Ok(255);
        }
    }
    let mut code = 0;
    for name in &operands[begin..] {
        code = worst(code, match set(session, name, &pairs, no_remount) {
            Ok(()) => 0,
            Err(Stop::Code(code)) => code,
            Err(Stop::Usage) => return Err(Stop::Usage),
        });
    }
    if code == 0 {
        effectless::warn(session, Scope::Dataset, &pairs);
    }
    Ok(code)
}

fn set(session: &mut Session<'_>, name: &str, pairs: &[(String, String)], no_remount: bool) -> Result<(), Stop> {
    let entry = datasets::open(session, name, DatasetKinds::DATASETS, &[])?;
    let checked = settings::dataset_settings(pairs, datasets::types_of(entry.kind), When::Existing);
    let done = checked.and_then(|settings| session.perform(Request::DatasetSet(DatasetSet { name: name.to_owned(), settings, no_remount, received: false })));
    done.map_err(|failure| {
        session.failed(format_args!("cannot set property for '{name}'"), &failure);
        if failure.kind == FailureKind::MountFailed {
            complain!(session, "property may be set but unable to remount filesystem '{name}'");
        }
        Stop::Code(255)
    })
}
