//! `zpool sync`

use tarnfs::control::{PoolSelect, Request, Wanted};

use crate::session::{Outcome, Session};
use crate::text::getopt::Options;
use crate::zpool::spec::pools;

pub(in crate::zpool) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let mut options = Options::new(words, "f", &[]);
    for option in options.by_ref() {
        option.map_err(|wrong| session.misuse(wrong))?;
    }
    let (statuses, mut code) = pools::statuses(session, &options.operands());
    for status in statuses {
        let select = PoolSelect { name: Some(status.name.clone()), properties: Wanted::Only(Vec::new()) };
        if let Err(failure) = session.perform(Request::PoolSync(select)) {
            session.failed(format_args!("sync '{}' failed", status.name), &failure);
            code = 1;
        }
    }
    Ok(code)
}
