//! Opening a pool as it was before.
//!
//! # Theory
//! Every uberblock in the rings is the root of a whole pool; the newest is the pool, the others are what it was. What they lead
//! to is still there as long as nobody has used the space again, and freed space is not used again for two groups. So
//! going back by up to two groups is safe, and further back possible if one looks first: the metadata that was written
//! since then is read, and whatever cannot be read rules the state out.
//!
//! Going back does not forget the numbers of the groups that are given up: the next group comes after all of them.

use engine::error::{Result, Within};
use engine::host::RealHost;
use engine::pool::config::PoolState;
use engine::pool::checkpoint::rewind_to_checkpoint;
use engine::pool::examine::at_checkpoint;
use engine::pool::import::{Candidate, discover_before};
use engine::pool::{OpenOptions, Pool as EnginePool};
use engine::tunables::{Parameter, Tunables};
use engine::{bail, error};
use ondisk::dsl::DatasetPhys;
use ondisk::object_type::ObjectType;

use crate::ImportOptions;

/// Groups after which freed space is used again.
#[doc(alias = "TXG_DEFER_SIZE")]
const SAFE_GROUPS: u64 = 2;
/// Memory for looking.
const LOOK_CACHE_BYTES: u64 = 64 << 20;

/// Which state of a pool to open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rewind {
    /// The newest.
    #[default]
    No,
    /// The newest one that can be read, if freed space is not in use again (`-F`), or any (`-FX`).
    ToReadable {
        /// Any.
        extreme: bool,
    },
    /// That of this txg, or the last one before it (`-T`). For good: one that can be read. Read-only: whatever of it can be read.
    To(u64),
    /// What the checkpoint keeps; read-only: to look at it.
    ToCheckpoint,
}

/// What going back in time gave up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rewound {
    /// The txg that was opened.
    pub txg: u64,
    /// When that was, in seconds since 1970.
    pub timestamp: u64,
    /// Seconds of changes that are lost.
    pub lost_seconds: u64,
}

/// Opens the devices of a pool that was found as they are needed, and looks again.
pub(crate) fn open_devices(candidate: &Candidate, read_only: bool, rewind: Rewind) -> Result<Candidate> {
    let access = if read_only { disk::Access::Read } else { disk::Access::Write };
    let mut disks = Vec::new();
    for name in candidate.device_names() {
        disks.push(disk::open(&name, access).within(|| name.clone())?);
    }
    if matches!(rewind, Rewind::To(_)) {
        // One that left, and is somebody else's now, is not needed unless the state has it.
        disks.extend(candidate.names_of_left().iter().filter_map(|name| disk::open(name, access).ok()));
    }
    let opened = again(candidate, disks, u64::MAX)?;
    // It was found before it was claimed: somebody may have had it meanwhile.
    if (opened.config.state == PoolState::Destroyed) != (candidate.config.state == PoolState::Destroyed) {
        bail!(Busy, "pool {}: somebody else has just changed whether it is destroyed: look again", candidate.config.name);
    }
    Ok(opened)
}

fn again(candidate: &Candidate, disks: Vec<disk::DiskRef>, txg_max: u64) -> Result<Candidate> {
    let guid = candidate.config.guid;
    let again = discover_before(disks, txg_max).into_iter().find(|again| again.config.guid == guid);
    again.ok_or_else(|| error!(Invalid, "pool {}: its devices have no state as old as that", candidate.config.name))
}

/// The same devices, as the pool was in `txg_max` at the latest.
fn before(candidate: &Candidate, txg_max: u64) -> Result<Candidate> {
    again(candidate, candidate.disks(), txg_max)
}

/// The state to open.
pub(crate) fn choose(candidate: Candidate, options: &ImportOptions) -> Result<(Candidate, Option<Rewound>)> {
    let newest = candidate.uberblock().clone();
    let outcome = |chosen: Candidate| {
        let now = chosen.uberblock();
        let rewound = Rewound { txg: now.txg, timestamp: now.timestamp, lost_seconds: newest.timestamp.saturating_sub(now.timestamp) };
        (chosen, Some(rewound))
    };
    let (extreme, mut txg_max) = match options.rewind {
        Rewind::No => return Ok((candidate, None)),
        Rewind::To(txg) if options.read_only => return before(&candidate, txg).map(outcome),
        Rewind::To(txg) => (true, txg),
        Rewind::ToCheckpoint if !options.read_only => return rewind_to_checkpoint(&candidate, RealHost::shared()).map(outcome),
        Rewind::ToCheckpoint => return at_checkpoint(&candidate, RealHost::shared()).map(outcome),
        Rewind::ToReadable { extreme } => (extreme, u64::MAX),
    };
    let oldest = if extreme { 0 } else { newest.txg.saturating_sub(SAFE_GROUPS) };
    let mut first_reason = None;
    loop {
        let chosen = match before(&candidate, txg_max) {
            Ok(chosen) => chosen,
            Err(_) if first_reason.is_some() => break,
            Err(error) => return Err(error),
        };
        let txg = chosen.uberblock().txg;
        if txg < oldest {
            break;
        }
        let after = if txg < newest.txg.saturating_sub(SAFE_GROUPS) { 0 } else { txg.saturating_sub(SAFE_GROUPS + 1) };
        match look(&chosen, options, after) {
            Ok(()) if txg == newest.txg => return Ok((chosen, None)),
            Ok(()) => return Ok(outcome(chosen)),
            Err(error) => {
                tracing::info!("pool {}: its state in txg {txg} cannot be read: {error}", candidate.config.name);
                first_reason.get_or_insert(error);
            }
        }
        let Some(less) = txg.checked_sub(1) else { break };
        txg_max = less;
    }
    let reason = first_reason.unwrap_or_else(|| error!(NotFound, "there is no older state"));
    let advice = if extreme { "" } else { " (-FX looks at older ones)" };
    bail!(Corrupt, "pool {}: none of its last states can be read{advice}: {}", candidate.config.name, reason.message())
}

/// Can the metadata be read that was written after a txg?
fn look(candidate: &Candidate, import: &ImportOptions, after: u64) -> Result<()> {
    let tunables = Tunables { write_workers: 1, cache_bytes_max: LOOK_CACHE_BYTES, ..Tunables::default() };
    let skips = import.tunables.as_ref().is_some_and(|given| given.now(Parameter::ValidateSkip) != 0);
    tunables.parameters.set(Parameter::ValidateSkip, if skips { "1" } else { "0" }).map_err(|words| error!(Invalid, "{words}"))?;
    let options = OpenOptions { host: RealHost::shared(), tunables, read_only: true, file_owner: None, new_name: None, forget_log: false };
    let pool = EnginePool::open(candidate, options)?;
    let read = read_metadata(&pool, after);
    // Lets go of the devices, and with them of their locks.
    pool.abandon();
    read
}

fn read_metadata(pool: &EnginePool, after: u64) -> Result<()> {
    use engine::dsl::{Traversal, Visited};
    use std::ops::ControlFlow;
    let mut visit = |_: &Visited<'_>| Ok(ControlFlow::Continue(()));
    let mos = &pool.dsl.meta.mos.0;
    Traversal::new(&pool.context, 0, after).run(&mos.pointer(), &mut visit)?;
    let mut object = 0;
    while let Some(next) = mos.next_object(object)? {
        object = next;
        let dnode = mos.hold(object)?;
        if dnode.bonus_type() != ObjectType::DSL_DATASET {
            continue;
        }
        let phys = DatasetPhys::from_bonus(&dnode.bonus())?;
        Traversal::new(&pool.context, object, after.max(phys.prev_snapshot_txg.get())).run(&phys.block, &mut visit)?;
    }
    Ok(())
}
