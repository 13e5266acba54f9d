//! `zpool create`

use engine::dsl::prop_table::{self, DatasetTypes};
use engine::pool::config::VERSION_FEATURES;
use ondisk::feature::Feature;
use tarnfs::control::compatibility::{self, Allowed};
use tarnfs::control::{CommandLine, Failure, FailureKind, FeatureChoice, PoolCreate, Request, Setting, VdevSpec};

use crate::properties::columns::{self, Scope};
use crate::properties::effectless;
use crate::properties::settings::{self, When};
use crate::session::{Outcome, Session, Stop, complain, say};
use crate::text::getopt::Options;
use crate::text::names;
use crate::zpool::spec::vdev_spec;

#[derive(Default)]
struct Flags {
    force: bool,
    dry_run: bool,
    no_features: bool,
    altroot: Option<String>,
    mountpoint: Option<String>,
    temporary_name: Option<String>,
    pool: Vec<(String, String)>,
    dataset: Vec<(String, String)>,
}

fn stop(session: &mut Session<'_>, words: std::fmt::Arguments<'_>) -> Stop {
    complain!(session, "{words}");
    Stop::Code(1)
}

fn add(session: &mut Session<'_>, pairs: &mut Vec<(String, String)>, name: &str, given: &str, value: &str) -> Result<(), Stop> {
    if pairs.iter().any(|(known, _)| known == name) && name != "cachefile" {
        return Err(stop(session, format_args!("property '{given}' specified multiple times")));
    }
    pairs.retain(|(known, _)| known != name);
    pairs.push((name.to_owned(), value.to_owned()));
    Ok(())
}

fn no_property(session: &mut Session<'_>, name: &str, scope: Scope, what: &str) -> Stop {
    let stop = stop(session, format_args!("property '{name}' is not a valid {what} property"));
    columns::hint(session, name, scope);
    stop
}

/// A pool property of `-o`, of create and import.
pub(super) fn add_pool(session: &mut Session<'_>, pairs: &mut Vec<(String, String)>, name: &str, value: &str) -> Result<(), Stop> {
    let is_feature = name.starts_with("feature@");
    let full = match engine::pool::prop_table::find(name) {
        Some(property) => property.name,
        None if is_feature => name,
        None => return Err(no_property(session, name, Scope::Pool, "pool or vdev")),
    };
    let given = |wanted: &dyn Fn(&str) -> bool| pairs.iter().any(|(known, _)| wanted(known));
    if (is_feature && given(&|known| known == "version")) || (full == "version" && given(&|known| known.starts_with("feature@"))) {
        return Err(stop(session, format_args!("'feature@' and 'version' properties cannot be specified together")));
    }
    add(session, pairs, full, name, value)
}

/// Sets a pool property unless it was given.
pub(super) fn add_default(pairs: &mut Vec<(String, String)>, name: &str, value: &str) {
    if !pairs.iter().any(|(known, _)| known == name) {
        pairs.push((name.to_owned(), value.to_owned()));
    }
}

fn add_dataset(session: &mut Session<'_>, flags: &mut Flags, name: &str, value: &str) -> Result<(), Stop> {
    if name == "mountpoint" {
        flags.mountpoint = Some(value.to_owned());
        return Ok(());
    }
    let property = prop_table::find(name).filter(|property| property.applies_to(DatasetTypes::FILESYSTEM));
    let full = match property {
        Some(property) => property.name,
        None if prop_table::is_user_property(name) || prop_table::is_space_property(name) => name,
        None => return Err(no_property(session, name, Scope::Dataset, "filesystem")),
    };
    add(session, &mut flags.dataset, full, name, value)
}

fn parse(session: &mut Session<'_>, words: &[String]) -> Result<(Flags, Vec<String>), Stop> {
    let mut flags = Flags::default();
    let mut options = Options::new(words, ":fndR:m:o:O:t:", &[]);
    for option in options.by_ref() {
        let (letter, argument) = option.map_err(|wrong| session.misuse(wrong))?;
        let argument = argument.unwrap_or_default();
        match letter {
            'f' => flags.force = true,
            'n' => flags.dry_run = true,
            'd' => flags.no_features = true,
            'R' => {
                add_pool(session, &mut flags.pool, "altroot", &argument)?;
                add_default(&mut flags.pool, "cachefile", "none");
                flags.altroot = Some(argument);
            }
            'm' => flags.mountpoint = Some(argument),
            'o' | 'O' => {
                let Some((name, value)) = settings::split(&argument) else {
                    return Err(stop(session, format_args!("missing '=' for -{letter} option")));
                };
                if letter == 'o' {
                    add_pool(session, &mut flags.pool, name, value)?;
                    if name == "altroot" {
                        flags.altroot = Some(value.to_owned());
                    }
                } else {
                    add_dataset(session, &mut flags, name, value)?;
                }
            }
            _ => {
                if argument.contains('/') {
                    complain!(session, "cannot create '{argument}': invalid character '/' in temporary name");
                    return Err(stop(session, format_args!("use 'zfs create' to create a dataset")));
                }
                add_default(&mut flags.pool, "cachefile", "none");
                flags.temporary_name = Some(argument);
            }
        }
    }
    Ok((flags, options.operands()))
}

pub(in crate::zpool) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let (flags, operands) = parse(session, words)?;
    let Some((name, vdevs)) = operands.split_first() else {
        return Err(session.misuse("missing pool name argument"));
    };
    if vdevs.is_empty() {
        return Err(session.misuse("missing vdev specification"));
    }
    if name.contains('/') {
        complain!(session, "cannot create '{name}': invalid character '/' in pool name");
        return Err(stop(session, format_args!("use 'zfs create' to create a dataset")));
    }
    check_ashift(session, &flags)?;
    let specs = vdev_spec::parse(session, vdevs, false)?;
    vdev_spec::check(session, &specs, vdev_spec::Allowed { in_use: flags.force, any_redundancy: flags.force }, None)?;
    check_mountpoint(session, name, &flags)?;
    if flags.dry_run {
        say!(session, "would create '{name}' with the following layout:\n");
        vdev_spec::print_layout(session, name, &specs);
        return Ok(0);
    }
    let made = request(name, &flags, specs, session.history.command()).and_then(|create| session.perform(Request::PoolCreate(create)));
    if let Err(failure) = made {
        let stop = session.failed(format_args!("cannot create '{name}'"), &failure);
        if failure.kind == FailureKind::InvalidName {
            complain!(session, "pool name may have been omitted");
        }
        return Err(stop);
    }
    effectless::warn(session, Scope::Pool, &flags.pool);
    effectless::warn(session, Scope::Dataset, &flags.dataset);
    let root = flags.temporary_name.as_deref().unwrap_or(name);
    crate::zfs::mount_root(session, root)
}

fn check_ashift(session: &mut Session<'_>, flags: &Flags) -> Result<(), Stop> {
    let Some((_, text)) = flags.pool.iter().find(|(name, _)| name == "ashift") else { return Ok(()) };
    match tarnfs::control::parse_size(text) {
        Err(_) => Err(stop(session, format_args!("ashift must be a number."))),
        Ok(shift) if shift != 0 && !(9..=16).contains(&shift) => {
            Err(stop(session, format_args!("invalid 'ashift={shift}' property: only values between 9 and 16 are allowed.")))
        }
        Ok(_) => Ok(()),
    }
}

/// The place where the pool will be mounted must be free.
fn check_mountpoint(session: &mut Session<'_>, name: &str, flags: &Flags) -> Result<(), Stop> {
    let altroot = flags.altroot.as_deref();
    if let Some(altroot) = altroot.filter(|altroot| !altroot.starts_with('/')) {
        return Err(stop(session, format_args!("invalid alternate root '{altroot}': must be an absolute path")));
    }
    let root = altroot.unwrap_or("");
    let path = match flags.mountpoint.as_deref() {
        Some("legacy" | "none") => return Ok(()),
        Some(path) if !path.starts_with('/') => {
            return Err(stop(session, format_args!("invalid mountpoint '{path}': must be an absolute path, 'legacy', or 'none'")));
        }
        Some(path) => format!("{root}{path}"),
        None => format!("{root}/{name}"),
    };
    match std::fs::read_dir(&path) {
        Ok(mut entries) => {
            if entries.next().is_some() {
                complain!(session, "mountpoint '{path}' exists and is not empty");
                return Err(stop(session, format_args!("use '-m' option to provide a different default")));
            }
            Ok(())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => {
            complain!(session, "mountpoint '{path}' : {}", error);
            Err(stop(session, format_args!("use '-m' option to provide a different default")))
        }
    }
}

fn request(name: &str, flags: &Flags, vdevs: Vec<VdevSpec>, command: CommandLine) -> Result<PoolCreate, Failure> {
    names::check_pool(name, true)?;
    let mut properties = settings::pool_settings(&flags.pool, When::Creating)?;
    let mut dataset = flags.dataset.clone();
    if let Some(mountpoint) = &flags.mountpoint {
        dataset.push(("mountpoint".to_owned(), mountpoint.clone()));
    }
    let dataset_properties = settings::dataset_settings(&dataset, DatasetTypes::FILESYSTEM, When::Creating)?;
    vdev_spec::check_possible(&vdevs)?;
    let features = features(&mut properties, flags.no_features)?;
    Ok(PoolCreate {
        command,
        name: name.to_owned(),
        temporary_name: flags.temporary_name.clone(),
        vdevs,
        force: flags.force,
        properties,
        features,
        dataset_properties,
    })
}

/// Takes the features out of the settings: which to enable.
fn features(properties: &mut Vec<Setting>, none: bool) -> Result<FeatureChoice, Failure> {
    let mut enabled = Vec::new();
    let mut disabled = Vec::new();
    properties.retain(|setting| {
        let Some(feature) = setting.name.strip_prefix("feature@") else { return true };
        if setting.value.text() == Some("enabled") { enabled.push(feature.to_owned()) } else { disabled.push(feature.to_owned()) }
        false
    });
    let is_old = properties.iter().any(|setting| setting.name == "version" && setting.value.number() != Some(VERSION_FEATURES));
    if none || is_old {
        return Ok(FeatureChoice { all_others: false, enabled, disabled });
    }
    let compatibility = properties.iter().find(|setting| setting.name == "compatibility").and_then(|setting| setting.value.text());
    if let Allowed::These(features) = compatibility::load(compatibility.unwrap_or(""))? {
        let wanted = Feature::for_new_pools().filter(|feature| features.contains(feature)).map(|feature| feature.name().to_owned());
        enabled.extend(wanted.filter(|name| !disabled.contains(name)).collect::<Vec<_>>());
        return Ok(FeatureChoice { all_others: false, enabled, disabled });
    }
    Ok(FeatureChoice { all_others: true, enabled, disabled })
}
