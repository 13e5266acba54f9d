//! What POSIX and Linux say of files, on a mount: lists, quotas, marks, names, times. The suite `cargo xtask pjdfstest` says more.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, StatxFlags, Timespec, Timestamps, XattrFlags, fsetxattr, getxattr, mknodat, open, renameat_with, setxattr, statvfs, statx, utimensat};
use rustix::io::Errno;

use crate::rig::{Rig, has_program};

const MIB: u64 = 1 << 20;
/// Somebody without any rights.
const JOE: u32 = 54_321;

fn pool(properties: &str) -> Option<Rig> {
    let rig = Rig::new()?;
    // Others than root are to come in.
    fs::set_permissions(rig.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    rig.image("a.img", 256 * MIB);
    rig.ok(&format!("zpool create -O mountpoint=@mnt {properties} tank @a.img"));
    Some(rig)
}

/// Runs a shell command as somebody; its words on the error channel if it failed.
fn as_user(id: u32, umask: &str, command: &str) -> Result<String, String> {
    let output = Command::new("sh").arg("-c").arg(format!("umask {umask}; {command}")).uid(id).gid(id).output().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// The mode that the kernel takes for granted when nothing else is asked for.
fn remembered_mode(path: &Path) -> u32 {
    u32::from(statx(CWD, path, AtFlags::empty(), StatxFlags::MODE).unwrap().stx_mode) & 0o7777
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// A list in the form in which Linux passes it.
fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&permissions.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

fn xattr(path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; 4096];
    let length = getxattr(path, name, &mut bytes[..])?;
    bytes.truncate(length);
    Ok(bytes)
}

#[test]
fn posix_lists_are_obeyed_and_inherited() {
    let Some(rig) = pool("-O acltype=posix") else { return };
    let (file, directory) = (rig.path("mnt/secret"), rig.path("mnt/shared"));
    fs::write(&file, "for joe alone").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let read = format!("cat {}", file.display());
    assert!(as_user(JOE, "022", &read).is_err());
    let for_joe = |rights| list(&[(1, 7, !0), (2, rights, JOE), (4, 0, !0), (0x10, 7, !0), (0x20, 0, !0)]);
    setxattr(&file, "system.posix_acl_access", &for_joe(4), XattrFlags::empty()).unwrap();
    assert_eq!(as_user(JOE, "022", &read).unwrap(), "for joe alone");
    assert!(as_user(JOE + 1, "022", &read).is_err());
    assert_eq!(mode(&file), 0o770, "the group's bits show the mask");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o700)).unwrap();
    assert!(as_user(JOE, "022", &read).is_err(), "a mask of nothing leaves nothing");

    fs::create_dir(&directory).unwrap();
    setxattr(&directory, "system.posix_acl_default", &for_joe(7), XattrFlags::empty()).unwrap();
    fs::write(directory.join("new"), "").unwrap();
    assert_eq!(mode(&directory.join("new")), 0o660, "the default list counts, not the umask");
    assert!(xattr(&directory.join("new"), "system.posix_acl_access").is_ok());
    fs::create_dir(directory.join("below")).unwrap();
    assert_eq!(xattr(&directory.join("below"), "system.posix_acl_default").unwrap(), for_joe(7));
    let path = rig.path("mnt/plain");
    fs::set_permissions(rig.path("mnt"), fs::Permissions::from_mode(0o777)).unwrap();
    as_user(JOE, "027", &format!("touch {}", path.display())).unwrap();
    assert_eq!(mode(&path), 0o640, "without a default list the umask counts");

    // Switched off, lists are kept, neither obeyed nor shown; switched on again they are there.
    rig.ok("zfs set acltype=off tank");
    assert_eq!(xattr(&directory, "system.posix_acl_default"), Err(Errno::OPNOTSUPP));
    assert_eq!(setxattr(&file, "system.posix_acl_access", &for_joe(4), XattrFlags::empty()), Err(Errno::OPNOTSUPP));
    fs::write(directory.join("off"), "").unwrap();
    assert_eq!(mode(&directory.join("off")), 0o644);
    rig.ok("zfs set acltype=posix tank");
    assert_eq!(xattr(&directory, "system.posix_acl_default").unwrap(), for_joe(7));
    if has_program("setfacl") && has_program("getfacl") {
        let command = format!("setfacl -m u:{JOE}:r {0} && getfacl -cn {0}", file.display());
        let said = as_user(0, "022", &command).unwrap();
        assert!(said.contains(&format!("user:{JOE}:r--")) && said.contains("mask::r--"), "{said}");
    }
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

#[test]
fn quotas_hold_and_df_shows_the_room() {
    let Some(rig) = pool("") else { return };
    let root = rig.path("mnt");
    fs::set_permissions(&root, fs::Permissions::from_mode(0o777)).unwrap();
    rig.refused(&format!("zfs set userused@{JOE}=1M tank"), "readonly");
    rig.ok(&format!("zfs set userquota@{JOE}=2M userobjquota@{JOE}=3 groupquota@root=1G tank"));
    let path = |name: &str| rig.path("mnt").join(name).display().to_string();
    let write = |name: &str, mib: u32| as_user(JOE, "022", &format!("dd if=/dev/urandom of={} bs=1M count={mib} conv=notrunc status=none", path(name)));
    write("a", 3).unwrap();
    rig.ok("zpool sync tank");
    let said = write("b", 1).unwrap_err();
    assert!(said.contains("quota exceeded"), "{said}");
    let used: u64 = rig.get("tank", &format!("userused@{JOE}")).parse().unwrap();
    assert_eq!(used, fs::metadata(root.join("a")).unwrap().blocks() * 512);
    assert_eq!(rig.get("tank", &format!("userobjused@{JOE}")), "1");
    assert_eq!((rig.get("tank", &format!("userquota@{JOE}")), rig.get("tank", "groupquota@root")), ((2 * MIB).to_string(), (1 << 30).to_string()));
    rig.ok(&format!("zfs set userquota@{JOE}=none tank"));
    write("b", 1).unwrap();
    write("c", 1).unwrap();
    rig.ok("zpool sync tank");
    assert!(write("d", 1).is_err(), "three objects are enough");

    // What is reserved for one is not there for others.
    let available = || rig.get("tank", "available").parse::<u64>().unwrap();
    let before = available();
    rig.ok("zfs create -o reservation=30M tank/reserved");
    let reserved = before - available();
    assert!(reserved.abs_diff(30 * MIB) < MIB, "{reserved}");
    rig.ok("zfs set reservation=none refreservation=20M tank/reserved");
    assert!((before - available()).abs_diff(20 * MIB) < MIB);
    rig.refused("zfs set refreservation=10G tank/reserved", "size is greater than available space");
    rig.refused("zfs create -o quota=1M -o reservation=2M tank/never", "out of space");

    // What a file system keeps itself can be given to it as it is made.
    rig.ok("zfs create -o userquota@1000=5M -o compression=lz4 -o projectobjquota@7=9 tank/made");
    assert_eq!((rig.get("tank/made", "userquota@1000"), rig.get("tank/made", "projectobjquota@7")), ((5 * MIB).to_string(), "9".to_owned()));
    rig.refused("zfs create -o userused@1000=5M tank/never", "readonly");
    rig.refused("zfs get used tank/never", "does not exist");
    rig.ok("zfs destroy tank/made");

    // All the room that there is: what is referenced and what is available.
    rig.ok("zfs create -o refquota=10M -o defaultuserquota=1M tank/small");
    assert_eq!(rig.get("tank/small", "defaultuserquota"), MIB.to_string());
    rig.ok("zfs create tank/small/child");
    assert_eq!(rig.get("tank/small/child", "defaultuserquota"), MIB.to_string(), "a new file system begins with its parent's");
    rig.ok("zfs set defaultuserquota=none tank/small");
    let mut file = File::create(rig.path("mnt/small/file")).unwrap();
    let kind = loop {
        if let Err(error) = file.write_all(&(0..1 << 14).flat_map(|_| rand::random::<u64>().to_le_bytes()).collect::<Vec<u8>>()) {
            break error.kind();
        }
    };
    assert_eq!(kind, ErrorKind::QuotaExceeded);
    rig.ok("zpool sync tank");
    let small = statvfs(rig.path("mnt/small")).unwrap();
    let (referenced, available): (u64, u64) = (rig.get("tank/small", "referenced").parse().unwrap(), rig.get("tank/small", "available").parse().unwrap());
    assert_eq!((small.f_frsize, small.f_bavail), (128 << 10, available / (128 << 10)));
    assert_eq!(small.f_blocks, (referenced.next_multiple_of(128 << 10) + available) / (128 << 10));
    drop(file);
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

#[test]
fn files_are_marked_and_belong_to_projects() {
    let Some(rig) = pool("") else { return };
    if !has_program("chattr") || !has_program("lsattr") {
        return;
    }
    let (file, directory) = (rig.text("mnt/file"), rig.text("mnt/dir"));
    let shell = |command: &str| as_user(0, "022", command);
    shell(&format!("echo a > {file}; mkdir {directory}")).unwrap();
    shell(&format!("chattr +i {file}")).unwrap();
    assert!(shell(&format!("lsattr {file}")).unwrap().starts_with("----i---"));
    for refused in [format!("echo b > {file}"), format!("rm {file}"), format!("chmod 600 {file}"), format!("ln {file} {file}2"), format!("mv {file} {file}2")] {
        assert!(shell(&refused).unwrap_err().contains("not permitted"), "{refused}");
    }
    // To open it is refused already (xfstests generic/079).
    assert_eq!(OpenOptions::new().append(true).open(&file).unwrap_err().kind(), ErrorKind::PermissionDenied);
    shell(&format!("chattr -i +a {file} && echo b >> {file}")).unwrap();
    assert_eq!(OpenOptions::new().write(true).open(&file).unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert!(shell(&format!("rm {file}")).unwrap_err().contains("not permitted"));
    assert_eq!(fs::read_to_string(&file).unwrap(), "a\nb\n");
    shell(&format!("chattr -a {file}; chattr +i {directory}")).unwrap();
    assert!(shell(&format!("touch {directory}/x")).unwrap_err().contains("not permitted"));
    shell(&format!("chattr -i +P -p 42 {directory}; mkdir {directory}/sub; touch {directory}/sub/f")).unwrap();
    let said = shell(&format!("lsattr -pd {directory}/sub {directory}/sub/f")).unwrap();
    assert!(said.lines().all(|line| line.trim_start().starts_with("42 ")), "{said}");
    rig.ok("zfs set projectquota@42=1M tank");
    rig.ok("zpool sync tank");
    assert_eq!(rig.get("tank", "projectobjused@42"), "3");
    let space = statvfs(format!("{directory}/sub")).unwrap();
    assert_eq!(space.f_blocks, 8, "1M in units of 128K");
    assert!(statvfs(rig.path("mnt")).unwrap().f_blocks > 100);
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

#[test]
fn names_are_compared_and_demanded_as_properties_say() {
    let Some(rig) = pool("") else { return };
    rig.ok("zfs create -o casesensitivity=insensitive tank/i");
    rig.ok("zfs create -o casesensitivity=mixed -o normalization=formD tank/m");
    rig.ok("zfs create -o utf8only=on tank/u");
    rig.ok("zfs create -o normalization=none -o casesensitivity=sensitive tank/i/exact");
    assert_eq!((rig.get("tank/i/exact", "casesensitivity").as_str(), rig.get("tank/m", "utf8only").as_str()), ("sensitive", "on"));
    let path = |name: &str| rig.path("mnt").join(name);
    fs::write(path("i/Readme"), "1").unwrap();
    assert_eq!(fs::read_to_string(path("i/README")).unwrap(), "1");
    let again = OpenOptions::new().write(true).create_new(true).open(path("i/readme"));
    assert_eq!(again.unwrap_err().kind(), ErrorKind::AlreadyExists);
    // The kernel thinks that there is nothing to do, with OpenZFS too; only the library changes a spelling.
    fs::rename(path("i/readme"), path("i/READme")).unwrap();
    fs::rename(path("i/README"), path("i/Other")).unwrap();
    fs::rename(path("i/OTHER"), path("i/Readme")).unwrap();
    let names: Vec<_> = fs::read_dir(path("i")).unwrap().map(|entry| entry.unwrap().file_name()).filter(|name| name != "exact").collect();
    assert_eq!(names, ["Readme"]);
    fs::remove_file(path("i/rEADME")).unwrap();
    assert!(!path("i/Readme").exists());
    // In a mixed file system POSIX programs tell case apart, but not forms of one letter.
    fs::write(path("m/\u{e9}"), "2").unwrap();
    assert_eq!(fs::read_to_string(path("m/e\u{301}")).unwrap(), "2");
    assert!(!path("m/\u{c9}").exists());
    fs::write(path("m/\u{c9}"), "3").unwrap();
    assert_eq!(fs::read_to_string(path("m/\u{e9}")).unwrap(), "2");
    let bad: std::ffi::OsString = std::os::unix::ffi::OsStringExt::from_vec(vec![b'x', 0xff]);
    assert_eq!(File::create(path("u").join(&bad)).unwrap_err().raw_os_error(), Some(Errno::ILSEQ.raw_os_error()));
    File::create(path("i/exact").join(&bad)).unwrap();
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

#[test]
fn files_of_every_kind_and_time() {
    let Some(rig) = pool("") else { return };
    // `chown(-1, -1)` takes set-id bits too: nothing else of it comes here.
    let program = rig.path("mnt/program");
    fs::write(&program, "").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o6755)).unwrap();
    std::os::unix::fs::chown(&program, None, None).unwrap();
    assert_eq!(mode(&program), 0o755);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o6755)).unwrap();
    if has_program("python3") {
        let _ = as_user(JOE, "022", &format!("python3 -c 'import os; os.chown(\"{}\", -1, -1)'", program.display()));
    }
    assert_eq!(mode(&program), 0o6755, "not from what belongs to others");
    let path = |name: &str| rig.path("mnt").join(name);
    // Made without a name, named later, at a place that is free only.
    let unnamed = open(rig.path("mnt"), OFlags::TMPFILE | OFlags::RDWR, Mode::from_raw_mode(0o640)).unwrap();
    rustix::io::write(&unnamed, b"tmp").unwrap();
    fsetxattr(&unnamed, "user.x", b"y", XattrFlags::empty()).unwrap();
    let proc_name = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&unnamed));
    rustix::fs::linkat(CWD, &proc_name, CWD, path("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
    assert_eq!((fs::read(path("named")).unwrap(), xattr(&path("named"), "user.x").unwrap()), (b"tmp".to_vec(), b"y".to_vec()));
    drop(unnamed);
    fs::write(path("other"), "other").unwrap();
    assert_eq!(renameat_with(CWD, path("named"), CWD, path("other"), RenameFlags::NOREPLACE), Err(Errno::EXIST));
    renameat_with(CWD, path("named"), CWD, path("other"), RenameFlags::EXCHANGE).unwrap();
    assert_eq!((fs::read(path("named")).unwrap(), fs::read(path("other")).unwrap()), (b"other".to_vec(), b"tmp".to_vec()));
    renameat_with(CWD, path("named"), CWD, path("moved"), RenameFlags::WHITEOUT).unwrap();
    let whiteout = fs::symlink_metadata(path("named")).unwrap();
    assert!(whiteout.file_type().is_char_device() && whiteout.rdev() == 0 && whiteout.mode() & 0o7777 == 0);
    assert_eq!(fs::read(path("moved")).unwrap(), b"other");

    for (name, kind, device) in [("fifo", FileType::Fifo, 0), ("socket", FileType::Socket, 0), ("null", FileType::CharacterDevice, rustix::fs::makedev(1, 3)), ("disk", FileType::BlockDevice, rustix::fs::makedev(4095, 1_048_575))] {
        mknodat(CWD, path(name), kind, Mode::from_raw_mode(0o600), device).unwrap();
        assert_eq!(fs::symlink_metadata(path(name)).unwrap().rdev(), device, "{name}");
    }
    OpenOptions::new().write(true).open(path("null")).unwrap().write_all(b"gone").unwrap();

    for (seconds, nanoseconds) in [(-1, 999_999_999), (-(1 << 40), 1), (0, 0), (1 << 33, 123_456_789), (1 << 45, 5)] {
        let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
        utimensat(CWD, path("moved"), &Timestamps { last_access: time, last_modification: time }, AtFlags::empty()).unwrap();
        rig.ok("zfs unmount tank");
        rig.ok("zfs mount tank");
        let found = fs::metadata(path("moved")).unwrap();
        assert_eq!((found.mtime(), found.mtime_nsec(), found.atime(), found.atime_nsec()), (seconds, nanoseconds, seconds, nanoseconds));
    }
    let long = "n".repeat(256);
    assert_eq!(File::create(path(&long)).unwrap_err().raw_os_error(), Some(Errno::NAMETOOLONG.raw_os_error()));
    File::create(path(&long[1..])).unwrap();
    std::os::unix::fs::symlink("loop", path("loop")).unwrap();
    assert_eq!(fs::read(path("loop")).unwrap_err().raw_os_error(), Some(Errno::LOOP.raw_os_error()));
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

#[test]
fn the_group_of_a_new_file_is_one_of_its_makers() {
    let Some(rig) = pool("") else { return };
    let directory = rig.path("mnt/team");
    fs::create_dir(&directory).unwrap();
    std::os::unix::fs::chown(&directory, Some(0), Some(777)).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o2777)).unwrap();
    if !has_program("setpriv") || !has_program("perl") {
        return;
    }
    // A member of the group, though not as its first, may make set-group-id files for it; a stranger may not.
    let make = |groups: &str, name: &str| {
        let code = format!("use Fcntl; umask 0; sysopen(my $f, '{}', O_CREAT | O_WRONLY, 02711) or die $!", directory.join(name).display());
        let output = Command::new("setpriv").args(["--reuid=54321", "--regid=54321", groups, "perl", "-e", &code]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let found = fs::metadata(directory.join(name)).unwrap();
        (found.gid(), found.mode() & 0o7777)
    };
    assert_eq!(make("--groups=5,777,9", "member"), (777, 0o2711));
    assert_eq!(make("--clear-groups", "stranger"), (777, 0o711));
}

/// A program that acts for its owner, or with capabilities, must not do so with contents of somebody else's (xfstests generic/193, 093). The kernel
/// leaves the bits to us and goes on believing the mode it knows; capabilities it leaves to us past its cache. So it was for every change by users other
/// than root: programs that asked for nothing but the mode, and exec, were told that the bits are there.
#[test]
fn who_changes_a_program_ends_what_it_may_do() {
    let Some(rig) = pool("") else { return };
    let file = rig.path("mnt/program");
    // Version 2: CAP_NET_RAW is permitted and effective.
    let capability: Vec<u8> = [0x0200_0001u32, 1 << 13, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
    let changes = ["> @", "echo x > @", "echo x >> @", "dd if=/dev/zero of=@ bs=5 count=1 conv=notrunc", "dd if=/dev/zero of=@ bs=5 count=1 conv=notrunc oflag=dsync"];
    for change in changes {
        // The superuser keeps the bits. (Not if there are capabilities, too: then the kernel asks for what it asks for when somebody is made the owner.)
        for (who, is_capable) in [(JOE, true), (JOE, false), (0, false), (0, true)] {
            let had = if who == 0 && is_capable { 0o777 } else { 0o6777 };
            fs::write(&file, "good program").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(had)).unwrap();
            if is_capable {
                setxattr(&file, "security.capability", &capability, XattrFlags::empty()).unwrap();
            }
            assert_eq!(remembered_mode(&file), had);
            as_user(who, "022", &change.replace('@', &file.display().to_string())).unwrap();
            assert_eq!(remembered_mode(&file), if who == 0 { had } else { 0o777 }, "{change} by {who}");
            assert_eq!(xattr(&file, "security.capability"), Err(Errno::NODATA), "{change} by {who}");
        }
    }
    // Opened while it was nobody's program.
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    let late = format!("{{ read line; echo x; }} > {}", file.display());
    let mut child = Command::new("sh").arg("-c").arg(&late).uid(JOE).gid(JOE).stdin(std::process::Stdio::piped()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    fs::write(&file, "good program").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o6777)).unwrap();
    setxattr(&file, "security.capability", &capability, XattrFlags::empty()).unwrap();
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!((remembered_mode(&file), xattr(&file, "security.capability")), (0o777, Err(Errno::NODATA)));
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

/// They were stored as they were, and shown as `user.` and their name, under which they were found too.
#[test]
fn attributes_without_a_namespace_are_refused() {
    let Some(rig) = pool("") else { return };
    let path = rig.path("mnt/file");
    fs::write(&path, "").unwrap();
    for (name, errno) in [("other.name", Errno::OPNOTSUPP), ("name", Errno::OPNOTSUPP), ("system.name", Errno::OPNOTSUPP), ("user.", Errno::INVAL)] {
        assert_eq!(setxattr(&path, name, b"1", XattrFlags::empty()), Err(errno), "{name}");
        assert_eq!(xattr(&path, name), Err(errno), "{name}");
        assert_eq!(rustix::fs::removexattr(&path, name), Err(errno), "{name}");
    }
    assert_eq!(rustix::fs::listxattr(&path, &mut [0; 100][..]), Ok(0));
}

/// A call copied 64 MiB, whatever it was asked for. Most ask again for the rest; OpenZFS's own programs, and others, take what is missing for a failure.
#[test]
fn one_call_copies_all_that_it_is_asked_for() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 2048 * MIB);
    rig.ok("zpool create -O mountpoint=@mnt tank @a.img");
    let (from, to) = (rig.path("mnt/from"), rig.path("mnt/to"));
    File::create(&from).unwrap().set_len(300 * MIB).unwrap();
    let (from, to) = (File::open(&from).unwrap(), File::create(&to).unwrap());
    // The first can be shared, the second cannot: its blocks lie elsewhere.
    for place in [0, 512 * MIB + 1] {
        let (mut offset_in, mut offset_out) = (0, place);
        let copied = rustix::fs::copy_file_range(&from, Some(&mut offset_in), &to, Some(&mut offset_out), 300 << 20).unwrap();
        assert_eq!((copied, to.metadata().unwrap().len()), (300 << 20, place + 300 * MIB));
    }
    drop((from, to));
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}

#[test]
fn properties_of_the_mount_are_obeyed_at_once() {
    let Some(rig) = pool("-O atime=on -O relatime=off") else { return };
    let path = |name: &str| rig.path("mnt").join(name);
    fs::write(path("script"), "#!/bin/sh\necho ran\n").unwrap();
    fs::set_permissions(path("script"), fs::Permissions::from_mode(0o755)).unwrap();
    let run = || Command::new(path("script")).output().map(|output| output.stdout).map_err(|error| error.kind());
    assert_eq!(run(), Ok(b"ran\n".to_vec()));
    rig.ok("zfs set exec=off tank");
    assert_eq!(run(), Err(ErrorKind::PermissionDenied));
    rig.ok("zfs set exec=on devices=off tank");
    mknodat(CWD, path("null"), FileType::CharacterDevice, Mode::from_raw_mode(0o666), rustix::fs::makedev(1, 3)).unwrap();
    assert_eq!(OpenOptions::new().write(true).open(path("null")).unwrap_err().kind(), ErrorKind::PermissionDenied);
    rig.ok("zfs set devices=on setuid=off tank");
    OpenOptions::new().write(true).open(path("null")).unwrap();
    if has_program("findmnt") {
        let said = Command::new("findmnt").args(["-no", "OPTIONS"]).arg(rig.path("mnt")).output().unwrap();
        assert!(String::from_utf8_lossy(&said.stdout).contains("nosuid"));
    }
    rig.ok("zfs set readonly=on tank");
    assert_eq!(File::create(path("new")).unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    rig.ok("zfs set readonly=off tank");
    File::create(path("new")).unwrap();

    let set = |name: &str| setxattr(path("new"), name, b"1", XattrFlags::empty());
    rig.ok("zfs set xattr=dir tank");
    set("user.dir").unwrap();
    rig.ok("zfs set xattr=sa tank");
    set("user.sa").unwrap();
    assert_eq!((xattr(&path("new"), "user.dir"), xattr(&path("new"), "user.sa")), (Ok(b"1".to_vec()), Ok(b"1".to_vec())));
    rig.ok("zfs set xattr=off tank");
    assert_eq!((set("user.off"), xattr(&path("new"), "user.sa")), (Err(Errno::OPNOTSUPP), Err(Errno::OPNOTSUPP)));
    set("trusted.on").unwrap();
    assert_eq!(set("system.nfs4_acl_xdr"), Err(Errno::OPNOTSUPP));

    let (early, late) = (Timespec { tv_sec: 1_000_000, tv_nsec: 0 }, Timespec { tv_sec: 2_000_000, tv_nsec: 0 });
    let read_after = |settings: &str| {
        rig.ok(&format!("zfs set {settings} tank"));
        utimensat(CWD, path("script"), &Timestamps { last_access: late, last_modification: early }, AtFlags::empty()).unwrap();
        rig.ok("zfs unmount tank");
        rig.ok("zfs mount tank");
        fs::read(path("script")).unwrap();
        rig.ok("zpool sync tank");
        // What the kernel remembers of the attributes is a second old.
        std::thread::sleep(std::time::Duration::from_millis(1100));
        fs::metadata(path("script")).unwrap().atime() != 2_000_000
    };
    assert!(!read_after("atime=off"));
    assert!(read_after("atime=on"));
    assert!(read_after("relatime=on"), "older than a day");
    // The kernel remembers the listing, and how many directories are in the root: with `.zfs` if that is shown, as in OpenZFS.
    let snapdir = |rig: &Rig| fs::read_dir(rig.path("mnt")).unwrap().any(|entry| entry.unwrap().file_name() == ".zfs");
    let links = |rig: &Rig| fs::metadata(rig.path("mnt")).unwrap().nlink();
    let hidden = links(&rig);
    assert!(!snapdir(&rig));
    rig.ok("zfs set snapdir=visible tank");
    assert!(snapdir(&rig));
    assert_eq!(links(&rig), hidden + 1);
    rig.ok("zfs set snapdir=hidden tank");
    assert_eq!(links(&rig), hidden);
    assert!(!snapdir(&rig) && rig.path("mnt/.zfs/snapshot").is_dir());
    assert_eq!(fs::metadata(rig.path("mnt/.zfs")).unwrap().ino(), 0xffff_ffff_ffff);
    rig.ok("zpool export tank");
    rig.zdb(&["a.img"]);
}
