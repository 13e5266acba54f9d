//! Makes and ends mounts: by `mount(2)` as root, by the set-user-id helper `fusermount3` as any other user.
//!
//! Root's mounts are on block devices ([`Partition`]) where that makes `sync` and `umount` wait for the server.
//!
//! The helper opens `/dev/fuse`, mounts it, and passes the descriptor back over a Unix socket whose number it finds in
//! the environment.

use std::io::{self, ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags, openat2, statx};
use rustix::mount::{FsMountFlags, FsOpenFlags, MoveMountFlags, UnmountFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount};
use rustix::net::{AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg, socketpair};

use crate::mounting::errand;
use crate::mounting::partition::Partition;
use crate::mounting::standing::{self, Standing};
use crate::mounting::mount_table;

/// How long the kernel may take to write back what it holds of a mount that is ended by force.
const WRITTEN_WITHIN: Duration = Duration::from_secs(60);

/// How to mount.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// First column of `/proc/mounts`.
    pub source: String,
    /// The type is `fuse.` or `fuseblk.` and this.
    pub subtype: String,
    /// `sync`, `syncfs` and `umount` wait for the server, where the kernel can do that.
    pub durable: bool,
    /// Users other than the one that mounts may enter.
    pub allow_other: bool,
    /// The kernel checks permissions from the attributes.
    pub default_permissions: bool,
    /// No writes.
    pub read_only: bool,
    /// Ignore set-user-id bits; always so for a mount by a user.
    pub no_suid: bool,
    /// Ignore device files; always so for a mount by a user.
    pub no_dev: bool,
    /// Run no programs.
    pub no_exec: bool,
    /// Never update access times.
    pub no_atime: bool,
    /// Never update access times of directories.
    pub no_directory_atime: bool,
    /// Largest read in bytes.
    pub max_read: u32,
    /// The place without symbolic links. The mount fails if its path leads elsewhere by now.
    pub exactly: Option<PathBuf>,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            source: "fuse".to_owned(),
            subtype: "tarn".to_owned(),
            durable: false,
            allow_other: true,
            default_permissions: true,
            read_only: false,
            no_suid: false,
            no_dev: false,
            no_exec: false,
            no_atime: false,
            no_directory_atime: false,
            max_read: 1 << 20,
            exactly: None,
        }
    }
}

/// A mounted file system that is not served yet, or whose session has it.
#[derive(Debug)]
pub struct Mount {
    pub(crate) device: OwnedFd,
    path: PathBuf,
    pub(crate) partition: Option<Partition>,
    pub(crate) standing: Option<Standing>,
}

impl Mount {
    /// Mounts on the directory `path`.
    pub fn new(path: &Path, options: &MountOptions) -> io::Result<Mount> {
        let path = resolved(path, options)?;
        if !rustix::process::geteuid().is_root() {
            let device = mount_as_user(&path, options)?;
            return Ok(Mount { device, standing: Standing::at(&path).ok(), path, partition: None });
        }
        let device = open_device()?;
        if options.durable && passes_sync_on() {
            let on_partition = Partition::new().and_then(|partition| Ok((mount_device(&device, &path, options, Some(&partition))?, partition)));
            match on_partition {
                Ok((standing, partition)) => return Ok(Mount { device, path, partition: Some(partition), standing: Some(standing) }),
                Err(error) => tracing::info!(path = %path.display(), %error, "no block device for the mount: sync and umount do not wait"),
            }
        }
        let standing = Some(mount_device(&device, &path, options, None).map_err(explain)?);
        Ok(Mount { device, path, partition: None, standing })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The place of a mount, without symbolic links.
pub(crate) fn resolved(path: &Path, options: &MountOptions) -> io::Result<PathBuf> {
    let resolved = path.canonicalize()?;
    match &options.exactly {
        Some(expected) if *expected != resolved => Err(io::Error::other(format!("it leads to {}, and no more to {}", resolved.display(), expected.display()))),
        _ => Ok(resolved),
    }
}

/// Linux tells servers of mounts on block devices of `sync` and `syncfs` since 6.18.
fn passes_sync_on() -> bool {
    let system = rustix::system::uname();
    let release = system.release().to_str().unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|word| word.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 18)
}

/// The kernel's side of all mounts.
const DEVICE: &str = "/dev/fuse";

/// Opens it. The error explains what the device is for: without it nothing can be mounted, and few users know of it.
pub(crate) fn open_device() -> io::Result<OwnedFd> {
    rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|error| {
        let (error, instead) = (io::Error::from(error), "a container has to be given it, as with '--device /dev/fuse', else load it with 'modprobe fuse'");
        io::Error::new(error.kind(), format!("{DEVICE}: {error}; nothing can be mounted without it: {instead}"))
    })
}

/// Adds the capability that a container lacks in which mounting is forbidden.
fn explain(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::PermissionDenied => io::Error::new(error.kind(), format!("{error}; mounting takes the capability CAP_SYS_ADMIN, which a container has to be given")),
        _ => error,
    }
}

/// Mounts the file system that is served over `device`. If it is mounted already, the kernel gives it one more place.
/// The file system itself is writable; a read-only mount is an option of the mount, which can be changed for each
/// place. The path has no symbolic links, or the mount fails: a user who may change a directory on it could lead the mount anywhere.
pub(crate) fn mount_device(device: &OwnedFd, path: &Path, options: &MountOptions, partition: Option<&Partition>) -> io::Result<Standing> {
    let root_mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(path)?) & libc::S_IFMT;
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let context = fsopen(if partition.is_some() { "fuseblk" } else { "fuse" }, FsOpenFlags::FSOPEN_CLOEXEC)?;
    let mut settings = vec![
        ("subtype", options.subtype.clone()),
        ("fd", device.as_raw_fd().to_string()),
        ("rootmode", format!("{root_mode:o}")),
        ("user_id", uid.to_string()),
        ("group_id", gid.to_string()),
        ("max_read", options.max_read.to_string()),
    ];
    if partition.is_some() {
        settings.push(("blksize", "4096".to_owned()));
    }
    for (key, value) in &settings {
        fsconfig_set_string(&context, *key, value.as_str())?;
    }
    for (wanted, flag) in [(options.allow_other, "allow_other"), (options.default_permissions, "default_permissions")] {
        if wanted {
            fsconfig_set_flag(&context, flag)?;
        }
    }
    let create = |source: &str| -> io::Result<()> {
        fsconfig_set_string(&context, "source", source)?;
        Ok(fsconfig_create(&context)?)
    };
    match partition {
        Some(partition) => partition.named(&options.source, create)?,
        None => create(&options.source)?,
    }
    let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, standing::attributes(options))?;
    let place = openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    move_mount(&mount, "", &place, "", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH)?;
    Standing::of(&mount, path)
}

/// Puts a backslash before what separates options.
fn escape(word: &str) -> String {
    word.chars().flat_map(|c| matches!(c, ',' | '\\').then_some('\\').into_iter().chain([c])).collect()
}

fn helper_options(options: &MountOptions) -> String {
    let mut words = vec![format!("fsname={}", escape(&options.source)), format!("subtype={}", escape(&options.subtype)), format!("max_read={}", options.max_read)];
    for (wanted, word) in [
        (options.allow_other, "allow_other"),
        (options.default_permissions, "default_permissions"),
        (options.read_only, "ro"),
        (options.no_exec, "noexec"),
        (options.no_atime, "noatime"),
        (options.no_directory_atime, "nodiratime"),
    ] {
        if wanted {
            words.push(word.to_owned());
        }
    }
    words.extend(["nosuid".to_owned(), "nodev".to_owned()]);
    words.join(",")
}

/// Whether root has allowed users' mounts to be entered by others. Without this `fusermount3` refuses `allow_other`. It
/// also refuses to mount in a mount that root cannot enter, as it is root itself: so for a user one dataset within
/// another needs this.
pub fn users_may_allow_others() -> bool {
    std::fs::read_to_string("/etc/fuse.conf").is_ok_and(|text| text.lines().any(|line| line.trim() == "user_allow_other"))
}

/// The error if the set-user-id program is missing.
fn no_helper(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("fusermount3: {error}; users who are not root mount through it: install the package fuse3"))
}

fn mount_as_user(path: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    // The helper would say that there is no device, but not which.
    drop(open_device()?);
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let number = theirs.as_raw_fd();
    let mut command = helper();
    command.arg("-o").arg(helper_options(options)).arg("--").arg(path).env("_FUSE_COMMFD", number.to_string()).stdin(Stdio::null()).stderr(Stdio::piped());
    // SAFETY: between fork and exec only `fcntl` is called, which is async-signal-safe, on a descriptor that stays open meanwhile.
    unsafe {
        command.pre_exec(move || {
            let kept = rustix::fd::BorrowedFd::borrow_raw(number);
            rustix::io::fcntl_setfd(kept, rustix::io::FdFlags::empty()).map_err(io::Error::from)
        });
    }
    let child = command.spawn().map_err(|error| no_helper(&error))?;
    drop(theirs);
    let received = receive_descriptor(&ours);
    let output = child.wait_with_output()?;
    match received {
        Ok(Some(device)) if output.status.success() => Ok(device),
        Err(error) => Err(error),
        _ => Err(io::Error::new(ErrorKind::PermissionDenied, String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}

fn helper() -> Command {
    Command::new(std::env::var_os("FUSERMOUNT_PROG").unwrap_or_else(|| "fusermount3".into()))
}

fn receive_descriptor(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0u8; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    loop {
        match recvmsg(socket.as_fd(), &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut received = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
            received = descriptors.next();
        }
    }
    Ok(received)
}

/// Ends a mount. `lazy`: hide it now, end it when it is no longer in use. Otherwise a mount in use is
/// [`ErrorKind::ResourceBusy`], without words.
pub fn unmount(path: &Path, lazy: bool) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        let flags = UnmountFlags::NOFOLLOW | if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        return errand::unmount(path, flags);
    }
    let mut command = helper();
    command.arg("-u").args(lazy.then_some("-z")).arg("--").arg(path).stdin(Stdio::null());
    let output = command.output().map_err(|error| no_helper(&error))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(if text.contains("busy") { ErrorKind::ResourceBusy.into() } else { io::Error::other(text) })
}

/// Ends the connection behind a mount, after the kernel has written back what it holds, if that does not take long: the
/// mount's server may itself wait for this caller. Callers other than root need `/sys/fs/fuse`.
pub(crate) fn abort(path: &Path) {
    let ((written, is_written), place) = (mpsc::channel(), path.to_owned());
    let write = move || {
        let _ = written.send(errand::sync(&[place]));
    };
    if std::thread::Builder::new().name("fuse-write".to_owned()).spawn(write).is_ok() {
        let _ = is_written.recv_timeout(WRITTEN_WITHIN);
    }
    if rustix::process::geteuid().is_root() {
        // This fails when the mount is in use, but has ended the connection.
        let _ = errand::unmount(path, UnmountFlags::FORCE | UnmountFlags::NOFOLLOW);
        return;
    }
    if let Some((_, minor)) = device_at(path) {
        let _ = std::fs::write(format!("/sys/fs/fuse/connections/{minor}/abort"), "1");
    }
}

/// The device number of the mount at a path. Nothing else is asked for, so that no server is asked.
pub(crate) fn device_at(path: &Path) -> Option<(u32, u32)> {
    let stat = statx(CWD, path, AtFlags::STATX_DONT_SYNC | AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty()).ok()?;
    Some((stat.stx_dev_major, stat.stx_dev_minor))
}

/// Whether something is mounted at exactly this path. `None`: the kernel does not say.
fn is_root_of_mount(path: &Path) -> Option<bool> {
    match statx(CWD, path, AtFlags::STATX_DONT_SYNC | AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty()) {
        Ok(stat) => stat.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT).then(|| stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)),
        Err(rustix::io::Errno::NOENT) => Some(false),
        Err(_) => None,
    }
}

/// Ends a mount whose server died: the mount of our type at `path` answers "not connected".
pub fn clear_dead(path: &Path, subtype: &str) -> io::Result<bool> {
    if !is_mounted(path, subtype)? {
        return Ok(false);
    }
    // The kernel answers `stat` from its cache; for the free space it has to ask the server.
    match rustix::fs::statfs(path) {
        Err(rustix::io::Errno::NOTCONN | rustix::io::Errno::CONNABORTED) => unmount(path, true).map(|()| true),
        _ => Ok(false),
    }
}

/// Whether a mount of type `fuse.SUBTYPE` or `fuseblk.SUBTYPE` is at exactly this path.
pub fn is_mounted(path: &Path, subtype: &str) -> io::Result<bool> {
    if is_root_of_mount(path) == Some(false) {
        return Ok(false);
    }
    let kinds = ["fuse", "fuseblk"].map(|kind| format!("{kind}.{subtype}"));
    Ok(mount_table::own()?.iter().any(|entry| entry.mount_point == path && kinds.contains(&entry.kind)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_escaped() {
        assert_eq!(escape(r"a,b\c"), r"a\,b\\c");
        let options = MountOptions { source: "tank/a,b".to_owned(), ..MountOptions::default() };
        assert_eq!(helper_options(&options), r"fsname=tank/a\,b,subtype=tarn,max_read=1048576,allow_other,default_permissions,nosuid,nodev");
    }
}
