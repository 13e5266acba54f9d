//! `zpool wait`
//!
//! # Theory
//! Much is done in the background: space is freed, blocks are scrubbed and resilvered. With an interval, what is left is printed again and again, one
//! column for each activity that is waited for.

use std::time::{Duration, Instant};

use tarnfs::control::{
    CheckpointState, FailureKind, LeafWorkState, LeafWorkStatus, PoolSelect, RebuildState, Request, ScanFunction, ScanState, Value, VdevStats, VdevStatus, Wanted,
};

use super::open;
use crate::zpool::change::devices::beside::is_replacing;
use crate::session::{Outcome, Session, Stop, say};
use crate::text::getopt::Options;
use crate::text::units::nice_number;
use crate::zpool::spec::pools::{self, Timestamp};

/// What may be waited for.
const ACTIVITIES: [&str; 9] = ["discard", "free", "initialize", "replace", "remove", "resilver", "scrub", "trim", "raidz_expand"];
const FREE: &str = "free";
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
        let left = left(session, name)?;
        let due = interval.map(|interval| interval.duration().saturating_mul(rows));
        if due.is_some_and(|due| begun.elapsed() >= due) {
            session.now = started + begun.elapsed().as_secs();
            row(session, &flags, &left, rows);
            rows += 1;
            if !session.hand_over() {
                return Ok(0);
            }
        }
        if !left.iter().any(|(name, _)| flags.activities.contains(name)) {
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

/// What else is going on: the name of each activity, and how many bytes are left of it.
fn going_on(session: &mut Session<'_>, name: &str) -> Result<Vec<(&'static str, u64)>, Stop> {
    let select = PoolSelect { name: Some(name.to_owned()), properties: Wanted::Only(Vec::new()) };
    let status = match session.status(Request::PoolStatus(select)) {
        Ok(pools) => pools.into_iter().next(),
        Err(failure) if failure.kind == FailureKind::NoSuchPool => None,
        Err(failure) => return Err(session.failed(format_args!("cannot wait for '{name}'"), &failure)),
    };
    let Some(status) = status else { return Ok(Vec::new()) };
    let is_replacing = is_replacing(&status);
    let rebuilding = status.rebuilds.iter().filter(|rebuild| rebuild.state == RebuildState::Active);
    let to_rebuild = rebuilding.map(|rebuild| rebuild.estimate.saturating_sub(rebuild.rebuilt)).reduce(|one, other| one + other);
    let mut left = Vec::new();
    if let Some(checkpoint) = status.checkpoint.filter(|checkpoint| checkpoint.state == CheckpointState::Discarding) {
        left.push(("discard", checkpoint.space));
    }
    if let Some(scan) = status.scan.filter(|scan| scan.state == ScanState::Scanning && scan.pause_time == 0) {
        let activity = if scan.function == ScanFunction::Resilver { "resilver" } else { "scrub" };
        left.push((activity, scan.to_examine.saturating_sub(scan.issued)));
    }
    if let Some(removal) = status.removal.filter(|removal| removal.state == ScanState::Scanning) {
        left.push(("remove", removal.to_copy.saturating_sub(removal.copied)));
    }
    if let Some(bytes) = to_rebuild.filter(|_| left.iter().all(|(activity, _)| *activity != "resilver")) {
        left.push(("resilver", bytes));
    }
    if is_replacing {
        left.push(("replace", left.iter().find(|(activity, _)| *activity == "resilver").map_or(0, |(_, bytes)| *bytes)));
    }
    if let Some(expansion) = status.expansion.filter(|expansion| expansion.state == ScanState::Scanning) {
        left.push(("raidz_expand", expansion.to_move.saturating_sub(expansion.moved)));
    }
    for (activity, of) in [("initialize", (|stats| stats.initialize) as fn(&VdevStats) -> Option<LeafWorkStatus>), ("trim", |stats| stats.trim)] {
        let mut active = Vec::new();
        gather(&status.root, of, &mut active);
        if !active.is_empty() {
            left.push((activity, active.iter().map(|work| work.total.saturating_sub(work.done)).sum()));
        }
    }
    Ok(left)
}

/// Work on devices that is under way.
fn gather(vdev: &VdevStatus, of: fn(&VdevStats) -> Option<LeafWorkStatus>, active: &mut Vec<LeafWorkStatus>) {
    active.extend(of(&vdev.stats).filter(|work| work.state == LeafWorkState::Active));
    vdev.children.iter().for_each(|child| gather(child, of, active));
}

/// Waits until nothing of these activities is going on.
pub(in crate::zpool) fn wait_for(session: &mut Session<'_>, name: &str, activities: &[&str]) -> Result<(), Stop> {
    while left(session, name)?.iter().any(|(activity, _)| activities.contains(activity)) {
        std::thread::sleep(STEP);
    }
    Ok(())
}

fn left(session: &mut Session<'_>, name: &str) -> Result<Vec<(&'static str, u64)>, Stop> {
    let mut left = going_on(session, name)?;
    left.extend(freeing(session, name)?.map(|bytes| (FREE, bytes)));
    Ok(left)
}

fn row(session: &mut Session<'_>, flags: &Waiting, left: &[(&str, u64)], number: u32) {
    if let Some(time) = flags.timestamp.text(session) {
        say!(session, "{time}");
    }
    if !flags.scripted && number == 0 {
        let titles = flags.activities.iter().map(|name| format!("{:>1$}", name.to_uppercase(), width(name)));
        say!(session, "{}", titles.collect::<String>());
    }
    let cells = flags.activities.iter().map(|name| {
        let left = left.iter().find(|(activity, _)| activity == name).map_or(0, |(_, left)| *left);
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
