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

use super::{Attempt, Place, eventually, folder, image, is_root, missing, unmount};
use crate::interrupt;
use crate::process;
use crate::system;
use crate::target::{self, Prepared};
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
        return skipped(&format!("{program} is not installed"));
    }
    if Path::new("/dev/zfs").exists() {
        return skipped("this machine has OpenZFS, whose zpool would answer instead");
    }
    if answers() {
        return skipped("one is running here already, and there can be only one");
    }
    let mut undo = Undo::new();
    let folder = folder(place, "zfs-fuse", &mut undo)?;
    let (file, mounted) = (folder.join("image"), folder.join("mounted"));
    image(&file, place.image_bytes)?;
    let process = start(&mut undo)?;
    let pool = format!("fsperf{}", std::process::id());
    let words = ["create", "-f", "-o", "cachefile=none", "-O", "atime=off", "-m"];
    process::succeed(process::command("zpool").args(words).arg(&mounted).arg(&pool).arg(&file))?;
    let (gone, directory) = (pool.clone(), mounted.clone());
    undo.push(format!("destroy zfs-fuse's pool {pool}"), move || {
        // It answers "busy" for a moment after its last file was closed.
        let mut outcome = Ok(String::new());
        eventually(Duration::from_secs(5), || {
            outcome = process::run("zpool", ["destroy", "-f", &gone]);
            outcome.is_ok()
        });
        unmount(&directory)?;
        outcome.map(drop)
    });
    if !system::is_mount_point(&mounted) {
        bail!("zfs-fuse made a pool but did not mount it");
    }
    let description = format!("zfs-fuse on a preallocated file of {} MB, atime=off", place.image_bytes >> 20);
    let directory = mounted.clone();
    let drop_caches = move || {
        process::run("zpool", ["export", &pool])?;
        target::forget_file(&file)?;
        target::drop_kernel_caches();
        process::succeed(process::command("zpool").args(["import", "-o", "cachefile=none", "-d"]).arg(&folder).arg(&pool))?;
        if !system::is_mount_point(&directory) {
            bail!("not mounted again");
        }
        Ok(())
    };
    let target = Prepared::new("zfs-fuse", description, mounted, drop_caches, undo);
    Ok(Attempt::Ready(target.served_by(move || Some(process))))
}
