//! A moment as the user names it: a snapshot, a group, a time.

use jiff::civil::{DateTime, Time};
use jiff::{SignedDuration, Timestamp};
use tarnfs::past::Moment;

use crate::session::Session;

/// For the usage of verbs that take one.
pub(in crate::fs) const WORDS: &str = "'now', @SNAPSHOT, a TXG, a time as in '2026-11-25 14:30' or 14:30, or an age as in 10m, 2h, 3d";

/// An age: `10m`, `2h`, `3d`, with or without ` ago`.
fn age(text: &str) -> Option<u64> {
    let text = text.strip_suffix(" ago").unwrap_or(text).trim_start_matches('-');
    let unit = match text.chars().last()? {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86400,
        'w' => 7 * 86400,
        _ => return None,
    };
    text[..text.len() - 1].parse::<u64>().ok()?.checked_mul(unit)
}

/// A time, in seconds since 1970.
fn time(session: &Session<'_>, text: &str) -> Option<u64> {
    if let Some(age) = age(text) {
        return Some(session.now.saturating_sub(age));
    }
    if let Ok(time) = text.parse::<Timestamp>() {
        return u64::try_from(time.as_second()).ok();
    }
    let now = Timestamp::from_second(i64::try_from(session.now).ok()?).ok()?.to_zoned(session.zone.clone());
    let local = match text.parse::<DateTime>() {
        Ok(local) => local,
        Err(_) => now.date().to_datetime(text.parse::<Time>().ok()?),
    };
    let local = local.to_zoned(session.zone.clone()).ok()?;
    // A minute or second that is named is meant to its end.
    let whole = if text.matches(':').count() < 2 { SignedDuration::from_secs(59) } else { SignedDuration::ZERO };
    u64::try_from(local.timestamp().checked_add(whole).ok()?.as_second()).ok()
}

/// What a word means. A word that is nothing else is the name of a snapshot.
pub(in crate::fs) fn moment(session: &Session<'_>, text: &str) -> Moment {
    if text == "now" || text.is_empty() {
        return Moment::Now;
    }
    if let Some(name) = text.strip_prefix('@') {
        return Moment::Snapshot(name.to_owned());
    }
    if let Ok(txg) = text.strip_prefix("txg:").unwrap_or(text).parse() {
        return Moment::Group(txg);
    }
    time(session, text).map_or_else(|| Moment::Snapshot(text.to_owned()), Moment::Time)
}
