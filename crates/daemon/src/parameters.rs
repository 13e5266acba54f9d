//! Limits that change while the daemon runs: files in the directory that `TARN_PARAMETERS` names, else in the usual one.
//!
//! The usual one is `/sys/module/zfs/parameters`, unless OpenZFS's module is loaded, whose own it then is. OpenZFS's test suite has plain
//! files there, for programs without a module. Nothing is made in it, and 0 is what a limit is at first.
//!
//! Each has the name that OpenZFS's module has for it, and holds a number, as in `/sys/module/zfs/parameters`. What is missing is written
//! there as it is when the daemon starts; what is written there holds as soon as it is closed, for all pools. What is no value of
//! a parameter changes nothing, and the log says so. A command that comes after a file was written finds it said: the daemon looks before it carries one out.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tarnfs::{Parameter, Tunables};

/// Names the directory.
const VARIABLE: &str = "TARN_PARAMETERS";
/// The directory where OpenZFS's tools look for them.
const USUAL: &str = "/sys/module/zfs/parameters";
/// The type of the file system that has the kernel's own.
const SYSFS_MAGIC: u64 = 0x6265_6572;
/// Room for the events of one look.
const EVENTS_BYTES: usize = 4096;

/// The meaning of 0 in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Zero {
    IsAValue,
    IsUnset,
}

/// A directory of files that say what holds.
#[derive(Debug)]
struct Watched {
    directory: PathBuf,
    limits: Tunables,
    zero: Zero,
    /// Held while what is written there is taken over. Reading does not block.
    events: Mutex<OwnedFd>,
}

/// The one that this process watches.
static WATCHED: OnceLock<Arc<Watched>> = OnceLock::new();

/// Sets what the files say, now and whenever one is written, if there is a directory.
pub(crate) fn watch(limits: &Tunables) -> Result<(), String> {
    let Some(directory) = std::env::var_os(VARIABLE).map(PathBuf::from) else {
        if is_plain_directory(Path::new(USUAL)) {
            match watch_in(PathBuf::from(USUAL), limits, Zero::IsUnset) {
                Ok(watched) => drop(WATCHED.set(watched)),
                Err(error) => tracing::warn!("{USUAL}: {error}"),
            }
        }
        return Ok(());
    };
    let named = || show(&directory, limits).and_then(|()| watch_in(directory.clone(), limits, Zero::IsAValue));
    let watched = named().map_err(|error| format!("{VARIABLE}={}: {error}", directory.display()))?;
    let _ = WATCHED.set(watched);
    Ok(())
}

/// Sets what has been written until now.
pub(crate) fn catch_up() {
    if let Some(watched) = WATCHED.get() {
        watched.catch_up();
    }
}

/// Is it a directory that no kernel module has made?
fn is_plain_directory(path: &Path) -> bool {
    path.is_dir() && rustix::fs::statfs(path).is_ok_and(|found| found.f_type as u64 != SYSFS_MAGIC)
}

fn watch_in(directory: PathBuf, limits: &Tunables, zero: Zero) -> io::Result<Arc<Watched>> {
    let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    inotify::add_watch(&events, &directory, WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO)?;
    let wakes = events.try_clone()?;
    let watched = Arc::new(Watched { directory, limits: limits.clone(), zero, events: Mutex::new(events) });
    watched.read();
    let watches = Arc::clone(&watched);
    let run = move || while poll(&mut [PollFd::new(&wakes, PollFlags::IN)], None).is_ok() && watches.catch_up() {};
    thread::Builder::new().name("parameters".to_owned()).spawn(run)?;
    Ok(watched)
}

impl Watched {
    /// Reads the files if one was written. `false`: the directory is gone.
    fn catch_up(&self) -> bool {
        let events = self.events.lock();
        let mut buffer = [MaybeUninit::uninit(); EVENTS_BYTES];
        let mut reader = inotify::Reader::new(&*events, &mut buffer);
        let mut seen = false;
        while let Ok(event) = reader.next() {
            if event.events().contains(inotify::ReadFlags::IGNORED) {
                return false;
            }
            seen = true;
        }
        // All are read, as events may be lost.
        if seen {
            self.read();
        }
        true
    }

    /// Sets what is said, where it is another value.
    fn read(&self) {
        let Watched { directory, limits, zero, .. } = self;
        for parameter in Parameter::all() {
            let Ok(text) = fs::read_to_string(directory.join(parameter.name())) else { continue };
            if *zero == Zero::IsUnset && text.trim() == "0" {
                limits.parameters.unset(parameter);
            } else if text.trim() != limits.now(parameter).to_string()
                && let Err(words) = limits.parameters.set(parameter, &text)
            {
                tracing::warn!("{}: {words}", directory.display());
            }
        }
        limits.obey_cache_limits();
    }
}

/// Writes what is not there.
fn show(directory: &Path, limits: &Tunables) -> io::Result<()> {
    for parameter in Parameter::all() {
        match OpenOptions::new().write(true).create_new(true).open(directory.join(parameter.name())) {
            Ok(mut file) => writeln!(file, "{}", limits.now(parameter))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    #[allow(clippy::disallowed_methods)] // the real clock: a file is watched in it
    fn what_is_written_holds_and_what_makes_no_sense_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        fs::write(file("zfs_txg_timeout"), "0\n").unwrap();
        fs::write(file("zfs_vdev_async_write_max_active"), "30\n").unwrap();
        fs::write(file("zfs_unheard_of"), "1\n").unwrap();
        let limits = Tunables::default();
        show(directory.path(), &limits).unwrap();
        let watched = watch_in(directory.path().to_owned(), &limits, Zero::IsAValue).unwrap();
        assert_eq!([Parameter::TxgTimeout, Parameter::AsyncWriteMax, Parameter::ReadGapLimit].map(|one| limits.now(one)), [5, 30, 32 << 10]);
        assert_eq!(fs::read_to_string(file("zfs_vdev_read_gap_limit")).unwrap(), "32768\n");
        fs::write(file("zfs_txg_timeout"), "1\n").unwrap();
        let begun = Instant::now();
        while limits.txg_timeout_ns() != 1_000_000_000 {
            assert!(begun.elapsed() < Duration::from_secs(20), "it is not seen");
            thread::sleep(Duration::from_millis(1));
        }
        // OpenZFS's scripts write one and call a command at once, which had not heard of it on a busy machine.
        for seconds in 2..200 {
            fs::write(file("zfs_txg_timeout"), format!("{seconds}\n")).unwrap();
            assert!(watched.catch_up());
            assert_eq!(limits.now(Parameter::TxgTimeout), seconds);
        }
        assert!(watch_in(file("none"), &limits, Zero::IsAValue).is_err());
    }

    /// A script that is through puts back what stood there before it.
    #[test]
    fn in_the_usual_place_zero_is_what_it_was_at_first() {
        let directory = tempfile::tempdir().unwrap();
        let limits = Tunables::default();
        let watched = watch_in(directory.path().to_owned(), &limits, Zero::IsUnset).unwrap();
        let write = |text: &str| {
            fs::write(directory.path().join("zfs_multihost_fail_intervals"), text).unwrap();
            watched.read();
            limits.now(Parameter::MultihostFailIntervals)
        };
        let first = limits.now(Parameter::MultihostFailIntervals);
        assert_eq!([write("0\n"), write("77\n"), write("0\n")], [first, 77, first]);
        assert!(is_plain_directory(directory.path()) && !is_plain_directory(Path::new("/sys/module")));
    }
}
