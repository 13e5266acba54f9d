//! What `zfs send -v`, `-P` and `-V` say: words that other programs read.

use std::io::Write;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tarnfs::control::StreamProgress;

use super::Flags;
use crate::session::Session;
use crate::text::units::{nice_bytes, nice_number};

/// Where estimates go: they are all that a dry run has to say.
pub(super) fn print(session: &mut Session<'_>, flags: &Flags, words: std::fmt::Arguments<'_>) {
    if flags.dry {
        session.print(words);
    } else {
        let _ = session.err.write_fmt(words);
    }
}

/// `full	tank/a@b	12345`, or in words.
pub(super) fn estimate(session: &mut Session<'_>, flags: &Flags, snapshot: &str, from: Option<&str>, bytes: u64) {
    if flags.parsable {
        match from {
            Some(from) => print(session, flags, format_args!("incremental\t{from}\t{snapshot}\t{bytes}\n")),
            None => print(session, flags, format_args!("full\t{snapshot}\t{bytes}\n")),
        }
        return;
    }
    let size = if bytes == 0 { String::new() } else { format!(" estimated size is {}", nice_bytes(bytes)) };
    match from {
        Some(from) if from.contains(['@', '#']) => print(session, flags, format_args!("send from {from} to {snapshot}{size}\n")),
        Some(from) => print(session, flags, format_args!("send from @{from} to {snapshot}{size}\n")),
        None => print(session, flags, format_args!("full send of {snapshot}{size}\n")),
    }
}

/// `size	12345`, or in words.
pub(super) fn total(session: &mut Session<'_>, flags: &Flags, bytes: u64, words: String) {
    if flags.parsable {
        print(session, flags, format_args!("size\t{bytes}\n"));
    } else {
        print(session, flags, format_args!("total estimated size is {words}\n"));
    }
}

/// A line each second.
pub(super) struct Progress {
    snapshot: String,
    zone: TimeZone,
    parsable: bool,
    progress: bool,
    verbosity: u32,
    title: bool,
    size: u64,
}

impl Progress {
    pub(super) fn new(flags: &Flags, snapshot: &str, size: u64, zone: TimeZone) -> Progress {
        let Flags { parsable, progress, verbosity, title, .. } = *flags;
        Progress { snapshot: snapshot.to_owned(), zone, parsable, progress, verbosity, title, size }
    }

    /// The line above the others.
    pub(super) fn begin(&self, err: &mut dyn Write) {
        if !self.parsable && self.progress {
            let blocks = if self.verbosity >= 2 { "   BLOCKS    " } else { "" };
            let _ = writeln!(err, "TIME        SENT   {blocks}SNAPSHOT {}", self.snapshot);
        }
    }

    pub(super) fn say(&mut self, err: &mut dyn Write, progress: StreamProgress) {
        let bytes = progress.bytes;
        if self.title {
            let percent = if self.size >= 100 { (bytes / (self.size / 100)).min(100) } else { 100 };
            set_title(&format!("sending {} ({percent}%: {}/{})", self.snapshot, nice_number(bytes), nice_number(self.size)));
        }
        if !self.progress && !self.title {
            // `-P` alone is for the estimate.
            return;
        }
        let time = Timestamp::now().to_zoned(self.zone.clone()).strftime("%H:%M:%S").to_string();
        let snapshot = &self.snapshot;
        let blocks = progress.bytes.div_ceil(128 << 10);
        let _ = match (self.parsable, self.verbosity >= 2) {
            (true, true) => writeln!(err, "{time}\t{bytes}\t{blocks}\t{snapshot}"),
            (false, true) => writeln!(err, "{time}   {:>5}    {blocks:>8}    {snapshot}", nice_number(bytes)),
            (true, false) => writeln!(err, "{time}\t{bytes}\t{snapshot}"),
            (false, false) if self.progress => writeln!(err, "{time}   {:>5}   {snapshot}", nice_bytes(bytes)),
            (false, false) => Ok(()),
        };
    }
}

/// What `ps` shows of us, as far as the kernel lets a program say it.
fn set_title(words: &str) {
    let _ = std::fs::write("/proc/self/comm", words);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A script that reads the size from the last line of `-P` got the time of a stream that took longer than a second.
    #[test]
    fn progress_is_told_where_it_was_asked_for() {
        let said = |progress: bool| {
            let flags = Flags { parsable: true, verbosity: 1, progress, ..Flags::default() };
            let mut err = Vec::new();
            Progress::new(&flags, "tank/a@b", 1000, TimeZone::UTC).say(&mut err, StreamProgress { bytes: 5 });
            String::from_utf8(err).unwrap()
        };
        assert_eq!(said(false), "");
        assert!(said(true).ends_with("\t5\ttank/a@b\n"));
    }
}
