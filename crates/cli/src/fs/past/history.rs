//! `tarn fs history`

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;

use tarnfs::past::{self, History, Holder, Version};

use super::place::FilePlace;
use super::{Flags, failed, holders_json, moment_of, open, parse, place, say_damage, shown_holders, shown_time};
use crate::fs::tree::Result;
use crate::session::{Outcome, Session, complain, say};
use crate::text::{json, names, units};

pub(in crate::fs) fn run(session: &mut Session<'_>, words: &[OsString]) -> Outcome {
    let (flags, operands) = parse(session, words, "d:Hj")?;
    if operands.is_empty() {
        return Err(session.misuse("missing file"));
    }
    let mut code = 0;
    for (at, operand) in operands.iter().enumerate() {
        let found = place::place(session, operand).and_then(|place| {
            let past = open(session, names::pool_of(&place.dataset), &flags.pool_paths)?;
            let history = past::history(&past, &place.dataset, &place.path).map_err(|error| format!("{}: {}", place.shown(), error.message()))?;
            say_damage(session, "history", &past, history.lost_groups.first().copied());
            if let Some(words) = &history.damage {
                complain!(session, "tarn fs history: {} cannot be read as it is now: {words}", place.shown());
            }
            Ok((place, history))
        });
        let found: Result<(FilePlace, History)> = found;
        match found {
            Ok((place, history)) if flags.json => print_json(session, &place.shown(), &history),
            Ok((place, history)) if flags.scripted => print_scripted(session, &place.shown(), &history),
            Ok((place, history)) => {
                if at > 0 {
                    say!(session, "");
                }
                print(session, &flags, &place, &history);
            }
            Err(words) => {
                failed(session, "history", &words);
                code = 1;
            }
        }
    }
    Ok(code)
}

/// Is the file on this system one that the newest group on disk does not have as it is?
fn is_unwritten(place: &FilePlace, history: &History) -> bool {
    let Some(live) = place.host.as_ref().and_then(|path| path.symlink_metadata().ok()) else { return false };
    let now = history.versions.iter().find(|version| version.holders.contains(&Holder::Now));
    let seconds_and_nanoseconds = |now: &Version| (now.stat.modification_time.seconds, i64::from(now.stat.modification_time.nanoseconds));
    now.is_none_or(|now| seconds_and_nanoseconds(now) < (live.mtime(), live.mtime_nsec()))
}

fn print(session: &mut Session<'_>, flags: &Flags, place: &FilePlace, history: &History) {
    let name = place.shown();
    say!(session, "{name}");
    if history.versions.is_empty() {
        say!(session, "no snapshot and no group that is left has such a file");
    } else {
        say!(session, "{:<19}  {:>6}  {:>8}  HELD BY", "MODIFIED", "SIZE", "TXG");
    }
    for Version { stat, txg, holders, gone_bytes } in &history.versions {
        let gone = match gone_bytes {
            0 => String::new(),
            gone => format!(" ({} of it written over)", units::nice_bytes(*gone)),
        };
        let time = shown_time(session, stat.modification_time.seconds);
        say!(session, "{time:<19}  {:>6}  {txg:>8}  {}{gone}", units::nice_bytes(stat.size), shown_holders(holders));
    }
    let missing = shown_holders(&history.absent);
    if !history.versions.is_empty() && history.absent.iter().any(|holder| !matches!(holder, Holder::Group(_))) {
        say!(session, "no such file in: {missing}");
    }
    if is_unwritten(place, history) {
        say!(session, "What is there now is not yet on disk: 'zpool sync {}' writes it.", names::pool_of(&place.dataset));
    }
    if let Some(oldest) = history.oldest {
        let time = shown_time(session, oldest.seconds.cast_signed());
        say!(session, "Groups go back to txg {} ({time}); what only they have is kept by nothing.", oldest.txg);
    }
    let older = history.versions.iter().find(|version| !version.holders.contains(&Holder::Now));
    if let Some(version) = older {
        say!(session, "To copy one out: tarn fs at{} {} '{name}' DESTINATION", flags.shown_paths(), moment_of(&version.holders));
    }
}

fn print_scripted(session: &mut Session<'_>, name: &str, history: &History) {
    for Version { stat, txg, holders, gone_bytes } in &history.versions {
        let each: Vec<String> = holders.iter().map(|holder| moment_of(std::slice::from_ref(holder))).collect();
        let modified = stat.modification_time;
        say!(session, "{name}\t{}.{:09}\t{}\t{txg}\t{gone_bytes}\t{}", modified.seconds, modified.nanoseconds, stat.size, each.join(","));
    }
}

fn print_json(session: &mut Session<'_>, name: &str, history: &History) {
    let version = |version: &Version| {
        serde_json::json!({
            "modified": version.stat.modification_time.seconds,
            "changed": version.stat.change_time.seconds,
            "size": version.stat.size,
            "inode": version.stat.inode,
            "generation": version.stat.generation,
            "txg": version.txg,
            "gone_bytes": version.gone_bytes,
            "held_by": holders_json(&version.holders),
        })
    };
    let mut object = json::envelope("tarn fs history");
    object.insert("file".into(), name.into());
    object.insert("versions".into(), history.versions.iter().map(version).collect());
    object.insert("absent".into(), holders_json(&history.absent));
    object.insert("lost_txgs".into(), history.lost_groups.clone().into());
    object.insert("oldest_txg".into(), history.oldest.map(|oldest| oldest.txg).into());
    json::print(session, object);
}
