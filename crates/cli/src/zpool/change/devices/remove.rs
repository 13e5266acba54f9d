//! `zpool remove`

use tarnfs::control::scan::is_device;
use tarnfs::control::{AllocationClass, Failure, FailureKind, PoolRemove, PoolStatus, Request, VdevStatus};

use super::add::open;
use crate::session::{Outcome, Session, complain, say};
use crate::text::getopt::Options;
use crate::text::units::nice_number;
use crate::zpool::change::upkeep::wait::wait_for;
use crate::zpool::spec::vdev_name::Naming;

#[derive(Default)]
struct Flags {
    dry_run: bool,
    parsable: bool,
    stop: bool,
    wait: bool,
}

pub(in crate::zpool) fn remove(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let mut options = Options::new(words, "npsw", &[]);
    let mut flags = Flags::default();
    for option in options.by_ref() {
        match option.map_err(|wrong| session.misuse(wrong))?.0 {
            'n' => flags.dry_run = true,
            'p' => flags.parsable = true,
            's' => flags.stop = true,
            _ => flags.wait = true,
        }
    }
    let operands = options.operands();
    let Some((name, devices)) = operands.split_first() else { return Err(session.misuse("missing pool name argument")) };
    let pool = open(session, name)?;
    if flags.stop {
        return stop(session, &flags, name, devices);
    }
    if devices.is_empty() {
        return Err(session.misuse("missing device"));
    }
    let mut code = 0;
    for device in devices {
        if flags.dry_run {
            if let Err(failure) = foretell(session, &flags, &pool, device) {
                session.failed(format_args!("cannot determine indirect size of {device}"), &failure);
                return Ok(1);
            }
            continue;
        }
        let request = PoolRemove { name: name.clone(), device: Some(device.clone()) };
        if let Err(failure) = session.perform(Request::PoolRemove(request)) {
            session.failed(format_args!("cannot remove {device}"), &failure);
            code = 1;
        }
    }
    if code == 0 && flags.wait {
        wait_for(session, name, &["remove"])?;
    }
    Ok(code)
}

/// Gives up the removal that is under way.
fn stop(session: &mut Session<'_>, flags: &Flags, name: &str, devices: &[String]) -> Outcome {
    if flags.dry_run {
        complain!(session, "stop request ignored");
        return Ok(0);
    }
    if !devices.is_empty() {
        return Err(session.misuse("too many arguments"));
    }
    let request = PoolRemove { name: name.to_owned(), device: None };
    let stopped = session.perform(Request::PoolRemove(request)).map_err(|failure| session.failed("cannot cancel removal", &failure));
    if flags.wait {
        return Err(session.misuse("invalid option combination: -w cannot be used with -s"));
    }
    stopped.map(|_| 0)
}

/// How much memory the map of a device will take when that is removed.
fn foretell(session: &mut Session<'_>, flags: &Flags, pool: &PoolStatus, device: &str) -> Result<(), Failure> {
    let bytes = match find(pool, device) {
        Some(top) if top.class == AllocationClass::Log => 0,
        Some(top) => top.stats.map_bytes.ok_or_else(|| Failure::with(FailureKind::BadDevice, "indirect size not available"))?,
        None if pool.spares.iter().chain(&pool.caches).any(|other| is_named(pool, other, device)) => 0,
        None => return Err(Failure::with(FailureKind::BadDevice, "no such device in pool")),
    };
    match flags.parsable {
        true => say!(session, "{device} {bytes}"),
        false => say!(session, "Memory that will be used after removing {device}: {}", nice_number(bytes)),
    }
    Ok(())
}

fn find<'a>(pool: &'a PoolStatus, device: &str) -> Option<&'a VdevStatus> {
    pool.root.children.iter().find(|top| is_named(pool, top, device))
}

fn is_named(pool: &PoolStatus, vdev: &VdevStatus, device: &str) -> bool {
    let shown = |naming: Naming| naming.name(vdev, &pool.name) == device;
    shown(Naming { guid: false, follow: false, path: false }) || shown(Naming { guid: true, ..Naming::default() }) || vdev.path.as_deref().is_some_and(|path| is_device(path, vdev.whole_disk, device))
}
