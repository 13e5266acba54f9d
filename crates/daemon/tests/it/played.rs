//! Operations on a pool without a mount: the tests are the kernel, and do at the same moment what a real one does once in a while.

use std::fs::File;
use std::io::{PipeReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use daemon::ops::{OpenSnapshot, Opener, Ops, OpsOptions, SnapDir, SnapshotInfo, Snapshots, SyncPolicy};
use engine::dmu::{Membership, OpenTx};
use engine::zap::{Integers, Zap};
use fuse::protocol::InitFlags;
use fuse::{
    Context, CopyRange, DirectoryPlusWriter, DirectoryWriter, Errno, Fallocate, Filesystem, Negotiated, Notifier, ROOT_NODE, Result, SetAttr, Timestamp,
    WriteFlags,
};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tarnfs::Pool;
use tarnfs::control::Caller;

const CX: Context = Context { unique: 1, uid: 0, gid: 0, pid: 1, other_group: None };
/// The handle of a file that is open for writing.
const WRITER: Option<u64> = Some(1);
const MIB: u64 = 1 << 20;
/// Nothing here takes so long.
const LIMIT: Duration = Duration::from_secs(20);

/// A pool, and operations on its root dataset.
struct Played {
    pool: Arc<Pool>,
    ops: Ops,
    _directory: tempfile::TempDir,
}

impl Played {
    fn new(options: OpsOptions) -> Played {
        Played::with(options, |_| None)
    }

    fn with(options: OpsOptions, snapshots: impl FnOnce(&Arc<Pool>) -> Option<Box<dyn Snapshots>>) -> Played {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("disk.img");
        File::create(&image).unwrap().set_len(256 << 20).unwrap();
        let vdev = tarnfs::VdevPaths { paths: vec![image], ..tarnfs::VdevPaths::default() };
        let pool = Pool::create("tank", &[vdev], tarnfs::CreateOptions { ashift: Some(12), ..Default::default() }).unwrap();
        let ops = Ops::new(pool.file_system("tank").unwrap(), snapshots(&pool), OpsOptions { announce_opens: true, ..options });
        Played { pool, ops, _directory: directory }
    }

    /// Makes a file, which the kernel knows once.
    fn make(&self, name: &str) -> u64 {
        self.ops.create(&CX, ROOT_NODE, name.as_bytes(), 0o644, 0, libc::O_RDWR as u32).unwrap().entry.node
    }

    fn write(&self, node: u64, offset: u64, data: &[u8]) {
        let write = fuse::Write { node, handle: 0, offset, flags: 0, write_flags: WriteFlags::empty() };
        assert_eq!(self.ops.write(&CX, &write, data), Ok(data.len()));
    }

    fn snapshot(&self, name: &str) {
        self.pool.take_snapshots(vec![format!("tank@{name}")]).unwrap();
    }

    fn roll_back(&self, name: &str, meanwhile: impl FnOnce()) {
        let change = || {
            meanwhile();
            self.pool.roll_back("tank", Some(name))
        };
        self.ops.replace_contents(change, self.opener(), |error| error).unwrap();
    }

    /// What was to change the contents is refused in the end; `meanwhile` is done while nobody is inside.
    fn refuse(&self, meanwhile: impl FnOnce()) {
        let change = || {
            meanwhile();
            Err("it was refused".to_owned())
        };
        let refused = self.ops.replace_contents(change, self.opener(), |error| error.to_string());
        assert_eq!(refused, Err("it was refused".to_owned()));
    }

    fn opener(&self) -> Opener {
        let pool = self.pool.clone();
        Box::new(move || Ok((pool.file_system("tank")?, true)))
    }

    fn end(self) {
        let Played { pool, ops, _directory } = self;
        ops.destroy();
        drop(ops);
        pool.export().unwrap();
    }
}

fn agreed(minor: u32, flags: InitFlags) -> Negotiated {
    Negotiated { minor, flags, max_write: 1 << 20 }
}

/// Waits until it is so, or for as long as nothing here takes.
fn comes(mut done: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !done() {
        if begun.elapsed() > LIMIT {
            return false;
        }
        thread::sleep(Duration::from_millis(2));
    }
    true
}

/// What the kernel forgot while contents were replaced counted as known until the mount ended, and so the room of a file that was removed did not come free.
#[test]
fn what_is_forgotten_while_contents_are_replaced_is_forgotten() {
    let played = Played::new(OpsOptions::default());
    let [kept, open] = ["kept", "open"].map(|name| played.make(name));
    played.ops.lookup(&CX, ROOT_NODE, b"kept").unwrap();
    played.snapshot("s");
    let gone = played.make("gone");
    played.roll_back("s", || {
        played.ops.forget(kept, 1);
        played.ops.forget(gone, 1);
        played.ops.forget(kept, 1);
    });
    let filesystem = played.ops.filesystem().unwrap();
    assert_eq!(played.ops.getattr(&CX, gone, None).map(|_| ()), Err(Errno::ENOENT), "the kernel does not know it any more, so it is not stale");
    for name in ["kept", "open"] {
        played.ops.unlink(&CX, ROOT_NODE, name.as_bytes()).unwrap();
    }
    assert_eq!(filesystem.left_behind().unwrap(), [open], "one is open, the other is free");
    // Afterwards the kernel forgets as ever.
    played.ops.forget(open, 1);
    assert_eq!(filesystem.left_behind().unwrap(), [0; 0]);
    drop(filesystem);
    played.end();
}

/// Files that were removed while open were freed before contents were replaced: they were gone although the rollback was refused then, or was but an upgrade.
/// What other contents have of such files is freed at the next mount: freed at once, it made an incremental stream be refused, as something had changed.
#[test]
fn files_removed_while_open_outlive_a_replacement_of_contents() {
    let played = Played::new(OpsOptions::default());
    let node = played.make("open");
    played.write(node, 0, b"kept");
    played.ops.unlink(&CX, ROOT_NODE, b"open").unwrap();
    let check = |when: &str| {
        let mut bytes = [0; 10];
        assert_eq!(played.ops.read(&CX, &fuse::Read { node, handle: 0, offset: 0, flags: 0 }, &mut bytes), Ok(4), "{when}");
        assert_eq!(&bytes[..4], b"kept", "{when}");
        assert_eq!(played.ops.filesystem().unwrap().left_behind().unwrap(), [node], "{when}");
    };
    check("before");
    played.refuse(|| ());
    check("it was refused");
    played.snapshot("s");
    played.roll_back("s", || ());
    check("it comes back without a name");
    played.ops.forget(node, 1);
    assert_eq!(played.ops.filesystem().unwrap().left_behind().unwrap(), [0; 0], "it is closed");
    played.roll_back("s", || ());
    thread::sleep(Duration::from_millis(50));
    assert_eq!(played.ops.filesystem().unwrap().left_behind().unwrap(), [node], "what a snapshot or a stream brings stays: the next stream is for that");
    played.end();
}

/// The kernel, as it waits for a page before it takes a message: a pipe that is full, but for so many bytes.
fn waiting_kernel(room: usize) -> (PipeReader, Notifier) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let bytes = rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap();
    writer.write_all(&vec![0; bytes - room]).unwrap();
    (reader, Notifier::into(writer.into()))
}

/// Does the thread sleep, and not only for a moment?
fn sleeps(thread: u32) -> bool {
    let sleeps_now = || std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap().rsplit(')').next().unwrap().starts_with(" S");
    (0..20).all(|_| {
        thread::sleep(Duration::from_millis(5));
        sleeps_now()
    })
}

type Call<'a> = &'a (dyn Fn(&Ops, u64) -> Result<()> + Sync);

/// A call that had the kernel write back pages was inside the gate meanwhile. The kernel waits for readers of these pages; those waited at the gate, behind a rollback; and that for
/// the call.
#[test]
fn contents_are_replaced_while_the_kernel_writes_back() {
    let seek = |ops: &Ops, node: u64| ops.lseek(&CX, node, 0, 0, libc::SEEK_DATA.cast_unsigned()).map(|found| assert_eq!(found, MIB));
    let ask = |ops: &Ops, node: u64| ops.getattr(&CX, node, WRITER).map(|_| ());
    let calls: [(&str, InitFlags, Call<'_>); 3] =
        [("seek", InitFlags::empty(), &seek), ("seek, of what is collected", InitFlags::WRITEBACK_CACHE, &seek), ("before a write", InitFlags::WRITEBACK_CACHE, &ask)];
    for (what, flags, call) in calls {
        let played = Played::new(OpsOptions { short_of_room: u64::MAX, ..OpsOptions::default() });
        played.ops.init(&agreed(45, flags));
        let node = played.make("file");
        played.write(node, MIB, &[7; 4096]);
        played.snapshot("s");
        let (mut reader, notifier) = waiting_kernel(0);
        played.ops.set_notifier(notifier);
        thread::scope(|scope| {
            let (tell, told) = channel();
            let ops = &played.ops;
            let calling = scope.spawn(move || {
                tell.send(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()).unwrap();
                call(ops, node)
            });
            let thread = told.recv().unwrap();
            assert!(comes(|| sleeps(thread)), "{what}: it does not wait for the kernel");
            // What else the kernel is told it takes at once.
            ops.set_notifier(Notifier::into(File::options().write(true).open("/dev/null").unwrap().into()));
            let replacing = scope.spawn(|| played.roll_back("s", || ()));
            let was_replaced = comes(|| replacing.is_finished());
            let waits = !calling.is_finished();
            // What the kernel has from the call: all before it filled the pipe.
            let mut message = [0; 40];
            reader.read_exact(&mut vec![0; 4096]).unwrap();
            reader.read_exact(&mut message).unwrap();
            assert_eq!(calling.join().unwrap(), Ok(()), "{what}");
            replacing.join().unwrap();
            assert!(waits && was_replaced, "{what}: waited {waits}, replaced {was_replaced}");
            assert_eq!(message[16..24], node.to_ne_bytes(), "{what}");
        });
        played.end();
    }
}

/// A change that failed was done in part, and the kernel, which had heard of the failure alone, kept its pages.
#[test]
fn the_kernel_forgets_the_contents_of_a_file_whose_change_failed() {
    let played = Played::new(OpsOptions::default());
    let node = played.make("file");
    let directory = played.ops.mkdir(&CX, ROOT_NODE, b"directory", 0o755, 0).unwrap().node;
    let (mut reader, writer) = std::io::pipe().unwrap();
    played.ops.set_notifier(Notifier::into(writer.into()));
    let mut told = || {
        let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
        assert_eq!(poll(&mut [PollFd::new(&reader, PollFlags::IN)], Some(&limit)), Ok(1), "the kernel is told nothing");
        let mut message = [0; 40];
        reader.read_exact(&mut message).unwrap();
        [16, 24].map(|at| u64::from_ne_bytes(message[at..at + 8].try_into().unwrap()))
    };
    let copy = CopyRange { handle_in: 0, offset_in: 0, node_out: node, handle_out: 0, offset_out: 0, length: MIB, flags: 0 };
    played.ops.copy_file_range(&CX, directory, &copy).unwrap_err();
    assert_eq!(told(), [node, 0]);
    let mode = (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE).cast_unsigned();
    played.ops.fallocate(&CX, directory, &Fallocate { handle: 0, offset: 0, length: MIB, mode }).unwrap_err();
    assert_eq!(told(), [directory, 0]);
    // A long file is cut off in steps: where that ended the kernel does not know.
    played.ops.setattr(&CX, directory, &SetAttr { size: Some(MIB), ..SetAttr::default() }).map(|_| ()).unwrap_err();
    assert_eq!(told(), [directory, 0]);
    played.ops.open(&CX, directory, (libc::O_WRONLY | libc::O_TRUNC).cast_unsigned(), false).map(|_| ()).unwrap_err();
    assert_eq!(told(), [directory, 0]);
    played.end();
}

/// The kernel went on to show the change time that a file had had before `chattr`, for up to an hour.
#[test]
fn the_kernel_forgets_the_attributes_of_a_file_that_is_marked() {
    const SET_FLAGS: u32 = 0x4008_6602;
    const NO_DUMP: u32 = 0x40;
    let played = Played::new(OpsOptions::default());
    let node = played.make("file");
    let (mut reader, writer) = std::io::pipe().unwrap();
    played.ops.set_notifier(Notifier::into(writer.into()));
    let input = NO_DUMP.to_ne_bytes();
    let ioctl = fuse::Ioctl { handle: 0, flags: 0, command: SET_FLAGS, argument: 0, input: &input };
    assert_eq!(played.ops.ioctl(&CX, node, &ioctl, &mut []), Ok((0, 0)));
    let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
    assert_eq!(poll(&mut [PollFd::new(&reader, PollFlags::IN)], Some(&limit)), Ok(1), "the kernel is told nothing");
    let mut message = [0; 40];
    reader.read_exact(&mut message).unwrap();
    let words = [16, 24].map(|at| i64::from_ne_bytes(message[at..at + 8].try_into().unwrap()));
    assert_eq!(words, [node.cast_signed(), -1], "attributes alone");
    played.end();
}

/// A page of mapped memory that the kernel wrote back while a program emptied the file, or cut it off, made it long again, with what had been in it.
#[test]
fn mapped_memory_makes_no_file_longer() {
    let played = Played::new(OpsOptions::default());
    let node = played.make("file");
    let write_back = |offset: u64| {
        let write = fuse::Write { node, handle: 0, offset, flags: 0, write_flags: WriteFlags::CACHE };
        assert_eq!(played.ops.write(&CX, &write, &[9; 4096]), Ok(4096), "at {offset}");
        played.ops.getattr(&CX, node, None).unwrap().attr.size
    };
    played.write(node, 0, &[7; 6000]);
    assert_eq!([0, 4096, 8192].map(write_back), [6000; 3]);
    let mut bytes = [0; 8192];
    assert_eq!(played.ops.read(&CX, &fuse::Read { node, handle: 0, offset: 0, flags: 0 }, &mut bytes), Ok(6000));
    assert!(bytes[..6000].iter().all(|byte| *byte == 9), "what is before the end is written");
    played.ops.open(&CX, node, (libc::O_RDWR | libc::O_TRUNC).cast_unsigned(), false).unwrap();
    assert_eq!([0, 4096].map(write_back), [0; 2]);
    // One that collects writes has those that make the file longer, too.
    played.ops.init(&agreed(45, InitFlags::WRITEBACK_CACHE));
    assert_eq!(write_back(4096), 8192);
    played.end();
}

/// A listing that failed in the middle was answered with the error alone: of the files before that the kernel never heard, and they counted as known to it
/// as long as the mount lasted.
#[test]
fn a_listing_that_fails_is_answered_up_to_there() {
    let played = Played::new(OpsOptions::default());
    for number in 0..200 {
        let node = played.make(&format!("{number}"));
        played.ops.forget(node, 1);
    }
    let filesystem = played.ops.filesystem().unwrap();
    {
        let member = Membership::single(filesystem.objset().clone());
        let tx = OpenTx::assign(&member, MIB).unwrap();
        Zap::open(filesystem.objset(), filesystem.root()).unwrap().add(&tx, "no/name", Integers::U64(&[2])).unwrap();
    }
    let list = |from: u64, out: &mut [u8]| {
        let mut writer = DirectoryPlusWriter::new(out);
        played.ops.readdirplus(&CX, ROOT_NODE, 0, from, &mut writer).map(|()| writer.len())
    };
    let mut out = vec![0; 1 << 20];
    let used = list(0, &mut out[..]).unwrap();
    // Each entry: what a lookup answers, which begins with the node; the number, the cookie, the length of the name, the kind, the name.
    let (mut at, mut next) = (0, 0);
    while at < used {
        let word = |from: usize| u64::from_ne_bytes(out[at + from..at + from + 8].try_into().unwrap());
        let name_bytes = u32::from_ne_bytes(out[at + 144..at + 148].try_into().unwrap()) as usize;
        if word(0) != 0 {
            played.ops.forget(word(0), 1);
        }
        next = word(136);
        at += (152 + name_bytes).next_multiple_of(8);
    }
    assert_eq!(filesystem.known_inodes(), [filesystem.root()]);
    assert_eq!(list(next, &mut out[..]), Err(Errno::EIO));
    assert_eq!(filesystem.known_inodes(), [filesystem.root()]);
    // Without attributes all of that was lost, and the kernel often asks so.
    let plain = |from: u64, out: &mut [u8]| {
        let mut writer = DirectoryWriter::new(out);
        played.ops.readdir(&CX, ROOT_NODE, 0, from, &mut writer).map(|()| writer.len())
    };
    assert!(plain(0, &mut out[..]).unwrap() > 0);
    assert_eq!(plain(next, &mut out[..]), Err(Errno::EIO));
    drop(filesystem);
    played.end();
}

/// A kernel that cannot be told to forget all names said for an hour that a file was absent which a rollback had brought back.
#[test]
fn an_old_kernel_remembers_for_a_moment_that_a_name_is_absent() {
    let played = Played::new(OpsOptions::default());
    let life = || played.ops.lookup(&CX, ROOT_NODE, b"absent").unwrap().entry_valid.as_secs();
    played.make("there");
    for (minor, expected) in [(43, 1), (44, 3600)] {
        played.ops.init(&agreed(minor, InitFlags::empty()));
        assert_eq!(life(), expected, "7.{minor}");
        assert_eq!(played.ops.lookup(&CX, ROOT_NODE, b"there").unwrap().entry_valid.as_secs(), 3600, "7.{minor}");
    }
    played.end();
}

/// The age of a file that was changed before all times, as an image may say of any, was no number: each call about it was an error where such are found.
#[test]
fn a_file_is_as_old_as_its_image_says() {
    let played = Played::new(OpsOptions::default());
    let node = played.make("old");
    let first = Timestamp { seconds: i64::MIN, nanoseconds: 0 };
    let set = SetAttr { mtime: Some(fuse::SetTime::At(first)), ctime: Some(first), ..SetAttr::default() };
    let attributes = played.ops.setattr(&CX, node, &set).unwrap();
    assert_eq!((attributes.attr.ctime, attributes.valid.as_secs()), (first, 3600));
    played.end();
}

/// The snapshots of the pool. One of them hangs.
struct Source {
    pool: Arc<Pool>,
    opened: Arc<AtomicU32>,
    /// Told when it begins to hang; it does until this hears of something, and never again.
    hangs: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

impl Snapshots for Source {
    fn list(&self) -> Result<Vec<SnapshotInfo>> {
        Ok(Vec::new())
    }

    fn changed(&self) -> Result<Timestamp> {
        Ok(Timestamp::default())
    }

    fn guid(&self, name: &str) -> Result<u64> {
        let snapshot = self.pool.engine().dsl.open_dataset(&format!("tank@{name}"));
        snapshot.map(|snapshot| snapshot.phys().guid.get()).map_err(|error| daemon::errno(error.kind()))
    }

    fn open(&self, name: &str) -> Result<OpenSnapshot> {
        if name == "hangs" {
            self.opened.fetch_add(1, Ordering::Relaxed);
            let hangs = self.hangs.lock().take();
            if let Some((tell, go_on)) = hangs {
                tell.send(()).unwrap();
                go_on.recv().unwrap();
            }
        }
        let open = || {
            let filesystem = self.pool.file_system(&format!("tank@{name}"))?;
            let guid = self.pool.engine().dsl.dataset(filesystem.objset().dataset())?.phys().guid.get();
            Ok(OpenSnapshot { filesystem, guid })
        };
        open().map_err(|error: tarnfs::Error| daemon::errno(error.kind()))
    }

    fn make(&self, _: &Caller, name: &str) -> Result<()> {
        self.pool.take_snapshots(vec![format!("tank@{name}")]).map_err(|error| daemon::errno(error.kind()))
    }

    fn rename(&self, _: &Caller, _: &str, _: &str) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    fn check_destroy(&self, _: &Caller, _: &str) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    fn destroy(&self, _: &Caller, _: &str) -> Result<()> {
        Err(Errno::ENOSYS)
    }
}

impl Played {
    /// With snapshots, whose directory is the other thing.
    fn with_snapshots(hangs: Option<(Sender<()>, Receiver<()>)>, opened: Arc<AtomicU32>) -> (Played, u64) {
        let source = |pool: &Arc<Pool>| Some(Box::new(Source { pool: pool.clone(), opened, hangs: Mutex::new(hangs) }) as Box<dyn Snapshots>);
        let played = Played::with(OpsOptions::default(), source);
        let control = played.ops.lookup(&CX, ROOT_NODE, b".zfs").unwrap().node;
        let directory = played.ops.lookup(&CX, control, b"snapshot").unwrap().node;
        (played, directory)
    }

    /// Nobody has been in any snapshot for long enough.
    fn grow_idle(&self) {
        (0..31).for_each(|_| self.ops.tidy());
    }
}

/// A call about a file of a snapshot, or about `.zfs`, that needs the dataset as well went around the gate: it was at work in contents that were about to
/// go, or found none.
#[test]
fn calls_from_outside_wait_at_the_gate_too() {
    let (played, snapshots) = Played::with_snapshots(None, Arc::default());
    let file = played.make("file");
    played.write(file, 0, &[7; 4096]);
    played.snapshot("s");
    let root = played.ops.lookup(&CX, snapshots, b"s").unwrap().node;
    let source = played.ops.lookup(&CX, root, b"file").unwrap().node;
    let control = played.ops.lookup(&CX, ROOT_NODE, b".zfs").unwrap().node;
    let range = CopyRange { handle_in: 0, offset_in: 0, node_out: file, handle_out: 0, offset_out: MIB, length: 4096, flags: 0 };
    let copy = |ops: &Ops, node: u64| ops.copy_file_range(&CX, node, &range).map(|copied| assert_eq!(copied, 4096));
    let above = |ops: &Ops, node: u64| ops.lookup(&CX, node, b"..").map(|entry| assert_eq!(entry.node, ROOT_NODE));
    let room = |ops: &Ops, node: u64| ops.statfs(&CX, node).map(|_| ());
    let list = |ops: &Ops, node: u64| ops.readdir(&CX, node, 0, 0, &mut DirectoryWriter::new(&mut [0; 1024]));
    let calls: [(&str, u64, Call<'_>); 4] = [("copy", source, &copy), ("what is above", control, &above), ("room", control, &room), ("list", control, &list)];
    for (what, node, call) in calls {
        thread::scope(|scope| {
            let ops = &played.ops;
            let mut calling = None;
            played.refuse(|| {
                let (tell, told) = channel();
                let waiting = scope.spawn(move || {
                    tell.send(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()).unwrap();
                    call(ops, node)
                });
                let thread = told.recv().unwrap();
                assert!(comes(|| waiting.is_finished() || sleeps(thread)), "{what}");
                calling = Some(waiting);
            });
            assert_eq!(calling.map(|calling| calling.join().unwrap()), Some(Ok(())), "{what}");
        });
    }
    // One that makes a snapshot needs nothing of the dataset afterwards, though all changes are to be safe at once.
    played.ops.set_options(OpsOptions { sync: SyncPolicy::Always, announce_opens: true, ..OpsOptions::default() });
    let mut made = None;
    played.refuse(|| made = Some(played.ops.mkdir(&CX, snapshots, b"made", 0o755, 0).map(|entry| entry.node)));
    let made = made.unwrap().unwrap();
    for node in [root, source, made] {
        played.ops.forget(node, 1);
    }
    played.end();
}

/// A directory that a user made where `.zfs` had been switched off could not be reached any more when it was switched on.
#[test]
fn nothing_is_made_in_the_place_of_the_control_directory() {
    let (played, _) = Played::with_snapshots(None, Arc::default());
    let filesystem = played.ops.filesystem().unwrap();
    filesystem.mkdir(filesystem.root(), b".zfs", 0o755, &tarnfs::Credentials::root()).unwrap();
    let file = played.make("file");
    let options = |snapdir: SnapDir| played.ops.set_options(OpsOptions { snapdir, announce_opens: true, ..OpsOptions::default() });
    let rename = |from: &str, to: &str| played.ops.rename(&CX, ROOT_NODE, from.as_bytes(), ROOT_NODE, to.as_bytes(), 0);
    assert_eq!(rename(".zfs", "own"), Err(Errno::EPERM), "what has the name is out of sight");
    options(SnapDir::Disabled);
    assert_eq!(rename(".zfs", "own"), Ok(()), "this is how a user gets it back");
    assert_eq!(played.ops.mkdir(&CX, ROOT_NODE, b".zfs", 0o755, 0).map(|_| ()), Err(Errno::EEXIST));
    assert_eq!(played.ops.mknod(&CX, ROOT_NODE, b".zfs", 0o644, 0, 0).map(|_| ()), Err(Errno::EEXIST));
    assert_eq!(played.ops.symlink(&CX, ROOT_NODE, b".zfs", b"target").map(|_| ()), Err(Errno::EEXIST));
    assert_eq!(played.ops.link(&CX, file, ROOT_NODE, b".zfs").map(|_| ()), Err(Errno::EEXIST));
    assert_eq!(rename("own", ".zfs"), Err(Errno::EPERM));
    options(SnapDir::Hidden);
    assert_eq!(played.ops.rmdir(&CX, ROOT_NODE, b"own"), Ok(()));
    drop(filesystem);
    played.end();
}

/// A handle of a file in a snapshot led to the file in another one, which had got the slot of the first.
#[test]
fn a_handle_into_one_snapshot_does_not_lead_into_another() {
    let (played, snapshots) = Played::with_snapshots(None, Arc::default());
    played.make("file");
    played.snapshot("a");
    played.snapshot("b");
    let enter = |name: &str| {
        let root = played.ops.lookup(&CX, snapshots, name.as_bytes()).unwrap();
        let file = played.ops.lookup(&CX, root.node, b"file").unwrap();
        (root, file)
    };
    let forget = |nodes: &[u64]| nodes.iter().for_each(|node| played.ops.forget(*node, 1));
    let (root, file) = enter("a");
    forget(&[root.node, file.node]);
    played.grow_idle();
    let (other_root, other) = enter("b");
    assert_eq!((other_root.node, other.node), (root.node, file.node), "the slot is the same");
    // The kernel keeps this much of a generation, for a handle too.
    let found = played.ops.lookup(&CX, file.node, b".").unwrap();
    assert_ne!(found.generation as u32, file.generation as u32);
    assert_ne!(other_root.generation as u32, root.generation as u32);
    // One that is counted is not closed.
    forget(&[other_root.node, found.node]);
    played.grow_idle();
    assert!(played.ops.getattr(&CX, other.node, None).is_ok());
    forget(&[other.node]);
    played.grow_idle();
    assert_eq!(played.ops.getattr(&CX, other.node, None).map(|_| ()), Err(Errno::ESTALE));
    // The same again is the same.
    let (same_root, same) = enter("a");
    assert_eq!((same_root.generation, same.generation, same.node), (root.generation, file.generation, file.node));
    forget(&[same_root.node, same.node]);
    played.end();
}

/// To forget a name the kernel locks the directory, and a call in `.zfs/snapshot` may have that lock and wait for a device. No administrative verb was done
/// meanwhile, as the one that closed a snapshot or gave it another name waited in its turn.
#[test]
fn a_snapshot_is_closed_though_the_kernel_has_its_directory_locked() {
    // What has no room in the pipe is written at once, when there is, and does not keep out what is shorter.
    const ROOM: usize = 64;
    let (played, _) = Played::with_snapshots(None, Arc::default());
    let name = "s".repeat(100);
    for renamed in [false, true] {
        let (mut reader, notifier) = waiting_kernel(ROOM);
        played.ops.set_notifier(notifier);
        thread::scope(|scope| {
            let (ops, name) = (&played.ops, &name);
            let closing = scope.spawn(move || if renamed { ops.snapshot_renamed(name, "other") } else { ops.close_snapshot(name) });
            let was_closed = comes(|| closing.is_finished());
            reader.read_exact(&mut [0; 4096 - ROOM]).unwrap();
            let (mut told, mut message) = (Vec::new(), [0; 256]);
            while !told.ends_with(b"s\0") {
                let bytes = reader.read(&mut message).unwrap();
                told.extend_from_slice(&message[..bytes]);
            }
            assert!(was_closed, "renamed: {renamed}");
            assert!(told.windows(name.len()).any(|part| part == name.as_bytes()), "renamed: {renamed}");
        });
    }
    played.end();
}

/// While one snapshot was read from a device that hung, nobody could enter another one, or have unused ones closed, for which the control socket waited.
#[test]
fn a_snapshot_that_hangs_is_waited_for_by_those_who_want_it() {
    let ((tell, told), (go_on, waits)) = (channel(), channel());
    let opened = Arc::new(AtomicU32::new(0));
    let (played, snapshots) = Played::with_snapshots(Some((tell, waits)), opened.clone());
    for name in ["hangs", "quick"] {
        played.snapshot(name);
    }
    thread::scope(|scope| {
        let ops = &played.ops;
        let enter = move |name: &'static str| scope.spawn(move || ops.lookup(&CX, snapshots, name.as_bytes()).map(|entry| (entry.node, entry.generation)));
        let first = enter("hangs");
        told.recv().unwrap();
        let second = enter("hangs");
        let others = [enter("quick"), scope.spawn(move || { ops.tidy(); Ok((0, 0)) })];
        let went_on = comes(|| others.iter().all(|other| other.is_finished()));
        let waited = !second.is_finished();
        // It is about to be destroyed, say: what was being opened does not count.
        if went_on {
            ops.close_snapshot("hangs");
        }
        go_on.send(()).unwrap();
        let [first, second] = [first, second].map(|entering| entering.join().unwrap().unwrap());
        let [quick, _] = others.map(|other| other.join().unwrap().unwrap());
        assert!(went_on && waited, "others went on: {went_on}, it was waited for: {waited}");
        assert_eq!((first, opened.load(Ordering::Relaxed)), (second, 2), "it was opened again, once");
        assert_ne!(first.0, quick.0);
        for node in [first.0, second.0, quick.0] {
            ops.forget(node, 1);
        }
    });
    played.end();
}

/// The pool stopped while a snapshot got another name, and its slot kept the old one: a new snapshot of the old name showed the contents of the other.
#[test]
fn a_snapshot_is_not_found_by_a_name_that_is_another_s() {
    let (played, snapshots) = Played::with_snapshots(None, Arc::default());
    played.snapshot("a");
    let enter = || played.ops.lookup(&CX, snapshots, b"a").map(|entry| entry.node);
    let first = enter().unwrap();
    played.pool.engine().dsl.rename_snapshot("tank", "a", "b", false).unwrap();
    assert_eq!(enter(), Err(Errno::ENOENT), "no snapshot has the name");
    assert!(played.ops.getattr(&CX, first, None).is_ok(), "a program that is in it stays there");
    played.make("file");
    played.snapshot("a");
    let second = enter().unwrap();
    assert_ne!(second, first);
    let file = played.ops.lookup(&CX, second, b"file").unwrap().node;
    assert_ne!(file, 0, "it is in the new one");
    assert_eq!(played.ops.getattr(&CX, first, None).map(|_| ()), Err(Errno::ESTALE));
    assert_eq!(enter(), Ok(second));
    for (node, count) in [(first, 1), (file, 1), (second, 2)] {
        played.ops.forget(node, count);
    }
    played.end();
}

/// The files of which the kernel is told that it is to forget their contents: all that is in the pipe.
fn forgotten(reader: &mut PipeReader) -> Vec<u64> {
    let mut bytes = vec![0; 1 << 16];
    let end = reader.read(&mut bytes).unwrap();
    let (mut at, mut nodes) = (0, Vec::new());
    while at < end {
        let number = |from: usize| u32::from_ne_bytes(bytes[from..from + 4].try_into().unwrap());
        if number(at + 4) == fuse::protocol::NOTIFY_INVAL_INODE.cast_unsigned() {
            nodes.push(u64::from_ne_bytes(bytes[at + 16..at + 24].try_into().unwrap()));
        }
        at += number(at) as usize;
    }
    nodes
}

/// The names that the kernel is told to look up again, each with its directory: all that is in the pipe.
fn names_told(reader: &mut PipeReader) -> Vec<(u64, String)> {
    let mut bytes = vec![0; 1 << 16];
    let end = reader.read(&mut bytes).unwrap();
    let (mut at, mut names) = (0, Vec::new());
    while at < end {
        let number = |from: usize| u32::from_ne_bytes(bytes[from..from + 4].try_into().unwrap());
        if number(at + 4) == fuse::protocol::NOTIFY_INVAL_ENTRY.cast_unsigned() {
            let name = &bytes[at + 32..at + 32 + number(at + 24) as usize];
            names.push((u64::from_ne_bytes(bytes[at + 16..at + 24].try_into().unwrap()), String::from_utf8(name.to_vec()).unwrap()));
        }
        at += number(at) as usize;
    }
    names.sort();
    names
}

/// A name that led to another file after a rollback, one that had been there before and still was, led a kernel that cannot be told to forget all names to the file
/// that it had led to, for an hour: what was written to the one went into the other.
#[test]
fn an_old_kernel_is_told_of_names_that_lead_elsewhere() {
    for (minor, is_told) in [(43, true), (44, false)] {
        let played = Played::new(OpsOptions::default());
        played.ops.init(&agreed(minor, InitFlags::empty()));
        let make_directory = |at: u64, name: &[u8]| played.ops.mkdir(&CX, at, name, 0o755, 0).unwrap().node;
        let outer = make_directory(ROOT_NODE, b"outer");
        let inner = make_directory(outer, b"inner");
        for name in ["a", "b", "same"] {
            played.ops.create(&CX, inner, name.as_bytes(), 0o644, 0, libc::O_RDWR as u32).unwrap();
        }
        let unknown = played.make("unknown");
        played.ops.forget(unknown, 1);
        played.snapshot("s");
        for (from, to) in [("a", "c"), ("b", "a")] {
            played.ops.rename(&CX, inner, from.as_bytes(), inner, to.as_bytes(), 0).unwrap();
        }
        played.ops.rename(&CX, ROOT_NODE, b"unknown", ROOT_NODE, b"moved", 0).unwrap();
        let accessed = played.ops.getattr(&CX, inner, None).unwrap().attr.atime;
        let (mut reader, writer) = std::io::pipe().unwrap();
        played.ops.set_notifier(Notifier::into(writer.into()));
        played.refuse(|| ());
        assert!(names_told(&mut reader).is_empty(), "7.{minor}: nothing changed");
        played.roll_back("s", || ());
        let expected = if is_told { vec![(inner, "a".to_owned()), (inner, "c".to_owned())] } else { Vec::new() };
        assert_eq!(names_told(&mut reader), expected, "7.{minor}");
        assert_eq!(played.ops.getattr(&CX, inner, None).unwrap().attr.atime, accessed, "to compare is no access");
        played.end();
    }
}

/// Where contents could not be opened again after a rollback, the kernel went on to show pages that it had got just before: it was told of no file.
#[test]
fn the_kernel_forgets_contents_that_cannot_be_opened_again() {
    let played = Played::new(OpsOptions::default());
    let node = played.make("file");
    played.write(node, 0, &[7; 4096]);
    played.snapshot("s");
    let (mut reader, writer) = std::io::pipe().unwrap();
    let is_whole = Arc::new(AtomicBool::new(false));
    let (pool, whole) = (played.pool.clone(), is_whole.clone());
    let opener = move || match whole.load(Ordering::Relaxed) {
        true => Ok((pool.file_system("tank")?, false)),
        false => Err(tarnfs::Error::new(tarnfs::ErrorKind::Io, "a test's damage")),
    };
    let change = || {
        // What it was told before does not count: calls were answered since.
        played.ops.set_notifier(Notifier::into(writer.into()));
        played.pool.roll_back("tank", Some("s"))
    };
    played.ops.replace_contents(change, Box::new(opener), |error| error).unwrap_err();
    assert!(forgotten(&mut reader).contains(&node));
    // Nothing that programs have written is on disk because of this.
    assert_eq!(played.ops.syncfs(&CX), Err(Errno::EIO));
    is_whole.store(true, Ordering::Relaxed);
    assert_eq!(played.ops.syncfs(&CX), Ok(()));
    assert_eq!(played.ops.getattr(&CX, node, None).unwrap().attr.size, 4096);
    played.ops.forget(node, 1);
    played.end();
}
