//! `zfs holds`

use jiff::Timestamp;
use tarnfs::control::{DatasetKinds, Hold, Request, SnapshotHolds, Wanted};

use crate::session::{Outcome, Session, Stop, complain, say};
use crate::text::getopt::Options;
use crate::zfs::datasets::{self, Query};

const SNAPSHOT: DatasetKinds = DatasetKinds { filesystem: false, volume: false, snapshot: true, bookmark: false };

pub(in crate::zfs) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let mut options = Options::new(words, "rHp", &[]);
    let (mut recurse, mut scripted, mut exact) = (false, false, false);
    for option in options.by_ref() {
        match option.map_err(|wrong| session.misuse(wrong))?.0 {
            'r' => recurse = true,
            'H' => scripted = true,
            _ => exact = true,
        }
    }
    let operands = options.operands();
    if operands.is_empty() {
        return Err(session.misuse("missing snapshot argument"));
    }
    let mut rows = Vec::new();
    let (mut code, mut is_any) = (0, false);
    for operand in &operands {
        let Some((head, snapshot)) = operand.split_once('@') else {
            complain!(session, "'{operand}' is not a snapshot");
            code = 1;
            continue;
        };
        let found = match recurse {
            true => names(session, head, snapshot, true),
            false => datasets::open(session, operand, SNAPSHOT, &[]).map(|snapshot| vec![snapshot.name]),
        };
        // What is wrong with one operand does not hide the holds of the others.
        let Ok(found) = found else {
            code = 1;
            continue;
        };
        is_any |= !found.is_empty();
        for name in found {
            let holds = session.holds(Request::SnapshotHolds(SnapshotHolds { name: name.clone() }));
            match holds {
                Ok(holds) => rows.extend(holds.into_iter().map(|hold| row(session, &name, &hold, exact))),
                Err(failure) => {
                    session.failed(format_args!("cannot retrieve holds of '{name}'"), &failure);
                    code = 1;
                }
            }
        }
    }
    print(session, &rows, scripted);
    if !is_any {
        complain!(session, "no datasets available");
    }
    Ok(code)
}

/// The snapshots of that name of a dataset, and of those below it.
pub(in crate::zfs) fn names(session: &mut Session<'_>, head: &str, snapshot: &str, recurse: bool) -> Result<Vec<String>, Stop> {
    if !recurse {
        return Ok(vec![format!("{head}@{snapshot}")]);
    }
    let mut query = Query::new(SNAPSHOT, Wanted::Only(Vec::new()));
    query.recurse = true;
    let (entries, code) = datasets::gather(session, &[head.to_owned()], &query)?;
    if code != 0 {
        return Err(Stop::Code(code));
    }
    let ending = format!("@{snapshot}");
    Ok(entries.into_iter().map(|entry| entry.name).filter(|name| name.ends_with(&ending)).collect())
}

fn row(session: &Session<'_>, name: &str, hold: &Hold, exact: bool) -> [String; 3] {
    let since = i64::try_from(hold.since).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    let words = since.map(|since| since.to_zoned(session.zone.clone()).strftime("%a %b %e %H:%M %Y").to_string());
    let time = words.filter(|_| !exact).unwrap_or_else(|| hold.since.to_string());
    [name.to_owned(), hold.tag.clone(), time]
}

fn print(session: &mut Session<'_>, rows: &[[String; 3]], scripted: bool) {
    if scripted {
        for [name, tag, time] in rows {
            say!(session, "{name}\t{tag}\t{time}");
        }
        return;
    }
    let head = ["NAME", "TAG", "TIMESTAMP"].map(str::to_owned);
    let width = |at: usize| rows.iter().chain([&head]).map(|row| row[at].len()).max().unwrap_or(0);
    let (names, tags) = (width(0), width(1));
    for [name, tag, time] in [&head].into_iter().chain(rows) {
        say!(session, "{name:<names$}  {tag:<tags$}  {time}");
    }
}
