//! `zpool add`

use tarnfs::control::{PoolAdd, PoolStatus, Request};

use crate::properties::settings;
use crate::session::{Outcome, Session, Stop, complain, say};
use crate::text::getopt::Options;
use crate::zpool::spec::vdev_name::Naming;
use crate::zpool::spec::{pools, vdev_spec};

#[derive(Default)]
struct Flags {
    dry_run: bool,
    force: bool,
    in_use: bool,
    any_redundancy: bool,
    any_ashift: bool,
    ashift: Option<u32>,
    naming: Naming,
}

/// The pool as it is, or the complaint that it is not there.
pub(super) fn open(session: &mut Session<'_>, name: &str) -> Result<PoolStatus, Stop> {
    match pools::statuses(session, std::slice::from_ref(&name.to_owned())) {
        (mut found, 0) if !found.is_empty() => Ok(found.remove(0)),
        _ => Err(Stop::Code(1)),
    }
}

fn parse_add(session: &mut Session<'_>, words: &[String]) -> Result<(Flags, Vec<String>), Stop> {
    const LONG: &[(&str, char)] = &[("allow-in-use", 'U'), ("allow-replication-mismatch", 'R'), ("allow-ashift-mismatch", 'A')];
    let mut flags = Flags::default();
    let mut options = Options::new(words, "fgLno:P", LONG);
    for option in options.by_ref() {
        let (letter, argument) = option.map_err(|wrong| session.misuse(wrong))?;
        match letter {
            'f' => flags.force = true,
            'g' => flags.naming.guid = true,
            'L' => flags.naming.follow = true,
            'P' => flags.naming.path = true,
            'n' => flags.dry_run = true,
            'U' => flags.in_use = true,
            'R' => flags.any_redundancy = true,
            'A' => flags.any_ashift = true,
            _ => flags.ashift = Some(ashift(session, &argument.unwrap_or_default())?),
        }
    }
    if flags.force && (flags.in_use || flags.any_redundancy || flags.any_ashift) {
        return Err(session.misuse(
            "'-f' option is not allowed with '--allow-replication-mismatch', '--allow-ashift-mismatch', or '--allow-in-use'",
        ));
    }
    Ok((flags, options.operands()))
}

pub(super) fn ashift(session: &mut Session<'_>, text: &str) -> Result<u32, Stop> {
    let Some((name, value)) = settings::split(text) else { return Err(session.misuse("missing '=' for -o option")) };
    if name != "ashift" {
        return Err(Stop::Usage);
    }
    let refuse = |session: &mut Session<'_>, words: &str| {
        complain!(session, "{words}");
        Err(Stop::Code(1))
    };
    match tarnfs::control::parse_size(value) {
        Err(_) => refuse(session, "ashift must be a number."),
        Ok(shift) if shift == 0 || (9..=16).contains(&shift) => Ok(u32::try_from(shift).unwrap_or(0)),
        Ok(_) => refuse(session, &format!("invalid 'ashift={value}' property: only values between 9 and 16 are allowed.")),
    }
}

pub(in crate::zpool) fn add(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let (flags, operands) = parse_add(session, words)?;
    let Some((name, vdevs)) = operands.split_first() else { return Err(session.misuse("missing pool name argument")) };
    if vdevs.is_empty() {
        return Err(session.misuse("missing vdev specification"));
    }
    let pool = open(session, name)?;
    let specs = vdev_spec::parse(session, vdevs, true)?;
    let action = format!("cannot add to '{name}'");
    vdev_spec::check_possible(&specs).map_err(|failure| session.failed(&action, &failure))?;
    let allowed = vdev_spec::Allowed { in_use: flags.force || flags.in_use, any_redundancy: flags.force || flags.any_redundancy };
    vdev_spec::check(session, &specs, allowed, Some(&pool))?;
    if flags.dry_run {
        say!(session, "would update '{name}' to the following configuration:\n");
        vdev_spec::print_grown_layout(session, &pool, flags.naming, &specs);
        return Ok(0);
    }
    let request = PoolAdd {
        name: name.clone(),
        vdevs: specs,
        force: allowed.in_use,
        any_ashift: flags.force || flags.any_ashift,
        ashift: flags.ashift,
    };
    session.perform(Request::PoolAdd(request)).map_err(|failure| session.failed(&action, &failure))?;
    Ok(0)
}
