//! Checks the owners of the paths where a daemon and its callers meet.
//!
//! # Theory
//! A command does what its daemon says (it runs a program in the directory that it is told), and a daemon does what its
//! callers say. A user that can put something into the directory where they meet can stand in for either, or have them
//! write where a link leads. So each directory and each link on the way, and the file at its end, must belong to us or
//! to root and be writable by no one else: then no other user can have changed it, or can change it between the check
//! and the use. In a sticky directory (`/tmp`) anyone may make files and no one may touch another's; there the owner of
//! the file decides.
//!
//! A user's own group, which has the user's number and by custom no other member, counts as the user. In a user
//! namespace all owners that are unknown there (mostly root of the machine) share one number: their directories are
//! taken as root's.
//!
//! # Path
//! [`DaemonPaths`](crate::DaemonPaths), [`Client`](crate::Client), [`ControlSocket`](crate::ControlSocket) → here

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Component, Path, PathBuf};

use rustix::process::geteuid;
use tarnfs::control::Caller;

/// The most links on one way, as in the kernel.
const LINKS_MAX: usize = 40;
const STICKY: u32 = 0o1000;
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
/// What a user should do about it.
const REMEDY: &str = "remove it, or set TARN_SOCKET to a path in a directory of yours that nobody else may write to (another user's daemon answers that user only)";

/// What should stand at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Thing {
    Socket,
    File,
}

fn refusal(path: &Path, why: impl std::fmt::Display) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, format!("{}: {why}; {REMEDY}", path.display()))
}

/// Adds the path to an error of the system.
pub(crate) fn named(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    let path = path.to_owned();
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn is_ours(uid: u32) -> bool {
    uid == 0 || uid == geteuid().as_raw()
}

/// Whether this is the number of all owners that are unknown in this user namespace.
fn is_unmapped(uid: u32) -> bool {
    let overflow = fs::read_to_string("/proc/sys/kernel/overflowuid").ok().and_then(|text| text.trim().parse().ok());
    let maps = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let covers = |line: &str| {
        let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        matches!(numbers[..], [first, _, count] if (first..first.saturating_add(count)).contains(&uid.into()))
    };
    overflow == Some(uid) && !maps.is_empty() && !maps.lines().any(covers)
}

fn check_owner(path: &Path, found: &Metadata) -> io::Result<()> {
    if is_ours(found.uid()) || (found.is_dir() && is_unmapped(found.uid())) {
        return Ok(());
    }
    Err(refusal(path, format_args!("it belongs to user {}", found.uid())))
}

/// Whether no other user can write to it. An access control list shows as rights of the group.
fn is_closed(path: &Path, found: &Metadata) -> bool {
    let has_list = || rustix::fs::lgetxattr(path, c"system.posix_acl_access", &mut [0u8; 0]).is_ok_and(|bytes| bytes > 0);
    let group_may = found.mode() & GROUP_WRITES != 0 && (found.gid() != found.uid() || has_list());
    !group_may && found.mode() & OTHERS_WRITE == 0
}

fn names_of(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    let name = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(name).collect::<Vec<_>>().into_iter()
}

/// The metadata of a path. If it is missing and `make`, it is made as a directory for its owner alone.
fn look(path: &Path, make: bool) -> io::Result<Option<Metadata>> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound && make => match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(named(path)(error)),
            _ => fs::symlink_metadata(path).map(Some).map_err(named(path)),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        found => found.map(Some).map_err(named(path)),
    }
}

/// Follows the way to a directory; `make`: makes it where it is missing. Returns its real path and metadata; `None`: it
/// is not there.
fn walk(path: &Path, make: bool) -> io::Result<Option<(PathBuf, Metadata)>> {
    let mut at = PathBuf::from("/");
    let mut left: Vec<OsString> = names_of(path).rev().collect();
    let mut links = 0;
    let mut last = fs::symlink_metadata(&at)?;
    while let Some(name) = left.pop() {
        if name == ".." {
            at.pop();
            last = fs::symlink_metadata(&at).map_err(named(&at))?;
            continue;
        }
        let next = at.join(name);
        let Some(found) = look(&next, make)? else { return Ok(None) };
        check_owner(&next, &found)?;
        if found.is_symlink() {
            links += 1;
            if links > LINKS_MAX {
                return Err(refusal(path, "too many symbolic links lead there"));
            }
            let target = fs::read_link(&next).map_err(named(&next))?;
            left.extend(names_of(&target).rev());
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            continue;
        }
        if !found.is_dir() {
            return Err(refusal(&next, "it is not a directory"));
        }
        if found.mode() & STICKY == 0 && !is_closed(&next, &found) {
            return Err(refusal(&next, "others may write to it"));
        }
        (at, last) = (next, found);
    }
    Ok(Some((at, last)))
}

/// Whether the directory is there, and the way to it is safe.
pub(crate) fn directory(path: &Path) -> io::Result<bool> {
    walk(path, false).map(|found| found.is_some())
}

/// Makes a directory, and those on the way, where they are missing.
pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    walk(path, true).map(|_| ())
}

/// As [`make_directory`], for one in which nobody else may make things at all, and which is itself no link.
pub(crate) fn make_private_directory(path: &Path) -> io::Result<()> {
    let Some((at, found)) = walk(path, true)? else { return Ok(()) };
    if fs::symlink_metadata(path).map_err(named(path))?.is_symlink() {
        return Err(refusal(path, "it is a symbolic link"));
    }
    if is_closed(&at, &found) { Ok(()) } else { Err(refusal(&at, "others may write to it")) }
}

fn check_thing(path: &Path, found: &Metadata, thing: Thing) -> io::Result<()> {
    let kind = found.file_type();
    match thing {
        _ if kind.is_symlink() => return Err(refusal(path, "it is a symbolic link")),
        Thing::Socket if !kind.is_socket() => return Err(refusal(path, "it is not a socket")),
        Thing::File if !kind.is_file() => return Err(refusal(path, "it is not a regular file")),
        // It may be a hard link to a file that matters to us.
        Thing::File if found.nlink() > 1 => return Err(refusal(path, "it has another name")),
        Thing::Socket | Thing::File => {}
    }
    check_owner(path, found)
}

/// Whether a thing stands at the end of a checked way.
pub(crate) fn is_there(path: &Path, thing: Thing) -> io::Result<bool> {
    let Some(found) = look(path, false)? else { return Ok(false) };
    check_thing(path, &found, thing).map(|()| true)
}

/// Opens a file at the end of a checked way, or makes it, for its owner alone.
pub(crate) fn open_file(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    is_there(path, Thing::File)?;
    let file =
        options.create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path).map_err(named(path))?;
    check_thing(path, &file.metadata()?, Thing::File)?;
    Ok(file)
}

/// Checks that the process at the other end runs as a user that may be trusted.
pub(crate) fn check_peer(stream: &UnixStream, socket: &Path) -> io::Result<()> {
    let uid = fuse::peer(stream)?.uid;
    if is_ours(uid) { Ok(()) } else { Err(refusal(socket, format_args!("a process of user {uid} is at the other end"))) }
}

/// The caller at the other end. A user's daemon listens to that user and to root; root's to everybody, who may do what the pool grants.
pub(crate) fn caller(stream: &UnixStream, socket: &Path) -> io::Result<Caller> {
    let peer = fuse::peer(stream)?;
    if is_ours(peer.uid) {
        return Ok(Caller::superuser(peer.uid.into()));
    }
    if !geteuid().is_root() {
        return Err(refusal(socket, format_args!("a process of user {} is at the other end", peer.uid)));
    }
    let groups = [peer.gid].into_iter().chain(fuse::peer_groups(stream)?).map(u64::from).collect();
    Ok(Caller::delegate(peer.uid.into(), groups))
}

#[cfg(test)]
mod tests;
