//! `zfs receive` on a real daemon: streams that OpenZFS sent, into mounts; what is said of those that cannot be received.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use sim::golden::{Compare, Golden, Manifest, MountedPool, compare};

use crate::rig::{LIMIT, Rig, Said, wait_for};
use crate::stream::golden as streams_of_openzfs;

const MIB: u64 = 1 << 20;

/// What a copy elsewhere has in common with the original.
const RECEIVED: Compare = Compare { inodes: true, allocated: false, segments: true, changed: true, projects: false, properties: &[] };

struct Receiver {
    rig: Rig,
    streams: PathBuf,
    _directory: tempfile::TempDir,
}

impl Receiver {
    fn new() -> Option<Receiver> {
        let directory = tempfile::tempdir().expect("a directory");
        let streams = streams_of_openzfs(directory.path())?;
        let rig = Rig::new()?;
        rig.image("a.img", 512 * MIB);
        rig.ok("zpool create -O mountpoint=@mnt -O acltype=posix tank @a.img");
        Some(Receiver { rig, streams, _directory: directory })
    }

    fn said(&self, words: &str, stream: &Path) -> Said {
        let output = self.rig.command(words).stdin(File::open(stream).expect("the stream")).output().expect("tarn");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Said { code: output.status.code().unwrap_or(-1), out: text(&output.stdout), err: text(&output.stderr) }
    }

    fn stream(&self, name: &str) -> PathBuf {
        self.streams.join(format!("{name}.zfs"))
    }

    #[track_caller]
    fn ok(&self, words: &str, stream: &str) -> String {
        let said = self.said(words, &self.stream(stream));
        assert_eq!((said.code, said.err.as_str()), (0, ""), "tarn {words} < {stream}: {}\n{}", said.out, self.rig.log());
        said.out
    }

    #[track_caller]
    fn refused(&self, words: &str, stream: &str, message: &str) {
        let said = self.said(words, &self.stream(stream));
        assert!(said.code == 1 && said.err == format!("{message}\n"), "tarn {words} < {stream}: {}{}\n{}", said.out, said.err, self.rig.log());
    }

    /// Mounted file systems (ours, golden's) have what the manifest says.
    fn compare(&self, mounted: &[(&str, &str)]) {
        let place = Golden::place("streams").expect("the golden streams");
        let mut manifest = Manifest::read(&place.join("manifest.json.zst")).expect("a manifest");
        let record = |(ours, golden): &(&str, &str)| {
            let found = manifest.datasets.iter().find(|record| record.name == format!("g_streams/{golden}"));
            let mut record = found.unwrap_or_else(|| panic!("{golden} is not in the manifest")).clone();
            (record.name, record.kind) = ((*ours).to_owned(), "filesystem".to_owned());
            // The root of a snapshot is shown with another number than that of its file system.
            record.files.iter_mut().flatten().filter(|file| file.path.as_deref() == Some(".")).for_each(|file| file.ino = 34);
            record
        };
        manifest.datasets = mounted.iter().map(record).collect();
        manifest.pool.name = "tank".to_owned();
        let mounts = mounted.iter().map(|(ours, _)| ((*ours).to_owned(), self.rig.path("mnt").join(ours.trim_start_matches("tank/"))));
        let report = compare(&MountedPool::new("tank", mounts), &manifest, RECEIVED).expect("a comparison");
        let shown = &report.differences[..report.differences.len().min(20)];
        assert!(report.is_same(), "{} differences: {shown:#?}", report.differences_found);
    }

    fn finish(self) {
        self.rig.finish("tank", &["a.img"]);
    }
}

#[test]
fn streams_become_mounted_file_systems() {
    let Some(to) = Receiver::new() else { return };
    let said = to.ok("zfs receive -v tank/src", "full");
    assert!(said.starts_with("receiving full stream of g_streams/src@a into tank/src@a\nreceived 3.81M stream in "), "{said}");
    to.compare(&[("tank/src", "src@a")]);
    assert!(to.ok("zfs receive -nv tank/src", "incr-a-b").starts_with("would receive incremental stream of g_streams/src@b into tank/src@b\n"));
    to.ok("zfs receive -F tank/src", "incr-a-b");
    to.compare(&[("tank/src", "src@b")]);
    // What was received is passed over, and the rest goes on.
    let said = to.ok("zfs receive -vF tank/src", "incr-I-a-c");
    assert!(said.contains("snap tank/src@b already exists; ignoring\n"), "{said}");
    to.compare(&[("tank/src", "src@c")]);
    assert_eq!(to.rig.ok("zfs list -Ht snapshot -o name -r tank/src"), "tank/src@a\ntank/src@b\ntank/src@c\n");
    to.ok("zfs receive -u tank/named@n", "Lec");
    assert!(!to.rig.is_mounted("mnt/named"));
    to.rig.ok("zfs create tank/below");
    to.ok("zfs receive -d tank/below", "full");
    assert_eq!(to.rig.ok("zfs list -Ht snapshot -o name -r tank/below"), "tank/below/src@a\n");
    to.ok("zfs receive -e tank", "large-L");
    assert_eq!(to.rig.ok("zfs list -Ho name -t snapshot -r tank/large"), "tank/large@a\n");
    to.finish();
}

#[test]
fn properties_come_along_or_do_not() {
    let Some(to) = Receiver::new() else { return };
    to.ok("zfs receive tank/one", "props");
    assert_eq!(to.rig.ok("zfs get -Ho value,source compression tank/one"), "lz4\treceived\n");
    to.ok("zfs receive -o compression=zstd -x atime tank/two", "props");
    assert_eq!(to.rig.ok("zfs get -Ho value,received,source compression tank/two"), "zstd\tlz4\tlocal\n");
    to.ok("zfs receive tank/tree", "repl-r2");
    // (Not tank/tree itself, in which these are mounted.)
    to.compare(&[("tank/tree/k1", "tree/k1@r2"), ("tank/tree/k2", "tree/k2@r2"), ("tank/tree/k3", "tree/k3@r2"), ("tank/tree/cl", "tree/cl@r2")]);
    assert_eq!(to.rig.ok("zfs get -Ho value origin tank/tree/cl"), "tank/tree/k2@r1\n");
    to.finish();
}

#[test]
fn what_cannot_be_received_is_said_as_openzfs_says_it() {
    let Some(to) = Receiver::new() else { return };
    to.ok("zfs receive tank/src", "full");
    to.refused("zfs receive tank/src", "full", "cannot receive new filesystem stream: destination 'tank/src' exists\nmust specify -F to overwrite it");
    let has = "cannot receive new filesystem stream: destination has snapshots (eg. tank/src@a)\nmust destroy them to overwrite it";
    to.refused("zfs receive -F tank/src", "full", has);
    to.refused("zfs receive tank/none", "incr-a-b", "cannot receive incremental stream: destination 'tank/none' does not exist");
    let mismatch = "cannot receive incremental stream: most recent snapshot of tank/src@b does not\nmatch incremental source";
    to.refused("zfs receive tank/src@b", "large-Lec-incr", mismatch);
    fs::write(to.rig.path("mnt/src/new"), "new").expect("a file");
    to.rig.ok("zpool sync tank");
    let modified = "cannot receive incremental stream: destination tank/src has been modified\nsince most recent snapshot";
    to.refused("zfs receive tank/src", "incr-a-b", modified);
    assert!(to.rig.path("mnt/src/new").exists(), "it is mounted as before");
    // A cut stream that is to be resumed is in the way until it is given up.
    let said = to.said("zfs receive -s tank/part", &to.stream("resume-part1"));
    assert!(said.code == 1 && said.err.contains("A resuming stream can be generated on the sending system by running:\n    zfs send -t 1-"), "{}", said.err);
    assert_eq!(to.rig.get("tank/part", "receive_resume_token"), fs::read_to_string(to.streams.join("resume.token")).expect("the token").trim());
    to.ok("zfs receive -s tank/part", "resume-part2");
    assert!(to.rig.is_mounted("mnt/part"), "it is new, and complete now");
    to.compare(&[("tank/part", "src@b")]);
    to.rig.refused("zfs receive -A tank/part", "'tank/part' does not have any resumable receive state to abort");
    to.finish();
}

/// The command is killed, or the daemon, while a stream comes: nothing is left of it.
#[test]
fn a_kill_leaves_nothing() {
    let Some(to) = Receiver::new() else { return };
    let begin = fs::read(to.stream("large-L")).expect("the stream");
    for daemon_too in [false, true] {
        let mut child = to.rig.command("zfs receive tank/large").stdin(Stdio::piped()).spawn().expect("a command");
        let mut pipe = child.stdin.take().expect("a pipe");
        std::io::Write::write_all(&mut pipe, &begin[..begin.len() / 2]).expect("half of it");
        let hidden = || to.rig.run("zfs list -Ho name tank/large").code == 0;
        to.rig.wait("the dataset is there", hidden);
        if daemon_too {
            to.rig.kill();
            let _ = child.kill();
            wait_for(&mut child, LIMIT);
            drop(pipe);
            to.rig.unmount_all();
            to.rig.ok("zpool import -f -d @ tank");
        } else {
            child.kill().expect("it runs");
            wait_for(&mut child, LIMIT);
            std::thread::sleep(Duration::from_millis(100));
            drop(pipe);
        }
        to.rig.wait("nothing is left", || !hidden());
    }
    to.ok("zfs receive tank/large", "large-L");
    to.finish();
}

impl Receiver {
    /// Sends into a file of that name.
    #[track_caller]
    fn send(&self, words: &str, name: &str) {
        let output = self.rig.command(&format!("zfs send {words}")).output().expect("tarn");
        assert!(output.status.success(), "zfs send {words}: {}", String::from_utf8_lossy(&output.stderr));
        fs::write(self.stream(name), output.stdout).expect("the stream");
    }

    fn get(&self, what: &str) -> String {
        self.rig.ok(&format!("zfs get -Ho value,source {what}"))
    }
}

/// A program that has a file open, or works in a directory, goes on in what was received.
#[test]
fn what_is_mounted_stays_so() {
    let Some(to) = Receiver::new() else { return };
    let (src, dst) = (to.rig.path("mnt/src"), to.rig.path("mnt/dst"));
    to.rig.ok("zfs create -o atime=off tank/src");
    fs::write(src.join("f"), "first").expect("a file");
    fs::write(src.join("goes"), "goes").expect("a file");
    to.rig.ok("zfs snapshot tank/src@a");
    to.send("tank/src@a", "a");
    to.ok("zfs receive -o atime=off tank/dst", "a");
    let open = File::open(dst.join("f")).expect("it is there");
    let gone = File::open(dst.join("goes")).expect("it is there");
    let read = |file: &File| {
        let mut bytes = [0; 100];
        std::os::unix::fs::FileExt::read_at(file, &mut bytes, 0).map(|count| String::from_utf8_lossy(&bytes[..count]).into_owned())
    };
    assert_eq!(read(&open).expect("contents"), "first");
    let device = std::os::unix::fs::MetadataExt::dev(&fs::metadata(&dst).expect("the mount"));
    fs::write(src.join("f"), "second, and longer").expect("contents");
    fs::remove_file(src.join("goes")).expect("it goes");
    to.rig.ok("zfs snapshot tank/src@b");
    to.send("-i tank/src@a tank/src@b", "a-b");
    to.ok("zfs receive tank/dst", "a-b");
    assert_eq!(std::os::unix::fs::MetadataExt::dev(&fs::metadata(&dst).expect("the mount")), device, "it was not unmounted");
    assert_eq!(read(&open).expect("contents"), "second, and longer");
    assert_eq!(read(&gone).map_err(|error| error.raw_os_error()), Err(Some(116)), "stale");
    assert_eq!(to.rig.ok("zfs list -Ht snapshot -o name -r tank/dst"), "tank/dst@a\ntank/dst@b\n");
    // What the kernel still has is a change, too.
    fs::write(dst.join("own"), "own").expect("a change");
    fs::write(src.join("f"), "third").expect("contents");
    to.rig.ok("zfs snapshot tank/src@c");
    to.send("-i tank/src@b tank/src@c", "b-c");
    let modified = "cannot receive incremental stream: destination tank/dst has been modified\nsince most recent snapshot";
    to.refused("zfs receive tank/dst", "b-c", modified);
    assert_eq!((fs::read_to_string(dst.join("own")).expect("it stays"), read(&open).expect("contents").as_str()), ("own".to_owned(), "second, and longer"));
    to.ok("zfs receive -F tank/dst", "b-c");
    assert!(!dst.join("own").exists() && read(&open).expect("contents") == "third");
    drop((open, gone));
    // All of it, over what has no snapshots: only that is unmounted, and mounted again.
    to.rig.ok("zfs create tank/none");
    fs::write(to.rig.path("mnt/none/old"), "old").expect("a file");
    to.ok("zfs receive -F tank/none", "a");
    assert!(to.rig.is_mounted("mnt/none") && !to.rig.path("mnt/none/old").exists() && to.rig.path("mnt/none/f").exists());
    to.finish();
}

/// `-x` hides what comes. It is known all the same, and counts when it is asked for.
#[test]
fn what_is_excluded_is_received_all_the_same() {
    let Some(to) = Receiver::new() else { return };
    to.rig.ok("zfs create -o user:one=old tank/src");
    to.rig.ok("zfs snapshot tank/src@a");
    to.send("-p tank/src@a", "a");
    to.ok("zfs receive tank/dst", "a");
    to.rig.ok("zfs set user:one=new compression=zstd quota=100M tank/src");
    to.rig.ok("zfs set quota=50M tank/dst");
    to.rig.ok("zfs snapshot tank/src@b");
    to.send("-p -i tank/src@a tank/src@b", "a-b");
    to.ok("zfs receive -F -x user:one -x compression -x quota tank/dst", "a-b");
    let received = |property: &str| to.rig.ok(&format!("zfs get -Ho value,received,source {property} tank/dst"));
    assert_eq!((received("user:one").as_str(), received("compression").as_str()), ("-\tnew\t-\n", "on\tzstd\tdefault\n"));
    assert_eq!(received("quota"), "50M\t100M\tlocal\n", "what is set there stays");
    assert!(!to.rig.ok("zfs get -H all tank/dst").contains("user:one"));
    to.rig.ok("zfs inherit -S user:one tank/dst");
    assert_eq!(received("user:one"), "new\tnew\treceived\n");
    to.finish();
}

/// What is set counts as received once, before the first package. One of which nothing was taken is the first all the same.
#[test]
fn what_is_set_after_the_first_package_stays() {
    let Some(to) = Receiver::new() else { return };
    to.rig.ok("zfs create -o quota=100M tank/src");
    to.rig.ok("zfs snapshot tank/src@a");
    to.send("-R tank/src@a", "a");
    to.ok("zfs receive -x quota tank/dst", "a");
    to.rig.ok("zfs set quota=50M tank/dst");
    to.rig.ok("zfs snapshot tank/src@b");
    to.send("-R -I tank/src@a tank/src@b", "a-b");
    to.ok("zfs receive -F -x quota tank/dst", "a-b");
    assert_eq!(to.rig.ok("zfs get -Ho value,source quota tank/dst"), "50M\tlocal\n");
    to.finish();
}

/// A property that the pool has no feature for does not come; all else does.
#[test]
fn a_property_that_the_pool_cannot_have_is_left_out() {
    let Some(to) = Receiver::new() else { return };
    to.rig.image("old.img", 256 * MIB);
    to.rig.ok("zpool create -d -O mountpoint=@old old @old.img");
    to.rig.ok("zfs create -o recordsize=1M -o user:one=1 tank/src");
    fs::write(to.rig.path("mnt/src/f"), vec![7; 100_000]).expect("a file");
    to.rig.ok("zfs snapshot tank/src@a");
    to.send("-p tank/src@a", "a");
    let said = to.said("zfs receive old/dst", &to.stream("a"));
    let words = "cannot receive recordsize property on old/dst: pool and or dataset must be upgraded to set this property or value\n";
    assert_eq!((said.code, said.err.as_str()), (0, words));
    assert_eq!(to.rig.ok("zfs get -Hpo value,source recordsize,user:one old/dst"), "131072\tdefault\n1\treceived\n");
    fs::write(to.rig.path("old/dst/new"), vec![8; 300_000]).expect("a file");
    to.rig.ok("zpool export old");
    to.rig.check("old");
    to.rig.zdb(&["old.img"]);
    to.finish();
}

/// Reading changes no time where nothing may be written: what is received later goes on top.
#[test]
fn reading_a_read_only_mount_changes_nothing() {
    let Some(to) = Receiver::new() else { return };
    to.rig.ok("zfs create -o relatime=off tank/src");
    fs::write(to.rig.path("mnt/src/f"), "first").expect("a file");
    to.rig.ok("zfs snapshot tank/src@a");
    to.send("tank/src@a", "a");
    to.ok("zfs receive -u -o relatime=off tank/dst", "a");
    to.rig.ok("zfs mount -o ro tank/dst");
    assert_eq!(fs::read_to_string(to.rig.path("mnt/dst/f")).expect("contents"), "first");
    assert_eq!(fs::read_dir(to.rig.path("mnt/dst")).expect("names").count(), 1);
    to.rig.ok("zpool sync tank");
    assert_eq!(to.rig.get("tank/dst", "written"), "0");
    fs::write(to.rig.path("mnt/src/f"), "second").expect("contents");
    to.rig.ok("zfs snapshot tank/src@b");
    to.send("-i tank/src@a tank/src@b", "a-b");
    to.ok("zfs receive tank/dst", "a-b");
    assert_eq!(fs::read_to_string(to.rig.path("mnt/dst/f")).expect("contents"), "second");
    to.finish();
}

/// What comes takes the place of what came before; what was set counts more; and a stream that breaks off changes nothing.
#[test]
fn properties_that_come_replace_those_that_came() {
    let Some(to) = Receiver::new() else { return };
    to.rig.ok("zfs create -o compression=gzip-1 -o user:one=1 -o recordsize=8192 -o refquota=100M tank/src");
    to.rig.ok("zfs snapshot -o user:snap=s tank/src@a");
    to.rig.ok("zfs hold keep tank/src@a");
    to.send("-ph tank/src@a", "a");
    to.ok("zfs receive tank/dst", "a");
    assert_eq!(to.get("compression tank/dst"), "gzip-1\treceived\n");
    assert_eq!(to.get("user:snap tank/dst@a"), "s\treceived\n");
    assert_eq!(to.get("refquota tank/dst"), "100M\treceived\n");
    assert!(to.rig.ok("zfs holds -H tank/dst@a").starts_with("tank/dst@a\tkeep\t"));
    to.ok("zfs receive -h tank/free", "a");
    assert_eq!(to.rig.ok("zfs holds -H tank/free@a"), "");
    to.rig.ok("zfs set recordsize=16384 tank/dst");
    to.rig.ok("zfs set compression=zstd-5 recordsize=4096 tank/src");
    to.rig.ok("zfs inherit user:one tank/src");
    fs::write(to.rig.path("mnt/src/f"), vec![7; 300_000]).expect("a file");
    to.rig.ok("zfs snapshot tank/src@b");
    to.send("-p -i tank/src@a tank/src@b", "a-b");
    let whole = fs::read(to.stream("a-b")).expect("the stream");
    fs::write(to.stream("cut"), &whole[..whole.len() - 1500]).expect("a cut stream");
    assert_eq!(to.said("zfs receive -F tank/dst", &to.stream("cut")).code, 1);
    assert_eq!(to.get("compression,user:one,recordsize tank/dst"), "gzip-1\treceived\n1\treceived\n16K\tlocal\n");
    to.ok("zfs receive -F tank/dst", "a-b");
    assert_eq!(to.get("compression,user:one,recordsize tank/dst"), "zstd-5\treceived\n-\t-\n16K\tlocal\n");
    to.ok("zfs receive -F -x compression -x refquota -o user:mine=m tank/free", "a-b");
    assert_eq!(to.get("compression,refquota,user:mine tank/free"), "on\tdefault\nnone\tdefault\nm\tlocal\n");
    to.rig.ok("zfs inherit -S compression tank/free");
    assert_eq!(to.get("compression tank/free"), "zstd-5\treceived\n");
    let said = to.said("zfs receive -x atime=off tank/x", &to.stream("a"));
    assert!(said.code == 2 && said.err.starts_with("invalid character '=' in property argument\n"), "{}", said.err);
    to.finish();
}

/// With `-F` what the sender has destroyed goes: a clone before its origin, snapshots before what they are of.
#[test]
fn what_the_sender_destroyed_goes() {
    let Some(to) = Receiver::new() else { return };
    for words in ["create tank/src", "create tank/src/b", "create tank/src/b/c", "snapshot tank/src/b@s", "clone tank/src/b@s tank/src/a", "snapshot -r tank/src@a"] {
        to.rig.ok(&format!("zfs {words}"));
    }
    to.send("-R tank/src@a", "a");
    to.ok("zfs receive tank/dst", "a");
    assert_eq!(to.rig.ok("zfs list -Ho name -r tank/dst"), "tank/dst\ntank/dst/a\ntank/dst/b\ntank/dst/b/c\n");
    to.rig.ok("zfs destroy -R tank/src/b");
    to.rig.ok("zfs snapshot -r tank/src@b");
    to.send("-R -I tank/src@a tank/src@b", "a-b");
    to.ok("zfs receive -F tank/dst", "a-b");
    assert_eq!(to.rig.ok("zfs list -Ho name -t all -r tank/dst"), "tank/dst\ntank/dst@a\ntank/dst@b\n");
    to.finish();
}

impl Receiver {
    #[track_caller]
    fn zfs(&self, all: &[&str]) {
        for words in all {
            self.rig.ok(&format!("zfs {words}"));
        }
    }

    #[track_caller]
    fn write(&self, file: &str, contents: &str) {
        fs::write(self.rig.path("mnt").join(file), contents).expect("a file");
    }

    #[track_caller]
    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.rig.path("mnt").join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
    }

    /// Names of file systems and snapshots below a file system, without its own.
    #[track_caller]
    fn names_below(&self, name: &str) -> Vec<String> {
        let all = self.rig.ok(&format!("zfs list -Ho name -t all -r {name}"));
        all.lines().filter_map(|line| Some(line.strip_prefix(name)?.strip_prefix('/')?.to_owned())).collect()
    }
}

/// A clone that the sender promoted, and gave the name of what it was a clone of, takes that place here, too; and later packages go on with it.
#[test]
fn what_the_sender_promoted_is_promoted() {
    let Some(to) = Receiver::new() else { return };
    to.zfs(&["create tank/src", "create tank/src/a"]);
    to.write("src/a/f", "first");
    to.zfs(&["snapshot -r tank/src@1", "clone tank/src/a@1 tank/src/b"]);
    to.write("src/b/f", "second");
    to.zfs(&["snapshot -r tank/src@2"]);
    to.send("-R tank/src@2", "2");
    to.ok("zfs receive tank/dst", "2");
    assert_eq!(to.rig.get("tank/dst/b", "origin"), "tank/dst/a@1");
    to.zfs(&["promote tank/src/b", "destroy -r tank/src/a", "rename tank/src/b tank/src/a"]);
    to.write("src/a/g", "third");
    to.zfs(&["snapshot -r tank/src@3"]);
    to.send("-R -I tank/src@2 tank/src@3", "2-3");
    to.ok("zfs receive -F tank/dst", "2-3");
    assert_eq!(to.names_below("tank/dst"), ["a", "a@1", "a@2", "a@3"]);
    assert_eq!((to.read("dst/a/f").as_str(), to.read("dst/a/g").as_str()), ("second", "third"));
    to.write("src/a/g", "fourth");
    to.zfs(&["snapshot -r tank/src@4"]);
    to.send("-R -I tank/src@3 tank/src@4", "3-4");
    to.ok("zfs receive -F tank/dst", "3-4");
    assert_eq!((to.names_below("tank/dst").len(), to.read("dst/a/g").as_str()), (5, "fourth"));
    to.finish();
}

/// The sender exchanged names, put one below another one that was there and one below a new one, and made a new one under an old name.
fn moves_are_followed(to: &Receiver, flags: &str) {
    to.zfs(&["create tank/src"]);
    for name in ["k", "p", "x", "y", "z"] {
        to.rig.ok(&format!("zfs create tank/src/{name}"));
        to.write(&format!("src/{name}/f"), name);
    }
    to.zfs(&["snapshot -r tank/src@1"]);
    to.send("-R tank/src@1", "1");
    to.ok(&format!("zfs receive {flags} tank/dst"), "1");
    to.zfs(&["rename tank/src/x tank/src/t", "rename tank/src/y tank/src/x", "rename tank/src/t tank/src/y"]);
    to.zfs(&["rename tank/src/k tank/src/p/k", "create tank/src/n", "rename tank/src/z tank/src/n/z", "create tank/src/z"]);
    to.write("src/z/f", "new");
    to.write("src/n/z/g", "more");
    to.zfs(&["snapshot -r tank/src@2"]);
    to.send("-R -I tank/src@1 tank/src@2", "1-2");
    to.ok(&format!("zfs receive -F {flags} tank/dst"), "1-2");
    let names = "n n@2 n/z n/z@1 n/z@2 p p@1 p@2 p/k p/k@1 p/k@2 x x@1 x@2 y y@1 y@2 z z@2";
    assert_eq!(to.names_below("tank/dst").join(" "), names);
}

fn contents_of_moved(to: &Receiver) {
    for (file, contents) in [("x/f", "y"), ("y/f", "x"), ("p/f", "p"), ("p/k/f", "k"), ("n/z/f", "z"), ("n/z/g", "more"), ("z/f", "new")] {
        assert_eq!(to.read(&format!("dst/{file}")), contents, "{file}");
    }
}

#[test]
fn what_the_sender_moved_is_moved() {
    let Some(to) = Receiver::new() else { return };
    moves_are_followed(&to, "-u");
    assert!(!to.rig.is_mounted("mnt/dst") && !to.rig.is_mounted("mnt/dst/n/z"), "-u");
    to.rig.ok("zfs mount -a");
    contents_of_moved(&to);
    to.finish();
}

#[test]
fn what_the_sender_moved_is_moved_under_mounts() {
    let Some(to) = Receiver::new() else { return };
    moves_are_followed(&to, "");
    for name in ["", "/n", "/n/z", "/p", "/p/k", "/x", "/y", "/z"] {
        assert!(to.rig.is_mounted(&format!("mnt/dst{name}")), "{name} is not mounted");
    }
    contents_of_moved(&to);
    to.finish();
}

/// A file system itself can be sent while nobody has it mounted, and nobody can mount it meanwhile.
#[test]
fn a_file_system_itself_is_sent() {
    let Some(to) = Receiver::new() else { return };
    to.rig.ok("zfs create -o compression=off tank/src");
    let contents: Vec<u8> = (0..4_u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(to.rig.path("mnt/src/f"), &contents).expect("a file");
    let said = to.rig.run("zfs send tank/src");
    let busy = "warning: cannot send 'tank/src': target is busy; if a filesystem, it must not be mounted\n";
    assert_eq!((said.code, said.err.as_str()), (1, busy));
    to.rig.ok("zfs unmount tank/src");
    to.send("tank/src", "head");
    to.ok("zfs receive tank/dst", "head");
    assert_eq!(to.rig.ok("zfs list -Ho name -t snapshot -r tank"), "tank/dst@--head--\n");
    assert!(fs::read(to.rig.path("mnt/dst/f")).expect("it is mounted") == contents);
    // What broke off goes on.
    let whole = fs::read(to.stream("head")).expect("a stream");
    fs::write(to.stream("half"), &whole[..whole.len() / 2]).expect("a part");
    assert_eq!(to.said("zfs receive -s tank/part", &to.stream("half")).code, 1);
    let token = to.rig.get("tank/part", "receive_resume_token");
    to.send(&format!("-t {token}"), "rest");
    to.ok("zfs receive -s tank/part", "rest");
    assert!(fs::read(to.rig.path("mnt/part/f")).expect("it is mounted") == contents);
    to.rig.ok("zfs mount tank/src");
    assert!(fs::read(to.rig.path("mnt/src/f")).expect("it is mounted again") == contents);
    to.finish();
}

/// What a snapshot is called, and what is said of it, comes with the next package, though the snapshot itself does not.
#[test]
fn what_the_sender_says_of_old_snapshots_comes() {
    let Some(to) = Receiver::new() else { return };
    for words in ["create tank/src", "create tank/src/b", "snapshot -r tank/src@a", "snapshot -r tank/src@b"] {
        to.rig.ok(&format!("zfs {words}"));
    }
    to.send("-R tank/src@b", "b");
    to.ok("zfs receive tank/dst", "b");
    for words in ["set a:b=c tank/src@a", "set a:b=d tank/src/b@b", "rename tank/src/b@a tank/src/b@old", "snapshot -r tank/src@c"] {
        to.rig.ok(&format!("zfs {words}"));
    }
    to.send("-R -I tank/src@b tank/src@c", "b-c");
    to.ok("zfs receive -F tank/dst", "b-c");
    let names = "tank/dst\ntank/dst@a\ntank/dst@b\ntank/dst@c\ntank/dst/b\ntank/dst/b@old\ntank/dst/b@b\ntank/dst/b@c\n";
    assert_eq!(to.rig.ok("zfs list -Ho name -t all -r tank/dst"), names);
    let said = to.rig.ok("zfs get -Ho value,source a:b tank/dst@a tank/dst@b tank/dst/b@b");
    assert_eq!(said, "c\treceived\n-\t-\nd\treceived\n");
    to.finish();
}

/// There is no room for all of it: nothing is left.
#[test]
fn a_stream_that_does_not_fit_leaves_nothing() {
    let Some(to) = Receiver::new() else { return };
    to.rig.ok("zfs create -o compression=off tank/src");
    let contents: Vec<u8> = (0..24_u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(to.rig.path("mnt/src/f"), &contents).expect("a file");
    to.rig.ok("zfs snapshot tank/src@a");
    to.send("tank/src@a", "large");
    to.rig.ok("zfs create -o quota=1M tank/q");
    to.refused("zfs receive tank/q/x", "large", "cannot receive new filesystem stream: destination tank/q/x space quota exceeded.");
    assert_eq!(to.rig.ok("zfs list -Ho name -r tank/q"), "tank/q\n");
    to.rig.ok("zfs set quota=none tank/q");
    to.ok("zfs receive tank/q/x", "large");
    assert!(fs::read(to.rig.path("mnt/q/x/f")).expect("the file") == contents);
    to.finish();
}

/// A snapshot is redacted for what its clones have changed, and what is received is not mounted.
#[test]
fn redacted_streams() {
    let Some(to) = Receiver::new() else { return };
    to.rig.ok("zfs create -o recordsize=4096 -o compression=off -o atime=off tank/src");
    fs::write(to.rig.path("mnt/src/f"), vec![1; 100_000]).expect("a file");
    to.rig.ok("zfs snapshot tank/src@a");
    to.rig.ok("zfs clone tank/src@a tank/clone");
    let file = fs::OpenOptions::new().write(true).open(to.rig.path("mnt/clone/f")).expect("it is there");
    std::os::unix::fs::FileExt::write_all_at(&file, &[2; 10_000], 8192).expect("a change");
    drop(file);
    to.rig.ok("zfs snapshot tank/clone@s");
    to.rig.ok("zfs redact tank/src@a book tank/clone@s");
    let guid = to.rig.get("tank/clone@s", "guid");
    assert_eq!(to.rig.ok("zfs get -Hpo value redact_snaps tank/src#book"), format!("{guid}\n"));
    let shown = to.rig.ok("zdb -vvvv tank/src#book");
    assert!(shown.contains(&format!("\t\tSnapshots: [{guid}]\n\t\tLength: 1\n")), "{shown}");
    assert!(shown.contains("blksz: 1000, count: 3}]"), "{shown}");
    let said = to.rig.run("zfs redact tank/src@a book tank/clone@s");
    assert_eq!((said.code, said.err.as_str()), (17, "specified redaction bookmark (book) provided already exists\n"));
    to.send("--redact book tank/src@a", "redacted");
    to.ok("zfs receive tank/dst", "redacted");
    assert_eq!(to.rig.ok("zfs get -Hpo value redact_snaps,mounted tank/dst"), format!("{guid}\nno\n"));
    let words = "cannot mount 'tank/dst': Dataset is not complete, was created by receiving a redacted zfs send stream.";
    to.rig.refused("zfs mount tank/dst", words);
    to.rig.ok("zfs mount -f -o ro tank/dst");
    let read = |at: u64| {
        let mut bytes = [0; 4096];
        let file = File::open(to.rig.path("mnt/dst/f")).expect("it is there");
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, at).map(|()| bytes == [1; 4096]).map_err(|error| error.raw_os_error())
    };
    assert_eq!((read(0), read(8192), read(16384), read(20480)), (Ok(true), Ok(false), Ok(false), Ok(true)));
    to.rig.ok("zfs unmount tank/dst");
    to.finish();
}
