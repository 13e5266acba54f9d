//! What a caller who is not the superuser may have done.
//!
//! # Theory
//! Whether the pool grants what a request needs is asked ([`grants`]) in the turn of the request, so that nothing is revoked or renamed in between.

use engine::dsl::prop_table;

use crate::control::pools::grants::{self, denied};
use crate::control::permission::{Asked, Need, needs};
use crate::control::pools::{Failure, FailureKind, Pools};
use crate::control::Request;

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
    pub(super) fn check_granted(&self, asked: &Asked) -> Result<(), Failure> {
        if self.caller.is_superuser {
            return Ok(());
        }
        grants::check(&self.pool_of(asked.of.name())?.pool, &self.caller, asked)
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
