//! zfs-fuse, the other ZFS in user space: its daemon, started by us, and a pool on a written file.
//!
//! Its socket has a fixed place, so there can be one daemon on a machine; one that runs already is left alone, and the pools of a
//! run share one.

use std::cell::RefCell;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::rc::{Rc, Weak};
use std::time::Duration;

use anyhow::{Result, bail};
use rustix::process::{Pid, Signal};

use super::pool::ForeignPool;
use super::{Attempt, Setup, eventually, folder, install, is_root, missing, no_fuse, version_of};
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

/// Lives as long as one of its pools.
struct Daemon(Child);

thread_local! {
    static RUNNING: RefCell<Weak<RefCell<Daemon>>> = const { RefCell::new(Weak::new()) };
}

impl Daemon {
    fn end(&mut self) -> Result<()> {
        let Daemon(child) = self;
        if let Some(process) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let _ = rustix::process::kill_process(process, Signal::TERM);
        }
        if process::wait(child, Duration::from_secs(20))?.is_none() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }
}

fn running() -> Option<Rc<RefCell<Daemon>>> {
    RUNNING.with_borrow(Weak::upgrade)
}

/// The daemon, started if no pool of ours has one; the last to let go of it ends it. Returns its process.
fn start(undo: &mut Undo) -> Result<u32> {
    let daemon = match running() {
        Some(daemon) => daemon,
        None => {
            let daemon = Rc::new(RefCell::new(Daemon(spawn()?)));
            RUNNING.set(Rc::downgrade(&daemon));
            daemon
        }
    };
    let held = Rc::clone(&daemon);
    undo.push("end zfs-fuse", move || match Rc::try_unwrap(held) {
        Ok(daemon) => daemon.into_inner().end(),
        Err(_) => Ok(()),
    });
    let Daemon(child) = &mut *daemon.borrow_mut();
    // One that was told to end lives on for some seconds without answering; until then a new one ends at once.
    let answered = eventually(Duration::from_secs(20), || {
        if child.try_wait().is_ok_and(|status| status.is_some()) {
            std::thread::sleep(Duration::from_millis(200));
            if let Ok(another) = spawn() {
                *child = another;
            }
        }
        answers() || interrupt::pending()
    });
    interrupt::check()?;
    if !answered {
        bail!("zfs-fuse does not answer");
    }
    Ok(child.id())
}

pub(super) fn prepare(setup: &Setup) -> Result<Attempt> {
    let skipped = |reason: &str| Ok(Attempt::Skipped(format!("zfs-fuse: {reason}")));
    if !is_root() {
        return skipped("it takes root (sudo)");
    }
    if let Some(program) = missing(&["zfs-fuse", "zpool"]) {
        return skipped(&install(program).replace("zfsutils-linux", "zfs-fuse"));
    }
    if let Some(why) = no_fuse() {
        return skipped(why);
    }
    if Path::new("/dev/zfs").exists() {
        return skipped("this machine has OpenZFS, whose zpool would answer instead");
    }
    if running().is_none() && answers() {
        return skipped("one is running here already, and there can be only one");
    }
    let mut undo = Undo::new();
    let folder = folder(setup, "zfs-fuse", &mut undo)?;
    let stand = setup.stand(&folder, &mut undo)?;
    let process = start(&mut undo)?;
    let pool = ForeignPool::create("zfs-fuse", setup, &folder, &stand, &mut undo)?;
    let description = format!("zfs-fuse {}, {}", stand.words, setup.properties_in_words());
    let (mounted, name, words) = (pool.mounted().to_owned(), pool.name().to_owned(), pool.words());
    let target = Prepared::new(setup.label("zfs-fuse"), description, mounted, move || pool.drop_caches(), undo)
        .watched_by(move || ForeignPool::iostat(&name))
        .served_by(move || Some(process))
        .on_files(&stand.files)
        .on_devices(stand.devices)
        .fact("version", version_of("dpkg-query", &["--show", "zfs-fuse"]))
        .fact("format options", words);
    Ok(Attempt::Ready(Box::new(target)))
}
