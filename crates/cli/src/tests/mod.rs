//! Commands run against a fake backend; what they print is compared with what OpenZFS prints.
//!
//! The files of `golden/` are recorded from OpenZFS 2.4: `zpool status -vj --json-int`, `zpool get -p all` and
//! `zfs get -p all` of real pools.

mod fake;
mod golden;
mod advice;
mod random;
mod real;
mod upkeep;
mod zfs;
mod zpool;

use jiff::tz::TimeZone;
use tarnfs::control::{Reply, Request, execute};

use crate::session::{Control, Session};
use fake::FakeBackend;

impl Control for FakeBackend {
    fn call(&mut self, request: Request) -> Reply {
        self.requests.push(request.clone());
        execute(self, request)
    }
}

/// What a command left behind.
struct Ran {
    code: u8,
    out: String,
    err: String,
}

/// Runs a command line: `zpool list -H`.
fn run(backend: &mut dyn Control, line: &[&str]) -> Ran {
    let words: Vec<std::ffi::OsString> = line[1..].iter().map(|word| (*word).into()).collect();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut session = Session { control: backend, out: &mut out, err: &mut err, now: 1_795_180_000, zone: TimeZone::UTC, history: crate::session::History::default(), hints: Vec::new() };
    let code = match line[0] {
        "zpool" => crate::zpool::PROGRAM.run(&mut session, &words),
        "zfs" => crate::zfs::PROGRAM.run(&mut session, &words),
        other => panic!("no program {other}"),
    };
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ran { code, out: text(out), err: text(err) }
}

/// Runs a command line without quotes.
fn sh(backend: &mut dyn Control, line: &str) -> Ran {
    let words: Vec<&str> = line.split_whitespace().collect();
    run(backend, &words)
}

/// The command succeeds, prints this, and complains of nothing.
#[track_caller]
fn prints(backend: &mut FakeBackend, line: &str, out: &str) {
    let ran = sh(backend, line);
    assert_eq!(ran.err, "", "{line}");
    assert_eq!(ran.out, out, "{line}");
    assert_eq!(ran.code, 0, "{line}");
}

/// The command fails with this code, complains like this, and prints nothing.
#[track_caller]
fn complains(backend: &mut FakeBackend, line: &str, code: u8, err: &str) {
    let ran = sh(backend, line);
    assert_eq!(ran.err, err, "{line}");
    assert_eq!(ran.out, "", "{line}");
    assert_eq!(ran.code, code, "{line}");
}
