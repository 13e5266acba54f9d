//! `tarn mount`, and the helper of `mount(8)`: mounts a file system or a snapshot where one is told.
//!
//! # Theory
//!
//! `mount -t TYPE FILESYSTEM DIRECTORY`, and so `/etc/fstab`, runs `/sbin/mount.TYPE FILESYSTEM DIRECTORY -o OPTIONS`. A link of
//! such a name to `tarn` makes it that program. Like OpenZFS's helper it takes only file systems whose `mountpoint` is `legacy`,
//! since for others the property says where, unless the option `zfsutil` says that the caller knows that. A snapshot has no such
//! property and is mounted wherever one likes, read-only. A device of a pool stands for the pool's root.
//! The exit codes are those of `mount(8)`, which passes them on.

use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use disk::Access;
use engine::vdev::label::DeviceLabels;
use tarnfs::control::{DatasetEntry, DatasetKind, DatasetKinds, DatasetMount, Request};

use crate::session::{Session, complain, say};
use crate::text::getopt::Options;
use crate::zfs::change::mount;
use crate::zfs::datasets;

/// By these names the program is a helper.
pub(crate) const NAMES: [&str; 3] = ["mount.tarn", "mount.fuse.tarn", "mount.zfs"];

const MOUNTABLE: DatasetKinds = DatasetKinds { filesystem: true, volume: false, snapshot: true, bookmark: false };
/// Exit codes of `mount(8)`: wrong usage, and a mount that failed.
const USAGE: u8 = 1;
const FAILURE: u8 = 32;

/// For `tarn help mount`.
pub(crate) const USAGE_LINE: &str = "\tmount [-fnrsvw] [-o options] <filesystem|snapshot> <directory>\n";
pub(crate) const NOTES: &str = "\
Mounts a snapshot, or a file system whose property 'mountpoint' is 'legacy', on a
directory; with the option zfsutil, any file system. Through links /sbin/mount.tarn and
/sbin/mount.zfs to tarn, 'mount -t tarn', 'mount -t zfs' and /etc/fstab do it too.
Other file systems are mounted by 'tarn zfs mount'.

    -f  do all but the mount    -r  read-only    -v  say what was mounted
    -o  options, with commas between them, as in: -o ro,noatime
";

#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    filesystem: String,
    directory: String,
    options: Vec<String>,
    /// The caller knows that the property `mountpoint` is not `legacy`.
    zfsutil: bool,
    fake: bool,
    verbose: bool,
    /// Unknown options are passed over.
    sloppy: bool,
}

fn parse(words: &[String]) -> Option<Wanted> {
    let mut wanted = Wanted::default();
    let mut options = Options::new(words, ":fnrsvwo:t:N:", &[]);
    for option in options.by_ref() {
        match option.ok()? {
            ('f', _) => wanted.fake = true,
            ('v', _) => wanted.verbose = true,
            ('s', _) => wanted.sloppy = true,
            ('r', _) => wanted.options.push("ro".to_owned()),
            ('o', Some(list)) => wanted.options.extend(list.split(',').filter(|option| !option.is_empty()).map(str::to_owned)),
            // Nothing is written to a table of mounts, and options that we do not know are refused by the daemon.
            _ => {}
        }
    }
    let operands = options.operands();
    let [filesystem, directory] = operands.as_slice() else { return None };
    wanted.zfsutil = wanted.options.iter().any(|option| option == "zfsutil");
    // For whom mount(8) keeps it, and what every mount of ours is.
    wanted.options.retain(|option| !matches!(option.as_str(), "zfsutil" | "user" | "users" | "owner" | "nofail" | "allow_other" | "default_permissions"));
    wanted.filesystem = filesystem.trim_end_matches('/').to_owned();
    wanted.directory.clone_from(directory);
    Some(wanted)
}

/// Runs it.
pub(crate) fn run(session: &mut Session<'_>, words: &[String]) -> u8 {
    let Some(wanted) = parse(words) else {
        complain!(session, "usage:\n{}", USAGE_LINE.trim_end());
        return USAGE;
    };
    let name = &match pool_on(&wanted.filesystem) {
        Some(pool) => pool,
        None => wanted.filesystem.clone(),
    };
    let Ok(entry) = datasets::open(session, name, MOUNTABLE, mount::PROPERTIES) else { return FAILURE };
    if !may_be_mounted_by_hand(session, &entry, &wanted) {
        return FAILURE;
    }
    let directory = match std::path::absolute(&wanted.directory).map(|path| path.into_os_string().into_string()) {
        Ok(Ok(directory)) => directory,
        _ => {
            complain!(session, "cannot mount '{name}': the path '{}' is not valid UTF-8 or has no absolute form", wanted.directory);
            return FAILURE;
        }
    };
    // Where a mount point is missing it is made by `zfs mount`, but not by mount(8), which may be told one that is misspelt.
    let obstacle = match std::fs::metadata(&directory) {
        Ok(found) if found.is_dir() => None,
        Ok(_) => Some(ErrorKind::NotADirectory.into()),
        Err(error) => Some(error),
    };
    if let Some(error) = obstacle {
        complain!(session, "filesystem '{name}' cannot be mounted at '{directory}': {}", words_of(&error));
        return FAILURE;
    }
    if wanted.fake {
        return 0;
    }
    let mut request = DatasetMount {
        name: name.clone(),
        options: wanted.options,
        // As mount(8) always does.
        overlay: true,
        force: false,
        load_key: false,
        at: Some(directory.clone()),
    };
    while let Err(failure) = session.perform(Request::DatasetMount(request.clone())) {
        let unknown = request.options.iter().position(|option| failure.message == format!("invalid mount option '{option}'"));
        match unknown.filter(|_| wanted.sloppy) {
            Some(at) => drop(request.options.remove(at)),
            None => {
                complain!(session, "cannot mount '{name}' on '{directory}': {failure}");
                return FAILURE;
            }
        }
    }
    if wanted.verbose {
        say!(session, "{name} mounted on {directory}");
    }
    0
}

/// Complains where a property says how it is to be mounted. All snapshots count as `legacy`.
fn may_be_mounted_by_hand(session: &mut Session<'_>, entry: &DatasetEntry, wanted: &Wanted) -> bool {
    let (name, is_legacy) = (&entry.name, entry.kind == DatasetKind::Snapshot || mount::mountpoint(entry) == "legacy");
    if entry.kind == DatasetKind::Snapshot && wanted.zfsutil {
        complain!(session, "filesystem '{name}' cannot be mounted using 'zfs mount'.");
        complain!(session, "Use 'mount -t zfs {name} {}'.", wanted.directory);
        return false;
    }
    let asks = |option: &str| wanted.options.iter().any(|given| given == option);
    if entry.kind == DatasetKind::Snapshot && asks("remount") && asks("rw") {
        complain!(session, "cannot mount '{name}' on '{}': a snapshot cannot be written", wanted.directory);
        return false;
    }
    if !is_legacy && !wanted.zfsutil && !wanted.options.iter().any(|option| option == "remount") {
        complain!(session, "filesystem '{name}' cannot be mounted using 'mount'");
        complain!(session, "Use 'zfs set mountpoint=legacy {name}' first, or 'zfs mount {name}'.");
        return false;
    }
    true
}

/// The system's words for an error.
fn words_of(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::NotFound => "No such file or directory",
        ErrorKind::NotADirectory => "Not a directory",
        ErrorKind::PermissionDenied => "Permission denied",
        _ => "it cannot be looked at",
    }
}

/// The pool that a device is of, whose root is meant where it is named instead of a file system.
fn pool_on(device: &str) -> Option<String> {
    let path = Path::new(device);
    if !path.is_absolute() || !std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device()) {
        return None;
    }
    let labels = DeviceLabels::read(&*disk::open(device, Access::Inspect).ok()?);
    // One of txg 0 belongs to none, or to none any more.
    labels.newest_config().filter(|config| config.u64("txg") != Some(0))?.string("name").map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &str) -> Option<Wanted> {
        parse(&words.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn words_as_mount_8_gives_them() {
        let wanted = of("tank/a /mnt/a -n -o rw,noatime,zfsutil").unwrap();
        assert_eq!((wanted.filesystem.as_str(), wanted.directory.as_str(), wanted.zfsutil), ("tank/a", "/mnt/a", true));
        assert_eq!(wanted.options, ["rw", "noatime"]);
        assert!(of("-r tank /mnt").unwrap().options.contains(&"ro".to_owned()));
        assert_eq!(of("tank"), None);
        assert_eq!(of("tank /mnt -Z"), None);
    }
}
