//! `zpool export`

use tarnfs::control::{PoolExport, Request};

use crate::session::{Outcome, Session};
use crate::text::getopt::Options;
use crate::zpool::spec::pools;

pub(in crate::zpool) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let mut options = Options::new(words, "afF", &[]);
    let (mut all, mut force, mut hard_force) = (false, false, false);
    for option in options.by_ref() {
        match option.map_err(|wrong| session.misuse(wrong))?.0 {
            'a' => all = true,
            'f' => force = true,
            _ => hard_force = true,
        }
    }
    let operands = options.operands();
    if all && !operands.is_empty() {
        return Err(session.misuse("too many arguments"));
    }
    if !all && operands.is_empty() {
        return Err(session.misuse("missing pool argument"));
    }
    let (statuses, mut code) = pools::statuses(session, &operands);
    for status in statuses {
        let request = PoolExport { name: status.name.clone(), force, hard_force };
        if let Err(failure) = session.perform(Request::PoolExport(request)) {
            session.failed(format_args!("cannot export '{}'", status.name), &failure);
            code = 1;
        }
    }
    Ok(code)
}
