//! What programs expect of files, through the kernel: holes, ranges, appends, locks, positions in directories, programs that run.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::mem::MaybeUninit;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, FallocateFlags, FlockOperation, RawDir, copy_file_range, fallocate, fcntl_lock, seek};
use rustix::io::Errno;

use crate::rig::Rig;

const MIB: u64 = 1 << 20;
const RECORD: u64 = 4096;

#[test]
fn files_as_programs_use_them() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 512 * MIB);
    rig.ok("zpool create -O mountpoint=@mnt -O recordsize=4K tank @a.img");
    let place = rig.path("mnt");
    holes(&place.join("holes"));
    copies(&place.join("from"), &place.join("to"));
    appends(&place.join("log"));
    overlapping_writes(&place.join("shared"), true);
    overlapping_writes(&place.join("cached"), false);
    direct(&place.join("direct"));
    locks(&place.join("locked"));
    running_programs(&place);
    directory_positions(&place.join("many"), 3_000);
    buffers(&place.join("small"));
    rig.ok("zpool export tank");
    rig.check("tank");
    rig.zdb(&["a.img"]);
}

/// A small file does not say that its block of 512 bytes is a good size for writing: the C library's buffers would be so small, and PostMark made twice as many requests.
fn buffers(path: &Path) {
    std::fs::write(path, [1; 100]).unwrap();
    assert!(std::os::unix::fs::MetadataExt::blksize(&path.metadata().unwrap()) >= 32 << 10);
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// The ranges that hold data, as `lseek` says.
fn data(file: &File) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let mut at = 0;
    loop {
        match seek(file, rustix::fs::SeekFrom::Data(at)) {
            Ok(from) => {
                at = seek(file, rustix::fs::SeekFrom::Hole(from)).unwrap();
                found.push((from, at));
            }
            Err(Errno::NXIO) => return found,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Holes are where nothing was written, at once and after everything is on disk; what is punched or zeroed reads as zeros.
fn holes(path: &Path) {
    let file = open(path);
    for at in [0, 8, 9, 40] {
        file.write_all_at(&[7; RECORD as usize], at * RECORD).unwrap();
    }
    file.set_len(100 * RECORD).unwrap();
    let expected = [(0, RECORD), (8 * RECORD, 10 * RECORD), (40 * RECORD, 41 * RECORD)];
    assert_eq!(data(&file), expected, "while it is dirty");
    file.sync_all().unwrap();
    assert_eq!(data(&file), expected, "on disk");
    assert_eq!(seek(&file, rustix::fs::SeekFrom::Data(100 * RECORD)), Err(Errno::NXIO));
    assert_eq!(seek(&file, rustix::fs::SeekFrom::Hole(99 * RECORD)), Ok(99 * RECORD), "in a hole already");

    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 8 * RECORD, RECORD).unwrap();
    assert_eq!(data(&file), [(0, RECORD), (9 * RECORD, 10 * RECORD), (40 * RECORD, 41 * RECORD)], "punched, not on disk yet");
    fallocate(&file, punch, 100, 50).unwrap();
    let mut block = [1; RECORD as usize];
    file.read_exact_at(&mut block, 0).unwrap();
    assert!(block.iter().enumerate().all(|(at, byte)| *byte == if (100..150).contains(&at) { 0 } else { 7 }), "part of a block");
    fallocate(&file, FallocateFlags::ZERO_RANGE, 99 * RECORD, 3 * RECORD).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 102 * RECORD, "zeroing behind the end makes it longer");
    fallocate(&file, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, 40 * RECORD, 100 * RECORD).unwrap();
    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 200 * RECORD).unwrap();
    assert_eq!((file.metadata().unwrap().len(), data(&file).len()), (102 * RECORD, 2));
    fallocate(&file, FallocateFlags::empty(), 0, 200 * RECORD).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 200 * RECORD);
    assert_eq!(fallocate(&file, FallocateFlags::empty(), 0, 1 << 40), Err(Errno::NOSPC), "more than the pool has");
    for refused in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
        assert_eq!(fallocate(&file, refused, 0, RECORD), Err(Errno::OPNOTSUPP), "OpenZFS has it not either");
    }
    file.sync_all().unwrap();
    assert_eq!(data(&file), [(0, RECORD), (9 * RECORD, 10 * RECORD)]);
}

fn copies(from: &Path, to: &Path) {
    let text: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
    fs::write(from, &text).unwrap();
    let (source, target) = (open(from), open(to));
    let (mut read, mut written) = (1001, 77);
    let mut left = 300_000;
    while left > 0 {
        let count = copy_file_range(&source, Some(&mut read), &target, Some(&mut written), left).unwrap();
        assert!(count > 0);
        left -= count;
    }
    let copied = fs::read(to).unwrap();
    assert!(copied[..77].iter().all(|byte| *byte == 0));
    assert_eq!(copied[77..], text[1001..301_001]);
    // Within one file, and past its end: fewer bytes, then none.
    let (mut read, mut written) = (text.len() as u64 - 10, 0);
    assert_eq!(copy_file_range(&source, Some(&mut read), &source, Some(&mut written), 4096).unwrap(), 10);
    assert_eq!(copy_file_range(&source, Some(&mut read), &source, Some(&mut written), 4096).unwrap(), 0);
    assert_eq!(fs::read(from).unwrap()[..10], text[text.len() - 10..]);
}

/// Lines of many writers arrive whole, each once, those of one writer in order.
fn appends(path: &Path) {
    const WRITERS: usize = 6;
    const LINES: usize = 300;
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
                for line in 0..LINES {
                    let text = format!("{writer} {line} {}\n", "x".repeat(line % 97));
                    assert_eq!(file.write(text.as_bytes()).unwrap(), text.len());
                }
            });
        }
    });
    let text = fs::read_to_string(path).unwrap();
    let mut next = [0; WRITERS];
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [writer, number, filler] = words.as_slice() else { panic!("a torn line: {line:?}") };
        let (writer, number): (usize, usize) = (writer.parse().unwrap(), number.parse().unwrap());
        assert_eq!((number, filler.len()), (next[writer], number % 97), "{line:?}");
        next[writer] += 1;
    }
    assert_eq!(next, [LINES; WRITERS]);
}

/// Each write is there whole or not at all, also where writers overlap over several blocks: for those who go around the page cache.
/// Of what goes through it the kernel hands over what it likes; there it keeps writers apart, but not readers, as anywhere.
fn overlapping_writes(path: &Path, around_the_cache: bool) {
    const LENGTH: usize = 5 * RECORD as usize;
    let flags = if around_the_cache { libc::O_DIRECT } else { 0 };
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).custom_flags(flags).open(path).unwrap();
    file.write_all_at(&[0; LENGTH], 0).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (1..=3u8)
            .map(|byte| {
                let file = &file;
                scope.spawn(move || {
                    for _ in 0..150 {
                        file.write_all_at(&[byte; LENGTH], 0).unwrap();
                    }
                })
            })
            .collect();
        let done = &done;
        let reader = scope.spawn(move || {
            if !around_the_cache {
                return;
            }
            let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path).unwrap();
            while !done.load(Ordering::Relaxed) {
                let mut bytes = vec![9; LENGTH];
                let count = direct.read_at(&mut bytes, 0).unwrap_or(0);
                if count > 0 {
                    let first = bytes[0];
                    assert!(bytes[..count].iter().all(|byte| *byte == first), "part of one write and part of another");
                }
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    let mut bytes = [0; LENGTH];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert!((1..=3).contains(&bytes[0]) && bytes.iter().all(|byte| *byte == bytes[0]));
}

/// What is written around the page cache is read through it, and the other way round.
fn direct(path: &Path) {
    let cached = open(path);
    let direct = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path).unwrap();
    for round in 0..50u8 {
        let at = u64::from(round) * 1000;
        let (writer, reader) = if round % 2 == 0 { (&cached, &direct) } else { (&direct, &cached) };
        writer.write_all_at(&[round; 9000], at).unwrap();
        let mut bytes = [255; 9000];
        reader.read_exact_at(&mut bytes, at).unwrap();
        assert!(bytes.iter().all(|byte| *byte == round), "round {round}");
    }
}

/// Locks are the kernel's own, and exclude other processes and other openings of the file.
fn locks(path: &Path) {
    let (one, other) = (open(path), open(path));
    one.lock().unwrap();
    assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
    assert!(matches!(other.try_lock_shared(), Err(TryLockError::WouldBlock)));
    one.unlock().unwrap();
    other.try_lock_shared().unwrap();
    one.try_lock_shared().unwrap();
    one.unlock().unwrap();
    other.unlock().unwrap();
    // A byte-range lock belongs to the process: another one must see it.
    fcntl_lock(&one, FlockOperation::NonBlockingLockExclusive).unwrap();
    let script = "import fcntl,sys\ntry: fcntl.lockf(open(sys.argv[1],'r+'), fcntl.LOCK_EX|fcntl.LOCK_NB)\nexcept OSError as e: sys.exit(e.errno)";
    if crate::rig::has_program("python3") {
        let status = || Command::new("python3").args(["-c", script]).arg(path).status().unwrap().code();
        assert_eq!(status(), Some(libc::EAGAIN));
        fcntl_lock(&one, FlockOperation::Unlock).unwrap();
        assert_eq!(status(), Some(0));
    }
}

/// A program on the mount runs, and cannot be written while it does; nor run while somebody writes it.
fn running_programs(place: &Path) {
    let program = place.join("sleep");
    fs::copy("/bin/sleep", &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let writer = open(&program);
    let busy = Command::new(&program).arg("0").status().unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::ExecutableFileBusy);
    drop(writer);
    let mut running = Command::new(&program).arg("100").spawn().unwrap();
    assert_eq!(OpenOptions::new().write(true).open(&program).unwrap_err().kind(), ErrorKind::ExecutableFileBusy);
    running.kill().unwrap();
    running.wait().unwrap();
    open(&program);
    // The file may go while it runs.
    let mut running = Command::new(&program).arg("100").spawn().unwrap();
    fs::remove_file(&program).unwrap();
    assert!(running.try_wait().unwrap().is_none());
    running.kill().unwrap();
    running.wait().unwrap();
}

/// Reads names with the positions behind them, from `from` on, at most `most`.
fn names_from(directory: &File, from: u64, most: usize) -> Vec<(String, u64)> {
    seek(directory, rustix::fs::SeekFrom::Start(from)).unwrap();
    let mut buffer = [const { MaybeUninit::<u8>::uninit() }; 4096];
    let mut entries = RawDir::new(directory, &mut buffer);
    let mut found = Vec::new();
    while found.len() < most {
        let Some(entry) = entries.next() else { break };
        let entry = entry.unwrap();
        found.push((entry.file_name().to_string_lossy().into_owned(), entry.next_entry_cookie()));
    }
    found
}

/// Positions stay good while names come and go: what was there all the time is listed once, whatever changes in the directory meanwhile.
fn directory_positions(path: &Path, count: usize) {
    fs::create_dir(path).unwrap();
    // From a directory in one block into one with many, while somebody reads it.
    (0..20).for_each(|number| drop(File::create(path.join(format!("kept-{number}"))).unwrap()));
    let directory = File::open(path).unwrap();
    let mut listed: Vec<String> = Vec::new();
    let mut at = 0;
    let mut round = 0;
    loop {
        let part = names_from(&directory, at, 7);
        let Some((_, next)) = part.last() else { break };
        at = *next;
        listed.extend(part.into_iter().map(|(name, _)| name));
        if round * 50 < count {
            (0..50).for_each(|number| drop(File::create(path.join(format!("new-{round}-{number}"))).unwrap()));
            // And half of them go again.
            (0..25).for_each(|number| fs::remove_file(path.join(format!("new-{round}-{number}"))).unwrap());
        }
        round += 1;
        assert!(round < count, "the end of the directory is not reached");
    }
    let kept = listed.iter().filter(|name| name.starts_with("kept-"));
    assert_eq!(kept.clone().count(), 20, "each that was there all the time, once: {listed:?}");
    assert_eq!(kept.collect::<BTreeSet<_>>().len(), 20);
    let distinct: BTreeSet<&String> = listed.iter().collect();
    assert_eq!(distinct.len(), listed.len(), "no name twice");
    // The same position leads to the same names, from another opening too.
    let all = names_from(&directory, 0, usize::MAX);
    let middle = all[all.len() / 2].1;
    let rest: Vec<String> = all[all.len() / 2 + 1..].iter().map(|(name, _)| name.clone()).collect();
    let again: Vec<String> = names_from(&File::open(path).unwrap(), middle, usize::MAX).into_iter().map(|(name, _)| name).collect();
    assert_eq!(again, rest);
    assert_eq!(fs::metadata(path).unwrap().nlink(), 2);
    assert!(rustix::fs::statat(rustix::fs::CWD, path, AtFlags::empty()).is_ok());
}

/// As in the test above, with a million names that come and go.
#[test]
#[ignore = "takes some minutes"]
fn positions_in_a_directory_of_a_million_names() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 4096 * MIB);
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    directory_positions(&rig.path("mnt/many"), 1_000_000);
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

/// A large file that was removed while open, and whose daemon was then killed, is freed after the next mount, which does not wait for it.
#[test]
fn files_removed_while_open_are_freed_beside_the_mount() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 256 * MIB);
    rig.ok("zpool create -O mountpoint=@mnt -O recordsize=4K -O compression=off tank @a.img");
    let mut file = OpenOptions::new().create_new(true).read(true).write(true).open(rig.path("mnt/big")).unwrap();
    file.write_all(&vec![3; 40 << 20]).unwrap();
    fs::remove_file(rig.path("mnt/big")).unwrap();
    file.sync_all().unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut byte = [0];
    file.read_exact(&mut byte).unwrap();
    assert_eq!(byte, [3], "still there for who has it open");
    rig.kill();
    drop(file);
    rig.unmount_all();
    rig.ok("zpool import -d @ tank");
    fs::write(rig.path("mnt/other"), "usable at once").unwrap();
    rig.wait("the freeing of the file", || {
        rig.ok("zpool sync tank");
        rig.get("tank", "referenced").parse::<u64>().unwrap() < 2 << 20
    });
    rig.ok("zpool export tank");
    rig.check("tank");
    rig.zdb(&["a.img"]);
}

/// `mount(8)` runs a helper; one that has just unmounted may mount again at once.
#[test]
fn mount_8_finds_its_helper() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 * MIB);
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    fs::create_dir(rig.path("there")).unwrap();
    rig.refused("mount tank @there -o rw", "zfs set mountpoint=legacy");
    rig.ok("zfs set mountpoint=legacy tank");
    assert!(!rig.is_mounted("mnt"));
    for round in 0..5 {
        rig.ok("mount tank @there -o rw,noatime,nodiratime");
        assert!(rig.is_mounted("there"));
        fs::write(rig.path("there/round"), round.to_string()).unwrap();
        rustix::mount::unmount(rig.path("there"), rustix::mount::UnmountFlags::empty()).unwrap();
    }
    rig.ok("mount -r tank @there");
    assert_eq!(fs::read_to_string(rig.path("there/round")).unwrap(), "4");
    assert_eq!(fs::write(rig.path("there/round"), "").unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    rig.refused("mount tank @there", "already mounted");
    rig.refused("mount tank @there -o sideways", "invalid mount option 'sideways'");
    rig.refused("mount nothere @there", "does not exist");
    // A mount point behind a symbolic link.
    std::os::unix::fs::symlink(rig.path("there"), rig.path("link")).unwrap();
    rustix::mount::unmount(rig.path("there"), rustix::mount::UnmountFlags::empty()).unwrap();
    // Lines of `/etc/fstab` that OpenZFS takes.
    rig.ok("mount tank @there -o acl,posixacl,nofail,group,comment=backup,casesensitive,X-mount.mkdir");
    rustix::mount::unmount(rig.path("there"), rustix::mount::UnmountFlags::empty()).unwrap();
    rig.ok("zfs set mountpoint=@link tank");
    assert_eq!(rig.get("tank", "mounted"), "yes");
    // Paths are compared by where they lead, and not by how they are spelled.
    fs::create_dir(rig.path("there/sub")).unwrap();
    for path in ["@link", "@there", "@there/sub"] {
        assert_eq!(rig.ok(&format!("zfs list -H -o name {path}")), "tank\n");
    }
    rig.refused("zfs unmount @there/sub", "not a mountpoint");
    rig.ok("zfs unmount @there");
    rig.ok("zfs mount tank");
    rig.ok("zfs set mountpoint=legacy tank");
    rig.ok("mount tank @there");
    let link = rig.path("mount.fuse.tarn");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tarn"), &link).unwrap();
    rustix::mount::unmount(rig.path("there"), rustix::mount::UnmountFlags::empty()).unwrap();
    let mut helper = Command::new(&link);
    helper.args(["tank", &rig.text("there"), "-o", "rw"]).env("TARN_SOCKET", rig.path("sock"));
    assert!(helper.status().unwrap().success());
    assert!(rig.is_mounted("there"));
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

/// A container has a copy of all mounts, so `umount` outside does not end ours. It can be mounted again all the same, as the same file
/// system, and `zpool export -f` ends it everywhere. Found when one long test unmounted beside another that had a namespace of its own:
/// the dataset could not be mounted any more, and an export would have waited for the container's end.
#[test]
fn a_copy_of_the_mount_in_a_container() {
    let Some(rig) = Rig::new() else { return };
    if !crate::rig::has_program("unshare") {
        return;
    }
    rig.image("a.img", 128 * MIB);
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    fs::write(rig.path("mnt/file"), "one").unwrap();
    // It lets go of the mounts of tests that run beside this one: their exports would find them busy.
    let script = r#"awk -v ours="$1" '$3 ~ /^fuse(blk)?\.tarn$/ && index($2, ours) != 1 { print $2 }' /proc/self/mounts | xargs -r umount; exec sleep 1000"#;
    let words = ["--mount", "--propagation", "private", "sh", "-c", script, "sh", &rig.text("")];
    let mut container = Command::new("unshare").args(words).spawn().unwrap();
    let copied = || fs::read_to_string(format!("/proc/{}/mounts", container.id())).is_ok_and(|table| table.contains(&rig.text("mnt")));
    let entered = || fs::read_link(format!("/proc/{}/ns/mnt", container.id())).ok() != fs::read_link("/proc/self/ns/mnt").ok();
    rig.wait("the container", || entered() && copied());
    rustix::mount::unmount(rig.path("mnt"), rustix::mount::UnmountFlags::empty()).unwrap();
    rig.ok("zfs mount tank");
    assert_eq!(fs::read_to_string(rig.path("mnt/file")).unwrap(), "one");
    fs::write(rig.path("mnt/file"), "two").unwrap();
    let inside = format!("/proc/{}/root{}/file", container.id(), rig.text("mnt"));
    assert_eq!(fs::read_to_string(inside).unwrap(), "two", "one file system, whoever looks");
    rig.ok("zpool export -f tank");
    assert!(!rig.is_mounted("mnt"));
    container.kill().unwrap();
    container.wait().unwrap();
    rig.zdb(&["a.img"]);
}

/// `rsync --open-noatime`, `tar --atime-preserve=system` and others ask that nobody notices that they have read.
#[test]
fn a_backup_can_read_unnoticed() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 * MIB);
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    let path = rig.path("mnt/file");
    fs::write(&path, "contents").unwrap();
    let accessed = || fs::metadata(&path).map(|found| (found.atime(), found.atime_nsec())).unwrap();
    let before = accessed();
    rig.ok("zpool export tank");
    rig.ok("zpool import -d @ tank");
    let mut text = String::new();
    OpenOptions::new().read(true).custom_flags(libc::O_NOATIME).open(&path).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), accessed()), ("contents", before));
    rig.ok("zpool export tank");
    rig.ok("zpool import -d @ tank");
    assert_eq!(fs::read_to_string(&path).unwrap(), "contents");
    assert_ne!(accessed(), before);
    rig.ok("zpool export tank");
}
