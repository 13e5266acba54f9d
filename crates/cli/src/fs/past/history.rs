//! `tarn fs history`

use std::ffi::OsString;

use tarnfs::past::{self, History, Holder, Version};

use super::{failed, holders_json, moment_of, open, parse, place, shown_holders, shown_time};
use crate::fs::tree::Result;
use crate::session::{Outcome, Session, say};
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
            Ok((place.shown(), history))
        });
        let found: Result<(String, History)> = found;
        match found {
            Ok((name, history)) if flags.json => print_json(session, &name, &history),
            Ok((name, history)) if flags.scripted => print_scripted(session, &name, &history),
            Ok((name, history)) => {
                if at > 0 {
                    say!(session, "");
                }
                print(session, &name, &history);
            }
            Err(words) => {
                failed(session, "history", &words);
                code = 1;
            }
        }
    }
    Ok(code)
}

fn print(session: &mut Session<'_>, name: &str, history: &History) {
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
    if let Some(oldest) = history.oldest {
        let time = shown_time(session, oldest.seconds.cast_signed());
        say!(session, "Groups go back to txg {} ({time}); what only they have is kept by nothing.", oldest.txg);
    }
    let older = history.versions.iter().find(|version| !version.holders.contains(&Holder::Now));
    if let Some(version) = older {
        say!(session, "To copy one out: tarn fs at {} '{name}' DESTINATION", moment_of(&version.holders));
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
