//! What comes between while a stream is under way: the pool is to be exported, what it is about is to be destroyed, the device fails, there is no room.
//! Nothing is left half done.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};

use crate::rig::{LIMIT, Rig, wait_for};

const MIB: u64 = 1 << 20;
/// More than a pipe and the daemon hold of a stream.
const CONTENTS_BYTES: u32 = 24 << 20;

/// Bytes that do not compress.
fn contents(bytes: u32) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// A pool with a file system and a stream of it.
struct Streams {
    rig: Rig,
    stream: PathBuf,
}

impl Streams {
    fn new(bytes: u32) -> Option<Streams> {
        let rig = Rig::new()?;
        rig.image("src.img", 512 * MIB);
        rig.ok("zpool create -O compression=off -O mountpoint=@mnt src @src.img");
        rig.ok("zfs create src/a");
        fs::write(rig.path("mnt/a/f"), contents(bytes)).expect("a file");
        rig.ok("zfs snapshot src/a@s");
        let stream = rig.path("stream");
        let status = rig.command("zfs send src/a@s").stdin(Stdio::null()).stdout(File::create(&stream).expect("a file")).status().expect("tarn");
        assert!(status.success());
        Some(Streams { rig, stream })
    }

    fn whole(&self) -> Vec<u8> {
        fs::read(&self.stream).expect("the stream")
    }

    /// A command whose stream comes, or goes, through a pipe that nobody moves on.
    fn start(&self, words: &str) -> Child {
        let mut command = self.rig.command(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(self.rig.path("said")).expect("a file"));
        command.spawn().expect("tarn")
    }

    fn said(&self) -> String {
        fs::read_to_string(self.rig.path("said")).expect("the file")
    }

    #[track_caller]
    fn ends(&self, mut command: Child, code: i32) -> String {
        let found = wait_for(&mut command, LIMIT);
        let said = self.said();
        assert_eq!(found, Some(code), "{said}\n{}", self.rig.log());
        said
    }

    fn finish(self) {
        self.rig.finish("src", &["src.img"]);
    }
}

#[test]
fn what_is_sent_is_neither_exported_nor_destroyed() {
    let Some(streams) = Streams::new(CONTENTS_BYTES) else { return };
    let (rig, whole) = (&streams.rig, streams.whole());
    let mut sending = streams.start("zfs send src/a@s");
    drop(sending.stdin.take());
    let mut out = sending.stdout.take().expect("a pipe");
    let mut sent = vec![0; 1000];
    out.read_exact(&mut sent).expect("a beginning");
    rig.refused("zfs destroy src/a@s", "cannot destroy snapshot src/a@s: dataset is busy");
    rig.refused("zfs destroy -r src/a", "busy");
    rig.refused("zpool export src", "cannot export 'src': pool is busy");
    rig.refused("zpool export -F src", "cannot export 'src': pool is busy");
    assert!(rig.is_mounted("mnt/a"), "what is not exported stays mounted");
    out.read_to_end(&mut sent).expect("the rest");
    streams.ends(sending, 0);
    assert!(sent == whole, "{} of {} bytes", sent.len(), whole.len());
    rig.ok("zfs destroy -r src/a");
    streams.finish();
}

#[test]
fn what_is_received_into_is_neither_exported_nor_destroyed() {
    let Some(streams) = Streams::new(CONTENTS_BYTES) else { return };
    let (rig, whole) = (&streams.rig, streams.whole());
    rig.image("dst.img", 512 * MIB);
    rig.ok("zpool create -O mountpoint=@dst dst @dst.img");
    for (words, is_there) in [("zfs receive dst/new", false), ("zfs receive -F dst/old", true)] {
        let name = words.split(' ').next_back().unwrap_or_default();
        if is_there {
            rig.ok(&format!("zfs create {name}"));
        }
        let mut receiving = streams.start(words);
        let mut input = receiving.stdin.take().expect("a pipe");
        let half = whole.len() / 2;
        input.write_all(&whole[..half]).expect("it reads");
        rig.refused(&format!("zfs destroy {name}"), "busy");
        rig.refused("zpool export dst", "cannot export 'dst': pool is busy");
        input.write_all(&whole[half..]).expect("it reads");
        drop(input);
        streams.ends(receiving, 0);
        let file = rig.path(name).join("f");
        assert!(fs::read(file).expect("it is mounted") == contents(CONTENTS_BYTES));
    }
    rig.ok("zpool export dst");
    rig.check("dst");
    rig.zdb(&["dst.img"]);
    streams.finish();
}

/// There is no room for half of it: nothing is left, or what can be gone on with.
#[test]
fn a_pool_that_runs_full_keeps_nothing_or_what_can_be_resumed() {
    let Some(streams) = Streams::new(160 << 20) else { return };
    let rig = &streams.rig;
    rig.image("dst.img", 128 * MIB);
    rig.ok("zpool create -O compression=off -O mountpoint=@dst dst @dst.img");
    let receive = |words: &str, stream: &Path| {
        let mut command = rig.command(words);
        let output = command.stdin(File::open(stream).expect("the stream")).output().expect("tarn");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = receive("zfs receive dst/a", &streams.stream);
    assert!(code == Some(1) && said.contains("out of space"), "{said}");
    assert_eq!(rig.ok("zfs list -Ho name -r dst"), "dst\n");
    rig.wait("the room", || rig.get("dst", "used").parse::<u64>().is_ok_and(|used| used < 4 << 20));
    let (code, said) = receive("zfs receive -s dst/a", &streams.stream);
    assert!(code == Some(1) && said.contains("out of space"), "{said}");
    let token = rig.get("dst/a", "receive_resume_token");
    assert!(token.starts_with("1-"), "{token}");
    rig.ok("zpool export dst");
    rig.check("dst");
    rig.zdb(&["dst.img"]);
    // With more room it goes on.
    rig.image("more.img", 256 * MIB);
    rig.ok("zpool import -d @dst.img dst");
    rig.ok("zpool add dst @more.img");
    let rest = rig.path("rest");
    let status = rig.command(&format!("zfs send -t {token}")).stdout(File::create(&rest).expect("a file")).status().expect("tarn");
    assert!(status.success());
    assert_eq!(receive("zfs receive -s dst/a", &rest), (Some(0), String::new()));
    assert!(fs::read(rig.path("dst/a/f")).expect("it is mounted") == contents(160 << 20));
    rig.ok("zpool export dst");
    rig.check("dst");
    rig.zdb(&["dst.img", "more.img"]);
    streams.finish();
}

/// The device takes no more writes half-way: the receive waits for it, or its pool is given up, and what is there then is what was there.
#[test]
fn a_device_that_fails_half_way_leaves_nothing() {
    let Some(streams) = Streams::new(64 << 20) else { return };
    let rig = &streams.rig;
    fs::create_dir(rig.path("small")).expect("a directory");
    mount("tmpfs", rig.path("small"), "tmpfs", MountFlags::empty(), Some(c"size=40m")).expect("a mount");
    rig.image("small/dst.img", 256 * MIB);
    rig.ok("zpool create -O compression=off -O mountpoint=@dst dst @small/dst.img");
    for failmode in ["wait", "continue"] {
        rig.ok(&format!("zpool set failmode={failmode} dst"));
        mount_remount(rig.path("small"), MountFlags::empty(), c"size=40m").expect("a mount");
        let mut receiving = streams.start("zfs receive dst/a");
        let (mut input, whole) = (receiving.stdin.take().expect("a pipe"), streams.whole());
        let feeding = std::thread::spawn(move || input.write_all(&whole));
        rig.wait("the suspension", || rig.run("zpool status dst").out.contains("SUSPENDED"));
        if failmode == "wait" {
            mount_remount(rig.path("small"), MountFlags::empty(), c"size=400m").expect("a mount");
            // A write that was under way meanwhile may fail after the first time.
            for _ in 0..LIMIT.as_secs() {
                rig.run("zpool clear dst");
                if wait_for(&mut receiving, Duration::from_secs(1)).is_some() {
                    break;
                }
            }
            streams.ends(receiving, 0);
            feeding.join().expect("a thread").expect("all was read");
            assert!(fs::read(rig.path("dst/a/f")).expect("it is mounted") == contents(64 << 20));
            rig.ok("zfs destroy -r dst/a");
            // Only so much is left of the device's file as the pool still has in it.
            rig.ok("zpool export dst");
            fs::remove_file(rig.path("small/dst.img")).expect("the file");
            rig.image("small/dst.img", 256 * MIB);
            rig.ok("zpool create -O compression=off -O mountpoint=@dst dst @small/dst.img");
        } else {
            rig.run("zpool export -F dst");
            let code = wait_for(&mut receiving, LIMIT);
            assert!(code.is_some_and(|code| code != 0), "{code:?}: {}\n{}", streams.said(), rig.log());
            let _ = feeding.join().expect("a thread");
            rig.wait("the export", || !rig.run("zpool list -Ho name").out.contains("dst"));
            mount_remount(rig.path("small"), MountFlags::empty(), c"size=400m").expect("a mount");
            rig.ok("zpool import -d @small dst");
            assert_eq!(rig.ok("zfs list -Ho name -r dst"), "dst\n");
        }
    }
    rig.ok("zpool export dst");
    rig.check_in("small", "dst");
    rig.zdb(&["small/dst.img"]);
    unmount(rig.path("small"), UnmountFlags::empty()).expect("it is mounted");
    streams.finish();
}
