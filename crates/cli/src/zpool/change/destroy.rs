//! `zpool destroy`

use tarnfs::control::{FailureKind, PoolDestroy, PoolSelect, Request, Wanted};

use crate::session::{Outcome, Session, complain};
use crate::text::names;
use crate::zpool::spec::pools;

pub(in crate::zpool) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let (force, name) = pools::forced_operand(session, words, "missing pool argument")?;
    let select = PoolSelect { name: Some(name.clone()), properties: Wanted::Only(Vec::new()) };
    let opened = names::check_pool(&name, false).and_then(|()| session.pools(Request::PoolGet(select)));
    if let Err(failure) = opened {
        let stop = session.failed(format_args!("cannot open '{name}'"), &failure);
        if name.contains('/') {
            complain!(session, "use 'zfs destroy' to destroy a dataset");
        } else if failure.kind == FailureKind::NoSuchPool {
            pools::hint(session, &name);
        }
        return Err(stop);
    }
    match session.perform(Request::PoolDestroy(PoolDestroy { name: name.clone(), force })) {
        Ok(()) => Ok(0),
        Err(failure) if failure.kind == FailureKind::UnmountFailed => {
            session.failed("cannot unmount", &failure);
            complain!(session, "could not destroy '{name}': could not unmount datasets");
            Ok(1)
        }
        Err(failure) => Err(session.failed(format_args!("cannot destroy '{name}'"), &failure)),
    }
}
