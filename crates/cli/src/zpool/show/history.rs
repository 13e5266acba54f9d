//! `zpool history`

use tarnfs::control::{HistoryRecord, HistoryWhat, PoolSelect, Request, Wanted};

use crate::history;
use crate::session::{Outcome, Session, complain, say};
use crate::text::getopt::Options;
use crate::zpool::spec::pools;

pub(in crate::zpool) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let mut options = Options::new(words, "li", &[]);
    let (mut long, mut internal) = (false, false);
    for option in options.by_ref() {
        match option.map_err(|wrong| session.misuse(wrong))?.0 {
            'l' => long = true,
            _ => internal = true,
        }
    }
    let operands = options.operands();
    let (statuses, mut code) = pools::statuses(session, &operands);
    if operands.is_empty() && statuses.is_empty() {
        complain!(session, "no pools available");
        return Ok(code);
    }
    for status in statuses {
        let select = PoolSelect { name: Some(status.name.clone()), properties: Wanted::Only(Vec::new()) };
        match session.histories(Request::PoolHistory(select)) {
            Ok(histories) => {
                for history in histories {
                    say!(session, "History for '{}':", history.name);
                    history.records.iter().for_each(|record| print(session, record, long, internal));
                    say!(session, "");
                }
            }
            Err(failure) => {
                session.failed(format_args!("cannot get history for '{}'", status.name), &failure);
                code = 1;
            }
        }
    }
    Ok(code)
}

fn print(session: &mut Session<'_>, record: &HistoryRecord, long: bool, internal: bool) {
    if !internal && !matches!(record.what, HistoryWhat::Command(_)) {
        return;
    }
    let mut text = history::text(record, &session.zone, true);
    if long {
        text.push_str(" [");
        if let Some(user) = record.user {
            let name = crate::text::owners::name_of_user(user).map(|name| format!("({name}) ")).unwrap_or_default();
            text.push_str(&format!("user {user} {name}"));
        }
        text.extend(record.host.iter().map(|host| format!("on {host}")));
        text.extend(record.zone.iter().map(|zone| format!(":{zone}")));
        text.push(']');
    }
    say!(session, "{text}");
}
