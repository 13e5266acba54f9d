//! `zpool reguid`, `zpool clear`, `zpool wait`

use tarnfs::control::{FailureKind, PoolClear, PoolReguid, PoolSelect, Request, Value, Wanted};

use crate::session::{Outcome, Session, Stop, complain};
use crate::text::getopt::Options;
use crate::zpool::spec::pools;

/// What may be waited for.
const ACTIVITIES: [&str; 9] = ["discard", "free", "initialize", "replace", "remove", "resilver", "scrub", "trim", "raidz_expand"];
const WAIT_STEP: std::time::Duration = std::time::Duration::from_millis(300);

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

/// Waits until nothing of what is named is going on. Space is freed in the background; nothing else runs by itself yet.
pub(in crate::zpool) fn wait(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let mut options = Options::new(words, "HpT:t:n", &[]);
    let mut activities: Vec<String> = ACTIVITIES.iter().map(|name| (*name).to_owned()).collect();
    for option in options.by_ref() {
        let (letter, argument) = option.map_err(|wrong| session.misuse(wrong))?;
        let argument = argument.unwrap_or_default();
        if letter == 't' {
            activities = argument.split(',').map(str::to_owned).collect();
            if let Some(unknown) = activities.iter().find(|name| !ACTIVITIES.contains(&name.as_str())) {
                return Err(session.misuse(format_args!("invalid activity '{unknown}'")));
            }
        }
    }
    let mut operands = options.operands();
    if pools::take_interval(session, &mut operands)?.is_some() {
        complain!(session, "zpool wait: an interval is not yet supported by this version of tarn");
        return Err(Stop::Code(1));
    }
    let [name] = operands.as_slice() else {
        return Err(session.misuse(if operands.is_empty() { "missing 'pool' argument" } else { "too many arguments" }));
    };
    open(session, name)?;
    while activities.iter().any(|activity| activity == "free") && is_freeing(session, name)? {
        std::thread::sleep(WAIT_STEP);
    }
    Ok(0)
}

fn is_freeing(session: &mut Session<'_>, name: &str) -> Result<bool, Stop> {
    let select = PoolSelect { name: Some(name.to_owned()), properties: Wanted::Only(vec!["freeing".to_owned()]) };
    match session.pools(Request::PoolGet(select)) {
        Ok(pools) => Ok(pools.iter().flat_map(|pool| &pool.properties).any(|property| property.value != Value::Number(0))),
        // It was exported meanwhile: nothing goes on in it any more.
        Err(failure) if failure.kind == FailureKind::NoSuchPool => Ok(false),
        Err(failure) => Err(session.failed(format_args!("cannot wait for '{name}'"), &failure)),
    }
}
