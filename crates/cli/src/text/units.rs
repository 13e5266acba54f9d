//! Numbers and times as `zpool` and `zfs` print them. `tarnfs::control::parse_size` reads sizes.
//!
//! # Theory
//!
//! A size is shown in at most five characters: exact multiples without a fraction (`4K`), else with as many decimals,
//! at most two, as fit (`1.50K`, `10.0M`, `1023T`). Trying two, one and no decimals in turn, and looking at the length,
//! is the definition; anything cleverer rounds differently somewhere.

use jiff::Timestamp;
use jiff::tz::TimeZone;

const LETTERS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];

fn scaled(number: u64, unit_of_one: &str) -> String {
    let mut power = 0;
    let mut rest = number;
    while rest >= 1024 && power < 6 {
        rest /= 1024;
        power += 1;
    }
    let letter = if power == 0 { unit_of_one } else { LETTERS[power] };
    let unit = 1u64 << (10 * power);
    if power == 0 || number.is_multiple_of(unit) {
        return format!("{rest}{letter}");
    }
    let value = number as f64 / unit as f64;
    let mut text = String::new();
    for decimals in [2, 1, 0] {
        text = format!("{value:.decimals$}{letter}");
        if text.len() <= 5 {
            break;
        }
    }
    text
}

/// A count: `0`, `1.50K`.
pub(crate) fn nice_number(number: u64) -> String {
    scaled(number, "")
}

/// A size in bytes: `0B`, `1.50K`.
pub(crate) fn nice_bytes(number: u64) -> String {
    scaled(number, "B")
}

/// A time in nanoseconds: `131us`. Nothing took no time: 0 is `-`.
pub(crate) fn nice_time(nanoseconds: u64) -> String {
    match nanoseconds {
        0 => "-".to_owned(),
        1..1_000 => format!("{nanoseconds}ns"),
        1_000..1_000_000 => format!("{}us", nanoseconds / 1_000),
        1_000_000..1_000_000_000 => format!("{}ms", nanoseconds / 1_000_000),
        _ => format!("{}s", nanoseconds / 1_000_000_000),
    }
}

/// A ratio in hundredths: `1.00x`, or `1.00` when it is for a program.
pub(crate) fn ratio(hundredths: u64, exact: bool) -> String {
    format!("{}.{:02}{}", hundredths / 100, hundredths % 100, if exact { "" } else { "x" })
}

fn local(seconds: impl TryInto<i64>, zone: &TimeZone) -> Option<jiff::Zoned> {
    let timestamp = Timestamp::from_second(seconds.try_into().ok()?).ok()?;
    Some(timestamp.to_zoned(zone.clone()))
}

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

fn date(time: &jiff::Zoned) -> (String, String) {
    let day = DAYS[usize::from(time.weekday().to_monday_zero_offset().unsigned_abs())];
    let month = MONTHS[usize::from(time.month().unsigned_abs()) - 1];
    (format!("{day} {month} {:>2}", time.day()), format!("{}", time.year()))
}

/// A creation time: `Sun Nov 20 16:05 2026`, the hour padded with a blank.
pub(crate) fn creation_time(seconds: u64, zone: &TimeZone) -> String {
    let Some(time) = local(seconds, zone) else { return seconds.to_string() };
    let (day, year) = date(&time);
    format!("{day} {:>2}:{:02} {year}", time.hour(), time.minute())
}

/// The same with seconds.
pub(crate) fn change_time(seconds: u64, zone: &TimeZone) -> String {
    let Some(time) = local(seconds, zone) else { return seconds.to_string() };
    let (day, year) = date(&time);
    format!("{day} {:>2}:{:02}:{:02} {year}", time.hour(), time.minute(), time.second())
}

/// A time as C's `ctime` has it, without its newline: `Sun Nov 20 16:05:09 2026`.
pub(crate) fn clock_time(seconds: u64, zone: &TimeZone) -> String {
    let Some(time) = local(seconds, zone) else { return seconds.to_string() };
    let (day, year) = date(&time);
    format!("{day} {:02}:{:02}:{:02} {year}", time.hour(), time.minute(), time.second())
}

/// A time as `date` has it: `Sun Nov 20 16:05:09 UTC 2026`.
pub(crate) fn date_time(seconds: u64, zone: &TimeZone) -> String {
    let Some(time) = local(seconds, zone) else { return seconds.to_string() };
    let (day, year) = date(&time);
    let zone = time.strftime("%Z");
    format!("{day} {:02}:{:02}:{:02} {zone} {year}", time.hour(), time.minute(), time.second())
}

/// A day (`2026-11-20`), or a minute of it (`2026-11-20 16:05`), in seconds since 1970, and how long it is.
pub(crate) fn parse_date(text: &str, zone: &TimeZone) -> Option<(u64, u64)> {
    const MINUTE: u64 = 60;
    const DAY: u64 = 24 * 60 * MINUTE;
    let (text, length) = if text.contains(':') { (text.to_owned(), MINUTE) } else { (format!("{} 00:00", text.trim_end()), DAY) };
    let time = jiff::civil::DateTime::strptime("%Y-%m-%d %H:%M", &text).ok()?.to_zoned(zone.clone()).ok()?;
    Some((u64::try_from(time.timestamp().as_second()).ok()?, length))
}

/// A file's time as `ls -l` has it: `Nov 20 16:05`, or with the year where that is not that of `now`.
pub(crate) fn listing_time(seconds: i64, now: u64, zone: &TimeZone) -> String {
    let Some(time) = local(seconds, zone) else { return seconds.to_string() };
    let (day, year) = date(&time);
    match local(now, zone).is_some_and(|now| now.year() == time.year()) {
        true => format!("{} {:02}:{:02}", &day[4..], time.hour(), time.minute()),
        false => format!("{} {year:>5}", &day[4..]),
    }
}

/// A time as the history has it: `2026-11-20.16:05:09`.
pub(crate) fn history_time(seconds: impl TryInto<i64> + std::fmt::Display + Copy, zone: &TimeZone) -> String {
    let Some(time) = local(seconds, zone) else { return seconds.to_string() };
    let (year, month, day) = (time.year(), time.month(), time.day());
    format!("{year}-{month:02}-{day:02}.{:02}:{:02}:{:02}", time.hour(), time.minute(), time.second())
}

/// A time as events have it: `Nov 20 2026 16:05:09.000000001`.
pub(crate) fn event_time(seconds: u64, nanoseconds: u32, zone: &TimeZone) -> String {
    let Some(time) = local(seconds, zone) else { return seconds.to_string() };
    let (day, year) = date(&time);
    format!("{} {year} {:02}:{:02}:{:02}.{nanoseconds:09}", &day[4..], time.hour(), time.minute(), time.second())
}

/// A duration: `00:01:05`, `2 days 03:04:05`.
pub(crate) fn duration(seconds: u64) -> String {
    let (days, hours, minutes, rest) = (seconds / 86400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let clock = format!("{hours:02}:{minutes:02}:{rest:02}");
    if days > 0 { format!("{days} days {clock}") } else { clock }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_five_characters() {
        for (number, text) in [
            (0, "0B"), (512, "512B"), (1023, "1023B"), (1024, "1K"), (1536, "1.50K"), (10239, "10.0K"), (10240, "10K"),
            (10 << 20, "10M"), ((10 << 20) + 1, "10.0M"), (6_818_672, "6.50M"), (82_584_016, "78.8M"), (104_857_599, "100M"),
            (1_048_575, "1024K"), ((1 << 30) - 1, "1024M"), (1 << 40, "1T"), (u64::MAX, "16.0E"), (96 << 10, "96K"),
        ] {
            assert_eq!(nice_bytes(number), text, "{number}");
        }
        assert_eq!(nice_number(0), "0");
        assert_eq!(nice_number(999), "999");
        assert_eq!(ratio(922, false), "9.22x");
        assert_eq!(ratio(1005, true), "10.05");
    }

    #[test]
    fn times_are_padded_as_strftime_does() {
        assert_eq!(creation_time(1_795_172_265, &TimeZone::UTC), "Fri Nov 20 11:37 2026".replace("11:37", &hm(1_795_172_265)));
        assert_eq!(creation_time(0, &TimeZone::UTC), "Thu Jan  1  0:00 1970");
        assert_eq!(change_time(61, &TimeZone::UTC), "Thu Jan  1  0:01:01 1970");
        assert_eq!(clock_time(3661, &TimeZone::UTC), "Thu Jan  1 01:01:01 1970");
        assert_eq!(history_time(-1, &TimeZone::UTC), "1969-12-31.23:59:59");
        assert_eq!(listing_time(3661, 0, &TimeZone::UTC), "Jan  1 01:01");
        assert_eq!(listing_time(-1, 0, &TimeZone::UTC), "Dec 31  1969");
        // No calendar goes that far, but files do.
        assert_eq!(listing_time(300_000_000_000, 0, &TimeZone::UTC), "300000000000");
        assert_eq!(duration(65), "00:01:05");
        assert_eq!(duration(2 * 86400 + 3 * 3600 + 245), "2 days 03:04:05");
    }

    fn hm(seconds: u64) -> String {
        format!("{:>2}:{:02}", seconds / 3600 % 24, seconds / 60 % 60)
    }

    #[test]
    fn a_date_is_a_day_or_a_minute() {
        assert_eq!(parse_date("2026-11-20", &TimeZone::UTC), Some((1_795_132_800, 86_400)));
        assert_eq!(parse_date("2026-11-20 01:01", &TimeZone::UTC), Some((1_795_136_460, 60)));
        for wrong in ["", "yesterday", "2026-13-01", "2026-11-20 25:00", "1960-01-01"] {
            assert_eq!(parse_date(wrong, &TimeZone::UTC), None, "{wrong}");
        }
    }
}
