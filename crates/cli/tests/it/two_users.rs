//! One device, two users: a device of an imported pool is nobody else's, whatever name it goes by.
//!
//! `losetup` on a file of an imported pool, and another daemon imported it through the loop device, cleared its labels, made a pool of its own on it: all
//! of that succeeded, and the first pool was lost. So did the reverse, and a file was taken whose loop device was mounted.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::thread;

use rustix::mount::{UnmountFlags, unmount};
use sim::places::skipped;
use tarnfs::control::{
    AllocationClass, CommandLine, FeatureChoice, PoolAdd, PoolCreate, PoolImport, Reply, Request, Setting, VdevKind, VdevSpec,
};

use crate::rig::{LIMIT, Rig, Said, has_program, run_for};

const MIB: u64 = 1 << 20;

/// A loop device, detached at the end.
struct Loop(String);

impl Loop {
    /// Over a file or a device. `None`, aloud: there are none here.
    fn over(under: &str, more: &[&str]) -> Option<Loop> {
        if !has_program("losetup") {
            return None;
        }
        let mut command = Command::new("losetup");
        let said = run_for(command.args(["-f", "--show"]).args(more).arg(under), LIMIT).expect("losetup ends");
        if said.code != 0 {
            skipped(&format!("a loop device over {under}: {}", said.err.trim()));
            return None;
        }
        Some(Loop(said.out.trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = run_for(Command::new("losetup").args(["-d", &self.0]), LIMIT);
    }
}

/// A mount that is gone at the end.
struct Mounted(std::path::PathBuf);

impl Mounted {
    #[track_caller]
    fn new(words: &[&str], place: &Path) -> Mounted {
        let said = run_for(Command::new("mount").args(words).arg(place), LIMIT).expect("mount ends");
        assert_eq!(said.code, 0, "{said:?}");
        Mounted(place.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = unmount(self.0.as_path(), UnmountFlags::DETACH);
    }
}

/// Two daemons, and a pool `depot` of the second one's, to which devices could be added.
fn two() -> Option<(Rig, Rig)> {
    let (one, other) = (Rig::new()?, Rig::new()?);
    other.image("depot.img", 96 * MIB);
    other.ok("zpool create -m none depot @depot.img");
    Some((one, other))
}

/// Whatever would write to a device, forced.
fn attacks(device: &str) -> [String; 5] {
    [
        format!("zpool import -f -d {device} -N tank"),
        format!("zpool import -f -o readonly=on -d {device} -N tank"),
        format!("zpool create -f -m none new {device}"),
        format!("zpool add -f depot {device}"),
        format!("zpool labelclear -f {device}"),
    ]
}

/// Nothing of that is done to a device that another daemon has, by any of its names.
#[track_caller]
fn all_refused(other: &Rig, names: &[&str]) {
    for name in names {
        for words in attacks(name) {
            let said = other.run(&words);
            let tells = ["in use", "ACTIVE", "busy", "active pool"].iter().any(|word| said.err.contains(word));
            assert!(said.code != 0 && tells && said.err.contains('/'), "{words}: {said:?}");
        }
    }
}

/// Nor is it made part of another pool, where its labels are not to be seen.
#[track_caller]
fn others_pools_refused(other: &Rig, name: &str) {
    for words in [format!("zpool create -f -m none new {name}"), format!("zpool add -f depot {name}")] {
        other.refused(&words, "in use");
    }
}

/// A file system with something in it.
fn fill(rig: &Rig) {
    rig.ok("zfs create -o mountpoint=@mnt tank/fs");
    fs::write(rig.path("mnt/what"), vec![7; 300_000]).unwrap();
    rig.ok("zpool sync tank");
}

#[track_caller]
fn is_whole(rig: &Rig, image: &str) {
    assert_eq!(fs::read(rig.path("mnt/what")).unwrap(), vec![7; 300_000]);
    rig.ok("zpool export tank");
    rig.check("tank");
    rig.zdb(&[image]);
}

#[test]
fn a_file_of_a_pool_is_not_taken_by_another_name() {
    let Some((one, other)) = two() else { return };
    let image = one.image("a.img", 128 * MIB);
    one.ok("zpool create -m none tank @a.img");
    fill(&one);
    fs::hard_link(&image, one.path("hard.img")).unwrap();
    fs::write(one.path("bound.img"), "").unwrap();
    let _bound = Mounted::new(&["--bind", &image], &one.path("bound.img"));
    all_refused(&other, &[&image, &one.text("hard.img"), &one.text("bound.img")]);
    let Some(over) = Loop::over(&image, &[]) else { return };
    let Some(over_that) = Loop::over(&over.0, &[]) else { return };
    let Some(later_part) = Loop::over(&one.text("hard.img"), &["-o", "65536"]) else { return };
    all_refused(&other, &[&over.0, &over_that.0]);
    others_pools_refused(&other, &later_part.0);
    // The one who has it is told so, too.
    let said = one.run(&format!("zpool create -f -m none new {}", over_that.0));
    assert!(said.code != 0 && said.err.contains(&format!("{} is part of active pool 'tank'", over_that.0)), "{said:?}");
    drop((over_that, later_part, over));
    is_whole(&one, "a.img");
}

#[test]
fn the_file_behind_a_loop_device_of_a_pool_is_not_taken() {
    let Some((one, other)) = two() else { return };
    let image = one.image("a.img", 128 * MIB);
    let Some(over) = Loop::over(&image, &[]) else { return };
    let Some(beside) = Loop::over(&image, &[]) else { return };
    let Some(over_that) = Loop::over(&over.0, &[]) else { return };
    for device in [&over, &over_that] {
        if device.0 == over.0 {
            one.ok(&format!("zpool create -m none tank {}", device.0));
            fill(&one);
        } else {
            one.ok("zpool export tank");
            one.ok(&format!("zpool import -d {} tank", device.0));
        }
        fs::remove_file(one.path("hard.img")).unwrap_or_default();
        fs::hard_link(&image, one.path("hard.img")).unwrap();
        all_refused(&other, &[&image, &one.text("hard.img"), &beside.0]);
    }
    all_refused(&other, &[&over.0]);
    is_whole(&one, "a.img");
}

/// A mount namespace in which the file is hidden, and processes are other ones.
#[test]
fn a_device_is_not_taken_from_another_namespace() {
    let Some((one, other)) = two() else { return };
    let image = one.image("a.img", 128 * MIB);
    if !has_program("unshare") {
        return;
    }
    other.ok("zpool export depot");
    // The next one is begun over there.
    other.wait("the end of the daemon", || !other.path("sock").exists());
    let elsewhere = |words: &str, hide: bool| -> Said {
        let inner = other.command(words);
        // Other tests' mounts would live on in there, and be busy.
        let let_go = "grep ' fuse.tarn ' /proc/self/mounts | cut -d' ' -f2 | xargs -r -n1 umount -l;";
        let hide = if hide { format!("mount -t tmpfs none {} &&", one.text("")) } else { String::new() };
        let mut command = Command::new("unshare");
        command
            .args(["-m", "-p", "-f", "--mount-proc", "sh", "-c", &format!("{let_go} {hide} \"$@\"; exit $?"), "sh"])
            .arg(inner.get_program())
            .args(inner.get_args());
        inner.get_envs().for_each(|(name, value)| {
            command.env(name, value.unwrap_or_default());
        });
        command.env_remove("TARN_LOG_FILE");
        run_for(&mut command, LIMIT).expect("it ends")
    };
    let Some(over) = Loop::over(&image, &[]) else { return };
    one.ok("zpool create -m none tank @a.img");
    fill(&one);
    for (name, hide) in [(&image, false), (&over.0, false), (&over.0, true)] {
        for words in attacks(name).iter().filter(|words| !words.contains("depot")) {
            let said = elsewhere(words, hide);
            let tells = ["in use", "ACTIVE"].iter().any(|word| said.err.contains(word));
            assert!(said.code != 0 && tells, "{words}, hidden: {hide}: {said:?}");
        }
    }
    is_whole(&one, "a.img");
}

/// Parts of one image that have nothing in common may be two pools'; two that overlap may not.
#[test]
fn parts_of_an_image_are_devices_of_their_own() {
    let Some((one, other)) = two() else { return };
    let image = one.image("a.img", 256 * MIB);
    let part = |from: u64, length: u64| {
        Loop::over(&image, &["-o", &(from * MIB).to_string(), "--sizelimit", &(length * MIB).to_string()])
    };
    let Some(first) = part(0, 128) else { return };
    let (Some(second), Some(across)) = (part(128, 128), part(64, 128)) else { return };
    one.ok(&format!("zpool create -m none tank {}", first.0));
    fill(&one);
    all_refused(&other, &[&image]);
    others_pools_refused(&other, &across.0);
    other.ok(&format!("zpool create -m none new {}", second.0));
    other.ok("zpool export new");
    one.ok(&format!("zpool add -f tank {}", second.0));
    let said = other.run(&format!("zpool import -d {} new", second.0));
    assert_ne!(said.code, 0, "{said:?}");
    one.ok("zpool destroy tank");
}

/// A mirror whose sides are one file, or a pool that has it twice.
#[test]
fn one_file_is_not_two_devices_of_a_pool() {
    let Some(rig) = Rig::new() else { return };
    let image = rig.image("a.img", 128 * MIB);
    rig.image("b.img", 128 * MIB);
    fs::hard_link(&image, rig.path("hard.img")).unwrap();
    let same = "one or more vdevs refer to the same device";
    let mut pairs = vec![(image.clone(), rig.text("hard.img"))];
    let loops = [Loop::over(&image, &[]), Loop::over(&image, &[])];
    if let [Some(first), Some(second)] = &loops {
        pairs.extend([
            (first.0.clone(), second.0.clone()),
            (image.clone(), first.0.clone()),
            (first.0.clone(), rig.text("hard.img")),
        ]);
    }
    for (first, second) in &pairs {
        for layout in [format!("mirror {first} {second}"), format!("{first} {second}"), format!("{first} log {second}")] {
            rig.refused(&format!("zpool create -f -m none tank {layout}"), same);
        }
        rig.ok("zpool create -m none tank @b.img");
        rig.refused(&format!("zpool add -f tank {first} {second}"), same);
        rig.ok("zpool destroy tank");
    }
}

/// The device is somebody else's who is not us: a file system is mounted on a loop device over the file.
#[test]
fn a_file_whose_loop_device_is_mounted_is_not_taken() {
    let Some((one, other)) = two() else { return };
    let image = one.image("a.img", 128 * MIB);
    if !has_program("mkfs.ext4") {
        return;
    }
    assert!(Command::new("mkfs.ext4").args(["-q", &image]).status().unwrap().success());
    let Some(over) = Loop::over(&image, &[]) else { return };
    fs::create_dir(one.path("ext4")).unwrap();
    let _mounted = Mounted::new(&[&over.0], &one.path("ext4"));
    fs::write(one.path("ext4/what"), "precious").unwrap();
    for words in [
        format!("zpool create -f -m none new {image}"),
        format!("zpool create -f -m none new {}", over.0),
        format!("zpool add -f depot {image}"),
    ] {
        other.refused(&words, "in use");
    }
    assert_eq!(fs::read(one.path("ext4/what")).unwrap(), b"precious");
}

/// What must go on: to look at a pool that is imported, to read one twice, to take it back at once after a crash.
#[test]
fn readers_do_not_keep_each_other_out() {
    let Some((one, other)) = two() else { return };
    let image = one.image("a.img", 128 * MIB);
    one.ok("zpool create -m none tank @a.img");
    fill(&one);
    one.ok("zdb -d tank");
    one.kill();
    one.unmount_all();
    one.ok(&format!("zpool import -f -d {image} tank"));
    is_whole(&one, "a.img");
    let loops = [Loop::over(&image, &["-r"]), Loop::over(&image, &[])];
    let mut names = vec![image.as_str()];
    names.extend(loops.iter().flatten().map(|over| over.0.as_str()));
    for first in &names {
        for second in &names {
            one.ok(&format!("zpool import -N -o readonly=on -d {first} tank"));
            other.ok(&format!("zpool import -N -o readonly=on -d {second} tank"));
            let said = other.run(&format!("zpool create -f -m none new {image}"));
            assert!(said.code != 0 && said.err.contains("active pool"), "{first}, {second}: {said:?}");
            one.ok("zpool export tank");
            other.ok("zpool export tank");
        }
        one.ok(&format!("fs ls -d {first} tank/fs:/"));
    }
    for name in names.iter().filter(|name| loops[0].as_ref().is_none_or(|read_only| read_only.0 != **name)) {
        one.ok(&format!("zpool import -N -d {name} tank"));
        let said = other.run(&format!("zpool import -N -o readonly=on -d {image} tank"));
        assert_ne!(said.code, 0, "{name}: {said:?}");
        one.ok("zpool export tank");
    }
}

/// Of two who want a device at the same moment one gets it, and has it alone.
#[test]
fn of_two_at_once_one_wins() {
    let Some((one, other)) = two() else { return };
    let image = one.image("a.img", 128 * MIB);
    let over = Loop::over(&image, &[]);
    let other_name = over.as_ref().map_or(image.as_str(), |over| over.0.as_str());
    let at_once = |words: &str, more: &str| {
        let (first, second) = thread::scope(|scope| {
            let first = scope.spawn(|| one.run(&format!("{words}{image}{more}")));
            let second = scope.spawn(|| other.run(&format!("{words}{other_name}{more}")));
            (first.join().unwrap(), second.join().unwrap())
        });
        assert!((first.code == 0) != (second.code == 0), "{words}: {first:?} {second:?}");
        if first.code == 0 { &one } else { &other }
    };
    for _ in 0..4 {
        let winner = at_once("zpool create -f -m none tank ", "");
        winner.ok("zpool sync tank");
        winner.ok("zpool export tank");
        let winner = at_once("zpool import -N -d ", " tank");
        winner.ok("zfs create tank/fs");
        winner.ok("zpool export tank");
        one.check("tank");
    }
}

/// The daemon may do more than its caller: a file that its caller could not even read became a device. (Root without the right to pass over modes.)
#[test]
fn what_the_caller_may_not_write_is_no_device() {
    let Some(rig) = Rig::new() else { return };
    if !has_program("setpriv") {
        return;
    }
    let own = rig.image("own.img", 96 * MIB);
    rig.ok("zpool create -m none own @own.img");
    let without_rights = |words: &str| {
        let inner = rig.command(words);
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", "-dac_override,-dac_read_search"]).arg(inner.get_program()).args(inner.get_args());
        inner.get_envs().for_each(|(name, value)| {
            command.env(name, value.unwrap_or_default());
        });
        run_for(&mut command, LIMIT).expect("it ends")
    };
    let image = rig.image("theirs.img", 96 * MIB);
    fs::write(&image, vec![7; 96 << 20]).unwrap();
    std::os::unix::fs::chown(&image, Some(61_234), None).unwrap();
    for mode in [0o000, 0o444] {
        fs::set_permissions(&image, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        for words in [
            format!("zpool create -f -m none tank {image}"),
            format!("zpool add -f own {image}"),
            format!("zpool labelclear -f {image}"),
        ] {
            let said = without_rights(&words);
            let denied = said.err.contains(&image) && (said.err.contains("Permission denied") || words.contains("labelclear"));
            assert!(said.code != 0 && denied, "{words}, mode {mode:o}: {said:?}");
        }
    }
    assert!(fs::read(&image).unwrap().iter().all(|byte| *byte == 7), "nothing was written to it");
    // Nor is a pool on such a file imported.
    rig.ok("zpool export own");
    std::os::unix::fs::chown(&own, Some(61_234), None).unwrap();
    let import = format!("zpool import -N -d {own} own");
    // Not even its labels are read for a caller who may not.
    for (mode, why) in [(0o000, "cannot import 'own': no such pool available".to_owned()), (0o444, format!("cannot open '{own}': Permission denied"))] {
        fs::set_permissions(&own, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        let said = without_rights(&import);
        assert!(said.code == 1 && said.err.contains(&why), "mode {mode:o}: {said:?}");
    }
    rig.ok(&import);
}

/// Sends a message and prints the answer.
const SEND: &str = r#"use IO::Socket::UNIX; my ($to, $message) = @ARGV; my $s = IO::Socket::UNIX->new(Peer => $to) or die "connect: $!";
print $s pack("V", length $message), $message; $s->flush; read($s, my $n, 4) == 4 or die "no answer"; read($s, my $answer, unpack("V", $n)); print $answer;"#;

/// A caller that speaks to the daemon past the command gets no more than the command, which looks for itself: the daemon opens no device that its caller could not.
#[test]
fn nor_for_who_speaks_to_the_daemon_itself() {
    let Some(rig) = Rig::new() else { return };
    if !has_program("setpriv") || !has_program("perl") {
        return;
    }
    let [own, theirs, _] = ["own.img", "theirs.img", "other.img"].map(|name| rig.image(name, 96 * MIB));
    rig.ok("zpool create -m none other @other.img");
    rig.ok("zpool create -m none own @own.img");
    rig.ok("zpool export own");
    let found = sim::scenario::found_pool(&[own.clone().into()]);
    for image in [&own, &theirs] {
        std::os::unix::fs::chown(image, Some(61_234), None).unwrap();
        fs::set_permissions(image, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    }
    let spec = |path: &str| VdevSpec { kind: VdevKind::File, path: Some(path.into()), class: AllocationClass::Normal, children: Vec::new() };
    let requests = [
        Request::PoolCreate(PoolCreate {
            name: "tank".to_owned(),
            temporary_name: None,
            vdevs: vec![spec(&theirs)],
            force: true,
            properties: Vec::new(),
            features: FeatureChoice::default(),
            dataset_properties: vec![Setting::new("mountpoint", "none")],
            command: CommandLine::default(),
        }),
        Request::PoolAdd(PoolAdd { name: "other".to_owned(), vdevs: vec![spec(&theirs)], force: true, ashift: None, any_ashift: true }),
        Request::PoolImport(PoolImport::new(found.status.guid, "own", vec![own.clone().into()])),
    ];
    let send = |capabilities: &str, request: &Request| -> Reply {
        let message = serde_json::to_string(request).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", capabilities, "perl", "-e", SEND]).arg(rig.path("sock")).arg(&message);
        let said = run_for(&mut command, LIMIT).expect("it ends");
        serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{request:?}: {error}: {said:?}"))
    };
    for request in &requests {
        let reply = send("-dac_override,-dac_read_search", request);
        assert!(matches!(reply, Reply::Failed(_)), "{request:?}: {reply:?}");
    }
    assert_eq!(rig.ok("zpool list -H -o name").trim(), "other");
    for image in [&own, &theirs] {
        assert_eq!(fs::metadata(image).unwrap().len(), 96 << 20);
    }
    assert!(fs::read(&theirs).unwrap().iter().all(|byte| *byte == 0), "nothing was written to it");
    // With the right, the same requests are carried out.
    for request in &requests[1..] {
        let reply = send("-sys_time", request);
        assert!(!matches!(reply, Reply::Failed(_)), "{request:?}: {reply:?}");
    }
    rig.ok("zpool export -a");
}

/// The checksum of a partition table.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

/// Makes a disk image with one partition, behind the first mebibyte, that contains what is in `part`.
fn with_partition(disk: &Path, part: &Path) {
    let contents = fs::read(part).unwrap();
    let (sectors, of_part) = (fs::metadata(disk).unwrap().len() / 512, contents.len() as u64 / 512);
    let mut entries = [0_u8; 128 * 128];
    entries[..32].fill(7);
    entries[32..40].copy_from_slice(&2048_u64.to_le_bytes());
    entries[40..48].copy_from_slice(&(2048 + of_part - 1).to_le_bytes());
    let mut header = [0_u8; 92];
    header[..8].copy_from_slice(b"EFI PART");
    for (at, number) in [(8, 0x1_0000_u32), (12, 92), (80, 128), (84, 128), (88, crc32(&entries))] {
        header[at..at + 4].copy_from_slice(&number.to_le_bytes());
    }
    for (at, number) in [(24, 1), (32, sectors - 1), (40, 34), (48, sectors - 34), (56, 7), (72, 2)] {
        header[at..at + 8].copy_from_slice(&number.to_le_bytes());
    }
    let sum = crc32(&header);
    header[16..20].copy_from_slice(&sum.to_le_bytes());
    // What older systems see: one partition of another kind.
    let mut first = [0_u8; 512];
    first[447..454].copy_from_slice(&[0, 2, 0, 0xee, 0xff, 0xff, 0xff]);
    first[454..458].copy_from_slice(&1_u32.to_le_bytes());
    first[458..462].copy_from_slice(&u32::try_from(sectors - 1).unwrap().to_le_bytes());
    first[510..].copy_from_slice(&[0x55, 0xaa]);
    let file = OpenOptions::new().write(true).open(disk).unwrap();
    for (at, bytes) in [(0, &first[..]), (512, &header[..]), (1024, &entries[..]), (MIB, &contents[..])] {
        file.write_all_at(bytes, at).unwrap();
    }
}

/// OpenZFS puts a pool that has a whole disk on the first partition, and nobody looked there: the pool was overwritten.
#[test]
fn a_disk_with_a_pool_on_a_partition_is_taken_by_force_only() {
    let Some(rig) = Rig::new() else { return };
    rig.image("part", 64 * MIB);
    rig.ok("zpool create -m none old @part");
    rig.ok("zpool export old");
    let disk = rig.image("disk", 160 * MIB);
    with_partition(&rig.path("disk"), &rig.path("part"));
    let Some(device) = Loop::over(&disk, &["--partscan"]) else { return };
    rig.image("a.img", 128 * MIB);
    rig.ok("zpool create -m none tank @a.img");
    for words in ["create -m none new", "add --allow-replication-mismatch tank", "attach tank @a.img", "replace tank @a.img"] {
        rig.refused(&format!("zpool {words} {}", device.0), "is part of exported pool 'old'");
    }
    rig.ok("zpool destroy tank");
    rig.ok(&format!("zpool create -f -m none new {}", device.0));
    rig.ok("zpool export new");
}
