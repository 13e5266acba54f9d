//! Finding the pools that a command is about, and repeating it at intervals.

use tarnfs::control::{Failure, FailureKind, PoolEntry, PoolSelect, PoolStatus, Request, Wanted};

use crate::session::{Session, Stop};
use crate::text::getopt::Options;
use crate::text::names;
use crate::text::suggest;

/// A name, checked, or a complaint that the pool cannot be opened.
fn check(session: &mut Session<'_>, name: &str) -> Result<(), Stop> {
    names::check_pool(name, false).map_err(|failure| session.failed(format_args!("cannot open '{name}'"), &failure))
}

fn open_failed(session: &mut Session<'_>, name: Option<&str>, mut failure: Failure) -> Stop {
    if failure.kind == FailureKind::NoSuchPool {
        failure = Failure::new(FailureKind::NoSuchPool);
    }
    let Some(name) = name else { return session.failed("cannot list pools", &failure) };
    let stop = session.failed(format_args!("cannot open '{name}'"), &failure);
    if failure.kind == FailureKind::NoSuchPool {
        hint(session, name);
    }
    stop
}

/// Says which pool may have been meant by a name that none has.
pub(in crate::zpool) fn hint(session: &mut Session<'_>, name: &str) {
    let select = PoolSelect { name: None, properties: Wanted::Only(Vec::new()) };
    let Ok(pools) = session.pools(Request::PoolGet(select)) else { return };
    if pools.is_empty() {
        session.hint("no pool is imported: 'tarn zpool import' lists those that can be, with '-d DIRECTORY' those on images there");
    } else if let Some(meant) = suggest::closest(name, pools.iter().map(|pool| pool.name.as_str())) {
        session.hint(suggest::line(meant));
    }
}

/// One request for each pool that is named, or one for all.
fn gather<T>(
    session: &mut Session<'_>,
    operands: &[String],
    mut ask: impl FnMut(&mut Session<'_>, Option<String>) -> Result<Vec<T>, Failure>,
    name_of: impl Fn(&T) -> String,
) -> (Vec<T>, u8) {
    let mut found = Vec::new();
    let mut code = 0;
    let names: Vec<Option<String>> = if operands.is_empty() { vec![None] } else { operands.iter().cloned().map(Some).collect() };
    for name in names {
        if name.as_deref().is_some_and(|name| check(session, name).is_err()) {
            code = 1;
            continue;
        }
        match ask(session, name.clone()) {
            Ok(pools) => found.extend(pools),
            Err(failure) => {
                open_failed(session, name.as_deref(), failure);
                code = 1;
            }
        }
    }
    found.sort_by_key(&name_of);
    let all = found.len();
    found.dedup_by_key(|pool| name_of(pool));
    // A pool that is named twice is done once, and was a mistake.
    if found.len() < all {
        code = 1;
    }
    (found, code)
}

/// The pools named, or all, with properties. The second part is 1 when one of them cannot be opened.
pub(in crate::zpool) fn entries(session: &mut Session<'_>, operands: &[String], properties: &Wanted) -> (Vec<PoolEntry>, u8) {
    let ask = |session: &mut Session<'_>, name| session.pools(Request::PoolList(PoolSelect { name, properties: properties.clone() }));
    gather(session, operands, ask, |pool| pool.name.clone())
}

/// The health of the pools named, or of all.
pub(in crate::zpool) fn statuses(session: &mut Session<'_>, operands: &[String]) -> (Vec<PoolStatus>, u8) {
    statuses_with(session, operands, &Wanted::Only(Vec::new()))
}

/// As [`statuses`], with what takes longer to find out.
pub(in crate::zpool) fn statuses_with(session: &mut Session<'_>, operands: &[String], properties: &Wanted) -> (Vec<PoolStatus>, u8) {
    let ask = |session: &mut Session<'_>, name| session.status(Request::PoolStatus(PoolSelect { name, properties: properties.clone() }));
    gather(session, operands, ask, |pool| pool.name.clone())
}

/// Is there an imported pool of that name?
pub(in crate::zpool) fn exists(session: &mut Session<'_>, name: &str) -> bool {
    let select = PoolSelect { name: Some(name.to_owned()), properties: Wanted::Only(Vec::new()) };
    session.pools(Request::PoolGet(select)).is_ok_and(|pools| !pools.is_empty())
}

/// How often, and how many times, to repeat.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Interval {
    seconds: f64,
    count: Option<u64>,
}

impl Interval {
    /// From one round to the next.
    pub(in crate::zpool) fn duration(self) -> std::time::Duration {
        std::time::Duration::try_from_secs_f64(self.seconds).unwrap_or(std::time::Duration::MAX)
    }

    /// How many rounds, if that is given.
    pub(in crate::zpool) fn count(self) -> Option<u64> {
        self.count
    }
}

fn as_number(word: &str) -> Option<f64> {
    let is_number = !word.is_empty() && !word.ends_with('.') && word.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if is_number { word.parse().ok() } else { None }
}

/// The words of a verb that takes `-f` and one operand; `missing` complains that there is none.
pub(in crate::zpool) fn forced_operand(session: &mut Session<'_>, words: &[String], missing: &str) -> Result<(bool, String), Stop> {
    let mut options = Options::new(words, "f", &[]);
    let mut force = false;
    for option in options.by_ref() {
        option.map_err(|wrong| session.misuse(wrong))?;
        force = true;
    }
    let operands = options.operands();
    let [operand] = operands.as_slice() else {
        return Err(session.misuse(if operands.is_empty() { missing } else { "too many arguments" }));
    };
    Ok((force, operand.clone()))
}

/// Takes `interval` and `count` from the end of the operands.
pub(crate) fn take_interval(session: &mut Session<'_>, operands: &mut Vec<String>) -> Result<Option<Interval>, Stop> {
    let mut take = |session: &mut Session<'_>| -> Result<Option<f64>, Stop> {
        let Some(number) = operands.last().and_then(|word| as_number(word)) else { return Ok(None) };
        operands.pop();
        if number == 0.0 { Err(session.misuse("interval cannot be zero")) } else { Ok(Some(number)) }
    };
    let Some(last) = take(session)? else { return Ok(None) };
    Ok(Some(match take(session)? {
        Some(seconds) => Interval { seconds, count: Some(last as u64) },
        None => Interval { seconds: last, count: None },
    }))
}

/// Sleeps once, without counting that as a round.
pub(in crate::zpool) fn pause(session: &mut Session<'_>, interval: Option<&Interval>) {
    let Some(interval) = interval else { return };
    std::thread::sleep(std::time::Duration::try_from_secs_f64(interval.seconds).unwrap_or(std::time::Duration::MAX));
    session.now += interval.seconds as u64;
}

/// Sleeps until the next round; `false` when there is none, or nobody to read it.
pub(crate) fn next_round(session: &mut Session<'_>, interval: &mut Option<Interval>) -> bool {
    let Some(interval) = interval else { return false };
    if let Some(count) = &mut interval.count {
        *count = count.saturating_sub(1);
        if *count == 0 {
            return false;
        }
    }
    if !session.hand_over() {
        return false;
    }
    std::thread::sleep(std::time::Duration::try_from_secs_f64(interval.seconds).unwrap_or(std::time::Duration::MAX));
    session.now += interval.seconds as u64;
    true
}

/// Reads `-T`.
pub(in crate::zpool) fn parse_timestamp(session: &mut Session<'_>, text: &str) -> Result<Timestamp, Stop> {
    match text.chars().next() {
        Some('u') => Ok(Timestamp::Seconds),
        Some('d') => Ok(Timestamp::Date),
        _ => {
            Err(session.misuse(format_args!("invalid argument '{text}' of -T: it is u or d")))
        }
    }
}

/// `-T`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::zpool) enum Timestamp {
    #[default]
    None,
    Seconds,
    Date,
}

impl Timestamp {
    /// The time as text, if it is to be shown.
    pub(in crate::zpool) fn text(self, session: &Session<'_>) -> Option<String> {
        match self {
            Timestamp::None => None,
            Timestamp::Seconds => Some(session.now.to_string()),
            Timestamp::Date => Some(crate::text::units::date_time(session.now, &session.zone)),
        }
    }
}
