//! What a caller who is not the superuser may have done.
//!
//! # Theory
//! What a request needs is in [`permission`](crate::control::permission); whether the pool grants it is asked of the engine. Both happen in the
//! turn of the request, so that nothing is revoked or renamed in between.

use engine::dsl::prop_table;
use engine::error::ErrorKind;

use crate::control::permission::{Asked, Need, Of, needs};
use crate::control::pools::{Failure, FailureKind, Imported, Pools};
use crate::control::Request;

/// The pool's property that makes grants count.
const DELEGATION: &str = "delegation";

pub(super) fn denied() -> Failure {
    Failure::new(FailureKind::Permission)
}

impl Pools {
    /// Refuses a request that needs more than its caller has.
    pub(super) fn check_admitted(&self, request: &Request) -> Result<(), Failure> {
        if self.caller.is_superuser {
            return Ok(());
        }
        match needs(request) {
            Need::Nothing => Ok(()),
            Need::Superuser => Err(denied()),
            Need::SuperuserOr(words) => Err(Failure::with(FailureKind::Permission, words)),
            Need::All(all) => {
                all.iter().try_for_each(|asked| self.check_granted(asked))?;
                self.check_mounts_stay(request)
            }
        }
    }

    /// Refuses what the caller is not granted.
    pub(super) fn check_granted(&self, Asked { permission, of }: &Asked) -> Result<(), Failure> {
        if self.caller.is_superuser {
            return Ok(());
        }
        let imported = self.pool_of(of.name())?;
        check_delegation(imported)?;
        let (dsl, who) = (&imported.pool.engine().dsl, &self.caller.identity);
        let any = |granted: &dyn Fn(&str) -> engine::error::Result<bool>| {
            permission.split('|').try_fold(false, |so_far, permission| Ok::<_, crate::Error>(so_far || granted(permission)?))
        };
        let granted = match of {
            Of::Dataset(name) => any(&|permission| dsl.is_granted(who, name, permission)),
            // A stream may be received into one that is there.
            Of::New(name) if dsl.open_dataset(name).is_ok() => any(&|permission| dsl.is_granted(who, name, permission)),
            Of::New(name) => {
                let (nearest, _) = self.nearest_above(name)?;
                any(&|permission| dsl.is_granted_below(who, &nearest, permission))
            }
            Of::Origin(name) => match dsl.open_dataset(name).and_then(|clone| clone.origin()) {
                Ok(Some(origin)) => any(&|permission| dsl.is_granted(who, &origin.dir.full_name(), permission)),
                // That it is no clone is said by the verb.
                Ok(None) => Ok(true),
                Err(error) => Err(error),
            },
            Of::Parent(name) => {
                let (nearest, is_parent) = self.nearest_above(name)?;
                // What is made on the way is a parent, too.
                any(&|permission| Ok(dsl.is_granted(who, &nearest, permission)? && (is_parent || dsl.is_granted_below(who, &nearest, permission)?)))
            }
        };
        if granted.map_err(|error| Failure::about_dataset(&error))? { Ok(()) } else { Err(denied()) }
    }

    /// The nearest file system above a name that is there, and whether that is its parent.
    fn nearest_above(&self, name: &str) -> Result<(String, bool), Failure> {
        let dsl = &self.pool_of(name)?.pool.engine().dsl;
        let mut at = name;
        let mut is_parent = true;
        while let Some(cut) = at.rfind('@').or_else(|| at.rfind('/')) {
            at = &at[..cut];
            match dsl.open_dataset(at) {
                Ok(_) => return Ok((at.to_owned(), is_parent)),
                Err(error) if error.kind() == ErrorKind::NotFound => is_parent = false,
                Err(error) => return Err(Failure::about_dataset(&error)),
            }
        }
        Err(Failure::new(FailureKind::NoSuchDataset))
    }

    /// Refuses what would unmount something: Linux lets only the superuser do that.
    fn check_mounts_stay(&self, request: &Request) -> Result<(), Failure> {
        let moves = |property: &str| prop_table::find(property).is_some_and(|property| matches!(property.name, "mountpoint" | "canmount"));
        let root = match request {
            Request::DatasetDestroy(destroy) => destroy.names.first().filter(|name| !name.contains(['@', '#'])),
            Request::DatasetRename(rename) if !rename.no_remount => Some(&rename.from).filter(|name| !name.contains('@')),
            Request::DatasetSet(set) if !set.no_remount => Some(&set.name).filter(|_| set.settings.iter().any(|setting| moves(&setting.name))),
            Request::DatasetInherit(inherit) => Some(&inherit.name).filter(|_| moves(&inherit.property)),
            _ => None,
        };
        let Some(root) = root else { return Ok(()) };
        let is_below = |dataset: &str| dataset.strip_prefix(root.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        match self.mounter.list().into_iter().find(|mount| is_below(&mount.dataset)) {
            Some(mount) => Err(Failure::with(FailureKind::Permission, format!("cannot unmount '{}': permission denied", mount.mountpoint))),
            None => Ok(()),
        }
    }
}

/// Refuses everything where grants do not count.
fn check_delegation(imported: &Imported) -> Result<(), Failure> {
    let value = imported.pool.engine().stored_property(DELEGATION).map_err(|error| Failure::about_pool(&error))?;
    match value.map_or(1, |value| value.number()) {
        0 => Err(Failure::with(FailureKind::Permission, "delegated administration is disabled on pool")),
        _ => Ok(()),
    }
}
