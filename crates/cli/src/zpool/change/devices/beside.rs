//! `zpool attach`, `zpool replace`, `zpool detach`, `zpool online`, `zpool offline`, `zpool reopen`

use std::path::{Path, PathBuf};
use std::time::Duration;

use tarnfs::control::scan::is_device;
use tarnfs::control::{
    DeviceAttach, DeviceVerb, Failure, FailureKind, PoolDevice, PoolSelect, PoolStatus, Request, VdevKind, VdevState, VdevStatus, Wanted,
};

use super::add::{ashift, open};
use crate::session::{Outcome, Session, Stop, complain, say};
use crate::text::getopt::Options;
use crate::zpool::spec::{draid_spec, pools, vdev_spec};

/// How often a command looks that waits.
const STEP: Duration = Duration::from_millis(200);
/// What a failed call of a library ends a command with.
const FAILED: Stop = Stop::Code(255);

#[derive(Default)]
struct Flags {
    force: bool,
    sequential: bool,
    wait: bool,
    ashift: Option<u32>,
}

fn parse(session: &mut Session<'_>, words: &[String]) -> Result<(Flags, Vec<String>), Stop> {
    let mut flags = Flags::default();
    let mut options = Options::new(words, "fo:sw", &[]);
    for option in options.by_ref() {
        let (letter, argument) = option.map_err(|wrong| session.misuse(wrong))?;
        match letter {
            'f' => flags.force = true,
            's' => flags.sequential = true,
            'w' => flags.wait = true,
            _ => flags.ashift = Some(ashift(session, &argument.unwrap_or_default())?),
        }
    }
    Ok((flags, options.operands()))
}

pub(in crate::zpool) fn attach(session: &mut Session<'_>, words: &[String]) -> Outcome {
    attach_or_replace(session, words, false)
}

pub(in crate::zpool) fn replace(session: &mut Session<'_>, words: &[String]) -> Outcome {
    attach_or_replace(session, words, true)
}

fn attach_or_replace(session: &mut Session<'_>, words: &[String], replace: bool) -> Outcome {
    let (flags, operands) = parse(session, words)?;
    let (name, old, new) = match operands.as_slice() {
        [] => return Err(session.misuse("missing pool name argument")),
        [_] => return Err(session.misuse("missing <device> specification")),
        [name, old] if replace => (name, old, old),
        [_, _] => return Err(session.misuse("missing <new_device> specification")),
        [name, old, new] => (name, old, new),
        _ => return Err(session.misuse("too many arguments")),
    };
    let pool = open(session, name)?;
    let action = if replace { format!("cannot replace {old} with {new}") } else { format!("cannot attach {new} to {old}") };
    let path = if replace && draid_spec::is_spare(new) { new.into() } else { device(session, &pool, (old, new), &flags, replace)? };
    let verb = DeviceAttach { device: old.clone(), new: path, replace, force: flags.force, sequential: flags.sequential, ashift: flags.ashift };
    perform(session, name, DeviceVerb::Attach(verb)).map_err(|failure| {
        session.failed(&action, &failure);
        FAILED
    })?;
    if flags.wait {
        wait_until(session, name, |pool| if replace { !is_replacing(pool) } else { !is_resilvering(pool) && !is_expanding(pool) })?;
    }
    Ok(0)
}

/// The path of the device that is to come in, if it may.
fn device(session: &mut Session<'_>, pool: &PoolStatus, (old, new): (&String, &String), flags: &Flags, replace: bool) -> Result<PathBuf, Stop> {
    let specs = vdev_spec::parse(session, std::slice::from_ref(new), true)?;
    let found = find(&pool.root, old);
    // What is overwritten can be replaced in its place: its label tells.
    let is_given_up = |vdev: &&VdevStatus| {
        let in_place = specs.first().is_some_and(|spec| {
            let new = spec.path.as_deref().and_then(Path::to_str);
            new.zip(vdev.path.as_deref()).is_some_and(|(new, path)| is_device(path, vdev.whole_disk, new))
        });
        replace && (in_place || !matches!(vdev.state, VdevState::Healthy | VdevState::Degraded))
    };
    let given_up = found.filter(is_given_up).map(|vdev| vdev.guid);
    let [spec] = specs.as_slice() else {
        let action = if replace { format!("cannot replace {old} with {new}") } else { format!("cannot attach {new} to {old}") };
        let failure = Failure::with(FailureKind::BadVdevs, "new device must be a single disk");
        session.failed(&action, &failure);
        return Err(FAILED);
    };
    if !(replace && vdev_spec::is_spare_of(pool, spec)) {
        vdev_spec::check_one(session, spec, flags.force, given_up)?;
    }
    Ok(spec.path.clone().unwrap_or_default())
}

fn perform(session: &mut Session<'_>, name: &str, verb: DeviceVerb) -> Result<(), Failure> {
    session.perform(Request::PoolDevice(PoolDevice { name: name.to_owned(), verb }))
}

/// A device by its name, path or guid.
pub(super) fn find<'a>(vdev: &'a VdevStatus, name: &str) -> Option<&'a VdevStatus> {
    let is_path = vdev.path.as_deref().is_some_and(|path| is_device(path, vdev.whole_disk, name));
    if is_path || vdev.guid.to_string() == name {
        return Some(vdev);
    }
    vdev.children.iter().find_map(|child| find(child, name))
}

/// Does a device take the place of another, or a spare, and has not everything yet?
pub(in crate::zpool) fn is_replacing(pool: &PoolStatus) -> bool {
    fn has(vdev: &VdevStatus, is_sought: &dyn Fn(&VdevStatus) -> bool) -> bool {
        is_sought(vdev) || vdev.children.iter().any(|child| has(child, is_sought))
    }
    // A device and one spare are as they are to be when the spare has everything.
    let is_spare = |vdev: &VdevStatus| vdev.kind == VdevKind::Spare && (vdev.children.len() > 2 || is_resilvering(pool));
    has(&pool.root, &|vdev| vdev.kind == VdevKind::Replacing || is_spare(vdev))
}

fn is_resilvering(pool: &PoolStatus) -> bool {
    use tarnfs::control::{RebuildState, ScanFunction, ScanState};
    let is_rebuilding = pool.rebuilds.iter().any(|rebuild| rebuild.state == RebuildState::Active);
    is_rebuilding || pool.scan.as_ref().is_some_and(|scan| scan.function == ScanFunction::Resilver && scan.state == ScanState::Scanning)
}

fn is_expanding(pool: &PoolStatus) -> bool {
    pool.expansion.as_ref().is_some_and(|expansion| expansion.state == tarnfs::control::ScanState::Scanning)
}

/// Waits until the pool is as it should be, or is gone.
fn wait_until(session: &mut Session<'_>, name: &str, is_done: impl Fn(&PoolStatus) -> bool) -> Result<(), Stop> {
    loop {
        let select = PoolSelect { name: Some(name.to_owned()), properties: Wanted::Only(Vec::new()) };
        match session.status(Request::PoolStatus(select)) {
            Ok(pools) if pools.first().is_none_or(&is_done) => return Ok(()),
            Ok(_) => std::thread::sleep(STEP),
            Err(failure) if failure.kind == FailureKind::NoSuchPool => return Ok(()),
            Err(failure) => return Err(session.failed(format_args!("cannot wait for '{name}'"), &failure)),
        }
    }
}

pub(in crate::zpool) fn detach(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let mut options = Options::new(words, "", &[]);
    if let Some(option) = options.by_ref().next() {
        option.map_err(|wrong| session.misuse(wrong))?;
    }
    let operands = options.operands();
    let (name, device) = match operands.as_slice() {
        [] => return Err(session.misuse("missing pool name argument")),
        [_] => return Err(session.misuse("missing <device> specification")),
        [name, device, ..] => (name, device),
    };
    open(session, name)?;
    perform(session, name, DeviceVerb::Detach { device: device.clone() }).map_err(|failure| {
        session.failed(format_args!("cannot detach {device}"), &failure);
        FAILED
    })?;
    Ok(0)
}

/// The pool and its devices, of a verb on several.
fn several(session: &mut Session<'_>, operands: &[String]) -> Result<(PoolStatus, Vec<String>), Stop> {
    let (name, devices) = match operands {
        [] => return Err(session.misuse("missing pool name")),
        [_] => return Err(session.misuse("missing device name")),
        [name, devices @ ..] => (name, devices.to_vec()),
    };
    match open(session, name) {
        Ok(pool) => Ok((pool, devices)),
        Err(stop) => {
            complain!(session, "failed to open pool \"{name}\"");
            Err(stop)
        }
    }
}

fn refuse_power(session: &mut Session<'_>, verb: &str) -> Stop {
    complain!(session, "zpool {verb}: --power is not yet supported by this version of tarn: no device is switched on or off");
    Stop::Code(1)
}

pub(in crate::zpool) fn offline(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let mut options = Options::new(words, "ft", &[("power", 'p')]);
    let (mut fault, mut temporary) = (false, false);
    for option in options.by_ref() {
        match option.map_err(|wrong| session.misuse(wrong))?.0 {
            'f' => fault = true,
            't' => temporary = true,
            _ => return Err(refuse_power(session, "offline")),
        }
    }
    let (pool, devices) = several(session, &options.operands())?;
    let mut code = 0;
    for device in devices {
        let verb = DeviceVerb::Offline { device: device.clone(), fault, temporary };
        if let Err(failure) = perform(session, &pool.name, verb) {
            let action = if fault { "cannot fault" } else { "cannot offline" };
            session.failed(format_args!("{action} {device}"), &failure);
            code = 1;
        }
    }
    Ok(code)
}

pub(in crate::zpool) fn online(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let mut options = Options::new(words, "e", &[("power", 'p')]);
    let mut expand = false;
    for option in options.by_ref() {
        match option.map_err(|wrong| session.misuse(wrong))?.0 {
            'e' => expand = true,
            _ => return Err(refuse_power(session, "online")),
        }
    }
    let (pool, devices) = several(session, &options.operands())?;
    let mut code = 0;
    for device in devices {
        let found = find(&pool.root, &device).or_else(|| pool.spares.iter().chain(&pool.caches).find_map(|vdev| find(vdev, &device)));
        let Some(before) = found.map(|vdev| vdev.state) else {
            complain!(session, "couldn't find device \"{device}\" in pool \"{}\"", pool.name);
            code = 1;
            continue;
        };
        let verb = DeviceVerb::Online { device: device.clone(), expand };
        match session.device(Request::PoolDevice(PoolDevice { name: pool.name.clone(), verb })) {
            Ok(VdevState::Healthy) => {}
            Ok(state) => {
                if !say_unhealthy(session, &device, state, before, expand) {
                    return Ok(1);
                }
            }
            Err(failure) => {
                let action = if expand { "cannot expand" } else { "cannot online" };
                session.failed(format_args!("{action} {device}"), &failure);
                complain!(session, "Failed to online \"{device}\" in pool \"{}\": -1", pool.name);
                code = 1;
            }
        }
    }
    Ok(code)
}

/// Says what to do about a device that is not well; `false`: the command ends here.
fn say_unhealthy(session: &mut Session<'_>, device: &str, state: VdevState, before: VdevState, expand: bool) -> bool {
    say!(session, "warning: device '{device}' onlined, but remains in faulted state");
    if state == VdevState::Faulted {
        say!(session, "use 'zpool clear' to restore a faulted device");
    } else {
        say!(session, "use 'zpool replace' to replace devices that are no longer present");
    }
    if !expand {
        return true;
    }
    let was_well = matches!(before, VdevState::Degraded | VdevState::Healthy);
    let word = if was_well { "error" } else { "warning" };
    say!(session, "{word}: failed to expand usable space on unhealthy device '{device}'");
    !was_well
}

pub(in crate::zpool) fn reopen(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let mut options = Options::new(words, "n", &[]);
    for option in options.by_ref() {
        // A scan that is under way goes on in either case.
        option.map_err(|wrong| session.misuse(wrong))?;
    }
    let operands = options.operands();
    let (found, mut code) = pools::statuses(session, &operands);
    for pool in found {
        if let Err(failure) = perform(session, &pool.name, DeviceVerb::Reopen) {
            session.failed(format_args!("cannot reopen '{}'", pool.name), &failure);
            code = 1;
        }
    }
    Ok(code)
}
