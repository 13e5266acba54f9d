//! `zpool history`

use tarnfs::control::{HistoryRecord, HistoryWhat, PoolSelect, Request, Wanted};

use super::pools;
use crate::getopt::Options;
use crate::session::{Outcome, Session, complain, say};
use crate::units::history_time;

/// Events of the time when they had numbers.
#[rustfmt::skip]
const OLD_EVENTS: [&str; 41] = [
    "invalid event", "pool create", "vdev add", "pool remove", "pool destroy", "pool export", "pool import", "vdev attach",
    "vdev replace", "vdev detach", "vdev online", "vdev offline", "vdev upgrade", "pool clear", "pool scrub", "pool property set",
    "create", "clone", "destroy", "destroy_begin_sync", "inherit", "property set", "quota set", "permission update",
    "permission remove", "permission who remove", "promote", "receive", "rename", "reservation set", "replay_inc_sync",
    "replay_full_sync", "rollback", "snapshot", "filesystem version upgrade", "refquota set", "refreservation set",
    "pool scrub done", "user hold", "user release", "pool split",
];

pub(super) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
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

/// Users by their numbers, as the system knows them.
fn user_name(user: u64) -> Option<String> {
    crate::owners::name_of_user(user)
}

fn print(session: &mut Session<'_>, record: &HistoryRecord, long: bool, internal: bool) {
    if !internal && !matches!(record.what, HistoryWhat::Command(_)) {
        return;
    }
    let time = record.time.map(|time| history_time(time, &session.zone)).unwrap_or_default();
    let mut line = match &record.what {
        HistoryWhat::Command(words) => format!("{time} {words}"),
        HistoryWhat::Event { txg, name, dataset, details } => {
            let dataset = dataset.as_ref().map(|(name, object)| format!(" {name} ({object})")).unwrap_or_default();
            format!("{time} [txg:{txg}] {name}{dataset} {details}")
        }
        HistoryWhat::OldEvent { txg, number, details } => match usize::try_from(*number).ok().and_then(|number| OLD_EVENTS.get(number)) {
            Some(name) => format!("{time} [internal {name} txg:{txg}] {details}"),
            None => format!("{time} unrecognized record: event {number} txg:{txg} {details}"),
        },
        HistoryWhat::Call(name) => format!("{time} ioctl {name}"),
        HistoryWhat::Unknown => format!("{time} unrecognized record"),
    };
    if long {
        line.push_str(" [");
        if let Some(user) = record.user {
            let name = user_name(user).map(|name| format!("({name}) ")).unwrap_or_default();
            line.push_str(&format!("user {user} {name}"));
        }
        line.extend(record.host.iter().map(|host| format!("on {host}")));
        line.extend(record.zone.iter().map(|zone| format!(":{zone}")));
        line.push(']');
    }
    say!(session, "{line}");
}
