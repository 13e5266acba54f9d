//! `zfs unmount`

use std::path::Path;

use tarnfs::control::{DatasetKinds, DatasetUnmount, Request};

use super::mount::{self, mountpoint, number};
use crate::session::{Outcome, Session, complain};
use crate::text::getopt::Options;
use crate::zfs::datasets;

const CAN_MOUNT_NOAUTO: u64 = 2;

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
    // What is below goes first.
    mounts.sort_by(|a, b| b.mountpoint.cmp(&a.mountpoint));
    let mut code = 0;
    for mount in mounts {
        let kinds = DatasetKinds::NONE.with(mount::KIND);
        let Ok(entry) = datasets::open(session, &mount.dataset, kinds, mount::PROPERTIES) else {
            code = 1;
            continue;
        };
        if mountpoint(&entry) != "legacy" && number(&entry, "canmount") != Some(CAN_MOUNT_NOAUTO) {
            code |= unmount(session, &mount.dataset, Some(&mount.mountpoint), false, flags);
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
    if let Some(mount) = mounts.iter().find(|mount| mount.mountpoint == trimmed) {
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
