//! A simulated disk as a file that a loop device can lie on.
//!
//! # Theory
//!
//! A FUSE file system with a single file, `disk`, in which nothing is cached: each request of the loop device comes
//! here, is done on the file that holds the data, and is answered when the model says so.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use fuse::{
    Attr, Attributes, Context, Entry, Errno, Filesystem, Mount, MountOptions, Opened, OpenedFlags, Owner, Read, Session,
    SessionOptions, TransportChoice, Write,
};

use super::Model;
use super::timing::Timing;
use super::way::{self, KeepAwake, Way};
use crate::statistics::median;

const FILE: u64 = 2;
const NAME: &[u8] = b"disk";
const VALID: Duration = Duration::from_secs(3600);
/// Requests that may be held at a time.
const THREADS: usize = 128;

struct Disk {
    file: File,
    bytes: u64,
    timing: Timing,
    /// The seconds of a small and a large read by the model.
    usual: [f64; 2],
    _awake: KeepAwake,
}

/// Serves until it is dropped.
pub struct Served {
    session: Option<Session>,
    mounted: PathBuf,
    path: PathBuf,
    disk: Arc<Disk>,
}

impl Served {
    /// Serves `file` as a disk of that model, from a directory beside it.
    pub fn start(file: &Path, model: Model) -> Result<Served> {
        let name = file.file_name().context("the file has no name")?.to_string_lossy().into_owned();
        let mounted = file.with_file_name(format!("{name}.disk"));
        std::fs::create_dir_all(&mounted).with_context(|| format!("cannot make {}", mounted.display()))?;
        let data =
            OpenOptions::new().read(true).write(true).open(file).with_context(|| format!("cannot open {}", file.display()))?;
        let bytes = data.metadata()?.len();
        let (usual, timing) = (model.usual_reads(), Timing::new(model, bytes));
        let disk = Arc::new(Disk { file: data, bytes, timing, usual, _awake: KeepAwake::new() });
        let options = MountOptions {
            source: "fsperf-disk".to_owned(),
            subtype: "fsperf".to_owned(),
            allow_other: false,
            ..MountOptions::default()
        };
        let mount = Mount::new(&mounted, &options).with_context(|| format!("cannot mount on {}", mounted.display()))?;
        let options = SessionOptions {
            transport: TransportChoice::Auto,
            max_background: THREADS as u16,
            threads_max: THREADS,
            // Without it the loop device has one request under way, even if the drive could do more.
            async_direct_io: true,
            name: "disk".to_owned(),
            ..SessionOptions::default()
        };
        let session =
            Session::start(mount, Arc::clone(&disk) as Arc<dyn Filesystem>, options).context("cannot serve a simulated disk")?;
        let path = mounted.join("disk");
        Ok(Served { session: Some(session), mounted, path, disk })
    }

    /// The file to put a loop device on.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Measures and corrects its time.
    pub fn clock(&self) -> Clock {
        Clock(Arc::clone(&self.disk))
    }

    /// Ends it; nothing may be using it.
    pub fn end(mut self) -> Result<()> {
        self.unmount()
    }

    fn unmount(&mut self) -> Result<()> {
        let Some(mut session) = self.session.take() else { return Ok(()) };
        // A loop device lets go of its file a moment after it was told to.
        for _ in 0..50 {
            match session.unmount(false) {
                Ok(()) => {
                    return std::fs::remove_dir(&self.mounted)
                        .with_context(|| format!("cannot remove {}", self.mounted.display()));
                }
                Err((again, _)) => session = again,
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        session.unmount(true).map_err(|(_, error)| anyhow!("{}: {error}", self.mounted.display()))
    }
}

/// Of a disk that is served: how long the way to it takes, measured from where it is used.
pub struct Clock(Arc<Disk>);

impl Clock {
    /// Measures the way to `device`, which lies on the disk, and has the disk take it into account from now on. Nothing may use it meanwhile.
    pub fn set(&self, device: &Path) -> Result<Way> {
        let disk = &self.0;
        let answer_after = |seconds: f64| disk.timing.set_fixed(Some(seconds));
        let measured = way::measure(device, disk.bytes, disk.usual, &answer_after, &|way| disk.timing.set_way(way));
        disk.timing.set_fixed(None);
        measured
    }

    /// How many small reads a second, of so many threads, the way can carry.
    pub fn rate(&self, device: &Path, threads: usize, each: Duration) -> Result<f64> {
        self.0.timing.set_fixed(Some(0.0));
        let rate = way::rate(device, self.0.bytes, threads, false, each);
        self.0.timing.set_fixed(None);
        rate
    }

    /// Why figures of many requests at a time would be those of a slower disk, if they would: by the middle one of some short tries.
    pub fn overload(&self, device: &Path, model: &Model) -> Result<Option<String>> {
        let Some((threads, _)) = model.random_reads_together(way::SMALL as u64) else { return Ok(None) };
        let tries = (0..5).map(|_| way::rate(device, self.0.bytes, threads, false, Duration::from_millis(150)));
        Ok(median(&tries.collect::<Result<Vec<_>>>()?).and_then(|measured| model.overload(measured)))
    }

    /// Reads and writes that came.
    pub fn requests(&self) -> u64 {
        self.0.timing.requests()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            crate::errln!("warning: could not end a simulated disk: {error:#}");
        }
    }
}

impl Disk {
    fn attributes(&self, node: u64) -> Attr {
        let is_file = node == FILE;
        Attr {
            inode: node,
            size: if is_file { self.bytes } else { 0 },
            blocks: if is_file { self.bytes / 512 } else { 0 },
            mode: if is_file { 0o100_600 } else { 0o40_700 },
            links: if is_file { 1 } else { 2 },
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            block_size: 4096,
            ..Attr::default()
        }
    }
}

impl Filesystem for Disk {
    fn lookup(&self, _context: &Context, _parent: u64, name: &[u8]) -> fuse::Result<Entry> {
        if name != NAME {
            return Err(Errno::ENOENT);
        }
        Ok(Entry { node: FILE, generation: 0, attr: self.attributes(FILE), entry_valid: VALID, attr_valid: VALID })
    }

    fn getattr(&self, _context: &Context, node: u64, _handle: Option<u64>) -> fuse::Result<Attributes> {
        Ok(Attributes { attr: self.attributes(node), valid: VALID })
    }

    fn open(&self, _context: &Context, _node: u64, _flags: u32, _kill_suidgid: bool) -> fuse::Result<Opened> {
        Ok(Opened { handle: 0, flags: OpenedFlags::DIRECT_IO | OpenedFlags::PARALLEL_DIRECT_WRITES })
    }

    fn read(&self, _context: &Context, read: &Read, out: &mut [u8]) -> fuse::Result<usize> {
        let arrival = self.timing.now();
        let wanted = (self.bytes.saturating_sub(read.offset)).min(out.len() as u64) as usize;
        self.file.read_exact_at(&mut out[..wanted], read.offset)?;
        fuse::before_blocking();
        self.timing.pass(arrival, read.offset, wanted as u64, true);
        Ok(wanted)
    }

    fn write(&self, _context: &Context, write: &Write, data: &[u8]) -> fuse::Result<usize> {
        let arrival = self.timing.now();
        if write.offset.saturating_add(data.len() as u64) > self.bytes {
            return Err(Errno::ENOSPC);
        }
        self.file.write_all_at(data, write.offset)?;
        fuse::before_blocking();
        self.timing.pass(arrival, write.offset, data.len() as u64, false);
        Ok(data.len())
    }

    fn flush(&self, _context: &Context, _node: u64, _handle: u64, _owner: Owner) -> fuse::Result<()> {
        Ok(())
    }

    fn fsync(&self, _context: &Context, _node: u64, _handle: u64, _data_only: bool) -> fuse::Result<()> {
        fuse::before_blocking();
        self.timing.flush();
        Ok(())
    }

    fn fallocate(&self, _context: &Context, _node: u64, _fallocate: &fuse::Fallocate) -> fuse::Result<()> {
        // No discard: disks of the time had none, and the image is to stay preallocated.
        Err(Errno::EOPNOTSUPP)
    }
}
