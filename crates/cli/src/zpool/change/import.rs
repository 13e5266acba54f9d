//! `zpool import`

use std::path::{Path, PathBuf};

use tarnfs::control::scan::missing_logs;
use tarnfs::control::{Failure, FailureKind, FoundPool, ImportRewound, PoolImport, PoolScan, PoolSelect, PoolState, Request, VdevStatus, Wanted};

use super::create::{add_default, add_pool};
use super::found;
use crate::properties::columns::Scope;
use crate::properties::effectless;
use crate::properties::settings::{self, When};
use crate::session::{Outcome, Session, Stop, complain, say};
use crate::text::getopt::{Long, Options};
use crate::text::names;
use crate::text::suggest;
use crate::text::units::clock_time;
use crate::zpool::spec::cachefile;
use crate::zpool::spec::vdev_name::Naming;
use crate::zpool::spec::vdev_spec::check_access;

const LONG: &[Long] = &[("rewind-to-checkpoint", 'k')];
const LOOKED_IN_DEV: &str = "pools were looked for in /dev: '-d DIRECTORY' looks for those on images there";

#[derive(Default)]
struct Flags {
    all: bool,
    cache_file: Option<String>,
    directories: Vec<PathBuf>,
    destroyed: bool,
    force: bool,
    rewind: bool,
    extreme: bool,
    load_keys: bool,
    missing_log: bool,
    dry_run: bool,
    no_mount: bool,
    mount_options: Vec<String>,
    pool: Vec<(String, String)>,
    scan: bool,
    temporary_name: bool,
    txg_max: Option<u64>,
    to_checkpoint: bool,
}

fn parse(session: &mut Session<'_>, words: &[String]) -> Result<(Flags, Vec<String>), Stop> {
    let mut flags = Flags::default();
    let mut options = Options::new(words, ":aCc:d:DEfFlmnNo:R:stT:VX", LONG);
    for option in options.by_ref() {
        let (letter, argument) = option.map_err(|wrong| session.misuse(wrong))?;
        let argument = argument.unwrap_or_default();
        match letter {
            'a' => flags.all = true,
            'c' => flags.cache_file = Some(argument),
            'd' => flags.directories.push(argument.into()),
            'D' => flags.destroyed = true,
            'f' => flags.force = true,
            'F' => flags.rewind = true,
            'l' => flags.load_keys = true,
            'm' => flags.missing_log = true,
            'n' => flags.dry_run = true,
            'N' => flags.no_mount = true,
            'o' => match settings::split(&argument) {
                Some((name, value)) => add_pool(session, &mut flags.pool, name, value)?,
                None => flags.mount_options = argument.split(',').map(str::to_owned).collect(),
            },
            'R' => {
                add_pool(session, &mut flags.pool, "altroot", &argument)?;
                add_default(&mut flags.pool, "cachefile", "none");
            }
            's' => flags.scan = true,
            't' => {
                flags.temporary_name = true;
                add_default(&mut flags.pool, "cachefile", "none");
            }
            'T' => flags.txg_max = Some(argument.parse().map_err(|_| session.misuse("invalid txg value"))?),
            'X' => flags.extreme = true,
            'k' => flags.to_checkpoint = true,
            _ => {}
        }
    }
    check(session, &flags, &options.operands()).map(|operands| (flags, operands))
}

fn check(session: &mut Session<'_>, flags: &Flags, operands: &[String]) -> Result<Vec<String>, Stop> {
    for (wrong, words) in [
        (flags.cache_file.is_some() && !flags.directories.is_empty(), "-c is incompatible with -d"),
        (flags.cache_file.is_some() && flags.scan, "-c is incompatible with -s"),
        (flags.load_keys && flags.no_mount, "-l is incompatible with -N"),
        (flags.load_keys && !flags.all && operands.is_empty(), "-l is only meaningful during an import"),
        ((flags.dry_run || flags.extreme) && !flags.rewind, "-n or -X only meaningful with -F"),
        (operands.len() > if flags.all { 0 } else { 2 }, "too many arguments"),
    ] {
        if wrong {
            return Err(session.misuse(words));
        }
    }
    Ok(operands.to_vec())
}

pub(in crate::zpool) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let (mut flags, operands) = parse(session, words)?;
    if flags.directories.is_empty()
        && let Some(path) = std::env::var_os("ZPOOL_IMPORT_PATH")
    {
        flags.directories = std::env::split_paths(&path).collect();
    }
    let cached = match &flags.cache_file {
        Some(path) => Some(cachefile::read(path).map_err(|words| {
            complain!(session, "{words}");
            Stop::Code(1)
        })?),
        None => None,
    };
    if let Some(cached) = &cached {
        flags.directories = cached.places();
    }
    flags.directories = flags.directories.iter().map(|path| whole_path(path)).collect();
    let scan = PoolScan { paths: flags.directories.clone(), destroyed: flags.destroyed };
    let mut found = session.found(Request::PoolScan(scan)).map_err(|failure| session.failed("cannot discover pools", &failure))?;
    found.retain(|pool| (pool.status.state == PoolState::Destroyed) == flags.destroyed);
    if let Some(cached) = &cached {
        found.retain(|pool| cached.guids.contains(&pool.status.guid));
    }
    match operands.as_slice() {
        [] if flags.all => import_all(session, &flags, &found),
        [] => {
            for (index, pool) in found.iter().enumerate() {
                if index > 0 {
                    say!(session, "");
                }
                found::print(session, pool);
            }
            complain_if_none(session, &found, &flags.directories);
            Ok(0)
        }
        [wanted, rest @ ..] => import_one(session, &flags, &found, wanted, rest.first().map(String::as_str)),
    }
}

/// A place for the daemon, which may be in another directory. The last name of a device is kept: where it is a link, as in `/dev/disk/by-id`, the pool is to
/// have the link as the path, and not what it leads to today.
fn whole_path(path: &Path) -> PathBuf {
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    let whole = if path.is_dir() {
        real(path)
    } else {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        path.file_name().and_then(|name| Some(real(parent)?.join(name)))
    };
    whole.unwrap_or_else(|| path.to_path_buf())
}

fn complain_if_none(session: &mut Session<'_>, found: &[FoundPool], directories: &[PathBuf]) {
    if found.is_empty() {
        complain!(session, "no pools available to import");
        say_where(session, directories);
    }
}

/// Where nothing was found.
fn say_where(session: &mut Session<'_>, directories: &[PathBuf]) {
    if directories.is_empty() {
        session.hint(LOOKED_IN_DEV);
    }
    for missing in directories.iter().filter(|directory| !directory.exists()) {
        session.hint(format!("there is no '{}'", missing.display()));
    }
}

fn import_all(session: &mut Session<'_>, flags: &Flags, found: &[FoundPool]) -> Outcome {
    complain_if_none(session, found, &flags.directories);
    let mut code = 0;
    for pool in found {
        code |= match import(session, flags, pool, None) {
            Ok(code) | Err(Stop::Code(code)) => code,
            Err(stop) => return Err(stop),
        };
    }
    Ok(code)
}

/// Is a pool of that name or guid imported already?
fn is_imported(session: &mut Session<'_>, wanted: &str) -> bool {
    let guid: Option<u64> = wanted.parse().ok();
    let select = PoolSelect { name: None, properties: Wanted::Only(Vec::new()) };
    let pools = session.pools(Request::PoolGet(select)).unwrap_or_default();
    pools.iter().any(|pool| guid.map_or(pool.name == wanted, |guid| pool.guid == guid))
}

fn import_one(session: &mut Session<'_>, flags: &Flags, found: &[FoundPool], wanted: &str, new_name: Option<&str>) -> Outcome {
    let exists = is_imported(session, wanted);
    if exists && new_name.is_none_or(|new| new == wanted) {
        complain!(session, "cannot import '{wanted}': a pool with that name already exists");
        complain!(session, "use the form 'zpool import <pool | id> <newpool>' to give it a new name");
        return Ok(1);
    }
    let guid: Option<u64> = wanted.parse().ok();
    let mut matching = found.iter().filter(|pool| guid.map_or(pool.status.name == wanted, |guid| pool.status.guid == guid));
    match (matching.next(), matching.next()) {
        (None, _) => {
            complain!(session, "cannot import '{wanted}': no such pool available");
            if let Some(meant) = suggest::closest(wanted, found.iter().map(|pool| pool.status.name.as_str())) {
                session.hint(suggest::line(meant));
            } else if found.is_empty() {
                say_where(session, &flags.directories);
            }
            Ok(1)
        }
        (Some(_), Some(_)) => {
            complain!(session, "cannot import '{wanted}': more than one matching pool");
            complain!(session, "import by numeric ID instead");
            Ok(1)
        }
        (Some(pool), None) => import(session, flags, pool, new_name),
    }
}

/// A device that the caller may not use.
fn forbidden(vdev: &VdevStatus, read_only: bool) -> Option<&str> {
    let is_denied = |path: &&String| {
        check_access(Path::new(path), read_only).is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
    };
    let own = vdev.path.as_ref().filter(is_denied).map(String::as_str);
    own.or_else(|| vdev.children.iter().find_map(|child| forbidden(child, read_only)))
}

fn import(session: &mut Session<'_>, flags: &Flags, found: &FoundPool, new_name: Option<&str>) -> Outcome {
    let status = &found.status;
    if found.other_host && status.state != PoolState::Exported && !flags.force {
        let host = found.hostname.as_deref().unwrap_or("<unknown>");
        let when = clock_time(found.timestamp, &session.zone.clone());
        complain!(session, "cannot import '{}': pool was previously in use from another system.", status.name);
        complain!(session, "Last accessed by {host} (hostid={:x}) at {when}", found.hostid);
        complain!(session, "The pool can be imported, use 'zpool import -f' to import the pool.");
        return Ok(1);
    }
    let name = new_name.unwrap_or(&status.name);
    let action = match new_name {
        Some(new) => format!("cannot import '{}' as '{new}'", status.name),
        None => format!("cannot import '{name}'"),
    };
    let read_only = flags.pool.iter().any(|(name, value)| name == "readonly" && value == "on");
    if let Some(path) = forbidden(&status.root, read_only) {
        complain!(session, "{action}: cannot open '{path}': Permission denied");
        return Ok(1);
    }
    let request = request(flags, found, new_name).map_err(|failure| match (failure.kind, new_name) {
        (FailureKind::InvalidName, Some(new)) => session.failed(format_args!("cannot import '{new}'"), &failure),
        _ => session.failed(format_args!("cannot import pool '{}'", status.name), &failure),
    })?;
    let rewound = session.imported(Request::PoolImport(request)).map_err(|failure| report(session, found, &action, &failure))?;
    say_rewound(session, name, rewound.as_ref(), flags.dry_run);
    if flags.dry_run {
        return Ok(0);
    }
    effectless::warn(session, Scope::Pool, &flags.pool);
    if flags.no_mount {
        return Ok(0);
    }
    let mounted = crate::zfs::mount_pool(session, name, &flags.mount_options, flags.load_keys);
    if mounted != Ok(0) {
        complain!(session, "Import was successful, but unable to mount some datasets");
    }
    Ok(0)
}

/// What was given up to import the pool, or would be.
fn say_rewound(session: &mut Session<'_>, name: &str, rewound: Option<&ImportRewound>, dry_run: bool) {
    let Some(rewound) = rewound else {
        if dry_run {
            say!(session, "Pool {name} can be imported as it is: nothing would be discarded.");
        }
        return;
    };
    let when = clock_time(rewound.timestamp, &session.zone.clone());
    if dry_run {
        say!(session, "Would be able to return {name} to its state as of {when}.");
    } else {
        say!(session, "Pool {name} returned to its state as of {when}.");
    }
    let verb = if dry_run { "Would discard" } else { "Discarded" };
    match rewound.lost_seconds {
        0 => {}
        seconds @ 1..=120 => say!(session, "{verb} approximately {seconds} seconds of transactions."),
        seconds => say!(session, "{verb} approximately {} minutes of transactions.", (seconds + 30) / 60),
    }
}

fn report(session: &mut Session<'_>, found: &FoundPool, action: &str, failure: &Failure) -> Stop {
    if failure.kind == FailureKind::Unsupported && !found.unsupported.is_empty() {
        let lines = found::unsupported_lines(found);
        session.print(format_args!("This pool uses the following feature(s) not supported by this system:\n{lines}"));
        if found.can_read_only {
            say!(session, "All unsupported features are only required for writing to the pool.");
            say!(session, "The pool can be imported using '-o readonly=on'.");
        }
    }
    if failure.kind == FailureKind::OtherHost && failure.message.starts_with("pool has the multihost") {
        complain!(session, "Cannot import '{}': {failure}.", found.status.name);
        return Stop::Code(1);
    }
    let logs = missing_logs(found);
    if failure.kind == FailureKind::NoReplicas && !logs.is_empty() {
        say!(session, "The devices below are missing or corrupted, use '-m' to import the pool anyway:");
        for top in logs {
            say!(session, "\t    {} [log]", Naming::default().name(top, &found.status.name));
            top.children.iter().for_each(|leaf| say!(session, "\t      {}", Naming::default().name(leaf, &found.status.name)));
        }
        say!(session, "");
    }
    let stop = session.failed(action, failure);
    if failure.kind == FailureKind::OtherHost {
        complain!(session, "Export the pool on the other system, then run 'zpool import'.");
    }
    // Where there is other advice, that comes first.
    if matches!(failure.kind, FailureKind::Io | FailureKind::Checksum) && !failure.message.contains('\n') {
        say!(session, "\tDestroy and re-create the pool from\n\ta backup source.");
    }
    stop
}

fn request(flags: &Flags, found: &FoundPool, new_name: Option<&str>) -> Result<PoolImport, Failure> {
    if let Some(name) = new_name {
        names::check_pool(name, true)?;
    }
    Ok(PoolImport {
        guid: found.status.guid,
        name: new_name.unwrap_or(&found.status.name).to_owned(),
        temporary_name: flags.temporary_name,
        paths: flags.directories.clone(),
        properties: settings::pool_settings(&flags.pool, When::Importing)?,
        force: flags.force,
        destroyed: flags.destroyed,
        missing_log: flags.missing_log,
        rewind: flags.rewind,
        extreme: flags.extreme,
        dry_run: flags.dry_run,
        txg_max: flags.txg_max,
        rewind_to_checkpoint: flags.to_checkpoint,
        no_mount: flags.no_mount,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After `zpool import -d LINK` the pool had what the link led to as the path of its device, on disk.
    #[test]
    fn a_link_to_a_device_stays_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let real = std::fs::canonicalize(directory.path()).unwrap();
        let [device, link, links] = ["device", "link", "links"].map(|name| real.join(name));
        std::fs::write(&device, "").unwrap();
        std::os::unix::fs::symlink(&device, &link).unwrap();
        std::os::unix::fs::symlink(&real, &links).unwrap();
        assert_eq!(whole_path(&link), link);
        assert_eq!(whole_path(&links.join("link")), link);
        assert_eq!(whole_path(&links), real);
        assert_eq!(whole_path(Path::new("none")), std::env::current_dir().unwrap().canonicalize().unwrap().join("none"));
        assert_eq!(whole_path(Path::new("/none/at/all")), Path::new("/none/at/all"));
    }
}
