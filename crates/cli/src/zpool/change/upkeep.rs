//! `zpool reguid`, `zpool clear`

pub(in crate::zpool) mod checkpoint;
pub(in crate::zpool) mod scrub;
pub(in crate::zpool) mod wait;

use tarnfs::control::{PoolClear, PoolReguid, Request};

use crate::session::{Outcome, Session, Stop, complain};
use crate::text::getopt::Options;
use crate::zpool::spec::pools;

/// The pool is imported, or the complaint that it is not.
fn open(session: &mut Session<'_>, name: &str) -> Result<(), Stop> {
    match pools::statuses(session, std::slice::from_ref(&name.to_owned())) {
        (found, 0) if !found.is_empty() => Ok(()),
        _ => Err(Stop::Code(1)),
    }
}

pub(in crate::zpool) fn reguid(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let mut options = Options::new(words, "g:", &[]);
    let mut guid = None;
    for option in options.by_ref() {
        let (_, argument) = option.map_err(|wrong| session.misuse(wrong))?;
        let argument = argument.unwrap_or_default();
        guid = Some(parse_guid(&argument).ok_or_else(|| session.misuse(format_args!("invalid GUID: {argument}")))?);
    }
    let operands = options.operands();
    let [name] = operands.as_slice() else {
        return Err(session.misuse(if operands.is_empty() { "missing pool name" } else { "too many arguments" }));
    };
    open(session, name)?;
    let done = session.perform(Request::PoolReguid(PoolReguid { name: name.clone(), guid }));
    done.map_err(|failure| {
        session.failed(format_args!("cannot reguid '{name}'"), &failure);
        Stop::Code(255)
    })?;
    Ok(0)
}

/// A number as C's `strtoull` reads it: a sign may stand before it, and what is negative counts from the end.
fn parse_guid(word: &str) -> Option<u64> {
    let word = word.trim_start();
    match word.strip_prefix('-') {
        Some(digits) if !digits.starts_with('+') => digits.parse::<u64>().ok().map(u64::wrapping_neg),
        Some(_) => None,
        None => word.parse().ok(),
    }
}

pub(in crate::zpool) fn clear(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let mut options = Options::new(words, "FnX", &[("power", 'p')]);
    let (mut rewind, mut power, mut only_with_rewind) = (false, false, false);
    for option in options.by_ref() {
        match option.map_err(|wrong| session.misuse(wrong))?.0 {
            'F' => rewind = true,
            'p' => power = true,
            _ => only_with_rewind = true,
        }
    }
    let operands = options.operands();
    let (name, device) = match operands.as_slice() {
        [] => return Err(session.misuse("missing pool name")),
        [name] => (name, None),
        [name, device] => (name, Some(device.clone())),
        _ => return Err(session.misuse("too many arguments")),
    };
    if only_with_rewind && !rewind {
        return Err(session.misuse("-n or -X only meaningful with -F"));
    }
    for (given, option, instead) in [(rewind, "-F", "'zpool import -F' takes a pool back to an earlier state"), (power, "--power", "no device is switched on or off")] {
        if given {
            complain!(session, "zpool clear: {option} is not yet supported by this version of tarn: {instead}");
            return Ok(1);
        }
    }
    open(session, name)?;
    let action = match &device {
        Some(device) => format!("cannot clear errors for {device}"),
        None => format!("cannot clear errors for {name}"),
    };
    let done = session.perform(Request::PoolClear(PoolClear { name: name.clone(), device }));
    done.map_err(|failure| session.failed(action, &failure))?;
    Ok(0)
}
