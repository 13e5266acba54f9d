//! The devices of a pool: adding and removing them, what is known of those that were removed, and what each missed.

use std::sync::Arc;

use crate::dmu::SyncTx;
use crate::dsl::SpaceCheck;
use crate::error::Result;
use crate::pool::sync::writer::GroupWriter;

pub(in crate::pool) mod add;
pub mod auxiliary;
pub(in crate::pool) mod beside;
pub(in crate::pool) mod caught_up;
pub(in crate::pool) mod dirty_time_log;
pub(in crate::pool) mod draid;
pub(in crate::pool) mod remove_log;
pub(in crate::pool) mod removed;
pub(in crate::pool) mod states;
pub(in crate::pool) mod vdev_properties;
pub(in crate::pool) mod vdev_zaps;

pub(in crate::pool) use draid::distributed;

#[cfg(test)]
mod tests;

/// Blocks of the MOS that a change of one device changes, about.
const BLOCKS: u64 = 8;

/// Changes devices in one group, in the sync thread, and returns when it is on disk. What `change` returns as a refusal (the inner error)
/// has changed nothing; another error of it stops the pool. After an error the change is not made later, but for one that says so ([`Error::goes_on`](crate::error::Error::goes_on)).
pub(in crate::pool) fn in_one_group(writer: &Arc<GroupWriter>, change: impl FnOnce(&GroupWriter, &SyncTx<'_>) -> Result<Result<()>> + Send + 'static) -> Result<()> {
    let own = writer.clone();
    writer.layers().dsl.run_refusable_task(BLOCKS, SpaceCheck::Reserved, |_| Ok(()), move |_, tx| change(&own, tx))
}
