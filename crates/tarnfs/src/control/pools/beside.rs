//! Requests that are answered beside another one.
//!
//! # Theory
//! Administrative verbs take turns. One of them may take long: an export waits for what the kernel still has, and that waits for the
//! devices. If a pool stops meanwhile it waits for `zpool clear`, which must not wait for its turn then, nor must a caller that
//! wants to know what is going on, in this pool or another. Nor is a caller that only looks to wait: to find the files of ten thousand damaged
//! blocks takes long. So the table of pools can be seen without a turn, as it was when the
//! last pool came or went, and these requests need no more: the engine has locks of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;

use super::zpool::maintenance::{self, scrub};
use super::zpool::devices::vdev_properties;
use super::zpool::{cache, error_log, inspect, pool_properties};
use super::{Failure, FailureKind, Imported};
use crate::control::{DAMAGED_FILES, DEDUP_TABLES, DedupStatus, Mount, PoolSelect, PoolStatus, Reply, Request, VdevAux, VdevState, Wanted};

/// The pools by name.
pub(super) type Table = BTreeMap<String, Arc<Imported>>;

/// The pools, for requests that do not wait for their turn, and for the agent.
#[derive(Clone, Default)]
pub struct Beside {
    table: Arc<Mutex<Table>>,
    /// Hot spares that are on their way in. guarded by: itself
    reserved: Arc<Mutex<BTreeSet<u64>>>,
}

impl Beside {
    /// The table has changed.
    pub(super) fn show(&self, table: &Table) {
        self.table.lock().clone_from(table);
    }

    pub(super) fn table(&self) -> Table {
        self.table.lock().clone()
    }

    /// Hot spares that are on their way in somewhere.
    pub(super) fn reserved(&self) -> &Arc<Mutex<BTreeSet<u64>>> {
        &self.reserved
    }

    /// The answer to a request that needs no turn; `None`: it needs one. `mounts`: what is mounted, as far as is known.
    #[must_use]
    pub fn answer(&self, request: &Request, mounts: impl FnOnce() -> Vec<Mount>) -> Option<Reply> {
        let table = || self.table();
        let answer = match request {
            Request::PoolStatus(select) => statuses(&table(), select, mounts).map(Reply::Status),
            Request::PoolHistory(select) => maintenance::histories(&table(), select).map(Reply::History),
            Request::PoolList(select) | Request::PoolGet(select) => pool_properties::entries(&table(), select).map(Reply::Pools),
            Request::PoolCache(select) => cache::counters(&table(), select.name.as_deref()).map(Reply::Counters),
            Request::VdevGet(select) => vdev_properties::stored(&table(), select.name.as_deref()).map(Reply::VdevProperties),
            Request::PoolClear(clear) => maintenance::clear(&table(), clear).map(|()| Reply::Done),
            Request::PoolScrub(scrub) => scrub::scrub(&table(), scrub).map(|()| Reply::Done),
            // It needs its turn; but the request that has it may be waiting for this very pool, and waits no longer.
            Request::PoolExport(export) if export.hard_force => {
                if let Some(imported) = table().get(&export.name) {
                    super::zpool::export::give_up(imported.pool.engine());
                }
                return None;
            }
            _ => return None,
        };
        Some(answer.unwrap_or_else(Reply::Failed))
    }
}

/// One pool, or all.
pub(super) fn select<'a>(table: &'a Table, name: Option<&str>) -> Result<Vec<(&'a String, &'a Imported)>, Failure> {
    match name {
        None => Ok(table.iter().map(|(name, imported)| (name, &**imported)).collect()),
        Some(name) => match table.get_key_value(name) {
            Some((name, imported)) => Ok(vec![(name, imported)]),
            None => Err(Failure::new(FailureKind::NoSuchPool)),
        },
    }
}

/// What `zpool status` shows; damaged files, if they are asked for, are called by where they are mounted.
pub(super) fn statuses(table: &Table, select: &PoolSelect, mounts: impl FnOnce() -> Vec<Mount>) -> Result<Vec<PoolStatus>, Failure> {
    let pools = self::select(table, select.name.as_deref())?;
    let asks_for = |what: &str| matches!(&select.properties, Wanted::Only(names) if names.iter().any(|name| name == what));
    let (with_names, with_dedup) = (asks_for(DAMAGED_FILES), asks_for(DEDUP_TABLES));
    let mounts = if with_names { mounts() } else { Vec::new() };
    let status_of = |(name, imported): (&String, &Imported)| {
        let mut status = status(table, name, imported);
        if with_names && status.error_count.is_some_and(|count| count != 0) {
            status.errors = error_log::names(&imported.pool, &mounts);
        }
        if with_dedup && status.suspended.is_none() {
            let (space, _) = imported.pool.engine().shared_space();
            status.dedup = Some(DedupStatus { entries: space.blocks, disk_size: space.tables, memory_size: space.length });
        }
        status
    };
    Ok(pools.into_iter().map(status_of).collect())
}

/// What is known of one pool; of its spares, which other pool uses them, too.
pub(super) fn status(table: &Table, name: &str, imported: &Imported) -> PoolStatus {
    let mut status = inspect::status(name, imported);
    for spare in status.spares.iter_mut().filter(|spare| spare.aux != VdevAux::Spared) {
        let is_user = |(other, imported): &(&String, &Arc<Imported>)| *other != name && imported.pool.engine().vdevs.find_leaf(spare.guid).is_some();
        if let Some((user, _)) = table.iter().find(is_user) {
            (spare.state, spare.aux, spare.used_by) = (VdevState::Healthy, VdevAux::Spared, Some(user.clone()));
        }
    }
    status
}
