//! A mounted pool: what programs do with files, then the checkers.
#![allow(clippy::disallowed_methods)] // outside the engine
mod writeback;
mod played;
mod poured;
mod rig;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::process::Command;
use std::time::{Duration, Instant};

use engine::tunables::Tunables;
use fuse::TransportChoice;
use rand::{Rng, SeedableRng};
use rig::{Rig, can_mount, zdb};

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rand_chacha::ChaCha8Rng::seed_from_u64(seed).fill(&mut bytes[..]);
    bytes
}

#[test]
fn files_survive_export_and_import() {
    if !can_mount() {
        return;
    }
    for announce in [false, true] {
        let mut rig = Rig::new(512 << 20);
        rig.mount(announce, TransportChoice::DevFuse);
        let sizes = [0usize, 1, 511, 512, 513, 4096, 131_071, 131_072, 131_073, 5_000_000];
        for (seed, size) in sizes.iter().enumerate() {
            fs::write(rig.path(&format!("file-{size}")), pattern(*size, seed as u64)).unwrap();
        }
        fs::create_dir(rig.path("dir")).unwrap();
        std::os::unix::fs::symlink("../file-1", rig.path("dir/link")).unwrap();
        fs::hard_link(rig.path("file-512"), rig.path("dir/hard")).unwrap();
        fs::set_permissions(rig.path("file-0"), fs::Permissions::from_mode(0o600)).unwrap();
        rustix::fs::setxattr(rig.path("file-1"), "user.name", b"value", rustix::fs::XattrFlags::empty()).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, rig.path("fifo"), rustix::fs::FileType::Fifo, 0o644.into(), 0).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, rig.path("null"), rustix::fs::FileType::CharacterDevice, 0o644.into(), rustix::fs::makedev(1, 3)).unwrap();
        let before = fs::metadata(rig.path("file-5000000")).unwrap();
        rig.reopen();
        rig.mount(announce, TransportChoice::DevFuse);
        for (seed, size) in sizes.iter().enumerate() {
            assert!(fs::read(rig.path(&format!("file-{size}"))).unwrap() == pattern(*size, seed as u64), "{size}");
        }
        assert_eq!(fs::read(rig.path("dir/link")).unwrap(), fs::read(rig.path("file-1")).unwrap());
        let hard = fs::metadata(rig.path("dir/hard")).unwrap();
        assert_eq!((hard.nlink(), hard.ino()), (2, fs::metadata(rig.path("file-512")).unwrap().ino()));
        assert_eq!(fs::metadata(rig.path("file-0")).unwrap().mode() & 0o7777, 0o600);
        let mut value = [0; 10];
        assert_eq!(rustix::fs::getxattr(rig.path("file-1"), "user.name", &mut value).unwrap(), 5);
        assert!(fs::metadata(rig.path("fifo")).unwrap().file_type().is_fifo());
        assert_eq!(fs::metadata(rig.path("null")).unwrap().rdev(), rustix::fs::makedev(1, 3));
        assert_eq!(fs::read(rig.path("null")).unwrap(), b"");
        let after = fs::metadata(rig.path("file-5000000")).unwrap();
        assert_eq!((before.mtime(), before.mtime_nsec(), before.ino()), (after.mtime(), after.mtime_nsec(), after.ino()));
        assert_eq!(fs::metadata(rig.path("dir")).unwrap().size(), 4);
        rig.close();
        zdb(&rig.image());
    }
}

#[test]
fn many_entries() {
    if !can_mount() {
        return;
    }
    let mut rig = Rig::new(512 << 20);
    rig.mount(false, TransportChoice::DevFuse);
    for number in 0..5000 {
        File::create(rig.path(&format!("entry-{number}"))).unwrap();
    }
    let list = |rig: &Rig| {
        let mut names: Vec<_> = fs::read_dir(rig.root()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        let all = names.len();
        names.dedup();
        assert_eq!(all, names.len());
        all
    };
    assert_eq!(list(&rig), 5000);
    rig.reopen();
    rig.mount(false, TransportChoice::DevFuse);
    assert_eq!(list(&rig), 5000);
    for number in 0..5000 {
        if number % 3 != 0 {
            fs::remove_file(rig.path(&format!("entry-{number}"))).unwrap();
        }
    }
    assert_eq!(list(&rig), 1667);
    rig.close();
    zdb(&rig.image());
}

#[test]
fn holes_truncation_and_copies() {
    if !can_mount() {
        return;
    }
    let mut rig = Rig::new(512 << 20);
    rig.mount(false, TransportChoice::DevFuse);
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(rig.path("sparse")).unwrap();
    file.write_all_at(b"end", 10 << 20).unwrap();
    file.write_all_at(&pattern(300_000, 1), 0).unwrap();
    file.sync_all().unwrap();
    rig.pool().sync_all().unwrap();
    let hole = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)).unwrap();
    assert!((300_000..10 << 20).contains(&hole), "{hole}");
    let data = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(hole)).unwrap();
    assert_eq!(data, 10 << 20);
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE, 0, 200_000).unwrap();
    let mut back = vec![1; 200_000];
    file.read_exact_at(&mut back, 0).unwrap();
    assert!(back.iter().all(|byte| *byte == 0));
    file.set_len(250_000).unwrap();
    file.write_all(b"").unwrap();
    fs::copy(rig.path("sparse"), rig.path("copy")).unwrap();
    let copy = fs::read(rig.path("copy")).unwrap();
    assert!(copy.len() == 250_000 && copy[200_000..] == pattern(300_000, 1)[200_000..250_000]);
    // A file without a name is gone when it is closed; one removed while open can still be read.
    let unnamed = OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600).open(rig.root()).unwrap();
    unnamed.write_all_at(b"text", 0).unwrap();
    fs::remove_file(rig.path("sparse")).unwrap();
    file.read_exact_at(&mut back[..10], 230_000).unwrap();
    assert!(back[..10] == pattern(300_000, 1)[230_000..230_010]);
    drop((file, unnamed));
    rig.close();
    zdb(&rig.image());
}

/// Real programs, against what they do on the system's own file system.
#[test]
fn programs() {
    if !can_mount() {
        return;
    }
    let mut rig = Rig::new(512 << 20);
    rig.mount(false, TransportChoice::DevFuse);
    let script = r#"
        set -e
        mkdir -p src/a/b/c; for n in $(seq 200); do echo "file $n" > src/a/b/f$n; done
        head -c 3000000 /dev/urandom > src/big; ln -s big src/link; chmod 4755 src/big
        tar cf t.tar src; mkdir out; tar xf t.tar -C out; diff -r src out/src
        cp -a src copy; diff -r src copy; mv copy/a copy/z; rm -rf copy
        dd if=/dev/zero of=sync bs=4k count=20 oflag=dsync 2>/dev/null; test $(stat -c %s sync) = 81920
        touch -d '2001-02-03 04:05:06.789' old; test "$(stat -c %Y old)" = "$(date -d '2001-02-03 04:05:06' +%s)"
        echo x >> src/big; test "$(stat -c %a src/big)" = 4755
        find . | wc -l; df . > /dev/null; sync -f .
    "#;
    let output = Command::new("sh").arg("-c").arg(script).current_dir(rig.root()).output().unwrap();
    assert!(output.status.success(), "{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    rig.close();
    zdb(&rig.image());
}

#[test]
fn threads_side_by_side() {
    if !can_mount() {
        return;
    }
    let mut rig = Rig::new(1 << 30);
    rig.mount(false, TransportChoice::Auto);
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let rig = &rig;
            scope.spawn(move || {
                let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(thread);
                let directory = rig.path(&format!("dir-{thread}"));
                fs::create_dir(&directory).unwrap();
                for round in 0..40 {
                    let bytes = pattern(random.random_range(0..300_000), round);
                    let path = directory.join(format!("file-{}", random.random_range(0..8)));
                    fs::write(&path, &bytes).unwrap();
                    if random.random_ratio(1, 4) {
                        File::open(&path).unwrap().sync_all().unwrap();
                    }
                    assert!(fs::read(&path).unwrap() == bytes);
                    if random.random_ratio(1, 5) {
                        fs::remove_file(&path).unwrap();
                    }
                }
            });
        }
    });
    rig.close();
    zdb(&rig.image());
}

/// Datasets as `zfs mount` mounts them: nested, with options, unmounted in the right order.
#[test]
fn datasets_of_a_pool() {
    use tarnfs::control::{FailureKind, MountPlan, Mounter};
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("disk.img");
    File::create(&image).unwrap().set_len(256 << 20).unwrap();
    let vdev = tarnfs::VdevPaths { paths: vec![image.clone()], ..tarnfs::VdevPaths::default() };
    let pool = tarnfs::Pool::create("tank", &[vdev], tarnfs::CreateOptions { ashift: Some(12), ..Default::default() }).unwrap();
    pool.create_file_system("tank/child", Vec::new()).unwrap();
    let (top, below) = (directory.path().join("tank"), directory.path().join("tank/child"));
    let mut mounts = daemon::FuseMounter::new();
    let plan = |dataset: &str, path: &std::path::Path, options: &str, overlay| MountPlan {
        pool: pool.clone(),
        dataset: dataset.to_owned(),
        path: path.to_owned(),
        options: vec![options.to_owned()],
        overlay,
        also: false,
        exactly: None,
    };
    mounts.mount(plan("tank", &top, "", false)).unwrap();
    mounts.mount(plan("tank/child", &below, "ro,noexec", false)).unwrap();
    assert_eq!(mounts.mount(plan("tank", &top, "", false)).unwrap_err().message, "filesystem already mounted");
    assert_eq!(mounts.mount(plan("tank/none", &top, "", true)).unwrap_err().kind, FailureKind::NoSuchDataset);
    fs::write(top.join("file"), b"text").unwrap();
    assert_eq!(fs::write(below.join("file"), b"text").unwrap_err().raw_os_error(), Some(libc::EROFS));
    mounts.remount(&pool, "tank/child", &["remount,rw".to_owned()]).unwrap();
    fs::write(below.join("file"), b"text").unwrap();
    fs::remove_file(below.join("file")).unwrap();
    // Hidden, but there; nothing can be made in it.
    let listed: Vec<_> = fs::read_dir(&top).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(listed.len(), 2, "{listed:?}");
    assert_eq!(fs::read_dir(top.join(".zfs/snapshot")).unwrap().count(), 0);
    assert!(!top.join(".zfs/snapshot/none").exists());
    assert!(fs::write(top.join(".zfs/file"), b"").is_err() && fs::create_dir(top.join(".zfs")).is_err());
    assert!(fs::remove_dir(top.join(".zfs")).is_err() && fs::rename(top.join("file"), top.join(".zfs")).is_err());
    assert!(!below.join(".zfs/file").exists() && below.join(".zfs").is_dir());
    // In use: refused, with both still there. By force: gone.
    let open = File::open(top.join("file")).unwrap();
    assert_eq!(mounts.unmount("tank", false).unwrap_err().kind, FailureKind::DatasetBusy);
    assert_eq!(fs::read(top.join("file")).unwrap(), b"text");
    assert!(pool.export().is_err(), "a mounted pool was exported");
    mounts.unmount("tank", true).unwrap();
    drop(open);
    assert!(mounts.list().is_empty());
    // Somebody else's umount is noticed.
    mounts.mount(plan("tank", &top, "", true)).unwrap();
    fuse::mount::unmount(&top, false).unwrap();
    let begun = std::time::Instant::now();
    while pool.file_system("tank").is_ok_and(|filesystem| std::sync::Arc::strong_count(&filesystem) > 1) {
        mounts.tidy();
        assert!(begun.elapsed().as_secs() < 5);
        std::thread::yield_now();
    }
    pool.export().unwrap();
    zdb(&image);
}

/// A killed daemon leaves the pool as a power failure does; what was synced is there.
#[test]
fn a_crash_keeps_what_was_synced() {
    if !can_mount() {
        return;
    }
    let mut rig = Rig::new(256 << 20);
    rig.mount(false, TransportChoice::DevFuse);
    fs::write(rig.path("synced"), pattern(1_000_000, 7)).unwrap();
    File::open(rig.path("synced")).unwrap().sync_all().unwrap();
    fs::write(rig.path("lost, perhaps"), pattern(1000, 8)).unwrap();
    let copy = rig.directory.path().join("copy.img");
    fs::copy(rig.image(), &copy).unwrap();
    rig.mounts.unmount_all(false).unwrap();
    drop(rig.pool.take());
    fs::rename(copy, rig.image()).unwrap();
    rig.open();
    rig.mount(false, TransportChoice::DevFuse);
    assert!(fs::read(rig.path("synced")).unwrap() == pattern(1_000_000, 7));
    rig.close();
    zdb(&rig.image());
}

/// After an unmount everything is on disk a moment later. It used to be when the group's time was over. The kernel does not wait for us, so the group is
/// synced at once. (Found by test 520 of xfstests' generic group.)
#[test]
fn what_was_unmounted_is_written() {
    if !can_mount() {
        return;
    }
    for transport in [TransportChoice::DevFuse, TransportChoice::Auto] {
        let rig = &mut Rig::with(256 << 20, Tunables { txg_timeout_ns: 3_600_000_000_000, ..Tunables::default() });
        rig.mount(true, transport);
        fs::write(rig.path("file"), pattern(100_000, 9)).unwrap();
        let groups = rig.pool().context.groups.clone();
        let group = groups.open_txg();
        assert!(groups.synced_txg() < group);
        rustix::mount::unmount(rig.root(), rustix::mount::UnmountFlags::empty()).unwrap();
        let begun = Instant::now();
        while groups.synced_txg() < group {
            assert!(begun.elapsed() < Duration::from_secs(30), "{transport:?}: group {group} is not on disk");
            std::thread::sleep(Duration::from_millis(1));
        }
        rig.mounts.tidy();
        rig.close();
    }
}

/// What a rollback or a program with the library changes in a mounted file system is seen through the mount: contents that are cached,
/// sizes, names, and names that did not exist.
#[test]
fn changes_behind_the_kernels_back_are_seen() {
    if !can_mount() {
        return;
    }
    for announce in [false, true] {
        let mut rig = Rig::new(256 << 20);
        let ops = rig.mount(announce, TransportChoice::Auto);
        fs::create_dir(rig.path("dir")).unwrap();
        fs::write(rig.path("dir/changed"), pattern(300_000, 1)).unwrap();
        fs::write(rig.path("dir/renamed"), "same").unwrap();
        fs::write(rig.path("dir/gone"), "gone").unwrap();
        let open = File::open(rig.path("dir/changed")).unwrap();
        // All of it is in the kernel's memory now.
        assert!(fs::read(rig.path("dir/changed")).unwrap() == pattern(300_000, 1));
        assert!(!rig.path("dir/new").exists());
        let library = ops.filesystem().unwrap();
        let root = tarnfs::Credentials::root();
        let number = |name: &str| library.lookup_inode(fs::metadata(rig.path(name)).unwrap().ino()).unwrap().inode;
        let (directory, changed) = (number("dir"), number("dir/changed"));
        library.write(changed, tarnfs::WriteMode::At(5_000), &[9; 70_000], &root).unwrap();
        library.truncate(changed, 200_000, &root).unwrap();
        library.rename(directory, b"renamed", directory, b"new", tarnfs::RenameMode::Replace).unwrap();
        library.unlink(directory, b"gone").unwrap();
        ops.contents_replaced();
        let mut expected = pattern(300_000, 1);
        expected[5_000..75_000].fill(9);
        expected.truncate(200_000);
        let mut bytes = vec![0; 200_000];
        open.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes == expected, "through a descriptor that was open");
        assert_eq!(open.metadata().unwrap().len(), 200_000);
        assert_eq!(fs::read_to_string(rig.path("dir/new")).unwrap(), "same");
        assert!(!rig.path("dir/renamed").exists() && !rig.path("dir/gone").exists());
        drop(open);
        rig.close();
    }
}

/// The kernel knows where a file ends, and appends there without asking; but a transaction that was committed meanwhile had put something there.
#[test]
fn what_is_appended_goes_behind_what_was_committed() {
    if !can_mount() {
        return;
    }
    for (announce, transport) in [(false, TransportChoice::Auto), (true, TransportChoice::Auto), (true, TransportChoice::DevFuse)] {
        let mut rig = Rig::new(256 << 20);
        let ops = rig.mount(announce, transport);
        let path = rig.path("log");
        let mut log = OpenOptions::new().create(true).append(true).open(&path).unwrap();
        log.write_all(b"first\n").unwrap();
        let library = ops.filesystem().unwrap();
        let inode = library.lookup(library.root(), b"log").unwrap().inode;
        let mut transaction = library.begin().unwrap();
        transaction.write(inode, 6, b"committed\n").unwrap();
        let changed = transaction.changed();
        ops.change_behind(&changed, || transaction.commit(tarnfs::Durability::Soon)).unwrap();
        log.write_all(b"second\n").unwrap();
        log.write_all(b"third\n").unwrap();
        let expected = b"first\ncommitted\nsecond\nthird\n";
        assert_eq!(String::from_utf8(library.read(inode, 0, 100).unwrap()).unwrap(), std::str::from_utf8(expected).unwrap());
        library.forget(inode, 1);
        // The kernel is told a moment later that its pages are not right.
        let begun = std::time::Instant::now();
        while fs::read(&path).unwrap() != expected {
            assert!(begun.elapsed().as_secs() < 20, "{:?}", String::from_utf8_lossy(&fs::read(&path).unwrap()));
            std::thread::yield_now();
        }
        drop(log);
        rig.close();
        zdb(&rig.image());
    }
}

/// A mount that was taken out of sight ends when its last user has left it. By then there is another of the same file system, which knows of files
/// that were removed while open.
#[test]
fn the_end_of_an_old_mount_forgets_nothing_of_a_new_one() {
    use fuse::Filesystem;
    let rig = Rig::new(256 << 20);
    let pool = rig.pool().clone();
    let dataset = pool.dsl.open_dataset("tank").unwrap();
    let objset = pool.dsl.objset(&dataset).unwrap();
    let filesystem = std::sync::Arc::new(tarnfs::FileSystem::open(objset, tarnfs::MountOptions::default(), || (0, 1 << 30)).unwrap());
    let ops = || daemon::ops::Ops::new(filesystem.clone(), None, daemon::ops::OpsOptions { announce_opens: true, ..Default::default() });
    let (old, new) = (ops(), ops());
    let cx = fuse::Context { unique: 1, uid: 0, gid: 0, pid: 1, other_group: None };
    let node = new.create(&cx, fuse::ROOT_NODE, b"file", 0o644, 0, libc::O_RDWR as u32).unwrap().entry.node;
    let write = fuse::Write { node, handle: 0, offset: 0, flags: 0, write_flags: fuse::WriteFlags::empty() };
    new.write(&cx, &write, b"kept").unwrap();
    new.unlink(&cx, fuse::ROOT_NODE, b"file").unwrap();
    old.destroy();
    let mut bytes = [0; 10];
    assert_eq!(new.read(&cx, &fuse::Read { node, handle: 0, offset: 0, flags: 0 }, &mut bytes), Ok(4), "it is open");
    assert_eq!(&bytes[..4], b"kept");
    // The last mount's end forgets it, and it is freed.
    new.destroy();
    assert!(new.read(&cx, &fuse::Read { node, handle: 0, offset: 0, flags: 0 }, &mut bytes).is_err());
    drop((old, new, filesystem));
}

/// What was to give a mount other contents panicked, or the contents could not be opened again as the pool was suspended: every call of the mount was an `EIO` from
/// then on, until it was mounted again.
#[test]
fn a_mount_goes_on_however_its_contents_were_to_change() {
    use fuse::Filesystem;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    let rig = Rig::new(256 << 20);
    let pool = rig.pool().clone();
    let tries = Arc::new(AtomicUsize::new(0));
    let opener = |failures: usize| -> daemon::ops::Opener {
        let (pool, tries) = (pool.clone(), tries.clone());
        tries.store(0, Ordering::Relaxed);
        Box::new(move || {
            if tries.fetch_add(1, Ordering::Relaxed) < failures {
                engine::bail!(Suspended, "a test's pool is suspended");
            }
            let objset = pool.dsl.objset(&pool.dsl.open_dataset("tank")?)?;
            Ok((Arc::new(tarnfs::FileSystem::open(objset, tarnfs::MountOptions::default(), || (0, 1 << 30))?), true))
        })
    };
    let ops = daemon::ops::Ops::unopened(opener(0), None, daemon::ops::OpsOptions::default());
    let cx = fuse::Context { unique: 1, uid: 0, gid: 0, pid: 1, other_group: None };
    let made = ops.mkdir(&cx, fuse::ROOT_NODE, b"d", 0o755, 0).unwrap();
    let works = |name: &[u8]| {
        ops.mkdir(&cx, made.node, name, 0o755, 0).map(|_| ()).and_then(|()| ops.lookup(&cx, made.node, name).map(|_| ()))
    };
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ops.replace_contents(|| -> Result<(), String> { panic!("a test's panic") }, opener(0), |error| error.to_string())));
    assert!(panicked.is_err());
    assert_eq!(works(b"a"), Ok(()), "after a panic");
    // It cannot be opened twice: the second time a call of the kernel hears of it.
    let refused = ops.replace_contents(|| Err("it did not change".to_owned()), opener(2), |error| error.to_string());
    assert_eq!(refused, Err("it did not change".to_owned()));
    assert_eq!(works(b"b"), Err(fuse::Errno::EIO));
    assert_eq!(works(b"b"), Ok(()), "what the kernel knew it still knows");
    assert_eq!(tries.load(Ordering::Relaxed), 3);
    assert_eq!(ops.replace_contents(|| Ok(()), opener(0), |error| error.to_string()), Ok(()));
    assert_eq!(works(b"c"), Ok(()));
    ops.destroy();
}

/// What is mounted with many others is opened by the first call that needs its files, once, and what a crash left behind is freed then. A sync of what
/// nobody has used has nothing to do. What could not be opened is tried again.
#[test]
fn what_nobody_has_used_is_not_opened() {
    use fuse::Filesystem;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    let rig = Rig::new(256 << 20);
    let pool = rig.pool().clone();
    let (opened, tries) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let opener = {
        let (opened, tries) = (opened.clone(), tries.clone());
        move || {
            if tries.fetch_add(1, Ordering::Relaxed) == 0 {
                engine::bail!(Checksum, "a test's damage");
            }
            opened.fetch_add(1, Ordering::Relaxed);
            let objset = pool.dsl.objset(&pool.dsl.open_dataset("tank")?)?;
            Ok((Arc::new(tarnfs::FileSystem::open(objset, tarnfs::MountOptions::default(), || (0, 1 << 30))?), true))
        }
    };
    let ops = daemon::ops::Ops::unopened(Box::new(opener), None, daemon::ops::OpsOptions::default());
    let cx = fuse::Context { unique: 1, uid: 0, gid: 0, pid: 1, other_group: None };
    ops.syncfs(&cx).unwrap();
    ops.forget(fuse::ROOT_NODE, 1);
    ops.tidy();
    assert!(ops.is_unused() && tries.load(Ordering::Relaxed) == 0);
    assert_eq!(ops.getattr(&cx, fuse::ROOT_NODE, None).map(|_| ()), Err(fuse::Errno::EIO));
    std::thread::scope(|scope| {
        for name in 0..8u8 {
            let (ops, cx) = (&ops, &cx);
            scope.spawn(move || ops.mkdir(cx, fuse::ROOT_NODE, &[b'a' + name], 0o755, 0).unwrap());
        }
    });
    assert_eq!((opened.load(Ordering::Relaxed), tries.load(Ordering::Relaxed)), (1, 2));
    assert!(!ops.is_unused());
    ops.syncfs(&cx).unwrap();
    ops.lookup(&cx, fuse::ROOT_NODE, b"h").unwrap();
    ops.destroy();
    // Of what ended unused nothing is opened any more.
    let never = daemon::ops::Ops::unopened(Box::new(|| panic!("was opened")), None, daemon::ops::OpsOptions::default());
    never.destroy();
    assert!(never.getattr(&cx, fuse::ROOT_NODE, None).is_err());
}
