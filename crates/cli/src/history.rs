//! Records of a pool's history as text, for `zpool history` and `zdb -h`.

use std::fmt::Write;

use jiff::tz::TimeZone;
use ondisk::nvlist::{NvList, Value};
use tarnfs::control::{HistoryRecord, HistoryWhat};

use crate::text::units::history_time;
use crate::zdb::nvlist;

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

/// One record; that of a call has several lines and ends with the last one's end. `timed`: with how long it took.
pub(crate) fn text(record: &HistoryRecord, zone: &TimeZone, timed: bool) -> String {
    let mut time = record.time.map(|time| history_time(time, zone)).unwrap_or_default();
    if let Some(elapsed) = record.elapsed_ns.filter(|_| timed) {
        let _ = write!(time, " ({}ms)", elapsed / 1_000_000);
    }
    match &record.what {
        HistoryWhat::Command(words) => format!("{time} {words}"),
        HistoryWhat::Event { txg, name, dataset, details } => {
            let dataset = dataset.as_ref().map(|(name, object)| format!(" {name} ({object})")).unwrap_or_default();
            format!("{time} [txg:{txg}] {name}{dataset} {details}")
        }
        HistoryWhat::OldEvent { txg, number, details } => match usize::try_from(*number).ok().and_then(|number| OLD_EVENTS.get(number)) {
            Some(name) => format!("{time} [internal {name} txg:{txg}] {details}"),
            None => format!("{time} unrecognized record: event {number} txg:{txg} {details}"),
        },
        HistoryWhat::Call { name, record } => format!("{time} ioctl {name}\n{}", call(record)),
        HistoryWhat::Unknown(record) => {
            let list = NvList::decode(record).map(|list| nvlist::text(&list, 4)).unwrap_or_default();
            format!("{time} unrecognized record:\n{list}")
        }
    }
}

/// The input and output of a call.
fn call(record: &[u8]) -> String {
    let Ok(record) = NvList::decode(record) else { return String::new() };
    let mut text = String::new();
    for (key, title) in [("in_nvl", "input"), ("out_nvl", "output")] {
        if let Some(Value::List(list)) = record.get(key) {
            let _ = write!(text, "    {title}:\n{}", nvlist::text(list, 8));
        }
    }
    if let Some(Value::Int64(size)) = record.get("out_size") {
        let _ = writeln!(text, "    output nvlist omitted; original size: {}KB", size / 1024);
    }
    if let Some(Value::Int64(errno)) = record.get("errno") {
        let _ = writeln!(text, "    errno: {errno}");
    }
    text
}
