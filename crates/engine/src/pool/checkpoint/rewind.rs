//! Going back to a checkpoint for good.

use ondisk::label::ByteOrder;
use ondisk::nvlist::NvList;

use crate::error::{Result, Within};
use crate::host::HostRef;
use crate::pool::examine::{at_checkpoint, open_true_mos};
use crate::pool::import::Candidate;
use crate::vdev::label::{LabelSync, sync_labels};

/// The pool as its checkpoint has it, when that is what the devices have: what was written since is lost. The devices are open for writing.
///
/// # Errors
/// The pool has no checkpoint, what it keeps cannot be read, or no device can be written.
#[doc(alias = "spa_ld_checkpoint_rewind")]
pub fn rewind_to_checkpoint(candidate: &Candidate, host: HostRef) -> Result<Candidate> {
    let mut chosen = at_checkpoint(candidate, host.clone())?;
    let name = chosen.config.name.clone();
    write_uberblock(candidate, &mut chosen, host).within(|| format!("pool {name}"))?;
    Ok(chosen)
}

fn write_uberblock(candidate: &Candidate, chosen: &mut Candidate, host: HostRef) -> Result<()> {
    // Not before it is known to lead somewhere.
    open_true_mos(chosen, host.clone())?;
    let (vdevs, _) = open_true_mos(candidate, host.clone())?;
    let mut uberblock = chosen.uberblock().clone();
    uberblock.order = ByteOrder::Little;
    uberblock.checkpoint_txg = uberblock.txg;
    uberblock.txg = candidate.newest_txg + 1;
    uberblock.timestamp = host.wall_clock().0;
    let tops = vdevs.uberblock_tops(uberblock.txg, false);
    let multihost = candidate.uberblock().multihost.is_some_and(|said| said.delay_ns != 0);
    sync_labels(&LabelSync { uberblock: &uberblock, dirty: &[], uberblock_tops: &tops, multihost, config: &|_, _| NvList::default() })?;
    chosen.newest_txg = uberblock.txg;
    chosen.uberblocks = vec![uberblock];
    Ok(())
}
