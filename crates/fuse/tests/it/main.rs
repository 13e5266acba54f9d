//! The in-memory file system, mounted: once for each transport that this machine has.
#![allow(clippy::disallowed_methods)] // real threads and clocks are what is tested
#![allow(unsafe_code)] // mmap
mod durable;
mod memory;
mod witness;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fuse::{Errno, Mount, MountOptions, Session, SessionOptions, TransportChoice, TransportKind};
use memory::MemoryFs;

struct Fixture {
    directory: tempfile::TempDir,
    filesystem: Arc<MemoryFs>,
    session: Option<Session>,
}

impl Fixture {
    /// `None`, and a line that says why, when this machine cannot mount.
    fn new(options: SessionOptions) -> Option<Fixture> {
        Fixture::mounted(options, false)
    }

    /// `durable`: see [`MountOptions::durable`].
    fn mounted(options: SessionOptions, durable: bool) -> Option<Fixture> {
        if !Path::new("/dev/fuse").exists() || OpenOptions::new().read(true).write(true).open("/dev/fuse").is_err() {
            eprintln!("SKIPPED: no usable /dev/fuse on this machine");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let mount_options = MountOptions {
            source: "test/data".to_owned(),
            durable,
            allow_other: rustix::process::geteuid().is_root(),
            ..MountOptions::default()
        };
        let mount = match Mount::new(directory.path(), &mount_options) {
            Ok(mount) => mount,
            Err(error) => {
                eprintln!("SKIPPED: cannot mount here: {error}");
                return None;
            }
        };
        let filesystem = Arc::new(MemoryFs::new(options.no_opens));
        let session = Session::start(mount, Arc::<MemoryFs>::clone(&filesystem), options).unwrap();
        Some(Fixture { directory, filesystem, session: Some(session) })
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn end(mut self) {
        let mut session = self.session.take().unwrap();
        for _ in 0..200 {
            match session.unmount(false) {
                Ok(()) => {
                    assert_eq!(self.filesystem.destroyed.load(Ordering::Relaxed), 1);
                    assert!(fs::read_dir(self.directory.path()).unwrap().next().is_none());
                    return;
                }
                Err((back, error)) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::ResourceBusy, "{error}");
                    session = back;
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        }
        panic!("stays busy");
    }
}

fn variants() -> Vec<(&'static str, SessionOptions)> {
    let base = SessionOptions { transport: TransportChoice::DevFuse, readers: 1, ..SessionOptions::default() };
    let mut all = vec![
        ("one reader", base.clone()),
        ("two readers", SessionOptions { readers: 2, ..base.clone() }),
        ("no opens", SessionOptions { no_opens: true, ..base.clone() }),
        ("write-back", SessionOptions { writeback_cache: true, ..base.clone() }),
    ];
    if fuse::uring::is_available() {
        all.push(("io_uring", SessionOptions { transport: TransportChoice::IoUring, ..base.clone() }));
        all.push(("io_uring, write-back", SessionOptions { transport: TransportChoice::IoUring, writeback_cache: true, ..base }));
    } else {
        eprintln!("SKIPPED: FUSE over io_uring is not enabled (fuse.enable_uring)");
    }
    all
}

/// Runs a test on each transport.
fn each(test: impl Fn(&Fixture)) {
    for (name, options) in variants() {
        let Some(fixture) = Fixture::new(options.clone()) else { return };
        println!("transport: {name}");
        let expected = if options.transport == TransportChoice::IoUring { TransportKind::IoUring } else { TransportKind::DevFuse };
        assert_eq!(fixture.session.as_ref().unwrap().transport(), expected);
        test(&fixture);
        fixture.end();
    }
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at / 251 + at) as u8 ^ seed).collect()
}

#[test]
fn write_and_read_back() {
    each(|fixture| {
        for len in [0, 1, 4095, 4096, 4097, 131_072, 3_000_001] {
            let bytes = pattern(len, 3);
            fs::write(fixture.path("file"), &bytes).unwrap();
            assert!(fs::read(fixture.path("file")).unwrap() == bytes, "{len}");
        }
        let file = OpenOptions::new().read(true).write(true).open(fixture.path("file")).unwrap();
        file.write_all_at(b"hello", 1_000_000).unwrap();
        file.sync_all().unwrap();
        let mut back = [0; 5];
        file.read_exact_at(&mut back, 1_000_000).unwrap();
        assert_eq!(&back, b"hello");
        file.set_len(10).unwrap();
        assert_eq!(fs::read(fixture.path("file")).unwrap(), pattern(10, 3));
    });
}

#[test]
fn truncation_at_open() {
    each(|fixture| {
        fs::write(fixture.path("file"), b"long text").unwrap();
        let kept = File::open(fixture.path("file")).unwrap();
        let file = OpenOptions::new().write(true).truncate(true).open(fixture.path("file")).unwrap();
        assert_eq!(kept.metadata().unwrap().len(), 0);
        file.write_all_at(b"x", 2).unwrap();
        assert_eq!(fs::read(fixture.path("file")).unwrap(), b"\0\0x");
        OpenOptions::new().append(true).open(fixture.path("file")).unwrap().write_all(b"end").unwrap();
        assert_eq!(fs::read(fixture.path("file")).unwrap(), b"\0\0xend");
        let unnamed = rustix::fs::open(fixture.directory.path(), rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR, rustix::fs::Mode::RUSR).unwrap();
        rustix::io::write(&unnamed, b"text").unwrap();
        let mut back = [0; 4];
        assert_eq!(rustix::io::pread(&unnamed, &mut back, 0).unwrap(), 4);
    });
}

#[test]
fn mounts_table_shows_the_dataset() {
    each(|fixture| {
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        let line = table.lines().find(|line| line.contains(fixture.directory.path().to_str().unwrap())).unwrap();
        assert!(line.starts_with("test/data ") && line.contains(" fuse.tarn "), "{line}");
        assert!(fuse::mount::is_mounted(fixture.directory.path(), "tarn").unwrap());
    });
}

#[test]
fn ten_thousand_entries() {
    each(|fixture| {
        let count = 10_000;
        for number in 0..count {
            File::create(fixture.path(&format!("entry-{number}"))).unwrap();
        }
        let mut names: Vec<_> = fs::read_dir(fixture.directory.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
        let sizes: u64 = fs::read_dir(fixture.directory.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().size()).sum();
        assert_eq!(sizes, 0);
        for number in 0..count {
            fs::remove_file(fixture.path(&format!("entry-{number}"))).unwrap();
        }
        assert_eq!(fs::read_dir(fixture.directory.path()).unwrap().count(), 0);
    });
}

#[test]
fn names() {
    each(|fixture| {
        fs::write(fixture.path("a"), b"a").unwrap();
        fs::write(fixture.path("b"), b"b").unwrap();
        fs::rename(fixture.path("a"), fixture.path("b")).unwrap();
        assert_eq!(fs::read(fixture.path("b")).unwrap(), b"a");
        assert!(!fixture.path("a").exists());
        fs::create_dir(fixture.path("d")).unwrap();
        fs::rename(fixture.path("b"), fixture.path("d/c")).unwrap();
        fs::hard_link(fixture.path("d/c"), fixture.path("e")).unwrap();
        assert_eq!(fs::metadata(fixture.path("e")).unwrap().nlink(), 2);
        assert_eq!(fs::remove_dir(fixture.path("d")).unwrap_err().raw_os_error(), Some(libc::ENOTEMPTY));
        std::os::unix::fs::symlink("d/c", fixture.path("link")).unwrap();
        assert_eq!(fs::read(fixture.path("link")).unwrap(), b"a");
        fs::set_permissions(fixture.path("e"), fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(fs::metadata(fixture.path("e")).unwrap().mode() & 0o7777, 0o640);
        fs::remove_file(fixture.path("d/c")).unwrap();
        fs::remove_dir(fixture.path("d")).unwrap();
        let long = "n".repeat(255);
        fs::write(fixture.path(&long), b"x").unwrap();
        assert_eq!(fs::read(fixture.path(&long)).unwrap(), b"x");
    });
}

#[test]
fn extended_attributes() {
    use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
    each(|fixture| {
        let path = fixture.path("file");
        fs::write(&path, b"").unwrap();
        setxattr(&path, "user.one", &pattern(1000, 1), XattrFlags::empty()).unwrap();
        let mut out = [0u8; 2000];
        assert_eq!(getxattr(&path, "user.one", &mut out).unwrap(), 1000);
        assert!(out[..1000] == pattern(1000, 1));
        assert_eq!(getxattr(&path, "user.one", &mut out[..10]).unwrap_err(), rustix::io::Errno::RANGE);
        assert_eq!(listxattr(&path, &mut out).unwrap(), 9);
        removexattr(&path, "user.one").unwrap();
        assert_eq!(getxattr(&path, "user.one", &mut out).unwrap_err(), rustix::io::Errno::NODATA);
    });
}

#[test]
fn mapped_memory() {
    use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
    each(|fixture| {
        let len = 1 << 20;
        fs::write(fixture.path("file"), pattern(len, 9)).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(fixture.path("file")).unwrap();
        // SAFETY: a new mapping of `len` bytes of a file that nobody truncates meanwhile; it is unmapped below, after its last use.
        let map = unsafe { mmap(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0).unwrap() };
        // SAFETY: the mapping is live, `len` bytes long, and this is its only reference.
        let bytes = unsafe { std::slice::from_raw_parts_mut(map.cast::<u8>(), len) };
        assert!(bytes == pattern(len, 9));
        bytes[5000..5005].copy_from_slice(b"hello");
        // SAFETY: the range is the whole mapping.
        unsafe { msync(map, len, MsyncFlags::SYNC).unwrap() };
        let mut back = [0; 5];
        File::open(fixture.path("file")).unwrap().read_exact_at(&mut back, 5000).unwrap();
        assert_eq!(&back, b"hello");
        // SAFETY: `bytes` is not used any more.
        unsafe { munmap(map, len).unwrap() };
    });
}

#[test]
fn many_threads() {
    each(|fixture| {
        std::thread::scope(|scope| {
            for thread in 0..16u8 {
                scope.spawn(move || {
                    let directory = fixture.path(&format!("thread-{thread}"));
                    fs::create_dir(&directory).unwrap();
                    for round in 0..60 {
                        let path = directory.join(format!("file-{round}"));
                        let bytes = pattern(1000 * round + 1, thread);
                        fs::write(&path, &bytes).unwrap();
                        let mut back = Vec::new();
                        File::open(&path).unwrap().read_to_end(&mut back).unwrap();
                        assert!(back == bytes);
                        fs::rename(&path, directory.join("last")).unwrap();
                    }
                    assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
                });
            }
        });
    });
}

/// Reads that sleep must not keep other operations waiting. Of those that wait for a disk, no more than 16 on a CPU did so at a time: the
/// others waited for them, where they would have shared a turn of the disk, or a block of the log.
#[test]
fn slow_operations_stop_nobody() {
    const SLOW: usize = 48;
    each(|fixture| {
        for number in 0..SLOW {
            let mut file = File::create(fixture.path(&format!("slow-{number}"))).unwrap();
            file.write_all(b"slow").unwrap();
            file.sync_all().unwrap();
        }
        std::thread::scope(|scope| {
            let mut gathered = true;
            for number in 0..SLOW {
                let path = fixture.path(&format!("slow-{number}"));
                scope.spawn(move || {
                    use std::os::unix::fs::OpenOptionsExt;
                    // O_DIRECT: the page cache would answer.
                    let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path).unwrap();
                    let mut back = vec![0; 4096];
                    assert_eq!(file.read_at(&mut back, 0).unwrap(), 4);
                });
                gathered = gathered && fixture.filesystem.gate.has_gathered(number + 1);
            }
            // While all of them are under way. That these end at all is the test: it has no clock, so that a busy machine does not fail it.
            for number in 0..100 {
                fs::write(fixture.path(&format!("quick-{number}")), b"x").unwrap();
            }
            fixture.filesystem.gate.open();
            assert!(gathered, "slow operations ran one after another");
        });
    });
}

#[test]
fn a_panic_is_an_input_output_error() {
    each(|fixture| {
        assert_eq!(fs::metadata(fixture.path("panic")).unwrap_err().raw_os_error(), Some(Errno::EIO.raw()));
        fs::write(fixture.path("alive"), b"x").unwrap();
    });
}

#[test]
fn forgets_and_notifications() {
    each(|fixture| {
        fs::write(fixture.path("file"), b"one").unwrap();
        let node = fs::metadata(fixture.path("file")).unwrap().ino();
        let notifier = fixture.session.as_ref().unwrap().notifier();
        notifier.inval_inode(node, 0, 0).unwrap();
        notifier.inval_entry(fuse::ROOT_NODE, b"file").unwrap();
        notifier.inval_entry(fuse::ROOT_NODE, b"no such name").unwrap();
        fs::remove_file(fixture.path("file")).unwrap();
        for _ in 0..100 {
            if fixture.filesystem.forgotten.load(Ordering::Relaxed) > 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("nothing was forgotten");
    });
}

#[test]
fn a_forced_unmount_ends_at_once() {
    for (_, options) in variants() {
        let Some(mut fixture) = Fixture::new(options) else { return };
        let mut open = File::create(fixture.path("file")).unwrap();
        open.write_all(b"text").unwrap();
        fixture.session.take().unwrap().unmount_forced().unwrap();
        assert_eq!(fixture.filesystem.destroyed.load(Ordering::Relaxed), 1);
        assert!(fs::read_dir(fixture.directory.path()).unwrap().next().is_none());
        assert!(open.sync_all().is_err());
    }
}

/// `umount` goes by the path. What somebody has mounted there since is theirs.
#[test]
fn what_is_mounted_over_it_stays() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: mounting tmpfs needs root");
        return;
    }
    let Some(mut fixture) = Fixture::new(variants()[0].1.clone()) else { return };
    let over = || fs::read_to_string(fixture.directory.path().join("over"));
    rustix::mount::mount("tmpfs", fixture.directory.path(), "tmpfs", rustix::mount::MountFlags::empty(), Some(c"size=1m")).unwrap();
    fs::write(fixture.path("over"), "theirs").unwrap();
    let session = fixture.session.take().unwrap();
    session.unmount_forced().unwrap();
    assert_eq!(fixture.filesystem.destroyed.load(Ordering::Relaxed), 1);
    assert_eq!(over().unwrap(), "theirs");
    rustix::mount::unmount(fixture.directory.path(), rustix::mount::UnmountFlags::empty()).unwrap();
    // What is left of ours below it is out of service, and goes as any dead mount.
    let _ = rustix::mount::unmount(fixture.directory.path(), rustix::mount::UnmountFlags::DETACH);
    assert!(fs::read_dir(fixture.directory.path()).unwrap().next().is_none());
}

/// Somebody runs `umount -f` on a mount whose server waits for a device: the process that looks after mounts is the one that could be told of a new device, and
/// waited for that operation, too.
#[test]
fn an_operation_that_does_not_come_back_is_not_waited_for() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: ending a connection under a mount needs root");
        return;
    }
    for (_, options) in variants() {
        let Some(mut fixture) = Fixture::new(options) else { return };
        fs::write(fixture.path("file"), b"slow").unwrap();
        let (path, filesystem) = (fixture.path("file"), Arc::clone(&fixture.filesystem));
        let mut session = fixture.session.take().unwrap();
        let node = fs::metadata(&path).unwrap().ino();
        session.notifier().inval_inode(node, 0, 0).unwrap();
        let reader = std::thread::spawn(move || fs::read(path));
        assert!(filesystem.gate.has_gathered(1));
        rustix::mount::unmount(fixture.directory.path(), rustix::mount::UnmountFlags::FORCE | rustix::mount::UnmountFlags::DETACH).unwrap();
        assert!(reader.join().unwrap().is_err());
        assert!(session.ends_within(Duration::from_secs(60)));
        let (tell, told) = std::sync::mpsc::channel();
        let waiting = std::thread::spawn(move || {
            session.wait_for_threads();
            tell.send(()).unwrap();
        });
        let waited = told.recv_timeout(Duration::from_secs(60));
        assert_eq!(filesystem.destroyed.load(Ordering::Relaxed), 0, "the operation is there still");
        filesystem.gate.open();
        waiting.join().unwrap();
        waited.expect("it waits for the operation");
        for _ in 0..1000 {
            if filesystem.destroyed.load(Ordering::Relaxed) == 1 {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(filesystem.destroyed.load(Ordering::Relaxed), 1);
    }
}

/// In CI a mount was busy because of a file that was closed: another thread was starting a program, which had all files of the tests open until it
/// really began.
#[test]
fn who_is_about_to_leave_does_not_stop_an_unmount() {
    let Some(mut fixture) = Fixture::new(variants()[0].1.clone()) else { return };
    let open = File::create(fixture.path("file")).unwrap();
    let (session, error) = fixture.session.take().unwrap().unmount(false).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ResourceBusy);
    let (begins, has_begun) = std::sync::mpsc::channel();
    let leaving = std::thread::spawn(move || {
        has_begun.recv().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        drop(open);
    });
    begins.send(()).unwrap();
    session.unmount(false).unwrap();
    leaving.join().unwrap();
    assert_eq!(fixture.filesystem.destroyed.load(Ordering::Relaxed), 1);
}

#[test]
fn dropping_a_session_in_use_detaches_it() {
    let Some(mut fixture) = Fixture::new(variants()[0].1.clone()) else { return };
    fs::write(fixture.path("file"), b"text").unwrap();
    let mut open = File::open(fixture.path("file")).unwrap();
    drop(fixture.session.take());
    assert!(!fixture.path("file").exists());
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "text");
    drop(open);
    for _ in 0..200 {
        if fixture.filesystem.destroyed.load(Ordering::Relaxed) == 1 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the file system was never told that its mount is gone");
}

/// A daemon was killed, and the next one found its mount alive: the kernel still knew the attributes of the root directory.
#[test]
fn a_dead_mount_is_known_although_the_kernel_remembers_it() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: ending a connection under a mount needs root");
        return;
    }
    let Some(fixture) = Fixture::new(SessionOptions::default()) else { return };
    let path = fixture.directory.path().to_owned();
    let subtype = MountOptions::default().subtype;
    let held = File::open(&path).unwrap();
    fs::metadata(&path).unwrap();
    assert!(!fuse::mount::clear_dead(&path, &subtype).unwrap(), "the mount is alive");
    // Fails because of `held`, after it has ended the connection.
    assert!(rustix::mount::unmount(&path, rustix::mount::UnmountFlags::FORCE).is_err());
    fs::metadata(&path).expect("the kernel remembers the root directory");
    assert!(fuse::mount::clear_dead(&path, &subtype).unwrap(), "the dead mount was not seen");
    assert!(!fuse::mount::is_mounted(&path, &subtype).unwrap());
    drop((held, fixture));
}
