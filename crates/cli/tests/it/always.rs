//! What is on the disk when a call returns: each operation under `sync=always`, and mapped memory after `msync`.
//!
//! The image is copied at once after the call: what the daemon has written by then is what a killed one leaves. (That it was flushed, too,
//! is the crash explorer's business.) The copy is opened with the library, which replays the log, and must be what the mount shows.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, IFlags, OFlags, RenameFlags, XattrFlags};
use sim::places::{say, skipped};
use tarnfs::{FileKind, FileSystem, ImportOptions, InodeNumber, Pool};

use crate::rig::{Rig, has_program};

/// One file, however it was read.
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    path: String,
    mode: u32,
    owner: (u32, u32),
    links: u64,
    /// Of a time that somebody set long ago; others are those of the replay.
    modified: Option<i64>,
    xattrs: Vec<(String, Vec<u8>)>,
    contents: Vec<u8>,
    /// Marked not to be dumped.
    no_dump: bool,
}

fn long_ago(seconds: i64) -> Option<i64> {
    Some(seconds).filter(|seconds| *seconds < 1_000_000_000)
}

/// What the kernel does not pass on, or what the library keeps as something else.
fn counts(name: &str) -> bool {
    name.starts_with("user.") || name.starts_with("system.posix_acl")
}

fn through_mount(root: &Path) -> Vec<Seen> {
    let see = |entry: walkdir::DirEntry| {
        let (path, meta) = (entry.path(), entry.metadata().unwrap());
        let mut list = vec![0; 4096];
        let used = rustix::fs::llistxattr(path, &mut list).unwrap_or(0);
        let names = list[..used].split(|byte| *byte == 0).map(|name| String::from_utf8_lossy(name).into_owned()).filter(|name| counts(name));
        let value = |name: String| {
            let mut value = vec![0; 4096];
            let length = rustix::fs::lgetxattr(path, &name, &mut value).unwrap();
            (name, value[..length].to_vec())
        };
        let mut xattrs: Vec<_> = names.map(value).collect();
        xattrs.sort();
        let contents = match () {
            () if meta.is_file() => fs::read(path).unwrap(),
            () if meta.is_symlink() => fs::read_link(path).unwrap().into_os_string().into_encoded_bytes(),
            () => Vec::new(),
        };
        let path = path.strip_prefix(root).unwrap().display().to_string();
        let no_dump = meta.is_file() && rustix::fs::ioctl_getflags(File::open(entry.path()).unwrap()).unwrap().contains(IFlags::NODUMP);
        Seen { no_dump, path, mode: meta.mode(), owner: (meta.uid(), meta.gid()), links: meta.nlink(), modified: long_ago(meta.mtime()), xattrs, contents }
    };
    let mut all: Vec<Seen> = walkdir::WalkDir::new(root).min_depth(1).into_iter().map(|entry| see(entry.unwrap())).collect();
    all.sort();
    all
}

fn through_library(fs: &FileSystem, at: InodeNumber, path: &str, all: &mut Vec<Seen>) {
    let mut entries = Vec::new();
    fs.read_directory(at, 2, &mut |entry| {
        entries.push((String::from_utf8(entry.name).unwrap(), entry.inode));
        true
    })
    .unwrap();
    for (name, inode) in entries {
        let path = if path.is_empty() { name } else { format!("{path}/{name}") };
        let stat = fs.getattr(inode).unwrap();
        let names = fs.listxattr(inode).unwrap().into_iter().map(|name| String::from_utf8(name).unwrap()).filter(|name| counts(name));
        let mut xattrs: Vec<_> = names.map(|name| (name.clone(), fs.getxattr(inode, name.as_bytes()).unwrap())).collect();
        xattrs.sort();
        let contents = match stat.kind() {
            FileKind::Regular => fs.read(inode, 0, stat.size as usize).unwrap(),
            FileKind::SymbolicLink => fs.readlink(inode).unwrap(),
            _ => Vec::new(),
        };
        let modified = long_ago(stat.modification_time.seconds);
        if stat.kind() == FileKind::Directory {
            through_library(fs, inode, &path, all);
        }
        let no_dump = stat.flags & ondisk::znode::FLAG_NO_DUMP != 0;
        all.push(Seen { no_dump, path, mode: stat.mode, owner: (stat.uid, stat.gid), links: stat.links, modified, xattrs, contents });
    }
}

/// What a daemon that is killed now leaves.
fn left(rig: &Rig) -> Vec<Seen> {
    let copied = Command::new("cp").arg("--sparse=always").arg(rig.path("a.img")).arg(rig.path("copy.img")).status().unwrap();
    assert!(copied.success());
    let pool = Pool::import(&[rig.path("copy.img")], "tank", ImportOptions { force: true, ..ImportOptions::default() }).unwrap();
    let fs = pool.file_system("tank").unwrap();
    let mut all = Vec::new();
    through_library(&fs, fs.root(), "", &mut all);
    fs.release_all();
    drop(fs);
    pool.abandon();
    drop(pool);
    fs::remove_file(rig.path("copy.img")).unwrap();
    all.sort();
    all
}

type Operation = (&'static str, fn(&Path));

fn write_to(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// Every operation of the mount that changes something; `f` has 100,000 bytes, `g` 10, `d` is an empty directory, `x` has an attribute.
const OPERATIONS: &[Operation] = &[
    ("create", |at| drop(File::create_new(at.join("new")).unwrap())),
    ("create and write", |at| fs::write(at.join("new"), "some contents").unwrap()),
    ("mkdir", |at| fs::create_dir(at.join("new")).unwrap()),
    ("symlink", |at| symlink("target", at.join("new")).unwrap()),
    ("mknod", |at| rustix::fs::mknodat(CWD, at.join("new"), FileType::Fifo, 0o644.into(), 0).unwrap()),
    ("link", |at| fs::hard_link(at.join("f"), at.join("new")).unwrap()),
    ("a file without a name gets one", |at| {
        let file = OpenOptions::new().read(true).write(true).custom_flags(OFlags::TMPFILE.bits().cast_signed()).open(at).unwrap();
        file.write_all_at(b"was unnamed", 0).unwrap();
        let own = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        rustix::fs::linkat(CWD, own, CWD, at.join("new"), AtFlags::SYMLINK_FOLLOW).unwrap();
    }),
    ("unlink", |at| fs::remove_file(at.join("f")).unwrap()),
    ("rmdir", |at| fs::remove_dir(at.join("d")).unwrap()),
    ("rename", |at| fs::rename(at.join("f"), at.join("d/moved")).unwrap()),
    ("rename over", |at| fs::rename(at.join("f"), at.join("g")).unwrap()),
    ("exchange", |at| rustix::fs::renameat_with(CWD, at.join("f"), CWD, at.join("g"), RenameFlags::EXCHANGE).unwrap()),
    ("write", |at| write_to(&at.join("f")).write_all_at(b"over", 50_000).unwrap()),
    ("append", |at| OpenOptions::new().append(true).open(at.join("f")).unwrap().write_all(b"more").unwrap()),
    ("truncate", |at| write_to(&at.join("f")).set_len(3000).unwrap()),
    ("a truncating open", |at| drop(File::create(at.join("f")).unwrap())),
    ("allocate", |at| rustix::fs::fallocate(write_to(&at.join("g")), FallocateFlags::empty(), 0, 5000).unwrap()),
    ("punch a hole", |at| rustix::fs::fallocate(write_to(&at.join("f")), FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 100, 70_000).unwrap()),
    ("copy_file_range", |at| {
        let (from, to) = (File::open(at.join("f")).unwrap(), write_to(&at.join("g")));
        assert_eq!(rustix::fs::copy_file_range(&from, None, &to, None, 90_000).unwrap(), 90_000);
    }),
    ("chmod", |at| fs::set_permissions(at.join("f"), fs::Permissions::from_mode(0o604)).unwrap()),
    ("chown", |at| chown(at.join("f"), Some(12), Some(34)).unwrap()),
    ("utimes", |at| write_to(&at.join("f")).set_modified(UNIX_EPOCH + Duration::from_secs(123_456)).unwrap()),
    ("a mark", |at| rustix::fs::ioctl_setflags(write_to(&at.join("f")), IFlags::NODUMP).unwrap()),
    ("setxattr", |at| rustix::fs::setxattr(at.join("f"), "user.new", b"value", XattrFlags::empty()).unwrap()),
    ("removexattr", |at| rustix::fs::removexattr(at.join("x"), "user.old").unwrap()),
    ("an access control list", |at| {
        // Version 2; owner rw-, user 1000 r--, group r--, mask rw-, others ---.
        let entries: [(u16, u16, u32); 5] = [(1, 6, u32::MAX), (2, 4, 1000), (4, 4, u32::MAX), (16, 6, u32::MAX), (32, 0, u32::MAX)];
        let mut list = 2u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            list.extend([&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat());
        }
        rustix::fs::setxattr(at.join("f"), "system.posix_acl_access", &list, XattrFlags::empty()).unwrap();
    }),
];

fn ground(rig: &Rig) {
    let root = rig.path("mnt");
    for entry in fs::read_dir(&root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }
    fs::write(root.join("f"), (0..100_000u32).map(|at| at as u8).collect::<Vec<_>>()).unwrap();
    fs::write(root.join("g"), "0123456789").unwrap();
    fs::write(root.join("x"), "x").unwrap();
    rustix::fs::setxattr(root.join("x"), "user.old", b"value", XattrFlags::empty()).unwrap();
    fs::create_dir(root.join("d")).unwrap();
    rig.ok("zpool sync tank");
}

#[test]
fn with_sync_always_each_operation_is_on_disk_when_it_returns() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 << 20);
    rig.ok("zpool create -O mountpoint=@mnt -O sync=always -O xattr=sa -O acltype=posix tank @a.img");
    let root = rig.path("mnt");
    for (name, operation) in OPERATIONS {
        ground(&rig);
        let before = through_mount(&root);
        operation(&root);
        let left = left(&rig);
        let there = through_mount(&root);
        assert!(there != before, "{name}: it has done nothing");
        assert_eq!(left, there, "{name}: on disk is something else than there is");
    }
    // The judge sees what is not there: without the property most of this waits for the group.
    rig.ok("zfs set sync=standard tank");
    let mut missing = 0;
    for (_, operation) in &OPERATIONS[..3] {
        ground(&rig);
        operation(&root);
        missing += u32::from(left(&rig) != through_mount(&root));
    }
    assert!(missing > 0, "without sync=always everything was on disk too: this test cannot fail");
    say(&format!("sync=always: {} operations are on disk when they return", OPERATIONS.len()));
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

/// Maps two files, changes both, syncs one of them, says so and stays.
const MAPPER: &str = r#"
import mmap, sys, time
def mapped(name):
    file = open(sys.argv[1] + "/" + name, "r+b")
    return mmap.mmap(file.fileno(), 300000)
synced, unsynced = mapped("synced"), mapped("unsynced")
for at in range(0, 300000, 1000):
    synced[at:at+5] = b"after"
    unsynced[at:at+5] = b"after"
synced.flush()
print("flushed", flush=True)
time.sleep(1000)
"#;

/// Changes a page of mapped memory, and another by writing; when told to, makes the one safe, and writes again.
const LATE: &str = r#"
import mmap, os, sys
file = os.open(sys.argv[1] + "/mapped", os.O_RDWR)
mapped = mmap.mmap(file, 8192)
mapped[0:5] = b"early"
print("ready", flush=True)
sys.stdin.readline()
try:
    os.pwrite(file, b"late!", 4096)
    print("written", flush=True)
except OSError as error:
    print(error.errno, flush=True)
mapped.flush()
print("safe", flush=True)
"#;

/// What a program had written into mapped memory was refused when `readonly` was set before the kernel handed it over, and lost.
#[test]
fn what_was_mapped_before_readonly_was_set_is_kept() {
    let Some(rig) = Rig::new() else { return };
    if !has_program("python3") {
        return;
    }
    rig.image("a.img", 128 << 20);
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    fs::write(rig.path("mnt/mapped"), vec![b'-'; 8192]).unwrap();
    let mut mapper = Command::new("python3").args(["-c", LATE]).arg(rig.path("mnt")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(mapper.stdout.take().unwrap()).lines();
    if lines.next().is_none() {
        let _ = mapper.wait();
        return skipped("mapped memory: python3 has no module mmap");
    }
    rig.ok("zfs set readonly=on tank");
    drop(mapper.stdin.take());
    let said: Vec<String> = lines.map(|line| line.unwrap()).collect();
    assert!(mapper.wait().unwrap().success() && said == ["30", "safe"], "{said:?}");
    rig.ok("zpool export tank");
    rig.ok("zpool import -d @a.img tank");
    let found = fs::read(rig.path("mnt/mapped")).unwrap();
    assert!(found.starts_with(b"early-") && found[4096..].iter().all(|byte| *byte == b'-'), "what was mapped is gone");
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

/// As OpenZFS: after an unmount everything is on disk.
#[test]
fn what_was_unmounted_survives_the_death_of_the_daemon() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 << 20);
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    rig.ok("zpool sync tank");
    fs::write(rig.path("mnt/file"), vec![b'x'; 300_000]).unwrap();
    rig.ok("zfs unmount tank");
    rig.kill();
    rig.ok("zpool import -d @a.img tank");
    assert!(fs::read(rig.path("mnt/file")).is_ok_and(|bytes| bytes.len() == 300_000), "what was unmounted is gone");
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

#[test]
fn what_msync_wrote_survives_the_death_of_the_daemon() {
    let Some(rig) = Rig::new() else { return };
    if !has_program("python3") {
        return;
    }
    rig.image("a.img", 128 << 20);
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    let root = rig.path("mnt");
    for name in ["synced", "unsynced"] {
        fs::write(root.join(name), vec![b'-'; 300_000]).unwrap();
    }
    rig.ok("zpool sync tank");
    let mut mapper = Command::new("python3").args(["-c", MAPPER]).arg(&root).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(mapper.stdout.take().unwrap()).read_line(&mut line).unwrap();
    if line.is_empty() {
        let _ = mapper.wait();
        return skipped("mapped memory: python3 has no module mmap");
    }
    rig.kill();
    mapper.kill().unwrap();
    mapper.wait().unwrap();
    rig.unmount_all();
    rig.ok("zpool import -d @a.img tank");
    let changed = |name: &str| fs::read(root.join(name)).unwrap().chunks(1000).filter(|chunk| chunk.starts_with(b"after")).count();
    assert_eq!(changed("synced"), 300, "what msync had written is gone");
    assert!(changed("unsynced") < 300, "without msync it is there too: this test cannot fail");
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}
