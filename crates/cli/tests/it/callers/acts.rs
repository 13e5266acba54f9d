//! What can be asked of a file: one line each.

use std::cell::RefCell;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::fs::{
    Access, AtFlags, CWD, FallocateFlags, FileType, IFlags, Mode, OFlags, RenameFlags, SeekFrom, Timespec, Timestamps, UTIME_NOW,
    UTIME_OMIT, XattrFlags, accessat, chmod, chown, copy_file_range, fallocate, ftruncate, getxattr, ioctl_getflags,
    ioctl_setflags, linkat, listxattr, mkdir, mknodat, open, removexattr, renameat_with, rmdir, seek, setxattr, symlink, unlink,
    utimensat,
};
use rustix::io::{Errno, pread, pwrite, read, write};
use rustix::process::{Gid, Uid};

use super::people::{GROUP, OWNER, STRANGER};

/// What is asked about: a file or directory, mostly in a directory of its own, where everybody may make names.
#[derive(Clone)]
pub(super) struct Cell {
    pub(super) directory: PathBuf,
    /// Its name in that.
    pub(super) name: &'static str,
    /// Everybody may read it, and copy from it.
    pub(super) source: PathBuf,
}

impl Cell {
    pub(super) fn target(&self) -> PathBuf {
        self.directory.join(self.name)
    }

    /// A name that is free.
    fn free(&self) -> PathBuf {
        self.directory.join("n")
    }

    fn open(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        open(self.target(), flags | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::from_raw_mode(0o666))
    }
}

/// What was answered: text that the file systems must agree on, or an errno.
pub(super) type Answer = Result<String, Errno>;

pub(super) struct Act {
    /// The first word is the family.
    pub(super) name: &'static str,
    pub(super) run: fn(&Cell) -> Answer,
}

fn done<T>(result: Result<T, Errno>) -> Answer {
    result.map(|_| String::new())
}

fn allocated(cell: &Cell, flags: OFlags, mode: FallocateFlags, offset: u64, length: u64) -> Answer {
    done(cell.open(flags).and_then(|file| fallocate(&file, mode, offset, length)))
}

fn opened(cell: &Cell, flags: OFlags) -> Answer {
    done(cell.open(flags))
}

fn written(cell: &Cell, flags: OFlags) -> Answer {
    done(cell.open(OFlags::WRONLY | flags).and_then(|file| write(&file, b"other")))
}

fn sought(cell: &Cell, flags: OFlags, whence: fn(u64) -> SeekFrom) -> Answer {
    let file = cell.open(flags)?;
    // Where data and holes begin depends on the size of blocks.
    done(seek(&file, whence(0)))?;
    done(seek(&file, whence(1 << 30)))
}

fn owned(cell: &Cell, owner: Option<u32>, group: Option<u32>) -> Answer {
    done(chown(cell.target(), owner.map(Uid::from_raw), group.map(Gid::from_raw)))
}

fn mode(cell: &Cell, mode: u32) -> Answer {
    done(chmod(cell.target(), Mode::from_raw_mode(mode)))
}

fn timed(cell: &Cell, nanoseconds: i64) -> Answer {
    let time = Timespec { tv_sec: 1_000_000, tv_nsec: nanoseconds };
    done(utimensat(CWD, cell.target(), &Timestamps { last_access: time, last_modification: time }, AtFlags::empty()))
}

fn set(cell: &Cell, name: &str, value: &[u8]) -> Answer {
    done(setxattr(cell.target(), name, value, XattrFlags::empty()))
}

fn get(cell: &Cell, name: &str) -> Answer {
    let mut value = vec![0; 256];
    let length = getxattr(cell.target(), name, &mut value[..])?;
    Ok(format!("{:?}", &value[..length]))
}

fn removed(cell: &Cell, name: &str) -> Answer {
    done(removexattr(cell.target(), name))
}

/// The names of the extended attributes that a caller is shown, in order.
fn listed(path: &Path) -> Answer {
    let mut list = vec![0; 1024];
    let length = listxattr(path, &mut list[..])?;
    let mut names: Vec<String> = list[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect();
    names.sort();
    Ok(names.join(" "))
}

/// Changes these marks, and leaves others, which each file system has of its own.
pub(super) fn mark(path: &Path, marks: IFlags) -> Result<(), Errno> {
    let file = open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    ioctl_setflags(&file, (ioctl_getflags(&file)? - MARKS) | marks)
}

/// The marks that both file systems have.
const MARKS: IFlags = IFlags::IMMUTABLE.union(IFlags::APPEND).union(IFlags::NODUMP);

fn marked(cell: &Cell, flags: IFlags) -> Answer {
    done(mark(&cell.target(), flags))
}

/// A program that sends requests by their number, which the safe interfaces have not: for each line with a path, a number and an argument it says the errno.
struct Controller {
    child: Child,
    answers: BufReader<ChildStdout>,
}

const CONTROLLER: &str = r"
    $| = 1;
    while (<STDIN>) {
        chomp; my ($path, $number, $argument) = split /\t/; my $errno = 0; my $bytes = pack('H*', $argument);
        if (!sysopen(my $file, $path, 2048)) { $errno = $! + 0; } elsif (!defined ioctl($file, oct($number), $bytes)) { $errno = $! + 0; }
        print qq($errno\n);
    }";

impl Controller {
    fn new() -> Controller {
        let mut child = Command::new("perl")
            .args(["-e", CONTROLLER])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Controller { child, answers }
    }

    fn ask(&mut self, path: &Path, command: u32, argument: &str) -> i32 {
        writeln!(self.child.stdin.as_mut().unwrap(), "{}\t{command:#x}\t{argument}", path.display()).unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim().parse().unwrap_or_else(|_| panic!("perl says {line:?}"))
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

thread_local! {
    /// One for each caller: it has their rights.
    static CONTROLLER_OF_CALLER: RefCell<Option<Controller>> = const { RefCell::new(None) };
}

fn control(cell: &Cell, command: u32, argument: &str) -> Answer {
    match CONTROLLER_OF_CALLER
        .with_borrow_mut(|controller| controller.get_or_insert_with(Controller::new).ask(&cell.target(), command, argument))
    {
        0 => Ok(String::new()),
        errno => Err(Errno::from_raw_os_error(errno)),
    }
}

fn copied(cell: &Cell, from: &Path, to: &Path, at: u64) -> Answer {
    let from = open(from, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let to = open(to, OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC, Mode::from_raw_mode(0o666))?;
    let _ = cell;
    let (mut offset_in, mut offset_out) = (0, at);
    copy_file_range(&from, Some(&mut offset_in), &to, Some(&mut offset_out), 4096).map(|count| count.to_string())
}

/// Capabilities of version 2: CAP_NET_RAW is permitted and effective.
pub(super) const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// A list that says no more than a mode does: 0644.
const PLAIN_LIST: [u8; 28] =
    [2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 4, 0, 4, 0, 255, 255, 255, 255, 32, 0, 4, 0, 255, 255, 255, 255];
const ACCESS_LIST: &str = "system.posix_acl_access";

const ZERO_KEEP: FallocateFlags = FallocateFlags::ZERO_RANGE.union(FallocateFlags::KEEP_SIZE);
const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

macro_rules! acts {
    ($($name:literal => $run:expr,)*) => { &[$(Act { name: $name, run: $run }),*] };
}

pub(super) const ACTS: &[Act] = acts! {
    "open to read" => |cell| opened(cell, OFlags::RDONLY),
    "open to write" => |cell| opened(cell, OFlags::WRONLY),
    "open to read and write" => |cell| opened(cell, OFlags::RDWR),
    "open to append" => |cell| opened(cell, OFlags::WRONLY | OFlags::APPEND),
    "open and empty" => |cell| opened(cell, OFlags::WRONLY | OFlags::TRUNC),
    "open past the cache" => |cell| opened(cell, OFlags::WRONLY | OFlags::DSYNC),
    "open unnoticed" => |cell| opened(cell, OFlags::NOATIME),
    "access to execute" => |cell| done(accessat(CWD, cell.target(), Access::EXEC_OK, AtFlags::EACCESS)),
    "access to write" => |cell| done(accessat(CWD, cell.target(), Access::WRITE_OK, AtFlags::EACCESS)),
    "read" => |cell| cell.open(OFlags::RDONLY).and_then(|file| { let mut bytes = [0; 5]; read(&file, &mut bytes[..]).map(|count| format!("{count} {bytes:?}")) }),
    "write" => |cell| written(cell, OFlags::empty()),
    "write at the end" => |cell| written(cell, OFlags::APPEND),
    "write durably" => |cell| written(cell, OFlags::DSYNC),
    "write nothing" => |cell| done(cell.open(OFlags::WRONLY).and_then(|file| write(&file, b""))),
    "write far behind" => |cell| done(cell.open(OFlags::RDWR).and_then(|file| { pread(&file, &mut [0; 1][..], 0)?; pwrite(&file, b"x", 100_000) })),
    "write read-only" => |cell| done(cell.open(OFlags::RDONLY).and_then(|file| write(&file, b"x"))),
    "truncate by path" => |cell| done(cell.open(OFlags::WRONLY | OFlags::APPEND).and_then(|file| ftruncate(&file, 10))),
    "truncate" => |cell| done(cell.open(OFlags::WRONLY).and_then(|file| ftruncate(&file, 10))),
    "truncate to more" => |cell| done(cell.open(OFlags::WRONLY).and_then(|file| ftruncate(&file, 100_000))),
    "truncate to the same" => |cell| done(cell.open(OFlags::WRONLY).and_then(|file| ftruncate(&file, 8192))),
    "fallocate" => |cell| allocated(cell, OFlags::WRONLY, FallocateFlags::empty(), 0, 4096),
    "fallocate to more" => |cell| allocated(cell, OFlags::WRONLY, FallocateFlags::empty(), 0, 100_000),
    "fallocate appending" => |cell| allocated(cell, OFlags::WRONLY | OFlags::APPEND, FallocateFlags::empty(), 0, 100_000),
    "fallocate keeping the size" => |cell| allocated(cell, OFlags::WRONLY, FallocateFlags::KEEP_SIZE, 0, 100_000),
    "fallocate appending, keeping the size" => |cell| allocated(cell, OFlags::WRONLY | OFlags::APPEND, FallocateFlags::KEEP_SIZE, 0, 100_000),
    "fallocate a hole" => |cell| allocated(cell, OFlags::WRONLY, PUNCH, 0, 4096),
    "fallocate a hole, appending" => |cell| allocated(cell, OFlags::WRONLY | OFlags::APPEND, PUNCH, 0, 4096),
    "fallocate zeros" => |cell| allocated(cell, OFlags::WRONLY, FallocateFlags::ZERO_RANGE, 0, 100_000),
    "fallocate zeros, keeping the size" => |cell| allocated(cell, OFlags::WRONLY, ZERO_KEEP, 0, 4096),
    "fallocate read-only" => |cell| allocated(cell, OFlags::RDONLY, FallocateFlags::empty(), 0, 4096),
    "copy into it" => |cell| copied(cell, &cell.source, &cell.target(), 0),
    "copy behind its end" => |cell| copied(cell, &cell.source, &cell.target(), 100_000),
    "copy from it" => |cell| copied(cell, &cell.target(), &cell.free(), 0),
    "seek data" => |cell| sought(cell, OFlags::RDONLY, SeekFrom::Data),
    "seek a hole" => |cell| sought(cell, OFlags::RDONLY, SeekFrom::Hole),
    "seek data, writing" => |cell| sought(cell, OFlags::WRONLY, SeekFrom::Data),
    "chmod 0600" => |cell| mode(cell, 0o600),
    "chmod 4755" => |cell| mode(cell, 0o4755),
    "chmod 2755" => |cell| mode(cell, 0o2755),
    "chmod 2644" => |cell| mode(cell, 0o2644),
    "chmod 1777" => |cell| mode(cell, 0o1777),
    "chown to the stranger" => |cell| owned(cell, Some(STRANGER), None),
    "chown to the owner" => |cell| owned(cell, Some(OWNER), None),
    "chown to the group" => |cell| owned(cell, None, Some(GROUP)),
    "chown to another group" => |cell| owned(cell, None, Some(STRANGER + 1)),
    "chown both" => |cell| owned(cell, Some(STRANGER), Some(STRANGER)),
    "times now" => |cell| timed(cell, UTIME_NOW),
    "times of the past" => |cell| timed(cell, 5),
    "times left out" => |cell| timed(cell, UTIME_OMIT),
    "xattr user" => |cell| set(cell, "user.x", b"new"),
    "xattr user anew" => |cell| set(cell, "user.old", b"new"),
    "xattr trusted" => |cell| set(cell, "trusted.x", b"new"),
    "xattr security" => |cell| set(cell, "security.tarn", b"new"),
    "xattr capability" => |cell| set(cell, "security.capability", &CAPABILITY),
    "xattr list" => |cell| set(cell, ACCESS_LIST, &PLAIN_LIST),
    "xattr of the system" => |cell| set(cell, "system.tarn", b"new"),
    "xattr without a namespace" => |cell| set(cell, "tarn", b"new"),
    "xattr get user" => |cell| get(cell, "user.old"),
    "xattr get trusted" => |cell| get(cell, "trusted.old"),
    "xattr get security" => |cell| get(cell, "security.old"),
    "xattr get list" => |cell| get(cell, ACCESS_LIST),
    "xattr get of the system" => |cell| get(cell, "system.tarn"),
    "xattr get without a namespace" => |cell| get(cell, "tarn"),
    "xattr remove user" => |cell| removed(cell, "user.old"),
    "xattr remove trusted" => |cell| removed(cell, "trusted.old"),
    "xattr remove security" => |cell| removed(cell, "security.old"),
    "xattr remove list" => |cell| removed(cell, ACCESS_LIST),
    "xattr names" => |cell| listed(&cell.target()),
    "mark read" => |cell| cell.open(OFlags::RDONLY).and_then(ioctl_getflags).map(|flags| format!("{:?}", flags & MARKS)),
    "mark immutable" => |cell| marked(cell, IFlags::IMMUTABLE),
    "mark append-only" => |cell| marked(cell, IFlags::APPEND),
    "mark not to be dumped" => |cell| marked(cell, IFlags::NODUMP),
    "mark nothing" => |cell| marked(cell, IFlags::empty()),
    "mark read by the 32-bit number" => |cell| control(cell, 0x8004_6601, "00000000"),
    "mark immutable by the 32-bit number" => |cell| control(cell, 0x4004_6602, "10000000"),
    "mark nothing by the 32-bit number" => |cell| control(cell, 0x4004_6602, "00000000"),
    "mark immutable by the newer request" => |cell| control(cell, 0x401c_5820, &format!("08{}", "00".repeat(27))),
    "mark read by the newer request" => |cell| control(cell, 0x801c_581f, &"00".repeat(28)),
    "mark generation read" => |cell| control(cell, 0x8008_7601, &"00".repeat(8)),
    "mark by no request at all" => |cell| control(cell, 0x4004_66ff, "00000000"),
    "name removed" => |cell| done(unlink(cell.target())),
    "name removed as a directory" => |cell| done(rmdir(cell.target())),
    "name changed" => |cell| done(renameat_with(CWD, cell.target(), CWD, cell.free(), RenameFlags::NOREPLACE)),
    "name replaced" => |cell| { fs::write(cell.free(), "").map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?; done(renameat_with(CWD, cell.free(), CWD, cell.target(), RenameFlags::empty())) },
    "name exchanged" => |cell| {
        fs::write(cell.free(), "").map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        done(renameat_with(CWD, cell.free(), CWD, cell.target(), RenameFlags::EXCHANGE))
    },
    "name added" => |cell| done(linkat(CWD, cell.target(), CWD, cell.free(), AtFlags::empty())),
    "entry made" => |cell| done(mknodat(CWD, cell.target().join("f"), FileType::RegularFile, Mode::from_raw_mode(0o600), 0)),
    "entry made: a directory" => |cell| done(mkdir(cell.target().join("d"), Mode::from_raw_mode(0o700))),
    "entry made: a link" => |cell| done(symlink("to", cell.target().join("l"))),
    "entry made: a device" => |cell| done(mknodat(CWD, cell.target().join("c"), FileType::CharacterDevice, Mode::from_raw_mode(0o600), rustix::fs::makedev(1, 3))),
    "entry made without a name" => |cell| done(open(cell.target(), OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::from_raw_mode(0o600))),
    "entry removed" => |cell| done(unlink(cell.target().join("e"))),
    "entry renamed" => |cell| done(renameat_with(CWD, cell.target().join("e"), CWD, cell.target().join("g"), RenameFlags::empty())),
};

/// What a caller with all rights sees of a file afterwards.
pub(super) fn seen(cell: &Cell) -> String {
    use std::os::unix::fs::MetadataExt;
    let mut text = String::new();
    let mut entries: Vec<PathBuf> =
        walkdir::WalkDir::new(&cell.directory).into_iter().map(|entry| entry.unwrap().into_path()).collect();
    entries.sort();
    for path in &entries[1..] {
        let meta = fs::symlink_metadata(path).unwrap();
        let name = path.strip_prefix(&cell.directory).unwrap().display();
        text += &format!("{name}: {:o} {}:{}", meta.mode(), meta.uid(), meta.gid());
        if meta.is_file() {
            text += &format!(" {} bytes, {} names", meta.len(), meta.nlink());
        }
        if meta.is_file() || meta.is_dir() {
            let marks = open(path, OFlags::RDONLY, Mode::empty()).and_then(ioctl_getflags);
            let marks = marks.map(|marks| marks & MARKS);
            text += &format!(" {:?} {}", marks.unwrap_or(IFlags::empty()), listed(path).unwrap_or_default());
        }
        text += "; ";
    }
    text
}
