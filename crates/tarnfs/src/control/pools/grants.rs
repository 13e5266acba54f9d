//! Does a pool grant its caller what a request needs?
//!
//! # Theory
//! What a request needs is in [`permission`](crate::control::permission); what is granted is asked of the engine. A verb of the control socket is checked in
//! its turn ([`Pools`](super::Pools)), so that nothing is revoked or renamed in between; a directory that is made in `.zfs/snapshot` has no turn, and
//! is checked by the daemon right before.
//!
//! # Path
//! `Backend::admit`, the daemon's `.zfs/snapshot` → here → `engine::dsl`

use engine::dsl::Dsl;
use engine::error::{ErrorKind, Result};

use super::{Caller, Failure, FailureKind};
use crate::Pool;
use crate::control::Request;
use crate::control::permission::{Asked, Need, Of, SEND_ENCRYPTED, needs};

/// The pool's property that makes grants count.
const DELEGATION: &str = "delegation";

/// The caller lacks a permission.
pub(super) fn denied() -> Failure {
    Failure::new(FailureKind::Permission)
}

/// Refuses a request about one pool that needs more than its caller has.
///
/// # Errors
/// `Permission`; the pool cannot be read.
pub fn check_request(pool: &Pool, caller: &Caller, request: &Request) -> std::result::Result<(), Failure> {
    if caller.is_superuser {
        return Ok(());
    }
    match needs(request) {
        Need::Nothing => Ok(()),
        Need::Superuser => Err(denied()),
        Need::SuperuserOr(words) => Err(Failure::with(FailureKind::Permission, words)),
        Need::All(all) => all.iter().try_for_each(|asked| check(pool, caller, asked)),
    }
}

/// Refuses what the caller is not granted.
pub(super) fn check(pool: &Pool, caller: &Caller, asked: &Asked) -> std::result::Result<(), Failure> {
    if caller.is_superuser {
        return Ok(());
    }
    check_delegation(pool)?;
    if is_granted(pool, caller, asked)? { Ok(()) } else { Err(denied()) }
}

fn is_granted(pool: &Pool, caller: &Caller, Asked { permission, of }: &Asked) -> std::result::Result<bool, Failure> {
    let (dsl, who) = (&pool.engine().dsl, &caller.identity);
    let any = |granted: &dyn Fn(&str) -> Result<bool>| {
        permission.split('|').try_fold(false, |so_far, permission| Ok::<_, crate::Error>(so_far || granted(permission)?))
    };
    let granted = match of {
        Of::Dataset(name) => any(&|permission| Ok((permission != SEND_ENCRYPTED || is_encrypted(dsl, name)) && dsl.is_granted(who, name, permission)?)),
        // What a stream is received into may be there: then what creators get does not count.
        Of::Target(name) | Of::New(name) if dsl.open_dataset(name).is_ok() => any(&|permission| dsl.is_granted(who, name, permission)),
        Of::New(name) => {
            let (nearest, _) = nearest_above(pool, name)?;
            any(&|permission| dsl.is_granted_below(who, &nearest, permission))
        }
        Of::Origin(name) => match dsl.open_dataset(name).and_then(|clone| clone.origin()) {
            Ok(Some(origin)) => any(&|permission| dsl.is_granted(who, &origin.dir.full_name(), permission)),
            // That it is no clone is said by the verb.
            Ok(None) => Ok(true),
            Err(error) => Err(error),
        },
        Of::Parent(name) | Of::Target(name) => {
            let (nearest, is_parent) = nearest_above(pool, name)?;
            // What is made on the way is a parent, too.
            any(&|permission| Ok(dsl.is_granted(who, &nearest, permission)? && (is_parent || dsl.is_granted_below(who, &nearest, permission)?)))
        }
    };
    granted.map_err(|error| Failure::about_dataset(&error))
}

fn is_encrypted(dsl: &Dsl, name: &str) -> bool {
    dsl.open_dataset(name).is_ok_and(|dataset| dataset.dir.crypto_key != 0)
}

/// The nearest file system above a name that is there, and whether that is its parent.
fn nearest_above(pool: &Pool, name: &str) -> std::result::Result<(String, bool), Failure> {
    let mut at = name;
    let mut is_parent = true;
    while let Some(cut) = at.rfind('@').or_else(|| at.rfind('/')) {
        at = &at[..cut];
        match pool.engine().dsl.open_dataset(at) {
            Ok(_) => return Ok((at.to_owned(), is_parent)),
            Err(error) if error.kind() == ErrorKind::NotFound => is_parent = false,
            Err(error) => return Err(Failure::about_dataset(&error)),
        }
    }
    Err(Failure::new(FailureKind::NoSuchDataset))
}

/// Refuses everything where grants do not count.
fn check_delegation(pool: &Pool) -> std::result::Result<(), Failure> {
    let value = pool.engine().stored_property(DELEGATION).map_err(|error| Failure::about_pool(&error))?;
    match value.map_or(1, |value| value.number()) {
        0 => Err(Failure::with(FailureKind::Permission, "delegated administration is disabled on pool")),
        _ => Ok(()),
    }
}
