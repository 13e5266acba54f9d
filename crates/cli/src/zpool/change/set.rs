//! `zpool set`

use ondisk::feature::Feature;
use tarnfs::control::{DeviceVerb, PoolDevice, PoolSelect, PoolSet, Request, Wanted, compatibility};

use crate::properties::columns::Scope;
use crate::properties::effectless;
use crate::properties::settings::{self, When};
use crate::session::{Outcome, Session, Stop, complain};
use crate::zpool::show::get::vdevs::find_vdev;
use crate::zpool::spec::pools;

/// `EINVAL`, which is what this command exits with when the pool is none.
const NOT_A_POOL: u8 = 22;

pub(in crate::zpool) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    if let Some(letter) = words.first().and_then(|word| word.strip_prefix('-')) {
        let letter: String = letter.chars().take(1).collect();
        return Err(session.misuse(format_args!("invalid option '{letter}'")));
    }
    let (pair, name) = match words {
        [] => return Err(session.misuse("missing property=value argument")),
        [_] => return Err(session.misuse("missing pool name")),
        [pair, name] => (pair, name),
        [pair, name, vdev] => return set_of_vdev(session, pair, name, vdev),
        _ => return Err(session.misuse("too many pool names")),
    };
    let Some((property, value)) = settings::split(pair) else {
        return Err(session.misuse("missing value in property=value argument"));
    };
    if !pools::exists(session, name) {
        complain!(session, "cannot open '{name}': is not a pool");
        pools::hint(session, name);
        return Ok(NOT_A_POOL);
    }
    check_compatibility(session, name, property)?;
    let pairs = [(property.to_owned(), value.to_owned())];
    let checked = settings::pool_settings(&pairs, When::Existing);
    let done = checked.and_then(|settings| session.perform(Request::PoolSet(PoolSet { name: name.clone(), settings })));
    match done {
        Ok(()) => {
            effectless::warn(session, Scope::Pool, &pairs);
            Ok(0)
        }
        Err(failure) => Err(session.failed(format_args!("cannot set property for '{name}'"), &failure)),
    }
}

/// Settings of vdevs that are kept, and do nothing.
const IDLE: [&str; 2] = ["failfast", "slow_io_events"];

fn set_of_vdev(session: &mut Session<'_>, pair: &str, name: &str, vdev: &str) -> Outcome {
    let Some((property, value)) = settings::split(pair) else {
        return Err(session.misuse("missing value in property=value argument"));
    };
    if !pools::exists(session, name) {
        complain!(session, "cannot open '{name}': is not a pool");
        pools::hint(session, name);
        return Ok(NOT_A_POOL);
    }
    let (statuses, code) = pools::statuses(session, std::slice::from_ref(&name.to_owned()));
    let Some(status) = statuses.first() else { return Ok(code) };
    let Some((guid, shown)) = find_vdev(status, vdev) else {
        let shown = if vdev == "root" { "root-0" } else { vdev };
        complain!(session, "cannot find '{shown}' in '{name}': device not in pool");
        return Ok(NOT_A_POOL);
    };
    let done = settings::vdev_setting(property, value).and_then(|setting| {
        session.perform(Request::PoolDevice(PoolDevice { name: name.to_owned(), verb: DeviceVerb::SetProperty { guid, setting } }))
    });
    match done {
        Ok(()) => {
            if IDLE.contains(&property) {
                complain!(session, "warning: '{property}={value}' is kept for OpenZFS and has no effect here");
            }
            Ok(0)
        }
        Err(failure) => Err(session.failed(format_args!("cannot set property {property} for {shown} on {name}"), &failure)),
    }
}

/// A feature that the pool's `compatibility` does not allow is not enabled by itself either.
fn check_compatibility(session: &mut Session<'_>, name: &str, property: &str) -> Result<(), Stop> {
    let Some(feature) = property.strip_prefix("feature@").and_then(Feature::from_name) else { return Ok(()) };
    let select = PoolSelect { name: Some(name.to_owned()), properties: Wanted::Only(vec!["compatibility".to_owned()]) };
    let pools = session.pools(Request::PoolGet(select)).unwrap_or_default();
    let Some(value) = pools.iter().flat_map(|pool| &pool.properties).find_map(|property| property.value.text()) else { return Ok(()) };
    match compatibility::load(value) {
        Ok(allowed) if allowed.allows(feature) => Ok(()),
        Ok(_) => {
            complain!(session, "cannot set property for '{name}': '{property}' is not in the features that its 'compatibility' allows ({value})");
            Err(Stop::Code(1))
        }
        Err(failure) => Err(session.failed(format_args!("cannot set property for '{name}'"), &failure)),
    }
}
