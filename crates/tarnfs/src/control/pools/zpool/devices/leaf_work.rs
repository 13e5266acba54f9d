//! `zpool initialize`, `zpool trim`

use engine::error::{Error, ErrorKind};
use engine::pool::{Pool, WorkCommand, WorkKind, WorkProgress, WorkState};
use engine::vdev::VdevConfig;

use super::beside::{find, words};
use crate::control::pools::{Failure, FailureKind};
use crate::control::{LeafWork, LeafWorkCommand, LeafWorkKind, LeafWorkState, LeafWorkStatus, Refusal, VdevStatus};

/// Does it on each device, or says of which it is refused. Where a name is that of no device, nothing is done.
pub(super) fn command(engine: &Pool, tree: &VdevConfig, work: &LeafWork) -> Result<Vec<Refusal>, Failure> {
    let mut refused = Vec::new();
    let mut leaves: Vec<(String, u64)> = Vec::new();
    if work.devices.is_empty() {
        leaves.extend(engine.vdevs.leaves().iter().map(|leaf| (leaf.name().to_owned(), leaf.guid())));
    }
    for name in &work.devices {
        match find(tree, name) {
            Ok(found) if found.kind.is_leaf() => leaves.push((name.clone(), found.guid)),
            Ok(_) => refused.push(Refusal { name: name.clone(), failure: Failure::new(FailureKind::BadDevice) }),
            Err(failure) => refused.push(Refusal { name: name.clone(), failure }),
        }
    }
    if !refused.is_empty() {
        return Ok(refused);
    }
    let kind = match work.kind {
        LeafWorkKind::Initialize => WorkKind::Initialize,
        LeafWorkKind::Trim => WorkKind::Trim,
    };
    let command = match work.command {
        LeafWorkCommand::Start { rate } => WorkCommand::Start { rate },
        LeafWorkCommand::Cancel => WorkCommand::Cancel,
        LeafWorkCommand::Suspend => WorkCommand::Suspend,
        LeafWorkCommand::Forget => WorkCommand::Forget,
    };
    for (name, guid) in leaves {
        if let Err(error) = engine.work_on_leaf(guid, kind, command) {
            refused.push(Refusal { name, failure: failure(&error) });
        }
    }
    engine.sync_all().map_err(|error| Failure::about_pool(&error))?;
    Ok(refused)
}

fn failure(error: &Error) -> Failure {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::Busy | ErrorKind::Conflict => Failure::with(FailureKind::BadDevice, words(error)),
        ErrorKind::NotSupported => Failure::with(FailureKind::PoolNotSupported, words(error)),
        ErrorKind::Invalid => Failure::new(FailureKind::BadDevice),
        _ => Failure::about_pool(error),
    }
}

/// Puts into the status of each device what is done with it.
pub(super) fn show(engine: &Pool, root: &mut VdevStatus) {
    let progress = engine.leaf_work();
    let able: Vec<u64> = engine.vdevs.leaves().iter().filter(|leaf| leaf.can_trim()).map(|leaf| leaf.guid()).collect();
    show_below(root, &progress, &able);
}

fn show_below(vdev: &mut VdevStatus, progress: &[WorkProgress], able: &[u64]) {
    let of = |kind| progress.iter().find(|work| work.leaf == vdev.guid && work.kind == kind).and_then(status);
    if vdev.children.is_empty() {
        (vdev.stats.initialize, vdev.stats.trim) = (of(WorkKind::Initialize), of(WorkKind::Trim));
        vdev.stats.can_trim = able.contains(&vdev.guid);
    }
    vdev.children.iter_mut().for_each(|child| show_below(child, progress, able));
}

fn status(work: &WorkProgress) -> Option<LeafWorkStatus> {
    let state = match work.state {
        WorkState::None => return None,
        WorkState::Active => LeafWorkState::Active,
        WorkState::Canceled => LeafWorkState::Canceled,
        WorkState::Suspended => LeafWorkState::Suspended,
        WorkState::Complete => LeafWorkState::Complete,
    };
    let WorkProgress { time, done, total, errors, .. } = *work;
    Some(LeafWorkStatus { state, time, done, total, errors })
}
