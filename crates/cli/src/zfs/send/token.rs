//! `zfs send -t`: going on where a receive broke off.

use ondisk::nvlist::{NvList, Value};
use tarnfs::control::{DatasetKinds, DatasetList, Failure, FailureKind, Request, Wanted};

use super::one::{estimate, refused};
use super::{Flags, number, said};
use crate::session::{Outcome, Session, Stop};
use crate::stream::{decode_token, print_list};

pub(super) fn resume(session: &mut Session<'_>, flags: &Flags, token: &str) -> Outcome {
    let action = "cannot resume send";
    let corrupt = |words: &str| Failure::with(FailureKind::Other, words.to_owned());
    let list = decode_token(token).map_err(|why| session.failed(action, &corrupt(&format!("resume token is corrupt ({why})"))))?;
    if flags.verbosity != 0 {
        let mut words = Vec::new();
        let _ = print_list(&mut words, &list, 0);
        said::print(session, flags, format_args!("resume token contents:\n{}", String::from_utf8_lossy(&words)));
    }
    let (Some(to), Some(object), Some(offset), Some(bytes), Some(guid)) =
        (list.str("toname"), list.u64("object"), list.u64("offset"), list.u64("bytes"), list.u64("toguid"))
    else {
        return Err(session.failed(action, &corrupt("resume token is corrupt")));
    };
    let Some(name) = by_guid(session, to, guid, false)? else {
        return Err(session.failed(action, &corrupt(&format!("'{to}' used in the initial send no longer exists"))));
    };
    let from = match list.u64("fromguid").filter(|guid| *guid != 0) {
        None => None,
        Some(guid) => match by_guid(session, to, guid, true)? {
            Some(from) => Some(from),
            None => return Err(session.failed(action, &corrupt(&format!("incremental source {guid:#x} no longer exists")))),
        },
    };
    let mut flags = flags.clone();
    flags.large_blocks |= has(&list, "largeblockok");
    flags.embedded |= has(&list, "embedok");
    flags.compressed |= has(&list, "compressok");
    flags.raw |= has(&list, "rawok");
    let mut send = flags.request(&name, from.clone());
    send.resume = Some((object, offset));
    let mut size = 0;
    if flags.verbosity != 0 || flags.title {
        send.resumed_bytes = bytes;
        size = estimate(session, &flags, action, &send)?;
    }
    if flags.dry {
        return Ok(0);
    }
    let sending = format!("warning: cannot send '{name}'");
    super::stream(session, &flags, send, size).map_err(|failure| refused(session, &sending, &name, from.as_deref(), &failure))?;
    Ok(0)
}

fn has(list: &NvList, name: &str) -> bool {
    matches!(list.get(name), Some(Value::Boolean))
}

/// The snapshot or bookmark with a guid: of the dataset that the token names, or of any in its pool.
fn by_guid(session: &mut Session<'_>, name: &str, guid: u64, or_bookmark: bool) -> Result<Option<String>, Stop> {
    let kinds = DatasetKinds { filesystem: false, volume: false, snapshot: true, bookmark: or_bookmark };
    let head = name.split('@').next().unwrap_or(name);
    let pool = head.split('/').next().unwrap_or(head);
    for (root, depth) in [(head, Some(1)), (pool, None)] {
        let properties = Wanted::Only(vec!["guid".to_owned()]);
        let list = DatasetList { root: Some(root.to_owned()), depth, kinds, snapshots_where_listed: false, properties, received: false };
        let Ok(found) = session.datasets(Request::DatasetList(list)) else { continue };
        if let Some(entry) = found.entries.iter().find(|entry| number(entry, "guid") == guid) {
            return Ok(Some(entry.name.clone()));
        }
    }
    Ok(None)
}
