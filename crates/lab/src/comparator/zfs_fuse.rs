//! zfs-fuse, the other ZFS in user space: its daemon, started by us, and a pool on a preallocated file.
//!
//! Its socket has a fixed place, so there can be one daemon on a machine; one that runs already is left alone.

use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Result, bail};
use rustix::process::{Pid, Signal};

use super::pool::ForeignPool;
use super::{Attempt, Place, eventually, folder, install, is_root, missing, version_of};
use crate::interrupt;
use crate::process;
use crate::target::Prepared;
use crate::undo::Undo;

const SOCKETS: [&str; 2] = ["/var/run/zfs/zfs_socket", "/etc/zfs/zfs_socket"];

fn answers() -> bool {
    SOCKETS.iter().any(|socket| UnixStream::connect(socket).is_ok())
}

fn spawn() -> Result<Child> {
    let mut command = process::command("zfs-fuse");
    command.args(["--no-daemon", "--no-kstat-mount"]).process_group(0);
    Ok(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)
}

fn end(child: &mut Child) -> Result<()> {
    if let Some(process) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process(process, Signal::TERM);
    }
    if process::wait(child, Duration::from_secs(20))?.is_none() {
        child.kill()?;
        child.wait()?;
    }
    Ok(())
}

/// Starts the daemon and sees to its end. Returns its process.
fn start(undo: &mut Undo) -> Result<u32> {
    let mut child = spawn()?;
    // One that was told to end lives on for some seconds without answering; until then a new one ends at once.
    let answered = eventually(Duration::from_secs(20), || {
        if child.try_wait().is_ok_and(|status| status.is_some()) {
            std::thread::sleep(Duration::from_millis(200));
            if let Ok(another) = spawn() {
                child = another;
            }
        }
        answers() || interrupt::pending()
    });
    let process = child.id();
    undo.push("end zfs-fuse", move || end(&mut child));
    interrupt::check()?;
    if !answered {
        bail!("zfs-fuse does not answer");
    }
    Ok(process)
}

pub(super) fn prepare(place: &Place) -> Result<Attempt> {
    let skipped = |reason: &str| Ok(Attempt::Skipped(format!("zfs-fuse: {reason}")));
    if !is_root() {
        return skipped("it takes root");
    }
    if let Some(program) = missing(&["zfs-fuse", "zpool"]) {
        return skipped(&install(program).replace("zfsutils-linux", "zfs-fuse"));
    }
    if Path::new("/dev/zfs").exists() {
        return skipped("this machine has OpenZFS, whose zpool would answer instead");
    }
    if answers() {
        return skipped("one is running here already, and there can be only one");
    }
    let mut undo = Undo::new();
    let folder = folder(place, "zfs-fuse", &mut undo)?;
    let stand = place.stand(&folder, &mut undo)?;
    let process = start(&mut undo)?;
    let pool = ForeignPool::create("zfs-fuse", &folder, &stand.paths, &stand.files, &mut undo)?;
    let description = format!("zfs-fuse {}, atime=off", stand.words);
    let mounted = pool.mounted().to_owned();
    let target = Prepared::new("zfs-fuse", description, mounted, move || pool.drop_caches(), undo)
        .served_by(move || Some(process))
        .on_devices(stand.devices)
        .fact("version", version_of("dpkg-query", &["--show", "zfs-fuse"]))
        .fact("format options", ForeignPool::WORDS.join(" "));
    Ok(Attempt::Ready(Box::new(target)))
}
