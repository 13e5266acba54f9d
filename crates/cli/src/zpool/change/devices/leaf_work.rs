//! `zpool initialize`, `zpool trim`

use std::time::Duration;

use tarnfs::control::{
    DeviceVerb, Failure, FailureKind, LeafWork, LeafWorkCommand, LeafWorkKind, LeafWorkState, PoolDevice, PoolSelect, Refusal, Request, VdevStatus, Wanted,
};

use super::beside::find;
use crate::session::{Outcome, Session, Stop};
use crate::text::getopt::Options;
use crate::zpool::spec::pools;

/// How often a command looks that waits.
const STEP: Duration = Duration::from_millis(200);
/// What a failed call of a library ends a command with.
const FAILED: u8 = 255;

/// What was asked for.
struct Asked {
    command: LeafWorkCommand,
    wait: bool,
    all: bool,
    secure: bool,
    operands: Vec<String>,
}

/// Takes the command of a letter, unless another was given before.
fn take_command(session: &mut Session<'_>, given: &mut Option<(char, LeafWorkCommand)>, letter: char, command: LeafWorkCommand) -> Result<(), Stop> {
    if given.is_some_and(|(before, _)| before != letter) {
        return Err(session.misuse(format_args!("-{letter} cannot be combined with other options")));
    }
    *given = Some((letter, command));
    Ok(())
}

/// What is wrong with what was asked, in the order in which OpenZFS looks.
fn check(session: &mut Session<'_>, asked: &Asked, with_wait: &str, with_all: &str, is_trim: bool) -> Result<(), Stop> {
    let combined = asked.all && !asked.operands.is_empty();
    let missing = asked.operands.is_empty() && !asked.all;
    let waits = asked.wait && !matches!(asked.command, LeafWorkCommand::Start { .. });
    let found = [(combined && !is_trim, with_all), (missing, "missing pool name argument"), (waits, with_wait), (combined, with_all)];
    match found.into_iter().find(|(wrong, _)| *wrong) {
        Some((_, words)) => Err(session.misuse(words)),
        None => Ok(()),
    }
}

pub(in crate::zpool) fn initialize(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let long = &[("cancel", 'c'), ("suspend", 's'), ("uninit", 'u'), ("wait", 'w'), ("all", 'a')];
    let mut options = Options::new(words, "acsuw", long);
    let (mut given, mut wait, mut all) = (None, false, false);
    for option in options.by_ref() {
        match option.map_err(|wrong| session.misuse(wrong))?.0 {
            'a' => all = true,
            'w' => wait = true,
            'c' => take_command(session, &mut given, 'c', LeafWorkCommand::Cancel)?,
            's' => take_command(session, &mut given, 's', LeafWorkCommand::Suspend)?,
            _ => take_command(session, &mut given, 'u', LeafWorkCommand::Forget)?,
        }
    }
    let command = given.map_or(LeafWorkCommand::Start { rate: 0 }, |(_, command)| command);
    let asked = Asked { command, wait, all, secure: false, operands: options.operands() };
    check(session, &asked, "-w cannot be used with -c, -sor -u", "-a cannot be combined with individual pools or vdevs", false)?;
    run(session, LeafWorkKind::Initialize, &asked)
}

pub(in crate::zpool) fn trim(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let long = &[("cancel", 'c'), ("secure", 'd'), ("rate", 'r'), ("suspend", 's'), ("wait", 'w'), ("all", 'a')];
    let mut options = Options::new(words, "acdr:sw", long);
    let (mut given, mut wait, mut all, mut secure, mut rate) = (None, false, false, false, 0);
    for option in options.by_ref() {
        let (letter, argument) = option.map_err(|wrong| session.misuse(wrong))?;
        match letter {
            'a' => all = true,
            'w' => wait = true,
            'c' => take_command(session, &mut given, 'c', LeafWorkCommand::Cancel)?,
            's' => take_command(session, &mut given, 's', LeafWorkCommand::Suspend)?,
            letter if given.is_some() => return Err(session.misuse(format_args!("-{letter} cannot be combined with the -c or -s options"))),
            'd' => secure = true,
            _ => {
                let text = argument.unwrap_or_default();
                rate = tarnfs::control::parse_size(&text).map_err(|wrong| session.misuse(format_args!("invalid value for rate: {wrong}")))?;
            }
        }
    }
    let command = given.map_or(LeafWorkCommand::Start { rate }, |(_, command)| command);
    let asked = Asked { command, wait, all, secure, operands: options.operands() };
    check(session, &asked, "-w cannot be used with -c or -s options", "-a cannot be combined with individual zpools or vdevs", true)?;
    run(session, LeafWorkKind::Trim, &asked)
}

/// Does it with the devices of a pool that are named, with all of a pool, or with all pools.
fn run(session: &mut Session<'_>, kind: LeafWorkKind, asked: &Asked) -> Outcome {
    let (names, devices) = match asked.operands.split_first() {
        Some((name, devices)) => (std::slice::from_ref(name), devices),
        None => (&[][..], &[][..]),
    };
    let (found, mut code) = pools::statuses(session, names);
    if code != 0 && !names.is_empty() {
        return Ok(FAILED);
    }
    for status in found {
        if one(session, &status.name, devices, kind, asked) {
            if asked.wait {
                wait(session, &status.name, devices, kind)?;
            }
        } else {
            code = FAILED;
        }
    }
    Ok(code)
}

fn one(session: &mut Session<'_>, name: &str, devices: &[String], kind: LeafWorkKind, asked: &Asked) -> bool {
    let refused = if asked.secure {
        // No device is known to do that.
        refuse_all(session, name, devices)
    } else {
        let work = LeafWork { devices: devices.to_vec(), kind, command: asked.command };
        session.refusals(Request::PoolDevice(PoolDevice { name: name.to_owned(), verb: DeviceVerb::LeafWork(work) }))
    };
    let mut refused = match refused {
        Ok(refused) => refused,
        Err(failure) => {
            session.failed("operation failed", &failure);
            return false;
        }
    };
    let is_unable = |refusal: &Refusal| refusal.failure.kind == FailureKind::PoolNotSupported;
    // Of a whole pool devices are passed over that know nothing of trims, unless none does.
    if kind == LeafWorkKind::Trim && devices.is_empty() && !asked.secure {
        let unable = refused.iter().filter(|refusal| is_unable(refusal)).count();
        refused.retain(|refusal| !is_unable(refusal));
        if unable > 0 && refused.is_empty() && unable == leaves_of(session, name) {
            session.failed("cannot trim", &Failure::with(FailureKind::PoolNotSupported, "no devices in pool support trim operations"));
            return false;
        }
    }
    let verb = if kind == LeafWorkKind::Trim { "trim" } else { "initialize" };
    for refusal in &refused {
        session.failed(format_args!("cannot {verb} '{}'", refusal.name), &refusal.failure);
    }
    refused.is_empty()
}

fn refuse_all(session: &mut Session<'_>, name: &str, devices: &[String]) -> Result<Vec<Refusal>, Failure> {
    let mut names = devices.to_vec();
    if names.is_empty() {
        let (found, _) = pools::statuses(session, std::slice::from_ref(&name.to_owned()));
        found.iter().for_each(|status| leaves(&status.root, &mut |leaf| names.push(leaf.path.clone().unwrap_or_default())));
    }
    let failure = || Failure::with(FailureKind::PoolNotSupported, "trim operations are not supported by this device");
    Ok(names.into_iter().map(|name| Refusal { name, failure: failure() }).collect())
}

fn leaves(vdev: &VdevStatus, each: &mut impl FnMut(&VdevStatus)) {
    if vdev.children.is_empty() {
        each(vdev);
    }
    vdev.children.iter().for_each(|child| leaves(child, each));
}

fn leaves_of(session: &mut Session<'_>, name: &str) -> usize {
    let (found, _) = pools::statuses(session, std::slice::from_ref(&name.to_owned()));
    let mut count = 0;
    found.iter().for_each(|status| leaves(&status.root, &mut |_| count += 1));
    count
}

/// Waits until it is under way on none of these devices, or on none of the pool.
fn wait(session: &mut Session<'_>, name: &str, devices: &[String], kind: LeafWorkKind) -> Result<(), Stop> {
    loop {
        let select = PoolSelect { name: Some(name.to_owned()), properties: Wanted::Only(Vec::new()) };
        let status = match session.status(Request::PoolStatus(select)) {
            Ok(pools) => pools.into_iter().next(),
            Err(failure) if failure.kind == FailureKind::NoSuchPool => None,
            Err(failure) => return Err(session.failed(format_args!("cannot wait for '{name}'"), &failure)),
        };
        let Some(status) = status else { return Ok(()) };
        let mut is_active = false;
        let mut look = |vdev: &VdevStatus| {
            let work = if kind == LeafWorkKind::Trim { vdev.stats.trim } else { vdev.stats.initialize };
            is_active |= work.is_some_and(|work| work.state == LeafWorkState::Active);
        };
        if devices.is_empty() {
            leaves(&status.root, &mut look);
        } else {
            devices.iter().filter_map(|name| find(&status.root, name)).for_each(&mut look);
        }
        if !is_active {
            return Ok(());
        }
        std::thread::sleep(STEP);
    }
}
