//! `zpool reguid`, `zpool clear`, `zpool wait`
//!
//! # Theory
//! Space is freed, and blocks are scrubbed and resilvered, in the background; of all else `zpool wait` finds nothing left. With an interval, what is left is
//! printed again and again, one column for each activity that is waited for.

pub(in crate::zpool) mod scrub;

use std::time::{Duration, Instant};

use tarnfs::control::{FailureKind, PoolClear, PoolReguid, PoolSelect, Request, ScanFunction, ScanState, Value, Wanted};

use crate::session::{Outcome, Session, Stop, complain, say};
use crate::text::getopt::Options;
use crate::text::units::nice_number;
use crate::zpool::spec::pools::{self, Timestamp};

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

/// What may be waited for.
const ACTIVITIES: [&str; 9] = ["discard", "free", "initialize", "replace", "remove", "resilver", "scrub", "trim", "raidz_expand"];
const FREE: &str = "free";
const SCRUB: &str = "scrub";
const RESILVER: &str = "resilver";
const EXPANSION: &str = "raidz_expand";
const STEP: Duration = Duration::from_millis(300);
/// Of a column, without the space between columns.
const WIDTH_MIN: usize = 6;

struct Waiting {
    scripted: bool,
    exact: bool,
    timestamp: Timestamp,
    /// In the order of [`ACTIVITIES`].
    activities: Vec<&'static str>,
}

fn parse_wait(session: &mut Session<'_>, words: &[String]) -> Result<(Waiting, Vec<String>), Stop> {
    let mut options = Options::new(words, "HpT:t:", &[]);
    let mut flags =
        Waiting { scripted: false, exact: false, timestamp: Timestamp::None, activities: ACTIVITIES.to_vec() };
    for option in options.by_ref() {
        let (letter, argument) = option.map_err(|wrong| session.misuse(wrong))?;
        let argument = argument.unwrap_or_default();
        match letter {
            'H' => flags.scripted = true,
            'p' => flags.exact = true,
            'T' => flags.timestamp = pools::parse_timestamp(session, &argument)?,
            _ => {
                let named: Vec<&str> = argument.split(',').collect();
                if let Some(unknown) = named.iter().find(|name| !ACTIVITIES.contains(name)) {
                    return Err(session.misuse(format_args!("invalid activity '{unknown}'")));
                }
                flags.activities = ACTIVITIES.into_iter().filter(|name| named.contains(name)).collect();
            }
        }
    }
    Ok((flags, options.operands()))
}

/// Waits until nothing of what is named is going on.
pub(in crate::zpool) fn wait(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let (flags, mut operands) = parse_wait(session, words)?;
    let interval = pools::take_interval(session, &mut operands)?;
    if interval.is_some_and(|interval| interval.count().is_some()) {
        return Err(session.misuse("too many arguments"));
    }
    let [name] = operands.as_slice() else {
        return Err(session.misuse(if operands.is_empty() { "missing 'pool' argument" } else { "too many arguments" }));
    };
    open(session, name)?;
    let begun = Instant::now();
    let (started, mut rows) = (session.now, 0_u32);
    loop {
        let left = [(FREE, freeing(session, name)?), scanning(session, name)?, (EXPANSION, expanding(session, name)?)];
        let due = interval.map(|interval| interval.duration().saturating_mul(rows));
        if due.is_some_and(|due| begun.elapsed() >= due) {
            session.now = started + begun.elapsed().as_secs();
            row(session, &flags, &left, rows);
            rows += 1;
            if !session.hand_over() {
                return Ok(0);
            }
        }
        if !left.iter().any(|(name, left)| left.is_some() && flags.activities.contains(name)) {
            return Ok(0);
        }
        let until_row = interval.map(|interval| interval.duration().saturating_mul(rows).saturating_sub(begun.elapsed()));
        std::thread::sleep(until_row.unwrap_or(STEP).min(STEP));
    }
}

/// What is left to free.
fn freeing(session: &mut Session<'_>, name: &str) -> Result<Option<u64>, Stop> {
    let select = PoolSelect { name: Some(name.to_owned()), properties: Wanted::Only(vec!["freeing".to_owned()]) };
    match session.pools(Request::PoolGet(select)) {
        Ok(pools) => {
            let numbers = pools.iter().flat_map(|pool| &pool.properties).map(|property| if let Value::Number(bytes) = property.value { bytes } else { 0 });
            Ok(Some(numbers.sum()).filter(|bytes| *bytes != 0))
        }
        // It was exported meanwhile: nothing goes on in it any more.
        Err(failure) if failure.kind == FailureKind::NoSuchPool => Ok(None),
        Err(failure) => Err(session.failed(format_args!("cannot wait for '{name}'"), &failure)),
    }
}

/// What is left to scan by a scrub or resilver that is not paused.
fn scanning(session: &mut Session<'_>, name: &str) -> Result<(&'static str, Option<u64>), Stop> {
    let select = PoolSelect { name: Some(name.to_owned()), properties: Wanted::Only(Vec::new()) };
    let scan = match session.status(Request::PoolStatus(select)) {
        Ok(pools) => pools.into_iter().find_map(|pool| pool.scan),
        Err(failure) if failure.kind == FailureKind::NoSuchPool => None,
        Err(failure) => return Err(session.failed(format_args!("cannot wait for '{name}'"), &failure)),
    };
    let running = scan.filter(|scan| scan.state == ScanState::Scanning && scan.pause_time == 0);
    let activity = if running.as_ref().is_some_and(|scan| scan.function == ScanFunction::Resilver) { RESILVER } else { SCRUB };
    Ok((activity, running.map(|scan| scan.to_examine.saturating_sub(scan.issued))))
}

/// What is left to move to a device that RAID-Z got.
fn expanding(session: &mut Session<'_>, name: &str) -> Result<Option<u64>, Stop> {
    let select = PoolSelect { name: Some(name.to_owned()), properties: Wanted::Only(Vec::new()) };
    let expansion = match session.status(Request::PoolStatus(select)) {
        Ok(pools) => pools.into_iter().find_map(|pool| pool.expansion),
        Err(failure) if failure.kind == FailureKind::NoSuchPool => None,
        Err(failure) => return Err(session.failed(format_args!("cannot wait for '{name}'"), &failure)),
    };
    let running = expansion.filter(|expansion| expansion.state == ScanState::Scanning);
    Ok(running.map(|expansion| expansion.to_move.saturating_sub(expansion.moved)))
}

fn row(session: &mut Session<'_>, flags: &Waiting, left: &[(&str, Option<u64>)], number: u32) {
    if let Some(time) = flags.timestamp.text(session) {
        say!(session, "{time}");
    }
    if !flags.scripted && number == 0 {
        let titles = flags.activities.iter().map(|name| format!("{:>1$}", name.to_uppercase(), width(name)));
        say!(session, "{}", titles.collect::<String>());
    }
    let cells = flags.activities.iter().map(|name| {
        let left = left.iter().find(|(activity, _)| activity == name).and_then(|(_, left)| *left).unwrap_or(0);
        let left = if flags.exact { left.to_string() } else { nice_number(left) };
        match flags.scripted {
            // Only the first of all has no tab before it, whichever are shown.
            true if *name == ACTIVITIES[0] => left,
            true => format!("\t{left}"),
            false => format!(" {left:>0$}", width(name) - 1),
        }
    });
    say!(session, "{}", cells.collect::<String>());
}

fn width(name: &str) -> usize {
    name.len().max(WIDTH_MIN) + 2
}
