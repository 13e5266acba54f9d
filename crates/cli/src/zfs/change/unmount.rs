//! `zfs unmount`

use std::collections::HashSet;
use std::path::Path;

use tarnfs::control::{DatasetKinds, DatasetUnmount, Mount, Request, Wanted};

use super::mount::{self, mountpoint, number};
use crate::session::{Outcome, Session, complain};
use crate::text::getopt::Options;
use crate::zfs::datasets::{self, Query};

const CAN_MOUNT_NOAUTO: u64 = 2;
/// What says whether `-a` means it.
const PROPERTIES: &[&str] = &["mountpoint", "canmount"];

#[derive(Clone, Copy, Default)]
struct Flags {
    force: bool,
    unload_key: bool,
}

pub(in crate::zfs) fn run(session: &mut Session<'_>, words: &[String]) -> Outcome {
    let mut options = Options::new(words, "afu", &[]);
    let mut flags = Flags::default();
    let mut all = false;
    for option in options.by_ref() {
        match option.map_err(|wrong| session.misuse(wrong))?.0 {
            'a' => all = true,
            'f' => flags.force = true,
            _ => flags.unload_key = true,
        }
    }
    let operands = options.operands();
    match operands.as_slice() {
        [] if all => unmount_all(session, flags),
        [] => Err(session.misuse("missing filesystem argument")),
        [path] if !all && path.starts_with('/') => unmount_path(session, path, flags),
        [name] if !all => unmount_named(session, name, None, flags),
        _ => Err(session.misuse("too many arguments")),
    }
}

fn unmount(session: &mut Session<'_>, name: &str, at: Option<&str>, tree: bool, flags: Flags) -> u8 {
    let at = at.map(str::to_owned);
    let request = DatasetUnmount { name: name.to_owned(), at, tree, force: flags.force, unload_key: flags.unload_key };
    match session.perform(Request::DatasetUnmount(request)) {
        Ok(()) => 0,
        Err(failure) => {
            session.failed(format_args!("cannot unmount '{name}'"), &failure);
            1
        }
    }
}

fn unmount_all(session: &mut Session<'_>, flags: Flags) -> Outcome {
    let mut mounts = session.mounts().map_err(|failure| session.failed("cannot list mounts", &failure))?;
    mounts.retain(|mount| !mount.dataset.contains('@'));
    // What is below goes first, and of what is in one place what was mounted last.
    mounts.reverse();
    mounts.sort_by(|a, b| b.mountpoint.cmp(&a.mountpoint));
    let mut query = Query::new(DatasetKinds::NONE.with(mount::KIND), Wanted::Only(PROPERTIES.iter().map(|name| (*name).to_owned()).collect()));
    query.recurse = true;
    let (entries, mut code) = datasets::gather(session, &[], &query)?;
    let stays: HashSet<&str> = entries.iter().filter(|entry| mountpoint(entry) == "legacy" || number(entry, "canmount") == Some(CAN_MOUNT_NOAUTO)).map(|entry| entry.name.as_str()).collect();
    mounts.retain(|mount| !stays.contains(mount.dataset.as_str()));
    let request = |Mount { dataset, mountpoint }: &Mount| DatasetUnmount { name: dataset.clone(), at: Some(mountpoint.clone()), tree: false, force: flags.force, unload_key: flags.unload_key };
    for some in mounts.chunks(mount::AT_ONCE) {
        let asked = Request::DatasetsUnmount(some.iter().map(request).collect());
        let failures = session.unmounted(asked).map_err(|failure| session.failed("cannot unmount", &failure))?;
        for (mount, failure) in some.iter().zip(failures) {
            if let Some(failure) = failure {
                session.failed(format_args!("cannot unmount '{}'", mount.dataset), &failure);
                code = 1;
            }
        }
    }
    Ok(code)
}

fn unmount_named(session: &mut Session<'_>, name: &str, at: Option<&str>, flags: Flags) -> Outcome {
    let entry = datasets::open(session, name, DatasetKinds::NONE.with(mount::KIND), mount::PROPERTIES)?;
    if mountpoint(&entry) == "legacy" {
        complain!(session, "cannot unmount '{name}': legacy mountpoint");
        complain!(session, "use umount(8) to unmount this filesystem");
        return Ok(1);
    }
    if number(&entry, "mounted") != Some(1) {
        complain!(session, "cannot unmount '{name}': not currently mounted");
        return Ok(1);
    }
    Ok(unmount(session, name, at, true, flags))
}

fn unmount_path(session: &mut Session<'_>, path: &str, flags: Flags) -> Outcome {
    let mounts = session.mounts().map_err(|failure| session.failed(format_args!("cannot unmount '{path}'"), &failure))?;
    let trimmed = if path.len() > 1 { path.trim_end_matches('/') } else { path };
    // Of several in one place the last one is seen, and meant.
    if let Some(mount) = mounts.iter().rev().find(|mount| mount.mountpoint == trimmed) {
        return unmount_named(session, &mount.dataset, Some(&mount.mountpoint), flags);
    }
    // Another way to the same directory: through a symbolic link, or with a slash that the property has.
    match datasets::mount_at(&mounts, Path::new(path)) {
        Some((mount, true)) => unmount_named(session, &mount.dataset, Some(&mount.mountpoint), flags),
        Some((_, false)) => {
            complain!(session, "cannot unmount '{path}': not a mountpoint");
            Ok(1)
        }
        None => {
            complain!(session, "cannot unmount '{path}': not a ZFS filesystem");
            Ok(1)
        }
    }
}
