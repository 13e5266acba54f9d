//! Places in which a command could meet another user's daemon instead of its own.
//!
//! Without a runtime directory the place is `/tmp/tarn-UID`, and `TARN_SOCKET` may name one in any directory: a user that could write there put a daemon of
//! their own into it, which told `tarn transaction run` where to run the caller's command; or made the log a link, the lock a pipe, the
//! directory of the views their own, and the caller's daemon wrote where the link led, waited for ever, handed out what was not committed.

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Gid, Uid};
use sim::places::skipped;
use tarnfs::control::Reply;
use tarnfs::control::wire::write_message;

use crate::rig::{Rig, Said, has_program, run_for};

const MIB: u64 = 1 << 20;
/// A user whom nobody has: whose places these are not.
const STRANGER: u32 = 61_234;
/// A user as any other.
const USER: u32 = 61_235;
/// `fusermount3` mounts for users that have a name only.
const NOBODY: u32 = 65_534;
/// For what would wait for ever.
const SOON: Duration = Duration::from_secs(60);

/// A daemon of the stranger's, which says yes to everything, and counts what it is told.
struct FalseDaemon {
    heard: Arc<AtomicUsize>,
    ending: Arc<AtomicBool>,
    serving: Option<JoinHandle<()>>,
}

impl FalseDaemon {
    /// The kernel tells a caller whose the listening thread was: so that is the stranger's.
    fn at(socket: &Path) -> FalseDaemon {
        let listener = UnixListener::bind(socket).unwrap();
        fs::set_permissions(socket, Permissions::from_mode(0o777)).unwrap();
        chown(socket, Some(STRANGER), Some(STRANGER)).unwrap();
        let (heard, ending) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, end) = (Arc::clone(&heard), Arc::clone(&ending));
        let (listens, is_listening) = std::sync::mpsc::channel();
        let serving = std::thread::spawn(move || {
            rustix::thread::set_thread_res_gid(Gid::from_raw(STRANGER), Gid::from_raw(STRANGER), Gid::from_raw(STRANGER))
                .unwrap();
            rustix::thread::set_thread_res_uid(Uid::from_raw(STRANGER), Uid::from_raw(STRANGER), Uid::from_raw(STRANGER))
                .unwrap();
            rustix::net::listen(&listener, 16).unwrap();
            listens.send(()).unwrap();
            listener.set_nonblocking(true).unwrap();
            while !end.load(Ordering::SeqCst) {
                match listener.accept() {
                    Ok((stream, _)) => serve(stream, &count),
                    Err(_) => std::thread::sleep(Duration::from_millis(2)),
                }
            }
        });
        // Until then it is root that listens.
        is_listening.recv().unwrap();
        FalseDaemon { heard, ending, serving: Some(serving) }
    }

    fn bytes_heard(&self) -> usize {
        self.heard.load(Ordering::SeqCst)
    }
}

impl Drop for FalseDaemon {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::SeqCst);
        let _ = self.serving.take().map(JoinHandle::join);
    }
}

fn serve(mut stream: UnixStream, heard: &AtomicUsize) {
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut bytes) {
        heard.fetch_add(count, Ordering::SeqCst);
        let _ = write_message(&mut stream, &Reply::Done);
    }
}

/// A directory with this mode, of this owner.
fn directory(path: &Path, mode: u32, owner: u32) -> PathBuf {
    fs::create_dir(path).unwrap();
    chown(path, Some(owner), Some(owner)).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    path.to_owned()
}

/// The program with a place of its own. The rig's directory is opened, so that others reach what is in it.
fn tarn(rig: &Rig, socket: &Path, words: &str) -> Command {
    fs::set_permissions(rig.path(""), Permissions::from_mode(0o755)).unwrap();
    let mut command = rig.command(words);
    command.env("TARN_SOCKET", socket);
    command
}

#[track_caller]
fn run(command: &mut Command) -> Said {
    run_for(command, SOON).unwrap_or_else(|| panic!("{command:?} hangs"))
}

/// Refused, naming the thing, why, and what to do.
#[track_caller]
fn expect_refusal(what: &str, said: &Said, path: &Path, why: &str) {
    let words = format!("{}: {why}", path.display());
    assert!(said.code != 0 && said.err.contains(&words) && said.err.contains("TARN_SOCKET"), "{what}: not {words:?}: {said:?}");
}

/// Whatever is on the way to the socket, and the socket, belongs to us or to root, and nobody else may write there.
#[test]
fn nobody_is_led_to_a_strangers_daemon() {
    let Some(rig) = Rig::new() else { return };
    let told = |what: &str, place: &Path, wrong: &Path, why: &str| {
        for words in ["zpool list", "zfs list", "transaction run tank -- /bin/true", "zpool create -m none tank @a.img"] {
            let said = run(&mut tarn(&rig, place, words));
            expect_refusal(&format!("{what}, {words}"), &said, wrong, why);
        }
    };
    rig.image("a.img", 128 * MIB);
    let all_may = "others may write to it";
    let stranger = format!("it belongs to user {STRANGER}");

    let theirs = directory(&rig.path("theirs"), 0o755, STRANGER);
    let listening = FalseDaemon::at(&theirs.join("s"));
    told("a directory of the stranger's", &theirs.join("s"), &theirs, &stranger);
    let sticky = directory(&rig.path("sticky"), 0o1777, 0);
    symlink(&theirs, sticky.join("link")).unwrap();
    rustix::fs::chownat(
        rustix::fs::CWD,
        sticky.join("link"),
        Some(Uid::from_raw(STRANGER)),
        None,
        rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
    )
    .unwrap();
    told("a link of the stranger's", &sticky.join("link/s"), &sticky.join("link"), &stranger);
    symlink(&theirs, rig.path("ours")).unwrap();
    told("a link of ours", &rig.path("ours/s"), &theirs, &stranger);
    assert_eq!(listening.bytes_heard(), 0, "not a byte was said to it");

    let open = directory(&rig.path("open"), 0o777, 0);
    let squatted = FalseDaemon::at(&open.join("s"));
    told("a directory for everybody", &open.join("s"), &open, all_may);
    directory(&open.join("below"), 0o700, 0);
    told("below one", &open.join("below/s"), &open, all_may);
    let group = directory(&rig.path("group"), 0o775, 0);
    chown(&group, Some(0), Some(STRANGER)).unwrap();
    told("a directory for a group", &group.join("s"), &group, all_may);
    let other = FalseDaemon::at(&sticky.join("s"));
    told("a socket of the stranger's", &sticky.join("s"), &sticky.join("s"), &stranger);
    assert_eq!(squatted.bytes_heard() + other.bytes_heard(), 0, "not a byte was said to them");
}

/// The socket may be ours and its listener another user's: it was bound for them.
#[test]
fn who_answers_is_looked_at_before_a_byte_is_said() {
    let Some(rig) = Rig::new() else { return };
    let place = directory(&rig.path("place"), 0o700, 0);
    let listening = FalseDaemon::at(&place.join("s"));
    chown(place.join("s"), Some(0), Some(0)).unwrap();
    for words in ["zpool list", "transaction run tank -- /bin/true"] {
        let said = run(&mut tarn(&rig, &place.join("s"), words));
        expect_refusal(words, &said, &place.join("s"), &format!("a process of user {STRANGER} is at the other end"));
    }
    assert_eq!(listening.bytes_heard(), 0);
}

/// What stands beside the socket: the lock and the log were opened through links (root made files where a stranger wanted them), pipes in their places
/// made commands wait for ever, a plain file in the socket's place was removed.
#[test]
fn what_stands_beside_the_socket_is_ours_and_what_it_should_be() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 * MIB);
    let victim = rig.path("victim");
    let sticky = directory(&rig.path("sticky"), 0o1777, 0);
    let refused = |what: &str, place: &Path, wrong: &str, why: &str| {
        let mut wrong_path = place.as_os_str().to_owned();
        wrong_path.push(wrong);
        let said = run(&mut tarn(&rig, place, "zpool create -m none tank @a.img"));
        expect_refusal(what, &said, Path::new(&wrong_path), why);
        assert!(!victim.exists(), "{what}: a file was made elsewhere");
        PathBuf::from(wrong_path)
    };
    for suffix in [".lock", ".log"] {
        let place = sticky.join(format!("link{suffix}"));
        symlink(&victim, format!("{}{suffix}", place.display())).unwrap();
        refused("a link", &place, suffix, "it is a symbolic link");
        let place = sticky.join(format!("pipe{suffix}"));
        assert!(Command::new("mkfifo").arg(format!("{}{suffix}", place.display())).status().unwrap().success());
        refused("a pipe", &place, suffix, "it is not a regular file");
        let place = sticky.join(format!("theirs{suffix}"));
        fs::write(format!("{}{suffix}", place.display()), "").unwrap();
        chown(format!("{}{suffix}", place.display()), Some(STRANGER), None).unwrap();
        let wrong = refused("a stranger's file", &place, suffix, &format!("it belongs to user {STRANGER}"));
        assert_eq!(wrong.metadata().unwrap().size(), 0, "nothing was written to it");
        let place = sticky.join(format!("twice{suffix}"));
        fs::write(rig.path("precious"), "").unwrap();
        fs::hard_link(rig.path("precious"), format!("{}{suffix}", place.display())).unwrap();
        refused("another name of a file", &place, suffix, "it has another name");
        fs::remove_file(rig.path("precious")).unwrap();
    }
    fs::write(sticky.join("plain"), "mine").unwrap();
    refused("a plain file", &sticky.join("plain"), "", "it is not a socket");
    assert_eq!(fs::read(sticky.join("plain")).unwrap(), b"mine");
    symlink(sticky.join("plain"), sticky.join("linked")).unwrap();
    refused("a link", &sticky.join("linked"), "", "it is a symbolic link");
}

/// The directory of the views was taken as it was: a stranger who had made it put a link in the place of a view, or read what was not committed.
#[test]
fn views_are_not_mounted_in_a_strangers_directory() {
    let Some(rig) = Rig::new() else { return };
    rig.image("a.img", 128 * MIB);
    let sticky = directory(&rig.path("sticky"), 0o1777, 0);
    for (name, mode, owner, why) in [
        ("theirs", 0o755, STRANGER, format!("it belongs to user {STRANGER}")),
        ("open", 0o1777, 0, "others may write to it".to_owned()),
    ] {
        let place = sticky.join(name);
        let views = directory(&sticky.join(format!("{name}.transactions")), mode, owner);
        assert_eq!(run(&mut tarn(&rig, &place, "zpool create -O mountpoint=@mnt tank @a.img")).code, 0);
        let said = run(&mut tarn(&rig, &place, "transaction run tank -- /bin/true"));
        let destroyed = run(&mut tarn(&rig, &place, "zpool destroy tank"));
        expect_refusal(name, &said, &views, &why);
        assert_eq!(destroyed.code, 0, "{destroyed:?}");
        assert_eq!(fs::read_dir(&views).unwrap().count(), 0);
    }
}

/// What ordinary users have is not refused: a sticky directory for all, a directory for all to read, links of root's, a path from here.
#[test]
fn ordinary_places_are_taken() {
    let Some(rig) = Rig::new() else { return };
    let sticky = directory(&rig.path("sticky"), 0o1777, 0);
    let home = directory(&rig.path("home"), 0o755, USER);
    let shared = directory(&rig.path("shared"), 0o775, USER);
    symlink(&home, rig.path("link")).unwrap();
    let program = rig.path("tarn");
    if fs::hard_link(env!("CARGO_BIN_EXE_tarn"), &program).is_err() {
        fs::copy(env!("CARGO_BIN_EXE_tarn"), &program).unwrap();
    }
    let image = rig.image("a.img", 128 * MIB);
    chown(&image, Some(USER), Some(USER)).unwrap();
    let as_user = |place: &Path, words: &str| {
        fs::set_permissions(rig.path(""), Permissions::from_mode(0o755)).unwrap();
        let mut command = Command::new(&program);
        command.args(words.split(' ')).env("TARN_SOCKET", place).current_dir(&home).uid(USER).gid(USER);
        run(&mut command)
    };
    for place in [
        sticky.join("s"),
        home.join("s"),
        shared.join("s"),
        rig.path("link/s"),
        home.join("not/there/yet/s"),
        "s".into(),
        "../sticky/t".into(),
    ] {
        let made = as_user(&place, &format!("zpool create -m none tank {image}"));
        let listed = as_user(&place, "zpool list -H -o name");
        let exported = as_user(&place, "zpool destroy tank");
        assert!(
            made.code == 0 && listed.out == "tank\n" && exported.code == 0,
            "{}: {made:?} {listed:?} {exported:?}",
            place.display()
        );
    }
    assert_eq!(fs::metadata(home.join("not/there")).unwrap().mode() & 0o777, 0o700);
}

/// A user's daemon cannot change what the kernel does with a mount, and said that it had: a file system that was to be read-only could be written.
#[test]
fn a_user_is_told_what_only_root_can_change() {
    let Some(rig) = Rig::new() else { return };
    if !has_program("fusermount3") {
        return;
    }
    if fs::metadata("/dev/fuse").is_ok_and(|found| found.permissions().mode() & 0o006 != 0o006) {
        skipped("a user's remounts: /dev/fuse is root's alone here");
        return;
    }
    let home = directory(&rig.path("home"), 0o755, NOBODY);
    let program = home.join("tarn");
    fs::copy(env!("CARGO_BIN_EXE_tarn"), &program).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let image = rig.image("a.img", 128 * MIB);
    chown(&image, Some(NOBODY), Some(NOBODY)).unwrap();
    fs::set_permissions(rig.path(""), Permissions::from_mode(0o755)).unwrap();
    let as_user = |words: &str| {
        let mut command = Command::new(&program);
        command.args(words.split(' ')).env("TARN_SOCKET", home.join("sock")).current_dir(&home).uid(NOBODY).gid(NOBODY);
        run(&mut command)
    };
    let made = as_user(&format!("zpool create -m {}/mnt tank {image}", home.display()));
    let said = ["ro", "noexec", "rw", "noatime", "rw,nosuid"].map(|options| as_user(&format!("zfs mount -o remount,{options} tank")));
    let unmounted = as_user("zfs unmount tank");
    let again = ["zfs mount -o ro tank", "zfs mount -o remount,rw tank", "zfs mount -o remount,ro,noatime tank"].map(as_user);
    let destroyed = as_user("zpool destroy tank");
    assert!([&made, &unmounted, &destroyed].iter().all(|run| run.code == 0), "{made:?} {unmounted:?} {destroyed:?}");
    assert_eq!(said.each_ref().map(|run| run.code == 0), [false, false, true, true, true], "{said:?}");
    assert_eq!(again.each_ref().map(|run| run.code == 0), [true, false, true], "{again:?}");
    assert!([&said[0], &said[1], &again[1]].iter().all(|run| run.err.contains("only root")), "{said:?} {again:?}");
}

/// The place of a user without a runtime directory was made by a stranger before.
#[test]
fn the_usual_place_was_taken_by_a_stranger() {
    struct Removed(PathBuf);
    impl Drop for Removed {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
    let Some(rig) = Rig::new() else { return };
    let user = 3_000_000_000 + std::process::id();
    let usual = Removed(PathBuf::from(format!("/tmp/tarn-{user}")));
    directory(&usual.0, 0o755, STRANGER);
    let listening = FalseDaemon::at(&usual.0.join("daemon.sock"));
    let program = rig.path("tarn");
    if fs::hard_link(env!("CARGO_BIN_EXE_tarn"), &program).is_err() {
        fs::copy(env!("CARGO_BIN_EXE_tarn"), &program).unwrap();
    }
    fs::set_permissions(rig.path(""), Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(&program);
    command.args(["zpool", "list"]).env_remove("TARN_SOCKET").env_remove("XDG_RUNTIME_DIR").current_dir("/").uid(user).gid(user);
    expect_refusal("the usual place", &run(&mut command), &usual.0, &format!("it belongs to user {STRANGER}"));
    assert_eq!(listening.bytes_heard(), 0);
}

/// A user mounted a file system over his home, in which his daemon had its socket: every command from then on began another daemon, in the
/// new home, which knew of no pool; the first could not be told to let go of its own.
#[test]
fn a_mount_does_not_hide_the_daemon() {
    let Some(rig) = Rig::new() else { return };
    let home = directory(&rig.path("home"), 0o755, 0);
    let image = rig.image("a.img", 128 * MIB);
    symlink(&home, rig.path("link")).unwrap();
    for (place, over) in [(home.join("s"), home.clone()), (home.join("run/tarn/s"), rig.path("link"))] {
        let made = run(&mut tarn(&rig, &place, &format!("zpool create -m none tank {image}")));
        run(&mut tarn(&rig, &place, &format!("zfs set mountpoint={} tank", over.display())));
        let said = run(&mut tarn(&rig, &place, "zfs mount tank"));
        let listed = run(&mut tarn(&rig, &place, "zpool list -H -o name"));
        let elsewhere = run(&mut tarn(&rig, &place, "zfs set mountpoint=@mnt tank"));
        run(&mut tarn(&rig, &place, "zfs mount tank"));
        let mounted = run(&mut tarn(&rig, &place, "zfs list -H -o mounted tank"));
        let destroyed = run(&mut tarn(&rig, &place, "zpool destroy tank"));
        // What a daemon that was hidden has mounted.
        rig.unmount_all();
        assert!(said.code != 0 && said.err.contains("the daemon's socket is in") && said.err.contains("TARN_SOCKET"), "{said:?}");
        assert_eq!(
            (made.code, listed.out.as_str(), elsewhere.code, destroyed.code),
            (0, "tank\n", 0, 0),
            "{listed:?} {elsewhere:?} {destroyed:?}"
        );
        assert_eq!(mounted.out, "yes\n");
    }
}

/// What lay over a file system that was in use was gone, and stayed so, when that could not be unmounted.
#[test]
fn what_lies_over_a_busy_file_system_stays() {
    let Some(rig) = Rig::with_tank("a.img", 64 << 20, "-O mountpoint=none") else { return };
    rig.ok("zfs create -o mountpoint=@x tank/a");
    fs::write(rig.path("x/file"), "below").unwrap();
    let open = fs::File::open(rig.path("x/file")).unwrap();
    rig.ok("zfs create -o mountpoint=@x tank/b");
    let mounted = rig.ok("zfs mount");
    assert!(mounted.contains("tank/a") && mounted.contains("tank/b") && !rig.path("x/file").exists(), "{mounted}");
    rig.refused("zfs unmount tank/a", "busy");
    assert_eq!(rig.ok("zfs mount"), mounted);
    rig.ok("zfs unmount @x");
    assert_eq!(fs::read(rig.path("x/file")).unwrap(), b"below");
    drop(open);
    rig.finish("tank", &["a.img"]);
}
