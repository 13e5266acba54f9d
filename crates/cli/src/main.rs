//! `tarn`: zpool, zfs, zdb and verbs of its own.
//!
//! # Theory
//!
//! One program with several names. Called `zpool`, `zfs` or `zdb`, through a link, it is that command; called anything
//! else, its first word chooses. A command builds requests ([`session`]), somebody answers ([`remote`]), and what is
//! printed is OpenZFS's to the byte, because scripts read it.

mod columns;
mod command;
mod display;
mod fs;
mod getopt;
mod history;
mod json;
mod mount_helper;
mod names;
mod own;
mod owners;
mod remote;
mod session;
mod settings;
mod shares;
mod table;
#[cfg(test)]
mod tests;
mod transaction;
mod try_it;
mod units;
mod version;
mod zdb;
mod zfs;
mod zpool;

use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use remote::Remote;
use session::{History, Session};

/// How it is set up is in `.cargo/config.toml`: one arena, since most of the memory is blocks of the cache, which other threads
/// free than made them, and what was freed in one arena is of no use in another (with two, a daemon of 256 MB took 330 where it takes 280);
/// and memory that was freed stays for a minute, in huge pages, since touching new memory costs more than filling it (128 MB written to a new file:
/// 1.9 GB/s instead of 0.7; the price is 3 to 10 % more memory, and slower first seconds of many synchronous writers).
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The words of the command line as text, which names of pools, datasets and properties are. What is a file's, or another
/// program's, is taken as it was given.
fn texts(given: &[OsString]) -> Vec<String> {
    given.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

fn main() -> ExitCode {
    let given: Vec<OsString> = std::env::args_os().collect();
    let words = texts(&given);
    let called = words.first().map_or("tarn", String::as_str);
    let called = Path::new(called).file_name().and_then(|name| name.to_str()).unwrap_or("tarn").to_owned();
    let rest = words.get(1..).unwrap_or_default();
    let (program, rest) = match (called.as_str(), rest.split_first()) {
        ("zpool" | "zfs" | "zdb", _) => (called.as_str(), rest),
        (called, _) if mount_helper::NAMES.contains(&called) => ("mount", rest),
        (_, Some((first, rest))) => (first.as_str(), rest),
        (_, None) => ("--help", rest),
    };
    if program == "daemon" {
        return own::daemon();
    }
    if program == own::WITNESS {
        return own::witness(rest);
    }
    if program == own::ERRAND {
        return fuse::errand::run(given.get(2..).unwrap_or_default());
    }
    if program == "try" {
        return try_it::run(rest);
    }
    let mut remote = Remote::new();
    let mut out = BufWriter::new(std::io::stdout());
    let mut err = std::io::stderr();
    let mut session = Session {
        control: &mut remote,
        out: &mut out,
        err: &mut err,
        now: u64::try_from(Timestamp::now().as_second()).unwrap_or(0),
        zone: TimeZone::system(),
        history: History::of_words(program, rest),
    };
    let code = match program {
        "zpool" => zpool::PROGRAM.run(&mut session, rest),
        "zfs" => zfs::PROGRAM.run(&mut session, rest),
        "zdb" => zdb::run(&mut session, rest),
        "mount" => mount_helper::run(&mut session, rest),
        "fs" => fs::run(&mut session, &given[given.len() - rest.len()..]),
        "transaction" => transaction::run(&mut session, &given[given.len() - rest.len()..]),
        verb => own::run(&mut session, verb, rest),
    };
    let _ = out.flush();
    ExitCode::from(code)
}
