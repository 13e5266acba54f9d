//! `zpool checkpoint`

use tarnfs::control::{DeviceVerb, PoolDevice, Request};

use super::wait::wait_for;
use crate::session::{Outcome, Session, complain};
use crate::text::getopt::Options;
use crate::zpool::spec::pools;

pub(in crate::zpool) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let mut options = Options::new(words, "dw", &[("discard", 'd'), ("wait", 'w')]);
    let (mut discard, mut wait) = (false, false);
    for option in options.by_ref() {
        match option.map_err(|wrong| session.misuse(wrong))?.0 {
            'd' => discard = true,
            _ => wait = true,
        }
    }
    if wait && !discard {
        return Err(session.misuse("--wait only valid when --discard also specified"));
    }
    let operands = options.operands();
    let [name] = operands.as_slice() else {
        return Err(session.misuse(if operands.is_empty() { "missing pool argument" } else { "too many arguments" }));
    };
    let (found, code) = pools::statuses(session, std::slice::from_ref(name));
    if code != 0 || found.is_empty() {
        if name.contains('/') {
            let instead = "To save the state of a dataset from a specific point in time please use 'zfs snapshot'";
            complain!(session, "'zpool checkpoint' doesn't work on datasets. {instead}");
        }
        return Ok(1);
    }
    let action = if discard { format!("cannot discard checkpoint in '{name}'") } else { format!("cannot checkpoint '{name}'") };
    let request = PoolDevice { name: name.clone(), verb: DeviceVerb::Checkpoint { discard } };
    session.perform(Request::PoolDevice(request)).map_err(|failure| session.failed(action, &failure))?;
    if wait {
        wait_for(session, name, &["discard"])?;
    }
    Ok(0)
}
