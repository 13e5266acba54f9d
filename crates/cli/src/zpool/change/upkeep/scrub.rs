//! `zpool scrub`, `zpool resilver`

use std::time::Duration;

use tarnfs::control::{PoolScrub, PoolState, PoolStatus, Request, ScanState, ScrubCommand};

use crate::session::{Outcome, Session, Stop, complain, say};
use crate::text::getopt::Options;
use crate::text::units;
use crate::zpool::spec::pools;

const STEP: Duration = Duration::from_millis(300);

/// Letters that exclude one another, in the order in which OpenZFS complains.
const EXCLUSIVE: [(char, char); 5] = [('s', 'p'), ('p', 'C'), ('s', 'C'), ('e', 'C'), ('e', 'E')];

pub(in crate::zpool) fn scrub(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let mut options = Options::new(words, "aspweCE:S:", &[]);
    let (mut given, mut dates) = (Vec::new(), (0, 0));
    for option in options.by_ref() {
        let (letter, argument) = option.map_err(|wrong| session.misuse(wrong))?;
        let argument = argument.unwrap_or_default();
        match letter {
            'S' => dates.0 = date(session, &argument, false)?,
            // What is scrubbed is rather more than less.
            'E' => dates.1 = date(session, &argument, true)?,
            _ => {}
        }
        given.push(letter);
    }
    let has = |letter: char| given.contains(&letter);
    for (one, other) in EXCLUSIVE {
        if has(one) && has(other) {
            return Err(session.misuse(format_args!("invalid option combination: -{one} and -{other} are mutually exclusive")));
        }
    }
    if dates != (0, 0) && (has('p') || has('C')) {
        return Err(session.misuse("invalid option combination: start/end date is available only with normal scrub"));
    }
    if dates.0 != 0 && dates.1 != 0 && dates.0 > dates.1 {
        return Err(session.misuse("invalid arguments: end date has to be later than start date"));
    }
    if has('w') && (has('p') || has('s')) {
        return Err(session.misuse("invalid option combination: -w cannot be used with -p or -s"));
    }
    let operands = options.operands();
    if operands.is_empty() && !has('a') {
        return Err(session.misuse("missing pool name argument"));
    }
    let command = match () {
        () if has('p') => ScrubCommand::Pause,
        () if has('s') => ScrubCommand::Stop,
        () if has('C') => ScrubCommand::BeginFromLast,
        () if has('e') => ScrubCommand::BeginErrors,
        () if dates != (0, 0) => ScrubCommand::BeginBetween(dates.0, dates.1),
        () => ScrubCommand::Begin,
    };
    each(session, if has('a') { &[] } else { &operands }, command, has('w'))
}

/// A day, or a minute of it, in seconds since 1970; its end with `up`.
fn date(session: &mut Session<'_>, text: &str, up: bool) -> Result<u64, Stop> {
    match units::parse_date(text, &session.zone.clone()) {
        Some((begin, length)) => Ok(begin + if up { length } else { 0 }),
        None => Err(session.misuse("Failed to parse the date.")),
    }
}

pub(in crate::zpool) fn resilver(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let mut options = Options::new(words, "", &[]);
    for option in options.by_ref() {
        option.map_err(|wrong| session.misuse(wrong))?;
    }
    let operands = options.operands();
    if operands.is_empty() {
        return Err(session.misuse("missing pool name argument"));
    }
    each(session, &operands, ScrubCommand::Resilver, false)
}

/// Does it with each of these pools, or with all where none is named. Then, with `wait`, waits until each is done.
fn each(session: &mut Session<'_>, names: &[String], command: ScrubCommand, wait: bool) -> Outcome {
    let (statuses, mut code) = pools::statuses(session, names);
    for status in &statuses {
        if status.state == PoolState::Unavailable {
            complain!(session, "cannot scan '{}': pool is currently unavailable", status.name);
            code = 1;
        } else if !one(session, status, command) {
            code = 1;
        }
    }
    if wait {
        for status in &statuses {
            self::wait(session, &status.name)?;
        }
    }
    Ok(code)
}

fn one(session: &mut Session<'_>, status: &PoolStatus, command: ScrubCommand) -> bool {
    let name = &status.name;
    let action = match command {
        ScrubCommand::BeginErrors | ScrubCommand::Begin | ScrubCommand::BeginFromLast | ScrubCommand::BeginBetween(..) => "cannot scrub",
        ScrubCommand::Pause => "cannot pause scrubbing",
        ScrubCommand::Stop => "cannot cancel scrubbing",
        ScrubCommand::Resilver => "cannot restart resilver on",
    };
    if let Err(failure) = session.perform(Request::PoolScrub(PoolScrub { name: name.clone(), command })) {
        session.failed(format_args!("{action} {name}"), &failure);
        return false;
    }
    if status.checkpoint.is_some() && matches!(command, ScrubCommand::Begin | ScrubCommand::BeginFromLast | ScrubCommand::BeginBetween(..)) {
        say!(session, "warning: will not scrub state that belongs to the checkpoint of pool '{name}'");
    }
    true
}

/// Waits until the scan of a pool is over, or paused.
fn wait(session: &mut Session<'_>, name: &str) -> Result<(), Stop> {
    loop {
        let (found, code) = pools::statuses(session, std::slice::from_ref(&name.to_owned()));
        if code != 0 {
            return Err(Stop::Code(code));
        }
        let is_running = |status: &PoolStatus| status.scan.as_ref().is_some_and(|scan| scan.state == ScanState::Scanning && scan.pause_time == 0);
        let reads_errors = |status: &PoolStatus| status.error_scrub.as_ref().is_some_and(|scrub| scrub.state == ScanState::Scanning && !scrub.is_paused);
        if !found.iter().any(|status| is_running(status) || reads_errors(status)) {
            return Ok(());
        }
        std::thread::sleep(STEP);
    }
}
