//! `tarn`: zpool, zfs, zdb and verbs of its own.
//!
//! # Theory
//!
//! One program with several names. Called `zpool`, `zfs` or `zdb`, through a link, it is that command; called anything
//! else, its first word chooses. A command builds requests ([`session`]), somebody answers ([`remote`]), and what is
//! printed is OpenZFS's to the byte, because scripts read it.

mod arcstat;
mod command;
mod completion;
mod fs;
mod history;
mod mount_helper;
mod own;
mod properties;
mod remote;
mod session;
mod stream;
#[cfg(test)]
mod tests;
mod text;
mod transaction;
mod try_it;
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

/// The words of the command line as text, which names of pools, datasets and properties are: for a command that takes them so, others are refused
/// ([`command`]). What is a file's, or another program's, is taken as it was given.
fn texts(given: &[OsString]) -> Vec<String> {
    given.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

fn main() -> ExitCode {
    let mut given: Vec<OsString> = std::env::args_os().collect();
    let called = given.first().map(Path::new).and_then(Path::file_name).and_then(|name| name.to_str()).unwrap_or("tarn").to_owned();
    // A link's name is the first word.
    let linked = match called.as_str() {
        "zpool" | "zfs" | "zdb" => Some(called.as_str()),
        name if mount_helper::NAMES.contains(&name) => Some("mount"),
        _ => None,
    };
    given.splice(..given.len().min(1), linked.map(OsString::from));
    if given.is_empty() {
        given.push("help".into());
    }
    let words = texts(&given);
    if words[0] == own::WITNESS {
        return own::witness(&words[1..]);
    }
    if words[0] == own::ERRAND {
        return fuse::errand::run(&given[1..]);
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
        history: History::of_words(&words[0], &words[1..]),
        hints: Vec::new(),
    };
    let code = own::PROGRAM.run(&mut session, &given);
    let _ = out.flush();
    ExitCode::from(code)
}
